"""Inputs that once crashed the process, hung it, or gave NaN: each gives a clustering or an error."""

import warnings

import numpy as np
import pytest
from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, csr_matrix, dia_array, lil_array

from conftest import make_block
from onmf import ONMF, kl_onmf, select_n_clusters, snpa
from onmf.backend import CpuBackend
from onmf.data import Blocks, get_engine
from onmf.divergence import get_divergence

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def assert_finite(model, X):
    for array in (model.scales_, model.cluster_centers_, model.reconstruction_err_, model.transform(X).toarray()):
        assert np.isfinite(array).all()
    assert not np.isnan(model.margins_).any()
    assert np.isfinite(model.score(X))
    assert ((model.labels_ >= 0) & (model.labels_ < model.n_clusters)).all()


class TestLocalSearch:
    @pytest.mark.parametrize(
        ("X", "k"),
        [
            ([[1, 2, 100000], [0, 1, 100000], [2, 3, 0], [0, 0, 100000], [3, 0, 3]], 3),
            ([[300, 2], [1, 3], [2, 1]], 2),
            ([[2**21, 1], [2**21, 1], [1, 3]], 2),
        ],
    )
    def test_counts_near_the_end_of_the_table(self, X, k):
        model = ONMF(k, refine="local-search", random_state=0).fit(X)
        assert_finite(model, np.array(X))
        logarithms = ONMF(k, refine="local-search", random_state=0).fit(np.array(X) * 1.5)  # not integers: no tables
        assert np.array_equal(model.labels_, logarithms.labels_)

    @pytest.mark.parametrize("weight", [None, 1e-30, 1e30])
    @pytest.mark.parametrize("loss", ["kullback-leibler", "cosine"])
    @pytest.mark.parametrize(
        "X",
        [
            [[0, 7], [0, 2], [2, 1], [3, 1e9]],
            [[0, 7], [0, 2], [2, 1], [3, 5e-324]],
            [[1e-9, 1], [1, 1e-9], [1, 1], [2, 3]],
        ],
    )
    def test_splits_and_merges_end(self, X, loss, weight):
        weights = None if weight is None else np.full(4, weight)
        model = ONMF(3, beta_loss=loss, refine="local-search", random_state=0).fit(X, sample_weight=weights)
        assert_finite(model, np.array(X))

    def test_each_split_lowers_the_objective(self):
        X = np.random.default_rng(0).lognormal(0, 8, size=(40, 3))
        plain = ONMF(5, init="random", random_state=0, smoothing=0).fit(X)
        searched = ONMF(5, init="random", random_state=0, smoothing=0, refine="local-search").fit(X)
        assert searched.reconstruction_err_ <= plain.reconstruction_err_ * (1 + 1e-9)


def sparse(kind=csr_array):
    return kind(np.eye(4))


def with_index(X, value):
    X.indices[2] = value
    return X


def with_pointer(X, position, value):
    X.indptr[position] = value
    return X


def shortened(X, name):
    setattr(X, name, getattr(X, name)[:-1])
    return X


def with_coordinate(value):
    X = coo_array(np.eye(4))
    X.coords[1][2] = value
    return X


def with_list(value):
    X = lil_array(np.eye(4))
    X.rows[2][0] = value
    return X


def with_offsets(values):
    X = dia_array(np.eye(4))
    X.offsets = np.array(values)
    return X


BROKEN = {
    "far": (
        lambda: with_index(sparse(), 10**9),
        r"CSR.*indices\[2\] = 1000000000, in row 2, is outside a matrix of 4",
    ),
    "one past": (lambda: with_index(sparse(), 4), r"indices\[2\] = 4, in row 2"),
    "negative": (lambda: with_index(sparse(), -1), r"indices\[2\] = -1, in row 2"),
    "matrix": (lambda: with_index(sparse(csr_matrix), 4), r"indices\[2\] = 4"),
    "by columns": (
        lambda: with_index(sparse(csc_array), 4),
        r"CSC.*indices\[2\] = 4, in column 2, is outside .* 4 rows",
    ),
    "blocks": (lambda: with_index(bsr_array(np.eye(6), blocksize=(2, 2)), 3), r"BSR.*indices\[2\] = 3"),
    "coordinates": (lambda: with_coordinate(4), r"COO.*entry 2 is at 4 on axis 1, whose length is 4"),
    "lists": (lambda: with_list(77), r"indices\[2\] = 77"),
    "diagonals": (lambda: with_offsets([0, 1]), r"DIA.*offsets have shape \(2,\) .* diagonals shape \(1, 4\)"),
    "far diagonals": (lambda: with_offsets([2**32]), "DIA.*an offset needs more than 32 bits"),
    "falling": (lambda: with_pointer(sparse(), 2, 4), r"indptr\[3\] = 3; it must be at least 4"),
    "before": (lambda: with_pointer(sparse(), 0, -1), r"indptr\[0\] = -1; it must be 0"),
    "after": (lambda: with_pointer(sparse(), 4, 10**6), "indptr ends at 1000000, but there are 4 indices and 4 values"),
    "short pointers": (lambda: shortened(sparse(), "indptr"), "indptr has 4 entries for 4 rows; it must have 5"),
    "short data": (lambda: shortened(sparse(), "data"), "indptr ends at 4, but there are 4 indices and 3 values"),
}


