"""The paper's second table and its figures: spectra and maps of three hyperspectral scenes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf.datasets import Scene, load_hyperspectral
from onmf.divergence import Array
from onmf.estimator import ONMF
from onmf.metrics import SpectraMatch, match_spectra

from .compare import ALGORITHMS, LOSSES, Cell, Progress, Table, available_and_missing, paper_tables
from .documents import timed_fit, warm_up

PAPER_NAMES = {"moffett": "Moffet", "samson": "Samson", "jasper": "Jasper"}

CLUSTERS = {"moffett": 3, "samson": 3, "jasper": 4}

TRANSFERRED = {"moffett"}
"""Scenes whose ground truth comes from another release: their MRSA cannot be compared with the paper's."""


@dataclass(frozen=True)
class ImageRow:
    """The results of each algorithm on one scene."""

    scene: Scene
    clusters: int
    mrsa: dict[str, Cell] = field(default_factory=dict)
    iterations: dict[str, Cell] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    models: dict[str, ONMF] = field(default_factory=dict)
    matches: dict[str, SpectraMatch] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the row as one line of a data file."""
        line: dict[str, Any] = {
            "name": self.scene.name,
            "bands": self.scene.X.shape[1],
            "pixels": self.scene.X.shape[0],
            "endmembers": self.clusters,
        }
        for short in LOSSES:
            if short in self.mrsa:
                line |= self.mrsa[short].record(f"mrsa_{short}")
            line |= self.iterations[short].record(f"iterations_{short}")
            line[f"seconds_{short}"] = self.seconds[short]
        return line


@dataclass(frozen=True)
class ImagesReport:
    """The paper's second table and our results."""

    rows: list[ImageRow]
    missing: list[str]

    @property
    def agrees(self) -> bool:
        """Whether every cell that can be compared agrees."""
        cells = [cell for row in self.rows for group in (row.mrsa, row.iterations) for cell in group.values()]
        return all(cell.agrees is not False for cell in cells)

    def table(self) -> Table:
        """Return the table for display."""
        columns = ["", "m", "n", "r", *(f"{key}-{short}" for key in ("MRSA", "it", "time") for short in LOSSES)]
        rows = [
            [
                row.scene.name,
                *map(str, (row.scene.X.shape[1], row.scene.X.shape[0], row.clusters)),
                *(row.mrsa[short].show(2) if short in row.mrsa else "" for short in LOSSES),
                *(row.iterations[short].show(0) for short in LOSSES),
                *(f"{row.seconds[short]:.2f}" for short in LOSSES),
            ]
            for row in self.rows
        ]
        notes = [
            "✓: the paper has the same number, to the digit it prints. Times are ours, in seconds. m bands, n pixels, "
            "r endmembers; F: Fro-ONMF, KL: KL-ONMF."
        ]
        if any(row.scene.name in TRANSFERRED for row in self.rows):
            notes.append(
                "The MRSA of moffett is not compared: its ground truth comes from another release of the scene."
            )
        if self.missing:
            notes.append(f"Not compared, because the data are not available: {', '.join(self.missing)}.")
        return Table("Hyperspectral scenes (the paper's Table 2)", columns, rows, notes)


def reproduce_images(
    only: list[str] | None = None, *, runs: int = 1, progress: Progress = lambda _: None
) -> ImagesReport:
    """Run Fro-ONMF and KL-ONMF on every available scene.

    Parameters
    ----------
    only : list of str, optional
        Names of the scenes to run; by default all that are available.
    runs : int, default=1
        Number of runs of each fit; the reported time is their median.
    progress : callable, optional
        Called with the name of each scene before it is run.

    Returns
    -------
    ImagesReport
    """
    warm_up()
    paper = paper_tables()["hyperspectral"]
    names, missing = available_and_missing("hyperspectral", only)
    rows = []
    for name in names:
        progress(name)
        scene = load_hyperspectral(name)
        paper_row = paper[PAPER_NAMES[name]]
        row = ImageRow(scene, CLUSTERS[name])
        for short, loss in LOSSES.items():
            model, row.seconds[short] = timed_fit(ONMF(row.clusters, beta_loss=loss), scene.X, runs)
            row.models[short] = model
            long = {"F": "frobenius", "KL": "kl"}[short]
            row.iterations[short] = Cell(model.n_iter_, paper_row[f"iterations_{long}"])
            if scene.endmembers is not None:
                row.matches[short] = match_spectra(scene.endmembers, model.cluster_centers_)
                reference = None if name in TRANSFERRED else paper_row[f"mrsa_{long}"]
                row.mrsa[short] = Cell(row.matches[short].mean, reference)
        rows.append(row)
    return ImagesReport(rows, missing)


