"""Empty clusters: each starts again from the row that fits worst."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onmf.backend import Steps, StepSums, to_host
from onmf.data import Data, Part
from onmf.divergence import FloatArray

from .starts.rows import rows_at

LARGEST_LOSS = 1e200
"""Stands for an infinite loss of a row, so that losses can be subtracted."""

NOISE = 1e-10
"""Loss of a row, in units of the terms it is computed from, below which it is rounding."""


class BadRow(NamedTuple):
    """A row with a large loss. Tuples are compared in order, so the smallest is the row that fits worst."""

    minus_loss: float
    row: int
    cluster: int
    weighted_loss: float


class WorstRows(NamedTuple):
    """The losses of a part by cluster, and the rows of largest loss in each."""

    totals: FloatArray
    rows: list[BadRow]


def refill(data: Data, steps: Steps, step: StepSums, tried: set[int]) -> bool:
    """Give each empty cluster another centroid; True if that can change the next assignment.

    It starts again from the row of largest loss in the cluster of largest loss. Losses are those under the unsmoothed
    centroids, so that a row on its centroid has none. Each row is ``tried`` once, so that this ends. If no row has a
    loss, the cluster takes the centroid of the first filled one: it ties with that and gets nothing.
    """
    empty, W = step.empty, steps.centroids
    parts: list[WorstRows] = data.map(worst_rows, to_host(W).copy(), sorted(tried), int(np.count_nonzero(empty)))
    by_cluster = sum(part.totals for part in parts)
    rows = [row for part in parts for row in part.rows]
    filled = np.flatnonzero(~empty)
    changed = False
    for c in np.flatnonzero(empty):
        worst = min((row for row in rows if row.cluster == np.argmax(by_cluster)), default=None)
        if np.any(by_cluster) and worst is not None:
            rows.remove(worst)
            cluster = worst.cluster
            steps.put(c, rows_at(data, [worst.row])[0])
            rest = max(by_cluster[cluster] - worst.weighted_loss, 0.0)  # type: ignore[index]
            by_cluster[cluster] = rest if any(row.cluster == cluster for row in rows) else 0.0  # type: ignore[index]
            tried.add(worst.row)
            changed = True
        elif len(filled) and not (W[c] == W[filled[0]]).all():
            steps.put(c, W[filled[0]])
            changed = True  # rows of weight 0 may lie in this cluster, and rows of the other if it comes later
    return changed


def worst_rows(part: Part, W: FloatArray, tried: list[int], number: int) -> WorstRows:
    """The rows of largest loss under the unsmoothed centroids, ``number`` of each cluster of the last step."""
    block = part.block
    divergence = block.divergence.unsmoothed()
    _, scales, losses = block.assign(block.prepare(W, divergence))
    rounding = to_host(NOISE * (np.abs(block.constants) + scales * block.divergence.weight(scales, block.terms)))
    losses, labels = to_host(losses), to_host(part.run.collect()[0])
    weights = block.host_weights
    losses = np.where((losses > rounding) & (weights > 0), np.minimum(losses, LARGEST_LOSS), 0.0)
    own = np.asarray(tried, dtype=np.int64) - part.first
    losses[own[(own >= 0) & (own < len(losses))]] = 0.0
    worst = []
    for k in range(len(W)):
        rows = np.flatnonzero((labels == k) & (losses > 0))
        for row in rows[np.argsort(-losses[rows], kind="stable")[:number]]:
            loss = float(losses[row])
            worst.append(BadRow(-loss, part.first + int(row), k, loss * float(weights[row])))
    totals: FloatArray = np.bincount(labels, weights=weights * losses, minlength=len(W)).astype(np.float64, copy=False)
    return WorstRows(totals, worst)
