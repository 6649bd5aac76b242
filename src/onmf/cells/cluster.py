"""Cluster the cells of an AnnData object, or of a file, and describe the clusters."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.backend import to_host
from onmf.divergence import Array, divide
from onmf.estimator import ONMF
from onmf.metrics import compare as scores_of
from onmf.tsne import Progress

from .anndata import cells_of, check_anndata, write_results
from .fit import fit_counts, keep_cells
from .genes import N_TOP_GENES, check_number
from .markers import N_MARKERS, markers_of, names_of, profiles_of
from .matrix import SomeRows, canonical
from .read import Cells
from .result import CellClustering, CellComparison


def cluster(
    adata: Any,
    n_clusters: int | str,
    *,
    layer: str | None = None,
    n_top_genes: int | None = N_TOP_GENES,
    key_added: str = "onmf",
    min_genes: int = 1,
    min_cells: int = 1,
    view: str = "auto",
    progress: Progress | None = None,
    **parameters: Any,
) -> ONMF:
    """Cluster the cells of an AnnData object by their counts, in place.

    Use raw counts, neither normalised nor log-transformed. The cells are clustered by the 2,000 genes that
    deviate most: by their counts, or by normalised logarithms of these, whichever makes the counts more likely on some
    of the cells. The better of two runs with local search is kept. Of backed objects and Dask arrays, only the columns
    of these genes are read into memory.

    Parameters
    ----------
    adata : AnnData
        Cells × genes. The results are written where scanpy looks for them:

        - ``obs[key_added]``: the cluster, a category, "0" being the largest; missing for cells that were left out.
          ``obs[key_added + "_confidence"]``: how sure that is, from 0 to 1; ``obs[key_added + "_runner_up"]``: the best
          other cluster; ``obs[key_added + "_margin"]``: how much worse that is, per count;
          ``obs[key_added + "_scale"]``: the scale of the cell.
        - ``var["deviance"]`` and ``var[key_added + "_gene"]``: deviance of each gene, and whether it was used.
        - ``varm[key_added]``: the share of each gene in the counts of each cluster, genes × clusters.
        - ``uns[key_added]``: parameters, view, objective, and with ``n_clusters="auto"`` the criteria for each number
          that was tried (``pandas.DataFrame(adata.uns["onmf"]["selection"])``).
          ``uns[key_added + "_markers"]``: marker genes, as ``scanpy.get.rank_genes_groups_df`` reads them.
    n_clusters : int or "auto"
        Number of clusters. ``"auto"`` takes the smallest number that predicts held-out counts nearly as well as the
        best one.
    layer : str, optional
        Layer with the counts; by default ``adata.X``.
    n_top_genes : int or None, default=2000
        Number of genes to cluster by, those of the highest deviance; None for all genes.
    key_added : str, default="onmf"
        Name under which the result is written.
    min_genes : int, default=1
        Cells with fewer genes are left out.
    min_cells : int, default=1
        Genes in fewer cells are not clustered by.
    view : {"auto", "counts", "logs"}, default="auto"
        What is clustered: counts, or normalised logarithms. ``"auto"`` tries both with Kullback–Leibler, and takes the
        counts with other divergences. The negative binomial refuses ``"logs"``: it describes counts.
    progress : callable, optional
        Called with the name of a step and the share of it that is done (None if unknown).
    **parameters
        Parameters of :class:`onmf.ONMF`, such as ``random_state`` (0 by default), ``n_init`` (2 by default) or
        ``n_threads``.

    Returns
    -------
    ONMF
        The fitted estimator, on the genes that were used.

    Examples
    --------
    >>> import anndata, onmf.cells
    >>> from onmf.datasets import make_counts
    >>> adata = anndata.AnnData(make_counts(200, 50, 3, random_state=0).X)
    >>> model = onmf.cells.cluster(adata, 3)
    >>> adata.obs["onmf"].cat.categories.tolist()
    ['0', '1', '2']
    """
    check_anndata(adata)
    if not isinstance(key_added, str) or not key_added:
        raise ValueError(f"key_added={key_added!r} is not allowed: give the name under which the result is written.")
    result = cluster_cells(
        cells_of(adata, layer),
        n_clusters,
        n_top_genes=n_top_genes,
        min_genes=min_genes,
        min_cells=min_cells,
        view=view,
        progress=progress,
        **parameters,
    )
    chosen = {"n_top_genes": n_top_genes or "all", "min_genes": min_genes, "min_cells": min_cells}
    write_results(adata, result, key_added, layer=layer, parameters=chosen | parameters)
    return result.model


def cluster_cells(
    cells: Cells,
    n_clusters: int | str,
    *,
    n_top_genes: int | None = N_TOP_GENES,
    min_genes: int = 1,
    min_cells: int = 1,
    view: str = "auto",
    n_markers: int = N_MARKERS,
    progress: Progress | None = None,
    **parameters: Any,
) -> CellClustering:
    """Cluster cells that were read by :func:`read_cells`.

    Parameters
    ----------
    cells : Cells
        The counts; they are not checked.
    n_clusters, n_top_genes, min_genes, min_cells, view, progress, **parameters
        As in :func:`cluster`.
    n_markers : int, default=100
        Number of marker genes of each cluster.

    Returns
    -------
    CellClustering
    """
    check_number("n_markers", n_markers, "genes")
    report = progress or (lambda name, share: None)
    report("counting", None)
    X = canonical(cells.X) if issparse(cells.X) else cells.X
    kept = keep_cells(X, min_genes)
    n = X.shape[0]
    notes = list(cells.notes)
    if len(kept.cells) < n:
        few = "no counts" if min_genes == 1 else f"fewer than {min_genes} genes"
        notes.append(f"{n - len(kept.cells):,} of {n:,} cells have {few} and were left out.")
    if isinstance(n_clusters, Integral) and n_clusters > len(kept.cells):
        raise ValueError(f"n_clusters={n_clusters}, but there are only {len(kept.cells)} cells: ask for fewer.")
    inside = X if len(kept.cells) == n else SomeRows(X, kept.cells)
    fit = fit_counts(
        inside, n_clusters, n_top_genes=n_top_genes, min_cells=min_cells, view=view, progress=progress, **parameters
    )
    k = fit.model.n_clusters
    labels = _spread(to_host(fit.model.labels_), kept.cells, n, -1)
    report("finding markers", None)
    profiles = profiles_of(X, labels, k)
    markers = markers_of(profiles, n_markers)
    gene_names = cells.symbols or cells.genes
    result = CellClustering(
        model=fit.model,
        X=cells.X,
        barcodes=cells.barcodes,
        gene_names=gene_names,
        genes=fit.view.genes,
        view=fit.view.name,
        calibration=fit.calibration,
        deviance=fit.deviance,
        labels=labels,
        confidence=_spread(fit.confidence, kept.cells, n, np.nan),
        margins=_spread(to_host(fit.model.margins_), kept.cells, n, np.nan),
        runners_up=_spread(fit.runners_up, kept.cells, n, -1),
        depths=kept.depths,
        genes_per_cell=kept.genes_per_cell,
        names=names_of(markers, gene_names),
        markers=markers,
        profiles=divide(profiles.counts, profiles.counts.sum(axis=1, keepdims=True)),
        notes=[*notes, *fit.notes],
        source=cells.source,
        selection=fit.selection,
    )
    if cells.classes is not None:
        result.classes = cells.classes
        result.comparison = compare(labels, cells.classes, k)
    return result


def compare(labels: Array, classes: list[str | None], k: int) -> CellComparison | None:
    """Compare clusters with known classes, over the cells that have both. None if no cell has."""
    both = [i for i, name in enumerate(classes) if name is not None and labels[i] >= 0]
    if not both:
        return None
    names, of_class = np.unique(np.asarray([classes[i] for i in both], dtype=str), return_inverse=True)
    own = labels[both]
    table = np.zeros((len(names), k), dtype=np.int64)
    np.add.at(table, (of_class, own), 1)
    scores = scores_of(of_class, own, n_clusters=k).numbers()
    return CellComparison(**scores, classes=names.tolist(), table=table)  # type: ignore[arg-type]


def _spread(values: Array, rows: Array, n: int, missing: float) -> Array:
    """Values of some rows as values of all rows."""
    spread = np.full(n, missing, dtype=values.dtype)
    spread[rows] = values
    return spread
