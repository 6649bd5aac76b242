"""Shards: a folder of files that each hold some of the rows; one file is in memory at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array
from onmf.io.files import whole_folder, write_whole
from onmf.io.limits import MOST_GROWTH, check_shape, most

from .stored import as_csr, open_npz, shape_of

NAMES = "names.json"
"""File with the names of the features, beside the shards."""

SHARDS = "shard-*.npz"
"""Pattern of the names of the files with the rows."""

ROWS = 10_000
"""Default number of rows of a piece."""


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
    by_suffix = {
        suffix: sorted(f for f in folder.glob(f"*{suffix}") if not f.name.startswith("."))
        for suffix in (".npz", ".parquet")
    }
    if bool(by_suffix[".npz"]) == bool(by_suffix[".parquet"]):
        which = "both .npz and .parquet files" if by_suffix[".npz"] else "neither .npz nor .parquet files"
        raise ValueError(f"{folder} has {which}: it must have shards of one kind.")
    files = tuple(by_suffix[".npz"] or by_suffix[".parquet"])
    _check_series(files)
    sizes: list[tuple[int, int]] = []
    names: list[str] | None = None
    for file in files:
        n, p, columns = _size(file)
        if sizes and p != sizes[0][1]:
            raise ValueError(
                f"{file} has {p} features, but {files[0]} has {sizes[0][1]}: all shards need the same number."
            )
        if columns is not None and names is not None and columns != names:
            raise ValueError(
                f"{file} has other columns than {files[0]}: all shards need the same columns, in the same order."
            )
        names = names or columns
        sizes.append((n, p))
    if names is None and (folder / NAMES).exists():
        names = _read_names(folder / NAMES, sizes[0][1])
    labels = None if names is None else np.array(names, dtype=object)
    return Shards(files, tuple(n for n, _ in sizes), sizes[0][1], labels)


def _check_series(files: tuple[Path, ...]) -> None:
    """Refuse entries that are not files, and gaps in the numbers that :func:`write_shards` assigns."""
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a file: in a folder of shards, such names must belong to files.")
    numbered = {int(match[1]): file for file in files if (match := re.fullmatch(r"shard-(\d{6,})\.\w+", file.name))}
    missing = next((number for number in range(len(numbered)) if number not in numbered), None)
    if missing is not None:
        raise ValueError(
            f"{files[0].with_name(f'shard-{missing:06d}{files[0].suffix}')} is missing: there are {len(numbered)} "
            f"shards, up to {numbered[max(numbered)].name}. Restore it, or renumber the others without a gap to leave "
            "out its rows."
        )


def _read_names(file: Path, features: int) -> list[str]:
    """Read the names of the features."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file} is not a list of names: {error}.") from error
    if not isinstance(names, list) or len(names) != features:
        raise ValueError(f"{file} is not a list of {features} names, one for each feature.")
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
    folder = Path(folder)
    if folder.is_dir() and (entries := sorted(os.listdir(folder))):
        content = "shards" if any(name.endswith((".npz", ".parquet")) for name in entries) else repr(entries[0])
        raise FileExistsError(f"{folder} already contains {content}: give a new folder, or empty this one.")
    with whole_folder(folder, ours=[SHARDS, NAMES]) as new:
        yield new


def fill(folder: Path, batches: Iterable[Any], names: Iterable[str] | None) -> None:
    """Write batches of rows and the names of their features into an existing folder."""
    if callable(batches):
        raise TypeError("batches is a function: pass its result, batches().")
    if getattr(batches, "ndim", 0) == 2:
        raise TypeError("batches is one matrix: pass a list of batches, [X], or an iterator over them.")
    labels = None if names is None else [str(name) for name in names]
    p = None
    for number, batch in enumerate(batches):
        if np.ndim(batch) != 2:  # before SciPy 1.13, csr_array would make one row of it
            raise ValueError(f"Batch {number} has {np.ndim(batch)} dimensions: it needs two, rows and features.")
        X = csr_array(batch)
        if p is None:
            p = X.shape[1]
            if labels is not None and len(labels) != p:
                raise ValueError(f"names has {len(labels)} names, but batch 0 has {p} features: give one for each.")
        if X.shape[1] != p:
            raise ValueError(f"Batch {number} has {X.shape[1]} features, but batch 0 has {p}: they must be equal.")
        write_shard(folder / f"shard-{number:06d}.npz", X)
    if p is None:
        raise ValueError("batches is empty: there is nothing to write.")
    if labels is not None:
        text = json.dumps(labels, ensure_ascii=False)
        write_whole(folder / NAMES, lambda file: file.write(text.encode()))


