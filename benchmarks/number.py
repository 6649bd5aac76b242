"""How many clusters -k auto finds, against the number that was made or the number of classes.

Made documents have 3 to 30 clusters, of equal or unequal sizes, with and without bursts: in a document with bursts, a
word that occurs once is likely to occur again. Then the paper's document sets and images. No threshold is fitted to
them; docs/guide/clusters.md says which of them were in view when the rule was found. What is in results.json is not
measured again. The tables are written as number.md.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf import Selection, select_n_clusters
from onmf.datasets import load_hyperspectral, make_counts
from onmf.image import cluster

from .data import available, load
from .measure import timed
from .results import Record, Store, publish, section, table

NUMBERS = (3, 5, 8, 12, 20, 30)
ROWS = 60
"""Documents for each cluster, on average."""

BURSTS = {"none": None, "some": 100.0, "strong": 30.0}
"""How much words come in bursts: the concentration of the Dirichlet distribution around a cluster's profile."""

HALVED = 4
"""The largest of the unequal clusters has so many times the documents of the smallest."""

KINDS = {"documents": "documents", "images": "hyperspectral"}
"""The kinds of data sets of each part."""


def made(k: int, *, unequal: bool, concentration: float | None, seed: int, rows: int = ROWS) -> csr_array:
    """Make documents of k clusters."""
    found = make_counts(2 * HALVED * rows * k, 1000, k, length=120, overlap=0.3, random_state=seed)
    weights = HALVED ** np.linspace(0, 1, k) if unequal else np.ones(k)
    sizes = np.rint(rows * k * weights / weights.sum()).astype(int)
    some = np.concatenate([np.flatnonzero(found.y == label)[:size] for label, size in enumerate(sizes)])
    X = csr_array(found.X[some])
    if concentration is None:
        return X
    rng = np.random.default_rng([seed, k])
    shares = rng.gamma(concentration * found.profiles[found.y[some]]) + 1e-300
    return csr_array(rng.multinomial(X.sum(axis=1), shares / shares.sum(axis=1, keepdims=True)))


def record_of(selection: Selection, spent: float, kind: str, true: int, name: str = "") -> Record:
    """Return a choice of the number of clusters as a record."""
    return {
        "name": name,
        "kind": kind,
        "true": true,
        "chosen": selection.n_clusters,
        "by": selection.chosen,
        "runners_up": selection.runners_up,
        "rows": selection.n_rows,
        "of": selection.n_total,
        "largest": int(selection.candidates[-1]),
        "seconds": spent,
    }


def measure_made(k: int, unequal: bool, bursts: str, seed: int, threads: int) -> Record:
    """Choose the number of clusters of made documents."""
    X = made(k, unequal=unequal, concentration=BURSTS[bursts], seed=seed)
    options: dict[str, Any] = {"random_state": seed, "n_threads": threads}
    spent, found = timed(lambda: select_n_clusters(X, **options), clock=process_time)
    thinned = select_n_clusters(X, found.candidates, criterion="held-out", halves="counts", n_splits=1, **options)
    made_with = {"unequal": unequal, "bursts": bursts, "seed": seed, "by_halved_counts": thinned.n_clusters}
    return record_of(found, spent, "made", k) | made_with


def measure_set(name: str, kind: str, threads: int) -> Record:
    """Choose the number of clusters of a document set or an image."""
    if kind == "documents":
        X, y = load(name)
        choose = partial(select_n_clusters, random_state=0, n_threads=threads)
        spent, found = timed(choose, X[np.flatnonzero(X.sum(axis=1))], clock=process_time)
        return record_of(found, spent, "documents", len(np.unique(y)), name)
    scene = load_hyperspectral(name)
    choose = partial(cluster, n_clusters="auto", negatives="clip", n_threads=threads)
    spent, found = timed(choose, scene.X.reshape(scene.height, scene.width, -1, order=scene.order), clock=process_time)
    return record_of(found.selection, spent, "image", len(scene.endmembers), name)


