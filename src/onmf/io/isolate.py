"""Readers in a separate process: a damaged file can crash, block or fill that process only.

Some readers are compiled code that trusts its input: one changed byte in a file can crash the process. Such a reader is
a function in a small module that imports nothing of this package. The separate process, the worker, loads only that
module, so it starts fast. Both processes talk through pipes: requests and answers are JSON, and arrays follow as bytes.
There are no temporary files, and nothing in an answer is executed.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic
from typing import Any, Self

import numpy as np

LIBRARIES = 1 << 30  # bytes of address space for the libraries of a reader
MEMORY_FACTOR = 3  # memory that reading a file may take, as a multiple of the largest size of its content
SECONDS, BYTES_PER_SECOND = 120.0, 1e6  # time that reading may take: enough for a slow disk on a busy machine
AFTER = 60  # seconds beyond its limit after which a worker ends itself, in case its parent no longer can
NUMBERS = "buifc"  # kinds of dtypes that an answer may have

START = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""
"""Code of the worker: runs this file with the parent's import path."""

ARRAY = "\0array"
"""Name of the only member of the JSON object that stands for an array: its type, shape and order. Its bytes follow."""

ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(ValueError, TypeError, KeyError, IndexError, LookupError, OSError, EOFError, ImportError),
        *(AttributeError, ArithmeticError, NotImplementedError, RuntimeError, AssertionError, FileNotFoundError),
        MemoryError,
    )
}
"""Errors that an answer may name. The worker sends a name only, so it cannot make the parent call anything else."""


class ReaderEnded(ValueError):
    """The worker crashed or exceeded its limit of time or memory. The message names the file."""


