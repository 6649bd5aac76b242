"""How far a file may grow while it is read: a stranger's file wastes no more than its own reading."""

from __future__ import annotations

import zipfile
from typing import IO

FREE = 100_000_000
"""Bytes that any file may grow to."""

MOST_GROWTH = 250
"""Beyond that, how many times its own length a compressed file may grow; text and counts grow 3 to 50 times."""


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


def check_zip_growth(file: IO[bytes], name: str) -> None:
    """Refuse a zip archive (an npz file is one) that would grow too far, by what its directory says.

    The directory cannot understate a member: Python's reader stops at the length that it gives.
    """
    length = file.seek(0, 2)
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            check_growth(name, sum(info.file_size for info in archive.infolist()), length)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{name} is damaged, or no zip archive: {error}.") from error
    finally:
        file.seek(0)
