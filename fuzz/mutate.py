"""Damages bytes: flips, cuts, swaps and critical numbers, also inside checksums and compression."""

from __future__ import annotations

import ast
import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**16, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 10**9)
NUMBERS += (2**53, 2**63 - 1, -(2**31), -(2**63), 10**18)
WORDS = (
    b"nan",
    b"inf",
    b"-1",
    b"1e400",
    b"-0",
    b"\0",
    b"\r",
    b"\n",
    b'"',
    b",",
    b"%",
    b"#",
    b":",
    b"{",
    b"}",
    b"[",
    b"1.5",
)
WORDS += (b"99999999999999999999", b"\xff\xfe", b"\xef\xbb\xbf", b"../../x", b"\x1b[31m", b"=1+1", b"1" * 400, b"\t")
LEAVES: tuple[Any, ...] = (None, True, -1, 0, 10**400, 1.5, float("nan"), float("inf"), "", "x", "../x", [], {}, [[1]])
LEAVES += ("gpu", "consensus", "(a+)+b", "\x00", 2**63, -1e308, {"array": "labels"}, {"divergence": "Cosine"}, [[[[]]]])


def tamper(rng: Random, name: str, data: bytes) -> bytes:
    """Damage the bytes of a file, or its unpacked content, which is then packed with correct checksums."""
    if rng.random() < 0.5:
        for unpack in INSIDE:
            try:
                changed = unpack(rng, name, data)
            except Exception:  # it was already damaged and cannot be unpacked; damage its bytes instead
                changed = None
            if changed is not None:
                return changed
    return damage(rng, data)


