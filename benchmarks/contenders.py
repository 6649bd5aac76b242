"""The contenders: from counts of documents or cells to labels. None of them sees the classes, only their number."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.feature_extraction.text import TfidfTransformer

from onmf import ONMF
from onmf.backend import available_cores
from onmf.cells import Cells, cluster
from onmf.cells.kind import CellKind
from onmf.door.votes import fit_by_vote
from onmf.text.consensus import consensus_of_views
from onmf.text.kind import DOCUMENTS

STARTS = 10
"""Restarts of the methods that depend on their start."""


@dataclass(frozen=True)
class Method:
    """A way to cluster.

    Attributes
    ----------
    title : str
        Its name in the tables.
    labels : callable
        Takes counts, number of clusters, seed and number of threads, for cells a setting instead; returns labels.
    settings : str
        What it runs.
    random : bool
        Whether the labels depend on the seed.
    setting : callable, optional
        Takes counts, number of clusters and seed, and returns the setting with which there are as many clusters.
    """

    title: str
    labels: Callable[..., Any]
    settings: str = ""
    random: bool = True
    setting: Callable[[csr_array, int, int], float] | None = None


# Documents.


def onmf(X: Any, k: int, seed: int, threads: int, **options: Any) -> Any:
    """Run KL-ONMF as in the paper, or with other options."""
    return ONMF(k, random_state=seed, n_threads=threads, **options).fit_predict(X)


def views(X: Any, k: int, seed: int, threads: int) -> Any:
    """Take a consensus of three views of the words: 24 runs, all with local search."""
    return consensus_of_views(X, k, random_state=seed, n_threads=threads).labels_


def best(X: Any, k: int, seed: int, threads: int) -> Any:
    """Run what ``onmf documents`` runs on these counts."""
    parameters = {"n_threads": threads, "random_state": seed}
    return fit_by_vote(X, k, parameters, lambda share: None, lambda how: None, DOCUMENTS.views).model.labels_


def kmeans(X: Any, k: int, seed: int, threads: int, kind: Any = KMeans) -> Any:
    """Run k-means, the best of ten; or k-means in small batches, from the best of ten starts."""
    return kind(k, n_init=STARTS, random_state=seed).fit_predict(X)


def nmf(X: Any, k: int, seed: int, threads: int, **options: Any) -> Any:
    """Run NMF. The cluster is the largest topic, with topics that sum to one: those of scikit-learn have no scale."""
    model = NMF(k, random_state=seed, **options)
    return (model.fit_transform(X) * model.components_.sum(axis=1)).argmax(axis=1)


def lda(X: Any, k: int, seed: int, threads: int) -> Any:
    """Run latent Dirichlet allocation."""
    return LatentDirichletAllocation(k, random_state=seed).fit_transform(X).argmax(axis=1)


def sib(X: Any, k: int, seed: int, threads: int) -> Any:
    """Run the sequential information bottleneck, the best of ten."""
    from sib import SIB

    model = SIB(n_clusters=k, n_init=STARTS, max_iter=15, uniform_prior=False, n_jobs=threads, random_state=seed)
    return np.asarray(model.fit(sib_data(X)).labels_)


def sib_data(X: Any) -> csr_matrix:
    """Return counts as sIB's compiled part takes them: in 64 bits, with indices of 32 bits."""
    counts = csr_matrix(X.astype(np.int64))
    counts.indices, counts.indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int32)
    return counts


def on_tfidf(X: Any, k: int, seed: int, threads: int, labels: Callable[..., Any], **options: Any) -> Any:
    """Run a method on tf-idf instead of counts."""
    return labels(TfidfTransformer().fit_transform(X), k, seed, threads, **options)


# Cells.

GENES, COMPONENTS = 2_000, 30
"""Settings of the standard pipeline, as its tutorials have them."""

NEIGHBOURS, EXACT = 15, 8_192
"""Neighbours of a cell, and number of cells from which on scanpy searches them approximately."""

RESOLUTIONS, TRIALS = (1e-3, 30.0), 25
"""Resolutions of Leiden between which the one is searched that gives the right number of clusters, and most trials."""


def components(X: csr_array, seed: int, number: int = COMPONENTS) -> Any:
    """Run the standard pipeline of scanpy up to the principal components, and return the AnnData object."""
    import scanpy as sc
    from anndata import AnnData

    adata = AnnData(csr_matrix(X, dtype=np.float32))  # scanpy 1.11 cannot normalise sparse arrays
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    if X.shape[1] > GENES:
        sc.pp.highly_variable_genes(adata, n_top_genes=GENES)
    sc.pp.pca(adata, n_comps=min(number, *(side - 1 for side in X.shape)), random_state=seed)
    return adata


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

    sc.tl.leiden(adata, resolution, random_state=seed, flavor="igraph", n_iterations=2, directed=False)
    return np.asarray(adata.obs["leiden"].cat.codes)


def leiden(X: csr_array, k: int, seed: int, setting: float | None = None) -> Any:
    """Run Leiden with a given resolution."""
    return communities(neighbours(X, seed), seed, 1.0 if setting is None else setting)


def resolution_for(X: csr_array, k: int, seed: int) -> float:
    """Find a resolution at which Leiden finds k communities of cells, or as nearly as possible."""
    return resolution_in(neighbours(X, seed), k, seed)


def resolution_in(adata: Any, k: int, seed: int) -> float:
    """Find, by bisection, a resolution at which Leiden finds k communities in a graph, or as nearly as possible."""
    low, high = np.log(RESOLUTIONS)
    found: dict[float, int] = {}
    while len(found) < TRIALS and k not in found.values():
        middle = (low + high) / 2
        found[middle] = len(np.unique(communities(adata, seed, np.exp(middle))))
        low, high = (middle, high) if found[middle] < k else (low, middle)
    return float(np.exp(min(found, key=lambda resolution: abs(found[resolution] - k))))


def kmeans_of_components(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Run k-means on the principal components, the best of ten."""
    return kmeans(components(X, seed).obsm["X_pca"], k, seed, 1)


def cells(X: csr_array, k: int, seed: int, setting: None = None, **options: Any) -> Any:
    """Cluster cells with the defaults for cells, or with other options."""
    parameters = {"random_state": seed, **options}
    kind = CellKind()
    rows = kind.prepare(Cells(X, [""] * X.shape[0], [""] * X.shape[1]), parameters, lambda step, share: None)
    return kind.fit(rows, k, parameters, lambda share: None, None).model.labels_


def all_genes(X: csr_array, k: int, seed: int, setting: None = None) -> Any:
    """Run KL-ONMF as in the paper: all genes, one start, from SNPA."""
    return ONMF(k).fit_predict(X)


CELLS = {
    "kmeans": Method("scanpy, k-means", kmeans_of_components),
    "leiden": Method("scanpy, Leiden", leiden, setting=resolution_for),
    "paper": Method("KL-ONMF, the paper's start, all genes", all_genes, random=False),
    "default": Method("onmf.cells", cells),
    "consensus": Method("onmf.cells, consensus", partial(cells, init="consensus")),
}


def cluster_counts(X: Any, k: int, seed: int = 0, genes: Any = None, **options: Any) -> Any:
    """Cluster cells without names, as ``onmf cells`` does."""
    cells, numbers = ([str(i) for i in range(size)] for size in X.shape)
    names = numbers if genes is None else [str(gene) for gene in genes]
    return cluster(Cells(X, cells, names), k, random_state=seed, **options)
