"""Data in pieces: folders of shards, Zarr and h5ad, of which only what is worked on is read."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from onmf.divergence import Array
from onmf.files import write_whole

NAMES = "names.json"
"""File with the names of the features, beside the shards."""

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
        """A Dask array with one chunk for each file, of which nothing is read yet."""
        dask, da = _dask()
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
        names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
        if not isinstance(names, list) or len(names) != sizes[0][1]:
            raise ValueError(f"{folder / NAMES} is no list of {sizes[0][1]} names, one for each feature.")
    labels = None if names is None else np.array(names, dtype=object)
    return Shards(files, tuple(n for n, _ in sizes), sizes[0][1], labels)


def write_shards(batches: Iterable[Any], folder: str | Path, names: Iterable[str] | None = None) -> Shards:
    """Write batches of rows as npz files, one after the other; none of them is ever there by half.

    Parameters
    ----------
    batches : iterable of arrays or sparse matrices
        Rows.
    folder : path
        Where to; made if it is missing. It must not hold shards yet.
    names : iterable of str, optional
        Names of the features, which go into ``names.json``.

    Returns
    -------
    Shards
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.npz")) or any(folder.glob("*.parquet")):
        raise FileExistsError(f"{folder} holds shards already: give a new folder, or empty this one.")
    number = -1
    for number, batch in enumerate(batches):
        X = csr_array(batch)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        write_whole(folder / f"shard-{number:06d}.npz", lambda file, parts=parts: np.savez(file, **parts))  # type: ignore[misc]
    if number < 0:
        raise ValueError("batches is empty: there is nothing to write.")
    if names is not None:
        text = json.dumps([str(name) for name in names], ensure_ascii=False)
        write_whole(folder / NAMES, lambda file: file.write(text.encode()))
    return open_shards(folder)


def count_shards(
    texts: Callable[[], Iterable[str]],
    folder: str | Path,
    vectorizer: CountVectorizer | None = None,
    *,
    documents: int = ROWS,
) -> Shards:
    """Count the words of a corpus that does not fit in memory, and write the counts as shards.

    The texts are gone through twice: once for the words, once for the counts. In memory are the words, and the counts
    of one shard.

    Parameters
    ----------
    texts : callable
        Returns the texts, one after the other, the same ones each time.
    folder : path
        Where to; it must not hold shards yet.
    vectorizer : CountVectorizer, optional
        Says what a word is, and which ones count (``min_df``, ``max_df``, ``max_features``, ``vocabulary``);
        scikit-learn's default if there is none. It is left as it is.
    documents : int, default=10000
        Documents of a shard.

    Returns
    -------
    Shards
        With the words as ``names``.

    Examples
    --------
    >>> import tempfile
    >>> from onmf.datasets import count_shards
    >>> texts = ["red wine, white wine", "green tea", "red tea"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = count_shards(lambda: iter(texts), folder, documents=2)
    >>> shards.shape, shards.names.tolist()
    ((3, 5), ['green', 'red', 'tea', 'white', 'wine'])
    """
    counter = CountVectorizer(dtype=np.int32) if vectorizer is None else clone(vectorizer)
    if documents < 1:
        raise ValueError(f"documents={documents} is not allowed: a shard needs at least 1 document.")
    if counter.vocabulary is None:
        counter.set_params(vocabulary=_vocabulary(texts(), counter))

    def batches() -> Iterator[Any]:
        for batch in batched(texts(), documents):
            yield counter.transform(batch)

    return write_shards(batches(), folder, counter.get_feature_names_out())


def _vocabulary(texts: Iterable[str], vectorizer: CountVectorizer) -> list[str]:
    """The words that count, as the vectorizer would choose them from all texts at once; sorted."""
    analyse = vectorizer.build_analyzer()
    having, often, n = Counter[str](), Counter[str](), 0
    for text in texts:
        words = Counter(analyse(text))
        having.update(words.keys())
        if vectorizer.max_features is not None:
            often.update(words)
        n += 1
    if n == 0:
        raise ValueError("There are no texts to count words in.")
    low, high = (float(x) if isinstance(x, Integral) else float(x) * n for x in (vectorizer.min_df, vectorizer.max_df))
    kept = sorted(word for word, number in having.items() if low <= number <= high)
    if vectorizer.max_features is not None:
        kept = sorted(sorted(kept, key=lambda word: -often[word])[: vectorizer.max_features])
    if not kept:
        raise ValueError(
            f"None of the {n} texts has a word that counts: lower min_df, or change the stop words or token_pattern."
        )
    return kept


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of so many items, the last one of what is left."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def read_shard(file: Path) -> Any:
    """The rows of one file: a CSR array from npz, an array from Parquet."""
    if file.suffix == ".parquet":
        return _parquet().read_table(file).to_pandas().to_numpy()
    try:
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as content:
            if "indptr" not in content:
                raise ValueError(f"it holds no CSR matrix, but {', '.join(content.files)}")
            return csr_array(
                (content["data"], content["indices"], content["indptr"]), shape=tuple(content["shape"]), copy=False
            )
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} cannot be read as a shard: {error}") from error


