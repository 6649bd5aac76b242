"""Accuracy, spectral angles and divergence, against values computed by hand or by brute force."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure, normalized_mutual_info_score

from onmf import metrics
from onmf.metrics import compare


def test_accuracy_is_the_best_over_all_matchings():
    rng = np.random.default_rng(0)
    for _ in range(20):
        y_true, y_pred = rng.integers(4, size=30), rng.integers(4, size=30)
        best = max(np.mean(np.array(p)[y_pred] == y_true) for p in permutations(range(4)))
        assert metrics.clustering_accuracy(y_true, y_pred) == pytest.approx(best)


def test_accuracy_with_different_numbers_of_clusters_and_classes():
    assert metrics.clustering_accuracy([0, 0, 0, 1, 1, 1], [0, 0, 1, 2, 2, 3]) == pytest.approx(4 / 6)
    assert metrics.clustering_accuracy([0, 1, 2, 3], [0, 0, 0, 0]) == pytest.approx(1 / 4)
    assert metrics.clustering_accuracy(["a", "b"], [7, 3]) == 1


def test_match_clusters_leaves_out_unmatched_clusters():
    assert metrics.match_clusters(["a", "a", "b"], [5, 5, 6]) == {5: "a", 6: "b"}
    assert metrics.match_clusters([0, 0, 0], [1, 1, 2]) == {1: 0}


def test_accuracy_needs_labels_of_equal_length():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        metrics.clustering_accuracy([0, 1], [0])


def test_mrsa():
    x = np.array([1.0, 2.0, 4.0, 3.0])
    assert metrics.mrsa(x, 5 * x + 7) == pytest.approx(0, abs=1e-5)
    assert metrics.mrsa(x, -x) == pytest.approx(100)
    y = np.array([2.0, 1.0, 0.0, 5.0])
    expected = 100 / np.pi * np.arccos(np.corrcoef(x, y)[0, 1])
    assert metrics.mrsa(x, y) == pytest.approx(expected)


def test_mrsa_of_matrices_takes_the_best_permutation():
    rng = np.random.default_rng(1)
    A, B = rng.random((4, 9)), rng.random((4, 9))
    best = min(np.mean([metrics.mrsa(a, B[j]) for a, j in zip(A, p, strict=True)]) for p in permutations(range(4)))
    assert metrics.mrsa(A, B) == pytest.approx(best)
    match = metrics.match_spectra(A, A[[2, 0, 3, 1]])
    assert match.permutation.tolist() == [1, 3, 0, 2]
    assert match.mean == pytest.approx(0, abs=1e-5)
    assert metrics.match_spectra(A[:2], A).permutation.tolist() == [0, 1]


def test_mrsa_refuses_other_shapes():
    with pytest.raises(ValueError, match="both need the same bands"):
        metrics.mrsa(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="truth has 3 dimensions"):
        metrics.mrsa(np.ones((2, 3, 4)), np.ones((2, 4)))


def test_a_constant_spectrum_is_at_a_right_angle():
    assert metrics.mrsa([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == pytest.approx(50)


def test_kl_divergence():
    X, Y = np.array([[0.0, 2.0], [1.0, 3.0]]), np.array([[0.5, 1.0], [1.0, 4.0]])
    expected = 0.5 + (2 * np.log(2) - 2 + 1) + 0 + (3 * np.log(3 / 4) - 3 + 4)
    for make in (np.asarray, csr_array):
        assert metrics.kl_divergence(make(X), Y) == pytest.approx(expected)
        assert metrics.kl_divergence(make(X), csr_array(Y)) == pytest.approx(expected)
    assert metrics.kl_divergence(X.tolist(), Y.tolist()) == pytest.approx(expected)
    assert metrics.kl_divergence(X, X) == 0
    assert metrics.kl_divergence(X, 0 * Y) == np.inf
    assert metrics.kl_divergence(np.array([[200]], dtype=np.uint8), np.array([[100.0]])) == pytest.approx(
        200 * np.log(2) - 100
    )
    with pytest.raises(ValueError, match="needs X ≥ 0 and Y ≥ 0"):
        metrics.kl_divergence(-X, Y)
    with pytest.raises(ValueError, match="they must be equal"):
        metrics.kl_divergence(X, Y[:1])
    with pytest.raises(ValueError, match="needs X ≥ 0 and Y ≥ 0"):
        metrics.kl_divergence(csr_array([[1.0, 0.0]]), csr_array([[1.0, -3.0]]))


def test_labels_of_any_kind():
    assert metrics.match_clusters(pd.Series(["a", "b", "a"]), [0, 1, 0]) == {0: "a", 1: "b"}
    assert metrics.clustering_accuracy(np.array(["a", "b"], dtype=object), pd.Series([3, 4])) == 1
    with pytest.raises(ValueError, match="There are no labels to compare"):
        metrics.clustering_accuracy([], [])


class TestCompare:
    @pytest.mark.parametrize(("classes", "clusters"), [(3, 3), (6, 20), (4, 1), (1, 4), (1, 1), (30, 2)])
    def test_against_scikit_learn(self, classes, clusters):
        rng = np.random.default_rng(0)
        y = rng.integers(classes, size=200)
        labels = np.where(rng.random(200) < 0.5, y % clusters, rng.integers(clusters, size=200))
        scores = compare(y, labels)
        homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(y, labels)
        assert scores.ari == pytest.approx(adjusted_rand_score(y, labels))
        assert scores.nmi == pytest.approx(normalized_mutual_info_score(y, labels))
        assert scores.nmi == pytest.approx(v_measure)
        assert (scores.homogeneity, scores.completeness) == pytest.approx((homogeneity, completeness))
        most = [np.bincount(y[labels == cluster]).max() for cluster in np.unique(labels)]
        assert scores.purity == pytest.approx(sum(most) / 200)

    def test_accuracy_only_for_equal_numbers(self):
        y, labels = ["a", "a", "b", "b"], [0, 0, 1, 0]
        assert compare(y, labels).accuracy == 0.75
        assert compare(y, labels, n_clusters=3).accuracy is None
        assert compare(y, [0, 1, 2, 2]).accuracy is None
        assert compare(["a"], [4], n_clusters=20).accuracy is None

    def test_in_words(self):
        scores = compare([0, 0, 1, 1], [1, 1, 0, 0])
        assert scores.sentence() == (
            "ARI 1.000, NMI 1.000, homogeneity 1.000, completeness 1.000, purity 100.0%, accuracy 100.0%"
        )
        unequal = compare([0, 0, 1, 1], [1, 1, 0, 2])
        assert "accuracy" not in unequal.sentence()
        assert [name for name, _ in unequal.facts()] == ["ARI", "NMI", "Homogeneity", "Completeness", "Purity"]
        assert unequal.numbers()["accuracy"] is None

    def test_nothing_to_compare(self):
        with pytest.raises(ValueError, match="no labels to compare"):
            compare([], [])
