"""The steps of clustering cells: genes by deviance, views and divergences to try, runs, and how sure the labels are."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, csr_matrix
from scipy.stats import nbinom
from sklearn.metrics import adjusted_rand_score

import onmf.cells.kind
import onmf.cells.matrix
from onmf import ONMF
from onmf.cells import Cells, OnDisk, cluster, deviant_genes, read
from onmf.cells.genes import (
    DEPTHS,
    DISPERSIONS,
    STEPS,
    UNIT,
    deviance,
    deviances,
    log_likelihood,
    logarithms,
    top_genes,
    transform,
)
from onmf.cells.kind import CELLS
from onmf.cells.matrix import columns_of
from onmf.confidence import DEFAULT_GAP, Calibration, log_chances
from onmf.datasets import make_counts
from onmf.divergence import NegativeBinomial

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of anndata, about its next version
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def made():
    """Counts with four clear clusters."""
    return make_counts(400, 120, 4, length=150, random_state=0)


def unnamed(X):
    """Cells without names."""
    n, p = X.shape
    return Cells(X, list(map(str, range(n))), list(map(str, range(p))))


@pytest.fixture(scope="module")
def panel():
    """Counts of 30 genes that vary far more than Poisson counts: cells of different depth, in five clusters."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=600)
    shares = rng.lognormal(0, 1, 30) * rng.lognormal(0, 0.7, (5, 30))
    shares /= shares.sum(axis=1, keepdims=True)
    means = 1500 * rng.lognormal(0, 1, (600, 1)) * shares[y]
    return csr_array(rng.poisson(means * rng.standard_gamma(1.0, means.shape))), y


def fit_counts(X, n_clusters, **options):
    """Cluster cells without names."""
    return cluster(unnamed(X), n_clusters, **options)


def naive_deviance(X):
    s, r = X.sum(axis=1), X.sum(axis=0) / X.sum()
    return np.array(
        [2 * sum(x * np.log(x / (s[i] * r[j])) for i, x in enumerate(X[:, j]) if x) for j in range(X.shape[1])]
    )


def naive_likelihood(X, labels):
    depths = X.sum(axis=1)
    shares = np.array([X[labels == c].sum(axis=0) / depths[labels == c].sum() for c in range(labels.max() + 1)])
    means = depths[:, None] * shares[labels]
    by_gene = [nbinom.logpmf(X, theta, theta / (theta + means)).sum(axis=0) for theta in DISPERSIONS]
    return np.max(by_gene, axis=0).sum() / len(X)


def stored_oddly(X):
    """The same counts as CSR with stored zeros, and with entries in two parts."""
    rows, columns = np.nonzero(np.ones(X.shape))
    values = X[rows, columns]
    half = values // 2
    coordinates = (np.concatenate([rows, rows]), np.concatenate([columns, columns]))
    order = np.lexsort((np.arange(2 * len(rows)), coordinates[0]))
    data, indices = np.concatenate([half, values - half])[order], coordinates[1][order]
    return csr_array((data, indices, np.arange(len(X) + 1) * 2 * X.shape[1]), shape=X.shape)


