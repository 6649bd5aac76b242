"""Measures the GPU engine.

Times on the GPU are medians of the time between two events, after a warm-up. Rows are generated on the GPU. Each has
about 100 different words out of 50,000, drawn by Zipf's law or uniformly, which is the worst case for caches.
"""

import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf import ONMF
from onmf.backend import Block, GpuBackend, available_cores, to_host
from onmf.backend.gpu.rows import SparseRows
from onmf.data import InMemory, get_engine
from onmf.divergence import Divergence, KullbackLeibler, NegativeBinomial, get_divergence
from onmf.divergence.base import Scale
from onmf.fit import Listener, Settings
from onmf.fit.loop import alternate
from onmf.fit.solve import get_start

with suppress(ImportError):  # without a GPU, stored rows can still be made a table
    import cupy

from . import measure
from .measure import an_iteration, in_turns, medians, processor, seconds
from .results import MISSED, Record, judged, measure_rows, publish, table
from .speed import corpus

WORDS = 50_000
LARGE = 5e7
"""Nonzeros from which on times have targets."""

BEYOND = 3 * 10**10
"""Entries from which on rows in host memory may use all of the card. Smaller ones get a part of it."""

STARTS = {"snpa": "≥ 40 ×", "random": "≥ 60 ×", "++": "", "random-partition": ""}
"""Starts, and how many times as fast as all cores a whole fit should be."""


def row(
    what: str, milliseconds: float, floor: float | None = None, note: str = "", judge: tuple[float, str] = (0, "")
) -> Record:
    """Return a measured time; ``floor`` is the time that moving the necessary bytes takes at least."""
    return {"what": what, "milliseconds": milliseconds, "floor": floor, "note": note, **judged(*judge)}


