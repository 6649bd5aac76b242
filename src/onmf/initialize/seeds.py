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


LARGEST_SUM = 1e120
"""Entry of a centroid up to which its square, and sums of such squares, are inside float64."""


@dataclass(frozen=True)
class Start:
    """First centroids, and the rows of X they are, where they are rows."""

    centroids: FloatArray
    rows: Array | None = None


def start_from_rows(engine: Engine, held: Held, rows: list[int], k: int, known: FloatArray | None = None) -> Start:
    """The chosen rows as centroids; where X ran out of directions, the first rows not chosen yet make up the k.

    ``known`` has the chosen rows themselves, where they are at hand.
    """
    found = len(rows)
    if found < k:
        warn_directions(found, k)
        spare = [pair for part in engine.map(held, spare_rows, k) for pair in part]
        rows = fill_up(rows, k, spare)
    if known is None or len(known) < k:
        known = rows_at(engine, held, rows)
    tie_parallel(known, found)
    return Start(known, np.asarray(rows, dtype=np.int64))


def from_sums(sums: FloatArray) -> FloatArray:
    """Sums of weighted rows by cluster as centroids; a cluster without rows starts from all of them. → (k, p)"""
    largest = np.abs(sums).max()
    if largest > LARGEST_SUM:  # smaller by a power of two, which changes no digit
        sums = np.ldexp(sums, -int(np.frexp(largest)[1]))
    sums[~sums.any(axis=1)] = sums.sum(axis=0)
    return sums


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


def inner_products(engine: Engine, part: Held, row: FloatArray) -> FloatArray:
    """⟨x_i, row⟩ for every row i of a part. → (n,)"""
    _, products = engine.best_template(part.data, row.reshape(1, -1))
    return products


def squared_norms(engine: Engine, part: Held) -> FloatArray:
    """‖x_i‖² for every row i of a part. → (n,)"""
    return engine.row_term(part.data, np.square)


def usable_rows(part: Held, squares: FloatArray) -> Array:
    """Which rows may become centroids: those that hold something and count for something. → (n,) bool"""
    return squares > 0 if part.weights is None else (squares > 0) & (part.weights > 0)


def rows_at(engine: Engine, held: Held, rows: list[int]) -> FloatArray:
    """Rows of the whole, by their index, as a dense array."""
    ends = np.cumsum(engine.sizes(held))
    numbers = np.searchsorted(ends, rows, side="right")
    out = np.empty((len(rows), held.shape[1]))
    for number in np.unique(numbers):
        mine = np.flatnonzero(numbers == number)
        out[mine] = engine.ask(held, int(number), dense_rows, [rows[i] for i in mine])
    return out


def dense_rows(engine: Engine, part: Held, rows: list[int]) -> FloatArray:
    """Rows of a part, by their index in the whole."""
    return engine.rows(part.data, np.asarray(rows) - part.first)


def spare_rows(engine: Engine, part: Held, k: int) -> list[tuple[int, int]]:
    """The first 2k usable rows of a part, and how many times each may serve; a row of weight w counts as w rows."""
    usable = np.flatnonzero(usable_rows(part, squared_norms(engine, part)))[: 2 * k]
    copies = np.ones(len(usable)) if part.weights is None else np.minimum(np.ceil(part.weights[usable]), k)
    return [(part.first + int(row), int(number)) for row, number in zip(usable, copies, strict=True)]


def fill_up(rows: list[int], k: int, spare: list[tuple[int, int]]) -> list[int]:
    """``rows`` and, up to k, the lowest spare rows that are left."""
    filled = list(rows)
    for row, copies in spare:
        filled += [row] * max(copies - rows.count(row), 0)
    filled = filled[:k]
    # Fewer usable rows than clusters: start the others in the same place; they will stay empty.
    return filled + [filled[-1] if filled else 0] * (k - len(filled))


def warn_directions(found: int, k: int) -> None:
    """Say that X holds fewer directions than clusters were asked for."""
    warn(
        f"X has run out of directions after {found} of {k} seeds: the other {k - found} are the first rows not chosen "
        "yet. Ask for fewer clusters, or remove duplicate rows.",
        ConvergenceWarning,
    )
