"""Local search after the loop: single rows change their cluster while the objective falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from onmf import kernels
from onmf.alternate import Alternation, update
from onmf.divergence import Array, Divergence, FloatArray
from onmf.engine import Assignment, Engine, Held, StepSums

LARGEST_TABLE = 1 << 22
"""Entries up to which t log t of counts comes from a table."""

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


Sweep = Callable[[Array, FloatArray], tuple[int, float]]


def check_refine(refine: str | None, divergence: Divergence) -> None:
    """Refuse a refinement that is not known, or that the divergence has no closed form for."""
    if refine is None:
        return
    if refine != "local-search":
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
    prepare = _counts if held.divergence.moves == "entropy" else _lengths
    sweep = prepare(engine, held, labels, k, masses)
    n_sweeps, moved, gain = 0, 0, 0.0
    while n_sweeps < MOST_SWEEPS:
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


def _rows(engine: Engine, held: Held) -> tuple[Array, Array, Array, bool]:
    """Pointers, features and entries of the rows, and whether they are dense, as the kernels read them."""
    X = engine.on_host(held.data)
    if issparse(X):
        return X.indptr, X.indices, X.data, False
    n, p = X.shape
    return np.arange(n + 1) * p, np.arange(p), X.reshape(-1), True


def _counts(engine: Engine, held: Held, labels: Array, k: int, masses: FloatArray) -> Sweep:
    """Sweeps under Kullback–Leibler: with tables where all entries are small whole numbers, else with logarithms."""
    indptr, indices, data, dense = _rows(engine, held)
    weights = engine.row_weights(held, masses)
    sizes = np.bincount(labels[masses * weights > 0], minlength=k)
    sums = engine.sum_by_label(held.data, labels, weights, k)
    largest = sums.sum(axis=0).max()
    whole = all(np.isfinite(kernels.total_if_whole(values, 0, len(values))) for values in (data, weights))
    if not whole or largest > LARGEST_TABLE:

        def sweep(rows: Array, doubt: FloatArray) -> tuple[int, float]:
            # Made anew for each sweep, since rounding adds up in them.
            S = np.ascontiguousarray(engine.sum_by_label(held.data, labels, weights, k).T)
            T = S.sum(axis=0)
            return kernels.sweep_entropy(indptr, indices, data, dense, weights, rows, labels, S, T, sizes, doubt)

        return sweep
    counts = np.ascontiguousarray(sums.T).astype(np.int32)
    t = np.arange(largest + 2)
    powers = t * np.log(np.maximum(t, 1))
    steps = t * np.log1p(1 / np.maximum(t, 1)) + np.log(t + 1)
    slopes = steps[counts]
    T = counts.sum(axis=0, dtype=np.int64)
    return lambda rows, doubt: kernels.sweep_counts(
        indptr, indices, data, dense, weights, rows, labels, counts, slopes, T, sizes, powers, steps, doubt
    )


def _lengths(engine: Engine, held: Held, labels: Array, k: int, masses: FloatArray) -> Sweep:
    """Sweeps under the cosine; the sums are made anew for each, since rounding adds up in them."""
    indptr, indices, data, dense = _rows(engine, held)
    weights = engine.row_weights(held, masses)
    sizes = np.bincount(labels[masses * weights > 0], minlength=k)

    def sweep(rows: Array, doubt: FloatArray) -> tuple[int, float]:
        S = np.ascontiguousarray(engine.sum_by_label(held.data, labels, weights, k).T)
        squares = np.square(S).sum(axis=0)
        return kernels.sweep_length(indptr, indices, data, dense, weights, rows, labels, S, squares, sizes, doubt)

    return sweep


def settle(engine: Engine, held: Held, labels: Array, ended: Alternation) -> Alternation:
    """The end of a loop with other labels: their sums, and the centroids made from them."""
    k = len(ended.centroids)
    divergence = held.divergence
    weights = engine.row_weights(held, ended.step.norms)
    sums = engine.sum_by_label(held.data, labels, weights, k)
    own, _ = engine.own_and_next(held.data, engine.prepare(held, sums, divergence.templates), labels)
    scales = divergence.scale(own, held.terms)
    found = Assignment(labels, scales, held.constants - divergence.gain(own, scales, held.terms))
    moved, table = engine.tally(held, found, weights, k)
    held.labels, held.scales = labels, scales
    step = StepSums.of(sums, table, moved)
    update(engine, divergence, step, ended.centroids)
    return Alternation(ended.centroids, step, ended.stop_reason, ended.iterations)
