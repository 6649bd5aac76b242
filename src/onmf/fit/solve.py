"""The fit as one function, from data and settings to a clustering; and the starts by name, from which it begins.

If the divergence has an overdispersion to be estimated, that happens here, by maximum likelihood within the clusters:

    log P(x | μ, θ) = log Γ(x + θ) − log Γ(θ) − log x! + x log(μ / (μ + θ)) − θ log(1 + μ / θ)

The first two terms vanish for x = 0, and the last two are minus the loss of the negative binomial, so an evaluation
costs as much as one of the centroids. Clusters and θ take turns: a fit with one θ, then the best θ for its clusters.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from onmf.backend import CentroidEntries, CurvedBlock, to_host
from onmf.data import Data, Engine, Part
from onmf.data.validate import check_centroids
from onmf.divergence import THETAS, Divergence, FloatArray, NegativeBinomial
from onmf.functions import exp, from_table, log, log_gamma
from onmf.io.rules import some_names
from onmf.warn import warn

from .adapt import guide_of
from .describe import Clustering, margins_of
from .groups import Grouping, features_of, without_groups
from .known import Guide, guided_start
from .restarts import LazySeeds, Listener, Settings, best_run, cast_votes, check_rows, cluster_votes, prepare_search
from .search import Search, bisect
from .starts import Seeds, draw_rows, from_label_sums, from_sums, label_sums, random_partition, snpa_start, tie_parallel

Compute = Callable[[Data, Settings, Listener], Clustering]  # A way to fit, such as :func:`fit`

MAX_ROUNDS = 20  # turns of clusters and θ, at most; three or four are usual
THETA_TOL = 0.01  # relative change of θ at which the turns end


class Start(NamedTuple):
    """A way to find first centroids."""

    seeds: Callable[[Data, Settings, int, Listener, Search | None], Seeds]  # the integer is the random seed
    random: bool = False  # whether it depends on the seed, so that several runs make sense
    by_runs: bool = False  # whether it is computed from several runs: needs all rows in memory, and n_init=1
    moves_rows: bool = False  # whether it moves single rows: needs them all, and runs in the thread of its run


def fit(data: Data, settings: Settings, listener: Listener | None = None) -> Clustering:
    """Run the loop from one or several starts, and return the result of the lowest objective; ties go to the first run.

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.data import get_engine
    >>> from onmf.divergence import KullbackLeibler
    >>> from onmf.fit import Settings, fit
    >>> X = np.array([[9.0, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
    >>> fit(get_engine("cpu").make_data(X, KullbackLeibler()), Settings(n_clusters=2)).labels
    array([0, 0, 1, 1], dtype=int32)
    """
    listener = listener or Listener()
    check_rows(data.shape[0], settings.n_clusters)
    data.grouping = Grouping.of(data)
    data.guide = guide_of(data, settings, partial(seeds_of_run, data, settings, Listener()))
    search = prepare_search(data, settings.plan)  # once, also for the runs behind a consensus
    start = partial(seeds_of_run, data, settings, listener, search=search)
    best = best_run(data, start, settings.seeds, settings.plan, listener.watch, search)
    warn_about(best, settings.plan.max_iter, data.guide)
    adapt = None if data.known is None else data.guide.adapt
    return without_groups(data, with_margins(data, replace(best, parameters=settings.parameters, adapt=adapt)))


def seeds_of_run(
    data: Data, settings: Settings, listener: Listener, run: int = 0, search: Search | None = None
) -> LazySeeds:
    """The seeds of a run, or a function that computes them in the thread of the run."""
    start = get_start(settings.init)
    assert start is not None, "init was checked"
    if data.guide is not None and isinstance(settings.init, str):
        start = Start(lambda data, settings, seed, *_: guided_start(data, settings.init, seed))
    seeds = partial(start.seeds, data, settings, int(settings.seeds[run]), listener, search)
    found = seeds() if start.by_runs else None  # such a start reports its own runs to the listener
    listener.begin_run()
    return seeds if start.moves_rows else found or seeds()


def with_margins(data: Data, clustering: Clustering) -> Clustering:
    """The clustering with the margins of its rows, and its arrays computed, in the memory of the data (host or GPU)."""
    (margins,) = data.map_rows(margins_of, clustering.centroids, labels=clustering.labels)
    names = ("labels", "scales", "centroids", "masses")
    arrays = data.to_input_memory(*(getattr(clustering, name) for name in names), margins)
    return replace(clustering, **dict(zip((*names, "margins"), arrays, strict=True)))


def warn_about(clustering: Clustering, max_iter: int, guide: Guide | None = None) -> None:
    """Warn about empty clusters, seeds that no row follows, and a fit that did not converge."""
    k, unfollowed = len(clustering.centroids), np.empty(0, dtype=int)
    if guide is not None:
        unfollowed = np.flatnonzero(guide.has_seeds & (to_host(clustering.masses) == 0))
    if len(unfollowed):
        several = len(unfollowed) > 1
        warn(
            f"No row follows the seeds of the cluster{'s' * several} {some_names(unfollowed.tolist())}: "
            f"{'they are' if several else 'it is'} empty. Name other features, or leave these seeds out.",
            UserWarning,
        )
    if clustering.n_filled + len(unfollowed) < k:
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


def _drawn(function: Callable[[Data, int, np.random.Generator], Seeds]) -> Callable[..., Seeds]:
    """A start from a function of data, number of clusters and random numbers."""
    return lambda data, settings, seed, *_: function(data, settings.n_clusters, np.random.default_rng(seed))


def _consensus(data: Data, settings: Settings, seed: int, listener: Listener, search: Search | None) -> Seeds:
    """Cluster the data from random partitions, then the rows by the clusters they were in, whose labels are counts."""
    k, plan = settings.n_clusters, settings.plan
    block, rng = data.single_part().block, np.random.default_rng(seed)
    votes = cast_votes(data, k, rng, n_runs=settings.n_consensus, plan=plan, listener=listener, search=search)
    chosen, agreement = cluster_votes(block, votes, k, rng, plan)
    return Seeds(from_label_sums(label_sums(block, chosen, k), data.divergence), agreement=agreement)


def _bisection(data: Data, settings: Settings, seed: int, listener: Listener, search: Search | None) -> Seeds:
    search = search or Search.over(data.single_part().block)
    labels = bisect(search, settings.n_clusters, np.random.default_rng(seed))
    sums = np.ascontiguousarray(search.sums(labels, settings.n_clusters).T)
    return Seeds(tie_parallel(from_sums(sums), data.divergence))


STARTS: dict[str, Start] = {
    "snpa": Start(_drawn(snpa_start)),
    "++": Start(_drawn(partial(draw_rows, by_loss=True)), random=True),
    "random": Start(_drawn(partial(draw_rows, by_loss=False)), random=True),
    "random-partition": Start(_drawn(random_partition), random=True),
    "bisection": Start(_bisection, random=True, moves_rows=True),
    "consensus": Start(_consensus, by_runs=True),
}
"""Starts by name."""


def get_start(init: Any) -> Start | None:
    """The start for the parameter ``init``; None if ``init`` is not valid."""
    if isinstance(init, str):
        return STARTS.get("snpa" if init == "auto" else init)
    if isinstance(init, Seeds):
        return Start(lambda *_: init)
    if callable(init) or np.ndim(init) > 0:
        return Start(lambda data, settings, seed, *_: _from_user(data, settings, seed, init), random=callable(init))
    return None


def _from_user(data: Data, settings: Settings, seed: int, init: Any) -> Seeds:
    """A start from centroids that a user gave, or that a user's function returns."""
    if callable(init):
        init = init(data.origin, settings.n_clusters, random_state=check_random_state(seed))
    groups = data.shape[1] - features_of(data)
    centroids = check_centroids(init, settings.n_clusters, features_of(data), data.divergence)
    centroids = np.pad(centroids, ((0, 0), (0, groups)))  # the start has no multipliers
    return Seeds(tie_parallel(centroids, data.divergence), given=True)


def fit_estimating(
    data: Data, again: Callable[..., tuple[Engine, Data]], settings: Settings, listener: Listener, compute: Compute
) -> tuple[Clustering, Divergence]:
    """Fit; if the divergence has a θ to be estimated, estimate it and fit again from these clusters, until it stays.

    ``again(divergence=...)`` prepares the same rows for another divergence. ``compute`` fits, as :func:`onmf.fit.fit`
    does. The first fit uses the settings and the listener; the others are a single run. → the last fit, its divergence
    """
    divergence = data.divergence
    if not isinstance(divergence, NegativeBinomial) or not estimates(divergence):
        return compute(data, settings, listener), data.divergence  # known rows may have changed its smoothing
    if divergence.kernel_functions is None:
        raise ValueError(
            "theta='auto' is estimated by the likelihood of the negative binomial, and "
            f"{type(divergence).__name__} has functions of its own: give theta a number."
        )
    clustering = compute(data, settings, listener)
    divergence = divergence.changed(theta=divergence.parameter)
    for _ in range(MAX_ROUNDS):
        theta = estimate_theta(data, clustering.centroids)
        if abs(theta - divergence.parameter) <= THETA_TOL * divergence.parameter:
            break
        divergence = divergence.changed(theta=theta)
        _, data = again(divergence=divergence)
        seeds = Seeds(to_host(clustering.centroids), clustering.init_rows, clustering.agreement, given=True)
        clustering = compute(data, replace(settings, init=seeds, seeds=settings.seeds[:1]), Listener())
    return clustering, divergence


def estimates(divergence: Divergence) -> bool:
    """Whether a parameter of the divergence is to be estimated."""
    return isinstance(divergence, NegativeBinomial) and isinstance(divergence.theta, str)


def with_estimate(divergence: Divergence, fitted: Divergence | None) -> Divergence:
    """The divergence for a batch: with the θ of an earlier fit if it is to be estimated."""
    if not estimates(divergence):
        return divergence
    if not isinstance(fitted, NegativeBinomial):
        raise ValueError(
            f"{divergence!r} is estimated from all rows, and partial_fit sees a batch at a time: give its parameter a "
            "number, or call fit first."
        )
    return divergence.changed(theta=fitted.theta)


def estimate_theta(data: Data, centroids: FloatArray) -> float:
    """The most likely θ for rows that are assigned to these centroids."""
    data.steps(to_host(centroids).copy()).next()
    C = data.divergence.normalise(to_host(centroids))
    found = minimize_scalar(
        lambda log_theta: -float(data.total(log_likelihood, C, float(exp(log_theta)))),
        bounds=tuple(log(THETAS)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(exp(found.x))


def log_likelihood(part: Part, C: FloatArray, theta: float) -> float:
    """Σ w log P of the rows of a part with their labels and scales, up to a constant."""
    block = part.block
    assert isinstance(block, CurvedBlock)
    assert isinstance(block.divergence, NegativeBinomial)
    changed = replace(block, divergence=block.divergence.changed(theta=theta))
    loss = float(changed.evaluate(*part.run.collect(), CentroidEntries.of(C))[0].sum())
    terms = block.host_term(lambda x, j: from_table(lambda t: log_gamma(t + theta) - log_gamma(theta), x))
    return float(np.sum(block.host_weights * terms)) - loss
