"""The sums of divergences without closed forms on the CPU, at the cost of the nonzeros.

Sums of ψ(a c) over all features are one function of log a for each cluster, and sums over all rows of a cluster one
function of log c: sums of one function over products of two sets of numbers.

    F(t) = Σ_j w_j f(e^t c_j) = Σ_j w_j g(t + s_j),   g(u) = f(e^u),   s_j = log c_j

is a convolution on the logarithmic axis. The axis is cut into panels of equal width. On a panel g is a Chebyshev series
of a few terms, so all that F needs of the points s_j are the Chebyshev moments of each panel. F itself is again smooth,
and comes as series on panels of t. If g is analytic in a strip of half-width π, as for the negative binomial, the error
is at rounding level; for other functions the panels are halved until it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onmf.divergence import Array, Convex, Entries, FloatArray

from .curved import REACH, CentroidEntries, CurvedBlock, CurvedTemplates, Curves

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


NOWHERE = np.empty(0, dtype=np.int64)


class PreparedSeries(NamedTuple):
    """What all rows need of the centroids: their transpose, its largest entry, and series.

    The series are that of Ψ, or those of Ψ and its derivative. For the kernel of counts, the transpose has θ / c.
    """

    CT: FloatArray
    largest: float
    coefficients: FloatArray
    targets: Axis


class CpuCurves(Curves):
    """Sums over nonzeros by kernels, and over zeros by series."""

    def prepare(self, block: CurvedBlock, C: FloatArray) -> CurvedTemplates:
        fitted = block.convex.scale_rule == "fit"
        sizes = block.sizes[block.sizes > 0]
        functions, margin = functions_of(block.convex), REACH if fitted else 0.0
        points = [logs_of_entries(c) for c in C]
        places, entries = ends(np.log(sizes)), ends(*(each for each, _ in points))
        width = width_on(block.convex, Axis.over(places, margin=margin), entries)
        targets, axis = Axis.over(places, width, margin), Axis.over(entries, width)
        moments = np.concatenate([axis.moments(each, counts, NOWHERE, 1) for each, counts in points])
        series = [convolve(function, moments, axis, targets) for function in functions[: 1 + fitted]]
        # The kernel for sizes adds one term to all clusters at a time.
        coefficients = np.stack(series) if fitted else np.ascontiguousarray(series[0].transpose(1, 2, 0))
        CT = np.ascontiguousarray(C.T)
        phi = block.convex.kernel_functions
        if isinstance(phi, float) and not fitted:  # θ
            with np.errstate(divide="ignore", over="ignore"):  # the kernel reads infinity as a large number
                np.divide(phi, CT, out=CT)
        return CurvedTemplates(C, None, PreparedSeries(CT, float(CT.max()), coefficients, targets))

    def scores(
        self, block: CurvedBlock, templates: CurvedTemplates, start: int, stop: int
    ) -> tuple[FloatArray, FloatArray]:
        from onmf import kernels

        prepared, k = templates.prepared, len(templates)
        assert isinstance(prepared, PreparedSeries), "templates come from prepare()"
        scores, entries = np.empty((stop - start, k)), Entries.of(block.source)
        phi, sizes, rule = block.convex.kernel_functions, block.sizes, block.convex.scale_rule
        series = prepared.coefficients, prepared.targets.width, prepared.targets.first
        if rule == "fit":
            scales = np.empty_like(scores)
            kernels.scores_and_scales(*entries, prepared.CT, *series, phi, REACH, start, stop, sizes, scores, scales)
            return scores, scales
        if isinstance(phi, float):
            kernels.counts_at_sizes(*entries, prepared.CT, prepared.largest, *series, start, stop, sizes, scores)
        else:
            kernels.scores_at_sizes(*entries, prepared.CT, *series, phi, start, stop, sizes, scores)
        return scores, np.broadcast_to(sizes[start:stop, None], scores.shape)

    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        from onmf import kernels

        starts, k, weights = centroids.starts, len(centroids.starts) - 1, block.host_weights
        order, bounds = np.empty(len(labels), dtype=np.int64), np.zeros(k + 1, dtype=np.int64)
        kernels.order_by_label(labels, bounds, order)
        entries, phi = Entries.of(block.source), block.convex.kernel_functions
        points, places = np.log(centroids.values), logs(scales)
        functions, entries_between, rows_between = functions_of(block.convex), ends(points), ends(places)
        width = width_on(block.convex, Axis.over(rows_between), entries_between)
        axis, targets = Axis.over(rows_between, width), Axis.over(entries_between, width)
        moments = axis.moments(places, weights, labels.astype(np.int64), k)
        series = [convolve(function, moments, axis, targets) for function in functions]
        out, slopes = np.empty((3, len(points))), np.empty(len(points))
        loss, pulls, push = out

        def clusters(start: int, stop: int) -> None:
            kernels.pulls_by_label(
                *entries, order, bounds, scales, weights, *centroids, phi, start, stop, slopes, pulls
            )
            for c in range(start, stop):
                own = slice(starts[c], starts[c + 1])
                one, other = (coefficients[c] for coefficients in series)
                kernels.series_at(points[own], one, other, width, targets.first, loss[own], push[own])

        work = max(1, block.source.size // max(1, len(block)))
        block.backend.threads.over_blocks(clusters, bounds, 4 * work)
        loss -= slopes
        return out


def logs_of_entries(centroid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the positive entries of a centroid, and how often each occurs.

    The smallest entry of a smoothed centroid is that of all features which do not occur in the cluster.
    """
    least = centroid.min(where=centroid > 0, initial=np.inf)
    larger = centroid[centroid > least]
    counts = np.ones(len(larger) + 1)
    counts[-1] = np.count_nonzero(centroid == least)
    return np.log(np.append(larger, least if counts[-1] else 1.0)), counts


def ends(*points: FloatArray) -> FloatArray:
    """The smallest and the largest finite number. → (2,)"""
    finite = [each if np.isfinite(each).all() else each[np.isfinite(each)] for each in points]
    known = [each for each in finite if len(each)]
    return np.array([min(each.min() for each in known), max(each.max() for each in known)] if known else [0.0, 0.0])


def logs(values: FloatArray) -> FloatArray:
    """Logarithms; −∞ of 0."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def functions_of(convex: Convex) -> list[Function]:
    """ψ(μ) and μ² φ''(μ)."""
    return [convex.psi, lambda μ: μ * convex.moment(μ)]


def width_on(convex: Convex, axis: Axis, between: FloatArray) -> float:
    """The width of panels for products of numbers with logarithms on an axis and between two ends."""
    other = Axis.over(between)
    low = (axis.first + other.first) * axis.width
    psi, push = functions_of(convex)
    return width_for([(psi, convex.terms_of_psi), (push, push)], low, low + (axis.panels + other.panels) * axis.width)
