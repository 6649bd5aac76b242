"""Rows in host memory that are streamed through the GPU in blocks.

The arrays are page-locked where they are, and the GPU fetches them as they are stored: counts of 8 bits travel as 8
bits. It converts them after their arrival. If the system refuses to lock them, threads copy each block through
page-locked buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from weakref import finalize

import numpy as np
from scipy.sparse import issparse

from onmf.divergence import Array

from ..threads import available_cores
from .lock import PageLocks, pinned
from .rows import DenseRows, Rows, SparseRows, always_float32, exact_float_type

BUFFERS = 3
"""Blocks on the GPU at one time: one is worked on, and others arrive."""

COPIED_AT_A_TIME = 1 << 21
"""Entries that a thread copies into a page-locked buffer at a time."""


class StreamedRows:
    """Rows on the host that are streamed through the GPU in blocks. The next block is copied during the work on one.

    Iterating gives ``(start, stop, rows)``; the rows are valid until the next iteration. A pass may begin before
    another has ended, in the same thread or in another; it then takes memory for blocks of its own. The rows must not
    change. A block has at most ``entries`` entries, unless a row has more.
    """

    def __init__(self, cupy: Any, source: Any, entries: int) -> None:
        self.cupy, self.shape, self.sparse = cupy, source.shape, issparse(source)
        n, p = self.shape
        names = ("data", "indices", "indptr") if self.sparse else ()
        self.arrays: dict[str, Array] = {name: getattr(source, name) for name in names} or {"data": source.reshape(-1)}
        before = source.indptr if self.sparse else np.arange(n + 1, dtype=np.int64) * p
        cuts = [0]
        while cuts[-1] < n:
            after = int(np.searchsorted(before, before[cuts[-1]] + entries, side="right")) - 1
            cuts.append(min(max(after, cuts[-1] + 1), n))
        self.cuts = list(pairwise(cuts))
        self.bounds = [(int(before[a]), int(before[b])) for a, b in self.cuts]
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.locks = PageLocks(cupy, list(self.arrays.values()))
        finalize(self, _end, self._stream, self.locks).atexit = False  # the driver may be gone by then
        self._idle: list[list[_Buffer]] = []  # buffers of passes that have ended
        self._computed: dict[int, Any] = {}  # what is the same in every pass
        self.dtype = self._exact_float_type()

    def __iter__(self) -> Iterator[tuple[int, int, Rows]]:
        for number, buffer in self._arriving():
            start, stop = self.cuts[number]
            rows = self._rows(number, buffer)
            yield start, stop, rows
            self._computed[number] = rows.units if isinstance(rows, SparseRows) else rows.norms

    def _arriving(self) -> Iterator[tuple[int, _Buffer]]:
        """The blocks in turn, each in the buffer that it arrives in."""
        cupy, last = self.cupy, len(self.cuts) - 1
        device = cupy.cuda.Device()
        with (
            self._own_buffers() as buffers,
            ThreadPoolExecutor(1) as ahead,
            ThreadPoolExecutor(min(16, available_cores())) as pool,
        ):

            def fetch(number: int) -> Any:
                buffer = buffers[number % len(buffers)]
                return ahead.submit(buffer.fill, self, number, self._stream, device, pool)

            coming = fetch(0)
            for number in range(len(self.cuts)):
                coming.result()
                if number < last:
                    coming = fetch(number + 1)
                buffer = buffers[number % len(buffers)]
                cupy.cuda.get_current_stream().wait_event(buffer.copied)
                try:
                    yield number, buffer
                finally:
                    buffer.used.record()
            if self.locks.complete:
                fetch(0).result()  # for the next pass

    @contextmanager
    def _own_buffers(self) -> Iterator[list[_Buffer]]:
        """Buffers that no other pass fills."""
        try:
            buffers = self._idle.pop()
        except IndexError:
            buffers = [_Buffer(self.cupy, self) for _ in range(min(BUFFERS, len(self.cuts)))]
        try:
            yield buffers
        finally:
            self._idle.append(buffers)

    def _rows(self, number: int, buffer: _Buffer) -> Rows:
        """A block that has arrived."""
        (start, stop), (first, last), p = self.cuts[number], self.bounds[number], self.shape[1]
        data = buffer.card["data"][: last - first]
        if not self.sparse:
            return DenseRows.padded(self.cupy, data.reshape(stop - start, p), self.dtype, self._computed.get(number))
        data = data.astype(self.dtype, copy=False)
        indices = buffer.card["indices"][: last - first].astype(np.int32, copy=False)
        indptr = buffer.card["indptr"][: stop - start + 1].astype(np.int64) - first
        return SparseRows(indptr, indices, data, (stop - start, p), units=self._computed.get(number))

    def _exact_float_type(self) -> np.dtype[Any]:
        """The type of the entries on the GPU, found there."""
        known = always_float32(self.arrays["data"].dtype)
        if known is not None:
            return known
        for number, buffer in self._arriving():
            first, last = self.bounds[number]
            if exact_float_type(buffer.card["data"][: last - first]) == np.float64:
                return np.dtype(np.float64)
        return np.dtype(np.float32)


class _Buffer:
    """Memory on the GPU for one block as it is stored, and page-locked memory on the host if the rows have none."""

    def __init__(self, cupy: Any, rows: StreamedRows) -> None:
        entries, most = max(b - a for a, b in rows.bounds), max(b - a for a, b in rows.cuts) + 1
        sizes = {name: (most if name == "indptr" else entries, array.dtype) for name, array in rows.arrays.items()}
        self.card = {name: cupy.empty(*size) for name, size in sizes.items()}
        self.host = {} if rows.locks.complete else {name: pinned(cupy, *size) for name, size in sizes.items()}
        self.copied, self.used = cupy.cuda.Event(disable_timing=True), cupy.cuda.Event(disable_timing=True)
        self.used.record()
        self.number: int | None = None

    def fill(self, rows: StreamedRows, number: int, stream: Any, device: Any, pool: ThreadPoolExecutor) -> None:
        """Copy a block to the GPU, without waiting for its arrival. Nothing to do if it is there."""
        if self.number == number:
            return
        self.number = None
        (start, stop), bounds = rows.cuts[number], rows.bounds[number]
        with device:
            if self.host:
                self.copied.synchronize()  # the last block has left the page-locked memory
            stream.wait_event(self.used)  # nobody needs it on the GPU any more
            for name, array in rows.arrays.items():
                values = array[start : stop + 1] if name == "indptr" else array[slice(*bounds)]
                if name in self.host:
                    values = _copied(values, self.host[name], pool)
                if len(values):
                    self.card[name][: len(values)].set(values, stream=stream)
            self.copied.record(stream)
        self.number = number


def _end(stream: Any, locks: PageLocks) -> None:
    """Wait for the last copies before their memory is unlocked, and before the buffers are free for others."""
    try:
        stream.synchronize()
    finally:
        locks.release()


def _copied(values: Array, room: Array, pool: ThreadPoolExecutor) -> Array:
    """Copy values into page-locked memory, with several threads."""

    def copy(at: int) -> None:
        part = slice(at, min(at + COPIED_AT_A_TIME, len(values)))
        room[part] = values[part]

    list(pool.map(copy, range(0, len(values), COPIED_AT_A_TIME)))
    return room[: len(values)]


def blocks_of(rows: Any) -> Iterator[tuple[int, int, Rows]]:
    """The blocks of rows that are on the card at one time: first row, end, rows."""
    return iter(rows) if isinstance(rows, StreamedRows) else iter([(0, rows.shape[0], rows)])
