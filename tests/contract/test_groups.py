"""Groups: every step against the plain formula, fits against a numeric minimiser, engines against each other."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array, vstack
from sklearn.metrics import adjusted_rand_score
from test_backends import MADE, OTHERS

import onmf
from conftest import assert_same_bits, needs_gpu
from onmf import ONMF
from onmf.backend import Threads, to_host
from onmf.cells.genes import deviance, top_genes
from onmf.data import InMemory
from onmf.data.groups import check_groups
from onmf.datasets import load_cells
from onmf.divergence import KullbackLeibler
from onmf.fit.groups import PRIOR, Fitting, Grouping, GroupSteps

K, P = 3, 12


def made(n=90, groups=3, k=K, p=P, seed=0, sd=0.8):
    """Counts of k clusters in groups that multiply each feature by a factor."""
    rng = np.random.default_rng(seed)
    w, s = rng.dirichlet(np.ones(p) * 0.5, k), np.exp(sd * rng.standard_normal((groups, p)))
    labels, own = rng.integers(k, size=n), rng.integers(groups, size=n)
    means = w[labels] * s[own]
    X = rng.poisson(60 * means / means.sum(axis=1, keepdims=True))
    return X[X.any(axis=1)], labels[X.any(axis=1)], own[X.any(axis=1)]


def plain_objective(X, labels, own, log_w, log_s, prior=True):
    """The objective by its definition: Kullback–Leibler of the rows at their best scales, and the penalty."""
    w, s = np.exp(log_w), np.exp(log_s)
    fitted = w[labels] * s[own]
    fitted = fitted * (X.sum(axis=1) / fitted.sum(axis=1))[:, None]
    loss = np.where(X > 0, X * (np.log(np.where(X > 0, X, 1)) - np.log(fitted)), 0.0) - X + fitted
    totals = np.array([X[own == b].sum() for b in range(len(s))])
    strength = PRIOR * len(s) * totals / totals.sum()
    return loss.sum() + (strength[:, None] * (s - log_s - 1)).sum()


def step_data(X, own, engine="cpu", smoothing=1e-3, weights=None):
    groups = check_groups(own, relative=False)
    divergence = groups.divergence(KullbackLeibler(smoothing), X.shape[1])
    return InMemory(MADE[engine]().make_block(groups.append(X, groups.codes), divergence, weights))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("kind", "largest", "expected"),
    [("uint8", 255, "uint16"), ("uint16", 9, "uint16"), ("int8", 120, "int16"), ("int64", 1, "int64")],
)
def test_columns_of_groups_hold_their_sums_and_widen_rows_no_further(kind, largest, expected, sparse):
    X = np.full((4, 3), largest, dtype=kind)
    rows = check_groups([1, 0, 0, 1], relative=False).append(csr_array(X) if sparse else X, np.array([1, 0, 0, 1]))
    assert rows.dtype == expected
    sums = 3 * largest * np.array([[0, 1], [1, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(rows.toarray() if sparse else rows, np.hstack([X.astype(np.int64), sums]))
    if sparse:
        assert rows.indices.dtype == rows.indptr.dtype == np.int32


def test_the_fit_of_fixed_labels_is_the_minimum():
    """To 1e-8, against a numeric minimiser over centroids and multipliers. Group 2 never has the last feature."""
    X, labels, own = made()
    X[own == 2, -1] = 0
    data = step_data(X.astype(float), own)
    grouping = Grouping.of(data)
    S = np.stack([X[labels == c].sum(axis=0) for c in range(K)]).astype(float) + 0.0
    m = np.array([[X[(labels == c) & (own == b)].sum() for b in range(3)] for c in range(K)], dtype=float)
    fitting, sums = Fitting(grouping, Threads(1)), np.hstack([S, m])
    fitting.fit(sums, np.ones(K, dtype=bool), W := np.empty_like(sums), 5000)
    w, s = data.divergence.normalise(W)[:, :P], fitting.effects
    assert fitting.ratios == pytest.approx(w @ s.T)
    found = data.constant + grouping.objective(sums, w, s, w @ s.T)
    with np.errstate(divide="ignore"):
        assert found == pytest.approx(
            plain_objective(X, labels, own, np.log(np.maximum(w, 1e-300)), np.log(s)), rel=1e-12
        )

    strength = PRIOR * 3 * grouping.totals.sum(axis=1) / grouping.totals.sum()

    def loss(values):
        log_w, log_s = np.split(values.reshape(-1, P), [K])
        fitted = np.exp(log_w[labels] + log_s[own])
        fitted *= (X.sum(axis=1) / fitted.sum(axis=1))[:, None]
        slopes = [
            *(fitted[labels == c].sum(axis=0) - S[c] for c in range(K)),
            *((fitted - X)[own == b].sum(axis=0) + strength[b] * (np.exp(log_s[b]) - 1) for b in range(3)),
        ]
        return plain_objective(X, labels, own, log_w, log_s), np.concatenate(slopes)

    start = np.concatenate([np.log(w + 1e-3).ravel(), np.zeros(3 * P)])
    options = {"maxiter": 20_000, "maxfun": 10**6, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    assert found == pytest.approx(best.fun, rel=1e-8)
    totals = grouping.totals.sum(axis=1)
    assert (totals / totals.sum()) @ s == pytest.approx(np.ones(P)), "the gauge of features"
    assert s.mean(axis=1) == pytest.approx(np.ones(3)), "the gauge of groups"


@pytest.mark.parametrize("engine", ["reference", *OTHERS])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_every_step_is_that_of_the_plain_formula(engine, form):
    X, _, own = made()
    smoothing = 1e-3
    data = step_data(form(X.astype(float)), own, engine, smoothing)
    data.grouping = Grouping.of(data)
    start = X[:K] + 1.0
    first = data.divergence.initial_centroids(np.hstack([start, np.zeros((K, 3))]))
    steps = GroupSteps(data.steps(first), data)
    w, s = start / start.sum(axis=1, keepdims=True), np.ones((3, P))
    shares = np.array([X[own == b].sum() for b in range(3)]) / X.sum()
    prior = 3 * PRIOR * shares[:, None]
    for _ in range(6):
        scores = X @ np.log(w + smoothing).T - X.sum(axis=1)[:, None] * np.log(w @ s.T)[:, own].T
        step = steps.next()
        labels = to_host(data.part.run.collect().labels)
        assert np.array_equal(labels, scores.argmax(axis=1))
        m = np.array([[X[(labels == c) & (own == b)].sum() for b in range(3)] for c in range(K)])
        A, S, T = m / (w @ s.T), *(np.stack([X[of == g].sum(axis=0) for g in range(3)]) for of in (labels, own))
        w = S / (A @ s)
        s = (T + prior) / (A.T @ w + prior)
        w, s = w * (shares @ s), s / (shares @ s)
        w, s = w / w.sum(axis=1, keepdims=True), s / s.mean(axis=1, keepdims=True)
        steps.update(step, more=True)
        sums, found_w, found_s, _ = steps._fitted()
        assert np.array_equal(sums[:, P:], m), "the sums by label of the columns of the groups"
        if step.moved:  # a single round
            assert found_w == pytest.approx(w, rel=1e-12)
            assert found_s == pytest.approx(s, rel=1e-12)
        w, s = found_w, found_s


def places(X, own):
    """The same rows in memory, in blocks and on Dask."""
    yield "array", X, own
    yield "csr", csr_array(X), own
    yield "frame", pd.DataFrame(X), pd.Series(own).astype("category")
    yield "blocks", lambda: iter([csr_array(X[:20]), csr_array(X[20:21]), csr_array(X[21:])]), own
    da = pytest.importorskip("dask.array")
    yield "dask", da.from_array(X, chunks=(40, -1)), own
    yield "dask groups", da.from_array(X, chunks=(40, -1)), da.from_array(own, chunks=40)


def test_every_place_gives_the_same_bits():
    X, labels, own = made(240, sd=0.4)
    models = {}
    for name, rows, groups in places(X, own):
        models[name] = ONMF(K, random_state=0, n_init=4).fit(rows, groups=groups)
    expected = models["array"]
    assert adjusted_rand_score(labels, expected.labels_) > 0.8
    for name, model in models.items():
        assert np.array_equal(np.asarray(model.labels_), expected.labels_), name
        assert np.array_equal(model.cluster_centers_, expected.cluster_centers_), name
        assert np.array_equal(model.group_effects_, expected.group_effects_), name
        assert np.asarray(model.scales_) == pytest.approx(expected.scales_, rel=1e-12)
        assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-12)
        assert model.n_features_in_ == P
        assert model.cluster_centers_.shape == (K, P)
    for name, rows, groups in places(X, own):
        assert np.array_equal(np.asarray(expected.predict(rows, groups=groups)), expected.labels_), name
        H = expected.transform(rows, groups=groups)
        H = H.compute() if hasattr(H, "compute") else H
        assert np.asarray(H.sum(axis=1)).ravel() == pytest.approx(expected.scales_)


@pytest.mark.parametrize("labels", [1, 119, 121])
def test_every_place_refuses_another_number_of_labels(labels):
    X, _, own = made(120)
    X, own = np.vstack([X, X])[:120], np.concatenate([own, own])
    model = ONMF(K, random_state=0, n_init=1).fit(X, groups=own[:120])
    for _, rows, _ in places(X, own[:120]):
        for method in (model.predict, model.score, model.fit):
            with pytest.raises(ValueError, match=f"groups has {labels} labels, but X has (120|more) rows"):
                method(rows, groups=own[:labels])


@pytest.mark.parametrize("engine", OTHERS)
def test_every_backend_finds_the_clusters_of_the_reference(engine):
    X, _, own = made(150, sd=0.4)
    expected = ONMF(K, random_state=0, n_init=2, engine="reference").fit(X, groups=own)
    model = ONMF(K, random_state=0, n_init=2, engine=MADE[engine]()).fit(csr_array(X), groups=own)
    assert np.array_equal(model.labels_, expected.labels_)
    assert model.group_effects_ == pytest.approx(expected.group_effects_, rel=1e-8)
    assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-8, abs=1e-12)
    assert model.reconstruction_err_ == pytest.approx(expected.reconstruction_err_, rel=1e-10)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr("onmf.backend.threads.WORTH_A_THREAD", 256)
    X, _, own = made(400)
    models = [ONMF(K, random_state=0, n_threads=n).fit(csr_array(X), groups=own) for n in (1, 2, 8)]
    assert_same_bits(*models)
    assert all(np.array_equal(models[0].group_effects_, other.group_effects_) for other in models)


def test_the_model_is_what_the_page_says():
    """Rows are scale · centroid ∘ multipliers; their sums, and those of clusters, are matched; H Hᵀ = I."""
    X, _, own = made(200)
    model = ONMF(K, random_state=0).fit(X, groups=own)
    fitted = model.scales_[:, None] * model.cluster_centers_[model.labels_] * model.group_effects_[own]
    assert fitted.sum(axis=1) == pytest.approx(X.sum(axis=1))
    for c in range(K):
        inside = model.labels_ == c
        assert fitted[inside].sum(axis=0) == pytest.approx(X[inside].sum(axis=0), rel=1e-6, abs=1e-6)
    H = model.clustering_.H.toarray()
    assert pytest.approx(np.eye(K), abs=1e-12) == H @ H.T
    with np.errstate(divide="ignore", invalid="ignore"):
        objective = plain_objective(
            X, model.labels_, own, np.log(np.maximum(model.cluster_centers_, 1e-300)), np.log(model.group_effects_)
        )
    assert model.reconstruction_err_ == pytest.approx(objective, rel=1e-9)
    assert model.score(X, groups=own) <= 0
    assert model.predict_proba(X, groups=own).argmax(axis=1) == pytest.approx(model.labels_)
    assigned = model.assign(X, groups=own)
    assert assigned.margins == pytest.approx(model.margins_, rel=1e-6, abs=1e-9)


def test_one_group_is_the_plain_model():
    X, _, _ = made()
    plain, one = ONMF(K).fit(X), ONMF(K).fit(X, groups=["a"] * len(X))
    assert_same_bits(plain, one)
    assert one.groups_.tolist() == ["a"]
    assert np.array_equal(one.group_effects_, np.ones((1, P)))


@pytest.mark.parametrize("divergence", ["kullback-leibler", "frobenius", "bernoulli", "negative-binomial"])
def test_one_group_assigns_new_rows_as_the_plain_model_does(divergence):
    X, _, _ = made()
    X = np.minimum(X, 1) if divergence == "bernoulli" else X
    plain = ONMF(K, beta_loss=divergence).fit(X)
    one = ONMF(K, beta_loss=divergence).fit(X, groups=["a"] * len(X))
    for _, rows, _ in places(X, np.zeros(len(X))):
        assert np.array_equal(np.asarray(one.predict(rows, groups=["a"] * len(X))), plain.predict(X))
        assert np.array_equal(np.asarray(one.predict(rows)), plain.predict(X))
    assert one.score(X, groups=["a"] * len(X)) == plain.score(X)
    assert np.array_equal(one.predict_proba(X, groups=["a"] * len(X)), plain.predict_proba(X))
    with pytest.raises(ValueError, match="groups has 1 labels, but X has 90 rows"):
        one.predict(X, groups=["a"])
    if divergence != "kullback-leibler":
        for use in (lambda: one.estimate_group(X), lambda: one.partial_fit(X, groups=["a"] * len(X))):
            with pytest.raises(ValueError, match=f"groups= is for Kullback–Leibler, and beta_loss is {divergence}"):
                use()


def test_weights_are_repeated_rows():
    X, _, own = made(120)
    w = np.random.default_rng(4).integers(1, 4, len(X))
    start = X[:K] + 0.5
    weighted = ONMF(K, init=start).fit(X, sample_weight=w, groups=own)
    repeated = ONMF(K, init=start).fit(np.repeat(X, w, axis=0), groups=np.repeat(own, w))
    assert np.array_equal(np.repeat(weighted.labels_, w), repeated.labels_)
    assert weighted.group_effects_ == pytest.approx(repeated.group_effects_, rel=1e-9)
    assert np.repeat(weighted.scales_, w) == pytest.approx(repeated.scales_, rel=1e-9)
    assert weighted.reconstruction_err_ == pytest.approx(repeated.reconstruction_err_, rel=1e-12)


def test_names_and_order_of_groups_do_not_matter():
    X, _, own = made(120)
    start = X[:K] + 0.5
    one = ONMF(K, init=start).fit(X, groups=own)
    other = ONMF(K, init=start).fit(X, groups=np.array(["z", "a", "m"])[own])
    assert other.groups_.tolist() == ["a", "m", "z"]
    assert np.array_equal(one.labels_, other.labels_)
    assert other.group_effects_[[2, 0, 1]] == pytest.approx(one.group_effects_, rel=1e-9)


def test_groups_that_the_model_does_not_know():
    X, labels, own = made(300, groups=4, sd=0.5)
    known = own < 3
    model = ONMF(K, random_state=0).fit(X[known], groups=own[known])
    with pytest.warns(UserWarning, match="does not know the group 3: their multipliers are 1. estimate_group"):
        without = model.predict(X[~known], groups=own[~known])
    with pytest.warns(UserWarning, match=r"multipliers for the groups 0, 1, 2, and these rows come without groups"):
        assert np.array_equal(without, model.predict(X[~known]))
    found = model.estimate_group(X[~known])
    assert found.mean() == pytest.approx(1)
    assert model.groups_.tolist() == [0, 1, 2]
    model.estimate_group(X[~known], name=3)
    assert model.groups_.tolist() == [0, 1, 2, 3]
    assert np.array_equal(model.group_effects_[3], found)
    better = model.predict(X[~known], groups=own[~known])
    truth = labels[~known]
    assert adjusted_rand_score(truth, better) > adjusted_rand_score(truth, without)
    with pytest.raises(ValueError, match="name=3 is a group that the model knows"):
        model.estimate_group(X, name=3)


def test_saved_and_loaded(tmp_path):
    X, _, own = made()
    names = np.array(["x", "y", "z"])[own]
    model = ONMF(K, random_state=0).fit(X, groups=names)
    model.save(tmp_path / "model.onmf")
    loaded = onmf.load(tmp_path / "model.onmf")
    assert loaded.groups_.tolist() == ["x", "y", "z"]
    assert np.array_equal(loaded.group_effects_, model.group_effects_)
    assert np.array_equal(loaded.predict(X, groups=names), model.labels_)


@pytest.mark.parametrize("kind", ["int8", "uint64", "bool", "str", "object"])
def test_labels_keep_their_type(kind, tmp_path):
    """In a file, after a new group, and in batches; those of another type are refused."""
    X, _, own = made(seed=1)
    labels = (own == 1 if kind == "bool" else own).astype(kind)
    model = ONMF(K, random_state=0).partial_fit(X, groups=labels)
    assert model.groups_.dtype.kind == {"bool": "b", "str": "U"}.get(kind, "i")
    model.save(tmp_path / "model.onmf")
    loaded = onmf.load(tmp_path / "model.onmf")
    assert (loaded.groups_.dtype, loaded.groups_.tolist()) == (model.groups_.dtype, model.groups_.tolist())
    before, other = model.groups_.tolist(), "z" if kind != "str" else 7
    for name, use in (
        ("name=", lambda: loaded.estimate_group(X, name=other)),
        ("groups", lambda: loaded.partial_fit(X, groups=[other] * len(X))),
        ("groups", lambda: loaded.predict(X, groups=[other] * len(X))),
    ):
        with pytest.raises(ValueError, match=f"{name}.* as labels, and the model has .*: give labels of that type"):
            use()
    assert loaded.groups_.tolist() == before
    if kind != "bool":
        new = "z" if kind == "str" else 9
        loaded.estimate_group(X, name=new)
        assert loaded.groups_.dtype.kind == model.groups_.dtype.kind
        loaded.save(tmp_path / "model.onmf")
        assert onmf.load(tmp_path / "model.onmf").groups_.tolist() == [*before, new]


def test_clusters_that_share_no_group_with_others_are_said():
    X = np.kron(np.eye(2), np.full((20, 6), 5)) + np.random.default_rng(0).poisson(1, (40, 12)) * 0
    start = np.array([[1.0] * 6 + [1e-3] * 6, [1e-3] * 6 + [1.0] * 6])
    with pytest.warns(UserWarning, match=r"hold no rows of the others \(a; b\): nothing tells"):
        ONMF(2, init=start).fit(X, groups=["a"] * 20 + ["b"] * 20)


@pytest.mark.parametrize(
    ("parameters", "groups", "message"),
    [
        ({}, [0, 1] * 44, "groups has 88 labels, but X has 90 rows: give one for each row"),
        ({}, [[0, 1]] * 90, "groups has 2 dimensions: give one label for each row"),
        ({}, [0.0, np.nan] * 45, r"groups\[1\] is missing, the first of 45: every row needs a group"),
        ({}, ["a", None, "b"] * 30, r"groups\[1\] is missing, the first of 30"),
        ({}, ["a", 1] * 45, "groups has labels of type int and str, and labels are texts, whole numbers or booleans"),
        ({}, [1, True] * 45, "labels of type bool and int"),
        ({}, [0.0, 1.0] * 45, "labels of type float, .* all of one type: turn them into texts"),
        ({}, [b"a", b"b"] * 45, "labels of type bytes"),
        ({}, np.array(["2024-05-01", "2024-07-01"] * 45, dtype="datetime64[ns]"), "labels of type datetime64"),
        ({}, pd.Series(pd.to_timedelta([1, 2] * 45, unit="h")), "labels of type timedelta64"),
        ({}, [[0], [0, 1]] * 45, "labels of type list"),
        ({}, [0, 2**64] * 45, "groups has whole numbers of more than 64 bits"),
        ({}, "lab", "groups is 'lab': give a list or an array with one label for each row"),
        ({}, iter([0, 1] * 45), "groups is <list_iterator"),
        ({}, ["a", np.nan, "b"] * 30, r"groups\[1\] is missing, the first of 30"),
        ({}, [1, pd.NA, 2] * 30, r"groups\[1\] is missing, the first of 30"),
        ({}, np.ma.array(["a", "b"] * 45, mask=[0, 1] * 45), r"groups\[1\] is missing, the first of 45"),
        ({"beta_loss": "frobenius"}, [0, 1] * 45, "groups= is for Kullback–Leibler, and beta_loss is frobenius"),
        ({"refine": "local-search"}, [0, 1] * 45, "cannot be combined with groups"),
        ({"init": "snpa"}, [0, 1] * 45, "begins from clusters that belong to one group each"),
    ],
)
def test_refusals(parameters, groups, message):
    X, _, _ = made(90)
    X = np.vstack([X, X])[:90]
    with pytest.raises(ValueError, match=message):
        ONMF(K, **parameters).fit(X, groups=groups)


def test_a_group_without_counts_has_multipliers_of_one():
    X, _, own = made()
    weights = np.where(own == 1, 0.0, 1.0)
    model = ONMF(K, random_state=0).fit(X, sample_weight=weights, groups=own)
    assert model.group_effects_[1] == pytest.approx(np.ones(P), rel=0.5)
    assert np.isfinite(model.reconstruction_err_)


@pytest.mark.filterwarnings("ignore:.*rows of X are zero everywhere", "ignore:Only . of . clusters hold rows")
@pytest.mark.filterwarnings("ignore:The clusters of some groups")
@pytest.mark.parametrize("form", [np.array, csr_array])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_rows_of_zeros_have_multipliers_of_one(method, form):
    own, X = [0, 1] * 10, np.zeros((20, P))
    model = getattr(ONMF(K, random_state=0), method)(form(X), groups=own)
    assert np.array_equal(model.group_effects_, np.ones((2, P)))
    assert np.array_equal(model.scales_, np.zeros(20))
    assert model.predict(form(X), groups=own).tolist() == model.labels_.tolist()
    assert np.array_equal(model.estimate_group(form(X)), np.ones(P))
    X[0] = np.arange(P)
    model = getattr(ONMF(K, random_state=0), method)(form(X), groups=own)  # two clusters have no counts
    assert np.isfinite(model.group_effects_).all()
    assert np.isfinite(model.cluster_centers_).all()
    model = ONMF(K, random_state=0).fit(made()[0], groups=made()[2])
    before = model.group_effects_.copy()
    model.partial_fit(form(X[1:3]), groups=[0, 1])
    assert np.array_equal(model.group_effects_, before)


@pytest.mark.usefixtures("capsys")
def test_the_objective_never_rises_by_much():
    """Smoothing, and a single round in each iteration, may raise it a little; never by a percent."""
    X, _, own = made(300)
    model = ONMF(K, random_state=0, n_init=1, smoothing=0, verbose=1).fit(X + 1, groups=own)
    objectives = model.history_["objective"]
    assert (np.diff(objectives) <= 0.01 * objectives[:-1]).all()
    assert objectives[-1] == pytest.approx(model.reconstruction_err_)


def test_batches_end_where_fit_stays(tmp_path):
    """Named batches of which nothing is forgotten; the last group comes up in the second batch."""
    X, _, own = made(300, sd=0.4)
    order = np.argsort(np.where(own == 2, 2, np.random.default_rng(0).random(len(own))), kind="stable")
    X, names = X[order], np.array(["c", "a", "b"])[own[order]]
    parts = np.array_split(np.arange(len(X)), 3)
    model = ONMF(K, random_state=0, forgetting=1.0)
    for _ in range(40):
        for i, part in enumerate(parts):
            model.partial_fit(X[part], groups=names[part], batch=i)
    assert sorted(model.groups_) == ["a", "b", "c"]
    assert model.groups_.tolist() != ["a", "b", "c"], "in the order in which they came"
    again = ONMF(K, init=model.cluster_centers_).fit(X, groups=names)
    assert np.array_equal(again.labels_, model.predict(X, groups=names))
    effects = dict(zip(model.groups_, model.group_effects_, strict=True))
    assert np.stack([effects[name] for name in again.groups_]) == pytest.approx(again.group_effects_, rel=1e-2)
    assert np.array_equal(model.labels_, model.predict(X[parts[-1]], groups=names[parts[-1]]))
    model.save(tmp_path / "model.onmf")
    loaded = onmf.load(tmp_path / "model.onmf")
    before = loaded.group_effects_.copy()
    loaded.partial_fit(X[names != "b"], groups=names[names != "b"])
    assert np.array_equal(loaded.group_effects_[-1], before[-1]), "a group that no batch has had since"


def test_what_batches_with_groups_refuse():
    X, _, own = made()
    model = ONMF(K, random_state=0).partial_fit(X, groups=own, batch="x")
    with pytest.raises(ValueError, match="The model has groups: pass groups= with every batch"):
        model.partial_fit(X)
    with pytest.raises(ValueError, match="batch 'x' had other groups before"):
        model.partial_fit(X, groups=(own + 1) % 3, batch="x")
    with pytest.raises(ValueError, match="The model has no groups: leave groups out"):
        ONMF(K).fit(X).partial_fit(X, groups=own)
    with pytest.raises(ValueError, match="begins from clusters that belong to one group each"):
        ONMF(K, init="snpa").partial_fit(X, groups=["a"] * len(X))


def test_a_first_batch_of_one_group():
    X, _, own = made(300, sd=0.4)
    model = ONMF(K, random_state=0).partial_fit(X[own == 0], groups=own[own == 0])
    assert model.divergence_.smoothing == pytest.approx(0.01 / P), "that of a fit with groups"
    model.partial_fit(X, groups=own)
    assert model.groups_.tolist() == [0, 1, 2]
    assert model.group_effects_.shape == (3, P)


def test_a_model_without_groups_takes_none():
    X, _, own = made()
    with pytest.raises(ValueError, match="fitted without groups, and has no multipliers: leave groups out"):
        ONMF(K).fit(X).predict(X, groups=own)


def test_odd_groups():
    """A group of one row, and a group for each row."""
    X, _, own = made()
    own[0] = 9
    model = ONMF(K, random_state=0).fit(X, groups=own)
    assert model.group_effects_.shape == (4, P)
    assert np.isfinite(model.group_effects_).all()
    with pytest.warns(UserWarning, match=r"no rows of the others \(\d+(, \d+){4} and \d+ more; .*\): nothing tells"):
        model = ONMF(K, random_state=0, n_init=1).fit(X[:60], groups=np.arange(60))
    assert np.isfinite(model.reconstruction_err_)


@pytest.fixture(scope="module")
def two_protocols():
    """Three cell lines, measured by two protocols: the 2,000 most deviant of their common genes."""
    try:
        sets = [load_cells(name) for name in ("sc_celseq2", "sc_dropseq")]
    except FileNotFoundError as error:
        pytest.skip(str(error))
    common = sorted(set(sets[0].genes) & set(sets[1].genes))
    places = [np.argsort(each.genes)[np.searchsorted(np.sort(each.genes), common)] for each in sets]
    X = vstack([csr_array(each.X)[:, columns] for each, columns in zip(sets, places, strict=True)], format="csr")
    X = csr_array(X[:, top_genes(deviance(X), 2000)])
    classes = np.concatenate([np.array(each.classes)[each.y] for each in sets])
    return X, classes, np.repeat(["celseq2", "dropseq"], [each.X.shape[0] for each in sets])


@pytest.mark.short("the claim about groups, on real cells")
@pytest.mark.parametrize("engine", ["cpu", pytest.param("gpu", marks=needs_gpu)])
def test_cell_lines_measured_by_two_protocols(two_protocols, engine):
    """Clusters follow the cell lines, not the protocols, with all defaults."""
    X, classes, protocols = two_protocols
    plain = ONMF(3, init="random-partition", n_init=10, random_state=0, engine=engine).fit(X)
    assert adjusted_rand_score(classes, plain.labels_) < 0.6
    model = ONMF(3, random_state=0, engine=engine).fit(X, groups=protocols)
    assert adjusted_rand_score(classes, model.labels_) >= 0.95
    assert abs(adjusted_rand_score(protocols, model.labels_)) < 0.02
