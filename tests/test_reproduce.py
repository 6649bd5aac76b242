"""onmf reproduce: the paper's tables and figures."""

import csv
import json
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import command
from onmf import __version__
from onmf.cli import app
from onmf.datasets import make_scene
from onmf.reproduce import paper_tables, reproduce_images
from onmf.reproduce.figures import plot_family
from onmf.reproduce.tables import agree, family_averages, family_table, lift_zeros, shown

matplotlib.use("Agg")


def onmf(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("ours", "paper", "agrees"),
    [(26.4926, 26.5, True), (26.44, 26.5, False), (3.6377, 3.6, True), (2.7502, 2.75, True), (38, 38, True)],
)
def test_agrees_to_the_printed_digit(ours, paper, agrees):
    assert agree(ours, paper) is agrees
    assert agree(ours, None) is None


def test_shows_the_paper_if_it_differs():
    assert shown({"a": 26.44, "a_paper": 26.5}, "a", 1) == "26.4 ✗ 26.5"
    assert shown({"a": 26.4926, "a_paper": 26.5}, "a", 1) == "26.5 ✓"
    assert shown({"a": 25.098, "a_paper": None}, "a", 2) == "25.10"
    assert shown({}, "a", 2) == ""


def test_paper_tables_are_complete():
    tables = paper_tables()
    assert len(tables["documents"]) == 15
    weights = [row["documents"] for row in tables["documents"].values()]
    for short in ("F", "KL"):
        mean = np.average([row[f"accuracy_{short}"] for row in tables["documents"].values()], weights=weights)
        assert mean == pytest.approx(tables["documents_averages"][f"accuracy_{short}"], abs=0.06)


def test_documents(paper_set, tmp_path):
    paper_set("tr11")
    done = onmf("reproduce", "documents", "--only", "tr11", "--only", "TR45", "--out", tmp_path / "out", "--runs", 2)
    assert done.exit_code == 0, done.output
    assert "50.5 ✓" in done.output
    assert "✗" not in done.output
    assert "over the sets above (2)" in done.output
    rows = json.loads((tmp_path / "out" / "documents.json").read_text())
    assert [row["name"] for row in rows] == ["tr11", "tr45"]
    assert all(value for row in rows for key, value in row.items() if key.endswith("_agrees"))
    with (tmp_path / "out" / "documents.csv").open() as file:
        assert [row["accuracy_KL_paper"] for row in csv.DictReader(file)] == ["54.1", "59.6"]
    assert "| tr11 | 414 | 6424 | 9 | 50.5\u00a0✓ | 54.1\u00a0✓ |" in (tmp_path / "out" / "documents.md").read_text()


