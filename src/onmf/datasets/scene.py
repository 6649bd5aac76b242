"""A hyperspectral scene as a matrix of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onmf.divergence import Array, FloatArray


@dataclass(frozen=True)
class Scene:
    """The pixels of a hyperspectral image as rows, with its ground truth.

    Attributes
    ----------
    X : (pixels, bands) array
        One spectrum per row.
    height, width : int
        Size of the image.
    order : {"C", "F"}
        Order of the pixels: along the lines ("C"), or down the columns as in MATLAB ("F").
    name : str
        Name of the scene.
    source : str
        Origin of the scene, usually a path.
    endmembers : (materials, bands) array or None
        True spectra, if known.
    abundances : (materials, pixels) array or None
        True share of each material in each pixel, if known; NaN for pixels where it is unknown.
    names : (materials,) array of str or None
        Names of the materials, if known.
    wavelengths : (bands,) array or None
        Wavelengths of the bands in nanometres, if known.
    """

    X: FloatArray
    height: int
    width: int
    order: Literal["C", "F"]
    name: str
    source: str
    endmembers: FloatArray | None = None
    abundances: FloatArray | None = None
    names: Array | None = None
    wavelengths: FloatArray | None = None

    def __repr__(self) -> str:
        materials = "" if self.endmembers is None else f", {len(self.endmembers)} materials"
        return f"<Scene {self.name}: {self.height} × {self.width} pixels, {self.X.shape[1]} bands{materials}>"

    def to_image(self, values: Array) -> Array:
        """Arrange values of the pixels as an image. (pixels,) → (height, width)"""
        return values.reshape(self.height, self.width, order=self.order)
