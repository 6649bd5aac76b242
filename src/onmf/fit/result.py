"""The results of a fit and of an assignment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy

from onmf.backend import on_gpu
from onmf.divergence import Array, FloatArray, divide


class Agreement(NamedTuple):
    """How well several runs agree with their consensus.

    Attributes
    ----------
    overall : float
        The mean over the rows: 1 if all runs found the same clusters, up to the order of the labels.
    rows : (n,) array
        For each row, the probability that a random run puts it together with a random other row of its cluster.
    """

    overall: float
    rows: FloatArray


class Assigned(NamedTuple):
    """The assignment of new rows.

    Attributes
    ----------
    labels : (n,) array of int
        Cluster of each row.
    scales : (n,) array
        Scale of each row, as :meth:`onmf.ONMF.transform` gives it.
    margins : (n,) array
        How much worse the best other cluster is than the row's own, in units of the row (for counts: per word).
    """

    labels: Array
    scales: FloatArray
    margins: FloatArray


@dataclass(frozen=True)
class Clustering:
    """Row i of X is about ``scales[i] · centroids[labels[i]]``.

    Attributes
    ----------
    labels : (n,) array of int
        Cluster of each row.
    scales : (n,) array
        Scale of each row; within a cluster their squares sum to one (weighted, if rows have weights).
    centroids : (k, p) array
        One row for each cluster: the paper's Wᵀ.
    objective : float
        D(X, WH), or ‖X − WH‖_F².
    n_iter : int
        Iterations, including the one that detected convergence.
    stop_reason : str
        ``"converged"``, ``"fixed point"``, ``"max_iter"`` or ``"callback"``.
    history : dict of str to array
        For each iteration: ``"moved"`` rows, ``"change"`` ‖H − H_prev‖_F, ``"seconds"``, and ``"objective"`` if it was
        computed.
    masses : (k,) array
        Sum of the scales of each cluster, weighted: ``masses @ centroids`` is the fitted sum of all rows.
    n_filled : int
        Number of clusters that have rows of positive scale.
    init_rows : (k,) array of int or None
        The rows of X that were the first centroids; None if these were not rows.
    parameters : dict
        The parameters of the fit.
    margins : (n,) array
        How much worse the best other cluster is than the row's own, in units of the row (for counts: per word).
    n_sweeps : int
        Sweeps of the local search over the rows; 0 without one.
    agreement : Agreement or None
        How well the runs behind a consensus agreed.
    """

    labels: Array
    scales: FloatArray
    centroids: FloatArray
    objective: float
    n_iter: int
    stop_reason: str
    history: dict[str, Array]
    masses: FloatArray
    n_filled: int
    init_rows: Array | None
    parameters: dict[str, Any] = field(default_factory=dict)
    margins: FloatArray | None = None
    n_sweeps: int = 0
    agreement: Agreement | None = None

    def reordered(self, order: Array) -> Clustering:
        """The same clusters in another order: the new cluster k is the old cluster ``order[k]``."""
        place = np.empty(len(order), dtype=self.labels.dtype)
        place[order] = np.arange(len(order))
        return replace(
            self,
            labels=place[self.labels],
            centroids=np.ascontiguousarray(self.centroids[order]),
            masses=self.masses[order],
            init_rows=None if self.init_rows is None else self.init_rows[order],
        )

    @property
    def W(self) -> FloatArray:
        """Centroids in the paper's orientation. → (features, clusters)"""
        return self.centroids.T

    @property
    def H(self) -> Any:
        """Scales in the paper's orientation, one nonzero in each column, H Hᵀ = I. → (clusters, samples), sparse"""
        return membership(self.labels, self.scales, len(self.centroids)).T.tocsr()


def membership(labels: Array, scales: FloatArray, k: int) -> Any:
    """Hᵀ: the scale of each row in the column of its cluster. → (n, k), sparse"""
    container: Any = csr_array
    if on_gpu(labels):
        from cupyx.scipy.sparse import csr_matrix

        container = csr_matrix
    filled = scales != 0
    starts = np.zeros_like(labels, shape=len(labels) + 1)
    starts[1:] = np.cumsum(filled)
    return container((scales[filled], labels[filled], starts), shape=(len(labels), k))


def distinctiveness(centroids: FloatArray, masses: FloatArray) -> FloatArray:
    """How much each feature sets each cluster apart from the whole. → (k, p)

    With c a centroid and q the whole, ``masses @ centroids``, both normalised to sum 1: c log(c / q). Centroids with
    negative entries are returned at unit length instead.
    """
    if (centroids < 0).any():
        return divide(centroids, np.linalg.norm(centroids, axis=1, keepdims=True))
    C = divide(centroids, centroids.sum(axis=1, keepdims=True))
    whole = masses @ centroids
    q = divide(whole, whole.sum())
    return xlogy(C, np.divide(C, np.maximum(q, 1e-300), out=np.ones_like(C), where=q > 0))
