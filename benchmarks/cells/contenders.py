"""The contenders: from counts to labels. None of them sees the classes, only their number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from onmf import ONMF
from onmf.backend import available_cores
from onmf.cells.fit import fit_counts

GENES, COMPONENTS, STARTS = 2_000, 30, 10
"""Settings of the standard pipeline, as its tutorials have them."""

NEIGHBOURS, EXACT = 15, 8_192
"""Neighbours of a cell, and number of cells from which on scanpy searches them approximately."""

RESOLUTIONS = (1e-3, 30.0)
"""Resolutions of Leiden between which the one is searched that gives the right number of clusters."""

TRIALS = 25
"""Resolutions that are tried at most."""


@dataclass(frozen=True)
class Contender:
    """A way to cluster cells.

    Attributes
    ----------
    title : str
        Its name in the tables.
    labels : callable
        Takes counts, number of clusters, seed and the setting, and returns labels.
    setting : callable, optional
        Takes counts, number of clusters and seed, and returns the setting with which there are as many clusters.
    random : bool
        Whether the labels depend on the seed.
    """

    title: str
    labels: Callable[..., Any]
    setting: Callable[[csr_array, int, int], float] | None = None
    random: bool = True


def components(X: csr_array, seed: int) -> Any:
    """Run the standard pipeline of scanpy up to the principal components, and return the AnnData object."""
    import scanpy as sc
    from anndata import AnnData

    adata = AnnData(csr_matrix(X, dtype=np.float32))  # scanpy 1.11 cannot normalise sparse arrays
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    if X.shape[1] > GENES:
        sc.pp.highly_variable_genes(adata, n_top_genes=GENES)
    sc.pp.pca(adata, n_comps=min(COMPONENTS, *(side - 1 for side in X.shape)), random_state=seed)
    return adata


def kmeans(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Run k-means on the principal components, the best of ten."""
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=STARTS, random_state=seed).fit_predict(components(X, seed).obsm["X_pca"])


def neighbours(X: csr_array, seed: int) -> Any:
    """Run the standard pipeline of scanpy up to the graph of neighbours, and return the AnnData object."""
    import scanpy as sc

    sc.settings.n_jobs = available_cores()
    adata = components(X, seed)
    sc.pp.neighbors(adata, random_state=seed, transformer=searcher(X.shape[0], seed) if X.shape[0] >= EXACT else None)
    return adata


def searcher(n: int, seed: int) -> Any:
    """Return the approximate search that scanpy uses for many cells, with scanpy's settings.

    Sparse arrays, which pynndescent 0.7 returns, are an error in scanpy 1.11.
    """
    from pynndescent import PyNNDescentTransformer

    class Searcher(PyNNDescentTransformer):
        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> csr_matrix:
            return csr_matrix(super().fit_transform(X, y, **fit_params))

    trees, rounds = min(64, 5 + round(n**0.5 / 20)), max(5, round(np.log2(n)))
    settings = {"n_trees": trees, "n_iters": rounds, "random_state": seed, "n_jobs": available_cores()}
    return Searcher(n_neighbors=NEIGHBOURS, metric="euclidean", metric_kwds={}, **settings)


def communities(adata: Any, seed: int, resolution: float) -> Any:
    """Run Leiden on a graph of neighbours."""
    import scanpy as sc

    options = {"flavor": "igraph", "n_iterations": 2, "directed": False}
    sc.tl.leiden(adata, resolution=resolution, random_state=seed, **options)
    return np.asarray(adata.obs["leiden"].cat.codes)


def leiden(X: csr_array, k: int, seed: int, setting: float = 1.0) -> Any:
    """Run Leiden with a given resolution."""
    return communities(neighbours(X, seed), seed, setting)


def resolution_for(X: csr_array, k: int, seed: int) -> float:
    """Find, by bisection, a resolution at which Leiden finds k communities, or as nearly as possible."""
    adata = neighbours(X, seed)
    low, high = np.log(RESOLUTIONS)
    found: dict[float, int] = {}
    while len(found) < TRIALS and k not in found.values():
        middle = (low + high) / 2
        found[middle] = len(np.unique(communities(adata, seed, np.exp(middle))))
        low, high = (middle, high) if found[middle] < k else (low, middle)
    return float(np.exp(min(found, key=lambda resolution: abs(found[resolution] - k))))


def paper(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Run KL-ONMF as in the paper: all genes, one start, from SNPA."""
    return ONMF(k).fit_predict(X)


def default(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Cluster cells with the defaults for cells."""
    return fit_counts(X, k, random_state=seed).model.labels_


def consensus(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Cluster cells by the consensus of thirty runs."""
    return fit_counts(X, k, init="consensus", random_state=seed).model.labels_


CONTENDERS = {
    "kmeans": Contender("scanpy, k-means", kmeans),
    "leiden": Contender("scanpy, Leiden", leiden, setting=resolution_for),
    "paper": Contender("KL-ONMF, the paper's start, all genes", paper, random=False),
    "default": Contender("onmf.cells", default),
    "consensus": Contender("onmf.cells, consensus", consensus),
}
