"""Rows in parts: what is common to parts that are read one after the other and parts on the workers of a cluster.

The task of a pass reads a part, restores what is kept of it, runs a function, and keeps what comes out. Between two
passes, only numbers by row are kept of a part: row terms, labels, scales. All of them can be computed again from the
part and the templates of the last step, so a worker that dies takes nothing with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

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

from .base import Data, Engine, Part, backend_of


class PartError(RuntimeError):
    """Something went wrong in one part of the data; the message says in which."""


@dataclass(frozen=True)
class Source:
    """Rows in parts that can be read, before an engine holds them."""

    blocks: Any  # the parts, or a callable that returns them in turn, the same ones each time
    read: Callable[..., Matrix]  # read(block, features=...) -> rows as backends read them; refuses what is not allowed
    check: Callable[..., tuple[Matrix, int]]  # the same for a part that is read for the first time: -> rows, zero rows
    weights: Any = None  # one array, or one for each part; a number is the weight of every row
    noun: str = "part"  # what messages call a part
    one: Callable[[int], Any] | None = None  # returns a part by its number, without those before it
    sizes: list[int] | None = None  # rows of each part, if known before they are read
    features: int | None = None  # number of features, if known
    names: Array | None = None  # of the features
    origin: Any = None  # what the user passed
    gpu: bool = False  # whether the parts are CuPy arrays

    @property
    def shape(self) -> tuple[Any, Any]:
        """(rows, features), None where not known yet."""
        return (None if self.sizes is None else sum(self.sizes), self.features)

    def weights_of(self, first: int, n: int) -> Any:
        """The weights of n rows, if there is one array for all of them."""
        return self.weights if np.ndim(self.weights) == 0 else self.weights[first : first + n]


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
    ) -> tuple[Any, int]:
        """Run the function over part ``number``, whose first row is ``first``. → its result, the number of rows

        ``load()`` reads the part. ``weights`` are those of its rows, one number, or a function of the number of rows.
        ``templates`` are those of the last step. ``stays`` says whether the part stays in the memory of this process
        anyway.
        """
        with name_part_in_errors(self.source.noun, number):
            raw = load()
            with cache.lock(number):
                part = self._part(cache, number, first, raw, weights)
                resident = raw if stays and on_gpu(raw) else None
                del raw  # the block is all that is needed of it
                if self.last.number == 0:
                    part.run.state, part.step_number = RunState(), 0
                elif part.step_number != self.last.number:
                    assert templates is not None
                    labels, scales, _ = part.block.assign(part.block.prepare_templates(templates, self.last.offsets))
                    part.run.state, part.step_number = RunState(labels, scales), self.last.number
                result = self.function(part, *args)
                n = len(part.block)
                if n:  # in the first pass, the features of a part without rows are not known
                    block = part.block.without_rows() if resident is None else part.block
                    cache.parts[number] = PartState(block, part.run.state, part.step_number, part.scratch, resident)
                return result, n

    def _part(self, cache: PartCache, number: int, first: int, raw: Any, weights: Any) -> CachedPart:
        """The part, with what is kept of it."""
        kept, source = cache.parts.get(number), self.source
        if kept is not None and kept.resident is raw and raw is not None:
            return self._restored(cache, number, first, kept, kept.block)
        with mention_change_in_errors(self.checked or kept is not None):
            if kept is None:
                rows, zeros = source.check(raw, features=source.features)
            else:
                rows, zeros = source.read(raw, features=source.features), 0
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


class PartsEngine(Engine):
    """What engines for rows in parts share."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend_of(backend)

    @abstractmethod
    def open(self, source: Source, divergence: Divergence) -> InParts:
        """The rows, before any of them is read."""

    def make_data(self, X: Source, divergence: Divergence, sample_weight: FloatArray | None = None) -> InParts:
        data = self.open(X, divergence)
        data.survey()
        return data


class InParts(Data):
    """Rows in parts: how to read them (``source``), the last step, and the number of steps of the current run."""

    def __init__(self, engine: PartsEngine, source: Source, divergence: Divergence) -> None:
        self.engine, self.backend, self.divergence = engine, engine.backend, divergence
        self.source, self.origin = source, source.origin
        self.shape = (sum(source.sizes or []), source.features or 0)
        self.zeros = 0
        self.last = LastStep()
        self.iteration = 0
        self._sizes = list(source.sizes or [])
        self._checked = False
        self._constant = 0.0
        self._step_numbers = count(1)

    @property
    def sizes(self) -> list[int]:
        return self._sizes

    @property
    def firsts(self) -> list[int]:
        """Index of the first row of each part."""
        return [0, *np.cumsum(self._sizes)[:-1].tolist()] if self._sizes else []

    @property
    def constant(self) -> float:
        return self._constant

    def with_divergence(self, divergence: Divergence) -> InParts:
        return self.engine.make_data(self.source, divergence)

    def task(self, function: Callable[..., Any]) -> PartTask:
        """The task of a pass that runs this function."""
        source = replace(self.source, blocks=None, weights=None, one=None, names=None, origin=None)
        last = self.last._replace(templates=None)
        return PartTask(self.backend, source, self.divergence, last, function, self._sizes, self._checked)

    def survey(self) -> None:
        """Read all parts once, check them, and find out their sizes."""
        noun, told, self._sizes = self.source.noun, self._sizes, []
        surveys: list[Survey] = self.map(survey)
        filled = [(number, part) for number, part in enumerate(surveys) if part.rows]
        if not filled:
            raise ValueError(f"X has no rows: no {noun} holds any.")
        one, features = filled[0][0], filled[0][1].features
        for number, part in filled:
            if part.features != features:
                raise ValueError(
                    f"In {noun} {number}: {part.features} features, where {noun} {one} has {features}. All must have "
                    "the same columns."
                )
        sizes = [part.rows for part in surveys]
        for number, (n, said) in enumerate(zip(sizes, told, strict=False)):
            if n != said:
                raise ValueError(f"In {noun} {number}: {n} rows, where X says that it has {said}.")
        if self.source.weights is not None and not any(part.weight > 0 for part in surveys):
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        self._sizes, self.shape = sizes, (sum(sizes), features)
        self.source = replace(self.source, features=features)
        self._constant = float(np.sum(np.array([part.constant for part in surveys])))
        self.zeros = sum(part.zeros for part in surveys)
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
            return update_curved(self.data.divergence, step, self.centroids, self._evaluate)
        return update_centroids(self.data.divergence, step, self.centroids, self.data.backend.threads)

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self.centroids[cluster] = centroid

    def _evaluate(self, centroids: CentroidEntries) -> FloatArray:
        sums: FloatArray = self.data.total(evaluate_part, centroids)
        return sums
