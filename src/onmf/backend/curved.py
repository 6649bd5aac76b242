"""Divergences without closed forms: blocks and runs that compute scores, scales and centroids by iteration.

    score_ik = max over a, or at the size of the row, of ⟨x_i, φ'(a c_k)⟩ − Σ_j ψ(a c_kj)
    centroid: Σ_i w_i a_i φ''(a_i c_j) (a_i c_j − x_ij) = 0 for each cluster and feature

Zeros of the rows occur in sums of ψ and of μ² φ''(μ) over all features, or over all rows of a cluster. :class:`Curves`
computes these and the sums over the nonzeros as they are defined, the oracle, and :class:`CpuCurves` at the cost of the
nonzeros. Sums over all features are one function of log a for each cluster, and sums over all rows of a cluster one
function of log c: sums of one function over products of two sets of numbers.

    F(t) = Σ_j w_j f(e^t c_j) = Σ_j w_j g(t + s_j),   g(u) = f(e^u),   s_j = log c_j

is a convolution on the logarithmic axis. The axis is cut into panels of equal width. On a panel g is a Chebyshev series
of a few terms, so all that F needs of the points s_j are the Chebyshev moments of each panel. F itself is again smooth,
and comes as series on panels of t. If g is analytic in a strip of half-width π, as for the negative binomial, the error
is at rounding level; for other functions the panels are halved until it is.

Symbols: C (k, p) centroids, μ = a·c, a (n,) scales, w (n,) sample weights, s = log c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from onmf.divergence import Array, Convex, Divergence, Entries, FloatArray
from onmf.functions import exp, log, matrix_product

from .base import Assignment, Block, Drift, Run, StepSums, Templates, largest_change

ROWS_AT_A_TIME = 4096  # rows whose scores are held together
ENTRIES_AT_A_TIME = 1 << 20  # entries of rows, zeros included, that are held together
REACH = 14.0  # how far the logarithm of the best scale may lie from that of the row's size

# Evaluations in an update, while rows move and when none does any more: at the old centroids, and after each step.
PASSES = (2, 4)
MAX_LOG_STEP = 2.0  # longest step of log c
LOG_STEP_TOL = 1e-11  # step of log c below which a centroid is found
SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)  # least entry of a centroid besides zero: its logarithm is finite
LOSS_ROUNDING = 1e-13  # rise of a loss, relative to the terms it is computed from, that counts as rounding

TERMS = 12  # of a series on a panel
MAX_WIDTH, MIN_WIDTH = 0.5, 0.5 / 64  # of the panels
SERIES_ROUNDING = 1e-13  # error of the series, relative to the largest term of g on a panel, that counts as rounding

_COSINES = np.array([1.0, np.sqrt(0.75), 0.5, 0.0, -0.5, -np.sqrt(0.75), -1.0])  # from 0 to π
for _ in range(2):  # cos(t / 2)² = (1 + cos t) / 2. NumPy's cosines depend on the processor; its roots do not.
    _HALVED = np.sqrt((1 + _COSINES) / 2)
    _COSINES = np.concatenate([_HALVED, -_HALVED[-2::-1]])


def _cos(steps: Array) -> FloatArray:
    """The cosines of whole multiples of π / 24."""
    return _COSINES[np.abs((steps + 24) % 48 - 24)]


_ODD, _EVEN, _DEGREES = 2 * np.arange(TERMS) + 1, 2 * np.arange(TERMS + 1), np.arange(TERMS)
NODES = _cos(_ODD)  # Chebyshev nodes on a panel from −1 to 1
TO_SERIES = _cos(np.outer(_ODD, _DEGREES)) * np.where(_DEGREES == 0, 1, 2) / TERMS
_BETWEEN = _cos(_EVEN)
_AT_BETWEEN = _cos(np.outer(_DEGREES, _EVEN))

NOWHERE = np.empty(0, dtype=np.int64)

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class CurvedTemplates(Templates):
    """Smoothed centroids, and what :class:`CpuCurves` computes from them once for all rows."""

    CT: Any = None  # (p, k) their transpose; θ / c for the kernel of counts
    largest: float = 0.0  # its largest entry
    coefficients: Any = None  # series of Ψ, or those of Ψ and its derivative
    targets: Any = None  # the axis of the series


class CentroidEntries(NamedTuple):
    """Nonzero entries of centroids, those of one after those of the other."""

    starts: Array  # (k + 1,) where the entries of each centroid start
    clusters: Array  # (h,)
    features: Array  # (h,)
    values: FloatArray  # (h,)
    n_features: int

    @classmethod
    def of(cls, C: FloatArray, held: Array | None = None) -> CentroidEntries:
        """The entries of centroids that are not zero, or those that are held."""
        clusters, features = np.nonzero(C if held is None else held)
        starts = np.searchsorted(clusters, np.arange(len(C) + 1, like=clusters))
        return cls(starts, clusters, features, C[clusters, features], C.shape[1])

    @property
    def dense(self) -> FloatArray:
        """The centroids. → (k, p)"""
        C = np.zeros_like(self.values, shape=(len(self.starts) - 1, self.n_features))
        C[self.clusters, self.features] = self.values
        return C


class Curves:
    """The sums over rows and centroids that a curved divergence needs, as they are defined."""

    def rows_at_a_time(self, features: int) -> int:
        """Number of rows whose scores are computed together."""
        return max(1, ENTRIES_AT_A_TIME // features)

    def prepare(self, block: CurvedBlock, C: FloatArray) -> CurvedTemplates:
        """Compute once what all rows need of the centroids."""
        return CurvedTemplates(np.ascontiguousarray(C, dtype=np.float64))

    def over_rows(self, block: CurvedBlock, templates: Any, select: Select, *out: Array) -> None:
        """Fill arrays with what ``select(rows, scores, scales)`` returns for some rows at a time."""
        zero, at_a_time = templates.B == 0, self.rows_at_a_time(block.shape[1])
        with np.errstate(divide="ignore"):  # whether a positive entry costs infinity where a centroid is zero
            forbidden = zero.any() and np.isneginf(block.divergence.slope(np.zeros(1))[0])

        def some(start: int, stop: int) -> None:
            for first in range(start, stop, at_a_time):
                rows = slice(first, min(first + at_a_time, stop))
                scores, scales = self.scores(block, templates, rows)
                if forbidden:
                    scores[(block.source[rows] != 0) @ zero.T.astype(np.float64) > 0] = -np.inf
                for array, values in zip(out, select(rows, scores, scales), strict=True):
                    array[rows] = values

        before = block.source.indptr if issparse(block.source) else np.arange(len(block) + 1) * block.shape[1]
        block.backend.threads.over_blocks(some, before, 8 * len(templates))

    def scores(self, block: CurvedBlock, templates: CurvedTemplates, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Scores of some rows under all centroids, and the scales at which they hold. → 2 × (rows, k)"""
        X, sizes, convex = block.dense(np.arange(rows.start, rows.stop)), block.sizes[rows], block.divergence
        scores, scales = (np.empty((len(X), len(templates))) for _ in range(2))
        for k, c in enumerate(templates.B):
            scales[:, k] = a = sizes if convex.scale_rule == "size" else best_scales(convex, X, c, sizes)
            μ = a[:, None] * c
            scores[:, k] = np.sum(times(X, convex.slope, μ) - convex.psi(μ), axis=1)
        return scores, scales

    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        """Sums over the rows of each cluster, for each entry of its centroid. → (3, entries)

        The loss Σ w (ψ(μ) − x φ'(μ)), the pull Σ w x μ φ''(μ) and the push Σ w μ² φ''(μ).
        """
        out, convex, weights = np.zeros((3, len(centroids.values))), block.divergence, block.host_weights
        at_a_time = self.rows_at_a_time(centroids.n_features)
        for k, (start, stop) in enumerate(pairwise(centroids.starts)):
            members = np.flatnonzero((labels == k) & (scales > 0) & (weights > 0))
            for first in range(0, len(members), at_a_time):
                rows = members[first : first + at_a_time]
                x, w = block.dense(rows)[:, centroids.features[start:stop]], weights[rows, None]
                μ = scales[rows, None] * centroids.values[start:stop]
                moments = convex.moment(μ)
                terms = (convex.psi(μ) - times(x, convex.slope, μ), x * moments, μ * moments)
                out[:, start:stop] += [np.sum(w * term, axis=0) for term in terms]
        return out


