"""Read documents, count their words, and cluster them."""

from typing import Any

from onmf import old_names
from onmf.datasets.count import make_vectorizer, stop_words

from .consensus import consensus_of_views
from .files import Text, Texts, read
from .kind import DocumentClusters, cluster, predict
from .words import Documents, count

__all__ = [
    "DocumentClusters",
    "Documents",
    "Text",
    "Texts",
    "cluster",
    "consensus_of_views",
    "count",
    "make_vectorizer",
    "predict",
    "read",
    "stop_words",
]


def __getattr__(name: str) -> Any:
    return old_names.lookup(__name__, name)
