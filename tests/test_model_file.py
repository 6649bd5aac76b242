"""Model files: saved models load unchanged, and everything else is refused."""

import hashlib
import io
import json
import os
import pickle
import re
import struct
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

import onmf
from conftest import make_counts
from onmf import ONMF
from onmf.datasets import make_scene
from onmf.divergence import BetaBelowOne, KullbackLeibler
from onmf.image import Cube, cluster_image, predict_image
from onmf.image.cluster import image_parts
from onmf.model_file import PARAMETERS
from onmf.text import assign_documents
from onmf.text.words import DEFAULT, is_simple

X = make_counts(np.random.default_rng(0))[0]
VOCABULARY = ["tea", "<milk>", "Käse", *(f"word{chr(97 + j)}" for j in range(X.shape[1] - 3))]
DOCUMENTS = {
    "vocabulary": VOCABULARY,
    "vectorizer": {
        "lowercase": True,
        "token_pattern": r"\b[^\W\d_]{2,}\b",
        "ngram_range": [1, 1],
        "stop_words": ["of"],
    },
    "source": {"name": "letters", "strip": ["headers"], "skipped": [["a.png", "not text"]]},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onmf"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The bytes of a model file, and the model."""
    model = ONMF(3, init="random-partition", n_init=2, random_state=0).fit(csr_array(X))
    path = tmp_path_factory.mktemp("stored") / "model.onmf"
    model.save(path, extra={"kind": "documents", **DOCUMENTS, "bands": np.arange(4.0)})
    return path.read_bytes(), model


def same(a, b):
    """Check that the public results of two fitted models are the same to the last bit."""
    for name in ("labels_", "scales_", "cluster_centers_", "margins_", "init_rows_"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes(), name
    for name in ("n_iter_", "reconstruction_err_", "stop_reason_", "engine_", "n_sweeps_", "n_features_in_"):
        assert getattr(a, name) == getattr(b, name), name
    assert {name: list(values) for name, values in a.history_.items()} == {
        name: list(values) for name, values in b.history_.items()
    }
    assert a._divergence == b._divergence
    assert a.predict(X).tolist() == b.predict(X).tolist()
    assert a.top_features(3) == b.top_features(3)
    return True


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta_loss": "frobenius"},
        {"beta_loss": "cosine", "refine": "local-search"},
        {"beta_loss": 0.5, "smoothing": 0.01},
        {"beta_loss": 1.5},
        {"beta_loss": KullbackLeibler(0.1)},
        {"beta_loss": BetaBelowOne(0.3)},
        {"init": X[:3]},
        {"init": X[:3].tolist()},
        {"init": "consensus", "n_consensus": 4, "random_state": np.int64(1)},
        {"engine": "reference", "max_iter": np.int32(50)},
    ],
    ids=str,
)
def test_round_trip(options, path):
    model = ONMF(3, **options).fit(X)
    model.save(path)
    again = onmf.load(path)
    assert same(model, again)
    for name, value in model.get_params().items():
        assert np.array_equal(getattr(again, name), value), name
    assert again.extra_ == {"kind": "matrix"}
    assert again.provenance_["onmf"] == onmf.__version__
    assert same(again, pickle.loads(pickle.dumps(again)))
    if model.agreement_ is not None:
        assert again.agreement_.overall == model.agreement_.overall
        assert again.agreement_.rows.tolist() == model.agreement_.rows.tolist()
    again.cluster_centers_[0, 0] += 1  # the array is writable memory, not a view of the file
    assert again.fit(X).labels_.tolist() == model.labels_.tolist()
    assert not hasattr(again, "extra_")


def test_itakura_saito_and_names(path):
    frame = pd.DataFrame(X + 1, columns=[f"word {j}" for j in range(X.shape[1])])
    model = ONMF(3, beta_loss="itakura-saito").fit(frame)
    model.save(path)
    again = onmf.load(path)
    assert again.feature_names_in_.tolist() == list(frame.columns)
    assert again.predict(frame).tolist() == model.predict(frame).tolist()
    assert next(iter(again.top_features(1)[0])).startswith("word ")


