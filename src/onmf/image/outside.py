"""Readers of HDF5 and raster files. They run in a separate process (see onmf.io.isolate): no import from onmf."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def list_hdf5(path: str) -> dict[str, Any]:
    """List the numeric arrays at the root of an HDF5 file: shape, type, and bytes of a chunk."""
    import h5py

    arrays: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        for name in file:
            if _is_link(file, name):
                raise ValueError(f"{name} is a link to another object or file: links are not followed.")
            if file.get(name, getclass=True) is not h5py.Dataset:
                continue
            value = file[name]
            _no_other_file(value)
            if value.shape is not None and value.dtype.kind in "buif":
                chunk = int(np.prod(value.chunks or (0,), dtype=object)) * value.dtype.itemsize
                arrays[name] = [list(value.shape), value.dtype.str, chunk]
    return arrays


def read_hdf5(path: str, name: str, start: int | None, stop: int | None) -> Any:
    """Read an array of an HDF5 file, or the part of its last axis from ``start`` to ``stop``."""
    import h5py

    with h5py.File(path, "r") as file:
        if _is_link(file, name):
            raise ValueError(f"{name} became a link: the file changed while it was read.")
        value = file[name]
        _no_other_file(value)
        return np.asarray(value[()] if start is None else value[..., start:stop])


def _is_link(file: Any, name: str) -> bool:
    """Whether a name is a soft or external link. ``file.get(name, getlink=True)`` would open its target."""
    from h5py import h5l

    return bool(file.id.links.get_info(name.encode()).type != h5l.TYPE_HARD)


def _no_other_file(value: Any) -> None:
    """Refuse an array whose values are in other files."""
    if value.is_virtual or value.external:
        raise ValueError(
            f"{value.name} keeps its values in another file, which is not opened. Copy them into this one."
        )


@contextmanager
def _opened(path: str, driver: str) -> Iterator[Any]:
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path, driver=driver) as file:
                yield file
    except RasterioError as error:
        raise ValueError(str(error.__cause__ or error)) from error


def describe_raster(path: str, driver: str) -> dict[str, Any]:
    """Read the metadata of a raster."""
    with _opened(path, driver) as file:
        tags = [{key.lower(): value for key, value in file.tags(band).items()} for band in file.indexes]
        lines, samples = max(file.block_shapes, key=lambda shape: shape[0] * shape[1])
        bands_per_block = file.count if str(file.profile.get("interleave", "")).lower() == "pixel" else 1
        return {
            "shape": [file.height, file.width, file.count],
            "types": [str(dtype) for dtype in file.dtypes],
            "block": lines * samples * bands_per_block,
            "scales": [float(scale) for scale in file.scales],
            "offsets": [float(offset) for offset in file.offsets],
            "wavelengths": [tag.get("wavelength") for tag in tags],
            "unit": tags[0].get("wavelength_units", tags[0].get("wavelength_unit")),
            "good": [tag.get("bbl", "1") != "0" for tag in tags],
            "names": [name or "" for name in file.descriptions],
            "nodata": None if file.nodata is None else float(file.nodata),
            "crs": file.crs.to_wkt() if file.crs else None,
            "transform": None if file.transform.is_identity else [float(part) for part in tuple(file.transform)[:6]],
        }


def read_raster(path: str, driver: str, start: int, stop: int) -> Any:
    """Read lines of a raster. → (bands, lines, samples)"""
    with _opened(path, driver) as file:
        return file.read(window=((start, stop), (0, file.width)))


def read_mask(path: str, driver: str) -> Any:
    """Read the mask that a raster has for all its bands; None if it has none. → (lines, samples)"""
    from rasterio.enums import MaskFlags

    with _opened(path, driver) as file:
        has_mask = any(MaskFlags.per_dataset in flags for flags in file.mask_flag_enums)
        return file.dataset_mask() > 0 if has_mask else None


def read_mask_beside(path: str) -> Any:
    """Read the mask in the .msk file beside a GeoTIFF; None if it is not for all bands. → (lines, samples)"""
    with _opened(path, "GTiff") as file:
        flags = file.tags().get("INTERNAL_MASK_FLAGS_1", "0")
        return file.read(1) > 0 if flags.isdecimal() and int(flags) & 2 else None
