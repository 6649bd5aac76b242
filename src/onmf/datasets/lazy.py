"""Matrices in h5ad, Zarr and other files that index like arrays, of which only what is worked on is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from .pieces import ROWS, import_dask


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
    return _lazy(_open_hdf5, Path(path), "X" if layer is None else f"layers/{layer}", rows)


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
    return _lazy(_open_zarr, Path(path), name or "", rows)


Opener = Callable[[Path], Any]


def _open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("h5ad files need h5py: pip install 'onmf[cells]'.") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is no HDF5 file: {error}") from error


def _open_zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("Zarr stores need zarr: pip install 'onmf[cells]'.") from error
    try:
        return zarr.open(path, mode="r")
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is no Zarr store: {error}") from error


def _lazy(opener: Opener, path: Path, name: str, rows: int) -> Any:
    """A matrix in a file of arrays and groups as a Dask array."""
    dask, da = import_dask()
    if rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a chunk needs at least 1 row.")
    matrix, close = _matrix(opener, path, name)
    try:
        shape, like = _describe(matrix, f"{path}, {name or 'the store itself'}")
    finally:
        close()
    n, p = shape
    cuts = [*range(0, n, rows), n]
    if n == 0:
        raise ValueError(f"{path} has no rows.")
    blocks = [
        da.from_delayed(dask.delayed(_read_rows, pure=False)(opener, path, name, a, b), (b - a, p), meta=like)
        for a, b in pairwise(cuts)
    ]
    return da.concatenate(blocks)


def _matrix(opener: Opener, path: Path, name: str) -> tuple[Any, Callable[[], None]]:
    file = opener(path)
    close: Callable[[], None] = getattr(file, "close", lambda: None)
    try:
        return (file[name] if name else file), close
    except KeyError as error:
        within = name.rpartition("/")[0]
        group = file[within] if within and within in file else file
        there = ", ".join(sorted(getattr(group, "keys", tuple)())) or "none"
        close()
        raise KeyError(f"{path} has no {name}: there are {there}.") from error


def _describe(matrix: Any, where: str) -> tuple[tuple[int, int], Any]:
    """Shape and an empty example."""
    if hasattr(matrix, "keys"):
        if not {"data", "indices", "indptr"} <= set(matrix.keys()):
            raise ValueError(
                f"{where}, holds no matrix, but {', '.join(sorted(matrix.keys()))}: say which with a name."
            )
        kind = matrix.attrs.get("encoding-type", "csr_matrix")
        if "csr" not in kind:
            raise ValueError(
                f"{where}, is stored by columns ({kind}), and rows cannot be read from it piece by piece: convert it "
                "with adata.X = adata.X.tocsr() and write it again."
            )
        n, p = (int(size) for size in matrix.attrs["shape"])
        return (n, p), csr_array((0, p), dtype=matrix["data"].dtype)
    if len(matrix.shape) != 2:
        raise ValueError(f"{where}, has {len(matrix.shape)} dimensions: rows and features are needed.")
    return matrix.shape, np.empty((0, matrix.shape[1]), dtype=matrix.dtype)


def _read_rows(opener: Opener, path: Path, name: str, start: int, stop: int) -> Any:
    """Rows start to stop, read now."""
    matrix, close = _matrix(opener, path, name)
    try:
        if not hasattr(matrix, "keys"):
            return np.asarray(matrix[start:stop])
        starts = np.asarray(matrix["indptr"][start : stop + 1])
        a, b = int(starts[0]), int(starts[-1])
        columns = int(matrix.attrs["shape"][1])
        return csr_array((matrix["data"][a:b], matrix["indices"][a:b], starts - a), shape=(stop - start, columns))
    finally:
        close()


def batches_of(X: Any, rows: int = ROWS) -> Callable[[], Iterator[Any]]:
    """A callable that reads a matrix on disk in batches of rows; each batch is all of it that is in memory."""

    def read() -> Iterator[Any]:
        for start in range(0, X.shape[0], rows):
            part = X[start : start + rows]
            yield part if issparse(part) else np.asarray(part)

    return read
