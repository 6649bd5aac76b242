"""The kernels of a step: the best template of each row, and sums of weighted rows by label.

    label_i = argmax_k score_ik,  best_i = max_k score_ik,  score_ik = ⟨x_i, b_k⟩ + offset_k        (ties: the lowest k)
    sums_k = Σ_{i : label_i = k} w_i x_i

Only the scores of one row, or of four dense ones, exist at a time. They are summed in float64, in the same order for
every row. They depend only on the row and the templates, not on blocks, threads or neighbouring rows. For sparse rows
the templates are transposed, ``BT`` (p, k), so the inner loop reads contiguous memory.

To be summed, sparse rows are sorted by label, and by index within a label. Each call sums whole clusters, so every sum
is added in the order of the rows, on any number of threads. Rows of an array are sorted by label in blocks that stay in
the cache, and added four at a time; each call sums a part of them. If sums are exact, as with counts, they can be
updated for the rows that changed their label instead: sums_old −= w_i x_i, sums_new += w_i x_i.

Arguments, if not said otherwise: X (n, p) are rows, csr the arrays indptr, indices and data of a CSR matrix, B (k, p)
templates and BT (p, k) their transpose, both with more than k if that suits the kernel, starts (k,) the offset of each
score, k the number of templates; rows, clusters or groups start to stop, without stop, are worked on; labels, best and
weights are (n,), order (n,) rows sorted by label, bounds (k + 1,) where each label starts in it, sums (k, p). Kernels
write to their last arguments.
"""

from typing import Any

import numpy as np

from .jit import jit, jit_any_order, jit_inlined
from .lanes import WIDTH, add_products, load, total, zeros

INFINITE = -1e300  # for −∞ in a template: times 0 it is 0, times any other entry below all finite scores
ROWS_SORTED = 256  # rows of an array that are sorted by label together: they stay in the cache until they are summed
IN_CACHE = 1 << 24  # bytes of an array that the cache may hold from one step to the next


@jit
def transpose_templates(B: Any, BT: Any, start: int) -> bool:
    """Write m templates into columns start to start + m of BT; True if one of their entries is −∞."""
    m, p = B.shape
    infinite = False
    for j in range(p):
        for c in range(m):
            entry = B[c, j]
            if entry < INFINITE:
                entry, infinite = INFINITE, True
            BT[j, start + c] = entry
    return infinite


@jit
def best_other(scores: Any, k: int, label: int) -> float:
    """The largest of the first k scores other than that of ``label``; −∞ if there is no other."""
    best = -np.inf
    for c in range(k):
        if c != label and scores[c] > best:
            best = scores[c]
    return best


@jit
def lowest_argmax(scores: Any, k: int) -> int:
    """The lowest index of the largest of the first k scores."""
    winner = 0
    for c in range(1, k):
        if scores[c] > scores[winner]:
            winner = c
    return winner


@jit
def best_template_csr(csr: Any, BT: Any, starts: Any, k: int, start: int, stop: int, labels: Any, best: Any) -> None:
    """Label and best score of rows start to stop of a CSR matrix."""
    indptr, indices, data = csr
    scores = np.empty(BT.shape[1])
    for i in range(start, stop):
        score_csr(indptr[i], indptr[i + 1], indices, data, BT, starts, scores)
        labels[i] = winner = lowest_argmax(scores, k)
        best[i] = scores[winner]


@jit
def own_and_next_csr(
    csr: Any, BT: Any, starts: Any, k: int, start: int, stop: int, labels: Any, own: Any, following: Any
) -> None:
    """Score of the template of the label, and the largest of the others, for rows start to stop of a CSR matrix."""
    indptr, indices, data = csr
    scores = np.empty(BT.shape[1])
    for i in range(start, stop):
        score_csr(indptr[i], indptr[i + 1], indices, data, BT, starts, scores)
        own[i], following[i] = scores[labels[i]], best_other(scores, k, labels[i])


