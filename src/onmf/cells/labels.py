"""Known classes of cells: a column of the file, or of a table that is joined by the names of the cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from onmf.datasets.readers import opened
from onmf.io.csv_file import plain

from .draft import Draft
from .store import listed
from .tables import first_line

SUFFIX = re.compile(r"-\d+$")
"""The number of the library at the end of a barcode, which many tables leave out."""


def classes_of(labels: str, draft: Draft, path: Path, barcodes: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """Find the class of each cell.

    Parameters
    ----------
    labels : str
        A column of the cells in the file, or ``FILE.csv:COLUMN``.
    draft : Draft
        The cells as they are in the file.
    path : path
        The file.
    barcodes : sequence of str
        Names of the cells.

    Returns
    -------
    classes : list
        The class of each cell, None if unknown.
    notes : list of str
        How many have none.
    """
    notes: list[str] = []
    if labels in draft.columns:
        classes = [value or None for value in draft.column(labels)]
    else:
        file, _, column = labels.rpartition(":")
        if not file:
            raise ValueError(
                f"{path} has no column {labels!r} for the labels of the cells: it has {listed(draft.columns)}. Labels "
                "in a table of their own are named as FILE.csv:COLUMN."
            )
        if not Path(file).is_file():
            raise FileNotFoundError(f"{file} is not a file, so it has no column {column!r} with labels.")
        classes, notes = _joined(Path(file), column, barcodes)
    known = sum(value is not None for value in classes)
    if not known:
        raise ValueError(f"The labels {labels!r} are empty for all {len(classes):,} cells of {path}.")
    if known < len(classes):
        notes.append(f"Cells without a label: {len(classes) - known:,} of {len(classes):,}.")
    return classes, notes


def _joined(path: Path, column: str, barcodes: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """Look up the cells in a table whose first column has their names."""
    table = _read(path, column)
    if any(name in table for name in barcodes):
        return [table.get(name) or None for name in barcodes], []
    short: dict[str, str] = {}
    for name, value in table.items():
        if short.setdefault(SUFFIX.sub("", name), value) != value:
            short = {}  # the numbers tell cells apart
            break
    classes = [short.get(SUFFIX.sub("", name)) or None for name in barcodes]
    if not any(classes):
        raise ValueError(
            f"{path} has none of the cells: its first column has names such as {listed(list(table), 2)}, the counts "
            f"have {listed(list(barcodes), 2)}."
        )
    return classes, [f"The names in {path.name} were matched without the number at the end of a barcode."]


def _read(path: Path, column: str) -> dict[str, str]:
    """Read the first column and another one."""
    table: dict[str, str] = {}
    try:
        with opened(path) as file:
            header, delimiter = first_line(file)
            if column not in header:
                raise ValueError(f"it has no column {column!r}, but {listed(header)}.")
            text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
            at, width = header.index(column), len(header)
            for row in csv.reader(text, delimiter=delimiter):
                if not row:
                    continue
                shift = len(row) == width + 1  # R leaves out the name of the column of names
                name, value = plain(row[0]), plain(row[at + shift]) if at + shift < len(row) else ""
                if table.setdefault(name, value) != value:
                    raise ValueError(f"it has two different labels for {name[:80]!r}: {table[name]!r} and {value!r}.")
            text.detach()
    except Exception as error:  # gzip and csv raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a table of labels: {error}") from error
    return table
