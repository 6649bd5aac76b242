"""Rows as the GPU backend keeps them: sparse or dense on the GPU, or in host memory and streamed through the GPU.

Entries are float32 if that represents all of them exactly, as it does for most counts, else float64.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.divergence import Array

from ..device import on_gpu

EXACT_FLOAT32 = 2**24
"""Integers up to this are exact in float32."""

ENTRIES_AT_A_TIME = 1 << 26
"""Entries of a streamed block, and of a block that is scanned on the host."""


@dataclass
class SparseRows:
    """CSR on the GPU, with 64-bit row pointers."""

    indptr: Any
    indices: Any
    data: Any
    shape: tuple[int, int]
    columns: Any = None
    """The same entries by feature, set on first use."""


@dataclass
class DenseRows:
    """A C-contiguous array on the GPU."""

    X: Any
    norms: Any = None
    """ℓ2 norms of the rows in float32, set on first use."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.X.shape


Rows = SparseRows | DenseRows


class StreamedRows:
    """Rows on the host that are streamed through the GPU in blocks. The next block is copied during the work on one.

    Iterating gives ``(start, stop, rows)``; the rows are valid until the next iteration.
    """

    def __init__(self, cupy: Any, source: Any, entries: int) -> None:
        self.cupy, self.source = cupy, source
        self.shape = source.shape
        n, p = self.shape
        self.dtype = narrowest(source.data if issparse(source) else source)
        before = source.indptr if issparse(source) else np.arange(n + 1, dtype=np.int64) * p
        cuts = [0]
        while cuts[-1] < n:
            after = int(np.searchsorted(before, before[cuts[-1]] + entries, side="right")) - 1
            cuts.append(min(max(after, cuts[-1] + 1), n))
        self.cuts = list(pairwise(cuts))
        self.largest = max(int(before[b] - before[a]) for a, b in self.cuts)
        self._slots: list[_Slot] = []
        self._stream: Any = None

    def __iter__(self) -> Iterator[tuple[int, int, Rows]]:
        cupy = self.cupy
        if not self._slots:
            self._slots = [_Slot(cupy, self) for _ in range(min(2, len(self.cuts)))]
            self._stream = cupy.cuda.Stream(non_blocking=True)
        device, slots = cupy.cuda.Device(), self._slots
        with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            coming = ahead.submit(slots[0].fill, self, self.cuts[0], self._stream, device, pool)
            for number, (start, stop) in enumerate(self.cuts):
                coming.result()
                slot = slots[number % len(slots)]
                if number + 1 < len(self.cuts):
                    following = slots[(number + 1) % len(slots)]
                    coming = ahead.submit(following.fill, self, self.cuts[number + 1], self._stream, device, pool)
                cupy.cuda.get_current_stream().wait_event(slot.copied)
                yield start, stop, slot.rows(self, start, stop)
                slot.used.record()


