"""Measures steps over rows in host memory, for ``python -m benchmarks.gpu``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.backend import GpuBackend, available_cores
from onmf.divergence import KullbackLeibler

from .gpu_tools import WORDS, Row, on_host, rows_on_card, wall

BEYOND = 3 * 10**10
"""Entries from which on rows may use all of the card. Smaller ones get a part of it."""


def streamed(what: str, rows: Any, p: int, repeats: int) -> Iterator[Row]:
    """Measure a step over rows in host memory."""
    entries = rows.nnz if issparse(rows) else rows.size
    backend = GpuBackend(memory=None if entries > BEYOND else min(2 * 10**9, 8 * entries))
    began = perf_counter()
    block = backend.make_block(rows, KullbackLeibler())
    yield Row(f"locked and read once, {what}", 1e3 * (perf_counter() - began))
    run, C = backend.start_run(block), np.random.default_rng(0).random((20, p)) ** 8
    ms = wall(lambda: run.step_from(backend.to_device(C)), max(2, repeats // 3))
    payload = sum(array.nbytes for array in block.rows.arrays.values())
    rate, blocks = payload / ms / 1e6, len(block.rows.cuts)
    target = {"target": "≥ 40 GB/s", "met": rate >= 40} if payload > 1e9 else {}
    yield Row(f"step, {what}", ms, note=f"{rate:.1f} GB/s from the host, {blocks} blocks", **target)


def sparse_on_host(nnz: int, dtype: type, repeats: int) -> Iterator[Row]:
    """Measure a step over sparse rows in host memory."""
    rows = on_host(rows_on_card(nnz, True))
    rows.data = rows.data.astype(dtype)
    what = f"{rows.nnz / 1e6:.0f} M nonzeros on the host, {np.dtype(dtype)}, r = 20"
    yield from streamed(what, rows, WORDS, repeats)


def dense_on_host(n: int, p: int, dtype: type, repeats: int) -> Iterator[Row]:
    """Measure a step over an array in host memory."""
    import cupy

    rows, rng = np.empty((n, p), dtype), cupy.random.default_rng(0)
    made = (100 * rng.random((1_000_000, p), dtype=cupy.float32)).astype(dtype).get()

    def fill(start: int) -> None:
        rows[start : start + len(made)] = made[: n - start]

    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(fill, range(0, n, len(made))))
    yield from streamed(f"array {n} × {p} on the host, {np.dtype(dtype)}, r = 20", rows, p, repeats)
