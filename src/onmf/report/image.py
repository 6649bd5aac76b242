"""The report on the materials of an image."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, divide
from onmf.image import ImageClustering
from onmf.image.figures import axis, colours, composite, thinned
from onmf.io.files import write_whole

from .charts import convergence, shown
from .page import render_page

SPECTRA = 6_000_000
"""Bytes of single spectra that a page holds, about: of larger images it has every second pixel, or third, and so on."""

SIDE = 600
"""Pixels to which the longer side of a picture is thinned out."""


def image_report(found: ImageClustering, *, title: str | None = None) -> str:
    """The report on the materials of an image, as one HTML page that needs nothing else.

    Parameters
    ----------
    found : ImageClustering
        What to report.
    title : str, optional
        Title of the page.

    Returns
    -------
    str
    """
    cube, model, comparison = found.cube, found.model, found.comparison
    palette, sizes = colours(found.names), found.sizes
    at, label = axis(found)
    picture = composite(cube, found.labels >= 0, SIDE)
    step = picture.step
    shades = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in [*palette, "#ffffff"]], np.uint8)
    angles: dict[int, float] = {}
    if comparison is not None and comparison.spectra is not None:
        angles = dict(zip(comparison.spectra.permutation.tolist(), comparison.spectra.angles.tolist(), strict=True))
    cards = [
        {
            "number": k,
            "name": found.names[k],
            "colour": palette[k],
            "size": int(sizes[k]),
            "share": float(sizes[k]) / max(int(sizes.sum()), 1),
            "angle": angles.get(k),
            "residual": _mean(found.residuals, found.labels, k),
            "margin": _mean(found.margins, found.labels, k),
        }
        for k in range(len(found.spectra))
    ]
    planes = {
        "Brightness": (found.scales, "1 is the mean of the cluster"),
        "Residual": (found.residuals, "divergence from the scaled spectrum, per unit of the pixel"),
        "Margin": (found.margins, "how much worse the next cluster is; small on borders and mixtures"),
    }
    pixels = _pixels(found)
    return render_page(
        "image.html",
        title=title or f"Materials of {cube.name}",
        script="image.js",
        data={
            "figures": {
                "spectra": _spectra(found, at, label, palette),
                "pixel": _pixel_axes(label),
                "convergence": convergence(model.history_.get("moved", np.empty(0)), "pixels that moved"),
            },
            "image": {
                "lines": cube.shape[0],
                "samples": cube.shape[1],
                "names": found.names,
                "colours": palette,
                "at": at[cube.good_bands],
                "spectra": _rounded(found.spectra),
                "transform": cube.transform,
            },
            "pixels": pixels,
        },
        subtitle=_subtitle(found),
        facts=_facts(found),
        notes=found.notes,
        cards=cards,
        matched=bool(angles),
        composite=_png(picture.picture),
        composite_title=picture.title,
        map=_png(shades[found.labels[::step, ::step]]),
        planes=[
            {
                "name": name,
                "text": text,
                "picture": _png(_shaded(values[::step, ::step])),
                "range": _range(values[::step, ::step]),
            }
            for name, (values, text) in planes.items()
        ],
        pixel_step=_ordinal(pixels["step"]) if pixels["step"] > 1 else None,
        convergence_text=(
            f"{model.n_iter_} iterations; {model.stop_reason_.replace('max_iter', 'stopped at the most allowed')}."
        ),
    )


def write_image_report(path: str | os.PathLike[str], found: ImageClustering, *, title: str | None = None) -> None:
    """Write :func:`image_report` into a file, whole or not at all.

    Parameters
    ----------
    path : str or path
        Where to.
    found : ImageClustering
        What to report.
    title : str, optional
        Title of the page.
    """
    page = image_report(found, title=title).encode("utf-8", errors="replace")
    write_whole(Path(path), lambda file: file.write(page))


def _pixels(found: ImageClustering) -> dict[str, Any]:
    """Single spectra for the page, each in 16 bits between its smallest and largest value, line by line."""
    lines, samples, _ = found.cube.shape
    used = found.spectra.shape[1]
    step = max(1, int(np.ceil(np.sqrt(2 * used * lines * samples / SPECTRA))))
    values = thinned(found.cube, step).astype(np.float64) * found.cube.scale
    labels = found.labels[::step, ::step]
    values[~np.isfinite(values)] = 0.0
    if found.negatives == "clip":
        np.maximum(values, 0.0, out=values)
    low, high = values.min(axis=2), values.max(axis=2)
    whole = np.rint(65535 * divide(values - low[..., None], (high - low)[..., None])).astype("<u2")
    return {
        "step": step,
        "lines": labels.shape[0],
        "samples": labels.shape[1],
        "values": _base64(whole),
        "low": _base64(low.astype("<f4")),
        "high": _base64(high.astype("<f4")),
        "labels": _base64(labels.astype("<i2")),
        "scales": _base64(np.nan_to_num(found.scales[::step, ::step]).astype("<f4")),
        "residuals": _base64(np.nan_to_num(found.residuals[::step, ::step]).astype("<f4")),
        "margins": _base64(np.nan_to_num(found.margins[::step, ::step], posinf=1e9).astype("<f4")),
    }


def _base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _rounded(values: Array) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in values]


def _spectra(found: ImageClustering, at: Array, label: str, palette: list[str]) -> dict[str, Any]:
    """The spectra, with a gap where bands are bad, and all of them under the pointer."""
    good = found.cube.good_bands
    traces = []
    for name, colour, spectrum in zip(found.names, palette, _rounded(found.spectra), strict=True):
        values: list[float | None] = [None] * len(good)
        for band, value in zip(np.flatnonzero(good), spectrum, strict=True):
            values[band] = value
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": shown(name),
                "x": at,
                "y": values,
                "line": {"color": colour, "width": 2},
                "hovertemplate": "%{y:.4g}",
            }
        )
    return {
        "data": traces,
        "layout": {
            "hovermode": "x unified",
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.12},
            "margin": {"l": 60, "r": 15, "t": 30, "b": 50},
            "xaxis": {"title": {"text": shown(label)}, "fixedrange": True},
            "yaxis": {"title": {"text": "mean of the cluster"}, "fixedrange": True},
        },
    }


def _pixel_axes(label: str) -> dict[str, Any]:
    return {
        "data": [],
        "layout": {
            "hovermode": "x unified",
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.12},
            "margin": {"l": 60, "r": 15, "t": 30, "b": 50},
            "xaxis": {"title": {"text": shown(label)}, "fixedrange": True},
            "yaxis": {"fixedrange": True},
        },
    }


def _png(picture: Array) -> str:
    """A picture as an address that holds it."""
    try:
        from matplotlib.image import imsave
    except ImportError as error:
        raise ImportError("Reports on images need matplotlib: pip install 'onmf[report]'.") from error
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(picture), format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _shaded(values: Array) -> Array:
    """Numbers as colours between their 2nd and 98th percentile; white where there are none. → uint8 (…, 3)"""
    from matplotlib import colormaps

    out = np.full((*values.shape, 3), 255, dtype=np.uint8)
    fine = np.isfinite(values)
    if fine.any():
        low, high = np.percentile(values[fine], (2, 98))
        shares = np.clip((values[fine] - low) / (high - low if high > low else 1.0), 0, 1)
        out[fine] = (255 * colormaps["viridis"](shares)[:, :3]).astype(np.uint8)
    return out


def _range(values: Array) -> str:
    fine = values[np.isfinite(values)]
    low, high = np.percentile(fine, (2, 98)) if len(fine) else (0.0, 0.0)
    return f"{low:.3g} (dark) to {high:.3g} (bright)"


def _ordinal(number: int) -> str:
    """2 → 2nd."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"


def _mean(values: Array, labels: Array, k: int) -> float:
    chosen = values[labels == k]
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.mean(dtype=np.float64)) if len(chosen) else 0.0


def _facts(found: ImageClustering) -> list[tuple[str, str]]:
    lines, samples, bands = found.cube.shape
    used = found.spectra.shape[1]
    facts = [
        ("Lines × samples", f"{lines:,} × {samples:,}"),
        ("Bands", f"{used} of {bands}" if used < bands else str(bands)),
        ("Clusters", str(len(found.spectra))),
        ("Iterations", f"{found.model.n_iter_:,}"),
    ]
    if found.comparison is not None and found.comparison.mrsa is not None:
        facts.append(("MRSA", f"{found.comparison.mrsa:.2f}"))
    if found.comparison is not None and found.comparison.accuracy is not None:
        facts.append(("Accuracy", f"{found.comparison.accuracy:.1%}"))
    return facts


def _subtitle(found: ImageClustering) -> str:
    params = found.model.get_params()
    divergence = params["beta_loss"] if isinstance(params["beta_loss"], str) else f"β = {params['beta_loss']}"
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    return (
        f"{Path(found.cube.source).name or found.cube.name}: {len(found.spectra)} clusters, {divergence}, start {start}"
    )
