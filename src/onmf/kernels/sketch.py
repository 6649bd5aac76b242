"""Labels of array rows from sketches: a few inner products of each row bound its scores, float64 decides the rest.

    z_i = Qᵀ x_i,   ρ_i ≥ ‖x_i − Q z_i‖,   |⟨x_i, b_k⟩ − ⟨z_i, t_k⟩| ≤ ρ_i · rest_k + ‖x_i‖ · slope + least

A row whose best template leads by more than these bounds keeps it without being read. See :mod:`onmf.backend.sketch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .assign import lowest_argmax, score_rows
from .jit import jit, jit_any_order, jit_without_nan

BLOCK_ROWS = 64
"""Rows whose sketches are compared with a template at a time."""

ROUNDED_UP = np.float32(1.00001)
"""Covers the rounding of a few operations in float32."""


@jit
def sketch_rows(
    X: Any,  # IN (n, p)
    Q: Any,  # IN (q, p) float64, orthonormal
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    Z: Any,  # OUT (q + 1, n) float32: the sketches, and what they leave out
) -> None:
    """Sketch rows start to stop of an array."""
    q = len(Q)
    none, products = np.zeros(q), np.empty((4, q))
    for first in range(start, stop, 4):
        last = stop - 1
        score_rows(
            X[first], X[min(first + 1, last)], X[min(first + 2, last)], X[min(first + 3, last)], Q, none, products
        )
        for r in range(min(4, stop - first)):
            i, left = first + r, square(X[first + r])
            rounding = 1e-12 * left
            for j in range(q):
                Z[j, i] = products[r, j]
                left -= products[r, j] * products[r, j]
            Z[q, i] = np.float32(np.sqrt(max(left, 0.0) + rounding)) * ROUNDED_UP


@jit_any_order
def square(x: Any) -> float:
    """‖x‖²"""
    total = 0.0
    for j in range(len(x)):
        t = np.float64(x[j])
        total += t * t
    return total


@jit_any_order
def sketch_templates(
    B: Any,  # IN (k or more, p) float64
    mean: Any,  # IN (p,) their mean: what all have in common changes no comparison
    Q: Any,  # IN (8, p) float64
    T: Any,  # OUT (k, 10) float32: sketches, what they leave out, and an entry that is left alone
) -> tuple[float, float, float, float]:
    """Sketch templates; the largest lengths of templates, sketches, differences from the mean, and rounding errors.

    The last are the parts of what sketches leave out that are not orthogonal to the directions.
    """
    q, p = Q.shape
    rest = np.empty(p)
    longest = sketched = apart = inside = 0.0
    for c in range(len(T)):
        b = B[c]
        for j in range(p):
            rest[j] = b[j] - mean[j]
        longest, apart, own = max(longest, square(b)), max(apart, square(rest)), 0.0
        for d in range(q):
            T[c, d] = product(rest, Q[d])
            own += np.float64(T[c, d]) ** 2
        for d in range(q):
            t, direction = np.float64(T[c, d]), Q[d]
            for j in range(p):
                rest[j] -= t * direction[j]
        T[c, q] = np.float32(np.sqrt(square(rest))) * ROUNDED_UP
        sketched, left = max(sketched, own), 0.0
        for d in range(q):
            left += product(rest, Q[d]) ** 2
        inside = max(inside, left)
    return np.sqrt(longest), np.sqrt(sketched), np.sqrt(apart), np.sqrt(inside)


@jit_any_order
def product(x: Any, y: Any) -> float:
    """⟨x, y⟩ in float64."""
    total = 0.0
    for j in range(len(x)):
        total += np.float64(x[j]) * y[j]
    return total


@jit
def label_by_sketch(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k, or k + 1 if k is odd, p) float64
    starts: Any,  # IN (k, or k + 1,) offset of each score
    k: int,  # IN number of templates
    Z: Any,  # IN (9, n) float32
    T: Any,  # IN (k, 10) float32: the templates as sketches, what these leave out, and the offset
    errors: Any,  # IN slope and least, of sketches in float32 and of scores in float64
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
) -> int:
    """Label rows start to stop of an array; how many of them the sketches left open."""
    slope, least, fine_slope, fine_least = errors
    room = np.zeros(NEXT + END, np.float32)
    across, bounds = np.ascontiguousarray(T.T), np.empty(k, np.float32)
    exact, four = np.empty((4, len(B))), np.empty(4, np.int64)
    n_open = n_tied = 0
    for first in range(start, stop, BLOCK_ROWS):
        m = min(BLOCK_ROWS, stop - first)
        for j in range(9):
            for r in range(m):
                room[j * BLOCK_ROWS + r] = Z[j, first + r]
        start_bounds(room, slope, least)
        for c in range(k):
            update_bounds(room, c, T[c])
        for r in range(m):
            i = first + r
            labels[i] = np.int32(room[LEADER + r])
            if room[SECOND_UPPER + r] < room[LOWER + r]:
                continue
            n_open += 1
            upper_bounds(room, r, across, bounds)
            winner, lead = best_candidate(X[i], B, starts, bounds, room[LOWER + r])
            labels[i] = winner
            if lead > np.float64(room[LENGTH + r]) * fine_slope + fine_least:
                continue
            four[n_tied] = i
            n_tied += 1
            if n_tied == 4:
                label_exactly(X, B, starts, k, four, exact, labels)
                n_tied = 0
    if n_tied > 0:
        four[n_tied:] = four[n_tied - 1]
        label_exactly(X, B, starts, k, four, exact, labels)
    return n_open


@jit_any_order
def upper_bounds(room: Any, r: int, across: Any, bounds: Any) -> None:
    """The upper bounds of row r of a block for all templates."""
    left, slack = room[RESIDUAL + r], room[SLACK + r]
    for c in range(len(bounds)):
        bounds[c] = across[9, c] + (left * across[8, c] + slack)
    for j in range(8):
        z, t = room[j * BLOCK_ROWS + r], across[j]
        for c in range(len(bounds)):
            bounds[c] += z * t[c]


@jit
def best_candidate(x: Any, B: Any, starts: Any, bounds: Any, lower: Any) -> tuple[int, float]:
    """The best template among those whose bounds reach ``lower``, in float64, and its lead over the second-best."""
    winner, best, second = 0, -np.inf, -np.inf
    for c in range(len(bounds)):
        if bounds[c] >= lower:
            score = product(x, B[c]) + starts[c]
            if score > best:
                winner, best, second = c, score, best
            elif score > second:
                second = score
    return winner, best - second


@jit
def label_exactly(X: Any, B: Any, starts: Any, k: int, rows: Any, exact: Any, labels: Any) -> None:
    """Label four rows by the scores that decide everywhere else, too: those of two may be equal but for rounding."""
    score_rows(X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]], B, starts, exact)
    for r in range(4):
        labels[rows[r]] = lowest_argmax(exact[r], k)


# The compiler vectorises the loops below because all they touch lies in one array, at distances that it knows. They
# write to another place than they read from: stores of what is there already become slow masked stores.
RESIDUAL, SLACK, LENGTH, LOWER, UPPER, SECOND_UPPER, LEADER, END = (j * BLOCK_ROWS for j in range(8, 16))
NEXT = END - LOWER


@jit_without_nan
def start_bounds(room: Any, slope: Any, least: Any) -> None:
    """Prepare a block of sketches for the first template: ‖x‖ · slope + least, with ‖x‖ ≤ Σ |z| + ρ, and no leader."""
    for r in range(BLOCK_ROWS):
        length = room[RESIDUAL + r]
        for j in range(8):
            length += abs(room[j * BLOCK_ROWS + r])
        room[LENGTH + r] = length
        room[SLACK + r] = length * slope + least
    room[LOWER:LEADER] = -np.inf
    room[LEADER:END] = 0.0


@jit_without_nan
def update_bounds(room: Any, c: int, t: Any) -> None:
    """Take in template c for a block: the largest lower bound, who has it, and the two largest upper bounds."""
    t0, t1, t2, t3, t4, t5, t6, t7, rest, shift = t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]
    name = np.float32(c)
    for r in range(BLOCK_ROWS):
        s0 = t0 * room[r] + t1 * room[BLOCK_ROWS + r]
        s1 = t2 * room[2 * BLOCK_ROWS + r] + t3 * room[3 * BLOCK_ROWS + r]
        s2 = t4 * room[4 * BLOCK_ROWS + r] + t5 * room[5 * BLOCK_ROWS + r]
        s3 = t6 * room[6 * BLOCK_ROWS + r] + t7 * room[7 * BLOCK_ROWS + r]
        score = shift + ((s0 + s1) + (s2 + s3))
        error = room[RESIDUAL + r] * rest + room[SLACK + r]
        low, high = score - error, score + error
        lower, largest = room[LOWER + r], room[UPPER + r]
        room[NEXT + LOWER + r] = max(lower, low)
        room[NEXT + UPPER + r] = max(largest, high)
        room[NEXT + SECOND_UPPER + r] = max(room[SECOND_UPPER + r], min(largest, high))
        room[NEXT + LEADER + r] = name if low > lower else room[LEADER + r]
    for r in range(LOWER, END):
        room[r] = room[NEXT + r]
