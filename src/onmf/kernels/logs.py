"""Logarithms of counts. Most counts of a row are small and repeat: the logarithms of these are computed once a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit

TABLED_COUNTS = 64
"""Counts below this are looked up."""


@jit
def scaled_logs(
    indptr: Any,  # IN (n + 1,)
    data: Any,  # IN (nnz,) counts
    unit: float,  # sum to which each row is scaled
    logs: Any,  # OUT (nnz,) float64
) -> None:
    """log(1 + unit · x / s) of each entry x, with s the sum of its row."""
    known = np.empty(TABLED_COUNTS)
    for i in range(len(indptr) - 1):
        start, stop = indptr[i], indptr[i + 1]
        s = 0.0
        for e in range(start, stop):
            s += np.float64(data[e])
        known[:] = -1.0
        for e in range(start, stop):
            x = np.float64(data[e])
            c = int(min(x, TABLED_COUNTS - 1))
            if c == x and known[c] >= 0.0:
                logs[e] = known[c]
                continue
            logs[e] = np.log1p(unit * (x / s)) if x > 0.0 else 0.0
            if c == x:
                known[c] = logs[e]
