"""ENVI files: checks the header before allocating memory, and leaves the data on disk."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray

from .cube import Cube, Transform
from .plain import AXES, FileLines

TYPES = {"1": "u1", "2": "i2", "3": "i4", "4": "f4", "5": "f8", "12": "u2", "13": "u4", "14": "i8", "15": "u8"}
"""NumPy type of each ENVI data type; 6 and 9 are complex."""

MAX_BYTES = 10_000_000
"""Largest header, in bytes."""

MAX_LINES = 50_000
"""Most lines of a header: the time that spectral takes grows with their square."""

NEEDED = ("samples", "lines", "bands", "data type", "interleave", "byte order")

EXTENSIONS = (
    "",
    ".img",
    ".dat",
    ".raw",
    ".bsq",
    ".bil",
    ".bip",
    ".sli",
    ".IMG",
    ".DAT",
    ".RAW",
    ".BSQ",
    ".BIL",
    ".BIP",
)


def spectral() -> Any:
    """Import the ENVI module of spectral."""
    try:
        import spectral.io.envi as envi
    except ImportError as error:
        raise ImportError("ENVI files need the package spectral: pip install 'onmf[image]'") from error
    return envi


def find_header(path: Path) -> Path | None:
    """Return the header of an ENVI image, ``x.hdr`` or ``x.img.hdr``, given the header or the data file."""
    if path.suffix.lower() == ".hdr":
        return path if path.is_file() else None
    names = [path.with_name(path.name + end) for end in (".hdr", ".HDR")]
    names += [path.with_suffix(end) for end in (".hdr", ".HDR")]
    return next((name for name in names if name.is_file()), None)


def find_data(header: Path, given: Path) -> Path:
    """Return the data file of a header; ``given`` is the path that the user gave, the header or the data file."""
    if given != header:
        return given
    stem = header.with_suffix("")
    candidates = [stem.with_name(stem.name + end) for end in EXTENSIONS]
    data = next((path for path in candidates if path.is_file()), None)
    if data is None:
        raise FileNotFoundError(
            f"{header} has no data file beside it: expected {stem.name}, alone or with .img, .dat, .raw, .bsq, .bil or "
            ".bip. Give the path of the data file instead."
        )
    return data


def read_header(path: Path) -> dict[str, Any]:
    """Read a header with spectral; values are strings and lists of strings."""
    envi = spectral()
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES or text.count(b"\n") + text.count(b"\r") > MAX_LINES:
        raise ValueError(f"{path} is not an ENVI header: it is too long for one.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # spectral warns about names in capitals, which are harmless
            return envi.read_envi_header(str(path))
    except Exception as error:  # spectral raises many kinds of errors for malformed lines
        reason = " ".join(str(error).split()) or "a list is not closed, or a line is malformed"
        raise ValueError(f"{path} cannot be read as an ENVI header: {reason}") from error


def read_envi(path: Path) -> Cube:
    """Read an ENVI image; its data stay on disk."""
    header_path = find_header(path)
    if header_path is None:
        raise FileNotFoundError(f"{path} has no header: expected {path.name}.hdr or {path.stem}.hdr beside it.")
    header = read_header(header_path)
    where = str(header_path)
    if "library" in str(header.get("file type", "")).lower():
        raise ValueError(f"{where} is a spectral library, not an image: use it as truth, or give an image.")
    data_path = find_data(header_path, path)
    data = open_data(header, where, data_path)
    bands = data.shape[2]
    crs, transform = georeference(header)
    factor = number(header, "reflectance scale factor", where)
    if factor is not None and not 0 < factor < np.inf:
        raise ValueError(f"{where} says reflectance scale factor = {factor:g}: it must be greater than 0.")
    return Cube(
        data,
        wavelengths=numbers(header, "wavelength", bands, where),
        wavelength_unit=str(header["wavelength units"]) if "wavelength units" in header else None,
        band_names=names(header, "band names", bands),
        good_bands=good_bands(header, bands, where),
        ignore_value=number(header, "data ignore value", where),
        scale=1.0 if factor is None else 1.0 / factor,
        crs=crs,
        transform=transform,
        map_info=header["map info"] if isinstance(header.get("map info"), list) else None,
        name=data_path.name.split(".")[0],
        source=str(path),
    )


def open_data(header: dict[str, Any], where: str, path: Path) -> FileLines:
    """Open the data file that a header describes, and check that it is long enough. The data stay on disk."""
    if missing := [key for key in NEEDED if key not in header]:
        raise ValueError(f"{where} lacks {', '.join(map(repr, missing))}: the data cannot be read without it.")
    samples, lines, bands = (whole(header, key, where, least=1) for key in ("samples", "lines", "bands"))
    offset = whole(header, "header offset", where, least=0) if "header offset" in header else 0
    kind = str(header["data type"])
    if kind in ("6", "9"):
        raise ValueError(
            f"{where} says data type = {kind}, complex numbers: real numbers are needed, for example magnitudes."
        )
    if kind not in TYPES:
        raise ValueError(f"{where} says data type = {kind}, which is not an ENVI type: use {', '.join(TYPES)}.")
    order = str(header["byte order"])
    if order not in ("0", "1"):
        raise ValueError(f"{where} says byte order = {order}: it must be 0 (little endian) or 1 (big endian).")
    interleave = str(header["interleave"]).lower()
    if interleave not in AXES:
        raise ValueError(f"{where} says interleave = {interleave}: it must be bsq, bil or bip.")
    if any(
        whole(header, key, where, least=0) for key in ("major frame offsets", "minor frame offsets") if key in header
    ):
        raise ValueError(f"{where} has frame offsets, which are not supported: save the image without them.")
    dtype = np.dtype(TYPES[kind]).newbyteorder("<" if order == "0" else ">")
    needed, length = offset + samples * lines * bands * dtype.itemsize, path.stat().st_size
    if length < needed:
        raise ValueError(
            f"{path} is too short: {where} says {lines} lines × {samples} samples × {bands} bands of "
            f"{dtype.itemsize} bytes after {offset}, which makes {needed:,} bytes, but the file has {length:,}. The "
            "header belongs to another file, or the data were cut off."
        )
    shape = {"bsq": (bands, lines, samples), "bil": (lines, bands, samples), "bip": (lines, samples, bands)}[interleave]
    return FileLines(path, offset, dtype, shape, AXES[interleave])


def whole(header: dict[str, Any], key: str, where: str, least: int) -> int:
    """Return an integer of the header."""
    word = header[key]
    try:
        value = int(str(word[0] if isinstance(word, list) and len(word) == 1 else word))
    except ValueError:
        raise ValueError(f"{where} says {key} = {word}: expected an integer.") from None
    if value < least:
        raise ValueError(f"{where} says {key} = {value}: it must be at least {least}.")
    if value > 2**48:
        raise ValueError(f"{where} says {key} = {value}: no file is that large.")
    return value


def number(header: dict[str, Any], key: str, where: str) -> float | None:
    """Return a number of the header, or None if it is missing."""
    if key not in header:
        return None
    try:
        return float(str(header[key]).strip("{}[]' "))
    except ValueError:
        raise ValueError(f"{where} says {key} = {header[key]}: expected a number.") from None


def numbers(header: dict[str, Any], key: str, n: int, where: str) -> FloatArray | None:
    """Return a list of n numbers of the header, or None if it is missing."""
    if key not in header:
        return None
    words = header[key] if isinstance(header[key], list) else [header[key]]
    words = [word for word in words if word.strip()]
    try:
        values = np.array([float(word) for word in words])
    except ValueError:
        raise ValueError(f"{where}: the list {key} has an entry that is not a number.") from None
    if len(values) != n:
        raise ValueError(f"{where} says bands = {n}, but its list {key} has {len(values)} entries.")
    return values


def names(header: dict[str, Any], key: str, n: int) -> list[str] | None:
    """Return a list of n names of the header; None if it is missing, or if commas in names changed its length."""
    words = header.get(key)
    return words if isinstance(words, list) and len(words) == n else None


def good_bands(header: dict[str, Any], bands: int, where: str) -> Array:
    """Return the good bands of the bad-band list (1 good, 0 bad); all bands are good if there is no list."""
    values = numbers(header, "bbl", bands, where)
    return np.ones(bands, dtype=bool) if values is None else values != 0


def georeference(header: dict[str, Any]) -> tuple[str | None, Transform | None]:
    """Return the coordinate system and the transform, from ``map info`` and ``coordinate system string``."""
    info = header.get("map info")
    if not isinstance(info, list) or len(info) < 7:
        return system_of(None, header), None
    rotation = next((word.split("=")[1] for word in info if word.lower().startswith("rotation=")), "0")
    try:
        column, line, x, y, dx, dy, degrees = (float(word) for word in (*info[1:7], rotation))
    except ValueError:
        return None, None
    if not np.isfinite([column, line, x, y, dx, dy, degrees]).all():
        return None, None
    angle = np.deg2rad(degrees)
    cos, sin = float(np.cos(angle)), float(np.sin(angle))
    # The reference pixel is counted from 1 and refers to the upper left corner. Rotation is counterclockwise.
    a, b, d, e = dx * cos, dy * sin, dx * sin, -dy * cos
    c = x - a * (column - 1) - b * (line - 1)
    f = y - d * (column - 1) - e * (line - 1)
    return system_of(info, header), (a, b, c, d, e, f)


def system_of(info: list[str] | None, header: dict[str, Any]) -> str | None:
    """Return the coordinate system as well-known text, if rasterio is installed and understands it."""
    try:
        from rasterio.crs import CRS
        from rasterio.errors import CRSError
    except ImportError:
        return None
    words = [word.strip() for word in info or []]
    datum = words[9].replace("-", "").replace(" ", "").upper() if len(words) > 9 else ""
    if words and words[0].upper() == "UTM" and datum in UTM and len(words) > 8 and words[7].isdecimal():
        base = UTM[datum].get(words[8].lower())
        if base is not None and 1 <= int(words[7]) <= 60:
            # Takes precedence over the coordinate system string, which is malformed in some files.
            return CRS.from_epsg(base + int(words[7])).to_wkt()
    text = header.get("coordinate system string")
    text = ",".join(text) if isinstance(text, list) else text
    if text:
        try:
            system = CRS.from_wkt(str(text).strip("{} "))
            code = system.to_epsg()
            return (system if code is None else CRS.from_epsg(code)).to_wkt()
        except CRSError:
            return None
    if words and words[0].lower().startswith("geographic") and "WGS84" in "".join(words).replace("-", "").upper():
        return CRS.from_epsg(4326).to_wkt()
    return None


UTM = {"WGS84": {"north": 32600, "south": 32700}, "": {"north": 32600, "south": 32700}}
UTM |= {name: {"north": 26900} for name in ("NAD83", "NORTHAMERICA1983")}
UTM |= {name: {"north": 26700} for name in ("NAD27", "NORTHAMERICA1927")}
"""EPSG codes of UTM zone 0 (add the zone), by datum and hemisphere."""
