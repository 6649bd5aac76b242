"""What there is to say about each row of a part: functions for :meth:`Data.map_rows` and :meth:`Data.total`.

They compute where the backend does, on the host or on a GPU; centroids and norms may come from either.
"""

from __future__ import annotations

import numpy as np

from onmf.backend import Block, CentroidEntries, CurvedBlock, to_host
from onmf.data import Part
from onmf.divergence import Array, Divergence, FloatArray, RowTerms, divide

MIN_SMOOTHING = 1e-10
"""Least smoothing under which features that no row of a cluster has yet may occur, in models without smoothing too."""

ROWS_AT_A_TIME = 1 << 18
"""Rows whose margins are computed together, which bounds the memory of intermediate results."""


def last_labels(part: Part, norms: FloatArray) -> tuple[Array, FloatArray]:
    """Labels of the last step, and scales in the gauge H Hᵀ = I. → 2 × (n,)"""
    to_device = part.block.backend.to_device
    labels, scales = map(to_device, part.run.collect())
    return labels, scales / to_device(norms)[labels]


def best_labels(part: Part, centroids: FloatArray) -> tuple[Array]:
    """The cluster of each row of a part. → (n,)"""
    return (part.run.labels_from(centroids),)


def labels_and_scales(part: Part, centroids: FloatArray) -> tuple[Array, FloatArray]:
    """Cluster of each row of a part, and its scale for centroids of this size. → 2 × (n,)"""
    block = part.block
    labels, scales, _ = block.assign(block.prepare(centroids))
    sizes = block.backend.to_device(block.divergence.size(centroids))
    return labels, divide(scales, sizes[labels])


def margins_of(part: Part, centroids: FloatArray, labels: Array) -> tuple[FloatArray]:
    """How much worse the best other cluster of each row is than its own, in units of the row. → (n,)"""
    block = part.block
    part.run.free_workspace()  # the templates of the last step and the sums
    own, following = block.own_and_next(block.prepare(centroids), labels)
    return (margins(block.divergence, own, following, block.terms),)


def labels_scales_and_margins(part: Part, centroids: FloatArray) -> tuple[Array, FloatArray, FloatArray]:
    """Cluster, scale and margin of each row of a part. → 3 × (n,)"""
    labels, scales = labels_and_scales(part, centroids)
    return labels, scales, *margins_of(part, centroids, labels)


def losses_of(block: Block, centroids: FloatArray, divergence: Divergence | None = None) -> FloatArray:
    """The loss of each row under each centroid, up to a common value for rows with infinite losses only. → (n, k)

    Another ``divergence`` than the block's own may differ from it only in its smoothing.
    """
    scores = block.scores(block.prepare(centroids, divergence))
    losses = np.empty_like(scores)
    for k in range(scores.shape[1]):
        losses[:, k] = block.losses(scores[:, k])
    losses[np.isposinf(losses).all(axis=1)] = 0.0  # no template can explain the row: all are as good
    return losses


def probabilities(part: Part, centroids: FloatArray, temperature: float) -> tuple[FloatArray]:
    """The probability of each cluster for each row of a part. → (n, k)"""
    losses = losses_of(part.block, centroids)
    chances = np.exp((losses.min(axis=1, keepdims=True) - losses) / temperature)
    return (chances / chances.sum(axis=1, keepdims=True),)


def own_loss(part: Part, centroids: FloatArray) -> float:
    """Σ w·loss under centroids in the gauge, with the labels and scales of the last step, less the rows' constants.

    For divergences without closed forms.
    """
    block = part.block
    assert isinstance(block, CurvedBlock)
    labels, scales = part.run.collect()
    return float(block.evaluate(labels, scales, CentroidEntries.of(centroids))[0].sum())


def total_loss(part: Part, centroids: FloatArray) -> FloatArray:
    """Σ w·loss under these centroids, without smoothing, and Σ w over a part. → (2,)"""
    block = part.block
    losses = to_host(block.assign(block.prepare(centroids, block.divergence.unsmoothed())).losses)
    weights = block.host_weights
    return np.array([np.sum(weights * losses), np.sum(weights)])


def margins(divergence: Divergence, own: FloatArray, following: FloatArray, terms: RowTerms) -> FloatArray:
    """How much worse the best other cluster of each row is than its own, from the two scores, in units of the row.

    Negative if the other one is better, which a local search or an early stop can leave; 0 for a row that holds
    nothing. Without smoothing a cluster can cost infinity: then the margin is infinite if no other cluster can explain
    the row, and minus infinity if its own cannot (a row of weight 0, which does not shape its centroid). It is also
    infinite with one cluster. → (n,)
    """
    out = np.empty_like(own)
    for start in range(0, len(own), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        part = {name: term if np.ndim(term) == 0 else term[rows] for name, term in terms.items()}
        gains = [divergence.gain(score, divergence.scale(score, part), part) for score in (own[rows], following[rows])]
        sizes = divergence.row_size(part)
        with np.errstate(invalid="ignore"):  # two infinite costs: no difference
            difference = gains[0] - gains[1]
        difference = np.where((following[rows] == -np.inf) & (own[rows] > -np.inf), np.inf, difference)
        out[rows] = np.where(sizes > 0, divide(np.where(np.isnan(difference), 0.0, difference), sizes), 0.0)
    return out
