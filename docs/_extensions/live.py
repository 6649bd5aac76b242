"""The clusterings whose reports are in the documentation. Every build makes the reports again."""

from __future__ import annotations

from pathlib import Path

import onmf.image
import onmf.text
from onmf.datasets import docstring_texts, make_scene

FOLDER = Path(__file__).parents[1] / "_build" / "live"


def docstrings() -> onmf.text.DocumentClusters:
    """Cluster SciPy's docstrings."""
    texts = [onmf.text.Text(*triple) for triple in docstring_texts()]
    return onmf.text.cluster(texts, 13, init="consensus", refine="local-search", random_state=0)


def materials() -> onmf.image.ImageClusters:
    """Cluster a generated scene."""
    scene = make_scene(80, 100, 120, 4, random_state=3)
    X = scene.X.reshape(80, 100, 120)
    return onmf.image.cluster(onmf.image.Cube(X, scene.wavelengths, "nm", name="scene"), 4)


def write_reports() -> None:
    """Write the reports where the documentation finds them."""
    docstrings().report(FOLDER / "report-documents.html", title="SciPy's docstrings")
    materials().report(FOLDER / "report-image.html", title="A generated scene")
