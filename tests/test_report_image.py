"""The report on an image in a browser."""

import base64
import io
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from conftest import DATA, until
from onmf.datasets import make_scene
from onmf.image import Cube, Truth, cluster
from onmf.image.figures import colours
from onmf.image.page import RIGHT, WRONG, image_page, materials_of
from onmf.plot import parts_of

LINK = '<a href="https://example.org/">water</a>'
TRANSFORM = (10.0, 0.0, 1000.0, 0.0, -20.0, 2000.0)
COLOUR = """([line, sample]) => {
  const { x, y } = onmf.scene.at(line, sample), scene = document.getElementById("scene");
  const box = scene.getBoundingClientRect(), scale = scene.width / box.width;
  const copy = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  copy.drawImage(scene, -Math.floor((x - box.left) * scale), -Math.floor((y - box.top) * scale));
  return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""
WIDE = {"width": 1280, "height": 1000}
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
KEYS = ["clusters", "composite", "margin", "brightness", "residual", "truth", "errors"]


@pytest.fixture(scope="module")
def result():
    """A clustering that does not know how sure its pixels are."""
    scene = make_scene(30, 40, 60, 3, random_state=1)
    X = scene.X.reshape(30, 40, 60)
    X[2, 3] = 0
    good = np.arange(60) != 5
    cube = Cube(X, wavelengths=scene.wavelengths, wavelength_unit="nm", good_bands=good, transform=TRANSFORM, scale=0.5)
    labels = scene.to_image(scene.abundances.argmax(axis=0)).copy()
    labels[0, :10] = -1
    labels[20, 5:9] = (labels[20, 5:9] + 1) % 3
    return unsure(cluster(cube, 3, truth=Truth(scene.endmembers, labels, ["tree", "rock", LINK])))


def unsure(found):
    """The clustering as a model without a calibration gives it."""
    return replace(found, confidence=np.full(found.labels.shape, np.nan, np.float32))


def with_truth(found, truth):
    """The clustering, compared with another truth."""
    return replace(found, table=replace(found.cube, truth=truth))


@pytest.fixture(scope="module")
def sure(result):
    """A clustering that knows how sure its pixels are."""
    confidence = np.linspace(0, 1, 1200, dtype=np.float32).reshape(30, 40)
    confidence[result.labels < 0] = np.nan
    runners_up = np.where(result.labels < 0, -1, (result.labels + 1) % 3)
    return replace(result, confidence=confidence, runners_up=runners_up)


@pytest.fixture(scope="module")
def report(result):
    return image_page(result)


@pytest.fixture
def page(visit, report):
    """The report, opened on a wide screen."""
    return visit(report, viewport=WIDE)


def at(page, line, sample):
    """Where a pixel of the large map is on the screen."""
    return SimpleNamespace(**page.evaluate(f"onmf.scene.at({line}, {sample})"))


def colour(page, line, sample):
    """The colour of a pixel in the large map."""
    return page.evaluate(COLOUR, [line, sample])


def hover(page, line, sample):
    spot = at(page, line, sample)
    page.mouse.move(spot.x, spot.y)


def click(page, line, sample):
    spot = at(page, line, sample)
    page.mouse.click(spot.x, spot.y)


def curves(page, chart="pixel-chart"):
    """The curves of a chart, by their names."""
    found = page.evaluate(f"document.getElementById('{chart}').curves.map((curve) => ({{ ...curve }}))")
    return {curve["name"]: SimpleNamespace(**curve) for curve in found}


def facts(page):
    return dict(text.split("\n") for text in page.locator("#pixel-facts > div").all_inner_texts())


def painted(page, what):
    """Wait until the large map shows this map, with this cluster or all of them alike."""
    page.wait_for_function("(what) => document.getElementById('scene').dataset.painted === what", arg=what)


def runner_up(result, line, sample):
    """The second-best cluster of a pixel, from the definition of the divergence."""
    x = result.cube.pixel(line, sample)
    shapes = result.spectra / result.spectra.sum(axis=1, keepdims=True)
    return int(np.argsort(-(np.log(shapes) @ x))[1])


class TestPixel:
    @pytest.mark.short("one page of each report is opened in a browser")
    def test_pointing_shows_a_pixel_and_clicking_keeps_it(self, page, result):
        assert page.inner_text("#pixel").startswith("Line 15, sample 20 ")
        for line, sample in ((0, 0), (17, 31), (29, 39)):
            hover(page, line, sample)
            k, scale, other = result.labels[line, sample], result.scales[line, sample], runner_up(result, line, sample)
            x, y = result.cube.coordinates(line, sample)
            assert page.inner_text("#pixel") == f"Line {line}, sample {sample} ({x:.1f}, {y:.1f}): {result.names[k]}"
            truth = result.truth.labels[line, sample]
            assert facts(page) == {
                "Surprise": f"{result.surprise[line, sample]:#.2g}".rstrip("."),
                "Margin": f"{result.margins[line, sample]:.4f}",
                "Brightness": f"{scale:.2f}",
                "Residual": f"{result.residuals[line, sample]:.4f}",
                "Runner-up": result.names[other],
                "Truth": "not known" if truth < 0 else result.truth.names[truth],
            }
            shown = curves(page)
            assert list(shown) == [f"{result.names[k]} × {scale:.2f}", f"{result.names[other]}, runner-up", "pixel"]
            own, second, pixel = shown.values()
            assert pixel.y == pytest.approx(result.cube.pixel(line, sample), abs=2e-5 * max(pixel.y))
            assert own.y == pytest.approx(scale * result.spectra[k], rel=1e-4)
            assert sum(second.y) == pytest.approx(sum(own.y)), "the runner-up at the same total"
            assert (own.colour, second.colour) == tuple(colours(result.names)[i] for i in (k, other))
        page.mouse.move(2, 2)
        assert page.inner_text("#pixel").startswith("Line 15, sample 20 "), "the pointer has left the map"
        click(page, 17, 31)
        page.mouse.move(2, 2)
        assert page.inner_text("#pixel").startswith("Line 17, sample 31 ")
        assert page.locator(".mark >> visible=true").count() == len(KEYS)

    def test_an_unassigned_pixel(self, page):
        click(page, 2, 3)
        assert page.inner_text("#pixel").endswith("unassigned")
        assert curves(page) == facts(page) == {}

    def test_the_first_pixel_is_inside(self, visit, result):
        labels = result.labels.copy()
        labels[10:20, 18:24] = -1
        page = visit(image_page(replace(result, labels=labels)), viewport=WIDE)
        assert page.inner_text("#pixel").startswith("Line 15, sample 17 ")

    def test_small_maps_choose_a_pixel_too(self, page):
        for line, picture in enumerate(KEYS):
            page.locator(f"[data-picture={picture}]").scroll_into_view_if_needed()
            box = page.locator(f"[data-picture={picture}] img").bounding_box()
            page.mouse.click(box["x"] + 8.5 / 40 * box["width"], box["y"] + (line + 0.5) / 30 * box["height"])
            assert page.inner_text("#pixel").startswith(f"Line {line}, sample 8 "), picture

    def test_the_keyboard_moves_the_pixel(self, page):
        page.focus("#scene")
        for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
            page.keyboard.press(key)
        assert page.inner_text("#pixel").startswith("Line 13, sample 19 ")
        page.keyboard.press("Shift+ArrowDown")
        assert page.inner_text("#pixel").startswith("Line 23, sample 19 ")
        page.focus("[data-picture=composite]")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        assert page.inner_text("#pixel").startswith("Line 23, sample 39 "), "the pixel stays inside the image"

    def test_confidence_and_given_runners_up(self, visit, sure):
        page = visit(image_page(sure), viewport=WIDE)
        for line, sample in ((0, 0), (17, 31)):
            hover(page, line, sample)
            shown = facts(page)
            assert shown["Confidence"] == f"{100 * sure.confidence[line, sample]:.0f} %"
            assert shown["Runner-up"] == sure.names[sure.runners_up[line, sample]]
        assert page.locator("#shown option").all_inner_texts()[2] == "Confidence"
        page.select_option("#shown", "confidence")
        assert page.locator("#key .ends span").all_inner_texts() == ["0", "0.5", "1"]
        assert "Mean confidence" in page.inner_text("#clusters")

    def test_the_map_of_high_confidence_shows_differences(self, visit, sure):
        most = replace(sure, confidence=np.where(sure.confidence < 0.01, 0.5, 0.86).astype("f4"))
        page = visit(image_page(most), viewport=WIDE)
        assert page.locator("[data-key=confidence] .ends span").all_inner_texts() == ["≤ 0.8", "0.9", "1"]


class TestCluster:
    def test_a_chosen_cluster_is_highlighted_in_map_and_spectra(self, page, result):
        painted(page, "clusters all")
        shades = [list(parts_of(colour)) for colour in colours(result.names)]
        k = int(result.labels[5, 5])
        other = tuple(np.argwhere(result.labels == (k + 1) % 3)[0].tolist())
        assert colour(page, 5, 5) == shades[k]
        assert colour(page, *other) == shades[(k + 1) % 3]
        page.click(f"#legend [data-cluster='{k}']")
        painted(page, f"clusters {k}")
        assert colour(page, 5, 5) == shades[k]
        assert min(colour(page, *other)) > 200, "the others are faint"
        drawn = curves(page, "cluster-chart")
        assert [name for name, curve in drawn.items() if not curve.faint] == [result.names[k]]
        assert page.locator("#legend [aria-pressed=true]").count() == 1
        page.keyboard.press("Escape")
        painted(page, "clusters all")
        assert not any(curve.faint for curve in curves(page, "cluster-chart").values())
        assert page.is_disabled("#all")

    def test_the_table_and_the_spectra_choose_a_cluster(self, page, result):
        page.click("#clusters [data-cluster='1']")
        painted(page, "clusters 1")
        page.click("#all")
        painted(page, "clusters all")
        path = page.locator("#cluster-chart path").nth(2)
        spot = path.evaluate(
            "(path) => { const point = path.getPointAtLength(0), box = path.ownerSVGElement.getBoundingClientRect();"
            " return [box.left + point.x, box.top + point.y]; }"
        )
        chart = [curve.y[0] for curve in curves(page, "cluster-chart").values()]
        nearest = min(range(3), key=lambda k: abs(chart[k] - chart[2]))
        page.mouse.click(*spot)
        painted(page, f"clusters {nearest}")
        page.mouse.click(*spot)
        painted(page, "clusters all")

    def test_names_are_text_in_the_colours_of_the_map(self, page, result):
        drawn = curves(page, "cluster-chart")
        assert list(drawn) == result.names
        assert [curve.colour for curve in drawn.values()] == colours(result.names)
        for swatches in ("#legend .swatch", "#clusters .swatch"):
            styles = page.locator(swatches).evaluate_all("(all) => all.map((one) => one.getAttribute('style'))")
            assert styles == [f"--colour: {colour}" for colour in colours(result.names)]
        path = page.locator("#cluster-chart path").first.get_attribute("d")
        assert path.count("M") == 2, "a gap at the bad band"
        page.locator("#cluster-chart").scroll_into_view_if_needed()
        box = page.locator("#cluster-chart").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        said = page.inner_text("#cluster-chart .tip")
        assert all(name in said for name in result.names)
        assert LINK in page.inner_text("#clusters")
        assert page.locator("main a").count() == 0


class TestMaps:
    def test_each_map_of_numbers_has_a_colour_bar(self, page, result):
        assert page.locator("#shown option").evaluate_all("(all) => all.map((one) => one.value)") == KEYS
        for key, values in (("margin", result.margins), ("brightness", result.scales), ("residual", result.residuals)):
            page.select_option("#shown", key)
            painted(page, f"{key} all")
            low, high = np.nanpercentile(values, (2, 98))
            ends = page.locator("#key .ends span").all_inner_texts()
            assert ends == [f"≤ {low:.3g}", f"{(low + high) / 2:.3g}", f"≥ {high:.3g}"]
            assert "linear-gradient" in page.locator("#key .bar").evaluate("(bar) => getComputedStyle(bar).background")
        page.select_option("#shown", "truth")
        assert page.locator("#key li").all_inner_texts() == ["tree", "rock", LINK]

    def test_zoom_keeps_the_pixel_and_moves_the_map(self, page):
        click(page, 10, 30)
        before = at(page, 10, 30)
        for _ in range(3):
            page.click("#closer")
        page.wait_for_selector("#scene.zoomed")
        until(lambda: abs(at(page, 10, 30).x - before.x) + abs(at(page, 10, 30).y - before.y) <= 2)
        after = at(page, 10, 30)
        page.mouse.move(after.x, after.y)
        page.mouse.down()
        page.mouse.move(after.x - 80, after.y, steps=4)
        page.mouse.up()
        assert at(page, 10, 30).x == pytest.approx(after.x - 80, abs=2)
        page.mouse.move(2, 2)
        assert page.inner_text("#pixel").startswith("Line 10, sample 30 "), "dragging chooses no pixel"
        page.focus("#scene")
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Shift+ArrowLeft")
        box, spot = page.locator("#scene").bounding_box(), at(page, 10, 10)
        assert box["x"] < spot.x < box["x"] + box["width"], "the map follows the pixel"
        page.click("#whole")
        page.wait_for_selector("#scene:not(.zoomed)")


class TestScreens:
    def test_tall_images_and_many_clusters_take_no_endless_page(self, visit):
        rng = np.random.default_rng(0)
        names = [f"a class with a long name {i}" for i in range(100)]
        truth = Truth(labels=rng.integers(0, 100, (300, 20)), names=names)
        found = cluster(rng.integers(1, 9, (300, 20, 4)), 70, init="random", random_state=0, truth=truth)
        for options in ({"viewport": WIDE}, PHONE):
            page = visit(image_page(found), **options)
            assert page.evaluate("document.documentElement.scrollHeight") < 6500
            assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_a_phone(self, visit, result, scheme):
        page = visit(image_page(result), color_scheme=scheme, **PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wide = page.evaluate(
            "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg, .tip') &&"
            " e.getBoundingClientRect().right > 390).map((e) => e.outerHTML.slice(0, 80))"
        )
        assert wide == []
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
        top, chart = (page.locator(name).bounding_box() for name in ("#scene", "#pixel-chart"))
        assert chart["y"] + chart["height"] - top["y"] < 800, "map and spectrum on one screen"
        page.locator("#map").scroll_into_view_if_needed()
        spot = at(page, 20, 30)
        page.touchscreen.tap(spot.x, spot.y)
        assert page.inner_text("#pixel").startswith("Line 20, sample 30 ")
        page.tap("#legend [data-cluster='1']")
        painted(page, "clusters 1")

    def test_map_and_spectra_are_on_one_screen(self, visit, result):
        for height in (720, 900):
            page = visit(image_page(result), viewport={"width": 1280, "height": height})
            assert page.locator(".explore").bounding_box()["height"] <= height

    def test_themes(self, visit, result):
        page = visit(image_page(result), viewport=WIDE, color_scheme="dark")
        page.click("#legend [data-cluster='0']")
        painted(page, "clusters 0")
        other = np.argwhere(result.labels == 1)[0].tolist()
        assert max(colour(page, *other)) < 80, "faint on a dark page"
        page.click("#theme")
        assert page.inner_text("#theme") == "Dark"
        page.wait_for_function(f"(place) => Math.min(...({COLOUR})(place)) > 200", arg=other)


def pictures(html):
    """The small maps, by their keys, with transparency."""
    found = re.findall(r'data-picture="(\w+)".*?<img src="data:image/\w+;base64,([^"]+)"', html)
    return {key: np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA")) for key, text in found}


def shaded(classes, palette):
    """Classes in their colours; −1 is transparent."""
    shades = np.array([[*parts_of(colour), 255] for colour in palette] + [[255, 255, 255, 0]])
    return shades[classes]


def test_maps_have_the_colours_of_the_clusters(result):
    drawn, palette = pictures(image_page(result)), colours(result.names)
    assert list(drawn) == KEYS
    assert np.array_equal(drawn["clusters"], shaded(result.labels, palette))
    truth = np.where(result.labels >= 0, result.truth.labels, -1)
    by_name = dict(zip(result.names, palette, strict=True))
    assert np.array_equal(drawn["truth"], shaded(truth, [by_name[name] for name in result.truth.names]))
    known = np.array([*result.names, ""])[result.labels]
    right = known == np.array([*result.truth.names, "unknown"])[truth]
    assert np.array_equal(drawn["errors"], shaded(np.where(truth < 0, -1, ~right), [RIGHT, WRONG]))
    assert np.count_nonzero(~right & (truth >= 0)) == 4
    assert (drawn["margin"][..., 3] == np.where(result.labels >= 0, 255, 0)).all()


def test_errors_with_more_clusters_than_materials(result):
    """Each cluster stands for the material that most of its pixels have."""
    two = np.where(result.truth.labels == 2, 1, result.truth.labels)
    merged = with_truth(result, Truth(labels=two, names=["a", "b"]))
    expected = [np.bincount(two[(result.labels == k) & (two >= 0)]).argmax() for k in range(3)]
    assert materials_of(merged).tolist() == expected
    page = image_page(merged)
    assert "Pixels whose cluster holds mostly another material" in page
    only = with_truth(merged, Truth(spectra=np.ones((2, 60))))
    assert list(pictures(image_page(only))) == KEYS[:5], "no truth by pixel"


def test_a_truth_of_labels_only(result):
    labelled = with_truth(result, Truth(labels=(result.labels + 1) % 3))
    assert materials_of(labelled).tolist() == [1, 2, 0]


def test_one_cluster_has_no_runner_up(visit, result):
    one = cluster(with_truth(result, None).cube, 1)
    page = visit(image_page(one), viewport=WIDE)
    assert list(curves(page)) == [f"{one.names[0]} × {float(facts(page)['Brightness']):.2f}", "pixel"]
    assert "Runner-up" not in facts(page)
    assert facts(page)["Margin"] == "none"


def test_many_clusters(visit):
    X = np.random.default_rng(0).integers(1, 9, (20, 20, 4))
    found = cluster(X, 300, init="random", random_state=0)
    page = visit(image_page(found), viewport=WIDE)
    assert page.locator("#legend button").count() == 300
    assert np.array_equal(pictures(image_page(found))["clusters"], shaded(found.labels, colours(found.names)))


def test_spectra_of_a_large_image_are_subsampled(visit, result, monkeypatch):
    monkeypatch.setattr("onmf.image.page.SPECTRA", 20_000)
    page = visit(image_page(result), viewport=WIDE)
    assert "The page contains only the spectra of every 3rd line and sample" in page.inner_text("#map")
    click(page, 16, 31)
    assert page.inner_text("#pixel").startswith("Line 15, sample 30 ")
    values = curves(page)["pixel"].y
    assert values == pytest.approx(result.cube.pixel(15, 30), abs=2e-5 * max(values))


def test_maps_of_a_large_image_are_subsampled(visit, result, monkeypatch):
    monkeypatch.setattr("onmf.image.figures.SIDE", 15)
    html = image_page(result)
    assert np.array_equal(pictures(html)["clusters"], shaded(result.labels[::3, ::3], colours(result.names)))
    page = visit(html, viewport=WIDE)
    assert "The maps show every 3rd line and sample" in page.inner_text("#map")
    click(page, 16, 31)
    assert page.inner_text("#pixel").startswith("Line 16, sample 31 ")
    page.click("#legend [data-cluster='0']")
    painted(page, "clusters 0")


def test_a_million_pixels(visit):
    """The page stays below 12 MB, and choosing a pixel or a cluster takes no time that anyone would notice."""
    rng = np.random.default_rng(0)
    labels = np.add.outer(np.arange(1000) // 50, np.arange(1000) // 70) % 5
    X = (rng.gamma(20, 5, (1000, 1000, 1)) * rng.dirichlet(np.ones(20), 5)[labels]).astype(np.float32)
    found = cluster(X + rng.random(X.shape, np.float32), 5, truth=Truth(labels=labels))
    html = image_page(found)
    assert len(html.encode()) < 12_000_000
    page = visit(html, viewport=WIDE)
    painted(page, "clusters all")
    spent = page.evaluate(
        "(() => { const began = performance.now();"
        " for (let i = 0; i < 20; i++) { onmf.image.show(97 * i); onmf.image.choose(i % 2); }"
        " return performance.now() - began; })()"
    )
    assert spent < 20_000, "milliseconds for 20 of each, generous for busy machines"
    page.click("#legend [data-cluster='3']")
    painted(page, "clusters 3")


def test_comparison_and_notes_appear_only_if_known(result):
    assert "MRSA" in image_page(result)
    page = image_page(replace(with_truth(result, None), notes=["One & two"]))
    assert "MRSA" not in page.partition('<script type="application/json"')[0]
    assert "One &amp; two" in page
    assert list(pictures(page)) == KEYS[:5]


def test_how_many_clusters_there_are(visit, result):
    assert 'id="number"' not in image_page(result), "the number was given"
    found = cluster(result.cube, "auto")
    page = visit(image_page(found), viewport=WIDE)
    levels = {level.name: level.n_clusters for level in found.selection.levels}
    assert levels["medium"] == len(found.spectra) == 3
    marked = page.locator("#number svg text.level").all()
    assert [text.text_content() for text in marked] == [*map(str, levels.values())]
    assert page.locator("#splits tbody tr").count() == 3
    assert "3 clusters were chosen of 2 to " in page.inner_text("#overview")


@pytest.mark.skipif(DATA is None, reason="ONMF_DATA is not set: the paper's data are not at hand")
def test_samson(visit, original):
    """Of the pixels of a real image, as many are wrong in the map of errors as the accuracy says."""
    found = cluster(original("samson_1.img.hdr"), 3, negatives="clip", truth=original("end3.mat"))
    page = visit(image_page(found), viewport=WIDE)
    page.select_option("#shown", "errors")
    painted(page, "errors all")
    assert f"{1 - found.comparison.accuracy:.1%}" in page.inner_text("#key")
