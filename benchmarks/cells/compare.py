"""Cells: scanpy's k-means and Leiden, KL-ONMF as in the paper, and the defaults for cells, side by side.

No contender sees the classes, only their number. The parts: all *sets* on this machine; *reads* instead of molecules; a
*million* generated cells; the *map* of the sorted blood cells. Records are stored in results.json, and those of other
sets and contenders that are there are kept.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array, load_npz, save_npz, vstack
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.contenders import CELLS, cluster_counts
from benchmarks.data import MADE, available, load
from benchmarks.measure import describe_machine, in_child, peak_memory, timed
from benchmarks.results import Grid, Record, Store, bold, figure, name_rows, publish, section, table
from onmf.cells.embed import map_of_cells
from onmf.datasets import load_cells

TINY = f"{MADE}3"
"""The set that ``--quick`` uses."""

NO_CELLS = ("hmp_site18",)
"""Sets of counts that are not cells, and not in the means."""

COLOURS = {"kmeans": "#8d99ae", "leiden": "#457b9d", "paper": "#d9a5a0", "default": "#c1121f", "consensus": "#e9a23b"}


def run(
    parts: tuple[str, ...] = ("sets", "reads", "million", "map"),
    sets: tuple[str, ...] = (),
    methods: tuple[str, ...] = tuple(CELLS),
    seeds: int = 5,
    cells: int = 1_000_000,
    quick: bool = False,
    out: Path = Path("docs/cells"),
) -> None:
    """Measure, print, and write JSON, Markdown and figures."""
    # Threads of OpenMP that wait by spinning make k-means several times slower if anything else runs on the machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    results, machine = out / "results.json", [f"Measured on {describe_machine('scanpy')}.", ""]
    sets = (TINY,) if quick else sets
    if "sets" in parts:
        store = Store(results, ("set", "contender"), "sets")
        for name, method in itertools.product(sets or available("cells"), methods):
            store.add(*in_child(measure, name, method, seeds))
        publish(out / "results.md", [*machine, *summary(store.records)])
        draw(store.records, out / "results.png")
    if "reads" in parts:
        store = Store(results, ("set",), "reads")
        for name in sets or MOLECULES:
            store.add(*measure_reads(name, seeds))
        publish(out / "reads.md", summary_of_reads(store.records))
    if "million" in parts:
        store = Store(results, ("cells", "contender"), "million")
        for record in measure_million(4_000 if quick else cells, methods):
            store.add(record)
        publish(out / "million.md", [*machine, *summary_of_million(store.records)])
    if "map" in parts:
        draw_map(TINY if quick else "zheng_facs10", out / "map.png")


def measure(name: str, contender: str, seeds: int) -> list[Record]:
    """Run one contender on one set, once untimed and then with every seed.

    The time is that of the whole way from counts to labels. It does not include the search for the resolution of
    Leiden, which is given separately.
    """
    own = CELLS[contender]
    X, y = load(name)
    k = len(np.unique(y))
    own.labels(X, k, 0)
    measured = []
    for seed in range(seeds if own.random else 1):
        search, setting = timed(own.setting, X, k, seed) if own.setting else (0.0, None)
        spent, labels = timed(own.labels, X, k, seed, setting)
        about = {"set": name, "contender": contender, "seed": seed} | agreement(labels, y)
        scores = {"nmi": float(normalized_mutual_info_score(y, labels)), "seconds": spent}
        searched = {"search": search, "resolution": setting} if own.setting else {}
        measured.append(about | scores | searched)
    return [record | {"gigabytes": peak_memory()} for record in measured]


def agreement(labels: Any, y: Any) -> Record:
    """Return the number of clusters, and how far they agree with the classes."""
    return {"clusters": len(np.unique(labels)), "ari": float(adjusted_rand_score(y, labels))}


class Tables(Grid):
    """Records by set and contender, as tables in Markdown."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__(records, {name: own.title for name, own in CELLS.items()}, column="contender")

    def typical(self, name: str, contender: str, key: str) -> float:
        """Return the mean over seeds, and of times the median: a busy machine makes some of them longer."""
        return self.mean(name, contender, key, np.median if key in ("seconds", "search") else np.mean)

    def over_sets(self, contender: str, key: str) -> float:
        """Return the mean over the sets of cells."""
        values = [self.typical(name, contender, key) for name in self.sets if name not in NO_CELLS]
        return float(np.mean(values or [np.nan]))

    def averages(self) -> list[str]:
        """Return the table of means."""
        forms = {"ari": "{:.3f}", "nmi": "{:.3f}", "seconds": "{:.2f}"}
        means = {name: [form.format(self.over_sets(name, key)) for key, form in forms.items()] for name in self.titles}
        peaks = {name: f"{np.nanmax(self.means(name, 'gigabytes', np.max)):.2f}" for name in self.titles}
        rows = [[title, *means[name], peaks[name]] for name, title in self.titles.items()]
        return table(["", "mean ARI", "mean NMI", "mean seconds", "largest memory, GB"], rows)

    def score(self, key: str, name: str, contender: str) -> str:
        """Return the score of a contender on a set; the best of the set in bold."""
        own, *all_means = (round(self.typical(name, each, key), 2) for each in (contender, *self.titles))
        text = bold(f"{own:.2f}", own == np.nanmax(all_means))
        return f"{text} ± {self.mean(name, contender, key, np.std):.2f}" if CELLS[contender].random else text

    def cost(self, name: str, contender: str) -> str:
        """Return time and memory of a contender on a set."""
        peak = self.mean(name, contender, "gigabytes", np.max)
        return f"{self.typical(name, contender, 'seconds'):.2f} s, {peak:.2f} GB"

    def by_measured_set(self, cell: Callable[[str, str], str]) -> list[str]:
        """Return a table with a row for each set, and a dash where a contender was not measured."""
        return self.by_set(lambda *place: cell(*place) if place in self.cells else "–")


