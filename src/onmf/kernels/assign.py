"""Assignment: the template with the largest inner product, for each row.

    label_i = argmax_k ⟨x_i, b_k⟩,  best_i = max_k ⟨x_i, b_k⟩        (ties: the lowest k)

Only the scores of one row, or of four dense ones, exist at a time. They are summed in float64 in the order of the
features, four features at once, so they depend on the row and the templates alone: not on blocks, threads or
neighbours. Templates come transposed, ``BT`` (p, k), which makes the inner loop run over adjacent numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit, jit_any_order

INFINITE = -1e300
"""Stands for −∞ in a template: its product with 0 is 0, and with any other entry it is below every finite score."""


@jit
def transpose_templates(B: Any, BT: Any, start: int) -> bool:
    """Write B (m, p) into columns start to start + m of BT (p, k); True if one of its entries is −∞."""
    m, p = B.shape
    infinite = False
    for first in range(0, p, 64):
        for j in range(first, min(first + 64, p)):
            for c in range(m):
                b = B[c, j]
                if b < INFINITE:
                    b = INFINITE
                    infinite = True
                BT[j, start + c] = b
    return infinite


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
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of a CSR matrix."""
    width = BT.shape[1]
    scores = np.empty(width)
    for i in range(start, stop):
        scores[:] = 0.0
        e, end = indptr[i], indptr[i + 1]
        while e + 4 <= end:
            x0, x1 = np.float64(data[e]), np.float64(data[e + 1])
            x2, x3 = np.float64(data[e + 2]), np.float64(data[e + 3])
            b0, b1 = BT[indices[e]], BT[indices[e + 1]]
            b2, b3 = BT[indices[e + 2]], BT[indices[e + 3]]
            for c in range(width):
                scores[c] += (x0 * b0[c] + x1 * b1[c]) + (x2 * b2[c] + x3 * b3[c])
            e += 4
        while e < end:
            x0 = np.float64(data[e])
            b0 = BT[indices[e]]
            for c in range(width):
                scores[c] += x0 * b0[c]
            e += 1
        labels[i] = winner = lowest_argmax(scores, k)
        best[i] = scores[winner]


@jit_any_order
def best_template_few(
    X: Any,  # IN (n, p)
    B: Any,  # IN (k or more, p) float64, its length a multiple of 4; not transposed
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of an array, for few templates: four inner products at once."""
    scores = np.empty(len(B))
    for i in range(start, stop):
        x = X[i]
        for c in range(0, len(B), 4):
            b0, b1, b2, b3 = B[c], B[c + 1], B[c + 2], B[c + 3]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(len(x)):
                t = np.float64(x[j])
                s0 += t * b0[j]
                s1 += t * b1[j]
                s2 += t * b2[j]
                s3 += t * b3[j]
            scores[c], scores[c + 1], scores[c + 2], scores[c + 3] = s0, s1, s2, s3
        labels[i] = winner = lowest_argmax(scores, k)
        best[i] = scores[winner]


@jit
def best_template_dense(
    X: Any,  # IN (n, p)
    BT: Any,  # IN (p, k or more) float64
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of an array.

    Four rows share what is read of the templates. The last ones, fewer than four, are scored together with rows before
    them: a score is the same in whatever company.
    """
    p, width = BT.shape
    scores = np.empty((4, width))
    s0, s1, s2, s3 = scores[0], scores[1], scores[2], scores[3]
    for first in range(start, stop, 4):
        r0 = first
        r1, r2, r3 = min(first + 1, stop - 1), min(first + 2, stop - 1), min(first + 3, stop - 1)
        X0, X1, X2, X3 = X[r0], X[r1], X[r2], X[r3]
        scores[:] = 0.0
        j = 0
        while j + 4 <= p:
            b0, b1, b2, b3 = BT[j], BT[j + 1], BT[j + 2], BT[j + 3]
            x00, x01, x02, x03 = np.float64(X0[j]), np.float64(X0[j + 1]), np.float64(X0[j + 2]), np.float64(X0[j + 3])
            x10, x11, x12, x13 = np.float64(X1[j]), np.float64(X1[j + 1]), np.float64(X1[j + 2]), np.float64(X1[j + 3])
            x20, x21, x22, x23 = np.float64(X2[j]), np.float64(X2[j + 1]), np.float64(X2[j + 2]), np.float64(X2[j + 3])
            x30, x31, x32, x33 = np.float64(X3[j]), np.float64(X3[j + 1]), np.float64(X3[j + 2]), np.float64(X3[j + 3])
            for c in range(width):
                t0, t1, t2, t3 = b0[c], b1[c], b2[c], b3[c]
                s0[c] += (x00 * t0 + x01 * t1) + (x02 * t2 + x03 * t3)
                s1[c] += (x10 * t0 + x11 * t1) + (x12 * t2 + x13 * t3)
                s2[c] += (x20 * t0 + x21 * t1) + (x22 * t2 + x23 * t3)
                s3[c] += (x30 * t0 + x31 * t1) + (x32 * t2 + x33 * t3)
            j += 4
        while j < p:
            b0 = BT[j]
            x00, x10, x20, x30 = np.float64(X0[j]), np.float64(X1[j]), np.float64(X2[j]), np.float64(X3[j])
            for c in range(width):
                s0[c] += x00 * b0[c]
                s1[c] += x10 * b0[c]
                s2[c] += x20 * b0[c]
                s3[c] += x30 * b0[c]
            j += 1
        for r in range(min(4, stop - first)):
            labels[first + r] = winner = lowest_argmax(scores[r], k)
            best[first + r] = scores[r, winner]
