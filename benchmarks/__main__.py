"""One iteration of ONMF against one of scikit-learn's KMeans, on the same data from the same centroids.

The contenders take turns in one process, warm; what counts is the ratio of their medians, since machines are noisy.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF
from onmf.datasets import load_docstrings

ITERATIONS = 10


def corpora() -> dict[str, csr_array]:
    """The embedded corpus, and NG20 where ``ONMF_DATA`` has it."""
    found = {"docstrings": load_docstrings().X.astype(np.float64)}
    path = Path(os.environ.get("ONMF_DATA", "."), "documents", "NG20.npz")
    if path.exists():
        with np.load(path) as file:
            found["NG20"] = csr_array(
                (file["data"].astype(np.float64), file["indices"].astype(np.int32), file["indptr"].astype(np.int32)),
                shape=tuple(file["shape"]),
            )
    return found


def seconds_an_iteration(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds an iteration of each contender, the contenders taking turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, fit in contenders.items():
            began = perf_counter()
            n_iter = fit().n_iter_
            if repeat:  # the first turn warms up
                times[name].append((perf_counter() - began) / n_iter)
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clusters", type=int, nargs="+", default=[20, 100])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of iterations, on purpose
    for name, X in corpora().items():
        for k in arguments.clusters:
            start = X[np.random.default_rng(0).choice(X.shape[0], k, replace=False)].toarray() + 1e-3
            options = {"init": start, "max_iter": ITERATIONS, "tol": 0}
            contenders = {
                "KMeans": lambda X=X, k=k, o=options: KMeans(k, n_init=1, algorithm="lloyd", **o).fit(X),
                "KL-ONMF": lambda X=X, k=k, o=options: ONMF(k, **o).fit(X),
                "Fro-ONMF": lambda X=X, k=k, o=options: ONMF(k, beta_loss="frobenius", **o).fit(X),
            }
            times = seconds_an_iteration(contenders, arguments.repeats)
            print(f"{name}, {X.shape[0]} × {X.shape[1]}, {X.nnz} nonzeros, {k} clusters")
            for contender, value in times.items():
                ratio = times["KMeans"] / value
                print(f"  {contender:9} {1e3 * value:8.2f} ms an iteration   {ratio:5.2f} × the speed of KMeans")


if __name__ == "__main__":
    main()
