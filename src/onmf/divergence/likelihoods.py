"""The named divergences of convex functions: negative binomial, Bernoulli and exponential."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np
from scipy.special import xlog1py, xlogy

from onmf.arrays import FloatArray

from .base import Divergence, Scale, check_smoothing, number, require
from .bregman import Convex, check_scale
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
        for name, value in (("theta", theta), ("scale_rule", scale), ("smoothing", smoothing)):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        theta, scale, (least, largest) = self.theta, self.scale_rule, THETAS
        valid = theta == "auto" if isinstance(theta, str) else least <= number(theta) <= largest
        require(valid, f"theta={theta!r} is not allowed: it must be 'auto', or lie between {least:g} and {largest:g}.")
        check_scale(scale, self.domain)
        require(scale != "none", "scale='none' is not allowed here: rows differ in size. Use 'size' or 'fit'.")
        check_smoothing(self.smoothing)
        object.__setattr__(self, "theta", theta if isinstance(theta, str) else float(theta))
        object.__setattr__(self, "smoothing", float(self.smoothing))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({given})"

    @property
    def epsilon(self) -> float:
        return self.smoothing

    @property
    def warm_start(self) -> Divergence:
        # Its smoothing lets rows move between clusters that do not share all words.
        return KullbackLeibler()

    @property
    def parameter(self) -> float:
        """θ as a number; 1 until it is estimated."""
        return 1.0 if isinstance(self.theta, str) else float(self.theta)

    @property
    def kernel_functions(self) -> float:
        return self.parameter

    def phi(self, x: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):  # 0 · (−∞) is 0 here
            return np.where(x == 0, 0.0, x * self.slope(x)) - self.psi(x)

    def slope(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):  # the quotient leaves float64 for the smallest x
            ratio = self.parameter / x
            return np.where(ratio < np.inf, -np.log1p(ratio), np.log(x) - np.log(self.parameter))

    def curvature(self, x: FloatArray) -> FloatArray:
        return self.parameter / (x * (x + self.parameter))

    def psi(self, x: FloatArray) -> FloatArray:
        return self.parameter * np.log1p(x / self.parameter)

    def moment(self, x: FloatArray) -> FloatArray:
        return self.parameter / (x + self.parameter)

    def settings(self) -> dict[str, Any]:
        # A subclass that is a dataclass itself has another __init__, which takes scale_rule.
        known = super().settings() | {"scale": self.scale_rule}
        return {name: known[name] for name in signature(type(self)).parameters if name in known}


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


@dataclass(frozen=True)
class Exponential(Convex):
    """Exponential loss: real data, in which too small a fit costs far more than too large a one.

    Domain
        −500 ≤ x ≤ 500.
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
    entry_range = 0.0, 500.0

    def phi(self, x: FloatArray) -> FloatArray:
        return np.expm1(x)

    def slope(self, x: FloatArray) -> FloatArray:
        return np.exp(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return np.exp(x)
