"""Data that do not fit in memory: folders of shards, and matrices in h5ad files and Zarr stores, read when needed."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array
from onmf.io import isolated_readers
from onmf.io.files import whole_folder, write_whole
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import MOST_GROWTH, check_shape, most
from onmf.io.rules import require
from onmf.warn import import_optional

from .readers import as_csr, check_array, naming, open_npz, shape_of, stored_csr

NAMES = "names.json"  # the names of the features, beside the shards
SHARDS = "shard-*.npz"  # the files with the rows
ROWS = 10_000  # default number of rows of a piece

NEEDS = {"hdf5": ("h5ad files", "h5py"), "zarr": ("Zarr stores", "zarr")}  # The package that each format needs

NUMBERS = (isolated_readers.describe, isolated_readers.read)
"""Readers of numbers: of Zarr stores, they read in this process."""

NAMES_SECONDS = 30.0
"""Limit for reading names, besides the time that the file's size allows: HDF5 follows damaged texts in circles."""


@dataclass(frozen=True)
class Shards:
    """A folder of files that each hold some of the rows. A call reads them one after the other.

    Pass it to :meth:`onmf.ONMF.fit` if the data do not fit in memory: ``ONMF(20).fit(open_shards(folder))``.

    Attributes
    ----------
    files : tuple of path
        The files, in the order of the rows.
    sizes : tuple of int
        Number of rows of each file.
    features : int
        Number of features, the same for all files.
    names : (features,) array of str or None
        Names of the features, if the files have them.
    """

    files: tuple[Path, ...]
    sizes: tuple[int, ...]
    features: int
    names: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Total number of rows, and number of features."""
        return sum(self.sizes), self.features

    def __call__(self) -> Iterator[Any]:
        return (read_shard(file) for file in self.files)

    def block(self, number: int) -> Any:
        """Read the rows of one file."""
        return read_shard(self.files[number])

    def __repr__(self) -> str:
        n, p = self.shape
        return f"<Shards {self.files[0].parent}: {n} × {p} in {len(self.files)} files>"

    def to_dask(self) -> Any:
        """Return a lazy Dask array with one chunk for each file.

        Dask arrays have no feature names: pass ``names`` to :meth:`onmf.ONMF.top_features` if you need them.
        """
        dask, da = import_dask()
        meta = csr_array((0, self.features)) if self.files[0].suffix == ".npz" else np.empty((0, self.features))
        blocks = [
            da.from_delayed(dask.delayed(read_shard, pure=False)(file), (n, self.features), meta=meta)
            for file, n in zip(self.files, self.sizes, strict=True)
        ]
        return da.concatenate(blocks)


def open_shards(folder: str | Path) -> Shards:
    """Open a folder of npz or Parquet files that each hold some of the rows, in the order of their names.

    Parameters
    ----------
    folder : path
        Folder of ``.npz`` files, as SciPy's ``save_npz`` or :func:`write_shards` writes them, or of ``.parquet`` files
        whose columns are features. Files whose names begin with a dot are ignored.

    Returns
    -------
    Shards
        Only the sizes of the files have been read.

    Examples
    --------
    >>> import tempfile
    >>> from onmf import ONMF
    >>> from onmf.datasets import make_counts, open_shards, write_shards
    >>> X = make_counts(500, 60, 4, random_state=0).X
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards((X[i : i + 100] for i in range(0, 500, 100)), folder)
    ...     model = ONMF(n_clusters=4).fit(open_shards(folder))
    >>> model.labels_.shape
    (500,)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: give the folder that holds the shards.")
    found = [sorted(f for f in folder.glob(f"*{end}") if not f.name.startswith(".")) for end in (".npz", ".parquet")]
    which = "both .npz and .parquet files" if found[0] else "neither .npz nor .parquet files"
    require(bool(found[0]) != bool(found[1]), f"{folder} has {which}: it must have shards of one kind.")
    files = tuple(found[0] or found[1])
    _check_series(files)
    sizes, (features, *counts), (labels, *names) = zip(*map(_size, files), strict=True)
    for file, p, columns in zip(files[1:], counts, names, strict=True):
        first = f"but {files[0]} has {features}: all shards need the same number."
        require(p == features, f"{file} has {p} features, {first}")
        same = "all shards need the same columns, in the same order."
        require(columns == labels, f"{file} has other columns than {files[0]}: {same}")
    if labels is None and (folder / NAMES).exists():
        labels = _read_names(folder / NAMES, features)
    return Shards(files, sizes, features, None if labels is None else np.array(labels, dtype=object))


