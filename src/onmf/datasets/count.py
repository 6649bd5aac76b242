"""Words of texts that do not fit in memory, counted into shards."""

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

CHARACTERS = 1 << 25
"""Characters of the texts of a shard, about: some 300 MB while they are counted."""


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
        Where to; it must not exist, or be empty. It is there as a whole or not at all.
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
    if not isinstance(documents, Integral) or documents < 1:
        raise ValueError(f"documents={documents} is not allowed: a shard needs at least 1 document.")
    if isinstance(texts, str):
        raise TypeError("texts is one string: give a list of strings, or another iterable, with one for each document.")
    counter = CountVectorizer(dtype=np.int32) if vectorizer is None else vectorizer
    with new_folder(folder) as new:
        count_pieces(texts, new, counter, documents=documents)
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
    """Count words in shards: first with all words, then, once it is known which words count, with those.

    Parameters
    ----------
    texts, vectorizer, documents
        As in :func:`count_shards`.
    folder : path
        Where to; it must exist.
    enough : callable
        How many of n documents must have a word, besides what the vectorizer says; ignored where no word would be left.
    empty : bool, default=True
        Whether documents that have none of the words are rows, too.
    progress : callable, optional
        Called with the share of the shards that are written.

    Returns
    -------
    (documents,) array of int
        The number of words of each document, empty ones included.
    """
    if not isinstance(vectorizer, CountVectorizer) or isinstance(vectorizer, TfidfVectorizer):
        raise TypeError(f"vectorizer is a {type(vectorizer).__name__}, which does not count: use a CountVectorizer.")
    vectorizer = clone(vectorizer)
    plain = clone(vectorizer).set_params(min_df=1, max_df=1.0, max_features=None)
    lengths: list[Array] = []
    with TemporaryDirectory(dir=folder, prefix=".counting.onmf-") as aside:
        seen, files = _Words(), list[Path]()
        for number, batch in enumerate(batched(texts, documents, CHARACTERS)):
            files.append(Path(aside, f"{number:06d}.npz"))
            write_shard(files[-1], seen.take_in(_counted(plain, batch), plain))
        if not files:
            raise ValueError("There are no texts to count words in.")
        words, columns = seen.chosen(vectorizer, enough)
        if not empty and not seen.often.any():
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
        self.often[columns] += np.asarray(X.sum(axis=0)).ravel().astype(np.int64)  # counts may come as floats
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
