"""The report on clusters of documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from onmf.backend import to_host
from onmf.divergence import Array, divide
from onmf.io.files import write_whole
from onmf.palette import distinct_colours
from onmf.text import DocumentClusters
from onmf.text.embed import map_of_documents
from onmf.text.views import NOBODY
from onmf.tsne import Progress

from .coding import base64_array, code_places, pack_texts
from .document_tree import tree_of_clusters
from .document_words import deciding_words, take_rows
from .page import render_page
from .selection import selection_parts

MOST_DOCUMENTS = 50_000
"""Documents in a page; of more, a random choice is shown."""

ALL_TEXTS = 10_000_000
"""Characters of all excerpts in the page together; with very many documents each excerpt is shorter."""

MONTHS, YEARS = 72, 120
"""Time is divided into months if there are at most so many, else into years if there are at most so many of those."""

SCRIPTS = ("explore.js", "point_map.js", "documents.js", "documents_map.js", "documents_tree.js", "documents_lists.js",
           "documents_tables.js", "documents_table.js")  # fmt: skip


def documents_report(found: DocumentClusters, *, title: str | None = None, progress: Progress | None = None) -> str:
    """Return the report on clusters of documents as one self-contained HTML page.

    Parameters
    ----------
    found : DocumentClusters
        The clusters. The page has a map of the documents, and the words that decided, if ``counts`` is given; clusters
        over time if ``dates`` is; and a comparison with known classes if ``comparison`` is.
    title : str, optional
        Title of the page.
    progress : callable, optional
        Called with ``"map"`` and the share of the map that is drawn, None if that is not known.

    Returns
    -------
    str
    """
    model, comparison, n = found.model, found.comparison, len(found.ids)
    name = Path(str(found.source.get("name", ""))).name
    rows = np.arange(n)
    if n > MOST_DOCUMENTS:
        rows = np.sort(np.random.default_rng(0).choice(n, MOST_DOCUMENTS, replace=False))
    confidence = None if found.calibration is None else found.confidence
    classes = comparison.classes if comparison else []
    vote = found.source.get("vote")
    documents, words, map_method = _columns(found, rows, classes, progress)
    data: dict[str, Any] = tree_of_clusters(found) | {
        "documents": documents,
        "words": words,
        "sure": "margin" if confidence is None else "confidence",
        "classes": [
            {"name": label, "colour": colour}
            for label, colour in zip(classes, distinct_colours(len(classes)), strict=True)
        ],
        "class_counts": comparison.counts.T if comparison else None,
        "periods": _periods(found),
    }
    return render_page(
        "documents.html",
        title=title or (f"Clusters of {name}" if name else "Clusters of documents"),
        script=SCRIPTS,
        data=data,
        subtitle=_subtitle(found),
        facts=_facts(found),
        notes=[note for note in found.notes() if not vote or note != found.source.get("fit")],  # the header says it
        comparison=comparison,
        selection=selection_parts(found.selection),
        sure=data["sure"],
        periods=data["periods"],
        map_method=map_method,
        n_map=int(np.count_nonzero(found.clusters[rows] != NOBODY)) if map_method else 0,
        n_page=len(rows),
        n_documents=n,
        n_clusters=found.n_clusters,
        n_aside=int(np.count_nonzero(found.clusters == NOBODY)),
        vote=vote,
        n_iter=model.n_iter_,
        stopped=model.stop_reason_.replace("max_iter", "stopped at the maximum number"),
    )


def write_documents_report(
    path: str | os.PathLike[str],
    found: DocumentClusters,
    *,
    title: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write :func:`documents_report` to a file, completely or not at all.

    Parameters
    ----------
    path : str or path
        File to write.
    found : DocumentClusters
        The clusters.
    title : str, optional
        Title of the page.
    progress : callable, optional
        As in :func:`documents_report`.
    """
    page = documents_report(found, title=title, progress=progress).encode("utf-8", errors="replace")
    write_whole(Path(path), lambda file: file.write(page))


