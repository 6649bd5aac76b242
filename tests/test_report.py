"""The report on documents in a browser."""

import json
import re
import sys
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

import onmf
from conftest import PATIENCE, make_nested_counts, until
from onmf.datasets import docstring_texts
from onmf.door import Table
from onmf.hierarchy import merge_clusters
from onmf.report import embed, render_page, rows_page
from onmf.report.rows import SCRIPTS
from onmf.text import Text, cluster, make_vectorizer, predict

WIDE = {"width": 1280, "height": 900}
EVIL = [
    "</script><script>window.hacked = 1</script> tea tea cup",
    "<img src=x onerror='window.hacked = 1'> tea tea",
    "<!--<script> milk cow <b>bold</b> & 'quoted' \"twice\" \u2028 {{ 7 * 7 }}",
    "milk cow <svg onload=window.hacked=1> javascript:window.hacked=1",
]


@pytest.fixture(scope="module")
def corpus():
    return cluster([Text(name, text, part) for name, text, part in docstring_texts()], 13, quick=True)


@pytest.fixture(scope="module")
def evil():
    texts = [Text(f"<script>window.hacked = 1</script> {i}", text, f"<i>{i % 2}</i>") for i, text in enumerate(EVIL)]
    return cluster([*texts, Text("empty", "1 2", None)], 2)


LINK = '<a href="https://example.org/">'


@pytest.fixture(scope="module")
def links():
    """Clusters with words and classes that Plotly would turn into links."""
    word = '<a\xa0href="https://example.org/">tea</a>'
    texts = [Text(f"{LINK}{i}</a>", (word + " tea ", "milk cow ")[i % 2] * 3, f"{LINK}{i % 2}</a>") for i in range(6)]
    return cluster(texts, 2, vectorizer=make_vectorizer(token_pattern=r"[^ ]+"))


@pytest.fixture(scope="module")
def report(corpus):
    return rows_page(corpus, title="SciPy")


@pytest.fixture(scope="module")
def dated():
    """Documents with dates in three years, one of which cannot be read."""
    days = ["2021-03-01", "2021-05-01", "2022-03-09", "2022-04-09", "2023-01-02", "soon"]
    texts = [("red tea and green tea", "cow milk, fresh milk")[i % 2] for i in range(6)]
    return cluster([Text(str(i), text, None, day) for i, (text, day) in enumerate(zip(texts, days, strict=True))], 2)


def count(page):
    return page.inner_text("#count")


def opened(page):
    """Wait until the texts of a page are unpacked."""
    page.wait_for_function("() => document.documentElement.dataset.ready === 'yes'")
    return page


def slide(page, left, most=24):
    """Merge until so many clusters are left, and show them; the page shows so many at most at first."""
    page.locator("#level").fill(str(left))
    page.wait_for_function("left => onmf.rows.merged.left === left", arg=left)
    show_section(page, "clusters", "article.card", min(left, most))


def show_section(page, section, parts, number):
    """Scroll to a section, which is drawn when it comes into view, and wait until it has so many parts."""
    page.evaluate("section => document.getElementById(section).scrollIntoView()", section)
    page.wait_for_function(
        "([parts, number]) => document.querySelectorAll(parts).length === number", arg=[parts, number]
    )


def cells_of(page, table):
    """The texts of the cells of a table, row by row."""
    script = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    return page.locator(f"{table} tbody tr").evaluate_all(script)


