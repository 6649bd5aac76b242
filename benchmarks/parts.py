"""The parts of the benchmark. Each yields rows with a description, a measured number, and a target if there is one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF

from onmf import ONMF, snpa

from .data import TINY, corpus, image
from .measure import Run, an_iteration, in_turns, seconds
from .plain import plain_fit, plain_snpa


@dataclass(frozen=True)
class Row:
    """One measured number; ``target`` is its lower or upper bound as text, and ``met`` says whether it holds."""

    part: str
    what: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None

    def record(self) -> dict[str, Any]:
        """Return the row for a data file."""
        return asdict(self)


def at_least(part: str, what: str, value: float, target: float | None) -> Row:
    """Return a row for a ratio that should not be smaller than its target."""
    met = None if target is None else value >= target
    return Row(part, what, value, "×", "" if target is None else f"≥ {target:g}", met)


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


def iterations(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare one iteration with one of KMeans, on sparse counts."""
    targets = {("KL", 20): 2.5, ("KL", 100): 6, ("Frobenius", 20): 2, ("Frobenius", 100): 2}
    for name in (TINY,) if quick else ("NG20", "zipf-20000"):
        X = corpus(name)
        if X is None:
            continue
        for dtype in ("float64", "float32"):
            data = X.astype(dtype)
            for k in (20,) if quick else (20, 100):
                start = start_of(X, k)
                few, more = (3, 13) if k == 20 else (3, 9)
                contenders = {
                    "KMeans": (kmeans_run(data, start), few, more),
                    "KL": (onmf_run(data, start), few, more),
                    "Frobenius": (onmf_run(data, start, 2), few, more),
                }
                times = an_iteration(contenders, repeats)
                yield Row("iteration", f"KMeans, {name}, {dtype}, r = {k}", 1e3 * times["KMeans"], "ms")
                for loss in ("KL", "Frobenius"):
                    what = f"{loss}, {name}, {dtype}, r = {k}"
                    yield Row("iteration", what, 1e3 * times[loss], "ms")
                    ratio = times["KMeans"] / times[loss]
                    yield at_least("iteration", f"{what}, against KMeans", ratio, targets[loss, k])


