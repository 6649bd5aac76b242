"""Divergences without closed forms: blocks and runs that compute scores, scales and centroids by iteration.

    score_ik = max over a, or at the size of the row, of ⟨x_i, φ'(a c_k)⟩ − Σ_j ψ(a c_kj)
    centroid: Σ_i w_i a_i φ''(a_i c_j) (a_i c_j − x_ij) = 0 for each cluster and feature

Zeros of the rows occur in sums of ψ and of μ² φ''(μ) over all features, or over all rows of a cluster. :class:`Curves`
computes these and the sums over the nonzeros: :class:`PlainCurves` directly, the oracle, and
:mod:`onmf.backend.cpu_curves` at the cost of the nonzeros.

Symbols: C (k, p) centroids, μ = a·c, a (n,) scales, w (n,) sample weights, s = log c.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

from onmf.divergence import Array, Convex, Divergence, FloatArray

from .base import Assignment, Block, Templates
from .run import Drift, Run, StepSums, largest_change

ROWS_AT_A_TIME = 4096
"""Rows whose scores are held together."""

ENTRIES_AT_A_TIME = 1 << 20
"""Entries of rows, zeros included, that are held together."""

PASSES = (2, 4)
"""Evaluations of the centroids in an update, while rows move and when none does any more.

The first is at the old centroids; each of the others follows a step.
"""

MAX_LOG_STEP = 2.0
"""Longest step of log c."""

LOG_STEP_TOL = 1e-11
"""Step of log c below which a centroid is found."""

SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
"""Least entry of a centroid that is not zero: its logarithm is finite."""

LOSS_ROUNDING = 1e-13
"""Rise of a loss, relative to the terms it is computed from, that counts as rounding."""


@dataclass(frozen=True)
class CurvedTemplates(Templates):
    """Smoothed centroids; ``prepared`` is what the curves compute from them once."""

    prepared: object = None


class CentroidEntries(NamedTuple):
    """Nonzero entries of centroids, those of one after those of the other."""

    starts: Array  # (k + 1,) where the entries of each centroid start
    features: Array  # (h,)
    values: FloatArray  # (h,)
    n_features: int

    @classmethod
    def of(cls, C: FloatArray, held: Array | None = None) -> CentroidEntries:
        """The entries of centroids that are not zero, or those that are held."""
        used = C != 0 if held is None else held
        rows, features = np.nonzero(used)
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(C)))])
        return cls(starts, features, C[rows, features], C.shape[1])

    @property
    def dense(self) -> FloatArray:
        """The centroids. → (k, p)"""
        C = np.zeros((len(self.starts) - 1, self.n_features))
        C[np.repeat(np.arange(len(C)), np.diff(self.starts)), self.features] = self.values
        return C


class Curves(ABC):
    """The sums over rows and centroids that a curved divergence needs."""

    def rows_at_a_time(self, features: int) -> int:
        """Number of rows whose scores are computed together."""
        return ROWS_AT_A_TIME

    def prepare(self, block: CurvedBlock, C: FloatArray) -> CurvedTemplates:
        """Compute once what all rows need of the centroids."""
        return CurvedTemplates(C)

    @abstractmethod
    def scores(
        self, block: CurvedBlock, templates: CurvedTemplates, start: int, stop: int
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of some rows under all centroids, and the scales at which they hold. → 2 × (rows, k)"""

    @abstractmethod
    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        """Sums over the rows of each cluster, for each entry of its centroid. → (3, entries)

        The loss Σ w (ψ(μ) − x φ'(μ)), the pull Σ w x μ φ''(μ) and the push Σ w μ² φ''(μ).
        """


