"""Read documents, count their words, and cluster them."""

from __future__ import annotations

from onmf.datasets.vocabulary import make_vectorizer, stop_words

from .cluster import DocumentClusters, assign_documents, cluster_documents
from .compare import Comparison
from .consensus import consensus_of_views
from .read import Text, Texts, read_texts
from .words import Counts, count_words
from .write import write_tables

__all__ = [
    "Comparison",
    "Counts",
    "DocumentClusters",
    "Text",
    "Texts",
    "assign_documents",
    "cluster_documents",
    "consensus_of_views",
    "count_words",
    "make_vectorizer",
    "read_texts",
    "stop_words",
    "write_tables",
]
