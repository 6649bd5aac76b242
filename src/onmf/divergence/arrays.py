"""Types of arrays, and views that cannot be written to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float64]


def read_only_view(array: Array) -> Array:
    """The same array, which cannot be written to.

    Numba compiles a kernel once for arrays that can be written to, and once more for those that cannot, such as files
    that are mapped into memory. So that it compiles only one of them, the kernels get read-only rows alone.
    """
    array = array.view()
    array.flags.writeable = False
    return array
