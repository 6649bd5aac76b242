"""Speed and memory, against KMeans, NMF, sIB and plain SciPy: writes the tables and the figure of docs/performance.

Each part yields rows with a description, a measured number, and a target if there is one.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF

from onmf import ONMF, snpa
from onmf.backend import CpuBackend
from onmf.datasets import docstring_texts, load_hyperspectral, make_counts, make_scene
from onmf.divergence import KullbackLeibler

from .contenders import sib_data
from .data import available, load
from .measure import Run, an_iteration, describe_machine, in_turns, medians, seconds, slope
from .plain import plain_fit, plain_snpa
from .results import MISSED, Record, figure, judged, measure_rows, name_rows, publish, section, table

TINY = "zipf-300"
"""The corpus that ``--quick`` uses."""

LOSSES = {"KL": 1, "Frobenius": 2}
TARGETS = {("KL", 20): "≥ 2.5", ("KL", 100): "≥ 6", ("Frobenius", 20): "≥ 2", ("Frobenius", 100): "≥ 2"}
"""How many times as fast as one of KMeans an iteration on sparse counts should be."""

GROUPED = {"pbmc4k_top2000": 10, "NG20": 20, "la12": 6, "classic": 4, "zipf-20000": 20}
"""Data on which an iteration with groups is measured, and their numbers of clusters."""

PEERS = ("KMeans", "NMF", "plain SciPy")
"""What the figure compares with."""


@functools.cache
def corpus(name: str) -> csr_array | None:
    """Return a documents × words matrix in float64; None if its data are not available.

    ``"NG20"`` is the paper's; ``"zipf-N"`` is generated: N documents of about 110 different words out of 30,000 (50,000
    for the largest, 1,000 below 2,000 documents), with frequencies that follow Zipf's law.
    """
    if name == "NG20":
        return load(name)[0] if name in available("documents") else None
    n = int(name.removeprefix("zipf-"))
    words, length = (50_000, 148) if n >= 200_000 else (30_000, 152) if n >= 2000 else (1000, 40)
    overlap = 0.3 if n >= 5000 else 0.85  # a small corpus must be harder to need as many iterations
    return make_counts(n, words, 20, length=length, overlap=overlap, random_state=0).X.astype(np.float64)


def standard_corpus(quick: bool) -> csr_array:
    """Return NG20, or a generated corpus of its size if it is not available."""
    real = None if quick else corpus("NG20")
    return corpus(TINY if quick else "zipf-20000") if real is None else real


def image(name: str) -> Any:
    """Return a pixels × bands matrix; None if its data are not available.

    ``"made-H×W"`` is generated: 200 bands, float32. Its pixels are mixtures, so that no method converges in two steps.
    """
    if name == "jasper":
        return load_hyperspectral(name).X if name in available("hyperspectral") else None
    height, width = map(int, name.removeprefix("made-").split("×"))
    rng = np.random.default_rng(0)
    mixtures = rng.dirichlet(np.ones(6), min(height, 250) * min(width, 250))
    small = rng.poisson(mixtures @ make_scene(10, 10, 200, 6, random_state=0).endmembers).astype(np.float32)
    return np.tile(small, (height * width // len(small), 1))


def row(part: str, what: str, value: float, unit: str, target: str = "") -> Record:
    """Return one measured number; ``target`` is its lower or upper bound."""
    return {"part": part, "what": what, "value": value, "unit": unit, **judged(value, target)}


def start_of(X: Any, k: int) -> Any:
    """Return initial centroids for all contenders: random rows, with a small constant added."""
    rows = X[np.sort(np.random.default_rng(0).choice(X.shape[0], k, replace=False))]
    return (rows.toarray() if hasattr(rows, "toarray") else rows).astype(np.float64) + 1e-3


def onmf_run(X: Any, start: Any, beta_loss: Any = 1, n_threads: int | None = None) -> Run:
    """Return a run of ONMF."""
    options = {"beta_loss": beta_loss, "init": start, "tol": 0, "n_threads": n_threads}
    return lambda n: ONMF(len(start), max_iter=n, **options).fit(X).n_iter_


def kmeans_run(X: Any, start: Any) -> Run:
    """Return a run of KMeans (Lloyd)."""
    start = start.astype(X.dtype)
    return lambda n: KMeans(len(start), init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=n).fit(X).n_iter_


def sib_run(X: Any, k: int) -> Run:
    """Return a run of the sequential information bottleneck."""
    from sib import SIB

    data = sib_data(X)
    options = {"n_clusters": k, "n_init": 1, "n_jobs": 2, "uniform_prior": False, "random_state": 0, "tol": 0.0}
    return lambda n: SIB(max_iter=n, **options).fit(data).max_iter


def against_kmeans(part: str, name: str, X: Any, clusters: tuple[int, ...], repeats: int) -> Iterator[Record]:
    """Compare one iteration with one of KMeans; of data that are not available, nothing."""
    for dtype in () if X is None else ("float64", "float32"):
        data = X.astype(dtype)
        for k in clusters:
            start, case = start_of(X, k), f"{name}, {dtype}, r = {k}"
            more = 13 if k <= 20 and X.shape[0] <= 100_000 else 9
            contenders = {"KMeans": (kmeans_run(data, start), 3, more)}
            contenders |= {loss: (onmf_run(data, start, beta), 3, more) for loss, beta in LOSSES.items()}
            times = an_iteration(contenders, repeats)
            yield from (row(part, f"{contender}, {case}", 1e3 * spent, "ms") for contender, spent in times.items())
            for loss in LOSSES:
                target = TARGETS[loss, k] if part == "iteration" else "≥ 1.2"
                yield row(part, f"{loss}, {case}, against KMeans", times["KMeans"] / times[loss], "×", target)


def iterations(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare one iteration with one of KMeans, on sparse counts."""
    for name in (TINY,) if quick else ("NG20", "zipf-20000"):
        yield from against_kmeans("iteration", name, corpus(name), (20,) if quick else (20, 100), repeats)


