"""Clustering the cells of AnnData objects: what is written, what is refused, and how good it is on real cells."""

import signal

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csc_array, csc_matrix, csr_array, csr_matrix
from sklearn.metrics import adjusted_rand_score

import onmf.cells
import onmf.cells.kind
import onmf.cells.matrix
from onmf.cells import Cells, OnDisk, cluster, deviant_genes, markers, read
from onmf.cells.genes import transform
from onmf.datasets import make_counts, open_h5ad
from onmf.divergence import NegativeBinomial

anndata = pytest.importorskip("anndata", reason="anndata is not installed")

# Warnings of anndata and zarr about their next versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def made():
    """Counts with four clear clusters."""
    return make_counts(300, 80, 4, length=150, random_state=0)


@pytest.fixture(scope="module")
def expected(made):
    """The clusters of these counts."""
    adata = annotated(made.X)
    cluster(adata, 4, n_top_genes=60)
    return adata.obs["onmf"].cat.codes.to_numpy()


def annotated(X, **options):
    adata = anndata.AnnData(X, **options)
    adata.obs_names = [f"cell-{i}" for i in range(adata.n_obs)]
    adata.var_names = [f"gene-{j}" for j in range(adata.n_vars)]
    return adata


def dense(X):
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


def contents(adata):
    """All that an object holds, to compare it with later."""
    return {
        "X": dense(adata.X).tobytes(),
        "obs": adata.obs.to_dict("list"),
        "var": adata.var.to_dict("list"),
        "others": [sorted(map(str, part)) for part in (adata.varm, adata.obsm, adata.uns, adata.layers)],
    }


