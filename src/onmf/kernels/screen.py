"""Labels without float64 scores, where bounds decide; float64 decides the rest.

For sparse rows, templates come in 16 bits:

    score_ik = ⟨x_i, b_k⟩,   b_kj ≈ middle + step · v_kj,   lead_i = best score − second best

Templates in 16 bits take a quarter of the memory, and reading them is what scores cost. Since the middle is the same
for all templates, the sums Σ_j x_j v_kj are enough to compare scores. They are computed in float32, and are off by at
most |x| · 32767 · (40 + m / 128) · 2⁻²⁴ for a row of m entries, |x| = Σ_j |x_j|: entries and products are rounded,
and so are the sums, of at most 32 groups of four and then m / 128 parts. The templates are off by half a step. A label
that leads by more than twice all this is the label of the exact scores. The others are left to float64.

With s_j = max_k Δv_kj − min_k Δv_kj, the change of the templates since the last step, no score of row x gains more than
Σ_j |x_j| s_j on another. A row whose lead remains large enough keeps its label, and no score is computed.

For rows of an array, a few inner products of each row, its sketch, bound its scores:

    z_i = Qᵀ x_i,   ρ_i ≥ ‖x_i − Q z_i‖,   |⟨x_i, b_k⟩ − ⟨z_i, t_k⟩| ≤ ρ_i · rest_k + ‖x_i‖ · slope + least

A row whose best template leads by more than these bounds keeps it without being read. See ``ArrayRun`` in
:mod:`onmf.backend.cpu`.
"""

from typing import Any

import numpy as np

from .functions import log_and
from .jit import jit, jit_any_order, jit_without_nan
from .steps import lowest_argmax, score_rows

INT16_LIMIT = 32000  # largest absolute value of a template in 16 bits, in steps; leaves some room for rounding
TEMPLATE_ERROR = 1.06  # of the difference of two templates, in steps: half a step each, and rounding
FLOAT32_ROUNDING = 2.0**-24  # largest relative error of rounding to float32
MIN_STEP = 256 * FLOAT32_ROUNDING  # in units of the largest template or 1, for templates that hardly differ
TILE_FEATURES = 128  # features whose templates are computed together: they stay in the cache until they are transposed
ENTRIES_PER_SUM = 128  # entries of a row whose products are added to the same sum
FLOAT32_SIZES = 1e-25, 1e30  # rows of other sizes are left to float64: float32 might underflow or overflow
BLOCK_ROWS = 64  # rows whose sketches are compared with a template at a time
ROUNDED_UP = np.float32(1.00001)  # covers the rounding of a few operations in float32


@jit
def int16_templates(W: Any, factors: Any, form: Any, start: int, stop: int, B: Any, shifts: Any) -> None:
    """Compute the templates B (p, k or more) of features start to stop in 16 bits, in steps from the middle.

    W (k, p) are centroids, and factors (k,) 1 / size of each. The form is a smoothing ε, whether templates are
    log(c / size + ε) or c / size (with ε = 0), the middle, and the step. The last templates are overwritten, and
    shifts (p,) say how far they moved against each other, in steps.
    """
    epsilon, logarithms, middle, step = form
    k, tile = len(W), np.zeros((TILE_FEATURES, B.shape[1]), np.int16)
    values, steps = np.ones(TILE_FEATURES), np.empty(TILE_FEATURES, np.int32)
    for first in range(start, stop, TILE_FEATURES):
        m = min(TILE_FEATURES, stop - first)
        for c in range(k):
            factor = factors[c]
            for j in range(m):
                values[j] = W[c, first + j] * factor + epsilon
            if logarithms:
                take_logarithms(values)
            to_steps(values, middle, 1.0 / step, steps)
            for j in range(m):
                tile[j, c] = steps[j]
        for j in range(m):
            shifts[first + j] = replace(B[first + j], tile[j], k)


@jit_without_nan
def take_logarithms(values: Any) -> None:
    """Replace ``TILE_FEATURES`` positive numbers by their logarithms."""
    for j in range(TILE_FEATURES):
        values[j] = log_and(values[j], 0.0, -0.0)


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
    csr: Any, B: Any, k: int, start: int, stop: int, shifts: Any, sizes: Any, leads: Any, labels: Any
) -> None:
    """Label rows start to stop of a CSR matrix. A row that is left to float64 gets a lead of −1.

    B (p, k or more) are templates in 16 bits, shifts (p,) how far they moved against each other since the last step,
    in steps, and sizes (n,) Σ_j |x_j|. Leads (n,) say by how much the best score of 16 bits leads at least, 0 if that
    is not known; they and the labels (n,) are those of the last step and are overwritten.
    """
    indptr, indices, data = csr
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
def candidates_by_int16(csr: Any, B: Any, rows: Any, sizes: Any, possible: Any) -> None:
    """Which templates may have the best score of m rows of a CSR matrix: ``possible`` (m, k), else as above."""
    indptr, indices, data = csr
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
def gather_entries(indptr: Any, indices: Any, rows: Any, clusters: Any, W: Any, bounds: Any, gathered: Any) -> None:
    """Gather the entries of a centroid (k, p) for each entry of a row, for q pairs of rows and clusters.

    Those of pair i go to gathered[bounds[i] : bounds[i + 1], 0].
    """
    for q in range(len(rows)):
        w, first = W[clusters[q]], indptr[rows[q]]
        for e in range(bounds[q + 1] - bounds[q]):
            gathered[bounds[q] + e, 0] = w[indices[first + e]]


