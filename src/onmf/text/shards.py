"""Counts of documents that do not fit in memory: counts, identifiers and excerpts are kept in a folder."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from onmf.datasets import Shards, open_shards
from onmf.datasets.count import count_pieces
from onmf.datasets.pieces import NAMES, ROWS, SHARDS
from onmf.datasets.vocabulary import min_documents
from onmf.divergence import Array
from onmf.io.files import whole_folder

from .read import Text
from .words import excerpt, numbered

IDS, BEGINNINGS = "ids.txt", "beginnings.txt"
"""Files beside the shards: the identifiers and the excerpts of the documents, one per line."""


@dataclass(frozen=True)
class ShardedCounts:
    """Word counts of documents, on disk; see :class:`Counts`.

    Attributes
    ----------
    X : Shards
        Counts of the documents that contain any of the words.
    words : (words,) array of str
        The words.
    ids : sequence of str
        Identifiers of all documents.
    labels : list of str or None
        Classes of the documents, if known.
    excerpts : sequence of str
        Beginnings of the documents.
    vectorizer : CountVectorizer
        The vectorizer that counted.
    lengths : (documents,) array of int
        Number of words in each document.
    dates : list of str or None
        Dates of the documents as they were written, if known.
    """

    X: Shards
    words: Array
    ids: Sequence[str]
    labels: list[str | None]
    excerpts: Sequence[str]
    vectorizer: CountVectorizer
    lengths: Array
    dates: list[str | None]


class TextsOnDisk(Sequence[str]):
    """Texts in a file, one after the other. Only their positions are kept in memory."""

    def __init__(self, path: Path, bounds: array[int]) -> None:
        self.path, self.bounds = path, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        with self.path.open("rb") as file:
            file.seek(self.bounds[i])
            return self._text(file.read(self.bounds[i + 1] - self.bounds[i]))

    def __iter__(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for i in range(len(self)):
                yield self._text(file.read(self.bounds[i + 1] - self.bounds[i]))

    @staticmethod
    def _text(line: bytes) -> str:
        return line[:-1].decode("utf-8", "surrogatepass")


class _Writer:
    """Write texts to a file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.name, self.file, self.bounds = path.name, path.open("wb"), array("q", [0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.file.close()

    def write(self, text: str) -> None:
        """Append a text."""
        line = text.encode("utf-8", "surrogatepass") + b"\n"
        self.file.write(line)
        self.bounds.append(self.bounds[-1] + len(line))

    def moved_to(self, folder: Path) -> TextsOnDisk:
        """Return the texts, after their folder was renamed to ``folder``."""
        return TextsOnDisk(folder / self.name, self.bounds)


def count_in_shards(
    texts: Iterable[Text | str],
    folder: str | os.PathLike[str],
    vectorizer: CountVectorizer,
    *,
    automatic: bool = False,
    force: bool = False,
    documents: int = ROWS,
    progress: Callable[[float], None] = lambda share: None,
) -> ShardedCounts:
    """Count the words of documents and store the counts in a folder. The documents are read once.

    Parameters
    ----------
    texts, vectorizer, automatic
        As in :func:`count_words`; the words are the same.
    folder : path
        Folder for the counts; it must not exist, or be empty. It is written completely or not at all.
    force : bool, default=False
        Replace a folder that an earlier call wrote.
    documents : int, default=10000
        Maximum number of documents in a shard.
    progress : callable, optional
        Called with the share of the shards that are written, after all words are known.

    Returns
    -------
    ShardedCounts
    """
    folder = Path(os.path.abspath(folder))
    if hasattr(vectorizer, "vocabulary_"):  # a fitted vectorizer keeps its words, as in count_words
        vectorizer = clone(vectorizer).set_params(vocabulary=vectorizer.vocabulary_)
    labels: list[str | None] = []
    dates: list[str | None] = []
    distinct: dict[str | None, str | None] = {}  # equal labels share one string, and so do equal dates
    with ExitStack() as stack:
        new = stack.enter_context(whole_folder(folder, force=force, ours=[SHARDS, NAMES, IDS, BEGINNINGS]))
        ids, excerpts = (stack.enter_context(_Writer(new / name)) for name in (IDS, BEGINNINGS))

        def bodies() -> Iterator[str]:
            for document in numbered(texts):
                ids.write(document.id)
                excerpts.write(excerpt(document.text))
                labels.append(distinct.setdefault(document.label, document.label))
                dates.append(distinct.setdefault(document.date, document.date))
                yield document.text

        options: dict[str, Any] = {"enough": min_documents} if automatic else {}
        lengths = count_pieces(
            bodies(), new, vectorizer, documents=documents, empty=False, progress=progress, **options
        )
    shards = open_shards(folder)
    words = shards.names
    assert words is not None, "count_pieces writes them"
    counter = clone(vectorizer).set_params(vocabulary=list(words))
    beginnings = excerpts.moved_to(folder)
    return ShardedCounts(shards, words, ids.moved_to(folder), labels, beginnings, counter, lengths, dates)
