"""The estimator: its results, small cases worked out by hand, and every error message."""

import copy
import inspect
import pickle
import tracemalloc
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, csr_matrix, issparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from onmf import ONMF
from onmf.backend import CpuBackend
from onmf.data import get_engine
from onmf.data.parts import PartError
from onmf.data.validate import check_data
from onmf.datasets import make_counts
from onmf.divergence import BetaAboveOne, BetaBelowOne, KullbackLeibler, get_divergence

ALL_LOSSES = ("kullback-leibler", "frobenius", "cosine", "itakura-saito", 0.5, 1.5, 3, -1)
LIMITS_OF_WEIGHTS = r"a weight must be 0, or lie between 1e-30 and 1e\+30"
LIMITS_OF_SMOOTHING = r"it must be 0, or lie between 1e-20 and 1e\+20"


class TestByHand:
    def test_kullback_leibler(self):
        """Labels, scales, centroids, objective and iterations of four points in two clusters, worked out by hand."""
        X = np.array([[4, 0], [3, 1], [0, 5], [1, 3]])
        model = ONMF(2, smoothing=0).fit(X)
        # SNPA: [0, 5] has the largest norm, then [4, 0] is farthest from the segment from 0 to it.
        assert model.init_rows_.tolist() == [2, 0]
        # Pass 1: log of [0, 1] and [1, 0]; the mixed rows cost −∞ either way, so the tie goes to cluster 0.
        # Pass 2: cluster 0 = rows 1, 2, 3 = [4, 9]/13, cluster 1 = row 0 = [1, 0]; nothing moves.
        assert model.labels_.tolist() == [1, 0, 0, 0]
        assert model.n_iter_ == 2
        N = np.sqrt(4**2 + 5**2 + 4**2)
        assert model.scales_ == pytest.approx([1, 4 / N, 5 / N, 4 / N])
        assert model.cluster_centers_ == pytest.approx(np.array([[N * 4 / 13, N * 9 / 13], [4, 0]]))
        D = sum(x * np.log(x / y) for x, y in [(3, 16 / 13), (1, 36 / 13), (5, 45 / 13), (1, 16 / 13), (3, 36 / 13)])
        assert model.reconstruction_err_ == pytest.approx(D)

    def test_smoothing_changes_the_assignment(self):
        X = np.array([[4, 0], [3, 1], [0, 5], [1, 3]])
        model = ONMF(2).fit(X)
        assert model.labels_.tolist() == [1, 1, 0, 0]
        assert model.n_iter_ == 2

    def test_frobenius(self):
        """Clusters of parallel rows are exact after one pass, and the second pass changes nothing."""
        X = np.array([[3.0, 4.0], [6.0, 8.0], [5.0, 0.0], [1.0, 0.0]])
        model = ONMF(2, beta_loss="frobenius").fit(X)
        assert model.init_rows_.tolist() == [1, 2]
        assert model.labels_.tolist() == [0, 0, 1, 1]
        assert model.n_iter_ == 2
        assert model.scales_ == pytest.approx(np.array([5, 10, 5, 1]) / np.sqrt([125, 125, 26, 26]))
        assert model.cluster_centers_ == pytest.approx(np.sqrt([[125], [26]]) * [[0.6, 0.8], [1, 0]])
        assert model.reconstruction_err_ == pytest.approx(0, abs=1e-10)

    def test_frobenius_takes_negative_entries(self):
        X = np.array([[1.0, -1.0], [2.0, -2.1], [-1.0, 0.0], [-3.0, 0.1]])
        model = ONMF(2, beta_loss="frobenius").fit(X)
        assert model.labels_.tolist() == [1, 1, 0, 0]

    def test_cosine_ignores_length(self):
        X = np.array([[1.0, 0.1], [100.0, 9.0], [0.1, 1.0], [7.0, 100.0]])
        model = ONMF(2, beta_loss="cosine").fit(X)
        assert model.labels_[0] == model.labels_[1] != model.labels_[2] == model.labels_[3]
        cosines = [x @ model.cluster_centers_[k] for x, k in zip(X, model.labels_, strict=True)]
        norms = np.linalg.norm(X, axis=1) * np.linalg.norm(model.cluster_centers_, axis=1)[model.labels_]
        assert model.reconstruction_err_ == pytest.approx(4 - np.sum(cosines / norms))

    def test_stop_counts_the_iteration_that_finds_convergence(self):
        X = np.array([[1.0, 0.0], [0.0, 1.0]])
        model = ONMF(2).fit(X)
        assert model.n_iter_ == 2
        assert model.history_["moved"].tolist() == [2, 0]


