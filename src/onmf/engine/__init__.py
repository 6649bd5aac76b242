"""Old names: engines are now made of a backend (:mod:`onmf.backend`) and a place for the rows (:mod:`onmf.data`)."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

MOVED = {
    "Assignment": "onmf.backend",
    "BlocksEngine": "onmf.data:Blocks",
    "CpuEngine": "onmf.backend:CpuBackend",
    "DaskEngine": "onmf.data:Dask",
    "Engine": "onmf.backend:Backend",
    "GpuEngine": "onmf.backend:GpuBackend",
    "PartError": "onmf.data",
    "ReferenceEngine": "onmf.backend:ReferenceBackend",
    "Rows": "onmf.data:Source",
    "StepSums": "onmf.backend",
    "available_cores": "onmf.backend",
    "get_engine": "onmf.data",
    "on_gpu": "onmf.backend",
    "to_host": "onmf.backend",
}
"""Where each name is now, as ``module`` or ``module:name``."""


def moved(name: str, old: str = __name__) -> Any:
    """The object that an old name stands for, with a warning that says its new name."""
    if name not in MOVED:
        raise AttributeError(f"module {old!r} has no attribute {name!r}")
    module, _, new = MOVED[name].partition(":")
    new = new or name
    warnings.warn(
        f"{old}.{name} is deprecated and will be removed in onmf 1.0: use {module}.{new}.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(import_module(module), new)


def __getattr__(name: str) -> Any:
    return moved(name)