def summary(records: list[Record]) -> list[str]:
    """Return the tables of all sets."""
    tables = Tables(records)
    seeds = max(record["seed"] for record in records) + 1
    lines = [f"Means over {seeds} seeds, of times the median. Means over sets leave out {' and '.join(NO_CELLS)}.", ""]
    lines += tables.averages()
    for key, title in (("ari", "Adjusted Rand index"), ("nmi", "NMI")):
        scores = tables.by_measured_set(partial(tables.score, key))
        lines += ["", f"**{title}** (± standard deviation over seeds; the best of each set is bold)", "", *scores]
    lines += section(
        "Seconds from counts to labels, and peak memory of the process", tables.by_measured_set(tables.cost)
    )
    leiden = (
        " The time of Leiden is that of one run with a resolution that gives the right number of clusters. With the "
        f"search for this resolution, by bisection, the mean is {tables.over_sets('leiden', 'search'):.2f} s."
    )
    note = "Peak memory includes Python and the libraries."
    return [*lines, "", note + leiden if "leiden" in tables.titles else note]


def draw(records: list[Record], path: Path) -> None:
    """Draw the adjusted Rand index of every contender on every set: the mean, and the range over seeds."""
    tables = Tables(records)
    names = tables.sets[::-1]
    with figure(path, figsize=(8, 0.62 * len(names) + 1.2)) as ax:
        offsets = np.linspace(0.28, -0.28, len(tables.titles)) if len(tables.titles) > 1 else [0.0]
        for (contender, title), offset in zip(tables.titles.items(), offsets, strict=True):
            rows, colour = np.arange(len(names)) + offset, COLOURS[contender]
            least, mean, most = (tables.means(contender, "ari", of)[::-1] for of in (np.min, np.mean, np.max))
            ax.hlines(rows, least, most, color=colour, lw=2.5, alpha=0.6)
            ax.plot(mean, rows, "o", color=colour, ms=6, label=title)
        for row in range(1, len(names)):
            ax.axhline(row - 0.5, color="#e5e5e5", lw=0.8)
        ax.set(xlim=(0, 1), ylim=(-0.5, len(names) - 0.5), xlabel="adjusted Rand index; lines: range over seeds")
        name_rows(ax, range(len(names)), names)
        ax.figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)


# Reads instead of molecules: which view finds the classes when counts are amplified, and which one is chosen.

MOLECULES = ("zheng_facs10", "hash_4lines", "sc_dropseq", "pbmc4k_top2000")
"""Sets of molecules."""

