"""Graphs of Dask: collections as blocks of rows, data that are sent once, and sums in a tree."""

from __future__ import annotations

import warnings
from collections import Counter
from operator import getitem
from typing import Any

import numpy as np

from onmf.divergence import Array

from .validate import check_container

ADDED_AT_ONCE = 8
"""Parts, or sums of parts, that one task of the tree adds."""


class Opaque:
    """A value that Dask does not look into."""

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
    total = values[0] + values[1]
    for value in values[2:]:
        total += value
    return total


def pick(task: Any, place: int) -> Any:
    """One of the values that a task returns."""
    return delayed(getitem)(task, place)


def scatter_once(
    blocks: list[Any], weights: list[Any], client: Any, worth_sending: int
) -> tuple[list[Any], list[Any] | None]:
    """Blocks whose large data are on the workers already, and the weights as well if they were delayed."""
    from dask.delayed import Delayed

    graphs, data = own_graphs(blocks), dict[Any, Any]()
    for key, node in (pair for graph in graphs for pair in graph.items()):
        if key not in data and is_data(node) and bytes_in(node) > worth_sending:
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
    """The blocks, each with the tasks that make it, unless it shares tasks with others or is on a worker already.

    The task that works on a part then also reads it. The part is never sent anywhere, none waits in memory for its
    turn, and an error in reading knows its part.
    """
    graphs = own_graphs(blocks)
    seen = Counter(key for graph in graphs for key in graph)
    return [
        block if on_workers(graph) or any(seen[key] > 1 for key in graph) else Opaque(Inlined(graph, block.key))
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
    """Whether a node of a graph is on a worker already."""
    return any(hasattr(task, "client") for task in graph.values())


def is_data(node: Any) -> bool:
    """Whether a node of a graph is data, not a task, and on no worker yet."""
    task = isinstance(node, tuple | list) or (hasattr(node, "dependencies") and not hasattr(node, "value"))
    return not task and not hasattr(node, "client")


def bytes_in(node: Any) -> int:
    """The bytes that travel to a worker; arrays are counted and not copied."""
    import cloudpickle

    buffers: list[int] = []
    try:
        rest = cloudpickle.dumps(node, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw().nbytes))
    except Exception:  # Dask will say why it cannot be sent
        return 0
    return len(rest) + sum(buffers)


def as_blocks(X: Any) -> tuple[list[Any], list[int] | None, int | None, Array | None]:
    """A Dask collection as delayed blocks of rows, with their sizes, the number and the names of features, if known."""
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
    if not (hasattr(X, "chunks") and hasattr(X, "to_delayed")):
        raise TypeError(
            f"X is a Dask {type(X).__name__}: pass a Dask array or frame, a bag of CSR blocks, or a list of delayed "
            "ones."
        )
    if X.ndim != 2:
        raise ValueError(f"X is a Dask array of {X.ndim} dimensions: reshape it to rows and features.")
    grid = X.to_delayed(optimize_graph=False)  # optimising loses what is on workers already
    blocks = [row[0] if len(row) == 1 else delayed(join_columns)(list(row)) for row in grid]
    sizes, p = list(X.chunks[0]), X.shape[1]
    return blocks, None if np.isnan(sizes).any() else [int(n) for n in sizes], None if np.isnan(p) else int(p), None


def join_columns(blocks: list[Any]) -> Any:
    """Blocks of the same rows and different columns as one; sparse if one of them is."""
    from scipy.sparse import csr_array, hstack, issparse

    blocks = [check_container(block, f"X.blocks[:, {number}]") for number, block in enumerate(blocks)]
    return hstack(list(map(csr_array, blocks)), format="csr") if any(map(issparse, blocks)) else np.hstack(blocks)
