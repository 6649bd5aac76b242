"""Moves of single rows between clusters, each judged by the exact change of the objective (Hartigan's moves).

With S (p, k) the sums of the clusters, transposed, every kernel goes through some rows in their given order. It takes
row x out of its cluster a, computes for every cluster c what it costs to put it in,

    cost_c = Σ_j [f(S_jc) − f(S_jc + x_j)] + f(T_c + |x|) − f(T_c),   f(t) = t log t       (sweep_counts, sweep_entropy)
    cost_c = ‖S_c‖ − ‖S_c + x‖                                                             (sweep_length)

with |x| = Σ_j x_j and T_c = Σ_j S_jc, and puts it where that is lowest. A row leaves its cluster only for a gain beyond
rounding, and the last row of a cluster stays. ``doubt_i`` is by how much the second-best cluster is worse than the
best.

A row is entries ``indptr[i]`` to ``indptr[i + 1]`` of ``data``; their features are ``indices`` at the same places, or,
if ``dense``, counted from the start of the row. ``weights`` multiply the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit

WORTH = 1e-10
"""Share of a row's costs that a move must gain, above rounding."""


@jit
def f(t: float) -> float:
    """The entropy function t log t, with f(0) = 0."""
    return t * np.log(t) if t > 0.0 else 0.0


@jit
def choose(cost: Any, k: int, own: int) -> tuple[int, float]:
    """The cluster of the lowest cost, ``own`` if it ties, and how much worse the next one is."""
    best = own
    for c in range(k):
        if c != own and cost[c] < cost[best] - WORTH * (abs(cost[c]) + abs(cost[best])):
            best = c
    doubt = np.inf
    for c in range(k):
        if c != best:
            doubt = min(doubt, cost[c] - cost[best])
    return best, doubt


@jit
def sweep_counts(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN
    data: Any,  # IN whole numbers
    dense: bool,
    weights: Any,  # IN (n,) whole numbers
    rows: Any,  # IN rows to try, in this order
    labels: Any,  # IN/OUT (n,)
    S: Any,  # IN/OUT (p, k) int32 sums
    slopes: Any,  # IN/OUT (p, k) f(S + 1) − f(S)
    T: Any,  # IN/OUT (k,) totals
    sizes: Any,  # IN/OUT (k,) rows that hold something
    powers: Any,  # IN f(0), f(1), …
    steps: Any,  # IN f(1) − f(0), f(2) − f(1), …
    doubt: Any,  # OUT (n,)
) -> tuple[int, float]:
    """Counts: f comes from tables, and for the many ones of a row from ``slopes``. → moved rows, and their gain"""
    k = len(T)
    cost = np.empty(k)
    ones = np.empty(len(S), np.int64)
    moved, gain = 0, 0.0
    for i in rows:
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w, own = int(weights[i]), labels[i]
        back, mass, m = 0.0, 0, 0
        cost[:] = 0.0
        for e in range(start, stop):
            x = int(data[e]) * w
            if x == 0:
                continue
            j = indices[e - shift]
            mass += x
            s = S[j, own]
            if x == 1:
                ones[m] = j
                m += 1
                back -= steps[s - 1]
            else:
                back += powers[s - x] - powers[s]
                for c in range(k):
                    t = S[j, c]
                    cost[c] += powers[t] - powers[t + x]
        if mass == 0:
            doubt[i] = np.inf
            continue
        e = 0
        while e + 4 <= m:
            s0, s1, s2, s3 = slopes[ones[e]], slopes[ones[e + 1]], slopes[ones[e + 2]], slopes[ones[e + 3]]
            for c in range(k):
                cost[c] -= (s0[c] + s1[c]) + (s2[c] + s3[c])
            e += 4
        while e < m:
            s0 = slopes[ones[e]]
            for c in range(k):
                cost[c] -= s0[c]
            e += 1
        for c in range(k):
            cost[c] += f(T[c] + mass) - f(T[c])
        cost[own] = back + f(T[own]) - f(T[own] - mass)
        new, doubt[i] = choose(cost, k, own)
        if new == own or sizes[own] == 1:
            continue
        moved += 1
        gain += cost[own] - cost[new]
        labels[i] = new
        sizes[own] -= 1
        sizes[new] += 1
        T[own] -= mass
        T[new] += mass
        for e in range(start, stop):
            x = int(data[e]) * w
            j = indices[e - shift]
            S[j, own] -= x
            S[j, new] += x
            slopes[j, own] = steps[S[j, own]]
            slopes[j, new] = steps[S[j, new]]
    return moved, gain


