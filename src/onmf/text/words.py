"""Count the words of documents, in memory or in a folder if the counts do not fit there; and read their dates."""

import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from onmf.datasets.count import count_words, make_vectorizer
from onmf.datasets.pieces import NAMES, SHARDS, Shards, open_shards
from onmf.divergence import Array
from onmf.door import Progress, Table
from onmf.estimator import ONMF
from onmf.io.files import whole_folder
from onmf.io.model_file import check_parts
from onmf.io.rules import FLAG, Rule, either, integer, json_object, one_of, optional, require, some_names, strings
from onmf.naming import so_many

from .files import Texts, damaged, read

DEFAULT = CountVectorizer().token_pattern  # The pattern of a model file that names none
LONGEST_NGRAM = 20  # Words or letters of the longest n-gram: the memory that a document needs grows with this number
LONGEST_PATTERN = 1000  # Characters of the longest regular expression

OPTIONS = {
    "lowercase": FLAG,
    "strip_accents": one_of(None, "ascii", "unicode"),
    "stop_words": either(one_of(None, "english"), strings()),
    "token_pattern": Rule(
        lambda value: value is None or (isinstance(value, str) and len(value) <= LONGEST_PATTERN),
        f"a regular expression of at most {LONGEST_PATTERN} characters",
    ),
    "ngram_range": Rule(
        lambda value: (
            isinstance(value, list | tuple)
            and len(value) == 2
            and all(integer(1, LONGEST_NGRAM).fits(n) for n in value)
            and value[0] <= value[1]
        ),
        f"a range between 1 and {LONGEST_NGRAM}",
    ),
    "analyzer": one_of("word", "char", "char_wb"),
    "binary": FLAG,
}
"""Options of CountVectorizer that determine the words of a new document, given the vocabulary."""

CODE = ("preprocessor", "tokenizer")  # Options of CountVectorizer that are functions


def _describes(value: Any) -> bool:
    """Whether a value describes a vectorizer; refused if it would need code."""
    for name, option in value.items() if isinstance(value, dict) else ():
        require(not callable(option), f"{name}={option!r} is code, and a model file holds no code")
    return DESCRIPTION.fits(value)


DESCRIPTION = json_object({name: optional(rule) for name, rule in OPTIONS.items()}, closed=True)
VECTORIZER = Rule(_describes, DESCRIPTION.description)  # What a model file holds of a vectorizer besides the vocabulary
EXCERPT = 400  # Characters of each document that are kept as its excerpt

IDS, BEGINNINGS = "ids.txt", "beginnings.txt"
"""Files beside the shards: the identifiers and the excerpts of the documents, one per line."""

UNIT = r"(?:\\[wWdDsS]|[\w.#@'-]|\[\^?(?:\\[wWdDsS^\]\\-]|[^\[\]\\])+\])"
"""An element of a regular expression that matches one character: a class, a literal, a set."""

SIMPLE = re.compile(
    rf"(?!.*(?:--|&&|\|\||~~))(?:\(\?u\))?(?P<begin>\\b)?{UNIT}{{1,8}}(?:[+*?]|\{{\d{{1,2}}(?:,\d{{0,2}})?\}})?(?P<end>\\b)?"
)
"""Patterns that match any text in linear time: a few single characters, then a run of one kind of character. A pattern
may end at a word boundary only if it begins at one. Otherwise a match could start at every letter of a long run and
scan the rest of it, which takes quadratic time. With both boundaries, a start fails only if the run contains no further
boundary, and there are at most as many such starts as the pattern has single characters."""

LONGEST_DATE = 80  # Characters of the longest date that is read

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
TIME = r"(?:[T ].*)?"
DATES = (
    re.compile(r"(?P<year>\d{4})(?:([-/.])(?P<month>\d{1,2})(?:\2(?P<day>\d{1,2}))?)?" + TIME),
    re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)" + TIME),
    re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})" + TIME),
    re.compile(r"(?:[a-z]+\.?,? +)?(?P<day>\d{1,2})[ -](?P<month>[a-z]{3,9})\.?,?[ -](?P<year>\d{4})" + TIME, re.I),
    re.compile(r"(?P<month>[a-z]{3,9})\.?(?: +(?P<day>\d{1,2}),?)? +(?P<year>\d{4})" + TIME, re.I),
)
"""Dates such as 2024-03-01, 2024-03 and 2024, 20240301, 1.3.2024, Fri, 1 Mar 2024, and March 1, 2024."""


