"""Sketches of array rows, which give most labels of a step without reading the rows.

The templates of a run soon change little, and rows of real data lie near few directions. So a run computes once the
inner products of every row with a few directions: that of the mean row, and those in which its templates differ most.
With the columns of Q for these directions, z = Qᵀx for a row and t_k = Qᵀb_k for a template,

    |⟨x, b_k⟩ − ⟨z, t_k⟩| ≤ ‖x − Qz‖ · ‖b_k − Qt_k‖ + rounding

by Cauchy–Schwarz. A template whose lower bound exceeds the upper bounds of all others is the one that exact scores
would choose. For the other rows, exact scores decide among the templates whose upper bounds reach the largest lower
bound. So labels do not depend on the sketches: only the time does. What all templates have in common changes no
comparison, and is subtracted before.

Symbols: Q (q, p) directions, Z (q + 1, n) sketches and ‖x − Qz‖, T (k, q) templates in these directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onmf import kernels
from onmf.divergence import Array, FloatArray

from .base import Block, Templates
from .cpu import EMPTY, CpuBackend, CpuRun, CpuTemplates, groups_of
from .run import StepSums
from .threads import Threads

DIRECTIONS = 8
"""Number of directions: 36 bytes for each row."""

WORTHWHILE = 4_096
"""Rows from which on sketches are made."""

USELESS = 0.5
"""Share of open rows above which a fresh sketch is not worth keeping."""

CANDIDATES = 4
"""Templates that are scored for an open row, about; the time to fetch the row is included."""

DOUBLE, SINGLE = 2.0**-53, 2.0**-24
"""Relative rounding errors."""

HUGE, TINY = 1e30, 1e-37
"""Products of rows and templates that float32 can hold, and an error that covers all underflow."""


class Sketch(NamedTuple):
    """Sketches of the rows of an array."""

    Q: FloatArray  # (8, p) orthonormal directions; or zeros, if there are no more
    Z: Array  # (9, n) sketches, and the length of what each leaves out
    largest: float  # bound on the length of a row

    @classmethod
    def of(cls, X: Array, Q: FloatArray, threads: Threads, reuse: Sketch | None) -> Sketch:
        """Sketch all rows. ``reuse`` is an earlier sketch whose memory is overwritten."""
        n, p = X.shape
        Z = np.empty((len(Q) + 1, n), dtype=np.float32) if reuse is None else reuse.Z
        before = np.arange(n + 1) * p
        threads.over_blocks(lambda start, stop: kernels.sketch_rows(X, Q, start, stop, Z), before, len(Q))
        return cls(Q, Z, len(Z) * max(float(Z.max()), -float(Z.min())))


class Screen(NamedTuple):
    """Sketches of rows and of templates: what :func:`onmf.kernels.label_by_sketch` needs to label rows."""

    X: Array
    B: FloatArray
    starts: FloatArray
    k: int
    Z: Array
    T: Array
    errors: tuple[np.float32, np.float32, float, float]

    def label(self, start: int, stop: int, labels: Array) -> int:
        """Label rows start to stop; how many of them the sketches left open."""
        left_open: int = kernels.label_by_sketch(*self, start, stop, labels)
        return left_open


class Screening:
    """The sketches of one run.

    A sketch is made anew once the rows that it could not decide, because the templates have moved away from it, have
    taken as long as making one. There is none if even a fresh one leaves most rows open.
    """

    def __init__(self, X: Array, threads: Threads) -> None:
        self.X, self.threads = X, threads
        self._sketch: Sketch | None = None
        self._fresh: float | None = None
        self._debt = 0.0
        self._useless = len(X) < WORTHWHILE or X.shape[1] < 4 * DIRECTIONS

    def screen(self, B: FloatArray, starts: FloatArray, k: int, sums: FloatArray) -> Screen | None:
        """Prepare to label rows by the first k templates; None if sketches are of no use.

        ``sums`` are the sums by label of the step before.
        """
        if self._useless:
            return None
        mean = B[:k].mean(axis=0)
        if self._sketch is None or self._debt >= DIRECTIONS:
            Q = directions_of(sums.sum(axis=0), B[:k] - mean)
            self._sketch = Sketch.of(self.X, Q, self.threads, self._sketch)
            self._fresh, self._debt = None, 0.0
        Q, Z, largest = self._sketch
        T = np.empty((k, DIRECTIONS + 2), dtype=np.float32)
        T[:, -1] = starts[:k]
        longest, sketched, apart, inside = kernels.sketch_templates(B, mean, Q, T)
        offset = float(np.abs(starts).max())
        # Float32 cannot hold all numbers of float64.
        self._useless = not largest * max(apart, 1.0) + offset < HUGE
        if self._useless:
            return None
        # Rounding: of exact scores; of T, which leaves a part of the rest inside the directions; and in float32.
        fine = 4 * (len(mean) + 8) * DOUBLE * longest
        slope = 1.01 * (fine + inside + (DIRECTIONS + 8) * SINGLE * sketched)
        least = 1.01 * (8 * SINGLE * offset + TINY * (1 + sketched))
        errors = np.float32(slope), np.float32(least), fine, 8 * DOUBLE * offset + np.finfo(np.float64).tiny
        return Screen(self.X, B, starts, k, Z, T, errors)

    def record_open(self, left_open: int, k: int) -> None:
        """Take note of how many rows the last screen left open."""
        share = left_open / len(self.X)
        if self._fresh is None:
            self._fresh, self._useless = share, share > USELESS
        self._debt += max(share - self._fresh, 0.0) * min(k, CANDIDATES)


def directions_of(total: FloatArray, apart: FloatArray) -> FloatArray:
    """The direction of the sum of the rows, and those in which templates lie furthest apart. → (8, p)"""
    first = total / max(float(np.sqrt(np.square(total).sum())), np.finfo(np.float64).tiny)
    apart = apart - np.outer(np.einsum("kp,p->k", apart, first), first)
    sizes, mixtures = np.linalg.eigh(np.einsum("ap,bp->ab", apart, apart))  # ascending
    chosen = np.flatnonzero(sizes > 1e-12 * sizes[-1])[::-1][: DIRECTIONS - 1]
    found = np.einsum("kd,kp->dp", mixtures[:, chosen], apart)
    Q = np.zeros((DIRECTIONS, len(total)))
    Q[: len(found) + 1] = np.linalg.qr(np.vstack([first, found]).T)[0].T
    return Q


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