@jit
def best_of_pairs(indptr: Any, data: Any, rows: Any, clusters: Any, templates: Any, bounds: Any, labels: Any) -> None:
    """Label rows by their exact scores, which have the bits of score_csr; the lowest cluster wins a tie.

    The pairs, as in gather_entries, are in the order of rows and clusters.
    """
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


@jit
def sketch_rows(X: Any, Q: Any, Z: Any, start: int, stop: int) -> None:
    """Sketch rows start to stop of an array, for orthonormal Q (q, p): Z (q + 1, n), with what is left out.

    Columns after the first p are ignored.
    """
    q, p = Q.shape
    none, products = np.zeros(q), np.empty((4, q))
    for first in range(start, stop, 4):
        a, b, c, d = first, min(first + 1, stop - 1), min(first + 2, stop - 1), min(first + 3, stop - 1)
        score_rows(X[a], X[b], X[c], X[d], Q, none, products)
        for r in range(min(4, stop - first)):
            i, x = first + r, X[first + r, :p]
            left = product(x, x)
            rounding = 1e-12 * left
            for j in range(q):
                Z[j, i] = products[r, j]
                left -= products[r, j] * products[r, j]
            Z[q, i] = np.float32(np.sqrt(max(left, 0.0) + rounding)) * ROUNDED_UP


@jit_any_order
def sketch_templates(B: Any, mean: Any, Q: Any, T: Any) -> tuple[float, float, float, float]:
    """Sketch templates: T (k, 10) gets sketches and what they leave out; its last column is left alone.

    The mean (p,) is subtracted: what all have in common changes no comparison. Returns the largest lengths of
    templates, sketches, differences from the mean, and rounding errors: the parts of what sketches leave out that are
    not orthogonal to the directions.
    """
    q, p = Q.shape
    rest = np.empty(p)
    longest = sketched = apart = inside = 0.0
    for c in range(len(T)):
        b = B[c]
        for j in range(p):
            rest[j] = b[j] - mean[j]
        longest, apart, own = max(longest, product(b, b)), max(apart, product(rest, rest)), 0.0
        for d in range(q):
            T[c, d] = product(rest, Q[d])
            own += np.float64(T[c, d]) ** 2
        for d in range(q):
            t, direction = np.float64(T[c, d]), Q[d]
            for j in range(p):
                rest[j] -= t * direction[j]
        T[c, q] = np.float32(np.sqrt(product(rest, rest))) * ROUNDED_UP
        sketched, left = max(sketched, own), 0.0
        for d in range(q):
            left += product(rest, Q[d]) ** 2
        inside = max(inside, left)
    return np.sqrt(longest), np.sqrt(sketched), np.sqrt(apart), np.sqrt(inside)


@jit_any_order
def product(x: Any, y: Any) -> float:
    """⟨x, y⟩ in float64."""
    total = 0.0
    for j in range(len(x)):
        total += np.float64(x[j]) * y[j]
    return total


@jit
def label_by_sketch(
    X: Any,
    B: Any,
    starts: Any,
    k: int,
    groups: Any,
    firsts: Any,
    Z: Any,
    T: Any,
    errors: Any,
    start: int,
    stop: int,
    labels: Any,
) -> int:
    """Label rows start to stop of an array; how many of them the sketches left open.

    B and starts are as in score_rows, Z (9, n) the sketches of the rows, and T (k, 10) those of the templates, what
    these leave out, and the offset. If the rows have groups (n,), the first entries of T are 1, and firsts (groups, k)
    stand for them; both are empty otherwise. Errors are slope and least, of sketches in float32 and of scores in
    float64.
    """
    slope, least, fine_slope, fine_least = errors
    room = np.zeros(NEXT + END, np.float32)
    across, bounds = np.ascontiguousarray(T.T), np.empty(k, np.float32)
    exact, four = np.empty((4, len(B))), np.empty(4, np.int64)
    n_open = n_tied = 0
    for first in range(start, stop, BLOCK_ROWS):
        m = min(BLOCK_ROWS, stop - first)
        for j in range(9):
            for r in range(m):
                room[j * BLOCK_ROWS + r] = Z[j, first + r]
        start_bounds(room, slope, least)
        for c in range(k):
            if len(groups) > 0:
                for r in range(m):
                    room[r] = firsts[np.uintp(groups[first + r]), c] * Z[0, first + r]
            update_bounds(room, c, T[c])
        for r in range(m):
            i = first + r
            labels[i] = np.int32(room[LEADER + r])
            if room[SECOND_UPPER + r] < room[LOWER + r]:
                continue
            n_open += 1
            if len(groups) > 0:
                room[r] = Z[0, i]
                for c in range(k):
                    across[0, c] = firsts[groups[i], c]
            upper_bounds(room, r, across, bounds)
            winner, lead = best_candidate(X[i], B, starts, bounds, room[LOWER + r])
            labels[i] = winner
            if lead > np.float64(room[LENGTH + r]) * fine_slope + fine_least:
                continue
            four[n_tied] = i
            n_tied += 1
            if n_tied == 4:
                label_exactly(X, B, starts, k, four, exact, labels)
                n_tied = 0
    if n_tied > 0:
        four[n_tied:] = four[n_tied - 1]
        label_exactly(X, B, starts, k, four, exact, labels)
    return n_open


