"""A failure in a few lines: the case made as small as it stays wrong, and the imports that it needs."""

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
"""Time, and children, to make a case smaller."""


def snippet(lines: str, header: str = HEADER) -> str:
    """Statements with those imports of ``header`` that they need."""
    imports = []
    for line in header.strip().splitlines():
        origin, _, names = line.rpartition("import ")
        used = [name for name in names.split(", ") if re.search(rf"\b{name.split(' as ')[-1]}\b", lines)]
        imports += [f"{origin}import {', '.join(used)}"] if used else []
    return "\n".join([*imports, lines])


def shrink(target: Target, case: Any, failure: Failure) -> tuple[Any, Failure]:
    """The smallest case found that fails alike, and how.

    Each simpler case runs in a child of its own. What hangs stays as it is: every try would take the limit of time.
    """
    until, tries = time.monotonic() + SECONDS, TRIES
    candidates = iter(()) if failure.kind == "hang" else target.smaller(case)
    while tries > 0 and time.monotonic() < until and (candidate := next(candidates, None)) is not None:
        tries -= 1
        again = alone(target, lambda number, it=candidate: it)
        alike = [other for other in again if (other.kind, other.where) == (failure.kind, failure.where)]
        if alike:
            case, failure = candidate, alike[0]
            candidates = target.smaller(case)
    return case, failure


def smaller_data(data: Data) -> Iterator[Data]:
    """Data with the half of the rows, a row less, a column less, or as a plain array."""
    if len(data.wrap) > 1 or (data.sound and data.wrap != ("X = A",)):
        yield data._replace(wrap=("X = A",), sound=True)
    if data.table is None:
        return
    n, p = data.n, data.p
    cuts = [range(n // 2), range(n // 2, n)] if n > 3 else []
    cuts += [[i for i in range(n) if i != out] for out in range(n)]
    for rows in cuts:
        if len(rows):
            yield data._replace(table=[data.table[i] for i in rows], n=len(rows))
    for out in range(p if p > 1 else 0):
        yield data._replace(table=[[x for j, x in enumerate(row) if j != out] for row in data.table], p=p - 1)
