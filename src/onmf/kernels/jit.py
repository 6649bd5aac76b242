"""The one way kernels are compiled: serial, without the GIL, cached where a cache can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile ``function`` on its first call for each combination of types.

    No ``parallel=True``: numba's thread layers do not survive a fork (OpenMP) or two calling threads (workqueue).
    Callers run kernels over blocks of rows in a thread pool instead. No ``fastmath``: results must not depend on the
    vector width.
    """
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # numba found no folder it can write a cache to
        return numba.njit(function, nogil=True)
