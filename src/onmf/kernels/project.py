"""Distance of each row to the convex hull of the chosen rows and the origin: the inner problem of SNPA.

    min_h ‖x − Σ_c h_c s_c‖²   subject to   h ≥ 0, Σ h ≤ 1

The origin, as vertex 0, takes the weight that is left, so h lives on a simplex, and each move shifts weight from one
vertex to another: to the vertex of the smallest derivative, from the one that gains most (second order). With d the
derivatives, max{d_c : h_c > 0} − min d bounds how far the objective is from its minimum; the moves stop when that is
negligible. The distance only falls as vertices are added, so h and the distance of an earlier call are a good start
and an upper bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit


@jit
def project_on_hull(
    products: Any,  # IN (n, r + 1) ⟨x_i, s_c⟩; s_0 is the origin
    gram: Any,  # IN (m + 1, m + 1) ⟨s_c, s_e⟩ for the m rows chosen so far
    squares: Any,  # IN (n,) ‖x_i‖²
    rows: Any,  # IN rows to project
    start: int,  # IN first of them
    stop: int,  # IN one past the last of them
    enough: float,  # IN distance below which a row is of no interest: its moves stop there
    weights: Any,  # IN/OUT (n, r + 1) h of each row, from the last call
    residuals: Any,  # OUT (n,) squared distances, or what is below enough
) -> None:
    """Project rows[start:stop]."""
    vertices = gram.shape[0]
    d = np.empty(vertices)
    for position in range(start, stop):
        i = rows[position]
        h = weights[i, :vertices]
        g = products[i, :vertices]
        for c in range(vertices):
            d[c] = -g[c]
            for e in range(vertices):
                d[c] += gram[c, e] * h[e]
        residual = squares[i]
        for _ in range(1000 * vertices):
            residual = squares[i]
            to = 0
            for c in range(vertices):
                residual += h[c] * (d[c] - g[c])
                if d[c] < d[to]:
                    to = c
            gap, most, source, length = 0.0, 0.0, -1, 0.0
            for c in range(vertices):
                slope = d[c] - d[to]
                if h[c] > 0.0 and slope > 0.0:
                    gap = max(gap, slope)
                    curvature = gram[to, to] + gram[c, c] - 2.0 * gram[to, c]
                    step = h[c]
                    if curvature * step > slope:
                        step = slope / curvature
                    improvement = step * (slope - 0.5 * step * curvature)
                    if improvement > most:
                        most, source, length = improvement, c, step
            if source < 0 or residual < enough or gap <= 1e-9 * residual or gap <= 1e-15 * squares[i]:
                break
            h[to] += length
            h[source] -= length
            for c in range(vertices):
                d[c] += length * (gram[c, to] - gram[c, source])
        residuals[i] = max(residual, 0.0)
