"""Texts from wherever people keep them, one at a time."""

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
from .tables import READERS, Columns

KINDS = ("folder", "tar", "zip", "csv", "tsv", "jsonl", "parquet", "lines")
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
FOLDERS = ("folder", "tar", "zip")
CLUTTER = ("__MACOSX", "Thumbs.db", "desktop.ini")
STRIP = {"headers": strip_headers}


class Text(NamedTuple):
    """A document.

    Attributes
    ----------
    id : str
        What it is called: a path, the value of a column, or its number.
    text : str
        What it says.
    label : str or None
        Its class, where known.
    """

    id: str
    text: str
    label: str | None


class Texts:
    """The documents of a source, to be gone through once, and what was met on the way.

    Attributes
    ----------
    name : str
        The source.
    kind : str
        ``"folder"``, ``"tar"``, ``"zip"``, ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"parquet"`` or ``"lines"``.
    strip : tuple of str
        What was dropped from each.
    n_read : int
        Documents so far.
    repaired : Counter
        How many of them were not UTF-8, by the encoding they were read as.
    skipped : list of Skipped
        Files that were left out, each with the reason.
    n_encoded : int
        Documents from which encoded attachments (uuencode, base64) were dropped.
    watch : callable or None
        Called now and then, for a progress bar, with ``n_read`` and the share of a file that was read, where known.
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


def read_texts(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    kind: str | None = None,
    text: str | None = None,
    id: str | None = None,
    labels: str | None = None,
    strip: Iterable[str] = (),
) -> Texts:
    r"""The documents of a folder, an archive, a table or a stream, one at a time.

    Nothing is unpacked to disk and nothing is kept: memory holds one document. Files that are no text or damaged, and
    links, are left out and named in ``skipped``. Encoded attachments (three lines or more of uuencode or base64) are
    dropped. Text is UTF-8, or an encoding that is detected; see ``repaired``.

    Parameters
    ----------
    source : str, path or binary stream
        A folder of text files, at any depth; a zip or tar archive of such a folder; a CSV, TSV, JSON lines or Parquet
        file; a text file with one document a line; ``"-"`` for standard input. Files may be compressed with gzip,
        bzip2, xz or zstd. A stream, and standard input, holds one document a line unless ``kind`` says otherwise.
    kind : str, optional
        What the source is, where its name does not tell: ``"tar"``, ``"csv"``, ``"tsv"``, ``"jsonl"`` or ``"lines"``.
    text, id : str, optional
        Columns of a table; ``text`` is the default, and rows without identifiers are numbered.
    labels : str, optional
        ``"folder"``: the class of a file is the folder it is in. Otherwise, a column of a table.
    strip : iterable of {"headers"}
        What to drop: the headers of mail and news.

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
    strips = [STRIP[name] for name in strip]
    stream: IO[bytes] | None = None
    own = False
    if isinstance(source, str | os.PathLike):
        name = os.fspath(source)
        if name == "-":
            name, stream = "standard input", sys.stdin.buffer
        elif os.path.isdir(name):
            kind = _agree(name, kind, "folder")
        elif not os.path.exists(name):
            raise FileNotFoundError(f"{name}: there is no such file or folder.")
        elif not os.path.isfile(name):  # a pipe, for instance of <(…) in a shell, can be gone through once
            own, stream = True, open(name, "rb")  # noqa: SIM115
    else:
        name, stream = str(getattr(source, "name", "the stream")), source
    raw = None if stream is None else buffered(stream)
    unpacked = raw
    if raw is not None:
        kind, unpacked = _recognise(raw, name, kind)
    elif kind != "folder":
        with open(name, "rb") as file:
            kind, _ = _recognise(file, name, kind)
    by_folder = labels == "folder" and kind in FOLDERS
    if kind in (*FOLDERS, "lines"):
        for option, value in (("text", text), ("id", id), ("labels", None if by_folder else labels)):
            if value is not None:
                hint = " Use labels='folder' for the names of the folders." if kind in FOLDERS else ""
                raise ValueError(f"{option}={value!r} names a column, and {name} is no table.{hint}")
    texts = Texts(repair(name)[0], kind or "", strip)

    def documents() -> Iterator[Text]:
        if kind == "folder":
            yield from _files(texts, _folder_members(name), by_folder)
        elif unpacked is not None:
            try:
                yield from opened(unpacked)
            finally:
                if own and raw is not None:
                    raw.close()
        else:
            with open(name, "rb") as file:
                texts.fraction = lambda: file.tell() / max(os.path.getsize(name), 1)
                yield from opened(_recognise(file, name, kind)[1])

    def opened(file: io.BufferedReader) -> Iterator[Text]:
        if kind == "tar":
            yield from _files(texts, tar_members(file, name), by_folder)
        elif kind == "zip":
            yield from _files(texts, zip_members(file, name, os.path.getsize(name)), by_folder)
        elif kind == "lines":
            yield from _lines(texts, file)
        else:
            rows = READERS[kind or ""](file, name, Columns(text, id, labels))
            for number, (identifier, body, label, encoding) in enumerate(rows, 1):
                if encoding is not None:
                    texts.repaired[encoding] += 1
                yield Text(str(number) if identifier is None else identifier, body, label)

    def stripped() -> Iterator[Text]:
        for document in documents():
            body, n_encoded = drop_encoded(document.text)
            texts.n_encoded += bool(n_encoded)
            for drop in strips:
                body = drop(body)
            yield document._replace(text=body)

    texts._texts = stripped()
    return texts


