"""Read documents from folders, archives, tables, streams and memory, one at a time.

Nothing is unpacked to disk, and all sizes are bounded.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import stat
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from numbers import Number
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, Self, cast

from onmf.door.files import listed
from onmf.io.limits import Bounded, check_growth
from onmf.io.rules import require, some_names
from onmf.naming import so_many
from onmf.warn import import_optional

from .decode import bom_encoding, decode, drop_encoded, is_binary, repair, strip_headers

LARGEST_DOCUMENT = 1 << 28  # Bytes of the largest document, 256 MB. A larger text is a corpus, or an attack.

LARGEST_HEADER = 1 << 24
"""Bytes of the largest header between two files of a tar archive, 16 MB. Names, owners and dates take a few hundred."""

MOST_CELLS = 1_000_000
"""Delimiters in one row. The memory for a row grows with its cells, and a text of 100 MB has fewer."""

PIECE = 1 << 16  # Characters of a JSON array that are read at a time

BATCH, PER_ROW = 64, 64
"""Rows of a Parquet file that are read at a time, and bytes that even an empty one takes in memory."""

LINK = "a link or device"  # Reason for skipping anything that is not a regular file

KINDS = {
    "folder": "a folder",
    "tar": "a tar archive",
    "zip": "a zip archive",
    "csv": "a CSV file",
    "tsv": "a TSV file",
    "json": "a JSON file",
    "jsonl": "a JSON lines file",
    "parquet": "a Parquet file",
    "lines": "a text file with one document per line",
}
"""Kinds of sources, and how errors call them."""

SUFFIXES = {
    **{f".{kind}": kind for kind in ("csv", "tsv", "json", "jsonl", "parquet")},
    ".tab": "tsv",
    ".ndjson": "jsonl",
}
SEEKABLE = {b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", b"PAR1": "parquet"}  # Their first bytes
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
CLUTTER = ("__MACOSX", "Thumbs.db", "desktop.ini")

STRIP = {"headers": strip_headers}  # Parts that can be dropped from each document


class Text(NamedTuple):
    """A document.

    Attributes
    ----------
    id : str
        Its name: a path, the value of a column, or its number.
    text : str
        Its text.
    label : str or None
        Its class, if known.
    date : str or None
        Its date as it is written, if known.
    group : str or None
        Its group: the source, author or year that it is from, if known.
    known : str or None
        The name of its cluster, if this is known.
    """

    id: str
    text: str
    label: str | None
    date: str | None = None
    group: str | None = None
    known: str | None = None


class Skipped(NamedTuple):
    """A file or a row that was left out, and the reason."""

    name: str
    reason: str


Decoded = tuple[Text, str | None]  # A document, and the encoding that its text was repaired from, if it was

Values = Sequence[Any]
"""The text of a document, then its identifier, label, date and group as they are in a table, None for those that are
not; or the text alone."""

Member = tuple[str, bytes | str]
"""Path of a file in a folder or an archive, and its content, or else the reason to skip it."""


class Columns(NamedTuple):
    """Names of the columns that the user chose; None for a column without a choice."""

    text: Any = None
    id: Any = None
    labels: Any = None
    date: Any = None
    groups: Any = None
    known: Any = None

    def find(self, name: str, present: Sequence[Any]) -> Self:
        """Return the columns with that of the texts, if it can be told; refuse a column that the table lacks."""
        found = f"It has {listed(list(map(str, present)))}."
        texts = [self.text] if self.text is not None else [c for c in present if str(c).strip().lower() == "text"]
        require(
            texts or len(present) == 1,
            f"{name} has no column 'text': name the column that holds the text (--text, in Python text=). {found}",
        )
        chosen = self._replace(text=[*texts, *present][0])
        contents = ("text", "identifiers", "labels", "dates", "groups", "known clusters")
        for column, content in zip(chosen, contents, strict=True):
            require(column is None or column in present, f"{name} has no column {column!r} for the {content}. {found}")
        return chosen


@dataclass(repr=False)
class Texts:
    """An iterator over the documents of a source, which can be used once. It also records problems on the way.

    Attributes
    ----------
    name : str
        Name of the source; empty if it is in memory.
    kind : str
        ``"folder"``, ``"tar"``, ``"zip"``, ``"csv"``, ``"tsv"``, ``"json"``, ``"jsonl"``, ``"parquet"`` or ``"lines"``;
        ``"memory"`` for a data frame or a list.
    strip : tuple of str
        Parts that are dropped from each document.
    keep_attachments : bool
        Whether encoded attachments are kept.
    n_read : int
        Number of documents read so far.
    repaired : Counter
        Number of documents that were not UTF-8, by the encoding they were read as.
    skipped : list of Skipped
        Files and rows that were left out, each with the reason.
    encoded : list of str
        Names of the documents from which encoded attachments (uuencode, base64) were dropped.
    watch : callable or None
        Called every 50 documents with ``n_read`` and the share of the file that was read, or None if that is not known.
        Use it for a progress bar.
    """

    name: str
    kind: str
    strip: tuple[str, ...] = ()
    keep_attachments: bool = False
    n_read: int = 0
    repaired: Counter[str] = field(default_factory=Counter)
    skipped: list[Skipped] = field(default_factory=list)
    encoded: list[str] = field(default_factory=list)
    watch: Callable[[int, float | None], object] | None = None
    fraction: Callable[[], float] | None = None
    documents: Iterator[Decoded] = field(default_factory=lambda: iter(()))

    def __iter__(self) -> Iterator[Text]:
        return self

    def __next__(self) -> Text:
        document, encoding = next(self.documents)
        self.n_read += 1
        if encoding is not None:
            self.repaired[encoding] += 1
        body = document.text
        if not self.keep_attachments:
            body, n_blocks = drop_encoded(body)
            if n_blocks:
                self.encoded.append(document.id)
        for name in self.strip:
            body = STRIP[name](body)
        if self.watch is not None and self.n_read % 50 == 0:
            self.watch(self.n_read, None if self.fraction is None else min(self.fraction(), 1.0))
        return document._replace(text=body)

    @property
    def notes(self) -> list[str]:
        """What was repaired, dropped and left out so far, as sentences."""
        notes = []
        if self.repaired:
            n = so_many(self.repaired.total(), "document")
            notes.append(f"{n} not in UTF-8, read as {', '.join(self.repaired)}.")
        if self.encoded:
            n = so_many(len(self.encoded), "document")
            notes.append(
                f"Encoded attachments dropped from {n}: {some_names(self.encoded)}. keep_attachments=True "
                "(--keep-attachments) keeps them."
            )
        if self.skipped:
            n = so_many(len(self.skipped), "file" if self.kind in MEMBERS else "row")
            notes.append(f"{n} left out: {some_names([f'{name} ({reason})' for name, reason in self.skipped])}.")
        return notes


def read(
    source: str | os.PathLike[str] | IO[bytes] | Iterable[Any],
    *,
    kind: str | None = None,
    text: str | None = None,
    id: str | None = None,
    labels: str | None = None,
    date: str | None = None,
    groups: str | None = None,
    known: str | None = None,
    strip: Iterable[str] = (),
    keep_attachments: bool = False,
) -> Texts:
    r"""Read documents from a folder, an archive, a table or a stream, one at a time.

    Nothing is unpacked to disk, and memory holds only one document. Links, damaged files and files that are not text
    are left out and listed in ``skipped``. Text that is not UTF-8 is decoded with a detected encoding; see
    ``repaired``.

    Parameters
    ----------
    source : str, path, binary stream, data frame, series or list
        A folder of text files, at any depth; a zip or tar archive of such a folder; a CSV, TSV, JSON, JSON lines or
        Parquet file; a text file with one document per line; ``"-"`` for standard input. Files may be compressed with
        gzip, bzip2, xz or zstd. A stream, or standard input, holds one document per line unless ``kind`` says
        otherwise. A data frame of pandas or polars is a table; a series or list holds one text per document. Their
        missing texts are left out, and the index of pandas names the documents.
    kind : str, optional
        Kind of the source if its name does not show it: ``"tar"``, ``"csv"``, ``"tsv"``, ``"json"``, ``"jsonl"`` or
        ``"lines"``.
    text, id : str, optional
        Table columns with the texts (``"text"`` by default) and the identifiers (numbers by default).
    labels : str, optional
        ``"folder"``: the class of a file is the folder that it is in. Otherwise, the table column with the classes.
    date : str, optional
        Table column with the dates.
    groups : str, optional
        Table column with the groups: sources, authors or years. ``"folder"``: the folder that a file is in.
    known : str, optional
        Table column with the name of the cluster of each document that is known; empty for free documents.
    strip : iterable of {"headers"}
        Parts to drop from each document: the headers of mail and news messages.
    keep_attachments : bool, default=False
        Whether to keep encoded attachments. By default, three or more lines of uuencode or base64 are dropped.

    Returns
    -------
    Texts

    Examples
    --------
    >>> import io
    >>> from onmf.text import read
    >>> [text.text for text in read(io.BytesIO(b"red tea\ncow milk\n"))]
    ['red tea', 'cow milk']
    """
    strip = (strip,) if isinstance(strip, str) else tuple(strip)
    if unknown := [name for name in strip if name not in STRIP]:
        raise ValueError(f"strip={unknown[0]!r} is not known: use {', '.join(map(repr, STRIP))}.")
    if kind not in (None, *KINDS):
        raise ValueError(f"kind={kind!r} is not known: use one of {', '.join(map(repr, KINDS))}.")
    columns = Columns(text, id, labels, date, groups, known)
    if not isinstance(source, str | os.PathLike) and not callable(getattr(source, "read", None)):
        _check_columns(columns, "this list", "table" if is_frame(source) else "memory")
        texts = Texts("", "memory", strip, keep_attachments)
        texts.documents = read_memory(source, columns, texts.skipped)
        return texts
    path, stream = _located(source)
    content: Any = None
    if stream is not None:
        kind, content = _recognise(_buffered(stream), path, kind)
    elif not os.path.isdir(path):
        with open(path, "rb") as file:
            kind, _ = _recognise(file, path, kind)
    elif kind not in (None, "folder"):
        raise ValueError(f"{path} is a folder, not {KINDS[kind]}.")
    kind = kind or "folder"
    _check_columns(columns, path, kind)
    texts = Texts(repair(path)[0], kind, strip, keep_attachments)

    def documents() -> Iterator[Decoded]:
        nonlocal content
        with ExitStack() as stack:
            if stream is None and kind != "folder":
                file = stack.enter_context(open(path, "rb"))
                texts.fraction = lambda: file.tell() / max(os.path.getsize(path), 1)
                content = _recognise(file, path, kind)[1]
            elif stream is not None and stream not in (source, sys.stdin.buffer):  # a pipe that we opened
                stack.enter_context(stream)
            if kind in MEMBERS:
                yield from _files(texts, MEMBERS[kind](content, path), columns)
            else:
                yield from map(_document, count(1), READERS[kind](content, path, columns))

    texts.documents = documents()
    return texts


def _located(source: Any) -> tuple[str, IO[bytes] | None]:
    """Return the name of a source, and its stream unless it is a file or a folder."""
    if not isinstance(source, str | os.PathLike):
        return str(getattr(source, "name", "the stream")), source
    path = os.fspath(source)
    if path == "-":
        return "standard input", sys.stdin.buffer
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: there is no such file or folder.")
    # A pipe, as of <(…) in a shell, can be opened only once.
    return path, None if os.path.isdir(path) or os.path.isfile(path) else open(path, "rb")


def _check_columns(columns: Columns, path: str, kind: str) -> None:
    """Refuse names of columns if the source is not a table."""
    for option, value in columns._asdict().items():
        by_folder = option in ("labels", "groups") and kind in MEMBERS
        if value not in (None, "folder" if by_folder else None) and kind in (*MEMBERS, "lines", "memory"):
            hint = f" Use {option}='folder' for the names of the folders." if by_folder else ""
            raise ValueError(f"{option}={value!r} is a column, but {path} is not a table.{hint}")


def _recognise(raw: io.BufferedReader, path: str, kind: str | None) -> tuple[str, io.BufferedReader]:
    """Return the kind of a file, and its decompressed content. Refuse it if the user wanted another kind."""
    found = SEEKABLE.get(raw.peek(4)[:4])
    if found is not None and not raw.seekable():
        raise ValueError(f"{path}: {KINDS[found]} cannot be read from a stream. Pass its path.")
    stream = decompressed(raw, path) if found is None else raw
    head = stream.peek(512)
    found = found or ("tar" if head[257:262] == b"ustar" else None)
    if found is not None:
        if kind not in (None, found):
            raise ValueError(f"{path} is {KINDS[found]}, not {KINDS[kind]}.")
        return found, stream
    name = Path(path.lower())
    suffix = Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix
    kind = kind or SUFFIXES.get(suffix, "lines")
    if kind in (*MEMBERS, "parquet"):  # which their content shows
        raise ValueError(f"{path} is not {KINDS[kind]}, or is damaged.")
    require(
        not is_binary(bytes(head)),
        f"{path} is not text: use a folder, a zip or tar archive, a CSV, TSV, JSON or Parquet file, or a text file "
        "with one document per line.",
    )
    return kind, stream


def _files(texts: Texts, members: Iterator[Member], columns: Columns) -> Iterator[Decoded]:
    """Yield the files that are texts, and record the others."""
    for name, data in members:
        name, _ = repair(name)  # file names can be arbitrary bytes
        path = PurePosixPath(name)
        if any(map(_clutter, path.parts)):
            continue
        if path.suffix.lower() in COMPRESSED and isinstance(data, bytes):
            try:
                data = read_document(decompressed(io.BytesIO(data), name), name)
            except ValueError as error:
                data = _reason(name, error)
        if isinstance(data, str) or is_binary(data):
            texts.skipped.append(Skipped(name, data if isinstance(data, str) else "not text"))
            continue
        body, encoding = decode(data)
        folder = path.parent.name or None
        known = {"label": folder if columns.labels else None, "group": folder if columns.groups else None}
        yield Text(name, body, **known), encoding


def _clutter(name: str) -> bool:
    """Whether a file or folder is hidden, or was made by an operating system for its own use."""
    return (name.startswith(".") and name not in (".", "..")) or name in CLUTTER


def _reason(name: str, error: Exception) -> str:
    """Why a file cannot be read, without its name."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error).removeprefix(f"{name} ").removeprefix("is ").rstrip(".")


