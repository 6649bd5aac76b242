"""Better optima: local search, restarts in parallel, consensus, margins, probabilities."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import xlogy

from conftest import assert_same_bits, make_block
from onmf import ONMF
from onmf.backend import CpuBackend
from onmf.datasets import make_counts
from onmf.divergence import get_divergence
from onmf.fit.restarts import agreement_of, votes_of
from onmf.fit.search import Search, halve, local_search
from onmf.metrics import clustering_accuracy


def kl_objective(X, labels, k):
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    S = np.stack([X[labels == c].sum(axis=0) for c in range(k)])
    s, T = X.sum(axis=1), S.sum(axis=1)
    return xlogy(X, X).sum() - xlogy(s, s).sum() - xlogy(S, S).sum() + xlogy(T, T).sum()


def cosine_objective(X, labels, k):
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    U = np.divide(X, norms, out=np.zeros_like(X), where=norms > 0)
    return (norms > 0).sum() - sum(np.linalg.norm(U[labels == c].sum(axis=0)) for c in range(k))


def single_moves(labels, k):
    """Every row in every cluster: the row, the cluster, and the labels after this move."""
    for i, c in product(range(len(labels)), range(k)):
        other = labels.copy()
        other[i] = c
        yield i, c, other


OBJECTIVES = {"kullback-leibler": kl_objective, "cosine": cosine_objective}


def kinds(X):
    """The same rows in every form with a separate code path: integers or not, sparse or dense, small or large."""
    return {
        "counts": csr_array(X.astype(np.int32)),
        "counts in float32": csr_array(X.astype(np.float32)),
        "dense counts": X.astype(np.int64),
        "large counts": X.astype(np.float64) * 2**20,
        "fractions": csr_array(X / 7),
        "dense fractions": X / 7,
        "dense fractions in float32": (X / 7).astype(np.float32),
    }


@pytest.fixture(scope="module")
def small():
    made = make_counts(60, 25, 4, length=30, overlap=0.6, random_state=3)
    X = made.X.toarray()
    X[11] = 0
    return X


class FrozenOnHost:
    """All rows of an array against sums that do not change."""

    def __init__(self, X, labels, k):
        self.X, self.labels = X, labels
        self.sums = np.stack([X[labels == c].sum(axis=0) for c in range(k)])
        self.masses, self.squares = X.sum(axis=1), np.square(X).sum(axis=1)

    def products(self):
        return self.X @ self.sums.T

    def rises(self):
        own = self.labels[:, None] == np.arange(len(self.sums))
        S = np.where(own[:, :, None], np.maximum(self.sums - self.X[:, None], 0), self.sums)
        return (xlogy(S + self.X[:, None], S + self.X[:, None]) - xlogy(S, S)).sum(axis=2)


class AllAtOnce(CpuBackend):
    """Tries all moves at once, as a GPU does."""

    def trial(self, block):
        def gaining(labels, k):
            weights = np.where(labels >= 0, block.fixed_weights, 0.0)
            X = weights[:, None] * block.dense(np.arange(len(block)))
            return block.divergence.moves.gaining(FrozenOnHost(X, np.maximum(labels, 0), k))

        return gaining


@pytest.mark.parametrize("beta_loss", OBJECTIVES)
def test_costs_of_all_moves_at_once(small, beta_loss):
    k, divergence = 4, get_divergence(beta_loss)
    labels = np.random.default_rng(0).integers(k, size=len(small)).astype(np.int32)
    block = make_block("cpu", small.astype(float), divergence)
    frozen = FrozenOnHost(block.fixed_weights[:, None] * small, labels, k)
    costs = divergence.moves.costs(frozen)
    before = OBJECTIVES[beta_loss](small, labels, k)
    for i, c, other in single_moves(labels, k):
        change = OBJECTIVES[beta_loss](small, other, k) - before
        assert costs[i, c] - costs[i, labels[i]] == pytest.approx(change, abs=1e-9)
    gaining = divergence.moves.gaining(frozen)
    assert 0 < gaining.sum() < len(small)
    assert not gaining[11], "it has no entries"


@pytest.mark.parametrize("beta_loss", OBJECTIVES)
@pytest.mark.parametrize("kind", list(kinds(np.ones((2, 2)))))
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("backend", ["cpu", AllAtOnce()])
def test_no_single_move_improves_what_local_search_leaves(small, beta_loss, kind, seed, backend):
    check_local_search(backend, small, beta_loss, kind, seed)


def check_local_search(backend, small, beta_loss, kind, seed):
    X, k = kinds(small)[kind], 4
    rng = np.random.default_rng(seed)
    divergence = get_divergence(beta_loss)
    search = Search.over(
        make_block(backend, X, divergence) if isinstance(backend, str) else backend.make_block(X, divergence)
    )
    start = rng.integers(k, size=len(small)).astype(np.int32)
    result = local_search(search, start, k, rng)
    objective = OBJECTIVES[beta_loss]
    before, after = objective(X, start, k), objective(X, result.labels, k)
    assert result.moved > 0
    assert before - after == pytest.approx(result.gain, rel=1e-9)
    assert set(result.labels) == set(range(k))
    for _, _, other in single_moves(result.labels, k):
        assert objective(X, other, k) >= after * (1 - 1e-9)


@pytest.mark.parametrize("beta_loss", OBJECTIVES)
def test_weights_are_repeats(small, beta_loss):
    X = np.delete(small, 11, axis=0)
    weights = np.arange(len(X)) % 3 + 1.0
    search = Search.over(make_block("cpu", X, get_divergence(beta_loss), weights))
    result = local_search(search, np.arange(len(X), dtype=np.int32) % 3, 3, np.random.default_rng(0))
    often = np.repeat(X, weights.astype(int), axis=0)
    objective = OBJECTIVES[beta_loss]
    after = objective(often, np.repeat(result.labels, weights.astype(int)), 3)
    for _, _, other in single_moves(result.labels, 3):
        assert objective(often, np.repeat(other, weights.astype(int)), 3) >= after * (1 - 1e-9)


def test_rows_of_counts_are_made_once_for_all_runs(small):
    kl = get_divergence("kullback-leibler")
    block = make_block("cpu", small, kl)
    search = Search.over(block)
    (bounds, ones, features, counts), *_ = search.shared
    for i, row in enumerate(small):
        here = slice(bounds[i], bounds[i + 1])
        assert np.array_equal(counts[here][: ones[i] - here.start], np.ones((row == 1).sum()))
        assert np.array_equal(np.bincount(features[here], counts[here], len(row)), row)
    assert Search.over(make_block("cpu", small + 0.5, kl)).shared is None


@pytest.mark.parametrize("beta_loss", OBJECTIVES)
@pytest.mark.parametrize("kind", [csr_array, np.asarray])
def test_refined_fits_are_consistent_and_never_worse(small, beta_loss, kind):
    X = kind(np.delete(small, 11, axis=0))
    plain = ONMF(4, beta_loss=beta_loss).fit(X)
    fine = ONMF(4, beta_loss=beta_loss, refine="local-search", random_state=0).fit(X)
    assert fine.reconstruction_err_ <= plain.reconstruction_err_ * (1 + 1e-12)
    assert fine.reconstruction_err_ == pytest.approx(OBJECTIVES[beta_loss](X, fine.labels_, 4), rel=1e-9)
    assert (plain.n_sweeps_, fine.n_sweeps_ > 0) == (0, True)
    H = fine._output(fine.labels_, fine.scales_)
    assert (H.T @ H).toarray() == pytest.approx(np.eye(4), abs=1e-9)
    again = ONMF(4, beta_loss=beta_loss, refine="local-search", random_state=0)
    assert np.array_equal(again.fit_predict(X), fine.labels_)


def test_a_cluster_never_empties():
    X = np.array([[9, 0, 0], [8, 1, 0], [9, 0, 1], [7, 1, 1]])
    for seed in range(5):
        model = ONMF(4, init="random", refine="local-search", random_state=seed).fit(X)
        assert sorted(model.labels_) == [0, 1, 2, 3]


@pytest.mark.parametrize("beta_loss", [2, 0.5, 0])
def test_a_start_by_moves_without_a_closed_form_says_so(small, beta_loss):
    with pytest.raises(ValueError, match=r"has none: use beta_loss='kullback-leibler' or 'cosine', or init="):
        ONMF(3, beta_loss=beta_loss, init="bisection").fit(small + 1)


@pytest.mark.parametrize("refine", [None, "local-search"])
@pytest.mark.parametrize("init", ["random-partition", "random", "++", "bisection", "consensus"])
def test_the_same_bits_on_any_number_of_threads(init, refine):
    X = make_counts(300, 120, 5, random_state=0).X
    options = {"init": init, "n_init": 1 if init == "consensus" else 5, "refine": refine, "random_state": 4}
    assert_same_bits(*(ONMF(5, n_threads=n, **options).fit(X) for n in (1, 2, 8)))


def test_restarts_in_parallel_keep_the_best():
    X = make_counts(300, 120, 5, overlap=0.7, random_state=0).X
    kept = ONMF(5, init="random-partition", n_init=6, random_state=1, n_threads=3).fit(X)
    seen = []
    for seed in np.random.RandomState(1).randint(np.iinfo(np.int32).max, size=6):
        rng = np.random.default_rng(int(seed))
        labels = rng.integers(5, size=300)
        start = np.stack([X[labels == c].sum(axis=0) for c in range(5)])
        seen.append(ONMF(5, init=start).fit(X).reconstruction_err_)
    assert kept.reconstruction_err_ == min(seen)
    assert len(kept.history_["moved"]) == kept.n_iter_


class TestBisection:
    @pytest.mark.parametrize("beta_loss", OBJECTIVES)
    @pytest.mark.parametrize("kind", list(kinds(np.ones((2, 2)))))
    def test_halves_are_clusters_of_their_own(self, small, beta_loss, kind):
        X = kinds(small)[kind]
        search = Search.over(make_block("cpu", X, get_divergence(beta_loss)))
        rows = np.arange(0, len(small), 2)
        gain, second = halve(search, rows, np.random.default_rng(0))
        assert set(second) < set(rows)
        objective, labels = OBJECTIVES[beta_loss], np.isin(rows, second).astype(np.int32)
        whole = objective(X[rows], np.zeros(len(rows), dtype=np.int32), 1)
        assert gain == pytest.approx(whole - objective(X[rows], labels, 2), rel=1e-6)

    @pytest.mark.parametrize("beta_loss", OBJECTIVES)
    def test_clusters_that_are_far_apart(self, beta_loss):
        made = make_counts(200, 80, 7, overlap=0.1, random_state=1)
        for seed in range(3):
            model = ONMF(7, beta_loss=beta_loss, init="bisection", random_state=seed).fit(made.X)
            assert clustering_accuracy(made.y, model.labels_) > 0.99

    @pytest.mark.filterwarnings("ignore:.*rows of X are zero everywhere")
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_fewer_directions_than_clusters(self):
        X = np.array([[1, 2], [2, 4], [0, 0], [3, 6], [5, 0]])
        labels = ONMF(4, init="bisection", random_state=0).fit(X).labels_
        assert labels[0] == labels[1] == labels[3] != labels[4]

    def test_weights(self, small):
        X, weights = np.delete(small, 11, axis=0), np.ones(len(small) - 1)
        weights[:20] = 0
        model = ONMF(3, init="bisection", random_state=0).fit(X, sample_weight=weights)
        rest = ONMF(3, init="bisection", random_state=0).fit(X[20:])
        assert model.reconstruction_err_ == pytest.approx(rest.reconstruction_err_, rel=0.02)


class TestConsensus:
    def test_votes_are_counts_of_labels(self):
        votes = votes_of(np.array([[0, 1], [1, 1]], dtype=np.int32), 2)
        assert votes.toarray().tolist() == [[1, 0, 0, 1], [0, 1, 0, 1]]

    def test_agreement_by_hand(self):
        labels = np.array([[0, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.int32)  # rows × runs
        agreement = agreement_of(votes_of(labels, 2), np.array([0, 0, 1]), 2)
        assert agreement.rows.tolist() == pytest.approx([2 / 3, 2 / 3, 1.0])  # together in two of the three runs; alone
        assert agreement.overall == pytest.approx(7 / 9)

    def test_runs_that_agree_agree(self):
        made = make_counts(200, 150, 3, overlap=0.0, length=200, random_state=0)
        model = ONMF(3, init="consensus", refine="local-search", random_state=0).fit(made.X)
        assert model.agreement_.overall == pytest.approx(1.0, abs=0.05)
        assert len(model.agreement_.rows) == 200
        assert ONMF(3).fit(made.X).agreement_ is None

    def test_finds_what_most_runs_find(self):
        made = make_counts(400, 300, 8, overlap=0.5, length=60, random_state=1)
        single = [
            clustering_accuracy(made.y, ONMF(8, init="random-partition", random_state=s).fit_predict(made.X))
            for s in range(5)
        ]
        model = ONMF(8, init="consensus", refine="local-search", random_state=0)
        assert clustering_accuracy(made.y, model.fit_predict(made.X)) > np.mean(single)


class TestHowSure:
    @pytest.mark.parametrize("beta_loss", [1, 2, 0.5, 0, 1.5, "cosine"])
    @pytest.mark.parametrize("engine", ["cpu", "reference"])
    def test_margins_are_differences_of_losses(self, small, beta_loss, engine):
        X = np.delete(small, 11, axis=0) + 1.0
        model = ONMF(4, beta_loss=beta_loss, engine=engine).fit(X)
        divergence = get_divergence(beta_loss)
        block = make_block("reference", X, divergence)
        losses = np.stack([block.assign(block.prepare(model.cluster_centers_[[c]])).losses for c in range(4)], axis=1)
        rows = np.arange(len(X))
        own = losses[rows, model.labels_]
        losses[rows, model.labels_] = np.inf
        expected = (losses.min(axis=1) - own) / divergence.row_size(block.terms)
        assert model.margins_ == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def test_margins_of_rows_without_anything(self, small):
        with pytest.warns(UserWarning, match="1 of 60 rows"):
            model = ONMF(4).fit(small)
        assert model.margins_[11] == 0

    def test_probabilities(self, small):
        X = np.delete(small, 11, axis=0)
        model = ONMF(4).fit(X)
        sharp, soft = model.predict_proba(X), model.predict_proba(X, temperature=20)
        assert sharp.shape == (59, 4)
        assert sharp.sum(axis=1) == pytest.approx(np.ones(59))
        assert np.array_equal(sharp.argmax(axis=1), model.predict(X))
        assert np.array_equal(soft.argmax(axis=1), model.predict(X))
        assert soft.max(axis=1).mean() < sharp.max(axis=1).mean()
        C = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
        likelihood = np.exp(X @ np.log(C + 1e-3).T)
        assert sharp == pytest.approx(likelihood / likelihood.sum(axis=1, keepdims=True))
        with pytest.raises(ValueError, match="temperature=0 is not allowed"):
            model.predict_proba(X, temperature=0)

    def test_probabilities_where_nothing_explains_a_row(self):
        model = ONMF(2, smoothing=0).fit(np.array([[3, 1, 0, 0], [4, 1, 0, 0], [0, 0, 5, 0], [0, 0, 4, 0]]))
        assert model.predict_proba([[0, 0, 0, 2]]).tolist() == [[0.5, 0.5]]
        assert model.predict_proba([[1, 0, 0, 0]]).max() == 1
