"""The seam between mathematics and machine: a backend computes over one block of rows.

A backend knows no divergence by name, and not where other blocks lie. A new one writes the six abstract methods of
:class:`Backend`; everything else is built from them: the sums of a step, the step itself, and the steps in turn.

    label_i = argmax_k ⟨x_i, b_k⟩ + offset_k,   sums_k = Σ_{i : label_i = k} w_i x_i,   centroid_k from sums_k

Symbols: X (n, p) rows of a block, B (k, p) templates, W (k, p) centroids in the gauge where H Hᵀ = I, the paper's Wᵀ;
a (n,) scales, w (n,) sample weights, N_k² = Σ w a² over cluster k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import add, iadd
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.arrays import take_rows, to_host
from onmf.divergence import Array, Divergence, FloatArray, RowTerm, divide
from onmf.divergence.consistency import check_consistent

from .threads import Threads

Matrix: TypeAlias = Any
"""Validated input: a C-contiguous NumPy array or a canonical csr_array (which has no types) of native numbers."""

BY_ROW = ("own_weights", "fixed_weights", "constant")  # cached properties of a block that do not need its rows

COUNTED = ("mass", "counts", "scale_sums", "scale_squares", "overlap", "loss", "moved")
"""Rows of the table of a step, in the order in which the kernels fill and read them."""

FIXED = 16 * np.finfo(np.float64).eps  # relative change of a centroid that rounding alone can cause
ENTRIES_PER_UPDATE = 1 << 15  # entries of centroids that are computed together: they stay in the cache
EXHAUSTED = 1e-12  # a squared distance counts as zero below this, relative to the largest squared norm of a row
TIE = 1e-6  # distances are as large as the largest if they are this close to it, relatively
WORK_OF_A_PROJECTION = 781  # of a row on a hull, in the units of :class:`Threads`
FIRST_BLOCK = 64  # rows projected first in each round, then twice as many: fixed, so that threads change nothing

Drift = Callable[[], float]  # the largest relative change of a centroid in an update, computed when it is asked for


@dataclass(frozen=True)
class Templates:
    """What rows are scored against: score_k(x) = ⟨x, b_k⟩ + offset_k. Backends may keep more forms of it."""

    B: FloatArray  # (k, p); an entry may be −∞, and its product with 0 counts as 0
    offsets: FloatArray | None = None  # (k,) added to the scores; None stands for zeros

    def __len__(self) -> int:
        return len(self.B)


class Assignment(NamedTuple):
    """The cluster of each row, its scale against that cluster's centroid in the gauge, and its loss."""

    labels: Array
    scales: FloatArray
    losses: FloatArray


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

    The quantities by cluster are NumPy arrays of k numbers, with w for the sample weights and a for the scales.
    """

    sums: FloatArray  #: (k, p) Σ w·weight·x, with the row weights of the divergence; the next step may overwrite it
    table: FloatArray  #: (7, k) a row for each quantity in COUNTED, in the memory that holds the sums
    #: Waits for a copy of the table that is on its way to the host.
    arriving: Callable[[], FloatArray] | None = field(default=None, repr=False, compare=False)

    mass = _counted("mass")  #: Σ w·weight·a; a cluster of mass 0 is empty
    counts = _counted("counts")  #: Σ w
    scale_sums = _counted("scale_sums")  #: Σ w a
    scale_squares = _counted("scale_squares")  #: Σ w a²
    overlap = _counted("overlap")  #: Σ w a a' over the rows that stayed, a' being their scale in the step before
    loss = _counted("loss")  #: Σ w·loss at the templates of this step; NaN if the divergence needs no scores

    @cached_property
    def counted(self) -> FloatArray:
        """The table on the host. → (7, k)"""
        return np.asarray(to_host(self.table) if self.arriving is None else self.arriving())

    @cached_property
    def moved(self) -> int:
        """Number of rows that changed cluster; rows of weight 0 do not count."""
        return int(self.counted[COUNTED.index("moved")].sum())

    def on_device(self, name: str) -> Any:
        """A row of the table in the memory that holds the sums. → (k,)"""
        return self.table[COUNTED.index(name)]

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


class RunState(NamedTuple):
    """The labels and scales that a run has reached."""

    labels: Array
    scales: FloatArray


class Run:
    """One run over a block: the labels and scales of its last step. Backends subclass it to be faster."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.state: RunState | None = None  # before the first step
        self._last_templates: Templates | None = None

    def collect(self) -> RunState:
        """Labels and scales of the last step."""
        assert self.state is not None, "collect() comes after a step"
        return self.state

    def free_workspace(self) -> None:
        """Give back the memory that only makes the next step faster."""
        self._last_templates = None

    def step_from(self, centroids: FloatArray) -> StepSums:
        """Assign every row under the templates of these centroids, and sum by label."""
        self._last_templates = self.block.prepare(centroids, reuse=self._last_templates)
        return self.step(self._last_templates)

    def labels_from(self, centroids: FloatArray) -> Array:
        """The labels of all rows under these centroids, without a step. → (n,)"""
        return self.block.assign(self.block.prepare(centroids)).labels

    def step(self, templates: Any) -> StepSums:
        """Assign every row to its best template, and sum by label."""
        return self.count(self.block.assign(templates), len(templates))

    def count(self, assignment: Assignment, k: int, sums: FloatArray | None = None) -> StepSums:
        """The step that gives this assignment, with the sums by its labels if they are known."""
        weights = self.block.row_weights(assignment.scales)
        table = self.tally(assignment, weights, k)
        self.state = RunState(assignment.labels, assignment.scales)
        del assignment  # its losses are counted, and the sums may need the memory
        return StepSums(self.sums(weights, k) if sums is None else sums, table)

    def count_unscored(self, labels: Array, k: int, sums: FloatArray | None = None) -> StepSums:
        """The step that gives these labels, without scores and losses: scales and objective need none."""
        block = self.block
        scales = block.divergence.scale(np.zeros_like(block.constants), block.terms)
        step = self.count(Assignment(labels, scales, block.constants), k, sums)
        step.on_device("loss")[:] = np.nan
        return step

    def step_for_labels(self, labels: Array, k: int) -> StepSums:
        """The step that gives these labels, under the centroids that they make. The row weights must be fixed."""
        block, labels = self.block, self.block.backend.to_device(labels)
        sums = block.backend.sum_by_label(block.rows, labels, block.fixed_weights, k)
        own, _ = block.own_and_next(block.prepare(sums), labels)
        return self.count(block.assignment(labels, own), k, sums)

    def sums(self, weights: Any, k: int) -> FloatArray:
        """The sums of weighted rows by the labels of this step. → (k, p)"""
        return self.block.backend.sum_by_label(self.block.rows, self.collect().labels, weights, k)

    def tally(self, assignment: Assignment, weights: FloatArray, k: int) -> FloatArray:
        """The table of a step: one row for each quantity in ``COUNTED``. → (7, k)"""
        labels, scales, losses = assignment
        own = self.block.host_weights
        moved, overlaps = (own > 0).astype(np.float64), np.zeros(len(labels))
        if self.state is not None:
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
    return float(np.max(np.where((sizes == 0) & (changes > 0), np.inf, divide(changes, sizes))))


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

    def vacant(self, step: StepSums) -> Array:
        """Which clusters of a step are empty, and wait for another centroid. → (k,) bool"""
        return step.empty


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

    _ahead: tuple[StepSums, RunState | None] | None = None
    _previous: StepSums | None = None

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


