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

from .charts import convergence, escaped
from .page import render_page

SPECTRA = 6_000_000
"""Approximate bytes of pixel spectra in a page. Larger images are subsampled."""

SIDE = 600
"""Pixels of the longer side of a picture; larger images are subsampled."""


def image_report(found: ImageClustering, *, title: str | None = None) -> str:
    """Return the report on the materials of an image as one self-contained HTML page.

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
    cube, model, comparison = found.cube, found.model, found.comparison
    palette, sizes = colours(found.names), found.sizes
    x, label = axis(found)
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
        "Margin": (found.margins, "how much worse the best other cluster is; small at borders and for mixed pixels"),
    }
    pixels = _pixels(found)
    return render_page(
        "image.html",
        title=title or f"Materials of {cube.name}",
        script="image.js",
        data={
            "figures": {
                "spectra": _spectra(found, x, label, palette),
                "pixel": _pixel_axes(label),
                "convergence": convergence(model.history_.get("moved", np.empty(0)), "pixels that moved"),
            },
            "image": {
                "lines": cube.shape[0],
                "samples": cube.shape[1],
                "names": found.names,
                "colours": palette,
                "at": x[cube.good_bands],
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
            f"{model.n_iter_} iterations; {model.stop_reason_.replace('max_iter', 'stopped at the maximum number')}."
        ),
    )


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


def _pixels(result: ImageClustering) -> dict[str, Any]:
    """Return the pixel spectra of the page, line by line, in 16 bits between the smallest and largest value of each."""
    lines, samples, _ = result.cube.shape
    used = result.spectra.shape[1]
    step = max(1, int(np.ceil(np.sqrt(2 * used * lines * samples / SPECTRA))))
    values = thinned(result.cube, step).astype(np.float64) * result.cube.scale
    labels = result.labels[::step, ::step]
    values[~np.isfinite(values)] = 0.0
    if result.negatives == "clip":
        np.maximum(values, 0.0, out=values)
    low, high = values.min(axis=2), values.max(axis=2)
    scaled = np.rint(65535 * divide(values - low[..., None], (high - low)[..., None])).astype("<u2")
    return {
        "step": step,
        "lines": labels.shape[0],
        "samples": labels.shape[1],
        "values": _base64(scaled),
        "low": _base64(low.astype("<f4")),
        "high": _base64(high.astype("<f4")),
        "labels": _base64(labels.astype("<i2")),
        "scales": _base64(np.nan_to_num(result.scales[::step, ::step]).astype("<f4")),
        "residuals": _base64(np.nan_to_num(result.residuals[::step, ::step]).astype("<f4")),
        "margins": _base64(np.nan_to_num(result.margins[::step, ::step], posinf=1e9).astype("<f4")),
    }


def _base64(values: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _rounded(values: Array) -> list[list[float]]:
    return [[float(f"{value:.6g}") for value in row] for row in values]


def _spectra(result: ImageClustering, x: Array, label: str, palette: list[str]) -> dict[str, Any]:
    """Draw the spectra, with gaps at bad bands. The values of all clusters appear under the pointer."""
    good = result.cube.good_bands
    traces = []
    for name, colour, spectrum in zip(result.names, palette, _rounded(result.spectra), strict=True):
        values: list[float | None] = [None] * len(good)
        for band, value in zip(np.flatnonzero(good), spectrum, strict=True):
            values[band] = value
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(name),
                "x": x,
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
            "xaxis": {"title": {"text": escaped(label)}, "fixedrange": True},
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
            "xaxis": {"title": {"text": escaped(label)}, "fixedrange": True},
            "yaxis": {"fixedrange": True},
        },
    }


def _png(picture: Array) -> str:
    """Return a picture as a data URL."""
    try:
        from matplotlib.image import imsave
    except ImportError as error:
        raise ImportError("Reports on images need matplotlib: pip install 'onmf[report]'.") from error
    file = io.BytesIO()
    imsave(file, np.ascontiguousarray(picture), format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _shaded(values: Array) -> Array:
    """Map numbers to colours between their 2nd and 98th percentile; missing numbers are white. → uint8 (…, 3)"""
    from matplotlib import colormaps

    out = np.full((*values.shape, 3), 255, dtype=np.uint8)
    finite = np.isfinite(values)
    if finite.any():
        low, high = np.percentile(values[finite], (2, 98))
        shares = np.clip((values[finite] - low) / (high - low if high > low else 1.0), 0, 1)
        out[finite] = (255 * colormaps["viridis"](shares)[:, :3]).astype(np.uint8)
    return out


def _range(values: Array) -> str:
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, (2, 98)) if len(finite) else (0.0, 0.0)
    return f"{low:.3g} (dark) to {high:.3g} (bright)"


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
