"""Distances of rows to a convex hull that grows vertex by vertex, which SNPA needs.

The hull is that of the origin and the vertices so far. Distances can only fall as it grows, so those of earlier rounds
are upper bounds. Rows are projected in the order of their bounds, until the next bound is below the largest distance
found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array, FloatArray

if TYPE_CHECKING:
    from .base import Block

EXHAUSTED = 1e-12
"""A squared distance counts as zero if it is at most this, relative to the largest squared norm of a row."""

TIE = 1e-6
"""Distances are as large as the largest if they are this close to it, relatively."""

FIRST_BLOCK = 64
"""Number of rows projected first in each round; it then doubles. Fixed, so that threads do not change the result."""


class Hull:
    """The hull and the rows of a block on the host, with inner products from the block's backend."""

    def __init__(self, block: Block, most: int) -> None:
        n = len(block)
        self.vertices = 0
        squares = block.squares()
        self._squares: FloatArray = to_host(squares)
        usable = to_host(block.usable(squares))
        self._usable = np.flatnonzero(usable)
        self._residuals = np.where(usable, self._squares, 0.0)
        self._products, self._weights = np.zeros((n, most + 1)), np.zeros((n, most + 1))
        self._weights[:, 0] = 1.0  # at first, the origin has all the weight

    def add(self, block: Block, vertex: FloatArray) -> None:
        """Add a vertex (p,)."""
        self.vertices += 1
        self._products[:, self.vertices] = to_host(block.products(vertex))

    def farthest(self, block: Block, gram: FloatArray, largest: float) -> tuple[Array, FloatArray, FloatArray]:
        """The rows of largest distance, or tied with it, in order; their squared distances and squared norms.

        ``gram`` has the inner products of the vertices; the origin comes first. ``largest`` is the largest squared norm
        of a row, 0 if it is not known yet.
        """
        from onmf.kernels import project_on_hull

        usable, residuals = self._usable, self._residuals
        enough = EXHAUSTED * (largest or residuals.max(initial=0.0))
        order = usable[np.argsort(-residuals[usable], kind="stable")]
        start, size = 0, FIRST_BLOCK
        while start < len(order) and residuals[order[start]] >= enough:
            chosen = order[start : start + size]

            def project(first: int, last: int, rows: Any = chosen, enough: float = enough) -> None:
                given = self._products, gram, self._squares, rows, first, last, enough
                project_on_hull(*given, self._weights, residuals)

            block.backend.threads.over_rows(project, len(chosen))
            enough = max(enough, (1 - TIE) * residuals[chosen].max())
            start, size = start + size, 2 * size
        close = usable[residuals[usable] >= (1 - TIE) * residuals.max(initial=0.0)]
        return close, residuals[close], self._squares[close]
