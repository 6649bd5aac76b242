"""Rows in parts: what is common to parts that are read one after the other and parts on the workers of a cluster.

The task of a pass reads a part, restores what is kept of it, runs a function, and keeps what comes out. Between two
passes, only numbers by row are kept of a part: row terms, labels, scales. All of them can be computed again from the
part and the templates of the last step, so a worker that dies takes nothing with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import count, islice
from operator import iadd
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack

from onmf import interrupt
from onmf.backend import (
    Backend,
    Block,
    CentroidEntries,
    CurvedBlock,
    Drift,
    Matrix,
    RunState,
    Steps,
    StepSums,
    Templates,
    on_gpu,
    to_host,
    update_centroids,
    update_curved,
)
from onmf.divergence import Array, Divergence, FloatArray
from onmf.io.rules import require

from .base import Data, Engine, Part
from .validate import check_weights


class PartError(RuntimeError):
    """Something went wrong in one part of the data; the message says in which."""


@dataclass(frozen=True)
class Source:
    """Rows in parts that can be read, before an engine holds them."""

    blocks: Any  # the parts, or a callable that returns them in turn, the same ones each time
    read: Callable[..., tuple[Matrix, int]]  # read(block, features=..., again=...) -> rows as backends read them, and
    # how many are zero if they are not read again; refuses what is not allowed
    weights: Any = None  # one array, or one for each part; a number is the weight of every row
    noun: str = "part"  # what messages call a part
    one: Callable[[int], Any] | None = None  # returns a part by its number, without those before it
    sizes: list[int] | None = None  # rows of each part, if known before they are read
    features: int | None = None  # number of features, if known
    names: Array | None = None  # of the features
    origin: Any = None  # what the user passed
    gpu: bool = False  # whether the parts are CuPy arrays
    groups: Any = None  # of the rows, which get a column for each

    def weights_of(self, first: int, n: int) -> Any:
        """The weights of n rows, if there is one array for all of them, and the codes of their groups, if any."""
        weights = self.weights if np.ndim(self.weights) == 0 else self.weights[first : first + n]
        return weights if self.groups is None else (weights, self.groups.over(n, first))


class LastStep(NamedTuple):
    """The last step of a run: its number, 0 before the first, and its templates, which give the labels again."""

    number: int = 0
    templates: FloatArray | None = None
    offsets: FloatArray | None = None


@dataclass(frozen=True)
class PartState:
    """What is kept of a part between two passes: its block without the rows, and numbers by row.

    A part that stays on a GPU is kept as a whole, with its copy by feature; ``resident`` is that part as it came.
    """

    block: Block
    state: RunState | None
    step_number: int
    scratch: Any
    resident: Any = None


class PartCache:
    """What one process keeps of the parts of one fit."""

    def __init__(self) -> None:
        self.parts: dict[int, PartState] = {}
        # One for each part: if a pass is tried again, a task of the first try may still be running.
        self.locks: dict[int, Lock] = {}
        self._prepared: tuple[FloatArray, type, Templates] | None = None

    def prepare(self, block: Block, templates: FloatArray, offsets: FloatArray | None) -> Templates:
        """Templates as the backend reads them, prepared once for parts that this process works on in turn."""
        if isinstance(block, CurvedBlock):  # its templates depend on the sizes of its rows
            return block.prepare_templates(templates, offsets)
        kind, last = type(block.source), self._prepared
        if last is None or last[0] is not templates or last[1] is not kind:
            last = self._prepared = (templates, kind, block.prepare_templates(templates, offsets))
        return last[2]


@dataclass
class CachedPart(Part):
    """A part of a process that works on several."""

    cache: PartCache = field(default_factory=PartCache)
    step_number: int = 0  # of the step that its labels are of
    zeros: int = 0  # rows that are zero everywhere; counted when the part is read for the first time


def survey(part: CachedPart) -> tuple[int, int, float, float, int]:
    """What the first pass finds out about a part: rows, features, constant, weight, rows that are zero everywhere."""
    block = part.block
    weight = float(len(block) if block.weights is None else block.weights.sum())
    return *block.shape, block.constant, weight, part.zeros


def step_of(part: CachedPart, number: int, templates: FloatArray, offsets: FloatArray | None) -> StepSums:
    """Step ``number`` over a part."""
    part.scratch, part.step_number = None, number
    return part.run.step(part.cache.prepare(part.block, templates, offsets)).map_arrays(to_host)


def evaluate_part(part: Part, centroids: CentroidEntries) -> FloatArray:
    """Sums over the rows of a part, for the centroids of a divergence without closed forms. → (3, entries)"""
    assert isinstance(part.block, CurvedBlock)
    return np.asarray(to_host(part.block.evaluate(*part.run.collect(), centroids)))


def rows_of(part: Part, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """The arrays that a function gives for the rows of a part, on the host."""
    return tuple(map(to_host, function(part, *args)))


@dataclass(frozen=True)
class PartTask:
    """What is done to each part in a pass: read it, find or make what is kept of it, and call a function."""

    backend: Backend
    source: Source  # how to read a part; without the parts
    divergence: Divergence
    last: LastStep  # the labels that are kept must be those of this step; without its templates
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
        templates: FloatArray | None,
        args: tuple[Any, ...],
        stays: bool = False,
    ) -> tuple[Any, int, int]:
        """Run the function over part ``number``. → its result, the numbers of its rows and of its zero rows

        ``first`` is its first row, ``load()`` reads it, ``weights`` are those of its rows, one number, or a function of
        the number of rows, ``templates`` those of the last step; ``stays`` if it is in this process' memory anyway.
        """
        with name_part_in_errors(self.source.noun, number):
            raw = load()
            with cache.locks.setdefault(number, Lock()):
                part = self._part(cache, number, first, raw, weights)
                resident = raw if stays and on_gpu(raw) else None
                del raw  # the block is all that is needed of it
                if self.last.number == 0:
                    part.run.state, part.step_number = None, 0
                elif part.step_number != self.last.number:
                    assert templates is not None
                    assigned = part.block.assign(part.block.prepare_templates(templates, self.last.offsets))
                    part.run.state, part.step_number = RunState(*assigned[:2]), self.last.number
                result = self.function(part, *args)
                n = len(part.block)
                if n:  # in the first pass, the features of a part without rows are not known
                    block = part.block.copy_with(rows=None, source=None) if resident is None else part.block
                    cache.parts[number] = PartState(block, part.run.state, part.step_number, part.scratch, resident)
                return result, n, part.zeros

    def _part(self, cache: PartCache, number: int, first: int, raw: Any, weights: Any) -> CachedPart:
        """The part, with what is kept of it."""
        kept, source, zeros = cache.parts.get(number), self.source, 0
        added = 0 if source.groups is None else len(source.groups)
        if kept is not None and kept.resident is raw and raw is not None:
            block = kept.block
            if block.divergence != self.divergence:  # in its smoothing
                block = block.copy_with(divergence=self.divergence)
        else:
            try:
                features = None if source.features is None else source.features - added
                rows, zeros = source.read(raw, features=features, again=kept is not None)
            except ValueError as error:
                if kept is None and not self.checked:
                    raise
                raise ValueError(
                    f"{error} The first pass found nothing wrong: the data changed during the fit. Let nothing write "
                    "to them until it is done."
                ) from error
            if on_gpu(rows) and not self.backend.takes_cupy:
                raise ValueError(
                    "it is in the memory of a GPU. Use engine=Dask(GpuBackend()) of onmf.data and onmf.backend, or "
                    "pass arrays of NumPy."
                )
            n = rows.shape[0]
            if self.sizes and n != self.sizes[number]:
                raise ValueError(
                    f"it has {n} rows, and had {self.sizes[number]} in the first pass. Every pass must find the same "
                    "rows."
                )
            own = weights(n) if callable(weights) else weights
            if added:
                own, codes = own
                rows = source.groups.append(rows, codes)
            if kept is None:
                own = check_weights(own, n, of_part=True)
                block = self.backend.make_block(rows, self.divergence, own)
            else:
                block = kept.block.copy_with(rows=self.backend.place(rows), source=rows, divergence=self.divergence)
        part = CachedPart(block, self.backend.start_run(block), number, first, cache=cache, zeros=zeros)
        if kept is not None:
            part.run.state, part.step_number, part.scratch = kept.state, kept.step_number, kept.scratch
        return part


@contextmanager
def name_part_in_errors(noun: str, number: int) -> Iterator[None]:
    """Add to errors in which part they arose."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In {noun} {number}, whose rows count from 0: {error}") from error
    except Exception as error:
        raise PartError(f"In {noun} {number}: {type(error).__name__}: {error}") from error