def timed(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call on the GPU, in milliseconds."""

    def once() -> float:
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function()
        stop.record()
        stop.synchronize()
        return cupy.cuda.get_elapsed_time(start, stop)

    return medians({"": once}, repeats)[""]


def wall(function: Callable[[], object], repeats: int = 0) -> float:
    """Return the median wall-clock time of a call in milliseconds; without repeats, that of the first call."""

    def once() -> None:
        function()
        cupy.cuda.Device().synchronize()

    return 1e3 * (in_turns({"": once}, repeats)[""] if repeats else seconds(once))


def iteration(block: Block, C: Any, iterations: int, tries: int = 3) -> float:
    """Return the milliseconds of an iteration: the median over ``tries`` of the extra time of ``iterations`` more."""
    start, data = to_host(C), InMemory(block)

    def run(max_iter: int) -> int:
        ended = alternate(data, start.copy(), max_iter=max_iter, tol=0.0)
        to_host(data.part.run.collect()[0])
        return len(ended.iterations)

    return 1e3 * an_iteration({"the loop": (run, 1, 1 + iterations)}, tries)["the loop"]


def rows_on_card(nnz: int, zipf: bool) -> SparseRows:
    """Generate about ``nnz`` counts in rows of about 100 different words, sorted."""
    rng = cupy.random.default_rng(0)
    draws, per_row = (140, 101.3) if zipf else (100, 99.9)
    n = int(nnz / per_row)
    parts, lengths = [], []
    for start in range(0, n, 250_000):
        u = rng.random((min(250_000, n - start), draws), dtype=cupy.float32)
        words = cupy.exp(u * np.log(WORDS + 1)) - 1 if zipf else u * WORDS
        words = cupy.sort(cupy.minimum(words.astype(cupy.int32), WORDS - 1), axis=1)
        if zipf:
            words = (words.astype(cupy.int64) * 7919 % WORDS).astype(cupy.int32)  # spread the frequent words
            words.sort(axis=1)
        is_new = cupy.ones(words.shape, dtype=bool)
        is_new[:, 1:] = words[:, 1:] != words[:, :-1]
        parts.append(words[is_new])
        lengths.append(is_new.sum(axis=1))
    indices = cupy.concatenate(parts)
    indptr = cupy.zeros(n + 1, dtype=cupy.int64)
    cupy.cumsum(cupy.concatenate(lengths), out=indptr[1:])
    return SparseRows(indptr, indices, rng.poisson(0.5, len(indices)).astype(cupy.float32) + 1, (n, WORDS))


def on_host(rows: SparseRows) -> csr_array:
    """Copy sparse rows from the card."""
    return csr_array((to_host(rows.data), to_host(rows.indices), to_host(rows.indptr)), shape=rows.shape)


def as_cupy(rows: SparseRows) -> Any:
    """Return sparse rows as a matrix of CuPy."""
    from cupyx.scipy.sparse import csr_matrix

    return csr_matrix((rows.data, rows.indices, rows.indptr.astype(np.int32)), shape=rows.shape)


def ceilings(repeats: int) -> tuple[Record, Record]:
    """Measure the limits of the GPU: copied bytes, and multiply-adds in float64."""
    a, m = cupy.random.random(1 << 28, dtype=cupy.float32), cupy.random.random((8192, 8192))
    b = cupy.empty_like(a)
    copied, multiplied = timed(lambda: cupy.copyto(b, a), repeats), timed(lambda: m @ m, 3)
    return (
        row("copy of 1 GiB on the card", copied, note=f"{2 * a.nbytes / copied / 1e9:.2f} TB/s read and written"),
        row("matrix product 8192³, float64", multiplied, note=f"{2 * 8192**3 / multiplied / 1e9:.1f} TFLOP/s"),
    )


def sparse(nnz: int, k: int, zipf: bool, targets: tuple[str, str], bandwidth: float, repeats: int) -> Iterator[Record]:
    """Measure assignment and sums over sparse rows, cuSPARSE's product alone, and the same iteration on the CPU."""
    backend, divergence = GpuBackend(), KullbackLeibler()
    rows = rows_on_card(nnz, zipf)
    n, entries = rows.shape[0], len(rows.indices)
    what = f"{entries / 1e6:.0f} M nonzeros, r = {k}, {'Zipf' if zipf else 'uniform'}"
    block = backend.make_block(rows, divergence)
    C = cupy.random.default_rng(1).random((k, WORDS)) ** 8
    T = block.prepare(C)
    labels, _ = backend.best_template(rows, T)
    least = (8 * entries + 20 * n) / bandwidth / 1e9
    assigning, summing = targets if entries > LARGE else ("", "")
    line = 16 * T.chunks + 32
    ms = timed(lambda: backend.best_template(rows, T), repeats)
    rates = f"{entries * k / ms / 1e9:.2f} T multiply-adds/s; {line} B a nonzero from the caches"
    yield row(f"assignment, {what}", ms, least, f"{rates}: {entries * line / ms / 1e9:.2f} TB/s", (ms, assigning))
    add = partial(backend.sum_by_label, rows, labels)
    yield row(f"copy by feature, once, {what}", wall(lambda: add(None, k)))
    ms = timed(lambda: add(None, k), repeats)
    yield row(f"sum by label, {what}", ms, least, judge=(ms, summing))
    ms = timed(partial(add, cupy.random.random(n), k), repeats)
    yield row(f"sum by label with weights, {what}", ms, least)
    whole = iteration(block, C, repeats)
    yield row(f"whole iteration, {what}", whole, note=f"{whole / least / 2:.1f} × two reads of the data")
    if entries < 2**31:
        X, B = as_cupy(rows), cupy.asfortranarray(T.BT.astype(cupy.float32))
        with suppress(cupy.cuda.memory.OutOfMemoryError):
            yield row(f"cuSPARSE's product alone, {what}", timed(lambda: X @ B, max(3, repeats // 2)))
        del X, B
    target = ("≥ 10 ×" if k <= 20 else "≥ 15 ×") if entries > LARGE else ""
    yield on_all_cores(rows, divergence, C, whole, target, what)


def on_all_cores(
    rows: SparseRows, divergence: Divergence, C: Any, whole: float, target: str, what: str, iterations: int = 6
) -> Record:
    """Measure an iteration on the CPU, given the milliseconds of one on the GPU."""
    data = InMemory(get_engine("cpu").backend.make_block(on_host(rows), divergence))
    done = alternate(data, C.get(), max_iter=iterations, tol=0.0).iterations
    ms = 1e3 * median(one.seconds for one in done[1:])
    note = f"the GPU is {ms / whole:.1f} times as fast"
    return row(f"whole iteration on {available_cores()} cores, {what}", ms, note=note, judge=(ms / whole, target))


def curved(nnz: int, k: int, scale: Scale, repeats: int) -> Iterator[Record]:
    """Measure an iteration of the negative binomial, on the GPU and on all cores."""
    divergence, rows = NegativeBinomial(scale=scale), rows_on_card(nnz, True)
    entries = len(rows.indices)
    what = f"negative binomial, scale={scale!r}, {entries / 1e6:.0f} M nonzeros, r = {k}"
    block, C = GpuBackend().make_block(rows, divergence), cupy.random.default_rng(1).random((k, WORDS)) ** 8
    T, run = block.prepare(C), block.backend.start_run(block)
    yield row(f"templates, {what}", timed(lambda: block.prepare(C), repeats))
    yield row(f"assignment, {what}", timed(lambda: block.assign(T), repeats))
    step = run.step(T)
    yield row(f"centroids, {what}", timed(lambda: run.update(step, C.copy()), repeats))
    whole = iteration(block, divergence.initial_centroids(C), repeats)
    yield row(f"whole iteration, {what}", whole)
    yield on_all_cores(rows, divergence, C, whole, "≥ 40 ×" if entries > LARGE else "", what, iterations=4)


def dense(n: int, p: int, k: int, dtype: Any, bandwidth: float, repeats: int, steps: bool = False) -> Iterator[Record]:
    """Measure an iteration over an array, and its steps."""
    backend, rng = GpuBackend(), cupy.random.default_rng(0)
    X = rng.random((n, p), dtype=dtype)
    least = X.nbytes / bandwidth / 1e9
    for loss in ("kullback-leibler", "frobenius"):
        what = f"array {n} × {p}, {np.dtype(dtype)}, r = {k}, {loss}"
        block, C = backend.make_block(X, get_divergence(loss)), rng.random((k, p))
        if steps:
            T = block.prepare(C)
            yield row(f"assignment, {what}", timed(partial(block.assign, T), repeats), least)
            add = partial(backend.sum_by_label, block.rows, *backend.best_template(block.rows, T), k)
            yield row(f"sum by label, {what}", timed(add, repeats), least)
            step = partial(backend.start_run(block).step, T)
            yield row(f"step, {what}", timed(step, repeats), least, "assigned, added up and counted")
        ms = iteration(block, C, 4 * repeats, tries=repeats if n <= 10**6 else 3)
        share, target = 100 * 2 * least / ms, "≥ 70 % of two reads" if n == 10**6 else ""
        yield row(f"whole iteration, {what}", ms, 2 * least, f"{share:.0f} % of two reads", (share, target))


def many(nnz: int, k: int) -> Iterator[Record]:
    """Measure starts, iterations and memory with many clusters."""
    divergence, rows, pool = KullbackLeibler(), rows_on_card(nnz, True), cupy.get_default_memory_pool()
    what = f"{len(rows.indices) / 1e6:.0f} M nonzeros, r = {k}"
    data = InMemory(GpuBackend().make_block(as_cupy(rows), divergence))
    data.block.sum_by_label(np.zeros(len(data.block), np.int32), None, 1)  # makes the copy by feature
    later = iteration(data.block, cupy.random.default_rng(1).random((k, WORDS)) ** 8, 4)
    cupy.cuda.Device().synchronize()
    pool.free_all_blocks()
    held = pool.total_bytes()
    for init in ("random-partition", "random", "++"):
        start: Any = get_start(init)
        spent, seeds = measure.timed(start.seeds, data, Settings(n_clusters=k, init=init), 0, Listener(), None)
        yield row(f"start {init}, {what}", 1e3 * spent, note=f"{1e3 * spent / later:.0f} iterations")
        ended = alternate(data, seeds.centroids, max_iter=4, tol=0.0)
        first = 1e3 * sum(one.seconds for one in ended.iterations[:2])
        yield row(f"first two iterations from {init}, {what}", first)
    arrays = (pool.total_bytes() - held) / (4 * k * WORDS)
    yield row(f"whole iteration, {what}", later, note=f"{arrays:.1f} arrays of r × p in float32, besides the rows")


def skewed(n: int, p: int, k: int, repeats: int) -> Iterator[Record]:
    """Measure a step if one cluster has 90 % of the rows, against clusters of one size."""
    backend, rng = GpuBackend(), cupy.random.default_rng(0)
    C = rng.random((k, p)) ** 4 + 0.1
    times = []
    for share in (0.0, 0.9):
        labels = cupy.where(rng.random(n) < share, 0, rng.integers(0, k, n))
        X = (C[labels] * (0.5 + rng.random((n, p), dtype=cupy.float32))).astype(cupy.float32)
        block = backend.make_block(X, KullbackLeibler())
        times.append(timed(partial(backend.start_run(block).step, block.prepare(C)), repeats))
    ratio, target = times[1] / times[0], "≤ 1.3 ×" if n == 10**6 else ""
    what = f"step, 90 % of the rows in one cluster, array {n} × {p}, r = {k}"
    yield row(what, times[1], note=f"{ratio:.2f} × a step with clusters of one size", judge=(ratio, target))


def search(rows: int) -> Iterator[Record]:
    """Measure a fit with local search over rows without structure, the hardest case."""
    X = on_host(rows_on_card(int(rows * 101.3), True))
    model = ONMF(20, engine="gpu", init="random-partition", refine="local-search", random_state=0)
    ms = wall(lambda: model.fit(X))
    yield row(f"fit with local search, {X.shape[0]} rows, r = 20", ms, note=f"{model.clustering_.n_sweeps} sweeps")


def ng20(repeats: int) -> Iterator[Record]:
    """Measure a complete fit of the paper's largest set, including SNPA."""
    if (X := corpus("NG20")) is not None:
        cpu, gpu = (wall(partial(ONMF(20, engine=engine).fit, X), repeats) for engine in ("cpu", "gpu"))
        yield row("NG20, whole fit, CPU engine", cpu)
        yield row("NG20, whole fit, GPU engine", gpu) | {"target": "< CPU engine", "met": gpu < cpu}


def fits(nnz: int) -> Iterator[Record]:
    """Measure complete fits of 30 iterations from each start, on the GPU and on all cores."""
    rows = rows_on_card(nnz, True)
    X, host = as_cupy(rows), on_host(rows)
    what = f"{host.nnz / 1e6:.0f} M nonzeros, r = 20, 30 iterations"
    for init, target in STARTS.items():
        model = ONMF(20, init=init, max_iter=30, tol=0, random_state=0)
        gpu, cpu = wall(partial(model.fit, X), 3), wall(partial(model.fit, host))
        judge = (cpu / gpu, target if host.nnz > LARGE else "")
        yield row(f"whole fit from {init}, {what}", gpu, note=f"{cpu / gpu:.0f} times as fast as the CPU", judge=judge)
        yield row(f"whole fit from {init} on {available_cores()} cores, {what}", cpu)


def streamed(what: str, rows: Any, repeats: int) -> Iterator[Record]:
    """Measure a step over rows in host memory."""
    entries = rows.nnz if issparse(rows) else rows.size
    backend = GpuBackend(memory=None if entries > BEYOND else min(2 * 10**9, 8 * entries))
    what = f"{what} on the host, {rows.dtype}, r = 20"
    spent, block = measure.timed(backend.make_block, rows, KullbackLeibler())
    yield row(f"locked and read once, {what}", 1e3 * spent)
    run, C = backend.start_run(block), np.random.default_rng(0).random((20, rows.shape[1])) ** 8
    ms = wall(lambda: run.step_from(backend.to_device(C)), max(2, repeats // 3))
    payload = sum(array.nbytes for array in block.rows.arrays.values())
    note = f"{payload / ms / 1e6:.1f} GB/s from the host, {len(block.rows.cuts)} blocks"
    yield row(f"step, {what}", ms, note=note, judge=(payload / ms / 1e6, "≥ 40 GB/s" if payload > 1e9 else ""))


def sparse_on_host(nnz: int, dtype: type, repeats: int) -> Iterator[Record]:
    """Measure a step over sparse rows in host memory."""
    rows = on_host(rows_on_card(nnz, True))
    rows.data = rows.data.astype(dtype)
    yield from streamed(f"{rows.nnz / 1e6:.0f} M nonzeros", rows, repeats)


def dense_on_host(n: int, p: int, dtype: type, repeats: int) -> Iterator[Record]:
    """Measure a step over an array in host memory."""
    made = (100 * cupy.random.default_rng(0).random((1_000_000, p), dtype=cupy.float32)).astype(dtype).get()
    rows = np.empty((n, p), dtype)
    blocks = [rows[start : start + len(made)] for start in range(0, n, len(made))]
    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(lambda block: np.copyto(block, made[: len(block)]), blocks))
    yield from streamed(f"array {n} × {p}", rows, repeats)


def all_parts(quick: bool, repeats: int, bandwidth: float) -> dict[str, list[Iterator[Record]]]:
    """Return all measurements by name."""
    number = 10**3 if quick else 10**6
    small, large = 100 * number, 500 * number
    sizes = (number,) if quick else (number, 10 * number)
    return {
        "dense": [dense(n, 200, 20, np.float32, bandwidth, repeats, steps=True) for n in sizes],
        "widths": [
            *(dense(number, 198, k, t, bandwidth, repeats) for t in (np.float32, np.float64) for k in (4, 20, 64)),
            skewed(number, 200, 20, repeats),
        ],
        "ng20": [ng20(repeats)],
        "sparse": [sparse(small, 20, zipf, ("< 4", "< 6"), bandwidth, repeats) for zipf in (True, False)],
        "curved": [curved(small, 20, scale, repeats) for scale in ("size", "fit")],
        "many": [many(small, k) for k in (100, 1000)],
        "fits": [fits(small)],
        "search": [search(small // 500)],
        "streamed": [
            *(sparse_on_host(large, dtype, repeats) for dtype in (np.float32, np.uint8)),
            dense_on_host(large // 25, 200, np.float32, repeats),
            dense_on_host(large // 25, 198, np.float32, repeats),
            dense_on_host(large // 25, 200, np.uint8, repeats),
        ],
        # 256 bytes a row; in float32 more than a card has
        "beyond": [dense_on_host(160 * number, 256, np.uint8, 6)],
        "large": [sparse(large, 100, zipf, ("< 25", "< 25"), bandwidth, repeats) for zipf in (True, False)],
    }


def measured(quick: bool, repeats: int, names: tuple[str, ...]) -> Iterator[Record]:
    """Yield the rows of the measurements of these names, or of all."""
    limits = ceilings(repeats)
    yield from limits
    parts = all_parts(quick, repeats, 2 * 4 * 2**28 / limits[0]["milliseconds"] / 1e9)
    for part in chain.from_iterable(parts[name] for name in parts if name in (names or parts)):
        # Not within a part: the memory that is allocated next would have to be mapped again.
        cupy.get_default_memory_pool().free_all_blocks()
        yield from part


def describe_machine() -> str:
    """Describe the GPU, the host and the versions in one line."""
    name, driver = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), cupy.cuda.runtime.driverGetVersion()
    versions = f"CUDA {driver // 1000}.{driver % 1000 // 10}, CuPy {cupy.__version__}"
    return f"{name}; {available_cores()} cores of {processor()}; {versions}, Python {platform.python_version()}"


def run(parts: tuple[str, ...] = (), quick: bool = False, repeats: int = 9, out: Path = Path("docs/gpu")) -> None:
    """Measure, print, and write JSON and Markdown."""
    measure.REST = 0.0  # nothing else runs, and a GPU that idles slows down
    GpuBackend()  # says what is missing
    machine = describe_machine()
    rows = measure_rows(measured(quick, repeats, parts), out, machine, bool(parts))
    publish(out / "gpu.md", to_markdown(machine, rows))


def to_markdown(machine: str, rows: list[Record]) -> list[str]:
    """Return the rows as a table."""
    lines = []
    for row in rows:
        times = ("" if row[key] is None else f"{row[key]:.3g}" for key in ("milliseconds", "floor"))
        lines.append([row["what"], *times, row["target"], MISSED[row["met"]], row["note"]])
    return [f"Measured on {machine}.", "", *table(["", "ms", "floor, ms", "target", "", ""], lines, "lrrrll")]