class Hull:
    """Distances of the rows of a block to a convex hull that grows vertex by vertex, which SNPA needs.

    The hull is that of the origin and the vertices so far. Distances can only fall as it grows, so those of earlier
    rounds are upper bounds. Rows are projected in the order of their bounds, until the next bound is below the largest
    distance found. Everything is on the host, with inner products from the block's backend.
    """

    vertices = 0  # number of vertices so far, without the origin

    def __init__(self, block: Block, most: int) -> None:
        squares = block.squares()
        usable = to_host(block.usable(squares))
        self._squares: FloatArray = to_host(squares)
        self._usable, self._residuals = np.flatnonzero(usable), np.where(usable, self._squares, 0.0)
        self._products, self._weights = (np.zeros((len(block), most + 1)) for _ in range(2))
        self._weights[:, 0] = 1.0  # at first, the origin has all the weight

    def add(self, block: Block, vertex: FloatArray) -> None:
        """Add a vertex (p,)."""
        self.vertices += 1
        self._products[:, self.vertices] = to_host(block.products(vertex))

    def farthest(self, block: Block, gram: FloatArray, largest: float) -> tuple[Array, FloatArray, FloatArray]:
        """The rows of largest distance, or tied with it, in order; their squared distances and squared norms.

        ``gram`` has the products of the vertices, the origin first; ``largest`` is the largest ‖x‖², 0 if not known.
        """
        from onmf.kernels.project import project_on_hull

        usable, residuals = self._usable, self._residuals
        enough = EXHAUSTED * (largest or residuals.max(initial=0.0))
        order = usable[np.argsort(-residuals[usable], kind="stable")]
        start, size = 0, FIRST_BLOCK
        while start < len(order) and residuals[order[start]] >= enough:
            chosen = order[start : start + size]

            def project(first: int, last: int, rows: Any = chosen, enough: float = enough) -> None:
                project_on_hull(
                    self._products, gram, self._squares, rows, first, last, enough, self._weights, residuals
                )

            block.backend.threads.over_blocks(project, np.arange(len(chosen) + 1), WORK_OF_A_PROJECTION)
            enough = max(enough, (1 - TIE) * residuals[chosen].max())
            start, size = start + size, 2 * size
        close = usable[residuals[usable] >= (1 - TIE) * residuals.max(initial=0.0)]
        return close, residuals[close], self._squares[close]


