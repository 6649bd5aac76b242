"""Starts: where the first centroids come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf.engine import Engine, Held

from .random import plus_plus, random_partition, random_rows
from .seeds import Start, from_sums, inner_products, rows_at, tie_parallel
from .snpa import snpa, snpa_start

__all__ = ["RANDOM", "STARTS", "Start", "from_sums", "inner_products", "rows_at", "snpa", "tie_parallel"]

STARTS: dict[str, Callable[[Engine, Held, int, np.random.Generator], Start]] = {
    "snpa": snpa_start,
    "++": plus_plus,
    "random": random_rows,
    "random-partition": random_partition,
}
"""Start by name: (engine, held data, number of clusters, random numbers) → Start."""

RANDOM = frozenset({"++", "random", "random-partition"})
"""The starts that differ from run to run, and so are worth more than one."""
