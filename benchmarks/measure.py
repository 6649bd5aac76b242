"""Measures time, after a warm-up, with the contenders in turn, as medians; and memory, in a process of its own."""

import gc
import multiprocessing
import platform
import re
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from onmf.backend import available_cores

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


def timed(function: Callable[..., Any], *arguments: Any, clock: Any = perf_counter) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    rest()
    began = clock()
    result = function(*arguments)
    return clock() - began, result


def seconds(function: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    return timed(function)[0]


def medians(contenders: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return the median of what each contender measures. They take turns, and the first turn warms up."""
    turns = [{name: contender() for name, contender in contenders.items()} for _ in range(repeats + 1)]
    return {name: median(turn[name] for turn in turns[1:]) for name in contenders}


def in_turns(contenders: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of a call of each contender."""
    return medians({name: partial(seconds, function) for name, function in contenders.items()}, repeats)


def an_iteration(contenders: dict[str, tuple[Run, int, int]], repeats: int) -> dict[str, float]:
    """Return the median seconds of one iteration of each contender.

    Each contender has a small and a large number of iterations. The difference of the two times covers iterations
    only: it excludes input checks, copies and initialization.
    """
    found = medians({name: partial(_difference, name, *contender) for name, contender in contenders.items()}, repeats)
    lost = [] if QUICK else [name for name, spent in found.items() if spent <= TICK]
    if lost:
        raise ValueError(f"{lost[0]} is lost in noise: pass more --repeats, or wait for a quiet machine.")
    return found


def _difference(name: str, run: Run, few: int, more: int) -> float:
    run(1)  # restore the caches, memory and threads that other contenders have used since the last turn
    (short, done_few), (long, done_more) = timed(run, few), timed(run, more)
    if done_more == done_few and not QUICK:
        raise ValueError(f"{name} converged after {done_few} iterations: there are no more to measure.")
    return max(long - short, TICK) / max(done_more - done_few, 1)


def slope(times: dict[int, float]) -> float:
    """Return the slope of log time over log size: 1 if the time is proportional to the size."""
    return float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])


def peak_memory() -> float:
    """Return the peak memory of this process, in GB."""
    return float(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1e6


def processor() -> str:
    """Return the name of the processor."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.processor()


def describe_machine(*packages: str) -> str:
    """Describe the machine and the versions in one line."""
    versions = (f"{name} {version(name)}" for name in ("scikit-learn", *packages))
    return f"{processor()}, {available_cores()} cores; Python {platform.python_version()}, {', '.join(versions)}"


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
    results, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send_result, args=(sending, gigabytes, function, arguments))
    child.start()
    sending.close()  # the child has the only other end, so that its death ends the wait
    try:
        if not results.poll(None if minutes is None else 60 * minutes):
            raise TimeoutError(f"more than {minutes:g} minutes")
        done, result = results.recv()
    except EOFError as error:
        raise MemoryError("ended by the system") from error
    finally:
        child.kill()  # it has nothing more to do
        child.join()
    if done:
        return result
    if isinstance(result, MemoryError):
        raise MemoryError(f"more than {gigabytes:g} GB") from result
    raise result


def _send_result(sending: Any, gigabytes: float | None, function: Callable[..., Any], arguments: Any) -> None:
    """Call a function with limited memory and without warnings, and send what it returns or raises."""
    warnings.simplefilter("ignore")
    try:
        if gigabytes is not None:
            import resource  # not on Windows

            resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 1e9),) * 2)
        sending.send((True, function(*arguments)))
    except Exception as error:
        sending.send((False, error))
