"""The report on clusters of documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from onmf.io.files import write_whole
from onmf.naming import numbers
from onmf.text import DocumentClusters
from onmf.text.kind import DOCUMENTS
from onmf.text.views import NOBODY

from .charts import cluster_map, colours, convergence, escaped, shaded_table
from .page import render_page

LONGEST = 100
"""Characters of each excerpt in the table of documents."""

ALL_TEXTS = 1_500_000
"""Characters of all excerpts in the table together; with very many documents each excerpt is shorter."""


def documents_report(found: DocumentClusters, *, title: str | None = None) -> str:
    """Return the report on clusters of documents as one self-contained HTML page.

    Parameters
    ----------
    found : DocumentClusters
        The clusters.
    title : str, optional
        Title of the page.

    Returns
    -------
    str
    """
    model, sizes, comparison = found.model, found.sizes, found.comparison
    source = found.source
    name = Path(str(source.get("name", ""))).name
    title = title or (f"Clusters of {name}" if name else "Clusters of documents")
    distinctive = found.distinctive(10)
    names, numbering = found.names, numbers(DOCUMENTS, found.n_clusters)
    frequent = found.frequent(10)
    palette = colours(found.n_clusters)
    n = len(found.ids)
    moved = model.history_.get("moved", np.empty(0))
    cards = [
        {
            "index": k,
            "number": numbering[k],
            "name": names[k],
            "size": int(sizes[k]),
            "share": float(sizes[k]) / max(int(sizes.sum()), 1),
            "label": comparison.classes[int(np.argmax(comparison.counts[:, k]))] if comparison and sizes[k] else None,
            "colour": palette[k],
            "words": _bars(distinctive[k]),
            "frequent": frequent[k],
            "typical": _documents(found, found.typical(k, 20)),
            "doubtful": _documents(found, found.doubtful(k, 20)),
        }
        for k in range(found.n_clusters)
    ]
    figures = {
        "map": cluster_map(
            model.cluster_centers_,
            sizes,
            [", ".join(name.split(", ")[:2]) for name in names],
            [f"<b>{number}</b>, {size:,} documents<br>{escaped(', '.join(words))}"
             for number, size, words in zip(numbering, sizes, distinctive, strict=True)],
        ),
        "convergence": convergence(moved),
    }  # fmt: skip
    length = min(LONGEST, ALL_TEXTS // max(n, 1))
    data: dict[str, Any] = {
        "clusters": [
            {"number": number, "name": name, "colour": colour}
            for number, name, colour in zip(numbering, names, palette, strict=True)
        ],
        "documents": {
            "id": list(found.ids),
            "cluster": found.clusters,
            "margin": [round(float(margin), 4) if np.isfinite(margin) else 1e9 for margin in found.margins],
            "text": [text[:length] for text in found.excerpts] if length >= 10 else [],
        },
        "classes": None,
        "figures": figures,
    }
    if comparison:
        index = {label: i for i, label in enumerate(comparison.classes)}
        data["classes"] = comparison.classes
        data["documents"]["label"] = [index.get(label, -1) if label is not None else -1 for label in found.classes]
        order = np.argsort([np.argmax(comparison.counts[:, k]) for k in range(found.n_clusters)], kind="stable")
        figures["classes"] = shaded_table(
            comparison.counts[:, order],
            comparison.classes,
            [f"{numbering[k]}: {names[k].split(', ')[0]}" for k in order],
        )
    return render_page(
        "documents.html",
        title=title,
        script="documents.js",
        data=data,
        subtitle=_subtitle(found),
        facts=_facts(found),
        notes=found.notes(),
        cards=cards,
        comparison=comparison,
        n_aside=int(np.count_nonzero(found.clusters == NOBODY)),
        map_text=f"Map of {found.n_clusters} clusters. The cards below list the words and the size of each.",
        convergence_text=(
            f"{model.n_iter_} iterations; {model.stop_reason_.replace('max_iter', 'stopped at the maximum number')}."
        ),
    )


def write_documents_report(path: str | os.PathLike[str], found: DocumentClusters, *, title: str | None = None) -> None:
    """Write :func:`documents_report` to a file, completely or not at all.

    Parameters
    ----------
    path : str or path
        File to write.
    found : DocumentClusters
        The clusters.
    title : str, optional
        Title of the page.
    """
    page = documents_report(found, title=title).encode("utf-8", errors="replace")
    write_whole(Path(path), lambda file: file.write(page))


def _bars(words: dict[str, float]) -> list[tuple[str, int]]:
    """Return the words with the widths of their bars, in percent."""
    largest = max((abs(weight) for weight in words.values()), default=1.0)
    return [(word, round(100 * abs(weight) / largest)) for word, weight in words.items()]


def _documents(result: DocumentClusters, rows: Any, limit: int = 3) -> list[dict[str, Any]]:
    """Return the first few of these documents. A document with the same excerpt as an earlier one is left out."""
    first = {result.excerpts[i]: i for i in reversed(rows)}
    chosen = [i for i in rows if first[result.excerpts[i]] == i][:limit]
    return [{"id": result.ids[i], "label": result.classes[i], "text": result.excerpts[i]} for i in chosen]


def _facts(result: DocumentClusters) -> list[tuple[str, str]]:
    model = result.model
    facts = [
        ("Documents", f"{len(result.ids):,}"),
        ("Words that count", f"{len(result.words):,}"),
        ("Clusters", f"{result.n_clusters:,}"),
        ("Iterations", f"{model.n_iter_:,}"),
        ("Objective", f"{model.reconstruction_err_:,.4g}"),
    ]
    if result.comparison:
        facts += result.comparison.facts()
    if model.agreement_ is not None:
        facts.append(("Agreement of runs", f"{model.agreement_.overall:.1%}"))
    return facts


def _subtitle(result: DocumentClusters) -> str:
    params = result.model.get_params()
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    divergence = params["beta_loss"] if isinstance(params["beta_loss"], str) else f"β = {params['beta_loss']}"
    refined = ", then local search" if params["refine"] else ""
    return f"{result.n_clusters} clusters, {divergence}, start {start}{refined}"
