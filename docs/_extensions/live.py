"""The clusterings whose reports are in the documentation. Every build makes the reports again."""

from __future__ import annotations

import runpy
from pathlib import Path

import onmf.image
import onmf.text
from onmf.datasets import make_scene

FOLDER = Path(__file__).parents[1] / "_build" / "live"
EXAMPLES = Path(__file__).parents[2] / "examples"


def docstrings() -> onmf.text.DocumentClusters:
    """Cluster SciPy's docstrings as ``make demo`` does."""
    return runpy.run_path(str(EXAMPLES / "docstrings.py"))["cluster_docstrings"]()


def materials() -> onmf.image.ImageClusters:
    """Cluster a generated scene."""
    scene = make_scene(80, 100, 120, 4, random_state=3)
    X = scene.X.reshape(80, 100, 120)
    return onmf.image.cluster(onmf.image.Cube(X, scene.wavelengths, "nm", name="scene"), 4)


def write_reports() -> None:
    """Write the reports where the documentation finds them."""
    docstrings().report(FOLDER / "report-documents.html", title="SciPy's docstrings")
    materials().report(FOLDER / "report-image.html", title="A generated scene")
