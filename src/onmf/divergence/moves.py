"""The exact gain of moving one row to another cluster, for divergences that have a closed form for it.

With S_k the sum of the weighted rows of cluster k and T_k the sum of its entries, the objective is a constant minus

    Σ_kj f(S_kj) − Σ_k f(T_k),   f(t) = t log t        (entropy: Kullback–Leibler)
    Σ_k ‖S_k‖                                           (length: cosine)

so a move changes the terms of two clusters only. See :mod:`onmf.kernels.hartigan` for the sweeps over many rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onmf.arrays import Array, FloatArray, read_only_view
from onmf.functions import log, log1p

LARGEST_TABLE = 1 << 22  # largest sum of counts for which t log t comes from a table

Sweep = Callable[[Array, FloatArray], tuple[int, float]]
"""``sweep(rows, margins)`` tries to move these rows, in this order. It writes to ``margins`` how much worse
the second-best cluster of each row is. It returns the number of moves and their gain."""


class Entries(NamedTuple):
    """Rows as the sweeps read them, sparse or dense: entries ``indptr[i]`` to ``indptr[i + 1]`` of row i."""

    indptr: Array
    indices: Array
    data: Array
    dense: bool

    @classmethod
    def of(cls, X: Any) -> Entries:
        """The entries of an array or CSR matrix."""
        dense = not hasattr(X, "indptr")
        n, p = X.shape
        arrays = (np.arange(n + 1) * p, np.arange(p), X.reshape(-1)) if dense else (X.indptr, X.indices, X.data)
        indptr, indices, data = map(read_only_view, arrays)
        return cls(indptr, indices, data, dense)


class Clusters(NamedTuple):
    """The clusters that sweeps change, in place."""

    labels: Array  # (n,) cluster of each row
    sizes: Array  # (k,) rows of each cluster that have an entry
    sums: Callable[[], FloatArray]  # computes Σ weights·x by label from the labels. → (p, k)


class Moves(ABC):
    """The moves of one divergence.

    :meth:`costs` and :meth:`gaining` try all rows against the sums as they are. ``frozen`` has these rows in the memory
    of a backend: ``sums`` (k, p) by cluster, ``labels``, the ``masses`` Σ_j x_j and ``squares`` ‖x‖² of the weighted
    rows, and functions ``products`` and ``rises``. → (n, k): ⟨x_i, S_c⟩, and Σ_j f(S_cj + x_ij) − f(S_cj) with
    f(t) = t log t, for the own cluster with S without the row.
    """

    @abstractmethod
    def costs(self, frozen: Any) -> FloatArray:
        """The cost of adding each row to each cluster; for its own cluster, of adding it again. → (n, k)"""

    def gaining(self, frozen: Any) -> Array:
        """Which rows cost less in another cluster than in their own, by more than rounding. → (n,) bool"""
        from onmf.kernels.hartigan import MIN_GAIN  # numba takes long to import

        costs = self.costs(frozen)
        own = np.take_along_axis(costs, frozen.labels[:, None], axis=1)[:, 0]
        others = np.where(_own(frozen), np.inf, costs).min(axis=1)
        return (frozen.squares > 0) & (others < own - MIN_GAIN * (np.abs(others) + np.abs(own)))

    def shared(self, entries: Entries, weights: FloatArray, total: Callable[[], FloatArray]) -> Any:
        """A form of the rows that all searches over them can share; ``total()`` is the sum of all rows, (p,)."""
        return None

    @abstractmethod
    def sweep(self, entries: Entries, weights: FloatArray, clusters: Clusters, shared: Any) -> Sweep:
        """A function that sweeps over rows and updates these clusters."""


@dataclass(frozen=True)
class EntropyMoves(Moves):
    """Moves under Kullback–Leibler: with tables if all entries are small integers, else with logarithms."""

    def shared(self, entries: Entries, weights: FloatArray, total: Callable[[], FloatArray]) -> Any:
        """Counts as ones_first orders them, with tables of t log t and its differences; None for other numbers."""
        from onmf.kernels.hartigan import ones_first  # numba takes long to import
        from onmf.kernels.steps import total_if_whole

        n, m, largest = len(weights), len(entries.data), total().max()
        whole = all(np.isfinite(total_if_whole(values, 0, len(values))) for values in (entries.data, weights))
        if not whole or largest > LARGEST_TABLE:
            return None
        bounds, ones = np.empty(n + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
        stored = bounds, ones, np.empty(m, dtype=np.uint32), np.empty(m, dtype=np.uint32)
        ones_first(entries, weights, *stored)
        t = np.arange(largest + 3)
        logs = log(np.maximum(t, 1))
        steps = t[:-1] * log1p(1 / np.maximum(t[:-1], 1)) + logs[1:]
        return stored, t * logs, steps

    def costs(self, frozen: Any) -> FloatArray:
        totals, masses = frozen.sums.sum(axis=1)[None, :], frozen.masses[:, None]
        without = np.where(_own(frozen), np.maximum(totals - masses, 0.0), totals)
        return _rise(without, masses) - frozen.rises()

    def sweep(self, entries: Entries, weights: FloatArray, clusters: Clusters, shared: Any) -> Sweep:
        from onmf.kernels.hartigan import sweep_counts

        labels, sizes, sums = clusters
        if shared is None:
            return _sweep(entries, weights, clusters, lengths=False)
        stored, powers, steps = shared
        S = sums().astype(np.uint32)
        slopes, T = steps[S], S.sum(axis=0, dtype=np.int64)
        return lambda rows, margins: sweep_counts(stored, powers, steps, rows, labels, S, slopes, T, sizes, margins)


@dataclass(frozen=True)
class LengthMoves(Moves):
    """Moves under the cosine."""

    def costs(self, frozen: Any) -> FloatArray:
        lengths, added = np.square(frozen.sums).sum(axis=1)[None, :], frozen.squares[:, None]
        twice = 2.0 * frozen.products()
        own = _own(frozen)
        less = np.where(own, np.maximum(lengths - twice + added, 0.0), lengths)
        more = np.where(own, lengths, np.maximum(lengths + twice + added, 0.0))
        return np.sqrt(less) - np.sqrt(more)

    def sweep(self, entries: Entries, weights: FloatArray, clusters: Clusters, shared: None) -> Sweep:
        return _sweep(entries, weights, clusters, lengths=True)


def _sweep(entries: Entries, weights: FloatArray, clusters: Clusters, lengths: bool) -> Sweep:
    """A sweep that computes the sums of the clusters again each time, because rounding errors add up in them."""
    from onmf.kernels.hartigan import sweep

    def sweep_once(rows: Array, margins: FloatArray) -> tuple[int, float]:
        S = clusters.sums()
        totals = (np.square(S) if lengths else S).sum(axis=0)
        return sweep(entries, weights, lengths, rows, clusters.labels, S, totals, clusters.sizes, margins)

    return sweep_once


def _own(frozen: Any) -> Array:
    """Which cluster is the own one of each row. → (n, k) bool"""
    own: Array = frozen.labels[:, None] == np.arange(len(frozen.sums), like=frozen.sums)
    return own


def _rise(t: FloatArray, x: FloatArray) -> FloatArray:
    """f(t + x) − f(t) of totals, with f(t) = t log t; 0 where x is."""
    some, filled = np.where(x > 0, x, 1.0), np.where(t > 0, t, 1.0)
    with np.errstate(over="ignore"):
        ratio = some / filled
    logs = np.where(ratio < np.inf, log1p(ratio), log(some) - log(filled))
    rise = np.where(t > 0, filled * logs, 0.0) + some * log(np.maximum(t, 0.0) + some)
    return np.where(x > 0, rise, 0.0)
