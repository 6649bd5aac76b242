"""Matrices in h5ad, Zarr and other files that index like arrays, of which only what is worked on is read."""

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
from .matlab import COPIES, patience
from .pieces import ROWS, import_dask
from .stored import as_csr, check_indices, check_values, shape_of

READERS = 2
"""HDF5 files for which a process keeps a reader running."""


def open_h5ad(path: str | Path, layer: str | None = None, *, rows: int = ROWS) -> Any:
    """The counts of an h5ad file (AnnData) as a Dask array, of which nothing is read yet.

    Parameters
    ----------
    path : path
        An h5ad file whose matrix is CSR or dense.
    layer : str, optional
        A layer; by default ``X``.
    rows : int, default=10000
        Rows of a chunk.

    Returns
    -------
    dask.array.Array
        With CSR or NumPy chunks.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of an h5ad file.")
    return _lazy("hdf5", Path(path), "X" if layer is None else f"layers/{layer}", rows)


def open_zarr(path: str | Path, name: str | None = None, *, rows: int = ROWS) -> Any:
    """A matrix in a Zarr store as a Dask array, of which nothing is read yet.

    Parameters
    ----------
    path : path
        The store: a 2-D array, or a CSR matrix as AnnData writes it.
    name : str, optional
        Array or group within the store; ``"X"`` for what AnnData wrote.
    rows : int, default=10000
        Rows of a chunk.

    Returns
    -------
    dask.array.Array
        With CSR or NumPy chunks.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of a Zarr store.")
    return _lazy("zarr", Path(path), name or "", rows)


def _lazy(kind: foreign.Kind, path: Path, name: str, rows: int) -> Any:
    """A matrix in a file of arrays and groups as a Dask array."""
    dask, da = import_dask()
    if not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a chunk needs at least 1 row.")
    with _naming(path, name):
        _check_installed(kind)
        stored = _stored(_ask(foreign.describe, kind, path, name), _length(path))
        n, p = stored.shape
        if stored.dense:
            like: Any = np.empty((0, p), dtype=stored.dtype)
            _check_memory(min(rows, n) * p * stored.width, stored.length)
        else:
            like = csr_array((0, p), dtype=stored.dtype)
    if n == 0:
        raise ValueError(f"{path} has no rows.")
    blocks = [
        da.from_delayed(dask.delayed(_read_rows, pure=False)(kind, path, name, stored, a, b), (b - a, p), meta=like)
        for a, b in pairwise([*range(0, n, rows), n])
    ]
    return da.concatenate(blocks)


_readers: OrderedDict[tuple[Path, int], Isolated] = OrderedDict()
_lock = Lock()


def _ask(function: Callable[..., Any], kind: foreign.Kind, path: Path, *arguments: Any) -> Any:
    """What a function of :mod:`.foreign` finds in a file; HDF5's library runs in a process of its own."""
    if kind == "zarr":
        return function(str(path), kind, *arguments)
    path = path.resolve()  # the other process may have another working folder
    length = path.stat().st_size
    with _lock:
        if (path, length) not in _readers:
            _readers[path, length] = Isolated(str(path), memory=COPIES * most(length), seconds=patience(length))
        _readers.move_to_end((path, length))
        while len(_readers) > READERS:
            _readers.popitem(last=False)
        reader = _readers[path, length]
    return reader(function, str(path), kind, *arguments)


def _check_installed(kind: foreign.Kind) -> None:
    """Say what is missing."""
    module, what = {"hdf5": ("h5py", "h5ad files need h5py"), "zarr": ("zarr", "Zarr stores need zarr")}[kind]
    if find_spec(module) is None:
        raise ImportError(f"{what}: pip install 'onmf[cells]'.")


@contextmanager
def _naming(path: Path, name: str) -> Iterator[None]:
    """Let errors name the file."""
    try:
        yield
    except (ImportError, ReaderEnded):
        raise
    except KeyError as error:
        raise KeyError(f"{path} has no {name}: {error.args[0]}.") from error
    except Exception as error:  # h5py and zarr raise whatever they stumble over in a damaged file
        raise ValueError(f"{path}, {name or 'the store itself'}, cannot be read: {error}") from error


