"""Documents that do not fit in memory: their counts, names and beginnings are in a folder, and read from there."""

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
from onmf.divergence import Array
from onmf.io.files import whole_folder

from .read import Text
from .words import excerpt, few, numbered

IDS, BEGINNINGS = "ids.txt", "beginnings.txt"
"""What the documents are called, and how they begin, one a line, beside the shards."""


@dataclass(frozen=True)
class ShardedCounts:
    """How often each document has each word, on disk; see :class:`Counts`.

    Attributes
    ----------
    X : Shards
        Counts of the documents that have any of the words.
    words : (words,) array of str
        The words.
    ids : sequence of str
        What the documents are called; all of them.
    labels : list of str or None
        Their classes, where known.
    excerpts : sequence of str
        How they begin.
    vectorizer : CountVectorizer
        What counted.
    lengths : (documents,) array of int
        Words of each document.
    """

    X: Shards
    words: Array
    ids: Sequence[str]
    labels: list[str | None]
    excerpts: Sequence[str]
    vectorizer: CountVectorizer
    lengths: Array


class TextsOnDisk(Sequence[str]):
    """Texts in a file, one after the other; where each begins is all of them that is in memory."""

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
        place = range(len(self))[index]
        with self.path.open("rb") as file:
            file.seek(self.bounds[place])
            return self._text(file.read(self.bounds[place + 1] - self.bounds[place]))

    def __iter__(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for place in range(len(self)):
                yield self._text(file.read(self.bounds[place + 1] - self.bounds[place]))

    @staticmethod
    def _text(line: bytes) -> str:
        return line[:-1].decode("utf-8", "surrogatepass")


class _Writer:
    """Writes texts into a file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.name, self.file, self.bounds = path.name, path.open("wb"), array("q", [0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()

    def write(self, text: str) -> None:
        """Add a text."""
        line = text.encode("utf-8", "surrogatepass") + b"\n"
        self.file.write(line)
        self.bounds.append(self.bounds[-1] + len(line))

    def moved_to(self, folder: Path) -> TextsOnDisk:
        """What was written, now that its folder has its name."""
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
    """Count the words of documents, which are gone through once, and keep what is found in a folder.

    Parameters
    ----------
    texts, vectorizer, automatic
        As in :func:`count_words`, whose words these are.
    folder : path
        Where to; it must not exist, or be empty. It is there as a whole or not at all.
    force : bool, default=False
        Whether to replace a folder that an earlier call wrote.
    documents : int, default=10000
        Documents of a shard, at most.
    progress : callable, optional
        Called with the share of the shards that are written, once all words are known.

    Returns
    -------
    ShardedCounts
    """
    folder = Path(os.path.abspath(folder))
    if hasattr(vectorizer, "vocabulary_"):  # one that was fitted before knows its words, as in count_words
        vectorizer = clone(vectorizer).set_params(vocabulary=vectorizer.vocabulary_)
    labels: list[str | None] = []
    known: dict[str | None, str | None] = {}
    with ExitStack() as stack:
        new = stack.enter_context(whole_folder(folder, force=force, ours=[SHARDS, NAMES, IDS, BEGINNINGS]))
        ids, beginnings = (stack.enter_context(_Writer(new / name)) for name in (IDS, BEGINNINGS))

        def bodies() -> Iterator[str]:
            for document in numbered(texts):
                ids.write(document.id)
                beginnings.write(excerpt(document.text))
                labels.append(known.setdefault(document.label, document.label))
                yield document.text

        options: dict[str, Any] = {"enough": few} if automatic else {}
        lengths = count_pieces(
            bodies(), new, vectorizer, documents=documents, empty=False, progress=progress, **options
        )
    shards = open_shards(folder)
    words = shards.names
    assert words is not None, "they were written"
    counter = clone(vectorizer).set_params(vocabulary=list(words))
    return ShardedCounts(shards, words, ids.moved_to(folder), labels, beginnings.moved_to(folder), counter, lengths)
