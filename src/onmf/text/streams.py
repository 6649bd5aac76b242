"""Compressed files and archives as byte streams. Nothing is unpacked to disk, and all sizes are bounded."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import PurePosixPath
from typing import IO, Any, AnyStr, NamedTuple

from onmf.io.limits import Bounded, check_growth

LARGEST_DOCUMENT = 1 << 28
"""Bytes of the largest document, 256 MB. A larger text is a corpus, or an attack."""

LARGEST_HEADER = 1 << 24
"""Bytes of the largest header between two files of a tar archive, 16 MB. Names, owners and dates take a few hundred."""

LINK = "a link or device"
"""Reason for skipping anything that is not a regular file."""

DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""Errors of decompressors on damaged data, besides OSError and ValueError."""


class Member(NamedTuple):
    """A file in a folder or an archive: its path and its content."""

    name: str
    data: bytes


class Skipped(NamedTuple):
    """A file that was left out, and the reason."""

    name: str
    reason: str


class Counted(io.RawIOBase):
    """A stream that counts the bytes read from it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw = raw
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.raw.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class Decompressed(Bounded):
    """Decompressed bytes. Errors of the decompressor become a sentence that names the file."""

    def pull(self, size: int) -> bytes:
        try:
            return super().pull(size)
        except (*DECOMPRESSION_ERRORS, OSError, ValueError) as error:
            raise ValueError(f"{self.name} is damaged: {error}.") from error
        except Exception as error:
            if type(error).__name__ == "ZstdError":  # its module has another name in older versions
                raise ValueError(f"{self.name} is damaged: {error}.") from error
            raise


class Zstd(io.RawIOBase):
    """Decompressed bytes of a zst file. The package's own reader accepts a truncated frame as complete."""

    CHUNK = 2048  # bytes; they decompress to at most 64 MB

    def __init__(self, source: Counted, decompressor: Any) -> None:
        self.source = source
        self.decompressor = decompressor
        self.frame: Any = None
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            data = self.source.read(self.CHUNK)
            if not data:
                if self.frame is not None:
                    raise EOFError("it is truncated")
                return 0
            parts = []
            while data:
                if self.frame is None:
                    self.frame = self.decompressor.decompressobj()
                parts.append(self.frame.decompress(data))
                data = b""
                if self.frame.eof:
                    data, self.frame = self.frame.unused_data, None
            self.ready = memoryview(b"".join(parts))
        part, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def buffered(stream: Any) -> io.BufferedReader:
    """Wrap the stream so that its first bytes can be peeked at."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


def _gzip(source: Counted, name: str) -> Any:
    return gzip.GzipFile(fileobj=io.BufferedReader(source))


def _bz2(source: Counted, name: str) -> Any:
    return bz2.BZ2File(io.BufferedReader(source))


def _xz(source: Counted, name: str) -> Any:
    return lzma.LZMAFile(io.BufferedReader(source))


def _zstd(source: Counted, name: str) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise ImportError(f"{name} is a zst file, which needs zstandard: pip install 'onmf[text]'.") from error
    return io.BufferedReader(Zstd(source, zstandard.ZstdDecompressor()))


DECOMPRESSORS: dict[bytes, Callable[[Counted, str], Any]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": _bz2,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
}
"""Decompressors by the first bytes of a file."""


def decompressed(stream: IO[bytes], name: str) -> io.BufferedReader:
    """Return the stream, decompressed if its first bytes are those of a gz, bz2, xz or zst file."""
    raw = buffered(stream)
    head = raw.peek(6)[:6]
    decompress = next((function for magic, function in DECOMPRESSORS.items() if head.startswith(magic)), None)
    if decompress is None:
        return raw
    source = Counted(raw)
    return io.BufferedReader(Decompressed(decompress(source, name), name, lambda: source.count), 1 << 18)


def read_document(stream: IO[bytes], name: str) -> bytes:
    """Read a document, and refuse it if it is too large."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ValueError(
            f"{name} is larger than {LARGEST_DOCUMENT >> 20} MB, too large for one document: split it, or pass it "
            "as a file with one document per line."
        )
    return data


