"""Arrays that lie in a file as they are (ENVI, npy), read by plain reads.

A memory map would be shorter, but a file that shrinks under one ends the process.
"""

from __future__ import annotations

import math
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
        self.path, self.offset, self.dtype = Path(os.path.abspath(path)), offset, dtype
        self.stored, self.axes = shape, axes
        self.shape = (shape[axes[0]], shape[axes[1]], shape[axes[2]])
        self.state = _state(os.stat(self.path))
        self.one_by_one = axes[0] != 2
        self._spare: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_spare": None}

    def read(self, start: int, stop: int) -> Array:
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        place, n = self.axes[0], max(stop - start, 0)
        shape = (*self.stored[:place], n, *self.stored[place + 1 :])
        with self.path.open("rb", buffering=0) as file:
            if _state(os.fstat(file.fileno())) != self.state:
                raise ValueError(f"{self.path} changed while it was read: start again when nobody writes to it.")
            if self.axes == (0, 1, 2):
                part = np.empty(shape, dtype=self.dtype)
                self._pieces(file, part, start)
                return part
            # Turned on its way out, so the memory that it is read into can be used again: fresh memory is slow.
            spare, self._spare = self._spare, None
            size = math.prod(shape)
            spare = np.empty(size, dtype=self.dtype) if spare is None or spare.size < size else spare
            part = spare[:size].reshape(shape)
            if place == 2:
                self._strips(file, part, start, stop)
            else:
                self._pieces(file, part, start)
        out = np.ascontiguousarray(part.transpose(self.axes))
        out = out.copy() if np.may_share_memory(out, spare) else out
        self._spare = spare
        return out

    def _pieces(self, file: IO[bytes], part: Array, start: int) -> None:
        """Lines that lie together, in each of the pieces that come before them."""
        place = self.axes[0]
        pieces, step = math.prod(self.stored[:place]), math.prod(self.stored[place + 1 :])
        for piece, out in enumerate(part.reshape(pieces, -1)):
            self._fill(file, (piece * self.shape[0] + start) * step, out)

    def _strips(self, file: IO[bytes], part: Array, start: int, stop: int) -> None:
        """Lines that run fastest, as MATLAB's do: the planes of the file one by one, and a strip of each."""
        plane = np.empty((self.stored[1], self.stored[2]), dtype=self.dtype)
        for number in range(self.stored[0]):
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
    needed = offset + math.prod(shape) * dtype.itemsize
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
    length = math.prod(shape)
    values = FileLines(path, offset, dtype, (length, 1, 1), (0, 1, 2)).read(0, length).reshape(-1)
    return values.reshape(shape, order="F" if fortran else "C")
