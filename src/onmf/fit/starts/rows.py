"""Rows of X as first centroids, and other code that the starts share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.backend import to_host
from onmf.data import Data, Part
from onmf.divergence import Array, FloatArray, divide
from onmf.warn import warn

from ..result import Agreement

PARALLEL_COSINE = 1 - 5e-13
"""Two rows whose cosine is at least this count as one direction."""

LARGEST_SUM = 1e120
"""Entries of centroids up to this have squares, and sums of squares, inside float64."""


@dataclass(frozen=True)
class Seeds:
    """The start of a run.

    Attributes
    ----------
    centroids : (k, p) array
        First centroids, in any scale.
    rows : (k,) array of int or None
        Their indices in X; None if they are not rows.
    agreement : Agreement or None
        How well the runs behind a consensus agreed.
    given : bool
        Whether a user gave the centroids, so that the run begins there and nowhere else.
    """

    centroids: FloatArray
    rows: Array | None = None
    agreement: Agreement | None = None
    given: bool = False


def seeds_from_rows(data: Data, rows: list[int], k: int, centroids: FloatArray) -> Seeds:
    """Seeds from the chosen rows. If X ran out of directions, the first rows not chosen yet are added."""
    chosen = len(rows)
    if chosen < k:
        warn_directions(chosen, k)
        spare = [pair for part in data.map(spare_rows, k) for pair in part]
        rows = fill_up(rows, k, spare)
        centroids = rows_at(data, rows)
    if not data.divergence.absolute:
        tie_parallel(centroids, chosen)
    return Seeds(centroids, np.asarray(rows, dtype=np.int64))


def from_sums(sums: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Centroids from sums by cluster; a cluster without rows starts from the sum of all rows. → (k, p)

    With the ``counts`` of the clusters (k,) centroids are means, for divergences whose rows have no scale.
    """
    if counts is not None:
        whole = sums.sum(axis=0) / counts.sum()
        return np.where(counts[:, None] > 0, divide(sums, counts[:, None]), whole)
    largest = np.abs(sums).max()
    if largest > LARGEST_SUM:  # scale by a power of two, which is exact
        sums = np.ldexp(sums, -int(np.frexp(largest)[1]))
    sums[~sums.any(axis=1)] = sums.sum(axis=0)
    return sums


def tie_parallel(centroids: FloatArray, first: int = 1) -> None:
    """Make parallel centroids identical, so that rounding errors cannot divide rows between them.

    Works in place, from the centroid of index ``first`` on. Only centroids with nearly equal random projections are
    compared.
    """
    squares = np.square(centroids).sum(axis=1)
    norms = np.sqrt(squares)
    direction = np.random.default_rng(0).random(centroids.shape[1])
    shadows = divide(
        np.einsum("kp,p->k", centroids, direction), norms
    )  # not BLAS: its threads keep spinning for a while
    for c in range(max(first, 1), len(centroids)):
        alike = np.flatnonzero(np.abs(shadows[:c] - shadows[c]) <= 1e-6 * np.abs(shadows[c]))
        for other in alike[
            parallel(np.einsum("kp,p->k", centroids[alike], centroids[c]), squares[alike], float(squares[c]))
        ][:1]:
            centroids[c] = centroids[other]


def parallel(products: FloatArray, squares: FloatArray, own: float) -> Array:
    """Which rows are parallel to another one. → (n,) bool

    ``products`` are their inner products with it; ``squares`` are their squared norms, ``own`` is its squared norm.
    """
    return products >= PARALLEL_COSINE * np.sqrt(squares) * np.sqrt(own)


def equal(products: FloatArray, squares: FloatArray, own: float) -> Array:
    """Which rows are equal to another one, given as in :func:`parallel`. → (n,) bool"""
    sizes = squares + own
    return sizes - 2 * products <= (1 - PARALLEL_COSINE) * sizes


def rows_at(data: Data, rows: list[int]) -> FloatArray:
    """Rows of X, by their index, as a dense array."""
    ends = np.cumsum(data.sizes)
    numbers = np.searchsorted(ends, rows, side="right")
    out = np.empty((len(rows), data.shape[1]))
    for number in np.unique(numbers):
        inside = np.flatnonzero(numbers == number)
        out[inside] = data.map_part(int(number), dense_rows, [rows[i] for i in inside])
    return out


def dense_rows(part: Part, rows: list[int]) -> FloatArray:
    """Rows of a part, by their index in X."""
    return part.block.dense(np.asarray(rows) - part.first)


def spare_rows(part: Part, k: int) -> list[tuple[int, int]]:
    """The first 2k usable rows of a part, and how often each can be used: a row of weight w counts as w rows."""
    block = part.block
    usable, weights = np.flatnonzero(to_host(block.usable(block.squares())))[: 2 * k], block.weights
    copies = np.ones(len(usable)) if weights is None else np.minimum(np.ceil(weights[usable]), k)
    return [(part.first + int(row), int(number)) for row, number in zip(usable, copies, strict=True)]


def fill_up(rows: list[int], k: int, spare: list[tuple[int, int]]) -> list[int]:
    """``rows``, filled up to k with the first spare rows that are left."""
    filled = list(rows)
    for row, copies in spare:
        filled += [row] * max(copies - rows.count(row), 0)
    filled = filled[:k]
    # With fewer usable rows than clusters, the remaining clusters repeat the last row and stay empty.
    return filled + [filled[-1] if filled else 0] * (k - len(filled))


def warn_directions(chosen: int, k: int) -> None:
    """Warn that X has fewer directions than there are clusters."""
    warn(
        f"X has run out of directions after {chosen} of {k} seeds: the other {k - chosen} are the first rows not "
        "chosen yet. Ask for fewer clusters, or remove duplicate rows.",
        ConvergenceWarning,
    )