@jit
def sweep_entropy(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN
    data: Any,  # IN numbers ≥ 0
    dense: bool,
    weights: Any,  # IN (n,)
    rows: Any,  # IN rows to try, in this order
    labels: Any,  # IN/OUT (n,)
    S: Any,  # IN/OUT (p, k) sums
    T: Any,  # IN/OUT (k,) totals
    sizes: Any,  # IN/OUT (k,) rows that hold something
    doubt: Any,  # OUT (n,)
) -> tuple[int, float]:
    """Any numbers: every f is a logarithm. → moved rows, and their gain"""
    k = len(T)
    cost = np.empty(k)
    moved, gain = 0, 0.0
    for i in rows:
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w, own = weights[i], labels[i]
        mass = 0.0
        cost[:] = 0.0
        for e in range(start, stop):
            x = np.float64(data[e]) * w
            if x == 0.0:
                continue
            sums = S[indices[e - shift]]
            mass += x
            for c in range(k):
                t = sums[c] if c != own else max(sums[c] - x, 0.0)
                cost[c] -= rise(t, x)
        if mass == 0.0:
            doubt[i] = np.inf
            continue
        for c in range(k):
            cost[c] += rise(T[c] if c != own else max(T[c] - mass, 0.0), mass)
        new, doubt[i] = choose(cost, k, own)
        if new == own or sizes[own] == 1:
            continue
        moved += 1
        gain += cost[own] - cost[new]
        labels[i] = new
        sizes[own] -= 1
        sizes[new] += 1
        T[own] -= mass
        T[new] += mass
        for e in range(start, stop):
            x = np.float64(data[e]) * w
            sums = S[indices[e - shift]]
            sums[own] = max(sums[own] - x, 0.0)
            sums[new] += x
    return moved, gain


@jit
def rise(t: float, x: float) -> float:
    """f(t + x) − f(t) without cancellation."""
    return t * np.log1p(x / t) + x * np.log(t + x) if t > 0.0 else x * np.log(x)


@jit
def sweep_length(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN
    data: Any,  # IN numbers
    dense: bool,
    weights: Any,  # IN (n,)
    rows: Any,  # IN rows to try, in this order
    labels: Any,  # IN/OUT (n,)
    S: Any,  # IN/OUT (p, k) sums
    squares: Any,  # IN/OUT (k,) ‖S_c‖²
    sizes: Any,  # IN/OUT (k,) rows that hold something
    doubt: Any,  # OUT (n,)
) -> tuple[int, float]:
    """Lengths of the sums. → moved rows, and their gain"""
    k = len(squares)
    cost, products = np.empty(k), np.empty(k)
    moved, gain = 0, 0.0
    for i in rows:
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w, own = weights[i], labels[i]
        square = 0.0
        products[:] = 0.0
        for e in range(start, stop):
            x = np.float64(data[e]) * w
            square += x * x
            sums = S[indices[e - shift]]
            for c in range(k):
                products[c] += x * sums[c]
        if square == 0.0:
            doubt[i] = np.inf
            continue
        for c in range(k):
            without = squares[c]
            if c == own:
                without = max(squares[c] - 2.0 * products[c] + square, 0.0)
                cost[c] = np.sqrt(without) - np.sqrt(squares[c])
            else:
                cost[c] = np.sqrt(without) - np.sqrt(max(without + 2.0 * products[c] + square, 0.0))
        new, doubt[i] = choose(cost, k, own)
        if new == own or sizes[own] == 1:
            continue
        moved += 1
        gain += cost[own] - cost[new]
        labels[i] = new
        sizes[own] -= 1
        sizes[new] += 1
        squares[own] = max(squares[own] - 2.0 * products[own] + square, 0.0)
        squares[new] += 2.0 * products[new] + square
        for e in range(start, stop):
            x = np.float64(data[e]) * w
            sums = S[indices[e - shift]]
            sums[own] -= x
            sums[new] += x
    return moved, gain
