"""Kullback–Leibler with groups: batches, sources or scenes, each with multipliers of the features of its own.

Row i of group b in cluster k is about ``a_i · w_k ∘ s_b``. Minimised over the scale, a_i = |x_i| / v with
v = ⟨w_k, s_b⟩, and the score of a row is

    ⟨x, log w_k⟩ − |x| log v_kb        (and ⟨x, log s_b⟩, which is the same for all clusters)

Rows come with one more column for each group, which holds |x| in the column of the row's own group. A centroid has what
makes its template −log v_kb there: the inner product of the two is the score, and the sums by label of these columns
are m_kb, the counts of group b in cluster k. So no kernel and no backend knows of groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse

from onmf.arrays import Array, FloatArray, on_gpu
from onmf.functions import log, xlogy

from .base import RowTerm, RowTerms, TemplateForm, divide
from .beta import KullbackLeibler


@dataclass(frozen=True)
class GroupedKullbackLeibler(KullbackLeibler):
    """Kullback–Leibler for rows with a column for each group.

    Only fits and assignments use it: centroids are published without these columns, and multipliers beside them.

    Parameters
    ----------
    smoothing : float
        As in :class:`KullbackLeibler`.
    features : int
        Number of columns before those of the groups.
    shift : float
        What templates add to the columns of the groups; the smoothing, unless that was changed.
    factors : tuple of float
        For each group the factor of ⟨w_k, s_b⟩ that centroids leave out. Only scales need it.
    """

    features: int = 0
    shift: float = 0.0
    factors: tuple[float, ...] = ()
    fixed_scales = True

    @property
    def row_terms(self) -> Mapping[str, RowTerm]:  # type: ignore[override]
        p = self.features
        return {
            "sum": lambda x, j: x * (j < p),
            "x log x": lambda x, j: xlogy(x, x) * (j < p),
            "group": lambda x, j: ((j - p) * ((j >= p) & (x > 0))).astype(np.float64),
        }

    @property
    def indicators(self) -> int:
        return self.features

    @property
    def template_form(self) -> TemplateForm | None:
        return TemplateForm(logarithms=True, smoothing=self.smoothing) if self.smoothing == self.shift > 0 else None

    def size(self, vectors: FloatArray) -> FloatArray:
        return vectors[:, : self.features].sum(axis=1)

    def templates(self, centroids: FloatArray) -> FloatArray:
        B = super().templates(centroids)
        if self.smoothing != self.shift:
            B[:, self.features :] = log(
                divide(centroids[:, self.features :], self.size(centroids)[:, None]) + self.shift
            )
        return B

    def initial_centroids(self, centroids: FloatArray) -> FloatArray:
        """Centroids for multipliers of 1."""
        return self.with_groups(
            centroids[:, : self.features], np.ones((len(centroids), centroids.shape[1] - self.features))
        )

    def with_groups(self, centroids: FloatArray, v: FloatArray) -> FloatArray:
        """Centroids (k, p) with the columns for v = ⟨w_k, s_b⟩ (k, groups), where the centroids w have sum 1."""
        return np.hstack([centroids, self.size(centroids)[:, None] * self.columns(v)])

    def columns(self, v: FloatArray) -> FloatArray:
        """These columns, for centroids of sum 1.

        A factor of v that all clusters share changes no label. It is chosen so that no entry is larger than the size
        of its centroid, which backends rely on.
        """
        return np.maximum(v.min(axis=0) / v - self.shift, 0.0)

    def sizes_of_rows(self, centroids: FloatArray, labels: Array, terms: RowTerms) -> FloatArray:
        groups = terms["group"].astype(np.int64)
        sizes = self.size(centroids)
        inverse = divide(centroids[:, self.features :], sizes[:, None]) + self.shift
        for b, factor in enumerate(self.factors):  # in the memory of the centroids
            inverse[:, b] /= factor
        return sizes[labels] / inverse[labels, groups]


def append_groups(X: Any, codes: Array, number: int) -> Any:
    """Rows of an array or CSR matrix with a column for each of ``number`` groups, which holds the sum of its rows.

    The codes (n,) say which group each row is of.
    """
    xp, sparse, container = (
        (import_module("cupy"), import_module("cupyx.scipy.sparse"), "csr_matrix")
        if on_gpu(X)
        else (np, scipy.sparse, "csr_array")
    )
    whole = X.dtype.kind in "iu"  # sums of counts may need more bits
    sums = X.sum(axis=1, dtype=np.int64 if whole else np.float64).ravel()
    kind = type_of_sums(X.dtype, sums) if whole else X.dtype
    entries, codes = sums.astype(kind), xp.asarray(codes)
    if hasattr(X, "indptr"):
        codes, starts = codes.astype(X.indices.dtype), xp.arange(X.shape[0] + 1, dtype=X.indptr.dtype)
        columns = getattr(sparse, container)((entries, codes, starts), shape=(X.shape[0], number))
        return sparse.hstack([X, columns], format="csr")
    columns = xp.zeros((len(X), number), dtype=entries.dtype)
    columns[xp.arange(len(X)), codes] = entries
    return xp.hstack([X, columns])


def type_of_sums(kind: np.dtype[Any], sums: Array) -> np.dtype[Any]:
    """The narrowest integers that hold entries of this kind and these sums: the time of a step is that of reading."""
    largest = int(sums.max()) if len(sums) else 0
    return np.promote_types(kind, np.min_scalar_type(largest if kind.kind == "u" else -largest))
