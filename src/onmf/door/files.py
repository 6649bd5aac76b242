"""Readers that several kinds of data share: counts in csv, npz and Matrix Market files; classes and groups of rows."""

import csv
import gzip
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.datasets.readers import as_counts, open_npz, opened, read_documents
from onmf.io import isolated_readers
from onmf.io.csv_file import plain
from onmf.io.rules import require
from onmf.warn import import_optional

from .clusters import Table

Names = Sequence[str | None]

HDF5 = b"\x89HDF\r\n\x1a\n"  # The first bytes of an HDF5 file
LONGEST_LINE = 1 << 26  # Bytes of the longest first line, 64 MB: the names of about six million columns
BLOCK = 1 << 23  # Entries of a table that are read at a time

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")

MISSING = ["", "NA", "NaN", "nan", "N/A"]
"""Entries that are read as missing. Names of rows and features may be any of these but the first."""

CLASSES = ("y", "classes")  # Names of the column of classes in an npz file: both mean the name of each row's class

SUFFIX = re.compile(r"-\d+$")
"""A number at the end of a name, such as that of the library in a barcode, which many tables leave out."""


@dataclass
class Draft:
    """Counts and names as they are in a file; None for a missing name, or if there are no names at all."""

    X: Any
    rows: Names | None
    features: Names | None
    place: str  # where in the file the counts are
    found: Mapping[str, Names] = field(default_factory=dict)  # columns about the rows: those that were asked for
    columns: Sequence[str] = ()  # names of all columns that could be asked for
    notes: list[str] = field(default_factory=list)
    corner: str = ""  # name of the column of names in a table


def head_of(path: Path) -> bytes:
    """The first bytes of a file, decompressed."""
    try:
        with opened(path) as file:
            head = file.read(4096)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    require(head.strip(), f"{path} is empty: get another copy.")
    return head


def read_wide(path: Path, asked: Sequence[str] = ()) -> Draft:
    """Read a csv or tsv table of counts with names in its first row and column, and the columns that are asked for."""
    pd = import_optional("pandas", "Tables need pandas", "table")
    rows: list[str] = []
    found: dict[str, list[str | None]] = {}
    parts: list[csr_array] = []
    try:
        with opened(path) as file:
            header, delimiter = first_line(file)
            named = not all(NUMBER.fullmatch(name) for name in header)
            if not named:
                parts.append(as_counts(np.array([header], dtype=np.float64)))
            for frame in _frames(pd, file, delimiter, len(header), named):
                if named and not parts and frame.shape[1] == len(header) + 1:
                    header = ["", *header]  # R leaves out the name of the column of names
                if frame.shape[1] != len(header):
                    raise ValueError(
                        f"its first line has {len(header)} entries, but the next one has {frame.shape[1]}."
                    )
                if named:
                    if not parts:
                        check_columns("it", asked, header[1:])
                    rows += frame.pop(0).tolist()
                    for name in asked:
                        if name in header[1:]:
                            values = found.setdefault(name, [])
                            values += [label_of(value) for value in _pop(frame, header, name)]
                parts.append(as_counts(_numbers(frame, header if named else None)))
    except Exception as error:  # pandas and gzip raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a table of counts: {str(error).strip()}") from error
    X = csr_array(vstack(parts, format="csr"))
    if not named:
        return Draft(X, None, None, "the table")
    features = [plain(name) for name in header[1:] if name not in found]
    return Draft(X, rows, features, "the table", found, list(found), corner=header[0])


def _frames(pandas: Any, file: IO[bytes], delimiter: str, width: int, named: bool) -> Iterator[Any]:
    """Read some rows of a table at a time."""
    try:
        with pandas.read_csv(
            file,
            sep=delimiter,
            header=None,
            converters={0: plain} if named else None,
            chunksize=max(1, BLOCK // width),
            low_memory=False,
            keep_default_na=False,
            na_values=MISSING,
            encoding_errors="replace",
        ) as frames:
            yield from frames
    except pandas.errors.EmptyDataError:
        if named:
            raise ValueError("it has a first line with names, but no rows.") from None


def _pop(frame: Any, header: Sequence[str], name: str) -> Any:
    """Take a column out of some rows."""
    require(header[1:].count(name) == 1, f"it has several columns {name!r}: rename all but one.")
    return frame.pop(header.index(name, 1))


def _numbers(frame: Any, header: list[str] | None) -> Any:
    """The numbers in some rows; a column that holds something else is refused."""
    for column, dtype in frame.dtypes.items():
        if dtype.kind not in "buif":
            text = next((str(value) for value in frame[column] if not NUMBER.fullmatch(str(value))), "")
            name = str(column + 1) if header is None else header[column]
            raise ValueError(
                f"its column {name[:80]!r} holds {text[:80]!r}, which is not a number. Remove this column, or name it "
                "as the labels or the groups."
            )
    return frame.to_numpy(dtype=np.float64)


def first_line(file: IO[bytes]) -> tuple[list[str], str]:
    """Read the names of the columns. → the names, and the delimiter"""
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise ValueError(f"its first line has more than {LONGEST_LINE >> 20} MB: this is not a row of names.")
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    require(text.strip(), "its first line is empty: it must name the columns.")
    delimiter = max(",;\t", key=text.count) if re.search("[,;\t]", text) else " "
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter=delimiter))], delimiter
    finally:
        csv.field_size_limit(limit)


