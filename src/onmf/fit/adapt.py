"""How much a free row counts in a cluster with known rows, if the known rows choose.

The known rows of each cluster are dealt into folds. For each fold and each value of a, a fit without the rows of the
fold assigns them. The best value assigns most of them to their clusters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from onmf.backend import to_host
from onmf.data import Data, Part
from onmf.data.known import Known
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler

from .groups import Grouping, features_of
from .known import Guide
from .loop import alternate
from .restarts import Settings

ODDS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, np.inf)
"""What all free rows may count together, relative to all known ones; a is 0 for the first, and 1 for the last."""

USUAL = ODDS.index(1.0)
"""Of several odds that are as good, the nearest to these are taken."""

ALONE = ODDS.index(10.0)
"""The odds that are used if no known row can be left out."""

FOLDS = 3
"""Parts of the known rows that are left out in turn."""

COUNTS = 0.3
"""What smoothing adds to each feature of a cluster of mean size, if that is less than the usual smoothing."""

ITERATIONS = 10
"""Iterations of a fit without some rows, at most: which rows are put back is clear long before the last one moves."""


def guide_of(data: Data, settings: Settings, start: Callable[[], Any]) -> Guide | None:
    """What is known of the clusters, with the a that the settings name or the known rows choose.

    ``start()`` returns the first centroids of a run, by ``data.guide``.
    """
    if data.known is None and settings.priors is None:
        return None
    priors = np.zeros((settings.n_clusters, features_of(data))) if settings.priors is None else settings.priors
    guide = Guide.of(data, 1.0 if settings.adapt is None else settings.adapt, priors, settings.seed_share)
    if data.known is None:
        return guide
    plain, free = data.divergence, float(data.total(free_mass)) * float(guide.has_rows.mean())
    if settings.adapt is None:
        guide = replace(guide, adapt=adapts(guide, free)[choose(put_back(data, settings, priors, start, free))])
    data.smooth(smoothed(plain, guide, free, data.known))
    return guide


def smoothed(plain: Divergence, guide: Guide, free: float, known: Known) -> Divergence:
    """The divergence with the smoothing for the sums that centroids follow from, if it depends on them."""
    assert isinstance(plain, KullbackLeibler)
    mass = float(guide.sums.mass.sum()) + guide.adapt * free
    return plain.changed(smoothing=min(plain.smoothing, COUNTS * len(guide.priors) / mass)) if known.relative else plain


def adapts(guide: Guide, free: float) -> list[float]:
    """The values of a for the odds, if the free rows of clusters with known ones hold so much."""
    known = float(guide.sums.mass.sum())
    return [min(odds * known / free, 1.0) if free > 0 else 1.0 for odds in ODDS]


def put_back(data: Data, settings: Settings, priors: FloatArray, start: Callable[[], Any], free: float) -> Array:
    """Whether known rows are put back into their clusters when they are left out, for all odds. → (odds, rows) bool"""
    known, plain, before = data.known, data.divergence, (data.known, data.grouping, data.guide)
    folds = folds_of(known, np.concatenate(data.map(are_usable, known)))
    found = [np.empty((len(ODDS), 0), dtype=bool)]
    try:
        for fold in range(folds.max(initial=-1) + 1):
            tested, data.known = known.subset(folds == fold), known.subset(folds != fold)
            data.grouping = Grouping.of(data)
            guide, labels = Guide.of(data, 1.0, priors, settings.seed_share), []
            for adapt in adapts(guide, free):
                data.guide = replace(guide, adapt=adapt)
                data.smooth(smoothed(plain, data.guide, free, data.known))
                alternate(
                    data, start().centroids, max_iter=min(settings.plan.max_iter, ITERATIONS), tol=settings.plan.tol
                )
                labels.append(np.concatenate(data.map(labels_at, tested)))
            found.append(np.stack(labels) == tested.labels)
    finally:
        data.known, data.grouping, data.guide = before
    return np.concatenate(found, axis=1)


def free_mass(part: Part) -> float:
    """The sum of the free rows of a part."""
    return float(np.sum(part.block.host_weights * to_host(part.block.terms["sum"])))


def labels_at(part: Part, known: Known) -> Array:
    """The labels of known rows of a part, by the templates of the last step. → (rows,)"""
    return np.asarray(to_host(part.run.collect().labels))[known.inside(part)[0]]


def are_usable(part: Part, known: Known) -> Array:
    """Which known rows of a part count: those with an entry and a weight. → (rows,) bool"""
    rows, _, weights = known.inside(part)
    return (to_host(part.block.terms["sum"])[rows] > 0) & (weights > 0)


def folds_of(known: Known, usable: Array) -> Array:
    """The fold of each known row; −1 if it is never left out, as the only usable one of its cluster is. → (m,)"""
    order = np.random.default_rng(0).permutation(len(known.rows))
    folds = np.full(len(known.rows), -1)
    for cluster in np.unique(known.labels):
        own = order[usable[order] & (known.labels[order] == cluster)]
        if len(own) > 1:
            folds[own] = np.arange(len(own)) % FOLDS
    return folds


def choose(correct: Array) -> int:
    """The place of the odds with which most rows are put back; of several, the nearest to the usual ones.

    ``correct`` (odds, rows) says which rows are put back.
    """
    if not correct.size:
        return ALONE
    best = np.flatnonzero(correct.sum(axis=1) == correct.sum(axis=1).max())
    return int(best[np.abs(best - USUAL).argmin()])
