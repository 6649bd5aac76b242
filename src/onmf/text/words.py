"""Words: which ones count, and how often each document has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from onmf.divergence import Array

from .kind import VECTORIZER
from .read import Text

LETTERS = r"\b[^\W\d_]{2,}\b"
"""A word: two letters or more, of any alphabet, with no digit among them."""

DEFAULT = CountVectorizer().token_pattern
"""The pattern of a file that names none."""

EXCERPT = 400
"""Characters of each document that are kept for people to read."""

CONTRACTED = (
    "ain", "aren", "can", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn", "mustn", "needn",
    "shan", "shouldn", "wasn", "weren", "won", "wouldn", "ll", "re", "ve", "im", "ive", "id", "dont", "doesnt",
    "didnt", "cant", "wont", "isnt", "thats", "youre",
)  # fmt: skip
"""What is left of "doesn't" and the like once only letters count."""

LANGUAGES = {
    "arabic": "ar", "bulgarian": "bg", "catalan": "ca", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
    "estonian": "et", "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi",
    "hungarian": "hu", "indonesian": "id", "irish": "ga", "italian": "it", "latin": "la", "latvian": "lv",
    "lithuanian": "lt", "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt", "romanian": "ro",
    "russian": "ru", "slovak": "sk", "slovenian": "sl", "spanish": "es", "swahili": "sw", "swedish": "sv",
    "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip

UNIT = r"(?:\\[wWdDsS]|[\w.#@'-]|\[\^?(?:\\[wWdDsS^\]\\-]|[^\[\]\\])+\])"
"""What stands for one character in a regular expression: a class, a sign, a list of those."""

SIMPLE = re.compile(
    rf"(?!.*(?:--|&&|\|\||~~))(?:\(\?u\))?(?P<begin>\\b)?{UNIT}{{1,8}}(?:[+*?]|\{{\d{{1,2}}(?:,\d{{0,2}})?\}})?(?P<end>\\b)?"
)
"""A pattern of words that takes time in proportion to the text, whatever the text: a few single characters, then a run
of one kind. It may end at a border of a word only if it begins at one. Otherwise every letter of a long run would be
tried as a beginning, and the run gone through from each. With both borders, a beginning fails only where the run has no
border left, and only as many can as the pattern has single characters."""


def stop_words(language: str | None) -> list[str]:
    """Words of a language that say nothing of a subject, sorted.

    English is scikit-learn's list, with what only letters leave of contractions; the others are those of the package
    stopwordsiso.

    Parameters
    ----------
    language : str or None
        A name (``"german"``) or a code (``"de"``); None or ``"none"`` for no words at all.

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
        try:
            from stopwordsiso import has_lang, stopwords
        except ImportError as error:
            raise ImportError(
                f"Stop words of {language!r} need stopwordsiso: pip install 'onmf[text]'. English ones are built in."
            ) from error
        if not has_lang(code):
            raise ValueError(
                f"No stop words are known for the language {language!r}: use a name or code of {', '.join(LANGUAGES)}, "
                "or 'none'."
            )
        words = stopwords(code)
    return sorted({part for word in words for part in re.findall(LETTERS, word.lower())})


def make_vectorizer(language: str | None = "english", **options: Any) -> CountVectorizer:
    """A CountVectorizer with defaults that suit clustering: words of letters, lower case, no stop words.

    Parameters
    ----------
    language : str or None, default="english"
        Whose stop words to leave out; see :func:`stop_words`.
    **options
        Any option of CountVectorizer, which then takes the place of the default.

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


@dataclass(frozen=True)
class Counts:
    """How often each document has each word.

    Attributes
    ----------
    X : (documents, words) CSR
        Counts.
    words : (words,) array of str
        The words.
    ids : list of str
        What the documents are called.
    labels : list of str or None
        Their classes, where known.
    excerpts : list of str
        How they begin.
    vectorizer : CountVectorizer
        What counted; fitted.
    """

    X: csr_array
    words: Array
    ids: list[str]
    labels: list[str | None]
    excerpts: list[str]
    vectorizer: CountVectorizer

    @property
    def lengths(self) -> Array:
        """Words of each document. → (documents,)"""
        return np.asarray(self.X.sum(axis=1)).ravel()


def count_words(
    texts: Iterable[Text | str], vectorizer: CountVectorizer | None = None, *, automatic: bool | None = None
) -> Counts:
    """Count the words of documents, which are gone through once.

    Parameters
    ----------
    texts : iterable of Text or str
        Documents, for instance from :func:`read_texts`.
    vectorizer : CountVectorizer, optional
        Says what a word is; :func:`make_vectorizer` by default. One with a ``vocabulary`` counts those words alone.
    automatic : bool, optional
        Whether to leave out words that few documents have, however many those are: 1 below 100 documents, 2 below
        1,000, 3 below 10,000, then 5. By default only without a ``vectorizer``, whose ``min_df`` decides otherwise.

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
    """Count the words of a fixed vocabulary; documents may have none of them, and there may be no documents."""
    return _count(texts, vectorizer, False)


