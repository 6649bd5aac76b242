"""Beyond the memory of one machine: the cost of Dask, a corpus larger than the workers, an estimate for 1,000 workers.

(a) two workers against one process; (b) a corpus on disk, workers limited to 1 GB each; (c) time against the number of
partitions; (d) an estimate for 1,000 workers and 10¹² nonzeros, by formula and by simulation, from the rates that (a)
and (c) measured. Results are stored in results.json, part by part.
"""

import heapq
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf import ONMF
from onmf.datasets import make_counts, open_shards, write_shards

from .measure import peak_memory, seconds
from .results import Record, publish, save_json, table

CLUSTERS, WORDS, ENTRIES = 20, 20_000, 20_000_000
ITERATIONS = 6


def corpus(entries: int, words: int = WORDS, seed: int = 0) -> csr_array:
    """Generate counts with about ``entries`` nonzeros, float32 with int32 indices: 8 bytes each."""
    rows = entries // 75  # a document of 120 words has about 75 different ones
    return make_counts(rows, words, CLUSTERS, length=120, overlap=0.5, random_state=seed).X.astype(np.float32)


def other_draw(X: csr_array, seed: int) -> csr_array:
    """Return the same documents in another order, with new random counts."""
    rng = np.random.default_rng(seed)
    X = X[rng.permutation(X.shape[0])]
    return csr_array((1 + rng.poisson(0.5, X.nnz).astype(np.float32), X.indices, X.indptr), shape=X.shape)


def per_iteration(X: Any, **options: Any) -> float:
    """Return the median seconds of an iteration, without the first two."""
    options = {"init": "random-partition", "random_state": 0, "max_iter": ITERATIONS, "tol": 0} | options
    return float(np.median(ONMF(CLUSTERS, **options).fit(X).history_["seconds"][2:]))


@contextmanager
def workers(memory: str = "auto") -> Iterator[Any]:
    """Start two processes with one thread each."""
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": memory}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def on_workers(X: csr_array, parts: int) -> float:
    """Return the median seconds of an iteration over ``parts`` parts, which are with the workers already."""
    from distributed import wait

    D = as_dask(X, parts).persist()
    wait(D)
    return per_iteration(D)


def as_dask(X: csr_array, parts: int) -> Any:
    """Split the rows into ``parts`` parts."""
    import dask
    import dask.array as da

    ends = np.linspace(0, X.shape[0], parts + 1).astype(int)
    meta = csr_array((0, X.shape[1]))
    blocks = [X[a:b] for a, b in pairwise(ends)]
    return da.concatenate([da.from_delayed(dask.delayed(b, traverse=False), b.shape, meta=meta) for b in blocks])


