"""Compute on one block of rows: :class:`Backend` says what that takes, and each module beside it does it."""

from importlib import import_module
from typing import Any

from onmf.arrays import on_gpu, to_host

from .base import (
    COUNTED,
    EXHAUSTED,
    FIXED,
    TIE,
    Backend,
    Block,
    Drift,
    Hull,
    Matrix,
    Run,
    RunState,
    Steps,
    StepsAhead,
    StepSums,
    Templates,
    table_of,
    update_centroids,
)
from .curved import CentroidEntries, CurvedBlock, update_curved
from .reference import ReferenceBackend
from .threads import Threads, available_cores

__all__ = [
    "COUNTED",
    "EXHAUSTED",
    "FIXED",
    "TIE",
    "Backend",
    "Block",
    "CentroidEntries",
    "CpuBackend",
    "CurvedBlock",
    "Drift",
    "GpuBackend",
    "Hull",
    "Matrix",
    "ReferenceBackend",
    "Run",
    "RunState",
    "StepSums",
    "Steps",
    "StepsAhead",
    "Templates",
    "Threads",
    "available_cores",
    "on_gpu",
    "table_of",
    "to_host",
    "update_centroids",
    "update_curved",
]


LATE = {"CpuBackend": ".cpu", "GpuBackend": ".gpu"}  # numba and CuPy take long to import, so these two wait


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATE[name], __name__), name)
