"""Counts the words of texts that do not fit in memory, and writes the counts as shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from onmf.divergence import Array

from .pieces import ROWS, Shards, fill, new_folder, open_shards, read_shard, write_shard
from .vocabulary import make_vectorizer, min_documents

CHARACTERS = 1 << 25
"""Approximate length of the texts of a shard, in characters; counting them takes about 300 MB."""


def count_shards(
    texts: Iterable[str],
    folder: str | Path,
    vectorizer: CountVectorizer | None = None,
    *,
    documents: int = ROWS,
) -> Shards:
    """Count the words of a corpus that does not fit in memory, and write the counts as shards.

    The texts are read once. Only the words, and the texts and counts of one shard, are in memory at a time.

    Parameters
    ----------
    texts : iterable of str
        The texts.
    folder : path
        Folder to write; it must not exist, or be empty. If an error occurs, nothing is written.
    vectorizer : CountVectorizer, optional
        Defines words and selects them (``min_df``, ``max_df``, ``max_features``, ``vocabulary``). It is not changed. By
        default :func:`onmf.text.make_vectorizer`, and rare words are removed: the words and counts are those of
        :func:`onmf.text.count_words`.
    documents : int, default=10000
        Most documents of a shard; long texts make it end earlier.

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
    if not isinstance(documents, Integral) or documents < 1:
        raise ValueError(f"documents={documents} is not allowed: a shard needs at least 1 document.")
    if isinstance(texts, str):
        raise TypeError("texts is one string: give a list of strings, or another iterable, with one for each document.")
    with new_folder(folder) as new:
        if vectorizer is None:
            count_pieces(texts, new, make_vectorizer(), documents=documents, enough=min_documents)
        else:
            count_pieces(texts, new, vectorizer, documents=documents)
    return open_shards(folder)


def count_pieces(
    texts: Iterable[str],
    folder: Path,
    vectorizer: CountVectorizer,
    *,
    documents: int = ROWS,
    enough: Callable[[int], int] = lambda n: 1,
    empty: bool = True,
    progress: Callable[[float], None] = lambda share: None,
) -> Array:
    """Count words in shards: first all words, then the selected ones, once the frequencies are known.

    Parameters
    ----------
    texts, vectorizer, documents
        As in :func:`count_shards`.
    folder : path
        Folder to write into; it must exist.
    enough : callable
        Maps n to the number of the n documents that must have a word, in addition to the limits of the vectorizer.
        Ignored if it would leave no word.
    empty : bool, default=True
        Whether documents without any of the words are rows, too.
    progress : callable, optional
        Called with the fraction of the shards that are written.

    Returns
    -------
    (documents,) array of int
        Number of words of each document, including empty documents.
    """
    if not isinstance(vectorizer, CountVectorizer) or isinstance(vectorizer, TfidfVectorizer):
        raise TypeError(f"vectorizer is a {type(vectorizer).__name__}, which does not count: use a CountVectorizer.")
    vectorizer = clone(vectorizer)
    plain = clone(vectorizer).set_params(min_df=1, max_df=1.0, max_features=None)
    lengths: list[Array] = []
    with TemporaryDirectory(dir=folder, prefix=".counting.onmf-") as scratch:
        seen, files = _Words(), list[Path]()
        for number, batch in enumerate(batched(texts, documents, CHARACTERS)):
            files.append(Path(scratch, f"{number:06d}.npz"))
            write_shard(files[-1], seen.add(_count(plain, batch), plain))
        if not files:
            raise ValueError("There are no texts to count words in.")
        words, columns = seen.select(vectorizer, enough)
        if not empty and not seen.counts.any():
            raise ValueError(
                f"None of the {seen.n} texts has a word of the vocabulary: give the vectorizer another one, or none."
            )

        def batches() -> Iterator[Any]:
            for number, file in enumerate(files, 1):
                X = _with_columns(read_shard(file), columns, len(words))
                file.unlink()
                sizes = np.asarray(X.sum(axis=1)).ravel()
                lengths.append(sizes)
                if empty or sizes.any():
                    yield X if empty else X[np.flatnonzero(sizes)]
                progress(number / len(files))

        fill(folder, batches(), words)
    return np.concatenate(lengths)


