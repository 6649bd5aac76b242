"""What is released: the files in it, and the wheel installed where nothing else of the project is."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from onmf import __version__

ROOT = Path(__file__).parents[1]
TESTS = ("test_container.py", "test_palette.py", "test_schema.py")
"""The part of the suite that runs on the installed wheel. It compiles little and needs none of the other extras."""

pytestmark = [
    pytest.mark.long("the release in an environment of its own"),
    pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="there is no checkout to release"),
]


def run(*arguments, **options):
    """Run a program to its end and return what it printed. Nothing of the checkout reaches it."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "ONMF_DATA", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [*map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
        env=environment | {"PYTHONUTF8": "1", "NO_COLOR": "1"},
        **options,
    )
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The folder with the sdist and the wheel, built from the checkout."""
    for needed in ("build", "hatchling", "twine"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("released")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(released, tmp_path_factory):
    """Scripts of an environment with nothing but the wheel, three of its extras, and pytest."""
    uv = pytest.importorskip("uv", reason="uv is not installed").find_uv_bin()
    folder = tmp_path_factory.mktemp("installed")
    run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = released.glob("*.whl")
    wanted = (f"{wheel}[cli,report,text]", "hypothesis", "pytest", "pytest-timeout")
    try:
        run(uv, "pip", "install", "--quiet", "--python", scripts / "python", *wanted)
    except AssertionError as error:
        if "Failed to fetch" in str(error):
            pytest.skip("no package index can be reached")
        raise
    return scripts


def test_the_wheel_holds_the_package_and_nothing_else(released):
    (wheel,) = released.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith(f"onmf-{__version__}.dist-info/")}
    source = ROOT / "src"
    ours = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert packed == {name for name in ours if "__pycache__" not in name}
    kinds = {Path(name).suffix for name in packed}
    assert {".cu", ".html", ".js", ".css", ".json", ".py", ".typed"} <= kinds


def test_the_sdist_holds_what_the_tests_and_the_docs_need(released):
    (sdist,) = released.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "Makefile", "docs/conf.py", "tests/conftest.py", "tests/expected.json"} <= packed
    assert not [name for name in packed if re.search(r"__pycache__|\.venv|docs/(api|_build)/", name)]


def test_the_index_would_accept_both(released):
    run(sys.executable, "-m", "twine", "check", "--strict", *released.iterdir())


def test_the_version_is_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest, day = re.search(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)$", changes, flags=re.MULTILINE).groups()
    assert newest == __version__
    assert f"\nversion: {newest}\n" in citation
    assert f"\ndate-released: {day}\n" in citation


def test_the_readme_runs_where_only_the_wheel_is(installed, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ten_lines = re.search(r"```python\n(.*?)```", readme, flags=re.DOTALL)[1]
    script = tmp_path / "ten_lines.py"
    script.write_text(f"{ten_lines}\nimport onmf\nprint(onmf.__file__)\n", encoding="utf-8")
    *clusters, place = run(installed / "python", "-W", "error", script, cwd=tmp_path).splitlines()
    assert len(clusters) == 13
    assert Path(place).is_relative_to(installed.parent)


def test_the_commands_run_where_only_the_wheel_is(installed, tmp_path):
    onmf = shutil.which("onmf", path=installed)
    assert __version__ in run(onmf, "--version", cwd=tmp_path)
    letters = tmp_path / "letters"
    letters.mkdir()
    for number in range(8):
        about = ("ship sail harbour", "bread flour oven")[number % 2]
        (letters / f"{number}.txt").write_text(f"{about} " * (5 + number), encoding="utf-8")
    run(onmf, "documents", "letters", "-k", "2", "--quick", "--out", "clusters", cwd=tmp_path)
    made = {path.name for path in (tmp_path / "clusters").iterdir()}
    assert {"assignments.csv", "clusters.csv", "model.onmf", "report.html", "summary.json"} <= made
    assert "harbour" in (tmp_path / "clusters" / "clusters.csv").read_text(encoding="utf-8")


def test_a_part_of_the_suite_passes_where_only_the_wheel_is(installed, tmp_path):
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("-p", "no:cacheprovider", "-W", "error", "-q", "--rootdir", tmp_path)
    assert " passed" in run(installed / "python", "-m", "pytest", *options, *TESTS, cwd=tmp_path / "tests")
