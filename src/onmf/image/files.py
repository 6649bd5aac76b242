"""Reads hyperspectral images: ENVI, GeoTIFF, MATLAB, npy and npz files, NumPy arrays and xarray's DataArrays.

Values stay in the file where the format allows it. What a file claims is checked before memory is allocated. HDF5 and
raster files are read in a process of their own: see ``isolated_readers.py``.
"""

import math
import warnings
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets.readers import open_npz, read_matlab5
from onmf.divergence import Array, FloatArray
from onmf.io.isolate import Isolated
from onmf.io.isolated_readers import list_arrays, read_transposed
from onmf.io.limits import check_growth, npy_header
from onmf.io.rules import require
from onmf.warn import import_optional

from .cube import Cube, FileLines, IsolatedLines, Lines, PlaceError, Transform, call_reader
from .isolated_readers import describe_raster, read_mask, read_raster

LINES = ("y", "line", "lines", "row", "rows", "lat", "latitude", "northing", "height")
SAMPLES = ("x", "sample", "samples", "column", "columns", "col", "lon", "longitude", "easting", "width")
BANDS = ("band", "bands", "wavelength", "wavelengths", "lambda", "channel", "spectral", "wl", "energy")

SIGNATURES = {
    **{b"\x93NUMPY": "npy", b"PK": "npz", b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG"},
    **dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "GTiff"),
}
"""Format by the first bytes of a file. GDAL uses no other driver: some open further files or web addresses."""

NO_OTHER_FILES = {
    **{"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO", "GDAL_CACHEMAX": "256"},
    **{"CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}", "PROJ_NETWORK": "OFF"},
}
"""Settings with which GDAL opens only the given file: no files beside it, and no network."""

AXES = {"bsq": (1, 2, 0), "bil": (0, 2, 1), "bip": (0, 1, 2)}
"""Position of lines, samples and bands among the axes of an ENVI file, by interleave."""

MAX_BYTES = 10_000_000  # of an ENVI header
MAX_LINES = 50_000  # of an ENVI header: the time that spectral takes grows with their square
REAL_TYPES = ("1", "2", "3", "4", "5", "12", "13", "14", "15")  # ENVI data types; 6 and 9 are complex
EXTENSIONS = ("img", "dat", "raw", "bsq", "bil", "bip", "sli")  # of ENVI data

UTM = {
    **{("", "north"): 32600, ("", "south"): 32700, ("WGS84", "north"): 32600, ("WGS84", "south"): 32700},
    **{("NAD83", "north"): 26900, ("NORTHAMERICA1983", "north"): 26900},
    **{("NAD27", "north"): 26700, ("NORTHAMERICA1927", "north"): 26700},
}
"""EPSG codes of UTM zone 0 (add the zone), by datum and hemisphere."""

USUAL = ("V", "Y", "X", "cube", "data", "image")
"""Usual names of a cube in shared files, where it is a matrix of bands × pixels or has three dimensions."""

SIZES = (("nrow", "nrows", "lines", "height"), ("ncol", "ncols", "samples", "width"))
"""Usual names of the numbers of lines and samples, in lower case."""

WAVELENGTHS = ("wavelength", "wavelengths", "lambda", "wl")