def run(
    parts: tuple[str, ...] = ("made", *KINDS),
    numbers: tuple[int, ...] = NUMBERS,
    sets: tuple[str, ...] = (),
    seeds: int = 2,
    threads: int = 2,
    out: Path = Path("docs/number"),
) -> None:
    """Measure what is not measured yet, and write the tables."""
    store = Store(out / "results.json", ("name", "true", "unequal", "bursts", "seed"))
    cases = itertools.product(numbers, (False, True), BURSTS, range(seeds)) if "made" in parts else ()
    missing = [partial(measure_made, *case) for case in cases if ("", *case) not in store]
    known = {record["name"] for record in store.records}
    kinds = {name: KINDS[part] for part in parts if part in KINDS for name in available(KINDS[part])}
    wanted = [name for name in kinds if name not in known and name in (sets or kinds)]
    for measure in (*missing, *(partial(measure_set, name, kinds[name]) for name in wanted)):
        store.add(measure(threads))
    publish(out / "number.md", summary(store.records))


def summary(records: list[Record]) -> list[str]:
    """Return the tables."""
    lines = ["A + marks the largest number that was tried, so that the criterion may prefer more."]
    rows = [record for record in records if record["kind"] == "made"]
    if rows:
        lines += ["", f"**Made documents,** about {ROWS} for each cluster; the choices of each seed:", ""]
        columns = ["clusters", "sizes", "bursts", "chosen", "by held-out words", "by held-out counts", "by BIC"]
        lines += table(columns, made_rows(rows), "rllllll")
        away = np.array([abs(record["chosen"] - record["true"]) for record in rows])
        lines += [
            "",
            f"Exact in {np.mean(away == 0):.0%}, exact or off by one in {np.mean(away <= 1):.0%} of the cases.",
        ]
    for kind, title in (("documents", "Documents"), ("image", "Images")):
        rows = sorted((record for record in records if record["kind"] == kind), key=lambda r: str(r["name"]).lower())
        if rows:
            lines += section(title, table_of_sets(rows, kind))
    return lines


def made_rows(records: list[Record]) -> Iterator[list[str]]:
    """Yield the rows of the table of made documents: the choices of all seeds."""
    cases: dict[tuple[bool, int, int], list[Record]] = {}
    for record in records:
        cases.setdefault((record["unequal"], list(BURSTS).index(record["bursts"]), record["true"]), []).append(record)
    for (unequal, _, true), some in sorted(cases.items()):
        choices = (
            [str(record["chosen"]) for record in some],
            [upward(record, record["by"]["held-out"]) for record in some],
            [upward(record, record["by_halved_counts"]) for record in some],
            [upward(record, record["by"]["bic"]) for record in some],
        )
        yield [str(true), f"1 to {HALVED}" if unequal else "equal", some[0]["bursts"], *map(", ".join, choices)]


def table_of_sets(records: list[Record], kind: str) -> list[str]:
    """Return the table of document sets or images."""
    criteria = ("information", "held-out", "stability", "bic") if kind == "image" else ("held-out", "stability", "bic")
    names = [name for name in criteria if name in records[0]["by"]]
    rows = []
    for record in records:
        some = f"{record['rows']:,}" + (f" of {record['of']:,}" if record["of"] > record["rows"] else "")
        about = [record["name"], some, str(record["true"]), str(record["chosen"])]
        numbers = [", ".join(map(str, record["runners_up"])), *(upward(record, record["by"][name]) for name in names)]
        rows.append([*about, *numbers, f"{record['seconds']:.0f}"])
    columns = ["set", "rows", "classes", "chosen", "runners-up", *(f"by {name}" for name in names), "CPU seconds"]
    return table(columns, rows, "lrrrl" + "r" * (len(names) + 1))


def upward(record: Record, k: int) -> str:
    """Return a number of clusters; with a + if it is the largest that was tried."""
    return f"{k}+" if k == record["largest"] else str(k)