@pytest.mark.parametrize("loss", ALL_LOSSES)
class TestEveryLoss:
    def test_predict_and_transform_repeat_the_fit(self, counts, loss):
        X = counts[0] + 1
        model = ONMF(3, beta_loss=loss, max_iter=1000)
        H = model.fit_transform(X)
        assert np.array_equal(model.predict(X), model.labels_)
        assert model.transform(X).toarray() == pytest.approx(H.toarray(), abs=1e-6)
        assert (H.T @ H).toarray() == pytest.approx(np.eye(3), abs=1e-12)
        assert np.diff(H.indptr).tolist() == [1] * len(X)
        assert np.array_equal(model.fit_predict(X), model.labels_)

    def test_one_cluster_explains_less(self, counts, loss):
        X = counts[0] + 1
        one, three = (ONMF(k, beta_loss=loss, max_iter=1000).fit(X) for k in (1, 3))
        assert not one.labels_.any()
        assert np.isinf(one.margins_).all(), "there is no other cluster"
        assert np.isfinite(one.reconstruction_err_)
        assert one.score(X) < three.score(X) <= 1e-9
        assert three.score(X, sample_weight=np.ones(len(X))) == pytest.approx(three.score(X))

    def test_as_many_clusters_as_rows(self, loss):
        X = np.random.default_rng(8).gamma(1.0, size=(6, 9)) + 0.01
        model = ONMF(6, beta_loss=loss, smoothing=0).fit(X)
        assert sorted(model.labels_) == list(range(6))
        assert model.reconstruction_err_ == pytest.approx(0, abs=1e-9)

    def test_fewer_directions_than_clusters(self, loss):
        X = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 1.0], [6.0, 2.0], [3.0, 6.0]])
        with pytest.warns(ConvergenceWarning) as warned:
            model = ONMF(4, beta_loss=loss).fit(X)
        assert "X has run out of directions after 2 of 4 seeds" in str(warned[0].message)
        assert "Only 2 of 4 clusters hold rows" in str(warned[1].message)
        assert len(np.unique(model.labels_)) == 2
        assert np.isfinite(model.cluster_centers_).all()
        assert np.array_equal(model.predict(X), model.labels_)

    def test_zero_rows(self, counts, loss):
        if loss in ("itakura-saito", -1):
            pytest.skip("this divergence refuses zeros")
        X = np.vstack([counts[0], np.zeros((2, counts[0].shape[1]))])
        with pytest.warns(UserWarning, match="2 of 62 rows of X are zero everywhere"):
            model = ONMF(3, beta_loss=loss, max_iter=1000).fit(X)
        for method in (model.predict, model.transform, model.assign, model.predict_proba):
            for data in (X, lambda: iter([X[:20], X[20:]])):
                with pytest.warns(UserWarning, match="2 of 62 rows of X are zero everywhere") as warned:
                    method(data)
                assert [warning.filename for warning in warned] == [__file__]
        model.score(X)
        assert model.scales_[-2:].tolist() == [0, 0]
        assert model.labels_[-2:].tolist() == [0, 0]
        assert np.array_equal(model.labels_[:-2], ONMF(3, beta_loss=loss, max_iter=1000).fit(counts[0]).labels_)

    def test_an_empty_cluster_is_reseeded(self, counts, loss):
        X = counts[0] + 1.0
        start = np.vstack([X[0], X[1], X[1]])  # the third can never win a tie
        model = ONMF(3, beta_loss=loss, init=start, max_iter=1000).fit(X)
        assert len(np.unique(model.labels_)) == 3
        assert np.isfinite(model.cluster_centers_).all()


def test_reseeding_takes_the_worst_row_of_the_worst_cluster():
    # Two tight groups and one row far from both: the empty cluster must restart from that row.
    X = np.array([[9.0, 1, 0], [9, 1.1, 0], [0, 1, 9], [0, 1.2, 9], [1, 9, 1]])
    start = np.array([[9.0, 1, 0.1], [0.1, 1, 9], [0.1, 1, 9]])
    model = ONMF(3, init=start, beta_loss="frobenius").fit(X)
    assert model.labels_.tolist() == [0, 0, 1, 1, 2]


def test_tol_zero_runs_to_a_fixed_point(counts):
    for loss in ALL_LOSSES:
        model = ONMF(3, beta_loss=loss, tol=0, max_iter=5000).fit(counts[0] + 1)
        assert model.stop_reason_ == "fixed point"
        if loss == "kullback-leibler":
            assert model.n_iter_ == ONMF(3).fit(counts[0] + 1).n_iter_


def test_max_iter_warns(counts):
    with pytest.warns(ConvergenceWarning, match=r"Not converged after max_iter=1 .*Raise max_iter or tol") as warned:
        model = ONMF(3, max_iter=1).fit(counts[0])
    assert warned[0].filename == __file__, "warnings point at the user's line"
    assert (model.n_iter_, model.stop_reason_) == (1, "max_iter")


