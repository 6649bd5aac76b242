"""Counts: their logarithms, and their scores under the negative binomial at given scales, with few logarithms.

    score_ik = −Σ_j x_j log(1 + d_kj / a_i) − Ψ_k(log a_i),   d = θ / c

Ψ comes as in :mod:`onmf.kernels.bregman`. Small counts are exponents: the logarithm of a product of factors 1 + d / a
replaces one for each factor.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from .bregman import logarithm, logarithm_of_one_plus, subtract_series
from .jit import jit, jit_dividing

FACTORS_PER_LOG = 12
"""Factors after which the logarithm of a product is taken."""

MAX_EXPONENT = 8
"""Counts up to this are exponents."""

MAX_FACTOR = 1e12
"""Largest factor that is multiplied. Products of 21 of them stay inside float64."""


@jit_dividing
def counts_at_sizes(
    indptr: Any,  # IN (n + 1,) entries as in onmf.kernels.hartigan
    indices: Any,  # IN
    data: Any,  # IN
    dense: bool,  # IN
    D: Any,  # IN (p, k) θ / c
    largest: float,  # IN largest entry of D
    coefficients: Any,  # IN (panels, m, k) of Ψ
    width: float,  # IN
    first_panel: int,  # IN
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    scales: Any,  # IN (n,)
    scores: Any,  # OUT (stop − start, k)
) -> None:
    """Scores of rows start to stop at given scales."""
    k = D.shape[1]
    product = np.empty(k)
    for i in range(start, stop):
        out, a = scores[i - start], scales[i]
        for c in range(k):
            out[c], product[c] = 0.0, 1.0
        if not a > 0.0:
            continue
        subtract_series(coefficients, log(a), width, first_panel, out)
        shift, factors, waiting, inverse = indptr[i] if dense else 0, 0, -1, 1.0 / a
        usual = largest * inverse < MAX_FACTOR
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            if x == 0.0:
                continue
            j = np.uintp(indices[e - shift])
            if x > MAX_EXPONENT or x != np.rint(x) or not usual:
                subtract_logarithms(x, inverse, D[j], out)
                continue
            while x >= 2.0:
                multiply(inverse, D[j], D[j], product)
                x, factors = x - 2.0, factors + 2
            if x == 1.0 and waiting < 0:
                waiting = e
            elif x == 1.0:
                multiply(inverse, D[np.uintp(indices[waiting - shift])], D[j], product)
                waiting, factors = -1, factors + 2
            if factors >= FACTORS_PER_LOG:
                take_logarithms(out, product)
                factors = 0
        if waiting >= 0:
            subtract_logarithms(1.0, inverse, D[np.uintp(indices[waiting - shift])], out)
        if factors > 0:
            take_logarithms(out, product)


@jit_dividing
def multiply(inverse: float, one: Any, other: Any, product: Any) -> None:
    """Multiply the product of each cluster with the factors of two features, or of one twice."""
    for c in range(len(product)):
        product[c] *= (1.0 + inverse * one[c]) * (1.0 + inverse * other[c])


@jit_dividing
def take_logarithms(scores: Any, product: Any) -> None:
    """Subtract the logarithm of each product from its score, and begin new products."""
    for c in range(len(product)):
        scores[c] -= logarithm(product[c])
        product[c] = 1.0


@jit_dividing
def subtract_logarithms(x: float, inverse: float, d: Any, scores: Any) -> None:
    """Subtract x log(1 + d / a) from the score of each cluster."""
    for c in range(len(scores)):
        scores[c] -= x * logarithm_of_one_plus(inverse * d[c])


TABLED_COUNTS = 64
"""Counts below this are looked up."""


@jit
def scaled_logs(
    indptr: Any,  # IN (n + 1,)
    data: Any,  # IN (nnz,) counts
    unit: float,  # sum to which each row is scaled
    logs: Any,  # OUT (nnz,) float64
) -> None:
    """log(1 + unit · x / s) of each entry x, with s the sum of its row. Those of small counts come from a table."""
    known = np.empty(TABLED_COUNTS)
    for i in range(len(indptr) - 1):
        start, stop = indptr[i], indptr[i + 1]
        s = 0.0
        for e in range(start, stop):
            s += np.float64(data[e])
        known[:] = -1.0
        for e in range(start, stop):
            x = np.float64(data[e])
            c = int(min(x, TABLED_COUNTS - 1))
            if c == x and known[c] >= 0.0:
                logs[e] = known[c]
                continue
            logs[e] = np.log1p(unit * (x / s)) if x > 0.0 else 0.0
            if c == x:
                known[c] = logs[e]