def read(
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
        Pixels with a nonzero value are used; the others are unassigned. A path must lead to an image of one band, in
        any of the formats.
    drop_bands : array of int, optional
        Bands that are not used, counted from 0, in addition to those that the file marks as bad.
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
    >>> from onmf.image import read
    >>> read(np.ones((2, 3, 4)), drop_bands=[0])
    <Cube array: 2 lines × 3 samples × 4 bands (1 of them bad), float64>
    """
    if isinstance(source, Cube):
        cube = source
    elif isinstance(source, str | Path):
        cube = _read_file(Path(source), variable)
    elif hasattr(source, "dims") and hasattr(source, "coords"):
        cube = _from_data_array(source)
    elif isinstance(source, np.ndarray):
        cube = Cube(source, name="array", source="an array")
    else:
        raise TypeError(f"{type(source).__name__} is not an image: give a path, an array, a DataArray or a Cube.")
    if variable is not None:
        require(cube.variable, f"variable={variable!r}: {cube.source} has no variables. Leave the parameter out.")
    if ignore_value is not None:
        cube = replace(cube, ignore_value=float(ignore_value))
    if mask is not None:
        cube = replace(cube, mask=np.nan_to_num(read_plane(mask) if isinstance(mask, str | Path) else mask) != 0)
    good = np.ones(cube.shape[2], dtype=bool) if keep_bad_bands else cube.good_bands.copy()
    dropped = np.ravel(() if drop_bands is None else drop_bands)
    absent = dropped[(dropped < 0) | (dropped >= len(good))]
    if len(absent):
        raise PlaceError(
            *(
                f"There is no band {absent[0] + first} to drop: {cube.source} has bands {first} to "
                f"{len(good) - 1 + first}, counted from {first}."
                for first in (0, 1)
            )
        )
    good[dropped.astype(np.int64)] = False
    return replace(cube, good_bands=good)


def _read_file(path: Path, variable: str | None) -> Cube:
    kind = _format_of(path)
    if kind in ("matlab", "npz"):
        return cube_of_variables(_variables(path, kind), variable, path, bands_first=kind == "matlab")
    if kind == "npy":
        return Cube(_read_npy(path), name=path.stem, source=str(path))
    return read_envi(path) if kind == "envi" else _read_raster(path, kind)


def _format_of(path: Path, what: str = "the path of an image") -> str | None:
    """The format of a file, or the GDAL driver for it; None if it is not supported."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} {'is not a file' if path.exists() else 'does not exist'}: give {what}.")
    head, suffix = _head(path), path.suffix.lower()
    if suffix == ".hdr":
        return "envi"
    if suffix == ".mat" or head.startswith(b"MATLAB") or b"\x89HDF" in head:
        return "matlab"
    found = next((name for start, name in SIGNATURES.items() if head.startswith(start)), None)
    return found if found in ("npy", "npz", "GTiff") or find_header(path) is None else "envi"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(520)


def read_plane(path: str | Path) -> Array:
    """Read an image of one band, in any format, or the matrix of an npy, npz or MATLAB file. → (lines, samples)"""
    path = Path(path)
    kind = _format_of(path, "the path of an image of one band")
    if kind not in ("npy", "npz", "matlab"):
        cube = read(path, keep_bad_bands=True)
        require(cube.shape[2] == 1, f"{path} has {cube.shape[2]} bands: expected one.")
        return cube.read(0, cube.shape[0])[:, :, 0]
    planes = {name: value for name, value in _variables(path, kind).items() if _has_dimensions(value, 2)}
    require(len(planes) == 1, f"{path} has {len(planes)} numeric matrices ({', '.join(planes)}): expected one.")
    return next(iter(planes.values()))


def _variables(path: Path, kind: str) -> dict[str, Any]:
    """Read the variables of a MATLAB, npz or npy file."""
    if kind == "matlab":
        return read_variables(path)
    if kind == "npy":
        return {"the array": _read_npy(path)}
    try:
        with open_npz(path) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # damaged archives and array headers raise many kinds of errors
        raise ValueError(f"{path} cannot be read as npz: {error}") from error


def _read_npy(path: Path) -> Any:
    """Read the array of an npy file; a cube stays in the file."""
    with path.open("rb") as file:
        try:
            shape, fortran_order, dtype = npy_header(file, path.stat().st_size)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as npy: {error}.") from error
        require(dtype.kind in "buif", f"{path} has {dtype} values: real numbers are needed.")
        offset = file.tell()
    if len(shape) != 3:
        return np.load(path, allow_pickle=False)
    stored, axes = (shape[::-1], (2, 1, 0)) if fortran_order else (shape, (0, 1, 2))
    return FileLines(path, offset, dtype, stored, axes)