def test_extra_parts_come_back_and_are_saved_again(path):
    extra = {"kind": "songs", "bands": np.arange(5.0), "words": ["Käse", "</script>"], "options": {"a": [1, None, 0.5]}}
    ONMF(2).fit(X).save(path, extra=extra)
    for _ in range(2):
        model = onmf.load(path)
        assert model.extra_["bands"].tolist() == [0, 1, 2, 3, 4]
        assert {**model.extra_, "bands": None} == {**extra, "bands": None}
        model.save(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": lambda X, k, random_state: X[:k]}, "init=.* cannot be saved: a model file holds no code"),
        ({"random_state": np.random.RandomState(0)}, "random_state=.* cannot be saved"),
    ],
    ids=["init", "random_state"],
)
def test_what_cannot_be_saved(options, message, path):
    model = ONMF(3, **options).fit(X)
    with pytest.raises(ValueError, match=message):
        model.save(path)
    assert not path.exists()
    model.set_params(init="snpa", random_state=None).save(path)
    assert onmf.load(path).labels_.tolist() == model.labels_.tolist()


def test_a_divergence_of_ones_own_cannot_be_saved(path):
    class Own(KullbackLeibler):
        pass

    with pytest.raises(ValueError, match="cannot be saved: a model file holds no code"):
        ONMF(3, beta_loss=Own()).fit(X).save(path)


def test_more_that_cannot_be_saved(path):
    model = ONMF(2).fit(X)
    with pytest.raises(ValueError, match=r"'parts/\.\./x\.json' cannot name a part"):
        model.save(path, extra={"../x": 1})
    with pytest.raises(ValueError, match="words cannot be stored as JSON: object is neither"):
        model.save(path, extra={"words": object()})
    with pytest.raises(NotFittedError):
        ONMF(2).save(path)
    assert not list(path.parent.iterdir())


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        onmf.load(tmp_path / "nothing.onmf")
    with pytest.raises(ValueError, match="is a folder"):
        onmf.load(tmp_path)


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
    with pytest.raises(ValueError, match=r"a zip file without metadata\.json"):
        onmf.load(path)
    np.savez(path.with_suffix(".npz"), X=X)
    with pytest.raises(ValueError, match=r"a zip file without metadata\.json"):
        onmf.load(path.with_suffix(".npz"))


def test_truncated_anywhere(stored, path):
    data, _ = stored
    lengths = {*range(0, len(data), 97), *range(len(data) - 64, len(data))}
    for length in lengths:
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match="is damaged"):
            onmf.load(path)


def load_or_sentence(path, model):
    """Check that loading gives the same model, or an error of one sentence."""
    sentence = None
    try:
        again = onmf.load(path)
    except ValueError as error:
        sentence = str(error)
    if sentence is not None:
        assert str(path) in sentence
        assert "\n" not in sentence
        return False
    assert same(model, again)
    assert again.extra_["vocabulary"] == VOCABULARY
    return True


def test_flipped_bits(stored, path):
    data, model = stored
    rng = np.random.default_rng(0)
    harmless = 0
    places = rng.choice(len(data), 600, replace=False)
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        harmless += load_or_sentence(path, model)
    assert harmless < 0.1 * len(places)  # dates and flags in the zip directory have no effect


@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), min_size=1, max_size=5)
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_overwritten_bytes(stored, tmp_path_factory, changes):
    data, model = stored
    damaged = bytearray(data)
    for place, replacement in changes:
        start = int(place * len(data))
        damaged[start : start + len(replacement)] = replacement
    path = tmp_path_factory.mktemp("fuzz") / "model.onmf"
    path.write_bytes(bytes(damaged))
    load_or_sentence(path, model)


