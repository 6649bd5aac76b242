"""Rows of a Dask collection: parts on the workers of a cluster, or read one by one from a laptop's disk.

A pass is one task for each part, and a tree of additions that always has the same shape. What is kept of a part between
passes stays in the process that worked on it. If that process is gone, the next one computes it again from the part and
the last templates. So a fit needs nothing but parts that can be read again.

Tasks of Dask have no state, so what a process keeps from one pass to the next lives in this module, under the key of
its fit. It is dropped with the fit, and it may be lost at any time.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, reduce
from operator import getitem, iadd
from threading import RLock
from typing import Any
from uuid import uuid4
from weakref import finalize, ref

import numpy as np

from onmf import interrupt
from onmf.backend import Backend, RunState
from onmf.divergence import Array, Divergence

from .base import Part
from .parts import InParts, PartCache, PartError, PartsEngine, PartTask, Source, rows_of
from .validate import check_container

WORTH_SENDING = 1 << 16  # bytes from which an argument, or data in a graph, is sent once instead of with every pass
IDLE_CHECKS = 3  # times that all workers are found idle, two seconds apart, before an unfinished pass is tried again
ATTEMPTS = 3  # times that a pass is tried if data that were sent to the workers are lost with them
ADDED_AT_ONCE = 8  # parts, or sums of parts, that one task of the tree adds
CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)  # for futures that will never be done
FITS = 2  # that a process remembers; one more only takes longer


class Dask(PartsEngine):
    """Rows of a Dask collection; each partition is worked on where it lies.

    Parameters
    ----------
    backend : Backend
        Computes over each partition. Several partitions are worked on at a time, so it needs no threads of its own.
    patience : float, default=60
        Seconds to wait for a worker when there is none left.
    """

    name = "dask"

    def __init__(self, backend: Backend, patience: float = 60.0) -> None:
        super().__init__(backend)
        self.patience = patience

    def refuses(self, X: Any) -> str | None:
        if isinstance(X, Source) and not callable(X.blocks):
            return None
        return (
            "it takes Dask collections. Use engine='cpu' for what is in memory, or cut it into parts with "
            "dask.array.from_array(X, chunks=(rows, -1))."
        )

    def open(self, source: Source, divergence: Divergence) -> InDask:
        return InDask(self, source, divergence)


class InDask(InParts):
    """Rows of a Dask collection."""

    engine: Dask

    def __init__(self, engine: Dask, source: Source, divergence: Divergence) -> None:
        super().__init__(engine, source, divergence)
        self._key = ""  # under which workers keep what they know of the parts; nothing is kept without one
        self._sent: list[tuple[Any, Any]] = []
        self._pinned = True

    @cached_property
    def _blocks(self) -> list[Any]:
        """The partitions as tasks take them."""
        return inlined(self.source.blocks)

    def survey(self) -> None:
        client = current_client()
        if client is not None:  # weights and data of this process go to the workers; if one dies, Dask sends them again
            blocks, weights = scatter_once(self.source.blocks, self.source.weights or [], client)
            self.source = replace(self.source, blocks=blocks, weights=weights or self.source.weights)
        super().survey()
        # Only now, because the first pass finds out where parts begin: what it kept would not know.
        self._key = uuid4().hex
        finalize(self, forget_everywhere, self._key, None if client is None else ref(client)).atexit = False

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return self._attempt(function, args)

    def total(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._attempt(function, args, together=True)[0]

    def map_part(self, number: int, function: Callable[..., Any], *args: Any) -> Any:
        return self._attempt(function, args, only=number)[0]

    def _attempt(
        self, function: Callable[..., Any], args: tuple[Any, ...], *, together: bool = False, only: int | None = None
    ) -> list[Any]:
        """Compute the results of tasks; try again if workers took data with them that only this process has."""
        import dask

        attempts = ATTEMPTS
        while True:  # ends with the last attempt, which returns or raises
            client = current_client()
            try:
                tasks = self._tasks(function, args, client, only)
                tasks = tree_sum(tasks) if together else tasks
                if client is None:
                    return list(dask.compute(*tasks, traverse=False))
                before = set(client.ncores())
                futures = client.compute(tasks)
                self._wait(futures, client, before)
                return self._gather(futures, client)
            except Lost:
                attempts -= 1
                if attempts == 0:
                    raise
                self._sent.clear()
                self._pinned = False  # a task that waits for a dead worker may wait forever

    def map_rows(self, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        """Dask arrays with the chunks of the input, not computed yet."""
        import dask.array as da

        sizes: list[Any] = self.sizes or [np.nan] * len(self.source.blocks)
        tasks = self._tasks(rows_of, (function, *args), None, labels=labels)
        # The results for a part without rows, after a step, tell dtype and shape without reading a part.
        block = self.backend.make_block(np.empty((0, self.shape[1])), self.divergence)
        run = self.backend.start_run(block)
        run.state = RunState(np.empty(0, np.int32), np.empty(0))
        args = args if labels is None else (*args, np.empty(0, int))
        arrays = []
        for place, example in enumerate(rows_of(Part(block, run), function, *args)):
            blocks = [
                da.from_delayed(delayed(getitem)(task, place), (n, *example.shape[1:]), meta=example[:0])
                for task, n in zip(tasks, sizes, strict=True)
            ]
            arrays.append(da.concatenate(blocks, allow_unknown_chunksizes=True) if len(blocks) > 1 else blocks[0])
        return tuple(arrays)

    def to_input_memory(self, *arrays: Any) -> tuple[Any, ...]:
        """Compute Dask arrays, on the workers or in this process; other arrays stay as they are."""
        import dask

        client = current_client()
        before = set() if client is None else set(client.ncores())
        with warnings.catch_warnings():  # the templates are in the graph, so that lost arrays can be computed again
            warnings.filterwarnings("ignore", message="Sending large graph")
            computed = dask.persist(*arrays)
        if client is not None:
            from distributed.client import futures_of

            futures = futures_of(computed)
            self._wait(futures, client, before)
            self._gather([future for future in futures if future.status == "error"][:1], client)
        return computed

    def _tasks(
        self, function: Callable[..., Any], args: Any, client: Any, only: int | None = None, labels: Any = None
    ) -> list[Any]:
        """One task for each part."""
        import dask

        blocks = self._blocks
        weights = self.source.weights or [None] * len(blocks)
        args = (self._key, self.task(function), self.last.templates, *args)
        shared = [self._shared(value, client) for value in args]
        firsts = self.firsts or [0] * len(blocks)
        if labels is not None:  # Dask has left out the chunks without rows
            chunks = iter(labels.to_delayed().ravel())
            labels = [next(chunks) if n else np.empty(0, np.int32) for n in self.sizes]
        workers = sorted(client.ncores()) if client is not None and self._pinned else []
        name = f"{function.__name__.lstrip('_')}-{uuid4().hex}"
        tasks = []
        for number in range(len(blocks)) if only is None else [only]:
            where: dict[str, Any] = {}
            if workers and isinstance(blocks[number], Inlined):
                # On the worker of the last pass, unless that is gone or busy.
                where = {"workers": [workers[number * len(workers) // len(blocks)]], "allow_other_workers": True}
            own = (number, firsts[number], blocks[number], weights[number])
            extra = [] if labels is None else [labels[number]]
            with dask.annotate(**where):
                tasks.append(delayed(run_part)(*own, *shared, *extra, dask_key_name=f"{name}-{number}"))
        return tasks

    def _shared(self, value: Any, client: Any) -> Any:
        """An argument as tasks take it: the same object for all of them, and on every worker if it is large."""
        if value is None or isinstance(value, int | float | str):
            return value
        if client is None or getattr(value, "nbytes", 0) < WORTH_SENDING:
            return delayed(value, traverse=False, name=f"given-{uuid4().hex}")
        for array, future in self._sent:
            if array is value:
                return future
        try:
            self._sent.append((value, client.scatter(value, broadcast=True, hash=False)))
        except OSError as error:  # a TimeoutError, if there is no worker, is one
            raise self._lost(client) from error
        del self._sent[:-2]  # the templates of this step and of the last one
        return self._sent[-1][1]

    def _gather(self, futures: list[Any], client: Any) -> list[Any]:
        from distributed import KilledWorker

        try:
            return list(client.gather(futures))
        except KilledWorker as error:
            failed = [future.key for future in futures if future.status == "error"]
            numbers = part_numbers([error.task, *failed, *client.run_on_scheduler(most_suspicious)])
            raise PartError(
                f"In {f'partition {numbers}' if numbers else f'task {error.task}'}: every worker that took it died; "
                "most likely they ran out of memory. Make the partitions smaller (X.rechunk), or give the workers more "
                "memory (memory_limit)."
            ) from error
        except CANCELLED as error:
            raise self._lost(client) from error

    def _wait(self, futures: list[Any], client: Any, before: set[str]) -> None:
        """Wait until all are done, or until no worker is left; ``before`` has the workers that were there at first."""
        alone_since, idle = None, 0
        # Ends with the tasks. If no worker works on one any more, patience or IDLE ends it.
        while True:
            interrupt.check()
            try:
                if client.sync(done_within, futures, 2):
                    return
                at_work = client.processing()
            except (*CANCELLED, OSError, RuntimeError, ValueError, AttributeError) as error:
                raise self._lost(client) from error  # a client that was just closed has no scheduler any more
            now = time.monotonic()
            alone_since = None if at_work else alone_since or now
            if alone_since is not None and now - alone_since > self.engine.patience:
                numbers = part_numbers(client.run_on_scheduler(most_suspicious))
                fatal = (
                    f", and the last ones died at partition {numbers}: most likely they ran out of memory, so make it "
                    "smaller"
                )
                raise PartError(
                    f"The Dask cluster has had no worker for {self.engine.patience:g} seconds"
                    f"{fatal if numbers else ''}. Start workers, then fit again."
                )
            idle = idle + 1 if at_work and before - set(at_work) and not any(at_work.values()) else 0
            if idle == IDLE_CHECKS:  # the others have been idle for a while: tasks wait for the one that is gone
                raise self._lost(client)

    def _lost(self, client: Any) -> RuntimeError:
        if client.status == "running":
            return Lost("Workers of the Dask cluster went away again and again, and with them what they were sent.")
        return RuntimeError(
            "The Dask cluster went away while its workers were at work: start it again, then fit again."
        )


async def done_within(futures: list[Any], seconds: float) -> bool:
    """Whether all tasks end in time; in the client's loop, because a late wait leaves cycles that hold the data."""
    from distributed import wait

    try:
        await wait(futures, timeout=seconds)
    except TimeoutError:
        return False
    return True