def _folder_members(_: None, root: str) -> Iterator[Member]:
    """Yield the files below a folder, sorted by name; the files of a folder come before those of its subfolders.

    Links are not followed: they could lead outside, or in a circle. Only regular files are opened: a pipe could block.
    """
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted((entry for entry in listing if not _clutter(entry.name)), key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise
            yield prefix.rstrip("/"), _reason(prefix, error)
            continue
        subfolders = []
        for entry in entries:
            name = f"{prefix}{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    subfolders.append((entry.path, f"{name}/"))
                elif not entry.is_file(follow_symlinks=False):
                    yield name, LINK
                else:
                    with open(entry.path, "rb", opener=_open_file) as file:
                        yield name, read_document(file, name)
            except (OSError, ValueError) as error:
                yield name, _reason(name, error)
        waiting += reversed(subfolders)


def _open_file(path: str, flags: int) -> int:
    """Open a regular file. Fails if a link or a pipe has taken its place since the folder was listed."""
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, LINK)
    return descriptor


def read_document(stream: IO[bytes], name: str) -> bytes:
    """Read a document, and refuse it if it is too large."""
    data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise ValueError(
            f"{name} is larger than {LARGEST_DOCUMENT >> 20} MB, too large for one document: split it, or pass it "
            "as a file with one document per line."
        )
    return data


