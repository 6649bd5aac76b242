"""Kullback–Leibler: the maximum-likelihood choice for counts, and the divergence of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from onmf.arrays import FloatArray

from .base import SMALLEST_POSITIVE, Divergence, RowTerm, RowTerms, TemplateForm, check_smoothing, divide, gpu_kernel
from .moves import EntropyMoves


@dataclass(frozen=True)
class KullbackLeibler(Divergence):
    """Kullback–Leibler divergence, β = 1.

    Domain
        x ≥ 0.
    Divergence
        D(x, y) = Σ_j x_j log(x_j / y_j) − x_j + y_j
    Template
        b = log(c + ε), c in the gauge Σ_j c_j = 1
    Scale
        a = Σ_j x_j
    Centroid
        the sum of its rows (weight 1)
    Reference
        Nkurunziza, Nahayo and Gillis, Lemmas 1 and 2 and Algorithm 2.

    As in the paper, c + ε is not normalised again. With ε > 0 the assignment therefore minimises a surrogate.

    Parameters
    ----------
    smoothing : float, default=1e-3
        The paper's ε.
    """

    smoothing: float = 1e-3

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)

    name = "kullback-leibler"
    domain = "nonnegative"
    fixed_weights = True
    fixed_scales = True
    moves = EntropyMoves()

    @property
    def template_form(self) -> TemplateForm | None:
        return TemplateForm(logarithms=True, smoothing=self.smoothing) if self.smoothing > 0 else None

    @property
    def row_terms(self) -> Mapping[str, RowTerm]:
        return {"sum": lambda x, j: x, "x log x": lambda x, j: xlogy(x, x)}

    def row_size(self, terms: RowTerms) -> FloatArray:
        return terms["sum"]

    def size(self, vectors: FloatArray) -> FloatArray:
        return vectors.sum(axis=1)

    def templates(self, centroids: FloatArray) -> FloatArray:
        if not isinstance(centroids, np.ndarray):  # CuPy
            log = gpu_kernel(
                "float64 c, float64 size, float64 e, float64 least", "b = log((c > 0 ? max(c / size, least) : 0) + e)"
            )
            return log(centroids, self.size(centroids)[:, None], self.smoothing, SMALLEST_POSITIVE)
        return self.templates_at(centroids, self.size(centroids))

    def templates_at(self, columns: FloatArray, sizes: FloatArray) -> FloatArray:
        C = divide(columns, sizes[:, None])
        if self.smoothing == 0:
            C[(C == 0) & (columns > 0)] = SMALLEST_POSITIVE
        C += self.smoothing
        with np.errstate(divide="ignore"):
            return np.log(C, out=C)

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        return terms["sum"]

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return np.ones_like(scale)

    def constant(self, terms: RowTerms) -> FloatArray:
        return terms["x log x"] - xlogy(terms["sum"], terms["sum"])

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return best

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        # Σ x log x − Σ s log s − Σ_kj S_kj log(S_kj / T_k)
        return constant - float(xlogy(sums, np.maximum(divide(sums, mass[:, None]), SMALLEST_POSITIVE)).sum())

    def smooth(self, centroids: FloatArray, at_least: float = 0.0) -> FloatArray:
        return self.normalise(self.normalise(centroids) + max(self.smoothing, at_least))
