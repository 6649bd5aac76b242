"""Runs cases in child processes with time and memory limits, and identifies cases that kill their process.

The process that calls :func:`campaign` has imported everything and compiled the kernels, and has no threads. It forks a
child for each batch of cases. Before each case, the child writes the number of the case and the time to a board in
shared memory. If the child dies or hangs, the board identifies the case. It is run again alone to confirm the failure,
and another child continues after it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from .board import Board, post
from .report import Failure, Tally

POLL = 0.05
"""Seconds between checks of the time limits."""

SLACK = 3
"""Factor on the time limit of a case that runs alone, so that a slow machine does not look like a hang."""

FATAL = ("crash", "hang")
"""Kinds of failures that end the process."""


class Target(Protocol):
    """A part of onmf to fuzz."""

    name: str
    seconds: float  # time limit of a case
    memory: int  # bytes that a case may allocate, in addition to the memory of its process

    def warm_up(self) -> None:
        """Import and compile everything that cases need, in the process that forks; leave no thread running."""

    def make(self, seed: int, number: int) -> Any:
        """Make the case with this number."""

    def run(self, case: Any) -> list[Failure]:
        """Run a case in this process."""

    def smaller(self, case: Any) -> Iterator[Any]:
        """Yield slightly simpler cases."""

    def reproducer(self, case: Any, failure: Failure, folder: Path) -> str:
        """Return a few lines of Python that reproduce the failure; files that they need are written to ``folder``."""


class Child:
    """A process that runs cases one after the other.

    Parameters
    ----------
    target : Target
        The target.
    make : callable
        Makes the case with a number.
    numbers : range
        Numbers of the cases.
    seconds : float, optional
        Time limit of a case; by default that of the target.
    """

    def __init__(
        self, target: Target, make: Callable[[int], Any], numbers: range, seconds: float | None = None
    ) -> None:
        self.numbers, self.seconds = numbers, target.seconds if seconds is None else seconds
        self.board, self.hung, self.unread = Board(), False, b""
        self.board.begin(numbers.start)
        self.trace = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  (closed by ``reap``)
        self.pipe, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.pipe)
                self._run(target, make, write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)

    @property
    def done(self) -> int:
        """Number of finished cases."""
        return self.board.state().number - self.numbers.start

    def fileno(self) -> int:
        """Return the reading end of the pipe, for ``select``."""
        return self.pipe

    def _run(self, target: Target, make: Callable[[int], Any], pipe: int) -> None:
        """Run the cases; this is the main function of the child."""
        post(self.board)
        import resource  # not on Windows, where the tests import this module and then skip

        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        faulthandler.enable(self.trace, all_threads=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore Ctrl-C: the parent stops its children
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in self.numbers:
            self.board.begin(number)
            try:
                case = make(number)
                limit_memory(target.memory)
                failures = target.run(case)
            except BaseException as error:  # a bug in the fuzzer, or a late interrupt
                text = "".join(traceback.format_exception(error)[-3:])
                failures = [Failure("error", f"the fuzzer itself: {text}", "the fuzzer itself")]
            for failure in failures:
                line = json.dumps([number, *failure]).encode() + b"\n"
                while line:
                    line = line[os.write(pipe, line) :]
        self.board.begin(self.numbers.stop)

    def read(self) -> list[tuple[int, Failure]] | None:
        """Return the failures that the child has reported, with the numbers of their cases; None if it has ended."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.unread = (self.unread + data).split(b"\n")
        failures = [(number, Failure(*failure)) for number, *failure in map(json.loads, lines)]
        return failures if data else None

    def watch(self) -> None:
        """Kill the child if its case takes too long; faulthandler then writes its traceback."""
        if self.hung or time.monotonic() - self.board.state().began < self.seconds:
            return
        self.hung = True
        os.kill(self.pid, signal.SIGABRT)
        for _ in range(20):
            time.sleep(POLL)
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> Failure | None:
        """Wait for the child to end; return how it died, or None if it has run all its cases."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        self.trace.seek(0)
        frames = [line.strip() for line in self.trace if line.strip().startswith("File ")]
        self.trace.close()
        lines = self.board.note()
        code = os.waitstatus_to_exitcode(status)
        where = " < ".join(_short(frame) for frame in frames[:4]) or lines.rpartition("\n")[2][:80]
        if self.hung:
            return Failure("hang", f"The case did not end within {self.seconds:g} s.", where, lines)
        if code < 0:
            return Failure("crash", f"The process was killed by {signal.Signals(-code).name}.", where, lines)
        if code or self.done < len(self.numbers):
            return Failure("crash", f"The process exited with exit code {code} during the case.", where, lines)
        return None

    def kill(self) -> None:
        """Kill the child."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap()


