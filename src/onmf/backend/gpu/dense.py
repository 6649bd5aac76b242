"""Passes over arrays on the GPU that read them twice in a step: labels by a screen, then sums and scores by label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .crew import template_pitch
from .launch import combine, int_, largest_shared, launch, long_, or_null, processors
from .rows import DenseRows, cut

MOST_LABELLED = 64
"""Maximum number of clusters whose scores a warp can keep in registers."""

MOST_SCORED = 512
"""Maximum number of features of a row that a warp can keep in registers, together with a template."""

MOST_SUMMED = 256
"""Maximum number of features of a row that a warp sums, if it does not score them."""

SCORERS = 12
"""Warps of a block that labels rows."""

AHEAD = {4: 2, 8: 3}
"""Groups of 16 features that a warp reads ahead, by the size of an entry. Measured on an H200."""

PARTS = 264
"""Parts of an array that are summed separately. Fixed, so that every card adds in the same order."""

SMALLEST_PART = 64
"""Rows of a part, at least."""

SUMMED_LABELS = 512
"""Labels that a pass over an array sums, at most."""

PARTIAL_SUMS = 1 << 26
"""Partial sums that a pass over an array writes, at most."""

WARPS, DEPTH, BATCH = 8, 3, 4096
"""As in sum.cu."""


class Scored(NamedTuple):
    """Sums of rows by label (k, p), and the scores of their own templates (n,)."""

    sums: Any
    scores: Any


def can_screen(rows: DenseRows, k: int) -> bool:
    """Whether :func:`label_rows` and :func:`score_and_sum` can take these rows and this number of templates."""
    (n, pitch), most = rows.X.shape, largest_shared() - 1024  # the kernels declare some themselves
    if not (n > 0 and 0 < pitch <= MOST_SCORED and pitch % 4 == 0 and k <= MOST_LABELLED and rows.X.data.ptr % 16 == 0):
        return False
    screen = 4 * template_pitch(pitch) * (8 * -(-k // 8) + 1)
    return screen <= most and shared_by_sums(pitch, rows.X.itemsize, 1, k) <= most


def shared_by_sums(width: int, size: int, at_once: int, labels: int) -> int:
    """Bytes of shared memory of sum.cu, for entries of this size, and rows that a warp adds at once."""
    ring = WARPS * DEPTH * at_once * (width * size + 8)
    return ring + 8 * WARPS * width + 4 * (labels + 1) + 4 * WARPS * labels + 2 * BATCH


def rows_at_once(width: int, size: int, labels: int, most: int) -> int:
    """Rows that a warp adds at once: 4, 2 or 1, as few as ``most`` bytes of shared memory demand."""
    fit = (n for n in (4, 2) if n * width * size <= 4096 and shared_by_sums(width, size, n, labels) <= most)
    return next(fit, 1)


def label_rows(cupy: Any, rows: DenseRows, B: Any) -> Any:
    """The best template of each row; the lowest index wins a tie. → (n,)"""
    (n, pitch), k = rows.X.shape, len(B)
    tiles = -(-k // 8)
    macros = {
        "FEATURES": pitch,
        "COLUMNS": rows.shape[1],
        "TILES": tiles,
        "SCORERS": SCORERS,
        "AHEAD": AHEAD[rows.X.itemsize],
    }
    blocks, shared = min(processors(), -(-n // (16 * SCORERS))), 32 * tiles * template_pitch(pitch)
    labels = cupy.empty(n, np.int32)
    args = rows.X, long_(n), rows.norms, B, int_(k), labels
    launch("label_dense", blocks, 32 * SCORERS, *args, value=rows.X, shared=shared, **macros)
    return labels


def score_and_sum(cupy: Any, rows: DenseRows, labels: Any, weights: Any, B: Any, by_score: bool) -> Scored:
    """Scores of the rows against their own templates, and sums by label, weighted by weights and perhaps by scores."""
    scores = cupy.empty(rows.shape[0])
    return Scored(_summed(cupy, rows, labels, weights, len(B), B, scores, by_score), scores)


def sum_rows(cupy: Any, rows: DenseRows, labels: Any, weights: Any, k: int) -> Any:
    """Σ weights·x over the rows of each label. → (k, p)"""
    return _summed(cupy, rows, labels, weights, k)


def _summed(
    cupy: Any,
    rows: DenseRows,
    labels: Any,
    weights: Any,
    k: int,
    B: Any = None,
    scores: Any = None,
    by_score: bool = False,
) -> Any:
    X, (n, pitch), size = rows.X, rows.X.shape, rows.X.itemsize
    quads = -(-min(pitch, MOST_SUMMED if B is None else MOST_SCORED) // 128)
    pieces = -(-pitch // (128 * quads))
    width = min(-(-pitch // 4) * 4, 128 * quads)
    rows_of_a_part = max(SMALLEST_PART, -(-n * pieces // PARTS))
    parts = -(-n // rows_of_a_part)
    count = max(1, min(k, SUMMED_LABELS, PARTIAL_SUMS // max(1, parts * pitch)))
    at_once = rows_at_once(width, size, count, largest_shared() - 1024)  # the kernel declares some itself
    macros = {
        "QUADS": quads,
        "ROWS": at_once,
        "ALIGNED": int(pitch * size % 16 == 0 and X.data.ptr % 16 == 0),
        "WEIGHTED": int(weights is not None),
        "SCORED": int(B is not None),
        "BY_SCORE": int(by_score),
    }
    sums = cupy.empty((k, pitch))
    for first in range(0, k, count):
        m = min(count, k - first)
        partial = cupy.empty((parts, m, pitch))
        which = int_(first), int_(m), long_(rows_of_a_part)
        templates = or_null(B), int_(rows.shape[1]), or_null(scores)
        args = X, int_(pitch), long_(n), labels, or_null(weights), *which, *templates, partial
        shared = shared_by_sums(width, size, at_once, m)
        launch("sum_dense", (parts, pieces), 32 * WARPS, *args, value=X, shared=shared, **macros)
        combine(partial, sums[first : first + m])
    return cut(cupy, sums, rows.shape[1])
