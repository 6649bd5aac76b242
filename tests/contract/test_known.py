"""Known rows and seed features: every step against the plain formula, centroids against a numeric minimiser, places."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from test_backends import MADE, OTHERS
from test_groups import made, places

import onmf
from conftest import assert_same_bits
from onmf import ONMF
from onmf.backend import to_host
from onmf.data import InMemory
from onmf.data.known import Known, priors_of, without_known
from onmf.divergence import KullbackLeibler
from onmf.fit.adapt import ALONE, ODDS, USUAL, choose, folds_of
from onmf.fit.known import Guide, GuidedSteps

K, P = 3, 12
NOTHING = np.zeros((K, P))


def some_known(labels, number=3, clusters=None, seed=0):
    """The labels of so many rows of each cluster, and -1 for the others."""
    rng, known = np.random.default_rng(seed), np.full(len(labels), -1)
    for cluster in np.unique(labels) if clusters is None else clusters:
        own = rng.permutation(np.flatnonzero(labels == cluster))[:number]
        known[own] = cluster
    return known


def wrongly_known(labels, number=3, seed=0):
    """The same, but each cluster has rows of another one."""
    known = some_known(labels, number, seed=seed)
    return np.where(known < 0, -1, (known + 1) % K)


def plain_centroids(X, labels, known, adapt, w=None, priors=NOTHING, share=0.0):
    """The centroids by their definition, of sum 1, for labels that known rows agree with."""
    w = np.ones(len(X)) if w is None else w
    C = np.zeros((len(priors), X.shape[1]))
    for k in range(len(C)):
        own = labels == k
        factor = np.where(own & (known < 0) & (known == k).any(), adapt, 1.0)
        total = (w * own * factor) @ X
        C[k] = total / max(total.sum(), 1e-300) + share * priors[k]
        C[k] /= C[k].sum()
    return C


def step_data(X, known, engine, k=K, weights=None, adapt=1.0, priors=NOTHING, share=0.0):
    given = Known.of(known, k, relative=False).weighted(weights)
    block = MADE[engine]().make_block(X, KullbackLeibler(), without_known(weights, given.free))
    data = InMemory(block)
    data.known = given
    data.guide = Guide.of(data, adapt, priors, share)
    return data


@pytest.mark.parametrize("engine", ["reference", *OTHERS])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("adapt", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seeded", [False, True])
def test_every_step_is_that_of_the_plain_formula(engine, form, adapt, seeded):
    X, labels, _ = made(120)
    known, rng = wrongly_known(labels), np.random.default_rng(1)
    known[known == 2] = -1  # of one cluster nothing is known
    w, priors = rng.integers(1, 4, len(X)).astype(float), np.zeros((K, P))
    if seeded:
        priors[[0, 2]] = rng.dirichlet(np.ones(P), 2)
    data = step_data(form(X.astype(float)), known, engine, weights=w, adapt=adapt, priors=priors, share=0.5)
    C = rng.dirichlet(np.ones(P), K)
    steps = GuidedSteps(data.steps(C.copy()), data)
    for _ in range(5):
        expected = np.where(known < 0, (X @ np.log(C + 1e-3).T).argmax(axis=1), known)
        step = steps.next()
        found = to_host(data.part.run.collect().labels)
        assert np.array_equal(found[known < 0], expected[known < 0])
        totals = w * X.sum(axis=1)
        assert step.mass == pytest.approx(np.bincount(expected, totals, K))
        assert step.scale_squares == pytest.approx(np.bincount(expected, totals * X.sum(axis=1), K))
        sums = np.stack([(w * (expected == k)) @ X for k in range(K)])
        assert to_host(step.sums) == pytest.approx(sums)
        steps.update(step, more=True)
        C = plain_centroids(X, expected, known, adapt, w, priors, 0.5)
        W = to_host(steps.centroids)
        assert W / W.sum(axis=1, keepdims=True) == pytest.approx(C, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("adapt", [0.3, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_centroids_are_the_minimum_for_their_labels(adapt, share):
    """To 1e-8, against a numeric minimiser of the weighted divergence of the rows and the seeds."""
    X, labels, _ = made(150)
    X = X + 1
    known, priors = wrongly_known(labels), np.zeros((K, P))
    if share:
        priors[1, :4] = 0.25
    seeds = {"seeds": {1: [0, 1, 2, 3]}, "known": known} if share else {"known": known}
    model = ONMF(K, adapt=adapt, seed_share=max(share, 0.1)).fit(X, **seeds)
    labels, weights = model.labels_, np.where(known < 0, adapt, 1.0)
    totals = np.bincount(labels, weights * X.sum(axis=1), K)

    def loss(values):
        log_w = values.reshape(K, P)
        log_w = log_w - np.log(np.exp(log_w).sum(axis=1, keepdims=True))
        rows = weights * (X * log_w[labels]).sum(axis=1)
        return -rows.sum() - share * (totals[:, None] * priors * log_w).sum()

    start = np.log(np.full(K * P, 1 / P))
    best = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-16})
    C = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
    assert loss(np.log(C).ravel()) == pytest.approx(best.fun, rel=1e-8)
    assert pytest.approx(plain_centroids(X, labels, known, adapt, None, priors, share), rel=1e-9) == C


@pytest.mark.filterwarnings("ignore:The clusters of some groups hold no rows of the others")
@pytest.mark.parametrize("adapt", [0, 0.1])
@pytest.mark.parametrize("nested", [False, True])
def test_centroids_are_the_minimum_for_the_multipliers_of_their_groups(adapt, nested):
    """Also if each cluster is a group of its own, which tells nothing about multipliers."""
    X, labels, own = made(150)
    own, known = labels if nested else own, some_known(labels, 4)
    model = ONMF(K, adapt=adapt, random_state=0).fit(X, known=known, groups=own)
    labels, s = model.labels_, model.group_effects_
    weights = np.where(known < 0, adapt, 1.0)
    S = np.stack([(weights * (labels == k)) @ X for k in range(K)])
    m = np.stack([np.bincount(own, weights * (labels == k) * X.sum(axis=1), len(s)) for k in range(K)])
    W = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
    for w, sums, counts in zip(W, S, m, strict=True):

        def loss(values, has=sums > 0, sums=sums, counts=counts):
            inside = s[:, has] @ np.exp(values)
            return (counts * np.log(inside)).sum() - (sums[has] * values).sum()

        best = minimize(loss, np.zeros((sums > 0).sum()), method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**6})
        assert (w > 0).tolist() == (sums > 0).tolist()
        assert loss(np.log(w[sums > 0])) == pytest.approx(best.fun, rel=1e-7)


def test_without_adapting_rows_go_where_a_multinomial_classifier_puts_them():
    X, labels, _ = made(300)
    known = some_known(labels, 4)
    free, rows = known < 0, np.random.default_rng(5).poisson(3, (200, P))
    model = ONMF(K, adapt=0, smoothing=0.01).fit(X, known=known)
    means = np.stack([X[known == k].sum(axis=0) for k in range(K)])
    classifier = MultinomialNB(alpha=0.01, fit_prior=False).fit(means / means.sum(axis=1, keepdims=True), np.arange(K))
    assert np.array_equal(model.labels_[free], classifier.predict(X[free]))
    assert np.array_equal(model.predict(rows), classifier.predict(rows))
    assert model.adapt_ == 0


@pytest.mark.parametrize(
    ("adapt", "weighted", "others"), [(0.3, False, False), (0.3, True, True), ("auto", False, False)]
)
def test_every_place_gives_the_same_bits(adapt, weighted, others):
    """Also with labels and weights that are lists, series or Dask collections."""
    X, labels, _ = made(120)
    da = pytest.importorskip("dask.array")
    weights = np.random.default_rng(2).integers(1, 3, len(X)).astype(float) if weighted else None
    known = some_known(labels, clusters=[0, 2]) if others else wrongly_known(labels)
    model = ONMF(K, random_state=0, n_init=2, adapt=adapt)
    expected = clone(model).fit(X, known=known, sample_weight=weights)
    assert np.array_equal(expected.labels_[known >= 0], known[known >= 0]), "known rows stay"
    for name, rows, _ in places(X, known):
        given, own = known, weights
        if name == "frame":
            given = pd.Series(known)
        elif name == "dask groups":
            given, own = da.from_array(known, chunks=50), da.from_array(weights, chunks=40) if weighted else None
        other = clone(model).fit(rows, known=given, sample_weight=own)
        assert np.array_equal(np.asarray(other.labels_), expected.labels_), name
        assert np.array_equal(other.cluster_centers_, expected.cluster_centers_), name
        assert np.asarray(other.scales_) == pytest.approx(expected.scales_, rel=1e-12)
        assert np.asarray(other.margins_) == pytest.approx(expected.margins_, rel=1e-9, abs=1e-9)
        assert other.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-12)
        assert other.adapt_ == expected.adapt_
        assert other.divergence_ == expected.divergence_


@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("adapt", [0, 0.2, 1, "auto"])
def test_every_backend_finds_the_clusters_of_the_reference(engine, adapt):
    X, labels, own = made(150, sd=0.4)
    known = wrongly_known(labels)
    for groups in (None, own):
        model = ONMF(K, random_state=0, n_init=2, adapt=adapt)
        expected = clone(model).set_params(engine="reference").fit(X, known=known, groups=groups)
        for form in (np.asarray, csr_array):
            found = clone(model).set_params(engine=MADE[engine]()).fit(form(X), known=known, groups=groups)
            assert np.array_equal(found.labels_, expected.labels_)
            assert np.array_equal(found.labels_[known >= 0], known[known >= 0])
            assert found.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-8, abs=1e-12)
            assert found.scales_ == pytest.approx(expected.scales_, rel=1e-9)
            assert found.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-9)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr("onmf.backend.threads.WORTH_A_THREAD", 256)
    X, labels, own = made(400)
    known = some_known(labels, clusters=[0, 1])
    for groups in (None, own):
        assert_same_bits(
            *(ONMF(K, random_state=0, n_threads=n).fit(csr_array(X), known=known, groups=groups) for n in (1, 2, 8))
        )


def test_weights_are_repeated_rows():
    X, labels, own = made(120)
    known, w = some_known(labels), np.random.default_rng(4).integers(0, 4, len(X))
    w[known >= 0] = np.maximum(w[known >= 0], 1)
    for groups in (None, own):
        repeated_groups = None if groups is None else np.repeat(groups, w)
        model = ONMF(K, adapt=0.3, init=X[:K] + 0.5)
        weighted = clone(model).fit(X, sample_weight=w, known=known, groups=groups)
        repeated = clone(model).fit(np.repeat(X, w, axis=0), known=np.repeat(known, w), groups=repeated_groups)
        assert np.array_equal(np.repeat(weighted.labels_, w), repeated.labels_)
        assert np.repeat(weighted.scales_, w) == pytest.approx(repeated.scales_, rel=1e-9)
        assert weighted.cluster_centers_ == pytest.approx(repeated.cluster_centers_, rel=1e-8)
        assert weighted.reconstruction_err_ == pytest.approx(repeated.reconstruction_err_, rel=1e-12)


def test_the_model_is_what_the_page_says():
    """Scales and objective of all rows; the centroids are those of weighted sums; H Hᵀ = I."""
    X, labels, _ = made(200)
    known = some_known(labels, 4)
    known[np.flatnonzero(known == 0)[0]] = 1
    for adapt in (1, 0.2):
        model = ONMF(K, adapt=adapt).fit(X, known=known)
        assert pytest.approx(np.eye(K), abs=1e-12) == (model.clustering_.H @ model.clustering_.H.T).toarray()
        assert model.scales_ * model.cluster_centers_.sum(axis=1)[model.labels_] == pytest.approx(X.sum(axis=1))
        C = plain_centroids(X, model.labels_, known, adapt)
        assert model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True) == pytest.approx(C)
        if adapt != 1:
            C = C + model.divergence_.smoothing
            C /= C.sum(axis=1, keepdims=True)
        fitted = X.sum(axis=1)[:, None] * C[model.labels_]
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(X > 0, X * np.log(X / fitted), 0.0).sum()
        assert model.reconstruction_err_ == pytest.approx(loss, rel=1e-9)
        free = known < 0
        assert np.array_equal(model.predict(X)[free], model.labels_[free])
        assert (model.margins_[~free] < 0).any(), "some known rows fit another cluster better"


def test_known_rows_that_are_where_the_fit_puts_them_change_nothing():
    """If all rows count alike: neither centroids nor multipliers, scales or the objective."""
    X, _, own = made(300, sd=0.3)
    for groups in (None, own):
        plain = ONMF(K, random_state=0, smoothing=1e-3).fit(X, groups=groups)
        again = ONMF(K, init=plain.cluster_centers_, smoothing=1e-3)
        known = np.where(np.arange(len(X)) % 3 == 0, plain.labels_, -1)
        expected, model = clone(again).fit(X, groups=groups), clone(again).set_params(adapt=1)
        model.fit(X, groups=groups, known=known)
        assert np.array_equal(model.labels_, expected.labels_)
        assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-6)
        assert model.scales_ == pytest.approx(expected.scales_, rel=1e-6)
        assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-9)
        if groups is not None:
            assert model.group_effects_ == pytest.approx(expected.group_effects_, rel=1e-5)


@pytest.mark.usefixtures("capsys")
def test_iterations_show_the_objective_of_the_end():
    X, labels, own = made(200)
    for groups in (None, own):
        for adapt in (1, 0.2):
            model = ONMF(K, adapt=adapt, verbose=1, n_init=1, random_state=0)
            model.fit(X, known=some_known(labels), groups=groups)
            assert model.history_["objective"][-1] == pytest.approx(model.reconstruction_err_, rel=1e-9)


def test_known_rows_help_to_find_the_others():
    X, labels, _ = made(400, groups=1, k=5, sd=0.0, seed=3)
    known = some_known(labels, 5, clusters=[1, 3])
    model = ONMF(5, random_state=0).fit(X, known=known)
    assert np.mean(model.labels_[np.isin(labels, [1, 3])] == labels[np.isin(labels, [1, 3])]) > 0.9
    assert set(model.labels_) == set(range(5)), "clusters that are not known are found, also those in between"


def test_known_rows_are_no_starts_and_fill_no_cluster():
    X = np.array([[9, 1, 0], [8, 1, 0], [0, 9, 1], [0, 8, 1], [0, 1, 9], [1, 0, 7]])
    known = [0, 0, 1, -1, -1, -1]
    for init in ("++", "random", "random-partition"):
        model = ONMF(3, init=init, random_state=0, adapt=1).fit(X, known=known)
        assert model.labels_.tolist() == [0, 0, 1, 1, 2, 2]


def test_rows_of_batches_and_known_ones():
    """Clusters that follow the groups without known rows follow the known rows with them."""
    X, labels, own = made(400, groups=2, seed=7, sd=1.5)
    known = some_known(labels, 6)
    model = ONMF(K, random_state=0).fit(X, known=known, groups=own)
    assert np.array_equal(model.labels_[known >= 0], known[known >= 0])
    assert np.mean(model.labels_ == labels) > 0.9
    assert model.group_effects_.shape == (2, P)
    free = known < 0
    assert np.array_equal(model.predict(X, groups=own)[free], model.labels_[free])


class TestAdapt:
    def test_rows_that_are_left_out_choose(self):
        X, labels, _ = made(400, groups=1, sd=0.0, seed=2)
        wrong = labels.copy()
        wrong[labels == 2] = 1  # what is known contradicts the clusters
        known = some_known(wrong, 8)
        known[(known == 1) & (labels == 2)] = 2
        model = ONMF(K, random_state=0).fit(X, known=known)
        again = ONMF(K, random_state=1, n_threads=1).fit(csr_array(X), known=known)
        assert 0 <= model.adapt_ <= 1
        assert model.adapt_ == again.adapt_, "nothing about it is random"

    def test_a_row_that_is_left_out_leaves_no_trace(self, monkeypatch):
        """No two rows share a feature, so only a fit that knows a row puts it into another cluster than the first."""
        found = []
        monkeypatch.setattr("onmf.fit.adapt.choose", lambda correct: found.append(correct) or 0)
        ONMF(2).fit(9 * np.eye(12, dtype=int), known=[0, 1] * 5 + [-1, -1])
        assert found[0].shape == (len(ODDS), 10)
        assert found[0][0].sum() == 5

    def test_one_row_of_each_cluster_tells_nothing(self):
        X, labels, _ = made(400)
        known = some_known(labels, 1)
        model = ONMF(K).fit(X, known=known)
        held = X[known >= 0].sum() / X[known < 0].sum()
        assert model.adapt_ == pytest.approx(10 * held), "all free rows count ten times as much as all known ones"

    def test_the_best_value_wins_and_then_the_nearest_to_the_usual_one(self):
        correct = np.zeros((len(ODDS), 4), dtype=bool)
        assert choose(correct) == USUAL
        assert choose(correct[:, :0]) == ALONE
        correct[[0, 2]] = True
        assert choose(correct) == 2
        correct[2, 0] = False
        assert choose(correct) == 0

    def test_folds_leave_a_row_of_each_cluster(self):
        labels = np.array([0, 0, 0, 0, 0, 1, 2, 2, 2], dtype=np.int32)
        known = Known(20, np.arange(9), labels, np.ones(9), relative=False)
        usable = np.arange(9) != 8
        folds = folds_of(known, usable)
        assert folds[5] == folds[8] == -1, "the only one, and one that cannot be used"
        assert sorted(folds[:5]) == [0, 0, 1, 1, 2]
        assert sorted(folds[6:8]) == [0, 1]

    def test_smoothing_follows_from_the_sums(self):
        X, labels, own = made(400)
        X = 50 * X
        known = some_known(labels, 4)
        held, free = X[known >= 0].sum(), X[known < 0].sum()
        for adapt in (0, 0.1, 1, "auto"):
            model = ONMF(K, adapt=adapt).fit(X, known=known)
            mean = (held + model.adapt_ * free) / K
            assert model.divergence_.smoothing == pytest.approx(0.3 / mean)
        assert ONMF(K).fit(X / 1e6, known=known).divergence_.smoothing == 1e-3, "at most the usual one"
        assert ONMF(K + 1, random_state=0).fit(X, known=known).divergence_.smoothing == 1e-3, "some are not known"
        assert ONMF(K, smoothing=0.02).fit(X, known=known).divergence_.smoothing == 0.02
        grouped = ONMF(K, random_state=0).fit(X, known=known, groups=own)
        assert grouped.divergence_.smoothing == 0.01 / P, "as without known rows"


class TestSeeds:
    X = np.random.default_rng(0).poisson(1, (60, 8)) + np.kron(np.eye(3), np.full((20, 2), 6)) @ np.eye(6, 8)
    labels = np.repeat(np.arange(3), 20)

    def test_clusters_follow_their_seeds(self):
        names = [f"w{j}" for j in range(8)]
        frame = pd.DataFrame(self.X, columns=names)
        by_number = ONMF(3, random_state=0).fit(self.X, seeds={2: [0, 1], 0: {2: 1.0, 3: 2.0}})
        assert np.mean(by_number.labels_ == np.array([2, 0, 1])[self.labels]) > 0.9
        by_name = ONMF(3, random_state=0).fit(frame, seeds={"a": ["w4", "w5"], "b": ["w0"]})
        assert np.mean(by_name.labels_ == np.array([1, 2, 0])[self.labels]) > 0.9
        assert by_name.adapt_ is None

    def test_they_stay_in_the_sums(self):
        """A share s of the rows' weight: the centroid is (S / |S| + s q) / (1 + s)."""
        model = ONMF(3, random_state=0, seed_share=0.5).fit(self.X, seeds={1: {7: 3.0, 6: 1.0}})
        q = np.zeros(8)
        q[[7, 6]] = 0.75, 0.25
        S = self.X[model.labels_ == 1].sum(axis=0)
        C = model.cluster_centers_[1] / model.cluster_centers_[1].sum()
        assert pytest.approx((S / S.sum() + 0.5 * q) / 1.5) == C

    def test_seeds_that_no_row_follows_are_said(self):
        X = np.array([[90, 1, 0, 1], [80, 1, 0, 0], [0, 90, 0, 1], [0, 80, 1, 0]] * 5)
        with pytest.warns(UserWarning, match="No row follows the seeds of the cluster 2: it is empty"):
            model = ONMF(3, random_state=0, seed_share=0.1).fit(X, seeds={0: [0], 1: [1], 2: [2]})
        assert 2 not in model.labels_
        assert model.predict([[0, 0, 7, 0]]).tolist() == [2], "the cluster is there for new rows"

    def test_known_rows_and_seeds(self):
        known = np.full(60, -1)
        known[[0, 20]] = 0, 1
        model = ONMF(3, random_state=0).fit(self.X, known=known, seeds={2: [4, 5]})
        assert np.mean(model.labels_ == self.labels) > 0.9

    def test_every_place_gives_the_same_bits(self):
        model = ONMF(3, random_state=0, n_init=2)
        expected = clone(model).fit(self.X, seeds={1: [0], 2: [2, 3]})
        for name, rows, _ in places(self.X, self.labels):
            other = clone(model).fit(rows, seeds={1: [0], 2: [2, 3]}) if name != "frame" else expected
            assert np.array_equal(np.asarray(other.labels_), expected.labels_), name
            assert other.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-12), name

    def test_with_groups(self):
        own = np.arange(60) % 2
        X = self.X * np.where(own == 1, 3, 1)[:, None] ** (np.arange(8) % 2)
        model = ONMF(3, random_state=0).fit(X, seeds={0: [4, 5], 1: [0, 1], 2: [2, 3]}, groups=own)
        assert np.mean(model.labels_ == np.array([1, 2, 0])[self.labels]) > 0.9

    @pytest.mark.parametrize(
        ("seeds", "message"),
        [
            ({}, r"seeds is \{\}: give the features of each cluster"),
            ([["a"]], "give the features of each cluster"),
            ({0: []}, r"seeds\[0\] names no feature"),
            ({0: "nasa"}, r"seeds\[0\] is 'nasa': give a list of features"),
            ({0: ["nasa"]}, r"seeds\[0\] has 'nasa', which is not a feature of X, whose features have no names"),
            ({0: [8]}, r"seeds\[0\] has 8, which is not a feature of X: leave it out"),
            ({3: [0]}, "seeds has the cluster 3, and n_clusters=3"),
            ({0: [0], "a": [1]}, "seeds has the cluster 'a', and n_clusters=3: name all clusters, or number all"),
            ({key: [0] for key in "abcd"}, "seeds has 4 clusters, and n_clusters=3"),
            ({0: {1: -1.0}}, r"seeds\[0\]\[1\] is -1.0: a weight is a number greater than 0"),
            ({0: {1: np.nan}}, "a weight is a number greater than 0"),
            ({0: [[1, 2]]}, r"seeds\[0\] has \[1, 2\], which is not a feature of X"),
        ],
    )
    def test_refusals(self, seeds, message):
        with pytest.raises(ValueError, match=message):
            ONMF(3).fit(self.X, seeds=seeds)

    def test_only_the_proportions_of_weights_count(self):
        priors = [priors_of({1: {2: 1.0 * size, 5: 0.5 * size}}, 3, 8, None) for size in (1.0, 1e308, 1e-320)]
        assert priors[0][1, [2, 5]] == pytest.approx([2 / 3, 1 / 3])
        for other in priors[1:]:
            assert other == pytest.approx(priors[0], rel=1e-3)

    def test_a_seed_that_no_row_has_is_refused(self):
        X = self.X.copy()
        X[:, 7] = 0
        with pytest.raises(ValueError, match="No row has the feature 7, which is a seed of cluster 1, the first of 1"):
            ONMF(3).fit(X, seeds={1: [0, 7]})