class TestInTheBrowser:
    @pytest.mark.short("one page of each report is opened in a browser")
    def test_cluster_search_and_filter(self, visit, corpus, report):
        page = opened(visit(report))
        n = len(corpus.table.rows)
        assert page.title() == page.inner_text("h1") == "SciPy"
        assert count(page) == f"{n:,} of {n:,} documents"
        assert page.locator("article.card").count() == 13
        page.click("#cluster-4 >> text=Show its documents")
        page.wait_for_function("() => document.activeElement.id === 'search'")
        assert count(page) == f"{corpus.sizes[4]:,} of {n:,} documents"
        assert page.input_value("#filter") == "4"
        page.fill("#search", "SCIPY.stats")
        texts = [f"{name} {text}".lower() for name, text in zip(corpus.table.rows, corpus.table.excerpts, strict=True)]
        matches = sum(corpus.labels[i] == 4 and "scipy.stats" in texts[i] for i in range(n))
        assert count(page) == f"{matches:,} of {n:,} documents"
        page.click("#clear")
        page.select_option("#filter", "7")
        assert count(page) == f"{corpus.sizes[7]:,} of {n:,} documents"
        page.click("#clear")
        assert page.locator("#table tbody tr").count() == 25
        page.click("#next")
        assert page.inner_text("#page") == f"Page 2 of {-(-n // 25)}"

    def test_the_search_covers_all_text_that_is_kept(self, visit, corpus, report):
        page = opened(visit(report))
        i = max(range(len(corpus.table.rows)), key=lambda i: len(corpus.table.excerpts[i]))
        ending = corpus.table.excerpts[i].rstrip("…")[-30:]
        page.fill("#search", ending)
        assert corpus.table.rows[i] in page.inner_text("#table")

    def test_cards_come_by_size(self, visit, corpus, report):
        page = visit(report)
        order = page.eval_on_selector_all("article.card", "cards => cards.map((card) => Number(card.id.split('-')[1]))")
        assert [corpus.sizes[k] for k in order] == sorted(corpus.sizes, reverse=True)
        page.click("article.card >> nth=0 >> text=Typical documents")
        page.wait_for_selector("article.card:first-child details[open] li")
        first = page.inner_text("article.card:first-child details[open] li .id >> nth=0")
        assert corpus.labels[corpus.table.rows.index(first)] == order[0]

    def test_a_click_opens_the_document_with_the_words_that_decided(self, visit, corpus, report):
        page = opened(visit(report))
        name = corpus.table.rows[100]
        page.fill("#search", name)
        page.click(f"#table button:text-is('{name}')")
        page.wait_for_selector("#reader[open]")
        assert page.inner_text("#reader-title") == name
        body = page.inner_text("#reader-body")
        B = corpus.model.divergence_.templates(corpus.model.cluster_centers_)
        x = corpus.counts[[100]].toarray().ravel()
        scores = B @ x
        own = corpus.labels[100]
        scores[own] = -np.inf
        runner = int(scores.argmax())
        assert f"for the runner-up, {runner + 1}:" in body
        weights = x * (B[own] - B[runner])
        best = int(np.abs(weights).argmax())
        rows = page.locator("#reader .deciding li")
        assert rows.count() == 8
        first = rows.first.locator("span").all_inner_texts()
        assert first[0] == corpus.words[best]
        assert float(first[-1].replace("−", "-")) == pytest.approx(weights[best], abs=0.06)
        page.keyboard.press("Escape")
        page.wait_for_selector("#reader", state="hidden")

    def test_a_point_of_the_map_opens_its_document(self, visit, corpus, report):
        page = opened(visit(report, viewport=WIDE))
        page.locator("#points").scroll_into_view_if_needed()
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # tips hide
        at = page.evaluate("onmf.rows.map.at(17)")
        page.mouse.move(at["x"], at["y"])
        page.wait_for_selector("#tip", state="visible")
        hovered = page.inner_text("#tip").splitlines()[0]
        page.mouse.down()
        page.mouse.up()
        page.wait_for_selector("#reader[open]")
        assert page.inner_text("#reader-title") == hovered

    @pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, {"width": 390, "height": 800}])
    def test_labels_of_the_map_do_not_collide(self, visit, report, size):
        page = visit(report, viewport=size)
        labels, width, step = page.evaluate(
            "(() => { const c = document.getElementById('points');"
            "return [onmf.rows.map.labels, c.width, 15 * c.width / c.clientWidth]; })()"
        )
        assert len(labels) >= 4
        for i, one in enumerate(labels):
            assert one["half"] <= one["x"] + 1e-6
            assert one["x"] <= width - one["half"] + 1e-6
            for other in labels[:i]:
                apart = abs(one["x"] - other["x"]) >= one["half"] + other["half"]
                assert apart or abs(one["y"] - other["y"]) >= step

    def test_colours_of_the_map(self, visit, corpus, report):
        page = opened(visit(report, viewport=WIDE))
        painted = "document.getElementById('points').toDataURL()"
        pictures = [page.evaluate(painted)]
        for what in ("class", "sure"):
            page.select_option("#colour", what)
            pictures.append(page.evaluate(painted))
            names = page.locator("#legend button span:nth-child(2)").all_inner_texts()
            assert (names == corpus.comparison.classes) == (what == "class")
        assert len(set(pictures)) == 3
        page.click("#legend button >> nth=2")
        assert page.locator("#legend [aria-pressed=true]").count() == 1
        assert page.evaluate(painted) != pictures[2]

    def test_merging(self, visit, corpus, report):
        page = opened(visit(report, viewport=WIDE))
        tree = merge_clusters(
            np.array([corpus.counts[np.flatnonzero(corpus.labels == k)].sum(axis=0) for k in range(13)])
        )
        page.select_option("#filter", str(tree.pairs[0][0]))
        page.click("#fewer")
        page.wait_for_function("() => onmf.rows.merged.left === 12")
        show_section(page, "clusters", "article.card", 12)
        assert page.locator("#legend button").count() == 12
        assert page.input_value("#filter") == "13"
        together = corpus.sizes[tree.pairs[0]].sum()
        assert count(page) == f"{together:,} of {len(corpus.table.rows):,} documents"
        assert "12 of 13 clusters" in page.inner_text("#level-text")
        slide(page, 4)
        assert page.locator("article.card").count() == 4
        groups = tree.labels(4)[corpus.labels]
        sizes = sorted(np.bincount(groups), reverse=True)
        shown = page.locator("article.card .size").all_inner_texts()
        assert [int(text.split()[0].replace(",", "")) for text in shown] == sizes
        assert page.evaluate("onmf.rows.map.labels.length") <= 4
        page.locator("#dendrogram circle[data-left='8']").click()
        page.wait_for_function("() => onmf.rows.merged.left === 8")
        assert page.input_value("#level") == "8"
        slide(page, 1)
        assert page.locator("article.card").count() == 1
        slide(page, 13)
        assert page.inner_text("#level-text") == "13 clusters, as found"
        lost = page.evaluate("onmf.data.lost")
        assert lost == pytest.approx(np.cumsum(tree.costs) / tree.costs.sum(), abs=1e-5)

    def test_sorting(self, visit, corpus, report):
        page = opened(visit(report, viewport=WIDE))
        page.click("button[data-sort=sure]")
        column = page.locator("#table tbody tr td:nth-child(4)")

        def shown():
            return [float(text) for text in column.all_inner_texts()]

        until(lambda: (values := shown()) == sorted(values) and len(values) > 1)  # rows are drawn after the click
        assert shown()[0] == pytest.approx(np.nanmin(corpus.confidence), abs=1e-3)
        page.click("button[data-sort=sure]")
        until(lambda: (values := shown()) == sorted(values, reverse=True) and len(values) > 1)
        assert page.locator("th[aria-sort=descending]").count() == 1
        mark = "getComputedStyle(document.querySelector('th[aria-sort=descending] button'), '::after').content"
        assert "▼" in page.evaluate(mark)
        assert page.input_value("#sort") == "sure"
        page.select_option("#sort", "id")
        names = page.locator("#table tbody tr td:first-child").all_inner_texts()
        assert names[0] == min(corpus.table.rows, key=str.lower)

    def test_classes_against_clusters(self, visit, corpus, report):
        page = opened(visit(report, viewport=WIDE))
        page.locator("#classes").scroll_into_view_if_needed()
        page.wait_for_selector("#class-table tbody tr")
        assert page.locator("#class-table tbody tr").count() == 13
        counts = corpus.comparison.table
        assert page.locator("#class-table button").count() == np.count_nonzero(counts)
        name, size = corpus.comparison.classes[0], int(counts[0].max())
        page.click(f"#class-table button[data-pair='0 {counts[0].argmax()}']")
        page.wait_for_function("() => document.activeElement.id === 'search'")
        assert count(page) == f"{size:,} of {len(corpus.table.rows):,} documents"
        assert page.locator("#class-filter option:checked").inner_text() == name
        page.select_option("#class-order", "name")
        heads = page.locator("#class-table tbody th").all_inner_texts()
        assert heads == sorted(heads)

    def test_clusters_over_time(self, visit, dated):
        page = opened(visit(rows_page(dated)))
        charts = page.locator("#times .time")
        assert charts.count() == 3
        assert "2021-03" in charts.first.inner_text()
        assert page.locator("#times .time >> nth=0 >> rect.hit").count() == 23
        tips = charts.nth(1).locator("rect.hit").evaluate_all("bars => bars.map((bar) => bar.dataset.tip)")
        assert "2021-03: 1 of 1 documents (100.0 %)" in tips
        assert "1 date not understood: “soon” (document 5). Write dates as 2024-03-01." in page.inner_text("#overview")
        slide(page, 1)
        show_section(page, "time", "#times .time", 2)
        page.select_option("#sort", "date")
        assert "2023-01-02" in page.inner_text("#table tbody tr:last-child")

    def test_texts_are_not_interpreted_as_html(self, visit, evil):
        page = opened(visit(rows_page(evil, title="<script>window.hacked = 1</script>")))
        assert page.inner_text("h1") == "<script>window.hacked = 1</script>"
        assert page.locator("main script, main img, main svg[onload], main b >> visible=true").count() == 0
        page.set_viewport_size(WIDE)
        table = page.inner_text("#table")
        for text in EVIL:
            assert " ".join(text.split())[:60] in table
        assert "<script>window.hacked = 1</script> 0" in table
        assert "{{ 7 * 7 }}" in table
        page.select_option("#filter", "-1")
        assert "unassigned" in page.inner_text("#table")
        page.fill("#search", "<img src=x onerror='window.hacked = 1'>")
        page.wait_for_timeout(100)

    def test_names_are_not_interpreted_as_html(self, visit, links):
        page = opened(visit(rows_page(links, title=f"{LINK}title</a>"), viewport=WIDE))
        page.locator("#classes").scroll_into_view_if_needed()
        page.wait_for_selector("#class-table tbody tr")
        assert sorted(page.locator("#class-table tbody th").all_inner_texts()) == [f"{LINK}0</a>", f"{LINK}1</a>"]
        assert any("<a href" in text for text in page.locator("#dendrogram text").all_text_contents())
        assert any("<a href" in text for text in page.locator("article.card h3").all_inner_texts())
        page.click("#table button.link >> nth=0")
        page.wait_for_selector("#reader[open]")
        assert LINK in page.inner_text("#reader-title")
        assert page.locator("svg a").count() == 0
        external = "[...document.querySelectorAll('a')].filter((a) => !a.getAttribute('href').startsWith('#')).length"
        assert page.evaluate(external) == 0

    def test_the_policy_blocks_injected_scripts(self, browser, tmp_path, evil):
        html = rows_page(evil).replace("</main>", "<script>window.hacked = 1</script></main>")
        (tmp_path / "broken.html").write_text(html)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto((tmp_path / "broken.html").as_uri())
        opened(page)
        assert page.evaluate("window.hacked") is None
        page.close()

    def test_small_screen_and_dark_theme(self, visit, report):
        page = opened(visit(report, viewport={"width": 390, "height": 800}, color_scheme="dark"))
        for left in (13, 5):
            slide(page, left, most=8)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.evaluate("document.documentElement.scrollHeight") < 14_000
        label, slider = (page.locator(name).bounding_box() for name in (".level label", "#level"))
        assert page.locator(".level label").is_visible()
        assert label["x"] + label["width"] <= slider["x"], "the label stands beside the slider"
        assert abs(label["y"] + label["height"] / 2 - slider["y"] - slider["height"] / 2) < 8
        assert slider["width"] >= 80
        outside = page.evaluate(
            "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg, dialog, .tip, .skip') &&"
            "e.getBoundingClientRect().width && e.getBoundingClientRect().right > 391).length"
        )
        assert outside == 0
        page.click("#table button.link >> nth=0")
        page.wait_for_selector("#reader[open]")
        assert page.locator("#reader").bounding_box()["width"] <= 390
        page.click("#reader-close")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        assert page.inner_text("#theme") == "Dark"

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_contrast(self, visit, report, scheme):
        page = visit(report, color_scheme=scheme)
        colours = page.evaluate(
            "(() => { const s = getComputedStyle(document.documentElement);"
            "return ['--ink', '--soft', '--accent', '--card', '--back'].map((n) => s.getPropertyValue(n).trim()); })()"
        )
        *foregrounds, card, back = map(luminance, colours)
        for foreground in foregrounds:
            for background in (card, back):
                low, high = sorted((foreground, background))
                assert (high + 0.05) / (low + 0.05) >= 4.5

    def test_the_keyboard_reaches_everything(self, visit, corpus, report):
        page = opened(visit(report))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.focus("#cluster-2 button[data-cluster]")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.getElementById('filter').value === '2'")
        page.focus("button[data-sort=id]")
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=ascending]").count() == 1
        page.focus("#level")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("() => onmf.rows.merged.left === 12")


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


