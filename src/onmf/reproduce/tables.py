"""The paper's two tables with our numbers beside the paper's, and a table of the whole family of divergences."""

import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median
from timeit import repeat
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from onmf.datasets import Documents, data_home, load_documents, load_hyperspectral, make_counts
from onmf.datasets.load import info_of, members
from onmf.estimator import ONMF
from onmf.io.files import write_whole
from onmf.metrics import clustering_accuracy, match_spectra

ALGORITHMS = {"F": "frobenius", "KL": "kullback-leibler"}  # the divergence that each algorithm of the paper minimises
COMPARED = ("accuracy", "mrsa", "iterations")  # measures that must equal the paper's
BETAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)

OTHERS = {"cosine": max(BETAS) + 0.35, "negative-binomial": max(BETAS) + 0.7}
"""Divergences outside the family, and their positions on the axis of β."""

FAMILY_ITERATIONS = 300  # most of a fit; the paper allows 100, but some members of the family need more

Records = list[dict[str, Any]]

Progress = Callable[[str, float], object]
"""Called with the name of the data set that is about to be run, and the share that is done."""


@dataclass(frozen=True)
class Fit:
    """A model of :class:`Documents` or a :class:`Scene`; ``match`` pairs its centroids with the true spectra."""

    data: Any
    algorithm: float | str
    model: ONMF
    measures: dict[str, float]
    match: Any = None


@dataclass(frozen=True)
class Table:
    """A table as text, its numbers with all digits as records, and the fits of the scenes whose spectra are known.

    In a record, ``x_paper`` is the paper's number for ``x``, and ``x_agrees`` says whether the two agree.
    """

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]
    records: Records
    fits: list[Fit]

    @property
    def agrees(self) -> bool:
        """Whether every number that can be compared agrees with the paper's."""
        return not any(value is False for line in self.records for key, value in line.items() if "_agrees" in key)

    def to_markdown(self) -> str:
        """Return the table as Markdown, without line breaks before the marks."""
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines).replace(" ✓", "\u00a0✓")
        return "\n\n".join([f"**{self.title}**", body, *self.notes]) + "\n"

    def write(self, folder: Path) -> None:
        """Write the records as JSON and CSV, and the table as Markdown."""
        lines = io.StringIO()
        writer = csv.DictWriter(lines, dict.fromkeys(key for line in self.records for key in line), lineterminator="\n")
        writer.writerows([{key: key for key in writer.fieldnames}, *self.records])
        records = json.dumps(self.records, indent=1, default=np.generic.item) + "\n"
        for suffix, text in (("json", records), ("csv", lines.getvalue()), ("md", self.to_markdown())):
            write_whole(folder / f"{self.name}.{suffix}", lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]


def paper_tables() -> dict[str, Any]:
    """Return every cell of the paper's two tables, and how the tables are laid out."""
    return json.loads(files("onmf.reproduce").joinpath("paper_tables.json").read_text(encoding="utf-8"))


def agree(ours: float, paper: float | None) -> bool | None:
    """Whether ours is the paper's number, rounded to the digits that the paper prints; None if it has none."""
    return None if paper is None else _rounded(ours, paper) == str(paper)


def shown(record: Mapping[str, Any], key: str, digits: int) -> str:
    """Format our number with a mark: ✓ if the paper's agrees, else ✗ and the paper's number."""
    ours, paper = record.get(key), record.get(f"{key}_paper")
    if ours is None or paper is None:
        return "" if ours is None else f"{ours:.{digits}f}"
    return f"{_rounded(ours, paper)} " + ("✓" if agree(ours, paper) else f"✗ {paper}")


def _rounded(ours: float, paper: float) -> str:
    return f"{ours:.{len(str(paper).partition('.')[2])}f}"


