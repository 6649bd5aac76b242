"""Runs cases in child processes with limits of time and memory, and knows which one ended its process.

The process that calls :func:`campaign` has imported everything and compiled the kernels, and has no threads. It forks a
child for each batch of cases. Before a case begins, the child writes its number and the time into memory that both
share: when the child dies or hangs, the guilty case is known, is run again alone to confirm it, and the next child goes
on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol

KINDS = {
    "crash": "the process died, or ended without an exception",
    "hang": "no end within the limit of time",
    "memory": "more than the limit of memory",
    "error": "an exception that is no sentence for the user",
    "nan": "NaN or infinity in a result, or a warning of NumPy's about one",
    "contract": "a result that is not what the documentation promises",
}
"""What counts as a failure."""

POLL = 0.05
"""Seconds between looks at the clocks of the children."""

PATIENCE = 3
"""How much longer than its limit a case may take when it runs alone: a busy machine is no hang."""

REMEMBERED = 3
"""Failures of one signature that are kept; the others are counted."""


class Failure(NamedTuple):
    """What a case did wrong: one of :data:`KINDS`, a sentence, and where, to tell apart different bugs."""

    kind: str
    what: str
    where: str = ""


class Target(Protocol):
    """Something to fuzz."""

    name: str
    seconds: float  # limit of a case
    memory: int  # bytes a case may need beyond what its process has

    def warm_up(self) -> None:
        """Import and compile what all cases need, in the process that forks; leave no thread behind."""

    def run(self, seed: int, number: int) -> list[Failure]:
        """Run a case in this process."""

    def reproducer(self, seed: int, number: int, failure: Failure, folder: Path) -> str:
        """A few lines of Python that show the failure; files that they need go into ``folder``."""


@dataclass
class Found:
    """A failure, the case that showed it, and how many more were like it."""

    number: int
    failure: Failure
    more: int = 0


@dataclass
class Tally:
    """How a campaign went."""

    target: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    found: list[Found] = field(default_factory=list)
    slow: list[int] = field(default_factory=list)  # ran past the limit once, and within it alone

    def add(self, number: int, failure: Failure) -> bool:
        """Count a failure. → whether it is worth showing"""
        self.counts[failure.kind] += 1
        alike = [f for f in self.found if (f.failure.kind, f.failure.where) == (failure.kind, failure.where)]
        if len(alike) >= REMEMBERED:
            alike[0].more += 1
            return False
        self.found.append(Found(number, failure))
        return True

    @property
    def failures(self) -> int:
        """Failures of all kinds."""
        return sum(self.counts.values())


@dataclass
class Child:
    """A process that runs a batch of cases."""

    pid: int
    numbers: range
    pipe: int
    clock: memoryview  # number of the case, when it began, cases done
    trace: IO[str]  # where faulthandler writes
    unread: bytes = b""
    hung: bool = False


def campaign(
    target: Target,
    seed: int,
    *,
    numbers: Iterator[int],
    until: float = float("inf"),
    workers: int = 1,
    batch: int = 200,
    progress: Callable[[Tally], None] = lambda tally: None,
    show: Callable[[Found], None] = lambda found: None,
) -> Tally:
    """Run cases until they, or the time, run out.

    Parameters
    ----------
    target : Target
        What to fuzz; warmed up.
    seed : int
        Together with its number it makes a case.
    numbers : iterator of int
        First numbers of batches, ``batch`` apart.
    until : float
        Time, as :func:`time.monotonic` tells it, after which no batch begins.
    workers : int
        Children at a time.
    batch : int
        Cases of a child.
    progress, show : callable
        Called now and then, and with each failure that is unlike the ones before.

    Returns
    -------
    Tally
    """
    tally, began = Tally(target.name, seed), time.monotonic()
    waiting: list[range] = []
    children: list[Child] = []

    def failed(number: int, failure: Failure) -> None:
        if tally.add(number, failure):
            show(tally.found[-1])

    def fill() -> None:
        while len(children) < workers:
            if waiting:
                children.append(start(target, seed, waiting.pop(0)))
            elif time.monotonic() < until and (first := next(numbers, None)) is not None:
                children.append(start(target, seed, range(first, first + batch)))
            else:
                return

    try:
        fill()
        while children:
            ready, _, _ = select.select([child.pipe for child in children], [], [], POLL)
            for child in list(children):
                ended = child.pipe in ready and not read(child, failed)
                if not ended and not child.hung and past_limit(child, target.seconds):
                    child.hung = True
                    stop(child.pid)
                if ended:
                    children.remove(child)
                    rest = bury(target, seed, child, tally, failed)
                    waiting.extend([rest] if rest else [])
            tally.seconds = time.monotonic() - began
            progress(tally)
            fill()
    finally:
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            os.close(child.pipe)
    return tally


def start(target: Target, seed: int, numbers: range) -> Child:
    """Fork a child that runs these cases."""
    shared = mmap.mmap(-1, 64)
    clock = memoryview(shared).cast("d")
    clock[0], clock[1], clock[2] = numbers[0], time.monotonic(), 0
    trace = tempfile.TemporaryFile("w+")  # noqa: SIM115: closed when the child is buried
    there, here = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(there)
            _live(target, seed, numbers, here, clock, trace)
            code = 0
        finally:
            os._exit(code)
    os.close(here)
    return Child(pid, numbers, there, clock, trace)


def _live(target: Target, seed: int, numbers: range, pipe: int, clock: memoryview, trace: IO[str]) -> None:
    """What a child does."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    faulthandler.enable(trace, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = _virtual() + target.memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: it is for the parent, which stops its children
    for number in numbers:
        clock[0], clock[1] = number, time.monotonic()
        failures = target.run(seed, number)
        for failure in failures:
            line = json.dumps([number, *failure]).encode() + b"\n"
            while line:
                line = line[os.write(pipe, line) :]
        clock[2] += 1


