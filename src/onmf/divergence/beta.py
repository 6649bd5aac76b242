"""The divergences with closed forms: the β-family with Kullback–Leibler and Frobenius, and the cosine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from onmf.arrays import FloatArray
from onmf.functions import exp, log, power, xlogy
from onmf.io.rules import require

from .base import Divergence, Domain, RowTerm, RowTerms, TemplateForm, check_smoothing, divide, gpu_kernel
from .moves import EntropyMoves, LengthMoves

SMALLEST_POSITIVE = float(np.nextafter(0.0, 1.0))  # for positive shares that underflow to 0: their logarithm is finite


@cache
def lengths_on_gpu() -> Any:
    """Euclidean lengths of CuPy arrays along an axis, as one kernel."""
    import cupy

    return cupy.ReductionKernel("float64 x", "float64 y", "x * x", "a + b", "y = sqrt(a)", "0", "onmf_lengths")


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
    row_terms = MappingProxyType({"sum": lambda x, j: x, "x log x": lambda x, j: xlogy(x, x)})
    moves = EntropyMoves()

    @property
    def template_form(self) -> TemplateForm | None:
        return TemplateForm(logarithms=True, smoothing=self.smoothing) if self.smoothing > 0 else None

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
        return log(C)

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


@dataclass(frozen=True)
class Euclidean(Divergence):
    """Base of Frobenius and cosine: centroids have unit ℓ2 norm and are their own templates."""

    domain = "real"
    row_terms = MappingProxyType({"square": lambda x, j: np.square(x)})
    template_form = TemplateForm()

    def row_size(self, terms: RowTerms) -> FloatArray:
        return terms["square"]

    def size(self, vectors: FloatArray) -> FloatArray:
        if not isinstance(vectors, np.ndarray):  # CuPy
            return lengths_on_gpu()(vectors, axis=1)
        return np.sqrt(np.square(vectors).sum(axis=1))

    def templates(self, centroids: FloatArray) -> FloatArray:
        return self.normalise(centroids)

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        return np.maximum(best, 0.0)


@dataclass(frozen=True)
class Frobenius(Euclidean):
    """Squared Euclidean distance, twice the β-divergence of β = 2.

    Domain
        any real x.
    Divergence
        D(x, y) = ‖x − y‖²
    Template
        b = c, in the gauge ‖c‖₂ = 1
    Scale
        a = max(⟨x, c⟩, 0)
    Centroid
        the sum of its rows weighted by a
    Reference
        Pompili, Gillis, Absil and Glineur (2014); Nkurunziza, Nahayo and Gillis, Algorithm 1.
    """

    name = "frobenius"
    score_weights = True

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return scale

    def constant(self, terms: RowTerms) -> FloatArray:
        return terms["square"]

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return np.square(scale)

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        # ‖X‖² − ‖W‖², since W = X Hᵀ. Divide before squaring: squares of the sums are fourth powers, and may overflow.
        return constant - float(np.square(divide(sums, np.sqrt(mass)[:, None])).sum())


@dataclass(frozen=True)
class Cosine(Euclidean):
    """Cosine dissimilarity: exact spherical k-means, in which the length of a row does not matter.

    Domain
        any real x.
    Divergence
        D(x, y) = 1 − ⟨x, y⟩ / (‖x‖₂ ‖y‖₂)
    Template
        b = c, in the gauge ‖c‖₂ = 1
    Scale
        a = max(⟨x, c⟩, 0)
    Centroid
        the sum of its rows weighted by 1 / ‖x‖₂
    Reference
        Dhillon and Modha (2001).
    """

    name = "cosine"
    fixed_weights = True
    moves = LengthMoves()

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return divide(np.ones_like(scale), np.sqrt(terms["square"]))

    def row_size(self, terms: RowTerms) -> FloatArray:
        return self.constant(terms)

    def constant(self, terms: RowTerms) -> FloatArray:
        return (terms["square"] > 0).astype(np.float64)

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return divide(best, np.sqrt(terms["square"]))

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        return constant - float(self.size(sums).sum())

    def centers(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        return self.normalise(sums)


@dataclass(frozen=True)
class Beta(Divergence):
    """Base of all β ∉ {0, 1}: rows have weight a^(β−1), and the objective follows from the sums."""

    beta: float = 1.5

    @property
    def name(self) -> str:
        return f"beta={self.beta:g}"

    @property
    def entry_range(self) -> tuple[float, float]:
        # For β < 0, templates contain the power β − 1 of a quotient of two entries.
        largest = 1e250 ** (1 / max(2.0, self.beta if self.beta > 0 else 2 * (1 - self.beta)))
        return 1 / largest, largest

    @property
    def row_terms(self) -> Mapping[str, RowTerm]:
        return {"power": lambda x, j: power(x, self.beta)}

    def row_size(self, terms: RowTerms) -> FloatArray:
        return terms["power"]

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return positive_power(scale, self.beta - 1)

    def constant(self, terms: RowTerms) -> FloatArray:
        return terms["power"] / (self.beta * (self.beta - 1))

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        # ŷ = a u for the rows of a cluster: Σ ŷ^β = mass · Σ_j u_j^β and Σ x ŷ^(β−1) = Σ_j u_j^(β−1) · sums_j.
        β = self.beta
        sums, mass = sums[mass > 0], mass[mass > 0]
        U = self.centers(sums, mass)
        powers = positive_power(U, β - 1)
        fitted, crossed = mass * (powers * U).sum(axis=1), (powers * sums).sum(axis=1)
        return constant + float((fitted / β - crossed / (β - 1)).sum())


@dataclass(frozen=True)
class BetaAboveOne(Beta):
    """β-divergence, β > 1.

    Domain
        x ≥ 0 (any real x for β = 2, which is :class:`~onmf.divergence.Frobenius`).
    Divergence
        D(x, y) = Σ_j [x_j^β + (β − 1) y_j^β − β x_j y_j^(β−1)] / (β (β − 1))
    Template
        b = c^(β−1), c in the gauge Σ_j c_j^β = 1
    Scale
        a = ⟨x, b⟩
    Centroid
        the sum of its rows weighted by a^(β−1)
    Reference
        Cichocki and Amari (2010) for the family; the *Method* page for the closed forms.

    Parameters
    ----------
    beta : float, default=1.5
        Greater than 1.
    """

    domain = "nonnegative"

    def __post_init__(self) -> None:
        require(1 < self.beta < np.inf, f"beta={self.beta} is not allowed here: it must be greater than 1.")

    def size(self, vectors: FloatArray) -> FloatArray:
        return power_mean(vectors, self.beta) * power(float(vectors.shape[1]), 1 / self.beta)

    def templates(self, centroids: FloatArray) -> FloatArray:
        return power(self.normalise(centroids), self.beta - 1)

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        return best

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return power(scale, self.beta) / (self.beta * (self.beta - 1))


@dataclass(frozen=True)
class BetaBelowOne(Beta):
    """β-divergence, β < 1 and β ≠ 0.

    Domain
        x ≥ 0 for β > 0, x > 0 for β < 0.
    Divergence
        D(x, y) = Σ_j [x_j^β + (β − 1) y_j^β − β x_j y_j^(β−1)] / (β (β − 1))
    Template
        b = −c̃^(β−1), with c̃ = c + ε for c of sum 1, in the gauge mean_j c̃_j^β = 1
    Scale
        a = −⟨x, b⟩ / p
    Centroid
        the sum of its rows weighted by a^(β−1)
    Reference
        Cichocki and Amari (2010) for the family; the *Method* page for the closed forms.

    A zero in the centroid costs infinity if the row is positive there, so template, scale and loss all come from c̃. As
    for Kullback–Leibler, ε is added to centroids of sum 1, so it means the same for the whole family. β < 0 needs no
    smoothing: X is positive, and so are the centroids.

    Parameters
    ----------
    beta : float, default=0.5
        Less than 1, not 0.
    smoothing : float, default=1e-3
        ε.
    """

    beta: float = 0.5
    smoothing: float = 1e-3

    def __post_init__(self) -> None:
        allowed = -np.inf < self.beta < 1 and (self.beta != 0 or isinstance(self, ItakuraSaito))
        require(allowed, f"beta={self.beta} is not allowed here: it must be less than 1, and ItakuraSaito is β = 0.")
        check_smoothing(self.smoothing)

    @property
    def domain(self) -> Domain:
        return "nonnegative" if self.beta > 0 else "positive"

    def size(self, vectors: FloatArray) -> FloatArray:
        return power_mean(vectors, self.beta)

    def templates(self, centroids: FloatArray) -> FloatArray:
        return -power(self.smooth(centroids), self.beta - 1)

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        # If every centroid costs infinity, all scales are equally good: take the size of the row.
        own = power(terms["power"] / terms["features"], 1 / self.beta)
        return np.where(np.isfinite(best), -best / terms["features"], own)

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        gain = terms["features"] * positive_power(scale, self.beta) / (self.beta * (self.beta - 1))
        return np.where(np.isfinite(best), gain, -np.inf)

    def centers(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        # The scales were computed for c̃, so the centroid stays in the gauge and its size is not fitted to them.
        return self.normalise(sums) if self.smoothing > 0 else super().centers(sums, mass)

    def smooth(self, centroids: FloatArray, at_least: float = 0.0) -> FloatArray:
        shares = divide(centroids, centroids.sum(axis=1, keepdims=True))
        return self.normalise(shares + max(self.smoothing, at_least))


@dataclass(frozen=True)
class ItakuraSaito(BetaBelowOne):
    """Itakura–Saito divergence, β = 0: the limit of the family, invariant to the scale of an entry.

    Domain
        x > 0.
    Divergence
        D(x, y) = Σ_j x_j / y_j − log(x_j / y_j) − 1
    Template
        b = −1 / c, c in the gauge of geometric mean 1
    Scale
        a = −⟨x, b⟩ / p
    Centroid
        the sum of its rows weighted by 1 / a
    Reference
        Févotte, Bertin and Durrieu (2009) for the divergence; the *Method* page for the closed forms.

    No smoothing is needed: X is positive, and so are the centroids.
    """

    beta: float = field(default=0.0, init=False)
    smoothing: float = field(default=0.0, init=False)
    name = "itakura-saito"
    row_terms = MappingProxyType({"log": lambda x, j: log(x)})

    def size(self, vectors: FloatArray) -> FloatArray:
        return exp(log(vectors).mean(axis=1))

    def row_size(self, terms: RowTerms) -> FloatArray:
        return np.full_like(terms["log"], terms["features"])

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        return -best / terms["features"]

    def constant(self, terms: RowTerms) -> FloatArray:
        return -terms["log"]

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return -terms["features"] * log(scale)

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        # Σ x/ŷ − log(x/ŷ) − 1 with ŷ = a u; loss is Σ p log a − Σ log x, and mass counts the rows.
        sums, mass = sums[mass > 0], mass[mass > 0]
        U = self.centers(sums, mass)
        by_cluster = (sums / U).sum(axis=1) + mass * (log(U) - 1).sum(axis=1)
        return loss + float(by_cluster.sum())


def power_mean(vectors: FloatArray, β: float) -> FloatArray:
    """(mean_j v_j^β)^(1/β) of each row; 0 if all entries are zero. → (k,)"""
    # Divided by the dominant entry first, so that no power leaves float64.
    unit = vectors.max(axis=1) if β > 0 else vectors.min(axis=1)
    return unit * power(power(divide(vectors, unit[:, None]), β).mean(axis=1), 1 / β)


def positive_power(x: FloatArray, exponent: float) -> FloatArray:
    """Powers; 0 where x ≤ 0 (negative entries are rounding errors)."""
    positive = x > 0
    return np.where(positive, power(np.where(positive, x, 1.0), exponent), 0.0)
