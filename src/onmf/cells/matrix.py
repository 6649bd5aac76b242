"""Matrices of counts, cells × genes: in memory as CSR, or on disk if they are large."""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.data.validate import check_structure
from onmf.datasets.pieces import ROWS, StoredMatrix, check_memory
from onmf.divergence import Array
from onmf.io.limits import check_growth
from onmf.io.rules import require

LARGE = 1 << 30  # bytes of a matrix above which it stays on disk, if its file allows this
BLOCK = 1 << 22  # entries that are read at a time


def tidy(X: Any) -> csr_array:
    """Convert a matrix to canonical CSR, in a type that NumPy computes with. The arrays of ``X`` may be changed."""
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


def are_whole(values: Any) -> bool:
    """Whether an array holds whole numbers, none of them negative; False if it is empty."""
    values = np.asarray(values)
    if not values.size or values.dtype.kind not in "buif" or not values.min() >= 0:
        return False
    return values.dtype.kind != "f" or bool(np.isfinite(values.max()) and (values == np.floor(values)).all())


def number_type(dtype: Any) -> np.dtype[Any]:
    """The type in memory of numbers in a file: in the order of this machine, and known to SciPy and Numba."""
    dtype = np.dtype(dtype).newbyteorder("=")
    known = {"b": np.uint8, "f": np.float32 if dtype.itemsize <= 4 else np.float64}
    return np.dtype(known.get(dtype.kind, dtype))


class OnDisk:
    """Counts in a file, read by slices of rows: ``X[a:b]`` is a CSR array. It has a shape and a dtype."""

    ndim = 2

    def __init__(self, stored: StoredMatrix, columns: Array | None = None) -> None:
        self.stored, self.columns = stored, columns
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
        part = tidy(self.stored.read(start, stop))
        return part if self.columns is None else part[:, self.columns]

    def __repr__(self) -> str:
        n, p = self.shape
        return f"<OnDisk {self.stored.store.path.name}, {self.stored.name}: {n:,} × {p:,}, {self.dtype}>"


def load(stored: StoredMatrix, columns: Array | None = None) -> Any:
    """Read a matrix, or some of its columns, as CSR; one that is large stays on disk if rows can be read from it."""
    lazy = OnDisk(stored, columns)
    size, store = stored.entries * stored.width, stored.store
    if min(lazy.shape) == 0:
        return csr_array(lazy.shape, dtype=lazy.dtype)
    if size > LARGE and not stored.by_columns:
        return lazy
    if stored.dense:
        check_growth(str(store.path), prod(stored.shape) * lazy.dtype.itemsize, store.length)
    with store.naming(stored.name):
        check_memory(size, store.length)
        require(
            not stored.by_columns or 2 * size <= free_memory(),
            f"it is stored by columns (CSC), so it must be read as a whole, and its {stored.entries:,} entries do "
            "not fit in memory: write it by rows (adata.X = adata.X.tocsr()) on a larger machine.",
        )
    if stored.dense:
        return _sparsify(lazy)
    X = _read_sparse(stored, lazy.dtype)
    return X if columns is None else X[:, columns]


def _sparsify(lazy: OnDisk) -> Any:
    """Read a dense matrix as CSR, some rows at a time, until it is too large for memory."""
    parts: list[csr_array] = []
    entries, step = 0, max(1, BLOCK // lazy.stored.shape[1])
    for start in range(0, lazy.shape[0], step):
        parts.append(lazy[start : start + step])
        entries += parts[-1].nnz
        if entries * (lazy.dtype.itemsize + 4) > LARGE:
            return lazy
    return csr_array(vstack(parts, format="csr"))


def _read_sparse(stored: StoredMatrix, dtype: Any) -> csr_array:
    """Read a sparse matrix, some rows or columns at a time, into arrays of its size: new memory is slow."""
    lines, across = stored.shape[::-1] if stored.by_columns else stored.shape
    index_type = np.int32 if max(across, stored.entries) < 2**31 else np.int64
    data, indices = np.empty(stored.entries, dtype=dtype), np.empty(stored.entries, dtype=index_type)
    starts, end = np.zeros(lines + 1, dtype=index_type), 0
    step = max(1, BLOCK * lines // max(1, stored.entries))
    for line in range(0, lines, step):
        part = stored.read(line, line + step)
        new = slice(end, end + part.nnz)
        data[new], indices[new] = part.data, part.indices
        starts[line + 1 : line + 1 + part.shape[0]] = part.indptr[1:] + end
        end += part.nnz
    X = csr_array((data[:end], indices[:end], starts), shape=(lines, across))
    return tidy(X.T if stored.by_columns else X)


def free_memory() -> float:
    """Bytes of memory that are free; infinity where the system does not say."""
    file = Path("/proc/meminfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), float("inf"))


def as_csr(X: Any, keep: Array | None = None, rows: int = ROWS) -> Iterator[csr_array]:
    """Yield a matrix in memory, on disk or of Dask in batches of rows, as canonical CSR; only the rows to keep."""
    for start in range(0, X.shape[0], rows):
        batch = canonical(X[start : start + rows])
        yield batch if keep is None else batch[keep[start : start + rows]]


def columns_of(X: Any, columns: Array, keep: Array | None = None, rows: int = ROWS) -> csr_array:
    """Some columns of a matrix, in memory; only of the rows to keep, a mask."""
    return csr_array(vstack([batch[:, columns] for batch in as_csr(X, keep, rows)], format="csr"))
