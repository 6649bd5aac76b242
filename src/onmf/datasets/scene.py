"""What a hyperspectral scene is, as a matrix of pixels."""

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
        One spectrum a row.
    height, width : int
        Size of the image.
    order : {"C", "F"}
        How pixels are numbered: along the lines ("C") or down the columns ("F", MATLAB's way).
    name : str
        Name of the scene.
    source : str
        Where it comes from.
    endmembers : (materials, bands) array or None
        True spectra, where known.
    abundances : (materials, pixels) array or None
        True share of each material in each pixel, where known; NaN where it is not.
    names : (materials,) array of str or None
        Names of the materials, where known.
    wavelengths : (bands,) array or None
        In nanometres, where known.
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
        """Values of the pixels laid out as the image. (pixels,) → (height, width)"""
        return values.reshape(self.height, self.width, order=self.order)
