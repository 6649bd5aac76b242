"""Which divergence: ``python -m benchmarks.divergences [--quick] [--out DIR]`` writes the table of the guide.

Each set is clustered by each divergence, 5 times, on 4 of 5 of its rows; each time the best of 5 random starts counts.
The other rows test the clusters. A row is assigned by the counts of one half of the features, and the likelihood of the
counts in the other half is measured under negative binomials around the centroids of the clusters, whose θ is the most
likely one for the rows of the fit. All divergences are measured by this yardstick, which includes Poisson counts (large
θ), so a difference is one of the clusters.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from onmf import ONMF
from onmf.cells.genes import deviance, top_genes
from onmf.datasets import list_datasets, load_cells, load_documents, load_hyperspectral, make_counts
from onmf.divergence import NegativeBinomial
from onmf.metrics import clustering_accuracy

DIVERGENCES: dict[str, Any] = {
    "Kullback–Leibler": "kullback-leibler",
    "negative binomial": NegativeBinomial("auto"),
    "Frobenius": "frobenius",
    "cosine": "cosine",
}
SETS = {
    "documents": ("tr11", "tr23", "tr45", "hitech", "k1b"),
    "images": ("samson", "jasper"),
    "cells": ("sc_celseq2", "sc_dropseq", "hash_4lines", "worm_neuron", "marques_oligo", "pbmc4k_top2000"),
}
ROWS, FEATURES, SEEDS, STARTS = 2500, 2000, 5, 5
"""Most rows and genes of a set, drawn at random and chosen by deviance; splits, and starts of a fit."""

SENSOR = 4095
"""Largest count of a pixel: images are counted as by a sensor of 12 bits."""

PSEUDO = 1e-3
"""Share of a centroid that is spread over all features before it is tested."""


class Labelled(NamedTuple):
    """Rows with classes."""

    kind: str
    name: str
    X: Any
    y: Any


class Trial(NamedTuple):
    """One fit."""

    accuracy: float
    ari: float
    held_out: float
    theta: float
    seconds: float


def labelled_sets(quick: bool) -> Iterator[Labelled]:
    """The sets that are available."""
    if quick:
        made = make_counts(300, 60, 3, random_state=0)
        yield Labelled("documents", "made", made.X, made.y)
        return
    available = {info.name for info in list_datasets() if info.available}
    for kind, names in SETS.items():
        for name in names:
            if name not in available:
                continue
            if kind == "images":
                scene = load_hyperspectral(name)
                X = np.rint(scene.X * (SENSOR / scene.X.max()))
                y = np.argmax(scene.abundances, axis=0)  # type: ignore[arg-type]
            elif kind == "cells":
                X, y = load_cells(name, return_X_y=True)
                X = csr_array(X)
                X = csr_array(X[:, top_genes(deviance(X), min(FEATURES, X.shape[1]))])
            else:
                X, y = load_documents(name, return_X_y=True)
            y = np.unique(y, return_inverse=True)[1]
            rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:ROWS])
            rows = rows[np.asarray(X[rows].sum(axis=1)).ravel() > 0]
            yield Labelled(kind, name, X[rows], y[rows])


def trial(data: Labelled, divergence: Any, seed: int) -> Trial:
    """Fit on 4 of 5 rows, and test on the others."""
    rng = np.random.default_rng(seed)
    k, order = len(np.unique(data.y)), rng.permutation(data.X.shape[0])
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ONMF(
            k, beta_loss=divergence, init="random-partition", n_init=STARTS, random_state=seed, n_threads=1
        ).fit(data.X[train])
    seconds = process_time() - began
    labels = model.labels_
    known = rng.random(data.X.shape[1]) < 0.5
    held_out, theta = likelihood(dense(data.X[train]), labels, dense(data.X[test]), known, k)
    truth = data.y[train]
    return Trial(100 * clustering_accuracy(truth, labels), adjusted_rand_score(truth, labels), held_out, theta, seconds)


def dense(X: Any) -> Any:
    """Rows as an array."""
    return np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)


def likelihood(train: Any, labels: Any, test: Any, known: Any, k: int) -> tuple[float, float]:
    """The mean log-likelihood of a held-out count, and the most likely θ."""
    sums = np.stack([train[labels == c].sum(axis=0) for c in range(k)])
    filled = sums.any(axis=1)
    C = sums[filled] / sums[filled].sum(axis=1, keepdims=True)
    C = (C + PSEUDO / C.shape[1]) / (1 + PSEUDO)
    place = np.cumsum(filled) - 1
    rows = np.arange(len(train))[:500]
    own = train[rows].sum(axis=1, keepdims=True) * C[place[labels[rows]]]
    found = minimize_scalar(lambda t: -log_chances(train[rows], own, np.exp(t)).sum(), bounds=(-6, 13))
    theta = float(np.exp(found.x))
    sizes = test.sum(axis=1, keepdims=True)
    chances = np.stack([log_chances(test[:, known], sizes * c[known], theta).sum(axis=1) for c in C])
    chosen = chances.argmax(axis=0)
    hidden = log_chances(test[:, ~known], sizes * C[chosen][:, ~known], theta)
    return float(hidden.sum() / max(test[:, ~known].sum(), 1.0)), theta


def log_chances(x: Any, means: Any, theta: float) -> Any:
    """Log-likelihood of each count under a negative binomial."""
    ratio = means / (means + theta)
    return gammaln(x + theta) - gammaln(theta) - gammaln(x + 1) + x * np.log(ratio) - theta * np.log1p(means / theta)


def table(results: dict[str, dict[str, Any]]) -> str:
    """The means over the splits as Markdown: a row for each set and divergence, the best of each set in bold."""
    lines = [
        "| data | divergence | accuracy (%) | ARI | held-out likelihood | θ | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, means in results.items():
        best = {column: max(means, key=lambda each, column=column: means[each][column]) for column in range(3)}
        for each, mean in means.items():
            cells = [f"{mean[0]:.1f}", f"{mean[1]:.2f}", f"{mean[2]:.4g}"]
            cells = [f"**{cell}**" if best[column] == each else cell for column, cell in enumerate(cells)]
            lines.append(f"| {name} | {each} | {' | '.join(cells)} | {mean[3]:.2g} | {mean[4]:.2g} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all fits, and write the table after each set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divergences", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--quick", action="store_true", help="one small made set and two seeds: checks that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/divergence"), help="folder for the table")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for data in labelled_sets(arguments.quick):
        means = results[f"{data.name} ({data.kind})"] = {}
        for name, divergence in DIVERGENCES.items():
            seeds = range(2 if arguments.quick else SEEDS)
            means[name] = np.mean([trial(data, divergence, seed) for seed in seeds], axis=0)
            print(f"{data.kind:10} {data.name:16} {name:18}", *(f"{value:9.4g}" for value in means[name]), flush=True)
        (arguments.out / "table.md").write_text(table(results))


if __name__ == "__main__":
    main()