def _check_series(files: tuple[Path, ...]) -> None:
    """Refuse entries that are not files, and gaps in the numbers that :func:`write_shards` assigns."""
    for file in files:
        require(file.is_file(), f"{file} is not a file: in a folder of shards, such names must belong to files.")
    numbered = {int(match[1]): file for file in files if (match := re.fullmatch(r"shard-(\d{6,})\.\w+", file.name))}
    if missing := sorted(set(range(len(numbered))) - set(numbered)):
        raise ValueError(
            f"{files[0].with_name(f'shard-{missing[0]:06d}{files[0].suffix}')} is missing: there are {len(numbered)} "
            f"shards, up to {numbered[max(numbered)].name}. Restore it, or renumber the others without a gap to leave "
            "out its rows."
        )


def _read_names(file: Path, features: int) -> list[str]:
    """Read the names of the features."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file} is not a list of names: {error}.") from error
    about = f"{file} is not a list of {features} names, one for each feature."
    require(isinstance(names, list) and len(names) == features, about)
    for number, name in enumerate(names):
        # JSON can hold a lone surrogate, which can be neither printed nor saved.
        if not isinstance(name, str) or re.search(r"[\ud800-\udfff]", name):
            raise ValueError(f"{file} is not a list of names: entry {number} is {name!r:.80}.")
    return names


def write_shards(batches: Iterable[Any], folder: str | Path, names: Iterable[str] | None = None) -> Shards:
    """Write batches of rows as npz files, one after the other.

    Parameters
    ----------
    batches : iterable of arrays or sparse matrices
        Batches of rows.
    folder : path
        Folder to write; it must not exist, or be empty. If an error occurs, nothing is written.
    names : iterable of str, optional
        Names of the features, written to ``names.json``.

    Returns
    -------
    Shards
    """
    with new_folder(folder) as new:
        fill(new, batches, names)
    return open_shards(folder)


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Create a folder for shards that appears only if no error occurs; refuse a folder that is not empty."""
    if os.path.isdir(folder) and os.listdir(folder):
        raise FileExistsError(f"{folder} already contains files: give a new folder, or empty this one.")
    with whole_folder(Path(folder), ours=[SHARDS, NAMES]) as new:
        yield new


def fill(folder: Path, batches: Iterable[Any], names: Iterable[str] | None) -> None:
    """Write batches of rows and the names of their features into an existing folder."""
    if callable(batches):
        raise TypeError("batches is a function: pass its result, batches().")
    if getattr(batches, "ndim", 0) == 2:
        raise TypeError("batches is one matrix: pass a list of batches, [X], or an iterator over them.")
    labels = None if names is None else [str(name) for name in names]
    p = -1
    for number, batch in enumerate(batches):
        # Before SciPy 1.13, csr_array would make one row of other batches.
        about = f"Batch {number} has {np.ndim(batch)} dimensions: it needs two, rows and features."
        require(np.ndim(batch) == 2, about)
        X = csr_array(batch)
        p = X.shape[1] if number == 0 else p
        if labels is not None and len(labels) != p:
            raise ValueError(f"names has {len(labels)} names, but batch 0 has {p} features: give one for each.")
        about = f"Batch {number} has {X.shape[1]} features, but batch 0 has {p}: they must be equal."
        require(X.shape[1] == p, about)
        write_shard(folder / f"shard-{number:06d}.npz", X)
    require(p >= 0, "batches is empty: there is nothing to write.")
    if labels is not None:
        text = json.dumps(labels, ensure_ascii=False).encode()
        write_whole(folder / NAMES, lambda file: file.write(text))