@jit
def best_template_dense(X: Any, B: Any, starts: Any, k: int, start: int, stop: int, labels: Any, best: Any) -> None:
    """Label and best score of rows start to stop of an array; B has an even number of rows."""
    scores = np.empty((4, len(B)))
    for first in range(start, stop, 4):
        score_four(X, B, starts, first, stop - 1, scores)
        for r in range(min(4, stop - first)):
            labels[first + r] = winner = lowest_argmax(scores[r], k)
            best[first + r] = scores[r, winner]


@jit
def own_and_next_dense(
    X: Any, B: Any, starts: Any, k: int, start: int, stop: int, labels: Any, own: Any, following: Any
) -> None:
    """The same as own_and_next_csr for rows start to stop of an array."""
    scores = np.empty((4, len(B)))
    for first in range(start, stop, 4):
        score_four(X, B, starts, first, stop - 1, scores)
        for r in range(min(4, stop - first)):
            i = first + r
            own[i], following[i] = scores[r, labels[i]], best_other(scores[r], k, labels[i])


@jit
def scores_csr(csr: Any, BT: Any, starts: Any, k: int, start: int, stop: int, scores: Any) -> None:
    """All scores (n, k) of rows start to stop of a CSR matrix."""
    indptr, indices, data = csr
    for i in range(start, stop):
        score_csr(indptr[i], indptr[i + 1], indices, data, BT, starts, scores[i])


@jit
def scores_dense(X: Any, B: Any, starts: Any, k: int, start: int, stop: int, scores: Any) -> None:
    """The same for rows start to stop of an array."""
    four = np.empty((4, len(B)))
    for first in range(start, stop, 4):
        score_four(X, B, starts, first, stop - 1, four)
        for r in range(min(4, stop - first)):
            for c in range(k):  # numba compiles an assignment of slices for seconds, with the text of an error
                scores[first + r, c] = four[r, c]


@jit
def score_csr(e: int, end: int, indices: Any, data: Any, BT: Any, starts: Any, scores: Any) -> None:
    """Scores of the sparse row with entries e to end."""
    width = BT.shape[1]
    for c in range(width):
        scores[c] = starts[c]
    while e + 4 <= end:
        x0, x1 = np.float64(data[e]), np.float64(data[e + 1])
        x2, x3 = np.float64(data[e + 2]), np.float64(data[e + 3])
        b0, b1 = BT[np.uintp(indices[e])], BT[np.uintp(indices[e + 1])]
        b2, b3 = BT[np.uintp(indices[e + 2])], BT[np.uintp(indices[e + 3])]
        for c in range(width):
            scores[c] += (x0 * b0[c] + x1 * b1[c]) + (x2 * b2[c] + x3 * b3[c])
        e += 4
    while e < end:
        x0 = np.float64(data[e])
        b0 = BT[np.uintp(indices[e])]
        for c in range(width):
            scores[c] += x0 * b0[c]
        e += 1


@jit
def score_four(X: Any, B: Any, starts: Any, first: int, last: int, scores: Any) -> None:
    """Scores of rows first to first + 3 of an array; if fewer are left, the last one is scored several times."""
    x1, x2, x3 = X[min(first + 1, last)], X[min(first + 2, last)], X[min(first + 3, last)]
    score_rows(X[first], x1, x2, x3, B, starts, scores)


