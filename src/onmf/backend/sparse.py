"""Runs over sparse rows on the CPU: templates in float32 decide most labels, and float64 the others.

A row whose label cannot change is not scored at all; see :mod:`onmf.kernels.narrow`. The labels are those of float64.
"""

from __future__ import annotations

from math import log, log1p

import numpy as np

from onmf import kernels
from onmf.divergence import Array, FloatArray, KullbackLeibler

from .base import Block
from .cpu import EMPTY, CpuRun, order_of
from .sums import StepSums

AT_A_TIME = 8
"""Templates whose scores a kernel computes together, in float32."""

ENTRIES_DECIDED = 1 << 16
"""Entries of rows that float64 decides together: bounds the memory of their templates."""


class SparseRun(CpuRun):
    """A run over a CSR matrix."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._narrow: Array | None = None  # (p, k rounded up) templates of the last step in float32
        self._shifts: Array = EMPTY  # (p,) how far they moved against each other
        self._leads: Array = EMPTY  # (n,) by how much the best scores lead at least
        self._labels: Array | None = None  # the labels that have these leads

    def step_from(self, centroids: FloatArray) -> StepSums:
        block, divergence = self.block, self.block.divergence
        if divergence.template_form is None:
            return super().step_from(centroids)
        k, sizes = len(centroids), self._sizes(centroids)
        labels = self._label(centroids, sizes)
        if divergence.fixed_scales:
            return self.count_unscored(labels, divergence.scale(EMPTY, block.terms), k)
        return self.count(block.assignment(labels, self._own_scores(labels, centroids, sizes)), k)

    def drop_room(self) -> None:
        super().drop_room()
        self._narrow, self._shifts, self._leads, self._labels = None, EMPTY, EMPTY, None

    def _sizes(self, centroids: FloatArray) -> FloatArray:
        """The sizes of centroids. → (k,)"""
        sizes = np.empty(len(centroids))

        def compute(start: int, stop: int) -> None:
            sizes[start:stop] = self.block.divergence.size(centroids[start:stop])

        self.block.backend.threads.over_clusters(compute, *centroids.shape)
        return sizes

    def _label(self, centroids: FloatArray, sizes: FloatArray) -> Array:
        """The label of each row under these centroids of these sizes. → (n,)"""
        block, k = self.block, len(centroids)
        narrow = self._templates(centroids, sizes)
        before, shifts, X = self.state.labels, self._shifts, block.rows.X
        if before is None or self._labels is not before:
            self._leads = np.zeros(len(block), dtype=np.float32)
        labels = np.empty(len(block), dtype=np.int32) if before is None else before.copy()
        row_sizes, leads = self._row_sizes(), self._leads

        def label(start: int, stop: int) -> None:
            kernels.label_by_narrow(
                X.indptr, X.indices, X.data, narrow, k, start, stop, shifts, row_sizes, leads, labels
            )

        block.backend.threads.over_blocks(label, block.rows.before, k)
        self._decide(np.flatnonzero(leads < 0), centroids, sizes, labels)
        self._labels = labels
        return labels

    def _templates(self, centroids: FloatArray, sizes: FloatArray) -> Array:
        """The templates in 16 bits, in place of those of the last step. → (p, k or more)"""
        divergence, (k, p) = self.block.divergence, centroids.shape
        logarithms, smoothing, low, high = False, 0.0, -1.0, 1.0
        if isinstance(divergence, KullbackLeibler):
            logarithms, smoothing = True, divergence.smoothing
            low, high = log(smoothing), log1p(smoothing)
        middle, step = (low + high) / 2, max((high - low) / 2, 1e-6) / kernels.LARGEST
        width = -(-k // AT_A_TIME) * AT_A_TIME
        if self._narrow is None or self._narrow.shape != (p, width):
            self._narrow, self._shifts, self._labels = np.zeros((p, width), np.int16), np.empty(p, np.float32), None
        narrow, shifts = self._narrow, self._shifts
        factors = np.divide(1.0, sizes, out=np.zeros(k), where=sizes > 0)

        def compute(start: int, stop: int) -> None:
            first, last = start * kernels.FEATURES, min(stop * kernels.FEATURES, p)
            kernels.narrow_templates(
                centroids, factors, smoothing, logarithms, middle, step, first, last, narrow, shifts
            )

        tiles = -(-p // kernels.FEATURES)
        self.block.backend.threads.over_blocks(compute, np.arange(tiles + 1), 4 * k * kernels.FEATURES)
        return narrow

    def _row_sizes(self) -> FloatArray:
        """Σ_j |x_j|, or more. → (n,)"""
        terms, X = self.block.terms, self.block.rows.X
        return terms["sum"] if "sum" in terms else np.sqrt(terms["square"] * np.diff(X.indptr))

    def _decide(self, rows: Array, centroids: FloatArray, sizes: FloatArray, labels: Array) -> None:
        """Label the rows that the templates in float32 have left open."""
        X = self.block.rows.X
        entries = np.cumsum(np.diff(X.indptr)[rows])
        for part in np.split(rows, np.flatnonzero(np.diff(entries // ENTRIES_DECIDED)) + 1) if len(rows) else []:
            some = X[part]
            features, places = np.unique(some.indices, return_inverse=True)
            templates = self.block.divergence.templates_at(centroids[:, features], sizes).T.copy()
            found, k = np.empty(len(part), dtype=np.int32), len(centroids)
            kernels.best_template_csr(
                some.indptr, places, some.data, templates, np.zeros(k), k, 0, len(part), found, np.empty(len(part))
            )
            labels[part], self._leads[part] = found, 0.0

    def _own_scores(self, labels: Array, centroids: FloatArray, sizes: FloatArray) -> FloatArray:
        """The score of each row against the template of its label. → (n,)"""
        X, k = self.block.rows.X, len(centroids)
        scores = np.empty(len(labels))
        order, bounds = order_of(labels, k)

        def score(start: int, stop: int) -> None:
            kernels.own_scores(X.indptr, X.indices, X.data, order, bounds, centroids, sizes, start, stop, scores)

        self.block.backend.threads.over_blocks(score, bounds, max(1, X.nnz // max(1, X.shape[0])))
        return scores
