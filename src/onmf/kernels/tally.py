"""The totals of a step by cluster, in one pass over the rows.

    mass_k = Σ v a,  counts_k = Σ w,  sums_k = Σ w a,  squares_k = Σ w a²,
    overlap_k = Σ_{stayed} w a a',  loss_k = Σ w loss,  moved_k = Σ_{moved} 1

over the rows of cluster k, with w the weight of a row, v its weight in the sums, a its scale and a' its last scale.
Rows of weight 0 do not count as moved.
"""

from __future__ import annotations

from typing import Any

from .jit import jit


@jit
def tally(
    labels: Any,  # IN (n,)
    before: Any,  # IN (n,) labels of the last step, or () in the first
    scales: Any,  # IN (n,)
    scales_before: Any,  # IN (n,), or ()
    losses: Any,  # IN (n,)
    weights: Any,  # IN (n,) v
    own: Any,  # IN (n,) w, or () if all are one
    table: Any,  # OUT (7, k) the rows named in COUNTED (backend/sums.py), in that order; zero on entry
) -> None:
    """Fill the table."""
    first, weighted = len(before) == 0, len(own) > 0
    for i in range(len(labels)):
        k, a = labels[i], scales[i]
        w = own[i] if weighted else 1.0
        table[0, k] += weights[i] * a
        table[1, k] += w
        table[2, k] += w * a
        table[3, k] += w * a * a
        if w > 0.0:  # a row of weight 0 may have an infinite loss
            table[5, k] += w * losses[i]
        if first or before[i] != k:
            table[6, k] += 1.0 if w > 0.0 else 0.0
        else:
            table[4, k] += w * a * scales_before[i]
