"""The clusters of a page of documents, and all clusters that arise when they are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.fit.result import distinctiveness
from onmf.hierarchy import merge_clusters
from onmf.naming import numbers
from onmf.palette import distinct_colours
from onmf.text import DocumentClusters
from onmf.text.kind import DOCUMENTS
from onmf.text.views import NOBODY

from .document_words import sum_clusters

WORDS = 10
"""Words of each cluster."""

NAMED = 3
"""Words in the name of a cluster."""

NUMBERED = 4
"""Clusters in the number of a merged cluster, such as 3+7+12."""

NAMELESS = "no distinctive words"


def tree_of_clusters(found: DocumentClusters) -> dict[str, Any]:
    """Return the clusters and their merges as the scripts read them.

    Returns
    -------
    dict
        ``nodes``: the clusters of the model, then the cluster that each merge makes, with number, name, words, size and
        colour. ``pairs``: the nodes of each merge. ``costs``: how much each merge raises the objective. ``lost``: the
        share of the information about the words that is lost after each merge.
    """
    k, sums = found.n_clusters, _sums(found)
    tree = merge_clusters(sums)
    lost = np.cumsum(tree.costs)
    numbering = numbers(DOCUMENTS, k)
    nodes = _leaves(found, numbering)
    if k > 1:
        merged, sizes = np.zeros((2 * k - 1, sums.shape[1])), np.zeros(2 * k - 1, dtype=np.int64)
        merged[:k], sizes[:k] = sums, found.sizes
        leaves: list[list[int]] = [[i] for i in range(k)]
        for t, (i, j) in enumerate(tree.pairs):
            merged[k + t], sizes[k + t] = merged[i] + merged[j], sizes[i] + sizes[j]
            larger, smaller = (i, j) if sizes[i] >= sizes[j] else (j, i)
            leaves.append(leaves[larger] + leaves[smaller])
            number, colour = _number(leaves[-1], numbering), nodes[larger]["colour"]
            nodes.append({"number": number, "size": int(sizes[k + t]), "colour": colour})
        whole = sums.sum(axis=0, keepdims=True)
        for node, row in zip(nodes[k:], merged[k:], strict=True):
            words = _top(distinctiveness(np.concatenate([row[None], whole]), np.array([0.0, 1.0]))[0])
            node |= _described({str(found.words[j]): weight for j, weight in words})
            node["frequent"] = [str(found.words[j]) for j, _ in _top(row)]
    return {
        "nodes": nodes,
        "pairs": tree.pairs,
        "costs": tree.costs.round(3),
        "lost": (lost / lost[-1] if len(lost) and lost[-1] > 0 else lost).round(6),
    }


def _sums(found: DocumentClusters) -> FloatArray:
    """Return the sum of the counts of each cluster. Without counts, centroids with the totals of the clusters."""
    inside = found.clusters != NOBODY
    labels = found.clusters[inside]
    if found.counts is not None:
        return sum_clusters(found.counts, labels, found.n_clusters)
    totals = np.bincount(labels, weights=found.lengths[inside], minlength=found.n_clusters)
    centroids = np.maximum(found.model.cluster_centers_, 0.0)
    return centroids / np.maximum(centroids.sum(axis=1, keepdims=True), 1e-300) * totals[:, None]


def _leaves(found: DocumentClusters, numbering: Sequence[int]) -> list[dict[str, Any]]:
    rows = zip(numbering, found.names, found.distinctive(WORDS), found.frequent(WORDS), found.sizes,
               distinct_colours(found.n_clusters), strict=True)  # fmt: skip
    return [
        {"number": str(number)}
        | _described(words)
        | {"name": name, "size": int(size), "colour": colour, "frequent": frequent}
        for number, name, words, frequent, size, colour in rows
    ]


def _described(words: dict[str, float]) -> dict[str, Any]:
    """Return the name of a cluster, and its words with the widths of their bars, in percent."""
    largest = max((abs(weight) for weight in words.values()), default=1.0)
    return {
        "name": ", ".join(list(words)[:NAMED]) or NAMELESS,
        "words": [(word, round(100 * abs(weight) / largest)) for word, weight in words.items()],
    }


def _top(weights: FloatArray) -> list[tuple[int, float]]:
    """Return the columns of the largest weights above zero, with their weights."""
    order: Array = np.argsort(-weights, kind="stable")[:WORDS]
    return [(int(j), float(weights[j])) for j in order if weights[j] > 1e-12]


def _number(leaves: list[int], numbering: Sequence[int]) -> str:
    return "+".join(str(numbering[leaf]) for leaf in leaves[:NUMBERED]) + ("+…" if len(leaves) > NUMBERED else "")
