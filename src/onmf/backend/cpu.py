"""The CPU backend: numba kernels over blocks of rows, in a pool of threads."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from onmf import kernels
from onmf.arrays import read_only_view
from onmf.divergence import Array, FloatArray

from .base import Assignment, Backend, Block, Matrix, Templates
from .cpu_curves import CpuCurves
from .reference import all_scores
from .run import COUNTED, Run, RunState, StepSums
from .threads import Threads

ENTRIES_AT_A_TIME = 1 << 18
"""Entries whose row terms are computed together: bounds the float64 copy that :meth:`CpuBackend.row_term` makes."""

SUMMED_APART = 8
"""Groups of rows of an array that are summed separately, whatever the number of threads."""

EXACT = 2.0**53
"""Sums of integers below this are exact in float64."""

INFINITE_SCORE = kernels.INFINITE / 1e150
"""Scores below this contain an infinite cost: validated entries lie far enough from the ends of float64."""

EMPTY = np.empty(0)


class CpuRows:
    """An array or CSR matrix in memory, and facts about it that are computed once."""

    def __init__(self, X: Matrix) -> None:
        self.X = read_only(X)
        self.sparse = issparse(X)
        self._total: float | None = None
        self._sizes: FloatArray | None = None

    @property
    def csr(self) -> tuple[Array, Array, Array]:
        """The arrays of a CSR matrix: indptr, indices and data."""
        return self.X.indptr, self.X.indices, self.X.data

    @property
    def before(self) -> Array:
        """Number of stored entries before each row, and in all. → (n + 1,)"""
        X = self.X
        return X.indptr if self.sparse else np.arange(X.shape[0] + 1) * X.shape[1]

    def sizes(self, backend: Backend) -> FloatArray:
        """Σ_j |x_j| of each row. → (n,)"""
        if self._sizes is None:
            self._sizes = backend.row_term(self, lambda x, j: np.abs(x))
        return self._sizes

    def total_if_whole(self, threads: Threads) -> float:
        """Σ |x| if all entries are whole numbers, else infinity."""
        if self._total is None:
            entries = (self.X.data if self.sparse else self.X).reshape(-1)
            cuts = np.linspace(0, len(entries), 65).astype(np.int64)
            totals = np.zeros(64)

            def add(start: int, stop: int) -> None:
                totals[start] = kernels.total_if_whole(entries, cuts[start], cuts[stop])

            threads.over_blocks(add, cuts, 1)
            self._total = float(totals.sum())
        return self._total


def read_only(X: Matrix) -> Matrix:
    """The same rows, which cannot be written to; see :func:`onmf.arrays.read_only_view`."""
    if not issparse(X):
        return read_only_view(X)
    X = copy(X)  # the arrays inside are the same; a new csr_array might convert its indices
    for name in ("data", "indices", "indptr"):
        setattr(X, name, read_only_view(getattr(X, name)))
    return X


@dataclass(frozen=True)
class CpuTemplates(Templates):
    """Templates as the kernels read them: −∞ as a huge number, transposed for sparse rows."""

    stored: FloatArray = field(default_factory=lambda: EMPTY)  # (p, k), or (k rounded up to even, p)
    starts: FloatArray = field(default_factory=lambda: EMPTY)  # first values of the scores: offsets or zeros
    infinite: bool = False  # whether an entry of a template is −∞


class CpuBackend(Backend):
    """Dense and CSR rows in memory.

    Results do not depend on the number of threads. The score of a row depends on that row alone, and a sum by label is
    added up by one thread in the order of the rows, or for an array in groups that are always the same.

    Parameters
    ----------
    n_threads : int, default=1
        Threads to use.
    """

    name = "cpu"
    curves = CpuCurves()

    def __init__(self, n_threads: int = 1) -> None:
        self.threads = Threads(n_threads)

    def place(self, X: Matrix) -> CpuRows:
        return CpuRows(X)

    def prepare(
        self,
        rows: CpuRows,
        centroids: FloatArray,
        templates: Any = None,
        offsets: FloatArray | None = None,
        reuse: Templates | None = None,
    ) -> CpuTemplates:
        k, p = centroids.shape
        shape = (p, k) if rows.sparse else (k + k % 2, p)
        fits = isinstance(reuse, CpuTemplates) and reuse.stored.shape == shape
        stored = reuse.stored if isinstance(reuse, CpuTemplates) and fits else np.zeros(shape)
        infinite = []

        def block(start: int, stop: int) -> None:
            part = centroids[start:stop] if templates is None else templates(centroids[start:stop])
            if rows.sparse:
                infinite.append(kernels.transpose_templates(part, stored, start))
            else:
                infinite.append(bool((part < kernels.INFINITE).any()))
                np.maximum(part, kernels.INFINITE, out=stored[start:stop])

        self.threads.over_clusters(block, k, p)
        starts = np.zeros(k + k % 2)
        if offsets is not None:
            starts[:k] = offsets
        B = stored.T if rows.sparse else stored[:k]
        return CpuTemplates(B, offsets, stored, starts, any(infinite))

    def best_template(self, rows: CpuRows, templates: Templates) -> tuple[Array, FloatArray]:
        n = rows.X.shape[0]
        labels, best = np.empty(n, dtype=np.int32), np.empty(n)
        infinite = self._score(kernels.best_template_csr, kernels.best_template_dense, rows, templates, labels, best)
        if infinite:  # a row that no template can explain is a tie
            hopeless = best < INFINITE_SCORE
            labels[hopeless], best[hopeless] = 0, -np.inf
        return labels, best

    def own_and_next(self, rows: CpuRows, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        n = rows.X.shape[0]
        own, following = np.empty(n), np.empty(n)
        infinite = self._score(
            kernels.own_and_next_csr, kernels.own_and_next_dense, rows, templates, labels, own, following
        )
        if infinite:
            own[own < INFINITE_SCORE] = following[following < INFINITE_SCORE] = -np.inf
        return own, following

    def _score(self, sparse: Any, dense: Any, rows: CpuRows, templates: Templates, *arrays: Array) -> bool:
        """Run the kernel for this kind of rows, with arrays that it reads or writes; whether a cost can be infinite."""
        assert isinstance(templates, CpuTemplates), "templates come from prepare()"
        kernel, k = sparse if rows.sparse else dense, len(templates)
        X = rows.csr if rows.sparse else (rows.X,)
        given = *X, templates.stored, templates.starts, k
        self.threads.over_blocks(lambda start, stop: kernel(*given, start, stop, *arrays), rows.before, k)
        return templates.infinite

    def scores(self, rows: CpuRows, templates: Templates) -> FloatArray:
        B = templates.B
        assert isinstance(templates, CpuTemplates), "templates come from prepare()"
        if templates.infinite:
            B = np.where(kernels.INFINITE < B, B, -np.inf)
        return all_scores(rows.X, Templates(B, templates.offsets))

    def sum_by_label(
        self, rows: CpuRows, labels: Array, weights: FloatArray, k: int, out: FloatArray | None = None
    ) -> FloatArray:
        X = rows.X
        sums = np.empty((k, X.shape[1])) if out is None else out
        sums[:] = 0.0
        work = max(1, X.size // max(1, X.shape[0]))
        if rows.sparse:
            order, bounds = order_of(labels, k)

            def clusters(start: int, stop: int) -> None:
                kernels.sum_by_label_csr(*rows.csr, order, bounds, weights, start, stop, sums)

            self.threads.over_blocks(clusters, bounds, work)
            return sums

        cuts = groups_of(len(labels))

        def add(start: int, stop: int, groups: FloatArray) -> None:
            kernels.sum_by_label_dense(X, labels, weights, cuts, start, stop, groups)

        self.add_in_groups(add, cuts, sums)
        return sums

    def add_in_groups(self, add: Callable[[int, int, FloatArray], None], cuts: Array, sums: FloatArray) -> None:
        """Add the rows of an array to sums: ``add(start, stop, groups)`` adds some groups of rows, each to its own."""
        groups = np.zeros((SUMMED_APART, *sums.shape))
        self.threads.over_blocks(lambda start, stop: add(start, stop, groups), cuts, sums.shape[1])
        for group in groups:
            sums += group

    def row_term(self, rows: CpuRows, function: Any) -> FloatArray:
        X = rows.X
        n, features = X.shape[0], np.arange(X.shape[1])
        out = np.zeros(n)
        step = max(1, ENTRIES_AT_A_TIME * n // max(1, X.size))
        for start in range(0, n, step):
            stop = min(start + step, n)
            if not rows.sparse:
                out[start:stop] = function(X[start:stop].astype(np.float64, copy=False), features).sum(axis=1)
                continue
            bounds = X.indptr[start : stop + 1]
            here = slice(bounds[0], bounds[-1])
            values = function(X.data[here].astype(np.float64, copy=False), X.indices[here])
            filled = np.flatnonzero(np.diff(bounds))
            if len(filled):
                out[start + filled] = np.add.reduceat(values, bounds[filled] - bounds[0])
        return out

    def start_run(self, block: Block) -> Run:
        from .sketch import ArrayRun
        from .sparse import SparseRun

        if block.divergence.curved:
            return block.start_run()
        return SparseRun(block) if block.rows.sparse else ArrayRun(block)

    def single_threaded(self) -> CpuBackend | None:
        return CpuBackend(1) if self.threads.number > 1 else None


class Summed(NamedTuple):
    """Sums by label, with their labels and weights."""

    sums: FloatArray
    labels: Array
    weights: FloatArray


class CpuRun(Run):
    """A run whose sums follow the rows that moved, if they are exact and few rows did."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._last: Summed | None = None
        self._exact: bool | None = None

    @property
    def exact(self) -> bool:
        """Whether the sums are exact: integers that float64 can count, with weights that no step changes."""
        if self._exact is None:
            self._exact = self.block.divergence.fixed_weights and exact(self.block)
        return self._exact

    def free_workspace(self) -> None:
        super().free_workspace()
        self._last = None

    def count_unscored(self, labels: Array, k: int) -> StepSums:
        """The step that gives these labels, without scores and losses: scales and objective need none."""
        scales = self.block.divergence.scale(np.zeros(len(labels)), self.block.terms)
        step = self.count(Assignment(labels, scales, self.block.constants), k)
        step.on_device("loss")[:] = np.nan
        return step

    def count_summed(self, assignment: Assignment, sums: FloatArray) -> StepSums:
        """The step that gives this assignment, if the rows were summed when they were scored."""
        weights = self.block.row_weights(assignment.scales)
        table = self.tally(assignment, weights, len(sums))
        self.state = RunState(assignment.labels, assignment.scales)
        self._last = Summed(sums, assignment.labels, weights)
        return StepSums(sums, table)

    def tally(self, assignment: Assignment, weights: FloatArray, k: int) -> FloatArray:
        labels, scales, losses = assignment
        before = EMPTY.astype(labels.dtype) if self.state.labels is None else self.state.labels
        scales_before = EMPTY if self.state.scales is None else self.state.scales
        own = EMPTY if self.block.weights is None else self.block.weights
        table = np.zeros((len(COUNTED), k))
        kernels.tally(labels, before, scales, scales_before, losses, weights, own, table)
        return table

    def sums(self, weights: FloatArray, k: int) -> FloatArray:
        labels, _ = self.collect()
        rows: CpuRows = self.block.rows
        last, backend = self._last, self.block.backend
        assert isinstance(backend, CpuBackend)
        if last is not None and len(last.sums) == k and weights is last.weights and self.exact:
            moved = np.flatnonzero(labels != last.labels)
            if 4 * len(moved) < len(labels):
                self._move(rows, moved, last, labels)
                self._last = Summed(last.sums, labels, weights)
                return last.sums
        sums = backend.sum_by_label(rows, labels, weights, k, out=self.reusable_sums(k))
        self._last = Summed(sums, labels, weights)
        return sums

    def _move(self, rows: CpuRows, moved: Array, last: Summed, labels: Array) -> None:
        """Update exact sums for the rows that moved."""
        X, (sums, before, weights) = rows.X, last
        if rows.sparse:
            kernels.move_rows_csr(*rows.csr, moved, before, labels, weights, sums)
            return
        changes = []

        def move(start: int, stop: int) -> None:
            change = np.zeros_like(sums)
            kernels.move_rows_dense(X, moved[start:stop], before, labels, weights, change)
            changes.append(change)

        self.block.backend.threads.over_blocks(move, np.arange(len(moved) + 1), 2 * X.shape[1])
        for change in changes:
            sums += change

    def reusable_sums(self, k: int) -> FloatArray | None:
        """The memory of the last sums, if it fits."""
        return None if self._last is None or len(self._last.sums) != k else self._last.sums


def groups_of(n: int) -> Array:
    """Where the groups begin in which n rows of an array are summed: always the same. → (groups + 1,)"""
    return np.linspace(0, n, SUMMED_APART + 1).astype(np.int64)


def order_of(labels: Array, k: int) -> tuple[Array, Array]:
    """Rows sorted by label, and where each label begins. → (n,), (k + 1,)"""
    order = np.empty(len(labels), dtype=np.int32 if len(labels) < 2**31 else np.int64)
    bounds = np.zeros(k + 1, dtype=np.int64)
    kernels.order_by_label(labels, bounds, order)
    return order, bounds


def exact(block: Block) -> bool:
    """Whether sums of the rows with their fixed weights are integers that float64 can count."""
    weights = block.fixed_weights
    if not np.isfinite(kernels.total_if_whole(weights, 0, len(weights))):
        return False
    return bool(float(weights.max()) * block.rows.total_if_whole(block.backend.threads) < EXACT)
