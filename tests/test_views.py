"""A consensus of views."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf
from onmf.backend import CpuBackend
from onmf.datasets import make_counts, open_shards, write_shards
from onmf.divergence import Cosine, KullbackLeibler
from onmf.fit.views import agree
from onmf.metrics import clustering_accuracy
from onmf.text import consensus_of_views
from onmf.text.consensus import independent_runs, log_tfidf


@pytest.fixture(scope="module")
def made():
    return make_counts(300, 60, 5, random_state=0)


@pytest.fixture(scope="module")
def model(made):
    return consensus_of_views(made.X, 5, n_runs=6, random_state=0, n_threads=1)


def test_clusters_are_found_and_the_runs_agree(made, model):
    assert clustering_accuracy(made.y, model.labels_) > 0.97
    assert 0.5 < model.agreement_.overall <= 1
    assert len(model.agreement_.rows) == 300


def test_the_model_is_one_of_counts(made, model, tmp_path):
    members = csr_array((np.ones(300), model.labels_, np.arange(301)), shape=(300, 5))
    sums = (members.T @ made.X).toarray()
    shares = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, sums / sums.sum(axis=1, keepdims=True))
    new = make_counts(50, 60, 5, random_state=0).X
    model.save(tmp_path / "model.onmf")
    loaded = onmf.load(tmp_path / "model.onmf")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    np.testing.assert_array_equal(loaded.labels_, model.labels_)


def test_threads_and_progress_change_nothing(made, model):
    shares = []
    again = consensus_of_views(made.X, 5, n_runs=6, random_state=0, n_threads=2, progress=shares.append)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert shares == pytest.approx([i / 6 for i in range(1, 7)])


@pytest.mark.parametrize("n_runs", [1, 4])
def test_any_number_of_runs(made, n_runs):
    assert len(consensus_of_views(made.X, 5, n_runs=n_runs, random_state=0).labels_) == 300


def test_one_cluster_and_as_many_as_rows():
    X = csr_array([[3, 0, 1], [0, 2, 1], [1, 1, 4]])
    assert consensus_of_views(X, 1, n_runs=3, random_state=0).labels_.tolist() == [0, 0, 0]
    assert sorted(consensus_of_views(X, 3, n_runs=3, random_state=0).labels_) == [0, 1, 2]


def test_what_it_cannot_do_is_refused(made, tmp_path):
    for name, value in {"beta_loss": "cosine", "init": "snpa", "refine": None, "n_consensus": 3, "n_init": 2}.items():
        with pytest.raises(ValueError, match=f"{name}=.* is not allowed: a consensus of views has its own"):
            consensus_of_views(made.X, 5, **{name: value})
    with pytest.raises(ValueError, match="n_consensus=0"):
        consensus_of_views(made.X, 5, n_runs=0)
    write_shards([made.X[:150], made.X[150:]], tmp_path / "shards")
    with pytest.raises(ValueError, match="comes in parts"):
        consensus_of_views(open_shards(tmp_path / "shards"), 5)


def test_log_tfidf_keeps_every_word_that_occurs():
    X = csr_array([[9.0, 0.01, 0], [4, 0, 1], [0, 1, 7]])
    X.data[2] = 0  # a zero that is stored
    logs = log_tfidf(X)
    np.testing.assert_array_equal(logs.toarray() > 0, X.toarray() > 0)
    rare, common = log_tfidf(csr_array([[1, 1], [0, 1], [0, 1]])).toarray()[0]
    assert rare > common


def test_all_views_take_part_and_no_cluster_is_emptied():
    """One view cannot tell the two halves apart, the other one can. Rows that are all alike stay where they are."""
    backend = CpuBackend(n_threads=1)
    blind = backend.hold(csr_array(np.ones((6, 2))), KullbackLeibler())
    seeing = backend.hold(csr_array([[5.0, 1], [6, 1], [7, 1], [1, 5], [1, 6], [1, 9]]), Cosine())
    start = np.array([0, 0, 1, 1, 1, 1], dtype=np.int32)
    labels, history = agree([blind, seeing], start, 2)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert history["moved"].tolist() == [1, 0]
    assert agree([blind], start, 2)[0].tolist() == start.tolist()


def test_independent_runs_see_every_view(made, model):
    labels = independent_runs(model, made.X)
    assert len(labels) == 9
    assert all(clustering_accuracy(made.y, each) > 0.6 for each in labels)
