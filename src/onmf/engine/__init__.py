"""Where the data lives and the pass over it runs."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

from .base import COUNTED, FIXED, Assignment, Data, Engine, Held, StepSums
from .dask import DaskEngine
from .device import on_gpu, to_host
from .parts import BlocksEngine, PartError, PartsEngine, Rows

__all__ = [
    "COUNTED",
    "FIXED",
    "Assignment",
    "BlocksEngine",
    "DaskEngine",
    "Data",
    "Engine",
    "Held",
    "PartError",
    "PartsEngine",
    "Rows",
    "StepSums",
    "get_engine",
    "on_gpu",
    "to_host",
]

MOST_THREADS = 1024
"""More threads than any machine has cores for would only use up what the system grants."""

NAMES = ("auto", "cpu", "gpu", "reference", "blocks", "dask")


def get_engine(engine: str | Engine, X: Any = None, n_threads: int | None = None) -> Engine:
    """The engine of that name, if it can hold ``X``.

    Parameters
    ----------
    engine : {"auto", "cpu", "gpu", "reference", "blocks", "dask"} or Engine
        ``"auto"`` is the GPU engine for CuPy arrays, the Dask engine for Dask collections, ``"blocks"`` for batches
        from a callable, and else the CPU engine. Those two work on their parts with the CPU engine;
        ``DaskEngine(inner)`` takes another.
    X : array, CSR or Rows, optional
        The data it will have to hold.
    n_threads : int or None
        Threads of the CPU; None takes every core this process may use, and one for each partition of Dask. The GPU
        engine needs them for starts.

    Returns
    -------
    Engine
    """
    if n_threads is not None and not (isinstance(n_threads, Integral) and 1 <= n_threads <= MOST_THREADS):
        raise ValueError(
            f"n_threads={n_threads!r} is not allowed: n_threads must be None or an integer from 1 to {MOST_THREADS}."
        )
    if isinstance(engine, str):
        if engine == "auto" and isinstance(X, Rows):
            engine = "blocks" if callable(X.blocks) else "dask"
        elif engine == "auto" and on_gpu(X):
            engine = "gpu"
        engine = _named(engine, n_threads)
    elif not isinstance(engine, Engine):
        raise ValueError(
            f"engine={engine!r} is unknown: use one of {', '.join(map(repr, NAMES))}, or an Engine object."
        )
    elif n_threads is not None:
        raise ValueError("n_threads belongs to engine='cpu': an Engine object brings its own threads.")
    reason = None if X is None else engine.supports(X)
    if reason is None and on_gpu(X) and engine.name != "gpu":
        reason = "it is in the memory of a GPU. Use engine='gpu' or 'auto', or pass X.get()."
    if reason is not None:
        raise ValueError(f"engine={engine.name!r} cannot take this data: {reason}")
    return engine


def _named(name: str, n_threads: int | None) -> Engine:
    # Imported here because numba is slow to import and not every use of the package needs it.
    match name:
        case "auto" | "cpu":
            from .cpu import CpuEngine

            return CpuEngine(n_threads or available_cores())
        case "gpu":
            from .gpu import GpuEngine

            return GpuEngine(n_threads or available_cores())
        case "blocks":
            return BlocksEngine(_named("cpu", n_threads))
        case "dask":
            return DaskEngine(_named("cpu", n_threads or 1))
        case "reference":
            from .reference import ReferenceEngine

            if n_threads is not None:
                raise ValueError("engine='reference' runs on one thread: leave n_threads=None.")

            return ReferenceEngine()
    raise unknown(name)


def unknown(engine: object) -> ValueError:
    """The refusal of what is no engine."""
    return ValueError(f"engine={engine!r} is unknown: use one of {', '.join(map(repr, NAMES))}, or an Engine object.")


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
