"""Where a case plays: its names, the statements that it has run, and what was wrong with them."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .board import note
from .oracle import wrong_error, wrong_warnings
from .report import Failure

HEADER = """
import math
from math import inf, nan
import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
import onmf
from onmf import ONMF
from onmf.engine import BlocksEngine
from onmf.engine.cpu import CpuEngine
from onmf.engine.reference import ReferenceEngine
"""

_imported: dict[str, Any] = {}


def imported() -> dict[str, Any]:
    """The names that cases of fits use, imported once."""
    if not _imported:
        exec(HEADER, _imported)
        _imported["dask"].config.set(scheduler="synchronous")
    return _imported


class Stage:
    """Runs the statements of a case, and judges what they raise and warn of.

    Attributes
    ----------
    names : dict
        The variables.
    done : list of str
        Statements that went well and that later ones build on.
    failures : list of Failure
        So far.
    caught : list
        Warnings of the last statement.
    error : Exception or None
        What the last statement that failed has raised.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self.done: list[str] = []
        self.failures: list[Failure] = []
        self.caught: list[warnings.WarningMessage] = []
        self.error: Exception | None = None

    def prepare(self, lines: Iterable[str]) -> None:
        """Run statements that are the case's own, not the package's; they must not fail."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for line in lines:
                exec(line, self.names)
                self.done.append(line)

    def do(self, line: str) -> bool:
        """Run a statement. → whether it went well"""
        fine, _ = self._run(line, lambda: exec(line, self.names))
        self.done += [line] if fine else []
        return fine

    def ask(self, line: str) -> Any:
        """The value of an expression, computed if it is Dask's, or None if it raised."""

        def call() -> Any:
            value = eval(line, self.names)
            return value.compute() if hasattr(value, "compute") else value

        return self._run(line, call)[1]

    def _run(self, line: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        lines = "\n".join([*self.done, line])
        note(lines)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return True, call()
            except Exception as error:
                self.error, wrong = error, wrong_error(error)
                self.add([] if wrong is None else [wrong], line)
                return False, None
            finally:
                self.caught = caught
                self.add(wrong_warnings(caught), line)

    def add(self, failures: Iterable[Failure], *lines: str) -> None:
        """Keep failures that these lines, after those before, have shown."""
        text = "\n".join([*self.done, *lines])
        self.failures += [failure._replace(lines=text) for failure in failures]

    def broken(self, what: str, where: str, *lines: str) -> None:
        """Keep that a promise was broken."""
        self.add([Failure("contract", what, where)], *lines)

    def after(self, line: str, check: Callable[[Any], Iterable[Failure]]) -> Any:
        """Ask, and check the answer if there is one."""
        value = self.ask(line)
        if value is not None:
            self.add(check(value), f"print({line})")
        return value


@contextlib.contextmanager
def quiet() -> Iterator[list[Any]]:
    """Standard output goes nowhere; → errors that Python could only ignore, where nobody was there to catch them."""
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield ignored
    finally:
        sys.unraisablehook = hook


def lost(ignored: list[Any]) -> Iterator[Failure]:
    """Failures for errors that were ignored; whether an interrupt is lost is for the act to say that sends it."""
    for event in ignored:
        if event.exc_type is KeyboardInterrupt:
            continue
        what = f"{type(event.exc_value).__name__} was ignored in {event.object!r}: {event.exc_value}"
        yield Failure("error", what, f"ignored {type(event.exc_value).__name__}")
