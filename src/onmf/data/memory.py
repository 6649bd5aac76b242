"""Rows in memory, of the host or of a GPU: one part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onmf.backend import Backend, Block, Matrix, Steps, on_gpu, to_host
from onmf.divergence import Divergence, FloatArray

from .base import Data, Engine, Part, backend_of
from .validate import read_only


class Memory(Engine):
    """Rows in memory.

    Parameters
    ----------
    backend : Backend
        Computes over them.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend_of(backend)
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
        self.backend, self.divergence, self.shape = block.backend, block.divergence, block.shape

    @property
    def block(self) -> Block:
        """The rows."""
        return self.part.block

    @property
    def origin(self) -> Any:
        return read_only(self.block.source)

    @property
    def sizes(self) -> list[int]:
        return [self.shape[0]]

    @property
    def constant(self) -> float:
        return self.block.constant

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return [function(self.part, *args)]

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.part, *args)

    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        return function(self.part, *args)

    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        extra = () if labels is None else (self.backend.to_device(labels),)
        return self.to_input_memory(*function(self.part, *args, *extra))

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

    def single_part(self) -> Part:
        return self.part

    @property
    def parallel_runs(self) -> int:
        return 1 if self.backend.single_threaded() is None else self.backend.threads.number

    def fork(self) -> InMemory:
        if self.divergence.fixed_weights:
            _ = self.block.fixed_weights  # computed once for all forks
        return InMemory(self.block.with_backend(self.backend.single_threaded() or self.backend))
