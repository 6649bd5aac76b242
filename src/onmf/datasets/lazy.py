"""Matrices in h5ad files, Zarr stores and other array-like files, read in parts when needed."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from math import prod
from numbers import Integral
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import most

from . import foreign
from .pieces import ROWS, import_dask
from .stored import as_csr, check_indices, check_values, shape_of

READERS = 2
"""Number of HDF5 files whose reader process is kept running."""

QUICK = (foreign.describe, foreign.look, foreign.attribute, foreign.texts)
"""Functions that read no numbers, but names and attributes."""

QUICK_SECONDS = 30.0
"""Time limit for reading names and attributes, besides the time that the size of the file allows."""


def open_h5ad(path: str | Path, layer: str | None = None, *, rows: int = ROWS) -> Any:
    """Open the counts of an h5ad file (AnnData) as a lazy Dask array.

    Parameters
    ----------
    path : path
        An h5ad file whose matrix is CSR or dense.
    layer : str, optional
        Name of a layer; by default ``X``.
    rows : int, default=10000
        Number of rows of a chunk.

    Returns
    -------
    dask.array.Array
        With CSR or NumPy chunks; they are read when they are computed.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of an h5ad file.")
    return _lazy("hdf5", Path(path), "X" if layer is None else f"layers/{layer}", rows)


