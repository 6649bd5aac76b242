"""Interrupts that are not lost, and that break nothing.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a finalizer (``__del__``, a weak reference's
callback) or in a callback of compiled code nobody can catch it: Python prints it and goes on, and a fit would run to
its end as if nobody had pressed Ctrl-C. Within :class:`heeded`, a handler of ours remembers what a signal raised, and
:func:`check`, which long loops call, raises it again if it did not get through.

The handler also holds an interrupt back while a module is imported, while numba loads or compiles a kernel, and in this
module itself: cut off in the middle, they would leave a state in which a later fit can fail or crash.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGTERM, signal.SIGINT)

DELICATE = ("importlib._bootstrap", "llvmlite.", "numba.")
"""Modules that are let finish what they do."""

_current: heeded | None = None
"""The outermost block in force."""


class heeded:
    """A block in which whatever the handlers of Ctrl-C and SIGTERM raise is raised, at its end at the latest.

    Only the main thread receives signals; elsewhere, and within another such block, this does nothing.
    """

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self.raised: BaseException | None = None

    def __enter__(self) -> None:
        global _current
        if _current is not None or threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    signal.signal(number, self._handle)
            _current = self
        except BaseException:  # a handler that was still there
            self._restore()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        global _current
        if _current is not self:
            return
        # In this order: until the last handler is back, an interrupt is held back, and nothing here is skipped.
        _current = None
        self._restore()
        if self.raised is not None and self.raised is not error:
            raise self.raised

    def _restore(self) -> None:
        try:
            for number in SIGNALS:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, self.before[number])
        except BaseException:
            for each, handler in self.before.items():
                signal.signal(each, handler)
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self.before[number](number, frame)
        except BaseException as error:
            self.raised = error
            if not _delicate(frame):
                raise


def _delicate(frame: FrameType | None) -> bool:
    """Whether what is going on must not be cut off."""
    here = True
    while frame is not None:  # at most as many as Python allows to be stacked
        module = frame.f_globals.get("__name__", "")
        if module == __name__:
            return here or frame.f_code in OURS
        if module.startswith(DELICATE):
            return True
        here, frame = False, frame.f_back
    return False


OURS = {function.__code__ for function in (heeded.__enter__, heeded.__exit__, heeded._restore)}
"""What is let finish also where it has called something else."""


def check() -> None:
    """Raise what a signal has raised within this block; in a thread of ours, end what it works on."""
    if _current is not None and _current.raised is not None:
        raise _current.raised if threading.current_thread() is threading.main_thread() else KeyboardInterrupt


def heeding(function: F) -> F:
    """Let a function run within :class:`heeded`."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with heeded():
            return function(*args, **options)

    return run  # type: ignore[return-value]


def all_or_nothing(method: F) -> F:
    """As :func:`heeding`, for a method that leaves the attributes of its object as they were if it fails."""

    @wraps(method)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        with heeded():
            before = dict(vars(self))
            try:
                return method(self, *args, **options)
            except BaseException:
                vars(self).update(before)
                for name in vars(self).keys() - before.keys():
                    delattr(self, name)
                raise

    return run  # type: ignore[return-value]
