"""Page-locks arrays of the host where they are, so that the GPU reads them at the full speed of the bus."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from onmf.divergence import Array

_guard = Lock()
_locked: dict[tuple[int, int], list[Any]] = {}
"""Number of users and the array itself, by address and size. The array must live until its pages are unlocked."""

_released: deque[tuple[Any, tuple[int, int]]] = deque()
"""Arrays that have one user less: the runtime, and address and size."""


class PageLocks:
    """C-contiguous arrays that are page-locked until :meth:`release`.

    ``complete`` says whether all are locked. The system refuses some, such as files mapped for reading.
    """

    def __init__(self, cupy: Any, arrays: Sequence[Array]) -> None:
        self._runtime, self._keys = cupy.cuda.runtime, list[tuple[int, int]]()
        self.complete = all(_lock(self._runtime, array, self._keys) for array in arrays)
        if not self.complete:
            self.release()

    def release(self) -> None:
        """Unlock the arrays, unless others need them locked. No copy from them may be under way."""
        _released.extend((self._runtime, key) for key in self._keys)
        self._keys.clear()
        _unlock_released()


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
    _unlock_released()
    return True


def _unlock_released() -> None:
    """Unlock arrays without users.

    The garbage collector may call this at any point, even in the thread that has the guard. It must not wait for the
    guard then: whoever has it comes here afterwards.
    """
    while _released and _guard.acquire(blocking=False):
        try:
            while _released:
                runtime, key = _released.popleft()
                users = _locked[key]
                users[0] -= 1
                if users[0] == 0:
                    del _locked[key]
                    runtime.hostUnregister(key[0])
        finally:
            _guard.release()


def pinned(cupy: Any, size: int, dtype: Any) -> Array:
    """A new array in page-locked memory."""
    dtype = np.dtype(dtype)
    memory = cupy.cuda.alloc_pinned_memory(max(1, size) * dtype.itemsize)
    return np.frombuffer(memory, dtype, size)
