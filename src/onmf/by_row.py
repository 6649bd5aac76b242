"""What there is to say of each row of a part: functions for :meth:`Engine.by_row` and :meth:`Engine.total`.

They compute where the engine does, on the host or on a GPU; centroids and norms come from either.
"""

from __future__ import annotations

import numpy as np

from onmf.divergence import Array, FloatArray, divide
from onmf.engine import Engine, Held, to_host
from onmf.result import margins


def last_labels(engine: Engine, part: Held, norms: FloatArray) -> tuple[Array, FloatArray]:
    """Labels of the last step, and scales in the gauge H Hᵀ = I. → 2 × (n,)"""
    labels, scales = map(engine.bring, engine.collect(part))
    return labels, scales / engine.bring(norms)[labels]


def best_labels(engine: Engine, part: Held, centroids: FloatArray) -> tuple[Array]:
    """The cluster of each row of a part. → (n,)"""
    return (engine.assign(part, engine.prepare(part, centroids, part.divergence.templates)).labels,)


def labels_and_scales(engine: Engine, part: Held, centroids: FloatArray) -> tuple[Array, FloatArray]:
    """Cluster of each row of a part, and its scale for centroids of this size. → 2 × (n,)"""
    labels, scales, _ = engine.assign(part, engine.prepare(part, centroids, part.divergence.templates))
    sizes = engine.bring(part.divergence.size(centroids))
    return labels, divide(scales, sizes[labels])


def margins_of(engine: Engine, part: Held, centroids: FloatArray, labels: Array) -> tuple[FloatArray]:
    """How much worse the best other cluster of each row is than its own, in units of the row. → (n,)"""
    divergence = part.divergence
    templates = engine.prepare(part, centroids, divergence.templates)
    own, following = engine.own_and_next(part.data, templates, labels)
    return (margins(divergence, own, following, part.terms),)


def assigned(engine: Engine, part: Held, centroids: FloatArray) -> tuple[Array, FloatArray, FloatArray]:
    """Cluster, scale and margin of each row of a part. → 3 × (n,)"""
    labels, scales = labels_and_scales(engine, part, centroids)
    return labels, scales, *margins_of(engine, part, centroids, labels)


def losses_of(engine: Engine, part: Held, templates: FloatArray) -> FloatArray:
    """The loss of each row under each template, up to what all of them share where that is infinite. → (n, k)"""
    divergence = part.divergence
    scores = engine.scores(part.data, templates)
    losses = np.empty_like(scores)
    for k in range(scores.shape[1]):
        gains = divergence.gain(scores[:, k], divergence.scale(scores[:, k], part.terms), part.terms)
        losses[:, k] = part.constants - gains
    losses[np.isposinf(losses).all(axis=1)] = 0.0  # no template can explain the row: all are as good
    return losses


def probabilities(engine: Engine, part: Held, centroids: FloatArray, temperature: float) -> tuple[FloatArray]:
    """The probability of each cluster for each row of a part. → (n, k)"""
    losses = losses_of(engine, part, part.divergence.templates(engine.bring(centroids)))
    chances = np.exp((losses.min(axis=1, keepdims=True) - losses) / temperature)
    return (chances / chances.sum(axis=1, keepdims=True),)


def total_loss(engine: Engine, part: Held, centroids: FloatArray) -> FloatArray:
    """Σ w·loss under these centroids and Σ w over a part. → (2,)"""
    templates = engine.prepare(part, centroids, part.divergence.unsmoothed().templates)
    losses = to_host(engine.assign(part, templates).losses)
    weights = np.ones(len(losses)) if part.weights is None else part.weights
    return np.array([np.sum(weights * losses), np.sum(weights)])
