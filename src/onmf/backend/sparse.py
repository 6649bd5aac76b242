"""Runs over sparse rows on the CPU: rows whose label cannot change are not scored."""

from __future__ import annotations

import numpy as np

from onmf import kernels
from onmf.divergence import Array, FloatArray

from .base import Block, Templates
from .cpu import EMPTY, CpuRun, CpuTemplates
from .sums import StepSums


class SparseRun(CpuRun):
    """A run over a CSR matrix.

    With s_j = max_k Δb_kj − min_k Δb_kj, the change of the templates since the last step, no score of row x gains more
    than Σ_j x_j s_j on another. A row whose best score led by more keeps its label. This takes one product for an entry
    instead of one for each template. It needs divergences that do without the scores.
    """

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._leads: Array | None = None
        self._stored: FloatArray | None = None
        self._labels: Array | None = None

    def step(self, templates: Templates) -> StepSums:
        assert isinstance(templates, CpuTemplates), "templates come from prepare()"
        block, k = self.block, len(templates)
        before, shifts = self.state.labels, templates.shifts
        if not block.divergence.fixed_scales or templates.infinite or before is None or shifts is None:
            self._leads = None
            return super().step(templates)
        X, labels = block.rows.X, before.copy()
        known = self._stored is templates.stored and self._labels is before  # shifts and leads are since that step
        if self._leads is None or not known:
            self._leads = np.zeros(len(block), dtype=np.float32)
        scales, leads, starts = block.divergence.scale(EMPTY, block.terms), self._leads, templates.starts

        def label(start: int, stop: int) -> None:
            kernels.label_what_may_move(
                X.indptr, X.indices, X.data, templates.stored, starts, k, start, stop, shifts, scales, leads, labels
            )

        block.backend.threads.over_blocks(label, block.rows.before, k)
        self._stored, self._labels = templates.stored, labels
        return self.count_unscored(labels, scales, k)
