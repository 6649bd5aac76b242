"""Matrices in h5ad, Zarr and other files that index like arrays, of which only what is worked on is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import ceil, prod
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.limits import most

from .pieces import ROWS, import_dask
from .stored import as_csr, check_indices, check_values, shape_of

CHUNKS = 1_000_000
"""Chunks that an array may be cut into: to look for more takes longer than to read what is in them."""

CODECS = {"bytes", "transpose", "sharding_indexed", "shuffle", "delta", "packbits", "bitround", "quantize", "astype"}
CODECS |= {"fixedscaleoffset", "blosc", "zstd", "zlib", "gzip", "lz4", "bz2", "lzma", "crc32", "crc32c", "adler32"}
CODECS |= {"fletcher32", "jenkins_lookup3"}
"""Codecs of Zarr that turn bytes into numbers and do nothing else. Among the others is one that runs code."""


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


class _Stored(NamedTuple):
    """A matrix in an open file: the arrays of a CSR matrix, or one that is called ``dense``."""

    shape: tuple[int, int]
    arrays: dict[str, Any]


class _MissingError(Exception):
    """A group does not hold what was asked for; the message says what it holds."""


def _open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("h5ad files need h5py: pip install 'onmf[cells]'.") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"it is no HDF5 file: {error}") from error


def _open_zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("Zarr stores need zarr: pip install 'onmf[cells]'.") from error
    return zarr.open(path, mode="r")


def _lazy(opener: Opener, path: Path, name: str, rows: int) -> Any:
    """A matrix in a file of arrays and groups as a Dask array."""
    dask, da = import_dask()
    if not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a chunk needs at least 1 row.")
    length = _length(path)
    with _opened(opener, path, name, length) as ((n, p), arrays):
        if "dense" in arrays:
            like: Any = np.empty((0, p), dtype=arrays["dense"].dtype)
            check_memory(min(rows, n) * p * like.itemsize, length)
        else:
            like = csr_array((0, p), dtype=arrays["data"].dtype)
    if n == 0:
        raise ValueError(f"{path} has no rows.")
    blocks = [
        da.from_delayed(dask.delayed(_read_rows, pure=False)(opener, path, name, length, a, b), (b - a, p), meta=like)
        for a, b in pairwise([*range(0, n, rows), n])
    ]
    return da.concatenate(blocks)


def _length(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files if os.path.isfile(file))


def _read_rows(opener: Opener, path: Path, name: str, length: int, start: int, stop: int) -> Any:
    """Rows start to stop, read now."""
    with _opened(opener, path, name, length) as ((_, p), arrays):
        if "dense" in arrays:
            return np.asarray(arrays["dense"][start:stop])
        data, indices, indptr = (arrays[key] for key in ("data", "indices", "indptr"))
        starts = np.asarray(indptr[start : stop + 1]).astype(np.int64)
        a, b = int(starts[0]), int(starts[-1])
        if not 0 <= a <= b <= min(data.shape[0], indices.shape[0]):
            raise ValueError(
                f"rows {start} to {stop} begin at entry {a} and end at entry {b}, and there are {data.shape[0]}."
            )
        check_memory((b - a) * (data.dtype.itemsize + indices.dtype.itemsize), length)
        return as_csr(np.asarray(data[a:b]), np.asarray(indices[a:b]), starts - a, (stop - start, p))


@contextmanager
def _opened(opener: Opener, path: Path, name: str, length: int) -> Iterator[_Stored]:
    """A matrix in a file, which is closed afterwards; errors name the file."""
    file: Any = None
    try:
        file = opener(path)
        yield _stored(_take(file, name), length)
    except ImportError:
        raise
    except _MissingError as error:
        raise KeyError(f"{path} has no {name}: there are {error}.") from error
    except Exception as error:  # h5py and zarr raise whatever they stumble over in a damaged file
        raise ValueError(f"{path}, {name or 'the store itself'}, cannot be read: {error}") from error
    finally:
        if hasattr(file, "close"):
            file.close()


def _stored(matrix: Any, length: int) -> _Stored:
    """A matrix, of which what the file says about it holds together."""
    if not hasattr(matrix, "keys"):
        if len(matrix.shape) != 2:
            raise ValueError(f"it has {len(matrix.shape)} dimensions: rows and features are needed.")
        check_values(matrix, 2)
        return _Stored(shape_of(matrix.shape, length), {"dense": _readable(matrix, length)})
    if not {"data", "indices", "indptr"} <= set(matrix.keys()):
        raise ValueError(f"it holds no matrix, but {', '.join(sorted(matrix.keys()))[:200]}: say which with a name.")
    kind = str(matrix.attrs.get("encoding-type", "csr_matrix"))
    if "csr" not in kind:
        raise ValueError(
            f"it is stored by columns ({kind[:80]}), and rows cannot be read from it piece by piece: convert it with "
            "adata.X = adata.X.tocsr() and write it again."
        )
    n, p = shape_of(matrix.attrs["shape"], length)
    arrays = {key: _readable(_take(matrix, key), length) for key in ("data", "indices", "indptr")}
    check_values(arrays["data"])
    check_indices("indices", arrays["indices"])
    check_indices("indptr", arrays["indptr"])
    if arrays["indptr"].shape[0] != n + 1:
        raise ValueError(f"it says that it has {n} rows, and its indptr has {arrays['indptr'].shape[0]} entries.")
    return _Stored((n, p), arrays)


def _take(group: Any, name: str) -> Any:
    """What lies in a group under a path, if it lies in the same file."""
    for part in filter(None, name.split("/")):
        there = sorted(getattr(group, "keys", tuple)())
        if part not in there:
            raise _MissingError(", ".join(there)[:500] or "none")
        if type(group).__module__.startswith("h5py"):
            from h5py import h5l

            if group.id.links.get_info(part.encode()).type != h5l.TYPE_HARD:
                raise ValueError(f"{part} is a link, and may lead to another file: put a copy in its place.")
        group = group[part]
    return group


def _readable(array: Any, length: int) -> Any:
    """An array whose entries lie in the same file, in chunks that can be read one by one."""
    if hasattr(array, "keys"):
        raise ValueError("it is a group where an array is expected.")
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):
        raise ValueError("its entries lie in another file: copy them into this one.")
    if strange := sorted(set(_codecs(array)) - CODECS):
        raise ValueError(f"it is encoded with {strange[0]!r}, which may do more than give numbers: write it again.")
    chunks = array.chunks or ()
    check_memory(prod(chunks) * array.dtype.itemsize, length)
    if prod(ceil(size / chunk) for size, chunk in zip(array.shape, chunks, strict=False)) > CHUNKS:
        raise ValueError(f"it is cut into more than {CHUNKS} chunks, of shape {chunks}: write it in larger ones.")
    return array


def _codecs(array: Any) -> Iterator[str]:
    """The names of the codecs of a Zarr array, those inside others included; of an HDF5 file none."""
    if type(array).__module__.startswith("h5py"):
        return
    if hasattr(array, "metadata"):
        about = array.metadata.to_dict()
        pending = [about.get(key) for key in ("codecs", "filters", "compressor")]
    else:  # before version 3
        pending = [codec.get_config() for codec in (*(array.filters or ()), array.compressor) if codec is not None]
    while pending:
        codec = pending.pop()
        if isinstance(codec, list | tuple):
            pending.extend(codec)
        elif isinstance(codec, dict):
            yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")
            inside = codec.get("configuration") or {}
            pending.extend(inside.get(key) for key in ("codecs", "index_codecs"))


def check_memory(size: int, length: int) -> None:
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
