"""The starts by name, and those that a user gives. Each of them computes the seeds of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from onmf.data import Data
from onmf.data.validate import check_centroids

from .consensus import consensus_start
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
    data, settings, seed, listener, search = given
    rng = np.random.default_rng(seed)
    plan, n_runs = settings.plan, settings.n_consensus
    return consensus_start(data, settings.n_clusters, rng, n_runs=n_runs, plan=plan, listener=listener, search=search)


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
        return Start(lambda given: _given(given, _called(init, given)), random=True)
    return Start(lambda given: _given(given, init)) if np.ndim(init) > 0 else None


def _called(init: Callable[..., Any], given: StartInput) -> Any:
    return init(given.data.origin, given.settings.n_clusters, random_state=check_random_state(given.seed))


def _given(given: StartInput, centroids: Any) -> Seeds:
    """A start from centroids that a user gave."""
    data = given.data
    checked = check_centroids(centroids, given.settings.n_clusters, data.shape[1], data.divergence)
    if not data.divergence.absolute:
        tie_parallel(checked)
    return Seeds(checked, given=True)
