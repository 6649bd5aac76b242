"""Results of clustering cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf.confidence import Calibration
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.metrics import Scores
from onmf.notebook import table
from onmf.plot import plot_top_features
from onmf.select import Selection


@dataclass(frozen=True)
class Markers:
    """Marker genes of each cluster, the best first. All arrays are clusters × genes shown.

    Attributes
    ----------
    genes : ndarray of int
        Columns of the counts.
    scores : ndarray
        Effect: the difference of the mean normalised logarithms, inside and outside, in standard deviations.
    log_fold_changes : ndarray
        Logarithm (base 2) of the ratio of the gene's mean normalised counts, inside and outside.
    share_inside, share_outside : ndarray
        Share of cells with at least one count of the gene, inside the cluster and outside.
    p_values, adjusted : ndarray
        p-values of Welch's test on normalised logarithms, as they are and adjusted (Benjamini–Hochberg).
    """

    genes: Array
    scores: FloatArray
    log_fold_changes: FloatArray
    share_inside: FloatArray
    share_outside: FloatArray
    p_values: FloatArray
    adjusted: FloatArray


@dataclass(frozen=True)
class CellComparison(Scores):
    """Clusters against known classes: scores, and the table of both (classes × clusters)."""

    classes: list[str]
    table: Array


@dataclass
class CellClustering:
    """Clusters of cells.

    Attributes
    ----------
    model : ONMF
        The fitted model, on the columns ``genes``.
    X : array or sparse array of shape (n_cells, n_genes)
        The counts, in memory or lazy (rows can be sliced).
    barcodes, gene_names : list of str
        Names of the rows and columns of ``X``.
    genes : ndarray of int
        Columns of ``X`` that the model uses.
    view : {"counts", "logs"}
        What the model was fitted on: the counts of these genes, or their normalised logarithms.
    calibration : Calibration
        How ``confidence`` follows from losses.
    deviance : ndarray of shape (n_genes,)
        Deviance of each gene from a constant share of the cells' counts.
    labels : ndarray of shape (n_cells,)
        Cluster of each cell; -1 for cells that were left out.
    confidence : ndarray of shape (n_cells,)
        How sure the label is, from 0 to 1; NaN for cells that were left out.
    margins : ndarray of shape (n_cells,)
        How much worse the best other cluster is, for each count.
    runners_up : ndarray of shape (n_cells,)
        The best other cluster of each cell; -1 for cells that were left out.
    depths, genes_per_cell : ndarray of shape (n_cells,)
        Sum of the counts of each cell, and number of its genes.
    names : list of str
        A short name of each cluster, made of its best marker genes.
    markers : Markers
        Marker genes of each cluster.
    profiles : ndarray of shape (n_clusters, n_genes)
        Share of each gene in the counts of each cluster.
    embedding : ndarray of shape (n_cells, 2) or None
        A map of the cells; NaN for cells that were left out.
    map_method : str
        How the map was made, for people to read.
    classes : list or None
        Known class of each cell (None if unknown), if classes are known.
    comparison : CellComparison or None
        Comparison with the known classes.
    notes : list of str
        Things to know about the data and the fit.
    source : str
        Name of the file, or empty.
    selection : Selection or None
        How the number of clusters was chosen; None if it was given.
    """

    model: ONMF
    X: Any
    barcodes: list[str]
    gene_names: list[str]
    genes: Array
    view: str
    calibration: Calibration
    deviance: FloatArray
    labels: Array
    confidence: FloatArray
    margins: FloatArray
    runners_up: Array
    depths: FloatArray
    genes_per_cell: Array
    names: list[str]
    markers: Markers
    profiles: FloatArray
    embedding: FloatArray | None = None
    map_method: str = ""
    classes: list[str | None] | None = None
    comparison: CellComparison | None = None
    notes: list[str] = field(default_factory=list)
    source: str = ""
    selection: Selection | None = None

    @property
    def sizes(self) -> Array:
        """Number of cells in each cluster."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.names))

    def __repr__(self) -> str:
        n, k = len(self.labels), len(self.names)
        return f"<CellClustering of {self.source or 'cells'}: {n:,} cells, {len(self.genes):,} genes, {k} clusters>"

    def _repr_html_(self) -> str:
        rows = (
            (str(k), name, int(size), ", ".join(self.gene_names[j] for j in self.markers.genes[k, :6]))
            for k, (name, size) in enumerate(zip(self.names, self.sizes, strict=True))
        )
        return table(repr(self).strip("<>"), ["cluster", "name", "cells", "markers"], rows)

    def to_frame(self) -> Any:
        """The cells as a pandas DataFrame: the columns of ``assignments.csv``, with the barcodes as index.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        from .write import assignments

        return pd.DataFrame(list(assignments(self))).set_index("cell").astype({"cluster": "Int64"})

    def plot_markers(self, n: int = 6, *, columns: int = 5) -> Any:
        """Draw the distinctive genes of each cluster; see :func:`onmf.plot.plot_top_features`."""
        titles = [f"{k}: {name} ({size:,})" for k, (name, size) in enumerate(zip(self.names, self.sizes, strict=True))]
        genes = [self.gene_names[j] for j in self.genes]
        return plot_top_features(self.model, n, feature_names=genes, titles=titles, columns=columns)
