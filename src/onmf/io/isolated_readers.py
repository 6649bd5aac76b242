"""Readers of HDF5 files, Zarr stores, Matrix Market and MATLAB files, for a process of their own (see onmf.io.isolate).

The HDF5 library trusts its input: one wrong byte can make it crash or hang. All calls to it are therefore in this
module, in functions that take and return plain values and arrays. The process loads this file alone, so it imports
nothing from onmf. AnnData files are read with h5py and zarr, because importing anndata takes as long as
reading 500 MB.
"""

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import ceil, prod
from typing import Any, Literal

import numpy as np

Kind = Literal["hdf5", "zarr"]

CHUNKS = 1_000_000  # most of an array: with more, finding the chunks takes longer than reading them

CODECS = {"bytes", "transpose", "sharding_indexed", "shuffle", "delta", "packbits", "bitround", "quantize", "astype"}
CODECS |= {"fixedscaleoffset", "blosc", "zstd", "zlib", "gzip", "lz4", "bz2", "lzma", "crc32", "crc32c", "adler32"}
CODECS |= {"fletcher32", "jenkins_lookup3"}
"""Zarr codecs that only convert bytes to numbers. One of the others, pickle, can run code."""

TEXT_CODECS = {"vlen-utf8", "vlen-bytes"}
"""Zarr codecs of texts. They allocate what their first bytes say, so only lists of names may have them."""

TENX = {"barcodes", "data", "indices", "indptr", "shape"}  # members of a matrix of 10x Genomics


def describe(path: str, kind: Kind, name: str) -> dict[str, Any]:
    """Describe a matrix without its entries: shape, type, largest chunk in bytes, arrays if sparse, by rows or not."""
    with opened(path, kind) as file:
        matrix = take(file, name)
        if not hasattr(matrix, "keys"):
            return {**about(matrix), "arrays": {}, "by_rows": True}
        present = members(matrix)
        if not {"data", "indices", "indptr"} <= set(present):
            raise ValueError(f"it is not a matrix, but a group of {', '.join(present)[:200]}: name one of them.")
        arrays = {key: about(take(matrix, key)) for key in ("data", "indices", "indptr")}
        attributes = matrix.attrs
        if "shape" in present:  # as 10x Genomics writes it
            stored = take(matrix, "shape")
            shape, form = stored[:2] if about(stored)["shape"] == [2] else "not given", "csc"
        else:  # as AnnData writes it, now and before version 0.8
            shape = attributes.get("shape", attributes.get("h5sparse_shape", "not given"))
            form = as_text(attributes.get("encoding-type", attributes.get("h5sparse_format", "csr"))) or ""
        return {
            "shape": np.asarray(shape).tolist(),
            "dtype": arrays["data"]["dtype"],
            "chunk": max(array["chunk"] for array in arrays.values()),
            "arrays": arrays,
            "by_rows": "csr" in form,
        }


def read(path: str, kind: Kind, *slices: tuple[str, int, int] | tuple[str, int, int, int]) -> list[Any]:
    """Read entries or rows of arrays: for each (name, start, stop), from start to before stop; (…, 1) are columns."""
    with opened(path, kind) as file:
        parts = []
        for name, start, stop, *axis in slices:
            array = take(file, name)
            about(array)
            parts.append(np.asarray(array[:, start:stop] if axis == [1] else array[start:stop]))
        return parts


def list_arrays(path: str) -> dict[str, Any]:
    """Describe the arrays of numbers at the root of an HDF5 file; see :func:`about`."""
    with opened(path, "hdf5") as file:
        found = {name: take(file, name) for name in members(file)}
        filled = {name: value for name, value in found.items() if getattr(value, "shape", None) is not None}
        return {name: about(value) for name, value in filled.items() if value.dtype.kind in "buif"}


def read_transposed(path: str, name: str, start: int | None = None, stop: int | None = None) -> Any:
    """Read an array of an HDF5 file, its axes reversed as in MATLAB, or its lines from ``start`` to ``stop``."""
    with opened(path, "hdf5") as file:
        array = take(file, name)
        return np.transpose(array[()] if start is None else array[..., start:stop])


