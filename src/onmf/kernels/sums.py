"""Sums of weighted rows by label, from which centroids are computed.

    sums_k = Σ_{i : label_i = k} w_i x_i

Sparse rows are sorted by label, and by index within a label. Each call sums whole clusters, so every sum is added in
the order of the rows, on any number of threads. Rows of an array are sorted by label in blocks that stay in the cache,
and added four at a time; each call sums a part of them.

If sums are exact, as with counts, they can be updated for the rows that changed their label instead:

    sums_old −= w_i x_i,  sums_new += w_i x_i

The totals of a step are counted in one pass over the rows. With w the weight of a row, v its weight in the sums, a its
scale and a' its last scale,

    mass_k = Σ v a,  counts_k = Σ w,  sums_k = Σ w a,  squares_k = Σ w a²,
    overlap_k = Σ_{stayed} w a a',  loss_k = Σ w loss,  moved_k = Σ_{moved} 1

over the rows of cluster k. Rows of weight 0 do not count as moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit, jit_any_order


@jit_any_order
def total_if_whole(
    values: Any,  # IN
    start: int,  # IN first entry
    stop: int,  # IN one past the last entry
) -> float:
    """Σ |x| of entries start to stop if all are integers, else infinity."""
    total = fraction = 0.0
    for i in range(start, stop):
        x = np.float64(values[i])
        total += abs(x)
        fraction += abs(x - np.rint(x))
    return total if fraction == 0.0 else np.inf


@jit
def sum_rows(
    indptr: Any,  # IN (n + 1,) entries as in onmf.kernels.hartigan
    indices: Any,  # IN
    data: Any,  # IN
    dense: bool,
    weights: Any,  # IN (n,)
    rows: Any,  # IN rows to sum, in this order
    labels: Any,  # IN (n,)
    sums: Any,  # OUT (p, k); zero on entry
) -> None:
    """Sums of some of the rows, on one thread."""
    for i in rows:
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w, c = weights[i], labels[i]
        for e in range(start, stop):
            sums[indices[e - shift], c] += w * data[e]


@jit
def order_by_label(
    labels: Any,  # IN (n,)
    bounds: Any,  # OUT (k + 1,) where each label starts in order; zero on entry
    order: Any,  # OUT (n,) rows sorted by label, and by index within a label
) -> None:
    """Sort rows by label, with a counting sort."""
    k = len(bounds) - 1
    for label in labels:
        bounds[label + 1] += 1
    for c in range(k):
        bounds[c + 1] += bounds[c]
    place = bounds[:k].copy()
    for i in range(len(labels)):
        order[place[labels[i]]] = i
        place[labels[i]] += 1


@jit
def sum_by_label_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    order: Any,  # IN (n,) rows sorted by label
    bounds: Any,  # IN (k + 1,) where each label starts in order
    weights: Any,  # IN (n,) float64
    start: int,  # IN first cluster
    stop: int,  # IN one past the last cluster
    sums: Any,  # OUT (k, p) float64, zero on entry
) -> None:
    """Sums of clusters start to stop over a CSR matrix."""
    for c in range(start, stop):
        total = sums[c]
        for position in range(bounds[c], bounds[c + 1]):
            i = order[position]
            w = weights[i]
            for entry in range(indptr[i], indptr[i + 1]):
                total[np.uintp(indices[entry])] += w * np.float64(data[entry])


@jit
def score_and_sum_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    order: Any,  # IN (n,) rows sorted by label
    clusters: Any,  # IN (m,) label of each part of the order
    bounds: Any,  # IN (m + 1,) where each part starts in the order
    places: Any,  # IN (m,) row of further for a part, or −1 if it is the first of its label
    W: Any,  # IN (k, p) centroids
    sizes: Any,  # IN (k,) their sizes: a template is c / size
    weights: Any,  # IN (n,) float64, or () if the weight is the score, or 0 if that is negative
    own: Any,  # IN (n,) factor of such a weight, or () if all are one
    start: int,  # IN first part
    stop: int,  # IN one past the last part
    best: Any,  # OUT (n,) score of the template of the label: the bits of score_csr
    sums: Any,  # OUT (k, p) float64: sums of the first parts of each label
    further: Any,  # OUT float64: sums of the other parts
) -> None:
    """Score the rows of some parts against the templates of their labels, and sum them, in one read."""
    for part in range(start, stop):
        c = clusters[part]
        total = sums[c] if places[part] < 0 else further[places[part]]
        for j in range(len(total)):
            total[j] = 0.0
        w, size = W[c], sizes[c] if sizes[c] != 0.0 else np.inf  # the template of a centroid that is zero is zero
        for position in range(bounds[part], bounds[part + 1]):
            i = order[position]
            e, end, score = indptr[i], indptr[i + 1], 0.0
            while e + 4 <= end:
                m0 = np.float64(data[e]) * (w[np.uintp(indices[e])] / size)
                m1 = np.float64(data[e + 1]) * (w[np.uintp(indices[e + 1])] / size)
                m2 = np.float64(data[e + 2]) * (w[np.uintp(indices[e + 2])] / size)
                m3 = np.float64(data[e + 3]) * (w[np.uintp(indices[e + 3])] / size)
                score += (m0 + m1) + (m2 + m3)
                e += 4
            while e < end:
                score += np.float64(data[e]) * (w[np.uintp(indices[e])] / size)
                e += 1
            best[i] = score
            weight = weights[i] if len(weights) else max(score, 0.0)
            if len(own) and not len(weights):
                weight *= own[i]
            for entry in range(indptr[i], end):
                total[np.uintp(indices[entry])] += weight * np.float64(data[entry])


ROWS_SORTED = 256
"""Rows of an array that are sorted by label together: they stay in the cache until they are summed."""

IN_CACHE = 1 << 24
"""Bytes of an array that the cache may hold from one step to the next."""


@jit
def sum_by_label_dense(
    X: Any,  # IN (n, p)
    labels: Any,  # IN (n,)
    weights: Any,  # IN (n,) float64
    cuts: Any,  # IN (m + 1,) first row of each group
    start: int,  # IN first group
    stop: int,  # IN one past the last group
    groups: Any,  # IN/OUT (m, k, p) float64
) -> float:
    """Add groups start to stop of the rows of an array to sums of their own."""
    touched = 0.0
    for group in range(start, stop):
        touched += add_by_label(X, labels, weights, cuts[group], cuts[group + 1], groups[group])
    return touched


@jit
def add_by_label(X: Any, labels: Any, weights: Any, start: int, stop: int, sums: Any) -> float:
    """Add rows start to stop of an array to the sums, (k, p)."""
    order, bounds = np.empty(ROWS_SORTED + 3, np.int64), np.empty(len(sums) + 1, np.int64)
    w, touched = np.empty(4), 0.0
    for first in range(start, stop, ROWS_SORTED):
        last = min(first + ROWS_SORTED, stop)
        touched += prefetch(X, first, last)
        sort_block(labels, first, last, bounds, order)
        for c in range(len(sums)):
            for f in range(bounds[c], bounds[c + 1], 4):
                rows = order[f : f + 4]
                for r in range(4):
                    w[r] = weights[rows[r]] if f + r < bounds[c + 1] else 0.0
                add_four(X, rows, w, sums[c])
    return touched


@jit
def score_and_sum(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k or more, p) float64 templates
    starts: Any,  # IN (k or more,) offset of each score
    labels: Any,  # IN (n,)
    weights: Any,  # IN (n,) float64, or () if the weight is the score, or 0 if that is negative
    own: Any,  # IN (n,) factor of such a weight, or () if all are one
    adds: bool,  # IN whether to add the rows to the sums
    cuts: Any,  # IN (m + 1,) first row of each group
    start: int,  # IN first group
    stop: int,  # IN one past the last group
    best: Any,  # OUT (n,) score of the template of the label
    groups: Any,  # IN/OUT (m, k, p) float64
) -> float:
    """Score groups of the rows of an array against their own templates, and add them to sums, in one read."""
    touched = 0.0
    for group in range(start, stop):
        rows = cuts[group], cuts[group + 1]
        touched += score_and_add(X, B, starts, labels, weights, own, adds, rows[0], rows[1], best, groups[group])
    return touched


@jit
def score_and_add(
    X: Any,
    B: Any,
    starts: Any,
    labels: Any,
    weights: Any,
    own: Any,
    adds: bool,
    start: int,
    stop: int,
    best: Any,
    sums: Any,
) -> float:
    """Score rows start to stop of an array, and add them to the sums, (k, p)."""
    order, bounds = np.empty(ROWS_SORTED + 3, np.int64), np.empty(len(sums) + 1, np.int64)
    w, scores, touched = np.empty(4), np.empty(4), 0.0
    for first in range(start, stop, ROWS_SORTED):
        last = min(first + ROWS_SORTED, stop)
        touched += prefetch(X, first, last)
        sort_block(labels, first, last, bounds, order)
        for c in range(len(sums)):
            for f in range(bounds[c], bounds[c + 1], 4):
                rows = order[f : f + 4]
                score_four(X, rows, B[c], starts[c], scores)
                for r in range(4):
                    i = rows[r]
                    w[r] = 0.0
                    if f + r < bounds[c + 1]:
                        best[i] = scores[r]
                        if len(weights) > 0:
                            w[r] = weights[i]
                        else:
                            w[r] = max(scores[r], 0.0) * (own[i] if len(own) > 0 else 1.0)
                if adds:
                    add_four(X, rows, w, sums[c])
    return touched


@jit
def prefetch(X: Any, first: int, last: int) -> float:
    """Bring rows first to last of an array into the cache; the result only keeps the compiler from leaving this out.

    The processor fetches rows ahead if they are read in order, but not if they are read sorted by label.
    """
    if X.size * X.itemsize < IN_CACHE:
        return 0.0
    line = 64 // X.itemsize
    total = 0.0
    for i in range(first, last):
        x = X[i]
        for j in range(0, len(x), line):
            total += np.float64(x[j])
    return total


@jit
def sort_block(labels: Any, first: int, last: int, bounds: Any, order: Any) -> None:
    """Sort rows first to last by label: label c has order[bounds[c]:bounds[c + 1]]. The last row comes thrice more."""
    bounds[:] = 0
    for i in range(first, last):
        bounds[labels[i] + 1] += 1
    for c in range(1, len(bounds)):
        bounds[c] += bounds[c - 1]
    for i in range(first, last):
        order[bounds[labels[i]]] = i
        bounds[labels[i]] += 1
    for c in range(len(bounds) - 1, 0, -1):
        bounds[c] = bounds[c - 1]
    bounds[0] = 0
    order[last - first : last - first + 3] = last - 1


@jit_any_order
def score_four(X: Any, rows: Any, b: Any, start: float, scores: Any) -> None:
    """Inner products of four rows of an array with a template, plus its offset."""
    x0, x1, x2, x3 = X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]]
    s0 = s1 = s2 = s3 = 0.0
    for j in range(len(b)):
        bj = b[j]
        s0 += np.float64(x0[j]) * bj
        s1 += np.float64(x1[j]) * bj
        s2 += np.float64(x2[j]) * bj
        s3 += np.float64(x3[j]) * bj
    scores[0], scores[1], scores[2], scores[3] = s0 + start, s1 + start, s2 + start, s3 + start


@jit_any_order
def add_four(X: Any, rows: Any, weights: Any, total: Any) -> None:
    """Add four weighted rows of an array to a sum."""
    x0, x1, x2, x3 = X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for j in range(len(total)):
        first = w0 * np.float64(x0[j]) + w1 * np.float64(x1[j])
        total[j] += first + (w2 * np.float64(x2[j]) + w3 * np.float64(x3[j]))


@jit
def move_rows_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    moved: Any,  # IN rows that changed their label
    before: Any,  # IN (n,) labels the sums are of
    labels: Any,  # IN (n,) labels the sums shall be of
    weights: Any,  # IN (n,) float64
    sums: Any,  # IN/OUT (k, p) float64
) -> None:
    """Update the sums for the moved rows of a CSR matrix."""
    for i in moved:
        w = weights[i]
        old, new = sums[before[i]], sums[labels[i]]
        for entry in range(indptr[i], indptr[i + 1]):
            x = w * np.float64(data[entry])
            old[indices[entry]] -= x
            new[indices[entry]] += x


@jit
def move_rows_dense(
    X: Any,  # IN (n, p)
    moved: Any,  # IN rows that changed their label
    before: Any,  # IN (n,) labels the sums are of
    labels: Any,  # IN (n,) labels the sums shall be of
    weights: Any,  # IN (n,) float64
    sums: Any,  # IN/OUT (k, p) float64
) -> None:
    """Update the sums for the moved rows of an array."""
    for i in moved:
        w = weights[i]
        old, new = sums[before[i]], sums[labels[i]]
        for j in range(X.shape[1]):
            x = w * np.float64(X[i, j])
            old[j] -= x
            new[j] += x


@jit
def tally(
    labels: Any,  # IN (n,)
    before: Any,  # IN (n,) labels of the last step, or () in the first
    scales: Any,  # IN (n,)
    scales_before: Any,  # IN (n,), or ()
    losses: Any,  # IN (n,)
    weights: Any,  # IN (n,) v
    own: Any,  # IN (n,) w, or () if all are one
    table: Any,  # OUT (7, k) the rows named in COUNTED (backend/run.py), in that order; zero on entry
) -> None:
    """Fill the table."""
    first, weighted = len(before) == 0, len(own) > 0
    for i in range(len(labels)):
        k, a = labels[i], scales[i]
        w = own[i] if weighted else 1.0
        table[0, k] += weights[i] * a
        table[1, k] += w
        table[2, k] += w * a
        table[3, k] += w * a * a
        if w > 0.0:  # a row of weight 0 may have an infinite loss
            table[5, k] += w * losses[i]
        if first or before[i] != k:
            table[6, k] += 1.0 if w > 0.0 else 0.0
        else:
            table[4, k] += w * a * scales_before[i]
