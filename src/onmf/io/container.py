"""A file of arrays and JSON that is safe to read: no pickle, no code, and memory bounded by the file's length.

The container is a zip file. ``metadata.json`` names the format and lists every other member with its length and
SHA-256. ``arrays/NAME.npy`` and ``parts/NAME.json`` hold the contents. No member is compressed, so reading a file never
takes more memory than a small multiple of its length, whatever sizes it claims.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from onmf.divergence import Array

from .files import write_whole

METADATA = "metadata.json"
MEMBER = re.compile(r"(arrays/[A-Za-z0-9_.-]{1,80}\.npy|parts/[A-Za-z0-9_.-]{1,80}\.json)")
MOST_MEMBERS = 1000
LARGEST_METADATA = 1 << 24
DEEPEST = 100
"""Levels of nesting that JSON may have; recursion to this depth is safe."""

LONGEST = 1 << 40
"""Largest length of an axis."""

BROKEN = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, RuntimeError, OSError),
    *(ValueError, KeyError, IndexError, OverflowError, struct.error),
)
"""Exceptions that :mod:`zipfile` raises for a damaged file."""


@dataclass(frozen=True)
class Container:
    """The contents of a file.

    Attributes
    ----------
    metadata : dict
        The contents of ``metadata.json``, without the list of members.
    arrays : dict of str to array
        Arrays of numbers.
    parts : dict of str to object
        JSON values.
    """

    metadata: dict[str, Any]
    arrays: dict[str, Array]
    parts: dict[str, Any]


def write_container(path: str | os.PathLike[str], contents: Container, *, kind: str, version: int) -> None:
    """Write the file whole or not at all.

    Parameters
    ----------
    path : str or path
        The file.
    contents : Container
        Arrays must hold numbers, and parts must be JSON values.
    kind, version : str, int
        Name and version of the format.
    """
    members = {f"arrays/{name}.npy": _array_bytes(name, array) for name, array in contents.arrays.items()}
    members |= {f"parts/{name}.json": _json_bytes(name, part) for name, part in contents.parts.items()}
    for name in members:
        if not MEMBER.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name for a part: use letters, digits, '_', '-' and '.'.")
    listed = {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in members.items()}
    metadata = {"format": kind, "format_version": version, **contents.metadata, "members": listed}
    first = {METADATA: _json_bytes("metadata", metadata)}

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in {**first, **members}.items():
                archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), data)

    write_whole(Path(path), write)


def read_container(path: str | os.PathLike[str], *, kind: str, version: int) -> Container:
    """Read a file. Lengths and checksums are verified before the contents are used.

    Parameters
    ----------
    path : str or path
        The file.
    kind, version : str, int
        Name of the format, and its newest version that this code can read.

    Returns
    -------
    Container

    Raises
    ------
    ValueError
        If the file is of another format or of a newer version, damaged, or malicious.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not {kind}: name a file.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
        raise ValueError(f"{path} is not {kind}: it is a device or a pipe, not a file.")
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(path, archive, kind, version)
        except Refused:
            raise
        except BROKEN as error:
            raise Refused(f"{path} is not {kind}, or is damaged: {_reason(error)}.") from error


class Refused(ValueError):
    """A file is damaged or of another format. The message names the file."""


def damaged(path: Any, what: str) -> ValueError:
    """The error for a damaged file; ``what`` says what is wrong inside it."""
    return Refused(f"{path} is damaged: {what}. Write it again, or take another copy.")


