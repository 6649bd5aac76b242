"""Functions of arrays with the same bits on every processor: logarithm, exponential, power, log-gamma, matrix product.

Whatever decides labels, centroids, scales or objectives uses these instead of NumPy's and SciPy's, which differ in the
last digit from one instruction set to another. The mathematics is in :mod:`onmf.kernels.functions`. Arrays of CuPy are
left to CuPy: the bits of a GPU are its own. Nothing here warns: the logarithm of 0 is −∞, that of less is NaN.
"""

from collections.abc import Callable
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from onmf.arrays import Array, FloatArray, on_gpu, read_only_view

EXACT: dict[float, Callable[[FloatArray], FloatArray]] = {
    1.0: np.positive,
    2.0: np.square,
    0.5: np.sqrt,
    -1.0: np.reciprocal,
}
"""Powers that every processor rounds alike."""
LARGEST_TABLE = 1 << 16  # functions of counts below this one are looked up in a table of them


def log(x: Any) -> FloatArray:
    """The logarithm."""
    return np.log(x) if on_gpu(x) else _map("log", x)


def log1p(x: Any) -> FloatArray:
    """The logarithm of 1 + x, to the last digits of a small x, too."""
    return np.log1p(x) if on_gpu(x) else _map("log1p", x)


def exp(x: Any) -> FloatArray:
    """The exponential."""
    return np.exp(x) if on_gpu(x) else _map("exp", x)


def expm1(x: Any) -> FloatArray:
    """The exponential minus 1, to the last digits of a small x, too."""
    return np.expm1(x) if on_gpu(x) else _map("expm1", x)


def power(x: Any, exponent: float) -> FloatArray:
    """The power of numbers ≥ 0."""
    if on_gpu(x):
        return np.power(x, exponent)
    if exponent in EXACT:
        with np.errstate(divide="ignore"):
            return EXACT[exponent](np.asarray(x, dtype=np.float64))
    return _map("power", x, float(exponent))


def log_gamma(x: Any) -> FloatArray:
    """The logarithm of the gamma function of numbers > 0."""
    return import_module("cupyx.scipy.special").gammaln(x) if on_gpu(x) else _map("log_gamma", x)


def xlogy(x: Any, y: Any) -> FloatArray:
    """The product of x and log y, of one shape; 0 where x is."""
    return x * np.log(np.where(x == 0, 1.0, y)) if on_gpu(x) else _map("xlogy", x, _flat(y))


def from_table(function: Callable[[FloatArray], FloatArray], x: Array) -> FloatArray:
    """A function of numbers ≥ 0, from a table if they are small and whole, as counts are."""
    if len(x) and not on_gpu(x) and x.max() < LARGEST_TABLE:
        places = x if x.dtype.kind in "iu" else x.astype(np.int32)
        if places is x or (places == x).all():
            return function(np.arange(int(places.max()) + 1, dtype=np.float64))[places]
    return function(x.astype(np.float64))


def matrix_product(A: FloatArray, B: FloatArray) -> FloatArray:
    """The product of A, which may have more than two axes, and B; the terms of an entry are added in their order."""
    from onmf.kernels.steps import add_products_of_rows  # numba takes long to import

    rows, columns = prod(A.shape[:-1]), B.shape[1]
    out = np.zeros((rows, columns))
    add_products_of_rows(_flat(A).reshape(rows, len(B)), _flat(B).reshape(B.shape), out)
    return out.reshape(*A.shape[:-1], columns)


def _map(name: str, x: Any, *parameters: Any) -> Any:
    """A function of each entry. A number gives a number."""
    from onmf.kernels import functions  # numba takes long to import

    x = np.asarray(x, dtype=np.float64)
    out = np.empty(x.shape)
    getattr(functions, f"map_{name}")(_flat(x), out.reshape(-1), *parameters)
    return out if x.ndim else out[()]


def _flat(x: Any) -> FloatArray:
    """The entries along one axis, as kernels read them."""
    return read_only_view(np.ascontiguousarray(x, dtype=np.float64).reshape(-1))
