"""MATLAB files of version 5 (SciPy) and 7.3 (h5py): finds the cube among the variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets.matlab import COPIES, patience, read_matlab5
from onmf.divergence import Array, FloatArray
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_growth, most

from .cube import Cube, Lines
from .outside import list_hdf5, read_hdf5

USUAL = ("V", "Y", "X", "cube", "data", "image")
"""Names under which the community shares cubes, as matrices of bands × pixels or with three dimensions."""


class MatlabLines(Lines):
    """A cube of three dimensions in a file of version 7.3, whose axes HDF5 has the other way round.

    Parameters
    ----------
    path : path
        The file.
    reader : Isolated
        The process that reads it: HDF5 crashes on some damaged files.
    name : str
        Name of the variable.
    shape : sequence of int
        Its shape in the file: bands, samples, lines.
    dtype : numpy.dtype
        Type of its values.
    """

    def __init__(self, path: Path, reader: Isolated, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.path, self.reader, self.name = path, reader, name
        bands, samples, lines = shape
        self.shape, self.dtype = (lines, samples, bands), dtype

    def read(self, start: int, stop: int) -> Array:
        part = _asked(self.path, self.reader, read_hdf5, self.name, start, stop)
        if part.shape != (self.shape[2], self.shape[1], stop - start) or part.dtype != self.dtype:
            raise ValueError(f"{self.path} changed while it was read: start again when nobody writes to it.")
        return np.transpose(part, (2, 1, 0))


def _asked(path: Path, reader: Isolated, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the reader says about a file; its errors, as a sentence that names the file."""
    try:
        return reader(function, str(path.resolve()), *arguments)
    except (ReaderEnded, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{path} is no MATLAB file that can be read: {error}") from error


def read_variables(path: Path) -> dict[str, Any]:
    """The numeric variables of a MATLAB file, in MATLAB's order of axes; cubes of version 7.3 stay in the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    with path.open("rb") as file:
        head = file.read(520)
    if b"MATLAB 7.3" in head[:128] or b"\x89HDF" in head:
        return _version_73(path)
    try:
        return read_matlab5(path)
    except NotImplementedError:  # how SciPy says that a file is of version 7.3
        return _version_73(path)


def _version_73(path: Path) -> dict[str, Any]:
    if find_spec("h5py") is None:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'onmf[image]'")
    length = path.stat().st_size
    reader = Isolated(str(path), memory=COPIES * most(length), seconds=patience(length))
    listed = {
        name: (shape, np.dtype(dtype), chunk) for name, (shape, dtype, chunk) in _asked(path, reader, list_hdf5).items()
    }
    held = sum(math.prod(shape) * dtype.itemsize for shape, dtype, _ in listed.values())
    check_growth(str(path), max([held, *(chunk for _, _, chunk in listed.values())]), length)
    return {
        name: MatlabLines(path, reader, name, shape, dtype)
        if len(shape) == 3
        else np.transpose(_asked(path, reader, read_hdf5, name, None, None))
        for name, (shape, dtype, _) in listed.items()
    }


def read_matlab(path: Path, variable: str | None = None) -> Cube:
    """Read the cube of a MATLAB file: the variable asked for; ``V``, ``Y`` or ``X``; or the one of three dimensions."""
    content = read_variables(path)
    name = choose(content, variable, str(path))
    value = content[name]
    if value.ndim == 2 if isinstance(value, np.ndarray) else False:
        value = unfold(value, content, name, path)
    wavelengths = next((as_row(content[key]) for key in content if key.lower() in WAVELENGTHS), None)
    if wavelengths is not None and len(wavelengths) != value.shape[2]:
        wavelengths = None
    return Cube(value, wavelengths=wavelengths, name=path.stem, source=str(path), variable=name)


WAVELENGTHS = ("wavelength", "wavelengths", "lambda", "wl")


def choose(content: dict[str, Any], variable: str | None, where: str) -> str:
    """The name of the variable that is the cube."""
    fits = {name: value for name, value in content.items() if is_cube(value) or is_matrix(value)}
    listed = ", ".join(f"{name} {'×'.join(map(str, np.shape(value) or value.shape))}" for name, value in fits.items())
    listed = listed or "nothing of two or three dimensions"
    if variable is not None:
        if variable not in fits:
            raise ValueError(f"{where} holds no cube or matrix of numbers {variable!r}, but {listed}.")
        return variable
    usual = next((name for name in USUAL if name in fits), None)
    if usual is not None:
        return usual
    cubes = [name for name, value in fits.items() if is_cube(value)]
    if len(cubes) == 1:
        return cubes[0]
    raise ValueError(
        f"{where} holds {'more than one' if cubes else 'no'} array of three dimensions, and no "
        f"{', '.join(USUAL[:3])}: say which variable is the cube (variable=, or --variable). It holds {listed}."
    )


def is_cube(value: Any) -> bool:
    """Whether it is an array of three dimensions."""
    return isinstance(value, Lines) or (
        isinstance(value, np.ndarray) and value.ndim == 3 and value.dtype.kind in "buif"
    )


def is_matrix(value: Any) -> bool:
    """Whether it is a matrix of numbers, and no vector."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and min(value.shape) > 1 and value.dtype.kind in "buif"


def unfold(matrix: Array, content: dict[str, Any], name: str, path: Path) -> Array:
    """A matrix of bands × pixels as a cube: pixels run down the columns, MATLAB's way. No copy."""
    keys = {key.lower(): key for key in content}
    rows, columns = (
        next((as_size(content[keys[key]], f"{path}: {keys[key]}") for key in given if key in keys), None)
        for given in (("nrow", "nrows", "lines", "height"), ("ncol", "ncols", "samples", "width"))
    )
    if rows is None or columns is None:
        side = int(np.sqrt(matrix.shape[1]) + 0.5)
        rows, columns = rows or side, columns or side
    if rows * columns == matrix.shape[1]:
        pixels = matrix.T
    elif rows * columns == matrix.shape[0]:
        pixels = matrix
    else:
        raise ValueError(
            f"{path}: {name} is {matrix.shape[0]} × {matrix.shape[1]}, and {matrix.shape[1]} pixels are not {rows} × "
            f"{columns}: the file needs nRow and nCol with the size of the image."
        )
    return pixels.reshape(columns, rows, pixels.shape[1]).transpose(1, 0, 2)


def as_row(value: Any) -> FloatArray | None:
    """A vector of MATLAB, a matrix with one side 1, as an array of one dimension; None if it is none of numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "buif":
        return None
    return np.asarray(value, dtype=np.float64).ravel()


def as_size(value: Any, where: str) -> int:
    """A number of pixels."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "buif":
        number = float(value.reshape(())[()])
        if number.is_integer() and 1 <= number < 2**53:
            return int(number)
    raise ValueError(f"{where} is no number of lines or samples: a whole number of at least 1 is expected.")
