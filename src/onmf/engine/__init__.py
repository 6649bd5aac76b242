"""Where the data lives and the pass over it runs."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

from .base import Assignment, Data, Engine, Held, StepSums
from .blocks import BlockEngine, RowBlocks

__all__ = ["Assignment", "BlockEngine", "Data", "Engine", "Held", "RowBlocks", "StepSums", "get_engine"]

NAMES = ("auto", "cpu", "reference")


def get_engine(engine: str | Engine, X: Any = None, n_threads: int | None = None) -> Engine:
    """The engine of that name, if it can hold ``X``.

    Parameters
    ----------
    engine : {"auto", "cpu", "reference"} or Engine
        ``"auto"`` is the CPU engine.
    X : array or CSR, optional
        The data it will have to hold.
    n_threads : int or None
        Threads of the CPU engine; None takes every core this process may use.

    Returns
    -------
    Engine
    """
    if n_threads is not None and (not isinstance(n_threads, Integral) or n_threads < 1):
        raise ValueError(f"n_threads={n_threads!r} is not allowed: n_threads must be None or an integer, at least 1.")
    if isinstance(engine, str):
        engine = _named(engine, n_threads)
    elif n_threads is not None:
        raise ValueError("n_threads belongs to engine='cpu': an Engine object brings its own threads.")
    reason = None if X is None else engine.supports(X)
    if reason is not None:
        raise ValueError(f"engine={engine.name!r} cannot take this data: {reason}")
    return engine


def _named(name: str, n_threads: int | None) -> Engine:
    # Imported here because numba is slow to import and not every use of the package needs it.
    match name:
        case "auto" | "cpu":
            from .cpu import CpuEngine

            return CpuEngine(n_threads or available_cores())
        case "reference":
            from .reference import ReferenceEngine

            if n_threads is not None:
                raise ValueError("engine='reference' runs on one thread: leave n_threads=None.")

            return ReferenceEngine()
    raise ValueError(f"engine={name!r} is unknown: use one of {', '.join(map(repr, NAMES))}, or an Engine object.")


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
