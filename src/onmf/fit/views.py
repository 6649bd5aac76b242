"""A consensus of views: the same rows, weighed in several ways, clustered together.

Runs in every view vote, and the votes are clustered as in :mod:`onmf.fit.consensus`. A loop follows in which all views
take part: each of them computes centroids from the labels, and a row goes to the cluster in which the sum of its losses
over the views is lowest. The clusters that result are described in the first view.

Views have different units. So the losses of a row are taken per unit of the row (for counts: per word), and those of a
view are divided by its gap: how much worse the second-best cluster of a median row is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from onmf import interrupt
from onmf.backend import Block, to_host
from onmf.data import Data
from onmf.divergence import Array, FloatArray, KullbackLeibler, divide

from .consensus import cast_votes, elect
from .describe import losses_of, margins_of
from .restarts import settled
from .result import Clustering
from .settings import Listener, Settings, check_rows
from .solve import kept, warn_about
from .starts import from_sums

WHOLE = 10.0
"""Weight of all rows together in each centroid of the loop over all views, under Kullback–Leibler. A word that a
cluster does not have then costs about what it costs in the whole collection. The smoothing of the model, which is the
same for all words, would drown the rare ones."""

SETTLED = 1e-3
"""The loop over all views ends when a step moves no larger share of the rows. It lowers no common objective, so rows
between two clusters could go back and forth."""

MOST_STEPS = 50
"""Steps of this loop at most."""


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
        The first view, in memory. The clustering is described in it.
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
    views, votes, done = [data, *(other() for other in others)], list[Array](), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done / settings.n_consensus)

    for number, view in enumerate(views):
        # If the runs cannot be divided evenly, the first views have one more.
        n_runs = (settings.n_consensus + len(views) - 1 - number) // len(views)
        if n_runs:
            votes.append(cast_votes(view, k, rng, n_runs=n_runs, plan=settings.plan, listener=listener, done=count))
    listener.begin_run()
    elected, agreement = elect(block, np.concatenate(votes, axis=1), k, rng, settings.plan)
    labels, history = agree(list(map(_block, views)), elected, k)
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


def agree(views: Sequence[Block], labels: Array, k: int) -> tuple[Array, dict[str, Array]]:
    """Assign rows by all views, again and again. → the labels, (n,), and what each step did

    A step that would leave a cluster without rows is not taken.
    """
    moved, seconds = list[int](), list[float]()
    gaps: list[float] = []
    for _ in range(MOST_STEPS):
        interrupt.check()
        began = perf_counter()
        losses = [_losses(view, labels, k) for view in views]
        gaps = gaps or [_gap(each) for each in losses]  # those of the first step: the weights must not change
        together = np.sum([each / gap for each, gap in zip(losses, gaps, strict=True)], axis=0)
        new = together.argmin(axis=1).astype(np.int32)
        different = int(np.count_nonzero(new != labels))
        emptied = len(np.unique(new)) < len(np.unique(labels))
        moved.append(0 if emptied else different)
        seconds.append(perf_counter() - began)
        if emptied:
            break
        labels = new
        if different <= SETTLED * len(labels):
            break
    return labels, {"moved": np.array(moved), "seconds": np.array(seconds)}


def _by_size(labels: Array, k: int) -> Array:
    """The labels in the order of their numbers of rows, the largest first."""
    place = np.empty(k, dtype=np.int32)
    place[np.argsort(-np.bincount(labels, minlength=k), kind="stable")] = np.arange(k)
    return place[labels]


def _block(data: Data) -> Block:
    part = data.whole()
    assert part is not None, "refused for rows in parts"
    return part.block


def _losses(block: Block, labels: Array, k: int) -> FloatArray:
    """The losses of each row under the centroids that labels make, per unit of the row. → (n, k)"""
    sums = from_sums(block.sum_by_label(labels, to_host(block.fixed_weights), k))
    divergence = block.divergence
    if isinstance(divergence, KullbackLeibler):
        divergence = divergence.unsmoothed()
        sums = divide(sums, sums.sum(axis=1, keepdims=True)) + WHOLE * divide(sums.sum(axis=0), sums.sum())
    losses = to_host(losses_of(block, sums, divergence))
    return divide(losses, to_host(block.divergence.row_size(block.terms))[:, None])


def _gap(losses: FloatArray) -> float:
    """The difference between the two lowest losses of a median row; 1 if there is none."""
    if losses.shape[1] < 2:
        return 1.0
    first, second = np.partition(losses, 1, axis=1)[:, :2].T
    gap = float(np.median(second - first))
    return gap if 0 < gap < np.inf else 1.0