class TestStructure:
    """Sparse matrices whose indices point outside, which compiled code would follow."""

    @pytest.mark.parametrize("name", BROKEN)
    def test_every_entry_point_refuses_it(self, name):
        make, message = BROKEN[name]
        fitted = ONMF(2).fit(np.eye(make().shape[1]))
        for use in (
            lambda X: ONMF(2).fit(X),
            lambda X: ONMF(2, engine="reference").fit(X),
            lambda X: ONMF(2).fit(lambda: iter([X])),
            lambda X: ONMF(2).fit(lambda: iter([[X, X]])),
            lambda X: ONMF(2).partial_fit(X),
            fitted.predict,
            fitted.transform,
            fitted.score,
            lambda X: ONMF(4, init=X).fit(np.eye(4)),
            lambda X: kl_onmf(X, 2),
            lambda X: kl_onmf(np.eye(4), 4, init=X),
            lambda X: snpa(X, 2),
            select_n_clusters,
        ):
            with pytest.raises(ValueError, match=message):
                use(make())

    def test_batches_in_the_papers_orientation(self):
        with pytest.raises(ValueError, match="The paper's orientation needs all rows in memory"):
            kl_onmf(lambda: iter([np.eye(3)]), 2)
        pytest.importorskip("dask")
        with pytest.raises(ValueError, match="The paper's orientation needs all rows in memory"):
            kl_onmf([_delayed(np.eye, 3)], 2)

    def test_as_centroids_and_memberships(self):
        with pytest.raises(ValueError, match=r"init is not a valid CSR matrix: indices\[2\] = 4"):
            ONMF(4, init=with_index(sparse(), 4)).fit(np.eye(4))
        with pytest.raises(ValueError, match=r"indices\[2\] = 4"):
            ONMF(4).fit(np.eye(4)).inverse_transform(with_index(sparse(), 4))

    def test_dask(self):
        da = pytest.importorskip("dask.array")
        X = da.from_delayed(_delayed(with_index, sparse(), 4), (4, 4), meta=csr_array((0, 4)))
        with pytest.raises(ValueError, match=r"partition 0.*indices\[2\] = 4"):
            ONMF(2).fit(X)

    def test_values_after_the_last_row_are_ignored(self):
        """SciPy allows index and value arrays that are longer than the number of entries."""
        X = csr_array(np.eye(4))
        X.indices, X.data = np.append(X.indices, [99, -7]).astype(np.int32), np.append(X.data, [np.nan, -1])
        model = ONMF(2).fit(X)
        assert np.array_equal(model.labels_, ONMF(2).fit(np.eye(4)).labels_)


def _delayed(function, *args):
    import dask

    return dask.delayed(function)(*args)


def test_blocks_with_odd_types_of_indices():
    X = bsr_array(np.eye(6), blocksize=(2, 2))
    X.indices = X.indices.astype(np.uint8)
    assert kl_onmf(X, 2).labels.tolist() == kl_onmf(np.eye(6), 2).labels.tolist()


