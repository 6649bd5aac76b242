"""The report on documents in a browser."""

import json
import re
from html import unescape

import numpy as np
import pytest

from conftest import PATIENCE
from onmf.datasets import docstring_texts
from onmf.report import documents_report, embed, render_page, write_documents_report
from onmf.report.charts import cluster_map, colours, positions
from onmf.text import Text, cluster_documents, make_vectorizer

EVIL = [
    "</script><script>window.hacked = 1</script> tea tea cup",
    "<img src=x onerror='window.hacked = 1'> tea tea",
    "<!--<script> milk cow <b>bold</b> & 'quoted' \"twice\" \u2028 {{ 7 * 7 }}",
    "milk cow <svg onload=window.hacked=1> javascript:window.hacked=1",
]


@pytest.fixture(scope="module")
def corpus():
    return cluster_documents([Text(name, text, part) for name, text, part in docstring_texts()], 13)


@pytest.fixture(scope="module")
def evil():
    texts = [Text(f"<script>window.hacked = 1</script> {i}", text, f"<i>{i % 2}</i>") for i, text in enumerate(EVIL)]
    return cluster_documents([*texts, Text("empty", "1 2", None)], 2)


LINK = '<a href="https://example.org/">'


@pytest.fixture(scope="module")
def links():
    """Clusters with words and classes that Plotly would turn into links."""
    word = '<a\xa0href="https://example.org/">tea</a>'
    texts = [Text(f"{LINK}{i}</a>", (word + " tea ", "milk cow ")[i % 2] * 3, f"{LINK}{i % 2}</a>") for i in range(6)]
    return cluster_documents(texts, 2, vectorizer=make_vectorizer(token_pattern=r"[^ ]+"))


def count(page):
    return page.inner_text("#count")


class TestInTheBrowser:
    def test_cluster_search_and_filter(self, visit, corpus):
        page = visit(documents_report(corpus, title="SciPy"))
        n = len(corpus.ids)
        assert page.title() == page.inner_text("h1") == "SciPy"
        assert count(page) == f"{n:,} of {n:,} documents"
        assert page.locator("article.card").count() == 13
        page.click("article.card >> nth=4 >> text=Show its documents")
        assert count(page) == f"{corpus.sizes[4]:,} of {n:,} documents"
        assert page.input_value("#filter") == "4"
        assert page.evaluate("document.activeElement.id") == "search"
        page.fill("#search", "SCIPY.stats")
        matches = sum(corpus.clusters[i] == 4 and "scipy.stats" in corpus.ids[i] for i in range(n))
        excerpts = [corpus.excerpts[i][:100].lower() for i in range(n)]
        matches += sum(
            corpus.clusters[i] == 4 and "scipy.stats" not in corpus.ids[i] and "scipy.stats" in excerpts[i]
            for i in range(n)
        )
        assert count(page) == f"{matches:,} of {n:,} documents"
        page.click("#clear")
        page.select_option("#filter", "7")
        assert count(page) == f"{corpus.sizes[7]:,} of {n:,} documents"
        page.click("#clear")
        assert page.locator("#table tbody tr").count() == 50
        page.click("#next")
        assert page.inner_text("#page") == f"Page 2 of {-(-n // 50)}"

    def test_clicking_the_map_filters_the_documents(self, visit, corpus):
        page = visit(documents_report(corpus))
        assert page.locator("[data-figure=map] .point").count() == 13
        largest = int(np.argmax(corpus.sizes))
        page.locator("[data-figure=map] .point").nth(largest).scroll_into_view_if_needed()
        box = page.locator("[data-figure=map] .point").nth(largest).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.up()
        page.wait_for_function("document.getElementById('filter').value !== ''")
        k = int(page.input_value("#filter"))
        assert count(page) == f"{corpus.sizes[k]:,} of {len(corpus.ids):,} documents"

    def test_sorting(self, visit, corpus):
        page = visit(documents_report(corpus))
        page.click("button[data-sort=margin]")
        column = page.locator("#table tbody tr td:nth-child(3)")
        values = [float(text) for text in column.all_inner_texts()]
        assert values == sorted(values)
        assert values[0] == pytest.approx(corpus.margins.min(), abs=1e-3)
        page.click("button[data-sort=margin]")
        values = [float(text) for text in column.all_inner_texts()]
        assert values == sorted(values, reverse=True)
        assert page.locator("th[aria-sort=descending]").count() == 1

    def test_texts_are_not_interpreted_as_html(self, visit, evil):
        page = visit(documents_report(evil, title="<script>window.hacked = 1</script>"))
        assert page.inner_text("h1") == "<script>window.hacked = 1</script>"
        assert page.locator("main script, main img, main svg[onload], main b >> visible=true").count() == 0
        table = page.inner_text("#table")
        for text in EVIL:
            assert " ".join(text.split())[:60] in table
        assert "<script>window.hacked = 1</script> 0" in table
        assert "{{ 7 * 7 }}" in table
        page.select_option("#filter", "-1")
        assert "set aside" in page.inner_text("#table")
        page.fill("#search", "<img src=x onerror='window.hacked = 1'>")
        page.wait_for_timeout(100)

    def test_charts_do_not_interpret_html(self, visit, links):
        page = visit(documents_report(links, title=f"{LINK}title</a>"), viewport={"width": 1200, "height": 900})
        ticks = page.locator("[data-figure=classes] .ytick text").all_text_contents()
        assert sorted(ticks) == [f"{LINK}0</a>", f"{LINK}1</a>"]
        for place in ("[data-figure=classes] .xtick text", "[data-figure=map] .textpoint"):
            assert any("<a href" in text.replace("\xa0", " ") for text in page.locator(place).all_text_contents())
        for name, target in (("classes", ".nsewdrag"), ("map", ".point")):
            chart = page.locator(f"[data-figure={name}] {target}").first
            chart.scroll_into_view_if_needed()
            box = chart.bounding_box()
            page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
            page.mouse.move(box["x"] + box["width"] / 2.5, box["y"] + box["height"] / 2.5)
            page.wait_for_selector(f"[data-figure={name}] .hoverlayer .hovertext")
            texts = page.locator(f"[data-figure={name}] .hoverlayer").text_content()
            assert (LINK in texts) == (name == "classes")
        assert page.locator("svg a").count() == 0
        external = "[...document.querySelectorAll('a')].filter((a) => !a.getAttribute('href').startsWith('#')).length"
        assert page.evaluate(external) == 0

    def test_the_policy_blocks_injected_scripts(self, browser, tmp_path, evil):
        html = documents_report(evil).replace("</main>", "<script>window.hacked = 1</script></main>")
        (tmp_path / "broken.html").write_text(html)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto((tmp_path / "broken.html").as_uri())
        page.wait_for_selector("[data-figure=map] .main-svg")
        assert page.evaluate("window.hacked") is None
        page.close()

    def test_small_screen_and_dark_theme(self, visit, corpus):
        page = visit(documents_report(corpus), viewport={"width": 375, "height": 700}, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        assert page.inner_text("#theme") == "Dark"

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_contrast(self, visit, corpus, scheme):
        page = visit(documents_report(corpus), color_scheme=scheme)
        colours = page.evaluate(
            "(() => { const s = getComputedStyle(document.documentElement);"
            "return ['--ink', '--soft', '--accent', '--card', '--back'].map((n) => s.getPropertyValue(n).trim()); })()"
        )
        *foregrounds, card, back = map(luminance, colours)
        for foreground in foregrounds:
            for background in (card, back):
                low, high = sorted((foreground, background))
                assert (high + 0.05) / (low + 0.05) >= 4.5

    def test_the_keyboard_reaches_everything(self, visit, corpus):
        page = visit(documents_report(corpus))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.focus("article.card >> nth=2 >> button")
        page.keyboard.press("Enter")
        assert page.input_value("#filter") == "2"
        page.focus("button[data-sort=id]")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=ascending]").count() == 1
        unnamed = page.evaluate(
            "[...document.querySelectorAll('[data-figure]')].filter((e) => !e.getAttribute('aria-label')).length"
        )
        assert unnamed == 0


