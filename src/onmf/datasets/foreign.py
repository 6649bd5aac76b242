"""Arrays in HDF5 files and Zarr stores, as h5py and zarr read them.

HDF5's library trusts its input: a changed byte can keep it busy for ever. So everything that calls it stands here, in
functions that take and return plain values and arrays, and a process of its own runs them (see onmf.io.isolate): this
module imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, prod
from typing import Any, Literal

import numpy as np

Kind = Literal["hdf5", "zarr"]

CHUNKS = 1_000_000
"""Chunks that an array may be cut into: to look for more takes longer than to read what is in them."""

CODECS = {"bytes", "transpose", "sharding_indexed", "shuffle", "delta", "packbits", "bitround", "quantize", "astype"}
CODECS |= {"fixedscaleoffset", "blosc", "zstd", "zlib", "gzip", "lz4", "bz2", "lzma", "crc32", "crc32c", "adler32"}
CODECS |= {"fletcher32", "jenkins_lookup3"}
"""Codecs of Zarr that turn bytes into numbers and do nothing else. Among the others is one that runs code."""


def describe(path: str, kind: Kind, name: str) -> dict[str, Any]:
    """What a file says of a matrix in it; none of its entries is read.

    Parameters
    ----------
    path : str
        The file or store.
    kind : {"hdf5", "zarr"}
        What it is.
    name : str
        The array, or the group of arrays, as a path within the file; an empty one is the file itself.

    Returns
    -------
    dict
        With ``arrays``: by name, the ``shape``, ``dtype`` and ``chunks`` of each. The one array of a dense matrix has
        an empty name. A sparse matrix has ``shape`` and ``encoding``, too.
    """
    with opened(path, kind) as file:
        matrix = take(file, name)
        if not hasattr(matrix, "keys"):
            return {"arrays": {"": about(matrix)}}
        names = {"data", "indices", "indptr"}
        if not names <= set(matrix.keys()):
            held = ", ".join(sorted(matrix.keys()))[:200]
            raise ValueError(f"it holds no matrix, but {held}: say which with a name.")
        shape = np.asarray(matrix.attrs.get("shape", "not given"))
        return {
            "arrays": {key: about(take(matrix, key)) for key in sorted(names)},
            "shape": shape.tolist() if shape.dtype.kind in "biuf" else str(shape),
            "encoding": str(matrix.attrs.get("encoding-type", "csr_matrix")),
        }


def read(path: str, kind: Kind, *slices: tuple[str, int, int]) -> list[Any]:
    """Parts of arrays: of each (name, first, last) the entries or rows from the first to before the last."""
    with opened(path, kind) as file:
        found = []
        for name, first, last in slices:
            array = take(file, name)
            about(array)
            found.append(np.asarray(array[first:last]))
        return found


@contextmanager
def opened(path: str, kind: Kind) -> Iterator[Any]:
    """A file, closed afterwards."""
    if kind == "zarr":
        import zarr

        yield zarr.open(path, mode="r")
        return
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"it is no HDF5 file: {error}") from error
    with file:
        yield file


def take(group: Any, name: str) -> Any:
    """What lies in a group under a path, if it lies in the same file."""
    for part in filter(None, name.split("/")):
        there = sorted(getattr(group, "keys", tuple)())
        if part not in there:
            raise KeyError(f"there are {', '.join(there)[:500] or 'none'}")
        if type(group).__module__.startswith("h5py"):
            from h5py import h5l

            if group.id.links.get_info(part.encode()).type != h5l.TYPE_HARD:
                raise ValueError(f"{part} is a link, and may lead to another file: put a copy in its place.")
        try:
            group = group[part]
        except KeyError as error:  # how h5py says that it is there and cannot be opened
            raise ValueError(f"{part} is damaged: {error.args[0]}") from error
    return group


def about(array: Any) -> dict[str, Any]:
    """Shape, type and chunks of an array whose entries lie in the same file and are nothing but numbers."""
    if hasattr(array, "keys"):
        raise ValueError("it is a group where an array is expected.")
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):
        raise ValueError("its entries lie in another file: copy them into this one.")
    if strange := sorted(set(codecs(array)) - CODECS):
        raise ValueError(f"it is encoded with {strange[0]!r}, which may do more than give numbers: write it again.")
    shape, chunks = [int(size) for size in array.shape], [int(size) for size in array.chunks or ()]
    if prod(ceil(size / chunk) for size, chunk in zip(shape, chunks, strict=False)) > CHUNKS:
        raise ValueError(f"it is cut into more than {CHUNKS} chunks, of shape {chunks}: write it in larger ones.")
    return {"shape": shape, "dtype": np.dtype(array.dtype).str, "chunks": chunks}


def codecs(array: Any) -> Iterator[str]:
    """The names of the codecs of a Zarr array, those inside others included; of an HDF5 file none."""
    if type(array).__module__.startswith("h5py"):
        return
    if hasattr(array, "metadata"):
        told = array.metadata.to_dict()
        pending = [told.get(key) for key in ("codecs", "filters", "compressor")]
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
