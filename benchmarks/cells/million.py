"""A million cells: time and memory from a matrix on disk to labels, each contender in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz, vstack
from sklearn.metrics import adjusted_rand_score

from benchmarks.measure import in_child, peak_memory

from .contenders import CONTENDERS

CLUSTERS, GENES = 20, 2_000
BLOCK = 10_000
"""Cells that are generated at a time."""

DEPTH, DISPERSION = 180.0, 2.0
"""Median counts of a cell, and θ of their negative binomial distribution."""

WARM = 10_000
"""Cells on which a contender runs untimed: enough to compile and load all that it needs for many cells."""

MINUTES, GIGABYTES = 15.0, 20.0
"""Limits of one contender."""


def generate(n: int, seed: int = 0) -> tuple[csr_array, Any]:
    """Generate counts of cells, gamma-Poisson and about 6 % of them not zero, and the clusters of the cells.

    A tenth of the genes differ between a cluster and the others.
    """
    rng = np.random.default_rng(seed)
    common = rng.lognormal(0, 1.5, GENES)
    changes = np.where(rng.random((CLUSTERS, GENES)) < 0.1, rng.lognormal(0, 1.0, (CLUSTERS, GENES)), 1.0)
    profiles = common * changes
    profiles /= profiles.sum(axis=1, keepdims=True)
    y = rng.integers(CLUSTERS, size=n)
    blocks = []
    for start in range(0, n, BLOCK):
        own = y[start : start + BLOCK]
        depths = DEPTH * rng.lognormal(0, 0.5, (len(own), 1))
        means = (depths * profiles[own]).astype(np.float32)
        means *= rng.standard_gamma(DISPERSION, means.shape, dtype=np.float32) / np.float32(DISPERSION)
        blocks.append(csr_array(rng.poisson(means).astype(np.int32)))
    return csr_array(vstack(blocks, format="csr")), y


def measure(folder: str, contender: str) -> dict[str, Any]:
    """Run one contender, after a warm-up on few cells."""
    X, y = csr_array(load_npz(Path(folder) / "counts.npz")), np.load(Path(folder) / "clusters.npy")
    labels_of = CONTENDERS[contender].labels
    labels_of(X[:WARM], CLUSTERS, 0)
    before = peak_memory()
    began = perf_counter()
    labels = labels_of(X, CLUSTERS, 0)
    spent = perf_counter() - began
    found = {"clusters": len(np.unique(labels)), "ari": float(adjusted_rand_score(y, labels))}
    return found | {"seconds": spent, "gigabytes": peak_memory(), "gigabytes before": before}


def measure_cells(n: int, contenders: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Measure contenders on n generated cells. One that fails has a sentence instead of figures."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = generate(n)
        about = {"cells": n, "genes": GENES, "nonzeros": int(X.nnz)}
        save_npz(Path(folder) / "counts.npz", X, compressed=False)
        np.save(Path(folder) / "clusters.npy", y)
        del X
        for contender in contenders:
            try:
                found = in_child(measure, folder, contender, minutes=MINUTES, gigabytes=GIGABYTES)
            except (MemoryError, TimeoutError) as error:
                found = {"failed": str(error)}
            record = about | {"contender": contender} | found
            print(record, flush=True)
            yield [record]


def to_markdown(records: list[dict[str, Any]]) -> str:
    """Return the table."""
    lines = ["| cells × genes, nonzeros | | seconds | peak memory, GB | ARI |", "|---|---|---:|---:|---:|"]
    for r in records:
        size = f"{r['cells']:,} × {r['genes']:,}, {r['nonzeros'] / 1e6:.0f} M"
        figures = (
            f"{r['failed']} | | "
            if "failed" in r
            else f"{r['seconds']:.0f} | {r['gigabytes']:.1f} | {r['ari']:.2f}"
            + (f" ({r['clusters']} clusters)" if r["clusters"] != CLUSTERS else "")
        )
        lines.append(f"| {size} | {CONTENDERS[r['contender']].title} | {figures} |")
    return "\n".join(lines) + "\n"
