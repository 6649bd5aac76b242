"""A backend in plain SciPy: the six methods that a backend has to write.

Use it as ``ONMF(engine=SciPyBackend())``, or in parts as ``Blocks(SciPyBackend())`` and ``Dask(SciPyBackend())``.
"""

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Backend


class SciPyBackend(Backend):
    """Keeps all rows as CSR in float64."""

    name = "scipy"

    def place(self, X):
        return csr_array(X, dtype=np.float64)

    def row_term(self, rows, function):
        terms = csr_array((function(rows.data, rows.indices), rows.indices, rows.indptr), shape=rows.shape)
        return np.asarray(terms.sum(axis=1)).ravel()

    def scores(self, rows, templates):
        infinite = np.isneginf(templates.B)
        scores = rows @ np.where(infinite, 0.0, templates.B).T
        scores[(rows != 0) @ infinite.T.astype(float) > 0] = -np.inf
        return scores if templates.offsets is None else scores + templates.offsets

    def best_template(self, rows, templates):
        scores = self.scores(rows, templates)
        return scores.argmax(axis=1).astype(np.int32), scores.max(axis=1)

    def own_and_next(self, rows, templates, labels):
        scores, every = self.scores(rows, templates), np.arange(len(labels))
        own = scores[every, labels]
        scores[every, labels] = -np.inf
        return own, scores.max(axis=1)

    def sum_by_label(self, rows, labels, weights, k):
        members = csr_array((weights, (labels, np.arange(len(labels)))), shape=(k, len(labels)))
        return (members @ rows).toarray()