def open_zarr(path: str | Path, name: str | None = None, *, rows: int = ROWS) -> Any:
    """Open a matrix in a Zarr store as a lazy Dask array.

    Parameters
    ----------
    path : path
        The store: a 2-D array, or a CSR matrix as AnnData writes it.
    name : str, optional
        Array or group within the store; ``"X"`` for a store of AnnData.
    rows : int, default=10000
        Number of rows of a chunk.

    Returns
    -------
    dask.array.Array
        With CSR or NumPy chunks; they are read when they are computed.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of a Zarr store.")
    return _lazy("zarr", Path(path), name or "", rows)


def _lazy(kind: foreign.Kind, path: Path, name: str, rows: int) -> Any:
    """Open a matrix in an HDF5 file or Zarr store as a Dask array."""
    dask, da = import_dask()
    if not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a chunk needs at least 1 row.")
    stored = inspect(kind, path, name)
    with naming(path, name):
        n, p = stored.shape
        if stored.by_columns:
            raise ValueError(
                "it is stored by columns (CSC), so it cannot be read row by row: convert it with adata.X = "
                "adata.X.tocsr() and write it again."
            )
        if stored.dense:
            meta: Any = np.empty((0, p), dtype=stored.dtype)
            check_memory(min(rows, n) * p * stored.width, stored.length)
        else:
            meta = csr_array((0, p), dtype=stored.dtype)
    if n == 0:
        raise ValueError(f"{path} has no rows.")
    blocks = [
        da.from_delayed(dask.delayed(read_rows, pure=False)(kind, path, name, stored, a, b), (b - a, p), meta=meta)
        for a, b in pairwise([*range(0, n, rows), n])
    ]
    return da.concatenate(blocks)


def inspect(kind: foreign.Kind, path: Path, name: str, *, transposed: bool = False) -> Stored:
    """Describe a matrix in an HDF5 file or Zarr store; refuse one whose description is inconsistent.

    Parameters
    ----------
    kind : {"hdf5", "zarr"}
        Format of the file.
    path : path
        The file or store.
    name : str
        Path of the matrix within the file.
    transposed : bool, default=False
        The columns in the file are the rows of the matrix.

    Returns
    -------
    Stored
    """
    with naming(path, name):
        check_installed(kind)
        return _check_description(call(foreign.describe, kind, path, name), length_of(path), transposed)


_readers: OrderedDict[tuple[Path, int], Isolated] = OrderedDict()
_lock = Lock()


def call(function: Callable[..., Any], kind: foreign.Kind, path: Path, *arguments: Any) -> Any:
    """Call a function of :mod:`.foreign` in a separate process; in this one to read numbers from a Zarr store."""
    if kind == "zarr" and function is not foreign.texts:
        return function(str(path), kind, *arguments)
    path = path.resolve()  # the other process may have a different working folder
    length = length_of(path)
    with _lock:
        if (path, length) not in _readers:
            _readers[path, length] = Isolated.for_file(path, length)
        _readers.move_to_end((path, length))
        while len(_readers) > READERS:
            _readers.popitem(last=False)
        reader = _readers[path, length]
    # HDF5 follows damaged texts in circles, and undamaged ones are short.
    seconds = QUICK_SECONDS + length / 1e6 if function in QUICK else None
    return reader(function, str(path), kind, *arguments, seconds=seconds)


def check_installed(kind: foreign.Kind) -> None:
    """Raise an error that names the missing package, if it is not installed."""
    module, reason = {"hdf5": ("h5py", "h5ad files need h5py"), "zarr": ("zarr", "Zarr stores need zarr")}[kind]
    if find_spec(module) is None:
        raise ImportError(f"{reason}: pip install 'onmf[cells]'.")


@contextmanager
def naming(path: Path, name: str) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except (ImportError, ReaderEnded):
        raise
    except KeyError as error:
        raise KeyError(f"{path} has no {name}: {error.args[0]}.") from error
    except Exception as error:  # h5py and zarr raise many kinds of errors for damaged files
        raise ValueError(f"{path}, {name or 'the store itself'}, cannot be read: {error}") from error


class Stored(NamedTuple):
    """A matrix in a file, with a consistent description."""

    shape: tuple[int, int]
    dense: bool
    dtype: str
    width: int
    """Bytes of an entry, including its index."""
    entries: int
    """Number of entries of a sparse matrix."""
    length: int
    """Bytes of the file."""
    transposed: bool
    """Whether the rows of the matrix are columns in the file."""
    by_columns: bool
    """Whether it is a sparse matrix that can be read only as a whole or column by column."""


def length_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    if path.is_file():
        return path.stat().st_size
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def _check_description(description: dict[str, Any], length: int, transposed: bool) -> Stored:
    """Check what :func:`.foreign.describe` returned for a matrix, and refuse it if it is inconsistent."""
    arrays = description["arrays"]
    for array in arrays.values():
        check_memory(prod(array["chunks"]) * np.dtype(array["dtype"]).itemsize, length)
    order = -1 if transposed else 1
    if "" in arrays:
        shape, dtype = arrays[""]["shape"], np.dtype(arrays[""]["dtype"])
        check_values(len(shape), dtype, 2)
        n, p = shape_of(shape, length)[::order]
        return Stored((n, p), True, dtype.str, dtype.itemsize, 0, length, transposed, False)
    n, p = shape_of(description["shape"], length)[::order]
    by_columns = ("csr" not in description["encoding"]) != transposed
    data, indices = (np.dtype(arrays[key]["dtype"]) for key in ("data", "indices"))
    check_values(len(arrays["data"]["shape"]), data)
    for key in ("indices", "indptr"):
        check_indices(key, len(arrays[key]["shape"]), np.dtype(arrays[key]["dtype"]))
    lines, line = (p, "columns") if by_columns else (n, "rows")
    if arrays["indptr"]["shape"] != [lines + 1]:
        raise ValueError(f"its shape has {lines} {line}, but its indptr has {arrays['indptr']['shape'][0]} entries.")
    entries = min(arrays[key]["shape"][0] for key in ("data", "indices"))
    return Stored((n, p), False, data.str, data.itemsize + indices.itemsize, entries, length, transposed, by_columns)


def read_rows(kind: foreign.Kind, path: Path, name: str, stored: Stored, start: int, stop: int) -> Any:
    """Read the rows from ``start`` to ``stop``."""
    with naming(path, name):
        if stored.dense:
            [rows] = call(foreign.read, kind, path, (name, start, stop, int(stored.transposed)))
            check_values(rows.ndim, rows.dtype, 2)
            return rows.T if stored.transposed else rows
        [starts] = call(foreign.read, kind, path, (f"{name}/indptr", start, stop + 1))
        check_indices("indptr", starts.ndim, starts.dtype)
        if len(starts) != stop - start + 1:
            raise ValueError(f"its shape has {stored.shape[0]} rows, but its indptr ends before that.")
        starts = starts.astype(np.int64)
        a, b = int(starts[0]), int(starts[-1])
        if not 0 <= a <= b <= stored.entries:
            raise ValueError(f"rows {start} to {stop} are entries {a} to {b}, but there are only {stored.entries}.")
        check_memory((b - a) * stored.width, stored.length)
        data, indices = call(foreign.read, kind, path, (f"{name}/data", a, b), (f"{name}/indices", a, b))
        return as_csr(data, indices, starts - a, (stop - start, stored.shape[1]))


def check_memory(size: int, length: int) -> None:
    """Refuse to read ``size`` bytes at once from a file that is far smaller."""
    if size > most(length):
        raise ValueError(
            f"{size >> 20} MB would be read at once from a file of {length} bytes, so nearly all of them would be "
            "zeros. Ask for fewer rows at a time (rows=), or write the file with smaller chunks."
        )


def batches_of(X: Any, rows: int = ROWS) -> Callable[[], Iterator[Any]]:
    """Return a callable that reads a matrix on disk in batches of rows, with one batch in memory at a time."""

    def read() -> Iterator[Any]:
        for start in range(0, X.shape[0], rows):
            part = X[start : start + rows]
            yield part if issparse(part) else np.asarray(part)

    return read
