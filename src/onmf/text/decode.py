"""Turn the bytes of documents into text: encodings, and the headers and attachments of mail. Decoding never fails."""

import codecs
import re
from collections import Counter

from onmf.warn import import_optional

BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and their encodings. UTF-32 comes before UTF-16, because its mark begins with that of UTF-16."""

MIN_FOREIGN, MIN_MOSTLY = 16, 6
"""Non-ASCII bytes that the detection of a script needs; fewer if most of the text consists of them."""

SAMPLE = 1 << 16  # Bytes that detection looks at

OTHER_SCRIPTS = (
    "cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp866", "cp1253", "iso8859_7", "cp1255", "cp1256", "iso8859_6",
    "cp932", "euc_jp", "gb18030", "big5", "euc_kr",
)  # fmt: skip
"""Encodings of text in other scripts than the Latin one."""

LATIN = {
    "cp1252": (
        "äöüß", "àâæçéèêëîïôœùûüÿ«»", "áéíñóúü¿¡ºª", "áâãàçéêíóôõúü", "àèéìîòóù", "åäöéæø", "áéíóúýðþæö", "àçèéíïòóúü·",
        "ëïéèöü",
    ),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ"),
    "iso8859_2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "čćđšž", "ăâîşţ"),
    "cp1254": ("çğıöşüâîû",),
    "cp1257": ("āčēģīķļņšūž", "ąčęėįšųūž", "äõöüšž"),
}  # fmt: skip
"""Encodings of text in the Latin script, with the letters of their languages beyond ASCII. The first is the most common
one, and another needs strong evidence."""

EVIDENCE, DISTINCT = 4, 3
"""Letters that another encoding than the most common one must explain in addition, and different letters in all."""

MAGIC = (
    *(b"%PDF-", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x7fELF", b"MZ"),
    *(b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"SQLite format"),
)
"""First bytes of binary formats, some of which look like text."""

CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")

HEADER = re.compile(r"[!-9;-~]+:([ \t]|$)")  # A field of a mail header: a name in printable ASCII, and a colon

ENCODED = re.compile(r"(?:^(?:M[ -`]{40,60}|[!-~]{60,})[ \t]*\r?\n){3,}", re.MULTILINE)
"""Three or more lines of uuencode (an M, then capitals and signs) or base64 (long lines without a space)."""


def bom_encoding(head: bytes) -> str | None:
    """Return the encoding that a byte order mark names, or None."""
    return next((name for mark, name in BOMS if head.startswith(mark)), None)


def is_binary(data: bytes) -> bool:
    """Whether the data are not text but, for instance, a picture, a program or an archive."""
    head = data[:8192]
    if bom_encoding(head) is not None:
        return False
    return head.startswith(MAGIC) or b"\0" in head or len(CONTROL.findall(head)) > 0.1 * len(head)


def decode(data: bytes) -> tuple[str, str | None]:
    """Decode a text. → the text; and the encoding that it was read as, None if it was valid in UTF-8 or by its mark"""
    mark = bom_encoding(data)
    try:
        return data.decode(mark or "utf-8"), None
    except UnicodeDecodeError:
        encoding = mark or detect(data[:SAMPLE])
        return data.decode(encoding, errors="replace"), encoding


def detect(data: bytes) -> str:
    """Guess the encoding of bytes that are not valid UTF-8.

    If only a few bytes are invalid, the answer is UTF-8: those bytes are damage, not another encoding.
    """
    foreign = sum(byte > 127 for byte in data)
    valid = sum(len(c.encode()) for c in data.decode("utf-8", errors="ignore") if ord(c) > 127)
    if valid > 0.8 * foreign and valid >= MIN_FOREIGN:
        return "utf-8"
    mostly = 2 * foreign > sum(map(len, data.split()))  # in the Latin script, most bytes are ASCII
    if foreign >= (MIN_MOSTLY if mostly else MIN_FOREIGN):
        charset_normalizer = import_optional(
            "charset_normalizer", "Text that is not UTF-8 needs charset-normalizer", "text"
        )
        best = charset_normalizer.from_bytes(data, cp_isolation=[*OTHER_SCRIPTS, *(() if mostly else LATIN)]).best()
        if best is not None and best.encoding in OTHER_SCRIPTS:
            return best.encoding
    return _detect_latin(data, foreign)


def _detect_latin(data: bytes, foreign: int) -> str:
    """Return the encoding in which the letters beyond ASCII are those of one language."""
    found = {}
    for encoding, languages in LATIN.items():
        counts = Counter(data.decode(encoding, errors="replace").lower())
        found[encoding] = max(([counts[c] for c in letters if counts[c]] for letters in languages), key=sum)
    common, *others = LATIN
    best = max(others, key=lambda encoding: sum(found[encoding]))
    n, more = sum(found[best]), sum(found[best]) - sum(found[common])
    is_clear = more >= max(EVIDENCE, foreign / 20) and n >= 0.8 * foreign and len(found[best]) >= DISTINCT
    return best if is_clear else common


def repair(text: str) -> tuple[str, str | None]:
    """As :func:`decode`, for a text that was read as UTF-8 with ``errors="surrogateescape"``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return decode(text.encode("utf-8", errors="surrogateescape"))
        except UnicodeEncodeError:  # JSON allows lone surrogates, and UTF-8 does not
            return text.encode("utf-8", errors="replace").decode(), None
    return text, None


def drop_encoded(text: str) -> tuple[str, int]:
    """Remove encoded attachments. Returns the text and the number of removed blocks."""
    return ENCODED.subn("\n", text) if len(text) >= 180 else (text, 0)


def strip_headers(text: str) -> str:
    """Remove the header of a mail or news message; a text without a header is returned unchanged.

    A header consists of at least two fields (``Name: value``), which may continue on indented lines, and ends at the
    first empty line. The ``From `` line of a mailbox may precede it.
    """
    head, separator, body = re.sub(r"\r\n?", "\n", text).lstrip("\n").partition("\n\n")
    lines = head.split("\n")
    lines = lines[1:] if lines[0].startswith("From ") else lines
    fields = sum(bool(HEADER.match(line)) for line in lines)
    continuations = sum(line[:1] in (" ", "\t") for line in lines[1:])
    return body if separator and fields >= 2 and fields + continuations >= len(lines) else text
