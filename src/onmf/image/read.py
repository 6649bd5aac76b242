"""Reads hyperspectral images: ENVI, GeoTIFF, MATLAB, npy and npz files, NumPy arrays and xarray's DataArrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_growth, check_zip_growth

from .cube import Cube, Lines, Transform
from .envi import find_header, read_envi
from .matlab import as_row, as_size, choose, read_matlab, read_variables
from .outside import describe_raster, read_mask, read_mask_beside, read_raster
from .plain import open_npy, read_npy

LINES = ("y", "line", "lines", "row", "rows", "lat", "latitude", "northing", "height")
SAMPLES = ("x", "sample", "samples", "column", "columns", "col", "lon", "longitude", "easting", "width")
BANDS = ("band", "bands", "wavelength", "wavelengths", "lambda", "channel", "spectral", "wl", "energy")


def read_cube(
    source: Any,
    *,
    variable: str | None = None,
    mask: Any = None,
    drop_bands: Any = None,
    keep_bad_bands: bool = False,
    ignore_value: float | None = None,
) -> Cube:
    """Read a hyperspectral image. Values stay on disk until they are needed, if the format allows it.

    Parameters
    ----------
    source : path, array, xarray.DataArray or Cube
        An ENVI image (its header or its data; ``x.hdr`` or ``x.img.hdr``), a GeoTIFF (or PNG or JPEG), a MATLAB file (5
        or 7.3), an npy or npz file; an array of lines × samples × bands; a DataArray, whose dimensions are recognized
        by their names.
    variable : str, optional
        Name of the variable of a MATLAB or npz file that is the cube. By default ``V``, ``Y`` or ``X``, or the only
        array of three dimensions.
    mask : path or (lines, samples) array, optional
        Pixels with a nonzero value are used. A path must lead to an image of one band, in any of the formats.
    drop_bands : array of int, optional
        Bands to leave out, counted from 0, in addition to those that the file marks as bad.
    keep_bad_bands : bool, default=False
        Whether to use the bands that the file marks as bad.
    ignore_value : float, optional
        The value that marks pixels without data; it replaces the file's own.

    Returns
    -------
    Cube

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.image import read_cube
    >>> read_cube(np.ones((2, 3, 4)), drop_bands=[0])
    <Cube array: 2 lines × 3 samples × 4 bands (1 of them bad), float64>
    """
    if isinstance(source, Cube):
        cube = source
    elif isinstance(source, str | Path):
        cube = _read_file(Path(source), variable)
    elif hasattr(source, "dims") and hasattr(source, "coords"):
        cube = _data_array(source)
    elif isinstance(source, np.ndarray):
        cube = Cube(source, name="array", source="an array")
    else:
        raise TypeError(f"{type(source).__name__} is not an image: give a path, an array, a DataArray or a Cube.")
    if variable is not None and cube.variable is None:
        raise ValueError(f"variable={variable!r}: {cube.source} has no variables. Leave the parameter out.")
    good = np.ones(cube.shape[2], dtype=bool) if keep_bad_bands else cube.good_bands.copy()
    if drop_bands is not None:
        numbers = np.atleast_1d(np.asarray(drop_bands, dtype=np.int64))
        outside = numbers[(numbers < 0) | (numbers >= len(good))]
        if len(outside):
            raise ValueError(f"drop_bands names band {outside[0]}, but {cube.source} has bands 0 to {len(good) - 1}.")
        good[numbers] = False
    return replace(
        cube,
        good_bands=good,
        mask=cube.mask if mask is None else _mask(mask, cube),
        ignore_value=cube.ignore_value if ignore_value is None else float(ignore_value),
    )


def _read_file(path: Path, variable: str | None) -> Cube:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of an image.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder: give the path of an image in it.")
    with path.open("rb") as file:
        head = file.read(520)
    if path.suffix.lower() == ".hdr":
        return read_envi(path)
    if head.startswith((b"MATLAB", b"\x89HDF")) or b"\x89HDF" in head or path.suffix.lower() == ".mat":
        return read_matlab(path, variable)
    if head.startswith(b"\x93NUMPY"):
        return Cube(open_npy(path), name=path.stem, source=str(path))
    if head.startswith(b"PK"):
        return _npz(path, variable)
    if driver_of(path) != "GTiff" and find_header(path) is not None:
        return read_envi(path)
    return _raster(path)


def _npz(path: Path, variable: str | None) -> Cube:
    content = read_npz(path)
    if {"X", "height", "width"} <= set(content) and variable in (None, "X"):
        return _scene(content, path)
    name = choose(content, variable, str(path))
    if content[name].ndim != 3:
        raise ValueError(f"{path}: {name} has shape {content[name].shape}: expected lines × samples × bands.")
    wavelengths = as_row(content.get("wavelengths", content.get("wavelength")))
    return Cube(content[name], wavelengths=wavelengths, name=path.stem, source=str(path), variable=name)


def read_npz(path: Path) -> dict[str, Any]:
    """Read the arrays of an npz file."""
    with path.open("rb") as raw:
        check_zip_growth(raw, str(path))
        try:
            with np.load(raw, allow_pickle=False) as file:
                members = {name: file[name] for name in file.files}
            return {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
        except Exception as error:  # damaged archives and array headers raise many kinds of errors
            raise ValueError(f"{path} cannot be read as npz: {error}") from error


def _scene(content: dict[str, Any], path: Path) -> Cube:
    """Convert a matrix of pixels with the size of the image, as in the npz files of the data sets."""
    X = content["X"]
    height, width = (as_size(content[key], f"{path}: {key}") for key in ("height", "width"))
    if X.ndim != 2 or X.shape[0] != height * width:
        raise ValueError(f"{path}: X has shape {X.shape}, which is not {height} × {width} pixels by bands.")
    order, scale = str(content.get("order", "C")), 1.0
    size = (height, width) if order == "C" else (width, height)
    cube = X.reshape(*size, X.shape[1]).transpose((0, 1, 2) if order == "C" else (1, 0, 2))
    if {"scale_num", "scale_den"} <= set(content):
        num, den = as_row(content["scale_num"]), as_row(content["scale_den"])
        if num is None or den is None or not (len(num) == len(den) == 1 and num[0] > 0 and den[0] > 0):
            raise ValueError(f"{path}: scale_num and scale_den must be numbers greater than 0.")
        scale = float(num[0] / den[0])
    return Cube(cube, scale=scale, name=path.stem, source=str(path), variable="X")


DRIVERS = {b"II*\0": "GTiff", b"MM\0*": "GTiff", b"II+\0": "GTiff", b"MM\0+": "GTiff"}
DRIVERS |= {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG"}
"""GDAL driver by the first bytes of a file. No other driver is used: some open further files or web addresses."""

NO_OTHER_FILES = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_PAM_ENABLED": "NO",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",
    "GDAL_CACHEMAX": "256",
    "PROJ_NETWORK": "OFF",
}
"""Settings with which GDAL opens only the given file: no files beside it, and no network."""


class RasterLines(Lines):
    """A raster that GDAL reads in windows. Values are float32 if the scales or offsets of the bands differ.

    A separate process reads it, with its own GDAL settings: no side files and no network.

    Parameters
    ----------
    path : path
        The file.
    driver : str
        Name of the GDAL driver.
    """

    def __init__(self, path: Path, driver: str) -> None:
        if find_spec("rasterio") is None:
            raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'")
        self.path, self.driver, length = path, driver, path.stat().st_size
        self.reader = Isolated.for_file(path, environment=NO_OTHER_FILES)
        self.metadata = self.call(describe_raster, self.driver)
        lines, samples, bands = self.metadata["shape"]
        self.shape = (lines, samples, bands)
        types = sorted(set(self.metadata["types"]))
        if any(name.startswith("complex") for name in types):
            raise ValueError(f"{path} has {', '.join(types)} values: real numbers are needed.")
        self.dtype = np.result_type(*types)
        check_growth(str(path), max(math.prod(self.shape), self.metadata["block"]) * self.dtype.itemsize, length)
        self.scales, self.offsets = np.array(self.metadata["scales"]), np.array(self.metadata["offsets"])
        self.plain = bool(np.ptp(self.scales) == 0 and not self.offsets.any() and self.scales[0] > 0)
        if not self.plain:
            self.dtype = np.dtype(np.float32)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the reader process; its errors become a sentence that names the file."""
        try:
            return self.reader(function, str(self.path.resolve()), *arguments)
        except (ReaderEnded, ImportError):
            raise
        except Exception as error:
            raise ValueError(f"{self.path} cannot be read: {str(error).rstrip('.')}. {READABLE}") from error

    def read(self, start: int, stop: int) -> Array:
        part = self.call(read_raster, self.driver, start, stop)
        if part.shape != (self.shape[2], stop - start, self.shape[1]):
            raise ValueError(f"{self.path} changed while it was read: try again when no program writes to it.")
        if not self.plain:
            nodata = self.metadata["nodata"]
            missing = np.zeros(part.shape, dtype=bool) if nodata is None else part == nodata
            part = part.astype(np.float64) * self.scales[:, None, None] + self.offsets[:, None, None]
            part[missing] = np.nan
            part = part.astype(np.float32)
        return part.transpose(1, 2, 0)

    def mask(self) -> Array | None:
        """Read the mask for all bands, from the .msk file that GDAL writes or from this file. → (lines, samples)"""
        beside = self.path.with_name(self.path.name + ".msk")
        if self.driver == "GTiff" and beside.is_file() and driver_of(beside) == "GTiff":
            raster = RasterLines(beside, "GTiff")
            mask = raster.call(read_mask_beside) if raster.shape[:2] == self.shape[:2] else None
            if mask is not None:
                return mask
        return self.call(read_mask, self.driver)