def nmf(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare one iteration with one of NMF with the KL divergence, and with one pass of sIB."""
    X = corpus(TINY if quick else "NG20")
    if X is None:
        X = corpus("zipf-20000")
    k = 20
    start = start_of(X, k)
    rng = np.random.default_rng(0)

    def run_nmf(n: int) -> int:
        model = NMF(k, init="custom", solver="mu", beta_loss="kullback-leibler", max_iter=n, tol=0)
        model.fit_transform(X, W=rng.random((X.shape[0], k)), H=start.copy())
        return n

    contenders: dict[str, tuple[Run, int, int]] = {
        "KL": (onmf_run(X, start), 3, 8),
        "NMF": (run_nmf, 1, 3),
        "plain SciPy": (lambda n: plain_fit(X, k, max_iter=n, tol=0, init=start), 2, 6),
    }
    sib = sib_run(X, k)
    if sib is not None:
        contenders["sIB"] = (sib, 1, 2)
    times = an_iteration(contenders, repeats)
    yield at_least("peers", "KL against NMF-KL, r = 20", times["NMF"] / times["KL"], 60)
    yield at_least("peers", "KL against plain SciPy, r = 20", times["plain SciPy"] / times["KL"], None)
    if sib is not None:
        yield at_least("peers", "KL against one pass of sIB (2 jobs), r = 20", times["sIB"] / times["KL"], None)


def sib_run(X: Any, k: int) -> Run | None:
    """Return a run of the sequential information bottleneck; None if it is not installed."""
    try:
        from sib import SIB
    except ImportError:
        return None
    data = csr_matrix(X.astype(np.int64))
    data.indices, data.indptr = data.indices.astype(np.int32), data.indptr.astype(np.int32)
    options = {"n_clusters": k, "n_init": 1, "n_jobs": 2, "uniform_prior": False, "random_state": 0, "tol": 0.0}

    def run(n: int) -> int:
        SIB(max_iter=n, **options).fit(data)
        return n

    return run


def whole_fit(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare a complete fit, including SNPA, with plain SciPy."""
    X = corpus(TINY if quick else "NG20")
    if X is None:
        X = corpus("zipf-20000")
    k = 20
    model = ONMF(k).fit(X)
    start = X[model.init_rows_].toarray()
    ours = in_turns(
        {"fit": lambda: ONMF(k).fit(X), "snpa": lambda: snpa(X, k), "loop": lambda: ONMF(k, init=start).fit(X)}, repeats
    )
    plain = seconds(lambda: plain_fit(X, k))
    yield Row("fit", "whole fit, SNPA included", ours["fit"], "s")
    yield at_least("fit", "whole fit against plain SciPy with a NumPy SNPA", plain / ours["fit"], 15)
    ratio = ours["snpa"] / ours["loop"]
    yield Row("fit", "SNPA against the loop that follows it", ratio, "×", "≤ 1", ratio <= 1)
    yield at_least("fit", "SNPA against a NumPy SNPA", seconds(lambda: plain_snpa(X, k)) / ours["snpa"], None)


def images(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare one iteration with one of KMeans, on dense images."""
    for name in ("made-20×20",) if quick else ("jasper", "made-1000×1000"):
        X = image(name)
        if X is None:
            continue
        for dtype in ("float32", "float64"):
            data = X.astype(dtype)
            for k in (4, 20):
                start = start_of(X, k)
                large = len(X) > 100_000
                few, more = (3, 9) if large else (3, 13)
                contenders = {
                    "KMeans": (kmeans_run(data, start), few, more),
                    "KL": (onmf_run(data, start), few, more),
                    "Frobenius": (onmf_run(data, start, 2), few, more),
                }
                # Ten iterations of a small image are a small part of a fit, so the differences are noisy.
                times = an_iteration(contenders, repeats if large else 5 * repeats)
                for contender, spent in times.items():
                    yield Row("image", f"{contender}, {name}, {dtype}, r = {k}", 1e3 * spent, "ms")
                for loss in ("KL", "Frobenius"):
                    what = f"{loss}, {name}, {dtype}, r = {k}, against KMeans"
                    yield at_least("image", what, times["KMeans"] / times[loss], 1.2)


def threads(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare two threads with one."""
    X = corpus(TINY if quick else "zipf-20000")
    for k in (20, 100):
        start = start_of(X, k)
        contenders = {f"{n}": (onmf_run(X, start, n_threads=n), 3, 9) for n in (1, 2)}
        times = an_iteration(contenders, repeats)
        yield at_least(
            "threads", f"two threads against one, KL, r = {k}", times["1"] / times["2"], 1.7 if k == 100 else None
        )


def growth(quick: bool, repeats: int) -> Iterator[Row]:
    """Measure how the time of an iteration grows with the data and with the number of clusters."""
    sizes = (100, 200, 300) if quick else (10_000, 30_000, 90_000, 200_000)
    points = []
    for n in sizes:
        X = corpus(f"zipf-{n}")
        times = an_iteration({"KL": (onmf_run(X, start_of(X, 20)), 2, 6)}, repeats)
        points.append((X.nnz, times["KL"]))
        yield Row("growth", f"KL, {X.nnz / 1e6:.1f} M nonzeros, r = 20", 1e3 * times["KL"], "ms")
    slope = float(np.polyfit(*np.log(np.array(points).T), 1)[0])
    yield Row("growth", "log–log slope of time over nonzeros, 1 M to 20 M", slope, "", "≤ 1.05", slope <= 1.05)
    X = corpus(TINY if quick else "zipf-30000")
    points = []
    for k in (10, 20, 40, 80, 160):
        times = an_iteration({"KL": (onmf_run(X, start_of(X, k)), 3, 8)}, repeats)
        points.append((k, times["KL"]))
        yield Row("growth", f"KL, {X.nnz / 1e6:.1f} M nonzeros, r = {k}", 1e3 * times["KL"], "ms")
    slope = float(np.polyfit(*np.log(np.array(points).T), 1)[0])
    yield Row("growth", "log–log slope of time over clusters, 10 to 160", slope, "", "≤ 1.05", slope <= 1.05)


def floor(quick: bool, repeats: int) -> Iterator[Row]:
    """Compare the assignment with the limits of the machine."""
    from onmf.backend import CpuBackend
    from onmf.divergence import KullbackLeibler

    X = corpus(TINY if quick else "zipf-200000")
    backend = CpuBackend(2)
    big = np.ones((1 << 20 if quick else 1 << 27,), dtype=np.float64)
    halves = np.array_split(big, 2)
    with ThreadPoolExecutor(2) as pool:
        bandwidth = big.nbytes / in_turns({"read": lambda: list(pool.map(np.sum, halves))}, repeats)["read"]
    side = 200 if quick else 1500
    A = np.ones((side, side))
    rate = side**3 / in_turns({"gemm": lambda: A @ A}, repeats)["gemm"]
    yield Row("floor", "memory read by two threads", bandwidth / 1e9, "GB/s")
    yield Row("floor", "multiply-adds of two threads (matrix product, float64)", rate / 1e9, "G/s")
    for k in (20, 100):
        block = backend.make_block(X, KullbackLeibler())
        templates = block.prepare(start_of(X, k))
        assign = lambda rows=block.rows, t=templates: backend.best_template(rows, t)  # noqa: E731
        spent = in_turns({"assign": assign}, repeats)["assign"]
        stream = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / bandwidth
        work = X.nnz * k / rate
        gathered = X.nnz * k * 8
        yield Row("floor", f"assignment, {X.nnz / 1e6:.0f} M nonzeros, r = {k}", 1e3 * spent, "ms")
        yield Row("floor", f"… against one stream over the CSR arrays, r = {k}", spent / stream, "×")
        yield Row("floor", f"… against its multiply-adds at the machine's rate, r = {k}", spent / work, "×")
        yield Row("floor", f"… template entries read, r = {k}", gathered / spent / 1e9, "GB/s")


def memory(quick: bool, repeats: int) -> Iterator[Row]:
    """Measure the peak memory beyond the data, with given centroids."""
    X = corpus(TINY if quick else "zipf-20000")
    for k in (20, 100):
        start = start_of(X, k)
        ONMF(k, init=start, max_iter=3).fit(X)
        for name, loss in (("KL", 1), ("Frobenius", 2)):
            tracemalloc.start()
            ONMF(k, init=start, max_iter=5, beta_loss=loss).fit(X)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            ratio = peak / (3 * X.shape[1] * k * 8 + 40 * X.shape[0])
            what = f"{name}, r = {k}: peak beyond the data, of three p × r arrays and 40 bytes a row"
            yield Row("memory", what, ratio, "×", "≤ 1", ratio <= 1)


def starting(quick: bool, repeats: int) -> Iterator[Row]:
    """Measure the import, the first fit with cached kernels, and the first fit with compilation."""

    def child(code: str, **environment: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
        )
        return float(done.stdout or 0)

    timed = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    times = {name: median(child(timed.format(name)) for _ in range(repeats)) for name in ("onmf", "sklearn.cluster")}
    ratio = times["onmf"] / times["sklearn.cluster"]
    yield Row("start", "import onmf against import sklearn.cluster", ratio, "×", "≤ 1.3", ratio <= 1.3)
    n, p = (60, 30) if quick else (2000, 1000)
    fits = (
        "import time, numpy as np; from onmf import ONMF; from onmf.datasets import make_counts;"
        f"X = make_counts({n}, {p}, 5, random_state=0).X; times = []\n"
        "for _ in range(2):\n t = time.perf_counter(); ONMF(5).fit(X); times.append(time.perf_counter() - t)\n"
        "print(times[0] - times[1])"
    )
    cached = median(child(fits) for _ in range(repeats))
    yield Row("start", "first fit in a fresh process, more than the second", cached, "s", "≤ 0.6", cached <= 0.6)
    with tempfile.TemporaryDirectory() as folder:
        compiled = child(fits, NUMBA_CACHE_DIR=folder, **({"NUMBA_DISABLE_JIT": "1"} if quick else {}))
    yield Row("start", "first fit ever (compilation), more than the second", compiled, "s", "≤ 5", compiled <= 5)


PARTS = {
    "iterations": iterations,
    "peers": nmf,
    "fit": whole_fit,
    "images": images,
    "threads": threads,
    "growth": growth,
    "floor": floor,
    "memory": memory,
    "start": starting,
}
