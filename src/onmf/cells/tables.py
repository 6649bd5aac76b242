"""Reads tables of counts: csv and tsv files, with cells or genes in rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.datasets.readers import opened
from onmf.io.csv_file import plain

from .draft import Draft
from .matrix import BLOCK, smallest, tidy
from .orientation import CELLS, GENES, guess

LONGEST = 1 << 26
"""Bytes of the longest first line, 64 MB: the names of about six million columns."""

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")

MISSING = ["", "NA", "NaN", "nan", "N/A"]
"""Entries that are read as missing."""


def read_table(path: Path, labels: str | None = None, orientation: str | None = None) -> Draft:
    """Read a table of counts with names in its first row and first column.

    Parameters
    ----------
    path : path
        A csv or tsv file, which may be compressed with gzip.
    labels : str, optional
        A column that holds the classes of the cells, if there is one of this name.
    orientation : {"cells-in-rows", "genes-in-rows"}, optional
        By default guessed from the names, and from the numbers of rows and columns.

    Returns
    -------
    Draft
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("Tables of cells need pandas: pip install 'onmf[cells]'.") from error
    try:
        with opened(path) as file:
            table = _Table(file, labels)
            table.read(pd)
    except ImportError:
        raise
    except Exception as error:  # pandas and gzip raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a table of counts: {str(error).strip()}") from error
    return table.draft(path, labels, orientation)


def first_line(file: IO[bytes]) -> tuple[list[str], str]:
    """Read the names of the columns. → the names, and the delimiter"""
    line = file.readline(LONGEST + 1)
    if len(line) > LONGEST:
        raise ValueError(f"its first line has more than {LONGEST >> 20} MB: this is not a row of names.")
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    if not text.strip():
        raise ValueError("its first line is empty: it must name the columns.")
    delimiter = max(",;\t", key=text.count)
    delimiter = delimiter if delimiter in text else " "
    return [name.strip() for name in next(csv.reader([text], delimiter=delimiter))], delimiter


class _Table:
    """A table while it is read."""

    def __init__(self, file: IO[bytes], label: str | None) -> None:
        limit = csv.field_size_limit(LONGEST)
        try:
            self.header, self.delimiter = first_line(file)
        finally:
            csv.field_size_limit(limit)
        self.file, self.label = file, label
        self.named = not all(NUMBER.fullmatch(name) for name in self.header)
        self.rows: list[str | None] = []
        self.classes: list[str | None] = []
        self.parts: list[csr_array] = []

    def read(self, pandas: Any) -> None:
        """Read all rows, some at a time."""
        if not self.named:
            numbers = np.array(self.header, dtype=np.float64)[None]
            self.parts.append(smallest(tidy(numbers)))
        for frame in self.frames(pandas):
            self.add(frame, pandas)

    def frames(self, pandas: Any) -> Iterator[Any]:
        """Yield some rows at a time."""
        try:
            with pandas.read_csv(
                self.file,
                sep=self.delimiter,
                header=None,
                dtype={0: str} if self.named else None,
                chunksize=max(1, BLOCK * 2 // len(self.header)),
                low_memory=False,
                keep_default_na=False,
                na_values=MISSING,
                encoding_errors="replace",
            ) as frames:
                yield from frames
        except pandas.errors.EmptyDataError:
            if self.named:
                raise ValueError("it has a first line with names, but no rows.") from None

    def add(self, frame: Any, pandas: Any) -> None:
        """Add some rows."""
        width, first = frame.shape[1], not self.parts
        if first and self.named and width == len(self.header) + 1:
            self.header = ["", *self.header]  # R leaves out the name of the column of names
        if width != len(self.header):
            raise ValueError(f"its first line has {len(self.header)} entries, but the next one has {width}.")
        if first and self.named and self.label in self.header[1:] and self.header.count(self.label) > 1:
            raise ValueError(f"it has several columns {self.label!r}: rename all but one.")
        columns = list(range(1, width)) if self.named else list(range(width))
        if self.named:
            self.rows += [plain(name) if isinstance(name, str) else None for name in frame[0]]
        if self.label is not None and self.label in self.header[1:]:
            at = self.header.index(self.label, 1)
            columns.remove(at)
            self.classes += [None if pandas.isna(value) else _label(value) for value in frame[at]]
        numbers = frame[columns]
        for column, dtype in zip(columns, numbers.dtypes, strict=True):
            if dtype.kind not in "buif":
                raise ValueError(self.not_numbers(frame[column], column))
        self.parts.append(smallest(tidy(numbers.to_numpy(dtype=np.float64))))

    def not_numbers(self, values: Any, column: int) -> str:
        """A sentence about a column that holds something else than numbers."""
        text = next((str(value) for value in values if not NUMBER.fullmatch(str(value))), "")
        name = self.header[column] if self.named else str(column + 1)
        return (
            f"its column {name[:80]!r} holds {text[:80]!r}, which is not a number. Remove this column, or name it as "
            "the labels if it holds the classes of the cells."
        )

    def draft(self, path: Path, labels: str | None, orientation: str | None) -> Draft:
        """The counts and names, cells in rows."""
        X = csr_array(vstack(self.parts, format="csr"))
        is_class = bool(self.classes)
        columns = [plain(name) for name in self.header[1:] if not (is_class and name == labels)] if self.named else []
        corner = self.header[0] if self.named else ""
        notes: list[str] = []
        if is_class:
            if orientation == GENES:
                raise ValueError(
                    f"{path} has a column {labels!r}, which is to hold the classes of the cells, but the orientation "
                    f"is {GENES!r}: give the classes in a table of their own."
                )
            orientation = CELLS
        if orientation is None:
            rows = _texts(self.rows) if self.named else [""] * X.shape[0]
            orientation, note = guess(rows, columns if self.named else [""] * X.shape[1], corner)
            notes.append(note)
        names = (self.rows, columns) if self.named else (None, None)
        cells, genes = names if orientation == CELLS else names[::-1]
        draft = Draft(X if orientation == CELLS else tidy(X.T), cells, genes, "the table", notes=notes)
        if is_class and labels is not None:
            classes = self.classes
            draft.columns, draft.column = [labels], lambda name: classes
        return draft


def _label(value: Any) -> str:
    """A class as text. Whole floats lose their point: a column of integers has them if one is missing."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _texts(names: Sequence[str | None]) -> list[str]:
    return [name or "" for name in names]
