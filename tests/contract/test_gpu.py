"""The GPU backend: odd sizes, ties, streams, the same bits in every run, and where results are."""

import sys
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from conftest import assert_same_bits, make_block, needs_gpu, prepare
from onmf import ONMF, load
from onmf.backend import CentroidEntries, on_gpu, to_host
from onmf.backend.gpu.dense import Crew, crew_for
from onmf.backend.gpu.launch import largest_shared
from onmf.cells import Cells, cluster
from onmf.datasets import make_counts
from onmf.divergence import Bregman, NegativeBinomial, get_divergence

LOSSES = ("frobenius", "kullback-leibler")
FAMILY = (*LOSSES, "cosine", 1.5, 0.5, 3, "negative-binomial")

pytestmark = needs_gpu


def made(n, p, *, density=0.2, whole=True, dtype=np.float64, sparse=True):
    """Rows with many zeros, some of them empty."""
    rng = np.random.default_rng(0)
    X = random_array((n, p), density=density, rng=rng, format="csr")
    X.data = rng.poisson(3, len(X.data)).astype(dtype) + 1 if whole else rng.gamma(0.5, size=len(X.data)).astype(dtype)
    return csr_array(X) if sparse else X.toarray()


@pytest.mark.parametrize("k", [1, 2, 3, 6, 7, 31, 33, 62, 63, 129, 254, 255, 1100])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (70, 3), (301, 57), (64, 208)])
def test_odd_sizes(k, sparse, dtype, shape):
    check_passes(made(*shape, whole=False, dtype=dtype, sparse=sparse), k)


@pytest.mark.parametrize("entries", [0, 1])
@pytest.mark.parametrize("k", [1, 5, 33])
def test_nothing_and_one_entry(entries, k):
    X = csr_array(([2.0] * entries, ([3] * entries, [1] * entries)), shape=(9, 4))
    check_passes(X, k)


def check_passes(X, k):
    """Compare every pass over the rows with the reference backend."""
    rng = np.random.default_rng(1)
    B = rng.normal(size=(k, X.shape[1]))
    n = X.shape[0]
    kl = get_divergence(2)
    here, there = make_block("gpu", X, kl), make_block("reference", X, kl)
    gpu, reference = here.backend, there.backend
    T, U = prepare(here, B), prepare(there, B)
    scores = reference.scores(there.rows, U)
    labels, best = map(to_host, gpu.best_template(here.rows, T))
    assert np.array_equal(labels, scores.argmax(axis=1))
    assert best == pytest.approx(scores.max(axis=1), rel=1e-12, abs=1e-12)
    given = rng.integers(k, size=n).astype(np.int32)
    ours, theirs = gpu.own_and_next(here.rows, T, given), reference.own_and_next(there.rows, U, given)
    for one, other in zip(ours, theirs, strict=True):
        assert to_host(one) == pytest.approx(other, rel=1e-12, abs=1e-12)
    assert to_host(gpu.scores(here.rows, T)) == pytest.approx(scores, rel=1e-12, abs=1e-12)
    weights = rng.random(n)
    expected = there.sum_by_label(given, weights, k)
    assert here.sum_by_label(given, weights, k) == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert to_host(here.squares()) == pytest.approx(to_host(there.squares()), rel=1e-13)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 33, 500])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (70, 3), (301, 57)])
@pytest.mark.parametrize("scale", ["size", "fit"])
def test_odd_sizes_without_closed_forms(k, sparse, dtype, shape, scale):
    check_curved(made(*shape, whole=False, dtype=dtype, sparse=sparse), k, scale)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_few_rows_at_a_time_without_closed_forms(sparse, monkeypatch):
    for name in ("SCORES_AT_A_TIME", "ENTRIES_AT_A_TIME", "POINTS_AT_A_TIME", "SUMMED_LABELS"):
        monkeypatch.setattr(f"onmf.backend.gpu.curved.{name}", 300)
    check_curved(made(301, 57, whole=False, sparse=sparse), 7, "fit")


