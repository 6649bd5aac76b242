"""The result of clustering an image: a map, spectra, and what a model file needs to map other images."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onmf.confidence import Calibration
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.io.files import whole_folder
from onmf.naming import numbers
from onmf.notebook import table
from onmf.select import Selection

from .cube import Cube
from .figures import colours
from .kind import IMAGE
from .pixels import Negatives
from .truth import Comparison, Truth, compare


@dataclass(frozen=True, eq=False)
class ImageClustering:
    """The materials of an image: a map, and a spectrum of each.

    A pixel is about ``scales[line, sample] * spectra[labels[line, sample]]``.

    Attributes
    ----------
    labels : (lines, samples) array of int
        Cluster of each pixel; −1 for pixels that were left out.
    spectra : (k, used bands) array
        Spectrum of each cluster at its mean brightness, in physical units.
    scales : (lines, samples) array of float32
        Brightness of each pixel, 1 being the mean of its cluster; NaN for pixels that were left out.
    residuals : (lines, samples) array of float32
        Divergence of each pixel from its scaled spectrum, per unit of the pixel; NaN for pixels that were left out.
    margins : (lines, samples) array of float32
        How much worse the best other cluster is, per unit of the pixel; NaN for pixels that were left out.
    confidence : (lines, samples) array of float32
        How sure the cluster is: a pixel at 0.8 is with the pixels of its cluster in about 80 % of independent fits; NaN
        for pixels that were left out.
    runners_up : (lines, samples) array of int
        The best other cluster of each pixel; −1 for pixels that were left out, or if there is none.
    names : list of str
        Name of each cluster: its material if a truth is known, else a description of its spectrum.
    cube : Cube
        The image.
    model : ONMF
        The fitted estimator; its rows are the pixels that were not left out, in the order of the lines.
    notes : list of str
        Things to know about the result: pixels left out, values clipped, a start from a sample.
    comparison : Comparison or None
        Comparison with the truth, if there is one.
    truth : Truth or None
        The truth that it was compared with, if there is one.
    negatives : {"refuse", "clip"}
        How negative values were treated.
    calibration : Calibration or None
        How ``confidence`` follows from losses; None for a model of an earlier version.
    selection : Selection or None
        How the number of clusters was chosen; None if it was given.
    """

    labels: Array
    spectra: FloatArray
    scales: Array
    residuals: Array
    margins: Array
    confidence: Array
    runners_up: Array
    names: list[str]
    cube: Cube
    model: ONMF
    notes: list[str] = field(default_factory=list)
    comparison: Comparison | None = None
    truth: Truth | None = None
    negatives: Negatives = "refuse"
    calibration: Calibration | None = None
    selection: Selection | None = None

    def __repr__(self) -> str:
        lines, samples = self.labels.shape
        return f"<ImageClustering of {self.cube.name}: {lines} × {samples} pixels, {len(self.spectra)} clusters>"

    def _repr_html_(self) -> str:
        rows = zip(numbers(IMAGE, len(self.names)), self.names, self.sizes.tolist(), strict=True)
        return table(repr(self).strip("<>"), ["cluster", "name", "pixels"], rows, colours(self.names))

    @property
    def sizes(self) -> Array:
        """Number of pixels of each cluster. → (k,)"""
        return np.bincount(self.labels[self.labels >= 0].ravel(), minlength=len(self.spectra))

    @property
    def wavelengths(self) -> FloatArray | None:
        """Wavelengths of the used bands, in the unit of the cube. → (used bands,)"""
        return None if self.cube.wavelengths is None else self.cube.wavelengths[self.cube.good_bands]

    def plot_map(self, ax: Any = None) -> Any:
        """Draw the map, with one colour for each cluster.

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
            raise ImportError("to_xarray needs xarray: pip install 'onmf[image]'") from error
        lines, samples = self.labels.shape
        coords: dict[str, Any] = {"cluster": self.names}
        transform = self.cube.transform
        if transform is not None and transform[1] == transform[3] == 0:
            a, _, c, _, e, f = transform
            coords |= {"y": f + e * (np.arange(lines) + 0.5), "x": c + a * (np.arange(samples) + 0.5)}
        if self.wavelengths is not None:
            attributes = {"units": self.cube.wavelength_unit} if self.cube.wavelength_unit else {}
            coords["wavelength"] = ("band", self.wavelengths, attributes)
        maps = ("labels", "scales", "residuals", "margins", "confidence", "runners_up")
        variables: dict[str, Any] = {name: (("y", "x"), getattr(self, name)) for name in maps}
        variables["spectra"] = (("cluster", "band"), self.spectra)
        attributes = {"source": self.cube.source}
        if self.cube.crs is not None:
            attributes["crs_wkt"] = self.cube.crs
        return xarray.Dataset(variables, coords, attributes)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write maps (GeoTIFF, ENVI), spectra (CSV, ENVI), figures and the model into a folder.

        The folder is written completely or not at all.

        Parameters
        ----------
        folder : path
            The folder; it must not exist, or be empty.
        force : bool, default=False
            Whether to replace a folder that an earlier call wrote and that contains nothing else.

        Returns
        -------
        Path
            The folder.
        """
        from .write import OURS, write_files

        with whole_folder(Path(folder), force=force, ours=OURS) as new:
            write_files(self, new)
        return Path(folder)


def with_truth(clustering: ImageClustering, truth: Truth) -> ImageClustering:
    """Compare a clustering with the truth, and name its clusters after the materials they are matched with."""
    comparison = compare(truth, clustering.spectra, clustering.labels, clustering.cube.good_bands)
    names = [comparison.materials.get(k, name) for k, name in enumerate(clustering.names)]
    return replace(clustering, comparison=comparison, names=names, truth=truth)


def image_parts(clustering: ImageClustering) -> dict[str, Any]:
    """The entries that a model file has besides the model, to map other images."""
    parts: dict[str, Any] = {
        "kind": "image",
        "names": clustering.names,
        "spectra": clustering.spectra,
        "good_bands": clustering.cube.good_bands.astype(np.uint8),
        "negatives": clustering.negatives,
        "image": clustering.cube.name,
    }
    if clustering.calibration is not None:
        parts |= clustering.calibration.parts()
    if clustering.cube.wavelengths is not None:
        parts |= {"wavelengths": clustering.cube.wavelengths, "wavelength_unit": clustering.cube.wavelength_unit}
    return parts
