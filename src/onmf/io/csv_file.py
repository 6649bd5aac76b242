"""CSV files that every program reads alike, and that no spreadsheet executes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

QUOTED = re.compile(r"[\",;\t\r\n]|^\s|\s$")
"""What must stand in quotes. Python's own writer forgets a bare carriage return where lines end with a newline alone; a
semicolon or a tab is what spreadsheets of some countries part cells by."""

FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")
"""How a text begins that a spreadsheet takes for a formula. Apostrophes may come before it, so that the one that is
added can be told from them: see :func:`plain`."""

NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
"""A number begins like a formula, and is harmless."""


def csv_line(cells: Iterable[Any]) -> str:
    """A line of a CSV file with its newline: texts that would be formulas begin with an apostrophe, None is empty."""
    return ",".join("" if cell is None else _cell(cell) for cell in cells) + "\n"


def plain(text: str) -> str:
    """A text as it was before :func:`csv_line` made it harmless."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    text = f"'{value}" if FORMULA.match(value) and not NUMBER.fullmatch(value) else value
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # where some readers would end the cell
    return '"' + text.replace('"', '""') + '"' if QUOTED.search(text) else text