@jit_any_order
def upper_bounds(room: Any, r: int, across: Any, bounds: Any) -> None:
    """The upper bounds of row r of a block for all templates."""
    left, slack = room[RESIDUAL + r], room[SLACK + r]
    for c in range(len(bounds)):
        bounds[c] = across[9, c] + (left * across[8, c] + slack)
    for j in range(8):
        z, t = room[j * BLOCK_ROWS + r], across[j]
        for c in range(len(bounds)):
            bounds[c] += z * t[c]


@jit
def best_candidate(x: Any, B: Any, starts: Any, bounds: Any, lower: Any) -> tuple[int, float]:
    """The best template among those whose bounds reach ``lower``, in float64, and its lead over the second-best."""
    winner, best, second = 0, -np.inf, -np.inf
    for c in range(len(bounds)):
        if bounds[c] >= lower:
            score = product(x, B[c]) + starts[c]
            if score > best:
                winner, best, second = c, score, best
            elif score > second:
                second = score
    return winner, best - second


@jit
def label_exactly(X: Any, B: Any, starts: Any, k: int, rows: Any, exact: Any, labels: Any) -> None:
    """Label four rows by the scores that decide everywhere else, too: those of two may be equal but for rounding."""
    score_rows(X[rows[0]], X[rows[1]], X[rows[2]], X[rows[3]], B, starts, exact)
    for r in range(4):
        labels[rows[r]] = lowest_argmax(exact[r], k)


# The compiler vectorises the loops below because all they touch lies in one array, at distances that it knows. They
# write to another place than they read from: stores of what is there already become slow masked stores.
RESIDUAL, SLACK, LENGTH, LOWER, UPPER, SECOND_UPPER, LEADER, END = (j * BLOCK_ROWS for j in range(8, 16))
NEXT = END - LOWER


@jit_without_nan
def start_bounds(room: Any, slope: Any, least: Any) -> None:
    """Prepare a block of sketches for the first template: ‖x‖ · slope + least, with ‖x‖ ≤ Σ |z| + ρ, and no leader."""
    for r in range(BLOCK_ROWS):
        length = room[RESIDUAL + r]
        for j in range(8):
            length += abs(room[j * BLOCK_ROWS + r])
        room[LENGTH + r] = length
        room[SLACK + r] = length * slope + least
    room[LOWER:LEADER] = -np.inf
    room[LEADER:END] = 0.0


@jit_without_nan
def update_bounds(room: Any, c: int, t: Any) -> None:
    """Take in template c for a block: the largest lower bound, who has it, and the two largest upper bounds."""
    t0, t1, t2, t3, t4, t5, t6, t7, rest, shift = t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]
    name = np.float32(c)
    for r in range(BLOCK_ROWS):
        s0 = t0 * room[r] + t1 * room[BLOCK_ROWS + r]
        s1 = t2 * room[2 * BLOCK_ROWS + r] + t3 * room[3 * BLOCK_ROWS + r]
        s2 = t4 * room[4 * BLOCK_ROWS + r] + t5 * room[5 * BLOCK_ROWS + r]
        s3 = t6 * room[6 * BLOCK_ROWS + r] + t7 * room[7 * BLOCK_ROWS + r]
        score = shift + ((s0 + s1) + (s2 + s3))
        error = room[RESIDUAL + r] * rest + room[SLACK + r]
        low, high = score - error, score + error
        lower, largest = room[LOWER + r], room[UPPER + r]
        room[NEXT + LOWER + r] = max(lower, low)
        room[NEXT + UPPER + r] = max(largest, high)
        room[NEXT + SECOND_UPPER + r] = max(room[SECOND_UPPER + r], min(largest, high))
        room[NEXT + LEADER + r] = name if low > lower else room[LEADER + r]
    for r in range(LOWER, END):
        room[r] = room[NEXT + r]
