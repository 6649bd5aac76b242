"""The CPU backend: numba kernels over blocks of rows, in a pool of threads, and its runs.

A run over sparse rows decides most labels by templates in 16 bits, and does not score a row whose label cannot change.
A run over an array gives most rows their labels without reading them, from sketches. The templates of a run soon change
little, and rows of real data lie near few directions. So such a run computes once the inner products of every row with
a few directions: that of the mean row, and those in which its templates differ most. With the columns of Q for these
directions, z = Qᵀx for a row and t_k = Qᵀb_k for a template,

    |⟨x, b_k⟩ − ⟨z, t_k⟩| ≤ ‖x − Qz‖ · ‖b_k − Qt_k‖ + rounding

by Cauchy–Schwarz. A template whose lower bound exceeds the upper bounds of all others is the one that exact scores
would choose. For the other rows, exact scores decide among the templates whose upper bounds reach the largest lower
bound. What all templates have in common changes no comparison, and is subtracted before. Either way the labels are
those of float64, and only the time depends on the shortcut; see :mod:`onmf.kernels.screen`.

Symbols: Q (q, p) directions, Z (q + 1, n) sketches and ‖x − Qz‖, T (k, q) templates in these directions.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import log, log1p
from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.arrays import read_only_view
from onmf.divergence import Array, FloatArray, TemplateForm
from onmf.kernels import screen, steps

from .base import COUNTED, Assignment, Backend, Block, Matrix, Run, StepSums, Templates
from .curved import CpuCurves, Curves
from .threads import Threads

ENTRIES_AT_A_TIME = 1 << 18  # whose row terms are computed together: bounds the float64 copy
SUMMED_APART = 8  # groups of rows of an array that are summed separately, whatever the number of threads
EXACT = 2.0**53  # sums of integers below this are exact in float64
# Scores below this contain an infinite cost: validated entries lie far enough from the ends of float64.
INFINITE_SCORE = steps.INFINITE / 1e150

TEMPLATES_AT_A_TIME = 8  # templates in 16 bits whose scores a kernel computes together, in float32
ENTRIES_DECIDED = 1 << 16  # entries of rows times clusters that float64 decides together, or one row: bounds the memory
FEW_PRODUCTS = 1 << 21  # below so many entries and features times clusters, float64 is as fast, and compiled anyway
MOST_UNDECIDED = 0.1  # if more of the rows are left to float64, the rest of the run does without templates in 16 bits
INVERTIBLE = 1e-300  # sizes below this have no finite inverse, or nearly so
SUM_PARTS = 8  # a cluster that has more than one eighth of the rows is summed in parts

DIRECTIONS = 8  # of a sketch: 36 bytes for each row
WORTHWHILE = 4_096  # rows from which on sketches are made
USELESS = 0.5  # share of open rows above which a fresh sketch is not worth keeping
CANDIDATES = 4  # templates that are scored for an open row, about; the time to fetch the row is included
DOUBLE, SINGLE = 2.0**-53, 2.0**-24  # relative rounding errors
HUGE, TINY = 1e30, 1e-37  # products of rows and templates that float32 can hold; an error that covers all underflow

EMPTY = np.empty(0)
Label = Callable[[int, int, Array], int]  # labels rows start to stop; how many of them the sketches left open


class CpuRows:
    """An array or CSR matrix in memory, which kernels cannot write to, and facts about it that are computed once."""

    def __init__(self, X: Matrix, threads: Threads) -> None:
        self.sparse, self.threads = issparse(X), threads
        self.X: Matrix = copy(X) if self.sparse else read_only_view(X)
        if self.sparse:  # the arrays in the copy are the same; a new csr_array might convert its indices
            for name in ("data", "indices", "indptr"):
                setattr(self.X, name, read_only_view(getattr(X, name)))

    @property
    def csr(self) -> tuple[Array, Array, Array]:
        """The arrays of a CSR matrix: indptr, indices and data."""
        return self.X.indptr, self.X.indices, self.X.data

    @property
    def before(self) -> Array:
        """Number of stored entries before each row, and in all. → (n + 1,)"""
        return self.X.indptr if self.sparse else np.arange(self.X.shape[0] + 1) * self.X.shape[1]

    @cached_property
    def sizes(self) -> FloatArray:
        """Σ_j |x_j| of each row. → (n,)"""
        return self.row_term(lambda x, j: np.abs(x))

    @cached_property
    def total_if_whole(self) -> float:
        """Σ |x| if all entries are whole numbers, else infinity."""
        entries, totals = (self.X.data if self.sparse else self.X).reshape(-1), np.zeros(64)
        cuts = np.linspace(0, len(entries), 65).astype(np.int64)

        def add(start: int, stop: int) -> None:
            totals[start] = steps.total_if_whole(entries, cuts[start], cuts[stop])

        self.threads.over_blocks(add, cuts, 1)
        return float(totals.sum())

    def row_term(self, function: Any) -> FloatArray:
        """As :meth:`Backend.row_term`. → (n,)"""
        X, n, features = self.X, self.X.shape[0], np.arange(self.X.shape[1])
        out, step = np.zeros(n), max(1, ENTRIES_AT_A_TIME * n // max(1, X.size))
        for start in range(0, n, step):
            stop = min(start + step, n)
            if not self.sparse:
                out[start:stop] = function(X[start:stop].astype(np.float64, copy=False), features).sum(axis=1)
                continue
            bounds = X.indptr[start : stop + 1]
            here = slice(bounds[0], bounds[-1])
            values = function(X.data[here].astype(np.float64, copy=False), X.indices[here])
            filled = np.flatnonzero(np.diff(bounds))
            if len(filled):
                out[start + filled] = np.add.reduceat(values, bounds[filled] - bounds[0])
        return out


@dataclass(frozen=True)
class CpuTemplates(Templates):
    """Templates as the kernels read them: −∞ as a huge number, transposed for sparse rows."""

    stored: Any = None  # (p, k), or (k rounded up to even, p)
    starts: Any = None  # first values of the scores: offsets or zeros
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

    def __init__(self, n_threads: int = 1) -> None:
        self.threads = Threads(n_threads)

    def curves(self, divergence: Any) -> Curves:
        return Curves() if divergence.kernel_functions is None else CpuCurves()

    def place(self, X: Matrix) -> CpuRows:
        return CpuRows(X, self.threads)

    def prepare(
        self, rows: CpuRows, centroids: FloatArray, templates: Any = None, offsets: Any = None, reuse: Any = None
    ) -> CpuTemplates:
        k, p = centroids.shape
        shape = (p, k) if rows.sparse else (k + k % 2, p)
        stored = np.zeros(shape) if reuse is None or reuse.stored.shape != shape else reuse.stored
        infinite = []

        def block(start: int, stop: int) -> None:
            part = centroids[start:stop] if templates is None else templates(centroids[start:stop])
            if rows.sparse:
                infinite.append(steps.transpose_templates(part, stored, start))
            else:
                infinite.append(bool((part < steps.INFINITE).any()))
                np.maximum(part, steps.INFINITE, out=stored[start:stop])

        self.threads.over_clusters(block, k, p)
        starts = np.zeros(k + k % 2)
        starts[:k] = 0.0 if offsets is None else offsets
        return CpuTemplates(stored.T if rows.sparse else stored[:k], offsets, stored, starts, any(infinite))

    def best_template(self, rows: CpuRows, templates: CpuTemplates) -> tuple[Array, FloatArray]:
        n = rows.X.shape[0]
        labels, best = np.empty(n, dtype=np.int32), np.empty(n)
        self._score(
            steps.best_template_csr if rows.sparse else steps.best_template_dense, rows, templates, labels, best
        )
        if templates.infinite:  # a row that no template can explain is a tie
            hopeless = best < INFINITE_SCORE
            labels[hopeless], best[hopeless] = 0, -np.inf
        return labels, best

    def own_and_next(self, rows: CpuRows, templates: CpuTemplates, labels: Array) -> tuple[FloatArray, FloatArray]:
        own, following = np.empty(rows.X.shape[0]), np.empty(rows.X.shape[0])
        kernel = steps.own_and_next_csr if rows.sparse else steps.own_and_next_dense
        self._score(kernel, rows, templates, labels, own, following)
        if templates.infinite:
            own[own < INFINITE_SCORE] = following[following < INFINITE_SCORE] = -np.inf
        return own, following

    def _score(self, kernel: Any, rows: CpuRows, templates: CpuTemplates, *arrays: Array) -> None:
        """Run a kernel over all rows, with arrays that it reads or writes."""
        k = len(templates)
        given = rows.csr if rows.sparse else rows.X, templates.stored, templates.starts, k
        self.threads.over_blocks(lambda start, stop: kernel(*given, start, stop, *arrays), rows.before, k)

    def scores(self, rows: CpuRows, templates: CpuTemplates) -> FloatArray:
        out = np.empty((rows.X.shape[0], len(templates)))
        self._score(steps.scores_csr if rows.sparse else steps.scores_dense, rows, templates, out)
        if templates.infinite:
            out[out < INFINITE_SCORE] = -np.inf
        return out

    def sum_by_label(self, rows: CpuRows, labels: Array, weights: FloatArray, k: int, out: Any = None) -> FloatArray:
        X = rows.X
        sums: FloatArray = np.empty((k, X.shape[1])) if out is None else out
        sums[:] = 0.0
        if rows.sparse:
            order, bounds = order_of(labels, k)

            def clusters(start: int, stop: int) -> None:
                steps.sum_by_label_csr(rows.csr, order, bounds, weights, start, stop, sums)

            self.threads.over_blocks(clusters, bounds, max(1, X.size // max(1, X.shape[0])))
        else:
            cuts = groups_of(len(labels))

            def add(start: int, stop: int, groups: FloatArray) -> None:
                steps.sum_by_label_dense(X, labels, weights, cuts, start, stop, groups)

            self.add_in_groups(add, cuts, sums)
        return sums

    def add_in_groups(self, add: Callable[[int, int, FloatArray], None], cuts: Array, sums: FloatArray) -> None:
        """Add the rows of an array to sums: ``add(start, stop, groups)`` adds some groups of rows, each to its own."""
        groups = np.zeros((SUMMED_APART, *sums.shape))
        self.threads.over_blocks(lambda start, stop: add(start, stop, groups), cuts, sums.shape[1])
        for group in groups:
            sums += group

    def row_term(self, rows: CpuRows, function: Any) -> FloatArray:
        return rows.row_term(function)

    def start_run(self, block: Block) -> Run:
        if block.divergence.curved:
            return super().start_run(block)
        return SparseRun(block) if block.rows.sparse else ArrayRun(block)

    def single_threaded(self) -> CpuBackend | None:
        return CpuBackend(1) if self.threads.number > 1 else None


class CpuRun(Run):
    """A run whose sums follow the rows that moved, if they are exact and few rows did."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self.backend: Any = block.backend
        self.rows: CpuRows = block.rows
        self.free_workspace()

    @cached_property
    def weights_of_rows(self) -> tuple[FloatArray, FloatArray]:
        """The fixed weights and the sample weights, as kernels take them: empty if there are none."""
        fixed = self.block.fixed_weights if self.block.divergence.fixed_weights else EMPTY
        return fixed, EMPTY if self.block.weights is None else self.block.weights

    @cached_property
    def exact(self) -> bool:
        """Whether the sums are exact: integers that float64 can count, with weights that no step changes."""
        weights = self.weights_of_rows[0]
        whole = len(weights) > 0 and (weights == np.rint(weights)).all()
        return bool(whole and float(weights.max()) * self.rows.total_if_whole < EXACT)

    def free_workspace(self) -> None:
        super().free_workspace()
        self._sums: FloatArray = EMPTY  # (k, p) the last sums by label
        self._summed: Array = EMPTY  # (n,) their labels

    def count_summed(self, assignment: Assignment, sums: FloatArray) -> StepSums:
        """The step that gives this assignment, if the rows were summed when they were scored."""
        self._sums, self._summed = sums, assignment.labels
        return self.count(assignment, len(sums), sums)

    def tally(self, assignment: Assignment, weights: FloatArray, k: int) -> FloatArray:
        labels, scales, losses = assignment
        before, scales_before = self.state or (EMPTY.astype(labels.dtype), EMPTY)
        table = np.zeros((len(COUNTED), k))
        steps.tally(labels, before, scales, scales_before, losses, weights, self.weights_of_rows[1], table)
        return table

    def sums(self, weights: FloatArray, k: int) -> FloatArray:
        labels = self.collect().labels
        moved = np.flatnonzero(labels != self._summed) if len(self._sums) == k and self.exact else labels
        if 4 * len(moved) < len(labels):
            self._move(moved, labels, weights)
        else:
            self._sums = self.backend.sum_by_label(self.rows, labels, weights, k, out=self.room_for_sums(k))
        self._summed = labels
        return self._sums

    def _move(self, moved: Array, labels: Array, weights: FloatArray) -> None:
        """Update exact sums for the rows that moved."""
        rows, sums, before = self.rows, self._sums, self._summed
        if rows.sparse:
            steps.move_rows_csr(rows.csr, moved, before, labels, weights, sums)
            return
        changes = []

        def move(start: int, stop: int) -> None:
            change = np.zeros_like(sums)
            steps.move_rows_dense(rows.X, moved[start:stop], before, labels, weights, change)
            changes.append(change)

        self.backend.threads.over_blocks(move, np.arange(len(moved) + 1), 2 * sums.shape[1])
        for change in changes:
            sums += change

    def room_for_sums(self, k: int) -> FloatArray:
        """Memory for sums: that of the last ones if it fits. → (k, p)"""
        return self._sums if len(self._sums) == k else np.empty((k, self.block.shape[1]))