class TestDeviance:
    def counts(self):
        return np.random.default_rng(0).negative_binomial(1, 0.3, (60, 13)) * (np.arange(13) != 5)

    @pytest.mark.parametrize(
        "kind", [np.array, csr_array, csr_matrix, csc_array, stored_oddly, np.asfortranarray, lambda X: X * 1.0]
    )
    @pytest.mark.parametrize("rows", [7, 1000])
    def test_against_the_formula(self, kind, rows):
        X = self.counts()
        given = kind(X)
        before = given.copy()
        assert deviance(given, rows=rows) == pytest.approx(naive_deviance(X), rel=1e-9, abs=1e-9)
        if kind is stored_oddly:
            assert np.array_equal(given.indices, before.indices), "the matrix was changed"
            assert np.array_equal(given.data, before.data), "the matrix was changed"

    @pytest.mark.parametrize("chunk", [np.array, csr_array, csr_matrix])
    def test_dask(self, chunk):
        da = pytest.importorskip("dask.array", reason="Dask is not installed")
        X = self.counts()
        lazy = da.from_array(X, chunks=(17, 13)).map_blocks(chunk, meta=chunk(np.zeros((0, 13), dtype=X.dtype)))
        assert deviance(lazy, rows=25) == pytest.approx(naive_deviance(X), rel=1e-9, abs=1e-9)
        assert np.array_equal(columns_of(lazy, np.array([1, 4]), rows=25).toarray(), X[:, [1, 4]])

    def test_on_disk(self, tmp_path, monkeypatch):
        anndata = pytest.importorskip("anndata", reason="anndata is not installed")
        X = self.counts()
        anndata.AnnData(csr_matrix(X)).write_h5ad(tmp_path / "cells.h5ad")
        monkeypatch.setattr(onmf.cells.matrix, "LARGE", 10)
        lazy = read(tmp_path / "cells.h5ad").X
        assert isinstance(lazy, OnDisk)
        assert deviance(lazy, rows=25) == pytest.approx(naive_deviance(X), rel=1e-9, abs=1e-9)
        backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
        assert deviance(backed.X, rows=25) == pytest.approx(naive_deviance(X), rel=1e-9, abs=1e-9)
        deviant_genes(backed, 3)
        assert backed.var["highly_deviant"].sum() == 3
        backed.file.close()

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("common", [1, 10**6, 10**9])
    def test_a_constant_share_has_none(self, common, seed):
        depths = 10**6 * np.random.default_rng(seed).integers(1, 1000, 500)
        assert not deviance(np.outer(depths, [1, 2, 3, common])).any()

    def test_ties_go_to_the_first_columns(self):
        X = np.array([[1, 4, 0, 4, 9], [1, 0, 4, 0, 9], [1, 4, 0, 4, 9], [1, 0, 4, 0, 9]])
        assert deviant_genes(X, 1).tolist() == [2]
        assert deviant_genes(X, 2).tolist() == [1, 2]
        assert top_genes(np.array([0.0, 3, 3, 0, 5, 3]), 3).tolist() == [1, 2, 4]
        assert top_genes(np.array([0.0, 3, 3, 0, 5, 3]), 100).tolist() == [1, 2, 4, 5], "genes that tell nothing"

    def test_deviant_genes(self, made):
        anndata = pytest.importorskip("anndata", reason="anndata is not installed")
        adata = anndata.AnnData(csr_matrix(made.X), layers={"doubled": csr_matrix(made.X * 2)})
        columns = deviant_genes(made.X, 30)
        assert deviant_genes(adata, 30, inplace=False).tolist() == columns.tolist()
        assert "deviance" not in adata.var
        assert deviant_genes(adata, 30, layer="doubled") is None
        assert np.flatnonzero(adata.var["highly_deviant"]).tolist() == columns.tolist()
        assert adata.var["deviance"].to_numpy() == pytest.approx(2 * deviance(made.X))
        assert deviant_genes(made.X.toarray().tolist(), 30).tolist() == columns.tolist()

    @pytest.mark.parametrize("number", [0, -1, 2.5, True, None, "many"])
    def test_a_number_of_genes_is_needed(self, number):
        with pytest.raises(ValueError, match=r"n_top_genes=.* is not allowed: give a number of genes, at least 1"):
            deviant_genes(np.eye(3, dtype=int), number)

    def test_no_counts(self):
        with pytest.raises(ValueError, match=r"X holds no counts: an entry is negative \(-1, cell 2, gene 3\)"):
            deviant_genes(np.array([[1, 2, 3], [4, 5, -1]]), 2)


def test_some_rows_are_read_in_parts():
    X = csr_array(np.arange(400).reshape(100, 4))
    rows = np.array([0, 3, 9, 10, 55, 56, 99])
    keep = np.isin(np.arange(100), rows)
    assert np.array_equal(columns_of(X, np.array([1, 3]), keep, rows=10).toarray(), X.toarray()[np.ix_(rows, [1, 3])])
    assert deviances(X, ["counts"], keep, rows=10)["counts"] == pytest.approx(deviance(X[rows]))


