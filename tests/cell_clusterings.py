"""Clusterings of cells for tests of reports."""

from functools import cache

import numpy as np
from scipy.sparse import csr_array

from onmf.cells import Cells, cluster
from onmf.datasets import make_counts


@cache
def small_clustering():
    """Four clusters of 400 generated cells with known classes."""
    found = make_counts(400, 120, 4, length=150, random_state=0)
    return clustering_of(found.X, 4, classes=[f"type {label}" for label in found.y])


def clustering_of(X, k, *, barcodes=None, genes=None, classes=None, **options):
    """Clusters of these counts, with all that a report shows. The map is a projection on the profiles."""
    X = csr_array(X)
    n, p = X.shape
    names = barcodes or [f"CELL{i}-1" for i in range(n)], genes or [f"GENE{j}" for j in range(p)]
    cells = Cells(X, *names, classes=classes, source="folder/small.h5ad", notes=["A note & more."])
    clustering = cluster(cells, k, **{"view": "counts", "n_init": 1, "n_markers": 10} | options)
    shares = (X @ np.log(clustering.profiles + 1e-6).T) / X.sum(axis=1)[:, None]
    clustering.embedding = np.linalg.svd(shares - shares.mean(axis=0), full_matrices=False)[0][:, :2]
    clustering.map_method = "a projection for tests"
    return clustering
