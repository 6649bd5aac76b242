"""AnnData objects: where their counts are, and where results are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .result import Markers


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
