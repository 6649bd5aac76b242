"""Writes results in standard formats: GeoTIFF, ENVI classification and spectral library, CSV, figures."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

try:
    import rasterio
except ImportError as error:
    raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'") from error

from onmf.divergence import Array
from onmf.door.write import files_of, write_table
from onmf.io.csv_file import csv_line
from onmf.plot import parts_of, pyplot

from .cube import Cube, Transform
from .figures import UNCHANGED_COLOUR
from .files import spectral
from .kind import IMAGE, ImageClusters
from .scenes import changes_table, folders_of


def write_files(clusters: ImageClusters, folder: Path) -> None:
    """Write maps, spectra and figures into a folder, or those of several scenes into a folder for each.

    In the maps, clusters have the numbers of the tables, and 0 is unassigned. The colour table is that of the figures.
    Names of classes are in the metadata of a GeoTIFF (``CLASS_1`` and so on) and, for GDAL and QGIS, in a file beside
    it.
    """
    if len(clusters.scenes) > 1:
        _write_scenes(clusters, folder)
        return
    cube, shown = clusters.cube, [*clusters.shown_numbers, 0]  # the last one is of pixels without a cluster
    every = range(max(shown) + 1)
    named = dict(zip(shown, [*clusters.names, "unassigned"], strict=True))
    coloured = dict(zip(shown, map(parts_of, clusters.colours()), strict=False))
    names, shades = [named.get(value, "") for value in every], [coloured.get(value, (0, 0, 0)) for value in every]
    dtype = np.uint8 if len(every) <= 256 else np.uint16
    labels, runners_up = (np.array(shown, dtype)[values] for values in (clusters.labels, clusters.runners_up))
    for name, values, text in (("map", labels, "cluster"), ("runner_up", runners_up, "runner-up")):
        _write_classes(folder / f"{name}.tif", cube, values, text, names, shades)
    for name in ("scales", "residuals", "margins", "confidence", "surprise"):
        _write_raster(folder / f"{name}.tif", cube, getattr(clusters, name)[None].astype(np.float32, copy=False), name)
    metadata: dict[str, Any] = {"description": f"Clusters of {cube.name}", "data ignore value": 0}
    if cube.crs is not None:
        metadata["coordinate system string"] = f"{{{rasterio.CRS.from_wkt(cube.crs).to_wkt(version='WKT1_ESRI')}}}"
    if cube.map_info is not None or cube.transform is not None:  # those of the source are written unchanged
        metadata["map info"] = cube.map_info or map_info(cube.transform, cube.crs)  # type: ignore[arg-type]
    spectral().save_classification(
        str(folder / "map.hdr"),
        labels,
        dtype=dtype,
        interleave="bsq",
        force=True,
        metadata=metadata,
        class_names=[clean(name) for name in names],
        class_colors=shades,
    )
    write_spectra(clusters, folder)
    for name, ax in (("map", clusters.plot_map()), ("spectra", clusters.plot_spectra())):
        for ending in ("png", "svg"):
            ax.figure.savefig(folder / f"{name}.{ending}", dpi=150)
        pyplot().close(ax.figure)


def _write_scenes(clusters: ImageClusters, folder: Path) -> None:
    """Write the files of each scene into a folder of its own, and what changed since the scene before."""
    cube: Any = clusters.cube
    folders = dict(zip(cube.names, folders_of(cube.names, [*files_of(IMAGE)]), strict=True))
    for name, scene in zip(cube.names, clusters.scenes, strict=True):
        (folder / folders[name]).mkdir()
        write_files(scene, folder / folders[name])
    colours = [*map(parts_of, clusters.colours())]
    for change in clusters.changes:
        names = ["unassigned", "unchanged", *(" to ".join(clusters.names[k] for k in pair) for pair in change.pairs)]
        shades = [(0, 0, 0), parts_of(UNCHANGED_COLOUR), *(colours[after] for _, after in change.pairs)]
        later = cube.scenes[cube.names.index(change.after)]
        _write_classes(folder / folders[change.after] / "change.tif", later, change.map, "change", names, shades)
    if clusters.changes:
        write_table(folder / "changes.csv", [changes_table(clusters)])


def write_most_likely(clusters: ImageClusters, folder: Path, n: int) -> None:
    """Write the most likely clusters of each pixel as GeoTIFF: for each a band, and one for its probability."""
    clusters = clusters.dense
    best, probabilities = clusters.most_likely(n)
    shown = np.array([*clusters.shown_numbers, np.nan], np.float32)
    bands = np.stack([shown[best], probabilities.astype(np.float32)], axis=-1).reshape(*best.shape[:2], -1)
    texts = [f"{name} {place + 1}" for place in range(best.shape[2]) for name in ("cluster", "probability")]
    _write_raster(folder / "most_likely.tif", clusters.cube, np.moveaxis(bands, -1, 0), *texts)


def _write_classes(path: Path, cube: Cube, values: Array, text: str, names: list[str], shades: list[Any]) -> None:
    """Write a map of classes as GeoTIFF, and the names of the classes beside it."""
    _write_raster(path, cube, values[None], text, classes=list(zip(names, shades, strict=True)))
    listed = "".join(f"<Category>{escape(name)}</Category>" for name in names)
    inner = f'<PAMRasterBand band="1"><CategoryNames>{listed}</CategoryNames></PAMRasterBand>'
    path.with_name(f"{path.name}.aux.xml").write_text(f"<PAMDataset>{inner}</PAMDataset>\n", "utf-8")


def _write_raster(path: Path, cube: Cube, bands: Array, *texts: str, classes: Sequence[tuple[str, Any]] = ()) -> None:
    """Write bands as GeoTIFF, with the coordinates of the cube: classes with their colours, or numbers.

    It is made in memory first: GDAL reports no error if the disk is full and the file is cut off.
    """
    form: dict[str, Any] = {"driver": "GTiff", "height": cube.shape[0], "width": cube.shape[1], "count": len(bands)}
    form |= {"dtype": bands.dtype, "nodata": 0 if classes else float("nan"), "compress": "deflate"}
    if cube.transform is not None:
        form["transform"] = rasterio.Affine(*cube.transform)
    if cube.crs is not None:
        form["crs"] = rasterio.CRS.from_wkt(cube.crs)
    with rasterio.MemoryFile() as memory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            opened = memory.open(**form)
        with opened as file:
            file.write(bands)
            for band, text in enumerate(texts, start=1):
                file.set_band_description(band, text)
            file.update_tags(1, **{f"CLASS_{value}": name for value, (name, _) in enumerate(classes) if name})
            if classes and bands.dtype == np.uint8:
                file.write_colormap(1, {i: (*shade, 255 if i else 0) for i, (_, shade) in enumerate(classes)})
        path.write_bytes(memory.getbuffer())


def map_info(transform: Transform, crs: str | None) -> list[str]:
    """ENVI's ``map info`` for a transform: the upper left corner, the pixel size, and the rotation."""
    a, b, c, d, e, f = transform
    sizes, rotation = (float(np.hypot(a, d)), float(np.hypot(b, e))), float(np.degrees(np.arctan2(d, a)))
    projection, rest = "Arbitrary", []
    if crs is not None:
        system = rasterio.CRS.from_wkt(crs)
        family, zone = divmod(system.to_epsg() or 0, 100)
        hemisphere = {326: "North", 327: "South"}.get(family)
        if hemisphere is not None and 1 <= zone <= 60:
            projection, rest = "UTM", [str(zone), hemisphere, "WGS-84", "units=Meters"]
        elif system.is_geographic:
            projection, rest = "Geographic Lat/Lon", ["WGS-84", "units=Degrees"]
    info = [projection, "1", "1", *(repr(float(value)) for value in (c, f, *sizes)), *rest]
    return info + ([f"rotation={rotation!r}"] if abs(rotation) > 1e-9 else [])


