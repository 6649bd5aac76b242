"""Sparse rows that are not scored, because their label cannot change: the labels are those of all scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf import ONMF, kernels
from onmf.backend import CpuBackend
from onmf.backend.cpu import CpuRun
from onmf.backend.sparse import SparseRun
from onmf.datasets import make_counts
from onmf.divergence import KullbackLeibler


def steps_of(X, start, threads=1, smoothing=1e-3):
    backend = CpuBackend(threads)
    block = backend.hold(X, KullbackLeibler(smoothing))
    return block, backend.steps(backend.begin(block), start.copy())


def labels_of_all_scores(block, centroids):
    return block.backend.best_template(block.rows, block.prepare(centroids))[0]


def corpus(n=400, p=300):
    return csr_array(make_counts(n, p, 6, length=30, overlap=0.7, random_state=2).X.astype(np.float64))


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("k", [1, 2, 9, 16])
def test_labels_are_those_of_all_scores_in_every_step(threads, k):
    X = corpus()
    start = X[np.random.default_rng(k).choice(400, k, replace=False)].toarray() + 0.1
    block, steps = steps_of(X, start, threads)
    for number in range(12):
        centroids = steps.centroids.copy()
        step = steps.next()
        np.testing.assert_array_equal(steps.run.state.labels, labels_of_all_scores(block, centroids))
        steps.update(step, more=True)
        if number == 6:  # as for an empty cluster
            steps.put(0, X[[5]].toarray()[0] + 0.1)


def test_labels_from_elsewhere_are_not_kept():
    X = corpus()
    block, steps = steps_of(X, X[:4].toarray() + 0.1)
    for _ in range(8):
        steps.update(steps.next(), more=True)
    steps.run.settle(np.arange(400, dtype=np.int32) % 4, 4)  # as after a local search
    steps.next()
    np.testing.assert_array_equal(steps.run.state.labels, labels_of_all_scores(block, steps.centroids))


@pytest.mark.parametrize("size", [1e-15, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1])
def test_templates_that_move_a_little_move_rows_that_nearly_tie(size):
    # Rows are equal but for one word, so their leads are about as small as what the templates move.
    rng = np.random.default_rng(0)
    X = csr_array(np.tile(rng.poisson(2.0, 40).astype(np.float64), (300, 1)) + (rng.random((300, 40)) < 0.03))
    base = rng.random((2, 40))
    start = np.vstack([base[0], base[0] * (1 + size * rng.normal(size=40)), base[1]])
    block, steps = steps_of(X, start)
    for _ in range(10):
        np.testing.assert_array_equal(
            (steps.next(), steps.run.state.labels)[1], labels_of_all_scores(block, steps.centroids)
        )
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
    kernels.label_by_narrow(X.indptr, X.indices, X.data, right, 8, 0, n, unmoved, sizes, leads, labels)
    decided, before = leads > 0, labels.copy()
    assert decided.mean() > 0.9
    kernels.label_by_narrow(X.indptr, X.indices, X.data, wrong, 8, 0, n, unmoved, sizes, leads, labels)
    np.testing.assert_array_equal(labels[decided], before[decided])


def test_infinite_templates_are_scored():
    X = corpus()
    start = X[:5].toarray()
    block, steps = steps_of(X, start, smoothing=0)
    for _ in range(4):
        centroids = steps.centroids.copy()
        step = steps.next()
        np.testing.assert_array_equal(steps.run.state.labels, labels_of_all_scores(block, centroids))
        steps.update(step, more=True)


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("name", ["classic", "tr11"])
@pytest.mark.parametrize("k", [6, 60])
def test_fits_of_documents_are_the_same_if_all_rows_are_scored(paper_set, monkeypatch, name, k):
    X = paper_set(name)[0].astype(np.float64)
    start = X[np.random.default_rng(k).choice(X.shape[0], k, replace=False)].toarray() + 1e-3
    model = ONMF(k, init=start, max_iter=30).fit(X)
    monkeypatch.setattr(SparseRun, "step_from", CpuRun.step_from)
    plain = ONMF(k, init=start, max_iter=30).fit(X)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert model.reconstruction_err_ == plain.reconstruction_err_
