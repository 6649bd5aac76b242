"""Models of documents as a kind of model: what their files hold besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onmf.confidence import calibration_rules
from onmf.io.rules import FLAG, Rule, either, integer, json_object, one_of, optional, strings
from onmf.kinds import Kind, get_kind

KIND = "documents"
"""Name of the kind in model files."""

LONGEST_RUN = 20
"""Words or letters of the longest n-gram: the memory that a document needs grows with this number."""

LONGEST_PATTERN = 1000
"""Characters of the longest regular expression."""

VECTORIZER = {
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
            and all(integer(1, LONGEST_RUN).fits(n) for n in value)
            and value[0] <= value[1]
        ),
        f"a range between 1 and {LONGEST_RUN}",
    ),
    "analyzer": one_of("word", "char", "char_wb"),
    "binary": FLAG,
}
"""Options of CountVectorizer that determine the words of a new document, given the vocabulary."""

SOURCE = {"strip": optional(strings())}
"""The only entries of ``source`` that are read from a file; the others are for people."""


def _rules(k: int, p: int) -> dict[str, Rule]:
    return {
        "vocabulary": strings(p, distinct=True),
        "vectorizer": json_object({name: optional(rule) for name, rule in VECTORIZER.items()}, closed=True),
        "source": optional(json_object(SOURCE)),
        **calibration_rules(k),
        "names": optional(strings(k)),
    }


def _vocabulary(extra: Mapping[str, Any]) -> list[str]:
    return extra["vocabulary"]


DOCUMENTS = Kind(
    predict="onmf.cli.models:predict_documents",
    rules=_rules,
    feature_names=_vocabulary,
    features="words",
    rows="documents",
    first=1,
)


def is_documents(parts: Mapping[str, Any]) -> bool:
    """Whether the entries of a model are those of documents."""
    return get_kind(parts.get("kind", "matrix")) is DOCUMENTS
