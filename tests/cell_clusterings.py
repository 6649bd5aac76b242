"""Clusterings of cells for tests of reports, made from counts alone."""

from functools import cache

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from onmf import ONMF
from onmf.cells import CellClustering, Markers
from onmf.cells.result import CellComparison
from onmf.datasets import make_counts


@cache
def small_clustering():
    """Four clusters of 400 generated cells with known classes."""
    found = make_counts(400, 120, 4, length=150, random_state=0)
    return clustering_of(found.X, 4, classes=[f"type {label}" for label in found.y])


def clustering_of(X, k, *, barcodes=None, genes=None, classes=None, n_used=2000, **options):
    """Clusters of these counts, with all that a report shows. The map is a projection on the centroids."""
    X = csr_array(X)
    n, p = X.shape
    genes = genes or [f"GENE{j}" for j in range(p)]
    depths = X.sum(axis=1).astype(float)
    entries = X.tocoo()
    row, column = entries.coords
    expected = depths[row] * (X.sum(axis=0) / depths.sum())[column]
    deviance = 2 * np.bincount(column, entries.data * np.log(entries.data / expected), minlength=p)
    used = np.sort(np.argsort(-deviance, kind="stable")[:n_used])
    model = ONMF(k, init="random-partition", random_state=0, **options).fit(X[:, used])
    labels = np.asarray(model.labels_)
    member = csr_array((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    sums, having = (member @ X).toarray(), (member @ (X > 0).astype(float)).toarray()
    sizes, totals = np.bincount(labels, minlength=k)[:, None], sums.sum(axis=1, keepdims=True)
    inside, outside = (sums + 1) / (totals + p), (sums.sum(axis=0) - sums + 1) / (totals.sum() - totals + p)
    scores = inside * np.log(inside / outside)
    best = np.argsort(-scores, axis=1)[:, :10]
    picked = [
        np.take_along_axis(values, best, axis=1)
        for values in (
            scores,
            np.log2(inside / outside),
            having / np.maximum(sizes, 1),
            (having.sum(axis=0) - having) / np.maximum(n - sizes, 1),
        )
    ]
    centroids = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
    fits = X[:, used] @ np.log(centroids + 1e-6).T
    order = np.argsort(-fits, axis=1)
    runners_up = np.where(order[:, 0] == labels, order[:, 1], order[:, 0]) if k > 1 else np.full(n, -1)
    margins = np.abs(fits[np.arange(n), labels] - fits[np.arange(n), runners_up])
    shares = fits / depths[:, None]
    comparison = None
    if classes is not None:
        known = sorted(set(classes))
        table = np.zeros((len(known), k), dtype=int)
        np.add.at(table, ([known.index(label) for label in classes], labels), 1)
        comparison = CellComparison(adjusted_rand_score(classes, labels), 0.7, 0.6, 0.5, known, table)
    return CellClustering(
        model=model,
        X=X,
        barcodes=barcodes or [f"CELL{i}-1" for i in range(n)],
        gene_names=genes,
        genes=used,
        view="counts",
        temperature=10.0,
        deviance=deviance,
        labels=labels,
        confidence=1 - np.exp(-margins / 10),
        margins=margins / depths,
        runners_up=runners_up,
        depths=depths,
        genes_per_cell=np.diff(X.indptr),
        names=[", ".join(genes[j] for j in row[:2]) for row in best],
        markers=Markers(best, *picked, np.zeros(best.shape), np.zeros(best.shape)),
        profiles=sums / np.maximum(totals, 1),
        embedding=np.linalg.svd(shares - shares.mean(axis=0), full_matrices=False)[0][:, :2],
        map_method="a projection for tests",
        classes=classes,
        comparison=comparison,
        notes=["A note & more."],
        source="folder/small.h5ad",
    )
