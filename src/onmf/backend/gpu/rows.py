"""Rows on the GPU, sparse or dense, whole or streamed from the host.

Entries are float32 if that represents all of them exactly, as it does for most counts, else float64. For sums by label,
sparse rows have a copy that is sorted by feature.

Rows that are larger than the memory of the card stay on the host and are streamed through it in blocks. The arrays are
page-locked where they are, so that the GPU reads them at the full speed of the bus, and the GPU fetches them as they
are stored: counts of 8 bits travel as 8 bits. It converts them after their arrival. If the system refuses to lock them,
threads copy each block through page-locked buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
from scipy.sparse import issparse

from onmf.arrays import on_gpu, to_host
from onmf.divergence import Array

from ..threads import available_cores
from .launch import THREADS, cupy, launch, launch_rows, long_

EXACT_FLOAT32 = 2**24  # integers up to this are exact in float32
ENTRIES_AT_A_TIME = 1 << 26  # entries that are examined together
UNIT = 4096  # entries of one feature that a warp adds up. Fixed, so that every card adds in the same order.
BUFFERS = 3  # blocks on the GPU at one time: one is worked on, and others arrive
COPIED_AT_A_TIME = 1 << 21  # entries that a thread copies into a page-locked buffer at a time

_guard = Lock()
# Number of users and the array itself, by address and size. The array must live until its pages are unlocked.
_locked: dict[tuple[int, int], list[Any]] = {}
_released: deque[tuple[int, int]] = deque()  # address and size of arrays that have one user less


@dataclass
class SparseRows:
    """CSR on the GPU, with 64-bit row pointers."""

    indptr: Any
    indices: Any
    data: Any
    shape: tuple[int, int]
    units: Any = None  # how the entries of each feature are divided among warps, set on first use
    columns: Any = None  # the same entries by feature, set on first use


@dataclass
class DenseRows:
    """A C-contiguous array on the GPU, perhaps with columns of zeros at the end."""

    X: Any
    norms: Any = None  # ℓ2 norms of the rows in float32, set on first use
    features: int | None = None  # columns of X that are features; None for all

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        n, pitch = self.X.shape
        return n, pitch if self.features is None else self.features

    @classmethod
    def padded(cls, X: Any, dtype: Any, norms: Any = None) -> DenseRows:
        """Rows of an array on the GPU, each from a multiple of 16 bytes on: else a step has to read them twice."""
        (n, p), pitch = X.shape, -(-X.shape[1] // 4) * 4  # a multiple of 16 bytes in float32
        if p != pitch:
            with suppress(cupy.cuda.memory.OutOfMemoryError):  # without room for it they are not padded
                wide = cupy.empty((n, pitch), dtype)
                wide[:, :p] = X
                wide[:, p:] = 0
                return cls(wide, norms, p)
        return cls(cupy.ascontiguousarray(X, dtype=dtype), norms)


Rows = SparseRows | DenseRows


def always_float32(dtype: np.dtype[Any]) -> bool:
    """Whether float32 represents all numbers of a type exactly."""
    return bool(dtype == np.float32 or (dtype.kind in "iub" and dtype.itemsize <= 2))


def exact_float_type(values: Any) -> np.dtype[Any]:
    """float32 if it represents all these numbers exactly, else float64."""
    if always_float32(values.dtype):
        return np.dtype(np.float32)
    flat = values.reshape(-1)
    parts = (flat[start : start + ENTRIES_AT_A_TIME] for start in range(0, flat.size, ENTRIES_AT_A_TIME))
    return np.dtype(np.float32 if all(map(_exact_in_float32, parts)) else np.float64)


def _exact_in_float32(values: Any) -> bool:
    if values.dtype.kind in "iu":
        return int(values.max()) <= EXACT_FLOAT32 and int(values.min()) >= -EXACT_FLOAT32
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def bytes_needed(X: Any) -> int:
    """Upper bound of the GPU memory that rows take, including the copy by feature and the space to sort it."""
    entries = X.nnz if hasattr(X, "nnz") else X.size
    return int(entries) * (48 if hasattr(X, "nnz") else 16) + 64 * int(X.shape[0])


def place_whole(X: Any) -> Rows:
    """Rows on the GPU."""
    if not hasattr(X, "indptr"):
        return DenseRows.padded(cupy.asarray(X), exact_float_type(X))
    dtype = exact_float_type(X.data)
    data = X.data if on_gpu(X) else cupy.asarray(X.data if X.data.dtype == dtype else X.data.astype(dtype))
    return SparseRows(
        cupy.asarray(X.indptr).astype(np.int64, copy=False),
        cupy.asarray(X.indices).astype(np.int32, copy=False),
        data.astype(dtype, copy=False),
        X.shape,
    )


def make_units(counts: Array) -> tuple[Any, ...]:
    """Stretches of features with these numbers of entries: beginnings, ends, and the first of each feature (p + 1,)."""
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = -(-np.diff(bounds) // UNIT)
    of_feature = np.concatenate([[0], np.cumsum(numbers)])
    feature = np.repeat(np.arange(len(numbers)), numbers)
    starts = bounds[feature] + (np.arange(len(feature)) - of_feature[feature]) * UNIT
    stops = np.minimum(starts + UNIT, bounds[feature + 1])
    return tuple(cupy.asarray(array.astype(np.int64)) for array in (starts, stops, of_feature))


def by_feature(rows: SparseRows) -> tuple[Any, Any]:
    """Row and value of each entry, by feature. Sets the ``units`` of rows unless they are known. → 2 × (entries,)"""
    (n, p), entries = rows.shape, len(rows.indices)
    if rows.units is None:
        rows.units = make_units(to_host(cupy.bincount(rows.indices, minlength=p)) if entries else np.zeros(p, np.int64))
    row_of = cupy.empty(entries, np.int32)
    launch_rows("row_of_entry", n, rows.indptr, long_(n), row_of)
    columns = cupy.empty_like(row_of), cupy.empty_like(rows.data)
    args = cupy.argsort(rows.indices, kind="stable"), long_(entries), row_of, rows.data, *columns
    launch("reorder", -(-entries // (4 * THREADS)), THREADS, *args, value=rows.data)
    return columns


def columns_of(rows: SparseRows) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
    """Row and value of each entry by feature, and the units of features, computed on first use."""
    if rows.columns is None:
        rows.columns = by_feature(rows)
    return rows.columns, rows.units


def some_rows(rows: Rows, start: int, stop: int) -> Rows:
    """A range of rows on the GPU, without a copy of their entries."""
    if (start, stop) == (0, rows.shape[0]):
        return rows
    if isinstance(rows, DenseRows):
        return DenseRows(rows.X[start:stop], features=rows.features)
    indptr = rows.indptr[start : stop + 1]
    first, last = map(int, to_host(indptr[[0, -1]]))
    return SparseRows(indptr - first, rows.indices[first:last], rows.data[first:last], (stop - start, rows.shape[1]))


class PageLocks:
    """C-contiguous arrays that are page-locked until :meth:`release`."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._keys = list[tuple[int, int]]()
        # The system refuses to lock some, such as files mapped for reading.
        self.complete = all(_lock(array, self._keys) for array in arrays)
        if not self.complete:
            self.release()

    def release(self) -> None:
        """Unlock the arrays, unless others need them locked. No copy from them may be under way."""
        _released.extend(self._keys)
        self._keys.clear()
        _unlock_released()


