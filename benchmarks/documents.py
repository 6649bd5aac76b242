"""Clusterings of the paper's document sets.

*Peers*: onmf or another method? Accuracy, NMI, time and memory of both. Each method runs on one thread and is timed by
the processor, so that other programs do not count. The settings are those that a user would choose without labels.

*Optima*: restarts, local search, consensus and views against the paper's start, k-means on tf-idf, and sIB. Every
record is one fit: the objective D(X, WH) of its labels, accuracy, NMI and seconds. SciPy's docstrings are measured only
if they are named in --sets: no method was chosen on them.

No method sees the classes. Each runs on each set in a process of its own. It is timed after an untimed fit of a small
set, so that neither imports nor compilation count. Memory is how far the process grows during the fit, beyond the
counts it holds. What is in results.json is not measured again.
"""

import signal
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from onmf.metrics import clustering_accuracy

from .contenders import STARTS, Method, best, kmeans, lda, nmf, on_tfidf, onmf, sib, views
from .data import DOCSTRINGS, MADE, available, load, members_of
from .measure import in_child, peak_memory, rest
from .results import Grid, Record, Store, bold, figure, publish, section, table

SMALL = ("tr23", "tr11", "tr45", "tr41", "hitech", "k1b", "ng3sim", "la2", "la1", "reviews", "la12", "classic")
SETS = (*SMALL, "ohscal", "NG20")
"""The document sets, the quickest first."""

LIMIT = 900
"""Seconds of the processor after which a fit is given up."""

THREADS = 2
"""Threads of the methods that are compared for their optima."""

PEERS = {
    "best": Method("onmf best", best, "the consensus of views that `onmf documents` runs by default"),
    "quick": Method("onmf quick", onmf, "`ONMF(k)`, the paper's algorithm; `onmf documents --quick`", random=False),
    "frobenius": Method(
        "onmf, Frobenius", partial(onmf, beta_loss="frobenius"), '`ONMF(k, beta_loss="frobenius")`', random=False
    ),
    "sib": Method(
        "sIB",
        sib,
        f"`SIB(k, n_init={STARTS}, max_iter=15, uniform_prior=False)` of the package sib-clustering: the sequential "
        "information bottleneck",
    ),
    "spherical": Method(
        "spherical k-means",
        partial(on_tfidf, labels=onmf, beta_loss="cosine", init="++", n_init=STARTS),
        f'scikit-learn has none, so this is onmf\'s: `ONMF(k, beta_loss="cosine", init="++", n_init={STARTS})`, after '
        "`TfidfTransformer()`",
    ),
    "kmeans": Method("KMeans, counts", kmeans, f"`KMeans(k, n_init={STARTS})`"),
    "kmeans-tfidf": Method("KMeans, tf-idf", partial(on_tfidf, labels=kmeans), "the same, after `TfidfTransformer()`"),
    "minibatch": Method(
        "MiniBatchKMeans",
        partial(on_tfidf, labels=kmeans, kind=MiniBatchKMeans),
        f"`MiniBatchKMeans(k, n_init={STARTS})`, after `TfidfTransformer()`",
    ),
    "nmf-tfidf": Method(
        "NMF, tf-idf",
        partial(on_tfidf, labels=nmf),
        "`NMF(k)`, after `TfidfTransformer()`; the cluster is the largest topic",
        random=False,
    ),
    "nmf": Method(
        "NMF, KL",
        partial(nmf, solver="mu", beta_loss="kullback-leibler"),
        '`NMF(k, solver="mu", beta_loss="kullback-leibler")` on counts; the cluster is the largest topic',
        random=False,
    ),
    "lda": Method("LDA", lda, "`LatentDirichletAllocation(k)` on counts; the cluster is the largest topic"),
}

OPTIMA = {
    "paper": Method("KL-ONMF, the paper's start", onmf, random=False),
    "restarts": Method(
        "KL-ONMF, 10 restarts + local search",
        partial(onmf, init="random-partition", n_init=STARTS, refine="local-search"),
    ),
    "consensus": Method("KL-ONMF, consensus + local search", partial(onmf, init="consensus", refine="local-search")),
    "views": Method("KL-ONMF, consensus of views", views),
    "sib": Method("sIB, 10 restarts", sib),
    "kmeans": Method("k-means on tf-idf, 10 restarts", partial(on_tfidf, labels=kmeans)),
}


def peers(
    sets: tuple[str, ...] = SETS,
    methods: tuple[str, ...] = tuple(PEERS),
    seeds: int = 2,
    out: Path = Path("docs/compare"),
) -> None:
    """Measure the missing fits, and write the tables and the figure."""
    store = Store(out / "results.json", ("set", "method", "seed"))
    measure_missing(store, PEERS, sets, methods, seeds)
    write_peers(store.records, out)


