"""Compiles kernels with numba: serial, without the GIL, and cached if a cache folder is writable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

KERNELS: list[Any] = []
"""All compiled functions."""


def compiled_before() -> bool:
    """Whether an earlier process left compiled kernels in the cache, so that this one need not compile them."""
    folders = {kernel.stats.cache_path for kernel in KERNELS} - {None}
    return any(next(Path(folder).glob("*.nbi"), None) is not None for folder in folders)


def jit(function: F) -> F:
    """Compile ``function`` on its first call for each combination of types.

    No ``parallel=True``: numba's thread layers do not survive a fork (OpenMP) or two calling threads (workqueue).
    Callers run kernels over blocks of rows in a thread pool instead. Sums are added as written. Hot loops use unsigned
    indices (``np.uintp``), because numba would test signed ones for counting from the end.
    """
    return _compiled(function, fastmath=False)


def jit_any_order(function: F) -> F:
    """Compile a kernel whose sums may be added in any order, which lets the compiler vectorise them.

    Only for kernels that execute the same instructions for every row. The order is then the same for all rows and does
    not depend on the block or thread.
    """
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def jit_without_nan(function: F) -> F:
    """Compile a kernel that gets no NaN and divides by no zero, which lets the compiler vectorise."""
    return _compiled(function, fastmath={"nnan", "nsz", "contract"}, error_model="numpy")


def jit_dividing(function: F) -> F:
    """Compile a kernel in which a division by zero gives infinity, which lets the compiler vectorise divisions."""
    return _compiled(function, fastmath=False, error_model="numpy")


def jit_uncached(function: Callable[..., Any]) -> Any:
    """Compile a user's function, or a kernel that calls one: such code is not found again in a cache on disk."""
    return numba.njit(function, nogil=True, error_model="numpy")


def _compiled(function: F, **options: Any) -> F:
    try:
        compiled = numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # numba found no folder it can write a cache to
        compiled = numba.njit(function, nogil=True, **options)
    KERNELS.append(compiled)
    return compiled
