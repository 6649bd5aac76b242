"""Model files: a loaded model equals the saved one, and a changed file gives a usable model or an error."""

import json
import pickle
import re
import struct
import zipfile
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from examples.weighted_divergence import WeightedKullbackLeibler
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

import onmf.image
import onmf.text
from model_files import DOCUMENTS, X, assert_same, edit, rebuild, replace, write_documents_model
from onmf import ONMF
from onmf.datasets import make_scene
from onmf.divergence import REGISTERED, BetaBelowOne, KullbackLeibler, NegativeBinomial, register
from onmf.image import Cube
from onmf.text.words import DEFAULT, is_simple


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onmf"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The bytes of a model file, and the model."""
    return write_documents_model(tmp_path_factory.mktemp("stored") / "model.onmf")


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
    loaded = onmf.load(path)
    assert_same(model, loaded)
    for name, value in model.get_params().items():
        assert np.array_equal(getattr(loaded, name), value), name
    assert loaded.extra_ == {"kind": "matrix"}
    assert loaded.provenance_["onmf"] == onmf.__version__
    assert_same(loaded, pickle.loads(pickle.dumps(loaded)))
    if model.agreement_ is not None:
        assert loaded.agreement_.overall == model.agreement_.overall
        assert loaded.agreement_.rows.tolist() == model.agreement_.rows.tolist()
    loaded.cluster_centers_[0, 0] += 1  # writable, unlike the bytes of the file
    assert loaded.fit(X).labels_.tolist() == model.labels_.tolist()
    assert not hasattr(loaded, "extra_")


def test_itakura_saito_and_feature_names(path):
    frame = pd.DataFrame(X + 1, columns=[f"word {j}" for j in range(X.shape[1])])
    model = ONMF(3, beta_loss="itakura-saito").fit(frame)
    model.save(path)
    loaded = onmf.load(path)
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert loaded.predict(frame).tolist() == model.predict(frame).tolist()
    assert next(iter(loaded.top_features(1)[0])).startswith("word ")


def test_extra_parts_are_loaded_and_saved_again(path):
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
def test_parameters_that_cannot_be_saved(options, message, path):
    model = ONMF(3, **options).fit(X)
    with pytest.raises(ValueError, match=message):
        model.save(path)
    assert not path.exists()
    model.set_params(init="snpa", random_state=None).save(path)
    assert onmf.load(path).labels_.tolist() == model.labels_.tolist()


def test_a_divergence_of_a_users_class_is_saved_if_it_is_registered(path, monkeypatch):
    divergence = WeightedKullbackLeibler(tuple(np.linspace(0.5, 1.5, X.shape[1])))
    model = ONMF(3, beta_loss=divergence).fit(X)
    model.save(path)
    loaded = onmf.load(path)
    assert loaded.divergence_ == loaded.beta_loss == divergence
    assert np.array_equal(loaded.predict(X), model.labels_)
    loaded.save(path)
    monkeypatch.delitem(REGISTERED, "WeightedKullbackLeibler")
    with pytest.raises(ValueError, match=r"register\(WeightedKullbackLeibler\) here, and where the model is loaded"):
        model.save(path)
    with pytest.raises(ValueError, match="its divergence 'WeightedKullbackLeibler' is not part of onmf"):
        onmf.load(path)


def test_what_cannot_be_registered(path):
    @dataclass(frozen=True)
    class WeightedKullbackLeibler(KullbackLeibler):
        pass

    with pytest.raises(ValueError, match="is registered under the name of"):
        register(WeightedKullbackLeibler)

    class Custom(KullbackLeibler):
        pass

    with pytest.raises(ValueError, match="cannot be saved: a model file holds no code"):
        ONMF(3, beta_loss=Custom()).fit(X).save(path)
    with pytest.raises(TypeError, match="cannot be registered: pass a subclass"):
        register(Custom())
    Custom.__name__ = "Cosine"
    with pytest.raises(ValueError, match="'Cosine' is the name of a divergence of onmf"):
        register(Custom)


