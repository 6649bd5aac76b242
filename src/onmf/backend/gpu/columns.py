"""A copy of sparse rows on the GPU that is sorted by feature, for sums by label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array

from .launch import THREADS, launch, launch_rows, long_
from .rows import SparseRows

UNIT = 4096
"""Entries of one feature that a warp adds up. Fixed, so that every card adds in the same order."""


class Columns(NamedTuple):
    """The entries of sparse rows by feature: row and value of each. → 2 × (entries,)"""

    rows: Any
    values: Any


@dataclass(frozen=True)
class Units:
    """How the entries by feature are divided into stretches of at most UNIT entries, each of which a warp adds up."""

    starts: Any  # (number,) bounds of each stretch
    stops: Any
    of_feature: Any  # (p + 1,) the first stretch of each feature
    number: int  # of stretches


def make_units(cupy: Any, bounds: Array) -> Units:
    """Divide features whose entries lie between these bounds (p + 1,) into stretches."""
    bounds = np.asarray(bounds, dtype=np.int64)
    numbers = -(-np.diff(bounds) // UNIT)
    of_feature = np.concatenate([[0], np.cumsum(numbers)])
    feature = np.repeat(np.arange(len(numbers)), numbers)
    starts = bounds[feature] + (np.arange(len(feature)) - of_feature[feature]) * UNIT
    stops = np.minimum(starts + UNIT, bounds[feature + 1])
    on_card = [cupy.asarray(a.astype(np.int64)) for a in (starts, stops, of_feature)]
    return Units(on_card[0], on_card[1], on_card[2], len(feature))


def by_feature(cupy: Any, rows: SparseRows) -> Columns:
    """The entries of rows by feature. Sets their ``units`` unless they are known."""
    n, p = rows.shape
    entries = len(rows.indices)
    if rows.units is None:
        counts = to_host(cupy.bincount(rows.indices, minlength=p)) if entries else np.zeros(p, np.int64)
        rows.units = make_units(cupy, np.concatenate([[0], np.cumsum(counts)]))
    row_of = cupy.empty(entries, np.int32)
    launch_rows("row_of_entry", n, rows.indptr, long_(n), row_of)
    order = cupy.argsort(rows.indices, kind="stable")
    columns = Columns(cupy.empty_like(row_of), cupy.empty_like(rows.data))
    args = order, long_(entries), row_of, rows.data, columns.rows, columns.values
    launch("reorder", -(-entries // (4 * THREADS)), THREADS, *args, value=rows.data)
    return columns
