"""Beyond the paper: how the choice of β matters, over the same sets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score

from onmf.datasets import load_documents, load_hyperspectral
from onmf.divergence import FloatArray
from onmf.estimator import ONMF
from onmf.metrics import clustering_accuracy, mrsa

from .compare import Progress, Table, at_hand
from .images import CLUSTERS

BETAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5)

BOLD, FAINT = "#2a6f97", "#8d99ae"

MAX_ITER = 300
"""More than the paper's 100: some members of the family take longer."""


@dataclass(frozen=True)
class FamilyPoint:
    """One fit: a data set, a divergence, and how good it was: accuracy or MRSA, in percent."""

    name: str
    kind: str
    size: int
    beta: float | str
    value: float
    nmi: float | None
    iterations: int
    converged: bool

    def record(self) -> dict[str, Any]:
        """One flat line of a data file."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


@dataclass(frozen=True)
class FamilyReport:
    """Accuracy and MRSA against β."""

    points: list[FamilyPoint]

    def average(self, beta: float | str) -> float:
        """Accuracy over the document sets, each weighted by its documents, in percent."""
        points = [p for p in self.points if p.kind == "documents" and p.beta == beta]
        return float(np.average([p.value for p in points], weights=[p.size for p in points]))

    def table(self) -> Table:
        """The table for people: a row for each β, a column for each data set."""
        names = list(dict.fromkeys(p.name for p in self.points))
        has_documents = any(p.kind == "documents" for p in self.points)
        found = {(p.name, p.beta): p for p in self.points}
        rows = []
        for beta in sorted({p.beta for p in self.points}, key=lambda b: (isinstance(b, str), b)):
            cells = [f"{found[n, beta].value:.1f}" if (n, beta) in found else "" for n in names]
            documents = any(p.kind == "documents" and p.beta == beta for p in self.points)
            average = f"{self.average(beta):.1f}" if documents else ""
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


def reproduce_family(only: list[str] | None = None, *, progress: Progress = lambda _: None) -> FamilyReport:
    """Fit every data set at hand with every member of the family.

    Parameters
    ----------
    only : list of str, optional
        Names of the data sets to run; by default all that are found.
    progress : callable, optional
        Called with the name of each data set before it is run.

    Returns
    -------
    FamilyReport
    """
    points: list[FamilyPoint] = []
    names, _ = at_hand(None, only)
    for name in names:
        progress(name)
        kind = "hyperspectral" if name in CLUSTERS else "documents"
        if kind == "documents":
            X, truth = load_documents(name, return_X_y=True)
            k = int(truth.max()) + 1
        else:
            scene = load_hyperspectral(name)
            if scene.endmembers is None:
                continue
            X, truth, k = scene.X, scene.endmembers, CLUSTERS[name]
        for beta in (*BETAS, "cosine"):
            if beta == 0 and kind == "documents":
                continue
            data = lift_zeros(X) if beta == 0 else X
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model = ONMF(k, beta_loss=beta, max_iter=MAX_ITER).fit(data)
            if kind == "documents":
                value = 100 * clustering_accuracy(truth, model.labels_)
                nmi = float(normalized_mutual_info_score(truth, model.labels_))
            else:
                value, nmi = mrsa(truth, model.cluster_centers_), None
            converged = model.stop_reason_ != "max_iter"
            points.append(FamilyPoint(name, kind, X.shape[0], beta, value, nmi, model.n_iter_, converged))
    return FamilyReport(points)


def lift_zeros(X: FloatArray) -> FloatArray:
    """X with its zeros raised to the smallest positive entry."""
    return np.maximum(X, X[X > 0].min())


def plot_family(report: FamilyReport) -> Any:
    """Accuracy (left) and MRSA (right) against β, and for the cosine beside it.

    Returns
    -------
    array of matplotlib.axes.Axes
    """
    import matplotlib.pyplot as plt

    kinds = [kind for kind in ("documents", "hyperspectral") if any(p.kind == kind for p in report.points)]
    _, grid = plt.subplots(1, len(kinds), figsize=(5.6 * len(kinds), 4.2), layout="constrained", squeeze=False)
    beside = max(BETAS) + 0.35
    for ax, kind in zip(grid[0], kinds, strict=True):
        names = list(dict.fromkeys(p.name for p in report.points if p.kind == kind))
        for i, name in enumerate(names):
            points = [p for p in report.points if p.name == name]
            curve = [(p.beta, p.value) for p in points if p.beta != "cosine"]
            style = {"color": f"C{i}", "lw": 1.8} if kind == "hyperspectral" else {"color": "#b8c0cc", "lw": 0.8}
            label = name if kind == "hyperspectral" else ("each set" if i == 0 else None)
            ax.plot(*zip(*curve, strict=True), marker="o", ms=3, label=label, **style)
            ax.plot(beside, points[-1].value, marker="o", ms=4, color=style["color"])
        if kind == "documents":
            betas = [b for b in BETAS if b != 0]
            averages = [report.average(b) for b in betas]
            ax.plot(betas, averages, color=BOLD, lw=2.5, marker="o", ms=5, label="all, by documents")
            ax.plot(beside, report.average("cosine"), color=BOLD, marker="o", ms=7)
        ticks = [0, 0.5, 1, 1.5, 2, 2.5]
        ax.set_xticks([*ticks, beside], [*(f"{t:g}" for t in ticks), "cosine"])
        for beta, name in ((1, "KL"), (2, "Frobenius")):
            ax.axvline(beta, color=FAINT, lw=0.8, ls=":")
            ax.text(beta, 1, f" {name}", transform=ax.get_xaxis_transform(), fontsize=8, va="top", color=FAINT)
        ax.set_xlabel("β")
        ax.set_title(
            "Documents: accuracy (%), higher is better" if kind == "documents" else "Scenes: MRSA, lower is better",
            loc="left",
            fontsize=10,
            fontweight="bold",
        )
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=8, frameon=False, loc="lower left" if kind == "documents" else "upper left")
        ax.spines[["top", "right"]].set_visible(False)
    return grid[0]
