"""Figures: the results of all sets, and the map of the sorted blood cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from .contenders import CONTENDERS
from .sets import TINY, load

MATCH = 0.2
"""Share of a cluster that a class has at least if both have the same colour."""

COLOURS = {
    "kmeans": "#8d99ae",
    "leiden": "#457b9d",
    "paper": "#d9a5a0",
    "default": "#c1121f",
    "consensus": "#e9a23b",
}


def save_results(records: list[dict[str, Any]], path: Path) -> None:
    """Draw the adjusted Rand index of every contender on every set: the mean, and the range over seeds."""
    plt = pyplot()
    names = list(dict.fromkeys(record["set"] for record in records))
    contenders = [name for name in CONTENDERS if any(record["contender"] == name for record in records)]
    figure, ax = plt.subplots(figsize=(8, 0.62 * len(names) + 1.2), layout="constrained")
    offsets = np.linspace(0.28, -0.28, len(contenders)) if len(contenders) > 1 else [0.0]
    for contender, offset in zip(contenders, offsets, strict=True):
        title = CONTENDERS[contender].title
        for row, name in enumerate(reversed(names)):
            own = [r["ari"] for r in records if (r["set"], r["contender"]) == (name, contender)]
            if own:
                ax.plot([min(own), max(own)], [row + offset] * 2, color=COLOURS[contender], lw=2.5, alpha=0.6)
                ax.plot(np.mean(own), row + offset, "o", color=COLOURS[contender], ms=6, label=title)
                title = "_nolegend_"
    for row in range(1, len(names)):
        ax.axhline(row - 0.5, color="#e5e5e5", lw=0.8)
    ax.set_yticks(range(len(names)), list(reversed(names)))
    ax.set(xlim=(0, 1), ylim=(-0.5, len(names) - 0.5), xlabel="adjusted Rand index; lines: range over seeds")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def save_map(name: str, folder: Path) -> None:
    """Draw the map of a set, coloured by cluster and by class; matching clusters and classes have one colour."""
    from onmf.cells import Cells, cluster_cells
    from onmf.cells.embed import map_of_cells
    from onmf.datasets import load_cells

    plt = pyplot()
    X, y = load(name)
    if name == TINY:
        genes, classes = [f"gene {j}" for j in range(X.shape[1])], [f"class {c}" for c in range(y.max() + 1)]
    else:
        known = load_cells(name)
        genes, classes = [str(gene) for gene in known.genes], [str(c) for c in known.classes]
    k = len(classes)
    found = cluster_cells(Cells(X, [str(i) for i in range(X.shape[0])], genes), k)
    table = np.zeros((k, k))
    np.add.at(table, (y, found.labels), 1)
    of_class, of_cluster = linear_sum_assignment(-table)
    colours = [*plt.get_cmap("tab10" if k <= 10 else "tab20").colors[:k], *plt.get_cmap("Dark2").colors]
    of = np.empty(k, dtype=int)
    of[of_cluster] = of_class
    alone = np.flatnonzero(table[of, np.arange(k)] < MATCH * table.sum(axis=0))
    of[alone] = k + np.arange(len(alone)) % 8
    positions, _ = map_of_cells(X)
    figure, axes = plt.subplots(1, 2, figsize=(12, 6), layout="constrained")
    sides = [
        ("clusters found by onmf, with their best markers", found.labels, found.names, of),
        ("how the cells were sorted", y, classes, np.arange(k)),
    ]
    order = np.random.default_rng(0).permutation(len(y))  # so that no group covers the others
    for ax, (title, groups, names, colour_of) in zip(axes, sides, strict=True):
        ax.scatter(*positions[order].T, c=[colours[colour_of[g]] for g in groups[order]], s=4, linewidths=0)
        for group in np.argsort(colour_of):
            ax.plot([], [], "o", color=colours[colour_of[group]], label=names[group])
        ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.01),
            ncols=3,
            frameon=False,
            fontsize=8.5,
            handletextpad=0.1,
        )
        ax.set_title(title, fontsize=11)
        ax.set_aspect("equal")
        ax.axis("off")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "map.png", dpi=130, bbox_inches="tight")
    plt.close(figure)


def pyplot() -> Any:
    """Return matplotlib.pyplot, which needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
