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

MAX_WIDTH, MIN_WIDTH = 0.5, 0.5 / 64
"""Widths of the panels."""

SERIES_ROUNDING = 1e-13
"""Error of the series, relative to the largest term of g on a panel, that counts as rounding."""

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
    width: float = MAX_WIDTH

    @classmethod
    def over(cls, ends: FloatArray, width: float = MAX_WIDTH, margin: float = 0.0) -> Axis:
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

    The panels of both axes have one width, so g depends on the sum of two panels only, and is computed once for each
    sum. Panels without points are left out. Time and memory are bounded by the range of both axes, not its square.
    """
    used = np.flatnonzero(moments.any(axis=(0, 2)))
    sums = Axis(points.first + targets.first, points.panels + targets.panels - 1, points.width)
    starts = (sums.first + np.arange(sums.panels))[:, None, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # g at the nodes of a panel of targets and of one of points, by their sum: (sums, terms, terms)
        grid = function(np.exp((starts + (NODES[:, None] + 1) / 2 + (NODES + 1) / 2) * sums.width))
    grid = grid @ _TO_SERIES
    held, out = moments[:, used].reshape(len(moments), -1), np.empty((len(moments), targets.panels, TERMS))
    for t in range(targets.panels):
        out[:, t] = np.einsum("rs,ns->rn", held, grid[t + used].transpose(1, 0, 2).reshape(TERMS, -1))
    return series_of(out.reshape(len(out), -1))


def width_for(functions: list[tuple[Function, Function]], low: float, high: float) -> float:
    """The width of panels on which the series of functions of e^u are exact, for u between two numbers.

    Each comes with the size of the terms that it is computed from, by which rounding is measured.
    """
    width = MAX_WIDTH
    while True:
        axis = Axis.over(np.array([low, high]), width)
        if all(_error(function, size, axis) <= SERIES_ROUNDING for function, size in functions):
            return width
        if width <= MIN_WIDTH:
            raise ValueError(
                "phi changes too fast to be interpolated between the smallest and the largest product of a scale and a "
                "centroid's entry: use scale='none', or bring the entries of X near 1."
            )
        width /= 2


def _error(function: Function, size: Function, axis: Axis) -> float:
    """The largest error of the series of f(e^u) between the nodes, relative to the largest size on a panel."""
    starts = axis.first + np.arange(axis.panels)
    between = (starts[:, None] + (_BETWEEN + 1) / 2) * axis.width
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exact, nodes, sizes = function(np.exp(between)), function(np.exp(axis.nodes)), size(np.exp(between))
    if not (np.isfinite(exact).all() and np.isfinite(nodes).all()):
        return np.inf
    found = series_of(nodes) @ _AT_BETWEEN
    largest = np.maximum(np.abs(exact), sizes).max(axis=1)
    return float(np.max(np.abs(found - exact).max(axis=1) / np.where(largest > 0, largest, 1.0)))
