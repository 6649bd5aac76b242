"""The paper's first table: accuracy, iterations and time on its document sets."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from onmf.datasets import load_documents, make_counts
from onmf.estimator import ONMF
from onmf.metrics import clustering_accuracy

from .compare import LOSSES, Cell, Progress, Table, available_and_missing, paper_tables


@dataclass(frozen=True)
class DocumentsRow:
    """The results of each algorithm on one document set."""

    name: str
    documents: int
    words: int
    clusters: int
    accuracy: dict[str, Cell]
    iterations: dict[str, Cell]
    seconds: dict[str, float]
    nmi: dict[str, float]
    ari: dict[str, float]

    def record(self) -> dict[str, Any]:
        """Return the row as one line of a data file."""
        line: dict[str, Any] = {key: getattr(self, key) for key in ("name", "documents", "words", "clusters")}
        for short in LOSSES:
            line |= self.accuracy[short].record(f"accuracy_{short}")
            line |= self.iterations[short].record(f"iterations_{short}")
            line |= {f"{key}_{short}": getattr(self, key)[short] for key in ("seconds", "nmi", "ari")}
        return line


@dataclass(frozen=True)
class DocumentsReport:
    """The paper's first table and our results."""

    rows: list[DocumentsRow]
    missing: list[str]

    @property
    def agrees(self) -> bool:
        """Whether every cell that can be compared agrees."""
        return all(cell.agrees for row in self.rows for cell in (*row.accuracy.values(), *row.iterations.values()))

    def average(self, short: str, paper: bool = False) -> float:
        """Return the accuracy of an algorithm over the available sets, weighted by documents, in percent."""
        cells = [row.accuracy[short] for row in self.rows]
        values = [cell.paper if paper else cell.ours for cell in cells]
        return float(np.average(values, weights=[row.documents for row in self.rows]))  # type: ignore[arg-type]

    def table(self) -> Table:
        """Return the table for display."""
        columns = ["", "n", "m", "r"]
        columns += [f"{key}-{short}" for key in ("acc", "it", "time", "NMI", "ARI") for short in LOSSES]
        rows = [
            [
                row.name,
                *map(str, (row.documents, row.words, row.clusters)),
                *(row.accuracy[short].show(1) for short in LOSSES),
                *(row.iterations[short].show(0) for short in LOSSES),
                *(f"{row.seconds[short]:.2f}" for short in LOSSES),
                *(f"{row.nmi[short]:.3f}" for short in LOSSES),
                *(f"{row.ari[short]:.3f}" for short in LOSSES),
            ]
            for row in self.rows
        ]
        average = ["average", str(sum(row.documents for row in self.rows)), "", ""]
        average += [f"{self.average(short):.1f} ({self.average(short, paper=True):.1f})" for short in LOSSES]
        for key in ("iterations", "seconds", "nmi", "ari"):
            for short in LOSSES:
                values = [getattr(row, key)[short] for row in self.rows]
                mean = float(np.mean([v.ours if isinstance(v, Cell) else v for v in values]))
                average.append(f"{mean:.{ {'iterations': 0, 'seconds': 2, 'nmi': 3, 'ari': 3}[key] }f}")
        all_sets = paper_tables()["documents_averages"]
        notes = [
            "✓: the paper has the same number, to the digit it prints. Times are ours, in seconds; NMI and ARI are not "
            "in the paper. n documents, m words, r clusters; F: Fro-ONMF, KL: KL-ONMF.",
            f"Averages are over the sets above ({len(self.rows)}), accuracy weighted by documents, with the paper's "
            f"over the same sets in brackets. Over its 15 sets the paper has {all_sets['accuracy_frobenius']} and "
            f"{all_sets['accuracy_kl']}.",
        ]
        if self.missing:
            notes.append(f"Not compared, because the data are not available: {', '.join(self.missing)}.")
        return Table("Document sets (the paper's Table 1)", columns, [*rows, average], notes)


def reproduce_documents(
    only: list[str] | None = None, *, runs: int = 1, progress: Progress = lambda _: None
) -> DocumentsReport:
    """Run Fro-ONMF and KL-ONMF on every available document set.

    Parameters
    ----------
    only : list of str, optional
        Names of the sets to run; by default all that are available.
    runs : int, default=1
        Number of runs of each fit; the reported time is their median.
    progress : callable, optional
        Called with the name of each set before it is run.

    Returns
    -------
    DocumentsReport
    """
    warm_up()
    paper = paper_tables()["documents"]
    names, missing = available_and_missing("documents", only)
    rows = []
    for name in names:
        progress(name)
        X, y = load_documents(name, return_X_y=True)
        clusters = int(y.max()) + 1
        row = DocumentsRow(name, X.shape[0], X.shape[1], clusters, {}, {}, {}, {}, {})
        for short, loss in LOSSES.items():
            model, row.seconds[short] = timed_fit(ONMF(clusters, beta_loss=loss), X, runs)
            accuracy = 100 * clustering_accuracy(y, model.labels_)
            row.accuracy[short] = Cell(accuracy, paper[name][f"accuracy_{_long(short)}"])
            row.iterations[short] = Cell(model.n_iter_, paper[name][f"iterations_{_long(short)}"])
            row.nmi[short] = normalized_mutual_info_score(y, model.labels_)
            row.ari[short] = adjusted_rand_score(y, model.labels_)
        rows.append(row)
    return DocumentsReport(rows, missing)


def timed_fit(model: ONMF, X: Any, runs: int) -> tuple[ONMF, float]:
    """Fit a model several times, and return it with the median time of a fit."""
    times = []
    for _ in range(runs):
        began = perf_counter()
        model.fit(X)
        times.append(perf_counter() - began)
    return model, median(times)


def warm_up() -> None:
    """Compile the kernels, so that measured times include no compilation."""
    X = make_counts(20, 10, 2, random_state=0).X
    for dtype in (np.uint8, np.uint16):
        ONMF(2).fit(X.astype(dtype))
    ONMF(2).fit(X.toarray().astype(np.float64))


def _long(short: str) -> str:
    return {"F": "frobenius", "KL": "kl"}[short]
