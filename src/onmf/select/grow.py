"""Which numbers of clusters to try: a range that grows until the criterion falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

FIRST_END = 16
"""The range first ends here."""

MAX_CLUSTERS = 100
"""Largest number that is tried unless a larger one is asked for."""

ROWS_PER_CLUSTER = 5
"""Mean number of rows of a cluster, at least, unless more clusters are asked for."""

FINENESS = 16
"""Numbers between the best and a neighbour are tried if the two differ by more than the best divided by this."""

EXPECTED_REFINEMENTS = 6
"""Numbers tried around the best: a guess, for the progress."""


class Range(NamedTuple):
    """From which numbers of clusters to choose, and how; None for the defaults of the kind of data."""

    k_min: int | None = None
    k_max: int | None = None
    criterion: str | None = None

    def check(self, n_clusters: int | str, criteria: tuple[str, ...]) -> None:
        """Refuse a number other than an integer or "auto", an unknown criterion, and a range beside a number."""
        if isinstance(n_clusters, str) and n_clusters != "auto":
            raise ValueError(f"n_clusters={n_clusters!r} is not allowed: give a number, or 'auto'.")
        given = {name: value for name, value in self._asdict().items() if value is not None}
        if given and n_clusters != "auto":
            name, value = next(iter(given.items()))
            raise ValueError(
                f"{name}={value!r} is about choosing the number of clusters, but n_clusters={n_clusters} is given: use "
                f"n_clusters='auto', or leave out {name}."
            )
        if self.criterion is not None and self.criterion not in criteria:
            raise ValueError(f"criterion={self.criterion!r} is not known: use {either(criteria)}.")


def either(names: tuple[str, ...]) -> str:
    """The names as a choice: ``'a', 'b' or 'c'``."""
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"


class Work:
    """How much of the work is done, told as a share that never falls. The time of a fit grows with its clusters."""

    def __init__(self, fits: int, tell: Callable[[float], None]) -> None:
        self.fits, self.tell = fits, tell
        self.done = self.planned = self.expected = self.share = 0.0
        self.largest = 0

    def plan(self, numbers: list[int]) -> None:
        """Plan to try these numbers of clusters. If the range grows, expect that some in its middle will follow."""
        work = self.fits * float(sum(numbers))
        self.planned += work
        self.expected = max(self.expected - work, 0.0)
        if max(numbers, default=0) > self.largest:
            self.largest = max(numbers)
            self.expected = self.fits * EXPECTED_REFINEMENTS * self.largest / 2

    def advance(self, k: int) -> None:
        """A fit with k clusters is done."""
        self.done += k
        self.share = max(self.share, self.done / max(self.planned + self.expected, 1.0))
        self.tell(self.share)


def largest_number(n: int) -> int:
    """The largest number of clusters to try on n rows by default."""
    return max(min(n // ROWS_PER_CLUSTER, MAX_CLUSTERS), min(n // 2, 2))


def check_range(k_min: int, k_max: int | None, n: int) -> int:
    """The largest number of clusters to try, by default that for n rows; refuse a range that n rows do not allow."""
    if k_min < 1:
        raise ValueError(f"k_min={k_min} is not allowed: the smallest number of clusters must be at least 1.")
    if k_max is not None and k_max < k_min:
        raise ValueError(f"k_max={k_max} is less than k_min={k_min}: give a larger one, or a smaller k_min.")
    for name, k in (("k_min", k_min), ("k_max", k_max or 0)):
        if k > n // 2:
            raise ValueError(
                f"{name}={k} is too large for {n} rows: each half of them is clustered, so at most {n // 2} clusters "
                "are possible."
            )
    return max(largest_number(n), k_min) if k_max is None else k_max


def try_numbers(
    score: Callable[[int], float],
    k_min: int,
    k_max: int,
    announce: Callable[[list[int]], None] = lambda numbers: None,
) -> dict[int, float]:
    """Try numbers of clusters until the best is known. → the criterion for each number that was tried

    The numbers grow by factors of √2. The range ends at 16 at first, and doubles while the best number is in its upper
    half. Then numbers around the best are tried. ``score(k)`` is called once for each number; higher is better.
    ``announce`` is told which numbers will be tried next.

    >>> from onmf.select import try_numbers
    >>> sorted(try_numbers(lambda k: -abs(k - 5), 2, 100))
    [2, 3, 4, 5, 6, 8, 11, 16]
    """
    tried: dict[int, float] = {}

    def attempt(numbers: list[int]) -> int:
        new = [k for k in numbers if k not in tried]
        announce(new)
        for k in new:
            tried[k] = score(k)
        return max(tried, key=lambda k: (tried[k], -k))

    end = min(max(FIRST_END, 2 * k_min), k_max)
    best = attempt(_spaced(k_min, end))
    while 2 * best > end and end < k_max:
        end = min(2 * end, k_max)
        best = attempt(_spaced(k_min, end))
    while near := _near(sorted(tried), best):
        best = attempt(near)
    return tried


def _spaced(low: int, high: int) -> list[int]:
    """Numbers from low to high, each about √2 times the one before."""
    steps = int(2 * np.log2(high / low) + 1e-9)
    return sorted({round(low * 2 ** (step / 2)) for step in range(steps + 1)} | {high})


def _near(tried: list[int], best: int) -> list[int]:
    """Numbers in the middle between the best and its neighbours, if these are far."""
    at, gap = tried.index(best), max(1, best // FINENESS)
    neighbours = tried[max(at - 1, 0) : at] + tried[at + 1 : at + 2]
    return [(k + best) // 2 for k in neighbours if abs(k - best) > gap]
