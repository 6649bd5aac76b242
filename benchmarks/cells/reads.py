"""Reads instead of molecules: which view finds the classes when counts are amplified, and which one is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

from onmf.cells.fit import fit_counts

from .sets import load

MEAN, SHAPE = 20.0, 0.3
"""Mean number of reads of a molecule, and shape of the gamma distribution of its amplification."""

GENES = 1.0
"""Standard deviation of the logarithm of a gene's own amplification: long genes are read more often."""

VIEWS = ("counts", "logs", "auto")


def amplified(X: csr_array, seed: int) -> csr_array:
    """Turn molecules into reads: each is copied a random number of times, and copies are drawn."""
    rng = np.random.default_rng(seed)
    genes = rng.lognormal(0, GENES, X.shape[1])
    copies = rng.gamma(SHAPE * X.data.astype(np.float64)) / SHAPE
    reads = rng.poisson(MEAN * genes[X.indices] * copies).astype(np.int32)
    found = csr_array((reads, X.indices.copy(), X.indptr.copy()), shape=X.shape)
    found.eliminate_zeros()
    return found


def measure_reads(sets: Sequence[str], seeds: int) -> Iterator[list[dict[str, Any]]]:
    """Cluster molecules and reads of every set in every view, and yield and print the records of each set."""
    for name in sets:
        X, y = load(name)
        k = len(np.unique(y))
        records = []
        for seed in range(seeds):
            for kind, counts in (("molecules", X), ("reads", amplified(X, seed))):
                for view in VIEWS:
                    fit = fit_counts(counts, k, view=view, random_state=seed)
                    ari = float(adjusted_rand_score(y, fit.model.labels_))
                    about = {"set": name, "kind": kind, "view": view, "seed": seed}
                    records.append(about | {"ari": ari, "chosen": fit.view.name})
                    print(f"{name:16} {kind:10} {view:8} {seed}  {ari:.3f}  {fit.view.name}", flush=True)
        yield records


def to_markdown(records: list[dict[str, Any]]) -> str:
    """Return the table."""
    lines = ["| set | counts | logs | chosen |", "|---|---:|---:|---:|"]
    for kind in ("molecules", "reads"):
        means: dict[str, list[float]] = {view: [] for view in VIEWS}
        for name in dict.fromkeys(record["set"] for record in records):
            own = [record for record in records if (record["set"], record["kind"]) == (name, kind)]
            aris = {view: np.mean([record["ari"] for record in own if record["view"] == view]) for view in VIEWS}
            picked = [record["chosen"] for record in own if record["view"] == "auto"]
            names = ", ".join(f"{view} {picked.count(view)} ×" for view in VIEWS if view in picked)
            lines.append(
                f"| {name}, {kind} | {aris['counts']:.2f} | {aris['logs']:.2f} | {aris['auto']:.2f} ({names}) |"
            )
            for view in VIEWS:
                means[view].append(aris[view])
        lines.append(f"| mean, {kind} | " + " | ".join(f"{np.mean(means[view]):.2f}" for view in VIEWS) + " |")
    return "\n".join(lines) + "\n"
