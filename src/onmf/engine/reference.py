"""The reference engine: plain NumPy and SciPy, short enough to be seen to be right. The oracle of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.divergence import Array, FloatArray

from .base import Data, Engine


class ReferenceEngine(Engine):
    """Forms the n × k scores and the n × k membership matrix. For small data and for tests."""

    name = "reference"

    def supports(self, X: Any) -> str | None:
        return None

    def place(self, X: Data) -> Data:
        return X.astype(np.float64)

    def best_template(self, data: Data, templates: FloatArray) -> tuple[Array, FloatArray]:
        if np.isneginf(templates).any():  # 0 · (−∞) counts as 0
            finite = np.where(np.isneginf(templates), 0.0, templates)
            scores = np.where((data != 0) @ np.isneginf(templates).T.astype(float) > 0, -np.inf, data @ finite.T)
        else:
            scores = data @ templates.T
        labels = scores.argmax(axis=1).astype(np.int32)
        return labels, scores[np.arange(len(labels)), labels]

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

    def rows(self, data: Data, index: Array) -> FloatArray:
        return data[index].toarray() if issparse(data) else data[index]