def bounded_lines(stream: IO[AnyStr], name: str, first: int = 1) -> Iterator[AnyStr]:
    """Yield the lines of a stream, numbered from ``first`` in errors.

    A line that is too long is refused before all of it is read.
    """
    for number in count(first):
        line = stream.readline(LARGEST_DOCUMENT + 1)
        if not line:
            return
        if len(line) > LARGEST_DOCUMENT:
            raise ValueError(
                f"Line {number} of {name} is longer than {LARGEST_DOCUMENT >> 20} MB, too long for a document."
            )
        yield line


class LimitedHeaders(io.RawIOBase):
    """A tar archive as a stream that refuses headers above :data:`LARGEST_HEADER`: a header may claim any length.

    ``allowance`` is the number of bytes that may still be read; the reader of the archive renews it for every file.
    """

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self.raw = raw
        self.name = name
        self.allowance = LARGEST_HEADER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.raw.read(min(len(buffer), 1 << 18))
        buffer[: len(data)] = data
        self.allowance -= len(data)
        if self.allowance < 0:
            raise ValueError(f"{self.name} is damaged or malicious: it has a header of more than 16 MB.")
        return len(data)


def is_tar(head: bytes) -> bool:
    """Whether these are the first bytes of a tar archive."""
    return head[257:262] == b"ustar"


def tar_members(stream: IO[bytes], name: str) -> Iterator[Member | Skipped]:
    """Yield the files of a tar archive in their order, reading it once from front to back."""
    limited = LimitedHeaders(stream, name)
    try:
        with tarfile.open(fileobj=io.BufferedReader(limited), mode="r|") as archive:
            for info in archive:
                check_name(info.name, name)
                limited.allowance = LARGEST_HEADER
                if info.islnk() or info.issym() or info.isdev():
                    yield Skipped(info.name, LINK)
                elif info.isfile():
                    if not 0 <= info.size <= LARGEST_DOCUMENT or info.issparse():
                        raise ValueError(
                            f"{name}: {info.name} is larger than {LARGEST_DOCUMENT >> 20} MB or a sparse "
                            "file, so it cannot be a document: the archive is refused."
                        )
                    limited.allowance += info.size
                    file = archive.extractfile(info)
                    assert file is not None
                    data = file.read()
                    limited.allowance = LARGEST_HEADER
                    yield Member(info.name, data)
    except (tarfile.TarError, EOFError, OverflowError, RecursionError, struct.error, UnicodeError) as error:
        raise ValueError(f"{name} is damaged: {error}.") from error


def zip_members(file: IO[bytes], name: str, length: int) -> Iterator[Member | Skipped]:
    """Yield the files of a zip archive in their order."""
    grown = 0
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            for info in infos:  # all names, before any file is read
                check_name(info.filename, name)
            for info in infos:
                if info.is_dir():
                    continue
                if info.flag_bits & 0x1:
                    raise ValueError(f"{name}: {info.filename} is encrypted: unpack the archive first.")
                if stat.S_ISLNK(info.external_attr >> 16):
                    yield Skipped(info.filename, LINK)
                    continue
                with archive.open(info) as member:
                    data = read_document(member, f"{name}: {info.filename}")
                grown += len(data)
                check_growth(name, grown, length)
                yield Member(info.filename, data)
    except (
        *(zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, struct.error, UnicodeError),
        *(KeyError, IndexError, OverflowError, *DECOMPRESSION_ERRORS),
    ) as error:
        raise ValueError(f"{name} is damaged, or not a readable zip file: {error}.") from error


def check_name(member: str, archive: str) -> None:
    """Refuse an archive with a member that would be unpacked outside its folder."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (len(member) > 1 and member[1] == ":"):
        raise ValueError(
            f"{archive} contains {member[:200]!r}, which would be unpacked outside its folder: the archive is refused."
        )
