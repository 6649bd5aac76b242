"""The pipeline, the same for every kind of data: from a table to clusters, and from a model to clusters of new rows.

Prepare the rows → choose the number of clusters → fit, and number the clusters by size → measure how sure each label is
→ name the clusters → compare them with known classes.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf import interrupt
from onmf.backend import to_host
from onmf.confidence import Calibration, calibrate, evenly_spaced, votes_for
from onmf.divergence import KullbackLeibler
from onmf.estimator import ONMF, check_parameters
from onmf.fit.groups import apart
from onmf.functions import log
from onmf.io.rules import require, some_names
from onmf.kinds import get_kind
from onmf.naming import Namer, names_of_model, so_many
from onmf.select import Range

from .clusters import Clusters, Progress, Table
from .groups import check_groups_of, with_new_groups
from .kind import Fit, Kind
from .known import (
    check_parameters_of_given,
    given_of,
    labels_of_known,
    names_with_given,
    notes_on_given,
    range_of_given,
)
from .memory import MOST, Memory
from .settle import SHARES, Standards, check_shares, learn_from, settled, standards_of, take_rows
from .votes import end_with_rule

UNSEEN = 1e-10  # Added to a centroid of sum 1, so that a feature that a cluster lacks costs much, but not infinity
MOVED = 0.03  # Share of rows that smoothing puts elsewhere, from which on a note says so

SMALL = 0.01
"""Smoothing, as a share of the mean share of a feature, that moves less than 1 % of the pixels of the paper's scenes:
``python -m benchmarks.smoothing``."""

SLIVER = 0.001  # Share of the rows below which a cluster is a sliver


def check_request(kind: Kind, n_clusters: int | str, span: Range, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be right, before anything is read."""
    span.check(n_clusters)
    known = {name: value for name, value in parameters.items() if name not in BEYOND_THE_FIT}
    check_parameters(ONMF(8 if isinstance(n_clusters, str) else n_clusters, **known))


BEYOND_THE_FIT = ("quick", "namer", "seeds", "known", "false_alarms", *SHARES)
"""Parameters of cluster_table that those of a kind pass on."""


