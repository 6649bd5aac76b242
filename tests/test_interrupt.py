"""An interrupt ends a fit whenever it arrives, even if Python would swallow it."""

import itertools
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress

import numpy as np
import pytest

from onmf import ONMF, interrupt
from onmf.engine.cpu import CpuEngine

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

X = np.random.default_rng(0).poisson(2.0, size=(60, 7))


class Finalized:
    """Sends Ctrl-C from its finalizer, where Python swallows exceptions."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class Referenced:
    pass


def in_a_finalizer():
    Finalized()


def in_a_callback():
    thing = Referenced()
    keep = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert keep() is None


@pytest.mark.parametrize("press", [in_a_finalizer, in_a_callback])
@pytest.mark.parametrize("when", [1, 3, 5])
def test_a_swallowed_interrupt_ends_the_fit(press, when):
    passes = []

    def batches():
        passes.append(None)
        if len(passes) == when:
            press()
        return iter([X[:30], X[30:]])

    model = ONMF(3, tol=0, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches)
    assert not hasattr(model, "labels_"), "a fit that was interrupted leaves no result"
    assert len(passes) <= when + 2, "the fit ends soon, not when it would have ended anyway"
    assert model.fit(X).labels_.shape == (60,)


def test_an_interrupted_fit_leaves_the_estimator_as_it_was():
    model = ONMF(3, random_state=0).fit(X)
    before, centroids = dict(vars(model)), model.cluster_centers_.copy()

    def batches():
        yield np.ones((30, 9))
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        model.fit(batches)
    assert vars(model) == before
    assert model.predict(X).tolist() == model.labels_.tolist()
    assert np.array_equal(model.cluster_centers_, centroids)


def test_an_interrupted_batch_leaves_the_stream_as_it_was(monkeypatch):
    model, other = (ONMF(3, random_state=0).partial_fit(X[:30]) for _ in range(2))
    update = CpuEngine.update

    def interrupted(self, divergence, step, W):
        update(self, divergence, step, W)
        W[0] = 99.0
        raise KeyboardInterrupt

    monkeypatch.setattr(CpuEngine, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[30:])
    monkeypatch.undo()
    for each in (model, other):
        each.partial_fit(X[30:])
    assert np.array_equal(model.cluster_centers_, other.cluster_centers_)


@pytest.mark.parametrize("press", [in_a_finalizer, in_a_callback])
def test_an_interrupt_in_the_last_moment_is_raised(press):
    with pytest.raises(KeyboardInterrupt), interrupt.heeded():
        press()


@pytest.mark.parametrize("press", [in_a_finalizer, in_a_callback])
def test_a_command_does_not_end_well_after_a_lost_interrupt(press):
    @interrupt.heeding
    def command():
        press()
        raise SystemExit(0)

    with pytest.raises(KeyboardInterrupt):
        command()


def test_an_interrupt_that_gets_through_is_raised_once():
    with pytest.raises(KeyboardInterrupt), interrupt.heeded():
        signal.raise_signal(signal.SIGINT)
    interrupt.check()
    with interrupt.heeded():
        pass


def interrupted_at(number, files, action):
    """Send Ctrl-C before the n-th bytecode instruction in these files. → remaining count"""

    def trace(frame, event, argument):
        nonlocal number
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            number -= 1
            if number == 0:
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # call the handler as Python does, with the frame
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 needs one such frame when tracing begins
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        interrupted_at.left = number


def test_an_interrupt_at_any_bytecode_of_the_guard():
    """The interrupt is raised, the old handlers are restored, and no interrupt is left for the next block."""
    handlers = [signal.getsignal(number) for number in interrupt.SIGNALS]

    def guarded():
        with interrupt.heeded():
            interrupt.check()

    for number in itertools.count(1):
        with suppress(KeyboardInterrupt):
            interrupted_at(number, {interrupt.__file__}, guarded)
            assert interrupted_at.left > 0, f"swallowed at {number}"
        assert [signal.getsignal(number) for number in interrupt.SIGNALS] == handlers
        assert interrupt._current is None
        guarded()
        if interrupted_at.left > 0:
            break
    assert number > 50


def test_a_failure_and_an_interrupt_at_any_bytecode_of_the_roll_back():
    handlers = [signal.getsignal(number) for number in interrupt.SIGNALS]

    class Thing:
        def __init__(self):
            self.kept = 1

        @interrupt.all_or_nothing
        def fail(self):
            self.kept, self.new = 2, 3
            raise ValueError

    for number in itertools.count(1):
        thing = Thing()
        with pytest.raises((KeyboardInterrupt, ValueError)) as raised:
            interrupted_at(number, {interrupt.__file__}, thing.fail)
        assert vars(thing) == {"kept": 1}
        assert [signal.getsignal(number) for number in interrupt.SIGNALS] == handlers
        if interrupted_at.left > 0:
            break
        assert raised.type is KeyboardInterrupt, f"swallowed at {number}"
    assert number > 50


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in interrupt.SIGNALS]
    with interrupt.heeded(), interrupt.heeded():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in interrupt.SIGNALS] == before


def test_other_threads_leave_signals_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with interrupt.heeded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_signal_that_raises_nothing_stays_without_consequence():
    calls = []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(None))
    try:
        with interrupt.heeded():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [None]


LOADING = """
import signal, sys
import numpy as np
from onmf import ONMF

seen = []

def press(frame, event, argument):
    # At one of the first calls inside numba or of an import, whichever is asked for.
    if event == "call" and frame.f_globals.get("__name__", "").startswith(sys.argv[1]):
        seen.append(None)
        if len(seen) == int(sys.argv[2]):
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

X = np.random.default_rng(0).poisson(2.0, size=(60, 7))
sys.setprofile(press)
try:
    ONMF(3).fit(X)
    sys.setprofile(None)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
print(ONMF(3, refine="local-search", random_state=0).fit(X).labels_.shape)
"""


@pytest.mark.parametrize(("module", "number"), [("numba.", 1), ("numba.", 300), ("importlib._bootstrap", 200)])
def test_kernels_are_loaded_to_the_end(module, number):
    """If numba is interrupted while it loads a kernel, it crashes the process when it loads a later one."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING, module, str(number)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["interrupted", "(60,)"]
