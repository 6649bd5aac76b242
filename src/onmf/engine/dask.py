"""The Dask engine: parts on the workers of a cluster, or read one by one from a laptop's disk.

A pass is one task for each part, and a tree of additions that always has the same shape. What is kept of a part between
passes stays in the process that worked on it; where that process is gone, the next one makes it again from the part and
the last templates. So a part that can be read again is all that a fit needs to go on.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import Any
from uuid import uuid4
from weakref import finalize, ref

import numpy as np

from onmf import interrupt
from onmf.divergence import Array, Divergence

from .base import Engine, Held
from .parts import HeldParts, Job, Kept, PartError, PartsEngine, Rows, rows_of, unprepare

FITS = 2
"""Fits of which a process keeps what it knows about parts; another one only takes longer."""

ADDED_AT_ONCE = 8
"""Parts, or sums of parts, that one task of the tree adds."""

WORTH_SENDING = 1 << 16
"""Bytes from which an argument, or data in a graph, goes to the workers once, instead of with every task or pass."""

IDLE = 3
"""Looks at idle workers, two seconds apart, after which a pass that is not done is tried again."""

ATTEMPTS = 3
"""Times that a pass is tried where what was sent to the workers is lost with them."""

_kept: OrderedDict[str, Kept] = OrderedDict()
_lock = RLock()  # what is let go of may be let go of in the middle of anything


class DaskEngine(PartsEngine):
    """Rows of a Dask collection, each partition worked on by an inner engine where it lies.

    Parameters
    ----------
    inner : Engine
        Works on each partition. Several partitions are worked on at a time, so it needs no threads of its own.
    patience : float, default=60
        Seconds to wait for a worker when there is none left.
    """

    name = "dask"

    def __init__(self, inner: Engine, patience: float = 60.0) -> None:
        super().__init__(inner)
        self.patience = patience

    def supports(self, X: Any) -> str | None:
        if isinstance(X, Rows) and not callable(X.blocks):
            return None
        return (
            "it takes Dask collections. Use engine='cpu' for what is in memory, or cut it into parts with "
            "dask.array.from_array(X, chunks=(rows, -1))."
        )

    def open(self, rows: Rows, divergence: Divergence) -> HeldParts:
        held = super().open(rows, divergence)
        held.memory["blocks"] = inlined(rows.blocks)
        return held

    def hold(self, X: Any, divergence: Divergence, sample_weight: Any = None) -> HeldParts:
        client = current_client()
        held = super().hold(X if client is None else self._sent_once(X, client), divergence, sample_weight)
        held.key = uuid4().hex  # the first pass finds out where rows begin; what it kept would not know
        finalize(held, let_go, held.key, None if client is None else ref(client)).atexit = False
        return held

    def _sent_once(self, rows: Rows, client: Any) -> Rows:
        """The rows, with weights and data that are in this process on the workers; where one dies, Dask sends again."""
        from dask.delayed import Delayed

        graphs, data = own_graphs(rows.blocks), dict[Any, Any]()
        for key, node in (pair for graph in graphs for pair in graph.items()):
            if key not in data and is_data(node) and bytes_in(node) > WORTH_SENDING:
                data[key] = Delayed(key, {key: node})
        weights = [part for part in rows.weights or [] if hasattr(part, "__dask_graph__")]
        if not data and not weights:
            return rows
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            found = client.persist([*data.values(), *weights])
        sent = {key: leaf.__dask_graph__()[key] for key, leaf in zip(data, found, strict=False)}
        blocks = [
            Delayed(block.key, {key: sent.get(key, node) for key, node in graph.items()})
            for block, graph in zip(rows.blocks, graphs, strict=True)
        ]
        return replace(rows, blocks=blocks, weights=found[len(data) :] if weights else rows.weights)

    def over_parts(self, held: HeldParts, function: Callable[..., Any], args: tuple[Any, ...], together: bool) -> Any:
        found = self._attempt(held, function, args, together, None)
        return found[0] if together else found

    def ask(self, held: Held, number: int, function: Callable[..., Any], *args: Any) -> Any:
        assert isinstance(held, HeldParts)
        return self._attempt(held, function, args, False, number)[0]

    def _attempt(
        self, held: HeldParts, function: Callable[..., Any], args: tuple[Any, ...], together: bool, only: int | None
    ) -> list[Any]:
        """Compute what tasks return, again where workers took something with them that only this process has."""
        for attempt in range(ATTEMPTS):
            client = current_client()
            try:
                tasks = self._tasks(held, function, args, client, only)
                return self._compute(in_a_tree(tasks) if together else tasks, client)
            except Lost:
                if attempt == ATTEMPTS - 1:
                    raise
                held.memory.pop("sent", None)
                held.memory["pinned"] = False  # tasks that wait for a worker that is gone may wait for ever
        raise AssertionError("the last attempt returns or raises")

    def by_row(self, held: Held, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        """Dask arrays with the chunks of the input, not computed yet."""
        import dask.array as da

        assert isinstance(held, HeldParts)
        sizes: list[Any] = held.parts or [np.nan] * len(held.data.blocks)
        given = (function, labels is not None, *args)
        tasks = self._tasks(held, rows_of, given, None, labels=labels)
        # What comes out for no rows tells dtype and the shape of a row; no part is read for it.
        none = [] if labels is None else [np.empty(0, int)]
        like = rows_of(self.inner, nothing_like(self.inner, held), *given, *none)
        arrays = []
        for place, example in enumerate(like):
            blocks = [
                da.from_delayed(pick(task, place), (n, *example.shape[1:]), meta=example[:0])
                for task, n in zip(tasks, sizes, strict=True)
            ]
            arrays.append(da.concatenate(blocks, allow_unknown_chunksizes=True) if len(blocks) > 1 else blocks[0])
        return tuple(arrays)

    def keep(self, held: Held, *arrays: Any) -> tuple[Any, ...]:
        """Dask arrays, computed, on the workers or in this process; what is in memory stays there."""
        import dask

        lazy = [array for array in arrays if dask.is_dask_collection(array)]
        found = iter(self._persisted(lazy))
        return tuple(next(found) if dask.is_dask_collection(array) else array for array in arrays)

    def _persisted(self, arrays: list[Any]) -> list[Any]:
        import dask

        client = current_client()
        if client is None:
            return list(dask.persist(*arrays))
        from distributed.client import futures_of

        with warnings.catch_warnings():  # the templates are in the graph, so that arrays can always be made again
            warnings.filterwarnings("ignore", message="Sending large graph")
            before = set(client.ncores())
            found = client.persist(arrays)
        futures = futures_of(found)
        self._wait(futures, client, before)
        self._gather([future for future in futures if future.status == "error"][:1], client)
        return list(found)

    def _tasks(
        self,
        held: HeldParts,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        client: Any,
        only: int | None = None,
        labels: Any = None,
    ) -> list[Any]:
        """One task for each part."""
        import dask

        rows: Rows = held.data
        blocks = held.memory["blocks"]
        job = Job(self.inner, rows, held.divergence, held.step, function, held.parts, held.checked)
        shared = [self._sent(held, value, client) for value in (Plain((held.key, job)), held.last, *args)]
        firsts = held.starts or [0] * len(blocks)
        if labels is not None:  # Dask has left out the chunks without rows
            chunks = iter(labels.to_delayed().ravel())
            labels = [next(chunks) if n else np.empty(0, np.int32) for n in held.parts]
        workers = sorted(client.ncores()) if client is not None and held.memory.get("pinned", True) else []
        name = f"{function.__name__.lstrip('_')}-{uuid4().hex}"
        tasks = []
        for number in range(len(blocks)) if only is None else [only]:
            extra = [] if labels is None else [labels[number]]
            weights = None if rows.weights is None else rows.weights[number]
            where: dict[str, Any] = {}
            if workers and isinstance(blocks[number], Plain):
                # Where it was in the last pass, unless that worker is gone or busy.
                where = {"workers": [workers[number * len(workers) // len(blocks)]], "allow_other_workers": True}
            with dask.annotate(**where):
                tasks.append(
                    delayed(run_part)(
                        number,
                        firsts[number],
                        blocks[number],
                        weights,
                        *shared,
                        *extra,
                        dask_key_name=f"{name}-{number}",
                    )
                )
        return tasks

    def _sent(self, held: HeldParts, value: Any, client: Any) -> Any:
        """An argument as tasks take it: the same object for all of them, on every worker where it is large."""
        if value is None or isinstance(value, int | float | str):
            return value
        if client is None or getattr(value, "nbytes", 0) < WORTH_SENDING:
            return delayed(value, traverse=False, name=f"given-{uuid4().hex}")
        sent = held.memory.setdefault("sent", [])  # the templates of this step and those of the last one
        for array, future in sent:
            if array is value:
                return future
        from distributed import TimeoutError as NoWorker

        try:
            sent.append((value, client.scatter(value, broadcast=True, hash=False)))
        except (NoWorker, OSError) as error:
            raise self._lost(client) from error
        del sent[:-2]
        return sent[-1][1]

    def _compute(self, tasks: list[Any], client: Any) -> list[Any]:
        import dask

        if client is None:
            return list(dask.compute(*tasks, traverse=False))
        before = set(client.ncores())
        futures = client.compute(tasks)
        self._wait(futures, client, before)
        return self._gather(futures, client)

    def _gather(self, futures: list[Any], client: Any) -> list[Any]:
        from distributed import KilledWorker

        try:
            return list(client.gather(futures))
        except KilledWorker as error:
            failed = [future.key for future in futures if future.status == "error"]
            numbers = numbers_in([error.task, *failed, *deadliest(client)])
            raise PartError(
                f"In {f'partition {numbers}' if numbers else f'task {error.task}'}: every worker that took it died; "
                "most likely they ran out of memory. Make the partitions smaller (X.rechunk), or give the workers more "
                "memory (memory_limit)."
            ) from error
        except CANCELLED() as error:
            raise self._lost(client) from error

    def _wait(self, futures: list[Any], client: Any, before: set[str]) -> None:
        """Until all are done, or there is nobody left to do them; ``before`` has the workers that were there first."""
        from distributed import TimeoutError as NotYet
        from distributed import wait

        alone_since, idle = None, 0
        # Ends with the tasks. Where no worker is at work on one any more, patience or IDLE ends it.
        while True:
            interrupt.check()
            try:
                wait(futures, timeout=2)
                return
            except NotYet:
                pass
            except CANCELLED() as error:
                raise self._lost(client) from error
            try:
                at_work = client.processing()
            except (OSError, RuntimeError, ValueError, NotYet) as error:
                raise self._lost(client) from error
            now = time.monotonic()
            alone_since = None if at_work else alone_since or now
            if alone_since is not None and now - alone_since > self.patience:
                raise PartError(
                    f"The Dask cluster has had no worker for {self.patience:g} seconds{last_at_work(client)}. Start "
                    "workers, then fit again."
                )
            idle = idle + 1 if at_work and before - set(at_work) and not any(at_work.values()) else 0
            if idle == IDLE:  # one is gone and the others have been idle for a while: tasks wait for the one
                raise self._lost(client)

    def _lost(self, client: Any) -> RuntimeError:
        if client.status == "running":
            return Lost("Workers of the Dask cluster went away again and again, and with them what they were sent.")
        return RuntimeError(
            "The Dask cluster went away while its workers were at work: start it again, then fit again."
        )


class Lost(RuntimeError):
    """Data that this process had sent to workers went down with them."""


class Plain:
    """Something that Dask shall not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


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


