"""Assignment: the template with the largest inner product, for each row.

    label_i = argmax_k ⟨x_i, b_k⟩,  best_i = max_k ⟨x_i, b_k⟩        (ties: the lowest k)

Only the k scores of one row exist at a time. They are summed in float64 in the order of the features, so they depend on
the row and the templates alone: not on blocks, threads or neighbours. Templates come transposed, ``BT`` (p, k), which
makes the inner loop run over adjacent numbers. Entries x = 0 are passed over: 0 · (−∞) counts as 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit


@jit
def lowest_argmax(scores: Any) -> int:
    """The lowest index of the largest score."""
    winner = 0
    for c in range(1, len(scores)):
        if scores[c] > scores[winner]:
            winner = c
    return winner


@jit
def best_template_csr(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    BT: Any,  # IN (p, k) float64
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of a CSR matrix."""
    k = BT.shape[1]
    scores = np.empty(k)
    for i in range(start, stop):
        scores[:] = 0.0
        for entry in range(indptr[i], indptr[i + 1]):
            x = np.float64(data[entry])
            if x != 0.0:
                b = BT[indices[entry]]
                for c in range(k):
                    scores[c] += x * b[c]
        labels[i] = winner = lowest_argmax(scores)
        best[i] = scores[winner]


@jit
def best_template_dense(
    X: Any,  # IN (n, p)
    BT: Any,  # IN (p, k) float64
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    labels: Any,  # OUT (n,) int32
    best: Any,  # OUT (n,) float64
) -> None:
    """Label and best score of rows start to stop of an array."""
    p, k = BT.shape
    scores = np.empty(k)
    for i in range(start, stop):
        scores[:] = 0.0
        for j in range(p):
            x = np.float64(X[i, j])
            if x != 0.0:
                b = BT[j]
                for c in range(k):
                    scores[c] += x * b[c]
        labels[i] = winner = lowest_argmax(scores)
        best[i] = scores[winner]
