"""The report on an image in a browser."""

import base64
import io
import re
from dataclasses import replace
from html import unescape

import matplotlib.image
import numpy as np
import pytest

from onmf.datasets import make_scene
from onmf.image import Cube, Truth, cluster_image
from onmf.image.figures import colours
from onmf.report import image_report, write_image_report

LINK = '<a href="https://example.org/">water</a>'
TRANSFORM = (10.0, 0.0, 1000.0, 0.0, -20.0, 2000.0)


@pytest.fixture(scope="module")
def result():
    scene = make_scene(30, 40, 60, 3, random_state=1)
    X = scene.X.reshape(30, 40, 60)
    X[2, 3] = 0
    good = np.arange(60) != 5
    cube = Cube(X, wavelengths=scene.wavelengths, wavelength_unit="nm", good_bands=good, transform=TRANSFORM, scale=0.5)
    labels = scene.to_image(scene.abundances.argmax(axis=0))
    return cluster_image(cube, 3, truth=Truth(scene.endmembers, labels, ["tree", "rock", LINK]))


def click(page, picture, line, sample, shape):
    box = page.locator(f"[data-picture={picture}] img").bounding_box()
    page.mouse.click(
        box["x"] + (sample + 0.5) / shape[1] * box["width"], box["y"] + (line + 0.5) / shape[0] * box["height"]
    )


def curves(page):
    """Name, x and y of each curve in the chart of the pixel."""
    return page.evaluate(
        "document.querySelector('[data-figure=pixel]').data.map((t) => [t.name, Array.from(t.x), Array.from(t.y)])"
    )


class TestInTheBrowser:
    @pytest.mark.parametrize("picture", ["clusters", "composite"])
    def test_a_click_shows_the_pixel_and_its_cluster(self, visit, result, picture):
        page = visit(image_report(result), viewport={"width": 1200, "height": 1400})
        page.locator(f"[data-picture={picture}]").scroll_into_view_if_needed()
        for line, sample in ((0, 0), (17, 31), (29, 39)):
            click(page, picture, line, sample, (30, 40))
            k, scale = result.labels[line, sample], result.scales[line, sample]
            text = page.inner_text("#pixel")
            x, y = result.cube.coordinates(line, sample)
            assert text.startswith(f"Line {line}, sample {sample} ({x:.1f}, {y:.1f}): {result.names[k]}, brightness")
            assert f"residual {result.residuals[line, sample]:.4f}" in text
            (name, wavelengths, values), (other, _, model) = curves(page)
            assert (name, unescape(other)) == ("pixel", f"{result.names[k]} × {scale:.2f}")
            assert wavelengths == pytest.approx(result.wavelengths)
            assert values == pytest.approx(result.cube.pixel(line, sample), abs=2e-5 * max(values))
            assert model == pytest.approx(scale * result.spectra[k], rel=1e-4)
        click(page, picture, 2, 3, (30, 40))
        assert page.inner_text("#pixel").endswith("outside, no data")
        assert curves(page) == []
        assert page.locator(".mark >> visible=true").count() == 2

    def test_the_keyboard_moves_the_pixel(self, visit, result):
        page = visit(image_report(result))
        assert page.inner_text("#pixel").startswith("Line 15, sample 20")
        page.focus("[data-picture=clusters]")
        for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
            page.keyboard.press(key)
        assert page.inner_text("#pixel").startswith("Line 13, sample 19")
        page.focus("[data-picture=composite]")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        assert page.inner_text("#pixel").startswith("Line 13, sample 39"), "the pixel stays inside the image"

    def test_spectra_show_names_as_text(self, visit, result):
        page = visit(image_report(result), viewport={"width": 1200, "height": 900})
        for figure, names in (("spectra", result.names), ("pixel", ["pixel", result.names[result.labels[15, 20]]])):
            legend = page.locator(f"[data-figure={figure}] .legendtext").all_text_contents()
            assert [text.partition(" ×")[0] for text in legend] == names
        gap = page.evaluate("document.querySelector('[data-figure=spectra]').data[0].y[5]")
        assert gap is None, "the bad band"
        chart = page.locator("[data-figure=spectra]")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("[data-figure=spectra] .hoverlayer .legend")
        hover = page.locator("[data-figure=spectra] .hoverlayer").text_content()
        assert "tree" in hover
        assert "rock" in hover
        assert LINK in hover
        assert LINK in page.inner_text("#clusters")
        assert page.locator("main a").count() == 0

    def test_small_screen_and_dark_theme(self, visit, result):
        page = visit(image_report(result), viewport={"width": 375, "height": 700}, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        page.click("#theme")
        assert page.inner_text("#theme") == "Dark"


def pictures(html):
    return [
        (255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(text)))).round().astype(int)[..., :3]
        for text in re.findall(r'<img src="data:image/png;base64,([^"]+)"', html)
    ]


def test_the_map_has_the_colours_of_the_clusters(result):
    drawn, *others = pictures(image_report(result))
    assert drawn.shape == (30, 40, 3)
    assert len(others) == 4
    shades = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in [*colours(result.names), "#ffffff"]]
    assert np.array_equal(drawn, np.array(shades)[result.labels])


def test_a_large_image_is_subsampled(result, monkeypatch, tmp_path):
    monkeypatch.setattr("onmf.report.image.SPECTRA", 20_000)
    page = image_report(result)
    assert "The page contains only the spectra of every 3rd line and sample" in page
    write_image_report(tmp_path / "report.html", result, title="Mine")
    assert "<title>Mine</title>" in (tmp_path / "report.html").read_text("utf-8")


def test_positions_in_a_subsampled_page(visit, result, monkeypatch):
    monkeypatch.setattr("onmf.report.image.SPECTRA", 20_000)
    page = visit(image_report(result), viewport={"width": 1200, "height": 1400})
    page.locator("[data-picture=clusters]").scroll_into_view_if_needed()
    click(page, "clusters", 16, 31, (30, 40))
    assert page.inner_text("#pixel").startswith("Line 15, sample 30")
    (_, _, values), _ = curves(page)
    assert values == pytest.approx(result.cube.pixel(15, 30), abs=2e-5 * max(values))


def test_comparison_and_notes_appear_only_if_known(result):
    assert "MRSA" in image_report(result)
    page = image_report(replace(result, comparison=None, notes=["One & two"]))
    assert "MRSA" not in page.partition('<script type="application/json"')[0]
    assert "One &amp; two" in page