def damage(rng: Random, data: bytes) -> bytes:
    """Make a few random changes to the bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        data = rng.choice(CHANGES)(rng, data)
    return data


def position(rng: Random, data: bytes, size: int = 1) -> int:
    """Draw an offset with ``size`` bytes after it, often near the beginning or the end, where headers are."""
    last = max(len(data) - size, 0)
    draw = rng.random()
    if draw < 0.3:
        return rng.randint(0, min(last, 400))
    if draw < 0.45:
        return rng.randint(max(last - 200, 0), last)
    return rng.randint(0, last)


def flip(rng: Random, data: bytes) -> bytes:
    """Flip one bit."""
    return over(data, position(rng, data), lambda old: bytes([old[0] ^ 1 << rng.randrange(8)]), 1)


def set_byte(rng: Random, data: bytes) -> bytes:
    """Set one byte."""
    return over(
        data, position(rng, data), lambda old: bytes([rng.choice((0, 255, 127, 128, 1, rng.randrange(256)))]), 1
    )


def set_number(rng: Random, data: bytes) -> bytes:
    """Set a number of 2, 4 or 8 bytes."""
    form = rng.choice("hiq")
    size = struct.calcsize(form)
    value = (rng.choice(NUMBERS) + 2 ** (8 * size - 1)) % 2 ** (8 * size) - 2 ** (8 * size - 1)
    return over(data, position(rng, data, size), lambda old: struct.pack(rng.choice("<>") + form, value), size)


def add_to_number(rng: Random, data: bytes) -> bytes:
    """Add a small number to 4 bytes, which may be a length or an offset."""
    order, step = rng.choice(("little", "big")), rng.choice((-1, 1, -8, 8, 64))

    def change(old: bytes) -> bytes:
        return ((int.from_bytes(old, order) + step) % 2**32).to_bytes(4, order)  # type: ignore[arg-type]

    return over(data, position(rng, data, 4), change, 4)


def over(data: bytes, at: int, change: Callable[[bytes], bytes], size: int) -> bytes:
    """Change ``size`` bytes at an offset, if there are enough."""
    old = data[at : at + size]
    return data if len(old) < size else data[:at] + change(old) + data[at + size :]


def truncate(rng: Random, data: bytes) -> bytes:
    """Cut off the end, as an interrupted copy does."""
    return data[: rng.choice((0, 1, len(data) - 1, len(data) // 2, rng.randint(0, len(data))))]


def insert(rng: Random, data: bytes) -> bytes:
    """Insert bytes."""
    at = position(rng, data)
    return data[:at] + rng.choice((*WORDS, rng.randbytes(rng.randint(1, 40)))) + data[at:]


def cut(rng: Random, data: bytes) -> bytes:
    """Remove bytes."""
    at = position(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 4, 16, 100)) :]


def swap(rng: Random, data: bytes) -> bytes:
    """Swap two pieces."""
    size = rng.choice((1, 4, 16, 64))
    a, b = sorted((position(rng, data, size), position(rng, data, size)))
    if a + size > b:
        return data
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def repeat(rng: Random, data: bytes) -> bytes:
    """Repeat a piece."""
    at, size = position(rng, data), rng.choice((1, 8, 64, 300))
    return data[: at + size] + data[at : at + size] * rng.choice((1, 1, 3)) + data[at + size :]


def blank(rng: Random, data: bytes) -> bytes:
    """Overwrite a piece with zeros or ones."""
    size = rng.choice((4, 16, 128))
    return over(data, position(rng, data, size), lambda old: rng.choice((b"\0", b"\xff")) * size, size)


def other_digits(rng: Random, data: bytes) -> bytes:
    """Replace a number that is written in digits."""
    matches = list(re.finditer(rb"-?\d+(\.\d+)?", data[:4096]))
    if not matches:
        return flip(rng, data)
    match = rng.choice(matches)
    number = rng.choice((str(rng.choice(NUMBERS)).encode(), rng.choice(WORDS)))
    return data[: match.start()] + number + data[match.end() :]


CHANGES = (flip, set_byte, set_number, add_to_number, truncate, insert, cut, swap, repeat, blank, other_digits)
CHANGES += (flip, set_byte, set_number, other_digits)


def inside_zip(rng: Random, name: str, data: bytes) -> bytes | None:
    """Damage a member of a zip archive; a model file gets correct checksums."""
    if not data.startswith(b"PK"):
        return None
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    chosen = rng.choice(list(members))
    draw = rng.random()
    if draw < 0.85:
        members[chosen] = tamper(rng, chosen, members[chosen])
    elif draw < 0.9:
        del members[chosen]
    elif draw < 0.95:
        members[rng.choice(("x", "../x", "arrays/x.npy", "a/" * 90 + "x"))] = members[chosen]
    else:
        methods[chosen] = zipfile.ZIP_DEFLATED
    if "metadata.json" in members and rng.random() < 0.9:
        with contextlib.suppress(ValueError, TypeError):  # no longer JSON, or not an object
            members["metadata.json"] = with_checksums(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0))
            archive.writestr(info, content, methods.get(member, zipfile.ZIP_STORED))
    return out.getvalue()


def with_checksums(members: dict[str, bytes]) -> bytes:
    """Return the metadata of a model file with correct checksums of its members."""
    head = json.loads(members["metadata.json"])
    listed = {name: content for name, content in members.items() if name != "metadata.json"}
    head["members"] = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in listed.items()
    }
    return json.dumps(head, indent=1).encode()


def inside_stream(rng: Random, name: str, data: bytes) -> bytes | None:
    """Damage the content of a gzip, bzip2, xz or zstd stream."""
    if data.startswith(b"\x1f\x8b"):
        return gzip.compress(tamper(rng, name, gzip.decompress(data)), mtime=0)
    if data.startswith(b"BZh"):
        return bz2.compress(tamper(rng, name, bz2.decompress(data)))
    if data.startswith(b"\xfd7zXZ"):
        return lzma.compress(tamper(rng, name, lzma.decompress(data)))
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        return zstandard.compress(tamper(rng, name, zstandard.decompress(data)))
    return None


def inside_tar(rng: Random, name: str, data: bytes) -> bytes | None:
    """Damage a header of a tar archive, with a correct checksum, or a member."""
    if data[257:262] != b"ustar":
        return None
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        starts = [(member.offset, member.offset_data, member.size) for member in archive]
    header, begin, size = rng.choice(starts)
    if rng.random() < 0.5:
        return data[:begin] + damage(rng, data[begin : begin + size]) + data[begin + size :]
    block = bytearray(over(data[header : header + 512], rng.randrange(500), lambda old: rng.choice(WORDS)[:1], 1))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:header] + bytes(block) + data[header + 512 :]


def inside_json(rng: Random, name: str, data: bytes) -> bytes | None:
    """Replace or remove a value in JSON."""
    if not name.endswith((".json", "jsonl", ".zarray", ".zattrs", ".zgroup")):
        return None
    lines = data.split(b"\n") if name.endswith("jsonl") else [data]
    number = rng.randrange(len(lines))
    document = json.loads(lines[number])
    entries: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in list(keys)[:50]:
            entries.append((value, key))
            walk(value[key])

    walk(document)
    if not entries:
        return None
    parent, key = rng.choice(entries)
    if isinstance(parent, dict) and rng.random() < 0.2:
        del parent[key]
    else:
        parent[key] = rng.choice(LEAVES)
    lines[number] = json.dumps(document).encode()
    return b"\n".join(lines)


def inside_npy(rng: Random, name: str, data: bytes) -> bytes | None:
    """Change the shape or type in the header of an npy file, or one of its numbers."""
    if not data.startswith(b"\x93NUMPY\x01"):
        return None
    end = 10 + int.from_bytes(data[8:10], "little")
    if rng.random() < 0.5:
        size = rng.choice((1, 4, 8))
        return data[:end] + set_number(rng, data[end:]) if len(data) > end + size else None
    header: dict[str, Any] = ast.literal_eval(data[10:end].decode())
    key = rng.choice(("shape", "shape", "descr", "fortran_order"))
    header[key] = {
        "shape": rng.choice((tuple(rng.choice(NUMBERS) for _ in header["shape"]), (), (*header["shape"], 1), (0,))),
        "descr": rng.choice(("<f8", "<f4", "|O", "<U3", "<c16", "|b1", "<i8", ">i4", "|u1", "<M8[s]", "<f2", "|V8")),
        "fortran_order": rng.choice((True, False, 7, "x")),
    }[key]
    text = repr(header).encode().ljust(end - 11) + b"\n"
    return data[:8] + struct.pack("<H", len(text)) + text + data[end:]


def inside_hdf5(rng: Random, name: str, data: bytes) -> bytes | None:
    """Change an array or attribute of an HDF5 file, through the HDF5 library."""
    if b"\x89HDF" not in data[:1024]:
        return None
    import h5py
    import numpy as np

    file = io.BytesIO(data)
    with h5py.File(file, "r+") as opened:
        items: list[Any] = []
        opened.visititems(lambda _, item: items.append(item))
        arrays = [item for item in items if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf" and item.size]
        with_attributes = [item for item in items if len(item.attrs)]
        if with_attributes and rng.random() < 0.3:
            item = rng.choice(with_attributes)
            key = rng.choice(sorted(item.attrs))
            item.attrs[key] = rng.choice((0, -1, [2**40, 3], "x", [3], [[1, 2]], np.nan, "csc_matrix"))
        else:
            item = rng.choice(arrays)
            values = item[...]
            number = rng.choice(NUMBERS)
            with np.errstate(all="ignore"):
                values.reshape(-1)[rng.randrange(values.size)] = np.array(number).astype(values.dtype)
            item[...] = values
    return file.getvalue()


INSIDE = (inside_zip, inside_stream, inside_tar, inside_json, inside_npy, inside_hdf5)
