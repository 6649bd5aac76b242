"""Moves of single rows on the GPU: all rows are tried at once, against the sums of the clusters as they are."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from onmf.divergence import Array

from ..base import Block
from ..device import to_host
from .launch import int_, launch_rows, long_, null, or_null
from .rows import DenseRows, Rows, SparseRows
from .stream import blocks_of

ROWS_AT_A_TIME = 1 << 18
"""Rows that are tried together, which bounds the memory for their costs."""


class FrozenRows:
    """Some rows against sums that do not change, as :class:`onmf.divergence.Frozen` asks for."""

    def __init__(self, block: Block, rows: Rows, sums: Any, labels: Any, weights: Any) -> None:
        self.block, self.rows, self.sums, self.labels, self.weights = block, rows, sums, labels, weights

    @cached_property
    def masses(self) -> Any:
        """Σ_j w x_j of each row. → (n,)"""
        return self.weights * self.block.backend.row_term(self.rows, _same)

    @cached_property
    def squares(self) -> Any:
        """‖w x‖² of each row. → (n,)"""
        return self.weights**2 * self.block.backend.row_term(self.rows, np.square)

    def products(self) -> Any:
        """⟨w x_i, S_c⟩. → (n, k)"""
        backend = self.block.backend
        return self.weights[:, None] * backend.scores(self.rows, backend.prepare(self.rows, self.sums))

    def rises(self) -> Any:
        """Σ_j f(S_cj + w x_ij) − f(S_cj) with f(t) = t log t; for the own cluster, S without the row. → (n, k)"""
        import cupy

        rows, (k, p) = self.rows, self.sums.shape
        n = rows.shape[0]
        out, by_feature = cupy.empty((n, k)), cupy.ascontiguousarray(self.sums.T)
        lanes = min(32, 1 << max(0, k - 1).bit_length())
        sparse = isinstance(rows, SparseRows)
        data = rows.data if isinstance(rows, SparseRows) else rows.X
        where = (rows.indptr, rows.indices) if isinstance(rows, SparseRows) else (null(), null())
        pitch = 0 if sparse else data.shape[1]
        given = *where, data, int_(pitch), int_(p), by_feature, int_(k), long_(n), int_(lanes)
        launch_rows("entropy_rises", n, *given, self.labels, or_null(self.weights), out, value=data)
        return out


def gaining_rows(block: Block, labels: Array, k: int) -> Array:
    """Which rows would lower the objective by a move to another cluster, on the host. → (n,) bool

    Rows with a negative label take no part.
    """
    import cupy

    backend, moves = block.backend, block.divergence.moves
    assert moves is not None, "refused for other divergences"
    on_card = cupy.asarray(labels, dtype=np.int32)
    weights = cupy.where(on_card >= 0, block.fixed_weights, 0.0)
    on_card = cupy.maximum(on_card, 0)
    sums = backend.sum_by_label(block.rows, on_card, weights, k)
    out = cupy.empty(len(block), bool)
    for start, stop, rows in blocks_of(block.rows):
        for first in range(start, stop, ROWS_AT_A_TIME):
            here = slice(first, min(first + ROWS_AT_A_TIME, stop))
            part = _some(rows, slice(here.start - start, here.stop - start))
            out[here] = moves.gaining(FrozenRows(block, part, sums, on_card[here], weights[here]))
    found: Array = to_host(out)
    return found


def _some(rows: Rows, which: slice) -> Rows:
    """A range of rows on the GPU, without a copy of their entries."""
    if isinstance(rows, DenseRows):
        return DenseRows(rows.X[which], features=rows.features)
    indptr = rows.indptr[which.start : which.stop + 1]
    first, last = map(int, to_host(indptr[[0, -1]]))
    here = slice(first, last)
    return SparseRows(indptr - first, rows.indices[here], rows.data[here], (len(indptr) - 1, rows.shape[1]))


def _same(x: Any) -> Any:
    return x
