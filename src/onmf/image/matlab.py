"""MATLAB files of version 5 (read by SciPy) and 7.3 (read by h5py): finds the cube among the variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets.matlab import read_matlab5
from onmf.divergence import Array, FloatArray
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_growth

from .cube import Cube, Lines
from .outside import list_hdf5, read_hdf5

USUAL = ("V", "Y", "X", "cube", "data", "image")
"""Usual names of a cube in shared files, where it is a matrix of bands × pixels or has three dimensions."""


class MatlabLines(Lines):
    """A cube of three dimensions in a file of version 7.3; HDF5 stores its axes in reverse order.

    Parameters
    ----------
    path : path
        The file.
    reader : Isolated
        The process that reads the file: HDF5 crashes on some damaged files.
    name : str
        Name of the variable.
    shape : sequence of int
        Shape of the variable in the file: bands, samples, lines.
    dtype : numpy.dtype
        Type of the values.
    """

    def __init__(self, path: Path, reader: Isolated, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.path, self.reader, self.name = path, reader, name
        bands, samples, lines = shape
        self.shape, self.dtype = (lines, samples, bands), dtype

    def read(self, start: int, stop: int) -> Array:
        part = _call(self.path, self.reader, read_hdf5, self.name, start, stop)
        if part.shape != (self.shape[2], self.shape[1], stop - start) or part.dtype != self.dtype:
            raise ValueError(f"{self.path} changed while it was read: try again when no program writes to it.")
        return np.transpose(part, (2, 1, 0))


def _call(path: Path, reader: Isolated, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in the reader process; its errors become a sentence that names the file."""
    try:
        return reader(function, str(path.resolve()), *arguments)
    except (ReaderEnded, ImportError):
        raise
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a MATLAB file: {error}") from error


def read_variables(path: Path) -> dict[str, Any]:
    """Read the numeric variables of a MATLAB file, axes in MATLAB's order; cubes of version 7.3 stay in the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    with path.open("rb") as file:
        head = file.read(520)
    if b"MATLAB 7.3" in head[:128] or b"\x89HDF" in head:
        return _version_73(path)
    try:
        return read_matlab5(path)
    except NotImplementedError:  # SciPy raises this for files of version 7.3
        return _version_73(path)


def _version_73(path: Path) -> dict[str, Any]:
    if find_spec("h5py") is None:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'onmf[image]'")
    length = path.stat().st_size
    reader = Isolated.for_file(path)
    variables = {
        name: (shape, np.dtype(dtype), chunk) for name, (shape, dtype, chunk) in _call(path, reader, list_hdf5).items()
    }
    total = sum(math.prod(shape) * dtype.itemsize for shape, dtype, _ in variables.values())
    check_growth(str(path), max([total, *(chunk for _, _, chunk in variables.values())]), length)
    return {
        name: MatlabLines(path, reader, name, shape, dtype)
        if len(shape) == 3
        else np.transpose(_call(path, reader, read_hdf5, name, None, None))
        for name, (shape, dtype, _) in variables.items()
    }


def read_matlab(path: Path, variable: str | None = None) -> Cube:
    """Read the cube of a MATLAB file: ``variable``; else ``V``, ``Y`` or ``X``; else the only 3-D array."""
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
    """Return the name of the variable that is the cube."""
    arrays = {name: value for name, value in content.items() if is_cube(value) or is_matrix(value)}
    listed = ", ".join(f"{name} {'×'.join(map(str, np.shape(value) or value.shape))}" for name, value in arrays.items())
    listed = listed or "nothing of two or three dimensions"
    if variable is not None:
        if variable not in arrays:
            raise ValueError(f"{where} has no numeric cube or matrix {variable!r}. It holds {listed}.")
        return variable
    usual = next((name for name in USUAL if name in arrays), None)
    if usual is not None:
        return usual
    cubes = [name for name, value in arrays.items() if is_cube(value)]
    if len(cubes) == 1:
        return cubes[0]
    raise ValueError(
        f"{where} has {'more than one' if cubes else 'no'} array of three dimensions, and no "
        f"{', '.join(USUAL[:3])}: name the variable that is the cube (variable=, or --variable). It holds {listed}."
    )


def is_cube(value: Any) -> bool:
    """Whether the value is a numeric array of three dimensions."""
    return isinstance(value, Lines) or (
        isinstance(value, np.ndarray) and value.ndim == 3 and value.dtype.kind in "buif"
    )


def is_matrix(value: Any) -> bool:
    """Whether the value is a numeric matrix, and not a vector."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and min(value.shape) > 1 and value.dtype.kind in "buif"


def unfold(matrix: Array, content: dict[str, Any], name: str, path: Path) -> Array:
    """View a matrix of bands × pixels as a cube; pixels run down the columns of the image, as in MATLAB."""
    keys = {key.lower(): key for key in content}
    rows, columns = (
        next((as_size(content[keys[key]], f"{path}: {keys[key]}") for key in usual if key in keys), None)
        for usual in (("nrow", "nrows", "lines", "height"), ("ncol", "ncols", "samples", "width"))
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
            f"{path}: {name} is {matrix.shape[0]} × {matrix.shape[1]}, but {matrix.shape[1]} pixels are not {rows} × "
            f"{columns}: the file needs nRow and nCol with the size of the image."
        )
    return pixels.reshape(columns, rows, pixels.shape[1]).transpose(1, 0, 2)


def as_row(value: Any) -> FloatArray | None:
    """Flatten a MATLAB vector, which is a matrix with one side 1; return None if it is not numeric."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "buif":
        return None
    return np.asarray(value, dtype=np.float64).ravel()


def as_size(value: Any, where: str) -> int:
    """Return the number of lines or samples that a variable holds."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "buif":
        number = float(value.reshape(())[()])
        if number.is_integer() and 1 <= number < 2**53:
            return int(number)
    raise ValueError(f"{where} is not a number of lines or samples: expected an integer of at least 1.")
