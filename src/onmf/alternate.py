"""The loop: assign every row to its best template, then make each centroid anew from its rows.

Symbols: W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ; N (k,) norms of the scales before that gauge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from onmf import interrupt
from onmf.divergence import Divergence, FloatArray
from onmf.engine import FIXED, Engine, Held, StepSums, to_host
from onmf.initialize import inner_products, rows_at

LARGEST_LOSS = 1e200
"""Stands for an infinite loss of a row, so that losses can be subtracted."""

NOISE = 1e-10
"""Loss of a row, in units of the terms it is made of, below which it is rounding."""


@dataclass(frozen=True)
class Iteration:
    """What one iteration did. ``change`` is ‖H − H_prev‖_F; ``objective`` is there when somebody watches.

    ``seconds`` are those in which the host asked and waited; an engine that runs ahead works on two iterations in them.
    """

    number: int
    moved: int
    change: float
    seconds: float
    objective: float | None


@dataclass(frozen=True)
class Alternation:
    """How the loop ended: the centroids, the sums of the last step, why it stopped, and what each iteration did."""

    centroids: FloatArray
    step: StepSums
    stop_reason: str
    iterations: list[Iteration]


def alternate(
    engine: Engine,
    held: Held,
    centroids: FloatArray,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    watch: Callable[[Iteration, FloatArray], bool] | None = None,
) -> Alternation:
    """Alternate between assignment and centroids until H stays where it is.

    Parameters
    ----------
    engine, held : Engine, Held
        Where the data lives.
    centroids : (k, p) array
        First centroids, in any scale; they are written over.
    max_iter : int
        Most iterations.
    tol : float
        Stop when ‖H − H_prev‖_F < tol and no larger share of the rows moved (a row far smaller than the others hardly
        shows in H). In any case the loop stops where nothing changes any more.
    watch : callable, optional
        Called after each iteration with what it did and its centroids, to be copied if kept; a true answer stops.

    Returns
    -------
    Alternation
    """
    divergence, W = held.divergence, engine.bring(np.ascontiguousarray(centroids, dtype=np.float64))
    previous: StepSums | None = None
    iterations: list[Iteration] = []
    tried: set[int] = set()
    stop_reason = "max_iter"
    engine.forget(held)
    ahead = None
    for number in range(1, max_iter + 1):
        interrupt.check()
        began = perf_counter()
        step = ahead or engine.step(held, engine.prepare(held, W, divergence.templates))
        drift = engine.update(divergence, step, W)
        ahead, found = None, (held.labels, held.scales)
        refilling = previous is not None and previous.empty.any()
        if number < max_iter and engine.runs_ahead(held) and not refilling:
            # In vain where the loop ends here; but what this step has counted need not be waited for.
            ahead = engine.step(held, engine.prepare(held, W, divergence.templates))
        change = np.inf if previous is None else step.change_from(previous)
        value = None if watch is None else objective(held, step)
        iterations.append(Iteration(number, step.moved, change, perf_counter() - began, value))
        if watch is not None and watch(iterations[-1], W):
            stop_reason = "callback"
            break
        vacant = number < max_iter and step.empty.any()
        if vacant:
            ahead, (held.labels, held.scales) = None, found
        if vacant and refill(engine, held, W, step, tried):
            pass  # there is a new centroid to assign rows to
        elif change < tol and step.moved <= tol * held.shape[0] and at_rest(divergence, step, drift):
            stop_reason = "converged"
            break
        elif step.moved == 0 and drift() <= FIXED:
            stop_reason = "fixed point"
            break
        previous = step
    held.labels, held.scales = found
    return Alternation(W, step, stop_reason, iterations)


def at_rest(divergence: Divergence, step: StepSums, drift: Callable[[], float]) -> bool:
    """Whether the centroids are those that gave the labels, where labels alone make their directions.

    Scales that all change by one factor leave H as it is, but not the rounding of the centroids, which would decide
    exact ties anew.
    """
    return not divergence.fixed_weights or step.moved > 0 or bool(drift() <= FIXED)


def objective(held: Held, step: StepSums) -> float:
    """D(X, WH) for the labels of a step and the centroids made from them."""
    # Clusters add up; a few at a time need no second array of the size of the sums.
    value, loss, constant, mass = 0.0, float(step.loss.sum()), held.constant, step.near("mass")
    for start in range(0, len(step.sums), 2):
        part = slice(start, start + 2)
        value += held.divergence.objective(step.sums[part], mass[part], loss, constant)
        loss = constant = 0.0
    return max(value, 0.0)  # an exact fit may end a rounding error below


def refill(engine: Engine, held: Held, W: FloatArray, step: StepSums, tried: set[int]) -> bool:
    """Give each empty cluster another centroid, in ``W``; True if the next assignment can change something.

    It starts again from the row of largest loss in the cluster of largest loss. Losses are those under the unsmoothed
    centroids, so that a row on its centroid has none to give, and each row is ``tried`` once, so that this ends. Copies
    of a row are tried together: a row of weight 2 counts as two equal rows.
    Where no row has a loss, the cluster takes the centroid of the first filled one: it ties with that and gets
    nothing.
    """
    empty = step.empty
    parts = engine.map(held, worst_rows, to_host(W).copy(), sorted(tried), int(np.count_nonzero(empty)))
    by_cluster = sum(part.totals for part in parts)
    groups = [group for part in parts for group in part.groups]
    filled = np.flatnonzero(~empty)
    changed = False
    for c in np.flatnonzero(empty):
        worst = min((group for group in groups if group.cluster == np.argmax(by_cluster)), default=None)
        if by_cluster.any() and worst is not None:
            W[c] = engine.bring(rows_at(engine, held, worst.rows[:1])[0])
            for copies in [group for group in groups if group.is_copy_of(worst)]:
                groups.remove(copies)
                by_cluster[copies.cluster] = max(by_cluster[copies.cluster] - copies.weighted, 0.0)
                tried.update(copies.rows)
            if all(group.cluster != worst.cluster for group in groups):
                by_cluster[worst.cluster] = 0.0
            changed = True
        elif len(filled) and not (W[c] == W[filled[0]]).all():
            W[c] = W[filled[0]]
            changed = True  # rows of weight 0 may lie in this cluster, and rows of the other if it comes later
    return changed


class Copies(NamedTuple):
    """Equal rows of a cluster, in the order in which they are tried: the largest loss first, then the lowest row."""

    minus_loss: float
    rows: list[int]
    cluster: int
    weighted: float
    """Sum of their losses, with weights."""
    projection: float
    """On a random direction: what equal rows share besides the loss."""

    def is_copy_of(self, other: Copies) -> bool:
        """Whether these rows are equal to others, of another part."""
        return (self.minus_loss, self.cluster, self.projection) == (other.minus_loss, other.cluster, other.projection)


class Worst(NamedTuple):
    """Losses of a part by cluster, and the rows of the largest in each."""

    totals: FloatArray
    groups: list[Copies]


def worst_rows(engine: Engine, part: Held, W: FloatArray, tried: list[int], number: int) -> Worst:
    """The rows of largest loss under the unsmoothed centroids, so many of each cluster of the last step."""
    divergence = part.divergence
    _, scales, losses = engine.assign(part, divergence.unsmoothed().templates(engine.bring(W)))
    rounding = to_host(NOISE * (np.abs(part.constants) + scales * divergence.weight(scales, part.terms)))
    losses, labels = to_host(losses), to_host(engine.collect(part)[0])
    weights = np.ones(len(labels)) if part.weights is None else part.weights
    losses = np.where((losses > rounding) & (weights > 0), np.minimum(losses, LARGEST_LOSS), 0.0)
    own = np.asarray(tried, dtype=np.int64) - part.first
    losses[own[(own >= 0) & (own < len(losses))]] = 0.0
    projections = inner_products(engine, part, np.random.default_rng(0).random(W.shape[1:]))
    groups = []
    for k in range(len(W)):
        rows = np.flatnonzero((labels == k) & (losses > 0))
        both = np.stack([losses[rows], projections[rows]])
        (values, _), first, group = np.unique(both, axis=1, return_index=True, return_inverse=True)
        for g in np.lexsort((first, -values))[:number]:
            same = rows[group.ravel() == g]
            loss, weighted = float(values[g]), float(values[g] * weights[same].sum())
            groups.append(Copies(-loss, (part.first + same).tolist(), k, weighted, float(projections[same[0]])))
    totals: FloatArray = np.bincount(labels, weights=weights * losses, minlength=len(W)).astype(np.float64, copy=False)
    return Worst(totals, groups)