READABLE = "Supported are ENVI (with its header), GeoTIFF, PNG, JPEG, MATLAB, npy and npz files."


def driver_of(path: Path) -> str | None:
    """Return the GDAL driver for a file, from its first bytes; None if the format is not supported."""
    with path.open("rb") as file:
        head = file.read(4)
    return next((driver for start, driver in DRIVERS.items() if head.startswith(start)), None)


def _raster(path: Path) -> Cube:
    driver = driver_of(path)
    if driver is None:
        raise ValueError(f"{path} cannot be read. {READABLE} Convert it to GeoTIFF, for example with gdal_translate.")
    data = RasterLines(path, driver)
    metadata = data.metadata
    nodata, names = metadata["nodata"], metadata["names"]
    return Cube(
        data,
        wavelengths=_floats(metadata["wavelengths"]),
        wavelength_unit=metadata["unit"],
        band_names=names if any(names) else None,
        good_bands=np.array(metadata["good"]),
        mask=data.mask(),
        ignore_value=None if nodata is None or not data.plain or np.isnan(nodata) else nodata,
        scale=float(data.scales[0]) if data.plain else 1.0,
        crs=metadata["crs"],
        transform=_world_file(path) if metadata["transform"] is None else tuple(metadata["transform"]),
        name=path.stem,
        source=str(path),
    )


