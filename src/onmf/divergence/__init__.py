"""The closed forms of each divergence. See :class:`~onmf.divergence.Divergence` for the interface."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from onmf.arrays import Array, FloatArray

from .base import Divergence, Domain, RowTerm, RowTerms, Scale, TemplateForm, divide, number
from .beta import BetaAboveOne, BetaBelowOne, Cosine, Frobenius, ItakuraSaito, KullbackLeibler
from .bregman import THETAS, Bernoulli, Bregman, Convex, CudaFunctions, Exponential, NegativeBinomial
from .moves import Clusters, Entries, Moves

__all__ = [
    "THETAS",
    "Array",
    "Bernoulli",
    "BetaAboveOne",
    "BetaBelowOne",
    "Bregman",
    "Clusters",
    "Convex",
    "Cosine",
    "CudaFunctions",
    "Divergence",
    "Domain",
    "Entries",
    "Exponential",
    "FloatArray",
    "Frobenius",
    "ItakuraSaito",
    "KullbackLeibler",
    "Moves",
    "NegativeBinomial",
    "RowTerm",
    "RowTerms",
    "Scale",
    "TemplateForm",
    "divide",
    "get_divergence",
    "number",
    "register",
]

NAMED: dict[str, Callable[[float], Divergence]] = {
    "kullback-leibler": KullbackLeibler,
    "frobenius": lambda smoothing: Frobenius(),
    "itakura-saito": lambda smoothing: ItakuraSaito(),
    "cosine": lambda smoothing: Cosine(),
    "negative-binomial": lambda smoothing: NegativeBinomial(smoothing=smoothing),
    "bernoulli": Bernoulli,
    "exponential": lambda smoothing: Exponential(),
}
"""Divergences by name, for a smoothing."""

NAMES = tuple(NAMED)
LIMITS = {2: "frobenius", 1: "kullback-leibler", 0: "itakura-saito"}  # β of divergences that have a name
SMOOTHING = 1e-3  # the paper's ε
LARGEST_BETA = 100  # largest |β|: beyond it, the powers of nearly all entries leave float64

NEAR_ZERO, NEAR_ONE = 0.05, 1e-6
"""β closer to 0 or 1 than this is refused. Near 0, p^(1/β), the size in the gauge of a centroid with one nonzero entry,
leaves float64. Near 1, the division by β − 1 leaves too few digits of a loss."""

REGISTERED: dict[str, type[Divergence]] = {}  # classes of users that model files may name

OwnClass = TypeVar("OwnClass", bound=type[Divergence])


def register(kind: OwnClass) -> OwnClass:
    """Let model files name a divergence class of your own. Use it as a decorator of the class.

    A model file holds no code, only the name of the class and the values of its fields: numbers, texts, booleans, None,
    or tuples of them. Whoever loads the file must have registered the class, too.

    Parameters
    ----------
    kind : subclass of Divergence
        The class. Its name must differ from those of the divergences here.

    Returns
    -------
    type
        The same class.
    """
    if not (isinstance(kind, type) and issubclass(kind, Divergence)):
        raise TypeError(f"{kind!r} cannot be registered: pass a subclass of onmf.divergence.Divergence.")
    if kind.__name__ in globals():
        raise ValueError(f"{kind.__name__!r} is the name of a divergence of onmf: give your class another name.")
    known = REGISTERED.get(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # defined again is fine
        raise ValueError(f"{known!r} is registered under the name of {kind!r}: give one of them another name.")
    REGISTERED[kind.__name__] = kind
    return kind


def get_divergence(beta_loss: str | float | Divergence, smoothing: float | str = "auto") -> Divergence:
    """The divergence that ``beta_loss`` names.

    Parameters
    ----------
    beta_loss : str, float or Divergence
        One of ``"kullback-leibler"``, ``"frobenius"``, ``"itakura-saito"``, ``"cosine"``, ``"negative-binomial"``,
        ``"bernoulli"`` and ``"exponential"``. A number is β: 1 is Kullback–Leibler, 2 Frobenius, 0 Itakura–Saito.
    smoothing : float or "auto", default="auto"
        ε of the divergences that need one (0 < β ≤ 1, negative binomial, Bernoulli), 1e-3 by default; the others, and a
        Divergence object, ignore it.

    Returns
    -------
    Divergence
    """
    ε: Any = SMOOTHING if isinstance(smoothing, str) and smoothing == "auto" else smoothing
    if isinstance(beta_loss, Divergence):
        return beta_loss
    if isinstance(beta_loss, type) and issubclass(beta_loss, Divergence):
        raise ValueError(f"beta_loss={beta_loss.__name__} is a class: pass an object of it, {beta_loss.__name__}(...).")
    β = number(beta_loss)
    if np.isfinite(β):
        if β in LIMITS:
            return NAMED[LIMITS[int(β)]](ε)
        if abs(β) > LARGEST_BETA:
            raise ValueError(f"beta_loss={β!r} is not allowed: β must lie between -{LARGEST_BETA} and {LARGEST_BETA}.")
        for limit, near in ((0, NEAR_ZERO), (1, NEAR_ONE)):
            if abs(β - limit) < near:
                raise ValueError(
                    f"beta_loss={β!r} is too near {limit} to be computed with: use {LIMITS[limit]!r}, the limit there, "
                    f"or a β at least {near:g} away."
                )
        return BetaAboveOne(β) if β > 1 else BetaBelowOne(β, ε if β > 0 else 0.0)
    if isinstance(beta_loss, str) and beta_loss in NAMED:
        return NAMED[beta_loss](ε)
    raise ValueError(
        f"beta_loss={beta_loss!r} is not a divergence: use one of {', '.join(map(repr, NAMES))}, "
        "a finite number β, or an onmf.divergence.Divergence object."
    )