def check_curved(X, k, scale):
    """Compare the scores, scales and sums of the negative binomial with the CPU backend."""
    rng, (n, p) = np.random.default_rng(1), X.shape
    C, weights = rng.gamma(0.5, size=(k, p)), rng.random(n)
    C[:, 0] += 0.1
    here, there = (make_block(name, X, NegativeBinomial(0.7, scale), weights) for name in ("gpu", "cpu"))
    T, U = here.prepare(C), there.prepare(C)
    scores = there.scores(U)
    assert to_host(here.scores(T)) == pytest.approx(scores, rel=1e-11, abs=1e-11)
    assignment = there.assign(U)
    for found, expected in zip(here.assign(T), assignment, strict=True):
        assert to_host(found) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    labels = rng.integers(k, size=n).astype(np.int32)
    for found, expected in zip(here.own_and_next(T, labels), there.own_and_next(U, labels), strict=True):
        assert to_host(found) == pytest.approx(expected, rel=1e-11, abs=1e-11)
    entries = CentroidEntries.of(C)
    expected = there.evaluate(labels, assignment.scales, entries)
    found = to_host(here.evaluate(labels, assignment.scales, entries))
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-11 * np.abs(expected).max(initial=1))


def test_functions_in_cuda():
    """Without them, or with wrong ones, a φ of one's own is refused."""
    X = np.random.default_rng(0).gamma(2, size=(50, 4))
    functions = lambda x: x**1.5, lambda x: 1.5 * x**0.5, lambda x: 0.75 * x**-0.5
    right = "pow(x, 1.5)", "1.5 * sqrt(x)", "0.75 / sqrt(x)"
    for scale in ("none", "size"):
        make = partial(Bregman, *functions, scale=scale)
        ONMF(2, beta_loss=make(cuda=right), engine="gpu").fit(X)
        for cuda, why in (
            (None, "without its functions in CUDA"),
            ((*right[:2], "sqrt(x)"), "other numbers"),
            (("x", *right[1:]), "other numbers"),
            ((*right[:2], "square_root(x)"), "cannot take CuPy arrays"),
        ):
            with pytest.raises(ValueError, match=f"engine='gpu' cannot compute the bregman divergence.*{why}"):
                ONMF(2, beta_loss=make(cuda=cuda), engine="gpu").fit(X)


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine"])
@pytest.mark.parametrize(
    ("n", "p", "k", "dtype"),
    [
        (1, 16, 1, np.float32),
        (63, 4, 3, np.float64),
        (1000, 3, 5, np.float64),
        (7000, 198, 20, np.float32),
        (300, 25, 4, np.float32),  # just below 48 KB of shared memory, without what the kernel declares itself
        (65, 48, 33, np.float32),
        (7000, 100, 8, np.float32),
        (700, 100, 48, np.float64),
        (70000, 200, 20, np.float32),
        (70000, 198, 64, np.float32),  # from here on, labels and sums are found in two reads
        (7000, 198, 64, np.float64),
        (3000, 500, 50, np.float32),
        (1200000, 8, 49, np.float32),
        (15, 300, 64, np.float64),
    ],
)
def test_array_read_once(loss, n, p, k, dtype):
    check_step_at_once(n, p, k, loss, dtype)


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine"])
@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1.0, 1e25, 1e60])
@pytest.mark.parametrize("alike", [1e-2, 1e-6, 1e-13])
def test_array_read_once_where_the_screen_is_blind(loss, scale, alike):
    """Templates that the screen cannot distinguish, some of them equal, and numbers that it cannot represent."""
    rng = np.random.default_rng(4)
    dtype = np.float64 if scale in (1e-200, 1e60) else np.float32
    X = rng.random((500, 40)) if loss == "kullback-leibler" else rng.normal(size=(500, 40))
    X[::50] = 0.0
    X = (scale * X).astype(dtype)
    C = 1 + alike * rng.random((12, 40))
    C[[5, 7]] = C[[3, 1]]
    divergence = get_divergence(loss)
    block, B = make_block("gpu", X, divergence), divergence.templates(C)
    run = block.backend.start_run(block)
    assert run.step_at_once(prepare(block, B)) is not None
    labels, scales = map(to_host, run.collect())
    exact = X.astype(np.longdouble) @ B.T.astype(np.longdouble)
    chosen = exact[np.arange(len(X)), labels]
    assert (chosen >= exact.max(axis=1) - 1e-13 * np.abs(X).sum(axis=1)).all()
    assert not np.isin(labels, (5, 7)).any(), "of equal templates the lowest wins"
    assert (labels[::50] == 0).all()
    step = run.step(prepare(block, B))
    weights = divergence.weight(scales, {name: to_host(term) for name, term in block.terms.items()})
    expected = make_block("reference", X, divergence).sum_by_label(labels, weights, len(C))
    assert to_host(step.sums) == pytest.approx(expected, rel=1e-11, abs=1e-12 * np.abs(expected).max())


