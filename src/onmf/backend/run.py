"""A run over one block of rows: the sums of a step, the step itself, and the steps in turn.

    label_i = argmax_k ⟨x_i, b_k⟩ + offset_k,   sums_k = Σ_{i : label_i = k} w_i x_i,   centroid_k from sums_k

Symbols: W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ; a (n,) scales, w (n,) sample weights,
N_k² = Σ w a² over cluster k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add, iadd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array, Divergence, FloatArray, divide

from .threads import Threads

if TYPE_CHECKING:
    from .base import Assignment, Block, Templates

COUNTED = ("mass", "counts", "scale_sums", "scale_squares", "overlap", "loss", "moved")
"""Rows of the table of a step, in the order in which the kernels fill and read them."""


def table_of(labels: Array, values: Sequence[FloatArray], k: int) -> FloatArray:
    """Sum values of the rows by label, one row of the table for each; rows without values stay 0. → (7, k)"""
    table = np.zeros((len(COUNTED), k))
    for row, value in zip(table, values, strict=False):
        row += np.bincount(labels, weights=value, minlength=k)
    return table


def _counted(name: str) -> Any:
    return property(lambda step: step.counted[COUNTED.index(name)])


@dataclass(frozen=True)
class StepSums:
    """Sums over the rows that one step has assigned. Steps over two sets of rows add up: ``whole = one + other``.

    Attributes
    ----------
    sums : (k, p) array
        Σ w·weight·x by cluster, with the row weights of the divergence. It belongs to the run, and the next step may
        overwrite it.
    table : (7, k) array
        One row for each of the quantities below, in the memory that holds the sums. The quantities themselves are NumPy
        arrays.
    arriving : callable, optional
        Waits for a copy of the table that is on its way to the host.
    mass : (k,) array
        Σ w·weight·a by cluster; a cluster of mass 0 is empty.
    counts : (k,) array
        Σ w by cluster.
    scale_sums : (k,) array
        Σ w a by cluster.
    scale_squares : (k,) array
        Σ w a² by cluster.
    overlap : (k,) array
        Σ w a a' over the rows that stayed in the cluster, a' being their scale in the step before.
    loss : (k,) array
        Σ w·loss by cluster, at the templates of this step. Not a number if no scores were computed, because the
        divergence needs none.
    moved : int
        Number of rows that changed cluster; rows of weight 0 do not count.
    """

    sums: FloatArray
    table: FloatArray
    arriving: Callable[[], FloatArray] | None = field(default=None, repr=False, compare=False)

    mass = _counted("mass")
    counts = _counted("counts")
    scale_sums = _counted("scale_sums")
    scale_squares = _counted("scale_squares")
    overlap = _counted("overlap")
    loss = _counted("loss")

    @cached_property
    def counted(self) -> FloatArray:
        """The table on the host. → (7, k)"""
        table: FloatArray = to_host(self.table) if self.arriving is None else self.arriving()
        return table

    @cached_property
    def moved(self) -> int:
        """Number of rows that changed cluster."""
        return int(self.counted[COUNTED.index("moved")].sum())

    def on_device(self, name: str) -> FloatArray:
        """A row of the table in the memory that holds the sums. → (k,)"""
        row: FloatArray = self.table[COUNTED.index(name)]
        return row

    def __add__(self, other: StepSums) -> StepSums:
        return self.map_arrays(add, other)

    def __iadd__(self, other: StepSums) -> StepSums:
        """Add in place. Only for sums that you own."""
        return self.map_arrays(iadd, other)

    def map_arrays(self, function: Callable[..., Any], *others: StepSums) -> StepSums:
        """Apply a function to the sums, and to the tables, of this step and others."""
        steps = (self, *others)
        return StepSums(function(*(step.sums for step in steps)), function(*(step.table for step in steps)))

    @cached_property
    def empty(self) -> Array:
        """Which clusters hold nothing. → (k,) bool"""
        return ~(self.mass > 0)

    @cached_property
    def norms(self) -> FloatArray:
        """N_k, which divides the scales of cluster k so that H Hᵀ = I; 1 for an empty cluster. → (k,)"""
        return np.where(self.scale_squares > 0, np.sqrt(self.scale_squares), 1.0)

    def change_from(self, previous: StepSums) -> float:
        """‖H − H_prev‖_F, without forming H."""
        # Σ_k [1(N_k > 0) + 1(N'_k > 0) − 2 Σ_{stayed} w a a' / (N_k N'_k)]
        filled = np.count_nonzero(self.scale_squares > 0) + np.count_nonzero(previous.scale_squares > 0)
        return float(np.sqrt(max(filled - 2 * np.sum(self.overlap / (self.norms * previous.norms)), 0.0)))


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
    """One run over a block: the labels and scales of its last step. Backends subclass it to be faster."""

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
    then, to the last bit, those that gave the labels, and ``predict`` decides a tie as the fit did. The result gives
    the largest change of an entry, in units of its centroid's largest. It may be infinite if rows moved.
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


class Steps(ABC):
    """The steps of a run, from the first centroids on; ``centroids`` are the current ones, where steps are computed."""

    centroids: FloatArray

    @abstractmethod
    def next(self) -> StepSums:
        """Assign every row under the current centroids, and sum by label."""

    @abstractmethod
    def update(self, step: StepSums, *, more: bool) -> Drift:
        """Compute the centroids from the step that :meth:`next` returned; ``more`` says whether another will follow."""

    @abstractmethod
    def put(self, cluster: int, centroid: FloatArray) -> None:
        """Replace one centroid."""


class StepsInTurn(Steps):
    """One step after the other over one block."""

    def __init__(self, run: Run, centroids: FloatArray) -> None:
        self.run = run
        self.centroids = run.block.backend.to_device(np.ascontiguousarray(centroids, dtype=np.float64))

    def next(self) -> StepSums:
        return self.run.step_from(self.centroids)

    def update(self, step: StepSums, *, more: bool) -> Drift:
        return self.run.update(step, self.centroids)

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self.centroids[cluster] = self.run.block.backend.to_device(centroid)


class StepsAhead(StepsInTurn):
    """Starts the next step before the counts of this one reach the host, for a backend that does not wait for results.

    The step ahead is dropped if the loop ends, or if a centroid is replaced. Until :meth:`next` returns it, the run has
    the labels of the step before. The run must not overwrite the sums of that step.
    """

    def __init__(self, run: Run, centroids: FloatArray) -> None:
        super().__init__(run, centroids)
        self._ahead: tuple[StepSums, RunState] | None = None
        self._previous: StepSums | None = None

    def next(self) -> StepSums:
        if self._ahead is None:
            return super().next()
        (step, self.run.state), self._ahead = self._ahead, None
        return step

    def update(self, step: StepSums, *, more: bool) -> Drift:
        drift = super().update(step, more=more)
        # An empty cluster is about to get another centroid, which would make the step ahead useless.
        refilling = self._previous is not None and self._previous.empty.any()
        self._previous = step
        if more and not refilling:
            state = self.run.state
            self._ahead = super().next(), self.run.state
            self.run.state = state
        return drift

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self._ahead = None
        super().put(cluster, centroid)
