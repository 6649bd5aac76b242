"""Marker genes: against the definitions, and against scanpy, whose functions read what is written."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from scipy.stats import ttest_ind

from onmf.cells import Cells, cluster, markers
from onmf.cells.genes import LARGEST, markers_of, names_of, profiles_of
from onmf.datasets import make_counts

anndata = pytest.importorskip("anndata", reason="anndata is not installed")

# Warnings of anndata and scanpy about their next versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]


@pytest.fixture(scope="module")
def clustered():
    """An object with four clusters."""
    made = make_counts(300, 60, 4, length=150, random_state=0)
    adata = anndata.AnnData(csr_matrix(made.X.astype(np.float64)))
    adata.var_names = [f"GENE{j}" for j in range(60)]
    adata.obsm["X_umap"] = np.random.default_rng(0).normal(size=(300, 2))
    cluster(adata, 4)
    return adata


@pytest.fixture(scope="module")
def scanpy():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    return pytest.importorskip("scanpy", reason="scanpy is not installed")


def logs_of(X):
    return np.log1p(1e4 * X / np.maximum(X.sum(axis=1, keepdims=True), 1))


class TestDefinitions:
    def test_by_brute_force(self):
        X = np.random.default_rng(0).poisson(1.5, (50, 8))
        labels = np.arange(50) % 3 - (np.arange(50) % 10 == 9) * 5  # some cells have no cluster
        labels = np.maximum(labels, -1)
        found = markers_of(profiles_of(csr_array(X), labels, 3), 8)
        assert all(np.array_equal(np.sort(row), np.arange(8)) for row in found.genes)
        assert (np.diff(found.scores, axis=1) <= 0).all()
        logs = logs_of(X)
        for c in range(3):
            inside, outside = logs[labels == c], logs[(labels != c) & (labels >= 0)]
            gap = inside.mean(axis=0) - outside.mean(axis=0)
            effect = gap / np.sqrt((inside.var(axis=0, ddof=1) + outside.var(axis=0, ddof=1)) / 2)
            own = found.genes[c]
            assert found.scores[c] == pytest.approx(effect[own])
            assert found.p_values[c] == pytest.approx(ttest_ind(inside, outside, equal_var=False).pvalue[own])
            assert found.share_inside[c] == pytest.approx((inside > 0).mean(axis=0)[own])
            assert found.share_outside[c] == pytest.approx((outside > 0).mean(axis=0)[own])
            ratio = np.expm1(inside.mean(axis=0)) / np.expm1(outside.mean(axis=0))
            assert found.log_fold_changes[c] == pytest.approx(np.log2(ratio)[own], rel=1e-6)
            assert (found.adjusted[c] >= found.p_values[c]).all()

    def test_genes_that_do_not_vary(self):
        X = np.array([[5, 5, 0], [5, 5, 0], [5, 0, 5], [5, 0, 5]])
        found = markers_of(profiles_of(csr_array(X), np.array([0, 0, 1, 1]), 2), 3)
        assert found.genes[:, 0].tolist() == [1, 2]
        assert found.scores.tolist() == [[LARGEST, 0, -LARGEST]] * 2
        assert np.isfinite(found.log_fold_changes).all()
        assert np.isfinite(found.p_values).all()

    def test_groups_without_cells(self):
        X = np.random.default_rng(0).poisson(2, (20, 4))
        found = markers_of(profiles_of(csr_array(X), np.ones(20, dtype=int), 3), 4)
        for values in (found.scores, found.log_fold_changes):
            assert (values == 0).all(), "nothing differs from no cells"
        assert (found.p_values == 1).all()
        assert names_of(found, list("abcd")) == ["cluster 0", "cluster 1", "cluster 2"]

    def test_p_values_of_clusters_are_naive(self):
        """Counts without any structure: the clusters differ all the same, since these counts made them."""
        X = np.random.default_rng(0).poisson(2.0, (300, 200))
        found = cluster(Cells(csr_array(X), list(map(str, range(300))), list(map(str, range(200)))), 3).markers
        assert (found.adjusted < 0.05).sum() > 10
        assert (np.diff(found.scores, axis=1) <= 0).all(), "markers are ordered by effect"
        assert {"p_naive", "p_naive_adjusted"} < set(found.columns(list(map(str, range(200)))))

    def test_names_are_the_best_markers(self, clustered):
        names = clustered.uns["onmf_markers"]["names"]
        best = [" ".join(names[str(c)][:2]) for c in range(4)]
        assert clustered.uns["onmf"]["names"].tolist() == best


class TestOfGroups:
    def test_frame(self, clustered):
        adata = clustered.copy()
        adata.obs["kind"] = np.where(np.arange(300) < 10, None, adata.obs["onmf"].astype(str) + " kind")
        frame = markers(adata, "kind", n_markers=5)
        assert frame.columns.tolist() == [
            "group",
            "gene",
            "effect",
            "log2_fold_change",
            "share_inside",
            "share_outside",
            "p_naive",
            "p_naive_adjusted",
        ]
        assert frame["group"].tolist() == [f"{c} kind" for c in range(4) for _ in range(5)]
        assert frame["gene"].tolist() == [
            name for c in range(4) for name in adata.uns["kind_markers"]["names"][f"{c} kind"]
        ]
        assert (frame["share_inside"] <= 1).all()
        again = anndata.AnnData(adata.X[10:], obs=adata.obs[10:], var=adata.var)
        assert markers(again, "kind", n_markers=5).equals(frame), "cells without a group are left out"

    def test_the_same_as_of_clusters(self, clustered):
        adata = clustered.copy()
        adata.layers["twice"] = adata.X.copy()
        frame = markers(adata, layer="twice")
        for name, column in (("names", "gene"), ("pvals", "p_naive")):
            written = np.concatenate([clustered.uns["onmf_markers"][name][str(c)] for c in range(4)])
            assert frame[column].tolist() == written.tolist()
        assert adata.uns["onmf_markers"]["params"]["layer"] == "twice"

    def test_refusals(self, clustered):
        with pytest.raises(KeyError, match=r"adata.obs has no column 'kind': there are onmf, onmf_confidence"):
            markers(clustered, "kind")
        with pytest.raises(ValueError, match="n_markers=0 is not allowed"):
            markers(clustered.copy(), n_markers=0)
        adata = clustered.copy()
        adata.obs["one"] = "all"
        with pytest.raises(ValueError, match=r"adata.obs\['one'\] has 1 group: markers tell groups apart"):
            markers(adata, "one")


class TestScanpy:
    def test_the_same_numbers_as_its_t_test(self, clustered, scanpy):
        adata = clustered.copy()
        scanpy.pp.normalize_total(adata, target_sum=1e4)
        scanpy.pp.log1p(adata)
        scanpy.tl.rank_genes_groups(adata, "onmf", method="t-test", n_genes=60)
        theirs = scanpy.get.rank_genes_groups_df(adata, None).set_index(["group", "names"]).sort_index()
        ours = scanpy.get.rank_genes_groups_df(clustered, None, key="onmf_markers")
        ours = ours.set_index(["group", "names"]).sort_index()
        assert len(ours) == 4 * 60
        assert ours.index.equals(theirs.index)
        for column in ("logfoldchanges", "pvals", "pvals_adj"):
            assert ours[column].to_numpy() == pytest.approx(theirs[column].to_numpy(), rel=1e-4, abs=1e-300), column

    def test_its_plots(self, clustered, scanpy):
        import matplotlib.pyplot as plt

        adata = clustered.copy()
        scanpy.pp.pca(adata)  # from which its dendrogram of the clusters is made
        adata.obs.loc[adata.obs_names[0], ["onmf", "onmf_confidence"]] = np.nan  # a cell that was left out
        best = scanpy.get.rank_genes_groups_df(adata, group="0", key="onmf_markers")["names"][:3].tolist()
        scanpy.pl.umap(adata, color=["onmf", "onmf_confidence", best[0]], show=False)
        scanpy.pl.dotplot(adata, best, groupby="onmf", show=False)
        drawn = scanpy.pl.rank_genes_groups_dotplot(adata, key="onmf_markers", n_genes=2, show=False)
        labels = {text.get_text() for text in drawn["mainplot_ax"].get_xticklabels()}
        assert set(best[:2]) <= labels
        plt.close("all")

    def test_after_a_file(self, clustered, scanpy, tmp_path):
        clustered.write_h5ad(tmp_path / "cells.h5ad")
        again = scanpy.read_h5ad(tmp_path / "cells.h5ad")
        ours, theirs = (scanpy.get.rank_genes_groups_df(each, None, key="onmf_markers") for each in (clustered, again))
        assert ours.equals(theirs)