class Isolated(AbstractContextManager["Isolated"]):
    """A worker process that calls functions, one at a time. It starts at the first call and ends with this object.

    ``name`` is the file, for messages. ``memory`` is what the worker may use beside its libraries, and what an answer
    may hold, in bytes; on Windows and macOS only the answer is limited. ``seconds`` is the time limit of a call.
    """

    def __init__(self, name: str, *, memory: int, seconds: float, environment: Mapping[str, str] | None = None) -> None:
        self.name, self.memory, self.seconds, self.environment = name, memory, seconds, dict(environment or {})
        self._reset()

    @classmethod
    def for_file(cls, path: Path, length: int | None = None, environment: Mapping[str, str] | None = None) -> Self:
        """A worker whose limits of memory and time follow from the size of a file (``length``, if it is a folder)."""
        from onmf.io.limits import most  # not at the top: the worker runs this module, and imports nothing of onmf

        length = path.stat().st_size if length is None else length
        seconds = SECONDS + length / BYTES_PER_SECOND
        return cls(str(path), memory=MEMORY_FACTOR * most(length), seconds=seconds, environment=environment)

    def _reset(self) -> None:
        """Start without a worker."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        options: dict[str, Any] = {key: vars(self)[key] for key in ("memory", "seconds", "environment")}
        return partial(Isolated, self.name, **options), ()

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
        """Call a function in the worker, with JSON values as arguments. ``seconds`` may shorten the time limit.

        The function is of a module that imports nothing of this package. It returns None, numbers, strings, arrays of
        numbers, or lists and dicts of these; tuples arrive as lists. Its own exceptions are raised as the nearest
        built-in ones, and :class:`ReaderEnded` if the worker crashed or exceeded its limit of time or memory.
        """
        if os.getpid() != self._owner:  # after a fork, the worker belongs to the parent
            self._reset()
        limit = self.seconds if seconds is None else min(seconds, self.seconds)
        with self._lock:
            process = self._start()
            deadline = monotonic() + limit
            timer = threading.Timer(limit, process.kill)
            timer.daemon = True
            timer.start()
            try:
                answer = self._ask(process, function, arguments)
            except (EOFError, ConnectionError):
                self._end()
                if monotonic() >= deadline:
                    raise ReaderEnded(
                        f"{self.name} was not read within {limit:.0f} s: it is damaged, or its disk is too "
                        "slow. Copy it to another disk, or save it again."
                    ) from None
                raise ReaderEnded(self._crash_message(process.returncode)) from None
            except BaseException:  # such as Ctrl-C: the worker's answer to this call must not reach the next
                self._end()
                raise
            finally:
                timer.cancel()
            if monotonic() >= deadline:  # the timer may have killed it just after its answer
                self._end()
        if "value" in answer:
            return answer["value"]
        kind, text = answer["error"]
        raise self._too_large() if kind == "MemoryError" else ERRORS.get(kind, ValueError)(text)

    def close(self) -> None:
        """End the worker. The next call starts another."""
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        """The worker, started if none is running."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            if not sys.executable or getattr(sys, "frozen", False):
                raise RuntimeError(
                    f"{self.name} must be read in a separate process, but this program has no Python to start one."
                )
            working_folder = ["", "."]
            with suppress(OSError):  # the working folder may have been removed
                working_folder.append(os.getcwd())
            # Import nothing from the working folder: it may come from the same stranger as the file.
            path = [entry for entry in sys.path if entry not in working_folder]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, json.dumps(path), __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Each BLAS thread would reserve address space, which counts as memory.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **self.environment},
            )
            self._end = weakref.finalize(self, _end, self._process)
            with suppress(ImportError, AttributeError, OSError):  # Linux: through a larger pipe, images pass faster
                import fcntl

                fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)  # type: ignore[arg-type]
            with suppress(BrokenPipeError):  # the first request reports it
                _send(self._process.stdin, {"memory": self.memory, "seconds": self.seconds})
        return self._process

    def _ask(self, process: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Send a request and receive the answer."""
        file = sys.modules[function.__module__].__file__
        _send(process.stdin, {"file": file, "function": function.__name__, "arguments": arguments})
        length = int.from_bytes(_read_into(process.stdout, bytearray(8)), "big")
        if length > self.memory:
            raise self._too_large()
        text = _read_into(process.stdout, bytearray(length))
        arrays: list[Any] = []

        def make_array(value: dict[str, Any]) -> Any:
            if ARRAY not in value:
                return value
            code, shape, order = value[ARRAY]
            dtype = np.dtype(code)
            size = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.kind not in NUMBERS or size + sum(array.nbytes for array in arrays) > self.memory:
                raise self._too_large()
            arrays.append(np.empty(shape, dtype=dtype))
            return arrays[-1].T if order == "F" else arrays[-1]

        answer: dict[str, Any] = json.loads(text, object_hook=make_array)
        for array in arrays:
            _read_into(process.stdout, array.reshape(-1).view(np.uint8).data)
        return answer

    def _too_large(self) -> ReaderEnded:
        return ReaderEnded(
            f"{self.name} takes more than {self.memory / 1e6:,.0f} MB to read, more than a file of its length should: "
            "it is damaged or malicious."
        )

    def _crash_message(self, code: int) -> str:
        cause = {-each: each.name for each in signal.Signals}.get(code, f"exit status {code}")
        if cause == "SIGKILL":
            return f"The system killed the reader of {self.name} ({cause}), probably for lack of memory: free some."
        return f"{self.name} is damaged: reading it crashed the reader ({cause}). Save it again, or get another copy."


def _end(process: Any) -> None:
    """Kill a worker and close its pipes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # unsent data no longer matter
            pipe.close()
    process.wait()


def _send(pipe: Any, request: dict[str, Any]) -> None:
    try:
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()
    except OSError as error:
        if error.errno == errno.EINVAL:  # how Windows says that the worker has ended
            raise BrokenPipeError from error
        raise


def _read_into(pipe: Any, buffer: Any) -> Any:
    """Fill a buffer from a pipe, and return it."""
    if pipe.readinto(buffer) < len(buffer):
        raise EOFError
    return buffer


def _limit(memory: int) -> None:
    """Limit the memory of this process, if the system can."""
    try:
        import resource
    except ImportError:
        return
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text(encoding="utf-8").split()[0]) if statm.exists() else 0
    current = pages * resource.getpagesize() or LIBRARIES
    for kind, limit in ((resource.RLIMIT_AS, current + LIBRARIES + memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        with suppress(ValueError, OSError):  # macOS refuses limits below the address space in use, which is large
            resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


@cache
def _module(file: str) -> Any:
    """Load a module from its file, without its package."""
    spec: Any = spec_from_file_location(Path(file).stem, file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answer(request: dict[str, Any]) -> tuple[str, list[Any]]:
    """Call the function. → the answer as JSON, and the arrays that follow it"""
    arrays: list[Any] = []

    def encode(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} is no part of an answer")
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        arrays.append(value.T if order == "F" else value)  # transposed, it needs no copy
        return {ARRAY: [value.dtype.str, arrays[-1].shape, order]}

    try:
        function = getattr(_module(request["file"]), request["function"])
        return json.dumps({"value": function(*request["arguments"])}, default=encode), arrays
    except Exception as error:
        kind = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ERRORS), "ValueError")
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        return json.dumps({"error": [kind, text]}), []


def _serve() -> None:
    """The worker's loop: answer requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to both processes; the parent decides
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    limits = json.loads(sys.stdin.buffer.readline())
    _limit(limits["memory"])
    set_alarm = getattr(signal, "alarm", lambda seconds: None)  # not on Windows
    for line in sys.stdin.buffer:
        set_alarm(int(limits["seconds"]) + AFTER)
        text, arrays = _answer(json.loads(line))
        out.write(len(text).to_bytes(8, "big") + text.encode())
        for array in arrays:
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        out.flush()
        set_alarm(0)


if __name__ == "__main__":
    _serve()
