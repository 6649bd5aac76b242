"""Iterative proportional fitting of centroids w and multipliers s, over tiles of features; see :mod:`onmf.fit.groups`.

Symbols: A (k, groups) sums of scales, v (k, groups) = ⟨w_k, s_b⟩. Each tile has sums of its own, which are added in
order, so that threads change no bit.
"""

from typing import Any

import numpy as np

from .jit import jit_dividing as jit
from .lanes import WIDTH, add_products, load, repeat, store, total, zeros

TILE = 512  # features that are fitted together; they stay in the cache


@jit
def fit_tiles(
    W: Any,  # IN/OUT (k, p or more) centroids
    s: Any,  # IN/OUT (groups, p)
    v: Any,  # OUT (tiles, k, groups)
    lengths: Any,  # OUT (tiles, groups) sums of the multipliers
    sums: Any,  # IN (k, p or more) S
    totals: Any,  # IN (groups, p) T
    prior: Any,  # IN (groups,) τ
    shares: Any,  # IN (groups,) π
    filled: Any,  # IN (k,) centroids of other clusters stay as they are
    A: Any,  # IN (k, groups)
    AT: Any,  # IN (groups, k) Aᵀ
    start: int,  # IN first tile
    stop: int,  # IN one past the last tile
) -> None:
    """Fit centroids, then multipliers, in tiles start to stop, in the gauge Σ_b π_b s_bj = 1.

    w_kj = S_kj / Σ_b A_kb s_bj, then s_bj = (T_bj + τ_b) / (Σ_k A_kb w_kj + τ_b).
    """
    (k, groups), p = A.shape, s.shape[1]
    room, gauge, ones = np.empty(TILE), np.empty(TILE), np.ones(TILE)
    for tile in range(start, stop):
        first, last = tile * TILE, min((tile + 1) * TILE, p)
        for c in range(k):
            if filled[c]:
                weighted_sum(A[c], s, first, last, 0.0, room)
                divide(sums[c, first:last], 0.0, room, W[c, first:last])
        gauge[:] = 0.0
        for b in range(groups):
            weighted_sum(AT[b], W, first, last, prior[b], room)
            divide(totals[b, first:last], prior[b], room, s[b, first:last])
            add_weighted(shares[b], s[b, first:last], gauge)
        divide(ones, 0.0, gauge, room)
        for b in range(groups):
            multiply(s[b, first:last], room)
        products(ones[: last - first], s, first, lengths[tile])
        for c in range(k):
            if filled[c]:
                multiply(W[c, first:last], gauge)
            products(W[c, first:last], s, first, v[tile, c])


@jit
def weighted_sum(weights: Any, rows: Any, first: int, last: int, start: float, out: Any) -> None:
    """Write start + Σ_b weights_b rows_bj to the beginning of ``out``, for features first to last."""
    p, size = rows.shape[1], last - first
    whole = size - size % (4 * WIDTH)
    for j in range(0, whole, 4 * WIDTH):
        s0 = s1 = s2 = s3 = repeat(start)
        for b in range(len(weights)):
            w, y = repeat(weights[b]), b * p + first + j
            s0, s1 = add_products(s0, w, load(rows, y)), add_products(s1, w, load(rows, y + WIDTH))
            s2 = add_products(s2, w, load(rows, y + 2 * WIDTH))
            s3 = add_products(s3, w, load(rows, y + 3 * WIDTH))
        store(s0, out, j)
        store(s1, out, j + WIDTH)
        store(s2, out, j + 2 * WIDTH)
        store(s3, out, j + 3 * WIDTH)
    for j in range(whole, size):
        out[j] = start
        for b in range(len(weights)):
            out[j] += weights[b] * rows[b, first + j]


# The compiler vectorises loops over contiguous vectors, from their first entry on.


@jit
def add_weighted(weight: float, x: Any, out: Any) -> None:
    """Add a weighted vector to the beginning of ``out``."""
    for j in range(len(x)):
        out[j] += weight * x[j]


@jit
def divide(x: Any, more: float, y: Any, out: Any) -> None:
    """Write (x + more) / y."""
    for j in range(len(x)):
        out[j] = (x[j] + more) / y[j]


@jit
def multiply(x: Any, y: Any) -> None:
    """Multiply x by y, in place."""
    for j in range(len(x)):
        x[j] *= y[j]


@jit
def products(x: Any, Y: Any, first: int, out: Any) -> None:
    """The inner products of x with the rows of Y, from feature ``first`` on."""
    n, p, size = len(Y), Y.shape[1], len(x)
    whole = size - size % WIDTH
    for h in range(0, n, 4):  # four rows at once
        h1, h2, h3 = min(h + 1, n - 1), min(h + 2, n - 1), min(h + 3, n - 1)
        s0 = s1 = s2 = s3 = zeros()
        for j in range(0, whole, WIDTH):
            xj, y = load(x, j), first + j
            s0, s1 = add_products(s0, xj, load(Y, h * p + y)), add_products(s1, xj, load(Y, h1 * p + y))
            s2, s3 = add_products(s2, xj, load(Y, h2 * p + y)), add_products(s3, xj, load(Y, h3 * p + y))
        out[h], out[h1], out[h2], out[h3] = total(s0), total(s1), total(s2), total(s3)
    for j in range(whole, size):
        for h in range(n):
            out[h] += x[j] * Y[h, first + j]