class TestViews:
    def test_logarithms(self):
        X = np.array([[3, 0, 7], [0, 0, 0], [1, 1, 0]])
        expected = np.rint(STEPS * np.log1p(1e4 * X / np.maximum(X.sum(axis=1, keepdims=True), 1)))
        assert np.array_equal(transform("logs", csr_array(X)).toarray(), expected)
        assert transform("counts", counts := csr_array(X)) is counts

    @pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, np.float64])
    def test_logarithms_of_counts_that_repeat_and_are_large(self, dtype):
        rng = np.random.default_rng(0)
        X = rng.negative_binomial(0.5, 0.005, (40, 30)).clip(0, 255).astype(dtype)
        if dtype == np.float64:
            X[:5] += 0.5
        sums = np.maximum(X.sum(axis=1, dtype=np.float64), 1)
        stored = csr_array(X)
        expected = np.log1p(UNIT * X[X.nonzero()] / sums[X.nonzero()[0]])
        assert logarithms(stored) == pytest.approx(expected, rel=1e-12)

    def test_the_genes_of_a_view(self, made):
        rows = CELLS.prepare(unnamed(made.X), {}, lambda name, share: None, n_top_genes=30)
        assert set(rows.views["counts"]) != set(rows.views["logs"])
        for view, genes in rows.views.items():
            expected = transform(view, csr_array(made.X[:, rows.columns][:, np.isin(rows.columns, genes)]))
            assert np.array_equal(rows.values(view, rows.X).toarray(), expected.toarray())

    def test_likelihood_by_brute_force(self):
        rng = np.random.default_rng(0)
        n, p, k = DEPTHS // 2, 6, 3
        X = rng.negative_binomial(2, 0.2, (n, p)) + 100 * (np.arange(p) == 0) * np.arange(n)[:, None]
        labels = np.arange(n) % k
        assert len(set(X.sum(axis=1))) == n, "each cell is a group of its own, so the likelihood is exact"
        for groups in (k, k + 1):
            assert log_likelihood(csr_array(X), labels, groups) == pytest.approx(naive_likelihood(X, labels), rel=1e-6)

    def test_groups_of_cells_change_it_little(self, made):
        assert log_likelihood(made.X, made.y, 4) == pytest.approx(naive_likelihood(made.X.toarray(), made.y), rel=1e-3)

    def test_true_clusters_are_more_likely(self, made):
        shuffled = np.random.default_rng(0).permutation(made.y)
        assert log_likelihood(made.X, made.y, 4) > log_likelihood(made.X, shuffled, 4) + 10

    @pytest.mark.short("the choice on real cells")
    @pytest.mark.parametrize("amplified", [False, True])
    def test_the_view_is_chosen_without_labels(self, cell_set, amplified):
        """Molecules that are counted one by one are clustered as counts; their reads, after amplification, as logs."""
        cells = cell_set("hash_4lines")
        X, rng = cells.X.copy(), np.random.default_rng(0)
        if amplified:
            X.data = np.maximum(np.rint(X.data * rng.lognormal(3, 1, len(X.data))), 1).astype(np.int32)
        fit = fit_counts(X, 4)
        assert fit.view == ("logs" if amplified else "counts")
        assert adjusted_rand_score(cells.y, fit.model.labels_) > 0.95
        assert f"The {fit.view} of" in fit.notes[-1]
        assert "more likely by" in fit.notes[-1]

    @pytest.mark.short("the choice on real cells")
    def test_the_choice_does_not_depend_on_the_seed(self, cell_set):
        """Runs of both views end in many optima here; a choice from one run of each changed with the seed."""
        cells = cell_set("worm_embryo")
        fits = [fit_counts(cells.X, len(cells.classes), random_state=seed) for seed in (0, 2, 3, 5)]
        assert {(fit.view, fit.model.beta_loss) for fit in fits} == {("logs", "kullback-leibler")}