def survey(path: str, kind: Kind) -> dict[str, Any]:
    """The ``format`` of a file of cells, its ``members``, and ``places``: its matrices by the name of their layer."""
    with opened(path, kind) as file:
        root = members(file)
        places = {name: f"layers/{name}" for name in members(find(file, "layers"))}
        if {"row_attrs", "matrix"} <= set(root):
            return {"format": "loom", "places": {"matrix": "matrix", **places}}
        if "X" in root or {"obs", "var"} <= set(root):
            raw = {"raw": "raw/X"} if "X" in members(find(file, "raw")) else {}
            raw = {"raw": "raw.X"} if "raw.X" in root else raw  # before AnnData 0.7
            # AnnData 0.12 writes an empty X where there is none.
            main = {"X": "X"} if "X" in root and as_text(take(file, "X").attrs.get("encoding-type")) != "null" else {}
            return {"format": "anndata", "places": main | raw | places}
        if "mod" in root:
            return {"format": "mudata", "places": {name: f"mod/{name}" for name in members(take(file, "mod"))}}
        places = {name: name for name in root if set(members(take(file, name))) >= TENX}
        return {"format": "10x" if places else "unknown", "places": places, "members": root}


def read_columns(path: str, kind: Kind, frame: str, wanted: dict[str, list[str]]) -> dict[str, Any]:
    """Read columns of a table as texts: for each key, the first of the wanted names that it has; None if it has none.

    ``index`` is the column with the names of the rows, and ``columns`` are the names of the others.
    """
    with opened(path, kind) as file:
        table = find(file, frame)
        names = members(table) or list(getattr(table, "dtype", np.dtype("V")).names or ())
        named = as_text(table.attrs.get("_index")) if members(table) else None
        index = next((name for name in ("_index", named, "index") if name in names), None)
        others = [name for name in names if name not in (index, "__categories")]
        found = {key: next((name for name in some if name in others), None) for key, some in wanted.items()}
        found["index"] = index
        columns = {key: None if name is None else _column(file, table, name) for key, name in found.items()}
        return {**columns, "columns": others}


def _column(file: Any, table: Any, name: str) -> list[str | None]:
    """Read a column as texts, as AnnData (now and before) writes it."""
    if not hasattr(table, "keys"):  # before AnnData 0.7, a table is one array
        values, categories = _list(table, name), find(file, f"uns/{name}_categories")
    else:
        item, categories = take(table, name), find(table, f"__categories/{name}")  # these are of AnnData 0.7
        parts = set(members(item))
        if {"values", "mask"} <= parts:
            mask = _list(take(item, "mask")).tolist()
            return [None if masked else value for value, masked in zip(_texts(item), mask, strict=True)]
        if {"codes", "categories"} <= parts:
            item, categories = take(item, "codes"), take(item, "categories")
        elif parts:
            raise ValueError(f"its {name} is a group of {', '.join(sorted(parts))[:200]}, not a column: name another.")
        values = _list(item)
    if categories is None:
        return [as_text(value) for value in values.tolist()]
    names = _texts(categories)
    if values.dtype.kind not in "bui" or (values.size and (not -1 <= values.min() <= values.max() < len(names))):
        raise ValueError(f"its {name} has codes that are not those of its {len(names)} categories.")
    return [None if code < 0 else names[code] for code in values.tolist()]


def _texts(item: Any) -> list[str | None]:
    """Read a list as texts. If some may be missing, it is a group."""
    return [as_text(value) for value in _list(take(item, "values") if hasattr(item, "keys") else item).tolist()]


def _list(array: Any, field: str | None = None) -> Any:
    """Read a list, or a column of an array with several."""
    shape = about(array, texts=True)["shape"]
    if len(shape) != 1:
        raise ValueError(f"it has {len(shape)} dimensions: expected a list.")
    return np.asarray(array[:] if field is None else array[field])


def as_text(value: Any) -> str | None:
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


def load_market(path: str, limit: int) -> list[Any]:
    """Read a matrix as shape, values, rows and columns, if the sizes in its header take at most ``limit`` bytes."""
    from scipy.io import mminfo, mmread
    from scipy.sparse import coo_array
    from threadpoolctl import threadpool_limits

    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    with (gzip.open if compressed else open)(path, "rb") as source:
        head = source.read(1 << 16)
    unpacked = gzip.open if compressed else nullcontext
    with unpacked(path) as source:
        n, p, entries, _, _, symmetry = mminfo(source)
    if max(8 * n, 8 * p, 4 * entries) > limit:
        raise ValueError(f"it says that it is {n} × {p} with {entries} entries, far more than its bytes can hold.")
    if symmetry != "general" and n != p:
        raise ValueError(f"its header says {symmetry}, but it has {n} rows and {p} columns.")
    # SciPy takes column 1.5 for column 1 and the value .5. A program that writes such columns begins with them.
    if wrong := re.search(rb"\n[ \t]*\d+[ \t]+(\d+[^\s\d]\S*)", head):
        raise ValueError(f"it has an entry in column {wrong[1].decode(errors='replace')[:20]}, not a whole number.")
    with unpacked(path) as source, threadpool_limits(limits=1):  # other threads would reserve address space
        X = coo_array(mmread(source))
    return [list(X.shape), X.data, *X.coords]


