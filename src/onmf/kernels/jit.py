"""Compiles kernels with numba: serial, without the GIL, and cached if a cache folder is writable."""

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
    """Compile a kernel whose sums may be added in any order, which lets the compiler vectorise them.

    Only for kernels that execute the same instructions for every row. The order is then the same for all rows and does
    not depend on the block or thread.
    """
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def _compiled(function: F, **options: Any) -> F:
    try:
        return numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # numba found no folder it can write a cache to
        return numba.njit(function, nogil=True, **options)
