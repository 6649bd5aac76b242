"""Measurements of time, after a warm-up, with the contenders in turn, as medians; and of memory, in a child process."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

REST = 0.3
"""Seconds between two measurements."""

QUICK = False
"""Whether this is a trial run on tiny data: without pauses, and with time differences that may be lost in noise."""

TICK = 1e-9
"""Lower bound on the time of an iteration, in seconds."""

Run = Callable[[int], int]
"""Runs at most the given number of iterations, and returns how many it did."""


def rest() -> None:
    """Wait until the threads of the previous contender are idle: those of OpenMP and BLAS keep spinning for a while."""
    if not QUICK:
        gc.collect()
        sleep(REST)


def seconds(function: Callable[[], object]) -> float:
    """Return the time of one call."""
    rest()
    began = perf_counter()
    function()
    return perf_counter() - began


def timed(run: Run, n: int) -> tuple[float, int]:
    """Return the time of at most n iterations, and how many were done."""
    rest()
    began = perf_counter()
    done = run(n)
    return perf_counter() - began, done


def an_iteration(contenders: dict[str, tuple[Run, int, int]], repeats: int) -> dict[str, float]:
    """Return the median seconds of one iteration of each contender; the contenders take turns.

    Each contender has a small and a large number of iterations. The difference of the two times covers iterations
    only: it excludes input checks, copies and initialization.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, (run, few, more) in contenders.items():
            run(1)  # restore the caches, memory and threads that other contenders have used since the last turn
            (short, done_few), (long, done_more) = timed(run, few), timed(run, more)
            if done_more == done_few and not QUICK:
                raise ValueError(f"{name} converged after {done_few} iterations: there are no more to measure.")
            if repeat:  # the first turn warms up
                times[name].append(max(long - short, TICK) / max(done_more - done_few, 1))
    medians = {name: median(values) for name, values in times.items()}
    for name, spent in medians.items():
        if spent <= TICK and not QUICK:
            raise ValueError(
                f"The iterations of {name} are lost in noise: pass more --repeats, or wait for a quiet machine."
            )
    return medians


def in_turns(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of a call of each contender; the contenders take turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, function in contenders.items():
            spent = seconds(function)
            if repeat:
                times[name].append(spent)
    return {name: median(values) for name, values in times.items()}


def peak_memory() -> float:
    """Return the peak memory of this process, in GB."""
    status = Path("/proc/self/status").read_text()
    return float(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1e6


def in_child(
    function: Callable[..., Any], *arguments: Any, minutes: float | None = None, gigabytes: float | None = None
) -> Any:
    """Return the result of a call in a fresh process, in which no other contender has left its libraries and memory.

    Raises
    ------
    TimeoutError
        If the call takes more than ``minutes``.
    MemoryError
        If it needs more than ``gigabytes``, or the system ends it.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, gigabytes, function, arguments))
    child.start()
    sender.close()
    try:
        if not receiver.poll(None if minutes is None else 60 * minutes):
            raise TimeoutError(f"more than {minutes:g} minutes")
        answer = receiver.recv()
    except EOFError as error:
        raise MemoryError("ended by the system") from error
    finally:
        child.kill()
        child.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(sender: Any, gigabytes: float | None, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Send the result of a call, or its error."""
    if gigabytes is not None:
        import resource  # not on Windows

        bytes_ = int(gigabytes * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))
    try:
        answer = function(*arguments)
    except Exception as error:
        answer = MemoryError(f"more than {gigabytes:g} GB") if isinstance(error, MemoryError) and gigabytes else error
    with suppress(BrokenPipeError):
        sender.send(answer)
