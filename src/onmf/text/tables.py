"""Documents in tables: CSV, TSV, JSON lines, Parquet. One row is one document."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .decode import bom_encoding, decode, repair, whole
from .streams import LARGEST_DOCUMENT

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
    lines = io.TextIOWrapper(stream, encoding=encoding, errors=escape, newline="")
    before = csv.field_size_limit(LARGEST_DOCUMENT)
    try:
        first = lines.readline()
        if not first.strip():
            raise ValueError(f"{name} is empty: a table needs a first row with the names of its columns.")
        reader = csv.reader(_chain(first, lines), delimiter=delimiter or _delimiter(first))
        header = [column.strip() for column in next(reader)]
        places = [None if c is None else header.index(c) for c in columns.find(name, header)]
        for row in reader:
            if not row:
                continue
            text, identifier, label = (None if place is None else _cell(row, place) for place in places)
            fixed, encoding_found = repair(text or "")
            yield _plain(identifier), fixed, _plain(label), encoding_found
    except csv.Error as error:
        raise ValueError(f"{name}, near line {reader.line_num}: {error}. Is it a CSV file?") from error
    finally:
        csv.field_size_limit(before)
        lines.detach()  # the stream is the caller's to close


def json_rows(stream: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Rows of a file with one JSON object a line."""
    found: tuple[str, str | None, str | None] | None = None
    for number, line in enumerate(stream, 1):
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
        body, identifier, label = (None if column is None else _scalar(record.get(column)) for column in found)
        yield identifier, body or "", label, repaired


def parquet_rows(file: IO[bytes], name: str, columns: Columns) -> Iterator[Row]:
    """Rows of a Parquet file, a batch at a time."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"{name} is a Parquet file, which needs pyarrow: pip install 'onmf[text]'.") from error
    try:
        table = ParquetFile(file)
        found = columns.find(name, table.schema_arrow.names)
        wanted = list(dict.fromkeys(column for column in found if column is not None))
        for batch in table.iter_batches(batch_size=1024, columns=wanted):
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


def _chain(first: str, lines: IO[str]) -> Iterator[str]:
    yield first
    yield from lines


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
    shown = ", ".join(repr(column) for column in columns[:20])
    return shown + (", …" if len(columns) > 20 else "") if shown else "none"
