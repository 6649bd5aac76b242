"""Reads Matrix Market files with SciPy. Runs in a separate process (see onmf.io.isolate): no import from onmf."""

from __future__ import annotations

from typing import Any


def read_market(path: str) -> dict[str, Any]:
    """Read a matrix. → ``dense``, or ``shape``, ``rows``, ``columns`` and ``values``"""
    from scipy.io import mmread
    from scipy.sparse import issparse
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # each thread would reserve address space, which counts as memory
        X = mmread(path)
    if not issparse(X):
        return {"dense": X}
    rows, columns = X.coords if hasattr(X, "coords") else (X.row, X.col)
    return {"shape": [int(size) for size in X.shape], "rows": rows, "columns": columns, "values": X.data}
