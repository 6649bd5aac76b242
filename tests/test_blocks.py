"""Batches with known sizes, names and access to single blocks: same clusters as rows in memory, and progress."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import make_counts
from onmf import ONMF
from onmf.data import Blocks, get_engine
from onmf.data.dask import join_columns
from onmf.data.intake import clearly_allowed
from onmf.data.validate import check_entries
from onmf.divergence import get_divergence

LOSSES = ("kullback-leibler", "frobenius", "cosine", 1.5, 0.5)


class Batches:
    """An array in blocks, one of them empty. Counts how often each block is read."""

    def __init__(self, X, cuts):
        self.parts = np.split(X, cuts)
        self.sizes = [len(part) for part in self.parts]
        self.read = [0] * len(cuts) + [0]

    def __call__(self):
        return map(self.block, range(len(self.parts)))

    def block(self, number):
        self.read[number] += 1
        return self.parts[number]


@pytest.fixture
def X():
    return make_counts(np.random.default_rng(4), n=200, p=30, k=4)[0].astype(np.float32)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("inner", ["cpu", "reference"])
def test_a_fit_from_blocks_is_the_fit_from_memory(X, loss, inner):
    options = {"beta_loss": loss, "init": X[[0, 5, 9, 20]] + 0.5}
    expected = ONMF(4, **options, engine=inner).fit(X)
    blocks = Batches(X, [1, 70, 70, 150])
    model = ONMF(4, **options, engine=Blocks(get_engine(inner).backend)).fit(blocks)
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.n_iter_ == expected.n_iter_
    assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-12)
    assert model.margins_ == pytest.approx(expected.margins_, rel=1e-9, abs=1e-9)
    assert np.array_equal(model.predict(blocks), expected.predict(X))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(blocks), model.labels_)
    with pytest.raises(ValueError, match="X has 29 features, but ONMF is expecting 30"):
        model.predict(Batches(X[:, 1:].copy(), []))


def test_an_empty_cluster_is_filled_from_blocks():
    X = np.repeat(np.eye(3), 4, axis=0) + np.arange(12)[:, None] % 4 * 0.01
    start = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 1.0]])
    expected = ONMF(3, init=start).fit(X)
    found = ONMF(3, init=start).fit(Batches(X, [5, 7]))
    assert len(np.unique(found.labels_)) == 3
    assert np.array_equal(found.labels_, expected.labels_)


def test_a_drawn_row_costs_its_block_alone(X):
    blocks = Batches(X, [50, 100, 150])
    ONMF(3, init="random", max_iter=50, random_state=0).fit(blocks)
    without = Batches(X, [50, 100, 150])
    ONMF(3, init="random", max_iter=50, random_state=0).fit(lambda: without())
    assert min(blocks.read) < min(without.read), "no row in some block: it is read in passes over all rows alone"
    assert sum(blocks.read) - 4 * min(blocks.read) == 3, "three rows were drawn, each with one reading of its block"


def test_progress(X):
    said = []
    engine = Blocks(get_engine("cpu").backend, lambda what, share: said.append((what, share)))
    model = ONMF(3, init="++", random_state=0, engine=engine).fit(Batches(X, [50, 150]))
    iterations = [(what, share) for what, share in said if what.startswith("iteration")]
    assert iterations[:4] == [("iteration 1", 0.0), ("iteration 1", 0.25), ("iteration 1", 0.75), ("iteration 1", 1.0)]
    assert iterations[-1] == (f"iteration {model.n_iter_}", 1.0)
    assert said[:2] == [("reading", 0.0), ("reading", 0.25)]
    assert [what for what, share in said if "start" in what and share == 1] == [
        f"choosing a start, pass {number}" for number in (1, 2, 3)
    ]
    assert said[-1] == ("looking at the clusters", 1.0)


def test_a_batch_has_the_size_that_is_said(X):
    wrong = Batches(X, [50])
    wrong.sizes = [60, 140]
    with pytest.raises(ValueError, match="In batch 0: 50 rows, where X says that it has 60"):
        ONMF(3).fit(wrong)


@pytest.mark.parametrize("sparse_first", [False, True])
@pytest.mark.parametrize("place", ["batches", "delayed blocks", "pieces", "columns"])
@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "negative-binomial"])
def test_dense_and_sparse_rows_mix(X, loss, place, sparse_first):
    delayed = pytest.importorskip("dask").delayed

    def mixed(parts):
        return [csr_array(part) if i % 2 != sparse_first else part for i, part in enumerate(parts)]

    parts = mixed(np.split(X, [50, 90, 140]))
    rows = {
        "batches": lambda: iter(parts),
        "delayed blocks": list(map(delayed, parts)),
        "pieces": lambda: iter([parts[:2], iter(parts[2:])]),
        "columns": [delayed(join_columns(mixed(np.split(part, [12], axis=1)))) for part in np.split(X, [50])],
    }[place]
    one, found = (ONMF(4, beta_loss=loss).fit(data) for data in (X, rows))
    assert np.array_equal(np.asarray(found.labels_), one.labels_)
    assert np.array_equal(found.init_rows_, one.init_rows_)
    assert found.cluster_centers_ == pytest.approx(one.cluster_centers_, rel=1e-12)


@pytest.mark.parametrize("loss", [*LOSSES, 3, 20, 0])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "i8", "u1", "u8"])
def test_a_look_lets_nothing_pass_that_is_not_allowed(loss, dtype):
    divergence = get_divergence(loss)
    integers = dtype[0] in "iu"
    info = (np.iinfo if integers else np.finfo)(dtype)
    entries = [0, 1, 7, info.max, info.min, -1]
    entries += [] if integers else [np.nan, np.inf, -np.inf, -0.0, 0.5, 1e30]
    found = set()
    for entry in entries:
        x = np.ones((3, 4), dtype=dtype)
        x[1, 2] = np.array(entry).astype(dtype)
        try:
            check_entries(x, divergence)
        except ValueError:
            assert not clearly_allowed(x, divergence), entry
        else:
            found.add(clearly_allowed(x, divergence))
    assert loss == 0 or True in found, "it is there to spare a second look"
