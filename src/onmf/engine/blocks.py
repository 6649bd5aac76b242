"""Data larger than memory: an engine over blocks of rows that are read, used and dropped, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray

from .base import Assignment, Engine, Held, StepSums


class RowBlocks(ABC):
    """Validated rows of numbers that live elsewhere and come in blocks.

    Attributes
    ----------
    shape : tuple of int
        Rows and features.
    dtype : numpy.dtype
        Native type of the entries.
    cuts : (m + 1,) array of int
        Block i holds the rows from ``cuts[i]`` to ``cuts[i + 1]``.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    cuts: Array

    @abstractmethod
    def block(self, number: int) -> Array:
        """The rows of a block: a C-contiguous array, the caller's to keep."""

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Every block that holds rows, and which rows; the next one is read while this one is used."""
        numbers = np.flatnonzero(np.diff(self.cuts))
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.block, int(numbers[0])) if len(numbers) else None
            for place, number in enumerate(numbers):
                assert coming is not None
                block = coming.result()
                if place + 1 < len(numbers):
                    coming = reader.submit(self.block, int(numbers[place + 1]))
                yield slice(int(self.cuts[number]), int(self.cuts[number + 1])), block

    def rows(self, index: Array) -> Array:
        """The rows of that index."""
        index = np.asarray(index, dtype=np.int64)
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        home = np.searchsorted(self.cuts, index, side="right") - 1
        for number in np.unique(home):
            wanted = home == number
            out[wanted] = self.block(int(number))[index[wanted] - self.cuts[number]]
        return out


class BlockEngine(Engine):
    """Maps another engine over blocks of rows and adds up what it returns.

    Labels, scales and row terms of all rows are kept, about 60 bytes a row; of the data, two blocks.

    Parameters
    ----------
    inner : Engine
        What runs on a block.
    progress : callable, optional
        Called before a pass with its name, and after each block with the share of the rows that are done.
    """

    name = "blocks"

    def __init__(self, inner: Engine, progress: Callable[[str, float], None] | None = None) -> None:
        self.inner = inner
        self.progress = progress
        self.steps = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": None}

    def supports(self, X: Any) -> str | None:
        return None if isinstance(X, RowBlocks) else "it takes blocks of rows. Use engine='cpu' for data in memory."

    def place(self, X: RowBlocks) -> RowBlocks:
        return X

    def _blocks(self, data: RowBlocks, what: str) -> Iterator[tuple[slice, Array]]:
        report = self.progress or (lambda what, share: None)
        report(what, 0.0)
        for rows, block in data:
            yield rows, block
            report(what, rows.stop / data.shape[0])

    def prepare(
        self, held: Held, centroids: FloatArray, templates: Callable[[FloatArray], FloatArray] | None = None
    ) -> Any:
        sample = Held(np.empty((0, held.shape[1])), (0, held.shape[1]), held.divergence, None, {}, np.empty(0))
        return self.inner.prepare(sample, centroids, templates)

    def hold(self, X: RowBlocks, divergence: Divergence, sample_weight: FloatArray | None = None) -> Held:
        n = X.shape[0]
        terms = {name: np.empty(n) for name in divergence.row_terms}
        for rows, block in self._blocks(X, "reading"):
            for name, function in divergence.row_terms.items():
                terms[name][rows] = self.inner.row_term(self.inner.place(block), function)
        terms["features"] = np.float64(X.shape[1])  # type: ignore[assignment]
        self.steps = 0
        return Held(X, X.shape, divergence, sample_weight, terms, divergence.constant(terms))

    def step(self, held: Held, templates: Any) -> StepSums:
        """One pass over the file: each block is assigned and summed before the next one is read."""
        n = held.shape[0]
        first = held.labels is None or held.scales is None
        if first:
            held.labels, held.scales = np.empty(n, dtype=np.int32), np.empty(n)
            self.steps = 0
        assert held.labels is not None
        assert held.scales is not None
        self.steps += 1
        whole: StepSums | None = None
        for rows, block in self._blocks(held.data, f"iteration {self.steps}"):
            part = self._part(held, rows, block)
            if not first:
                part.labels, part.scales = held.labels[rows], held.scales[rows]
            found = self.inner.step(part, templates)
            held.labels[rows], held.scales[rows] = part.labels, part.scales
            whole = found if whole is None else whole + found
        assert whole is not None, "there are rows"
        return whole

    def _part(self, held: Held, rows: slice, block: Array) -> Held:
        """A block as the inner engine holds it."""
        terms = {name: term if np.ndim(term) == 0 else term[rows] for name, term in held.terms.items()}
        weights = None if held.weights is None else held.weights[rows]
        return Held(self.inner.place(block), block.shape, held.divergence, weights, terms, held.constants[rows])

    def assign(self, held: Held, templates: Any) -> Assignment:
        n = held.shape[0]
        whole = Assignment(np.empty(n, dtype=np.int32), np.empty(n), np.empty(n))
        for rows, block in self._blocks(held.data, "assigning"):
            for values, part in zip(whole, self.inner.assign(self._part(held, rows, block), templates), strict=True):
                values[rows] = part
        return whole

    def best_template(self, data: RowBlocks, templates: Any) -> tuple[Array, FloatArray]:
        labels, best = np.empty(data.shape[0], dtype=np.int32), np.empty(data.shape[0])
        for rows, block in self._blocks(data, "assigning"):
            labels[rows], best[rows] = self.inner.best_template(self.inner.place(block), templates)
        return labels, best

    def own_and_next(self, data: RowBlocks, templates: Any, labels: Array) -> tuple[FloatArray, FloatArray]:
        own, following = np.empty(data.shape[0]), np.empty(data.shape[0])
        for rows, block in self._blocks(data, "comparing"):
            own[rows], following[rows] = self.inner.own_and_next(self.inner.place(block), templates, labels[rows])
        return own, following

    def sum_by_label(self, data: RowBlocks, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        sums = np.zeros((k, data.shape[1]))
        for rows, block in self._blocks(data, "summing"):
            sums += self.inner.sum_by_label(self.inner.place(block), labels[rows], weights[rows], k)
        return sums

    def row_term(self, data: RowBlocks, function: Any) -> FloatArray:
        out = np.empty(data.shape[0])
        for rows, block in self._blocks(data, "reading"):
            out[rows] = self.inner.row_term(self.inner.place(block), function)
        return out

    def scores(self, data: RowBlocks, templates: FloatArray) -> FloatArray:
        out = np.empty((data.shape[0], len(templates)))
        for rows, block in self._blocks(data, "comparing"):
            out[rows] = self.inner.scores(self.inner.place(block), templates)
        return out

    def rows(self, data: RowBlocks, index: Array) -> FloatArray:
        return data.rows(index).astype(np.float64)

    def on_host(self, data: RowBlocks) -> Any:
        raise ValueError(
            "A local search goes through single rows in random order, and these are read from a file by blocks: use "
            "refine=None, or data that fit in memory."
        )

    def over_clusters(self, kernel: Callable[[int, int], None], k: int, p: int) -> None:
        self.inner.over_clusters(kernel, k, p)

    def over_rows(self, kernel: Callable[[int, int], None], n: int) -> None:
        self.inner.over_rows(kernel, n)
