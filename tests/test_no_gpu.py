"""The GPU backend without a GPU: error messages, no import, and the computations that need no GPU."""

import gc
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf import ONMF
from onmf.backend import on_gpu, to_host
from onmf.backend.gpu import rows as placed
from onmf.backend.gpu.dense import SUMMED_LABELS, Crew, crew_for, rows_at_once, shared_by_sums
from onmf.backend.gpu.rows import BUFFERS, StreamedRows, bytes_needed, exact_float_type
from onmf.data import get_engine


def test_without_cupy_a_sentence_says_what_to_install(counts, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=r"engine='gpu' needs CuPy .*: pip install 'onmf\[gpu\]'"):
        ONMF(3, engine="gpu").fit(counts[0])


@pytest.mark.short("needs a process that has imported nothing")
def test_a_fit_on_the_cpu_does_not_import_cupy():
    code = """
import sys
import numpy as np
from onmf import ONMF
model = ONMF(2).fit(np.eye(5) + 1)
model.predict(np.eye(5) + 1), model.transform(np.eye(5) + 1), model.to_cpu()
sys.exit("cupy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_auto_takes_the_cpu_for_arrays_of_the_host(counts):
    assert get_engine("auto", counts[0]).name == "cpu"
    assert not on_gpu(counts[0])
    assert not on_gpu(csr_array(counts[0]))
    assert to_host(counts[0]) is counts[0]


def test_to_cpu_is_a_copy(counts):
    model = ONMF(3).fit(counts[0])
    moved = model.to_cpu()
    assert moved is not model
    assert np.array_equal(moved.predict(counts[0]), model.labels_)
    assert moved.get_params() == model.get_params()
    with pytest.raises(ValueError, match="not fitted"):
        ONMF(3).to_cpu()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1, 2**24]), np.float32),
        (np.array([1, 2**24 + 1]), np.float64),
        (np.array([-(2**24) - 1]), np.float64),
        (np.array([255], dtype=np.uint8), np.float32),
        (np.array([1.0, 3.0, 0.5]), np.float32),
        (np.array([0.1]), np.float64),
        (np.array([1e300]), np.float64),
        (np.array([0.1], dtype=np.float32), np.float32),
        (np.array([]), np.float32),
    ],
)
def test_entries_keep_their_value(values, expected):
    assert exact_float_type(values) == expected


def test_memory_that_rows_need(counts):
    sparse = csr_array(counts[0])
    assert bytes_needed(sparse) >= 16 * sparse.nnz
    assert bytes_needed(counts[0]) >= 4 * counts[0].size


@pytest.mark.parametrize("k", [1, 3, 20, 33, 48, 49])
@pytest.mark.parametrize("p", [2, 4, 100, 200, 256, 4000])
@pytest.mark.parametrize("shared", [166_912, 232_448], ids=["A100", "H100"])
def test_who_does_what_on_a_gpu(k, p, shared):
    """Every label has a warp that sums it, and a block keeps the limits of threads, registers and memory."""
    crew = crew_for(p, 4, k, shared)
    if crew is None:
        assert k > 48 or p % 4 or p * k >= 4000
        return
    assert crew.duties >= k
    assert 8 * crew.tiles >= k
    assert crew.asked_for(4) < crew.shared(4) <= shared
    assert crew.threads <= 1024
    assert crew.places >= 3
    assert crew.pitch // 4 <= crew.threads, "each thread has four features of a template"
    assert crew.duties <= 64, "as many as two sets of 32 lanes hold"


class OnCard(np.ndarray):
    """Memory of the host that stands for that of a card."""

    def set(self, values, stream):
        self[:] = values


class Queue:
    """Stands for a stream or an event of a card whose work is done at once."""

    def __init__(self, **options): ...

    def wait_event(self, event): ...

    def record(self, stream=None): ...

    def synchronize(self): ...


@pytest.fixture
def card(monkeypatch):
    """Stands for CuPy where rows are streamed."""
    locked = set()
    runtime = SimpleNamespace(
        hostRegister=lambda address, size, flags: locked.add(address),
        hostUnregister=locked.remove,
        CUDARuntimeError=RuntimeError,
    )
    cuda = SimpleNamespace(
        runtime=runtime, Stream=Queue, Event=Queue, get_current_stream=Queue, Device=lambda: nullcontext()
    )
    card = SimpleNamespace(
        cuda=cuda,
        locked=locked,
        empty=lambda *size: np.empty(*size).view(OnCard),
        ascontiguousarray=np.ascontiguousarray,
    )
    monkeypatch.setattr(placed, "cupy", card)
    yield card
    gc.collect()
    assert not locked


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("width", [4, 132, 200, 256])
def test_sums_fit_into_small_shared_memory(size, width):
    for most in (99 * 1024, 163 * 1024, 227 * 1024):  # RTX 30, A100, H100
        at_once = rows_at_once(width, size, SUMMED_LABELS, most - 1024)
        assert shared_by_sums(width, size, at_once, SUMMED_LABELS) <= most - 1024


def test_the_share_of_a_large_cluster():
    crew = Crew(scorers=4, adders=11, labels=2, tiles=3, places=3, features=200)
    assert crew.duties == 22
    assert crew.heaviest(np.ones(20)) == pytest.approx(0.05)
    assert crew.heaviest(np.array([0.6] + [0.4 / 19] * 19)) == pytest.approx(0.3), "two duties share it"
    assert crew.heaviest(np.zeros(20)) == 0


@pytest.mark.parametrize("sparse", [True, False])
def test_a_pass_over_streamed_rows_during_another(card, sparse):
    """Each has its own buffers, so neither overwrites the rows of the other."""
    X = np.arange(30 * 8).reshape(30, 8) % 7
    streamed = StreamedRows(csr_array(X) if sparse else X, 20)
    assert len(streamed.cuts) > 2 * BUFFERS

    def entries(rows):
        return csr_array((rows.data, rows.indices, rows.indptr), rows.shape).toarray() if sparse else rows.X

    for start, stop, rows in streamed:
        assert np.array_equal(np.vstack([entries(inner) for _, _, inner in streamed]), X)
        assert np.array_equal(entries(rows), X[start:stop])


def test_copies_end_before_pages_are_unlocked(card):
    streamed = StreamedRows(np.ones((30, 8)), 20)
    locked = []
    streamed._stream.synchronize = lambda: locked.append(len(card.locked))
    assert len(card.locked) == 1
    del streamed
    gc.collect()
    assert locked == [1]
    assert not card.locked


def test_garbage_is_collected_while_pages_are_locked(card):
    """The collector may release pages in the thread that locks others, which must not wait for itself."""
    one, other = np.ones(3), np.ones(4)
    first = placed.PageLocks([one])

    def register(address, size, flags):
        first.release()
        card.locked.add(address)

    card.cuda.runtime.hostRegister = register
    second = placed.PageLocks([other])
    assert card.locked == {other.ctypes.data}
    second.release()