@contextmanager
def damaged(name: str, otherwise: str = "") -> Iterator[None]:
    """Turn anything that a library raises for a damaged file into a sentence. Our own refusals are ValueErrors."""
    try:
        yield
    except Exception as error:
        if type(error) in (ValueError, MemoryError):
            raise
        raise ValueError(f"{name} is damaged{otherwise}: {error}.") from error


class Counted(Bounded):
    """A stream that counts the bytes read from it, and refuses to read more than ``most`` of them."""

    most = sys.maxsize

    def pull(self, size: int) -> bytes:
        if self.count > self.most:
            raise ValueError(
                f"{self.name} is damaged or malicious: it has a header of more than {LARGEST_HEADER >> 20} MB."
            )
        return self.inner.read(min(size, 1 << 18))


class Decompressed(Bounded):
    """Decompressed bytes. Errors of the decompressor become a sentence that names the file."""

    def pull(self, size: int) -> bytes:
        with damaged(self.name):
            return super().pull(size)


def _buffered(stream: Any) -> io.BufferedReader:
    """Wrap the stream so that its first bytes can be peeked at."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)


def _zstd(source: Any) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(source, mode="r"), "zstd")


DECOMPRESSORS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": _zstd,
}
"""Decompressors by the first bytes of a file."""


def decompressed(stream: IO[bytes], name: str) -> io.BufferedReader:
    """Return the stream, decompressed if its first bytes are those of a gz, bz2, xz or zst file."""
    raw = _buffered(stream)
    decompress = next((function for magic, function in DECOMPRESSORS.items() if raw.peek(6).startswith(magic)), None)
    if decompress is None:
        return raw
    source = Counted(raw, name, lambda: sys.maxsize)
    try:
        content = decompress(io.BufferedReader(source))
    except ImportError as error:
        raise ImportError(f"{name} is a zst file, which needs pyarrow: pip install 'onmf[text]'.") from error
    return io.BufferedReader(Decompressed(content, name, lambda: source.count), 1 << 18)


def _tar_members(stream: IO[bytes], name: str) -> Iterator[Member]:
    """Yield the files of a tar archive in their order, reading it once from front to back.

    A header may claim any length, so no more is read between two files than :data:`LARGEST_HEADER`.
    """
    counted = Counted(stream, name, lambda: sys.maxsize)
    counted.most = LARGEST_HEADER
    with damaged(name), tarfile.open(fileobj=io.BufferedReader(counted), mode="r|") as archive:
        for info in archive:
            _check_name(info.name, name)
            if info.isfile() and (not 0 <= info.size <= LARGEST_DOCUMENT or info.issparse()):
                raise ValueError(
                    f"{name}: {info.name} is larger than {LARGEST_DOCUMENT >> 20} MB or a sparse file, so it cannot "
                    "be a document: the archive is refused."
                )
            counted.most = counted.count + LARGEST_HEADER + (info.size if info.isfile() else 0)
            if info.isfile():
                yield info.name, cast(IO[bytes], archive.extractfile(info)).read()
            elif info.islnk() or info.issym() or info.isdev():
                yield info.name, LINK


def _zip_members(file: IO[bytes], name: str) -> Iterator[Member]:
    """Yield the files of a zip archive in their order."""
    length, grown = file.seek(0, io.SEEK_END), 0
    with damaged(name, ", or not a readable zip file"), zipfile.ZipFile(file) as archive:
        for path in archive.namelist():  # all names, before any file is read
            _check_name(path, name)
        for info in archive.infolist():
            require(not info.flag_bits & 1, f"{name}: {info.filename} is encrypted: unpack the archive first.")
            if stat.S_ISLNK(info.external_attr >> 16):
                yield info.filename, LINK
            elif not info.is_dir():
                with archive.open(info) as member:
                    data = read_document(member, f"{name}: {info.filename}")
                grown += len(data)
                check_growth(name, grown, length)
                yield info.filename, data


MEMBERS: dict[str, Callable[[Any, str], Iterator[Member]]] = {
    "folder": _folder_members,
    "tar": _tar_members,
    "zip": _zip_members,
}
"""Readers of the kinds of sources whose files are documents."""


def _check_name(member: str, archive: str) -> None:
    """Refuse an archive with a member that would be unpacked outside its folder."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (len(member) > 1 and member[1] == ":"):
        raise ValueError(
            f"{archive} contains {member[:200]!r}, which would be unpacked outside its folder: the archive is refused."
        )


