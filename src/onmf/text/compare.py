"""Clusters of documents against known classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics.cluster import contingency_matrix

from onmf.divergence import Array
from onmf.metrics import Scores, compare, match_clusters


@dataclass(frozen=True)
class Comparison(Scores):
    """Clusters compared with known classes, over the documents that have both: scores, and the table of both.

    Attributes
    ----------
    classes : list of str
        The classes.
    counts : (classes, clusters) array of int
        Documents of each class in each cluster.
    matched : dict of int to str
        Class of each cluster, matched one to one.
    """

    classes: list[str]
    counts: Array
    matched: dict[int, str]

    @property
    def n_documents(self) -> int:
        """Number of documents that were compared."""
        return int(self.counts.sum())


def compare_documents(classes: Sequence[str | None], clusters: Array, n_clusters: int) -> Comparison | None:
    """Compare clusters with known classes; negative clusters count as none. None if no document has both."""
    both = [i for i, label in enumerate(classes) if label is not None and clusters[i] >= 0]
    if not both:
        return None
    y, labels = np.array([classes[i] for i in both]), clusters[both]
    counts = np.zeros((len(np.unique(y)), n_clusters), dtype=np.int64)
    counts[:, np.unique(labels)] = contingency_matrix(y, labels)
    return Comparison(
        **compare(y, labels, n_clusters=n_clusters).numbers(),  # type: ignore[arg-type]
        classes=[str(name) for name in np.unique(y)],
        counts=counts,
        matched={int(cluster): str(name) for cluster, name in match_clusters(y, labels).items()},
    )
