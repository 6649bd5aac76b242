"""Starts: how the first centroids are chosen. See :mod:`onmf.fit.solve` for their names.

Rows by the successive nonnegative projection algorithm (SNPA), by D² sampling (++) or at random; a random partition.

Reference: Gillis, Successive nonnegative projection algorithm for robust nonnegative blind source separation (2014).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.exceptions import ConvergenceWarning

from onmf import interrupt
from onmf.backend import EXHAUSTED, TIE, Block, Hull, Matrix, to_host
from onmf.data import Data, Part, get_engine
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data
from onmf.divergence import Array, Divergence, FloatArray, Frobenius, divide
from onmf.warn import warn

from .describe import Agreement

PARALLEL_COSINE = 1 - 5e-13  # two rows whose cosine is at least this count as one direction
LARGEST_SUM = 1e120  # entries of centroids up to this have squares, and sums of squares, inside float64
CHUNK_ROWS = 4096  # rows whose chances are added up together; the row is then looked for in one such stretch


@dataclass(frozen=True)
class Seeds:
    """The start of a run: first centroids in any scale."""

    centroids: FloatArray
    rows: Array | None = None  # indices of the centroids in X; None if they are not rows
    agreement: Agreement | None = None  # of the runs behind a consensus
    given: bool = False  # whether a user gave the centroids, so that the run begins there and nowhere else
    effects: FloatArray | None = None  # (groups, p) first multipliers of groups; None if these are 1


def seeds_from_rows(data: Data, rows: list[int], k: int, centroids: FloatArray) -> Seeds:
    """Seeds from the chosen rows. If X ran out of directions, the first rows not chosen yet are added."""
    chosen = len(rows)
    if chosen < k:
        warn(
            f"X has run out of directions after {chosen} of {k} seeds: the other {k - chosen} are the first rows not "
            "chosen yet. Ask for fewer clusters, or remove duplicate rows.",
            ConvergenceWarning,
        )
        filled = list(rows)
        for row, copies in chain.from_iterable(data.map(spare_rows, k)):
            filled += [row] * max(copies - rows.count(row), 0)
        # With fewer usable rows than clusters, the remaining clusters repeat the last row and stay empty.
        rows = filled[:k] + [filled[-1] if filled else 0] * (k - len(filled))
        centroids = rows_at(data, rows)
    return Seeds(tie_parallel(centroids, data.divergence, chosen), np.asarray(rows, dtype=np.int64))


def from_sums(sums: FloatArray, counts: FloatArray | None = None) -> FloatArray:
    """Centroids from sums by cluster; a cluster without rows starts from the sum of all rows. → (k, p)

    With the ``counts`` of the clusters (k,) centroids are means, for divergences whose rows have no scale.
    """
    if counts is not None:
        return np.where(counts[:, None] > 0, divide(sums, counts[:, None]), sums.sum(axis=0) / counts.sum())
    largest = np.abs(sums).max()
    if largest > LARGEST_SUM:  # scale by a power of two, which is exact
        sums = np.ldexp(sums, -int(np.frexp(largest)[1]))
    sums[~sums.any(axis=1)] = sums.sum(axis=0)
    return sums


def tie_parallel(centroids: FloatArray, divergence: Divergence, first: int = 1) -> FloatArray:
    """Make parallel centroids identical, in place and from index ``first`` on, so that rounding cannot divide rows.

    Only centroids with nearly equal random projections are compared; none if rows have no scale under the divergence.
    """
    if divergence.absolute:
        return centroids
    squares = np.square(centroids).sum(axis=1)
    direction = np.random.default_rng(0).random((centroids.shape[1],))
    shadows = divide(np.array([(each * direction).sum() for each in centroids]), np.sqrt(squares))
    for c in range(max(first, 1), len(centroids)):
        alike = np.flatnonzero(np.abs(shadows[:c] - shadows[c]) <= 1e-6 * np.abs(shadows[c]))
        products = (centroids[alike] * centroids[c]).sum(axis=1)
        for other in alike[parallel(products, squares[alike], float(squares[c]))][:1]:
            centroids[c] = centroids[other]
    return centroids


def parallel(products: FloatArray, squares: FloatArray, own: float) -> Array:
    """Which rows are parallel to another one, from their products with it and the squared norms. → (n,) bool"""
    return products >= PARALLEL_COSINE * np.sqrt(squares) * np.sqrt(own)


def equal(products: FloatArray, squares: FloatArray, own: float) -> Array:
    """Which rows are equal to another one, given as in :func:`parallel`. → (n,) bool"""
    sizes = squares + own
    return sizes - 2 * products <= (1 - PARALLEL_COSINE) * sizes


def rows_at(data: Data, rows: list[int]) -> FloatArray:
    """Rows of X, by their index, as a dense array."""
    numbers = np.searchsorted(np.cumsum(data.sizes), rows, side="right")
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


def random_partition(data: Data, k: int, rng: np.random.Generator) -> Seeds:
    """Assign every row to a random cluster; the centroids are the sums of the clusters."""
    states = []
    for n in data.sizes:  # each part draws from its own state, so the labels do not depend on the parts
        states.append(rng.bit_generator.state)
        rng.integers(k, size=n)
    sums: FloatArray = data.total(sums_at_random, states, k)
    return Seeds(tie_parallel(from_label_sums(sums, data.divergence), data.divergence))


def random_partitions(data: Data, k: int, seeds: Array) -> Callable[[int], Seeds]:
    """Starts from random partitions, by the number of the run."""
    return lambda run: random_partition(data, k, np.random.default_rng(int(seeds[run])))


def sums_at_random(part: Part, states: list[Any], k: int) -> FloatArray:
    """The sums of random clusters of the rows of a part, as :func:`label_sums` gives them."""
    rng = np.random.default_rng()
    rng.bit_generator.state = states[part.number]
    return label_sums(part.block, rng.integers(k, size=len(part.block)).astype(np.int32), k)


def label_sums(block: Block, labels: Array, k: int) -> FloatArray:
    """The sums of clusters of rows; if rows have no scale, the weights of the clusters are one more column. → (k, p)"""
    weights = block.host_weights
    sums = block.sum_by_label(labels, weights, k)
    if not block.divergence.absolute:
        return sums
    return np.column_stack([sums, np.bincount(labels, weights=weights, minlength=k)])


def from_label_sums(sums: FloatArray, divergence: Divergence) -> FloatArray:
    """Centroids from what :func:`label_sums` returned. → (k, p)"""
    return from_sums(sums[:, :-1], sums[:, -1]) if divergence.absolute else from_sums(sums)


@dataclass
class Draws:
    """The state of a part while rows are drawn: which of its rows can still be drawn, and their losses."""

    draw: str
    squares: FloatArray
    open: Array
    losses: FloatArray
    seeds: int = 0


def draw_rows(data: Data, k: int, rng: np.random.Generator, by_loss: bool, given: FloatArray | None = None) -> Seeds:
    """Draw rows of different directions with equal probability, or as in k-means++, by their loss under those so far.

    The losses are computed with smoothed seeds, so they are finite even for rows with words that no seed has. The first
    seeds may be ``given``.
    """
    draw = uuid4().hex
    room, chosen = np.empty((k, data.shape[1])), list[int]()
    if given is not None:
        room[: len(given)], chosen = given, [-1] * len(given)
    while len(chosen) < k:
        interrupt.check()
        seeds = room[: len(chosen)]
        totals = np.array(data.map(total_chances, draw, seeds, chosen, by_loss))  # (parts, 2)
        hopeless = bool(totals[:, 1].any())
        chances = totals[:, int(hopeless)]
        total = np.cumsum(chances)[-1]
        if not total > 0:
            break
        part, target = _where(chances, rng.random() * total)
        row, room[len(chosen)] = data.map_part(part, row_at, draw, seeds, chosen, by_loss, hopeless, target)
        chosen.append(row)
    if given is not None:  # seeds that are missing are empty clusters, which the loop fills
        room[len(chosen) :] = room[0]
        return Seeds(room)
    return seeds_from_rows(data, chosen, k, room[: len(chosen)])


def total_chances(part: Part, draw: str, seeds: FloatArray, chosen: list[int], by_loss: bool) -> tuple[float, float]:
    """The sum of the chances of the rows of a part, and the sum of the weights of rows with infinite loss."""
    usual, infinite = _chances(part, draw, seeds, chosen, by_loss)
    return float(np.cumsum(_in_stretches(usual))[-1]), float(np.cumsum(_in_stretches(infinite))[-1])


def row_at(
    part: Part, draw: str, seeds: FloatArray, chosen: list[int], by_loss: bool, hopeless: bool, target: float
) -> tuple[int, FloatArray]:
    """The row of a part at which the cumulative chances pass the target: its index among all rows, and the row."""
    chances = _chances(part, draw, seeds, chosen, by_loss)[hopeless]
    stretch, target = _where(_in_stretches(chances), target)
    first = stretch * CHUNK_ROWS
    row = first + _where(to_host(chances[first : first + CHUNK_ROWS]), target)[0]
    return part.first + row, part.block.dense(np.array([row]))[0]


def _in_stretches(chances: FloatArray) -> FloatArray:
    """The sums of the chances over stretches of rows, on the host. A GPU adds each in the same order every time."""
    whole = len(chances) // CHUNK_ROWS * CHUNK_ROWS
    sums = chances[:whole].reshape(-1, CHUNK_ROWS).sum(axis=1), chances[whole:].sum(keepdims=True)
    return np.concatenate([to_host(part) for part in sums])


def _where(chances: FloatArray, target: float) -> tuple[int, float]:
    """Where the cumulative chances pass the target, and how far the target is beyond the chances before that."""
    cumulative = np.cumsum(chances)
    place = min(int(np.searchsorted(cumulative, target, side="right")), int(np.flatnonzero(chances)[-1]))
    return place, target - (float(cumulative[place - 1]) if place else 0.0)


def _chances(
    part: Part, draw: str, seeds: FloatArray, chosen: list[int], by_loss: bool
) -> tuple[FloatArray, FloatArray]:
    """The chance of each row of a part to be drawn, and that of the rows of infinite loss, where the backend computes.

    With smoothing=0 rows can have an infinite loss. They are drawn first: the other chances are 0 for them.
    """
    known, block, divergence = part.scratch, part.block, part.block.divergence
    if not isinstance(known, Draws) or known.draw != draw or known.seeds > len(seeds):
        squares = block.squares()
        known = part.scratch = Draws(draw, squares, block.usable(squares), np.ones_like(squares))
    while known.seeds < len(seeds):
        seed = seeds[known.seeds : known.seeds + 1]
        alike = equal if divergence.absolute else parallel
        known.open &= ~alike(block.products(seed), known.squares, float(np.square(seed).sum()))
        own = chosen[known.seeds] - part.first
        if 0 <= own < len(known.open):
            known.open[own] = False
        if by_loss:
            exact, smoothed = divergence.unsmoothed(), divergence.smooth(divergence.initial_centroids(seed))
            templates = block.prepare_templates(exact.templates(smoothed), exact.offsets(smoothed))
            new = np.maximum(block.assign(templates).losses, 0.0)
            known.losses = new if known.seeds == 0 else np.minimum(known.losses, new)
        known.seeds += 1
    weights = 1.0 if block.own_weights is None else block.own_weights
    infinite = np.isinf(known.losses)
    finite = np.where(infinite, 0.0, known.losses)
    return np.where(known.open, weights * finite, 0.0), np.where(infinite & known.open, weights, 0.0)


def snpa_start(data: Data, k: int, rng: np.random.Generator | None = None) -> Seeds:
    """Start from rows: each the farthest from the convex hull of the others and the origin, until X has none left."""
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
        distance = residuals.max(initial=0.0)
        if not distance > EXHAUSTED * largest:
            break
        close = np.flatnonzero(residuals >= (1 - TIE) * distance)
        best = rows[close[np.lexsort((rows[close], -squares[close]))[0]]]
        front = next(front for front in fronts if best in front.rows)
        row = front.stored[front.rows == best]
        stored = row if stored is None else _below(stored, row)
        m = len(chosen) + 1
        chosen.append(int(best))
        vertices[m - 1] = row.toarray() if issparse(row) else row
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


def farthest(part: Part, choice: str, k: int, vertices: FloatArray, gram: FloatArray, largest: float) -> Front:
    """The rows of a part that are farthest from the hull."""
    block, m = part.block, len(vertices)
    hull: Hull
    known, hull = part.scratch if isinstance(part.scratch, tuple) else ("", None)
    if known != choice or hull.vertices > m:
        hull = block.backend.hull(block, k)
        part.scratch = choice, hull
    for vertex in vertices[hull.vertices :]:
        hull.add(block, vertex)
    close, residuals, squares = hull.farthest(block, np.ascontiguousarray(gram[: m + 1, : m + 1]), largest)
    front = _front(close, residuals, squares)
    chosen = np.searchsorted(close, front)
    return Front(residuals[chosen], squares[chosen], part.first + front, block.take(front))


def _front(rows: Array, residuals: FloatArray, squares: FloatArray) -> Array:
    """The Pareto front of these rows: those that no other row beats in residual, length and index at once."""
    order = np.lexsort((rows, -squares, -residuals))
    order = order[squares[order] == np.maximum.accumulate(squares[order])]
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
    rows: Any = snpa_start(data, r).rows
    return rows