MEAN, SHAPE = 20.0, 0.3
"""Mean number of reads of a molecule, and shape of the gamma distribution of its amplification."""

SPREAD = 1.0
"""Standard deviation of the logarithm of a gene's own amplification: long genes are read more often."""

VIEWS = ("counts", "logs", "auto")


def amplified(X: csr_array, seed: int) -> csr_array:
    """Turn molecules into reads: each is copied a random number of times, and copies are drawn."""
    rng = np.random.default_rng(seed)
    genes = rng.lognormal(0, SPREAD, X.shape[1])
    copies = rng.gamma(SHAPE * X.data.astype(np.float64)) / SHAPE
    reads = rng.poisson(MEAN * genes[X.indices] * copies).astype(np.int32)
    found = csr_array((reads, X.indices.copy(), X.indptr.copy()), shape=X.shape)
    found.eliminate_zeros()
    return found


def _chosen(fit: Any) -> str:
    """The view that was clustered, and its divergence if it is another one."""
    return fit.view if fit.model.beta_loss == "kullback-leibler" else f"{fit.view}, {fit.model.beta_loss}"


def measure_reads(name: str, seeds: int) -> list[Record]:
    """Cluster molecules and reads of a set in every view."""
    X, y = load(name)
    records = []
    for seed in range(seeds):
        kinds = {"molecules": X, "reads": amplified(X, seed)}
        for kind, view in itertools.product(kinds, VIEWS):
            fit = cluster_counts(kinds[kind], len(np.unique(y)), seed, view=view)
            found = {"ari": float(adjusted_rand_score(y, fit.labels)), "chosen": _chosen(fit)}
            records.append({"set": name, "kind": kind, "view": view, "seed": seed} | found)
    return records


def summary_of_reads(records: list[Record]) -> list[str]:
    """Return the table."""
    rows = []
    for kind in ("molecules", "reads"):
        grid = Grid([record for record in records if record["kind"] == kind], {}, column="view")
        for name in grid.sets:
            picked = list(grid.values(name, "auto", "chosen"))
            names = ", ".join(f"{view} {picked.count(view)} ×" for view in dict.fromkeys(picked))
            *fixed, auto = (f"{grid.mean(name, view, 'ari'):.2f}" for view in VIEWS)
            rows.append([f"{name}, {kind}", *fixed, f"{auto} ({names})"])
        rows.append([f"mean, {kind}", *(f"{grid.means(view, 'ari').mean():.2f}" for view in VIEWS)])
    return table(["set", "counts", "logs", "chosen"], rows)


# A million cells: time and memory from a matrix on disk to labels, each contender in a process of its own.

CLUSTERS, GENES = 20, 2_000
STANDARD = ("kmeans", "leiden", "default")
"""Contenders, unless others are named."""

BLOCK = 10_000
"""Cells that are generated at a time."""

DEPTH, DISPERSION = 180.0, 2.0
"""Median counts of a cell, and θ of their negative binomial distribution."""

WARM = 10_000
"""Cells on which a contender runs untimed: enough to compile and load all that it needs for many cells."""

MINUTES, GIGABYTES = 15.0, 20.0
"""Limits of one contender."""


def generate(n: int, seed: int = 0) -> tuple[csr_array, Any]:
    """Generate counts of cells, gamma-Poisson and about 6 % of them not zero, and the clusters of the cells.

    A tenth of the genes differ between a cluster and the others.
    """
    rng = np.random.default_rng(seed)
    profiles = rng.lognormal(0, 1.5, GENES)
    profiles = profiles * np.where(rng.random((CLUSTERS, GENES)) < 0.1, rng.lognormal(0, 1.0, (CLUSTERS, GENES)), 1.0)
    profiles /= profiles.sum(axis=1, keepdims=True)
    y = rng.integers(CLUSTERS, size=n)
    blocks = []
    for start in range(0, n, BLOCK):
        own = y[start : start + BLOCK]
        means = (DEPTH * rng.lognormal(0, 0.5, (len(own), 1)) * profiles[own]).astype(np.float32)
        means *= rng.standard_gamma(DISPERSION, means.shape, dtype=np.float32) / np.float32(DISPERSION)
        blocks.append(csr_array(rng.poisson(means).astype(np.int32)))
    return csr_array(vstack(blocks, format="csr")), y


