"""Every divergence against brute force: the closed forms are the true minimisers."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import xlogy

from conftest import make_block
from onmf import ONMF
from onmf.divergence import get_divergence

BETAS = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
ALL = (*BETAS, "cosine")


def brute(beta_loss, x, y):
    """D(x, y) summed over the last axis, from its definition."""
    if beta_loss == "cosine":
        return 1 - np.sum(x * y, -1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))
    β = beta_loss
    if β == 1:
        return np.sum(xlogy(x, x / y) - x + y, -1)
    if β == 0:
        return np.sum(x / y - np.log(x / y) - 1, -1)
    value = np.sum((x**β + (β - 1) * y**β - β * x * y ** (β - 1)) / (β * (β - 1)), -1)
    return 2 * value if β == 2 else value


@pytest.fixture
def positive():
    rng = np.random.default_rng(1)
    return rng.gamma(0.7, size=(40, 7)) + 0.05, rng.gamma(0.7, size=(4, 7)) + 0.05


@pytest.mark.parametrize("beta_loss", ALL)
@pytest.mark.parametrize("smoothing", [0.0, 1e-3])
def test_label_scale_and_loss_are_the_minimum(positive, beta_loss, smoothing):
    X, C = positive
    divergence = get_divergence(beta_loss, smoothing)
    block = make_block("reference", X, divergence)
    labels, scales, losses = block.assign(block.prepare(C))
    used = divergence.smooth(C)  # the centroids behind template, scale and loss
    if beta_loss == 1 and smoothing:
        used = divergence.normalise(C) + smoothing  # the paper's surrogate: not normalised again
    for x, label, scale, loss in zip(X, labels, scales, losses, strict=True):
        best = []
        for c in used:
            found = minimize_scalar(
                lambda t, x=x, c=c: brute(beta_loss, x, np.exp(t) * c), bounds=(-8, 8), options={"xatol": 1e-10}
            )
            best.append((found.fun, np.exp(found.x)))
        assert label == np.argmin([value for value, _ in best])
        if beta_loss == 1 and smoothing:
            continue
        assert loss == pytest.approx(best[label][0], rel=1e-8, abs=1e-10)
        if beta_loss != "cosine":  # every scale gives the same cosine loss
            assert scale == pytest.approx(best[label][1], rel=1e-5)


@pytest.mark.parametrize("beta_loss", ALL)
def test_centroid_is_the_minimum_for_its_rows(positive, beta_loss):
    X, _ = positive
    X = X[:12]
    divergence = get_divergence(beta_loss, 0.0)
    block = make_block("reference", X, divergence)
    start = X.mean(axis=0, keepdims=True)
    _, scales, _ = block.assign(block.prepare(start))
    step = block.backend.start_run(block).step_from(start)
    centre = divergence.centers(step.sums, step.mass)[0]

    def total(log_c):
        return brute(beta_loss, X, scales[:, None] * np.exp(log_c)).sum()

    found = minimize(total, np.log(start[0]), tol=1e-14)
    assert total(np.log(centre)) <= found.fun + 1e-9 * abs(found.fun)
    if beta_loss != "cosine":
        assert centre == pytest.approx(np.exp(found.x), rel=1e-4)


@pytest.mark.parametrize("beta_loss", ALL)
@pytest.mark.parametrize("smoothing", [0.0, 1e-3])
@pytest.mark.filterwarnings("ignore:Not converged after max_iter=1 ")
def test_objective_is_the_divergence_of_the_reconstruction(positive, beta_loss, smoothing):
    X, _ = positive
    for max_iter in (1, 100):
        model = ONMF(3, beta_loss=beta_loss, smoothing=smoothing, max_iter=max_iter)
        model.fit(X)
        Y = model.scales_[:, None] * model.cluster_centers_[model.labels_]
        assert model.reconstruction_err_ == pytest.approx(brute(beta_loss, X, Y).sum(), rel=1e-10)


@pytest.mark.parametrize("beta_loss", ALL)
def test_loss_never_rises_without_smoothing(positive, beta_loss):
    """Checks 20 steps, both after the assignment and after the centroid update."""
    X, C = positive
    divergence = get_divergence(beta_loss, 0.0)
    block = make_block("cpu", X, divergence, n_threads=1)
    run = block.backend.start_run(block)
    values = []
    for _ in range(20):
        step = run.step_from(C)
        values += [step.loss.sum(), divergence.objective(step.sums, step.mass, step.loss.sum(), block.constant)]
        C = np.where(step.empty[:, None], C, divergence.centers(step.sums, step.mass))
    assert np.all(np.diff(values) <= 1e-10 * np.abs(values[0]))


@pytest.mark.parametrize("beta_loss", ALL)
def test_scale_of_centroids_and_rows_does_not_matter(positive, beta_loss):
    X, C = positive
    divergence = get_divergence(beta_loss)
    assert divergence.templates(C * [[2], [3], [0.1], [7]]) == pytest.approx(divergence.templates(C), rel=1e-12)
    assert np.array_equal(ONMF(4, beta_loss=beta_loss).fit(X).labels_, ONMF(4, beta_loss=beta_loss).fit(64 * X).labels_)


@pytest.mark.parametrize(("name", "beta"), [("kullback-leibler", 1), ("frobenius", 2), ("itakura-saito", 0)])
def test_name_and_number_are_the_same(name, beta):
    assert get_divergence(name) == get_divergence(beta) == get_divergence(float(beta))


@pytest.mark.parametrize("beta_loss", [0.5, 0.25, 1])
def test_zero_in_centroid_without_smoothing_costs_infinity_but_makes_no_nan(beta_loss):
    X = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 1.0], [0.0, 0.0, 2.0]])
    divergence = get_divergence(beta_loss, 0.0)
    for name in ("reference", "cpu"):
        block = make_block(name, X, divergence)
        C = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
        labels, scales, losses = block.assign(block.prepare(C))
        assert np.isfinite(scales).all()
        assert np.isinf(losses).tolist() == [False, True, True]
        assert labels.tolist() == [0, 0, 0]
        step = block.backend.start_run(block).step_from(C)
        assert np.isfinite(step.sums).all()
        assert np.isfinite(divergence.objective(step.sums, step.mass, step.loss.sum(), block.constant))
