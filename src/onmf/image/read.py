"""One reader for what people have: ENVI, GeoTIFF, MATLAB, npy, npz, arrays and xarray's DataArrays."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray

from .cube import Cube, Lines, Transform
from .envi import find_header, read_envi
from .matlab import choose, read_matlab

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
    """Read a hyperspectral image. What can stay on disk stays there until it is needed.

    Parameters
    ----------
    source : path, array, xarray.DataArray or Cube
        An ENVI image (its header or its data; ``x.hdr`` or ``x.img.hdr``), a GeoTIFF or whatever else rasterio opens, a
        MATLAB file (5 or 7.3), an npy or npz file; an array of lines × samples × bands; a DataArray, whose dimensions
        are told by their names.
    variable : str, optional
        Which variable of a MATLAB or npz file is the cube. By default ``V``, ``Y`` or ``X``, or the only array of three
        dimensions.
    mask : path or (lines, samples) array, optional
        Pixels to use: those that are not zero. A path is an image of one band in any of the formats.
    drop_bands : array of int, optional
        Bands to leave out, counted from 0, besides those that the file marks as bad.
    keep_bad_bands : bool, default=False
        Whether to use the bands that the file marks as bad.
    ignore_value : float, optional
        The value that marks pixels without data, instead of the file's own.

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
        raise TypeError(f"{type(source).__name__} is no image: give a path, an array, a DataArray or a Cube.")
    if variable is not None and cube.variable is None:
        raise ValueError(f"variable={variable!r}: {cube.source} has no variables to choose from. Leave it out.")
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
        return _npy(path)
    if head.startswith(b"PK"):
        return _npz(path, variable)
    if not head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")) and find_header(path) is not None:
        return read_envi(path)
    return _raster(path)


def _npy(path: Path) -> Cube:
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as npy: {error}") from error
    return Cube(data, name=path.stem, source=str(path))