def write_shard(path: Path, X: csr_array) -> Path:
    """Write rows into one file, completely or not at all."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    write_whole(path, lambda file: np.savez(file, **parts))
    return path


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, list[str] | None]]:
    """Open a shard without reading its rows: the file and, for Parquet, its features. Errors name the file."""
    with naming(file, "a shard", ImportError):
        if file.suffix == ".parquet":
            parquet_file, columns = _open_parquet(file)
            with parquet_file:
                yield parquet_file, columns
        else:
            with open_npz(file) as content:
                yield content, None


def read_shard(file: Path) -> Any:
    """Read the rows of one file: a CSR array from npz, an array from Parquet."""
    with _opened(file) as (content, columns):
        if columns is not None:
            return content.read(columns=columns).to_pandas(ignore_metadata=True).to_numpy()
        return stored_csr(content, file.stat().st_size)


def _size(file: Path) -> tuple[int, int, list[str] | None]:
    """Return the number of rows, the number of features and the names of a shard, without reading its rows."""
    with _opened(file) as (content, columns):
        if columns is not None:
            return content.metadata.num_rows, len(columns), columns
        if "format" in content and content["format"].item() != b"csr":
            raise ValueError(f"it has a {content['format'].item().decode()} matrix, not CSR")
        return *shape_of(content["shape"], file.stat().st_size), None


def _open_parquet(file: Path) -> tuple[Any, list[str]]:
    """Open a Parquet file without reading its rows, and return it with the columns that are features."""
    types = import_optional("pyarrow.types", "Parquet shards need pyarrow", "dask")
    from pyarrow import parquet

    parquet_file = parquet.ParquetFile(file)
    schema, length, n = parquet_file.schema_arrow, file.stat().st_size, parquet_file.metadata.num_rows
    index = (schema.pandas_metadata or {}).get("index_columns", [])  # of a pandas frame
    columns = [name for name in schema.names if name not in index]
    require(len(set(columns)) == len(columns), "two of its columns have the same name")
    check_shape("it", n, len(columns), length)
    require(
        8 * n * len(columns) <= most(length),
        f"its {n} × {len(columns)} numbers take more than {MOST_GROWTH} times its length in memory: write these rows "
        "with onmf.datasets.write_shards, which stores no zeros, or in smaller files",
    )
    groups = [parquet_file.metadata.row_group(i).num_rows for i in range(parquet_file.metadata.num_row_groups)]
    wrong = sum(groups) != n or min(groups, default=0) < 0
    require(not wrong, f"it claims {n} rows, but its row groups have {sum(groups)}")
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    for name, kind in ((name, schema.field(name).type) for name in columns):
        about = f"its column {name[:80]!r} has {kind} values: leave out columns that are not numeric"
        require(any(is_number(kind) for is_number in numbers), about)
    return parquet_file, columns


def import_dask() -> tuple[Any, ...]:
    """Import Dask and Dask arrays; the error names the package if it is missing."""
    return tuple(import_optional(name, "Dask arrays need dask", "dask") for name in ("dask", "dask.array"))


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
    return _to_dask("hdf5", Path(path), "X" if layer is None else f"layers/{layer}", rows)


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
    return _to_dask("zarr", Path(path), name or "", rows)


def check_size(name: str, value: Any, needs: str) -> None:
    """Refuse a number of rows that is not a positive integer."""
    require(isinstance(value, Integral) and int(value) >= 1, f"{name}={value} is not allowed: {needs}.")


def _to_dask(kind: isolated_readers.Kind, path: Path, name: str, rows: int) -> Any:
    dask, da = import_dask()
    check_size("rows", rows, "a chunk needs at least 1 row")
    matrix = open_matrix(store := open_store(kind, path), name)
    n, p = matrix.shape
    with store.naming(name):
        require(
            not matrix.by_columns,
            "it is stored by columns (CSC), so it cannot be read row by row: convert it with adata.X = adata.X.tocsr() "
            "and write it again.",
        )
        if matrix.dense:
            check_memory(min(rows, n) * p * matrix.width, store.length)
    require(n, f"{path} has no rows.")
    meta = np.empty((0, p), dtype=matrix.dtype) if matrix.dense else csr_array((0, p), dtype=matrix.dtype)
    read = dask.delayed(matrix.read, pure=False)
    return da.concatenate(
        [da.from_delayed(read(a, b), (b - a, p), meta=meta) for a, b in pairwise([*range(0, n, rows), n])]
    )


class Store(NamedTuple):
    """An HDF5 file or Zarr store of ``length`` bytes."""

    kind: isolated_readers.Kind
    path: Path
    length: int

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of :mod:`onmf.io.isolated_readers`, in a separate process where it may crash or hang."""
        if self.kind == "zarr" and function in NUMBERS:
            return function(str(self.path), self.kind, *arguments)
        path = self.path.resolve()  # the other process may have a different working folder
        seconds = None if function is isolated_readers.read else NAMES_SECONDS + self.length / 1e6
        return _reader(path, self.length)(function, str(path), self.kind, *arguments, seconds=seconds)

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Add the name of the file, and of a place in it, to errors."""
        try:
            yield
        except (ImportError, ReaderEnded):
            raise
        except KeyError as error:
            raise KeyError(f"{self.path} has no {name}: {error.args[0]}.") from error
        except Exception as error:  # h5py and zarr raise many kinds of errors for damaged files
            raise ValueError(f"{self.path}, {name or 'the store itself'}, cannot be read: {error}") from error


@lru_cache(maxsize=2)
def _reader(path: Path, length: int) -> Isolated:
    """The process that reads a file. Those of the last files are kept."""
    return Isolated.for_file(path, length)


def open_store(kind: isolated_readers.Kind, path: Path) -> Store:
    """The file or store at a path, if the package that reads it is installed."""
    files, package = NEEDS[kind]
    if find_spec(package) is None:
        raise ImportError(f"{files} need {package}: pip install 'onmf[cells]'.")
    parts = [path] if path.is_file() else [Path(root, name) for root, _, names in os.walk(path) for name in names]
    return Store(kind, path, sum(part.stat().st_size for part in parts if part.is_file()))


class StoredMatrix(NamedTuple):
    """A matrix in a file, with a consistent description."""

    store: Store
    name: str
    shape: tuple[int, int]
    dtype: str
    width: int  # bytes of an entry, including its index
    entries: int  # of a sparse matrix
    transposed: bool  # the rows of the matrix are columns in the file
    dense: bool = True
    by_columns: bool = False  # it is a sparse matrix that can be read only as a whole or column by column

    def read(self, start: int, stop: int) -> Any:
        """Read the rows from ``start`` to ``stop``; if the matrix is stored by columns, its columns, as rows."""
        lines, across = self.shape[::-1] if self.by_columns else self.shape
        stop = min(stop, lines)
        with self.store.naming(self.name):
            if self.dense:
                [rows] = self.store.call(isolated_readers.read, (self.name, start, stop, int(self.transposed)))
                return rows.T if self.transposed else rows
            [starts] = self.store.call(isolated_readers.read, (f"{self.name}/indptr", start, stop + 1))
            a, b = int(starts[0]), int(starts[-1])
            about = f"rows {start} to {stop} are entries {a} to {b}, but there are only {self.entries}."
            require(0 <= a <= b <= self.entries, about)
            check_memory((b - a) * self.width, self.store.length)
            parts = [(f"{self.name}/{key}", a, b) for key in ("data", "indices")]
            data, indices = self.store.call(isolated_readers.read, *parts)
            return as_csr(data, indices, starts - starts[0], (stop - start, across))


def open_matrix(store: Store, name: str, *, transposed: bool = False) -> StoredMatrix:
    """Describe a matrix in a file, whose columns are its rows if ``transposed``; refuse an inconsistent description."""
    with store.naming(name):
        about = store.call(isolated_readers.describe, name)
        arrays, dtype = about["arrays"], np.dtype(about["dtype"])
        check_memory(about["chunk"], store.length)
        n, p = shape = shape_of(about["shape"], store.length)
        check_array("data", len(arrays["data"]["shape"]) if arrays else 2, dtype, 1 if arrays else 2)
        matrix = StoredMatrix(store, name, (p, n) if transposed else shape, dtype.str, dtype.itemsize, 0, transposed)
        if not arrays:
            return matrix
        for key in ("indices", "indptr"):
            check_array(key, len(arrays[key]["shape"]), np.dtype(arrays[key]["dtype"]))
        lines, line = (n, "rows") if about["by_rows"] else (p, "columns")
        [found] = arrays["indptr"]["shape"]
        require(found == lines + 1, f"its shape has {lines} {line}, but its indptr has {found} entries.")
        return matrix._replace(
            dense=False,
            width=dtype.itemsize + np.dtype(arrays["indices"]["dtype"]).itemsize,
            entries=min(arrays[key]["shape"][0] for key in ("data", "indices")),
            by_columns=about["by_rows"] == transposed,
        )


def check_memory(size: int, length: int) -> None:
    """Refuse to read ``size`` bytes at once from a file that is far smaller."""
    require(
        size <= most(length),
        f"{size >> 20} MB would be read at once from a file of {length} bytes, so nearly all of them would be zeros. "
        "Ask for fewer rows at a time (rows=), or write the file with smaller chunks.",
    )