@pytest.mark.filterwarnings("ignore:Not converged")
def test_early_stop_matches_the_papers_algorithm(counts):
    """W and H after two iterations follow the paper's formulas."""
    X = counts[0].astype(float)
    for loss in ("kullback-leibler", "frobenius"):
        W = X[ONMF(3).fit(X).init_rows_].T
        for _ in range(2):
            if loss == "frobenius":
                A = (W / np.linalg.norm(W, axis=0)).T @ X.T
                h = (W / np.linalg.norm(W, axis=0) ** 2).T @ X.T
            else:
                A = np.log(W / W.sum(axis=0) + 1e-3).T @ X.T
                h = X.sum(axis=1) / W.sum(axis=0)[:, None]
            H = np.where(np.arange(3)[:, None] == A.argmax(axis=0), h, 0)
            H /= np.linalg.norm(H, axis=1, keepdims=True)
            W = X.T @ H.T if loss == "frobenius" else X.T @ (H > 0).T / H.sum(axis=1)
        model = ONMF(3, beta_loss=loss, max_iter=2, tol=0).fit(X)
        assert pytest.approx(W, rel=1e-12) == model.cluster_centers_.T
        assert model.clustering_.H.toarray() == pytest.approx(H, rel=1e-12)


class TestInputs:
    @pytest.mark.parametrize("make", [csc_array, coo_array, csr_matrix, np.asfortranarray, lambda X: X[::-1][::-1]])
    def test_containers(self, counts, make):
        assert np.array_equal(ONMF(3).fit(make(counts[0])).labels_, ONMF(3).fit(counts[0]).labels_)

    @pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", ">i4", ">f8", "f2", "f4", "f8", "g", "O"])
    def test_number_types(self, counts, dtype):
        X = np.minimum(counts[0], 200)
        expected = ONMF(3).fit(X)
        for kind in (np.asarray, csr_array):
            if kind is csr_array and dtype in ("O", "f2", ">i4", ">f8"):
                continue  # SciPy does not support sparse arrays of this type
            model = ONMF(3).fit(kind(X.astype(dtype)))
            assert np.array_equal(model.labels_, expected.labels_)
            assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)

    def test_booleans(self, counts):
        X = counts[0] > 3
        assert np.array_equal(ONMF(3).fit(X).labels_, ONMF(3).fit(X.astype(float)).labels_)

    def test_unsorted_and_duplicate_entries(self, counts):
        X = csr_array(counts[0])
        messy = X.copy()
        for i in range(X.shape[0]):
            part = slice(X.indptr[i], X.indptr[i + 1])
            messy.indices[part], messy.data[part] = X.indices[part][::-1], X.data[part][::-1]
        doubled = csr_array(
            (np.repeat(messy.data, 2), np.repeat(messy.indices, 2), 2 * messy.indptr.astype(np.int64)), shape=X.shape
        )
        before = doubled.data.copy(), doubled.indices.copy(), doubled.indptr.copy()
        assert np.array_equal(ONMF(3).fit(doubled).labels_, ONMF(3).fit(2 * X).labels_)
        assert np.array_equal(ONMF(3).fit(messy).labels_, ONMF(3).fit(X).labels_)
        for now, then in zip((doubled.data, doubled.indices, doubled.indptr), before, strict=True):
            assert np.array_equal(now, then), "the caller's arrays must not change"

    @pytest.mark.parametrize("container", [csr_array, coo_array, csc_array, bsr_array])
    @pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u4"])
    def test_sums_of_duplicate_entries_do_not_wrap_around(self, container, dtype):
        most = np.iinfo(dtype).max
        X = coo_array((np.array([most, most, most, most], dtype), ([0, 0, 1, 2], [0, 0, 1, 2])), shape=(3, 3))
        if container is not coo_array:  # conversions of SciPy would add them
            X = csr_array((X.data, X.col, [0, 2, 3, 4]), shape=X.shape)
            X = bsr_array((X.data[:, None, None], X.indices, X.indptr)) if container is bsr_array else container(X)
        assert X.nnz == 4
        for data in (X, lambda: iter([X]), lambda: iter([[X]])):
            assert ONMF(3).fit(data).cluster_centers_.max() == 2 * float(most)
        assert ONMF(3, init=X).fit(np.eye(3)).labels_.tolist() == [0, 1, 2]

    @pytest.mark.parametrize("container", [csr_array, coo_array, csc_array])
    def test_narrow_integers_stay_narrow_without_duplicates(self, counts, container):
        X = container(counts[0].astype(np.uint8))
        if container is csr_array:
            X.indices, X.data, X.has_sorted_indices = X.indices.copy(), X.data.copy(), False
        assert check_data(X, get_divergence(1)).dtype == np.uint8

    def test_xarray(self, counts):
        xarray = pytest.importorskip("xarray")
        X, w = counts[0], np.arange(60.0)
        expected = ONMF(3).fit(X, sample_weight=w)
        array, weights = xarray.DataArray(X, dims=("row", "word")), xarray.DataArray(w, dims="row")
        model = ONMF(3).fit(array, sample_weight=weights)
        assert isinstance(model.labels_, np.ndarray)
        lazy = ONMF(3).fit(array.chunk({"row": 20}), sample_weight=weights.chunk({"row": 20}))
        assert hasattr(lazy.labels_, "compute")
        batches = ONMF(3).fit(lambda: iter([array[:20], [array[20:50], array[50:]]]), sample_weight=weights)
        for found in (model, lazy, batches):
            assert np.array_equal(found.cluster_centers_, expected.cluster_centers_)
            assert np.array_equal(np.asarray(found.predict(array)), expected.predict(X))
        with pytest.raises(TypeError, match="Dataset: pass a Dask array"):
            ONMF(3).fit(array.to_dataset(name="counts"))

    def test_the_callers_arrays_are_neither_changed_nor_copied(self, counts):
        X = counts[0].astype(np.float32)
        sparse = csr_array(X)
        for data in (X, sparse.data, sparse.indices, sparse.indptr):
            data.flags.writeable = False
        init = X[:3] + 1
        kept = init.copy()
        for data in (X, sparse):
            ONMF(3, init=init).fit(data, sample_weight=np.ones(len(X))).transform(data)
        assert np.array_equal(init, kept)

    def test_explicit_zeros_change_nothing(self, counts):
        X = csr_array(counts[0])
        X.data[::3] = 0
        pruned = X.copy()
        pruned.eliminate_zeros()
        for smoothing in (0.0, 1e-3):
            one, other = (ONMF(3, smoothing=smoothing).fit(data) for data in (X, pruned))
            assert np.array_equal(one.labels_, other.labels_)

    def test_lists(self):
        assert ONMF(2).fit([[1, 0], [0, 2]]).labels_.tolist() == [1, 0]


