"""The one way kernels are compiled: serial, without the GIL, cached where a cache can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile ``function`` on its first call for each combination of types.

    No ``parallel=True``: numba's thread layers do not survive a fork (OpenMP) or two calling threads (workqueue).
    Callers run kernels over blocks of rows in a thread pool instead. Sums are added as written.
    """
    return _compiled(function, fastmath=False)


def jit_any_order(function: F) -> F:
    """Compile a kernel whose sums may be added in any order, which lets them run in vectors.

    Only for kernels that send every row through the same instructions: the order is then the same for every row,
    whatever block or thread it is in.
    """
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def _compiled(function: F, **options: Any) -> F:
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # numba found no folder it can write a cache to
        return numba.njit(function, nogil=True, **options)
