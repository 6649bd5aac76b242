"""The container: a damaged, foreign or malicious file gives an error, and nothing in it is executed."""

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onmf
from conftest import needs_posix
from model_files import VOCABULARY, X, edit, loads_unchanged, npy, rebuild, replace, write_documents_model
from onmf import ONMF


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onmf"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The bytes of a model file, and the model."""
    return write_documents_model(tmp_path_factory.mktemp("stored") / "model.onmf")


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        onmf.load(tmp_path / "nothing.onmf")
    with pytest.raises(ValueError, match="is a folder"):
        onmf.load(tmp_path)


@needs_posix
def test_a_pipe_does_not_block(path):
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is a device or a pipe, not a file"):
        onmf.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"hello\n" * 100, pickle.dumps({"a": 1}), b"\x93NUMPY", os.urandom(5000)],
    ids=["empty", "two bytes", "text", "pickle", "npy", "noise"],
)
def test_foreign_files(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not an onmf model, or is damaged"):
        onmf.load(path)


def test_a_foreign_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(ValueError, match=r"a zip file without a metadata\.json that says so"):
        onmf.load(path)
    np.savez(path.with_suffix(".npz"), X=X)
    with pytest.raises(ValueError, match=r"a zip file without a metadata\.json that says so"):
        onmf.load(path.with_suffix(".npz"))


def test_truncated_anywhere(stored, path):
    data, _ = stored
    lengths = {*range(0, len(data), 97), *range(len(data) - 64, len(data))}
    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match="is damaged"):
            onmf.load(path)


def test_flipped_bits(stored, path):
    data, model = stored
    rng = np.random.default_rng(0)
    harmless = 0
    positions = rng.choice(len(data), 600, replace=False)
    for position in positions:
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        harmless += loads_unchanged(path, model)
    assert harmless < 0.1 * len(positions)  # unused dates and flags in the directory of the zip file


@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), min_size=1, max_size=5)
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_overwritten_bytes(stored, tmp_path_factory, changes):
    data, model = stored
    damaged = bytearray(data)
    for fraction, replacement in changes:
        start = int(fraction * len(data))
        damaged[start : start + len(replacement)] = replacement
    path = tmp_path_factory.mktemp("fuzz") / "model.onmf"
    path.write_bytes(bytes(damaged))
    loads_unchanged(path, model)


def header(shape, descr="<f8"):
    """A .npy file that claims a shape and holds eight numbers."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64)


EXECUTED = []


def execute():
    EXECUTED.append("a pickle was loaded")


class Payload:
    def __reduce__(self):
        return (execute, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(format_version=3, onmf_version="9.1"), r"written by a newer onmf \(9\.1, format 3\).*upgrade onmf"),
        (edit(format_version="1"), "does not state its format version"),
        (edit(format_version=True), "does not state its format version"),
        (edit(format="another thing"), r"is not an onmf model: it is a zip file without a metadata"),
        (replace("arrays/centroids.npy", npy(np.array([Payload()], dtype=object), allow_pickle=True)), "plain numbers"),
        (replace("arrays/centroids.npy", pickle.dumps(Payload())), "no valid .npy header"),
        (replace("arrays/centroids.npy", header((10**6, 10**6))), "claims the shape"),
        (replace("arrays/centroids.npy", header((10**30, 10**30))), "claims the shape"),
        (replace("arrays/centroids.npy", header((-2, -4))), "claims the shape"),
        (replace("arrays/centroids.npy", header((2, 4), "|O")), "plain numbers"),
        (replace("arrays/centroids.npy", header((0, 10**9))), "claims the shape"),
        (replace("arrays/centroids.npy", header((1,), "V64")), "plain numbers"),
        (replace("parts/vocabulary.json", b"[" * 100_000), "is not JSON"),
        (replace("parts/vocabulary.json", b"\xff\xfe"), "is not JSON"),
        (replace("../escape.npy", b"x"), "'../escape.npy', which does not belong there"),
        (replace("/etc/passwd", b"x"), "'/etc/passwd', which does not belong there"),
        (replace("arrays/model.pkl", pickle.dumps(Payload())), "does not belong there"),
        (replace("parts/vocabulary.json", json.dumps(["\ud800", *VOCABULARY[1:]]).encode()), "surrogates not allowed"),
        (replace("parts/source.json", b'{"a": 1, "a": 2}'), "the same name twice"),
        (replace("parts/source.json", b"[" * 150 + b"]" * 150), "more than 100 levels deep"),
        (replace("parts/source.json", b"1" * 10_000), "parts/source.json is not JSON"),
    ],
)  # fmt: skip
def test_malicious_files(stored, path, change, message):
    rebuild(stored[0], path, change=change)
    with pytest.raises(ValueError, match=message) as caught:
        onmf.load(path)
    assert "\n" not in str(caught.value)
    assert not EXECUTED


def test_a_member_that_is_not_listed_and_a_wrong_checksum(stored, path):
    rebuild(stored[0], path, change=replace("parts/more.json", b"1"), update_list=False)
    with pytest.raises(ValueError, match=r"members differ from those that its metadata\.json lists"):
        onmf.load(path)
    rebuild(stored[0], path, change=replace("arrays/masses.npy", npy(np.ones(3))), update_list=False)
    with pytest.raises(ValueError, match=r"checksum of arrays/masses\.npy is wrong"):
        onmf.load(path)


def test_a_zip_bomb_is_refused_before_it_is_read(stored, path):
    bomb = npy(np.zeros((3, 10**7)))
    rebuild(stored[0], path, change=replace("arrays/centroids.npy", bomb), compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < len(bomb) / 100
    with pytest.raises(ValueError, match="is compressed or encrypted, which is not allowed"):
        onmf.load(path)


def test_the_same_member_twice(stored, path):
    path.write_bytes(stored[0])
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("arrays/masses.npy", npy(np.ones(3)))
    with pytest.raises(ValueError, match="the same one twice"):
        onmf.load(path)


def test_a_file_is_written_whole_or_not_at_all(path, monkeypatch):
    ONMF(2).fit(X).save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match="No space left"):
        ONMF(3).fit(X).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["model.onmf"]
