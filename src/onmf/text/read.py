"""Read documents from folders, archives, tables and streams, one at a time."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from .decode import bom_encoding, decode, is_binary, repair
from .mail import drop_encoded, strip_headers
from .streams import (
    LINK,
    Member,
    Skipped,
    bounded_lines,
    buffered,
    decompressed,
    is_tar,
    read_document,
    tar_members,
    zip_members,
)
from .tables import READERS as TABLES
from .tables import Columns

KINDS = {
    "folder": "a folder",
    "tar": "a tar archive",
    "zip": "a zip archive",
    "csv": "a CSV file",
    "tsv": "a TSV file",
    "jsonl": "a JSON lines file",
    "parquet": "a Parquet file",
    "lines": "a text file with one document per line",
}
"""Kinds of sources, and how errors call them."""

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
FOLDERS = ("folder", "tar", "zip")
BY_CONTENT = (*FOLDERS, "parquet")
"""Kinds that must be recognised by their content; a name or ``kind`` is not enough."""

CLUTTER = ("__MACOSX", "Thumbs.db", "desktop.ini")
STRIP = {"headers": strip_headers}


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
    """

    id: str
    text: str
    label: str | None
    date: str | None = None


class Texts:
    """An iterator over the documents of a source, which can be used once. It also records problems on the way.

    Attributes
    ----------
    name : str
        Name of the source.
    kind : str
        ``"folder"``, ``"tar"``, ``"zip"``, ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"parquet"`` or ``"lines"``.
    strip : tuple of str
        Parts that are dropped from each document.
    n_read : int
        Number of documents read so far.
    repaired : Counter
        Number of documents that were not UTF-8, by the encoding they were read as.
    skipped : list of Skipped
        Files that were left out, each with the reason.
    n_encoded : int
        Number of documents from which encoded attachments (uuencode, base64) were dropped.
    watch : callable or None
        Called every 50 documents with ``n_read`` and the share of the file that was read, or None if that is not known.
        Use it for a progress bar.
    """

    def __init__(self, name: str, kind: str, strip: Iterable[str], texts: Iterable[Text] = ()) -> None:
        self.name = name
        self.kind = kind
        self.strip = tuple(strip)
        self.n_read = 0
        self.repaired: Counter[str] = Counter()
        self.skipped: list[Skipped] = []
        self.n_encoded = 0
        self.watch: Callable[[int, float | None], object] | None = None
        self.fraction: Callable[[], float] | None = None
        self._texts = iter(texts)

    def __iter__(self) -> Iterator[Text]:
        return self

    def __next__(self) -> Text:
        text = next(self._texts)
        self.n_read += 1
        if self.watch is not None and self.n_read % 50 == 0:
            self.watch(self.n_read, None if self.fraction is None else min(self.fraction(), 1.0))
        return text


class _Layout(NamedTuple):
    """Where the documents are in a source."""

    path: str
    columns: Columns
    by_folder: bool


