"""Kernels over arrays, compiled by numba. They do no validation, draw no random numbers and know no divergence.

The names here are for the layers above the backends.
"""

from .bregman import scaled_logs
from .steps import sum_rows, total_if_whole

__all__ = ["scaled_logs", "sum_rows", "total_if_whole"]
