"""The methods of a fitted model that take rows: clusters, scales, probabilities and losses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn import get_config
from sklearn.base import TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from onmf import interrupt
from onmf.backend import on_gpu, to_host
from onmf.data import Data
from onmf.data.intake import prepare_data
from onmf.data.validate import check_container, warn_zero_rows
from onmf.divergence import Array, Divergence, FloatArray, number
from onmf.fit.describe import (
    MIN_SMOOTHING,
    best_labels,
    labels_and_scales,
    labels_scales_and_margins,
    probabilities,
    total_loss,
)
from onmf.fit.result import Assigned, Clustering, distinctiveness, membership
from onmf.parameters import is_integer

NEGLIGIBLE = 1e-12
"""Weights of features up to this may be rounding errors."""


class AssignMixin(TransformerMixin):
    """The methods of a fitted model that take rows.

    A TransformerMixin itself, because scikit-learn's ``set_output`` covers only methods of its subclasses.
    """

    if TYPE_CHECKING:
        cluster_centers_: FloatArray
        clustering_: Clustering
        sparse_output: bool
        _divergence: Divergence

    def predict(self, X: Any) -> Array:
        """The cluster of each row of ``X``, by the assignment rule alone.

        After ``refine="local-search"`` some training rows are in another cluster than the rule gives them, because that
        lowers the objective. ``labels_``, :meth:`fit_predict` and :meth:`fit_transform` give the refined clusters.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        labels : (n,) array of int
        """
        (labels,) = self._map_rows(X, best_labels)
        return labels

    def predict_proba(self, X: Any, temperature: float = 1.0) -> FloatArray:
        """The probability of each cluster for each row of ``X``, under the likelihood that belongs to the divergence.

        With loss_k the divergence of a row from cluster k, it is proportional to exp(−loss_k / temperature). For counts
        and Kullback–Leibler at temperature 1 that is the posterior of a multinomial mixture with equal weights. That
        model treats the words of a row as independent, so the probabilities of long rows are nearly always 0 or 1.
        Words of real texts are not independent: a temperature of about the number of words that occur together (10 to
        100) gives more useful probabilities.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.
        temperature : float, default=1.0
            Divides the losses; greater than 0.

        Returns
        -------
        probabilities : (n, n_clusters) array
            Rows sum to one.
        """
        check_is_fitted(self)
        if not 0 < number(temperature) < np.inf:
            raise ValueError(f"temperature={temperature!r} is not allowed: it must be a number greater than 0.")
        (chances,) = self._map_rows(X, probabilities, float(temperature))
        return chances

    def transform(self, X: Any) -> Any:
        """The scale of each row of ``X`` in the column of its cluster: one nonzero per row.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        H : (n, n_clusters) sparse array, array if ``sparse_output=False``, or frame if ``set_output`` asks for one
        """
        return self._output(*self._map_rows(X, labels_and_scales))

    def assign(self, X: Any) -> Assigned:
        """The cluster, scale and margin of each row of ``X``, in one pass.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        Assigned
            ``labels`` as :meth:`predict` gives them, ``scales`` in the columns of :meth:`transform`, and ``margins`` as
            in ``margins_``.
        """
        return Assigned(*self._map_rows(X, labels_scales_and_margins))

    def inverse_transform(self, X: Any) -> Any:
        """The rows that memberships stand for: ``X @ cluster_centers_``.

        Parameters
        ----------
        X : (n, n_clusters) array or sparse matrix
            Memberships, as :meth:`transform` returns them.

        Returns
        -------
        rows : (n, n_features) array, or sparse array
            Sparse if ``X`` is sparse and the sparse form is smaller.
        """
        check_is_fitted(self)
        H: Any = X if on_gpu(X) else check_array(check_container(X), accept_sparse="csr", dtype=np.float64)
        W = to_host(self.cluster_centers_)
        if H.shape[1] != len(W):
            raise ValueError(
                f"X has {H.shape[1]} columns, but the model has {len(W)} clusters: pass the result of transform."
            )
        if on_gpu(H):
            import cupy

            return H @ cupy.asarray(W)
        dense = 8 * H.shape[0] * W.shape[1]
        if issparse(H):
            entries = np.count_nonzero(W, axis=1)
            sparse = 16 * int(np.bincount(H.indices, minlength=len(W)) @ entries)
            if sparse < dense:
                _check_memory(sparse, "sparse", H.shape[0], W.shape[1])
                return csr_array(H) @ csr_array(W)
        _check_memory(dense, "dense", H.shape[0], W.shape[1])
        return H @ W

    @interrupt.heeding
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean loss of the rows of ``X``: higher is better.

        The centroids are smoothed and normalised first. Otherwise a word that does not occur in a cluster would cost
        infinity.

        Compare scores only between models with the same features and the same divergence. The loss is a sum over
        features, so a smaller vocabulary gives a higher score, whatever the clusters are: a grid search must not
        choose the vocabulary by it.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Weight of each row.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        data = self._data(X, sample_weight)
        smoothed = self._divergence.smooth(data.to_device(self.cluster_centers_), at_least=MIN_SMOOTHING)
        losses, weights = data.total(total_loss, smoothed)
        return -float(losses / weights)

    def top_features(self, n: int = 10, feature_names: Any = None) -> list[dict[str, float]]:
        """The most distinctive features of each cluster: those that set it apart from the data as a whole.

        With c the centroid and q the sum of the fitted data, both normalised to sum 1, the weight of feature j is ``c_j
        log(c_j / q_j)``: its contribution to the Kullback–Leibler divergence of the cluster from the whole. Centroids
        with negative entries are ranked by the size of their entries instead.

        Parameters
        ----------
        n : int, default=10
            Number of features for each cluster.
        feature_names : (n_features,) array of str, optional
            Names, for instance ``vectorizer.get_feature_names_out()``. By default those of the fitted data, else
            ``"x0"``, ``"x1"``, …

        Returns
        -------
        list of dict
            For each cluster, the weights of its features by name, the most distinctive first; fewer than ``n`` if fewer
            features set it apart.
        """
        check_is_fitted(self)
        if not is_integer(n) or n < 1:
            raise ValueError(f"n={n!r} is not allowed: n must be an integer, at least 1.")
        centroids = to_host(self.cluster_centers_)
        p = centroids.shape[1]
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(p)])
        names = [str(name) for name in feature_names]
        if len(names) != p:
            raise ValueError(f"feature_names has {len(names)} names, but the model has {p} features.")
        if len(set(names)) < p:
            raise ValueError("feature_names holds the same name twice: give every feature its own name.")
        weights = distinctiveness(centroids, to_host(self.clustering_.masses))
        sizes = np.abs(weights) if (centroids < 0).any() else weights
        tops = np.argsort(-sizes, axis=1, kind="stable")[:, :n]
        return [{names[j]: float(weights[k, j]) for j in top if sizes[k, j] > NEGLIGIBLE} for k, top in enumerate(tops)]

    @property
    def divergence_(self) -> Divergence:
        """The divergence that the fit minimised."""
        check_is_fitted(self)
        return self._divergence

    @interrupt.heeding
    def _map_rows(self, X: Any, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Apply a function of rows and centroids to new data."""
        check_is_fitted(self)
        data = self._data(X, warn=True)
        found = data.map_rows(function, data.to_device(self.cluster_centers_), *args)
        if data.zeros and not self._divergence.absolute:  # Dask has read nothing yet
            warn_zero_rows(data.zeros, len(found[0]))
        return found

    def _data(self, X: Any, sample_weight: Any = None, *, warn: bool = False) -> Data:
        """New data as the engine holds them, with the features of the centroids."""
        data = prepare_data(self, X, self._divergence, sample_weight, warn=warn).data
        features = self.cluster_centers_.shape[1]
        if data.shape[1] != features:  # an attribute was overwritten, and kernels do not check
            raise ValueError(
                f"X has {data.shape[1]} features, but cluster_centers_ has {features}: fit the model again."
            )
        return data

    def _output(self, labels: Any, scales: Any) -> Any:
        k = len(self.cluster_centers_)
        form = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        frame = form != "default"  # scikit-learn makes frames from arrays in memory only
        sparse = self.sparse_output and not frame
        if hasattr(labels, "map_blocks"):
            like = csr_array((0, k)) if sparse else np.empty((0, k))
            H = labels.map_blocks(one_column, scales, k, sparse, meta=like, new_axis=1, chunks=(labels.chunks[0], (k,)))
            return H.compute() if frame else H
        return one_column(labels, scales, k, sparse)


def one_column(labels: Array, scales: FloatArray, k: int, sparse: bool) -> Any:
    """The scale of each row in the column of its cluster. → (n, k)"""
    H = membership(labels, scales, k)
    return H if sparse else H.toarray()


def _check_memory(needed: int, form: str, n: int, p: int) -> None:
    """Refuse to create an array that cannot fit in memory."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not known on this system
        return
    if needed > available:
        raise MemoryError(
            f"The {form} result, {n} × {p}, would take {needed / 1e9:.1f} GB, and this machine has "
            f"{available / 1e9:.1f} GB: transform back fewer rows at a time."
        )
