"""AnnData objects: where their counts are, and where results are written."""

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from onmf.door.write import write_table
from onmf.io.isolate import Isolated
from onmf.io.rules import require

from .annotate import add_results
from .counts import check_counts, whole_layers_of
from .files import Cells, notes_if_transposed
from .matrix import as_csr, canonical

MARKERS = 25  # marker genes of each cluster in the table
PSEUDOBULK = ("pseudobulk.csv", "pseudobulk_columns.csv")  # sums by cluster and group, and what their columns are
CORRECTED = "onmf_corrected"  # layer of counts without the factors of the groups
DIGITS = {
    "effect": ".4g",
    "share_inside": ".4f",
    "share_outside": ".4f",
    "log2_fold_change": ".4g",
    "p_naive_adjusted": ".3g",
}
"""Columns of the table of markers, and how they are rounded."""


def cells_of(adata: Any, layer: str | None) -> Cells:
    """The counts of an AnnData object, which are checked, and its names. The arrays of the object are not changed."""
    if isinstance(adata, str | os.PathLike):
        raise TypeError(f"adata is a path, not an AnnData object: pass anndata.read_h5ad({os.fspath(adata)!r}).")
    if not (hasattr(adata, "obs") and hasattr(adata, "varm")):
        raise TypeError(
            f"adata is a {type(adata).__name__}, not an AnnData object: wrap a matrix as anndata.AnnData(X), or pass "
            "it to onmf.ONMF as it is."
        )
    require(
        not adata.isbacked or not adata.is_view,
        "adata is a view of a backed object, and nothing can be written into it: pass the whole object, or "
        "adata.to_memory().",
    )
    if layer is not None and layer not in adata.layers:
        layers = ", ".join(repr(name) for name in adata.layers if name is not None)  # None is X, since anndata 0.13
        remedy = "pass adata.raw.to_adata()" if layer == "raw" else f"it has {layers or 'no layers'}"
        raise KeyError(f"adata has no layer {layer!r}: {remedy}.")
    X = adata.X if layer is None else adata.layers[layer]
    require(X is not None, "adata has no X: name the layer that has the counts, such as layer='counts'.")
    X = canonical(X) if issparse(X) else X
    names, genes = [str(name) for name in adata.obs_names], [str(name) for name in adata.var_names]
    place = "X" if layer is None else f"layers/{layer}"
    notes = check_counts(X, place=place, elsewhere=lambda: whole_layers_of(adata, layer), barcodes=names, genes=genes)
    return Cells(X, names, genes, place=place, notes=[*notes, *notes_if_transposed(names, genes)])


def groups_in(adata: Any, groups: Any, what: str = "groups") -> list[str | None]:
    """The group of each cell of an AnnData object: a column of ``obs``, or labels. None where it is missing.

    ``what`` the column is asked for is for its refusal.
    """
    if isinstance(groups, str):
        if groups not in getattr(adata, "obs", ()):
            columns = ", ".join(map(repr, getattr(adata, "obs", ()))) or "none"
            raise KeyError(f"adata.obs has no column {groups!r} for the {what}: it has {columns}.")
        groups = adata.obs[groups]
    values = np.asarray(groups, dtype=object)
    n = adata.shape[0]
    require(values.shape == (n,), f"groups has the shape {values.shape}, and there are {n} cells: give one for each.")
    return [None if value is None or value != value else str(value) for value in values.tolist()]


def write_results(
    adata: Any, result: Any, key: str, *, layer: str | None, parameters: Mapping[str, Any], corrected: bool = False
) -> None:
    """Write clusters, how sure they are, genes and markers into an AnnData object. See :func:`onmf.cells.cluster`."""
    import pandas as pd

    result = result.dense
    model, k = result.model, len(result.names)
    categories = list(map(str, result.shown_numbers))
    of_cells = {
        key: pd.Categorical.from_codes(result.labels, categories=categories),
        f"{key}_confidence": result.confidence,
        f"{key}_surprise": result.surprise,
        f"{key}_runner_up": pd.Categorical.from_codes(result.runners_up, categories=categories),
        f"{key}_margin": result.margins,
        f"{key}_scale": result.scales,
    }
    of_genes = {
        "deviance": result.deviance,
        f"{key}_gene": np.isin(np.arange(len(result.deviance)), result.genes),
    }
    about = {
        "params": {name: value for name, value in parameters.items() if isinstance(value, str | Real)}
        | {"n_clusters": k, "layer": layer or "X", "beta_loss": str(model.beta_loss), "view": result.view},
        "names": np.array(result.names, dtype=object),
        "n_iter": int(model.n_iter_),
        "objective": float(model.reconstruction_err_),
        "stop_reason": model.stop_reason_,
        "notes": np.array(result.notes, dtype=object),
    }
    if result.selection is not None:
        table = result.selection.table()
        kinds = {"n_clusters": int, "level": object}
        about["selection"] = {
            name: np.array([row[name] for row in table], dtype=kinds.get(name, float))  # None is NaN
            for name in table[0]
        }
    of_pairs, layers = {key: result.profiles.T.copy()}, {}
    if result.composition.any():
        about["groups"] = {"names": np.array(result.groups, dtype=object), "composition": result.composition}
        of_pairs[f"{key}_group_effects"] = result.by_group.effects.T.copy()
    if corrected:
        layers[f"{key}_corrected"] = csr_matrix(vstack(list(result.by_group.corrected()), format="csr"))
    found = scanpy_markers(result.markers, list(adata.var_names), categories, key, layer)
    # All results are ready here, so an error cannot leave half of them behind.
    for name, values in of_cells.items():
        adata.obs[name] = values
    for name, values in of_genes.items():
        adata.var[name] = values
    for name, values in of_pairs.items():
        adata.varm[name] = values
    for name, values in layers.items():
        adata.layers[name] = values
    adata.uns[key], adata.uns[f"{key}_markers"] = about, found


