"""Empty clusters: each starts again from the row that fits worst."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onmf.backend import Steps, StepSums, to_host
from onmf.data import Data, Part
from onmf.divergence import FloatArray

from .starts import rows_at

LARGEST_LOSS = 1e200
"""Stands for an infinite loss of a row, so that losses can be subtracted."""

NOISE = 1e-10
"""Loss of a row, in units of the terms it is computed from, below which it is rounding."""


class Copies(NamedTuple):
    """Equal rows of one cluster. Tuples compare in order: the smallest has the largest loss and then the first row."""

    minus_loss: float  # of one of them
    rows: list[int]  # indices in the whole
    cluster: int
    weighted: float  # sum of their losses, with sample weights
    projection: float  # on a random direction; equal rows have equal projections

    def is_copy_of(self, other: Copies) -> bool:
        """Whether these rows are equal to others, which may lie in another part."""
        return (self.minus_loss, self.cluster, self.projection) == (other.minus_loss, other.cluster, other.projection)


class WorstRows(NamedTuple):
    """The losses of a part by cluster, and the rows of largest loss in each."""

    totals: FloatArray
    groups: list[Copies]


def refill(data: Data, steps: Steps, step: StepSums, tried: set[int]) -> bool:
    """Give each empty cluster another centroid; True if that can change the next assignment.

    It starts again from the row of largest loss in the cluster of largest loss. Losses are those under the unsmoothed
    centroids, so that a row on its centroid has none. Each row is ``tried`` once, so that this ends. Copies of a row
    are tried together, because a row of weight 2 counts as two equal rows. If no row has a loss, the cluster takes the
    centroid of the first filled one: it ties with that and gets nothing.
    """
    empty, W = step.empty, steps.centroids
    parts: list[WorstRows] = data.map(worst_rows, to_host(W).copy(), sorted(tried), int(np.count_nonzero(empty)))
    by_cluster: FloatArray = np.sum([part.totals for part in parts], axis=0)
    groups = [group for part in parts for group in part.groups]
    filled = np.flatnonzero(~empty)
    changed = False
    for c in map(int, np.flatnonzero(empty)):
        worst = min((group for group in groups if group.cluster == np.argmax(by_cluster)), default=None)
        if by_cluster.any() and worst is not None:
            steps.put(c, data.divergence.initial_centroids(rows_at(data, worst.rows[:1]))[0])
            for copies in [group for group in groups if group.is_copy_of(worst)]:
                groups.remove(copies)
                by_cluster[copies.cluster] = max(by_cluster[copies.cluster] - copies.weighted, 0.0)
                tried.update(copies.rows)
            if all(group.cluster != worst.cluster for group in groups):
                by_cluster[worst.cluster] = 0.0
            changed = True
        elif len(filled) and not (W[c] == W[filled[0]]).all():
            steps.put(c, W[filled[0]])
            changed = True  # rows of weight 0 may lie in this cluster, and rows of the other if it comes later
    return changed


def worst_rows(part: Part, W: FloatArray, tried: list[int], number: int) -> WorstRows:
    """The rows of largest loss under the unsmoothed centroids, ``number`` of each cluster of the last step."""
    block = part.block
    _, scales, losses = block.assign(block.prepare(W, block.divergence.unsmoothed()))
    rounding = to_host(NOISE * (np.abs(block.constants) + scales * block.divergence.weight(scales, block.terms)))
    losses, labels = to_host(losses), to_host(part.run.collect()[0])
    weights = block.host_weights
    losses = np.where((losses > rounding) & (weights > 0), np.minimum(losses, LARGEST_LOSS), 0.0)
    own = np.asarray(tried, dtype=np.int64) - part.first
    losses[own[(own >= 0) & (own < len(losses))]] = 0.0
    projections = to_host(block.products(np.random.default_rng(0).random(W.shape[1:])))
    groups = []
    for k in range(len(W)):
        rows = np.flatnonzero((labels == k) & (losses > 0))
        for _ in range(number):
            if not len(rows):
                break
            worst = rows[np.argmax(losses[rows])]
            loss, projection = float(losses[worst]), float(projections[worst])
            copies = (losses[rows] == loss) & (projections[rows] == projection)
            same, rows = rows[copies], rows[~copies]
            weighted = float(loss * weights[same].sum())
            groups.append(Copies(-loss, (part.first + same).tolist(), k, weighted, projection))
    totals: FloatArray = np.bincount(labels, weights=weights * losses, minlength=len(W)).astype(np.float64, copy=False)
    return WorstRows(totals, groups)