class PlainCurves(Curves):
    """The sums as they are defined, over zeros and nonzeros alike."""

    def rows_at_a_time(self, features: int) -> int:
        return max(1, ENTRIES_AT_A_TIME // features)

    def scores(
        self, block: CurvedBlock, templates: CurvedTemplates, start: int, stop: int
    ) -> tuple[FloatArray, FloatArray]:
        X, sizes = block.dense(np.arange(start, stop)), block.sizes[start:stop]
        scores, scales = (np.empty((len(X), len(templates))) for _ in range(2))
        for k, c in enumerate(templates.B):
            scales[:, k] = a = best_scales(block.convex, X, c, sizes)
            μ = a[:, None] * c
            scores[:, k] = np.sum(times(X, block.convex.slope, μ) - block.convex.psi(μ), axis=1)
        return scores, scales

    def evaluate(self, block: CurvedBlock, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        out, convex, weights = np.zeros((3, len(centroids.values))), block.convex, block.host_weights
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
    """The scales of rows against one centroid: their sizes, or by bisection the roots of pull = push. → (n,)"""
    if convex.scale_rule == "size":
        return sizes
    t = np.log(np.where(sizes > 0, sizes, 1.0))
    low, high = t - REACH, t + REACH
    used = c > 0
    for _ in range(60):
        t = (low + high) / 2
        μ = np.exp(t)[:, None] * c[used]
        moments = convex.moment(μ)
        larger = np.sum((X[:, used] - μ) * moments, axis=1) > 0
        low, high = np.where(larger, t, low), np.where(larger, high, t)
    return np.where(sizes > 0, np.exp(t), 0.0)


REACH = 14.0
"""How far the logarithm of the best scale may lie from that of the row's size."""


def times(x: FloatArray, slope: Callable[[FloatArray], FloatArray], μ: FloatArray) -> FloatArray:
    """The products x φ'(μ), in which 0 · (−∞) counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x == 0, 0.0, x * slope(μ))


@dataclass(frozen=True)
class CurvedBlock(Block):
    """Rows of a divergence without closed forms."""

    @property
    def convex(self) -> Convex:
        """The divergence."""
        assert isinstance(self.divergence, Convex)
        return self.divergence

    @property
    def curves(self) -> Curves:
        """Computes the sums."""
        curves = self.backend.curves
        assert curves is not None, "refused by other backends"
        return PlainCurves() if self.convex.kernel_functions is None else curves

    @property
    def sizes(self) -> FloatArray:
        """Σ_j x_j of each row. → (n,)"""
        return self.terms["sum"]

    def prepare(self, centroids: FloatArray, divergence: Divergence | None = None) -> Templates:
        return self.prepare_templates((divergence or self.divergence).templates(centroids))

    def prepare_templates(self, B: FloatArray, offsets: FloatArray | None = None) -> Templates:
        return self.curves.prepare(self, np.ascontiguousarray(B, dtype=np.float64))

    def assign(self, templates: Templates) -> Assignment:
        n = len(self)
        labels, scales, best = np.zeros(n, dtype=np.int32), np.empty(n), np.empty(n)

        def keep(rows: slice, scores: FloatArray, at: FloatArray) -> None:
            labels[rows] = winners = scores.argmax(axis=1)
            every = np.arange(len(winners))
            best[rows], scales[rows] = scores[every, winners], at[every, winners]

        self._over_rows(templates, keep)
        return Assignment(labels, scales, self.constants - best)

    def own_and_next(self, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        own, following = np.empty(len(self)), np.empty(len(self))

        def keep(rows: slice, scores: FloatArray, at: FloatArray) -> None:
            every = np.arange(len(scores))
            own[rows] = scores[every, labels[rows]]
            scores[every, labels[rows]] = -np.inf
            following[rows] = scores.max(axis=1)

        self._over_rows(templates, keep)
        return own, following

    def scores(self, templates: Templates) -> FloatArray:
        out = np.empty((len(self), len(templates)))

        def keep(rows: slice, scores: FloatArray, at: FloatArray) -> None:
            out[rows] = scores

        self._over_rows(templates, keep)
        return out

    def losses(self, scores: FloatArray) -> FloatArray:
        return self.constants - scores

    def start_run(self) -> Run:
        return CurvedRun(self)

    def own_scales(self, templates: Templates, labels: Array, own: FloatArray) -> FloatArray:
        if self.convex.scale_rule == "size":
            return self.sizes
        out = np.empty(len(self))

        def keep(rows: slice, scores: FloatArray, at: FloatArray) -> None:
            out[rows] = at[np.arange(len(at)), labels[rows]]

        self._over_rows(templates, keep)
        return out

    def _over_rows(self, templates: Templates, keep: Callable[[slice, FloatArray, FloatArray], None]) -> None:
        """Call ``keep(rows, scores, scales)`` for some rows at a time."""
        assert isinstance(templates, CurvedTemplates), "templates come from prepare()"

        curves = self.curves
        at_a_time = curves.rows_at_a_time(self.shape[1])

        def block(start: int, stop: int) -> None:
            for first in range(start, stop, at_a_time):
                last = min(first + at_a_time, stop)
                scores, scales = curves.scores(self, templates, first, last)
                self._forbid(templates, first, last, scores)
                keep(slice(first, last), scores, scales)

        before = self.source.indptr if issparse(self.source) else np.arange(len(self) + 1) * self.shape[1]
        self.backend.threads.over_blocks(block, before, 8 * len(templates))

    def _forbid(self, templates: Templates, start: int, stop: int, scores: FloatArray) -> None:
        """Scores of −∞ where a row is positive and the centroid is zero, if that costs infinity."""
        zero = templates.B == 0
        if not zero.any() or not np.isneginf(slope_at_zero(self.convex)):
            return
        rows = self.source[start:stop]
        scores[(rows != 0) @ zero.T.astype(np.float64) > 0] = -np.inf

    def evaluate(self, labels: Array, scales: FloatArray, centroids: CentroidEntries) -> FloatArray:
        """As :meth:`Curves.evaluate`. → (3, entries)"""
        return self.curves.evaluate(self, labels, scales, centroids)


def slope_at_zero(convex: Convex) -> float:
    """φ'(0)."""
    with np.errstate(divide="ignore"):
        return float(convex.slope(np.zeros(1))[0])


Evaluate = Callable[[CentroidEntries], FloatArray]
"""Sums over all rows at these centroids, as :meth:`Curves.evaluate` gives them."""


class CurvedRun(Run):
    """A run over a curved block."""

    block: CurvedBlock

    def step_from(self, centroids: FloatArray) -> StepSums:
        return self.step(self.block.prepare(centroids))

    def evaluate(self, centroids: CentroidEntries) -> FloatArray:
        """Sums over the rows with their labels and scales. → (3, entries)"""
        return self.block.evaluate(*self.collect(), centroids)

    def update(self, step: StepSums, W: FloatArray) -> Drift:
        return update_curved(self.block.divergence, step, W, self.evaluate)


def update_curved(divergence: Divergence, step: StepSums, W: FloatArray, evaluate: Evaluate) -> Drift:
    """Overwrite W with better centroids for the labels and scales of a step; an empty cluster keeps its own.

    For each cluster and feature the best c solves h = log(pull / push) = 0. A secant iteration in s = log c approaches
    it; for a homogeneous φ its first step is exact. A step is kept only where it lowers the loss, so no update raises
    the objective. The result is that of :func:`update_centroids`.
    """
    filled = np.flatnonzero(~step.empty)
    before = divergence.normalise(W)
    held = CentroidEntries.of(before, (step.sums > 0) & ~step.empty[:, None])
    clusters = np.repeat(np.arange(len(W)), np.diff(held.starts))
    first = step.sums[clusters, held.features] / step.mass[clusters]
    moved = step.moved
    start = held._replace(values=np.maximum(np.where(held.values > 0, held.values, first), SMALLEST_NORMAL))
    better = descended(start, evaluate, PASSES[0 if moved else 1]).dense
    change = np.inf
    if moved == 0 and len(filled):
        # If only directions count, scales under smoothed centroids leave the same factor in every iteration.
        after = divergence.normalise(better)[filled]
        change = largest_change(before[filled], unless_converged(before[filled], after))
    W[filled] = better[filled] * divergence.unit(step.norms)[filled, None]
    return lambda: change


class Point(NamedTuple):
    """Places s = log c of the entries of all centroids, with their losses and h = log(pull / push)."""

    s: FloatArray
    loss: FloatArray
    h: FloatArray
    size: FloatArray


def descended(centroids: CentroidEntries, evaluate: Evaluate, passes: int) -> CentroidEntries:
    """Centroids of lower loss, in each entry that is not the best already."""

    def at(s: FloatArray) -> Point:
        loss, pull, push = evaluate(centroids._replace(values=np.maximum(np.exp(s), SMALLEST_NORMAL)))
        known = (pull > 0) & (push > 0)
        h = np.where(known, np.log(np.where(known, pull, 1.0) / np.where(known, push, 1.0)), 0.0)
        return Point(s, loss, h, np.abs(loss) + pull + push)

    best = at(np.log(centroids.values))
    step = np.clip(best.h, -MAX_LOG_STEP, MAX_LOG_STEP)
    for _ in range(passes - 1):
        if not np.any(np.abs(step) > LOG_STEP_TOL):
            break
        tried = at(best.s + step)
        lower = tried.loss <= best.loss + LOSS_ROUNDING * best.size
        with np.errstate(divide="ignore", invalid="ignore"):
            tangent = (tried.h - best.h) / step
        tangent = np.where(np.isfinite(tangent) & (tangent < -0.1), tangent, -1.0)
        step = np.where(lower, np.clip(-tried.h / tangent, -MAX_LOG_STEP, MAX_LOG_STEP), step / 4)
        best = Point(*(np.where(lower, new, old) for new, old in zip(tried, best, strict=True)))
    return centroids._replace(values=unless_converged(centroids.values, np.exp(best.s)))


def unless_converged(before: FloatArray, after: FloatArray) -> FloatArray:
    """The numbers after a step; those before it where the difference is rounding."""
    return np.where(np.abs(after - before) <= LOG_STEP_TOL * before, before, after)
