"""The reference backend: plain NumPy and SciPy, short enough to be checked by eye. The oracle of the others."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.divergence import Array, FloatArray

from .base import Backend, Matrix, Templates


class ReferenceBackend(Backend):
    """Forms the n × k scores and the n × k membership matrix. For small data and for tests."""

    name = "reference"

    def place(self, X: Matrix) -> Matrix:
        return X.astype(np.float64)

    def row_term(self, rows: Matrix, function: Any) -> FloatArray:
        if not issparse(rows):
            return function(rows, np.arange(rows.shape[1])).sum(axis=1)
        values = rows.copy()
        values.data = function(values.data, values.indices)
        return np.asarray(values.sum(axis=1)).ravel()

    def scores(self, rows: Matrix, templates: Templates) -> FloatArray:
        return all_scores(rows, templates)

    def best_template(self, rows: Matrix, templates: Templates) -> tuple[Array, FloatArray]:
        scores = all_scores(rows, templates)
        labels = scores.argmax(axis=1).astype(np.int32)
        return labels, scores[np.arange(len(labels)), labels]

    def own_and_next(self, rows: Matrix, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        scores = all_scores(rows, templates)
        every = np.arange(len(labels))
        own = scores[every, labels]
        scores[every, labels] = -np.inf
        return own, scores.max(axis=1)

    def sum_by_label(self, rows: Matrix, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        n = len(labels)
        membership = csr_array((weights, labels, np.arange(n + 1)), shape=(n, k))
        sums = membership.T @ rows
        return sums.toarray() if issparse(sums) else sums


def all_scores(rows: Matrix, templates: Templates) -> FloatArray:
    """Scores of all rows against all templates; 0 · (−∞) counts as 0. → (n, k)"""
    B = templates.B
    infinite = np.isneginf(B)
    if infinite.any():
        impossible = (rows != 0) @ infinite.T.astype(float) > 0
        scores = np.where(impossible, -np.inf, rows @ np.where(infinite, 0.0, B).T)
    else:
        scores = rows @ B.T
    return scores if templates.offsets is None else scores + templates.offsets