@pytest.mark.parametrize(
    ("parameters", "known", "message"),
    [
        ({}, [0, 1] * 44, "known has 88 labels, but X has 90 rows: give one for each row"),
        ({}, [0, 3, -1] * 30, r"known\[1\] = 3, and n_clusters=3: known has the numbers of clusters, from 0 to 2"),
        ({}, [0, -2, -1] * 30, r"known\[1\] = -2"),
        ({}, [0, 1, 2] * 30, "known has a cluster for every row, so there is nothing to find"),
        ({}, [0.0, np.nan, -1.0] * 30, r"known\[1\] is missing"),
        ({}, pd.Series([0, None, -1] * 30, dtype="Int64"), r"known\[1\] is missing"),
        ({}, ["a", "b", "c"] * 30, "known holds <U1 values"),
        ({}, [True, False, True] * 30, "known holds bool values"),
        ({}, [[0, -1]] * 90, "known has 2 dimensions"),
        ({"beta_loss": "frobenius"}, [0, -1, -1] * 30, "are for Kullback–Leibler, and beta_loss is frobenius"),
        ({"refine": "local-search"}, [0, -1, -1] * 30, "moves every row, and cannot be combined with known="),
        ({"init": "snpa"}, [0, -1, -1] * 30, "init='snpa' finds first centroids for all clusters"),
        ({"init": "consensus"}, [0, -1, -1] * 30, "init='consensus' finds first centroids for all clusters"),
        ({"adapt": 2}, [0, -1, -1] * 30, "adapt=2 is not allowed: adapt must be a number from 0 to 1, or 'auto'"),
        ({"seed_share": 0}, [0, -1, -1] * 30, "seed_share=0 is not allowed"),
    ],
)
def test_refusals(parameters, known, message):
    X, _, _ = made(90)
    X = np.vstack([X, X])[:90]
    with pytest.raises(ValueError, match=message):
        ONMF(K, **parameters).fit(X, known=known)