class TestStarts:
    def test_given_centroids(self, counts):
        X = counts[0]
        expected = ONMF(3).fit(X)
        for init in (X[expected.init_rows_], 7.0 * X[expected.init_rows_], csr_array(X[expected.init_rows_])):
            model = ONMF(3, init=init).fit(X)
            assert np.array_equal(model.labels_, expected.labels_)
            assert model.n_iter_ == expected.n_iter_
            assert model.init_rows_ is None

    def test_callable(self, counts):
        def start(X, n_clusters, random_state):
            return X[random_state.choice(len(X), n_clusters, replace=False)] + 0.1

        one, other = (ONMF(3, init=start, n_init=3, random_state=5).fit(counts[0]) for _ in range(2))
        assert np.array_equal(one.labels_, other.labels_)

    def test_n_init_with_a_deterministic_start_warns_and_runs_once(self, counts):
        with pytest.warns(RuntimeWarning, match="n_init=5 runs would all be the same"):
            model = ONMF(3, n_init=5).fit(counts[0])
        assert np.array_equal(model.labels_, ONMF(3).fit(counts[0]).labels_)

    def test_rows_of_weight_zero_are_no_seeds(self, counts):
        X = counts[0]
        for init in ("snpa", "++", "random"):
            w = np.ones(len(X))
            w[ONMF(3, init=init, random_state=0).fit(X).init_rows_] = 0
            chosen = ONMF(3, init=init, random_state=0).fit(X, sample_weight=w).init_rows_
            assert w[chosen].all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_clusters": 0}, "n_clusters=0 is not allowed: n_clusters must be an integer, at least 1"),
            ({"n_clusters": 2.5}, "n_clusters=2.5 is not allowed"),
            ({"n_clusters": True}, "n_clusters=True is not allowed"),
            ({"n_init": 0}, "n_init=0 is not allowed"),
            ({"max_iter": 0}, "max_iter=0 is not allowed"),
            ({"tol": -1}, "tol=-1 is not allowed: tol must be a number, at least 0"),
            ({"tol": "small"}, "tol='small' is not allowed"),
            ({"smoothing": np.nan}, "smoothing=nan is not allowed"),
            ({"n_threads": 0}, "n_threads=0 is not allowed"),
            ({"n_threads": 1.5}, "n_threads=1.5 is not allowed"),
            ({"tol": True}, "tol=True is not allowed"),
            ({"sparse_output": "no"}, "sparse_output='no' is not allowed: sparse_output must be True or False"),
            ({"verbose": "no"}, "verbose='no' is not allowed"),
            ({"n_threads": 2, "engine": "reference"}, "engine='reference' runs on one thread"),
            ({"init": "best"}, "init='best' is not allowed: init must be 'auto', one of 'snpa'"),
            ({"beta_loss": "kl"}, "beta_loss='kl' is not a divergence: use one of 'kullback-leibler'"),
            ({"beta_loss": np.inf}, "beta_loss=inf is not a divergence"),
            ({"engine": "tpu"}, "engine='tpu' is unknown: use one of 'auto', 'cpu', 'gpu', 'reference'"),
            ({"init": np.ones((2, 24))}, r"init has shape \(2, 24\), but n_clusters=3 and X has 24 features"),
            ({"init": -np.ones((3, 24))}, r"Negative values in data passed to ONMF: init\[0, 0\] = -1"),
            ({"init": np.full((3, 24), np.nan)}, r"Input init contains NaN: init\[0, 0\]"),
            ({"init": np.eye(3, 24) * [[1], [0], [1]]}, r"init\[1\] is zero everywhere"),
            ({"init": np.array(["++"])}, "init holds <U2 values: give real numbers"),
            ({"init": "consensus", "n_init": 3}, "Set n_consensus to their number"),
            ({"beta_loss": 0.001}, "too near 0 to be computed with: use 'itakura-saito'"),
            ({"beta_loss": -1e-9}, "too near 0"),
            ({"beta_loss": 1 + 1e-9}, "too near 1 to be computed with: use 'kullback-leibler'"),
            ({"beta_loss": 1e308}, "β must lie between -100 and 100"),
            ({"beta_loss": -101}, "β must lie between -100 and 100"),
            ({"beta_loss": 10**400}, "is not a divergence"),
            *(
                ({"engine": engine}, r"engine=.* is unknown: use one of 'auto', 'cpu', .*, or an Engine object")
                for engine in (None, 5, CpuBackend, ["cpu"], b"cpu")
            ),
            *(
                ({"refine": refine}, "refine must be None or 'local-search'")
                for refine in ("annealing", np.array(["local-search"]), b"local-search", 1)
            ),
            *(
                ({"smoothing": smoothing, "beta_loss": loss}, f"smoothing=.* is not allowed: {LIMITS_OF_SMOOTHING}")
                for smoothing in (5e-324, 1e-21, 1e21)
                for loss in (1, 0.25)
            ),
            *(
                ({name: 10**400}, f"{name}=1000.* is not allowed")
                for name in ("tol", "smoothing", "forgetting", "n_clusters", "n_init", "max_iter", "n_consensus")
            ),
        ],
    )
    def test_parameters(self, counts, parameters, message):
        with pytest.raises(ValueError, match=message):
            ONMF(**{"n_clusters": 3, **parameters}).fit(counts[0])

    @pytest.mark.parametrize("container", [np.asarray, csr_array])
    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (np.nan, r"Input X contains NaN: X\[7, 4\] = nan is the first of 2 NaN or infinite entries. Drop"),
            (np.inf, r"Input X contains infinity: X\[7, 4\] = inf is the first of 2"),
            (-3.0, r"Negative values in data passed to ONMF: X\[7, 4\] = -3 is the first of 2.*Clip them"),
            (1e200, r"Input X is out of range: the largest entry of row 7 is 1e\+200.*Multiply X by a constant"),
        ],
    )
    def test_entries(self, counts, container, value, message):
        X = counts[0].astype(float)
        X[7, 4] = X[9, 2] = value
        with pytest.raises(ValueError, match=message):
            ONMF(3).fit(container(X))
        good = ONMF(3).fit(container(counts[0].astype(float)))
        with pytest.raises(ValueError, match=message):
            good.predict(container(X))

    def test_masks(self, counts):
        X, w = np.ma.masked_array(counts[0]), np.ma.masked_array(np.ones(60))
        model = ONMF(3).fit(X, sample_weight=w)
        assert np.array_equal(model.labels_, ONMF(3).fit(counts[0]).labels_)
        X[7, 4] = X[9, 2] = np.ma.masked
        message = r"Input X is masked: X\[7, 4\] is the first of 2 masked entries. Drop those rows or fill them in"
        for data in (X, lambda: iter([counts[0], X]), lambda: iter([[counts[0], X]])):
            for method in (ONMF(3).fit, model.predict, model.score):
                with pytest.raises(ValueError, match=message):
                    method(data)
        da = pytest.importorskip("dask.array")
        for columns, first in ((24, r"X\[7, 4\]"), (3, r"X.blocks\[:, 0\]\[9, 2\]")):
            with pytest.raises(ValueError, match=f"In partition 0.*{first} is the first of"):
                ONMF(3).fit(da.from_array(X, chunks=(30, columns), asarray=False))
        w[3] = np.ma.masked
        with pytest.raises(ValueError, match=r"Input sample_weight is masked: sample_weight\[3\] is the first of 1"):
            ONMF(3).fit(counts[0], sample_weight=w)

    @pytest.mark.parametrize("dtype", ["Int64", "UInt8", "Float64", "int64[pyarrow]"])
    def test_nullable_columns(self, counts, dtype):
        frame = pd.DataFrame(counts[0]).astype(dtype)
        assert np.array_equal(ONMF(3).fit(frame).labels_, ONMF(3).fit(counts[0]).labels_)
        frame.iloc[7, 4] = pd.NA
        for data in (frame, lambda: iter([frame]), lambda: iter([[frame]])):
            with pytest.raises(ValueError, match=r"Input X contains NaN: X\[7, 4\] = nan is the first of 1"):
                ONMF(3).fit(data)

    def test_missing_values_among_objects(self, counts):
        frame = pd.DataFrame(counts[0]).astype(object)
        frame.iloc[7, 4] = pd.NA
        message = "X holds something that is not a number: .*NAType.*Fill in missing values"
        with pytest.raises(TypeError, match=message):
            ONMF(3).fit(frame)
        with pytest.raises(PartError, match=message):
            ONMF(3).fit(lambda: iter([frame]))

    @pytest.mark.parametrize("value", [date(2020, 1, 1), datetime(2020, 1, 1), timedelta(1)])
    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
    def test_a_column_of_times(self, value, make):
        frame = make({"count": [1, 2], "when": [value, value]})
        with pytest.raises((TypeError, ValueError), match="leave out, or encode, the columns that are not numbers"):
            ONMF(2).fit(frame)

    def test_rows_too_small_for_float64(self, counts):
        X = counts[0].astype(float)
        X[5] *= 1e-200
        with pytest.raises(ValueError, match=r"largest entry of row 5 is .*e-199"):
            ONMF(3).fit(X)

    @pytest.mark.parametrize("loss", [0, -1])
    def test_zeros(self, counts, loss):
        with pytest.raises(ValueError, match=r"Zeros in data passed to ONMF: X\[0, \d+\] = 0 is the first of \d+"):
            ONMF(3, beta_loss=loss).fit(counts[0])
        with pytest.raises(ValueError, match=r"Sparse input holds zeros, and the .* divergence needs X > 0"):
            ONMF(3, beta_loss=loss).fit(csr_array(counts[0]))

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1, 2], r"sample_weight has shape \(2,\), but X has 60 rows"),
            (np.full(60, -1.0), rf"sample_weight\[0\] = -1.0: {LIMITS_OF_WEIGHTS}"),
            (np.full(60, np.nan), r"sample_weight\[0\] = nan"),
            (np.zeros(60), "sample_weight is zero for every row"),
            *(
                (np.where(np.arange(60) == 1, weight, 1), rf"sample_weight\[1\] = .*: {LIMITS_OF_WEIGHTS}")
                for weight in (5e-324, 1e-31, 1e31, 1e160, np.inf)
            ),
        ],
    )
    def test_weights(self, counts, weights, message):
        with pytest.raises(ValueError, match=message):
            ONMF(3).fit(counts[0], sample_weight=weights)
        with pytest.raises(ValueError, match=message):
            ONMF(3).fit(counts[0]).score(counts[0], sample_weight=weights)

    def test_more_clusters_than_rows(self):
        with pytest.raises(ValueError, match=r"n_samples=2 should be >= n_clusters=3: ask for fewer clusters"):
            ONMF(3).fit(np.eye(2))

    def test_a_path(self):
        with pytest.raises(ValueError, match="X is a path or a text, 'corpus': open it first"):
            ONMF(3).fit("corpus")

    @pytest.mark.parametrize("kind", [list, np.array, pd.Series])
    def test_texts(self, kind):
        with pytest.raises(ValueError, match="X holds texts, not numbers: turn them into counts first"):
            ONMF(2).fit(kind(["red tea", "milk"]))

    def test_a_column_of_texts(self):
        for frame in (pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}), pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})):
            with pytest.raises(ValueError, match=r"not numbers|could not convert string to float"):
                ONMF(2).fit(frame)

    def test_not_fitted(self, counts):
        for method in ("predict", "transform", "inverse_transform", "score"):
            with pytest.raises(NotFittedError):
                getattr(ONMF(3), method)(counts[0])
        with pytest.raises(NotFittedError):
            ONMF(3).top_features()

    def test_other_number_of_features(self, counts):
        model = ONMF(3).fit(counts[0])
        with pytest.raises(ValueError, match="X has 23 features, but ONMF is expecting 24"):
            model.predict(counts[0][:, 1:])
        with pytest.raises(ValueError, match="X has 2 columns, but the model has 3 clusters"):
            model.inverse_transform(np.ones((4, 2)))
        with pytest.raises(ValueError, match="feature_names has 1 names, but the model has 24 features"):
            model.top_features(feature_names=["a"])

    def test_an_engine_that_cannot(self, counts):
        engine = get_engine("cpu", counts[0])
        engine.refuses = lambda X: "it is too wide."
        with pytest.raises(ValueError, match="engine='cpu' cannot take this data: it is too wide"):
            ONMF(3, engine=engine).fit(counts[0])
        with pytest.raises(ValueError, match="an Engine object brings its own threads"):
            ONMF(3, engine=engine, n_threads=2).fit(counts[0])


