"""How many clusters: the criteria, and their choice on data with a known answer."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf import Selection, select_n_clusters
from onmf.datasets import make_counts
from onmf.select import _split


@pytest.mark.parametrize("k", [3, 8, 16, 30])
def test_held_out_likelihood_finds_well_separated_clusters(k):
    X = make_counts(20 * k, 400, k, length=120, overlap=0.3, random_state=k).X
    selection = select_n_clusters(X, range(max(2, k - 3), k + 4), random_state=0)
    assert abs(selection.n_clusters - k) <= 1


def test_halves_add_up_and_rows_are_held_out():
    X = make_counts(50, 40, 3, random_state=0).X
    out = np.arange(50) % 3 == 0
    for rows in (X, X.toarray()):
        train, first, second = _split(rows, out, np.random.default_rng(0))
        whole = first + second
        dense = whole.toarray() if hasattr(whole, "toarray") else whole
        assert np.array_equal(dense, X.toarray()[out])
        assert train.shape[0] == 50 - out.sum()
        assert 0.4 < first.sum() / whole.sum() < 0.6


def test_a_selection_tells():
    numbers = np.array([2, 3, 4])
    selection = Selection(
        numbers,
        np.array([-5.0, -4.0, -4.5]),
        np.array([0.1, 0.1, 0.1]),
        np.array([1.0, 0.9, 0.5]),
        np.array([30.0, 20.0, 10.0]),
    )
    assert selection.chosen == {"held-out": 3, "stability": 2, "bic": 4}
    assert selection.n_clusters == 3
    assert [row["n_clusters"] for row in selection.table()] == [2, 3, 4]
    assert "← held-out" in str(selection).splitlines()[2]
    axes = selection.plot()
    assert len(axes) == 3
    assert axes[0].get_title().endswith(": 3")


def test_the_largest_number_tried_is_told():
    X = make_counts(300, 60, 8, random_state=0).X
    assert "the largest number tried is best: try larger ones." in str(select_n_clusters(X, [2, 3], random_state=0))
    with pytest.raises(TypeError, match=r"candidates=5 must be several numbers of clusters"):
        select_n_clusters(X, 5)


def test_the_same_seed_gives_the_same_answer_on_any_number_of_threads():
    X = make_counts(120, 80, 3, random_state=0).X
    one, two = (select_n_clusters(X, [2, 3, 4], n_init=3, random_state=5, n_threads=n) for n in (1, 2))
    assert one.table() == two.table()


def test_dense_counts_and_a_progress_bar(capsys):
    X = make_counts(60, 30, 2, random_state=0).X.toarray()
    selection = select_n_clusters(X, [2, 3], n_init=2, n_splits=2, random_state=0, verbose=1)
    assert selection.held_out.shape == (2,)
    assert "100%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.ones((9, 3)) / 2, {}, "not integers.*not frequencies or tf-idf"),
        (csr_array(np.ones((9, 3))), {"candidates": [2, 7]}, "from 1 to 6"),
        (np.ones((9, 3)), {"candidates": []}, "from 1 to 6"),
        (np.ones((9, 3)), {"candidates": [2], "n_init": 1}, "must both be at least 2"),
        (-np.ones((9, 3)), {"candidates": [2]}, "Negative values"),
    ],
)
def test_what_cannot_be_is_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        select_n_clusters(X, **options)
