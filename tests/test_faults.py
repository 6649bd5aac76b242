"""Failures in a cluster of processes: a fit continues, or ends with an error that names the partition."""

import gc
import os
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from scipy.sparse import csr_array

from conftest import forking, needs_posix, until
from onmf import ONMF
from onmf.backend import CpuBackend
from onmf.data import Dask, PartError
from onmf.data.dask import InDask
from onmf.datasets import make_counts

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.long("faults of Dask's workers"),
    # Ignore warnings of cluster processes that shut down.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

PARTS, ROWS, WORDS = 8, 60, 50
FIT = {"n_clusters": 5, "init": "random", "random_state": 1, "tol": 0, "max_iter": 60}


def all_rows():
    return make_counts(PARTS * ROWS, WORDS, 5, overlap=0.9, random_state=0).X


def read(number):
    """Read a partition from a source that can be read again."""
    return all_rows()[number * ROWS : (number + 1) * ROWS]


def deadly(number, trap):
    """A partition that kills its worker once, if there is a trap file."""
    if number == 3:
        with suppress(FileNotFoundError):
            os.unlink(trap)
            os.kill(os.getpid(), signal.SIGKILL)
    return read(number)


def slow(number, begun):
    """A partition that reads slowly and signals when reading begins."""
    open(begun, "a", encoding="utf-8").close()
    time.sleep(0.5)
    return read(number)


def sluggish(number, trap):
    """A partition that once takes so long that the client asks in between how things are."""
    with suppress(FileNotFoundError):
        os.unlink(trap)
        time.sleep(2.5)
    return read(number)


def broken(number):
    if number == 3:
        raise OSError("the disk is gone")
    return read(number)


def too_much():
    """Allocate 2 GB and keep them until the process is killed."""
    held = np.ones(1 << 28)
    time.sleep(300)
    return held


def hungry(number):
    if number == 3:
        too_much()
    return read(number)


def growing(number, folder):
    """A partition that grows with each read after a fit has started."""
    if number == 3:
        times = len(os.listdir(folder))
        open(os.path.join(folder, str(times)), "x", encoding="utf-8").close()
        if times > 2:
            too_much()
    return read(number)


def lazily(reader, *args):
    like = csr_array((0, WORDS))
    return da.concatenate(
        [da.from_delayed(dask.delayed(reader, pure=False)(i, *args), (ROWS, WORDS), meta=like) for i in range(PARTS)]
    )


PROCESSES = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "2GB"}


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Workers that are forked from a process that has imported everything start in a fraction of the time."""
    forking()


@pytest.fixture
def cluster(request):
    """A cluster of two processes that a test may damage, and its client."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "10s", "distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(**PROCESSES | getattr(request, "param", {})) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield cluster, client