def _check_size(where: str, length: int, cells: int = 0) -> None:
    """Refuse a text that is too long, or a row whose cells would take too much memory."""
    if length > LARGEST_DOCUMENT:
        raise ValueError(f"{where} is longer than {LARGEST_DOCUMENT >> 20} MB, too long for a document.")
    if cells > MOST_CELLS:
        raise ValueError(f"{where} has more than {MOST_CELLS:,} cells, too many for a table of documents.")


def bounded_lines(stream: IO[str], name: str) -> Iterator[str]:
    """Yield the lines of a stream. A line that is too long is not read to its end."""
    for number, line in enumerate(iter(lambda: stream.readline(LARGEST_DOCUMENT + 1), ""), 1):
        if len(line) > LARGEST_DOCUMENT:
            _check_size(f"Line {number} of {name}", len(line))
        yield line


@contextmanager
def decoded(stream: io.BufferedReader, newline: str = "\n") -> Iterator[io.TextIOWrapper]:
    """The stream as text, in UTF-8 or in the encoding of its byte order mark. Bytes that are not UTF-8 are kept."""
    encoding = bom_encoding(stream.peek(4)) or "utf-8"
    errors = "surrogateescape" if encoding.startswith("utf-8") else "replace"
    text = io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline=newline)
    try:
        yield text
    finally:
        text.detach()  # the caller closes the stream


