"""From a cube to a map of its materials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray, divide, get_divergence
from onmf.engine import Engine, get_engine
from onmf.estimator import ONMF, fit_by_blocks
from onmf.initialize import snpa
from onmf.io.files import whole_folder
from onmf.result import margins

from .choose import choose_n_clusters
from .cube import Cube
from .pixels import Negatives, Pixels
from .read import read_cube
from .truth import Comparison, Truth, compare, read_truth

Progress = Callable[[str, float], None]

IN_MEMORY = 512 << 20
"""Bytes of pixels up to which they are clustered in memory."""

SAMPLE = 100_000
"""Pixels, evenly spread, that the start of a larger image is found on."""

UNSEEN = 1e-10
"""Added to a spectrum of sum 1, so that light in a band where a cluster has none does not cost infinity."""


@dataclass(frozen=True, eq=False)
class ImageClustering:
    """The materials of an image: a map, and a spectrum each.

    A pixel is about ``scales[line, sample] * spectra[labels[line, sample]]``.

    Attributes
    ----------
    labels : (lines, samples) array of int
        Cluster of each pixel; −1 outside.
    spectra : (k, used bands) array
        Spectrum of each cluster at its mean brightness, in physical units.
    scales : (lines, samples) array of float32
        Brightness of each pixel, 1 being the mean of its cluster; NaN outside.
    residuals : (lines, samples) array of float32
        Divergence of each pixel from its scaled spectrum, per unit of the pixel; NaN outside.
    margins : (lines, samples) array of float32
        By how much the best other cluster is worse, per unit of the pixel; NaN outside.
    names : list of str
        Name of each cluster: its material where a truth is known, else its number, from 1.
    cube : Cube
        The image.
    model : ONMF
        The fitted estimator; its rows are the pixels inside, in the order of the lines.
    notes : list of str
        What was done that one should know: pixels left out, values clipped, a start from a sample.
    comparison : Comparison or None
        How it does against the truth, where there is one.
    negatives : {"refuse", "clip"}
        What was to be done with negative values.
    """

    labels: Array
    spectra: FloatArray
    scales: Array
    residuals: Array
    margins: Array
    names: list[str]
    cube: Cube
    model: ONMF
    notes: list[str] = field(default_factory=list)
    comparison: Comparison | None = None
    negatives: Negatives = "refuse"

    def __repr__(self) -> str:
        lines, samples = self.labels.shape
        return f"<ImageClustering of {self.cube.name}: {lines} × {samples} pixels, {len(self.spectra)} clusters>"

    @property
    def sizes(self) -> Array:
        """How many pixels each cluster has. → (k,)"""
        return np.bincount(self.labels[self.labels >= 0].ravel(), minlength=len(self.spectra))

    @property
    def wavelengths(self) -> FloatArray | None:
        """Wavelengths of the used bands, in the unit of the cube. → (used bands,)"""
        return None if self.cube.wavelengths is None else self.cube.wavelengths[self.cube.good_bands]

    def plot_map(self, ax: Any = None) -> Any:
        """Draw the map, one colour a cluster.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from .figures import plot_map

        return plot_map(self, ax)

    def plot_spectra(self, ax: Any = None) -> Any:
        """Draw the spectra, in the colours of the map.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from .figures import plot_spectra

        return plot_spectra(self, ax)

    def to_xarray(self) -> Any:
        """The maps and the spectra as one ``xarray.Dataset``, with coordinates.

        Returns
        -------
        xarray.Dataset
        """
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install xarray") from error
        lines, samples = self.labels.shape
        coords: dict[str, Any] = {"cluster": self.names}
        transform = self.cube.transform
        if transform is not None and transform[1] == transform[3] == 0:
            a, _, c, _, e, f = transform
            coords |= {"y": f + e * (np.arange(lines) + 0.5), "x": c + a * (np.arange(samples) + 0.5)}
        if self.wavelengths is not None:
            attributes = {"units": self.cube.wavelength_unit} if self.cube.wavelength_unit else {}
            coords["wavelength"] = ("band", self.wavelengths, attributes)
        maps = {"labels": self.labels, "scales": self.scales, "residuals": self.residuals, "margins": self.margins}
        variables: dict[str, Any] = {name: (("y", "x"), values) for name, values in maps.items()}
        variables["spectra"] = (("cluster", "band"), self.spectra)
        attributes = {"source": self.cube.source}
        if self.cube.crs is not None:
            attributes["crs_wkt"] = self.cube.crs
        return xarray.Dataset(variables, coords, attributes)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write maps (GeoTIFF, ENVI), spectra (CSV, ENVI), figures and the model into a folder.

        The folder is written as a whole or not at all.

        Parameters
        ----------
        folder : path
            Where to; it must not exist, or be empty.
        force : bool, default=False
            Whether to replace a folder that holds nothing but what an earlier call wrote.

        Returns
        -------
        Path
            The folder.
        """
        from .write import OURS, write_files

        with whole_folder(Path(folder), force=force, ours=OURS) as new:
            write_files(self, new)
        return Path(folder)


