"""Compute on one block of rows: :class:`Backend` says what that takes, and each module beside it does it."""

from typing import Any

from onmf.arrays import on_gpu, to_host

from .base import (
    COUNTED,
    EXHAUSTED,
    FIXED,
    TIE,
    Assignment,
    Backend,
    Block,
    Drift,
    Hull,
    Matrix,
    Run,
    RunState,
    Steps,
    StepsAhead,
    StepsInTurn,
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
    "Assignment",
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
    "StepsInTurn",
    "Templates",
    "Threads",
    "available_cores",
    "on_gpu",
    "table_of",
    "to_host",
    "update_centroids",
    "update_curved",
]


def __getattr__(name: str) -> Any:
    # numba takes long to import, so these two backends wait until they are needed.
    if name == "CpuBackend":
        from .cpu import CpuBackend

        return CpuBackend
    if name == "GpuBackend":
        from .gpu import GpuBackend

        return GpuBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
