"""The map of cells."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

import onmf.cells.embed
import onmf.plot
from onmf.cells.embed import map_of_cells, residual_components, variable_genes
from onmf.datasets import make_counts


@pytest.fixture(scope="module")
def cells():
    return make_counts(300, 80, 3, length=120, overlap=0.3, random_state=0)


def quiet(name, share):
    """Progress that nobody looks at."""


def residuals(X, theta=100):
    """Pearson residuals by their formula."""
    X = X.toarray().astype(float)
    mu = X.sum(axis=1, keepdims=True) * X.sum(axis=0) / X.sum()
    with np.errstate(invalid="ignore"):
        R = np.nan_to_num((X - mu) / np.sqrt(mu + mu**2 / theta))
    return np.clip(R, -np.sqrt(len(X)), np.sqrt(len(X)))


def test_components_are_those_of_the_dense_residuals(cells, monkeypatch):
    monkeypatch.setattr(onmf.cells.embed, "BLOCK", 80 * 37)
    X = csr_array(cells.X)
    found = residual_components(X, quiet, 5)
    R = residuals(X)
    U, s, _ = np.linalg.svd(R - R.mean(axis=0), full_matrices=False)
    expected = U[:, :5] * s[:5]
    signs = np.sign((found * expected).sum(axis=0))
    assert found == pytest.approx(signs * expected, abs=1e-3)
    assert np.array_equal(found, residual_components(X, quiet, 5))
    monkeypatch.setattr(onmf.cells.embed, "DENSE", 1000)
    assert found == pytest.approx(residual_components(X, quiet, 5), abs=1e-6), "some eigenvectors, and all of them"


def test_genes_with_the_most_variable_residuals(cells, monkeypatch):
    monkeypatch.setattr(onmf.cells.embed, "MOST_GENES", 20)
    X = csr_array(cells.X)
    expected = np.sort(np.argsort(-residuals(X).var(axis=0))[:20])
    assert variable_genes(X, quiet).tolist() == expected.tolist()


def test_genes_and_cells_without_a_count_do_no_harm():
    X = np.array([[3, 0, 1, 0], [2, 0, 1, 0], [0, 0, 0, 0], [0, 0, 5, 0]])
    embedding, method = map_of_cells(X)
    assert np.isnan(embedding[2]).all()
    assert np.isfinite(embedding[[0, 1, 3]]).all()
    assert method.startswith("the first two principal components")
    one, _ = map_of_cells(np.array([[1], [2], [3]]))
    assert np.isfinite(one).all()


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_what_is_not_a_count_is_refused(value):
    with pytest.raises(ValueError, match="negative, infinite or missing values"):
        map_of_cells(np.array([[1.0, value], [2.0, 3.0]]))


def test_a_broken_matrix_is_refused():
    X = csr_array(np.eye(3))
    X.indices[0] = 9
    with pytest.raises(ValueError, match=r"indices\[0\] = 9"):
        map_of_cells(X)


class TestWithTheLibrary:
    @pytest.fixture(autouse=True)
    def library(self, monkeypatch):
        pytest.importorskip("openTSNE", reason="openTSNE is not installed")
        monkeypatch.setattr(onmf.plot, "EARLY", 100)  # groups that are so clear part early
        monkeypatch.setattr(onmf.plot, "LATE", 100)

    def test_groups_stay_together_and_the_seed_decides(self, cells):
        seen = []
        embedding, method = map_of_cells(cells.X, n_threads=2, progress=lambda name, share: seen.append((name, share)))
        assert method == "t-SNE (openTSNE) of the first 50 principal components of the Pearson residuals of 80 genes"
        assert np.array_equal(embedding, map_of_cells(csc_array(cells.X), n_threads=2)[0])
        distances = np.linalg.norm(embedding[:, None] - embedding[None], axis=2) + np.diag(np.full(300, np.inf))
        assert np.mean(cells.y[distances.argmin(axis=1)] == cells.y) > 0.95
        assert {name for name, _ in seen} == {"principal components", "map"}
        assert seen[-1] == ("map", 1.0)
        assert all(0 <= share <= 1 for _, share in seen)

    def test_a_quick_map_places_a_sample_and_the_others_beside_it(self, cells, monkeypatch):
        monkeypatch.setattr(onmf.plot, "SAMPLE", (60, 100))
        embedding, method = map_of_cells(cells.X, quick=True)
        assert method.endswith("for 100 at random; the others stand beside their nearest neighbours among these")
        assert np.array_equal(embedding, map_of_cells(cells.X, quick=True)[0])
        distances = np.linalg.norm(embedding[:, None] - embedding[None], axis=2) + np.diag(np.full(300, np.inf))
        assert np.mean(cells.y[distances.argmin(axis=1)] == cells.y) > 0.95
        assert distances.min() > 0, "no cell covers another"
        assert "at random" not in map_of_cells(cells.X[:60], quick=True)[1], "few cells are all placed"

    def test_of_very_many_cells_some_are_drawn(self, cells, monkeypatch):
        monkeypatch.setattr(onmf.cells.embed, "MOST_CELLS", 100)
        monkeypatch.setattr(onmf.cells.embed, "MOST_GENES", 40)
        embedding, method = map_of_cells(cells.X, seed=3)
        assert np.isfinite(embedding).all(axis=1).sum() == 100
        assert method.endswith("of the Pearson residuals of 40 genes in 100 cells chosen at random")

    @pytest.mark.parametrize("n", [10, 31])
    def test_few_cells(self, cells, n):
        embedding, _ = map_of_cells(cells.X[:n])
        assert np.isfinite(embedding).all()