@jit
def score_rows(x0: Any, x1: Any, x2: Any, x3: Any, B: Any, starts: Any, scores: Any) -> None:
    """Scores of four rows of an array, two templates at once. A score does not depend on the other rows."""
    p = B.shape[1]
    whole = p - p % WIDTH
    for c in range(0, len(B), 2):
        b, d = B[c], B[c + 1]
        b0 = b1 = b2 = b3 = d0 = d1 = d2 = d3 = zeros()
        for j in range(0, whole, WIDTH):
            bj, dj = load(b, j), load(d, j)
            t0, t1, t2, t3 = load(x0, j), load(x1, j), load(x2, j), load(x3, j)
            b0, b1 = add_products(b0, t0, bj), add_products(b1, t1, bj)
            b2, b3 = add_products(b2, t2, bj), add_products(b3, t3, bj)
            d0, d1 = add_products(d0, t0, dj), add_products(d1, t1, dj)
            d2, d3 = add_products(d2, t2, dj), add_products(d3, t3, dj)
        e0, e1, e2, e3 = total(b0), total(b1), total(b2), total(b3)
        f0, f1, f2, f3 = total(d0), total(d1), total(d2), total(d3)
        for j in range(whole, p):
            bk, dk = b[j], d[j]
            u0, u1, u2, u3 = np.float64(x0[j]), np.float64(x1[j]), np.float64(x2[j]), np.float64(x3[j])
            e0, e1, e2, e3 = e0 + u0 * bk, e1 + u1 * bk, e2 + u2 * bk, e3 + u3 * bk
            f0, f1, f2, f3 = f0 + u0 * dk, f1 + u1 * dk, f2 + u2 * dk, f3 + u3 * dk
        s, t = starts[c], starts[c + 1]
        scores[0, c], scores[1, c], scores[2, c], scores[3, c] = e0 + s, e1 + s, e2 + s, e3 + s
        scores[0, c + 1], scores[1, c + 1], scores[2, c + 1], scores[3, c + 1] = f0 + t, f1 + t, f2 + t, f3 + t


@jit
def add_products_of_rows(A: Any, B: Any, out: Any) -> None:
    """Add the product of two matrices to ``out``."""
    for i in range(len(A)):
        row = out[i]
        for s in range(len(B)):
            a, b = A[i, s], B[s]
            for j in range(len(b)):
                row[j] += a * b[j]


@jit_any_order
def total_if_whole(values: Any, start: int, stop: int) -> float:
    """Σ |x| of entries start to stop if all are integers, else infinity."""
    total = fraction = 0.0
    for i in range(start, stop):
        x = np.float64(values[i])
        total += abs(x)
        fraction += abs(x - np.rint(x))
    return total if fraction == 0.0 else np.inf


@jit
def sum_rows(entries: Any, weights: Any, rows: Any, labels: Any, sums: Any) -> None:
    """Add some of the rows, in this order, to sums (p, k); entries are as in onmf.kernels.hartigan."""
    indptr, indices, data, dense = entries
    for i in rows:
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        w, c = weights[i], labels[i]
        for e in range(start, stop):
            sums[indices[e - shift], c] += w * data[e]


@jit
def sum_by_label_csr(csr: Any, order: Any, bounds: Any, weights: Any, start: int, stop: int, sums: Any) -> None:
    """Add the rows of clusters start to stop of a CSR matrix to their sums."""
    indptr, indices, data = csr
    for c in range(start, stop):
        total = sums[c]
        for position in range(bounds[c], bounds[c + 1]):
            i = order[position]
            w = weights[i]
            for entry in range(indptr[i], indptr[i + 1]):
                total[np.uintp(indices[entry])] += w * np.float64(data[entry])