@dataclass(repr=False)
class Documents(Table):
    """Word counts of documents. Rows are documents, and features are words.

    In memory, ``X`` has a row for every document. In shards, it has rows only for the documents with usable words, as
    ``used`` always has. Row i of ``used`` is the document ``filled[i]``.

    Attributes
    ----------
    X, rows, features, classes, groups, dates, known, source, notes
        As in :class:`onmf.door.Table`. ``X`` is a csr_array or :class:`onmf.datasets.Shards`.
    lengths : (documents,) array of int
        Number of usable words in each document.
    excerpts : sequence of str
        Beginnings of the documents.
    vectorizer : CountVectorizer
        Counts the same words in other documents.
    strip : tuple of str
        Parts that were dropped from each document.
    keep_attachments : bool
        Whether encoded attachments were kept.
    """

    lengths: Array = field(default_factory=lambda: np.zeros(0, int))
    excerpts: Sequence[str] = ()
    vectorizer: CountVectorizer = field(default_factory=make_vectorizer)
    strip: tuple[str, ...] = ()
    keep_attachments: bool = False

    @property
    def filled(self) -> Array:
        """Positions of the documents with usable words."""
        return np.flatnonzero(self.lengths)

    @cached_property
    def used(self) -> csr_array | Shards:
        """Counts of the documents with usable words, in their order."""
        return self.X if isinstance(self.X, Shards) or self.lengths.all() else csr_array(self.X[self.filled])

    def without_texts(self) -> Self:
        """The documents without their beginnings, and without what other tables leave out, too."""
        return replace(super().without_texts(), excerpts=())


