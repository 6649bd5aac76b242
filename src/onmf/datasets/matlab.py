"""MATLAB 5 files: SciPy reads them, in a process of its own, since a damaged file can crash it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_growth, most
from onmf.structure import check_structure

from .outside import load_matlab5

COPIES = 3
"""How many times what it holds a file may take while it is read."""


def read_matlab5(path: Path) -> dict[str, Any]:
    """The variables of a MATLAB 5 file: arrays of numbers, sparse matrices, arrays of strings; None for all else."""
    length = path.stat().st_size
    with Isolated(str(path), memory=COPIES * most(length), seconds=patience(length)) as reader:
        try:
            content = reader(load_matlab5, str(path.resolve()))
        except (ReaderEnded, ImportError, NotImplementedError):  # SciPy's word for version 7.3
            raise
        except Exception as error:
            raise ValueError(f"{path} is no MATLAB file that can be read: {error}") from error
    arrays = [part for value in content.values() for part in value if isinstance(part, np.ndarray)]
    check_growth(str(path), sum(array.nbytes for array in arrays), length)
    return {name: _value(name, path, *parts) for name, parts in content.items()}


def patience(length: int) -> float:
    """Seconds within which a file of that length is read, even from a slow disk on a busy machine."""
    return 120.0 + length / 1e6


def _value(name: str, path: Path, kind: str, *parts: Any) -> Any:
    if kind == "numbers":
        return parts[0]
    if kind == "text":
        shape, words = parts
        return np.array(words, dtype=np.str_).reshape(shape)
    if kind == "sparse":
        shape, data, indices, indptr = parts
        try:
            X = csc_array((data, indices, indptr), shape=tuple(shape))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: the sparse matrix {name} is damaged: {error}") from error
        check_structure(X, f"{path}: {name}")
        return X
    return None