def test_a_registered_negative_binomial_is_saved(path, monkeypatch):
    kinds = type("Plain", (NegativeBinomial,), {}), dataclass(frozen=True)(type("Decorated", (NegativeBinomial,), {}))
    for kind in kinds:
        monkeypatch.setitem(REGISTERED, kind.__name__, kind)
        model = ONMF(3, beta_loss=kind(2.0)).fit(X)
        model.save(path)
        assert onmf.load(path).divergence_ == model.divergence_


@pytest.mark.parametrize("weights", ["{}", "[[1]]", '"many"', "[null]"])
def test_wrong_fields_of_a_users_divergence_are_refused(path, weights):
    ONMF(3, beta_loss=WeightedKullbackLeibler((1.0,) * X.shape[1])).fit(X).save(path)
    rebuild(path.read_bytes(), path, change=edit(divergence={"feature_weights": json.loads(weights)}))
    with pytest.raises(ValueError, match="is damaged: "):
        onmf.load(path)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"../x": 1}, r"'parts/\.\./x\.json' is not a valid name for a part"),
        ({"words": object()}, "words cannot be stored as JSON: object is not a number"),
        (
            {"deep": json.loads("[" * 150 + "]" * 150)},
            "deep cannot be stored as JSON: it is nested more than 100 levels deep",
        ),
        ({"half": "\ud800"}, "half cannot be stored as JSON: .*surrogates not allowed"),
        ({"kind": "documents"}, "The model cannot be saved: 'vocabulary' is missing"),
    ],
    ids=["name", "object", "deep", "half", "kind"],
)
def test_parts_that_cannot_be_saved(extra, message, path):
    with pytest.raises(ValueError, match=message):
        ONMF(2).fit(X).save(path, extra=extra)
    assert not list(path.parent.iterdir())


def test_models_that_cannot_be_saved(path):
    with pytest.raises(NotFittedError):
        ONMF(2).save(path)
    with pytest.raises(ValueError, match="The model cannot be saved: its parameter tol is -1"):
        ONMF(2).fit(X).set_params(tol=-1).save(path)
    assert not list(path.parent.iterdir())


NESTED = json.loads("[" * 90 + "]" * 90)
VALUES = [None, True, -1, 7, 10**400, 1e308, float("nan"), "x", "", [], {}, NESTED]


def keys_of(value, keys=()):
    """The keys that lead to each value in nested JSON, and to the first two values of each list."""
    yield keys
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value[:2])
        for key, item in list(items):
            yield from keys_of(item, (*keys, key))


def with_value(value, keys, new):
    """A copy with one value replaced."""
    if not keys:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[keys[0]] = with_value(value[keys[0]], keys[1:], new)
    return changed


def matrix_model():
    frame = pd.DataFrame(X, columns=[f"word {j}" for j in range(X.shape[1])])
    return ONMF(3, init=X[:3], beta_loss=KullbackLeibler(0.1), random_state=3).fit(frame), {"kind": "matrix", "a": [1]}


def consensus_model():
    return ONMF(2, init="consensus", n_consensus=3, random_state=0, beta_loss=0.5).fit(X), {"kind": "songs"}


def documents_model():
    return ONMF(3).fit(csr_array(X)), {"kind": "documents", **DOCUMENTS}


def image_model():
    clusters = onmf.image.cluster(IMAGE, 3)
    return clusters.model, clusters.entries()


SCENE = make_scene(6, 5, 20, 3, random_state=0)
IMAGE = Cube(SCENE.X.reshape(6, 5, 20), wavelengths=SCENE.wavelengths, wavelength_unit="nm")


def check_prediction(model):
    """The model predicts an image, or refuses it because its bands are others."""
    message = None
    try:
        assert len(onmf.image.predict(model, IMAGE).names) == len(model.cluster_centers_)
    except ValueError as error:
        message = str(error)
    assert message is None or "other bands than the model" in message or "images of the same sensor" in message