class TestNegativeBinomial:
    @pytest.mark.parametrize("tried", [400, 5_000])
    def test_it_is_chosen_if_the_counts_are_clearly_more_likely(self, panel, tried, monkeypatch):
        monkeypatch.setattr(onmf.cells.kind, "TRIED", tried)
        X, y = panel
        auto, plain = fit_counts(X, 5, random_state=1), fit_counts(X, 5, random_state=1, view="counts")
        assert (auto.view, auto.model.beta_loss) == ("counts", "negative-binomial")
        assert auto.model.divergence_.name == CELLS.summary(auto)["divergence"] == "negative-binomial"
        assert plain.model.beta_loss == "kullback-leibler"
        assert adjusted_rand_score(y, auto.labels) > adjusted_rand_score(y, plain.labels) + 0.1
        assert np.array_equal(auto.predict(unnamed(X)).labels, auto.labels)
        assert "were clustered with the negative binomial: under" in auto.notes[-1]
        assert auto.notes[-1].count("more likely by") == 2

    def test_molecules_are_clustered_without_it(self, made):
        fit = fit_counts(made.X, 4)
        assert fit.model.beta_loss == "kullback-leibler"
        assert "as under those of the counts with the negative binomial" in fit.notes[-1]

    def test_it_goes_on_from_a_local_search(self, panel):
        X, y = panel
        fit = fit_counts(X, 5, beta_loss="negative-binomial")
        assert fit.model.beta_loss == "negative-binomial"
        assert adjusted_rand_score(y, fit.labels) > 0.9
        for same in ({"beta_loss": NegativeBinomial(1.0, smoothing=1e-6)}, {"refine": "local-search"}):
            again = fit_counts(X, 5, **{"beta_loss": "negative-binomial"} | same)
            assert np.array_equal(again.labels, fit.labels)


class TestConfidence:
    @pytest.fixture(scope="class")
    def between(self, made):
        """Cells of two clusters, and cells that are half of each."""
        rng = np.random.default_rng(0)
        first, second = rng.dirichlet(np.full(80, 0.3), size=2)
        shares = np.concatenate(
            [np.tile(first, (150, 1)), np.tile(second, (150, 1)), np.tile((first + second) / 2, (60, 1))]
        )
        return csr_array(rng.poisson(60 * shares))

    def test_cells_between_two_clusters_are_less_sure(self, between):
        fit = fit_counts(between, 2)
        assert fit.confidence.min() > 0
        assert fit.confidence.max() <= 1
        assert fit.confidence[300:].mean() < fit.confidence[:300].mean() - 0.1

    def test_against_the_definition(self, made):
        model = ONMF(4, smoothing=1e-6).fit(made.X)
        shares = model.cluster_centers_ / model.cluster_centers_.sum(axis=1, keepdims=True)
        scores = made.X @ np.log(shares + 1e-6).T
        expected = np.exp(scores / 7 - np.logaddexp.reduce(scores / 7, axis=1, keepdims=True))
        sure, following = Calibration(7.0, np.zeros(4), np.ones(4)).apply(log_chances(model, made.X), model.labels_)
        assert sure == pytest.approx(expected[np.arange(400), model.labels_], rel=1e-6)
        assert np.array_equal(following, np.argsort(-scores, axis=1, kind="stable")[:, 1])

    def test_one_run_falls_back(self, made):
        fit = fit_counts(made.X, 4, n_init=1, view="counts")
        chances = np.sort(log_chances(fit.model, made.X), axis=1)
        assert fit.calibration.temperature == pytest.approx(
            np.median(chances[:, -1] - chances[:, -2]) / DEFAULT_GAP, rel=1e-3
        )
        assert fit.calibration.low == pytest.approx(np.zeros(4), abs=1e-3)
        assert fit.calibration.high == pytest.approx(np.ones(4), abs=1e-3)

    @pytest.mark.parametrize("beta_loss", ["kullback-leibler", "frobenius", "cosine", 1.5])
    @pytest.mark.parametrize("runs", [1, 3])
    def test_clear_clusters_are_sure_in_any_divergence(self, between, beta_loss, runs):
        fit = fit_counts(between * 20, 2, beta_loss=beta_loss, n_init=runs)
        assert fit.confidence[:300].mean() > 0.85
        assert fit.confidence[300:].mean() < fit.confidence[:300].mean()

    def test_runs_that_agree_leave_doubts(self, between):
        fit = fit_counts(between, 2, view="logs")
        assert fit.confidence.min() < 0.9

    @pytest.mark.parametrize("beta_loss", ["frobenius", "cosine"])
    def test_runners_up_of_deep_cells(self, made, beta_loss):
        X = made.X.toarray() * np.where(np.arange(400) % 50 == 0, 1000, 1)[:, None]
        fit = fit_counts(csr_array(X), 4, beta_loss=beta_loss, n_top_genes=None)
        centroids = fit.model.cluster_centers_ / np.linalg.norm(fit.model.cluster_centers_, axis=1, keepdims=True)
        order = np.argsort(-(X @ centroids.T), axis=1)
        assert np.array_equal(order[:, 0], fit.model.labels_)
        assert np.array_equal(order[:, 1], fit.runners_up)