def _read_raster(path: Path, driver: str | None) -> Cube:
    """Open a GeoTIFF, PNG or JPEG. A separate process reads it, with its own GDAL settings."""
    supported = "ENVI (with its header), GeoTIFF, PNG, JPEG, MATLAB, npy and npz files"
    require(driver, f"{path} cannot be read. Supported are {supported}. Convert it, for example with gdal_translate.")
    if find_spec("rasterio") is None:
        raise ImportError("GeoTIFF files need rasterio: pip install 'onmf[image]'")
    reader = Isolated.for_file(path, environment=NO_OTHER_FILES)
    fields = call_reader(reader, path, describe_raster, driver)
    check_growth(str(path), fields.pop("bytes"), path.stat().st_size)
    shape, dtype, physical = tuple(fields.pop("shape")), np.dtype(fields.pop("dtype")), fields.pop("physical")
    beside = path.with_name(path.name + ".msk")
    has_mask = driver == "GTiff" and beside.is_file() and _format_of(beside) == "GTiff"
    fields["mask"] = call_reader(reader, path, read_mask, driver, str(beside.resolve()) if has_mask else None)
    fields["wavelengths"] = floats(fields["wavelengths"])
    fields["transform"] = tuple(fields["transform"]) if fields["transform"] else _world_file(path)
    data = IsolatedLines(reader, path, shape, dtype, read_raster, (driver, physical))
    return Cube(data, name=path.stem, source=str(path), **fields)


def _world_file(path: Path) -> Transform | None:
    """Read the transform from a world file beside an image: six lines, for the centre of the first pixel."""
    endings = (path.suffix[1:2] + path.suffix[-1:] + "w", path.suffix[1:] + "w", "wld")
    for beside in (path.with_suffix("." + ending) for ending in endings):
        if beside.is_file() and beside.stat().st_size < 10_000:
            numbers = floats(beside.read_text("utf-8", errors="replace").split())
            if numbers is not None and len(numbers) == 6 and np.isfinite(numbers).all():
                a, d, b, e, x, y = map(float, numbers)
                return a, b, x - a / 2 - b / 2, d, e, y - d / 2 - e / 2
    return None


def floats(words: list[Any]) -> FloatArray | None:
    """Return the numbers that the words begin with, or None if one is missing."""
    try:
        return np.array([float(str(word).split()[0]) for word in words])
    except (ValueError, IndexError):
        return None


def _from_data_array(array: Any) -> Cube:
    """Convert a DataArray, whose dimensions are recognized by their names."""
    order = [next((dim for dim in array.dims if str(dim).lower() in known), None) for known in (LINES, SAMPLES, BANDS)]
    if array.ndim == 3 and order.count(None) == 1:  # two names are known, so the third dimension is clear
        order[order.index(None)] = next(dim for dim in array.dims if dim not in order)
    require(
        array.ndim == 3 and None not in order,
        f"The DataArray has dimensions {array.dims}: it needs three, lines, samples and bands. Name them y, x and "
        "band.",
    )
    ordered = array.transpose(*order)
    lines, samples, bands = (ordered.coords.get(dim) for dim in order)
    named = bands if str(order[2]).lower() in BANDS[2:] else None
    waves = next((ordered.coords[key] for key in ("wavelength", "wavelengths") if key in ordered.coords), named)
    units = [coordinate.attrs.get("units") for coordinate in (waves, bands) if coordinate is not None]
    fill = ordered.attrs.get("_FillValue", ordered.encoding.get("_FillValue"))
    spatial = ordered.coords["spatial_ref"].attrs if "spatial_ref" in ordered.coords else {}
    return Cube(
        ordered.data,
        wavelengths=None if waves is None else np.asarray(waves, dtype=np.float64),
        wavelength_unit=next(filter(None, units), None),
        band_names=None if bands is None or bands.dtype.kind not in "UO" else [str(name) for name in bands.values],
        ignore_value=None if fill is None or np.isnan(fill) else float(fill),
        crs=spatial.get("crs_wkt", ordered.attrs.get("crs_wkt")),
        transform=_even_transform(samples, lines),
        name=str(array.name or "array"),
        source="a DataArray",
    )


def _even_transform(*axes: Any) -> Transform | None:
    """Return the transform of evenly spaced pixel centres, of samples and of lines; None if they are not."""
    if any(values is None or len(values) < 2 or values.dtype.kind not in "iuf" for values in axes):
        return None
    gaps = [np.diff(np.asarray(values, dtype=np.float64)) for values in axes]
    if any(gap[0] == 0 or np.ptp(gap) > 1e-6 * abs(gap[0]) for gap in gaps):
        return None
    (dx, x), (dy, y) = ((float(gap.mean()), float(values[0])) for gap, values in zip(gaps, axes, strict=True))
    return dx, 0.0, x - dx / 2, 0.0, dy, y - dy / 2


