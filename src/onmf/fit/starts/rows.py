"""Rows of X as first centroids: what the starts have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.backend import to_host
from onmf.data import Data, Part
from onmf.divergence import Array, FloatArray, divide
from onmf.warn import warn

from ..result import Agreement

COSINE = 1 - 5e-13
"""Cosine from which two rows count as one direction."""


LARGEST_SUM = 1e120
"""Entry of a centroid up to which its square, and sums of such squares, are inside float64."""


@dataclass(frozen=True)
class Seeds:
    """Where a run starts.

    Attributes
    ----------
    centroids : (k, p) array
        First centroids, in any scale.
    rows : (k,) array of int or None
        The rows of X that they are, if they are rows.
    agreement : Agreement or None
        How far the runs behind a consensus agreed.
    """

    centroids: FloatArray
    rows: Array | None = None
    agreement: Agreement | None = None


def seeds_from_rows(data: Data, rows: list[int], k: int, centroids: FloatArray) -> Seeds:
    """The chosen rows, which are ``centroids``; if X ran out of directions, the first rows not chosen yet are added."""
    chosen = len(rows)
    if chosen < k:
        warn_directions(chosen, k)
        spare = [pair for part in data.map(spare_rows, k) for pair in part]
        rows = fill_up(rows, k, spare)
        centroids = rows_at(data, rows)
    tie_parallel(centroids, chosen)
    return Seeds(centroids, np.asarray(rows, dtype=np.int64))


def from_sums(sums: FloatArray) -> FloatArray:
    """Sums of weighted rows by cluster as centroids; a cluster without rows starts from the sum of all. → (k, p)"""
    largest = np.abs(sums).max()
    if largest > LARGEST_SUM:  # smaller by a power of two, which changes no digit
        sums = np.ldexp(sums, -int(np.frexp(largest)[1]))
    sums[~sums.any(axis=1)] = sums.sum(axis=0)
    return sums


def tie_parallel(centroids: FloatArray, first: int = 1) -> None:
    """Make centroids of one direction equal to the last bit, so that rounding cannot divide rows between them.

    In place, from the centroid of index ``first`` on. Only centroids with equal random projections are compared.
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


def inner_products(part: Part, row: FloatArray) -> FloatArray:
    """⟨x_i, row⟩ for every row i of a part, on the host. → (n,)"""
    block = part.block
    template = block.backend.prepare(block.rows, block.backend.bring(row.reshape(1, -1)))
    products: FloatArray = to_host(block.backend.best_template(block.rows, template)[1])
    return products


def squared_norms(part: Part) -> FloatArray:
    """‖x_i‖² for every row i of a part, on the host. → (n,)"""
    return part.block.host_term(np.square)


def usable_rows(part: Part, squares: FloatArray) -> Array:
    """Which rows may become centroids: those that have an entry and a weight. → (n,) bool"""
    weights = part.block.weights
    return squares > 0 if weights is None else (squares > 0) & (weights > 0)


def rows_at(data: Data, rows: list[int]) -> FloatArray:
    """Rows of the whole, by their index, as a dense array."""
    ends = np.cumsum(data.sizes)
    numbers = np.searchsorted(ends, rows, side="right")
    out = np.empty((len(rows), data.shape[1]))
    for number in np.unique(numbers):
        mine = np.flatnonzero(numbers == number)
        out[mine] = data.ask(int(number), dense_rows, [rows[i] for i in mine])
    return out


def dense_rows(part: Part, rows: list[int]) -> FloatArray:
    """Rows of a part, by their index in the whole."""
    return part.block.dense(np.asarray(rows) - part.first)


def spare_rows(part: Part, k: int) -> list[tuple[int, int]]:
    """The first 2k usable rows of a part, and how many times each may serve; a row of weight w counts as w rows."""
    usable = np.flatnonzero(usable_rows(part, squared_norms(part)))[: 2 * k]
    weights = part.block.weights
    copies = np.ones(len(usable)) if weights is None else np.minimum(np.ceil(weights[usable]), k)
    return [(part.first + int(row), int(number)) for row, number in zip(usable, copies, strict=True)]


def fill_up(rows: list[int], k: int, spare: list[tuple[int, int]]) -> list[int]:
    """``rows`` and, up to k, the lowest spare rows that are left."""
    filled = list(rows)
    for row, copies in spare:
        filled += [row] * max(copies - rows.count(row), 0)
    filled = filled[:k]
    # With fewer usable rows than clusters, the others start in the same place and stay empty.
    return filled + [filled[-1] if filled else 0] * (k - len(filled))


def warn_directions(chosen: int, k: int) -> None:
    """Warn that X has fewer directions than clusters were asked for."""
    warn(
        f"X has run out of directions after {chosen} of {k} seeds: the other {k - chosen} are the first rows not "
        "chosen yet. Ask for fewer clusters, or remove duplicate rows.",
        ConvergenceWarning,
    )
