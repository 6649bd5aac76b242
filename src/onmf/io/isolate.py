"""Readers in a separate process: a damaged file can crash, block or fill that process only.

Some readers are compiled code that trusts its input: one changed byte in a file can crash the process. Such a reader is
a function in a small module that imports nothing of this package. The separate process, the worker, loads only that
module, so it starts fast. Both processes talk through pipes: requests and answers are JSON, and arrays follow as bytes.
There are no temporary files, and nothing in an answer is executed.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO, Any

import numpy as np

LIBRARIES = 1 << 30
"""Bytes of address space for the libraries of a reader."""

MEMORY_FACTOR = 3
"""Memory that reading a file may take, as a multiple of the largest size of its content."""

SECONDS, BYTES_PER_SECOND = 120.0, 1e6
"""Time that reading a file may take: enough for a slow disk on a busy machine."""

AFTER = 60
"""Seconds beyond its limit after which a worker ends itself, in case its parent no longer can."""

START = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""
"""Code of the worker: runs this file with the parent's import path."""

NUMBERS = "buifc"
"""Kinds of dtypes that an answer may have."""

ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(ValueError, TypeError, KeyError, IndexError, LookupError, OSError, EOFError, ImportError),
        *(AttributeError, ArithmeticError, NotImplementedError, RuntimeError, AssertionError, FileNotFoundError),
    )
}
"""Errors that an answer may name. The worker sends a name only, so it cannot make the parent call anything else."""


class ReaderEnded(ValueError):
    """The worker crashed or exceeded its limit of time or memory. The message names the file."""


