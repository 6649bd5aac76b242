"""Moves of single rows between clusters, each judged by the exact change of the objective (Hartigan's moves).

With S (p, k) the sums of the clusters, transposed, each sweep visits the given rows in order. It removes row x from its
cluster, computes the cost of adding it to each cluster c,

    cost_c = Σ_j [f(S_jc) − f(S_jc + x_j)] + f(T_c + |x|) − f(T_c),   f(t) = t log t       (sweep_counts, entropy_costs)
    cost_c = ‖S_c‖ − ‖S_c + x‖                                                             (length_costs)

with |x| = Σ_j x_j and T_c = Σ_j S_jc, and adds it to the cluster of the lowest cost. A row leaves its cluster only for
a gain larger than rounding errors, and the last row of a cluster stays. ``doubt_i`` is how much worse the second-best
cluster is than the best.

Entries are a tuple: row i has the entries ``indptr[i]`` to ``indptr[i + 1]`` of ``data``. Their features are at the
same positions of ``indices``; if ``dense``, at positions counted from the start of the row. ``weights`` (n,) multiply
the rows. Counts are reordered first (ones_first).
"""

from typing import Any

import numpy as np

from .functions import log, log1p_of_quotient, log_and
from .jit import jit, jit_inlined

MIN_GAIN = 1e-10  # least gain of a move, relative to the costs of the row; smaller gains may be rounding errors
COST_ROUNDING = 4e-15  # rounding error of a cost, relative to its terms, which can be far larger than the cost itself


@jit
def f(t: float) -> float:
    """The entropy function t log t, with f(0) = 0."""
    return t * log(t) if t > 0.0 else 0.0


@jit
def decide(i: int, own: int, cost: Any, rounding: float, labels: Any, sizes: Any, margins: Any) -> int:
    """Move row i to the cluster of the lowest cost, unless its own would become empty or the gain may be rounding."""
    k, new, margin = len(cost), own, np.inf
    for c in range(k):
        if c != own and cost[c] < cost[new] - MIN_GAIN * (abs(cost[c]) + abs(cost[new])) - rounding:
            new = c
    for c in range(k):
        if c != new:
            margin = min(margin, cost[c] - cost[new])
    margins[i] = margin
    if new == own or sizes[own] == 1:
        return own
    labels[i] = new
    sizes[own] -= 1
    sizes[new] += 1
    return new


@jit
def ones_first(entries: Any, weights: Any, bounds: Any, ones: Any, features: Any, counts: Any) -> None:
    """The entries of each row times its weight, without zeros: first the ones, then the others, in their order.

    Entries and weights are whole numbers. Row i has features and counts from bounds[i], its ones up to ones[i].
    """
    indptr, indices, data, dense = entries
    place = 0
    for i in range(len(weights)):
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w = int(weights[i])
        bounds[i] = place
        for e in range(start, stop):
            if int(data[e]) * w == 1:
                features[place], counts[place] = indices[e - shift], 1
                place += 1
        ones[i] = place
        for e in range(start, stop):
            if int(data[e]) * w > 1:
                features[place], counts[place] = indices[e - shift], int(data[e]) * w
                place += 1
    bounds[len(weights)] = place


@jit
def sweep_counts(
    stored: Any,  # IN bounds, ones, features and counts of ones_first
    powers: Any,  # IN f(0), f(1), …
    steps: Any,  # IN f(1) − f(0), f(2) − f(1), …
    rows: Any,  # IN rows to try, in this order
    labels: Any,  # IN/OUT (n,)
    S: Any,  # IN/OUT (p, k) sums
    slopes: Any,  # IN/OUT (p, k) f(S + 1) − f(S)
    T: Any,  # IN/OUT (k,) totals
    sizes: Any,  # IN/OUT (k,) number of nonzero rows
    margins: Any,  # OUT (n,)
) -> tuple[int, float]:
    """Sweep over counts: f comes from tables, for entries of 1 from ``slopes``. → number of moves, and their gain"""
    (bounds, ones, features, counts), k = stored, len(T)
    cost, entropies = np.empty(k), np.empty(k)
    for c in range(k):
        entropies[c] = f(T[c])
    moved, gain = 0, 0.0
    for i in rows:
        start, middle, stop = bounds[i], ones[i], bounds[i + 1]
        if start == stop:
            margins[i] = np.inf
            continue
        own = labels[i]
        mass, back = middle - start, 0.0
        cost[:] = 0.0
        for e in range(middle, stop):
            x, sums = np.uint64(counts[e]), S[features[e]]
            mass += np.int64(x)
            s = np.uint64(sums[own])
            back += powers[s - x] - powers[s]
            # The table ends at the largest sum, and the own sum plus x may lie beyond it, so own is left out.
            for c in range(own):
                t = np.uint64(sums[c])
                cost[c] += powers[t] - powers[t + x]
            for c in range(own + 1, k):
                t = np.uint64(sums[c])
                cost[c] += powers[t] - powers[t + x]
        e = start
        while e + 4 <= middle:
            j0, j1, j2, j3 = features[e], features[e + 1], features[e + 2], features[e + 3]
            s0, s1, s2, s3 = slopes[j0], slopes[j1], slopes[j2], slopes[j3]
            for c in range(k):
                cost[c] -= (s0[c] + s1[c]) + (s2[c] + s3[c])
            back -= (last_step(steps, S, j0, own) + last_step(steps, S, j1, own)) + (
                last_step(steps, S, j2, own) + last_step(steps, S, j3, own)
            )
            e += 4
        while e < middle:
            s0 = slopes[features[e]]
            for c in range(k):
                cost[c] -= s0[c]
            back -= last_step(steps, S, features[e], own)
            e += 1
        for c in range(k):
            cost[c] += f(T[c] + mass) - entropies[c]
        cost[own] = back + entropies[own] - f(T[own] - mass)
        new = decide(i, own, cost, 0.0, labels, sizes, margins)
        if new == own:
            continue
        moved += 1
        gain += cost[own] - cost[new]
        T[own] -= mass
        T[new] += mass
        entropies[own], entropies[new] = f(T[own]), f(T[new])
        for e in range(start, stop):
            x, j = counts[e], features[e]
            S[j, own] -= x
            S[j, new] += x
            slopes[j, own] = steps[S[j, own]]
            slopes[j, new] = steps[S[j, new]]
    return moved, gain


