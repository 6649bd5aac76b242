"""Readers in a separate process: whatever happens there, this process survives and reports it."""

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from conftest import until
from onmf.io.isolate import Isolated, ReaderEnded

FUNCTIONS = """
import ctypes, os, time
import numpy as np

def values():
    print("not an answer", flush=True)
    os.write(1, b"not an answer either")
    C = np.arange(24, dtype=">i4").reshape(2, 3, 4)
    return {"C": C, "F": np.asfortranarray(C), "odd": C[:, ::2], "empty": np.empty((0, 3)),
            "one": np.array(2, dtype=np.float32), "scalar": np.float32(0.5),
            "rest": [1, 2.5, None, True, "gr\\u00fcn", {"deep": [C > 3]}], "not a number": float("nan")}

def same(value):
    return value

def crash():
    ctypes.string_at(0)

def leave():
    os._exit(3)

def hang(path=None):
    if path:
        with open(path + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.replace(path + ".part", path)
    while True:
        time.sleep(1)

def take(size):
    return np.zeros(size, dtype=np.uint8)

def fill(size):
    return int(np.ones(size, dtype=np.uint8)[0])

def fail(kind):
    class Custom(LookupError):
        pass
    raise {"value": ValueError("bad value"), "key": KeyError("name"), "custom": Custom("a custom error"),
           "text": UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "base": Exception("plain")}[kind]

def process():
    return os.getpid()

def forge(kind, text):
    import json, sys
    answer = json.dumps({"error": [kind, text], "arrays": []}).encode()
    os.write(max(int(fd) for fd in os.listdir("/proc/self/fd") if is_pipe(fd)), len(answer).to_bytes(8, "big") + answer)

def is_pipe(fd):
    try:
        return int(fd) > 2 and os.readlink("/proc/self/fd/" + fd).startswith("pipe")
    except OSError:
        return False

def environment():
    return os.environ["MARK"]
"""


