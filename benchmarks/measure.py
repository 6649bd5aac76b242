"""How things are measured: warm, in turns, as medians."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter, sleep

REST = 0.3
"""Seconds between two measurements."""

QUICK = False
"""Whether only to run, on tiny data: without rests, and with differences that may be lost in noise."""

TICK = 1e-9
"""Seconds that any iteration takes at least."""

Run = Callable[[int], int]
"""Runs at most so many iterations, and says how many it did."""


def rest() -> None:
    """Let the threads of whoever ran before come to rest: OpenMP's and BLAS's spin on for a while."""
    if not QUICK:
        gc.collect()
        sleep(REST)


def seconds(function: Callable[[], object]) -> float:
    """Time of one call."""
    rest()
    began = perf_counter()
    function()
    return perf_counter() - began


def timed(run: Run, n: int) -> tuple[float, int]:
    """Time of so many iterations, and how many there were."""
    rest()
    began = perf_counter()
    done = run(n)
    return perf_counter() - began, done


def an_iteration(contenders: dict[str, tuple[Run, int, int]], repeats: int) -> dict[str, float]:
    """Median seconds of one iteration of each contender, the contenders taking turns.

    Each comes with a few iterations and more of them: the difference of the two times is iterations alone, without
    checks of the input, copies and starts.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, (run, few, more) in contenders.items():
            run(1)  # what changed hands since this contender's last turn (caches, memory, spinning threads) comes back
            (short, done_few), (long, done_more) = timed(run, few), timed(run, more)
            if done_more == done_few and not QUICK:
                raise ValueError(f"{name} converged after {done_few} iterations: there is no iteration to measure.")
            if repeat:  # the first turn warms up
                times[name].append(max(long - short, TICK) / max(done_more - done_few, 1))
    return {name: median(values) for name, values in times.items()}


def in_turns(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of a call of each contender, the contenders taking turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, function in contenders.items():
            spent = seconds(function)
            if repeat:
                times[name].append(spent)
    return {name: median(values) for name, values in times.items()}
