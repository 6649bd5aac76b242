"""Local search after the loop: single rows change their cluster while the objective falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import issparse

from onmf import interrupt
from onmf.divergence import Array, Divergence, FloatArray
from onmf.engine import Assignment, Engine, Held, StepSums

LARGEST_TABLE = 1 << 22
"""Entries up to which t log t of counts comes from a table."""

WORTH = 1e-10
"""Share of the objective that a split with a merge must gain, above rounding."""

TRIES = 3
"""Clusters that are split on trial, those that gain most, before split and merge gives up."""

UNSURE = 0.25
"""Share of the rows, those whose second-best cluster is nearest, that are tried again before all are."""

MOST_SWEEPS = 1000
"""A local search ends long before; this bounds what rounding could do."""


@dataclass(frozen=True)
class Search:
    """Where a local search ended: the labels, and how many sweeps, moves and how much gain it took."""

    labels: Array
    n_sweeps: int
    moved: int
    gain: float


SearchFrom = Callable[[Engine, Held, Array, int, np.random.Generator], Search]
Sweep = Callable[[Array, FloatArray], tuple[int, float]]


def check_refine(refine: str | None, divergence: Divergence) -> None:
    """Refuse a refinement that is not known, or that the divergence has no closed form for."""
    if refine is None:
        return
    if not (isinstance(refine, str) and refine == "local-search"):
        raise ValueError(f"refine={refine!r} is not allowed: refine must be None or 'local-search'.")
    if divergence.moves is None:
        raise ValueError(
            f"refine='local-search' needs a closed form for what moving one row gains, and {divergence.name} has none: "
            "use beta_loss='kullback-leibler' or 'cosine', or refine=None with a larger n_init."
        )


def local_search(engine: Engine, held: Held, labels: Array, k: int, rng: np.random.Generator) -> Search:
    """Move single rows to the cluster that lowers the objective most, until no move lowers it.

    A sweep tries all rows in a random order. Sweeps over the rows that were least sure of their cluster come between,
    as long as these move.

    Parameters
    ----------
    engine, held : Engine, Held
        Where the data lives; its divergence has :attr:`~onmf.divergence.Divergence.moves`.
    labels : (n,) array of int
        Where to start.
    k : int
        Number of clusters.
    rng : Generator
        Draws the order of the rows.

    Returns
    -------
    Search
    """
    labels = labels.copy()
    n = len(labels)
    doubt = np.empty(n)
    masses = engine.row_term(held.data, np.abs)
    prepare = _entropies if held.divergence.moves == "entropy" else _lengths
    sweep = prepare(engine, held, labels, k, masses)
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
    return Search(labels, n_sweeps, moved, gain)


def split_and_merge(engine: Engine, held: Held, labels: Array, k: int, rng: np.random.Generator) -> Search:
    """Leave a local optimum: split one cluster in two, merge two others, and search again, while the objective falls.

    Single moves cannot tell apart two groups of rows that share a cluster while a third is shared by two clusters.
    Which cluster gains most by a split, and which two lose least by a merge, is known exactly.

    Parameters
    ----------
    engine, held, labels, k, rng
        As in :func:`local_search`.

    Returns
    -------
    Search
    """
    weights = engine.row_weights(held, np.ones(held.shape[0]))
    n_sweeps, moved, gain = 0, 0, 0.0
    halves: dict[int, tuple[float, Array]] = {}
    losses: dict[tuple[int, int], float] = {}
    changed = set(range(k)) if k >= 3 else set()
    sums = engine.sum_by_label(held.data, labels, weights, k)
    values = [_value(held.divergence, each) for each in sums]
    # This ends: the objective, computed anew from the labels, falls each time, and there are finitely many labellings.
    while changed:
        for c in changed:
            halves[c] = _halves(engine, held, np.flatnonzero(labels == c), values[c], rng)
        for pair in combinations(range(k), 2):
            if not changed.isdisjoint(pair):
                a, b = pair
                losses[pair] = _value(held.divergence, sums[a] + sums[b]) - values[a] - values[b]
        for c in sorted(range(k), key=lambda c: -halves[c][0])[:TRIES]:
            a, b = min((pair for pair in losses if c not in pair), key=lambda pair: losses[pair])
            if halves[c][0] <= losses[a, b]:
                continue
            trial = labels.copy()
            trial[labels == b] = a
            trial[halves[c][1]] = b
            search = local_search(engine, held, trial, k, rng)
            n_sweeps += search.n_sweeps
            new_sums = engine.sum_by_label(held.data, search.labels, weights, k)
            new_values = [_value(held.divergence, each) for each in new_sums]
            better = sum(values) - sum(new_values)
            if better > WORTH * sum(map(abs, values)):
                break
        else:
            break
        different = search.labels != labels
        changed = set(np.unique(labels[different])) | set(np.unique(search.labels[different]))
        moved, gain = moved + int(np.count_nonzero(different)), gain + better
        labels, sums, values = search.labels, new_sums, new_values
    return Search(labels, n_sweeps, moved, gain)


def _value(divergence: Divergence, sums: FloatArray) -> float:
    """What a cluster of these sums adds to the objective, up to a constant."""
    return divergence.objective(sums[None], sums.sum(keepdims=True), 0.0, 0.0)


def _halves(engine: Engine, held: Held, rows: Array, value: float, rng: np.random.Generator) -> tuple[float, Array]:
    """What splitting these rows in two gains, and the rows of the second half."""
    if len(rows) < 2:
        return 0.0, rows[:0]
    part = engine.subset(held, rows)
    weights = engine.row_weights(part, np.ones(len(rows)))
    labels = local_search(engine, part, (rng.permutation(len(rows)) % 2).astype(np.int32), 2, rng).labels
    sums = engine.sum_by_label(part.data, labels, weights, 2)
    return value - sum(_value(held.divergence, half) for half in sums), rows[labels == 1]


def _rows(engine: Engine, held: Held) -> tuple[Array, Array, Array, bool]:
    """Pointers, features and entries of the rows, and whether they are dense, as the kernels read them."""
    X = engine.on_host(held.data)
    if issparse(X):
        return X.indptr, X.indices, X.data, False
    n, p = X.shape
    return np.arange(n + 1) * p, np.arange(p), X.reshape(-1), True


@dataclass(frozen=True)
class Counts:
    """Rows of counts in the order in which sweeps read them, and tables of t log t and of its steps."""

    bounds: Array
    ones: Array
    features: Array
    counts: Array
    powers: FloatArray
    steps: FloatArray


def counts_of(engine: Engine, held: Held) -> Counts | None:
    """What all local searches under Kullback–Leibler read of these rows, made once; None unless they are counts."""
    if "counts" not in held.memory:
        held.memory["counts"] = _read_counts(engine, held)
    found: Counts | None = held.memory["counts"]
    return found


def _read_counts(engine: Engine, held: Held) -> Counts | None:
    from onmf import kernels  # numba is slow to import, and most who import onmf do not fit at once

    indptr, indices, data, dense = _rows(engine, held)
    n = held.shape[0]
    weights = engine.row_weights(held, np.ones(n))
    whole = all(np.isfinite(kernels.total_if_whole(values, 0, len(values))) for values in (data, weights))
    largest = engine.sum_by_label(held.data, np.zeros(n, dtype=np.int32), weights, 1).max()
    if not whole or largest > LARGEST_TABLE:
        return None
    bounds, ones = np.empty(n + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
    features, counts = np.empty(len(data), dtype=np.uint32), np.empty(len(data), dtype=np.uint32)
    kernels.ones_first(indptr, indices, data, dense, weights, bounds, ones, features, counts)
    t = np.arange(largest + 2)
    powers = t * np.log(np.maximum(t, 1))
    steps = t * np.log1p(1 / np.maximum(t, 1)) + np.log(t + 1)
    return Counts(bounds, ones, features, counts, powers, steps)


def _entropies(engine: Engine, held: Held, labels: Array, k: int, masses: FloatArray) -> Sweep:
    """Sweeps under Kullback–Leibler: with tables where all entries are small whole numbers, else with logarithms."""
    from onmf import kernels  # numba is slow to import, and most who import onmf do not fit at once

    weights = engine.row_weights(held, masses)
    sizes = np.bincount(labels[masses * weights > 0], minlength=k)
    X = counts_of(engine, held)
    if X is None:
        indptr, indices, data, dense = _rows(engine, held)

        def sweep(rows: Array, doubt: FloatArray) -> tuple[int, float]:
            # Made anew for each sweep, since rounding adds up in them.
            S = np.ascontiguousarray(engine.sum_by_label(held.data, labels, weights, k).T)
            T = S.sum(axis=0)
            return kernels.sweep_entropy(indptr, indices, data, dense, weights, rows, labels, S, T, sizes, doubt)

        return sweep
    S = np.ascontiguousarray(engine.sum_by_label(held.data, labels, weights, k).T).astype(np.uint32)
    slopes = X.steps[S]
    T = S.sum(axis=0, dtype=np.int64)
    rows_of_counts = X.bounds, X.ones, X.features, X.counts
    return lambda rows, doubt: kernels.sweep_counts(
        *rows_of_counts, rows, labels, S, slopes, T, sizes, X.powers, X.steps, doubt
    )


def _lengths(engine: Engine, held: Held, labels: Array, k: int, masses: FloatArray) -> Sweep:
    """Sweeps under the cosine; the sums are made anew for each, since rounding adds up in them."""
    from onmf import kernels  # numba is slow to import, and most who import onmf do not fit at once

    indptr, indices, data, dense = _rows(engine, held)
    weights = engine.row_weights(held, masses)
    sizes = np.bincount(labels[masses * weights > 0], minlength=k)

    def sweep(rows: Array, doubt: FloatArray) -> tuple[int, float]:
        S = np.ascontiguousarray(engine.sum_by_label(held.data, labels, weights, k).T)
        squares = np.square(S).sum(axis=0)
        return kernels.sweep_length(indptr, indices, data, dense, weights, rows, labels, S, squares, sizes, doubt)

    return sweep


def settle(engine: Engine, held: Held, labels: Array, W: FloatArray) -> StepSums:
    """The step that gives these labels; the centroids made from it go into ``W``, in the gauge H Hᵀ = I."""
    divergence, k, labels = held.divergence, len(W), engine.bring(labels)
    weights = engine.row_weights(held, engine.bring(np.ones(len(labels))))
    sums = engine.sum_by_label(held.data, labels, weights, k)
    own, _ = engine.own_and_next(held.data, engine.prepare(held, sums, divergence.templates), labels)
    scales = divergence.scale(own, held.terms)
    found = Assignment(labels, scales, held.constants - divergence.gain(own, scales, held.terms))
    step = StepSums(sums, engine.tally(held, found, weights, k))
    held.labels, held.scales = labels, scales
    engine.update(divergence, step, W)
    return step
