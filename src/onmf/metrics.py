"""Measures of a clustering against the ground truth: scores against classes, spectral angles, divergence."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.sparse import issparse
from scipy.special import rel_entr
from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils.validation import check_consistent_length, column_or_1d

from onmf import old_names
from onmf.divergence import Array, FloatArray
from onmf.io.rules import require

__all__ = [
    "Comparison",
    "Scores",
    "SpectraMatch",
    "clustering_accuracy",
    "compare",
    "compare_classes",
    "kl_divergence",
    "match_clusters",
    "match_spectra",
    "mrsa",
]


@dataclass(frozen=True)
class Scores:
    """How well clusters agree with known classes. All numbers are 1 for clusters that equal the classes.

    Attributes
    ----------
    ari : float
        Adjusted Rand index: agreement on pairs of samples, 0 for clusters at random.
    nmi : float
        Normalized mutual information, from 0 to 1.
    homogeneity, completeness : float
        1 if each cluster has samples of one class only; if all samples of a class are in the same cluster.
    purity : float
        Share of the samples of the most frequent class of their cluster. It grows with the number of clusters.
    accuracy : float or None
        Share of the samples whose cluster is matched with their class, one to one; None unless there are as many
        clusters as classes.
    """

    ari: float
    nmi: float
    homogeneity: float
    completeness: float
    purity: float
    accuracy: float | None

    def numbers(self) -> dict[str, float | None]:
        """The scores by their names, for a JSON file."""
        return {field.name: getattr(self, field.name) for field in fields(Scores)}

    def facts(self) -> list[tuple[str, str]]:
        """Names and values for people to read, without those that do not apply."""
        facts = [
            ("ARI", f"{self.ari:.3f}"),
            ("NMI", f"{self.nmi:.3f}"),
            ("Homogeneity", f"{self.homogeneity:.3f}"),
            ("Completeness", f"{self.completeness:.3f}"),
            ("Purity", f"{self.purity:.1%}"),
        ]
        return facts if self.accuracy is None else [*facts, ("Accuracy", f"{self.accuracy:.1%}")]

    def sentence(self) -> str:
        """The facts in one line."""
        return ", ".join(f"{name if name.isupper() else name.lower()} {value}" for name, value in self.facts())


@dataclass(frozen=True)
class Comparison(Scores):
    """Clusters compared with known classes, over the rows that have both: scores, and the table of both.

    Attributes
    ----------
    classes : list of str
    table : (classes, clusters) array of int
        Rows of each class in each of the clusters that there are.
    matched : dict of int to str
        Class of each cluster, matched one to one.
    """

    classes: list[str]
    table: Array
    matched: dict[int, str]

    @property
    def n_rows(self) -> int:
        """Number of rows that were compared."""
        return int(self.table.sum())

    def against(self, kind: Any) -> str:
        """What the clusters were compared with."""
        return f"{len(self.classes)} classes ({kind.so_many(self.n_rows)})"

    def record(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {"n_rows": self.n_rows, **self.numbers(), "classes": self.classes, "table": self.table.tolist()}

    def __getattr__(self, name: str) -> Any:
        return old_names.attribute(self, name, old_names.COMPARISON_ATTRIBUTES)


def compare_classes(classes: Sequence[str | None], labels: Array, clusters: Array) -> Comparison | None:
    """Compare clusters, of which the numbers are given, with known classes; None and -1 are not known.

    Returns None if no row has both.
    """
    both = [i for i, name in enumerate(classes) if name is not None and labels[i] >= 0]
    if not both:
        return None
    names, of_class = np.unique([str(classes[i]) for i in both], return_inverse=True)
    own, k = labels[both], len(clusters)
    codes = of_class * k + np.searchsorted(clusters, own)
    return Comparison(
        **compare(of_class, own, n_clusters=k).numbers(),  # type: ignore[arg-type]
        classes=names.tolist(),
        table=np.bincount(codes, minlength=len(names) * k).reshape(-1, k),
        matched={cluster: str(names[of]) for cluster, of in match_clusters(of_class, own).items()},
    )


def compare(y_true: ArrayLike, y_pred: ArrayLike, *, n_clusters: int | None = None) -> Scores:
    """Compare clusters with known classes.

    Parameters
    ----------
    y_true, y_pred : (n,) arrays
        Class and cluster of each sample, as numbers or names.
    n_clusters : int, optional
        Number of clusters, if some of them may have none of these samples.

    Returns
    -------
    Scores

    Examples
    --------
    >>> from onmf.metrics import compare
    >>> compare(["tea", "tea", "milk", "milk"], [1, 1, 0, 0]).ari
    1.0
    >>> scores = compare(["tea", "tea", "milk", "milk"], [0, 1, 2, 2])
    >>> scores.purity, scores.accuracy
    (1.0, None)
    """
    table = _contingency(y_true, y_pred)
    classes, clusters = (np.unique(labels, return_inverse=True)[1] for labels in (y_true, y_pred))
    homogeneity, completeness, nmi = homogeneity_completeness_v_measure(classes, clusters)
    return Scores(
        ari=float(adjusted_rand_score(classes, clusters)),
        nmi=min(float(nmi), 1.0),
        homogeneity=min(float(homogeneity), 1.0),
        completeness=min(float(completeness), 1.0),
        purity=float(table.max(axis=0).sum() / table.sum()),
        accuracy=clustering_accuracy(classes, clusters) if len(table) == (n_clusters or table.shape[1]) else None,
    )


def match_clusters(y_true: ArrayLike, y_pred: ArrayLike) -> dict[Any, Any]:
    """Match clusters with classes, one to one, so that as many samples as possible agree.

    Parameters
    ----------
    y_true, y_pred : (n,) arrays
        Class and cluster of each sample, as numbers or names.

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
    return {clusters[c]: classes[r] for c, r in sorted(zip(columns, rows, strict=True))}


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of samples whose cluster is matched with their class, under the best one-to-one matching.

    Samples of unmatched clusters or classes count as wrong.

    Parameters
    ----------
    y_true, y_pred : (n,) arrays
        Class and cluster of each sample, as numbers or names.

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
    require(len(column_or_1d(y_true)), "There are no labels to compare: y_true and y_pred are empty.")
    return contingency_matrix(column_or_1d(y_true), column_or_1d(y_pred))