def clean(name: str) -> str:
    """Replace characters that a list in an ENVI header cannot contain."""
    return name.replace(",", ";").replace("{", "(").replace("}", ")")


def write_spectra(clusters: ImageClusters, folder: Path) -> None:
    """Write the spectra: a table with a row for each band and a column for each cluster, and an ENVI library."""
    waves, names = clusters.wavelengths, clusters.names
    written = None if waves is None else [f"{wave:.10g}" for wave in waves]
    columns = [["band", *np.flatnonzero(clusters.cube.good_bands) + 1], ["wavelength", *(written or [])]]
    values = [[name, *(f"{value:.9g}" for value in row)] for name, row in zip(names, clusters.spectra, strict=True)]
    rows = zip(*columns[: 2 if written else 1], *values, strict=True)
    (folder / "spectra.csv").write_text("".join(map(csv_line, rows)), "utf-8", newline="")
    header: dict[str, Any] = {"spectra names": [clean(name) for name in names]}
    if written:
        header |= {"wavelength": written, "wavelength units": clusters.cube.wavelength_unit or "Unknown"}
    spectra = clusters.spectra.astype(np.float32)
    library = spectral().SpectralLibrary(spectra, header)
    library.save(str(folder / "spectra"), f"Spectra of the clusters of {clusters.cube.name}")
    # Written a second time, because spectral reports no error if the disk is full.
    (folder / "spectra.sli").write_bytes(spectra.tobytes())
