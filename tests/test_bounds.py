"""The bounds-checked run of the kernels (``make bounds``) really checks bounds."""

import numba
import numpy as np
import pytest

from onmf.kernels import total_if_whole


def test_kernels_check_bounds_where_asked():
    """numba loads kernels from its cache even if they were compiled without checks.

    This test fails if a checked run finds unchecked kernels: such a run needs a separate cache (NUMBA_CACHE_DIR).
    """
    values = np.ones(8)[:4]  # reading past the end stays inside the larger array
    if numba.config.BOUNDSCHECK:
        with pytest.raises(IndexError, match="out of bounds"):
            total_if_whole(values, 0, 5)
    else:
        assert total_if_whole(values, 0, 5) == 5
