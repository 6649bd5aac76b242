"""Starts: SNPA against its definition, and random starts against their documented properties."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF, snpa
from onmf.kernels.project import project_on_hull


def test_snpa_by_hand():
    # [4, 0] has the largest norm. Then [0, 3] is at distance 3 from the segment from 0 to [4, 0], and [3, 1] at 1.
    X = np.array([[3.0, 1.0], [4.0, 0.0], [0.0, 3.0], [1.0, 0.5]])
    assert snpa(X, 2).tolist() == [1, 2]
    assert snpa(csr_array(X), 2).tolist() == [1, 2]


def test_snpa_prefers_the_larger_norm_among_equals_and_then_the_lower_index():
    # After the first pick, both other rows are at distance 1 from the hull.
    X = np.array([[5.0, 0.0, 0.0], [3.0, 1.0, 0.0], [4.0, 0.0, 1.0], [4.0, 0.0, 1.0]])
    assert snpa(X, 2).tolist() == [0, 2]


def test_snpa_that_runs_out_of_directions_takes_the_first_rows():
    X = np.array([[1.0, 1.0], [0.0, 0.0], [4.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    with pytest.warns(ConvergenceWarning, match="X has run out of directions after 2 of 4 seeds"):
        assert snpa(X, 4).tolist() == [2, 4, 0, 3]


@pytest.mark.parametrize("r", [0, 6, True])
def test_snpa_refuses(r):
    with pytest.raises(ValueError, match=f"r={r} is not allowed: choose between 1 and the 5 rows"):
        snpa(np.eye(5), r)


def test_projection_against_a_general_solver():
    rng = np.random.default_rng(0)
    S = rng.gamma(0.5, size=(4, 6))
    X = np.vstack([rng.gamma(0.5, size=(25, 6)), 0.1 * rng.random((5, 6)), S])
    n, m = len(X), len(S)
    vertices = np.vstack([np.zeros(6), S])
    products, weights = X @ vertices.T, np.zeros((n, m + 1))
    weights[:, 0] = 1
    residuals = np.empty(n)
    project_on_hull(products, vertices @ vertices.T, (X**2).sum(axis=1), np.arange(n), 0, n, 0.0, weights, residuals)
    assert weights.min() >= 0
    assert weights.sum(axis=1) == pytest.approx(1)
    assert ((X - weights @ vertices) ** 2).sum(axis=1) == pytest.approx(residuals, abs=1e-12)
    for x, residual in zip(X, residuals, strict=True):
        found = minimize(
            lambda h, x=x: np.sum((x - h @ S) ** 2),
            np.full(m, 0.1),
            bounds=[(0, None)] * m,
            constraints={"type": "ineq", "fun": lambda h: 1 - h.sum()},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert residual <= found.fun + 1e-9
        assert residual == pytest.approx(found.fun, abs=1e-6)


def test_random_rows_have_different_directions():
    X = np.vstack([np.outer(np.arange(1, 30), [1, 2, 3]), [[5, 1, 1], [1, 9, 1]]]).astype(float)
    for init in ("random", "++"):
        for seed in range(20):
            rows = ONMF(3, init=init, random_state=seed).fit(X).init_rows_
            assert {29, 30} < set(rows.tolist())


@pytest.mark.short("many draws, to see their chances")
def test_plus_plus_draws_by_the_loss():
    """The share of second seeds follows the losses under the first: a chi-square test on 2,000 draws."""
    X = np.array([[10.0, 0.0], [10.0, 1.0], [10.0, 4.0], [0.0, 10.0]])
    seconds = []
    for seed in range(2000):
        first, second = ONMF(2, beta_loss="frobenius", init="++", random_state=seed).fit(X).init_rows_
        if first == 0:
            seconds.append(second)
    expected = np.array([1.0, 16.0, 100.0])
    expected *= len(seconds) / expected.sum()
    observed = np.bincount(seconds, minlength=4)[1:]
    # A correct program exceeds this with a probability of 0.1 %, but the seeds are fixed.
    assert np.sum((observed - expected) ** 2 / expected) < 13.8


def test_plus_plus_draws_no_row_beside_a_seed():
    """A row counts by its nearest seed, so two rows that are nearly the same are hardly ever both drawn."""
    X = np.array([[10.0, 0.0, 0.0], [10.0, 0.1, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]])
    starts = [ONMF(3, beta_loss="frobenius", init="++", random_state=seed).fit(X).init_rows_ for seed in range(40)]
    assert sum({0, 1} <= set(rows.tolist()) for rows in starts) <= 1


def test_random_partition_starts_near_the_middle(counts):
    X, _ = counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ONMF(3, init="random-partition", random_state=0, max_iter=1).fit(X)
    assert model.init_rows_ is None
    assert len(np.unique(model.labels_)) == 3
