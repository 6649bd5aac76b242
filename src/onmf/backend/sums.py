"""The result of one step: sums by cluster, small enough to travel, which add up over any division of the rows.

Symbols: a (n,) scales, w (n,) sample weights, N_k² = Σ w a² over cluster k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add, iadd
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray

from .device import to_host

COUNTED = ("mass", "counts", "scale_sums", "scale_squares", "overlap", "loss", "moved")
"""Rows of the table of a step, in the order in which the kernels fill and read them."""


def table_of(labels: Array, values: Sequence[FloatArray], k: int) -> FloatArray:
    """Sum values of the rows by label, one row of the table for each; rows without values stay 0. → (7, k)"""
    table = np.zeros((len(COUNTED), k))
    for row, value in zip(table, values, strict=False):
        row += np.bincount(labels, weights=value, minlength=k)
    return table


def _counted(name: str) -> Any:
    return property(lambda step: step.counted[COUNTED.index(name)])


@dataclass(frozen=True)
class StepSums:
    """Sums over the rows that one step has assigned. Steps over two sets of rows add up: ``whole = one + other``.

    Attributes
    ----------
    sums : (k, p) array
        Σ w·weight·x by cluster, with the row weights of the divergence. It belongs to the run, and the next step may
        overwrite it.
    table : (7, k) array
        One row for each of the quantities below, in the memory that holds the sums. The quantities themselves are NumPy
        arrays.
    arriving : callable, optional
        Waits for a copy of the table that is on its way to the host.
    mass : (k,) array
        Σ w·weight·a by cluster; a cluster of mass 0 is empty.
    counts : (k,) array
        Σ w by cluster.
    scale_sums : (k,) array
        Σ w a by cluster.
    scale_squares : (k,) array
        Σ w a² by cluster.
    overlap : (k,) array
        Σ w a a' over the rows that stayed in the cluster, a' being their scale in the step before.
    loss : (k,) array
        Σ w·loss by cluster, at the templates of this step. Not a number if no scores were computed, because the
        divergence needs none.
    moved : int
        Number of rows that changed cluster; rows of weight 0 do not count.
    """

    sums: FloatArray
    table: FloatArray
    arriving: Callable[[], FloatArray] | None = field(default=None, repr=False, compare=False)

    mass = _counted("mass")
    counts = _counted("counts")
    scale_sums = _counted("scale_sums")
    scale_squares = _counted("scale_squares")
    overlap = _counted("overlap")
    loss = _counted("loss")

    @cached_property
    def counted(self) -> FloatArray:
        """The table on the host. → (7, k)"""
        table: FloatArray = to_host(self.table) if self.arriving is None else self.arriving()
        return table

    @cached_property
    def moved(self) -> int:
        """Number of rows that changed cluster."""
        return int(self.counted[COUNTED.index("moved")].sum())

    def on_device(self, name: str) -> FloatArray:
        """A row of the table in the memory that holds the sums. → (k,)"""
        row: FloatArray = self.table[COUNTED.index(name)]
        return row

    def __add__(self, other: StepSums) -> StepSums:
        return self.map_arrays(add, other)

    def __iadd__(self, other: StepSums) -> StepSums:
        """Add in place. Only for sums that you own."""
        return self.map_arrays(iadd, other)

    def map_arrays(self, function: Callable[..., Any], *others: StepSums) -> StepSums:
        """Apply a function to the sums, and to the tables, of this step and others."""
        steps = (self, *others)
        return StepSums(function(*(step.sums for step in steps)), function(*(step.table for step in steps)))

    @cached_property
    def empty(self) -> Array:
        """Which clusters hold nothing. → (k,) bool"""
        return ~(self.mass > 0)

    @cached_property
    def norms(self) -> FloatArray:
        """N_k, which divides the scales of cluster k so that H Hᵀ = I; 1 for an empty cluster. → (k,)"""
        return np.where(self.scale_squares > 0, np.sqrt(self.scale_squares), 1.0)

    def change_from(self, previous: StepSums) -> float:
        """‖H − H_prev‖_F, without forming H."""
        # Σ_k [1(N_k > 0) + 1(N'_k > 0) − 2 Σ_{stayed} w a a' / (N_k N'_k)]
        filled = np.count_nonzero(self.scale_squares > 0) + np.count_nonzero(previous.scale_squares > 0)
        return float(np.sqrt(max(filled - 2 * np.sum(self.overlap / (self.norms * previous.norms)), 0.0)))