class PartsEngine(Engine):
    """What engines for rows in parts share."""

    @abstractmethod
    def open(self, source: Source, divergence: Divergence) -> InParts:
        """The rows, before any of them is read."""

    def make_data(self, X: Source, divergence: Divergence, sample_weight: FloatArray | None = None) -> InParts:
        data = self.open(X, divergence)
        data.survey()
        return data


class InParts(Data):
    """Rows in parts: how to read them (``source``), the last step, and the number of steps of the current run."""

    constant = 0.0

    def __init__(self, engine: PartsEngine, source: Source, divergence: Divergence) -> None:
        self.engine, self.backend, self.divergence = engine, engine.backend, divergence
        self.source, self.origin = source, source.origin
        self.shape = (sum(source.sizes or []), source.features or 0)
        self.last = LastStep()
        self.iteration = 0
        self.sizes = list(source.sizes or [])
        self._checked = False
        self._step_numbers = count(1)

    @property
    def firsts(self) -> list[int]:
        """Index of the first row of each part."""
        return [0, *np.cumsum(self.sizes)[:-1].tolist()] if self.sizes else []

    def with_divergence(self, divergence: Divergence) -> InParts:
        return self.engine.make_data(self.source, divergence)

    def task(self, function: Callable[..., Any]) -> PartTask:
        """The task of a pass that runs this function."""
        groups = self.source.groups
        groups = (
            None if groups is None else replace(groups, codes=np.empty(0, np.int32))
        )  # those of a part come with it
        source = replace(self.source, blocks=None, weights=None, one=None, names=None, origin=None, groups=groups)
        last = self.last._replace(templates=None)
        return PartTask(self.backend, source, self.divergence, last, function, self.sizes, self._checked)

    def survey(self) -> None:
        """Read all parts once, check them, and find out their sizes."""
        noun, told, self.sizes = self.source.noun, self.sizes, []
        surveys = self.map(survey)
        filled = [number for number, part in enumerate(surveys) if part[0]]
        require(filled, f"X has no rows: no {noun} holds any.")
        rows, p, constants, weights, zeros = zip(*surveys, strict=True)
        features = p[filled[0]]
        for number in filled:
            if p[number] != features:
                raise ValueError(
                    f"In {noun} {number}: {p[number]} features, where {noun} {filled[0]} has {features}. All must have "
                    "the same columns."
                )
        for number, (n, said) in enumerate(zip(rows, told, strict=False)):
            require(n == said, f"In {noun} {number}: {n} rows, where X says that it has {said}.")
        if self.source.weights is not None and not any(weight > 0 for weight in weights):
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        self.sizes, self.shape, self.zeros = list(rows), (sum(rows), features), sum(zeros)
        self.source = replace(self.source, features=features)
        self.constant = float(np.sum(np.array(constants)))
        self._checked = True

    def steps(self, centroids: FloatArray) -> Steps:
        self.last, self.iteration = LastStep(), 0
        return StepsInParts(self, centroids)

    def step(self, templates: FloatArray, offsets: FloatArray | None = None) -> StepSums:
        """One step over all parts."""
        following = LastStep(next(self._step_numbers), templates, offsets)
        self.iteration += 1
        step: StepSums = self.total(step_of, *following)
        self.last = following
        return step