def _world_file(path: Path) -> Transform | None:
    """Read the transform from a world file beside an image: six lines, for the centre of the first pixel."""
    short = path.suffix[1:2] + path.suffix[-1:] + "w"
    for ending in (short, path.suffix[1:] + "w", "wld"):
        beside = path.with_suffix("." + ending)
        if beside.is_file() and beside.stat().st_size < 10_000:
            numbers = _floats(beside.read_text("utf-8", errors="replace").split())
            if numbers is not None and len(numbers) == 6 and np.isfinite(numbers).all():
                a, d, b, e, x, y = map(float, numbers)
                return a, b, x - a / 2 - b / 2, d, e, y - d / 2 - e / 2
    return None


def _floats(words: list[Any]) -> FloatArray | None:
    """Return the numbers that the words begin with, or None if one is missing."""
    try:
        return np.array([float(str(word).split()[0]) for word in words])
    except (ValueError, IndexError):
        return None


class ArrayLines(Lines):
    """A DataArray that is computed line by line, for example one backed by Dask."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, start: int, stop: int) -> Array:
        return np.array(self.array[start:stop].values)


def _data_array(array: Any) -> Cube:
    """Convert a DataArray, whose dimensions are recognized by their names."""
    if array.ndim != 3:
        raise ValueError(f"The DataArray has dimensions {array.dims}: it needs three, lines, samples and bands.")
    order = [next((dim for dim in array.dims if str(dim).lower() in known), None) for known in (LINES, SAMPLES, BANDS)]
    if order.count(None) == 1:  # two names are known, so the third dimension is clear
        order[order.index(None)] = next(dim for dim in array.dims if dim not in order)
    if None in order:
        raise ValueError(
            f"The DataArray has dimensions {array.dims}, and it is not clear which are lines, samples and bands: "
            "rename them to y, x and band."
        )
    ordered = array.transpose(*order)
    lines, samples, bands = (ordered.coords[dim].values if dim in ordered.coords else None for dim in order)
    wavelengths = next(
        (ordered.coords[key].values for key in ("wavelength", "wavelengths") if key in ordered.coords), None
    )
    if wavelengths is None and bands is not None and str(order[2]).lower() in BANDS[2:]:
        wavelengths = bands
    unit = None
    for key in ("wavelength", "wavelengths", order[2]):
        if key in ordered.coords and unit is None:
            unit = ordered.coords[key].attrs.get("units")
    fill = ordered.attrs.get("_FillValue", ordered.encoding.get("_FillValue"))
    wkt = ordered.attrs.get("crs_wkt")
    if "spatial_ref" in ordered.coords:
        wkt = ordered.coords["spatial_ref"].attrs.get("crs_wkt", wkt)
    band_names = None if bands is None or bands.dtype.kind not in "UO" else [str(name) for name in bands]
    values = ordered.data
    return Cube(
        values if isinstance(values, np.ndarray) else ArrayLines(ordered),
        wavelengths=None if wavelengths is None else np.asarray(wavelengths, dtype=np.float64),
        wavelength_unit=unit,
        band_names=band_names,
        ignore_value=None if fill is None or np.isnan(fill) else float(fill),
        crs=wkt,
        transform=_even_transform(lines, samples),
        name=str(array.name or "array"),
        source="a DataArray",
    )


def _even_transform(lines: Array | None, samples: Array | None) -> Transform | None:
    """Return the transform of evenly spaced pixel centres, or None if they are not."""
    steps = []
    for values in (samples, lines):
        if values is None or len(values) < 2 or values.dtype.kind not in "iuf":
            return None
        gaps = np.diff(values.astype(np.float64))
        if gaps[0] == 0 or np.ptp(gaps) > 1e-6 * abs(gaps[0]):
            return None
        steps.append((float(gaps.mean()), float(values[0])))
    (dx, x), (dy, y) = steps
    return dx, 0.0, x - dx / 2, 0.0, dy, y - dy / 2


def _mask(mask: Any, cube: Cube) -> Array:
    """Return a mask as an array, and check that it has the size of the cube."""
    if isinstance(mask, str | Path):
        mask = read_plane(Path(mask))
    values = np.asarray(mask)
    if values.shape != cube.shape[:2]:
        raise ValueError(
            f"The mask has shape {values.shape}, but {cube.source} has {cube.shape[0]} lines × {cube.shape[1]} samples."
        )
    return np.nan_to_num(values) != 0


def read_plane(path: Path) -> Array:
    """Read an image of one band, in any format, or the matrix of an npy, npz or MATLAB file. → (lines, samples)"""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of an image of one band.")
    with path.open("rb") as file:
        head = file.read(520)
    content: dict[str, Any] | None = None
    if head.startswith(b"\x93NUMPY"):
        content = {"the array": read_npy(path)}
    elif head.startswith(b"PK"):
        content = read_npz(path)
    elif head.startswith(b"MATLAB") or b"\x89HDF" in head:
        content = read_variables(path)
    if content is not None:
        planes = {
            name: value
            for name, value in content.items()
            if isinstance(value, np.ndarray) and min(value.shape, default=0) > 1
        }
        planes = {name: value for name, value in planes.items() if value.ndim == 2 and value.dtype.kind in "buif"}
        if len(planes) != 1:
            raise ValueError(f"{path} has {len(planes)} numeric matrices ({', '.join(planes)}): expected one.")
        return next(iter(planes.values()))
    cube = read_cube(path, keep_bad_bands=True)
    if cube.shape[2] != 1:
        raise ValueError(f"{path} has {cube.shape[2]} bands: expected one.")
    return cube.read(0, cube.shape[0])[:, :, 0]
