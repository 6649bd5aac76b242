"""Rows on the GPU, sparse or dense.

Entries are float32 if that represents all of them exactly, as it does for most counts, else float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf.arrays import on_gpu

EXACT_FLOAT32 = 2**24
"""Integers up to this are exact in float32."""

ENTRIES_AT_A_TIME = 1 << 26
"""Entries that are examined together."""


@dataclass
class SparseRows:
    """CSR on the GPU, with 64-bit row pointers."""

    indptr: Any
    indices: Any
    data: Any
    shape: tuple[int, int]
    units: Any = None
    """How the entries of each feature are divided among warps, set on first use."""
    columns: Any = None
    """The same entries by feature, set on first use."""


@dataclass
class DenseRows:
    """A C-contiguous array on the GPU, perhaps with columns of zeros at the end."""

    X: Any
    norms: Any = None
    """ℓ2 norms of the rows in float32, set on first use."""
    features: int | None = None
    """Columns of ``X`` that are features; None for all."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        n, pitch = self.X.shape
        return n, pitch if self.features is None else self.features

    @classmethod
    def padded(cls, cupy: Any, X: Any, dtype: Any, norms: Any = None) -> DenseRows:
        """Rows of an array (n, p) on the GPU, padded so that each begins at a multiple of 16 bytes.

        Without that, a step has to read them twice. They are not padded if the GPU has no room for it.
        """
        (n, p), pitch = X.shape, padded_width(X.shape[1])
        if p != pitch:
            try:
                wide = cupy.empty((n, pitch), dtype)
            except cupy.cuda.memory.OutOfMemoryError:
                pass
            else:
                wide[:, :p] = X
                wide[:, p:] = 0
                return cls(wide, norms, p)
        return cls(cupy.ascontiguousarray(X, dtype=dtype), norms)


Rows = SparseRows | DenseRows


def padded_width(p: int) -> int:
    """Columns of a padded array of p features: a multiple of 16 bytes in float32."""
    return -(-p // 4) * 4


def cut(cupy: Any, sums: Any, p: int) -> Any:
    """Sums without the columns that only pad the rows. → (k, p)"""
    return sums if sums.shape[1] == p else cupy.ascontiguousarray(sums[:, :p])


def always_float32(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """float32 if it represents all numbers of a type exactly, else None."""
    is_float32 = dtype == np.float32 or (dtype.kind in "iub" and dtype.itemsize <= 2)
    return np.dtype(np.float32) if is_float32 else None


def exact_float_type(values: Any) -> np.dtype[Any]:
    """float32 if it represents all these numbers exactly, else float64."""
    dtype = values.dtype
    if (known := always_float32(dtype)) is not None:
        return known
    flat = values.reshape(-1)
    for start in range(0, flat.size, ENTRIES_AT_A_TIME):
        part = flat[start : start + ENTRIES_AT_A_TIME]
        if dtype.kind in "iu":
            fits = int(part.max()) <= EXACT_FLOAT32 and int(part.min()) >= -EXACT_FLOAT32
        else:
            with np.errstate(over="ignore"):
                fits = bool((part.astype(np.float32) == part).all())
        if not fits:
            return np.dtype(np.float64)
    return np.dtype(np.float32)


def bytes_needed(X: Any) -> int:
    """Upper bound of the GPU memory that rows take, including the copy by feature and the space to sort it."""
    entries = X.nnz if hasattr(X, "nnz") else X.size
    return int(entries) * (48 if hasattr(X, "nnz") else 16) + 64 * int(X.shape[0])


def place_whole(cupy: Any, X: Any) -> Rows:
    """Rows on the GPU."""
    if not hasattr(X, "indptr"):
        dtype = exact_float_type(X)
        return DenseRows.padded(cupy, X if on_gpu(X) else cupy.asarray(X), dtype)
    dtype = exact_float_type(X.data)
    data = X.data if on_gpu(X) else cupy.asarray(X.data if X.data.dtype == dtype else X.data.astype(dtype))
    return SparseRows(
        cupy.asarray(X.indptr).astype(np.int64, copy=False),
        cupy.asarray(X.indices).astype(np.int32, copy=False),
        data.astype(dtype, copy=False),
        X.shape,
    )
