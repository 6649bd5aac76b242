"""onmf or another method? Accuracy, NMI, time and memory of both on the paper's document sets.

    python -m benchmarks.peers [--seeds 2] [--sets NAME ...] [--methods NAME ...] [--out docs/compare]

Each method runs on each set in a process of its own, on one thread. It is timed by the processor, after an untimed fit
of a small set, so that neither imports nor compilation nor other programs count. Memory is how far the process grows
during the fit, beyond the counts it holds. The settings are those that a user would choose without labels. Each fit is
a line of results.jsonl, and what is in that file is not measured again.
"""

from __future__ import annotations

import argparse
import json
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from onmf import ONMF
from onmf.datasets import list_datasets, load_documents, make_counts
from onmf.metrics import clustering_accuracy
from onmf.text.effort import choose_effort

from .measure import in_child, peak_memory
from .optima import save

LIMIT = 900
"""Seconds of the processor after which a fit is given up."""

STARTS = 10
"""Restarts of the methods that depend on their start."""

SMALL = ("tr23", "tr11", "tr45", "tr41", "hitech", "k1b", "ng3sim", "la2", "la1", "reviews", "la12", "classic")
SETS = (*SMALL, "ohscal", "NG20")
"""The document sets, the quickest first."""

MADE = "made-"
"""Generated sets are named after their number of clusters: made-3."""


def kmeans(X: Any, k: int, seed: int) -> Any:
    """Run k-means, the best of ten."""
    return KMeans(k, n_init=STARTS, random_state=seed).fit_predict(X)


def kmeans_tfidf(X: Any, k: int, seed: int) -> Any:
    """Run k-means on tf-idf, the best of ten."""
    return kmeans(TfidfTransformer().fit_transform(X), k, seed)


def minibatch(X: Any, k: int, seed: int) -> Any:
    """Run k-means on tf-idf in small batches, from the best of ten starts."""
    model = MiniBatchKMeans(k, n_init=STARTS, random_state=seed)
    return model.fit_predict(TfidfTransformer().fit_transform(X))


def spherical(X: Any, k: int, seed: int) -> Any:
    """Run spherical k-means on tf-idf, the best of ten."""
    model = ONMF(k, beta_loss="cosine", init="++", n_init=STARTS, random_state=seed, n_threads=1)
    return model.fit_predict(TfidfTransformer().fit_transform(X))


def lda(X: Any, k: int, seed: int) -> Any:
    """Run latent Dirichlet allocation."""
    return LatentDirichletAllocation(k, random_state=seed).fit_transform(X).argmax(axis=1)


def nmf_tfidf(X: Any, k: int, seed: int) -> Any:
    """Run NMF of tf-idf under the Frobenius norm."""
    model = NMF(k, random_state=seed)
    weights = model.fit_transform(TfidfTransformer().fit_transform(X))
    return shares(model, weights).argmax(axis=1)


def shares(model: NMF, weights: Any) -> Any:
    """Return the weights of topics that sum to one: those of scikit-learn have no scale of their own."""
    return weights * model.components_.sum(axis=1)


def nmf(X: Any, k: int, seed: int) -> Any:
    """Run NMF of counts under Kullback–Leibler."""
    model = NMF(k, solver="mu", beta_loss="kullback-leibler", random_state=seed)
    return shares(model, model.fit_transform(X)).argmax(axis=1)


def sib(X: Any, k: int, seed: int) -> Any:
    """Run the sequential information bottleneck, the best of ten."""
    from sib import SIB

    counts = csr_matrix(X.astype(np.int64))  # its compiled part takes 64-bit counts with 32-bit indices only
    counts.indices, counts.indptr = counts.indices.astype(np.int32), counts.indptr.astype(np.int32)
    model = SIB(n_clusters=k, n_init=STARTS, max_iter=15, uniform_prior=False, n_jobs=1, random_state=seed)
    return np.asarray(model.fit(counts).labels_)


def frobenius(X: Any, k: int, seed: int) -> Any:
    """Run Fro-ONMF as in the paper."""
    return ONMF(k, beta_loss="frobenius", n_threads=1).fit_predict(X)


def quick(X: Any, k: int, seed: int) -> Any:
    """Run KL-ONMF as in the paper."""
    return ONMF(k, n_threads=1).fit_predict(X)


def best(X: Any, k: int, seed: int) -> Any:
    """Run what ``onmf documents`` runs on these counts."""
    return choose_effort(X, k, {"n_threads": 1, "random_state": seed}).fit(X, k).labels_


@dataclass(frozen=True)
class Method:
    """A way to cluster documents.

    Attributes
    ----------
    title : str
        Its name in the tables.
    labels : callable
        Takes counts, number of clusters and seed, and returns labels.
    settings : str
        What it runs.
    random : bool
        Whether the labels depend on the seed.
    """

    title: str
    labels: Callable[[Any, int, int], Any]
    settings: str
    random: bool = True


