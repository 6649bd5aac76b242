"""A pool of threads that share one loop over rows, clusters or entries."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from onmf.divergence import Array

WORTH_A_THREAD = 200_000  # units of work below which a block is not worth handing to a thread
CLUSTERS_AT_A_TIME = 4  # whose templates or centroids are computed together: half a cache line of their transpose
ENTRIES_IN_ONE_CALL = 1 << 14  # of templates or centroids

Kernel = Callable[[int, int], None]


class Threads:
    """Runs ``kernel(start, stop)`` over blocks that together cover a range; with one thread, once over all of it."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}  # a pool can be neither pickled nor copied

    def over_clusters(self, kernel: Kernel, k: int, p: int) -> None:
        """Cover k clusters of p features each."""
        if k * p <= ENTRIES_IN_ONE_CALL:
            kernel(0, k)
            return

        def groups(start: int, stop: int) -> None:
            for group in range(start, stop):
                kernel(group * CLUSTERS_AT_A_TIME, min((group + 1) * CLUSTERS_AT_A_TIME, k))

        self.over_blocks(groups, np.arange(-(-k // CLUSTERS_AT_A_TIME) + 1), 8 * CLUSTERS_AT_A_TIME * p)

    def over_blocks(self, kernel: Kernel, before: Array, work: int) -> None:
        """Cover items in blocks of equal work: ``before`` (m + 1,) entries precede each, and one costs ``work``."""
        m = len(before) - 1
        blocks = min(4 * self.number, m, int(before[-1] - before[0]) * work // WORTH_A_THREAD)
        if self.number == 1 or blocks < 2:
            kernel(0, m)
            return
        first, entries = int(before[0]), int(before[-1] - before[0])
        inner = np.searchsorted(before, [first + entries * block // blocks for block in range(1, blocks)])
        tasks = deque(pairwise(sorted({0, m, *inner.tolist()})))

        def work_off() -> None:
            while tasks:
                try:
                    start, stop = tasks.popleft()
                except IndexError:  # another thread was faster
                    return
                kernel(start, stop)

        # The caller works, too. If it only waited, the scheduler might put the other threads on one core.
        pool = self._running_pool()
        helpers = [pool.submit(work_off) for _ in range(min(self.number, len(tasks)) - 1)]
        work_off()
        for helper in helpers:
            helper.result()

    def _running_pool(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork, so a child process makes a pool of its own.
        if self._pool is None or self._pool_process != os.getpid():
            self._pool, self._pool_process = ThreadPoolExecutor(self.number - 1), os.getpid()
        return self._pool


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