class TestInverseTransform:
    def test_dense_and_sparse_agree(self, counts):
        X = csr_array(counts[0])
        model = ONMF(3)
        H = model.fit_transform(X)
        dense = model.inverse_transform(H.toarray())
        assert dense == pytest.approx(model.scales_[:, None] * model.cluster_centers_[model.labels_])
        back = model.inverse_transform(H)
        assert (back.toarray() if issparse(back) else back) == pytest.approx(dense)

    def test_sparse_where_that_is_smaller(self):
        X = csr_array(np.kron(np.eye(4), np.ones((5, 50))))
        model = ONMF(4)
        H = model.fit_transform(X)
        assert issparse(model.inverse_transform(H))
        full = ONMF(1)
        assert not issparse(full.inverse_transform(full.fit_transform(X)))

    def test_says_how_large_the_result_would_be(self):
        model = ONMF(1).fit(np.ones((2, 100_000)))
        H = csr_array((np.ones(10**6), (np.arange(10**6), np.zeros(10**6, dtype=int))))
        with pytest.raises(MemoryError, match=r"dense result, 1000000 × 100000, would take 800.0 GB"):
            model.inverse_transform(H)


class TestTopFeatures:
    def test_words_that_set_a_cluster_apart(self):
        X = np.array([[5, 9, 0], [6, 8, 0], [5, 0, 9], [4, 0, 7]])
        model = ONMF(2).fit(X)
        tops = model.top_features(1, ["the", "tea", "milk"])
        assert [list(top) for top in (tops[model.labels_[0]], tops[model.labels_[2]])] == [["tea"], ["milk"]]
        c, q = np.array([11, 17, 0]) / 28, X.sum(axis=0) / X.sum()
        assert tops[model.labels_[0]]["tea"] == pytest.approx(c[1] * np.log(c[1] / q[1]))

    def test_default_names(self, counts):
        top = ONMF(3).fit(counts[0]).top_features(24)[0]
        assert set(top) < {f"x{j}" for j in range(24)}
        assert min(top.values()) > 0, "what does not set the cluster apart is left out"
        assert ONMF(1).fit(counts[0]).top_features() == [{}]

    def test_refusals(self, counts):
        model = ONMF(3).fit(counts[0])
        with pytest.raises(ValueError, match=r"n=2\.5 is not allowed"):
            model.top_features(2.5)
        with pytest.raises(ValueError, match="holds the same name twice"):
            model.top_features(2, ["a"] * 24)

    def test_negative_entries_rank_by_size(self):
        X = np.array([[1.0, -5.0, 0.1], [1.0, -6.0, 0.0]])
        assert list(ONMF(1, beta_loss="frobenius").fit(X).top_features(2)[0]) == ["x1", "x0"]


