"""Whole fits of every divergence on every engine, form and place, against the reference backend and a plain formula.

A new divergence joins with one line in ``DIVERGENCES``, and one with its formula in ``fuzz/divergences.py``.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from examples.weighted_divergence import WeightedKullbackLeibler
from fuzz.divergences import Background, ByLength, Doubled, Favoured, Root, SquaredDistance, own_phi, published
from scipy.sparse import csr_array
from test_backends import MADE, OTHERS

from onmf import ONMF
from onmf.backend import CpuBackend, ReferenceBackend, to_host
from onmf.data import Blocks, Dask
from onmf.divergence import NegativeBinomial, get_divergence
from onmf.divergence.consistency import check_consistent

N, FEATURES = 150, 12

DIVERGENCES = {
    "kullback-leibler": get_divergence(1),
    "kullback-leibler, unsmoothed": get_divergence(1, 0.0),
    "frobenius": get_divergence(2),
    "cosine": get_divergence("cosine"),
    "beta 1.5": get_divergence(1.5),
    "beta 3": get_divergence(3),
    "beta 0.5": get_divergence(0.5),
    "beta -0.5": get_divergence(-0.5),
    "itakura-saito": get_divergence(0),
    "negative binomial": NegativeBinomial(),
    "negative binomial, unsmoothed": NegativeBinomial(smoothing=0.0),
    "negative binomial, fitted": NegativeBinomial(scale="fit"),
    "bernoulli": get_divergence("bernoulli"),
    "exponential": get_divergence("exponential"),
    "own φ": own_phi("none"),
    "own φ, by size": own_phi("size"),
    "own φ, fitted": own_phi("fit"),
    "own class, templates": Background(),
    "own class, offsets": Favoured(),
    "own class, weights": ByLength(),
    "own class, no scale": SquaredDistance(),
    "own class, weights of features": WeightedKullbackLeibler(tuple(0.5 + 0.1 * j for j in range(FEATURES))),
    "own class, φ of NumPy": Root("fit"),
    "own class, φ of NumPy, by size": Root("size"),
    "own class, another φ": Doubled(),
}


def rows_of(divergence, n=N, p=FEATURES):
    """Rows in the domain of a divergence, with zeros if it has them."""
    rng = np.random.default_rng(7)
    means = rng.gamma(0.5, size=(3, p))[rng.integers(3, size=n)] * rng.uniform(2, 30, size=(n, 1))
    if divergence.domain == "positive":
        return means * rng.gamma(5, 0.2, size=(n, p)) + 0.05
    X = rng.poisson(means).astype(np.float64)
    X[:, 0] += 1  # no row is zero
    if divergence.domain == "unit":
        return (X > 2).astype(np.float64)
    return X / 10 - 0.5 if divergence.name == "exponential" else X


WEIGHTS = (None, np.random.default_rng(1).integers(0, 3, N) / 2)


def places(backend, X):
    """Engines with the same rows and weights: in memory, in blocks and as a Dask collection."""
    cuts = [0, 60, 61, N]
    parts = [X[start:stop] for start, stop in pairwise(cuts)]
    yield backend, X, lambda w: w
    yield Blocks(backend), lambda: iter(parts), lambda w: w
    try:
        import dask
        import dask.array as da
    except ImportError:
        return
    chunks = (tuple(np.diff(cuts)),)
    yield Dask(backend), [dask.delayed(part) for part in parts], lambda w: da.from_array(w, chunks=chunks)


@cache
def reference(name, weighted):
    """The fit of the reference backend."""
    divergence = DIVERGENCES[name]
    X = rows_of(divergence)
    return ONMF(4, engine=ReferenceBackend(), **options_of(divergence)).fit(X, sample_weight=WEIGHTS[weighted])


def options_of(divergence):
    start = rows_of(divergence)[:4]
    start = {"unit": start * 0.8 + 0.1, "real": start}.get(divergence.domain, start + 0.1)
    return {"beta_loss": divergence, "init": start, "max_iter": 12}


@pytest.mark.short("every divergence on every backend; users' own classes are slow")
@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.filterwarnings("ignore:Not converged")
def test_fits_are_those_of_the_reference(name, engine, form, monkeypatch):
    monkeypatch.setattr("onmf.backend.threads.WORTH_A_THREAD", 100)
    monkeypatch.setattr("onmf.backend.cpu.FEW_PRODUCTS", 0)
    divergence = DIVERGENCES[name]
    X = rows_of(divergence)
    if form is csr_array and divergence.domain == "positive":
        pytest.skip("this divergence takes no zeros, so no sparse rows")
    if engine == "gpu" and divergence.curved and divergence.cuda_functions is None:
        with pytest.raises(ValueError, match="engine='gpu' cannot compute"):
            ONMF(4, engine="gpu", **options_of(divergence)).fit(form(X))
        return
    for weighted, weights in enumerate(WEIGHTS):
        expected = reference(name, weighted)
        for place, rows, own in places(MADE[engine](), form(X)):
            model = ONMF(4, engine=place, **options_of(divergence))
            model.fit(rows, sample_weight=None if weights is None else own(weights))
            assert np.array_equal(np.asarray(model.labels_), expected.labels_)
            assert model.n_iter_ == expected.n_iter_
            assert model.stop_reason_ == expected.stop_reason_
            assert np.asarray(model.scales_) == pytest.approx(expected.scales_, rel=1e-6, abs=1e-12)
            assert to_host(model.cluster_centers_) == pytest.approx(expected.cluster_centers_, rel=1e-6, abs=1e-12)
            assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-9)
            assert np.asarray(model.margins_) == pytest.approx(expected.margins_, rel=1e-6, abs=1e-9)
            found = (np.asarray(model.labels_), np.asarray(model.scales_), to_host(model.cluster_centers_))
            formula, _ = published(divergence, X, np.ones(N) if weights is None else weights, *found)
            assert model.reconstruction_err_ == pytest.approx(formula, rel=1e-7)
            assert np.array_equal(np.asarray(model.predict(rows)), expected.predict(X))
            chances = np.asarray(model.predict_proba(rows))
            assert np.array_equal(chances.argmax(axis=1), expected.predict(X))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_every_divergence_keeps_what_backends_rely_on(name, monkeypatch):
    divergence = DIVERGENCES[name]
    monkeypatch.setattr(type(divergence), "__module__", "a user's")
    check_consistent(divergence, FEATURES)


# Every method that a subclass can override, changed a little. The fit is that of the reference, or it is refused.


def shifted(vectors):
    """Vectors with their features weighted by 0.8 to 1.2."""
    return vectors * np.linspace(0.8, 1.2, vectors.shape[1])


CHANGES = {
    "templates": lambda own, C: shifted(own.templates(C)),
    "offsets": lambda own, C: own.normalise(C)[:, 0] * 3,
    "size": lambda own, C: 2 * own.size(C),
    "normalise": lambda own, C: shifted(own.normalise(C)),
    "scale": lambda own, best, terms: 1.3 * own.scale(best, terms),
    "weight": lambda own, scale, terms: own.weight(scale, terms) / (1 + scale),
    "constant": lambda own, terms: 1 + own.constant(terms),
    "gain": lambda own, best, scale, terms: 2 * own.gain(best, scale, terms),
    "objective": lambda own, sums, mass, loss, constant: own.objective(sums, mass, loss, constant) + loss,
    "centers": lambda own, sums, mass: shifted(own.centers(sums, mass)),
    "smooth": lambda own, C, at_least=0.0: 0.9 * own.smooth(C, at_least),
    "row_size": lambda own, terms: 2 * own.row_size(terms),
    "loss": lambda own, best, scale, terms, constants=None: 2 * own.loss(best, scale, terms, constants),
    "initial_centroids": lambda own, C: shifted(own.initial_centroids(C)),
}
CONTRADICTIONS = [("bernoulli", "scale"), ("bernoulli", "size"), ("bernoulli", "centers")]
BASES = ["kullback-leibler", "frobenius", "cosine", "beta 1.5", "beta 0.5", "bernoulli", "negative binomial, fitted"]


def overridden(base, method):
    """An object of a subclass that overrides one method, with the fields of ``base``."""
    change = CHANGES[method]
    body = {"__module__": "a user's", method: lambda self, *args, **options: change(base, *args, **options)}
    made = object.__new__(type("Changed", (type(base),), body))
    vars(made).update(vars(base))
    return made


@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("name", BASES)
@pytest.mark.filterwarnings("ignore:Not converged", "ignore:Only .* clusters hold rows")
def test_no_engine_ignores_a_method_that_a_subclass_overrides(name, method):
    base = DIVERGENCES[name]
    divergence, X = overridden(base, method), rows_of(base)
    options = options_of(base) | {"beta_loss": divergence}
    if (base.curved and method not in ("smooth", "row_size")) or (name, method) in CONTRADICTIONS:
        with pytest.raises(ValueError, match=r"Changed (overrides|has) "):
            ONMF(4, **options).fit(X)
        return
    expected = ONMF(4, engine=ReferenceBackend(), **options).fit(X)
    for rows in (X, csr_array(X)):
        for engine, placed in ((CpuBackend(1), rows), (Blocks(CpuBackend(1)), lambda rows=rows: iter([rows]))):
            model = ONMF(4, engine=engine, **options).fit(placed)
            assert np.array_equal(model.labels_, expected.labels_)
            assert model.scales_ == pytest.approx(expected.scales_, rel=1e-6, abs=1e-12)
            assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-6, abs=1e-10)
            assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-8, abs=1e-9)
            assert model.margins_ == pytest.approx(expected.margins_, rel=1e-5, abs=1e-8)
            assert np.array_equal(model.predict(placed), expected.predict(X))
            assert model.score(placed) == pytest.approx(expected.score(X), rel=1e-8)
