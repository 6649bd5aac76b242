"""Compressed files and archives as streams of bytes: nothing is unpacked to disk, and nothing grows without end."""

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
from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath
from typing import IO, Any, AnyStr, NamedTuple

from onmf.io.limits import Bounded, check_growth

LARGEST_DOCUMENT = 1 << 28
"""Bytes of one document, 256 MB: a text of that size is no document but a corpus, or a trap."""

LARGEST_HEADER = 1 << 24
"""Bytes between two files of a tar archive, 16 MB: names, owners and dates take a few hundred."""

LINK = "a link or device"
"""Why what is no file is left out."""

MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}

DECOMPRESS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""What decompressors raise on damaged data, besides OSError and ValueError."""


class Member(NamedTuple):
    """A file in a folder or an archive: its path, and what it holds."""

    name: str
    data: bytes


class Skipped(NamedTuple):
    """A file that was left out, and why."""

    name: str
    reason: str


class Counted(io.RawIOBase):
    """A stream that counts what was read from it."""

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
    """What comes out of a decompressor; what it stumbles over is a sentence that names the file."""

    def pull(self, size: int) -> bytes:
        try:
            return super().pull(size)
        except (*DECOMPRESS, OSError, ValueError) as error:
            raise ValueError(f"{self.name} is damaged: {error}.") from error
        except Exception as error:
            if type(error).__module__.startswith("zstandard"):
                raise ValueError(f"{self.name} is damaged: {error}.") from error
            raise


class Zstd(io.RawIOBase):
    """What comes out of a zst file. The package's own reader takes a frame that breaks off for a whole one."""

    CHUNK = 2048  # bytes that can grow to 64 MB, no more

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
                    raise EOFError("it breaks off")
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
    """The stream, so that its first bytes can be looked at."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


def decompressed(stream: IO[bytes], name: str) -> io.BufferedReader:
    """The stream, decompressed if it begins as a gz, bz2, xz or zst file does."""
    raw = buffered(stream)
    head = raw.peek(6)[:6]
    kind = next((kind for magic, kind in MAGIC.items() if head.startswith(magic)), None)
    if kind is None:
        return raw
    source: Any = Counted(raw)
    inner: Any
    match kind:
        case "gz":
            inner = gzip.GzipFile(fileobj=io.BufferedReader(source))
        case "bz2":
            inner = bz2.BZ2File(io.BufferedReader(source))
        case "xz":
            inner = lzma.LZMAFile(io.BufferedReader(source))  # noqa: SIM115
        case _:
            try:
                import zstandard
            except ImportError as error:
                raise ImportError(f"{name} is a zst file, which needs zstandard: pip install 'onmf[text]'.") from error
            inner = io.BufferedReader(Zstd(source, zstandard.ZstdDecompressor()))
    return io.BufferedReader(Decompressed(inner, name, lambda: source.count), 1 << 18)


def read_document(stream: IO[bytes], name: str) -> bytes:
    """All bytes of a document, if it is one."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ValueError(
            f"{name} is larger than {LARGEST_DOCUMENT >> 20} MB, too large for one document: split it, or give it as a "
            "file with one document a line."
        )
    return data


def bounded_lines(stream: IO[AnyStr], name: str, first: int = 1) -> Iterator[AnyStr]:
    """The lines of a stream from the one with the number ``first``; one that does not end is not read to its end."""
    for number in count(first):
        line = stream.readline(LARGEST_DOCUMENT + 1)
        if not line:
            return
        if len(line) > LARGEST_DOCUMENT:
            raise ValueError(f"Line {number} of {name} is longer than {LARGEST_DOCUMENT >> 20} MB: no document.")
        yield line


class Paced(io.RawIOBase):
    """A tar archive, refused where it is read far without a file in it: a header may claim any length."""

    def __init__(self, raw: IO[bytes], name: str) -> None:
        self.raw = raw
        self.name = name
        self.left = LARGEST_HEADER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.raw.read(min(len(buffer), 1 << 18))
        buffer[: len(data)] = data
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"{self.name} is damaged, or a trap: it has a header of more than 16 MB.")
        return len(data)


def is_tar(head: bytes) -> bool:
    """Whether a file that begins like this is a tar archive."""
    return head[257:262] == b"ustar"


def tar_members(stream: IO[bytes], name: str) -> Iterator[Member | Skipped]:
    """The files of a tar archive, in its order, read once from front to back."""
    paced = Paced(stream, name)
    try:
        with tarfile.open(fileobj=io.BufferedReader(paced), mode="r|") as archive:
            for info in archive:
                check_name(info.name, name)
                paced.left = LARGEST_HEADER
                if info.islnk() or info.issym() or info.isdev():
                    yield Skipped(info.name, LINK)
                elif info.isfile():
                    if not 0 <= info.size <= LARGEST_DOCUMENT or info.issparse():
                        raise ValueError(
                            f"{name}: {info.name} is larger than {LARGEST_DOCUMENT >> 20} MB, or has holes, as no "
                            "document does: the archive is refused."
                        )
                    paced.left += info.size
                    file = archive.extractfile(info)
                    assert file is not None
                    data = file.read()
                    paced.left = LARGEST_HEADER
                    yield Member(info.name, data)
    except (tarfile.TarError, EOFError, OverflowError, RecursionError, struct.error, UnicodeError) as error:
        raise ValueError(f"{name} is damaged: {error}.") from error


def zip_members(file: IO[bytes], name: str, length: int) -> Iterator[Member | Skipped]:
    """The files of a zip archive, in its order."""
    grown = 0
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            for info in infos:  # before any is read
                check_name(info.filename, name)
            for info in infos:
                if info.is_dir():
                    continue
                if info.flag_bits & 0x1:
                    raise ValueError(f"{name}: {info.filename} is encrypted: unpack the archive yourself.")
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
        *(KeyError, IndexError, OverflowError, *DECOMPRESS),
    ) as error:
        raise ValueError(f"{name} is damaged, or no zip file that can be read: {error}.") from error


def check_name(member: str, archive: str) -> None:
    """Refuse an archive with a member that would be unpacked outside its folder."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (len(member) > 1 and member[1] == ":"):
        raise ValueError(
            f"{archive} holds {member[:200]!r}, which would be unpacked outside its folder: the archive is refused."
        )