METHODS = {
    "best": Method("onmf best", best, "the consensus of views that `onmf documents` runs by default"),
    "quick": Method("onmf quick", quick, "`ONMF(k)`, the paper's algorithm; `onmf documents --quick`", random=False),
    "frobenius": Method("onmf, Frobenius", frobenius, '`ONMF(k, beta_loss="frobenius")`', random=False),
    "sib": Method(
        "sIB",
        sib,
        f"`SIB(k, n_init={STARTS}, max_iter=15, uniform_prior=False)` of the package sib-clustering: the sequential "
        "information bottleneck",
    ),
    "spherical": Method(
        "spherical k-means",
        spherical,
        f'scikit-learn has none, so this is onmf\'s: `ONMF(k, beta_loss="cosine", init="++", n_init={STARTS})`, after '
        "`TfidfTransformer()`",
    ),
    "kmeans": Method("KMeans, counts", kmeans, f"`KMeans(k, n_init={STARTS})`"),
    "kmeans-tfidf": Method("KMeans, tf-idf", kmeans_tfidf, "the same, after `TfidfTransformer()`"),
    "minibatch": Method(
        "MiniBatchKMeans", minibatch, f"`MiniBatchKMeans(k, n_init={STARTS})`, after `TfidfTransformer()`"
    ),
    "nmf-tfidf": Method(
        "NMF, tf-idf", nmf_tfidf, "`NMF(k)`, after `TfidfTransformer()`; the cluster is the largest topic", random=False
    ),
    "nmf": Method(
        "NMF, KL",
        nmf,
        '`NMF(k, solver="mu", beta_loss="kullback-leibler")` on counts; the cluster is the largest topic',
        random=False,
    ),
    "lda": Method("LDA", lda, "`LatentDirichletAllocation(k)` on counts; the cluster is the largest topic"),
}


def load(name: str) -> tuple[csr_array, Any]:
    """Return the counts of a set in float64, and its classes."""
    if name.startswith(MADE):
        k = int(name.removeprefix(MADE))
        documents = make_counts(120, 200, k, length=80, overlap=0.2, random_state=0)
    else:
        documents = load_documents(name)
    return documents.X.astype(np.float64), documents.y


def measure(name: str, method: str, seeds: Sequence[int], limit: float = LIMIT) -> list[dict[str, Any]]:
    """Run and measure a method on a set, once for each seed. Run it in a fresh process."""
    labels_of = METHODS[method].labels
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small, _ = load(f"{MADE}3")
        labels_of(small, 3, 0)  # imports and compiles
        X, y = load(name)
        return [measure_one(name, method, seed, X, y, limit) for seed in seeds]


def measure_one(name: str, method: str, seed: int, X: csr_array, y: Any, limit: float) -> dict[str, Any]:
    """Run and measure one fit."""
    k = len(np.unique(y))
    record: dict[str, Any] = {"set": name, "documents": X.shape[0], "method": method, "seed": seed}
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts again from here
    before, began = peak_memory(), process_time()
    previous = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            labels = METHODS[method].labels(X, k, seed)
    except TimeoutError:
        return record | {"over": limit}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    return record | {
        "accuracy": clustering_accuracy(y, labels),
        "nmi": float(normalized_mutual_info_score(y, labels)),
        "seconds": process_time() - began,
        "megabytes": 1e3 * (peak_memory() - before),
        "converged": not any(issubclass(warning.category, ConvergenceWarning) for warning in caught),
    }


