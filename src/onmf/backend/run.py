"""A run over one block of rows: labels and scales of its last step, and the step itself.

    label_i = argmax_k ⟨x_i, b_k⟩ + offset_k,   sums_k = Σ_{i : label_i = k} w_i x_i,   centroid_k from sums_k

Symbols: W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray, divide

from .sums import StepSums, table_of
from .threads import Threads

if TYPE_CHECKING:
    from .base import Assignment, Block, Templates

FIXED = 16 * np.finfo(np.float64).eps
"""Relative change of a centroid that rounding alone can cause."""

ENTRIES_PER_UPDATE = 1 << 15
"""Entries of centroids that are computed together: they stay in the cache."""

Drift = Callable[[], float]
"""The largest relative change of a centroid in an update, computed when it is asked for."""


class RunState(NamedTuple):
    """The labels and scales that a run has reached, None before its first step."""

    labels: Array | None = None
    scales: FloatArray | None = None


class Run:
    """One run over a block. Backends subclass it to be faster; nobody else reads its private state.

    Attributes
    ----------
    block : Block
        The rows.
    state : RunState
        Labels and scales of the last step.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.state = RunState()
        self._last_templates: Templates | None = None

    def collect(self) -> tuple[Array, FloatArray]:
        """Labels and scales of the last step."""
        labels, scales = self.state
        assert labels is not None, "collect() comes after a step"
        assert scales is not None
        return labels, scales

    def free_workspace(self) -> None:
        """Give back the memory that only makes the next step faster."""
        self._last_templates = None

    def step_from(self, centroids: FloatArray) -> StepSums:
        """Assign every row under the templates of these centroids, and sum by label."""
        block, divergence = self.block, self.block.divergence
        self._last_templates = block.backend.prepare(
            block.rows, centroids, divergence.templates, divergence.offsets(centroids), self._last_templates
        )
        return self.step(self._last_templates)

    def labels_from(self, centroids: FloatArray) -> Array:
        """The labels of all rows under these centroids, without a step. → (n,)"""
        return self.block.assign(self.block.prepare(centroids)).labels

    def step(self, templates: Templates) -> StepSums:
        """Assign every row to its best template, and sum by label."""
        return self.count(self.block.assign(templates), len(templates))

    def count(self, assignment: Assignment, k: int) -> StepSums:
        """The step that gives this assignment."""
        weights = self.block.row_weights(assignment.scales)
        table = self.tally(assignment, weights, k)
        self.state = RunState(assignment.labels, assignment.scales)
        del assignment  # its losses are counted, and the sums may need the memory
        return StepSums(self.sums(weights, k), table)

    def step_for_labels(self, labels: Array, k: int) -> StepSums:
        """The step that gives these labels, under the centroids that they make."""
        block = self.block
        labels = block.backend.to_device(labels)
        weights = block.row_weights(block.backend.to_device(np.ones(len(block))))
        sums = block.backend.sum_by_label(block.rows, labels, weights, k)
        own, _ = block.backend.own_and_next(block.rows, block.prepare(sums), labels)
        assignment = block.assignment(labels, own)
        step = StepSums(sums, self.tally(assignment, weights, k))
        self.state = RunState(labels, assignment.scales)
        return step

    def sums(self, weights: FloatArray, k: int) -> FloatArray:
        """The sums of weighted rows by the labels of this step. → (k, p)"""
        labels, _ = self.collect()
        return self.block.backend.sum_by_label(self.block.rows, labels, weights, k)

    def tally(self, assignment: Assignment, weights: FloatArray, k: int) -> FloatArray:
        """The table of a step: one row for each quantity in ``COUNTED``. → (7, k)"""
        labels, scales, losses = assignment
        own = self.block.host_weights
        moved, overlaps = (own > 0).astype(np.float64), np.zeros(len(labels))
        if self.state.labels is not None and self.state.scales is not None:
            stayed = labels == self.state.labels
            moved = moved * ~stayed
            overlaps = own * scales * self.state.scales * stayed
        counted = own * np.where(own > 0, losses, 0.0)  # a row of weight 0 may have an infinite loss
        values = (weights * scales, own, own * scales, own * scales * scales, overlaps, counted, moved)
        return table_of(labels, values, k)

    def update(self, step: StepSums, W: FloatArray) -> Drift:
        """Overwrite W with the centroids that follow from a step; see :func:`update_centroids`."""
        return update_centroids(self.block.divergence, step, W, self.block.backend.threads)


def update_centroids(divergence: Divergence, step: StepSums, W: FloatArray, threads: Threads) -> Drift:
    """Overwrite W with the centroids that follow from a step, in the gauge H Hᵀ = I; an empty cluster keeps its own.

    Once no row moves, an entry that only rounding would change stays as it is. At the end of a fit the centroids are
    then, to the last bit, those that gave the labels, and ``predict`` decides a tie as the fit did.

    Returns
    -------
    callable
        Gives the largest change of an entry, in units of its centroid's largest. It may be infinite if rows moved.
    """
    moved, empty = step.moved, step.empty
    drifts, unit = [0.0 if moved == 0 else np.inf], divergence.unit(step.norms)

    at_a_time = max(1, ENTRIES_PER_UPDATE // W.shape[1])

    def block(start: int, stop: int) -> None:
        filled = start + np.flatnonzero(~empty[start:stop])
        for first in range(0, len(filled), at_a_time):
            part: Any = filled[first : first + at_a_time]
            if part[-1] - part[0] < len(part):  # a slice copies nothing
                part = slice(part[0], part[-1] + 1)
            new = divergence.centers(step.sums[part], step.mass[part])
            new *= unit[part, None]
            if moved == 0:
                drifts.append(largest_change(W[part], new))
                np.copyto(new, W[part], where=np.abs(new - W[part]) <= FIXED * np.abs(new))
            W[part] = new

    threads.over_clusters(block, *W.shape)
    return lambda: max(drifts)


def largest_change(before: FloatArray, after: FloatArray) -> float:
    """The largest change of an entry, in units of its row's largest; infinite for a row that has become zero."""
    sizes, changes = np.abs(after).max(axis=1), np.abs(after - before).max(axis=1)
    beyond = (sizes == 0) & (changes > 0)
    return float(np.max(np.where(beyond, np.inf, divide(changes, sizes))))
