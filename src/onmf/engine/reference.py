"""The reference engine: plain NumPy and SciPy, short enough to be seen to be right. The oracle of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.divergence import Array, FloatArray

from .base import Data, Engine, only_in_memory


class ReferenceEngine(Engine):
    """Forms the n × k scores and the n × k membership matrix. For small data and for tests."""

    name = "reference"

    def supports(self, X: Any) -> str | None:
        return only_in_memory(X)

    def place(self, X: Data) -> Data:
        return X.astype(np.float64)

    def scores(self, data: Data, templates: FloatArray) -> FloatArray:
        return all_scores(data, templates)

    def best_template(self, data: Data, templates: FloatArray) -> tuple[Array, FloatArray]:
        scores = all_scores(data, templates)
        labels = scores.argmax(axis=1).astype(np.int32)
        return labels, scores[np.arange(len(labels)), labels]

    def own_and_next(self, data: Data, templates: FloatArray, labels: Array) -> tuple[FloatArray, FloatArray]:
        scores = all_scores(data, templates)
        rows = np.arange(len(labels))
        own = scores[rows, labels]
        scores[rows, labels] = -np.inf
        return own, scores.max(axis=1)

    def sum_by_label(self, data: Data, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        n = len(labels)
        membership = csr_array((weights, labels, np.arange(n + 1)), shape=(n, k))
        sums = membership.T @ data
        return sums.toarray() if issparse(sums) else sums

    def row_term(self, data: Data, function: Any) -> FloatArray:
        if not issparse(data):
            return function(data).sum(axis=1)
        values = data.copy()
        values.data = function(values.data)
        return np.asarray(values.sum(axis=1)).ravel()


def all_scores(data: Data, templates: FloatArray) -> FloatArray:
    """Inner products of all rows with all templates; 0 · (−∞) counts as 0. → (n, k)"""
    infinite = np.isneginf(templates)
    if not infinite.any():
        return data @ templates.T
    finite = np.where(infinite, 0.0, templates)
    return np.where((data != 0) @ infinite.T.astype(float) > 0, -np.inf, data @ finite.T)