class Lost(RuntimeError):
    """Data that this process had sent to workers were lost with them."""


_caches: OrderedDict[str, PartCache] = OrderedDict()
_lock = RLock()  # reentrant, because the garbage collector may call forget() at any point


def run_part(number: int, first: int, block: Any, weights: Any, key: str, task: PartTask, last: Any, *args: Any) -> Any:
    """The task of one part, on a worker; ``key`` is that of the fit."""
    stays = not isinstance(block, Inlined)
    load = (lambda: block) if stays else block.read
    return task(cache_of(key), number, first, load, weights, last, args, stays)[0]


def cache_of(key: str) -> PartCache:
    """What this process keeps of the parts of a fit."""
    if not key:
        return PartCache()
    with _lock:
        cache = _caches[key] = _caches.pop(key, PartCache())
        while len(_caches) > FITS:
            _caches.popitem(last=False)
    return cache


def forget(key: str) -> None:
    """Drop what this process keeps of a fit."""
    with _lock:
        _caches.pop(key, None)


def forget_everywhere(key: str, client: Callable[[], Any] | None) -> None:
    """Drop what this process and the workers keep of a fit, without waiting for them."""
    forget(key)
    running = None if client is None else client()
    if running is not None and running.status == "running":
        with suppress(RuntimeError):  # its loop has ended
            running.loop.add_callback(forget_on_workers, running, key)


