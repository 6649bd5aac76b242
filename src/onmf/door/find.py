"""Find clusters and rows by features: documents by words, cells by genes, the best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array, FloatArray, divide
from onmf.estimator import ONMF, is_integer
from onmf.io.rules import require

from .settle import batches

if TYPE_CHECKING:
    from .clusters import Clusters, Table
    from .kind import Kind

BEGINNING = 3  # letters from which on a word stands for the features that begin like it
LONGEST = 1000  # characters of a query
NEAR = 3  # features that are suggested for a word that is unknown
LACKED = 0.01  # a feature counts at least as much as if a cluster had this part of the mean share
SATURATION, LENGTHS = 1.2, 0.75  # of BM25: how soon further counts stop to matter, and how much long rows are held back


class ClusterHit(NamedTuple):
    """A cluster that was found."""

    cluster: int  #: its number, from 0
    name: str  #: its name
    times: float  #: how many times as frequent the words are as in all rows; of several words, the geometric mean


class RowHit(NamedTuple):
    """A row that was found."""

    row: int  #: its place in the table
    name: str  #: its name
    cluster: int  #: its cluster, -1 if it is unassigned
    score: float  #: how well it matches, by BM25


@dataclass(frozen=True)
class Hits:
    """What was found for a query.

    Attributes
    ----------
    query : str
        What was searched for.
    words : dict of str to list of str
        The features that each word stands for: the one of this name, or those that begin like it.
    unknown : dict of str to list of str
        Words that the model does not know, with features that are spelled like them.
    clusters : list of ClusterHit
        The clusters that are named so, then those that have the features, the most first.
    rows : list of RowHit
        The rows that have the features, the best first.
    notes : list of str
        Why rows were not searched, if they were not.
    """

    query: str
    words: dict[str, list[str]]
    unknown: dict[str, list[str]]
    clusters: list[ClusterHit] = field(default_factory=list)
    rows: list[RowHit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Hits for {self.query!r}: {len(self.clusters)} clusters, {len(self.rows)} rows>"


def find(clusters: Clusters, query: str, n: int) -> Hits:
    """The clusters and the rows of a result that have some features; see :meth:`Clusters.find`."""
    kind, table = clusters.kind, clusters.table
    found = find_clusters(kind, clusters.model, clusters.names, query, n, table)
    if kind.found_elsewhere:
        found.notes.append(kind.found_elsewhere)
    else:
        labels = clusters.labels.ravel()
        taking_part = np.flatnonzero(clusters.templates.ravel() >= 0) if hasattr(table.X, "block") else None
        found.rows.extend(find_rows(kind, clusters.model, table, found, labels, n, taking_part))
    return found


def find_clusters(
    kind: Kind, model: ONMF, names: Sequence[str], query: str, n: int, table: Table | None = None
) -> Hits:
    """The clusters of a model that have some features, or are named so. ``table`` has what code the words need."""
    require(isinstance(query, str) and query.strip(), f"query={query!r} is not allowed: it is one or more words.")
    require(len(query) <= LONGEST, f"query has {len(query):,} characters: use at most {LONGEST:,}.")
    require(is_integer(n) and n >= 1, f"n={n!r} is not allowed: n must be an integer, at least 1.")
    numbers, centroids, masses = model.clustering_.by_cluster()
    require(not (centroids < 0).any(), "Features with negative values cannot be searched for: shares have no sign.")
    features, terms = kind.namings_of(model.extra_), kind.terms(query, model, table)
    known = {word: columns for word, columns in terms.items() if columns}
    unknown = {word: _near(word, features) for word, columns in terms.items() if not columns}
    shares = divide(centroids, centroids.sum(axis=1, keepdims=True))
    whole = masses @ centroids
    whole = divide(whole, whole.sum())
    times, has = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=bool)
    for columns in known.values():
        share = shares[:, columns].sum(axis=1)
        has |= share > 0
        times += np.log(divide(share, np.full_like(share, whole[columns].sum())) + LACKED) / len(known)
    parts = query.casefold().split()
    named = np.array([all(part in names[number].casefold() for part in parts) for number in numbers.tolist()])
    order = np.lexsort((-times, ~named))
    hits = [
        ClusterHit(int(numbers[i]), names[numbers[i]], float(np.exp(times[i])) if known else 1.0)
        for i in order
        if has[i] or named[i]
    ]
    return Hits(query, {word: [features[0][j] for j in known[word]] for word in known}, unknown, hits[:n])


def find_rows(
    kind: Kind, model: ONMF, table: Table, hits: Hits, labels: Array, n: int, taking_part: Array | None = None
) -> list[RowHit]:
    """The rows of a table that have the features of some hits, ranked by BM25.

    ``taking_part`` are the places in the table of the rows of its counts, if it has counts of some rows only.
    """
    from .kind import best_match

    terms = kind.terms(hits.query, model, table)
    places = best_match(kind.namings_of(model.extra_), table.namings)
    known = [columns[columns >= 0] for columns in (places[found] for found in terms.values() if found)]
    if not known:
        return []
    parts = []
    for _, batch in batches(table.X):
        X = csr_array(batch)
        parts.append(np.stack([X.sum(axis=1), *(X[:, columns].sum(axis=1) for columns in known)]))
    lengths, *counts = np.concatenate(parts, axis=1).astype(np.float64)
    scores = _bm25(lengths, counts)
    best = np.argsort(-scores, kind="stable")[:n]
    rows = best if taking_part is None else taking_part[best]
    return [
        RowHit(int(row), str(table.rows[int(row)]), int(labels[row]), float(score))
        for row, score in zip(rows, scores[best], strict=True)
        if score > 0
    ]


def _bm25(lengths: FloatArray, counts: Iterable[FloatArray]) -> FloatArray:
    """How well each row matches some words, whose counts it has. → (n,)"""
    n, mean = len(lengths), max(float(lengths.mean()), 1e-300) if len(lengths) else 1.0
    scores = np.zeros(n)
    for count in counts:
        rows = np.count_nonzero(count)
        rare = np.log1p((n - rows + 0.5) / (rows + 0.5))
        slow = SATURATION * (1 - LENGTHS + LENGTHS * lengths / mean)
        scores += rare * divide(count * (SATURATION + 1), count + slow)
    return scores


def _near(word: str, namings: Sequence[Sequence[str]]) -> list[str]:
    """Features that are spelled like a word."""
    known = {str(feature).casefold(): str(feature) for features in reversed(namings) for feature in features}
    return [known[near] for near in get_close_matches(word.casefold(), known, NEAR, 0.75)]


def features_of_words(query: str, words: Iterable[str], namings: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """For each word the features that it stands for: those of this name, else those that begin like it.

    If there is a feature of the name of the whole query, the query stands for it. Upper and lower case do not matter.
    ``namings`` are the names of the features, in one or several ways of naming them.
    """
    places: list[dict[str, list[int]]] = []
    for features in namings:
        places.append({})
        for j, feature in enumerate(features):
            places[-1].setdefault(str(feature).casefold(), []).append(j)
    whole = " ".join(query.split())

    def meant(word: str) -> list[int]:
        low = word.casefold()
        same = next((known[low] for known in places if low in known), None)
        if same is not None or len(low) < BEGINNING:
            return same or []
        return sorted({j for known in places for name, found in known.items() if name.startswith(low) for j in found})

    if any(whole.casefold() in known for known in places):
        return {whole: meant(whole)}
    return {word: meant(word) for word in dict.fromkeys(words)}


def words_of(query: str) -> list[str]:
    """The words of a query, which blanks, commas and semicolons separate."""
    return query.replace(",", " ").replace(";", " ").split()
