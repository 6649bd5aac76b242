"""Shards: a folder of files, each with some of the rows, of which only what is worked on is read."""

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
"""What the files with the rows are called."""

ROWS = 10_000
"""Rows of a piece, where a file does not say how it is cut."""


@dataclass(frozen=True)
class Shards:
    """A folder of files, each with some of the rows. Called, it reads them one after the other.

    It is what :meth:`onmf.ONMF.fit` takes for data that do not fit in memory: ``ONMF(20).fit(open_shards(folder))``.

    Attributes
    ----------
    files : tuple of path
        The files, in the order of the rows.
    sizes : tuple of int
        Rows of each.
    features : int
        Features of all of them.
    names : (features,) array of str or None
        Names of the features, where the files have them.
    """

    files: tuple[Path, ...]
    sizes: tuple[int, ...]
    features: int
    names: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features of the whole."""
        return sum(self.sizes), self.features

    def __call__(self) -> Iterator[Any]:
        return (read_shard(file) for file in self.files)

    def block(self, number: int) -> Any:
        """The rows of one file."""
        return read_shard(self.files[number])

    def __repr__(self) -> str:
        n, p = self.shape
        return f"<Shards {self.files[0].parent}: {n} × {p} in {len(self.files)} files>"

    def to_dask(self) -> Any:
        """A Dask array with one chunk for each file, of which nothing is read yet.

        It has no names, since Dask arrays have none: where they are wanted, pass ``names`` to
        :meth:`onmf.ONMF.top_features`.
        """
        dask, da = import_dask()
        like = csr_array((0, self.features)) if self.files[0].suffix == ".npz" else np.empty((0, self.features))
        blocks = [
            da.from_delayed(dask.delayed(read_shard, pure=False)(file), (n, self.features), meta=like)
            for file, n in zip(self.files, self.sizes, strict=True)
        ]
        return da.concatenate(blocks)


def open_shards(folder: str | Path) -> Shards:
    """Open a folder of npz or Parquet files, each with some of the rows, in the order of their names.

    Parameters
    ----------
    folder : path
        With ``.npz`` files, as SciPy's ``save_npz`` or :func:`write_shards` writes them, or ``.parquet`` files whose
        columns are features. Files whose names begin with a dot are passed over.

    Returns
    -------
    Shards
        Of which nothing but the sizes has been read.

    Examples
    --------
    >>> import tempfile
    >>> from onmf import ONMF
    >>> from onmf.datasets import make_counts, open_shards, write_shards
    >>> X = make_counts(500, 60, 4, random_state=0).X
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_shards((X[i : i + 100] for i in range(0, 500, 100)), folder)
    ...     model = ONMF(n_clusters=4).fit(open_shards(folder))
    >>> model.labels_.shape
    (500,)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: give the folder that holds the shards.")
    found = {
        suffix: sorted(f for f in folder.glob(f"*{suffix}") if not f.name.startswith("."))
        for suffix in (".npz", ".parquet")
    }
    if bool(found[".npz"]) == bool(found[".parquet"]):
        which = "both .npz and .parquet files" if found[".npz"] else "neither .npz nor .parquet files"
        raise ValueError(f"{folder} holds {which}: it must hold shards of one kind.")
    files = tuple(found[".npz"] or found[".parquet"])
    _check_series(files)
    sizes: list[tuple[int, int]] = []
    names: list[str] | None = None
    for file in files:
        n, p, columns = _size(file)
        if sizes and p != sizes[0][1]:
            raise ValueError(f"{file} has {p} features, but {files[0]} has {sizes[0][1]}: all shards need the same.")
        if columns is not None and names is not None and columns != names:
            raise ValueError(f"{file} has other columns than {files[0]}: all shards need the same, in the same order.")
        names = names or columns
        sizes.append((n, p))
    if names is None and (folder / NAMES).exists():
        names = _read_names(folder / NAMES, sizes[0][1])
    labels = None if names is None else np.array(names, dtype=object)
    return Shards(files, tuple(n for n, _ in sizes), sizes[0][1], labels)


def _check_series(files: tuple[Path, ...]) -> None:
    """Refuse files that cannot be read, and a gap in the numbers that :func:`write_shards` gives."""
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} is not a file: a folder of shards must hold files under such names.")
    numbered = {int(match[1]): file for file in files if (match := re.fullmatch(r"shard-(\d{6,})\.\w+", file.name))}
    missing = next((number for number in range(len(numbered)) if number not in numbered), None)
    if missing is not None:
        raise ValueError(
            f"{files[0].with_name(f'shard-{missing:06d}{files[0].suffix}')} is missing: there are {len(numbered)} "
            f"shards, up to {numbered[max(numbered)].name}. Put it back, or, if its rows are to be left out, number "
            "the others without a gap."
        )


def _read_names(file: Path, features: int) -> list[str]:
    """The names of the features, from their file."""
    try:
        names = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file} is no list of names: {error}.") from error
    if not isinstance(names, list) or len(names) != features:
        raise ValueError(f"{file} is no list of {features} names, one for each feature.")
    for number, name in enumerate(names):
        # JSON can hold half a character, which can be neither printed nor saved.
        if not isinstance(name, str) or re.search(r"[\ud800-\udfff]", name):
            raise ValueError(f"{file} is no list of names: entry {number} is {name!r:.80}.")
    return names


