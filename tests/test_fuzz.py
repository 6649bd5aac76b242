"""The fuzzer: a short run of fixed cases, and planted bugs that it must find."""

import hashlib
import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fuzz.core import Core
from fuzz.mutate import damage, inside_zip

from onmf import ONMF

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.long("the fuzzer"),
    pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer needs the process limits of Linux"),
]


def python(*arguments):
    """Run Python in the project's folder, without the paper's data, so that cases are the same everywhere."""
    environment = {name: value for name, value in os.environ.items() if name != "ONMF_DATA"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.timeout(3600)  # a hang of one case is the fuzzer's to find; on a busy machine all of them take long
@pytest.mark.parametrize(("target", "cases"), [("core", "--fits=1000"), ("files", "--files=500")])
def test_fixed_cases_have_no_failures(target, cases, tmp_path):
    out = tmp_path / "statistics.json"
    run = python("-m", "fuzz", target, cases, "--seed=0", "--workers=2", f"--out={out}")
    assert run.returncode == 0, run.stdout + run.stderr
    (statistics,) = json.loads(out.read_text())["targets"]
    assert statistics["cases"] == int(cases.partition("=")[2])
    assert not any(statistics["counts"].values())


PLANTED = """
import ctypes, json, os, time
import numpy as np
from fuzz.board import note
from fuzz.oracle import not_finite, wrong_error
from fuzz.runner import campaign

class Planted:
    name, seconds, memory = "planted", 3.0, 1 << 29

    def make(self, seed, number):
        return number

    def run(self, case):
        note(f"case {case}")
        if case == 3:
            ctypes.string_at(0)
        if case == 5:
            while True:
                pass
        if case == 8:
            os._exit(0)
        if case == 9:
            return list(not_finite("scales_", np.array([1.0, np.nan]), "frobenius"))
        try:
            if case == 7:
                np.empty(1 << 28)
            if case == 11:
                [][0]
            if case == 13:
                raise ValueError("")
        except Exception as error:
            return [wrong_error(error)]
        if case == 15:
            raise SystemExit(0)
        return []

shown = []
batches = iter([range(0, 10), range(10, 20)])
tally = campaign(Planted(), 0, batches, workers=2, show=lambda number, failure: shown.append([number, *failure]))
print(json.dumps({"cases": tally.cases, "shown": sorted(shown)}))
"""


def test_planted_bugs_are_found():
    """A crash, a hang and an exit end their process; the cases after them still run."""
    run = python("-c", PLANTED)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    failures = {number: (kind, what, lines) for number, kind, what, _, lines in result["shown"]}
    assert result["cases"] == 20
    assert {number: kind for number, (kind, *_) in failures.items()} == {
        3: "crash",
        5: "hang",
        7: "memory",
        8: "crash",
        9: "nan",
        11: "error",
        13: "error",
        15: "error",
    }
    assert "SIGSEGV" in failures[3][1]
    assert failures[3][2] == "case 3"  # the note of the case when it died
    assert "exit code 0" in failures[8][1]


BUGGY = """
import signal, sys
import numpy as np
import onmf.estimator
from fuzz.__main__ import main

fit = onmf.estimator.ONMF.fit

def buggy(self, X, y=None, sample_weight=None):
    fit(self, X, sample_weight=sample_weight)
    if self.n_clusters == 1:
        self.scales_ = np.full_like(self.scales_, np.nan)
    elif self.n_clusters == 2:
        signal.raise_signal(signal.SIGSEGV)
    elif self.n_clusters == 4:
        self.labels_ = self.labels_ + 4
    elif self.n_clusters == 5:
        raise IndexError("list index out of range")
    elif self.n_clusters == 8:
        np.log(np.zeros(1))
    return self

onmf.estimator.ONMF.fit = buggy
sys.argv = ["fuzz", "core", "--fits=60", "--seed=0", "--workers=1", f"--out={sys.argv[1]}"]
sys.exit(main())
"""


def test_planted_bugs_in_the_package_are_found_and_reduced(tmp_path):
    out = tmp_path / "statistics.json"
    run = python("-c", BUGGY, str(out))
    assert run.returncode == 1, run.stderr
    (statistics,) = json.loads(out.read_text())["targets"]
    assert statistics["cases"] == 60
    counts = statistics["counts"]
    assert min(counts[kind] for kind in ("crash", "error", "nan", "contract")) > 0
    assert counts["hang"] == counts["memory"] == 0
    assert "model = ONMF(n_clusters=2)\nmodel.fit(" in run.stdout  # without the other parameters
    crash = next(failure["cases"][0] for failure in statistics["found"] if failure["kind"] == "crash")
    snippet = run.stdout.partition(f"# python -m fuzz core --seed 0 --case {crash}\n")[2].partition("\n\n")[0]
    assert "ONMF(" in snippet
    assert python("-W", "ignore", "-c", snippet).returncode == 0  # the snippet is complete: without the bug, it runs


def test_seed_and_number_determine_a_case():
    core = Core()
    cases = [core.make(1, number) for number in range(50)]
    assert cases == [core.make(1, number) for number in range(50)]
    assert cases != [core.make(2, number) for number in range(50)]
    assert damage(random.Random(1), bytes(100)) == damage(random.Random(1), bytes(100))


def test_damaged_model_files_have_correct_checksums(tmp_path):
    ONMF(2).fit(np.eye(4)).save(tmp_path / "model.onmf")
    original = (tmp_path / "model.onmf").read_bytes()
    correct = 0
    for seed in range(100):
        changed = inside_zip(random.Random(seed), "model.onmf", original)
        with zipfile.ZipFile(io.BytesIO(changed)) as archive:
            members = {
                name: archive.read(name) for name in archive.namelist()
            }  # this checks the checksums of the zip archive
        try:
            listed = json.loads(members.pop("metadata.json"))["members"]
        except (KeyError, ValueError, TypeError):
            continue
        correct += changed != original and all(
            listed.get(name, {}).get("sha256") == hashlib.sha256(data).hexdigest() for name, data in members.items()
        )
    assert correct > 50
