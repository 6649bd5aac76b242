"""Groups: how far clusters of cells follow batches, with and without groups in the model.

The *two protocols* are the same three cell lines, sequenced by CEL-seq2 and by Drop-seq. The other batches are made:
the cells of a set are divided between two batches, and each gene of the second one is multiplied by exp(sd · normal).
With sd 0 there is no effect, and groups are needless. Batches are even (cells are divided at random) or confounded (one
batch has 80 % of every other class, and 20 % of the rest). No contender sees the classes, only their number. Harmony is
measured if harmonypy is installed. Records are stored in results.json, and those of other sets and contenders that are
there are kept.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack
from sklearn.metrics import adjusted_rand_score

from onmf import ONMF
from onmf.cells.genes import deviance, top_genes
from onmf.datasets import load_cells
from onmf.door import Table, cluster_table
from onmf.table import TABLE

from .cells.compare import NO_CELLS, TINY
from .contenders import STARTS, communities, components, kmeans, resolution_in
from .data import available, load
from .measure import describe_machine
from .results import MISSED, Grid, Record, Store, bold, figure, judged, publish, section, table

PROTOCOLS = ("sc_celseq2", "sc_dropseq")
TOGETHER = "two protocols"
"""Sets of the same cell lines, and the name of the set of both."""

CELLS, GENES, COMPONENTS = 1_500, 2_000, 50
"""Most cells of a set, drawn at random; genes, chosen by deviance before there are batches; principal components."""

COMPOSITIONS, EFFECTS = ("even", "confounded"), (0.0, 0.25, 0.5, 1.0)
"""How classes are divided between two batches, and the standard deviations of the logarithms of the genes' factors."""

MAJORITY = 0.8
"""Share of a class that is in one batch, if batches are confounded with classes."""

COLOURS = {
    "plain": "#d9a5a0",
    "groups": "#c1121f",
    "door": "#780000",
    "kmeans": "#8d99ae",
    "leiden": "#457b9d",
    "harmony": "#2a9d8f",
}


@dataclass(frozen=True)
class Case:
    """Counts, and the class and the batch of each cell."""

    X: csr_array
    y: Any
    groups: Any

    @cached_property
    def k(self) -> int:
        """The number of classes."""
        return len(np.unique(self.y))

    @cached_property
    def adata(self) -> Any:
        """The principal components of normalised logarithms, by scanpy."""
        return components(self.X, 0, COMPONENTS)


# The contenders.


def plain(case: Case) -> Any:
    """Run KL-ONMF without groups, with the settings that are the default for groups."""
    smoothing = 0.01 / case.X.shape[1]
    return ONMF(case.k, init="random-partition", n_init=STARTS, random_state=0, smoothing=smoothing).fit_predict(case.X)


def grouped(case: Case) -> Any:
    """Run KL-ONMF with groups, and with defaults."""
    return ONMF(case.k, random_state=0).fit_predict(case.X, groups=case.groups)


def door(case: Case) -> Any:
    """Run KL-ONMF with groups as the commands do: the best of random starts and of clusters without groups."""
    n, p = case.X.shape
    names, groups = [[f"{i}" for i in range(size)] for size in (n, p)], case.groups.astype(str).tolist()
    return cluster_table(TABLE, Table(case.X, *names, groups=groups), case.k).labels


def kmeans_of_components(case: Case) -> Any:
    """Run k-means on principal components."""
    return kmeans(case.adata.obsm["X_pca"], case.k, 0, 1)


def leiden(case: Case) -> Any:
    """Run Leiden, with a resolution that gives the right number of clusters."""
    import scanpy as sc

    sc.pp.neighbors(case.adata, random_state=0)
    return communities(case.adata, 0, resolution_in(case.adata, case.k, 0))


def harmony(case: Case) -> Any:
    """Run k-means on principal components that Harmony, with its defaults, has corrected for the batches."""
    from harmonypy import run_harmony

    batches = {"batch": case.groups.astype(str)}
    corrected = run_harmony(case.adata.obsm["X_pca"], batches, "batch", random_state=0, verbose=False)
    return kmeans(corrected.Z_corr, case.k, 0, 1)


def classes(case: Case) -> Any:
    """Return the classes themselves: what the batches have in common with them."""
    return case.y


CONTENDERS: dict[str, tuple[str, Callable[[Case], Any]]] = {
    "plain": ("KL", plain),
    "groups": ("KL with groups", grouped),
    "door": ("KL with groups, commands", door),
    "kmeans": ("scanpy, k-means", kmeans_of_components),
    "leiden": ("scanpy, Leiden", leiden),
    "harmony": ("Harmony, k-means", harmony),
}
"""Title and function of each."""

KNOWN = {"classes": ("the classes", classes)}
"""What is measured like a contender, for comparison."""

STOPPED = (
    "Harmony (harmonypy 2.1.0) runs with its defaults. On the two protocols it then stops after one iteration, and "
    "changes little. Of nine other settings that we tried after we had seen this, one mixes the protocols: sigma 0.3 "
    "instead of 0.1, with an ARI of 0.96."
)
"""What the tables say about Harmony on the two protocols."""


