"""New rows for a model: its clusters keep their numbers, and what was not there before becomes new clusters.

One row says little about whether there is something new: only 5 to 16 % of the documents of a new newsgroup are
unusual at a rate of 5 %. Many rows together say it clearly. So new rows and some that the model has kept are clustered
together, as the rows of a fit are. Where kept rows are fewest, a new centroid may begin: with the sums of the new rows
there, less what kept rows explain. It finds its rows beside the centroids of the model, and no row has a part in those
with which it is compared.

Kept and new rows of what was there before come to it in the same proportion, from each cluster of the model. So it is
new if too few kept rows come to it: five standard deviations too few, since rows come in threads and an ordinary level
would not do (of 37 updates of eight sets with nothing new, one had such a cluster). And they must be less than half as
many as of the new rows, so that most of its rows are more than there were before.

Then the sums of the new rows are added to those behind the centroids. Over many updates these are the sums of all rows,
as a single fit has them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

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

TOO_FEW, LESS = 5.0, 0.5  # kept rows in a new cluster: standard deviations below what is expected, share of new rows
MOST = 6_000  # new rows that are searched for new clusters
SMALLEST = 1 / 3  # part of a new cluster that is divided; a few odd rows are far from everything
MORE = 5  # one more cluster for so many is looked for, so that a new one has room
FOLDS, STEPS = 20, 10  # of the rows, and in which a new centroid finds its own
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
            starts = new_clusters(kind, model, standards.memory, rows, report)
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


def new_clusters(kind: Kind, model: ONMF, memory: Memory, rows: Any, report: Any) -> FloatArray:
    """The sums of the rows of clusters that were not there before. → (new, p)"""
    n, m, numbers = rows.shape[0], memory.rows.shape[0], len(model.clustering_.numbers)
    more = max(2, numbers // MORE)
    k = min(numbers + more, (n + m) // FEWEST)
    if k < 2:
        return np.empty((0, rows.shape[1]))
    old: Any = memory.rows if issparse(rows) else memory.rows.toarray()
    both: Any = csr_array(vstack([rows, old], format="csr")) if issparse(rows) else np.concatenate([rows, old])
    parameters = {"random_state": 0, "n_threads": model.n_threads}
    fitted = kind.fit_part(
        Fit(model, both, parameters=parameters), both, None, k, partial(report, "Looking for new clusters")
    )
    beside = Beside(kind, model, both, np.arange(n + m) < n, to_host(fitted.model.clustering_.labels))
    found: list[Array] = []
    while len(found) < more:
        best = beside.best(more)
        if best.kept_share > LESS or best.z > -TOO_FEW:
            break
        found.append(beside.add(best))
    found = [part for whole in found for part in beside.divided(whole)]
    return sum_clusters(rows, np.array([*found, np.ones(n, dtype=bool)]).argmax(axis=0), len(found) + 1)[:-1]


class Candidate(NamedTuple):
    """What may be a new cluster."""

    z: float  # how many kept rows less than expected come to it, in standard deviations; below 0 if they are too few
    kept_share: float  # how many of the kept rows come to it, for each one of the new rows
    sums: FloatArray  # of its new rows, without those of each fold


NONE = Candidate(0.0, 1.0, np.empty((FOLDS, 0)))


class Beside:
    """Kept and new rows in the clusters of a model, beside which new ones may find their rows.

    A row is compared with centroids that it had no part in: otherwise words that only this row has would draw it to
    its own. So the rows are in folds, and each fold has the sums of the others. But the model had a part in where its
    kept rows are. So these are compared with new rows beside centroids that have learnt from both alike.

    Attributes
    ----------
    now : (n,) bool
        Which rows are new.
    own : (n,) int
        The cluster of each row.
    chances, learnt : (n,) float
        The logarithm of the probability of each row there, in the model as it is and once it has learnt from new rows.
    """

    def __init__(self, kind: Kind, model: ONMF, rows: Any, now: Array, labels: Array) -> None:
        self.kind, self.model, self.rows, self.now, self.labels = kind, model, rows, now, labels
        self.fold = np.random.default_rng(SEED).permutation(rows.shape[0]) % FOLDS
        self.sums, own = sums_of(model), kind.judge(model, rows, Standards())[0]
        self.whole = self.sums.sum(axis=0) + np.asarray(rows[now].sum(axis=0)).ravel()
        chances = self._left_out(self.sums, np.where(now, -1, own))
        self.chances, self.apart = chances.max(axis=1), self._most_apart(chances)
        chances = self._left_out(self.sums + sum_clusters(rows, np.where(now, own, -1), len(self.sums)), own)
        self.learnt, self.own = chances.max(axis=1), chances.argmax(axis=1)

    def _left_out(self, sums: FloatArray, labels: Array) -> FloatArray:
        """Log-probabilities of the rows in centroids with these sums, in which they have no part. → (n, k)

        ``labels`` are the sums that rows have a part in, -1 for none.
        """
        chances = np.empty((len(labels), len(sums)))
        for fold in range(FOLDS):
            interrupt.check()
            at = np.flatnonzero(self.fold == fold)
            others = np.maximum(sums - sum_clusters(self.rows[at], labels[at], len(sums)), 0.0)
            chances[at] = self._chances(others, self.rows[at])
        return chances

    def _most_apart(self, chances: FloatArray) -> float:
        """How far a cluster of the model is from its nearest one, at most: what a count gains by being in its own.

        Infinite if there is only one cluster, which says nothing about how far clusters are apart.
        """
        found, own, totals = list[float](), chances.argmax(axis=1), np.asarray(self.rows.sum(axis=1)).ravel()
        for cluster in range(chances.shape[1]):
            inside = np.flatnonzero(own == cluster)
            gains = divide((chances[inside][:, [cluster]] - chances[inside]).sum(axis=0), totals[inside].sum())
            found.append(float(np.delete(gains, cluster).min(initial=np.inf)))
        return max((each for each in found if np.isfinite(each)), default=np.inf)

    def _chances(self, sums: FloatArray, rows: Any) -> FloatArray:
        """Log-probabilities of centroids with these sums for some rows, among all that is known. → (rows, centroids)"""
        rest = np.maximum(self.whole - sums.sum(axis=0), 0.0)
        return self.kind.chances(_with(self.model, self.kind, np.vstack([sums, rest]), None), rows)[:, :-1]

    def _folded(self, sums: FloatArray) -> FloatArray:
        """The log-probability of each row in a centroid of which each fold has its own sums. → (n,)"""
        together = self._chances(np.vstack([self.sums, sums / FOLDS]), self.rows)  # as much as one centroid
        return together[np.arange(len(together)), len(self.sums) + self.fold]

    def _others(self, inside: Array) -> FloatArray:
        """The sums of the rows that are inside, without those of each fold. → (folds, p)"""
        own = sum_clusters(self.rows, np.where(inside, self.fold, -1), FOLDS)
        return own.sum(axis=0) - own

    def best(self, n: int) -> Candidate:
        """Of n candidates, the one to which kept rows come least."""
        found, now = [NONE], self.now
        for label in np.argsort(_lacking(self.labels, np.zeros_like(self.own), now), kind="stable")[:n]:
            here, there = (self.rows[(self.labels == label) & part].sum(axis=0) for part in (now, ~now))
            excess = here - now.sum() / (~now).sum() * there
            sums = self._grown(np.maximum(np.asarray(excess).ravel(), 0.0))
            if sums is not None:
                moved = self._folded(sums) > self.learnt
                if np.count_nonzero(moved & now) >= FEWEST:
                    z = float(_lacking(moved.astype(int), self.own, now)[1])
                    found.append(Candidate(z, float(moved[~now].mean() / moved[now].mean()), sums))
        return min(found, key=lambda each: each.z)

    def _grown(self, start: FloatArray) -> FloatArray | None:
        """Let a new centroid find its rows. → their sums without those of each fold; None if they are too few"""
        sums, before = np.tile(start, (FOLDS, 1)), np.zeros(0, dtype=bool)
        for _ in range(STEPS):
            interrupt.check()
            moved = (self._folded(sums) > self.chances) & self.now
            if np.count_nonzero(moved) < FEWEST:
                return None
            if np.array_equal(moved, before):
                break
            sums, before = self._others(moved), moved
        return sums

    def add(self, candidate: Candidate) -> Array:
        """Have a new cluster beside the others, too. → which of the new rows are in it"""
        chances = self._folded(candidate.sums)
        moved = (chances > self.chances) & self.now
        self.own = np.where(chances > self.learnt, self.own.max() + 1, self.own)
        self.learnt, self.chances = np.maximum(chances, self.learnt), np.maximum(chances, self.chances)
        return moved[self.now]

    def divided(self, rows: Array) -> list[Array]:
        """The rows of a new cluster, in parts that are further apart than any cluster of the model and its nearest.

        Nothing of the model attracts rows of a new cluster, so two of them come together at first.
        """
        whole, totals = np.zeros(len(self.now), dtype=bool), np.asarray(self.rows.sum(axis=1)).ravel()
        whole[self.now] = rows
        best, half, fewest = self.apart, whole, max(FEWEST, np.count_nonzero(whole) * SMALLEST)
        for label in np.unique(self.labels[whole]):
            part = whole & (self.labels == label)
            for _ in range(STEPS):
                interrupt.check()
                gains = np.subtract(*(self._folded(self._others(each)) for each in (part, whole & ~part)))
                before, part = part, whole & (gains > 0)
                if min(np.count_nonzero(part), np.count_nonzero(whole & ~part)) < fewest:
                    break
                if np.array_equal(part, before):
                    apart = float(np.abs(gains[whole]).sum() / totals[whole].sum())
                    if best < apart < np.inf:
                        best, half = apart, part
                    break
        if half is whole:
            return [rows]
        return [part for one in (half, whole & ~half) for part in self.divided(one[self.now])]


def _lacking(labels: Array, own: Array, now: Array) -> FloatArray:
    """How many kept rows less than expected each label has, in standard deviations; below 0 if they are too few.

    Expected is what the rows of each cluster of the model have: one that has grown has fewer kept rows everywhere.
    → (labels,)
    """
    table = np.zeros((2, labels.max() + 1, own.max() + 1))
    np.add.at(table, (now.astype(int), labels, own), 1.0)
    kept, both = table[0], table.sum(axis=0)
    total = both.sum(axis=0)
    share = divide(kept.sum(axis=0), total)
    variance = (both * share * (1 - share) * divide(total - both, np.maximum(total - 1, 1.0))).sum(axis=1)
    return divide(kept.sum(axis=1) + 0.5 - (both * share).sum(axis=1), np.sqrt(variance))


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
