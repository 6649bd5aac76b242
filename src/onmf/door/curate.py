"""A result with edits: merges are a map from templates to clusters, and a split is a fit of the rows of one cluster.

A model keeps its centroids, the templates that rows are scored against, and a map from templates to clusters. Merging
clusters joins their templates under one number, and setting one aside maps its templates to -1: no score changes. Only
a split fits anything: new templates replace those of the cluster. A row that is moved is an exception of the result; it
changes no template, and ``predict`` knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from onmf.backend import to_host
from onmf.confidence import evenly_spaced
from onmf.divergence import Array
from onmf.estimator import ONMF, adopt_clustering
from onmf.fit import Clustering
from onmf.fit.groups import centroids_for_effects
from onmf.io.rules import require
from onmf.naming import so_many

from .edits import Edit, Numbering
from .run import calibrate_fit, left_out
from .settle import Standards, batches, settled, take_rows

if TYPE_CHECKING:
    from .clusters import Clusters, Progress
    from .votes import Fit


@dataclass(frozen=True)
class History:
    """What was done to a result by hand."""

    original: Clusters  # the result of the fit
    edits: tuple[Edit, ...]  # in order
    given: frozenset[int]  # as in Numbering
    made: frozenset[int]
    moves: Mapping[int, int]  # places of rows that were moved, and their clusters: Python's numbers, -1 for none
    notes: tuple[str, ...]


class Draft:
    """A result that is being edited: the state that edits change, from which a new result follows."""

    def __init__(self, found: Clusters, progress: Progress | None = None) -> None:
        require(
            found.fit is not None and found.fitted_rows is not None,
            "Only the clusters of a fit can be edited, and these are of new rows: edit the result that has the model.",
        )
        history = found.history
        self.found, self.kind, self.first = found, found.kind, found.kind.first
        self.report = progress or (lambda name, share: None)
        self.numbering = Numbering(list(found.names), self.first, {number + self.first for number in found.given})
        self.edits: list[Edit] = []
        self.moves: dict[int, int] = {}
        self.notes: list[str] = []
        if history is not None:
            self.numbering = Numbering(list(found.names), self.first, set(history.given), set(history.made))
            self.edits, self.moves, self.notes = list(history.edits), dict(history.moves), list(history.notes)
        assert found.fit is not None
        self.fit, self.standards = found.fit, found.standards
        clustering: Clustering = found.model.clustering_
        given = clustering.clusters
        clusters = np.arange(len(to_host(clustering.centroids))) if given is None else given
        self.clustering = replace(clustering, clusters=clusters.astype(np.int32))

    @property
    def clusters(self) -> Array:
        """The cluster of each template. → (k,)"""
        assert self.clustering.clusters is not None
        return self.clustering.clusters

    @property
    def templates(self) -> Array:
        """The template of each row of the fit. → (rows,)"""
        return to_host(self.clustering.labels)

    def apply(self, edit: Edit) -> None:
        """Apply an edit, or refuse it and change nothing that counts."""
        number = len(self.edits) + 1
        parts = self.numbering.apply(edit, number)
        if "merge" in edit:
            kept, *others = sorted(number - self.first for number in edit["merge"])
            self._map(dict.fromkeys(others, kept))
        elif "set aside" in edit:
            self._map({number - self.first: -1 for number in edit["set aside"]})
        elif "split" in edit:
            self._split(*(number - self.first for number in parts))
        elif "move" in edit:
            to = -1 if edit["to"] is None else edit["to"] - self.first
            self.moves |= dict.fromkeys(self._places(edit["move"]), to)
        self.edits.append(edit)

    def _map(self, changes: Mapping[int, int]) -> None:
        """Give the templates and the moved rows of some clusters to others."""
        clusters = self.clusters.copy()
        for old, new in changes.items():
            clusters[self.clusters == old] = new
        self.clustering = replace(self.clustering, clusters=clusters)
        self.moves = {row: changes.get(cluster, cluster) for row, cluster in self.moves.items()}

    def _places(self, names: Sequence[str]) -> list[int]:
        """The places of rows in the table."""
        assert self.found.fitted_rows is not None
        wanted, places = set(names), dict[str, int]()
        for place, row in enumerate(map(str, self.found.table.rows)):
            if row in wanted:
                require(row not in places, f"Two {self.kind.rows_of(2)} are called {row!r}: give them different names.")
                places[row] = place
        for name in names:
            require(name in places, f"There is no {self.kind.row} called {name!r}.")
        taking_part = np.isin(list(places.values()), self.found.fitted_rows.index)
        for name, inside in zip(places, taking_part, strict=True):
            require(inside, f"{name!r} took no part in the clustering, so it cannot be moved.")
        return list(places.values())

    def _split(self, cluster: int, *new: int) -> None:
        """Replace the templates of a cluster by those of its parts, the largest of which keeps its number."""
        fit, m, number = self.fit, len(new) + 1, cluster + self.first
        old, templates = self.clusters == cluster, self.templates
        inside = np.flatnonzero(old[templates])
        n, before = len(inside), self.model()
        require(n > 1, f"Cluster {number} has {self.kind.so_many(n)}: there is nothing to split.")
        require(m <= n, f"Cluster {number} has {self.kind.so_many(n)}, too few for {m} parts.")
        step = f"Splitting cluster {number}"
        self.report(step, 0.0)
        X, groups = take_rows(fit.X, inside), None if fit.groups is None else fit.groups[inside]
        own = None if groups is None or len(np.unique(groups)) == 1 else groups
        part = self.kind.fit_part(fit, X, own, m, lambda share: self.report(step, share))
        labels = to_host(part.model.clustering_.labels)
        found = len(np.unique(labels))
        require(found == m, f"Cluster {number} has no {m} parts: its {self.kind.rows_of(2)} differ too little.")
        parts: Iterable[Any] = (
            to_host(getattr(part.model.clustering_, name)) for name in ("centroids", "masses", "scales")
        )
        if groups is not None:
            place = {name: b for b, name in enumerate(before.groups_.tolist())}
            codes = np.array([place[name] for name in groups.tolist()])
            parts = centroids_for_effects(X, labels, m, to_host(before.group_effects_), codes)
        centroids, masses, scales = parts

        kept = np.flatnonzero(~old)
        k = len(kept)
        templates = (np.cumsum(~old) - 1)[templates].astype(np.int32)
        templates[inside] = k + labels
        self.clustering = replace(
            self.clustering,
            labels=templates,
            scales=_with(self.clustering.scales, inside, scales),
            centroids=np.ascontiguousarray(np.vstack([to_host(self.clustering.centroids)[kept], centroids])),
            masses=np.concatenate([to_host(self.clustering.masses)[kept], masses]),
            clusters=np.append(self.clusters[kept], np.full(m, cluster, dtype=np.int32)),
            init_rows=None,
            group_counts=None,
            n_filled=k + m,
        )
        self._set_standards(before, part, X, groups, inside, kept)
        joined = self._follow_the_rule(inside, k)
        sizes = np.bincount(self.templates, minlength=k + m)[k:]
        require(sizes.all(), f"Cluster {number} has no {m} parts in which rows stay: ask for fewer.")
        clusters = self.clusters.copy()
        clusters[k + np.argsort(-sizes, kind="stable")] = [cluster, *new]
        self.clustering = replace(self.clustering, clusters=clusters)
        if joined:
            closer = "is closer to a part" if joined == 1 else "are closer to parts"
            self.notes.append(f"{self.kind.so_many(joined)} of other clusters {closer} of cluster {number}.")

    def _set_standards(self, before: ONMF, part: Fit, X: Any, groups: Array | None, inside: Array, kept: Array) -> None:
        """Judge the rows of the parts: how sure they are, and how unusual.

        A row stays with the rest of its part if it stays with those of the cluster, and if it does among the parts.
        What losses are usual stays as it was for the cluster.
        """
        standards, some = self.standards, evenly_spaced(len(inside))
        rows, own = take_rows(X, some), None if groups is None else groups[some]
        templates, after = to_host(before.clustering_.labels)[inside], self.model()
        calibration, usual = standards.calibration, standards.usual
        if calibration is not None:
            chances = self.kind.chances(before, rows, own)
            together = calibration.apply(chances, templates[some], before.clusters_)[0]
            chances = self.kind.chances(part.model, rows, None if part.groups is None else own)
            labels = to_host(part.model.clustering_.labels)[some]
            together = together * calibrate_fit(self.kind, part).apply(chances, labels)[0]
            chances = self.kind.chances(after, rows, own)
            calibration = calibration.with_parts(kept, chances, len(kept) + labels, together)
        if usual is not None:
            usual = usual.with_parts(kept, int(np.bincount(templates).argmax()), len(part.model.cluster_centers_))
        self.standards = replace(standards, calibration=calibration, usual=usual)

    def _follow_the_rule(self, inside: Array, k: int) -> int:
        """Assign rows by the rule of the model, as ``predict`` does: those of the cluster, and those that join a part.

        The templates of the parts come after k others. → how many rows of other clusters joined a part
        """
        templates, scales = self.templates.copy(), to_host(self.clustering.scales).copy()
        those = np.zeros(len(templates), dtype=bool)
        those[inside] = True
        model, joined = self.model(plain=True), 0
        for start, batch in batches(self.fit.X):
            at = slice(start, start + batch.shape[0])
            groups = None if self.fit.groups is None else self.fit.groups[at]
            best, own, *_ = self.kind.judge(model, batch, Standards(), groups)
            changed = np.where(those[at], best != templates[at], best >= k)
            joined += int(np.count_nonzero(changed & ~those[at]))
            templates[at] = np.where(changed, best, templates[at])
            scales[at] = np.where(changed, own, scales[at])
        self.clustering = replace(self.clustering, labels=templates, scales=scales)
        return joined

    def model(self, *, plain: bool = False) -> ONMF:
        """A model of the draft; a ``plain`` one has a cluster for each template."""
        model = copy(self.found.model)
        model.__dict__.pop("_stream", None)
        clustering = replace(self.clustering, clusters=None) if plain else self.clustering
        if len(clustering.centroids) != len(self.found.model.cluster_centers_):
            model.set_params(n_clusters=len(clustering.centroids))
        adopted: ONMF = adopt_clustering(model, clustering, model.engine_, model.divergence_)
        return adopted

    def _measures(self, model: ONMF) -> dict[str, Any]:
        """What there is to say about each row. A row that was moved is measured by the best template of its cluster.

        It is with the rest of that cluster in no more fits than those that do not put it where the rule does.
        """
        found, rows = self.found, self.found.fitted_rows
        assert rows is not None
        moved = {row: cluster for row, cluster in self.moves.items() if cluster >= 0}
        measured, most = copy(self.fit), None
        if moved:
            places = np.searchsorted(rows.index, np.array(sorted(moved)))
            to = np.array([moved[row] for row in sorted(moved)])
            groups = None if self.fit.groups is None else self.fit.groups[places]
            chances = self.kind.chances(model, take_rows(self.fit.X, places), groups)
            best = np.where(self.clusters == to[:, None], chances, -np.inf).argmax(axis=1)
            if self.standards.calibration is not None:
                where = self.templates[places]
                most = 1 - self.standards.calibration.apply(chances, where, self.clusters)[0]
                most[self.clusters[where] == to] = 1.0
            measured.model = copy(model)
            labels = _with(self.clustering.labels, places, best)
            adopt_clustering(measured.model, replace(self.clustering, labels=labels), model.engine_, model.divergence_)
        else:
            measured.model = model
        surprise = np.asarray(found.surprise).ravel()[rows.index].astype(np.float64)
        measures = self.kind.measured(measured, rows, self.standards, surprise, found.labels.size)
        if most is not None:
            sure = measures["confidence"]
            sure.flat[sorted(moved)] = np.minimum(sure.flat[sorted(moved)], most)
        return measures

    def result(self) -> Clusters:
        """The result that follows: measured, named and described anew."""
        found, model, numbering = self.found, self.model(), self.numbering
        assert found.fitted_rows is not None
        original = found if found.history is None else found.history.original
        self.report("Measuring confidence", None)
        fit = copy(self.fit)
        fit.model = model
        clusters = replace(
            found,
            model=model,
            **settled(self._measures(model), model.clusters_, self.standards, self.moves),
            names=numbering.names,
            standards=self.standards,
            fit=fit,
        )
        self.kind.describe(clusters, found.fitted_rows, fit, self.report)
        history = History(
            original,
            tuple(self.edits),
            frozenset(numbering.given),
            frozenset(numbering.made),
            dict(self.moves),
            tuple(self.notes),
        )
        notes = [note for note in original.notes if note not in left_out(original)]
        notes += [f"{so_many(len(self.edits), 'edit')} by hand.", *self.notes, *left_out(clusters)]
        clusters = replace(clusters, names=self._names(clusters), notes=notes, history=history)
        model.extra_ = found.model.extra_ | clusters.entries()
        return clusters

    def _names(self, clusters: Clusters) -> list[str]:
        """All names, those included that are made at the end. They differ from the others."""
        names, made = list(self.numbering.names), sorted(self.numbering.made)
        if made:
            found = self.kind.names(clusters, [number - self.first for number in made])
            taken = {name for number, name in enumerate(names, self.first) if number not in made}
            for place in (number - self.first for number in made):
                free = (found[place] if n == 1 else f"{found[place]} {n}" for n in count(1))
                names[place] = next(name for name in free if name not in taken)
                taken.add(names[place])
        return names


def _with(values: Any, places: Array, new: Array) -> Array:
    """A copy of an array with other values at some places."""
    changed = to_host(values).copy()
    changed[places] = new
    return changed


def edited(found: Clusters, edits: Iterable[Edit], progress: Progress | None = None) -> Clusters:
    """A result with edits, one after the other; refused as a whole if one of them is not possible."""
    draft = Draft(found, progress)
    for edit in edits:
        draft.apply(edit)
    return draft.result() if len(draft.edits) else found