def test_a_divergence_object(counts):
    one = ONMF(3, beta_loss=KullbackLeibler(smoothing=0.01)).fit(counts[0])
    assert np.array_equal(one.labels_, ONMF(3, smoothing=0.01).fit(counts[0]).labels_)
    other = ONMF(3, beta_loss=BetaAboveOne(1.5)).fit(counts[0])
    assert np.array_equal(other.labels_, ONMF(3, beta_loss=1.5).fit(counts[0]).labels_)


def test_verbose_prints_and_records(counts, capsys):
    model = ONMF(3, verbose=1).fit(counts[0])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_ == len(model.history_["objective"])
    assert lines[0].startswith("iteration 1: objective ")
    assert model.history_["objective"][-1] == pytest.approx(model.reconstruction_err_)
    assert "objective" not in ONMF(3).fit(counts[0]).history_


def test_signature_is_the_promised_one():
    defaults = {name: p.default for name, p in inspect.signature(ONMF).parameters.items()}
    assert defaults == {
        "n_clusters": 8,
        "beta_loss": "kullback-leibler",
        "init": "auto",
        "n_init": "auto",
        "max_iter": 100,
        "tol": 1e-6,
        "refine": None,
        "n_consensus": 30,
        "smoothing": "auto",
        "engine": "auto",
        "n_threads": None,
        "random_state": None,
        "forgetting": 0.9,
        "adapt": "auto",
        "seed_share": 0.1,
        "sparse_output": True,
        "verbose": 0,
    }