def _count(vectorizer: CountVectorizer, texts: list[str]) -> csr_array:
    """Count all words of some texts."""
    try:
        return csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        if "empty vocabulary" not in str(error):
            raise
        vectorizer.vocabulary_ = {}
        return csr_array((len(texts), 0), dtype=vectorizer.dtype)


class _Words:
    """The words seen so far, in order of appearance, with their document frequencies and total counts."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.frequencies = self.counts = np.zeros(0, dtype=np.int64)
        self.n = 0

    def add(self, X: csr_array, vectorizer: CountVectorizer) -> csr_array:
        """Add the counts of more documents, and return them with a column for each word seen so far."""
        index = self.index
        names = vectorizer.get_feature_names_out() if X.shape[1] else []
        columns = np.fromiter((index.setdefault(word, len(index)) for word in names), np.int64, len(names))
        more = np.zeros(len(index) - len(self.frequencies), dtype=np.int64)
        self.frequencies, self.counts = (np.concatenate([old, more]) for old in (self.frequencies, self.counts))
        self.frequencies[columns] += np.bincount(X.indices, minlength=X.shape[1])
        self.counts[columns] += np.asarray(X.sum(axis=0)).ravel().astype(np.int64)  # counts may be floats
        self.n += X.shape[0]
        return csr_array((X.data, columns[X.indices], X.indptr), shape=(X.shape[0], len(index)))

    def select(self, vectorizer: CountVectorizer, enough: Callable[[int], int]) -> tuple[list[str], Array]:
        """Select the words that the vectorizer would select from all texts at once, in sorted order.

        Returns these words, and for each word seen its column among them, −1 if it is not selected.
        """
        names = vectorizer.get_feature_names_out() if vectorizer.vocabulary is not None else sorted(self.index)
        order = np.fromiter((self.index.get(word, -1) for word in names), np.int64, len(names))
        keep = np.ones(len(names), dtype=bool)
        if vectorizer.vocabulary is None:
            frequencies, counts = self.frequencies[order], self.counts[order]
            limits = vectorizer.min_df, vectorizer.max_df
            low, high = (float(x) if isinstance(x, Integral) else float(x) * self.n for x in limits)
            keep = (frequencies >= low) & (frequencies <= high)
            if vectorizer.max_features is not None and np.count_nonzero(keep) > vectorizer.max_features:
                inside = np.flatnonzero(keep)
                keep[:] = False
                # Breaks ties as scikit-learn does.
                keep[inside[(-counts[inside]).argsort()[: vectorizer.max_features]]] = True
            if not keep.any():
                raise ValueError(
                    f"None of the {self.n} texts has a word that counts: lower min_df, raise max_df, choose the "
                    "language of the stop words, or change token_pattern."
                )
            if (frequent := keep & (frequencies >= enough(self.n))).any():
                keep = frequent
        columns = np.full(len(self.index), -1, dtype=np.int64)
        kept = np.flatnonzero(keep)
        known = order[kept] >= 0
        columns[order[kept[known]]] = np.flatnonzero(known)
        return [str(names[i]) for i in kept], columns


def _with_columns(X: csr_array, columns: Array, p: int) -> csr_array:
    """Keep the counts of the words that have a column, and move them to that column."""
    indices = columns[X.indices]
    kept = indices >= 0
    before = np.concatenate([[0], np.cumsum(kept)])
    out = csr_array((X.data[kept], indices[kept], before[X.indptr]), shape=(X.shape[0], p))
    out.sort_indices()
    return out


def batched(texts: Iterable[str], number: int, characters: int) -> Iterator[list[str]]:
    """Yield lists of ``number`` texts, or fewer if they reach ``characters`` characters earlier."""
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == number or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