@jit
def score_and_sum_csr(
    csr: Any,  # IN
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
    indptr, indices, data = csr
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


@jit
def sum_by_label_dense(X: Any, labels: Any, weights: Any, cuts: Any, start: int, stop: int, groups: Any) -> float:
    """Add groups start to stop of the rows of an array to sums (m, k, p) of their own. Returns as score_and_sum."""
    k, w, touched = groups.shape[1], np.empty(4), 0.0
    order, bounds = np.empty(ROWS_SORTED + 3, np.int64), np.empty(k + 1, np.int64)
    for group in range(start, stop):
        end, sums = cuts[group + 1], groups[group]
        for first in range(cuts[group], end, ROWS_SORTED):
            last = min(first + ROWS_SORTED, end)
            touched += prefetch(X, first, last)
            sort_by_label(labels, first, last, bounds, order)
            for c in range(k):
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
    """Score groups of the rows of an array against their own templates, and add them to sums, in one read.

    The result is that of prefetch.
    """
    k, w, scores, touched = groups.shape[1], np.empty(4), np.empty(4), 0.0
    order, bounds = np.empty(ROWS_SORTED + 3, np.int64), np.empty(k + 1, np.int64)
    for group in range(start, stop):
        end, sums = cuts[group + 1], groups[group]
        for first in range(cuts[group], end, ROWS_SORTED):
            last = min(first + ROWS_SORTED, end)
            touched += prefetch(X, first, last)
            sort_by_label(labels, first, last, bounds, order)
            for c in range(k):
                for f in range(bounds[c], bounds[c + 1], 4):
                    rows = order[f : f + 4]
                    score_own_four(X, rows, B[c], starts[c], scores)
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
def sort_by_label(labels: Any, first: int, last: int, bounds: Any, order: Any) -> None:
    """Sort rows first to last by label: label c has order[bounds[c]:bounds[c + 1]].

    Within a label, rows stay in order. The last row comes thrice more, if there is room.
    """
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


@jit_inlined
def score_own_four(X: Any, rows: Any, b: Any, start: float, scores: Any) -> None:
    """Inner products of four rows of an array with a template, plus its offset: the bits of score_rows."""
    x0, x1, x2, x3 = X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]]
    whole = len(b) - len(b) % WIDTH
    s0 = s1 = s2 = s3 = zeros()
    for j in range(0, whole, WIDTH):
        bj = load(b, j)
        s0, s1 = add_products(s0, load(x0, j), bj), add_products(s1, load(x1, j), bj)
        s2, s3 = add_products(s2, load(x2, j), bj), add_products(s3, load(x3, j), bj)
    e0, e1, e2, e3 = total(s0), total(s1), total(s2), total(s3)
    for j in range(whole, len(b)):
        bk = b[j]
        e0, e1 = e0 + np.float64(x0[j]) * bk, e1 + np.float64(x1[j]) * bk
        e2, e3 = e2 + np.float64(x2[j]) * bk, e3 + np.float64(x3[j]) * bk
    scores[0], scores[1], scores[2], scores[3] = e0 + start, e1 + start, e2 + start, e3 + start


@jit_inlined
def add_four(X: Any, rows: Any, weights: Any, total: Any) -> None:
    """Add four weighted rows of an array to a sum."""
    x0, x1, x2, x3 = X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for j in range(len(total)):
        first = w0 * np.float64(x0[j]) + w1 * np.float64(x1[j])
        total[j] += first + (w2 * np.float64(x2[j]) + w3 * np.float64(x3[j]))


@jit
def move_rows_csr(csr: Any, moved: Any, before: Any, labels: Any, weights: Any, sums: Any) -> None:
    """Update sums for the rows of a CSR matrix that moved, from the labels before."""
    indptr, indices, data = csr
    for i in moved:
        w = weights[i]
        old, new = sums[before[i]], sums[labels[i]]
        for entry in range(indptr[i], indptr[i + 1]):
            x = w * np.float64(data[entry])
            old[indices[entry]] -= x
            new[indices[entry]] += x


@jit
def move_rows_dense(X: Any, moved: Any, before: Any, labels: Any, weights: Any, sums: Any) -> None:
    """Update sums for the rows of an array that moved, from the labels before."""
    for i in moved:
        w = weights[i]
        old, new = sums[before[i]], sums[labels[i]]
        for j in range(X.shape[1]):
            x = w * np.float64(X[i, j])
            old[j] -= x
            new[j] += x


@jit
def tally(
    labels: Any, before: Any, scales: Any, scales_before: Any, losses: Any, weights: Any, own: Any, table: Any
) -> None:
    """Fill the table (7, k) of a step, zero on entry: sums over the rows of each cluster, as COUNTED names them.

    With v the weights, w the own ones, and a' the scale of a row in the last step: mass Σ v a, counts Σ w, Σ w a,
    Σ w a², overlap Σ w a a' over the rows that stayed, loss Σ w·loss, and the number of rows that moved. Rows of
    weight 0 do not count as moved. In the first step, ``before`` and ``scales_before`` are ().
    """
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
