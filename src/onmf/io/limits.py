"""Limits on how long a text may be, and on how far a file may grow when it is decompressed.

No file fills the memory, and none is read without end.
"""

import io
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from onmf.io.rules import require

FREE = 100_000_000  # decompressed size in bytes that is always allowed
MOST_GROWTH = 250  # above that, the largest ratio of decompressed to compressed size; text and counts have 3 to 50


def read_small(path: Path, megabytes: int, what: str) -> str:
    """Read a text in UTF-8 from a file or a pipe. Refuse one of more bytes; ``what`` says what was expected."""

    def open_at_once(path: str, flags: int) -> int:  # a named pipe does not wait for a writer
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(descriptor, True)
        return descriptor

    with open(path, "rb", opener=open_at_once) as file:
        data = file.read((megabytes << 20) + 1)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is a pipe that nothing was written to: start its writer first, or name a file.")
    require(len(data) <= megabytes << 20, f"{path} is larger than {megabytes} MB: {what}.")
    return data.decode("utf-8-sig")


def most(length: int) -> int:
    """The largest decompressed size of a file of ``length`` bytes."""
    return max(FREE, MOST_GROWTH * length)


def check_growth(name: str, grown: int, length: int) -> None:
    """Refuse a file of ``length`` bytes whose decompressed size ``grown`` is above the limit."""
    require(
        grown <= most(length),
        f"{name} grows to more than {MOST_GROWTH} times its length when decompressed, which neither text nor "
        "counts do: it is refused. Decompress it yourself if you trust it.",
    )


def check_shape(name: str, rows: int, columns: int, length: int) -> None:
    """Refuse a matrix with more rows or columns, which cost memory even if empty, than ``length`` bytes can fill."""
    require(rows >= 0 and columns >= 0, f"{name} says that it has {rows} rows and {columns} columns.")
    require(
        8 * max(rows, columns) <= most(length),
        f"{name} says that it has {rows} rows and {columns} columns, far more than its {length} bytes can fill: it "
        "is refused. Remove the empty ones.",
    )


def npy_header(file: IO[bytes], length: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array in npy format: its shape, whether its order is Fortran's, and its type.

    Refuse an array that claims more than the ``length`` bytes of the file: NumPy allocates memory before it reads.
    """
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran_order, dtype = read(file)
    except Exception as error:  # NumPy evaluates the header as a Python literal, which raises many kinds of errors
        raise ValueError(f"it has no valid .npy header: {error}") from error
    needed = file.tell() + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed > length:
        raise ValueError(
            f"it claims the shape {str(shape)[:80]} and the type {dtype}, which makes {needed:,} bytes, but it has "
            f"{length:,}"
        )
    return shape, fortran_order, dtype


class Bounded(io.RawIOBase):
    """What a decompressor gives; raises once that is too large for the ``length()`` bytes read so far."""

    def __init__(self, inner: IO[bytes], name: str, length: Callable[[], int]) -> None:
        self.inner, self.name, self.length, self.count = inner, name, length, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.pull(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        check_growth(self.name, self.count, self.length())
        return len(data)

    def pull(self, size: int) -> bytes:
        """Read at most ``size`` bytes."""
        return self.inner.read(size)
