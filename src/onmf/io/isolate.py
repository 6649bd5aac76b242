"""Readers in a process of their own: a damaged file may crash, hang or fill that process, and no other.

Some readers are compiled code that trusts its input: one changed byte of a file ends the process. Such a reader is a
function of a small module that imports nothing of this package. The process that runs it knows that module alone, so
that it starts fast. It talks through pipes: questions and answers are JSON, arrays follow as bytes. There are no
temporary files, and nothing that comes back is executed.
"""

from __future__ import annotations

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
"""Bytes of address space that the libraries of a reader may take."""

AFTER = 60
"""Seconds beyond its limit after which a process ends itself, in case that nobody is left to end it."""

START = """
import json, runpy, sys
sys.path[:] = json.loads(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="__main__")
"""
"""What the process runs: this file, with the modules of this process within reach."""

NUMBERS = "buifc"
"""Kinds of arrays that may come back."""

ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        *(ValueError, TypeError, KeyError, IndexError, LookupError, OSError, EOFError, ImportError),
        *(AttributeError, ArithmeticError, NotImplementedError, RuntimeError, AssertionError, FileNotFoundError),
    )
}
"""Errors that may come back. The other side only names one: it cannot have anything else called here."""


class ReaderEnded(ValueError):
    """The process crashed, or took more time or memory than it may: a sentence that names the file."""


