"""Writes results in standard formats: GeoTIFF, ENVI classification and spectral library, CSV, figures."""

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
from onmf.palette import parts_of

from .cube import Cube, Transform
from .envi import spectral
from .figures import colours, plot_map, plot_spectra
from .kind import IMAGE

if TYPE_CHECKING:
    from .result import ImageClustering

OURS = (
    *("map.tif", "map.tif.aux.xml", "map.hdr", "map.img", "scales.tif", "residuals.tif", "margins.tif"),
    *("confidence.tif", "runner_up.tif", "runner_up.tif.aux.xml"),
    *("spectra.csv", "spectra.hdr", "spectra.sli", "map.png", "map.svg", "spectra.png", "spectra.svg"),
    *("model.onmf", "summary.json", "report.html"),
)
"""Names of the files that we write; ``force`` replaces a folder only if it has no others."""

Classes = tuple[Array, list[str], list[tuple[int, int, int]]]
"""A map of classes, and a name and a colour for each."""

OUTSIDE = "no data"
"""Name of class 0 of a map, which holds the pixels outside."""


def write_files(clustering: ImageClustering, folder: Path) -> None:
    """Write maps, spectra, figures, the model and a summary into a folder."""
    from .result import image_parts

    write_map_geotiff(clustering, folder / "map.tif")
    write_map_envi(clustering, folder / "map.hdr")
    write_runners_up(clustering, folder / "runner_up.tif")
    for name in ("scales", "residuals", "margins", "confidence"):
        write_plane(getattr(clustering, name), clustering.cube, folder / f"{name}.tif", name)
    write_spectra_csv(clustering, folder / "spectra.csv")
    write_library(clustering, folder / "spectra")
    write_figures(clustering, folder)
    clustering.model.save(folder / "model.onmf", extra=image_parts(clustering))
    (folder / "summary.json").write_text(json.dumps(summary(clustering), indent=1, ensure_ascii=False) + "\n", "utf-8")


def summary(clustering: ImageClustering) -> dict[str, Any]:
    """Return the results in numbers, for ``summary.json``."""
    lines, samples, bands = clustering.cube.shape
    record: dict[str, Any] = {
        "image": clustering.cube.source,
        "lines": lines,
        "samples": samples,
        "bands": bands,
        "used_bands": int(clustering.cube.good_bands.sum()),
        "clusters": [
            {"cluster": value, "value": value, "name": name, "pixels": int(size)}
            for value, (name, size) in enumerate(zip(clustering.names, clustering.sizes, strict=True), IMAGE.first)
        ],
        "outside": int(np.count_nonzero(clustering.labels < 0)),
        "iterations": clustering.model.n_iter_,
        "objective": clustering.model.reconstruction_err_,
        "notes": clustering.notes,
    }
    if clustering.selection is not None:
        record["selection"] = clustering.selection.record()
    if clustering.comparison is not None:
        record["mrsa"] = clustering.comparison.mrsa
        if clustering.comparison.scores is not None:
            record |= clustering.comparison.scores.numbers()
        if clustering.comparison.spectra is not None:
            record["mrsa_by_material"] = {
                clustering.names[cluster]: float(angle)
                for cluster, angle in zip(
                    clustering.comparison.spectra.permutation, clustering.comparison.spectra.angles, strict=True
                )
            }
    return record


def classes(clustering: ImageClustering, labels: Array | None = None) -> Classes:
    """Return the map as files store it (0 outside, clusters from 1), and a name and a colour for each class.

    ``labels`` replaces the clusters of the pixels.
    """
    k = len(clustering.spectra)
    values = (clustering.labels if labels is None else labels) + IMAGE.first
    shades = [parts_of(colour) for colour in colours(clustering.names)]
    return values.astype(np.uint8 if k < 256 else np.uint16), [OUTSIDE, *clustering.names], [(0, 0, 0), *shades]


def write_map_geotiff(clustering: ImageClustering, path: Path) -> None:
    """Write the map as a GeoTIFF of one band with a colour table; 0 means no data.

    The names of the classes are in its metadata (``CLASS_1`` and so on) and, for GDAL and QGIS, in a file beside it.
    """
    _write_classes(classes(clustering), clustering.cube, path, "cluster")


def write_runners_up(clustering: ImageClustering, path: Path) -> None:
    """Write the best other cluster of each pixel in the same way; 0 also means that there is none."""
    _write_classes(classes(clustering, clustering.runners_up), clustering.cube, path, "runner-up")


def _write_classes(found: Classes, cube: Cube, path: Path, description: str) -> None:
    values, names, shades = found
    with _raster(path, cube, values.dtype, 0) as file:
        file.write(values, 1)
        file.set_band_description(1, description)
        file.update_tags(1, **{f"CLASS_{value}": name for value, name in enumerate(names)})
        if values.dtype == np.uint8:
            file.write_colormap(1, {value: (*shade, 255 if value else 0) for value, shade in enumerate(shades)})
    listed = "".join(f"<Category>{escape(name)}</Category>" for name in names)
    path.with_name(path.name + ".aux.xml").write_text(
        f'<PAMDataset><PAMRasterBand band="1"><CategoryNames>{listed}</CategoryNames></PAMRasterBand></PAMDataset>\n',
        "utf-8",
    )