def _lock(array: Array, keys: list[tuple[int, int]]) -> bool:
    """Page-lock an array and append its key, unless the system refuses."""
    key, runtime = (array.ctypes.data, array.nbytes), cupy.cuda.runtime
    if array.nbytes == 0:
        return True
    with _guard:
        if key in _locked:
            _locked[key][0] += 1
        else:
            try:
                runtime.hostRegister(*key, 0)
            except runtime.CUDARuntimeError:
                return False
            _locked[key] = [1, array]
        keys.append(key)
    _unlock_released()
    return True


def _unlock_released() -> None:
    """Unlock arrays without users."""
    # The garbage collector may call this at any point, even in the thread that has the guard. It must not wait for the
    # guard then: whoever has it comes here afterwards.
    while _released and _guard.acquire(blocking=False):
        try:
            while _released:
                key = _released.popleft()
                _locked[key][0] -= 1
                if _locked[key][0] == 0:
                    del _locked[key]
                    cupy.cuda.runtime.hostUnregister(key[0])
        finally:
            _guard.release()


def pinned(size: int, dtype: Any) -> Array:
    """A new array in page-locked memory."""
    memory = cupy.cuda.alloc_pinned_memory(max(1, size) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, size)


def cuts_of(before: Array, entries: int) -> list[tuple[int, int]]:
    """First row and end of blocks of at most that many entries, or one row; ``before`` counts those before each row."""
    n, cuts = len(before) - 1, [0]
    while cuts[-1] < n:
        after = int(np.searchsorted(before, before[cuts[-1]] + entries, side="right")) - 1
        cuts.append(min(max(after, cuts[-1] + 1), n))
    return list(pairwise(cuts))


