"""Distances of rows to a growing convex hull, on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array, FloatArray

from ..base import EXHAUSTED, TIE, Block, Hull
from .launch import NULL, cupy, int_, largest_shared, launch, long_, processors

FIRST_BLOCK = 2048  # rows projected first in each round, then twice as many: that many take as long as one
WARPS = 8  # most warps of a block, each of which projects one row at a time


class GpuHull(Hull):
    """A hull whose inner products, weights and distances stay on the GPU. It needs :meth:`bytes_needed` there."""

    def __init__(self, block: Block, most: int) -> None:
        self._squares: Any = block.squares()
        usable = block.usable(self._squares)
        self._number = int(usable.sum())
        self._residuals: Any = cupy.where(usable, self._squares, -1.0)  # the others come last, whatever the order
        self._products: Any = cupy.zeros((most + 1, len(block)))
        self._weights: Any = cupy.zeros((len(block), most + 1))
        self._weights[:, 0] = 1.0

    @staticmethod
    def bytes_needed(n: int, most: int) -> int:
        """Bytes of GPU memory that a hull of ``most`` vertices needs for n rows, sorting included."""
        return 16 * n * (most + 1) + 64 * n

    def add(self, block: Block, vertex: FloatArray) -> None:
        self.vertices += 1
        self._products[self.vertices] = block.products(vertex)

    def farthest(self, block: Block, gram: FloatArray, largest: float) -> tuple[Array, FloatArray, FloatArray]:
        residuals, n = self._residuals, self._number
        if n == 0:
            return np.empty(0, np.int64), np.empty(0), np.empty(0)
        # The bits of numbers ≥ 0, as integers, are in the order of the numbers, and integers are sorted faster.
        order = cupy.argsort(-residuals.view(np.int64), kind="stable")
        on_card = cupy.asarray(np.ascontiguousarray(gram))
        highest = float(residuals[order[0]])
        enough = EXHAUSTED * (largest or highest)
        start, size = 0, FIRST_BLOCK
        while start < n and highest >= enough:
            rows = order[start : min(start + size, n)]
            self._project(on_card, rows, enough)
            start, size = start + size, 2 * size
            after = residuals[order[start : start + 1]] if start < n else cupy.zeros(1)
            found, highest = map(float, cupy.concatenate([residuals[rows].max(keepdims=True), after]).get())
            enough = max(enough, (1 - TIE) * found)
        close = cupy.flatnonzero(residuals >= (1 - TIE) * residuals.max())
        return to_host(close), to_host(residuals[close]), to_host(self._squares[close])

    def _project(self, gram: Any, rows: Any, enough: float) -> None:
        """Project these rows; see kernels/project.py."""
        vertices, n = len(gram), len(self._residuals)
        vectors, factor = 8 * (4 * vertices + -(-vertices // 2)), 4 * vertices * (vertices - 1)
        inside = vectors + factor <= largest_shared()  # else the Cholesky factors are in global memory
        of_a_warp = vectors + factor if inside else vectors
        warps = max(1, min(WARPS, 48 * 1024 // of_a_warp))
        blocks = min(-(-len(rows) // warps), (32 if inside else 2) * processors())
        room = NULL if inside else cupy.empty(blocks * warps * factor // 8)
        given = self._products, long_(n), gram, int_(vertices), self._squares, rows, long_(len(rows))
        args = *given, np.float64(enough), self._weights, int_(self._weights.shape[1]), self._residuals, room
        launch("project_on_hull", blocks, 32 * warps, *args, shared=warps * of_a_warp)
