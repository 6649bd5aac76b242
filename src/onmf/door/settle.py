"""From centroids to clusters: how sure and how usual each row is, and which rows get no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.backend import to_host
from onmf.confidence import Calibration, calibration_of, calibration_rules, evenly_spaced
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.io.rules import Rule, number, optional, require
from onmf.surprise import FEWEST, Effects, Usual, learn_usual, surprise_of, usual_of, usual_rules

from .memory import Memory, memory_of, memory_rules

BATCH = 10_000  # rows that are measured at a time
SAMPLE = 50_000  # rows of a fit, evenly spread, from which is learnt how unusual rows are


@dataclass(frozen=True)
class Standards:
    """What rows are judged by, besides the centroids.

    Attributes
    ----------
    calibration : Calibration or None
        How the confidence follows from losses.
    usual : Usual or None
        What losses are usual.
    unassigned : float
        Rows are left unassigned whose surprise is at most this share; 0 for none.
    min_confidence : float
        Rows of a lower confidence are left unassigned, too.
    memory : Memory or None
        Some rows that the model was learnt from.
    """

    calibration: Calibration | None = None
    usual: Usual | None = None
    unassigned: float = 0.0
    min_confidence: float = 0.0
    memory: Memory | None = None

    def __post_init__(self) -> None:
        for name, learnt in zip(SHARES, (self.usual, self.calibration), strict=True):
            asked = f"{name}={getattr(self, name):g} (--{name.replace('_', '-')} {getattr(self, name):g})"
            require(
                learnt is not None or not getattr(self, name),
                f"{asked} needs what a fit of at least {FEWEST} rows by this version of onmf learns: leave it out, or "
                "fit the model anew.",
            )

    def parts(self) -> dict[str, Any]:
        """The entries of a model file."""
        shares = {name: getattr(self, name) for name in SHARES if getattr(self, name)}
        known = (each.parts() for each in (self.calibration, self.usual, self.memory) if each is not None)
        return dict(entry for parts in (*known, shares) for entry in parts.items())

    def leaves_out(self, confidence: Array, surprise: Array) -> Array:
        """Which rows get no cluster, though they could have one. → (n,) bool"""
        return (confidence < self.min_confidence) | (surprise <= self.unassigned)


SHARES = ("unassigned", "min_confidence")


def check_shares(**shares: float | None) -> dict[str, float]:
    """The shares that are given, by name; refused if they are none."""
    given = {name: float(value) for name, value in shares.items() if value is not None}
    for name, value in given.items():
        require(0 <= value < 1, f"{name}={value:g} is not allowed: it is a share, from 0 to less than 1.")
    return given


def standards_of(parts: Mapping[str, Any], k: int, p: int) -> Standards:
    """The standards in a model file, for k centroids of p features."""
    shares = {name: float(parts.get(name, 0.0)) for name in SHARES}
    return Standards(calibration_of(parts, k), usual_of(parts), **shares, memory=memory_of(parts, p))


def standards_rules(k: int, p: int) -> dict[str, Rule]:
    """Rules for the entries of a model file."""
    return {
        **calibration_rules(k),
        **usual_rules(k),
        **memory_rules(p),
        **dict.fromkeys(SHARES, optional(number(0, 1))),
    }


def learn_from(model: ONMF, X: Any, groups: Array | None = None) -> tuple[Usual | None, FloatArray]:
    """What losses are usual of rows like those of a fit; and how unusual each of these is, NaN if they are too few.

    A row counts among rows that it did not shape, if it is one of those that are learnt from.
    """
    n, templates = X.shape[0], to_host(model.clustering_.labels)
    if n < FEWEST:
        return None, np.full(n, np.nan)
    some = evenly_spaced(n, SAMPLE)
    counts = None if len(some) == n else np.bincount(templates, minlength=len(model.cluster_centers_))
    effects = effects_on(model, None if groups is None else groups[some])
    usual, among = learn_usual(model, take_rows(X, some), templates[some], effects, counts)
    surprise = among if len(some) == n else surprise_in(model, X, usual, groups)
    surprise[some] = among
    return usual, surprise


def surprise_in(model: ONMF, X: Any, usual: Usual | None, groups: Array | None = None) -> FloatArray:
    """How unusual rows are; NaN if it is not known what is usual. → (n,)"""
    found = np.full(X.shape[0], np.nan)
    if usual is None:
        return found
    for start, batch in batches(X):
        at = slice(start, start + batch.shape[0])
        found[at] = surprise_of(model, usual, batch, effects_on(model, None if groups is None else groups[at]))
    return found


def effects_on(model: ONMF, groups: Any) -> Effects | None:
    """The multipliers of the groups of rows, which are 1 for a group that the model does not know."""
    if groups is None or model.group_effects_ is None:
        return None
    factors = np.vstack([to_host(model.group_effects_), np.ones(model.cluster_centers_.shape[1])])
    place = {name: b for b, name in enumerate(model.groups_.tolist())}
    return Effects(factors, np.array([place.get(name, len(place)) for name in np.asarray(groups).tolist()]))


def settled(
    found: Mapping[str, Any], clusters: Array | None, standards: Standards, moves: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """What is known of rows, and the cluster of each, -1 for rows that get none.

    ``clusters`` are those of the centroids, if several may share one. A row that could have a cluster but gets none
    keeps it as its runner-up. Rows of ``moves`` were moved by hand: they have this cluster, or none, whatever the
    standards say.
    """
    templates = found["templates"]
    labels = templates.copy() if clusters is None else np.append(clusters, -1)[templates].astype(templates.dtype)
    out = standards.leaves_out(found["confidence"], found["surprise"])
    if moves:
        out.flat[list(moves)] = [cluster < 0 for cluster in moves.values()]
    out &= labels >= 0
    runners_up = np.where(out, labels, found["runners_up"])
    labels[out] = -1
    gone = (labels < 0) & (templates >= 0)
    numbers = {
        name: np.where(gone, np.nan, found[name]) if gone.any() else found[name] for name in ("scales", "margins")
    }
    return {**found, "labels": labels, "runners_up": runners_up, **numbers}


def margins_by_chances(chances: FloatArray, templates: Array, clusters: Array | None) -> FloatArray:
    """How much more likely the cluster of each row is than the best other one, as a difference of logarithms. → (n,)"""
    rows, others = np.arange(len(templates)), chances.copy()
    if clusters is None:
        others[rows, templates] = -np.inf
    else:
        others[clusters == clusters[templates][:, None]] = -np.inf
    return np.asarray(chances[rows, templates] - others.max(axis=1, initial=-np.inf))


def batches(X: Any) -> Iterator[tuple[int, Any]]:
    """Yield rows in turn, with the place of the first: blocks of a matrix on disk, or slices."""
    if hasattr(X, "block"):
        starts = np.cumsum([0, *X.sizes[:-1]]).tolist()
        yield from ((start, X.block(place)) for place, start in enumerate(starts))
    else:
        for start in range(0, X.shape[0], BATCH):
            yield start, X[start : start + BATCH]


def sum_clusters(counts: Any, labels: Array, k: int) -> FloatArray:
    """The sum of the counts of each cluster; rows of label -1 are in none. → (k, features)"""
    sums = np.zeros((k, counts.shape[1]))
    for start, block in batches(counts):
        n, own = block.shape[0], labels[start : start + block.shape[0]]
        inside = np.flatnonzero(own >= 0)
        members = csr_array((np.ones(len(inside)), (own[inside], inside)), shape=(k, n))
        found = members @ block
        sums += found.toarray() if issparse(found) else found
    return sums


def take_rows(X: Any, index: Array) -> Any:
    """Some rows, in rising order, of a matrix in memory or in blocks; one block is in memory at a time."""
    if not hasattr(X, "block"):
        return X if len(index) == X.shape[0] else X[index]
    starts = np.cumsum([0, *X.sizes[:-1]])
    inside = zip(starts, np.split(index, np.searchsorted(index, starts[1:])), strict=True)
    parts = [X.block(number)[some - start] for number, (start, some) in enumerate(inside) if len(some)]
    if parts and isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return csr_array(vstack([csr_array((0, X.shape[1])), *parts], format="csr"))
