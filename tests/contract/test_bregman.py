"""Bregman divergences against brute force: the named ones, and some of a user's own."""

import pickle
import tracemalloc
from copy import deepcopy
from functools import partial
from itertools import pairwise
from math import exp, log, sqrt
from types import ModuleType

import numba
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.sparse import csr_array
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning

import onmf
from conftest import make_block, needs_gpu
from onmf import ONMF
from onmf.backend import CentroidEntries, to_host
from onmf.divergence import Bernoulli, Bregman, Exponential, NegativeBinomial
from onmf.kernels import jit
from onmf.kernels.bregman import map_entries
from onmf.kernels.jit import address_of

COSH = Bregman(
    lambda x: exp(x) + exp(-x),
    lambda x: exp(x) - exp(-x),
    lambda x: exp(x) + exp(-x),
    domain="real",
    label="cosh",
    cuda=("exp(x) + exp(-x)", "exp(x) - exp(-x)", "exp(x) + exp(-x)"),
)
MIXED = Bregman(
    lambda x: x * log(x) - x + 0.05 * x * x if x > 0 else 0.0,
    lambda x: log(x) + 0.1 * x if x > 0 else -np.inf,
    lambda x: 1 / x + 0.1,
    scale="fit",
    label="mixed",
    cuda=("x > 0 ? x * log(x) - x + 0.05 * x * x : 0", "log(x) + 0.1 * x", "1 / x + 0.1"),
)


def power(beta, scale="fit"):
    """The φ of a β-divergence."""
    return Bregman(
        lambda x: x**beta / (beta * (beta - 1)),
        lambda x: x ** (beta - 1) / (beta - 1) if x > 0 or beta > 1 else -np.inf,
        lambda x: x ** (beta - 2),
        scale=scale,
        label="power",
        cuda=(f"pow(x, {beta}) / {beta * (beta - 1)}", f"pow(x, {beta - 1}) / {beta - 1}", f"pow(x, {beta - 2})"),
    )


COSH_OF_MODULE = Bregman(exp, exp, exp, domain="real")
NB = partial(NegativeBinomial, 0.7, smoothing=0.0)
ALL = {
    "negative binomial": NB(),
    "negative binomial, fitted": NB(scale="fit"),
    "bernoulli": Bernoulli(0.0),
    "exponential": Exponential(),
    "cosh": COSH,
    "mixed": MIXED,
    "power": power(1.5, "size"),
}


def brute(divergence, x, y):
    """D(x, y) by entry, from its definition."""
    if isinstance(divergence, NegativeBinomial):
        θ = divergence.theta
        return xlogy(x, x / y) - (x + θ) * np.log((x + θ) / (y + θ))
    phi, slope = divergence.phi, divergence.slope
    return phi(x) - phi(y) - slope(y) * (x - y)


def rows_for(divergence, n=40, p=6, seed=1):
    rng = np.random.default_rng(seed)
    if divergence.domain == "real":
        return rng.normal(size=(n, p))
    if divergence.domain == "unit":
        return rng.beta(0.7, 0.7, size=(n, p)).clip(0.01, 0.99)
    return rng.gamma(0.7, size=(n, p)) * 4 + 0.05


def scale_by_search(divergence, x, c):
    if divergence.absolute:
        return 1.0
    if divergence.sized:
        return x.sum()
    found = minimize_scalar(
        lambda t: brute(divergence, x, np.exp(t) * c).sum(), bounds=(-8, 8), options={"xatol": 1e-12}
    )
    return np.exp(found.x)


