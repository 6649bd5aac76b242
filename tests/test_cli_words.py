"""The words of the command line: its help, and what the first run says."""

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


def test_the_first_run_says_that_it_compiles(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said(*more):
        # A file that is not there ends the command before it compiles.
        line = [sys.executable, "-m", "onmf", "documents", tmp_path / "missing.txt", "-k", "2", *more]
        ran = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 2, ran.stderr
        return ran.stderr.count("compiles its kernels")

    assert [said("--quiet"), said()] == [0, 1]
    fit = "import numpy, onmf; onmf.ONMF(2).fit(numpy.eye(4))"
    subprocess.run([sys.executable, "-c", fit], env=environment, check=True)
    assert said() == 0
