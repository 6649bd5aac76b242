"""Local search by swaps of clusters: what it promises for every divergence that has no closed form for single moves."""

from math import exp, sqrt

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import assert_same_bits
from onmf import ONMF
from onmf.divergence import Bernoulli, Bregman, Exponential, NegativeBinomial, get_divergence

OWN = {
    "of size": Bregman(lambda x: sqrt(1 + x * x), lambda x: x / sqrt(1 + x * x), lambda x: (1 + x * x) ** -1.5),
    "of one's own": Bregman(lambda x: exp(-x), lambda x: -exp(-x), lambda x: exp(-x), domain="real"),
}
DIVERGENCES = {
    **{str(loss): get_divergence(loss) for loss in ("frobenius", 1.5, 3, 0.5, -0.5, "itakura-saito")},
    "negative binomial": NegativeBinomial(2.0),
    "negative binomial, fitted": NegativeBinomial(2.0, scale="fit"),
    "bernoulli": Bernoulli(),
    "exponential": Exponential(),
    **OWN,
}
TAKE_ZEROS = [name for name, divergence in DIVERGENCES.items() if divergence.domain != "positive"]
COPIES = 12  # rows of each group


def rows_around(centers, divergence, seed=0):
    """Rows near each centre, in the domain of a divergence."""
    rng = np.random.default_rng(seed)
    X = np.repeat(centers, COPIES, axis=0)
    if divergence.domain == "unit":
        return (rng.random(X.shape) < X).astype(float)
    if divergence.domain == "real":
        return X + 0.05 * rng.normal(size=X.shape) * (X != 0)
    noise = rng.gamma(50.0, 1 / 50.0, size=X.shape) * np.repeat(rng.choice([8.0, 16.0], len(X)), X.shape[1]).reshape(
        X.shape
    )
    return X * noise + (0.01 if divergence.domain == "positive" else 0.0)


@pytest.fixture(params=DIVERGENCES)
def planted(request):
    """Four groups of rows, their labels, and a start that keeps two of them together and divides another."""
    divergence = DIVERGENCES[request.param]
    centers = 0.9 * np.repeat(np.eye(4), [4, 5, 6, 7], axis=1)
    X = rows_around(centers, divergence)
    half = COPIES // 2
    parts = X[:half], X[half:COPIES], X[COPIES : 2 * COPIES], X[2 * COPIES :]
    start = np.stack([rows.mean(axis=0) for rows in parts])
    return divergence, X, np.repeat(np.arange(4), COPIES), start


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_objective_never_rises(name, seed):
    divergence = DIVERGENCES[name]
    X = rows_around(np.random.default_rng(3).dirichlet(np.full(9, 0.5), size=6), divergence, seed)
    options = {"beta_loss": divergence, "init": "random-partition", "random_state": seed}
    plain, fine = ONMF(5, **options).fit(X), ONMF(5, refine="local-search", **options).fit(X)
    assert fine.reconstruction_err_ <= plain.reconstruction_err_
    assert (plain.n_sweeps_, fine.n_sweeps_ > 0) == (0, True)
    assert fine.n_iter_ == plain.n_iter_, "the loop before the search is the same"
    assert np.array_equal(fine.predict(X), fine.labels_), "labels are those of the assignment rule"


def test_it_leaves_an_optimum_that_divides_one_group_and_joins_two(planted):
    divergence, X, y, start = planted
    best = ONMF(4, beta_loss=divergence, init=np.stack([X[y == c].mean(axis=0) for c in range(4)])).fit(X)
    plain = ONMF(4, beta_loss=divergence, init=start).fit(X)
    assert plain.reconstruction_err_ > 1.01 * best.reconstruction_err_
    kinds = [X, csr_array(X), X.astype(np.float32)] if divergence.domain != "positive" else [X]
    for kind in kinds:
        model = ONMF(4, beta_loss=divergence, init=start, refine="local-search", random_state=0).fit(kind)
        assert model.reconstruction_err_ == pytest.approx(best.reconstruction_err_, rel=1e-5)
        assert all(len(set(model.labels_[y == c])) == 1 for c in range(4))
        assert np.array_equal(model.predict(kind), model.labels_)


def test_weights_are_repeats(planted):
    divergence, X, _, start = planted
    weights = np.arange(len(X)) % 4
    options = {"beta_loss": divergence, "init": start, "refine": "local-search", "random_state": 0}
    model = ONMF(4, **options).fit(X, sample_weight=weights)
    often = ONMF(4, **options).fit(np.repeat(X, weights, axis=0))
    assert model.reconstruction_err_ == pytest.approx(often.reconstruction_err_, rel=1e-6)
    assert len({(a, b) for a, b in zip(np.repeat(model.labels_, weights), often.labels_, strict=True)}) == 4


@pytest.mark.parametrize("name", ["frobenius", "0.5", "negative binomial", "of one's own"])
@pytest.mark.parametrize("init", ["random-partition", "consensus"])
def test_the_same_bits_on_any_number_of_threads(name, init):
    X = rows_around(np.random.default_rng(3).dirichlet(np.full(9, 0.5), size=6), DIVERGENCES[name])
    options = {"beta_loss": DIVERGENCES[name], "init": init, "n_consensus": 4, "refine": "local-search"}
    options["n_init"] = 7 if init == "random-partition" else 1
    assert_same_bits(*(ONMF(5, n_threads=n, random_state=4, **options).fit(X) for n in (1, 2, 8)))


def test_rows_and_clusters_that_cannot_be_split():
    """One cluster, one row each, equal rows, zero rows, rows without weight."""
    X = np.array([[3.0, 0, 1], [0, 4, 0], [1, 1, 5], [0, 4, 0]])
    for k in (1, 3):
        options = {"beta_loss": "frobenius", "init": "random", "random_state": 0}
        model = ONMF(k, refine="local-search", **options).fit(X)
        assert model.n_iter_ == ONMF(k, **options).fit(X).n_iter_
        assert sorted(set(model.labels_)) == list(range(k))
    zeros = np.vstack([X, np.zeros((2, 3))])
    with pytest.warns(UserWarning, match="2 of 6 rows of X are zero everywhere"):
        assert np.isfinite(ONMF(2, beta_loss=0.5, refine="local-search").fit(zeros).reconstruction_err_)
    weights = np.array([1.0, 1, 1, 0])
    assert np.isfinite(ONMF(2, beta_loss=1.5, refine="local-search").fit(X, sample_weight=weights).reconstruction_err_)


def test_the_negative_binomial_begins_with_a_search_under_kullback_leibler():
    """Single rows move under the easier divergence, which ends in a better start."""
    X = np.random.default_rng(5).poisson(2 * np.random.default_rng(4).gamma(0.5, size=(6, 30)).repeat(20, axis=0))
    options = {"init": "random-partition", "random_state": 2}
    easier = ONMF(6, refine="local-search", **options).fit(X)
    from_there = ONMF(6, beta_loss=NegativeBinomial(1.0), init=easier.cluster_centers_).fit(X)
    fine = ONMF(6, beta_loss=NegativeBinomial(1.0), refine="local-search", **options).fit(X)
    plain = ONMF(6, beta_loss=NegativeBinomial(1.0), **options).fit(X)
    assert fine.reconstruction_err_ <= min(plain.reconstruction_err_, from_there.reconstruction_err_) * (1 + 1e-6)


def test_rows_in_parts_are_refused():
    model = ONMF(2, beta_loss="frobenius", refine="local-search")
    with pytest.raises(ValueError, match="refine='local-search' needs all rows in memory, and X comes in parts: use"):
        model.fit(lambda: iter([np.eye(6)]))
