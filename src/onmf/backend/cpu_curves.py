"""The sums of curved divergences on the CPU, at the cost of the nonzeros.

Sums of ψ(a c) over all features are one function of log a for each cluster, and sums over all rows of a cluster one
function of log c. :mod:`onmf.backend.log_axis` gives both as short series.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onmf.divergence import Array, Convex, Entries, FloatArray

from .curved import REACH, CentroidEntries, CurvedBlock, CurvedTemplates, Curves
from .log_axis import Axis, Function, convolve, width_for

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
