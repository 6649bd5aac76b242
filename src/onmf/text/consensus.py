"""A consensus of views of documents: words weighed in three ways that err differently.

The counts themselves, where every occurrence of a word counts. The logarithms of the counts times the inverse document
frequency (log-tf-idf), where a word that comes in bursts or is in most documents counts less. And log-tf-idf by cosine,
where all documents count the same, however long they are. No way is best everywhere, so runs in all of them vote.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer

from onmf.confidence import REFIT_SEED, every_run
from onmf.data import Data, InMemory
from onmf.divergence import Array, Cosine
from onmf.estimator import ONMF, fit_model
from onmf.fit import Clustering, Listener, Settings

from .votes import fit_views

VIEWS = 3
"""Number of views."""

RUNS = 24
"""Runs that vote, over all views."""

REFITS = 9
"""Independent runs, over all views, from which the confidence is learnt."""

STEPS = 4
"""Steps of one unit of log-tf-idf. Rounded ones are whole numbers, with which local searches are fast."""


def consensus_of_views(
    X: Any,
    n_clusters: int,
    *,
    n_runs: int = RUNS,
    progress: Callable[[float], None] | None = None,
    **parameters: Any,
) -> ONMF:
    """Cluster documents by a consensus of three views of their words: counts, log-tf-idf, and log-tf-idf by cosine.

    Parameters
    ----------
    X : array or sparse array of shape (documents, words)
        Counts, in memory.
    n_clusters : int
        Number of clusters.
    n_runs : int, default=24
        Number of runs that vote, over all views.
    progress : callable, optional
        Called after each run with the share of the runs that are done.
    **parameters
        Parameters of :class:`onmf.ONMF`: ``random_state``, ``n_threads``, ``max_iter``, ``tol``, ``smoothing`` or
        ``engine``.

    Returns
    -------
    ONMF
        A model of the counts under Kullback–Leibler. ``labels_`` are those of the consensus, and the centroids are
        computed from them. ``predict``, which sees counts only, can put a document of ``X`` elsewhere. ``agreement_``
        tells how far the runs agree.

    Examples
    --------
    >>> from onmf.datasets import make_counts
    >>> from onmf.metrics import clustering_accuracy
    >>> from onmf.text import consensus_of_views
    >>> data = make_counts(300, 80, 4, random_state=0)
    >>> model = consensus_of_views(data.X, 4, random_state=0)
    >>> bool(clustering_accuracy(data.y, model.labels_) > 0.95)
    True
    """
    fixed = {"init": "consensus", "refine": "local-search", "n_consensus": n_runs}
    for name in ("beta_loss", "n_init", *fixed):
        if name in parameters:
            raise ValueError(f"{name}={parameters[name]!r} is not allowed: a consensus of views has its own.")
    model = ONMF(n_clusters, **fixed, **parameters)  # type: ignore[arg-type]
    return fit_model(model, X, compute=partial(_fit, progress=progress))


def _fit(data: Data, settings: Settings, listener: Listener, *, progress: Callable[[float], None] | None) -> Clustering:
    """Fit counts that were checked."""
    if not isinstance(data, InMemory):
        raise ValueError("A consensus of views needs all rows in memory, and X comes in parts: use ONMF.")
    block, logs = data.block, log_tfidf(data.block.on_host)

    def view(divergence: Any) -> Data:
        return InMemory(block.backend.make_block(logs, divergence, block.weights))

    others = [partial(view, data.divergence), partial(view, Cosine())]
    return fit_views(data, settings, listener, others=others, progress=progress)


def log_tfidf(X: Any) -> csr_array:
    """log(1 + x) · idf of each count x, in quarters, rounded. → (documents, words) of int32"""
    counts = csr_array(X)
    idf = TfidfTransformer(norm=None).fit(counts).idf_
    values = np.rint(STEPS * np.log1p(counts.data.astype(np.float64)) * idf[counts.indices])
    present = np.where(counts.data > 0, np.maximum(values, 1), 0).astype(np.int32)
    return csr_array((present, counts.indices, counts.indptr), shape=counts.shape)


def independent_runs(model: ONMF, X: csr_array, *, n_runs: int = REFITS, seed: int = REFIT_SEED) -> list[Array]:
    """The labels of some rows of a consensus of views in runs of their own, as many in each view."""
    labels = []
    logs = log_tfidf(X)
    for number, (divergence, values) in enumerate(
        ((model.divergence_, X), (model.divergence_, logs), (Cosine(), logs))
    ):
        one = ONMF(
            model.n_clusters,
            beta_loss=divergence,
            init="random-partition",
            n_init=n_runs // VIEWS,
            refine="local-search",
            random_state=seed + number,
            max_iter=model.max_iter,
            tol=model.tol,
            engine=model.engine,
            n_threads=model.n_threads,
        )
        labels += [run.labels for run in every_run(one, values)]
    return labels
