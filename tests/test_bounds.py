"""The bounds-checked run of the kernels (``make bounds``) checks what it says."""

import numba
import numpy as np
import pytest

from onmf.kernels import total_if_whole


def test_kernels_check_bounds_where_asked():
    """numba takes kernels from a cache without asking whether they were compiled with checks.

    This test fails where a checked run finds unchecked kernels: it needs a cache of its own (NUMBA_CACHE_DIR).
    """
    values = np.ones(8)[:4]  # what lies behind them is ours as well
    if numba.config.BOUNDSCHECK:
        with pytest.raises(IndexError, match="out of bounds"):
            total_if_whole(values, 0, 5)
    else:
        assert total_if_whole(values, 0, 5) == 5
