"""Labels of sparse rows from templates in 16 bits, where they decide, and from exact scores elsewhere.

    score_ik = ⟨x_i, b_k⟩,   b_kj ≈ middle + step · v_kj,   lead_i = best score − second best

Templates in 16 bits take a quarter of the memory, and reading them is what scores cost. Since the middle is the same
for all templates, the sums Σ_j x_j v_kj are enough to compare scores. They are computed in float32, and are off by at
most |x| · 32767 · (40 + m / 128) · 2⁻²⁴ for a row of m entries, |x| = Σ_j |x_j|: entries and products are rounded,
and so are the sums, of at most 32 groups of four and then m / 128 parts. The templates are off by half a step. A label
that leads by more than twice all this is the label of the exact scores. The others are left to float64.

With s_j = max_k Δv_kj − min_k Δv_kj, the change of the templates since the last step, no score of row x gains more than
Σ_j |x_j| s_j on another. A row whose lead remains large enough keeps its label, and no score is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import jit, jit_without_nan

INT16_LIMIT = 32000
"""Largest absolute value of a template in 16 bits, in steps; leaves some room for rounding."""

TEMPLATE_ERROR = 1.06
"""How far the difference of two templates in 16 bits is off at most, in steps: half a step each, and what the
computation in float32 adds."""

FLOAT32_ROUNDING = 2.0**-24
"""Largest relative error of rounding to float32."""

MIN_STEP = 256 * FLOAT32_ROUNDING
"""Smallest step, in units of the largest absolute value of a template or one: 64 times the error of a logarithm."""

TILE_FEATURES = 128
"""Features whose templates are computed together: they stay in the cache until they are transposed."""

ENTRIES_PER_SUM = 128
"""Entries of a row whose products are added to the same sum."""

FLOAT32_SIZES = 1e-25, 1e30
"""Rows whose size is not between these are left to float64: float32 might underflow or overflow."""

SQRT_HALF_BITS = np.int32(0x3F3504F3)
"""The bits of √½ in float32."""


@jit
def int16_templates(
    W: Any,  # IN (k, p) centroids
    factors: Any,  # IN (k,) 1 / size of each centroid
    epsilon: float,  # IN smoothing
    logarithms: bool,  # IN whether templates are log(c / size + ε), or c / size (with ε = 0)
    middle: float,  # IN
    step: float,  # IN
    start: int,  # IN first feature
    stop: int,  # IN one past the last feature
    B: Any,  # IN/OUT (p, k or more) int16: the last templates are overwritten
    shifts: Any,  # OUT (p,) float32: how far the templates moved against each other, in steps
) -> None:
    """Compute the templates of features start to stop, in steps from the middle."""
    k, width = len(W), B.shape[1]
    values, tile = np.ones(TILE_FEATURES, np.float32), np.zeros((TILE_FEATURES, width), np.int16)
    room, steps = np.empty(2 * TILE_FEATURES, np.float32), np.empty(TILE_FEATURES, np.int32)
    for first in range(start, stop, TILE_FEATURES):
        m = min(TILE_FEATURES, stop - first)
        for c in range(k):
            factor = factors[c]
            for j in range(m):
                values[j] = np.float32(W[c, first + j] * factor + epsilon)
            if logarithms:
                log_of(values, room)
            to_steps(room if logarithms else values, np.float32(middle), np.float32(1.0 / step), steps)
            for j in range(m):
                tile[j, c] = steps[j]
        for j in range(m):
            shifts[first + j] = replace(B[first + j], tile[j], k)


@jit_without_nan
def log_of(values: Any, room: Any) -> None:
    """Write the logarithms of ``TILE_FEATURES`` positive float32 numbers to the first half of ``room``.

    One array with two halves, and 32 bits throughout, so that the compiler computes several at a time.
    """
    bits, mantissas = values.view(np.int32), room.view(np.int32)
    for j in range(TILE_FEATURES):
        e = np.int32(np.int32(bits[j] - SQRT_HALF_BITS) >> 23)
        mantissas[j] = bits[j] - np.int32(e << 23)  # the bits of a number between √½ and √2
        room[TILE_FEATURES + j] = np.float32(e)
    for j in range(TILE_FEATURES):
        f = room[j] - np.float32(1.0)
        s = f / (np.float32(2.0) + f)
        z = s * s
        tail = z * (np.float32(1 / 3) + z * (np.float32(1 / 5) + z * (np.float32(1 / 7) + z * np.float32(1 / 9))))
        room[j] = room[TILE_FEATURES + j] * np.float32(0.6931471805599453) + np.float32(2.0) * (s + s * tail)


@jit_without_nan
def to_steps(values: Any, middle: Any, steps_in_one: Any, steps: Any) -> None:
    """Round the first ``TILE_FEATURES`` values to steps from the middle."""
    for j in range(TILE_FEATURES):
        steps[j] = np.int32(np.rint((values[j] - middle) * steps_in_one))


@jit_without_nan
def replace(before: Any, after: Any, k: int) -> Any:
    """Overwrite the templates of a feature; returns the largest change of the first k minus the smallest."""
    low, high = np.int32(1 << 17), np.int32(-(1 << 17))
    for c in range(k):
        change = np.int32(np.int32(after[c]) - np.int32(before[c]))
        low, high = min(low, change), max(high, change)
    for c in range(len(after)):
        before[c] = after[c]
    return high - low


@jit
def label_by_int16(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    B: Any,  # IN (p, k or more) int16
    k: int,  # IN number of templates
    start: int,  # IN first row
    stop: int,  # IN one past the last row
    shifts: Any,  # IN (p,) float32: how far the templates moved against each other since the last step, in steps
    sizes: Any,  # IN (n,) Σ_j |x_j|
    leads: Any,  # IN/OUT (n,) float32: by how much the best score of 16 bits leads at least; 0 if that is not known
    labels: Any,  # IN/OUT (n,) int32
) -> None:
    """Label rows start to stop of a CSR matrix. A row that is left to float64 gets a lead of −1."""
    sums, scores = np.empty(B.shape[1], np.float32), np.empty(B.shape[1], np.float32)
    for i in range(start, stop):
        e: Any = np.intp(indptr[i])  # of one type, so that what is called below is compiled once
        end: Any = np.intp(indptr[i + 1])
        if e == end:
            labels[i], leads[i] = 0, 0.0
            continue
        if leads[i] > 0.0:
            left = lead_left(leads[i], e, end, indices, data, shifts)
            if left > TEMPLATE_ERROR * sizes[i]:
                leads[i] = left
                continue
        if not FLOAT32_SIZES[0] < sizes[i] < FLOAT32_SIZES[1]:
            leads[i] = -1.0
            continue
        score_by_int16(e, end, indices, data, B, sums, scores)
        label, lead = winner_and_lead(scores, k)
        lead -= score_error(end - e, sizes[i])
        if lead > TEMPLATE_ERROR * sizes[i]:
            labels[i], leads[i] = label, min(lead, 1e30)
        else:
            leads[i] = -1.0


@jit
def score_error(m: int, size: float) -> float:
    """How far the difference of two scores of a row of m entries is off at most, but for the templates."""
    return 2.02 * size * 32767 * (40.0 + m / ENTRIES_PER_SUM) * FLOAT32_ROUNDING


@jit
def score_by_int16(e: int, end: int, indices: Any, data: Any, B: Any, sums: Any, scores: Any) -> None:
    """Scores of the sparse row with entries e to end, in steps from the middle; ``sums`` is room to compute."""
    for c in range(len(scores)):
        scores[c] = sums[c] = 0.0
    while e < end:
        pause = min(e + ENTRIES_PER_SUM, end)
        add_products(e, pause, indices, data, B, sums)
        for c in range(len(scores)):
            scores[c] += sums[c]
            sums[c] = 0.0
        e = pause


@jit_without_nan
def add_products(e: int, end: int, indices: Any, data: Any, B: Any, sums: Any) -> None:
    """Add the products of entries e to end of a sparse row with its templates."""
    width = B.shape[1]
    while e + 4 <= end:
        x0, x1 = np.float32(data[e]), np.float32(data[e + 1])
        x2, x3 = np.float32(data[e + 2]), np.float32(data[e + 3])
        b0, b1 = B[np.uintp(indices[e])], B[np.uintp(indices[e + 1])]
        b2, b3 = B[np.uintp(indices[e + 2])], B[np.uintp(indices[e + 3])]
        for c in range(width):
            m0, m1 = x0 * np.float32(b0[c]), x1 * np.float32(b1[c])
            m2, m3 = x2 * np.float32(b2[c]), x3 * np.float32(b3[c])
            sums[c] += (m0 + m1) + (m2 + m3)
        e += 4
    while e < end:
        x0 = np.float32(data[e])
        b0 = B[np.uintp(indices[e])]
        for c in range(width):
            sums[c] += x0 * np.float32(b0[c])
        e += 1


@jit_without_nan
def winner_and_lead(scores: Any, k: int) -> Any:
    """Which of the first k scores is the largest, and by how much; infinity if there is no other. Overwrites scores."""
    best, label = np.float32(-np.inf), 0
    for c in range(k):
        best = max(best, scores[c])
    while scores[label] < best:
        label += 1
    scores[label] = -np.inf
    second = np.float32(-np.inf)
    for c in range(k):
        second = max(second, scores[c])
    return label, np.float64(best - second)


@jit
def lead_left(lead: float, e: int, end: int, indices: Any, data: Any, shifts: Any) -> float:
    """What remains of the lead of the sparse row with entries e to end; less than zero as soon as nothing does."""
    left = np.float64(lead)
    while e + 4 <= end:
        x0, x1 = abs(np.float64(data[e])), abs(np.float64(data[e + 1]))
        x2, x3 = abs(np.float64(data[e + 2])), abs(np.float64(data[e + 3]))
        s0, s1 = shifts[np.uintp(indices[e])], shifts[np.uintp(indices[e + 1])]
        s2, s3 = shifts[np.uintp(indices[e + 2])], shifts[np.uintp(indices[e + 3])]
        left -= (x0 * s0 + x1 * s1) + (x2 * s2 + x3 * s3)
        if not left > 0.0:
            return -1.0
        e += 4
    while e < end:
        left -= abs(np.float64(data[e])) * shifts[np.uintp(indices[e])]
        e += 1
    return 0.999999 * left


@jit
def candidates_by_int16(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    data: Any,  # IN (nnz,)
    B: Any,  # IN (p, k or more) int16
    rows: Any,  # IN (m,) rows without a label
    sizes: Any,  # IN (n,) Σ_j |x_j|
    possible: Any,  # OUT (m, k) bool
) -> None:
    """Which templates may have the best score of some rows of a CSR matrix."""
    k = possible.shape[1]
    sums, scores = np.empty(B.shape[1], np.float32), np.empty(B.shape[1], np.float32)
    for r in range(len(rows)):
        i = rows[r]
        usual, best, error = FLOAT32_SIZES[0] < sizes[i] < FLOAT32_SIZES[1], -np.inf, 0.0
        if usual:
            e: Any = np.intp(indptr[i])
            end: Any = np.intp(indptr[i + 1])
            score_by_int16(e, end, indices, data, B, sums, scores)
            error = score_error(end - e, sizes[i]) + TEMPLATE_ERROR * sizes[i]
            for c in range(k):
                best = max(best, np.float64(scores[c]))
        for c in range(k):
            possible[r, c] = not usual or best - np.float64(scores[c]) <= error


@jit
def gather_entries(
    indptr: Any,  # IN (n + 1,)
    indices: Any,  # IN (nnz,)
    rows: Any,  # IN (q,) rows of pairs
    clusters: Any,  # IN (q,) clusters of pairs
    W: Any,  # IN (k, p)
    bounds: Any,  # IN (q + 1,) where each pair begins
    gathered: Any,  # OUT (bounds[q], 1) entries of W
) -> None:
    """Gather the entries of a centroid for each entry of a row, for pairs of them."""
    for q in range(len(rows)):
        w, first = W[clusters[q]], indptr[rows[q]]
        for e in range(bounds[q + 1] - bounds[q]):
            gathered[bounds[q] + e, 0] = w[indices[first + e]]


@jit
def best_of_pairs(
    indptr: Any,  # IN (n + 1,)
    data: Any,  # IN (nnz,)
    rows: Any,  # IN (q,) rows of pairs, in groups
    clusters: Any,  # IN (q,) clusters of pairs, in their order
    templates: Any,  # IN (bounds[q], 1) entries of templates for each entry of the rows
    bounds: Any,  # IN (q + 1,) where each pair begins
    labels: Any,  # IN/OUT (n,)
) -> None:
    """Label rows by their exact scores, which have the bits of score_csr; the lowest cluster wins a tie."""
    best = 0.0
    for q in range(len(rows)):
        x, b = data[indptr[rows[q]] :], templates[bounds[q] : bounds[q + 1], 0]
        m, e, score = len(b), 0, 0.0
        while e + 4 <= m:
            m0, m1 = np.float64(x[e]) * b[e], np.float64(x[e + 1]) * b[e + 1]
            m2, m3 = np.float64(x[e + 2]) * b[e + 2], np.float64(x[e + 3]) * b[e + 3]
            score += (m0 + m1) + (m2 + m3)
            e += 4
        while e < m:
            score += np.float64(x[e]) * b[e]
            e += 1
        if q == 0 or rows[q] != rows[q - 1] or score > best:
            labels[rows[q]], best = clusters[q], score
