"""A hyperspectral image: a cube of lines × samples × bands, in memory or in its file; and its pixels, in blocks."""

import math
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray
from onmf.door import Progress
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.rules import require

Negatives = Literal["refuse", "clip"]
Transform = tuple[float, float, float, float, float, float]
"""a, b, c, d, e, f with x = a·sample + b·line + c, y = d·sample + e·line + f, at the upper left corner of a pixel."""

NANOMETRES = dict.fromkeys(("nanometers", "nanometres", "nm"), 1.0)
NANOMETRES |= dict.fromkeys(("micrometers", "micrometres", "um", "microns", "µm", "μm"), 1e3)

CHANGED = "changed while it was read: try again when no program writes to it."
BLOCK = 32 << 20  # approximate size of a block of pixels, in bytes
MAX_VALUE = 1e30  # values above this are refused: they mark missing data, and the maps store scales as float32


class PlaceError(ValueError):
    """An error about bands or pixels. Its message counts from 0, as Python does; ``from_one`` counts as commands do."""

    @property
    def from_one(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return str(self.args[0])


class Lines(ABC):
    """A cube that stays in its file and is read line by line."""

    shape: tuple[int, int, int]  # lines, samples and bands
    dtype: np.dtype[Any]
    one_by_one: bool = False  # whether reading single lines is as fast as reading many

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Read the lines from ``start`` to ``stop``; the caller owns the array. → (lines, samples, bands)"""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read all lines into memory."""
        require(copy is not False, "The cube is in a file: an array of it is always a copy. Leave out copy=False.")
        return np.asarray(self.read(0, self.shape[0]), dtype=dtype)


class FileLines(Lines):
    """An uncompressed cube in a file (ENVI, npy). It is not mapped: the process would crash if the file shrank.

    ``stored`` are the lengths of the axes in the file, the last of which varies fastest; ``axes`` are the positions of
    lines, samples and bands among them. The first value follows ``offset`` bytes.
    """

    def __init__(
        self, path: Path, offset: int, dtype: np.dtype[Any], stored: tuple[int, ...], axes: tuple[int, int, int]
    ) -> None:
        self.path, self.offset, self.dtype, self.stored, self.axes = path.absolute(), offset, dtype, stored, axes
        self.shape = (stored[axes[0]], stored[axes[1]], stored[axes[2]])
        self.one_by_one = axes[0] != 2
        self.state = _state(self.path)
        self._buffer: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_buffer": None}

    def read(self, start: int, stop: int) -> Array:
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        axis = self.axes[0]
        shape = (*self.stored[:axis], max(stop - start, 0), *self.stored[axis + 1 :])
        size = math.prod(shape)
        # What is transposed into another array is read into a buffer that is kept: new memory is slow.
        buffer, self._buffer = self._buffer, None
        if buffer is None or buffer.size < size:
            buffer = np.empty(size, dtype=self.dtype)
        part = buffer[:size].reshape(shape)
        with self.path.open("rb") as file:
            require(_state(file.fileno()) == self.state, f"{self.path} {CHANGED}")
            if axis == 2:  # lines vary fastest, as in MATLAB: read whole planes, and keep a strip of each
                plane = np.empty(self.stored[1:], dtype=self.dtype)
                for number in range(self.stored[0]):
                    self._fill(plane, file, number * plane.size)
                    part[number] = plane[:, start:stop]
            else:
                step = math.prod(self.stored[axis + 1 :])
                for number, piece in enumerate(part.reshape(math.prod(self.stored[:axis]), -1)):
                    self._fill(piece, file, (number * self.shape[0] + start) * step)
        if self.axes == (0, 1, 2):
            return part
        out = np.array(part.transpose(self.axes), order="C")
        self._buffer = buffer
        return out

    def _fill(self, out: Array, file: Any, first: int) -> None:
        """Fill ``out`` with the values that start at number ``first``."""
        view = out.reshape(-1).view(np.uint8).data
        file.seek(self.offset + first * self.dtype.itemsize)
        require(file.readinto(view) == len(view), f"{self.path} {CHANGED}")


def _state(file: Path | int) -> tuple[int, int]:
    """Return the size and the modification time, one of which changes when a file is written to."""
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def call_reader(reader: Isolated, path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in the process that reads a file. Its errors become a sentence that names the file."""
    try:
        return reader(function, str(path.resolve()), *arguments)
    except (ReaderEnded, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error


@dataclass(frozen=True, eq=False)
class IsolatedLines(Lines):
    """A cube that a separate process reads, by ``function(path, *arguments, start, stop)``."""

    reader: Isolated
    path: Path
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def read(self, start: int, stop: int) -> Array:
        part = call_reader(self.reader, self.path, self.function, *self.arguments, start, stop)
        require((part.shape, part.dtype) == ((stop - start, *self.shape[1:]), self.dtype), f"{self.path} {CHANGED}")
        return part


@dataclass(frozen=True)
class PixelNames(Sequence[str]):
    """The names of the pixels of an image, line by line. They are made when they are asked for."""

    lines: int
    samples: int

    def __len__(self) -> int:
        return self.lines * self.samples

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        line, sample = divmod(range(len(self))[place], self.samples)
        return f"{line},{sample}"


@dataclass(frozen=True, eq=False)
class Cube:
    """A hyperspectral image.

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.image import Cube
    >>> cube = Cube(np.ones((4, 5, 3)), wavelengths=np.array([450.0, 550.0, 650.0]))
    >>> cube
    <Cube made: 4 lines × 5 samples × 3 bands, float64>
    """

    data: Any  #: (lines, samples, bands) values as stored, all bands: an array, memory map, Dask array or Lines
    wavelengths: FloatArray | None = None  #: (bands,) centre wavelength of each band
    wavelength_unit: str | None = None  #: unit of the wavelengths, as the file names it
    band_names: list[str] | None = None  #: name of each band
    #: (bands,) which bands are used, by default all; the others stay in ``data``, but are not clustered
    good_bands: Array = None  # type: ignore[assignment]
    mask: Array | None = None  #: (lines, samples) which pixels may be used; None allows all
    #: A pixel that has this value in any used band is unassigned. If it is 0, only pixels that are 0 in all used bands.
    ignore_value: float | None = None
    scale: float = 1.0  #: physical value = stored value · scale
    crs: str | None = None  #: coordinate reference system, as well-known text
    transform: Transform | None = None  #: maps samples and lines to coordinates, as in rasterio: a, b, c, d, e, f
    map_info: list[str] | None = None  #: the ``map info`` of an ENVI header, kept so that it can be written unchanged
    name: str = "made"  #: name of the image
    source: str = ""  #: origin of the image, usually a path
    variable: str | None = None  #: name of the variable that holds the cube, if the file has several
    truth: Any = None  #: what is known about the image: a Truth, or None

    def __post_init__(self) -> None:
        shape, where = tuple(self.data.shape), self.source or "The cube"
        needs = "a cube needs three non-empty dimensions, lines × samples × bands."
        require(len(shape) == 3 and min(shape) >= 1, f"{where} has shape {shape}: {needs}")
        require(self.data.dtype.kind in "buif", f"{where} has {self.data.dtype} values: real numbers are needed.")
        good = np.ones(shape[2], dtype=bool) if self.good_bands is None else np.asarray(self.good_bands, dtype=bool)
        object.__setattr__(self, "good_bands", good)
        for name in ("wavelengths", "band_names", "good_bands"):
            values = getattr(self, name)
            given = shape[2] if values is None else len(values)
            require(given == shape[2], f"{where} has {shape[2]} bands, but {given} {name.replace('_', ' ')}.")
        require(good.any(), f"{where}: all bands are marked as bad. Use them anyway (keep_bad_bands=True).")
        size = shape[:2] if self.mask is None else np.shape(self.mask)
        require(size == shape[:2], f"The mask has shape {size}, but {where} has {shape[0]} lines × {shape[1]} samples.")

    def __repr__(self) -> str:
        lines, samples, bands = self.shape
        dropped = int(np.count_nonzero(~self.good_bands))
        bad = f" ({dropped} of them bad)" if dropped else ""
        return f"<Cube {self.name}: {lines} lines × {samples} samples × {bands} bands{bad}, {self.data.dtype}>"

    # What a Table has: the pixels are rows, the used bands features.
    groups: ClassVar[Any] = None
    known: ClassVar[Any] = None
    dates = None
    notes: ClassVar[list[str]] = []

    @property
    def classes(self) -> list[str | None] | None:
        """The true material of each pixel, None where it is not known; None if there is no true map."""
        if self.truth is None or self.truth.labels is None:
            return None
        return np.array([*self.truth.materials, None], dtype=object)[self.truth.labels.ravel()].tolist()

    def without_texts(self) -> Self:
        """The image without the names of its file and of the variable in it; pixels are named by their place."""
        return replace(self, name="image", source="", variable=None)

    @property
    def X(self) -> Array:
        """The pixels as rows of their used bands, read into memory."""
        return self.read(0, self.shape[0]).reshape(-1, int(self.good_bands.sum()))

    @property
    def rows(self) -> Sequence[str]:
        """The names of the pixels, line by line: ``"y,x"``, with the line and the sample counted from 0."""
        return PixelNames(self.shape[0], self.shape[1])

    @property
    def features(self) -> list[str]:
        """Names of the used bands."""
        names = self.band_names or [f"band {band + 1}" for band in range(self.shape[2])]
        return [names[band] for band in np.flatnonzero(self.good_bands)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Lines, samples and bands, including bad bands."""
        return self.data.shape

    @property
    def nanometres(self) -> FloatArray | None:
        """Wavelengths of the used bands in nanometres, or None if there are none. → (used bands,)"""
        waves, good = self.wavelengths, self.good_bands
        return None if waves is None else in_nanometres(waves, self.wavelength_unit)[good]

    def read(self, start: int, stop: int) -> Array:
        """Copy the used bands of the lines from ``start`` to ``stop``. → (lines, samples, used bands)"""
        own = isinstance(self.data, Lines)
        whole = self.data.read(start, stop) if own else np.asarray(self.data[start:stop])
        part = whole if self.good_bands.all() else whole[:, :, self.good_bands]
        part = (np.asarray if own else np.array)(part, dtype=native(part.dtype), order="C")
        mapped: Any = getattr(self.data, "_mmap", None)
        if hasattr(mapped, "madvise"):  # pages of a memory map that were read count as memory of this process
            mapped.madvise(mmap.MADV_DONTNEED)
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


def in_nanometres(wavelengths: FloatArray, unit: str | None) -> FloatArray:
    """Convert wavelengths. If the unit is missing or unknown: sensors see light of 0.2 to 20 micrometres."""
    likely = 1e3 if np.max(wavelengths) < 100 else 1.0
    return wavelengths * NANOMETRES.get((unit or "").strip().lower(), likely)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values are converted to when they are read: native byte order, floats of 32 or 64 bits."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype.newbyteorder("=")


def type_of_product(cube: Cube, factor: float) -> np.dtype[Any]:
    """The type of the values of a cube times a factor: their own type if it is 1, else floats of 32 or 64 bits."""
    own = native(np.dtype(cube.data.dtype))
    return own if factor == 1 else np.result_type(own, np.float32)


class Pixels:
    """The pixels of a cube that have data, in the order of its lines. A call yields them in blocks, as ``fit`` expects.

    The other pixels are unassigned: those that the mask excludes, that have NaN, infinity or the ignore value in a used
    band, or that are zero in all used bands. The constructor finds them in one pass over the cube: ``inside`` says
    which pixels are rows, ``sizes`` how many are in each block, and ``negatives`` counts their negative values. Rows
    are the stored values times ``factor``.
    """

    in_blocks = False  # whether they are read block by block in every iteration

    def __init__(
        self, cube: Cube, divergence: Divergence, negatives: Negatives, progress: Progress, factor: float = 1.0
    ) -> None:
        require(negatives in ("refuse", "clip"), f"negatives={negatives!r} is not allowed: use 'refuse' or 'clip'.")
        self.cube, self.clipped, self.factor = cube, negatives == "clip", factor
        self.dtype = type_of_product(cube, factor)
        lines, samples, _ = cube.shape
        used = int(np.count_nonzero(cube.good_bands))
        depth = max(1, BLOCK // (samples * used * self.dtype.itemsize))
        self.lines = [(start, min(start + depth, lines)) for start in range(0, lines, depth)]
        self.inside = np.zeros((lines, samples), dtype=bool)
        self._scan(divergence, progress)
        self.lines = [(start, stop) for start, stop in self.lines if self.inside[start:stop].any()]
        self.sizes = [int(np.count_nonzero(self.inside[start:stop])) for start, stop in self.lines]
        self.shape = (sum(self.sizes), used)
        where = cube.source or "The cube"
        require(
            self.sizes, f"{where} has no pixel to cluster: all are masked, without data, or zero in all used bands."
        )

    def _scan(self, divergence: Divergence, progress: Progress) -> None:
        """Find the pixels with data, and refuse values for which the divergence is not defined."""
        cube, where = self.cube, self.cube.source or "The cube"
        self.negatives = zeros = 0
        first: tuple[Any, ...] = ()
        progress("Looking for pixels", 0.0)
        for start, stop in self.lines:
            part = cube.read(start, stop)
            low, high = part.min(axis=2), part.max(axis=2)
            allowed = True if cube.mask is None else cube.mask[start:stop]
            inside = np.isfinite(low) & np.isfinite(high) & ((low != 0) | (high != 0)) & allowed
            if cube.ignore_value:  # pixels that are 0 in all bands were found above
                with np.errstate(over="ignore"):  # pixels with infinite values are unassigned anyway
                    missing = part.dtype.type(cube.ignore_value) if part.dtype.kind == "f" else cube.ignore_value
                maybe = inside & (low <= missing) & (missing <= high)
                inside[maybe] = (part[maybe] != missing).all(axis=1)
            ends = float(high.max(where=inside, initial=0)), float(low.min(where=inside, initial=0))
            require(
                max(ends[0], -ends[1]) <= MAX_VALUE,
                f"{where} has values beyond {MAX_VALUE:g}: they mark missing data, or the data type is wrong. Name the "
                "value to ignore (ignore_value=, or --ignore).",
            )
            below = inside & (low < 0)
            if below.any():
                values = part[below]
                self.negatives += int(np.count_nonzero(values < 0))
                if not first:
                    band = int(np.argmax(values[0] < 0))
                    first = (
                        *np.argwhere(below)[0] + (start, 0),
                        np.flatnonzero(cube.good_bands)[band],
                        values[0, band],
                    )
                if self.clipped:
                    inside &= high > 0  # the others would become zero in all bands
            if divergence.domain == "positive":
                zeros += int(np.count_nonzero(part[inside] <= 0))
            self.inside[start:stop] = inside
            progress("Looking for pixels", stop / len(self.inside))
        if first and not self.clipped and divergence.domain != "real":
            line, sample, band, value = first
            raise PlaceError(
                *(
                    f"{where} has {self.negatives} negative values (first: line {line + n}, sample {sample + n}, band "
                    f"{band + n} = {value:g}, counted from {n}), but the {divergence.name} divergence needs values ≥ "
                    "0. Set them to zero (negatives='clip', or --negatives clip), name the value that marks missing "
                    "data (ignore_value=, or --ignore), or use the Frobenius norm."
                    for n in (0, 1)
                )
            )
        require(
            not zeros,
            f"{where} has {zeros} values that are not positive, but the {divergence.name} divergence needs values > 0: "
            "use the Kullback-Leibler divergence.",
        )

    def __call__(self) -> Iterator[Array]:
        """Yield all blocks; the next one is read while the caller uses the current one."""
        with ThreadPoolExecutor(1) as reader:
            pending = reader.submit(self.block, 0)
            for number in range(1, len(self.sizes)):
                block = pending.result()
                pending = reader.submit(self.block, number)
                yield block
            yield pending.result()

    def block(self, number: int) -> Array:
        """Read the rows of a block as a C-contiguous array that the caller owns."""
        start, stop = self.lines[number]
        part, inside = self.cube.read(start, stop), self.inside[start:stop]
        rows = part.reshape(-1, part.shape[2]) if inside.all() else part[inside]
        if self.clipped and self.negatives:
            np.maximum(rows, 0, out=rows)
        return rows if self.factor == 1 else rows.astype(self.dtype) * self.dtype.type(self.factor)

    def array(self) -> Array:
        """Read all rows into memory."""
        out = np.empty(self.shape, dtype=self.dtype)
        for end, block in zip(np.cumsum(self.sizes), self(), strict=True):
            out[end - len(block) : end] = block
        return out

    def notes(self) -> list[str]:
        """Return sentences about the pixels that people should know."""
        cube, unassigned = self.cube, self.inside.size - self.shape[0]
        masked = 0 if cube.mask is None else int(np.count_nonzero(~cube.mask))
        reasons = {"are masked": masked, "hold no data": unassigned - masked}
        listed = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)
        bad = np.count_nonzero(~cube.good_bands)
        notes = {
            f"The cube is the variable {cube.variable} of {Path(cube.source).name}.": cube.variable is not None,
            f"{unassigned:,} of {self.inside.size:,} pixels are unassigned (-1): {listed}.": unassigned,
            f"{bad} of {cube.shape[2]} bands are bad and are not used.": bad,
            f"{self.negatives:,} negative values were set to zero.": self.negatives and self.clipped,
        }
        return [note for note, holds in notes.items() if holds]

    def image(self, values: Array, unassigned: Any) -> Array:
        """Arrange values of the rows as an image. (n,) → (lines, samples)"""
        out = np.full(self.inside.shape, unassigned, dtype=values.dtype)
        out[self.inside] = values
        return out
