"""Runs from several starts: their settings, the choice of the best, and votes: which rows most runs put together."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Block, StepSums, to_host
from onmf.data import Data, InMemory
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, divide

from .describe import Agreement, Clustering, last_labels
from .loop import Alternation, Iteration, alternate, objective
from .search import Search, SearchResult, local_search, split_and_merge, swap_clusters
from .starts import Seeds, random_partitions

Watch = Callable[[int, Iteration, FloatArray], bool]
"""Called after each iteration as ``watch(run, iteration, centroids)``; a true result stops that run."""


@dataclass(frozen=True)
class Plan:
    """What every run does after its start: the parameters of :class:`onmf.ONMF` of the same names.

    Only the best runs are refined to the end, by changes of whole clusters; if ``thorough``, every run is.
    """

    max_iter: int = 100
    tol: float = 1e-6
    refine: str | None = None
    thorough: bool = False

    def limited(self, max_iter: int) -> Self:
        """The same for at most this number of iterations."""
        return replace(self, max_iter=min(max_iter, self.max_iter))


@dataclass(frozen=True)
class Settings:
    """The settings of a fit.

    Attributes
    ----------
    n_clusters : int
        Number of clusters.
    init : str, array or callable
        The start, as in :class:`onmf.ONMF`.
    seeds : (runs,) array of int
        Random seed of each run.
    plan : Plan
        What each run does after its start.
    n_consensus : int
        Number of runs that vote if ``init="consensus"``.
    parameters : dict
        Parameters to record in the result.
    adapt : float or None
        How much free rows count in clusters with known rows; None: the known rows choose.
    priors : (k, p) array or None
        Seed features of the clusters, of sum 1, or zeros.
    seed_share : float
        Their weight, relative to the rows.
    """

    n_clusters: int
    init: Any = "snpa"
    seeds: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    plan: Plan = field(default_factory=Plan)
    n_consensus: int = 30
    parameters: dict[str, Any] = field(default_factory=dict)
    adapt: float | None = None
    priors: FloatArray | None = None
    seed_share: float = 0.0


class Listener:
    """Is told about the progress of a fit. This one ignores it; subclass it to show progress or to stop early."""

    @property
    def watch(self) -> Watch | None:
        """The function to call after each iteration; None for no calls."""
        return None

    def begin_run(self) -> None:
        """Called when a run begins."""


def check_moves(refine: str | None, init: Any, divergence: Divergence) -> None:
    """Refuse an unknown refinement, and a start that moves single rows if the divergence has no such moves."""
    if not (refine is None or (isinstance(refine, str) and refine == "local-search")):
        raise ValueError(f"refine={refine!r} is not allowed: refine must be None or 'local-search'.")
    if divergence.moves is None and isinstance(init, str) and init == "bisection":
        raise ValueError(
            f"init={init!r} needs a closed form for the gain of moving a row, and {divergence.name} has none: use "
            "beta_loss='kullback-leibler' or 'cosine', or init='random-partition'."
        )


def check_rows(n: int, n_clusters: int) -> None:
    """Refuse fewer rows than clusters."""
    if n < n_clusters:
        raise ValueError(
            f"n_samples={n} should be >= n_clusters={n_clusters}: ask for fewer clusters, or pass more rows."
        )


LazySeeds = Seeds | Callable[[], Seeds]  # The seeds of a run, or a function that computes them in any thread
StartOf = Callable[[int], LazySeeds]  # The seeds of a run, by its number

PROMISING = 5  # runs, those with the lowest objective, whose clusters are split, and merged or dissolved

Refine = Callable[[Data, Clustering, np.random.Generator], Clustering]


def best_run(
    data: Data, start: StartOf, seeds: Array, plan: Plan, watch: Watch | None = None, search: Search | None = None
) -> Clustering:
    """The run of the lowest objective, after the last refinement of the most promising ones; ties go to the first."""
    promising: list[tuple[int, Clustering]] = []
    search = search or prepare_search(data, plan)
    for run in enumerate(runs(data, start, seeds, plan, watch, search)):
        promising = sorted([*promising, run], key=lambda run: run[1].objective)[:PROMISING]
    refinements = refinements_of(data, plan, search)
    if not refinements or plan.thorough:
        return promising[0][1]

    def shake(run: tuple[int, Clustering], data: Data) -> Clustering:
        return refinements[-1](data, run[1], np.random.default_rng([int(seeds[run[0]]), 2]))

    return min(in_parallel(data, shake, promising, len(promising)), key=lambda run: run.objective)


def prepare_search(data: Data, plan: Plan) -> Search | None:
    """The rows as searches by single rows read them, prepared once for all runs; None if the plan has no such search.

    If only the divergence under which a run begins has moves of single rows, the search is under that one.
    """
    if plan.refine is None:
        return None
    easier = data.divergence.warm_start
    if data.divergence.moves is None and easier is not None:
        data = data.with_divergence(easier)
    return None if data.divergence.moves is None else Search.over(data.single_part().block)


def refinements_of(data: Data, plan: Plan, search: Search | None) -> list[Refine]:
    """What follows the loop, in turn. The last one changes whole clusters, and takes longest."""
    if plan.refine is None:
        return []
    if data.divergence.moves is None:
        return [partial(swap_clusters, lambda data, seeds, most: descend(data, seeds, plan.limited(most)))]
    assert search is not None
    return [partial(apply_search, partial(method, search)) for method in (local_search, split_and_merge)]


def runs(
    data: Data, start: StartOf, seeds: Array, plan: Plan, watch: Watch | None = None, search: Search | None = None
) -> Iterator[Clustering]:
    """Yield the result of each run, in order; ``seeds`` are their random seeds."""
    search = search or prepare_search(data, plan)
    refinements = refinements_of(data, plan, search)

    def run(prepared: tuple[int, LazySeeds], data: Data) -> Clustering:
        number, seed = prepared
        seed = seed() if callable(seed) else seed
        listener = None if watch is None else (lambda iteration, W: watch(number, iteration, W))
        rng = np.random.default_rng([int(seeds[number]), 1])
        before = None
        if search is not None and data.divergence.moves is None:
            before = partial(apply_search, partial(local_search, search), rng=rng)
        clustering = descend(data, seed, plan, listener, before)
        for refine in refinements if plan.thorough else refinements[:-1]:
            clustering = refine(data, clustering, rng)
        return clustering

    prepared = ((number, start(number)) for number in range(len(seeds)))
    return in_parallel(data, run, prepared, len(seeds), in_turn=watch is not None)


def descend(
    data: Data,
    seeds: Seeds,
    plan: Plan,
    watch: Callable[[Iteration, FloatArray], bool] | None = None,
    search: Callable[[Data, Clustering], Clustering] | None = None,
) -> Clustering:
    """The clustering at which the loop ends.

    From seeds that a user did not give, it begins where a loop with an easier divergence ends, if there is one, after
    a ``search`` under that divergence.
    """
    centroids, easier = seeds.centroids, data.divergence.warm_start
    if easier is not None and not seeds.given:
        simple = data.with_divergence(easier)
        begun = clustering_of(simple, alternate(simple, centroids, max_iter=plan.max_iter, tol=plan.tol), seeds)
        centroids = to_host((begun if search is None else search(simple, begun)).centroids)
    ended = alternate(data, centroids, seeds.effects, max_iter=plan.max_iter, tol=plan.tol, watch=watch)
    return clustering_of(data, ended, seeds)


def in_parallel(
    data: Data, run: Callable[[Any, Data], Clustering], starts: Iterable[Any], number: int, *, in_turn: bool = False
) -> Iterator[Clustering]:
    """Yield ``run(start, data)`` for each of so many starts, in order. The calling thread iterates over the starts."""
    # One thread per run is fastest: threads do not wait for each other within an iteration. If there are fewer runs
    # than threads, or runs must go in turn, the threads share the rows of one run. The results are the same.
    at_once = min(data.parallel_runs, number)
    if in_turn or at_once < max(data.parallel_runs, 2):
        yield from (run(start, data) for start in starts)
        return
    pending: deque[Future[Clustering]] = deque()
    pool = ThreadPoolExecutor(at_once)
    try:
        for start in starts:
            pending.append(pool.submit(run, start, data.fork()))
            if len(pending) > 2 * at_once:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an interrupt, start no more runs


def apply_search(
    method: Callable[..., SearchResult], data: Data, clustering: Clustering, rng: np.random.Generator
) -> Clustering:
    """The clustering that a search by single rows reaches from this one."""
    ended = method(to_host(clustering.labels), len(clustering.centroids), rng)
    clustering = replace(clustering, n_sweeps=clustering.n_sweeps + ended.n_sweeps)
    if ended.moved == 0:
        return clustering
    return replace(clustering, **fields_from_labels(data, ended.labels, clustering.centroids))


def fields_from_labels(data: Data, labels: Array, centroids: FloatArray) -> dict[str, Any]:
    """The fields of a clustering that follow from labels. The centroids are overwritten; empty clusters keep theirs."""
    run = data.single_part().run
    step = run.step_for_labels(labels, len(centroids))
    run.update(step, centroids)
    return fields_of_step(data, step, centroids)


def clustering_of(data: Data, ended: Alternation, seeds: Seeds) -> Clustering:
    """The result of a loop that has just ended."""
    iterations = ended.iterations
    recorded = ["moved", "change", "seconds", *(["objective"] if iterations[-1].objective is not None else [])]
    grouped, step = ended.grouped, ended.step
    return Clustering(
        **(grouped.fields(data, step) if grouped else fields_of_step(data, step, ended.centroids)),
        n_iter=len(iterations),
        stop_reason=ended.stop_reason,
        history={name: np.array([getattr(i, name) for i in iterations]) for name in recorded},
        init_rows=seeds.rows,
        agreement=seeds.agreement,
    )


def fields_of_step(data: Data, step: StepSums, centroids: FloatArray, whole: StepSums | None = None) -> dict[str, Any]:
    """Fields of a clustering, from a step and its centroids, which may come from the sums of a ``whole`` stream."""
    whole = whole or step
    unit = data.divergence.unit(whole.norms)
    labels, scales = data.map_rows(last_labels, unit, data.known)
    return {
        "labels": labels,
        "scales": scales,
        "centroids": centroids,
        "objective": objective(data, step, centroids, whole.norms),
        "masses": whole.scale_sums / unit,
        "n_filled": int(np.count_nonzero(~whole.empty)),
    }


VOTE_RUNS = 10  # over the votes, a small matrix; the best is used

VOTERS_WITH_GROUPS = 3
"""With groups one run of so many votes, those of the lowest objectives. Strong effects keep most runs from random
partitions in clusters that follow the groups, at a clearly higher objective, and a majority of them would win."""


def cast_votes(
    data: Data,
    k: int,
    rng: np.random.Generator,
    *,
    n_runs: int,
    plan: Plan,
    listener: Listener,
    search: Search | None = None,
    done: Callable[[], None] = lambda: None,
) -> Array:
    """The labels of the rows in several runs from random partitions; ``done`` is called after each. → (n, voters)"""
    seeds, labels, objectives = rng.integers(np.iinfo(np.int32).max, size=n_runs), [], []

    def voter(number: int) -> Seeds:
        listener.begin_run()
        return random_partitions(data, k, seeds)(number)

    for run in runs(data, voter, seeds, plan, listener.watch, search):
        labels.append(to_host(run.labels))
        objectives.append(run.objective)
        done()
    voters = n_runs if data.grouping is None else max(n_runs // VOTERS_WITH_GROUPS, 1)
    best = np.sort(np.argsort(objectives, kind="stable")[:voters])
    return np.stack([labels[run] for run in best], axis=1)


def cluster_votes(block: Block, labels: Array, k: int, rng: np.random.Generator, plan: Plan) -> tuple[Array, Agreement]:
    """Cluster rows of a block by the clusters that they were in, (n, runs). → labels, (n,), how far the runs agree"""
    votes = votes_of(labels, k)
    ballot = InMemory(block.backend.make_block(votes, KullbackLeibler(), block.weights))
    seeds = rng.integers(np.iinfo(np.int32).max, size=VOTE_RUNS)
    chosen = to_host(best_run(ballot, random_partitions(ballot, k, seeds), seeds, plan).labels)
    return chosen, agreement_of(votes, chosen, k)


def votes_of(labels: Array, k: int) -> csr_array:
    """The labels of each row over the runs, (n, runs), as counts. → (n, runs · k), sparse"""
    n, n_runs = labels.shape
    columns = (labels + k * np.arange(n_runs, dtype=np.int32)).astype(np.int32).ravel()
    indptr = np.arange(n + 1, dtype=np.int32) * n_runs
    return csr_array((np.ones(n * n_runs, dtype=np.int32), columns, indptr), shape=(n, n_runs * k))


def agreement_of(votes: csr_array, labels: Array, k: int) -> Agreement:
    """How well the runs behind the votes agree with labels computed from them."""
    n, n_runs = len(labels), votes.shape[1] // k
    members = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k))
    together = (members.T @ votes).toarray()[np.repeat(labels, n_runs), votes.indices].reshape(n, n_runs) - 1
    others = np.bincount(labels, minlength=k)[labels].astype(np.float64) - 1
    rows = np.where(others > 0, divide(together.sum(axis=1) / n_runs, others), 1.0)
    return Agreement(float(rows.mean()), rows)