def rebuilt(data, path, *, change=lambda members: None, compression=zipfile.ZIP_STORED, list_again=True):
    """The file with changed members and corrected checksums, as an attacker would write it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    if list_again:
        head = json.loads(members["metadata.json"])
        head["members"] = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
            if name != "metadata.json"
        }
        members["metadata.json"] = json.dumps(head).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def edited(**changes):
    """Change the metadata."""

    def change(members):
        head = json.loads(members["metadata.json"])
        for name, value in changes.items():
            if value is ...:
                del head[name]
            elif isinstance(value, dict):
                head[name] |= value
            else:
                head[name] = value
        members["metadata.json"] = json.dumps(head).encode()

    return change


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def header(shape, descr="<f8"):
    """A .npy file that claims a shape and contains eight numbers."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64)


SPRUNG = []


def spring():
    SPRUNG.append("a pickle was loaded")


class Trap:
    def __reduce__(self):
        return (spring, ())


def replace(name, content):
    return lambda members: members.__setitem__(name, content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited(format_version=2, onmf_version="9.1"), r"written by a newer onmf \(9\.1, format 2\).*upgrade onmf"),
        (edited(format_version="1"), "does not say which version"),
        (edited(format_version=True), "does not say which version"),
        (edited(format="another thing"), "is not an onmf model"),
        (edited(fitted=...), "'fitted' is missing"),
        (edited(parameters={"n_clusters": 0}), "parameter n_clusters is 0, not a whole number from 1"),
        (edited(parameters={"n_clusters": {"array": "nowhere"}}), "array of its parameter n_clusters is missing"),
        (edited(parameters={"n_jobs": 3}), "unknown parameters: n_jobs"),
        (edited(parameters={"init": ["snpa"]}), r"parameter init is \['snpa'\], not one of 'snpa'"),
        (edited(parameters=7), "its parameters is 7, not a record"),
        (edited(divergence={"divergence": "get_divergence"}), "unknown"),
        (edited(divergence={"divergence": "Divergence"}), "unknown"),
        (edited(divergence={"divergence": "__class__"}), "unknown"),
        (edited(divergence={"smoothing": -1}), "smoothing=-1.0 is not allowed"),
        (edited(fitted={"n_iter": "many"}), "its n_iter is 'many', not a whole number"),
        (replace("metadata.json", b'{"format": "an onmf model", "format_version": 1}'), "'parameters' is missing"),
        (replace("arrays/labels.npy", npy(np.full(60, 7))), "a label names a cluster that is not there"),
        (replace("arrays/labels.npy", npy(np.zeros(59, int))), r"its scales have the shape \(60,\), not \(59,\)"),
        (replace("arrays/labels.npy", npy(np.zeros(60))), "its labels have 1 axes of float64 values"),
        (replace("arrays/centroids.npy", npy(np.zeros(3))), "its centroids have 1 axes of float64 values, not 2"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), np.nan))), "its centroids hold NaN"),
        (replace("arrays/masses.npy", npy(np.zeros(5))), r"its masses have the shape \(5,\), not \(3,\)"),
        (replace("arrays/centroids.npy", npy(np.array([Trap()], dtype=object), allow_pickle=True)), "plain numbers"),
        (replace("arrays/centroids.npy", pickle.dumps(Trap())), "no header of a .npy file"),
        (replace("arrays/centroids.npy", header((10**6, 10**6))), "claims the shape"),
        (replace("arrays/centroids.npy", header((10**30, 10**30))), "claims the shape"),
        (replace("arrays/centroids.npy", header((-2, -4))), "claims the shape"),
        (replace("arrays/centroids.npy", header((2, 4), "|O")), "plain numbers"),
        (replace("arrays/centroids.npy", header((0, 10**9))), "claims the shape"),
        (replace("arrays/centroids.npy", header((1,), "V64")), "plain numbers"),
        (replace("parts/feature_names_in.json", b'["one"]'), "names of features"),
        (replace("parts/vocabulary.json", b"[" * 100_000), "is not JSON"),
        (replace("parts/vocabulary.json", b"\xff\xfe"), "is not JSON"),
        (replace("../escape.npy", b"x"), "'../escape.npy', which does not belong there"),
        (replace("/etc/passwd", b"x"), "'/etc/passwd', which does not belong there"),
        (replace("arrays/model.pkl", pickle.dumps(Trap())), "does not belong there"),
    ],
)  # fmt: skip
def test_malicious_files(stored, path, change, message):
    rebuilt(stored[0], path, change=change)
    with pytest.raises(ValueError, match=message) as caught:
        onmf.load(path)
    assert "\n" not in str(caught.value)
    assert not SPRUNG


