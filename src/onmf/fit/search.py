"""Local search after the loop: move single rows to other clusters while the objective falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from onmf import interrupt
from onmf.backend import Block, to_host
from onmf.divergence import Array, Clusters, Divergence, Entries, FloatArray

WORTH = 1e-10
"""Least gain of a split and merge, relative to the objective; smaller gains may be rounding errors."""

TRIES = 3
"""Number of clusters, those with the largest gain by a split, that are tried before split and merge gives up."""

UNSURE = 0.25
"""Share of the rows, those whose second-best cluster is closest, that are tried again before the next full sweep."""

MOST_SWEEPS = 1000
"""Limit for the case that rounding errors keep a local search going. Searches end long before it."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a local search: the labels, the numbers of sweeps and moves, and the gain of the moves."""

    labels: Array
    n_sweeps: int
    moved: int
    gain: float


@dataclass(frozen=True)
class Search:
    """The rows of a block as local searches read them. Concurrent searches can share it.

    Attributes
    ----------
    block : Block
        The rows.
    entries : Entries
        The rows on the host.
    weights : (n,) array
        The weights of the rows in the sums.
    masses : (n,) array
        Σ_j |x_j| of each row.
    shared : object
        The form of the rows that the moves of the divergence read.
    """

    block: Block
    entries: Entries
    weights: FloatArray
    masses: FloatArray
    shared: Any

    @classmethod
    def over(cls, block: Block) -> Search:
        """Prepare the rows of a block. Its divergence must have moves."""
        entries, weights = Entries.of(block.on_host), to_host(block.fixed_weights)
        moves = block.divergence.moves
        assert moves is not None, "refused for other divergences"

        def total() -> FloatArray:
            return block.sum_by_label(np.zeros(len(block), dtype=np.int32), weights, 1)[0]

        return cls(block, entries, weights, block.host_term(np.abs), moves.shared(entries, weights, total))

    def on(self, block: Block) -> Search:
        """The same rows, held by another backend."""
        return replace(self, block=block)

    def sums(self, labels: Array, k: int) -> FloatArray:
        """The sums of the clusters. → (k, p)"""
        return self.block.sum_by_label(labels, self.weights, k)

    def values(self, sums: FloatArray) -> list[float]:
        """The contributions of clusters with these sums to the objective, up to a constant."""
        return [value_of(self.block.divergence, each) for each in sums]


SearchFrom = Callable[[Search, Array, int, np.random.Generator], SearchResult]


def local_search(search: Search, labels: Array, k: int, rng: np.random.Generator) -> SearchResult:
    """Move single rows to the cluster that lowers the objective most, until no move lowers it.

    A sweep tries all rows in a random order. Between full sweeps, the rows with the smallest margins are swept until
    none of them moves.

    Parameters
    ----------
    search : Search
        The rows.
    labels : (n,) array of int
        Labels to start from.
    k : int
        Number of clusters.
    rng : Generator
        Draws the order of the rows.

    Returns
    -------
    SearchResult
    """
    labels = labels.copy()
    n, masses, weights = len(labels), search.masses, search.weights
    moves = search.block.divergence.moves
    assert moves is not None
    sizes = np.bincount(labels[masses * weights > 0], minlength=k)
    clusters = Clusters(labels, sizes, lambda: search.sums(labels, k))
    sweep = moves.sweep(search.entries, weights, clusters, search.shared)
    doubt = np.empty(n)
    n_sweeps, moved, gain = 0, 0, 0.0
    while n_sweeps < MOST_SWEEPS:
        interrupt.check()
        steps, gained = sweep(rng.permutation(n), doubt)
        n_sweeps, moved, gain = n_sweeps + 1, moved + steps, gain + gained
        if steps == 0:
            break
        relative = np.divide(doubt, masses, out=np.full(n, np.inf), where=masses > 0)
        unsure = np.argpartition(relative, int(UNSURE * n))[: int(UNSURE * n)]
        while steps and n_sweeps < MOST_SWEEPS:
            steps, gained = sweep(rng.permutation(unsure), doubt)
            n_sweeps, moved, gain = n_sweeps + 1, moved + steps, gain + gained
    return SearchResult(labels, n_sweeps, moved, gain)


def split_and_merge(search: Search, labels: Array, k: int, rng: np.random.Generator) -> SearchResult:
    """Leave a local optimum: split one cluster in two, merge two others, and search again, while the objective falls.

    Single moves cannot separate two groups of rows that share a cluster while a third group is divided between two
    clusters. The gain of each split and the loss of each merge are computed exactly.

    Parameters
    ----------
    search, labels, k, rng
        As in :func:`local_search`.

    Returns
    -------
    SearchResult
    """
    n_sweeps, moved, gain = 0, 0, 0.0
    halves: dict[int, tuple[float, Array]] = {}
    losses: dict[tuple[int, int], float] = {}
    changed = set(range(k)) if k >= 3 else set()
    sums = search.sums(labels, k)
    values = search.values(sums)
    # The loop ends: each round lowers the objective, which depends only on the labels, and there are finitely many.
    while changed:
        for c in changed:
            halves[c] = halve(search.block, np.flatnonzero(labels == c), values[c], rng)
        for a, b in combinations(range(k), 2):
            if not changed.isdisjoint((a, b)):
                losses[a, b] = value_of(search.block.divergence, sums[a] + sums[b]) - values[a] - values[b]
        for c in sorted(range(k), key=lambda c: -halves[c][0])[:TRIES]:
            a, b = min((pair for pair in losses if c not in pair), key=lambda pair: losses[pair])
            if halves[c][0] <= losses[a, b]:
                continue
            trial = labels.copy()
            trial[labels == b] = a
            trial[halves[c][1]] = b
            ended = local_search(search, trial, k, rng)
            n_sweeps += ended.n_sweeps
            new_sums = search.sums(ended.labels, k)
            new_values = search.values(new_sums)
            better = sum(values) - sum(new_values)
            if better > WORTH * sum(map(abs, values)):
                break
        else:
            break
        different = ended.labels != labels
        changed = set(np.unique(labels[different])) | set(np.unique(ended.labels[different]))
        moved, gain = moved + int(np.count_nonzero(different)), gain + better
        labels, sums, values = ended.labels, new_sums, new_values
    return SearchResult(labels, n_sweeps, moved, gain)


def value_of(divergence: Divergence, sums: FloatArray) -> float:
    """The contribution of a cluster with these sums to the objective, up to a constant."""
    return divergence.objective(sums[None], sums.sum(keepdims=True), 0.0, 0.0)


def halve(block: Block, rows: Array, value: float, rng: np.random.Generator) -> tuple[float, Array]:
    """Split a cluster, given its rows, in two. → the gain, and the rows of the second half"""
    if len(rows) < 2:
        return 0.0, rows[:0]
    search = Search.over(block.subset(rows))
    labels = local_search(search, (rng.permutation(len(rows)) % 2).astype(np.int32), 2, rng).labels
    return value - sum(search.values(search.sums(labels, 2))), rows[labels == 1]
