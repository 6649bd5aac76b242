"""A start from many runs: what most of them put together starts together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array, FloatArray, KullbackLeibler, divide
from onmf.engine import Engine, Held, to_host
from onmf.initialize import STARTS, Start, from_sums
from onmf.result import Agreement
from onmf.solve import Plan, Watch, best_run, runs

VOTE_RUNS = 10
"""Runs over the votes, of which the best is taken: they are few numbers and fast."""


def consensus_start(
    engine: Engine,
    held: Held,
    k: int,
    rng: np.random.Generator,
    *,
    n_runs: int,
    plan: Plan,
    watch: Watch | None = None,
    begin: Callable[[], None] = lambda: None,
) -> tuple[Start, Agreement]:
    """Cluster the data several times from random partitions, and the rows by the clusters they were in.

    The labels of a row over the runs are counts, too: one for each cluster that it was in. They are clustered by
    Kullback–Leibler, and the clusters of that are the start.

    Parameters
    ----------
    engine, held : Engine, Held
        Where the data lives.
    k : int
        Number of clusters.
    rng : Generator
        Random numbers.
    n_runs : int
        Runs that vote.
    plan : Plan
        What each run does.
    watch, begin : callable, optional
        Called after each iteration of the runs, and before each run.

    Returns
    -------
    Start, Agreement
        The start of the fit, and how far the runs agreed.
    """

    def partition(engine: Engine, held: Held, seed: int) -> Start:
        return STARTS["random-partition"](engine, held, k, np.random.default_rng(seed))

    def voter(number: int) -> Start:
        begin()
        return partition(engine, held, int(seeds[number]))

    seeds = rng.integers(np.iinfo(np.int32).max, size=n_runs)
    labels = np.stack([to_host(found.labels) for found in runs(engine, held, voter, seeds, plan, watch)], axis=1)
    votes = votes_of(labels, k)
    ballot = engine.hold(votes, KullbackLeibler(), held.weights)
    again = rng.integers(np.iinfo(np.int32).max, size=VOTE_RUNS)
    elected = best_run(engine, ballot, lambda run: partition(engine, ballot, int(again[run])), again, plan)
    weights = np.ones(held.shape[0]) if held.weights is None else held.weights
    chosen = to_host(elected.labels)
    centroids = from_sums(engine.sum_by_label(held.data, chosen, weights, k))
    return Start(centroids), agreement_of(votes, chosen, k)


def votes_of(labels: Array, k: int) -> csr_array:
    """The labels of each row over the runs, (n, runs), as counts. → (n, runs · k), sparse"""
    n, n_runs = labels.shape
    columns = labels + k * np.arange(n_runs, dtype=np.int32)
    indptr = np.arange(n + 1, dtype=np.int32) * n_runs
    return csr_array(
        (np.ones(n * n_runs, dtype=np.int32), columns.astype(np.int32).ravel(), indptr), shape=(n, n_runs * k)
    )


def agreement_of(votes: csr_array, labels: Array, k: int) -> Agreement:
    """How far the runs behind the votes agree with labels made from them."""
    n = len(labels)
    n_runs = votes.shape[1] // k
    members = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k))
    together = (members.T @ votes).toarray()[np.repeat(labels, n_runs), votes.indices].reshape(n, n_runs) - 1
    others = np.bincount(labels, minlength=k)[labels].astype(np.float64) - 1
    shared: FloatArray = together.sum(axis=1) / n_runs
    rows = np.where(others > 0, divide(shared, others), 1.0)
    return Agreement(float(rows.mean()), rows)
