"""The image report in a browser."""

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
PLACE = (10.0, 0.0, 1000.0, 0.0, -20.0, 2000.0)


@pytest.fixture(scope="module")
def found():
    scene = make_scene(30, 40, 60, 3, random_state=1)
    X = scene.X.reshape(30, 40, 60)
    X[2, 3] = 0
    good = np.arange(60) != 5
    cube = Cube(X, wavelengths=scene.wavelengths, wavelength_unit="nm", good_bands=good, transform=PLACE, scale=0.5)
    labels = scene.to_image(scene.abundances.argmax(axis=0))
    return cluster_image(cube, 3, truth=Truth(scene.endmembers, labels, ["tree", "rock", LINK]))


def click(page, picture, line, sample, shape):
    box = page.locator(f"[data-picture={picture}] img").bounding_box()
    page.mouse.click(
        box["x"] + (sample + 0.5) / shape[1] * box["width"], box["y"] + (line + 0.5) / shape[0] * box["height"]
    )


def drawn(page):
    """Return name, x and y of each line in the pixel's chart."""
    return page.evaluate(
        "document.querySelector('[data-figure=pixel]').data.map((t) => [t.name, Array.from(t.x), Array.from(t.y)])"
    )


class TestInTheBrowser:
    @pytest.mark.parametrize("picture", ["clusters", "composite"])
    def test_a_click_shows_the_pixel_over_its_cluster(self, visit, found, picture):
        page = visit(image_report(found), viewport={"width": 1200, "height": 1400})
        page.locator(f"[data-picture={picture}]").scroll_into_view_if_needed()
        for line, sample in ((0, 0), (17, 31), (29, 39)):
            click(page, picture, line, sample, (30, 40))
            k, scale = found.labels[line, sample], found.scales[line, sample]
            words = page.inner_text("#pixel")
            x, y = found.cube.coordinates(line, sample)
            assert words.startswith(f"Line {line}, sample {sample} ({x:.1f}, {y:.1f}): {found.names[k]}, brightness")
            assert f"residual {found.residuals[line, sample]:.4f}" in words
            (name, at, values), (other, _, model) = drawn(page)
            assert (name, unescape(other)) == ("pixel", f"{found.names[k]} × {scale:.2f}")
            assert at == pytest.approx(found.wavelengths)
            assert values == pytest.approx(found.cube.pixel(line, sample), abs=2e-5 * max(values))
            assert model == pytest.approx(scale * found.spectra[k], rel=1e-4)
        click(page, picture, 2, 3, (30, 40))
        assert page.inner_text("#pixel").endswith("outside, no data")
        assert drawn(page) == []
        assert page.locator(".mark >> visible=true").count() == 2

    def test_the_keyboard_moves_the_pixel(self, visit, found):
        page = visit(image_report(found))
        assert page.inner_text("#pixel").startswith("Line 15, sample 20")
        page.focus("[data-picture=clusters]")
        for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
            page.keyboard.press(key)
        assert page.inner_text("#pixel").startswith("Line 13, sample 19")
        page.focus("[data-picture=composite]")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        assert page.inner_text("#pixel").startswith("Line 13, sample 39"), "the border stops it"

    def test_spectra_with_a_hover_and_names_as_text(self, visit, found):
        page = visit(image_report(found), viewport={"width": 1200, "height": 900})
        for figure, names in (("spectra", found.names), ("pixel", ["pixel", found.names[found.labels[15, 20]]])):
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

    def test_a_phone_and_the_dark(self, visit, found):
        page = visit(image_report(found), viewport={"width": 375, "height": 700}, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        page.click("#theme")
        assert page.inner_text("#theme") == "Dark"


def pictures(html):
    return [
        (255 * matplotlib.image.imread(io.BytesIO(base64.b64decode(text)))).round().astype(int)[..., :3]
        for text in re.findall(r'<img src="data:image/png;base64,([^"]+)"', html)
    ]


def test_the_map_has_the_colours_of_the_clusters(found):
    shown, *others = pictures(image_report(found))
    assert shown.shape == (30, 40, 3)
    assert len(others) == 4
    shades = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in [*colours(found.names), "#ffffff"]]
    assert np.array_equal(shown, np.array(shades)[found.labels])


def test_a_large_image_is_thinned_out(found, monkeypatch, tmp_path):
    monkeypatch.setattr("onmf.report.image.SPECTRA", 20_000)
    page = image_report(found)
    assert "The page holds the spectrum of every 3rd line and sample" in page
    write_image_report(tmp_path / "report.html", found, title="Mine")
    assert "<title>Mine</title>" in (tmp_path / "report.html").read_text("utf-8")


def test_a_thinned_page_tells_where_its_pixels_are(visit, found, monkeypatch):
    monkeypatch.setattr("onmf.report.image.SPECTRA", 20_000)
    page = visit(image_report(found), viewport={"width": 1200, "height": 1400})
    page.locator("[data-picture=clusters]").scroll_into_view_if_needed()
    click(page, "clusters", 16, 31, (30, 40))
    assert page.inner_text("#pixel").startswith("Line 15, sample 30")
    (_, _, values), _ = drawn(page)
    assert values == pytest.approx(found.cube.pixel(15, 30), abs=2e-5 * max(values))


def test_only_what_is_known_is_told(found):
    assert "MRSA" in image_report(found)
    page = image_report(replace(found, comparison=None, notes=["One & two"]))
    assert "MRSA" not in page.partition('<script type="application/json"')[0]
    assert "One &amp; two" in page
