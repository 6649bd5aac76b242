"""Runs from several starts, one after the other or in parallel, and the choice of the best."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from onmf.backend import StepSums, to_host
from onmf.data import Data
from onmf.divergence import Array, FloatArray

from .describe import last_labels
from .loop import Alternation, alternate, objective
from .result import Clustering
from .search import Search, SearchFrom, local_search, split_and_merge
from .settings import Plan, Watch
from .starts import Seeds

T = TypeVar("T")

LazySeeds = Seeds | Callable[[], Seeds]
"""The seeds of a run, or a function that computes them in any thread."""

PROMISING = 5
"""Number of runs, those with the lowest objective, on which splits and merges are tried."""


def best_run(
    data: Data,
    start: Callable[[int], LazySeeds],
    seeds: Array,
    plan: Plan,
    watch: Watch | None = None,
    search: Search | None = None,
) -> Clustering:
    """The run of the lowest objective, after splits and merges of the most promising ones; ties go to the first run."""
    promising: list[tuple[int, Clustering]] = []
    search = search or prepare_search(data, plan)
    for run in enumerate(runs(data, start, seeds, plan, watch, search)):
        promising = sorted([*promising, run], key=lambda run: run[1].objective)[:PROMISING]
    if search is None or plan.thorough:
        return promising[0][1]

    def shake(run: tuple[int, Clustering], data: Data) -> Clustering:
        rng = np.random.default_rng([int(seeds[run[0]]), 2])
        return apply_search(data, search, run[1], split_and_merge, rng)

    shaken = in_parallel(data, lambda place: promising[place], shake, len(promising))
    return min(shaken, key=lambda run: run.objective)


def prepare_search(data: Data, plan: Plan) -> Search | None:
    """The rows as local searches read them, prepared once for all runs; None if the plan has no local search."""
    if plan.refine is None:
        return None
    return Search.over(data.single_part().block)


def runs(
    data: Data,
    start: Callable[[int], LazySeeds],
    seeds: Array,
    plan: Plan,
    watch: Watch | None = None,
    search: Search | None = None,
) -> Iterator[Clustering]:
    """Yield the result of each run, in order.

    ``start(i)`` returns the seeds of run i, or a function that computes them in the thread of the run. ``seeds`` are
    the random seeds of the runs, ``search`` the rows as local searches read them, if they are prepared already.
    """
    search = search or prepare_search(data, plan)
    searches: tuple[SearchFrom, ...] = (local_search, split_and_merge) if plan.thorough else (local_search,)

    def prepare(number: int) -> tuple[int, LazySeeds]:
        return number, start(number)

    def run(prepared: tuple[int, LazySeeds], data: Data) -> Clustering:
        number, seed = prepared
        seed = seed() if callable(seed) else seed
        listener = None if watch is None else (lambda iteration, W: watch(number, iteration, W))
        ended = alternate(data, first_centroids(data, seed, plan), max_iter=plan.max_iter, tol=plan.tol, watch=listener)
        clustering = clustering_of(data, ended, seed)
        rng = np.random.default_rng([int(seeds[number]), 1])
        for method in searches if search is not None else ():
            assert search is not None
            clustering = apply_search(data, search, clustering, method, rng)
        return clustering

    return in_parallel(data, prepare, run, len(seeds), in_turn=watch is not None)


def first_centroids(data: Data, seeds: Seeds, plan: Plan) -> FloatArray:
    """The centroids from which the loop begins: those of the start, or the end of a loop with an easier divergence."""
    easier = data.divergence.warm_start
    if easier is None or seeds.given:
        return seeds.centroids
    ended = alternate(data.with_divergence(easier), seeds.centroids, max_iter=plan.max_iter, tol=plan.tol)
    return to_host(ended.centroids)


def in_parallel(
    data: Data,
    prepare: Callable[[int], T],
    run: Callable[[T, Data], Clustering],
    number: int,
    *,
    in_turn: bool = False,
) -> Iterator[Clustering]:
    """Yield ``run(prepare(i), data)`` for each i, in order. The calling thread calls ``prepare``.

    One thread per run is fastest, because threads then do not wait for each other within an iteration. If there are
    fewer runs than threads, or if the runs must go in turn, the threads share the rows of one run. The results are the
    same.
    """
    at_once = min(data.parallel_runs, number)
    if in_turn or at_once < max(data.parallel_runs, 2):
        for i in range(number):
            yield run(prepare(i), data)
        return
    pending: deque[Future[Clustering]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for i in range(number):
            pending.append(pool.submit(run, prepare(i), data.fork()))
            if len(pending) > 2 * at_once:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an interrupt, start no more runs


def apply_search(
    data: Data, search: Search, clustering: Clustering, method: SearchFrom, rng: np.random.Generator
) -> Clustering:
    """The clustering that a search reaches from this one."""
    k = len(clustering.centroids)
    ended = method(search, to_host(clustering.labels), k, rng)
    clustering = replace(clustering, n_sweeps=clustering.n_sweeps + ended.n_sweeps)
    if ended.moved == 0:
        return clustering
    return replace(clustering, **fields_from_labels(data, ended.labels, clustering.centroids))


def fields_from_labels(data: Data, labels: Array, centroids: FloatArray) -> dict[str, Any]:
    """The fields of a clustering that follow from labels. The centroids are overwritten; empty clusters keep theirs."""
    run = data.single_part().run
    step = run.step_for_labels(labels, len(centroids))
    run.update(step, centroids)
    return _on_data(data, step, centroids)


def clustering_of(data: Data, ended: Alternation, seeds: Seeds) -> Clustering:
    """The result of a loop that has just ended."""
    iterations = ended.iterations
    history: dict[str, Array] = {
        "moved": np.array([i.moved for i in iterations]),
        "change": np.array([i.change for i in iterations]),
        "seconds": np.array([i.seconds for i in iterations]),
    }
    if iterations[-1].objective is not None:
        history["objective"] = np.array([i.objective for i in iterations])
    return Clustering(
        **_on_data(data, ended.step, ended.centroids),
        n_iter=len(iterations),
        stop_reason=ended.stop_reason,
        history=history,
        init_rows=seeds.rows,
        agreement=seeds.agreement,
    )


def _on_data(data: Data, step: StepSums, centroids: FloatArray) -> dict[str, Any]:
    """The fields of a clustering that follow from a step and its centroids, in the gauge H Hᵀ = I."""
    unit = data.divergence.unit(step.norms)
    labels, scales = data.map_rows(last_labels, unit)
    return {
        "labels": labels,
        "scales": scales,
        "centroids": centroids,
        "objective": objective(data, step, centroids),
        "masses": step.scale_sums / unit,
        "n_filled": int(np.count_nonzero(~step.empty)),
    }
