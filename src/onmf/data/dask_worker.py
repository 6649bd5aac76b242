"""The side of the workers: the task of one part, and what a process keeps between tasks.

Tasks of Dask have no state, so what a process keeps from one pass to the next lives in this module, under the key of
its fit. It is dropped with the fit, and it may be lost at any time.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock
from typing import Any

from .dask_graph import Opaque
from .part_task import PartCache

FITS = 2
"""Fits that a process remembers; one more only takes longer."""

_caches: OrderedDict[str, PartCache] = OrderedDict()
_lock = RLock()  # reentrant, because the garbage collector may call forget() at any point


def run_part(number: int, first: int, block: Any, weights: Any, fit: Opaque, last: Any, *args: Any) -> Any:
    """The task of one part, on a worker."""
    key, task = fit.value
    stays = not isinstance(block, Opaque)
    load = (lambda: block) if stays else block.value.read
    return task(cache_of(key), number, first, load, weights, last, args, stays)[0]


def cache_of(key: str) -> PartCache:
    """What this process keeps of the parts of a fit."""
    cache = PartCache()
    if not key:
        return cache
    with _lock:
        cache = _caches[key] = _caches.pop(key, cache)
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


def fatal_partitions(client: Any) -> str:
    """Which partitions workers had when they died, in words."""
    numbers = part_numbers(most_suspicious(client))
    if not numbers:
        return ""
    return f", and the last ones died at partition {numbers}: most likely they ran out of memory, so make it smaller"


def most_suspicious(client: Any) -> list[str]:
    """The tasks of parts with which most workers died."""
    deaths = client.run_on_scheduler(suspicious)
    return [key for key, times in deaths.items() if times == max(deaths.values())]


def suspicious(dask_scheduler: Any) -> dict[str, int]:
    """How many workers died with each task of a part, on the scheduler."""
    tasks = dask_scheduler.tasks.items()
    return {str(key): task.suspicious for key, task in tasks if task.suspicious and part_numbers([key])}


def part_numbers(keys: Iterable[Any]) -> str:
    """The numbers of the parts that these tasks work on; some tasks work on none."""
    matches = (re.search(r"-[0-9a-f]{32}-(\d+)$", str(key)) for key in keys)
    return " or ".join(map(str, sorted({int(match[1]) for match in matches if match})))
