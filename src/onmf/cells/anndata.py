"""AnnData objects: where their counts are, and where results are written."""

from __future__ import annotations

from typing import Any


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
