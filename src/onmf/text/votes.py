"""A consensus of views: the same rows, weighed in several ways, clustered together.

Runs in every view vote, and the votes are clustered as in :mod:`onmf.fit.consensus`. Rows then move to the clusters
in which their counts are most likely if words come in bursts (:mod:`onmf.text.bursts`). The clusters that result are
described in the first view, that of the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from onmf.backend import to_host
from onmf.data import Data
from onmf.divergence import Array
from onmf.fit import Clustering, Listener, Settings
from onmf.fit.consensus import cast_votes, cluster_votes
from onmf.fit.describe import margins_of
from onmf.fit.restarts import fields_from_labels
from onmf.fit.settings import check_rows
from onmf.fit.solve import in_input_memory, warn_about
from onmf.fit.starts import from_sums
from onmf.naming import order_by_size

from .bursts import reassign


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
    block = data.single_part().block
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
    elected, agreement = cluster_votes(block, np.concatenate(votes, axis=1), k, rng, settings.plan)
    labels, history = reassign(block, elected, k)
    place = np.empty(k, dtype=np.int32)
    place[order_by_size(labels, k)] = np.arange(k)
    labels = place[labels]
    centroids = from_sums(block.sum_by_label(labels, to_host(block.fixed_weights), k))
    result = Clustering(
        **fields_from_labels(data, labels, centroids),
        n_iter=len(history["moved"]),
        stop_reason="converged",
        history=history,
        init_rows=None,
        parameters=settings.parameters,
        agreement=agreement,
    )
    warn_about(result, settings.plan.max_iter)
    (margins,) = data.map_rows(margins_of, result.centroids, labels=result.labels)
    return in_input_memory(data, replace(result, margins=margins))
