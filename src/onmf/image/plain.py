"""Uncompressed arrays in files (ENVI, npy), read without memory maps.

A memory map would need less code, but the process crashes if the mapped file shrinks.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from onmf.divergence import Array

from .cube import Lines

MAX_READ = 1 << 30
"""Most bytes of one read call: some systems return at most twice as many."""

AXES = {"bsq": (1, 2, 0), "bil": (0, 2, 1), "bip": (0, 1, 2)}
"""Position of lines, samples and bands among the axes of the file, by ENVI's name of the interleave."""


class FileLines(Lines):
    """An uncompressed cube in a file.

    Parameters
    ----------
    path : path
        The file.
    offset : int
        Number of bytes before the first value.
    dtype : numpy.dtype
        Type of the values, with their byte order.
    shape : tuple of int
        Lengths of the three axes in the order of the file; the last axis varies fastest.
    axes : tuple of int
        Positions of lines, samples and bands among these axes.
    """

    def __init__(
        self, path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], axes: tuple[int, ...]
    ) -> None:
        self.path, self.offset, self.dtype = Path(os.path.abspath(path)), offset, dtype
        self.stored, self.axes = shape, axes
        self.shape = (shape[axes[0]], shape[axes[1]], shape[axes[2]])
        self.state = _state(os.stat(self.path))
        self.one_by_one = axes[0] != 2
        self._buffer: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_buffer": None}

    def read(self, start: int, stop: int) -> Array:
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        line_axis, n = self.axes[0], max(stop - start, 0)
        shape = (*self.stored[:line_axis], n, *self.stored[line_axis + 1 :])
        with self.path.open("rb", buffering=0) as file:
            if _state(os.fstat(file.fileno())) != self.state:
                raise ValueError(f"{self.path} changed while it was read: try again when no program writes to it.")
            if self.axes == (0, 1, 2):
                part = np.empty(shape, dtype=self.dtype)
                self._pieces(file, part, start)
                return part
            # The result is transposed into another array, so the buffer is reused: new memory is slow.
            buffer, self._buffer = self._buffer, None
            size = math.prod(shape)
            buffer = np.empty(size, dtype=self.dtype) if buffer is None or buffer.size < size else buffer
            part = buffer[:size].reshape(shape)
            if line_axis == 2:
                self._strips(file, part, start, stop)
            else:
                self._pieces(file, part, start)
        out = np.ascontiguousarray(part.transpose(self.axes))
        out = out.copy() if np.may_share_memory(out, buffer) else out
        self._buffer = buffer
        return out

    def _pieces(self, file: IO[bytes], part: Array, start: int) -> None:
        """Read lines that are contiguous, one piece for each index of the axes before them."""
        line_axis = self.axes[0]
        pieces, step = math.prod(self.stored[:line_axis]), math.prod(self.stored[line_axis + 1 :])
        for piece, out in enumerate(part.reshape(pieces, -1)):
            self._fill(file, (piece * self.shape[0] + start) * step, out)

    def _strips(self, file: IO[bytes], part: Array, start: int, stop: int) -> None:
        """Read a strip of each plane of the file: here lines vary fastest, as in MATLAB."""
        plane = np.empty((self.stored[1], self.stored[2]), dtype=self.dtype)
        for number in range(self.stored[0]):
            self._fill(file, number * plane.size, plane)
            part[number] = plane[:, start:stop]

    def _fill(self, file: IO[bytes], first: int, out: Array) -> None:
        """Fill ``out`` with the values that start at number ``first``."""
        view = out.reshape(-1).view(np.uint8).data
        file.seek(self.offset + first * self.dtype.itemsize)
        while len(view):
            n_read = file.readinto(view[:MAX_READ])  # type: ignore[attr-defined]
            if not n_read:
                raise ValueError(
                    f"{self.path} became shorter while it was read: try again when no program writes to it."
                )
            view = view[n_read:]


def _state(status: os.stat_result) -> tuple[int, int]:
    """Return the size and the modification time, one of which changes when a file is written to."""
    return status.st_size, status.st_mtime_ns


def read_npy_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether the first axis varies fastest, type and offset. Refuse a file that is too short."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"format version {version[0]}.{version[1]} is for structured arrays, not for images")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
        except Exception as error:  # NumPy evaluates the header as a Python literal, which raises many kinds of errors
            raise ValueError(f"{path} cannot be read as npy: {error}") from error
        offset, length = file.tell(), os.fstat(file.fileno()).st_size
    if dtype.kind not in "buif" or min(shape, default=0) < 0:
        raise ValueError(f"{path} has {dtype} values of shape {shape}: real numbers are needed.")
    needed = offset + math.prod(shape) * dtype.itemsize
    if needed > length:
        raise ValueError(
            f"{path} is too short: its header says {' × '.join(map(str, shape))} values of {dtype.itemsize} bytes, "
            f"which makes {needed:,} bytes with the header, but the file has {length:,}. It was cut off."
        )
    return shape, fortran, dtype, offset


def open_npy(path: Path) -> FileLines:
    """Open the cube in an npy file; its values stay in the file."""
    shape, fortran, dtype, offset = read_npy_header(path)
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"{path} has shape {shape}: a cube needs three non-empty dimensions, lines × samples × bands.")
    if fortran:
        return FileLines(path, offset, dtype, shape[::-1], (2, 1, 0))
    return FileLines(path, offset, dtype, shape, (0, 1, 2))


def read_npy(path: Path) -> Array:
    """Read the array in an npy file."""
    shape, fortran, dtype, offset = read_npy_header(path)
    length = math.prod(shape)
    values = FileLines(path, offset, dtype, (length, 1, 1), (0, 1, 2)).read(0, length).reshape(-1)
    return values.reshape(shape, order="F" if fortran else "C")