def _columns(
    found: DocumentClusters, rows: Array, classes: list[str], progress: Progress | None
) -> tuple[dict[str, Any], list[str], str | None]:
    """Return what the page knows of each of its documents, the words that decided, and how the map was made."""
    labels, filled = found.clusters[rows], found.clusters[rows] != NOBODY
    confidence = None if found.calibration is None else found.confidence
    length = ALL_TEXTS // max(len(rows), 1)
    index = {label: i for i, label in enumerate(classes)}
    columns: dict[str, Any] = {
        "ids": pack_texts(found.ids[i] for i in rows),
        "texts": pack_texts(found.excerpts[i][:length] for i in rows),
        "cluster": base64_array(labels, "<i2"),
        "sure": base64_array((found.margins if confidence is None else confidence)[rows], "<f4"),
        "length": base64_array(found.lengths[rows], "<f4"),
        "class": None,
        "date": None,
        "places": None,
        "deciding": None,
    }
    if classes:
        codes = [-1 if (label := found.classes[i]) is None else index.get(label, -1) for i in rows]
        columns["class"] = base64_array(np.array(codes), "<i2")
    if found.dates is not None:
        days = np.where(np.isnat(found.dates), np.datetime64("0001-01-01"), found.dates)[rows]
        columns["date"] = base64_array(days.astype("datetime64[D]").astype(np.int64), "<i4")
    if found.counts is None or not filled.any():
        return columns, [], None
    inside = np.cumsum(found.clusters != NOBODY) - 1  # row of the counts
    X = take_rows(found.counts, inside[rows[filled]])
    places, method = map_of_documents(X, progress=progress)
    columns["places"] = code_places(places)
    C, divergence = to_host(found.model.cluster_centers_), found.model.divergence_
    typical = float(np.median(X.sum(axis=1)))
    told = deciding_words(X, labels[filled], *divergence.linearised(C, typical))
    used, words = np.unique(told.words, return_inverse=True)
    largest = np.zeros(len(told.runners_up))
    owner = np.repeat(np.arange(len(largest)), np.diff(told.starts))
    np.maximum.at(largest, owner, np.abs(told.contributions))
    columns["deciding"] = {
        "runner_up": base64_array(told.runners_up, "<i2"),
        "starts": base64_array(told.starts, "<u4"),
        "words": base64_array(words, "<u4"),
        "contributions": base64_array(np.rint(127 * divide(told.contributions, largest[owner])), "<i1"),
        "largest": base64_array(largest, "<f4"),
    }
    return columns, [str(found.words[j]) for j in used], method


def _periods(found: DocumentClusters) -> dict[str, Any] | None:
    """Count the documents of each cluster in months, years or decades; None without dates."""
    if found.dates is None:
        return None
    known = ~np.isnat(found.dates) & (found.clusters != NOBODY)
    if not known.any():
        return None
    dates = found.dates[known]
    months = dates.astype("datetime64[M]").astype(np.int64) + 12 * 1970
    only_years = bool((dates == dates.astype("datetime64[Y]").astype("datetime64[D]")).all())
    if np.ptp(months) < MONTHS and not only_years:
        unit, numbers = "month", months
    else:
        unit, numbers = "year", months // 12
        if np.ptp(numbers) >= YEARS:
            unit, numbers = "decade", numbers // 10
    first, last = int(numbers.min()), int(numbers.max())
    counts = np.zeros((found.n_clusters, last - first + 1), dtype=np.int64)
    np.add.at(counts, (found.clusters[known], numbers - first), 1)
    return {"unit": unit, "names": [_period(unit, number) for number in range(first, last + 1)], "counts": counts}


def _period(unit: str, number: int) -> str:
    """Return the name of a month, year or decade, counted from the year 0."""
    if unit == "month":
        return f"{number // 12}-{number % 12 + 1:02}"
    return str(number) if unit == "year" else f"{10 * number}s"


def _facts(result: DocumentClusters) -> list[tuple[str, str]]:
    model = result.model
    facts = [
        ("Documents", f"{len(result.ids):,}"),
        ("Words that count", f"{len(result.words):,}"),
        ("Clusters", f"{result.n_clusters:,}"),
        *([] if result.source.get("vote") else [("Iterations", f"{model.n_iter_:,}")]),
        ("Objective", f"{model.reconstruction_err_:,.4g}"),
    ]
    if result.comparison:
        facts += result.comparison.facts()
    if model.agreement_ is not None:
        facts.append(("Agreement of runs", f"{model.agreement_.overall:.1%}"))
    return facts


def _subtitle(result: DocumentClusters) -> str:
    params = result.model.get_params()
    divergence = params["beta_loss"] if isinstance(params["beta_loss"], str) else f"β = {params['beta_loss']}"
    if vote := result.source.get("vote"):
        return f"{result.n_clusters} clusters, {divergence}, a vote of {vote}"
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    refined = ", then local search" if params["refine"] else ""
    return f"{result.n_clusters} clusters, {divergence}, start {start}{refined}"
