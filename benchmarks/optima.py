"""Better optima: restarts, local search, consensus and views against the paper's start, k-means on tf-idf, and sIB.

    python -m benchmarks.optima [--seeds 5] [--sets NAME ...] [--cpu] [--out docs/optima]

Every cell is one fit of one of the paper's document sets: the objective D(X, WH) of its labels, accuracy, NMI and
seconds. No method sees the classes. With --cpu, the seconds are those of the processor divided by the threads, for a
machine on which other programs run. Cells are kept in results.json, and those in the file are not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from scipy.special import xlogy
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import normalized_mutual_info_score

from onmf import ONMF
from onmf.datasets import list_datasets, load_docstrings, load_documents
from onmf.io.files import write_whole
from onmf.metrics import clustering_accuracy
from onmf.text import consensus_of_views

from .measure import rest

Labels = Callable[[Any, int, int], Any]
THREADS = 2


def paper(X: Any, k: int, seed: int) -> Any:
    """Run KL-ONMF as in the paper: one start, from SNPA."""
    return ONMF(k, n_threads=THREADS).fit_predict(X)


def restarts(X: Any, k: int, seed: int) -> Any:
    """Take the best of ten random partitions, each with local search."""
    model = ONMF(k, init="random-partition", n_init=10, refine="local-search", random_state=seed, n_threads=THREADS)
    return model.fit_predict(X)


def consensus(X: Any, k: int, seed: int) -> Any:
    """Take a consensus of thirty random partitions, all with local search."""
    return ONMF(k, init="consensus", refine="local-search", random_state=seed, n_threads=THREADS).fit_predict(X)


def views(X: Any, k: int, seed: int) -> Any:
    """Take a consensus of three views of the words: 24 runs, all with local search."""
    return consensus_of_views(X, k, random_state=seed, n_threads=THREADS).labels_


def kmeans(X: Any, k: int, seed: int) -> Any:
    """Run k-means on tf-idf, the best of ten."""
    return KMeans(k, n_init=10, random_state=seed).fit_predict(TfidfTransformer().fit_transform(X))


def sib(X: Any, k: int, seed: int) -> Any:
    """Run the sequential information bottleneck, the best of ten."""
    from sib import SIB

    data = csr_matrix(X.astype(np.int64))
    data.indices, data.indptr = data.indices.astype(np.int32), data.indptr.astype(np.int32)
    options = {"n_init": 10, "max_iter": 15, "uniform_prior": False, "n_jobs": THREADS}
    return np.asarray(SIB(n_clusters=k, random_state=seed, **options).fit(data).labels_)


METHODS: dict[str, tuple[str, Labels]] = {
    "paper": ("KL-ONMF, the paper's start", paper),
    "restarts": ("KL-ONMF, 10 restarts + local search", restarts),
    "consensus": ("KL-ONMF, consensus + local search", consensus),
    "views": ("KL-ONMF, consensus of views", views),
    "sib": ("sIB, 10 restarts", sib),
    "kmeans": ("k-means on tf-idf, 10 restarts", kmeans),
}

DOCSTRINGS = "docstrings"
"""SciPy's docstrings, which are measured only if they are named in ``--sets``: no method was chosen on them."""


def objective_of(X: Any, labels: Any, k: int) -> float:
    """Compute D_KL(X, WH) of labels with their optimal centroids and scales."""
    n = X.shape[0]
    S = (csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k)).T @ X).toarray()
    T, s, x = S.sum(axis=1), np.asarray(X.sum(axis=1)).ravel(), X.data.astype(float)
    return float(xlogy(x, x).sum() - xlogy(s, s).sum() - xlogy(S, S).sum() + xlogy(T, T).sum())


def measure(name: str, method: str, seed: int, *, cpu: bool = False) -> dict[str, Any]:
    """Run and measure one fit."""
    clock, share = (process_time, THREADS) if cpu else (perf_counter, 1)
    documents = load_docstrings() if name == DOCSTRINGS else load_documents(name)
    X, k = documents.X.astype(np.float64), len(np.unique(documents.y))
    rest()
    began = clock()
    labels = METHODS[method][1](X, k, seed)
    spent = (clock() - began) / share
    return {
        "set": name,
        "documents": X.shape[0],
        "method": method,
        "seed": seed,
        "objective": objective_of(X, labels, k),
        "accuracy": clustering_accuracy(documents.y, labels),
        "nmi": float(normalized_mutual_info_score(documents.y, labels)),
        "seconds": spent,
    }


