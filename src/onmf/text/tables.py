"""Read documents from tables: CSV, TSV, JSON lines and Parquet files. Each row is a document."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, NamedTuple

from onmf.io.limits import check_growth

from .decode import bom_encoding, decode, repair, replace_surrogates
from .streams import LARGEST_DOCUMENT, bounded_lines

LARGEST_HEADER = 1 << 24
"""Characters of the longest header row of a CSV file, 16 MB."""

MOST_CELLS = 1_000_000
"""Delimiters in one row. The memory for a row grows with its cells, and a text of 100 MB has fewer."""

BATCH = 64
"""Rows of a Parquet file that are read at a time."""

PER_ROW = 64
"""Bytes that a row of a Parquet file takes in memory, even if it is empty."""

Found = tuple[str, str | None, str | None, str | None]
"""Names of the columns of the text, the identifier, the label and the date."""


class Row(NamedTuple):
    """A row of a table. ``encoding`` is the one that the text was repaired from, if it was."""

    text: str
    id: str | None
    label: str | None
    date: str | None
    encoding: str | None


@dataclass(frozen=True)
class Columns:
    """Names of the columns that the user chose; None for a column without a choice."""

    text: str | None = None
    id: str | None = None
    label: str | None = None
    date: str | None = None

    def find(self, name: str, present: Sequence[str]) -> Found:
        """Find the columns of the text, the identifier, the label and the date among those of the file ``name``."""
        text = self.text
        if text is None:
            text = next((column for column in present if column.strip().lower() == "text"), None)
        if text is None and len(present) == 1:
            text = present[0]
        if text is None:
            raise ValueError(
                f"{name} has no column 'text': name the column that holds the text (--text, in Python text=). "
                f"It has {_listed(present)}."
            )
        named = ((text, "text"), (self.id, "identifiers"), (self.label, "labels"), (self.date, "dates"))
        for column, content in named:
            if column is not None and column not in present:
                raise ValueError(f"{name} has no column {column!r} for the {content}. It has {_listed(present)}.")
        return text, self.id, self.label, self.date


def csv_rows(stream: IO[bytes], name: str, columns: Columns, delimiter: str | None) -> Iterator[Row]:
    """Yield the rows of a CSV file. Its first row names the columns; quoted fields may contain newlines."""
    head = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
    encoding = bom_encoding(head) or "utf-8"
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    decoded = io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="")
    limit = csv.field_size_limit(LARGEST_DOCUMENT)
    try:
        first = decoded.readline(LARGEST_HEADER + 1)
        if not first.strip():
            raise ValueError(f"{name} is empty: the first row of a table must name its columns.")
        if len(first) > LARGEST_HEADER:
            raise ValueError(
                f"{name} begins with a line of more than {LARGEST_HEADER >> 20} MB: this is not a row of column names."
            )
        lines = Lines(first, bounded_lines(decoded, name, 2), name, delimiter or _delimiter(first))
        reader = csv.reader(lines, delimiter=lines.delimiter)
        header = [column.strip() for column in next(reader)]
        positions = [None if c is None else header.index(c) for c in columns.find(name, header)]
        lines.begin_row()
        for row in reader:
            lines.begin_row()
            if not row:
                continue
            text, identifier, label, date = (None if i is None else _cell(row, i) for i in positions)
            body, repaired = repair(text or "")
            yield Row(body, _repaired(identifier), _repaired(label), _repaired(date), repaired)
    except csv.Error as error:
        raise ValueError(f"{name}, near line {reader.line_num}: {error}. Is it a CSV file?") from error
    finally:
        csv.field_size_limit(limit)
        decoded.detach()  # the caller closes the stream


class Lines(Iterator[str]):
    """The lines of a CSV file. Refuses a row that is too long or has too many cells."""

    def __init__(self, first: str, rest: Iterator[str], name: str, delimiter: str) -> None:
        self.lines = chain([first], rest)
        self.name = name
        self.delimiter = delimiter
        self.begin_row()

    def begin_row(self) -> None:
        """Reset the counters: a row is complete."""
        self.length = self.cells = 0

    def __next__(self) -> str:
        line = next(self.lines)
        self.length += len(line)
        self.cells += line.count(self.delimiter)
        if self.length > LARGEST_DOCUMENT:
            raise ValueError(
                f"{self.name} has a row of more than {LARGEST_DOCUMENT >> 20} MB, too long for a document."
            )
        check_cells(self.name, self.cells)
        return line


def check_cells(where: str, cells: int) -> None:
    """Refuse a row whose cells would take too much memory."""
    if cells > MOST_CELLS:
        raise ValueError(f"{where} has a row of more than {MOST_CELLS:,} cells, too many for a table of documents.")


def json_rows(stream: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a file with one JSON object per line."""
    chosen: Found | None = None
    for number, line in enumerate(bounded_lines(stream, name), 1):
        check_cells(f"{name}, line {number},", line.count(b",") + line.count(b"[") + line.count(b"{"))
        text, repaired = decode(line)
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {number}, is not JSON: {str(error)[:200]}.") from error
        if not isinstance(record, dict):
            raise ValueError(f'{name}, line {number}, is not a JSON object: write {{"text": …}} on every line.')
        if chosen is None:
            chosen = columns.find(name, list(record))
        try:
            body, identifier, label, date = (None if c is None else _scalar(record.get(c)) for c in chosen)
        except RecursionError as error:
            raise ValueError(f"{name}, line {number}, is nested too deeply for a text.") from error
        yield Row(body or "", identifier, label, date, repaired)


