"""Divergences without closed forms, and counts: scores of rows and sums by label, entry by entry.

    score_ik = ⟨x_i, φ'(a_i c_k)⟩ − Ψ_k(log a_i),   Ψ_k(t) = Σ_j ψ(e^t c_kj),   ψ(μ) = μ φ'(μ) − φ(μ) + φ(0)

The first part needs the nonzeros of a row. The second is one function for each cluster, which comes as Chebyshev
coefficients on short panels of the logarithmic axis (:mod:`onmf.backend.curved`). So zeros cost nothing.

``phi`` says which function: a number is θ of the negative binomial, whose formulas are compiled into the kernels. A
pair of integers are the addresses of φ' and φ'' of any other, which the kernels call. ``axis`` has the coefficients of
Ψ, (panels, m, k), the width of a panel, and the number of the first one; entries are as in onmf.kernels.hartigan.

Counts at given scales need few logarithms under the negative binomial: with d = θ / c, the first part of the score is
−Σ_j x_j log(1 + d_kj / a_i). Small counts are exponents: the logarithm of a product of factors 1 + d / a replaces one
for each factor.
"""

from collections.abc import Callable
from functools import partial
from math import floor
from typing import Any

import numpy as np
from numba.core.types import Float
from numba.extending import overload

from .functions import exp, log, log1p, log1p_of_quotient, log_and
from .jit import call
from .jit import jit_dividing as jit

SCALE_TOL = 1e-13  # a step in log a below which the scale of a row is found
MAX_SCALE_STEPS = 60  # steps of the search for a scale. A few are enough; this many are as good as a bisection.
FACTORS_PER_LOG = 15  # factors after which the logarithm of a product is taken
MAX_EXPONENT = 8  # counts up to this are exponents
MAX_FACTOR = 1e12  # largest factor that is multiplied. Products of 24 of them stay inside float64.
TABLED_COUNTS = 64  # counts below this are looked up


# Kernels call these two names. Numba puts what the functions ``…_by_type`` return in their place.


def slope(mu: float, phi: Any) -> float:
    """φ'(μ)."""
    raise TypeError("slope is for compiled code: see slope_by_type.")


def moment(mu: float, phi: Any) -> float:
    """μ φ''(μ); 0 for μ = 0, where φ'' may be infinite."""
    raise TypeError("moment is for compiled code: see moment_by_type.")


# Not strict: the arguments have annotations, those of a lambda none. A division by zero gives infinity.
overload_dividing = partial(overload, strict=False, jit_options={"error_model": "numpy"})


@overload_dividing(slope)
def slope_by_type(mu: Any, phi: Any) -> Callable[..., float]:
    """The slope for this type of ``phi``."""
    if isinstance(phi, Float):
        return lambda mu, phi: -log1p_of_quotient(phi / mu)
    return lambda mu, phi: call(phi[0], mu)


@overload_dividing(moment)
def moment_by_type(mu: Any, phi: Any) -> Callable[..., float]:
    """The moment for this type of ``phi``."""
    if isinstance(phi, Float):
        return lambda mu, phi: phi / (mu + phi)
    return lambda mu, phi: mu * call(phi[1], mu) if mu > 0.0 else 0.0


@jit
def map_entries(address: int, x: Any, out: Any) -> None:
    """Write function(x) for each entry of an array, with the function at an address."""
    for i in range(len(x)):
        out[i] = call(address, x[i])


@jit
def add_slopes(x: float, a: float, centroids: Any, phi: Any, scores: Any) -> None:
    """Add x φ'(a c) to the score of each cluster, (k,), with c one feature of its centroid, (k,)."""
    for c in range(len(centroids)):
        scores[c] += x * slope(a * centroids[c], phi)


@jit
def panel_of(t: float, width: float, first: int, panels: int) -> tuple[int, float]:
    """The panel in which t lies, counted from ``first``, and its place there between −1 and 1."""
    panel = min(max(floor(t / width) - first, 0), panels - 1)
    return panel, 2.0 * (t / width - (panel + first)) - 1.0


@jit
def series(coefficients: Any, tau: float) -> float:
    """Σ_q coefficients_q T_q(τ)."""
    before, now = 0.0, 0.0
    for q in range(len(coefficients) - 1, 0, -1):
        before, now = now, coefficients[q] + 2.0 * tau * now - before
    return coefficients[0] + tau * now - before


@jit
def series_at(points: Any, one: Any, other: Any, width: float, first: int, values: Any, other_values: Any) -> None:
    """Two functions on the logarithmic axis, each with coefficients (panels, m), at points log c."""
    for i in range(len(points)):
        panel, tau = panel_of(points[i], width, first, len(one))
        values[i], other_values[i] = series(one[panel], tau), series(other[panel], tau)