def read_lines(stream: io.BufferedReader, name: str, columns: Columns) -> Iterator[Values]:
    """Yield one document per line. Empty lines are documents too, so that documents and lines have the same numbers."""
    with decoded(stream) as file:
        for line in bounded_lines(file, name):
            yield (line.rstrip("\r\n"),)


def read_csv(stream: io.BufferedReader, name: str, columns: Columns, delimiter: str = "") -> Iterator[Values]:
    """Yield the rows of a CSV file. Its first row names the columns; quoted fields may contain newlines."""
    limit = csv.field_size_limit(LARGEST_DOCUMENT)
    length, cells, where = 0, 0, f"A row of {name}"

    def counted(lines: Iterable[str]) -> Iterator[str]:
        nonlocal length, cells  # of the row that the lines are part of
        for line in lines:
            length += len(line)
            cells += line.count(delimiter)
            _check_size(where, length, cells)
            yield line

    try:
        with decoded(stream, newline="") as file:
            lines = bounded_lines(file, name)
            first = next(lines, "")
            require(first.strip(), f"{name} is empty: the first row of a table must name its columns.")
            delimiter = delimiter or max(",;\t|", key=first.count)
            reader = csv.reader(counted(chain([first], lines)), delimiter=delimiter)
            header = [column.strip() for column in next(reader)]
            places = [None if column is None else header.index(column) for column in columns.find(name, header)]
            length = cells = 0
            for row in reader:
                length = cells = 0
                if row:
                    yield [None if i is None else (row[i] if i < len(row) else "") for i in places]
    except csv.Error as error:
        raise ValueError(f"{name}, near line {reader.line_num}: {error}. Is it a CSV file?") from error
    finally:
        csv.field_size_limit(limit)


