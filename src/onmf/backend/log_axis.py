"""Sums of one function over products of two sets of numbers, at the cost of their sum instead of their product.

    F(t) = Σ_j w_j f(e^t c_j) = Σ_j w_j g(t + s_j),   g(u) = f(e^u),   s_j = log c_j

is a convolution on the logarithmic axis. The axis is cut into panels of equal width. On a panel g is a Chebyshev series
of a few terms, so all that F needs of the points s_j are the Chebyshev moments of each panel. F itself is again smooth,
and comes as series on panels of t. If g is analytic in a strip of half-width π, as for the negative binomial, the error
is at rounding level; for other functions the panels are halved until it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onmf.divergence import Array, FloatArray

TERMS = 12
"""Terms of a series on a panel."""

WIDEST, NARROWEST = 0.5, 0.5 / 64
"""Widths of the panels."""

ROUNDING = 1e-13
"""Error of the series, relative to the largest value of g on a panel, that counts as rounding."""

_ANGLES = np.pi * (np.arange(TERMS) + 0.5) / TERMS
NODES: FloatArray = np.cos(_ANGLES)
"""Chebyshev nodes on a panel from −1 to 1."""

_TO_SERIES = np.cos(np.outer(_ANGLES, np.arange(TERMS))) * np.where(np.arange(TERMS) == 0, 1, 2) / TERMS
_BETWEEN: FloatArray = np.cos(np.pi * np.arange(TERMS + 1) / TERMS)
_AT_BETWEEN = np.cos(np.outer(np.arange(TERMS), np.arccos(_BETWEEN)))

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Axis:
    """Panels of a part of the logarithmic axis: panel i goes from (first + i) · width to (first + i + 1) · width."""

    first: int
    panels: int
    width: float = WIDEST

    @classmethod
    def over(cls, ends: FloatArray, width: float = WIDEST, margin: float = 0.0) -> Axis:
        """The panels between two ends, and more on both sides if there is a margin."""
        low, high = float(ends[0]) - margin, float(ends[1]) + margin
        first = int(np.floor(low / width))
        return cls(first, int(np.floor(high / width)) - first + 1, width)

    @property
    def nodes(self) -> FloatArray:
        """The nodes of all panels. → (panels · terms,)"""
        starts = self.first + np.arange(self.panels)
        return ((starts[:, None] + (NODES + 1) / 2) * self.width).ravel()

    def moments(self, points: FloatArray, weights: FloatArray, rows: Array, number: int) -> FloatArray:
        """Chebyshev moments of points in each of ``number`` rows; empty ``weights`` or ``rows`` are ones or zeros.

        → (number, panels, terms)
        """
        from onmf import kernels

        moments = np.zeros((number, self.panels, TERMS))
        kernels.add_moments(points, weights, rows, self.width, self.first, moments)
        return moments


def series_of(values: FloatArray) -> FloatArray:
    """Chebyshev coefficients on each panel, from values at its nodes: (..., panels · terms) → (..., panels, terms)"""
    split = values.reshape(*values.shape[:-1], -1, TERMS)
    return np.asarray(split @ _TO_SERIES)


def convolve(function: Function, moments: FloatArray, points: Axis, targets: Axis) -> FloatArray:
    """Σ_j w_j f(e^t c_j) as series on the panels of ``targets``, from the moments of log c on those of ``points``.

    (rows, panels of points, terms) → (rows, panels of targets, terms)
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        grid = function(np.exp(targets.nodes[:, None] + points.nodes))
    grid = series_of(grid).reshape(len(grid), -1)
    return series_of(np.einsum("rs,ts->rt", moments.reshape(len(moments), -1), grid))


def width_for(functions: list[Function], low: float, high: float) -> float:
    """The width of panels on which the series of these functions of e^u are exact, for u between two numbers."""
    width = WIDEST
    while True:
        axis = Axis.over(np.array([low, high]), width)
        if all(_error(function, axis) <= ROUNDING for function in functions):
            return width
        if width <= NARROWEST:
            raise ValueError(
                "phi changes too fast to be interpolated between the smallest and the largest product of a scale and a "
                "centroid's entry: use scale='none', or bring the entries of X near 1."
            )
        width /= 2


def _error(function: Function, axis: Axis) -> float:
    """The largest error of the series of f(e^u) between the nodes, relative to the largest value on a panel."""
    starts = axis.first + np.arange(axis.panels)
    between = (starts[:, None] + (_BETWEEN + 1) / 2) * axis.width
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exact, nodes = function(np.exp(between)), function(np.exp(axis.nodes))
    if not (np.isfinite(exact).all() and np.isfinite(nodes).all()):
        return np.inf
    found = series_of(nodes) @ _AT_BETWEEN
    largest = np.abs(exact).max(axis=1)
    return float(np.max(np.abs(found - exact).max(axis=1) / np.where(largest > 0, largest, 1.0)))
