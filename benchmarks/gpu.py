"""Measures the GPU engine: ``python -m benchmarks.gpu [--quick] [--only NAME ...] [--repeats N] [--out DIR]``.

Times on the GPU are medians of the time between two events, after a warm-up. Rows are generated on the GPU. Each has
about 100 different words out of 50,000, drawn by Zipf's law or uniformly, which is the worst case for caches.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF
from onmf.backend import GpuBackend, available_cores
from onmf.backend.gpu.rows import DenseRows, SparseRows
from onmf.data import InMemory, get_engine
from onmf.divergence import KullbackLeibler, get_divergence
from onmf.fit.loop import alternate

from .gpu_stream import dense_on_host, sparse_on_host
from .gpu_tools import WORDS, Row, iteration, on_host, rows_on_card, timed, wall


def ceilings(repeats: int) -> Iterator[Row]:
    """Measure the limits of the GPU: copied bytes, and multiply-adds in float64."""
    import cupy

    a = cupy.random.random(1 << 28, dtype=cupy.float32)
    b = cupy.empty_like(a)
    ms = timed(lambda: cupy.copyto(b, a), repeats)
    yield Row("copy of 1 GiB on the card", ms, note=f"{2 * a.nbytes / ms / 1e9:.2f} TB/s read and written")
    m = cupy.random.random((8192, 8192))
    ms = timed(lambda: m @ m, 3)
    yield Row("matrix product 8192³, float64", ms, note=f"{2 * 8192**3 / ms / 1e9:.1f} TFLOP/s")


def sparse(nnz: int, k: int, zipf: bool, targets: tuple[float, float], bandwidth: float, repeats: int) -> Iterator[Row]:
    """Measure assignment and sums over sparse rows, and cuSPARSE's product alone for comparison."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    backend, divergence = GpuBackend(), KullbackLeibler()
    rows = rows_on_card(nnz, zipf)
    n, entries = rows.shape[0], len(rows.indices)
    what = f"{entries / 1e6:.0f} M nonzeros, r = {k}, {'Zipf' if zipf else 'uniform'}"
    block = backend.make_block(rows, divergence)
    C = cupy.random.default_rng(1).random((k, WORDS)) ** 8
    T = block.prepare(C)
    labels, _ = backend.best_template(rows, T)
    least = (8 * entries + 20 * n) / bandwidth / 1e9
    target = (lambda ms, at: {"target": f"< {at:g}", "met": ms < at}) if entries > 5e7 else (lambda ms, at: {})
    ms = timed(lambda: backend.best_template(rows, T), repeats)
    line = 16 * T.chunks + 32
    rate = entries * line / ms / 1e9
    note = f"{entries * k / ms / 1e9:.2f} T multiply-adds/s; {line} B a nonzero from the caches: {rate:.2f} TB/s"
    yield Row(f"assignment, {what}", ms, floor=least, note=note, **target(ms, targets[0]))
    began = perf_counter()
    backend.sum_by_label(rows, labels, None, k)
    cupy.cuda.Device().synchronize()
    yield Row(f"copy by feature, once, {what}", 1e3 * (perf_counter() - began))
    ms = timed(lambda: backend.sum_by_label(rows, labels, None, k), repeats)
    yield Row(f"sum by label, {what}", ms, floor=least, **target(ms, targets[1]))
    weights = cupy.random.random(n)
    ms = timed(lambda: backend.sum_by_label(rows, labels, weights, k), repeats)
    yield Row(f"sum by label with weights, {what}", ms, floor=least)
    whole = iteration(block, C, repeats)
    yield Row(f"whole iteration, {what}", whole, note=f"{whole / least / 2:.1f} × two reads of the data")
    if entries < 2**31:
        X = csr_matrix((rows.data, rows.indices, rows.indptr.astype(cupy.int32)), shape=rows.shape)
        B = cupy.asfortranarray(T.BT.astype(cupy.float32))
        try:
            ms = timed(lambda: X @ B, max(3, repeats // 2))
            yield Row(f"cuSPARSE's product alone, {what}", ms)
        except cupy.cuda.memory.OutOfMemoryError:
            pass
        del X, B
    yield from on_the_cpu(rows, C.get(), k, what, whole, divergence)


def on_the_cpu(rows: SparseRows, C: Any, k: int, what: str, whole: float, divergence: Any) -> Iterator[Row]:
    """Measure the same iteration on the CPU of the same machine."""
    try:
        backend = get_engine("cpu").backend
    except ImportError as error:
        yield Row(f"the CPU engine: not available ({error})", float("nan"))
        return
    ended = alternate(InMemory(backend.make_block(on_host(rows), divergence)), C, max_iter=6, tol=0.0)
    ms = 1e3 * median(one.seconds for one in ended.iterations[1:])
    at = 10 if k <= 20 else 15
    note = f"the GPU is {ms / whole:.1f} times as fast"
    target = {"target": f"≥ {at} ×", "met": ms / whole >= at} if len(rows.indices) > 5e7 else {}
    yield Row(f"whole iteration on {available_cores()} cores, {what}", ms, note=note, **target)


def dense(n: int, p: int, k: int, bandwidth: float, repeats: int) -> Iterator[Row]:
    """Measure an iteration over an array."""
    import cupy

    backend = GpuBackend()
    rng = cupy.random.default_rng(0)
    rows = DenseRows(rng.random((n, p), dtype=cupy.float32))
    for loss in ("kullback-leibler", "frobenius"):
        divergence = get_divergence(loss)
        block = backend.make_block(rows, divergence)
        C = rng.random((k, p))
        T = block.prepare(C)
        least = rows.X.nbytes / bandwidth / 1e9
        what = f"array {n} × {p}, r = {k}, {loss}"
        assign = timed(lambda block=block, T=T: block.assign(T), repeats)
        labels, best = backend.best_template(rows, T)
        total = timed(lambda labels=labels, best=best: backend.sum_by_label(rows, labels, best, k), repeats)
        yield Row(f"assignment, {what}", assign, floor=least)
        yield Row(f"sum by label, {what}", total, floor=least)
        run = backend.start_run(block)
        ms = timed(lambda run=run, T=T: run.step(T), repeats)
        yield Row(f"step, {what}", ms, floor=least, note="assigned, added up and counted")
        ms = iteration(block, C, 4 * repeats, tries=repeats if n <= 10**6 else 3)
        share = 2 * least / ms
        target = {"target": "≥ 70 % of two reads", "met": share >= 0.7} if n == 10**6 else {}
        yield Row(f"whole iteration, {what}", ms, floor=2 * least, note=f"{100 * share:.0f} % of two reads", **target)


def widths(n: int, p: int, k: int, dtype: type, bandwidth: float, repeats: int) -> Iterator[Row]:
    """Measure an iteration over an array of any width."""
    import cupy

    backend, rng = GpuBackend(), cupy.random.default_rng(0)
    X = rng.random((n, p), dtype=dtype)
    least = X.nbytes / bandwidth / 1e9
    for loss in ("kullback-leibler", "frobenius"):
        block = backend.make_block(X, get_divergence(loss))
        ms = iteration(block, rng.random((k, p)), 2 * repeats)
        share, what = 2 * least / ms, f"array {n} × {p}, {np.dtype(dtype)}, r = {k}, {loss}"
        target = {"target": "≥ 70 % of two reads", "met": share >= 0.7} if n == 10**6 else {}
        yield Row(f"whole iteration, {what}", ms, floor=2 * least, note=f"{100 * share:.0f} % of two reads", **target)


def skewed(n: int, p: int, k: int, repeats: int) -> Iterator[Row]:
    """Measure a step if one cluster has 90 % of the rows, against clusters of one size."""
    import cupy

    backend, rng = GpuBackend(), cupy.random.default_rng(0)
    C = rng.random((k, p)) ** 4 + 0.1
    times = []
    for share in (0.0, 0.9):
        labels = cupy.where(rng.random(n) < share, 0, rng.integers(0, k, n))
        X = (C[labels] * (0.5 + rng.random((n, p), dtype=cupy.float32))).astype(cupy.float32)
        block = backend.make_block(X, KullbackLeibler())
        run, T = backend.start_run(block), block.prepare(C)
        times.append(timed(lambda run=run, T=T: run.step(T), repeats))
    ratio = times[1] / times[0]
    target = {"target": "≤ 1.3 ×", "met": ratio <= 1.3} if n == 10**6 else {}
    what = f"step, 90 % of the rows in one cluster, array {n} × {p}, r = {k}"
    yield Row(what, times[1], note=f"{ratio:.2f} × a step with clusters of one size", **target)


def search(rows: int) -> Iterator[Row]:
    """Measure a fit with local search over rows without structure, the hardest case."""
    X = on_host(rows_on_card(int(rows * 101.3), True))
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ONMF(20, engine="gpu", init="random-partition", refine="local-search", random_state=0).fit(X)
    ms = 1e3 * (perf_counter() - began)
    yield Row(f"fit with local search, {X.shape[0]} rows, r = 20", ms, note=f"{model.clustering_.n_sweeps} sweeps")


def ng20(repeats: int) -> Iterator[Row]:
    """Measure a complete fit of the paper's largest set, including SNPA."""
    from .data import corpus

    X = corpus("NG20")
    if X is None:
        return
    times = {}
    for name in ("cpu", "gpu"):
        try:
            times[name] = wall(lambda name=name: ONMF(20, engine=name).fit(X), repeats)
        except ImportError:
            continue
    if len(times) == 2:
        yield Row("NG20, whole fit, CPU engine", times["cpu"])
        met = times["gpu"] < times["cpu"]
        yield Row("NG20, whole fit, GPU engine", times["gpu"], target="< CPU engine", met=met)


STARTS = {"snpa": 40, "random": 60, "++": None, "random-partition": None}
"""Starts, and how many times as fast as all cores a whole fit should be."""


def fits(nnz: int) -> Iterator[Row]:
    """Measure complete fits of 30 iterations from each start, on the GPU and on all cores."""
    from cupyx.scipy.sparse import csr_matrix

    rows = rows_on_card(nnz, True)
    X, host = csr_matrix((rows.data, rows.indices, rows.indptr.astype(np.int32)), shape=rows.shape), on_host(rows)
    what = f"{host.nnz / 1e6:.0f} M nonzeros, r = 20, 30 iterations"
    for init, at in STARTS.items():
        settings = {"init": init, "max_iter": 30, "tol": 0, "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            gpu = wall(lambda settings=settings: ONMF(20, **settings).fit(X), 3)
            began = perf_counter()
            ONMF(20, **settings).fit(host)
            cpu = 1e3 * (perf_counter() - began)
        target = {"target": f"≥ {at} ×", "met": cpu / gpu >= at} if at and host.nnz > 5e7 else {}
        yield Row(f"whole fit from {init}, {what}", gpu, note=f"{cpu / gpu:.0f} times as fast as the CPU", **target)
        yield Row(f"whole fit from {init} on {available_cores()} cores, {what}", cpu)


def measure(quick: bool, repeats: int, only: Sequence[str] = ()) -> Iterator[Row]:
    """Run all measurements, or only those of these names."""
    import cupy

    first = None
    for row in ceilings(repeats):
        first = first or row
        yield row
    assert first is not None
    bandwidth = 2 * 4 * 2**28 / first.milliseconds / 1e9
    small, large = (10**5, 5 * 10**5) if quick else (10**8, 5 * 10**8)
    number = 10**3 if quick else 10**6
    beyond = 16 * 10**4 if quick else 16 * 10**7  # times 256 bytes; in float32 more than a card has
    parts: dict[str, list[Iterator[Row]]] = {
        "dense": [dense(n, 200, 20, bandwidth, repeats) for n in ((number,) if quick else (number, 10 * number))],
        "widths": [
            *(widths(number, 198, k, t, bandwidth, repeats) for t in (np.float32, np.float64) for k in (4, 20, 64)),
            skewed(number, 200, 20, repeats),
        ],
        "ng20": [ng20(repeats)],
        "sparse": [sparse(small, 20, zipf, (4, 6), bandwidth, repeats) for zipf in (True, False)],
        "fits": [fits(small)],
        "search": [search(small // 500)],
        "streamed": [
            *(sparse_on_host(large, dtype, repeats) for dtype in (np.float32, np.uint8)),
            dense_on_host(large // 25, 200, np.float32, repeats),
            dense_on_host(large // 25, 198, np.float32, repeats),
            dense_on_host(large // 25, 200, np.uint8, repeats),
        ],
        "beyond": [dense_on_host(beyond, 256, np.uint8, 6)],
        "large": [sparse(large, 100, zipf, (25, 25), bandwidth, repeats) for zipf in (True, False)],
    }
    for part in (part for name, all_of_it in parts.items() if not only or name in only for part in all_of_it):
        # Not within a part: the memory that is allocated next would have to be mapped again.
        cupy.get_default_memory_pool().free_all_blocks()
        yield from part


def describe_machine() -> str:
    """Describe the GPU, the host and the versions in one line."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    driver = cupy.cuda.runtime.driverGetVersion()
    cpu = next(
        (ln.split(":")[1].strip() for ln in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in ln), "CPU"
    )
    versions = (
        f"CUDA {driver // 1000}.{driver % 1000 // 10}, CuPy {cupy.__version__}, Python {platform.python_version()}"
    )
    return f"{name}; {available_cores()} cores of {cpu}; {versions}"


def to_markdown(machine: str, rows: list[Row]) -> str:
    """Return the rows as a table."""
    lines = [f"Measured on {machine}.", "", "| | ms | floor, ms | target | | |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        mark = {None: "", True: "✓", False: "**missed**"}[row.met]
        floor = "" if row.floor is None else f"{row.floor:.3g}"
        lines.append(f"| {row.what} | {row.milliseconds:.3g} | {floor} | {row.target} | {mark} | {row.note} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write JSON and Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure the GPU engine.")
    parser.add_argument(
        "--quick", action="store_true", help="use tiny data: checks that it runs; the numbers mean nothing"
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="NAME", help="measure only these, and keep the other results"
    )
    parser.add_argument("--repeats", type=int, default=9, help="number of repeats; the median is reported")
    parser.add_argument("--out", type=Path, default=Path("docs/gpu"), help="folder for the results")
    arguments = parser.parse_args()
    machine, rows, known = describe_machine(), list[Row](), arguments.out / "results.json"
    if arguments.only and known.exists():
        rows = [Row(**row) for row in json.loads(known.read_text())["rows"]]
    print(machine, flush=True)
    for row in measure(arguments.quick, arguments.repeats, arguments.only):
        places = [place for place, other in enumerate(rows) if other.what == row.what]
        rows[slice(places[0], places[0] + 1) if places else slice(len(rows), None)] = [row]
        mark = {None: "", True: "✓", False: "✗"}[row.met]
        print(f"  {row.what:75} {row.milliseconds:9.3f} ms {row.target:>10} {mark:1} {row.note}", flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        content = {"machine": machine, "rows": [asdict(row) for row in rows]}
        known.write_text(json.dumps(content, indent=1) + "\n")
    (arguments.out / "gpu.md").write_text(to_markdown(machine, rows))
    print(f"Written to {arguments.out}")


if __name__ == "__main__":
    main()
