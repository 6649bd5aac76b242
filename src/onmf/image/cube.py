"""A hyperspectral image: a cube of lines × samples × bands, with the metadata of its file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray

Transform = tuple[float, float, float, float, float, float]
"""a, b, c, d, e, f with x = a·sample + b·line + c, y = d·sample + e·line + f, at the upper left corner of a pixel."""

NANOMETRES = {"nanometers": 1.0, "nanometres": 1.0, "nm": 1.0, "micrometers": 1e3, "micrometres": 1e3, "um": 1e3}
NANOMETRES |= {"microns": 1e3, "µm": 1e3, "μm": 1e3}


class Lines(ABC):
    """A cube that stays in its file and is read line by line.

    Attributes
    ----------
    shape : tuple of int
        Lines, samples, bands.
    dtype : numpy.dtype
        Type of the values.
    one_by_one : bool
        Whether reading lines one by one is as fast as reading many at a time.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    one_by_one: bool = False

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Read the lines from ``start`` to ``stop``; the caller owns the array. → (lines, samples, bands)"""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all lines into memory."""
        if copy is False:
            raise ValueError("The cube is in a file: converting it to an array always copies it. Leave out copy=False.")
        return np.asarray(self.read(0, self.shape[0]), dtype=dtype)


@dataclass(frozen=True, eq=False)
class Cube:
    """A hyperspectral image.

    Attributes
    ----------
    data : (lines, samples, bands) array, memory map or Lines
        Values as stored, all bands.
    wavelengths : (bands,) array or None
        Centre wavelength of each band.
    wavelength_unit : str or None
        Unit of the wavelengths, as the file names it.
    band_names : list of str or None
        Name of each band.
    good_bands : (bands,) array of bool
        Which bands are used; the others stay in ``data``, but are not clustered. By default all are used.
    mask : (lines, samples) array of bool or None
        Which pixels may be used; None allows all.
    ignore_value : float or None
        A pixel that has this value in any used band is outside. If it is 0, only pixels that are 0 in all used bands
        are outside.
    scale : float
        Physical value = stored value · scale.
    crs : str or None
        Coordinate reference system, as well-known text.
    transform : tuple of 6 floats or None
        Maps samples and lines to coordinates, as in rasterio: a, b, c, d, e, f.
    map_info : list of str or None
        The ``map info`` of an ENVI header, kept so that it can be written unchanged.
    name : str
        Name of the image.
    source : str
        Origin of the image, usually a path.
    variable : str or None
        Name of the variable that holds the cube, if the file has several.

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.image import Cube
    >>> cube = Cube(np.ones((4, 5, 3)), wavelengths=np.array([450.0, 550.0, 650.0]))
    >>> cube
    <Cube made: 4 lines × 5 samples × 3 bands, float64>
    """

    data: Any
    wavelengths: FloatArray | None = None
    wavelength_unit: str | None = None
    band_names: list[str] | None = None
    good_bands: Array = None  # type: ignore[assignment]
    mask: Array | None = None
    ignore_value: float | None = None
    scale: float = 1.0
    crs: str | None = None
    transform: Transform | None = None
    map_info: list[str] | None = None
    name: str = "made"
    source: str = ""
    variable: str | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.data.shape)
        where = self.source or "The cube"
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(
                f"{where} has shape {shape}: a cube needs three non-empty dimensions, lines × samples × bands."
            )
        if self.data.dtype.kind not in "buif":
            raise ValueError(f"{where} has {self.data.dtype} values: real numbers are needed.")
        bands = shape[2]
        for name in ("wavelengths", "band_names"):
            values = getattr(self, name)
            if values is not None and len(values) != bands:
                raise ValueError(f"{where} has {bands} bands, but {len(values)} {name.replace('_', ' ')}.")
        good = np.ones(bands, dtype=bool) if self.good_bands is None else np.asarray(self.good_bands, dtype=bool)
        if good.shape != (bands,):
            raise ValueError(f"{where} has {bands} bands, but its list of good bands has {good.size} entries.")
        if not good.any():
            raise ValueError(
                f"{where}: all bands are marked as bad, so none is left. Use them anyway (keep_bad_bands=True)."
            )
        object.__setattr__(self, "good_bands", good)
        if self.mask is not None and np.shape(self.mask) != shape[:2]:
            raise ValueError(
                f"The mask has shape {np.shape(self.mask)}, but {where} has {shape[0]} lines × {shape[1]} samples."
            )

    def __repr__(self) -> str:
        lines, samples, bands = self.shape
        dropped = int(np.count_nonzero(~self.good_bands))
        bad = f" ({dropped} of them bad)" if dropped else ""
        return f"<Cube {self.name}: {lines} lines × {samples} samples × {bands} bands{bad}, {self.data.dtype}>"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Lines, samples and bands, including bad bands."""
        return self.data.shape

    @property
    def nanometres(self) -> FloatArray | None:
        """Wavelengths of the used bands in nanometres, or None if there are none. → (used bands,)"""
        if self.wavelengths is None:
            return None
        factor = NANOMETRES.get((self.wavelength_unit or "").strip().lower())
        if factor is None:
            # The unit is missing or unknown. Sensors see light of 0.2 to 20 micrometres.
            factor = 1e3 if np.max(self.wavelengths) < 100 else 1.0
        return self.wavelengths[self.good_bands] * factor

    def read(self, start: int, stop: int) -> Array:
        """Copy the used bands of the lines from ``start`` to ``stop``. → (lines, samples, used bands)"""
        own = isinstance(self.data, Lines)
        part = self.data.read(start, stop) if own else np.asarray(self.data[start:stop])
        if not self.good_bands.all():
            part = part[:, :, self.good_bands]
        part = (np.asarray if own else np.array)(part, dtype=native(part.dtype), order="C")
        release(self.data)
        return part

    def pixel(self, line: int, sample: int) -> FloatArray:
        """Return the spectrum of one pixel over the used bands, in physical units. → (used bands,)"""
        return self.read(line, line + 1)[0, sample].astype(np.float64) * self.scale

    def coordinates(self, line: float, sample: float) -> tuple[float, float] | None:
        """Return the coordinates of the centre of a pixel, or None if the image has no coordinates."""
        if self.transform is None:
            return None
        a, b, c, d, e, f = self.transform
        x, y = sample + 0.5, line + 0.5
        return a * x + b * y + c, d * x + e * y + f


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values are converted to when they are read: native byte order, floats of 32 or 64 bits."""
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype.newbyteorder("=")


def release(data: Any) -> None:
    """Drop the pages of a memory map that were read; otherwise they count as memory of this process."""
    mapped = getattr(data, "_mmap", None)
    if isinstance(mapped, mmap) and hasattr(mapped, "madvise"):
        import mmap as constants

        mapped.madvise(constants.MADV_DONTNEED)
