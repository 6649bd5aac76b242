"""The CPU engine: numba kernels over blocks of rows, in a pool of threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf import kernels
from onmf.divergence import Array, FloatArray

from .base import Data, Engine

ENTRIES_AT_A_TIME = 1 << 18
"""Entries whose row terms are computed together: bounds the float64 copy that :meth:`CpuEngine.row_term` makes."""

WORTH_A_THREAD = 200_000
"""Stored entries times templates below which a block is not worth handing to a thread."""


class CpuEngine(Engine):
    """Dense and CSR rows in memory.

    Results do not depend on the number of threads: the score of a row depends on that row alone, and a sum by label is
    added up by one thread in the order of the rows.

    Parameters
    ----------
    n_threads : int, default=1
        Threads to use.
    """

    name = "cpu"

    def __init__(self, n_threads: int = 1) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}  # threads cannot be pickled, nor copied

    def supports(self, X: Any) -> str | None:
        return None

    def place(self, X: Data) -> Data:
        return X

    def best_template(self, data: Data, templates: FloatArray) -> tuple[Array, FloatArray]:
        n, k = data.shape[0], len(templates)
        labels, best = np.empty(n, dtype=np.int32), np.empty(n)
        BT = np.ascontiguousarray(templates.T)
        if issparse(data):

            def kernel(start: int, stop: int) -> None:
                kernels.best_template_csr(data.indptr, data.indices, data.data, BT, start, stop, labels, best)
        else:

            def kernel(start: int, stop: int) -> None:
                kernels.best_template_dense(data, BT, start, stop, labels, best)

        self.over_blocks(kernel, entries_before(data), k)
        return labels, best

    def sum_by_label(self, data: Data, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        sums = np.zeros((k, data.shape[1]))
        order = np.argsort(labels, kind="stable")
        bounds = np.zeros(k + 1, dtype=np.int64)
        np.cumsum(np.bincount(labels, minlength=k), out=bounds[1:])
        if issparse(data):

            def kernel(start: int, stop: int) -> None:
                kernels.sum_by_label_csr(
                    data.indptr, data.indices, data.data, order, bounds, weights, start, stop, sums
                )
        else:

            def kernel(start: int, stop: int) -> None:
                kernels.sum_by_label_dense(data, order, bounds, weights, start, stop, sums)

        self.over_blocks(kernel, bounds, max(1, data.size // max(1, data.shape[0])))
        return sums

    def row_term(self, data: Data, function: Any) -> FloatArray:
        n = data.shape[0]
        out = np.zeros(n)
        step = max(1, ENTRIES_AT_A_TIME * n // max(1, data.size))
        for start in range(0, n, step):
            stop = min(start + step, n)
            if not issparse(data):
                out[start:stop] = function(data[start:stop].astype(np.float64, copy=False)).sum(axis=1)
                continue
            bounds = data.indptr[start : stop + 1]
            values = function(data.data[bounds[0] : bounds[-1]].astype(np.float64, copy=False))
            filled = np.flatnonzero(np.diff(bounds))
            if len(filled):
                out[start + filled] = np.add.reduceat(values, bounds[filled] - bounds[0])
        return out

    def rows(self, data: Data, index: Array) -> FloatArray:
        chosen = data[index]
        return np.asarray(chosen.toarray() if issparse(chosen) else chosen, dtype=np.float64)

    def over_rows(self, kernel: Callable[[int, int], None], n: int) -> None:
        self.over_blocks(kernel, np.arange(n + 1), WORTH_A_THREAD // 256)

    def over_blocks(self, kernel: Callable[[int, int], None], before: Array, work: int) -> None:
        """Run ``kernel(start, stop)`` over blocks of about equal work that together cover everything.

        ``before`` (m + 1,) holds how many entries lie before each item; ``work`` is what an entry costs.
        """
        m = len(before) - 1
        blocks = min(4 * self.n_threads, m, int(before[-1] - before[0]) * work // WORTH_A_THREAD)
        if self.n_threads == 1 or blocks < 2:
            kernel(0, m)
            return
        pool = self._threads()
        targets = np.linspace(before[0], before[-1], blocks + 1)
        cuts = np.unique([0, *np.searchsorted(before, targets[1:-1]), m])
        for future in [pool.submit(kernel, int(a), int(b)) for a, b in pairwise(cuts)]:
            future.result()

    def _threads(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: a child that finds its parent's pool makes one of its own.
        if self._pool is None or self._pool_process != os.getpid():
            self._pool, self._pool_process = ThreadPoolExecutor(self.n_threads), os.getpid()
        return self._pool


def entries_before(data: Data) -> Array:
    """How many stored entries lie before each row, and in all. → (n + 1,)"""
    return data.indptr if isinstance(data, csr_array) else np.arange(data.shape[0] + 1) * data.shape[1]