def read_json(stream: io.BufferedReader, name: str, columns: Columns) -> Iterator[Values]:
    """Yield the entries of a JSON array, or of a file with one JSON value per line: objects, or plain texts."""
    chosen: Columns | None = None
    head = stream.peek(512)
    beginning = head.decode(bom_encoding(head) or "utf-8", errors="ignore").lstrip("\ufeff \t\r\n")
    entries = _json_array if beginning.startswith("[") else _json_lines
    with decoded(stream) as file:
        for where, entry in entries(file, name):
            if isinstance(entry, str) and columns == Columns():
                yield (entry,)
            elif isinstance(entry, dict):
                chosen = chosen or columns.find(name, list(entry))
                yield [None if column is None else entry.get(column) for column in chosen]
            else:
                raise ValueError(f'{where}, is not a JSON object: write {{"text": …}} for every document.')


def _json_lines(file: IO[str], name: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(bounded_lines(file, name), 1):
        where = f"{name}, line {number}"
        _check_size(f"{where},", 0, _count_cells(line))
        if line.strip():
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}, is not JSON: {str(error)[:200]}.") from error


def _json_array(file: IO[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a JSON array. Memory holds one entry, and a piece of the file of about its length."""
    space, decoder = re.compile(r"[ \t\r\n]*"), json.JSONDecoder()
    text, position = file.read(PIECE).lstrip("\ufeff \t\r\n").removeprefix("[").lstrip(), 0
    if text.startswith("]"):
        return
    for number in count(1):
        where, failure = f"{name}, entry {number}", "it ends early"
        while True:
            try:
                entry, end = decoder.raw_decode(text, space.match(text, position).end())  # type: ignore[union-attr]
                end = space.match(text, end).end()  # type: ignore[union-attr]
            except (ValueError, RecursionError) as error:
                end, failure = len(text), str(error)[:200]
            if end < len(text):
                break
            text, position = text[position:], 0  # the entry may go on in the next piece
            more = _more(file, where, text)
            if not more:
                raise ValueError(f"{where}, is not JSON: {failure}.")
            text += more
        yield where, entry
        if text[end] == "]":
            return
        if text[end] != ",":
            raise ValueError(f"{where}, is not JSON: a comma must follow it.")
        position = end + 1


def _more(file: IO[str], where: str, text: str) -> str:
    """Read as much as the beginning ``text`` of an entry is long, or less if that has very many cells."""
    _check_size(f"{where},", len(text), _count_cells(text))
    pieces, cells = [file.read(PIECE)], 0
    while pieces[-1] and len(pieces) * PIECE < len(text) and cells < MOST_CELLS:
        cells += _count_cells(pieces[-1])
        pieces.append(file.read(PIECE))
    return "".join(pieces)


def _count_cells(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def read_parquet(file: io.BufferedReader, name: str, columns: Columns) -> Iterator[Values]:
    """Yield the rows of a Parquet file, reading a batch at a time."""
    pyarrow = import_optional("pyarrow", f"{name} is a Parquet file, which needs pyarrow", "text")
    from pyarrow.parquet import ParquetFile

    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        table, grown = ParquetFile(file), 0
        chosen = columns.find(name, table.schema_arrow.names)
        wanted = list(dict.fromkeys(column for column in chosen if column is not None))
        for batch in table.iter_batches(batch_size=BATCH, columns=wanted):
            grown += batch.nbytes + PER_ROW * batch.num_rows
            check_growth(name, grown, length)
            values = {column: _bytes(batch.column(column)).to_pylist() for column in wanted}
            values[None] = [None] * batch.num_rows
            yield from zip(*(values[column] for column in chosen), strict=True)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise ValueError(f"{name} is damaged, or not a Parquet file: {reason}.") from error


def _bytes(column: Any) -> Any:
    """Convert a column of texts to bytes: Parquet requires UTF-8, but not all files comply."""
    from pyarrow import large_binary, types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(large_binary()) if str(column.type) in ("string", "large_string") else column


READERS: dict[str, Callable[[io.BufferedReader, str, Columns], Iterator[Values]]] = {
    "lines": read_lines,
    "csv": read_csv,
    "tsv": lambda stream, name, columns: read_csv(stream, name, columns, "\t"),
    "json": read_json,
    "jsonl": read_json,
    "parquet": read_parquet,
}
"""Readers of the kinds of files whose rows are documents."""


def read_memory(source: Any, columns: Columns, skipped: list[Skipped]) -> Iterator[Decoded]:
    """Yield the rows of a data frame, or the texts of a series, a list or another iterable. Missing texts are skipped.

    The index of pandas names the documents, unless a column does; otherwise they are numbered from 1.
    """
    parts = [source]
    if is_frame(source):
        chosen = columns.find("The table", list(source.columns))
        parts = [repeat(None) if column is None else source[column] for column in chosen]
    names = source.index if hasattr(type(source), "iloc") else count(1)
    for name, body, *others in zip(names, *parts):  # noqa: B905
        if isinstance(body, Text):
            yield body, None
        elif _is_missing(body):
            skipped.append(Skipped(str(name), "no text"))
        elif not isinstance(body, str | bytes | Number):
            raise TypeError(f"Text {name} is a {type(body).__name__}: give strings, or documents of the class Text.")
        else:
            yield _document(name, [body, *(None if _is_missing(value) else value for value in others)])


def is_frame(source: Any) -> bool:
    """Whether this is a data frame of pandas or polars. A column or a row may have any name, so the class is asked."""
    return hasattr(type(source), "columns")


def _is_missing(value: Any) -> bool:
    """Whether a value is None, or one that pandas uses for a missing value. The text "nan" is a text."""
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "NaT", "<NA>"))


def _document(name: Any, values: Values) -> Decoded:
    """Make a document of the values of its columns. ``name`` is its name if no column holds one."""
    try:
        (body, encoding), *others = map(_text, values)
    except RecursionError as error:
        raise ValueError(f"Document {name} is nested too deeply for a text.") from error
    identifier, *known = [text for text, _ in others] or [None]
    return Text(str(name) if identifier is None else identifier, body or "", *(known or [None])), encoding


def _text(value: Any) -> tuple[str | None, str | None]:
    """Convert a value to text, and say which encoding it was repaired from."""
    if value is None:
        return None, None
    return decode(value) if isinstance(value, bytes) else repair(str(value))
