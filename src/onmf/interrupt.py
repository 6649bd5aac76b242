"""Interrupts that are not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a finalizer (``__del__``, a weak reference's
callback) or in a callback of compiled code nobody can catch it: Python prints it and goes on, and a fit would run to
its end as if nobody had pressed Ctrl-C. :func:`heeded` remembers what a signal raised, and :func:`check`, which long
loops call, raises it again if it did not get through.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGINT, signal.SIGTERM)

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

    def remember(number: int, frame: Any) -> None:
        global _raised
        handler = before[signal.Signals(number)]
        assert callable(handler)
        try:
            handler(number, frame)
        except BaseException as error:
            _raised = error
            raise

    _active, _raised = True, None
    replaced = [number for number in SIGNALS if callable(before[number])]
    try:
        for number in replaced:
            signal.signal(number, remember)
        yield
        check()
    finally:
        _active, _raised = False, None
        for number in replaced:
            signal.signal(number, before[number])


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
