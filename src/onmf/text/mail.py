"""Remove headers and encoded attachments from mail and news messages."""

from __future__ import annotations

import re

HEADER = re.compile(r"[!-9;-~]+:([ \t]|$)")
"""A header field: a name in printable ASCII, and a colon."""

ENCODED = re.compile(r"(?:^(?:M[ -`]{40,60}|[!-~]{60,})[ \t]*\r?\n){3,}", re.MULTILINE)
"""Three or more lines of uuencode (an M, then capitals and signs) or base64 (long lines without a space)."""


def drop_encoded(text: str) -> tuple[str, int]:
    """Remove encoded attachments. Returns the text and the number of removed blocks."""
    if len(text) < 180:
        return text, 0
    return ENCODED.subn("\n", text)


def strip_headers(text: str) -> str:
    """Remove the header of a mail or news message; a text without a header is returned unchanged.

    A header consists of at least two fields (``Name: value``), which may continue on indented lines, and ends at the
    first empty line. The ``From `` line of a mailbox may precede it.
    """
    head, separator, body = re.sub(r"\r\n?", "\n", text).lstrip("\n").partition("\n\n")
    lines = head.split("\n")
    if lines and lines[0].startswith("From "):
        lines = lines[1:]
    fields = sum(bool(HEADER.match(line)) for line in lines)
    continuations = sum(line[:1] in (" ", "\t") for line in lines[1:])
    if not separator or fields < 2 or fields + continuations < len(lines):
        return text
    return body
