"""Times and data for the measurements of the GPU engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Block, to_host
from onmf.backend.gpu.rows import SparseRows
from onmf.data import InMemory
from onmf.fit.loop import alternate

WORDS = 50_000


@dataclass(frozen=True)
class Row:
    """A measured time; ``floor`` is the time that moving the necessary bytes takes at least."""

    what: str
    milliseconds: float
    target: str = ""
    met: bool | None = None
    floor: float | None = None
    note: str = ""


def timed(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call on the GPU, in milliseconds."""
    import cupy

    function()
    times = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop))
    return median(times)


def wall(function: Callable[[], object], repeats: int) -> float:
    """Return the median wall-clock time of a call, in milliseconds."""
    import cupy

    function()
    times = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        began = perf_counter()
        function()
        cupy.cuda.Device().synchronize()
        times.append(1e3 * (perf_counter() - began))
    return median(times)


def iteration(block: Block, C: Any, iterations: int, tries: int = 3) -> float:
    """Return the milliseconds of an iteration: the median over ``tries`` of the extra time of ``iterations`` more."""
    start, data = to_host(C), InMemory(block)

    def run(max_iter: int) -> tuple[float, int]:
        began = perf_counter()
        ended = alternate(data, start.copy(), max_iter=max_iter, tol=0.0)
        to_host(data.part.run.collect()[0])
        return perf_counter() - began, len(ended.iterations)

    run(1 + iterations)  # the first launches are slower
    times = []
    for _ in range(tries):
        (short, few), (long, many) = run(1), run(1 + iterations)
        times.append(1e3 * (long - short) / (many - few))
    return median(times)


def rows_on_card(nnz: int, zipf: bool) -> SparseRows:
    """Generate about ``nnz`` counts in rows of about 100 different words, sorted."""
    import cupy

    rng = cupy.random.default_rng(0)
    draws = 140 if zipf else 100
    per_row = 101.3 if zipf else 99.9
    n = int(nnz / per_row)
    parts, lengths = [], []
    for start in range(0, n, 250_000):
        u = rng.random((min(250_000, n - start), draws), dtype=cupy.float32)
        words = cupy.exp(u * np.log(WORDS + 1)) - 1 if zipf else u * WORDS
        words = cupy.sort(cupy.minimum(words.astype(cupy.int32), WORDS - 1), axis=1)
        if zipf:
            words = (words.astype(cupy.int64) * 7919 % WORDS).astype(cupy.int32)  # spread the frequent words
            words.sort(axis=1)
        is_new = cupy.ones(words.shape, dtype=bool)
        is_new[:, 1:] = words[:, 1:] != words[:, :-1]
        parts.append(words[is_new])
        lengths.append(is_new.sum(axis=1))
    indices = cupy.concatenate(parts)
    indptr = cupy.zeros(n + 1, dtype=cupy.int64)
    cupy.cumsum(cupy.concatenate(lengths), out=indptr[1:])
    data = rng.poisson(0.5, len(indices)).astype(cupy.float32) + 1
    return SparseRows(indptr, indices, data, (n, WORDS))


def on_host(rows: SparseRows) -> csr_array:
    """Copy sparse rows from the card."""
    return csr_array((to_host(rows.data), to_host(rows.indices), to_host(rows.indptr)), shape=rows.shape)
