"""Bregman divergences of any convex φ, and the named ones: negative binomial, Bernoulli and exponential.

    D(x, y) = Σ_j φ(x_j) − φ(y_j) − φ'(y_j) (x_j − y_j)

With y = a·c and ψ(μ) = μ φ'(μ) − φ(μ), the loss of a row is Σ_j φ(x_j) minus its gain ⟨x, φ'(a c)⟩ − Σ_j ψ(a c_j). For
a = 1 that is a template φ'(c) with an offset, and the centroid is the mean. At other scales there is no closed form
unless φ is homogeneous, as in the β-family; :mod:`onmf.backend.curved` then computes scales, scores and centroids.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dis import get_instructions
from functools import cached_property
from inspect import getclosurevars, signature
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from onmf.arrays import FloatArray, on_gpu, read_only_view
from onmf.functions import exp, expm1, log, log1p, xlogy
from onmf.io.rules import require

from .base import Divergence, Domain, RowTerm, RowTerms, Scale, check_smoothing, divide, gpu_kernel, number
from .beta import KullbackLeibler

HALF_ULP = 2.0**-53  # probabilities are at least this far from 0 and 1, so that their logarithms are finite
LARGEST_TERM = 1e250  # of a loss: sums of weighted terms then stay inside float64
POINTS = 65  # places between the smallest and the largest entry of X at which a user's φ must be convex
THETAS = (1e-3, 1e6)  # smallest and largest θ; beyond, the negative binomial is Poisson to all digits that matter

SAMPLES: dict[str, FloatArray] = {
    "real": np.array([-2.5, -1.1, -0.3, 0.4, 1.2, 2.6]),
    "nonnegative": np.array([0.05, 0.3, 0.9, 1.7, 4.2, 11.0]),
    "positive": np.array([0.05, 0.3, 0.9, 1.7, 4.2, 11.0]),
    "unit": np.array([0.04, 0.2, 0.45, 0.6, 0.83, 0.96]),
}
"""Where a user's φ is compared with its derivatives, for each domain."""


class CudaFunctions(NamedTuple):
    """Functions of a divergence as CUDA expressions of two numbers, x and t."""

    slope: str  # φ'(x)
    moment: str  # x φ''(x)
    factor: str = ""  # f(1 / x) ≥ 1 with φ' = −log f, if there is one: kernels multiply before they take a logarithm
    t: float = 0.0