# The data.


def two_protocols() -> Case:
    """Return the cells of both protocols, with the genes that both have."""
    sets = [load_cells(name) for name in PROTOCOLS]
    _, *columns = np.intersect1d(*(found.genes for found in sets), return_indices=True)
    assert all(found.classes.tolist() == sets[0].classes.tolist() for found in sets)
    X = vstack([found.X[:, own].astype(np.int64) for found, own in zip(sets, columns, strict=True)], format="csr")
    groups = np.repeat([0, 1], [found.X.shape[0] for found in sets])
    return Case(csr_array(X[:, top_genes(deviance(X), GENES)]), np.concatenate([found.y for found in sets]), groups)


def cells_of(name: str) -> tuple[csr_array, Any]:
    """Return some of the cells of a set with the most deviant genes, and their classes."""
    X, y = load(name)
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:CELLS])
    X = csr_array(X[some].astype(np.int64))
    return csr_array(X[:, top_genes(deviance(X), GENES)]), np.unique(y[some], return_inverse=True)[1]


def with_batches(X: csr_array, y: Any, composition: str, sd: float, seed: int) -> Case:
    """Divide cells between two batches, and multiply each gene of the second one by a factor, on average.

    Of a gene with a factor below 1, each molecule is kept with that probability; of others, Poisson counts are added.
    The factors are scaled so that the sum of the batch stays the same, on average.
    """
    rng = np.random.default_rng(seed)
    majority = np.where(y % 2, MAJORITY, 1 - MAJORITY)
    groups = (rng.random(len(y)) < (majority if composition == "confounded" else 0.5)).astype(np.int64)
    normal = rng.standard_normal(X.shape[1])
    if not sd:
        return Case(X, y, groups)
    totals, factors = X[groups == 1].sum(axis=0), np.exp(sd * normal)
    factors *= totals.sum() / (totals @ factors)
    rows = np.repeat(groups, np.diff(X.indptr))
    own = np.where(rows == 1, factors[X.indices], 1.0)
    counts = rng.binomial(X.data, np.minimum(own, 1.0)) + rng.poisson(X.data * np.maximum(own - 1, 0.0))
    found = csr_array((counts, X.indices.copy(), X.indptr.copy()), shape=X.shape)
    found.eliminate_zeros()
    return Case(found, y, groups)


def draws(sets: tuple[str, ...], seeds: int) -> Iterator[tuple[Record, list[Case]]]:
    """Yield the draws of each set, composition and effect, with these."""
    for name in sets:
        if name == TOGETHER:
            yield {"set": name, "composition": "real", "sd": None}, [two_protocols()]
            continue
        X, y = cells_of(name)
        for composition, sd in itertools.product(COMPOSITIONS, EFFECTS):
            about = {"set": name, "composition": composition, "sd": sd}
            yield about, [with_batches(X, y, composition, sd, seed) for seed in range(seeds)]


def run(
    sets: tuple[str, ...] = (),
    methods: tuple[str, ...] = tuple(CONTENDERS),
    seeds: int = 5,
    quick: bool = False,
    out: Path = Path("docs/groups"),
) -> None:
    """Measure, print, and write JSON, Markdown and a figure."""
    if "harmony" in methods and find_spec("harmonypy") is None:
        print("Harmony is left out: pip install harmonypy.")
        methods = tuple(method for method in methods if method != "harmony")
    here = [name for name in available("cells") if name not in NO_CELLS]
    together = [TOGETHER] if set(PROTOCOLS) <= set(here) else []
    store = Store(out / "results.json", ("set", "composition", "sd", "contender"))
    for about, cases in draws((TINY,) if quick else sets or (*together, *here), seeds):
        store.add(*(about | {"contender": name} | measured(name, cases) for name in (*methods, *KNOWN)))
    packages = ("scanpy", *(["harmonypy"] if "harmony" in methods else []))
    publish(out / "results.md", [f"Measured on {describe_machine(*packages)}.", "", *summary(store.records)])
    draw(store.records, out / "results.png")


def measured(contender: str, cases: list[Case]) -> Record:
    """Return the numbers of clusters, and how far they agree with the classes and with the batches, for each draw."""
    _, labels_of = (CONTENDERS | KNOWN)[contender]
    found = [labels_of(case) for case in cases]
    return {
        "classes": cases[0].k,
        "clusters": [len(np.unique(labels)) for labels in found],
        "ari": [agreement(case.y, labels) for case, labels in zip(cases, found, strict=True)],
        "ari_of_batches": [agreement(case.groups, labels) for case, labels in zip(cases, found, strict=True)],
    }


def agreement(known: Any, labels: Any) -> float:
    """Return the adjusted Rand index, to four digits: thousands of them are stored."""
    return round(float(adjusted_rand_score(known, labels)), 4)


# The tables and the figure.


