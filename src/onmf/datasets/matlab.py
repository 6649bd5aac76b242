"""Reads MATLAB 5 files with SciPy, in a separate process, because a damaged file can crash it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from onmf.data.structure import check_structure
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_growth

from .outside import load_matlab5


def read_matlab5(path: Path) -> dict[str, Any]:
    """Read the variables of a MATLAB 5 file: numeric arrays, sparse matrices, arrays of strings; None for others."""
    length = path.stat().st_size
    with Isolated.for_file(path) as reader:
        try:
            content = reader(load_matlab5, str(path.resolve()))
        except (ReaderEnded, ImportError, NotImplementedError):  # SciPy raises the last for version 7.3
            raise
        except Exception as error:
            raise ValueError(f"{path} cannot be read as a MATLAB file: {error}") from error
    arrays = [part for value in content.values() for part in value if isinstance(part, np.ndarray)]
    check_growth(str(path), sum(array.nbytes for array in arrays), length)
    return {name: _value(name, path, *parts) for name, parts in content.items()}


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