def test_the_page_refers_to_no_other_resource(report):
    head, _, rest = report.partition('<script type="application/json"')
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", head)
    assert "default-src 'none'" in unescape(head)
    assert rest.count("<script>") == 3 + len(SCRIPTS)


def test_notes_and_comparison_appear_only_if_known(evil, report):
    assert "1 document without a usable word, unassigned: empty." in rows_page(evil)
    page = rows_page(cluster(["tea", "milk"], 2))
    assert 'id="classes"' not in page
    assert 'id="time"' not in page
    assert 'id="classes"' in report


def test_the_header_says_how_the_clusters_were_made():
    texts = ["red tea", "green tea", "cow milk", "goat milk"]
    voted = rows_page(cluster(texts, 2, n_consensus=6))
    assert "2 clusters, kullback-leibler, a vote of 6 runs in 3 views of the words</p>" in voted
    assert "factorization: a vote of 6 runs in 3 views of the words." in voted
    assert "Iterations" not in voted
    quick = rows_page(cluster(texts, 2, quick=True))
    assert "2 clusters, kullback-leibler, start snpa</p>" in quick
    assert "factorization: 2 iterations, converged." in quick
    assert "a vote of" not in quick
    assert "2 clusters, β = 0.5, start snpa</p>" in rows_page(cluster(texts, 2, quick=True, beta_loss=0.5))


