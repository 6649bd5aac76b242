"""Divergences as users write them, and the plain formulas of all divergences, by which fits are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlog1py, xlogy

from onmf.divergence import (
    Bregman,
    Convex,
    Cosine,
    Divergence,
    FloatArray,
    Frobenius,
    KullbackLeibler,
    NegativeBinomial,
    RowTerms,
    Scale,
)


@dataclass(frozen=True)
class Background(KullbackLeibler):
    """Other templates: a share of every centroid is a background profile, here the even one."""

    share: float = 0.3
    name = "background"

    def templates(self, centroids: FloatArray) -> FloatArray:
        """Return log((1 − share) c + share / p)."""
        return np.log((1 - self.share) * self.normalise(centroids) + self.share / centroids.shape[1])


@dataclass(frozen=True)
class Favoured(Cosine):
    """Offsets: clusters with many features are favoured."""

    name = "favoured"

    def offsets(self, centroids: FloatArray) -> FloatArray:
        """Return the number of features with a large share, times a constant."""
        return 0.2 * (self.normalise(centroids) > 0.1).sum(axis=1)


@dataclass(frozen=True)
class ByLength(KullbackLeibler):
    """Other weights: a row counts by the root of its length, Σ_i D(x_i, y_i) / √|x_i|."""

    name = "by length"

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """Return 1 / √|x|."""
        return 1 / np.sqrt(np.where(terms["sum"] > 0, terms["sum"], 1.0))

    def constant(self, terms: RowTerms) -> FloatArray:
        """Return that of Kullback–Leibler, weighted."""
        return self.weight(terms["sum"], terms) * super().constant(terms)

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """Return that of Kullback–Leibler, weighted."""
        return self.weight(scale, terms) * best


@dataclass(frozen=True)
class SquaredDistance(Frobenius):
    """No scale: plain k-means, ‖x − c‖²."""

    name = "squared distance"
    scale_rule = "none"

    def size(self, vectors: FloatArray) -> FloatArray:
        """Return ones: there is no gauge."""
        return np.ones_like(vectors[:, 0])

    def templates(self, centroids: FloatArray) -> FloatArray:
        """Return the centroids."""
        return centroids.copy()

    def offsets(self, centroids: FloatArray) -> FloatArray:
        """Return −‖c‖² / 2."""
        return -np.square(centroids).sum(axis=1) / 2

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        """Return ones."""
        return np.ones_like(best)

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """Return ones."""
        return np.ones_like(scale)

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """Return 2 ⟨x, c⟩ − ‖c‖²."""
        return 2 * best


@dataclass(frozen=True)
class Root(Convex):
    """φ = x^1.5 in functions of NumPy, which the kernels cannot call."""

    scale_rule: Scale = "fit"
    name = "root"
    domain = "nonnegative"

    def phi(self, x: FloatArray) -> FloatArray:
        """Return x^1.5."""
        return x**1.5

    def slope(self, x: FloatArray) -> FloatArray:
        """Return its derivative."""
        return 1.5 * np.sqrt(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        """Return its second derivative."""
        with np.errstate(divide="ignore"):
            return 0.75 / np.sqrt(x)


@dataclass(frozen=True)
class Doubled(NegativeBinomial):
    """Another φ: twice that of the negative binomial."""

    name = "doubled"

    def phi(self, x: FloatArray) -> FloatArray:
        """Return twice that of the negative binomial."""
        return 2 * NegativeBinomial(self.theta).phi(x)

    def slope(self, x: FloatArray) -> FloatArray:
        """Return twice that of the negative binomial."""
        return 2 * super().slope(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        """Return twice that of the negative binomial."""
        return 2 * super().curvature(x)

    def psi(self, x: FloatArray) -> FloatArray:
        """Return twice that of the negative binomial."""
        return 2 * super().psi(x)

    def moment(self, x: FloatArray) -> FloatArray:
        """Return twice that of the negative binomial."""
        return 2 * super().moment(x)


def own_phi(scale: Scale = "none") -> Bregman:
    """Return the divergence of φ = x^1.5 in functions of a number."""
    functions = lambda x: x**1.5, lambda x: 1.5 * x**0.5, lambda x: 0.75 * x**-0.5
    return Bregman(*functions, scale=scale, label="root", cuda=("pow(x, 1.5)", "1.5 * sqrt(x)", "0.75 / sqrt(x)"))


def terms_of(divergence: Any, x: FloatArray, y: FloatArray) -> tuple[FloatArray, ...]:
    """Return terms whose sum is D(x, y), by entry, from the definition of a divergence."""
    match divergence.name:
        case "kullback-leibler" | "background":
            return xlogy(x, x), -xlogy(x, y), -x, y
        case "by length":
            return tuple(term / np.sqrt(x.sum(axis=1, keepdims=True)) for term in terms_of(KullbackLeibler(), x, y))
        case "weighted kullback-leibler":
            return tuple(divergence.feature_weights * term for term in terms_of(KullbackLeibler(), x, y))
        case "frobenius" | "squared distance":
            return x * x, -2 * x * y, y * y
        case "cosine" | "favoured":
            lengths = np.linalg.norm(x, axis=1, keepdims=True) * np.linalg.norm(y, axis=1, keepdims=True)
            ones = np.broadcast_to(x.any(axis=1, keepdims=True) / x.shape[1], x.shape)
            return ones, -np.divide(x * y, lengths, out=np.zeros_like(x), where=lengths > 0)
        case "itakura-saito":
            return x / y, -np.log(x), np.log(y), -np.ones_like(x)
        case "negative-binomial":
            θ = divergence.theta
            ones = x + θ  # by which rounding is measured where logarithms vanish
            return xlogy(x, x), -xlogy(x, y), -(x + θ) * np.log1p((x - y) / (y + θ)), ones, -ones
        case "doubled":
            return tuple(2 * term for term in terms_of(NegativeBinomial(divergence.theta), x, y))
        case "bernoulli":
            return xlogy(x, x), -xlogy(x, y), xlog1py(1 - x, -x), -xlog1py(1 - x, -y)
        case "exponential":
            return np.exp(x), -np.exp(y), -np.exp(y) * x, np.exp(y) * y
        case "root":
            return x**1.5, -(y**1.5), -1.5 * np.sqrt(y) * x, 1.5 * np.sqrt(y) * y
    β = divergence.beta
    crossed = np.where(x == 0, 0.0, x * y ** (β - 1))
    return x**β / (β * (β - 1)), np.where((x == 0) & (y == 0), 0.0, y**β) / β, -crossed / (β - 1)


def published(
    divergence: Divergence, X: FloatArray, weights: FloatArray, labels: Any, scales: Any, centroids: Any
) -> tuple[float, float]:
    """Return Σ w D(x, y) of the scales and centroids that a model publishes, and the sum of the sizes of its terms."""
    # The cosine ignores scales, so a row of scale 0 must not become a row of zeros.
    Y = centroids[labels] if isinstance(divergence, Cosine) else scales[:, None] * centroids[labels]
    counted = weights > 0
    with np.errstate(all="ignore"):
        terms = [weights[counted, None] * term for term in terms_of(divergence, X[counted], Y[counted])]
        return float(sum(terms).sum()), float(sum(map(np.abs, terms)).sum())