def best_scales(convex: Convex, X: FloatArray, c: FloatArray, sizes: FloatArray) -> FloatArray:
    """The best scales of rows against one centroid: by bisection, the roots of pull = push. → (n,)"""
    t = log(np.where(sizes > 0, sizes, 1.0))
    low, high = t - REACH, t + REACH
    used = c > 0
    for _ in range(60):
        t = (low + high) / 2
        μ = exp(t)[:, None] * c[used]
        larger = np.sum((X[:, used] - μ) * convex.moment(μ), axis=1) > 0
        low, high = np.where(larger, t, low), np.where(larger, high, t)
    return np.where(sizes > 0, exp(t), 0.0)


def times(x: FloatArray, slope: Callable[[FloatArray], FloatArray], μ: FloatArray) -> FloatArray:
    """The products x φ'(μ), in which 0 · (−∞) counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x == 0, 0.0, x * slope(μ))


@dataclass(frozen=True)
class Axis:
    """Panels of a part of the logarithmic axis: panel i goes from (first + i) · width to (first + i + 1) · width."""

    first: int
    panels: int
    width: float = MAX_WIDTH

    @classmethod
    def over(cls, ends: FloatArray, width: float = MAX_WIDTH, margin: float = 0.0) -> Axis:
        """The panels between two ends, and more on both sides if there is a margin."""
        first, last = (int(np.floor(end / width)) for end in (float(ends[0]) - margin, float(ends[1]) + margin))
        return cls(first, last - first + 1, width)

    def points(self, places: FloatArray) -> FloatArray:
        """Points at these places from −1 to 1 on all panels. → (panels, places)"""
        return ((self.first + np.arange(self.panels))[:, None] + (places + 1) / 2) * self.width

    def moments(self, points: FloatArray, weights: FloatArray, rows: Array, number: int) -> FloatArray:
        """Chebyshev moments of points; empty weights or rows are ones or zeros. → (number of rows, panels, terms)"""
        from onmf.kernels.bregman import add_moments  # numba takes long to import

        moments = np.zeros((number, self.panels, TERMS))
        add_moments(points, weights, rows, self.width, self.first, moments)
        return moments


def convolve(function: Function, moments: FloatArray, points: Axis, targets: Axis) -> FloatArray:
    """Σ_j w_j f(e^t c_j) as series on the panels of ``targets``, from the moments of log c on those of ``points``.

    The panels of both axes have one width, so g depends on the sum of two panels only, and is computed once for each
    sum. Panels without points are left out. Time and memory are bounded by the range of both axes, not its square.
    → (rows, panels of targets, terms)
    """
    used = np.flatnonzero(moments.any(axis=(0, 2)))
    sums = Axis(points.first + targets.first, points.panels + targets.panels - 1, points.width)
    starts = (sums.first + np.arange(sums.panels))[:, None, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # g at the nodes of a panel of targets and of one of points, by their sum: (sums, terms, terms)
        values = function(exp((starts + (NODES[:, None] + 1) / 2 + (NODES + 1) / 2) * sums.width))
    grid = matrix_product(values, TO_SERIES).transpose(0, 2, 1)
    held, out = moments[:, used].reshape(len(moments), -1), np.empty((len(moments), targets.panels, TERMS))
    for t in range(targets.panels):
        out[:, t] = matrix_product(held, grid[t + used].reshape(-1, TERMS))
    return matrix_product(out, TO_SERIES)


def _error(function: Function, size: Function, axis: Axis) -> float:
    """The largest error of the series of f(e^u) between the nodes, relative to the largest size on a panel."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        nodes, between = exp(axis.points(NODES)), exp(axis.points(_BETWEEN))
        at_nodes, exact, sizes = function(nodes), function(between), size(between)
    if not (np.isfinite(exact).all() and np.isfinite(at_nodes).all()):
        return np.inf
    found = matrix_product(matrix_product(at_nodes, TO_SERIES), _AT_BETWEEN)
    largest = np.maximum(np.abs(exact), sizes).max(axis=1)
    return float(np.max(np.abs(found - exact).max(axis=1) / np.where(largest > 0, largest, 1.0)))


