"""Distance of each row to the convex hull of the chosen rows and the origin: the inner problem of SNPA.

    min_h ‖x − Σ_c h_c s_c‖²   subject to   h ≥ 0, Σ h ≤ 1

The origin, as vertex 0, takes the remaining weight, so h lies on a simplex. Two moves alternate. The first shifts
weight to the vertex with the smallest derivative, from the vertex for which that gains most; it adds vertices. The
second goes to the minimum over the face of the vertices in use, or as far as h ≥ 0 allows; it solves for the weights
and drops vertices. With d the derivatives, max{d_c : h_c > 0} − min d bounds how far the objective is from its minimum.
The moves stop when that is negligible. Distances can only fall as vertices are added, so h and the distance of an
earlier call are a good start and an upper bound.
"""

from typing import Any

import numpy as np

from .jit import jit


@jit
def project_on_hull(
    products: Any, gram: Any, squares: Any, rows: Any, start: int, stop: int, enough: Any, weights: Any, residuals: Any
) -> None:
    """Project rows[start:stop]: write their squared distances, or an upper bound below ``enough``, to residuals (n,).

    Products (n, r + 1) are ⟨x_i, s_c⟩, s_0 the origin, gram (m + 1, m + 1) ⟨s_c, s_e⟩ for the m rows chosen so far, and
    squares (n,) ‖x_i‖². Weights (n, r + 1) are the h of each row, from the last call.
    """
    vertices = gram.shape[0]
    d, move, used = np.empty(vertices), np.empty(vertices), np.empty(vertices, np.int64)
    L = np.empty((vertices, vertices))
    for position in range(start, stop):
        i = rows[position]
        h, g = weights[i, :vertices], products[i, :vertices]
        for _ in range(100 * vertices):
            residual, to = squares[i], 0
            for c in range(vertices):
                d[c] = -g[c]
                for e in range(vertices):
                    d[c] += gram[c, e] * h[e]
                residual += h[c] * (d[c] - g[c])
                if d[c] < d[to]:
                    to = c
            gap, most, source, length = 0.0, 0.0, -1, 0.0
            for c in range(vertices):
                slope = d[c] - d[to]
                if h[c] > 0.0 and slope > 0.0:
                    gap = max(gap, slope)
                    curvature = gram[to, to] + gram[c, c] - 2.0 * gram[to, c]
                    step = slope / curvature if curvature * h[c] > slope else h[c]
                    improvement = step * (slope - 0.5 * step * curvature)
                    if improvement > most:
                        most, source, length = improvement, c, step
            if source < 0 or residual < enough or gap <= 1e-9 * residual or gap <= 1e-15 * squares[i]:
                break
            h[to] += length
            h[source] -= length
            for c in range(vertices):
                d[c] += length * (gram[c, to] - gram[c, source])
            minimise_over_face(gram, d, h, used, L, move)
        residuals[i] = max(residual, 0.0)


@jit
def minimise_over_face(gram: Any, d: Any, h: Any, used: Any, L: Any, move: Any) -> None:
    """Move h towards the minimum over the face of the vertices with h > 0, as far as h ≥ 0 allows."""
    m = -1  # directions of the face: from its first vertex, the base, to each of the others
    for c in range(len(h)):
        if h[c] > 0.0:
            m += 1
            used[m] = c
    base = used[0]
    # Cholesky factor L of the Gram matrix of the directions. Linearly dependent directions are left out.
    for a in range(m):
        u = used[a + 1]
        for b in range(a + 1):
            v = used[b + 1]
            value = gram[u, v] - gram[u, base] - gram[v, base] + gram[base, base]
            size = value
            for e in range(b):
                value -= L[a, e] * L[b, e]
            if b < a:
                L[a, b] = value / L[b, b] if L[b, b] > 0.0 else 0.0
            else:
                L[a, a] = np.sqrt(value) if value > 1e-13 * size else 0.0
    # Solve L Lᵀ move = d_base − d.
    for a in range(m):
        value = d[base] - d[used[a + 1]]
        for e in range(a):
            value -= L[a, e] * move[e]
        move[a] = value / L[a, a] if L[a, a] > 0.0 else 0.0
    for a in range(m - 1, -1, -1):
        value = move[a]
        for e in range(a + 1, m):
            value -= L[e, a] * move[e]
        move[a] = value / L[a, a] if L[a, a] > 0.0 else 0.0
    back = 0.0
    for a in range(m):
        back -= move[a]
    length, blocking = 1.0, -1
    for a in range(-1, m):
        delta = back if a < 0 else move[a]
        c = used[a + 1]
        if delta < 0.0 and -delta * length > h[c]:
            length, blocking = h[c] / -delta, c
    for a in range(-1, m):
        c = used[a + 1]
        h[c] = max(h[c] + length * (back if a < 0 else move[a]), 0.0) if c != blocking else 0.0
