"""Data in pieces: folders of shards, Zarr and h5ad, of which only what is worked on is read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
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

CHARACTERS = 1 << 25
"""Characters of the texts of a shard, about: some 300 MB while they are counted."""


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
    _without_shards(folder)
    number = -1
    for number, batch in enumerate(batches):
        _write_shard(folder / f"shard-{number:06d}.npz", csr_array(batch))
    if number < 0:
        raise ValueError("batches is empty: there is nothing to write.")
    if names is not None:
        text = json.dumps([str(name) for name in names], ensure_ascii=False)
        write_whole(folder / NAMES, lambda file: file.write(text.encode()))
    return open_shards(folder)


def _without_shards(folder: Path) -> None:
    """Make a folder, or refuse one that holds shards."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.npz")) or any(folder.glob("*.parquet")):
        raise FileExistsError(f"{folder} holds shards already: give a new folder, or empty this one.")


def _write_shard(path: Path, X: csr_array) -> None:
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    write_whole(path, lambda file: np.savez(file, **parts))


def count_shards(
    texts: Iterable[str],
    folder: str | Path,
    vectorizer: CountVectorizer | None = None,
    *,
    documents: int = ROWS,
) -> Shards:
    """Count the words of a corpus that does not fit in memory, and write the counts as shards.

    The texts are gone through once. In memory are the words, and the texts and counts of one shard.

    Parameters
    ----------
    texts : iterable of str
        The texts.
    folder : path
        Where to; it must not hold shards yet.
    vectorizer : CountVectorizer, optional
        Says what a word is, and which ones count (``min_df``, ``max_df``, ``max_features``, ``vocabulary``);
        scikit-learn's default if there is none. It is left as it is.
    documents : int, default=10000
        Documents of a shard, at most: long ones make it end before.

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
    ...     shards = count_shards(texts, folder, documents=2)
    >>> shards.shape, shards.names.tolist()
    ((3, 5), ['green', 'red', 'tea', 'white', 'wine'])
    """
    if documents < 1:
        raise ValueError(f"documents={documents} is not allowed: a shard needs at least 1 document.")
    counter = CountVectorizer(dtype=np.int32) if vectorizer is None else vectorizer
    return count_pieces(texts, Path(folder), counter, documents=documents)[0]


def count_pieces(
    texts: Iterable[str],
    folder: Path,
    vectorizer: CountVectorizer,
    *,
    documents: int = ROWS,
    enough: Callable[[int], int] = lambda n: 1,
    empty: bool = True,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Shards, Array]:
    """Count words in shards: first with all words, then, once it is known which words count, with those.

    Parameters
    ----------
    texts, folder, vectorizer, documents
        As in :func:`count_shards`.
    enough : callable
        How many of n documents must have a word, besides what the vectorizer says; ignored where no word would be left.
    empty : bool, default=True
        Whether documents that have none of the words are rows, too.
    progress : callable, optional
        Called with the share of the shards that are written.

    Returns
    -------
    Shards, (documents,) array of int
        And the number of words of each document, empty ones included.
    """
    _without_shards(folder)
    plain = clone(vectorizer).set_params(min_df=1, max_df=1.0, max_features=None)
    lengths: list[Array] = []
    with TemporaryDirectory(dir=folder, prefix=".counting-") as aside:
        seen, files = _Words(), list[Path]()
        for number, batch in enumerate(batched(texts, documents, CHARACTERS)):
            files.append(Path(aside, f"{number:06d}.npz"))
            _write_shard(files[-1], seen.take_in(_counted(plain, batch), plain))
        if not files:
            raise ValueError("There are no texts to count words in.")
        words, columns = seen.chosen(vectorizer, enough)

        def batches() -> Iterator[Any]:
            for number, file in enumerate(files, 1):
                X = _with_columns(read_shard(file), columns, len(words))
                file.unlink()
                sizes = np.asarray(X.sum(axis=1)).ravel()
                lengths.append(sizes)
                if empty or sizes.any():
                    yield X if empty else X[np.flatnonzero(sizes)]
                progress(number / len(files))

        shards = write_shards(batches(), folder, words)
    return shards, np.concatenate(lengths)


def _counted(vectorizer: CountVectorizer, texts: list[str]) -> csr_array:
    """The counts of all words of some texts."""
    try:
        return csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        vectorizer.vocabulary_ = {}
        return csr_array((len(texts), 0), dtype=vectorizer.dtype)


class _Words:
    """The words seen so far, in the order of their coming: how many documents have each, and how often it comes."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.having = self.often = np.zeros(0, dtype=np.int64)
        self.n = 0

    def take_in(self, X: csr_array, vectorizer: CountVectorizer) -> csr_array:
        """Take in the counts of more documents; → the same counts with a column for each word seen so far."""
        places = self.places
        names = vectorizer.get_feature_names_out() if X.shape[1] else []
        columns = np.fromiter((places.setdefault(word, len(places)) for word in names), np.int64, len(names))
        more = np.zeros(len(places) - len(self.having), dtype=np.int64)
        self.having, self.often = (np.concatenate([old, more]) for old in (self.having, self.often))
        self.having[columns] += np.bincount(X.indices, minlength=X.shape[1])
        self.often[columns] += np.asarray(X.sum(axis=0)).ravel()
        self.n += X.shape[0]
        return csr_array((X.data, columns[X.indices], X.indptr), shape=(X.shape[0], len(places)))

    def chosen(self, vectorizer: CountVectorizer, enough: Callable[[int], int]) -> tuple[list[str], Array]:
        """The words that count, as the vectorizer would choose them from all texts at once, sorted.

        And for each word seen its column among them, −1 where it does not count.
        """
        names = vectorizer.get_feature_names_out() if vectorizer.vocabulary is not None else sorted(self.places)
        order = np.fromiter((self.places.get(word, -1) for word in names), np.int64, len(names))
        keep = np.ones(len(names), dtype=bool)
        if vectorizer.vocabulary is None:
            having, often = self.having[order], self.often[order]
            limits = vectorizer.min_df, vectorizer.max_df
            low, high = (float(x) if isinstance(x, Integral) else float(x) * self.n for x in limits)
            keep = (having >= low) & (having <= high)
            if vectorizer.max_features is not None and np.count_nonzero(keep) > vectorizer.max_features:
                inside = np.flatnonzero(keep)
                keep[:] = False
                keep[inside[(-often[inside]).argsort()[: vectorizer.max_features]]] = True  # ties as scikit-learn's
            if not keep.any():
                raise ValueError(
                    f"None of the {self.n} texts has a word that counts: lower min_df, raise max_df, choose the "
                    "language of the stop words, or change token_pattern."
                )
            if (frequent := keep & (having >= enough(self.n))).any():
                keep = frequent
        columns = np.full(len(self.places), -1, dtype=np.int64)
        kept = np.flatnonzero(keep)
        known = order[kept] >= 0
        columns[order[kept[known]]] = np.flatnonzero(known)
        return [str(names[i]) for i in kept], columns


def _with_columns(X: csr_array, columns: Array, p: int) -> csr_array:
    """The counts of the words that have a column."""
    places = columns[X.indices]
    kept = places >= 0
    before = np.concatenate([[0], np.cumsum(kept)])
    out = csr_array((X.data[kept], places[kept], before[X.indptr]), shape=(X.shape[0], p))
    out.sort_indices()
    return out


def batched(texts: Iterable[str], number: int, characters: int) -> Iterator[list[str]]:
    """Lists of so many texts, or fewer where they are long; the last one of what is left."""
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == number or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
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
