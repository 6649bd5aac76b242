"""The report on the materials of an image."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, divide
from onmf.image import ImageClustering
from onmf.image.figures import axis, colours, composite, thinned
from onmf.io.files import write_whole

from .image_maps import confidence_of, draw_maps, material_names
from .page import render_page
from .selection import selection_parts

SPECTRA = 4_000_000
"""Approximate bytes of pixel spectra in a page. Larger images are subsampled."""

SIDE = 1000
"""Pixels of the longer side of a map; larger images are subsampled."""


def image_report(found: ImageClustering, *, title: str | None = None) -> str:
    """Return the report on the materials of an image as one self-contained HTML page.

    Map, spectra and pixel are linked: a pixel under the pointer shows its spectrum over those of its cluster and of the
    runner-up, and a chosen cluster is highlighted in the map and among the spectra. Maps have at most 1,000 lines and
    samples, and the page contains about 4 MB of pixel spectra; larger images are subsampled, and the page says so.

    Parameters
    ----------
    found : ImageClustering
        The clustering.
    title : str, optional
        Title of the page.

    Returns
    -------
    str
    """
    check_packages()
    cube, model, palette = found.cube, found.model, colours(found.names)
    x, label = axis(found)
    picture = composite(cube, found.labels >= 0, SIDE)
    labels = found.labels[:: picture.step, :: picture.step]
    pixels = _pixels(found)
    cards = _cards(found, palette)
    return render_page(
        "image.html",
        title=title or f"Materials of {cube.name}",
        script=("lines.js", "image.js", "image_map.js"),
        data={
            "image": {
                "lines": cube.shape[0],
                "samples": cube.shape[1],
                "names": found.names,
                "colours": palette,
                "at": x[cube.good_bands],
                "axis": label,
                "gaps": np.flatnonzero(np.diff(np.flatnonzero(cube.good_bands)) > 1) + 1,
                "spectra": _rounded(found.spectra),
                "transform": cube.transform,
                "step": picture.step,
                "labels": _base64(zlib.compress(labels.astype("<i2").tobytes())),
                "materials": [] if found.truth is None else material_names(found.truth),
            },
            "pixels": pixels,
            "moved": model.history_.get("moved", np.empty(0)),
        },
        subtitle=_subtitle(found),
        facts=_facts(found),
        notes=found.notes,
        selection=selection_parts(found.selection),
        cards=cards,
        matched=any(card["angle"] is not None for card in cards),
        maps=draw_maps(found, palette, picture),
        shape=cube.shape,
        map_step=_ordinal(picture.step) if picture.step > 1 else None,
        pixel_step=_ordinal(pixels["step"]) if pixels["step"] > 1 else None,
        convergence_text=(
            f"{model.n_iter_} iterations; {model.stop_reason_.replace('max_iter', 'stopped at the maximum number')}."
        ),
    )


def check_packages() -> None:
    """Refuse, if a package is missing that reports on images need."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Reports on images need jinja2 and matplotlib: pip install 'onmf[report]'.") from error


def write_image_report(path: str | os.PathLike[str], found: ImageClustering, *, title: str | None = None) -> None:
    """Write :func:`image_report` to a file, completely or not at all.

    Parameters
    ----------
    path : str or path
        File to write.
    found : ImageClustering
        The clustering.
    title : str, optional
        Title of the page.
    """
    page = image_report(found, title=title).encode("utf-8", errors="replace")
    write_whole(Path(path), lambda file: file.write(page))


def _cards(found: ImageClustering, palette: list[str]) -> list[dict[str, Any]]:
    """Return a row of the table for each cluster."""
    sizes, comparison = found.sizes, found.comparison
    angles: dict[int, float] = {}
    if comparison is not None and comparison.spectra is not None:
        angles = dict(zip(comparison.spectra.permutation.tolist(), comparison.spectra.angles.tolist(), strict=True))
    confidence = confidence_of(found)
    return [
        {
            "number": k,
            "name": found.names[k],
            "colour": palette[k],
            "size": int(sizes[k]),
            "share": float(sizes[k]) / max(int(sizes.sum()), 1),
            "angle": angles.get(k),
            "residual": _mean(found.residuals, found.labels, k),
            "margin": _mean(found.margins, found.labels, k),
            "confidence": None if confidence is None else _mean(confidence, found.labels, k),
        }
        for k in range(len(found.spectra))
    ]


def _pixels(found: ImageClustering) -> dict[str, Any]:
    """Return the pixels of the page, line by line. Spectra have 16 bits between their smallest and largest value."""
    lines, samples, _ = found.cube.shape
    used = found.spectra.shape[1]
    step = max(1, int(np.ceil(np.sqrt(2 * used * lines * samples / SPECTRA))))
    values = thinned(found.cube, step).astype(np.float64)
    values[~np.isfinite(values)] = 0.0
    if found.negatives == "clip":
        np.maximum(values, 0.0, out=values)
    labels, confidence = found.labels[::step, ::step], confidence_of(found)
    known = None if found.truth is None else found.truth.labels
    values *= found.cube.scale
    low, high = values.min(axis=2), values.max(axis=2)
    scaled = np.rint(65535 * divide(values - low[..., None], (high - low)[..., None]))
    return {
        "step": step,
        "lines": labels.shape[0],
        "samples": labels.shape[1],
        "values": _base64(scaled.astype("<u2")),
        "low": _base64(low.astype("<f4")),
        "high": _base64(high.astype("<f4")),
        "labels": _base64(labels.astype("<i2")),
        "runners_up": _base64(found.runners_up[::step, ::step].astype("<i2")),
        "scales": _base64(found.scales[::step, ::step].astype("<f4")),
        "residuals": _base64(found.residuals[::step, ::step].astype("<f4")),
        "margins": _base64(found.margins[::step, ::step].astype("<f4")),
        "confidence": None if confidence is None else _base64(confidence[::step, ::step].astype("<f4")),
        "truth": None if known is None else _base64(known[::step, ::step].astype("<i4")),
    }


def _base64(values: Array | bytes) -> str:
    content = values if isinstance(values, bytes) else np.ascontiguousarray(values).tobytes()
    return base64.b64encode(content).decode()


def _rounded(values: Array) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in values]


def _ordinal(number: int) -> str:
    """2 → 2nd."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"


def _mean(values: Array, labels: Array, k: int) -> float:
    inside = values[labels == k]
    inside = inside[np.isfinite(inside)]
    return float(inside.mean(dtype=np.float64)) if len(inside) else 0.0


def _facts(result: ImageClustering) -> list[tuple[str, str]]:
    lines, samples, bands = result.cube.shape
    used = result.spectra.shape[1]
    facts = [
        ("Lines × samples", f"{lines:,} × {samples:,}"),
        ("Bands", f"{used} of {bands}" if used < bands else str(bands)),
        ("Clusters", str(len(result.spectra))),
        ("Iterations", f"{result.model.n_iter_:,}"),
    ]
    if result.comparison is not None and result.comparison.mrsa is not None:
        facts.append(("MRSA", f"{result.comparison.mrsa:.2f}"))
    if result.comparison is not None and result.comparison.scores is not None:
        facts += result.comparison.scores.facts()
    return facts


def _subtitle(result: ImageClustering) -> str:
    params = result.model.get_params()
    divergence = params["beta_loss"] if isinstance(params["beta_loss"], str) else f"β = {params['beta_loss']}"
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    name = Path(result.cube.source).name or result.cube.name
    return f"{name}: {len(result.spectra)} clusters, {divergence}, start {start}"
