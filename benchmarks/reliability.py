"""Reliability of the confidence of labels: how often rows are with those of their cluster in independent fits.

    python -m benchmarks.reliability [--sets NAME ...] [--fits 12] [--out docs]

Each set is clustered twice: as in the paper, from SNPA, and by consensus with local search. The confidence of each
document is compared with fits from other random starts, which had no part in it. Writes the curves as
reliability-of-labels.png and a table as optima/reliability-of-labels.md, for docs/documents.md.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF
from onmf.confidence import confidence_of, every_run, measure
from onmf.datasets import load_documents
from onmf.fit.consensus import agreement_of, votes_of

SETS = ("NG20", "classic", "la12", "k1b")
STARTS: dict[str, dict[str, Any]] = {
    "the paper's start": {},
    "consensus": {"init": "consensus", "refine": "local-search", "n_consensus": 10, "random_state": 0},
}
SEED = 1
BINS = np.linspace(0, 1, 11)
LEAST = 50
"""Documents in a bin below which it is not drawn."""


@dataclass(frozen=True)
class Measured:
    """Confidence, and the share of independent fits in which a document is with its cluster, for one set."""

    name: str
    start: str
    n_clusters: int
    confidence: Any
    posterior: Any
    together: Any

    def curve(self) -> tuple[Any, Any, Any]:
        """Mean confidence, mean share and number of documents of each bin."""
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


def reliability(name: str, start: str, fits: int) -> Measured:
    """Cluster one set, and measure how far its confidence holds."""
    documents = load_documents(name)
    X, k = documents.X.astype(np.float64), len(np.unique(documents.y))
    options = STARTS[start]
    model = ONMF(k, **options).fit(X)
    sure, _ = confidence_of(model, X, model.labels_, measure(model, X, model.labels_))
    other = ONMF(k, init="random-partition", n_init=fits, random_state=SEED, refine=options.get("refine"))
    voted = np.stack([run.labels for run in every_run(other, X)], axis=1)
    together = agreement_of(votes_of(voted, k), model.labels_, k).rows
    posterior = model.predict_proba(X)[np.arange(len(sure)), model.labels_]
    return Measured(name, start, k, sure, posterior, together)


def table(measured: list[Measured]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| set | documents | clusters | start | confidence | together | error | error of the posterior | seconds |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for one in measured:
        numbers = f"{one.confidence.mean():.2f} | {one.together.mean():.2f} | {one.error(one.confidence):.3f}"
        posterior = f"{one.error(one.posterior):.3f}"
        size = f"{len(one.confidence):,} | {one.n_clusters}"
        lines.append(f"| {one.name} | {size} | {one.start} | {numbers} | {posterior} |")
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


def main() -> None:
    """Measure, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--fits", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    measured = []
    for name in options.sets:
        for start in STARTS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                measured.append(reliability(name, start, options.fits))
            print(table(measured[-1:]).splitlines()[-1], flush=True)
    (options.out / "optima").mkdir(parents=True, exist_ok=True)
    draw(measured, options.out / "reliability-of-labels.png")
    (options.out / "optima" / "reliability-of-labels.md").write_text(table(measured), "utf-8")


if __name__ == "__main__":
    main()
