"""Kernels over arrays, compiled by numba. They do no validation, draw no random numbers and know no divergence."""

from __future__ import annotations

from .assign import (
    INFINITE,
    best_template_csr,
    best_template_dense,
    own_and_next_csr,
    own_and_next_dense,
    transpose_templates,
)
from .bregman import add_moments, map_entries, pulls_by_label, scores_and_scales, scores_at_sizes, series_at
from .counts import counts_at_sizes, scaled_logs
from .hartigan import ones_first, sweep_counts, sweep_entropy, sweep_length
from .int16 import (
    INT16_LIMIT,
    MIN_STEP,
    TILE_FEATURES,
    best_of_pairs,
    candidates_by_int16,
    gather_entries,
    int16_templates,
    label_by_int16,
)
from .jit import address_of
from .project import project_on_hull
from .sketch import label_by_sketch, sketch_rows, sketch_templates
from .sums import (
    move_rows_csr,
    move_rows_dense,
    order_by_label,
    score_and_sum,
    score_and_sum_csr,
    sum_by_label_csr,
    sum_by_label_dense,
    sum_rows,
    tally,
    total_if_whole,
)

__all__ = [
    "INFINITE",
    "INT16_LIMIT",
    "MIN_STEP",
    "TILE_FEATURES",
    "add_moments",
    "address_of",
    "best_of_pairs",
    "best_template_csr",
    "best_template_dense",
    "candidates_by_int16",
    "counts_at_sizes",
    "gather_entries",
    "int16_templates",
    "label_by_int16",
    "label_by_sketch",
    "map_entries",
    "move_rows_csr",
    "move_rows_dense",
    "ones_first",
    "order_by_label",
    "own_and_next_csr",
    "own_and_next_dense",
    "project_on_hull",
    "pulls_by_label",
    "scaled_logs",
    "score_and_sum",
    "score_and_sum_csr",
    "scores_and_scales",
    "scores_at_sizes",
    "series_at",
    "sketch_rows",
    "sketch_templates",
    "sum_by_label_csr",
    "sum_by_label_dense",
    "sum_rows",
    "sweep_counts",
    "sweep_entropy",
    "sweep_length",
    "tally",
    "total_if_whole",
    "transpose_templates",
]