def _read(path: Path, archive: zipfile.ZipFile, kind: str, version: int) -> Container:
    infos = _directory(path, archive, kind)
    if infos[METADATA].file_size > LARGEST_METADATA:
        raise damaged(path, f"its {METADATA} is too large")
    metadata = _parse(path, METADATA, archive.read(METADATA))
    if not isinstance(metadata, dict) or metadata.get("format") != kind:
        raise Refused(f"{path} is not {kind}: its {METADATA} names another format.")
    written = metadata.get("format_version")
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise damaged(path, "it does not state its format version")
    if written > version:
        newer = str(metadata.get("onmf_version", "unknown"))[:20]
        raise Refused(
            f"{path} was written by a newer onmf ({newer}, format {written}); this one reads up to format {version}: "
            "upgrade onmf."
        )
    listed = metadata.pop("members", None)
    if not isinstance(listed, dict) or set(listed) != set(infos) - {METADATA}:
        raise damaged(path, f"its members differ from those that its {METADATA} lists")
    contents = Container(metadata, {}, {})
    for name, expected in listed.items():
        if not isinstance(expected, dict) or expected.get("bytes") != infos[name].file_size:
            raise damaged(path, f"the length of {name} differs from the one in its {METADATA}")
        data = archive.read(name)
        if _digest(data) != expected.get("sha256"):
            raise damaged(path, f"the checksum of {name} is wrong")
        short = name.split("/")[1].rsplit(".", 1)[0]
        if name.startswith("arrays/"):
            contents.arrays[short] = _parse_array(path, name, data)
        else:
            contents.parts[short] = _parse(path, name, data)
    return contents


def _directory(path: Path, archive: zipfile.ZipFile, kind: str) -> dict[str, zipfile.ZipInfo]:
    """The members by name, after all checks that need only the directory of the zip file."""
    entries = archive.infolist()
    infos = {info.filename: info for info in entries}
    if METADATA not in infos:
        raise Refused(f"{path} is not {kind}: it is a zip file without {METADATA}.")
    if len(entries) > MOST_MEMBERS or len(infos) < len(entries):
        raise damaged(path, "it has too many members, or the same one twice")
    for info in entries:
        if info.filename != METADATA and not MEMBER.fullmatch(info.filename):
            raise damaged(path, f"it holds {info.filename[:80]!r}, which does not belong there")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1 or info.file_size != info.compress_size:
            raise damaged(path, f"{info.filename} is compressed or encrypted, which is not allowed")
    if sum(info.file_size for info in entries) > path.stat().st_size:
        raise damaged(path, "its members claim to be longer than the file")
    return infos


def _array_bytes(name: str, array: Array) -> bytes:
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {array.dtype} values: only arrays of numbers can be stored.")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _parse_array(path: Path, name: str, data: bytes) -> Array:
    """The array in a .npy file. Its shape is checked against the number of bytes before memory is allocated."""
    buffer = io.BytesIO(data)
    try:
        written = np.lib.format.read_magic(buffer)
        if written != (1, 0):
            raise ValueError(f"version {written}")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(buffer)
    except Exception as error:  # which exception NumPy's parser raises depends on its version
        raise damaged(path, f"{name} has no valid .npy header") from error
    start = buffer.tell()
    if dtype.kind not in "biuf" or fortran_order or dtype.hasobject or dtype.subdtype is not None:
        raise damaged(path, f"{name} holds something other than plain numbers")
    plausible = len(shape) <= 32 and all(0 <= length <= LONGEST for length in shape)
    if not plausible or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise damaged(path, f"{name} claims the shape {str(shape)[:80]}, which its length contradicts")
    array = np.frombuffer(memoryview(data)[start:], dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=True)


def _json_bytes(name: str, value: Any) -> bytes:
    try:
        data = json.dumps(value, ensure_ascii=False, indent=1, default=_plain).encode()
        _json(data)  # do not write what could not be read back
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be stored as JSON: {_reason(error)}.") from error
    return data


def _plain(value: Any) -> Any:
    """Convert a NumPy value for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a number, string, list or dict")


def _parse(path: Path, name: str, data: bytes) -> Any:
    try:
        return _json(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"{name} is not JSON: {_reason(error)[:200]}") from error


def _json(data: bytes) -> Any:
    """Parse JSON; refuse duplicate names, lone surrogates and deep nesting."""
    value = json.loads(data.decode(), object_pairs_hook=_object)
    level = [value]
    for _ in range(DEEPEST):
        for text in level:
            if isinstance(text, str) and not text.isascii():
                text.encode()  # raises for a lone surrogate
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return value
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def _children(value: Any) -> Iterable[Any]:
    """The elements of a list, or the names and values of an object."""
    if isinstance(value, dict):
        return chain(value, value.values())
    return value if isinstance(value, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has the same name twice")
    return members


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: BaseException) -> str:
    """The message of an error on one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
