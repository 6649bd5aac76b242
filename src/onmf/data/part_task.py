"""The task of a pass over rows in parts: read a part, restore what is kept of it, run a function, keep what comes out.

Between two passes, only numbers by row are kept of a part: row terms, labels, scales. All of them can be computed again
from the part and the templates of the last step, so a worker that dies takes nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from onmf.backend import (
    Backend,
    Block,
    CentroidEntries,
    CurvedBlock,
    Matrix,
    RunState,
    StepSums,
    Templates,
    on_gpu,
    to_host,
)
from onmf.divergence import Divergence, FloatArray

from .base import Part


class PartError(RuntimeError):
    """Something went wrong in one part of the data; the message says in which."""


@dataclass(frozen=True)
class PartState:
    """What is kept of a part between two passes: its block without the rows, and numbers by row.

    A part that stays on a GPU is kept as a whole, with its copy by feature; ``resident`` is that part as it came.
    """

    block: Block
    state: RunState
    step_number: int
    scratch: Any
    resident: Any = None


class PartCache:
    """What one process keeps of the parts of one fit."""

    def __init__(self) -> None:
        self.parts: dict[int, PartState] = {}
        self.zeros = 0  # rows that are zero everywhere, of the parts that were checked
        self._locks: dict[int, Lock] = {}
        self._prepared: tuple[FloatArray, type, Templates] | None = None

    def lock(self, number: int) -> Lock:
        """The lock of a part: if a pass is tried again, a task of the first try may still be running."""
        return self._locks.setdefault(number, Lock())

    def prepare(self, block: Block, templates: FloatArray, offsets: FloatArray | None) -> Templates:
        """Templates as the backend reads them, prepared once for parts that this process works on in turn."""
        if isinstance(block, CurvedBlock):  # its templates depend on the sizes of its rows
            return block.prepare_templates(templates, offsets)
        kind, last = type(block.source), self._prepared
        if last is not None and last[0] is templates and last[1] is kind:
            return last[2]
        prepared = block.prepare_templates(templates, offsets)
        self._prepared = (templates, kind, prepared)
        return prepared


@dataclass
class CachedPart(Part):
    """A part of a process that works on several."""

    cache: PartCache = field(default_factory=PartCache)
    step_number: int = 0
    """Number of the step that its labels are of."""
    zeros: int = 0
    """Rows that are zero everywhere; counted when the part is read for the first time."""

    def prepare(self, templates: FloatArray, offsets: FloatArray | None) -> Templates:
        return self.cache.prepare(self.block, templates, offsets)


class Survey(NamedTuple):
    """What the first pass finds out about a part."""

    rows: int
    features: int
    constant: float
    weight: float
    zeros: int


def survey(part: CachedPart) -> Survey:
    """What must be known of a part before anything else."""
    block = part.block
    weight = float(len(block) if block.weights is None else block.weights.sum())
    return Survey(*block.shape, block.constant, weight, part.zeros)


def step_of(part: CachedPart, number: int, templates: FloatArray, offsets: FloatArray | None) -> StepSums:
    """Step ``number`` over a part."""
    part.scratch = None
    step = part.run.step(part.prepare(templates, offsets)).map_arrays(to_host)
    part.step_number = number
    return step


def evaluate_part(part: Part, centroids: CentroidEntries) -> FloatArray:
    """Sums over the rows of a part, for the centroids of a divergence without closed forms. → (3, entries)"""
    assert isinstance(part.block, CurvedBlock)
    return part.block.evaluate(*part.run.collect(), centroids)


def rows_of(part: Part, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """The arrays that a function gives for the rows of a part, on the host."""
    return tuple(map(to_host, function(part, *args)))


@dataclass(frozen=True)
class PartTask:
    """What is done to each part in a pass: read it, find or make what is kept of it, and call a function."""

    backend: Backend
    read: Callable[..., Matrix]  # as in Source, for the known number of features
    check: Callable[..., tuple[Matrix, int]]
    noun: str  # what messages call a part
    divergence: Divergence
    step_number: int  # of the last step: the labels that are kept must be those of it
    offsets: FloatArray | None  # of the last step
    function: Callable[..., Any]  # function(part, *args)
    sizes: list[int]  # rows that each part had in the first pass; empty in that pass
    checked: bool  # whether each part was checked in an earlier pass

    def __call__(
        self,
        cache: PartCache,
        number: int,
        first: int,
        load: Callable[[], Any],
        weights: Any,
        last: FloatArray | None,
        args: tuple[Any, ...],
        stays: bool = False,
    ) -> tuple[Any, int]:
        """Run the function over part ``number``, whose first row is ``first``. → its result, the number of rows

        ``load()`` reads the part. ``weights`` are those of its rows, one number, or a function of the number of rows.
        ``last`` are the templates of the last step. ``stays`` says whether the part stays in the memory of this process
        anyway.
        """
        with name_part_in_errors(self.noun, number):
            raw = load()
            with cache.lock(number):
                part = self._part(cache, number, first, raw, weights)
                resident = raw if stays and on_gpu(raw) else None
                del raw  # the block is all that is needed of it
                if self.step_number == 0:
                    part.run.state, part.step_number = RunState(), 0
                elif part.step_number != self.step_number:
                    assert last is not None
                    labels, scales, _ = part.block.assign(part.block.prepare_templates(last, self.offsets))
                    part.run.state, part.step_number = RunState(labels, scales), self.step_number
                result = self.function(part, *args)
                n = len(part.block)
                if n:  # in the first pass, the features of a part without rows are not known
                    block = part.block.without_rows() if resident is None else part.block
                    cache.parts[number] = PartState(block, part.run.state, part.step_number, part.scratch, resident)
                return result, n

    def _part(self, cache: PartCache, number: int, first: int, raw: Any, weights: Any) -> CachedPart:
        """The part, with what is kept of it."""
        kept = cache.parts.get(number)
        if kept is not None and kept.resident is raw and raw is not None:
            return self._restored(cache, number, first, kept, kept.block)
        with mention_change_in_errors(self.checked or kept is not None):
            rows, zeros = self.check(raw) if kept is None else (self.read(raw), 0)
        cache.zeros += zeros
        if on_gpu(rows) and not self.backend.takes_cupy:
            raise ValueError(
                "it is in the memory of a GPU. Use engine=Dask(GpuBackend()) of onmf.data and onmf.backend, or pass "
                "arrays of NumPy."
            )
        n = rows.shape[0]
        if self.sizes and n != self.sizes[number]:
            raise ValueError(
                f"it has {n} rows, and had {self.sizes[number]} in the first pass. Every pass must find the same rows."
            )
        if kept is None:
            block = self.backend.make_block(rows, self.divergence, checked_weights(weights, n))
            return CachedPart(block, self.backend.start_run(block), number, first, None, cache, zeros=zeros)
        return self._restored(cache, number, first, kept, kept.block.with_rows(rows))

    def _restored(self, cache: PartCache, number: int, first: int, kept: PartState, block: Block) -> CachedPart:
        """A part of an earlier pass, with its rows."""
        part = CachedPart(block, self.backend.start_run(block), number, first, kept.scratch, cache, kept.step_number)
        part.run.state = kept.state
        return part


def checked_weights(weights: Any, n: int) -> FloatArray | None:
    """The weights of the n rows of a part, from what a task was given."""
    weights = weights(n) if callable(weights) else weights
    if np.ndim(weights) == 0 and weights is not None:
        return np.full(n, float(weights))
    if weights is not None and len(weights) != n:
        raise ValueError(f"sample_weight has {len(weights)} entries for its {n} rows: give one for each row.")
    return weights


@contextmanager
def name_part_in_errors(noun: str, number: int) -> Iterator[None]:
    """Add to errors in which part they arose."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In {noun} {number}, whose rows count from 0: {error}") from error
    except Exception as error:
        raise PartError(f"In {noun} {number}: {type(error).__name__}: {error}") from error


@contextmanager
def mention_change_in_errors(before: bool) -> Iterator[None]:
    """Add to the refusal of a part that was fine before that it has changed."""
    try:
        yield
    except ValueError as error:
        if not before:
            raise
        raise ValueError(
            f"{error} The first pass found nothing wrong: the data changed during the fit. Let nothing write to them "
            "until it is done."
        ) from error