def CANCELLED() -> tuple[type[BaseException], ...]:
    """What Dask raises where futures will never be done."""
    import asyncio
    import concurrent.futures

    return (asyncio.CancelledError, concurrent.futures.CancelledError)


def run_part(number: int, first: int, block: Any, weights: Any, fit: Plain, last: Any, *args: Any) -> Any:
    """The task of one part, on a worker."""
    key, job = fit.value
    load = block.value.read if isinstance(block, Plain) else lambda: block
    return job(kept_of(key), number, first, load, weights, last, args)[0]


def kept_of(key: str) -> Kept:
    """What this process keeps of the parts of a fit."""
    kept = Kept()
    if not key:
        return kept
    with _lock:
        kept = _kept[key] = _kept.pop(key, kept)
        while len(_kept) > FITS:
            _kept.popitem(last=False)
    return kept


def let_go(key: str, client: Callable[[], Any] | None) -> None:
    """Drop what this process and the workers keep of a fit, without waiting for them."""
    drop(key)
    found = None if client is None else client()
    if found is not None and found.status == "running":
        with suppress(RuntimeError):  # its loop has ended
            found.loop.add_callback(drop_on_workers, found, key)


async def drop_on_workers(client: Any, key: str) -> None:
    """Ask all workers to drop what they keep of a fit; those that are gone have."""
    with suppress(Exception):
        await client.run(drop, key, on_error="ignore", asynchronous=True)


