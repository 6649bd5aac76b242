"""A map of documents in the plane, for people to look at. Clusters are never computed from it.

Counts → log-tf-idf of unit length → the first 50 singular vectors (latent semantic analysis) → t-SNE, if openTSNE is
installed; otherwise, the two most variable of these vectors.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from onmf.backend.threads import available_cores
from onmf.divergence import FloatArray
from onmf.tsne import FEW, Progress, first_two, tsne

COMPONENTS = 50
"""Singular vectors from which the map is made."""

EXTRA = 10
"""Singular vectors that are computed besides, for accuracy."""


def map_of_documents(
    X: csr_array, *, seed: int = 0, n_threads: int | None = None, progress: Progress | None = None
) -> tuple[FloatArray, str]:
    """Place documents in the plane so that documents with similar words are close.

    Parameters
    ----------
    X : csr_array of shape (documents, words)
        Counts of words, in memory; each document has at least one word.
    seed : int, default=0
        The same seed, number of threads and machine give the same map.
    n_threads : int, optional
        Threads; by default all cores.
    progress : callable, optional
        Called with the name of the step and the share of it that is done.

    Returns
    -------
    places : ndarray of shape (documents, 2)
        The map.
    method : str
        How the map was made, for people to read.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from onmf.text.embed import map_of_documents
    >>> places, method = map_of_documents(csr_array([[2, 0, 1], [1, 0, 1], [0, 3, 1], [0, 1, 1]]))
    >>> places.shape
    (4, 2)
    >>> method
    'the first two singular vectors of log-tf-idf'
    """
    report = progress or (lambda name, share: None)
    cores = n_threads or available_cores()
    report("map", None)
    with threadpool_limits(cores):
        components = _components(X, seed)
    if len(components) < FEW or find_spec("openTSNE") is None:
        return first_two(components), "the first two singular vectors of log-tf-idf"
    places = tsne(components, seed=seed, n_threads=cores, progress=report, extra="report")
    return places, f"t-SNE (openTSNE) of the first {components.shape[1]} singular vectors of log-tf-idf"


def _components(X: csr_array, seed: int) -> FloatArray:
    """Return the left singular vectors of log-tf-idf times their singular values, the most variable first."""
    weights = csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(X.astype(np.float64)))
    kept = max(1, min(COMPONENTS, min(weights.shape) - 1))
    U, s, _ = randomized_svd(weights, kept, n_oversamples=EXTRA, n_iter=4, random_state=seed)
    components = U * s
    components -= components.mean(axis=0)  # the first vector is nearly the mean of all documents
    return components[:, np.argsort(-components.var(axis=0), kind="stable")]
