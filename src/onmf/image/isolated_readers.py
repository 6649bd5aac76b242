"""Readers of raster files. They run in a separate process (see onmf.io.isolate): no import from onmf."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def _opened(path: str, driver: str) -> Iterator[Any]:
    import rasterio

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(path, driver=driver) as file:
                yield file
    except rasterio.errors.RasterioError as error:
        raise ValueError(str(error.__cause__ or error)) from error


def describe_raster(path: str, driver: str) -> dict[str, Any]:
    """Read the metadata of a raster. Its values are read as ``physical`` ones if their bands have different scales."""
    with _opened(path, driver) as file:
        tags = [{key.lower(): value for key, value in file.tags(band).items()} for band in file.indexes]
        bands_per_block = file.count if str(file.profile.get("interleave", "")).lower() == "pixel" else 1
        block = max(lines * samples for lines, samples in file.block_shapes) * bands_per_block
        physical = len(set(file.scales)) > 1 or any(file.offsets) or not file.scales[0] > 0
        without_nodata = physical or file.nodata is None or np.isnan(file.nodata)
        return {
            "shape": [file.height, file.width, file.count],
            "dtype": np.dtype(np.float32 if physical else file.dtypes[0]).str,
            "physical": physical,
            "bytes": max(file.height * file.width * file.count, block) * np.dtype(file.dtypes[0]).itemsize,
            "wavelengths": [tag.get("wavelength") for tag in tags],
            "wavelength_unit": tags[0].get("wavelength_units", tags[0].get("wavelength_unit")),
            "band_names": [name or "" for name in file.descriptions] if any(file.descriptions) else None,
            "good_bands": [tag.get("bbl", "1") != "0" for tag in tags],
            "ignore_value": None if without_nodata else float(file.nodata),
            "scale": 1.0 if physical else float(file.scales[0]),
            "crs": file.crs.to_wkt() if file.crs else None,
            "transform": None if file.transform.is_identity else [float(part) for part in tuple(file.transform)[:6]],
        }


def read_raster(path: str, driver: str, physical: bool, start: int, stop: int) -> Any:
    """Read lines of a raster; physical values are float32, with NaN for no data. → (lines, samples, bands)"""
    with _opened(path, driver) as file:
        part = file.read(window=((start, stop), (0, file.width))).transpose(1, 2, 0)
        if not physical:
            return part
        return np.where(part == file.nodata, np.nan, part * file.scales + file.offsets).astype(np.float32)


def read_mask(path: str, driver: str, beside: str | None) -> Any:
    """Read the mask for all bands of a raster, from the .msk file beside it or its own; None if it has none."""
    from rasterio.enums import MaskFlags

    with _opened(path, driver) as file:
        if beside is not None:
            with _opened(beside, "GTiff") as other:
                flags = other.tags().get("INTERNAL_MASK_FLAGS_1", "0")
                if flags.isdecimal() and int(flags) & 2 and other.shape == file.shape:
                    return other.read(1) > 0
        masked = any(MaskFlags.per_dataset in flags for flags in file.mask_flag_enums)
        return file.dataset_mask() > 0 if masked else None