def _virtual() -> int:
    """Bytes of the address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read(child: Child, failed: Callable[[int, Failure], None]) -> bool:
    """Take what a child has written. → False if it has ended"""
    data = os.read(child.pipe, 1 << 16)
    *lines, child.unread = (child.unread + data).split(b"\n")
    for line in lines:
        number, *failure = json.loads(line)
        failed(number, Failure(*failure))
    return bool(data)


def past_limit(child: Child, seconds: float) -> bool:
    """Whether the case at hand takes too long."""
    return time.monotonic() - child.clock[1] > seconds


def stop(pid: int) -> None:
    """Make a process write where it is, and end it."""
    os.kill(pid, signal.SIGABRT)
    for _ in range(20):
        time.sleep(POLL)
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
    os.kill(pid, signal.SIGKILL)


def bury(
    target: Target, seed: int, child: Child, tally: Tally, failed: Callable[[int, Failure], None]
) -> range | None:
    """Say how a child ended. → the cases that it has left"""
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    done = int(child.clock[2])
    tally.cases += done
    child.trace.seek(0)
    where = _last_lines(child.trace.read())
    child.trace.close()
    code = os.waitstatus_to_exitcode(status)
    if done == len(child.numbers) and code == 0:
        return None
    number = int(child.clock[0])
    tally.cases += 1
    what = _death(code, child.hung, target.seconds)
    if len(child.numbers) > 1:  # alone it is judged as it is
        alone = _alone(target, seed, range(number, number + 1))
        if alone is None and child.hung:
            tally.slow.append(number)
            failed_as = None
        elif alone is None:
            again = _alone(target, seed, range(child.numbers[0], number + 1))
            after = f"only after the cases from {child.numbers[0]} on" if again else "not again when it was run alone"
            failed_as = Failure(what.kind, f"{what.what} ({after})", where)
        else:
            failed_as = alone
    else:
        failed_as = Failure(what.kind, what.what, where)
    if failed_as is not None:
        failed(number, failed_as)
    rest = range(number + 1, child.numbers.stop)
    return rest or None


def _alone(target: Target, seed: int, numbers: range) -> Failure | None:
    """How a child that runs these cases only dies, or None if it lives."""
    child = start(target, seed, numbers)
    while True:
        ready, _, _ = select.select([child.pipe], [], [], POLL)
        if ready and not read(child, lambda number, failure: None):
            break
        if not child.hung and past_limit(child, PATIENCE * target.seconds):
            child.hung = True
            stop(child.pid)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    child.trace.seek(0)
    where = _last_lines(child.trace.read())
    child.trace.close()
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and int(child.clock[2]) == len(numbers):
        return None
    death = _death(code, child.hung, PATIENCE * target.seconds)
    return Failure(death.kind, death.what, where)


def _death(code: int, hung: bool, seconds: float) -> Failure:
    if hung:
        return Failure("hang", f"It had not ended after {seconds:g} s.")
    if code < 0:
        return Failure("crash", f"The process died of {signal.Signals(-code).name}.")
    return Failure("crash", f"The process ended with exit code {code} in the middle of the case.")


def _last_lines(trace: str) -> str:
    """Where a process was, by faulthandler: the innermost lines of this project."""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    return " < ".join(line.replace("File ", "", 1) for line in lines[:4])
