"""Where rows lie: an engine places them, and the placed data run functions over their parts.

Rows may lie in one part, in memory, or in many. Whatever is computed from all rows is therefore a function of one part,
``function(part, *args)``, whose results are listed, added or joined. This room holds no mathematics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onmf.backend import Backend, Block, Run, Steps, Templates, to_host
from onmf.divergence import Divergence, FloatArray


@dataclass
class Part:
    """Some of the rows, as the functions over parts get them."""

    block: Block
    run: Run  # the current run over the rows
    number: int = 0  # index of this part
    first: int = 0  # index of its first row in the whole
    scratch: Any = None  # what a start keeps between passes; it can be lost, and is dropped when a run begins

    def prepare(self, templates: FloatArray, offsets: FloatArray | None) -> Templates:
        """Templates as the backend reads them."""
        return self.block.prepare_templates(templates, offsets)


class Data(ABC):
    """Rows in their place, to be fitted."""

    backend: Backend
    divergence: Divergence
    shape: tuple[int, int]  # rows and features
    origin: Any  # what a callable start gets: parts as the user passed them; rows in memory checked and read-only
    zeros: int = 0  # rows of parts read so far that are zero everywhere; those in memory are known before

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """Number of rows of each part."""

    @property
    @abstractmethod
    def constant(self) -> float:
        """Σ w·constant, the part of the objective that no clustering changes."""

    @abstractmethod
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(part, *args)`` of each part, in their order: small values, on the host."""

    @abstractmethod
    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum of ``function(part, *args)`` over the parts, added in an order that is always the same."""

    @abstractmethod
    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """``function(part, *args)`` of one part."""

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
    """What the parameter ``engine`` stands for: a place for rows, and the backend that computes there.

    Attributes
    ----------
    name : str
        Name in messages and results.
    backend : Backend
        Computes over each part.
    """

    name: str
    backend: Backend

    @abstractmethod
    def refuses(self, X: Any) -> str | None:
        """Why this engine cannot hold ``X``, as a sentence; None if it can."""

    @abstractmethod
    def make_data(self, X: Any, divergence: Divergence, sample_weight: FloatArray | None = None) -> Data:
        """Place rows that have been checked, and compute once what every step needs."""


def backend_of(inner: Any) -> Backend:
    """The backend for the parts of an engine: one that was given, or that of another engine."""
    backend = inner.backend if isinstance(inner, Engine) else inner
    if not isinstance(backend, Backend):
        raise TypeError(f"{inner!r} is no backend: pass an object of onmf.backend, such as CpuBackend().")
    return backend
