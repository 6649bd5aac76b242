"""The number of clusters of documents, if nobody gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scipy.sparse import csr_array

from onmf.select import Range, Selection, select_n_clusters


def choose_n_clusters(
    X: csr_array, span: Range, options: Mapping[str, Any], progress: Callable[[float], None]
) -> Selection:
    """Choose the number of clusters.

    Parameters
    ----------
    X : csr_array
        Counts of the documents that have words.
    span : Range
        Numbers of clusters to choose from, and the criterion.
    options : mapping
        Parameters of the fit; the divergence, the random state and the number of threads are used.
    progress : callable
        Called with the share of the work that is done.

    Returns
    -------
    Selection
    """
    n = X.shape[0]
    if n < 2 * (span.k_min or 2):
        raise ValueError(f"{n} documents with words are too few to choose n_clusters: give a number.")
    return select_n_clusters(
        X,
        criterion=span.criterion or "information",
        k_min=span.k_min or 2,
        k_max=span.k_max,
        beta_loss=options.get("beta_loss", "kullback-leibler"),
        random_state=options.get("random_state"),
        n_threads=options.get("n_threads"),
        progress=progress,
    )