def drop(key: str) -> None:
    """Drop what this process keeps of a fit."""
    with _lock:
        _kept.pop(key, None)
    unprepare()


def in_a_tree(tasks: list[Any]) -> list[Any]:
    """One task that adds up what the others return; which are added with which depends on their number alone."""
    while len(tasks) > 1:
        groups = [tasks[i : i + ADDED_AT_ONCE] for i in range(0, len(tasks), ADDED_AT_ONCE)]
        tasks = [delayed(add_up)(group) if len(group) > 1 else group[0] for group in groups]
    return tasks


def add_up(values: list[Any]) -> Any:
    """The sum of a few values, in their order."""
    total = values[0] + values[1]
    for value in values[2:]:
        total += value
    return total


def pick(task: Any, place: int) -> Any:
    """One of the values that a task returns."""
    return delayed(take)(task, place)


def take(values: tuple[Any, ...], place: int) -> Any:
    """A value by its place."""
    return values[place]


def nothing_like(inner: Engine, held: HeldParts) -> Held:
    """A part without rows."""
    part = inner.hold(np.empty((0, held.shape[1])), held.divergence)
    part.labels, part.scales = np.empty(0, np.int32), np.empty(0)
    return part


def last_at_work(client: Any) -> str:
    """Which partitions workers had when they died, in words."""
    numbers = numbers_in(deadliest(client))
    if not numbers:
        return ""
    return f", and the last ones died at partition {numbers}: most likely they ran out of memory, so make it smaller"