class TestWhereTheCountsAre:
    @pytest.mark.parametrize("mode", ["memory", "backed", "dask", "layer"])
    def test_in_files(self, made, expected, mode, tmp_path):
        path = tmp_path / "cells.h5ad"
        annotated(csr_matrix(made.X), layers={"dense": made.X.toarray()}).write_h5ad(path)
        if mode == "dask":
            adata = anndata.AnnData(open_h5ad(path, rows=77))
        else:
            adata = anndata.read_h5ad(path, backed="r" if mode == "backed" else None)
        layer = "dense" if mode == "layer" else None
        cluster(adata, 4, layer=layer, key_added="topic", n_top_genes=60, n_init=3)
        assert np.array_equal(adata.obs["topic"].cat.codes, expected)
        assert adata.uns["topic"]["params"] == {
            "n_clusters": 4,
            "layer": layer or "X",
            "beta_loss": "kullback-leibler",
            "view": "counts",
            "n_top_genes": 60,
            "min_genes": 1,
            "min_cells": 1,
            "n_init": 3,
        }
        if mode == "backed":
            adata.file.close()

    @pytest.mark.parametrize("kind", [csr_matrix, csr_array, csc_matrix, csc_array, dense, np.asfortranarray])
    @pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
    def test_in_memory(self, made, expected, kind, dtype):
        adata = annotated(kind(made.X.toarray().astype(dtype)))
        before = contents(adata)
        cluster(adata, 4, n_top_genes=60)
        assert np.array_equal(adata.obs["onmf"].cat.codes, expected)
        assert (type(adata.X), adata.X.dtype, dense(adata.X).tobytes()) == (
            type(kind(made.X.toarray())),
            dtype,
            before["X"],
        )

    @pytest.mark.parametrize("dtype", [np.int64, np.float64])
    def test_stored_zeros_and_unsorted_duplicates(self, made, expected, dtype):
        X = made.X.toarray().astype(dtype)[:, ::-1]
        n, p = X.shape
        data = np.stack([X // 2, X - X // 2], axis=2).ravel()
        columns = np.tile(np.repeat(np.arange(p)[::-1], 2), n)
        adata = annotated(csr_matrix((data.copy(), columns.copy(), np.arange(n + 1) * 2 * p), shape=(n, p)))
        cluster(adata, 4, n_top_genes=60)
        assert np.array_equal(adata.obs["onmf"].cat.codes, expected)
        for array, given in ((adata.X.data, data), (adata.X.indices, columns)):
            assert np.array_equal(array, given), "the counts were changed"

    def test_a_view_in_memory(self, made):
        adata = annotated(csr_matrix(made.X))
        rows, columns = np.arange(0, 300, 2), np.arange(10, 70)
        with pytest.warns(anndata.ImplicitModificationWarning):
            cluster(part := adata[rows, columns], 4)
        assert not part.is_view
        assert "onmf" not in adata.obs
        alone = annotated(csr_matrix(made.X[rows][:, columns]))
        cluster(alone, 4)
        assert part.obs["onmf"].tolist() == alone.obs["onmf"].tolist()

    def test_a_view_of_a_backed_object_is_refused(self, made, expected, tmp_path):
        annotated(csr_matrix(made.X)).write_h5ad(tmp_path / "cells.h5ad")
        adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
        with pytest.raises(ValueError, match=r"a view of a backed object.*adata.to_memory\(\)"):
            cluster(adata[:200], 4)
        assert cluster(adata[:200].to_memory(), 4).n_clusters == 4
        adata.file.close()

    @pytest.mark.parametrize("empty", [0, 12])
    def test_on_disk(self, made, empty, tmp_path, monkeypatch):
        X = made.X.toarray()
        X[:empty] = 0
        annotated(csr_matrix(X)).write_h5ad(tmp_path / "cells.h5ad")
        in_memory = cluster(read(tmp_path / "cells.h5ad"), 4, n_top_genes=30)
        monkeypatch.setattr(onmf.cells.matrix, "LARGE", 10)
        monkeypatch.setattr(onmf.cells.matrix, "ROWS", 50)
        cells = read(tmp_path / "cells.h5ad")
        assert isinstance(cells.X, OnDisk)
        found = cluster(cells, 4, n_top_genes=30)
        assert np.array_equal(found.labels, in_memory.labels)
        assert np.array_equal(found.confidence, in_memory.confidence, equal_nan=True)
        assert np.array_equal(found.profiles, in_memory.profiles)
        assert found.model.n_features_in_ == 30
        without = [note for note in found.notes if "without any counts" in note]
        assert [note.partition(":")[0] for note in without] == ["12 cells without any counts, unassigned"][:empty]


class TestResults:
    def test_what_is_written(self, made):
        adata = annotated(csr_matrix(made.X))
        found = cluster(adata, 4, n_top_genes=60, random_state=1)
        model = found.model
        labels = adata.obs["onmf"].cat.codes.to_numpy()
        assert adjusted_rand_score(made.y, labels) > 0.95
        assert np.array_equal(labels, found.labels)
        assert adata.obs["onmf"].cat.categories.tolist() == ["0", "1", "2", "3"]
        assert (np.diff(np.bincount(labels)) <= 0).all()
        assert (adata.obs["onmf_margin"] >= 0).all()
        assert ((adata.obs["onmf_confidence"] > 0) & (adata.obs["onmf_confidence"] <= 1)).all()
        assert (adata.obs["onmf_runner_up"].cat.codes != labels).all()
        assert (adata.obs["onmf_scale"] ** 2).sum() == pytest.approx(4)
        assert adata.var["onmf_gene"].sum() == 60
        assert np.flatnonzero(adata.var["onmf_gene"]).tolist() == deviant_genes(made.X, 60).tolist()
        shares = np.array([made.X[labels == c].sum(axis=0) / made.X[labels == c].sum() for c in range(4)])
        assert adata.varm["onmf"] == pytest.approx(shares.T)
        assert model.n_features_in_ == 60
        assert adata.uns["onmf"]["objective"] == model.reconstruction_err_
        assert adata.uns["onmf"]["params"]["random_state"] == 1

    def test_the_divergence_that_was_chosen_is_written(self, made, monkeypatch):
        monkeypatch.setattr(onmf.cells.kind, "CLEARLY_FROM_SAME_RUN", -np.inf)  # the negative binomial always wins
        cluster(adata := annotated(csr_matrix(made.X)), 4, beta_loss="kullback-leibler")
        assert adata.uns["onmf"]["params"]["beta_loss"] == "negative-binomial"

    def test_the_results_can_be_saved(self, made, tmp_path):
        adata = annotated(csr_array(made.X))
        cluster(adata, 4)
        markers(adata, n_markers=7)
        adata.write_h5ad(tmp_path / "out.h5ad")
        again = anndata.read_h5ad(tmp_path / "out.h5ad")
        assert contents(again)["obs"] == contents(adata)["obs"]
        assert contents(again)["var"] == contents(adata)["var"]
        assert np.array_equal(again.varm["onmf"], adata.varm["onmf"])
        for name, value in adata.uns["onmf"].items():
            assert np.array_equal(again.uns["onmf"][name], value), name
        for name in ("names", "scores", "pvals", "pvals_adj", "logfoldchanges"):
            for group in "0123":
                saved, found = (each.uns["onmf_markers"][name][group] for each in (again, adata))
                assert len(found) == 7
                assert np.array_equal(saved, found)

    def test_two_results_side_by_side(self, made):
        adata = annotated(csr_matrix(made.X))
        cluster(adata, 4)
        first = adata.obs["onmf"].tolist()
        cluster(adata, 2, key_added="coarse")
        assert adata.obs["onmf"].tolist() == first
        assert adata.obs["coarse"].nunique() == 2
        assert {"onmf", "onmf_markers", "coarse", "coarse_markers"} <= set(adata.uns)
        assert adata.uns["coarse_markers"]["params"]["groupby"] == "coarse"

    def test_transposed_counts_are_noted(self, made):
        symbols = [f"{letters}{i}" for letters in ("CD", "HLA", "RPS", "MT") for i in range(1, 76)]
        barcodes = [f"{'ACGT' * 3}{a}{b}{c}{d}-1" for a in "ACGT" for b in "ACGT" for c in "ACGT" for d in "ACGT"][:80]
        for cells, genes, noted in ((symbols, barcodes, True), (symbols, symbols[:80], False)):
            adata = anndata.AnnData(csr_matrix(made.X))
            adata.obs_names, adata.var_names = cells, genes
            cluster(adata, 4, n_init=1)
            assert any("may be transposed" in note for note in adata.uns["onmf"]["notes"]) is noted

    def test_cells_that_are_left_out(self, made):
        X = made.X.toarray()
        X[[3, 50]] = 0
        X[7] = 0
        X[7, :2] = 5
        adata = annotated(csr_matrix(X))
        cluster(adata, 4, min_genes=3)
        out = [3, 7, 50]
        for name in ("onmf", "onmf_runner_up", "onmf_confidence", "onmf_surprise", "onmf_margin", "onmf_scale"):
            assert np.flatnonzero(adata.obs[name].isna()).tolist() == out, name
        assert "3 cells without at least 3 genes, unassigned: cell-3, cell-7, cell-50." in adata.uns["onmf"]["notes"]
        alone = annotated(csr_matrix(np.delete(X, out, axis=0)))
        cluster(alone, 4)
        assert adata.obs["onmf"].dropna().tolist() == alone.obs["onmf"].tolist()

    def test_one_cluster(self, made):
        adata = annotated(csr_matrix(made.X))
        found = cluster(adata, 1)
        assert set(adata.obs["onmf"]) == {"0"}
        assert (found.confidence == 1).all()
        assert (found.runners_up == -1).all()
        assert adata.uns["onmf"]["names"].tolist() == ["cluster 0"], "nothing marks the only cluster"
        assert (adata.uns["onmf_markers"]["pvals"]["0"] == 1).all()
        assert (adata.uns["onmf_markers"]["logfoldchanges"]["0"] == 0).all()

    def test_counts_that_are_not_whole_are_noted(self, made):
        rng = np.random.default_rng(0)
        X = made.X.toarray() + (made.X.toarray() > 0) * rng.random(made.X.shape)
        adata = annotated(X)
        cluster(adata, 4)
        assert adjusted_rand_score(made.y, adata.obs["onmf"].cat.codes) > 0.9
        assert "Some counts are not whole" in adata.uns["onmf"]["notes"][0]

    def test_known_classes_are_compared(self, made):
        classes = [None if i < 10 else f"type {label}" for i, label in enumerate(made.y)]
        names = [f"cell-{i}" for i in range(300)], [f"gene-{j}" for j in range(80)]
        found = cluster(Cells(made.X, *names, classes=classes), 4, n_markers=5)
        assert found.comparison.ari == pytest.approx(adjusted_rand_score(made.y[10:], found.labels[10:]))
        assert found.comparison.classes == [f"type {c}" for c in range(4)]
        assert found.comparison.table.sum() == 290
        assert np.array_equal(found.comparison.table.sum(axis=1), np.bincount(made.y[10:]))
        assert found.sizes.tolist() == np.bincount(found.labels).tolist()
        assert found.markers.genes.shape == (4, 5)
        assert "300 cells, 80 genes (80 used), 4 clusters" in repr(found)
        unknown = cluster(Cells(made.X, *names, classes=[None] * 300), 4)
        assert unknown.comparison is None


class Stop(Exception):
    """Raised by a test in the middle of a step."""


STEPS = (
    "Choosing genes",
    "Choosing the number of clusters",
    "Clustering",
    "Measuring confidence",
    "Finding markers",
)


class TestNothingIsHalfWritten:
    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
    def test_an_error_leaves_the_object_as_it_was(self, made, step, error):
        adata = annotated(csr_matrix(made.X[:100]))
        before = contents(adata)

        def progress(name, share):
            if name == step:
                if error is KeyboardInterrupt:
                    signal.raise_signal(signal.SIGINT)
                raise error

        with pytest.raises(error):
            cluster(adata, "auto" if "number" in step else 4, progress=progress)
        assert contents(adata) == before


NO_LOGS = {"view": "logs", "beta_loss": "negative-binomial"}
NO_BISECTION = {"init": "bisection", "beta_loss": "frobenius"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("k", "options", "error", "message"),
        [
            (4, {"layer": "counts"}, KeyError, "adata has no layer 'counts': it has no layers"),
            (4, {"layer": "raw"}, KeyError, r"adata has no layer 'raw': pass adata.raw.to_adata\(\)"),
            (4, {"key_added": ""}, ValueError, "key_added='' is not allowed"),
            (4, {"key_added": None}, ValueError, "key_added=None is not allowed"),
            (301, {}, ValueError, "301 clusters of 300 cells are not possible: ask for at most 300"),
            (4, {"min_genes": 81}, ValueError, "min_genes=81 leaves no cells: no cell has more than"),
            (4, {"min_genes": 2.5}, ValueError, "min_genes=2.5 is not allowed"),
            (4, {"view": None}, ValueError, "view=None is not allowed"),
            (4, {"view": "words"}, ValueError, "view='words' is not allowed: use 'auto', 'counts' or 'logs'"),
            (4, NO_LOGS, ValueError, r"use view='counts' \(--view counts on the command"),
            (
                4,
                NO_LOGS | {"beta_loss": NegativeBinomial(2.0)},
                ValueError,
                "'logs' is not allowed with the negative binomial",
            ),
            (4, {"rows": 7}, TypeError, "unexpected keyword argument 'rows'"),
            ("many", {}, ValueError, "n_clusters='many' is not allowed: give a number, 'auto', "),
            (0, {}, ValueError, "n_clusters=0 is not allowed"),
            (4, {"min_cells": 0}, ValueError, "min_cells=0 is not allowed: give a number of cells, at least 1"),
            (4, {"min_cells": 301}, ValueError, "No gene that is in 301 cells differs between the cells"),
            (4, {"n_top_genes": 0.5}, ValueError, "n_top_genes=0.5 is not allowed: give a number of genes"),
            (4, {"beta_loss": "itakura-saito"}, ValueError, "needs X > 0 everywhere"),
            (4, NO_BISECTION, ValueError, "init='bisection' needs a closed form"),
            (4, {"engine": "blocks"}, ValueError, "engine='blocks' cannot take this data"),
            (4, {"init": "best"}, ValueError, "init='best' is not allowed"),
            (4, {"random_state": "x"}, ValueError, "'x' cannot be used to seed"),
        ],
    )
    def test_parameters(self, made, k, options, error, message):
        adata = annotated(csr_matrix(made.X))
        before = contents(adata)
        with pytest.raises(error, match=message):
            cluster(adata, k, **options)
        assert contents(adata) == before

    def test_data(self):
        with pytest.raises(ValueError, match="No gene differs between the cells"):
            cluster(annotated(np.ones((9, 3), dtype=int)), 2)
        with pytest.raises(ValueError, match="min_genes=3 leaves no cells: no cell has more than 1 genes"):
            cluster(annotated(np.eye(3, dtype=int)), 2, min_genes=3)
        with pytest.raises(ValueError, match="3 cells are too few to choose n_clusters: give a number"):
            cluster(annotated(np.eye(3, dtype=int)), "auto")

    def test_a_number_of_markers_is_needed(self, made):
        for number in (0, -3, 1.5):
            with pytest.raises(ValueError, match=f"n_markers={number} is not allowed"):
                cluster(Cells(made.X, [], []), 4, n_markers=number)

    def test_no_anndata(self, made):
        with pytest.raises(TypeError, match="adata is a csr_array, not an AnnData object"):
            cluster(made.X, 4)
        with pytest.raises(TypeError, match=r"adata is a path.*: pass anndata.read_h5ad\('cells.h5ad'\)"):
            cluster("cells.h5ad", 4)
        with pytest.raises(ValueError, match="adata has no X: name the layer"):
            cluster(anndata.AnnData(layers={"counts": made.X}), 4)

    @pytest.mark.parametrize("kind", [csr_matrix, csc_matrix])
    def test_a_damaged_matrix(self, made, kind):
        wrong = annotated(kind(made.X.toarray()))
        wrong.X.indices[3] = 10**6
        for function in (lambda adata: cluster(adata, 4), deviant_genes):
            with pytest.raises(ValueError, match=r"indices\[3\] = 1000000, in .* 0, is outside a matrix"):
                function(wrong)

    @pytest.mark.parametrize(
        "function", [lambda adata: cluster(adata, 4), deviant_genes, lambda adata: markers(adata, "kind")]
    )
    def test_values_that_are_no_counts(self, made, function):
        normalised = made.X.toarray() * (1e4 / made.X.sum(axis=1))[:, None]
        adata = annotated(csr_matrix(np.log1p(normalised)), layers={"counts": csr_matrix(made.X), "other": normalised})
        adata.obs["kind"] = made.y.astype(str)
        before = contents(adata)
        with pytest.raises(
            ValueError,
            match=r"X holds no counts: .*'cell-0', gene 'gene-.*normalised to 10,000 and log-transformed "
            r"\(natural logarithm\). Whole numbers are in the layer 'counts': use layer='counts'\.$",
        ):
            function(adata)
        assert contents(adata) == before
        cluster(adata, 4, layer="counts")
        assert adjusted_rand_score(made.y, adata.obs["onmf"].cat.codes) > 0.95


@pytest.mark.short("real cells, as users have them")
@pytest.mark.parametrize(
    ("name", "least"), [("sc_celseq2", 0.9), ("hash_4lines", 0.9), ("sc_dropseq", 0.9), ("zheng_facs10", 0.6)]
)
def test_real_cells(cell_set, name, least):
    cells = cell_set(name)
    adata, k = cells.to_anndata(), len(cells.classes)
    model = cluster(adata, k).model
    labels, sure = adata.obs["onmf"].cat.codes.to_numpy(), adata.obs["onmf_confidence"].to_numpy()
    assert adjusted_rand_score(cells.y, labels) > least
    assert (np.diff(np.bincount(labels)) <= 0).all()
    table = np.zeros((k, k))
    np.add.at(table, (cells.y, labels), 1)
    right = linear_sum_assignment(-table)[1][cells.y] == labels
    assert sure[~right].mean() < sure[right].mean()
    genes = np.flatnonzero(adata.var["onmf_gene"])
    values = transform(adata.uns["onmf"]["params"]["view"], csr_array(cells.X[:, genes]))
    assert np.array_equal(model.predict(values), labels)
