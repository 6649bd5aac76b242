"""A run from a bisection against a run from a random partition, both with local search, splits and merges.

    python -m benchmarks.starts [--seeds 3]

Prints, for each document collection and each view of each set of cells that is at hand, the objective of a run from a
bisection relative to that of a run from a random partition, and the ratio of their times. Runs on cells have the
iterations before the local search that :mod:`onmf.cells` gives them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from onmf import ONMF
from onmf.cells.fit import AFTER_BISECTION, BEFORE_SEARCH
from onmf.cells.genes import N_TOP_GENES, columns_of, deviances, top_genes
from onmf.cells.views import NAMES, transform
from onmf.datasets import list_datasets, load_cells, load_documents

THREADS = 2
OTHER, OWN = "random-partition", "bisection"


def documents() -> Iterator[tuple[str, Any, int, dict[str, int]]]:
    """Yield name, counts, number of classes and iterations for each collection."""
    for info in list_datasets():
        if info.kind == "documents" and info.path.exists():
            docs = load_documents(info.name)
            yield info.name, docs.X, len(np.unique(docs.y)), {OTHER: 100, OWN: 100}


def cells() -> Iterator[tuple[str, Any, int, dict[str, int]]]:
    """Yield the same for each view of each set of cells."""
    for info in list_datasets():
        if info.kind == "cells" and info.path.exists():
            found = load_cells(info.name)
            for name in NAMES:
                (deviance,) = deviances(found.X, [partial(transform, name)])
                X = transform(name, columns_of(found.X, top_genes(deviance, N_TOP_GENES)))
                yield f"{info.name}, {name}", X, len(np.unique(found.y)), {OTHER: BEFORE_SEARCH, OWN: AFTER_BISECTION}


def run(X: Any, k: int, init: str, max_iter: int, seed: int) -> tuple[float, float]:
    """Fit once. → objective, seconds"""
    began = perf_counter()
    model = ONMF(k, init=init, max_iter=max_iter, refine="local-search", random_state=seed, n_threads=THREADS).fit(X)
    return model.reconstruction_err_, perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts")
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    warnings.filterwarnings("ignore", category=UserWarning)  # fits before a local search need not converge
    for sets in (documents, cells):
        gains, ratios = [], []
        for name, X, k, iterations in sets():
            found = {}
            for init, most in iterations.items():
                run(X, k, init, most, 0)
                found[init] = np.mean([run(X, k, init, most, seed) for seed in seeds], axis=0)
            gains.append(100 * (found[OWN][0] / found[OTHER][0] - 1))
            ratios.append(found[OWN][1] / found[OTHER][1])
            print(f"{name:24} k = {k:3}: objective {gains[-1]:+.2f} %, time × {ratios[-1]:.2f}", flush=True)
        if gains:
            mean = f"objective {np.mean(gains):+.2f} %, time × {np.exp(np.mean(np.log(ratios))):.2f}"
            print(f"{sets.__name__}: {mean} on average\n", flush=True)


if __name__ == "__main__":
    main()
