"""Sum of weighted rows by label: what a centroid is made of.

    sums_k = Σ_{i : label_i = k} w_i x_i

Rows come sorted by label, in their own order within a label. Each call sums whole clusters, so every sum is added up in
the order of the rows whatever runs at the same time.

Where sums are exact, as with counts, they can follow the rows that changed their label instead:

    sums_old −= w_i x_i,  sums_new += w_i x_i
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit


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
                total[indices[entry]] += w * np.float64(data[entry])


@jit
def sum_by_label_dense(
    X: Any,  # IN (n, p)
    order: Any,  # IN (n,) rows sorted by label
    bounds: Any,  # IN (k + 1,) where each label starts in order
    weights: Any,  # IN (n,) float64
    start: int,  # IN first cluster
    stop: int,  # IN one past the last cluster
    sums: Any,  # OUT (k, p) float64, zero on entry
) -> None:
    """Sums of clusters start to stop over an array."""
    p = X.shape[1]
    for c in range(start, stop):
        total = sums[c]
        for position in range(bounds[c], bounds[c + 1]):
            i = order[position]
            w = weights[i]
            for j in range(p):
                total[j] += w * np.float64(X[i, j])


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
    """Let the sums follow the moved rows of a CSR matrix."""
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
    """Let the sums follow the moved rows of an array."""
    for i in moved:
        w = weights[i]
        old, new = sums[before[i]], sums[labels[i]]
        for j in range(X.shape[1]):
            x = w * np.float64(X[i, j])
            old[j] -= x
            new[j] += x