def parquet_rows(file: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a Parquet file, reading a batch at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"{name} is a Parquet file, which needs pyarrow: pip install 'onmf[text]'.") from error
    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        table = ParquetFile(file)
        chosen = columns.find(name, table.schema_arrow.names)
        wanted = list(dict.fromkeys(column for column in chosen if column is not None))
        grown = 0
        for batch in table.iter_batches(batch_size=BATCH, columns=wanted):
            grown += batch.nbytes + PER_ROW * batch.num_rows
            check_growth(name, grown, length)
            values = {column: _bytes(batch.column(column)).to_pylist() for column in wanted}
            for i in range(batch.num_rows):
                body, identifier, label, date = (None if c is None else values[c][i] for c in chosen)
                text, repaired = decode(body) if isinstance(body, bytes) else (_scalar(body) or "", None)
                yield Row(text, _scalar(identifier), _scalar(label), _scalar(date), repaired)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ValueError(f"{name} is damaged, or not a Parquet file: {reason}.") from error


READERS: dict[str, Callable[[IO[bytes], str, Columns], Iterator[Row]]] = {
    "csv": lambda stream, name, columns: csv_rows(stream, name, columns, None),
    "tsv": lambda stream, name, columns: csv_rows(stream, name, columns, "\t"),
    "jsonl": json_rows,
    "parquet": parquet_rows,
}
"""Readers of the kinds of tables."""


def _bytes(column: Any) -> Any:
    """Convert a column of texts to bytes: Parquet requires UTF-8, but not all files comply."""
    import pyarrow

    dtype = column.type
    if pyarrow.types.is_dictionary(dtype):
        column, dtype = column.dictionary_decode(), dtype.value_type
    if pyarrow.types.is_string(dtype) or pyarrow.types.is_large_string(dtype):
        return column.cast(pyarrow.large_binary())
    return column


def _delimiter(header: str) -> str:
    """Guess the delimiter: the candidate that the first row has most of."""
    return max(",;\t|", key=header.count)


def _cell(row: list[str], i: int) -> str:
    return row[i] if i < len(row) else ""


def _repaired(value: str | None) -> str | None:
    return None if value is None else repair(value)[0]


def _scalar(value: Any) -> str | None:
    """Convert a value of a JSON object or a Parquet column to text."""
    if value is None:
        return None
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, bytes):
        return decode(value)[0]
    return replace_surrogates(str(value))


def _listed(columns: Sequence[str]) -> str:
    names = ", ".join(repr(column if len(column) <= 60 else column[:60] + "…") for column in columns[:20])
    return names + (", …" if len(columns) > 20 else "") if names else "none"
