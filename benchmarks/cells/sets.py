"""Measures every contender on every set, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from benchmarks.measure import in_child, peak_memory, rest
from onmf.datasets import list_datasets, load_cells, make_counts

from .contenders import CONTENDERS

TINY = "made"
"""The set that ``--quick`` uses."""


def available_sets() -> list[str]:
    """Return the names of the sets on this machine."""
    return [info.name for info in list_datasets() if info.kind == "cells" and info.available]


def load(name: str) -> tuple[csr_array, Any]:
    """Return the counts and classes of a set."""
    if name == TINY:
        made = make_counts(150, 300, 3, overlap=0.2, random_state=0)
        return made.X, made.y
    return load_cells(name, return_X_y=True)


def measure(name: str, contender: str, seeds: int) -> list[dict[str, Any]]:
    """Run one contender on one set, once untimed and then with every seed.

    The time is that of the whole way from counts to labels. It does not include the search for the resolution of
    Leiden, which is given separately.
    """
    own = CONTENDERS[contender]
    X, y = load(name)
    k = len(np.unique(y))
    own.labels(X, k, 0)
    measured = []
    for seed in range(seeds if own.random else 1):
        rest()
        began = perf_counter()
        setting = None if own.setting is None else own.setting(X, k, seed)
        searched = perf_counter() - began
        rest()
        began = perf_counter()
        labels = own.labels(X, k, seed) if setting is None else own.labels(X, k, seed, setting)
        spent = perf_counter() - began
        record = {
            "set": name,
            "contender": contender,
            "seed": seed,
            "clusters": len(np.unique(labels)),
            "ari": float(adjusted_rand_score(y, labels)),
            "nmi": float(normalized_mutual_info_score(y, labels)),
            "seconds": spent,
        }
        measured.append(record if setting is None else record | {"search": searched, "resolution": setting})
    return [record | {"gigabytes": peak_memory()} for record in measured]


def measure_all(sets: Sequence[str], contenders: Sequence[str], seeds: int) -> Iterator[list[dict[str, Any]]]:
    """Measure every contender on every set, and yield and print the records of each pair."""
    for name in sets:
        for contender in contenders:
            records = in_child(measure, name, contender, seeds)
            for record in records:
                figures = "  ".join(f"{record[key]:.3f}" for key in ("ari", "nmi", "seconds", "gigabytes"))
                print(f"{name:16} {contender:10} {record['seed']}  {record['clusters']:3}  {figures}", flush=True)
            yield records
