"""The two algorithms in the paper's orientation: X is features × samples, X ≈ W H."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.data.intake import check_in_memory
from onmf.data.validate import check_container, check_data
from onmf.divergence import get_divergence
from onmf.estimator import ONMF
from onmf.fit import Clustering


def kl_onmf(X: Any, r: int, **options: Any) -> Clustering:
    """KL-ONMF, the paper's Algorithm 2: minimise D_KL(X, WH) subject to H ≥ 0, H Hᵀ = I.

    Parameters
    ----------
    X : (features, samples) array or sparse matrix
        Data, ≥ 0.
    r : int
        Factorization rank: the number of clusters.
    **options
        ``init``, ``max_iter``, ``tol``, ``smoothing`` and the other parameters of :class:`~onmf.ONMF`; an array given
        as ``init`` is features × r, like W.

    Returns
    -------
    Clustering
        With ``W`` (features, r), ``H`` (r, samples; sparse), ``n_iter`` and ``objective``.
    """
    return _factorize(X, r, "kullback-leibler", options)


def fro_onmf(X: Any, r: int, **options: Any) -> Clustering:
    """Fro-ONMF, the paper's Algorithm 1: minimise ‖X − WH‖_F² subject to H ≥ 0, H Hᵀ = I.

    Parameters
    ----------
    X : (features, samples) array or sparse matrix
        Data, of any sign.
    r, **options
        As in :func:`kl_onmf`.

    Returns
    -------
    Clustering
        As of :func:`kl_onmf`.
    """
    return _factorize(X, r, "frobenius", options)


def _factorize(X: Any, r: int, beta_loss: str, options: dict[str, Any]) -> Clustering:
    if callable(X) or isinstance(X, list | tuple):  # blocks have no transpose; a Dask array has
        check_in_memory(X, "The paper's orientation")
    init = options.get("init")
    if init is not None and not isinstance(init, str) and not callable(init):
        options = {**options, "init": _transposed(check_container(init, "init"))}
    try:
        return ONMF(r, beta_loss=beta_loss, **options).fit(_transposed(check_container(X))).clustering_
    except ValueError:
        check_data(X, get_divergence(beta_loss))  # raises the error in the caller's orientation, if the data caused it
        raise


def _transposed(A: Any) -> Any:
    if issparse(A) and A.format == "bsr":  # SciPy transposes BSR blocks only for some index types
        A = A.tocsr()
    return A.T if hasattr(A, "T") else np.asarray(A).T
