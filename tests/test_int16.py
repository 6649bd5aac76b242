"""Sparse rows labelled by templates in 16 bits, or not scored at all: the labels are those of all scores."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import assert_same_bits
from onmf import ONMF
from onmf.backend import CpuBackend, cpu
from onmf.backend.base import COUNTED
from onmf.backend.cpu import CpuRun, SparseRun, parts_of, template_steps
from onmf.datasets import make_counts
from onmf.divergence import Cosine, Frobenius, KullbackLeibler
from onmf.kernels import screen

pytestmark = pytest.mark.usefixtures("always")
DIVERGENCES = [KullbackLeibler(), KullbackLeibler(1e-20), KullbackLeibler(1e20), Frobenius(), Cosine()]


@pytest.fixture
def always(monkeypatch):
    """Templates in 16 bits for any number of rows."""
    monkeypatch.setattr(cpu, "FEW_PRODUCTS", 0)


def steps_of(X, start, threads=1, divergence=DIVERGENCES[0]):
    backend = CpuBackend(threads)
    block = backend.make_block(X, divergence)
    return block, backend.steps(backend.start_run(block), start.copy())


def next_step(block, steps):
    """The next step, whose labels must be those of all scores."""
    centroids = steps.centroids.copy()
    step = steps.next()
    labels, _ = block.backend.best_template(block.rows, block.prepare(centroids))
    np.testing.assert_array_equal(steps.run.state.labels, labels)
    return step


def corpus(n=400, p=300):
    return csr_array(make_counts(n, p, 6, length=30, overlap=0.7, random_state=2).X.astype(np.float64))


def odd_rows(domain):
    """Rows that are long, empty, repeated, very small or very large, or hold zeros that are stored."""
    rng = np.random.default_rng(3)
    long = rng.poisson(1.0, (40, 300)) * rng.random((40, 300))
    short = corpus(100).toarray()
    few = np.zeros((3, 300))
    few[1, 5], few[2, 7] = 1e-300, 3.0
    X = np.vstack([long, short, short[:20], few, short[:20] * 1e-35, short[20:40] * 1e34, short[40:60] / 3])
    if domain == "real":
        X[::3] *= np.where(rng.random(300) < 0.2, -1, 1)
    sparse = csr_array(X)
    sparse.data[::17] = 0.0
    return sparse


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("k", [1, 2, 9, 16])
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("odd", [False, True])
def test_labels_are_those_of_all_scores_in_every_step(threads, k, divergence, odd):
    X = odd_rows(divergence.domain) if odd else corpus()
    start = corpus()[np.random.default_rng(k).choice(400, k, replace=False)].toarray() + 0.1
    block, steps = steps_of(X, start, threads, divergence)
    for number in range(12):
        steps.update(next_step(block, steps), more=True)
        if number == 6:  # as for an empty cluster
            steps.put(0, X[[5]].toarray()[0] + 0.1)


def test_labels_from_elsewhere_are_not_kept():
    X = corpus()
    block, steps = steps_of(X, X[:4].toarray() + 0.1)
    for _ in range(8):
        steps.update(steps.next(), more=True)
    steps.run.step_for_labels(np.arange(400, dtype=np.int32) % 4, 4)  # as after a local search
    next_step(block, steps)


@pytest.mark.parametrize("size", [1e-15, 1e-12, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_templates_that_move_a_little_move_rows_that_nearly_tie(size, divergence):
    # Rows are equal but for one word, so their leads are about as small as what the templates move.
    rng = np.random.default_rng(0)
    X = csr_array(np.tile(rng.poisson(2.0, 40).astype(np.float64), (300, 1)) + (rng.random((300, 40)) < 0.03))
    base = rng.random((2, 40))
    start = np.vstack([base[0], base[0] * (1 + size * rng.normal(size=40)), base[1]])
    block, steps = steps_of(X, start, divergence=divergence)
    for _ in range(10):
        next_step(block, steps)
        steps.centroids[:] *= 1 + size * rng.normal(size=steps.centroids.shape)


def test_rows_are_spared():
    X = corpus()
    n, p = X.shape
    rng = np.random.default_rng(0)
    right, wrong = rng.integers(-32000, 32000, (2, p, 8), dtype=np.int16)
    labels, leads, sizes, unmoved = (
        np.empty(n, np.int32),
        np.zeros(n, np.float32),
        X.sum(axis=1),
        np.zeros(p, np.float32),
    )
    screen.label_by_int16((X.indptr, X.indices, X.data), right, 8, 0, n, unmoved, sizes, leads, labels)
    decided, before = leads > 0, labels.copy()
    assert decided.mean() > 0.9
    screen.label_by_int16((X.indptr, X.indices, X.data), wrong, 8, 0, n, unmoved, sizes, leads, labels)
    np.testing.assert_array_equal(labels[decided], before[decided])


def test_infinite_templates_are_scored():
    X = corpus()
    start = X[:5].toarray()
    block, steps = steps_of(X, start, divergence=KullbackLeibler(0.0))
    for _ in range(4):
        steps.update(next_step(block, steps), more=True)


@pytest.mark.parametrize("divergence", DIVERGENCES[:1] + DIVERGENCES[3:], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_are_those_of_all_scores(divergence, weighted):
    X = corpus()
    weights = np.random.default_rng(0).random(400) if weighted else None
    block = CpuBackend(2).make_block(X, divergence, weights)
    centroids = X[:6].toarray() + 0.1
    fast, plain = SparseRun(block).step_from(centroids), CpuRun(block).step_from(centroids)
    np.testing.assert_allclose(fast.sums, plain.sums, rtol=1e-13)
    known = [name for name in COUNTED if name != "loss" or not divergence.fixed_scales]
    for name in known:
        np.testing.assert_allclose(fast.on_device(name), plain.on_device(name), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "divergence", [*map(KullbackLeibler, (1e-20, 1e-6, 1e-3, 0.1, 1.0, 1e20)), Frobenius(), Cosine()]
)
def test_templates_in_16_bits_are_off_by_half_a_step(divergence):
    rng = np.random.default_rng(0)
    centroids = rng.random((9, 1000)) ** 40
    centroids[0, 1:] = centroids[1] = 0
    if divergence.domain == "real":
        centroids[2:] *= rng.choice([-1, 1], (7, 1000))
    form, sizes = template_steps(divergence.template_form), divergence.size(centroids)
    factors = np.divide(1, sizes, out=np.zeros(9), where=sizes > 0)
    found, shifts = np.zeros((1000, 16), np.int16), np.empty(1000, np.float32)
    screen.int16_templates(centroids, factors, form, 0, 1000, found, shifts)
    exact = divergence.templates(centroids).T
    middle, step = form[2:]
    off = np.abs(middle + step * found[:, :9].astype(float) - exact).max() / step
    assert off <= screen.TEMPLATE_ERROR / 2
    np.testing.assert_array_equal(shifts, np.ptp(found[:, :9].astype(int), axis=1))


def test_large_clusters_are_summed_in_parts():
    clusters, bounds, places = parts_of(np.array([0, 500, 500, 600, 1000]))
    assert clusters.tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]
    assert bounds.tolist() == [0, 125, 250, 375, 500, 500, 600, 700, 800, 900, 1000]
    assert places.tolist() == [-1, 0, 1, 2, -1, -1, -1, 3, 4, 5]
    assert parts_of(np.zeros(3, np.int64))[1].tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("name", ["classic", "tr11"])
@pytest.mark.parametrize("k", [6, 60])
def test_fits_of_documents_are_the_same_if_all_rows_are_scored(paper_set, monkeypatch, name, k):
    X = paper_set(name)[0].astype(np.float64)
    start = X[np.random.default_rng(k).choice(X.shape[0], k, replace=False)].toarray() + 1e-3
    model = ONMF(k, init=start, max_iter=30).fit(X)
    monkeypatch.setattr(SparseRun, "step_from", CpuRun.step_from)
    plain = ONMF(k, init=start, max_iter=30).fit(X)
    assert_same_bits(model, plain)


@pytest.mark.parametrize("divergence", DIVERGENCES[:1] + DIVERGENCES[3:], ids=repr)
def test_small_fits_have_no_templates_in_16_bits(monkeypatch, divergence):
    """The kernels of these take as long to compile as all others of a first fit. The fit has the same bits."""
    X = corpus(1000)
    model = ONMF(6, beta_loss=divergence).fit(X)
    monkeypatch.setattr(cpu, "FEW_PRODUCTS", 1 << 21)
    monkeypatch.setattr(screen, "int16_templates", None)
    monkeypatch.setattr(screen, "label_by_int16", None)
    assert_same_bits(ONMF(6, beta_loss=divergence).fit(X), model)