@dataclass(frozen=True)
class SpectraMatch:
    """A matching of found spectra with true spectra.

    Attributes
    ----------
    permutation, angles : (r,) arrays
        Index of the found spectrum that is matched with each true one, and the MRSA of the pair, from 0 to 100.
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
    truth, found : (r, bands) and (s, bands) arrays
        True and found spectra, s ≥ r.

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

    It is 100/π · arccos of the correlation of x and y. The paper names the mean over the pixels, but means the bands.

    Parameters
    ----------
    x, y : (bands,) arrays, or (r, bands) arrays
        Two spectra; or true and found ones, which are matched. Their angles are averaged.

    Returns
    -------
    float

    Examples
    --------
    >>> from onmf.metrics import mrsa
    >>> mrsa([1, 2, 3], [1, 0, 1])
    50.0
    """
    return match_spectra(np.atleast_2d(x), np.atleast_2d(y)).mean


def _centred(spectra: ArrayLike, name: str) -> FloatArray:
    """Subtract the mean of each spectrum and scale it to unit length; a constant spectrum becomes zero."""
    S = np.asarray(spectra, dtype=np.float64)
    require(S.ndim == 2, f"{name} has {S.ndim} dimensions: give an array of shape (spectra, bands), one per row.")
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    return S / np.where(norms > 0, norms, 1.0)


def kl_divergence(X: Any, Y: Any) -> float:
    """Σ x log(x / y) − x + y over all entries, with 0 log 0 = 0; infinite where y = 0 < x.

    Parameters
    ----------
    X, Y : arrays or sparse matrices of one shape
        Data and model, ≥ 0.

    Returns
    -------
    float
    """
    X, Y = (A.tocsr() if issparse(A) else np.asarray(A) for A in (X, Y))
    require(X.shape == Y.shape, f"X has shape {X.shape} and Y has shape {Y.shape}: they must be equal.")
    if any((A.data if issparse(A) else A).min(initial=0) < 0 for A in (X, Y)):
        raise ValueError("The Kullback-Leibler divergence needs X ≥ 0 and Y ≥ 0: remove or clip negative entries.")
    totals = float(Y.sum(dtype=np.float64) - X.sum(dtype=np.float64))
    x, y = X, Y.toarray() if issparse(Y) else Y
    if issparse(X):
        entries = X.tocoo()
        x, y = entries.data, np.asarray(Y[entries.row, entries.col]).ravel()
    return float(rel_entr(x, y, dtype=np.float64).sum()) + totals
