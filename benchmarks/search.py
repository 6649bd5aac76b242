"""Local search against restarts at equal time, for the divergences whose search swaps clusters; writes the table.

Both begin from random partitions. Restarts are ten runs, and local search is one with ``refine="local-search"``. The
faster of the two gets more runs, as many as fit into the time of the other. Each runs on one thread and is timed by the
processor, so that other programs do not count. The table has means over seeds. Under Itakura–Saito the least entry of a
scene is a thousandth of the largest. Under Bernoulli words are there or not, under the exponential loss their counts
are logarithms log(1 + x), and the largest entry of a scene is 1. What is in search.json is not measured again.
"""

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf import ONMF
from onmf.datasets import load_hyperspectral
from onmf.divergence import NegativeBinomial

from .data import MADE, available
from .divergences import counts_of
from .measure import timed
from .results import Record, Store, publish, table

DIVERGENCES: dict[str, tuple[str, Any]] = {
    "frobenius": ("Frobenius", "frobenius"),
    "1.5": ("β = 1.5", 1.5),
    "0.5": ("β = 0.5", 0.5),
    "itakura-saito": ("Itakura–Saito", "itakura-saito"),
    "negative-binomial": ("negative binomial", NegativeBinomial(1.0)),
    "bernoulli": ("Bernoulli", "bernoulli"),
    "exponential": ("exponential", "exponential"),
}
"""Titles and divergences by their names here."""

CLUSTERS = 8
"""Of a scene, whose materials have several shades; other sets have as many clusters as classes."""

RESTARTS = 10
"""Runs without a search, at least."""

SETS = ("tr23", "tr11", "hitech", "samson", "jasper", "zheng_facs10")


def rows_for(name: str, divergence: str) -> tuple[Any, int]:
    """Return rows of a set in the domain of a divergence, and the number of clusters."""
    if name in available("hyperspectral"):
        X, k = load_hyperspectral(name).X.astype(np.float64), CLUSTERS
    else:
        counts, y = counts_of(name)
        X, k = counts.astype(np.float64), len(np.unique(y))
    if divergence == "itakura-saito":
        return np.maximum(X, 1e-3 * X.max()), k
    if not issparse(X):
        return X / X.max() if divergence in ("bernoulli", "exponential") else X, k
    if divergence in ("bernoulli", "exponential"):
        X.data = np.ones_like(X.data) if divergence == "bernoulli" else np.log1p(X.data)
    return X, k


def measure(name: str, divergence: str, seed: int) -> Record:
    """Fit rows by restarts, and by local search, in about the same time."""
    X, k = rows_for(name, divergence)
    fits: dict[str, Any] = {"restarts": {"n_init": RESTARTS}, "search": {"n_init": 1, "refine": "local-search"}}

    def fitted(way: str) -> tuple[float, Any]:
        options = {"init": "random-partition", "random_state": seed, "n_threads": 1} | fits[way]
        return timed(ONMF(k, beta_loss=DIVERGENCES[divergence][1], **options).fit, X, clock=process_time)

    found = {way: fitted(way) for way in ("search", *fits)}  # the first one warms up
    slow, quick = sorted(found, key=lambda way: -found[way][0])
    runs = int(fits[quick]["n_init"] * found[slow][0] / found[quick][0])
    if runs > fits[quick]["n_init"]:
        fits[quick]["n_init"] = runs
        found[quick] = fitted(quick)
    record: Record = {"set": name, "divergence": divergence, "seed": seed, "rows": X.shape[0], "clusters": k}
    for way, (spent, model) in found.items():
        record[way] = {"runs": fits[way]["n_init"], "seconds": spent, "objective": model.reconstruction_err_}
    return record


def run(sets: tuple[str, ...] = SETS, seeds: int = 3, out: Path = Path("docs/optima")) -> None:
    """Measure what is missing, and write the table."""
    store = Store(out / "search.json", ("set", "divergence", "seed"))
    there = available("documents", "hyperspectral", "cells")
    for name in sets:
        if name not in there and not name.startswith(MADE):
            continue
        for divergence in DIVERGENCES:
            if divergence == "itakura-saito" and name not in available("hyperspectral"):
                continue  # these rows have zeros
            for seed in range(seeds):
                if (name, divergence, seed) not in store:
                    store.add(measure(name, divergence, seed))
    publish(out / "search.md", summary(store.records))


def summary(records: list[Record]) -> list[str]:
    """Return the table."""
    rows, ratios = [], []
    for name, divergence in dict.fromkeys((record["set"], record["divergence"]) for record in records):
        own = [record for record in records if (record["set"], record["divergence"]) == (name, divergence)]
        cells = []
        for way in ("restarts", "search"):
            runs, seconds = (np.mean([record[way][key] for record in own]) for key in ("runs", "seconds"))
            cells.append(f"{runs:.0f} in {seconds:.2g} s")
        ratios.append([record["search"]["objective"] / record["restarts"]["objective"] - 1 for record in own])
        lower = 100 * np.array(ratios[-1])
        first = f"{name} ({own[0]['rows']:,} × {own[0]['clusters']})"
        rows.append([first, DIVERGENCES[divergence][0], *cells, f"{lower.mean():+.2f} %", f"{lower.max():+.2f} %"])
    means = 100 * np.array([np.mean(each) for each in ratios])
    columns = [
        "data (rows × clusters)",
        "divergence",
        "restarts",
        "with local search",
        "objective",
        "worst of the seeds",
    ]
    found = (
        f"The median row is {np.median(means):+.2f} %; the objective is lower on {np.count_nonzero(means < -0.005)} of "
    )
    found += f"{len(means)} rows, within 0.005 % on {np.count_nonzero(np.abs(means) <= 0.005)}, and higher on "
    return [
        *table(columns, rows, "llrrrr"),
        "",
        f"{found}{np.count_nonzero(means > 0.005)}, by {means.max():.2f} % at most.",
    ]
