"""How many clusters: levels on data with a known answer, 1 without structure, and how real each cluster is."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf import ONMF, select_n_clusters
from onmf.datasets import make_counts
from onmf.select.chance import OneCluster
from onmf.select.choose import FIRST_DRAWS, check_range, count_as_good, standings, undecided
from onmf.select.halves import Halves, agreement, bits
from onmf.select.levels import find_levels


def in_bursts(X, clusters, seed, concentration=50.0):
    """Documents of the same lengths and clusters, in which a word that occurs once is likely to occur again."""
    rng = np.random.default_rng(seed)
    lengths = X.X.sum(axis=1)
    shares = rng.gamma(concentration * X.profiles[clusters]) + 1e-300
    return csr_array(rng.multinomial(lengths, shares / shares.sum(axis=1, keepdims=True)))


def nested(rows=30, within=0.35, seed=0):
    """Counts of three groups of four clusters each, and their clusters."""
    rng = np.random.default_rng(seed)
    apart = rng.gamma(0.1, size=(3, 300)).repeat(4, axis=0) + 1e-3
    own = rng.gamma(0.1, size=(12, 300)) + 1e-3
    profiles = apart / apart.sum(axis=1, keepdims=True) + within * own / own.sum(axis=1, keepdims=True)
    y = np.repeat(np.arange(12), rows)
    return csr_array(rng.multinomial(120, (profiles / profiles.sum(axis=1, keepdims=True))[y])), y


@pytest.fixture(scope="module")
def selection():
    return select_n_clusters(nested()[0], random_state=0)


@pytest.mark.parametrize("k", [2, 3, 8, pytest.param(30, marks=pytest.mark.long("larger data"))])
def test_well_separated_clusters_are_counted(k):
    X = make_counts(max(20 * k, 100), 400, k, length=120, overlap=0.3, random_state=k).X
    assert abs(select_n_clusters(X, random_state=0).n_clusters - k) <= 1


def test_bursts_are_no_clusters():
    made = make_counts(300, 800, 6, length=120, overlap=0.3, random_state=6)
    selection = select_n_clusters(in_bursts(made, made.y, 6), random_state=0)
    assert abs(selection.n_clusters - 6) <= 1


def test_nested_clusters_are_levels(selection):
    assert {3, 12} <= {level.n_clusters for level in selection.levels}
    names = [level.name for level in selection.levels]
    assert names == [name for name in ("coarse", "medium", "fine") if name in names]
    (of_three,) = (level for level in selection.levels if level.n_clusters == 3)
    (of_twelve,) = (level for level in selection.levels if level.n_clusters == 12)
    assert not of_three.parents.any(), "nothing is above the coarsest level"
    assert np.array_equal(of_twelve.parents[of_twelve.labels], of_three.labels)
    assert np.bincount(of_twelve.parents).tolist() == [4, 4, 4]
    assert of_three.agreement == selection.agreement[1] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.poisson(2.0, size=(200, 50)),
        lambda rng: csr_array(rng.poisson(np.outer(rng.lognormal(0, 1, 200), rng.gamma(0.3, size=200) / 4))),
        lambda rng: rng.negative_binomial(2, 0.3, size=(200, 60)),
        lambda rng: rng.gamma(np.outer(rng.lognormal(0, 1, 200), rng.gamma(2.0, size=40)) + 1e-9),
    ],
    ids=["poisson", "uneven and sparse", "overdispersed", "measured"],
)
def test_without_structure_the_answer_is_one(draw):
    selection = select_n_clusters(draw(np.random.default_rng(3)), random_state=0)
    assert selection.n_clusters == 1
    assert selection.levels == ()
    assert selection.as_good > 0
    assert "No clusters were found: halves of " in selection.notes("cells")[0]
    assert [selection.number_at(level) for level in ("auto", "coarse", "medium", "fine")] == [1] * 4


def test_groups_are_no_clusters():
    """Two groups of one kind of row: with their names given there is nothing to find, without them there are two."""
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], 60)
    shares = rng.gamma(0.5, size=50) * rng.lognormal(0, 0.5, size=(2, 50))
    X = rng.poisson(300 * (shares / shares.sum(axis=1, keepdims=True)).repeat(60, axis=0))
    assert select_n_clusters(X, random_state=0).n_clusters == 2
    assert select_n_clusters(X, groups=groups, random_state=0).n_clusters == 1


def test_clusters_across_groups():
    made = make_counts(160, 100, 4, length=200, overlap=0.2, random_state=0)
    rng = np.random.default_rng(0)
    groups = rng.integers(3, size=160)
    X = rng.poisson(made.X.toarray() * rng.lognormal(0, 0.5, size=(3, 100))[groups])
    filled = X.any(axis=1)
    assert select_n_clusters(X[filled], groups=groups[filled], random_state=0).n_clusters == 4


def test_k_min_above_one_asks_no_question_of_chance(selection):
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, size=(200, 50))
    found = select_n_clusters(X, k_min=3, k_max=6, random_state=0)
    assert found.numbers.tolist() == [3, 4, 5, 6]
    assert found.draws == 0
    assert 3 <= found.n_clusters <= 6
    assert found.table()[0]["chance"] is None
    assert "by chance" not in found.lines()[0]
    assert "by chance" in selection.lines()[0]


def test_a_selection_tells(selection):
    k, others = selection.n_clusters, [each for each in selection.levels if each.name != "medium"]
    also = ", ".join(f"{each.n_clusters} ({each.name})" for each in others)
    own = selection.agreement[selection.numbers == k][0]
    assert selection.notes("cells")[0] == (
        f"{k} clusters were chosen of 2 to 36: halves of the cells agree on them to {own:.2f}; also: {also}."
    )
    coarse = selection.levels[0].n_clusters
    assert selection.notes(level="coarse")[0].startswith(f"{coarse} clusters were chosen of 2 to 36")
    assert f"{coarse} (" not in selection.notes(level="coarse")[0]
    assert [row["n_clusters"] for row in selection.table()] == selection.numbers.tolist()
    assert [row["level"] for row in selection.table() if row["level"]] == [each.name for each in selection.levels]
    assert str(selection).count("medium") == 1
    record = selection.record()
    assert [level["n_clusters"] for level in record["levels"]] == [each.n_clusters for each in selection.levels]
    assert [len(level["parents"]) for level in record["levels"]] == [each.n_clusters for each in selection.levels]
    assert [text.get_text().split() for text in selection.plot().texts] == [
        [str(each.n_clusters), each.name] for each in selection.levels
    ]


def test_levels_that_are_missing_have_neighbours(selection):
    coarse, *_, fine = selection.levels
    two = replace(selection, levels=(coarse._replace(name="medium"), fine._replace(name="fine")))
    assert two.n_clusters == two.number_at("coarse") == coarse.n_clusters
    assert two.number_at("fine") == fine.n_clusters
    only = replace(selection, levels=(coarse._replace(name="medium"),))
    assert only.number_at("fine") == coarse.n_clusters
    assert only.notes(level="fine")[-1] == "There is no fine level: the nearest one was taken."
    assert not any("no fine" in note for found in (only, selection) for note in found.notes(level="auto"))


def test_the_largest_number_tried_is_told():
    selection = select_n_clusters(nested()[0], k_max=3, random_state=0)
    assert selection.n_clusters == 3
    assert "Halves still agree at 3 clusters, the largest number that was tried: ask for more." in str(selection)


def test_real_clusters_are_found_again():
    X, y = nested()
    selection = select_n_clusters(X, random_state=0)
    random = np.random.default_rng(0).integers(12, size=len(y))
    each, nothing = np.eye(12, dtype=bool), np.zeros((1, 12), dtype=bool)
    groups = np.repeat(np.eye(3, dtype=bool), 4, axis=1)
    assert selection.finding(y, each).min() >= 5 / 6
    assert selection.finding(y, groups).tolist() == [1, 1, 1]
    assert selection.finding(random, each).max() == 0
    assert np.isnan(selection.finding(y, nothing)).all()


def test_finding_counts_only_rows_that_a_half_did_not_see():
    inside = np.array([[True, True, True, False, False, False]])
    clusters = np.array([[[0, 0, 1, 1, 1, 0]]]), np.array([[[0, 1, 1, 0, 0, 1]]])  # by the first half; by the second
    halves = Halves(np.array([2]), inside, np.stack(clusters, axis=1))
    sets = np.array([[0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 0]], dtype=bool)
    # The first half sees the rows 3 to 5 as {3, 4} and {5}; the second one the rows 0 to 2 as {0} and {1, 2}.
    assert halves.finding(sets).tolist() == [1, 1, 1, 0]


def test_levels_are_apart_and_share_more():
    numbers = [2, 3, 4, 6, 8, 12, 16, 24]
    entropy = np.log2(numbers)[:, None] * np.ones(3)

    def levels(*curve):
        return find_levels(numbers, np.array(curve)[:, None] * np.ones(3), entropy)

    assert levels(1, 0.6, 0.45, 0.35, 0.3, 0.2, 0.15, 0.1) == {"medium": 2}, "more clusters share less"
    assert levels(0.5, 1, 0.6, 0.8, 0.85, 1, 0.9, 0.7) == {"coarse": 3, "medium": 12}
    assert levels(0.3, 0.4, 0.45, 0.6, 1, 0.75, 0.7, 0.8) == {"medium": 8, "fine": 24}, "halves hardly agree on 4"
    assert levels(0.5, 0.9, 0.9, 1, 0.8, 0.75, 0.6, 0.5) == {"coarse": 3, "medium": 6, "fine": 12}


def test_numbers_that_differ_by_noise_are_level():
    rng = np.random.default_rng(0)
    numbers = [2, 3, 4, 5, 6]
    worth = np.array([0.2, 0.8, 0.81, 0.6, 0.5])[:, None]
    shared = worth + np.log2(numbers)[:, None] / 2
    assert find_levels(numbers, shared / 3 * np.ones(6), np.full((5, 6), 3.0))["medium"] == 4
    noisy = (shared + rng.normal(0, 0.05, size=(5, 6))) / 3
    assert find_levels(numbers, noisy, np.full((5, 6), 3.0))["medium"] == 3


def test_agreement_and_bits():
    labels = np.repeat(np.arange(4), 50)
    random = np.random.default_rng(0).permutation(labels)
    assert bits(labels) == pytest.approx(2)
    assert bits(np.zeros(9, dtype=int)) == 0
    assert agreement(np.array([[labels, labels], [labels[::-1], random]])) == pytest.approx([1, 0], abs=0.02)


def test_false_alarms_are_as_rare_as_asked():
    """Without structure the data are one more draw, so they beat all others about as often as any of these."""
    rng = np.random.default_rng(0)
    curves = rng.normal(0.1, 0.05, size=(2000, 20, 8))
    alarms = np.mean([count_as_good(own, others) == 0 for own, *others in curves])
    assert alarms == pytest.approx(0.05, abs=0.015)


def test_clear_cases_need_few_draws():
    flat = [np.full(5, 0.01 * i) for i in range(FIRST_DRAWS)]
    assert not undecided(np.full(5, 0.9), flat), "far above"
    assert not undecided(np.full(5, 0.0), flat), "below"
    assert undecided(np.full(5, 0.1), flat)
    assert not undecided(np.full(5, 0.1), []), "nobody asked"
    assert standings(np.full(5, 0.9), flat).argmax() == 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("whole", [True, False])
def test_draws_have_the_sums_and_variances_of_the_data(sparse, whole):
    rng = np.random.default_rng(0)
    n, p = 2000, 30
    means = np.outer(rng.lognormal(0, 0.3, n), np.geomspace(0.02, 8, p))
    X = rng.poisson(rng.gamma(means)) if whole else rng.gamma(rng.poisson(means)) * 1.5
    one = OneCluster(csr_array(X) if sparse else X, None)
    drawn = one.draw(np.random.default_rng(1))
    assert isinstance(drawn, csr_array) == sparse
    drawn = csr_array(drawn).toarray()
    assert drawn.sum(axis=0) == pytest.approx(X.sum(axis=0), rel=0.5)
    assert drawn.sum() == pytest.approx(X.sum(), rel=0.03)
    assert np.corrcoef(drawn.sum(axis=1), X.sum(axis=1))[0, 1] > 0.5
    assert np.median(drawn.var(axis=0) / X.var(axis=0)) == pytest.approx(1, abs=0.15)
    assert (drawn <= X.max(axis=0)).all()
    assert (drawn == np.rint(drawn)).all() == whole
    assert np.mean(drawn == 0) == pytest.approx(np.mean(X == 0), abs=0.02)


@pytest.mark.parametrize("groups", [None, np.arange(2000) % 2])
def test_draws_are_as_far_from_one_profile_as_the_data(groups):
    """Also where one feature is much of most rows, and varies most: it changes their sums, too."""
    rng = np.random.default_rng(0)
    means = np.outer(np.ones(2000), 200 / np.arange(1, 31))
    X = rng.poisson(means * rng.gamma(np.linspace(0.5, 5, 30)) / np.linspace(0.5, 5, 30))
    one = OneCluster(X, groups)

    def squares(X):
        return np.square(X - np.outer(X.sum(axis=1), X.sum(axis=0)) / X.sum()).sum(axis=0)

    drawn = np.mean([squares(one.draw(rng)) for _ in range(5)], axis=0)
    assert drawn == pytest.approx(squares(X), rel=0.1)


def test_draws_of_one_feature():
    X = np.random.default_rng(0).poisson(1e6, size=(50, 1))
    assert OneCluster(X).variances == pytest.approx(1)


def test_draws_keep_the_profiles_of_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], 500)
    X = rng.poisson(np.array([[9.0, 1.0], [1.0, 4.0]])[groups])
    drawn = OneCluster(X, groups).draw(rng)
    for code in (0, 1):
        assert drawn[groups == code].mean(axis=0) == pytest.approx(X[groups == code].mean(axis=0), rel=0.1)


def test_the_same_answer_on_any_number_of_threads():
    X = nested(rows=12)[0]
    one, two, three = (select_n_clusters(X, random_state=5, n_threads=n) for n in (1, 2, 3))
    assert one.record() == two.record() == three.record()
    assert one.halves.labels.tobytes() == two.halves.labels.tobytes()


def test_dense_counts_and_progress(capsys):
    X = nested(rows=12)[0]
    shares = []
    dense = select_n_clusters(X.toarray(), verbose=1, progress=shares.append, random_state=0)
    assert "100%" in capsys.readouterr().out
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(shares) >= 10
    assert dense.numbers.tolist() == select_n_clusters(X, random_state=0).numbers.tolist()


def test_rows_are_sampled():
    X, y = nested()
    selection = select_n_clusters(X, n_rows=240, random_state=0)
    assert (selection.n_rows, selection.n_total) == (240, 360)
    assert "halves of 240 of the 360 documents agree" in selection.notes("documents")[0]
    assert selection.finding(y, np.eye(12, dtype=bool)).min() > 0.5


def test_rows_of_zeros_are_left_out():
    X, _ = nested(rows=12)
    empty = np.r_[X.toarray()[:100], np.zeros((7, 300)), X.toarray()[100:]]
    selection = select_n_clusters(empty, random_state=0)
    assert not np.isin(np.arange(100, 107), selection.rows).any()
    assert selection.n_rows == 144


def test_as_the_model_of_the_levels():
    """The labels of a level are clusters that a model of all rows finds, too."""
    X, y = nested()
    level = next(level for level in select_n_clusters(X, random_state=0).levels if level.n_clusters == 12)
    fitted = ONMF(12, init="random-partition", n_init=10, random_state=0).fit(X)
    assert agreement(np.array([[level.labels], [fitted.labels_]])) > 0.9
    assert agreement(np.array([[level.labels], [y]])) > 0.9


def test_fewer_directions_than_clusters():
    rows = np.random.default_rng(0).poisson(1.0, size=(5, 40)) + 1
    selection = select_n_clusters(np.repeat(rows, 50, axis=0), k_min=2, random_state=0)
    assert selection.n_clusters == 5
    assert selection.finding(np.repeat(np.arange(5), 50), np.eye(5, dtype=bool)).tolist() == [1] * 5


def test_one_feature():
    assert select_n_clusters(np.ones((9, 1)), random_state=0).n_clusters == 1


def test_the_range():
    assert [check_range(1, None, n) for n in (4, 50, 10_000)] == [2, 5, 60]
    assert check_range(20, None, 50) == 20
    assert check_range(1, 300, 10_000) == 300


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.full((9, 3), 2), {"beta_loss": "bernoulli"}, "Values above 1"),
        (np.ones((9, 3)), {"k_min": 0}, "k_min=0 is not allowed"),
        (np.ones((9, 3)), {"k_min": 4, "k_max": 3}, "k_max=3 is less than k_min=4"),
        (np.ones((9, 3)), {"k_max": 1}, "k_max=1 is not a choice"),
        (np.ones((9, 3)), {"k_max": 5}, "k_max=5 is too large for 9 rows"),
        (np.ones((3, 3)), {}, "k_min=2 is too large for 3 rows"),
        (np.zeros((9, 3)), {}, "too large for 0 rows with entries above zero"),
        (np.ones((9, 3)), {"false_alarms": 0}, "false_alarms=0 must be between 0 and 1"),
        (np.ones((9, 3)), {"groups": list("aab")}, "groups"),
        (-np.ones((9, 3)), {}, "Negative values"),
        (np.full((9, 3), math.nan), {}, "NaN"),
    ],
)
def test_what_cannot_be_is_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        select_n_clusters(X, **options)