@pytest.mark.short("the paper's images, to the digit")
def test_images(paper_set, tmp_path):
    paper_set("samson")
    done = onmf("reproduce", "images", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for text in ("2.74 ✓", "2.75 ✓", "19.6 ✓", "3.6 ✓", "The MRSA of moffett is not compared"):
        assert text in done.output
    figures = ["maps-jasper", "maps-moffett", "maps-samson", "spectra"]
    expected = sorted([f"{name}.{suffix}" for name in figures for suffix in ("png", "svg")])
    tables = [f"images.{suffix}" for suffix in ("csv", "json", "md")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(expected + tables)


def test_a_different_number_fails(paper_set, tmp_path, monkeypatch):
    paper_set("tr23")
    wrong = paper_tables()
    wrong["documents"]["tr23"]["iterations_KL"] = 17
    monkeypatch.setattr("onmf.reproduce.tables.paper_tables", lambda: wrong)
    done = onmf("reproduce", "documents", "--only", "tr23")
    assert done.exit_code == 1
    assert "16 ✗ 17" in done.output
    assert "some numbers differ from the paper's" in done.output


def test_missing_data_sets(paper_set, tmp_path, monkeypatch):
    paper_set("tr23")
    done = onmf("reproduce", "documents", "--only", "sports")
    assert done.exit_code == 2
    assert "sports.npz is missing. Run 'onmf fetch sports', or set ONMF_DATA" in done.output.replace("\n", " ")
    done = command("reproduce", "documents", "--only", "tr99")
    assert done.returncode == 2
    assert "'tr99' is not a data set: choose one of NG20" in done.stderr
    done = onmf("reproduce", "nonsense")
    assert done.exit_code == 2
    assert "'nonsense' is not a table: choose documents, images, all or family" in done.output
    monkeypatch.setenv("ONMF_DATA", str(tmp_path))
    done = onmf("reproduce", "all")
    assert done.exit_code == 2
    assert "No documents data set was found" in done.output
    assert "No hyperspectral data set was found" in done.output
    with pytest.raises(FileNotFoundError, match="Run 'onmf fetch hyperspectral', or set ONMF_DATA"):
        reproduce_images()


@pytest.mark.long("the paper's larger tables")
def test_family(paper_set, tmp_path):
    paper_set("tr23")
    done = onmf("reproduce", "family", "--only", "tr23", "--only", "moffett", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    points = json.loads((tmp_path / "family.json").read_text())
    assert {p["beta"] for p in points if p["name"] == "moffett"} >= {0.0, 1.0, 2.5, "cosine", "negative-binomial"}
    assert min(p["beta"] for p in points if p["name"] == "tr23" and not isinstance(p["beta"], str)) == 0.25
    assert next(p for p in points if p["name"] == "tr23" and p["beta"] == 1)["value"] == pytest.approx(
        34.3137, abs=1e-3
    )
    assert (tmp_path / "family.png").stat().st_size > 10_000


def point(name, kind, size, beta, value):
    return {"name": name, "kind": kind, "size": size, "beta": beta, "value": value, "converged": True}


def test_family_average_weighs_by_documents():
    records = [point("a", "documents", 1, 1.0, 10), point("b", "documents", 3, 1.0, 50)]
    assert family_averages(records) == {1.0: 40}
    assert family_table(records).rows == [["1.0", "10.0", "50.0", "40.0"]]


def test_family_of_scenes_alone():
    records = [point("s", "hyperspectral", 9, beta, 5.0) for beta in (0.0, 1.0, "cosine")]
    assert len(plot_family(records)) == 1
    assert family_table(records).columns == ["β", "s"]


def test_lift_zeros():
    X = make_scene(5, 5, 6, 2, random_state=0).X
    X[0, 0] = 0
    assert lift_zeros(X).min() == X[X > 0].min()


def test_version_and_help():
    assert onmf("--version").output.strip() == f"onmf {__version__}"
    assert "reproduce" in onmf("--help").output
    for table in ("documents", "images", "all", "family"):
        assert "Example: onmf reproduce" in onmf("reproduce", table, "--help").output


@pytest.mark.long("commands in a process of their own")
def test_the_installed_command_prints_clear_errors(tmp_path):
    run = [sys.executable, "-m", "onmf", "fetch", "nonsense"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("onmf: 'nonsense' is not a data set")
    code = "import sys; sys.modules['typer'] = None; from onmf.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "onmf: the command line needs typer and rich: pip install 'onmf[cli]'"


class TestRoughEdges:
    def test_an_invalid_out_is_refused_before_any_fit(self, paper_set, tmp_path):
        paper_set("tr23")
        (tmp_path / "file").write_text("")
        for out in (tmp_path / "file", tmp_path / "file" / "sub"):
            done = onmf("reproduce", "documents", "--only", "tr23", "--out", out)
            assert done.exit_code == 2
            assert "nothing can be written there" in done.output
            assert "✓" not in done.output

    def test_tables_are_never_truncated(self, paper_set, monkeypatch):
        paper_set("tr23")
        monkeypatch.setenv("COLUMNS", "60")
        assert "…" not in onmf("reproduce", "documents", "--only", "tr23").output

    def test_all_with_one_kind_of_data(self, paper_set, original, tmp_path, monkeypatch):
        paper_set("tr23")
        (tmp_path / "documents").mkdir()
        (tmp_path / "documents" / "tr23.npz").symlink_to((original.folder / "documents" / "tr23.npz").resolve())
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        done = onmf("reproduce", "all")
        assert done.exit_code == 0
        assert "34.3 ✓" in done.output
        assert "No hyperspectral data set was found" in done.output
