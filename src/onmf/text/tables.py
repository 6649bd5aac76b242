"""Documents in tables: CSV, TSV, JSON lines, Parquet. One row is one document."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

from onmf.io.limits import check_growth

from .decode import bom_encoding, decode, repair, whole
from .streams import LARGEST_DOCUMENT, bounded_lines

LARGEST_HEADER = 1 << 24
"""Characters of the names of all columns, 16 MB."""

MOST_CELLS = 1_000_000
"""Commas and the like in one row: what a row takes in memory grows with its cells, and a text of 100 MB has fewer."""

BATCH = 64
"""Rows of a Parquet file that are read together."""

PER_ROW = 64
"""Bytes that a row takes, however little it says."""

Row = tuple[str | None, str, str | None, str | None]
"""Identifier, text, label, and the encoding that the text was repaired from."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns; None where none was named."""

    text: str | None = None
    id: str | None = None
    label: str | None = None

    def find(self, name: str, present: Sequence[str]) -> tuple[str, str | None, str | None]:
        """The columns of text, identifier and label among those of the file ``name``."""
        text = self.text
        if text is None:
            text = next((column for column in present if column.strip().lower() == "text"), None)
        if text is None and len(present) == 1:
            text = present[0]
        if text is None:
            raise ValueError(f"{name} has no column 'text': say which one holds the text. It has {_listed(present)}.")
        for column, what in ((text, "text"), (self.id, "identifiers"), (self.label, "labels")):
            if column is not None and column not in present:
                raise ValueError(f"{name} has no column {column!r} for the {what}. It has {_listed(present)}.")
        return text, self.id, self.label


def csv_rows(stream: IO[bytes], name: str, columns: Columns, delimiter: str | None) -> Iterator[Row]:
    """Rows of a CSV file, whose first row names the columns; quoted fields may hold newlines."""
    head = stream.peek(4)[:4] if isinstance(stream, io.BufferedReader) else b""
    encoding = bom_encoding(head) or "utf-8"
    escape = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    wide = io.TextIOWrapper(stream, encoding=encoding, errors=escape, newline="")
    before = csv.field_size_limit(LARGEST_DOCUMENT)
    try:
        first = wide.readline(LARGEST_HEADER + 1)
        if not first.strip():
            raise ValueError(f"{name} is empty: a table needs a first row with the names of its columns.")
        if len(first) > LARGEST_HEADER:
            raise ValueError(f"{name} begins with a line of more than {LARGEST_HEADER >> 20} MB: no names of columns.")
        lines = Lines(first, bounded_lines(wide, name, 2), name, delimiter or _delimiter(first))
        reader = csv.reader(lines, delimiter=lines.delimiter)
        header = [column.strip() for column in next(reader)]
        places = [None if c is None else header.index(c) for c in columns.find(name, header)]
        lines.begin_row()
        for row in reader:
            lines.begin_row()
            if not row:
                continue
            text, identifier, label = (None if place is None else _cell(row, place) for place in places)
            fixed, encoding_found = repair(text or "")
            yield _plain(identifier), fixed, _plain(label), encoding_found
    except csv.Error as error:
        raise ValueError(f"{name}, near line {reader.line_num}: {error}. Is it a CSV file?") from error
    finally:
        csv.field_size_limit(before)
        wide.detach()  # the stream is the caller's to close


class Lines(Iterator[str]):
    """The lines of a CSV file, refused where one row has more of them, or more cells, than a row can have."""

    def __init__(self, first: str, rest: Iterator[str], name: str, delimiter: str) -> None:
        self.lines = chain([first], rest)
        self.name = name
        self.delimiter = delimiter
        self.begin_row()

    def begin_row(self) -> None:
        """Count anew: what was given so far has become a row."""
        self.length = self.cells = 0

    def __next__(self) -> str:
        line = next(self.lines)
        self.length += len(line)
        self.cells += line.count(self.delimiter)
        if self.length > LARGEST_DOCUMENT:
            raise ValueError(f"{self.name} has a row of more than {LARGEST_DOCUMENT >> 20} MB: no document.")
        check_cells(self.name, self.cells)
        return line


def check_cells(where: str, cells: int) -> None:
    """Refuse a row that would be torn into more pieces than memory is for."""
    if cells > MOST_CELLS:
        raise ValueError(f"{where} has a row of more than {MOST_CELLS:,} cells, as no table of documents has.")


def json_rows(stream: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Rows of a file with one JSON object a line."""
    found: tuple[str, str | None, str | None] | None = None
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
        if found is None:
            found = columns.find(name, list(record))
        try:
            body, identifier, label = (None if column is None else _scalar(record.get(column)) for column in found)
        except RecursionError as error:
            raise ValueError(f"{name}, line {number}, holds lists in lists, too deep for a text.") from error
        yield identifier, body or "", label, repaired


def parquet_rows(file: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Rows of a Parquet file, a batch at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"{name} is a Parquet file, which needs pyarrow: pip install 'onmf[text]'.") from error
    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        table = ParquetFile(file)
        found = columns.find(name, table.schema_arrow.names)
        wanted = list(dict.fromkeys(column for column in found if column is not None))
        grown = 0
        for batch in table.iter_batches(batch_size=BATCH, columns=wanted):
            grown += batch.nbytes + PER_ROW * batch.num_rows
            check_growth(name, grown, length)
            lists = {column: _bytes(batch.column(column)).to_pylist() for column in wanted}
            for place in range(batch.num_rows):
                body, identifier, label = (None if c is None else lists[c][place] for c in found)
                text, repaired = decode(body) if isinstance(body, bytes) else (_scalar(body) or "", None)
                yield _scalar(identifier), text, _scalar(label), repaired
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ValueError(f"{name} is damaged, or no Parquet file: {reason}.") from error


READERS: dict[str, Callable[[IO[bytes], str, Columns], Iterator[Row]]] = {
    "csv": lambda stream, name, columns: csv_rows(stream, name, columns, None),
    "tsv": lambda stream, name, columns: csv_rows(stream, name, columns, "\t"),
    "jsonl": json_rows,
    "parquet": parquet_rows,
}


def _bytes(column: Any) -> Any:
    """A column of texts as bytes: Parquet promises UTF-8, and files do not always keep it."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return column.cast(pyarrow.large_binary())
    return column


def _delimiter(header: str) -> str:
    """What separates the columns: whatever the first row has most of."""
    return max(",;\t|", key=header.count)


def _cell(row: list[str], place: int) -> str:
    return row[place] if place < len(row) else ""


def _plain(value: str | None) -> str | None:
    return None if value is None else repair(value)[0]


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, bytes):
        return decode(value)[0]
    return whole(str(value))


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(column if len(column) <= 60 else column[:60] + "…") for column in columns[:20])
    return shown + (", …" if len(columns) > 20 else "") if shown else "none"
