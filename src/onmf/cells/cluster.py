"""Cluster the cells of an AnnData object, and write the clusters where single-cell tools look for them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from onmf.datasets.lazy import batches_of
from onmf.datasets.pieces import ROWS
from onmf.estimator import ONMF

__all__ = ["cluster"]


def cluster(
    adata: Any,
    n_clusters: int,
    *,
    layer: str | None = None,
    key_added: str = "onmf",
    rows: int = ROWS,
    **parameters: Any,
) -> ONMF:
    """Cluster the cells of an AnnData object by their counts, in place.

    Use raw counts, neither normalised nor log-transformed. Backed objects are read in batches, and Dask arrays are
    not loaded into memory.

    Parameters
    ----------
    adata : AnnData
        Cells × genes. The result is written to ``adata.obs[key_added]`` (the cluster, a category),
        ``adata.obs[key_added + "_scale"]``, ``adata.obs[key_added + "_margin"]`` (how much worse the best other
        cluster is), ``adata.varm[key_added]`` (centroids, genes × clusters) and ``adata.uns[key_added]`` (parameters,
        iterations, objective).
    n_clusters : int
        Number of clusters.
    layer : str, optional
        Layer with the counts; by default ``adata.X``.
    key_added : str, default="onmf"
        Name under which the result is written.
    rows : int, default=10000
        Cells per batch if ``adata`` is backed.
    **parameters
        Parameters of :class:`onmf.ONMF`.

    Returns
    -------
    ONMF
        The fitted estimator.

    Examples
    --------
    >>> import anndata, onmf.cells
    >>> from onmf.datasets import make_counts
    >>> adata = anndata.AnnData(make_counts(200, 50, 3, random_state=0).X)
    >>> model = onmf.cells.cluster(adata, 3)
    >>> adata.obs["onmf"].cat.categories.tolist()
    ['0', '1', '2']
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("onmf.cells needs anndata: pip install 'onmf[cells]'.") from error
    if not (hasattr(adata, "obs") and hasattr(adata, "varm")):
        raise TypeError(
            f"adata is a {type(adata).__name__}, not an AnnData object: wrap a matrix as anndata.AnnData(X), or pass "
            "it to onmf.ONMF as it is."
        )
    if adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed object, and nothing can be written into it: pass the whole object, or "
            "adata.to_memory()."
        )
    if not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows={rows} is not allowed: a batch needs at least 1 cell.")
    if not isinstance(key_added, str) or not key_added:
        raise ValueError(f"key_added={key_added!r} is not allowed: give the name under which the result is written.")
    if layer is not None and layer not in adata.layers:
        raise KeyError(f"adata has no layer {layer!r}: there are {', '.join(adata.layers) or 'none'}.")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError("adata has no X: name the layer that has the counts with layer=.")
    on_disk = not (isinstance(X, np.ndarray) or hasattr(X, "__dask_graph__") or hasattr(X, "tocsr"))
    model = ONMF(n_clusters, **parameters).fit(batches_of(X, rows) if on_disk else X)
    labels, scales, margins = (np.asarray(array) for array in (model.labels_, model.scales_, model.margins_))
    categories = [str(k) for k in range(n_clusters)]
    adata.obs[key_added] = pd.Categorical.from_codes(labels, categories=categories)
    adata.obs[f"{key_added}_scale"] = scales
    adata.obs[f"{key_added}_margin"] = margins
    adata.varm[key_added] = model.cluster_centers_.T.copy()
    adata.uns[key_added] = {
        "params": {"n_clusters": n_clusters, "layer": layer or "X", "beta_loss": str(model.beta_loss)}
        | {name: value for name, value in parameters.items() if isinstance(value, str | int | float)},
        "n_iter": model.n_iter_,
        "objective": model.reconstruction_err_,
        "stop_reason": model.stop_reason_,
    }
    return model
