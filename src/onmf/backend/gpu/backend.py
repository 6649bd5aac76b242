"""The GPU backend: CUDA kernels over CuPy arrays. Everything that an iteration needs stays on the card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf.arrays import import_cupy, on_gpu, to_host
from onmf.divergence import Array, Bregman, Divergence, FloatArray
from onmf.divergence.base import gpu_kernel
from onmf.divergence.bregman import SAMPLES
from onmf.divergence.consistency import close, of_onmf, outputs_of, sample

from ..base import Backend, Block, Hull, Matrix, Steps, StepsAhead, StepsInTurn, Templates, refused
from ..threads import Threads
from .curved import GpuCurvedRun, GpuCurves
from .dense import sum_rows
from .hull import GpuHull
from .launch import NULL, THREADS, cupy, int_, lanes_of, largest_shared, launch, launch_rows, long_, or_null, processors
from .rows import (
    DenseRows,
    Rows,
    SparseRows,
    StreamedRows,
    blocks_of,
    bytes_needed,
    columns_of,
    cuts_of,
    place_whole,
    some_rows,
)
from .run import GpuRun

DENSE_THREADS = 128  # of a block that scores dense rows: their sums fill the registers
LARGEST_TILES = 12  # of 8 templates that a warp can keep in registers
LARGEST_SCREEN = 4  # parts of a line of the table that a thread of the screen can keep in registers
SHARE = 0.8  # of the free memory of the card that rows may take
STREAMED_AT_A_TIME = 1 << 25  # entries of a streamed block, at most
HULL_SHARE = 0.5  # of the free memory of the card for SNPA's hull. The rest is for the copy of the rows by feature.
WORTH_TRYING = 1 << 23  # entries from which on the card tries the moves of a search: with fewer, the host is as fast
TRIED_AT_A_TIME = 1 << 20  # rows, which bounds the memory for their costs
ENTRIES_PER_TERM = 1 << 26  # entries whose row terms are computed together
# Bytes of the card for an entry of a streamed block: buffers, and for sparse rows the copy by feature and its sorting.
STREAMED_BYTES = {"sparse": 160, "dense": 48}
TABLED = 4  # entries from 1 to this number, which most counts are, take f(S + x) − f(S) from a table


@dataclass(frozen=True)
class GpuTemplates(Templates):
    """Templates on the card. For sparse rows also transposed, and in 16 bits for the screen."""

    BT: Any = None  # (p, k)
    table: Any = None  # (p, 8 chunks) in 16 bits; see template_table in kernels.cu
    chunks: int = 0  # 16-byte parts of a line of the table; 0 if there is none


class GpuBackend(Backend):
    """Dense and CSR rows on a GPU, or streamed through it if they are larger than its memory.

    Parameters
    ----------
    n_threads : int, default=1
        Threads for the work on the host: SNPA's projections and the local search.
    memory : int or None, default=None
        Bytes of the card that rows may take; None for most of what is free. Rows that need more are streamed.
    """

    name = "gpu"
    takes_cupy = True

    def __init__(self, n_threads: int = 1, memory: int | None = None) -> None:
        import_cupy()
        self.threads, self.memory = Threads(n_threads), memory

    def place(self, X: Matrix) -> Rows | StreamedRows:
        if isinstance(X, SparseRows | DenseRows | StreamedRows):
            return X
        if max(X.shape) >= 2**31:
            raise ValueError(
                f"engine='gpu' cannot take this data: it is {X.shape[0]} × {X.shape[1]}, and this engine counts rows "
                "and features in 32 bits."
            )
        budget = int(SHARE * self._free()) if self.memory is None else self.memory
        if on_gpu(X) or bytes_needed(X) <= budget:
            return place_whole(X)
        of_an_entry = STREAMED_BYTES["sparse" if hasattr(X, "indptr") else "dense"]
        return StreamedRows(X, max(1, min(STREAMED_AT_A_TIME, budget // of_an_entry)))

    def _free(self) -> int:
        """Bytes of the card that are free, or that CuPy holds for later use."""
        return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())

    def curves(self, divergence: Any) -> GpuCurves:
        return GpuCurves(divergence)

    def check(self, divergence: Divergence, features: int) -> None:
        convex: Any = divergence if divergence.curved or isinstance(divergence, Bregman) else None
        if convex is not None and convex.cuda_functions is None:
            raise refused(self, divergence, " without its functions in CUDA (cuda=… of onmf.divergence.Bregman)")
        if of_onmf(divergence) and not isinstance(divergence, Bregman):
            return
        rows = sample(divergence, features)
        try:
            found, expected = outputs_of(divergence, *map(self.to_device, rows)), outputs_of(divergence, *rows)
            pairs = [(found.gain, expected.gain), (found.constant, expected.constant)]
            if convex is not None:
                x, functions = SAMPLES[convex.domain], convex.cuda_functions
                formulas = [(functions.slope, convex.slope), (functions.moment, convex.moment)]
                formulas += [(f"-log({functions.factor})", lambda x: convex.slope(1 / x))] if functions.factor else []
                for formula, own in formulas:
                    computed = gpu_kernel("float64 x, float64 t", f"y = ({formula})")(self.to_device(x), functions.t)
                    pairs.append((computed, own(x)))
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            reason = f" (its methods cannot take CuPy arrays: {type(error).__name__}: {first})"
            raise refused(self, divergence, reason) from error
        if not all(close(to_host(one), other) for one, other in pairs):
            raise refused(self, divergence, " (its methods give other numbers for CuPy arrays)")

    def to_device(self, array: Any) -> Any:
        return cupy.asarray(array)

    def start_run(self, block: Block) -> GpuRun:
        return (GpuCurvedRun if block.divergence.curved else GpuRun)(block)

    def steps(self, run: Any, centroids: FloatArray) -> Steps:
        in_turn = isinstance(run.block.rows, StreamedRows) or run.block.divergence.curved
        return (StepsInTurn if in_turn else StepsAhead)(run, centroids)

    def hull(self, block: Block, most: int) -> Hull:
        fits = GpuHull.bytes_needed(len(block), most) <= HULL_SHARE * self._free()
        return (GpuHull if fits else Hull)(block, most)

    def trial(self, block: Block) -> Trial | None:
        X = block.source
        return Trial(block) if int(X.nnz if hasattr(X, "nnz") else X.size) >= WORTH_TRYING else None

    def prepare(
        self, rows: Any, centroids: FloatArray, templates: Any = None, offsets: Any = None, reuse: Any = None
    ) -> GpuTemplates:
        centroids = self.to_device(centroids)
        B = cupy.ascontiguousarray(centroids if templates is None else templates(centroids), dtype=np.float64)
        k, p = B.shape
        offsets = None if offsets is None else self.to_device(offsets)
        if isinstance(rows, DenseRows) or (isinstance(rows, StreamedRows) and not rows.sparse):
            return GpuTemplates(B, offsets)
        chunks = -(-(k + 2) // 8) if 3 <= k <= 256 * LARGEST_SCREEN - 2 else 0
        if reuse is not None and reuse.BT is not None and reuse.BT.shape == (p, k):
            BT, table = reuse.BT, reuse.table
        else:
            BT, table = cupy.empty((p, k)), cupy.zeros((p, 8 * max(chunks, 1)), np.uint16)
        launch("template_table", -(-p // 32), THREADS, B, int_(k), int_(p), int_(chunks), BT, table)
        return GpuTemplates(B, offsets, BT, table, chunks)

    def best_template(self, rows: Any, templates: GpuTemplates) -> tuple[Any, Any]:
        n, k = rows.shape[0], len(templates)
        labels, best = cupy.empty(n, np.int32), cupy.empty(n)
        for start, stop, block in blocks_of(rows):
            out = labels[start:stop], best[start:stop]
            if templates.offsets is not None:
                scores = self._all_scores(block, templates)
                out[0][:], out[1][:] = scores.argmax(axis=1), scores.max(axis=1)
            elif isinstance(block, DenseRows):
                self._score_dense(block, templates, 0, *out, None)
            elif templates.chunks:
                lanes = lanes_of(templates.chunks)
                team = max(lanes, _team(block))
                macros = {"TEAM": team, "LANES": lanes, "PARTS": -(-templates.chunks // lanes)}
                stored = block.indptr, block.indices, block.data, templates.BT, templates.table
                given = *stored, int_(k), int_(templates.chunks), long_(stop - start), *out
                blocks = -(-(stop - start) * team // THREADS)
                launch("best_template_screened", blocks, THREADS, *given, value=block.data, **macros)
            else:
                self._score_csr("best_template_csr", block, templates, *out)
        return labels, best

    def own_and_next(self, rows: Any, templates: GpuTemplates, labels: Array) -> tuple[Any, Any]:
        on_card = cupy.asarray(labels, dtype=np.int32)
        own, following = cupy.empty(rows.shape[0]), cupy.empty(rows.shape[0])
        for start, stop, block in blocks_of(rows):
            part = on_card[start:stop], own[start:stop], following[start:stop]
            if templates.offsets is not None:
                scores, every = self._all_scores(block, templates), cupy.arange(stop - start)
                part[1][:] = scores[every, part[0]]
                scores[every, part[0]] = -np.inf
                part[2][:] = scores.max(axis=1)
            elif isinstance(block, DenseRows):
                self._score_dense(block, templates, 1, *part)
            else:
                self._score_csr("own_and_next_csr", block, templates, *part)
        return own, following

    def scores(self, rows: Any, templates: GpuTemplates) -> Any:
        out = cupy.empty((rows.shape[0], len(templates)))
        for start, stop, block in blocks_of(rows):
            out[start:stop] = self._all_scores(block, templates)
        return out

    def _all_scores(self, block: Rows, templates: GpuTemplates) -> Any:
        """All scores of a block, offsets included. → (n, k)"""
        out = cupy.empty((block.shape[0], len(templates)))
        if isinstance(block, DenseRows):
            self._score_dense(block, templates, 2, None, None, out)
        else:
            self._score_csr("scores_csr", block, templates, out)
        return out if templates.offsets is None else out + templates.offsets

    def _score_csr(self, kernel: str, rows: SparseRows, templates: GpuTemplates, *arrays: Any) -> None:
        k, n = len(templates), rows.shape[0]
        args = rows.indptr, rows.indices, rows.data, templates.BT, int_(k), long_(n), int_(lanes_of(k))
        launch_rows(kernel, n, *args, *arrays, value=rows.data)

    def _score_dense(self, rows: DenseRows, templates: Templates, mode: int, labels: Any, best: Any, out: Any) -> None:
        (n, p), B, k = rows.X.shape, templates.B, len(templates)
        tiles = min(LARGEST_TILES, -(-k // 8))
        row_tiles = 4 if k <= 24 else 2  # of 8 rows that a warp multiplies at once: as many as the registers hold
        # If the templates do not fit into 48 KB, two large blocks share a multiprocessor: loading them again is slower.
        whole = -(-p // 16) * 16
        small = 64 * tiles * (whole + 1) <= 48 * 1024
        threads, room = (DENSE_THREADS, 48 * 1024) if small else (2 * DENSE_THREADS, largest_shared() // 2 - 1024)
        width = min(whole, (room // (64 * tiles) - 1) // 16 * 16)
        blocks = min(-(-n // (8 * row_tiles * threads // 32)), 6 * processors())
        for first in range(0, k, 8 * tiles):
            args = rows.X, long_(n), int_(p), B, int_(B.shape[1]), int_(k), int_(first), int_(width), int_(mode)
            given = *args, *map(or_null, (labels, best, out))
            macros = {"TILES": tiles, "ROWTILES": row_tiles}
            launch("scores_dense", blocks, threads, *given, value=rows.X, shared=64 * tiles * (width + 1), **macros)

    def sum_by_label(self, rows: Any, labels: Array, weights: FloatArray | None, k: int) -> Any:
        on_card = cupy.asarray(labels, dtype=np.int32)
        w = None if weights is None else cupy.asarray(weights, dtype=np.float64)
        sums = None
        for start, stop, block in blocks_of(rows):
            here = on_card[start:stop], None if w is None else w[start:stop], k
            part = sum_rows(block, *here) if isinstance(block, DenseRows) else self._sum_sparse(block, *here)
            sums = part if sums is None else sums + part
        return sums

    def _sum_sparse(self, rows: SparseRows, labels: Any, weights: Any, k: int) -> Any:
        (row_of, values), (starts, stops, firsts) = columns_of(rows)
        number, p = len(starts), rows.shape[1]
        count = max(1, min(k, largest_shared() // 256))
        sums = cupy.empty((k, p))
        for first in range(0, k, count):
            m = min(count, k - first)
            warps = max(1, min(8, 48 * 1024 // (256 * m)))
            partial = cupy.empty((number, m))
            given = starts, stops, long_(number), row_of, values, labels, or_null(weights)
            args = *given, int_(first), int_(m), partial
            launch("sum_units", -(-number // warps), 32 * warps, *args, value=values, shared=256 * m * warps)
            launch("combine_units", -(-p * m // THREADS), THREADS, partial, firsts, int_(p), int_(first), int_(m), sums)
        return sums

    def row_term(self, rows: Any, function: Any) -> Any:
        out, features = cupy.zeros(rows.shape[0]), cupy.arange(rows.shape[1])
        for start, stop, block in blocks_of(rows):
            here = out[start:stop]
            if isinstance(block, DenseRows):
                X, step = block.X[:, : block.shape[1]], max(1, ENTRIES_PER_TERM // max(1, block.shape[1]))
                for a in range(0, len(here), step):
                    here[a : a + step] = function(X[a : a + step].astype(np.float64), features).sum(axis=1)
                continue
            for a, b, first, last in _stretches(block):
                values = function(block.data[first:last].astype(np.float64), block.indices[first:last])
                args = block.indptr[a:], values, long_(first), long_(b - a), here[a:b]
                launch_rows("row_sums", b - a, *args, value=values)
        return out

    def extremes(self, X: Any) -> tuple[Any, Any]:
        """Smallest and largest stored entry of each row of CuPy data, NaN if one is. → 2 × (n,), on the card"""
        if not hasattr(X, "indptr"):
            return X.min(axis=1).astype(np.float64), X.max(axis=1).astype(np.float64)
        rows: Any = place_whole(X)
        n = rows.shape[0]
        low, high = cupy.empty(n), cupy.empty(n)
        launch_rows("extremes_csr", n, rows.indptr, rows.data, long_(n), low, high, value=rows.data)
        return low, high


def _stretches(rows: SparseRows) -> Iterator[tuple[int, int, int, int]]:
    """Divide rows into stretches of about ENTRIES_PER_TERM entries: first row and end, first entry and end of each."""
    if len(rows.data) <= ENTRIES_PER_TERM:
        yield 0, rows.shape[0], 0, len(rows.data)
        return
    indptr = to_host(rows.indptr)
    for start, stop in cuts_of(indptr, ENTRIES_PER_TERM):
        yield start, stop, int(indptr[start]), int(indptr[stop])


def _team(rows: SparseRows) -> int:
    """Threads that share a row, by the mean number of its entries."""
    mean = len(rows.data) / max(1, rows.shape[0])
    return 8 if mean < 12 else 16 if mean < 24 else 32


class FrozenRows:
    """Some rows against sums that do not change, as :class:`onmf.divergence.Moves` asks for.

    It reads no other rows: those of a streamed block are only on the card for as long as none are fetched.
    """

    def __init__(self, trial: Trial, rows: Rows, which: slice, sums: Any, labels: Any, weights: Any) -> None:
        self._backend, self._rows = trial.block.backend, rows
        self.sums, self.labels, self._weights = sums, labels[which], weights[which]
        self.masses = self._weights * trial.masses[which]  # Σ_j w x_j of each row. → (n,)
        self.squares = self._weights**2 * trial.squares[which]  # ‖w x‖² of each row. → (n,)

    def products(self) -> Any:
        """⟨w x_i, S_c⟩. → (n, k)"""
        templates = self._backend.prepare(self._rows, self.sums)
        return self._weights[:, None] * self._backend.scores(self._rows, templates)

    def rises(self) -> Any:
        """Σ_j f(S_cj + w x_ij) − f(S_cj) with f(t) = t log t; for the own cluster, S without the row. → (n, k)"""
        rows, n, (k, p) = self._rows, self._rows.shape[0], self.sums.shape
        S, steps, out = cupy.ascontiguousarray(self.sums.T), cupy.empty((TABLED, p, k)), cupy.empty((n, k))
        if isinstance(rows, SparseRows):
            stored = rows.indptr, rows.indices, rows.data, int_(0)
        else:
            stored = NULL, NULL, rows.X, int_(rows.X.shape[1])
        launch("entropy_steps", -(-p * k // THREADS), THREADS, S, long_(p * k), int_(TABLED), steps, value=stored[2])
        given = *stored, int_(p), S, steps, int_(TABLED), int_(k), long_(n), int_(lanes_of(k))
        launch_rows("entropy_rises", n, *given, self.labels, self._weights, out, value=stored[2])
        return out


class Trial:
    """Tries the moves of all rows of a block at once, against the sums as they are. Their divergence has moves."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.masses, self.squares = block.backend.row_term(block.rows, lambda x, j: x), block.squares()

    def __call__(self, labels: Array, k: int) -> Array:
        """As :meth:`Backend.trial` says, on the host."""
        block = self.block
        on_card = cupy.asarray(labels, dtype=np.int32)
        weights = cupy.where(on_card >= 0, block.fixed_weights, 0.0)
        on_card = cupy.maximum(on_card, 0)
        sums = block.backend.sum_by_label(block.rows, on_card, weights, k)
        out = cupy.empty(len(block), bool)
        for start, stop, rows in blocks_of(block.rows):
            for first in range(start, stop, TRIED_AT_A_TIME):
                here = slice(first, min(first + TRIED_AT_A_TIME, stop))
                part = some_rows(rows, here.start - start, here.stop - start)
                out[here] = block.divergence.moves.gaining(FrozenRows(self, part, here, sums, on_card, weights))
        return np.asarray(to_host(out))
