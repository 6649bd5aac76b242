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
from .starts import Seeds

MAX_ROUNDS = 20
"""Most turns. Three or four are usual."""

THETA_TOL = 0.01
"""Relative change of θ at which the turns end."""


def fit_estimating(
    data: Data,
    again: Callable[..., Intake],
    settings: Settings,
    listener: Listener,
    compute: Compute,
) -> tuple[Clustering, Divergence]:
    """Fit; if the divergence has a θ to be estimated, estimate it and fit again from these clusters, until it stays.

    ``again(divergence=...)`` prepares the same rows for another divergence. ``compute`` fits, as :func:`onmf.fit.fit`
    does. The first fit uses the settings and the listener; the others are a single run. → the last fit, its divergence
    """
    divergence = data.divergence
    if isinstance(divergence, NegativeBinomial) and estimates(divergence) and divergence.kernel_functions is None:
        raise ValueError(
            "theta='auto' is estimated by the likelihood of the negative binomial, and "
            f"{type(divergence).__name__} has functions of its own: give theta a number."
        )
    clustering = compute(data, settings, listener)
    if not estimates(divergence):
        return clustering, divergence
    assert isinstance(divergence, NegativeBinomial)
    divergence = divergence.changed(theta=divergence.parameter)
    for _ in range(MAX_ROUNDS):
        theta = estimate_theta(data, clustering.centroids)
        if abs(theta - divergence.parameter) <= THETA_TOL * divergence.parameter:
            break
        divergence = divergence.changed(theta=theta)
        data = again(divergence=divergence).data
        seeds = Seeds(to_host(clustering.centroids), clustering.init_rows, clustering.agreement, given=True)
        clustering = compute(data, replace(settings, init=seeds, seeds=settings.seeds[:1]), Listener())
    return clustering, divergence


def estimates(divergence: Divergence) -> bool:
    """Whether a parameter of the divergence is to be estimated."""
    return isinstance(divergence, NegativeBinomial) and isinstance(divergence.theta, str)


def with_estimate(divergence: Divergence, fitted: Divergence | None) -> Divergence:
    """The divergence for a batch: with the θ of an earlier fit if it is to be estimated."""
    if not estimates(divergence):
        return divergence
    if not isinstance(fitted, NegativeBinomial):
        raise ValueError(
            f"{divergence!r} is estimated from all rows, and partial_fit sees a batch at a time: give its parameter a "
            "number, or call fit first."
        )
    return divergence.changed(theta=fitted.theta)


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
    changed = replace(block, divergence=block.divergence.changed(theta=theta))
    labels, scales = part.run.collect()
    loss = float(changed.evaluate(labels, scales, CentroidEntries.of(C))[0].sum())
    terms = block.host_term(lambda x, j: gammaln(x + theta) - gammaln(theta))
    return float(np.sum(block.host_weights * terms)) - loss
