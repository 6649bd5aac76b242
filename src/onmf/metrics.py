"""Measures of a clustering against the ground truth: accuracy, spectral angles, divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.sparse import issparse
from scipy.special import xlogy
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils.validation import check_consistent_length, column_or_1d

from onmf.divergence import Array, FloatArray

__all__ = ["SpectraMatch", "clustering_accuracy", "kl_divergence", "match_clusters", "match_spectra", "mrsa"]


def match_clusters(y_true: ArrayLike, y_pred: ArrayLike) -> dict[Any, Any]:
    """Match clusters with classes, one to one, so that as many samples as possible agree.

    Parameters
    ----------
    y_true : (n,) array
        Class of each sample, as a number or a name.
    y_pred : (n,) array
        Cluster of each sample.

    Returns
    -------
    dict
        Class of each cluster. If there are more clusters than classes, unmatched clusters are left out.

    Examples
    --------
    >>> from onmf.metrics import match_clusters
    >>> match_clusters(["tea", "tea", "milk"], [1, 1, 0])
    {0: 'milk', 1: 'tea'}
    """
    rows, columns = linear_sum_assignment(_contingency(y_true, y_pred), maximize=True)
    classes, clusters = np.unique(y_true).tolist(), np.unique(y_pred).tolist()
    pairs = sorted(zip(columns.tolist(), rows.tolist(), strict=True))
    return {clusters[c]: classes[r] for c, r in pairs}


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of samples whose cluster is matched with their class, under the best one-to-one matching.

    The numbers of clusters and classes may differ; samples of unmatched clusters or classes count as wrong.

    Parameters
    ----------
    y_true : (n,) array
        Class of each sample, as a number or a name.
    y_pred : (n,) array
        Cluster of each sample.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from onmf.metrics import clustering_accuracy
    >>> clustering_accuracy([0, 0, 1, 1], [1, 1, 0, 1])
    0.75
    """
    table = _contingency(y_true, y_pred)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def _contingency(y_true: ArrayLike, y_pred: ArrayLike) -> Array:
    """Count the samples of each class in each cluster. → (classes, clusters)"""
    check_consistent_length(y_true, y_pred)
    if len(column_or_1d(y_true)) == 0:
        raise ValueError("There are no labels to compare: y_true and y_pred are empty.")
    return contingency_matrix(column_or_1d(y_true), column_or_1d(y_pred))


@dataclass(frozen=True)
class SpectraMatch:
    """A matching of found spectra with true spectra.

    Attributes
    ----------
    permutation : (r,) array of int
        Index of the found spectrum that is matched with each true one.
    angles : (r,) array
        MRSA of each pair, between 0 and 100.
    """

    permutation: Array
    angles: FloatArray

    @property
    def mean(self) -> float:
        """Average MRSA over the pairs."""
        return float(self.angles.mean())


def match_spectra(truth: ArrayLike, found: ArrayLike) -> SpectraMatch:
    """Match found spectra with true ones so that the average MRSA is as small as possible.

    Parameters
    ----------
    truth : (r, bands) array
        True spectra.
    found : (s, bands) array
        Found spectra, s ≥ r.

    Returns
    -------
    SpectraMatch
    """
    A, B = _centred(truth, "truth"), _centred(found, "found")
    if A.shape[1] != B.shape[1] or len(A) > len(B):
        raise ValueError(
            f"truth has shape {A.shape} and found has shape {B.shape}: both need the same bands, and found at least as "
            "many spectra as truth."
        )
    angles = 100 / np.pi * np.arccos(np.clip(A @ B.T, -1, 1))
    rows, columns = linear_sum_assignment(angles)
    return SpectraMatch(columns, angles[rows, columns])


def mrsa(x: ArrayLike, y: ArrayLike) -> float:
    """Mean removed spectral angle, between 0 (equal up to offset and scale) and 100.

    The angle is 100/π · arccos of the correlation of x and y. The paper's definition names the mean over the pixels,
    but means the mean over the bands.

    Parameters
    ----------
    x, y : (bands,) arrays, or (r, bands) arrays
        Two spectra; or true and found spectra, which are matched by the best permutation. Their angles are averaged.

    Returns
    -------
    float

    Examples
    --------
    >>> from onmf.metrics import mrsa
    >>> mrsa([1, 2, 3], [1, 0, 1])
    50.0
    """
    if np.ndim(x) == 1 and np.ndim(y) == 1:
        x, y = np.asarray(x)[None], np.asarray(y)[None]
    return match_spectra(x, y).mean


def _centred(spectra: ArrayLike, name: str) -> FloatArray:
    """Subtract the mean of each spectrum and scale it to unit length; a constant spectrum becomes zero."""
    S = np.asarray(spectra, dtype=np.float64)
    if S.ndim != 2:
        raise ValueError(
            f"{name} has {S.ndim} dimensions: give an array of shape (spectra, bands), with one spectrum per row."
        )
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    return S / np.where(norms > 0, norms, 1.0)


def kl_divergence(X: Any, Y: Any) -> float:
    """Σ x log(x / y) − x + y over all entries, with 0 log 0 = 0; infinite where y = 0 < x.

    Parameters
    ----------
    X : array or sparse matrix
        Data, ≥ 0.
    Y : array or sparse matrix of the same shape
        Model, ≥ 0.

    Returns
    -------
    float
    """
    X, Y = (A if issparse(A) else np.asarray(A) for A in (X, Y))
    if X.shape != Y.shape:
        raise ValueError(f"X has shape {X.shape} and Y has shape {Y.shape}: they must be equal.")
    totals = float(Y.sum(dtype=np.float64) - X.sum(dtype=np.float64))
    if issparse(X):
        X = X.tocoo()
        x = np.asarray(X.data, dtype=np.float64)
        y = np.asarray((Y.tocsr() if issparse(Y) else Y)[X.row, X.col], dtype=np.float64).ravel()
    else:
        x = np.asarray(X, dtype=np.float64)
        y = np.asarray(Y.toarray() if issparse(Y) else Y, dtype=np.float64)
    if (x < 0).any() or (Y.data if issparse(Y) else y).min(initial=0) < 0:
        raise ValueError("The Kullback-Leibler divergence needs X ≥ 0 and Y ≥ 0: remove or clip negative entries.")
    with np.errstate(divide="ignore"):
        ratio = np.divide(x, y, out=np.full_like(x, np.inf), where=y > 0)
    ratio[x == 0] = 1.0
    return float(xlogy(x, ratio).sum()) + totals