def read_texts(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    kind: str | None = None,
    text: str | None = None,
    id: str | None = None,
    labels: str | None = None,
    date: str | None = None,
    strip: Iterable[str] = (),
) -> Texts:
    r"""Read documents from a folder, an archive, a table or a stream, one at a time.

    Nothing is unpacked to disk, and memory holds only one document. Links, damaged files and files that are not text
    are left out and listed in ``skipped``. Encoded attachments (three or more lines of uuencode or base64) are dropped.
    Text that is not UTF-8 is decoded with a detected encoding; see ``repaired``.

    Parameters
    ----------
    source : str, path or binary stream
        A folder of text files, at any depth; a zip or tar archive of such a folder; a CSV, TSV, JSON lines or Parquet
        file; a text file with one document per line; ``"-"`` for standard input. Files may be compressed with gzip,
        bzip2, xz or zstd. A stream, or standard input, holds one document per line unless ``kind`` says otherwise.
    kind : str, optional
        Kind of the source if its name does not show it: ``"tar"``, ``"csv"``, ``"tsv"``, ``"jsonl"`` or ``"lines"``.
    text, id : str, optional
        Table columns with the texts (``"text"`` by default) and the identifiers (numbers by default).
    labels : str, optional
        ``"folder"``: the class of a file is the folder that it is in. Otherwise, the table column with the classes.
    date : str, optional
        Table column with the dates.
    strip : iterable of {"headers"}
        Parts to drop from each document: the headers of mail and news messages.

    Returns
    -------
    Texts

    Examples
    --------
    >>> import io
    >>> from onmf.text import read_texts
    >>> [text.text for text in read_texts(io.BytesIO(b"red tea\ncow milk\n"))]
    ['red tea', 'cow milk']
    """
    strip = tuple(strip)
    unknown = [name for name in strip if name not in STRIP]
    if unknown:
        raise ValueError(f"strip={unknown[0]!r} is not known: use {', '.join(map(repr, STRIP))}.")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not known: use one of {', '.join(map(repr, KINDS))}.")
    stream: IO[bytes] | None = None
    must_close = is_folder = False
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        is_folder = os.path.isdir(path)
        if path == "-":
            path, stream, is_folder = "standard input", sys.stdin.buffer, False
        elif not os.path.exists(path):
            raise FileNotFoundError(f"{path}: there is no such file or folder.")
        elif not (is_folder or os.path.isfile(path)):  # a pipe, as of <(…) in a shell, can be opened only once
            must_close, stream = True, open(path, "rb")  # noqa: SIM115
    else:
        path, stream = str(getattr(source, "name", "the stream")), source
    raw = None if stream is None else buffered(stream)
    unpacked = raw
    if is_folder:
        kind = _checked(path, kind, "folder")
    elif raw is not None:
        kind, unpacked = _recognise(raw, path, kind)
    else:
        with open(path, "rb") as file:
            kind, _ = _recognise(file, path, kind)
    by_folder = labels == "folder" and kind in FOLDERS
    if kind not in TABLES:
        for option, value in (("text", text), ("id", id), ("labels", None if by_folder else labels), ("date", date)):
            if value is not None:
                wanted = kind in FOLDERS and option == "labels"
                hint = " Use labels='folder' for the names of the folders." if wanted else ""
                raise ValueError(f"{option}={value!r} is a column, but {path} is not a table.{hint}")
    texts = Texts(repair(path)[0], kind, strip)
    layout = _Layout(path, Columns(text, id, labels, date), by_folder)

    def documents() -> Iterator[Text]:
        if is_folder:
            yield from _files(texts, _folder_members(path), by_folder)
        elif unpacked is not None:
            try:
                yield from READERS[kind](texts, unpacked, layout)
            finally:
                if must_close and raw is not None:
                    raw.close()
        else:
            with open(path, "rb") as file:
                texts.fraction = lambda: file.tell() / max(os.path.getsize(path), 1)
                yield from READERS[kind](texts, _recognise(file, path, kind)[1], layout)

    texts._texts = _stripped(texts, documents())
    return texts


def _stripped(texts: Texts, documents: Iterator[Text]) -> Iterator[Text]:
    """Drop encoded attachments and the parts named in ``texts.strip``."""
    for document in documents:
        body, n_blocks = drop_encoded(document.text)
        texts.n_encoded += bool(n_blocks)
        for name in texts.strip:
            body = STRIP[name](body)
        yield document._replace(text=body)