class Isolated:
    """A process that calls functions, one at a time; it starts with the first call and ends with this object.

    Parameters
    ----------
    name : str
        What is read: the file that errors name.
    memory : int
        Bytes that the process may take, besides its libraries, and that an answer may hold. Where the system knows no
        such limit (Windows, macOS), only the answer is limited.
    seconds : float
        How long a call may take.
    environment : mapping, optional
        Environment variables of the process, besides this one's.
    """

    def __init__(self, name: str, *, memory: int, seconds: float, environment: Mapping[str, str] | None = None) -> None:
        self.name, self.memory, self.seconds, self.environment = name, memory, seconds, dict(environment or {})
        self._forget()

    def _forget(self) -> None:
        """Know of no process."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Callable[..., Isolated], tuple[Any, ...]]:
        return _again, (self.name, self.memory, self.seconds, self.environment)

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function over there.

        Parameters
        ----------
        function : function
            Of a module that imports nothing of this package. It returns None, numbers, strings, arrays of numbers, and
            lists and dicts of these.
        *arguments
            What JSON can hold.

        Returns
        -------
        object
            What the function returned; tuples are lists.

        Raises
        ------
        ReaderEnded
            If the process crashed, or needed more time or memory than it may. What the function itself raises comes
            back as the nearest built-in exception.
        """
        if os.getpid() != self._owner:  # after a fork, the process belongs to the parent
            self._forget()
        with self._lock:
            process = self._running()
            late = threading.Event()

            def end() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(self.seconds, end)
            timer.daemon = True
            timer.start()
            try:
                answer = self._ask(process, function, arguments)
            except (EOFError, ConnectionError):
                self._end()
                if late.is_set():
                    raise ReaderEnded(
                        f"{self.name} was not read within {self.seconds:.0f} s: it is damaged, or on a disk that is "
                        "too slow. Copy it to another place, or save it again."
                    ) from None
                raise ReaderEnded(self._death(process.returncode)) from None
            except BaseException:  # Ctrl-C, above all: the process is in the middle of something
                self._end()
                raise
            finally:
                timer.cancel()
            if late.is_set():
                self._end()
        if "error" in answer:
            kind, text = answer["error"]
            if kind == "MemoryError":
                raise ReaderEnded(self._too_much())
            raise ERRORS.get(kind, ValueError)(text)
        return answer["value"]

    def close(self) -> None:
        """End the process. Another call starts another."""
        self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if there is none."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            if not sys.executable or getattr(sys, "frozen", False):
                raise RuntimeError(
                    f"{self.name} is read in a process of its own, and this program has no Python to start one with."
                )
            here = ["", "."]
            with suppress(OSError):  # a folder that is gone
                here.append(os.getcwd())
            # Not the folder that the user happens to be in: it may be the stranger's.
            path = [entry for entry in sys.path if entry not in here]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, json.dumps(path), __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Threads of BLAS would reserve address space that counts as memory.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **self.environment},
            )
            self._end = weakref.finalize(self, _end, self._process)
            _widen(self._process.stdout)
            with suppress(BrokenPipeError):  # the question that follows will find out
                _say(self._process.stdin, {"memory": self.memory, "seconds": self.seconds})
        return self._process

    def _ask(
        self, process: subprocess.Popen[bytes], function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Send a question and receive the answer."""
        assert process.stdin is not None
        assert process.stdout is not None
        home = sys.modules[function.__module__].__file__
        _say(process.stdin, {"file": home, "function": function.__name__, "arguments": arguments})
        length = int.from_bytes(_exactly(process.stdout, bytearray(8)), "big")
        if length > self.memory:
            raise ReaderEnded(self._too_much())
        answer = json.loads(_exactly(process.stdout, bytearray(length)))
        arrays = []
        left = self.memory
        for code, shape, order in answer["arrays"]:
            dtype = np.dtype(code)
            left -= int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.kind not in NUMBERS or left < 0:
                raise ReaderEnded(self._too_much())
            array = np.empty(shape, dtype=dtype)
            _exactly(process.stdout, array.reshape(-1).view(np.uint8).data)
            arrays.append(array.T if order == "F" else array)
        return {"error": answer["error"]} if "error" in answer else {"value": _unpacked(answer["value"], arrays)}

    def _too_much(self) -> str:
        return (
            f"{self.name} takes more than {self.memory / 1e6:,.0f} MB to read, more than a file of its length should: "
            "it is damaged, or made to fill the memory."
        )

    def _death(self, code: int) -> str:
        try:
            how = signal.Signals(-code).name
        except ValueError:
            how = f"exit status {code}"
        if how == "SIGKILL":
            return f"Reading {self.name} was ended by the system ({how}), as it does when memory runs out: free some."
        return f"{self.name} is damaged: reading it crashed the reader ({how}). Save it again, or get another copy."


def _again(name: str, memory: int, seconds: float, environment: dict[str, str]) -> Isolated:
    """The same from a pickle, without the process."""
    return Isolated(name, memory=memory, seconds=seconds, environment=environment)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and let go of its pipes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(OSError):  # what was not sent is lost anyway
            pipe.close()
    process.wait()


def _widen(pipe: IO[bytes] | None) -> None:
    """Make a pipe hold more, where the system can (Linux): images pass through it faster."""
    with suppress(ImportError, AttributeError, OSError):  # else it is as large as it is
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)  # type: ignore[arg-type]


def _say(pipe: IO[bytes] | None, question: dict[str, Any]) -> None:
    assert pipe is not None
    pipe.write(json.dumps(question).encode() + b"\n")
    pipe.flush()


def _exactly(pipe: IO[bytes], buffer: Any) -> Any:
    """Fill a buffer from a pipe."""
    view, filled = memoryview(buffer), 0
    while filled < len(view):
        got = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        filled += got
    return buffer


def _packed(value: Any, arrays: list[Any]) -> Any:
    """A value for JSON; arrays are put aside."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": [[str(key), _packed(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_packed(part, arrays) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any, arrays: list[Any]) -> Any:
    if isinstance(value, dict):
        return arrays[value["array"]] if "array" in value else {k: _unpacked(v, arrays) for k, v in value["dict"]}
    return [_unpacked(part, arrays) for part in value] if isinstance(value, list) else value


def _limit(memory: int) -> None:
    """Limit the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else LIBRARIES
    for kind, most in ((resource.RLIMIT_AS, now + LIBRARIES + memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        with suppress(ValueError, OSError):  # macOS refuses limits below what is mapped, which is a lot
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _module(file: str, modules: dict[str, Any]) -> Any:
    """A module by its file, without its package."""
    if file not in modules:
        spec = spec_from_file_location(Path(file).stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        modules[file] = module
    return modules[file]


def _answer(question: dict[str, Any], modules: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Call the function; → the answer, and the arrays in it."""
    arrays: list[Any] = []
    try:
        function = getattr(_module(question["file"], modules), question["function"])
        value = function(*question["arguments"])
        return {"value": _packed(value, arrays)}, arrays
    except MemoryError:
        return {"error": ["MemoryError", ""]}, []
    except Exception as error:
        kind = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in ERRORS), "ValueError")
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        return {"error": [kind, text]}, []


def _serve() -> None:
    """What the other process does: answer questions until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both; the parent decides
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    start = json.loads(sys.stdin.buffer.readline())
    _limit(start["memory"])
    modules: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        if hasattr(signal, "alarm"):
            signal.alarm(int(start["seconds"]) + AFTER)
        answer, arrays = _answer(json.loads(line), modules)
        turned = [array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array for array in arrays]
        kinds = [(a.dtype.str, t.shape, "C" if a is t else "F") for a, t in zip(arrays, turned, strict=True)]
        text = json.dumps({**answer, "arrays": kinds}).encode()
        out.write(len(text).to_bytes(8, "big") + text)
        for array in turned:
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        out.flush()
        if hasattr(signal, "alarm"):
            signal.alarm(0)


if __name__ == "__main__":
    _serve()
