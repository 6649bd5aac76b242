"""Figures of an image and its materials. They need matplotlib: ``pip install 'onmf[report]'``."""

from __future__ import annotations

import colorsys
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onmf.divergence import Array
from onmf.palette import DISTINCT

from .cube import Cube, Lines

if TYPE_CHECKING:
    from .result import ImageClustering

EXPECTED = {"water": "#0072b2", "tree": "#009e73", "vegetation": "#009e73", "dirt": "#e69f00", "soil": "#e69f00"}
EXPECTED |= {"rock": "#d55e00", "road": "#636363"}
"""Conventional colours of some materials, all of them from the palette."""

INK = "#1b263b"

BATCH = 1 << 23
"""Values to read at a time from a file that is slow to open."""

SIDE = 1000
"""Longest side of a picture, in pixels; larger images are subsampled."""

MAX_NAMES = 20
"""Most clusters to name in a legend; the largest ones are named."""

TRUE_COLOUR = (650.0, 550.0, 450.0)
FALSE_COLOUR = (2200.0, 1650.0, 1000.0)
NEAR_INFRARED = (850.0, 650.0, 550.0)
"""Wavelengths shown as red, green and blue, in nanometres."""


def colours(names: list[str]) -> list[str]:
    """Return a colour for each cluster, as ``#rrggbb``: the conventional one of its material, or an unused one."""
    words = (re.match("[a-z]*", name.lower()) for name in names)
    wanted = [EXPECTED.get(word.group().rstrip("s")) if word else None for word in words]
    chosen = [colour if colour not in wanted[:index] else None for index, colour in enumerate(wanted)]
    more = (
        colorsys.hsv_to_rgb((i * 0.618034) % 1, 0.5 + 0.3 * (i % 2), 0.85 - 0.12 * (i % 3)) for i in range(len(names))
    )
    extra = ("#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in more)
    free = iter([*(colour for colour in DISTINCT if colour not in chosen), *extra])
    return [colour or next(free) for colour in chosen]


@dataclass(frozen=True, eq=False)
class Composite:
    """Three bands of an image as a picture.

    Attributes
    ----------
    picture : (lines, samples, 3) array of uint8
        Red, green and blue.
    title : str
        Title of the picture.
    step : int
        Every ``step``-th line and sample is shown.
    """

    picture: Array
    title: str
    step: int


def thinned(cube: Cube, step: int, bands: list[int] | None = None) -> Array:
    """Read every ``step``-th line and sample, of all used bands or of ``bands`` only. → (lines, samples, bands)"""
    chosen = slice(None) if bands is None else bands
    # If each read is expensive, read several lines at a time.
    slow = isinstance(cube.data, Lines) and not cube.data.one_by_one
    depth = step * (max(1, BATCH // (step * cube.shape[1] * cube.shape[2])) if slow else 1)
    starts = range(0, cube.shape[0], depth)
    if depth == step:
        parts = [cube.read(line, line + 1)[:, ::step][:, :, chosen].copy() for line in starts]
    else:
        parts = [
            cube.read(line, min(line + depth, cube.shape[0]))[::step, ::step][:, :, chosen].copy() for line in starts
        ]
    return np.concatenate(parts)


def bands_to_show(cube: Cube) -> tuple[list[int], str]:
    """Choose three of the used bands to show as red, green and blue, and return them with a title."""
    waves = cube.nanometres
    used = int(cube.good_bands.sum())
    if waves is not None:
        for wanted, title in (
            (TRUE_COLOUR, "true colour"),
            (NEAR_INFRARED, "false colour"),
            (FALSE_COLOUR, "false colour"),
        ):
            nearest = [int(np.argmin(np.abs(waves - wave))) for wave in wanted]
            if len(set(nearest)) == 3 and max(abs(waves[b] - w) for b, w in zip(nearest, wanted, strict=True)) < 60:
                return nearest, f"{title} ({', '.join(f'{waves[band]:.0f}' for band in nearest)} nm)"
    bands = [round((used - 1) * share) for share in (0.75, 0.5, 0.25)]
    numbers = np.flatnonzero(cube.good_bands)[bands] + 1
    return bands, f"false colour (bands {', '.join(map(str, numbers))})"


def composite(cube: Cube, inside: Array, side: int = SIDE) -> Composite:
    """Show three bands as a picture, each stretched between its 2nd and 98th percentile over the pixels inside."""
    step = max(1, -(-max(cube.shape[:2]) // side))
    bands, title = bands_to_show(cube)
    values = thinned(cube, step, bands).astype(np.float64)
    within = inside[::step, ::step]
    picture = np.full(values.shape, 255, dtype=np.uint8)
    if within.any():
        low, high = np.percentile(values[within], (2, 98), axis=0)
        spread = np.where(high > low, high - low, 1.0)
        picture[within] = np.clip(255 * (values[within] - low) / spread, 0, 255).astype(np.uint8)
    return Composite(picture, title, step)


def plot_map(clustering: ImageClustering, ax: Any = None) -> Any:
    """Draw the map, with one colour per cluster and white outside."""
    plt = _pyplot()
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    lines, samples = clustering.labels.shape
    step = max(1, -(-max(lines, samples) // SIDE))
    if ax is None:
        width = min(9.0, max(3.5, 5.0 * samples / lines))
        _, ax = plt.subplots(figsize=(width + 1.6, min(9.0, max(2.5, width * lines / samples))), layout="constrained")
    shades = colours(clustering.names)
    palette = np.array([*(to_rgb(colour) for colour in shades), (1.0, 1.0, 1.0)])
    ax.imshow(palette[clustering.labels[::step, ::step]], interpolation="nearest", extent=(0, samples, lines, 0))
    sizes = clustering.sizes
    listed = np.sort(np.argsort(-sizes, kind="stable")[:MAX_NAMES])
    handles = [Patch(color=shades[k], label=f"{clustering.names[k]} ({sizes[k]:,})") for k in listed]
    legend = ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    _as_text(legend)
    ax.set_title(clustering.cube.name, fontsize=10, loc="left", color=INK, fontweight="bold", parse_math=False)
    ax.tick_params(labelsize=8, colors=INK)
    return ax


def plot_spectra(clustering: ImageClustering, ax: Any = None) -> Any:
    """Draw the spectra at the mean brightness of their clusters, against wavelength if it is known."""
    plt = _pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(7.5, 4.0), layout="constrained")
    x, label = axis(clustering)
    values = np.full((len(clustering.spectra), len(clustering.cube.good_bands)), np.nan)
    values[:, clustering.cube.good_bands] = clustering.spectra  # bad bands leave a gap
    listed = np.argsort(-clustering.sizes, kind="stable")[:MAX_NAMES]
    for k, (spectrum, colour) in enumerate(zip(values, colours(clustering.names), strict=True)):
        ax.plot(x, spectrum, color=colour, lw=1.6, label=clustering.names[k] if k in listed else None)
    ax.set_xlabel(label, fontsize=9, color=INK, parse_math=False)
    ax.set_ylabel("mean of the cluster", fontsize=9, color=INK)
    # The legend stands outside: matplotlib's search for the best place takes seconds if there are many lines.
    _as_text(ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9))
    ax.tick_params(labelsize=8, colors=INK)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def axis(clustering: ImageClustering) -> tuple[Array, str]:
    """Return the position of each band on the horizontal axis, and the label of the axis."""
    cube = clustering.cube
    if cube.wavelengths is None:
        return np.arange(1, cube.shape[2] + 1), "band"
    unit = cube.wavelength_unit
    return cube.wavelengths, f"wavelength ({unit})" if unit and unit.lower() != "unknown" else "wavelength"


def _as_text(legend: Any) -> None:
    """Print names as they are: a dollar sign in a name does not start a formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need matplotlib: pip install 'onmf[report]'") from error
    return plt