def optima(
    sets: tuple[str, ...] = SETS,
    methods: tuple[str, ...] = tuple(OPTIMA),
    seeds: int = 5,
    cpu: bool = False,
    out: Path = Path("docs/optima"),
) -> None:
    """Measure the missing fits, and write the tables."""
    store = Store(out / "results.json", ("set", "method", "seed"))
    measure_missing(store, OPTIMA, sets, methods, seeds, threads=THREADS, cpu=cpu)
    publish(out / "optima.md", summary_of_optima(store.records))


def measure_missing(
    store: Store, methods: dict[str, Method], sets: Sequence[str], chosen: Sequence[str], seeds: int, **how: Any
) -> None:
    """Measure what is not in the store yet, and put it there."""
    for name in sets:
        if name not in (DOCSTRINGS, *available("documents")) and not name.startswith(MADE):
            print(f"{name} is missing: download it with 'onmf fetch {name}'")
            continue
        for method in chosen:
            wanted = range(seeds if methods[method].random else 1)
            missing = [seed for seed in wanted if (name, method, seed) not in store]
            for record in in_child(measure, methods[method], name, missing, how) if missing else []:
                store.add({"set": name, "documents": record.pop("documents"), "method": method} | record)


def measure(method: Method, name: str, seeds: Sequence[int], how: dict[str, Any]) -> list[Record]:
    """Run and measure a method on a set, once for each seed. Run it in a fresh process."""
    small, classes = load(f"{MADE}3")
    measure_one(method, small, classes, 0, **how)  # imports and compiles
    X, y = load(name)
    return [measure_one(method, X, y, seed, **how) for seed in seeds]


def measure_one(
    method: Method, X: csr_array, y: Any, seed: int, *, threads: int = 1, cpu: bool = True, limit: float = LIMIT
) -> Record:
    """Run and measure one fit: the time of the processor divided by the threads, or that of the wall clock."""
    k, record = len(np.unique(y)), {"documents": X.shape[0], "seed": seed}
    clock = process_time if cpu else perf_counter
    rest()
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts again from here
    before, began = peak_memory(), clock()
    previous = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        with threadpool_limits(threads), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            labels = method.labels(X, k, seed, threads)
    except TimeoutError:
        return record | {"over": limit}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    spent = clock() - began
    return record | {
        "objective": objective_of(X, labels, k),
        "accuracy": clustering_accuracy(y, labels),
        "nmi": float(normalized_mutual_info_score(y, labels)),
        "seconds": spent / (threads if cpu else 1),
        "megabytes": 1e3 * (peak_memory() - before),
        "converged": not any(issubclass(warning.category, ConvergenceWarning) for warning in caught),
    }


def give_up(*_: Any) -> None:
    """End a fit that has used up its time."""
    raise TimeoutError


def objective_of(X: Any, labels: Any, k: int) -> float:
    """Compute D_KL(X, WH) of labels with their optimal centroids and scales."""
    S = (members_of(labels, k).T @ X).toarray()
    T, s, x = S.sum(axis=1), np.asarray(X.sum(axis=1)).ravel(), X.data.astype(float)
    return float(xlogy(x, x).sum() - xlogy(s, s).sum() - xlogy(S, S).sum() + xlogy(T, T).sum())


class Tables(Grid):
    """Records by set and method, as tables in Markdown; the smallest set comes first."""

    def __init__(self, records: list[Record], methods: dict[str, Method]) -> None:
        self.documents = dict(sorted(((r["set"], r["documents"]) for r in records), key=lambda pair: pair[1]))
        super().__init__(records, {name: method.title for name, method in methods.items()}, list(self.documents))

    def values(self, name: str, method: str, key: str) -> Any:
        """Return the values of all seeds; none if there is no fit, or one that was given up."""
        given_up = any("over" in record for record in self.cells.get((name, method), []))
        return np.array([]) if given_up else super().values(name, method, key)

    def accuracy(self, method: str) -> float:
        """Return the accuracy over all documents, in percent."""
        return 100 * float(np.average(self.means(method, "accuracy"), weights=list(self.documents.values())))

    def cell(self, name: str, method: str, key: str, factor: float = 100, digits: int = 1) -> str:
        """Return the mean over seeds and, for scores, their standard deviation."""
        values = factor * self.values(name, method, key)
        if len(values) == 0:
            records = self.cells.get((name, method))
            return f"over {records[0]['over']:g} s" if records else "–"
        spread = f" ± {values.std():.{digits}f}" if len(values) > 1 and key != "seconds" else ""
        return f"{values.mean():.{digits}f}{spread}"

    def parts(self, others: dict[str, Callable[[str, str], str]]) -> list[str]:
        """Return tables of accuracy, NMI and others, with a row for each set."""
        documents = {name: f"{number:,}" for name, number in self.documents.items()}
        scores = {"Accuracy, %": partial(self.cell, key="accuracy"), "NMI × 100": partial(self.cell, key="nmi")}
        sections = (section(title, self.by_set(cell, documents=documents)) for title, cell in (scores | others).items())
        return [line for lines in sections for line in lines]


