"""The confidence of a label: a probability that holds in independent fits, for rows in memory and in parts."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf
import onmf.confidence
from onmf import ONMF
from onmf.confidence import (
    Calibration,
    calibrate,
    calibrate_model,
    calibration_of,
    confidence_of,
    evenly_spaced,
    every_run,
    log_chances,
    refit,
)
from onmf.datasets import make_counts, write_shards
from onmf.fit.restarts import agreement_of, votes_of
from onmf.text import cluster, predict

TEXTS = ["tea tea cup", "green tea", "milk cow", "milk of a cow", "black tea", "fresh milk", "tea with milk", "..."]


def blur(seed, n):
    """Rows of six clusters, of which two pairs are hard to tell apart: fits differ."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(60, 0.5), size=6)
    shares[1] = 0.75 * shares[0] + 0.25 * shares[1]
    shares[3] = 0.7 * shares[2] + 0.3 * shares[3]
    return csr_array(rng.poisson(40 * shares[rng.integers(6, size=n)]).astype(np.float64))


@pytest.fixture(scope="module")
def blurred():
    return blur(3, 1500)


def co_clustering(X, labels, k, seeds):
    """How often each row is with the rows of its cluster in fits from other seeds."""
    fits = [ONMF(k, init="random-partition", random_state=seed).fit(X).labels_ for seed in seeds]
    return agreement_of(votes_of(np.stack(fits, axis=1), k), labels, k).rows


def test_a_confidence_holds_in_independent_fits():
    """Over several sets: of one cluster alone, eight fits tell how stable it is to about ±0.17 only."""
    pairs = []
    for seed in range(8):
        X = blur(seed, 600)
        model = ONMF(6).fit(X)
        sure, _ = confidence_of(model, X, model.labels_, calibrate_model(model, X, model.labels_))
        pairs.append((sure, co_clustering(X, model.labels_, 6, range(1000, 1012))))
    sure, together = np.concatenate(pairs, axis=1)
    assert sure.mean() == pytest.approx(together.mean(), abs=0.05)
    bins = [(sure >= low) & (sure < low + 0.2) for low in (0.2, 0.4, 0.6, 0.8)]
    large = [inside for inside in bins if np.count_nonzero(inside) >= 500]
    assert len(large) >= 2
    for inside in large:
        assert sure[inside].mean() == pytest.approx(together[inside].mean(), abs=0.12)
    assert np.corrcoef(sure, together)[0, 1] > 0.5


def test_a_cluster_that_other_fits_do_not_find_is_never_sure():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 200)
    chances = np.where(labels[:, None] == [0, 1], 0.0, -50.0 - rng.random((400, 1)))
    voted = [np.where(labels == 0, 0, rng.integers(2, size=400)) for _ in range(4)]
    sure, following = calibrate(chances, labels, voted).apply(chances, labels)
    assert sure[:200].mean() > 0.75
    assert sure[200:].mean() < 0.65
    assert np.array_equal(following, 1 - labels)


def test_without_other_fits_the_usual_temperature():
    rng = np.random.default_rng(0)
    chances = -rng.exponential(10, size=(300, 3))
    labels = chances.argmax(axis=1)
    found = calibrate(chances, labels, [])
    ordered = np.sort(chances, axis=1)
    assert found.temperature == pytest.approx(
        np.median(ordered[:, 2] - ordered[:, 1]) / onmf.confidence.DEFAULT_GAP, rel=1e-3
    )
    assert found.low == pytest.approx(np.zeros(3), abs=1e-3)
    assert found.high == pytest.approx(np.ones(3), abs=1e-3)


@pytest.mark.parametrize("beta_loss", ["kullback-leibler", "frobenius", "cosine", 0.5, 1.5])
@pytest.mark.parametrize("smoothing", [1e-3, 0.0])
def test_every_divergence(blurred, beta_loss, smoothing):
    X = blurred[:300]
    model = ONMF(4, beta_loss=beta_loss, smoothing=smoothing).fit(X)
    found = calibrate_model(model, X, model.labels_)
    assert ((found.low >= 0) & (found.low <= found.high) & (found.high <= 1)).all(), "a bad fit is never surer"
    sure, following = confidence_of(model, X, model.labels_, found)
    assert ((sure >= 0) & (sure <= 1)).all()
    assert (following != model.labels_).all()
    assert ((following >= (-1 if smoothing == 0 else 0)) & (following < 4)).all()


def test_one_cluster_and_as_many_as_rows(blurred):
    for k, n in ((1, 20), (5, 5)):
        X = blurred[:n]
        model = ONMF(k).fit(X)
        sure, following = confidence_of(model, X, model.labels_, calibrate_model(model, X, model.labels_))
        assert ((sure > 0) & (sure <= 1)).all()
        assert (following == -1).all() == (k == 1)


def test_the_same_in_pieces_and_in_parts(blurred, tmp_path, monkeypatch):
    model = ONMF(5).fit(blurred)
    found = calibrate_model(model, blurred, model.labels_)
    shards = write_shards([blurred[:700], blurred[700:]], tmp_path / "shards")
    whole = confidence_of(model, blurred, model.labels_, found)
    in_parts = confidence_of(model, shards, model.labels_, found)
    monkeypatch.setattr(onmf.confidence, "ROWS_AT_A_TIME", 100)
    in_pieces = confidence_of(model, blurred, model.labels_, found)
    for other in (in_parts, in_pieces):
        assert all(np.array_equal(a, b) for a, b in zip(whole, other, strict=True))