async def forget_on_workers(client: Any, key: str) -> None:
    """Ask all workers to drop what they keep of a fit."""
    with suppress(Exception):  # a worker that is gone keeps nothing
        await client.run(forget, key, on_error="ignore", asynchronous=True)


def most_suspicious(dask_scheduler: Any) -> list[str]:
    """The tasks of parts with which most workers died; runs on the scheduler."""
    tasks = dask_scheduler.tasks.items()
    deaths = {str(key): task.suspicious for key, task in tasks if task.suspicious and part_numbers([key])}
    return [key for key, times in deaths.items() if times == max(deaths.values())]


def part_numbers(keys: Iterable[Any]) -> str:
    """The numbers of the parts that these tasks work on; some tasks work on none."""
    matches = (re.search(r"-[0-9a-f]{32}-(\d+)$", str(key)) for key in keys)
    return " or ".join(map(str, sorted({int(match[1]) for match in matches if match})))


class Inlined:
    """A block together with the tasks that make it, to be run inside another task."""

    def __init__(self, graph: dict[Any, Any], key: Any) -> None:
        self.graph, self.key = graph, key

    def read(self) -> Any:
        """Make the block."""
        import dask

        return dask.get(self.graph, self.key)


def delayed(value: Any, **options: Any) -> Any:
    """``dask.delayed``, which mypy knows nothing about; never the same key twice."""
    import dask

    return dask.delayed(value, pure=False, **options)


def current_client() -> Any:
    """The client of the cluster that Dask would compute on now; None for threads of this process."""
    from dask.base import get_scheduler

    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "scatter") else None


def tree_sum(tasks: list[Any]) -> list[Any]:
    """One task that adds up the results of the others, in an order that depends on their number alone."""
    while len(tasks) > 1:
        groups = [tasks[i : i + ADDED_AT_ONCE] for i in range(0, len(tasks), ADDED_AT_ONCE)]
        tasks = [delayed(add_up)(group) if len(group) > 1 else group[0] for group in groups]
    return tasks