class CpuCurves(Curves):
    """Sums over nonzeros by kernels, and over zeros by series."""

    def rows_at_a_time(self, features: int) -> int:
        return ROWS_AT_A_TIME

    def prepare(self, block: CurvedBlock, C: FloatArray) -> CurvedTemplates:
        C, fitted = np.ascontiguousarray(C, dtype=np.float64), block.divergence.scale_rule == "fit"
        sizes = block.sizes[block.sizes > 0]
        points = [logs_of_entries(c) for c in C]
        entries = ends(*(each for each, _ in points))
        targets, axis = axes_over(block.divergence, ends(log(sizes)), entries, REACH if fitted else 0.0)
        moments = np.concatenate([axis.moments(each, counts, NOWHERE, 1) for each, counts in points])
        functions = functions_of(block.divergence)[: 1 + fitted]
        series = [convolve(function, moments, axis, targets) for function in functions]
        # The kernel for sizes adds one term to all clusters at a time.
        coefficients = np.stack(series) if fitted else np.ascontiguousarray(series[0].transpose(1, 2, 0))
        CT, phi = np.ascontiguousarray(C.T), block.divergence.kernel_functions
        if isinstance(phi, float) and not fitted:  # θ
            with np.errstate(divide="ignore", over="ignore"):  # the kernel reads infinity as a large number
                np.divide(phi, CT, out=CT)
        return CurvedTemplates(C, None, CT, float(CT.max()), coefficients, targets)

    def scores(self, block: CurvedBlock, templates: CurvedTemplates, rows: slice) -> tuple[FloatArray, FloatArray]:
        from onmf.kernels import bregman as kernels

        start, stop, entries = rows.start, rows.stop, Entries.of(block.source)
        scores = np.empty((stop - start, len(templates)))
        phi, sizes, CT = block.divergence.kernel_functions, block.sizes, templates.CT
        series = templates.coefficients, templates.targets.width, templates.targets.first
        if block.divergence.scale_rule == "fit":
            scales = np.empty_like(scores)
            kernels.scores_and_scales(entries, CT, series, phi, REACH, start, stop, sizes, scores, scales)
            return scores, scales
        if isinstance(phi, float):
            kernels.counts_at_sizes(entries, CT, templates.largest, series, start, stop, sizes, scores)
        else:
            kernels.scores_at_sizes(entries, CT, series, phi, start, stop, sizes, scores)
        return scores, np.broadcast_to(sizes[rows, None], scores.shape)

    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        from onmf.kernels import bregman as kernels

        from .cpu import order_of

        starts, k, weights = centroids.starts, len(centroids.starts) - 1, block.host_weights
        order, bounds = order_of(labels, k)
        points, places = log(centroids.values), log(scales)
        axis, targets = axes_over(block.divergence, ends(places), ends(points))
        moments = axis.moments(places, weights, labels.astype(np.int64), k)
        psi, push_of = (convolve(function, moments, axis, targets) for function in functions_of(block.divergence))
        out, slopes = np.empty((3, len(points))), np.empty(len(points))
        loss, pulls, push = out
        entries, phi = Entries.of(block.source), block.divergence.kernel_functions
        given = entries, order, bounds, scales, weights, centroids, phi

        def clusters(start: int, stop: int) -> None:
            kernels.pulls_by_label(*given, start, stop, slopes, pulls)
            for c in range(start, stop):
                own = slice(starts[c], starts[c + 1])
                kernels.series_at(points[own], psi[c], push_of[c], axis.width, targets.first, loss[own], push[own])

        block.backend.threads.over_blocks(clusters, bounds, 4 * max(1, block.source.size // max(1, len(block))))
        loss -= slopes
        return out


def logs_of_entries(centroid: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the positive entries of a centroid, and how often each occurs."""
    # The smallest entry of a smoothed centroid is that of all features which do not occur in the cluster.
    least = centroid.min(where=centroid > 0, initial=np.inf)
    larger = centroid[centroid > least]
    counts = np.ones(len(larger) + 1)
    counts[-1] = np.count_nonzero(centroid == least)
    return log(np.append(larger, least if counts[-1] else 1.0)), counts


def ends(*points: FloatArray) -> FloatArray:
    """The smallest and the largest finite number. → (2,)"""
    finite = [each if np.isfinite(each).all() else each[np.isfinite(each)] for each in points]
    known = [each for each in finite if len(each)]
    return np.array([min(each.min() for each in known), max(each.max() for each in known)] if known else [0.0, 0.0])


def functions_of(convex: Convex) -> list[Function]:
    """ψ(μ) and μ² φ''(μ)."""
    return [convex.psi, lambda μ: μ * convex.moment(μ)]


def axes_over(
    convex: Convex, one: FloatArray, other: FloatArray, margin: float = 0.0, known: dict[Any, float] | None = None
) -> tuple[Axis, Axis]:
    """Axes between two pairs of ends, on whose panels series are exact for products; the first may have a margin.

    Widths of panels that were found before may be ``known``.
    """
    first, second = Axis.over(one, margin=margin), Axis.over(other)
    reach = first.first + second.first, first.panels + second.panels
    known = {} if known is None else known
    if reach not in known:
        known[reach] = _width_over(convex, *reach)
    width = known[reach]
    return Axis.over(one, width, margin), Axis.over(other, width)


def _width_over(convex: Convex, first: int, panels: int) -> float:
    """The width of panels whose series are exact on this part of the axis, in panels of the largest width."""
    psi, push = functions_of(convex)
    sized = (psi, convex.terms_of_psi), (push, push)  # with the size of the terms of each
    low = first * MAX_WIDTH
    reach, width = np.array([low, low + panels * MAX_WIDTH]), MAX_WIDTH
    while width >= MIN_WIDTH:
        on_panels = Axis.over(reach, width)
        if all(_error(function, size, on_panels) <= SERIES_ROUNDING for function, size in sized):
            return width
        width /= 2
    raise ValueError(
        "phi changes too fast to be interpolated between the smallest and the largest product of a scale and a "
        "centroid's entry: use scale='none', or bring the entries of X near 1."
    )


@dataclass(frozen=True)
class CurvedBlock(Block):
    """Rows of a divergence without closed forms."""

    divergence: Convex

    @cached_property
    def curves(self) -> Curves:
        """Computes the sums."""
        return self.backend.curves(self.divergence)

    @property
    def sizes(self) -> FloatArray:
        """Σ_j x_j of each row. → (n,)"""
        return self.terms["sum"]

    def prepare(self, centroids: FloatArray, divergence: Divergence | None = None, reuse: Any = None) -> Templates:
        return self.prepare_templates((divergence or self.divergence).templates(centroids))

    def prepare_templates(self, B: FloatArray, offsets: FloatArray | None = None) -> Templates:
        return self.curves.prepare(self, B)

    def assign(self, templates: Templates) -> Assignment:
        def winners(rows: slice, scores: FloatArray, at: FloatArray) -> tuple[Array, ...]:
            labels = scores.argmax(axis=1)
            return labels, *(of_own(each, labels) for each in (scores, at))

        labels = np.empty_like(self.constants, dtype=np.int32)
        best, scales = np.empty_like(self.constants), np.empty_like(self.constants)
        self.curves.over_rows(self, templates, winners, labels, best, scales)
        return Assignment(labels, scales, self.constants - best)

    def own_and_next(self, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        labels = self.backend.to_device(labels)

        def split(rows: slice, scores: FloatArray, at: FloatArray) -> tuple[Array, ...]:
            own = of_own(scores, labels[rows])
            scores[np.arange(len(scores), like=scores), labels[rows]] = -np.inf
            return own, scores.max(axis=1)

        own, following = np.empty_like(self.constants), np.empty_like(self.constants)
        self.curves.over_rows(self, templates, split, own, following)
        return own, following

    def scores(self, templates: Templates) -> FloatArray:
        out = np.empty_like(self.constants, shape=(len(self), len(templates)))
        self.curves.over_rows(self, templates, lambda rows, scores, at: (scores,), out)
        return out

    def losses(self, scores: FloatArray) -> FloatArray:
        return self.constants - scores

    def own_scales(self, templates: Templates, labels: Array, own: FloatArray) -> FloatArray:
        if self.divergence.scale_rule == "size":
            return self.sizes
        out = np.empty_like(self.constants)
        self.curves.over_rows(self, templates, lambda rows, scores, at: (of_own(at, labels[rows]),), out)
        return out

    def evaluate(self, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        """As :meth:`Curves.evaluate`. → (3, entries)"""
        return self.curves.evaluate(self, labels, scales, centroids)


def of_own(values: FloatArray, labels: Array) -> FloatArray:
    """Of each row of a table, the value in the column of its label. → (n,)"""
    return values[np.arange(len(values), like=values), labels]


Select = Callable[[slice, FloatArray, FloatArray], tuple[Array, ...]]  # of rows, their scores and scales
Evaluate = Callable[[CentroidEntries], FloatArray]  # sums over all rows at these centroids, as of Curves.evaluate


class CurvedRun(Run):
    """A run over a curved block."""

    block: CurvedBlock

    def update(self, step: StepSums, W: FloatArray) -> Drift:
        return update_curved(self.block.divergence, step, W, partial(self.block.evaluate, *self.collect()))


def update_curved(divergence: Divergence, step: StepSums, W: FloatArray, evaluate: Evaluate) -> Drift:
    """Overwrite W with better centroids for the labels and scales of a step; an empty cluster keeps its own.

    For each cluster and feature the best c solves h = log(pull / push) = 0. A secant iteration in s = log c approaches
    it; for a homogeneous φ its first step is exact. A step is kept only where it lowers the loss, so no update raises
    the objective. The result is that of :func:`update_centroids`.
    """
    mass, before, moved = step.on_device("mass"), divergence.normalise(W), step.moved
    filled = np.flatnonzero(mass > 0)
    held = CentroidEntries.of(before, (step.sums > 0) & (mass > 0)[:, None])
    first = step.sums[held.clusters, held.features] / mass[held.clusters]
    start = held._replace(values=np.maximum(np.where(held.values > 0, held.values, first), SMALLEST_NORMAL))
    better = descended(start, evaluate, PASSES[0 if moved else 1]).dense
    change = np.inf
    if moved == 0 and len(filled):
        # If only directions count, scales under smoothed centroids leave the same factor in every iteration.
        after = divergence.normalise(better)[filled]
        change = largest_change(before[filled], unless_converged(before[filled], after))
    W[filled] = better[filled] * np.asarray(divergence.unit(step.norms), like=W)[filled, None]
    return lambda: change


def descended(centroids: CentroidEntries, evaluate: Evaluate, passes: int) -> CentroidEntries:
    """Centroids of lower loss, in each entry that is not the best already."""

    def at(s: FloatArray) -> FloatArray:
        """Places s = log c, their losses, h = log(pull / push), and the size of the terms of a loss. → (4, entries)"""
        loss, pull, push = evaluate(centroids._replace(values=np.maximum(exp(s), SMALLEST_NORMAL)))
        known = (pull > 0) & (push > 0)
        h = np.where(known, log(np.where(known, pull, 1.0) / np.where(known, push, 1.0)), 0.0)
        return np.stack([s, loss, h, np.abs(loss) + pull + push])

    best = at(log(centroids.values))
    step = np.clip(best[2], -MAX_LOG_STEP, MAX_LOG_STEP)
    for _ in range(passes - 1):
        if not np.any(np.abs(step) > LOG_STEP_TOL):
            break
        s, loss, h, size = best
        tried = at(s + step)
        lower = tried[1] <= loss + LOSS_ROUNDING * size
        with np.errstate(divide="ignore", invalid="ignore"):
            tangent = (tried[2] - h) / step
        tangent = np.where(np.isfinite(tangent) & (tangent < -0.1), tangent, -1.0)
        step = np.where(lower, np.clip(-tried[2] / tangent, -MAX_LOG_STEP, MAX_LOG_STEP), step / 4)
        best = np.where(lower, tried, best)
    return centroids._replace(values=unless_converged(centroids.values, exp(best[0])))


def unless_converged(before: FloatArray, after: FloatArray) -> FloatArray:
    """The numbers after a step; those before it where the difference is rounding."""
    return np.where(np.abs(after - before) <= LOG_STEP_TOL * before, before, after)
