"""Reads arrays in HDF5 files and Zarr stores, with h5py and zarr.

The HDF5 library trusts its input: one wrong byte can make it hang. All calls to it are therefore in this module, in
functions that take and return plain values and arrays. A separate process runs them (see onmf.io.isolate), so this
module imports nothing from onmf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, prod
from typing import Any, Literal

import numpy as np

Kind = Literal["hdf5", "zarr"]

CHUNKS = 1_000_000
"""Most chunks of an array: with more, finding the chunks takes longer than reading them."""

CODECS = {"bytes", "transpose", "sharding_indexed", "shuffle", "delta", "packbits", "bitround", "quantize", "astype"}
CODECS |= {"fixedscaleoffset", "blosc", "zstd", "zlib", "gzip", "lz4", "bz2", "lzma", "crc32", "crc32c", "adler32"}
CODECS |= {"fletcher32", "jenkins_lookup3"}
"""Zarr codecs that only convert bytes to numbers. One of the others, pickle, can run code."""

TEXT_CODECS = {"vlen-utf8", "vlen-bytes"}
"""Zarr codecs of texts. They allocate what their first bytes say, so only :func:`texts` allows them."""


def describe(path: str, kind: Kind, name: str) -> dict[str, Any]:
    """Describe a matrix in a file without reading its entries.

    Parameters
    ----------
    path : str
        The file or store.
    kind : {"hdf5", "zarr"}
        Its format.
    name : str
        Path of the array, or of the group of arrays, within the file; empty for the file itself.

    Returns
    -------
    dict
        ``arrays`` maps the name of each array to its ``shape``, ``dtype`` and ``chunks``. The array of a dense matrix
        has an empty name. A sparse matrix also has ``shape`` and ``encoding``.
    """
    with opened(path, kind) as file:
        matrix = take(file, name)
        if not hasattr(matrix, "keys"):
            return {"arrays": {"": about(matrix)}}
        names = {"data", "indices", "indptr"}
        if not names <= set(matrix.keys()):
            members = ", ".join(sorted(matrix.keys()))[:200]
            raise ValueError(f"it is not a matrix, but a group of {members}: name one of them.")
        shape, encoding = _sparse_form(matrix)
        return {
            "arrays": {key: about(take(matrix, key)) for key in sorted(names)},
            "shape": shape.tolist() if shape.dtype.kind in "biuf" else str(shape),
            "encoding": encoding,
        }


def _sparse_form(matrix: Any) -> tuple[Any, str]:
    """Return shape and encoding of a sparse matrix, as AnnData (now and before 0.8) or 10x Genomics writes them."""
    if "shape" in matrix.keys():  # noqa: SIM118 - iterating over a damaged group may not end
        shape = take(matrix, "shape")
        return np.asarray(shape[:2]) if about(shape)["shape"] == [2] else np.asarray("not given"), "csc_matrix"
    shape, encoding = (
        next((matrix.attrs[key] for key in keys if key in matrix.attrs), default)
        for keys, default in (
            (("shape", "h5sparse_shape"), "not given"),
            (("encoding-type", "h5sparse_format"), "csr_matrix"),
        )
    )
    return np.asarray(shape), _text(encoding) or ""


def read(path: str, kind: Kind, *slices: tuple[str, int, int] | tuple[str, int, int, int]) -> list[Any]:
    """Read parts of arrays: for each (name, start, stop), the entries or rows from start to before stop.

    With a 1 as fourth number, these are columns.
    """
    with opened(path, kind) as file:
        parts = []
        for name, start, stop, *axis in slices:
            array = take(file, name)
            about(array)
            parts.append(np.asarray(array[:, start:stop] if axis == [1] else array[start:stop]))
        return parts


def look(path: str, kind: Kind, name: str) -> dict[str, Any]:
    """Describe a group or an array.

    Parameters
    ----------
    path, kind, name
        As for :func:`describe`.

    Returns
    -------
    dict
        For a group ``members``, the names of its groups and arrays; for an array ``shape``, ``dtype``, ``chunks`` and
        ``fields``, the names of its columns if it is a table.
    """
    with opened(path, kind) as file:
        item = take(file, name)
        if hasattr(item, "keys"):
            return {"members": sorted(item.keys())}
        return {"fields": list(item.dtype.names or ()), **about(item, texts=True)}


def attribute(path: str, kind: Kind, name: str, key: str) -> str | None:
    """Read an attribute of a group or an array as text; None if it has none of this name."""
    with opened(path, kind) as file:
        item = take(file, name)
        return _text(item.attrs[key]) if key in item.attrs else None


def texts(path: str, kind: Kind, name: str, field: str | None = None) -> list[str | None]:
    """Read a list of texts or numbers as texts; None for missing ones. ``field`` is a column of a table."""
    with opened(path, kind) as file:
        array = take(file, name)
        shape = about(array, texts=True)["shape"]
        if len(shape) != 1:
            raise ValueError(f"it has {len(shape)} dimensions: expected a list.")
        return [_text(value) for value in np.asarray(array[:] if field is None else array[field]).tolist()]


def _text(value: Any) -> str | None:
    """Convert a value to text. Whole floats lose their point: a column of integers is one if a value is missing."""
    if value is None or value != value:
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # a lone surrogate cannot be printed
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, bool | int | float | np.generic):
        return str(value)
    raise ValueError(f"it holds a {type(value).__name__}: expected texts or numbers.")


@contextmanager
def opened(path: str, kind: Kind) -> Iterator[Any]:
    """Open a file, and close it afterwards."""
    if kind == "zarr":
        import zarr

        yield zarr.open(path, mode="r")
        return
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"it is damaged, or is not an HDF5 file: {error}") from error
    with file:
        yield file


def take(group: Any, name: str) -> Any:
    """Return the member of a group at a path; links are refused, because they may lead to other files."""
    for part in filter(None, name.split("/")):
        members = sorted(getattr(group, "keys", tuple)())
        if part not in members:
            raise KeyError(f"there are {', '.join(members)[:500] or 'none'}")
        if type(group).__module__.startswith("h5py"):
            from h5py import h5l

            if group.id.links.get_info(part.encode()).type != h5l.TYPE_HARD:
                raise ValueError(f"{part} is a link, and may lead to another file: replace it with a copy.")
        try:
            group = group[part]
        except KeyError as error:  # h5py raises this for a member that exists but cannot be opened
            raise ValueError(f"{part} is damaged: {error.args[0]}") from error
    return group


def about(array: Any, texts: bool = False) -> dict[str, Any]:
    """Return shape, type and chunks of an array; refuse one whose entries are in another file, or need other codecs.

    ``texts`` allows the codecs of texts, too.
    """
    if hasattr(array, "keys"):
        raise ValueError("it is a group: expected an array.")
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):
        raise ValueError("its entries are in another file: copy them into this one.")
    if unknown := sorted(set(codecs(array)) - CODECS - (TEXT_CODECS if texts else set())):
        raise ValueError(f"it is encoded with {unknown[0]!r}, which may run code: write it with another codec.")
    shape, chunks = [int(size) for size in array.shape], [int(size) for size in array.chunks or ()]
    if prod(ceil(size / chunk) for size, chunk in zip(shape, chunks, strict=False)) > CHUNKS:
        raise ValueError(f"it has more than {CHUNKS} chunks, of shape {chunks}: write it with larger chunks.")
    return {"shape": shape, "dtype": np.dtype(array.dtype).str, "chunks": chunks}


def codecs(array: Any) -> Iterator[str]:
    """Yield the names of the codecs of a Zarr array, including nested ones; nothing for an HDF5 array."""
    if type(array).__module__.startswith("h5py"):
        return
    if hasattr(array, "metadata"):
        metadata = array.metadata.to_dict()
        pending = [metadata.get(key) for key in ("codecs", "filters", "compressor")]
    else:  # before version 3
        pending = [codec.get_config() for codec in (*(array.filters or ()), array.compressor) if codec is not None]
    while pending:
        codec = pending.pop()
        if isinstance(codec, list | tuple):
            pending.extend(codec)
        elif isinstance(codec, dict):
            yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")
            configuration = codec.get("configuration") or {}
            pending.extend(configuration.get(key) for key in ("codecs", "index_codecs"))