def summary(cells: list[dict[str, Any]]) -> str:
    """Return the tables in Markdown."""
    names = sorted({c["set"] for c in cells}, key=str.lower)
    methods = [m for m in METHODS if any(c["method"] == m for c in cells)]
    documents = {c["set"]: c["documents"] for c in cells}

    def values(name: str, method: str, key: str) -> Any:
        return np.array([c[key] for c in cells if (c["set"], c["method"]) == (name, method)])

    seeds = max(c["seed"] for c in cells) + 1
    lines = [f"Means over {seeds} seeds, ± their standard deviation; times on {THREADS} threads.", ""]
    lines += ["| method | accuracy, by documents | mean NMI | objective against sIB | seconds, all sets |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for method in methods:
        measured = [n for n in names if len(values(n, method, "nmi"))]
        weights = np.array([documents[n] for n in measured])
        accuracy = np.average([values(n, method, "accuracy").mean() for n in measured], weights=weights)
        nmi = np.mean([values(n, method, "nmi").mean() for n in measured])
        spent = sum(values(n, method, "seconds").mean() for n in measured)
        both = [n for n in measured if len(values(n, "sib", "nmi"))]
        ratio = [values(n, method, "objective").mean() / values(n, "sib", "objective").mean() - 1 for n in both]
        against = f"{100 * np.mean(ratio):+.3f} %" if both else ""
        lines.append(f"| {METHODS[method][0]} | {100 * accuracy:.1f} % | {nmi:.3f} | {against} | {spent:.1f} |")
    for key, title in (("accuracy", "Accuracy, %"), ("nmi", "NMI × 100")):
        lines += ["", f"**{title}**", "", "| set | " + " | ".join(METHODS[m][0] for m in methods) + " |"]
        lines += ["|---|" + "---:|" * len(methods)]
        for name in names:
            row = [f"{100 * v.mean():.1f} ± {100 * v.std():.1f}" for v in (values(name, m, key) for m in methods)]
            lines.append(f"| {name} | " + " | ".join(row) + " |")
    lines += ["", "**Objective against sIB's, and seconds**", ""]
    lines += ["| set | " + " | ".join(METHODS[m][0] for m in methods) + " |", "|---|" + "---:|" * len(methods)]
    for name in names:
        row = []
        for method in methods:
            ratio = values(name, method, "objective").mean() / values(name, "sib", "objective").mean() - 1
            row.append(f"{100 * ratio:+.2f} %, {values(name, method, 'seconds').mean():.2f} s")
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def save(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


def main() -> None:
    """Measure the missing cells, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=[d.name for d in list_datasets() if d.kind == "documents"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--cpu", action="store_true", help="count the time of the processor")
    parser.add_argument("--out", type=Path, default=Path("docs/optima"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.json"
    cells = json.loads(results.read_text()) if results.exists() else []
    done = {(c["set"], c["method"], c["seed"]) for c in cells}
    available = {DOCSTRINGS, *(d.name for d in list_datasets() if d.available)}
    for method in METHODS:  # compile and read from disk before the measurements
        if method in options.methods:
            measure(min(available & set(options.sets), key=str.lower), method, 0)
    for name in options.sets:
        for seed in range(options.seeds):
            for method in options.methods:
                if name in available and (name, method, seed) not in done and (seed == 0 or method != "paper"):
                    cells.append(measure(name, method, seed, cpu=options.cpu))
                    figures = "  ".join(f"{cells[-1][key]:.6g}" for key in ("objective", "accuracy", "nmi", "seconds"))
                    print(f"{name:10} {method:16} {seed}  {figures}", flush=True)
                    save(results, json.dumps(cells, indent=1))
    text = summary(cells)
    save(options.out / "optima.md", text)
    print(text)


if __name__ == "__main__":
    main()
