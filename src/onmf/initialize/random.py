"""Random starts: rows by D² sampling (++), rows at random, and a random partition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf.divergence import FloatArray
from onmf.engine import Engine, Held

from .seeds import Start, inner_products, parallel, squared_norms, start_from_rows, tie_parallel, usable_rows

LossUnder = Callable[[int], FloatArray]


def plus_plus(engine: Engine, held: Held, k: int, rng: np.random.Generator) -> Start:
    """Draw each row with probability proportional to its loss under the rows drawn so far.

    This is k-means++ with the divergence in the place of the squared distance. The losses are those of smoothed seeds,
    which are finite also for rows with words that no seed has.
    """
    divergence = held.divergence
    strict = divergence.unsmoothed()

    def loss_under(row: int) -> FloatArray:
        seed = divergence.smooth(engine.rows(held.data, np.array([row])))
        return engine.assign(held, strict.templates(seed)).losses

    return _draw(engine, held, k, rng, loss_under)


def random_rows(engine: Engine, held: Held, k: int, rng: np.random.Generator) -> Start:
    """Draw rows of different directions with equal probability."""
    return _draw(engine, held, k, rng, None)


def random_partition(engine: Engine, held: Held, k: int, rng: np.random.Generator) -> Start:
    """Give every row a random cluster; the centroids are the sums of the clusters' rows."""
    n = held.shape[0]
    labels = rng.integers(k, size=n).astype(np.int32)
    weights = np.ones(n) if held.weights is None else held.weights
    centroids = engine.sum_by_label(held.data, labels, weights, k)
    whole = centroids.sum(axis=0)
    centroids[~centroids.any(axis=1)] = whole  # a cluster without rows starts from all of them
    tie_parallel(centroids)
    return Start(centroids)


def _draw(engine: Engine, held: Held, k: int, rng: np.random.Generator, loss_under: LossUnder | None) -> Start:
    """Draw k rows of different directions, by weight, or by weight times the smallest loss under the rows before."""
    squares = squared_norms(engine, held)
    weights = np.ones(len(squares)) if held.weights is None else held.weights
    open_rows = usable_rows(held, squares)
    losses = np.ones(len(squares))
    chosen: list[int] = []
    while len(chosen) < k:
        chances = np.where(open_rows, weights * losses, 0.0)
        if np.isinf(chances).any():  # smoothing=0: rows that no seed can explain come first
            chances = np.where(np.isinf(chances), weights, 0.0)
        cumulated = np.cumsum(chances)
        if not cumulated[-1] > 0:
            break
        row = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
        row = min(row, int(np.flatnonzero(chances)[-1]))
        chosen.append(row)
        products = inner_products(engine, held, row)
        open_rows &= ~parallel(products, np.append(squares, squares[row]))
        open_rows[row] = False
        if loss_under is not None:
            new = np.maximum(loss_under(row), 0.0)
            losses = new if len(chosen) == 1 else np.minimum(losses, new)
    return start_from_rows(engine, held, chosen, k)
