"""Scores under the negative binomial at given scales, with few logarithms.

    score_ik = Σ_j x_j (log a_i + log c_kj − log(a_i c_kj + θ)) − Ψ_k(log a_i)

Ψ comes as in :mod:`onmf.kernels.bregman`. Counts of one and two are exponents: the logarithm of a product of factors
a c + θ replaces one for each factor.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from .bregman import logarithm, panel_of
from .jit import jit_dividing as jit

FACTORS = 12
"""Factors of a product whose logarithm is taken; one more may come with the last."""

USUAL = 1e15
"""Largest scale at which factors are multiplied. Products of factors from 1e-3 to 1e15 stay inside float64."""


@jit
def counts_at_sizes(
    indptr: Any,  # IN (n + 1,) entries as in onmf.kernels.hartigan
    indices: Any,  # IN
    data: Any,  # IN
    dense: bool,  # IN
    CT: Any,  # IN (p, k) centroids
    logs: Any,  # IN (p, k) their logarithms
    coefficients: Any,  # IN (panels, m, k) of Ψ
    width: float,  # IN
    first_panel: int,  # IN
    theta: float,  # IN
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    scales: Any,  # IN (n,)
    scores: Any,  # OUT (stop − start, k)
) -> None:
    """Scores of rows start to stop at given scales."""
    panels, m, k = coefficients.shape
    product = np.empty(k)
    for i in range(start, stop):
        out, a = scores[i - start], scales[i]
        for c in range(k):
            out[c], product[c] = 0.0, 1.0
        if not a > 0.0:
            continue
        panel, tau = panel_of(log(a), width, first_panel, panels)
        before, now = 1.0, tau
        for q in range(m):
            row = coefficients[panel, q]
            for c in range(k):
                out[c] -= before * row[c]
            before, now = now, 2.0 * tau * now - before
        shift, factors, total = indptr[i] if dense else 0, 0, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            if x == 0.0:
                continue
            total += x
            j = np.uintp(indices[e - shift])
            if (x == 1.0 or x == 2.0) and a < USUAL:
                multiply(x, a, CT[j], logs[j], theta, out, product)
                factors += int(x)
                if factors >= FACTORS:
                    take_logarithms(out, product)
                    factors = 0
            else:
                add_logarithms(x, a, CT[j], logs[j], theta, out)
        if factors > 0:
            take_logarithms(out, product)
        common = total * log(a)
        for c in range(k):
            out[c] += common


@jit
def multiply(x: float, a: float, centroids: Any, logs: Any, theta: float, scores: Any, product: Any) -> None:
    """Add x log c to the score of each cluster, and multiply its product with (a c + θ)^x, x = 1 or 2."""
    if x == 1.0:
        for c in range(len(product)):
            scores[c] += logs[c]
            product[c] *= a * centroids[c] + theta
    else:
        for c in range(len(product)):
            factor = a * centroids[c] + theta
            scores[c] += 2.0 * logs[c]
            product[c] *= factor * factor


@jit
def take_logarithms(scores: Any, product: Any) -> None:
    """Subtract the logarithm of each product from its score, and begin new products."""
    for c in range(len(product)):
        scores[c] -= logarithm(product[c])
        product[c] = 1.0


@jit
def add_logarithms(x: float, a: float, centroids: Any, logs: Any, theta: float, scores: Any) -> None:
    """Add x (log c − log(a c + θ)) to the score of each cluster."""
    for c in range(len(scores)):
        scores[c] += x * (logs[c] - logarithm(a * centroids[c] + theta))