def is_usable(path):
    """Load a model and use it: True if that works, False if loading fails with a short one-line message."""
    try:
        model = onmf.load(path)
    except ValueError as error:
        message = str(error)
        assert str(path) in message
        assert "\n" not in message
        assert len(message) < 1000 + len(str(path))
        return False
    kind, copy = model.extra_["kind"], path.with_name("copy.onmf")
    if kind == "documents" and not is_simple(model.extra_["vectorizer"].get("token_pattern", DEFAULT) or ""):
        with pytest.raises(ValueError, match=r"found with the pattern|does not say what a word is"):
            onmf.text.predict(model, ["tea"])
    elif kind == "documents":
        onmf.text.predict(model, ["tea worda wordb", ""])
    elif kind == "image":
        check_prediction(model)
    else:
        new = X + 1 if model.n_features_in_ == X.shape[1] else np.ones((1, model.n_features_in_))
        names = getattr(model, "feature_names_in_", None)
        new = new if names is None else pd.DataFrame(new, columns=names)
        assert len(model.predict(new)) == len(new)
    model.top_features(3)
    model.save(copy)
    assert onmf.load(copy).labels_.tolist() == model.labels_.tolist()
    return True


@pytest.mark.long("damage to every value of a file")
@pytest.mark.parametrize("make", [matrix_model, consensus_model, documents_model, image_model])
def test_every_value_replaced(make, path):
    """Replace each value in each JSON member by each of VALUES, with correct checksums."""
    model, extra = make()
    model.save(path, extra=extra)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        texts = {name: json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")}
    assert is_usable(path)
    outcomes = []
    for name, value in texts.items():
        for keys in keys_of(value):
            if keys[:1] == ("members",):
                continue  # rebuild() overwrites them
            for new in VALUES:
                changed = json.dumps(with_value(value, keys, new)).encode()
                try:
                    rebuild(data, path, change=replace(name, changed))
                except (TypeError, AttributeError):  # the metadata are no longer an object
                    continue
                outcomes.append(is_usable(path))
    assert len(outcomes) > 400
    assert 0.02 < np.mean(outcomes) < 0.6  # some values are valid, most are not


@pytest.mark.long("damage to every value of a file")
@pytest.mark.parametrize("make", [matrix_model, documents_model, image_model])
def test_changed_bytes_with_correct_checksums(make, path):
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
            for position in rng.integers(min(len(damaged), 400), size=rng.integers(1, 4)):
                damaged[position] = rng.integers(256)
            members[name] = bytes(damaged)

        rebuild(data, path, change=change)
        outcomes.append(is_usable(path))
    assert {True, False} <= set(outcomes)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("<f2", (3, 24)), (">f8", (3, 24)), ("<f16", (3, 24)), ("<i8", (3, 24)), ("|b1", (3, 24)), ("<f8", (0, 24)),
     ("<f8", (3, 0)), ("<f8", (3, 8, 3)), ("<f8", ()), ("<f8", (1,) * 40), ("<f8", (3, 25)), ("<f8", (2, 24))],
)  # fmt: skip
def test_arrays_of_other_types_and_shapes(stored, path, dtype, shape):
    array = np.ones(int(np.prod(shape)), dtype)
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(245) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()
    rebuild(stored[0], path, change=replace("arrays/centroids.npy", content))
    assert is_usable(path) == (dtype == ">f8")  # another byte order is valid


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
def test_other_patterns_in_a_file_are_used_only_on_request(pattern, path):
    model, extra = documents_model()
    extra["vectorizer"] = {**extra["vectorizer"], "token_pattern": pattern}
    model.save(path, extra=extra)
    loaded = onmf.load(path)
    with pytest.raises(ValueError, match=r"not used by default\. If you trust it, pass it as token_pattern"):
        onmf.text.predict(loaded, ["a" * 60])
    with pytest.raises(ValueError, match=r"found with the pattern .*, not with 'tea'"):
        onmf.text.predict(loaded, ["a" * 60], token_pattern="tea")
    if pattern == r"\w+x":
        assert onmf.text.predict(loaded, ["teax tea"], token_pattern=pattern).unassigned == ["1"]
