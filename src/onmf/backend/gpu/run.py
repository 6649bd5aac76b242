"""A run on the GPU: one kernel for a whole step over an array, and counts that travel to the host in the background."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from onmf.divergence import FloatArray

from ..base import COUNTED, Assignment, Drift, Run, RunState, StepSums, Templates, largest_change
from .dense import Crew, can_screen, crew_for, label_rows, sum_rows
from .launch import NULL, THREADS, combine, cupy, int_, largest_shared, launch, long_, or_null, processors
from .rows import DenseRows, Rows, StreamedRows, pinned

TALLIED = 1024  # rows that a warp counts
STRETCHES = 264  # groups of rows of an array that one kernel assigns and sums, at most

# Share of float32 rows in one duty of a crew from which on two reads are faster, without and with weights by score.
# Measured on an H200. With float64 rows, one read is always faster.
MOST_OF_A_DUTY = {False: 0.26, True: 0.13}

# Copies to the host in flight, with the event that ends each. The host may drop a step before its copy is done, but
# the memory that the copy writes to must live until then.
_copies: deque[tuple[Any, FloatArray]] = deque()


class GpuRun(Run):
    """A run whose labels, scales and sums stay on the card."""

    _sizes: Any = None  # of the clusters in the last step
    _last: Callable[[], FloatArray] | None = None  # returns the table of the last step, which may be on its way
    _earlier: Callable[[], FloatArray] | None = None  # the same for the step before

    @cached_property
    def _plain(self) -> bool:
        """Whether all row weights are one and stay so."""
        return self.block.divergence.fixed_weights and bool((self.block.fixed_weights == 1).all())

    def step(self, templates: Templates) -> StepSums:
        block = self.block
        if not isinstance(block.rows, StreamedRows):
            step = self._arriving(self.step_at_once(templates) or super().step(templates))
            self._earlier, self._last = self._last, step.arriving
            return step
        labels, scales = cupy.empty(len(block), np.int32), cupy.empty(len(block))
        total: StepSums | None = None
        for start, stop, rows in block.rows:
            part = self._part(rows, slice(start, stop))
            step = part.step_at_once(templates) or super(GpuRun, part).step(templates)
            labels[start:stop], scales[start:stop] = part.collect()
            total = step if total is None else total + step
        self.state = RunState(labels, scales)
        assert total is not None
        self._sizes = total.on_device("counts")
        return self._arriving(total)

    def _part(self, rows: Rows, where: slice) -> GpuRun:
        """A run over the rows that are on the card at the moment."""
        whole = self.block
        terms = {name: term[where] if np.ndim(term) else term for name, term in whole.terms.items()}
        block = replace(
            whole, rows=rows, source=None, shape=rows.shape, weights=None, terms=terms, constants=whole.constants[where]
        )
        if whole.own_weights is not None:  # the sample weights are on the card already
            vars(block)["own_weights"] = whole.own_weights[where]
        if whole.divergence.fixed_weights:
            vars(block)["fixed_weights"] = whole.fixed_weights[where]
        part = GpuRun(block)
        vars(part).update(_plain=self._plain, _sizes=self._sizes)  # computed once, not for each part
        if self.state is not None:
            part.state = RunState(*(array[where] for array in self.state))
        return part

    def _arriving(self, step: StepSums) -> StepSums:
        """The step, with its table on the way to the host."""
        table: Any = step.table
        host = pinned(table.size, np.float64).reshape(table.shape)
        table.get(out=host, blocking=False)
        arrived = cupy.cuda.Event(disable_timing=True)
        arrived.record()
        _drop_finished()
        _copies.append((arrived, host))

        def wait() -> FloatArray:
            arrived.synchronize()
            return host

        return StepSums(step.sums, step.table, wait)

    def step_at_once(self, templates: Templates) -> StepSums | None:
        """A step that reads an array once; None if there is no kernel for these rows, templates or weights."""
        block = self.block
        rows, k, divergence = block.rows, len(templates), block.divergence
        known = divergence.fixed_weights or divergence.score_weights
        if not (isinstance(rows, DenseRows) and known and divergence.template_form is not None):
            return None
        if rows.X.size == 0 or rows.X.data.ptr % 16:
            return None
        crew = crew_for(rows.X.shape[1], rows.X.itemsize, k, largest_shared())
        if crew is not None and self.lopsided(crew, k):
            crew = None
        if crew is None and not can_screen(rows, k):
            return None
        if rows.norms is None:
            rows.norms = np.sqrt(block.backend.row_term(rows, lambda x, j: np.square(x))).astype(np.float32)
        by_score, B = divergence.score_weights, templates.B
        weights = block.own_weights if by_score else block.fixed_weights
        factors = None if self._plain else weights
        if crew is not None:
            labels, best, sums = self._label_and_sum(crew, rows, B, factors, by_score)
            step = self.count(block.assignment(labels, best), k, sums)
        elif divergence.fixed_scales:
            labels = label_rows(rows, B)
            step = self.count_unscored(labels, k, sum_rows(rows, labels, factors, k))
        else:
            labels, best = label_rows(rows, B), cupy.empty(rows.shape[0])
            sums = sum_rows(rows, labels, factors, k, B, best, by_score)
            step = self.count(block.assignment(labels, best), k, sums)
        self._sizes = step.on_device("counts")
        return step

    def lopsided(self, crew: Crew, k: int) -> bool:
        """Whether so many rows are in one cluster that a crew is slower than two reads."""
        # The host does not wait for the last step. So this looks at the one before, whose counts have arrived.
        if self._earlier is None or self.block.rows.X.itemsize != 4:
            return False
        counts = self._earlier()[COUNTED.index("counts")]
        return len(counts) == k and crew.heaviest(counts) > MOST_OF_A_DUTY[self.block.divergence.score_weights]

    def _label_and_sum(self, crew: Crew, rows: DenseRows, B: Any, factors: Any, by_score: bool) -> tuple[Any, ...]:
        """Labels and best scores of the rows of an array, and their sums by label, weighted by factors and scores."""
        X, (n, pitch), p, k = rows.X, rows.X.shape, rows.shape[1], len(B)
        tiles = -(-n // (STRETCHES * crew.tile))
        stretches = -(-n // (tiles * crew.tile))
        of_a_block = -(-stretches // processors())
        # The sizes of the clusters in the step before divide the work evenly among the adders.
        known = self.state is not None and self._sizes is not None and len(self._sizes) == k
        counts, weights = or_null(self._sizes if known else None), or_null(factors)
        given = rows.norms, B, int_(k), counts, weights, int_(tiles), int_(of_a_block)
        labels, best, sums = cupy.empty(n, np.int32), cupy.empty(n), cupy.empty((k, p))
        owners, partial = cupy.empty(crew.duties, np.int32), cupy.empty((stretches, crew.duties, pitch))
        macros = crew.macros | {"COLUMNS": p, "WEIGHTED": int(factors is not None), "BY_SCORE": int(by_score)}
        blocks, shared = -(-stretches // of_a_block), crew.asked_for(X.itemsize)
        args = X, long_(n), *given, labels, best, owners, partial
        launch("step_dense", blocks, crew.threads, *args, value=X, shared=shared, **macros)
        of_duties = partial, int_(stretches), owners, int_(crew.duties)
        launch("combine_duties", -(-k * p // 32), 1024, *of_duties, int_(k), int_(p), int_(pitch), sums)
        return labels, best, sums

    def update(self, step: StepSums, W: FloatArray) -> Drift:
        if isinstance(step.sums, np.ndarray):
            return super().update(step, W)
        (k, p), before = W.shape, np.empty_like(W)
        new = self.block.divergence.centers(step.sums, step.on_device("mass"))
        args = step.table, int_(k), int_(p), int_(self.block.divergence.sized), new, W, before
        launch("put_filled", -(-k * p // THREADS), THREADS, *args)
        return lambda: 0.0 if step.empty.all() else largest_change(before[~step.empty], new[~step.empty])

    def sums(self, weights: FloatArray, k: int) -> Any:
        return super().sums(None if self._plain else weights, k)

    def tally(self, assignment: Assignment, weights: FloatArray, k: int) -> Any:
        n, labels = len(assignment.labels), cupy.asarray(assignment.labels, dtype=np.int32)
        before = (NULL, NULL) if self.state is None else tuple(map(cupy.asarray, self.state))
        own = or_null(self.block.own_weights)
        by_row = assignment.scales, assignment.losses, weights
        scales, losses, weights = (cupy.ascontiguousarray(cupy.asarray(array)) for array in by_row)
        count = max(1, min(k, largest_shared() // 256))
        kinds, groups = len(COUNTED), -(-n // TALLIED)
        table = cupy.empty((kinds, k))
        for first in range(0, k, count):
            m = min(count, k - first)
            warps = max(1, min(8, 48 * 1024 // (256 * m)))
            partial, sums = cupy.empty((groups, kinds, m)), table if m == k else cupy.empty((kinds, m))
            rows = labels, before[0], scales, before[1], losses, weights, own, long_(n), long_(TALLIED)
            grid = -(-groups // warps), kinds
            launch("tally_rows", grid, 32 * warps, *rows, int_(first), int_(m), partial, shared=256 * m * warps)
            combine(partial, sums)
            if m < k:
                table[:, first : first + m] = sums
        return table


def _drop_finished() -> None:
    """Drop the copies that have arrived. Several threads may do so at a time, for parts of Dask."""
    while _copies:
        try:
            oldest = _copies.popleft()
        except IndexError:  # another thread was faster
            return
        if not oldest[0].done:
            _copies.appendleft(oldest)
            return