def _recognise(raw: io.BufferedReader, name: str, kind: str | None) -> tuple[str, io.BufferedReader]:
    """What a file is, and its bytes, decompressed."""
    head = raw.peek(512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if not (raw.seekable() and os.path.exists(name)):
            raise ValueError(f"{name}: a zip archive cannot be read from a stream. Give its path.")
        return _agree(name, kind, "zip"), raw
    if head.startswith(b"PAR1"):
        if not raw.seekable():
            raise ValueError(f"{name}: a Parquet file cannot be read from a stream. Give its path.")
        return _agree(name, kind, "parquet"), raw
    stream = decompressed(raw, name)
    head = stream.peek(512)
    if is_tar(head):
        return _agree(name, kind, "tar"), stream
    path = Path(name.lower())
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix
    found = kind or SUFFIXES.get(suffix, "lines")
    if found in ("folder", "tar", "zip", "parquet"):
        raise ValueError(f"{name} is not {'a folder' if found == 'folder' else found}, or is damaged.")
    if is_binary(bytes(head)):
        raise ValueError(
            f"{name} is not text: give a folder, a zip or tar archive, a CSV, TSV, JSON lines or Parquet file, or a "
            "text file with one document a line."
        )
    return found, stream


def _agree(name: str, asked: str | None, found: str) -> str:
    if asked not in (None, found):
        raise ValueError(f"{name} is a {found}, not {asked}.")
    return found


def _folder_members(root: str) -> Iterator[Member | Skipped]:
    """The files below a folder, in the order of their names; those of a folder before those of the folders in it.

    No link is followed, so that nothing outside is read and no circle is gone round, and nothing is opened but files,
    since a pipe would be waited for.
    """
    waiting = [(os.fspath(root), "")]
    while waiting:
        folder, above = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted((entry for entry in found if not _clutter(entry.name)), key=lambda entry: entry.name)
        except OSError as error:
            if not above:
                raise
            yield Skipped(above.rstrip("/"), error.strerror or str(error))
            continue
        folders = []
        for entry in entries:
            name = f"{above}{entry.name}"
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, f"{name}/"))
                elif not entry.is_file(follow_symlinks=False):
                    yield Skipped(name, LINK)
                else:
                    with open(entry.path, "rb", opener=_open_file) as opened:
                        data = read_document(opened, name)
                    yield Member(name, data)
            except OSError as error:
                yield Skipped(name, error.strerror or str(error))
            except ValueError as error:
                yield _left_out(name, error)
        waiting += reversed(folders)


def _open_file(path: str, flags: int) -> int:
    """Open a file if it still is one, and no link or pipe that has taken its place."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    number = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(0, LINK)
    return number


def _left_out(name: str, error: ValueError) -> Skipped:
    """A file that cannot be read, without its name in the reason."""
    return Skipped(name, str(error).removeprefix(f"{name} ").removeprefix("is ").rstrip("."))


def _files(texts: Texts, members: Iterator[Member | Skipped], by_folder: bool) -> Iterator[Text]:
    """The files that are texts."""
    for member in members:
        name, _ = repair(member.name)  # names of files may be any bytes
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
                texts.skipped.append(_left_out(name, error))
                continue
        if is_binary(data):
            texts.skipped.append(Skipped(name, "not text"))
            continue
        body, encoding = decode(data)
        if encoding is not None:
            texts.repaired[encoding] += 1
        yield Text(name, body, path.parent.name or None if by_folder else None)


def _lines(texts: Texts, stream: io.BufferedReader) -> Iterator[Text]:
    """One document a line; empty lines are documents too, so that numbers are those of the lines."""
    encoding = bom_encoding(stream.peek(4)[:4])
    if encoding is not None and encoding != "utf-8-sig":  # a line of UTF-16 does not end with the byte of a newline
        wide = io.TextIOWrapper(stream, encoding, errors="replace")
        for number, text in enumerate(bounded_lines(wide, texts.name), 1):
            yield Text(str(number), text.rstrip("\r\n"), None)
        wide.detach()
        return
    for number, line in enumerate(bounded_lines(stream, texts.name), 1):
        body, encoding = decode(line)
        if encoding is not None:
            texts.repaired[encoding] += 1
        yield Text(str(number), body.rstrip("\r\n"), None)


def _clutter(name: str) -> bool:
    """Whether a file or folder is hidden, or one that systems leave behind."""
    return (name.startswith(".") and name not in (".", "..")) or name in CLUTTER
