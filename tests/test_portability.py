"""What other systems lack is taken away here, and everything must still work."""

import errno
import io
import os
import subprocess
import sys
import textwrap

import pytest

from onmf.io.isolate import Isolated, ReaderEnded

pytestmark = pytest.mark.long("systems that lack something")

AS_ON_WINDOWS = """
import os, signal, sys, warnings

warnings.filterwarnings("error", category=EncodingWarning, module=r"onmf\\b")
for module in ("fcntl", "resource"):
    sys.modules[module] = None
for name in ("O_NOFOLLOW", "O_NONBLOCK", "fork", "mkfifo", "sched_getaffinity"):
    vars(os).pop(name, None)
os.supports_dir_fd = set()  # which shutil reads
for name in ("SIGALRM", "SIGKILL", "alarm", "setitimer"):
    vars(signal).pop(name, None)
"""


def run(code, folder):
    """Run Python code in a folder, in a process where onmf must name the encoding of each text file."""
    return subprocess.run(
        [sys.executable, "-X", "utf8=0", "-X", "warn_default_encoding", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_documents_without_locks_limits_and_signals(tmp_path):
    """With names in other letters than ASCII, and twice, so that the second run replaces the first."""
    letters = tmp_path / "Briefe für Zoë"
    letters.mkdir()
    for number in range(8):
        about = ("Schiff Segel Hafenmöwe", "Brot Mehl Bäckerei")[number % 2]
        (letters / f"{number}é.txt").write_text(f"{about} " * (5 + number), encoding="utf-8")
    code = AS_ON_WINDOWS + textwrap.dedent("""
        sys.argv = ["onmf", "documents", "Briefe für Zoë", "-k", "2", "--quick", "--force", "--out", "Häufchen"]
        from onmf.io import files
        from onmf.cli import main

        assert not files.HAS_LOCKS
        files.exchange = lambda one, other: False
        main()
    """)
    for _ in range(2):
        done = run(code, tmp_path)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {letters.name, "Häufchen"}
    assert "bäckerei" in (tmp_path / "Häufchen" / "clusters.csv").read_text(encoding="utf-8")


def test_a_model_is_saved_twice_without_locks(tmp_path):
    code = AS_ON_WINDOWS + textwrap.dedent("""
        import numpy as np, onmf

        X = np.array([[5, 1, 0], [4, 0, 1], [0, 1, 7], [1, 0, 6]])
        for _ in range(2):
            onmf.ONMF(2).fit(X).save("model.onmf")
        print(onmf.load("model.onmf").predict(X).tolist())
    """)
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 1, 0, 0]\n"
    assert os.listdir(tmp_path) == ["model.onmf"]


def test_a_reader_that_has_ended_as_windows_reports_it(monkeypatch):
    class Pipe(io.BytesIO):
        def flush(self):
            raise OSError(errno.EINVAL, "Invalid argument")

    class Ended(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.stdin.close()
            self.stdin = Pipe()

    monkeypatch.setattr(subprocess, "Popen", Ended)
    with Isolated("scene.mat", memory=10_000_000, seconds=100) as read, pytest.raises(ReaderEnded, match=r"scene\.mat"):
        read(textwrap.dedent, "text")


def test_the_fixtures_do_not_need_hypothesis():
    done = run("import sys; sys.modules['hypothesis'] = None; import conftest", os.path.dirname(__file__))
    assert done.returncode == 0, done.stderr
