"""Rows in parts against rows in memory: any split, any container, every start and every divergence."""

import gc
import re
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_array, csr_array, csr_matrix

from conftest import EXPECTED, make_block, prepare
from onmf import ONMF, metrics, select_n_clusters, snpa
from onmf.backend import CpuBackend, ReferenceBackend
from onmf.data import Blocks, Dask, Part, PartError, get_engine, intake
from onmf.data import dask as dask_parts
from onmf.data.dask import tree_sum
from onmf.data.intake import check_parts
from onmf.data.parts import PartCache
from onmf.data.validate import as_rows
from onmf.divergence import get_divergence
from onmf.fit.starts import farthest, total_chances

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
bag = pytest.importorskip("dask.bag")
dataframe = pytest.importorskip("dask.dataframe")

LOSSES = ("kullback-leibler", "frobenius", "cosine", 1.5, 0.5, 3)
STARTS = ("snpa", "++", "random", "random-partition")
ENGINES = ("blocks", "dask")


def cut(X, sizes):
    ends = np.cumsum(sizes)
    assert ends[-1] == X.shape[0]
    return [X[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def in_parts(engine, X, sizes):
    blocks = cut(X, sizes)
    if engine == "blocks":
        return lambda: iter(blocks)
    like = csr_array((0, X.shape[1])) if hasattr(X, "tocsr") else np.empty((0, X.shape[1]))
    return da.concatenate([da.from_delayed(dask.delayed(b, traverse=False), b.shape, meta=like) for b in blocks])


def assert_same(fitted, whole, bits):
    """Check for the same clustering, to the last bit if sums are exact."""
    assert np.array_equal(np.asarray(fitted.labels_), whole.labels_)
    assert fitted.n_iter_ == whole.n_iter_
    assert (fitted.init_rows_ is None) == (whole.init_rows_ is None)
    if whole.init_rows_ is not None:
        assert np.array_equal(fitted.init_rows_, whole.init_rows_)
    if bits:
        assert np.array_equal(fitted.cluster_centers_, whole.cluster_centers_)
        assert np.array_equal(np.asarray(fitted.scales_), whole.scales_)
    assert fitted.cluster_centers_ == pytest.approx(whole.cluster_centers_, rel=1e-9, abs=1e-12)
    assert fitted.reconstruction_err_ == pytest.approx(whole.reconstruction_err_, rel=1e-12)
    assert np.asarray(fitted.scales_) == pytest.approx(whole.scales_, rel=1e-9)
    assert np.asarray(fitted.margins_) == pytest.approx(whole.margins_, rel=1e-9, abs=1e-12)
    assert fitted.clustering_.masses == pytest.approx(whole.clustering_.masses, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [csr_array, np.asarray])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_agrees_with_the_reference(counts, engine, kind, loss):
    X = counts[0]
    divergence = get_divergence(loss)
    first, again = (divergence.templates(X[rows] + 0.5) for rows in ([0, 5, 9, 20], [1, 5, 9, 20]))
    weights = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
    block = make_block("reference", as_rows(kind(X)), divergence, weights)
    run = block.backend.start_run(block)
    expected = [run.step(prepare(block, first)), run.step(prepare(block, again))]
    source = check_parts(
        in_parts(engine, kind(X), [17, 1, 30, 12]), divergence, estimator=None, reset=True, sample_weight=weights
    )
    data = get_engine("auto", source).make_data(source, divergence)
    steps = [replace(step, sums=step.sums.copy()) for step in (data.step(first), data.step(again))]
    for step, other in zip(steps, expected, strict=True):
        for field in ("sums", "mass", "counts", "scale_sums", "scale_squares", "overlap", "loss", "moved"):
            assert getattr(step, field) == pytest.approx(getattr(other, field), rel=1e-12), field
    assert data.constant == pytest.approx(block.constant, rel=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_in_parts_is_the_fit_in_memory(counts, engine, start, loss):
    X = csr_array(counts[0])
    options = {"beta_loss": loss, "init": start, "random_state": 3}
    whole = ONMF(4, **options).fit(X)
    fitted = ONMF(4, **options).fit(in_parts(engine, X, [25, 5, 30]))
    assert fitted.engine_ == engine
    assert_same(fitted, whole, bits=loss == "kullback-leibler")


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.filterwarnings("ignore")  # few rows often have few directions
def test_any_cuts_give_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    n, k = rng.integers(8, 41), int(rng.integers(1, 7))
    X = csr_array(rng.poisson(rng.gamma(0.4, size=(n, 12))) + np.eye(n, 12, dtype=int))
    sizes = np.diff([0, *np.sort(rng.integers(0, n + 1, size=rng.integers(7))), n]).tolist()
    options = {"init": rng.choice(STARTS), "random_state": 0, "max_iter": 200, "smoothing": rng.choice([0.0, 1e-3])}
    with np.errstate(all="raise", under="ignore"):
        whole = ONMF(k, **options).fit(X)
        for engine in ENGINES:
            fitted = ONMF(k, **options).fit(in_parts(engine, X, sizes))
            assert np.array_equal(np.asarray(fitted.labels_), whole.labels_)
            assert np.array_equal(fitted.cluster_centers_, whole.cluster_centers_)
            assert fitted.n_iter_ == whole.n_iter_


@pytest.mark.parametrize(
    "chunks",
    [
        1,
        pytest.param(7, marks=pytest.mark.short("the paper's table on Dask")),
        pytest.param(64, marks=pytest.mark.long("the paper's larger tables")),
    ],
)
def test_the_papers_table_from_any_number_of_chunks(paper_set, chunks):
    X, truth = paper_set("NG20")
    sizes = np.diff(np.linspace(0, X.shape[0], chunks + 1).astype(int)).tolist()
    for loss in ("kullback-leibler", "frobenius") if chunks == 7 else ("kullback-leibler",):
        expected = EXPECTED["NG20"][loss]
        model = ONMF(20, beta_loss=loss).fit(in_parts("dask", X, sizes))
        labels = model.labels_.compute()
        assert model.labels_.chunks == (tuple(sizes),)
        assert model.init_rows_.tolist() == EXPECTED["NG20"]["snpa_rows"]
        assert model.n_iter_ == expected["iterations"]
        assert np.bincount(labels).tolist() == expected["cluster_sizes"]
        assert model.reconstruction_err_ == pytest.approx(expected["objective"], rel=1e-9)
        assert 100 * metrics.clustering_accuracy(truth, labels) == pytest.approx(expected["accuracy"], abs=1e-6)


@pytest.mark.parametrize("name", ["tr11", "k1b", "moffett"])
@pytest.mark.parametrize("loss", ["frobenius", "cosine", 1.5, 0.5])
def test_other_divergences_give_the_same_labels_on_the_papers_data(paper_set, name, loss):
    X, _ = paper_set(name)
    k = len(EXPECTED[name]["snpa_rows"])
    whole = ONMF(k, beta_loss=loss, max_iter=300).fit(X)
    n = X.shape[0]
    fitted = ONMF(k, beta_loss=loss, max_iter=300).fit(in_parts("dask", X, [n // 3, n // 3, n - 2 * (n // 3)]))
    assert np.array_equal(fitted.labels_.compute(), whole.labels_)
    assert fitted.n_iter_ == whole.n_iter_


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_cluster_is_filled_from_all_parts(engine):
    rng = np.random.default_rng(0)
    X = rng.poisson(3, size=(40, 6)) + 1
    init = np.vstack([X[:2], X[0] * 2, np.full(6, 1e-9) + np.eye(6)[0]])  # the last two get few rows or none
    whole = ONMF(4, init=init).fit(X)
    assert_same(ONMF(4, init=init).fit(in_parts(engine, X, [7, 20, 13])), whole, bits=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_and_the_methods_of_a_model(counts, engine):
    X, weights = csr_array(counts[0]), np.random.default_rng(4).integers(0, 4, len(counts[0])).astype(float)
    parts = in_parts(engine, X, [20, 0, 40])
    whole = ONMF(3).fit(X, sample_weight=weights)
    fitted = ONMF(3).fit(parts, sample_weight=weights)
    assert_same(fitted, whole, bits=True)
    assert np.array_equal(np.asarray(fitted.predict(parts)), whole.predict(X))
    assert np.asarray(fitted.predict_proba(parts, 10)) == pytest.approx(whole.predict_proba(X, 10))
    H = fitted.transform(parts)
    H = H.compute() if engine == "dask" else H
    assert abs(H - whole.transform(X)).max() < 1e-15
    assert fitted.score(parts, sample_weight=weights) == pytest.approx(whole.score(X, sample_weight=weights))
    dense = ONMF(3, sparse_output=False).fit_transform(parts, sample_weight=weights)
    assert np.asarray(dense) == pytest.approx(whole.fit_transform(X, sample_weight=weights).toarray())
    several = ONMF(3, init="random", n_init=4, random_state=0)
    assert_same(several.fit(parts), ONMF(3, init="random", n_init=4, random_state=0).fit(X), bits=True)


def collections(X):
    """The same rows as every kind of Dask collection."""
    array = da.from_array(X, chunks=(25, -1))
    frame = pd.DataFrame(X, columns=[f"w{j}" for j in range(X.shape[1])])
    blocks = cut(X, [25, 25, 10])
    return {
        "dense": array,
        "column chunks": da.from_array(X, chunks=(25, 7)),
        "csr_matrix": array.map_blocks(csr_matrix),
        "csr_array, column chunks": da.from_array(X, chunks=(25, 7)).map_blocks(csr_array),
        "csc": array.map_blocks(csc_array),
        "unknown sizes": array[array.sum(axis=1) >= 0],
        "frame": dataframe.from_pandas(frame, npartitions=3),
        "bag": bag.from_sequence([csr_array(b) for b in blocks], npartitions=2),
        "delayed": [dask.delayed(csr_array(b)) for b in blocks],
        "one delayed block": dask.delayed(X),
        "persisted": array.persist(),
    }


@pytest.mark.parametrize("engine", ["auto", Dask(ReferenceBackend())], ids=["auto", "reference"])
@pytest.mark.parametrize("kind", list(collections(np.ones((60, 8)))))
def test_every_collection_of_dask(counts, kind, engine):
    whole = ONMF(3).fit(counts[0])
    X = collections(counts[0])[kind]
    model = ONMF(3, engine=engine).fit(X)
    assert_same(model, whole, bits=engine == "auto")
    assert not np.isnan(model.labels_.shape[0])
    assert model.n_features_in_ == counts[0].shape[1]
    assert hasattr(model, "feature_names_in_") == (kind == "frame")
    assert np.array_equal(model.predict(X).compute(), whole.predict(counts[0]))
    assert model.predict_proba(X, 10).compute() == pytest.approx(whole.predict_proba(counts[0], 10))
    assert abs(model.transform(X).compute() - whole.transform(counts[0])).max() < 1e-14
    assert model.score(X) == pytest.approx(whole.score(counts[0]))
    assert model.assign(X).margins.compute() == pytest.approx(whole.margins_, rel=1e-9)


@pytest.mark.parametrize("number", [1, 2, 8, 9, 17, 65])
def test_a_tree_of_sums_adds_every_part(number):
    tasks = [dask.delayed(1 << part) for part in range(number)]
    assert dask.compute(*tree_sum(tasks)) == ((1 << number) - 1,)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_parts_without_rows(counts, empty):
    X = csr_array(counts[0])
    pieces = [[X[:20]], [X[20:]]]
    pieces.insert(empty, [])
    collected = bag.from_delayed([dask.delayed(piece, traverse=False) for piece in pieces])
    whole = ONMF(3, init="++", random_state=0).fit(X)
    for parts in (collected, lambda: iter(pieces)):
        fitted = ONMF(3, init="++", random_state=0).fit(parts)
        assert_same(fitted, whole, bits=True)
        assert np.array_equal(np.asarray(fitted.predict(parts)), whole.labels_)
        assert fitted.score(parts) == pytest.approx(whole.score(X))
    with pytest.raises(ValueError, match="X has no rows: no partition holds any"):
        ONMF(3).fit(bag.from_delayed([dask.delayed([]), dask.delayed([])]))


def test_the_names_of_batches_are_compared(counts):
    class Named:
        def __init__(self, X, names):
            self.X, self.names = X, np.array(names, dtype=object)

        def __call__(self):
            return iter(cut(self.X, [30, 30]))

    X = counts[0][:, :4] + 1
    model = ONMF(3).fit(Named(X, ["green", "red", "tea", "wine"]))
    assert np.array_equal(model.predict(Named(X, ["green", "red", "tea", "wine"])), model.labels_)
    for method in (model.predict, model.score):
        with pytest.raises(ValueError, match="The feature names should match those that were passed during fit"):
            method(Named(X, ["bike", "blue", "car", "fast"]))
    with pytest.raises(ValueError, match="X has 3 features, but ONMF is expecting 4"):
        model.predict(Named(X[:, :3], ["green", "red", "tea"]))
    with pytest.raises(ValueError, match="X has 3 names for 4 features: give each feature one name"):
        ONMF(3).fit(Named(X, ["green", "red", "tea"]))


class TestWeights:
    def test_in_chunks_of_their_own(self, counts):
        X, weights = counts[0], np.arange(60) % 4
        whole = ONMF(3).fit(X, sample_weight=weights)
        kinds = collections(X)
        series = dataframe.from_pandas(pd.Series(weights), npartitions=3)
        for kind, column in (
            ("dense", da.from_array(weights, chunks=7)),
            ("unknown sizes", da.from_array(weights, chunks=25)),
            ("frame", series),
            ("frame", series.to_dask_array(lengths=True)),
            ("dense", dataframe.from_pandas(pd.Series(weights), chunksize=25)),
        ):
            assert_same(ONMF(3).fit(kinds[kind], sample_weight=column), whole, bits=True)

    def test_that_do_not_fit(self, counts):
        kinds = collections(counts[0])
        for n in (2, 4):
            with pytest.raises(
                ValueError, match=f"sample_weight has {n} chunks, but X has 3 partitions.*give both the same chunks"
            ):
                ONMF(3).fit(kinds["delayed"], sample_weight=da.ones(n * 20, chunks=20))
        with pytest.raises(ValueError, match="sample_weight has 1 chunks, but X has 3 partitions"):
            ONMF(3).fit(kinds["dense"], sample_weight=dataframe.from_pandas(pd.Series(np.ones(60)), npartitions=1))
        with pytest.raises(ValueError, match="sample_weight has 59 entries, but X has 60 rows"):
            ONMF(3).fit(kinds["dense"], sample_weight=da.ones(59, chunks=25))
        with pytest.raises(ValueError, match=r"sample_weight has shape \(20,\), but X has \d+ rows"):
            ONMF(3).fit(kinds["delayed"], sample_weight=da.ones(60, chunks=20))
        with pytest.raises(ValueError, match="sample_weight has 2 dimensions: give one weight for each row"):
            ONMF(3).fit(kinds["dense"], sample_weight=da.ones((60, 1)))

    @pytest.mark.parametrize("kind", ["batches", "dense", "delayed"])
    def test_one_number_is_the_weight_of_every_row(self, counts, kind):
        X = in_parts("blocks", counts[0], [20, 40]) if kind == "batches" else collections(counts[0])[kind]
        whole = ONMF(3).fit(counts[0], sample_weight=2.0)
        fitted = ONMF(3).fit(X, sample_weight=2.0)
        assert_same(fitted, whole, bits=True)
        assert fitted.score(X, sample_weight=2.0) == pytest.approx(whole.score(counts[0]))
        with pytest.raises(ValueError, match="a weight must be 0, or lie between"):
            ONMF(3).fit(X, sample_weight=-1.0)


class TestWhatStays:
    """The cached state of parts belongs to one fit, and one task uses it at a time."""

    @pytest.mark.parametrize("engine", ENGINES)
    def test_it_goes_with_the_fit(self, counts, engine):
        models = [ONMF(3, init=init, random_state=0).fit(in_parts(engine, counts[0], [30, 30])) for init in STARTS]
        gc.collect()
        assert len(dask_parts._caches) == 0
        assert all(len(np.asarray(model.labels_)) == 60 for model in models)

    @pytest.mark.parametrize("start", ["snpa", "++"])
    def test_two_tasks_on_one_part(self, counts, start):
        class Slow(CpuBackend):
            def best_template(self, rows, templates):
                time.sleep(0.05)
                return super().best_template(rows, templates)

        X = counts[0].astype(float)
        seeds = X[[0, 20, 40]]
        gram = np.zeros((4, 4))
        gram[1:, 1:] = seeds @ seeds.T

        def task(m):
            if start == "snpa":
                return farthest, "a", 3, seeds[:m], gram, 0.0
            return total_chances, "a", seeds[:m], [0, 20, 40], True

        divergence = get_divergence("kullback-leibler")
        source = check_parts(in_parts("dask", X, [60]), divergence, estimator=None, reset=True)

        def opened():
            data = Dask(Slow(1)).make_data(source, divergence)
            data.map_part(0, *task(1))  # all tasks read the state that this one left
            return lambda _: data.map_part(0, *task(3))

        alone = opened()(0)
        with ThreadPoolExecutor(3) as pool:
            for result in pool.map(opened(), range(3)):
                for one, other in zip(result[:2], alone[:2], strict=True):
                    assert np.array_equal(one, other)

    @pytest.mark.parametrize("stays", [True, False])
    def test_a_part_that_stays_on_a_gpu_is_read_once(self, counts, monkeypatch, stays):
        class OnCard(CpuBackend):
            takes_cupy = True

        monkeypatch.setattr("onmf.data.parts.on_gpu", lambda X: True)
        divergence, reads = get_divergence("kullback-leibler"), []
        source = check_parts(in_parts("dask", counts[0], [60]), divergence, estimator=None, reset=True)

        def read(block, **options):
            reads.append(block)
            return source.read(block, **options)

        data = Dask(OnCard(1)).make_data(replace(source, read=read), divergence)
        memo, raw, other = PartCache(), counts[0].astype(float), counts[0].astype(float)
        task = data.task(lambda part: part.block)
        (first, *_), *again = (task(memo, 0, 0, lambda: raw, None, None, (), stays) for _ in range(3))
        assert [block is first for block, *_ in again] == [stays, stays]
        assert len(reads) == (2 if stays else 4)
        assert task(memo, 0, 0, lambda: other, None, None, (), stays)[0] is not first, "another object is read"

    def test_parts_on_a_gpu_need_its_backend(self, counts, monkeypatch):
        monkeypatch.setattr("onmf.data.parts.on_gpu", lambda X: True)
        with pytest.raises(ValueError, match="it is in the memory of a GPU"):
            ONMF(3).fit(in_parts("dask", counts[0], [60]))

    def test_an_older_task_knows_of_no_later_vertex(self, counts):
        """A task of an abandoned pass can run after a task of a later pass."""
        X = counts[0].astype(float)
        seeds = X[[0, 20, 40]]
        gram = np.zeros((4, 4))
        gram[1:, 1:] = seeds @ seeds.T
        block = make_block("cpu", X, get_divergence("kullback-leibler"), n_threads=1)
        fresh, used = (Part(block, block.backend.start_run(block)) for _ in range(2))
        farthest(used, "a", 3, seeds, gram, 0.0)
        expected = farthest(fresh, "a", 3, seeds[:1], gram, 0.0)
        front = farthest(used, "a", 3, seeds[:1], gram, 0.0)
        assert np.array_equal(front.rows, expected.rows)
        assert np.array_equal(front.residuals, expected.residuals)


def test_a_model_without_a_cluster(counts):
    model = ONMF(3).fit(in_parts("dask", counts[0], [30, 30]))
    alone = model.to_cpu()
    for name in ("labels_", "scales_", "margins_"):
        assert isinstance(getattr(alone, name), np.ndarray)
        assert np.array_equal(getattr(alone, name), getattr(model, name).compute())
    assert alone.labels_ is alone.clustering_.labels


class TestRefusals:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_what_needs_all_rows(self, counts, engine):
        X = in_parts(engine, counts[0], [30, 30])
        for use, name in (
            (lambda: snpa(X, 3), "snpa"),
            (lambda: select_n_clusters(X), "select_n_clusters"),
            (lambda: ONMF(3, refine="local-search").fit(X), "refine='local-search'"),
            (lambda: ONMF(3, init="bisection").fit(X), "init='bisection'"),
            (lambda: ONMF(3, init="consensus").fit(X), "init='consensus'"),
        ):
            with pytest.raises(ValueError, match=f"{name} needs all rows in memory, and X comes in parts"):
                use()

    def test_engines_for_other_data(self, counts):
        X = counts[0]
        with pytest.raises(ValueError, match="engine='cpu' cannot take this data: it comes in parts"):
            ONMF(3, engine="cpu").fit(in_parts("dask", X, [30, 30]))
        with pytest.raises(ValueError, match=r"engine='dask' cannot take this data: it takes Dask collections"):
            ONMF(3, engine="dask").fit(X)
        with pytest.raises(ValueError, match="engine='blocks' cannot take this data: it reads batches"):
            ONMF(3, engine=Blocks(CpuBackend(1))).fit(X)
        assert ONMF(3, engine=Dask(CpuBackend(1))).fit(in_parts("dask", X, [60])).engine_ == "dask"

    @pytest.mark.parametrize("engine", ENGINES)
    def test_bad_entries_name_the_part(self, counts, engine):
        what = {"blocks": "batch", "dask": "partition"}[engine]
        X = counts[0].astype(float)
        X[31, 4] = -1
        with pytest.raises(
            ValueError, match=rf"In {what} 1, whose rows count from 0: Negative values .* X\[1, 4\] = -1"
        ):
            ONMF(3).fit(in_parts(engine, X, [30, 30]))
        with pytest.raises(ValueError, match=rf"In {what} 1"):
            ONMF(3).fit(in_parts(engine, counts[0], [30, 30])).score(in_parts(engine, X, [30, 30]))

    @pytest.mark.parametrize("engine", ENGINES)
    def test_sizes(self, counts, engine):
        X = counts[0]
        with pytest.raises(ValueError, match="n_samples=60 should be >= n_clusters=61"):
            ONMF(61).fit(in_parts(engine, X, [30, 30]))
        model = ONMF(3).fit(in_parts(engine, X, [30, 30]))
        with pytest.raises(ValueError, match="X has 20 features, but ONMF is expecting 24"):
            np.asarray(model.predict(in_parts(engine, X[:, :20], [30, 30])))
        with pytest.raises(ValueError, match="sample_weight"):
            ONMF(3).fit(in_parts(engine, X, [30, 30]), sample_weight=np.ones(59))
        with pytest.raises(ValueError, match="sample_weight is zero for every row"):
            ONMF(3).fit(in_parts(engine, X, [30, 30]), sample_weight=np.zeros(60))

    def test_zero_rows_are_counted_over_all_parts(self, counts):
        X = counts[0].copy()
        X[[3, 50]] = 0
        with pytest.warns(UserWarning, match="2 of 60 rows of X are zero everywhere"):
            ONMF(3).fit(in_parts("dask", X, [30, 30]))

    def test_collections_that_are_no_rows(self, counts):
        with pytest.raises(ValueError, match="Dask array of 3 dimensions"):
            ONMF(3).fit(da.ones((4, 5, 6)))
        with pytest.raises(ValueError, match="In partition 1: 20 features, where partition 0 has 24"):
            ONMF(3).fit([dask.delayed(counts[0]), dask.delayed(counts[0][:, :20])])
        with pytest.raises(ValueError, match="sizes of the partitions of X are not known"):
            ONMF(3).fit([dask.delayed(counts[0])], sample_weight=np.ones(60))


class Changing:
    """Two blocks. The second gets a different entry when it is read for the n-th time."""

    def __init__(self, X, kind, entry, after):
        self.blocks = [X[:30].astype(float), X[30:].astype(float)]
        self.kind, self.entry, self.after = kind, entry, after
        self.reads, self.lock = 0, Lock()  # Dask may read a block twice at the same time

    def block(self, number):
        if number == 1:
            with self.lock:
                self.reads += 1
                if self.reads > self.after:
                    self.blocks[1][4, 2] = self.entry
        return self.kind(self.blocks[number])

    def source(self, engine):
        if engine == "blocks":
            return lambda: (self.block(number) for number in range(2))
        return [dask.delayed(self.block, pure=False)(number) for number in range(2)]


def refusal(model, X):
    """Return the error message of a refused fit."""
    try:
        model.fit(X)
    except ValueError as error:
        return str(error)
    return None


class TestDataThatChange:
    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("kind", [csr_array, np.asarray])
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize(
        ("entry", "message"), [(np.nan, "contains NaN"), (-np.inf, "contains infinity"), (-1.0, "Negative values")]
    )
    def test_what_is_not_allowed_is_never_fitted(self, counts, engine, kind, loss, entry, message):
        after, what = 1, {"blocks": "batch", "dask": "partition"}[engine]
        while True:  # change the block in each pass, until a fit ends before the change
            source = Changing(counts[0] + 1, kind, entry, after)
            model = ONMF(3, beta_loss=loss, init="random-partition", random_state=0, tol=1e-2)
            error = refusal(model, source.source(engine))
            if error is None:
                break
            assert re.match(rf"In {what} 1, whose rows count from 0: .*{message}", error)
            assert "The first pass found nothing wrong: the data changed during the fit." in error
            after += 1
        if entry == -1 and get_divergence(loss).domain == "real":
            assert source.reads > after, "negative entries are allowed"
        else:
            assert 2 < source.reads <= after, "only a fit that saw no change is done"

    @pytest.mark.parametrize("engine", ENGINES)
    def test_structure_that_changes(self, counts, engine):
        source = Changing(counts[0], csr_array, 1.0, 10**9)
        passes = []

        def block(number):
            passes.append(number)
            rows = csr_array(source.blocks[number])
            if len(passes) > 6:
                rows.indices[0] = 10**6
            return rows

        source.block = block
        with pytest.raises(ValueError, match=r"In (batch|partition) \d.*indices\[0\] = 1000000, in row 0"):
            ONMF(3).fit(source.source(engine))


class TestBatches:
    def test_a_source_that_changes_is_noticed(self, counts):
        X, passes = counts[0], []

        def shrinking():
            passes.append(1)
            return iter(cut(X, [30, 30]) if len(passes) < 3 else cut(X[:55], [30, 25]))

        with pytest.raises(ValueError, match=r"In batch 1.*it has 25 rows, and had 30 in the first pass"):
            ONMF(3).fit(shrinking)

    @pytest.mark.parametrize(("numbers", "how"), [([0], "fewer"), ([0, 1, 0], "more")])
    def test_another_number_of_batches_is_noticed(self, counts, numbers, how):
        passes, blocks = [], cut(counts[0], [30, 30])

        def changing():
            passes.append(1)
            return iter(blocks if len(passes) < 3 else [blocks[number] for number in numbers])

        with pytest.raises(RuntimeError, match=f"returned {how} batches than in the first pass, when there were 2"):
            ONMF(3).fit(changing)

    def test_what_is_no_source(self, counts):
        with pytest.raises(TypeError, match=r"X\(\) returned int, not batches"):
            ONMF(3).fit(lambda: 5)
        with pytest.raises(ValueError, match="X has no rows"):
            ONMF(3).fit(lambda: iter([]))
        for X in (counts[0], csr_array(counts[0])):
            with pytest.raises(TypeError, match=rf"X\(\) returned {type(X).__name__}, not batches: pass a function"):
                ONMF(3).fit(lambda X=X: X)
        once = iter(cut(counts[0], [30, 30]))
        with pytest.raises(RuntimeError, match="returned fewer batches than in the first pass"):
            ONMF(3).fit(lambda: once)
        model = ONMF(3).fit(counts[0])
        for method in (model.score, model.predict):
            with pytest.raises(ValueError, match="X has no rows: the callable returned no batches"):
                method(lambda: iter([]))

    def test_batches_that_are_not_from_a_function(self, counts):
        blocks = cut(csr_array(counts[0]), [30, 30])
        for X, what in (((b for b in blocks), "generator"), (blocks, "list"), (tuple(cut(counts[0], [60])), "tuple")):
            with pytest.raises(ValueError, match=f"X is a {what} of batches: pass a function without arguments"):
                ONMF(3).fit(X)

    def test_what_the_callable_raises_names_the_batch(self, counts):
        def broken(error):
            yield counts[0][:30]
            raise error

        with pytest.raises(PartError, match="In batch 1: OSError: the disk is gone"):
            ONMF(3).fit(lambda: broken(OSError("the disk is gone")))
        with pytest.raises(ValueError, match="In batch 1, whose rows count from 0: bad line"):
            ONMF(3).fit(lambda: broken(ValueError("bad line")))

    @pytest.mark.parametrize("weights", [None, np.ones(60)])
    def test_a_batch_is_read_once_in_a_pass(self, counts, weights, monkeypatch):
        read, passes = [], []
        as_rows_of = intake.as_rows
        monkeypatch.setattr(intake, "as_rows", lambda X: read.append(1) or as_rows_of(X))

        def batches():
            passes.append(1)
            return iter(cut(counts[0], [30, 30]))

        ONMF(3, init="random-partition", random_state=0).fit(batches, sample_weight=weights)
        assert len(read) == 2 * len(passes)

    @pytest.mark.short("batches that are large enough to measure")
    def test_one_batch_is_in_memory_at_a_time(self):
        """Peak memory of a fit over many batches is a small part of their total size."""

        def batches():
            rng = np.random.default_rng(0)
            return (rng.poisson(1.0, size=(2000, 200)) + 1 for _ in range(20))  # 3.2 MB each, 64 MB in all

        ONMF(3, max_iter=2, tol=1).fit(lambda: iter([next(batches())]))  # compile
        tracemalloc.start()
        ONMF(3, max_iter=3, tol=10).fit(batches)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 32e6