@pytest.fixture
def functions(tmp_path):
    """A standalone module, like those of the readers."""
    path = tmp_path / "functions_for_a_test.py"
    path.write_text(FUNCTIONS, "utf-8")
    spec = importlib.util.spec_from_file_location("functions_for_a_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["functions_for_a_test"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["functions_for_a_test"]


def reader(memory=200_000_000, seconds=100, **options):
    return Isolated("scene.mat", memory=memory, seconds=seconds, **options)


def is_gone(pid):
    """Whether a process has ended; it is a zombie until its parent waits for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_values_are_returned(functions):
    with reader() as read:
        values = read(functions.values)
        C = np.arange(24, dtype=">i4").reshape(2, 3, 4)
        for name in ("C", "F"):
            assert np.array_equal(values[name], C)
            assert values[name].dtype == C.dtype
        assert values["F"].flags.f_contiguous
        assert values["C"].flags.c_contiguous
        assert values["C"].flags.writeable
        assert np.array_equal(values["odd"], C[:, ::2])
        assert values["empty"].shape == (0, 3)
        assert (values["one"].shape, values["one"].dtype) == ((), np.float32)
        assert values["scalar"] == 0.5
        assert values["rest"][:5] == [1, 2.5, None, True, "grün"]
        assert np.array_equal(values["rest"][5]["deep"][0], C > 3)
        assert np.isnan(values["not a number"])
        path = "odd\udc80name"
        assert read(functions.same, [path, 7]) == [path, 7]


def test_errors_are_raised_as_builtin_types(functions):
    with reader() as read:
        for kind, error, text in (
            ("value", ValueError, "bad value"),
            ("key", KeyError, "name"),
            ("custom", LookupError, "a custom error"),
            ("text", ValueError, "can't decode"),
            ("base", ValueError, "plain"),
        ):
            with pytest.raises(error, match=text) as caught:
                read(functions.fail, kind)
            assert not isinstance(caught.value, ReaderEnded)


def test_a_crash_is_an_error_and_the_next_call_works(functions):
    with reader() as read:
        with pytest.raises(ReaderEnded, match=r"^scene\.mat is damaged: reading it crashed the reader \((SIG|exit)"):
            read(functions.crash)
        assert read(functions.same, 5) == 5
        with pytest.raises(ReaderEnded, match=r"crashed the reader \(exit status 3\)\. Save it again"):
            read(functions.leave)
        first = read(functions.process)
        assert read(functions.process) == first, "one process serves many calls"
        if hasattr(signal, "SIGKILL"):
            os.kill(first, signal.SIGKILL)
            until(lambda: is_gone(first))
            assert read(functions.process) != first


@pytest.mark.short("waits for a time limit")
def test_a_time_out_is_an_error(functions):
    with reader(seconds=2) as read, pytest.raises(ReaderEnded, match=r"scene\.mat was not read within 2 s"):
        read(functions.hang)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory")
def test_memory_is_limited(functions):
    with reader() as read:
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 200 MB to read"):
            read(functions.fill, 1 << 33)
        assert read(functions.fill, 1000) == 1


def test_the_size_of_an_answer_is_limited(functions):
    with reader(memory=1_000_000) as read:
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 1 MB to read"):
            read(functions.take, 1_000_001)
        assert len(read(functions.take, 1_000_000)) == 1_000_000
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 1 MB to read"):
            read(functions.same, "x" * 1_000_001)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the pipes of a process")
def test_an_answer_is_not_executed(functions, tmp_path):
    """An attacker who controls the worker can send any answer."""
    with reader() as read, pytest.raises(ValueError, match="hacked"):
        read(functions.forge, "exec", f"open({str(tmp_path / 'hacked')!r}, 'w')")
    assert not (tmp_path / "hacked").exists()


def test_threads_share_a_worker(functions):
    with reader() as read, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda value: read(functions.same, value), range(40))) == list(range(40))


def test_the_worker_ends_with_the_object(functions):
    read = reader(environment={"MARK": "here"})
    assert read(functions.environment) == "here"
    first = read(functions.process)
    copy = pickle.loads(pickle.dumps(read))
    assert copy(functions.environment) == "here"
    assert copy(functions.process) != first
    copy.close()
    del read
    until(lambda: is_gone(first))


def script(tmp_path, body):
    """A script that calls the functions at its top level, without ``if __name__ == "__main__"``."""
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import sys
            print("once", flush=True)
            sys.path.insert(0, {str(tmp_path)!r})
            import functions_for_a_test as functions
            from onmf.io.isolate import Isolated
            read = Isolated("scene.mat", memory=10**8, seconds=1000)
            """
        )
        + textwrap.dedent(body)
    )
    return [sys.executable, str(path)]


def test_a_script_without_a_main_guard(functions, tmp_path):
    done = subprocess.run(
        script(tmp_path, "print(read(functions.same, 7))"), capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["once", "7"], "")


def test_nothing_is_imported_from_the_working_folder(functions, tmp_path):
    """A stranger's folder may contain a numpy.py, which must not run when a file in that folder is read."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    for name in ("numpy", "json", "scipy", "select"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'hacked')!r}, 'w')")
    body = f"import os; os.chdir({str(folder)!r}); sys.path.insert(0, ''); print(read(functions.same, 7))"
    done = subprocess.run(script(tmp_path, body), capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout.split() == ["once", "7"], done.stderr
    assert not (tmp_path / "hacked").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_both_processes(functions, tmp_path):
    pid_file = tmp_path / "pid"
    command = script(tmp_path, "read(functions.hang, sys.argv[1])")
    parent = subprocess.Popen([*command, str(pid_file)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        until(pid_file.exists)
        child = int(pid_file.read_text())
        assert not is_gone(child)
        parent.send_signal(signal.SIGINT)
        _, stderr = parent.communicate(timeout=200)
        assert "KeyboardInterrupt" in stderr
        assert is_gone(child)
    finally:
        parent.kill()
        parent.communicate()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_an_idle_worker_ends_when_its_parent_is_killed(functions, tmp_path):
    body = "import time; print(read(functions.process), flush=True); time.sleep(1000)"
    parent = subprocess.Popen(script(tmp_path, body), stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "once\n"
        child = int(parent.stdout.readline())
        parent.kill()
        until(lambda: is_gone(child))
    finally:
        parent.kill()
        parent.communicate()
