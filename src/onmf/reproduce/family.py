"""Beyond the paper: the effect of the choice of β, on the same data sets."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

from onmf.datasets import load_documents, load_hyperspectral
from onmf.datasets.catalogue import info_of
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.metrics import clustering_accuracy, mrsa

from .compare import Progress, Table, available_and_missing
from .images import CLUSTERS

BETAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)

BOLD, FAINT = "#2a6f97", "#8d99ae"

MAX_ITER = 300
"""Most iterations of a fit. The paper allows 100, but some members of the family need more."""

OTHERS = {"cosine": max(BETAS) + 0.35, "negative-binomial": max(BETAS) + 0.7}
"""Divergences outside the family, and their positions on the axis of β."""

FAMILY: tuple[float | str, ...] = (*BETAS, *OTHERS)


@dataclass(frozen=True)
class FamilyPoint:
    """One fit of a data set with a divergence, and its score: accuracy in percent, or MRSA."""

    name: str
    kind: str
    size: int
    beta: float | str
    value: float
    nmi: float | None
    iterations: int
    converged: bool

    def record(self) -> dict[str, Any]:
        """Return the point as one line of a data file."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


@dataclass(frozen=True)
class FamilyReport:
    """Accuracy and MRSA against β."""

    points: list[FamilyPoint]

    @property
    def _document_points(self) -> list[FamilyPoint]:
        return [p for p in self.points if p.kind == "documents"]

    def average(self, beta: float | str) -> float:
        """Return the accuracy over the document sets, weighted by their numbers of documents, in percent."""
        points = [p for p in self._document_points if p.beta == beta]
        return float(np.average([p.value for p in points], weights=[p.size for p in points]))

    def table(self) -> Table:
        """Return a table with a row for each β and a column for each data set."""
        names = list(dict.fromkeys(p.name for p in self.points))
        has_documents = bool(self._document_points)
        averaged = {p.beta for p in self._document_points}
        values = {(p.name, p.beta): p.value for p in self.points}
        rows = []
        for beta in sorted({p.beta for p in self.points}, key=lambda b: (isinstance(b, str), b)):
            cells = [f"{values[n, beta]:.1f}" if (n, beta) in values else "" for n in names]
            average = f"{self.average(beta):.1f}" if beta in averaged else ""
            rows.append([str(beta), *cells, *([average] if has_documents else [])])
        notes = [
            "Document sets: accuracy in percent, higher is better; scenes: MRSA, lower is better. One run from SNPA "
            f"each, at most {MAX_ITER} iterations; {sum(not p.converged for p in self.points)} of {len(self.points)} "
            "fits used them all.",
        ]
        if any(p.beta == 0 for p in self.points):
            notes.append(
                "β = 0 is defined for positive data only: it was run on the scenes with their few zeros lifted to the "
                "smallest positive entry."
            )
        columns = ["β", *names, *(["all documents"] if has_documents else [])]
        return Table("Accuracy and MRSA against β", columns, rows, notes)


@dataclass(frozen=True)
class DataSet:
    """A data set to fit, with its ground truth: the classes of the documents, or the spectra of the materials."""

    X: Any
    truth: Array
    n_clusters: int


class Kind(ABC):
    """A kind of data: how data sets are loaded, how a fit is scored, and how the scores are drawn.

    Attributes
    ----------
    has_beta_zero : bool
        Whether β = 0 is fitted; it needs positive data.
    title : str
        Title of the plot.
    legend_position : str
        Position of the legend in the plot.
    """

    has_beta_zero: bool
    title: str
    legend_position: str

    @abstractmethod
    def load(self, name: str) -> DataSet | None:
        """Load a data set; None if it has no ground truth."""

    @abstractmethod
    def score(self, truth: Array, model: ONMF) -> tuple[float, float | None]:
        """Return the accuracy or the MRSA of a fitted model, and its NMI if there are classes."""

    @abstractmethod
    def curve_style(self, name: str, number: int) -> dict[str, Any]:
        """Return the options of matplotlib for the curve of a data set."""

    @abstractmethod
    def draw_average(self, ax: Any, report: FamilyReport) -> None:
        """Draw the average over all data sets of this kind, if it is meaningful."""


class DocumentSets(Kind):
    """Document sets: counts with classes, scored by the accuracy."""

    has_beta_zero = False
    title = "Documents: accuracy (%), higher is better"
    legend_position = "lower left"

    def load(self, name: str) -> DataSet:
        X, y = load_documents(name, return_X_y=True)
        return DataSet(X, y, int(y.max()) + 1)

    def score(self, truth: Array, model: ONMF) -> tuple[float, float | None]:
        accuracy = 100 * clustering_accuracy(truth, model.labels_)
        return accuracy, float(normalized_mutual_info_score(truth, model.labels_))

    def curve_style(self, name: str, number: int) -> dict[str, Any]:
        return {"color": "#b8c0cc", "lw": 0.8, "label": "each set" if number == 0 else None}

    def draw_average(self, ax: Any, report: FamilyReport) -> None:
        betas = [beta for beta in BETAS if beta != 0]
        averages = [report.average(beta) for beta in betas]
        ax.plot(betas, averages, color=BOLD, lw=2.5, marker="o", ms=5, label="all, by documents")
        for name, position in OTHERS.items():
            ax.plot(position, report.average(name), color=BOLD, marker="o", ms=7)


