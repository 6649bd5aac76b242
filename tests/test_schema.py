"""What a model file must hold: every wrong value gives an error that names it."""

import json

import numpy as np
import pytest

import onmf
from model_files import edit, npy, rebuild, replace, write_documents_model
from onmf import ONMF
from onmf.io.model_file import PARAMETERS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onmf"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The bytes of a model file, and the model."""
    return write_documents_model(tmp_path_factory.mktemp("stored") / "model.onmf")


def test_every_parameter_has_a_rule():
    assert set(PARAMETERS) == set(ONMF().get_params())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edit(fitted=...), "'fitted' is missing"),
        (edit(parameters={"n_clusters": 0}), "parameter n_clusters is 0, not an integer from 1"),
        (edit(parameters={"n_clusters": {"array": "nowhere"}}), "array of its parameter n_clusters is missing"),
        (edit(parameters={"n_jobs": 3}), "its parameter n_jobs is 3, not a known parameter"),
        (edit(parameters={"init": ["snpa"]}), r"parameter init is \['snpa'\], not one of 'auto', 'snpa'"),
        (edit(parameters=7), "its parameters is 7, not a JSON object"),
        (edit(divergence={"divergence": "get_divergence"}), "its divergence 'get_divergence' is unknown"),
        (edit(divergence={"divergence": "Divergence"}), "its divergence 'Divergence' is unknown"),
        (edit(divergence={"divergence": "__class__"}), "its divergence '__class__' is unknown"),
        (edit(divergence={"smoothing": -1}), "smoothing=-1.0 is not allowed"),
        (edit(fitted={"n_iter": "many"}), "its n_iter is 'many', not an integer"),
        (replace("metadata.json", b'{"format": "an onmf model", "format_version": 1}'), "'parameters' is missing"),
        (replace("arrays/labels.npy", npy(np.full(60, 7))), "labels is .* from 7 to 7, not .* values from 0 to 2"),
        (replace("arrays/labels.npy", npy(np.zeros(59, int))), r"its scales is .* \(60,\) .*, not .* \(59,\)"),
        (replace("arrays/labels.npy", npy(np.zeros(60))), "labels is an array of float64 .*, not .* int32 or int64"),
        (replace("arrays/centroids.npy", npy(np.zeros(3))), r"its centroids is .* shape \(3,\) .*, not a matrix"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), np.nan))), "from nan to nan, not .* finite values"),
        (replace("arrays/masses.npy", npy(np.zeros(5))), r"its masses is .* shape \(5,\) .*, not .* shape \(3,\)"),
        (replace("parts/feature_names_in.json", b'["one"]'), "feature names do not match"),
        (edit(parameters={"tol": 10**400}), "parameter tol is 1000"),
        (edit(parameters={"engine": 5}), "parameter engine is 5, not one of 'auto'"),
        (edit(parameters={"engine": None}), "parameter engine is None"),
        (edit(parameters={"n_threads": 10**9}), "parameter n_threads is 1000000000"),
        (edit(parameters={"random_state": -1}), "parameter random_state is -1"),
        (edit(fitted={"objective": float("nan")}), "objective is nan, not a number"),
        (edit(fitted={"n_filled": 99}), "n_filled is 99, not an integer from 0 to 3"),
        (edit(provenance={"onmf": 7}), "provenance onmf is 7, not a string"),
        (edit(divergence={"smoothing": 10**400}), "KullbackLeibler smoothing is 1000"),
        (edit(divergence={"code": 1}), "KullbackLeibler code is 1, not a known parameter"),
        (edit(kind=7), "its kind is 7, not a string"),
        (edit(kind="image"), "'names' is missing"),
        (replace("parts/source.json", b"7"), "its part source is 7, not a JSON object"),
        (replace("parts/source.json", b'{"strip": 7}'), "its part source is {'strip': 7}"),
        (replace("parts/kind.json", b"7"), "it has a part named 'kind'"),
        (replace("parts/vectorizer.json", b'{"ngram_range": [1, 1000000000]}'), "not a JSON object"),
        (replace("parts/vectorizer.json", b'{"analyzer": "os.system"}'), "not a JSON object"),
        (replace("parts/vocabulary.json", b'["tea", "milk"]'), r"'milk'\], not a list of 24 different strings"),
        (replace("parts/vocabulary.json", json.dumps(["tea"] * 24).encode()), "not a list of 24 different strings"),
        (replace("arrays/centroids.npy", npy(-np.ones((3, 24)))), "negative entries, which kullback-leibler"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), 1e308))), "too large or too small"),
        (replace("arrays/centroids.npy", npy(np.full((3, 24), np.inf))), "from inf to inf, not .* finite values"),
        (replace("arrays/history.moved.npy", npy(np.full(2, np.nan))), "history.moved is .* nan, not .* from 0"),
        (replace("arrays/history.moved.npy", npy(np.ones((2, 2)))), r"moved is .* \(2, 2\) .*, not .* \(any,\)"),
        (replace("arrays/labels.npy", npy(np.zeros(60, np.int8))), "its labels is an array of int8"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(stored, path, change, message):
    rebuild(stored[0], path, change=change)
    with pytest.raises(ValueError, match=message) as caught:
        onmf.load(path)
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert "\n" not in str(caught.value)
