"""The report on clusters of cells."""

import struct
from collections import Counter
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csc_array, diags_array

from onmf.backend import to_host
from onmf.divergence import Array, FloatArray, divide
from onmf.door import Progress
from onmf.report.page import (
    DOUBTFUL,
    base64_array,
    class_codes,
    clusters_page,
    code_places,
    code_shares,
    coloured,
    group_codes,
    packed,
)

from .embed import map_of_cells
from .genes import UNIT
from .kind import CellClusters
from .matrix import columns_of

MOST_CELLS = 100_000  # cells in a page; of more, a random choice is shown
MARKERS = 8  # marker genes of each cluster in the table
DOT_GENES = 120  # genes in the dot plot, about; each cluster has at least one and at most five
MOST_GROUPS = 60  # classes, and clusters with doubtful cells, in a table; the largest ones are shown
GENES = 8_000_000  # bytes of genes in a page, as they are embedded
DENSEST = 0.6  # fewest bytes of an entry in a page, roughly: it limits the genes that are read to be packed
EXACT, RATIO = 16, 1.1
"""Whole counts up to this one are embedded exactly. Larger ones have levels in this ratio, so they are exact to 5 %: no
eye sees the difference, and more genes fit."""


def cells_page(
    clustering: CellClusters, *, title: str | None = None, map: str | None = None, progress: Progress | None = None
) -> str:
    """The report on clusters of cells as one self-contained HTML page.

    Parameters
    ----------
    clustering : CellClusters
        The clusters. The counts are read in blocks of rows. If openTSNE is installed, a map of the cells is drawn,
        and kept in ``embedding``.
    title : str, optional
        Title of the page.
    map : {"full", "quick", "none"}, optional
        How the map is drawn. By default, one that was drawn before is used; if there is none, as
        :meth:`CellClusters.report` says.
    progress : callable, optional
        Called with the name of a step and the share of it that is done.

    Returns
    -------
    str
    """
    report, divergence = progress or (lambda name, share: None), clustering.model.divergence_
    drawn = clustering.map_to_draw(map)
    if drawn != "none" and (map is not None or clustering.embedding is None) and find_spec("openTSNE") is not None:
        inside = diags_array(clustering.labels >= 0, dtype=np.int32)  # cells that are unassigned are not on the map
        clustering.embedding, clustering.map_method = map_of_cells(
            inside @ columns_of(clustering.table.X, clustering.genes),
            groups=_expected_shares(clustering),
            quick=drawn == "quick",
            n_threads=clustering.model.n_threads,
            progress=lambda name, share: report(f"Drawing the map: {name}", share),
        )
    places = None if drawn == "none" else clustering.embedding
    report("Writing the report", None)
    name, named = clustering.table.name, coloured(clustering.names, clustering.palette)
    cells = _cells(clustering, places)
    columns, counts, levels = read_genes(clustering, cells)
    known = Counter(filter(None, clustering.table.classes or []))
    classes = sorted(label for label, _ in known.most_common(MOST_GROUPS))
    data = {
        "classes": coloured(classes),
        "groups": coloured(clustering.groups),
        "cells": _columns(clustering, cells, classes, places),
        "genes": {
            "names": [clustering.table.symbols_or_genes[j] for j in columns],
            "packed": counts,
            "levels": levels,
            "per_cell": UNIT,
        },
        "dots": dot_plot(clustering),
    }
    return clusters_page(
        clustering,
        "cells.html",
        title=title or (f"Cells of {name}" if name else "Clusters of cells"),
        script=("point_map.js", "cells.js", "cells_map.js", "heat.js", "odd.js", "find.js", "cells_lists.js"),
        data=data,
        facts=_facts(clustering),
        clusters=[row | each for row, each in zip(_table(clustering), named, strict=True)],
        find_by="genes, or names of cells",
        pairs=_pairs(clustering),
        classes=classes,
        comparison=_comparison(clustering),
        n_map=len(cells) if places is not None else 0,
        n_listed=len(cells),
        n_cells=len(clustering.labels),
        n_typed=len(columns),
        n_genes=len(clustering.table.symbols_or_genes),
        map_method=clustering.map_method or "a method that was not recorded",
        view=clustering.view,
        searched=clustering.model.group_effects_ is None and (divergence.warm_start or divergence).moves is not None,
    )


def _expected_shares(clustering: CellClusters) -> Any:
    """Return the group of each cell, and the share of each gene in the counts that are expected of the groups."""
    if not clustering.composition.any():
        return None
    model, codes = clustering.model, clustering.group_codes
    whole = to_host(model.clustering_.masses) @ to_host(model.cluster_centers_)
    effects = np.vstack([to_host(model.group_effects_), np.ones(len(whole))])  # the last one is of unknown groups
    return np.where(codes < 0, len(clustering.groups), codes), whole * effects


