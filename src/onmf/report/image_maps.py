"""The maps in a report on an image: pictures with a colour bar or a list of colours."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from onmf.divergence import Array
from onmf.image import ImageClustering, Truth
from onmf.image.figures import Composite
from onmf.metrics import match_clusters
from onmf.palette import DISTINCT, parts_of

COLOUR_MAP = "viridis"
"""Its lightness grows steadily, so that no eye depends on the hue."""

STEPS = 9
"""Colours from which the browser interpolates a colour bar."""

LOSSLESS = 300_000
"""Pixels up to which the picture of the image is stored without loss, and maps of numbers in 255 shades."""

COARSE = 4
"""In larger maps, only every so many shades are used: a third of the bytes less, and no eye sees it."""

RIGHT, WRONG = "#aeb6bd", "#d55e00"
"""Colours of the map of errors."""


@dataclass(frozen=True)
class ColourBar:
    """The colour bar of a map: its colours, and the values at its left end, in its middle and at its right end."""

    colours: list[str]
    low: str
    middle: str
    high: str


@dataclass(frozen=True)
class Map:
    """A map in a page.

    Attributes
    ----------
    key : str
        Its name in the page, a word.
    title : str
        Its title.
    text : str
        What its colours say.
    picture : str
        The picture as a data URL.
    bar : ColourBar or None
        The colour bar of a map of numbers.
    classes : list of (str, str)
        Name and colour of each class of a map of classes that the list of clusters does not explain.
    """

    key: str
    title: str
    text: str
    picture: str
    bar: ColourBar | None = None
    classes: list[tuple[str, str]] = field(default_factory=list)


def draw_maps(found: ImageClustering, palette: list[str], composite: Composite) -> list[Map]:
    """Draw all maps of a clustering, at the resolution of the composite.

    Parameters
    ----------
    found : ImageClustering
        The clustering.
    palette : list of str
        Colour of each cluster.
    composite : Composite
        The picture of the image.

    Returns
    -------
    list of Map
    """
    step = composite.step
    inside = found.labels[::step, ::step] >= 0
    maps = [
        Map("clusters", "Clusters", "one colour for each cluster", _indexed(found.labels[::step, ::step], palette)),
        Map("composite", "Image", composite.title, _photograph(composite.picture, inside)),
    ]
    confidence = confidence_of(found)
    if confidence is not None:
        text = "probability that a new fit would leave the pixel in its cluster"
        low = min(np.floor(10 * np.nanpercentile(confidence, 2)) / 10, 0.9)  # few pixels are at 0
        maps.append(_numbers("confidence", "Confidence", text, confidence[::step, ::step], (float(low), 1.0)))
    for key, title, text, values in (
        (
            "margin",
            "Margin",
            "how much worse the best other cluster is; small in mixtures",
            found.margins,
        ),
        ("brightness", "Brightness", "1 is the mean of the cluster", found.scales),
        ("residual", "Residual", "divergence from the scaled spectrum, per unit of the pixel", found.residuals),
    ):
        maps.append(_numbers(key, title, text, values[::step, ::step]))
    if found.truth is not None and found.truth.labels is not None:
        maps += _truth_maps(found, found.truth.labels, palette, step)
    return maps


def confidence_of(found: ImageClustering) -> Array | None:
    """Return how sure each pixel is of its cluster, from 0 to 1, if the clustering knows it. → (lines, samples)"""
    return found.confidence if np.isfinite(found.confidence).any() else None


def material_names(truth: Truth) -> list[str]:
    """Return the names of the materials of a truth; those without a name are numbered from 1."""
    number = 0 if truth.labels is None else int(truth.labels.max(initial=-1)) + 1
    number = max(number, 0 if truth.spectra is None else len(truth.spectra))
    known = list(truth.names or [])[:number]
    return known + [f"material {i + 1}" for i in range(len(known), number)]


def materials_of(found: ImageClustering) -> Array:
    """Return the material that each cluster stands for, −1 for none. → (k,)

    With as many clusters as materials, each cluster stands for the one that it is matched with. Otherwise it stands for
    the material that most of its pixels have.
    """
    k, truth = len(found.spectra), found.truth
    out = np.full(k, -1)
    if truth is None or truth.labels is None:
        return out
    r = len(material_names(truth))
    both = (truth.labels >= 0) & (found.labels >= 0)
    materials, labels = truth.labels[both], found.labels[both]
    if k != r:
        table = np.bincount(labels.astype(np.int64) * r + materials, minlength=k * r).reshape(k, r)
        return np.where(table.any(axis=1), table.argmax(axis=1), -1)
    if found.comparison is not None and found.comparison.spectra is not None:
        permutation = found.comparison.spectra.permutation
        out[permutation] = np.arange(len(permutation))
    elif len(labels):
        for cluster, material in match_clusters(materials, labels).items():
            out[int(cluster)] = int(material)
    return out


def _truth_maps(found: ImageClustering, truth: Array, palette: list[str], step: int) -> list[Map]:
    """Draw the truth, in the colours of the clusters that stand for its materials, and the errors."""
    assert found.truth is not None
    names, stands_for = material_names(found.truth), materials_of(found)
    colours: list[str | None] = [None] * len(names)
    for cluster in np.argsort(found.sizes, kind="stable"):  # the largest cluster of a material is the last to say
        if stands_for[cluster] >= 0:
            colours[stands_for[cluster]] = palette[cluster]
    free = cycle([colour for colour in DISTINCT if colour not in palette] or DISTINCT)
    shades = [colour or next(free) for colour in colours]
    known = (truth >= 0) & (found.labels >= 0)
    wrong = known & (np.append(stands_for, -1)[found.labels] != truth)
    share = float(wrong.sum()) / max(int(known.sum()), 1)
    rule = "has the name of" if len(names) == len(palette) else "holds mostly"
    errors = np.where(known, wrong.astype(np.int16), -1)[::step, ::step]
    return [
        Map(
            "truth",
            "Truth",
            "true materials, in the colours of the clusters that stand for them",
            _indexed(np.where(found.labels >= 0, truth, -1)[::step, ::step], shades),
            classes=list(zip(names, shades, strict=True)),
        ),
        Map(
            "errors",
            "Errors",
            f"pixels whose cluster {rule} another material: {share:.1%} of those whose material is known",
            _indexed(errors, [RIGHT, WRONG]),
            classes=[("right", RIGHT), ("wrong", WRONG)],
        ),
    ]


def _numbers(key: str, title: str, text: str, values: Array, ends: tuple[float, float] | None = None) -> Map:
    """Draw a map of numbers, by default between their 2nd and 98th percentile."""
    finite = np.isfinite(values)
    low, high = ends or (0.0, 1.0)
    if ends is None and finite.any():
        low, high = np.percentile(values[finite].astype(np.float64), (2, 98))
    shares = np.clip((np.where(finite, values, low) - low) / (high - low if high > low else 1.0), 0, 1)
    shades = np.rint(254 * shares).astype(np.int16)
    if values.size > LOSSLESS:
        shades = np.minimum(shades // COARSE * COARSE + COARSE // 2, 254)
    signs = ("≤ " if (values[finite] < low).any() else "", "≥ " if (values[finite] > high).any() else "")
    bar = ColourBar(_colour_map(STEPS), f"{signs[0]}{low:.3g}", f"{(low + high) / 2:.3g}", f"{signs[1]}{high:.3g}")
    return Map(key, title, text, _indexed(np.where(finite, shades, -1), _colour_map(255)), bar)


def _colour_map(number: int) -> list[str]:
    """Return colours from low to high."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps[COLOUR_MAP](np.linspace(0, 1, number))]


def _indexed(values: Array, palette: list[str]) -> str:
    """Draw classes in their colours; −1 is transparent."""
    from PIL import Image

    shades = np.array([*map(parts_of, palette), (255, 255, 255)], dtype=np.uint8)
    if len(shades) > 256:
        opaque = np.where(values >= 0, 255, 0).astype(np.uint8)
        return _url(Image.fromarray(np.dstack([shades[values], opaque])), "png")
    picture = Image.fromarray(np.where(values < 0, len(palette), values).astype(np.uint8))
    picture.putpalette(shades.tobytes())  # numbers become indices of colours
    return _url(picture, "png", transparency=len(palette))


def _photograph(picture: Array, inside: Array) -> str:
    """Draw the image itself: without loss if it is small, else as JPEG."""
    from PIL import Image

    if inside.size > LOSSLESS:
        return _url(Image.fromarray(picture), "jpeg", quality=90)
    return _url(Image.fromarray(np.dstack([picture, np.where(inside, 255, 0).astype(np.uint8)])), "png")


def _url(picture: object, kind: str, **options: object) -> str:
    file = io.BytesIO()
    picture.save(file, kind, optimize=True, **options)  # type: ignore[attr-defined]
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
