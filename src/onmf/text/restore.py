"""How the documents of a model were read and counted, so that new ones are treated alike."""

from __future__ import annotations

import re
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer

from onmf.estimator import ONMF
from onmf.io.schema import check_parts

from .kind import KIND, is_documents
from .read import STRIP
from .words import restore_vectorizer


def vectorizer_of(model: ONMF, token_pattern: str | None = None) -> CountVectorizer:
    """The vectorizer of a document model; for ``token_pattern`` see :func:`onmf.text.assign_documents`."""
    extra = getattr(model, "extra_", {"kind": "matrix"})
    if not is_documents(extra):
        raise ValueError(f"This is a model of kind {extra['kind']!r}: documents need one of kind 'documents'.")
    try:
        check_parts(KIND, extra, *model.cluster_centers_.shape)
    except ValueError as error:
        raise ValueError(f"The model's vocabulary is damaged: {error}.") from error
    vectorizer = restore_vectorizer(extra["vectorizer"], extra["vocabulary"], token_pattern)
    try:
        vectorizer.build_analyzer()
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"The model's vocabulary is damaged: {error}.") from error
    return vectorizer


def options_of(model: ONMF) -> dict[str, Any]:
    """Options for :func:`read_texts` that read new documents as those of the model were read."""
    dropped = getattr(model, "extra_", {}).get("source", {}).get("strip", [])
    return {"strip": [name for name in dropped if name in STRIP]}