@interrupt.heeding
def cluster_table(
    kind: Kind,
    table: Table,
    n_clusters: int | str,
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    false_alarms: float | None = None,
    unassigned: float | None = None,
    min_confidence: float | None = None,
    namer: Namer | None = None,
    seeds: Mapping[str, Any] | None = None,
    known: Sequence[Any] | None = None,
    options: Mapping[str, Any] | None = None,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Clusters:
    """Cluster the rows of a table, with the options of its kind and the parameters of :class:`onmf.ONMF`.

    ``n_clusters="auto"`` chooses a number from ``k_min`` to ``k_max``, that of the medium level; ``"coarse"`` and
    ``"fine"`` take those of the other levels. ``false_alarms`` is the share of data without clusters in which some may
    be found. Rows whose surprise is at most ``unassigned`` get no cluster, nor do
    rows of a lower confidence than ``min_confidence``; the model keeps both. ``namer`` is a function that names a
    cluster: it gets the features that tell it from the others, the best first, and its most typical rows as texts, such
    as the beginnings of documents. By default the features make the name. ``seeds`` are features that clusters should
    have, ``{"space": ["nasa", "orbit"]}`` or their weights by feature, and ``known`` is the name of the cluster of each
    known row, None for a free one; the other clusters are found. ``announce`` is called before the fit with a
    sentence that says what it does, ``progress`` with the name of a step and the share of it that is done. The seed is
    0 by default, and ``quick=True`` makes a single run.
    """
    span, shares = Range(k_min, k_max, false_alarms), check_shares(unassigned=unassigned, min_confidence=min_confidence)
    parameters = {"random_state": 0} | parameters  # the same rows give the same clusters
    check_request(kind, n_clusters, span, parameters)
    require(namer is None or callable(namer), f"namer={namer!r} is not allowed: it is a function that returns a name.")
    report = progress or (lambda name, share: None)
    if known is not None:
        table = replace(table, known=labels_of_known(known, len(table.rows)))
    if seeds is not None or table.known is not None:
        check_parameters_of_given(parameters)
    if seeds is not None:
        seeds = kind.check_seeds(seeds)
        options = {**(options or {}), "seeds": seeds}
    rows = kind.prepare(table, parameters, report, **(options or {}))
    n, total = len(rows.index), len(table.rows)
    selection, notes = None, [*table.notes, *rows.notes]
    rows.groups, about_groups = check_groups_of(table, rows.index, kind.row, parameters)
    rows.given, about_given = given_of(kind, table, rows, seeds)
    notes += about_groups + about_given
    if rows.given is not None and isinstance(n_clusters, str):
        span = range_of_given(span, rows.given)
    if isinstance(n_clusters, str):
        report("Choosing the number of clusters", 0.0)
        selection = kind.choose(rows, span, parameters, partial(report, "Choosing the number of clusters"))
        notes += selection.notes(kind.rows_of(2), n_clusters)
        n_clusters = selection.number_at(n_clusters)
    if n_clusters > n:
        others = f" ({kind.so_many(total - n)} more cannot be clustered)" if n < total else ""
        raise ValueError(f"{n_clusters} clusters of {kind.so_many(n)}{others} are not possible: ask for at most {n}.")
    if rows.given is not None and n_clusters < len(rows.given.names):
        given = f"{so_many(len(rows.given.names), 'cluster')} are given ({some_names(rows.given.names)})"
        raise ValueError(f"{given}, and n_clusters={n_clusters}: ask for at least as many.")
    report("Clustering", 0.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The clusters of some groups hold no rows")  # said in a note
        fit = kind.fit(rows, n_clusters, parameters, partial(report, "Clustering"), announce or (lambda sentence: None))
    fit.parameters = parameters
    if fit.model.refine is not None and kind.rule(fit.model) is None:
        end_with_rule(fit, "smoothing" in parameters, rows.engine)
    report("Measuring confidence", None)
    usual, surprise = learn_from(fit.model, fit.X, fit.groups)
    kept = None if getattr(table, "private", False) else take_rows(fit.X, evenly_spaced(n, MOST))
    memory = None if kept is None else Memory(csr_array(kept), n)
    standards = Standards(calibrate_fit(kind, fit), usual, **shares, memory=memory)
    moved = None if fit.groups is not None else moved_without_smoothing(fit.model, fit.X)
    measures: dict[str, Any] = kind.measured(fit, rows, standards, surprise, total)
    clusters = kind.result(
        kind=kind,
        table=table,
        model=fit.model,
        **settled(measures, fit.model.clusters_, standards),
        given=fit.given,
        notes=[*notes, *fit.notes, *_doubts(kind, fit, moved)],
        standards=standards,
        selection=selection,
        how=fit.how,
        quick=bool(parameters.get("quick")),
        moved_without_smoothing=moved,
        namer=namer,
        fit=fit,
        fitted_rows=rows,
    )
    clusters.notes += notes_on_given(kind, fit, clusters.sizes) + left_out(clusters)
    kind.describe(clusters, rows, fit, report)
    clusters.names = names_with_given(kind.names(clusters), fit.names)
    fit.model.extra_ = clusters.entries()
    return clusters


def calibrate_fit(kind: Kind, fit: Fit) -> Calibration:
    """Learn from other runs how sure the labels are: from runs that were made anyway, or from new ones."""
    labels = to_host(fit.model.labels_)
    some, voted = fit.trials or (evenly_spaced(len(labels)), None)
    rows, groups = take_rows(fit.X, some), None if fit.groups is None else fit.groups[some]
    chances = kind.chances(fit.model, rows, groups)
    voted = votes_for(fit.model, rows, fit.refit, groups) if voted is None else voted
    return calibrate(chances, labels[some], voted)


def moved_without_smoothing(model: ONMF, X: Any) -> float | None:
    """Share of some rows, evenly spread, that the Kullback–Leibler divergence without smoothing would put elsewhere.

    None for other divergences, which have no smoothing or cannot be without it.
    """
    if not isinstance(model.divergence_, KullbackLeibler) or not model.divergence_.smoothing:
        return None
    some = take_rows(X, evenly_spaced(X.shape[0]))
    C = model.divergence_.normalise(to_host(model.cluster_centers_))
    smoothed, exact = (some @ log(C + epsilon).T for epsilon in (model.divergence_.smoothing, UNSEEN))
    return float(np.mean(smoothed.argmax(axis=1) != exact.argmax(axis=1)))


def _doubts(kind: Kind, fit: Fit, moved: float | None) -> list[str]:
    """Sentences on what a reader should know before trusting the fit."""
    notes, model = [], fit.model
    if sentence := apart(model.clustering_):
        notes.append(sentence)
    if model.stop_reason_ == "max_iter":
        notes.append("The fit was stopped before it converged: allow more iterations (max_iter, or --max-iter).")
    sizes = np.bincount(to_host(model.labels_), minlength=model.n_clusters)
    slivers = int(np.count_nonzero(sizes < SLIVER * sizes.sum()))
    if moved and not fit.voted and (moved > MOVED or slivers):
        smoothing, p = getattr(model.divergence_, "smoothing", 0.0), model.n_features_in_
        have = "has" if slivers == 1 else "have"
        found = f", and {slivers} of the clusters {have} less than {SLIVER:.1%} of them" if slivers else ""
        less = float(f"{SMALL / p:.0e}")
        notes.append(
            f"Without smoothing, {moved:.1%} of the {kind.rows_of(2)} would be in another cluster{found}: "
            f"{smoothing:g} is {smoothing * p:.0%} of a mean share of a {kind.feature}. Compare with "
            f"smoothing={less:g} (--smoothing {less:g})."
        )
    return notes


@interrupt.heeding
def predict_table(
    model: ONMF,
    table: Table,
    *,
    kind: Kind | None = None,
    estimate_groups: bool = False,
    unassigned: float | None = None,
    min_confidence: float | None = None,
    progress: Progress | None = None,
) -> Clusters:
    """Assign the rows of a table to the clusters of a model.

    Parameters
    ----------
    model : ONMF
        A model of this kind of data, as :func:`onmf.load` reads it, or of the result of a clustering.
    table : Table
        New rows. Features are matched by name.
    kind : Kind, optional
        What the rows are; by default what the model says.
    estimate_groups : bool, default=False
        For a model with groups: whether the multipliers of groups that it does not know are estimated from their rows.
        By default they are 1.
    unassigned, min_confidence : float, optional
        When a row gets no cluster, as in :func:`cluster_table`; by default as for the model.
    progress : callable, optional
        As in :func:`cluster_table`.

    Returns
    -------
    Clusters
    """
    kind = check_kind(model, kind)
    shares = check_shares(unassigned=unassigned, min_confidence=min_confidence)
    standards = standards_of(getattr(model, "extra_", {}) | shares, *model.cluster_centers_.shape)
    if estimate_groups:
        model = with_new_groups(model, table, kind)
    found, notes = kind.assigned(model, table, standards, progress or (lambda name, share: None))
    given: dict[str, Any] = {"table": table, "names": names_of_model(model), "notes": [*table.notes, *notes]}
    given |= found | settled(found, model.clusters_, standards)
    clusters = kind.result(kind=kind, model=model, standards=standards, **given)
    clusters.notes += left_out(clusters)
    return clusters


def left_out(clusters: Clusters) -> list[str]:
    """Notes on the rows that the standards leave unassigned; none if there are no such rows."""
    standards, kind, notes = clusters.standards, clusters.kind, []
    if standards.usual is not None and 0 < standards.unassigned < 1 / (standards.usual.n_rows + 1):
        learnt = kind.so_many(standards.usual.n_rows)
        notes.append(f"No surprise is as low as {standards.unassigned:g}: it was learnt from {learnt}.")
    out = (clusters.labels < 0) & standards.leaves_out(clusters.confidence, clusters.surprise)
    why = [
        *([f"a surprise of at most {standards.unassigned:g}"] if standards.unassigned else []),
        *([f"a confidence below {standards.min_confidence:g}"] if standards.min_confidence else []),
    ]
    return [*notes, f"{kind.so_many(int(out.sum()))} left unassigned, with {' or '.join(why)}."] if out.any() else notes


def check_kind(model: ONMF, kind: Kind | None) -> Kind:
    """The kind of a model; refused if it is another one."""
    own = getattr(model, "extra_", {"kind": "matrix"})["kind"]
    if kind is not None and own != kind.name:
        raise ValueError(
            f"This is a model of kind {own!r}: {kind.rows_of(2)} need one of kind {kind.name!r}, such as 'onmf "
            f"{kind.command}' writes."
        )
    return get_kind(own)