class _Slot:
    """Buffers for one block: page-locked memory on the host, and memory on the GPU."""

    def __init__(self, cupy: Any, rows: StreamedRows) -> None:
        self.values = pinned(cupy, rows.largest, rows.dtype), cupy.empty(rows.largest, rows.dtype)
        if issparse(rows.source):
            most = max(b - a for a, b in rows.cuts) + 1
            self.indices = pinned(cupy, rows.largest, np.int32), cupy.empty(rows.largest, np.int32)
            self.indptr = pinned(cupy, most, np.int64), cupy.empty(most, np.int64)
        self.copied, self.used = cupy.cuda.Event(disable_timing=True), cupy.cuda.Event(disable_timing=True)
        self.used.record()

    def fill(
        self, rows: StreamedRows, cut: tuple[int, int], stream: Any, device: Any, pool: ThreadPoolExecutor
    ) -> None:
        """Copy a block to the GPU, without waiting for its arrival."""
        (start, stop), X = cut, rows.source
        with device:
            self.copied.synchronize()  # the last block has been copied from the host buffer,
            stream.wait_event(self.used)  # and is no longer needed on the GPU
            if issparse(X):
                first, last = int(X.indptr[start]), int(X.indptr[stop])
                parts = [
                    (self.values, X.data[first:last]),
                    (self.indices, X.indices[first:last]),
                    (self.indptr, X.indptr[start : stop + 1].astype(np.int64) - first),
                ]
            else:
                parts = [(self.values, X[start:stop].reshape(-1))]
            for (host, card), values in parts:
                m = len(values)
                cuts = np.linspace(0, m, pool._max_workers + 1).astype(np.int64)
                list(
                    pool.map(
                        lambda ab, h=host, v=values: np.copyto(h[ab[0] : ab[1]], v[ab[0] : ab[1]], "unsafe"),
                        pairwise(cuts),
                    )
                )
                if m:
                    card[:m].set(host[:m], stream=stream)
            self.copied.record(stream)

    def rows(self, rows: StreamedRows, start: int, stop: int) -> Rows:
        """The block that has arrived."""
        X, p = rows.source, rows.shape[1]
        if not issparse(X):
            return DenseRows(self.values[1][: (stop - start) * p].reshape(stop - start, p))
        m = int(X.indptr[stop] - X.indptr[start])
        return SparseRows(
            self.indptr[1][: stop - start + 1], self.indices[1][:m], self.values[1][:m], (stop - start, p)
        )


def pinned(cupy: Any, size: int, dtype: Any) -> Array:
    """An array in page-locked memory, from which the GPU can copy asynchronously."""
    dtype = np.dtype(dtype)
    memory = cupy.cuda.alloc_pinned_memory(max(1, size) * dtype.itemsize)
    return np.frombuffer(memory, dtype, size)


def narrowest(values: Any) -> np.dtype[Any]:
    """float32 if it represents all these numbers exactly, else float64."""
    dtype = values.dtype
    if dtype == np.float32 or (dtype.kind in "iub" and dtype.itemsize <= 2):
        return np.dtype(np.float32)
    flat = values.reshape(-1)
    for start in range(0, flat.size, ENTRIES_AT_A_TIME):
        part = flat[start : start + ENTRIES_AT_A_TIME]
        if dtype.kind in "iu":
            fits = int(part.max()) <= EXACT_FLOAT32 and int(part.min()) >= -EXACT_FLOAT32
        else:
            with np.errstate(over="ignore"):
                fits = bool((part.astype(np.float32) == part).all())
        if not fits:
            return np.dtype(np.float64)
    return np.dtype(np.float32)


def bytes_needed(X: Any) -> int:
    """Upper bound of the GPU memory that rows take, including the copy by feature and the space to sort it."""
    entries = X.nnz if hasattr(X, "nnz") else X.size
    return int(entries) * (48 if hasattr(X, "nnz") else 16) + 64 * int(X.shape[0])


def place(cupy: Any, X: Any, budget: int) -> Rows | StreamedRows:
    """Rows on the GPU; streamed from the host if they would need more than ``budget`` bytes there."""
    if not on_gpu(X) and bytes_needed(X) > budget:
        entries = max(1, min(ENTRIES_AT_A_TIME, budget // 160))
        return StreamedRows(cupy, X, entries)
    if not hasattr(X, "indptr"):
        dtype = narrowest(X)
        return DenseRows(cupy.ascontiguousarray(X if on_gpu(X) else cupy.asarray(X), dtype=dtype))
    dtype = narrowest(X.data)
    data = X.data if on_gpu(X) else cupy.asarray(X.data if X.data.dtype == dtype else X.data.astype(dtype))
    return SparseRows(
        cupy.asarray(X.indptr).astype(np.int64, copy=False),
        cupy.asarray(X.indices).astype(np.int32, copy=False),
        data.astype(dtype, copy=False),
        X.shape,
    )
