"""Starts: how the first centroids are chosen. See :mod:`onmf.fit.start` for their names."""

from .random import plus_plus, random_partition, random_rows
from .rows import Seeds, from_sums, rows_at, tie_parallel
from .snpa import snpa, snpa_start

__all__ = [
    "Seeds",
    "from_sums",
    "plus_plus",
    "random_partition",
    "random_rows",
    "rows_at",
    "snpa",
    "snpa_start",
    "tie_parallel",
]
