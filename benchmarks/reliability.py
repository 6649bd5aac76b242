"""Reliability of the confidence of labels: how often rows are with those of their cluster in independent fits.

*Runs*: documents are clustered as in the paper, from SNPA, and by consensus with local search. *Votes*: by a vote of
views. The confidence of each document is compared with fits from other random starts, which had no part in it: with
runs of the same kind, for a vote as many in each view, and there also with whole votes. *Cells* are clustered as
``onmf cells`` does, and compared with single runs, half of them in each view. Writes the curves and a
table of each part, for docs/guide/documents.md and docs/guide/cells.md.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onmf import ONMF
from onmf.confidence import calibrate_model, confidence_of, every_run
from onmf.fit.restarts import agreement_of, votes_of
from onmf.text import consensus_of_views
from onmf.text.consensus import VIEWS, independent_runs

from .contenders import cluster_counts
from .data import load
from .results import figure, publish, table

VOTE = "a vote of views"
DEFAULTS = "the defaults for cells"
RUNS: dict[str, dict[str, Any]] = {
    "the paper's start": {},
    "consensus": {"init": "consensus", "refine": "local-search", "n_consensus": 10, "random_state": 0},
}
"""Starts of the fits, and their options."""

PARTS = {
    "runs": (("NG20", "classic", "la12", "k1b"), tuple(RUNS), "optima/reliability-of-labels"),
    "votes": (("classic", "la12", "k1b"), (VOTE,), "optima/reliability-of-votes"),
    "cells": (("pbmc4k_top2000", "hash_4lines", "sc_dropseq"), (DEFAULTS,), "cells/reliability"),
}
"""Sets, starts and files of each part."""

SEED = 1
BINS = np.linspace(0, 1, 11)
LEAST = 50
"""Rows in a bin below which it is not drawn."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True)
class Measured:
    """Confidence, and the share of independent fits in which a row is with its cluster, for one set."""

    name: str
    start: str
    n_clusters: int
    confidence: Any
    together: Any
    posterior: Any = None
    in_votes: Any = None  # the same share of whole votes

    def totals(self, confidence: Any, *values: Any) -> list[Any]:
        """Sum values over the rows of each bin of confidence."""
        place = np.clip(np.digitize(confidence, BINS) - 1, 0, len(BINS) - 2)
        return [np.bincount(place, weights=each, minlength=len(BINS) - 1) for each in values]

    def curve(self) -> tuple[Any, Any, Any]:
        """Mean confidence, mean share and number of rows of each bin that is drawn."""
        sure, together, size = self.totals(self.confidence, self.confidence, self.together, np.ones(len(self.together)))
        drawn = size >= LEAST
        return sure[drawn] / size[drawn], together[drawn] / size[drawn], size[drawn]

    def error(self, confidence: Any) -> float:
        """Mean gap between confidence and share, over bins of the confidence."""
        (gaps,) = self.totals(confidence, confidence - self.together)
        return float(np.abs(gaps).sum() / len(confidence))

    def worst(self) -> float:
        """The largest gap between the mean confidence and the mean share of a bin that is drawn."""
        sure, together, _ = self.curve()
        return float(np.abs(sure - together).max(initial=0.0))

    def row(self) -> dict[str, str]:
        """Return the row of the table by column."""
        row = {
            "set": self.name,
            "rows": f"{len(self.confidence):,}",
            "clusters": str(self.n_clusters),
            "start": self.start,
            "confidence": f"{self.confidence.mean():.2f}",
            "together": f"{self.together.mean():.2f}",
            "error": f"{self.error(self.confidence):.3f}",
            "largest error": f"{self.worst():.2f}",
        }
        if self.posterior is not None:
            row["error of the posterior"] = f"{self.error(self.posterior):.3f}"
        return row if self.in_votes is None else row | {"together in votes": f"{self.in_votes.mean():.2f}"}


def together(labels: Any, others: Sequence[Any], k: int) -> Any:
    """Return the share of other fits in which each row is with the rows of its cluster."""
    return agreement_of(votes_of(np.stack(others, axis=1).astype(np.int32), k), labels, k).rows


def of_documents(name: str, start: str, fits: int, votes: int) -> Measured:
    """Cluster one set of documents, and measure how far its confidence holds."""
    X, y = load(name)
    k, voted = len(np.unique(y)), []
    if start == VOTE:
        model = consensus_of_views(X, k, random_state=0)
        calibration = calibrate_model(model, X, model.labels_, independent_runs)
        others = independent_runs(model, X, n_runs=fits // VIEWS * VIEWS, seed=SEED)
        voted = [consensus_of_views(X, k, random_state=SEED + number).labels_ for number in range(votes)]
    else:
        model = ONMF(k, **RUNS[start]).fit(X)
        calibration = calibrate_model(model, X, model.labels_)
        other = ONMF(k, init="random-partition", n_init=fits, random_state=SEED, refine=model.refine)
        others = [run.labels for run in every_run(other, X)]
    sure, _ = confidence_of(model, X, model.labels_, calibration)
    in_votes = together(model.labels_, voted, k) if voted else None
    posterior = model.predict_proba(X)[np.arange(len(sure)), model.labels_]
    return Measured(name, start, k, sure, together(model.labels_, others, k), posterior, in_votes)


def of_cells(name: str, fits: int) -> Measured:
    """Cluster one set of cells, and measure how far its confidence holds."""
    X, y = load(name)
    k = len(np.unique(y))
    fit = cluster_counts(X, k)
    views = itertools.cycle(("counts", "logs"))
    others = [cluster_counts(X, k, SEED + number, view=next(views), quick=True).labels for number in range(fits)]
    return Measured(name, DEFAULTS, k, fit.confidence, together(fit.labels, others, k))


def run(
    parts: tuple[str, ...] = tuple(PARTS),
    sets: tuple[str, ...] = (),
    fits: int = 12,
    votes: int = 3,
    out: Path = Path("docs"),
) -> None:
    """Measure, draw and write."""
    for part in parts:
        own_sets, starts, file = PARTS[part]
        measured = []
        for name, start in itertools.product(sets or own_sets, starts):
            measured.append(of_cells(name, fits) if part == "cells" else of_documents(name, start, fits, votes))
            print(measured[-1].row(), flush=True)
        rows = [one.row() for one in measured]
        publish(out / f"{file}.md", table(list(rows[0]), [list(row.values()) for row in rows], "l" * len(rows[0])))
        draw(measured, out / f"{file}.png")


def draw(measured: list[Measured], path: Path) -> None:
    """Draw the curves, a panel for each start."""
    starts = list(dict.fromkeys(one.start for one in measured))
    names = list(dict.fromkeys(one.name for one in measured))
    shape = {"figsize": (4.2 * len(starts), 4.8), "sharey": True, "squeeze": False}
    with figure(path, 1, len(starts), dpi=150, **shape) as ((*panels,),):
        for start, ax in zip(starts, panels, strict=True):
            ax.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--")
            ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=start[0].upper() + start[1:], xlabel="confidence")
        for one in measured:
            ax, colour = panels[starts.index(one.start)], COLOURS[names.index(one.name) % len(COLOURS)]
            sure, together, size = one.curve()
            ax.plot(sure, together, color=colour, lw=1.5, label=one.name)
            ax.scatter(sure, together, s=250 * size / len(one.together), color=colour, clip_on=False, zorder=3)
        panels[0].set_ylabel("share of independent fits\nin which it is with its cluster")
        panels[0].legend(frameon=False, loc="upper left")