class SparseRun(CpuRun):
    """A run over a CSR matrix."""

    _pays = True  # whether templates in 16 bits decide most labels

    def step_from(self, centroids: FloatArray) -> StepSums:
        divergence = self.block.divergence
        form, known = divergence.template_form, divergence.fixed_weights or divergence.score_weights
        summed_at_once = form is not None and not form.logarithms and known
        sizes = self._sizes(centroids) if divergence.fixed_scales or summed_at_once else None
        if sizes is None:
            return super().step_from(centroids)
        k, labels = len(centroids), self._label(centroids, sizes)
        if divergence.fixed_scales:
            return self.count_unscored(labels, k)
        return self._score_and_sum(labels, centroids, sizes)

    def labels_from(self, centroids: FloatArray) -> Array:
        centroids = np.ascontiguousarray(centroids)
        sizes = self._sizes(centroids)
        return super().labels_from(centroids) if sizes is None else self._label(centroids, sizes)

    def free_workspace(self) -> None:
        super().free_workspace()
        self._int16: Array = EMPTY  # (p, k rounded up) templates of the last step in 16 bits
        self._shifts: Array = EMPTY  # (p,) how far they moved against each other
        self._leads: Array = EMPTY  # (n,) by how much the best scores lead at least
        self._labels: Array | None = None  # the labels that have these leads

    def _sizes(self, centroids: FloatArray) -> FloatArray | None:
        """The sizes of centroids, None if their templates cannot be computed in 16 bits. → (k,)"""
        if self.block.divergence.template_form is None or not self._pays:
            return None
        sizes = np.empty(len(centroids))

        def compute(start: int, stop: int) -> None:
            sizes[start:stop] = self.block.divergence.size(centroids[start:stop])

        self.backend.threads.over_clusters(compute, *centroids.shape)
        return None if ((sizes > 0) & (sizes < INVERTIBLE)).any() else sizes

    def _label(self, centroids: FloatArray, sizes: FloatArray) -> Array:
        """The label of each row under these centroids of these sizes. → (n,)"""
        n, k, rows = len(self.block), len(centroids), self.rows
        if (rows.X.nnz + rows.X.shape[1]) * k < FEW_PRODUCTS:
            return super().labels_from(centroids)
        stored = self._templates(centroids, sizes)
        before = None if self.state is None else self.state.labels
        if before is None or self._labels is not before:
            self._leads = np.zeros(n, dtype=np.float32)
        labels = np.empty(n, dtype=np.int32) if before is None else before.copy()
        numbers = self._shifts, rows.sizes, self._leads, labels

        def label(start: int, stop: int) -> None:
            screen.label_by_int16(rows.csr, stored, k, start, stop, *numbers)

        self.backend.threads.over_blocks(label, rows.before, k)
        undecided = np.flatnonzero(self._leads < 0)
        if len(undecided) > MOST_UNDECIDED * len(labels):
            self.free_workspace()
            self._pays = False
            return super().labels_from(centroids)
        self._decide(undecided, stored, centroids, sizes, labels)
        self._labels = labels
        return labels

    def _templates(self, centroids: FloatArray, sizes: FloatArray) -> Array:
        """The templates in 16 bits, in place of those of the last step. → (p, k or more)"""
        divergence, (k, p) = self.block.divergence, centroids.shape
        width = -(-k // TEMPLATES_AT_A_TIME) * TEMPLATES_AT_A_TIME
        if self._int16.shape != (p, width):
            self._int16, self._shifts, self._labels = np.zeros((p, width), np.int16), np.empty(p, np.float32), None
        assert divergence.template_form is not None
        stored, shifts, form = self._int16, self._shifts, template_steps(divergence.template_form)
        factors = np.divide(1.0, sizes, out=np.zeros(k), where=sizes > 0)

        def compute(start: int, stop: int) -> None:
            first, last = start * screen.TILE_FEATURES, min(stop * screen.TILE_FEATURES, p)
            screen.int16_templates(centroids, factors, form, first, last, stored, shifts)

        tiles = -(-p // screen.TILE_FEATURES)
        self.backend.threads.over_blocks(compute, np.arange(tiles + 1), 4 * k * screen.TILE_FEATURES)
        return stored

    def _decide(self, rows: Array, stored: Array, centroids: FloatArray, sizes: FloatArray, labels: Array) -> None:
        """Label the rows that the templates in 16 bits have left open, among those that may be best."""
        X, k, row_sizes = self.rows.X, len(centroids), self.rows.sizes
        entries = np.cumsum((X.indptr[rows + 1] - X.indptr[rows]) * k, dtype=np.int64)
        for part in np.split(rows, np.flatnonzero(np.diff(entries // ENTRIES_DECIDED)) + 1) if len(rows) else []:
            possible = np.empty((len(part), k), dtype=np.bool_)
            screen.candidates_by_int16(self.block.rows.csr, stored, part, row_sizes, possible)
            places, clusters = np.nonzero(possible)
            pairs = part[places]
            lengths = X.indptr[pairs + 1] - X.indptr[pairs]
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            gathered = np.empty((bounds[-1], 1))
            screen.gather_entries(X.indptr, X.indices, pairs, clusters, centroids, bounds, gathered)
            templates = self.block.divergence.templates_at(gathered, np.repeat(sizes[clusters], lengths))
            screen.best_of_pairs(X.indptr, X.data, pairs, clusters, templates, bounds, labels)
        self._leads[rows] = 0.0

    def _score_and_sum(self, labels: Array, centroids: FloatArray, sizes: FloatArray) -> StepSums:
        """The step that gives these labels, with rows scored against their own templates and summed in one read."""
        block, X, k = self.block, self.rows.X, len(centroids)
        best, sums = np.empty(len(labels)), self.room_for_sums(k)
        order, bounds = order_of(labels, k)
        clusters, bounds, places = parts_of(bounds)
        further = np.empty((places.max() + 1, block.shape[1]))
        given = self.rows.csr, order, clusters, bounds, places, centroids, sizes

        def parts(start: int, stop: int) -> None:
            steps.score_and_sum_csr(*given, *self.weights_of_rows, start, stop, best, sums, further)

        self.backend.threads.over_blocks(parts, bounds, max(1, X.nnz // max(1, X.shape[0])))
        for cluster, place in zip(clusters, places, strict=True):
            if place >= 0:
                sums[cluster] += further[place]
        return self.count_summed(block.assignment(labels, best), sums)


class Screening:
    """The sketches of one run.

    A sketch is made anew once the rows that it could not decide, because the templates have moved away from it, have
    taken as long as making one. There is none if even a fresh one leaves most rows open.
    """

    def __init__(self, X: Array, threads: Threads, features: int | None = None) -> None:
        self.X, self.threads, self._features = X, threads, features or X.shape[1]
        self._Q: FloatArray | None = None  # (8, p) orthonormal directions; or zeros, if there are no more
        self._Z: Array = EMPTY  # (9, n) sketches, and the length of what each leaves out
        self._fresh: float | None = None
        self._debt = self._largest = 0.0  # the latter bounds the length of a row
        self._useless = len(X) < WORTHWHILE or self._features < 4 * DIRECTIONS
        self._groups = np.empty(0, dtype=np.int32)  # (n,) if there are any
        if features is not None and not self._useless:
            self._groups = X[:, features:].argmax(axis=1).astype(np.int32)

    def screen(self, B: FloatArray, starts: FloatArray, k: int, sums: FloatArray) -> Label | None:
        """Prepare to label rows by the first k templates, given the last sums; None if sketches are of no use."""
        if self._useless:
            return None
        p, mean = self._features, B[:k].mean(axis=0)
        grouped = len(self._groups) > 0
        if self._Q is None or self._debt >= DIRECTIONS:
            fixed = [np.ones(p), sums[:, :p].sum(axis=0)] if grouped else [sums.sum(axis=0)]
            self._Q = directions_of(fixed, B[:k, :p] - mean[:p])
            self._sketch_rows(self._Q)
            self._fresh, self._debt = None, 0.0
        T = np.empty((k, DIRECTIONS + 2), dtype=np.float32)
        T[:, -1] = starts[:k]
        longest, sketched, apart, inside = screen.sketch_templates(B, mean, self._Q, T)
        offset, moved = float(np.abs(starts).max()), 0.0
        firsts = np.empty((0, k), dtype=np.float32)
        if grouped:  # |x| = ± √p z_0, so the column of a group moves the first entries of the templates of its rows
            shifts = self._Q[0].sum() * (B[:k, p:] - mean[p:]).T
            firsts, T[:, 0] = (T[:, 0] + shifts).astype(np.float32), 1.0
            moved = float(np.abs(shifts).max())
            longest += np.sqrt(p) * float(np.abs(B[:k, p:]).max())
            sketched, apart = sketched + moved, apart + moved
        # Float32 cannot hold all numbers of float64.
        self._useless = not self._largest * max(apart, 1.0) + offset < HUGE
        if self._useless:
            return None
        # Rounding: of exact scores; of T, which leaves a part of the rest inside the directions; and in float32.
        fine = 4 * (len(mean) + 8) * DOUBLE * longest
        slope = 1.01 * (fine + inside + ((DIRECTIONS + 8) * sketched + 4 * moved) * SINGLE)
        least = 1.01 * (8 * SINGLE * offset + TINY * (1 + sketched))
        errors = np.float32(slope), np.float32(least), fine, 8 * DOUBLE * offset + np.finfo(np.float64).tiny
        given, sketches = (self.X, B, starts, k, self._groups, firsts), (self._Z, T, errors)
        return lambda start, stop, labels: screen.label_by_sketch(*given, *sketches, start, stop, labels)

    def _sketch_rows(self, Q: FloatArray) -> None:
        """Sketch all rows, in the memory of the sketches before."""
        X, (n, p) = self.X, self.X.shape
        if not len(self._Z):
            self._Z = np.empty((DIRECTIONS + 1, n), dtype=np.float32)
        before = np.arange(n + 1) * p
        self.threads.over_blocks(lambda start, stop: screen.sketch_rows(X, Q, self._Z, start, stop), before, DIRECTIONS)
        Z = self._Z
        self._largest = len(Z) * max(float(Z.max()), -float(Z.min()))

    def record_open(self, left_open: int, k: int) -> None:
        """Take note of how many rows the last screen left open."""
        share = left_open / len(self.X)
        if self._fresh is None:
            self._fresh, self._useless = share, share > USELESS
        self._debt += max(share - self._fresh, 0.0) * min(k, CANDIDATES)


def directions_of(given: list[FloatArray], apart: FloatArray) -> FloatArray:
    """Given directions, and those in which templates lie furthest apart. → (8, p)"""
    first = np.linalg.qr(np.stack(given, axis=1))[0].T
    apart = apart - np.einsum("kd,dp->kp", np.einsum("kp,dp->kd", apart, first), first)
    sizes, mixtures = np.linalg.eigh(np.einsum("ap,bp->ab", apart, apart))  # ascending
    chosen = np.flatnonzero(sizes > 1e-12 * sizes[-1])[::-1][: DIRECTIONS - len(first)]
    found = np.einsum("kd,kp->dp", mixtures[:, chosen], apart)
    Q = np.zeros((DIRECTIONS, apart.shape[1]))
    Q[: len(first) + len(found)] = np.linalg.qr(np.vstack([*given, found]).T)[0].T
    return Q


class ArrayRun(CpuRun):
    """A run over an array. After its first step it labels rows by sketches, if these decide most of them."""

    @cached_property
    def _screening(self) -> Screening:
        return Screening(self.rows.X, self.backend.threads, self.block.divergence.indicators)

    def step(self, templates: CpuTemplates) -> StepSums:
        label = None
        if len(self._sums) and not templates.infinite:
            label = self._screening.screen(templates.stored, templates.starts, len(templates), self._sums)
        if label is None:
            return super().step(templates)
        return (self._step_unread if self.block.divergence.fixed_scales else self._step_read)(templates, label)

    def _step_unread(self, templates: CpuTemplates, label: Label) -> StepSums:
        """A step that needs no scores, and reads only rows that are open or move."""
        n, k, left_open = len(self.block), len(templates), list[int]()
        labels, threads = np.empty(n, dtype=np.int32), self.backend.threads
        threads.over_blocks(lambda start, stop: left_open.append(label(start, stop, labels)), np.arange(n + 1), 4 * k)
        self._screening.record_open(sum(left_open), k)
        return self.count_unscored(labels, k)

    def _step_read(self, templates: CpuTemplates, label: Label) -> StepSums:
        """A step that scores each row against its own template and sums in one read, if the weights are known then."""
        block, divergence, k, left_open = self.block, self.block.divergence, len(templates), list[int]()
        labels, best = np.empty(len(block), dtype=np.int32), np.empty(len(block))
        known = divergence.fixed_weights or divergence.score_weights
        given = self.rows.X, templates.stored, templates.starts, labels, *self.weights_of_rows, known
        sums, cuts = np.zeros((k, block.shape[1])), groups_of(len(block))

        def read(start: int, stop: int, groups: FloatArray) -> None:
            left_open.append(label(cuts[start], cuts[stop], labels))
            steps.score_and_sum(*given, cuts, start, stop, best, groups)

        self.backend.add_in_groups(read, cuts, sums)
        self._screening.record_open(sum(left_open), k)
        assignment = block.assignment(labels, best)
        return self.count_summed(assignment, sums) if known else self.count(assignment, k)


def groups_of(n: int) -> Array:
    """Where the groups begin in which n rows of an array are summed: always the same. → (groups + 1,)"""
    return np.linspace(0, n, SUMMED_APART + 1).astype(np.int64)


def order_of(labels: Array, k: int) -> tuple[Array, Array]:
    """Rows sorted by label, and where each label begins. → (n,), (k + 1,)"""
    order = np.empty(len(labels), dtype=np.int32 if len(labels) < 2**31 else np.int64)
    bounds = np.zeros(k + 1, dtype=np.int64)
    steps.sort_by_label(labels, 0, len(labels), bounds, order)
    return order, bounds


def template_steps(form: TemplateForm) -> tuple[float, bool, float, float]:
    """How templates of this form are stored in 16 bits: smoothing, whether they are logarithms, middle and step."""
    if not form.logarithms:
        return 0.0, False, 0.0, 1.0 / screen.INT16_LIMIT
    low, high = log(form.smoothing), log1p(form.smoothing)
    step = max((high - low) / 2 / screen.INT16_LIMIT, screen.MIN_STEP * max(1.0, -low, high))
    return form.smoothing, True, (low + high) / 2, step


def parts_of(bounds: Array) -> tuple[Array, Array, Array]:
    """Cut large clusters, which begin at these bounds, into parts for threads; the same for any number of threads.

    Returns the label of each part (m,), where it begins (m + 1,), and a number (m,), −1 for the first of a label.
    """
    rows = np.diff(bounds)
    pieces = np.maximum(1, -(-rows * SUM_PARTS // max(1, int(bounds[-1]))))
    clusters = np.repeat(np.arange(len(rows)), pieces)
    number = np.arange(len(clusters)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = bounds[clusters] + rows[clusters] * number // pieces[clusters]
    places = np.where(number > 0, np.cumsum(number > 0) - 1, -1)
    return clusters, np.append(begins, bounds[-1]), places