class StreamedRows:
    """Rows on the host that are streamed through the GPU in blocks. The next block is copied during the work on one.

    Iterating gives ``(start, stop, rows)``; the rows are valid until the next iteration. A pass may begin before
    another has ended, in the same thread or in another; it then takes memory for blocks of its own. The rows must not
    change. A block has at most ``entries`` entries, unless a row has more.
    """

    def __init__(self, source: Any, entries: int) -> None:
        self.shape, self.sparse = source.shape, issparse(source)
        names = ("data", "indices", "indptr") if self.sparse else ()
        self.arrays: dict[str, Array] = {name: getattr(source, name) for name in names} or {"data": source.reshape(-1)}
        before = source.indptr if self.sparse else np.arange(source.shape[0] + 1, dtype=np.int64) * source.shape[1]
        self.cuts = cuts_of(before, entries)
        self.bounds = [(int(before[a]), int(before[b])) for a, b in self.cuts]
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.locks = PageLocks(self.arrays.values())
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
        device, last = cupy.cuda.Device(), len(self.cuts) - 1
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
            buffers = [_Buffer(self) for _ in range(min(BUFFERS, len(self.cuts)))]
        try:
            yield buffers
        finally:
            self._idle.append(buffers)

    def _rows(self, number: int, buffer: _Buffer) -> Rows:
        """A block that has arrived."""
        (start, stop), (first, last), p = self.cuts[number], self.bounds[number], self.shape[1]
        data = buffer.card["data"][: last - first]
        if not self.sparse:
            return DenseRows.padded(data.reshape(stop - start, p), self.dtype, self._computed.get(number))
        data = data.astype(self.dtype, copy=False)
        indices = buffer.card["indices"][: last - first].astype(np.int32, copy=False)
        indptr = buffer.card["indptr"][: stop - start + 1].astype(np.int64) - first
        return SparseRows(indptr, indices, data, (stop - start, p), units=self._computed.get(number))

    def _exact_float_type(self) -> np.dtype[Any]:
        """The type of the entries on the GPU, found there unless their own type tells."""
        if always_float32(self.arrays["data"].dtype):
            return np.dtype(np.float32)
        arriving = zip(self._arriving(), self.bounds, strict=True)
        types = (exact_float_type(buffer.card["data"][: last - first]) for (_, buffer), (first, last) in arriving)
        return next((found for found in types if found == np.float64), np.dtype(np.float32))


class _Buffer:
    """Memory on the GPU for one block as it is stored, and page-locked memory on the host if the rows have none."""

    def __init__(self, rows: StreamedRows) -> None:
        entries, most = max(b - a for a, b in rows.bounds), max(b - a for a, b in rows.cuts) + 1
        sizes = {name: (most if name == "indptr" else entries, array.dtype) for name, array in rows.arrays.items()}
        self.card = {name: cupy.empty(*size) for name, size in sizes.items()}
        self.host = {} if rows.locks.complete else {name: pinned(*size) for name, size in sizes.items()}
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