@pytest.mark.parametrize("number", [89, 91, 121])
def test_every_place_refuses_another_number_of_labels(number):
    X, _, _ = made(120)
    X, known = np.vstack([X, X])[:120], np.full((2, number), -1)
    known[0, 0] = 1
    for _, rows, _ in places(X, np.zeros(120, dtype=int)):
        for given in known:
            with pytest.raises(ValueError, match=f"known has {number} labels, but X has 120 rows"):
                ONMF(K).fit(rows, known=given)


@pytest.mark.filterwarnings("ignore:.*rows of X are zero everywhere")
def test_a_known_cluster_needs_a_row_that_counts():
    X, labels, _ = made(90)
    known = some_known(labels, 1)
    for X_, w in ((np.where((known == 1)[:, None], 0, X), None), (X, np.where(known == 1, 0.0, 1.0))):
        with pytest.raises(ValueError, match="The known rows of cluster 1 are zero everywhere or have weight 0"):
            ONMF(K).fit(X_, known=known, sample_weight=w)
    known = some_known(labels, 3)
    w = np.ones(len(X))
    w[np.flatnonzero(known == 1)[0]] = 0
    assert ONMF(K).fit(X, known=known, sample_weight=w).labels_[np.flatnonzero(known == 1)[0]] == 1


