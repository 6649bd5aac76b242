"""An interrupt ends a fit wherever it arrives, even where Python would swallow it."""

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
from onmf.backend import update_centroids

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

X = np.random.default_rng(0).poisson(2.0, size=(60, 7))


class Finalized:
    """Presses Ctrl-C in its finalizer, from which no exception escapes."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class Referenced:
    pass


def in_a_finalizer():
    Finalized()


def in_a_callback():
    referent = Referenced()
    reference = weakref.ref(referent, lambda _: signal.raise_signal(signal.SIGINT))
    del referent
    assert reference() is None


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
    assert not hasattr(model, "labels_"), "an interrupted fit leaves no result"
    assert len(passes) <= when + 2, "the fit ends soon, not at its usual end"
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

    def interrupted(divergence, step, W, threads):
        update_centroids(divergence, step, W, threads)
        W[0] = 99.0
        raise KeyboardInterrupt

    monkeypatch.setattr("onmf.fit.stream.update_centroids", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[30:])
    monkeypatch.undo()
    for estimator in (model, other):
        estimator.partial_fit(X[30:])
    assert np.array_equal(model.cluster_centers_, other.cluster_centers_)


@pytest.mark.parametrize("press", [in_a_finalizer, in_a_callback])
def test_an_interrupt_at_the_end_of_the_block_is_raised(press):
    with pytest.raises(KeyboardInterrupt), interrupt.heeded():
        press()


@pytest.mark.parametrize("press", [in_a_finalizer, in_a_callback])
def test_a_command_does_not_succeed_after_a_swallowed_interrupt(press):
    @interrupt.heeding
    def command():
        press()
        raise SystemExit(0)

    with pytest.raises(KeyboardInterrupt):
        command()


def test_an_interrupt_that_was_raised_is_not_raised_again():
    with pytest.raises(KeyboardInterrupt), interrupt.heeded():
        signal.raise_signal(signal.SIGINT)
    interrupt.check()
    with interrupt.heeded():
        pass


def interrupted_at(number, files, action):
    """Press Ctrl-C before the bytecode of that number in these files.

    Sets ``interrupted_at.left``, which is positive if the action ended before that bytecode.
    """

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


def test_an_interrupt_at_any_bytecode_of_the_block():
    """The interrupt is raised, the old handlers are restored, and the next block starts clean."""
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


def test_an_interrupt_at_any_bytecode_of_a_failing_method():
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


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in interrupt.SIGNALS]
    with interrupt.heeded(), interrupt.heeded():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in interrupt.SIGNALS] == before


def test_other_threads_do_not_change_the_handlers():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with interrupt.heeded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_handler_that_raises_nothing_has_no_effect():
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

calls = []

def press(frame, event, argument):
    # At the given call in the given module.
    if event == "call" and frame.f_globals.get("__name__", "").startswith(sys.argv[1]):
        calls.append(None)
        if len(calls) == int(sys.argv[2]):
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


@pytest.mark.long("Ctrl-C at every step of an import")
@pytest.mark.parametrize(("module", "number"), [("numba.", 1), ("numba.", 300), ("importlib._bootstrap", 200)])
def test_an_interrupt_does_not_break_the_loading_of_kernels(module, number):
    """If numba is interrupted while it loads a kernel, it crashes at a later one."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING, module, str(number)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["interrupted", "(60,)"]
