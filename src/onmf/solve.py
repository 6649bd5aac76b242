"""From data to a clustering: start, loop, and the best of several restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.alternate import Alternation, Iteration, alternate, objective
from onmf.by_row import last_labels, margins_of
from onmf.divergence import Array, FloatArray
from onmf.engine import Engine, Held, StepSums, to_host
from onmf.initialize import Start
from onmf.refine import SearchFrom, counts_of, local_search, settle, split_and_merge
from onmf.result import Clustering
from onmf.warn import warn

T = TypeVar("T")

PROMISING = 5
"""Runs, the best so far, that splits and merges are tried on."""

Watch = Callable[[int, Iteration, FloatArray], bool]


@dataclass(frozen=True)
class Plan:
    """What every run does, whatever its start: the parameters of :class:`onmf.ONMF` of the same names.

    Splits and merges follow the local search of the best runs; of every run, if it is to be ``thorough``.
    """

    max_iter: int = 100
    tol: float = 1e-6
    refine: str | None = None
    thorough: bool = False

    @property
    def searches(self) -> tuple[SearchFrom, ...]:
        """What follows the loop of a run."""
        if self.refine is None:
            return ()
        return (local_search, split_and_merge) if self.thorough else (local_search,)


def solve(
    engine: Engine,
    held: Held,
    starts: Callable[[int], Start],
    seeds: Array,
    plan: Plan,
    *,
    watch: Watch | None = None,
    parameters: dict[str, Any] | None = None,
) -> Clustering:
    """Run the loop from several starts and keep the result of the lowest objective, the first of equals.

    Parameters
    ----------
    engine, held : Engine, Held
        Where the data lives.
    starts : callable
        The start of run i.
    seeds : (runs,) array of int
        Random numbers of each run.
    plan : Plan
        What a run does.
    watch : callable, optional
        Called after each iteration as ``watch(run, iteration, centroids)``; a true answer stops that run.
    parameters : dict, optional
        Kept in the result.

    Returns
    -------
    Clustering
    """
    best = best_run(engine, held, starts, seeds, plan, watch)
    warn_about(best, plan.max_iter)
    (margins,) = engine.by_row(held, margins_of, best.centroids, labels=best.labels)
    return kept(engine, held, replace(best, parameters=parameters or {}, margins=margins))


def best_run(
    engine: Engine,
    held: Held,
    starts: Callable[[int], Start],
    seeds: Array,
    plan: Plan,
    watch: Watch | None = None,
) -> Clustering:
    """The run of the lowest objective, the first of equals, after splits and merges of the most promising ones."""
    promising: list[tuple[int, Clustering]] = []
    for run in enumerate(runs(engine, held, starts, seeds, plan, watch)):
        promising = sorted([*promising, run], key=lambda run: run[1].objective)[:PROMISING]
    if plan.refine is None or plan.thorough:
        return promising[0][1]
    shaken = side_by_side(
        engine,
        held,
        lambda place: promising[place],
        lambda run, engine, held: searched(
            engine, held, run[1], split_and_merge, np.random.default_rng([int(seeds[run[0]]), 2])
        ),
        len(promising),
    )
    return min(shaken, key=lambda found: found.objective)


def kept(engine: Engine, held: Held, found: Clustering) -> Clustering:
    """The clustering with its arrays as whoever passed the data keeps them."""
    names = ("labels", "scales", "centroids", "masses", "margins")
    arrays = engine.keep(held, *(getattr(found, name) for name in names))
    return replace(found, **dict(zip(names, arrays, strict=True)))


def runs(
    engine: Engine,
    held: Held,
    starts: Callable[[int], Start],
    seeds: Array,
    plan: Plan,
    watch: Watch | None = None,
) -> Iterator[Clustering]:
    """The result of each run, in their order."""

    def begin(number: int) -> tuple[int, Start]:
        return number, starts(number)

    def run(begun: tuple[int, Start], engine: Engine, held: Held) -> Clustering:
        number, start = begun
        listener = None if watch is None else (lambda iteration, W: watch(number, iteration, W))
        ended = alternate(engine, held, start.centroids, max_iter=plan.max_iter, tol=plan.tol, watch=listener)
        found = clustering_of(engine, held, ended, start.rows)
        rng = np.random.default_rng([int(seeds[number]), 1])
        for search in plan.searches:
            found = searched(engine, held, found, search, rng)
        return found

    if plan.refine is not None and held.divergence.moves == "entropy":
        counts_of(engine, held)  # before the runs part
    return side_by_side(engine, held, begin, run, len(seeds), in_turn=watch is not None)


def side_by_side(
    engine: Engine,
    held: Held,
    begin: Callable[[int], T],
    run: Callable[[T, Engine, Held], Clustering],
    number: int,
    *,
    in_turn: bool = False,
) -> Iterator[Clustering]:
    """``run(begin(i), engine, held)`` for each i, in their order; ``begin`` is called by the calling thread.

    Several at the same time need no threads to wait for each other within an iteration; where there are fewer than
    threads, or where they must go in turn, the threads share the rows of one. The results are the same.
    """
    at_once = min(engine.runs_at_once, number)
    if in_turn or at_once < max(engine.runs_at_once, 2):
        for i in range(number):
            yield run(begin(i), engine, held)
        return
    engine.warm_up(held)
    pending: deque[Future[Clustering]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for i in range(number):
            pending.append(pool.submit(run, begin(i), engine.share(), engine.fork(held)))
            if len(pending) > 2 * at_once:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an interrupt, what has not begun does not begin


def searched(engine: Engine, held: Held, found: Clustering, search: SearchFrom, rng: np.random.Generator) -> Clustering:
    """The clustering that a search finds from another one."""
    ended = search(engine, held, to_host(found.labels), len(found.centroids), rng)
    found = replace(found, n_sweeps=found.n_sweeps + ended.n_sweeps)
    if ended.moved == 0:
        return found
    step = settle(engine, held, ended.labels, found.centroids)
    return replace(found, **_found(engine, held, step, found.centroids))


def clustering_of(engine: Engine, held: Held, ended: Alternation, init_rows: Array | None) -> Clustering:
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
        **_found(engine, held, ended.step, ended.centroids),
        n_iter=len(iterations),
        stop_reason=ended.stop_reason,
        history=history,
        init_rows=init_rows,
    )


def _found(engine: Engine, held: Held, step: StepSums, centroids: FloatArray) -> dict[str, Any]:
    """What a clustering says on the data, after a step with these centroids made from it, in the gauge H Hᵀ = I."""
    labels, scales = engine.by_row(held, last_labels, step.norms)
    return {
        "labels": labels,
        "scales": scales,
        "centroids": centroids,
        "objective": objective(held, step),
        "masses": step.scale_sums / step.norms,
        "n_filled": int(np.count_nonzero(~step.empty)),
    }


def warn_about(clustering: Clustering, max_iter: int) -> None:
    """Say what a user should know before trusting the result."""
    k = len(clustering.centroids)
    if clustering.n_filled < k:
        why = f"X has fewer distinct directions than n_clusters={k}. Ask for fewer clusters."
        if clustering.stop_reason in ("max_iter", "callback"):
            why = "the fit was stopped before they could be filled."
        elif clustering.stop_reason == "batch":
            why = "the batches so far have no rows for the others."
        warn(f"Only {clustering.n_filled} of {k} clusters hold rows: {why}", ConvergenceWarning)
    if clustering.stop_reason == "max_iter":
        warn(
            f"Not converged after max_iter={max_iter} iterations: {clustering.history['moved'][-1]} rows moved in the "
            f"last one, and H changed by {clustering.history['change'][-1]:.1e}. Raise max_iter or tol.",
            ConvergenceWarning,
        )