def test_a_member_that_is_not_listed_and_a_wrong_checksum(stored, path):
    rebuilt(stored[0], path, change=replace("parts/more.json", b"1"), list_again=False)
    with pytest.raises(ValueError, match=r"members are not those that its metadata\.json lists"):
        onmf.load(path)
    rebuilt(stored[0], path, change=replace("arrays/masses.npy", npy(np.ones(3))), list_again=False)
    with pytest.raises(ValueError, match=r"checksum of arrays/masses\.npy is wrong"):
        onmf.load(path)


def test_a_bomb_is_refused_before_it_is_read(stored, path):
    bomb = npy(np.zeros((3, 10**7)))
    rebuilt(stored[0], path, change=replace("arrays/centroids.npy", bomb), compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < len(bomb) / 100
    with pytest.raises(ValueError, match="is compressed or encrypted, which no such file is"):
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


NESTED = json.loads("[" * 90 + "]" * 90)
VALUES = [None, True, -1, 7, 10**400, 1e308, float("nan"), "x", "", [], {}, NESTED]


def places(value, path=()):
    """Paths of all values in a JSON document. Lists contribute only their first two items."""
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:2])
        for key, item in list(items):
            yield from places(item, (*path, key))


def with_value(value, path, new):
    """A copy with one value replaced."""
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = with_value(value[path[0]], path[1:], new)
    return changed


def of_matrix():
    frame = pd.DataFrame(X, columns=[f"word {j}" for j in range(X.shape[1])])
    return ONMF(3, init=X[:3], beta_loss=KullbackLeibler(0.1), random_state=3).fit(frame), {"kind": "matrix", "a": [1]}


def of_consensus():
    return ONMF(2, init="consensus", n_consensus=3, random_state=0, beta_loss=0.5).fit(X), {"kind": "songs"}


def of_documents():
    return ONMF(3).fit(csr_array(X)), {"kind": "documents", **DOCUMENTS}


def of_image():
    found = cluster_image(IMAGE, 3)
    return found.model, image_parts(found)


SCENE = make_scene(6, 5, 20, 3, random_state=0)
IMAGE = Cube(SCENE.X.reshape(6, 5, 20), wavelengths=SCENE.wavelengths, wavelength_unit="nm")


def predicted(model):
    """Map an image, or check that it is refused because its bands differ from the model's."""
    sentence = None
    try:
        assert len(predict_image(model, IMAGE).names) == len(model.cluster_centers_)
    except ValueError as error:
        sentence = str(error)
    assert sentence is None or "other bands than the model" in sentence or "images of the same sensor" in sentence


def used(path):
    """Load a model and use it according to its kind. Returns False if it was refused with an error."""
    try:
        model = onmf.load(path)
    except ValueError as error:
        sentence = str(error)
        assert str(path) in sentence
        assert "\n" not in sentence
        assert len(sentence) < 1000 + len(str(path))
        return False
    kind, again = model.extra_["kind"], path.with_name("again.onmf")
    if kind == "documents" and not is_simple(model.extra_["vectorizer"].get("token_pattern", DEFAULT) or ""):
        with pytest.raises(ValueError, match=r"found with the pattern|does not say what a word is"):
            assign_documents(model, ["tea"])
    elif kind == "documents":
        assign_documents(model, ["tea worda wordb", ""])
    elif kind == "image":
        predicted(model)
    else:
        new = X + 1 if model.n_features_in_ == X.shape[1] else np.ones((1, model.n_features_in_))
        names = getattr(model, "feature_names_in_", None)
        new = new if names is None else pd.DataFrame(new, columns=names)
        assert len(model.predict(new)) == len(new)
    model.top_features(3)
    model.save(again)
    assert onmf.load(again).labels_.tolist() == model.labels_.tolist()
    return True


