"""Which divergence: writes the table of the guide.

Each set is clustered by each divergence, 5 times, on 4 of 5 of its rows; each time the best of 5 random starts counts.
The other rows test the clusters. A row is assigned by the counts of one half of the features, and the likelihood of the
counts in the other half is measured under negative binomials around the centroids of the clusters, whose θ is the most
likely one for the rows of the fit. All divergences are measured by this yardstick, which includes Poisson counts (large
θ), so a difference is one of the clusters.
"""

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score

from onmf import ONMF
from onmf.cells.genes import deviance, top_genes
from onmf.datasets import load_hyperspectral
from onmf.divergence import NegativeBinomial
from onmf.metrics import clustering_accuracy

from .data import MADE, available, load
from .measure import timed
from .results import bold, publish, table

DIVERGENCES: dict[str, Any] = {
    "Kullback–Leibler": "kullback-leibler",
    "negative binomial": NegativeBinomial("auto"),
    "Frobenius": "frobenius",
    "cosine": "cosine",
}
SETS = {
    **dict.fromkeys(("tr11", "tr23", "tr45", "hitech", "k1b"), "documents"),
    **dict.fromkeys(("samson", "jasper"), "images"),
    **dict.fromkeys(
        ("sc_celseq2", "sc_dropseq", "hash_4lines", "worm_neuron", "marques_oligo", "pbmc4k_top2000"), "cells"
    ),
}
"""The kind of each set."""

ROWS, FEATURES, SEEDS, STARTS = 2500, 2000, 5, 5
"""Most rows and genes of a set, drawn at random and chosen by deviance; splits, and starts of a fit."""

SENSOR = 4095
"""Largest count of a pixel: images are counted as by a sensor of 12 bits."""

PSEUDO = 1e-3
"""Share of a centroid that is spread over all features before it is tested."""


def counts_of(name: str) -> tuple[Any, Any]:
    """Return counts and classes of a set, with some of the rows and of the genes."""
    if name in available("hyperspectral"):
        scene = load_hyperspectral(name)
        X, y = np.rint(scene.X * (SENSOR / scene.X.max())), np.argmax(scene.abundances, axis=0)
    else:
        X, y = load(name)
    if name in available("cells"):
        X = csr_array(X)
        X = csr_array(X[:, top_genes(deviance(X), min(FEATURES, X.shape[1]))])
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:ROWS])
    rows = rows[np.asarray(X[rows].sum(axis=1)).ravel() > 0]
    return X[rows], np.unique(y, return_inverse=True)[1][rows]


def trial(X: Any, y: Any, divergence: Any, seed: int) -> tuple[float, ...]:
    """Fit on 4 of 5 rows, and test on the others. → accuracy, ARI, held-out likelihood, θ, seconds"""
    rng = np.random.default_rng(seed)
    k, order = len(np.unique(y)), rng.permutation(X.shape[0])
    test, train = np.split(order, [len(order) // 5])
    options = {"init": "random-partition", "n_init": STARTS, "random_state": seed, "n_threads": 1}
    spent, labels = timed(ONMF(k, beta_loss=divergence, **options).fit_predict, X[train], clock=process_time)
    known = rng.random(X.shape[1]) < 0.5
    rows = np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)
    held_out, theta = likelihood(rows[train], labels, rows[test], known, k)
    return 100 * clustering_accuracy(y[train], labels), adjusted_rand_score(y[train], labels), held_out, theta, spent


def likelihood(train: Any, labels: Any, test: Any, known: Any, k: int) -> tuple[float, float]:
    """The mean log-likelihood of a held-out count, and the most likely θ."""
    sums = np.stack([train[labels == c].sum(axis=0) for c in range(k)])
    filled = sums.any(axis=1)
    C = sums[filled] / sums[filled].sum(axis=1, keepdims=True)
    C = (C + PSEUDO / C.shape[1]) / (1 + PSEUDO)
    place, some = np.cumsum(filled) - 1, train[:500]
    own = some.sum(axis=1, keepdims=True) * C[place[labels[:500]]]
    theta = float(np.exp(minimize_scalar(lambda t: -log_chances(some, own, np.exp(t)).sum(), bounds=(-6, 13)).x))
    sizes = test.sum(axis=1, keepdims=True)
    chances = np.stack([log_chances(test[:, known], sizes * c[known], theta).sum(axis=1) for c in C])
    hidden = log_chances(test[:, ~known], sizes * C[chances.argmax(axis=0)][:, ~known], theta)
    return float(hidden.sum() / max(test[:, ~known].sum(), 1.0)), theta


def log_chances(x: Any, means: Any, theta: float) -> Any:
    """Log-likelihood of each count under a negative binomial."""
    ratio = means / (means + theta)
    return gammaln(x + theta) - gammaln(theta) - gammaln(x + 1) + x * np.log(ratio) - theta * np.log1p(means / theta)


def run(quick: bool = False, out: Path = Path("docs/divergence")) -> None:
    """Run all fits, and write the table after each set: means over the splits, the best of each set in bold."""
    columns = ["data", "divergence", "accuracy (%)", "ARI", "held-out likelihood", "θ", "seconds"]
    forms = ("{:.1f}", "{:.2f}", "{:.4g}", "{:.2g}", "{:.2g}")
    rows: list[list[str]] = []
    there = available("documents", "hyperspectral", "cells")
    for name, kind in {f"{MADE}3": "documents"}.items() if quick else SETS.items():
        if name not in there and not quick:
            continue
        X, y = counts_of(name)
        seeds = range(2 if quick else SEEDS)
        means = [np.mean([trial(X, y, each, seed) for seed in seeds], axis=0) for each in DIVERGENCES.values()]
        best = np.argmax(means, axis=0)
        for place, divergence in enumerate(DIVERGENCES):
            cells = [form.format(value) for form, value in zip(forms, means[place], strict=True)]
            cells[:3] = [bold(cell, winner == place) for cell, winner in zip(cells, best[:3], strict=False)]
            rows.append([f"{name} ({kind})", divergence, *cells])
        publish(out / "table.md", table(columns, rows, "lllllll"))