def test_nothing_known_is_the_plain_model():
    X, _, _ = made(90)
    assert_same_bits(ONMF(K).fit(X), ONMF(K).fit(X, known=np.full(len(X), -1)))


def test_y_is_ignored_and_the_rest_is_routed():
    X, labels, _ = made(90)
    assert_same_bits(ONMF(K).fit(X), ONMF(K).fit(X, labels))
    with sklearn.config_context(enable_metadata_routing=True):
        model = ONMF(K).set_fit_request(known=True, seeds=True)
        line = make_pipeline(MaxAbsScaler(), model).fit(X, known=some_known(labels), seeds={0: [1]})
    expected = ONMF(K).fit(MaxAbsScaler().fit_transform(X), known=some_known(labels), seeds={0: [1]})
    assert_same_bits(line[-1], expected)
    assert np.array_equal(
        ONMF(K).fit_predict(X, known=some_known(labels)), ONMF(K).fit(X, known=some_known(labels)).labels_
    )
    H = ONMF(K).fit_transform(X, known=some_known(labels))
    assert H.shape == (len(X), K)


def test_saved_loaded_and_learning_on(tmp_path):
    X, labels, _ = made(90)
    model = ONMF(K, random_state=0).fit(X, known=some_known(labels))
    model.save(tmp_path / "model.onmf")
    for other in (onmf.load(tmp_path / "model.onmf"), pickle.loads(pickle.dumps(model))):
        assert other.adapt_ == model.adapt_
        assert other.divergence_ == model.divergence_
        assert np.array_equal(other.labels_, model.labels_)
        assert np.array_equal(other.predict(X), model.predict(X))
        other.partial_fit(X)  # forgets the rows behind the centroids, the known ones too
        assert other.divergence_ == model.divergence_
