"""Reliability of the confidence of labels: how often rows are with those of their cluster in independent fits.

    python -m benchmarks.reliability [--parts runs votes cells] [--sets NAME ...] [--fits 12] [--votes 3] [--out docs]

*Runs*: documents are clustered as in the paper, from SNPA, and by consensus with local search. *Votes*: by a vote of
views. The confidence of each document is compared with fits from other random starts, which had no part in it: with
runs of the same kind, for a vote as many in each view, and there also with whole votes. *Cells* are clustered as
``onmf cells`` does, and compared with other fits of the whole, choice of the view included. Writes the curves and a
table of each part, for docs/guide/documents.md and docs/guide/cells.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF
from onmf.cells.fit import fit_counts
from onmf.confidence import calibrate_model, confidence_of, every_run
from onmf.datasets import load_cells, load_documents
from onmf.fit.consensus import agreement_of, votes_of
from onmf.text import consensus_of_views
from onmf.text.consensus import VIEWS, independent_runs

from .optima import save

PARTS = {
    "runs": ("NG20", "classic", "la12", "k1b"),
    "votes": ("classic", "la12", "k1b"),
    "cells": ("pbmc4k_top2000", "hash_4lines", "sc_dropseq"),
}
"""The sets of each part."""

FILES = {
    "runs": ("optima/reliability-of-labels.png", "optima/reliability-of-labels.md"),
    "votes": ("optima/reliability-of-votes.png", "optima/reliability-of-votes.md"),
    "cells": ("cells/reliability.png", "cells/reliability.md"),
}
"""The figure and the table of each part."""

STARTS: dict[str, dict[str, Any]] = {
    "the paper's start": {},
    "consensus": {"init": "consensus", "refine": "local-search", "n_consensus": 10, "random_state": 0},
}
VOTE = "a vote of views"
DEFAULTS = "the defaults for cells"
SEED = 1
BINS = np.linspace(0, 1, 11)
LEAST = 50
"""Rows in a bin below which it is not drawn."""


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

    def curve(self) -> tuple[Any, Any, Any]:
        """Mean confidence, mean share and number of rows of each bin."""
        place = np.clip(np.digitize(self.confidence, BINS) - 1, 0, len(BINS) - 2)
        size = np.bincount(place, minlength=len(BINS) - 1)
        means = [
            np.bincount(place, weights=values, minlength=len(BINS) - 1) / np.maximum(size, 1)
            for values in (self.confidence, self.together)
        ]
        return means[0], means[1], size

    def error(self, confidence: Any) -> float:
        """Mean gap between confidence and share, over bins of the confidence."""
        place = np.clip(np.digitize(confidence, BINS) - 1, 0, len(BINS) - 2)
        gaps = np.bincount(place, weights=confidence - self.together, minlength=len(BINS) - 1)
        return float(np.abs(gaps).sum() / len(confidence))

    def worst(self) -> float:
        """The largest gap between the mean confidence and the mean share of a bin that is drawn."""
        sure, together, size = self.curve()
        return float(np.abs(sure - together)[size >= LEAST].max(initial=0.0))


def together(labels: Any, others: Sequence[Any], k: int) -> Any:
    """Return the share of other fits in which each row is with the rows of its cluster."""
    return agreement_of(votes_of(np.stack(others, axis=1).astype(np.int32), k), labels, k).rows


def reliability(name: str, start: str, fits: int, votes: int) -> Measured:
    """Cluster one set of documents, and measure how far its confidence holds."""
    documents = load_documents(name)
    X, k = documents.X.astype(np.float64), len(np.unique(documents.y))
    others, in_votes = list[Any](), None
    if start == VOTE:
        model = consensus_of_views(X, k, random_state=0)
        sure, _ = confidence_of(model, X, model.labels_, calibrate_model(model, X, model.labels_, independent_runs))
        others = independent_runs(model, X, n_runs=fits // VIEWS * VIEWS, seed=SEED)
        if votes:
            voted = [consensus_of_views(X, k, random_state=SEED + number).labels_ for number in range(votes)]
            in_votes = together(model.labels_, voted, k)
    else:
        options = STARTS[start]
        model = ONMF(k, **options).fit(X)
        sure, _ = confidence_of(model, X, model.labels_, calibrate_model(model, X, model.labels_))
        other = ONMF(k, init="random-partition", n_init=fits, random_state=SEED, refine=options.get("refine"))
        others = [run.labels for run in every_run(other, X)]
    posterior = model.predict_proba(X)[np.arange(len(sure)), model.labels_]
    return Measured(name, start, k, sure, together(model.labels_, others, k), posterior, in_votes)


def reliability_of_cells(name: str, fits: int) -> Measured:
    """Cluster one set of cells, and measure how far its confidence holds."""
    X, y = load_cells(name, return_X_y=True)
    k = len(np.unique(y))
    fit = fit_counts(X, k, random_state=0)
    others = [fit_counts(X, k, random_state=SEED + number).model.labels_ for number in range(fits)]
    return Measured(name, DEFAULTS, k, fit.confidence, together(fit.model.labels_, others, k))


def table(measured: list[Measured]) -> str:
    """Return the table in Markdown."""
    columns: dict[str, list[str]] = {
        "set": [one.name for one in measured],
        "rows": [f"{len(one.confidence):,}" for one in measured],
        "clusters": [str(one.n_clusters) for one in measured],
        "start": [one.start for one in measured],
        "confidence": [f"{one.confidence.mean():.2f}" for one in measured],
        "together": [f"{one.together.mean():.2f}" for one in measured],
        "error": [f"{one.error(one.confidence):.3f}" for one in measured],
        "largest error": [f"{one.worst():.2f}" for one in measured],
        "error of the posterior": [f"{one.error(one.posterior):.3f}" for one in measured if one.posterior is not None],
        "together in votes": [f"{one.in_votes.mean():.2f}" for one in measured if one.in_votes is not None],
    }
    shown = {name: values for name, values in columns.items() if values}
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    lines += ["| " + " | ".join(row) + " |" for row in zip(*shown.values(), strict=True)]
    return "\n".join(lines) + "\n"


def draw(measured: list[Measured], path: Path) -> None:
    """Draw the curves, a panel for each start."""
    import matplotlib.pyplot as plt

    starts = list(dict.fromkeys(one.start for one in measured))
    names = list(dict.fromkeys(one.name for one in measured))
    colours = dict(zip(names, ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"), strict=False))
    figure, panels = plt.subplots(
        1, len(starts), figsize=(4.2 * len(starts), 4.8), sharey=True, layout="constrained", squeeze=False
    )
    for start, ax in zip(starts, panels[0], strict=True):
        ax.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--")
        for one in (one for one in measured if one.start == start):
            sure, together, size = one.curve()
            shown = size >= LEAST
            ax.plot(sure[shown], together[shown], color=colours.get(one.name), lw=1.5, label=one.name)
            areas = 250 * size[shown] / size.sum()
            ax.scatter(sure[shown], together[shown], s=areas, color=colours.get(one.name), clip_on=False, zorder=3)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=start[0].upper() + start[1:], xlabel="confidence")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("share of independent fits\nin which it is with its cluster")
    panels[0][0].legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def measure_part(part: str, sets: Sequence[str], fits: int, votes: int) -> list[Measured]:
    """Measure one part on some sets, and print the results."""
    starts = {"runs": tuple(STARTS), "votes": (VOTE,), "cells": (DEFAULTS,)}[part]
    measured = list[Measured]()
    for name in sets:
        for start in starts:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                one = reliability_of_cells(name, fits) if part == "cells" else reliability(name, start, fits, votes)
            measured.append(one)
            print(table([one]).splitlines()[-1], flush=True)
    return measured


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sets", nargs="*", help="by default those of each part")
    parser.add_argument("--fits", type=int, default=12)
    parser.add_argument("--votes", type=int, default=3, help="votes of views that are compared with the first")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args(arguments)
    for part in options.parts:
        measured = measure_part(part, options.sets or PARTS[part], options.fits, options.votes)
        figure, text = (options.out / name for name in FILES[part])
        text.parent.mkdir(parents=True, exist_ok=True)
        draw(measured, figure)
        save(text, table(measured))


if __name__ == "__main__":
    main()
