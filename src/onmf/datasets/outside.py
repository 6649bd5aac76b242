"""Reader of MATLAB 5 files. It runs in a separate process (see onmf.io.isolate) and imports nothing from onmf."""

from __future__ import annotations

from typing import Any

import numpy as np


def load_matlab5(path: str) -> dict[str, Any]:
    """Read the variables of a file; each is ``["numbers", …]``, ``["sparse", …]``, ``["text", …]`` or ``["other"]``."""
    from scipy.io import loadmat

    with open(path, "rb") as file:
        content = loadmat(file)
    return {name: _plain(value) for name, value in content.items() if not name.startswith("__")}


def _plain(value: Any) -> list[Any]:
    if hasattr(value, "indptr"):
        return ["sparse", list(value.shape), value.data, value.indices, value.indptr]
    if not isinstance(value, np.ndarray):
        return ["other"]
    if value.dtype.kind in "buifc":
        return ["numbers", value]
    if value.dtype.kind == "U":
        return ["text", list(value.shape), [str(word) for word in value.ravel()]]
    if value.dtype.kind == "O" and all(isinstance(cell, np.ndarray) and cell.dtype.kind == "U" for cell in value.flat):
        return ["text", list(value.shape), [str(np.squeeze(cell)) for cell in value.ravel()]]
    return ["other"]
