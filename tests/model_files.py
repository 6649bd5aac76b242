"""Helpers for tests of model files: a model to save, and changes of its file."""

import hashlib
import io
import json
import zipfile

import numpy as np
from scipy.sparse import csr_array

import onmf
from conftest import make_counts
from onmf import ONMF

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


def write_documents_model(path):
    """Write a model of documents. → its bytes, and the model"""
    model = ONMF(3, init="random-partition", n_init=2, random_state=0).fit(csr_array(X))
    model.save(path, extra={"kind": "documents", **DOCUMENTS, "bands": np.arange(4.0)})
    return path.read_bytes(), model


def assert_same(a, b):
    """Two fitted models are the same to the last bit."""
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
    assert a.divergence_ == b.divergence_
    assert a.predict(X).tolist() == b.predict(X).tolist()
    assert a.top_features(3) == b.top_features(3)


def loads_unchanged(path, model):
    """Load a damaged file: True for the same model, False for an error with a one-line message."""
    message = None
    try:
        loaded = onmf.load(path)
    except ValueError as error:
        message = str(error)
    if message is not None:
        assert str(path) in message
        assert "\n" not in message
        return False
    assert_same(model, loaded)
    assert loaded.extra_["vocabulary"] == VOCABULARY
    return True


def rebuild(data, path, *, change=lambda members: None, compression=zipfile.ZIP_STORED, update_list=True):
    """Write the file with changed members and, as an attacker would, with correct checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    if update_list:
        metadata = json.loads(members["metadata.json"])
        metadata["members"] = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in members.items()
            if name != "metadata.json"
        }
        members["metadata.json"] = json.dumps(metadata).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def edit(**changes):
    """A change of the metadata: other values, or ... to delete one."""

    def change(members):
        metadata = json.loads(members["metadata.json"])
        for name, value in changes.items():
            if value is ...:
                del metadata[name]
            elif isinstance(value, dict):
                metadata[name] |= value
            else:
                metadata[name] = value
        members["metadata.json"] = json.dumps(metadata).encode()

    return change


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def replace(name, content):
    """A change of one member."""
    return lambda members: members.__setitem__(name, content)
