"""From a cube to a map of its materials."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onmf.backend import to_host
from onmf.confidence import CALIBRATION_ROWS as REFIT_SAMPLE
from onmf.confidence import Calibration, calibrate_model, calibration_of, confidence_by_row
from onmf.data import Blocks, Part, Source, get_engine, in_blocks
from onmf.data.blocks import Progress
from onmf.divergence import Array, FloatArray, divide, get_divergence
from onmf.estimator import ONMF, fit_model
from onmf.fit import snpa
from onmf.fit.describe import margins
from onmf.naming import number_by_size
from onmf.parameters import check_parameters
from onmf.select import IMAGE_CRITERIA, Range

from .choose import choose_n_clusters
from .cube import Cube
from .kind import is_image
from .materials import names_of_spectra
from .pixels import Negatives, Pixels
from .read import read_cube
from .result import ImageClustering, image_parts, with_truth
from .truth import Truth, read_truth

WithOffsets = tuple[FloatArray, FloatArray | None]
"""Templates, and their offsets if there are any."""

IN_MEMORY = 512 << 20
"""Bytes of pixels up to which they are clustered in memory."""

SAMPLE = 100_000
"""Pixels, evenly spread, on which the start of a larger image is found."""

CHOICE_SAMPLE = 2_000
"""Pixels, evenly spread, on which the number of clusters is chosen."""

UNSEEN = 1e-10
"""Added to a spectrum of sum 1, so that light in a band in which a cluster has none does not cost infinity."""


def cluster_image(
    cube: Any,
    n_clusters: int | str = "auto",
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    criterion: str | None = None,
    negatives: Negatives = "refuse",
    truth: Any = None,
    in_memory: bool | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> ImageClustering:
    """Cluster the pixels of a hyperspectral image by their spectra.

    Parameters
    ----------
    cube : Cube, path, array or xarray.DataArray
        The image; anything but a :class:`Cube` is read by :func:`read_cube`.
    n_clusters : int or "auto", default="auto"
        Number of clusters. ``"auto"`` takes the number beyond which more clusters do not describe the spectra better.
    k_min, k_max : int, optional
        Smallest and largest number that ``"auto"`` may choose.
    criterion : {"objective", "information", "held-out", "stability"}, optional
        What ``"auto"`` chooses by: how fast the objective falls (default), or a criterion of
        :func:`onmf.select_n_clusters`.
    negatives : {"refuse", "clip"}, default="refuse"
        What to do with values below zero if the divergence takes none: refuse the image, or set them to zero.
    truth : Truth or path, optional
        Known endmembers, or a label map. Clusters are then named and compared.
    in_memory : bool or None, default=None
        Whether the pixels are read at once, or in blocks in every iteration. The default is blocks above 512 MB. With
        blocks, the start is found on 100,000 pixels, evenly spread.
    progress : callable, optional
        Called with the name of a step and the share of it that is done.
    **parameters
        Parameters of :class:`onmf.ONMF`: ``beta_loss``, ``init``, ``n_init``, ``refine``, ``random_state`` and so on.

    Returns
    -------
    ImageClustering

    Examples
    --------
    >>> from onmf.datasets import make_scene
    >>> from onmf.image import cluster_image
    >>> scene = make_scene(20, 30, 50, 3, random_state=0)
    >>> clusters = cluster_image(scene.X.reshape(20, 30, 50), 3)
    >>> clusters
    <ImageClustering of array: 20 × 30 pixels, 3 clusters>
    >>> clusters.spectra.shape
    (3, 50)
    """
    cube = read_cube(cube)
    known = truth if truth is None or isinstance(truth, Truth) else read_truth(truth, cube.shape)
    automatic, span = isinstance(n_clusters, str), Range(k_min, k_max, criterion)
    span.check(n_clusters, IMAGE_CRITERIA)
    model = ONMF(8 if automatic else n_clusters, **parameters)  # type: ignore[arg-type]
    check_parameters(model)
    divergence = get_divergence(model.beta_loss, model.smoothing)
    pixels = Pixels(cube, divergence, negatives, progress)
    notes = _notes(cube, pixels)
    size = pixels.shape[0] * pixels.shape[1] * pixels.dtype.itemsize
    blocks = size > IN_MEMORY if in_memory is None else not in_memory
    rows: Pixels | Array
    selection = None
    if automatic:
        sample = pixels.rows(pixels.spread(CHOICE_SAMPLE))
        told = None if progress is None else partial(progress, "choosing the number of clusters")
        selection = choose_n_clusters(sample, model, span, n_total=pixels.shape[0], progress=told)
        model = ONMF(selection.n_clusters, **parameters)
        notes += selection.notes("pixels")
    if model.n_clusters > pixels.shape[0]:
        raise ValueError(f"n_clusters={model.n_clusters}, but only {pixels.shape[0]} pixels are inside: ask for fewer.")
    if blocks:
        rows, engine = pixels, in_blocks(model.engine, model.n_threads, progress)
        notes.append(_fit_blocks(model, pixels, progress))
    else:
        if progress is not None:
            progress("clustering", 0.0)
        rows, engine = pixels.array(), None
        model.fit(rows)
    number_by_size(model, lambda centroids: fit_model(model, rows, engine=engine, init=centroids))
    if progress is not None:
        progress("measuring how sure the clusters are", 0.0)
    some = pixels.spread(REFIT_SAMPLE)
    calibration = calibrate_model(model, pixels.rows(some), to_host(model.labels_)[some])
    clustering = _describe(model, pixels, model.labels_, calibration, progress)
    clustering = replace(clustering, notes=notes, negatives=negatives, selection=selection)
    return clustering if known is None else with_truth(clustering, known)


def predict_image(
    model: ONMF | ImageClustering, cube: Any, *, negatives: Negatives | None = None, progress: Progress | None = None
) -> ImageClustering:
    """Map another image of the same sensor with the clusters of a model.

    Parameters
    ----------
    model : ONMF or ImageClustering
        The result of :func:`cluster_image`, or the model that it saved, as :func:`onmf.load` reads it.
    cube : Cube, path, array or xarray.DataArray
        The image. Its bands must be those that the model was fitted on; wavelengths are compared if both have them.
    negatives : {"refuse", "clip"}, optional
        As in :func:`cluster_image`; by default as for the model.
    progress : callable, optional
        As in :func:`cluster_image`.

    Returns
    -------
    ImageClustering
        With the spectra of the model.
    """
    fitted = model.model if isinstance(model, ImageClustering) else model
    parts = image_parts(model) if isinstance(model, ImageClustering) else getattr(model, "extra_", {})
    if not is_image(parts):
        raise ValueError("This model is of no image: fit one with onmf.image.cluster_image, or with 'onmf image'.")
    cube = match_bands(read_cube(cube), parts)
    negatives = negatives or parts["negatives"]
    pixels = Pixels(cube, fitted.divergence_, negatives, progress)
    calibration = calibration_of(parts, len(fitted.cluster_centers_))
    clustering = _describe(fitted, pixels, None, calibration, progress)
    spectra = np.asarray(parts["spectra"])
    # Brightness is relative to the model's clusters, so that two images can be compared.
    own = divide((clustering.spectra * spectra).sum(axis=1), np.square(spectra).sum(axis=1))
    factors = np.append(own, np.nan)[clustering.labels].astype(np.float32)
    return replace(
        clustering,
        spectra=spectra,
        scales=clustering.scales * factors,
        names=list(parts["names"]),
        notes=_notes(cube, pixels),
        negatives=negatives,
    )


def match_bands(cube: Cube, parts: dict[str, Any]) -> Cube:
    """The cube with the bands of a model; refused if it has other bands."""
    good = np.asarray(parts["good_bands"]).astype(bool)
    used = int(good.sum())
    if cube.shape[2] == len(good):
        matched = replace(cube, good_bands=good)
    elif int(cube.good_bands.sum()) == used:
        matched = cube
    else:
        raise ValueError(
            f"{cube.source} has {cube.shape[2]} bands, but the model was fitted on {len(good)}, of which it uses "
            f"{used}: only images of the same sensor can be mapped."
        )
    if "wavelengths" in parts and cube.wavelengths is not None:
        theirs = Cube(
            np.empty((1, 1, len(good)), np.uint8),
            np.asarray(parts["wavelengths"]),
            parts["wavelength_unit"],
            good_bands=good,
        ).nanometres
        ours = matched.nanometres
        assert theirs is not None
        assert ours is not None
        gaps = np.abs(np.diff(theirs))
        limit = 0.5 * (float(np.median(gaps)) if len(gaps) else 1.0)
        apart = np.abs(ours - theirs)
        if apart.max() > limit:
            band = int(np.argmax(apart))
            raise ValueError(
                f"{cube.source} has other bands than the model: used band {band} lies at {ours[band]:.1f} nm, and at "
                f"{theirs[band]:.1f} nm in the model. Resample the image to the bands of the model."
            )
    return matched


def _notes(cube: Cube, pixels: Pixels) -> list[str]:
    """Things to know about the pixels."""
    notes = []
    if cube.variable is not None:
        notes.append(f"The cube is the variable {cube.variable} of {Path(cube.source).name}.")
    outside = int(pixels.inside.size - pixels.shape[0])
    if outside:
        notes.append(f"{outside:,} of {pixels.inside.size:,} pixels hold no data and are outside (-1).")
    dropped = int(np.count_nonzero(~cube.good_bands))
    if dropped:
        notes.append(f"{dropped} of {len(cube.good_bands)} bands are bad and were left out.")
    if pixels.negatives and pixels.clipped:
        notes.append(f"{pixels.negatives:,} negative values were set to zero.")
    return notes


def _fit_blocks(model: ONMF, pixels: Pixels, progress: Progress | None) -> str:
    """Fit from blocks: a start from a spread sample, then the loop over all pixels. → a note on what was done"""
    if model.refine is not None:
        raise ValueError(
            f"refine={model.refine!r} is not allowed for an image that is read by blocks: a local search goes through "
            "single pixels in random order. Use refine=None, or in_memory=True if the pixels fit."
        )
    if progress is not None:
        progress("choosing a start", 0.0)
    sample = pixels.rows(pixels.spread(SAMPLE))
    if isinstance(model.init, str) and model.init == "snpa":
        start, how = sample[snpa(sample, model.n_clusters, n_threads=model.n_threads)], "SNPA chose its pixels"
    elif isinstance(model.init, str) or callable(model.init):
        start, how = ONMF(**model.get_params()).fit(sample).cluster_centers_, "a fit found it"
    else:
        start, how = model.init, None
    if progress is not None:
        progress("choosing a start", 1.0)
    fit_model(model, pixels, engine=in_blocks(model.engine, model.n_threads, progress), init=start)
    if how is None:
        return f"The pixels were read in {len(pixels.sizes)} blocks."
    return (
        f"The pixels were read in {len(pixels.sizes)} blocks, and the start comes from {len(sample):,} of them, "
        f"evenly spread ({how})."
    )


def _describe(
    model: ONMF, pixels: Pixels, labels: Array | None, calibration: Calibration | None, progress: Progress | None
) -> ImageClustering:
    """The maps and spectra of a fitted model, in one pass over the pixels; without labels, pixels are assigned."""
    divergence, centroids = model.divergence_, model.cluster_centers_
    k = len(centroids)
    exact = divergence.normalise(centroids)
    if divergence.domain == "nonnegative":
        exact = exact + UNSEEN
    pairs = ((divergence, centroids), (divergence.unsmoothed(), exact))
    templates = [(family.templates(C), family.offsets(C)) for family, C in pairs]
    show = None if progress is None else (lambda name, share: progress("drawing maps", share))
    backend = get_engine(model.engine, None, model.n_threads).backend
    source = Source(
        pixels, _as_read, _as_read_first, noun="block of pixels", sizes=pixels.sizes, features=pixels.shape[1]
    )
    rows = Blocks(backend, show).open(source, divergence)
    described = rows.map_rows(describe_pixels, *templates, centroids, calibration, labels=labels)
    labels, scales, residuals, distances, sure, following = described
    compact = np.int16 if k < 2**15 else np.int32
    labels = labels.astype(compact)
    counts = np.bincount(labels, minlength=k).astype(np.float64)
    mean = divide(np.bincount(labels, weights=scales, minlength=k).astype(np.float64), counts)
    spectra = divergence.normalise(centroids) * np.where(mean > 0, mean, 1.0)[:, None] * pixels.cube.scale
    unit = mean.astype(np.float32)
    scales /= np.where(unit > 0, unit, np.float32(1.0))[labels]
    return ImageClustering(
        labels=pixels.image(labels, -1),
        spectra=spectra,
        scales=pixels.image(scales, np.nan),
        residuals=pixels.image(residuals, np.nan),
        margins=pixels.image(distances, np.nan),
        confidence=pixels.image(sure, np.nan),
        runners_up=pixels.image(following.astype(compact), -1),
        names=names_of_spectra(spectra, counts, pixels.cube.nanometres),
        cube=pixels.cube,
        model=model,
        calibration=calibration,
    )


def _as_read(block: Array, features: int) -> Array:
    """Blocks of pixels were checked when the image was scanned."""
    return block


def _as_read_first(block: Array, features: int) -> tuple[Array, int]:
    return block, 0


def describe_pixels(
    part: Part,
    templates: WithOffsets,
    exact: WithOffsets,
    centroids: FloatArray,
    calibration: Calibration | None,
    labels: Array | None = None,
) -> tuple[Array, ...]:
    """Label, scale, residual, margin, confidence and runner-up of each pixel. → 6 × (n,)

    ``exact`` are the templates for residuals. Without a calibration, no pixel has a confidence and a runner-up.
    """
    block, divergence = part.block, part.block.divergence
    prepared = block.prepare_templates(*templates)
    labels = block.assign(prepared).labels if labels is None else block.backend.to_device(labels).astype(np.int32)
    own, following = block.own_and_next(prepared, labels)
    best, _ = block.own_and_next(block.prepare_templates(*exact), labels)
    residuals = np.maximum(divide(block.losses(best), divergence.row_size(block.terms)), 0.0)
    scales = block.own_scales(prepared, labels, own)
    measured = (scales, residuals, margins(divergence, own, following, block.terms))
    if calibration is None:
        sure, others = np.full(len(block), np.nan), np.full(len(block), -1, dtype=np.int32)
    else:
        sure, others = confidence_by_row(part, centroids, calibration, labels)
    return labels, *(values.astype(np.float32) for values in (*measured, sure)), others
