"""Results as files that other programs read: GeoTIFF, ENVI classification and spectral library, CSV, figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np

from onmf.divergence import Array
from onmf.io.csv_file import csv_line

from .cube import Cube, Transform
from .envi import spectral
from .figures import colours, plot_map, plot_spectra

if TYPE_CHECKING:
    from .cluster import ImageClustering

OURS = (
    *("map.tif", "map.tif.aux.xml", "map.hdr", "map.img", "scales.tif", "residuals.tif", "margins.tif"),
    *("spectra.csv", "spectra.hdr", "spectra.sli", "map.png", "map.svg", "spectra.png", "spectra.svg"),
    *("model.onmf", "summary.json", "report.html"),
)
"""What a folder of ours may hold."""

OUTSIDE = "no data"
"""Name of class 0 of a map: the pixels outside."""


def write_files(found: ImageClustering, folder: Path) -> None:
    """Write maps, spectra, figures, the model and a summary into a folder."""
    from .cluster import image_parts

    write_map_geotiff(found, folder / "map.tif")
    write_map_envi(found, folder / "map.hdr")
    for name in ("scales", "residuals", "margins"):
        write_plane(getattr(found, name), found.cube, folder / f"{name}.tif", name)
    write_spectra_csv(found, folder / "spectra.csv")
    write_library(found, folder / "spectra")
    write_figures(found, folder)
    found.model.save(folder / "model.onmf", extra=image_parts(found))
    (folder / "summary.json").write_text(json.dumps(summary(found), indent=1, ensure_ascii=False) + "\n", "utf-8")


def summary(found: ImageClustering) -> dict[str, Any]:
    """What was found, in numbers, for other programs."""
    lines, samples, bands = found.cube.shape
    record: dict[str, Any] = {
        "image": found.cube.source,
        "lines": lines,
        "samples": samples,
        "bands": bands,
        "used_bands": int(found.cube.good_bands.sum()),
        "clusters": [
            {"value": k + 1, "name": name, "pixels": int(size)}
            for k, (name, size) in enumerate(zip(found.names, found.sizes, strict=True))
        ],
        "outside": int(np.count_nonzero(found.labels < 0)),
        "iterations": found.model.n_iter_,
        "objective": found.model.reconstruction_err_,
        "notes": found.notes,
    }
    if found.comparison is not None:
        record["mrsa"], record["accuracy"] = found.comparison.mrsa, found.comparison.accuracy
        if found.comparison.spectra is not None:
            record["mrsa_by_material"] = {
                found.names[cluster]: float(angle)
                for cluster, angle in zip(
                    found.comparison.spectra.permutation, found.comparison.spectra.angles, strict=True
                )
            }
    return record


def classes(found: ImageClustering) -> tuple[Array, list[str], list[tuple[int, int, int]]]:
    """The map as files have it: 0 outside, cluster k as k + 1; with a name and a colour for each class."""
    k = len(found.spectra)
    values = (found.labels + 1).astype(np.uint8 if k < 256 else np.uint16)
    shades = [tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in colours(found.names)]
    return values, [OUTSIDE, *found.names], [(0, 0, 0), *shades]  # type: ignore[list-item]


def write_map_geotiff(found: ImageClustering, path: Path) -> None:
    """The map as a GeoTIFF of one band with a colour table, 0 being no data.

    The names of the classes are in its metadata (``CLASS_1`` and so on) and, for GDAL and QGIS, beside it.
    """
    values, names, shades = classes(found)
    with _raster(path, found.cube, values.dtype, 0) as file:
        file.write(values, 1)
        file.set_band_description(1, "cluster")
        file.update_tags(1, **{f"CLASS_{value}": name for value, name in enumerate(names)})
        if values.dtype == np.uint8:
            file.write_colormap(1, {value: (*shade, 255 if value else 0) for value, shade in enumerate(shades)})
    listed = "".join(f"<Category>{escape(name)}</Category>" for name in names)
    path.with_name(path.name + ".aux.xml").write_text(
        f'<PAMDataset><PAMRasterBand band="1"><CategoryNames>{listed}</CategoryNames></PAMRasterBand></PAMDataset>\n',
        "utf-8",
    )


def write_plane(values: Array, cube: Cube, path: Path, name: str) -> None:
    """A map of numbers as a GeoTIFF of one band, NaN being no data."""
    with _raster(path, cube, np.dtype(np.float32), float("nan")) as file:
        file.write(values.astype(np.float32, copy=False), 1)
        file.set_band_description(1, name)


@contextmanager
def _raster(path: Path, cube: Cube, dtype: Any, nodata: float) -> Iterator[Any]:
    """A GeoTIFF to write one band to, with the coordinates of the cube.

    It is made in memory: GDAL does not tell when a disk is full and the file is cut off.
    """
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
        from rasterio.io import MemoryFile
    except ImportError as error:
        raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'") from error
    import warnings

    where = {} if cube.transform is None else {"transform": rasterio.Affine(*cube.transform)}
    if cube.crs is not None:
        where["crs"] = rasterio.CRS.from_wkt(cube.crs)
    with MemoryFile() as memory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            opened = memory.open(
                driver="GTiff",
                height=cube.shape[0],
                width=cube.shape[1],
                count=1,
                dtype=dtype,
                nodata=nodata,
                compress="deflate",
                **where,
            )
        with opened as file:
            yield file
        path.write_bytes(memory.getbuffer())


def write_map_envi(found: ImageClustering, path: Path) -> None:
    """The map as an ENVI classification, with class names and colours, and the coordinates of the cube."""
    values, names, shades = classes(found)
    metadata: dict[str, Any] = {"description": f"Clusters of {found.cube.name}", "data ignore value": 0}
    metadata |= coordinates(found.cube)
    spectral().save_classification(
        str(path),
        values,
        dtype=values.dtype,
        interleave="bsq",
        force=True,
        metadata=metadata,
        class_names=[clean(name) for name in names],
        class_colors=shades,
    )


def coordinates(cube: Cube) -> dict[str, Any]:
    """Where an image lies, in ENVI's words: its own if it came from ENVI, else made from transform and system."""
    words: dict[str, Any] = {}
    if cube.crs is not None:
        from rasterio.crs import CRS

        words["coordinate system string"] = "{" + CRS.from_wkt(cube.crs).to_wkt(version="WKT1_ESRI") + "}"
    if cube.map_info is not None:
        words["map info"] = cube.map_info
    elif cube.transform is not None:
        words["map info"] = map_info(cube.transform, cube.crs)
    return words


