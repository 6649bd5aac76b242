"""How much work the rows get: as many runs as a person is willing to wait for, which vote on the clusters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone

from onmf.backend import to_host
from onmf.confidence import refit
from onmf.divergence import Array, KullbackLeibler, get_divergence
from onmf.estimator import ONMF, adopt_clustering, fit_model, settings_of
from onmf.fit.starts import from_sums
from onmf.naming import number_by_size, so_many
from onmf.surprise import SMOOTHING

RUNS = 24  # Runs that vote
FEWEST = 9  # Runs behind a vote at least. Fewer are hardly better than a single run.

SECONDS = 7e-8
"""Seconds that a run with local search takes on one core for each nonzero count and cluster, roughly: 5e-8 to 9e-8, in
the three views of large collections."""

SECONDS_WITHOUT_SEARCH = 2e-7
"""The same for a run without a search, of a divergence that has no moves of single rows: 1e-7 to 2e-7."""

PATIENCE = 240.0  # Seconds of one core that the runs may take, roughly: two minutes on two cores
GIVEN = ("init", "n_init", "refine")  # Parameters that replace the choice made here


@dataclass(frozen=True)
class Views:
    """Ways to weigh the same rows, whose runs vote together."""

    number: int
    noun: str  # what they are views of
    fit: Callable[..., ONMF]  # fit(X, n_clusters, n_runs=, progress=, **parameters), by a vote of the views
    refit: Callable[[ONMF, Any], Sequence[Array]]  # labels of rows in independent runs, for the confidence


@dataclass
class Fit:
    """A fitted model, and how it came about."""

    model: ONMF  # its clusters by falling size
    X: Any  # what it was fitted on
    how: str = ""  # what was done, such as "a vote of 24 runs"; empty for a single run, which its iterations describe
    voted: bool = False  # whether runs voted on the labels, so that they are not those of the assignment rule
    refit: Callable[..., Sequence[Array]] | None = None  # as in Views; with groups, these come last
    trials: tuple[Array, list[Array]] | None = None  # some rows, and their labels in runs made anyway; replaces refit
    groups: Array | None = None  # of the rows of X, if the model was fitted with several
    notes: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)  # that were given
    given: dict[int, str] = field(default_factory=dict)  # by what clusters were given, such as seeds
    names: dict[int, str] = field(default_factory=dict)  # of these clusters

    def __post_init__(self) -> None:
        if not self.how and isinstance(self.model.init, str) and self.model.init == "consensus":
            self.how, self.voted = f"a vote of {self.model.n_consensus} runs", True
        if self.groups is not None:
            self.how = f"{self.how or 'a single run'} with {len(np.unique(self.groups))} groups"


def fit_plainly(X: Any, n_clusters: int, parameters: Mapping[str, Any], engine: Any = None) -> Fit:
    """Cluster counts as :class:`onmf.ONMF` does with these parameters; ``quick`` is no parameter of it."""
    model = ONMF(n_clusters, **{name: value for name, value in parameters.items() if name != "quick"})
    return Fit(model.fit(X) if engine is None else fit_model(model, X, engine=engine), X)


def fit_with_groups(
    X: Any, n_clusters: int, parameters: Mapping[str, Any], groups: Array, plain: Callable[[], Fit], engine: Any = None
) -> Fit:
    """Cluster counts with groups, from random partitions and from clusters without groups; the best objective is kept.

    Strong effects of groups keep a run that begins from clusters without groups where it is. Where the effects are
    weak, as in texts, such a run ends far better than those from random partitions. ``plain`` finds these clusters. A
    start or a number of starts among the parameters replaces all this; with ``quick`` one random partition is enough.
    """
    given = {name: value for name, value in parameters.items() if name not in ("quick", "n_consensus")}
    if parameters.get("quick"):
        given["n_init"] = 1
    model = fit_model(ONMF(n_clusters, **given), X, groups=groups, engine=engine)
    runs = len(settings_of(model, grouped=True).seeds)
    if any(name in parameters for name in GIVEN):
        return Fit(model, X, f"the best of {runs} runs" if runs > 1 else "", groups=groups)
    first = plain()
    other = fit_model(clone(model), X, groups=groups, engine=engine, init=to_host(first.model.cluster_centers_))
    how = f"the best of {so_many(runs, 'random start')} and of clusters without groups,"
    if model.reconstruction_err_ <= other.reconstruction_err_:
        return Fit(model, X, how, groups=groups)
    return Fit(other, X, how, refit=partial(_refit_with_groups, first), groups=groups)


def _refit_with_groups(first: Fit, model: ONMF, X: Any, groups: Array) -> list[Array]:
    """The labels of rows in independent runs without groups, each of which goes on with groups."""
    again = first.refit or (lambda model, X: [run.labels for run in refit(model, X)])
    found = []
    for labels in map(to_host, again(first.model, X)):
        k = model.n_clusters
        members = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(k, len(labels)))
        start = from_sums(np.asarray((members @ X).todense() if issparse(X) else members @ X, dtype=np.float64))
        found.append(fit_model(clone(model), X, groups=groups, init=start).labels_)
    return found


def end_with_rule(fit: Fit, smooth: bool, engine: Any = None) -> None:
    """Let a fit that moved single rows go on with the loop, so that the assignment rule gives its labels.

    A local search lowers the exact objective. Without ``smooth``, templates are hardly smoothed in the loop, and in the
    model: then the loop moves next to no row.
    """
    model, before = fit.model, fit.model.clustering_
    plain = clone(model).set_params(refine=None, n_init=1)
    if not smooth and isinstance(model.divergence_, KullbackLeibler):
        plain.set_params(beta_loss="kullback-leibler", smoothing=SMOOTHING / model.n_features_in_)
    fit_model(plain, fit.X, engine=engine, init=to_host(before.centroids))
    kept = {name: getattr(before, name) for name in ("parameters", "init_rows", "n_sweeps", "agreement")}
    kept["n_iter"] = before.n_iter + plain.n_iter_
    adopt_clustering(model, replace(plain.clustering_, **kept), model.engine_, plain.divergence_)
    number_by_size(model, fit.X, engine)


def fit_by_vote(
    X: Any,
    n_clusters: int,
    parameters: dict[str, Any],
    progress: Callable[[float], None],
    announce: Callable[[str], None],
    views: Views | None = None,
) -> Fit:
    """Cluster counts by a vote of as many runs as their number and the divergence allow.

    A start, a number of starts or a refinement among the ``parameters`` of :class:`onmf.ONMF`, or a true ``quick``,
    replaces the vote; ``n_consensus`` is the number of runs that vote. ``progress`` is called with the share of the
    runs that are done, and ``announce``, before the fit, with a sentence that says what it does. The ``views`` are for
    counts under Kullback–Leibler.
    """
    given = dict(parameters)
    if given.pop("quick", False) or any(name in given for name in GIVEN):
        return fit_plainly(X, n_clusters, given)
    divergence = get_divergence(given.get("beta_loss", "kullback-leibler"))
    asked = given.pop("n_consensus", None)
    searches = divergence.moves is not None
    seconds = (SECONDS if searches else SECONDS_WITHOUT_SEARCH) * max(X.nnz, 1) * n_clusters
    step = 3 if views is None else views.number
    runs = asked or min(RUNS, int(PATIENCE / seconds) // step * step)
    searched = given | {"refine": "local-search"} if searches else given
    if asked is None and runs < FEWEST:
        how = "a single run with a local search" if searches else "a single run from the paper's start"
        announce(f"This is {how}, since the data are large.")
        return Fit(ONMF(n_clusters, **searched | ({"init": "bisection"} if searches else {})).fit(X), X, how)
    how = f"a vote of {runs} runs"
    if views is None or divergence != get_divergence("kullback-leibler"):
        announce(f"The clusters are {how}.")
        return Fit(ONMF(n_clusters, **searched | {"init": "consensus", "n_consensus": runs}).fit(X), X, how, True)
    given.pop("beta_loss", None)
    how += f" in {views.number} views of the {views.noun}"
    announce(f"The clusters are {how}.")
    return Fit(views.fit(X, n_clusters, n_runs=runs, progress=progress, **given), X, how, True, views.refit)