def test_array_read_once_without_what_newer_cards_have(monkeypatch):
    """On GPUs before Hopper, threads copy rows into shared memory."""
    macros = Crew.macros.func
    monkeypatch.setattr(Crew, "macros", property(lambda crew: macros(crew) | {"HOPPER": 0}))
    check_step_at_once(70000, 16, 20, "frobenius", np.float32)
    check_step_at_once(65, 48, 9, "kullback-leibler", np.float64)


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine"])
def test_most_rows_in_one_cluster(loss):
    """Two reads are then faster than one."""
    rng = np.random.default_rng(5)
    C = rng.random((20, 200)) ** 4 + 0.1
    X = rng.poisson(C[np.where(rng.random(9000) < 0.9, 7, rng.integers(0, 20, 9000))]).astype(np.float32)
    run = check_steps(X, C, loss)
    crew = crew_for(200, 4, 20, largest_shared())
    assert crew is None or run.lopsided(crew, 20)


def check_step_at_once(n, p, k, loss, dtype):
    """Compare a step that scores and sums in one kernel or two with the reference backend."""
    rng = np.random.default_rng(3)
    check_steps(rng.poisson(0.7, size=(n, p)).astype(dtype), rng.random((k, p)) + 0.1, loss)


def check_steps(X, C, loss):
    """Compare the third step of a run with the reference backend. Returns the run."""
    rng = np.random.default_rng(4)
    for weights in (rng.random(len(X)), None):
        divergence = get_divergence(loss)
        here, there = make_block("gpu", X, divergence, weights), make_block("reference", X, divergence, weights)
        ours, theirs = here.backend.start_run(here), there.backend.start_run(there)
        assert ours.step_at_once(here.prepare(C)) is not None
        for _ in range(3):
            one, other = ours.step_from(here.backend.to_device(C)), theirs.step_from(C)
        assert np.array_equal(to_host(ours.collect()[0]), theirs.collect()[0])
        names = ["sums", "mass", "counts", "scale_sums", "scale_squares", "overlap", "moved"]
        for name in names if divergence.fixed_scales else [*names, "loss"]:
            assert to_host(getattr(one, name)) == pytest.approx(getattr(other, name), rel=1e-11, abs=1e-11), name
    return ours


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
def test_templates_that_hardly_differ(kind):
    """The 16-bit screen must leave templates that it cannot distinguish to float64, including ties."""
    rng = np.random.default_rng(2)
    X = made(400, 60).toarray()
    b = rng.normal(size=60)
    B = np.array([b + 10.0**-e * rng.normal(size=60) for e in range(2, 14)] + [b, b] + [rng.normal(size=60)])
    order = rng.permutation(len(B))
    rows = kind(X)
    block = make_block("gpu", rows, get_divergence(2))
    labels = to_host(block.backend.best_template(block.rows, prepare(block, B[order]))[0])
    exact = (X.astype(np.longdouble) @ B[order].T.astype(np.longdouble)).astype(np.longdouble)
    chosen = exact[np.arange(len(X)), labels]
    assert (chosen >= exact.max(axis=1) - 1e-12 * np.abs(exact).max()).all()
    twins = np.sort(np.flatnonzero(np.isin(order, (12, 13))))
    assert not (labels == twins[1]).any(), "of equal templates the lowest wins"


@pytest.mark.parametrize("kind", [csr_array, np.asarray])
def test_infinite_templates(kind):
    X = np.array([[1.0, 0, 2], [0, 0, 3], [0, 4, 0], [0, 0, 0]])
    B = np.array([[-np.inf, -1, -1], [-1, -np.inf, -2], [-1, -np.inf, -3], [-5, -np.inf, -9]])
    for templates in (B, B[1:]):
        here, there = (make_block(name, kind(X), get_divergence(2)) for name in ("gpu", "reference"))
        labels, best = here.backend.best_template(here.rows, prepare(here, templates))
        expected = there.backend.best_template(there.rows, prepare(there, templates))
        assert labels.tolist() == expected[0].tolist()
        assert best.tolist() == expected[1].tolist()


@pytest.mark.parametrize(("n", "k", "init"), [(3000, 9, "snpa"), (20_000, 60, "random")])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("loss", FAMILY)
@pytest.mark.filterwarnings("ignore")  # too few iterations to converge
def test_same_bits_in_every_run(loss, sparse, whole, n, k, init):
    X = made(n, 80, whole=whole, sparse=sparse)
    options = {"beta_loss": loss, "init": init, "random_state": 0, "max_iter": 15, "tol": 0}
    assert_same_bits(*(ONMF(k, engine="gpu", **options).fit(X) for _ in range(2)))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("loss", FAMILY)
