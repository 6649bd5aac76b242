"""Runs over sparse rows on the CPU: templates in 16 bits decide most labels, and float64 the others.

A row whose label cannot change is not scored at all; see :mod:`onmf.kernels.stored`. The labels are those of float64.
"""

from __future__ import annotations

from math import log, log1p
from typing import NamedTuple

import numpy as np

from onmf import kernels
from onmf.divergence import Array, FloatArray, TemplateForm

from .base import Block
from .cpu import EMPTY, CpuRows, CpuRun, order_of
from .run import StepSums

TEMPLATES_AT_A_TIME = 8
"""Templates whose scores a kernel computes together, in float32."""

ENTRIES_DECIDED = 1 << 16
"""Entries of rows times clusters that float64 decides together at most, unless a row has more: bounds the memory."""


MOST_UNDECIDED = 0.1
"""If more than this share of the rows is left to float64, the rest of the run does without templates in 16 bits."""

INVERTIBLE = 1e-300
"""Sizes below this have no finite inverse, or nearly so."""

SUM_PARTS = 8
"""A cluster that has more than one eighth of the rows is summed in parts."""


class SparseRun(CpuRun):
    """A run over a CSR matrix."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._int16: Array | None = None  # (p, k rounded up) templates of the last step in 16 bits
        self._shifts: Array = EMPTY  # (p,) how far they moved against each other
        self._leads: Array = EMPTY  # (n,) by how much the best scores lead at least
        self._labels: Array | None = None  # the labels that have these leads
        self._pays = True

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
        self._int16, self._shifts, self._leads, self._labels = None, EMPTY, EMPTY, None

    def _sizes(self, centroids: FloatArray) -> FloatArray | None:
        """The sizes of centroids, None if their templates cannot be computed in 16 bits. → (k,)"""
        if self.block.divergence.template_form is None or not self._pays:
            return None
        sizes = np.empty(len(centroids))

        def compute(start: int, stop: int) -> None:
            sizes[start:stop] = self.block.divergence.size(centroids[start:stop])

        self.block.backend.threads.over_clusters(compute, *centroids.shape)
        return None if ((sizes > 0) & (sizes < INVERTIBLE)).any() else sizes

    def _label(self, centroids: FloatArray, sizes: FloatArray) -> Array:
        """The label of each row under these centroids of these sizes. → (n,)"""
        block, k = self.block, len(centroids)
        stored = self._templates(centroids, sizes)
        before, shifts = self.state.labels, self._shifts
        if before is None or self._labels is not before:
            self._leads = np.zeros(len(block), dtype=np.float32)
        labels = np.empty(len(block), dtype=np.int32) if before is None else before.copy()
        rows: CpuRows = block.rows
        row_sizes, leads = rows.sizes(block.backend), self._leads

        def label(start: int, stop: int) -> None:
            kernels.label_by_int16(*rows.csr, stored, k, start, stop, shifts, row_sizes, leads, labels)

        block.backend.threads.over_blocks(label, rows.before, k)
        undecided = np.flatnonzero(leads < 0)
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
        if self._int16 is None or self._int16.shape != (p, width):
            self._int16, self._shifts, self._labels = np.zeros((p, width), np.int16), np.empty(p, np.float32), None
        assert divergence.template_form is not None
        stored, shifts, form = self._int16, self._shifts, template_steps(divergence.template_form)
        factors = np.divide(1.0, sizes, out=np.zeros(k), where=sizes > 0)

        def compute(start: int, stop: int) -> None:
            first, last = start * kernels.TILE_FEATURES, min(stop * kernels.TILE_FEATURES, p)
            kernels.int16_templates(centroids, factors, *form, first, last, stored, shifts)

        tiles = -(-p // kernels.TILE_FEATURES)
        self.block.backend.threads.over_blocks(compute, np.arange(tiles + 1), 4 * k * kernels.TILE_FEATURES)
        return stored

    def _decide(self, rows: Array, stored: Array, centroids: FloatArray, sizes: FloatArray, labels: Array) -> None:
        """Label the rows that the templates in 16 bits have left open, among those that may be best."""
        X, k, row_sizes = self.block.rows.X, len(centroids), self.block.rows.sizes(self.block.backend)
        entries = np.cumsum((X.indptr[rows + 1] - X.indptr[rows]) * k, dtype=np.int64)
        for part in np.split(rows, np.flatnonzero(np.diff(entries // ENTRIES_DECIDED)) + 1) if len(rows) else []:
            possible = np.empty((len(part), k), dtype=np.bool_)
            kernels.candidates_by_int16(X.indptr, X.indices, X.data, stored, part, row_sizes, possible)
            places, clusters = np.nonzero(possible)
            pairs = part[places]
            lengths = X.indptr[pairs + 1] - X.indptr[pairs]
            bounds = np.concatenate([[0], np.cumsum(lengths)])
            gathered = np.empty((bounds[-1], 1))
            kernels.gather_entries(X.indptr, X.indices, pairs, clusters, centroids, bounds, gathered)
            templates = self.block.divergence.templates_at(gathered, np.repeat(sizes[clusters], lengths))
            kernels.best_of_pairs(X.indptr, X.data, pairs, clusters, templates, bounds, labels)
        self._leads[rows] = 0.0

    def _score_and_sum(self, labels: Array, centroids: FloatArray, sizes: FloatArray) -> StepSums:
        """The step that gives these labels, with rows scored against their own templates and summed in one read."""
        block, X, k = self.block, self.block.rows.X, len(centroids)
        weights = block.fixed_weights if block.divergence.fixed_weights else EMPTY
        own = EMPTY if block.weights is None else block.weights
        best, room = np.empty(len(labels)), self.reusable_sums(k)
        sums = np.empty((k, block.shape[1])) if room is None else room
        order, bounds = order_of(labels, k)
        clusters, bounds, places = parts_of(bounds)
        further = np.empty((places.max() + 1, block.shape[1]))

        def parts(start: int, stop: int) -> None:
            kernels.score_and_sum_csr(
                *(X.indptr, X.indices, X.data, order, clusters, bounds, places, centroids, sizes, weights, own),
                *(start, stop, best, sums, further),
            )

        block.backend.threads.over_blocks(parts, bounds, max(1, X.nnz // max(1, X.shape[0])))
        for cluster, place in zip(clusters, places, strict=True):
            if place >= 0:
                sums[cluster] += further[place]
        return self.count_summed(block.assignment(labels, best), sums)


class TemplateSteps(NamedTuple):
    """How templates in 16 bits follow from centroids, as :func:`onmf.kernels.int16_templates` takes it."""

    smoothing: float
    logarithms: bool
    middle: float
    step: float


def template_steps(form: TemplateForm) -> TemplateSteps:
    """How templates of this form are stored in 16 bits."""
    if not form.logarithms:
        return TemplateSteps(0.0, False, 0.0, 1.0 / kernels.INT16_LIMIT)
    low, high = log(form.smoothing), log1p(form.smoothing)
    step = max((high - low) / 2 / kernels.INT16_LIMIT, kernels.MIN_STEP * max(1.0, -low, high))
    return TemplateSteps(form.smoothing, True, (low + high) / 2, step)


def parts_of(bounds: Array) -> tuple[Array, Array, Array]:
    """Cut large clusters into parts, for threads to share; the same parts for any number of threads.

    ``bounds`` (k + 1,) tells where each label begins in an order of the rows. Returns the label of each part (m,),
    where it begins (m + 1,), and a number (m,) for those that are not the first of their label, −1 for the others.
    """
    rows = np.diff(bounds)
    pieces = np.maximum(1, -(-rows * SUM_PARTS // max(1, int(bounds[-1]))))
    clusters = np.repeat(np.arange(len(rows)), pieces)
    number = np.arange(len(clusters)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begins = bounds[clusters] + rows[clusters] * number // pieces[clusters]
    places = np.where(number > 0, np.cumsum(number > 0) - 1, -1)
    return clusters, np.append(begins, bounds[-1]), places