def _size(file: Path) -> tuple[int, int, list[str] | None]:
    """Rows, features and names of a shard, without reading its rows."""
    if file.suffix == ".parquet":
        about = _parquet().ParquetFile(file)
        return about.metadata.num_rows, len(about.schema_arrow.names), list(about.schema_arrow.names)
    try:
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as content:
            if "format" in content and content["format"].item() != b"csr":
                raise ValueError(f"it holds a {content['format'].item().decode()} matrix, not CSR")
            n, p = (int(size) for size in content["shape"])
    except (ValueError, KeyError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} cannot be read as a shard: {error}. Write it with scipy.sparse.save_npz.") from error
    return n, p, None


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
    dask, da = _dask()
    if rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a chunk needs at least 1 row.")
    matrix, close = _matrix(opener, path, name)
    try:
        shape, like, starts = _describe(matrix, f"{path}, {name or 'the store itself'}")
    finally:
        close()
    n, p = shape
    cuts = [*range(0, n, rows), n]
    if n == 0:
        raise ValueError(f"{path} has no rows.")
    blocks = [
        da.from_delayed(
            dask.delayed(_read_rows, pure=False)(
                opener, path, name, a, b, None if starts is None else np.asarray(starts[a : b + 1])
            ),
            (b - a, p),
            meta=like,
        )
        for a, b in pairwise(cuts)
    ]
    return da.concatenate(blocks)


def _matrix(opener: Opener, path: Path, name: str) -> tuple[Any, Callable[[], None]]:
    file = opener(path)
    close: Callable[[], None] = getattr(file, "close", lambda: None)
    try:
        return (file[name] if name else file), close
    except KeyError as error:
        there = ", ".join(sorted(file.keys()))
        close()
        raise KeyError(f"{path} has no {name}: there are {there}.") from error


def _describe(matrix: Any, where: str) -> tuple[tuple[int, int], Any, Array | None]:
    """Shape, an empty example, and for CSR where each row begins."""
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
        shape = tuple(int(size) for size in matrix.attrs["shape"])
        example = csr_array((0, shape[1]), dtype=matrix["data"].dtype)
        return shape, example, matrix["indptr"][:]  # type: ignore[return-value]
    if len(matrix.shape) != 2:
        raise ValueError(f"{where}, has {len(matrix.shape)} dimensions: rows and features are needed.")
    return matrix.shape, np.empty((0, matrix.shape[1]), dtype=matrix.dtype), None


def _read_rows(opener: Opener, path: Path, name: str, start: int, stop: int, starts: Array | None) -> Any:
    """Rows start to stop, read now."""
    matrix, close = _matrix(opener, path, name)
    try:
        if starts is None:
            return np.asarray(matrix[start:stop])
        a, b = int(starts[0]), int(starts[-1])
        columns = int(matrix.attrs["shape"][1])
        return csr_array((matrix["data"][a:b], matrix["indices"][a:b], starts - a), shape=(stop - start, columns))
    finally:
        close()


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet shards need pyarrow: pip install 'onmf[dask]'.") from error
    return pyarrow.parquet


def _dask() -> tuple[Any, Any]:
    try:
        import dask
        import dask.array
    except ImportError as error:
        raise ImportError("Dask arrays need dask: pip install 'onmf[dask]'.") from error
    return dask, dask.array


def batches_of(X: Any, rows: int = ROWS) -> Callable[[], Iterator[Any]]:
    """A callable that reads a matrix on disk in batches of rows; each batch is all of it that is in memory."""

    def read() -> Iterator[Any]:
        for start in range(0, X.shape[0], rows):
            part = X[start : start + rows]
            yield part if issparse(part) else np.asarray(part)

    return read
