"""The words of the command line: its help, and what the first run says."""

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import command

COMMANDS = [
    (),
    ("documents",),
    ("image",),
    ("cells",),
    ("predict",),
    ("show",),
    ("rename",),
    ("fetch",),
    ("reproduce",),
    ("reproduce", "documents"),
    ("reproduce", "family"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_is_in_plain_words(words):
    ran = command(*words, "--help")
    assert ran.returncode == 0
    assert not re.search(r"<\w", ran.stdout), "types of Python"
    assert not re.search(r"\w\n +\w+\n", ran.stdout), "lines that break in the middle of a sentence"
    for line in ran.stdout.splitlines():
        if match := re.match(r"│ [* ]*(--[\w-]+)(.*)│", line):
            text = re.sub(r"^[ \w,|<>\[\]=.…-]*? {2,}(?=\S)", "", match[2]).strip()
            assert text, f"{match[1]} has no help"


def test_flags_are_flags():
    text = command("documents", "--help").stdout
    assert re.search(r"--force +Replace the files of an earlier run\.", text)
    assert re.search(r"--strip +headers +Leave out the headers", text)


@pytest.mark.long("commands in a process of their own")
def test_the_first_run_says_that_it_compiles(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said(*more):
        # A file that is not there ends the command before it compiles.
        line = [sys.executable, "-m", "onmf", "documents", tmp_path / "missing.txt", "-k", "2", *more]
        ran = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 2, ran.stderr
        return ran.stderr.count("compiles its kernels")

    assert [said("--quiet"), said()] == [0, 1]
    one_kernel = "import numpy; from onmf import kernels; kernels.total_if_whole(numpy.ones(1), 0, 1)"
    subprocess.run([sys.executable, "-c", one_kernel], env=environment, check=True)
    assert said() == 0


def test_attachments_are_named_and_can_be_kept(tmp_path):
    picture = f"{'abcdefgh' * 8}\n" * 3
    documents = [{"text": text} for text in ("red tea", f"green tea\n{picture}", "cow milk", "milk")]
    path = tmp_path / "letters.json"
    path.write_text(json.dumps(documents))
    dropped = "Encoded attachments dropped from 1 document: 2. keep_attachments=True (--keep-attachments) keeps them."
    for more in ([], ["--keep-attachments"]):
        ran = command("documents", path, "-k", 2, "--out", tmp_path / "out", "--force", "--no-report", *more)
        assert ran.returncode == 0, ran.stderr
        assert (dropped in ran.stdout) == (not more)
        predicted = command("predict", tmp_path / "out" / "model.onmf", path)
        assert (dropped in predicted.stderr) == (not more), "new documents are read as those of the model were"
