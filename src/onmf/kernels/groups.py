"""Iterative proportional fitting of centroids w and multipliers s, over tiles of features; see :mod:`onmf.fit.groups`.

Symbols: A (k, groups) sums of scales, v (k, groups) = ⟨w_k, s_b⟩. Each tile has sums of its own, which are added in
order, so that threads change no bit.
"""

from typing import Any

import numpy as np

from .jit import jit_dividing as jit
from .lanes import WIDTH, add_products, load, total, zeros

TILE = 512  # features that are fitted together; they stay in the cache


@jit
def fit_centroids(W: Any, s: Any, v: Any, sums: Any, filled: Any, A: Any, start: int, stop: int) -> None:
    """w_kj = S_kj / Σ_b A_kb s_bj in tiles start to stop, and their part of ⟨w_k, s_b⟩ (tiles, k, groups).

    Centroids of clusters that are not filled stay as they are.
    """
    k, p = len(A), s.shape[1]
    room = np.empty(TILE)
    for tile in range(start, stop):
        first, last = tile * TILE, min((tile + 1) * TILE, p)
        for c in range(k):
            if filled[c]:
                weighted_sum(A[c], s, first, last, 0.0, room)
                for j in range(first, last):
                    W[c, j] = sums[c, j] / room[j - first] if sums[c, j] > 0.0 else 0.0
            products(W, c, s, first, last, v[tile, c])


@jit
def fit_multipliers(
    W: Any,  # IN/OUT (k, p or more)
    s: Any,  # IN/OUT (groups, p)
    v: Any,  # OUT (tiles, k, groups)
    sizes: Any,  # OUT (tiles, k) sums of the centroids
    lengths: Any,  # OUT (tiles, groups) sums of the multipliers
    totals: Any,  # IN (groups, p) T
    prior: Any,  # IN (groups,) τ
    shares: Any,  # IN (groups,) π
    filled: Any,  # IN (k,)
    AT: Any,  # IN (groups, k) Aᵀ
    start: int,  # IN first tile
    stop: int,  # IN one past the last tile
) -> None:
    """s_bj = (T_bj + τ_b) / (Σ_k A_kb w_kj + τ_b) in tiles start to stop, in the gauge Σ_b π_b s_bj = 1."""
    (groups, k), p = AT.shape, s.shape[1]
    room, gauge = np.empty(TILE), np.empty(TILE)
    for tile in range(start, stop):
        first, last = tile * TILE, min((tile + 1) * TILE, p)
        gauge[:] = 0.0
        for b in range(groups):
            weighted_sum(AT[b], W, first, last, prior[b], room)
            for j in range(first, last):
                s[b, j] = (totals[b, j] + prior[b]) / room[j - first]
                gauge[j - first] += shares[b] * s[b, j]
        for b in range(groups):
            length = 0.0
            for j in range(first, last):
                s[b, j] /= gauge[j - first]
            for j in range(first, last):
                length += s[b, j]
            lengths[tile, b] = length
        for c in range(k):
            size = 0.0
            for j in range(first, last):
                W[c, j] *= gauge[j - first] if filled[c] else 1.0
            for j in range(first, last):
                size += W[c, j]
            sizes[tile, c] = size
            products(W, c, s, first, last, v[tile, c])


@jit
def weighted_sum(weights: Any, rows: Any, first: int, last: int, start: float, out: Any) -> None:
    """Write start + Σ_b weights_b rows_bj to the beginning of ``out``, for features first to last."""
    n = len(weights)
    for j in range(last - first):
        out[j] = start
    for b in range(0, n, 4):  # four rows at once
        b1, b2, b3 = min(b + 1, n - 1), min(b + 2, n - 1), min(b + 3, n - 1)
        w0, w1 = weights[b], weights[b1] if b + 1 < n else 0.0
        w2, w3 = weights[b2] if b + 2 < n else 0.0, weights[b3] if b + 3 < n else 0.0
        for j in range(first, last):
            out[j - first] += (w0 * rows[b, j] + w1 * rows[b1, j]) + (w2 * rows[b2, j] + w3 * rows[b3, j])


@jit
def products(X: Any, i: int, Y: Any, first: int, last: int, out: Any) -> None:
    """The inner products of row i of X with the rows of Y over features first to last."""
    n, x, p = len(Y), i * X.shape[1], Y.shape[1]
    whole = last - (last - first) % WIDTH
    for h in range(0, n, 4):  # four rows at once
        h1, h2, h3 = min(h + 1, n - 1), min(h + 2, n - 1), min(h + 3, n - 1)
        s0 = s1 = s2 = s3 = zeros()
        for j in range(first, whole, WIDTH):
            xj = load(X, x + j)
            s0, s1 = add_products(s0, xj, load(Y, h * p + j)), add_products(s1, xj, load(Y, h1 * p + j))
            s2, s3 = add_products(s2, xj, load(Y, h2 * p + j)), add_products(s3, xj, load(Y, h3 * p + j))
        out[h], out[h1], out[h2], out[h3] = total(s0), total(s1), total(s2), total(s3)
    for j in range(whole, last):
        for h in range(n):
            out[h] += X[i, j] * Y[h, j]