def images(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare one iteration with one of KMeans, on dense images."""
    # Ten iterations of a small image are a small part of a fit, so the differences are noisy.
    for name, turns in (("made-20×20", 5),) if quick else (("jasper", 5), ("made-1000×1000", 1)):
        yield from against_kmeans("image", name, image(name), (4, 20), turns * repeats)


def groups(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare one iteration with groups, drawn at random, with one without, in one thread."""
    for name, k in ({TINY: 20} if quick else GROUPED).items():
        X = load(name)[0] if name in available("documents") or name in available("cells") else corpus(name)
        if X is None:
            continue
        options = {"init": start_of(X, k), "smoothing": 0.01 / X.shape[1], "tol": 0, "max_iter": 10, "n_threads": 1}

        def iteration(number: int, X: Any = X, k: int = k, options: Any = options) -> float:
            own = np.random.default_rng(0).integers(number, size=X.shape[0]) if number else None
            spent = ONMF(k, **options).fit(X, groups=own).history_["seconds"]
            return float(np.median(spent[1:-1]))  # the last one fits to the end

        times = medians({str(number): functools.partial(iteration, number) for number in (0, 2, 10)}, repeats)
        for number in ("2", "10"):
            yield row("groups", f"{name}, {number} groups against none", times[number] / times["0"], "×", "≤ 1.3")


def nmf(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare one iteration with one of NMF with the KL divergence, of plain SciPy, and with one pass of sIB."""
    X, k, rng = standard_corpus(quick), 20, np.random.default_rng(0)
    start = start_of(X, k)

    def run_nmf(n: int) -> int:
        model = NMF(k, init="custom", solver="mu", beta_loss="kullback-leibler", max_iter=n, tol=0)
        return model.fit(X, W=rng.random((X.shape[0], k)), H=start.copy()).n_iter_

    contenders: dict[str, tuple[Run, int, int]] = {
        "KL": (onmf_run(X, start), 3, 8),
        "NMF-KL": (run_nmf, 1, 3),
        "plain SciPy": (lambda n: plain_fit(X, k, max_iter=n, tol=0, init=start), 2, 6),
    }
    try:
        contenders["one pass of sIB (2 jobs)"] = (sib_run(X, k), 1, 2)
    except ImportError:
        print("sib-clustering is not installed.")
    own, *peers = an_iteration(contenders, repeats).items()
    for peer, spent in peers:
        yield row("peers", f"KL against {peer}, r = 20", spent / own[1], "×", "≥ 60" if peer == "NMF-KL" else "")


def whole_fit(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare a complete fit, including SNPA, with plain SciPy."""
    X, k = standard_corpus(quick), 20
    loop = ONMF(k, init=X[ONMF(k).fit(X).init_rows_].toarray())
    ours = in_turns({"fit": lambda: ONMF(k).fit(X), "snpa": lambda: snpa(X, k), "loop": lambda: loop.fit(X)}, repeats)
    fit, start_only = seconds(lambda: plain_fit(X, k)), seconds(lambda: plain_snpa(X, k))
    yield from (
        row("fit", "whole fit, SNPA included", ours["fit"], "s"),
        row("fit", "whole fit against plain SciPy with a NumPy SNPA", fit / ours["fit"], "×", "≥ 15"),
        row("fit", "SNPA against the loop that follows it", ours["snpa"] / ours["loop"], "×", "≤ 1"),
        row("fit", "SNPA against a NumPy SNPA", start_only / ours["snpa"], "×"),
    )


def threads(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare two threads with one."""
    X = corpus(TINY if quick else "zipf-20000")
    for k in (20, 100):
        start = start_of(X, k)
        times = an_iteration({str(n): (onmf_run(X, start, n_threads=n), 3, 9) for n in (1, 2)}, repeats)
        target = "≥ 1.7" if k == 100 else ""
        yield row("threads", f"two threads against one, KL, r = {k}", times["1"] / times["2"], "×", target)


def growth(quick: bool, repeats: int) -> Iterator[Record]:
    """Measure how the time of an iteration grows with the data and with the number of clusters."""
    corpora = [corpus(f"zipf-{n}") for n in ((100, 200, 300) if quick else (10_000, 30_000, 90_000, 200_000))]
    scales = {
        "nonzeros, 1 M to 20 M": [(X.nnz, X, 20, 6) for X in corpora],
        "clusters, 10 to 160": [(k, corpora[1], k, 8) for k in (10, 20, 40, 80, 160)],
    }
    for scale, cases in scales.items():
        times = {}
        for size, X, k, more in cases:
            times[size] = an_iteration({"KL": (onmf_run(X, start_of(X, k)), 2, more)}, repeats)["KL"]
            yield row("growth", f"KL, {X.nnz / 1e6:.1f} M nonzeros, r = {k}", 1e3 * times[size], "ms")
        yield row("growth", f"log–log slope of time over {scale}", slope(times), "", "≤ 1.05")


def floor(quick: bool, repeats: int) -> Iterator[Record]:
    """Compare the assignment with the limits of the machine."""
    X, backend = corpus(TINY if quick else "zipf-200000"), CpuBackend(2)
    side = 200 if quick else 1500
    big, A = np.ones(1 << 20 if quick else 1 << 27), np.ones((side, side))
    halves = np.array_split(big, 2)
    with ThreadPoolExecutor(2) as pool:
        limits = in_turns({"read": lambda: list(pool.map(np.sum, halves)), "multiply": lambda: A @ A}, repeats)
    bandwidth, rate = big.nbytes / limits["read"], side**3 / limits["multiply"]
    yield row("floor", "memory read by two threads", bandwidth / 1e9, "GB/s")
    yield row("floor", "multiply-adds of two threads (matrix product, float64)", rate / 1e9, "G/s")
    block = backend.make_block(X, KullbackLeibler())
    stream = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / bandwidth
    for k in (20, 100):
        assign = functools.partial(backend.best_template, block.rows, block.prepare(start_of(X, k)))
        spent, work = in_turns({"": assign}, repeats)[""], X.nnz * k
        yield from (
            row("floor", f"assignment, {X.nnz / 1e6:.0f} M nonzeros, r = {k}", 1e3 * spent, "ms"),
            row("floor", f"… against one stream over the CSR arrays, r = {k}", spent / stream, "×"),
            row("floor", f"… against its multiply-adds at the machine's rate, r = {k}", spent * rate / work, "×"),
            row("floor", f"… template entries read, r = {k}", 8 * work / spent / 1e9, "GB/s"),
        )


def memory(quick: bool, repeats: int) -> Iterator[Record]:
    """Measure the peak memory beyond the data, with given centroids."""
    X = corpus(TINY if quick else "zipf-20000")
    for k in (20, 100):
        start = start_of(X, k)
        onmf_run(X, start)(3)
        for name, loss in LOSSES.items():
            tracemalloc.start()
            onmf_run(X, start, loss)(5)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            what = f"{name}, r = {k}: peak beyond the data, of three p × r arrays and 40 bytes a row"
            yield row("memory", what, peak / (3 * X.shape[1] * k * 8 + 40 * X.shape[0]), "×", "≤ 1")


def starting(quick: bool, repeats: int) -> Iterator[Record]:
    """Measure the import, the first fit with cached kernels and with compilation, and two commands.

    All of it is processor time, which other programs hardly change. Most of it is on one thread.
    """

    def child(code: str, **environment: str) -> float:
        command = [sys.executable, "-c", code]
        return float(subprocess.check_output(command, text=True, env={**os.environ, **environment}) or 0)

    def command(*arguments: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-m", "onmf", *arguments], capture_output=True, check=True)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])  # of children, as user and as system

    timed = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
    both = ("from onmf import ONMF", "import sklearn.cluster")
    ours, theirs = (median(child(timed.format(line)) for _ in range(repeats)) for line in both)
    size = "60, 30" if quick else "2000, 1000"
    fits = (
        "import time, numpy as np; from onmf import ONMF; from onmf.datasets import make_counts;"
        f"X = make_counts({size}, 5, random_state=0).X; times = []\n"
        "for _ in range(2):\n t = time.process_time(); ONMF(5).fit(X); times.append(time.process_time() - t)\n"
        "print(times[0] - times[1])"
    )
    cached = median(child(fits) for _ in range(repeats))
    with tempfile.TemporaryDirectory() as folder:
        compiled = child(fits, NUMBA_CACHE_DIR=folder, **({"NUMBA_DISABLE_JIT": "1"} if quick else {}))
        texts = Path(folder, "texts.jsonl")
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for _, text, _ in docstring_texts()))
        options = f"-k 13 --text text --map none --force --out {folder}/clusters{' --quick' * quick}".split()
        documents = median(command("documents", str(texts), *options) for _ in range(repeats + 1))
    helped = median(command("--help") for _ in range(repeats))
    yield from (
        row("start", "from onmf import ONMF against import sklearn.cluster", ours / theirs, "×", "≤ 1.3"),
        row("start", "onmf --help", helped, "s", "≤ 0.4"),
        row("start", "onmf documents, 1,300 docstrings, 13 clusters, without a map", documents, "s", "≤ 6"),
        row("start", "first fit in a fresh process, more than the second", cached, "s", "≤ 0.6"),
        row("start", "first fit ever (compilation), more than the second", compiled, "s", "≤ 4"),
    )


def no_closed_form(quick: bool, repeats: int) -> Iterator[Record]:
    """Measure a divergence without closed forms on one thread: against Kullback–Leibler, and its growth."""

    def times(X: Any, *losses: str) -> dict[str, float]:
        start = start_of(X, 20)
        return an_iteration({loss: (onmf_run(X, start, loss, 1), 3, 13) for loss in losses}, repeats)

    kl, loss = times(standard_corpus(quick), "kullback-leibler", "negative-binomial").values()
    yield row("bregman", "negative binomial, time of KL on one thread, r = 20", loss / kl, "×", "≤ 15")
    sizes = (300, 600) if quick else (10_000, 20_000, 40_000, 80_000)
    made = [make_counts(n, 2_000, 20, length=100, overlap=0.9, random_state=0).X for n in sizes]
    grown = {X.nnz: times(X, "negative-binomial")["negative-binomial"] for X in made}
    yield row("bregman", "negative binomial, log–log slope of time over nonzeros", slope(grown), "", "≤ 1.05")


PARTS = {
    "iterations": iterations,
    "peers": nmf,
    "fit": whole_fit,
    "images": images,
    "groups": groups,
    "threads": threads,
    "growth": growth,
    "floor": floor,
    "memory": memory,
    "start": starting,
    "bregman": no_closed_form,
}


def run(
    parts: tuple[str, ...] = tuple(PARTS), quick: bool = False, repeats: int = 5, out: Path = Path("docs/performance")
) -> None:
    """Measure, and write the table and the figure for users (speed), and the table for developers (targets)."""
    machine = describe_machine()
    measured = (row for part in parts for row in PARTS[part](quick, repeats))
    rows = measure_rows(measured, out, machine, len(parts) < len(PARTS))
    publish(out / "speed.md", to_speed(machine, rows))
    publish(out / "targets.md", to_targets(machine, rows))
    plot(rows, out / "speed.png")


def to_speed(machine: str, rows: list[Record]) -> Iterator[str]:
    """Yield a table of the times of an iteration, one line for each data set, type and number of clusters."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        method, _, case = row["what"].partition(", ")
        if row["unit"] == "ms" and method in ("KMeans", *LOSSES) and case.count(", ") == 2:
            times.setdefault(case, {})[method] = row["value"]
    yield f"Milliseconds of an iteration, measured on {machine}. In brackets: how many times as fast as KMeans."
    yield ""
    lines = []
    for case, measured in times.items():
        peer, *ours = (measured[method] for method in ("KMeans", *LOSSES))
        ratios = [f"{own:.3g} ({peer / own:.1f} ×)" for own in ours]
        lines.append([*case.replace("r = ", "").split(", "), f"{peer:.3g}", *ratios])
    yield from table(["data", "type", "clusters", "KMeans", *LOSSES], lines, "llrrrr")


def to_targets(machine: str, rows: list[Record]) -> Iterator[str]:
    """Yield a table of the rows that have a target, and one of the others."""
    yield f"Measured on {machine}."
    for title, has_target in (("Targets", True), ("Other figures", False)):
        chosen = [row for row in rows if bool(row["target"]) is has_target]
        lines = [[r["what"], f"{r['value']:.3g} {r['unit']}", r["target"], MISSED[r["met"]]] for r in chosen]
        if lines:
            yield from section(title, table(["", "measured", "target", ""], lines, "lrrl"))


def plot(rows: list[Record], path: Path) -> None:
    """Plot how many times as fast as its peers onmf is."""
    chosen = [row for row in rows if row["unit"] == "×" and row["what"].split(" against ")[-1].startswith(PEERS)]
    with figure(path, figsize=(9, 0.32 * len(chosen) + 1)) as ax:
        positions = range(len(chosen))[::-1]
        for position, ratio in zip(positions, (row["value"] for row in chosen), strict=True):
            ax.barh(position, ratio - 1, left=1, color="#2a6f97" if ratio >= 1 else "#c1121f")
            ax.text(max(ratio, 1), position, f" {ratio:.1f}", va="center", fontsize=8)
        ax.axvline(1, color="#1b263b", lw=1)
        ax.set(ylim=(-1, len(chosen)), xscale="log", xlabel="times as fast; right of the line, onmf is faster")
        name_rows(ax, positions, [row["what"] for row in chosen], fontsize=8)