def test_labels_of_the_cpu_engine(loss, sparse):
    X = made(2000, 90, density=0.3, sparse=sparse)
    models = [ONMF(7, beta_loss=loss, engine=engine, max_iter=300).fit(X) for engine in ("cpu", "gpu")]
    assert np.array_equal(models[0].labels_, models[1].labels_)
    assert models[0].n_iter_ == models[1].n_iter_
    assert models[1].scales_ == pytest.approx(models[0].scales_, rel=1e-9)
    assert models[1].cluster_centers_ == pytest.approx(models[0].cluster_centers_, rel=1e-9, abs=1e-12)
    assert models[1].margins_ == pytest.approx(models[0].margins_, rel=1e-6, abs=1e-9)
    assert models[1].reconstruction_err_ == pytest.approx(models[0].reconstruction_err_, rel=1e-10)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("loss", FAMILY)
def test_cupy_in_cupy_out(counts, loss, sparse, tmp_path):
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    host = counts[0].astype(np.float64)
    X = csr_matrix(csr_array(host)) if sparse else cupy.asarray(host)
    model, expected = ONMF(3, beta_loss=loss).fit(X), ONMF(3, beta_loss=loss).fit(host)
    assert model.engine_ == "gpu"
    for name in ("labels_", "scales_", "cluster_centers_", "margins_"):
        assert on_gpu(getattr(model, name)), name
    assert np.array_equal(model.labels_.get(), expected.labels_)
    assert on_gpu(model.predict(X))
    assert model.predict(X).tolist() == expected.predict(host).tolist() == model.predict(host).tolist()
    assert not on_gpu(model.predict(host))
    assert model.transform(X).toarray().get() == pytest.approx(expected.transform(host).toarray(), rel=1e-9)
    assert model.predict_proba(X).get() == pytest.approx(expected.predict_proba(host), rel=1e-6, abs=1e-12)
    assert model.score(X) == pytest.approx(expected.score(host), rel=1e-9)
    assert model.top_features(3) == [pytest.approx(top, rel=1e-6) for top in expected.top_features(3)]
    assert model.inverse_transform(model.transform(X)).get() == pytest.approx(
        np.asarray(expected.inverse_transform(expected.transform(host).toarray())), rel=1e-9, abs=1e-12
    )
    for here, there in zip(model.assign(X), expected.assign(host), strict=True):
        assert on_gpu(here)
        assert here.get() == pytest.approx(there, rel=1e-9, abs=1e-12)
    model.save(tmp_path / "model.onmf")
    assert load(tmp_path / "model.onmf").predict(host).tolist() == expected.labels_.tolist()
    moved = model.to_cpu()
    for name in ("labels_", "scales_", "cluster_centers_", "margins_"):
        assert isinstance(getattr(moved, name), np.ndarray), name
    assert moved.predict(host).tolist() == expected.labels_.tolist()
    assert isinstance(moved.clustering_.centroids, np.ndarray)
    assert on_gpu(model.labels_)


def test_a_step_in_vain_leaves_the_results_alone():
    """When the loop ends, one more step is already running. Its memory must not be reused before that step is done."""
    import cupy

    rng = cupy.random.default_rng(0)
    parts = rng.random((4, 100), dtype=cupy.float32) ** 4
    X = parts[rng.integers(4, size=2_000_000)] + 0.01 * rng.random((2_000_000, 100), dtype=cupy.float32)
    for loss in LOSSES:
        model = ONMF(4, beta_loss=loss, init="++", random_state=0).fit(X)
        assert model.stop_reason_ == "converged"
        norms = cupy.sqrt(cupy.bincount(model.labels_, weights=model.scales_**2, minlength=4))
        assert norms.get() == pytest.approx(np.ones(4), rel=1e-9)


