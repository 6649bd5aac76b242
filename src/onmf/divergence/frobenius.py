"""The two geometric divergences: the Frobenius norm, and the cosine of spherical k-means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onmf.arrays import FloatArray

from .base import Divergence, RowTerm, RowTerms, TemplateForm, divide, lengths_on_gpu
from .moves import LengthMoves


@dataclass(frozen=True)
class Euclidean(Divergence):
    """Base of Frobenius and cosine: centroids have unit ℓ2 norm and are their own templates."""

    domain = "real"
    template_form = TemplateForm()

    @property
    def row_terms(self) -> Mapping[str, RowTerm]:
        return {"square": lambda x, j: np.square(x)}

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
