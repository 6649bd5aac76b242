"""Random starts: rows by D² sampling (++), rows at random, and a random partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from onmf import interrupt
from onmf.backend import to_host
from onmf.data import Data, Part
from onmf.divergence import Array, FloatArray

from .rows import Seeds, equal, from_sums, parallel, rows_at, seeds_from_rows, tie_parallel

CHUNK_ROWS = 4096
"""Rows whose chances are added up together. The row is then looked for in one such stretch."""


def plus_plus(data: Data, k: int, rng: np.random.Generator) -> Seeds:
    """Draw each row with probability proportional to its loss under the rows drawn so far.

    This is k-means++ with the divergence instead of the squared distance. The losses are computed with smoothed seeds,
    so they are finite even for rows with words that no seed has.
    """
    return _draw(data, k, rng, by_loss=True)


def random_rows(data: Data, k: int, rng: np.random.Generator) -> Seeds:
    """Draw rows of different directions with equal probability."""
    return _draw(data, k, rng, by_loss=False)


def random_partition(data: Data, k: int, rng: np.random.Generator) -> Seeds:
    """Assign every row to a random cluster; the centroids are the sums of the clusters."""
    states = []
    for n in data.sizes:  # each part draws from its own state, so the labels do not depend on the parts
        states.append(rng.bit_generator.state)
        rng.integers(k, size=n)
    centroids: FloatArray = data.total(sums_at_random, states, k)
    if data.divergence.absolute:
        return Seeds(from_sums(centroids[:, :-1], centroids[:, -1]))
    centroids = from_sums(centroids)
    tie_parallel(centroids)
    return Seeds(centroids)


def sums_at_random(part: Part, states: list[Any], k: int) -> FloatArray:
    """The sums of random clusters of the rows of a part. → (k, p)

    If rows have no scale, the weights of the clusters are one more column.
    """
    rng = np.random.default_rng()
    rng.bit_generator.state = states[part.number]
    labels = rng.integers(k, size=len(part.block)).astype(np.int32)
    weights = part.block.host_weights
    sums = part.block.sum_by_label(labels, weights, k)
    if not part.block.divergence.absolute:
        return sums
    return np.column_stack([sums, np.bincount(labels, weights=weights, minlength=k)])


@dataclass
class Draws:
    """The state of a part while rows are drawn: which of its rows can still be drawn, and their losses."""

    draw: str
    squares: FloatArray
    open: Array
    losses: FloatArray
    seeds: int = 0


def _draw(data: Data, k: int, rng: np.random.Generator, by_loss: bool) -> Seeds:
    """Draw k rows of different directions, by weight, or by weight times the smallest loss under earlier rows."""
    draw = uuid4().hex
    room, chosen = np.empty((k, data.shape[1])), list[int]()
    while len(chosen) < k:
        interrupt.check()
        seeds = room[: len(chosen)]
        totals = np.array(data.map(total_chances, draw, seeds, chosen, by_loss))  # (parts, 2)
        hopeless = bool(totals[:, 1].any())
        cumulative = np.cumsum(totals[:, int(hopeless)])
        if not cumulative[-1] > 0:
            break
        target = rng.random() * cumulative[-1]
        filled = np.flatnonzero(totals[:, int(hopeless)])
        part = min(int(np.searchsorted(cumulative, target, side="right")), int(filled[-1]))
        target -= cumulative[part - 1] if part else 0.0
        chosen.append(data.map_part(part, row_at, draw, seeds, chosen, by_loss, hopeless, target))
        room[len(chosen) - 1] = rows_at(data, chosen[-1:])
    return seeds_from_rows(data, chosen, k, room[: len(chosen)])


def total_chances(part: Part, draw: str, seeds: FloatArray, chosen: list[int], by_loss: bool) -> tuple[float, float]:
    """The sum of the chances of the rows of a part, and the sum of the weights of rows with infinite loss."""
    both = [_chances(part, draw, seeds, chosen, by_loss, hopeless) for hopeless in (False, True)]
    return tuple(float(np.cumsum(_in_stretches(chances))[-1]) for chances in both)  # type: ignore[return-value]


def row_at(
    part: Part,
    draw: str,
    seeds: FloatArray,
    chosen: list[int],
    by_loss: bool,
    hopeless: bool,
    target: float,
) -> int:
    """The row of a part at which the cumulative chances pass the target, as an index into all rows."""
    chances = _chances(part, draw, seeds, chosen, by_loss, hopeless)
    stretch, target = _where(_in_stretches(chances), target)
    first = stretch * CHUNK_ROWS
    row, _ = _where(to_host(chances[first : first + CHUNK_ROWS]), target)
    return part.first + first + row


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


def _chances(part: Part, draw: str, seeds: FloatArray, chosen: list[int], by_loss: bool, hopeless: bool) -> FloatArray:
    """The chance of each row of a part to be drawn, in the memory in which the backend computes.

    With smoothing=0 rows can have an infinite loss. They are drawn first: the caller then sets ``hopeless``.
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
    beyond = np.isinf(known.losses) & known.open  # rows without weight are not open
    if hopeless:
        return np.where(beyond, weights, 0.0)
    return np.where(known.open & ~beyond, weights * np.where(np.isinf(known.losses), 0.0, known.losses), 0.0)