class Scenes(Kind):
    """Hyperspectral scenes: pixels with true spectra, scored by the MRSA."""

    has_beta_zero = True
    title = "Scenes: MRSA, lower is better"
    legend_position = "upper left"

    def load(self, name: str) -> DataSet | None:
        scene = load_hyperspectral(name)
        return None if scene.endmembers is None else DataSet(scene.X, scene.endmembers, CLUSTERS[name])

    def score(self, truth: Array, model: ONMF) -> tuple[float, float | None]:
        return mrsa(truth, model.cluster_centers_), None

    def curve_style(self, name: str, number: int) -> dict[str, Any]:
        return {"color": f"C{number}", "lw": 1.8, "label": name}

    def draw_average(self, ax: Any, report: FamilyReport) -> None:
        """Draw nothing: the paper does not average over scenes."""


KINDS: dict[str, Kind] = {"documents": DocumentSets(), "hyperspectral": Scenes()}
"""The kinds of data, by their names in the catalogue."""


def reproduce_family(only: list[str] | None = None, *, progress: Progress = lambda _: None) -> FamilyReport:
    """Fit every available data set with every member of the family.

    Parameters
    ----------
    only : list of str, optional
        Names of the data sets to run; by default all that are available.
    progress : callable, optional
        Called with the name of each data set before it is run.

    Returns
    -------
    FamilyReport
    """
    points: list[FamilyPoint] = []
    names, _ = available_and_missing(None, only)
    for name in names:
        progress(name)
        kind_name = info_of(name).kind
        kind = KINDS[kind_name]
        data = kind.load(name)
        if data is None:
            continue
        for beta in FAMILY:
            if beta == 0 and not kind.has_beta_zero:
                continue
            X = lift_zeros(data.X) if beta == 0 else data.X
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = ONMF(data.n_clusters, beta_loss=beta, max_iter=MAX_ITER).fit(X)
            value, nmi = kind.score(data.truth, model)
            converged = model.stop_reason_ != "max_iter"
            points.append(FamilyPoint(name, kind_name, X.shape[0], beta, value, nmi, model.n_iter_, converged))
    return FamilyReport(points)


def lift_zeros(X: FloatArray) -> FloatArray:
    """Raise the zeros of X to its smallest positive entry."""
    return np.maximum(X, X[X > 0].min())


def plot_family(report: FamilyReport) -> Any:
    """Plot accuracy (left) and MRSA (right) against β, with other divergences at the right end of the axis.

    Returns
    -------
    array of matplotlib.axes.Axes
    """
    import matplotlib.pyplot as plt

    kinds = {name: kind for name, kind in KINDS.items() if any(p.kind == name for p in report.points)}
    _, grid = plt.subplots(1, len(kinds), figsize=(5.6 * len(kinds), 4.2), layout="constrained", squeeze=False)
    for ax, (kind_name, kind) in zip(grid[0], kinds.items(), strict=True):
        names = list(dict.fromkeys(p.name for p in report.points if p.kind == kind_name))
        for number, name in enumerate(names):
            points = [p for p in report.points if p.name == name]
            curve = [(p.beta, p.value) for p in points if p.beta not in OTHERS]
            style = kind.curve_style(name, number)
            ax.plot(*zip(*curve, strict=True), marker="o", ms=3, **style)
            for point in points:
                if isinstance(point.beta, str):
                    ax.plot(OTHERS[point.beta], point.value, marker="o", ms=4, color=style["color"])
        kind.draw_average(ax, report)
        ticks = [0, 0.5, 1, 1.5, 2, 2.5]
        ax.set_xticks([*ticks, *OTHERS.values()], [*(f"{t:g}" for t in ticks), "cosine", "NB"])
        for beta, name in ((1, "KL"), (2, "Frobenius")):
            ax.axvline(beta, color=FAINT, lw=0.8, ls=":")
            ax.text(beta, 1, f" {name}", transform=ax.get_xaxis_transform(), fontsize=8, va="top", color=FAINT)
        ax.set_xlabel("β")
        ax.set_title(kind.title, loc="left", fontsize=10, fontweight="bold")
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=8, frameon=False, loc=kind.legend_position)
        ax.spines[["top", "right"]].set_visible(False)
    return grid[0]