def limit_memory(more: int) -> None:
    """Limit the address space of this process to its present size plus ``more`` bytes."""
    import resource

    size = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))


def _short(frame: str) -> str:
    """Shorten a line of faulthandler: the file without its folders."""
    return frame.split("/")[-1].removeprefix('File "').replace('", line ', ":")


def alone(target: Target, make: Callable[[int], Any], numbers: range = range(1)) -> list[Failure]:
    """Run only these cases, in their own child, and return their failures."""
    child = Child(target, make, numbers, SLACK * target.seconds)
    failures: list[Failure] = []
    while True:
        if select.select([child], [], [], POLL)[0]:
            reported = child.read()
            if reported is None:
                break
            failures += [failure for _, failure in reported]
        child.watch()
    death = child.reap()
    return failures if death is None else [*failures, death]


def in_child(function: Callable[[], Any]) -> Any:
    """Run a function that may start threads in a child process, and return its result."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                file.write(pickle.dumps(function()))
                file.flush()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise RuntimeError(f"{function.__name__} failed; see above.")
        file.seek(0)
        return pickle.load(file)


def campaign(
    target: Target,
    seed: int,
    batches: Iterator[range],
    *,
    until: float = float("inf"),
    workers: int = 1,
    progress: Callable[[Tally], None] = lambda tally: None,
    show: Callable[[int, Failure], None] = lambda number, failure: None,
) -> Tally:
    """Run cases until the batches or the time are used up.

    Parameters
    ----------
    target : Target
        The target, after ``warm_up``.
    seed : int
        Seed; it determines a case together with the number of the case.
    batches : iterator of range
        Numbers of the cases that a child runs.
    until : float
        Time of :func:`time.monotonic` after which no batch starts.
    workers : int
        Number of children at a time.
    progress, show : callable
        Called regularly with the tally, and with each failure of a new kind or location.

    Returns
    -------
    Tally
    """
    if threading.active_count() > 1:
        raise RuntimeError(f"There are threads, which do not survive a fork: {threading.enumerate()}.")
    tally, began = Tally(target.name, seed), time.monotonic()
    waiting: list[range] = []  # the remaining cases of children that died
    children: list[Child] = []

    def failed(number: int, failure: Failure) -> None:
        if tally.add(number, failure):
            show(number, failure)

    def fill() -> None:
        while len(children) < workers and time.monotonic() < until:
            numbers = waiting.pop() if waiting else next(batches, None)
            if numbers is None:
                return
            children.append(Child(target, make, numbers))

    def make(number: int) -> Any:
        return target.make(seed, number)

    try:
        fill()
        while children:
            ready = select.select(children, [], [], POLL)[0]
            for child in list(children):
                reported = child.read() if child in ready else []
                for number, failure in reported or []:
                    failed(number, failure)
                if reported is None:
                    children.remove(child)
                    rest = account(target, make, child, tally, failed)
                    waiting += [rest] if rest else []
                else:
                    child.watch()
            tally.seconds, tally.begun = time.monotonic() - began, sum(child.done for child in children)
            progress(tally)
            fill()
    except KeyboardInterrupt:
        tally.interrupted = True
    finally:
        for child in children:
            child.kill()
    return tally


def account(
    target: Target, make: Callable[[int], Any], child: Child, tally: Tally, failed: Callable[[int, Failure], None]
) -> range:
    """Count the cases of a child that has ended, and confirm how it died. → the numbers of its remaining cases"""
    death = child.reap()
    number, _, taken = child.board.state()
    tally.cases, tally.taken = tally.cases + child.done, tally.taken + taken
    if death is None:
        return range(0)
    if number == child.numbers.stop:  # it died after its last case
        number -= 1
    else:
        tally.cases += 1
    confirmed = [failure for failure in alone(target, make, range(number, number + 1)) if failure.kind in FATAL]
    first = child.numbers.start
    if confirmed:
        failed(number, confirmed[-1])
    elif child.hung:
        tally.slow.append(number)
    else:
        replayed = alone(target, make, range(first, number + 1))
        repeatable = any(failure.kind in FATAL for failure in replayed)
        when = f"after the cases from {first} on, but not alone" if repeatable else "once, and not again"
        failed(number, death._replace(what=f"{death.what[:-1]}, {when}."))
    return range(number + 1, child.numbers.stop)
