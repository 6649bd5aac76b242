"""Which words count, for all that counts words: a word is two or more letters, and stop words are removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

LETTERS = r"\b[^\W\d_]{2,}\b"
"""A word: two or more letters of any alphabet, without digits."""

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
        try:
            from stopwordsiso import has_lang, stopwords
        except ImportError as error:
            raise ImportError(
                f"Stop words for {language!r} need stopwordsiso: pip install 'onmf[text]'. English ones are built in."
            ) from error
        if not has_lang(code):
            raise ValueError(
                f"No stop words are known for the language {language!r}: use 'none', or the name or code of one of "
                f"{', '.join(LANGUAGES)}."
            )
        words = stopwords(code)
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


def min_documents(n: int) -> int:
    """Number of documents, out of n, in which a word must occur to count."""
    return 1 if n < 100 else 2 if n < 1000 else 3 if n < 10_000 else 5