def deadliest(client: Any) -> list[str]:
    """The tasks of parts with which most workers died."""
    found = client.run_on_scheduler(suspicious)
    return [key for key, times in found.items() if times == max(found.values())]


def suspicious(dask_scheduler: Any) -> dict[str, int]:
    """How many workers died with each task of a part, on the scheduler."""
    tasks = dask_scheduler.tasks.items()
    return {str(key): task.suspicious for key, task in tasks if task.suspicious and numbers_in([key])}


def numbers_in(keys: Iterable[Any]) -> str:
    """The numbers of the parts that these tasks work on; there are tasks that work on none."""
    found = {int(match[1]) for key in keys if (match := re.search(r"-[0-9a-f]{32}-(\d+)$", str(key)))}
    return " or ".join(map(str, sorted(found)))


def current_client() -> Any:
    """The client of the cluster that Dask would compute on now; None for threads of this process."""
    from dask.base import get_scheduler

    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "scatter") else None


def inlined(blocks: list[Any]) -> list[Any]:
    """The blocks, those with the tasks that make them inside that share none with others and are on no worker already.

    A part is then read by the task that works on it: it is never sent anywhere, none waits in memory for its turn, and
    an error in reading knows which part it is of.
    """
    graphs = own_graphs(blocks)
    seen = Counter(key for graph in graphs for key in graph)
    return [
        block if on_workers(graph) or any(seen[key] > 1 for key in graph) else Plain(Inlined(graph, block.key))
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


def on_workers(graph: dict[Any, Any]) -> bool:
    """Whether something of a graph is on a worker already."""
    return any(hasattr(task, "client") for task in graph.values())


def is_data(node: Any) -> bool:
    """Whether what stands in a graph is there to be taken as it is, and is on no worker yet."""
    task = isinstance(node, tuple | list) or (hasattr(node, "dependencies") and not hasattr(node, "value"))
    return not task and not hasattr(node, "client")


def bytes_in(node: Any) -> int:
    """What it takes on its way to a worker; arrays are counted and not copied."""
    import cloudpickle

    apart: list[int] = []
    try:
        rest = cloudpickle.dumps(node, protocol=5, buffer_callback=lambda found: apart.append(found.raw().nbytes))
    except Exception:  # Dask will say why it cannot be sent
        return 0
    return len(rest) + sum(apart)


def as_blocks(X: Any) -> tuple[list[Any], list[int] | None, int | None, Array | None]:
    """A Dask collection as delayed blocks of rows; their sizes, the number of features and their names, where known."""
    from dask.delayed import Delayed

    if isinstance(X, Delayed):
        return [X], None, None, None
    if isinstance(X, list | tuple):
        return list(X), None, None, None
    if hasattr(X, "to_textfiles"):  # a bag: each of its partitions is a list of blocks
        return list(X.to_delayed()), None, None, None
    if hasattr(X, "columns"):
        names = np.asarray(list(X.columns), dtype=object) if all(isinstance(c, str) for c in X.columns) else None
        return list(X.to_delayed()), None, len(X.columns), names
    if not hasattr(X, "chunks"):
        raise TypeError(
            f"X is a Dask {type(X).__name__}: pass a Dask array or frame, a bag of CSR blocks, or a list of delayed "
            "ones."
        )
    if X.ndim != 2:
        raise ValueError(f"X is a Dask array of {X.ndim} dimensions: reshape it to rows and features.")
    grid = X.to_delayed(optimize_graph=False)  # optimising loses what is on workers already
    blocks = [row[0] if len(row) == 1 else delayed(side_by_side)(list(row)) for row in grid]
    sizes, p = list(X.chunks[0]), X.shape[1]
    return blocks, None if np.isnan(sizes).any() else [int(n) for n in sizes], None if np.isnan(p) else int(p), None


def side_by_side(blocks: list[Any]) -> Any:
    """Blocks of the same rows and different columns as one."""
    from scipy.sparse import hstack, issparse

    return hstack(blocks, format="csr") if issparse(blocks[0]) else np.hstack(blocks)
