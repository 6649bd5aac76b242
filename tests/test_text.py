"""Reading documents, counting their words, and clustering them."""

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import zipfile
from threading import Thread

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

import onmf
from conftest import needs_posix
from onmf import ONMF, load
from onmf.backend import ReferenceBackend
from onmf.data import Blocks
from onmf.datasets import docstring_texts
from onmf.door.write import write_tables
from onmf.io import limits
from onmf.io.csv_file import csv_line, plain
from onmf.io.limits import check_growth
from onmf.report import rows_page
from onmf.text import Text, cluster, count, files, make_vectorizer, predict, read, stop_words
from onmf.text.decode import decode, drop_encoded, is_binary, repair, strip_headers
from onmf.text.files import LARGEST_DOCUMENT, _open_file, decompressed
from onmf.text.kind import DocumentKind, reading_of

TEXTS = {
    "tea/one.txt": "green tea and black tea",
    "tea/two.txt": "tea leaves, hot tea",
    "milk/one.txt": "cow milk, fresh milk",
    "milk/deep/two.txt": "milk of a cow",
}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "letters"
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def tarball(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def texts_of(source, **options):
    return {text.id: text.text for text in read(source, **options)}


class TestDecode:
    @pytest.mark.parametrize(
        ("data", "text", "encoding"),
        [
            ("Käse".encode(), "Käse", None),
            ("Käse".encode("utf-8-sig"), "Käse", None),
            ("Käse".encode("utf-16"), "Käse", None),
            ("Käse".encode("utf-32"), "Käse", None),
            ("Käse und Brötchen".encode("latin-1"), "Käse und Brötchen", "cp1252"),
            (b"", "", None),
            ("один чай, два молока, три коровы и хлеб ".encode("cp1251") * 4, "один чай", "cp1251"),
            (("größer, süß, Straße, Käse; " * 3).encode() + b"\xff bad", "größer", "utf-8"),
        ],
        ids=["utf-8", "bom", "utf-16", "utf-32", "latin-1", "empty", "cyrillic", "damaged utf-8"],
    )
    def test_encodings(self, data, text, encoding):
        decoded, repaired = decode(data)
        assert decoded.startswith(text)
        assert repaired == encoding

    @pytest.mark.parametrize("repeats", [1, 8])
    @pytest.mark.parametrize(
        ("text", "encodings"),
        [
            ("Die Käseglocke über den Brötchen gehört der süßen Müllerin aus Österreich.", "latin-1 cp1252"),
            ("Élève très doué, il préférait étudier à la bibliothèque où l'été lui a plu.", "latin-1 cp1252"),
            ("El niño español soñó que mañana habría más café. ¿Qué pasó después? ¡Nadie lo sabía!", "latin-1 cp1252"),
            ("Flickan åkte över ön för att köpa blåbär och träffa sin älskade mormor på lördag.", "latin-1 cp1252"),
            ("A situação não é fácil: as crianças estão à espera do pão e da atenção dos pais.", "latin-1 cp1252"),
            ("Zażółć gęślą jaźń, mówiła królowa, która lubiła żółte róże i gorące pączki.", "iso8859-2 cp1250"),
            ("Příliš žluťoučký kůň úpěl ďábelské ódy a všichni lidé se rodí sobě rovní.", "iso8859-2 cp1250"),
            ("Все люди рождаются свободными и равными в своём достоинстве и правах.", "cp1251 koi8-r"),
            ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.", "iso8859-7 cp1253"),
            ("すべての人間は、生まれながらにして平等である。", "shift-jis euc-jp"),
        ],
        ids=["de", "fr", "es", "sv", "pt", "pl", "cs", "ru", "el", "ja"],
    )  # fmt: skip
    def test_languages(self, text, encodings, repeats):
        for encoding in encodings.split():
            assert decode((text * repeats).encode(encoding))[0] == text * repeats, encoding

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            ("Käse", "latin-1"),
            ("größer als ä", "cp1252"),
            ("“tea” – 5 m³ · 20 °C ± ½", "cp1252"),
            ("¿Qué pasó, niño?", "latin-1"),
            ("déjà vu à Orléans", "latin-1"),
            ("Zażółć gęślą jaźń", "cp1250"),
            ("Привет, мир", "cp1251"),
        ],
    )
    def test_short_texts(self, text, encoding):
        assert decode(text.encode(encoding))[0] == text

    @given(st.binary(max_size=300))
    def test_never_crashes(self, data):
        text, _ = decode(data)
        text.encode()
        assert isinstance(is_binary(data), bool)

    @given(st.binary(max_size=100))
    def test_fields_are_repaired_like_files(self, data):
        field, _ = repair(data.decode("utf-8", errors="surrogateescape"))
        field.encode()

    def test_binary(self):
        assert is_binary(b"\x89PNG\r\n\x1a\n")
        assert is_binary(b"abc\0def")
        assert is_binary(b"%PDF-1.7 text")
        assert not is_binary("Käse".encode("utf-16"))
        assert not is_binary("Käse\r\n\tBrot\x1b[0m".encode("latin-1"))


class TestMail:
    def test_headers(self):
        mail = "From: a@b\nSubject: tea\n and milk\nX-Y: 1\n\nHello\n\nBye: no\n"
        assert strip_headers(mail) == "Hello\n\nBye: no\n"
        assert strip_headers(mail.replace("\n", "\r\n")) == "Hello\n\nBye: no\n"
        assert strip_headers("From a@b Mon\n" + mail) == "Hello\n\nBye: no\n"

    @pytest.mark.parametrize(
        "text",
        ["No header here.\n\nNone.", "Dear: all\n\nbody", "A: 1\nB: 2", "", "Note: this\nis prose.\n\nAnd: more\n\nx"],
    )
    def test_text_without_a_header_is_unchanged(self, text):
        assert strip_headers(text) == text

    def test_encoded_files_are_dropped(self):
        uu = "begin 644 x.gif\n" + ("M" + "AX'AX'&5" * 7 + "AX'A\n") * 5 + "end\nbye\n"
        assert drop_encoded("hello\n" + uu) == ("hello\nbegin 644 x.gif\n\nend\nbye\n", 1)
        base64 = ("TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcmsuTWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdv\n") * 3
        assert drop_encoded(base64)[1] == 1
        prose = "\n".join(["My goodness, tea is what I drink on every single morning of the year."] * 5)
        assert drop_encoded(prose) == (prose, 0)


