"""The GPU engine: kernels of its own over CuPy arrays.

What one iteration needs stays on the card: rows, templates, labels, scales, sums and centroids. What is asked for with
NumPy arrays (templates, labels) is answered with NumPy arrays, so that starts and searches on the host need not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray

from .base import COUNTED, Assignment, Data, Engine, Held, StepSums, largest_change, only_in_memory
from .device import import_cupy, on_gpu, to_host
from .gpu_crew import Crew, crew_for
from .gpu_rows import DenseRows, Rows, SparseRows, StreamedRows, pinned, place

THREADS = 256
"""Threads of a block, where nothing else decides."""

DENSE_THREADS = 128
"""Threads of a block that scores dense rows: their sums fill the registers."""

UNIT = 4096
"""Entries of one feature that a warp adds up. Fixed, so that every card adds in the same order."""

TALLIED = 1024
"""Rows that a warp counts."""

PARTS = 512
"""Parts of the rows of an array that are summed on their own."""

STRETCHES = 264
"""Parts of the rows of an array that one kernel assigns and sums, at most."""

LARGEST_TILES = 12
"""Tiles of 8 templates that a warp can keep in registers."""

LARGEST_SCREEN = 4
"""Parts of a line of the table that a thread of the screen can keep in registers."""

SHARE = 0.8
"""Share of the free memory of the card that rows may take."""

AT_A_TIME = 1 << 26
"""Entries whose row terms are computed together."""


_coming: deque[tuple[Any, FloatArray]] = deque()
"""Copies to the host that have been begun, and when each is done. Nobody may wait for a step, but its memory must not
be given to somebody else before that."""


@dataclass
class Templates:
    """Templates on the card as the kernels read them: as they are, transposed, and in 16 bits for the screen."""

    B: Any
    BT: Any = None
    table: Any = None
    chunks: int = 0

    def __len__(self) -> int:
        return len(self.B)


@dataclass
class HeldOnGpu(Held):
    """Rows on the card. ``weights`` are on the host, ``own`` the same on the card."""

    own: Any = None
    from_gpu: bool = False
    """Whether the data came as CuPy arrays, so that results go back as such."""

    @property
    def constant(self) -> float:
        """Σ w·constant, the part of the objective that no clustering changes."""
        return float((self.constants if self.own is None else self.constants * self.own).sum())


class GpuEngine(Engine):
    """Dense and CSR rows on a GPU, or streamed through it where they are larger than its memory.

    Parameters
    ----------
    n_threads : int, default=1
        Threads for what runs on the host: SNPA's projections and the local search.
    memory : int or None, default=None
        Bytes of the card that rows may take; None for most of what is free. Rows that need more are streamed.
    """

    name = "gpu"

    def __init__(self, n_threads: int = 1, memory: int | None = None) -> None:
        import_cupy()
        self.n_threads, self.memory = n_threads, memory

    @property
    def cupy(self) -> Any:
        """CuPy."""
        import cupy

        return cupy

    def runs_ahead(self, held: Held) -> bool:
        return not isinstance(held.data, StreamedRows)

    def supports(self, X: Any) -> str | None:
        reason = only_in_memory(X)
        if reason is None and max(X.shape) >= 2**31:
            return f"it is {X.shape[0]} × {X.shape[1]}, and this engine counts rows and features in 32 bits."
        return reason

    def place(self, X: Data) -> Rows | StreamedRows:
        if isinstance(X, SparseRows | DenseRows | StreamedRows):
            return X
        budget = self.memory
        if budget is None:
            pool = self.cupy.get_default_memory_pool()
            budget = int(SHARE * (self.cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()))
        return place(self.cupy, X, budget)

    def bring(self, array: Any) -> Any:
        return self.cupy.asarray(array)

    def by_row(self, held: Held, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        on_card = None if labels is None else self.bring(labels)
        return self.keep(held, *super().by_row(held, function, *args, labels=on_card))

    def keep(self, held: Held, *arrays: Any) -> tuple[Any, ...]:
        assert isinstance(held, HeldOnGpu)
        return tuple(map(self.bring if held.from_gpu else to_host, arrays))

    def hold(self, X: Data, divergence: Divergence, sample_weight: FloatArray | None = None) -> HeldOnGpu:
        data = self.place(X)
        terms = {name: self._row_term(data, function) for name, function in divergence.row_terms.items()}
        terms["features"] = np.float64(X.shape[1])
        own = None if sample_weight is None else self.bring(sample_weight)
        weights, constants = to_host(sample_weight), divergence.constant(terms)
        return HeldOnGpu(data, X.shape, divergence, weights, terms, constants, own=own, from_gpu=on_gpu(X))

    # Templates

    def prepare(
        self, held: Held, centroids: FloatArray, templates: Callable[[FloatArray], FloatArray] | None = None
    ) -> Templates:
        centroids = self.bring(centroids)
        return self._prepared(held.data, centroids if templates is None else templates(centroids), held.memory)

    def _prepared(self, data: Any, B: Any, memory: dict[str, Any]) -> Templates:
        cupy = self.cupy
        B = cupy.ascontiguousarray(self.bring(B), dtype=np.float64)
        k, p = B.shape
        if not _sparse(data):
            return Templates(B)
        chunks = -(-(k + 2) // 8)
        if k < 3 or chunks > 32 * LARGEST_SCREEN:
            chunks = 0
        last: Templates | None = memory.get("templates")
        if last is None or last.BT.shape != (p, k):
            last = Templates(B, cupy.empty((p, k)), cupy.zeros((p, 8 * max(chunks, 1)), np.uint16), chunks)
            memory["templates"] = last
        self._run("template_table", -(-p // 32), THREADS, B, _int(k), _int(p), _int(chunks), last.BT, last.table)
        return Templates(B, last.BT, last.table, chunks)

    def _ready(self, data: Any, templates: Any) -> Templates:
        return templates if isinstance(templates, Templates) else self._prepared(data, templates, {})

    # The two passes

    def best_template(self, data: Any, templates: Any) -> tuple[Any, Any]:
        T, cupy = self._ready(data, templates), self.cupy
        n, k = data.shape[0], len(T)
        labels, best = cupy.empty(n, np.int32), cupy.empty(n)
        for start, stop, rows in self._blocks(data):
            out = labels[start:stop], best[start:stop]
            if isinstance(rows, DenseRows):
                self._score_dense(rows, T, 0, *out, None)
            elif T.chunks:
                lanes = min(32, _power_of_two(T.chunks))
                team = max(lanes, _team(rows))
                macros = {"TEAM": team, "LANES": lanes, "PARTS": -(-T.chunks // lanes)}
                blocks = -(-rows.shape[0] * team // THREADS)
                args = rows.indptr, rows.indices, rows.data, T.BT, T.table, _int(k), _int(T.chunks), _long(len(out[0]))
                self._run("best_template_screened", blocks, THREADS, *args, *out, value=rows.data, **macros)
            else:
                self._score_csr("best_template_csr", rows, T, *out)
        return (to_host(labels), to_host(best)) if isinstance(templates, np.ndarray) else (labels, best)

    def own_and_next(self, data: Any, templates: Any, labels: Array) -> tuple[Any, Any]:
        T, cupy = self._ready(data, templates), self.cupy
        n = data.shape[0]
        on_card = cupy.asarray(labels, dtype=np.int32)
        own, following = cupy.empty(n), cupy.empty(n)
        for start, stop, rows in self._blocks(data):
            part = on_card[start:stop], own[start:stop], following[start:stop]
            if isinstance(rows, DenseRows):
                self._score_dense(rows, T, 1, *part)
            else:
                self._score_csr("own_and_next_csr", rows, T, *part)
        return (to_host(own), to_host(following)) if isinstance(labels, np.ndarray) else (own, following)

    def scores(self, data: Any, templates: Any) -> Any:
        T = self._ready(data, templates)
        out = self.cupy.empty((data.shape[0], len(T)))
        for start, stop, rows in self._blocks(data):
            if isinstance(rows, DenseRows):
                self._score_dense(rows, T, 2, None, None, out[start:stop])
            else:
                self._score_csr("scores_csr", rows, T, out[start:stop])
        return to_host(out) if isinstance(templates, np.ndarray) else out

    def _score_csr(self, kernel: str, rows: SparseRows, T: Templates, *arrays: Any) -> None:
        k, n = len(T), rows.shape[0]
        lanes = min(32, _power_of_two(k))
        args = rows.indptr, rows.indices, rows.data, T.BT, _int(k), _long(n), _int(lanes)
        self._run(kernel, -(-n * 32 // THREADS), THREADS, *args, *arrays, value=rows.data)

    def _score_dense(self, rows: DenseRows, T: Templates, mode: int, labels: Any, best: Any, out: Any) -> None:
        (n, p), k = rows.shape, len(T)
        tiles = min(LARGEST_TILES, -(-k // 8))
        row_tiles = _row_tiles(k)
        width = min(-(-p // 16) * 16, (48 * 1024 // (64 * tiles) - 1) // 16 * 16)
        blocks = min(-(-n // (8 * row_tiles * DENSE_THREADS // 32)), 6 * _processors())
        for first in range(0, k, 8 * tiles):
            args = rows.X, _long(n), _int(p), T.B, _int(k), _int(first), _int(width), _int(mode)
            arrays = (_null() if array is None else array for array in (labels, best, out))
            shared = 8 * tiles * (width + 1) * 8
            macros = {"TILES": tiles, "ROWTILES": row_tiles}
            self._run("scores_dense", blocks, DENSE_THREADS, *args, *arrays, value=rows.X, shared=shared, **macros)

    def sum_by_label(self, data: Any, labels: Array, weights: FloatArray | None, k: int) -> Any:
        cupy = self.cupy
        on_card = cupy.asarray(labels, dtype=np.int32)
        w = None if weights is None else cupy.asarray(weights, dtype=np.float64)
        sums = None
        for start, stop, rows in self._blocks(data):
            here = on_card[start:stop], None if w is None else w[start:stop], k
            part = self._sum_dense(rows, *here) if isinstance(rows, DenseRows) else self._sum_sparse(rows, *here)
            sums = part if sums is None else sums + part
        return to_host(sums) if isinstance(labels, np.ndarray) else sums

    def _sum_sparse(self, rows: SparseRows, labels: Any, weights: Any, k: int) -> Any:
        if "columns" not in rows.memory:
            rows.memory["columns"] = self._columns(rows)
        by_feature, units, values = rows.memory["columns"]
        return self._sum_units(units, by_feature, values, labels, weights, k)

    def _sum_dense(self, rows: DenseRows, labels: Any, weights: Any, k: int) -> Any:
        n, p = rows.shape
        width = min(THREADS, -(-p // 32) * 32)
        count = max(1, min(k, _largest_shared() // (8 * width)))
        rows_of_a_part = max(64, -(-n // PARTS))
        parts = -(-n // rows_of_a_part)
        sums = self.cupy.empty((k, p))
        for first in range(0, k, count):
            m = min(count, k - first)
            partial, total = self.cupy.empty((parts, m, p)), sums[first : first + m]
            given = rows.X, _int(p), _long(n), labels, _null() if weights is None else weights
            which = _int(first), _int(m), _long(rows_of_a_part)
            grid = parts, -(-p // width)
            self._run("sum_dense", grid, width, *given, *which, partial, value=rows.X, shared=8 * m * width)
            self._combine(partial, total)
        return sums

    def _combine(self, partial: Any, out: Any) -> None:
        """The sum of partial results over their parts, into ``out``."""
        self._run("combine_parts", -(-out.size // 32), 1024, partial, _long(len(partial)), _long(out.size), out)

    def _columns(self, rows: SparseRows) -> tuple[Any, _Units, Any]:
        """The entries by feature: row and value of each, and the stretches of them that warps add up."""
        cupy = self.cupy
        n, p = rows.shape
        row_of = cupy.empty(len(rows.indices), np.int32)
        self._run("row_of_entry", -(-n * 32 // THREADS), THREADS, rows.indptr, _long(n), row_of)
        counts = to_host(cupy.bincount(rows.indices, minlength=p)) if len(rows.indices) else np.zeros(p, np.int64)
        order = cupy.argsort(rows.indices, kind="stable")
        row_of = row_of[order]
        return row_of, _units(cupy, np.concatenate([[0], np.cumsum(counts)])), rows.data[order]

    def _sum_units(self, units: _Units, by_feature: Any, values: Any, labels: Any, weights: Any, k: int) -> Any:
        p = len(units.of_feature) - 1
        count = max(1, min(k, _largest_shared() // 256))
        sums = self.cupy.empty((k, p))
        for first in range(0, k, count):
            m = min(count, k - first)
            warps = max(1, min(8, 48 * 1024 // (256 * m)))
            partial = self.cupy.empty((units.number, m))
            if units.number:
                which = units.starts, units.stops, _long(units.number)
                rows = labels, _null() if weights is None else weights
                blocks, shared = -(-units.number // warps), 256 * m * warps
                args = *which, by_feature, values, *rows, _int(first), _int(m), partial
                self._run("sum_units", blocks, 32 * warps, *args, value=values, shared=shared)
            of_feature = partial, units.of_feature, _int(p), _int(first), _int(m)
            self._run("combine_units", -(-p * m // THREADS), THREADS, *of_feature, sums)
        return sums

    def row_term(self, data: Any, function: Any) -> FloatArray:
        return to_host(self._row_term(data, function))

    def _row_term(self, data: Any, function: Any) -> Any:
        out = self.cupy.zeros(data.shape[0])
        for start, stop, rows in self._blocks(data):
            here = out[start:stop]
            if isinstance(rows, DenseRows):
                step = max(1, AT_A_TIME // max(1, rows.shape[1]))
                for a in range(0, len(here), step):
                    here[a : a + step] = function(rows.X[a : a + step].astype(np.float64)).sum(axis=1)
                continue
            for a, b, first, last in _stretches(rows):
                values = function(rows.data[first:last].astype(np.float64))
                args = rows.indptr[a:], values, _long(first), _long(b - a), here[a:b]
                self._run("row_sums", -(-(b - a) * 32 // THREADS), THREADS, *args, value=values)
        return out

    def extremes(self, X: Any) -> tuple[Any, Any]:
        """Smallest and largest stored entry of each row of CuPy data, NaN where one is. → 2 × (n,), on the card"""
        rows = self.place(X)
        assert not isinstance(rows, StreamedRows)
        if isinstance(rows, DenseRows):
            return rows.X.min(axis=1).astype(np.float64), rows.X.max(axis=1).astype(np.float64)
        n = rows.shape[0]
        low, high = self.cupy.empty(n), self.cupy.empty(n)
        args = rows.indptr, rows.data, _long(n), low, high
        self._run("extremes_csr", -(-n * 32 // THREADS), THREADS, *args, value=rows.data)
        return low, high

    # A step

    def assign(self, held: Held, templates: Any) -> Assignment:
        found = super().assign(held, self._ready(held.data, templates))
        return Assignment(*map(to_host, found)) if isinstance(templates, np.ndarray) else found

    def step(self, held: Held, templates: Any) -> StepSums:
        templates = self._ready(held.data, templates)
        assert isinstance(held, HeldOnGpu)
        if not isinstance(held.data, StreamedRows):
            return self._arriving(self._step_at_once(held, templates) or super().step(held, templates))
        labels, scales = self.cupy.empty(held.shape[0], np.int32), self.cupy.empty(held.shape[0])
        total: StepSums | None = None
        for start, stop, rows in held.data:
            block = _block(held, rows, slice(start, stop))
            step = self._step_at_once(block, templates) or super().step(block, templates)
            labels[start:stop], scales[start:stop] = block.labels, block.scales
            total = step if total is None else total + step
        held.labels, held.scales = labels, scales
        assert total is not None
        return self._arriving(total)

    def _arriving(self, step: StepSums) -> StepSums:
        """A step whose table is on its way to the host."""
        table: Any = step.table
        host = pinned(self.cupy, table.size, np.float64).reshape(table.shape)
        table.get(out=host, blocking=False)
        here = self.cupy.cuda.Event(disable_timing=True)
        here.record()
        while _coming and _coming[0][0].done:
            _coming.popleft()
        _coming.append((here, host))

        def wait() -> FloatArray:
            here.synchronize()
            return host

        return StepSums(step.sums, step.table, wait)

    def _step_at_once(self, held: HeldOnGpu, templates: Templates) -> StepSums | None:
        """A step that reads an array once; None where the weights are not fixed or scores, or where it does not fit."""
        rows, k, divergence = held.data, len(templates), held.divergence
        known = divergence.fixed_weights or divergence.score_weights
        if not (isinstance(rows, DenseRows) and known and divergence.finite_templates):
            return None
        if rows.X.size == 0 or rows.X.data.ptr % 16:
            return None
        crew = crew_for(rows.shape[1], rows.X.itemsize, k, _largest_shared())
        if crew is None:
            return None
        if "norms" not in held.memory:
            held.memory["norms"] = self.cupy.sqrt(self._row_term(rows, np.square)).astype(np.float32)
        weights = None if divergence.score_weights else self.row_weights(held, held.constants)
        factors = held.own if weights is None else None if self._plain(held, weights) else weights
        labels, best, sums = self._label_and_sum(crew, held, rows.X, templates.B, factors, weights is None)
        scales = divergence.scale(best, held.terms)
        found = Assignment(labels, scales, held.constants - divergence.gain(best, scales, held.terms))
        table = self.tally(held, found, self.row_weights(held, scales) if weights is None else weights, k)
        held.labels, held.scales = labels, scales
        step = StepSums(sums, table)
        held.memory["sizes"] = step.near("counts")
        return step

    def _label_and_sum(self, crew: Crew, held: Held, X: Any, B: Any, factors: Any, by_score: bool) -> tuple[Any, ...]:
        """Labels and best scores of the rows of an array, and their sums by label, weighted by factors and scores."""
        cupy, (n, p), k = self.cupy, X.shape, len(B)
        tiles = -(-n // (STRETCHES * crew.tile))
        stretches = -(-n // (tiles * crew.tile))
        of_a_block = -(-stretches // _processors())
        sizes = held.memory.get("sizes")  # of the step before, so that adders have about as much to do
        before = None if held.labels is None or sizes is None or len(sizes) != k else sizes
        counts, weights = (_null() if array is None else array for array in (before, factors))
        given = held.memory["norms"], B, _int(k), counts, weights, _int(tiles), _int(of_a_block)
        labels, best, sums = cupy.empty(n, np.int32), cupy.empty(n), cupy.empty((k, p))
        owners, partial = cupy.empty(crew.duties, np.int32), cupy.empty((stretches, crew.duties, p))
        macros = crew.macros | {"WEIGHTED": int(factors is not None), "BY_SCORE": int(by_score)}
        blocks, shared = -(-stretches // of_a_block), crew.asked_for(X.itemsize)
        args = X, _long(n), *given, labels, best, owners, partial
        self._run("step_dense", blocks, crew.threads, *args, value=X, shared=shared, **macros)
        of_duties = partial, _int(stretches), owners, _int(crew.duties)
        self._run("combine_duties", -(-k * p // 32), 1024, *of_duties, _int(k), _int(p), sums)
        return labels, best, sums

    def update(self, divergence: Divergence, step: StepSums, W: FloatArray) -> Callable[[], float]:
        if isinstance(step.sums, np.ndarray):
            return super().update(divergence, step, W)
        (k, p), before = W.shape, self.cupy.empty_like(W)
        new = divergence.centers(step.sums, step.near("mass"))
        self._run("put_filled", -(-k * p // THREADS), THREADS, step.table, _int(k), _int(p), new, W, before)
        return lambda: 0.0 if step.empty.all() else largest_change(before[~step.empty], new[~step.empty])

    def row_weights(self, held: Held, scales: FloatArray) -> Any:
        assert isinstance(held, HeldOnGpu)
        if held.fixed is None or not held.divergence.fixed_weights:
            weights = held.divergence.weight(self.bring(scales), held.terms)
            weights = weights if held.own is None else weights * held.own
            if held.divergence.fixed_weights:
                held.fixed = weights
        else:
            weights = held.fixed
        return to_host(weights) if isinstance(scales, np.ndarray) else weights

    def sums_of(self, held: Held, labels: Array, weights: FloatArray, k: int) -> Any:
        return self.sum_by_label(held.data, labels, None if self._plain(held, weights) else weights, k)

    def _plain(self, held: Held, weights: Any) -> bool:
        """Whether all weights are one, and stay so."""
        if "plain" not in held.memory:
            held.memory["plain"] = held.divergence.fixed_weights and bool((weights == 1).all())
        return bool(held.memory["plain"])

    def tally(self, held: Held, found: Assignment, weights: FloatArray, k: int) -> Any:
        assert isinstance(held, HeldOnGpu)
        cupy = self.cupy
        n = len(found.labels)
        labels = cupy.asarray(found.labels, dtype=np.int32)
        before = [_null() if array is None else self.bring(array) for array in (held.labels, held.scales)]
        own = _null() if held.own is None else held.own
        scales, losses, weights = (cupy.ascontiguousarray(a) for a in (found.scales, found.losses, self.bring(weights)))
        count = max(1, min(k, _largest_shared() // 256))
        kinds, parts = len(COUNTED), -(-n // TALLIED)
        table = cupy.empty((kinds, k))
        for first in range(0, k, count):
            m = min(count, k - first)
            warps = max(1, min(8, 48 * 1024 // (256 * m)))
            partial, sums = cupy.empty((parts, kinds, m)), table if m == k else cupy.empty((kinds, m))
            rows = labels, before[0], scales, before[1], losses, weights, own, _long(n), _long(TALLIED)
            grid = -(-parts // warps), kinds
            self._run("tally_rows", grid, 32 * warps, *rows, _int(first), _int(m), partial, shared=256 * m * warps)
            self._combine(partial, sums)
            if m < k:
                table[:, first : first + m] = sums
        return table

    # What runs on the host

    def on_host(self, data: Any) -> Data:
        return data.on_host()

    def take(self, data: Any, index: Array) -> Data:
        return data.take(to_host(index))

    def over_rows(self, kernel: Callable[[int, int], None], n: int) -> None:
        from .cpu import CpuEngine

        CpuEngine(self.n_threads).over_rows(kernel, n)

    def _blocks(self, data: Any) -> Iterator[tuple[int, int, Rows]]:
        return iter(data) if isinstance(data, StreamedRows) else iter([(0, data.shape[0], data)])

    def _run(
        self,
        name: str,
        blocks: int | tuple[int, ...],
        threads: int,
        *args: Any,
        value: Any = None,
        shared: int = 0,
        **macros: int,
    ) -> None:
        """Run a kernel, compiled for the type of ``value`` and for macros."""
        grid = blocks if isinstance(blocks, tuple) else (blocks,)
        if 0 in grid:
            return
        kernel = _kernel(name, None if value is None else value.dtype.char, tuple(macros.items()), shared > 48 * 1024)
        kernel(grid, (threads,), args, shared_mem=shared)


@dataclass(frozen=True)
class _Units:
    """Stretches of at most UNIT entries of one feature: where each starts and stops, and those of each feature."""

    starts: Any
    stops: Any
    of_feature: Any
    number: int


def _units(cupy: Any, bounds: Array) -> _Units:
    """The stretches of features whose entries lie between these bounds. (p + 1,)"""
    bounds = np.asarray(bounds, dtype=np.int64)
    numbers = -(-np.diff(bounds) // UNIT)
    of_feature = np.concatenate([[0], np.cumsum(numbers)])
    feature = np.repeat(np.arange(len(numbers)), numbers)
    starts = bounds[feature] + (np.arange(len(feature)) - of_feature[feature]) * UNIT
    stops = np.minimum(starts + UNIT, bounds[feature + 1])
    on_card = [cupy.asarray(a.astype(np.int64)) for a in (starts, stops, of_feature)]
    return _Units(on_card[0], on_card[1], on_card[2], len(feature))


def _stretches(rows: SparseRows) -> Iterator[tuple[int, int, int, int]]:
    """Rows start to stop that hold about AT_A_TIME entries, and which entries these are."""
    n, entries = rows.shape[0], len(rows.data)
    if entries <= AT_A_TIME:
        yield 0, n, 0, entries
        return
    indptr = to_host(rows.indptr)
    start = 0
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + AT_A_TIME, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield start, stop, int(indptr[start]), int(indptr[stop])
        start = stop


def _block(held: HeldOnGpu, rows: Rows, part: slice) -> HeldOnGpu:
    """Some of the rows, with what is known of them."""

    def cut(array: Any) -> Any:
        return array[part] if np.ndim(array) else array

    return replace(
        held,
        data=rows,
        shape=rows.shape,
        terms={name: cut(term) for name, term in held.terms.items()},
        constants=held.constants[part],
        weights=None if held.weights is None else held.weights[part],
        own=None if held.own is None else held.own[part],
        labels=None if held.labels is None else held.labels[part],
        scales=None if held.scales is None else held.scales[part],
        fixed=None,
        memory={},
    )


@lru_cache(maxsize=256)
def _kernel(name: str, value: str | None, macros: tuple[tuple[str, int], ...], much_shared: bool) -> Any:
    """A kernel, compiled for a type of entries and for macros; where it needs much shared memory, it may have all."""
    kernel = _module("gpu_step.cu" if name == "step_dense" else "gpu_kernels.cu", value, macros).get_function(name)
    if much_shared:
        kernel.max_dynamic_shared_size_bytes = _largest_shared() - kernel.shared_size_bytes
    return kernel


@lru_cache(maxsize=64)
def _module(file: str, value: str | None, macros: tuple[tuple[str, int], ...]) -> Any:
    import cupy

    options = ["-std=c++17", *(f"-D{name}={number}" for name, number in macros)]
    if value is not None:
        options.append(f"-DVALUE={'float' if value == 'f' else 'double'}")
    sources = (files("onmf.engine").joinpath(name).read_text(encoding="utf-8") for name in ("gpu_common.cuh", file))
    return cupy.RawModule(code="\n".join(sources), options=tuple(options))


@lru_cache(maxsize=1)
def _processors() -> int:
    import cupy

    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])


@lru_cache(maxsize=1)
def _largest_shared() -> int:
    """Bytes of shared memory that a block can have."""
    import cupy

    return int(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def _row_tiles(k: int) -> int:
    """Tiles of 8 rows that a warp multiplies with k templates at once: as many as the registers hold."""
    return 4 if k <= 24 else 2


def _team(rows: SparseRows) -> int:
    """Threads that share a row, by the mean number of its entries."""
    mean = len(rows.data) / max(1, rows.shape[0])
    return 8 if mean < 12 else 16 if mean < 24 else 32


def _sparse(data: Any) -> bool:
    from scipy.sparse import issparse

    return issparse(data.source) if isinstance(data, StreamedRows) else isinstance(data, SparseRows)


def _power_of_two(number: int) -> int:
    """The lowest power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()


def _int(number: int) -> np.int32:
    return np.int32(number)


def _long(number: int) -> np.int64:
    return np.int64(number)


def _null() -> np.uint64:
    return np.uint64(0)
