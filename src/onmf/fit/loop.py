"""The loop: assign every row to its best template, then compute each centroid from its rows (Algorithm 2 of the paper).

Symbols: W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from onmf import interrupt
from onmf.backend import FIXED, Drift, StepSums
from onmf.data import Data
from onmf.divergence import Divergence, FloatArray

from .describe import own_loss
from .reseed import refill


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


def alternate(
    data: Data,
    centroids: FloatArray,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    watch: Callable[[Iteration, FloatArray], bool] | None = None,
) -> Alternation:
    """Alternate between assignment and centroids until H does not change any more, from centroids that are overwritten.

    The loop stops when ‖H − H_prev‖_F < tol and the share of rows that moved is not above it (a row far smaller than
    the others hardly shows in H), and always when nothing changes any more. ``watch`` is called after each iteration
    with what it did and its centroids, which the next one overwrites; a true result stops the loop.
    """
    steps = data.steps(data.divergence.initial_centroids(centroids))
    previous: StepSums | None = None
    iterations: list[Iteration] = []
    tried: set[int] = set()
    stop_reason = "max_iter"
    for number in range(1, max_iter + 1):
        interrupt.check()
        began, more = perf_counter(), number < max_iter
        step = steps.next()
        drift = steps.update(step, more=more)
        change = np.inf if previous is None else step.change_from(previous)
        value = None if watch is None else objective(data, step, steps.centroids)
        iterations.append(Iteration(number, step.moved, change, perf_counter() - began, value))
        if watch is not None and watch(iterations[-1], steps.centroids):
            stop_reason = "callback"
            break
        refilled = more and bool(step.empty.any()) and refill(data, steps, step, tried)
        if refilled:  # there is a new centroid to assign rows to
            pass
        elif change < tol and step.moved <= tol * data.shape[0] and at_rest(data.divergence, step, drift):
            stop_reason = "converged"
            break
        elif step.moved == 0 and drift() <= FIXED:
            stop_reason = "fixed point"
            break
        previous = step
    return Alternation(steps.centroids, step, stop_reason, iterations)


def at_rest(divergence: Divergence, step: StepSums, drift: Drift) -> bool:
    """Whether the centroids are those that gave the labels, if labels alone determine their directions.

    Scales that all change by one factor leave H as it is. They still change the rounding of the centroids, and that
    would decide exact ties differently.
    """
    return not divergence.fixed_weights or step.moved > 0 or bool(drift() <= FIXED)


def objective(data: Data, step: StepSums, centroids: FloatArray, norms: FloatArray | None = None) -> float:
    """D(X, WH) for the labels of a step and the centroids computed from them, with the norms of the step by default."""
    if data.divergence.curved:
        unit = data.divergence.unit(step.norms if norms is None else norms)
        return max(data.constant + float(data.total(own_loss, centroids / unit[:, None])), 0.0)
    # Clusters add up, and a few at a time need no second array of the size of the sums.
    value, loss, constant, mass = 0.0, float(step.loss.sum()), data.constant, step.on_device("mass")
    for start in range(0, len(step.sums), 2):
        part = slice(start, start + 2)
        value += data.divergence.objective(step.sums[part], mass[part], loss, constant)
        loss = constant = 0.0
    return max(value, 0.0)  # an exact fit may end a rounding error below