class Tables:
    """Records by case, set and contender, as tables in Markdown."""

    def __init__(self, records: list[Record]) -> None:
        titles = {name: title for name, (title, _) in CONTENDERS.items()}
        parts: dict[tuple[str, Any], list[Record]] = {}
        for record in records:
            parts.setdefault((record["composition"], record["sd"]), []).append(record)
        self.grids = {case: Grid(part, titles, column="contender") for case, part in parts.items()}
        found = {record["contender"] for record in records}
        self.titles = {name: title for name, title in titles.items() if name in found}

    def named(self) -> Iterator[tuple[str, Grid]]:
        """Yield the name and the grid of each case."""
        for (composition, sd), grid in self.grids.items():
            effect = f"sd {sd:g}" if sd else "no effect"
            yield TOGETHER if sd is None else f"{composition}, {effect}", grid

    def averages(self, key: str, titles: dict[str, str]) -> list[str]:
        """Return a table of the means over sets, with a row for each case."""
        means = {name: [np.mean(grid.means(of, key)) for of in titles] for name, grid in self.named()}
        rows = [[name, *(f"{round(mean, 3) + 0.0:.3f}" for mean in of)] for name, of in means.items()]  # 0, not -0
        return table(["batches", *titles.values()], rows)

    def goals(self) -> list[str]:
        """Return a table of the differences to plain KL without batches, over sets."""
        asked = {
            "needless groups, at random": ("even", 0.0, "≥ -0.01"),
            "needless groups, confounded with classes": ("confounded", 0.0, ""),
            "batches, even, sd 0.5": ("even", 0.5, "≥ -0.05"),
            "batches, confounded, sd 0.5": ("confounded", 0.5, "≥ -0.05"),
        }
        rows = []
        for (name, (composition, sd, target)), method in itertools.product(asked.items(), ("groups", "door")):
            if (composition, sd) not in self.grids or method not in self.titles:
                continue
            own, base = self.grids[composition, sd], self.grids[composition, 0.0]
            values = own.means(method, "ari") - base.means("plain", "ari")
            verdict = judged(float(values.mean()), target)
            figures = (f"{value:+.3f}" for value in (values.mean(), values.min(), values.max()))
            rows.append([name, self.titles[method], *figures, target, MISSED[verdict["met"]]])
        return table(["batches", "", "mean", "lowest of a set", "highest", "goal of the mean", ""], rows, "llrrrrl")


def score(grid: Grid, name: str, contender: str) -> str:
    """Return the ARI of a contender on a set; the best of the set in bold."""
    own, *others = (round(grid.mean(name, each, "ari"), 2) for each in (contender, *grid.titles))
    return bold(f"{own:.2f}", own == np.nanmax(others))


def summary(records: list[Record]) -> list[str]:
    """Return all tables."""
    tables = Tables(records)
    seeds = max(len(record["ari"]) for record in records)
    known = {name: title for name, (title, _) in KNOWN.items()}
    lines = [
        f"Means over sets of cells, each with {seeds} draws of batches. sd is the standard deviation of the logarithms "
        "of the factors by which the second batch multiplies genes. Each draw is fitted once, from the seed 0.",
        *section("Adjusted Rand index with the classes", tables.averages("ari", tables.titles)),
        *section("Adjusted Rand index with the batches", tables.averages("ari_of_batches", tables.titles | known)),
        *section("Difference of the ARI to that of KL on the same cells without batches", tables.goals()),
    ]
    for name, grid in tables.named():
        lines += section(f"ARI with the classes: {name}", grid.by_set(lambda *place, grid=grid: score(grid, *place)))
    for name, title in tables.titles.items():
        right = [
            number == record["classes"]
            for record in records
            if record["contender"] == name
            for number in record["clusters"]
        ]
        if not all(right):
            other = f"{right.count(False)} of {len(right)}"
            lines += ["", f"{title} found another number of clusters in {other} runs."]
    stopped = any((record["set"], record["contender"]) == (TOGETHER, "harmony") for record in records)
    return [*lines, "", STOPPED] if stopped else lines


def draw(records: list[Record], path: Path) -> None:
    """Draw the mean ARI of every contender over the strength of the batches, and for the two protocols."""
    tables = Tables(records)
    with figure(path, 1, 3, figsize=(11, 4), sharey=True, width_ratios=(1, 1, 0.7)) as axes:
        for ax, composition in zip(axes, COMPOSITIONS, strict=False):
            effects = [sd for name, sd in tables.grids if name == composition]
            for name, title in tables.titles.items():
                means = [np.mean(tables.grids[composition, sd].means(name, "ari")) for sd in effects]
                ax.plot(effects, means, "o-", color=COLOURS[name], lw=2, ms=5, label=title)
            ax.set(title=f"made batches, {composition}", xticks=effects, xlabel="sd of the genes' log factors")
        axes[0].set(ylim=(0, 1.02), ylabel="mean adjusted Rand index")
        axes[2].set(title=TOGETHER, xticks=[])
        if ("real", None) in tables.grids:
            for place, name in enumerate(tables.titles):
                value = tables.grids["real", None].mean(TOGETHER, name, "ari")
                axes[2].bar(place, value, color=COLOURS[name])
                axes[2].annotate(f"{value:.2f}", (place, value), ha="center", va="bottom")
        axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
