"""Local search after the loop: move single rows to other clusters, or swap clusters, while the objective falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from onmf import interrupt
from onmf.backend import Block, to_host
from onmf.data import Data, InMemory
from onmf.divergence import Array, Clusters, Divergence, Entries, FloatArray

from .describe import Clustering
from .starts import Seeds, random_partition

MIN_SPLIT_GAIN = 1e-10  # of a split and merge, relative to the objective; smaller gains may be rounding errors
MAX_SPLITS_TRIED = 3  # clusters, those with the largest gain by a split, before split and merge gives up
SMALL_MARGINS = 0.25  # share of the rows, the least sure ones, that are tried again before the next full sweep
HALVING_STOP = 0.02  # share of a cluster that a sweep may still move when the search for its halves ends
MIN_SWAP_GAIN = 1e-6  # of a swap, relative to the objective; smaller gains may come from where the loop stops
SWAPS_TRIED = 5  # clusters to split, those with the largest gain, before a search by swaps gives up
ITERATIONS_TRIED = 5  # of the loop after a swap; it goes on if the objective has fallen by then
SPLITS_TRIED, ITERATIONS_OF_SPLIT = 2, 20  # of a cluster in two, each from a random partition; the better one is used
STALE = 0.2  # share of a cluster that has come or gone since it was split, from which on it is split again
MAX_SWEEPS = 10_000  # in case rounding errors keep a local search going; searches end long before it


@dataclass(frozen=True)
class SearchResult:
    """The result of a local search: the labels, the numbers of sweeps and moves, and the gain of the moves."""

    labels: Array
    n_sweeps: int
    moved: int
    gain: float


@dataclass(frozen=True)
class Search:
    """The rows of a block as local searches read them, on the host. Concurrent searches can share it."""

    divergence: Divergence  # one that has moves
    entries: Entries
    n_features: int
    weights: FloatArray  # (n,) of the rows in the sums
    masses: FloatArray  # (n,) Σ_j |x_j|
    shared: Any  # the form of the rows that the moves read
    trial: Callable[[Array, int], Array] | None  # as Backend.trial returns it

    @classmethod
    def over(cls, block: Block) -> Search:
        """Prepare the rows of a block. Its divergence must have moves."""
        entries, weights = Entries.of(block.on_host), to_host(block.fixed_weights)
        moves = block.divergence.moves
        assert moves is not None, "refused for other divergences"
        masses = block.host_term(lambda x, j: np.abs(x))
        shared = moves.shared(
            entries, weights, lambda: block.sum_by_label(np.zeros(len(block), dtype=np.int32), weights, 1)[0]
        )
        return cls(block.divergence, entries, block.shape[1], weights, masses, shared, block.backend.trial(block))

    def worth_trying(self, rows: Array, labels: Array, k: int) -> Array:
        """Those of these rows that may gain by a move from the clusters that they make."""
        if self.trial is None:
            return rows
        taking_part = np.full_like(labels, -1)
        taking_part[rows] = labels[rows]
        return np.flatnonzero(self.trial(taking_part, k))

    def sums(self, labels: Array, k: int, rows: Array | None = None) -> FloatArray:
        """The sums of the clusters of these rows; by default of all rows. → (p, k)"""
        from onmf import kernels  # numba takes long to import, and most imports of onmf need no kernel

        sums = np.zeros((self.n_features, k))
        kernels.sum_rows(self.entries, self.weights, np.arange(len(labels)) if rows is None else rows, labels, sums)
        return sums

    def values(self, sums: FloatArray) -> list[float]:
        """The contributions of clusters with these sums, (p, k), to the objective, up to a constant."""
        return [self.value(each) for each in np.ascontiguousarray(sums.T)]

    def value(self, sums: FloatArray) -> float:
        """The contribution of one cluster with these sums, (p,)."""
        return self.divergence.objective(sums[None], sums.sum(keepdims=True), 0.0, 0.0)


def local_search(
    search: Search, labels: Array, k: int, rng: np.random.Generator, rows: Array | None = None, stop_share: float = 0.0
) -> SearchResult:
    """Move single rows to the cluster that lowers the objective most, until a sweep moves no more than ``stop_share``.

    A sweep tries all rows, or the given ones alone, in a random order. Between full sweeps, those with the smallest
    margins are swept until none moves. A GPU finds the rows that would gain if only they moved, and only these are
    tried, one after the other.
    """
    labels = labels.copy()
    rows = np.arange(len(labels)) if rows is None else rows
    n, masses, weights = len(rows), search.masses[rows], search.weights[rows]
    moves = search.divergence.moves
    assert moves is not None
    sizes = np.bincount(labels[rows][masses * weights > 0], minlength=k)
    clusters = Clusters(labels, sizes, lambda: search.sums(labels, k, rows))
    sweep = moves.sweep(search.entries, search.weights, clusters, search.shared)
    margins = np.empty(len(labels))
    n_sweeps, moved, gain = 0, 0, 0.0
    while n_sweeps < MAX_SWEEPS:
        interrupt.check()
        steps, gained = sweep(rng.permutation(search.worth_trying(rows, labels, k)), margins)
        n_sweeps, moved, gain = n_sweeps + 1, moved + steps, gain + gained
        if steps <= stop_share * n:
            break
        if search.trial is not None:  # it tries all rows again, which takes little time
            continue
        relative = np.divide(margins[rows], masses, out=np.full(n, np.inf), where=masses > 0)
        unsure = rows[np.argsort(relative, kind="stable")[: int(SMALL_MARGINS * n)]]
        while steps > stop_share * n and n_sweeps < MAX_SWEEPS:
            steps, gained = sweep(rng.permutation(unsure), margins)
            n_sweeps, moved, gain = n_sweeps + 1, moved + steps, gain + gained
    return SearchResult(labels, n_sweeps, moved, gain)


def split_and_merge(search: Search, labels: Array, k: int, rng: np.random.Generator) -> SearchResult:
    """Leave a local optimum: split one cluster, merge two others, and search again, while the objective falls."""
    # Single moves cannot separate two groups that share a cluster while a third is divided between two clusters.
    n_sweeps, moved, gain = 0, 0, 0.0
    halves: dict[int, Half] = {}
    losses: dict[tuple[int, int], float] = {}
    changed = set(range(k)) if k >= 3 else set()
    sums = search.sums(labels, k)
    values = search.values(sums)
    # The loop ends: each round lowers the objective, which depends only on the labels, and there are finitely many.
    while changed:
        for c in changed:
            halves[c] = halve(search, np.flatnonzero(labels == c), rng)
        for a, b in combinations(range(k), 2):
            if not changed.isdisjoint((a, b)):
                losses[a, b] = search.value(sums[:, a] + sums[:, b]) - values[a] - values[b]
        for c in sorted(range(k), key=lambda c: -halves[c].gain)[:MAX_SPLITS_TRIED]:
            a, b = min((pair for pair in losses if c not in pair), key=lambda pair: losses[pair])
            if halves[c].gain <= losses[a, b]:
                continue
            trial = labels.copy()
            trial[labels == b] = a
            trial[halves[c].rows] = b
            ended = local_search(search, trial, k, rng)
            n_sweeps += ended.n_sweeps
            new_sums = search.sums(ended.labels, k)
            new_values = search.values(new_sums)
            better = sum(values) - sum(new_values)
            if better > MIN_SPLIT_GAIN * sum(map(abs, values)):
                break
        else:
            break
        different = ended.labels != labels
        changed = set(np.unique(labels[different])) | set(np.unique(ended.labels[different]))
        moved, gain = moved + int(np.count_nonzero(different)), gain + better
        labels, sums, values = ended.labels, new_sums, new_values
    return SearchResult(labels, n_sweeps, moved, gain)


Descend = Callable[[Data, Seeds, int], Clustering]  # the loop from seeds, for at most this number of iterations


class Split(NamedTuple):
    """A cluster in two: the rows it had, the gain, and the centroids of its halves, (2, p)."""

    rows: Array
    gain: float
    centroids: FloatArray


def swap_clusters(descend: Descend, data: Data, clustering: Clustering, rng: np.random.Generator) -> Clustering:
    """Leave a local optimum: dissolve one cluster, split another, and run the loop, while the objective falls.

    All that this needs of a divergence is the loop.
    """
    k, passes, splits = len(clustering.centroids), 0, dict[int, Split]()
    best, swapped = clustering, k > 1
    while swapped and passes < MAX_SWEEPS:
        labels, (losses, rises) = to_host(best.labels), losses_by_cluster(data.single_part().block, best)
        for c in range(k):
            rows = np.flatnonzero(labels == c)
            if c not in splits or len(np.setxor1d(rows, splits[c].rows, assume_unique=True)) > STALE * len(rows):
                splits[c] = split(descend, data.single_part().block, rows, losses[c], rng)
        swapped = False
        for c in sorted(range(k), key=lambda c: -splits[c].gain)[:SWAPS_TRIED]:
            if splits[c].gain <= 0:
                break
            W = np.array(to_host(best.centroids))
            W[[c, min((d for d in range(k) if d != c), key=lambda d: rises[d])]] = splits[c].centroids
            tried = descend(data, Seeds(W, given=True), ITERATIONS_TRIED)
            passes += tried.n_iter
            if tried.objective < best.objective and tried.stop_reason == "max_iter":
                tried = descend(data, Seeds(to_host(tried.centroids), given=True), MAX_SWEEPS)
                passes += tried.n_iter
            swapped = tried.objective < (1 - MIN_SWAP_GAIN) * best.objective
            if swapped:
                best = tried
                break
    kept = {name: getattr(clustering, name) for name in ("n_iter", "stop_reason", "history", "init_rows", "agreement")}
    return replace(best, **kept, n_sweeps=clustering.n_sweeps + passes)


def losses_by_cluster(block: Block, clustering: Clustering) -> tuple[FloatArray, FloatArray]:
    """The loss of each cluster, and how much larger it would be if its rows were in the next best ones. → 2 × (k,)"""
    labels, templates = block.backend.to_device(clustering.labels), block.prepare(clustering.centroids)
    own, following = (to_host(block.losses(scores)) for scores in block.own_and_next(templates, labels))
    used = np.isfinite(own) & (block.host_weights > 0)  # without smoothing, a centroid can cost infinity
    weights, (own, following) = block.host_weights[used], (own[used], following[used])
    labels, k = to_host(labels)[used], len(clustering.centroids)
    losses, rises = (np.bincount(labels, weights * each, k).astype(np.float64) for each in (own, following - own))
    return losses, rises


def split(descend: Descend, block: Block, rows: Array, loss: float, rng: np.random.Generator) -> Split:
    """Split a cluster of this loss, given its rows, in two by the loop."""
    usable = rows[block.host_weights[rows] > 0]
    if len(usable) < 2 or not loss > 0:
        return Split(rows, 0.0, np.zeros((2, block.shape[1])))
    part = InMemory(block.subset(usable))
    tried = [descend(part, random_partition(part, 2, rng), ITERATIONS_OF_SPLIT) for _ in range(SPLITS_TRIED)]
    best = min(tried, key=lambda each: each.objective)
    return Split(rows, loss - best.objective, to_host(best.centroids))


def bisect(search: Search, k: int, rng: np.random.Generator) -> Array:
    """Divide all rows into k clusters: halve the cluster with the largest gain, again and again. → labels, (n,)"""
    labels = np.zeros(len(search.weights), dtype=np.int32)
    halves = [halve(search, np.arange(len(labels)), rng)]
    for new in range(1, k):
        old = max(range(new), key=lambda c: halves[c].gain)
        labels[halves[old].rows] = new
        halves.append(halve(search, np.flatnonzero(labels == new), rng))
        halves[old] = halve(search, np.flatnonzero(labels == old), rng)
    return labels


class Half(NamedTuple):
    """One half of a cluster: its rows, and the gain of making it a cluster of its own."""

    gain: float
    rows: Array


def halve(search: Search, rows: Array, rng: np.random.Generator) -> Half:
    """Split a cluster, given its rows, in two."""
    if len(rows) < 2:
        return Half(0.0, rows[:0])
    labels = np.zeros(len(search.weights), dtype=np.int32)
    labels[rows] = rng.permutation(len(rows)) % 2
    labels = local_search(search, labels, 2, rng, rows=rows, stop_share=HALVING_STOP).labels
    sums = search.sums(labels, 2, rows)
    return Half(search.value(sums.sum(axis=1)) - sum(search.values(sums)), rows[labels[rows] == 1])
