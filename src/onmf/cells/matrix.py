"""Matrices of counts, cells × genes: in memory as CSR, or on disk if they are large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.data.structure import check_structure
from onmf.datasets import foreign
from onmf.datasets.lazy import Stored, call, check_memory, inspect, naming, read_rows
from onmf.datasets.pieces import ROWS
from onmf.datasets.stored import as_csr
from onmf.divergence import Array
from onmf.io.limits import check_growth

from .store import Store

LARGE = 1 << 30
"""Bytes of a matrix above which it stays on disk, if its file allows this."""

BLOCK = 1 << 22
"""Entries that are read at a time."""


def tidy(X: Any) -> csr_array:
    """Convert a matrix to canonical CSR: sorted, duplicates added, no zeros stored, in a type that NumPy computes with.

    Small integers stay small. The arrays of ``X`` may be changed.
    """
    check_structure(X, "the matrix")
    X = csr_array(X.astype(number_type(X.dtype), copy=False))
    X.sort_indices()
    if not X.has_canonical_format:
        if X.data.dtype.kind in "iu":  # a sum may be too large for the type of its entries
            X = X.astype(np.int64)
        X.sum_duplicates()
    if not X.data.all():
        X.eliminate_zeros()
    return X


def canonical(X: Any) -> csr_array:
    """Convert rows in memory or of Dask to canonical CSR, as :func:`tidy` does. The arrays of ``X`` are not changed."""
    X = X.compute() if hasattr(X, "compute") else X
    check_structure(X, "the matrix")
    if not issparse(X):
        X = np.asarray(X).astype(number_type(X.dtype), copy=False)
    rows = csr_array(X)
    return tidy(rows if rows.has_canonical_format and rows.data.all() else rows.copy())


def smallest(X: csr_array) -> csr_array:
    """Convert counts that were read as text to the smallest type that holds them, if they are whole."""
    largest = X.data.max(initial=0)
    if X.data.min(initial=0) >= 0 and largest < 2**32 and np.array_equal(X.data, np.floor(X.data)):
        return X.astype(np.min_scalar_type(int(largest)))
    return X


def are_whole(values: Any) -> bool:
    """Whether an array holds whole numbers, none of them negative; False if it is empty."""
    values = np.asarray(values)
    if not values.size or values.dtype.kind not in "buif" or not values.min() >= 0:
        return False
    return values.dtype.kind != "f" or bool(np.isfinite(values.max()) and (values == np.floor(values)).all())


def number_type(dtype: Any) -> np.dtype[Any]:
    """The type in memory of numbers in a file: in the order of this machine, and known to SciPy and Numba."""
    dtype = np.dtype(dtype).newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return dtype


class OnDisk:
    """Counts in a file, read by slices of rows: ``X[a:b]`` is a CSR array.

    Attributes
    ----------
    shape : tuple of int
        Cells and genes.
    dtype : dtype
        Type of the counts.
    ndim : int
        2, as for a matrix.
    """

    ndim = 2

    def __init__(self, store: Store, name: str, stored: Stored, columns: Array | None = None) -> None:
        self.store, self.name, self.stored, self.columns = store, name, stored, columns
        n, p = stored.shape
        self.shape = (n, p if columns is None else len(columns))
        self.dtype = number_type(stored.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> csr_array:
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise TypeError(f"counts on disk are read by slices of rows, as in X[0:100], not by {rows!r}.")
        start, stop, _ = rows.indices(self.shape[0])
        if stop <= start:
            return csr_array((0, self.shape[1]), dtype=self.dtype)
        part = tidy(read_rows(self.store.kind, self.store.path, self.name, self.stored, start, stop))
        return part if self.columns is None else part[:, self.columns]

    def __repr__(self) -> str:
        n, p = self.shape
        return f"<OnDisk {self.store.path.name}, {self.name}: {n:,} × {p:,}, {self.dtype}>"


class SomeRows:
    """Some rows of a matrix that is read by slices of rows, read when they are needed.

    Attributes
    ----------
    shape : tuple of int
        Number of these rows, and of the columns.
    """

    def __init__(self, X: Any, rows: Array) -> None:
        self.X, self.rows = X, rows
        self.shape = (len(rows), X.shape[1])

    def __getitem__(self, part: slice) -> csr_array:
        rows = self.rows[part]
        parts = []
        # Rows that are left out may lie between two of these: no more than a batch of all rows is read at once.
        for start in range(int(rows[0]), int(rows[-1]) + 1, ROWS):
            own = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + ROWS)] - start
            if len(own):
                parts.append(canonical(self.X[start : start + int(own[-1]) + 1])[own])
        return csr_array(vstack(parts, format="csr"))


def read_matrix(store: Store, name: str, *, transposed: bool = False, columns: Array | None = None) -> Any:
    """Read a matrix; one that is large stays on disk, if rows can be read from the file.

    Parameters
    ----------
    store : Store
        The file.
    name : str
        Path of the matrix within the file.
    transposed : bool, default=False
        The file has genes in rows.
    columns : ndarray of int, optional
        Genes to keep.

    Returns
    -------
    csr_array or OnDisk
    """
    try:
        stored = inspect(store.kind, store.path, name, transposed=transposed)
    except KeyError as error:
        raise ValueError(error.args[0]) from error
    lazy = OnDisk(store, name, stored, columns)
    if min(lazy.shape) == 0:
        return csr_array(lazy.shape, dtype=lazy.dtype)
    if stored.dense:
        return _sparsify(lazy)
    if stored.entries * stored.width > LARGE and not stored.by_columns:
        return lazy
    with naming(store.path, name):
        X = tidy(_read_whole(lazy))
    return X if columns is None else X[:, columns]


def _sparsify(lazy: OnDisk) -> Any:
    """Read a dense matrix as CSR, some rows at a time, until it is too large for memory."""
    n, p = lazy.stored.shape
    check_growth(str(lazy.store.path), n * p * lazy.dtype.itemsize, lazy.stored.length)
    parts: list[csr_array] = []
    size, step = 0, max(1, BLOCK // p)
    for start in range(0, n, step):
        parts.append(lazy[start : start + step])
        size += parts[-1].nnz * (lazy.dtype.itemsize + 4)
        if size > LARGE:
            return lazy
    return csr_array(vstack(parts, format="csr"))


def _read_whole(lazy: OnDisk) -> Any:
    """Read a sparse matrix, by rows or by columns."""
    store, name, stored = lazy.store, lazy.name, lazy.stored
    n, p = stored.shape
    lines, across = (p, n) if stored.by_columns else (n, p)
    check_memory(stored.entries * stored.width, stored.length)
    if stored.by_columns and 2 * stored.entries * stored.width > free_memory():
        raise ValueError(
            f"it is stored by columns (CSC), so it must be read as a whole, and its {stored.entries:,} entries do not "
            "fit in memory: write it by rows (adata.X = adata.X.tocsr()) on a larger machine."
        )
    [indptr] = call(foreign.read, store.kind, store.path, (f"{name}/indptr", 0, lines + 1))
    end = int(indptr[-1])
    if not 0 <= end <= stored.entries:
        raise ValueError(f"its indptr ends at {end}, but there are {stored.entries} entries.")
    data = np.empty(end, dtype=lazy.dtype)
    indices = np.empty(end, dtype=np.int32 if across < 2**31 else np.int64)
    for a in range(0, end, BLOCK):
        b = min(a + BLOCK, end)
        slices = [(f"{name}/{key}", a, b) for key in ("data", "indices")]
        data[a:b], part = call(foreign.read, store.kind, store.path, *slices)
        if part.min() < 0 or part.max() >= across:  # before the type becomes narrower
            raise ValueError(f"one of its indices is outside a matrix of {n} × {p}.")
        indices[a:b] = part
    X = as_csr(data, indices, indptr, (lines, across))
    return X.T if stored.by_columns else X


def free_memory() -> float:
    """Bytes of memory that are free; infinity where the system does not say."""
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), float("inf"))