class _Stored(NamedTuple):
    """A matrix in a file, whose description holds together."""

    shape: tuple[int, int]
    dense: bool
    dtype: str
    width: int
    """Bytes of an entry, with its index."""
    entries: int
    """Entries of a sparse matrix."""
    length: int
    """Bytes of the file."""


def _length(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def _stored(told: dict[str, Any], length: int) -> _Stored:
    """What :func:`.foreign.describe` was told of a matrix, if it can be true."""
    arrays = told["arrays"]
    for array in arrays.values():
        _check_memory(prod(array["chunks"]) * np.dtype(array["dtype"]).itemsize, length)
    if "" in arrays:
        shape, dtype = arrays[""]["shape"], np.dtype(arrays[""]["dtype"])
        check_values(len(shape), dtype, 2)
        return _Stored(shape_of(shape, length), True, dtype.str, dtype.itemsize, 0, length)
    if "csr" not in told["encoding"]:
        raise ValueError(
            f"it is stored by columns ({told['encoding'][:80]}), and rows cannot be read from it piece by piece: "
            "convert it with adata.X = adata.X.tocsr() and write it again."
        )
    n, p = shape_of(told["shape"], length)
    data, indices = (np.dtype(arrays[key]["dtype"]) for key in ("data", "indices"))
    check_values(len(arrays["data"]["shape"]), data)
    for key in ("indices", "indptr"):
        check_indices(key, len(arrays[key]["shape"]), np.dtype(arrays[key]["dtype"]))
    if arrays["indptr"]["shape"] != [n + 1]:
        raise ValueError(f"it says that it has {n} rows, and its indptr has {arrays['indptr']['shape'][0]} entries.")
    entries = min(arrays[key]["shape"][0] for key in ("data", "indices"))
    return _Stored((n, p), False, data.str, data.itemsize + indices.itemsize, entries, length)


def _read_rows(kind: foreign.Kind, path: Path, name: str, stored: _Stored, start: int, stop: int) -> Any:
    """Rows start to stop, read now."""
    with _naming(path, name):
        if stored.dense:
            [rows] = _ask(foreign.read, kind, path, (name, start, stop))
            check_values(rows.ndim, rows.dtype, 2)
            return rows
        [starts] = _ask(foreign.read, kind, path, (f"{name}/indptr", start, stop + 1))
        check_indices("indptr", starts.ndim, starts.dtype)
        if len(starts) != stop - start + 1:
            raise ValueError(f"it says that it has {stored.shape[0]} rows, and its indptr ends before that.")
        starts = starts.astype(np.int64)
        a, b = int(starts[0]), int(starts[-1])
        if not 0 <= a <= b <= stored.entries:
            raise ValueError(f"rows {start} to {stop} are entries {a} to {b}, and there are {stored.entries}.")
        _check_memory((b - a) * stored.width, stored.length)
        data, indices = _ask(foreign.read, kind, path, (f"{name}/data", a, b), (f"{name}/indices", a, b))
        return as_csr(data, indices, starts - a, (stop - start, stored.shape[1]))


def _check_memory(size: int, length: int) -> None:
    """Refuse to read so many bytes at once of a file that has far fewer."""
    if size > most(length):
        raise ValueError(
            f"{size >> 20} MB would be read at once from {length} bytes, which hold nothing but zeros then: it is "
            "refused. Ask for fewer rows at a time (rows=), or write it again in smaller chunks."
        )


def batches_of(X: Any, rows: int = ROWS) -> Callable[[], Iterator[Any]]:
    """A callable that reads a matrix on disk in batches of rows; each batch is all of it that is in memory."""

    def read() -> Iterator[Any]:
        for start in range(0, X.shape[0], rows):
            part = X[start : start + rows]
            yield part if issparse(part) else np.asarray(part)

    return read
