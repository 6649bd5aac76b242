"""A consensus of views: the same rows, weighed in several ways, clustered together.

Runs in every view vote, and the votes are clustered as in :mod:`onmf.fit.consensus`. Rows then settle in the clusters
in which their counts are most likely if words come in bursts (:mod:`onmf.fit.bursts`). The clusters that result are
described in the first view, that of the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from onmf.backend import Block, to_host
from onmf.data import Data
from onmf.divergence import Array

from .bursts import settle
from .consensus import cast_votes, elect
from .describe import margins_of
from .restarts import settled
from .result import Clustering
from .settings import Listener, Settings, check_rows
from .solve import kept, warn_about
from .starts import from_sums


def fit_views(
    data: Data,
    settings: Settings,
    listener: Listener | None = None,
    *,
    others: Sequence[Callable[[], Data]],
    progress: Callable[[float], None] | None = None,
) -> Clustering:
    """Cluster rows by a consensus of views.

    Parameters
    ----------
    data : Data
        The first view: counts, in memory. The clustering is described in it.
    settings : Settings
        The settings of the fit. ``n_consensus`` is the number of runs over all views, ``init`` is ignored.
    listener : Listener, optional
        Is told about the runs and their iterations.
    others : sequence of callable
        Each returns the same rows in another view, in memory.
    progress : callable, optional
        Called after each run with the share of the runs that are done.

    Returns
    -------
    Clustering
        Its labels are those of the consensus, the largest cluster first. The assignment rule, which sees the first view
        only, can differ.
    """
    listener = listener or Listener()
    k, rng = settings.n_clusters, np.random.default_rng(int(settings.seeds[0]))
    check_rows(data.shape[0], k)
    block = _block(data)
    views, votes, done = [lambda: data, *others], list[Array](), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / settings.n_consensus)

    for number, view in enumerate(views):
        # If the runs cannot be divided evenly, the first views have one more.
        n_runs = (settings.n_consensus + len(views) - 1 - number) // len(views)
        if n_runs:
            votes.append(cast_votes(view(), k, rng, n_runs=n_runs, plan=settings.plan, listener=listener, done=count))
    listener.begin_run()
    elected, agreement = elect(block, np.concatenate(votes, axis=1), k, rng, settings.plan)
    labels, history = settle(block, elected, k)
    labels = _by_size(labels, k)
    centroids = from_sums(block.sum_by_label(labels, to_host(block.fixed_weights), k))
    result = Clustering(
        **settled(data, labels, centroids),
        n_iter=len(history["moved"]),
        stop_reason="converged",
        history=history,
        init_rows=None,
        parameters=settings.parameters,
        agreement=agreement,
    )
    warn_about(result, settings.plan.max_iter)
    (margins,) = data.by_row(margins_of, result.centroids, labels=result.labels)
    return kept(data, replace(result, margins=margins))


def _by_size(labels: Array, k: int) -> Array:
    """The labels in the order of their numbers of rows, the largest first."""
    place = np.empty(k, dtype=np.int32)
    place[np.argsort(-np.bincount(labels, minlength=k), kind="stable")] = np.arange(k)
    return place[labels]


def _block(data: Data) -> Block:
    part = data.whole()
    assert part is not None, "refused for rows in parts"
    return part.block
