"""Leaf functions over arrays, compiled by numba: no validation, no random numbers, no divergence."""

from __future__ import annotations

from .assign import INFINITE, best_template_csr, best_template_dense, best_template_few, transpose_templates
from .project import project_on_hull
from .sums import move_rows_csr, move_rows_dense, sum_by_label_csr, sum_by_label_dense

__all__ = [
    "INFINITE",
    "best_template_csr",
    "best_template_dense",
    "best_template_few",
    "move_rows_csr",
    "move_rows_dense",
    "project_on_hull",
    "sum_by_label_csr",
    "sum_by_label_dense",
    "transpose_templates",
]
