"""CSV files that all programs read the same way, and in which no spreadsheet finds a formula."""

import re
from collections.abc import Iterable
from typing import Any

QUOTED = re.compile(r"[\",;\t\r\n]|^\s|\s$")
"""Text that needs quotes. Python's own writer misses a bare carriage return when lines end with a newline, and
spreadsheets in some countries separate cells by semicolons or tabs."""

FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")
"""The beginning of a text that a spreadsheet would take for a formula. Leading apostrophes are included, so that
:func:`plain` can remove exactly the one that :func:`csv_line` added."""

NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
"""A signed number begins like a formula but is harmless."""


def csv_line(cells: Iterable[Any]) -> str:
    """A line of a CSV file, with its newline. None becomes empty; texts like formulas get an apostrophe in front."""
    return ",".join("" if cell is None else _cell(cell) for cell in cells) + "\n"


def plain(text: str) -> str:
    """Undo the escaping of :func:`csv_line`."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    text = f"'{value}" if FORMULA.match(value) and not NUMBER.fullmatch(value) else value
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # some readers end the cell at a NUL
    return '"' + text.replace('"', '""') + '"' if QUOTED.search(text) else text