def _cells(clustering: CellClusters, places: FloatArray | None) -> Array:
    """Return the rows in the page. They are ordered by cluster, so that genes are compressed better."""
    rows = np.flatnonzero(clustering.labels >= 0 if places is None else np.isfinite(places).all(axis=1))
    if len(rows) > MOST_CELLS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_CELLS, replace=False))
    return rows[np.argsort(clustering.labels[rows], kind="stable")]


def _largest(sizes: Array) -> Array:
    """Return the indices of the largest sizes above zero, in ascending order."""
    order = np.argsort(-sizes, kind="stable")[:MOST_GROUPS]
    return np.sort(order[sizes[order] > 0])


def _columns(clustering: CellClusters, cells: Array, classes: list[str], places: FloatArray | None) -> dict[str, Any]:
    """Return what the page knows of each of its cells, as arrays in base64."""
    return {
        "barcodes": [clustering.table.rows[i] for i in cells],
        "cluster": base64_array(clustering.labels[cells], "<i2"),
        "runner_up": base64_array(clustering.runners_up[cells], "<i2"),
        "confidence": code_shares(clustering.confidence[cells]),
        "surprise": base64_array(clustering.surprise[cells], "<f4"),
        "depth": base64_array(clustering.depths[cells], "<f4"),
        "class": class_codes(clustering, cells, classes, "<i4"),
        "group": group_codes(clustering, cells),
        "places": None if places is None else code_places(places[cells]),
    }


def _table(clustering: CellClusters) -> list[dict[str, Any]]:
    """Return a row of the table for each cluster."""
    sizes, markers = clustering.sizes, clustering.markers
    positive = clustering.depths[(clustering.labels >= 0) & (clustering.depths > 0)]
    low, high = np.log(np.percentile(positive, (0.5, 99.5)))  # the ends of an axis with nearly all depths
    width = high - low if high > low else 1.0
    rows = []
    for i, size in enumerate(sizes.tolist()):
        inside = clustering.labels == i
        spread = np.percentile(clustering.depths[inside], (5, 25, 50, 75, 95)) if size else np.zeros(5)
        box = 100 * np.clip((np.log(np.maximum(spread, 1e-300)) - low) / width, 0.0, 1.0)
        rows.append(
            {
                "size": size,
                "share": size / max(int(sizes.sum()), 1),
                "bar": round(100 * size / max(int(sizes.max()), 1), 1),
                "depth": round(float(spread[2])),
                "box": box.round(1).tolist() if size else None,
                "spread": [f"{value:,.0f}" for value in spread],
                "genes": round(float(np.median(clustering.genes_per_cell[inside]))) if size else 0,
                "confidence": _median_confidence(clustering, inside),
                "markers": [
                    {
                        "gene": clustering.table.symbols_or_genes[markers.genes[i, j]],
                        "change": float(markers.log_fold_changes[i, j]),
                        "inside": float(markers.share_inside[i, j]),
                        "outside": float(markers.share_outside[i, j]),
                    }
                    for j in range(min(MARKERS, markers.genes.shape[1]) if size else 0)
                ],
            }
        )
    return rows


def _median_confidence(clustering: CellClusters, rows: Array) -> float | None:
    known = clustering.confidence[rows & np.isfinite(clustering.confidence)]
    return float(np.median(known)) if len(known) else None


def _pairs(clustering: CellClusters) -> dict[str, Any]:
    """Count the doubtful cells of each cluster by their runner-up, and shade them by their share of the cluster."""
    rows = (clustering.labels >= 0) & (clustering.runners_up >= 0) & (clustering.confidence < DOUBTFUL)
    counts = np.zeros((clustering.n_clusters, clustering.n_clusters), dtype=np.int64)
    np.add.at(counts, (clustering.labels[rows], clustering.runners_up[rows]), 1)
    used, others = _largest(counts.sum(axis=1)), _largest(counts.sum(axis=0))
    shown = counts[np.ix_(used, others)]
    return {
        "counts": shown.tolist(),
        "rows": used.tolist(),
        "columns": others.tolist(),
        "left_out": int(counts.sum() - shown.sum()),
        "number": int(counts.sum()),
    }


def _comparison(clustering: CellClusters) -> dict[str, Any] | None:
    """Return the scores and the table of classes and clusters, with the clusters in the order of their main class."""
    found = clustering.comparison
    if found is None:
        return None
    rows = _largest(found.table.sum(axis=1))
    table = found.table[rows]
    order = np.argsort(table.argmax(axis=0), kind="stable") if len(rows) else np.arange(table.shape[1])
    scores = [
        ("Adjusted Rand index", found.ari, "1: the same groups; 0: no more in common than by chance."),
        ("NMI", found.nmi, "Normalized mutual information, from 0 to 1."),
        ("Homogeneity", found.homogeneity, "1: no cluster mixes classes."),
        ("Completeness", found.completeness, "1: no class is divided among clusters."),
        ("Purity", found.purity, "Share of the cells that are of the main class of their cluster."),
        ("Accuracy", found.accuracy, "Share of the cells in the cluster matched with their class."),
    ]
    return {
        "counts": table[:, order].tolist(),
        "scores": [score for score in scores if score[1] is not None],
        "classes": [found.classes[i] for i in rows],
        "n_classes": len(found.classes),
        "clusters": order.tolist(),
    }