class Backend(ABC):
    """Computes over one block of rows.

    The abstract methods are all that a new backend has to write. They take rows as :meth:`place` returned them and
    templates as :meth:`prepare` returned them, and return arrays in the memory in which the backend computes.
    """

    name: str  #: Name in messages and results.
    threads: Threads = Threads(1)  #: Threads of the host, for the parts of a fit that run there.
    takes_cupy: bool = False  #: Whether :meth:`place` takes CuPy arrays.

    def curves(self, divergence: Any) -> Any:
        """What computes the sums of a divergence without closed forms."""
        from .curved import Curves

        return Curves()

    @abstractmethod
    def place(self, X: Matrix) -> Any:
        """Bring rows into the form that the other methods read."""

    @abstractmethod
    def row_term(self, rows: Any, function: RowTerm) -> FloatArray:
        """Σ_j function(x_j, j) for each row, in float64; function(0, j) = 0 if the rows are sparse. → (n,)"""

    @abstractmethod
    def scores(self, rows: Any, templates: Any) -> FloatArray:
        """The scores of all rows against all templates. → (n, k)"""

    @abstractmethod
    def best_template(self, rows: Any, templates: Any) -> tuple[Array, FloatArray]:
        """The template with the highest score for each row, and that score; the lowest index wins a tie. → 2 × (n,)"""

    @abstractmethod
    def own_and_next(self, rows: Any, templates: Any, labels: Array) -> tuple[FloatArray, FloatArray]:
        """The score of each row's own template, and the highest score of the others, −∞ if none. → 2 × (n,)"""

    @abstractmethod
    def sum_by_label(self, rows: Any, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """Σ weights·x over the rows of each label. → (k, p)"""

    # The rest may be replaced to be faster. What stands here is correct for every backend.

    def prepare(
        self,
        rows: Any,
        centroids: FloatArray,
        templates: Callable[[FloatArray], FloatArray] | None = None,
        offsets: FloatArray | None = None,
        reuse: Any = None,
    ) -> Templates:
        """Bring ``templates(centroids)``, or the centroids themselves, into the form that the scores are computed from.

        ``reuse`` is an earlier result whose memory may be overwritten.
        """
        return Templates(centroids if templates is None else templates(centroids), offsets)

    def to_device(self, array: Any) -> Any:
        """Copy an array to the memory in which this backend computes, unless it is there."""
        return to_host(array)

    def make_block(self, X: Matrix, divergence: Divergence, sample_weight: FloatArray | None = None) -> Block:
        """Place rows and compute once what every step needs."""
        from .curved import CurvedBlock

        check_consistent(divergence, X.shape[1], sparse=hasattr(X, "indptr"))
        self.check(divergence, X.shape[1])
        rows = self.place(X)
        terms = {name: self.row_term(rows, function) for name, function in divergence.row_terms.items()}
        terms["features"] = np.float64(X.shape[1])  # type: ignore[assignment]
        constants = divergence.constant(terms)
        wrong = ~np.isfinite(constants)
        if wrong.any():
            raise ValueError(
                f"Input X is out of range: the loss of row {int(np.argmax(wrong))} is not a finite number under the "
                f"{divergence.name} divergence. Multiply X by a constant that brings its entries near 1, or leave that "
                "row out."
            )
        kind: type[Block] = CurvedBlock if divergence.curved else Block
        return kind(self, rows, X, X.shape, divergence, to_host(sample_weight), terms, constants)

    def check(self, divergence: Divergence, features: int) -> None:
        """Refuse a divergence that this backend cannot compute for rows of this many features."""
        return

    def start_run(self, block: Block) -> Run:
        """Start a run over a block. Nobody but the backend reads more of it than its ``state``."""
        from .curved import CurvedRun

        return CurvedRun(block) if block.divergence.curved else Run(block)

    def steps(self, run: Run, centroids: FloatArray) -> Steps:
        """The steps of a run from these centroids, which are overwritten."""
        return StepsInTurn(run, centroids)

    def hull(self, block: Block, most: int) -> Hull:
        """A hull of at most that number of vertices, for the distances of the rows of a block."""
        return Hull(block, most)

    def trial(self, block: Block) -> Callable[[Array, int], Array] | None:
        """A function that tries the moves of all rows at once; None if trying them one after the other is as fast.

        ``trial(labels, k)`` says which rows would lower the objective by a move to another of k clusters, if only they
        moved (n,). Rows with a negative label take no part.
        """
        return None

    def single_threaded(self) -> Backend | None:
        """The same backend on one thread, for one of several runs at the same time; None if runs cannot be parallel.

        It must give the same bits.
        """
        return None


@dataclass(frozen=True)
class Block:
    """Rows as a backend holds them, with the row terms of the divergence.

    Attributes
    ----------
    backend : Backend
        Computes over the rows.
    rows : object
        The rows as ``backend.place`` returned them.
    source : (n, p) array or CSR
        The rows as they came.
    shape : tuple of int
        Rows and features.
    divergence : Divergence
        Of the fit.
    weights : (n,) array or None
        Sample weights, on the host; None if all are one.
    terms : dict of str to (n,) array
        Reductions of the rows that the divergence needs.
    constants : (n,) array
        The part of each row's loss that no clustering changes.
    """

    backend: Backend
    rows: Any
    source: Matrix
    shape: tuple[int, int]
    divergence: Divergence
    weights: FloatArray | None
    terms: dict[str, FloatArray]
    constants: FloatArray

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def own_weights(self) -> FloatArray | None:
        """The sample weights where the backend computes. → (n,)"""
        return None if self.weights is None else self.backend.to_device(self.weights)

    @cached_property
    def host_weights(self) -> FloatArray:
        """The sample weights on the host, ones if there are none. → (n,)"""
        return np.ones(len(self)) if self.weights is None else self.weights

    @cached_property
    def constant(self) -> float:
        """Σ w·constant, the part of the objective that no clustering changes."""
        return float((self.constants if self.own_weights is None else self.constants * self.own_weights).sum())

    def prepare(self, centroids: FloatArray, divergence: Divergence | None = None, reuse: Any = None) -> Templates:
        """The templates of centroids, by default those of the block's own divergence. Overwrites those to reuse."""
        divergence = divergence or self.divergence
        centroids = self.backend.to_device(centroids)
        return self.backend.prepare(self.rows, centroids, divergence.templates, divergence.offsets(centroids), reuse)

    def prepare_templates(self, B: FloatArray, offsets: FloatArray | None = None) -> Templates:
        """Templates that were computed elsewhere, in the form that the backend reads."""
        return self.backend.prepare(self.rows, self.backend.to_device(B), None, offsets)

    def assign(self, templates: Templates) -> Assignment:
        """Assign every row to its best template."""
        return self.assignment(*self.backend.best_template(self.rows, templates))

    def assignment(self, labels: Array, scores: FloatArray) -> Assignment:
        """Scales and losses of rows with these labels, from their scores."""
        scales = self.divergence.scale(scores, self.terms)
        return Assignment(labels, scales, self.divergence.loss(scores, scales, self.terms, self.constants))

    def scores(self, templates: Templates) -> FloatArray:
        """The scores of all rows against all templates. → (n, k)"""
        return self.backend.scores(self.rows, templates)

    def own_and_next(self, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        """The score of each row's own template, and the highest score of the others, −∞ if none. → 2 × (n,)"""
        return self.backend.own_and_next(self.rows, templates, labels)

    def own_scales(self, templates: Templates, labels: Array, own: FloatArray) -> FloatArray:
        """The scale of each row against its own centroid in the gauge, given the score there. → (n,)"""
        return self.divergence.scale(own, self.terms)

    def losses(self, scores: FloatArray) -> FloatArray:
        """The losses of rows at templates of these scores. → (n,)"""
        return self.divergence.loss(scores, self.divergence.scale(scores, self.terms), self.terms, self.constants)

    def row_weights(self, scales: FloatArray) -> FloatArray:
        """The weight of each row in the sums, its sample weight included. → (n,)"""
        return self.fixed_weights if self.divergence.fixed_weights else self._weights_at(scales)

    @cached_property
    def fixed_weights(self) -> FloatArray:
        """The weights of the rows in the sums, for divergences whose weights do not depend on the scales. → (n,)"""
        return self._weights_at(np.ones_like(self.constants))

    def _weights_at(self, scales: FloatArray) -> FloatArray:
        weights = self.divergence.weight(scales, self.terms)
        return weights if self.own_weights is None else weights * self.own_weights

    def sum_by_label(self, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """Σ weights·x over the rows of each label, on the host. → (k, p)"""
        return np.asarray(to_host(self.backend.sum_by_label(self.rows, labels, weights, k)))

    def squares(self) -> FloatArray:
        """‖x_i‖² of each row. → (n,)"""
        return self.backend.row_term(self.rows, lambda x, j: np.square(x))

    def usable(self, squares: FloatArray) -> Array:
        """Which rows may become centroids, given their squared norms: those with an entry and a weight. → (n,) bool"""
        return squares > 0 if self.own_weights is None else (squares > 0) & (self.own_weights > 0)

    def products(self, vector: FloatArray) -> FloatArray:
        """⟨x_i, vector⟩ for each row. → (n,)"""
        template = self.backend.prepare(self.rows, self.backend.to_device(vector.reshape(1, -1)))
        return self.backend.best_template(self.rows, template)[1]

    def host_term(self, function: RowTerm) -> FloatArray:
        """Σ_j function(x_j, j) for each row, on the host. → (n,)"""
        return np.asarray(to_host(self.backend.row_term(self.rows, function)))

    @cached_property
    def on_host(self) -> Matrix:
        """The rows in the memory of the host."""
        X = to_host(self.source)
        return csr_array(X) if issparse(X) else X

    def take(self, index: Array) -> Matrix:
        """Some of the rows as they are stored, on the host."""
        return take_rows(self.source, index)

    def dense(self, index: Array) -> FloatArray:
        """Some of the rows as a float64 array, on the host."""
        chosen = self.take(index)
        return np.asarray(chosen.toarray() if issparse(chosen) else chosen, dtype=np.float64)

    def subset(self, index: Array) -> Block:
        """Some of the rows as a block of their own."""
        weights = None if self.weights is None else self.weights[index]
        return self.backend.make_block(self.on_host[index], self.divergence, weights)

    def copy_with(self, **changes: Any) -> Block:
        """A copy with other fields for the same rows, and with the numbers by row that have been computed."""
        copy = replace(self, **changes)
        vars(copy).update({name: value for name, value in vars(self).items() if name in BY_ROW})
        return copy


def refused(backend: Backend, divergence: Divergence, reason: str = "") -> ValueError:
    """The error that a backend cannot compute a divergence."""
    return ValueError(
        f"engine={backend.name!r} cannot compute the {divergence.name} divergence{reason}: use engine='cpu', or "
        "another beta_loss, such as 'kullback-leibler'."
    )
