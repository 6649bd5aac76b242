"""Hundreds of difficult inputs: no crash, no hang, no NaN, and the caller's data stay unchanged."""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from conftest import make_block, prepare
from onmf import ONMF, metrics, snpa
from onmf.divergence import get_divergence

LOSSES = st.sampled_from(["kullback-leibler", "frobenius", "cosine", 0.5, 0.25, 1.5, 3.0])
STARTS = st.sampled_from(["snpa", "++", "random", "random-partition"])
UGLY = st.sampled_from([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 0.5, 1e-9, 1e9, 1e-30, 1e30])
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 5))


@pytest.fixture(scope="module", autouse=True)
def in_16_bits():
    """Sparse rows are labelled by templates in 16 bits, however few they are."""
    with patch("onmf.backend.cpu.FEW_PRODUCTS", 0):
        yield


@st.composite
def problems(draw):
    X = draw(arrays(np.float64, draw(SHAPES), elements=UGLY))
    if draw(st.booleans()):
        X = X[draw(st.lists(st.integers(0, len(X) - 1), min_size=1, max_size=12))]  # repeat rows
    return X, draw(st.integers(1, len(X)))


@settings(max_examples=400)
@given(problems(), LOSSES, STARTS, st.sampled_from([0.0, 1e-3, 1.0]), st.booleans(), st.integers(0, 3))
@pytest.mark.short("many made-up inputs")
def test_any_input_gives_a_clustering(problem, loss, init, smoothing, sparse, seed):
    X, k = problem
    kept = X.copy()
    data = csr_array(X) if sparse else X
    model = ONMF(k, beta_loss=loss, init=init, smoothing=smoothing, random_state=seed, n_threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # also ConvergenceWarning; all others are errors
        model.fit(data)
        labels, H = model.predict(data), model.transform(data).toarray()
    assert np.array_equal(X, kept)
    assert model.labels_.min() >= 0
    assert model.labels_.max() < k
    assert np.isfinite(model.scales_).all()
    assert (model.scales_ >= 0).all()
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.reconstruction_err_)
    assert np.isfinite(model.score(data))
    assert np.isfinite(H).all()
    assert np.count_nonzero(H, axis=1).max(initial=0) <= 1
    G = model.clustering_.H @ model.clustering_.H.T
    filled = np.diag(G.toarray()) > 0
    assert np.allclose(G.toarray(), np.diag(filled.astype(float)), atol=1e-9)
    if model.stop_reason_ != "max_iter" and loss == "kullback-leibler":
        assert np.array_equal(labels, model.labels_)


@settings(max_examples=100)
@given(problems(), LOSSES, st.booleans())
def test_engines_agree_on_ugly_input(problem, loss, sparse):
    X, k = problem
    data = csr_array(X) if sparse else X
    divergence = get_divergence(loss)
    templates = divergence.templates(X[:k] + 0.1)
    losses = []
    for name in ("reference", "cpu"):
        block = make_block(name, data, divergence)
        losses.append(block.assign(prepare(block, templates)).losses)
        size = np.abs(block.constants) + np.abs(losses[-1]) + 1
    assert np.all(np.abs(losses[0] - losses[1]) <= 1e-12 * size)


@settings(max_examples=100)
@given(problems())
def test_snpa_never_repeats_a_row_it_can_avoid(problem):
    X, k = problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)
        rows = snpa(X, k)
    usable = np.count_nonzero(X.any(axis=1))
    assert len(rows) == k
    assert len(set(rows.tolist())) == min(k, max(usable, 1))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=30), st.randoms())
def test_accuracy_does_not_depend_on_names(pairs, random):
    y_true, y_pred = map(np.array, zip(*pairs, strict=True))
    names = random.sample(range(100), 7)
    renamed = np.array(names)[y_pred]
    accuracy = metrics.clustering_accuracy(y_true, y_pred)
    assert accuracy == metrics.clustering_accuracy(y_true, renamed)
    assert np.mean(y_true == y_pred) <= accuracy <= 1