def map_info(transform: Transform, crs: str | None) -> list[str]:
    """ENVI's ``map info`` for a transform: the upper left corner, the size of a pixel, and a rotation."""
    a, b, c, d, e, f = transform
    dx, dy = float(np.hypot(a, d)), float(np.hypot(b, e))
    turn = float(np.degrees(np.arctan2(d, a)))
    projection, rest = "Arbitrary", []
    if crs is not None:
        from rasterio.crs import CRS

        system = CRS.from_wkt(crs)
        code = system.to_epsg() or 0
        if code // 100 in (326, 327) and 1 <= code % 100 <= 60:
            projection, rest = (
                "UTM",
                [str(code % 100), "North" if code // 100 == 326 else "South", "WGS-84", "units=Meters"],
            )
        elif system.is_geographic:
            projection, rest = "Geographic Lat/Lon", ["WGS-84", "units=Degrees"]
    info = [projection, "1", "1", *(repr(float(value)) for value in (c, f, dx, dy)), *rest]
    return info + ([f"rotation={turn!r}"] if abs(turn) > 1e-9 else [])


def clean(name: str) -> str:
    """A name that a list of an ENVI header can hold."""
    return name.replace(",", ";").replace("{", "(").replace("}", ")")


def write_spectra_csv(found: ImageClustering, path: Path) -> None:
    """The spectra as a table: bands down, clusters across."""
    waves = found.wavelengths
    numbers = np.flatnonzero(found.cube.good_bands) + 1
    head = ["band"] + ([] if waves is None else ["wavelength"]) + found.names
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(csv_line(head))
        for place, number in enumerate(numbers):
            at = [] if waves is None else [f"{waves[place]:.10g}"]
            file.write(csv_line([number, *at, *(f"{value:.9g}" for value in found.spectra[:, place])]))


def write_library(found: ImageClustering, path: Path) -> None:
    """The spectra as an ENVI spectral library: ``path.hdr`` and ``path.sli``."""
    header: dict[str, Any] = {"spectra names": [clean(name) for name in found.names]}
    if found.wavelengths is not None:
        header["wavelength"] = [f"{wave:.10g}" for wave in found.wavelengths]
        header["wavelength units"] = found.cube.wavelength_unit or "Unknown"
    library = spectral().SpectralLibrary(found.spectra.astype(np.float32), header)
    library.save(str(path), f"Spectra of the clusters of {found.cube.name}")
    # Once more, since that does not tell when a disk is full.
    path.with_suffix(".sli").write_bytes(found.spectra.astype(np.float32).tobytes())


def write_figures(found: ImageClustering, folder: Path) -> None:
    """Map and spectra as PNG and SVG."""
    import matplotlib.pyplot as plt

    for name, plot in (("map", plot_map), ("spectra", plot_spectra)):
        ax = plot(found)
        for ending in ("png", "svg"):
            ax.figure.savefig(folder / f"{name}.{ending}", dpi=150)
        plt.close(ax.figure)