def test_how_many_clusters_there_are(visit, report):
    X, levels = make_nested_counts()
    names = [[f"{noun}{i}" for i in range(number)] for noun, number in zip(("row", "word"), X.shape, strict=True)]
    found = onmf.table.cluster(Table(X, *names), "auto", quick=True)
    selection, numbers = found.selection, {level.name: level.n_clusters for level in found.selection.levels}
    assert list(numbers) == ["coarse", "medium", "fine"]
    page = visit(rows_page(found))
    said = page.inner_text("#number p >> nth=0")
    assert said.startswith("2 coarse (agreement 1.00), 6 medium (agreement 1.00), ")
    assert said.endswith(f"{numbers['fine']} fine (agreement {selection.levels[2].agreement:.2f}). This page shows 6.")

    drawing, tried = page.locator("#number svg"), len(selection.numbers)
    assert drawing.locator("circle").count() == tried
    assert drawing.locator("line.choice").count() == 3
    marked = [dot.text_content() for dot in drawing.locator("circle.level title").all()]
    assert [text.split(":")[0] for text in marked] == [f"{k} clusters" for k in numbers.values()]
    assert [text.split()[-1] for text in marked] == [f"({name})" for name in numbers]
    assert [text.text_content() for text in drawing.locator("text.level").all()] == [*map(str, numbers.values())]
    curves = [line.get_attribute("points").split() for line in drawing.locator("polyline").all()]
    assert [len(points) for points in curves] == [tried, tried], "counts without structure and the data"
    lower, higher = ([float(point.split(",")[1]) for point in points] for points in curves)
    differ = np.array(lower) - higher  # downwards
    assert differ == pytest.approx(differ[0] * (gap := selection.agreement - selection.chance) / gap[0], abs=0.3)
    page.click("#number summary")
    rows = cells_of(page, "#tried")
    assert [[int(row[0]), *map(float, row[1:3]), row[3]] for row in rows] == [
        [row["n_clusters"], round(row["agreement"], 3), round(row["chance"], 3), row["level"]]
        for row in selection.table()
    ]
    assert page.locator("#tried tr.level").count() == 3

    rows = cells_of(page, "#splits")
    clusters = [int(row[1].partition(":")[0]) - 1 for row in rows]
    assert sorted(clusters) == list(range(6))
    groups = [levels[found.labels == k, 0] for k in clusters]
    assert [len(set(group)) for group in groups] == [1] * 6
    letters = ["AB"[int(group[0] != groups[0][0])] for group in groups]
    assert [row[0] for row in rows] == letters == ["A"] * 3 + ["B"] * 3, "the two groups, with three clusters each"
    assert [row[2] for row in rows] == ["100%"] * 6
    assert sum(row[3].count("%") - 1 for row in rows if row[3]) >= numbers["fine"] - 6 - 1
    assert all(98 <= sum(int(part.strip(" %")) for part in row[3].split("+")) <= 102 for row in rows if row[3])
    assert page.inner_text("#splits thead").strip().split("\t") == ["Coarse", "Cluster", "Found by", "Splits into"]

    marks = page.locator("#levels option").all()
    assert [(mark.get_attribute("value"), mark.get_attribute("label")) for mark in marks] == [
        *(("2", "coarse"), ("6", "medium"))
    ]
    assert page.get_attribute("#level", "list") == "levels"
    page.locator("#level").fill("2")
    page.wait_for_function("() => onmf.rows.merged.left === 2")
    assert page.inner_text("#level-text").startswith("2 of 6 clusters, the coarse level; ")
    page.locator("#level").fill("3")
    page.wait_for_function("() => onmf.rows.merged.left === 3")
    assert page.inner_text("#level-text").startswith("3 of 6 clusters; ")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert 'id="number"' not in report, "the number was given"
    two = replace(found, selection=replace(selection, levels=selection.levels[:2]))
    assert visit(rows_page(two)).inner_text("#splits thead").strip().split("\t") == ["Coarse", "Cluster", "Found by"]


