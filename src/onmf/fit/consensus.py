"""Votes of many runs: which rows most runs put together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Block, to_host
from onmf.data import Data, InMemory
from onmf.divergence import Array, FloatArray, KullbackLeibler, divide

from .restarts import best_run, runs
from .result import Agreement
from .search import Search
from .settings import Listener, Plan
from .starts import Seeds, random_partitions

VOTE_RUNS = 10
"""Number of runs over the votes; the best is used. The votes are a small matrix, so this is fast."""


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
    """The labels of the rows in several runs from random partitions; ``done`` is called after each. → (n, runs)"""

    def voter(number: int) -> Seeds:
        listener.begin_run()
        return start(number)

    seeds = rng.integers(np.iinfo(np.int32).max, size=n_runs)
    start = random_partitions(data, k, seeds)
    labels = []
    for run in runs(data, voter, seeds, plan, listener.watch, search):
        labels.append(to_host(run.labels))
        done()
    return np.stack(labels, axis=1)


def cluster_votes(block: Block, labels: Array, k: int, rng: np.random.Generator, plan: Plan) -> tuple[Array, Agreement]:
    """Cluster rows by the clusters that they were in, (n, runs). → their labels, (n,), and how far the runs agree

    ``block`` gives the backend and the weights of the rows.
    """
    votes = votes_of(labels, k)
    ballot = InMemory(block.backend.make_block(votes, KullbackLeibler(), block.weights))
    seeds = rng.integers(np.iinfo(np.int32).max, size=VOTE_RUNS)
    chosen = to_host(best_run(ballot, random_partitions(ballot, k, seeds), seeds, plan).labels)
    return chosen, agreement_of(votes, chosen, k)


def votes_of(labels: Array, k: int) -> csr_array:
    """The labels of each row over the runs, (n, runs), as counts. → (n, runs · k), sparse"""
    n, n_runs = labels.shape
    columns = labels + k * np.arange(n_runs, dtype=np.int32)
    indptr = np.arange(n + 1, dtype=np.int32) * n_runs
    return csr_array(
        (np.ones(n * n_runs, dtype=np.int32), columns.astype(np.int32).ravel(), indptr), shape=(n, n_runs * k)
    )


def agreement_of(votes: csr_array, labels: Array, k: int) -> Agreement:
    """How well the runs behind the votes agree with labels computed from them."""
    n = len(labels)
    n_runs = votes.shape[1] // k
    members = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k))
    together = (members.T @ votes).toarray()[np.repeat(labels, n_runs), votes.indices].reshape(n, n_runs) - 1
    others = np.bincount(labels, minlength=k)[labels].astype(np.float64) - 1
    shared: FloatArray = together.sum(axis=1) / n_runs
    rows = np.where(others > 0, divide(shared, others), 1.0)
    return Agreement(float(rows.mean()), rows)
