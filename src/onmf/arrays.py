"""Arrays: their types, which memory they are in, and views that cannot be written to.

CuPy is imported only if an array of CuPy proves that it is installed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onmf.warn import import_optional

Array = NDArray[Any]
FloatArray = NDArray[np.float64]


def read_only_view(array: Array) -> Array:
    """The same array, which cannot be written to.

    Numba compiles a kernel once more for arrays that cannot be written to, such as files mapped into memory. Kernels
    get only read-only rows, so that it compiles them once.
    """
    array = array.view()
    array.flags.writeable = False
    return array


def on_gpu(array: Any) -> bool:
    """Whether this is an array or a sparse matrix of CuPy."""
    return type(array).__module__.partition(".")[0] in ("cupy", "cupyx")


def to_host(array: Any) -> Any:
    """A CuPy array as a NumPy array and a sparse one as SciPy's; anything else unchanged."""
    return array.get() if on_gpu(array) else array


def take_rows(X: Any, index: Any) -> Any:
    """Some rows of an array or CSR matrix, on the host. Only these rows are copied from a GPU."""
    index = np.asarray(to_host(index))
    if not on_gpu(X):
        return X[index]
    if not hasattr(X, "indptr"):
        return X[index].get()
    bounds = [tuple(map(int, X.indptr[int(i) : int(i) + 2].get())) for i in index]
    indptr = np.cumsum([0, *(end - begin for begin, end in bounds)])
    entries = [
        np.concatenate([np.empty(0, dtype), *(values[begin:end].get() for begin, end in bounds)])
        for values, dtype in ((X.data, X.data.dtype), (X.indices, np.int32))
    ]
    return csr_array((*entries, indptr.astype(np.int32)), shape=(len(index), X.shape[1]))


def import_cupy() -> Any:
    """Import CuPy, or raise an error that says what is missing."""
    cupy = import_optional("cupy", "engine='gpu' needs CuPy (cupy-cuda12x or cupy-cuda13x, as the driver needs)", "gpu")
    try:
        capability = int(cupy.cuda.Device().compute_capability)  # 80 for 8.0
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"engine='gpu' found no GPU ({error}). Use engine='cpu'.") from error
    if capability < 80:
        raise RuntimeError(
            f"engine='gpu' needs a GPU of compute capability 8.0 or higher, and this one has {capability / 10}. Use "
            "engine='cpu'."
        )
    return cupy
