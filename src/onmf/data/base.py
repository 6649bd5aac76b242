"""Where rows lie: an engine places them, and the placed data run functions over their parts.

Rows may lie in one part, in memory, or in many. Whatever is computed from all rows is therefore a function of one part,
``function(part, *args)``, whose results are listed, added or joined. This room holds no mathematics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

from onmf.backend import Backend, Block, Matrix, Run, Steps, on_gpu, to_host
from onmf.divergence import Divergence, FloatArray

from .validate import read_only


@dataclass
class Part:
    """Some of the rows, as the functions over parts get them."""

    block: Block
    run: Run  # the current run over the rows
    number: int = 0  # index of this part
    first: int = 0  # index of its first row in the whole
    scratch: Any = None  # what a start keeps between passes; it can be lost, and is dropped when a run begins


class Data(ABC):
    """Rows in their place, to be fitted."""

    backend: Backend
    divergence: Divergence
    shape: tuple[int, int]  # rows and features
    sizes: list[int]  # number of rows of each part
    constant: float  # Σ w·constant, the part of the objective that no clustering changes
    origin: Any  # what a callable start gets: parts as the user passed them; rows in memory checked and read-only
    zeros: int = 0  # rows of parts read so far that are zero everywhere; those in memory are known before
    grouping: Any = None  # what a fit has found out about the groups of the rows, for all its runs
    known: Any = None  # the rows whose clusters are known
    guide: Any = None  # what a fit knows beforehand of its clusters, for all its runs

    @abstractmethod
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(part, *args)`` of each part, in their order: small values, on the host."""

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum of ``function(part, *args)`` over the parts, added in an order that is always the same."""
        return reduce(add, self.map(function, *args))

    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """``function(part, *args)`` of one part."""
        return self.map(function, *args)[number]

    @abstractmethod
    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        """Arrays with one entry or row for each row of the data, in the form and memory that the data came in.

        ``function(part, *args)`` returns a tuple of them. ``labels``, if given, is such an array; the function gets the
        labels of its part as the last argument.
        """

    @abstractmethod
    def steps(self, centroids: FloatArray) -> Steps:
        """Begin a run from these centroids."""

    @abstractmethod
    def with_divergence(self, divergence: Divergence) -> Data:
        """The same rows for another divergence."""

    def smooth(self, divergence: Divergence) -> None:
        """Take a divergence that differs in its smoothing alone for all that follows."""
        self.divergence = divergence

    def to_device(self, array: Any) -> Any:
        """Bring an array to where functions over parts take it from: the host, if there are many parts."""
        return to_host(array)

    def to_input_memory(self, *arrays: Any) -> tuple[Any, ...]:
        """Arrays of a result, computed, in the memory that the data came from."""
        return arrays

    def single_part(self) -> Part:
        """All rows as one part. Only rows in memory have it."""
        raise ValueError("This needs all rows in memory, and X comes in parts: pass a sample of its rows.")

    @property
    def parallel_runs(self) -> int:
        """How many runs can work on these data at the same time, each on a :meth:`fork`."""
        return 1

    def fork(self) -> Data:
        """The same data for another run at the same time; it gives the same bits."""
        return self


class Engine(ABC):
    """What the parameter ``engine`` stands for: a place for rows, and the backend that computes there."""

    name: str  # in messages and results
    backend: Backend  # computes over each part

    def __init__(self, backend: Backend | Engine) -> None:
        given = backend.backend if isinstance(backend, Engine) else backend
        if not isinstance(given, Backend):
            raise TypeError(f"{backend!r} is no backend: pass an object of onmf.backend, such as CpuBackend().")
        self.backend = given

    @abstractmethod
    def refuses(self, X: Any) -> str | None:
        """Why this engine cannot hold ``X``, as a sentence; None if it can."""

    @abstractmethod
    def make_data(self, X: Any, divergence: Divergence, sample_weight: FloatArray | None = None) -> Data:
        """Place rows that have been checked, and compute once what every step needs."""


class Memory(Engine):
    """Rows in memory.

    Parameters
    ----------
    backend : Backend
        Computes over them.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.name = self.backend.name

    def refuses(self, X: Any) -> str | None:
        if hasattr(X, "blocks"):
            return "it comes in parts, which this engine would have to hold all at once. Use engine='auto'."
        if on_gpu(X) and not self.backend.takes_cupy:
            return "it is in the memory of a GPU. Use engine='gpu' or 'auto', or pass X.get()."
        return None

    def make_data(self, X: Matrix, divergence: Divergence, sample_weight: FloatArray | None = None) -> InMemory:
        return InMemory(self.backend.make_block(X, divergence, sample_weight))


class InMemory(Data):
    """Rows in memory, held by a backend."""

    def __init__(self, block: Block) -> None:
        self.part = Part(block, block.backend.start_run(block))
        self.block, self.backend, self.divergence, self.shape = block, block.backend, block.divergence, block.shape
        self.sizes = [len(block)]

    @property
    def origin(self) -> Any:
        return read_only(self.block.source)

    @cached_property
    def constant(self) -> float:  # type: ignore[override]  # only fits need it
        return self.block.constant

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return [function(self.part, *args)]

    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        args = args if labels is None else (*args, self.backend.to_device(labels))
        return self.to_input_memory(*function(self.part, *args))

    def to_device(self, array: Any) -> Any:
        return self.backend.to_device(array)

    def to_input_memory(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(map(self.backend.to_device if on_gpu(self.block.source) else to_host, arrays))

    def steps(self, centroids: FloatArray) -> Steps:
        self.part.scratch = None
        self.part.run = self.backend.start_run(self.block)
        return self.backend.steps(self.part.run, centroids)

    def with_divergence(self, divergence: Divergence) -> InMemory:
        return InMemory(self.backend.make_block(self.block.source, divergence, self.block.weights))

    def smooth(self, divergence: Divergence) -> None:
        super().smooth(divergence)
        self.block = self.block.copy_with(divergence=divergence)
        self.part = Part(self.block, self.backend.start_run(self.block))

    def single_part(self) -> Part:
        return self.part

    @property
    def parallel_runs(self) -> int:
        return 1 if self.backend.single_threaded() is None else self.backend.threads.number

    def fork(self) -> InMemory:
        if self.divergence.fixed_weights:
            _ = self.block.fixed_weights  # computed once for all forks
        forked = InMemory(self.block.copy_with(backend=self.backend.single_threaded() or self.backend))
        forked.grouping, forked.known, forked.guide = self.grouping, self.known, self.guide
        return forked