class TextsOnDisk(Sequence[str]):
    """Texts in a file, one after the other. Only their positions are kept in memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.ends, self.file = path, array("q", [0]), path.open("wb")

    def close(self) -> None:
        """Finish writing."""
        self.file.close()
        del self.file  # an open file cannot be pickled

    def append(self, text: str) -> None:
        """Write one more text."""
        self.ends.append(self.ends[-1] + self.file.write(text.encode("utf-8", "surrogatepass") + b"\n"))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self))[index]
        return list(self._read(chosen)) if isinstance(chosen, range) else next(self._read([chosen]))

    def __iter__(self) -> Iterator[str]:
        return self._read(range(len(self)))

    def _read(self, indices: Iterable[int]) -> Iterator[str]:
        with self.path.open("rb") as file:
            for i in indices:
                file.seek(self.ends[i])
                yield file.read(self.ends[i + 1] - self.ends[i] - 1).decode("utf-8", "surrogatepass")


def count(
    texts: Iterable[Any],
    vectorizer: CountVectorizer | None = None,
    *,
    automatic: bool | None = None,
    shards: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Documents:
    """Count the words of documents. The documents are read once.

    Parameters
    ----------
    texts : iterable of Text or str
        Documents, for instance from :func:`read`, a list of strings, or a pandas Series.
    vectorizer : CountVectorizer, optional
        Defines the words; :func:`make_vectorizer` by default. It is not changed. If it is fitted or has a
        ``vocabulary``, only those words count.
    automatic : bool, optional
        Remove rare words. A word must occur in 1 document if there are fewer than 100, in 2 below 1,000, in 3 below
        10,000, else in 5. The default is True without a ``vectorizer``; otherwise its ``min_df`` decides.
    shards : path, optional
        Folder for the counts, if they do not fit in memory; it must not exist, or be empty. It is written completely or
        not at all.
    force : bool, default=False
        Replace a folder that an earlier call wrote.
    progress : callable, optional
        Called with ``"Writing the counts"`` and the share of the shards that are written, after all words are known.

    Returns
    -------
    Documents

    Examples
    --------
    >>> from onmf.text import count
    >>> documents = count(["red tea", "green tea", "7"])
    >>> documents.features.tolist(), documents.lengths.tolist()
    (['green', 'red', 'tea'], [2, 2, 0])
    """
    if force and shards is None:
        raise ValueError("force=True replaces a folder of shards, and none is named: name it with shards=.")
    if isinstance(texts, str):
        raise TypeError("texts is one string: pass a list of strings, or read files with read(path).")
    documents = texts if isinstance(texts, Texts) else read(texts, keep_attachments=True)
    automatic = vectorizer is None if automatic is None else automatic
    vectorizer = vectorizer or make_vectorizer()
    if hasattr(vectorizer, "vocabulary_"):  # a fitted vectorizer keeps its words
        vectorizer = clone(vectorizer).set_params(vocabulary=vectorizer.vocabulary_)
    rows: list[str] | TextsOnDisk = []
    excerpts: list[str] | TextsOnDisk = []
    classes: list[str | None] = []
    groups: list[str | None] = []
    known: list[str | None] = []
    days: list[str | None] = []
    distinct: dict[str | None, str | None] = {}  # equal labels share one string, and so do equal dates

    def bodies() -> Iterator[str]:
        for document in documents:
            rows.append(document.id)
            beginning = " ".join(document.text[: 4 * EXCERPT].split())
            excerpts.append(beginning if len(beginning) <= EXCERPT else beginning[: EXCERPT - 1].rstrip() + "…")
            classes.append(distinct.setdefault(document.label, document.label))
            groups.append(distinct.setdefault(document.group, document.group))
            known.append(distinct.setdefault(document.known or None, document.known or None))
            days.append(distinct.setdefault(document.date, document.date))
            yield document.text
        if not rows and getattr(vectorizer, "vocabulary", None) is None:
            found = f"{documents.name} contains no documents." if documents.name else "There are no documents to count."
            raise ValueError(" ".join([found, *documents.notes]))

    with ExitStack() as stack:
        folder = None
        if shards is not None:
            target = Path(os.path.abspath(shards))
            folder = stack.enter_context(whole_folder(target, force=force, ours=[SHARDS, NAMES, IDS, BEGINNINGS]))
            rows, excerpts = (stack.enter_context(closing(TextsOnDisk(folder / name))) for name in (IDS, BEGINNINGS))
        X, words, lengths = count_words(
            bodies(),
            vectorizer,
            folder,
            drop_rare=automatic,
            keep_empty=folder is None,
            progress=None if progress is None or folder is None else partial(progress, "Writing the counts"),
        )
    if isinstance(rows, TextsOnDisk) and isinstance(excerpts, TextsOnDisk):
        X, rows.path, excerpts.path = open_shards(target), target / IDS, target / BEGINNINGS
    dates, date_notes = parse_dates(days, rows)
    return Documents(
        X,
        rows,
        np.array(words, dtype=object),  # type: ignore[arg-type]
        classes=classes if any(label is not None for label in classes) else None,
        groups=groups if any(group is not None for group in groups) else None,
        dates=dates,
        known=known if any(name is not None for name in known) else None,
        source=documents.name,
        notes=documents.notes + date_notes,
        lengths=lengths,
        excerpts=excerpts,
        vectorizer=clone(vectorizer).set_params(vocabulary=words),
        strip=documents.strip,
        keep_attachments=documents.keep_attachments,
    )


def vectorizer_options(vectorizer: CountVectorizer) -> dict[str, Any]:
    """Return the options of a vectorizer that a model file stores besides the vocabulary, and any code that it uses."""
    options = vectorizer.get_params()
    if not isinstance(options["stop_words"], str | None):
        options["stop_words"] = sorted(options["stop_words"])
    return {name: value for name, value in options.items() if name in OPTIONS or (name in CODE and value is not None)}


def vectorizer_of(model: ONMF, token_pattern: str | None = None) -> CountVectorizer:
    """The vectorizer of a document model; for ``token_pattern`` see :func:`onmf.text.predict`."""
    try:
        check_parts("documents", model.extra_, *model.cluster_centers_.shape)
    except ValueError as error:
        raise ValueError(f"The model's vocabulary is damaged: {error}.") from error
    options = model.extra_["vectorizer"]
    stored = options.get("token_pattern", DEFAULT)
    if token_pattern not in (None, stored):
        raise ValueError(f"The model's words were found with the pattern {stored!r}, not with {token_pattern!r}.")
    if options.get("analyzer", "word") == "word":
        require(stored is not None, "The model's vocabulary is damaged: it does not say what a word is.")
        require(
            token_pattern is not None or is_simple(stored),
            f"The model's words were found with the pattern {stored!r}. Such a pattern can take very long on some "
            "texts, so one from a file is not used by default. If you trust it, pass it as token_pattern "
            "(--token-pattern on the command line).",
        )
    vectorizer = CountVectorizer(**options, dtype=np.int32, vocabulary=model.extra_["vocabulary"])
    vectorizer.set_params(ngram_range=tuple(vectorizer.ngram_range))
    with damaged("The model's vocabulary"):
        vectorizer.build_analyzer()
    return vectorizer


def is_simple(pattern: str) -> bool:
    """Whether a pattern matches any text in linear time."""
    match = SIMPLE.fullmatch(pattern)
    return match is not None and bool(match["begin"] or not match["end"])


def parse_date(text: str) -> date | None:
    """Return the date that a text names; a missing month or day is the first. None if it cannot be read.

    Dates such as 1/2/2024 are not read: in some countries they are in January, in others in February.
    """
    text = text.strip()
    for pattern in DATES if len(text) <= LONGEST_DATE else ():
        if found := pattern.fullmatch(text):
            month = found["month"] or "1"
            with suppress(ValueError):
                number = int(month) if month.isdecimal() else MONTHS.index(month[:3].lower()) + 1
                return date(int(found["year"]), number, int(found["day"] or 1))
    return None


def parse_dates(texts: Sequence[str | None], ids: Sequence[str]) -> tuple[Array | None, list[str]]:
    """Read a date for each document, NaT where there is none; None if no document has one.

    Also returns sentences on dates that are missing, and on those that cannot be read, with the names of the documents.
    """
    known = {text: parse_date(text) if text else None for text in set(texts)}
    dates = np.array([known[text] for text in texts], dtype="datetime64[D]")
    blank = [not (text and text.strip()) for text in texts]
    if all(blank):
        return None, []
    notes = [f"{so_many(sum(blank), 'document')} without a date."] if any(blank) else []
    unread = np.flatnonzero(np.isnat(dates) & ~np.array(blank)).tolist()
    if named := [f"\u201c{str(texts[i])[:LONGEST_DATE]}\u201d (document {ids[i]})" for i in unread]:
        notes.append(f"{so_many(len(named), 'date')} not understood: {some_names(named)}. Write dates as 2024-03-01.")
    return dates, notes