def luminance(colour):
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_embedded_data_cannot_close_their_script():
    data = {"text": [*EVIL, "\u2029", "\ud800"], "numbers": np.arange(3), "one": np.float64(0.5)}
    text = embed(data)
    assert "<" not in text
    assert "\u2028" not in text
    again = json.loads(text)
    assert again["text"][:4] == EVIL
    assert again["numbers"] == [0, 1, 2]
    with pytest.raises(TypeError, match="object cannot be embedded"):
        embed({"what": object()})


def test_the_page_refers_to_no_other_resource(corpus):
    html = documents_report(corpus)
    head, _, rest = html.partition('<script type="application/json"')
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", head)
    assert "default-src 'none'" in unescape(head)
    assert rest.count("<script>") == 3


def test_notes_and_comparison_appear_only_if_known(evil, corpus):
    assert "1 document without a word that counts, set aside: empty." in documents_report(evil)
    page = documents_report(cluster_documents(["tea", "milk"], 2))
    assert 'id="classes"' not in page
    assert 'id="classes"' in documents_report(corpus)


def test_the_size_of_twenty_thousand_documents(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("nd", "rst", "lm", "x")])
    texts = [
        Text(f"folder/of/some/length/document-{i:06}.txt", " ".join(rng.choice(words, 60)), None) for i in range(20_000)
    ]
    write_documents_report(tmp_path / "report.html", cluster_documents(texts, 5, max_iter=5, tol=1))
    assert (tmp_path / "report.html").stat().st_size < 8_000_000


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_the_map_has_a_position_for_each_cluster(k):
    C = np.random.default_rng(k).dirichlet(np.ones(12), size=k)
    plane = positions(C)
    assert plane.shape == (k, 2)
    assert np.isfinite(plane).all()
    assert np.isfinite(positions(-C)).all()
    figure = cluster_map(C, np.arange(k), ["a"] * k, ["b"] * k)
    assert len(set(figure["data"][0]["marker"]["color"])) == k
    assert len(set(colours(30))) == 30


def test_three_points_keep_their_distances():
    C = np.array([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 0.5, 0.5]])
    plane = positions(C)
    near, far = np.linalg.norm(plane[0] - plane[1]), np.linalg.norm(plane[0] - plane[2])
    assert far == pytest.approx(np.sqrt(np.log(2)))
    assert near < far / 3


def test_a_missing_value_in_a_template_is_an_error(corpus):
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render_page("documents.html", title="x", script="documents.js", data={})
