"""The report on clusters of cells."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from onmf.cells import CellClustering
from onmf.divergence import Array, FloatArray, divide
from onmf.io.files import write_whole
from onmf.palette import distinct_colours

from .cell_genes import PER_CELL, Genes, read_genes
from .coding import base64_array, code_places, code_shares, heat
from .page import render_page
from .selection import selection_parts

MOST_CELLS = 100_000
"""Cells in a page; of more, a random choice is shown."""

DOUBTFUL = 0.5
"""A cell with a lower confidence counts as lying between two clusters."""

MARKERS = 8
"""Marker genes of each cluster in the table."""

DOT_GENES = 120
"""Genes in the dot plot, about; each cluster has at least one and at most five."""

MOST_GROUPS = 60
"""Classes, and clusters with doubtful cells, in a table. The largest ones are shown."""


def cells_report(clustering: CellClustering, *, title: str | None = None) -> str:
    """Return the report on clusters of cells as one self-contained HTML page.

    Parameters
    ----------
    clustering : CellClustering
        The clustering. Its counts are read in blocks of rows. The page has a map of the cells if ``embedding`` is
        given, and a comparison with known classes if ``comparison`` is.
    title : str, optional
        Title of the page.

    Returns
    -------
    str
    """
    name = Path(clustering.source).name
    k = len(clustering.names)
    palette = distinct_colours(k)
    cells = _cells(clustering)
    dots = _dot_genes(clustering)
    genes = read_genes(clustering, cells, dots)
    classes = _classes(clustering)
    n_map = len(cells) if clustering.embedding is not None else 0
    data = {
        "clusters": [{"name": clustering.names[i], "colour": palette[i]} for i in range(k)],
        "classes": [
            {"name": label, "colour": colour}
            for label, colour in zip(classes, distinct_colours(len(classes)), strict=True)
        ],
        "cells": _columns(clustering, cells, classes),
        "genes": {
            "names": [clustering.gene_names[j] for j in genes.columns],
            "packed": genes.packed,
            "levels": genes.levels,
            "per_cell": PER_CELL,
        },
        "dots": _dots(clustering, genes, dots),
        "doubtful": DOUBTFUL,
    }
    return render_page(
        "cells.html",
        title=title or (f"Cells of {name}" if name else "Clusters of cells"),
        script=("explore.js", "point_map.js", "cells.js", "cells_map.js", "cells_lists.js"),
        data=data,
        subtitle=_subtitle(clustering),
        facts=_facts(clustering),
        notes=clustering.notes,
        clusters=_table(clustering, palette),
        pairs=_pairs(clustering),
        classes=classes,
        comparison=_comparison(clustering),
        selection=selection_parts(clustering.selection),
        n_map=n_map,
        n_listed=len(cells),
        n_cells=len(clustering.labels),
        n_typed=len(genes.columns),
        n_genes=len(clustering.gene_names),
        map_method=clustering.map_method or "a method that was not recorded",
        view=clustering.view,
        searched=clustering.model.divergence_.moves is not None,
        doubtful=DOUBTFUL,
        n_doubtful=int(np.count_nonzero(_is_doubtful(clustering))),
    )


def write_cells_report(path: str | os.PathLike[str], clustering: CellClustering, *, title: str | None = None) -> None:
    """Write :func:`cells_report` to a file, completely or not at all.

    Parameters
    ----------
    path : str or path
        File to write.
    clustering : CellClustering
        The clustering.
    title : str, optional
        Title of the page.
    """
    page = cells_report(clustering, title=title).encode("utf-8", errors="replace")
    write_whole(Path(path), lambda file: file.write(page))


def _cells(clustering: CellClustering) -> Array:
    """Return the rows in the page. They are ordered by cluster, so that genes are compressed better."""
    if clustering.embedding is None:
        rows = np.flatnonzero(clustering.labels >= 0)
    else:
        rows = np.flatnonzero(np.isfinite(clustering.embedding).all(axis=1))
    if len(rows) > MOST_CELLS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_CELLS, replace=False))
    return rows[np.argsort(clustering.labels[rows], kind="stable")]


def _classes(clustering: CellClustering) -> list[str]:
    """Return the largest known classes, in the order of their names."""
    sizes = Counter(label for label in clustering.classes or [] if label is not None)
    return sorted(label for label, _ in sizes.most_common(MOST_GROUPS))


def _largest(sizes: Array) -> Array:
    """Return the indices of the largest sizes above zero, in ascending order."""
    order = np.argsort(-sizes, kind="stable")[:MOST_GROUPS]
    return np.sort(order[sizes[order] > 0])


def _columns(clustering: CellClustering, cells: Array, classes: list[str]) -> dict[str, Any]:
    """Return what the page knows of each of its cells, as arrays in base64."""
    confidence = clustering.confidence[cells].astype(np.float64)
    columns: dict[str, Any] = {
        "barcodes": [clustering.barcodes[i] for i in cells],
        "cluster": base64_array(clustering.labels[cells], "<i2"),
        "runner_up": base64_array(clustering.runners_up[cells], "<i2"),
        "confidence": code_shares(confidence),
        "depth": base64_array(clustering.depths[cells], "<f4"),
        "class": None,
        "places": None,
    }
    if classes and clustering.classes is not None:
        index = {label: i for i, label in enumerate(classes)}
        labels = [clustering.classes[i] for i in cells]
        codes = [-1 if label is None else index.get(label, -1) for label in labels]
        columns["class"] = base64_array(np.array(codes), "<i4")
    if clustering.embedding is not None:
        columns["places"] = code_places(clustering.embedding[cells])
    return columns


def _dot_genes(clustering: CellClustering) -> Array:
    """Return the columns in the dot plot: the best markers of each cluster, each gene once."""
    number = int(np.clip(DOT_GENES // max(len(clustering.names), 1), 1, 5))
    filled = clustering.sizes > 0
    genes = clustering.markers.genes[filled, :number].ravel()
    genes = genes[genes >= 0]
    _, first = np.unique(genes, return_index=True)
    return genes[np.sort(first)].astype(np.int64)


def _dots(clustering: CellClustering, genes: Genes, dots: Array) -> dict[str, Any]:
    """Return the dot plot. Colours are scaled between the smallest and largest mean of each gene."""
    low, high = genes.means.min(axis=0), genes.means.max(axis=0)
    return {
        "genes": [clustering.gene_names[j] for j in dots],
        "clusters": np.flatnonzero(clustering.sizes > 0),
        "shares": genes.shares.round(3),
        "means": genes.means.round(2),
        "scaled": divide(genes.means - low, np.broadcast_to(high - low, genes.means.shape)).round(2),
    }


def _table(clustering: CellClustering, palette: list[str]) -> list[dict[str, Any]]:
    """Return a row of the table for each cluster."""
    sizes, markers = clustering.sizes, clustering.markers
    axis = _log_axis(clustering.depths[clustering.labels >= 0])
    rows = []
    for i, name in enumerate(clustering.names):
        inside = clustering.labels == i
        depths = clustering.depths[inside].astype(np.float64)
        spread = np.percentile(depths, (5, 25, 50, 75, 95)) if len(depths) else np.zeros(5)
        confidence = clustering.confidence[inside]
        confidence = confidence[np.isfinite(confidence)]
        shown = [j for j in range(min(MARKERS, markers.genes.shape[1])) if markers.genes[i, j] >= 0] if sizes[i] else []
        rows.append(
            {
                "number": i,
                "name": name,
                "colour": palette[i],
                "size": int(sizes[i]),
                "share": float(sizes[i]) / max(int(sizes.sum()), 1),
                "bar": round(100 * float(sizes[i]) / max(int(sizes.max()), 1), 1),
                "depth": round(float(spread[2])),
                "box": [round(100 * float(axis(value)), 1) for value in spread] if len(depths) else None,
                "spread": [f"{value:,.0f}" for value in spread],
                "genes": round(float(np.median(clustering.genes_per_cell[inside]))) if len(depths) else 0,
                "confidence": float(np.median(confidence)) if len(confidence) else None,
                "markers": [
                    {
                        "gene": clustering.gene_names[markers.genes[i, j]],
                        "change": float(markers.log_fold_changes[i, j]),
                        "inside": float(markers.share_inside[i, j]),
                        "outside": float(markers.share_outside[i, j]),
                    }
                    for j in shown
                ],
            }
        )
    return rows


def _log_axis(depths: FloatArray) -> Any:
    """Return the function that places a depth between 0 and 1 on a logarithmic axis with nearly all depths."""
    positive = depths[depths > 0]
    low, high = np.log(np.percentile(positive, (0.5, 99.5))) if len(positive) else (0.0, 1.0)
    width = high - low if high > low else 1.0
    return lambda depth: np.clip((np.log(max(depth, 1e-300)) - low) / width, 0.0, 1.0)


def _is_doubtful(clustering: CellClustering) -> Array:
    with np.errstate(invalid="ignore"):
        return (clustering.labels >= 0) & (clustering.runners_up >= 0) & (clustering.confidence < DOUBTFUL)


def _pairs(clustering: CellClustering) -> dict[str, Any]:
    """Count the doubtful cells of each cluster by their runner-up, and shade them by their share of the cluster."""
    k, sizes = len(clustering.names), clustering.sizes
    rows = _is_doubtful(clustering)
    counts = np.zeros((k, k), dtype=np.int64)
    np.add.at(counts, (clustering.labels[rows], clustering.runners_up[rows]), 1)
    used, others = _largest(counts.sum(axis=1)), _largest(counts.sum(axis=0))
    shown = counts[np.ix_(used, others)]
    return heat(shown, shown / np.maximum(sizes[used, None], 1)) | {
        "rows": used.tolist(),
        "columns": others.tolist(),
        "left_out": int(counts.sum() - shown.sum()),
    }


def _comparison(clustering: CellClustering) -> dict[str, Any] | None:
    """Return the scores and the table of classes and clusters, with the clusters in the order of their main class."""
    found = clustering.comparison
    if found is None:
        return None
    table = np.asarray(found.table)
    rows = _largest(table.sum(axis=1))
    table = table[rows]
    order = np.argsort(table.argmax(axis=0), kind="stable") if len(rows) else np.arange(table.shape[1])
    shares = divide(table.astype(np.float64), table.sum(axis=1, keepdims=True).astype(np.float64))
    scores = [
        ("Adjusted Rand index", found.ari, "1: the same groups; 0: no more in common than by chance."),
        ("NMI", found.nmi, "Normalized mutual information, from 0 to 1."),
        ("Homogeneity", found.homogeneity, "1: no cluster mixes classes."),
        ("Completeness", found.completeness, "1: no class is divided among clusters."),
        ("Purity", found.purity, "Share of the cells that are of the main class of their cluster."),
    ]
    if found.accuracy is not None:
        scores.append(("Accuracy", found.accuracy, "Share of the cells in the cluster matched with their class."))
    return heat(table[:, order], shares[:, order]) | {
        "scores": scores,
        "classes": [found.classes[i] for i in rows],
        "n_classes": len(found.classes),
        "clusters": order.tolist(),
    }


def _facts(clustering: CellClustering) -> list[tuple[str, str]]:
    kept = clustering.labels >= 0
    n = len(kept)
    confidence = clustering.confidence[kept]
    confidence = confidence[np.isfinite(confidence)]
    facts = [
        ("Cells", f"{n:,}" if kept.all() else f"{np.count_nonzero(kept):,} of {n:,}"),
        ("Genes used", f"{len(clustering.genes):,} of {len(clustering.gene_names):,}"),
        ("Clusters", f"{len(clustering.names):,}"),
        ("Median depth", f"{np.median(clustering.depths[kept]):,.0f}" if kept.any() else "none"),
        ("Median confidence", f"{np.median(confidence):.2f}" if len(confidence) else "none"),
    ]
    if clustering.comparison is not None:
        facts += clustering.comparison.facts()
    return facts


def _subtitle(clustering: CellClustering) -> str:
    params = clustering.model.get_params()
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    divergence = params["beta_loss"] if isinstance(params["beta_loss"], str) else f"β = {params['beta_loss']}"
    runs = f", best of {params['n_init']} runs" if params["n_init"] > 1 else ""
    refined = ", then local search" if params["refine"] else ""
    return f"{len(clustering.names)} clusters, {divergence}, start {start}{runs}{refined}"
