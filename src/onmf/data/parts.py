"""Rows in parts: what is common to parts that are read one after the other and parts on the workers of a cluster."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from onmf.backend import Backend, CentroidEntries, Drift, Matrix, Steps, StepSums, update_centroids, update_curved
from onmf.divergence import Array, Divergence, FloatArray

from .base import Data, Engine, backend_of
from .part_task import PartTask, Survey, evaluate_part, step_of, survey


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

    def __init__(self, backend: Backend, source: Source, divergence: Divergence) -> None:
        self.backend, self.source, self.divergence, self.origin = backend, source, divergence, source.origin
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

    @abstractmethod
    def over_parts(self, function: Callable[..., Any], args: tuple[Any, ...], together: bool) -> Any:
        """Run a function over all parts: the list of its results, or their sum if ``together``."""

    def task(self, function: Callable[..., Any]) -> PartTask:
        """The task of a pass that runs this function."""
        source, features = self.source, self.source.features
        read, check = partial(source.read, features=features), partial(source.check, features=features)
        return PartTask(
            self.backend,
            read,
            check,
            source.noun,
            self.divergence,
            self.last.number,
            self.last.offsets,
            function,
            self._sizes,
            self._checked,
        )

    def survey(self) -> None:
        """Read all parts once, check them, and find out their sizes."""
        noun, told, self._sizes = self.source.noun, self._sizes, []
        surveys: list[Survey] = self.over_parts(survey, (), False)
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

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return list(self.over_parts(function, args, False))

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.over_parts(function, args, True)

    def steps(self, centroids: FloatArray) -> Steps:
        self.last, self.iteration = LastStep(), 0
        return StepsInParts(self, centroids)

    def step(self, templates: FloatArray, offsets: FloatArray | None = None) -> StepSums:
        """One step over all parts."""
        following = LastStep(next(self._step_numbers), templates, offsets)
        self.iteration += 1
        step: StepSums = self.over_parts(step_of, tuple(following), True)
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