def give_up(*_: Any) -> None:
    """End a fit that has used up its time."""
    raise TimeoutError


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the missing fits, and write the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("docs/compare"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    records = read(results)
    done = {(record["set"], record["method"], record["seed"]) for record in records}
    available = {info.name for info in list_datasets() if info.available}
    for name in options.sets:
        if name not in available and not name.startswith(MADE):
            print(f"{name} is missing: download it with 'onmf fetch {name}'")
            continue
        for method in options.methods:
            seeds = range(options.seeds if METHODS[method].random else 1)
            missing = [seed for seed in seeds if (name, method, seed) not in done]
            for record in in_child(measure, name, method, missing) if missing else []:
                print(json.dumps(record), flush=True)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    write(read(results), options.out)


def read(results: Path) -> list[dict[str, Any]]:
    """Return the records of a file, if there is one."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def write(records: list[dict[str, Any]], folder: Path) -> None:
    """Write the tables and the figure."""
    tables = Tables(records)
    for name, lines in (("averages", tables.averages()), ("settings", tables.settings()), ("sets", tables.by_set())):
        save(folder / f"{name}.md", "\n".join(lines) + "\n")
    draw(tables, folder / "accuracy-time.png")
    print("\n".join(tables.averages()))


class Tables:
    """Records by set and method, as tables in Markdown.

    Parameters
    ----------
    records : list of dict
        From :func:`measure`.
    """

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records
        self.documents = dict(sorted(((r["set"], r["documents"]) for r in records), key=lambda pair: pair[1]))
        self.methods = [name for name in METHODS if any(record["method"] == name for record in records)]

    def values(self, name: str, method: str, key: str) -> Any:
        """Return the values of all seeds; none if there is no fit, or one that was given up."""
        cells = [r for r in self.records if (r["set"], r["method"]) == (name, method)]
        return np.array([] if any("over" in cell for cell in cells) else [cell[key] for cell in cells])

    def typical(self, name: str, method: str, key: str) -> float:
        """Return the mean over seeds, or NaN. Of memory, return the first value: later seeds reuse what it left."""
        values = self.values(name, method, key)
        if len(values) == 0:
            return np.nan
        return float(values[0] if key == "megabytes" else values.mean())

    def over_sets(self, method: str, key: str) -> Any:
        """Return the typical value of each set."""
        return np.array([self.typical(name, method, key) for name in self.documents])

    def accuracy(self, method: str) -> float:
        """Return the accuracy over all documents, in percent."""
        return 100 * float(np.average(self.over_sets(method, "accuracy"), weights=list(self.documents.values())))

    def averages(self) -> Iterator[str]:
        """Yield the table of all sets together."""
        yield "| | accuracy by documents, % | mean accuracy, % | mean NMI | CPU seconds, all sets | most memory, MB |"
        yield "|---|---:|---:|---:|---:|---:|"
        columns = np.array([self.averages_of(method) for method in self.methods]).T
        best = [max(column[np.isfinite(column)], default=None) for column in columns]
        for method in self.methods:
            scores = self.averages_of(method)
            seconds = self.over_sets(method, "seconds").sum()
            memory = self.over_sets(method, "megabytes").max()
            forms = ("{:.1f}", "{:.1f}", "{:.3f}")
            shown = [form.format(score) for form, score in zip(forms, scores, strict=True)]
            marked = [
                f"**{text}**" if score == top else text for text, score, top in zip(shown, scores, best, strict=True)
            ]
            row = [METHODS[method].title, *marked, f"{seconds:.1f}", f"{memory:.0f}"]
            yield f"| {' | '.join(row)} |".replace("nan", "–")

    def averages_of(self, method: str) -> tuple[float, float, float]:
        """Return accuracy by documents, mean accuracy and mean NMI, as they are rounded in the table."""
        mean, nmi = self.over_sets(method, "accuracy").mean(), self.over_sets(method, "nmi").mean()
        return round(self.accuracy(method), 1), round(100 * float(mean), 1), round(float(nmi), 3)

    def settings(self) -> Iterator[str]:
        """Yield what was run, as a list."""
        for method in self.methods:
            seeds = sorted({len(self.values(name, method, "seconds")) for name in self.documents} - {0})
            several = " to ".join(str(n) for n in dict.fromkeys([*seeds[:1], *seeds[-1:]]))
            runs = "One run" if max(seeds, default=1) == 1 else f"{several} seeds"
            yield f"- {METHODS[method].title}: {METHODS[method].settings}. {runs}."

    def by_set(self) -> Iterator[str]:
        """Yield a table of accuracy, NMI and time, with a row for each set."""
        parts = (("accuracy", "Accuracy, %", 100, 1), ("nmi", "NMI × 100", 100, 1), ("seconds", "CPU seconds", 1, 2))
        for key, title, factor, digits in parts:
            yield from ("", f"**{title}**", "")
            yield "| set | documents | " + " | ".join(METHODS[method].title for method in self.methods) + " |"
            yield "|---|---:|" + "---:|" * len(self.methods)
            for name, documents in self.documents.items():
                row = [self.cell(name, method, key, factor, digits) for method in self.methods]
                yield f"| {name} | {documents:,} | " + " | ".join(row) + " |"

    def cell(self, name: str, method: str, key: str, factor: float, digits: int) -> str:
        """Return the mean over seeds and, for scores, their standard deviation."""
        values = factor * self.values(name, method, key)
        if len(values) == 0:
            cells = [r for r in self.records if (r["set"], r["method"]) == (name, method)]
            return f"over {cells[0]['over']:g} s" if cells else "–"
        spread = f" ± {values.std():.{digits}f}" if len(values) > 1 and key != "seconds" else ""
        return f"{values.mean():.{digits}f}{spread}"


def draw(tables: Tables, path: Path) -> None:
    """Draw accuracy against time, with a point for each method."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for method in tables.methods:
        seconds, accuracy = tables.over_sets(method, "seconds").sum(), tables.accuracy(method)
        colour = "#d55e00" if METHODS[method].title.startswith("onmf") else "#0072b2"
        ax.plot(seconds, accuracy, "o", color=colour)
        ax.annotate(
            METHODS[method].title, (seconds, accuracy), (6, 4), textcoords="offset points", fontsize=9, color=colour
        )
    ax.set(xscale="log", xlabel="CPU seconds on one thread, all sets", ylabel="accuracy by documents, %")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(x=0.15, y=0.1)
    ax.grid(color="#e5e5e5", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    main()
