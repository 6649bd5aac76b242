"""Bregman divergences of any convex φ.

    D(x, y) = Σ_j φ(x_j) − φ(y_j) − φ'(y_j) (x_j − y_j)

With y = a·c and ψ(μ) = μ φ'(μ) − φ(μ), the loss of a row is Σ_j φ(x_j) minus its gain ⟨x, φ'(a c)⟩ − Σ_j ψ(a c_j). For
a = 1 that is a template φ'(c) with an offset, and the centroid is the mean. At other scales there is no closed form
unless φ is homogeneous, as in the β-family; :mod:`onmf.backend.curved` then computes scales, scores and centroids.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np

from .arrays import FloatArray
from .base import Divergence, Domain, Elementwise, RowTerms, check_smoothing, divide, require

Scale = Literal["none", "size", "fit"]

SCALES = ("none", "size", "fit")
"""How a row gets its scale: 1 for every row, its sum, or the best one."""

HALF_ULP = 2.0**-53
"""Probabilities are at least this far from 0 and 1, so that their logarithms are finite."""

POINTS = 65
"""Number of places between the smallest and the largest entry of X at which a user's φ must be convex."""

SAMPLES: dict[str, FloatArray] = {
    "real": np.array([-2.5, -1.1, -0.3, 0.4, 1.2, 2.6]),
    "nonnegative": np.array([0.05, 0.3, 0.9, 1.7, 4.2, 11.0]),
    "positive": np.array([0.05, 0.3, 0.9, 1.7, 4.2, 11.0]),
    "unit": np.array([0.04, 0.2, 0.45, 0.6, 0.83, 0.96]),
}
"""Where a user's φ is compared with its derivatives, for each domain."""


