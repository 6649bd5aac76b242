"""The planted faults: each can be planted, its tests exist, and a run tells what catches it."""

import re
import runpy

import pytest

import planted
from planted import FAULTS, ROOT, Fault, caught_by, first_failure, main


def test_there_are_enough_faults_of_different_names():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


def test_a_name_of_no_fault_is_refused(capsys):
    assert main(["tie-to-the-lowest-index"]) == 2
    assert capsys.readouterr().out == "No faults of these names: tie-to-the-lowest-index.\n"


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_it_can_be_planted(fault):
    assert (ROOT / fault.file).read_text("utf-8").count(fault.right) == 1
    assert fault.wrong != fault.right
    for test in fault.tests.split():
        file, *names = test.split("::")
        text = (ROOT / file).read_text("utf-8")
        assert all(re.search(rf"^ *(class|def) {name}\b", text, re.MULTILINE) for name in names), test


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("a * b", "make test: test_one"),
        ("2 * a", "make test, but not tests/test_sum.py: test_two"),
        ("max(a + b, 1)", "ONLY make test-all: test_three"),
        ("b + a", "NOTHING"),
    ],
)
def test_the_run_tells_what_catches_a_fault(wrong, found, tmp_path, monkeypatch):
    (tmp_path / "sum.py").write_text("total = lambda a, b: a + b\n")
    suites = {
        ("--short", "tests/test_sum.py"): ("test_one", (1, 1)),
        ("--short", "-n", "3"): ("test_two", (2, 3)),
        ("-n", "3"): ("test_three", (0, 0)),
    }

    def run(folder, cache, *arguments):
        name, pair = suites[arguments]
        return None if runpy.run_path(str(folder / "sum.py"))["total"](*pair) == sum(pair) else name

    monkeypatch.setattr(planted, "first_failure", run)
    assert caught_by(tmp_path, Fault("wrong-sum", "sum.py", "a + b", wrong, "tests/test_sum.py")) == found
    assert (tmp_path / "sum.py").read_text() == "total = lambda a, b: a + b\n"


def test_the_first_failure_is_named_and_tests_that_do_not_exist_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plugins take long to import
    (tmp_path / "test_sum.py").write_text(
        "def test_sum():\n    assert 1 + 1 == 2\n\ndef test_product():\n    assert 0\n"
    )
    assert first_failure(tmp_path, tmp_path, "test_sum.py") == "test_sum.py::test_product"
    assert first_failure(tmp_path, tmp_path, "test_sum.py::test_sum") is None
    with pytest.raises(ValueError, match=r"There are no such tests: test_sum\.py::test_difference\."):
        first_failure(tmp_path, tmp_path, "test_sum.py::test_difference")
