"""How many clusters: the range that grows, the criteria, and their choice on data with a known answer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf import Selection, select_n_clusters
from onmf.datasets import make_counts
from onmf.select import check_range, reproduced, try_numbers


def in_bursts(X, clusters, seed, concentration=50.0):
    """Documents of the same lengths and clusters, in which a word that occurs once is likely to occur again."""
    rng = np.random.default_rng(seed)
    lengths = X.X.sum(axis=1)
    shares = rng.gamma(concentration * X.profiles[clusters]) + 1e-300
    return csr_array(rng.multinomial(lengths, shares / shares.sum(axis=1, keepdims=True)))


@pytest.mark.parametrize("k", [3, 8, 16, pytest.param(30, marks=pytest.mark.long("larger data"))])
def test_well_separated_clusters_are_counted(k):
    X = make_counts(20 * k, 400, k, length=120, overlap=0.3, random_state=k).X
    selection = select_n_clusters(X, k_max=min(50, 10 * k), n_init=2, random_state=0)
    assert abs(selection.n_clusters - k) <= 1
    assert selection.candidates[-1] >= min(2 * selection.n_clusters, 16), "the range goes beyond the choice"


@pytest.mark.short("many fits choose a number")
@pytest.mark.parametrize("k", [3, 6])
def test_bursts_are_no_clusters(k):
    """Halves of the words do not share a burst. Halves of the counts do, and ask for more clusters."""
    made = make_counts(50 * k, 800, k, length=120, overlap=0.3, random_state=k)
    X = in_bursts(made, made.y, k)
    selection = select_n_clusters(X, random_state=0)
    assert abs(selection.n_clusters - k) <= 1
    by_counts = select_n_clusters(X, selection.candidates, halves="counts", criterion="held-out", random_state=0)
    assert by_counts.n_clusters >= selection.chosen["held-out"]
    assert abs(selection.chosen["held-out"] - k) <= 2


def test_data_without_clusters():
    X = make_counts(300, 200, 1, random_state=0).X
    selection = select_n_clusters(X, k_min=1, random_state=0)
    assert selection.n_clusters == 1
    assert selection.information[0] == 0
    assert selection.found_nothing
    assert "there may be no clusters here" in str(selection)
    assert selection.table()[0]["stability"] is None, "one cluster is always reproduced"


def test_information_is_what_two_clusterings_share():
    labels = np.repeat(np.arange(4), 50)
    assert reproduced(labels, labels[::-1]) == pytest.approx((2.0, 1.0))
    chance = reproduced(labels, np.random.default_rng(0).permutation(labels))
    assert chance.stability == pytest.approx(0, abs=0.05)
    assert chance.information == pytest.approx(-2, abs=0.2)
    halved = np.where(np.arange(200) % 2, labels, labels + 4)  # one more bit, which the other does not have
    assert reproduced(labels, labels).information > reproduced(labels, halved).information > 0


@pytest.mark.parametrize("best", [2, 3, 7, 12, 17, 30, 31, 77])
def test_the_range_grows_until_the_criterion_falls(best):
    planned = []
    tried = try_numbers(lambda k: -abs(np.log(k / best)), 2, 100, planned.extend)
    assert max(tried, key=tried.get) == best if best < 31 else abs(max(tried, key=tried.get) - best) <= best // 16
    assert planned == list(tried), "nothing is tried twice"
    assert len(tried) < 20
    assert max(tried) in (16, 32, 64, 100)
    assert max(tried) >= min(1.8 * best, 100), "the criterion was seen to fall"


def test_the_range_stays_within_its_bounds():
    assert sorted(try_numbers(float, 5, 9)) == [5, 7, 8, 9]
    assert sorted(try_numbers(float, 4, 4)) == [4]
    assert min(try_numbers(lambda k: -k, 1, 50)) == 1
    assert [check_range(1, None, n) for n in (4, 50, 10_000)] == [2, 10, 100]
    assert check_range(2, None, 50) == 10
    assert check_range(20, None, 50) == 20


def made_selection(**options):
    values = {
        "information": [0.5, 1.5, 1.0, 1.2, 0.9],
        "information_error": [0.1, 0.1, 0.1, 0.1, 0.1],
        "held_out": [-5.0, -4.0, -4.5, -3.5, -3.0],
        "held_out_error": [0.1, 0.1, 0.1, 0.1, 0.1],
        "stability": [np.nan, 0.9, 0.5, 0.4, 0.3],
        "objective": [9.0, 8.0, 7.0, 6.0, 5.9],
        "bic": [30.0, 20.0, 10.0, 40.0, 50.0],
    }
    return Selection(np.array([1, 3, 4, 6, 8]), **{name: np.array(v) for name, v in values.items()}, **options)


def test_a_selection_tells():
    selection = made_selection(n_rows=10, n_total=50)
    assert selection.chosen == {"information": 3, "held-out": 8, "stability": 3, "bic": 4}
    assert selection.n_clusters == 3
    assert selection.runners_up == [6]
    assert [row["n_clusters"] for row in selection.table()] == [1, 3, 4, 6, 8]
    lines = str(selection).splitlines()
    assert lines[2].endswith("← chosen")
    assert lines[4].endswith("runner-up")
    assert "3 clusters were chosen by information, of 1 to 8, on 10 of the 50 rows. Runners-up: 6." in str(selection)
    assert selection.record()["chosen"]["bic"] == 4
    axes = selection.plot()
    assert [ax.get_title().rpartition(": ")[2] for ax in axes] == ["3", "8", "3", "4"]
    by_objective = made_selection(criterion="objective", bend=4)
    assert by_objective.n_clusters == 4
    assert by_objective.plot()[0].get_title() == "objective (lower is better): 4"
    assert "the largest number that was tried is the best" in str(made_selection(criterion="held-out")).lower()


def test_stability_chooses_among_numbers_that_are_level():
    selection = made_selection()
    level = replace(selection, information=np.array([0.5, 1.43, 1.0, 1.5, 0.9]))
    assert level.n_clusters == 3, "6 has more information by less than its error, and is less stable"
    assert replace(level, information=np.array([0.5, 1.37, 1.0, 1.5, 0.9])).n_clusters == 6
    assert replace(level, information_error=np.full(5, np.nan)).n_clusters == 6, "one halving has no error"
    nothing = replace(level, information=np.array([0.0, -0.5, -1, -1, -1]), information_error=np.zeros(5))
    assert nothing.n_clusters == 1


def test_the_fewest_clusters_that_predict_as_well_as_the_best():
    values = {"held_out": np.array([-5.0, -4.05, -4.0, -4.2, -4.5]), "held_out_error": np.full(5, 0.1)}
    best = replace(made_selection(criterion="held-out"), **values)
    fewest = replace(best, fewest=True)
    assert (best.n_clusters, fewest.n_clusters) == (4, 3)
    assert (best.enough, fewest.enough) == (None, -4.1)
    assert fewest.runners_up == [4]
    assert (
        "of 1 to 8. 4 clusters predict a held-out count better by 0.05 nats, which is no more than the standard error, "
        "0.1: the smallest such number was chosen. Runners-up: 4."
    ) in str(fewest)
    assert "predict" not in str(best)
    assert replace(fewest, held_out_error=np.full(5, np.nan)).n_clusters == 4
    assert replace(fewest, criterion="information").n_clusters == 3


def test_the_largest_number_tried_is_told():
    X = make_counts(300, 60, 8, random_state=0).X
    assert "larger numbers may be better." in str(select_n_clusters(X, [2, 3], criterion="held-out", random_state=0))
    with pytest.raises(TypeError, match=r"candidates=5 must be several numbers of clusters"):
        select_n_clusters(X, 5)


def test_the_same_seed_gives_the_same_answer_on_any_number_of_threads():
    X = make_counts(120, 80, 3, random_state=0).X
    one, two = (select_n_clusters(X, [2, 3, 4], n_init=3, random_state=5, n_threads=n) for n in (1, 2))
    assert one.table() == two.table()


def test_dense_counts_and_progress(capsys):
    X = make_counts(60, 30, 2, random_state=0).X.toarray()
    shares = []
    options = {"n_init": 2, "n_splits": 1, "random_state": 0}
    selection = select_n_clusters(X, verbose=1, progress=shares.append, **options)
    assert "100%" in capsys.readouterr().out
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(shares) > len(selection.candidates)
    for halves in ("features", "counts"):
        dense, sparse = (select_n_clusters(A, [1, 2, 3], halves=halves, **options) for A in (X, csr_array(X)))
        assert dense.information == pytest.approx(sparse.information)
        assert np.isfinite(dense.held_out).all()


def test_rows_are_sampled():
    X = make_counts(300, 60, 3, random_state=0).X
    selection = select_n_clusters(X, [2, 3, 4], n_rows=100, random_state=0)
    assert (selection.n_rows, selection.n_total) == (100, 300)
    assert "on 100 of the 300 documents" in selection.notes("documents")[0]


def test_one_word():
    selection = select_n_clusters(np.ones((9, 1)), [1, 2], random_state=0)
    assert np.isfinite(selection.held_out).all()


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.full((9, 3), 2), {"beta_loss": "bernoulli"}, "Values above 1"),
        (np.ones((9, 3)) / 2, {}, "not integers.*not frequencies or tf-idf"),
        (csr_array(np.ones((9, 3))), {"candidates": [2, 7]}, "from 1 to 4"),
        (np.ones((9, 3)), {"candidates": []}, "from 1 to 4"),
        (np.ones((9, 3)), {"candidates": [2], "n_init": 0}, "must be at least 1"),
        (np.ones((9, 3)), {"criterion": "elbow"}, "criterion='elbow' is not known: use 'information', .* or 'bic'"),
        (np.ones((9, 3)), {"halves": "rows"}, "halves='rows' is not known: use 'features' or 'counts'"),
        (np.ones((9, 3)), {"k_min": 0}, "k_min=0 is not allowed"),
        (np.ones((9, 3)), {"k_min": 4, "k_max": 3}, "k_max=3 is less than k_min=4"),
        (np.ones((9, 3)), {"k_max": 5}, "k_max=5 is too large for 9 rows"),
        (np.ones((3, 3)), {}, "k_min=2 is too large for 3 rows"),
        (-np.ones((9, 3)), {"candidates": [2]}, "Negative values"),
    ],
)
def test_what_cannot_be_is_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        select_n_clusters(X, **options)
