"""A table of counts, which every reader returns; and its clusters, the one result for every kind of data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from onmf import old_names
from onmf.backend import to_host
from onmf.confidence import Calibration
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF, adopt_clustering, is_integer
from onmf.hierarchy import merge_clusters
from onmf.io.files import whole_folder
from onmf.io.rules import require
from onmf.metrics import compare_classes
from onmf.naming import Namer, listed, so_many
from onmf.plot import distinct_colours, plot_confusion, plot_top_features
from onmf.plot import table as html_table
from onmf.select import Selection
from onmf.warn import import_optional

from .edits import read_edits
from .find import Hits, find
from .groups import composition, group_contributions
from .settle import Standards, sum_clusters
from .time import OverTime, clusters_over_time
from .write import MAPS, assignments, clusters_table, files_of, write_files, write_report

if TYPE_CHECKING:
    from .curate import History
    from .kind import Kind, Rows
    from .outcome import Updated
    from .votes import Fit

Progress = Callable[[str, float | None], None]
"""Called with the name of a step and the share of it that is done, None if that is not known."""


@dataclass(repr=False)
class Table:
    """Counts, with the names of their rows and features.

    Attributes
    ----------
    X : csr_array, ndarray or an object that reads rows
        Rows × features. What does not fit in memory is lazy: it has ``shape`` and ``dtype``, and reads slices of rows.
    rows, features : sequence of str
        Their names.
    classes : list or None
        Known class of each row, None where it is not known; None if there are no classes at all.
    groups : list or None
        Group of each row: the batch, source or scene that it is from; None if there are no groups.
    known : list or None
        Name of the cluster of each row that is known, None for free rows; None if no row is known.
    dates : array of datetime64 or None
        Date of each row, NaT where it is not known; None if there are no dates at all.
    source : str
        The file that was read, or empty.
    sources : tuple of str
        The files, if several were read.
    notes : list of str
        What was guessed, changed or left out.
    private : bool
        Whether a model must not keep any of the rows.
    """

    X: Any
    rows: Sequence[str]
    features: Sequence[str]
    classes: list[str | None] | None = None
    groups: list[str | None] | None = None
    dates: Any = None
    known: list[str | None] | None = None
    source: str = ""
    sources: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    private: bool = False

    @property
    def name(self) -> str:
        """Name of the file, or of several, or empty."""
        return ", ".join(Path(source).name for source in self.sources or (self.source,))

    @property
    def namings(self) -> list[Sequence[str]]:
        """The names of the features; if these are named in several ways, in each of them."""
        return [self.features]

    def with_features(self, columns: Array) -> Self:
        """The table with the names of some of its features; the counts stay as they are."""
        return replace(self, features=[self.features[j] for j in columns])

    def without_texts(self) -> Self:
        """The table without what may be private: texts, names of rows and files, and what was noted while reading.

        Rows are named by their number, from 1. Names of features, classes and groups stay, and so do dates.
        """
        return replace(
            self, rows=[str(i + 1) for i in range(len(self.rows))], source="", sources=(), notes=[], private=True
        )

    def __getattr__(self, name: str) -> Any:
        return old_names.attribute(self, name, old_names.TABLE_ATTRIBUTES)

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<{type(self).__name__} of {self.name or 'no file'}: {n:,} rows × {p:,} features>"


@dataclass(repr=False, eq=False)
class Clusters:
    """Clusters of the rows of a table.

    Clusters have numbers. Merging two or setting one aside leaves a gap, so that the others keep theirs. Lists by
    cluster are by number: a number without a cluster has the name "" and the size 0.

    Attributes
    ----------
    kind : Kind
        What the rows are.
    table : Table
        The rows that were clustered, with their names and known classes.
    model : ONMF
        The fitted model; its rows are those that took part.
    labels : (n,) array of int
        Number of the cluster of each row; -1 for rows that are unassigned.
    templates : (n,) array of int
        The centroid of the model that each row was assigned to, -1 for rows that took no part. Without edits these are
        the clusters, also of rows that are unassigned because they are unusual or not sure.
    scales : (n,) array
        Scale of each row; NaN for rows that are unassigned.
    margins : (n,) array
        How much worse the best other cluster is, per count; NaN for rows that are unassigned.
    confidence : (n,) array
        How often independent fits put this row with the rest of its cluster; it is not the chance of being right. NaN
        for rows that took no part, and if the model has no calibration.
    surprise : (n,) array
        How unusual the row is among rows of its cluster and size: the share of such rows that are as unusual. NaN for
        rows that took no part, and if the model does not know.
    runners_up : (n,) array of int
        The best other cluster of each row; -1 if there is none. Of a row that is left unassigned, the cluster that it
        would have.
    names : list of str
        A short name of each cluster.
    given : dict of int to str
        By what clusters were given, by their numbers: ``"seeds"``, ``"known rows"`` or both. The others were found.
    notes : list of str
        What a reader should know before trusting the clusters.
    standards : Standards
        How ``confidence`` and ``surprise`` follow from losses, and which rows they leave unassigned.
    selection : Selection or None
        How the number of clusters was chosen; None if it was given.
    how : str
        What the fit did, such as ``a vote of 24 runs``; empty for a single run.
    moved_without_smoothing : float or None
        Share of the rows that would be in another cluster without smoothing; None if there is none.
    missing : list of str
        Features of the model that new rows do not have, and that count as 0.
    namer : callable or None
        What names the clusters, if it is not their features; see :func:`onmf.door.cluster_table`.
    quick : bool
        Whether a quick run found the clusters, so that the report has a quick map.
    fit, fitted_rows : Fit and Rows, or None
        The fit, and the rows that took part in it as they were clustered; None for new rows.
    history : History or None
        What was edited by hand; None if nothing was.
    command : dict or None
        How the command was called that made the result; None if none did.
    updated : Updated or None
        What became of the clusters of a model that :meth:`update` gave new rows; None for other results.
    """

    kind: Kind
    table: Table
    model: ONMF
    labels: Array
    templates: Array
    scales: FloatArray
    margins: FloatArray
    confidence: FloatArray
    surprise: FloatArray
    runners_up: Array
    names: list[str] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    standards: Standards = field(default_factory=Standards)
    selection: Selection | None = None
    how: str = ""
    moved_without_smoothing: float | None = None
    missing: list[str] = field(default_factory=list)
    namer: Namer | None = None
    quick: bool = False
    fit: Fit | None = None
    fitted_rows: Rows | None = None
    history: History | None = None
    command: dict[str, Any] | None = None
    updated: Updated | None = None
    _sparse: Clusters | None = None  # in a dense result, the one with the true numbers

    @property
    def calibration(self) -> Calibration | None:
        """How ``confidence`` follows from losses; None for a model that does not say."""
        return self.standards.calibration

    @property
    def numbers(self) -> Array:
        """The numbers of the clusters that there are, rising."""
        return self.model.clustering_.numbers

    @property
    def n_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.numbers)

    @property
    def n_numbers(self) -> int:
        """How many numbers were given, also to clusters that are gone: the length of lists by number."""
        return max(len(self.names), int(self.numbers.max(initial=-1)) + 1)

    @property
    def shown_numbers(self) -> list[int]:
        """The numbers of the clusters in what people read, which may count from 1."""
        numbers = self.numbers if self._sparse is None else self._sparse.numbers
        return [int(number) + self.kind.first for number in numbers]

    @cached_property
    def dense(self) -> Self:
        """The same clusters numbered 0, 1, 2, … for tables and pages, which then have no gaps to care for."""
        numbers, k = self.numbers, self.n_numbers
        if len(numbers) == k:
            return self
        place = np.full(k + 1, -1, dtype=np.int32)  # that of -1 is the last one
        place[numbers] = np.arange(len(numbers))
        model, clusters = copy(self.model), self.model.clusters_
        adopt_clustering(
            model, replace(model.clustering_, clusters=place[clusters]), self.model.engine_, self.model.divergence_
        )
        return replace(
            self,
            model=model,
            labels=place[self.labels],
            runners_up=place[self.runners_up],
            names=[self.names[number] for number in numbers],
            updated=None if self.updated is None else self.updated.of(numbers),
            _sparse=self,
            **self._take(numbers),
        )

    @property
    def palette(self) -> list[str]:
        """A colour for each cluster in pages, by its number, so that it keeps its colour when others are merged."""
        shown = [number - self.kind.first for number in self.shown_numbers]
        every = distinct_colours(max(shown, default=-1) + 1)
        return [every[number] for number in shown]

    def _take(self, numbers: Array) -> dict[str, Any]:
        """Further attributes by number, of some of the numbers."""
        return {}

    @cached_property
    def run_id(self) -> str:
        """What tells this result from others: a digest of the labels and the names."""
        if self._sparse is not None:
            return self._sparse.run_id
        digest = sha256(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        digest.update(json.dumps(self.names).encode())
        return digest.hexdigest()[:16]

    @cached_property
    def sizes(self) -> Array:
        """Number of rows in each cluster."""
        return np.bincount(self.labels[self.labels >= 0].ravel(), minlength=self.n_numbers)

    def finding(self, unions: Array | None = None) -> FloatArray:
        """How real clusters are: the share of halves of the rows, clustered by themselves, that find each of them.

        NaN if the number of clusters was given, not chosen: nothing was halved then. NaN also if there are no clusters.

        Parameters
        ----------
        unions : (m, numbers) array of bool, optional
            Which clusters belong to each of some unions; by default each cluster by itself.
        """
        sets = np.eye(self.n_numbers, dtype=bool) if unions is None else unions
        if self.selection is None or not self.selection.levels:
            return np.full(len(sets), np.nan)
        return self.selection.finding(self.labels[self.templates >= 0], sets)

    @property
    def unassigned(self) -> list[str]:
        """Names of the rows that have no cluster."""
        return [str(self.table.rows[int(i)]) for i in np.flatnonzero(self.labels.ravel() < 0)]

    @property
    def features(self) -> Sequence[str]:
        """Names of the features that the model was fitted on."""
        return self.table.features

    @cached_property
    def counts(self) -> Any:
        """The rows of the table that took part, in their order: in memory, or in blocks on disk."""
        X = self.table.X
        return X if hasattr(X, "block") else X[np.flatnonzero(self.templates >= 0)]

    @cached_property
    def comparison(self) -> Any:
        """The clusters compared with the known classes; None if there are none."""
        classes = self.table.classes
        return None if classes is None else compare_classes(classes, self.labels, self.numbers)

    @property
    def groups(self) -> list[str]:
        """Names of the groups that the model was fitted with; empty if it has none."""
        return [] if self.model.group_effects_ is None else [str(name) for name in self.model.groups_]

    @cached_property
    def group_codes(self) -> Array:
        """The place of each row's group in ``groups``; -1 for one that the model does not know. → (n,)"""
        place = {name: b for b, name in enumerate(self.groups)}
        return np.array([place.get(name or "", -1) for name in self.table.groups or []], dtype=np.int64)

    @cached_property
    def composition(self) -> Array:
        """Number of rows of each group in each cluster. → (numbers, groups)"""
        return composition(self)

    def group_features(self, n: int = 10) -> dict[str, dict[str, float]]:
        """For each group the features that set it apart from the others, and the factors by which it multiplies them.

        A factor above 1 says that the group has more of the feature than the clusters of its rows explain, one below 1
        that it has less. The most telling features come first: frequent ones, whose factors are far from 1.
        """
        if not self.groups:
            return {}
        weights, effects = group_contributions(self.model), to_host(self.model.group_effects_)
        return {
            group: {
                str(self.features[j]): float(effects[b, j])
                for j in np.argsort(-weights[b], kind="stable")[:n]
                if weights[b, j] > 0
            }
            for b, group in enumerate(self.groups)
        }

    @cached_property
    def over_time(self) -> OverTime | None:
        """The clusters over time, and the features that rose and fell; None without dates."""
        return clusters_over_time(self)

    @property
    def fitted(self) -> str:
        """What the fit did, for people to read: who voted, or how many iterations a run took."""
        ended = self.model.stop_reason_.replace("max_iter", "not converged")
        return self.how or f"{so_many(self.model.n_iter_, 'iteration')}, {ended}"

    def most_likely(self, n: int = 3) -> tuple[Array, FloatArray]:
        """The n most likely clusters of each row, the best first, and their probabilities.

        The probabilities of all clusters of a row add up to 1. They follow from how much worse other clusters fit, at a
        temperature that independent fits gave. The confidence also takes into account how often such fits find the
        cluster. The probabilities of clusters that were merged are added, so that the best cluster can be another than
        the row's own, which has the best centroid.

        Parameters
        ----------
        n : int, default=3
            How many clusters, or all if there are fewer.

        Returns
        -------
        clusters : (rows, n) array of int
            Their numbers; -1 for rows that took no part. For an image, the first axis is (lines, samples).
        probabilities : (rows, n) array
            Their probabilities; NaN for rows that took no part.
        """
        best, probabilities = self.kind.most_likely(self, n)
        shape = (*self.templates.shape, -1)
        return best.reshape(shape), probabilities.reshape(shape)

    def distinctive(self, n: int = 10) -> list[dict[str, float]]:
        """The features that set each cluster apart from all rows, with their weights."""
        found = self.model.top_features(n, self.features)
        return found + [{}] * (self.n_numbers - len(found))

    def frequent(self, n: int = 10) -> list[list[str]]:
        """The most frequent features of each cluster."""
        found: list[list[str]] = [[] for _ in range(self.n_numbers)]
        for number, c, _ in zip(*self.model.clustering_.by_cluster(), strict=True):
            found[number] = [str(self.features[j]) for j in np.argsort(-c, kind="stable")[:n] if c[j] > 0]
        return found

    def find(self, query: str, n: int = 10) -> Hits:
        """Find clusters and rows by their features, such as documents by words, or cells by genes.

        Parameters
        ----------
        query : str
            One or more words, which are counted as those of the rows: ``"shortest path"``. Each stands for the feature
            of this name, or if there is none, for those that begin like it. For an image, ``"band 12"`` or
            ``"640-680 nm"``.
        n : int, default=10
            The most clusters, and the most rows, to return.

        Returns
        -------
        Hits
            The clusters that are named so, then those that have the features, the most first; and the best rows.
        """
        return find(self, query, n)

    def typical(self, cluster: int, n: int = 5) -> Array:
        """The rows of a cluster with the largest margins."""
        return self._by_margin(cluster)[::-1][:n]

    def doubtful(self, cluster: int, n: int = 5) -> Array:
        """The rows of a cluster with the smallest margins."""
        return self._by_margin(cluster)[:n]

    def _by_margin(self, cluster: int) -> Array:
        inside = np.flatnonzero(self.labels == cluster)
        return inside[np.argsort(self.margins.ravel()[inside], kind="stable")]

    def entries(self) -> dict[str, Any]:
        """What the model file has besides the model."""
        return {"kind": self.kind.name, "names": self.names, **self.standards.parts(), **self.kind.entries(self)}

    @property
    def edits(self) -> list[dict[str, Any]]:
        """What was edited by hand, as ``edits.json`` has it: with the numbers that people read."""
        return [] if self.history is None else list(self.history.edits)

    def edit(
        self, edits: str | os.PathLike[str] | Sequence[Mapping[str, Any]], *, progress: Progress | None = None
    ) -> Self:
        """Apply several edits, one after the other, or none of them if one is not possible.

        Parameters
        ----------
        edits : path, or sequence of dict
            A file ``edits.json`` that was made for this result, or edits in its form, with the numbers that people
            read: ``{"merge": [3, 8]}``, ``{"split": 5, "into": 3}``, ``{"rename": {"2": "space"}}``, ``{"set aside":
            [9]}`` or ``{"move": ["a.txt"], "to": 4}``.
        progress : callable, optional
            Called with the name of a step and the share of it that is done.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        from .curate import edited

        if isinstance(edits, str | os.PathLike):
            run, edits = read_edits(os.fspath(edits), self.kind.name)
            require(run == self.run_id, f"The edits were made for the run {run}, and this one is {self.run_id}.")
        plain = json.loads(json.dumps(list(edits), default=int))  # numbers of NumPy, too, as the file has them
        found: Any = edited(self._sparse or self, plain, progress)
        return cast(Self, found)

    def merge(self, *clusters: int) -> Self:
        """Merge clusters under the smallest of their numbers. No score changes.

        The rows then have the confidence, the margin and the runner-up that follow from the other clusters. The name
        is made anew, unless one of the clusters was given one by :meth:`rename`.

        Parameters
        ----------
        *clusters : int
            Their numbers, as in ``labels``.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        return self.edit([{"merge": self._as_shown(*clusters)}])

    def merge_to(self, n_clusters: int) -> Self:
        """Merge clusters until so many are left: always the two whose merge costs least, as in the report.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        k, dense = self.n_clusters, self.dense
        require(1 <= n_clusters <= k, f"n_clusters={n_clusters} is not allowed: there are {so_many(k, 'cluster')}.")
        owners = merge_clusters(dense.cluster_sums).labels(n_clusters)
        groups = [np.flatnonzero(owners == owner).tolist() for owner in range(n_clusters)]
        return self.edit([{"merge": [dense.shown_numbers[k] for k in group]} for group in groups if len(group) > 1])

    def split(self, cluster: int, parts: int = 2, *, progress: Progress | None = None) -> Self:
        """Split a cluster: its rows are clustered by themselves, as all of them were. The other clusters stay.

        The largest part keeps the number; the others get numbers that no cluster ever had. Rows of other clusters that
        are closer to one of the parts than to their own cluster join it, as ``predict`` would put them there.

        Parameters
        ----------
        cluster : int
            Its number, as in ``labels``.
        parts : int, default=2
            Number of parts.
        progress : callable, optional
            Called with the name of a step and the share of it that is done.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        return self.edit([{"split": self._as_shown(cluster)[0], "into": parts}], progress=progress)

    def rename(self, names: Mapping[int, str]) -> Self:
        """Give clusters other names, by their numbers as in ``labels``.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        return self.edit([{"rename": dict(zip(map(str, self._as_shown(*names)), names.values(), strict=True))}])

    def set_aside(self, *clusters: int) -> Self:
        """Leave the rows of clusters unassigned, such as those of a cluster of junk, and new rows like them.

        Parameters
        ----------
        *clusters : int
            Their numbers, as in ``labels``.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        return self.edit([{"set aside": self._as_shown(*clusters)}])

    def move(self, rows: int | str | Sequence[int | str], to: int | None) -> Self:
        """Move rows to another cluster, whatever the model says. No template changes, and ``predict`` ignores it.

        Parameters
        ----------
        rows : int, str, or a sequence of them
            Places in the table, or names.
        to : int or None
            The number of the cluster, as in ``labels``; None leaves the rows unassigned.

        Returns
        -------
        Clusters
            A new result; this one stays as it is.
        """
        several = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str) else [rows]
        for row in several:
            there = isinstance(row, str) or (is_integer(row) and 0 <= row < self.labels.size)
            require(there, f"There is no {self.kind.row} at place {row!r}: places are 0 to {self.labels.size - 1}.")
        names = [row if isinstance(row, str) else str(self.table.rows[int(row)]) for row in several]
        return self.edit([{"move": names, "to": None if to is None else self._as_shown(to)[0]}])

    def undo(self, edits: int = 1) -> Self:
        """The result without its last edits: the very numbers that it had before.

        Returns
        -------
        Clusters
        """
        n = len(self.edits)
        require(1 <= edits <= n, f"{so_many(n, 'edit')} can be undone, not {edits}.")
        assert self.history is not None
        return cast(Self, self.history.original).edit(self.edits[:-edits])

    def _as_shown(self, *clusters: int) -> list[int]:
        for number in clusters:
            there = is_integer(number) and number in self.numbers
            require(there, f"There is no cluster {number!r}: those in labels are {listed(self.numbers.tolist())}.")
        return [int(number) + self.kind.first for number in clusters]

    @cached_property
    def cluster_sums(self) -> FloatArray:
        """The sum of the counts of each cluster. → (numbers, features)"""
        return sum_clusters(self.counts, self.labels[self.templates >= 0], self.n_numbers)

    def predict(self, table: Table, /, **options: Any) -> Clusters:
        """Assign the rows of another table to these clusters, with the options of :func:`onmf.door.predict_table`."""
        from .run import predict_table

        return predict_table(self.model, table, **options)

    def update(self, table: Table, /, **options: Any) -> Clusters:
        """Assign new rows, find new clusters among them, and learn; see :func:`onmf.door.update_table`.

        Clusters keep their numbers and names, and new ones get numbers that no cluster ever had.

        Parameters
        ----------
        table : Table
            New rows, such as those of this month.
        **options
            Those of :func:`onmf.door.update_table`.

        Returns
        -------
        Clusters
            The clusters of the new rows, with the ``model`` that has learnt from them; this result stays as it is.
        """
        from .update import update_table

        return update_table(self.model, table, kind=self.kind, **options)

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame: the columns of ``assignments.csv``.

        Clusters have the numbers of the files and the report. Rows that are unassigned have none.

        Returns
        -------
        pandas.DataFrame
        """
        pd = import_optional("pandas", "to_frame needs pandas", "table")
        frame = pd.concat(map(pd.DataFrame, assignments(self)), ignore_index=True)
        return frame.astype({"cluster": "Int64", "runner_up": "Int64", "scale": "float64", "margin": "float64"})

    def complete(self) -> None:
        """Find what only files and the report need, before they are written. By default, nothing."""

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        force: bool = False,
        report: bool = True,
        title: str | None = None,
        map: str | None = None,
        format: str = "csv",
        progress: Progress | None = None,
    ) -> Path:
        """Write tables, the model, a summary and the report into a folder, all of them or none.

        Parameters
        ----------
        folder : path
            The folder; it must not exist, or be empty.
        force : bool, default=False
            Whether to replace a folder that an earlier call wrote and that contains nothing else.
        report : bool, default=True
            Whether to write ``report.html``.
        title : str, optional
            Title of the report.
        map : {"full", "quick", "none"}, optional
            The map of the report, as :meth:`report` says.
        format : {"csv", "parquet"}, default="csv"
            Format of the tables.
        progress : callable, optional
            Called with the name of a step and the share of it that is done.

        Returns
        -------
        Path
            The folder.
        """
        if os.fspath(folder).endswith(".onmf"):
            return old_names.save_model(self, Path(folder))
        with whole_folder(Path(folder), force=force, ours=files_of(self.kind)) as new:
            write_files(self, new, report=report, title=title, map=map, format=format, progress=progress)
        return Path(folder)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        map: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Write the report: one HTML file that works offline, written completely or not at all.

        Parameters
        ----------
        path : path
            The file.
        title : str, optional
            Title of the page.
        map : {"full", "quick", "none"}, optional
            How the map of the rows is drawn: ``quick`` places a sample of them by t-SNE, and the others beside their
            nearest neighbours. By default ``quick`` if the clusters are from a quick run, else ``full``.
        progress : callable, optional
            Called with the name of a step and the share of it that is done.
        """
        write_report(self, Path(path), title, map, progress)

    def map_to_draw(self, map: str | None) -> str:
        """How the map of the report is drawn, if this was asked for."""
        if map not in (None, *MAPS):
            raise ValueError(f"map={map!r} is not known: use one of {', '.join(repr(name) for name in MAPS)}.")
        return map or ("quick" if self.quick else "full")

    def plot_features(self, n: int = 6, *, columns: int = 5) -> Any:
        """Draw the distinctive features of each cluster; see :func:`onmf.plot.plot_top_features`."""
        found = self.dense
        titles = [f"{title} ({size:,})" for title, size in zip(found._titles(), found.sizes, strict=True)]
        return plot_top_features(found.model, n, feature_names=list(self.features), titles=titles, columns=columns)

    def plot_classes(self, ax: Any = None) -> Any:
        """Draw the known classes against the clusters; see :func:`onmf.plot.plot_confusion`."""
        known, labels = enumerate(self.table.classes or ()), self.dense.labels.ravel()
        both = {i: label for i, label in known if label is not None and labels[i] >= 0}
        if not both:
            raise ValueError(f"The {self.kind.rows_of(2)} have no classes: read them with {self.kind.known_by}=.")
        return plot_confusion(list(both.values()), labels[list(both)], names=self.dense._titles(), ax=ax)

    def _titles(self) -> list[str]:
        numbered = zip(self.shown_numbers, self.names, strict=True)
        return [f"{number}: {name.split(', ')[0]}" for number, name in numbered]

    def __repr__(self) -> str:
        of = f" of {self.table.name}" if self.table.name else ""
        return f"<{type(self).__name__}{of}: {self.kind.headline(self)}, {so_many(self.n_clusters, 'cluster')}>"

    def _repr_html_(self) -> str:
        shown = dict(islice(clusters_table(self).items(), 4))
        return html_table(repr(self).strip("<>"), list(shown), zip(*shown.values(), strict=True), self.dense.colours())

    def colours(self) -> Sequence[str]:
        """A colour for each cluster, if the kind has a map of them."""
        return ()

    def __getattr__(self, name: str) -> Any:
        return old_names.attribute(self, name)
