"""Writes clusters of cells: tables, the model, a summary, and an AnnData file with the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onmf.io.csv_file import csv_line
from onmf.io.isolate import Isolated

from .anndata import write_results
from .annotate import add_results
from .genes import as_csr
from .read import Cells
from .result import CellClustering

OURS = ("assignments.csv", "markers.csv", "model.onmf", "cells.h5ad", "summary.json", "report.html")
"""Names of the files that we write; ``force`` replaces a folder only if it has no others."""

KEY = "onmf"
"""Name of the results in AnnData files."""

MARKERS = 25
"""Marker genes of each cluster in the table."""


def write_files(result: CellClustering, cells: Cells, folder: Path) -> None:
    """Write the tables, the model, a summary and ``cells.h5ad`` into a folder."""
    _write_csv(folder / "assignments.csv", assignments(result))
    _write_csv(folder / "markers.csv", marker_rows(result))
    result.model.save(folder / "model.onmf", extra=cell_parts(result, cells))
    text = json.dumps(summary(result), indent=1, ensure_ascii=False) + "\n"
    (folder / "summary.json").write_text(text, "utf-8", errors="replace")
    write_h5ad(result, cells, folder / "cells.h5ad")


def cell_parts(result: CellClustering, cells: Cells) -> dict[str, Any]:
    """The entries of a model file of cells, besides the model."""
    parts = {
        "kind": "cells",
        "genes": [cells.genes[j] for j in result.genes],
        "names": result.names,
        "view": result.view,
        **result.calibration.parts(),
    }
    symbols = cells.symbols or cells.ids
    return parts if symbols is None else parts | {"symbols": [symbols[j] for j in result.genes]}


def assignments(result: CellClustering) -> Iterator[dict[str, Any]]:
    """Yield a row for each cell, in their order. Cells that were left out have no cluster."""
    for i, barcode in enumerate(result.barcodes):
        inside = result.labels[i] >= 0
        row = {
            "cell": barcode,
            "cluster": int(result.labels[i]) if inside else None,
            "name": result.names[result.labels[i]] if inside else None,
            "confidence": round(float(result.confidence[i]), 4) if inside else None,
            "runner_up": int(result.runners_up[i]) if result.runners_up[i] >= 0 else None,
            "margin": float(f"{result.margins[i]:.4g}") if inside else None,
            "counts": float(f"{result.depths[i]:.10g}"),
            "genes": int(result.genes_per_cell[i]),
        }
        yield row | {"label": result.classes[i]} if result.classes is not None else row


def marker_rows(result: CellClustering, number: int = MARKERS) -> Iterator[dict[str, Any]]:
    """Yield a row for each cluster and marker gene, the best first."""
    found = result.markers
    for k, name in enumerate(result.names):
        for rank, j in enumerate(found.genes[k, :number]):
            yield {
                "cluster": k,
                "name": name,
                "rank": rank + 1,
                "gene": result.gene_names[j],
                "effect": float(f"{found.scores[k, rank]:.4g}"),
                "share_inside": round(float(found.share_inside[k, rank]), 4),
                "share_outside": round(float(found.share_outside[k, rank]), 4),
                "log2_fold_change": float(f"{found.log_fold_changes[k, rank]:.4g}"),
                "p_adjusted": float(f"{found.adjusted[k, rank]:.3g}"),
            }


def summary(result: CellClustering) -> dict[str, Any]:
    """Return the results in numbers, for ``summary.json``."""
    record: dict[str, Any] = {
        "source": result.source,
        "cells": len(result.labels),
        "genes": len(result.gene_names),
        "used_genes": len(result.genes),
        "view": result.view,
        "clusters": [
            {
                "cluster": k,
                "name": name,
                "cells": int(size),
                "markers": [result.gene_names[j] for j in result.markers.genes[k, :10]],
            }
            for k, (name, size) in enumerate(zip(result.names, result.sizes, strict=True))
        ],
        "left_out": int(np.count_nonzero(result.labels < 0)),
        "objective": float(result.model.reconstruction_err_),
        "notes": result.notes,
        "selection": None if result.selection is None else result.selection.record(),
    }
    if result.comparison is not None:
        record |= result.comparison.numbers()
    return record


def write_h5ad(result: CellClustering, cells: Cells, path: Path) -> None:
    """Write the input with the results. An AnnData file is copied with all it holds; others are written anew."""
    from anndata import AnnData
    from pandas import DataFrame
    from scipy.sparse import csr_matrix

    n, p = cells.X.shape
    adata = AnnData(obs=DataFrame(index=cells.barcodes), var=DataFrame(index=cells.genes))
    write_results(adata, result, KEY, layer=None if cells.place == "X" else cells.place)
    if result.embedding is not None:
        adata.obsm["X_tsne"] = result.embedding
    source = Path(cells.source)
    if source.suffix == ".h5ad" and source.is_file():
        part = path.with_suffix(".results")
        adata.write_h5ad(part)
        try:
            with Isolated.for_file(source) as reader:
                if reader(add_results, str(source.resolve()), str(part), str(path), n, p):
                    return
        finally:
            part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)  # tables as AnnData wrote them before version 0.7: nothing can be added
    if result.classes is not None:
        adata.obs["label"] = [name or "" for name in result.classes]
    if cells.symbols or cells.ids:
        adata.var["symbol" if cells.symbols else "id"] = cells.symbols or cells.ids
    if hasattr(cells.X, "indptr"):
        adata.X = csr_matrix(cells.X)
        adata.write_h5ad(path, compression="gzip")
    else:
        adata.write_h5ad(path)
        _append_counts(path, cells.X)


def _append_counts(path: Path, X: Any) -> None:
    """Add counts that are larger than memory to an AnnData file, in batches."""
    import h5py

    with h5py.File(path, "r+") as file:
        if "X" in file:
            del file["X"]
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": np.array(X.shape)})
        options = {"shape": (0,), "maxshape": (None,), "chunks": (1 << 16,), "compression": "gzip"}
        data = group.create_dataset("data", dtype=X.dtype, **options)
        indices = group.create_dataset("indices", dtype=np.int32, **options)
        starts = [np.zeros(1, dtype=np.int64)]
        for batch in as_csr(X):
            filled = len(data)
            data.resize((filled + batch.nnz,))
            indices.resize((filled + batch.nnz,))
            data[filled:], indices[filled:] = batch.data, batch.indices
            starts.append(batch.indptr[1:].astype(np.int64) + filled)
        group.create_dataset("indptr", data=np.concatenate(starts))


def _write_csv(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        for number, row in enumerate(rows):
            if number == 0:
                file.write(csv_line(row))
            file.write(csv_line(row.values()))