@jit
def add_moments(points: Any, weights: Any, rows: Any, width: float, first: int, moments: Any) -> None:
    """Add the Chebyshev moments Σ w T_q(τ) of points log c, without −∞, to those of their row: (rows, panels, m).

    Without ``weights``, all are one; without ``rows``, all points are in row 0.
    """
    for i in range(len(points)):
        w = weights[i] if len(weights) else 1.0
        if points[i] == -np.inf or w == 0.0:
            continue
        panel, tau = panel_of(points[i], width, first, moments.shape[1])
        out = moments[rows[i] if len(rows) else 0, panel]
        before, now = w, w * tau
        out[0] += before
        for q in range(1, len(out)):
            out[q] += now
            before, now = now, 2.0 * tau * now - before


@jit
def subtract_series(axis: Any, t: float, scores: Any) -> None:
    """Subtract k functions on the logarithmic axis, (panels, m, k), at t: one term of all of them at a time."""
    coefficients, width, first = axis
    panels, m, k = coefficients.shape
    panel, tau = panel_of(t, width, first, panels)
    before, now = 1.0, tau
    for q in range(m):
        row = coefficients[panel, q]
        for c in range(k):
            scores[c] -= before * row[c]
        before, now = now, 2.0 * tau * now - before


@jit
def scores_at_sizes(
    entries: Any, CT: Any, axis: Any, phi: Any, start: int, stop: int, scales: Any, scores: Any
) -> None:
    """Scores (stop − start, k) of rows start to stop at given scales (n,), under centroids CT (p, k)."""
    indptr, indices, data, dense = entries
    for i in range(start, stop):
        out, a = scores[i - start], scales[i]
        out[:] = 0.0
        if not a > 0.0:
            continue
        subtract_series(axis, log(a), out)
        shift = indptr[i] if dense else 0
        for e in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[e])
            if x != 0.0:
                add_slopes(x, a, CT[indices[e - shift]], phi, out)


@jit
def scores_and_scales(
    entries: Any,
    CT: Any,
    axis: Any,
    phi: Any,
    reach: float,
    start: int,
    stop: int,
    sizes: Any,
    scores: Any,
    scales: Any,
) -> None:
    """Scores of rows start to stop at the best scale for each cluster, and these scales: (stop − start, k).

    The axis has the coefficients (2, k, panels, m) of Ψ and its derivative in log a. The search starts at the sizes
    (n,), and log a lies within ``reach`` of their logarithms.

    The best scale solves h(t) = log Σ_j x_j μ_j φ''(μ_j) − log Σ_j μ_j² φ''(μ_j) = 0 with μ = e^t c. A secant iteration
    finds it, inside the bracket that the signs of h give. For a homogeneous φ, h is a line of slope −1, and the first
    step is exact.
    """
    indptr, indices, data, dense = entries
    coefficients, width, first_panel = axis
    _, k, panels, _ = coefficients.shape
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    x, near = np.empty(longest), np.empty((k, longest))
    for i in range(start, stop):
        shift, number = indptr[i] if dense else 0, 0
        for e in range(indptr[i], indptr[i + 1]):
            if data[e] != 0:
                x[number] = np.float64(data[e])
                row = CT[indices[e - shift]]
                for c in range(k):
                    near[c, number] = row[c]
                number += 1
        for c in range(k):
            scores[i - start, c] = scales[i - start, c] = 0.0
            if number == 0 or not sizes[i] > 0.0:
                continue
            nonzeros, centroid = x[:number], near[c, :number]
            t = log(sizes[i])
            low, high = t - reach, t + reach
            t_before, h_before, tangent = t, 0.0, -1.0
            for step in range(MAX_SCALE_STEPS):
                panel, tau = panel_of(t, width, first_panel, panels)
                push = series(coefficients[1, c, panel], tau)
                a, pull = exp(t), 0.0
                for e in range(number):  # Σ_j x_j μ_j φ''(μ_j)
                    pull += nonzeros[e] * moment(a * centroid[e], phi)
                h = log(pull / push) if pull > 0.0 and push > 0.0 else (1.0 if pull > 0.0 else -1.0)
                if h > 0.0:
                    low = t
                else:
                    high = t
                if step > 0 and t != t_before and (h - h_before) / (t - t_before) < -1e-3:
                    tangent = (h - h_before) / (t - t_before)
                following = t - h / tangent
                if not low <= following <= high:
                    following = 0.5 * (low + high)
                t_before, h_before = t, h
                t = following
                if abs(t - t_before) <= SCALE_TOL:
                    break
            a = exp(t)
            panel, tau = panel_of(t, width, first_panel, panels)
            score = -series(coefficients[0, c, panel], tau)
            for e in range(number):  # apart from the sum, so that the compiler can vectorise it
                centroid[e] = nonzeros[e] * slope(a * centroid[e], phi)
            for e in range(number):
                score += centroid[e]
            scores[i - start, c], scales[i - start, c] = score, a