class Isolated:
    """A worker process that calls functions, one at a time. It starts at the first call and ends with this object.

    Parameters
    ----------
    name : str
        The file, for error messages.
    memory : int
        Bytes that the worker may use in addition to its libraries, and that an answer may hold. On systems without
        such a limit (Windows, macOS), only the answer is limited.
    seconds : float
        Time limit of a call.
    environment : mapping, optional
        Further environment variables for the worker.
    """

    def __init__(self, name: str, *, memory: int, seconds: float, environment: Mapping[str, str] | None = None) -> None:
        self.name, self.memory, self.seconds, self.environment = name, memory, seconds, dict(environment or {})
        self._reset()

    @classmethod
    def for_file(cls, path: Path, length: int | None = None, environment: Mapping[str, str] | None = None) -> Isolated:
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

    def __reduce__(self) -> tuple[Callable[..., Isolated], tuple[Any, ...]]:
        return _restore, (self.name, self.memory, self.seconds, self.environment)

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
        """Call a function in the worker.

        Parameters
        ----------
        function : function
            From a module that imports nothing of this package. It returns None, numbers, strings, arrays of numbers,
            or lists and dicts of these.
        *arguments
            JSON values.
        seconds : float, optional
            Time limit of this call, if it is shorter than that of others.

        Returns
        -------
        object
            The function's result, with lists in place of tuples.

        Raises
        ------
        ReaderEnded
            If the worker crashed or exceeded its limit of time or memory. An exception of the function itself is
            raised as the nearest built-in exception.
        """
        if os.getpid() != self._owner:  # after a fork, the worker belongs to the parent
            self._reset()
        limit = self.seconds if seconds is None else min(seconds, self.seconds)
        with self._lock:
            process = self._start()
            late = threading.Event()

            def time_out() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(limit, time_out)
            timer.daemon = True
            timer.start()
            try:
                answer = self._ask(process, function, arguments)
            except (EOFError, ConnectionError):
                self._end()
                if late.is_set():
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
            if late.is_set():
                self._end()
        if "error" in answer:
            kind, text = answer["error"]
            if kind == "MemoryError":
                raise ReaderEnded(self._memory_message())
            raise ERRORS.get(kind, ValueError)(text)
        return answer["value"]

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
            _widen(self._process.stdout)
            with suppress(BrokenPipeError):  # the first request reports it
                _send(self._process.stdin, {"memory": self.memory, "seconds": self.seconds})
        return self._process

    def _ask(
        self, process: subprocess.Popen[bytes], function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Send a request and receive the answer."""
        assert process.stdin is not None
        assert process.stdout is not None
        file = sys.modules[function.__module__].__file__
        _send(process.stdin, {"file": file, "function": function.__name__, "arguments": arguments})
        length = int.from_bytes(_read_into(process.stdout, bytearray(8)), "big")
        if length > self.memory:
            raise ReaderEnded(self._memory_message())
        answer = json.loads(_read_into(process.stdout, bytearray(length)))
        arrays = []
        left = self.memory
        for code, shape, order in answer["arrays"]:
            dtype = np.dtype(code)
            left -= int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.kind not in NUMBERS or left < 0:
                raise ReaderEnded(self._memory_message())
            array = np.empty(shape, dtype=dtype)
            _read_into(process.stdout, array.reshape(-1).view(np.uint8).data)
            arrays.append(array.T if order == "F" else array)
        return {"error": answer["error"]} if "error" in answer else {"value": _unpack(answer["value"], arrays)}

    def _memory_message(self) -> str:
        return (
            f"{self.name} takes more than {self.memory / 1e6:,.0f} MB to read, more than a file of its length should: "
            "it is damaged or malicious."
        )

    def _crash_message(self, code: int) -> str:
        try:
            cause = signal.Signals(-code).name
        except ValueError:
            cause = f"exit status {code}"
        if cause == "SIGKILL":
            return f"The system killed the reader of {self.name} ({cause}), probably for lack of memory: free some."
        return f"{self.name} is damaged: reading it crashed the reader ({cause}). Save it again, or get another copy."


def _restore(name: str, memory: int, seconds: float, environment: dict[str, str]) -> Isolated:
    """Rebuild from a pickle, without the worker."""
    return Isolated(name, memory=memory, seconds=seconds, environment=environment)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and close its pipes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):  # unsent data no longer matter
            pipe.close()
    process.wait()


def _widen(pipe: IO[bytes] | None) -> None:
    """Enlarge the buffer of a pipe, if the system can (Linux): images pass through it faster."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)  # type: ignore[arg-type]


def _send(pipe: IO[bytes] | None, request: dict[str, Any]) -> None:
    assert pipe is not None
    try:
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()
    except OSError as error:
        if error.errno == errno.EINVAL:  # how Windows says that the worker has ended
            raise BrokenPipeError from error
        raise


def _read_into(pipe: IO[bytes], buffer: Any) -> Any:
    """Fill a buffer from a pipe, and return it."""
    view, filled = memoryview(buffer), 0
    while filled < len(view):
        count = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        filled += count
    return buffer


def _pack(value: Any, arrays: list[Any]) -> Any:
    """Convert a value for JSON; its arrays are appended to ``arrays``."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": [[str(key), _pack(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_pack(part, arrays) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _unpack(value: Any, arrays: list[Any]) -> Any:
    if isinstance(value, dict):
        return arrays[value["array"]] if "array" in value else {k: _unpack(v, arrays) for k, v in value["dict"]}
    return [_unpack(part, arrays) for part in value] if isinstance(value, list) else value


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


def _module(file: str, modules: dict[str, Any]) -> Any:
    """Load a module from its file, without its package."""
    if file not in modules:
        spec = spec_from_file_location(Path(file).stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        modules[file] = module
    return modules[file]


def _answer(request: dict[str, Any], modules: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Call the function. → the answer, and the arrays in it"""
    arrays: list[Any] = []
    try:
        function = getattr(_module(request["file"], modules), request["function"])
        value = function(*request["arguments"])
        return {"value": _pack(value, arrays)}, arrays
    except MemoryError:
        return {"error": ["MemoryError", ""]}, []
    except Exception as error:
        kind = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ERRORS), "ValueError")
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        return {"error": [kind, text]}, []


def _serve() -> None:
    """The worker's loop: answer requests until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to both processes; the parent decides
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    limits = json.loads(sys.stdin.buffer.readline())
    _limit(limits["memory"])
    modules: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        if hasattr(signal, "alarm"):
            signal.alarm(int(limits["seconds"]) + AFTER)
        answer, arrays = _answer(json.loads(line), modules)
        # An array in Fortran order is sent transposed, which needs no copy.
        sent = [array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array for array in arrays]
        headers = [(a.dtype.str, s.shape, "C" if a is s else "F") for a, s in zip(arrays, sent, strict=True)]
        text = json.dumps({**answer, "arrays": headers}).encode()
        out.write(len(text).to_bytes(8, "big") + text)
        for array in sent:
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        out.flush()
        if hasattr(signal, "alarm"):
            signal.alarm(0)


if __name__ == "__main__":
    _serve()
