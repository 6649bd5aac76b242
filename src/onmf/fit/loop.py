"""The loop: assign every row to its best template, then compute each centroid from its rows (Algorithm 2 of the paper).

Symbols: W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import NamedTuple

import numpy as np

from onmf import interrupt
from onmf.backend import FIXED, Steps, StepSums, to_host
from onmf.data import Data, Part
from onmf.divergence import FloatArray

from .describe import own_loss
from .groups import GroupSteps, centroids_in_groups
from .known import GuidedSteps, constant_of, guided_objective
from .starts import rows_at


@dataclass(frozen=True)
class Iteration:
    """What one iteration did. ``change`` is ‖H − H_prev‖_F; ``objective`` is computed only if somebody watches.

    ``seconds`` is the time that the host waited. A backend that works ahead computes parts of two iterations in it.
    """

    number: int
    moved: int
    change: float
    seconds: float
    objective: float | None


@dataclass(frozen=True)
class Alternation:
    """How the loop ended: the centroids, the sums of the last step, the reason, and what each iteration did."""

    centroids: FloatArray
    step: StepSums
    stop_reason: str
    iterations: list[Iteration]
    grouped: GroupSteps | None = None  # the steps, if the rows have groups


def alternate(
    data: Data,
    centroids: FloatArray,
    effects: FloatArray | None = None,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    watch: Callable[[Iteration, FloatArray], bool] | None = None,
) -> Alternation:
    """Alternate between assignment and centroids until H does not change any more, from centroids that are overwritten.

    If rows have groups, ``effects`` are their first multipliers; by default these are 1.

    The loop stops when ‖H − H_prev‖_F < tol and the share of rows that moved is not above it (a row far smaller than
    the others hardly shows in H), and always when nothing changes any more. ``watch`` is called after each iteration
    with what it did and its centroids, which the next one overwrites; a true result stops the loop.
    """
    first = data.divergence.initial_centroids(centroids)
    steps = data.steps(first if effects is None else centroids_in_groups(data, centroids, effects))
    steps = steps if data.guide is None else GuidedSteps(steps, data)
    grouped = None if data.grouping is None else GroupSteps(steps, data, effects)
    steps = grouped or steps
    previous: StepSums | None = None
    iterations: list[Iteration] = []
    tried: set[int] = set()
    stop_reason = "max_iter"
    # If labels alone determine the directions of centroids, these must be the ones that gave the labels. Scales that
    # all change by one factor leave H as it is, but change the rounding of the centroids, which decides exact ties.
    may_drift = not data.divergence.fixed_weights
    for number in range(1, max_iter + 1):
        interrupt.check()
        began, more = perf_counter(), number < max_iter
        step = steps.next()
        drift = steps.update(step, more=more)
        change = np.inf if previous is None else step.change_from(previous)
        value = None
        if watch is not None:
            value = grouped.objective(data) if grouped else objective(data, step, steps.centroids, step.norms)
        iterations.append(Iteration(number, step.moved, change, perf_counter() - began, value))
        if watch is not None and watch(iterations[-1], grouped.shown if grouped else steps.centroids):
            stop_reason = "callback"
            break
        if more and steps.vacant(step).any() and refill(data, steps, step, tried):
            pass  # there is a new centroid to assign rows to
        elif change < tol and step.moved <= tol * data.shape[0] and (may_drift or step.moved or drift() <= FIXED):
            stop_reason = "converged"
            break
        elif step.moved == 0 and drift() <= FIXED:
            stop_reason = "fixed point"
            break
        previous = step
    return Alternation(steps.centroids, step, stop_reason, iterations, grouped)


def objective(data: Data, step: StepSums, centroids: FloatArray, norms: FloatArray) -> float:
    """D(X, WH) for the labels of a step, and centroids that belong to these norms."""
    if data.divergence.curved:
        unit = data.divergence.unit(norms)
        return max(data.constant + float(data.total(own_loss, to_host(centroids) / unit[:, None])), 0.0)
    if data.guide is not None and data.guide.tilts:
        return guided_objective(data, step, centroids)
    # Clusters add up, and a few at a time need no second array of the size of the sums.
    value, loss, constant, mass = 0.0, float(step.loss.sum()), constant_of(data), step.on_device("mass")
    for start in range(0, len(step.sums), 2):
        part = slice(start, start + 2)
        value += data.divergence.objective(step.sums[part], mass[part], loss, constant)
        loss = constant = 0.0
    return max(value, 0.0)  # an exact fit may end a rounding error below


LARGEST_LOSS = 1e200  # stands for an infinite loss of a row, so that losses can be subtracted
NOISE = 1e-10  # loss of a row, in units of the terms it is computed from, below which it is rounding


class Copies(NamedTuple):
    """Equal rows of one cluster. Tuples compare in order: the smallest has the largest loss and then the first row."""

    minus_loss: float  # of one of them
    rows: list[int]  # indices in the whole
    weighted: float  # sum of their losses, with sample weights
    projection: float  # on a random direction; equal rows have equal projections

    def is_copy_of(self, other: Copies) -> bool:
        """Whether these rows are equal to others of the cluster, which may lie in another part."""
        return (self.minus_loss, self.projection) == (other.minus_loss, other.projection)


def refill(data: Data, steps: Steps, step: StepSums, tried: set[int]) -> bool:
    """Give each empty cluster another centroid; True if that can change the next assignment.

    It starts again from the row of largest loss in the cluster of largest loss. Losses are those under the unsmoothed
    centroids, so that a row on its centroid has none. Each row is ``tried`` once, so that this ends. Copies of a row
    are tried together, because a row of weight 2 counts as two equal rows. If no row has a loss, the cluster takes the
    centroid of the first filled one: it ties with that and gets nothing.
    """
    empty, W = steps.vacant(step), steps.centroids
    parts = data.map(worst_rows, to_host(W).copy(), sorted(tried), int(np.count_nonzero(empty)))
    by_cluster: FloatArray = np.sum([totals for totals, _ in parts], axis=0)
    worst = [sorted(chain(*found)) for found in zip(*(found for _, found in parts), strict=True)]
    filled = np.flatnonzero(~step.empty)
    changed = False
    for c in map(int, np.flatnonzero(empty)):
        k = int(by_cluster.argmax())
        if by_cluster[k] and worst[k]:
            first = worst[k][0]
            steps.put(c, data.divergence.initial_centroids(rows_at(data, first.rows[:1]))[0])
            for copies in [each for each in worst[k] if each.is_copy_of(first)]:
                worst[k].remove(copies)
                by_cluster[k] = max(by_cluster[k] - copies.weighted, 0.0) if worst[k] else 0.0
                tried.update(copies.rows)
            changed = True
        elif len(filled) and not (W[c] == W[filled[0]]).all():
            steps.put(c, W[filled[0]])
            changed = True  # rows of weight 0 may lie in this cluster, and rows of the other if it comes later
    return changed


def worst_rows(part: Part, W: FloatArray, tried: list[int], number: int) -> tuple[FloatArray, list[list[Copies]]]:
    """The losses of a part under the unsmoothed centroids by cluster of the last step, and ``number`` worst of each."""
    block = part.block
    _, scales, losses = block.assign(block.prepare(W, block.divergence.unsmoothed()))
    rounding = to_host(NOISE * (np.abs(block.constants) + scales * block.divergence.weight(scales, block.terms)))
    losses, labels = to_host(losses), to_host(part.run.collect()[0])
    weights = block.host_weights
    losses = np.where((losses > rounding) & (weights > 0), np.minimum(losses, LARGEST_LOSS), 0.0)
    own = np.asarray(tried, dtype=np.int64) - part.first
    losses[own[(own >= 0) & (own < len(losses))]] = 0.0
    projections = to_host(block.products(np.random.default_rng(0).random(W.shape[1:])))
    found: list[list[Copies]] = []
    for k in range(len(W)):
        rows = np.flatnonzero((labels == k) & (losses > 0))
        rows = rows[losses[rows] >= np.unique(losses[rows])[-number:][:1]]
        copies: dict[tuple[float, float], list[int]] = {}
        for row, loss, projection in zip(rows, losses[rows].tolist(), projections[rows].tolist(), strict=True):
            copies.setdefault((loss, projection), []).append(int(row))
        groups = [
            Copies(-loss, [part.first + row for row in same], loss * float(sum(weights[same])), projection)
            for (loss, projection), same in copies.items()
        ]
        found.append(sorted(groups)[:number])
    totals: FloatArray = np.bincount(labels, weights=weights * losses, minlength=len(W)).astype(np.float64, copy=False)
    return totals, found
