"""Sums of weighted rows by label, from which centroids are computed.

    sums_k = Σ_{i : label_i = k} w_i x_i

Sparse rows are sorted by label, and by index within a label. Each call sums whole clusters, so every sum is added in
the order of the rows, on any number of threads. Dense rows are read once, in order; each call sums a part of them.

If sums are exact, as with counts, they can be updated for the rows that changed their label instead:

    sums_old −= w_i x_i,  sums_new += w_i x_i
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
                total[indices[entry]] += w * np.float64(data[entry])


@jit
def sum_by_label_dense(
    X: Any,  # IN (n, p)
    labels: Any,  # IN (n,)
    weights: Any,  # IN (n,) float64
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    sums: Any,  # IN/OUT (k, p) float64
) -> None:
    """Add rows start to stop of an array to the sums."""
    for i in range(start, stop):
        total, x, w = sums[labels[i]], X[i], weights[i]
        for j in range(len(x)):
            total[j] += w * np.float64(x[j])


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