def _recognise(raw: io.BufferedReader, path: str, kind: str | None) -> tuple[str, io.BufferedReader]:
    """Return the kind of a file, and its decompressed content."""
    head = raw.peek(512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if not (raw.seekable() and os.path.exists(path)):
            raise ValueError(f"{path}: a zip archive cannot be read from a stream. Pass its path.")
        return _checked(path, kind, "zip"), raw
    if head.startswith(b"PAR1"):
        if not raw.seekable():
            raise ValueError(f"{path}: a Parquet file cannot be read from a stream. Pass its path.")
        return _checked(path, kind, "parquet"), raw
    stream = decompressed(raw, path)
    head = stream.peek(512)
    if is_tar(head):
        return _checked(path, kind, "tar"), stream
    name = Path(path.lower())
    suffix = Path(name.stem).suffix if name.suffix in COMPRESSED else name.suffix
    kind = kind or SUFFIXES.get(suffix, "lines")
    if kind in BY_CONTENT:
        raise ValueError(f"{path} is not {KINDS[kind]}, or is damaged.")
    if is_binary(bytes(head)):
        raise ValueError(
            f"{path} is not text: use a folder, a zip or tar archive, a CSV, TSV, JSON lines or Parquet file, or a "
            "text file with one document per line."
        )
    return kind, stream


def _checked(path: str, wanted: str | None, kind: str) -> str:
    """Return the kind of a source, and refuse it if the user wanted another one."""
    if wanted not in (None, kind):
        raise ValueError(f"{path} is {KINDS[kind]}, not {KINDS[wanted]}.")
    return kind


def _folder_members(root: str) -> Iterator[Member | Skipped]:
    """Yield the files below a folder, sorted by name; the files of a folder come before those of its subfolders.

    Links are not followed: they could lead outside, or in a circle. Only regular files are opened: reading a pipe could
    block.
    """
    waiting = [(os.fspath(root), "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted((entry for entry in listing if not _clutter(entry.name)), key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise
            yield Skipped(prefix.rstrip("/"), error.strerror or str(error))
            continue
        subfolders = []
        for entry in entries:
            name = f"{prefix}{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    subfolders.append((entry.path, f"{name}/"))
                elif not entry.is_file(follow_symlinks=False):
                    yield Skipped(name, LINK)
                else:
                    with open(entry.path, "rb", opener=_open_file) as file:
                        data = read_document(file, name)
                    yield Member(name, data)
            except OSError as error:
                yield Skipped(name, error.strerror or str(error))
            except ValueError as error:
                yield _skipped(name, error)
        waiting += reversed(subfolders)


def _open_file(path: str, flags: int) -> int:
    """Open a regular file. Fails if a link or a pipe has taken its place since the folder was listed."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, LINK)
    return descriptor


def _skipped(name: str, error: ValueError) -> Skipped:
    """A file that cannot be read. The reason does not repeat its name."""
    return Skipped(name, str(error).removeprefix(f"{name} ").removeprefix("is ").rstrip("."))


def _files(texts: Texts, members: Iterator[Member | Skipped], by_folder: bool) -> Iterator[Text]:
    """Yield the files that are texts, and record the others."""
    for member in members:
        name, _ = repair(member.name)  # file names can be arbitrary bytes
        path = PurePosixPath(name)
        if any(_clutter(part) for part in path.parts):
            continue
        if isinstance(member, Skipped):
            texts.skipped.append(member._replace(name=name))
            continue
        data = member.data
        if path.suffix.lower() in COMPRESSED:
            try:
                data = read_document(decompressed(io.BytesIO(data), name), name)
            except ValueError as error:
                texts.skipped.append(_skipped(name, error))
                continue
        if is_binary(data):
            texts.skipped.append(Skipped(name, "not text"))
            continue
        body, encoding = decode(data)
        if encoding is not None:
            texts.repaired[encoding] += 1
        yield Text(name, body, path.parent.name or None if by_folder else None)


def _read_tar(texts: Texts, file: io.BufferedReader, layout: _Layout) -> Iterator[Text]:
    return _files(texts, tar_members(file, layout.path), layout.by_folder)


def _read_zip(texts: Texts, file: io.BufferedReader, layout: _Layout) -> Iterator[Text]:
    return _files(texts, zip_members(file, layout.path, os.path.getsize(layout.path)), layout.by_folder)


def _read_table(texts: Texts, file: io.BufferedReader, layout: _Layout) -> Iterator[Text]:
    rows = TABLES[texts.kind](file, layout.path, layout.columns)
    for number, row in enumerate(rows, 1):
        if row.encoding is not None:
            texts.repaired[row.encoding] += 1
        yield Text(str(number) if row.id is None else row.id, row.text, row.label, row.date)


def _read_lines(texts: Texts, file: io.BufferedReader, layout: _Layout) -> Iterator[Text]:
    """Yield one document per line. Empty lines are documents too, so that documents and lines have the same numbers."""
    encoding = bom_encoding(file.peek(4)[:4])
    if encoding is not None and encoding != "utf-8-sig":  # lines of UTF-16 do not end with the byte of a newline
        decoded = io.TextIOWrapper(file, encoding, errors="replace")
        for number, text in enumerate(bounded_lines(decoded, texts.name), 1):
            yield Text(str(number), text.rstrip("\r\n"), None)
        decoded.detach()
        return
    for number, line in enumerate(bounded_lines(file, texts.name), 1):
        body, encoding = decode(line)
        if encoding is not None:
            texts.repaired[encoding] += 1
        yield Text(str(number), body.rstrip("\r\n"), None)


READERS: dict[str, Callable[[Texts, io.BufferedReader, _Layout], Iterator[Text]]] = {
    "tar": _read_tar,
    "zip": _read_zip,
    "lines": _read_lines,
    **dict.fromkeys(TABLES, _read_table),
}
"""Readers of the kinds of files."""


def _clutter(name: str) -> bool:
    """Whether a file or folder is hidden, or was made by an operating system for its own use."""
    return (name.startswith(".") and name not in (".", "..")) or name in CLUTTER
