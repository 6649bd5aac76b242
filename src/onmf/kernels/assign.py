"""Assignment: the template with the largest inner product, for each row.

    label_i = argmax_k score_ik,  best_i = max_k score_ik,  score_ik = ⟨x_i, b_k⟩ + offset_k        (ties: the lowest k)

Only the scores of one row, or of four dense ones, exist at a time. They are summed in float64, in the same order for
every row. They depend only on the row and the templates, not on blocks, threads or neighbouring rows. For sparse rows
the templates are transposed, ``BT`` (p, k), so the inner loop reads contiguous memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit, jit_any_order

INFINITE = -1e300
"""Replaces −∞ in a template: its product with 0 is 0, and that with any other entry is below all finite scores."""


@jit
def transpose_templates(
    B: Any,  # IN (m, p)
    BT: Any,  # OUT (p, k) whose columns start to start + m are overwritten
    start: int,  # IN
) -> bool:
    """Write templates into columns of their transpose; True if one of their entries is −∞."""
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
def best_template_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    BT: Any,  # IN (p, k or more) float64
    starts: Any,  # IN (k or more,) offset of each score
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of a CSR matrix."""
    scores = np.empty(BT.shape[1])
    for i in range(start, stop):
        score_csr(indptr[i], indptr[i + 1], indices, data, BT, starts, scores)
        labels[i] = winner = lowest_argmax(scores, k)
        best[i] = scores[winner]


@jit
def own_and_next_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    BT: Any,  # IN (p, k or more) float64
    starts: Any,  # IN (k or more,) offset of each score
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # IN (n,)
    own: Any,  # OUT (n,) score of the template of the label
    following: Any,  # OUT (n,) largest score of the others
) -> None:
    """Score of each row's own template and of the best other one, rows start to stop of a CSR matrix."""
    scores = np.empty(BT.shape[1])
    for i in range(start, stop):
        score_csr(indptr[i], indptr[i + 1], indices, data, BT, starts, scores)
        own[i], following[i] = scores[labels[i]], best_other(scores, k, labels[i])


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
def best_template_dense(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k, or k + 1 if k is odd, p) float64; not transposed
    starts: Any,  # IN (k, or k + 1,) offset of each score
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of an array."""
    scores = np.empty((4, len(B)))
    for first in range(start, stop, 4):
        score_four(X, B, starts, first, stop - 1, scores)
        for r in range(min(4, stop - first)):
            labels[first + r] = winner = lowest_argmax(scores[r], k)
            best[first + r] = scores[r, winner]


@jit
def own_and_next_dense(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k, or k + 1 if k is odd, p) float64; not transposed
    starts: Any,  # IN (k, or k + 1,) offset of each score
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # IN (n,)
    own: Any,  # OUT (n,) score of the template of the label
    following: Any,  # OUT (n,) largest score of the others
) -> None:
    """Score of each row's own template and of the best other one, rows start to stop of an array."""
    scores = np.empty((4, len(B)))
    for first in range(start, stop, 4):
        score_four(X, B, starts, first, stop - 1, scores)
        for r in range(min(4, stop - first)):
            i = first + r
            own[i], following[i] = scores[r, labels[i]], best_other(scores[r], k, labels[i])


@jit
def score_four(X: Any, B: Any, starts: Any, first: int, last: int, scores: Any) -> None:
    """Scores of rows first to first + 3 of an array; if fewer are left, the last one is scored several times."""
    x1, x2, x3 = X[min(first + 1, last)], X[min(first + 2, last)], X[min(first + 3, last)]
    score_rows(X[first], x1, x2, x3, B, starts, scores)


@jit_any_order
def score_rows(x0: Any, x1: Any, x2: Any, x3: Any, B: Any, starts: Any, scores: Any) -> None:
    """Scores of four rows of an array, two templates at once. A score does not depend on the other rows."""
    for c in range(0, len(B), 2):
        b, d = B[c], B[c + 1]
        b0 = b1 = b2 = b3 = d0 = d1 = d2 = d3 = 0.0
        for j in range(len(b)):
            bj, dj = b[j], d[j]
            t0, t1, t2, t3 = np.float64(x0[j]), np.float64(x1[j]), np.float64(x2[j]), np.float64(x3[j])
            b0 += t0 * bj
            b1 += t1 * bj
            b2 += t2 * bj
            b3 += t3 * bj
            d0 += t0 * dj
            d1 += t1 * dj
            d2 += t2 * dj
            d3 += t3 * dj
        s, t = starts[c], starts[c + 1]
        scores[0, c], scores[1, c], scores[2, c], scores[3, c] = b0 + s, b1 + s, b2 + s, b3 + s
        scores[0, c + 1], scores[1, c + 1], scores[2, c + 1], scores[3, c + 1] = d0 + t, d1 + t, d2 + t, d3 + t
