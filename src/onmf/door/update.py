"""New rows for a model: its clusters keep their numbers, and what was not there before becomes new clusters.

One row says little about whether there is something new: only 5 to 16 % of the documents of a new newsgroup are
unusual at a rate of 5 %. Many rows together say it clearly. So new rows and some that the model has kept are clustered
together, as the rows of a fit are. Kept and new rows of what was there before come in all clusters in the same
proportion, whatever the clusters are. A cluster with too few kept rows (by the hypergeometric distribution, and with
a false alarm in one of twenty updates) was not there before, unless clusters of the model have merely grown. The sums
of its new rows, less what kept rows explain, begin a new centroid beside those of the model. The rows that are closer
to it give it its place.

Then the sums of the new rows are added to those behind the centroids. Over many updates these are the sums of all rows,
as a single fit has them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from scipy.stats import hypergeom, norm

from onmf import interrupt
from onmf.backend import to_host
from onmf.confidence import evenly_spaced
from onmf.divergence import Array, FloatArray, KullbackLeibler, divide
from onmf.estimator import ONMF, adopt_clustering
from onmf.naming import listed, names_of_model, so_many

from .kind import Fit, Kind
from .memory import Memory
from .outcome import FEWEST, what_became
from .run import check_kind, predict_table
from .settle import Standards, batches, check_shares, standards_of, sum_clusters

if TYPE_CHECKING:
    from .clusters import Clusters, Progress, Table

ALARMS = 0.05  # share of the updates in which a cluster is new by chance
MOST = 6_000  # new rows that are searched for new clusters
MORE = 5  # one more cluster for so many is looked for, so that a new one has room
FOLDS, STEPS = 10, 10  # of the rows, and in which new centroids find their rows
SEED = 381_206_457  # of the division into folds


@interrupt.heeding
def update_table(
    model: ONMF,
    table: Table,
    *,
    kind: Kind | None = None,
    unassigned: float | None = None,
    min_confidence: float | None = None,
    progress: Progress | None = None,
) -> Clusters:
    """Assign new rows to the clusters of a model, find new clusters among them, and learn from all of them.

    Parameters
    ----------
    model : ONMF
        A model of this kind of data, as :func:`onmf.load` reads it; it stays as it is.
    table : Table
        New rows. Features are matched by name.
    kind : Kind, optional
        What the rows are; by default what the model says.
    unassigned, min_confidence : float, optional
        When a row gets no cluster, as in :func:`onmf.door.cluster_table`; by default as for the model.
    progress : callable, optional
        As in :func:`onmf.door.cluster_table`.

    Returns
    -------
    Clusters
        The clusters of the new rows. Its ``model`` has the clusters of the old one, with their numbers and names, and
        the new ones; ``updated`` says what became of each.
    """
    kind, report = check_kind(model, kind), progress or (lambda name, share: None)
    if not isinstance(model.divergence_, KullbackLeibler) or model.group_effects_ is not None:
        why = "with groups" if model.group_effects_ is not None else f"by the {model.divergence_.name} divergence"
        raise ValueError(f"Only models of Kullback–Leibler without groups can be updated, and this one is {why}.")
    model = copy(model)
    model.extra_ = model.extra_ | check_shares(unassigned=unassigned, min_confidence=min_confidence)
    standards = standards_of(model.extra_, *model.cluster_centers_.shape)
    found = predict_table(model, table, kind=kind, progress=progress)
    X, places, _ = kind.rows_of_result(found)
    sums = sums_of(model)
    notes, extended = list[str](), model
    if standards.memory is None:
        notes.append(
            "New clusters were not looked for: the model keeps no rows to compare with, since it was written with "
            "--no-text or by an older version of onmf."
        )
    else:
        some, rows = _some_rows(X, found.templates.ravel()[places] >= 0)
        if rows.shape[0]:
            starts = new_clusters(kind, model, standards.memory, rows, partial(report, "Looking for new clusters"))
            starts = grow(kind, model, rows, starts) if len(starts) else starts
            if len(starts):
                extended = _with(model, kind, np.vstack([sums, starts]), standards)
                found = predict_table(extended, table, kind=kind, progress=progress)
        standards = replace(standards, memory=standards.memory.joined(csr_array(rows), len(some)))
    return _learnt(kind, model, extended, table, found, (X, places), standards, notes, report)


def sums_of(model: ONMF) -> FloatArray:
    """The sums of the rows behind the centroids of a model. → (k, p)"""
    return np.asarray(to_host(model.clustering_.masses)[:, None] * to_host(model.cluster_centers_))


def _some_rows(X: Any, inside: Array) -> tuple[Array, Any]:
    """The places of the rows that take part, and some of these rows, evenly spread, in memory."""
    places = np.flatnonzero(inside)
    wanted, parts = places[evenly_spaced(len(places), MOST)], []
    for start, batch in batches(X):
        here = wanted[(wanted >= start) & (wanted < start + batch.shape[0])] - start
        if len(here):
            parts.append(batch[here])
    if not parts:
        return places, np.zeros((0, X.shape[1]))
    return places, csr_array(vstack(parts, format="csr")) if issparse(parts[0]) else np.concatenate(parts)


def new_clusters(kind: Kind, model: ONMF, memory: Memory, rows: Any, progress: Any) -> FloatArray:
    """The sums of rows that begin clusters that were not there before. → (new, p)"""
    n, m, numbers = rows.shape[0], memory.rows.shape[0], len(model.clustering_.numbers)
    k = min(numbers + max(2, numbers // MORE), (n + m) // FEWEST)
    if k < 2:
        return np.empty((0, rows.shape[1]))
    old: Any = memory.rows if issparse(rows) else memory.rows.toarray()
    both: Any = csr_array(vstack([old, rows], format="csr")) if issparse(rows) else np.concatenate([old, rows])
    parameters = {"random_state": 0, "n_threads": model.n_threads}
    fitted = kind.fit_part(Fit(model, both, parameters=parameters), both, None, k, progress)
    labels = to_host(fitted.model.clustering_.labels)
    before, now = (np.bincount(part, minlength=k) for part in (labels[:m], labels[m:]))
    too_few = hypergeom.cdf(before, n + m, before + now, m) < ALARMS / k
    own = kind.judge(model, both, Standards())[0]
    new = np.flatnonzero(too_few & (_given(labels, own, m, k) < ALARMS) & (now >= FEWEST))
    here, there = (sum_clusters(part, own, k)[new] for part, own in ((rows, labels[m:]), (old, labels[:m])))
    return np.maximum(here - n / m * there, 0.0)


def _given(labels: Array, own: Array, m: int, k: int) -> FloatArray:
    """The probability of so few kept rows in each cluster given how many kept and new rows each one of the model has.

    A cluster of the model that has grown is not new: its kept and new rows are divided alike among the clusters. The
    first m rows are kept ones; ``own`` are their clusters of the model. → (k,)
    """
    kept = (np.arange(len(labels)) < m).astype(np.int64)
    table = np.zeros((2, k, own.max() + 1))
    np.add.at(table, (kept, labels, own), 1.0)
    both = table.sum(axis=0)
    total, share = both.sum(axis=0), divide(table[1].sum(axis=0), both.sum(axis=0))
    expected = (both * share).sum(axis=1)
    variance = (both * share * (1 - share) * divide(total - both, np.maximum(total - 1, 1.0))).sum(axis=1)
    return norm.cdf(divide(table[1].sum(axis=1) + 0.5 - expected, np.sqrt(variance)))


def grow(kind: Kind, model: ONMF, rows: Any, starts: FloatArray) -> FloatArray:
    """Let new centroids find their rows beside those of the model. → their sums; those with too few rows are gone

    A row is compared with new centroids that it had no part in, as it had none in those of the model: otherwise words
    that only this row has would draw it to a new one. So each fold of the rows has the sums of the others.
    """
    sums, k, before = sums_of(model), len(model.cluster_centers_), np.empty(0)
    fold = np.random.default_rng(SEED).permutation(rows.shape[0]) % FOLDS
    parts = [rows[fold == f] for f in range(FOLDS)]
    others = [starts] * FOLDS
    for _ in range(STEPS):
        interrupt.check()
        m = len(others[0])
        labels = [
            kind.judge(_with(model, kind, np.vstack([sums, those]), None), part, Standards())[0]
            for part, those in zip(parts, others, strict=True)
        ]
        own = np.stack([sum_clusters(part, at, k + m)[k:] for part, at in zip(parts, labels, strict=True)])
        found = np.concatenate(labels)
        enough = np.bincount(found, minlength=k + m)[k:] >= FEWEST
        starts = own.sum(axis=0)[enough]
        if not len(starts) or np.array_equal(found, before):
            break
        others, before = list((own.sum(axis=0) - own)[:, enough]), found if enough.all() else np.empty(0)
    return starts


def _with(model: ONMF, kind: Kind, sums: FloatArray, standards: Standards | None) -> ONMF:
    """A model with these sums behind its centroids, of which the last ones may be new.

    A centroid keeps its size, so that scales stay comparable; a new one has the mean size of the others.
    """
    model, clustering = copy(model), model.clustering_
    model.__dict__.pop("_stream", None)
    old, new = len(clustering.centroids), len(sums) - len(clustering.centroids)
    sizes = to_host(clustering.centroids).sum(axis=1)
    sizes = np.append(sizes, np.full(new, sizes[sizes > 0].mean()))
    totals = sums.sum(axis=1)
    clusters = clustering.clusters
    if clusters is not None and new:
        first = len(names_of_model(model))
        clusters = np.append(clusters, np.arange(first, first + new, dtype=clusters.dtype))
    clustering = replace(
        clustering,
        centroids=np.ascontiguousarray(divide(sums, totals[:, None]) * sizes[:, None]),
        masses=divide(totals, sizes),
        clusters=clusters,
        n_filled=int(np.count_nonzero(totals)),
        init_rows=None,
    )
    if new:
        model.set_params(n_clusters=len(sums))
        model.extra_ = kind.extended(model.extra_, divide(sums[old:], totals[old:, None]))
        if standards is not None:
            model.extra_ = model.extra_ | _extended(standards, new).parts()
    adopted: ONMF = adopt_clustering(model, clustering, model.engine_, model.divergence_)
    return adopted


def _extended(standards: Standards, new: int) -> Standards:
    """Standards for new centroids, too: rows are as sure of them as of the others, and as unusual."""
    calibration, usual = standards.calibration, standards.usual
    if calibration is not None:
        low, high = (np.append(each, np.full(new, each.mean())) for each in (calibration.low, calibration.high))
        calibration = replace(calibration, low=low, high=high)
    if usual is not None:
        plain = np.repeat([[0.0], [1.0]], new, axis=1)
        usual = replace(usual, by_centroid=np.hstack([usual.by_centroid, plain]))
    return replace(standards, calibration=calibration, usual=usual)


def _learnt(
    kind: Kind,
    before: ONMF,
    model: ONMF,
    table: Table,
    found: Clusters,
    rows: tuple[Any, Array],
    standards: Standards,
    notes: list[str],
    report: Any,
) -> Clusters:
    """The result: the centroids learn from the rows, which have places in the table and are then assigned once more."""
    (X, places), k = rows, len(model.cluster_centers_)
    templates = found.templates.ravel()[places]
    old, names = len(before.cluster_centers_), names_of_model(before)
    whole = np.vstack([sums_of(before), np.zeros((k - old, X.shape[1]))]) + sum_clusters(X, templates, k)
    model = _with(model, kind, whole, None)
    standards = _extended(standards, k - old) if k > old else standards
    model.extra_ = model.extra_ | standards.parts()
    found = predict_table(model, table, kind=kind, progress=report)
    templates = found.templates.ravel()[places]
    inside = templates >= 0
    losses = (
        -model.score(batch[own]) * len(own)
        for start, batch in batches(X)
        if len(own := np.flatnonzero(inside[start : start + batch.shape[0]]))
    )
    fields = {
        "objective": float(sum(losses)),
        "n_iter": 1,
        "labels": templates[inside].astype(np.int32),
        "scales": np.nan_to_num(found.scales.ravel()[places][inside]),
        "margins": np.nan_to_num(found.margins.ravel()[places][inside]),
        "history": {},
        "agreement": None,
        "stop_reason": "update",
    }
    model = adopt_clustering(copy(model), replace(model.clustering_, **fields), model.engine_, model.divergence_)
    new = list(range(len(names), found.n_numbers)) if k > old else []
    found = replace(found, model=model, standards=standards, names=names + [""] * len(new), how="an update")
    if new:
        found.complete()
        taken, made = set(names), kind.names(found, new)
        for number in new:
            name = made[number] if made[number] not in taken else f"{made[number]} {number + kind.first}"
            found.names[number] = name
            taken.add(name)
        shown = listed([number + kind.first for number in new])
        notes = [*notes, f"{so_many(len(new), f'new {kind.cluster}')}: {shown}."]
    updated = what_became(before, found, sum_clusters(X, found.labels.ravel()[places], found.n_numbers), new)
    found = replace(found, notes=[*found.notes, *notes], updated=updated)
    model.extra_ = model.extra_ | found.entries()
    return found