@dataclass(frozen=True)
class Convex(Divergence):
    """Base of the divergences that are given by a convex function φ.

    Centroids keep their size, except with ``scale="fit"``, where only their direction counts.
    """

    host_only = True
    power = 1.0

    @property
    @abstractmethod
    def scale_rule(self) -> Scale:
        """How a row gets its scale."""

    @property
    def epsilon(self) -> float:
        """ε, the share of a centroid that smoothing spreads evenly over all features."""
        return 0.0

    @abstractmethod
    def phi(self, x: FloatArray) -> FloatArray:
        """φ(x) − φ(0); for a positive domain φ(x) − φ(1)."""

    @abstractmethod
    def slope(self, x: FloatArray) -> FloatArray:
        """φ'(x)."""

    @abstractmethod
    def curvature(self, x: FloatArray) -> FloatArray:
        """φ''(x)."""

    def psi(self, x: FloatArray) -> FloatArray:
        """ψ(x) = x φ'(x) − φ(x), with φ as in :meth:`phi`; ψ(0) = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x == 0, 0.0, x * self.slope(x)) - self.phi(x)

    def moment(self, x: FloatArray) -> FloatArray:
        """X φ''(x)."""
        return x * self.curvature(x)

    @property
    def curved(self) -> bool:
        return not self.absolute

    @property
    def sized(self) -> bool:
        return self.scale_rule != "fit"

    @property
    def absolute(self) -> bool:
        return self.scale_rule == "none"

    @property
    def fixed_weights(self) -> bool:
        return self.sized

    @property
    def row_terms(self) -> Mapping[str, Elementwise]:
        return {"sum": lambda x: x, "phi": self.phi}

    def row_size(self, terms: RowTerms) -> FloatArray:
        counts = self.domain in ("nonnegative", "positive")
        return terms["sum"] if counts else np.full_like(terms["sum"], terms["features"])

    def size(self, vectors: FloatArray) -> FloatArray:
        return np.ones(len(vectors)) if self.sized else vectors.sum(axis=1)

    def normalise(self, vectors: FloatArray) -> FloatArray:
        return vectors if self.sized else super().normalise(vectors)

    def begin(self, centroids: FloatArray) -> FloatArray:
        return divide(centroids, centroids.sum(axis=1, keepdims=True)) if self.curved else centroids

    def templates(self, centroids: FloatArray) -> FloatArray:
        smoothed = self.smooth(centroids)
        if self.curved:
            return smoothed.copy() if smoothed is centroids else smoothed
        with np.errstate(divide="ignore"):
            return self.slope(smoothed)

    def offsets(self, centroids: FloatArray) -> FloatArray | None:
        return None if self.curved else -self.psi(self.smooth(centroids)).sum(axis=1)

    def linearised(self, centroids: FloatArray, size: float) -> tuple[FloatArray, FloatArray | None]:
        if not self.curved:
            return super().linearised(centroids, size)
        μ = size * self.smooth(centroids)
        with np.errstate(divide="ignore"):
            return self.slope(μ), -self.psi(μ).sum(axis=1)

    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        return np.ones_like(terms["sum"]) if self.absolute else terms["sum"]

    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return np.ones_like(scale)

    def constant(self, terms: RowTerms) -> FloatArray:
        return terms["phi"]

    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        return best

    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        # At a = 1 and the mean c, Σ D = Σ φ(x) − Σ_k n_k Σ_j φ(c_kj).
        sums, mass = sums[mass > 0], mass[mass > 0]
        return constant - float((mass * self.phi(self.centers(sums, mass)).sum(axis=1)).sum())

    def smooth(self, centroids: FloatArray, at_least: float = 0.0) -> FloatArray:
        C, ε = self.normalise(centroids), max(self.epsilon, at_least)
        if self.domain == "unit":
            return np.clip((C + ε / 2) / (1 + ε), HALF_ULP, 1 - HALF_ULP)
        if ε == 0 or self.domain != "nonnegative":
            return C
        # The size is kept, because the scores depend on it.
        return (C + ε * C.mean(axis=1, keepdims=True)) / (1 + ε)


@dataclass(frozen=True)
class Bregman(Convex):
    """The Bregman divergence of a φ of one's own.

    Domain
        as given.
    Divergence
        D(x, y) = Σ_j φ(x_j) − φ(y_j) − φ'(y_j) (x_j − y_j)
    Template
        b = φ'(c) with the offset −Σ_j c_j φ'(c_j) − φ(c_j), for the scale "none"
    Scale
        "none": a = 1, Bregman hard clustering. "size": a = Σ_j x_j. "fit": the best one, found by iteration.
    Centroid
        the mean of its rows for the scale "none", else the root of Σ_i a_i φ''(a_i c_j) (x_ij − a_i c_j) for each
        feature, found by iteration
    Reference
        Banerjee, Merugu, Dhillon and Ghosh (2005) for the scale "none"; the *Method* page for the others.

    Parameters
    ----------
    phi, slope, curvature : callable
        φ, φ' and φ'': plain functions of one number that use arithmetic and :mod:`math`, which numba compiles.
    domain : {"nonnegative", "positive", "real", "unit"}, default="nonnegative"
        The entries that X may have; "unit" is from 0 to 1.
    scale : {"none", "size", "fit"}, default="none"
        How a row gets its scale. "size" and "fit" need the domain "nonnegative" or "positive".
    smoothing : float, default=0.0
        ε, the share of a centroid that is spread evenly over all features. It is needed if φ'(0) = −∞ and X has zeros.
    label : str, default="bregman"
        Name in messages and results.

    Examples
    --------
    >>> from math import exp
    >>> import numpy as np
    >>> from onmf import ONMF
    >>> from onmf.divergence import Bregman
    >>> asymmetric = Bregman(lambda x: exp(x), lambda x: exp(x), lambda x: exp(x), domain="real")
    >>> ONMF(2, beta_loss=asymmetric).fit_predict([[1.0, -1.0], [1.5, -2.0], [-1.0, 2.0], [-1.0, 1.5]])
    array([0, 0, 1, 1], dtype=int32)
    """

    phi_function: Callable[[float], float]
    slope_function: Callable[[float], float]
    curvature_function: Callable[[float], float]
    domain: Domain = "nonnegative"
    scale_rule: Scale = "none"
    smoothing: float = 0.0
    label: str = "bregman"

    def __init__(
        self,
        phi: Callable[[float], float],
        slope: Callable[[float], float],
        curvature: Callable[[float], float],
        *,
        domain: Domain = "nonnegative",
        scale: Scale = "none",
        smoothing: float = 0.0,
        label: str = "bregman",
    ) -> None:
        given = (phi, slope, curvature, domain, scale, smoothing, label)
        for name, value in zip(self.__dataclass_fields__, given, strict=True):
            object.__setattr__(self, name, value)
        domains = tuple(SAMPLES)
        require(domain in domains, f"domain={domain!r} is not allowed: use one of {', '.join(map(repr, domains))}.")
        check_scale(scale, domain)
        check_smoothing(smoothing)
        check_convex(phi, slope, curvature, domain)

    @property
    def name(self) -> str:
        return self.label

    @property
    def epsilon(self) -> float:
        return self.smoothing

    @property
    def functions(self) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """φ' and φ'' as they were given."""
        return self.slope_function, self.curvature_function

    def phi(self, x: FloatArray) -> FloatArray:
        origin = 1.0 if self.domain == "positive" else 0.0
        function = elementwise(self.phi_function)
        return function(x) - function(np.float64(origin))

    def slope(self, x: FloatArray) -> FloatArray:
        return elementwise(self.slope_function)(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return elementwise(self.curvature_function)(x)

    def check_range(self, low: float, high: float, name: str = "X") -> None:
        x = np.linspace(low, high, POINTS)
        x = x[(x != 0) & ((x != 1) | (self.domain != "unit"))]  # there a curvature may not exist
        curvature = self.curvature(x)
        wrong = ~(curvature >= 0)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"phi is not convex where {name} has entries, from {low:g} to {high:g}: its curvature at {x[i]:g} is "
                f"{curvature[i]:g}. Pass a function that is convex there, or another unit of {name}."
            )

    def unsmoothed(self) -> Self:
        if self.smoothing == 0:
            return self
        again = object.__new__(type(self))
        for name in self.__dataclass_fields__:
            object.__setattr__(again, name, 0.0 if name == "smoothing" else getattr(self, name))
        return again


