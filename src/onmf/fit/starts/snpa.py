"""The successive nonnegative projection algorithm (SNPA), which chooses r rows of X that are far apart.

Reference: Gillis, Successive nonnegative projection algorithm for robust nonnegative blind source separation (2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf import interrupt
from onmf.backend import EXHAUSTED, TIE, Hull, Matrix, to_host
from onmf.data import Data, Part, get_engine
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data
from onmf.divergence import Array, FloatArray, Frobenius

from .rows import Seeds, seeds_from_rows


def snpa_start(data: Data, k: int, rng: np.random.Generator) -> Seeds:
    """Start from the rows that SNPA chooses, until there are ``k`` or X has no direction left. Deterministic.

    Each round takes the row farthest from the convex hull of the chosen rows and the origin.
    """
    choice = uuid4().hex
    chosen: list[int] = []
    vertices = np.empty((k, data.shape[1]))
    gram = np.zeros((k + 1, k + 1))  # vertex 0 is the origin: all its products are 0
    largest = 0.0
    stored: Matrix = None
    while len(chosen) < k:
        interrupt.check()
        fronts = data.map(farthest, choice, k, vertices[: len(chosen)], gram, largest)
        residuals, squares, rows = (np.concatenate([getattr(f, name) for f in fronts]) for name in Front._fields[:3])
        largest = largest or float(squares.max(initial=0.0))
        close = np.flatnonzero(residuals >= (1 - TIE) * residuals.max(initial=0.0))
        if not len(close) or not residuals[close].max() > EXHAUSTED * largest:
            break
        best = close[np.lexsort((rows[close], -squares[close]))[0]]
        place = int(best)
        for front in fronts:
            if place < len(front.rows):
                row = front.stored[place : place + 1]
                stored = row if stored is None else _below(stored, row)
                break
            place -= len(front.rows)
        chosen.append(int(rows[best]))
        m = len(chosen)
        vertices[m - 1] = stored[[m - 1]].toarray() if issparse(stored) else stored[m - 1]
        placed = data.backend.place(stored)
        template = data.backend.prepare(placed, data.backend.to_device(vertices[m - 1 : m]))
        gram[1 : m + 1, m] = gram[m, 1 : m + 1] = to_host(data.backend.best_template(placed, template)[1])
    return seeds_from_rows(data, chosen, k, vertices[: len(chosen)])


class Front(NamedTuple):
    """Candidates of a part for the farthest row of all: no other row of the part is both farther and longer."""

    residuals: FloatArray
    squares: FloatArray
    rows: Array
    stored: Matrix


@dataclass
class Known:
    """The state of a part: its hull, and the choice that it belongs to."""

    choice: str
    hull: Hull


def farthest(part: Part, choice: str, k: int, vertices: FloatArray, gram: FloatArray, largest: float) -> Front:
    """The rows of a part that are farthest from the hull."""
    block, m = part.block, len(vertices)
    known = part.scratch
    if not isinstance(known, Known) or known.choice != choice or known.hull.vertices > m:
        known = part.scratch = Known(choice, block.backend.hull(block, k))
    for vertex in vertices[known.hull.vertices :]:
        known.hull.add(block, vertex)
    close, residuals, squares = known.hull.farthest(block, np.ascontiguousarray(gram[: m + 1, : m + 1]), largest)
    front = _front(close, residuals, squares)
    chosen = np.searchsorted(close, front)
    return Front(residuals[chosen], squares[chosen], part.first + front, block.take(front))


def _front(rows: Array, residuals: FloatArray, squares: FloatArray) -> Array:
    """The Pareto front of these rows: those that no other row beats in residual, length and index at once."""
    order = np.lexsort((rows, -squares, -residuals))
    longest = np.maximum.accumulate(squares[order])
    order = order[squares[order] == longest]
    groups = np.split(rows[order], np.flatnonzero(np.diff(squares[order])) + 1)  # of one length, the farthest first
    return np.concatenate([g[np.append(True, g[1:] < np.minimum.accumulate(g)[:-1])[: len(g)]] for g in groups])


def _below(rows: Matrix, row: Matrix) -> Matrix:
    """Append a row, which may come from a part of the other kind. SciPy's vstack takes as long as a projection."""
    if not issparse(rows):
        return np.vstack([rows, row.toarray() if issparse(row) else row])
    row = csr_array(row)
    indptr = np.append(rows.indptr, rows.indptr[-1] + row.indptr[-1])
    entries = (np.concatenate([getattr(part, name) for part in (rows, row)]) for name in ("data", "indices"))
    return csr_array((*entries, indptr), shape=(len(indptr) - 1, rows.shape[1]))


@interrupt.heeding
def snpa(X: Any, r: int, *, n_threads: int | None = None) -> Array:
    """Choose ``r`` rows of ``X`` that are far apart, by the successive nonnegative projection algorithm.

    Each round takes the row farthest from the convex hull of the chosen rows and the origin.

    Parameters
    ----------
    X : (n, p) array or sparse matrix
        Data.
    r : int
        Number of rows, at most n. The algorithm needs two n × r arrays of float64.
    n_threads : int or None, default=None
        Threads; None uses all cores. The choice does not depend on it.

    Returns
    -------
    rows : (r,) array of int
        Indices of the rows, in the order of choice. If X runs out of directions first, the function warns and fills up
        with the first rows not chosen yet.

    References
    ----------
    N. Gillis, "Successive nonnegative projection algorithm for robust nonnegative blind source separation",
    SIAM Journal on Imaging Sciences 7 (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from onmf import snpa
    >>> snpa(np.array([[1, 1], [0, 3], [4, 0], [2, 1]]), 2)
    array([2, 1])
    """
    check_in_memory(X, "snpa")
    checked = check_data(X, Frobenius())
    if not isinstance(r, Integral) or isinstance(r, bool) or not 1 <= r <= checked.shape[0]:
        raise ValueError(f"r={r} is not allowed: choose between 1 and the {checked.shape[0]} rows of X.")
    data = get_engine("auto", checked, n_threads).make_data(checked, Frobenius())
    rows = snpa_start(data, r, np.random.default_rng()).rows
    assert rows is not None
    return rows
