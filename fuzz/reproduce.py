"""Reduces a failure to a few lines: the smallest case that still fails, and its imports."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from .data import Data
from .report import Failure
from .runner import Target, alone
from .stage import HEADER

SECONDS, TRIES = 20.0, 60
"""Most seconds, and most child processes, for the reduction of a case."""


def snippet(lines: str, header: str = HEADER) -> str:
    """Return statements with the imports of ``header`` that they need."""
    imports = []
    for line in header.strip().splitlines():
        origin, _, names = line.rpartition("import ")
        used = [name for name in names.split(", ") if re.search(rf"\b{name.split(' as ')[-1]}\b", lines)]
        imports += [f"{origin}import {', '.join(used)}"] if used else []
    return "\n".join([*imports, lines])


def shrink(target: Target, case: Any, failure: Failure) -> tuple[Any, Failure]:
    """Find the smallest case that fails in the same way, and return it with its failure.

    Each simpler case runs in its own child. Hangs are not reduced, because every attempt would take the full limit.
    """
    until, tries = time.monotonic() + SECONDS, TRIES
    candidates = iter(()) if failure.kind == "hang" else target.smaller(case)
    while tries > 0 and time.monotonic() < until and (candidate := next(candidates, None)) is not None:
        tries -= 1
        failures = alone(target, lambda number, case=candidate: case)
        same = [other for other in failures if (other.kind, other.where) == (failure.kind, failure.where)]
        if same:
            case, failure = candidate, same[0]
            candidates = target.smaller(case)
    return case, failure


def smaller_data(data: Data) -> Iterator[Data]:
    """Yield the data as a plain array, with half of the rows, without one row, and without one column."""
    if len(data.wrap) > 1 or (data.sound and data.wrap != ("X = A",)):
        yield data._replace(wrap=("X = A",), sound=True)
    if data.table is None:
        return
    n, p = data.n, data.p
    subsets = [range(n // 2), range(n // 2, n)] if n > 3 else []
    subsets += [[i for i in range(n) if i != dropped] for dropped in range(n)]
    for rows in subsets:
        if len(rows):
            yield data._replace(table=[data.table[i] for i in rows], n=len(rows))
    for dropped in range(p if p > 1 else 0):
        yield data._replace(table=[[x for j, x in enumerate(row) if j != dropped] for row in data.table], p=p - 1)
