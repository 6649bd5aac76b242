"""Bytes to text: UTF-8 where it is, a detected encoding where it is not, and never a crash."""

from __future__ import annotations

import codecs
import re

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Marks at the beginning of a file that name its encoding; UTF-32 first, whose mark begins like that of UTF-16."""

ENOUGH = 16
"""Foreign bytes that a detection needs to be better than the most common guess."""

SAMPLE = 1 << 16
"""Bytes that a detection looks at."""

GUESS = "cp1252"
"""What most text is that is not UTF-8."""

MAGIC = (
    b"%PDF-",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\x7fELF",
    b"MZ",
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0",
    b"SQLite format",
)
"""How files begin that are no text, whatever their bytes look like."""

CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def bom_encoding(head: bytes) -> str | None:
    """The encoding that the first bytes name, if they do."""
    return next((name for mark, name in BOMS if head.startswith(mark)), None)


def is_binary(data: bytes) -> bool:
    """Whether this is no text at all: a picture, a program, an archive."""
    head = data[:8192]
    if bom_encoding(head):
        return False
    if head.startswith(MAGIC) or b"\0" in head:
        return True
    return len(CONTROL.findall(head)) > 0.1 * len(head)


def decode(data: bytes) -> tuple[str, str | None]:
    """The text, and the encoding it was repaired from: None where it was good UTF-8 or named its encoding itself."""
    mark = bom_encoding(data)
    try:
        return data.decode(mark or "utf-8"), None
    except UnicodeDecodeError:
        pass
    if mark:
        return data.decode(mark, errors="replace"), mark
    encoding = detect(data)
    return data.decode(encoding, errors="replace"), encoding


def detect(data: bytes) -> str:
    """The likeliest encoding of bytes that are not UTF-8.

    A text that is UTF-8 but for a few bytes stays UTF-8: those are damage, not an encoding.
    """
    head = data[:SAMPLE]
    lenient = head.decode("utf-8", errors="ignore")
    foreign = sum(byte > 127 for byte in head)
    good = sum(len(c.encode()) for c in lenient if ord(c) > 127)
    if good > 0.8 * foreign and good >= ENOUGH:
        return "utf-8"
    if foreign < ENOUGH:
        return GUESS
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise ImportError("Text that is not UTF-8 needs charset-normalizer: pip install 'onmf[text]'.") from error
    best = from_bytes(head).best()
    return GUESS if best is None else best.encoding


def whole(text: str) -> str:
    """The text without halves of characters, which JSON can hold and nobody can write."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


def repair(text: str) -> tuple[str, str | None]:
    """As :func:`decode`, for a field of a table that was read as UTF-8 with ``errors="surrogateescape"``."""
    if text.isascii():
        return text, None
    try:
        text.encode()
    except UnicodeEncodeError:
        return decode(text.encode("utf-8", errors="surrogateescape"))
    return text, None
