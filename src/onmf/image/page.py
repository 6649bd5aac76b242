"""The report on the materials of an image: maps, spectra and single pixels, linked."""

import io
from base64 import b64encode
from itertools import cycle
from typing import Any, cast

import numpy as np

try:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from PIL import Image
except ImportError as error:
    raise ImportError("Reports on images need jinja2 and matplotlib: pip install 'onmf[report]'.") from error

from onmf.divergence import Array, divide
from onmf.door import Progress
from onmf.io.rules import require
from onmf.plot import DISTINCT, parts_of
from onmf.report.page import base64_array, clusters_page, coloured, meanings, packed

from .figures import SIDE, UNCHANGED_COLOUR, Composite, axis, composite, thinned
from .kind import ImageClusters
from .materials import Comparison, Truth

SPECTRA = 4_000_000  # approximate bytes of pixel spectra in a page; larger images are subsampled
COLOUR_MAP = "viridis"  # its lightness grows steadily, so that no eye depends on the hue
LOSSLESS = 300_000  # pixels up to which the image is stored without loss, and maps of numbers in 255 shades
CHANGES = 20  # Kinds of change in a table; changes.csv has all
COARSE = 4  # In larger maps, only every so many shades are used: a third of the bytes less, and no eye sees it
RIGHT, WRONG = "#aeb6bd", "#d55e00"  # colours of the map of errors


def image_page(
    found: ImageClusters, *, title: str | None = None, map: str | None = None, progress: Progress | None = None
) -> str:
    """The report on the materials of an image as one self-contained HTML page.

    Maps have at most 1,000 lines and samples, and the page contains about 4 MB of pixel spectra; larger images are
    subsampled, and the page says so.
    """
    require(map is None, "The report on an image consists of its maps, which take no time: leave out map.")
    (progress or (lambda name, share: None))("Drawing the maps", None)
    if len(found.scenes) > 1:
        return _scenes_page(found, title)
    cube, model, palette = found.cube, found.model, found.colours()
    (lines, samples, bands), used = cube.shape, found.spectra.shape[1]
    x, label = axis(cube)
    picture, pixels, cards = composite(cube, found.labels >= 0), _pixels(found), _cards(found, palette)
    labels = found.labels[:: picture.step, :: picture.step]
    return clusters_page(
        found,
        "image.html",
        title=title or f"Materials of {cube.name}",
        script=("lines.js", "image_edit.js", "image.js", "image_map.js", "odd.js", "find.js"),
        data={
            "image": {
                "lines": lines,
                "samples": samples,
                "at": x[cube.good_bands],
                "axis": label,
                "gaps": np.flatnonzero(np.diff(np.flatnonzero(cube.good_bands)) > 1) + 1,
                "spectra": _rounded(found.spectra),
                "transform": cube.transform,
                "step": picture.step,
                "labels": packed(labels.astype("<i2").tobytes()),
                "materials": [] if found.truth is None else found.truth.materials,
            },
            "pixels": pixels,
            "moved": model.history_.get("moved", np.empty(0)),
        },
        facts=[
            ("Lines × samples", f"{lines:,} × {samples:,}"),
            ("Bands", f"{used} of {bands}" if used < bands else str(bands)),
            ("Clusters", str(found.n_clusters)),
            ("Iterations", f"{model.n_iter_:,}"),
            *([] if found.comparison is None else found.comparison.facts()),
        ],
        find_by="names, wavelengths, or a pixel as line,sample",
        cards=cards,
        matched=any(card["angle"] is not None for card in cards),
        maps=_maps(found, palette, picture),
        shape=cube.shape,
        map_step=_ordinal(picture.step),
        pixel_step=_ordinal(pixels["step"]),
        convergence_text=(
            f"{model.n_iter_} iterations; {model.stop_reason_.replace('max_iter', 'stopped at the maximum number')}."
        ),
    )


