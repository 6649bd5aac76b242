"""Sketches of array rows: the labels are those of exact scores, whatever the rows and templates are."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import assert_same_bits
from onmf import ONMF
from onmf.backend import CpuBackend, cpu
from onmf.backend.cpu import Screening
from onmf.backend.threads import Threads
from onmf.datasets import make_scene
from onmf.divergence import Frobenius

RNG = np.random.default_rng(0)
N, P = 500, 40


@pytest.fixture
def always(monkeypatch):
    """Sketches for any number of rows, however few of them they decide."""
    monkeypatch.setattr(cpu, "WORTHWHILE", 1)
    monkeypatch.setattr(cpu, "USELESS", 2.0)


def mixtures(k: int = 3) -> np.ndarray:
    """Rows near few directions, as the pixels of an image are."""
    return RNG.poisson(RNG.dirichlet(np.ones(k), N) @ (200 * RNG.random((k, P)))).astype(np.float64)


def labelled(X, B, starts=None, threads=1, features=None):
    """The labels by sketches, and how many rows were scored in full; the sketches are of other templates."""
    k = len(B)
    stored = np.zeros((k + k % 2, B.shape[1]))
    stored[:k] = B
    offsets = np.zeros(len(stored))
    offsets[:k] = 0 if starts is None else starts
    screening = Screening(X, Threads(threads), features)
    assert (
        screening.screen(stored * RNG.uniform(0.999, 1.001, stored.shape), offsets, k, X.sum(axis=0)[None]) is not None
    )
    screen = screening.screen(stored, offsets, k, X.sum(axis=0)[None])
    assert screen is not None
    labels = np.empty(len(X), dtype=np.int32)
    return labels, screen(0, len(X), labels)


def exact(X, B, starts=None):
    backend = CpuBackend()
    block = backend.make_block(X, Frobenius())  # any that takes all of these rows
    return backend.best_template(block.rows, block.prepare_templates(B, starts))[0]


ENGINES = ("cpu", "reference")
KINDS = {
    "mixtures": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "tiny": lambda X: X * 1e-42,
    "large": lambda X: X * 1e20,
    "of all sizes": lambda X: X * 10.0 ** RNG.integers(-40, 20, (N, 1)),
    "zero": lambda X: np.where(RNG.random((N, 1)) < 0.5, X, 0.0),
    "noise": lambda X: RNG.random((N, P)),
    "negative": lambda X: X - X.mean(),
}


@pytest.mark.short("the first of them compiles the kernels of sketches")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
@pytest.mark.usefixtures("always")
def test_labels_are_those_of_exact_scores(kind, k):
    X = KINDS[kind](mixtures())
    B = np.log(X[RNG.choice(N, k)].astype(np.float64).clip(1e-45) + 1e-3 * RNG.random((k, P)))
    labels, _ = labelled(X, B)
    np.testing.assert_array_equal(labels, exact(X, B))
    starts = RNG.normal(size=k) * np.abs(X).max()
    labels, _ = labelled(X, B, starts)
    np.testing.assert_array_equal(labels, exact(X, B, starts))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "negative"])
@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.usefixtures("always")
def test_columns_of_groups_are_part_of_the_templates(kind, groups):
    X = KINDS[kind](mixtures())
    rows, codes = np.arange(N), RNG.integers(groups, size=N)
    indicators = np.zeros((N, groups), dtype=X.dtype)
    indicators[rows, codes] = X.sum(axis=1, dtype=np.float64)
    X = np.hstack([X, indicators])
    B = np.log(X[RNG.choice(N, 7), :P].astype(np.float64).clip(1e-45) + 1e-3 * RNG.random((7, P)))
    B = np.hstack([B, 0.5 * RNG.standard_normal((7, groups))])
    labels, left_open = labelled(X, B, features=P)
    np.testing.assert_array_equal(labels, exact(X, B))
    if kind == "mixtures":
        assert left_open < N / 2


@pytest.mark.usefixtures("always")
def test_sketches_decide_mixtures():
    X = mixtures()
    B = np.log([part.mean(axis=0) for part in np.array_split(X[np.argsort(X[:, 0])], 5)])
    _, scored = labelled(X, B)
    assert scored < N / 4


@pytest.mark.parametrize("apart", [0.0, 1e-16, 1e-15, 1e-12, 1e-8, 1e-7, 1e-6, 1e-4])
@pytest.mark.usefixtures("always")
def test_near_ties_are_decided_by_exact_scores(apart):
    # Each row lies halfway between two templates, up to a part that is about as small as an error bound.
    B = RNG.normal(size=(8, P))
    B /= np.sqrt(np.square(B).sum(axis=1, keepdims=True))
    first, second = RNG.integers(0, 8, N), RNG.integers(0, 8, N)
    X = 1e3 * (B[first] + B[second]) + 1e3 * apart * RNG.normal(size=(N, P))
    for rows in (X, X.astype(np.float32)):
        labels, scored = labelled(rows, B)
        np.testing.assert_array_equal(labels, exact(rows, B))
        if apart <= 1e-8:
            assert scored >= np.count_nonzero(first != second) / 2


@pytest.mark.usefixtures("always")
def test_equal_templates_tie_at_the_lowest():
    X, B = mixtures(), RNG.random((3, P))
    labels, scored = labelled(X, B[[0, 1, 1, 2, 0]])
    assert set(labels) <= {0, 1, 3}
    np.testing.assert_array_equal(labels, exact(X, B[[0, 1, 1, 2, 0]]))
    assert scored >= np.isin(labels, [0, 1]).sum()


def test_templates_beyond_float32_are_refused(always):
    X, B = mixtures(), RNG.random((4, P))
    screening = Screening(X, Threads(1))
    assert screening.screen(1e30 * B, np.zeros(4), 4, X[:1]) is None
    assert screening.screen(B, np.zeros(4), 4, X[:1]) is None, "it stays off"


@pytest.mark.parametrize("beta_loss", [1, 2, "cosine", 0, 1.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_fits_are_the_same_without_sketches(monkeypatch, beta_loss, weighted):
    X = make_scene(40, 40, 60, 5, random_state=1).X + 1.0
    weights = RNG.integers(0, 3, len(X)).astype(float) if weighted else None
    start = X[RNG.choice(len(X), 6, replace=False)]
    fits = []
    for least in (1, 10**9):
        monkeypatch.setattr(cpu, "WORTHWHILE", least)
        model = ONMF(6, beta_loss=beta_loss, init=start, verbose=0)
        fits.append(model.fit(X, sample_weight=weights))
    sketched, plain = fits
    np.testing.assert_array_equal(sketched.labels_, plain.labels_)
    assert sketched.n_iter_ == plain.n_iter_ > 2
    np.testing.assert_allclose(sketched.components_, plain.components_, rtol=1e-10)
    assert sketched.reconstruction_err_ == pytest.approx(plain.reconstruction_err_, rel=1e-10)


@pytest.mark.parametrize("beta_loss", [1, 2])
def test_threads_do_not_change_a_bit(beta_loss):
    X = make_scene(100, 100, 60, 5, random_state=1).X.astype(np.float32)
    assert_same_bits(*(ONMF(6, beta_loss=beta_loss, n_threads=threads).fit(X) for threads in (1, 2, 8)))


@pytest.mark.filterwarnings("ignore:Not converged")
@pytest.mark.parametrize("name", ["samson", "jasper"])
@pytest.mark.parametrize("k", [4, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_of_images_are_those_of_the_reference(paper_set, name, k, dtype):
    X = paper_set(name)[0].astype(dtype)
    start = X[np.random.default_rng(k).choice(len(X), k, replace=False)] + 1e-3
    for beta_loss in (1, 2):
        models = [ONMF(k, beta_loss=beta_loss, init=start, engine=engine, max_iter=30).fit(X) for engine in ENGINES]
        np.testing.assert_array_equal(models[0].labels_, models[1].labels_)


@pytest.mark.short("needs many rows")
def test_sketches_are_made_anew_when_templates_have_moved(always):
    X, B = mixtures(), np.log(mixtures()[:6] + 1.0)
    screening = Screening(X, Threads(1))
    assert screening.screen(B, np.zeros(6), 6, X[:1]) is not None
    Q, Z = screening._Q, screening._Z
    screening.record_open(0, 6)
    screening.record_open(N, 6)  # they take as long as four of the eight directions of a sketch
    assert screening.screen(B, np.zeros(6), 6, X[:1]) is not None
    assert screening._Q is Q
    screening.record_open(N, 6)
    moved = RNG.permutation(B.T).T
    fresh = screening.screen(moved, np.zeros(6), 6, X[:1])
    assert fresh is not None
    assert screening._Q is not Q
    assert screening._Z is Z, "in the same memory"
    labels = np.empty(N, dtype=np.int32)
    fresh(0, N, labels)
    np.testing.assert_array_equal(labels, exact(X, moved))
