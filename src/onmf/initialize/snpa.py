"""The successive nonnegative projection algorithm (SNPA): r rows of X that are far apart.

Reference: Gillis, Successive nonnegative projection algorithm for robust nonnegative blind source separation (2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf.divergence import Array, Frobenius
from onmf.engine import Engine, Held, get_engine
from onmf.validate import check_data

from .seeds import Start, fill_up, inner_products, squared_norms, start_from_rows, usable_rows, warn_directions

EXHAUSTED = 1e-12
"""Largest squared residual, in units of the largest squared norm, at which X has no direction left."""

TIE = 1e-6
"""Rows whose residuals are this close, relatively, to the largest compete by their norm."""


def snpa_rows(engine: Engine, held: Held, k: int) -> list[int]:
    """Choose rows by SNPA until there are ``k`` or X has no direction left.

    Each time the row farthest from the convex hull of the chosen rows and the origin is taken; then the distance of every
    row to the hull is computed anew.
    """
    from onmf.kernels import project_on_hull

    n = held.shape[0]
    squares = squared_norms(engine, held)
    residuals = squares.copy()
    if held.weights is not None:
        residuals[held.weights == 0] = 0.0
    largest = residuals.max()

    # Vertex 0 is the origin: it has no product with anything and holds all the weight at first.
    products, weights = np.zeros((n, k + 1)), np.zeros((n, k + 1))
    weights[:, 0] = 1.0
    gram = np.zeros((k + 1, k + 1))
    chosen: list[int] = []
    for m in range(1, k + 1):
        top = residuals.max()
        if top <= EXHAUSTED * largest:
            break
        close = np.flatnonzero(residuals >= (1 - TIE) * top)
        chosen.append(int(close[np.argmax(squares[close])]))
        if m == k:
            break
        products[:, m] = inner_products(engine, held, chosen[-1])
        gram[1 : m + 1, m] = gram[m, 1 : m + 1] = products[chosen, m]
        hull = gram[: m + 1, : m + 1].copy()
        engine.over_rows(lambda start, stop: project_on_hull(products, hull, squares, start, stop, weights, residuals), n)
        if held.weights is not None:
            residuals[held.weights == 0] = 0.0
    return chosen


def snpa_start(engine: Engine, held: Held, k: int, rng: np.random.Generator) -> Start:
    """Start from the rows that SNPA chooses; deterministic."""
    chosen = snpa_rows(engine, held, k)
    if len(chosen) < k:
        warn_directions(len(chosen), k)
        chosen = fill_up(chosen, k, usable_rows(held, squared_norms(engine, held)), held.weights)
    return start_from_rows(engine, held, chosen)


def snpa(X: Any, r: int, *, n_threads: int | None = None) -> Array:
    """Choose ``r`` rows of ``X`` that are far apart, by the successive nonnegative projection algorithm.

    Each time the row farthest from the convex hull of the chosen rows and the origin is taken.

    Parameters
    ----------
    X : (n, p) array or sparse matrix
        Data.
    r : int
        Number of rows, at most n.
    n_threads : int or None, default=None
        Threads; None uses all cores. The choice does not depend on it.

    Returns
    -------
    rows : (r,) array of int
        Indices of the rows, in the order of choice. If X runs out of directions before, a warning says so and the others
        are the first rows not chosen yet.

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
    if not 1 <= r <= data.shape[0]:
        raise ValueError(f"r={r} is not allowed: choose between 1 and the {data.shape[0]} rows of X.")
    engine = get_engine("auto", data, n_threads)
    rows = snpa_start(engine, engine.hold(data, Frobenius()), r, np.random.default_rng()).rows
    assert rows is not None
    return rows