@pytest.fixture(scope="module")
def healthy():
    """The client of a cluster shared by all tests that do not damage it."""
    with (
        distributed.LocalCluster(**PROCESSES) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(healthy):
    with healthy.as_current(), dask.config.set(scheduler="dask.distributed"):
        yield healthy


def once_there(path, action):
    """Run an action in a thread as soon as a file exists."""

    def wait():
        until(path.exists)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_cluster_gives_the_bits_of_one_process(client):
    whole = ONMF(**FIT).fit(all_rows())
    X = lazily(read)
    for found in (ONMF(**FIT).fit(X), ONMF(**FIT).fit(X.persist())):
        assert np.array_equal(found.labels_.compute(), whole.labels_)
        assert np.array_equal(found.scales_.compute(), whole.scales_)
        assert np.array_equal(found.cluster_centers_, whole.cluster_centers_)
        assert found.n_iter_ == whole.n_iter_
    assert np.array_equal(found.predict(X).compute(), whole.labels_)


class Killing(Dask):
    """Kills a worker in the third iteration, before the pass or in the middle of it (with a trap file)."""

    def __init__(self, process, trap):
        super().__init__(CpuBackend(1))
        self.process, self.trap, self.killed_in = process, trap, []

    def open(self, source, divergence):
        return KillingData(self, source, divergence)


class KillingData(InDask):
    def step(self, templates, offsets=None):
        if self.iteration != 2:
            return super().step(templates, offsets)
        if self.engine.process is None:
            self.engine.trap.touch()
        else:
            os.kill(self.engine.process, signal.SIGKILL)
        step = super().step(templates, offsets)
        assert not self.engine.trap.exists(), "the worker was killed within the pass"
        self.engine.killed_in.append(self.iteration)
        return step


KINDS = {
    "read": lambda trap: lazily(deadly, str(trap)),
    "persisted": lambda _: lazily(read).persist(),
    "from_array": lambda _: da.from_array(all_rows().toarray(), chunks=(ROWS, -1)),
    "delayed": lambda _: [dask.delayed(read(i)) for i in range(PARTS)],
}


def is_gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@needs_posix
@pytest.mark.parametrize(
    ("kind", "when"),
    [("read", "within"), ("read", "before"), ("persisted", "before"), ("from_array", "before"), ("delayed", "before")],
)
def test_a_killed_worker_changes_nothing(cluster, kind, when, monkeypatch, tmp_path):
    _, client = cluster
    monkeypatch.setattr("onmf.data.dask.WORTH_SENDING", 4000)  # a block is larger
    whole = ONMF(**FIT).fit(all_rows())
    assert whole.n_iter_ > 4
    X = KINDS[kind](tmp_path / "trap")
    processes = list(client.run(os.getpid).values())
    engine = Killing(processes[0] if when == "before" else None, tmp_path / "trap")
    found = ONMF(**FIT, engine=engine).fit(X)
    assert engine.killed_in == [3]
    until(lambda: any(map(is_gone, processes)))
    assert np.array_equal(found.labels_.compute(), whole.labels_)
    assert np.array_equal(found.cluster_centers_, whole.cluster_centers_)
    assert found.n_iter_ == whole.n_iter_
    assert found.reconstruction_err_ == pytest.approx(whole.reconstruction_err_, rel=1e-12)


def test_a_partition_that_raises_is_named(client):
    with pytest.raises(PartError, match="In partition 3: OSError: the disk is gone"):
        ONMF(**FIT).fit(lazily(broken))


def test_a_partition_that_raises_is_named_in_one_process():
    with pytest.raises(PartError, match="In partition 3: OSError: the disk is gone"):
        ONMF(**FIT).fit(lazily(broken))


@pytest.mark.parametrize("cluster", [{"memory_limit": "900MB"}], indirect=True)
def test_a_partition_that_is_too_large_for_a_worker_is_named(cluster):
    with pytest.raises(PartError, match=r"partition (\d or )*3( or \d)*: .*memory"):
        ONMF(**FIT, engine=Dask(CpuBackend(1), patience=120)).fit(lazily(hungry))


@pytest.mark.parametrize("cluster", [{"memory_limit": "900MB"}], indirect=True)
def test_a_partition_that_becomes_too_large_is_named(cluster, tmp_path):
    with pytest.raises(PartError, match=r"In partition ([0-7] or )*3( or [0-7])*: every worker that took it died"):
        ONMF(**FIT | {"init": all_rows()[:5], "engine": Dask(CpuBackend(1), patience=120)}).fit(
            lazily(growing, str(tmp_path))
        )


@pytest.mark.parametrize("kind", ["from_array", "map_blocks", "delayed", "csr"])
def test_what_is_in_this_process_is_sent_once(client, kind):
    """Dask warns about each graph above the threshold, and warnings are errors in tests."""
    X = make_counts(8000, 100, 5, random_state=0).X
    weights = np.arange(8000) % 3 + 1.0
    whole = ONMF(**FIT).fit(X, sample_weight=weights)
    parts, given = {
        "from_array": (da.from_array(X.toarray(), chunks=(2000, -1)), weights),
        "map_blocks": (da.from_array(X.toarray(), chunks=(2000, -1)).map_blocks(csr_array), weights),
        "csr": (da.from_array(X, chunks=(2000, -1), asarray=False), weights),
        "delayed": ([dask.delayed(X[i : i + 4000].toarray()) for i in (0, 4000)], da.from_array(weights, chunks=4000)),
    }[kind]
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "60kB"}):
        found = ONMF(**FIT).fit(parts, sample_weight=given)
    assert np.array_equal(found.labels_.compute(), whole.labels_)
    assert found.n_iter_ == whole.n_iter_


def kept_here():
    from onmf.data import dask as dask_parts

    return len(dask_parts._caches)


@pytest.fixture
def rare_collections():
    """No garbage is collected, as in a process that mostly waits."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("rare_collections")
@pytest.mark.parametrize("late", [False, True])
def test_workers_keep_nothing_of_a_fit_that_is_over(client, late, tmp_path):
    if late:
        (tmp_path / "trap").touch()
    model = ONMF(**FIT | {"max_iter": 2, "tol": 1}).fit(lazily(sluggish, str(tmp_path / "trap")))
    until(lambda: set(client.run(kept_here).values()) == {0})
    assert len(model.labels_.compute()) == PARTS * ROWS


def test_a_cluster_that_goes_away_ends_the_fit(cluster, tmp_path):
    closing = once_there(tmp_path / "begun", cluster[0].close)
    with pytest.raises(RuntimeError, match="The Dask cluster went away"):
        ONMF(**FIT).fit(lazily(slow, str(tmp_path / "begun")))
    closing.join()


def test_workers_that_go_away_end_the_fit(cluster, tmp_path):
    leaving = once_there(tmp_path / "begun", lambda: cluster[0].scale(0))
    with pytest.raises(PartError, match="The Dask cluster has had no worker for 3 seconds"):
        ONMF(**FIT, engine=Dask(CpuBackend(1), patience=3)).fit(lazily(slow, str(tmp_path / "begun")))
    leaving.join()
