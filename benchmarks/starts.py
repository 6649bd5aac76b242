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
    for view in NAMES if kind == "cells" else ():
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
        ratios = []
        chosen = [name for name in available(kind) if name in (sets or available(kind))]
        for name, X, y in itertools.chain.from_iterable(views_of(kind, name) for name in chosen):
            k = len(np.unique(y))
            fits = [[fitted(X, k, *own, seed) for seed in (0, *range(seeds))] for own in ITERATIONS[kind].items()]
            random, bisection = (np.mean(own[1:], axis=0) for own in fits)  # the first one warms up
            ratios.append(bisection / random)
            print(f"{name:24} k = {k:3}: {compared(*ratios[-1])}", flush=True)
        if ratios:
            gains, times = np.transpose(ratios)
            print(f"{kind}: {compared(gains.mean(), np.exp(np.log(times).mean()))} on average\n", flush=True)


def compared(objective: float, time: float) -> str:
    """Return the ratios of two runs in words."""
    return f"objective {100 * (objective - 1):+.2f} %, time × {time:.2f}"
