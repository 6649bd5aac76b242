"""What every start has in common: rows of X that serve as first centroids."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.divergence import Array, FloatArray
from onmf.engine import Engine, Held

PARALLEL = 1 - 1e-12
"""Squared cosine from which two rows count as one direction."""


@dataclass(frozen=True)
class Start:
    """First centroids, and the rows of X they are, where they are rows."""

    centroids: FloatArray
    rows: Array | None = None


def start_from_rows(engine: Engine, held: Held, rows: list[int], k: int) -> Start:
    """The chosen rows as centroids; where X ran out of directions, the first rows not chosen yet make up the k."""
    found = len(rows)
    if found < k:
        warn_directions(found, k)
        rows = fill_up(rows, k, usable_rows(held, squared_norms(engine, held)), held.weights)
    index = np.asarray(rows, dtype=np.int64)
    centroids = engine.rows(held.data, index)
    for c in range(found, k):
        # Two starts of one direction must tie to the last bit, so that rounding cannot share the rows out between them.
        same = np.flatnonzero(parallel(centroids[:c] @ centroids[c], np.square(centroids[: c + 1]).sum(axis=1)))
        if len(same):
            centroids[c] = centroids[same[0]]
    return Start(centroids, index)


def parallel(products: FloatArray, squares: FloatArray) -> Array:
    """Which rows have the direction of the last one: ``products`` with it, ``squares`` of all and of it. → bool"""
    return (products > 0) & (products**2 >= PARALLEL * squares[:-1] * squares[-1])


def inner_products(engine: Engine, held: Held, row: int) -> FloatArray:
    """⟨x_i, x_row⟩ for every row i. → (n,)"""
    _, products = engine.best_template(held.data, engine.rows(held.data, np.array([row])))
    return products


def squared_norms(engine: Engine, held: Held) -> FloatArray:
    """‖x_i‖² for every row i. → (n,)"""
    return engine.row_term(held.data, np.square)


def usable_rows(held: Held, squares: FloatArray) -> Array:
    """Which rows may become centroids: those that hold something and count for something. → (n,) bool"""
    return squares > 0 if held.weights is None else (squares > 0) & (held.weights > 0)


def fill_up(rows: list[int], k: int, usable: Array, weights: FloatArray | None) -> list[int]:
    """``rows`` and, up to k, the lowest usable rows not chosen yet; a row of weight w counts as w rows."""
    copies = np.where(usable, 1 if weights is None else np.minimum(np.ceil(weights), k), 0).astype(np.int64)
    np.subtract.at(copies, rows, 1)
    spare = np.repeat(np.arange(len(copies)), np.maximum(copies, 0))
    filled = [*rows, *spare[: k - len(rows)].tolist()]
    # Fewer usable rows than clusters: start the others in the same place; they will stay empty.
    return filled + [filled[-1] if filled else 0] * (k - len(filled))


def warn_directions(found: int, k: int) -> None:
    """Say that X holds fewer directions than clusters were asked for."""
    warnings.warn(
        f"X has run out of directions after {found} of {k} seeds: the other {k - found} are the first rows not chosen "
        "yet. Ask for fewer clusters, or remove duplicate rows.",
        ConvergenceWarning,
        stacklevel=2,
    )