@pytest.mark.parametrize("make", [of_matrix, of_consensus, of_documents, of_image])
def test_every_value_replaced(make, path):
    """Replace each value of each JSON part by each of the values above, with correct checksums."""
    model, extra = make()
    model.save(path, extra=extra)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        texts = {name: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}
    assert used(path)
    outcomes = []
    for name, value in texts.items():
        for place in places(value):
            if place[:1] == ("members",):
                continue  # corrected below
            for new in VALUES:
                changed = json.dumps(with_value(value, place, new)).encode()
                try:
                    rebuilt(data, path, change=replace(name, changed))
                except (TypeError, AttributeError):  # metadata in which members cannot be listed
                    continue
                outcomes.append(used(path))
    assert len(outcomes) > 400
    assert 0.02 < np.mean(outcomes) < 0.6  # some replacements are valid, most are not


@pytest.mark.parametrize("make", [of_matrix, of_documents, of_image])
def test_bytes_changed_with_right_checksums(make, path):
    model, extra = make()
    model.save(path, extra=extra)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()[1:]
    outcomes = []
    for _ in range(400):
        name = names[rng.integers(len(names))]

        def change(members, name=name):
            damaged = bytearray(members[name])
            for place in rng.integers(min(len(damaged), 400), size=rng.integers(1, 4)):
                damaged[place] = rng.integers(256)
            members[name] = bytes(damaged)

        rebuilt(data, path, change=change)
        outcomes.append(used(path))
    assert {True, False} <= set(outcomes)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("<f2", (3, 24)), (">f8", (3, 24)), ("<f16", (3, 24)), ("<i8", (3, 24)), ("|b1", (3, 24)), ("<f8", (0, 24)),
     ("<f8", (3, 0)), ("<f8", (3, 8, 3)), ("<f8", ()), ("<f8", (1,) * 40), ("<f8", (3, 25)), ("<f8", (2, 24))],
)  # fmt: skip
def test_arrays_of_other_types_and_shapes(stored, path, dtype, shape):
    rebuilt(stored[0], path, change=replace("arrays/centroids.npy", npy(np.ones(72)[:1].repeat(72))))
    array = np.ones(int(np.prod(shape)), dtype)
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(245) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()
    rebuilt(stored[0], path, change=replace("arrays/centroids.npy", content))
    assert used(path) == (dtype == ">f8")  # the other byte order is also valid


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited(parameters={"tol": 10**400}), "parameter tol is 1000"),
        (edited(parameters={"engine": 5}), "parameter engine is 5, not one of 'auto'"),
        (edited(parameters={"engine": None}), "parameter engine is None"),
        (edited(parameters={"n_threads": 10**9}), "parameter n_threads is 1000000000"),
        (edited(parameters={"random_state": -1}), "parameter random_state is -1"),
        (edited(fitted={"objective": float("nan")}), "objective is nan, not a number"),
        (edited(fitted={"n_filled": 99}), "n_filled is 99, not a whole number from 0 to 3"),
        (edited(provenance={"onmf": 7}), "provenance onmf is 7, not a text"),
        (edited(divergence={"smoothing": 10**400}), "KullbackLeibler smoothing is 1000"),
        (edited(divergence={"code": 1}), "KullbackLeibler code is 1, not known"),
        (edited(kind=7), "its kind is 7, not a text"),
        (edited(kind="image"), "'names' is missing"),
        (replace("parts/source.json", b"7"), "its part source is 7, not a record"),
        (replace("parts/source.json", b'{"strip": 7}'), "its part source is {'strip': 7}"),
        (replace("parts/kind.json", b"7"), "a part of it is called 'kind'"),
        (replace("parts/vectorizer.json", b'{"ngram_range": [1, 1000000000]}'), "not a record"),
        (replace("parts/vectorizer.json", b'{"analyzer": "os.system"}'), "not a record"),
        (replace("parts/vocabulary.json", b'["tea", "milk"]'), r"\['tea', 'milk'\], not a list of 24 different texts"),
        (replace("parts/vocabulary.json", json.dumps(["tea"] * 24).encode()), "not a list of 24 different texts"),
        (replace("parts/vocabulary.json", json.dumps(["\ud800", *VOCABULARY[1:]]).encode()), "surrogates not allowed"),
        (replace("parts/source.json", b'{"a": 1, "a": 2}'), "the same name twice"),
        (replace("parts/source.json", b"[" * 150 + b"]" * 150), "more than 100 levels deep"),
        (replace("parts/source.json", b"1" * 10_000), "parts/source.json is not JSON"),
        (replace("arrays/centroids.npy", npy(-np.ones((3, 24)))), "negative entries, which kullback-leibler"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), 1e308))), "too large or too small"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), np.inf))), "hold NaN or infinity"),
        (replace("arrays/history.moved.npy", npy(np.full(2, np.nan))), "history.moved are no numbers"),
        (replace("arrays/history.moved.npy", npy(np.ones((2, 2)))), "history.moved is no list"),
        (replace("arrays/labels.npy", npy(np.zeros(60, np.int8))), "its labels have 1 axes of int8 values"),
    ],
)  # fmt: skip
def test_values_that_no_model_has(stored, path, change, message):
    rebuilt(stored[0], path, change=change)
    with pytest.raises(ValueError, match=message) as caught:
        onmf.load(path)
    assert str(caught.value).startswith(f"{path} is damaged: ")


