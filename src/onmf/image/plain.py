"""Arrays that lie in a file as they are (ENVI, npy), read by plain reads.

A memory map would be shorter, but a file that shrinks under one ends the process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from onmf.divergence import Array

from .cube import Lines

AT_ONCE = 1 << 30
"""Bytes that are asked for in one read: some systems give no more than two of these."""

AXES = {"bsq": (1, 2, 0), "bil": (0, 2, 1), "bip": (0, 1, 2)}
"""Where lines, samples and bands are among the axes of the file, by ENVI's names."""


class FileLines(Lines):
    """A cube that lies in a file as it is.

    Parameters
    ----------
    path : path
        The file.
    offset : int
        Bytes before the first value.
    dtype : numpy.dtype
        Type of the values, with their byte order.
    shape : tuple of int
        Lengths of the three axes, in the order of the file, the last one running fastest.
    axes : tuple of int
        Which of these are lines, samples and bands.
    """

    def __init__(
        self, path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], axes: tuple[int, ...]
    ) -> None:
        self.path, self.offset, self.dtype, self.stored, self.axes = (
            Path(os.path.abspath(path)),
            offset,
            dtype,
            shape,
            axes,
        )
        self.shape = (shape[axes[0]], shape[axes[1]], shape[axes[2]])
        self.state = _state(os.stat(self.path))

    def read(self, start: int, stop: int) -> Array:
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        place = self.axes[0]
        # Before the axis of the lines: pieces that lie apart. After it: what belongs to a line.
        outer = self.stored[:place]
        pieces, step = int(np.prod(outer)), int(np.prod(self.stored[place + 1 :]))
        part = np.empty((*outer, max(stop - start, 0), *self.stored[place + 1 :]), dtype=self.dtype)
        with self.path.open("rb", buffering=0) as file:
            if _state(os.fstat(file.fileno())) != self.state:
                raise ValueError(f"{self.path} changed while it was read: start again when nobody writes to it.")
            if place == 2 and part.size:
                self._columns(file, part.reshape(-1, self.stored[1], stop - start), start, stop)
            else:
                flat = part.reshape(pieces, -1)
                for piece in range(pieces if part.size else 0):
                    self._fill(file, (piece * self.shape[0] + start) * step, flat[piece])
        return part.transpose(self.axes)

    def _columns(self, file: IO[bytes], part: Array, start: int, stop: int) -> None:
        """Lines that run fastest, as MATLAB's do: the planes of the file one by one, and a strip of each."""
        plane = np.empty((part.shape[1], self.shape[0]), dtype=self.dtype)
        for number in range(len(part)):
            self._fill(file, number * plane.size, plane)
            part[number] = plane[:, start:stop]

    def _fill(self, file: IO[bytes], first: int, out: Array) -> None:
        """Read values from the number ``first`` on."""
        view = out.reshape(-1).view(np.uint8).data
        file.seek(self.offset + first * self.dtype.itemsize)
        while len(view):
            got = file.readinto(view[:AT_ONCE])  # type: ignore[attr-defined]
            if not got:
                raise ValueError(f"{self.path} is shorter than it was: it was cut off while it was read.")
            view = view[got:]


def _state(status: os.stat_result) -> tuple[int, int]:
    """What changes when a file is written to."""
    return status.st_size, status.st_mtime_ns


def read_npy_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether the first axis runs fastest, type and place of the values; a file that is too short is refused."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"version {version[0]}.{version[1]} is for tables, not for images")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except Exception as error:  # the header is a line of Python, which can be wrong in many ways
            raise ValueError(f"{path} cannot be read as npy: {error}") from error
        offset, length = file.tell(), os.fstat(file.fileno()).st_size
    if dtype.kind not in "buif" or min(shape, default=0) < 0:
        raise ValueError(f"{path} holds {dtype} values of shape {shape}: real numbers are needed.")
    needed = offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if needed > length:
        raise ValueError(
            f"{path} is too short: its header says {' × '.join(map(str, shape))} values of {dtype.itemsize} bytes, "
            f"which are {needed:,} bytes with the header, and there are {length:,}. The file was cut off."
        )
    return shape, fortran, dtype, offset


def open_npy(path: Path) -> FileLines:
    """The cube in an npy file; its values stay there."""
    shape, fortran, dtype, offset = read_npy_header(path)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"{path} has shape {shape}: a cube has three dimensions, lines × samples × bands, none of them empty."
        )
    if fortran:
        return FileLines(path, offset, dtype, shape[::-1], (2, 1, 0))
    return FileLines(path, offset, dtype, shape, (0, 1, 2))


def read_npy(path: Path) -> Array:
    """The array in an npy file."""
    shape, fortran, dtype, offset = read_npy_header(path)
    length = int(np.prod(shape, dtype=object))
    values = FileLines(path, offset, dtype, (length, 1, 1), (0, 1, 2)).read(0, length).reshape(-1)
    return values.reshape(shape, order="F" if fortran else "C")
