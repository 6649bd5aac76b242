"""The overdispersion of counts, estimated by maximum likelihood within the clusters.

    log P(x | μ, θ) = log Γ(x + θ) − log Γ(θ) − log x! + x log(μ / (μ + θ)) − θ log(1 + μ / θ)

The first two terms vanish for x = 0, and the last two are minus the loss of the negative binomial, so an evaluation
costs as much as one of the centroids. Clusters and θ take turns: a fit with one θ, then the best θ for its clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from onmf.backend import CentroidEntries, CurvedBlock, to_host
from onmf.data import Data, Part
from onmf.data.intake import Intake
from onmf.divergence import THETAS, Divergence, FloatArray, NegativeBinomial

from .result import Clustering
from .settings import Listener, Settings
from .solve import Compute

ROUNDS = 20
"""Most turns. Three or four are usual."""

SAME = 0.01
"""Relative change of θ at which the turns end."""


def fit_estimating(
    data: Data,
    again: Callable[..., Intake],
    settings: Settings,
    listener: Listener,
    compute: Compute,
) -> tuple[Clustering, Divergence]:
    """Fit; if the divergence has a θ to be estimated, estimate it and fit again from these clusters, until it stays.

    Parameters
    ----------
    data : Data
        The rows.
    again : callable
        Takes in the same rows for another divergence.
    settings, listener
        As in :func:`onmf.fit.fit`. The first fit uses them; the others are a single run.
    compute : callable
        Fits, as :func:`onmf.fit.fit` does.

    Returns
    -------
    clustering : Clustering
        The last fit.
    divergence : Divergence
        The divergence of that fit.
    """
    divergence, clustering = data.divergence, compute(data, settings, listener)
    if not isinstance(divergence, NegativeBinomial) or not divergence.estimates:
        return clustering, divergence
    divergence = divergence.with_theta(divergence.parameter)
    for _ in range(ROUNDS):
        theta = estimate_theta(data, clustering.centroids)
        if abs(theta - divergence.parameter) <= SAME * divergence.parameter:
            break
        divergence = divergence.with_theta(theta)
        data = again(divergence=divergence).data
        single = replace(settings, init=to_host(clustering.centroids), seeds=settings.seeds[:1])
        clustering = compute(data, single, Listener())
    return clustering, divergence


def estimate_theta(data: Data, centroids: FloatArray) -> float:
    """The most likely θ for rows that are assigned to these centroids."""
    data.steps(to_host(centroids).copy()).next()
    C = data.divergence.normalise(to_host(centroids))
    low, high = np.log(THETAS)

    def loss(log_theta: float) -> float:
        return -float(data.total(log_likelihood, C, float(np.exp(log_theta))))

    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x))


def log_likelihood(part: Part, C: FloatArray, theta: float) -> float:
    """Σ w log P of the rows of a part with their labels and scales, up to a constant."""
    block = part.block
    assert isinstance(block, CurvedBlock)
    assert isinstance(block.divergence, NegativeBinomial)
    changed = replace(block, divergence=block.divergence.with_theta(theta))
    labels, scales = part.run.collect()
    loss = float(changed.evaluate(labels, scales, CentroidEntries.of(C))[0].sum())
    terms = block.host_term(lambda x: gammaln(x + theta) - gammaln(theta))
    return float(np.sum(block.host_weights * terms)) - loss
