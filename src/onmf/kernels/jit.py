"""Compiles kernels with numba: serial, without the GIL, and cached if a cache folder is writable."""

import math
from collections.abc import Callable
from inspect import getclosurevars
from pathlib import Path
from types import BuiltinFunctionType, CodeType
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

SIMPLE = (bool, int, float, BuiltinFunctionType)  # types of outer variables whose value says all
KERNELS: list[Any] = []  # all compiled kernels
FUNCTIONS: dict[Any, Any] = {}  # compiled functions of users, by what they are made of


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

    Only for bounds that allow for rounding, and for sums that are exact: the order depends on the processor. Sums that
    decide use :mod:`.lanes`.
    """
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def jit_without_nan(function: F) -> F:
    """Compile a kernel that gets no NaN and divides by no zero, which lets the compiler vectorise."""
    return _compiled(function, fastmath={"nnan", "nsz", "contract"}, error_model="numpy")


def jit_dividing(function: F) -> F:
    """Compile a kernel in which a division by zero gives infinity, which lets the compiler vectorise divisions."""
    return _compiled(function, fastmath=False, error_model="numpy")


def jit_inlined(function: F) -> F:
    """Compile a function that becomes part of the kernels that call it, which lets the compiler vectorise their loops.

    A division by zero gives infinity.
    """
    return _compiled(function, fastmath=False, error_model="numpy", forceinline=True)


def address_of(function: Callable[[float], float]) -> int:
    """Compile a user's function of a number, for :func:`call`. A division by zero gives infinity.

    Numba never frees compiled code, so functions of the same code and the same outer variables are compiled once.
    """
    try:
        outer = getclosurevars(function)
        variables = [*sorted(outer.nonlocals.items()), *sorted(outer.globals.items())]
        # Equal numbers of different types, such as 1 and 1.0, may compile to different code, and so may 0.0 and -0.0.
        values = [(name, type(value), str(value) if isinstance(value, float) else value) for name, value in variables]
        key: Any = (function.__code__, function.__defaults__, *values)
        simple = all(isinstance(value, SIMPLE) or value is math or value is np for _, value in variables)
        inner = any(isinstance(value, CodeType) for value in function.__code__.co_consts)
    except (TypeError, AttributeError):  # not a plain function
        simple = inner = False
    if not simple or inner:  # what else its code depends on cannot be seen here
        key = id(function)
    if key not in FUNCTIONS:
        compiler: Any = numba.cfunc
        code = function if hasattr(function, "__code__") else lambda x: function(x)  # those of math have none
        FUNCTIONS[key] = compiler("float64(float64)", nopython=True, error_model="numpy")(code)
    return int(FUNCTIONS[key].address)


def _call(typing_context: Any, address: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return numba.float64(numba.int64, numba.float64), generate


call: Any = intrinsic(_call)
"""``call(address, x)`` inside kernels: the function at an address. Kernels are thus compiled once for all functions."""


def _compiled(function: F, **options: Any) -> F:
    try:
        compiled = numba.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # numba found no folder it can write a cache to
        compiled = numba.njit(function, nogil=True, **options)
    KERNELS.append(compiled)
    return compiled