def write_plane(values: Array, cube: Cube, path: Path, name: str) -> None:
    """Write a map of numbers as a GeoTIFF of one band; NaN means no data."""
    with _raster(path, cube, np.dtype(np.float32), float("nan")) as file:
        file.write(values.astype(np.float32, copy=False), 1)
        file.set_band_description(1, name)


@contextmanager
def _raster(path: Path, cube: Cube, dtype: Any, nodata: float) -> Iterator[Any]:
    """Open a GeoTIFF of one band for writing, with the coordinates of the cube.

    It is made in memory first: GDAL reports no error if the disk is full and the file is cut off.
    """
    try:
        import rasterio
        from rasterio.errors import NotGeoreferencedWarning
        from rasterio.io import MemoryFile
    except ImportError as error:
        raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'") from error
    import warnings

    georeference = {} if cube.transform is None else {"transform": rasterio.Affine(*cube.transform)}
    if cube.crs is not None:
        georeference["crs"] = rasterio.CRS.from_wkt(cube.crs)
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
                **georeference,
            )
        with opened as file:
            yield file
        path.write_bytes(memory.getbuffer())


def write_map_envi(clustering: ImageClustering, path: Path) -> None:
    """Write the map as an ENVI classification, with class names and colours, and the coordinates of the cube."""
    values, names, shades = classes(clustering)
    metadata: dict[str, Any] = {"description": f"Clusters of {clustering.cube.name}", "data ignore value": 0}
    metadata |= coordinates(clustering.cube)
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
    """Return the ENVI header fields for the coordinates: those of the source, or made from transform and system."""
    fields: dict[str, Any] = {}
    if cube.crs is not None:
        from rasterio.crs import CRS

        fields["coordinate system string"] = "{" + CRS.from_wkt(cube.crs).to_wkt(version="WKT1_ESRI") + "}"
    if cube.map_info is not None:
        fields["map info"] = cube.map_info
    elif cube.transform is not None:
        fields["map info"] = map_info(cube.transform, cube.crs)
    return fields


def map_info(transform: Transform, crs: str | None) -> list[str]:
    """Return ENVI's ``map info`` for a transform: the upper left corner, the pixel size, and the rotation."""
    a, b, c, d, e, f = transform
    dx, dy = float(np.hypot(a, d)), float(np.hypot(b, e))
    rotation = float(np.degrees(np.arctan2(d, a)))
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
    return info + ([f"rotation={rotation!r}"] if abs(rotation) > 1e-9 else [])


def clean(name: str) -> str:
    """Replace characters that a list in an ENVI header cannot contain."""
    return name.replace(",", ";").replace("{", "(").replace("}", ")")


def write_spectra_csv(clustering: ImageClustering, path: Path) -> None:
    """Write the spectra as a table with a row for each band and a column for each cluster."""
    waves = clustering.wavelengths
    numbers = np.flatnonzero(clustering.cube.good_bands) + 1
    head = ["band"] + ([] if waves is None else ["wavelength"]) + clustering.names
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(csv_line(head))
        for band, number in enumerate(numbers):
            wave = [] if waves is None else [f"{waves[band]:.10g}"]
            file.write(csv_line([number, *wave, *(f"{value:.9g}" for value in clustering.spectra[:, band])]))


def write_library(clustering: ImageClustering, path: Path) -> None:
    """Write the spectra as an ENVI spectral library: ``path.hdr`` and ``path.sli``."""
    header: dict[str, Any] = {"spectra names": [clean(name) for name in clustering.names]}
    if clustering.wavelengths is not None:
        header["wavelength"] = [f"{wave:.10g}" for wave in clustering.wavelengths]
        header["wavelength units"] = clustering.cube.wavelength_unit or "Unknown"
    library = spectral().SpectralLibrary(clustering.spectra.astype(np.float32), header)
    library.save(str(path), f"Spectra of the clusters of {clustering.cube.name}")
    # Written a second time, because spectral reports no error if the disk is full.
    path.with_suffix(".sli").write_bytes(clustering.spectra.astype(np.float32).tobytes())


def write_figures(clustering: ImageClustering, folder: Path) -> None:
    """Write the figures of the map and of the spectra as PNG and SVG."""
    import matplotlib.pyplot as plt

    for name, plot in (("map", plot_map), ("spectra", plot_spectra)):
        ax = plot(clustering)
        for ending in ("png", "svg"):
            ax.figure.savefig(folder / f"{name}.{ending}", dpi=150)
        plt.close(ax.figure)
