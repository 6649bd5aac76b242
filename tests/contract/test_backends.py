"""Every backend against the reference backend, for all containers, number types and index widths."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from examples.scipy_backend import SciPyBackend
from fuzz.divergences import SquaredDistance
from scipy.sparse import csr_array, csr_matrix

from conftest import assert_same_bits, make_block, needs_gpu, prepare
from onmf import ONMF
from onmf.backend import CpuBackend, ReferenceBackend, to_host
from onmf.backend.cpu import CpuRun
from onmf.data import Blocks, get_engine
from onmf.data.validate import as_rows
from onmf.divergence import NegativeBinomial, get_divergence
from onmf.metrics import clustering_accuracy

GPU = pytest.param("gpu", marks=needs_gpu)
OTHERS = ("cpu", "scipy", GPU)
BACKENDS = ("reference", *OTHERS)
MADE = {
    "reference": ReferenceBackend,
    "cpu": lambda: CpuBackend(2),
    "scipy": SciPyBackend,
    "gpu": lambda: get_engine("gpu").backend,
}
LOSSES = ("kullback-leibler", "frobenius", "cosine", 1.5, 0.5, 3)
CURVED = (NegativeBinomial(1.5), NegativeBinomial(1.5, smoothing=0.0), NegativeBinomial(1.5, "fit"))
RANDOM = ("++", "random", "random-partition")


def container(kind, X, dtype, index):
    X = X.astype(dtype)
    if kind is np.ndarray:
        return X
    X = kind(X)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


@pytest.mark.parametrize("name", OTHERS)
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
    for backend in ("reference", name):
        block = MADE[backend]().make_block(rows, divergence, weights)
        run = block.backend.start_run(block)
        first = run.step(prepare(block, templates))
        first = replace(first, sums=first.sums.copy())  # the next step of the run overwrites them
        second = run.step(prepare(block, again))
        results.append((first, second, *map(to_host, run.collect()), block.constant))
    for step, reference in zip(results[1][:2], results[0][:2], strict=True):
        for field in ("sums", "mass", "counts", "scale_squares", "overlap", "loss", "moved"):
            assert to_host(getattr(step, field)) == pytest.approx(getattr(reference, field), rel=1e-12), field
    assert np.array_equal(results[0][2], results[1][2])
    assert results[1][3] == pytest.approx(results[0][3], rel=1e-13)
    assert results[1][4] == pytest.approx(results[0][4], rel=1e-13)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", [csr_array, np.ndarray])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("smoothing", [0, 1e-3])
def test_own_and_next_agree_with_the_reference(counts, name, kind, k, smoothing):
    X, _ = counts
    rows = as_rows(container(kind, X, np.float64, np.int32))
    templates = get_divergence(1, smoothing).templates(X[np.arange(k) * 5] + 0.0)  # zeros: −∞ without smoothing
    labels = (np.arange(len(X)) % k).astype(np.int32)
    kl = get_divergence(1)
    block, oracle = MADE[name]().make_block(rows, kl), make_block("reference", rows, kl)
    own, following = map(to_host, block.backend.own_and_next(block.rows, prepare(block, templates), labels))
    theirs = oracle.backend.own_and_next(oracle.rows, prepare(oracle, templates), labels)
    for found, expected in zip((own, following), theirs, strict=True):
        assert np.array_equal(np.isinf(found), np.isinf(expected))
        assert found[np.isfinite(found)] == pytest.approx(expected[np.isfinite(expected)], rel=1e-12)
    scores = to_host(block.backend.scores(block.rows, prepare(block, templates)))
    assert np.array_equal(scores[np.arange(len(X)), labels] == -np.inf, own == -np.inf)


@pytest.mark.parametrize("name", BACKENDS)
def test_ties_go_to_the_lowest_cluster(name):
    X = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    block = MADE[name]().make_block(X, get_divergence("frobenius"))
    labels, _, _ = block.assign(prepare(block, np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])))
    assert labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
@pytest.mark.parametrize("loss", [*LOSSES, *CURVED])
def test_blocks_and_threads_change_no_bit(kind, loss, monkeypatch):
    """Tiny blocks give every thread several of them."""
    monkeypatch.setattr("onmf.backend.threads.WORTH_A_THREAD", 256)
    monkeypatch.setattr("onmf.backend.cpu.FEW_PRODUCTS", 0)
    rng = np.random.default_rng(3)
    X = kind(rng.gamma(0.3, size=(500, 30)) * (rng.random((500, 30)) < 0.4))
    assert_same_bits(*(ONMF(7, beta_loss=loss, n_threads=n, max_iter=300).fit(X) for n in (1, 2, 5)))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("loss", "init"), [*((loss, "snpa") for loss in LOSSES), (1, "++"), (1, "random")])
def test_weights_are_repeated_rows(counts, name, loss, init):
    X, _ = counts
    w = np.random.default_rng(4).integers(0, 4, len(X))
    model = partial(ONMF, 3, beta_loss=loss, init=init, random_state=0)
    weighted = model(engine=MADE[name]()).fit(X, sample_weight=w)
    repeated = model(engine=MADE[name]()).fit(np.repeat(X, w, axis=0))
    assert np.array_equal(np.repeat(np.arange(len(X)), w)[repeated.init_rows_], weighted.init_rows_)
    assert np.array_equal(np.repeat(weighted.labels_, w), repeated.labels_)
    assert np.repeat(weighted.scales_, w) == pytest.approx(repeated.scales_, rel=1e-9)
    assert weighted.cluster_centers_ == pytest.approx(repeated.cluster_centers_, rel=1e-9)
    assert weighted.reconstruction_err_ == pytest.approx(repeated.reconstruction_err_, rel=1e-12)
    assert weighted.n_iter_ == repeated.n_iter_
    H = weighted.clustering_.H.toarray()
    assert (w * H) @ H.T == pytest.approx(np.eye(3), abs=1e-12)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_order_of_rows_and_their_form_do_not_matter(counts, name, loss):
    X, _ = counts
    order = np.random.default_rng(6).permutation(len(X))
    one, other, sparse = (
        ONMF(3, beta_loss=loss, engine=MADE[name]()).fit(rows) for rows in (X, X[order], csr_array(X))
    )
    assert np.array_equal(one.labels_[order], other.labels_)
    assert np.array_equal(one.init_rows_, order[other.init_rows_])
    assert one.reconstruction_err_ == pytest.approx(other.reconstruction_err_, rel=1e-12)
    assert np.array_equal(one.labels_, sparse.labels_)
    assert one.cluster_centers_ == pytest.approx(sparse.cluster_centers_, rel=1e-12)
    assert one.n_iter_ == sparse.n_iter_


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_that_follow_moved_rows_are_the_sums(counts, kind, weighted):
    """Compare the sums of every step of a fit with full sums."""
    X = as_rows(kind(counts[0]))
    w = np.arange(len(counts[0])) % 3 * 1.0 if weighted else None
    block = make_block("cpu", X, get_divergence("kullback-leibler"), w, n_threads=2)
    run = block.backend.start_run(block)
    C = counts[0][[0, 5, 9]] + 0.5
    followed, last = 0, None
    for _ in range(8):
        step = run.step_from(C)
        followed += last is step.sums and run.exact
        last = step.sums
        labels, _ = run.collect()
        expected = block.backend.sum_by_label(block.rows, labels, block.host_weights, 3)
        assert np.array_equal(step.sums, expected)
        C = step.sums.copy() + 0.01
    assert followed >= 3


def test_centroids_that_are_computed_in_groups_are_those_of_the_sums():
    X = np.random.default_rng(0).poisson(1.0, (60, 3000)).astype(float)
    block = make_block("cpu", X, get_divergence("kullback-leibler"), n_threads=2)
    run, W = block.backend.start_run(block), X[:11] + 0.5
    step = run.step_from(W)
    run.update(step, W)
    expected = block.divergence.centers(step.sums, step.mass) * block.divergence.unit(step.norms)[:, None]
    assert np.array_equal(W[~step.empty], expected[~step.empty])
    assert np.count_nonzero(~step.empty) > 8


def test_row_terms_that_are_computed_in_parts_are_those_of_the_rows(counts, monkeypatch):
    monkeypatch.setattr("onmf.backend.cpu.ENTRIES_AT_A_TIME", 100)
    X = counts[0] * (np.arange(len(counts[0])) % 7 > 0)[:, None]  # some rows are empty
    for rows in (X, csr_array(X)):
        assert np.array_equal(CpuBackend().place(rows).row_term(lambda x, j: x * j), X @ np.arange(X.shape[1]))


def test_only_sums_of_whole_numbers_follow_moved_rows(counts):
    ones, kl = np.ones(len(counts[0])), get_divergence(1)
    assert CpuRun(make_block("cpu", counts[0].astype(np.float32), kl)).exact
    assert CpuRun(make_block("cpu", counts[0], kl, 3 * ones)).exact
    assert not CpuRun(make_block("cpu", counts[0] / 3, kl)).exact
    assert not CpuRun(make_block("cpu", counts[0] * 2.0**50, kl)).exact
    assert not CpuRun(make_block("cpu", counts[0], kl, ones / 3)).exact


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_batches(counts, name, loss):
    X = counts[0]
    models = [ONMF(3, beta_loss=loss, engine=MADE[backend]()) for backend in ("reference", name)]
    for model in models:
        for _ in range(2):
            for start in range(0, 60, 20):
                model.partial_fit(X[start : start + 20], batch=start)
    assert np.array_equal(models[0].predict(X), models[1].predict(X))
    assert models[1].cluster_centers_ == pytest.approx(models[0].cluster_centers_, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("loss", "init"),
    [
        *((1, init) for init in (*RANDOM, "bisection", "consensus")),
        ("cosine", "consensus"),
        *((loss, "random-partition") for loss in ("frobenius", 0.5)),
    ],
)
def test_local_search_from_every_start(counts, name, loss, init):
    options = {"beta_loss": loss, "init": init, "n_consensus": 4, "refine": "local-search", "random_state": 0}
    expected = ONMF(3, **options).fit(counts[0])
    model = ONMF(3, engine=MADE[name](), **options).fit(counts[0])
    assert clustering_accuracy(expected.labels_, model.labels_) == 1, "clusters may be numbered differently"
    assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-10)
    assert model.n_sweeps_ > 0


def test_backends_share_no_templates(counts):
    """Two backends that prepare templates differently, one after the other, over the same blocks."""
    C = counts[0][[0, 5, 9]] + 0.5
    models = [
        ONMF(3, init=C, engine=Blocks(backend)).fit(lambda: iter([counts[0]]))
        for backend in (CpuBackend(1), ReferenceBackend(), CpuBackend(1))
    ]
    for model in models[1:]:
        assert np.array_equal(model.labels_, models[0].labels_)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", [csr_array, np.asarray])
def test_offsets_are_added_to_the_scores(counts, name, kind):
    X = counts[0].astype(float)
    C = X[[0, 5, 9, 20, 33]] + 0.5
    block = MADE[name]().make_block(as_rows(kind(X)), SquaredDistance())
    labels, scales, losses = map(to_host, block.assign(block.prepare(C)))
    distances = np.square(X[:, None] - C).sum(axis=2)
    assert np.array_equal(labels, distances.argmin(axis=1))
    assert losses == pytest.approx(distances.min(axis=1), rel=1e-10)
    assert (scales == 1).all()
    templates = block.prepare(C)
    own, following = map(to_host, block.backend.own_and_next(block.rows, templates, labels))
    scores = to_host(block.backend.scores(block.rows, templates))
    assert own == pytest.approx(scores.max(axis=1), rel=1e-12)
    assert following == pytest.approx(np.sort(scores, axis=1)[:, -2], rel=1e-12)
