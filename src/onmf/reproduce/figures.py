"""The paper's figures of the scenes, and the figure of the family of divergences."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from onmf.io.files import write_whole

from .tables import OTHERS, Fit, Records, Table, family_averages, paper_tables

NAMES: dict[Any, str] = {"F": "Fro-ONMF", "KL": "KL-ONMF"}

BOLD, FAINT = "#2a6f97", "#8d99ae"

PANELS = {
    "documents": ("Documents: accuracy (%), higher is better", "lower left"),
    "hyperspectral": ("Scenes: MRSA, lower is better", "upper left"),
}
"""Title of the panel of each kind of data, and the position of its legend."""


def write_figures(folder: Path, table: Table) -> None:
    """Write the figures that belong to a table as PNG and SVG."""
    grids = {"family": plot_family(table.records)} if table.name == "family" else {}
    if table.fits:
        grids["spectra"] = plot_spectra(table.fits)
    pairs = zip(table.fits[::2], table.fits[1::2], strict=True)
    for name, grid in (grids | {f"maps-{pair[0].data.name}": plot_maps(pair) for pair in pairs}).items():
        figure = grid.flat[0].figure
        for suffix in ("png", "svg"):
            write_whole(folder / f"{name}.{suffix}", partial(figure.savefig, format=suffix, dpi=130))
        plt.close(figure)


def _finish(ax: Any, title: str, fontsize: int, corner: str) -> None:
    """Add title and legend."""
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold")
    ax.legend(fontsize=fontsize, frameon=False, loc=corner)
    ax.spines[["top", "right"]].set_visible(False)


def plot_spectra(fits: Sequence[Fit]) -> Any:
    """Plot the centroids of both algorithms over the true spectra. The fits come in pairs: Fro-ONMF, KL-ONMF.

    The magnitude of a centroid is arbitrary, because the scales absorb it. Each centroid is therefore drawn at the
    magnitude that fits its true spectrum best. → (scenes, 2) Axes
    """
    r = len(fits) // 2
    figure, grid = plt.subplots(r, 2, figsize=(10, 2.9 * r), layout="constrained", squeeze=False)
    for ax, fit in zip(grid[:, ::-1].flat, fits, strict=True):
        scene, centroids = fit.data, fit.model.cluster_centers_[fit.match.permutation]
        title, materials = _names(scene)
        bands = np.arange(1, scene.X.shape[1] + 1) if scene.wavelengths is None else scene.wavelengths
        for i, (t, w) in enumerate(zip(scene.endmembers, centroids, strict=True)):
            label = f"{materials[i]}, MRSA {fit.match.angles[i]:.1f}"
            ax.plot(bands, t, color=f"C{i}", lw=1, ls=":")
            ax.plot(bands, w * (t @ w) / (w @ w), color=f"C{i}", lw=1.5, label=label)
        ax.set_xlabel("band" if scene.wavelengths is None else "wavelength (nm)", fontsize=8)
        ax.tick_params(labelsize=8)
        # The free corner differs between scenes. With few lines, matplotlib finds it quickly.
        _finish(ax, f"{title}: {NAMES[fit.algorithm]}", 7, "best")
    for left, right in grid:
        right.sharey(left)
    figure.suptitle("Centroids (solid) over the true spectra (dotted)", fontsize=11)
    return grid


def plot_maps(fits: Sequence[Fit]) -> Any:
    """Draw a scene's clusters by each algorithm below its true abundances, a material per column. → grid of Axes"""
    scene = fits[0].data
    title, materials = _names(scene)
    layers = {"ground truth": scene.abundances}
    for fit in fits:
        layers[NAMES[fit.algorithm]] = (fit.model.labels_ == fit.match.permutation[:, None]).astype(float)
    style: dict[str, Any] = {"layout": "constrained", "subplot_kw": {"xticks": [], "yticks": []}}
    size = (1.9 * len(materials) + 0.6, 6)
    figure, grid = plt.subplots(3, len(materials), figsize=size, squeeze=False, **style)
    for axes, (name, layer) in zip(grid, layers.items(), strict=True):
        for ax, values in zip(axes, layer if layer is not None else (), strict=False):
            ax.imshow(scene.to_image(values), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes[0].set_ylabel(name, fontsize=10, fontweight="bold")
    for material, ax in zip(materials, grid[0], strict=True):
        ax.set_title(material, fontsize=10)
    figure.suptitle(title, fontsize=11)
    return grid


def _names(scene: Any) -> tuple[str, list[str]]:
    """The name of a scene in the paper, and those of its materials."""
    materials = [f"material {i + 1}" for i in range(len(scene.endmembers))] if scene.names is None else scene.names
    return paper_tables()["images"][scene.name]["title"], materials


def plot_family(records: Records) -> Any:
    """Plot accuracy (left) and MRSA (right) against β, with other divergences at the right end of the axis. → Axes"""
    kinds = [kind for kind in PANELS if any(line["kind"] == kind for line in records)]
    _, grid = plt.subplots(1, len(kinds), figsize=(5.6 * len(kinds), 4.2), layout="constrained", squeeze=False)
    for ax, kind in zip(grid[0], kinds, strict=True):
        title, corner = PANELS[kind]
        for number, name in enumerate(dict.fromkeys(line["name"] for line in records if line["kind"] == kind)):
            values = {line["beta"]: line["value"] for line in records if line["name"] == name}
            grey = {"color": "#b8c0cc", "lw": 0.8, "label": None if number else "each set"}
            _curve(ax, values, 3, 4, grey if kind == "documents" else {"color": f"C{number}", "lw": 1.8, "label": name})
        if kind == "documents":
            _curve(ax, family_averages(records), 5, 7, {"color": BOLD, "lw": 2.5, "label": "all, by documents"})
        ticks = [0, 0.5, 1, 1.5, 2, 2.5]
        ax.set_xticks([*ticks, *OTHERS.values()], [*(f"{t:g}" for t in ticks), "cosine", "NB"])
        for beta, name in ((1, "KL"), (2, "Frobenius")):
            ax.axvline(beta, color=FAINT, lw=0.8, ls=":")
            ax.text(beta, 1, f" {name}", transform=ax.get_xaxis_transform(), fontsize=8, va="top", color=FAINT)
        ax.set_xlabel("β")
        ax.set_ylim(bottom=0)
        _finish(ax, title, 8, corner)
    return grid[0]


def _curve(ax: Any, values: dict[Any, float], size: int, others: int, style: dict[str, Any]) -> None:
    """Draw a curve over β, and a point for each of the other divergences."""
    betas = [beta for beta in values if beta not in OTHERS]
    ax.plot(betas, [values[beta] for beta in betas], marker="o", ms=size, **style)
    for name in OTHERS.keys() & values.keys():
        ax.plot(OTHERS[name], values[name], marker="o", ms=others, color=style["color"])