@dataclass(frozen=True)
class Convex(Divergence):
    """Base of the divergences that are given by a convex function φ.

    Centroids keep their size, except with the scale "fit", where only their direction counts. Subclasses write
    :attr:`scale_rule`, :meth:`phi`, :meth:`slope` and :meth:`curvature`.
    """

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
        """The moment x φ''(x); 0 for x = 0, where φ'' may be infinite."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x == 0, 0.0, x * self.curvature(x))

    def terms_of_psi(self, x: FloatArray) -> FloatArray:
        """The size of the terms from which ψ is computed, by which its rounding is measured."""
        return np.abs(x * self.slope(x)) + np.abs(self.phi(x))

    @property
    def kernel_functions(self) -> Any:
        """The same functions as :mod:`onmf.kernels.bregman` takes them; None if there are none but those above."""
        return None

    @property
    def cuda_functions(self) -> CudaFunctions | None:
        """The same functions as kernels of a GPU take them; None if there are none."""
        return None

    @property
    def curved(self) -> bool:
        return not self.absolute

    @property
    def fixed_weights(self) -> bool:
        return self.sized

    @property
    def row_terms(self) -> Mapping[str, RowTerm]:
        return {"sum": lambda x, j: x, "phi": lambda x, j: self.phi(x)}

    def row_size(self, terms: RowTerms) -> FloatArray:
        counts = self.domain in ("nonnegative", "positive")
        return terms["sum"] if counts else np.full_like(terms["sum"], terms["features"])

    def size(self, vectors: FloatArray) -> FloatArray:
        return super().size(vectors) if self.sized else vectors.sum(axis=1)

    def initial_centroids(self, centroids: FloatArray) -> FloatArray:
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

    def centers(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        means = super().centers(sums, mass)
        return np.clip(means, 0.0, 1.0) if self.domain == "unit" else means  # a mean of ones may be rounded up

    def smooth(self, centroids: FloatArray, at_least: float = 0.0) -> FloatArray:
        C, ε = self.normalise(centroids), max(self.epsilon, at_least)
        if self.domain == "unit":
            return np.clip((C + ε / 2) / (1 + ε), HALF_ULP, 1 - HALF_ULP)
        if ε == 0 or self.domain != "nonnegative":
            return C
        # The size is kept, because the scores depend on it. A centroid of zero rows becomes an even one.
        means = C.mean(axis=1, keepdims=True)
        return (C + ε * np.where(means > 0, means, 1 / C.shape[1])) / (1 + ε)


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
    cuda : tuple of three str, optional
        φ, φ' and φ'' as CUDA expressions of ``x``, a ``double``: ``("exp(x)", "exp(x)", "exp(x)")``. Only the GPU needs
        them, and compares them with the functions.

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
    cuda: tuple[str, str, str] | None = None

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
        cuda: tuple[str, str, str] | None = None,
    ) -> None:
        given = (phi, slope, curvature, domain, scale, smoothing, label, cuda)
        for name, value in zip(self.__dataclass_fields__, given, strict=True):
            object.__setattr__(self, name, value)
        check_scale(scale, domain)
        check_smoothing(smoothing)
        valid = cuda is None or (len(cuda) == 3 and all(isinstance(each, str) for each in cuda))
        require(valid, f"cuda={cuda!r} is not allowed: it must be three texts, for phi, slope and curvature.")
        check_functions(self)
        check_derivatives(self)

    @property
    def epsilon(self) -> float:
        return self.smoothing

    @property
    def name(self) -> str:
        return self.label

    @property
    def functions(self) -> dict[str, Callable[[float], float]]:
        """φ, φ' and φ'' as they were given, by the names of the arguments."""
        return {"phi": self.phi_function, "slope": self.slope_function, "curvature": self.curvature_function}

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """Addresses of φ, φ' and φ'', compiled when the object is made: it does not follow their outer variables."""
        return tuple(compiled(name, function) for name, function in self.functions.items())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "addresses"}  # of this process

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def changed(self, **values: Any) -> Self:
        other = object.__new__(type(self))
        vars(other).update(vars(self) | {name: value for name, value in values.items() if name in vars(self)})
        return other

    @property
    def kernel_functions(self) -> Any:
        return self.addresses[1:]

    def settings(self) -> dict[str, Any]:
        others = {"domain": self.domain, "scale": self.scale_rule, "smoothing": self.smoothing, "label": self.label}
        return {**self.functions, **others, "cuda": self.cuda}

    @property
    def cuda_functions(self) -> CudaFunctions | None:
        return None if self.cuda is None else CudaFunctions(self.cuda[1], f"x != 0 ? x * ({self.cuda[2]}) : 0")

    def phi(self, x: FloatArray) -> FloatArray:
        return self._at(0, x) - float(self._at(0, 1.0 if self.domain == "positive" else 0.0)[0])

    def terms_of_psi(self, x: FloatArray) -> FloatArray:
        # Functions such as log(1 + x) have no more digits of a small x than of 1.
        return super().terms_of_psi(x) + np.abs(self._at(0, x)) + 0.01 * super().terms_of_psi(np.ones(1))

    def slope(self, x: FloatArray) -> FloatArray:
        return self._at(1, x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return self._at(2, x)

    def _at(self, derivative: int, x: Any) -> FloatArray:
        """φ, φ' or φ'' of each entry of an array."""
        if on_gpu(x):
            if self.cuda is None:
                raise TypeError("its functions are for the CPU alone")
            return gpu_kernel("float64 x", f"y = ({self.cuda[derivative]})")(x)

        from onmf.kernels.bregman import map_entries  # numba takes long to import

        x = np.ascontiguousarray(x, dtype=np.float64)
        out = np.empty(x.shape)
        map_entries(self.addresses[derivative], read_only_view(x.reshape(-1)), out.reshape(-1))
        return out

    def check_range(self, low: float, high: float, name: str = "X") -> None:
        x = np.linspace(low, high, POINTS)
        x = x[(x != 0) & ((x != 1) | (self.domain != "unit"))]  # there a curvature may not exist
        wrong = x[~(self.curvature(x) >= 0)]
        if wrong.size:
            raise ValueError(
                f"phi is not convex where {name} has entries, from {low:g} to {high:g}: its curvature at {wrong[0]:g} "
                f"is {self.curvature(wrong)[0]:g}. Pass a function that is convex there, or another unit of {name}."
            )
        with np.errstate(over="ignore"):
            largest = np.maximum(np.abs(self.phi(x)), np.maximum(np.abs(x), 1.0) * np.abs(self.slope(x)))
        wrong = x[~(largest <= LARGEST_TERM)]
        if wrong.size:
            raise ValueError(
                f"Input {name} is out of range: its entries go from {low:g} to {high:g}, and phi or x · slope at "
                f"{wrong[0]:g} exceeds {LARGEST_TERM:g}, beyond which float64 cannot add many of them. Bring the "
                "entries near 1."
            )


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
    warm_start = KullbackLeibler()  # its smoothing lets rows move between clusters that do not share all words

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

    @property
    def epsilon(self) -> float:
        return self.smoothing

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({given})"

    @property
    def parameter(self) -> float:
        """θ as a number; 1 until it is estimated."""
        return 1.0 if isinstance(self.theta, str) else float(self.theta)

    @property
    def kernel_functions(self) -> float:
        return self.parameter

    @property
    def cuda_functions(self) -> CudaFunctions:
        return CudaFunctions("-log1p(t / x)", "t / (x + t)", "1 + t * x", self.parameter)

    def phi(self, x: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):  # 0 · (−∞) is 0 here
            return np.where(x == 0, 0.0, x * self.slope(x)) - self.psi(x)

    def slope(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):  # the quotient leaves float64 for the smallest x
            ratio = self.parameter / x
            return np.where(ratio < np.inf, -log1p(ratio), log(x) - log(self.parameter))

    def curvature(self, x: FloatArray) -> FloatArray:
        return self.parameter / (x * (x + self.parameter))

    def psi(self, x: FloatArray) -> FloatArray:
        return self.parameter * log1p(x / self.parameter)

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
        return xlogy(x, x) + (1 - x) * log1p(-np.where(x == 1, 0.0, x))

    def slope(self, x: FloatArray) -> FloatArray:
        return log(x) - log1p(-x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return 1 / (x * (1 - x))

    def psi(self, x: FloatArray) -> FloatArray:
        return -log1p(-x)


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
        return expm1(x)

    def slope(self, x: FloatArray) -> FloatArray:
        return exp(x)

    def curvature(self, x: FloatArray) -> FloatArray:
        return exp(x)


def check_scale(scale: str, domain: str) -> None:
    """Refuse an unknown scale or domain, and a scale that the domain does not allow."""
    for name, value, names in (("domain", domain, get_args(Domain)), ("scale", scale, get_args(Scale))):
        require(value in names, f"{name}={value!r} is not allowed: use one of {', '.join(map(repr, names))}.")
    require(
        scale == "none" or domain in ("nonnegative", "positive"),
        f"scale={scale!r} multiplies centroids by positive numbers of any size, and domain={domain!r} does not allow "
        "that: use scale='none'.",
    )


def check_functions(divergence: Bregman) -> None:
    """Refuse functions that numba cannot compile, that raise an error or are not finite where they must be."""
    domain, x = divergence.domain, SAMPLES[divergence.domain]
    for derivative, (name, function) in enumerate(divergence.functions.items()):
        try:
            plain = [function(float(at)) for at in x]
        except Exception as error:  # compiled code would swallow it
            raise ValueError(
                f"{name} raises an error between {x[0]:g} and {x[-1]:g}, and domain={domain!r} includes that: {error}."
            ) from error
        if raises(function):
            raise ValueError(f"{name} has a raise or assert, which compiled code swallows: return NaN there instead.")
        values = divergence._at(derivative, x)
        require(
            np.allclose(values, plain, rtol=1e-6, equal_nan=True),
            f"{name} was compiled before with other values of its outer variables: make those arguments of a function "
            "that returns it.",
        )
        for wrong in x[~np.isfinite(values)]:
            raise ValueError(f"{name}({wrong:g}) is not finite, and domain={domain!r} includes {wrong:g}: restrict it.")
    for end in {"positive": (), "unit": (0.0, 1.0)}.get(domain, (0.0,)):
        require(
            bool(np.isfinite(divergence._at(0, end))),
            f"phi({end:g}) is not finite, and domain={domain!r} includes {end:g}: give phi its limit there, as in "
            "x * log(x) if x > 0 else 0.0, or use domain='positive'.",
        )


def raises(function: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether a function, or a compiled one that it calls, has a raise statement."""
    function = getattr(function, "py_func", function)
    if not hasattr(function, "__code__") or function in seen:
        return False
    if any(step.opname == "RAISE_VARARGS" for step in get_instructions(function)):
        return True
    outer = getclosurevars(function)
    called = [each for each in (*outer.nonlocals.values(), *outer.globals.values()) if hasattr(each, "py_func")]
    return any(raises(each, (*seen, function)) for each in called)


def check_derivatives(divergence: Convex) -> None:
    """Refuse functions of which one is not the derivative of the other, and a φ that is not convex."""
    x, origin = SAMPLES[divergence.domain], np.ones(1) if divergence.domain == "positive" else np.zeros(1)
    x = x * min(1.0, 0.9 * divergence.entry_range[1] / np.abs(x).max())
    require(not divergence.phi(origin).any(), f"phi({origin[0]:g}) is not 0: subtract it, which changes no divergence.")
    step = 1e-5 * np.maximum(np.abs(x), 0.1)
    phi, slope, curvature = (
        np.array([function(at) for at in (x - step, x, x + step)])
        for function in (divergence.phi, divergence.slope, divergence.curvature)
    )
    pairs = ("phi", phi, "slope", slope[1]), ("slope", slope, "curvature", curvature[1])
    for name, values, derivative, given in pairs:
        numeric = (values[2] - values[0]) / (2 * step)
        wrong = ~(np.abs(numeric - given) <= 1e-4 * (np.abs(given) + np.abs(values[1]) * 1e-4 + 1e-8))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"{derivative} is not the derivative of {name}: at {x[i]:g} it is {given[i]:g}, and differences of "
                f"{name} give {numeric[i]:g}. Correct one of them."
            )
    at = x[int(np.argmin(curvature[1]))]
    require(
        bool((curvature[1] > 0).all()),
        f"phi is not convex: its curvature at {at:g} is not positive. Pass a strictly convex function.",
    )
    for name, values in (("psi", x * slope[1] - phi[1]), ("moment", x * curvature[1])):
        same = np.allclose(getattr(divergence, name)(x), values, rtol=1e-8, atol=1e-8)
        require(same, f"{name} does not follow from phi, slope and curvature: leave it out, or correct it.")


def compiled(name: str, function: Callable[[float], float]) -> int:
    """The address of a user's function, compiled; with a readable error where numba fails."""
    from onmf.kernels.jit import address_of

    try:
        return address_of(function)
    except Exception as error:
        lines = [line for line in map(str.strip, str(error).splitlines()) if line]
        reason = next((line for line in lines if not line.startswith(("Failed in", "During"))), type(error).__name__)
        raise ValueError(
            f"{name} cannot be compiled by numba: {reason.rstrip('.')}. Write it as a function of one number that uses "
            "only arithmetic and the math module."
        ) from error
