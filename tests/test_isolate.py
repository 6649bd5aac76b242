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
from onmf.isolate import Isolated, ReaderEnded

FUNCTIONS = """
import ctypes, os, time
import numpy as np

def values():
    print("this is no answer", flush=True)
    os.write(1, b"nor is this")
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
    class Own(LookupError):
        pass
    raise {"value": ValueError("no good"), "key": KeyError("name"), "own": Own("of its own"),
           "text": UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "base": Exception("plain")}[kind]

def process():
    return os.getpid()

def pretend(kind, text):
    import json, sys
    answer = json.dumps({"error": [kind, text], "arrays": []}).encode()
    os.write(max(int(fd) for fd in os.listdir("/proc/self/fd") if is_pipe(fd)), len(answer).to_bytes(8, "big") + answer)

def is_pipe(fd):
    try:
        return int(fd) > 2 and os.readlink("/proc/self/fd/" + fd).startswith("pipe")
    except OSError:
        return False

def limits():
    return os.environ["MARK"]
"""


@pytest.fixture
def functions(tmp_path):
    """A module with reader functions, in a file of its own."""
    path = tmp_path / "functions_of_a_test.py"
    path.write_text(FUNCTIONS, "utf-8")
    spec = importlib.util.spec_from_file_location("functions_of_a_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["functions_of_a_test"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["functions_of_a_test"]


def reader(memory=200_000_000, seconds=100, **options):
    return Isolated("scene.mat", memory=memory, seconds=seconds, **options)


def is_gone(pid):
    """Return whether a process has ended. A zombie (ended, but not waited for) counts as ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_what_comes_back(functions):
    with reader() as read:
        got = read(functions.values)
        C = np.arange(24, dtype=">i4").reshape(2, 3, 4)
        for name in ("C", "F"):
            assert np.array_equal(got[name], C)
            assert got[name].dtype == C.dtype
        assert got["F"].flags.f_contiguous
        assert got["C"].flags.c_contiguous
        assert got["C"].flags.writeable
        assert np.array_equal(got["odd"], C[:, ::2])
        assert got["empty"].shape == (0, 3)
        assert (got["one"].shape, got["one"].dtype) == ((), np.float32)
        assert got["scalar"] == 0.5
        assert got["rest"][:5] == [1, 2.5, None, True, "grün"]
        assert np.array_equal(got["rest"][5]["deep"][0], C > 3)
        assert np.isnan(got["not a number"])
        path = "odd\udc80name"
        assert read(functions.same, [path, 7]) == [path, 7]


def test_errors_come_back_as_such(functions):
    with reader() as read:
        for kind, error, text in (
            ("value", ValueError, "no good"),
            ("key", KeyError, "name"),
            ("own", LookupError, "of its own"),
            ("text", ValueError, "can't decode"),
            ("base", ValueError, "plain"),
        ):
            with pytest.raises(error, match=text) as caught:
                read(functions.fail, kind)
            assert not isinstance(caught.value, ReaderEnded)


def test_a_crash_is_a_sentence_and_the_next_call_works(functions):
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


def test_a_hang_is_a_sentence(functions):
    with reader(seconds=2) as read, pytest.raises(ReaderEnded, match=r"scene\.mat was not read within 2 s"):
        read(functions.hang)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_memory_is_limited(functions):
    with reader() as read:
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 200 MB to read"):
            read(functions.fill, 1 << 33)
        assert read(functions.fill, 1000) == 1


def test_an_answer_is_limited(functions):
    with reader(memory=1_000_000) as read:
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 1 MB to read"):
            read(functions.take, 1_000_001)
        assert len(read(functions.take, 1_000_000)) == 1_000_000
        with pytest.raises(ReaderEnded, match=r"scene\.mat takes more than 1 MB to read"):
            read(functions.same, "x" * 1_000_001)


@pytest.mark.skipif(sys.platform != "linux", reason="the pipes of a process are listed by Linux")
def test_what_comes_back_is_not_executed(functions, tmp_path):
    """An attacker who controls the reader process can send any answer."""
    with reader() as read, pytest.raises(ValueError, match="hacked"):
        read(functions.pretend, "exec", f"open({str(tmp_path / 'hacked')!r}, 'w')")
    assert not (tmp_path / "hacked").exists()


def test_threads_share_it(functions):
    with reader() as read, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda value: read(functions.same, value), range(40))) == list(range(40))


def test_the_process_ends_with_the_object(functions):
    read = reader(environment={"MARK": "here"})
    assert read(functions.limits) == "here"
    first = read(functions.process)
    again = pickle.loads(pickle.dumps(read))
    assert again(functions.limits) == "here"
    assert again(functions.process) != first
    again.close()
    del read
    until(lambda: is_gone(first))


def script(tmp_path, body):
    """A script that calls the functions at its top level, without a __main__ guard."""
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import sys
            print("once", flush=True)
            sys.path.insert(0, {str(tmp_path)!r})
            import functions_of_a_test as functions
            from onmf.isolate import Isolated
            read = Isolated("scene.mat", memory=10**8, seconds=1000)
            """
        )
        + textwrap.dedent(body)
    )
    return [sys.executable, str(path)]


def test_a_script_without_a_guard(functions, tmp_path):
    done = subprocess.run(
        script(tmp_path, "print(read(functions.same, 7))"), capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["once", "7"], "")


def test_no_module_of_the_folder_one_is_in(functions, tmp_path):
    """An untrusted folder may contain a numpy.py, which must not run when a file in that folder is read."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    for name in ("numpy", "json", "scipy", "select"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'hacked')!r}, 'w')")
    body = f"import os; os.chdir({str(folder)!r}); sys.path.insert(0, ''); print(read(functions.same, 7))"
    done = subprocess.run(script(tmp_path, body), capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout.split() == ["once", "7"], done.stderr
    assert not (tmp_path / "hacked").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_ctrl_c_ends_both(functions, tmp_path):
    sign = tmp_path / "pid"
    command = script(tmp_path, "read(functions.hang, sys.argv[1])")
    parent = subprocess.Popen([*command, str(sign)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        until(sign.exists)
        child = int(sign.read_text())
        assert not is_gone(child)
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=200)
        assert "KeyboardInterrupt" in said
        assert is_gone(child)
    finally:
        parent.kill()
        parent.communicate()


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_an_idle_process_ends_when_its_parent_is_killed(functions, tmp_path):
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