def cluster_image(
    cube: Any,
    n_clusters: int | str = "auto",
    *,
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
        The image; what is no :class:`Cube` is read by :func:`read_cube`.
    n_clusters : int or "auto", default="auto"
        Number of clusters. ``"auto"`` takes the number from which on more clusters do not describe the spectra better.
    negatives : {"refuse", "clip"}, default="refuse"
        What to do with values below zero where the divergence takes none: refuse the image, or set them to zero.
    truth : Truth or path, optional
        What is known of the image: endmembers, or a label map. Clusters are then named and compared.
    in_memory : bool or None, default=None
        Whether the pixels are read at once, or in blocks in every iteration. By default blocks above 512 MB. With
        blocks the start is found on 100,000 pixels, evenly spread.
    progress : callable, optional
        Called with what is being done and the share of it that is done.
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
    >>> found = cluster_image(scene.X.reshape(20, 30, 50), 3)
    >>> found
    <ImageClustering of array: 20 × 30 pixels, 3 clusters>
    >>> found.spectra.shape
    (3, 50)
    """
    cube = read_cube(cube)
    known = truth if truth is None or isinstance(truth, Truth) else read_truth(truth, cube.shape)
    automatic = isinstance(n_clusters, str)
    if automatic and n_clusters != "auto":
        raise ValueError(f"n_clusters={n_clusters!r} is not allowed: give a number, or 'auto'.")
    model = ONMF(8 if automatic else n_clusters, **parameters)  # type: ignore[arg-type]
    model._check_parameters()
    divergence = get_divergence(model.beta_loss, model.smoothing)
    pixels = Pixels(cube, divergence, negatives, progress)
    notes = _notes(cube, pixels)
    size = pixels.shape[0] * pixels.shape[1] * pixels.dtype.itemsize
    blocks = size > IN_MEMORY if in_memory is None else not in_memory
    if automatic:
        chosen = choose_n_clusters(pixels.rows(pixels.spread(2_000)), model)
        model.set_params(n_clusters=chosen)
        notes.append(f"{chosen} clusters were chosen: more do not describe the spectra much better.")
    if model.n_clusters > pixels.shape[0]:
        raise ValueError(f"n_clusters={model.n_clusters}, but only {pixels.shape[0]} pixels are inside: ask for fewer.")
    if blocks:
        notes.append(_fit_blocks(model, pixels, progress))
    else:
        if progress is not None:
            progress("clustering", 0.0)
        model.fit(pixels.array())
    found = _describe(model, pixels, model.labels_, progress)
    found = replace(found, notes=notes, negatives=negatives)
    return found if known is None else with_truth(found, known)


def predict_image(
    model: ONMF | ImageClustering, cube: Any, *, negatives: Negatives | None = None, progress: Progress | None = None
) -> ImageClustering:
    """Map another image of the same sensor with the clusters of a model.

    Parameters
    ----------
    model : ONMF or ImageClustering
        What :func:`cluster_image` found, or the model that it saved, as :func:`onmf.load` reads it.
    cube : Cube, path, array or xarray.DataArray
        The image. Its bands must be those that the model was fitted on; where both know wavelengths, they are compared.
    negatives : {"refuse", "clip"}, optional
        As in :func:`cluster_image`; by default what the model was fitted with.
    progress : callable, optional
        As in :func:`cluster_image`.

    Returns
    -------
    ImageClustering
        With the spectra of the model.
    """
    fitted = model.model if isinstance(model, ImageClustering) else model
    known = image_parts(model) if isinstance(model, ImageClustering) else getattr(model, "extra_", {})
    if known.get("kind") != "image":
        raise ValueError("This model is of no image: fit one with onmf.image.cluster_image, or with 'onmf image'.")
    cube = match_bands(read_cube(cube), known)
    negatives = negatives or known["negatives"]
    pixels = Pixels(cube, fitted._divergence, negatives, progress)
    found = _describe(fitted, pixels, None, progress)
    spectra = np.asarray(known["spectra"])
    # Brightness is that of the model's clusters, so that two images can be compared.
    own = divide((found.spectra * spectra).sum(axis=1), np.square(spectra).sum(axis=1))
    factors = np.append(own, np.nan)[found.labels].astype(np.float32)
    return replace(
        found,
        spectra=spectra,
        scales=found.scales * factors,
        names=list(known["names"]),
        notes=_notes(cube, pixels),
        negatives=negatives,
    )


def with_truth(found: ImageClustering, truth: Truth) -> ImageClustering:
    """The same clustering beside the truth, its clusters named by the materials they are matched with."""
    comparison = compare(truth, found.spectra, found.labels, found.cube.good_bands)
    names = [comparison.materials.get(k, name) for k, name in enumerate(found.names)]
    return replace(found, comparison=comparison, names=names)


def image_parts(found: ImageClustering) -> dict[str, Any]:
    """What a model file keeps besides the model, to map other images."""
    parts: dict[str, Any] = {
        "kind": "image",
        "names": found.names,
        "spectra": found.spectra,
        "good_bands": found.cube.good_bands.astype(np.uint8),
        "negatives": found.negatives,
        "image": found.cube.name,
    }
    if found.cube.wavelengths is not None:
        parts |= {"wavelengths": found.cube.wavelengths, "wavelength_unit": found.cube.wavelength_unit}
    return parts


def match_bands(cube: Cube, known: dict[str, Any]) -> Cube:
    """The cube with the bands of a model, or a sentence why that cannot be."""
    good = np.asarray(known["good_bands"]).astype(bool)
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
    if "wavelengths" in known and cube.wavelengths is not None:
        theirs = Cube(
            np.empty((1, 1, len(good)), np.uint8),
            np.asarray(known["wavelengths"]),
            known["wavelength_unit"],
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
    """What one should know about the pixels."""
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
    """Fit from blocks: a start from a spread sample, then the loop over all pixels; → what was done."""
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
        start, how = model.init, "it was given"
    if progress is not None:
        progress("choosing a start", 1.0)
    fit_by_blocks(model, pixels, progress, init=start, n_init=1)
    if how == "it was given":
        return f"The pixels were read in {len(pixels.sizes)} blocks."
    return (
        f"The pixels were read in {len(pixels.sizes)} blocks, and the start comes from {len(sample):,} of them, "
        f"evenly spread ({how})."
    )


def _describe(model: ONMF, pixels: Pixels, labels: Array | None, progress: Progress | None) -> ImageClustering:
    """The maps and spectra of a fitted model, in one pass over the pixels; without labels, rows are assigned."""
    divergence, centroids = model._divergence, model.cluster_centers_
    engine = get_engine(model.engine, None, model.n_threads)
    templates = divergence.templates(centroids)
    exact = divergence.normalise(centroids)
    if divergence.domain == "nonnegative":
        exact = exact + UNSEEN
    exact = divergence.unsmoothed().templates(exact)
    n, k = pixels.shape[0], len(centroids)
    out = {name: np.empty(n, dtype=np.float32) for name in ("scales", "residuals", "margins")}
    found = np.empty(n, dtype=np.int16 if k < 2**15 else np.int32)
    for rows, block in pixels:
        if labels is not None:
            found[rows] = labels[rows]
        _describe_block(engine, block, divergence, templates, exact, labels is None, found[rows], out, rows)
        if progress is not None:
            progress("drawing maps", rows.stop / n)
    counts = np.bincount(found, minlength=k).astype(np.float64)
    mean = divide(np.bincount(found, weights=out["scales"], minlength=k).astype(np.float64), counts)
    spectra = divergence.normalise(centroids) * np.where(mean > 0, mean, 1.0)[:, None] * pixels.cube.scale
    unit = mean.astype(np.float32)
    out["scales"] /= np.where(unit > 0, unit, np.float32(1.0))[found]
    return ImageClustering(
        labels=pixels.image(found, -1),
        spectra=spectra,
        scales=pixels.image(out["scales"], np.nan),
        residuals=pixels.image(out["residuals"], np.nan),
        margins=pixels.image(out["margins"], np.nan),
        names=[f"cluster {number + 1}" for number in range(k)],
        cube=pixels.cube,
        model=model,
    )


def _describe_block(
    engine: Engine,
    block: Array,
    divergence: Any,
    templates: FloatArray,
    exact: FloatArray,
    assign: bool,
    labels: Array,
    out: dict[str, Array],
    rows: slice,
) -> None:
    """Scales, residuals and margins of a block of pixels, and their labels where they are to be found."""
    held = engine.hold(block, divergence)
    if assign:
        labels[:] = engine.assign(held, templates).labels
    whole = labels.astype(np.int32)
    own, following = engine.own_and_next(held.data, templates, whole)
    scales = divergence.scale(own, held.terms)
    out["scales"][rows] = scales
    out["margins"][rows] = margins(divergence, own, following, held.terms)
    best, _ = engine.own_and_next(held.data, exact, whole)
    losses = held.constants - divergence.gain(best, divergence.scale(best, held.terms), held.terms)
    out["residuals"][rows] = np.maximum(divide(losses, divergence.row_size(held.terms)), 0.0)
