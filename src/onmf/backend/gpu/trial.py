"""Moves of single rows on the GPU: all rows are tried at once, against the sums of the clusters as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array

from ..base import Block
from .launch import THREADS, int_, launch, launch_rows, long_, null
from .rows import DenseRows, Rows, SparseRows
from .stream import blocks_of

TABLED = 4
"""Entries from 1 to this number, which most counts are, take f(S + x) − f(S) from a table."""

ROWS_AT_A_TIME = 1 << 20
"""Rows that are tried together, which bounds the memory for their costs."""


class FrozenRows:
    """Some rows against sums that do not change, as :class:`onmf.divergence.Frozen` asks for.

    It reads no other rows: those of a streamed block are only on the card for as long as none are fetched.
    """

    def __init__(self, trial: Trial, rows: Rows, which: slice, sums: Any, labels: Any, weights: Any) -> None:
        self._trial, self._rows, self._which = trial, rows, which
        self.sums, self.labels, self._weights = sums, labels[which], weights[which]

    @property
    def masses(self) -> Any:
        """Σ_j w x_j of each row. → (n,)"""
        return self._weights * self._trial.masses[self._which]

    @property
    def squares(self) -> Any:
        """‖w x‖² of each row. → (n,)"""
        return self._weights**2 * self._trial.squares[self._which]

    def products(self) -> Any:
        """⟨w x_i, S_c⟩. → (n, k)"""
        backend = self._trial.block.backend
        return self._weights[:, None] * backend.scores(self._rows, backend.prepare(self._rows, self.sums))

    def rises(self) -> Any:
        """Σ_j f(S_cj + w x_ij) − f(S_cj) with f(t) = t log t; for the own cluster, S without the row. → (n, k)"""
        import cupy

        rows, (k, p) = self._rows, self.sums.shape
        n, lanes = rows.shape[0], min(32, 1 << max(0, k - 1).bit_length())
        by_feature, steps, out = cupy.ascontiguousarray(self.sums.T), cupy.empty((TABLED, p, k)), cupy.empty((n, k))
        if isinstance(rows, SparseRows):
            stored = rows.indptr, rows.indices, rows.data, int_(0)
        else:
            stored = null(), null(), rows.X, int_(rows.X.shape[1])
        tabled = by_feature, long_(p * k), int_(TABLED), steps
        launch("entropy_steps", -(-p * k // THREADS), THREADS, *tabled, value=stored[2])
        given = *stored, int_(p), by_feature, steps, int_(TABLED), int_(k), long_(n), int_(lanes)
        launch_rows("entropy_rises", n, *given, self.labels, self._weights, out, value=stored[2])
        return out


class Trial:
    """Tries the moves of all rows of a block at once. Their divergence has moves."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.masses, self.squares = block.backend.row_term(block.rows, lambda x, j: x), block.squares()

    def __call__(self, labels: Array, k: int) -> Array:
        """As :meth:`Backend.trial` says, on the host."""
        import cupy

        block, moves = self.block, self.block.divergence.moves
        assert moves is not None, "refused for other divergences"
        on_card = cupy.asarray(labels, dtype=np.int32)
        weights = cupy.where(on_card >= 0, block.fixed_weights, 0.0)
        on_card = cupy.maximum(on_card, 0)
        sums = block.backend.sum_by_label(block.rows, on_card, weights, k)
        out = cupy.empty(len(block), bool)
        for start, stop, rows in blocks_of(block.rows):
            for first in range(start, stop, ROWS_AT_A_TIME):
                here = slice(first, min(first + ROWS_AT_A_TIME, stop))
                part = _some(rows, here.start - start, here.stop - start)
                out[here] = moves.gaining(FrozenRows(self, part, here, sums, on_card, weights))
        found: Array = to_host(out)
        return found


def _some(rows: Rows, start: int, stop: int) -> Rows:
    """A range of rows on the GPU, without a copy of their entries."""
    if (start, stop) == (0, rows.shape[0]):
        return rows
    if isinstance(rows, DenseRows):
        return DenseRows(rows.X[start:stop], features=rows.features)
    indptr = rows.indptr[start : stop + 1]
    first, last = map(int, to_host(indptr[[0, -1]]))
    return SparseRows(indptr - first, rows.indices[first:last], rows.data[first:last], (stop - start, rows.shape[1]))
