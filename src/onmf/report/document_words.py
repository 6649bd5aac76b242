"""What the counts say about the documents of a page: the runner-up of each, and the words that decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.data.structure import check_structure
from onmf.datasets import Shards
from onmf.divergence import Array, FloatArray

DECIDING = 8
"""Words of each document that are shown."""

ROWS = 4096
"""Documents that are scored at a time."""

LEAST = -100.0
"""The least entry of a template. Without smoothing, a word that a cluster lacks has minus infinity."""


@dataclass(frozen=True)
class Deciding:
    """Words that decided for the cluster of each document, against its runner-up.

    Attributes
    ----------
    runners_up : (n,) array of int
        The best cluster but for its own; -1 if there is none.
    starts : (n + 1,) array of int
        Words ``starts[i]`` to ``starts[i + 1]`` are those of document i, those with the largest contributions.
    words : array of int
        Columns of the words.
    contributions : array
        With x the count of the word, and b the templates: x (b_own − b_runner-up). Positive for the own cluster.
    """

    runners_up: Array
    starts: Array
    words: Array
    contributions: FloatArray


def blocks_of(counts: csr_array | Shards) -> Iterator[tuple[int, csr_array]]:
    """Yield the counts in blocks of rows, with the first row of each."""
    if isinstance(counts, Shards):
        start = 0
        for shard in counts():
            check_structure(shard)
            yield start, csr_array(shard)
            start += shard.shape[0]
        return
    for start in range(0, counts.shape[0], ROWS):
        yield start, counts[start : start + ROWS]


def sum_clusters(counts: csr_array | Shards, labels: Array, k: int) -> FloatArray:
    """Return the sum of the counts of each cluster. → (k, words)"""
    sums = np.zeros((k, counts.shape[1]))
    for start, block in blocks_of(counts):
        own = labels[start : start + block.shape[0]]
        n = len(own)
        members = csr_array((np.ones(n), (own, np.arange(n))), shape=(k, n))
        sums += (members @ block).toarray()
    return sums


def take_rows(counts: csr_array | Shards, rows: Array) -> csr_array:
    """Return some rows of the counts, which are in ascending order."""
    if not isinstance(counts, Shards):
        return counts if len(rows) == counts.shape[0] else csr_array(counts[rows])
    parts = [csr_array((0, counts.shape[1]))]
    for start, block in blocks_of(counts):
        low, high = np.searchsorted(rows, (start, start + block.shape[0]))
        parts.append(csr_array(block[rows[low:high] - start]))
    return csr_array(vstack(parts, format="csr"))


def deciding_words(X: csr_array, labels: Array, templates: FloatArray, offsets: FloatArray | None = None) -> Deciding:
    """Find the runner-up of each document, and the words that decided against it.

    Parameters
    ----------
    X : csr_array of shape (n, words)
        Counts.
    labels : (n,) array of int
        Cluster of each document.
    templates : (k, words) array
        The templates of the clusters: a document belongs to the cluster with the largest ``X @ templates.T``.
    offsets : (k,) array, optional
        Added to these scores.

    Returns
    -------
    Deciding
    """
    B = np.maximum(templates, LEAST)
    k = len(B)
    if k < 2:
        none = np.zeros(0, dtype=np.int64)
        return Deciding(np.full(len(labels), -1), np.zeros(len(labels) + 1, dtype=np.int64), none, none.astype(float))
    runners, words, values, numbers = [], [], [], []
    for start, block in blocks_of(X):
        own = labels[start : start + block.shape[0]]
        scores = block @ B.T + (0.0 if offsets is None else offsets)
        scores[np.arange(len(own)), own] = -np.inf
        runner = scores.argmax(axis=1)
        row = np.repeat(np.arange(len(own)), np.diff(block.indptr))
        value = block.data * (B[own[row], block.indices] - B[runner[row], block.indices])
        order = np.lexsort((-np.abs(value), row))
        rank = np.arange(len(order)) - block.indptr[row]  # rows keep their places in this order
        kept = order[(rank < DECIDING) & (value[order] != 0)]
        runners.append(runner)
        words.append(block.indices[kept])
        values.append(value[kept])
        numbers.append(np.bincount(row[kept], minlength=len(own)))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(numbers))]) if numbers else np.zeros(1, dtype=np.int64)
    if not runners:
        return Deciding(np.zeros(0, dtype=np.int64), starts, np.zeros(0, dtype=np.int64), np.zeros(0))
    return Deciding(np.concatenate(runners), starts, np.concatenate(words), np.concatenate(values))
