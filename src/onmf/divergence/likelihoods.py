"""The named divergences of convex functions: negative binomial, Bernoulli and exponential."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from scipy.special import xlog1py, xlogy

from .arrays import FloatArray
from .base import Divergence, check_smoothing, number, require
from .bregman import Convex, Scale, check_scale
from .kullback_leibler import KullbackLeibler

THETAS = (1e-3, 1e6)
"""Smallest and largest θ. Beyond the largest, the negative binomial is Poisson to all digits that matter."""


@dataclass(frozen=True)
class NegativeBinomial(Convex):
    """Negative binomial: counts that vary more than Poisson counts, Var = μ + μ² / θ.

    Domain
        x ≥ 0.
    Divergence
        D(x, y) = Σ_j x_j log(x_j / y_j) − (x_j + θ) log((x_j + θ) / (y_j + θ))
    Template
        none: a row scores ⟨x, log(a c / (a c + θ))⟩ − θ Σ_j log(1 + a c_j / θ), c smoothed by ε
    Scale
        "size": a = Σ_j x_j, the size factor of a row. "fit": the best one, found by iteration.
    Centroid
        the root of Σ_i (x_ij − a_i c_j) / (a_i c_j + θ) for each feature, found by iteration
    Reference
        Cameron and Trivedi (2013) for the deviance; the *Method* page for the rest.

    D is half the deviance, so the fit is one of maximum likelihood. As θ grows it becomes Kullback–Leibler. A run from
    a start other than given centroids begins with the iterations of Kullback–Leibler, which end near a lower minimum.

    Parameters
    ----------
    theta : float or "auto", default=1.0
        θ, the inverse of the overdispersion. ``"auto"`` is estimated by maximum likelihood within the clusters;
        ``model.divergence_.theta`` has the estimate.
    scale : {"size", "fit"}, default="size"
        How a row gets its scale.
    smoothing : float, default=1e-3
        ε, the share of a centroid that is spread evenly over all features.
    """

    theta: float | Literal["auto"] = 1.0
    scale_rule: Scale = "size"
    smoothing: float = 1e-3

    name = "negative-binomial"
    domain = "nonnegative"

    def __init__(self, theta: float | Literal["auto"] = 1.0, scale: Scale = "size", smoothing: float = 1e-3) -> None:
        least, largest = THETAS
        valid = theta == "auto" if isinstance(theta, str) else least <= number(theta) <= largest
        require(valid, f"theta={theta!r} is not allowed: it must be 'auto', or lie between {least:g} and {largest:g}.")
        check_scale(scale, self.domain)
        require(scale != "none", "scale='none' is not allowed here: rows differ in size. Use 'size' or 'fit'.")
        check_smoothing(smoothing)
        theta = theta if isinstance(theta, str) else float(theta)
        for name, value in (("theta", theta), ("scale_rule", scale), ("smoothing", float(smoothing))):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({given})"

    @property
    def epsilon(self) -> float:
        return self.smoothing

    @property
    def easier(self) -> Divergence:
        # Its smoothing lets rows move between clusters that do not share all words.
        return KullbackLeibler()

    @property
    def parameter(self) -> float:
        """θ as a number; 1 until it is estimated."""
        return 1.0 if isinstance(self.theta, str) else float(self.theta)

    @property
    def estimates(self) -> bool:
        return isinstance(self.theta, str)

    def phi(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):  # 0 · log ∞ is 0 here
            return -xlog1py(x, self.parameter / x) - self.psi(x)

    def slope(self, x: FloatArray) -> FloatArray:
        return -np.log1p(self.parameter / x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return self.parameter / (x * (x + self.parameter))

    def psi(self, x: FloatArray) -> FloatArray:
        return self.parameter * np.log1p(x / self.parameter)

    def moment(self, x: FloatArray) -> FloatArray:
        return self.parameter / (x + self.parameter)

    def settings(self) -> dict[str, Any]:
        return {"theta": self.theta, "scale": self.scale_rule, "smoothing": self.smoothing}

    def with_theta(self, theta: float) -> NegativeBinomial:
        """The same divergence with another θ."""
        return NegativeBinomial(theta, self.scale_rule, self.smoothing)

    def unsmoothed(self) -> NegativeBinomial:
        return NegativeBinomial(self.theta, self.scale_rule, 0.0)


@dataclass(frozen=True)
class Bernoulli(Convex):
    """Logistic loss: binary data, or shares, each entry with a probability of its own.

    Domain
        0 ≤ x ≤ 1.
    Divergence
        D(x, y) = Σ_j x_j log(x_j / y_j) + (1 − x_j) log((1 − x_j) / (1 − y_j))
    Template
        b = log(c / (1 − c)) with the offset Σ_j log(1 − c_j), c = (c + ε / 2) / (1 + ε)
    Scale
        a = 1
    Centroid
        the mean of its rows
    Reference
        Banerjee, Merugu, Dhillon and Ghosh (2005), Table 1.

    Parameters
    ----------
    smoothing : float, default=1e-3
        ε.
    """

    smoothing: float = 1e-3

    name = "bernoulli"
    domain = "unit"
    scale_rule = "none"

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)

    @property
    def epsilon(self) -> float:
        return self.smoothing

    def phi(self, x: FloatArray) -> FloatArray:
        return xlogy(x, x) + xlog1py(1 - x, -x)

    def slope(self, x: FloatArray) -> FloatArray:
        return np.log(x) - np.log1p(-x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return 1 / (x * (1 - x))

    def psi(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return -np.log1p(-x)

    def unsmoothed(self) -> Self:
        return self if self.smoothing == 0 else replace(self, smoothing=0.0)


@dataclass(frozen=True)
class Exponential(Convex):
    """Exponential loss: real data, in which too small a fit costs far more than too large a one.

    Domain
        any real x; e^x must be finite.
    Divergence
        D(x, y) = Σ_j e^x_j − e^y_j − e^y_j (x_j − y_j)
    Template
        b = e^c with the offset −Σ_j (c_j − 1) e^c_j + 1
    Scale
        a = 1
    Centroid
        the mean of its rows
    Reference
        Banerjee, Merugu, Dhillon and Ghosh (2005), Table 1.
    """

    name = "exponential"
    domain = "real"
    scale_rule = "none"

    def phi(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):  # the rows are refused then
            return np.expm1(x)

    def slope(self, x: FloatArray) -> FloatArray:
        return np.exp(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return np.exp(x)
