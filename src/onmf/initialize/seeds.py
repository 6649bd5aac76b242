"""What every start has in common: rows of X that serve as first centroids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.divergence import Array, FloatArray, divide
from onmf.engine import Engine, Held
from onmf.warn import warn

COSINE = 1 - 5e-13
"""Cosine from which two rows count as one direction."""


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
    tie_parallel(centroids, found)
    return Start(centroids, index)


def tie_parallel(centroids: FloatArray, first: int = 1) -> None:
    """Make centroids of one direction equal to the last bit, so that rounding cannot share rows out between them.

    In place, from the centroid of index ``first`` on. Only those that a random projection leaves alike are compared.
    """
    squares = np.square(centroids).sum(axis=1)
    norms = np.sqrt(squares)
    direction = np.random.default_rng(0).random(centroids.shape[1])
    shadows = divide(np.einsum("kp,p->k", centroids, direction), norms)  # BLAS threads would spin on for a while
    for c in range(max(first, 1), len(centroids)):
        alike = np.flatnonzero(np.abs(shadows[:c] - shadows[c]) <= 1e-6 * np.abs(shadows[c]))
        for other in alike[
            parallel(np.einsum("kp,p->k", centroids[alike], centroids[c]), np.append(squares[alike], squares[c]))
        ][:1]:
            centroids[c] = centroids[other]


def parallel(products: FloatArray, squares: FloatArray) -> Array:
    """Which rows have the direction of the last one: ``products`` with it, ``squares`` of all and of it. → bool"""
    norms = np.sqrt(squares)
    return products >= COSINE * norms[:-1] * norms[-1]


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
    warn(
        f"X has run out of directions after {found} of {k} seeds: the other {k - found} are the first rows not chosen "
        "yet. Ask for fewer clusters, or remove duplicate rows.",
        ConvergenceWarning,
    )
