"""Leaf functions over arrays, compiled by numba: no validation, no random numbers, no divergence."""

from __future__ import annotations

from .assign import best_template_csr, best_template_dense
from .project import project_on_hull
from .sums import sum_by_label_csr, sum_by_label_dense

__all__ = [
    "best_template_csr",
    "best_template_dense",
    "project_on_hull",
    "sum_by_label_csr",
    "sum_by_label_dense",
]