def plot_spectra(report: ImagesReport) -> Any:
    """Plot the centroids of both algorithms over the true spectra, for each scene that has them.

    The magnitude of a centroid is arbitrary, because the scales absorb it. Each centroid is therefore drawn at the
    magnitude that fits its true spectrum best.

    Returns
    -------
    (scenes, 2) array of matplotlib.axes.Axes
    """
    import matplotlib.pyplot as plt

    rows = [row for row in report.rows if row.matches]
    figure, grid = plt.subplots(len(rows), 2, figsize=(10, 2.9 * len(rows)), layout="constrained", squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        truth, names = row.scene.endmembers, row.scene.names
        assert truth is not None
        x = row.scene.wavelengths if row.scene.wavelengths is not None else np.arange(1, truth.shape[1] + 1)
        for ax, short in zip(axes, ("KL", "F"), strict=True):
            centroids = row.models[short].cluster_centers_[row.matches[short].permutation]
            for material, (t, w) in enumerate(zip(truth, centroids, strict=True)):
                colour = f"C{material}"
                name = names[material] if names is not None else f"material {material + 1}"
                angle = row.matches[short].angles[material]
                ax.plot(x, t, color=colour, lw=1, ls=":")
                ax.plot(x, w * (t @ w) / (w @ w), color=colour, lw=1.5, label=f"{name}, MRSA {angle:.1f}")
            ax.set_title(
                f"{PAPER_NAMES[row.scene.name]}: {ALGORITHMS[short]}", loc="left", fontsize=10, fontweight="bold"
            )
            ax.set_xlabel("wavelength (nm)" if row.scene.wavelengths is not None else "band", fontsize=8)
            ax.tick_params(labelsize=8)
            # The free corner differs between scenes. With few lines, matplotlib finds it quickly.
            ax.legend(fontsize=7, frameon=False, loc="best")
            ax.spines[["top", "right"]].set_visible(False)
        axes[1].sharey(axes[0])
    figure.suptitle("Centroids (solid) over the true spectra (dotted)", fontsize=11)
    return grid


def plot_maps(row: ImageRow) -> Any:
    """Draw the clusters of a scene as maps below the true abundances, with one material per column.

    Returns
    -------
    (3, materials) array of matplotlib.axes.Axes
    """
    import matplotlib.pyplot as plt

    scene = row.scene
    assert scene.endmembers is not None
    r = len(scene.endmembers)
    figure, grid = plt.subplots(3, r, figsize=(1.9 * r + 0.6, 6), layout="constrained", squeeze=False)
    layers: dict[str, Array | None] = {"ground truth": scene.abundances}
    for short in LOSSES:
        labels = row.models[short].labels_
        layers[ALGORITHMS[short]] = (labels == row.matches[short].permutation[:, None]).astype(float)
    for axes, (title, layer) in zip(grid, layers.items(), strict=True):
        for material, ax in enumerate(axes):
            if layer is not None:
                ax.imshow(scene.to_image(layer[material]), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set_xticks([])
            ax.set_yticks([])
        axes[0].set_ylabel(title, fontsize=10, fontweight="bold")
    for material, ax in enumerate(grid[0]):
        ax.set_title(scene.names[material] if scene.names is not None else f"material {material + 1}", fontsize=10)
    figure.suptitle(PAPER_NAMES[scene.name], fontsize=11)
    return grid
