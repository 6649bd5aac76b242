"""Figures: they show the right content, and open no window."""

import runpy
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from onmf import ONMF
from onmf.datasets import make_scene
from onmf.image import Cube, Truth, cluster
from onmf.image.figures import plot_map, plot_spectra
from onmf.plot import beside, plot_confusion, plot_top_features

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_top_features(counts):
    model = ONMF(3).fit(counts[0])
    axes = plot_top_features(model, 4)
    assert len(axes) == 3
    for k, ax in enumerate(axes):
        assert [t.get_text() for t in ax.get_yticklabels()] == list(model.top_features(4)[k])
        assert ax.get_title(loc="left") == f"cluster {k} · {np.sum(model.labels_ == k)}"
    titled = plot_top_features(model, 4, titles=["a", "b", "c"], columns=2)
    assert [ax.get_title(loc="left") for ax in titled] == ["a", "b", "c"]
    plt.gcf().canvas.draw()


def test_confusion():
    ax = plot_confusion(["x", "x", "y", "y", "y"], [1, 1, 0, 0, 1], classes=["ex", "why"])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "0"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["ex (2)", "why (3)"]
    assert sorted(t.get_text() for t in ax.texts) == ["1", "2", "2"]
    _, given = plt.subplots()
    assert plot_confusion([0, 1, 1], [0, 1, 2], ax=given) is given


def test_names_are_not_parsed_as_formulas(tmp_path):
    """Matplotlib parses text between dollar signs as mathematics, and raises an error if it is malformed."""
    name = r"$\frac{$ x^"
    model = ONMF(2).fit(np.eye(2) + 0.1)
    plot_top_features(model, 2, feature_names=[name, "tea"])
    plot_confusion([name, "tea"], [0, 1])
    scene = make_scene(8, 6, 12, 2, random_state=0)
    cube = Cube(scene.X.reshape(8, 6, 12), wavelengths=scene.wavelengths, wavelength_unit=name, name=name)
    clustering = cluster(cube, 2, truth=Truth(scene.endmembers, names=[name, "tea"]))
    for ax in (plot_map(clustering), plot_spectra(clustering)):
        assert name in [text.get_text().partition(" (")[0] for text in ax.get_legend().get_texts()]
    for number in plt.get_fignums():
        plt.figure(number).savefig(tmp_path / f"{number}.svg")


@pytest.mark.long("the examples")
def test_demo(tmp_path, capsys, monkeypatch):
    """Run the script of `make demo`."""
    monkeypatch.setattr(sys, "argv", ["docstrings.py", str(tmp_path / "out")])
    runpy.run_path(str(ROOT / "examples" / "docstrings.py"), run_name="__main__")
    out = capsys.readouterr().out
    for word in ("1,295 documents", "KL-ONMF   60.4%", "Fro-ONMF  38.9%"):
        assert word in out
    report = tmp_path / "out" / "report.html"
    assert out.endswith(f"The report, for any browser: {report.resolve().as_uri()}\n")
    assert "<title>SciPy&#39;s docstrings</title>" in report.read_text(encoding="utf-8")


def test_rows_that_were_not_placed_stand_around_their_nearest_neighbour():
    components = np.array([[0.0], [10.0], [20.0], [1.0], [2.0], [19.0], [0.5]])
    places = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    found = beside(components, np.arange(3), places)
    assert np.array_equal(found[:3], places)
    distances = np.linalg.norm(found[:, None] - places[None], axis=2)
    step = 8 * np.sqrt(3 / 7)  # as dense as the places, if these were seven
    assert distances[[6, 3, 4], 0] == pytest.approx(step * np.sqrt([1, 2, 3])), "the nearest ones inside"
    assert distances[5, 2] == pytest.approx(step)
    assert len(np.unique(found.round(9), axis=0)) == 7
