"""Page-locks arrays of the host where they are, so that the GPU reads them at the full speed of the bus."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from onmf.divergence import Array

_guard = Lock()
_locked: dict[tuple[int, int], list[Any]] = {}
"""Number of users and the array itself, by address and size. The array must live until its pages are unlocked."""


class PageLocks:
    """Arrays that are page-locked as long as this object lives.

    Parameters
    ----------
    cupy : module
        CuPy.
    arrays : sequence of array
        C-contiguous arrays.

    Attributes
    ----------
    complete : bool
        Whether all arrays are page-locked. The system refuses some, such as files mapped for reading.
    """

    def __init__(self, cupy: Any, arrays: Sequence[Array]) -> None:
        runtime, keys = cupy.cuda.runtime, list[tuple[int, int]]()
        self._release = weakref.finalize(self, _unlock, runtime, keys)
        self._release.atexit = False  # the driver may be gone by then
        self.complete = all(_lock(runtime, array, keys) for array in arrays)
        if not self.complete:
            self._release()


def _lock(runtime: Any, array: Array, keys: list[tuple[int, int]]) -> bool:
    """Page-lock an array and append its key, unless the system refuses."""
    key = array.ctypes.data, array.nbytes
    if array.nbytes == 0:
        return True
    with _guard:
        if key in _locked:
            _locked[key][0] += 1
        else:
            try:
                runtime.hostRegister(*key, 0)
            except runtime.CUDARuntimeError:
                return False
            _locked[key] = [1, array]
        keys.append(key)
    return True


def _unlock(runtime: Any, keys: list[tuple[int, int]]) -> None:
    with _guard:
        for key in keys:
            _locked[key][0] -= 1
            if _locked[key][0] == 0:
                runtime.hostUnregister(key[0])
                del _locked[key]
        keys.clear()


def pinned(cupy: Any, size: int, dtype: Any) -> Array:
    """A new array in page-locked memory."""
    dtype = np.dtype(dtype)
    memory = cupy.cuda.alloc_pinned_memory(max(1, size) * dtype.itemsize)
    return np.frombuffer(memory, dtype, size)
