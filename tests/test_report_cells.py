"""The report on cells in a browser."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf.cells.page
from cell_clusterings import clustering_of, small_clustering
from conftest import DATA
from onmf.cells.page import cells_page
from onmf.datasets import make_counts
from onmf.plot import distinct_colours
from onmf.select import select_n_clusters

EVIL = "</script><img src=x onerror='window.hacked = 1'>"
WIDE = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def small():
    return small_clustering()


@pytest.fixture(scope="module")
def evil():
    """Names that would be scripts, links or tags if a page took them as HTML."""
    found = make_counts(60, 20, 2, length=150, random_state=0)
    names = [f"{EVIL}{j}" for j in range(20)]
    classes = [f"{EVIL} class {label}" for label in found.y]
    made = clustering_of(found.X, 2, barcodes=[f"{EVIL} {i}" for i in range(60)], genes=names, classes=classes)
    table = replace(made.table, source=f"{EVIL.replace('/', '')}.h5ad")
    return replace(made, table=table, notes=[EVIL], map_method=EVIL)


@pytest.fixture(scope="module")
def blood():
    """Real cells: sorted blood cells of Zheng et al."""
    path = Path(DATA or ".", "cells", "zheng_facs10.npz")
    if not path.exists():
        pytest.skip("cells/zheng_facs10.npz is not in ONMF_DATA: real cells are not at hand")
    with np.load(path) as file:
        X = csr_array(
            (file["data"], file["indices"].astype(np.int32), file["indptr"].astype(np.int32)),
            shape=tuple(file["shape"]),
        )
        genes, names, y = [[str(text) for text in file["genes"]], [str(text) for text in file["classes"]], file["y"]]
    return clustering_of(X, 10, genes=genes, classes=[names[label] for label in y], n_init=3)


@pytest.fixture
def page(visit, small):
    """The report, opened on a wide screen."""
    return visit(cells_page(small), viewport=WIDE)


def page_cells(clustering):
    """The rows of the counts in the order of the page."""
    return np.argsort(clustering.labels, kind="stable")


def colour(page, i):
    """Colour of a cell of the page in the canvas."""
    return page.evaluate(f"onmf.cells.map.at({i}).colour")


def painted(page):
    """A fingerprint of the pixels of the map."""
    return page.evaluate("document.getElementById('cells').toDataURL()")


def coloured_by(page, what):
    page.wait_for_function("what => document.getElementById('cells').dataset.colour === what", arg=what)


def place(page, i):
    """Where a cell of the page is on the screen, once the page has scrolled there. Scrolling hides tips."""
    page.locator("#cells").scroll_into_view_if_needed()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate(f"onmf.cells.map.at({i})")


def hover(page, i):
    """Move the pointer to a cell of the page."""
    at = place(page, i)
    page.mouse.move(at["x"], at["y"])
    page.wait_for_selector("#tip", state="visible")
    return at


class TestInTheBrowser:
    @pytest.mark.short("one page of each report is opened in a browser")
    def test_the_map_has_the_colours_of_the_clusters(self, visit, small):
        page = visit(cells_page(small, title="Mine"), viewport=WIDE)
        assert page.title() == page.inner_text("h1") == "Mine"
        assert page.locator("#legend button").count() == 4
        expected = [tuple(int(text[i : i + 2], 16) for i in (1, 3, 5)) for text in distinct_colours(4)]
        rows = page_cells(small)
        right = sum(tuple(colour(page, i)) == expected[small.labels[rows[i]]] for i in range(0, 400, 10))
        assert right >= 25, "some cells are covered by others"
        counts = page.locator("#legend .many").all_inner_texts()
        assert counts == [str(size) for size in small.sizes]

    def test_a_typed_gene_colours_the_cells(self, page, small):
        before = painted(page)
        gene = int(small.markers.genes[1, 0])
        name = small.table.genes[gene]
        page.fill("#gene", name.lower())
        coloured_by(page, f"gene {name}")
        assert painted(page) != before
        column = small.table.X[:, [gene]].toarray().ravel()
        answer = page.inner_text("#gene-answer")
        assert answer.startswith(f"{name}: in {np.count_nonzero(column)} of 400 cells")
        assert page.input_value("#colour") == "gene"
        expected = np.log1p(1e4 * column / small.depths)[page_cells(small)]
        values = page.evaluate(f"onmf.cells.expression(onmf.cells.findGene({name!r})).then((v) => Array.from(v))")
        assert values == pytest.approx(expected, abs=0.05), "large counts are rounded"

    def test_how_many_clusters_there_are(self, small):
        selection = select_n_clusters(small.table.X, random_state=0)
        page = cells_page(replace(small, selection=selection))
        assert f"<b>{selection.n_clusters}</b> medium (agreement " in page
        assert page.count("<circle ") == len(selection.numbers)
        assert 'id="number"' not in cells_page(small), "the number was given"

    def test_an_unknown_gene_gets_a_sentence(self, page, small):
        before = painted(page)
        page.fill("#gene", "NOSUCH")
        page.wait_for_function("document.getElementById('gene-answer').textContent.includes('NOSUCH')")
        assert page.inner_text("#gene-answer").startswith("No gene on this page is called “NOSUCH”.")
        assert painted(page) == before
        page.select_option("#colour", "gene")
        page.wait_for_function("document.getElementById('colour').value === 'cluster'")
        page.fill("#gene", "gene1")
        coloured_by(page, "gene GENE1")
        options = page.evaluate("[...document.querySelectorAll('#gene-names option')].map((o) => o.value)")
        assert options[0] == "GENE1"
        assert 1 < len(options) <= 40

    def test_colours_to_choose(self, page, small):
        before = painted(page)
        for what in ("class", "confidence", "depth", "gene"):
            page.select_option("#colour", what)
            page.wait_for_function("what => document.getElementById('cells').dataset.colour.startsWith(what)", arg=what)
            assert painted(page) != before
            assert page.locator("#scale").is_visible() == (what != "class")
            if what == "class":
                assert page.locator("#legend button").first.inner_text().startswith("type 0")
            if what == "depth":
                high = page.locator("#scale span").last.inner_text()
                assert float(high.replace(",", "")) <= small.depths.max()
            page.select_option("#colour", "cluster")
            assert painted(page) == before

    def test_a_click_highlights_a_cluster(self, page, small):
        before = painted(page)
        page.click("#legend button >> nth=2")
        assert page.locator("#legend [aria-pressed=true]").all_inner_texts()[0].startswith("2: ")
        faint, rows = [222, 225, 228], page_cells(small)
        others = [i for i in range(0, 400, 7) if small.labels[rows[i]] != 2]
        assert sum(colour(page, i) == faint for i in others) > len(others) / 2
        page.click("#all")
        assert painted(page) == before
        page.click("#clusters-table [data-cluster='3']")
        assert page.locator("#legend [aria-pressed=true]").all_inner_texts()[0].startswith("3: ")
        page.click("#all")
        at = hover(page, 0)
        page.mouse.click(at["x"], at["y"])
        chosen = page.locator("#legend [aria-pressed=true]")
        assert chosen.count() == 1

    def test_the_pointer_shows_the_cell(self, page, small):
        rows = page_cells(small)
        places = small.embedding[rows]
        alone = int(np.argmax(np.sort(np.linalg.norm(places[:, None] - places[None], axis=2), axis=1)[:, 1]))
        hover(page, alone)
        lines, i = page.inner_text("#tip").splitlines(), rows[alone]
        assert lines[0] == small.table.barcodes[i]
        assert lines[1] == f"Cluster {small.labels[i]}: {small.names[small.labels[i]]}"
        other = small.runners_up[i]
        assert lines[2] == f"Confidence {small.confidence[i]:.2f}; runner-up {other}: {small.names[other]}"
        page.mouse.move(2, 2)
        page.wait_for_selector("#tip", state="hidden")

    def test_zoom_and_drag(self, page, small):
        before = painted(page)
        assert page.locator("#whole").is_hidden()
        page.click("#closer")
        page.wait_for_selector("#whole", state="visible")
        closer = painted(page)
        assert closer != before
        page.locator("#cells").scroll_into_view_if_needed()
        box = page.locator("#cells").bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 260, box["y"] + 230, steps=3)
        page.mouse.up()
        page.wait_for_function("before => document.getElementById('cells').toDataURL() !== before", arg=closer)
        assert page.locator("#legend [aria-pressed=true]").count() == 0
        page.focus("#cells")
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        page.click("#whole")
        page.wait_for_selector("#whole", state="hidden")
        assert painted(page) == before

    @pytest.mark.parametrize("stretch", [(4, 1), (1, 1), (1, 4)])
    def test_the_points_fill_the_map_without_distortion(self, visit, small, stretch):
        places = small.embedding / np.ptp(small.embedding, axis=0) * stretch
        page = visit(cells_page(replace(small, embedding=places)), viewport=WIDE)
        seen = np.array(
            page.evaluate("Array.from({ length: 400 }, (_, i) => onmf.cells.map.at(i)).map(({ x, y }) => [x, y])")
        )
        box = page.locator("#cells").bounding_box()
        inside, sides = np.array([box["x"], box["y"]]), np.array([box["width"], box["height"]])
        room = [seen.min(axis=0) - inside, inside + sides - seen.max(axis=0)]
        assert room[0] == pytest.approx(room[1], abs=1.5), "the points are in the middle"
        assert np.min(room) == pytest.approx(14, abs=2), "in one direction the points reach the margin"
        spans = np.ptp(seen, axis=0)
        assert spans / spans.max() == pytest.approx(np.divide(stretch, max(stretch)), abs=0.01)
        hover(page, 7)
        assert page.inner_text("#tip").startswith("CELL")
        page.focus("#cells")
        page.keyboard.press("+")
        page.wait_for_selector("#whole", state="visible")
        closer = place(page, 7)
        box = page.locator("#cells").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 150, box["y"] + 130, steps=3)
        page.mouse.up()
        moved = place(page, 7)
        assert (moved["x"] - closer["x"], moved["y"] - closer["y"]) == pytest.approx((50, 30), abs=1)

    def test_the_dot_plot(self, page, small):
        names = page.locator("#dots thead .up").all_inner_texts()
        assert names[:5] == [small.table.genes[j] for j in small.markers.genes[0, :5]]
        assert page.locator("#dots tbody tr").count() == 4
        page.hover("#dots tbody tr >> nth=1 >> td >> nth=2")
        gene = small.table.genes.index(names[2])
        column = small.table.X[:, [gene]].toarray().ravel()[small.labels == 1]
        mean = np.log1p(1e4 * column / small.depths[small.labels == 1]).mean()
        tip = page.inner_text("#tip")
        assert tip.splitlines()[0] == f"{names[2]} in cluster 1: {small.names[1]}"
        assert f"{100 * np.mean(column > 0):.1f} % of the cells" in tip
        assert tip.endswith(f"mean expression {mean:.2f}")
        page.click("#dots thead button >> nth=3")
        coloured_by(page, f"gene {names[3]}")

    def test_sorting_the_clusters(self, page, small):
        numbers = "[...document.querySelectorAll('#clusters-table tbody tr')].map((row) => Number(row.dataset.number))"
        page.click("[data-sort=size]")
        assert page.evaluate(numbers) == np.argsort(small.sizes, kind="stable").tolist()
        page.click("[data-sort=size]")
        sizes = small.sizes[page.evaluate(numbers)]
        assert (np.diff(sizes) <= 0).all()
        assert page.locator("#clusters-table th[aria-sort=descending]").count() == 1
        gene = page.locator("#clusters-table [data-gene]").first
        name = gene.get_attribute("data-gene")
        gene.click()
        coloured_by(page, f"gene {name}")

    def test_the_doubtful_cells(self, page, small):
        doubtful = np.flatnonzero(small.confidence < 0.5)
        assert f"of {len(doubtful)} doubtful cells" in page.inner_text("#doubtful-count")
        first = page.locator("#doubtful tbody tr").first.locator("td").first.inner_text()
        assert first == small.table.barcodes[doubtful[np.argmin(small.confidence[doubtful])]]
        button = page.locator("#pairs [data-pair]").first
        cluster, other = map(int, button.get_attribute("data-pair").split())
        count = np.count_nonzero((small.labels[doubtful] == cluster) & (small.runners_up[doubtful] == other))
        assert button.inner_text() == str(count)
        button.click()
        assert f"of {count} doubtful cells of cluster {cluster}: " in page.inner_text("#doubtful-count")
        assert page.locator("#doubtful tbody tr").count() == min(count, 50)
        page.click("#pair-clear")
        assert page.locator("#pair-clear").is_hidden()

    def test_the_comparison(self, page, small):
        assert page.locator(".scores dd").first.inner_text() == f"{small.comparison.ari:.3f}"
        cells = page.locator("#class-table td").all_text_contents()
        assert sorted(map(int, cells)) == sorted(small.comparison.table.ravel().tolist())

    def test_names_are_not_interpreted_as_html(self, visit, evil):
        page = visit(cells_page(evil), viewport=WIDE)
        assert page.inner_text("h1") == f"Cells of {EVIL.replace('/', '')}.h5ad"
        assert page.inner_text("#overview .note") == EVIL
        assert page.locator("main img").count() == 0
        name = evil.table.genes[int(evil.markers.genes[0, 0])]
        page.fill("#gene", name)
        coloured_by(page, f"gene {name}")
        assert name in page.inner_text("#gene-answer")
        page.fill("#gene", f"{EVIL} unknown")
        page.wait_for_function("document.getElementById('gene-answer').textContent.includes('unknown')")
        page.select_option("#colour", "class")
        assert page.locator("#legend button").first.inner_text().startswith(f"{EVIL} class 0")
        for i in (0, 30):
            hover(page, i)
            assert page.inner_text("#tip").startswith(EVIL)
        for section in ("#dots thead", "#clusters-table", "#class-table"):
            assert EVIL in page.inner_text(section)
        page.hover("#dots tbody td >> nth=0")
        assert EVIL in page.inner_text("#tip")
        assert page.locator("main img, .tip img").count() == 0

    def test_dark(self, visit, small):
        page = visit(cells_page(small), viewport=WIDE, color_scheme="dark")
        dark = painted(page)
        assert colour(page, 0) != [255, 255, 255]
        page.click("#theme")
        page.wait_for_function("before => document.getElementById('cells').toDataURL() !== before", arg=dark)
        assert page.inner_text("#theme") == "Dark"
        page.click("#theme")
        page.wait_for_function("before => document.getElementById('cells').toDataURL() === before", arg=dark)

    def test_a_phone(self, visit, small):
        page = visit(cells_page(small), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        outside = page.evaluate(
            "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg') &&"
            "e.getBoundingClientRect().right > 390.5).map((e) => e.tagName + '.' + e.className)"
        )
        assert outside == [], "only what scrolls in its own box may be wider than the screen"
        for box in ("#dots", "#clusters-table", "#doubtful"):
            assert page.evaluate(f"getComputedStyle(document.querySelector('{box}').parentElement).overflowX") == "auto"
        at = place(page, 5)
        page.touchscreen.tap(at["x"], at["y"])
        page.wait_for_selector("#tip", state="visible")
        assert "Confidence" in page.inner_text("#tip")
        assert page.locator("#legend [aria-pressed=true]").count() == 1

    def test_the_keyboard_reaches_everything(self, visit, small):
        page = visit(cells_page(small))
        page.focus("#legend button >> nth=1")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        page.focus("#gene")
        page.keyboard.type("GENE2")
        page.keyboard.press("Enter")
        coloured_by(page, "gene GENE2")
        page.focus("#dots thead button >> nth=0")
        page.keyboard.press("Enter")
        coloured_by(page, f"gene {small.table.genes[int(small.markers.genes[0, 0])]}")

    def test_a_page_without_map_and_classes(self, visit, small, monkeypatch):
        monkeypatch.setattr("onmf.cells.page.find_spec", lambda name: None)
        unassigned = small.labels.copy()
        unassigned[:5] = -1
        confidence = np.where(unassigned < 0, np.nan, small.confidence)
        runners_up = np.where(unassigned < 0, -1, small.runners_up)
        changes = {"labels": unassigned, "confidence": confidence, "runners_up": runners_up}
        page = visit(cells_page(replace(small, embedding=None, table=replace(small.table, classes=None), **changes)))
        assert page.locator("#cells, #class-table, #gene").count() == 0
        assert "395 of 400" in page.inner_text(".facts")
        page.click("#clusters-table [data-gene] >> nth=0")
        page.click("[data-sort=depth]")

    def test_no_doubtful_cells(self, visit, small):
        page = visit(cells_page(replace(small, confidence=np.ones(400), view="logs")))
        page.locator("#odd").scroll_into_view_if_needed()
        page.wait_for_selector("text=No cell has a confidence below 0.5.")
        assert page.locator("#doubtful:visible, #pairs, #pair-clear:visible").count() == 0
        assert "from normalised logarithms of the counts" in page.inner_text("#how")

    def test_real_cells(self, visit, blood):
        page = visit(cells_page(blood), viewport=WIDE)
        assert page.inner_text("#gene-answer").startswith("All 16,791 genes can be typed.")
        for name in ("CD3D", "NKG7", "CD79A"):
            page.fill("#gene", name)
            coloured_by(page, f"gene {name}")
            having = np.count_nonzero(blood.table.X[:, [blood.table.genes.index(name)]].toarray())
            assert f"in {having:,} of 3,774 cells" in page.inner_text("#gene-answer")

    def test_fifty_thousand_cells(self, visit, large):
        html = cells_page(large)
        assert len(html.encode()) < 12_000_000
        page = visit(html, viewport=WIDE)
        assert "50,000" in page.inner_text(".facts")
        typed = int(re.match(r"([\d,]+) of the", page.inner_text("#gene-answer")).group(1).replace(",", ""))
        assert typed >= 300
        seen = {painted(page)}
        for what in ("confidence", "depth"):
            page.select_option("#colour", what)
            seen.add(painted(page))
        name = large.table.genes[int(large.markers.genes[3, 0])]
        page.fill("#gene", name)
        coloured_by(page, f"gene {name}")
        seen.add(painted(page))
        page.click("#legend button >> nth=5")
        seen.add(painted(page))
        assert len(seen) == 5

    def test_a_slow_click_on_the_legend_after_a_gene_was_typed(self, page, small):
        """Pressing the button leaves the field, which asks for the gene again before the button is released."""
        name = small.table.genes[int(small.markers.genes[0, 0])]
        page.locator("#gene").press_sequentially(name)
        coloured_by(page, f"gene {name}")
        page.evaluate("document.getElementById('gene-answer').textContent = ''")
        page.hover("#legend button >> nth=1")
        page.mouse.down()
        page.wait_for_function("() => document.getElementById('gene-answer').textContent")
        page.mouse.up()
        assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "true"


@pytest.fixture(scope="module")
def large():
    found = make_counts(50_000, 1500, 24, length=300, random_state=0)
    return clustering_of(
        found.X,
        24,
        max_iter=5,
        tol=1e9,
        barcodes=[f"AAACCTGAGAAACC{i:06}-1" for i in range(50_000)],
        n_top_genes=300,
        refine=None,
    )


def test_a_page_has_room_for_some_genes_and_cells(visit, small, monkeypatch):
    monkeypatch.setattr(onmf.cells.page, "GENES", 6_000)
    monkeypatch.setattr(onmf.cells.page, "MOST_CELLS", 300)
    html = cells_page(small)
    packed = re.search(r'"packed":\[(.*?)\]', html).group(1)
    assert len(packed) - 3 * packed.count(",") <= 6_002
    page = visit(html)
    said = page.inner_text("#gene-answer")
    assert re.match(r"\d+ of the 120 genes can be typed", said)
    assert "It shows 300 of the 400 cells." in page.inner_text("#map")
    assert "The lists have only cells of this page: 300 of 400." in page.inner_text("main")


def test_the_largest_of_very_many_classes_are_shown(small):
    classes = [str(i % 20) if i < 300 else f"rare {i}" for i in range(400)]
    page = cells_page(replace(small, table=replace(small.table, classes=classes)))
    assert "The 60 largest of 120 classes are shown." in page
    assert page.count('<th scope="row" data-tip="rare') == 40


def test_the_page_refers_to_no_other_resource(evil, small):
    for found in (evil, small):
        head, _, rest = cells_page(found).partition('<script type="application/json"')
        assert not re.findall(r"(?:src|href)=\"(?!#|data:)", head)
        assert "default-src 'none'" in unescape(head)
        assert rest.count("<script>") == 10


def test_the_file_is_written(small, tmp_path):
    small.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "<title>Cells of small.h5ad</title>" in text
    assert "A note &amp; more." in text
    assert "The clusters were not computed from this map." in text


@pytest.mark.parametrize("k", [1, 60])
def test_one_cluster_and_many(visit, k):
    found = make_counts(300, 80, 3, length=150, random_state=0)
    clustering = clustering_of(found.X, k, max_iter=3, tol=1e9)
    page = visit(cells_page(clustering))
    assert page.locator("#legend button").count() == k
    assert page.locator("#dots tbody tr").count() == np.count_nonzero(clustering.sizes)