@pytest.mark.long("larger data")
def test_the_size_of_twenty_thousand_documents(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("nd", "rst", "lm", "x")])
    texts = [
        Text(f"folder/of/some/length/document-{i:06}.txt", " ".join(rng.choice(words, 100)), None)
        for i in range(20_000)
    ]
    monkeypatch.setitem(sys.modules, "openTSNE", None)  # it would take half a minute
    monkeypatch.setattr("onmf.report.rows.find_spec", lambda name: None)
    cluster(texts, 5, quick=True, max_iter=5, tol=1).report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 12_000_000
    assert "Made by the first two singular vectors of log-tf-idf." in (tmp_path / "report.html").read_text()


def test_of_very_many_documents_some_are_shown(visit, corpus, monkeypatch):
    monkeypatch.setattr("onmf.report.rows.MOST_ROWS", 200)
    page = opened(visit(rows_page(corpus)))
    assert "show 200 of the 1," in page.inner_text("#overview")
    assert count(page) == "200 of 200 documents"
    assert page.evaluate("onmf.rows.mapped.length") == 200
    assert f"{len(corpus.table.rows):,}" in page.inner_text(".facts"), "facts and sizes are of all documents"


def test_counts_in_shards_give_the_same_page(tmp_path):
    texts = [("red tea", "green tea tea", "cow milk", "milk of a cow")[i % 4] for i in range(30)]
    pages = [
        rows_page(cluster(texts, 2, shards=folder, quick=True), title="x") for folder in (None, tmp_path / "counts")
    ]
    assert pages[0] == pages[1]