class StepsInParts(Steps):
    """The steps of a run over rows in parts; the centroids are on the host."""

    def __init__(self, data: InParts, centroids: FloatArray) -> None:
        self.data = data
        self.centroids = np.ascontiguousarray(centroids, dtype=np.float64)

    def next(self) -> StepSums:
        divergence = self.data.divergence
        return self.data.step(divergence.templates(self.centroids), divergence.offsets(self.centroids))

    def update(self, step: StepSums, *, more: bool) -> Drift:
        if self.data.divergence.curved:
            return update_curved(self.data.divergence, step, self.centroids, partial(self.data.total, evaluate_part))
        return update_centroids(self.data.divergence, step, self.centroids, self.data.backend.threads)

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self.centroids[cluster] = centroid


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
        return reduce(iadd, self._each(function, args))  # each was made for this sum

    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        first = self.firsts[number]
        load = partial(self.source.one or (lambda number: next(islice(self._blocks(), number, None))), number)
        weights = partial(self.source.weights_of, first)
        return self.task(function)(self._memo, number, first, load, weights, self.last.templates, args)[0]

    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        return tuple(
            vstack(arrays, format="csr") if issparse(arrays[0]) else np.concatenate(arrays)
            for arrays in zip(*self._each(rows_of, (function, *args), labels), strict=True)
        )

    def _each(self, function: Callable[..., Any], args: tuple[Any, ...], labels: Array | None = None) -> Iterator[Any]:
        """The result of the function for each block, one after the other."""
        source, sizes = self.source, self.sizes
        several = self._checked or function is survey  # passes; else nothing needs to be kept
        task, first = self.task(function), 0
        progress, name = self.engine.progress, self._name_pass(function)
        missing = object()
        if progress is not None:
            progress(name, 0.0)
        blocks = self._blocks()
        for number in count():  # ends with the caller's iterator
            interrupt.check()
            with name_part_in_errors(source.noun, number):
                raw = next(blocks, missing)
            if raw is missing:
                break
            if sizes and number >= len(sizes):
                raise self._changed("more")
            extra = args if labels is None else (*args, labels[first : first + sizes[number]])
            load = [raw].pop  # hands the block over: one is in memory at a time
            del raw
            cache, weights = self._memo if several else PartCache(), partial(source.weights_of, first)
            result, n, zeros = task(cache, number, first, load, weights, self.last.templates, extra)
            self.zeros += zeros
            yield result
            first += n
            if progress is not None and self.shape[0]:
                progress(name, first / self.shape[0])
        if number < len(sizes):
            raise self._changed("fewer")
        require(number, "X has no rows: the callable returned no batches.")
        if np.ndim(source.weights) and first != len(source.weights):
            raise ValueError(f"sample_weight has {len(source.weights)} entries, but X has {first} rows.")
        if source.groups is not None:
            source.groups.check_length(first)

    def _name_pass(self, function: Callable[..., Any]) -> str:
        """What a pass that runs this function does."""
        names = {survey: "reading", step_of: f"iteration {self.iteration}", rows_of: "looking at the clusters"}
        self._passes = 0 if function in names else self._passes + 1
        return names.get(function, f"choosing a start, pass {self._passes}")

    def _changed(self, how: str) -> PartError:
        return PartError(
            f"The callable returned {how} batches than in the first pass, when there were {len(self.sizes)}: it must "
            "return the same ones each time."
        )

    def _blocks(self) -> Iterator[Any]:
        """The blocks, one after the other."""
        blocks = self.source.blocks()
        if not isinstance(blocks, Iterable) or getattr(blocks, "ndim", 0) == 2:
            raise TypeError(
                f"X() returned {type(blocks).__name__}, not batches: pass a function without arguments that returns "
                "an iterator over arrays or CSR matrices, anew each time."
            )
        return iter(blocks)
