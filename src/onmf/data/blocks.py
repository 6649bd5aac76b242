"""Rows that are read block by block in every pass, with one block in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import count, islice
from operator import iadd
from typing import Any

import numpy as np
from scipy.sparse import issparse, vstack

from onmf import interrupt
from onmf.backend import Backend
from onmf.divergence import Array, Divergence

from .parts import InParts, PartCache, PartError, PartsEngine, Source, name_part_in_errors, rows_of, step_of, survey

NO_BATCHES = "X has no rows: the callable returned no batches."

NO_MORE = object()
"""Comes after the last batch."""

Progress = Callable[[str, float], None]


class Blocks(PartsEngine):
    """Rows that are read block by block, one after the other, in every pass; one block is in memory at a time.

    Parameters
    ----------
    backend : Backend
        Computes over each block.
    progress : callable, optional
        Called with the name of a pass and the share of the rows that is done: 0 before the first block and, if the
        number of rows is known, more after each.
    """

    name = "blocks"

    def __init__(self, backend: Backend, progress: Progress | None = None) -> None:
        super().__init__(backend)
        self.progress = progress

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": None}

    def refuses(self, X: Any) -> str | None:
        if isinstance(X, Source) and callable(X.blocks):
            return None
        return "it reads batches from a callable. Pass a function without arguments that returns them, one by one."

    def open(self, source: Source, divergence: Divergence) -> InBlocks:
        return InBlocks(self, source, divergence)


class InBlocks(InParts):
    """Rows that are read block by block."""

    engine: Blocks

    def __init__(self, engine: Blocks, source: Source, divergence: Divergence) -> None:
        super().__init__(engine, source, divergence)
        self._passes = 0  # of the start
        self._memo = PartCache()

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return list(self._each(function, args))

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        results = self._each(function, args)
        try:
            return reduce(iadd, results, next(results))  # each was made for this sum
        except StopIteration:
            raise ValueError(NO_BATCHES) from None

    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        load = partial(self.source.one or self._nth, number)
        first = self.firsts[number]
        weights = partial(self.source.weights_of, first)
        return self.task(function)(self._memo, number, first, load, weights, self.last.templates, args)[0]

    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        results = list(self._each(rows_of, (function, *args), labels))
        if not results:
            raise ValueError(NO_BATCHES)
        return tuple(
            vstack(arrays, format="csr") if issparse(arrays[0]) else np.concatenate(arrays)
            for arrays in zip(*results, strict=True)
        )

    def _each(self, function: Callable[..., Any], args: tuple[Any, ...], labels: Array | None = None) -> Iterator[Any]:
        """The result of the function for each block, one after the other."""
        source, sizes = self.source, self._sizes
        task, first = self.task(function), 0
        several = self._checked or function is survey  # passes; else nothing needs to be kept
        report = self._reporter(function)
        blocks = self._blocks()
        for number in count():  # ends with the caller's iterator
            interrupt.check()
            with name_part_in_errors(source.noun, number):
                raw = next(blocks, NO_MORE)
            if raw is NO_MORE:
                break
            if sizes and number >= len(sizes):
                raise self._changed("more")
            extra = args if labels is None else (*args, labels[first : first + sizes[number]])
            weights = partial(source.weights_of, first)
            load = [raw].pop  # hands the block over: one is in memory at a time
            del raw
            cache = self._memo if several else PartCache()
            result, n = task(cache, number, first, load, weights, self.last.templates, extra)
            self.zeros += 0 if several else cache.zeros
            yield result
            first += n
            report(first)
        if number < len(sizes):
            raise self._changed("fewer")
        if np.ndim(source.weights) and first != len(source.weights):
            raise ValueError(f"sample_weight has {len(source.weights)} entries, but X has {first} rows.")

    def _reporter(self, function: Callable[..., Any]) -> Callable[[int], None]:
        """A function that is told how many rows of this pass are done."""
        progress = self.engine.progress
        if progress is None:
            return lambda done: None
        names = {survey: "reading", step_of: f"iteration {self.iteration}", rows_of: "looking at the clusters"}
        self._passes = 0 if function in names else self._passes + 1
        name = names.get(function, f"choosing a start, pass {self._passes}")
        n = self.shape[0]
        progress(name, 0.0)
        return lambda done: progress(name, done / n) if n else None

    def _changed(self, how: str) -> PartError:
        return PartError(
            f"The callable returned {how} batches than in the first pass, when there were {len(self._sizes)}: it must "
            "return the same ones each time."
        )

    def _nth(self, number: int) -> Any:
        """A block by its number, if those before it must be read first."""
        return next(islice(self._blocks(), number, None))

    def _blocks(self) -> Iterator[Any]:
        """The blocks, one after the other; each can be read more than once."""
        blocks = self.source.blocks()
        if not isinstance(blocks, Iterable) or getattr(blocks, "ndim", 0) == 2:
            raise TypeError(
                f"X() returned {type(blocks).__name__}, not batches: pass a function without arguments that returns "
                "an iterator over arrays or CSR matrices, anew each time."
            )
        return map(_listed, blocks)


def _listed(block: Any) -> Any:
    """A block of several pieces that can be read more than once."""
    return list(block) if isinstance(block, Iterator) else block