# ENVI: spectral parses the header; the data stay on disk.


def spectral() -> Any:
    """Import the ENVI module of spectral."""
    return import_optional("spectral.io.envi", "ENVI files need the package spectral", "image")


def find_header(path: Path) -> Path | None:
    """Return the header of an ENVI image, ``x.hdr`` or ``x.img.hdr``, given the header or the data file."""
    if path.suffix.lower() == ".hdr":
        return path
    names = [path.with_name(stem + end) for stem in (path.name, path.stem) for end in (".hdr", ".HDR")]
    return next((name for name in names if name.is_file()), None)


class Header(dict[str, Any]):
    """The fields of an ENVI header: strings and lists of strings."""

    def __init__(self, path: Path) -> None:
        envi = spectral()
        self.path = path
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        lines = text.count(b"\n") + text.count(b"\r")
        require(
            max(len(text) / MAX_BYTES, lines / MAX_LINES) <= 1, f"{path} is not an ENVI header: it is too long for one."
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # spectral warns about names in capitals, which are harmless
                super().__init__(envi.read_envi_header(str(path)))
        except Exception as error:  # spectral raises many kinds of errors for malformed lines
            reason = " ".join(str(error).split()) or "a list is not closed, or a line is malformed"
            raise ValueError(f"{path} cannot be read as an ENVI header: {reason}") from error

    @property
    def is_library(self) -> bool:
        """Whether the file holds spectra, not an image."""
        return "library" in str(self.get("file type", "")).lower()

    def numbers(self, key: str, n: int) -> FloatArray | None:
        """Return a list of n numbers, or None if it is missing."""
        if key not in self:
            return None
        words = self[key] if isinstance(self[key], list) else [self[key]]
        try:
            values = np.array([float(word) for word in words if word.strip()])
        except ValueError:
            raise ValueError(
                f"{self.path} says {key} = {', '.join(words)[:80]}: expected {'a number' if n == 1 else 'numbers'}."
            ) from None
        require(len(values) == n, f"{self.path} says {key} with {len(values)} entries: expected {n}.")
        return values

    def number(self, key: str, default: Any = None) -> Any:
        """Return a number, by default another one."""
        values = self.numbers(key, 1)
        return default if values is None else float(values[0])

    def integer(self, key: str, least: int) -> int:
        """Return an integer, by default ``least``."""
        value = self.number(key, float(least))
        valid = value.is_integer() and value >= least
        require(valid, f"{self.path} says {key} = {value:g}: expected an integer of at least {least}.")
        return int(value)

    def choice(self, key: str, choices: Any) -> str:
        """Return a word that must be one of some."""
        word = str(self[key]).lower()
        require(word in choices, f"{self.path} says {key} = {word}: it must be one of {', '.join(choices)}.")
        return word


def read_envi(path: Path) -> Cube:
    """Read an ENVI image; its data stay on disk."""
    header = Header(find_header(path) or path)
    require(not header.is_library, f"{header.path} is a spectral library, not an image: use it as truth.")
    data = open_data(header, path)
    bands = data.shape[2]
    crs, transform = _georeference(header)
    names = header.get("band names")
    factor, bad_bands = header.number("reflectance scale factor", 1.0), header.numbers("bbl", bands)
    require(0 < factor < np.inf, f"{header.path}: reflectance scale factor = {factor:g}: it must be greater than 0.")
    return Cube(
        data,
        wavelengths=header.numbers("wavelength", bands),
        wavelength_unit=str(header["wavelength units"]) if "wavelength units" in header else None,
        band_names=names if isinstance(names, list) and len(names) == bands else None,  # a name may contain commas
        good_bands=None if bad_bands is None else bad_bands != 0,  # type: ignore[arg-type]
        ignore_value=header.number("data ignore value"),
        scale=1.0 / factor,
        crs=crs,
        transform=transform,
        map_info=header["map info"] if isinstance(header.get("map info"), list) else None,
        name=data.path.name.split(".")[0],
        source=str(path),
    )


def open_data(header: Header, given: Path) -> FileLines:
    """Open the data of a header, and check their length; ``given`` is the header or the data file."""
    envi, path = spectral(), given
    if given == header.path:
        stem = given.with_suffix("")
        names = [stem.name, *(f"{stem.name}.{end}" for end in (*EXTENSIONS, *map(str.upper, EXTENSIONS)))]
        path = next((name for name in map(stem.with_name, names) if name.is_file()), given)
        if path == given:
            raise FileNotFoundError(
                f"{given} has no data file beside it: expected {stem.name}, alone or with .{', .'.join(EXTENSIONS)}. "
                "Give the path of the data file instead."
            )
    try:
        envi.check_compatibility(header)
    except Exception as error:  # a field is missing, or there are frame offsets
        raise ValueError(f"{header.path} cannot be used: {error}") from error
    samples, lines, bands = (header.integer(key, least=1) for key in ("samples", "lines", "bands"))
    offset, interleave = header.integer("header offset", least=0), header.choice("interleave", AXES)
    byte_order = "<>"[int(header.choice("byte order", ("0", "1")))]
    dtype = np.dtype(envi.envi_to_dtype[header.choice("data type", REAL_TYPES)]).newbyteorder(byte_order)
    needed, length = offset + samples * lines * bands * dtype.itemsize, path.stat().st_size
    require(
        length >= needed,
        f"{path} is too short: {header.path} says {lines} lines × {samples} samples × {bands} bands of "
        f"{dtype.itemsize} bytes after {offset}, which makes {needed:,} bytes, but the file has {length:,}. The header "
        "belongs to another file, or the data were cut off.",
    )
    stored = {"bsq": (bands, lines, samples), "bil": (lines, bands, samples), "bip": (lines, samples, bands)}
    return FileLines(path, offset, dtype, stored[interleave], AXES[interleave])


def _georeference(header: Header) -> tuple[str | None, Transform | None]:
    """Return the coordinate system and the transform, from ``map info`` and ``coordinate system string``."""
    info = header.get("map info")
    if not isinstance(info, list) or len(info) < 7:
        return _coordinate_system([], header), None
    rotation = next((word.split("=")[1] for word in info if word.lower().startswith("rotation=")), "0")
    numbers = floats([*info[1:7], rotation])
    if numbers is None or not np.isfinite(numbers).all():
        return None, None
    column, line, x, y, dx, dy, degrees = map(float, numbers)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # The reference pixel is counted from 1 and refers to the upper left corner. Rotation is counterclockwise.
    a, b, d, e = dx * cos, dy * sin, dx * sin, -dy * cos
    left, above = column - 1, line - 1
    return _coordinate_system(info, header), (a, b, x - a * left - b * above, d, e, y - d * left - e * above)


def _coordinate_system(info: list[str], header: Header) -> str | None:
    """Return the coordinate system as well-known text, if rasterio is installed and understands it."""
    if find_spec("rasterio") is None:
        return None
    import rasterio

    from_epsg, words = rasterio.CRS.from_epsg, [*info, *[""] * 10]
    datum = words[9].replace("-", "").replace(" ", "").upper()
    base = UTM.get((datum, words[8].lower())) if words[0].upper() == "UTM" else None
    if base is not None and words[7].isdecimal() and 1 <= int(words[7]) <= 60:
        # Takes precedence over the coordinate system string, which is malformed in some files.
        return from_epsg(base + int(words[7])).to_wkt()
    text = header.get("coordinate system string")
    if text:
        with suppress(rasterio.errors.CRSError):
            system = rasterio.CRS.from_wkt((",".join(text) if isinstance(text, list) else text).strip("{} "))
            code = system.to_epsg()
            return (system if code is None else from_epsg(code)).to_wkt()
    elif words[0].lower().startswith("geographic") and "WGS84" in "".join(words).replace("-", "").upper():
        return from_epsg(4326).to_wkt()
    return None


# MATLAB files of version 5 (read by SciPy) and 7.3 (read by h5py), and how a cube is found among variables


def read_variables(path: Path) -> dict[str, Any]:
    """Read the numeric variables of a MATLAB file, axes in MATLAB's order; cubes of version 7.3 stay in the file."""
    head = _head(path)
    if b"MATLAB 7.3" not in head[:128] and b"\x89HDF" not in head:
        with suppress(NotImplementedError):  # SciPy raises this for files of version 7.3
            return read_matlab5(path)
    if find_spec("h5py") is None:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'onmf[image]'")
    reader = Isolated.for_file(path)
    content = call_reader(reader, path, list_arrays)
    sizes = [math.prod(about["shape"]) * np.dtype(about["dtype"]).itemsize for about in content.values()]
    check_growth(str(path), max(sum(sizes), *(about["chunk"] for about in content.values()), 0), path.stat().st_size)
    return {
        name: IsolatedLines(reader, path, (*about["shape"][::-1],), np.dtype(about["dtype"]), read_transposed, (name,))
        if len(about["shape"]) == 3
        else call_reader(reader, path, read_transposed, name)
        for name, about in content.items()
    }


def cube_of_variables(content: dict[str, Any], variable: str | None, path: Path, *, bands_first: bool) -> Cube:
    """Find the cube among the variables of a file. A matrix is bands × pixels, in MATLAB's order, or pixels × bands."""
    arrays = {name: value for name, value in content.items() if _has_dimensions(value, 2, 3)}
    listed = ", ".join(f"{name} {'×'.join(map(str, value.shape))}" for name, value in arrays.items())
    holds = f"It holds {listed or 'nothing of two or three dimensions'}."
    require(variable in (None, *arrays), f"{path} has no numeric cube or matrix {variable!r}. {holds}")
    cubes = [name for name, value in arrays.items() if len(value.shape) == 3]
    name = variable or next((name for name in USUAL if name in arrays), cubes[0] if len(cubes) == 1 else None)
    if name is None:
        raise ValueError(
            f"{path} has {'more than one' if cubes else 'no'} array of three dimensions, and no "
            f"{', '.join(USUAL[:3])}: name the variable that is the cube (variable=, or --variable). {holds}"
        )
    value = content[name] if name in cubes else _unfold(content[name], content, name, path, bands_first)
    waves: Any = next((content[key] for key in content if key.lower() in WAVELENGTHS), None)
    wavelengths = waves.astype(np.float64).ravel() if _is_numeric(waves) and waves.size == value.shape[2] else None
    num, den = (_number(content.get(key, np.ones(1))) for key in ("scale_num", "scale_den"))
    require(num > 0 and den > 0, f"{path}: scale_num and scale_den must be numbers greater than 0.")
    return Cube(value, wavelengths=wavelengths, scale=num / den, name=path.stem, source=str(path), variable=name)


def _has_dimensions(value: Any, *numbers: int) -> bool:
    """Whether the value is a numeric array with one of these numbers of dimensions; a matrix is no vector."""
    if not (isinstance(value, Lines) or _is_numeric(value)):
        return False
    return len(value.shape) in numbers and (len(value.shape) != 2 or min(value.shape) > 1)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "buif"


def _unfold(matrix: Array, content: dict[str, Any], name: str, path: Path, bands_first: bool) -> Array:
    """View a matrix of pixels as a cube; pixels run along the lines, or down the columns, as in MATLAB."""
    candidates = (matrix.T, matrix) if bands_first else (matrix, matrix.T)
    side = round(math.sqrt(len(candidates[0])))
    keys = {key.lower(): key for key in content}
    found = (next((keys[key] for key in usual if key in keys), None) for usual in SIZES)
    rows, columns = (side if key is None else _size(content[key], f"{path}: {key}") for key in found)
    pixels = next((pixels for pixels in candidates if len(pixels) == rows * columns), None)
    if pixels is None:
        raise ValueError(
            f"{path}: {name} has shape {matrix.shape}, and {len(candidates[0])} pixels are not {rows} × {columns}: the "
            "file needs nRow and nCol with the size of the image (height and width, in npz files)."
        )
    by_lines = str(content.get("order", "F" if bands_first else "C")) == "C"
    return pixels.reshape(rows, columns, -1) if by_lines else pixels.reshape(columns, rows, -1).transpose(1, 0, 2)


def _number(value: Any) -> float:
    """Return the number that a variable holds; NaN if it is not a single number."""
    return float(value.item()) if _is_numeric(value) and value.size == 1 else math.nan


def _size(value: Any, where: str) -> int:
    """Return the number of lines or samples that a variable holds."""
    size = _number(value)
    whole = size.is_integer() and size >= 1
    require(whole, f"{where} is not a number of lines or samples: expected an integer of at least 1.")
    return int(size)
