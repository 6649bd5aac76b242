"""Dates of documents, as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np

from onmf.divergence import Array

LONGEST = 80
"""Characters of the longest date that is read."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
TIME = r"(?:[T ].*)?"
PATTERNS = (
    re.compile(r"(?P<year>\d{4})(?:([-/.])(?P<month>\d{1,2})(?:\2(?P<day>\d{1,2}))?)?" + TIME),
    re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)" + TIME),
    re.compile(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})" + TIME),
    re.compile(r"(?:[a-z]+\.?,? +)?(?P<day>\d{1,2})[ -](?P<month>[a-z]{3,9})\.?,?[ -](?P<year>\d{4})" + TIME, re.I),
    re.compile(r"(?P<month>[a-z]{3,9})\.?(?: +(?P<day>\d{1,2}),?)? +(?P<year>\d{4})" + TIME, re.I),
)
"""Dates such as 2024-03-01, 2024-03 and 2024, 20240301, 1.3.2024, Fri, 1 Mar 2024, and March 1, 2024."""

NAMED = 5
"""Dates that could not be read, of which a note gives an example."""


def parse_date(text: str) -> date | None:
    """Return the date that a text names; a missing month or day is the first. None if it cannot be read.

    Dates such as 1/2/2024 are not read: in some countries they are in January, in others in February.

    Examples
    --------
    >>> from onmf.text.dates import parse_date
    >>> parse_date("Mon, 20 Nov 1995 19:12:08 GMT")
    datetime.date(1995, 11, 20)
    >>> parse_date("2024-03")
    datetime.date(2024, 3, 1)
    """
    text = text.strip()
    if len(text) > LONGEST:
        return None
    for pattern in PATTERNS:
        if found := pattern.fullmatch(text):
            try:
                return date(int(found["year"]), _month(found["month"]), int(found["day"] or 1))
            except ValueError:
                continue
    return None


def parse_dates(texts: Sequence[str | None], ids: Sequence[str]) -> tuple[Array | None, dict[str, Any]]:
    """Read the dates of documents.

    Parameters
    ----------
    texts : sequence of str or None
        A date for each document, or None.
    ids : sequence of str
        Names of the documents.

    Returns
    -------
    dates : ndarray of datetime64[D] or None
        The dates, NaT where there is none. None if no document has a date.
    found : dict
        Number of documents without a date (``missing``), of dates that cannot be read (``unread``), and some of those
        with the names of their documents (``examples``).
    """
    dates = np.full(len(texts), np.datetime64("NaT", "D"))
    known: dict[str, date | None] = {}
    missing = unread = 0
    examples: list[list[str]] = []
    for i, text in enumerate(texts):
        if text is None or not text.strip():
            missing += 1
            continue
        if text not in known:
            known[text] = parse_date(text)
        if (day := known[text]) is not None:
            dates[i] = day
            continue
        unread += 1
        if len(examples) < NAMED:
            examples.append([text[:LONGEST], ids[i]])
    if missing == len(texts):
        return None, {}
    return dates, {"missing": missing, "unread": unread, "examples": examples}


def _month(text: str | None) -> int:
    if text is None:
        return 1
    return int(text) if text.isdecimal() else MONTHS.index(text[:3].lower()) + 1
