"""Figures of an image and its materials. They need matplotlib: ``pip install 'onmf[report]'``."""

from __future__ import annotations

import colorsys
import re
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onmf.divergence import Array
from onmf.plot import DISTINCT, INK, parts_of, pyplot

from .cube import Cube

if TYPE_CHECKING:
    from .kind import ImageClusters

EXPECTED = {
    **{"water": "#0072b2", "tree": "#009e73", "vegetation": "#009e73", "dirt": "#e69f00", "soil": "#e69f00"},
    **{"rock": "#d55e00", "road": "#636363"},
}
"""Conventional colours of some materials, all of them from the palette."""

BATCH = 1 << 23  # values to read at a time from a file that is slow to open
SIDE = 1000  # longest side of a picture, in pixels; larger images are subsampled
UNCHANGED_COLOUR = "#d9dde1"  # of pixels in a map of changes
MAX_NAMES = 20  # most clusters to name in a legend; the largest ones are named

WAVELENGTHS = {
    (650.0, 550.0, 450.0): "true colour",
    (850.0, 650.0, 550.0): "false colour",
    (2200.0, 1650.0, 1000.0): "false colour",
}
"""Wavelengths shown as red, green and blue, in nanometres, the first choice first."""


def colours(names: list[str]) -> list[str]:
    """Return a colour for each cluster, as ``#rrggbb``: the conventional one of its material, or an unused one."""
    words = (re.match("[a-z]*", name.lower()) for name in names)
    wanted = [EXPECTED.get(word.group().rstrip("s")) if word else None for word in words]
    chosen = [colour if colour not in wanted[:index] else None for index, colour in enumerate(wanted)]
    free = chain((colour for colour in DISTINCT if colour not in chosen), map(_further_colour, count()))
    return [colour or next(free) for colour in chosen]


def _further_colour(i: int) -> str:
    """The i-th colour after those of the palette."""
    parts = colorsys.hsv_to_rgb((i * 0.618034) % 1, 0.5 + 0.3 * (i % 2), 0.85 - 0.12 * (i % 3))
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


class Composite(NamedTuple):
    """Three bands of an image as a picture of red, green and blue, with every ``step``-th line and sample."""

    picture: Array
    title: str
    step: int


def thinned(cube: Cube, step: int, bands: list[int] | None = None) -> Array:
    """Read every ``step``-th line and sample, of all used bands or of ``bands`` only. → (lines, samples, bands)"""
    chosen = slice(None) if bands is None else bands
    n_lines, samples, all_bands = cube.shape
    cheap = isinstance(cube.data, np.ndarray) or getattr(cube.data, "one_by_one", False)
    depth = 1 if cheap else step * max(1, BATCH // (step * samples * all_bands))
    parts = (cube.read(line, min(line + depth, n_lines)) for line in range(0, n_lines, max(depth, step)))
    return np.concatenate([part[::step, ::step][:, :, chosen].copy() for part in parts])


def bands_to_show(cube: Cube) -> tuple[list[int], str]:
    """Choose three of the used bands to show as red, green and blue, and return them with a title."""
    waves, used = cube.nanometres, np.flatnonzero(cube.good_bands)
    if waves is not None:
        for wanted, title in WAVELENGTHS.items():
            nearest = [int(np.argmin(np.abs(waves - wave))) for wave in wanted]
            if len(set(nearest)) == 3 and np.abs(waves[nearest] - wanted).max() < 60:
                return nearest, f"{title} ({', '.join(f'{waves[band]:.0f}' for band in nearest)} nm)"
    bands = [round((len(used) - 1) * share) for share in (0.75, 0.5, 0.25)]
    names = cube.band_names or [""] * cube.shape[2]
    shown = [names[band] or str(band + 1) for band in used[bands]]
    return bands, f"false colour (bands {', '.join(shown)})"


def composite(cube: Cube, inside: Array) -> Composite:
    """Show three bands as a picture, each stretched between its 2nd and 98th percentile; the rest is white."""
    step = -(-max(inside.shape) // SIDE)
    bands, title = bands_to_show(cube)
    values = thinned(cube, step, bands).astype(np.float64)
    within = inside[::step, ::step]
    picture = np.full(values.shape, 255, dtype=np.uint8)
    if within.any():
        low, high = np.percentile(values[within], (2, 98), axis=0)
        spread = np.where(high > low, high - low, 1.0)
        picture[within] = np.clip(255 * (values[within] - low) / spread, 0, 255).astype(np.uint8)
    return Composite(picture, title, step)


def plot_map(clustering: ImageClusters, ax: Any = None) -> Any:
    """Draw the map, with one colour per cluster; unassigned pixels are white."""
    clustering, plt = clustering.dense, pyplot()
    from matplotlib.patches import Patch

    lines, samples = clustering.labels.shape
    step = -(-max(lines, samples) // SIDE)
    if ax is None:
        width = min(9.0, max(3.5, 5.0 * samples / lines))
        _, ax = plt.subplots(figsize=(width + 1.6, min(9.0, max(2.5, width * lines / samples))), layout="constrained")
    shades = clustering.colours()
    palette = np.array([*map(parts_of, shades), (255, 255, 255)]) / 255
    ax.imshow(palette[clustering.labels[::step, ::step]], interpolation="nearest", extent=(0, samples, lines, 0))
    sizes = clustering.sizes
    listed = np.sort(np.argsort(-sizes, kind="stable")[:MAX_NAMES])
    handles = [Patch(color=shades[k], label=f"{clustering.names[k]} ({sizes[k]:,})") for k in listed]
    ax.set_title(clustering.cube.name, fontsize=10, loc="left", color=INK, fontweight="bold", parse_math=False)
    return _with_legend(ax, handles=handles)


def plot_spectra(clustering: ImageClusters, ax: Any = None) -> Any:
    """Draw the spectra at the mean brightness of their clusters, against wavelength if it is known."""
    clustering = clustering.dense
    if ax is None:
        _, ax = pyplot().subplots(figsize=(7.5, 4.0), layout="constrained")
    x, label = axis(clustering.cube)
    values = np.full((len(clustering.spectra), len(clustering.cube.good_bands)), np.nan)
    values[:, clustering.cube.good_bands] = clustering.spectra  # bad bands leave a gap
    listed = np.argsort(-clustering.sizes, kind="stable")[:MAX_NAMES]
    for k, (spectrum, colour) in enumerate(zip(values, clustering.colours(), strict=True)):
        ax.plot(x, spectrum, color=colour, lw=1.6, label=clustering.names[k] if k in listed else None)
    ax.set_xlabel(label, fontsize=9, color=INK, parse_math=False)
    ax.set_ylabel("mean of the cluster", fontsize=9, color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    return _with_legend(ax)


def axis(cube: Cube) -> tuple[Array, str]:
    """Return the position of each band on the horizontal axis, and the label of the axis."""
    if cube.wavelengths is None:
        return np.arange(1, cube.shape[2] + 1), "band"
    unit = cube.wavelength_unit
    return cube.wavelengths, f"wavelength ({unit})" if unit and unit.lower() != "unknown" else "wavelength"


def _with_legend(ax: Any, **options: Any) -> Any:
    """Add a legend beside the axes: matplotlib's search for the best place takes seconds if there are many lines."""
    legend = ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a name does not start a formula
    ax.tick_params(labelsize=8, colors=INK)
    return ax