class TestFit:
    def test_the_same_for_a_seed_and_any_number_of_threads(self, made):
        first, second, threads = (fit_counts(made.X, 4, random_state=3, n_threads=number) for number in (1, 1, 2))
        for other in (second, threads):
            assert np.array_equal(first.model.labels_, other.model.labels_)
            assert np.array_equal(first.model.cluster_centers_, other.model.cluster_centers_)
            assert np.array_equal(first.confidence, other.confidence)
            assert first.calibration.temperature == other.calibration.temperature

    def test_a_random_state_is_a_seed(self, made):
        first, second = (fit_counts(made.X, 6, random_state=np.random.RandomState(5)) for _ in range(2))
        assert np.array_equal(first.model.labels_, second.model.labels_)
        assert first.calibration.temperature == second.calibration.temperature

    @pytest.mark.parametrize("view", ["counts", "logs"])
    def test_the_model_predicts_its_labels(self, made, view):
        fit = fit_counts(made.X, 6, n_top_genes=70, view=view)
        assert len(fit.genes) == 70
        values = transform(fit.view, csr_array(made.X[:, fit.genes]))
        assert np.array_equal(fit.model.predict(values), fit.model.labels_)

    @pytest.mark.parametrize("most", [60, 50_000])
    def test_clusters_by_falling_size(self, made, most, monkeypatch):
        monkeypatch.setattr(onmf.cells.kind, "MOST_CELLS", most)
        for seed in range(3):
            fit = fit_counts(made.X, 4, random_state=seed)
            assert (np.diff(np.bincount(fit.model.labels_, minlength=4)) <= 0).all()
            assert adjusted_rand_score(made.y, fit.model.labels_) > 0.9
        assert any("started on 60 cells" in note for note in fit.notes) == (most == 60)

    def test_the_number_of_clusters_is_chosen(self, made):
        steps = []
        fit = fit_counts(made.X, "auto", progress=lambda name, share: steps.append((name, share)))
        assert fit.model.n_clusters == fit.selection.n_clusters == 4
        assert fit.notes[0].startswith("4 clusters were chosen of 2 to 40: halves of the cells agree on them to ")
        assert (fit.selection.n_rows, fit.selection.n_total) == made.X.shape[:1] * 2
        assert ("Choosing the number of clusters", 0.0) in steps
        shares = [share for name, share in steps if name == "Clustering"]
        assert shares == sorted(shares)
        assert shares[-1] == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"beta_loss": "frobenius"},
            {"beta_loss": "cosine"},
            {"beta_loss": 1.5},
            {"beta_loss": "negative-binomial"},
            {"init": "snpa"},
            {"init": "consensus", "n_consensus": 4},
            {"init": "++"},
            {"refine": None},
        ],
        ids=str,
    )
    def test_the_parameters_of_the_estimator(self, made, options):
        fit = fit_counts(made.X, 4, **options)
        assert adjusted_rand_score(made.y, fit.model.labels_) > 0.9
        assert ((fit.confidence > 0) & (fit.confidence <= 1)).all()
        if "beta_loss" in options:
            assert fit.view == "counts"

    def test_the_reference_engine(self):
        X = make_counts(40, 20, 3, length=80, random_state=1).X
        fits = [fit_counts(X, 3, engine=engine) for engine in ("reference", "cpu")]
        assert adjusted_rand_score(*(fit.model.labels_ for fit in fits)) == 1

    def test_max_iter_is_heeded(self, made):
        with pytest.warns(UserWarning, match="Not converged after max_iter=1 iterations"):
            fit = fit_counts(made.X, 4, max_iter=1)
        assert fit.model.max_iter == 1

    def test_genes_in_few_cells_are_not_used(self, made):
        X = made.X.toarray()
        X[:, 7] = 0
        X[:5, 7] = 1000
        assert 7 in fit_counts(csr_array(X), 4).genes
        assert 7 not in fit_counts(csr_array(X), 4, min_cells=6).genes

    def test_cells_without_the_chosen_genes(self, made):
        fit = fit_counts(made.X, 4, n_top_genes=3)
        empty = int((made.X[:, fit.genes].sum(axis=1) == 0).sum())
        assert empty > 1
        assert f"{empty} cells without a count of the chosen genes: the cluster means nothing." in fit.notes
