"""A file of arrays and JSON that can be trusted to do nothing: no pickle, no code, no surprise in size.

The container is a zip file. ``metadata.json`` says what it is and names every other member with its length and SHA-256;
``arrays/NAME.npy`` and ``parts/NAME.json`` hold the contents. All members are stored as they are, uncompressed: reading
a file never takes more memory than a small multiple of its own length, whatever it claims.
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
"""Lists within lists that JSON may hold here, few enough for any stack."""

LONGEST = 1 << 40
"""Length of an axis that no array has."""

BROKEN = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, RuntimeError, OSError),
    *(ValueError, KeyError, IndexError, OverflowError, struct.error),
)
"""What Python's reader of zip files raises where one is damaged."""


@dataclass(frozen=True)
class Container:
    """What a file holds.

    Attributes
    ----------
    metadata : dict
        What it says of itself.
    arrays : dict of str to array
        Numbers.
    parts : dict of str to object
        Whatever JSON can say.
    """

    metadata: dict[str, Any]
    arrays: dict[str, Array]
    parts: dict[str, Any]


def write_container(path: str | os.PathLike[str], contents: Container, *, kind: str, version: int) -> None:
    """Write the file whole or not at all.

    Parameters
    ----------
    path : str or path
        Where to.
    contents : Container
        Arrays must hold plain numbers; parts, what JSON can say.
    kind, version : str, int
        What the file is, and which version of its format.
    """
    members = {f"arrays/{name}.npy": _array_bytes(name, array) for name, array in contents.arrays.items()}
    members |= {f"parts/{name}.json": _json_bytes(name, part) for name, part in contents.parts.items()}
    for name in members:
        if not MEMBER.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a part of a file: use letters, digits, '_', '-' and '.'.")
    listed = {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in members.items()}
    head = {"format": kind, "format_version": version, **contents.metadata, "members": listed}
    first = _json_bytes("metadata", head)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in {METADATA: first, **members}.items():
                archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), data)

    write_whole(Path(path), write)


def read_container(path: str | os.PathLike[str], *, kind: str, version: int) -> Container:
    """Read a file, checked to the last bit before anything in it is believed.

    Parameters
    ----------
    path : str or path
        Where from.
    kind, version : str, int
        What the file has to be, and the newest version of its format that is understood.

    Returns
    -------
    Container

    Raises
    ------
    ValueError
        If it is anything else: another file, a damaged one, one of a newer version, or a trap.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not {kind}: name a file.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
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
    """A file is not what it should be; the sentence names it."""


def damaged(path: Any, what: str) -> ValueError:
    """The error that says what is wrong inside a file."""
    return Refused(f"{path} is damaged: {what}. Write it again, or take another copy.")


def _read(path: Path, archive: zipfile.ZipFile, kind: str, version: int) -> Container:
    infos = _directory(path, archive, kind)
    if infos[METADATA].file_size > LARGEST_METADATA:
        raise damaged(path, f"its {METADATA} is larger than any that is written")
    head = _parse(path, METADATA, archive.read(METADATA))
    if not isinstance(head, dict) or head.get("format") != kind:
        raise Refused(f"{path} is not {kind}: its {METADATA} says something else.")
    written = head.get("format_version")
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise damaged(path, "it does not say which version of the format it is")
    if written > version:
        newer = str(head.get("onmf_version", "unknown"))[:20]
        raise Refused(
            f"{path} was written by a newer onmf ({newer}, format {written}); this one reads up to format {version}: "
            "upgrade onmf."
        )
    listed = head.pop("members", None)
    if not isinstance(listed, dict) or set(listed) != set(infos) - {METADATA}:
        raise damaged(path, f"its members are not those that its {METADATA} lists")
    contents = Container(head, {}, {})
    for name, expected in listed.items():
        if not isinstance(expected, dict) or expected.get("bytes") != infos[name].file_size:
            raise damaged(path, f"{name} has another length than its {METADATA} says")
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
    """The members by name, after every check that needs none of their bytes."""
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
            raise damaged(path, f"{info.filename} is compressed or encrypted, which no such file is")
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
    """An array from the bytes of a .npy file, whose shape is compared with their number before it is made."""
    buffer = io.BytesIO(data)
    try:
        written = np.lib.format.read_magic(buffer)
        if written != (1, 0):
            raise ValueError(f"version {written}")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(buffer)
    except Exception as error:  # NumPy parses the header with ast: what it raises differs from version to version
        raise damaged(path, f"{name} has no header of a .npy file") from error
    start = buffer.tell()
    if dtype.kind not in "biuf" or fortran_order or dtype.hasobject or dtype.subdtype is not None:
        raise damaged(path, f"{name} holds something other than plain numbers")
    sound = len(shape) <= 32 and all(0 <= length <= LONGEST for length in shape)
    if not sound or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise damaged(path, f"{name} claims the shape {str(shape)[:80]}, which its length contradicts")
    array = np.frombuffer(memoryview(data)[start:], dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=True)


def _json_bytes(name: str, value: Any) -> bytes:
    try:
        data = json.dumps(value, ensure_ascii=False, indent=1, default=_plain).encode()
        _json(data)  # what nobody could read again is not written
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} cannot be stored as JSON: {_reason(error)}.") from error
    return data


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is neither number, text, list nor dict")


def _parse(path: Path, name: str, data: bytes) -> Any:
    try:
        return _json(data)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"{name} is not JSON: {_reason(error)[:200]}") from error


def _json(data: bytes) -> Any:
    """What JSON says: no name twice, no half of a character, and not too deep."""
    value = json.loads(data.decode(), object_pairs_hook=_record)
    level = [value]
    for _ in range(DEEPEST):
        for text in level:
            if isinstance(text, str) and not text.isascii():
                text.encode()
        level = [item for whole in level for item in _items(whole)]
        if not level:
            return value
    raise ValueError(f"it is more than {DEEPEST} levels deep")


def _items(value: Any) -> Iterable[Any]:
    """What a list or a record holds, the names of a record included."""
    if isinstance(value, dict):
        return chain(value, value.values())
    return value if isinstance(value, list) else ()


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a record has the same name twice")
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