def scanpy_markers(
    found: Any, gene_names: Sequence[str], groups: Sequence[str], groupby: str, layer: str | None
) -> dict[str, Any]:
    """Markers in the form of ``scanpy.tl.rank_genes_groups``: arrays with a field for each group."""
    tables = {
        "names": np.asarray(gene_names, dtype=object)[found.genes],
        "scores": found.scores.astype(np.float32),
        "logfoldchanges": found.log_fold_changes.astype(np.float32),
        "pvals": found.p_values,
        "pvals_adj": found.adjusted,
    }
    parameters = {
        "groupby": groupby,
        "reference": "rest",
        "method": "onmf",
        "use_raw": False,
        "layer": layer,
        "corr_method": "benjamini-hochberg",
        "pvals": "naive: too small if the groups were computed from the same counts",
    }
    return {"params": parameters} | {
        name: np.rec.fromarrays(list(values), dtype=[(group, values.dtype) for group in groups])
        for name, values in tables.items()
    }


def write_markers(clusters: Any, path: Path) -> None:
    """Write a row for each cluster and marker gene, the best first."""
    found = clusters.markers.columns(clusters.table.symbols_or_genes, MARKERS)
    shown = len(found["gene"]) // clusters.n_clusters
    columns = {
        "cluster": [number for number in clusters.shown_numbers for _ in range(shown)],
        "name": [name for name in clusters.names for _ in range(shown)],
        "rank": list(range(1, shown + 1)) * clusters.n_clusters,
        "gene": found["gene"].tolist(),
    }
    write_table(path, [columns | {name: [float(f"{x:{form}}") for x in found[name]] for name, form in DIGITS.items()}])


def write_pseudobulk(clusters: Any, folder: Path) -> None:
    """Write sums by cluster and group: a row for each gene, as R's packages for counts read them, and their columns."""
    sums, about = clusters.by_group.pseudobulk()
    genes = {"gene": clusters.table.genes}
    counts = dict(zip(about["column"], sums.tolist(), strict=True))
    for name, columns in zip(PSEUDOBULK, (genes | counts, about), strict=True):
        write_table(folder / name, [columns])


def write_h5ad(clusters: Any, path: Path) -> None:
    """Write the input with the results. An AnnData file is copied with all it holds; others are written anew."""
    from anndata import AnnData
    from pandas import DataFrame

    cells = clusters.table
    n, p = cells.X.shape
    adata = AnnData(obs=DataFrame(index=cells.barcodes), var=DataFrame(index=cells.genes))
    write_results(adata, clusters, "onmf", layer=None if cells.place == "X" else cells.place, parameters={})
    if clusters.embedding is not None:
        adata.obsm["X_tsne"] = clusters.embedding
    source = Path(cells.source)
    if source.suffix == ".h5ad" and source.is_file():
        part = path.with_suffix(".results")
        adata.write_h5ad(part)
        if clusters.corrected:
            _write_batches(part, f"layers/{CORRECTED}", clusters.by_group.corrected(), p, np.float32)
        try:
            with Isolated.for_file(source) as reader:
                if reader(add_results, str(source.resolve()), str(part), str(path), n, p):
                    return
        finally:
            part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)  # tables as AnnData wrote them before version 0.7: nothing can be added
    for name, values in (("label", cells.classes), ("group", cells.groups)):
        if values is not None:
            adata.obs[name] = [value or "" for value in values]
    if cells.symbols or cells.ids:
        adata.var["symbol" if cells.symbols else "id"] = cells.symbols or cells.ids
    adata.write_h5ad(path, compression="gzip")
    _write_batches(path, "X", as_csr(cells.X), p, cells.X.dtype)
    if clusters.corrected:
        _write_batches(path, f"layers/{CORRECTED}", clusters.by_group.corrected(), p, np.float32)


def _write_batches(path: Path, place: str, batches: Iterable[Any], p: int, dtype: Any) -> None:
    """Write counts into an AnnData file in batches: they may be larger than memory."""
    import h5py
    from anndata.io import sparse_dataset, write_elem

    options = {"compression": "gzip", "chunks": (1 << 16,), "indptr_dtype": np.int64}
    with h5py.File(path, "r+") as file:
        write_elem(file, place, csr_matrix((0, p), dtype=dtype), dataset_kwargs=options)
        stored = sparse_dataset(file[place])
        for batch in batches:
            stored.append(batch)