def _facts(clustering: CellClusters) -> list[tuple[str, str]]:
    kept = clustering.labels >= 0
    n, sure = len(kept), _median_confidence(clustering, kept)
    return [
        ("Cells", f"{n:,}" if kept.all() else f"{np.count_nonzero(kept):,} of {n:,}"),
        ("Genes used", f"{len(clustering.genes):,} of {len(clustering.table.symbols_or_genes):,}"),
        ("Clusters", f"{len(clustering.names):,}"),
        ("Median depth", f"{np.median(clustering.depths[kept]):,.0f}" if kept.any() else "none"),
        ("Median confidence", "none" if sure is None else f"{sure:.2f}"),
        *([] if clustering.comparison is None else clustering.comparison.facts()),
    ]


def dot_plot(clustering: CellClusters) -> dict[str, Any]:
    """The dot plot: the best markers of each cluster. Colours are scaled between the extreme means of each gene."""
    number = int(np.clip(DOT_GENES // max(len(clustering.names), 1), 1, 5))
    filled, sums = clustering.sizes > 0, clustering.sums
    genes = list(dict.fromkeys(clustering.markers.genes[filled, :number].ravel().tolist()))
    shares, means = (divide(total[:, genes], sums.cells[:, None]) for total in (sums.present, sums.logs))
    low, high = means.min(axis=0), means.max(axis=0)
    return {
        "genes": [clustering.table.symbols_or_genes[j] for j in genes],
        "clusters": np.flatnonzero(filled),
        "shares": shares.round(3),
        "means": means.round(2),
        "scaled": divide(means - low, np.broadcast_to(high - low, means.shape)).round(2),
    }


def read_genes(clustering: CellClusters, cells: Array) -> tuple[Array, list[str], FloatArray]:
    """The genes of a page: their columns, their packed counts in its cells, and the count that each code stands for.

    First the best marker of each cluster, then the second best of each, and so on. Then the other genes of the model,
    those in the fewest cells first: of genes that nearly all cells have, few would fill the page. Then the rest, by
    deviance. Genes that no cell of the page has are left out.
    """
    present = clustering.sums.present.sum(axis=0)
    model = clustering.genes[np.argsort(present[clustering.genes], kind="stable")]
    ranked = (clustering.markers.genes.T.ravel(), model, np.argsort(-clustering.deviance, kind="stable"))
    wanted = np.array(list(dict.fromkeys(np.concatenate(ranked).tolist())))
    expected = np.cumsum(present[wanted]) * len(cells) / clustering.sizes.sum()
    wanted = wanted[expected * DENSEST <= GENES]
    on_page = np.isin(np.arange(len(clustering.labels)), cells)
    counts = csc_array(columns_of(clustering.table.X, wanted, on_page)[np.argsort(np.argsort(cells))])
    counts.sort_indices()
    levels = _levels(counts.data)
    codes = np.maximum(np.searchsorted((levels[1:] + levels[:-1]) / 2, counts.data), 1)
    columns, texts, room = [], [], GENES
    for j in np.flatnonzero(np.diff(counts.indptr)):
        entries = slice(counts.indptr[j], counts.indptr[j + 1])
        text = pack(counts.indices[entries].astype(np.int64), codes[entries])
        room -= len(text)
        if room < 0:
            break
        columns.append(wanted[j])
        texts.append(text)
    return np.array(columns, dtype=np.int64), texts, levels


def pack(cells: Array, codes: Array) -> str:
    """The counts of one gene as text: cells with the gene, in ascending order, and a code from 1 to 255 each.

    The text is base64 of a zlib stream: the number of entries in four bytes, steps from cell to cell, and the codes. A
    step is a byte; a zero stands for 255 cells without the gene.
    """
    gaps = np.diff(cells, prepend=-1) - 1
    ends = np.cumsum(gaps // 255 + 1)
    steps = np.zeros(ends[-1] if len(ends) else 0, dtype=np.uint8)
    steps[ends - 1] = gaps % 255 + 1
    return packed(struct.pack("<I", len(codes)) + steps.tobytes() + codes.astype(np.uint8).tobytes(), level=6)


def _levels(counts: Array) -> FloatArray:
    """The count that each code stands for: 0, then at most 255 others up to the largest count."""
    low, high = (float(counts.min()), float(counts.max())) if len(counts) else (1.0, 1.0)
    if not (counts == np.rint(counts)).all():
        return np.concatenate([[0.0], np.geomspace(low, high, 255)])
    if high <= EXACT:
        return np.arange(high + 1)
    number = min(int(np.log(high / EXACT) / np.log(RATIO)) + 2, 255 - EXACT)
    return np.concatenate([np.arange(EXACT), np.geomspace(EXACT, high, number)])