def _scenes_page(found: ImageClusters, title: str | None) -> str:
    """The report on several scenes: their maps, shared spectra, factors, and what changed."""
    names, palette, scenes, bands = found.names, found.colours(), found.scenes, found.cube.good_bands
    lights = coloured([scene.cube.name for scene in scenes])
    x, label = axis(found.cube)
    effects = dict(zip(found.groups, found.model.group_effects_, strict=True))
    changed = {change.after: change for change in found.changes}
    step = max(-(-max(scene.labels.shape) // SIDE) for scene in scenes)
    shown = []
    for scene, light in zip(scenes, lights, strict=True):
        picture, (lines, samples) = composite(scene.cube, scene.labels >= 0), scene.labels.shape
        maps = [
            _map(
                "clusters", "Clusters", "one colour for each cluster", _indexed(scene.labels[::step, ::step], palette)
            ),
            _map("image", "Image", picture.title, _photograph(picture.picture, picture.picture.min(axis=2) < 255)),
        ]
        if scene.cube.name in changed:
            change = changed[scene.cube.name]
            colours = [UNCHANGED_COLOUR, *(palette[after] for _, after in change.pairs)]
            text = f"changed since {change.before}, in the colour of the new cluster; the others are grey"
            maps.append(_map("change", "Change", text, _indexed(change.map[::step, ::step].astype(int) - 1, colours)))
        drawn = scene.labels[::step, ::step]
        drawn_labels = {"lines": len(drawn), "samples": drawn.shape[1], "labels": packed(drawn.astype("<i2").tobytes())}
        shown.append(light | {"lines": lines, "samples": samples, "maps": maps, "labels": drawn_labels})
    counts = np.stack([scene.sizes for scene in scenes], axis=1)
    shares = divide(counts.astype(np.float64), np.broadcast_to(counts.sum(axis=0), counts.shape))
    both = zip(names, palette, found.sizes.tolist(), counts.tolist(), shares.tolist(), strict=True)
    return clusters_page(
        found,
        "image_scenes.html",
        title=title or f"Materials of {found.cube.name}",
        script=("lines.js", "image_edit.js", "image_scenes.js"),
        data={
            "at": x[bands],
            "axis": label,
            "gaps": np.flatnonzero(np.diff(np.flatnonzero(bands)) > 1) + 1,
            "spectra": _rounded(found.spectra),
            "scenes": [
                light | {"spectra": _rounded(scene.spectra), "factors": _rounded([effects[light["name"]]])[0]}
                for light, scene in zip(lights, scenes, strict=True)
            ],
            "maps": [scene["labels"] for scene in shown],
        },
        facts=[
            ("Scenes", str(len(scenes))),
            ("Pixels", f"{sum(scene.labels.size for scene in scenes):,}"),
            ("Bands", f"{int(bands.sum())} of {len(bands)}" if not bands.all() else str(len(bands))),
            ("Clusters", str(found.n_clusters)),
            *([] if found.comparison is None else found.comparison.facts()),
        ],
        clusters=list(zip(names, palette, strict=True)),
        scenes=shown,
        composition=[
            {"name": name, "colour": colour, "size": size, "scenes": list(zip(own, share, strict=True))}
            for name, colour, size, own, share in both
        ],
        changes=[
            {
                "before": change.before,
                "after": change.after,
                "share": change.share,
                "rows": [
                    (*pair, n := int(change.pixels[pair]), n / change.pixels.sum()) for pair in change.pairs[:CHANGES]
                ],
                "more": max(len(change.pairs) - CHANGES, 0),
            }
            for change in found.changes
        ],
        map_step=_ordinal(step),
    )


def _rounded(curves: Any) -> list[list[float]]:
    """Curves with six digits, which no eye tells from all."""
    return [[float(f"{value:.6g}") for value in curve] for curve in curves]


def _ordinal(step: int) -> str | None:
    """2 → 2nd; None for 1, which leaves nothing out."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(step % 10 if step // 10 % 10 != 1 else 0, "th")
    return f"{step}{ending}" if step > 1 else None


def _known_confidence(found: ImageClusters) -> Array | None:
    """The confidence of the pixels, if the clustering knows it. → (lines, samples)"""
    return found.confidence if np.isfinite(found.confidence).any() else None


def _cards(found: ImageClusters, palette: list[str]) -> list[dict[str, Any]]:
    """A row of the table for each cluster."""
    sizes, confidence = found.sizes, _known_confidence(found)
    angles = {} if found.comparison is None else found.comparison.angles

    def mean(values: Array, k: int) -> float:
        inside = values[(found.labels == k) & np.isfinite(values)]
        return float(inside.mean(dtype=np.float64)) if len(inside) else 0.0

    return [
        {
            "name": found.names[k],
            "colour": palette[k],
            "size": int(sizes[k]),
            "share": float(sizes[k]) / max(int(sizes.sum()), 1),
            "angle": angles.get(k),
            "residual": mean(found.residuals, k),
            "margin": mean(found.margins, k),
            "confidence": None if confidence is None else mean(confidence, k),
        }
        for k in range(found.n_clusters)
    ]


def _pixels(found: ImageClusters) -> dict[str, Any]:
    """The pixels of the page, line by line. Spectra have 16 bits between their smallest and largest value."""
    lines, samples, _ = found.cube.shape
    step = max(1, int(np.ceil(np.sqrt(2 * found.spectra.shape[1] * lines * samples / SPECTRA))))
    values = thinned(found.cube, step).astype(np.float64)
    values[~np.isfinite(values)] = 0.0
    if found.negatives == "clip":
        np.maximum(values, 0.0, out=values)
    values *= found.cube.scale
    low, high = values.min(axis=2), values.max(axis=2)
    planes = {
        "labels": (found.labels, "<i2"),
        "runners_up": (found.runners_up, "<i2"),
        "scales": (found.scales, "<f4"),
        "residuals": (found.residuals, "<f4"),
        "margins": (found.margins, "<f4"),
        "confidence": (_known_confidence(found), "<f4"),
        "surprise": (found.surprise if np.isfinite(found.surprise).any() else None, "<f4"),
        "truth": (None if found.truth is None else found.truth.labels, "<i4"),
    }
    return {
        "step": step,
        "lines": values.shape[0],
        "samples": values.shape[1],
        "values": base64_array(np.rint(65535 * divide(values - low[..., None], (high - low)[..., None])), "<u2"),
        "low": base64_array(low, "<f4"),
        "high": base64_array(high, "<f4"),
        **{
            name: None if plane is None else base64_array(plane[::step, ::step], kind)
            for name, (plane, kind) in planes.items()
        },
    }


def _maps(found: ImageClusters, palette: list[str], composite: Composite) -> list[dict[str, Any]]:
    """The maps of the page. Maps of numbers have a colour bar, maps of materials and errors a list of their classes."""
    step, confidence = composite.step, _known_confidence(found)
    labels = found.labels[::step, ::step]
    maps = [
        _map("clusters", "Clusters", "one colour for each cluster", _indexed(labels, palette)),
        _map("composite", "Image", composite.title, _photograph(composite.picture, labels >= 0)),
    ]
    if confidence is not None:
        text = meanings(found.kind)["confidence"].partition(": ")[2].rstrip(".")
        low = min(np.floor(10 * np.nanpercentile(confidence, 2)) / 10, 0.9)  # few pixels are at 0
        maps.append(_numbers("Confidence", text, confidence[::step, ::step], (float(low), 1.0)))
    maps += [
        _numbers(
            "Margin", "how much worse the best other cluster is; small in mixtures", found.margins[::step, ::step]
        ),
        _numbers("Brightness", "1 is the mean of the cluster", found.scales[::step, ::step]),
        _numbers(
            "Residual", "divergence from the scaled spectrum, per unit of the pixel", found.residuals[::step, ::step]
        ),
    ]
    if found.truth is not None and found.truth.labels is not None:
        maps += _truth_maps(found, found.truth.labels, palette, step)
    return maps


def _map(key: str, title: str, text: str, picture: str, bar: Any = None, classes: Any = ()) -> dict[str, Any]:
    return {"key": key, "title": title, "text": text, "picture": picture, "bar": bar, "classes": classes}


def materials_of(found: ImageClusters) -> Array:
    """The material that each cluster stands for, −1 for none; the truth has labels. → (k,)

    With as many clusters as materials, each cluster stands for the one that it is matched with. Otherwise it stands for
    the material that most of its pixels have.
    """
    truth, comparison = cast(Truth, found.truth), cast(Comparison, found.comparison)
    k, r, known = len(found.spectra), len(truth.materials), np.asarray(truth.labels)
    if k == r:
        return np.array([comparison.matched.get(cluster, -1) for cluster in range(k)])
    both = (known >= 0) & (found.labels >= 0)
    table = np.bincount(found.labels[both].astype(np.int64) * r + known[both], minlength=k * r).reshape(k, r)
    return np.where(table.any(axis=1), table.argmax(axis=1), -1)


def _truth_maps(found: ImageClusters, truth: Array, palette: list[str], step: int) -> list[dict[str, Any]]:
    """The truth, in the colours of the clusters that stand for its materials, and the errors."""
    assert found.truth is not None
    names, stands_for = found.truth.materials, materials_of(found)
    free = cycle([colour for colour in DISTINCT if colour not in palette] or DISTINCT)
    order = np.argsort(found.sizes, kind="stable")  # the largest cluster of a material is the last to say
    own = {int(stands_for[cluster]): palette[cluster] for cluster in order}
    shades = [own.get(material) or next(free) for material in range(len(names))]
    known = (truth >= 0) & (found.labels >= 0)
    wrong = known & (np.append(stands_for, -1)[found.labels] != truth)
    share = float(wrong.sum()) / max(int(known.sum()), 1)
    rule = "has the name of" if len(names) == len(palette) else "holds mostly"
    return [
        _map(
            "truth",
            "Truth",
            "true materials, in the colours of the clusters that stand for them",
            _indexed(np.where(found.labels >= 0, truth, -1)[::step, ::step], shades),
            classes=list(zip(names, shades, strict=True)),
        ),
        _map(
            "errors",
            "Errors",
            f"pixels whose cluster {rule} another material: {share:.1%} of those whose material is known",
            _indexed(np.where(known, wrong.astype(np.int16), -1)[::step, ::step], [RIGHT, WRONG]),
            classes=[("right", RIGHT), ("wrong", WRONG)],
        ),
    ]


def _numbers(title: str, text: str, values: Array, ends: tuple[float, float] | None = None) -> dict[str, Any]:
    """A map of numbers, by default between their 2nd and 98th percentile; the browser interpolates its colour bar."""
    finite = np.isfinite(values)
    low, high = ends or (0.0, 1.0)
    if ends is None and finite.any():
        low, high = np.percentile(values[finite].astype(np.float64), (2, 98))
    shares = np.clip((np.where(finite, values, low) - low) / (high - low if high > low else 1.0), 0, 1)
    shades = np.rint(254 * shares).astype(np.int16)
    if values.size > LOSSLESS:
        shades = np.minimum(shades // COARSE * COARSE + COARSE // 2, 254)
    signs = ("≤ " if (values[finite] < low).any() else "", "≥ " if (values[finite] > high).any() else "")
    palette, bar = ([to_hex(colour) for colour in colormaps[COLOUR_MAP](np.linspace(0, 1, n))] for n in (255, 9))
    marks = {"low": f"{signs[0]}{low:.3g}", "middle": f"{(low + high) / 2:.3g}", "high": f"{signs[1]}{high:.3g}"}
    return _map(title.lower(), title, text, _indexed(np.where(finite, shades, -1), palette), {"colours": bar, **marks})


def _indexed(values: Array, palette: list[str]) -> str:
    """Draw classes in their colours; −1 is transparent."""
    shades = np.array([*map(parts_of, palette), (255, 255, 255)], dtype=np.uint8)
    if len(shades) > 256:
        opaque = np.where(values >= 0, 255, 0).astype(np.uint8)
        return _url(Image.fromarray(np.dstack([shades[values], opaque])), "png")
    picture = Image.fromarray(np.where(values < 0, len(palette), values).astype(np.uint8))
    picture.putpalette(shades.tobytes())  # numbers become indices of colours
    return _url(picture, "png", transparency=len(palette))


def _photograph(picture: Array, inside: Array) -> str:
    """Draw the image itself: without loss if it is small, else as JPEG."""
    if inside.size > LOSSLESS:
        return _url(Image.fromarray(picture), "jpeg", quality=90)
    return _url(Image.fromarray(np.dstack([picture, np.where(inside, 255, 0).astype(np.uint8)])), "png")


def _url(picture: Any, kind: str, **options: Any) -> str:
    file = io.BytesIO()
    picture.save(file, kind, optimize=True, **options)
    return f"data:image/{kind};base64,{b64encode(file.getvalue()).decode()}"
