"""Limits on how long a text may be, and on how far a file may grow when it is decompressed.

No file fills the memory, and none is read without end.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

FREE = 100_000_000
"""Decompressed size in bytes that is always allowed."""

MOST_GROWTH = 250
"""Above that, the largest ratio of decompressed to compressed size. Text and counts have ratios of 3 to 50."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression methods allowed in a zip archive. Other decompressors allocate memory before they produce output."""


def read_small(path: Path, megabytes: int, what: str) -> str:
    """Read a text in UTF-8 from a file or a pipe. Refuse one of more bytes; ``what`` says what was expected."""
    with open(path, "rb", opener=_open_at_once) as file:
        data = file.read((megabytes << 20) + 1)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is a pipe that nothing was written to: start its writer first, or name a file.")
    if len(data) > megabytes << 20:
        raise ValueError(f"{path} is larger than {megabytes} MB: {what}.")
    return data.decode("utf-8-sig")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A named pipe does not wait for a writer."""
    if not hasattr(os, "O_NONBLOCK"):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def most(length: int) -> int:
    """The largest decompressed size of a file of ``length`` bytes."""
    return max(FREE, MOST_GROWTH * length)


def check_growth(name: str, grown: int, length: int) -> None:
    """Refuse a file of ``length`` bytes whose decompressed size ``grown`` is above the limit."""
    if grown > most(length):
        raise ValueError(
            f"{name} grows to more than {MOST_GROWTH} times its length when decompressed, which neither text nor "
            "counts do: it is refused. Decompress it yourself if you trust it."
        )


def check_shape(name: str, rows: int, columns: int, length: int) -> None:
    """Refuse a matrix that claims more rows or columns than a file of ``length`` bytes can fill.

    Empty rows and columns cost memory, too.
    """
    if rows < 0 or columns < 0:
        raise ValueError(f"{name} says that it has {rows} rows and {columns} columns.")
    if 8 * max(rows, columns) > most(length):
        raise ValueError(
            f"{name} says that it has {rows} rows and {columns} columns, far more than its {length} bytes can fill: it "
            "is refused. Remove the empty ones."
        )


def check_zip_growth(file: IO[bytes], name: str) -> None:
    """Refuse a zip archive (such as an npz file) whose directory lists more bytes than the limit.

    A directory that understates a member does no harm: Python's reader stops at the listed length.
    """
    length = file.seek(0, 2)
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except Exception as error:  # zipfile may raise anything on a damaged file
        raise ValueError(f"{name} is damaged, or not a zip archive: {error}.") from error
    finally:
        file.seek(0)
    check_growth(name, sum(info.file_size for info in infos), length)
    if unusual := next((info.filename for info in infos if info.compress_type not in METHODS), None):
        raise ValueError(
            f"{name} holds {unusual[:200]!r}, compressed in a way that npz files never are: it is refused. Unpack it "
            "yourself if you trust it."
        )


class Bounded(io.RawIOBase):
    """A decompressed stream that raises once its output is too large for the ``length()`` bytes read so far.

    ``inner`` is the decompressor, and ``name`` the file for error messages.
    """

    def __init__(self, inner: IO[bytes], name: str, length: Callable[[], int]) -> None:
        self.inner, self.name, self.length = inner, name, length
        self.count = 0

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