class TestEndsOfFloat64:
    @pytest.mark.parametrize("smoothing", [0, 1e-20, 1e-3])
    @pytest.mark.parametrize("X", [[[1e10, 5e-324]], [[1e10, 5e-324], [3, 1]], [[5e-324, 1e100], [1e-20, 0.5]]])
    def test_denormal_entries(self, X, smoothing):
        for k in range(1, len(X) + 1):
            assert_finite(ONMF(k, smoothing=smoothing).fit(X), np.array(X))

    @pytest.mark.parametrize("smoothing", [0, 1e-20, 1e20])
    @pytest.mark.parametrize("loss", ["kullback-leibler", 0.25])
    def test_smoothing_that_is_allowed(self, smoothing, loss):
        X = np.array([[1, 0, 3], [2, 5, 0], [0, 1, 1]])
        assert_finite(ONMF(2, beta_loss=loss, smoothing=smoothing).fit(X), X)

    def test_least_smoothing_of_the_largest_entries(self):
        X = 1e125 * np.array([[0, 1, 0.25], [1, 0, 0.25], [0, 0.5, 0]])
        assert_finite(ONMF(2, beta_loss=0.05, smoothing=1e-20).fit(X), X)
        assert_finite(ONMF(2, beta_loss=0.5, smoothing=1e20).fit(X), X)

    @pytest.mark.parametrize("beta", [-100, -3, -0.05, 0.05, 1 - 2e-6, 1 + 2e-6, 1.5, 3, 100])
    def test_powers_that_are_allowed(self, beta):
        X = np.array([[1, 1.5, 2], [2, 1, 1], [1.25, 1, 2], [1, 2, 2]])
        weights = np.array([1e30, 1, 1e-30, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            for k in (1, 2, 4):
                assert_finite(ONMF(k, beta_loss=beta).fit(X), X)
                assert_finite(ONMF(k, beta_loss=beta).fit(X, sample_weight=weights), X)

    @pytest.mark.parametrize("init", ["snpa", "++", "random", "random-partition", "bisection", "consensus"])
    @pytest.mark.parametrize("loss", ["kullback-leibler", "cosine", "frobenius", 0.5, 1.5])
    def test_the_largest_entries_and_weights(self, loss, init):
        if init == "bisection" and get_divergence(loss).moves is None:
            pytest.skip("this divergence has no moves of single rows")
        X = np.array([[1, 0.5, 0, 0.5], [1, 0.75, 0.25, 1], [0.5, 0.25, 0.25, 0.25], [0, 1, 0.5, 0.5]]) * 1e125
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model = ONMF(3, beta_loss=loss, init=init, random_state=0, n_consensus=3)
            assert_finite(model.fit(X, sample_weight=np.full(4, 1e30)), X)

    @pytest.mark.filterwarnings("ignore:.*rows of X are zero everywhere")
    def test_rows_without_weight_that_no_seed_explains(self):
        X = np.array([[2, 0], [0, 1], [2, 0], [0, 2], [0, 0], [0, 0], [0, 2], [0, 0]])
        weights = (np.arange(8) == 0) * 1.0
        assert_finite(ONMF(8, init="++", smoothing=0, random_state=0).fit(X, sample_weight=weights), X)

    @pytest.mark.parametrize("unit", [1e-100, 1e100])
    def test_the_frobenius_norm_of_any_unit(self, unit):
        X = np.array([[0, 1, 0.75], [0.5, 0.75, 0.5], [0.25, 0.5, 0.75]])
        expected = ONMF(2, beta_loss="frobenius").fit(X).reconstruction_err_
        assert ONMF(2, beta_loss="frobenius").fit(X * unit).reconstruction_err_ == pytest.approx(expected * unit**2)

    def test_a_centroid_that_cancels_out(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model = ONMF(1, beta_loss="cosine").fit([[-1.0], [1e-16]])
        assert np.isfinite(model.cluster_centers_).all()


class TestTies:
    @pytest.mark.parametrize("loss", ["cosine", "kullback-leibler"])
    @pytest.mark.parametrize("seed", [1350, *range(60)])
    def test_predict_decides_as_the_fit_did(self, seed, loss):
        """Small integers have many exact ties. Rounding of the centroids must not break them differently."""
        rng = np.random.default_rng(seed)
        n, p, k = rng.integers(4, 40), rng.integers(1, 6), rng.integers(2, 8)
        X = rng.integers(0, rng.integers(2, 5), size=(n, p)).astype(float)
        X[0, 0] = 1
        weights = rng.integers(0, 3, size=n) if seed % 3 == 0 else None
        init = ["snpa", "random", "++", "random-partition"][seed % 4]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*rows of X are zero everywhere")
            model = ONMF(min(int(k), n), beta_loss=loss, init=init, random_state=seed).fit(X, sample_weight=weights)
            assert np.array_equal(model.predict(X), model.labels_)

    def test_scales_that_change_by_one_factor(self):
        """In the second iteration H does not change, but the centroids do. The fit must not stop there."""
        A = np.zeros((3, 5))
        A[0, 2], A[1, :2], A[2, [0, 2, 4]] = 17392788.515529774, (177871189.27130058, 2e-07), (1.2, 1697318.34, 9e-04)
        start = np.array([[0.5, 0.1, 2.0, 1e-09, 0.5], [1e-09, 0.5, 0.5, 0.1, 0.1], [1.0, 0.5, 0.5, 0.5, 1e-09]])
        model = ONMF(3, beta_loss="cosine", init=start).fit(A)
        assert np.array_equal(model.predict(A), model.labels_)


def test_weights_are_repeated_rows_where_clusters_start_again():
    X = np.array([[2, 1], [4, 2], [2, 2], [4, 0], [1, 3], [5, 3], [5, 4], [5, 1], [0, 1]])
    weights = np.array([2, 2, 3, 3, 3, 1, 2, 2, 2])
    weighted = ONMF(8, beta_loss="cosine").fit(X, sample_weight=weights)
    repeated = ONMF(8, beta_loss="cosine").fit(np.repeat(X, weights, axis=0))
    assert np.array_equal(np.repeat(weighted.labels_, weights), repeated.labels_)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_an_infinite_loss_of_weight_0_counts_as_nothing(engine):
    X, weights = np.array([[2, 2], [0, 1]]), [0.0, 1.0]
    divergence = get_divergence("kullback-leibler", 0.0)
    block = make_block(engine, X, divergence, np.array(weights))
    step = block.backend.start_run(block).step_from(np.array([[0.0, 1.0], [0.0, 2.0]]))
    assert np.isfinite(step.loss).all()
    assert_finite(ONMF(2, smoothing=0, engine=engine).fit(X, sample_weight=weights), X[1:])


class TestParameters:
    def test_temperatures(self):
        with pytest.raises(ValueError, match=r"temperature=1000.* is not allowed"):
            ONMF(2).fit(np.eye(3)).predict_proba(np.eye(3), temperature=10**400)

    def test_threads(self):
        with pytest.raises(
            ValueError, match="n_threads=1025 is not allowed: n_threads must be None or an integer from 1"
        ):
            get_engine("cpu", n_threads=1025)
        X = np.random.default_rng(0).poisson(1.0, size=(3000, 40))
        assert np.array_equal(ONMF(9, n_threads=1024).fit(X).labels_, ONMF(9, n_threads=1).fit(X).labels_)

    @pytest.mark.parametrize("weights", [["a", "b", "c"], [1j, 1, 1], [None, 1, 1], [10**400, 1, 1]])
    def test_weights_that_are_no_numbers(self, weights):
        for X in (np.eye(3), lambda: iter([np.eye(3)])):
            with pytest.raises(ValueError, match="sample_weight"):
                ONMF(2).fit(X, sample_weight=weights)

    def test_sparse_objects(self):
        X = csr_array(np.eye(3))
        X.data = X.data.astype(object)
        with pytest.raises(ValueError, match="X holds object values"):
            ONMF(2).fit(X)

    def test_centroids_of_another_width(self):
        model = ONMF(2).fit(np.eye(3))
        model.cluster_centers_ = model.cluster_centers_[:, :2]
        for door in (model.predict, model.score, model.assign):
            with pytest.raises(ValueError, match="X has 3 features, but cluster_centers_ has 2: fit the model again"):
                door(np.eye(3))

    @pytest.mark.parametrize("unit", [2.0**-40, 2.0**70])
    def test_the_unit_does_not_choose_the_number_of_clusters(self, unit):
        rng = np.random.default_rng(0)
        X = np.outer(rng.uniform(1, 3, 60), rng.dirichlet(np.ones(20))) * rng.gamma(50, 1 / 50, (60, 20))
        one, other = (select_n_clusters(A, random_state=0) for A in (X, unit * X))
        assert other.n_clusters == 1
        assert other.agreement == pytest.approx(one.agreement)
        assert other.chance == pytest.approx(one.chance)

    def test_counts_without_structure_may_have_hardly_any_rows(self):
        assert select_n_clusters(np.eye(6), random_state=0).n_clusters == 1

    def test_sums_of_large_counts_do_not_wrap_around(self):
        X = np.random.default_rng(0).integers(1, 4, (60, 10)) * 2**61
        whole, floats = (select_n_clusters(A, random_state=0) for A in (X, X.astype(float)))
        assert whole.n_clusters == 1
        assert np.array_equal(whole.chance, floats.chance)

    def test_an_infinite_loss_of_a_row(self):
        A = np.array([[0, 0, 1, 1], [5e-324, 1, 1, 3], [1, 0, 2**53, 0]])[[0, 1, 2, 2, 0, 1, 0, 2]]
        for engine in ("reference", "cpu"):
            assert_finite(ONMF(8, engine=engine).fit(A), A)

    def test_an_engine_in_another(self):
        assert ONMF(2, engine=Blocks(CpuBackend())).fit(lambda: iter([np.eye(3)])).labels_.shape == (3,)
