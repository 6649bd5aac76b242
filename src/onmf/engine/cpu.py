"""The CPU engine: numba kernels over blocks of rows, in a pool of threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf import kernels
from onmf.divergence import Array, FloatArray

from .base import COUNTED, Assignment, Data, Engine, Held, only_in_memory
from .reference import all_scores

ENTRIES_AT_A_TIME = 1 << 18
"""Entries whose row terms are computed together: bounds the float64 copy that :meth:`CpuEngine.row_term` makes."""

WORTH_A_THREAD = 200_000
"""Stored entries times templates below which a block is not worth handing to a thread."""

CLUSTERS_AT_A_TIME = 8
"""Clusters whose templates or centroids are computed together: a cache line of their transpose."""

PARTS = 8
"""Parts of the rows of an array that are summed on their own, whatever the number of threads."""

NOTHING = np.empty(0)

EXACT = 2.0**53
"""Sums of integers below this are exact in float64."""


@dataclass(frozen=True)
class Templates:
    """Templates as the kernels read them: −∞ as a huge number, and transposed for sparse rows."""

    B: FloatArray
    k: int
    infinite: bool

    def __len__(self) -> int:
        return self.k


class CpuEngine(Engine):
    """Dense and CSR rows in memory.

    Results do not depend on the number of threads: the score of a row depends on that row alone, and a sum by label is
    added up by one thread in the order of the rows, or for an array in parts that are always the same.

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
        return only_in_memory(X)

    def place(self, X: Data) -> Data:
        return X

    def prepare(
        self, held: Held, centroids: FloatArray, templates: Callable[[FloatArray], FloatArray] | None = None
    ) -> Templates:
        return self._prepared(held.data, centroids, templates, held.memory)

    def _prepared(self, data: Data, centroids: FloatArray, templates: Any, memory: dict[str, Any]) -> Templates:
        k, p = centroids.shape
        shape = (p, k) if issparse(data) else (round_up(k, 2), p)
        B = memory.get("templates")
        if B is None or B.shape != shape:  # fresh memory is slow: what an iteration needs is kept for the next
            B = memory["templates"] = np.zeros(shape)
        infinite = []

        def block(start: int, stop: int) -> None:
            part = centroids[start:stop] if templates is None else templates(centroids[start:stop])
            if issparse(data):
                infinite.append(kernels.transpose_templates(part, B, start))
            else:
                infinite.append(bool((part < kernels.INFINITE).any()))
                np.maximum(part, kernels.INFINITE, out=B[start:stop])

        self.over_clusters(block, k, p)
        return Templates(B, k, any(infinite))

    def best_template(self, data: Data, templates: FloatArray | Templates) -> tuple[Array, FloatArray]:
        templates = self._ready(data, templates)
        labels, best = np.empty(data.shape[0], dtype=np.int32), np.empty(data.shape[0])
        self._score(kernels.best_template_csr, kernels.best_template_dense, data, templates, labels, best)
        if templates.infinite:  # a row that no template can explain is a tie
            hopeless = best < INFINITE_SCORE
            labels[hopeless], best[hopeless] = 0, -np.inf
        return labels, best

    def own_and_next(
        self, data: Data, templates: FloatArray | Templates, labels: Array
    ) -> tuple[FloatArray, FloatArray]:
        templates = self._ready(data, templates)
        own, following = np.empty(data.shape[0]), np.empty(data.shape[0])
        self._score(kernels.own_and_next_csr, kernels.own_and_next_dense, data, templates, labels, own, following)
        if templates.infinite:
            own[own < INFINITE_SCORE] = following[following < INFINITE_SCORE] = -np.inf
        return own, following

    def _ready(self, data: Data, templates: FloatArray | Templates) -> Templates:
        return templates if isinstance(templates, Templates) else self._prepared(data, templates, None, {})

    def _score(self, sparse: Any, dense: Any, data: Data, templates: Templates, *arrays: Array) -> None:
        """Run the kernel for the kind of data over all rows, with arrays it reads or writes by row."""
        k, B = templates.k, templates.B
        if issparse(data):

            def kernel(start: int, stop: int) -> None:
                sparse(data.indptr, data.indices, data.data, B, k, start, stop, *arrays)
        else:

            def kernel(start: int, stop: int) -> None:
                dense(data, B, k, start, stop, *arrays)

        self.over_blocks(kernel, entries_before(data), k)

    def scores(self, data: Data, templates: FloatArray) -> FloatArray:
        return all_scores(data, templates)

    def sum_by_label(
        self, data: Data, labels: Array, weights: FloatArray, k: int, out: FloatArray | None = None
    ) -> FloatArray:
        if out is None:
            sums = np.zeros((k, data.shape[1]))
        else:
            sums = out
            sums[:] = 0.0
        work = max(1, data.size // max(1, data.shape[0]))
        if issparse(data):
            order = np.empty(len(labels), dtype=np.int32 if len(labels) < 2**31 else np.int64)
            bounds = np.zeros(k + 1, dtype=np.int64)
            kernels.order_by_label(labels, bounds, order)

            def clusters(start: int, stop: int) -> None:
                kernels.sum_by_label_csr(
                    data.indptr, data.indices, data.data, order, bounds, weights, start, stop, sums
                )

            self.over_blocks(clusters, bounds, work)
            return sums
        cuts = np.linspace(0, len(labels), PARTS + 1).astype(np.int64)
        parts = [sums, *np.zeros((PARTS - 1, *sums.shape))]

        def rows(start: int, stop: int) -> None:
            for part in range(start, stop):
                kernels.sum_by_label_dense(data, labels, weights, cuts[part], cuts[part + 1], parts[part])

        self.over_blocks(rows, cuts, work)
        for part in parts[1:]:
            sums += part
        return sums

    def tally(self, held: Held, found: Assignment, weights: FloatArray, k: int) -> FloatArray:
        labels, scales, losses = found
        before = NOTHING.astype(labels.dtype) if held.labels is None else held.labels
        scales_before = NOTHING if held.scales is None else held.scales
        own = NOTHING if held.weights is None else held.weights
        table = np.zeros((len(COUNTED), k))
        kernels.tally(labels, before, scales, scales_before, losses, weights, own, table)
        return table

    def sums_of(self, held: Held, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """The sums of a step; where they are exact and few rows moved, those of the last step follow these rows."""
        last: _Sums | None = held.memory.get("sums")
        if last is not None and len(last.sums) == k and weights is last.weights and self.exact(held, weights):
            moved = np.flatnonzero(labels != last.labels)
            if 4 * len(moved) < len(labels):
                if issparse(held.data):
                    X = held.data
                    kernels.move_rows_csr(X.indptr, X.indices, X.data, moved, last.labels, labels, weights, last.sums)
                else:
                    kernels.move_rows_dense(held.data, moved, last.labels, labels, weights, last.sums)
                held.memory["sums"] = _Sums(last.sums, labels, weights)
                return last.sums
        room = None if last is None or len(last.sums) != k else last.sums
        sums = self.sum_by_label(held.data, labels, weights, k, out=room)
        held.memory["sums"] = _Sums(sums, labels, weights)
        return sums

    def exact(self, held: Held, weights: FloatArray) -> bool:
        """Whether sums of rows with these weights, fixed ones, are exact: integers that float64 can count."""
        if "exact" not in held.memory:
            entries = (held.data.data if issparse(held.data) else held.data).reshape(-1)
            cuts = np.linspace(0, len(entries), 65).astype(np.int64)
            totals = [np.inf]
            if np.isfinite(kernels.total_if_whole(weights, 0, len(weights))):
                totals = []
                self.over_blocks(
                    lambda start, stop: totals.append(kernels.total_if_whole(entries, cuts[start], cuts[stop])), cuts, 1
                )
            held.memory["exact"] = float(weights.max()) * sum(totals) < EXACT
        return bool(held.memory["exact"])

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

    @property
    def runs_at_once(self) -> int:
        return self.n_threads

    def share(self) -> CpuEngine:
        return CpuEngine(1)

    def warm_up(self, held: Held) -> None:
        if held.divergence.fixed_weights:
            self.exact(held, self.row_weights(held, np.ones(held.shape[0])))

    def over_rows(self, kernel: Callable[[int, int], None], n: int) -> None:
        self.over_blocks(kernel, np.arange(n + 1), WORTH_A_THREAD // 256)

    def over_clusters(self, kernel: Callable[[int, int], None], k: int, p: int) -> None:
        m = round_up(k, CLUSTERS_AT_A_TIME) // CLUSTERS_AT_A_TIME

        def groups(start: int, stop: int) -> None:
            for group in range(start, stop):
                kernel(group * CLUSTERS_AT_A_TIME, min((group + 1) * CLUSTERS_AT_A_TIME, k))

        self.over_blocks(groups, np.arange(m + 1), 8 * CLUSTERS_AT_A_TIME * p)

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
        tasks = deque((int(a), int(b)) for a, b in pairwise(cuts))

        def work_off() -> None:
            while tasks:
                try:
                    start, stop = tasks.popleft()
                except IndexError:  # another thread was faster
                    return
                kernel(start, stop)

        # The caller works too: a thread that only waited would leave the scheduler to put the others on one core.
        helpers = [pool.submit(work_off) for _ in range(min(self.n_threads, len(tasks)) - 1)]
        work_off()
        for helper in helpers:
            helper.result()

    def _threads(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: a child that finds its parent's pool makes one of its own.
        if self._pool is None or self._pool_process != os.getpid():
            self._pool, self._pool_process = ThreadPoolExecutor(self.n_threads - 1), os.getpid()
        return self._pool


@dataclass(frozen=True)
class _Sums:
    """Sums by label, and the labels and weights they are of."""

    sums: FloatArray
    labels: Array
    weights: FloatArray


INFINITE_SCORE = kernels.INFINITE / 1e150
"""Scores below this hold an infinite cost: entries are validated to lie far enough from the ends of float64."""


def entries_before(data: Data) -> Array:
    """How many stored entries lie before each row, and in all. → (n + 1,)"""
    return data.indptr if isinstance(data, csr_array) else np.arange(data.shape[0] + 1) * data.shape[1]


def round_up(number: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-number // step) * step
