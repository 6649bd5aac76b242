"""The GPU backend: starts, local search, rows streamed from the host, and parts on Dask workers."""

import gc

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_gpu import FAMILY, made

from conftest import make_block, needs_gpu, prepare
from onmf import ONMF
from onmf.backend import CpuBackend, GpuBackend, to_host
from onmf.backend.gpu import rows as placed
from onmf.backend.gpu.hull import GpuHull
from onmf.backend.gpu.rows import BUFFERS, StreamedRows
from onmf.data import Blocks, Dask, InMemory
from onmf.datasets import make_counts
from onmf.divergence import get_divergence
from onmf.fit.starts import snpa_start
from test_optima import check_local_search

pytestmark = needs_gpu


@pytest.fixture(params=[True, False], ids=["locked", "not locked"])
def locked(request, monkeypatch):
    """Whether the pages of rows can be locked."""
    if not request.param:
        monkeypatch.setattr("onmf.backend.gpu.rows._lock", lambda array, keys: False)
    return request.param


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (400, 33), (3000, 70)])
@pytest.mark.parametrize("shared", [0, 200_000])
def test_distances_to_a_hull(monkeypatch, n, k, shared, sparse):
    """With little shared memory, the factors of a projection are in global memory."""
    monkeypatch.setattr("onmf.backend.gpu.hull.largest_shared", lambda: shared)
    check_hull(made(n, 90, density=0.3, whole=False, sparse=sparse), k)


def check_hull(X, k):
    """Compare the distances to a hull that grows, and the rows that SNPA chooses, with the CPU backend."""
    weights = np.arange(X.shape[0]) % 5 + 0.0 if X.shape[0] > 1 else None
    here, there = (make_block(name, X, get_divergence(1), weights) for name in ("gpu", "cpu"))
    ours, theirs = here.backend.hull(here, k), there.backend.hull(there, k)
    assert isinstance(ours, GpuHull)
    chosen = snpa_start(InMemory(there), k, None).rows
    assert np.array_equal(snpa_start(InMemory(here), k, None).rows, chosen)
    vertices = there.dense(chosen)
    gram = np.pad(vertices @ vertices.T, ((1, 0), (1, 0)))
    largest = 0.0
    for m in range(k):
        (rows, *sizes), (expected, *known) = (
            hull.farthest(block, np.ascontiguousarray(gram[: m + 1, : m + 1]), largest)
            for hull, block in ((ours, here), (theirs, there))
        )
        assert rows.tolist() == expected.tolist()
        for one, other in zip(sizes, known, strict=True):
            assert one == pytest.approx(other, rel=1e-7)
        largest = largest or float(sizes[1].max())
        ours.add(here, vertices[m])
        theirs.add(there, vertices[m])


@pytest.mark.parametrize("loss", ["kullback-leibler", "cosine"])
@pytest.mark.parametrize("kind", ["counts", "dense counts", "large counts", "fractions", "dense fractions"])
@pytest.mark.parametrize("memory", [None, 40_000])
def test_local_search(monkeypatch, loss, kind, memory):
    """The GPU tries all rows at once. No single move improves what is left, and every run gives the same."""
    monkeypatch.setattr("onmf.backend.gpu.backend.WORTH_TRYING", 0)
    rows = make_counts(120, 25, 4, length=30, overlap=0.6, random_state=3).X.toarray()
    rows[11] = 0
    if memory:
        assert len(GpuBackend(memory=memory).place(rows).cuts) > BUFFERS
    check_local_search(GpuBackend(memory=memory), rows, loss, kind, 0)
    options = {"beta_loss": loss, "init": "random", "refine": "local-search", "random_state": 0}
    one, other = (ONMF(4, engine=GpuBackend(memory=memory), **options).fit(np.delete(rows, 11, axis=0)) for _ in "ab")
    assert np.array_equal(one.labels_, other.labels_)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("loss", FAMILY)
