"""The successive nonnegative projection algorithm (SNPA): r rows of X that are far apart.

Reference: Gillis, Successive nonnegative projection algorithm for robust nonnegative blind source separation (2014).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from onmf.divergence import Array, Frobenius
from onmf.engine import Engine, Held, get_engine
from onmf.validate import check_data

from .seeds import Start, inner_products, squared_norms, start_from_rows, usable_rows

EXHAUSTED = 1e-12
"""Largest squared residual, in units of the largest squared norm, at which X has no direction left."""

FIRST_BLOCK = 64
"""Rows projected first in each round; then twice as many, and so on. Fixed, so that threads change nothing."""

TIE = 1e-6
"""Rows whose residuals are this close, relatively, to the largest compete by their norm."""


def snpa_rows(engine: Engine, held: Held, k: int) -> list[int]:
    """Choose rows by SNPA until there are ``k`` or X has no direction left.

    Each time the row farthest from the convex hull of the chosen rows and the origin is taken. Distances only fall as
    the hull grows, so those of earlier rounds are upper bounds: rows are projected in the order of their bounds,
    until the next bound is below the largest distance found.
    """
    from onmf.kernels import project_on_hull

    n = held.shape[0]
    squares = squared_norms(engine, held)
    usable = np.flatnonzero(usable_rows(held, squares))
    residuals = np.zeros(n)
    residuals[usable] = squares[usable]
    largest = residuals.max()

    # Vertex 0 is the origin: it has no product with anything and holds all the weight at first.
    products, weights = np.zeros((n, k + 1)), np.zeros((n, k + 1))
    weights[:, 0] = 1.0
    gram = np.zeros((k + 1, k + 1))
    chosen: list[int] = []

    def farthest() -> int | None:
        """The row farthest from the hull; None if all lie in it."""
        m = len(chosen)
        hull = np.ascontiguousarray(gram[: m + 1, : m + 1])
        enough = EXHAUSTED * largest
        order = usable[np.argsort(-residuals[usable], kind="stable")]
        start, size = 0, FIRST_BLOCK
        while start < len(order) and residuals[order[start]] >= enough:
            block = order[start : start + size]

            def project(first: int, last: int, block: Array = block, enough: float = enough) -> None:
                project_on_hull(products, hull, squares, block, first, last, enough, weights, residuals)

            engine.over_rows(project, len(block))
            enough = max(enough, (1 - TIE) * residuals[block].max())
            start, size = start + size, 2 * size
        close = np.flatnonzero(residuals >= (1 - TIE) * residuals.max())
        return int(close[np.argmax(squares[close])]) if residuals[close[0]] > EXHAUSTED * largest else None

    while len(chosen) < k:
        row = farthest()
        if row is None:
            break
        chosen.append(row)
        m = len(chosen)
        products[:, m] = inner_products(engine, held, row)
        gram[1 : m + 1, m] = gram[m, 1 : m + 1] = products[chosen, m]
    return chosen


def snpa_start(engine: Engine, held: Held, k: int, rng: np.random.Generator) -> Start:
    """Start from the rows that SNPA chooses; deterministic."""
    return start_from_rows(engine, held, snpa_rows(engine, held, k), k)


def snpa(X: Any, r: int, *, n_threads: int | None = None) -> Array:
    """Choose ``r`` rows of ``X`` that are far apart, by the successive nonnegative projection algorithm.

    Each time the row farthest from the convex hull of the chosen rows and the origin is taken.

    Parameters
    ----------
    X : (n, p) array or sparse matrix
        Data.
    r : int
        Number of rows, at most n. Two n × r arrays of float64 are needed while choosing.
    n_threads : int or None, default=None
        Threads; None uses all cores. The choice does not depend on it.

    Returns
    -------
    rows : (r,) array of int
        Indices of the rows, in the order of choice. If X runs out of directions before, a warning says so and the
        others are the first rows not chosen yet.

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
    data = check_data(X, Frobenius())
    if not isinstance(r, Integral) or not 1 <= r <= data.shape[0]:
        raise ValueError(f"r={r} is not allowed: choose between 1 and the {data.shape[0]} rows of X.")
    engine = get_engine("auto", data, n_threads)
    rows = snpa_start(engine, engine.hold(data, Frobenius()), r, np.random.default_rng()).rows
    assert rows is not None
    return rows
