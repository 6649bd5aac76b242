"""Rows that come in blocks: the same clusters as rows in memory."""

import pickle

import numpy as np
import pytest

from conftest import make_counts
from onmf import ONMF
from onmf.divergence import get_divergence
from onmf.engine import BlockEngine, RowBlocks, get_engine

LOSSES = ("kullback-leibler", "frobenius", "cosine", 1.5, 0.5)


class Blocks(RowBlocks):
    """An array in blocks, one of them empty."""

    def __init__(self, X, cuts):
        self.X, self.cuts = X, np.array([0, *cuts, len(X)])
        self.shape, self.dtype = X.shape, X.dtype

    def block(self, number):
        return self.X[self.cuts[number] : self.cuts[number + 1]].copy()


@pytest.fixture
def blocks():
    X = make_counts(np.random.default_rng(4), n=200, p=30, k=4)[0].astype(np.float32)
    return Blocks(X, [1, 70, 70, 150])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inner", ["cpu", "reference"])
def test_steps_agree_with_the_reference(blocks, loss, inner):
    X, divergence = blocks.X.astype(float), get_divergence(loss)
    weights = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    reference, engine = get_engine("reference", X), BlockEngine(get_engine(inner))
    held = engine.hold(blocks, divergence, weights), reference.hold(X, divergence, weights)
    for rows in ([0, 5, 9, 20], [1, 5, 9, 30]):
        templates = divergence.templates(X[rows] + 0.5)
        found, expected = engine.step(held[0], templates), reference.step(held[1], templates)
        for field in ("sums", "mass", "counts", "scale_squares", "overlap", "loss", "moved"):
            assert getattr(found, field) == pytest.approx(getattr(expected, field), rel=1e-12), field
    for mine, theirs in zip(engine.collect(held[0]), reference.collect(held[1]), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-13)
    for mine, theirs in zip(engine.assign(held[0], templates), reference.assign(held[1], templates), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-9)
    assert engine.scores(blocks, templates) == pytest.approx(reference.scores(X, templates))
    assert engine.row_term(blocks, np.square) == pytest.approx(reference.row_term(X, np.square))
    labels = np.arange(len(X)) % 3
    assert engine.sum_by_label(blocks, labels, weights, 3) == pytest.approx(
        reference.sum_by_label(X, labels, weights, 3)
    )
    index = np.array([199, 0, 69, 70, 0])
    assert np.array_equal(engine.rows(blocks, index), X[index])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_from_blocks_is_the_fit_from_memory(blocks, loss):
    expected = ONMF(4, beta_loss=loss, init=blocks.X[[0, 5, 9, 20]] + 0.5).fit(blocks.X)
    model = ONMF(4, beta_loss=loss, init=blocks.X[[0, 5, 9, 20]] + 0.5, engine=BlockEngine(get_engine("cpu")))
    model.fit(blocks)
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.n_iter_ == expected.n_iter_
    assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-12)
    assert model.margins_ == pytest.approx(expected.margins_, rel=1e-9, abs=1e-9)
    assert np.array_equal(model.predict(blocks), expected.predict(blocks.X))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(blocks), model.labels_)
    with pytest.raises(ValueError, match="X has 29 features, but ONMF is expecting 30"):
        model.predict(Blocks(blocks.X[:, 1:].copy(), []))


def test_an_empty_cluster_is_filled_from_blocks():
    X = np.repeat(np.eye(3), 4, axis=0) + np.arange(12)[:, None] % 4 * 0.01
    start = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 1.0]])
    expected = ONMF(3, init=start).fit(X)
    found = ONMF(3, init=start, engine=BlockEngine(get_engine("cpu"))).fit(Blocks(X, [5, 7]))
    assert len(np.unique(found.labels_)) == 3
    assert np.array_equal(found.labels_, expected.labels_)


def test_progress_and_refusals(blocks):
    said = []
    engine = BlockEngine(get_engine("cpu"), lambda what, share: said.append((what, share)))
    ONMF(3, init="++", random_state=0, engine=engine).fit(blocks)
    assert ("iteration 1", 0.0) in said
    assert ("iteration 2", 1.0) in said
    with pytest.raises(ValueError, match="cannot take this data: it takes blocks of rows"):
        ONMF(3, engine=engine).fit(blocks.X)
    with pytest.raises(ValueError, match="local search goes through single rows"):
        ONMF(3, init="random", engine=engine, refine="local-search").fit(blocks)
