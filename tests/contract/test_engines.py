"""Every backend against the reference backend, for all containers, number types and index widths."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from conftest import needs_gpu
from onmf import ONMF
from onmf.divergence import get_divergence
from onmf.engine import get_engine, to_host
from onmf.validate import as_rows

ENGINES = ("cpu", pytest.param("gpu", marks=needs_gpu))
LOSSES = ("kullback-leibler", "frobenius", "cosine", 1.5, 0.5, 3)


def container(kind, X, dtype, index):
    X = X.astype(dtype)
    if kind is np.ndarray:
        return X
    X = kind(X)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", [csr_array, csr_matrix, np.ndarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("loss", LOSSES)
def test_step_agrees_with_the_reference(counts, name, kind, dtype, index, loss):
    X, _ = counts
    rows = as_rows(container(kind, X, dtype, index))
    divergence = get_divergence(loss)
    templates = divergence.templates(X[[0, 5, 9, 20]] + 0.5)
    again = divergence.templates(X[[1, 5, 9, 20]] + 0.5)
    weights = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    results = []
    for engine in (get_engine("reference", rows), get_engine(name, rows)):
        held = engine.hold(rows, divergence, weights)
        first = engine.step(held, templates)
        first = replace(first, sums=first.sums.copy())  # the next step overwrites the engine's array
        second = engine.step(held, again)
        results.append((first, second, *map(to_host, engine.collect(held)), held.constant))
    for step, reference in zip(results[1][:2], results[0][:2], strict=True):
        for field in ("sums", "mass", "counts", "scale_squares", "overlap", "loss", "moved"):
            assert to_host(getattr(step, field)) == pytest.approx(getattr(reference, field), rel=1e-12), field
    assert np.array_equal(results[0][2], results[1][2])
    assert results[1][3] == pytest.approx(results[0][3], rel=1e-13)
    assert results[1][4] == pytest.approx(results[0][4], rel=1e-13)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", [csr_array, np.ndarray])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("smoothing", [0, 1e-3])
def test_own_and_next_agree_with_the_reference(counts, name, kind, k, smoothing):
    X, _ = counts
    rows = as_rows(container(kind, X, np.float64, np.int32))
    templates = get_divergence(1, smoothing).templates(X[np.arange(k) * 5] + 0.0)  # zeros: −∞ without smoothing
    labels = (np.arange(len(X)) % k).astype(np.int32)
    engine = get_engine(name, rows, 2)
    own, following = engine.own_and_next(engine.place(rows), templates, labels)
    reference = get_engine("reference", rows)
    for found, expected in zip((own, following), reference.own_and_next(rows, templates, labels), strict=True):
        assert np.array_equal(np.isinf(found), np.isinf(expected))
        assert found[np.isfinite(found)] == pytest.approx(expected[np.isfinite(expected)], rel=1e-12)
    scores = engine.scores(engine.place(rows), templates)
    assert np.array_equal(scores[np.arange(len(X)), labels] == -np.inf, own == -np.inf)


@pytest.mark.parametrize("name", [*ENGINES, "reference"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sums_of_two_halves_are_the_whole(counts, name, loss):
    X, _ = counts
    divergence = get_divergence(loss)
    engine = get_engine(name, X)
    centroids = [X[[0, 5, 9]] + 0.5, X[[1, 5, 9]] + 0.5]

    def two_steps(part):
        held = engine.hold(part, divergence)
        engine.step(held, divergence.templates(centroids[0]))
        return engine.step(held, divergence.templates(centroids[1]))

    whole, halves = two_steps(X), two_steps(X[:25]) + two_steps(X[25:])
    for field in ("sums", "mass", "counts", "scale_squares", "overlap", "loss", "moved"):
        assert to_host(getattr(halves, field)) == pytest.approx(to_host(getattr(whole, field)), rel=1e-12), field
    assert halves.change_from(halves) == pytest.approx(whole.change_from(whole), abs=1e-7)
    if loss == "kullback-leibler":
        assert np.array_equal(to_host(halves.sums), to_host(whole.sums)), "counts add exactly"


@pytest.mark.parametrize("name", [*ENGINES, "reference"])
def test_ties_go_to_the_lowest_cluster(name):
    X = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    engine = get_engine(name, X)
    held = engine.hold(X, get_divergence("frobenius"))
    labels, _, _ = engine.assign(held, np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    assert labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
@pytest.mark.parametrize("loss", LOSSES)
def test_blocks_and_threads_change_no_bit(kind, loss, monkeypatch):
    """Tiny blocks give every thread several of them."""
    monkeypatch.setattr("onmf.engine.cpu.WORTH_A_THREAD", 256)
    rng = np.random.default_rng(3)
    X = kind(rng.gamma(0.3, size=(500, 30)) * (rng.random((500, 30)) < 0.4))
    models = [ONMF(7, beta_loss=loss, n_threads=n, max_iter=300).fit(X) for n in (1, 2, 5)]
    for other in models[1:]:
        assert np.array_equal(models[0].labels_, other.labels_)
        assert np.array_equal(models[0].cluster_centers_, other.cluster_centers_)
        assert np.array_equal(models[0].scales_, other.scales_)
        assert np.array_equal(models[0].init_rows_, other.init_rows_)
        assert models[0].reconstruction_err_ == other.reconstruction_err_


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_repeated_rows(counts, loss):
    X, _ = counts
    w = np.random.default_rng(4).integers(0, 4, len(X))
    weighted = ONMF(3, beta_loss=loss).fit(X, sample_weight=w)
    repeated = ONMF(3, beta_loss=loss).fit(np.repeat(X, w, axis=0))
    assert np.array_equal(np.repeat(weighted.labels_, w), repeated.labels_)
    assert np.repeat(weighted.scales_, w) == pytest.approx(repeated.scales_, rel=1e-9)
    assert weighted.cluster_centers_ == pytest.approx(repeated.cluster_centers_, rel=1e-9)
    assert weighted.reconstruction_err_ == pytest.approx(repeated.reconstruction_err_, rel=1e-12)
    assert weighted.n_iter_ == repeated.n_iter_
    H = weighted.fit_transform(X, sample_weight=w).toarray()
    assert pytest.approx(np.eye(3), abs=1e-12) == (w[:, None] * H).T @ H


@pytest.mark.parametrize("init", ["++", "random"])
def test_weights_are_repeated_rows_for_random_starts_too(counts, init):
    X, _ = counts
    w = np.random.default_rng(5).integers(0, 4, len(X))
    options = {"init": init, "random_state": 0}
    weighted = ONMF(3, **options).fit(X, sample_weight=w)
    repeated = ONMF(3, **options).fit(np.repeat(X, w, axis=0))
    assert np.array_equal(np.repeat(np.arange(len(X)), w)[repeated.init_rows_], weighted.init_rows_)
    assert np.array_equal(np.repeat(weighted.labels_, w), repeated.labels_)


@pytest.mark.parametrize("loss", LOSSES)
def test_order_of_rows_does_not_matter(counts, loss):
    X, _ = counts
    order = np.random.default_rng(6).permutation(len(X))
    one, other = ONMF(3, beta_loss=loss).fit(X), ONMF(3, beta_loss=loss).fit(X[order])
    assert np.array_equal(one.labels_[order], other.labels_)
    assert np.array_equal(one.init_rows_, order[other.init_rows_])
    assert one.reconstruction_err_ == pytest.approx(other.reconstruction_err_, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_dense_and_sparse_agree(counts, loss):
    X, _ = counts
    dense, sparse = ONMF(3, beta_loss=loss).fit(X), ONMF(3, beta_loss=loss).fit(csr_array(X))
    assert np.array_equal(dense.labels_, sparse.labels_)
    assert dense.cluster_centers_ == pytest.approx(sparse.cluster_centers_, rel=1e-12)
    assert dense.n_iter_ == sparse.n_iter_


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_that_follow_moved_rows_are_the_sums(counts, kind, weighted):
    """Compare the sums of every step of a fit with full sums."""
    X = as_rows(kind(counts[0]))
    w = np.arange(len(counts[0])) % 3 * 1.0 if weighted else None
    divergence, engine = get_divergence("kullback-leibler"), get_engine("cpu", X, 2)
    held = engine.hold(X, divergence, w)
    C = counts[0][[0, 5, 9]] + 0.5
    followed = 0
    for _ in range(8):
        last = held.memory.get("sums")
        step = engine.step(held, divergence.templates(C))
        followed += last is not None and last.sums is step.sums
        labels, _ = engine.collect(held)
        anew = engine.sum_by_label(X, labels, np.ones(len(labels)) if w is None else w, 3)
        assert np.array_equal(step.sums, anew)
        C = step.sums.copy() + 0.01
    assert followed >= 3


def test_sums_of_what_is_not_whole_are_always_made_anew(counts):
    engine, ones = get_engine("cpu", counts[0]), np.ones(len(counts[0]))

    def exact(X, weights=ones):
        return engine.exact(engine.hold(X, get_divergence(1)), weights)

    assert exact(counts[0].astype(np.float32))
    assert exact(counts[0], 3 * ones)
    assert not exact(counts[0] / 3)
    assert not exact(counts[0] * 2.0**50)
    assert not exact(counts[0], ones / 3)