def test_rows_streamed_through_the_card(loss, sparse, locked):
    X = made(2000, 90, density=0.3, sparse=sparse)
    w = np.arange(2000) % 3 + 1.0
    streamed = GpuBackend(memory=1_000_000)
    assert len(streamed.place(X).cuts) > 4
    assert streamed.place(X).locks.complete == locked
    models = [ONMF(7, beta_loss=loss, engine=e, max_iter=300).fit(X, sample_weight=w) for e in ("gpu", streamed)]
    assert np.array_equal(models[0].labels_, models[1].labels_)
    assert models[0].n_iter_ == models[1].n_iter_
    assert models[1].cluster_centers_ == pytest.approx(models[0].cluster_centers_, rel=1e-10, abs=1e-14)
    assert np.array_equal(models[1].predict(X), models[0].predict(X))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_streamed_entries_of_any_type_in_any_number_of_blocks(sparse, dtype, number):
    X = csr_array(made(700, 40, density=0.3).astype(dtype))
    rows = X if sparse else X.toarray()
    block = make_block("gpu", rows, get_divergence(1))
    streamed = StreamedRows(rows, -(-(X.nnz if sparse else rows.size) // number) + 40)
    assert len(streamed.cuts) == number
    assert streamed.dtype == np.float32
    templates = prepare(block, np.random.default_rng(0).random((5, 40)))
    expected = [to_host(array).copy() for array in block.backend.best_template(block.rows, templates)]
    sums = block.sum_by_label(expected[0], None, 5)
    for _ in range(3):  # later passes begin with a block that is there already
        labels, best = map(to_host, block.backend.best_template(streamed, templates))
        assert np.array_equal(labels, expected[0])
        assert best == pytest.approx(expected[1], rel=1e-13)
        assert to_host(block.backend.sum_by_label(streamed, expected[0], None, 5)) == pytest.approx(sums, rel=1e-12)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_pass_during_another(sparse, locked):
    """Each has its own buffers, so neither overwrites the rows of the other."""
    X = made(700, 40, density=0.3)
    backend = GpuBackend(memory=150_000)
    streamed = backend.place(X if sparse else X.toarray())
    assert len(streamed.cuts) > 2 * BUFFERS
    expected = X.sum(axis=1)
    for start, stop, rows in streamed:
        assert to_host(backend.row_term(streamed, lambda x, j: np.abs(x))) == pytest.approx(expected, rel=1e-12)
        assert to_host(backend.row_term(rows, lambda x, j: np.abs(x))) == pytest.approx(expected[start:stop], rel=1e-12)


def test_copies_end_before_their_memory_is_free(locked):
    import cupy

    X = made(700, 40, density=0.3)
    streamed = StreamedRows(X, X.nnz // 2 + 40)
    list(streamed)  # compiles what a pass needs
    code = """extern "C" __global__ void wait() {
        unsigned long long start, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
        do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < 300000000ull);
    }"""
    slow, copies = cupy.cuda.Stream(non_blocking=True), streamed._stream
    with slow:
        cupy.RawKernel(code, "wait")((1,), (1,), ())
    copies.wait_event(slow.record())
    for buffer in streamed._idle[0]:
        buffer.number = None  # as if a longer pass had used it
    list(streamed)
    del streamed, buffer
    gc.collect()
    assert copies.done


def test_pages_are_unlocked_after_use():
    gc.collect()
    X = made(2000, 90, density=0.3)
    one, other = (GpuBackend(memory=1_000_000).place(X) for _ in range(2))
    assert len(placed._locked) == 3
    del one
    gc.collect()
    assert len(placed._locked) == 3
    del other
    gc.collect()
    assert not placed._locked


@pytest.mark.parametrize("loss", FAMILY)
@pytest.mark.parametrize("kind", ["blocks", "dask"])
def test_parts_with_a_gpu_inside(loss, kind):
    X = made(600, 60, density=0.3).toarray()
    if kind == "blocks":
        parts, engine = (lambda: iter([X[:100], X[100:]])), Blocks(GpuBackend())
    else:
        parts, engine = pytest.importorskip("dask.array").from_array(X, chunks=(170, -1)), Dask(GpuBackend())
    options = {"beta_loss": loss, "max_iter": 300}
    model, expected = ONMF(5, engine=engine, **options).fit(parts), ONMF(5, **options).fit(X)
    assert np.array_equal(np.asarray(model.labels_), expected.labels_)
    assert isinstance(model.cluster_centers_, np.ndarray)
    assert model.cluster_centers_ == pytest.approx(expected.cluster_centers_, rel=1e-9, abs=1e-12)
    assert np.array_equal(np.asarray(model.predict(parts)), expected.predict(X))
    assert np.asarray(model.predict_proba(parts)) == pytest.approx(expected.predict_proba(X), rel=1e-6, abs=1e-12)
    assert model.score(parts) == pytest.approx(expected.score(X), rel=1e-9)


@pytest.mark.parametrize("persisted", [True, False])
def test_dask_arrays_of_cupy_chunks(persisted):
    """They choose the GPU by themselves."""
    import cupy

    X = made(600, 60, density=0.3).toarray()
    chunks = pytest.importorskip("dask.array").from_array(X, chunks=(170, -1)).map_blocks(cupy.asarray)
    chunks = chunks.persist() if persisted else chunks
    for init in ("snpa", "++"):
        model, expected = (ONMF(5, init=init, random_state=0).fit(data) for data in (chunks, X))
        assert np.array_equal(np.asarray(model.labels_), expected.labels_)
        assert model.n_iter_ == expected.n_iter_
        assert np.array_equal(np.asarray(model.predict(chunks)), expected.predict(X))
    with pytest.raises(ValueError, match="in the memory of a GPU"):
        ONMF(5, engine=Dask(CpuBackend())).fit(chunks)


@pytest.mark.parametrize("kind", ["numpy", "cupy", "sparse"])
def test_two_dask_workers_on_one_card(kind):
    """Each worker is a process. With several cards each would have its own."""
    distributed = pytest.importorskip("distributed")
    from dask import delayed

    X = made(600, 60, density=0.3)
    expected = ONMF(5).fit(X)
    bounds = [(0, 170), (170, 400), (400, 600)]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        parts = [delayed(X[a:b] if kind == "sparse" else X[a:b].toarray()) for a, b in bounds]
        if kind != "numpy":
            parts = client.persist([delayed(on_card)(part) for part in parts])
        model = ONMF(5, engine=Dask(GpuBackend())).fit(parts)
        assert np.array_equal(np.asarray(model.labels_), expected.labels_)
        assert model.n_iter_ == expected.n_iter_
        assert model.init_rows_.tolist() == expected.init_rows_.tolist()


def on_card(X):
    """A part as a CuPy array or matrix."""
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    return csr_matrix(X) if hasattr(X, "indptr") else cupy.asarray(X)