ENGINES = ["reference", "cpu", pytest.param("gpu", marks=needs_gpu)]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("engine", ENGINES)
def test_label_scale_and_loss_are_the_minimum(name, engine):
    divergence = ALL[name]
    X, C = rows_for(divergence), divergence.initial_centroids(rows_for(divergence, 4, seed=2))
    block = make_block(engine, X, divergence)
    labels, scales, losses = map(to_host, block.assign(block.prepare(C)))
    for x, label, scale, loss in zip(X, labels, scales, losses, strict=True):
        best = [scale_by_search(divergence, x, c) for c in C]
        values = [brute(divergence, x, a * c).sum() for a, c in zip(best, C, strict=True)]
        assert label == np.argmin(values)
        assert loss == pytest.approx(values[label], rel=1e-8, abs=1e-10)
        assert loss >= 0
        assert scale == pytest.approx(best[label], rel=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_centroid_is_the_minimum_for_its_rows(name, monkeypatch):
    monkeypatch.setattr("onmf.backend.curved.PASSES", (20, 20))  # to the end, although rows have just moved
    divergence = ALL[name]
    X = rows_for(divergence, 12)
    block = make_block("cpu", X, divergence)
    run, W = block.backend.start_run(block), divergence.initial_centroids(X.mean(axis=0, keepdims=True))
    step = run.step_from(W)
    _, scales = run.collect()
    run.update(step, W)
    c = W[0] / divergence.unit(step.norms)[0]
    for j in range(X.shape[1]):

        def derivative(v, x=X[:, j]):
            return np.sum(scales * divergence.curvature(scales * v) * (x - scales * v))

        low, high = sorted([c[j] * 0.5, c[j] * 1.5])
        assert c[j] == pytest.approx(brentq(derivative, low, high, xtol=1e-15), rel=1e-8)
        values = [brute(divergence, X[:, j], scales * v).sum() for v in (c[j], low, high)]
        assert values[0] == min(values)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.usefixtures("capsys")
def test_objective_never_rises_and_is_that_of_what_is_published(name):
    divergence = ALL[name]
    X = rows_for(divergence, 60)
    model = ONMF(4, beta_loss=divergence, init="random-partition", random_state=0, tol=0, n_threads=1, verbose=1)
    model.fit(X)
    assert all(after <= before * (1 + 1e-11) for before, after in pairwise(model.history_["objective"]))
    fitted = model.scales_[:, None] * model.cluster_centers_[model.labels_]
    assert model.reconstruction_err_ == pytest.approx(brute(divergence, X, fitted).sum(), rel=1e-8)
    assert np.array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("name", ["bernoulli", "exponential", "cosh"])
def test_without_scales_it_is_bregman_k_means(name):
    divergence = ALL[name]
    X = rows_for(divergence, 50)
    start = X[:3].copy()
    model = ONMF(3, beta_loss=divergence, init=start, tol=0).fit(X)
    C = start
    for _ in range(model.n_iter_):
        labels = brute(divergence, X[:, None], C).sum(axis=2).argmin(axis=1)
        C = np.array([X[labels == k].mean(axis=0) for k in range(3)])
    assert np.array_equal(model.labels_, labels)
    assert model.cluster_centers_ == pytest.approx(C, rel=1e-12)
    assert np.all(model.scales_ == 1)


def test_a_homogeneous_phi_gives_the_closed_forms():
    beta, X = 0.5, rows_for(NB(), 50)
    options = {"init": X[:3], "smoothing": 0.0, "tol": 0, "max_iter": 8}
    with pytest.warns(ConvergenceWarning):
        found = ONMF(3, beta_loss=power(beta), **options).fit(X)
    with pytest.warns(ConvergenceWarning):
        closed = ONMF(3, beta_loss=beta, **options).fit(X)
    assert np.array_equal(found.labels_, closed.labels_)
    assert found.reconstruction_err_ == pytest.approx(closed.reconstruction_err_, rel=1e-9)
    assert found.scales_ == pytest.approx(closed.scales_, rel=1e-6)
    assert found.cluster_centers_ == pytest.approx(closed.cluster_centers_, rel=1e-6)


def test_a_large_theta_is_kullback_leibler(counts):
    X, _ = counts
    nearly = ONMF(3, beta_loss=NegativeBinomial(1e6, smoothing=0.0), init=X[:3] + 1).fit(X)
    limit = ONMF(3, smoothing=0.0, init=X[:3] + 1).fit(X)
    assert np.array_equal(nearly.labels_, limit.labels_)
    assert nearly.reconstruction_err_ == pytest.approx(limit.reconstruction_err_, rel=1e-3)


@pytest.mark.parametrize("scale", ["size", "fit"])
@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.usefixtures("capsys")
def test_digits_are_kept_where_counts_are_far_larger_than_theta(overdispersed, scale):
    X, θ = overdispersed[0] * 10.0**6, 1e-3
    options = {"init": "random-partition", "random_state": 0, "tol": 0, "max_iter": 12, "verbose": 1}
    model = ONMF(3, beta_loss=NegativeBinomial(θ, scale, 0.0), **options).fit(X)
    assert all(after <= before * (1 + 1e-11) for before, after in pairwise(model.history_["objective"]))
    Y = model.scales_[:, None] * model.cluster_centers_[model.labels_]
    # The loss with x log(x / y) and (x + θ) log((x + θ) / (y + θ)) taken together, since both are far larger than it.
    shares = np.divide(θ * (X - Y), Y * (X + θ), out=np.zeros_like(Y), where=X > 0)
    losses = X * np.log1p(shares) + θ * np.log1p((Y - X) / (X + θ))
    assert model.reconstruction_err_ == pytest.approx(losses.sum(), rel=1e-9)


def test_a_fit_of_scales_under_smoothed_centroids_ends(overdispersed):
    X, _ = overdispersed
    model = ONMF(3, beta_loss=NegativeBinomial(1.5, "fit"), init="random-partition", random_state=0, tol=0).fit(X)
    assert model.stop_reason_ == "fixed point"


@pytest.fixture
def overdispersed():
    """Rows of three clusters whose counts vary far more than Poisson counts, with zeros."""
    rng = np.random.default_rng(0)
    C = rng.gamma(0.4, size=(3, 30))
    C /= C.sum(axis=1, keepdims=True)
    truth, sizes = rng.integers(3, size=150), rng.integers(30, 300, size=150)
    means = sizes[:, None] * C[truth]
    X = rng.negative_binomial(1.5, 1.5 / (1.5 + means))
    return X[X.sum(axis=1) > 0], truth[X.sum(axis=1) > 0]


def test_dask_weights_and_repeats(overdispersed):
    dask = pytest.importorskip("dask.array")
    X, _ = overdispersed
    weights = np.random.default_rng(0).integers(0, 3, size=len(X))
    model = partial(ONMF, 3, beta_loss="negative-binomial", init=X[:3] + 1)
    repeated = model().fit(np.repeat(X, weights, axis=0))
    weighted = model().fit(X, sample_weight=weights)
    parts = model().fit(dask.from_array(X, chunks=(50, -1)), sample_weight=weights)
    for one in (weighted, parts):
        assert one.cluster_centers_ == pytest.approx(repeated.cluster_centers_, rel=1e-6, abs=1e-12)
        assert one.reconstruction_err_ == pytest.approx(repeated.reconstruction_err_, rel=1e-9)
    assert np.array_equal(np.asarray(parts.labels_), weighted.labels_)


def test_a_fitted_model_describes_rows_and_can_be_saved(overdispersed, tmp_path):
    X, truth = overdispersed
    model = ONMF(3, beta_loss=NegativeBinomial(1.5, "fit"), init="++", n_init=3, random_state=0).fit(X)
    model.save(tmp_path / "model.onmf")
    again = onmf.load(tmp_path / "model.onmf")
    assert again.divergence_ == model.divergence_ == model.beta_loss
    for one in (model, again):
        assert np.array_equal(one.predict(X), model.labels_)
        assigned = one.assign(X)
        assert assigned.margins == pytest.approx(model.margins_)
        assert assigned.scales == pytest.approx(model.scales_, rel=1e-2)
        assert one.transform(X).shape == (len(X), 3)
        assert one.predict_proba(X).sum(axis=1) == pytest.approx(1)
        assert one.score(X) == pytest.approx(-model.reconstruction_err_ / len(X), rel=1e-2)
    consensus = ONMF(3, beta_loss="negative-binomial", init="consensus", n_consensus=4, random_state=0).fit(X)
    assert onmf.metrics.clustering_accuracy(truth, consensus.labels_) > 0.9


@pytest.mark.parametrize("scale", ["size", "fit"])
def test_theta_is_estimated(overdispersed, scale, tmp_path):
    X, _ = overdispersed
    model = ONMF(3, beta_loss=NegativeBinomial("auto", scale), init="random-partition", random_state=0).fit(X)
    assert model.beta_loss.theta == "auto"
    assert 1.2 < model.divergence_.theta < 1.9  # the counts were drawn with 1.5
    again = ONMF(3, beta_loss=model.divergence_, init=model.cluster_centers_).fit(X)
    assert np.array_equal(again.labels_, model.labels_)
    model.save(tmp_path / "model.onmf")
    assert onmf.load(tmp_path / "model.onmf").divergence_ == model.divergence_
    with pytest.raises(ValueError, match="give its parameter a number"):
        ONMF(3, beta_loss=NegativeBinomial("auto")).partial_fit(X)


def test_batches(overdispersed):
    X, _ = overdispersed
    start = X[:3] + 1
    whole = ONMF(3, beta_loss="negative-binomial", init=start).fit(X)
    stream = ONMF(3, beta_loss="negative-binomial", init=start, forgetting=0.95)
    for _ in range(20):
        for first in range(0, len(X), 50):
            stream.partial_fit(X[first : first + 50])
    assert onmf.metrics.clustering_accuracy(whole.labels_, stream.predict(X)) > 0.95
    assert stream.score(X) > 1.05 * whole.score(X)
    with pytest.raises(ValueError, match="leave batch=None"):
        stream.partial_fit(X[:50], batch="first")


def test_an_estimate_keeps_what_the_start_says(overdispersed):
    X, _ = overdispersed
    divergence = NegativeBinomial("auto")
    model = ONMF(3, beta_loss=divergence).fit(X)
    assert np.array_equal(model.init_rows_, ONMF(3, beta_loss=NegativeBinomial(1.0)).fit(X).init_rows_)
    model = ONMF(3, beta_loss=divergence, init="consensus", n_consensus=3, random_state=0).fit(X)
    assert 0 < model.agreement_.overall <= 1
    stream = ONMF(3, beta_loss=divergence).fit(X)
    estimated = stream.divergence_
    assert stream.partial_fit(X).divergence_ == estimated
    with pytest.warns(match="zero everywhere"), pytest.warns(ConvergenceWarning):
        ONMF(2, beta_loss=divergence).fit(np.zeros((3, 2)))


@pytest.mark.short("every divergence")
@pytest.mark.parametrize("scale", ["size", "fit"])
@pytest.mark.parametrize("smoothing", [0.0, 1e-3])
@pytest.mark.filterwarnings("ignore:Not converged")
def test_rows_without_weight_change_nothing(scale, smoothing):
    """They may move when no other row does; an early stop shows it."""
    rng = np.random.default_rng(0)
    for _ in range(25):
        X = rng.poisson(rng.gamma(0.3, 4, size=(12, 6))) + np.tile(np.eye(6, dtype=int), (2, 1))
        w = np.where(np.arange(12) < 3, 1.0, rng.random(12) < 0.6)
        for max_iter in (2, 3, 100):
            model = partial(ONMF, 3, beta_loss=NegativeBinomial(0.7, scale, smoothing), init=X[:3] + 0.1)
            weighted, alone = model(max_iter=max_iter).fit(X, sample_weight=w), model(max_iter=max_iter).fit(X[w > 0])
            assert weighted.reconstruction_err_ == pytest.approx(alone.reconstruction_err_, rel=1e-7)
            if weighted.stop_reason_ != "max_iter":
                assert np.array_equal(weighted.predict(X), weighted.labels_)


def test_an_empty_cluster_is_filled_again(overdispersed):
    X, _ = overdispersed
    start = np.vstack([X[:2] + 1, np.eye(1, X.shape[1])])
    for divergence in ("negative-binomial", NegativeBinomial(1.0, "fit")):
        assert len(np.unique(ONMF(3, beta_loss=divergence, init=start).fit(X).labels_)) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_zeros_of_the_rows_are_counted(overdispersed, engine):
    """The sums over the nonzeros and the series for the zeros together are the sums over all entries."""
    X, labels = overdispersed
    scales, C = X.sum(axis=1).astype(float), np.random.default_rng(1).random((3, X.shape[1])) / 30
    C[:, 3] = 0
    entries = CentroidEntries.of(C)
    there, here = (make_block(name, X, NB()).evaluate(labels, scales, entries) for name in ("reference", engine))
    assert to_host(here) == pytest.approx(there, rel=1e-11)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_zero_in_a_centroid_does_not_mislead_the_search_for_a_scale(engine):
    """There φ'' of x^1.5 is infinite."""
    rng = np.random.default_rng(4)
    X = rng.poisson(rng.gamma(0.4, 5, size=(300, 8))) + (np.arange(8) == 0)
    start = np.where(rng.random((4, 8)) < 0.5, 0.0, rng.random((4, 8))) + np.eye(4, 8)
    closed = ONMF(4, beta_loss=1.5, init=start, max_iter=300).fit(X)
    found = ONMF(4, beta_loss=power(1.5), init=start, max_iter=300, engine=engine).fit(X)
    assert np.array_equal(found.labels_, closed.labels_)
    assert found.reconstruction_err_ == pytest.approx(closed.reconstruction_err_, rel=1e-9)


def test_a_weighted_mean_of_ones_is_a_probability(tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(20):
        X = (rng.random((30, 6)) < 0.5).astype(float)
        X[:, 2] = 1
        model = ONMF(3, beta_loss="bernoulli", init="random", random_state=0).fit(X, sample_weight=rng.random(30) + 0.1)
        assert np.isfinite(model.reconstruction_err_)
        assert model.cluster_centers_.max() == 1
        model.save(tmp_path / "model.onmf")
        ONMF(3, beta_loss="bernoulli", init=model.cluster_centers_).fit(X)


@pytest.mark.parametrize("beta_loss", ["exponential", Bregman(exp, exp, exp, domain="real")])
@pytest.mark.parametrize("entry", [709, 709.0, -1e100])
def test_entries_whose_loss_float64_cannot_compute_are_refused(beta_loss, entry):
    rows = np.array([[1, 2], [entry, 1], [0, 3]])
    if entry > 0 or beta_loss == "exponential":
        with pytest.raises(ValueError, match=r"Input X is out of range: .*[Bb]rings? .*entries near 1"):
            ONMF(2, beta_loss=beta_loss).fit(rows)
    for X in (np.clip(rows, -400, 400), csr_array(np.clip(rows, -400, 400)), lambda: iter([np.clip(rows, -400, 400)])):
        model = ONMF(2, beta_loss=beta_loss).fit(X)
        assert np.isfinite([model.reconstruction_err_, model.score(X)]).all()
        assert model.score(X) <= 0
        assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


@pytest.mark.short("measures memory")
def test_a_wide_range_takes_little_memory():
    X = np.array([[1.0, 1e120], [3.0, 1e60], [1e90, 2.0]])
    for divergence in (NegativeBinomial(), NegativeBinomial(scale="fit"), power(1.5)):
        tracemalloc.start()
        model = ONMF(2, beta_loss=divergence, init=X[:2]).fit(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 60e6
        assert np.isfinite(model.reconstruction_err_)
        with pytest.raises(ValueError, match="computes with sizes from 1e-125 to 1e\\+125"):
            ONMF(2, beta_loss=divergence).fit(X * 1e120)


@pytest.mark.parametrize("scale", ["size", "fit"])
@pytest.mark.parametrize("unit", [0.1, 1.0, 100.0])
@pytest.mark.filterwarnings("ignore:Not converged")
def test_any_smooth_function_can_have_scales(scale, unit):
    """Also those whose ψ is a small difference of large numbers."""
    X = unit * np.random.default_rng(0).poisson(3.0, size=(40, 6)) + unit
    for divergence in (
        Bregman(lambda x: x * x + x, lambda x: 2 * x + 1, lambda x: 2.0, scale=scale),
        Bregman(lambda x: sqrt(1 + x * x), lambda x: x / sqrt(1 + x * x), lambda x: (1 + x * x) ** -1.5, scale=scale),
        Bregman(lambda x: (1 + x) * log(1 + x), lambda x: log(1 + x) + 1, lambda x: 1 / (1 + x), scale=scale),
    ):
        found, plain = (ONMF(3, beta_loss=divergence, init=X[:3], engine=engine) for engine in ("cpu", "reference"))
        assert np.array_equal(found.fit(X).labels_, plain.fit(X).labels_)
        assert found.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=1e-6)


def test_a_function_with_other_variables_is_compiled_again():
    def made(exponents, settings):
        def inner(x):
            def power(y):
                return y**OUTSIDE

            return power(x)

        return [inner, lambda x: x ** exponents[0], lambda x: x**settings.exponent]

    settings = ModuleType("settings")
    for exponent in (1.5, 3.0):
        global OUTSIDE
        OUTSIDE = settings.exponent = exponent
        for function in made((exponent,), settings):
            out = np.empty(1)
            map_entries(address_of(function), np.array([4.0]), out)
            assert out[0] == pytest.approx(4.0**exponent)
    outer = np.array([1.5])
    functions = lambda x: x ** outer[0], lambda x: outer[0] * x ** (outer[0] - 1), lambda x: 0.75 * x**-0.5
    Bregman(*functions)
    outer[0] = 3.0
    with pytest.raises(ValueError, match="phi was compiled before with other values of its outer variables"):
        Bregman(*functions)


def test_an_object_does_not_follow_its_variables():
    """A loop shares one variable among its functions."""
    made = []
    for a in (1.5, 3.0):
        functions = lambda x: x**a, lambda x: a * x ** (a - 1), lambda x: a * (a - 1) * x ** (a - 2)  # noqa: B023
        made.append(Bregman(*functions))
    copies = [deepcopy(made[0]), made[0].unsmoothed(), pickle.loads(pickle.dumps(COSH_OF_MODULE))]
    assert made[0].phi(4.0) == pytest.approx(8.0)
    assert made[1].phi(4.0) == pytest.approx(64.0)
    assert [copies[0].phi(4.0), copies[1].phi(4.0)] == pytest.approx([8.0, 8.0])
    assert copies[2].slope(1.0) == pytest.approx(exp(1.0))


def test_the_same_functions_are_compiled_once():
    """Compiled code stays in memory for ever."""
    X = rows_for(NB())
    for beta in (1.5, 1.6):
        ONMF(2, beta_loss=power(beta), init=X[:2]).fit(X)
    known = len(jit.FUNCTIONS)
    for _ in range(3):
        for beta in (1.5, 1.6):
            ONMF(2, beta_loss=power(beta), init=X[:2]).fit(X)
    assert len(jit.FUNCTIONS) == known
    assert power(1.7).slope(4.0) == pytest.approx(4**0.7 / 0.7)
    assert len(jit.FUNCTIONS) > known


def test_refusals(overdispersed, tmp_path):
    X, _ = overdispersed
    with pytest.raises(ValueError, match="negative-binomial has none"):
        ONMF(3, beta_loss="negative-binomial", init="bisection").fit(X)
    with pytest.raises(ValueError, match="Values above 1"):
        ONMF(3, beta_loss="bernoulli").fit(X)
    with pytest.raises(ValueError, match="the largest entry of row 1 is 800, and the exponential divergence computes"):
        ONMF(1, beta_loss="exponential").fit([[1.0, 2.0], [800.0, 1.0]])
    with pytest.raises(ValueError, match="holds no code"):
        ONMF(2, beta_loss=COSH).fit(rows_for(COSH)).save(tmp_path / "model.onmf")
    with pytest.raises(ValueError, match="use scale='none'"):
        Bregman(exp, exp, exp, domain="real", scale="fit")
    with pytest.raises(ValueError, match="theta=0"):
        NegativeBinomial(0)


def test_phi_must_be_convex_where_the_entries_are():
    divergence = Bregman(lambda x: x * x - x**3 / 90, lambda x: 2 * x - x * x / 30, lambda x: 2 - x / 15)
    rows = np.array([[1.0, 20.0], [20.0, 1.0]])
    assert len(np.unique(ONMF(2, beta_loss=divergence).fit_predict(rows))) == 2
    for X in (10 * rows, csr_array(10 * rows), lambda: iter([rows, 10 * rows])):
        with pytest.raises(ValueError, match=r"phi is not convex where X has entries, from 10? to 200"):
            ONMF(2, beta_loss=divergence).fit(X)


@pytest.mark.parametrize("wrong", [None, "1", [1.0], np.array([1.0, 2.0]), True, float("nan"), -1.0])
def test_parameters_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"theta=.* is not allowed"):
        NegativeBinomial(wrong)
    for make in (Bernoulli, partial(NegativeBinomial, 1.0, "size")):
        with pytest.raises(ValueError, match=r"smoothing=.* is not allowed"):
            make(smoothing=wrong)


def test_a_theta_of_numpy_is_a_number(overdispersed, tmp_path):
    divergence = NegativeBinomial(np.float32(2.0), smoothing=np.float32(0.5))
    assert divergence == NegativeBinomial(2.0, smoothing=0.5)
    assert repr(divergence) == "NegativeBinomial(theta=2.0, scale='size', smoothing=0.5)"
    ONMF(3, beta_loss=divergence).fit(overdispersed[0]).save(tmp_path / "model.onmf")
    assert onmf.load(tmp_path / "model.onmf").divergence_ == divergence


@numba.njit
def helper(x):
    if x > 100:
        raise ValueError("too large")
    return x * x


def raising(x):
    if x > 5:
        raise ValueError("too large")
    return exp(x)


def raising_later(x):
    if x > 100:
        raise ValueError("too large")
    return exp(x)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((lambda x: x * x, lambda x: 3 * x, lambda x: 3.0), "slope is not the derivative of phi: at "),
        ((lambda x: x * x, lambda x: 2 * x, lambda x: 1.0), "curvature is not the derivative of slope"),
        ((lambda x: -x * x, lambda x: -2 * x, lambda x: -2.0), "phi is not convex"),
        ((lambda x: float(str(x)), exp, exp), "phi cannot be compiled by numba"),
        ((lambda x: log(x - 1), exp, exp), "phi raises an error between 0.05 and 11, .*: "),
        ((lambda x: x * log(x), lambda x: log(x) + 1, lambda x: 1 / x), r"phi\(0\) is not finite.* its limit there"),
        ((raising, exp, exp), "phi raises an error between 0.05 and 11, .*: too large"),
        ((raising_later, exp, exp), "phi has a raise or assert, which compiled code swallows"),
        (
            (lambda x: helper(x), lambda x: 2 * x, lambda x: 2.0),
            "phi has a raise or assert, which compiled code swallows",
        ),
    ],
)
def test_functions_that_do_not_fit_are_refused(functions, message):
    with pytest.raises(ValueError, match=message):
        Bregman(*functions)