@jit
def last_step(steps: Any, S: Any, j: int, c: int) -> float:
    """f(S_jc) − f(S_jc − 1)"""
    return steps[np.uint64(S[j, c]) - np.uint64(1)]


@jit
def sweep(
    entries: Any, weights: Any, lengths: bool, rows: Any, labels: Any, S: Any, T: Any, sizes: Any, margins: Any
) -> tuple[int, float]:
    """Sweep over any numbers, for entropies nonnegative ones. → number of moves, and their gain

    With ``lengths``, the lengths of the sums are the cost, and T (k,) is ‖S_c‖². The labels, S, T, sizes (k,), the
    number of nonzero rows of each cluster, and margins (n,) are updated.
    """
    indptr, indices, data, dense = entries
    cost, products = np.empty(len(T)), np.empty(len(T))
    moved, gain = 0, 0.0
    for i in rows:
        start, stop, own = indptr[i], indptr[i + 1], labels[i]
        x, features = data[start:stop], indices if dense else indices[start:stop]
        if lengths:
            mass, rounding = length_costs(x, weights[i], features, own, S, T, products, cost), 0.0
        else:
            mass, rounding = entropy_costs(x, weights[i], features, own, S, T, cost)
        if mass == 0.0:
            margins[i] = np.inf
            continue
        new = decide(i, own, cost, rounding, labels, sizes, margins)
        if new == own:
            continue
        moved += 1
        gain += cost[own] - cost[new]
        if lengths:
            T[own] = max(T[own] - 2.0 * products[own] + mass, 0.0)
            T[new] += 2.0 * products[new] + mass
        else:
            T[own] -= mass
            T[new] += mass
        for e in range(len(x)):
            value, sums = np.float64(x[e]) * weights[i], S[features[e]]
            sums[own] = sums[own] - value if lengths else max(sums[own] - value, 0.0)
            sums[new] += value
    return moved, gain


@jit
def entropy_costs(x: Any, w: float, features: Any, own: int, S: Any, T: Any, cost: Any) -> tuple[float, float]:
    """Costs of a row of nonnegative numbers: every f takes a logarithm. → |x|, and the rounding error of a cost"""
    mass = largest = 0.0
    cost[:] = 0.0
    for e in range(len(x)):
        value, sums = np.float64(x[e]) * w, S[features[e]]
        if value == 0.0:
            continue
        mass += value
        for c in range(len(cost)):
            t = sums[c] if c != own else max(sums[c] - value, 0.0)
            cost[c] -= rise(t, value)
    if mass > 0.0:
        for c in range(len(cost)):
            part = rise(T[c] if c != own else max(T[c] - mass, 0.0), mass)
            largest = max(largest, abs(part))
            cost[c] += part
    return mass, COST_ROUNDING * largest


@jit_inlined
def rise(t: float, x: float) -> float:
    """f(t + x) − f(t) for x > 0, without cancellation."""
    return t * log1p_of_quotient(x / t) + x * log_and(t + x, 0.0, -0.0)


@jit
def length_costs(x: Any, w: float, features: Any, own: int, S: Any, squares: Any, products: Any, cost: Any) -> float:
    """Costs of a row by the lengths of the sums, and its inner products with these. → ‖x‖²"""
    square = 0.0
    products[:] = 0.0
    for e in range(len(x)):
        value, sums = np.float64(x[e]) * w, S[features[e]]
        square += value * value
        for c in range(len(cost)):
            products[c] += value * sums[c]
    for c in range(len(cost)):
        cost[c] = np.sqrt(squares[c]) - np.sqrt(max(squares[c] + 2.0 * products[c] + square, 0.0))
    without = max(squares[own] - 2.0 * products[own] + square, 0.0)
    cost[own] = np.sqrt(without) - np.sqrt(squares[own])
    return square