def test_a_page_without_a_map(visit, corpus):
    page = opened(visit(rows_page(corpus, map="none"), viewport=WIDE))
    assert page.locator("#points, #map, nav a[href='#map'], #legend").count() == 0
    assert "map" not in page.inner_text("#how").lower()
    slide(page, 3)
    assert page.locator("article.card").count() == 3
    page.fill("#search", "bessel")
    page.locator("#table [data-document]").first.click()
    assert page.locator("#reader").is_visible()


def test_a_quick_run_has_a_quick_map(report):
    assert ", for 647 at random; the others stand beside their nearest neighbours among these." in report


@pytest.mark.parametrize("n_far", [0, 1, 6])
def test_a_few_far_points_lie_outside_of_the_frame(visit, corpus, monkeypatch, n_far):
    places = np.random.default_rng(0).uniform(size=(len(corpus.labels), 2))
    places[:n_far] = np.array([[9.0, 0.5], [8.0, 0.4], [0.5, 7.0], [8.5, 0.5], [9.5, 0.5], [9.5, 0.6]])[:n_far]
    monkeypatch.setattr("onmf.report.rows.map_of_rows", lambda X, progress, quick: (places, "hand"))
    page = opened(visit(rows_page(corpus), viewport=WIDE))
    names, told = corpus.table.rows, page.locator("#far")
    assert page.evaluate("onmf.rows.map.far") == list(range(n_far))
    seen = "Array.from({ length: 6 }, (_, i) => onmf.rows.map.at(i)).map(({ x, y }) => [x, y])"
    page.locator("#points").scroll_into_view_if_needed()

    def inside(i):
        (x, y), box = page.evaluate(seen)[i], page.locator("#points").bounding_box()
        return 0 <= x - box["x"] <= box["width"] and 0 <= y - box["y"] <= box["height"]

    if not n_far:
        assert told.is_hidden()
        assert inside(0)
        return
    said = f"1 document lies outside of the frame: to the right {names[0]}."
    if n_far == 6:
        right = ", ".join(names[i] for i in (0, 1, 3))
        said = f"6 documents lie outside of the frame: to the right {right} and 2 more; above {names[2]}."
    assert told.locator("span").inner_text() == said
    assert not inside(0)
    assert page.locator("#whole").is_hidden()
    told.locator("button").click()
    page.wait_for_selector("#whole", state="visible")
    assert all(inside(i) for i in range(n_far))
    assert told.locator("button").is_disabled()
    page.click("#closer")
    for _ in range(30):  # the frame is a stop on the way in, and on the way out
        page.click("#closer")
    assert page.evaluate("onmf.rows.map.view.zoom") == 40
    page.focus("#points")
    for _ in range(10):
        page.keyboard.press("-")
    page.wait_for_selector("#whole", state="hidden")
    page.keyboard.press("-")
    page.wait_for_selector("#whole", state="visible")
    assert page.evaluate("onmf.rows.map.view.zoom") < 1
    page.click("#whole")
    page.wait_for_selector("#whole", state="hidden")
    assert not inside(0)


