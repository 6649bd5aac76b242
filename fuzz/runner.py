"""Runs cases in child processes with limits of time and memory, and knows which one ended its process.

The process that calls :func:`campaign` has imported everything and compiled the kernels, and has no threads. It forks a
child for each batch of cases. Before a case begins, the child writes its number and the time onto a board, memory that
both share: when the child dies or hangs, the guilty case is known. It is run again alone to confirm it, and the next
child goes on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import resource
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
"""Seconds between looks at the clocks of the children."""

PATIENCE = 3
"""How much longer than its limit a case may take when it runs alone: a busy machine is no hang."""

DEADLY = ("crash", "hang")
"""Kinds of failures that end the process."""


class Target(Protocol):
    """Something to fuzz."""

    name: str
    seconds: float  # limit of a case
    memory: int  # bytes a case may need beyond what its process has

    def warm_up(self) -> None:
        """Import and compile what all cases need, in the process that forks; leave no thread behind."""

    def make(self, seed: int, number: int) -> Any:
        """The case of this number."""

    def run(self, case: Any) -> list[Failure]:
        """Run a case in this process."""

    def smaller(self, case: Any) -> Iterator[Any]:
        """Cases that are a little simpler."""

    def reproducer(self, case: Any, failure: Failure, folder: Path) -> str:
        """A few lines of Python that show the failure; files that they need go into ``folder``."""


class Child:
    """A process that runs cases one after the other.

    Parameters
    ----------
    target : Target
        What to fuzz.
    make : callable
        The case of a number.
    numbers : range
        Of the cases.
    seconds : float, optional
        Limit of a case, instead of the target's.
    """

    def __init__(
        self, target: Target, make: Callable[[int], Any], numbers: range, seconds: float | None = None
    ) -> None:
        self.numbers, self.seconds = numbers, target.seconds if seconds is None else seconds
        self.board, self.hung, self.unread = Board(), False, b""
        self.board.begin(numbers.start)
        self.trace = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the child is buried)
        self.pipe, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.pipe)
                self._live(target, make, write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)

    @property
    def done(self) -> int:
        """Cases that are behind it."""
        return self.board.state().number - self.numbers.start

    def fileno(self) -> int:
        """The end of the pipe that the parent reads, for ``select``."""
        return self.pipe

    def _live(self, target: Target, make: Callable[[int], Any], pipe: int) -> None:
        """What the child does."""
        post(self.board)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        faulthandler.enable(self.trace, all_threads=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent stops its children
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in self.numbers:
            self.board.begin(number)
            try:
                case = make(number)
                limit_memory(target.memory)
                failures = target.run(case)
            except BaseException as error:  # the fuzzer's own fault, or an interrupt that came late
                text = "".join(traceback.format_exception(error)[-3:])
                failures = [Failure("error", f"the fuzzer itself: {text}", "the fuzzer itself")]
            for failure in failures:
                line = json.dumps([number, *failure]).encode() + b"\n"
                while line:
                    line = line[os.write(pipe, line) :]
        self.board.begin(self.numbers.stop)

    def read(self) -> list[tuple[int, Failure]] | None:
        """What the child has written, by number of the case; None if it has ended."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.unread = (self.unread + data).split(b"\n")
        found = [(number, Failure(*failure)) for number, *failure in map(json.loads, lines)]
        return found if data else None

    def watch(self) -> None:
        """End the child if its case takes too long; faulthandler writes where it was."""
        if self.hung or time.monotonic() - self.board.state().began < self.seconds:
            return
        self.hung = True
        os.kill(self.pid, signal.SIGABRT)
        for _ in range(20):
            time.sleep(POLL)
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
        os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> Failure | None:
        """How the child died, or None if it has run all its cases."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        self.trace.seek(0)
        frames = [line.strip() for line in self.trace if line.strip().startswith("File ")]
        self.trace.close()
        lines = self.board.note()
        code = os.waitstatus_to_exitcode(status)
        where = " < ".join(_short(frame) for frame in frames[:4]) or lines.rpartition("\n")[2][:80]
        if self.hung:
            return Failure("hang", f"It had not ended after {self.seconds:g} s.", where, lines)
        if code < 0:
            return Failure("crash", f"The process died of {signal.Signals(-code).name}.", where, lines)
        if code or self.done < len(self.numbers):
            return Failure("crash", f"The process ended with exit code {code} amid the case.", where, lines)
        return None

    def kill(self) -> None:
        """End the child, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        self.bury()


def limit_memory(more: int) -> None:
    """Let this process reserve so many bytes more than it has, and no more."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + more, resource.RLIM_INFINITY))


def _short(frame: str) -> str:
    """A line of faulthandler's without the folders of the file."""
    return frame.split("/")[-1].removeprefix('File "').replace('", line ', ":")


def alone(target: Target, make: Callable[[int], Any], numbers: range = range(1)) -> list[Failure]:
    """What fails when only these cases run, in a child of their own."""
    child = Child(target, make, numbers, PATIENCE * target.seconds)
    failures: list[Failure] = []
    while True:
        if select.select([child], [], [], POLL)[0]:
            found = child.read()
            if found is None:
                break
            failures += [failure for _, failure in found]
        child.watch()
    death = child.bury()
    return failures if death is None else [*failures, death]


def in_child(function: Callable[[], Any]) -> Any:
    """What a function returns that may start threads, run in a process that ends with it."""
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
    """Run cases until they, or the time, run out.

    Parameters
    ----------
    target : Target
        What to fuzz; warmed up.
    seed : int
        Together with its number it makes a case.
    batches : iterator of range
        Numbers of the cases that a child runs.
    until : float
        Time, as :func:`time.monotonic` tells it, after which no batch begins.
    workers : int
        Children at a time.
    progress, show : callable
        Called now and then, and with each failure that is unlike the ones before.

    Returns
    -------
    Tally
    """
    if threading.active_count() > 1:
        raise RuntimeError(f"There are threads, which a fork would lose: {threading.enumerate()}.")
    tally, began = Tally(target.name, seed), time.monotonic()
    waiting: list[range] = []  # what children that died have left
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
                found = child.read() if child in ready else []
                for number, failure in found or []:
                    failed(number, failure)
                if found is None:
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
    """Count the cases of a child that has ended, and confirm how it died. → the numbers of those that are left"""
    death = child.bury()
    number, _, taken = child.board.state()
    tally.cases, tally.taken = tally.cases + child.done, tally.taken + taken
    if death is None:
        return range(0)
    if number == child.numbers.stop:  # it died when all was done
        number -= 1
    else:
        tally.cases += 1
    again = [failure for failure in alone(target, make, range(number, number + 1)) if failure.kind in DEADLY]
    first = child.numbers.start
    if again:
        failed(number, again[-1])
    elif child.hung:
        tally.slow.append(number)
    else:
        replayed = alone(target, make, range(first, number + 1))
        follows = any(failure.kind in DEADLY for failure in replayed)
        when = f"after the cases from {first} on, not alone" if follows else "once, and not again"
        failed(number, death._replace(what=f"{death.what[:-1]}, {when}."))
    return range(number + 1, child.numbers.stop)