def numbered(texts: Iterable[Text | str]) -> Iterator[Text]:
    """Documents; plain texts are called by their number."""
    if isinstance(texts, str):
        raise TypeError("texts is one string: give a list of strings, or read files with read_texts(path).")
    for number, text in enumerate(texts, 1):
        yield Text(str(number), text, None) if isinstance(text, str) else text


def few(n: int) -> int:
    """How many of n documents must have a word for it to count."""
    return 1 if n < 100 else 2 if n < 1000 else 3 if n < 10_000 else 5


def _count(texts: Iterable[Text | str], vectorizer: CountVectorizer, automatic: bool) -> Counts:
    ids: list[str] = []
    labels: list[str | None] = []
    excerpts: list[str] = []

    def bodies() -> Iterable[str]:
        for document in numbered(texts):
            ids.append(document.id)
            labels.append(document.label)
            excerpts.append(excerpt(document.text))
            yield document.text

    if vectorizer.vocabulary is not None or hasattr(vectorizer, "vocabulary_"):
        X = csr_array(vectorizer.transform(bodies()))
        return Counts(X, vectorizer.get_feature_names_out(), ids, labels, excerpts, vectorizer)
    try:
        X = csr_array(vectorizer.fit_transform(bodies()))
    except ValueError as error:
        if "empty vocabulary" in str(error) or "no terms remain" in str(error):
            if not ids:
                raise ValueError("There are no documents to count words in.") from error
            raise ValueError(
                f"None of the {len(ids)} documents has a word that counts: lower min_df, choose the language of the "
                "stop words, or change token_pattern."
            ) from error
        raise
    if automatic and (least := few(len(ids))) > 1:
        keep = np.bincount(X.indices, minlength=X.shape[1]) >= least
        if keep.any():
            names = vectorizer.get_feature_names_out()[keep]
            X = csr_array(X[:, keep])
            vectorizer.vocabulary_ = {str(name): place for place, name in enumerate(names)}
    return Counts(X, vectorizer.get_feature_names_out(), ids, labels, excerpts, vectorizer)


def excerpt(text: str) -> str:
    """How a text begins, on one line."""
    short = " ".join(text[: 4 * EXCERPT].split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1].rstrip() + "…"


def vectorizer_options(vectorizer: CountVectorizer) -> dict[str, Any]:
    """What a file has to say of a vectorizer, besides its vocabulary."""
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
    """The vectorizer that a file describes, with its vocabulary.

    Parameters
    ----------
    options, vocabulary
        What the file says, as :func:`onmf.load` has checked it.
    token_pattern : str, optional
        The pattern of the words, from somebody who trusts it; any but a simple one has to be given so.

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
                f"The model's words were found with the pattern {stored!r}, and such a pattern can take forever on "
                "some texts: one from a file is not used unasked. If you trust it, give it yourself as token_pattern "
                "(--token-pattern on the command line)."
            )
    known = {name: tuple(value) if name == "ngram_range" else value for name, value in options.items()}
    return CountVectorizer(**known, dtype=np.int32, vocabulary=vocabulary)


def is_simple(pattern: str) -> bool:
    """Whether a pattern of words takes time in proportion to any text."""
    found = SIMPLE.fullmatch(pattern)
    return found is not None and bool(found["begin"] or not found["end"])