def measure_many(folder: str, contender: str) -> Record:
    """Run one contender, after a warm-up on few cells."""
    X, y = csr_array(load_npz(Path(folder) / "counts.npz")), np.load(Path(folder) / "clusters.npy")
    labels_of = CELLS[contender].labels
    labels_of(X[:WARM], CLUSTERS, 0)
    before = peak_memory()
    spent, labels = timed(labels_of, X, CLUSTERS, 0)
    return agreement(labels, y) | {"seconds": spent, "gigabytes": peak_memory(), "gigabytes before": before}


def measure_million(n: int, contenders: Sequence[str]) -> Iterator[Record]:
    """Measure contenders on n generated cells. One that fails has a sentence instead of figures."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = generate(n)
        about = {"cells": n, "genes": GENES, "nonzeros": int(X.nnz)}
        save_npz(Path(folder) / "counts.npz", X, compressed=False)
        np.save(Path(folder) / "clusters.npy", y)
        del X
        for contender in contenders if len(contenders) < len(CELLS) else STANDARD:
            try:
                found = in_child(measure_many, folder, contender, minutes=MINUTES, gigabytes=GIGABYTES)
            except (MemoryError, TimeoutError) as error:
                found = {"failed": str(error)}
            yield about | {"contender": contender} | found


def summary_of_million(records: list[Record]) -> list[str]:
    """Return the table."""
    rows = []
    for record in records:
        size = f"{record['cells']:,} × {record['genes']:,}, {record['nonzeros'] / 1e6:.0f} M"
        figures = [record.get("failed", ""), "", ""]
        if "failed" not in record:
            other = f" ({record['clusters']} clusters)" if record["clusters"] != CLUSTERS else ""
            figures = [f"{record['seconds']:.0f}", f"{record['gigabytes']:.1f}", f"{record['ari']:.2f}{other}"]
        rows.append([size, CELLS[record["contender"]].title, *figures])
    return table(["cells × genes, nonzeros", "", "seconds", "peak memory, GB", "ARI"], rows, "llrrr")


# The map of the sorted blood cells.

MATCH = 0.2
"""Share of a cluster that a class has at least if both have the same colour."""


def draw_map(name: str, path: Path) -> None:
    """Draw the map of a set, coloured by cluster and by class; matching clusters and classes have one colour."""
    from matplotlib import colormaps

    X, y = load(name)
    k, known = len(np.unique(y)), None if name == TINY else load_cells(name)
    classes = [f"class {c}" for c in range(k)] if known is None else known.classes
    found = cluster_counts(X, k, genes=None if known is None else known.genes)
    sides = [
        ("clusters found by onmf, with their best markers", found.labels, found.names),
        ("how the cells were sorted", y, classes),
    ]
    colours_of = (colours_of_clusters(found.labels, y, k), np.arange(k))
    colours = [*colormaps["tab10" if k <= 10 else "tab20"].colors[:k], *colormaps["Dark2"].colors]
    positions, _ = map_of_cells(X)
    order = np.random.default_rng(0).permutation(len(y))  # so that no group covers the others
    with figure(path, 1, 2, figsize=(12, 6)) as axes:
        for ax, (title, groups, names), of in zip(axes, sides, colours_of, strict=True):
            ax.scatter(*positions[order].T, c=[colours[of[g]] for g in groups[order]], s=4, linewidths=0)
            for group in np.argsort(of):
                ax.plot([], [], "o", color=colours[of[group]], label=names[group])
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "ncols": 3}
            ax.legend(**place, frameon=False, fontsize=8.5, handletextpad=0.1)
            ax.set_title(title, fontsize=11)
            ax.set(aspect="equal", frame_on=False, xticks=[], yticks=[])


def colours_of_clusters(labels: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Return the number of the colour of each cluster: that of its class, or one of its own."""
    common = contingency_matrix(labels, y)  # (clusters, classes)
    of = linear_sum_assignment(-common)[1]
    alone = np.flatnonzero(common[np.arange(k), of] < MATCH * common.sum(axis=1))
    of[alone] = k + np.arange(len(alone)) % 8
    return of
