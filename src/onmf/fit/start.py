"""The starts by name, and those that a user gives. Each of them computes the seeds of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from onmf.data import Data
from onmf.data.validate import check_centroids

from .consensus import cast_votes, cluster_votes
from .search import Search, bisect
from .settings import Listener, Settings
from .starts import Seeds, from_sums, plus_plus, random_partition, random_rows, snpa_start, tie_parallel


class StartInput(NamedTuple):
    """The input of a start."""

    data: Data
    settings: Settings
    seed: int
    listener: Listener
    search: Search | None = None


@dataclass(frozen=True)
class Start:
    """A way to find first centroids."""

    seeds: Callable[[StartInput], Seeds]
    random: bool = False  # whether it depends on the seed, so that several runs make sense
    by_runs: bool = False  # whether it is computed from several runs: needs all rows in memory, and n_init=1
    moves_rows: bool = False  # whether it moves single rows: needs them all, and runs in the thread of its run

    @property
    def needs_all_rows(self) -> bool:
        """Whether all rows must be in memory."""
        return self.by_runs or self.moves_rows


def _drawn(function: Callable[[Data, int, np.random.Generator], Seeds]) -> Callable[[StartInput], Seeds]:
    """A start from a function of data, number of clusters and random numbers."""
    return lambda given: function(given.data, given.settings.n_clusters, np.random.default_rng(given.seed))


def _consensus(given: StartInput) -> Seeds:
    """Cluster the data several times from random partitions, then cluster the rows by the clusters they were in.

    The labels of a row over the runs are counts, too: 1 for each cluster that it was in. Clustering these counts by
    Kullback–Leibler gives the start.
    """
    data, (k, plan, n_runs) = given.data, (given.settings.n_clusters, given.settings.plan, given.settings.n_consensus)
    block, rng = data.single_part().block, np.random.default_rng(given.seed)
    votes = cast_votes(data, k, rng, n_runs=n_runs, plan=plan, listener=given.listener, search=given.search)
    chosen, agreement = cluster_votes(block, votes, k, rng, plan)
    sums, counts = block.sum_by_label(chosen, block.host_weights, k), None
    if data.divergence.absolute:
        counts = np.bincount(chosen, weights=block.host_weights, minlength=k).astype(np.float64)
    return Seeds(from_sums(sums, counts), agreement=agreement)


def _bisection(given: StartInput) -> Seeds:
    k = given.settings.n_clusters
    search = given.search or Search.over(given.data.single_part().block)
    labels = bisect(search, k, np.random.default_rng(given.seed))
    centroids = from_sums(np.ascontiguousarray(search.sums(labels, k).T))
    tie_parallel(centroids)
    return Seeds(centroids)


STARTS: dict[str, Start] = {
    "snpa": Start(_drawn(snpa_start)),
    "++": Start(_drawn(plus_plus), random=True),
    "random": Start(_drawn(random_rows), random=True),
    "random-partition": Start(_drawn(random_partition), random=True),
    "bisection": Start(_bisection, random=True, moves_rows=True),
    "consensus": Start(_consensus, by_runs=True),
}
"""Starts by name."""


def get_start(init: Any) -> Start | None:
    """The start for the parameter ``init``; None if ``init`` is not valid."""
    if isinstance(init, str):
        return STARTS.get(init)
    if isinstance(init, Seeds):
        return Start(lambda given: init)
    if callable(init):
        return Start(lambda given: _from_user(given, init), random=True)
    return Start(lambda given: _from_user(given, init)) if np.ndim(init) > 0 else None


def _from_user(given: StartInput, init: Any) -> Seeds:
    """A start from centroids that a user gave, or that a user's function returns."""
    data, centroids = given.data, init
    if callable(init):
        centroids = init(data.origin, given.settings.n_clusters, random_state=check_random_state(given.seed))
    checked = check_centroids(centroids, given.settings.n_clusters, data.shape[1], data.divergence)
    if not data.divergence.absolute:
        tie_parallel(checked)
    return Seeds(checked, given=True)
