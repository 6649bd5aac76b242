"""Runs the statements of a case, and collects their failures."""

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
import xarray as xr
import onmf.backend.cpu
from examples.weighted_divergence import WeightedKullbackLeibler
from fuzz.divergences import Background, ByLength, Doubled, Favoured, Root, SquaredDistance, own_phi
from onmf import ONMF
from onmf.backend import CpuBackend, ReferenceBackend
from onmf.data import Blocks
from onmf.divergence import Bernoulli, Bregman, NegativeBinomial
onmf.backend.cpu.FEW_PRODUCTS = 0  # small sparse data, too, are labelled by templates in 16 bits
"""

_imported: dict[str, Any] = {}


def imported() -> dict[str, Any]:
    """Return the names that core cases use, imported once."""
    if not _imported:
        exec(HEADER, _imported)
        _imported["dask"].config.set(scheduler="synchronous")
    return _imported


class Stage:
    """Runs the statements of a case, and checks their errors and warnings.

    Attributes
    ----------
    names : dict
        The variables.
    done : list of str
        Statements that succeeded; later statements depend on them.
    failures : list of Failure
        Failures so far.
    caught : list
        Warnings of the last statement.
    error : Exception or None
        Error of the last statement that failed.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self.done: list[str] = []
        self.failures: list[Failure] = []
        self.caught: list[warnings.WarningMessage] = []
        self.error: Exception | None = None

    def prepare(self, lines: Iterable[str]) -> None:
        """Run statements that do not use onmf; they must not fail."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for line in lines:
                exec(line, self.names)
                self.done.append(line)

    def do(self, line: str) -> bool:
        """Run a statement. → whether it succeeded"""
        succeeded, _ = self._run(line, lambda: exec(line, self.names))
        self.done += [line] if succeeded else []
        return succeeded

    def ask(self, line: str) -> Any:
        """Return the value of an expression, computed if it is a Dask object; None if it raised an error."""

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
        """Add failures that these lines have caused, after the earlier ones."""
        text = "\n".join([*self.done, *lines])
        self.failures += [failure._replace(lines=text) for failure in failures]

    def broken(self, what: str, where: str, *lines: str) -> None:
        """Add a failure of the kind ``contract``."""
        self.add([Failure("contract", what, where)], *lines)

    def after(self, line: str, check: Callable[[Any], Iterable[Failure]]) -> Any:
        """Evaluate an expression, and check its value if there is one."""
        value = self.ask(line)
        if value is not None:
            self.add(check(value), f"print({line})")
        return value


@contextlib.contextmanager
def quiet() -> Iterator[list[Any]]:
    """Suppress standard output. → the errors that Python ignored because no code could catch them"""
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield ignored
    finally:
        sys.unraisablehook = hook


def ignored_errors(ignored: list[Any]) -> Iterator[Failure]:
    """Yield a failure for each ignored error, except interrupts, which the act that sends them checks."""
    for event in ignored:
        if event.exc_type is KeyboardInterrupt:
            continue
        what = f"{type(event.exc_value).__name__} was ignored in {event.object!r}: {event.exc_value}"
        yield Failure("error", what, f"ignored {type(event.exc_value).__name__}")