def _npz(path: Path, variable: str | None) -> Cube:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if {"X", "height", "width"} <= set(file.files) and variable in (None, "X"):
                X, order = file["X"], str(file["order"]) if "order" in file else "C"
                height, width = int(file["height"]), int(file["width"])
                if X.shape[0] != height * width:
                    raise ValueError(f"X has {X.shape[0]} rows, which are not {height} × {width} pixels.")
                size = (height, width) if order == "C" else (width, height)
                cube = X.reshape(*size, -1).transpose((0, 1, 2) if order == "C" else (1, 0, 2))
                scale = float(file["scale_num"] / file["scale_den"]) if "scale_num" in file else 1.0
                return Cube(cube, scale=scale, name=path.stem, source=str(path), variable="X")
            content = {name: file[name] for name in file.files}
        name = choose(content, variable, str(path))
        known = content.get("wavelengths", content.get("wavelength"))
        if content[name].ndim != 3:
            raise ValueError(f"{name} has shape {content[name].shape}: lines × samples × bands are expected.")
        return Cube(content[name], wavelengths=known, name=path.stem, source=str(path), variable=name)
    except (OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as npz: {error}") from error


class RasterLines(Lines):
    """A raster that rasterio opens, read by windows; in float32 where bands have scales or offsets of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opened(path) as file:
            self.shape = (file.height, file.width, file.count)
            types = {np.dtype(dtype) for dtype in file.dtypes}
            if any(dtype.kind not in "buif" for dtype in types):
                raise ValueError(f"{path} holds {', '.join(map(str, types))} values: real numbers are needed.")
            self.dtype = np.result_type(*types)
            self.scales, self.offsets = np.array(file.scales), np.array(file.offsets)
            self.plain = bool(np.ptp(self.scales) == 0 and not self.offsets.any() and self.scales[0] > 0)
            if not self.plain:
                self.dtype = np.dtype(np.float32)

    def read(self, start: int, stop: int) -> Array:
        with _opened(self.path) as file:
            part = file.read(window=((start, stop), (0, self.shape[1])), out_dtype=None if self.plain else np.float64)
            if not self.plain:
                empty = np.zeros(part.shape, dtype=bool) if file.nodata is None else part == file.nodata
                part = part * self.scales[:, None, None] + self.offsets[:, None, None]
                part[empty] = np.nan
                part = part.astype(np.float32)
        return part.transpose(1, 2, 0)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning, RasterioError, RasterioIOError
    except ImportError as error:
        raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path) as file:
                yield file
    except (RasterioError, RasterioIOError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}. ENVI (with its header), GeoTIFF, MATLAB, npy and npz files can."
        ) from error


def _raster(path: Path) -> Cube:
    data = RasterLines(path)
    with _opened(path) as file:
        from rasterio.enums import MaskFlags

        tags = [{key.lower(): value for key, value in file.tags(band).items()} for band in file.indexes]
        own_mask = any(MaskFlags.per_dataset in flags for flags in file.mask_flag_enums)
        transform = tuple(file.transform)[:6]
        described = [name or "" for name in file.descriptions]
        return Cube(
            data,
            wavelengths=_floats([tag.get("wavelength") for tag in tags]),
            wavelength_unit=tags[0].get("wavelength_units", tags[0].get("wavelength_unit")),
            band_names=described if any(described) else None,
            good_bands=np.array([tag.get("bbl", "1") != "0" for tag in tags]),
            mask=file.dataset_mask() > 0 if own_mask else None,
            ignore_value=None if file.nodata is None or not data.plain or np.isnan(file.nodata) else float(file.nodata),
            scale=float(data.scales[0]) if data.plain else 1.0,
            crs=file.crs.to_wkt() if file.crs else None,
            transform=None if file.transform.is_identity else transform,
            name=path.stem,
            source=str(path),
        )


def _floats(words: list[Any]) -> FloatArray | None:
    """Numbers that words begin with, or None where one is missing."""
    try:
        return np.array([float(str(word).split()[0]) for word in words])
    except (ValueError, IndexError):
        return None


class ArrayLines(Lines):
    """A DataArray that is computed by lines, such as one that Dask holds."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.array[start:stop].values)


def _data_array(array: Any) -> Cube:
    """A DataArray as a cube: its dimensions are told by their names."""
    if array.ndim != 3:
        raise ValueError(f"The DataArray has dimensions {array.dims}: three are needed, lines, samples and bands.")
    order = [next((dim for dim in array.dims if str(dim).lower() in known), None) for known in (LINES, SAMPLES, BANDS)]
    if order.count(None) == 1:  # the one that is left
        order[order.index(None)] = next(dim for dim in array.dims if dim not in order)
    if None in order:
        raise ValueError(
            f"The DataArray has dimensions {array.dims}, and it cannot be told which are lines, samples and bands: "
            "rename them to y, x and band."
        )
    turned = array.transpose(*order)
    lines, samples, bands = (turned.coords[dim].values if dim in turned.coords else None for dim in order)
    wavelengths = next(
        (turned.coords[key].values for key in ("wavelength", "wavelengths") if key in turned.coords), None
    )
    if wavelengths is None and bands is not None and str(order[2]).lower() in BANDS[2:]:
        wavelengths = bands
    unit = None
    for key in ("wavelength", "wavelengths", order[2]):
        if key in turned.coords and unit is None:
            unit = turned.coords[key].attrs.get("units")
    fill = turned.attrs.get("_FillValue", turned.encoding.get("_FillValue"))
    wkt = turned.attrs.get("crs_wkt")
    if "spatial_ref" in turned.coords:
        wkt = turned.coords["spatial_ref"].attrs.get("crs_wkt", wkt)
    band_names = None if bands is None or bands.dtype.kind not in "UO" else [str(name) for name in bands]
    values = turned.data
    return Cube(
        values if isinstance(values, np.ndarray) else ArrayLines(turned),
        wavelengths=None if wavelengths is None else np.asarray(wavelengths, dtype=np.float64),
        wavelength_unit=unit,
        band_names=band_names,
        ignore_value=None if fill is None or np.isnan(fill) else float(fill),
        crs=wkt,
        transform=_even(lines, samples),
        name=str(array.name or "array"),
        source="a DataArray",
    )


def _even(lines: Array | None, samples: Array | None) -> Transform | None:
    """The transform of evenly spaced pixel centres."""
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
    """A mask as an array of the size of the cube."""
    if isinstance(mask, str | Path):
        mask = read_plane(Path(mask))
    values = np.asarray(mask)
    if values.shape != cube.shape[:2]:
        raise ValueError(
            f"The mask has shape {values.shape}, but {cube.source} has {cube.shape[0]} lines × {cube.shape[1]} samples."
        )
    return np.nan_to_num(values) != 0


def read_plane(path: Path) -> Array:
    """An image of one band, of any format, or a matrix of an npy, npz or MATLAB file. → (lines, samples)"""
    with path.open("rb") as file:
        head = file.read(520)
    content: dict[str, Any] | None = None
    if head.startswith(b"\x93NUMPY"):
        content = {"it": np.load(path, allow_pickle=False)}
    elif head.startswith(b"PK"):
        with np.load(path, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
    elif head.startswith(b"MATLAB") or b"\x89HDF" in head:
        from .matlab import read_variables

        content = read_variables(path)
    if content is not None:
        planes = {
            name: value
            for name, value in content.items()
            if isinstance(value, np.ndarray) and min(value.shape, default=0) > 1
        }
        planes = {name: value for name, value in planes.items() if value.ndim == 2 and value.dtype.kind in "buif"}
        if len(planes) != 1:
            raise ValueError(f"{path} holds {len(planes)} matrices of numbers ({', '.join(planes)}): one is expected.")
        return next(iter(planes.values()))
    cube = read_cube(path, keep_bad_bands=True)
    if cube.shape[2] != 1:
        raise ValueError(f"{path} has {cube.shape[2]} bands: one is expected.")
    return cube.read(0, cube.shape[0])[:, :, 0]
