"""A run from a bisection against a run from a random partition, both with local search, splits and merges.

Prints, for each document collection and each view of each set of cells that is at hand, the objective of a run from a
bisection relative to that of a run from a random partition, and the ratio of their times. Runs on cells have the
iterations before the local search that :mod:`onmf.cells` gives them.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from onmf import ONMF
from onmf.cells.genes import N_TOP_GENES, NAMES, deviances, top_genes, transform
from onmf.cells.kind import AFTER_BISECTION, BEFORE_SEARCH
from onmf.cells.matrix import columns_of

from .data import available, load
from .measure import timed

THREADS = 2
ITERATIONS = {
    "documents": {"random-partition": 100, "bisection": 100},
    "cells": {"random-partition": BEFORE_SEARCH, "bisection": AFTER_BISECTION},
}


def views_of(kind: str, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, counts and classes: of a collection, or of each view of a set of cells."""
    X, y = load(name)
    if kind == "documents":
        yield name, X, y
        return
    for view in NAMES:
        genes = top_genes(deviances(X, [view])[view], N_TOP_GENES)
        yield f"{name}, {view}", transform(view, columns_of(X, genes)), y


def fitted(X: Any, k: int, init: str, max_iter: int, seed: int) -> tuple[float, float]:
    """Fit once. → objective, seconds"""
    options = {"refine": "local-search", "random_state": seed, "n_threads": THREADS}
    spent, model = timed(ONMF(k, init=init, max_iter=max_iter, **options).fit, X)
    return model.reconstruction_err_, spent


def run(parts: tuple[str, ...] = tuple(ITERATIONS), sets: tuple[str, ...] = (), seeds: int = 3) -> None:
    """Measure and print."""
    for kind in parts:
        gains, ratios = [], []
        chosen = [name for name in available(kind) if name in (sets or available(kind))]
        for name, X, y in itertools.chain.from_iterable(views_of(kind, name) for name in chosen):
            k, found = len(np.unique(y)), []
            for init, most in ITERATIONS[kind].items():
                fitted(X, k, init, most, 0)
                found.append(np.mean([fitted(X, k, init, most, seed) for seed in range(seeds)], axis=0))
            gains.append(100 * (found[1][0] / found[0][0] - 1))
            ratios.append(found[1][1] / found[0][1])
            print(f"{name:24} k = {k:3}: objective {gains[-1]:+.2f} %, time × {ratios[-1]:.2f}", flush=True)
        if gains:
            mean = f"objective {np.mean(gains):+.2f} %, time × {np.exp(np.mean(np.log(ratios))):.2f}"
            print(f"{kind}: {mean} on average\n", flush=True)