@jit
def slopes_and_moments(means: Any, bent: Any, number: int, phi: Any) -> None:
    """φ'(μ) in place of means μ, and μ φ''(μ) in ``bent``."""
    for e in range(number):
        mu = means[e]
        means[e] = slope(mu, phi)
        bent[e] = moment(mu, phi)


@jit
def pulls_by_label(
    entries: Any,  # IN as in onmf.kernels.hartigan
    order: Any,  # IN (n,) rows sorted by label
    bounds: Any,  # IN (k + 1,) where each label starts in order
    scales: Any,  # IN (n,)
    weights: Any,  # IN (n,)
    centroids: Any,  # IN their h nonzero entries: starts (k + 1,), clusters, features and values (h,), and p
    phi: Any,  # IN
    start: int,  # IN first cluster
    stop: int,  # IN one past the last cluster
    slopes: Any,  # OUT (h,) Σ w x φ'(a c) by label
    pulls: Any,  # OUT (h,) Σ w x μ φ''(μ) by label, μ = a·c
) -> None:
    """Sums over the nonzeros of the rows of clusters start to stop."""
    indptr, indices, data, dense = entries
    starts, _, features, values, p = centroids
    longest = 0
    for position in range(bounds[start], bounds[stop]):
        i = order[position]
        longest = max(longest, indptr[i + 1] - indptr[i])
    means, bent = np.empty(longest), np.empty(longest)
    sums = np.zeros((p, 3))  # centroid, slopes and pulls of a feature, side by side
    for c in range(start, stop):
        for h in range(starts[c], starts[c + 1]):
            sums[features[h], 0] = values[h]
        for position in range(bounds[c], bounds[c + 1]):
            i = order[position]
            a, w = scales[i], weights[i]
            if w == 0.0 or not a > 0.0:
                continue
            first, number = indptr[i], indptr[i + 1] - indptr[i]
            shift = 0 if dense else first
            for e in range(number):
                means[e] = a * sums[indices[shift + e], 0]
            slopes_and_moments(means, bent, number, phi)
            for e in range(number):
                x = w * np.float64(data[first + e])
                if x != 0.0:
                    row = sums[indices[shift + e]]
                    row[1] += x * means[e]
                    row[2] += x * bent[e]
        for h in range(starts[c], starts[c + 1]):
            row = sums[features[h]]
            slopes[h], pulls[h] = row[1], row[2]
            row[:] = 0.0


@jit
def counts_at_sizes(
    entries: Any, D: Any, largest: float, axis: Any, start: int, stop: int, scales: Any, scores: Any
) -> None:
    """Scores of rows start to stop at given scales, as in scores_at_sizes; D (p, k) is θ / c, at most ``largest``."""
    (indptr, indices, data, dense), k = entries, D.shape[1]
    product = np.empty(k)
    for i in range(start, stop):
        out, a = scores[i - start], scales[i]
        for c in range(k):
            out[c], product[c] = 0.0, 1.0
        if not a > 0.0:
            continue
        subtract_series(axis, log(a), out)
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


@jit
def multiply(inverse: float, one: Any, other: Any, product: Any) -> None:
    """Multiply the product of each cluster with the factors of two features, or of one twice."""
    for c in range(len(product)):
        product[c] *= (1.0 + inverse * one[c]) * (1.0 + inverse * other[c])


@jit
def take_logarithms(scores: Any, product: Any) -> None:
    """Subtract the logarithm of each product from its score, and begin new products."""
    for c in range(len(product)):
        scores[c] -= log_and(product[c], 0.0, -0.0)
        product[c] = 1.0


@jit
def subtract_logarithms(x: float, inverse: float, d: Any, scores: Any) -> None:
    """Subtract x log(1 + d / a) from the score of each cluster."""
    for c in range(len(scores)):
        scores[c] -= x * log1p_of_quotient(inverse * d[c])


@jit
def scaled_logs(indptr: Any, data: Any, unit: float, logs: Any) -> None:
    """log(1 + unit · x / s) of each count x, with s the sum of its row. Those of small counts come from a table."""
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
            logs[e] = log1p(unit * (x / s)) if x > 0.0 else 0.0
            if c == x:
                known[c] = logs[e]