def label_of(value: Any) -> str | None:
    """A class or a group as text, None if it is missing.

    Whole floats lose their point: a column of integers has them if one is missing.
    """
    if value is None or value != value:
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def add_columns(
    table: Table,
    draft: Draft,
    path: Path,
    names: Sequence[str],
    noun: str,
    labels: str | None,
    groups: str | None,
    known: str | None = None,
) -> None:
    """Add the class, the group and the known cluster of each row to a table, if they are asked for."""
    if labels is not None:
        table.classes = _find_column("label", labels, table, draft, path, names, noun)
    if groups is not None:
        table.groups = _find_column("group", groups, table, draft, path, names, noun)
    if known is not None:
        table.known = _find_column("known cluster", known, table, draft, path, names, noun)


def asked_for(*columns: str | None) -> list[str]:
    """The columns to look for in a file."""
    return list(dict.fromkeys(name for name in columns if name is not None))


def check_columns(table: str | Path, asked: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a column that a table lacks, unless it is one of another table."""
    for name in asked:
        require(
            name in columns or ":" in name,
            f"{table} has no column {name!r}: it has {listed(columns, 5)}. One in a table of its own is named as "
            "FILE.csv:COLUMN.",
        )


def _find_column(
    what: str, asked: str, table: Table, draft: Draft, path: Path, names: Sequence[str], noun: str
) -> list[str | None]:
    """Find a value for each row: in a column of the file, or in a table ``FILE.csv:COLUMN``. Notes go to the table."""
    file, _, column = asked.rpartition(":")
    if asked in draft.found:
        values = [value or None for value in draft.found[asked]]
    elif not file:
        raise ValueError(
            f"{path} has no column {asked!r} for the {what}s of the {noun}s: it has {listed(draft.columns)}. "
            f"{what.capitalize()}s in a table of their own are named as FILE.csv:COLUMN."
        )
    elif not Path(file).is_file():
        raise FileNotFoundError(f"{file} is not a file, so it has no column {column!r} with {what}s.")
    else:
        values, notes = _joined(Path(file), column, names, noun)
        table.notes += notes
    known = sum(value is not None for value in values)
    require(known, f"The {what}s {asked!r} are empty for all {len(values):,} {noun}s of {path}.")
    if known < len(values):
        table.notes.append(f"{noun.capitalize()}s without a {what}: {len(values) - known:,} of {len(values):,}.")
    return values


def _joined(path: Path, column: str, names: Sequence[str], noun: str) -> tuple[list[str | None], list[str]]:
    """Look up rows in a table whose first column has their names."""
    try:
        table = _read_labels(path, column)
    except Exception as error:  # gzip and csv raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a table of labels or groups: {error}") from error
    if any(name in table for name in names):
        return [table.get(name) or None for name in names], []
    short: dict[str, str] = {}
    for name, value in table.items():
        if short.setdefault(SUFFIX.sub("", name), value) != value:
            short = {}  # the numbers tell cells apart
            break
    classes = [short.get(SUFFIX.sub("", name)) or None for name in names]
    if not any(classes):
        raise ValueError(
            f"{path} has none of the {noun}s: its first column has names such as {listed(list(table), 2)}, the counts "
            f"have {listed(list(names), 2)}."
        )
    return classes, [f"The names in {path.name} were matched without the number at the end."]


def _read_labels(path: Path, column: str) -> dict[str, str]:
    """Read the first column of a table and another one."""
    table: dict[str, str] = {}
    with opened(path) as file:
        header, delimiter = first_line(file)
        if column not in header:
            raise ValueError(f"it has no column {column!r}, but {listed(header)}.")
        at = header.index(column)
        text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
        for row in filter(None, csv.reader(text, delimiter=delimiter)):
            shift = len(row) == len(header) + 1  # R leaves out the name of the column of names
            name, value = plain(row[0]), plain(row[at + shift]) if at + shift < len(row) else ""
            if table.setdefault(name, value) != value:
                raise ValueError(f"it has two different entries for {name[:80]!r}: {table[name]!r} and {value!r}.")
        text.detach()
    return table


def read_npz(path: Path, asked: Sequence[str] = ()) -> Draft:
    """Read a sparse matrix as SciPy's ``save_npz`` writes it, or with names and classes, as in our data sets."""
    X = read_documents(path, "npz").X
    try:
        with open_npz(path) as file:
            arrays = {key: file[key] for key in ("genes", "features", "barcodes", "rows", *CLASSES) if key in file}
    except Exception as error:  # zipfile and NumPy raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as npz: {error}") from error
    features = _array_texts(arrays, "genes" if "genes" in arrays else "features", path)
    rows = _array_texts(arrays, "barcodes" if "barcodes" in arrays else "rows", path)
    if "y" not in arrays:
        return Draft(X, rows, features, "the matrix")
    found = {name: values for name in asked if name in CLASSES and (values := _npz_classes(arrays, path)) is not None}
    return Draft(X, rows, features, "the matrix", found, CLASSES)


def _array_texts(arrays: dict[str, Any], key: str, path: Path) -> Names | None:
    """A list of texts or numbers as texts; None if it is not there."""
    array = arrays.get(key)
    if array is None:
        return None
    if array.ndim != 1 or array.dtype.kind not in "buifUS":
        raise ValueError(f"{path}: {key} has shape {array.shape} and type {array.dtype}: expected a list.")
    if array.dtype.kind == "U" and array.nbytes:
        characters = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if characters.max() > sys.maxunicode:  # Python would make texts of them that crash it
            raise ValueError(f"{path}: {key} has characters that do not exist: the file is damaged.")
    return [isolated_readers.as_text(value) for value in array.tolist()]


def _npz_classes(arrays: dict[str, Any], path: Path) -> Names | None:
    """The name of each row's class."""
    y, names = (_array_texts(arrays, key, path) for key in CLASSES)
    numbers = arrays["y"]
    if names is None or numbers.dtype.kind not in "ui":
        return y
    if ((numbers < 0) | (numbers >= len(names))).any():
        raise ValueError(f"{path}: y has numbers outside of the {len(names)} names in classes.")
    return [names[int(k)] for k in numbers]


def names_of(draft: Draft, path: Path, row: str, feature: str) -> tuple[list[str], list[str], list[str]]:
    """Check that a draft has rows and features, and as many names. → names of rows, of features, and notes"""
    n, p = draft.X.shape
    if n == 0 or p == 0:
        size = f"{n:,} {row}s × {p:,} {feature}s"
        raise ValueError(f"{path} has no {row if n == 0 else feature}s: {draft.place} is {size}.")
    for values, count, noun in (
        (draft.rows, n, f"names of {row}s"),
        *((values, n, f"entries of {name!r}") for name, values in draft.found.items()),
        (draft.features, p, f"names of {feature}s"),
    ):
        if values is not None and len(values) != count:
            raise ValueError(
                f"{path} has {len(values):,} {noun} for {count:,}: it is damaged, or was put together from parts of "
                "different files."
            )
    rows, about_rows = complete(draft.rows, n, row)
    features, about_features = complete(draft.features, p, feature)
    return rows, features, [*draft.notes, *about_rows, *about_features]


def complete(names: Sequence[str | None] | None, count: int, noun: str) -> tuple[list[str], list[str]]:
    """Fill in missing names, and make all of them unique. → the names, and notes"""
    if names is None:
        return [f"{noun} {i + 1}" for i in range(count)], [f"The file has no names of {noun}s: they are numbered."]
    notes = []
    if missing := sum(not name for name in names):
        notes.append(f"{noun.capitalize()}s without a name are numbered: {missing:,} of {count:,}.")
    found = [name or f"{noun} {i + 1}" for i, name in enumerate(names)]
    taken = set(found)
    if len(taken) == len(found):
        return found, notes
    result: dict[str, str] = {}  # each name, and what it was
    endings: Counter[str] = Counter()
    for name in found:
        new = name
        while new in result or (new != name and new in taken):
            endings[name] += 1
            new = f"{name}-{endings[name]}"
        result[new] = name
    changed = sum(new != name for new, name in result.items())
    notes.append(f"Names of {noun}s that occurred before got the endings -1, -2 and so on: {changed:,} of {count:,}.")
    return list(result), notes


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names in a sentence: the first ones, shortened."""
    shown = [repr(name if len(name) <= 60 else name[:60] + "…") for name in names[:most]]
    return ", ".join(shown) + (", …" if len(names) > most else "") if shown else "none"