def write_shards(batches: Iterable[Any], folder: str | Path, names: Iterable[str] | None = None) -> Shards:
    """Write batches of rows as npz files, one after the other.

    Parameters
    ----------
    batches : iterable of arrays or sparse matrices
        Rows.
    folder : path
        Where to; it must not exist, or be empty. It is there as a whole or not at all.
    names : iterable of str, optional
        Names of the features, which go into ``names.json``.

    Returns
    -------
    Shards
    """
    with new_folder(folder) as new:
        fill(new, batches, names)
    return open_shards(folder)


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder for shards that takes its place when all went well; one that holds anything is refused."""
    folder = Path(folder)
    if folder.is_dir() and (held := sorted(os.listdir(folder))):
        what = "shards" if any(name.endswith((".npz", ".parquet")) for name in held) else repr(held[0])
        raise FileExistsError(f"{folder} holds {what} already: give a new folder, or empty this one.")
    with whole_folder(folder, ours=[SHARDS, NAMES]) as new:
        yield new


def fill(folder: Path, batches: Iterable[Any], names: Iterable[str] | None) -> None:
    """Write batches of rows and the names of their features into a folder that is there."""
    if callable(batches):
        raise TypeError("batches is a function: pass what it returns, batches().")
    if getattr(batches, "ndim", 0) == 2:
        raise TypeError("batches is one matrix: pass a list of batches, [X], or an iterator over them.")
    labels = None if names is None else [str(name) for name in names]
    p = None
    for number, batch in enumerate(batches):
        X = csr_array(batch)
        if X.ndim != 2:
            raise ValueError(f"Batch {number} has {X.ndim} dimensions: rows and features are needed.")
        if p is None:
            p = X.shape[1]
            if labels is not None and len(labels) != p:
                raise ValueError(f"names has {len(labels)} names, but batch 0 has {p} features: each needs one.")
        if X.shape[1] != p:
            raise ValueError(f"Batch {number} has {X.shape[1]} features, but batch 0 has {p}: all need the same.")
        write_shard(folder / f"shard-{number:06d}.npz", X)
    if p is None:
        raise ValueError("batches is empty: there is nothing to write.")
    if labels is not None:
        text = json.dumps(labels, ensure_ascii=False)
        write_whole(folder / NAMES, lambda file: file.write(text.encode()))


def write_shard(path: Path, X: csr_array) -> None:
    """Write rows into one file, whole or not at all."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    write_whole(path, lambda file: np.savez(file, **parts))


def read_shard(file: Path) -> Any:
    """The rows of one file: a CSR array from npz, an array from Parquet."""
    try:
        if file.suffix == ".parquet":
            about, columns = _open_parquet(file)
            with about:
                return about.read(columns=columns).to_pandas(ignore_metadata=True).to_numpy()
        with open_npz(file) as content:
            if "indptr" not in content:
                raise ValueError(f"it holds no CSR matrix, but {', '.join(content.files)[:200]}")
            shape = shape_of(content["shape"], file.stat().st_size)
            return as_csr(content["data"], content["indices"], content["indptr"], shape)
    except ImportError:
        raise
    except Exception as error:  # NumPy and Arrow raise whatever they stumble over in a damaged file
        raise ValueError(f"{file} cannot be read as a shard: {error}") from error


def _size(file: Path) -> tuple[int, int, list[str] | None]:
    """Rows, features and names of a shard, without reading its rows."""
    try:
        if file.suffix == ".parquet":
            about, columns = _open_parquet(file)
            with about:
                return about.metadata.num_rows, len(columns), columns
        with open_npz(file) as content:
            if "format" in content and content["format"].item() != b"csr":
                raise ValueError(f"it holds a {content['format'].item().decode()} matrix, not CSR")
            n, p = shape_of(content["shape"], file.stat().st_size)
            return n, p, None
    except ImportError:
        raise
    except Exception as error:  # as above
        how = "pandas.DataFrame.to_parquet" if file.suffix == ".parquet" else "scipy.sparse.save_npz"
        why = str(error).rstrip(".")
        raise ValueError(f"{file} cannot be read as a shard: {why}. Write it with {how}.") from error


def _open_parquet(file: Path) -> tuple[Any, list[str]]:
    """A Parquet file whose rows have not been read, and the columns that are features."""
    parquet, types = _parquet()
    about = parquet.ParquetFile(file)
    schema, length = about.schema_arrow, file.stat().st_size
    columns, n = _features(schema), about.metadata.num_rows
    if len(set(columns)) < len(columns):
        raise ValueError("two of its columns have the same name")
    check_shape("it", n, len(columns), length)
    if 8 * n * len(columns) > most(length):
        raise ValueError(
            f"its {n} × {len(columns)} numbers take more than {MOST_GROWTH} times its length in memory: write such "
            "rows with onmf.datasets.write_shards, which keeps no zeros, or in smaller files"
        )
    groups = [about.metadata.row_group(i).num_rows for i in range(about.metadata.num_row_groups)]
    if sum(groups) != n or min(groups, default=0) < 0:
        raise ValueError(f"it says that it has {n} rows, and that its parts have {sum(groups)}")
    features, numbers = set(columns), (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name in features and not any(is_number(kind) for is_number in numbers):
            raise ValueError(f"its column {name[:80]!r} holds {kind} values: leave out what are no numbers")
    return about, columns


def _features(schema: Any) -> list[str]:
    """The columns of a Parquet file, without those in which pandas keeps the index of a frame."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in schema.names if name not in index]


def _parquet() -> tuple[Any, Any]:
    """Arrow's reader and its types, or a sentence that says what is missing."""
    try:
        import pyarrow.parquet
        import pyarrow.types
    except ImportError as error:
        raise ImportError("Parquet shards need pyarrow: pip install 'onmf[dask]'.") from error
    return pyarrow.parquet, pyarrow.types


def import_dask() -> tuple[Any, Any]:
    """Dask and its arrays, or a sentence that says what is missing."""
    try:
        import dask
        import dask.array
    except ImportError as error:
        raise ImportError("Dask arrays need dask: pip install 'onmf[dask]'.") from error
    return dask, dask.array
