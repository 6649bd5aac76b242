"""How unusual a row is: the p-value holds for new rows, and is small for rows that fit nowhere."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

import onmf
from onmf import ONMF
from onmf.datasets import make_counts, make_scene
from onmf.door import Table, cluster_table, predict_table, settle
from onmf.image import Cube
from onmf.image.kind import IMAGE
from onmf.surprise import FEWEST, _block, _sums, learn_usual, surprise_of, usual_of
from onmf.table import TABLE

K = 4


def counts(n=800, p=300, seed=0, **options):
    return make_counts(n, p, K, random_state=seed, **{"length": 60, "overlap": 0.3} | options).X.tocsr()


def table(X, **columns):
    return Table(X, *([str(i) for i in range(size)] for size in X.shape), **columns)


def learnt(X, **parameters):
    """A fit of rows, and what it learns of usual losses."""
    model = ONMF(K, random_state=0, **parameters).fit(X)
    return model, *learn_usual(model, X, model.labels_)


class TestOnNewRows:
    @pytest.mark.parametrize("p", [50, 2_000])
    def test_the_rate_holds(self, p):
        """Also with far more features than rows, where a row changes its own centroid much."""
        flagged, rates, n = np.zeros(3), np.array([0.01, 0.05, 0.2]), 0
        for seed in range(5):
            X = counts(1_200, p, seed)
            model, usual, own = learnt(X[:800])
            new = surprise_of(model, usual, X[800:])
            flagged += (new[:, None] <= rates).sum(axis=0)
            n += len(new)
            assert ((own[:, None] <= rates).mean(axis=0) <= rates).all(), "the rows of the fit are ranked"
        low, high = binom.interval(0.999, n, rates)
        assert (low <= flagged).all(), flagged / n
        assert (flagged <= high).all(), flagged / n

    def test_rows_that_fit_nowhere(self):
        X = counts()
        model, usual, _ = learnt(X)
        rng = np.random.default_rng(0)
        shuffled = csr_array(rng.permuted(X[:200].toarray(), axis=1))
        long = np.asarray(shuffled.sum(axis=1)).ravel() >= 20
        assert (surprise_of(model, usual, shuffled)[long] <= 0.05).mean() > 0.95

    def test_short_and_long_rows_are_flagged_alike(self):
        """The loss of a unit falls with the size of a row: each is compared with rows of its size."""
        rng = np.random.default_rng(0)
        profiles = make_counts(1, 300, K, random_state=0).profiles
        sizes = rng.permutation(np.repeat([20, 400], 1_500))
        X = csr_array(rng.multinomial(sizes, profiles[rng.integers(K, size=3_000)]))
        model, usual, _ = learnt(X[:2_000])
        flagged = surprise_of(model, usual, X[2_000:]) <= 0.1
        for size in (20, 400):
            assert flagged[sizes[2_000:] == size].mean() == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    ("divergence", "make"),
    [
        ("kullback-leibler", lambda rng, X: X),
        ("negative-binomial", lambda rng, X: X),
        (0.5, lambda rng, X: X),
        (1.5, lambda rng, X: X),
        ("itakura-saito", lambda rng, X: X.toarray() + rng.uniform(0.1, 1, X.shape)),
        ("frobenius", lambda rng, X: X.toarray() + rng.normal(size=X.shape)),
        ("cosine", lambda rng, X: X.toarray() + rng.normal(size=X.shape)),
    ],
)
def test_every_divergence(divergence, make):
    X = make(np.random.default_rng(0), counts(900, 40))
    model, usual, own = learnt(X[:600], beta_loss=divergence, max_iter=300)
    block, C = _block(model, X[:600])
    sums, mass = _sums(block, C, model.labels_)
    for one, other in zip(C, block.divergence.centers(sums, mass), strict=True):
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert cosine > 0.999, "what is subtracted is what the centroids are made of"
    new = surprise_of(model, usual, X[600:])
    assert ((own > 0) & (own <= 1) & (new > 0)[: len(own)].all()).all()
    low, high = binom.interval(0.9999, 300, 0.1)
    assert low <= (new <= 0.1).sum() <= high
    assert surprise_of(model, usual, np.eye(1, 40) * 1e3 + (divergence == "itakura-saito"))[0] <= 0.05


class TestLearning:
    def test_fewer_rows_than_are_needed_teach_nothing(self):
        X = counts(FEWEST)
        assert np.isfinite(cluster_table(TABLE, table(X), 2).surprise).all()
        few = cluster_table(TABLE, table(X[1:]), 2)
        assert np.isnan(few.surprise).all()
        with pytest.raises(ValueError, match=r"unassigned=0\.1 \(--unassigned 0\.1\) needs what a fit of at least 20"):
            cluster_table(TABLE, table(X[1:]), 2, unassigned=0.1)

    def test_rows_that_are_all_the_same(self):
        X = csr_array(np.tile([5, 3, 0, 2], (40, 1)))
        model = ONMF(1).fit(X)
        usual, own = learn_usual(model, X, model.labels_)
        assert own.tolist() == [1.0] * 40
        assert surprise_of(model, usual, np.array([[5, 3, 0, 2], [10, 6, 0, 4], [0, 0, 9, 0]])).tolist() == [
            1,
            1,
            1 / 41,
        ]

    @pytest.mark.filterwarnings("ignore")
    def test_rows_without_anything_in_common(self):
        """A row of a cluster of its own is compared with the other clusters, or with itself if there are none."""
        X = np.eye(30) * 5
        for k, divergence in ((1, "frobenius"), (1, "kullback-leibler"), (5, "kullback-leibler")):
            model = ONMF(k, beta_loss=divergence).fit(X)
            _, own = learn_usual(model, X, model.labels_)
            assert ((own > 0) & (own <= 1)).all()

    def test_some_of_many_rows(self, monkeypatch):
        X = counts(2_000)
        whole = cluster_table(TABLE, table(X), K, quick=True)
        monkeypatch.setattr(settle, "SAMPLE", 500)
        some = cluster_table(TABLE, table(X), K, quick=True)
        assert (some.standards.usual.n_rows, whole.standards.usual.n_rows) == (500, 2_000)
        assert np.corrcoef(some.surprise, whole.surprise)[0, 1] > 0.9
        assert abs((some.surprise <= 0.1).mean() - 0.1) < 0.04

    def test_the_same_bits_on_any_number_of_threads(self):
        X = counts(400)
        one, two = (learnt(X, n_threads=threads)[1:] for threads in (1, 2))
        assert one[1].tobytes() == two[1].tobytes()
        for name, value in one[0].parts().items():
            assert np.asarray(value).tobytes() == np.asarray(two[0].parts()[name]).tobytes(), name

    def test_in_blocks_as_in_memory(self):
        cube = Cube(make_scene(30, 20, 40, K, random_state=0).X.reshape(30, 20, 40))
        found = [
            cluster_table(IMAGE, cube, K, options={"negatives": "refuse", "blocks": blocks}) for blocks in (True, False)
        ]
        assert found[0].surprise.tobytes() == found[1].surprise.tobytes()
        new = [predict_table(each.model, cube).surprise for each in found]
        assert new[0].tobytes() == new[1].tobytes()

    def test_groups_are_not_unusual(self):
        """A batch that multiplies features is as usual as any other, once its factors are known."""
        rng = np.random.default_rng(0)
        groups, factors = rng.integers(2, size=900), rng.lognormal(0, 1.5, 100)
        shares = make_counts(1, 100, K, random_state=0).profiles[rng.integers(K, size=900)]
        shares *= np.where(groups[:, None] == 1, factors, 1.0)
        X = csr_array(rng.multinomial(200, shares / shares.sum(axis=1, keepdims=True)))
        groups = np.array(["one", "two"])[groups]
        fitted, new = slice(0, 600), slice(600, None)
        found = cluster_table(TABLE, table(X[fitted], groups=groups[fitted].tolist()), K)
        again = found.predict(table(X[new], groups=groups[new].tolist()))
        assert (again.surprise <= 0.1).mean() == pytest.approx(0.1, abs=0.05)
        assert (again.surprise <= 0.1)[groups[new] == "two"].mean() < 0.2
        alone = found.predict(table(X[new]))
        assert (alone.surprise <= 0.1)[groups[new] == "one"].mean() > 0.9, "without its group, it does not fit"


@pytest.fixture(scope="module")
def found():
    return cluster_table(TABLE, table(counts(300)), K, quick=True)


class TestModels:
    def test_saved_and_loaded(self, found, tmp_path):
        X = counts(100, seed=0)
        found.model.save(tmp_path / "model.onmf")
        again = predict_table(onmf.load(tmp_path / "model.onmf"), table(X))
        assert again.surprise.tobytes() == predict_table(found.model, table(X)).surprise.tobytes()
        assert np.isfinite(again.surprise).all()

    def test_a_model_of_an_earlier_version(self, found, tmp_path):
        entries = {"kind": "table", "features": list(found.features), "names": found.names}
        found.model.save(tmp_path / "model.onmf", extra=entries)
        old = onmf.load(tmp_path / "model.onmf")
        again = predict_table(old, table(counts(50)))
        assert np.isnan(again.surprise).all()
        assert (again.labels >= 0).all()
        for name in ("unassigned", "min_confidence"):
            with pytest.raises(ValueError, match=f"{name}=0.1 .* needs what a fit .* learns: leave it out, or fit"):
                predict_table(old, table(counts(50)), **{name: 0.1})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("usual_by_size", np.zeros((3, 0))),
            ("usual_by_size", np.full((3, 4), np.nan)),
            ("usual_by_centroid", np.zeros((2, K + 1))),
            ("usual_scores", np.zeros((2, 0))),
            ("usual_scores", np.zeros(3)),
            ("usual_n_rows", 0),
            ("usual_least", -1.0),
            ("unassigned", 2.0),
        ],
    )
    def test_damaged_entries_are_refused(self, found, tmp_path, name, value):
        with pytest.raises(ValueError, match=name):
            found.model.save(tmp_path / "model.onmf", extra=found.entries() | {name: value})

    def test_entries_that_are_missing_say_nothing(self, found):
        parts = found.standards.usual.parts()
        assert usual_of(parts).parts() == parts
        for name in parts:
            assert usual_of({key: value for key, value in parts.items() if key != name}) is None


@pytest.fixture(scope="module")
def rows():
    """Counts whose last ten rows fit nowhere."""
    X = counts(300, 100).toarray()
    X[-10:] = np.random.default_rng(5).permuted(X[-10:], axis=1)
    return X


class TestUnassigned:
    """What fits nowhere gets no cluster, if that is asked for."""

    def test_in_the_fit_and_for_new_rows(self, rows):
        plain = cluster_table(TABLE, table(csr_array(rows)), K)
        assert (plain.labels >= 0).all(), "off by default"
        found = cluster_table(TABLE, table(csr_array(rows)), K, unassigned=0.05)
        out = found.labels < 0
        assert np.array_equal(out, plain.surprise <= 0.05)
        assert out[-10:].sum() >= 8, "the others are short"
        assert np.array_equal(found.runners_up[out], plain.labels[out]), "the cluster that it would have"
        assert np.isnan(found.scales[out]).all()
        assert np.isnan(found.margins[out]).all()
        assert np.array_equal(found.templates, plain.templates)
        assert found.sizes.sum() == (~out).sum()
        note = f"{out.sum()} rows left unassigned, with a surprise of at most 0.05."
        assert note in found.notes
        new = found.predict(table(csr_array(rows)))
        assert (new.labels[-10:] == -1).sum() >= 8, "the model keeps the share"
        assert (predict_table(found.model, table(csr_array(rows)), unassigned=0).labels >= 0).all()

    def test_by_confidence(self, rows):
        plain = cluster_table(TABLE, table(csr_array(rows)), K)
        limit = float(np.quantile(plain.confidence, 0.2))
        found = cluster_table(TABLE, table(csr_array(rows)), K, min_confidence=limit)
        assert np.array_equal(found.labels < 0, plain.confidence < limit)
        assert np.array_equal(found.confidence, plain.confidence)
        assert found.notes[-1].endswith(f"left unassigned, with a confidence below {limit:g}.")

    def test_a_share_that_so_few_rows_cannot_show(self, rows):
        found = cluster_table(TABLE, table(csr_array(rows)), K, unassigned=0.001)
        assert (found.labels >= 0).all()
        assert "No surprise is as low as 0.001: it was learnt from 300 rows." in found.notes

    @pytest.mark.parametrize("name", ["unassigned", "min_confidence"])
    @pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
    def test_what_is_no_share_is_refused(self, rows, name, value):
        with pytest.raises(ValueError, match=f"{name}=.* is not allowed: it is a share, from 0 to less than 1"):
            cluster_table(TABLE, table(csr_array(rows)), K, **{name: value})