def test_if_all_documents_are_unassigned_there_is_no_map(visit, evil):
    page = opened(visit(rows_page(predict(evil, ["1 2", "coffee"]))))
    assert page.locator("#points").count() == 0
    assert page.locator("article.card").count() == 2
    assert count(page) == "2 of 2 documents"


def test_documents_that_were_assigned_to_a_model(visit, corpus):
    page = opened(visit(rows_page(predict(corpus, [corpus.table.excerpts[3], "1 2"]))))
    assert count(page) == "2 of 2 documents"
    assert "1 document without any of the model's words, unassigned: 2." in page.inner_text("#overview")


def test_one_cluster(visit):
    page = opened(visit(rows_page(cluster(["tea", "milk"], 1))))
    assert page.locator("#level").count() == 0
    assert page.locator("article.card").count() == 1


@pytest.mark.parametrize("dates", [["2020-01-05", "2020-03-01"], ["soon", "later"]])
def test_the_time(dates):
    found = cluster([Text(str(i), ("tea", "milk")[i % 2], None, date) for i, date in enumerate(dates)], 2)
    page = rows_page(found)
    periods = json.loads(page.split('id="onmf-data">')[1].split("</script>")[0])["periods"]
    if found.over_time is None:
        assert periods is None
        assert "rose and fell" not in page
    else:
        assert periods == {"unit": "week", "names": found.over_time.names, "counts": found.over_time.counts.tolist()}
        assert "None: no share changed from the documents before 2020-03-01" in page


def test_a_missing_value_in_a_template_is_an_error(corpus):
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render_page("rows.html", title="x", script=SCRIPTS, data={})