def find_sets(kind: str, only: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the names of the paper's data sets of a kind that are on this machine, and of those that are not.

    All of ``only`` must be, or else at least one.
    """
    infos = [info_of(name) for name in only or members(kind)]
    found = [info.name for info in infos if info.available and info.name in members(kind)]
    missing = [info for info in infos if not info.available]
    if only and missing:
        raise FileNotFoundError(f"{missing[0].path} is missing. Run 'onmf fetch {missing[0].name}', or set ONMF_DATA.")
    if not found:
        where = f"No {kind} data set was found in {data_home()}."
        raise FileNotFoundError(f"{where} Run 'onmf fetch {kind}', or set ONMF_DATA.")
    return found, [info.name for info in missing]


def fit_sets(
    names: list[str], losses: Mapping[Any, Any], progress: Progress | None, runs: int = 1, max_iter: int = 100
) -> Iterator[Fit]:
    """Fit every data set with every divergence. β = 0 needs positive data, so documents go without it."""
    paper = paper_tables()
    for number, name in enumerate(names):
        if progress is not None:
            progress(name, number / len(names))
        is_scene = name in paper["images"]
        data: Any = load_hyperspectral(name) if is_scene else load_documents(name)
        clusters = paper["images"][name]["endmembers"] if is_scene else paper["documents"][name]["clusters"]
        for algorithm in (key for key in losses if is_scene or losses[key] != 0):
            X = lift_zeros(data.X) if losses[algorithm] == 0 else data.X
            model = ONMF(clusters, beta_loss=losses[algorithm], max_iter=max_iter)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                seconds = median(repeat(partial(model.fit, X), number=1, repeat=runs))
            match = None
            measures = {"iterations": model.n_iter_, "seconds": seconds}
            if not is_scene:
                measures["accuracy"] = 100 * clustering_accuracy(data.y, model.labels_)
                measures["nmi"] = float(normalized_mutual_info_score(data.y, model.labels_))
                measures["ari"] = float(adjusted_rand_score(data.y, model.labels_))
            elif data.endmembers is not None:
                match = match_spectra(data.endmembers, model.cluster_centers_)
                measures["mrsa"] = match.mean
            yield Fit(data, algorithm, model, measures, match)


def lift_zeros(X: Any) -> Any:
    """Raise the zeros of X to its smallest positive entry."""
    return np.maximum(X, X[X > 0].min())


def reproduce_documents(only: list[str] | None = None, *, runs: int = 1, progress: Progress | None = None) -> Table:
    """Run Fro-ONMF and KL-ONMF on every available document set.

    Parameters
    ----------
    only : list of str, optional
        Names of the sets to run; by default all that are available.
    runs : int, default=1
        Number of runs of each fit; the reported time is their median.
    progress : callable, optional
        Called with the name of each set before it is run, and the share that is done.

    Returns
    -------
    Table
    """
    return _compare("documents", only, runs, progress)


def reproduce_images(only: list[str] | None = None, *, runs: int = 1, progress: Progress | None = None) -> Table:
    """Run Fro-ONMF and KL-ONMF on every available scene. Parameters are those of :func:`reproduce_documents`."""
    return _compare("images", only, runs, progress)


def _compare(name: str, only: list[str] | None, runs: int, progress: Progress | None) -> Table:
    """Run both algorithms on every available set, and compare their numbers with the paper's."""
    tiny = make_counts(20, 10, 2, random_state=0).X
    for rows in (tiny.astype(np.uint8), tiny.astype(np.uint16), tiny.toarray().astype(np.float64)):
        ONMF(2).fit(rows)  # times include no compilation
    paper = paper_tables()
    layout = paper["layouts"][name]
    names, missing = find_sets(layout["kind"], only)
    lines: dict[str, dict[str, Any]] = {}
    fits = []
    for fit in fit_sets(names, ALGORITHMS, progress, runs):
        sizes = fit.data.X.shape if name == "documents" else fit.data.X.shape[::-1]
        line = lines.setdefault(fit.data.name, {"name": fit.data.name})
        line |= zip(layout["sizes"], (*sizes, fit.model.n_clusters), strict=True)
        for measure in (measure for measure in layout["measures"] if measure in fit.measures):
            column = f"{measure}_{fit.algorithm}"
            line[column] = fit.measures[measure]
            if measure in COMPARED:
                line[f"{column}_paper"] = paper[name][fit.data.name][column]
                line[f"{column}_agrees"] = agree(line[column], line[f"{column}_paper"])
        fits += [fit] if fit.match is not None else []
    measures = [(f"{key}_{short}", *form) for key, form in layout["measures"].items() for short in ALGORITHMS]
    titles = [f"{title}-{key.rpartition('_')[2]}" for key, title, _ in measures]
    records, notes = list(lines.values()), layout["notes"]
    rows = [
        [*(str(line[key]) for key in ("name", *layout["sizes"])), *(shown(line, key, n) for key, _, n in measures)]
        for line in records
    ]
    if name == "documents":
        notes[1] = notes[1].format(sets=len(rows), **paper["documents_averages"])
        means = [f"{np.mean([line[key] for line in records]):.{digits}f}" for key, _, digits in measures]
        for i, short in enumerate(ALGORITHMS):
            both = (_weighted(records, f"accuracy_{short}{end}", "documents") for end in ("", "_paper"))
            means[i] = "{:.1f} ({:.1f})".format(*both)
        rows.append(["average", str(sum(line["documents"] for line in records)), "", "", *means])
    elif "moffett" not in lines:
        notes.pop()
    if missing:
        notes.append(f"Not compared, because the data are not available: {', '.join(missing)}.")
    return Table(name, layout["title"], ["", *layout["sizes"].values(), *titles], rows, notes, records, fits)


def reproduce_family(only: list[str] | None = None, *, progress: Progress | None = None) -> Table:
    """Fit every available data set with every β and two other divergences; ``only`` and ``progress`` as above."""
    records = []
    names, _ = find_sets("paper", only)
    for fit in fit_sets(names, {loss: loss for loss in (*BETAS, *OTHERS)}, progress, max_iter=FAMILY_ITERATIONS):
        kind = "documents" if isinstance(fit.data, Documents) else "hyperspectral"
        line = {"name": fit.data.name, "kind": kind, "size": fit.data.X.shape[0], "beta": fit.algorithm}
        line |= {"value": fit.measures.get("accuracy", fit.measures.get("mrsa")), "nmi": fit.measures.get("nmi")}
        line |= {"iterations": fit.model.n_iter_, "converged": fit.model.stop_reason_ != "max_iter"}
        if line["value"] is not None:
            records.append(line)
    return family_table(records)


def family_table(records: Records) -> Table:
    """Arrange fits in a table with a row for each β and a column for each data set."""
    names = list(dict.fromkeys(line["name"] for line in records))
    values = {(line["name"], line["beta"]): f"{line['value']:.1f}" for line in records}
    averages = {("all documents", beta): f"{value:.1f}" for beta, value in family_averages(records).items()}
    columns = [*names, "all documents"] if averages else names
    betas = sorted({line["beta"] for line in records}, key=lambda beta: (isinstance(beta, str), beta))
    rows = [[str(beta), *((values | averages).get((name, beta), "") for name in columns)] for beta in betas]
    layout, unfinished = paper_tables()["layouts"]["family"], sum(not line["converged"] for line in records)
    first, *zero = layout["notes"]
    first = first.format(iterations=FAMILY_ITERATIONS, unfinished=unfinished, fits=len(records))
    notes = [first, *(zero if 0 in betas else ())]
    return Table("family", layout["title"], ["β", *columns], rows, notes, records, [])


def family_averages(records: Records) -> dict[float | str, float]:
    """Return the accuracy for each β over the document sets, weighted by their numbers of documents."""
    documents = [line for line in records if line["kind"] == "documents"]
    return {
        beta: _weighted([line for line in documents if line["beta"] == beta], "value", "size")
        for beta in dict.fromkeys(line["beta"] for line in documents)
    }


def _weighted(lines: Records, key: str, weight: str) -> float:
    return float(np.average([line[key] for line in lines], weights=[line[weight] for line in lines]))
