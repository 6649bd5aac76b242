"""Kernels over arrays on the GPU, and the division of their work.

One kernel (step.cu) labels and sums rows in one pass, with a :class:`Crew` of warps in each block. Two others read the
rows twice in a step: one gets labels by a screen (label.cu), one sums and scores by label (sum.cu).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from onmf.divergence import FloatArray

from .launch import combine, cupy, int_, largest_shared, launch, long_, or_null, processors
from .rows import DenseRows

MOST_PLACES = 6  # maximum number of tiles of rows that a block has in shared memory
MOST_ADDERS = 15  # maximum number of warps of a block that sum rows while others label them
MOST_CLUSTERS = 48  # maximum number of clusters whose scores a warp of a crew can keep in registers
MOST_LABELLED = 64  # maximum number of clusters whose scores a warp of a screen can keep in registers
MOST_SCORED = 512  # maximum number of features of a row that a warp can keep in registers, together with a template
MOST_SUMMED = 256  # maximum number of features of a row that a warp sums, if it does not score them
SCORERS = 12  # warps of a block that labels rows
AHEAD = {4: 2, 8: 3}  # groups of 16 features that a warp reads ahead, by the size of an entry. Measured on an H200.
PARTS = 264  # parts of an array that are summed separately. Fixed, so that every card adds in the same order.
SMALLEST_PART = 64  # rows of a part, at least
SUMMED_LABELS = 512  # labels that a pass over an array sums, at most
PARTIAL_SUMS = 1 << 26  # partial sums that a pass over an array writes, at most
WARPS, DEPTH, BATCH = 8, 3, 4096  # as in sum.cu


def template_pitch(p: int) -> int:
    """Features of a template in shared memory: an odd multiple of 16, so that threads read from different banks."""
    return 16 * (-(-p // 16) | 1)


@dataclass(frozen=True)
class Crew:
    """The numbers of warps, tiles and labels of a block. The names are those of the kernel."""

    scorers: int
    adders: int
    labels: int
    tiles: int
    places: int
    features: int

    @property
    def tile(self) -> int:
        """Rows of a tile."""
        return 16 * self.scorers

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.scorers + self.adders + 1)

    @property
    def duties(self) -> int:
        """Number of labels that the adders can handle."""
        return self.adders * self.labels

    def heaviest(self, counts: FloatArray) -> float:
        """The largest share of the rows that one duty gets, if clusters have these counts. As ``share_labels`` does."""
        shares = counts / max(counts.sum(), 1e-300)
        numbers = 1 + np.floor((self.duties - len(counts)) * 0.999 * shares)
        return float((shares / numbers).max())

    @cached_property
    def macros(self) -> dict[str, int]:
        """The macros that the kernel is compiled with."""
        return {field.name.upper(): getattr(self, field.name) for field in fields(self)}

    def asked_for(self, itemsize: int) -> int:
        """Bytes of dynamic shared memory that the host must request: tiles of rows, and templates."""
        return self.places * (self.tile * self.features + 16) * itemsize + 32 * self.tiles * self.pitch

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory in all."""
        lists = self.tile * self.adders + 12 * self.duties + 4 * max(self.pitch, self.duties) + 64
        return self.asked_for(itemsize) + self.places * (20 * self.tile + 24) + lists

    @property
    def pitch(self) -> int:
        """Features of a template in shared memory."""
        return template_pitch(self.features)


@lru_cache(maxsize=64)
def crew_for(p: int, itemsize: int, k: int, shared: int) -> Crew | None:
    """A crew for k clusters of p features whose registers and tiles fit into that many bytes, or None."""
    if k > MOST_CLUSTERS or p * itemsize % 16:
        return None
    slices, tiles = -(-p // 32), -(-k // 8)
    for scorers, labels in product((4, 3, 2), (1, 2, 3, 4)):
        # Registers of an adder (templates and sums of its labels, and two rows), and of a scorer.
        registers = max(4 * slices * (labels + 1) + 40, 12 * tiles + 50)
        warps = 4 * (512 // (-(-registers // 8) * 8))
        adders = min(warps - scorers - 1, MOST_ADDERS)
        if registers > 248 or adders * labels < k:
            continue
        crews = (Crew(scorers, adders, labels, tiles, places, p) for places in range(MOST_PLACES, 2, -1))
        fitting = next((crew for crew in crews if crew.shared(itemsize) <= shared), None)
        if fitting is not None:
            return fitting
    return None


def can_screen(rows: DenseRows, k: int) -> bool:
    """Whether :func:`label_rows` and :func:`sum_rows` with scores can take these rows and this number of templates."""
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


def label_rows(rows: DenseRows, B: Any) -> Any:
    """The best template of each row; the lowest index wins a tie. → (n,)"""
    (n, pitch), k, ahead = rows.X.shape, len(B), AHEAD[rows.X.itemsize]
    tiles = -(-k // 8)
    blocks, shared = min(processors(), -(-n // (16 * SCORERS))), 32 * tiles * template_pitch(pitch)
    labels = cupy.empty(n, np.int32)
    args = rows.X, long_(n), rows.norms, B, int_(k), labels
    macros = {"FEATURES": pitch, "COLUMNS": rows.shape[1], "TILES": tiles, "SCORERS": SCORERS}
    launch("label_dense", blocks, 32 * SCORERS, *args, value=rows.X, shared=shared, AHEAD=ahead, **macros)
    return labels


def sum_rows(
    rows: DenseRows, labels: Any, weights: Any, k: int, B: Any = None, scores: Any = None, by_score: bool = False
) -> Any:
    """Σ weights·x by label, perhaps times the scores against the own templates B, written to ``scores``. → (k, p)"""
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
    p = rows.shape[1]
    return sums if pitch == p else cupy.ascontiguousarray(sums[:, :p])  # without the columns that only pad the rows