def test_cupy_data_are_checked_and_never_changed():
    import cupy
    from cupyx.scipy.sparse import coo_matrix

    X = cupy.ones((6, 3))
    X[2, 1] = cupy.nan
    with pytest.raises(ValueError, match=r"X\[2, 1\] = nan"):
        ONMF(2).fit(X)
    X[2, 1] = -1
    with pytest.raises(ValueError, match=r"X\[2, 1\] = -1"):
        ONMF(2).fit(X)
    with pytest.raises(ValueError, match="in the memory of a GPU"):
        ONMF(2, engine="cpu").fit(X)
    with pytest.raises(ValueError, match="2D"):
        ONMF(2).fit(X[0])
    doubled = coo_matrix(
        (cupy.ones(5), (cupy.array([0, 1, 1, 1, 2]), cupy.array([0, 1, 1, 2, 0]))), shape=(3, 3)
    ).tocsr()
    data = doubled.data.copy()
    assert ONMF(2).fit(doubled).labels_.tolist() == ONMF(2).fit(doubled.get()).labels_.tolist()
    assert np.array_equal(doubled.data.get(), data.get())


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
@pytest.mark.parametrize("index", [-1, 4, 10**9])
def test_cupy_data_whose_indices_lead_outside(format, index):
    from cupyx.scipy.sparse import csr_matrix

    X = csr_matrix(csr_array(np.eye(4))).asformat(format)
    if format == "coo":
        X.col[2] = index
    else:
        X.indices[2] = index
    fitted = ONMF(2).fit(np.eye(4))
    for door in (ONMF(2).fit, fitted.predict):
        with pytest.raises(ValueError, match=f"X is not a valid {format.upper()} matrix: .*{index}"):
            door(X)


@pytest.mark.parametrize("seed", range(20))
def test_ties_are_decided_as_in_the_fit(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(30, 3)).astype(float)
    X[:, 0] += 1
    model = ONMF(4, beta_loss="cosine", engine="gpu", init="random", random_state=seed).fit(X)
    assert np.array_equal(model.predict(X), model.labels_)


def test_empty_clusters_are_reseeded():
    X = np.array([[12.0, 1, 0], [8, 1, 0], [0, 1, 9], [0, 2, 8], [1, 9, 1], [1, 8, 1]])
    init = np.array([[1.0, 1, 1], [1, 1, 1], [1, 1, 1]])
    cpu, gpu = (ONMF(3, init=init, engine=engine).fit(X) for engine in ("cpu", "gpu"))
    assert np.array_equal(cpu.labels_, gpu.labels_)
    assert len(np.unique(gpu.labels_)) == 3


def test_step_leaves_its_results_on_the_card():
    X = made(100, 20)
    block = make_block("gpu", X, get_divergence(1))
    C = block.backend.to_device(block.dense(np.arange(5)) + 0.5)
    step = block.backend.start_run(block).step_from(C)
    assert on_gpu(step.sums)
    assert float(to_host(step.counts).sum()) == 100
    assert "cupy" in sys.modules


@pytest.mark.parametrize("loss", FAMILY)
def test_batches_that_come_one_by_one(loss):
    import cupy

    X = made(600, 60, density=0.3).toarray()
    w = np.arange(600) % 3 + 1.0
    names = {} if get_divergence(loss).curved else {i: i for i in range(0, 600, 200)}
    models = ONMF(5, beta_loss=loss), ONMF(5, beta_loss=loss, engine="gpu"), ONMF(5, beta_loss=loss)
    for model, data in zip(models, (X, X, cupy.asarray(X)), strict=True):
        for _ in range(2):
            for i in range(0, 600, 200):
                model.partial_fit(data[i : i + 200], batch=names.get(i), sample_weight=w[i : i + 200])
        assert np.array_equal(to_host(model.labels_), models[0].labels_)
        assert to_host(model.cluster_centers_) == pytest.approx(models[0].cluster_centers_, rel=1e-9, abs=1e-12)
    assert not on_gpu(models[1].cluster_centers_)
    assert on_gpu(models[2].cluster_centers_)
    assert on_gpu(models[2].labels_)


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_are_taken_from_the_card_one_by_one(sparse):
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    X = made(50, 20)
    index = np.array([3, 49, 3, 0])
    block = make_block("gpu", csr_matrix(X) if sparse else cupy.asarray(X.toarray()), get_divergence(1))
    assert np.array_equal(block.dense(index), X.toarray()[index])
    assert "on_host" not in vars(block), "the other rows stayed there"


@pytest.mark.parametrize("beta_loss", ["kullback-leibler", "frobenius"])
def test_cells(beta_loss):
    X = make_counts(400, 120, 4, length=60, overlap=0.5, random_state=2).X
    cells = Cells(X, [f"CELL{i}" for i in range(400)], [f"GENE{j}" for j in range(120)])
    cpu, gpu = (cluster(cells, 4, beta_loss=beta_loss, engine=engine) for engine in ("cpu", "gpu"))
    assert gpu.view == cpu.view
    assert np.array_equal(gpu.labels, cpu.labels)
    assert gpu.confidence == pytest.approx(cpu.confidence, abs=1e-6)
    assert np.array_equal(gpu.runners_up, cpu.runners_up)