def test_fits_again_leave_the_model_alone(blurred):
    model = ONMF(4, init="consensus", n_consensus=3, refine="local-search", random_state=0).fit(blurred[:200])
    before = model.get_params()
    first, second = (refit(model, blurred[:200]) for _ in range(2))
    assert model.get_params() == before
    assert len(first) == onmf.confidence.REFITS
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.labels, other.labels)
    assert min(run.objective for run in first) == pytest.approx(
        min(run.objective for run in every_run(model.set_params(init="random-partition", n_init=4), blurred[:200])),
        rel=0.1,
    )


def test_a_sample_is_enough(blurred, monkeypatch):
    monkeypatch.setattr(onmf.confidence, "CALIBRATION_ROWS", 700)
    assert len(evenly_spaced(1500, 700)) == 700
    assert evenly_spaced(3).tolist() == [0, 1, 2]
    model = ONMF(6).fit(blurred)
    sample = calibrate_model(model, blurred[::2], model.labels_[::2])
    sure, _ = confidence_of(model, blurred, model.labels_, sample)
    assert sure.mean() == pytest.approx(co_clustering(blurred, model.labels_, 6, range(8)).mean(), abs=0.12)


@pytest.fixture(scope="module")
def found():
    """The clusters of the texts."""
    return cluster(TEXTS, 2)


class TestDocuments:
    def test_in_the_result_and_for_new_documents(self, found, tmp_path):
        assert np.isnan(found.confidence[-1])
        assert found.runners_up[-1] == -1
        assert np.array_equal(found.runners_up[:-1], 1 - found.labels[:-1])
        assert found.confidence[6] == found.confidence[:-1].min()  # half tea, half milk
        found.model.save(tmp_path / "model.onmf")
        again = predict(onmf.load(tmp_path / "model.onmf"), TEXTS)
        assert again.confidence == pytest.approx(found.confidence, nan_ok=True)
        assert np.array_equal(again.runners_up, found.runners_up)

    def test_shards_give_the_same(self, tmp_path):
        whole, sharded = cluster(TEXTS, 2, quick=True), cluster(TEXTS, 2, shards=tmp_path / "shards")
        assert sharded.confidence == pytest.approx(whole.confidence, nan_ok=True)
        assert np.array_equal(sharded.runners_up, whole.runners_up)

    def test_a_model_of_an_earlier_version(self, found, tmp_path):
        entries = {"kind": "documents", "vocabulary": found.words.tolist(), "vectorizer": {}}
        found.model.save(tmp_path / "model.onmf", extra=entries)
        again = predict(onmf.load(tmp_path / "model.onmf"), TEXTS)
        assert np.isnan(again.confidence).all()
        assert (again.runners_up == -1).all()

    @pytest.mark.parametrize(
        ("name", "value"),
        [("temperature", 0.0), ("confidence_low", np.array([0.5, 2.0])), ("confidence_high", np.array([1.0]))],
    )
    def test_damaged_entries_are_refused(self, found, tmp_path, name, value):
        entries = {"kind": "documents", "vocabulary": found.words.tolist(), "vectorizer": {}}
        with pytest.raises(ValueError, match=name):
            found.model.save(tmp_path / "model.onmf", extra=entries | found.calibration.parts() | {name: value})


def test_entries_of_a_file_make_the_round():
    found = Calibration(3.0, np.array([0.1, 0.2]), np.array([0.8, 0.9]))
    again = calibration_of(found.parts(), 2)
    assert (again.temperature, again.low.tolist(), again.high.tolist()) == (3.0, [0.1, 0.2], [0.8, 0.9])
    assert calibration_of({}, 2) is None
    older = calibration_of({"temperature": 2.0}, 2)
    assert (older.low.tolist(), older.high.tolist()) == ([0, 0], [1, 1])


def test_chances_are_those_of_predict_proba():
    X = make_counts(200, 30, 3, random_state=0).X
    model = ONMF(3).fit(X)
    chances = np.exp(log_chances(model, X) / 20)
    assert chances / chances.sum(axis=1, keepdims=True) == pytest.approx(model.predict_proba(X, temperature=20))


@pytest.mark.parametrize("unit", [1e-20, 1e60])
def test_a_model_is_saved_whatever_the_unit_of_its_losses(unit, tmp_path):
    X = np.random.default_rng(0).gamma(1.0, size=(40, 5)) * unit
    model = ONMF(2, random_state=0).fit(X)
    calibration = calibrate_model(model, X, model.labels_)
    extra = {"kind": "cells", "genes": list("abcde"), "names": ["one", "two"], "view": "counts"}
    model.save(tmp_path / "model.onmf", extra=extra | calibration.parts())
    read = calibration_of(onmf.load(tmp_path / "model.onmf").extra_, 2)
    sure, _ = confidence_of(model, X, model.labels_, read)
    assert sure.min() > 0
    assert np.isfinite(confidence_of(model, X, model.labels_, Calibration(1e-300, read.low, read.high))[0]).all()
