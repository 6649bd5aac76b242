"""What surrounds the text of a mail."""

from __future__ import annotations

import re

HEADER = re.compile(r"[!-9;-~]+:([ \t]|$)")
"""A field of a header: a name of printable ASCII, a colon."""

ENCODED = re.compile(r"(?:^(?:M[ -`]{40,60}|[!-~]{60,})[ \t]*\r?\n){3,}", re.MULTILINE)
"""Three lines or more of uuencode (capitals and signs after an M) or base64 (long and without a space)."""


def drop_encoded(text: str) -> tuple[str, int]:
    """The text without files that were encoded into it, and the number of blocks that were dropped."""
    if len(text) < 180:
        return text, 0
    return ENCODED.subn("\n", text)


def strip_headers(text: str) -> str:
    """The text after the header of a mail or a news message; all of it where there is no header.

    A header is at least two lines, each a field (``Name: value``) or the indented continuation of one, up to the first
    empty line. The ``From `` line of a mailbox may come before it.
    """
    head, separator, body = re.sub(r"\r\n?", "\n", text).lstrip("\n").partition("\n\n")
    lines = head.split("\n")
    if lines and lines[0].startswith("From "):
        lines = lines[1:]
    fields = sum(bool(HEADER.match(line)) for line in lines)
    continued = sum(line[:1] in (" ", "\t") for line in lines[1:])
    if not separator or fields < 2 or fields + continued < len(lines):
        return text
    return body
