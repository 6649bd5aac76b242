"""Decode bytes: as UTF-8 if they are UTF-8, otherwise with a detected encoding. Decoding never fails."""

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
"""Byte order marks and their encodings. UTF-32 comes before UTF-16, because its mark begins with that of UTF-16."""

MIN_FOREIGN = 16
"""Non-ASCII bytes that detection needs; with fewer, :data:`FALLBACK` is right more often."""

SAMPLE = 1 << 16
"""Bytes that detection looks at."""

FALLBACK = "cp1252"
"""The most common encoding of text that is not UTF-8."""

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
"""First bytes of binary formats, some of which look like text."""

CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def bom_encoding(head: bytes) -> str | None:
    """Return the encoding that a byte order mark names, or None."""
    return next((name for mark, name in BOMS if head.startswith(mark)), None)


def is_binary(data: bytes) -> bool:
    """Whether the data are not text but, for instance, a picture, a program or an archive."""
    head = data[:8192]
    if bom_encoding(head):
        return False
    if head.startswith(MAGIC) or b"\0" in head:
        return True
    return len(CONTROL.findall(head)) > 0.1 * len(head)


def decode(data: bytes) -> tuple[str, str | None]:
    """Decode a text.

    Returns the text and None if the bytes are valid UTF-8, or valid in the encoding of their byte order mark. Otherwise
    returns the repaired text and the encoding that it was read as.
    """
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
    """Guess the encoding of bytes that are not valid UTF-8.

    If only a few bytes are invalid, the answer is UTF-8: those bytes are damage, not another encoding.
    """
    head = data[:SAMPLE]
    lenient = head.decode("utf-8", errors="ignore")
    foreign = sum(byte > 127 for byte in head)
    valid = sum(len(c.encode()) for c in lenient if ord(c) > 127)
    if valid > 0.8 * foreign and valid >= MIN_FOREIGN:
        return "utf-8"
    if foreign < MIN_FOREIGN:
        return FALLBACK
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise ImportError("Text that is not UTF-8 needs charset-normalizer: pip install 'onmf[text]'.") from error
    best = from_bytes(head).best()
    return FALLBACK if best is None else best.encoding


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON allows and UTF-8 does not, by question marks."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


def repair(text: str) -> tuple[str, str | None]:
    """As :func:`decode`, for a table field that was read as UTF-8 with ``errors="surrogateescape"``."""
    if text.isascii():
        return text, None
    try:
        text.encode()
    except UnicodeEncodeError:
        return decode(text.encode("utf-8", errors="surrogateescape"))
    return text, None
