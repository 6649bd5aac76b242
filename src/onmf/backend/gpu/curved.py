"""Divergences without closed forms on the GPU: see :mod:`onmf.backend.curved`.

Kernels compute scores and scales of rows, and sums over the nonzeros by label. Zeros come as series: their moments are
summed by the kernel that sums arrays by label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onmf.divergence import Array, Convex, FloatArray

from ..curved import (
    NODES,
    REACH,
    TERMS,
    TO_SERIES,
    Axis,
    CentroidEntries,
    CurvedBlock,
    CurvedRun,
    CurvedTemplates,
    Curves,
    Function,
    Select,
    axes_over,
    functions_of,
)
from .dense import SUMMED_LABELS, sum_rows
from .launch import NULL, THREADS, cupy, int_, lanes_of, largest_shared, launch, launch_rows, long_, or_null
from .rows import DenseRows, Rows, SparseRows, blocks_of, columns_of, make_units, some_rows
from .run import GpuRun

SCORES_AT_A_TIME = 1 << 25  # scores of rows that are held together
ENTRIES_AT_A_TIME = 1 << 26  # entries of an array that are sorted by feature together
POINTS_AT_A_TIME = 1 << 21  # points whose moments are computed together
KINDS = 2  # sums over nonzeros: slopes and pulls


class GpuCurvedRun(CurvedRun, GpuRun):
    """A run over a curved block whose labels, scales, sums and centroids stay on the card."""


class GpuCurves(Curves):
    """Sums over nonzeros by kernels of the GPU, and over zeros by series."""

    def __init__(self, convex: Convex) -> None:
        assert convex.cuda_functions is not None, "the backend has checked it"
        slope, moment, factor, t = convex.cuda_functions
        self.t, self.macros = np.float64(t), {"SLOPE": slope, "MOMENT": moment} | ({"FACTOR": factor} if factor else {})
        self._widths: dict[Any, float] = {}

    def _axes(self, convex: Convex, one: Any, other: Any, margin: float = 0.0) -> tuple[Axis, Axis]:
        return axes_over(convex, _ends(one), _ends(other), margin, self._widths)

    def prepare(self, block: CurvedBlock, C: FloatArray) -> CurvedTemplates:
        C, convex = cupy.ascontiguousarray(cupy.asarray(C), dtype=np.float64), block.divergence
        fitted, (k, p) = convex.scale_rule == "fit", C.shape
        points = cupy.log(C)
        targets, axis = self._axes(convex, cupy.log(block.sizes), points, REACH if fitted else 0.0)
        at_a_time = max(1, SUMMED_LABELS // axis.panels)  # clusters
        moments = [
            _moments(axis, part.reshape(-1), cupy.repeat(cupy.arange(len(part), dtype=np.int32), p), None, len(part))
            for part in (points[first : first + at_a_time] for first in range(0, k, at_a_time))
        ]
        series = _series(functions_of(convex)[: 1 + fitted], cupy.concatenate(moments), axis, targets)
        coefficients = cupy.ascontiguousarray(series.transpose(0, 2, 3, 1))
        # The kernel multiplies reciprocals where it can: it needs no division then.
        CT = cupy.ascontiguousarray(1 / C.T if "FACTOR" in self.macros and not fitted else C.T)
        return CurvedTemplates(C, None, CT, 0.0, coefficients, targets)

    def over_rows(self, block: CurvedBlock, templates: Any, select: Select, *out: Array) -> None:
        at_a_time = max(1, SCORES_AT_A_TIME // len(templates))
        for start, stop, rows in blocks_of(block.rows):
            for first in range(start, stop, at_a_time):
                here = slice(first, min(first + at_a_time, stop))
                part = some_rows(rows, here.start - start, here.stop - start)
                found = select(here, *self._scores(block, templates, part, block.sizes[here]))
                for array, values in zip(out, found, strict=True):
                    array[here] = values

    def _scores(self, block: CurvedBlock, templates: CurvedTemplates, rows: Rows, sizes: Any) -> tuple[Any, Any]:
        """Scores of some rows under all centroids, and the scales at which they hold. → 2 × (rows, k)"""
        (n, p), k, targets, convex = rows.shape, len(templates), templates.targets, block.divergence
        fitted = convex.scale_rule == "fit"
        scores, scales = cupy.empty((n, k)), cupy.empty((n, k)) if fitted else NULL
        if isinstance(rows, SparseRows):
            stored = rows.indptr, rows.indices, rows.data, int_(0)
        else:
            stored = NULL, NULL, rows.X, int_(rows.X.shape[1])
        centroids = templates.CT, int_(k), int_(lanes_of(k)), self.t
        series = templates.coefficients, np.float64(targets.width), int_(targets.first), int_(targets.panels)
        args = *stored, int_(p), sizes, long_(n), *centroids, *series, np.float64(REACH), scores, scales
        launch_rows("curved_scores", n, *args, value=stored[2], FITTED=int(fitted), **self.macros)
        return scores, scales if fitted else cupy.broadcast_to(sizes[:, None], scores.shape)

    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        convex, k, p = block.divergence, len(centroids.starts) - 1, centroids.n_features
        labels, scales = cupy.asarray(labels, dtype=np.int32), cupy.asarray(scales)
        given = centroids.clusters, centroids.features, centroids.values
        clusters, features, values = (cupy.ascontiguousarray(cupy.asarray(each)) for each in given)
        C = cupy.zeros((k, p))
        C[clusters, features] = values
        places = cupy.log(scales)
        axis, targets = self._axes(convex, places, cupy.log(values))
        moments = _moments(axis, places, labels, block.own_weights, k)
        series = _series(functions_of(convex), moments, axis, targets)
        sums = cupy.zeros((KINDS, k, p))
        for first, _, rows in blocks_of(block.rows):
            for start, stop, columns, units in _by_feature(rows):
                here = slice(first + start, first + stop)
                weights = None if block.own_weights is None else block.own_weights[here]
                sums += self._sums(columns, units, labels[here], scales[here], weights, C)
        out = cupy.empty((3, len(values)))
        axes = np.float64(targets.width), int_(targets.first), int_(targets.panels)
        args = clusters, features, values, long_(len(values)), sums, int_(k), int_(p), series, *axes, out
        launch("curved_sums", -(-len(values) // THREADS), THREADS, *args)
        return out

    def _sums(self, columns: Any, units: Any, labels: Any, scales: Any, weights: Any, C: Any) -> Any:
        """Σ w x φ'(μ) and Σ w x μ φ''(μ) by label. → (2, k, p)"""
        (row_of, values), (starts, stops, firsts), (k, p) = columns, units, C.shape
        number, sums = len(starts), cupy.empty((KINDS, k, p))
        of_a_label = 8 * (32 * KINDS + 1)  # bytes of shared memory of a warp
        count = max(1, min(k, largest_shared() // of_a_label))
        for first in range(0, k, count):
            m = min(count, k - first)
            warps = max(1, min(8, 48 * 1024 // (of_a_label * m)))
            partial = cupy.empty((KINDS, number, m))
            of_rows = row_of, values, labels, scales, or_null(weights)
            which = int_(first), int_(m), partial
            args = starts, stops, firsts, long_(number), *of_rows, C, int_(p), self.t, *which
            shared = of_a_label * m * warps
            launch("curved_units", -(-number // warps), 32 * warps, *args, value=values, shared=shared, **self.macros)
            for kind in range(KINDS):
                given = partial[kind], firsts, int_(p), int_(first), int_(m), sums[kind]
                launch("combine_units", -(-p * m // THREADS), THREADS, *given)
        return sums


def _ends(points: Any) -> FloatArray:
    """The smallest and the largest finite number. → (2,)"""
    if not points.size:
        return np.zeros(2)
    known = cupy.isfinite(points)
    low, high = cupy.where(known, points, np.inf).min(), cupy.where(known, points, -np.inf).max()
    found: FloatArray = cupy.stack([low, high]).get()
    return found if found[0] <= found[1] else np.zeros(2)


def _moments(axis: Axis, points: Any, clusters: Any, weights: Any, number: int) -> Any:
    """Chebyshev moments of points by cluster, as :meth:`Axis.moments`."""
    total = cupy.zeros((number * axis.panels, TERMS))
    for first in range(0, len(points), POINTS_AT_A_TIME):
        part = slice(first, first + POINTS_AT_A_TIME)
        n = len(points[part])
        terms, places = cupy.empty((n, TERMS)), cupy.empty(n, np.int32)
        on_axis = np.float64(axis.width), int_(axis.first), int_(axis.panels)
        args = points[part], clusters[part], long_(n), *on_axis, terms, places
        launch("chebyshev_terms", -(-n // THREADS), THREADS, *args)
        total += sum_rows(DenseRows(terms), places, None if weights is None else weights[part], len(total))
    return total.reshape(number, axis.panels, TERMS)


def _series(functions: list[Function], moments: Any, points: Axis, targets: Axis) -> Any:
    """Σ_j w_j f(e^t c_j) as :func:`onmf.backend.curved.convolve`, of each function. → (functions, k, panels, TERMS)"""
    nodes, to_series = cupy.asarray((NODES + 1) / 2), cupy.asarray(TO_SERIES)
    panels = cupy.arange(points.panels)[:, None] + cupy.arange(targets.panels)  # sums of two: (points, targets)
    starts = points.first + targets.first + cupy.arange(points.panels + targets.panels - 1)
    # (sums, nodes of points, nodes of targets)
    at = cupy.exp((starts[:, None, None] + nodes[:, None] + nodes) * points.width)
    held, out = moments.reshape(len(moments), -1), []
    for function in functions:
        grid = to_series.T @ function(at)  # (sums, terms of points, nodes of targets)
        whole = grid[panels].transpose(0, 2, 1, 3).reshape(held.shape[1], -1)
        out.append((held @ whole).reshape(len(held), targets.panels, TERMS) @ to_series)
    return cupy.stack(out)


def _by_feature(rows: Rows) -> Iterator[tuple[int, int, tuple[Any, Any], tuple[Any, ...]]]:
    """Stretches of rows: first row and end, row and value of each entry by feature, and the units of features."""
    n, p = rows.shape
    if isinstance(rows, SparseRows):
        yield 0, n, *columns_of(rows)
        return
    at_a_time = max(1, ENTRIES_AT_A_TIME // p)
    for start in range(0, n, at_a_time):
        X = rows.X[start : start + at_a_time, :p]
        row_of = cupy.tile(cupy.arange(len(X), dtype=np.int32), p)
        yield start, start + len(X), (row_of, X.T.ravel()), make_units(np.full(p, len(X)))