def add_up(values: list[Any]) -> Any:
    """The sum of a few values, in their order."""
    return reduce(iadd, values[2:], values[0] + values[1])


def scatter_once(blocks: list[Any], weights: list[Any], client: Any) -> tuple[list[Any], list[Any] | None]:
    """Blocks whose large data are on the workers already, and the weights as well if they were delayed."""
    from dask.delayed import Delayed

    graphs, data = own_graphs(blocks), dict[Any, Any]()
    for key, node in (pair for graph in graphs for pair in graph.items()):
        if key not in data and bytes_of_data(node) > WORTH_SENDING:
            data[key] = Delayed(key, {key: node})
    lazy = [part for part in weights if hasattr(part, "__dask_graph__")]
    if not data and not lazy:
        return blocks, None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        persisted = client.persist([*data.values(), *lazy])
    sent = {key: leaf.__dask_graph__()[key] for key, leaf in zip(data, persisted, strict=False)}
    blocks = [
        Delayed(block.key, {key: sent.get(key, node) for key, node in graph.items()})
        for block, graph in zip(blocks, graphs, strict=True)
    ]
    return blocks, persisted[len(data) :] if lazy else None


def inlined(blocks: list[Any]) -> list[Any]:
    """The blocks, each with the tasks that make it, unless it shares tasks with others or is on a worker already."""
    # The task that works on a part then also reads it: no part is sent anywhere or waits in memory for its turn.
    graphs = own_graphs(blocks)
    seen = Counter(key for graph in graphs for key in graph)
    return [
        block
        if any(seen[key] > 1 or hasattr(task, "client") for key, task in graph.items())
        else Inlined(graph, block.key)
        for graph, block in zip(graphs, blocks, strict=True)
    ]


def own_graphs(blocks: list[Any]) -> list[dict[Any, Any]]:
    """The tasks that make each block."""
    from dask.optimization import cull

    graphs, last, tasks = [], None, dict[Any, Any]()
    for block in blocks:
        graph = block.__dask_graph__()
        if graph is not last:  # blocks of one array have one graph
            last, tasks = graph, dict(graph)
        graphs.append(dict(cull(tasks, [block.key])[0]))
    return graphs


def bytes_of_data(node: Any) -> int:
    """The bytes that travel to a worker for a node of a graph; 0 for a task, and for data that are on one already."""
    import cloudpickle

    buffers: list[int] = []
    task = isinstance(node, tuple | list) or (hasattr(node, "dependencies") and not hasattr(node, "value"))
    if task or hasattr(node, "client"):
        return 0
    try:  # arrays are counted and not copied
        rest = cloudpickle.dumps(node, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw().nbytes))
    except Exception:  # Dask will say why it cannot be sent
        return 0
    return len(rest) + sum(buffers)


def as_blocks(X: Any) -> tuple[list[Any], list[int] | None, int | None, Array | None]:
    """A Dask collection as delayed blocks of rows, with their sizes, the number and the names of features, if known."""
    from dask.delayed import Delayed

    if isinstance(X, Delayed):
        X = [X]
    elif hasattr(X, "to_textfiles"):  # a bag: each of its partitions is a list of blocks
        X = X.to_delayed()
    if isinstance(X, list | tuple):
        return list(X), None, None, None
    if hasattr(X, "columns"):
        names = np.asarray(list(X.columns), dtype=object) if all(isinstance(c, str) for c in X.columns) else None
        return list(X.to_delayed()), None, len(X.columns), names
    if not (hasattr(X, "chunks") and hasattr(X, "to_delayed")):
        raise TypeError(
            f"X is a Dask {type(X).__name__}: pass a Dask array or frame, a bag of CSR blocks, or a list of delayed "
            "ones."
        )
    if X.ndim != 2:
        raise ValueError(f"X is a Dask array of {X.ndim} dimensions: reshape it to rows and features.")
    blocks = [
        row[0] if len(row) == 1 else delayed(join_columns)(list(row))
        for row in X.to_delayed(optimize_graph=False)  # optimising loses what is on workers already
    ]
    sizes, p = list(X.chunks[0]), X.shape[1]
    return blocks, None if np.isnan(sizes).any() else [int(n) for n in sizes], None if np.isnan(p) else int(p), None


def join_columns(blocks: list[Any]) -> Any:
    """Blocks of the same rows and different columns as one; sparse if one of them is."""
    from scipy.sparse import csr_array, hstack, issparse

    blocks = [check_container(block, f"X.blocks[:, {number}]") for number, block in enumerate(blocks)]
    return hstack(list(map(csr_array, blocks)), format="csr") if any(map(issparse, blocks)) else np.hstack(blocks)
