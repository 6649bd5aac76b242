"""AnnData objects: where their counts are, and where results are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onmf.backend import to_host

from .result import CellClustering, Markers


def check_anndata(adata: Any) -> None:
    """Refuse what is not an AnnData object that results can be written to."""
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


def counts_of(adata: Any, layer: str | None) -> Any:
    """The matrix of an AnnData object that holds the counts."""
    if layer is not None and layer not in adata.layers:
        raise KeyError(f"adata has no layer {layer!r}: there are {', '.join(adata.layers) or 'none'}.")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError("adata has no X: name the layer that has the counts with layer=.")
    return X


def write_results(
    adata: Any,
    result: CellClustering,
    key: str,
    *,
    layer: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> None:
    """Write clusters, how sure they are, genes and markers into an AnnData object. See :func:`onmf.cells.cluster`."""
    import pandas as pd

    model, k = result.model, len(result.names)
    categories = [str(number) for number in range(k)]
    scales = np.full(len(result.labels), np.nan)
    scales[result.labels >= 0] = to_host(model.scales_)
    adata.obs[key] = pd.Categorical.from_codes(result.labels, categories=categories)
    adata.obs[f"{key}_confidence"] = result.confidence
    adata.obs[f"{key}_runner_up"] = pd.Categorical.from_codes(result.runners_up, categories=categories)
    adata.obs[f"{key}_margin"] = result.margins
    adata.obs[f"{key}_scale"] = scales
    adata.var["deviance"] = result.deviance
    adata.var[f"{key}_gene"] = np.isin(np.arange(len(result.deviance)), result.genes)
    adata.varm[key] = result.profiles.T.copy()
    adata.uns[key] = {
        "params": {"n_clusters": k, "layer": layer or "X", "beta_loss": str(model.beta_loss), "view": result.view}
        | {name: value for name, value in (parameters or {}).items() if isinstance(value, str | int | float)},
        "names": np.array(result.names, dtype=object),
        "n_iter": int(model.n_iter_),
        "objective": float(model.reconstruction_err_),
        "stop_reason": model.stop_reason_,
        "notes": np.array(result.notes, dtype=object),
    }
    write_markers(adata, result.markers, categories, key, f"{key}_markers", layer)


def write_markers(adata: Any, found: Markers, groups: Sequence[str], groupby: str, key: str, layer: str | None) -> None:
    """Write markers as ``scanpy.tl.rank_genes_groups`` does: arrays with a field for each group."""
    names = np.asarray(adata.var_names, dtype=object)[found.genes]
    tables = {
        "names": (names, object),
        "scores": (found.scores, np.float32),
        "logfoldchanges": (found.log_fold_changes, np.float32),
        "pvals": (found.p_values, np.float64),
        "pvals_adj": (found.adjusted, np.float64),
    }
    result: dict[str, Any] = {
        "params": {
            "groupby": groupby,
            "reference": "rest",
            "method": "onmf",
            "use_raw": False,
            "layer": layer,
            "corr_method": "benjamini-hochberg",
        }
    }
    for name, (values, dtype) in tables.items():
        result[name] = np.rec.fromarrays(list(values), dtype=[(group, dtype) for group in groups])
    adata.uns[key] = result