class TestFolders:
    def test_files_at_any_depth_sorted_by_name(self, folder):
        texts = list(read(folder, labels="folder"))
        assert [text.id for text in texts] == ["milk/one.txt", "milk/deep/two.txt", "tea/one.txt", "tea/two.txt"]
        assert [text.label for text in texts] == ["milk", "deep", "tea", "tea"]
        assert [text.label for text in read(folder)] == [None] * 4

    @needs_posix
    def test_files_left_out_are_listed(self, folder):
        (folder / "tea/picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
        (folder / ".hidden").write_text("hidden")
        (folder / "tea/.DS_Store").write_text("hidden")
        (folder / "tea/dangling").symlink_to("nowhere")
        os.mkfifo(folder / "tea/pipe")
        texts = read(folder)
        assert len(list(texts)) == 4
        assert {skipped.name: skipped.reason for skipped in texts.skipped} == {
            "tea/picture.png": "not text",
            "tea/dangling": "a link or device",
            "tea/pipe": "a link or device",
        }

    @needs_posix
    def test_links_are_left_out(self, folder, tmp_path):
        (tmp_path / "secret.txt").write_text("secret")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "secret.txt").write_text("secret")
        (folder / "file").symlink_to(tmp_path / "secret.txt")
        (folder / "tea/folder").symlink_to(tmp_path / "outside")
        (folder / "tea/again").symlink_to(folder)
        (folder / "tea/itself").symlink_to("itself")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(folder / "milk/socket"))  # sockets need a short path
            texts = read(folder)
            assert len(list(texts)) == 4
        names = ["file", "milk/socket", "tea/again", "tea/folder", "tea/itself"]
        assert texts.skipped == [(name, "a link or device") for name in names]
        assert "5 files left out: file (a link or device)" in cluster(read(folder), 2).notes[0]

    @needs_posix
    def test_a_file_that_becomes_a_link_or_a_pipe(self, folder):
        """A link or pipe that replaces a file after the folder was listed is neither read nor waited for."""
        texts = read(folder)
        assert next(texts).id == "milk/one.txt"  # milk has been listed, and milk/deep is next
        target = folder / "milk/deep/two.txt"
        target.unlink()
        os.mkfifo(target)
        assert [text.id for text in texts] == ["tea/one.txt", "tea/two.txt"]
        with pytest.raises(OSError, match="a link or device"):
            _open_file(str(target), os.O_RDONLY)
        target.unlink()
        target.symlink_to("/etc/passwd")
        with pytest.raises(OSError, match="symbolic links"):
            _open_file(str(target), os.O_RDONLY)

    def test_very_deep_folders(self, tmp_path):
        here = os.open(tmp_path, os.O_RDONLY)
        for _ in range(1800):  # deeper than Python's recursion limit
            os.mkdir("d", dir_fd=here)
            here, parent = os.open("d", os.O_RDONLY, dir_fd=here), here
            os.close(parent)
        with os.fdopen(os.open("a.txt", os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
            file.write("tea")
        os.close(here)
        try:
            assert [text.text for text in read(tmp_path)] == ["tea"]
        finally:
            subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)

    def test_unreadable_files_are_left_out(self, folder):
        whole = gzip.compress(os.urandom(5000).hex().encode())
        (folder / "tea/broken.gz").write_bytes(whole[:-3000])
        (folder / "tea/changed.gz").write_bytes(whole[:200] + b"0" + whole[201:])
        (folder / "tea/bomb.gz").write_bytes(gzip.compress(bytes(102_000_000)))
        (folder / "tea/wrong.xz").write_bytes(lzma.compress(b"tea" * 1000)[:-40])
        (folder / "tea/empty.txt").write_bytes(b"")
        with (folder / "tea/huge.txt").open("wb") as file:
            file.truncate(LARGEST_DOCUMENT + 1)
        texts = read(folder)
        assert {text.id for text in texts} == {*TEXTS, "tea/empty.txt"}
        reasons = dict(texts.skipped)
        assert reasons["tea/broken.gz"].startswith("damaged: Compressed file ended before")
        assert reasons["tea/changed.gz"].startswith("damaged: ")
        assert reasons["tea/bomb.gz"].startswith("grows to more than 250 times its length")
        assert reasons["tea/wrong.xz"].startswith("damaged: ")
        assert reasons["tea/huge.txt"].startswith("larger than 256 MB, too large for one document")
        assert len(reasons) == 5
        with pytest.raises(ValueError, match=r"broken.gz is damaged: "):
            list(read(folder / "tea/broken.gz"))

    def test_a_folder_without_texts(self, tmp_path):
        (tmp_path / "a.png").write_bytes(b"\x89PNG")
        with pytest.raises(ValueError, match=r"contains no documents\. 1 file left out: a\.png \(not text\)\."):
            cluster(read(tmp_path), 2)
        with pytest.raises(ValueError, match="There are no documents to count"):
            cluster([], 2)

    def test_compressed_files_and_repairs(self, folder):
        (folder / "tea/three.txt.gz").write_bytes(gzip.compress(b"more tea"))
        (folder / "milk/latin.txt").write_bytes("Käse".encode("latin-1"))
        texts = read(folder)
        by_id = {text.id: text.text for text in texts}
        assert by_id["tea/three.txt.gz"] == "more tea"
        assert by_id["milk/latin.txt"] == "Käse"
        assert texts.repaired == {"cp1252": 1}

    def test_names_that_are_not_utf_8(self, folder, tmp_path):
        (folder / os.fsdecode(b"k\xe4se.txt")).write_text("cheese")
        (folder / os.fsdecode(b"k\xe4se.png")).write_bytes(b"\x89PNG")
        texts = read(folder)
        assert "käse.txt" in {text.id for text in texts}
        assert texts.skipped[0].name == "käse.png"
        result = cluster(read(folder), 2)
        result.model.save(tmp_path / "model.onmf")
        write_tables(result, tmp_path)

    def test_a_column_of_a_folder_is_refused(self, folder):
        with pytest.raises(ValueError, match="text='body' is a column"):
            read(folder, text="body", labels="folder")

    def test_progress(self, tmp_path):
        (tmp_path / "a.txt").write_text("tea\n" * 50_000)
        calls = []
        texts = read(tmp_path / "a.txt")
        texts.watch = lambda n, fraction: calls.append((n, fraction))
        assert len(list(texts)) == 50_000
        assert [n for n, _ in calls] == list(range(50, 50_001, 50))
        fractions = [fraction for _, fraction in calls]
        assert fractions == sorted(fractions)
        assert 0 < fractions[0] < 0.1
        assert fractions[-1] == 1


class TestArchives:
    @pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
    def test_tar(self, tmp_path, mode):
        tarball(tmp_path / "a.tar", {f"root/{name}": text.encode() for name, text in TEXTS.items()}, mode)
        texts = list(read(tmp_path / "a.tar", labels="folder"))
        assert {text.id: text.text for text in texts} == {f"root/{name}": text for name, text in TEXTS.items()}
        assert {text.label for text in texts} == {"tea", "milk", "deep"}

    def test_tar_zst(self, tmp_path):
        tarball(tmp_path / "a.tar", {"a.txt": b"tea"})
        packed = zstandard.ZstdCompressor().compress((tmp_path / "a.tar").read_bytes())
        (tmp_path / "a.tar.zst").write_bytes(packed)
        assert texts_of(tmp_path / "a.tar.zst") == {"a.txt": "tea"}

    def test_zip(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in TEXTS.items():
                archive.writestr(name, text)
            archive.writestr("__MACOSX/tea/._one.txt", b"\0\0")
        assert texts_of(tmp_path / "a.zip") == TEXTS

    @pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "..\\x", "C:\\x"])
    def test_members_that_would_escape(self, tmp_path, name):
        tarball(tmp_path / "a.tar", {"good": b"tea", name: b"x"})
        with pytest.raises(ValueError, match="would be unpacked outside its folder: the archive is refused"):
            list(read(tmp_path / "a.tar"))
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("good"), "x")
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, "x")
        with pytest.raises(ValueError, match="would be unpacked outside its folder: the archive is refused"):
            list(read(tmp_path / "a.zip"))

    def test_links_are_left_out(self, tmp_path):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
        texts = read(tmp_path / "a.tar")
        assert list(texts) == []
        assert texts.skipped[0] == ("link", "a link or device")

    @pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
    def test_bombs(self, tmp_path, compress):
        path = tmp_path / "bomb.txt"
        path.write_bytes(compress(bytes(102_000_000)))
        assert path.stat().st_size < 200_000
        with path.open("rb") as file, pytest.raises(ValueError, match="grows to more than 250 times its length"):
            decompressed(file, "bomb").read()

    def test_a_zip_bomb(self, tmp_path):
        path = tmp_path / "bomb.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in "ab":
                archive.writestr(name, b"tea " * 13_000_000)
        with pytest.raises(ValueError, match="grows to more than 250 times its length"):
            list(read(path))
        check_growth("text", 10_000_000, 1)

    @pytest.mark.parametrize("suffix", ["tar", "tar.gz", "zip"])
    def test_damaged(self, tmp_path, suffix):
        path = tmp_path / f"a.{suffix}"
        if suffix == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a", os.urandom(5000).hex())
        else:
            tarball(path, {"a": os.urandom(5000).hex().encode()}, "w:gz" if suffix.endswith("gz") else "w")
        path.write_bytes(path.read_bytes()[: 3000 if suffix == "tar" else -3000])
        with pytest.raises(ValueError, match="damaged"):
            list(read(path))

    def test_an_encrypted_zip(self, tmp_path):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a", "tea")
        data = bytearray(path.read_bytes())
        data[6] |= 1
        data[data.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(data)
        with pytest.raises(ValueError, match="a is encrypted"):
            list(read(path))

    def test_names_that_are_not_utf_8(self, tmp_path):
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as archive:
            for name in (b"k\xe4se", b"\x1b[31m", "ё".encode()):
                archive.addfile(tarfile.TarInfo(name.decode("utf-8", "surrogateescape")))
        assert list(texts_of(tmp_path / "a.tar")) == ["käse", "\x1b[31m", "ё"]
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("käse", "tea")
        data = (tmp_path / "a.zip").read_bytes()
        (tmp_path / "a.zip").write_bytes(data.replace("käse".encode(), b"k\xff\xffse"))
        with pytest.raises(ValueError, match=r"a\.zip is damaged, or not a readable zip file"):
            texts_of(tmp_path / "a.zip")

    @pytest.mark.parametrize("headers", [{"comment": "x" * 17_000_000}, {str(i): "x" * 100_000 for i in range(170)}])
    def test_a_very_long_header(self, tmp_path, headers):
        tarball(tmp_path / "a.tar", {"d" * 90 + "/" + "n" * 3000: b"tea"})  # a long name is accepted
        assert len(texts_of(tmp_path / "a.tar")) == 1
        with tarfile.open(tmp_path / "a.tar", "w", pax_headers=headers) as archive:
            archive.addfile(tarfile.TarInfo("a"))
        with pytest.raises(ValueError, match=r"a\.tar is damaged or malicious: it has a header of more than 16 MB"):
            texts_of(tmp_path / "a.tar")

    def test_many_large_members_are_accepted(self, tmp_path):
        tarball(tmp_path / "a.tar", {str(i): b"tea\n" * 1_500_000 for i in range(4)})
        assert [len(text) for text in texts_of(tmp_path / "a.tar").values()] == [6_000_000] * 4

    def test_odd_archives(self, tmp_path):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr("a", "tea")
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("empty", "")
            archive.writestr("twice", "tea")
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("twice", "milk")
            archive.writestr("inner.zip", inner.getvalue())
            archive.writestr("inner.tar.gz", gzip.compress(bytes(1024)))
        texts = read(tmp_path / "a.zip")
        assert [(text.id, text.text) for text in texts] == [("empty", ""), ("twice", "tea"), ("twice", "milk")]
        assert texts.skipped == [("inner.zip", "not text"), ("inner.tar.gz", "not text")]

    def test_a_zip_with_wrong_lengths(self, tmp_path):
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", "tea " * 1000)
        data = path.read_bytes()
        directory = data.index(b"PK\x01\x02")
        refused = []
        for claimed in (3, 2**32 - 2, 2**32 - 1):  # the last one refers to a 64-bit length, which is missing
            path.write_bytes(data[: directory + 24] + struct.pack("<I", claimed) + data[directory + 28 :])
            try:
                assert texts_of(path) == {"a": "tea " * 1000}
            except ValueError as error:
                refused.append(str(error))
        assert refused
        assert all("is damaged, or not a readable zip file" in message for message in refused)


class Endless(io.RawIOBase):
    """A beginning, followed by the same bytes without end. Reading more than 64 MB is an error."""

    def __init__(self, beginning, repeated):
        self.ahead, self.repeated, self.n_read = beginning, repeated * (65536 // len(repeated)), 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.ahead = self.ahead or self.repeated
        part, self.ahead = self.ahead[: len(buffer)], self.ahead[len(buffer) :]
        buffer[: len(part)] = part
        self.n_read += len(part)
        assert self.n_read < 64 << 20
        return len(part)


@pytest.mark.short("input that never ends")
@pytest.mark.parametrize(
    ("kind", "beginning", "repeated", "message"),
    [
        ("lines", b"tea\n", b"a", "Line 2 of the stream is longer than 2 MB"),
        ("lines", b"\xff\xfea\0", b"a\0", "Line 1 of the stream is longer than 2 MB"),
        ("jsonl", b'{"text": "tea"}\n{"', b"a", "Line 2 of the stream is longer than 2 MB"),
        ("json", b'["tea", "', b"a", "entry 2, is longer than 2 MB"),
        ("json", b'["tea", [', b"[],", "entry 2, has more than 1,000,000 cells"),
        ("json", b'["tea", ', b" ", "entry 2, is longer than 2 MB"),
        ("csv", b"", b"a", "Line 1 of the stream is longer than 2 MB"),
        ("csv", b"", b"a,", "Line 1 of the stream is longer than 2 MB"),
        ("csv", b"text,b\n", b"a", "Line 2 of the stream is longer than 2 MB"),
        ("csv", b'text,b\n"', b"a\n", "A row of the stream is longer than 2 MB"),
        ("csv", b'text,b\n', b"," * 4096 + b'"\n"', "A row of the stream has more than 1,000,000 cells"),
        ("csv", b'"', b"aaaaaaa,\n", "A row of the stream is longer than 2 MB"),
        ("tsv", b"text\tb\n", b"\t" * 4096 + b'"\n"', "A row of the stream has more than 1,000,000 cells"),
    ],
)  # fmt: skip
def test_endless_input_is_refused_early(monkeypatch, kind, beginning, repeated, message):
    monkeypatch.setattr(files, "LARGEST_DOCUMENT", 2 << 20)
    stream = io.BufferedReader(Endless(beginning, repeated))
    stream.raw.name = "the stream"
    with pytest.raises(ValueError, match=message):
        list(read(stream, kind=kind))
    stream.raw.name = None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1, is not JSON|is nested too deeply"),
        ('{"text": ' + "[" * 400 + "]" * 400 + "}", None),
        ('{"text": ' + "9" * 10_000 + "}", "line 1, is not JSON"),
        ('{"text": "tea", "x": [' + "[]," * 600_000 + "0]}", "line 1, has more than 1,000,000 cells"),
        ('{"text": NaN}', None),
    ],
    ids=["deep", "less deep", "digits", "many", "nan"],
)
def test_json_that_is_not_a_document(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    if message is None:
        assert len(texts_of(tmp_path / "a.jsonl")) == 1
    else:
        with pytest.raises(ValueError, match=message) as caught:
            texts_of(tmp_path / "a.jsonl")
        assert len(str(caught.value)) < 500


def test_tables_with_very_many_columns_or_very_long_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a," * 900_000 + "text\n" + "," * 900_000 + "tea\n")
    assert list(texts_of(path).values()) == ["tea"]
    path.write_text("a" * 1_000_000 + ",b\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'text'") as caught:
        texts_of(path)
    assert len(str(caught.value)) < 500


def test_a_parquet_file_that_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FREE", 1_000_000)
    table = pa.table({"text": ["tea " * 5_000] * 500})
    pa.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 30_000
    with pytest.raises(ValueError, match=r"a\.parquet grows to more than 250 times its length"):
        texts_of(tmp_path / "a.parquet")


@needs_posix
def test_a_pipe_is_read_once_from_the_beginning(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    lines = [f"tea {i}" for i in range(20_000)]  # more than fits in a buffer
    writer = Thread(target=(tmp_path / "pipe").write_text, args=("\n".join(lines),))
    writer.start()
    assert list(texts_of(tmp_path / "pipe").values()) == lines
    writer.join()


IDS = ["a\rb", "a\r", "\rb", "a\nb", "a\r\nb", 'say "tea"', "a,b", "a;b", "a\tb", "\t=a", "=1+1", "+a", "-a", "@a",
       "'=a", "''-a", "'tis", "-5", "+1.5e3", "-1+1", "＝1", " a", "a ", "#a", "\x1b[31m", "ё", "\u2028",
       "\ufeffa"]  # fmt: skip


def test_all_csv_readers_read_the_same_names(tmp_path):
    texts = [Text(name, "tea" if i % 2 else "milk", name) for i, name in enumerate(IDS)]
    result = cluster(texts, 2)
    write_tables(result, tmp_path)
    path = tmp_path / "assignments.csv"
    assert b"\r\n" not in path.read_bytes().replace(b"a\r\nb", b"")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [plain(row["id"]) for row in rows] == [plain(row["label"]) for row in rows] == IDS
    assert [float(row["margin"]) for row in rows] == pytest.approx(result.margins, rel=1e-5)
    frame = pd.read_csv(path, keep_default_na=False, dtype={"id": str, "label": str})
    assert [plain(name) for name in frame["id"]] == IDS
    assert frame["scale"].tolist() == pytest.approx(result.scales)
    frame = polars.read_csv(path, infer_schema_length=0)
    assert [plain(name) for name in frame["id"]] == IDS
    write_tables(result, tmp_path, "parquet")
    assert pa.parquet.read_table(tmp_path / "assignments.parquet")["id"].to_pylist() == IDS


def test_no_cell_is_a_formula(tmp_path):
    words = ["=cmd()", "+a", "-b", "@c"]
    texts = [Text(name, f"{word} {word}", None) for name, word in zip(IDS, itertools.cycle(words))]
    write_tables(cluster(texts, 4, vectorizer=make_vectorizer(token_pattern=r"\S+")), tmp_path)
    for name in ("assignments.csv", "clusters.csv"):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert any(cell.startswith("'") for cell in cells)
        for cell in cells:
            if cell[:1] in {*"=+-@\t\r\n＝＋－＠"} - {""}:
                float(cell)
    assert (
        csv_line(["-1", "-1.5e-3", "-1-1", None, -2.5, "nul\0"])
        == "-1,-1.5e-3,'-1-1,,-2.5,nul\N{REPLACEMENT CHARACTER}\n"
    )


class TestTables:
    ROWS = (Text("1", 'red "tea",\nhot', "tea"), Text("2", "milk; Käse", "milk"))

    def test_csv_with_quotes_and_newlines(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes('id,body,kind\n1,"red ""tea"",\nhot",tea\n\n2,milk; Käse,milk\n'.encode())
        assert tuple(read(path, text="body", id="id", labels="kind")) == self.ROWS
        assert [text.id for text in read(path, text="body")] == ["1", "2"]
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        assert tuple(read(path.with_suffix(".csv.gz"), text="body", id="id", labels="kind")) == self.ROWS

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
    def test_csv_from_other_programs(self, tmp_path, encoding):
        path = tmp_path / "a.csv"
        path.write_bytes('"id";"text"\r\n"1";"Käse, Milch"\r\n'.encode(encoding))
        texts = read(path, id="id")
        assert [(text.id, text.text) for text in texts] == [("1", "Käse, Milch")]
        assert sum(texts.repaired.values()) == (encoding == "cp1252")

    def test_tsv_jsonl_parquet(self, tmp_path):
        (tmp_path / "a.tsv").write_text('id\ttext\tkind\n1\t"red ""tea"",\nhot"\ttea\n2\tmilk; Käse\tmilk\n')
        records = [dict(zip(("id", "text", "kind"), row[:3], strict=True)) for row in self.ROWS]
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
        pa.parquet.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
        for suffix in ("tsv", "jsonl", "parquet"):
            assert tuple(read(tmp_path / f"a.{suffix}", id="id", labels="kind")) == self.ROWS, suffix

    def test_lone_surrogates(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": "tea \\ud800", "id": "\\udc00"}\n')
        assert texts_of(path, id="id") == {"?": "tea ?"}

    def test_a_column_named_folder(self, tmp_path):
        (tmp_path / "a.csv").write_text("text,folder\ntea,x\n")
        assert [text.label for text in read(tmp_path / "a.csv", labels="folder")] == ["x"]

    def test_missing_values_and_numbers(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text('{"text": null}\n{"text": 3}\n{"other": 1}\n')
        assert [text.text for text in read(path)] == ["", "3", ""]

    @pytest.mark.parametrize(
        ("name", "content", "options", "message"),
        [
            ("a.csv", "a,b\n1,2\n", {}, "has no column 'text': name the column that holds the text .*It has 'a', 'b'"),
            ("a.csv", "a,b\n1,2\n", {"text": "c"}, "has no column 'c' for the text. It has 'a', 'b'"),
            ("a.csv", "text,b\n1,2\n", {"labels": "c"}, "has no column 'c' for the labels"),
            ("a.csv", "", {}, "is empty: the first row of a table must name its columns"),
            ("a.jsonl", '{"text": "a"}\nnot json\n', {}, "line 2, is not JSON"),
            ("a.jsonl", "[1]\n", {}, "entry 1, is not a JSON object"),
            ("a.parquet", "text", {}, "is not a Parquet file, or is damaged"),
            ("a.txt", "tea\n", {"text": "body"}, "text='body' is a column, but .* is not a table"),
            ("a.txt", "tea\n", {"labels": "folder"}, "labels='folder' is a column, but .* is not a table"),
            ("a.txt", "\0\0\0", {}, "is not text: use a folder"),
            ("a.txt", "tea", {"kind": "word"}, "kind='word' is not known"),
            ("a.txt", "tea", {"strip": ["feet"]}, "strip='feet' is not known: use 'headers'"),
            ("a.txt", "tea", {"kind": "tar"}, "is not a tar archive, or is damaged"),
        ],
    )  # fmt: skip
    def test_error_messages(self, tmp_path, name, content, options, message):
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            list(read(path, **options))

    def test_a_damaged_parquet_file(self, tmp_path):
        (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
        with pytest.raises(ValueError, match="is damaged, or not a Parquet file"):
            list(read(tmp_path / "a.parquet"))

    def test_no_such_file_and_labels_of_a_folder(self, tmp_path, folder):
        with pytest.raises(FileNotFoundError, match="there is no such file or folder"):
            read(tmp_path / "nothing")
        with pytest.raises(ValueError, match="Use labels='folder'"):
            read(folder, labels="kind")


class TestMemory:
    """Series, data frames and lists."""

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
    def test_missing_texts_of_a_series_are_left_out(self, missing):
        series = pd.Series(["red tea", missing, "nan", "milk"], index=["a", "b", "NA", "read"], dtype=object)
        texts = read(series)
        assert [(text.id, text.text) for text in texts] == [("a", "red tea"), ("NA", "nan"), ("read", "milk")]
        assert texts.notes == ["1 row left out: b (no text)."]
        found = cluster(series, 2)
        assert list(found.table.rows) == ["a", "NA", "read"]
        assert found.notes[0] == "1 row left out: b (no text)."
        assert found.words.tolist() == ["milk", "nan", "red", "tea"]

    @pytest.mark.parametrize("library", [pd, polars])
    def test_frames(self, library):
        frame = library.DataFrame(
            {
                "read": ["NA", "milk", None],
                "n": ["x", "nan", "z"],
                "kind": ["tea", None, "a"],
                "day": ["2024-01-03", None, "2024"],
            }
        )
        texts = list(read(frame, text="read", id="n", labels="kind", date="day"))
        assert texts == [Text("x", "NA", "tea", "2024-01-03"), Text("nan", "milk", None, None)]
        assert [text.id for text in read(frame, text="read")] == (["0", "1"] if library is pd else ["1", "2"])
        for use in (lambda: list(read(frame)), lambda: count(frame), lambda: cluster(frame, 2)):
            with pytest.raises(
                ValueError, match=r"The table has no column 'text': .*text=\).*'read', 'n', 'kind', 'day'"
            ):
                use()
        with pytest.raises(ValueError, match="has no column 'who' for the identifiers"):
            list(read(frame, text="read", id="who"))
        assert count(library.DataFrame({"text": ["red tea"], "n": [1]})).features.tolist() == ["red", "tea"]

    def test_lists(self):
        texts = read(["red tea", None, "Käse".encode("latin-1"), Text("a", "milk", None), 7])
        assert [tuple(text[:2]) for text in texts] == [("1", "red tea"), ("3", "Käse"), ("a", "milk"), ("5", "7")]
        assert texts.notes == ["1 document not in UTF-8, read as cp1252.", "1 row left out: 2 (no text)."]
        with pytest.raises(ValueError, match="text='body' is a column, but this list is not a table"):
            read(["tea"], text="body")
        with pytest.raises(TypeError, match="Text 1 is a tuple: give strings, or documents of the class Text"):
            list(read([("a", "tea")]))
        assert [text.text for text in read(text for text in ("tea", "milk"))] == ["tea", "milk"]


class TestJson:
    @pytest.mark.parametrize("indent", [None, 4])
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_an_array(self, tmp_path, indent, encoding, monkeypatch):
        monkeypatch.setattr(files, "PIECE", 50)
        rows = [{"id": f"n{i}", "text": "tea, [milk] {Käse} " * (i % 7)} for i in range(40)]
        path = tmp_path / "a.json"
        path.write_bytes(json.dumps(rows, indent=indent, ensure_ascii=False).encode(encoding))
        assert texts_of(path, id="id") == {row["id"]: row["text"] for row in rows}
        path.write_bytes(json.dumps([row["text"] for row in rows], indent=indent).encode(encoding))
        assert list(texts_of(path).values()) == [row["text"] for row in rows]

    def test_lines_named_json(self, tmp_path):
        (tmp_path / "a.json").write_text('{"text": "tea"}\n{"text": "milk"}\n')
        assert texts_of(tmp_path / "a.json") == {"1": "tea", "2": "milk"}
        (tmp_path / "a.jsonl").write_text('"tea"\n"milk"\n')
        assert texts_of(tmp_path / "a.jsonl") == {"1": "tea", "2": "milk"}

    def test_other_encodings(self, tmp_path):
        (tmp_path / "a.json").write_bytes(b'["K\xe4se", "\\ud800 tea", 3.5]'.replace(b", 3.5", b""))
        texts = read(tmp_path / "a.json")
        assert [text.text for text in texts] == ["Käse", "? tea"]
        assert texts.repaired == {"cp1252": 1}
        assert texts_of(io.BytesIO(gzip.compress(b'[{"text": "tea"}]')), kind="json") == {"1": "tea"}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("[", "entry 1, is not JSON: Expecting value"),
            ('["tea"', "entry 1, is not JSON: it ends early"),
            ('["tea",]', "entry 2, is not JSON: Expecting value"),
            ('["tea" "milk"]', "entry 1, is not JSON: a comma must follow it"),
            ('["tea", 3]', "entry 2, is not a JSON object"),
            ('["tea", {"text": tea}]', "entry 2, is not JSON: Expecting value"),
            ("[" * 100_000, "entry 1, is not JSON: .*recursion|entry 1, is not JSON"),
            ('{"data": [1]}', None),
        ],
    )
    def test_damaged_arrays(self, tmp_path, content, message):
        (tmp_path / "a.json").write_text(content)
        if message is None:
            assert list(texts_of(tmp_path / "a.json").values()) == ["[1]"]
            return
        with pytest.raises(ValueError, match=message):
            texts_of(tmp_path / "a.json")

    def test_an_empty_array(self, tmp_path):
        (tmp_path / "a.json").write_text("[ ]\n")
        assert texts_of(tmp_path / "a.json") == {}


def test_names_and_texts_that_look_missing_are_kept(tmp_path):
    rows = "id,text,kind\nNA,nan NaN,null\nnan,NA,None\n"
    (tmp_path / "a.csv").write_text(rows)
    texts = list(read(tmp_path / "a.csv", id="id", labels="kind"))
    assert texts == [Text("NA", "nan NaN", "null"), Text("nan", "NA", "None")]
    assert count(texts).features.tolist() == ["na", "nan"]
    pd.read_csv(io.StringIO(rows), keep_default_na=False).to_parquet(tmp_path / "a.parquet")
    assert list(read(tmp_path / "a.parquet", id="id", labels="kind")) == texts


def test_attachments_are_named_and_can_be_kept(tmp_path):
    picture = f"{'abcdefgh' * 8}\n" * 3
    for name, body in {"a": "red tea", "b": "green tea\n" + picture, "c": "cow milk", "d": picture + "milk"}.items():
        (tmp_path / name).write_text(body)
    found = cluster(read(tmp_path), 2)
    dropped = "Encoded attachments dropped from 2 documents: b, d. keep_attachments=True (--keep-attachments) keeps "
    assert found.notes[0] == f"{dropped}them."
    assert found.words.tolist() == ["cow", "green", "milk", "red", "tea"]
    kept = cluster(read(tmp_path, keep_attachments=True), 2)
    assert dropped not in kept.notes
    assert "abcdefgh" * 8 in kept.words
    assert not count(read(tmp_path, keep_attachments=True)).notes
    for result in (found, kept):
        result.model.save(tmp_path / "model.onmf")
        options = reading_of(load(tmp_path / "model.onmf"))
        assert options == {"strip": [], "keep_attachments": result is kept}


def test_documents_are_a_table(tmp_path):
    texts = [Text("a", "red tea", "x", "2024-01-03"), Text("b", "1 2", None), Text("c", "milk", None)]
    whole, parts = count(texts), count(texts, shards=tmp_path / "shards")
    for documents in (whole, parts):
        assert list(documents.rows) == ["a", "b", "c"]
        assert documents.features.tolist() == ["milk", "red", "tea"]
        assert documents.classes == ["x", None, None]
        assert [str(day) for day in documents.dates] == ["2024-01-03", "NaT", "NaT"]
        assert documents.notes == ["2 documents without a date."]
        assert documents.lengths.tolist() == [2, 0, 1]
        assert documents.filled.tolist() == [0, 2]
        assert documents.used.shape == (2, 3)
        assert list(documents.excerpts) == [text.text for text in texts]
        assert documents.vectorizer.transform(["tea beer"]).toarray().tolist() == [[0, 0, 1]]
    assert whole.X.shape == (3, 3)
    assert "3 rows × 3 features" in repr(whole)
    assert parts.X.shape == (2, 3)
    assert list(pickle.loads(pickle.dumps(parts)).rows) == ["a", "b", "c"]
    vectorizer = make_vectorizer()
    assert count(["tea"], vectorizer).classes is None
    assert not hasattr(vectorizer, "vocabulary_")
    with pytest.raises(TypeError, match="TfidfVectorizer, which does not count"):
        count(texts, TfidfVectorizer())


class TestStreams:
    def test_one_document_per_line(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_bytes("tea\r\n\nKäse\nlast".encode())
        assert texts_of(path) == {"1": "tea", "2": "", "3": "Käse", "4": "last"}
        path.write_bytes("tea\nKäse\n".encode("utf-16"))
        assert texts_of(path) == {"1": "tea", "2": "Käse"}

    @pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
    def test_streams(self, compress):
        assert texts_of(io.BytesIO(compress(b"tea\nmilk\n"))) == {"1": "tea", "2": "milk"}

    def test_a_stream_of_json(self):
        assert texts_of(io.BytesIO(b'{"text": "tea"}\n'), kind="jsonl") == {"1": "tea"}

    @pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
    def test_a_truncated_stream(self, compress):
        data = compress(os.urandom(20_000).hex().encode() + b"\n")
        with pytest.raises(ValueError, match="is damaged"):
            texts_of(io.BytesIO(data[:-5000]))


def sample(kind, folder):
    """A small file of each kind."""
    path = folder / {"zip": "a.zip", "tar.gz": "a.tar.gz"}.get(kind, f"a.{kind}")
    records = [{"text": f"tea {i}", "n": i} for i in range(20)]
    match kind:
        case "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for record in records:
                    archive.writestr(f"{record['n']}.txt", record["text"])
        case "tar.gz" | "tar":
            members = {f"{r['n']}.txt": r["text"].encode() for r in records[:4]}
            tarball(path, members, "w:gz" if kind == "tar.gz" else "w")
        case "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(records), path)
        case "csv":
            path.write_text("text,n\n" + "\n".join(f'"tea, {i}",{i}' for i in range(20)))
        case "jsonl":
            path.write_text("\n".join(json.dumps(record) for record in records))
        case "txt.zst":
            path.write_bytes(zstandard.compress(b"tea\n" * 50))
        case "txt.xz":
            path.write_bytes(lzma.compress(b"tea\n" * 50))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "parquet", "csv", "jsonl", "txt.zst", "txt.xz"])
def test_damaged_files_are_read_or_refused(kind, tmp_path):
    path = sample(kind, tmp_path)
    data = path.read_bytes()
    assert list(read(path))
    refused = []
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(data)
        for i in rng.integers(len(data), size=rng.integers(1, 4)):
            damaged[i] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(len(data))] if rng.random() < 0.2 else damaged)
        try:
            list(read(path))
        except ValueError as error:
            refused.append(str(error))
    assert all(message[-1] in ".?" and "\n" not in message for message in refused)
    assert kind == "csv" or refused  # any text is valid CSV


class TestWords:
    def test_defaults(self):
        words = make_vectorizer().build_analyzer()("The cat5 cables of user_42 don't break; Käse's große Straße")
        assert words == ["cables", "break", "käse", "große", "straße"]

    @pytest.mark.parametrize(("language", "word"), [("german", "nicht"), ("fr", "avec"), ("Russian", "или")])
    def test_languages(self, language, word):
        assert word in stop_words(language)
        assert "the" not in stop_words(language)

    def test_no_stop_words_and_unknown_ones(self):
        assert stop_words(None) == stop_words("none") == []
        with pytest.raises(ValueError, match="No stop words are known for the language 'elvish'"):
            stop_words("elvish")

    def test_counts_agree_with_scikit_learn(self):
        _, texts, _ = zip(*docstring_texts(), strict=True)
        vectorizer = make_vectorizer(min_df=4)
        counts = count(iter(texts), clone(vectorizer))
        expected = vectorizer.fit_transform(texts)
        assert (csr_array(expected) != counts.X).nnz == 0
        assert counts.features.tolist() == vectorizer.get_feature_names_out().tolist()

    def test_rare_words_are_removed_from_large_corpora(self):
        texts = ["tea milk"] * 150 + ["unique"]
        counts = count(texts)
        assert counts.features.tolist() == ["milk", "tea"]
        assert (counts.lengths == 0).tolist() == [False] * 150 + [True]
        assert counts.vectorizer.transform(["milk unique"]).toarray().tolist() == [[1, 0]]
        assert count(texts[-51:]).features.tolist() == ["milk", "tea", "unique"]

    @pytest.mark.parametrize(
        ("texts", "message"),
        [([], "There are no documents"), (["the 1", "of"], "None of the 2 documents has a usable word")],
    )
    def test_nothing_to_count(self, texts, message):
        with pytest.raises(ValueError, match=message):
            count(texts)


class TestClusters:
    def test_documents_without_words_are_unassigned(self):
        result = cluster(["tea tea", "1 2 3", "milk", "milk cow", ""], 2)
        assert result.labels.tolist() == [1, -1, 0, 0, -1]
        assert result.unassigned == ["2", "5"]
        assert result.sizes.tolist() == [2, 1]
        assert np.isnan([result.scales[1], result.margins[4]]).all()
        assert result.notes[0] == "2 documents without a usable word, unassigned: 2, 5."

    @pytest.mark.short("words in shards give the clusters of words in memory")
    @pytest.mark.parametrize(
        ("options", "automatic"),
        [({}, None), ({"min_df": 3, "max_df": 0.2}, None), ({"max_features": 300}, True), ({"binary": True}, True)],
    )
    def test_the_same_from_shards(self, options, automatic, tmp_path, monkeypatch):
        monkeypatch.setattr("onmf.datasets.count.CHARACTERS", 100_000)
        texts = [*(Text(name, body, label) for name, body, label in docstring_texts()), Text("nothing", "1 2 3", None)]

        def vectorizer():
            return make_vectorizer(**options) if options else None

        whole = cluster(iter(texts), 5, vectorizer=vectorizer(), automatic=automatic, quick=True)
        calls = []
        result = cluster(
            iter(texts),
            5,
            vectorizer=vectorizer(),
            automatic=automatic,
            shards=tmp_path / "shards",
            progress=lambda *call: calls.append(call),
        )
        assert len(list((tmp_path / "shards").glob("*.npz"))) > 5
        assert result.words.tolist() == whole.words.tolist()
        for name in ("labels", "scales", "margins"):
            assert np.array_equal(getattr(result, name), getattr(whole, name), equal_nan=True), name
        assert np.array_equal(result.table.lengths, whole.table.lengths)
        assert np.array_equal(result.model.cluster_centers_, whole.model.cluster_centers_)
        assert result.model.n_iter_ == whole.model.n_iter_
        assert result.model.engine == whole.model.engine
        assert list(result.table.rows) == list(whole.table.rows)
        assert list(result.table.excerpts) == list(whole.table.excerpts)
        assert (result.table.rows[-1], result.table.excerpts[7], result.table.rows[1:3]) == (
            whole.table.rows[-1],
            whole.table.excerpts[7],
            whole.table.rows[1:3],
        )
        assert result.table.classes == whole.table.classes
        assert result.notes == whole.notes
        for clusters in (whole, result):
            clusters.model.save(tmp_path / "model.onmf")
            new = predict(load(tmp_path / "model.onmf"), [text.text for text in texts[:50]])
            assert np.array_equal(new.labels, whole.labels[:50])
        assert calls[:1] == [("Counting words", None)]
        assert ("Writing the counts", 1.0) in calls
        assert (f"iteration {result.model.n_iter_}", 1.0) in calls

    def test_shards_are_written_completely_or_not_at_all(self, tmp_path):
        folder = tmp_path / "shards"

        def fails():
            yield from ("tea tea", "milk")
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            cluster(fails(), 2, shards=folder)
        assert not list(tmp_path.iterdir())
        with pytest.raises(ValueError, match="3 clusters of 2 documents"):
            cluster(["tea tea", "milk"], 3, shards=folder)
        with pytest.raises(FileExistsError, match="is not empty"):
            cluster(["tea tea", "milk"], 2, shards=folder)
        result = cluster(["tea tea", "milk", "milk"], 2, shards=folder, force=True)
        assert result.labels.tolist() == [1, 0, 0]
        (folder / "letter.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"letter.txt.*was not written by this command"):
            cluster(["tea tea", "milk"], 2, shards=folder, force=True)

    def test_options_that_need_all_counts_are_refused_before_counting(self, tmp_path):
        def never():
            raise AssertionError("the documents were read")
            yield

        for options in ({"refine": "local-search"}, {"init": "bisection"}, {"init": "consensus"}):
            with pytest.raises(ValueError, match="needs all rows in memory"):
                cluster(never(), 2, shards=tmp_path, **options)
        with pytest.raises(ValueError, match="max_iter=0 is not allowed"):
            cluster(never(), 2, shards=tmp_path, max_iter=0)
        with pytest.raises(ValueError, match="engine='dask' takes Dask collections, and these rows come in batches"):
            cluster(never(), 2, shards=tmp_path, engine="dask")
        with pytest.raises(TypeError, match="vectorizer is a TfidfVectorizer, which does not count"):
            cluster(never(), 2, shards=tmp_path, vectorizer=TfidfVectorizer())
        with pytest.raises(ValueError, match="force=True replaces a folder of shards, and none is named"):
            cluster(never(), 2, force=True)

    def test_the_number_is_chosen_from_shards(self, tmp_path, monkeypatch):
        rng = np.random.default_rng(0)
        words = [["tea", "leaf", "cup", "pot"], ["cow", "milk", "grass", "farm"], ["code", "bug", "loop", "test"]]
        texts = ["...", *(" ".join(rng.choice(words[i % 3], 30)) for i in range(60))]
        monkeypatch.setattr("onmf.datasets.count.CHARACTERS", 1000)
        monkeypatch.setattr(DocumentKind, "rows_to_choose", 50)
        whole, parts = cluster(texts, "auto", quick=True), cluster(texts, "auto", shards=tmp_path / "shards")
        assert len(list((tmp_path / "shards").glob("shard-*.npz"))) > 3
        assert whole.n_clusters == parts.n_clusters == 3
        assert whole.selection.n_rows == 50
        assert whole.selection.record() == parts.selection.record()
        for one, other in ((whole.labels, parts.labels), (whole.finding(), parts.finding())):
            assert np.array_equal(one, other)

    def test_shards_with_engines(self, tmp_path):
        texts = ["tea tea", "milk", "green tea", "cold milk"]
        whole = cluster(texts, 2)
        passes = []
        own = Blocks(ReferenceBackend(), lambda name, share: passes.append(name))
        for number, engine in enumerate(("blocks", "reference", own)):
            result = cluster(texts, 2, shards=tmp_path / str(number), engine=engine)
            assert result.labels.tolist() == whole.labels.tolist()
            assert result.model.engine is engine
        assert "iteration 1" in passes

    def test_a_vocabulary_and_shards(self, tmp_path):
        texts = ["tea tea", "milk", "green tea", "cold milk"]
        fitted = make_vectorizer().fit(["tea milk"])
        result = cluster(texts, 2, shards=tmp_path / "fitted", vectorizer=fitted)
        assert result.words.tolist() == cluster(texts, 2, vectorizer=fitted).words.tolist() == ["milk", "tea"]
        with pytest.raises(ValueError, match="None of the 4 documents has a word of the vocabulary"):
            cluster(texts, 2, shards=tmp_path / "beer", vectorizer=make_vectorizer(vocabulary=["beer"]))
        assert not (tmp_path / "beer").exists()

    @pytest.mark.parametrize("shards", [None, "shards"])
    def test_one_string_is_not_a_list_of_texts(self, shards, tmp_path):
        with pytest.raises(TypeError, match=r"texts is one string.*read"):
            cluster("red tea", 2, shards=shards and tmp_path / shards)

    def test_one_document(self):
        result = cluster(["tea tea milk"], 1)
        assert result.labels.tolist() == [0]
        assert result.frequent(1) == [["tea"]]

    def test_comparison(self, folder):
        result = cluster(read(folder, labels="folder"), 2)
        assert result.comparison.classes == ["deep", "milk", "tea"]
        assert result.comparison.table.sum() == 4
        assert result.comparison.purity == 0.75
        assert result.comparison.accuracy is None  # three classes, two clusters
        assert cluster(read(folder), 2).comparison is None

    def test_auto(self):
        rng = np.random.default_rng(0)
        words = [["tea", "leaf", "cup", "pot"], ["cow", "milk", "grass", "farm"], ["code", "bug", "loop", "test"]]
        texts = [" ".join(rng.choice(words[i % 3], 30)) for i in range(60)]
        result = cluster(texts, "auto", random_state=0)
        assert result.n_clusters == result.selection.n_clusters == 3
        with pytest.raises(ValueError, match="too few to choose"):
            cluster(["tea", "milk"], "auto")

    @pytest.mark.long("real documents get their own clusters again")
    @pytest.mark.parametrize("n_clusters", [5, 13, 40])
    def test_the_documents_of_a_fit_get_their_own_clusters(self, n_clusters, tmp_path):
        """By the rule alone: in another order and without most of the others, too."""
        _, texts, _ = zip(*docstring_texts(), strict=True)
        found = cluster(texts, n_clusters)
        found.model.save(tmp_path / "model.onmf")
        model = onmf.load(tmp_path / "model.onmf")
        again = predict(model, texts)
        assert np.mean(again.labels == found.labels) >= 0.995
        some = np.random.default_rng(0).permutation(len(texts))[:100]
        assert np.array_equal(predict(model, [texts[i] for i in some]).labels, again.labels[some])

    def test_assignments_agree_with_predictions_from_counts(self, tmp_path):
        _, texts, _ = zip(*docstring_texts(), strict=True)
        first, second = texts[::2], (*texts[1::2], "zzz qqq")
        result = cluster(first, 13, vectorizer=make_vectorizer(ngram_range=(1, 2), min_df=3), quick=True)
        result.model.save(tmp_path / "model.onmf")
        model = onmf.load(tmp_path / "model.onmf")
        assigned = predict(model, second)
        X = result.table.vectorizer.transform(second)
        filled = np.flatnonzero(np.diff(X.indptr))
        assert assigned.unassigned == [str(len(second))]
        assert assigned.labels[filled].tolist() == result.model.predict(X[filled]).tolist()
        assert assigned.labels[-1] == -1
        again = predict(model, first)
        assert again.labels.tolist() == result.labels.tolist()
        assert again.margins == pytest.approx(result.margins)
        assert again.scales == pytest.approx(result.scales)

    def test_vectorizers_with_code_and_models_of_other_kinds(self, tmp_path):
        result = cluster(["tea", "milk"], 2, vectorizer=CountVectorizer(tokenizer=str.split, token_pattern=None))
        with pytest.raises(ValueError, match=r"cannot be saved: tokenizer=.* is code, and a model file holds no code"):
            result.model.save(tmp_path / "model.onmf")
        with pytest.raises(ValueError, match="This is a model of kind 'matrix'"):
            predict(ONMF(2).fit([[1, 0], [0, 1]]), ["tea"])

    @pytest.mark.parametrize(
        "change",
        [
            {"vocabulary": ["tea"]},
            {"vocabulary": ["tea", "tea"]},
            {"vocabulary": 3},
            {"vectorizer": {"tokenizer": "os.system"}},
            {"vectorizer": {"token_pattern": "("}},
            {"vectorizer": {"ngram_range": "x"}},
            {"vectorizer": 7},
        ],
        ids=str,
    )
    def test_damaged_vocabularies(self, change, tmp_path):
        result = cluster(["tea", "milk"], 2)
        result.model.save(tmp_path / "model.onmf")
        model = onmf.load(tmp_path / "model.onmf")
        model.extra_ |= change
        with pytest.raises(ValueError, match=r"vocabulary is damaged|found with the pattern '\('"):
            predict(model, ["tea"])


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("charset_normalizer", lambda path: decode(bytes(range(128, 256)))),
        ("pyarrow", lambda path: texts_of(io.BytesIO(b"\x28\xb5\x2f\xfd"))),
        ("pyarrow", lambda path: texts_of(path)),
        ("stopwordsiso", lambda path: stop_words("german")),
        ("jinja2", lambda path: rows_page(cluster(["tea"], 1))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_missing_packages_are_named(module, call, monkeypatch, tmp_path):
    pa.parquet.write_table(pa.table({"text": ["tea"]}), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'onmf\[(text|report)\]'"):
        call(tmp_path / "a.parquet")


class TopicModel:
    """Uses a clusterer in the same way as BERTopic."""

    def __init__(self, hdbscan_model, vectorizer_model):
        self.hdbscan_model = hdbscan_model
        self.vectorizer_model = vectorizer_model

    def fit_transform(self, documents, embeddings):
        self.hdbscan_model.fit(embeddings, y=None)
        topics = self.hdbscan_model.labels_
        joined = [
            " ".join(d for d, t in zip(documents, topics, strict=True) if t == topic) for topic in sorted({*topics})
        ]
        self.words = self.vectorizer_model.fit_transform(joined)
        return topics.tolist(), getattr(self.hdbscan_model, "probabilities_", None)

    def transform(self, embeddings):
        return self.hdbscan_model.predict(embeddings).tolist()


def test_onmf_works_as_the_clusterer_of_a_topic_model():
    rng = np.random.default_rng(0)
    centres = np.eye(3, 8) * 4 + 1
    embeddings = np.concatenate([np.abs(centres[k] + rng.normal(size=(20, 8)) / 5) for k in range(3)]).astype(
        np.float32
    )
    documents = [f"{word} drink" for word in ("tea", "milk", "beer") for _ in range(20)]
    model = TopicModel(clone(ONMF(3, beta_loss="cosine")), CountVectorizer())
    topics, _ = model.fit_transform(documents, embeddings)
    assert [len(set(topics[i : i + 20])) for i in (0, 20, 40)] == [1, 1, 1]
    assert len(set(topics)) == 3
    assert model.transform(embeddings) == topics
    assert model.words.shape[0] == 3
