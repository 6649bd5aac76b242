"""The clusterings whose reports are in the documentation. Every build makes the reports again."""

from __future__ import annotations

from pathlib import Path

from onmf.datasets import docstring_texts, make_scene
from onmf.image import Cube, ImageClustering, cluster_image
from onmf.report import write_documents_report, write_image_report
from onmf.text import DocumentClusters, Text, cluster_documents

FOLDER = Path(__file__).parents[1] / "_build" / "live"


def docstrings() -> DocumentClusters:
    """Cluster SciPy's docstrings."""
    texts = [Text(*triple) for triple in docstring_texts()]
    return cluster_documents(texts, 13, init="consensus", refine="local-search", random_state=0)


def materials() -> ImageClustering:
    """Cluster a generated scene."""
    scene = make_scene(80, 100, 120, 4, random_state=3)
    cube = scene.X.reshape(80, 100, 120)
    return cluster_image(Cube(cube, wavelengths=scene.wavelengths, wavelength_unit="nm", name="scene"), 4)


def write_reports() -> None:
    """Write the reports where the documentation finds them."""
    write_documents_report(FOLDER / "report-documents.html", docstrings(), title="SciPy's docstrings")
    write_image_report(FOLDER / "report-image.html", materials(), title="A generated scene")