def test_every_parameter_has_a_rule():
    assert set(PARAMETERS) == set(ONMF().get_params())


def test_what_could_not_be_read_again_is_not_saved(path):
    model = ONMF(2).fit(X)
    for extra, message in (
        ({"kind": "documents"}, "The model cannot be saved: 'vocabulary' is missing"),
        ({"deep": json.loads("[" * 150 + "]" * 150)}, "deep cannot be stored as JSON: it is more than 100 levels deep"),
        ({"half": "\ud800"}, "half cannot be stored as JSON: .*surrogates not allowed"),
    ):
        with pytest.raises(ValueError, match=message):
            model.save(path, extra=extra)
    with pytest.raises(ValueError, match="The model cannot be saved: its parameter tol is -1"):
        model.set_params(tol=-1).save(path)
    assert not path.exists()


def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is a device or a pipe, not a file"):
        onmf.load(path)


@pytest.mark.parametrize(
    "pattern",
    [r"\b[^\W\d_]{2,}\b", r"(?u)\b\w\w+\b", r"\w+", r"[a-z]{3,}", r"\b[A-Z][a-z]+\b", r"\S+", r"\b\w[\w' -]*\b", ".+"],
)
def test_simple_patterns_are_linear(pattern):
    """A quadratic pattern would take hours on these texts."""
    assert is_simple(pattern)
    n = 300_000
    for text in (
        "a" * n,
        "a" * n + "1",
        "a" * n + "é!",
        "a " * n,
        "Aa1_" * n,
        "-" * n,
        "a-" * n + "_",
        "Ab" + "b" * n + "_",
    ):
        re.findall(pattern, text)


@pytest.mark.parametrize(
    "pattern", ["(?:a+)+b", r"\w+\b", r"\w+x", "a+a+", "(a|b)+", r"\w{1,9}{1,9}", r"(?=a)\w+", r"\w+?", "[a--b]", ""]
)
def test_other_patterns_from_a_file_are_not_used_unasked(pattern, path):
    model, extra = of_documents()
    extra["vectorizer"] = {**extra["vectorizer"], "token_pattern": pattern}
    model.save(path, extra=extra)
    loaded = onmf.load(path)
    with pytest.raises(ValueError, match=r"not used unasked\. If you trust it, give it yourself as token_pattern"):
        assign_documents(loaded, ["a" * 60])
    with pytest.raises(ValueError, match=r"found with the pattern .*, not with 'tea'"):
        assign_documents(loaded, ["a" * 60], token_pattern="tea")
    if pattern == r"\w+x":
        assert assign_documents(loaded, ["teax tea"], token_pattern=pattern).set_aside == ["1"]
