"""The paper's tables: SNPA's rows, iterations, cluster sizes, objective, accuracy and MRSA, to the digit."""

from itertools import combinations

import numpy as np
import pytest

from conftest import EXPECTED, assert_same_bits, needs_gpu
from onmf import ONMF, metrics, snpa

LOSSES = ("frobenius", "kullback-leibler")
TABLES = [
    *((name, "cpu") for name in EXPECTED),
    *((name, "reference") for name in ("tr11", "tr45", "k1b", "moffett")),
    *(pytest.param(name, "gpu", marks=needs_gpu) for name in EXPECTED),
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "engine"), TABLES)
def test_tables(paper_set, name, engine, loss):
    X, truth = paper_set(name)
    expected = EXPECTED[name][loss]
    k = len(EXPECTED[name]["snpa_rows"])
    model = ONMF(k, beta_loss=loss, engine=engine).fit(X)
    assert model.engine_ == engine
    assert model.init_rows_.tolist() == EXPECTED[name]["snpa_rows"]
    assert model.n_iter_ == expected["iterations"]
    assert model.stop_reason_ == "converged"
    assert np.bincount(model.labels_).tolist() == expected["cluster_sizes"]
    assert model.reconstruction_err_ == pytest.approx(expected["objective"], rel=1e-9)
    if "accuracy" in expected:
        assert 100 * metrics.clustering_accuracy(truth, model.labels_) == pytest.approx(expected["accuracy"], abs=1e-6)
    else:
        assert metrics.mrsa(truth, model.cluster_centers_) == pytest.approx(expected["mrsa"], abs=1e-6)
    assert np.array_equal(model.predict(X), model.labels_)
    if engine == "gpu":
        assert np.array_equal(ONMF(k, beta_loss=loss).fit_predict(X), model.labels_)


@pytest.mark.parametrize("name", ["tr23", "hitech"])
def test_float32_counts_give_the_labels_of_float64(paper_set, name):
    X, _ = paper_set(name)
    k = len(EXPECTED[name]["snpa_rows"])
    single, double = ONMF(k).fit(X.astype(np.float32)), ONMF(k).fit(X.astype(np.float64))
    assert np.array_equal(single.labels_, double.labels_)
    assert np.array_equal(single.cluster_centers_, double.cluster_centers_)


def test_number_of_threads_changes_no_bit(paper_set):
    X, _ = paper_set("la1")
    for loss in (*LOSSES, 1.5, 0.5, "cosine"):
        assert_same_bits(*(ONMF(6, beta_loss=loss, n_threads=n).fit(X) for n in (1, 3)))


def test_snpa_against_a_quadratic_program(paper_set):
    """An independent solver confirms that SNPA's next row is the one farthest from the hull."""
    X, _ = paper_set("samson")
    X = X[::40]
    rows = snpa(X, 4)
    for m in range(1, 4):
        distances = [hull_distance(x, X[rows[:m]]) for x in X]
        assert distances[rows[m]] == pytest.approx(max(distances), rel=1e-5)


def hull_distance(x, S):
    """Squared distance to the convex hull of 0 and the rows of S, by trying every face."""
    vertices = np.vstack([np.zeros(S.shape[1]), S])
    best = np.inf
    for size in range(1, len(vertices) + 1):
        for face in combinations(range(len(vertices)), size):
            V = vertices[list(face)]
            h, *_ = np.linalg.lstsq((V[1:] - V[0]).T, x - V[0], rcond=None)
            if (h >= 0).all() and h.sum() <= 1:
                best = min(best, np.sum((x - V[0] - h @ (V[1:] - V[0])) ** 2))
    return best


def test_smoothed_objective_may_end_above_its_lowest_iterate(paper_set):
    """With ε > 0 the assignment minimises a surrogate: on Samson the objective ends above its lowest value."""
    X, _ = paper_set("samson")
    objective = ONMF(3, verbose=1).fit(X).history_["objective"]
    assert objective[-1] > objective.min()


def test_kl_finds_the_water_that_frobenius_misses(paper_set):
    X, endmembers = paper_set("jasper")
    water = endmembers[np.argmin(endmembers.sum(axis=1))]
    angles = {
        loss: min(metrics.mrsa(water, w) for w in ONMF(4, beta_loss=loss).fit(X).cluster_centers_) for loss in LOSSES
    }
    assert angles["kullback-leibler"] < 10 < angles["frobenius"]
