"""How far a file may grow while it is read: a stranger's file wastes no more than its own reading."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import IO, Any

FREE = 100_000_000
"""Bytes that any file may grow to."""

MOST_GROWTH = 250
"""Beyond that, how many times its own length a compressed file may grow; text and counts grow 3 to 50 times."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of a zip archive may be compressed: other decompressors take memory before they give anything."""


def most(length: int) -> int:
    """Bytes that a file of ``length`` bytes may grow to."""
    return max(FREE, MOST_GROWTH * length)


def check_growth(name: str, grown: int, length: int) -> None:
    """Refuse a file of ``length`` bytes that has grown to ``grown`` bytes, more than text and counts do."""
    if grown > most(length):
        raise ValueError(
            f"{name} grows to more than {MOST_GROWTH} times its length when it is decompressed, as neither text nor "
            "counts do: it is refused. Decompress it yourself if you trust it."
        )


def check_shape(name: str, rows: int, columns: int, length: int) -> None:
    """Refuse a matrix whose file, of ``length`` bytes, announces more rows or columns than it can have entries in.

    Every row and every column costs memory of its own, also where it is empty.
    """
    if rows < 0 or columns < 0:
        raise ValueError(f"{name} says that it has {rows} rows and {columns} columns.")
    if 8 * max(rows, columns) > most(length):
        raise ValueError(
            f"{name} says that it has {rows} rows and {columns} columns, far more than its {length} bytes can fill: it "
            "is refused. Leave out the empty ones."
        )


def check_zip_growth(file: IO[bytes], name: str) -> None:
    """Refuse a zip archive (an npz file is one) that would grow too far, by what its directory says.

    The directory cannot understate a member: Python's reader stops at the length that it gives.
    """
    length = file.seek(0, 2)
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
    except Exception as error:  # zipfile raises whatever it stumbles over
        raise ValueError(f"{name} is damaged, or no zip archive: {error}.") from error
    finally:
        file.seek(0)
    check_growth(name, sum(info.file_size for info in infos), length)
    if odd := next((info.filename for info in infos if info.compress_type not in METHODS), None):
        raise ValueError(
            f"{name} holds {odd[:200]!r}, compressed in a way that npz files never are: it is refused. Unpack it "
            "yourself if you trust it."
        )


class Bounded(io.RawIOBase):
    """What comes out of a decompressor, refused once it outgrows the ``length()`` bytes that went in."""

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
        """The next bytes, at most ``size``."""
        return self.inner.read(size)