def load_matlab5(path: str) -> dict[str, Any]:
    """Read the variables of a file: arrays of numbers, and as dicts sparse matrices and arrays of texts; else None."""
    from scipy.io import loadmat

    with open(path, "rb") as file:
        content = loadmat(file)
    return {name: _plain(value) for name, value in content.items() if not name.startswith("__")}


def _plain(value: Any) -> Any:
    if hasattr(value, "indptr"):
        return {"shape": list(value.shape), "columns": [value.data, value.indices, value.indptr]}
    kind = value.dtype.kind if isinstance(value, np.ndarray) else None
    if kind == "O" and all(isinstance(cell, np.ndarray) and cell.dtype.kind == "U" for cell in value.flat):
        return {"shape": list(value.shape), "texts": [str(np.squeeze(cell)) for cell in value.ravel()]}
    if kind == "U":
        return {"shape": list(value.shape), "texts": value.ravel().tolist()}
    return value if kind is not None and kind in "buifc" else None


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


def members(group: Any) -> list[str]:
    """Names of the members of a group; none if it is an array or None."""
    return sorted(getattr(group, "keys", tuple)())


def take(group: Any, name: str) -> Any:
    """Return the member of a group at a path; refuse links and arrays that lead to other files."""
    for part in filter(None, name.split("/")):
        present = members(group)
        if part not in present:
            raise KeyError(f"there are {', '.join(present)[:500] or 'none'}")
        if type(group).__module__.startswith("h5py"):
            from h5py import h5l

            if group.id.links.get_info(part.encode()).type != h5l.TYPE_HARD:
                raise ValueError(f"{part} is a link, and may lead to another file: replace it with a copy.")
        try:
            group = group[part]
        except KeyError as error:  # h5py raises this for a member that exists but cannot be opened
            raise ValueError(f"{part} is damaged: {error.args[0]}") from error
        if getattr(group, "is_virtual", False) or getattr(group, "external", None):
            raise ValueError(f"{part} has its entries in another file: copy them into this one.")
    return group


def find(group: Any, name: str) -> Any:
    """Return the member of a group at a path; None if there is none."""
    try:
        return take(group, name)
    except KeyError:
        return None


def about(array: Any, texts: bool = False) -> dict[str, Any]:
    """Return shape, type and bytes of a chunk of an array; refuse other codecs. ``texts`` allows those of texts."""
    if hasattr(array, "keys"):
        raise ValueError("it is a group: expected an array.")
    if unknown := sorted(set(codecs(array)) - CODECS - (TEXT_CODECS if texts else set())):
        raise ValueError(f"it is encoded with {unknown[0]!r}, which may run code: write it with another codec.")
    shape, chunks = [int(size) for size in array.shape], [int(size) for size in array.chunks or ()]
    if prod((ceil(size / chunk) for size, chunk in zip(shape, chunks, strict=False))) > CHUNKS:
        raise ValueError(f"it has more than {CHUNKS} chunks, of shape {chunks}: write it with larger chunks.")
    dtype = np.dtype(array.dtype)
    return {"shape": shape, "dtype": dtype.str, "chunk": prod(chunks) * dtype.itemsize}


def codecs(array: Any) -> Iterator[str]:
    """Yield the names of the codecs of a Zarr array, including nested ones; nothing for an HDF5 array."""
    if type(array).__module__.startswith("h5py"):
        return
    metadata = array.metadata.to_dict()
    pending = [metadata.get(key) for key in ("codecs", "filters", "compressor")]
    while pending:
        codec = pending.pop()
        if isinstance(codec, list | tuple):
            pending.extend(codec)
        elif isinstance(codec, dict):
            yield str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")
            configuration = codec.get("configuration") or {}
            pending.extend(configuration.get(key) for key in ("codecs", "index_codecs"))
