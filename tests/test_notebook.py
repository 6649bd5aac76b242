"""Results as tables: in notebooks, as frames, as figures."""

import matplotlib
import pytest

from cell_clusterings import small_clustering
from onmf.datasets import make_scene
from onmf.image import cluster as cluster_image
from onmf.plot import table
from onmf.text import Text, cluster

matplotlib.use("Agg")

TEXTS = [
    Text(str(i), text, label)
    for i, (text, label) in enumerate(
        [("tea cup tea", "drink"), ("green tea", "drink"), ("tea", "drink"), ("cow milk", "farm"), ("1", None)]
    )
]


SHARED = ["id", "cluster", "name", "confidence", "runner_up", "scale", "margin", "surprise"]


@pytest.fixture(scope="module")
def result():
    return cluster(TEXTS, 2)


def test_everything_is_escaped_and_long_tables_are_cut():
    page = table("<b>", ["<i>"], [["<script>", 1234]] * 40, ['"><u>'])
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<u>" not in page
    assert "&lt;script&gt;" in page
    assert "1,234" in page
    assert "and 10 more" in page


def test_tables_in_notebooks(result, browser):
    scene = make_scene(10, 12, 20, 3, random_state=0)
    shown = {
        "DocumentClusters: 5 documents, 5 words, 2 clusters": result,
        "ImageClusters of array: 10 × 12 pixels, 20 bands, 3 clusters": cluster_image(scene.X.reshape(10, 12, 20), 3),
        "CellClusters of small.h5ad: 400 cells, 120 genes (120 used), 4 clusters": small_clustering(),
    }
    page = browser.new_page()
    for title, clusters in shown.items():
        assert title in repr(clusters)
        for ink, paper in (("rgb(0, 0, 0)", "#fff"), ("rgb(255, 255, 255)", "#111")):
            page.set_content(f"<body style='color:{ink};background:{paper}'>{clusters._repr_html_()}")
            assert title in page.inner_text("strong")
            assert page.locator("tbody tr").count() == len(clusters.names)
            assert [page.locator("tbody tr td:nth-child(2)").nth(k).inner_text() for k in range(2)] == clusters.names[
                :2
            ]
            assert page.locator("td").first.evaluate("cell => getComputedStyle(cell).color") == ink
    page.close()


def test_a_frame_without_classes():
    assert list(cluster(["tea", "milk"], 2).to_frame()) == SHARED


def test_figures(result):
    axes = result.plot_features(2)
    assert [ax.get_title(loc="left") for ax in axes] == ["1: tea (3)", f"2: {result.names[1].split(', ')[0]} (1)"]
    ax = result.plot_classes()
    assert [text.get_text().split(":")[0] for text in ax.get_xticklabels()] == ["1", "2"]
    with pytest.raises(ValueError, match="have no classes"):
        cluster(["tea", "milk"], 2).plot_classes()
    assert small_clustering().plot_features(3)[0].get_title(loc="left").startswith("0: ")
    matplotlib.pyplot.close("all")
