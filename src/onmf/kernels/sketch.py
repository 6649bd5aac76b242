"""Labels of array rows from sketches: a few inner products of each row bound its scores, float64 decides the rest.

    z_i = Qᵀ x_i,   ρ_i ≥ ‖x_i − Q z_i‖,   |⟨x_i, b_k⟩ − ⟨z_i, t_k⟩| ≤ ρ_i · rest_k + ‖x_i‖ · slope + least

A row whose best template leads by more than these bounds keeps it without being read. See :mod:`onmf.backend.sketch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .assign import lowest_argmax, score_rows
from .jit import jit, jit_any_order, jit_without_nan

AT_A_TIME = 64
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
            T[c, d] = dot(rest, Q[d])
            own += np.float64(T[c, d]) ** 2
        for d in range(q):
            t, direction = np.float64(T[c, d]), Q[d]
            for j in range(p):
                rest[j] -= t * direction[j]
        T[c, q] = np.float32(np.sqrt(square(rest))) * ROUNDED_UP
        sketched, left = max(sketched, own), 0.0
        for d in range(q):
            left += dot(rest, Q[d]) ** 2
        inside = max(inside, left)
    return np.sqrt(longest), np.sqrt(sketched), np.sqrt(apart), np.sqrt(inside)


@jit_any_order
def dot(x: Any, y: Any) -> float:
    """⟨x, y⟩"""
    total = 0.0
    for j in range(len(x)):
        total += x[j] * y[j]
    return total


@jit
def label_by_sketch(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k, or k + 1 if k is odd, p) float64
    starts: Any,  # IN (k, or k + 1,) offset of each score
    k: int,  # IN number of templates
    Z: Any,  # IN (9, n) float32
    T: Any,  # IN (k, 10) float32: the templates as sketches, what these leave out, and the offset
    slope: Any,  # IN float32
    least: Any,  # IN float32
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
) -> int:
    """Label rows start to stop of an array; how many of them had to be scored in full."""
    room = np.zeros(NEXT + END, np.float32)
    exact = np.empty((4, len(B)))
    open_rows = np.empty(AT_A_TIME + 3, np.int64)
    scored = 0
    for first in range(start, stop, AT_A_TIME):
        m = min(AT_A_TIME, stop - first)
        for j in range(9):
            for r in range(m):
                room[j * AT_A_TIME + r] = Z[j, first + r]
        begin(room, slope, least)
        for c in range(k):
            take_in(room, c, T[c])
        n_open = 0
        for r in range(m):
            labels[first + r] = np.int32(room[LEADER + r])
            open_rows[n_open] = first + r
            n_open += 0 if room[SECOND + r] < room[LOWER + r] else 1
        if n_open == 0:
            continue
        scored += n_open
        open_rows[n_open : n_open + 3] = open_rows[n_open - 1]
        for f in range(0, n_open, 4):
            rows = open_rows[f : f + 4]
            score_rows(X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]], B, starts, exact)
            for r in range(4):
                labels[rows[r]] = lowest_argmax(exact[r], k)
    return scored


# The compiler vectorises the loops below because all they touch lies in one array, at distances that it knows. They
# write to another place than they read from: stores of what is there already become slow masked stores.
LEFT, SLACK, LOWER, LARGEST, SECOND, LEADER, END = (j * AT_A_TIME for j in range(8, 15))
NEXT = END - LOWER


@jit_without_nan
def begin(room: Any, slope: Any, least: Any) -> None:
    """Prepare a block of sketches for the first template: ‖x‖ · slope + least, with ‖x‖ ≤ Σ |z| + ρ, and no leader."""
    for r in range(AT_A_TIME):
        length = room[LEFT + r]
        for j in range(8):
            length += abs(room[j * AT_A_TIME + r])
        room[SLACK + r] = length * slope + least
    room[LOWER:LEADER] = -np.inf
    room[LEADER:END] = 0.0


@jit_without_nan
def take_in(room: Any, c: int, t: Any) -> None:
    """Take in template c for a block: the largest lower bound, who has it, and the two largest upper bounds."""
    t0, t1, t2, t3, t4, t5, t6, t7, rest, shift = t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]
    name = np.float32(c)
    for r in range(AT_A_TIME):
        s0 = t0 * room[r] + t1 * room[AT_A_TIME + r]
        s1 = t2 * room[2 * AT_A_TIME + r] + t3 * room[3 * AT_A_TIME + r]
        s2 = t4 * room[4 * AT_A_TIME + r] + t5 * room[5 * AT_A_TIME + r]
        s3 = t6 * room[6 * AT_A_TIME + r] + t7 * room[7 * AT_A_TIME + r]
        score = shift + ((s0 + s1) + (s2 + s3))
        error = room[LEFT + r] * rest + room[SLACK + r]
        low, high = score - error, score + error
        lower, largest = room[LOWER + r], room[LARGEST + r]
        room[NEXT + LOWER + r] = max(lower, low)
        room[NEXT + LARGEST + r] = max(largest, high)
        room[NEXT + SECOND + r] = max(room[SECOND + r], min(largest, high))
        room[NEXT + LEADER + r] = name if low > lower else room[LEADER + r]
    for r in range(LOWER, END):
        room[r] = room[NEXT + r]
