"""Interrupts that are neither lost nor harmful.

Python raises KeyboardInterrupt wherever the main thread happens to be. An exception in a finalizer (``__del__``, a weak
reference's callback) or in a callback of compiled code cannot be caught: Python prints it and continues, so a fit would
ignore Ctrl-C. Within :class:`heeded`, our signal handler records the exception. Long loops call :func:`check`, which
raises it again if it was lost.

The handler also delays an interrupt while a module is imported, while numba loads or compiles a kernel, and within this
module. An interrupt there would leave a state in which a later fit can fail or crash.
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

DELICATE = ("importlib._bootstrap", "llvmlite.", "numba.")  # Prefixes of the modules in which an interrupt is delayed
_current: heeded | None = None  # The active block; the outermost one if they are nested


class heeded:
    """A block in which no interrupt is lost: what the handlers of Ctrl-C and SIGTERM raise is raised by its end.

    Only the main thread receives signals. In other threads, and within another such block, this does nothing.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.raised: BaseException | None = None

    def __enter__(self) -> None:
        global _current
        if _current is not None or threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self.handlers[number] = handler
                    signal.signal(number, self._handle)
            _current = self
        except BaseException:  # raised by a handler that was not yet replaced
            self._restore()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        global _current
        if _current is not self:
            return
        # In this order: interrupts are delayed until the last handler is restored, so no line here is skipped.
        _current = None
        self._restore()
        if self.raised is not None and self.raised is not error:
            raise self.raised

    def _restore(self) -> None:
        try:
            for number in SIGNALS:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, self.handlers[number])
        except BaseException:
            for each, handler in self.handlers.items():
                signal.signal(each, handler)
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        try:
            self.handlers[number](number, frame)
        except BaseException as error:
            self.raised = error
            if not _delicate(frame):
                raise


def _delicate(frame: FrameType | None) -> bool:
    """Whether an interrupt in this frame must be delayed."""
    innermost = True
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == __name__:
            return innermost or frame.f_code in GUARDS
        if module.startswith(DELICATE):
            return True
        innermost, frame = False, frame.f_back
    return False


GUARDS = {function.__code__ for function in (heeded.__enter__, heeded.__exit__, heeded._restore)}
"""Code of this module in which an interrupt is delayed even if it has called another function."""


def check() -> None:
    """Raise the exception that a signal has raised within this block. In a worker thread, raise KeyboardInterrupt."""
    if _current is not None and _current.raised is not None:
        raise _current.raised if threading.current_thread() is threading.main_thread() else KeyboardInterrupt


def heeding(function: F) -> F:
    """Run a function within :class:`heeded`."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with heeded():
            return function(*args, **options)

    return run  # type: ignore[return-value]


def all_or_nothing(method: F) -> F:
    """Like :func:`heeding`, for a method: if it fails, the attributes of its object are restored."""

    @heeding
    @wraps(method)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **options)
        except BaseException:
            self.__dict__ = before
            raise

    return run  # type: ignore[return-value]
