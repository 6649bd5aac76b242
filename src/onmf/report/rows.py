"""The report on clusters of rows of counts: documents, and the rows of any table."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from onmf.backend import to_host
from onmf.backend.threads import available_cores
from onmf.divergence import Array, FloatArray, divide
from onmf.door import Clusters, Progress
from onmf.door.settle import take_rows
from onmf.door.time import Change
from onmf.fit.describe import distinctiveness
from onmf.hierarchy import merge_clusters
from onmf.naming import names_from_features
from onmf.plot import first_two, place_rows

from .page import base64_array, class_codes, clusters_page, code_places, coloured, group_codes, pack_texts

MOST_ROWS = 50_000  # Documents in a page; of more, a random choice is shown
ALL_TEXTS = 10_000_000  # Characters of all excerpts together; with very many documents each is shorter
CHANGED = 8  # Features that rose, and features that fell, in all rows and in each cluster
SCRIPTS = ("point_map.js", "rows.js", "rows_map.js", "rows_tree.js", "rows_lists.js", "rows_tables.js",
           "heat.js", "odd.js", "find.js", "rows_table.js")  # fmt: skip
FEATURES = 10  # Features of each cluster
NUMBERED = 4  # Clusters in the number of a merged cluster, such as 3+7+12
DECIDING = 8  # Features of each row that are shown
BATCH = 4096  # Rows that are scored at a time
LEAST = -100.0  # The least entry of a template. Without smoothing, a feature that a cluster lacks has minus infinity.
COMPONENTS, EXTRA = 50, 10  # Singular vectors from which the map is made, and those computed besides, for accuracy


def rows_page(
    found: Clusters, *, title: str | None = None, map: str | None = None, progress: Progress | None = None
) -> str:
    """The report on clusters of rows of counts, such as documents, as one self-contained HTML page.

    Parameters
    ----------
    found : Clusters
        The clusters. The page has clusters over time if their table has dates, and a comparison with known classes if
        it has these.
    title : str, optional
        Title of the page.
    map : {"full", "quick", "none"}, optional
        How the map of the rows is drawn; by default as :meth:`Clusters.report` says.
    progress : callable, optional
        Called with the name of a step and the share of it that is done.

    Returns
    -------
    str
    """
    kind, comparison, over, n = found.kind, found.comparison, found.over_time, len(found.labels)
    rows = np.arange(n)
    if n > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(n, MOST_ROWS, replace=False))
    classes = comparison.classes if comparison else []
    columns, words, map_method = _columns(
        found, rows, classes, found.map_to_draw(map), progress or (lambda name, share: None)
    )
    texts = texts_of(found) is not None
    data: dict[str, Any] = tree_of_clusters(found) | {
        "texts": texts,
        "documents": columns,
        "words": words,
        "classes": coloured(classes),
        "groups": coloured(found.groups),
        "class_counts": comparison.table.T if comparison else None,
        "periods": None if over is None else {"unit": over.unit, "names": over.names, "counts": over.counts},
    }
    return clusters_page(
        found,
        "rows.html",
        title=title or f"Clusters of {found.table.name or kind.rows_of(2)}",
        script=SCRIPTS,
        data=data,
        texts=texts,
        find_by=f"names or {kind.feature}s",
        facts=_facts(found),
        comparison=comparison,
        periods=data["periods"],
        later=None if over is None else over.later,
        changes=_changes(found),
        map_method=map_method,
        n_map=int(np.count_nonzero(found.labels[rows] >= 0)) if map_method else 0,
        n_page=len(rows),
        n_rows=n,
        n_clusters=found.n_clusters,
        fitted=found.fitted,
    )


def _columns(
    found: Clusters, rows: Array, classes: list[str], map: str, progress: Progress
) -> tuple[dict[str, Any], list[str], str | None]:
    """Return what the page knows of each of its rows, the features that decided, and how the map was made."""
    table, labels, filled = found.table, found.labels[rows], found.labels[rows] >= 0
    length, texts = ALL_TEXTS // max(len(rows), 1), texts_of(found)
    lengths = np.asarray(table.lengths if hasattr(table, "lengths") else table.X.sum(axis=1)).ravel()
    columns: dict[str, Any] = {
        "ids": pack_texts(str(table.rows[i]) for i in rows),
        "texts": pack_texts("" if texts is None else texts[i][:length] for i in rows),
        "cluster": base64_array(labels, "<i2"),
        "runner_up": base64_array(found.runners_up[rows], "<i2"),
        "sure": base64_array((found.margins if found.calibration is None else found.confidence)[rows], "<f4"),
        "surprise": base64_array(found.surprise[rows], "<f4"),
        "length": base64_array(lengths[rows], "<f4"),
        "class": class_codes(found, rows, classes, "<i2"),
        "group": group_codes(found, rows),
        "date": None,
        "period": None if found.over_time is None else base64_array(found.over_time.bins[rows], "<i4"),
        "places": None,
        "deciding": None,
    }
    if table.dates is not None:
        days = np.where(np.isnat(table.dates), np.datetime64("0001-01-01"), table.dates)[rows]
        columns["date"] = base64_array(days.astype("datetime64[D]").astype(np.int64), "<i4")
    if not filled.any():
        return columns, [], None
    inside = np.cumsum(found.templates >= 0) - 1  # row of the counts
    X = csr_array(take_rows(found.counts, inside[rows[filled]]))
    method = None
    if map != "none":
        places, method = map_of_rows(X, progress, quick=map == "quick")
        columns["places"] = code_places(places)
    C, typical = to_host(found.model.cluster_centers_), float(np.median(X.sum(axis=1)))
    clusters = np.arange(len(C)) if found.model.clusters_ is None else found.model.clusters_
    templates = found.model.divergence_.linearised(C, typical)
    columns["deciding"], used = _deciding(X, labels[filled], clusters, *templates)
    return columns, [str(found.features[j]) for j in used], method


def texts_of(found: Clusters) -> Sequence[str] | None:
    """Return the beginnings of the documents; None for other rows, and for documents whose texts are left out."""
    texts: Sequence[str] = getattr(found.table, "excerpts", ())
    return texts if len(texts) else None


def _deciding(
    X: csr_array, labels: Array, clusters: Array, templates: FloatArray, offsets: FloatArray | None = None
) -> tuple[dict[str, str], Array]:
    """Find the runner-up of each row, and the features that decided against it. → columns, the features that they use

    A row belongs to the cluster with the largest ``X @ templates.T + offsets``, where ``clusters`` are those of the
    templates. With x the count of a feature, and b the templates, it contributes x (b_own − b_runner-up): positive for
    the own cluster.
    """
    B = np.maximum(templates, LEAST)
    parts = []
    for start in range(0, X.shape[0], BATCH):
        block = X[start : start + BATCH]
        scores = block @ B.T + (0.0 if offsets is None else offsets)
        same = clusters == labels[start : start + block.shape[0], None]
        own = np.where(same, scores, -np.inf).argmax(axis=1)
        others = np.where(same | (clusters < 0), -np.inf, scores)
        runner = np.where(np.isneginf(others).all(axis=1), -1, others.argmax(axis=1))
        row = np.repeat(np.arange(len(own)), np.diff(block.indptr))
        value = block.data * (B[own[row], block.indices] - B[runner[row], block.indices])
        order = np.lexsort((-np.abs(value), row))
        rank = np.arange(len(order)) - block.indptr[row]  # rows keep their places in this order
        kept = order[(rank < DECIDING) & (value[order] != 0)]
        parts.append(
            (
                np.append(clusters, -1)[runner],
                block.indices[kept],
                value[kept],
                np.bincount(row[kept], minlength=len(own)),
            )
        )
    runners, words, contributions, many = map(np.concatenate, zip(*parts, strict=True))
    largest, owner = np.zeros(len(many)), np.repeat(np.arange(len(many)), many)
    np.maximum.at(largest, owner, np.abs(contributions))
    used, places = np.unique(words, return_inverse=True)
    columns = {
        "runner_up": base64_array(runners, "<i2"),
        "starts": base64_array(np.concatenate([[0], np.cumsum(many)]), "<u4"),
        "words": base64_array(places, "<u4"),
        "contributions": base64_array(np.rint(127 * divide(contributions, largest[owner])), "<i1"),
        "largest": base64_array(largest, "<f4"),
    }
    return columns, used


def map_of_rows(X: csr_array, progress: Progress, *, quick: bool = False) -> tuple[FloatArray, str]:
    """Place rows of counts in the plane so that similar ones are close, for people to look at. → (n, 2), how

    Counts → log-tf-idf of unit length → the first 50 singular vectors (latent semantic analysis) → t-SNE, if openTSNE
    is installed (see :func:`onmf.plot.place_rows`); otherwise, the two most variable of these vectors. Clusters are
    never computed from it.
    """
    cores = available_cores()
    progress("Drawing the map", None)
    with threadpool_limits(cores):
        weights = csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(X.astype(np.float64)))
        kept = max(1, min(COMPONENTS, min(weights.shape) - 1))
        U, s, _ = randomized_svd(weights, kept, n_oversamples=EXTRA, n_iter=4, random_state=0)
    components = U * s
    components -= components.mean(axis=0)  # the first vector is nearly the mean of all rows
    components = components[:, np.argsort(-components.var(axis=0), kind="stable")]
    source = "singular vectors of log-tf-idf"
    if find_spec("openTSNE") is None:
        return first_two(components), f"the first two {source}"
    return place_rows(
        components,
        source,
        quick=quick,
        n_threads=cores,
        progress=lambda name, share: progress("Drawing the map", share),
        extra="report",
    )


def _changes(found: Clusters) -> list[tuple[str, list[Change], list[Change]]]:
    """The features that rose and those that fell, in all rows and in each cluster in which there are some."""
    changes = [] if found.over_time is None else found.over_time.changes
    named: dict[int | None, str] = {None: f"All {found.kind.rows_of(2)}"}
    named |= enumerate(f"{k}: {name}" for k, name in zip(found.shown_numbers, found.names, strict=True))
    told = []
    for cluster in dict.fromkeys(change.cluster for change in changes):
        inside = [change for change in changes if change.cluster == cluster]
        rose, fell = ([change for change in inside if (change.z > 0) == up][:CHANGED] for up in (True, False))
        told.append((named[cluster], rose, fell))
    return told


def _facts(found: Clusters) -> list[tuple[str, str]]:
    kind, model = found.kind, found.model
    return [
        (f"{kind.row}s".capitalize(), f"{len(found.labels):,}"),
        (f"{kind.feature}s".capitalize(), f"{len(found.features):,}"),
        ("Clusters", f"{found.n_clusters:,}"),
        *([] if found.how else [("Iterations", f"{model.n_iter_:,}")]),
        ("Objective", f"{model.clustering_.objective:,.4g}"),
        *(found.comparison.facts() if found.comparison else []),
        *([] if model.agreement_ is None else [("Agreement of runs", f"{model.agreement_.overall:.1%}")]),
    ]


def tree_of_clusters(found: Clusters) -> dict[str, Any]:
    """Return the clusters and their merges as the scripts read them.

    ``nodes`` are the clusters of the model, then the cluster that each merge makes; ``pairs`` the nodes of each merge;
    ``costs`` how much each raises the objective; ``lost`` the share of the information that is lost after each. Each
    node has the share of halves that find it, if this is known.
    """
    k = found.n_clusters
    sums = found.cluster_sums
    tree = merge_clusters(sums)
    lost = np.cumsum(tree.costs)
    numbering = found.shown_numbers
    tops = zip(found.distinctive(FEATURES), found.frequent(FEATURES), found.palette, strict=True)
    nodes: list[dict[str, Any]] = [
        {"number": str(numbering[i]), **_described(words), "name": found.names[i], "size": int(found.sizes[i])}
        | {"colour": colour, "frequent": frequent}
        for i, (words, frequent, colour) in enumerate(tops)
    ]
    whole, merged, leaves = sums.sum(axis=0), list(sums), [[i] for i in range(k)]
    for pair in tree.pairs:
        larger, smaller = sorted(pair, key=lambda node: -nodes[node]["size"])
        merged.append(merged[larger] + merged[smaller])
        leaves.append(leaves[larger] + leaves[smaller])
        shown = [str(numbering[leaf]) for leaf in leaves[-1][:NUMBERED]]
        words = _top(distinctiveness(np.stack([merged[-1], whole]), np.array([0.0, 1.0]))[0], found.features)
        node = {
            "number": "+".join([*shown, "…"] if len(leaves[-1]) > NUMBERED else shown),
            "size": nodes[larger]["size"] + nodes[smaller]["size"],
            "colour": nodes[larger]["colour"],
            "frequent": list(_top(merged[-1], found.features)),
        }
        nodes.append(node | _described(words))
    unions = np.array([np.isin(np.arange(k), own) for own in leaves])
    for described, share in zip(nodes, found.finding(unions).tolist(), strict=True):
        described["found"] = share if np.isfinite(share) else None
    return {
        "nodes": nodes,
        "pairs": tree.pairs,
        "costs": tree.costs.round(3),
        "lost": (lost / lost[-1] if len(lost) and lost[-1] > 0 else lost).round(6),
    }


def _described(words: dict[str, float]) -> dict[str, Any]:
    """Return the name of a cluster, and its words with the widths of their bars, in percent."""
    largest = max((abs(weight) for weight in words.values()), default=1.0)
    return {
        "name": names_from_features([words])[0] if words else "nothing distinctive",
        "words": [(word, round(100 * abs(weight) / largest)) for word, weight in words.items()],
    }


def _top(weights: FloatArray, names: Sequence[str]) -> dict[str, float]:
    """Return the names of the largest weights above zero, with their weights."""
    order: Array = np.argsort(-weights, kind="stable")[:FEATURES]
    return {str(names[j]): float(weights[j]) for j in order if weights[j] > 1e-12}
