"""Learning from batches: exact if possible, close to ``fit`` on real data, and clear errors otherwise."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import xlogy
from sklearn.base import clone

from onmf import ONMF, load
from onmf.datasets import make_counts


@pytest.fixture
def made():
    return make_counts(400, 60, 4, overlap=0.3, random_state=0).X


def test_one_batch_of_everything_is_one_iteration(made):
    start = made[:4].toarray()
    for loss in ("kullback-leibler", "frobenius", "cosine", 1.5):
        with pytest.warns(UserWarning, match="Not converged"):
            whole = ONMF(4, init=start, beta_loss=loss, max_iter=1).fit(made)
        batch = ONMF(4, init=start, beta_loss=loss).partial_fit(made)
        assert np.array_equal(batch.labels_, whole.labels_)
        assert batch.cluster_centers_ == pytest.approx(whole.cluster_centers_, rel=1e-12)
        assert batch.scales_ == pytest.approx(whole.scales_, rel=1e-12)


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine", 1.5, 0.5])
def test_passes_with_names_and_nothing_forgotten_end_where_fit_stays(made, loss):
    """When no row moves any more, the sums are those of all rows with their last labels: a fixed point of fit."""
    model = ONMF(4, init=made[:4].toarray(), beta_loss=loss, forgetting=1.0)
    for _ in range(40):
        for i in range(0, 400, 100):
            model.partial_fit(made[i : i + 100], batch=i)
    again = ONMF(4, init=model.cluster_centers_, beta_loss=loss).fit(made)
    assert np.array_equal(again.labels_, model.predict(made))
    assert again.cluster_centers_ == pytest.approx(model.cluster_centers_, rel=1e-5, abs=1e-8)


def test_forgetting_and_replacing_by_hand():
    """Three batches, of which the first comes twice: sums decay by γ, and its old contribution is removed."""
    a, b = np.array([[4.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 1.0], [0.0, 3.0]])
    model = ONMF(2, init=np.array([[3.0, 1.0], [1.0, 3.0]]), forgetting=0.5)
    model.partial_fit(a, batch="a").partial_fit(b, batch="b").partial_fit(a * 1, batch="a")
    sums = model._stream.whole.sums
    labels_b = ONMF(2, init=a).fit(b).labels_
    expected = np.zeros((2, 2))
    np.add.at(expected, labels_b, 0.5 * b)
    np.add.at(expected, [0, 1], a)
    assert sums == pytest.approx(expected)


def test_on_real_text_three_passes_come_near_fit(paper_set):
    X, _ = paper_set("NG20")
    X = csr_array(X)[np.random.default_rng(0).permutation(X.shape[0])]
    start = X[ONMF(20, max_iter=100).fit(X[:1000]).init_rows_].toarray()
    whole = ONMF(20, init=start).fit(X)
    model = ONMF(20, init=start)
    for _ in range(3):
        for i in range(0, X.shape[0], 1000):
            model.partial_fit(X[i : i + 1000], batch=i)
    assert objective(X, model.predict(X), 20) < 1.02 * whole.reconstruction_err_


def objective(X, labels, k):
    n = X.shape[0]
    S = (csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k)).T @ X).toarray()
    T, s, x = S.sum(axis=1), np.asarray(X.sum(axis=1)).ravel(), X.data.astype(float)
    return xlogy(x, x).sum() - xlogy(s, s).sum() - xlogy(S, S).sum() + xlogy(T, T).sum()


def test_a_model_from_batches_is_a_model(made, tmp_path):
    model = ONMF(4).partial_fit(made[:200]).partial_fit(made[200:])
    assert model.n_iter_ == 2
    assert model.labels_.shape == model.scales_.shape == model.margins_.shape == (200,)
    model.save(tmp_path / "stream.onmf")
    again = load(tmp_path / "stream.onmf")
    assert np.array_equal(again.predict(made), model.predict(made))
    for one in (model, again):
        assert not hasattr(one, "reconstruction_err_")
    assert model.score(made) > ONMF(4).partial_fit(made[:5]).score(made)
    assert len(model.top_features(3)) == 4
    assert model.transform(made).shape == (400, 4)
    assert not hasattr(model.fit(made), "_stream"), "fit starts anew"
    assert not hasattr(clone(model), "cluster_centers_")


def test_after_fit_the_stream_starts_from_its_centroids(made, tmp_path):
    model = ONMF(4).fit(made)
    model.save(tmp_path / "model.onmf")
    expected = ONMF(4, init=model.cluster_centers_).partial_fit(made[:100])
    for start in (model, load(tmp_path / "model.onmf")):
        assert np.array_equal(start.partial_fit(made[:100]).cluster_centers_, expected.cluster_centers_)
        assert start.n_iter_ == 1
    with pytest.raises(ValueError, match="has changed"):
        ONMF(4).fit(made).set_params(n_clusters=3).partial_fit(made)


def test_what_is_wrong_with_a_batch_is_said(made):
    rows = made[:20].toarray()
    rows[3] = 0.0
    with pytest.warns(UserWarning, match="1 of 20 rows of X are zero everywhere"):
        ONMF(4).partial_fit(rows)
    start = np.vstack([made[:3].toarray(), np.eye(60)[:1]])
    with pytest.warns(UserWarning, match="Only 3 of 4 clusters hold rows: the batches so far have no rows"):
        ONMF(4, init=start).partial_fit(np.repeat(made[:3].toarray(), 2, axis=0))


class TestRefusals:
    def test_what_a_batch_cannot_be(self, made):
        model = ONMF(4).partial_fit(made)
        with pytest.raises(ValueError, match="X has 50 features, but ONMF is expecting 60"):
            model.partial_fit(made[:, :50])
        with pytest.raises(ValueError, match="partial_fit takes one batch, in memory"):
            model.partial_fit(lambda: iter([made]))
        model.partial_fit(made[:100], batch="x")
        with pytest.raises(ValueError, match="batch 'x' has 90 rows, but had 100 before"):
            model.partial_fit(made[:90], batch="x")
        model.partial_fit(made[:50], sample_weight=np.arange(50.0), batch="w").partial_fit(made[:50], batch="plain")
        model.partial_fit(made[:50], sample_weight=np.arange(50.0), batch="w")
        for weights, name in ((np.ones(50), "w"), (None, "w"), (np.ones(50), "plain")):
            with pytest.raises(ValueError, match=f"batch '{name}' had another sample_weight before"):
                model.partial_fit(made[:50], sample_weight=weights, batch=name)
        with pytest.raises(ValueError, match="n_samples=3 should be >= n_clusters=4"):
            ONMF(4).partial_fit(made[:3])

    def test_parameters(self, made):
        with pytest.raises(ValueError, match="forgetting=0 is not allowed"):
            ONMF(4, forgetting=0).partial_fit(made)
        assert hasattr(ONMF(4), "partial_fit")
        for options in ({"refine": "local-search"}, {"init": "bisection"}, {"init": "consensus"}):
            with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as error:
                ONMF(4, **options).partial_fit(made)
            assert "partial_fit sees a batch at a time" in str(error.value.__cause__)
        with pytest.raises(ValueError, match="has changed since the first batch"):
            ONMF(4).partial_fit(made).set_params(n_clusters=3).partial_fit(made)
