"""MATLAB files of version 5 (SciPy) and 7.3 (h5py): finds the cube among the variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat

from onmf.divergence import Array, FloatArray

from .cube import Cube, Lines

USUAL = ("V", "Y", "X", "cube", "data", "image")
"""Names under which the community shares cubes, as matrices of bands × pixels or with three dimensions."""


class MatlabLines(Lines):
    """A cube of three dimensions in a file of version 7.3, whose axes HDF5 has the other way round."""

    def __init__(self, path: Path, name: str) -> None:
        import h5py

        self.path, self.name = path, name
        with h5py.File(path, "r") as file:
            bands, samples, lines = file[name].shape
            self.shape, self.dtype = (lines, samples, bands), file[name].dtype

    def read(self, start: int, stop: int) -> Array:
        import h5py

        with h5py.File(self.path, "r") as file:
            return np.transpose(file[self.name][:, :, start:stop], (2, 1, 0))


def read_variables(path: Path) -> dict[str, Any]:
    """The numeric variables of a MATLAB file, in MATLAB's order of axes; cubes of version 7.3 stay in the file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    with path.open("rb") as file:
        head = file.read(520)
    try:
        if b"MATLAB 7.3" in head[:128] or b"\x89HDF" in head:
            return _version_73(path)
        return {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    except NotImplementedError:
        return _version_73(path)
    except (ValueError, TypeError, OSError, KeyError, IndexError, EOFError, MemoryError) as error:
        raise ValueError(f"{path} is no MATLAB file that can be read: {error}") from error
    except Exception as error:  # SciPy's reader and zlib have errors of their own for damaged files
        raise ValueError(f"{path} is damaged: {error}") from error


def _version_73(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'onmf[image]'") from error
    found: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        for name, value in file.items():
            if isinstance(value, h5py.Dataset) and value.dtype.kind in "buif":
                found[name] = MatlabLines(path, name) if value.ndim == 3 else np.transpose(value[()])
    return found


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
        next((int(np.squeeze(content[keys[key]])) for key in given if key in keys), None)
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


def as_row(value: Any) -> FloatArray:
    """A vector of MATLAB, a matrix with one side 1, as an array of one dimension."""
    return np.asarray(value, dtype=np.float64).ravel()