class TestOnceWrong:
    """Regression tests."""

    @pytest.mark.parametrize(
        ("loss", "X"),
        [
            ("cosine", [[0, 0, 10**7, 10**7], [0, 0, 0, 10**7], [0, 4, 0, 0], [0, 1, 0, 1], [1, 0, 0, 1]]),
            ("kullback-leibler", [[0, 10**7, 0, 0], [3 * 10**7, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 1], [0, 3, 0, 1]]),
        ],
    )
    def test_rows_too_small_to_show_in_h_still_count(self, loss, X):
        model = ONMF(2, beta_loss=loss).fit(np.array(X))
        assert model.history_["moved"][-1] == 0
        assert np.array_equal(model.predict(np.array(X)), model.labels_)

    def test_a_large_tol_still_stops_early(self, counts):
        X = make_counts(2000, 300, 8, overlap=0.9, length=30, random_state=0).X
        assert ONMF(8, tol=0.5).fit(X).n_iter_ < ONMF(8).fit(X).n_iter_

    def test_entries_times_clusters_beyond_32_bits(self):
        X = csr_array(np.ones((3000, 1000), dtype=np.uint8))
        threads = get_engine("cpu", X, 2).backend.threads
        assert X.indptr.dtype == np.int32
        threads.over_blocks(lambda start, stop: None, X.indptr, 1000)  # overflowed: 3 · 10⁶ · 10³

    def test_an_engine_object_is_copied_and_pickled_after_a_fit(self):
        X = make_counts(3000, 200, 5, random_state=0).X
        model = ONMF(5, engine=get_engine("cpu", X, 2)).fit(X)
        assert model.engine.backend.threads._pool is not None
        for again in (pickle.loads(pickle.dumps(model)), clone(model).fit(X), copy.deepcopy(model)):
            assert np.array_equal(again.predict(X), model.labels_)

    def test_a_sparse_frame_is_sparse_too(self):
        frame = pd.DataFrame([[1.0, 0, 2], [3, 1, 1], [0.5, 2, 1]]).astype(pd.SparseDtype("float", 0.0))
        frame.columns = list("abc")
        with pytest.raises(ValueError, match="Sparse input holds zeros"):
            ONMF(2, beta_loss=0).fit(frame)

    @pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
    @pytest.mark.parametrize("container", [np.asarray, csr_array])
    def test_no_copy_of_the_data(self, dtype, container):
        X = container(np.random.default_rng(0).integers(1, 9, (4000, 1000)).astype(dtype))
        start = np.random.default_rng(1).random((2, 1000))
        ONMF(2, init=start).fit(X)  # compiles all kernels
        tracemalloc.start()
        try:
            ONMF(2, init=start).fit(X)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000, "less than twice the smallest of these matrices, an eighth of the others in float64"

    def test_top_features_know_weights(self):
        X, w = np.array([[9, 1, 0], [8, 2, 1], [0, 1, 9], [0, 3, 8]]), [3, 1, 1, 2]
        weighted, repeated = ONMF(2).fit(X, sample_weight=w), ONMF(2).fit(np.repeat(X, w, axis=0))
        for one, other in zip(weighted.top_features(), repeated.top_features(), strict=True):
            assert one == pytest.approx(other)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_top_features_of_nothing(self):
        with pytest.warns(UserWarning, match="3 of 3 rows of X are zero everywhere"):
            model = ONMF(1).fit(np.zeros((3, 4)))
        assert model.top_features() == [{}]

    @pytest.mark.parametrize("loss", [1, 0.5])
    def test_score_of_unseen_words_is_finite_without_smoothing_too(self, loss):
        model = ONMF(1, beta_loss=loss, smoothing=0).fit([[1, 2, 0]])
        assert np.isfinite(model.score([[1, 2, 3]]))
        assert model.score([[1, 2, 3]]) < model.score([[1, 2, 0]])

    def test_score_knows_weights(self, counts):
        X, w = counts[0], np.arange(60.0)
        model = ONMF(3).fit(X)
        each = [model.score(X[i : i + 1]) for i in range(60)]
        assert model.score(X, sample_weight=w) == pytest.approx(np.average(each, weights=w))

    def test_entries_that_leave_float64(self, counts):
        X = counts[0] + 1.0
        X[3, 1] = 1e-150
        with pytest.raises(ValueError, match="the smallest entry of row 3 is 1e-150"):
            ONMF(3, beta_loss=-3).fit(X)

    @pytest.mark.parametrize("unit", [1e80, 1e-80])
    def test_random_rows_in_any_unit(self, counts, unit):
        plain, scaled = (ONMF(3, init="random", random_state=0).fit(counts[0] * u) for u in (1.0, unit))
        assert np.array_equal(plain.init_rows_, scaled.init_rows_)
        assert np.array_equal(plain.labels_, scaled.labels_)

    def test_parallel_starts_tie(self):
        for seed in range(40):
            rng = np.random.default_rng(seed)
            X = np.outer(rng.random(25), rng.random(6) + 0.1)
            with pytest.warns(ConvergenceWarning, match="Only 1 of 3 clusters hold rows"):
                assert not ONMF(3, init=X[:3]).fit(X).labels_.any()

    def test_a_failed_fit_leaves_no_half_fitted_model(self, counts):
        model = ONMF(3)
        with pytest.raises(ValueError, match="Negative"):
            model.fit(-counts[0])
        with pytest.raises(NotFittedError):
            model.predict(counts[0])

    def test_a_stopped_fit_does_not_blame_the_data(self):
        X = np.eye(3)
        with pytest.warns(ConvergenceWarning) as warned:
            ONMF(3, init=np.ones((3, 3)), max_iter=1).fit(X)
        assert "Only 1 of 3 clusters hold rows: the fit was stopped" in str(warned[0].message)

    def test_a_callable_start_cannot_write_to_the_data(self, counts):
        def vandal(X, n_clusters, random_state):
            X *= 2
            return X[:n_clusters]

        with pytest.raises(ValueError, match="read-only"):
            ONMF(3, init=vandal).fit(counts[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: BetaAboveOne(1.0),
        lambda: BetaAboveOne(0.5),
        lambda: BetaBelowOne(0.0),
        lambda: BetaBelowOne(2.0),
        lambda: KullbackLeibler(-1.0),
    ],
)
def test_divergence_objects_refuse_parameters_that_make_no_sense(make):
    with pytest.raises(ValueError, match="is not allowed"):
        make()
