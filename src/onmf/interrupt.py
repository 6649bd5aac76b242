"""Interrupts that are not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a finalizer (``__del__``, a weak reference's
callback) or in a callback of compiled code nobody can catch it: Python prints it and goes on, and a fit would run to
its end as if nobody had pressed Ctrl-C. :func:`heeded` remembers what a signal raised, and :func:`check`, which long
loops call, raises it again if it did not get through.

It also holds an interrupt back while a module is imported or numba loads or compiles a kernel: cut off in the middle,
they leave the process in a state in which a later fit can crash.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGINT, signal.SIGTERM)

DELICATE = ("importlib._bootstrap", "llvmlite.", "numba.")
"""Modules that are let finish what they do."""

_active = False
_raised: BaseException | None = None


@contextmanager
def heeded() -> Iterator[None]:
    """Within this block, whatever the handlers of Ctrl-C and SIGTERM raise is raised, at its end at the latest.

    Only the main thread receives signals; elsewhere, and within another such block, this does nothing.
    """
    global _active, _raised
    if _active or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def remember(number: int, frame: FrameType | None) -> None:
        global _raised
        handler = before[signal.Signals(number)]
        assert callable(handler)
        try:
            handler(number, frame)
        except BaseException as error:
            _raised = error
            if not _delicate(frame):
                raise

    _active, _raised = True, None
    replaced = [number for number in SIGNALS if callable(before[number])]
    try:
        for number in replaced:
            signal.signal(number, remember)
        try:
            yield
        except SystemExit:  # how a command ends, also when all went well
            check()
            raise
        check()
    finally:
        _active, _raised = False, None
        for number in replaced:
            signal.signal(number, before[number])


def _delicate(frame: FrameType | None) -> bool:
    """Whether what is going on must not be cut off."""
    while frame is not None:  # at most as many as Python allows to be stacked
        module = frame.f_globals.get("__name__", "")
        if module == __name__:
            return False
        if module.startswith(DELICATE):
            return True
        frame = frame.f_back
    return False


def heeding(function: F) -> F:
    """Let a function run within :func:`heeded`."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with heeded():
            return function(*args, **options)

    return run  # type: ignore[return-value]


def check() -> None:
    """Raise what a signal has raised since :func:`heeded` began; in a thread of ours, end what it works on."""
    if _raised is not None:
        raise _raised if threading.current_thread() is threading.main_thread() else KeyboardInterrupt