def tables_of_peers(records: list[Record]) -> dict[str, list[str]]:
    """Return averages over all sets, what was run, and tables with a row for each set."""
    tables = Tables(records, PEERS)
    averages, settings = [], []
    scores = {method: scores_of(tables, method) for method in tables.titles}
    highest = np.max(np.nan_to_num(list(scores.values())), axis=0)
    for method, title in tables.titles.items():
        forms = zip(("{:.1f}", "{:.1f}", "{:.3f}"), scores[method], highest, strict=True)
        marked = [bold(form.format(score), score == top) for form, score, top in forms]
        # Of memory, the first seed counts: later ones reuse what it left.
        memory = tables.means(method, "megabytes", average=lambda values: values[0]).max()
        cells = [title, *marked, f"{tables.means(method, 'seconds').sum():.1f}", f"{memory:.0f}"]
        averages.append([cell.replace("nan", "–") for cell in cells])
        seeds = sorted({len(tables.values(name, method, "seconds")) for name in tables.sets} - {0})
        several = " to ".join(str(n) for n in dict.fromkeys([*seeds[:1], *seeds[-1:]]))
        runs = "One run" if max(seeds, default=1) == 1 else f"{several} seeds"
        settings.append(f"- {title}: {PEERS[method].settings}. {runs}.")
    columns = ["accuracy by documents, %", "mean accuracy, %", "mean NMI", "CPU seconds, all sets", "most memory, MB"]
    seconds = partial(tables.cell, key="seconds", factor=1, digits=2)
    return {
        "averages": table(["", *columns], averages),
        "settings": settings,
        "sets": tables.parts({"CPU seconds": seconds}),
    }


def scores_of(tables: Tables, method: str) -> tuple[float, float, float]:
    """Return accuracy by documents, mean accuracy and mean NMI, as they are rounded in the table."""
    accuracy, nmi = (float(tables.means(method, key).mean()) for key in ("accuracy", "nmi"))
    return round(tables.accuracy(method), 1), round(100 * accuracy, 1), round(nmi, 3)


def write_peers(records: list[Record], folder: Path) -> None:
    """Write the tables, and draw accuracy against time, with a point for each method."""
    for name, lines in tables_of_peers(records).items():
        publish(folder / f"{name}.md", lines)
    tables = Tables(records, PEERS)
    with figure(folder / "accuracy-time.png", figsize=(8, 4.6)) as ax:
        for method, title in tables.titles.items():
            point = tables.means(method, "seconds").sum(), tables.accuracy(method)
            colour = "#d55e00" if title.startswith("onmf") else "#0072b2"
            ax.plot(*point, "o", color=colour)
            ax.annotate(title, point, (6, 4), textcoords="offset points", fontsize=9, color=colour)
        ax.set(xscale="log", xlabel="CPU seconds on one thread, all sets", ylabel="accuracy by documents, %")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.margins(x=0.15, y=0.1)
        ax.grid(color="#e5e5e5", linewidth=0.6)


def summary_of_optima(records: list[Record]) -> list[str]:
    """Return the tables."""
    tables = Tables(records, OPTIMA)

    def ratio(name: str, method: str) -> float:
        return 100 * (tables.mean(name, method, "objective") / tables.mean(name, "sib", "objective") - 1)

    def cost(name: str, method: str) -> str:
        return f"{ratio(name, method):+.2f} %, {tables.mean(name, method, 'seconds'):.2f} s"

    rows = []
    for method, title in tables.titles.items():
        nmi, seconds = tables.means(method, "nmi").mean(), tables.means(method, "seconds").sum()
        against = np.mean([ratio(name, method) for name in tables.sets])
        rows.append([title, f"{tables.accuracy(method):.1f} %", f"{nmi:.3f}", f"{against:+.3f} %", f"{seconds:.1f}"])
    return [
        f"Means over {max(record['seed'] for record in records) + 1} seeds, ± their standard deviation; times on "
        f"{THREADS} threads.",
        "",
        *table(["method", "accuracy, by documents", "mean NMI", "objective against sIB", "seconds, all sets"], rows),
        *tables.parts({"Objective against sIB's, and seconds": cost}),
    ]
