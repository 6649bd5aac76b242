"""A kind of data: what is special about documents, images, cells or tables. All else is the same for all of them.

A kind is a folder with a subclass of :class:`Kind`, and an entry in :data:`onmf.kinds.KINDS`. It says what its rows and
features are called, which options its command has besides the shared ones, how its files are read, which of their rows
are clustered and how, how a cluster is named, and what is written besides the shared files.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import to_host
from onmf.confidence import confidence_of, evenly_spaced, log_chances
from onmf.divergence import Array, FloatArray, KullbackLeibler
from onmf.estimator import ONMF, new_rows
from onmf.fit.describe import labels_scales_and_margins
from onmf.io.rules import Rule, optional, require, some_names, strings
from onmf.naming import CANDIDATES, names_by, names_from_features, number_by_size, so_many, telling_features
from onmf.select import Range, Selection, select_n_clusters

from .clusters import Clusters, Progress, Table
from .find import features_of_words, words_of
from .groups import IGNORED, groups_of_new, rows_of_new_groups
from .join import join_tables, names_of_files
from .known import Given, check_seeds, columns_of_seeds, fit_given, read_seeds
from .memory import check_memory
from .settle import BATCH, Standards, batches, margins_by_chances, standards_rules, surprise_in, take_rows
from .votes import Fit as Fit
from .votes import Views, fit_by_vote, fit_plainly, fit_with_groups

READING, CLUSTERING, OUTPUT = "Reading", "Clustering", "Output"  # Groups of options in the help of a command
MEASURES = ("templates", "scales", "margins", "confidence", "runners_up", "surprise")  # What a result says of each row


@dataclass(frozen=True)
class Option:
    """An option of a command that only one kind has, or that a kind words in its own way."""

    name: str  #: of the parameter; the option is ``--name``, unless ``flags`` says otherwise
    help: str  #: what it does, for the help
    type: Any = str | None  #: of its value
    default: Any = None  #: of its value
    metavar: str | None = None  #: what stands for the value in the help
    group: str = READING  #: heading under which the help lists it
    flags: tuple[str, ...] = ()  #: other names of the option, as in ``("--blocks/--in-memory",)``
    parse: Callable[[Any], Any] | None = None  #: makes the value from the text; a ValueError is shown with the option
    least: float | None = None  #: the smallest value that is allowed
    reading: bool = False  #: whether it is about reading, and not about clustering
    choices: tuple[str, ...] = ()  #: the values that are allowed; any if empty

    @property
    def is_path(self) -> bool:
        """Whether the value is a path."""
        return self.type in (Path, Path | None)

    @property
    def flag(self) -> str:
        """What is typed, as messages name it."""
        return self.flags[0] if self.flags else f"--{self.name.replace('_', '-')}"


GROUPS = Option(
    "groups",
    "The batch or source of each row: a column, or FILE.csv:COLUMN. Clusters then do not follow it.",
    metavar="COLUMN",
    flags=("--group",),
    reading=True,
)


KNOWN = Option(
    "known",
    "The name of the cluster of each row that is known, empty for the others: a column, or for counts FILE.csv:COLUMN. "
    "Known rows stay there, and -k may be larger than the number of their clusters.",
    metavar="COLUMN",
    reading=True,
)
SEEDS = Option(
    "seeds",
    'A file with features that clusters should have: {"space": ["nasa", "orbit"]}, or their weights by feature.',
    Path | None,
    None,
    "FILE",
    CLUSTERING,
    parse=read_seeds,
)


@dataclass
class Rows:
    """The rows of a table that are clustered; the others stay unassigned."""

    X: Any  # an array, a sparse array or lazy rows
    index: Array  # their places in the table
    notes: list[str] = field(default_factory=list)  # what was left out, and why
    engine: Any = None  # for rows that do not fit in memory
    groups: Array | None = None  # their groups, if there are several
    given: Given | None = None  # the clusters of which something is known, if there are any


class Kind:
    """A kind of data. This class is complete for rows of counts with named features; subclasses say what differs."""

    name = "matrix"  #: in model files
    command: str | None = None  #: the name of its command; None if it has none
    about = ""  #: what the command does, for its help
    examples: tuple[str, ...] = ()  #: arguments of the command, for its help
    argument = "PATH"  #: what the help calls the file
    argument_help = ""  #: what it is, for the help
    row, feature, cluster = "row", "feature", "cluster"  #: what one of them is called
    known_by = "labels"  #: the parameter that reads known classes
    several = False  #: whether its command takes several files
    first = 0  #: number of the first cluster in what people read; in Python clusters count from 0
    rows_to_choose: int = 16_000  #: rows, at most, on which the number of clusters is chosen
    views: Views | None = None  #: ways to weigh the rows, whose runs vote together; None for the counts alone
    options: tuple[Option, ...] = ()  #: of its command, besides the shared ones
    not_in_predict: tuple[str, ...] = ()  #: options about reading that ``onmf predict`` does not have
    without: tuple[str, ...] = ()  #: shared options that mean nothing for this kind
    files: tuple[str, ...] = ()  #: names of the files that it writes besides the shared ones
    listed: tuple[str, ...] = ()  #: those of ``files`` that the help of the command names; all if empty
    packages: Mapping[str, str] = {}  #: packages that writing needs, each with the extra of onmf that installs it
    report_packages: Mapping[str, str] = {"jinja2": "report"}  #: the same for the report
    found_elsewhere = ""  #: why rows are not searched for features, as a sentence; empty if they are
    map_packages: Mapping[str, str] = {}  #: the same for the map in it
    assignments = True  #: whether the rows are written as a table
    shown: tuple[str, ...] = ("distinctive",)  #: columns of the table of clusters that the terminal shows, too
    smoothing = 1e-3  #: the default
    page = "onmf.report.rows:rows_page"  #: the function that makes the report, as ``module:name``
    result: type[Clusters] = Clusters  #: the class of its results

    @property
    def predict_options(self) -> dict[str, Option]:
        """Options about reading that ``onmf predict`` has, too, by their names."""
        return {
            each.name: each
            for each in self.options
            if each.reading and each.name not in (*self.not_in_predict, KNOWN.name)
        }

    # Model files. ``extra`` stands for the entries that a file has besides the model itself.

    def rules(self, k: int, p: int) -> dict[str, Rule]:
        """A rule for each entry of ``extra``, for k clusters and p features. Entries without a rule are not checked."""
        return {"names": optional(strings()), "features": optional(strings(p)), **standards_rules(k, p)}

    def check(self, extra: Mapping[str, Any]) -> None:
        """Refuse entries that contradict each other."""
        check_memory(extra)

    def feature_names(self, extra: Mapping[str, Any]) -> Sequence[str] | None:
        """Names of the features of a model; None if they have none."""
        return extra.get("features")

    def namings_of(self, extra: Mapping[str, Any]) -> list[Sequence[str]]:
        """The names of the features of a model, in each way of naming them."""
        names = self.feature_names(extra)
        require(names is not None, "The features of this model have no names, so nothing can be searched for.")
        return [names or []]

    def terms(self, query: str, model: ONMF, table: Table | None) -> dict[str, list[int]]:
        """For each word of a query the features of a model that it stands for; none for a word that is unknown.

        ``table`` is that of a result, if there is one.
        """
        return features_of_words(query, words_of(query), self.namings_of(model.extra_))

    def entries(self, clusters: Clusters) -> dict[str, Any]:
        """What the file of a model has besides the model and the names of its clusters."""
        return {"features": list(clusters.features)}

    def extended(self, extra: Mapping[str, Any], profiles: FloatArray) -> dict[str, Any]:
        """The entries of a model file when there are new centroids, too; ``profiles`` are these, of sum 1 (new, p)."""
        return dict(extra)

    def distinctive(self, model: ONMF, n: int) -> list[str]:
        """What sets each cluster apart, as a line of text."""
        return [", ".join(top) for top in model.top_features(n, self.feature_names(model.extra_))]

    # From a file to rows

    def check_options(
        self, options: Mapping[str, Any], out: Path | None, n_clusters: int | str, parameters: Mapping[str, Any]
    ) -> None:
        """Refuse options of the command that contradict each other, before anything is read."""

    def read(self, path: str | Path, progress: Progress, **options: Any) -> Table:
        """Read a file, with the options of the command."""
        raise ValueError(f"There is no reader for a model of kind {self.name!r}.")

    def read_all(self, paths: Any, progress: Progress, **options: Any) -> Table:
        """Read a file, or several, each of which is a group unless it has groups of its own."""
        several = list(paths) if isinstance(paths, list | tuple) else [paths]
        if len(several) == 1:
            return self.read(several[0], progress, **options)
        names_of_files(several)  # refuses one that is named twice
        return self.join([self.read(path, progress, **options) for path in several], several)

    def join(self, tables: Sequence[Table], paths: Sequence[str | Path]) -> Table:
        """Several files as one table: each is a group, unless it has groups of its own."""
        return join_tables(tables, paths, self.feature)

    def read_new(self, model: ONMF, path: str | Path, progress: Progress, **options: Any) -> Table:
        """Read new rows for a model."""
        return self.read(path, progress, **options)

    def prepare(self, table: Table, parameters: dict[str, Any], progress: Progress, **options: Any) -> Rows:
        """The rows to cluster: those that are not zero everywhere."""
        X = csr_array(table.X)
        filled = np.flatnonzero(X.sum(axis=1))
        notes = self.unassigned(table, np.setdiff1d(np.arange(X.shape[0]), filled), "any counts")
        return Rows(X[filled] if notes else X, filled, notes)

    def unassigned(self, table: Table, index: Array, what: str) -> list[str]:
        """A note on rows that get no cluster, because they lack something; none if there are no such rows."""
        names = [str(table.rows[int(i)]) for i in index]
        return [f"{self.so_many(len(names))} without {what}, unassigned: {some_names(names)}."] if names else []

    def match(self, model: ONMF, table: Table) -> tuple[Any, list[str]]:
        """The features of a model in a table of new rows: an object that gives slices of rows, and notes."""
        names = self.feature_names(getattr(model, "extra_", {}))
        if names is None or list(names) == list(table.features):
            return csr_array(table.X), []
        return match_features(table, [names], self)

    def check_seeds(self, seeds: Any) -> Mapping[str, Any]:
        """What clusters should have, by their names; refused if it is in another form."""
        return check_seeds(seeds)

    def seeds_in(
        self, table: Table, rows: Rows, seeds: Mapping[str, Any]
    ) -> tuple[dict[str, dict[Any, float]], list[str]]:
        """The weights of seeds by the columns of the rows that are clustered; and notes on those that are left out."""
        return columns_of_seeds(self, rows, seeds, {str(name): j for j, name in enumerate(table.features)}.get)

    # From rows to clusters

    def choose(
        self, rows: Rows, span: Range, parameters: Mapping[str, Any], progress: Callable[[float], None]
    ) -> Selection:
        """Choose the number of clusters, on some rows if there are many."""
        n = rows.X.shape[0]
        require(n >= 4, f"{self.so_many(n)} are too few to choose n_clusters: give a number.")
        some = evenly_spaced(n, self.rows_to_choose)
        known = ("beta_loss", "random_state", "n_threads")
        selection = select_n_clusters(
            self.rows_to_cluster(rows, some),
            groups=None if rows.groups is None else rows.groups[some],
            smoothing=parameters.get("smoothing", self.smoothing),
            progress=progress,
            **{name: parameters[name] for name in known if name in parameters},
            **{name: value for name, value in span._asdict().items() if value is not None},
        )
        return replace(selection, rows=some[selection.rows], n_total=n)

    def rows_to_cluster(self, rows: Rows, some: Array) -> Any:
        """Some of the rows, as the fit clusters them."""
        return take_rows(rows.X, some)

    def fit(
        self,
        rows: Rows,
        n_clusters: int,
        parameters: dict[str, Any],
        progress: Callable[[float], None],
        announce: Callable[[str], None],
    ) -> Fit:
        """Cluster the rows: by a vote of many runs, unless the parameters or the size of the data say otherwise."""
        X, engine, groups = rows.X, rows.engine, rows.groups
        if rows.given is not None:
            return fit_given(X, n_clusters, parameters, rows.given, groups, engine)

        def plain() -> Fit:
            if engine is None:
                say = announce if groups is None else (lambda sentence: None)
                return fit_by_vote(X, n_clusters, parameters, progress, say, self.views)
            return fit_plainly(X, n_clusters, parameters, engine)  # a vote needs all rows in memory

        fit = plain() if groups is None else fit_with_groups(X, n_clusters, parameters, groups, plain, engine)
        number_by_size(fit.model, X, engine)
        return fit

    def fit_part(
        self, fit: Fit, X: Any, groups: Array | None, n_clusters: int, progress: Callable[[float], None]
    ) -> Fit:
        """Cluster some of the rows of a fit, in memory, as it clustered all of them."""
        rows = Rows(X, np.arange(X.shape[0]), groups=groups)
        return Kind.fit(self, rows, n_clusters, part_parameters(fit), progress, lambda sentence: None)

    def new_groups(self, model: ONMF, table: Table) -> Iterator[tuple[str, Any]]:
        """The groups of new rows that a model does not know, and their rows, with the features of the model."""
        return rows_of_new_groups(model, table, self.match(model, table)[0], self)

    def rule(self, model: ONMF) -> Callable[[Any], FloatArray] | None:
        """The rule by which rows are assigned, if it is not the losses of the model.

        It takes rows in memory, and returns log-probabilities of the centroids, up to a number for each row (n, k).
        """
        return None

    def chances(self, model: ONMF, X: Any, groups: Any = None) -> FloatArray:
        """Log-probabilities of the centroids for rows in memory, up to a number for each row. → (n, k)"""
        rule = self.rule(model)
        return log_chances(model, X, groups) if rule is None else rule(X)

    def judge(
        self, model: ONMF, X: Any, standards: Standards, groups: Any = None, templates: Array | None = None
    ) -> tuple[Array, ...]:
        """Template, scale, margin, confidence and runner-up of rows in memory. → 5 × (n,)

        The template of a row is the number of its centroid, which the rule decides unless it is known.
        """
        clusters = model.clusters_
        chances = None if self.rule(model) is None else self.chances(model, X, groups)
        if chances is not None and templates is None:
            templates = chances.argmax(axis=1).astype(np.int32)
        data, centroids = new_rows(model, X, groups=groups)
        found = data.map_rows(labels_scales_and_margins, centroids, clusters, labels=templates)
        templates, scales, margins = map(to_host, found)
        assert templates is not None
        if chances is not None:
            margins = margins_by_chances(chances, templates, clusters) / np.asarray(X.sum(axis=1)).ravel()
        if standards.calibration is None:
            return templates, scales, margins, np.full(X.shape[0], np.nan), np.full(X.shape[0], -1, dtype=np.int32)
        chances = self.chances(model, X, groups) if chances is None else chances
        return templates, scales, margins, *standards.calibration.apply(chances, templates, clusters)

    def most_likely(self, clusters: Clusters, n: int) -> tuple[Array, FloatArray]:
        """The n most likely clusters of each row, and their probabilities; see :meth:`Clusters.most_likely`."""
        model, calibration, numbers = clusters.model, clusters.calibration, clusters.numbers
        require(calibration is not None, "The model is of a version that knew no probabilities: fit it anew.")
        require(n >= 1, f"n={n} is not allowed: ask for at least one cluster of each {self.row}.")
        assert calibration is not None
        n, templates = min(n, len(numbers)), clusters.templates.ravel()
        X, places, groups = self.rows_of_result(clusters)
        best, probabilities = np.full((len(templates), n), -1, dtype=np.int32), np.full((len(templates), n), np.nan)
        for start, batch in batches(X):
            at = places[start : start + batch.shape[0]]
            inside = np.flatnonzero(templates[at] >= 0)
            if not len(inside):
                continue
            own = None if groups is None else groups[start : start + batch.shape[0]][inside]
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=IGNORED)
                shares = calibration.probabilities(self.chances(model, batch[inside], own), model.clusters_)[:, numbers]
            order = np.argsort(-shares, axis=1, kind="stable")[:, :n]
            best[at[inside]], probabilities[at[inside]] = numbers[order], np.take_along_axis(shares, order, axis=1)
        return best, probabilities

    def rows_of_result(self, clusters: Clusters) -> tuple[Any, Array, Array | None]:
        """The rows of a result as its model takes them, their places in the table, and their groups."""
        if clusters.fit is not None and clusters.fitted_rows is not None:
            return clusters.fit.X, clusters.fitted_rows.index, clusters.fit.groups
        X, _ = self.match(clusters.model, clusters.table)
        return X, np.arange(X.shape[0]), groups_of_new(clusters.model, clusters.table, self)[0]

    def measured(self, fit: Fit, rows: Rows, standards: Standards, surprise: FloatArray, n: int) -> dict[str, Any]:
        """The same for each of the n rows of the table, and how unusual it is, from a fit of some of them."""
        model, found = fit.model, []
        templates = to_host(model.clustering_.labels)
        if model.clusters_ is None and self.rule(model) is None:
            assert standards.calibration is not None, "a fit has one"
            sure = confidence_of(model, fit.X, templates, standards.calibration, fit.groups)
            found = [templates, to_host(model.scales_), to_host(model.margins_), *sure]
        else:
            for start, batch in batches(fit.X):
                at = slice(start, start + batch.shape[0])
                own = None if fit.groups is None else fit.groups[at]
                found.append(self.judge(model, batch, standards, own, templates[at]))
            found = [np.concatenate(each) for each in zip(*found, strict=True)]
        return {
            name: spread_out(values, rows.index, n) for name, values in zip(MEASURES, [*found, surprise], strict=True)
        }

    def assigned(
        self, model: ONMF, table: Table, standards: Standards, progress: Progress
    ) -> tuple[dict[str, Any], list[str]]:
        """The same for new rows, and how unusual each is; and notes."""
        X, notes = self.match(model, table)
        n = X.shape[0]
        groups, about_groups = groups_of_new(model, table, self)
        notes += about_groups
        templates, following = np.full((2, n), -1, dtype=np.int32)
        scales, margins, sure, surprise = np.full((4, n), np.nan)
        for start in range(0, n, BATCH):
            batch = X[start : start + BATCH]
            filled = np.flatnonzero(batch.sum(axis=1))
            if len(filled):
                values, at = batch[filled], start + filled
                own = None if groups is None else groups[at]
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=IGNORED)
                    judged = self.judge(model, values, standards, own)
                templates[at], scales[at], margins[at], sure[at], following[at] = judged
                surprise[at] = surprise_in(model, values, standards.usual, own)
            progress("Assigning", min(start + BATCH, n) / n)
        notes += self.unassigned(table, np.flatnonzero(templates < 0), f"any of the model's {self.feature}s")
        if groups is not None and table.groups is None and groups.any():
            table = replace(table, groups=groups.tolist())
        measures = (templates, scales, margins, sure, following, surprise)
        found: dict[str, Any] = dict(zip(MEASURES, measures, strict=True))
        found["table"] = table
        if isinstance(X, Columns):
            found["missing"] = X.missing
            if X.transform is None:  # the counts and features of the result are those of the model
                found["table"] = replace(table, X=X[:], features=self.feature_names(model.extra_) or [])
        return found, notes

    def describe(self, clusters: Clusters, rows: Rows, fit: Fit, progress: Progress) -> None:
        """Add what only this kind knows about its clusters, in place, before they are named."""

    def names(self, clusters: Clusters, some: Sequence[int] | None = None) -> list[str]:
        """Short names by number, of all clusters or of some, the others empty: by the namer of the result if any."""
        some = clusters.numbers.tolist() if some is None else some
        if clusters.namer is None:
            names = dict(enumerate(self.own_names(clusters)))
        else:
            telling = self.telling(clusters)
            what = {
                number: (telling[number], [self.text_of(clusters, int(row)) for row in clusters.typical(number)])
                for number in some
            }
            names = names_by(clusters.namer, what, self.first)
        return [names[number] if number in some else "" for number in range(clusters.n_numbers)]

    def own_names(self, clusters: Clusters) -> list[str]:
        """A short name of each cluster, from what tells it from the others."""
        return names_from_features(telling_features(clusters.model, CANDIDATES, clusters.features), first=self.first)

    def telling(self, clusters: Clusters) -> list[list[str]]:
        """Features that tell each cluster from the others, the best first: what a namer gets."""
        return [list(top) for top in telling_features(clusters.model, CANDIDATES, clusters.features)]

    def text_of(self, clusters: Clusters, row: int) -> str:
        """A row as text: what a namer gets, by default its name."""
        return str(clusters.table.rows[row])

    # From clusters to files

    def row_columns(self, clusters: Clusters, part: slice) -> dict[str, Sequence[Any]]:
        """Further columns of the table of rows, for some of the rows."""
        return {}

    def cluster_columns(self, clusters: Clusters) -> dict[str, Sequence[Any]]:
        """Further columns of the table of clusters."""
        return {"distinctive": [", ".join(top) for top in clusters.distinctive(10)]}

    def summary(self, clusters: Clusters) -> dict[str, Any]:
        """Further entries of ``summary.json``."""
        return {}

    def write(self, clusters: Clusters, folder: Path) -> None:
        """Write further files into a folder."""

    def write_most_likely(self, clusters: Clusters, folder: Path, n: int) -> None:
        """Write the n most likely clusters of each row into a folder, if rows are not written as a table."""
        raise ValueError(f"The most likely clusters of {self.rows_of(2)} cannot be written: leave out --top.")

    def headline(self, clusters: Clusters) -> str:
        """What was clustered, in a line."""
        return f"{self.so_many(clusters.labels.size)}, {so_many(len(clusters.features), self.feature)}"

    def rows_of(self, n: int) -> str:
        """What n rows are called."""
        return self.row if n == 1 else f"{self.row}s"

    def so_many(self, n: int) -> str:
        """A number of rows, such as ``1 document`` or ``2,000 documents``."""
        return so_many(n, self.row)


def part_parameters(fit: Fit) -> dict[str, Any]:
    """The parameters with which some of the rows of a fit are clustered: those of the fit, and its divergence."""
    given = {name: value for name, value in fit.parameters.items() if name != "init" or isinstance(value, str)}
    divergence = fit.model.divergence_
    return given if isinstance(divergence, KullbackLeibler) else given | {"beta_loss": divergence}


class Columns:
    """Some columns of a matrix that is read by slices of rows, in the order of a model's features.

    A feature that is ``missing`` in the matrix is 0 everywhere.
    """

    def __init__(
        self, X: Any, columns: Array, missing: list[str], transform: Callable[[csr_array], csr_array] | None = None
    ) -> None:
        self.X, self.columns, self.missing, self.transform = X, columns, missing, transform
        self.shape = (X.shape[0], len(columns))

    def __getitem__(self, part: slice) -> csr_array:
        present = np.flatnonzero(self.columns >= 0)
        some = csr_array(csr_array(self.X[part])[:, self.columns[present]])
        wide = csr_array((some.data, present[some.indices], some.indptr), shape=(some.shape[0], len(self.columns)))
        return wide if self.transform is None else self.transform(wide)


def best_match(ours: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> Array:
    """The place of each of our features among theirs, -1 if it is not there.

    Both may be named in several ways. Each is compared with each, and the best match is taken.
    """

    def places(names: Sequence[str], known: Sequence[str]) -> Array:
        first = {name: i for i, name in reversed(list(enumerate(known)))}  # the first of equal names
        return np.array([first.get(name, -1) for name in names], dtype=np.int64)

    return max((places(*pair) for pair in product(ours, theirs)), key=lambda found: np.count_nonzero(found >= 0))


def match_features(
    table: Table,
    ours: Sequence[Sequence[str]],
    kind: Kind,
    transform: Callable[[csr_array], csr_array] | None = None,
) -> tuple[Columns, list[str]]:
    """Match the features of a model with those of a table, by name. → the rows with the model's features, and notes

    ``ours`` are the names of the model's features, in one or several ways of naming them. ``transform`` is applied to
    the matched counts.
    """
    theirs = table.namings
    best = best_match(ours, theirs)
    p, noun = len(best), f"{kind.feature}s"
    if not (best >= 0).any():
        raise ValueError(
            f"{table.source or 'The new data'} has none of the model's {p:,} {noun}. The model knows "
            f"{some_names(ours[-1], 3)}; the file has {some_names(theirs[0], 3)}. Name the {noun} in the same way."
        )
    missing = [ours[-1][int(i)] for i in np.flatnonzero(best < 0)]
    notes = [f"{len(missing):,} of the model's {p:,} {noun} are missing and count as 0: {some_names(missing)}."]
    if 2 * len(missing) > p:
        notes.append(
            f"Most {noun} of the model are missing, so the clusters say little. The file names its {noun} "
            f"{some_names(theirs[0], 3)}: are they named as those of the model?"
        )
    return Columns(table.X, best, missing, transform), notes if missing else []


def spread_out(values: Array, index: Array, n: int) -> Array:
    """Values of some rows as values of all n rows. The others are -1 for whole numbers, else NaN."""
    spread = np.full(n, -1 if values.dtype.kind == "i" else np.nan, dtype=values.dtype)
    spread[index] = values
    return spread


class _Matrix(Kind):
    """Plain matrices, as :meth:`onmf.ONMF.save` writes them: no names but those given later."""

    def read(self, path: str | Path, progress: Progress, **options: Any) -> Table:
        from onmf.datasets import read_documents

        X = read_documents(path).X
        return Table(X, [str(i) for i in range(X.shape[0])], [str(j) for j in range(X.shape[1])], source=str(path))


MATRIX = _Matrix()

UNKNOWN = Kind()  # Any kind that is not registered. Its models can be loaded and shown.
