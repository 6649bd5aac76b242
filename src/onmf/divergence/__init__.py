"""The closed forms of each divergence. See :class:`~onmf.divergence.Divergence` for what they have to say."""

from __future__ import annotations

from numbers import Real

import numpy as np

from .base import Array, Divergence, Domain, FloatArray, RowTerms, divide
from .beta import BetaAboveOne, BetaBelowOne, ItakuraSaito
from .frobenius import Cosine, Frobenius
from .kullback_leibler import KullbackLeibler

__all__ = [
    "Array",
    "BetaAboveOne",
    "BetaBelowOne",
    "Cosine",
    "Divergence",
    "Domain",
    "FloatArray",
    "Frobenius",
    "ItakuraSaito",
    "KullbackLeibler",
    "RowTerms",
    "divide",
    "get_divergence",
]

NAMES = ("kullback-leibler", "frobenius", "itakura-saito", "cosine")


def get_divergence(beta_loss: str | float | Divergence, smoothing: float = 1e-3) -> Divergence:
    """The divergence that ``beta_loss`` names.

    Parameters
    ----------
    beta_loss : {"kullback-leibler", "frobenius", "itakura-saito", "cosine"}, float or Divergence
        A number is β: 1 is Kullback–Leibler, 2 Frobenius, 0 Itakura–Saito.
    smoothing : float, default=1e-3
        ε of the divergences that need one (0 < β ≤ 1); the others, and a Divergence object, do without it.

    Returns
    -------
    Divergence
    """
    if isinstance(beta_loss, Divergence):
        return beta_loss
    if isinstance(beta_loss, Real) and not isinstance(beta_loss, bool) and np.isfinite(beta_loss):
        β = float(beta_loss)
        if β == 2:
            return Frobenius()
        if β == 1:
            return KullbackLeibler(smoothing)
        if β == 0:
            return ItakuraSaito()
        return BetaAboveOne(β) if β > 1 else BetaBelowOne(β, smoothing if β > 0 else 0.0)
    match beta_loss:
        case "kullback-leibler":
            return KullbackLeibler(smoothing)
        case "frobenius":
            return Frobenius()
        case "itakura-saito":
            return ItakuraSaito()
        case "cosine":
            return Cosine()
    raise ValueError(
        f"beta_loss={beta_loss!r} is not a divergence: use one of {', '.join(map(repr, NAMES))}, "
        "a finite number β, or an onmf.divergence.Divergence object."
    )
