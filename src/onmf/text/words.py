"""Choose the words that count, and count them in documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from onmf.datasets.vocabulary import make_vectorizer, min_documents
from onmf.divergence import Array

from .kind import VECTORIZER
from .read import Text
from .source import no_documents

DEFAULT = CountVectorizer().token_pattern
"""The pattern of a model file that names none."""

EXCERPT = 400
"""Characters of each document that are kept as its excerpt."""

UNIT = r"(?:\\[wWdDsS]|[\w.#@'-]|\[\^?(?:\\[wWdDsS^\]\\-]|[^\[\]\\])+\])"
"""An element of a regular expression that matches one character: a class, a literal, a set."""

SIMPLE = re.compile(
    rf"(?!.*(?:--|&&|\|\||~~))(?:\(\?u\))?(?P<begin>\\b)?{UNIT}{{1,8}}(?:[+*?]|\{{\d{{1,2}}(?:,\d{{0,2}})?\}})?(?P<end>\\b)?"
)
"""Patterns that match any text in linear time: a few single characters, then a run of one kind of character. A pattern
may end at a word boundary only if it begins at one. Otherwise a match could start at every letter of a long run and
scan the rest of it, which takes quadratic time. With both boundaries, a start fails only if the run contains no further
boundary, and there are at most as many such starts as the pattern has single characters."""


@dataclass(frozen=True)
class Counts:
    """Word counts of documents.

    Attributes
    ----------
    X : (documents, words) CSR
        Count of each word in each document.
    words : (words,) array of str
        The words.
    ids : list of str
        Identifiers of the documents.
    labels : list of str or None
        Classes of the documents, if known.
    excerpts : list of str
        Beginnings of the documents.
    vectorizer : CountVectorizer
        The fitted vectorizer.
    dates : list of str or None
        Dates of the documents as they were written, if known.
    """

    X: csr_array
    words: Array
    ids: list[str]
    labels: list[str | None]
    excerpts: list[str]
    vectorizer: CountVectorizer
    dates: list[str | None]

    @property
    def lengths(self) -> Array:
        """Number of words in each document. → (documents,)"""
        return np.asarray(self.X.sum(axis=1)).ravel()


def count_words(
    texts: Iterable[Text | str], vectorizer: CountVectorizer | None = None, *, automatic: bool | None = None
) -> Counts:
    """Count the words of documents. The documents are read once.

    Parameters
    ----------
    texts : iterable of Text or str
        Documents, for instance from :func:`read_texts`.
    vectorizer : CountVectorizer, optional
        Defines the words; :func:`make_vectorizer` by default. If it has a ``vocabulary``, only those words count.
    automatic : bool, optional
        Remove rare words. A word must occur in 1 document if there are fewer than 100, in 2 below 1,000, in 3 below
        10,000, else in 5. The default is True without a ``vectorizer``; otherwise its ``min_df`` decides.

    Returns
    -------
    Counts
    """
    if automatic is None:
        automatic = vectorizer is None
    if vectorizer is None:
        vectorizer = make_vectorizer()
    return _count(texts, vectorizer, automatic)


def count_known_words(texts: Iterable[Text | str], vectorizer: CountVectorizer) -> Counts:
    """Count the words of a fixed vocabulary. Documents may have none of them, and there may be no documents."""
    return _count(texts, vectorizer, False)


def numbered(texts: Iterable[Text | str]) -> Iterator[Text]:
    """Yield documents; plain strings get their number as identifier."""
    if isinstance(texts, str):
        raise TypeError("texts is one string: pass a list of strings, or read files with read_texts(path).")
    for number, text in enumerate(texts, 1):
        yield Text(str(number), text, None) if isinstance(text, str) else text


def _count(texts: Iterable[Text | str], vectorizer: CountVectorizer, automatic: bool) -> Counts:
    ids: list[str] = []
    labels: list[str | None] = []
    excerpts: list[str] = []
    dates: list[str | None] = []

    def bodies() -> Iterable[str]:
        for document in numbered(texts):
            ids.append(document.id)
            labels.append(document.label)
            excerpts.append(excerpt(document.text))
            dates.append(document.date)
            yield document.text

    if vectorizer.vocabulary is not None or hasattr(vectorizer, "vocabulary_"):
        X = csr_array(vectorizer.transform(bodies()))
        return Counts(X, vectorizer.get_feature_names_out(), ids, labels, excerpts, vectorizer, dates)
    try:
        X = csr_array(vectorizer.fit_transform(bodies()))
    except ValueError as error:
        if "empty vocabulary" in str(error) or "no terms remain" in str(error):
            if not ids:
                raise ValueError(no_documents(texts)) from error
            raise ValueError(
                f"None of the {len(ids)} documents has a word that counts: lower min_df, choose another language of "
                "the stop words, or change token_pattern. In a table, check that the column holds the text."
            ) from error
        raise
    if automatic and (least := min_documents(len(ids))) > 1:
        keep = np.bincount(X.indices, minlength=X.shape[1]) >= least
        if keep.any():
            names = vectorizer.get_feature_names_out()[keep]
            X = csr_array(X[:, keep])
            vectorizer.vocabulary_ = {str(name): i for i, name in enumerate(names)}
    return Counts(X, vectorizer.get_feature_names_out(), ids, labels, excerpts, vectorizer, dates)


def excerpt(text: str) -> str:
    """Return the beginning of a text as one line."""
    short = " ".join(text[: 4 * EXCERPT].split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1].rstrip() + "…"


def vectorizer_options(vectorizer: CountVectorizer) -> dict[str, Any]:
    """Return the options of a vectorizer that a model file stores besides the vocabulary."""
    options = {}
    defaults = CountVectorizer().get_params()
    for name, value in vectorizer.get_params().items():
        if name in VECTORIZER:
            if callable(value):
                raise ValueError(f"{name}={value!r} cannot be saved: a model file holds no code.")
            options[name] = sorted(value) if name == "stop_words" and not isinstance(value, str | None) else value
        elif name in ("preprocessor", "tokenizer") and value is not defaults[name]:
            raise ValueError(f"{name}={value!r} cannot be saved: a model file holds no code.")
    return options


def restore_vectorizer(
    options: Mapping[str, Any], vocabulary: list[str], token_pattern: str | None = None
) -> CountVectorizer:
    """Make the vectorizer that a model file describes.

    Parameters
    ----------
    options, vocabulary
        Contents of the file, as checked by :func:`onmf.load`.
    token_pattern : str, optional
        The pattern of a word, if the caller trusts it. Needed unless the pattern in the file is simple.

    Returns
    -------
    CountVectorizer
    """
    stored = options.get("token_pattern", DEFAULT)
    if token_pattern not in (None, stored):
        raise ValueError(f"The model's words were found with the pattern {stored!r}, not with {token_pattern!r}.")
    if options.get("analyzer", "word") == "word":
        if stored is None:
            raise ValueError("The model's vocabulary is damaged: it does not say what a word is.")
        if token_pattern is None and not is_simple(stored):
            raise ValueError(
                f"The model's words were found with the pattern {stored!r}. Such a pattern can take very long on some "
                "texts, so one from a file is not used by default. If you trust it, pass it as token_pattern "
                "(--token-pattern on the command line)."
            )
    params = {name: tuple(value) if name == "ngram_range" else value for name, value in options.items()}
    return CountVectorizer(**params, dtype=np.int32, vocabulary=vocabulary)


def is_simple(pattern: str) -> bool:
    """Whether a pattern matches any text in linear time."""
    match = SIMPLE.fullmatch(pattern)
    return match is not None and bool(match["begin"] or not match["end"])