def write_shard(path: Path, X: csr_array) -> None:
    """Write rows into one file, completely or not at all."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    write_whole(path, lambda file: np.savez(file, **parts))


def read_shard(file: Path) -> Any:
    """Read the rows of one file: a CSR array from npz, an array from Parquet."""
    try:
        if file.suffix == ".parquet":
            parquet_file, columns = _open_parquet(file)
            with parquet_file:
                return parquet_file.read(columns=columns).to_pandas(ignore_metadata=True).to_numpy()
        with open_npz(file) as content:
            if "indptr" not in content:
                raise ValueError(f"it has no CSR matrix, but {', '.join(content.files)[:200]}")
            shape = shape_of(content["shape"], file.stat().st_size)
            return as_csr(content["data"], content["indices"], content["indptr"], shape)
    except ImportError:
        raise
    except Exception as error:  # NumPy and Arrow raise many kinds of errors for damaged files
        raise ValueError(f"{file} cannot be read as a shard: {error}") from error


def _size(file: Path) -> tuple[int, int, list[str] | None]:
    """Return the number of rows, the number of features and the names of a shard, without reading its rows."""
    try:
        if file.suffix == ".parquet":
            parquet_file, columns = _open_parquet(file)
            with parquet_file:
                return parquet_file.metadata.num_rows, len(columns), columns
        with open_npz(file) as content:
            if "format" in content and content["format"].item() != b"csr":
                raise ValueError(f"it has a {content['format'].item().decode()} matrix, not CSR")
            n, p = shape_of(content["shape"], file.stat().st_size)
            return n, p, None
    except ImportError:
        raise
    except Exception as error:  # as above
        writer = "pandas.DataFrame.to_parquet" if file.suffix == ".parquet" else "scipy.sparse.save_npz"
        reason = str(error).rstrip(".")
        raise ValueError(f"{file} cannot be read as a shard: {reason}. Write it with {writer}.") from error


def _open_parquet(file: Path) -> tuple[Any, list[str]]:
    """Open a Parquet file without reading its rows, and return it with the columns that are features."""
    parquet, types = _parquet()
    parquet_file = parquet.ParquetFile(file)
    schema, length = parquet_file.schema_arrow, file.stat().st_size
    columns, n = _features(schema), parquet_file.metadata.num_rows
    if len(set(columns)) < len(columns):
        raise ValueError("two of its columns have the same name")
    check_shape("it", n, len(columns), length)
    if 8 * n * len(columns) > most(length):
        raise ValueError(
            f"its {n} × {len(columns)} numbers take more than {MOST_GROWTH} times its length in memory: write these "
            "rows with onmf.datasets.write_shards, which stores no zeros, or in smaller files"
        )
    groups = [parquet_file.metadata.row_group(i).num_rows for i in range(parquet_file.metadata.num_row_groups)]
    if sum(groups) != n or min(groups, default=0) < 0:
        raise ValueError(f"it claims {n} rows, but its row groups have {sum(groups)}")
    features, numbers = set(columns), (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in features and not any(is_number(kind) for is_number in numbers):
            raise ValueError(f"its column {name[:80]!r} has {kind} values: leave out columns that are not numeric")
    return parquet_file, columns


def _features(schema: Any) -> list[str]:
    """Return the columns of a Parquet file, without those that hold the index of a pandas frame."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name not in index]


def _parquet() -> tuple[Any, Any]:
    """Import Arrow's Parquet reader and types; the error names the package if it is missing."""
    try:
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise ImportError("Parquet shards need pyarrow: pip install 'onmf[dask]'.") from error
    return pyarrow.parquet, pyarrow.types


def import_dask() -> tuple[Any, Any]:
    """Import Dask and Dask arrays; the error names the package if it is missing."""
    try:
        import dask
        import dask.array
    except ImportError as error:
        raise ImportError("Dask arrays need dask: pip install 'onmf[dask]'.") from error
    return dask, dask.array