def two_workers(quick: bool) -> Record:
    """(a) Compare two workers with one process."""
    X, parts = corpus(ENTRIES // (20 if quick else 1)), 16
    results: Record = {
        "nonzeros": int(X.nnz),
        "rows": X.shape[0],
        "partitions": parts,
        "one process, one thread": per_iteration(X, n_threads=1),
        "one process, two threads": per_iteration(X, n_threads=2),
        "Dask, threads of one process": per_iteration(as_dask(X, parts)),
    }
    with workers():
        spent = on_workers(X, parts)
    overhead = (spent - results["one process, one thread"] / 2) / parts
    return results | {"Dask, two workers": spent, "overhead a partition": overhead}


def larger_than_memory(gigabytes: float, folder: Path) -> Record:
    """(b) Fit a corpus on disk with workers limited to 1 GB each."""
    if not folder.exists():
        base = corpus(10_000_000, words=50_000)
        number = int(np.ceil(gigabytes * 1e9 / (8 * base.nnz + 4 * base.shape[0])))
        write_shards((other_draw(base, seed) for seed in range(number)), folder)
        del base
    shards = open_shards(folder)
    with workers("1GB") as client:
        model = ONMF(10, init="random-partition", random_state=0, max_iter=3)
        spent = seconds(lambda: model.fit(shards.to_dask()))
        sizes, peaks = np.bincount(model.labels_.compute(), minlength=10), client.run(peak_memory)
    results = {
        "gigabytes": sum(file.stat().st_size for file in shards.files) / 1e9,
        "rows": shards.shape[0],
        "words": shards.features,
        "shards": len(shards.files),
        "memory limit of a worker, GB": 1.0,
        "seconds of the fit": spent,
        "seconds an iteration": float(np.median(model.history_["seconds"])),
        "cluster sizes": sizes.tolist(),
        "peak memory of the workers, GB": [round(float(peak), 3) for peak in peaks.values()],
        "workers that were there at the end": len(peaks),
        "peak memory of this process, GB": peak_memory(),
    }
    shutil.rmtree(folder)
    return results


def partitions(quick: bool) -> Record:
    """(c) Measure time against the number of partitions, on data so small that the overhead dominates."""
    X = corpus(500_000, words=2_000)
    numbers = [4, 16, 64] if quick else [4, 16, 64, 256, 1024]
    with workers():
        spent = [on_workers(X, number) for number in numbers]
    slope, constant = np.polyfit(numbers, spent, 1)
    return {"partitions": numbers, "seconds": spent, "a partition": float(slope), "constant": float(constant)}


def estimate(rate: float, overhead: float) -> Record:
    """(d) Estimate the time for 1,000 workers and 10¹² nonzeros, by formula and by simulation.

    Parameters
    ----------
    rate : float
        Nonzeros that one core assigns and sums per second.
    overhead : float
        Seconds that the scheduler spends on one partition in one pass.
    """
    workers, entries, k, p, bandwidth, fan_in = 1000, 1e12, 100, 1e5, 1.25e9, 8
    size = 8 * k * p  # the templates; the sums by cluster are as large
    rate = rate * CLUSTERS / k
    rows = []
    for per_worker in (1, 4, 16, 64):
        number = workers * per_worker
        compute = entries / workers / rate
        broadcast = np.ceil(np.log2(workers)) * size / bandwidth
        gather = int(np.ceil(np.log(number) / np.log(fan_in))) * (fan_in - 1) * size / bandwidth
        rows.append(
            {
                "partitions": number,
                "nonzeros of a partition": entries / number,
                "compute": compute,
                "scheduler": number * overhead,
                "broadcast": broadcast,
                "tree": gather,
                "sum": compute + number * overhead + broadcast + gather,
                "simulated": simulate(number, workers, compute / per_worker, overhead, broadcast, size / bandwidth),
                "gigabytes sent": (workers + number + number / (fan_in - 1)) * size / 1e9,
            }
        )
    return {
        "workers": workers,
        "nonzeros": entries,
        "clusters": k,
        "features": p,
        "bytes a second": bandwidth,
        "rate of a core": rate,
        "overhead a partition": overhead,
        "rows": rows,
    }


def simulate(
    number: int, workers: int, compute: float, overhead: float, broadcast: float, sending: float, fan_in: int = 8
) -> float:
    """Simulate a pass with a sequential scheduler, workers of uneven speed and a reduction tree; return its seconds."""
    rng = np.random.default_rng(0)
    busy = [(broadcast, worker) for worker in range(workers)]
    heapq.heapify(busy)
    clock, done = 0.0, []
    for _ in range(number):
        free, worker = heapq.heappop(busy)
        clock += overhead  # the scheduler assigns one task after the other
        end = max(clock, free) + compute * rng.lognormal(0, 0.1)
        heapq.heappush(busy, (end, worker))
        done.append(end)
    while len(done) > 1:
        groups = [done[i : i + fan_in] for i in range(0, len(done), fan_in)]
        done = [max(group) + (len(group) - 1) * sending for group in groups]
    return float(done[0])


def run(
    parts: tuple[str, ...] = ("a", "b", "c", "d"),
    gigabytes: float = 6.2,
    folder: Path = Path("/tmp/onmf-scale"),
    quick: bool = False,
    out: Path = Path("docs/scale"),
) -> None:
    """Measure the chosen parts, and write the tables."""
    file = out / "results.json"
    results: Record = json.loads(file.read_text()) if file.exists() else {}
    measures: dict[str, Callable[[], Record]] = {
        "a": lambda: two_workers(quick),
        "b": lambda: larger_than_memory(0.2 if quick else gigabytes, folder),
        "c": lambda: partitions(quick),
        "d": lambda: estimate(
            results["a"]["nonzeros"] / results["a"]["one process, one thread"], max(results["c"]["a partition"], 1e-5)
        ),
    }
    for part in parts:
        results[part] = measures[part]()
        print(part, json.dumps(results[part]), flush=True)
        save_json(file, results)
    publish(out / "scale.md", summary(results))


def summary(results: Record) -> list[str]:
    """Return the tables of the parts that were measured."""
    return [line for part in SUMMARIES if part in results for line in SUMMARIES[part](results[part])]


def summary_a(a: Record) -> list[str]:
    """Return the table of two workers."""
    rows = [[name, f"{a[name]:.3f}"] for name in a if name.startswith(("one", "Dask"))]
    overhead = f"with an overhead of {1e3 * a['overhead a partition']:.1f} ms each."
    return [
        f"**(a) {a['nonzeros'] / 1e6:.0f} M nonzeros, 20 clusters**",
        "",
        *table(["", "seconds per iteration"], rows),
        "",
        f"{a['partitions']} partitions, {overhead}",
        "",
    ]


def summary_b(b: Record) -> list[str]:
    """Return the table of a corpus on disk."""
    rows = [
        ["rows × words, in shards", f"{b['rows']:,} × {b['words']:,}, {b['shards']}"],
        ["seconds per iteration", f"{b['seconds an iteration']:.1f}"],
        ["seconds of a fit of 3 iterations, including start and labels", f"{b['seconds of the fit']:.0f}"],
        ["peak memory of the workers, GB", " and ".join(f"{v:.2f}" for v in b["peak memory of the workers, GB"])],
        ["peak memory of the process that fits, GB", f"{b['peak memory of this process, GB']:.2f}"],
    ]
    return [
        f"**(b) {b['gigabytes']:.1f} GB on disk, two workers limited to 1 GB each**",
        "",
        *table(["", ""], rows),
        "",
    ]


def summary_c(c: Record) -> list[str]:
    """Return the table of partitions."""
    rows = [[str(n), f"{s:.3f}"] for n, s in zip(c["partitions"], c["seconds"], strict=True)]
    lines = table(["partitions", "seconds per iteration"], rows, "rr")
    return ["**(c) Number of partitions**", "", *lines, "", f"{1e3 * c['a partition']:.2f} ms for each partition.", ""]


def summary_d(d: Record) -> list[str]:
    """Return the table of the estimate."""
    size = f"{d['workers']:,} workers, 10¹² nonzeros, {d['clusters']} clusters, {d['features']:,.0f} features"
    names = ("compute", "scheduler", "broadcast", "tree", "sum", "simulated", "gigabytes sent")
    rows = [[f"{row['partitions']:,}", *(f"{row[name]:,.1f}" for name in names)] for row in d["rows"]]
    return [
        f"**(d) {size}: seconds per iteration**",
        "",
        *table(["partitions", *names[:-1], "GB sent"], rows, "r" * (len(names) + 1)),
        "",
        f"Measured above: {d['rate of a core'] / 1e6:.1f} M nonzeros per second and core with {d['clusters']} "
        f"clusters, and {1e3 * d['overhead a partition']:.2f} ms of scheduling per partition. Assumed: "
        f"{d['bytes a second'] / 1e9:.2f} GB per second between two machines.",
    ]


SUMMARIES = {"a": summary_a, "b": summary_b, "c": summary_c, "d": summary_d}
