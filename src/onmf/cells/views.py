"""Two views of counts: as they are, and their normalised logarithms. A likelihood of the counts chooses between them.

Molecules that are counted one by one (UMIs) vary little more than Poisson counts do, and Kullback–Leibler on the counts
themselves uses all of them. Reads, and deep counts of few genes, vary far more: there a few genes outweigh all others,
and logarithms keep them in bounds. The likelihood of the negative binomial, whose dispersion is fitted gene by gene,
covers both cases: the partition under which the counts are more likely is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from onmf.divergence import Array, FloatArray, divide

from .genes import by_column, looked_up

UNIT = 10_000.0
"""Counts to which every cell is scaled before the logarithm, as is usual for cells."""

STEPS = 4
"""Steps of one unit of the logarithm. Rounded logarithms are whole numbers, with which local searches are fast."""

DISPERSIONS = np.geomspace(0.02, 200.0, 6)
"""Values of θ that are tried for each gene: the variance of a count with mean μ is μ + μ²/θ."""

DEPTHS = 16
"""Groups of cells of similar depth, in which the part of the likelihood that zeros have is computed once."""

SAMPLE = 500
"""Number of cells from which the likelihood of a partition is computed."""

NAMES = ("counts", "logs")
"""The views."""


@dataclass(frozen=True)
class View:
    """One way to look at counts.

    Attributes
    ----------
    name : {"counts", "logs"}
        The counts as they are, or their normalised logarithms.
    genes : ndarray of int
        Columns of the counts that are used.
    """

    name: str
    genes: Array

    def values(self, X: csr_array, columns: Array) -> csr_array:
        """The values to cluster, from the counts of these columns, which include the genes of the view."""
        if len(columns) == len(self.genes):
            return transform(self.name, X)
        return transform(self.name, csr_array(X[:, np.searchsorted(columns, self.genes)]))


def transform(name: str, X: csr_array) -> csr_array:
    """The values of a view, from counts."""
    if name == "counts":
        return X
    values = np.rint(STEPS * logarithms(X)).astype(np.int32)
    return csr_array((values, X.indices, X.indptr), shape=X.shape)


def logarithms(X: csr_array) -> FloatArray:
    """Normalised logarithms of the stored counts, log(1 + 10,000 x / s), with s the counts of the cell."""
    from onmf import kernels  # numba takes long to import, and most imports of onmf need no kernel

    logs = np.empty(len(X.data))
    kernels.scaled_logs(X.indptr, X.data, UNIT, logs)
    return logs


def log_likelihood(X: csr_array, labels: Array, k: int) -> float:
    """Mean log-likelihood of a cell's counts, if each gene is negative binomial within each cluster.

    The mean of gene j in cell i of cluster c is s_i C_cj, with s_i the counts of the cell. The dispersion of each gene
    is the one of :data:`DISPERSIONS` under which its counts are most likely.

    Parameters
    ----------
    X : csr_array of shape (n_cells, n_genes)
        Counts, without zeros that are stored.
    labels : ndarray of shape (n_cells,)
        Clusters.
    k : int
        Number of clusters.

    Returns
    -------
    float
    """
    n, p = X.shape
    sums = X.sum(axis=1, dtype=np.float64)
    members = csr_array((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    shares = divide((members @ X).toarray().astype(np.float64), (members @ sums)[:, None])  # (k, p)
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    x, means = X.data.astype(np.float64), sums[rows] * shares[labels[rows], X.indices]
    constant = x * np.log(means) - looked_up(lambda t: gammaln(t + 1), X.data)
    depths, cells = _depths(sums, labels, k)
    single = means.astype(np.float32)  # NumPy's logarithms of float32 are several times as fast
    best = np.full(p, -np.inf)
    for theta in DISPERSIONS:
        gammas = looked_up(partial(_log_rising, theta), X.data)
        present = by_column(X, constant + gammas - x * np.log(single + np.float32(theta)))
        # θ log(1 + μ/θ) for all entries; the mean in a group of cells is that of its mean depth
        absent = theta * sum(cells[c] @ np.log1p(np.outer(depths[c], shares[c]) / theta) for c in range(k))
        best = np.maximum(best, present - absent)
    return float(best.sum()) / max(n, 1)


def _log_rising(theta: float, x: FloatArray) -> FloatArray:
    """The logarithm of Γ(x + θ) / Γ(θ)."""
    return gammaln(x + theta) - gammaln(theta)


def _depths(sums: FloatArray, labels: Array, k: int) -> tuple[FloatArray, FloatArray]:
    """Mean depth, and number of cells, of groups of cells of each cluster. → 2 × (k, groups)"""
    edges = np.quantile(sums, np.linspace(0, 1, DEPTHS + 1)[1:-1])
    group = np.searchsorted(edges, sums) + DEPTHS * labels
    cells = np.bincount(group, minlength=k * DEPTHS).astype(np.float64)
    depths = divide(np.bincount(group, weights=sums, minlength=k * DEPTHS).astype(np.float64), cells)
    return depths.reshape(k, DEPTHS), cells.reshape(k, DEPTHS)
