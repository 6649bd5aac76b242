"""Count the usable words of texts, in memory or, if the counts do not fit there, in shards."""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack
from sklearn.base import clone
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer, TfidfVectorizer

from onmf.divergence import Array
from onmf.io.rules import require
from onmf.warn import import_optional

from .pieces import ROWS, Shards, check_size, fill, new_folder, open_shards, read_shard, write_shard

CHARACTERS = 1 << 25  # approximate length of the texts of a shard; counting them takes about 300 MB

RARE = {100: 0, 1000: 1, 10_000: 2, float("inf"): 4}
"""Below each number of documents, a word that occurs in at most so many of them is rare."""

LETTERS = r"\b[^\W\d_]{2,}\b"  # A word: two or more letters of any alphabet, without digits

CONTRACTED = (
    "ain", "aren", "can", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn", "mustn", "needn",
    "shan", "shouldn", "wasn", "weren", "won", "wouldn", "ll", "re", "ve", "im", "ive", "id", "dont", "doesnt",
    "didnt", "cant", "wont", "isnt", "thats", "youre",
)  # fmt: skip
"""Parts of contractions such as "doesn't" when only letters count."""

LANGUAGES = {
    "arabic": "ar", "bulgarian": "bg", "catalan": "ca", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
    "estonian": "et", "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi",
    "hungarian": "hu", "indonesian": "id", "irish": "ga", "italian": "it", "latin": "la", "latvian": "lv",
    "lithuanian": "lt", "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt", "romanian": "ro",
    "russian": "ru", "slovak": "sk", "slovenian": "sl", "spanish": "es", "swahili": "sw", "swedish": "sv",
    "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip


def stop_words(language: str | None) -> list[str]:
    """Return the stop words of a language, sorted.

    The English list is scikit-learn's, with parts of contractions added. The other lists are those of the package
    stopwordsiso.

    Parameters
    ----------
    language : str or None
        A name (``"german"``) or a code (``"de"``); None or ``"none"`` for no stop words.

    Returns
    -------
    list of str
    """
    if language is None or language == "none":
        return []
    code = LANGUAGES.get(language.lower(), language.lower())
    if code == "en":
        words: Iterable[str] = (*ENGLISH_STOP_WORDS, *CONTRACTED)
    else:
        need = f"Stop words for {language!r} (English ones are built in) need stopwordsiso"
        stopwordsiso = import_optional("stopwordsiso", need, "text")
        about = f"No stop words are known for the language {language!r}: use 'none', or the name or code of one of "
        require(stopwordsiso.has_lang(code), f"{about}{', '.join(LANGUAGES)}.")
        words = stopwordsiso.stopwords(code)
    return sorted({part for word in words for part in re.findall(LETTERS, word.lower())})


def make_vectorizer(language: str | None = "english", **options: Any) -> CountVectorizer:
    """Make a CountVectorizer with defaults for clustering: words of letters, in lower case, without stop words.

    Parameters
    ----------
    language : str or None, default="english"
        Language of the stop words to remove; see :func:`stop_words`.
    **options
        Options of CountVectorizer, which replace the defaults.

    Returns
    -------
    CountVectorizer

    Examples
    --------
    >>> from onmf.text import make_vectorizer
    >>> make_vectorizer().build_analyzer()("The 2 cows don't drink tea.")
    ['cows', 'drink', 'tea']
    """
    defaults = {"token_pattern": LETTERS, "stop_words": stop_words(language) or None, "dtype": np.int32}
    return CountVectorizer(**(defaults | options))


def count_shards(
    texts: Iterable[str], folder: str | Path, vectorizer: CountVectorizer | None = None, *, documents: int = ROWS
) -> Shards:
    """Count the words of a corpus that does not fit in memory, and write the counts as shards.

    The texts are read once. Only the words, and the counts of one shard, are in memory at a time.

    Parameters
    ----------
    texts : iterable of str
        The texts.
    folder : path
        Folder to write; it must not exist, or be empty. If an error occurs, nothing is written.
    vectorizer : CountVectorizer, optional
        Defines words and selects them (``min_df``, ``max_df``, ``max_features``, ``vocabulary``). It is not changed. By
        default :func:`onmf.text.make_vectorizer`, and rare words are removed: the words and counts are those of
        :func:`onmf.text.count`.
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
    check_size("documents", documents, "a shard needs at least 1 document")
    if isinstance(texts, str):
        raise TypeError("texts is one string: give a list of strings, or another iterable, with one for each document.")
    with new_folder(folder) as new:
        options: dict[str, Any] = {"documents": documents, "drop_rare": vectorizer is None}
        count_words(texts, vectorizer or make_vectorizer(), new, **options)
    return open_shards(folder)


def count_words(
    texts: Iterable[str],
    vectorizer: CountVectorizer,
    folder: Path | None = None,
    *,
    documents: int = ROWS,
    drop_rare: bool = False,
    keep_empty: bool = True,
    progress: Callable[[float], None] | None = None,
) -> tuple[csr_array | None, list[str], Array]:
    """Count all words of texts; then, once their frequencies are known, keep those that are to be used.

    With ``drop_rare``, words of few documents go, unless none would be left; without ``keep_empty``, documents without
    words. Returns the counts (None if they are in the folder), the words, and the number of words of every document.
    """
    if not isinstance(vectorizer, CountVectorizer) or isinstance(vectorizer, TfidfVectorizer):
        raise TypeError(f"vectorizer is a {type(vectorizer).__name__}, which does not count: use a CountVectorizer.")
    counter, lengths, pieces = _Counter(vectorizer), list[Array](), list[Any]()
    with nullcontext() if folder is None else TemporaryDirectory(dir=folder, prefix=".counting.onmf-") as place:
        for X in counter.count(texts, documents):
            pieces.append(X if place is None else write_shard(Path(place, f"{len(pieces):06d}.npz"), X))
        words, columns = counter.select(drop_rare)
        require(counter.n or (folder is None and counter.fixed), "There are no texts to count words in.")
        about = f"None of the {counter.n} documents has a word of the vocabulary"
        require(keep_empty or counter.totals.any(), f"{about}: give the vectorizer another one, or none.")

        def selected() -> Iterator[csr_array]:
            for number, piece in enumerate(pieces):
                pieces[number] = None
                X = _with_columns(piece if place is None else read_shard(piece), columns, len(words))
                if place is not None:
                    piece.unlink()
                sizes = np.asarray(X.sum(axis=1)).ravel()
                lengths.append(sizes)
                if keep_empty or sizes.any():
                    yield X if keep_empty else X[np.flatnonzero(sizes)]
                if progress is not None:
                    progress((number + 1) / len(pieces))

        if folder is not None:
            fill(folder, selected(), words)
        counts = csr_array(vstack(list(selected()))) if folder is None else None
    return counts, words, np.concatenate(lengths)


class _Counter:
    """Counts words and remembers in how many documents each occurs, and how often."""

    def __init__(self, vectorizer: CountVectorizer) -> None:
        self.fixed = vectorizer.vocabulary is not None
        self.vectorizer = clone(vectorizer)
        self.index: dict[str, int] = defaultdict(lambda: len(self.index))
        if self.fixed:
            self.index = {word: column for column, word in enumerate(self.vectorizer.get_feature_names_out())}
        else:
            self.vectorizer.set_params(vocabulary=["word"]).fit([])  # checks the other options
        self.frequencies = self.totals = np.zeros(0, dtype=np.int64)
        self.n = 0

    def count(self, texts: Iterable[str], documents: int) -> Iterator[csr_array]:
        """Yield the counts of so many texts at a time, with a column for each word seen so far."""
        analyze, texts, goes_on = self.vectorizer.build_analyzer(), iter(texts), True
        while goes_on:
            columns, counts, ends, size, goes_on = array("i"), array("i"), array("i", [0]), 0, False
            for text in texts:
                found = Counter(analyze(text))
                if self.fixed:
                    found = Counter({word: n for word, n in found.items() if word in self.index})
                columns.extend(map(self.index.__getitem__, found))
                counts.extend(found.values())
                ends.append(len(columns))
                size += len(text)
                if len(ends) > documents or size >= CHARACTERS:
                    goes_on = True
                    break
            if len(ends) > 1 or self.n == 0:
                yield self._add(np.array(columns), np.array(counts), np.array(ends))

    def _add(self, columns: Array, counts: Array, ends: Array) -> csr_array:
        if self.vectorizer.binary:
            counts[:] = 1
        p, n = len(self.index), len(ends) - 1
        totals = np.bincount(columns, weights=counts, minlength=p).astype(np.int64)
        self.frequencies = np.pad(self.frequencies, (0, p - len(self.frequencies))) + np.bincount(columns, minlength=p)
        self.totals = np.pad(self.totals, (0, p - len(self.totals))) + totals
        self.n += n
        return csr_array((counts.astype(self.vectorizer.dtype), columns, ends), shape=(n, p))

    def select(self, drop_rare: bool) -> tuple[list[str], Array]:
        """Select the words that the vectorizer would. → these, sorted, and the column of each word seen, or −1"""
        if self.fixed:
            return [str(word) for word in self.index], np.arange(len(self.index), dtype=np.int32)
        names = sorted(self.index)
        order = np.fromiter((self.index[name] for name in names), np.int64, len(names))
        frequencies, totals, options = self.frequencies[order], self.totals[order], self.vectorizer
        low, high = (float(x if isinstance(x, Integral) else x * self.n) for x in (options.min_df, options.max_df))
        keep = np.flatnonzero((frequencies >= low) & (frequencies <= high))
        if options.max_features is not None:
            # The first of equally frequent words are kept. Those that scikit-learn keeps depend on the processor.
            keep = np.sort(keep[np.argsort(-totals[keep], kind="stable")[: options.max_features]])
        require(
            not self.n or len(keep),
            f"None of the {self.n} documents has a usable word: lower min_df, raise max_df, choose another language of "
            "the stop words, or change token_pattern. In a table, check that the column holds the text.",
        )
        rare = next(words for documents, words in RARE.items() if self.n < documents)
        if drop_rare and (frequent := frequencies[keep] > rare).any():
            keep = keep[frequent]
        columns = np.full(len(names), -1, dtype=np.int32)
        columns[order[keep]] = np.arange(len(keep))
        return [str(names[i]) for i in keep], columns


def _with_columns(X: csr_array, columns: Array, p: int) -> csr_array:
    """Keep the counts of the words that have a column, and move them to that column."""
    indices = columns[X.indices]
    kept = indices >= 0
    before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
    out = csr_array((X.data[kept], indices[kept], before[X.indptr]), shape=(X.shape[0], p))
    out.sort_indices()
    return out