def check_scale(scale: str, domain: str) -> None:
    """Refuse an unknown scale, and one that the domain does not allow."""
    require(scale in SCALES, f"scale={scale!r} is not allowed: use one of {', '.join(map(repr, SCALES))}.")
    require(
        scale == "none" or domain in ("nonnegative", "positive"),
        f"scale={scale!r} multiplies centroids by positive numbers of any size, and domain={domain!r} does not allow "
        "that: use scale='none'.",
    )


def check_convex(
    phi: Callable[[float], float], slope: Callable[[float], float], curvature: Callable[[float], float], domain: str
) -> None:
    """Refuse functions that numba cannot compile, that do not belong together, or of which φ is not convex."""
    x = SAMPLES[domain]
    step = 1e-5 * np.maximum(np.abs(x), 0.1)
    values = []
    for name, function in (("phi", phi), ("slope", slope), ("curvature", curvature)):
        compiled = compiled_by_numba(name, function)
        try:
            values.append([compiled(at) for at in (x - step, x, x + step)])
        except Exception as error:
            raise ValueError(
                f"{name} raises an error between {x[0]:g} and {x[-1]:g}, and domain={domain!r} includes that: {error}."
            ) from error
        if not np.isfinite(values[-1]).all():
            wrong = x[~np.isfinite(values[-1]).all(axis=0)][0]
            raise ValueError(f"{name}({wrong:g}) is not finite, and domain={domain!r} includes {wrong:g}: restrict it.")
    for end in {"positive": (), "unit": (0.0, 1.0)}.get(domain, (0.0,)):
        require(
            bool(np.isfinite(elementwise(phi)(end))),
            f"phi({end:g}) is not finite, and domain={domain!r} includes {end:g}: give phi its limit there, as in "
            "x * log(x) if x > 0 else 0.0, or use domain='positive'.",
        )
    for (name, low_and_high), (derivative, given) in (
        (("phi", values[0]), ("slope", values[1])),
        (("slope", values[1]), ("curvature", values[2])),
    ):
        numeric = (low_and_high[2] - low_and_high[0]) / (2 * step)
        size = np.abs(given[1]) + np.abs(low_and_high[1]) * 1e-4 + 1e-8
        wrong = np.abs(numeric - given[1]) > 1e-4 * size
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"{derivative} is not the derivative of {name}: at {x[i]:g} it is {given[1][i]:g}, and differences of "
                f"{name} give {numeric[i]:g}. Correct one of them."
            )
    if not (values[2][1] > 0).all():
        at = x[int(np.argmin(values[2][1]))]
        raise ValueError(
            f"phi is not convex: its curvature at {at:g} is not positive. Pass a strictly convex function."
        )


def compiled_by_numba(name: str, function: Callable[[float], float]) -> Callable[[Any], FloatArray]:
    """:func:`elementwise`, with a readable error where numba fails."""
    try:
        return elementwise(function)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(("Failed in", "During"))]
        reason = told[0].rstrip(".") if told else type(error).__name__
        raise ValueError(
            f"{name} cannot be compiled by numba: {reason}. Write it as a function of one number that uses only "
            "arithmetic and the math module."
        ) from error


@lru_cache(maxsize=32)
def elementwise(function: Callable[[float], float]) -> Callable[[Any], FloatArray]:
    """A plain function of a number as one of arrays, compiled."""
    import numba

    compiler: Any = numba.vectorize
    ufunc = compiler(["float64(float64)"])(function)

    def apply(x: Any) -> FloatArray:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(np.asarray(x, dtype=np.float64)))

    return apply
