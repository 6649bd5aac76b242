"""A consensus of views."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import gammaln

import onmf
from onmf.backend import CpuBackend
from onmf.datasets import make_counts, open_shards, write_shards
from onmf.divergence import KullbackLeibler
from onmf.door.votes import Views, fit_by_vote
from onmf.metrics import clustering_accuracy
from onmf.text import cluster, consensus_of_views
from onmf.text.consensus import (
    MOST_REPEATS,
    Bursts,
    estimate,
    independent_runs,
    log_likelihoods,
    log_tfidf,
    reassign,
)


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


class TestBursts:
    """Rows settle in the clusters in which their counts are most likely."""

    def test_the_likelihood_is_that_of_a_dirichlet_compound_multinomial(self):
        rng = np.random.default_rng(0)
        X, sums = rng.poisson(1.5, (5, 4)), rng.integers(1, 9, (3, 4)).astype(float)
        profiles = sums / sums.sum(axis=1, keepdims=True) + 0.5 * sums.sum(axis=0) / sums.sum()
        alpha = 20.0 / 1.5 * profiles
        expected = (gammaln(X[:, None] + alpha) - gammaln(alpha)).sum(axis=2)
        np.testing.assert_allclose(log_likelihoods(csr_array(X), sums, Bursts(0.5, 20.0)), expected)

    def test_the_strength_of_bursts_is_estimated(self):
        rng = np.random.default_rng(0)
        profiles = rng.dirichlet(np.full(200, 0.5), size=3)
        y = np.arange(600) % 3
        for strength in (20.0, 200.0):
            shares = rng.gamma(strength * profiles[y]) + 1e-300
            X = csr_array(rng.multinomial(80, shares / shares.sum(axis=1, keepdims=True)))
            found = estimate(X, np.ones(600), y, 3)
            assert found.strength == pytest.approx(strength, rel=0.15)
            assert found.whole < 0.2, "the clusters have many words of their own"

    def test_a_burst_does_not_decide(self):
        """By the multinomial, thirty times the same word outweigh five other words. By bursts they do not."""
        sums = np.kron(np.eye(2), np.full(5, 40.0))
        row = csr_array([[1, 1, 1, 1, 1, 0, 0, 0, 0, 30]])
        assert log_likelihoods(row, sums, Bursts(0.1, 10.0)).argmax() == 0
        assert log_likelihoods(row, sums, Bursts(0.1, 1e6)).argmax() == 1

    def test_rows_settle(self):
        X = csr_array(np.kron(np.eye(2), np.full((20, 5), 2.0)))
        block = CpuBackend(n_threads=1).make_block(X, KullbackLeibler())
        labels = np.repeat([0, 1, 1], [17, 3, 20]).astype(np.int32)
        found, history, _ = reassign(block, labels, 2)
        assert found.tolist() == [0] * 20 + [1] * 20
        assert history["moved"].tolist() == [3, 0]

    def test_counts_beyond_the_limit_and_broken_ones(self):
        X = csr_array([[0.5, 1e9, 0], [1, MOST_REPEATS, 0], [0, 0, 3.2]])
        sums, bursts = np.array([[1.5, 1e9, 0], [0, 0, 3.2]]), Bursts(1.0, 50.0)
        found = log_likelihoods(X, sums, bursts)
        np.testing.assert_array_equal(found[0], found[1])
        assert np.isfinite(found).all()
        assert found.argmax(axis=1).tolist() == [0, 0, 1]

    def test_no_cluster_is_emptied_and_rows_without_weight_count_for_nothing(self):
        alike = CpuBackend(n_threads=1).make_block(csr_array(np.ones((6, 2))), KullbackLeibler())
        start = np.array([0, 0, 1, 1, 1, 1], dtype=np.int32)
        assert reassign(alike, start, 2)[0].tolist() == start.tolist()
        X = csr_array([[4.0, 1, 0], [4, 1, 0], [1, 4, 0], [1, 4, 0], [0, 3, 5]])
        weighed = CpuBackend(n_threads=1).make_block(X, KullbackLeibler(), np.array([1.0, 1, 1, 1, 0]))
        labels, *_ = reassign(weighed, np.array([0, 0, 1, 1, 0], dtype=np.int32), 2)
        assert labels.tolist() == [0, 0, 1, 1, 1]


def test_independent_runs_see_every_view(made, model):
    labels = independent_runs(model, made.X)
    assert len(labels) == 9
    assert all(clustering_accuracy(made.y, each) > 0.6 for each in labels)


class Recorder:
    """Stands for a model: it knows with which parameters it would be fitted."""

    def __init__(self, n_clusters, **parameters):
        self.parameters, self.init = parameters, None

    def fit(self, X, groups=None):
        return self


class TestEffort:
    """How much work a corpus gets."""

    X = csr_array(np.ones((40, 30)))

    @pytest.fixture
    def fit(self, monkeypatch):
        """What is done for a corpus, and what is said before: the fit itself takes no time."""
        monkeypatch.setattr("onmf.door.votes.ONMF", Recorder)
        views = Views(3, "words", lambda X, n_clusters, progress, **options: Recorder(n_clusters, **options), "runs")

        def run(X, n_clusters, parameters):
            said = []
            found = fit_by_vote(X, n_clusters, parameters, lambda share: None, said.append, views)
            return SimpleNamespace(**vars(found) | {"parameters": found.model.parameters}, said=said)

        return run

    def large(self, nnz):
        """An array that is large only by its number of counts."""
        X = csr_array(np.ones((4, 3)))
        X.indptr = np.array([0, 0, 0, 0, nnz])
        return X

    def test_small_corpora_get_a_vote_of_views(self, fit):
        found = fit(self.X, 5, {"n_threads": 1})
        assert found.parameters == {"n_threads": 1, "n_runs": 24}
        assert (found.voted, found.refit) == (True, "runs")
        assert found.how == "a vote of 24 runs in 3 views of the words"
        assert found.said == ["The clusters are a vote of 24 runs in 3 views of the words."]
        assert fit(self.X, 5, {"n_consensus": 40, "random_state": 7}).parameters == {"n_runs": 40, "random_state": 7}

    def test_what_is_given_wins(self, fit):
        for given in ({"init": "snpa"}, {"n_init": 3}, {"refine": "local-search"}):
            found = fit(self.X, 5, given)
            assert (found.parameters, found.how, found.voted, found.said) == (given, "", False, [])
        assert fit(self.X, 5, {"tol": 0.1, "quick": True}).parameters == {"tol": 0.1}

    def test_large_corpora_get_fewer_runs(self, fit):
        runs = [fit(self.large(n), 20, {}).parameters["n_runs"] for n in (6_000_000, 10_000_000, 19_000_000)]
        assert runs[0] == 24
        assert 24 > runs[1] > runs[2] >= 9
        single = fit(self.large(30_000_000), 20, {})
        assert single.parameters == {"init": "bisection", "refine": "local-search"}
        assert single.how == "a single run with a local search"
        assert single.said == ["This is a single run with a local search, since the data are large."]
        assert not single.voted

    def test_other_divergences(self, fit):
        cosine = fit(self.X, 5, {"beta_loss": "cosine"})
        assert (cosine.parameters["init"], cosine.parameters["n_consensus"]) == ("consensus", 24)
        for name in ("frobenius", "negative-binomial"):
            found = fit(self.X, 5, {"beta_loss": name})
            assert found.parameters == {"beta_loss": name, "init": "consensus", "n_consensus": 24}
            assert found.said == ["The clusters are a vote of 24 runs."]
            assert (found.voted, found.refit) == (True, None)
        large = fit(self.large(10_000_000), 20, {"beta_loss": "negative-binomial"})
        assert "init" not in large.parameters
        assert large.said == ["This is a single run from the paper's start, since the data are large."]
        assert fit(self.X, 5, {"beta_loss": 1.0}).parameters["n_runs"] == 24

    def test_documents_are_clustered_by_it(self):
        texts = ["red tea", "green tea", "black tea cup", "cow milk", "goat milk", "fresh milk cow"]
        said, shares = [], []
        found = cluster(
            texts,
            2,
            announce=said.append,
            progress=lambda name, share: shares.append(share) if name == "Clustering" else None,
        )
        assert found.labels.tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
        assert said == ["The clusters are a vote of 24 runs in 3 views of the words."]
        assert said[0] == f"The clusters are {found.fitted}."
        assert shares.count(1.0) == 1
        assert found.model.agreement_ is not None
        quick = cluster(texts, 2, quick=True, announce=said.append)
        assert len(said) == 1
        assert quick.model.init == "auto"
        assert quick.fitted == "2 iterations, converged"
        assert np.isfinite(quick.confidence).all()
        assert cluster(texts, 2, init="consensus", n_consensus=5).fitted == "a vote of 5 runs"


def test_tr45(paper_set):
    X, y = paper_set("tr45")
    labels = consensus_of_views(X.astype(np.float64), len(np.unique(y)), random_state=0).labels_
    assert clustering_accuracy(y, labels) > 0.65  # the paper's start: 0.60
