"""Runs over arrays on the CPU: labels by sketches, and one read of the rows where the sums need them all."""

from __future__ import annotations

import numpy as np

from onmf import kernels
from onmf.divergence import FloatArray

from .base import Block, Templates
from .cpu import EMPTY, CpuBackend, CpuRun, CpuTemplates, groups_of
from .sketch import Screen, Screening
from .sums import StepSums


class ArrayRun(CpuRun):
    """A run over an array. After its first step it labels rows by sketches, if these decide most of them."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._screening = Screening(block.rows.X, block.backend.threads)

    def step(self, templates: Templates) -> StepSums:
        assert isinstance(templates, CpuTemplates), "templates come from prepare()"
        screen = None
        if self._last is not None and not templates.infinite:
            screen = self._screening.screen(templates.stored, templates.starts, len(templates), self._last.sums)
        if screen is None:
            return super().step(templates)
        return self._step_unread(screen) if self.block.divergence.fixed_scales else self._step_read(screen)

    def _step_unread(self, screen: Screen) -> StepSums:
        """A step that needs no scores, and reads only rows that are open or move."""
        block, k = self.block, screen.k
        labels, left_open = np.empty(len(block), dtype=np.int32), []

        def label(start: int, stop: int) -> None:
            left_open.append(screen.label(start, stop, labels))

        block.backend.threads.over_blocks(label, np.arange(len(block) + 1), 4 * k)
        self._screening.record_open(sum(left_open), k)
        return self.count_unscored(labels, k)

    def _step_read(self, screen: Screen) -> StepSums:
        """A step that scores each row against its own template and sums in one read, if the weights are known then."""
        block, divergence, k = self.block, self.block.divergence, screen.k
        backend = block.backend
        assert isinstance(backend, CpuBackend)
        labels, best, left_open = np.empty(len(block), dtype=np.int32), np.empty(len(block)), []
        known = divergence.fixed_weights or divergence.score_weights
        weights = block.fixed_weights if divergence.fixed_weights else EMPTY
        own = EMPTY if block.weights is None else block.weights
        sums = np.zeros((k, block.shape[1]))

        cuts = groups_of(len(block))

        def read(start: int, stop: int, groups: FloatArray) -> None:
            left_open.append(screen.label(cuts[start], cuts[stop], labels))
            kernels.score_and_sum(*screen[:3], labels, weights, own, known, cuts, start, stop, best, groups)

        backend.add_in_groups(read, cuts, sums)
        self._screening.record_open(sum(left_open), k)
        assignment = block.assignment(labels, best)
        if not known:
            return self.count(assignment, k)
        return self.count_summed(assignment, sums)
