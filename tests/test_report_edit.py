"""Edits in a report, in a browser: what the page shows, the draft it keeps, and the file it gives."""

import json
from pathlib import Path

import numpy as np
import pytest

import onmf
from cell_clusterings import small_clustering
from conftest import make_nested_counts
from onmf.datasets import docstring_texts, make_scene
from onmf.door import Table
from onmf.door.curate import edited
from onmf.image.page import image_page
from onmf.report import rows_page
from onmf.text import Text

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
EVIL = "</script><img src=x onerror='window.hacked = 1'>"
SHOWN = (
    "[document.querySelector('main').innerText, ...[...document.querySelectorAll('canvas')].map((c) => c.toDataURL())]"
)
"""What a reader sees, without what stands in fields."""


def documents():
    return onmf.text.cluster([Text(*each) for each in docstring_texts()[::4]], 6, quick=True)


def table():
    X, _ = make_nested_counts()
    names = [[f"{noun}{i}" for i in range(number)] for noun, number in zip(("row", "word"), X.shape, strict=True)]
    return onmf.table.cluster(Table(X, *names), 6, quick=True)


def cells():
    return small_clustering()


def image():
    scene = make_scene(30, 40, 60, 5, random_state=1)
    return onmf.image.cluster(scene.X.reshape(30, 40, 60), 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A result of a kind, and its report."""
    results = {}

    def get(name):
        if name not in results:
            found, path = globals()[name](), tmp_path_factory.mktemp(name) / "report.html"
            found.report(path)
            results[name] = found, path.read_text("utf-8")
        return results[name]

    return get


@pytest.fixture(params=["documents", "table", "cells", "image"])
def kind(request):
    return request.param


def opened(page):
    page.wait_for_function("() => onmf.odd !== undefined")
    page.evaluate("() => Promise.resolve(onmf.edit.rows().ready)")
    return page


def start(page):
    """Open the panel."""
    opened(page).click("#edit")
    page.wait_for_selector("#editor", state="visible")
    return page


def choose(page, *places):
    for place in places:
        page.check(f"#editor-clusters input[value='{place}']")


def rename(page, place, name):
    page.click(f"#editor-clusters li:has(input[value='{place}']) button")
    page.fill("#editor-clusters input[type=text]", name)
    page.keyboard.press("Enter")


def move(page):
    """Move the first unusual row that has a cluster where its list says. → its name, and the number or None"""
    page.evaluate("document.getElementById('odd').scrollIntoView()")
    page.wait_for_selector("#unusual tbody tr")
    line = page.locator("#unusual tbody tr").filter(has_not=page.locator("td:text-is('unassigned')")).first
    name, where = line.locator(".link").inner_text(), line.locator("option").first.text_content()
    line.locator(".mover button").click()
    return name, None if where == "unassigned" else int(where.partition(":")[0])


def downloaded(page):
    with page.expect_download() as info:
        page.click("#edit-download")
    assert info.value.suggested_filename == "edits.json"
    text = Path(info.value.path()).read_text("utf-8")
    edits = json.loads(text)
    assert len(text.splitlines()) == len(edits["edits"]) + 3, "one edit a line"
    return edits


def state(page):
    """The numbers, names and sizes of the clusters in the page."""
    return page.evaluate(
        "(() => { const { there, names, sizes } = onmf.edit.state;"
        " return there.map((c) => [onmf.edit.numberOf(c), names[c], sizes[c]]); })()"
    )


def changes(page):
    return [text.removesuffix(" ✕") for text in page.locator("#editor-changes li").all_inner_texts()]


def test_edits_of_all_forms_are_shown_at_once_and_downloaded(visit, made, kind):
    found, html = made(kind)
    page, first = start(visit(html, viewport=WIDE)), found.kind.first
    k, sizes = found.n_clusters, found.sizes.copy()
    choose(page, 0, 2)
    page.click("#edit-merge")
    rename(page, 1, "space & <time>")
    choose(page, k - 1)
    page.click("#edit-aside")
    choose(page, 0)
    page.fill("#edit-parts", "3")
    page.click("#edit-split")
    name, to = move(page)
    expected = [
        {"merge": [first, first + 2]},
        {"rename": {str(first + 1): "space & <time>"}},
        {"set aside": [first + k - 1]},
        {"split": first, "into": 3},
        {"move": [name], "to": to},
    ]
    file = downloaded(page)
    assert file == {"onmf": "edits", "version": 1, "kind": kind, "run": found.run_id, "edits": expected}
    assert changes(page)[:2] == [
        f"Merge {first} and {first + 2} as {first}.",
        f"Rename {first + 1} to “space & <time>”.",
    ]

    sizes[0] += sizes[2]
    there = [c for c in range(k - 1) if c != 2]
    moved = state(page)
    assert [number for number, *_ in moved] == [c + first for c in there]
    assert sum(abs(size - sizes[c]) for c, (*_, size) in zip(there, moved, strict=True)) == 1 + (to is not None)
    assert moved[1][1] == "space & <time>"
    listed = page.locator("#editor-clusters li:visible").all_inner_texts()
    assert len(listed) == k - 2
    assert "(to be split into 3)" in listed[0]
    assert page.locator(".facts div:has(dt:text-is('Clusters')) dd").inner_text() == str(k - 2)
    legend = page.locator("#legend button:visible").all_inner_texts()
    assert len(legend) == k - 2
    assert sum("space & <time>" in text for text in legend) == 1
    assert sum("(to be split into 3)" in text for text in legend) == 1
    assert (
        f"onmf edit {page.evaluate('decodeURIComponent(location.pathname)').removesuffix('/report.html')} edits.json"
        in (page.input_value("#edit-command"))
    )


def test_undo_is_exact(visit, made, kind):
    _, html = made(kind)
    page = opened(visit(html, viewport=WIDE))
    for section in page.locator("main section").all():  # each is drawn when it comes into view
        section.scroll_into_view_if_needed()
        page.wait_for_timeout(100)
    before = page.evaluate(SHOWN)
    page.click("#edit")
    choose(page, 0, 2)
    page.click("#edit-merge")
    choose(page, 3)
    page.click("#edit-aside")
    move(page)
    rename(page, 1, "another name")
    after = state(page)
    for _ in range(4):
        page.click("#edit-undo")
    assert page.is_disabled("#edit-undo")
    page.click("#editor-close")
    for section in page.locator("main section").all():
        section.scroll_into_view_if_needed()
    page.wait_for_function(f"(before) => JSON.stringify({SHOWN}) === JSON.stringify(before)", arg=before)
    page.click("#edit")
    for _ in range(4):
        page.click("#edit-redo")
    assert state(page) == after
    assert len(changes(page)) == 4
    page.click("#editor-changes li:nth-child(2) button")
    assert len(changes(page)) == 3
    page.click("#edit-undo")
    assert state(page) == after
    page.click("#edit-discard")
    assert changes(page) == []
    page.click("#edit-undo")
    assert state(page) == after, "a draft that was discarded comes back"


def test_the_draft_survives_a_reload_and_is_of_one_result(visit, made, kind):
    _, html = made(kind)
    page = start(visit(html, viewport=WIDE))
    assert "This browser keeps the draft" in page.inner_text("#edit-kept")
    choose(page, 0, 1)
    page.click("#edit-merge")
    move(page)
    before = state(page)
    page.reload()
    opened(page)
    assert state(page) == before
    assert "This page shows 2 changes that are not in the files yet." in page.inner_text("#draft")
    page.click("#draft-open")
    assert len(changes(page)) == 2
    page.click("#edit-undo")
    assert len(changes(page)) == 1

    path = Path(page.url.removeprefix("file://"))
    run = page.evaluate("onmf.data.edit.run")
    path.write_text(html.replace(f'"run":"{run}"', '"run":"0123456789abcdef"'), "utf-8")
    page.reload()
    assert opened(page).locator("#draft").is_hidden(), "another result at the same place has no draft"
    path.write_text(html, "utf-8")
    page.reload()
    assert opened(page).locator("#draft").is_visible()
    page.click("#edit")
    page.click("#edit-discard")
    page.reload()
    assert opened(page).locator("#draft").is_hidden()


@pytest.mark.parametrize(
    "draft", ["[", "7", '[{"merge": [1, 99]}]', '[{"move": "a", "to": 1}]', '[{"rename": {"1": 5}}]', "[null]"]
)
def test_a_draft_that_makes_no_sense_is_ignored(visit, made, draft):
    _, html = made("table")
    page = opened(visit(html))
    page.evaluate("(draft) => localStorage.setItem(`onmf edits ${onmf.data.edit.run}`, draft)", draft)
    page.reload()
    assert opened(page).locator("#draft").is_hidden()


def test_without_storage_the_page_says_so(visit, made, kind):
    _, html = made(kind)
    page = visit(html, viewport=WIDE)
    page.context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    page.reload()
    start(page)
    assert "keeps no drafts of local pages: download the changes" in page.inner_text("#edit-kept")
    choose(page, 0, 1)
    page.click("#edit-merge")
    assert len(downloaded(page)["edits"]) == 1


def test_the_keyboard_is_enough(visit, made, kind):
    found, html = made(kind)
    page, first = opened(visit(html, viewport=WIDE)), found.kind.first
    page.focus("#edit")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "editor-title"
    for place in (0, 1):
        page.focus(f"#editor-clusters input[value='{place}']")
        page.keyboard.press("Space")
    page.focus("#edit-merge")
    page.keyboard.press("Enter")
    page.focus("#editor-clusters li:visible button")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Name of cluster {first}"
    page.keyboard.press("Escape")
    assert page.locator("#editor").is_visible(), "Escape leaves the field, not the panel"
    assert page.evaluate("document.activeElement.textContent") == "✎"
    page.keyboard.press("Enter")
    page.keyboard.type("new")
    page.keyboard.press("Enter")
    assert state(page)[0][:2] == [first, "new"]
    page.keyboard.press("Control+z")
    assert len(changes(page)) == 1
    page.keyboard.press("Control+Shift+z")
    assert len(changes(page)) == 2
    unnamed = page.evaluate(
        "[...document.querySelectorAll('#editor :is(input, select, button)')].filter((e) =>"
        " !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert unnamed == 0
    page.keyboard.press("Escape")
    assert page.locator("#editor").is_hidden()
    assert page.evaluate("document.activeElement.id") == "edit"


def test_a_narrow_screen(visit, made, kind):
    _, html = made(kind)
    page = start(visit(html, viewport=PHONE, has_touch=True, is_mobile=True))
    for place in (0, 1):
        page.tap(f"#editor-clusters li:has(input[value='{place}']) label")
    page.tap("#edit-merge")
    assert len(changes(page)) == 1
    move(page)
    for part in ("window.scrollTo(0, 0)", "document.getElementById('odd').scrollIntoView()"):
        page.evaluate(part)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    outside = page.evaluate(
        "[...document.querySelectorAll('#editor *, main *')].filter((e) => !e.closest('.scroll, svg, dialog, .tip')"
        " && e.getBoundingClientRect().width && e.getBoundingClientRect().right > 360.5).map((e) => e.outerHTML)"
    )
    assert outside == []
    assert page.locator("#editor").bounding_box()["height"] <= 0.47 * PHONE["height"]


def test_names_that_are_not_possible_are_refused_with_a_sentence(visit, made):
    found, html = made("table")
    page = start(visit(html))
    for name, sentence in (
        (found.names[2], "Cluster 3 has this name: names must differ."),
        ("a\u202eb", "A name has no line breaks or control characters."),
    ):
        rename(page, 0, name)
        assert page.inner_text("#edit-said") == sentence
        page.keyboard.press("Escape")
    choose(page, 0, 1, 2, 3, 4, 5)
    page.click("#edit-aside")
    assert page.inner_text("#edit-said") == "At least one cluster has to stay."
    for place in range(1, 6):
        page.uncheck(f"#editor-clusters input[value='{place}']")
    page.fill("#edit-parts", "1")
    page.click("#edit-split")
    assert page.inner_text("#edit-said") == f"Cluster 1 can be split into 2 to {found.sizes[0]} parts."
    assert changes(page) == []


def test_the_merges_of_the_slider(visit, made):
    _, html = made("table")
    page = start(visit(html, viewport=WIDE))
    assert page.locator("#edit-shown").is_hidden()
    page.locator("#level").fill("2")
    page.wait_for_function("() => onmf.rows.merged.left === 2")
    shown = sorted(page.locator("#legend .many").all_inner_texts())
    assert page.inner_text("#edit-shown") == "Merge as shown: 2 clusters"
    page.click("#edit-shown")
    assert page.input_value("#level") == "6", "the slider is free again"
    assert sorted(page.locator("#legend .many").all_inner_texts()) == shown
    assert [sorted(edit) for edit in downloaded(page)["edits"]] == [["merge"]] * 2
    assert sorted(str(size) for *_, size in state(page)) == shown
    page.locator("#level").fill("1")
    page.wait_for_function("() => onmf.rows.merged.left === 1")
    assert page.locator("#legend .many").all_inner_texts() == ["360"]
    page.locator("#level").fill("6")
    page.click("#edit-undo")
    assert len(state(page)) == 6


def test_tables_of_counts_follow(visit, made):
    """Merged clusters add up, in every table of the page."""
    found, html = made("cells")
    page = start(visit(html, viewport=WIDE))

    def rows(table):
        script = "rows => rows.map(row => [...row.cells].filter((c) => !c.hidden).map(cell => cell.textContent))"
        return page.locator(f"#{table} tbody tr:visible").evaluate_all(script)

    choose(page, 1, 3)
    page.click("#edit-merge")
    heads = page.locator("#class-table thead th:visible").evaluate_all("heads => heads.map((head) => head.dataset.of)")
    order = [1 if int(place) == 3 else int(place) for place in heads[1:]]  # the first of the two stands for both
    counts = found.comparison.table.copy()
    counts[:, 1] += counts[:, 3]
    assert sorted(order) == [0, 1, 2]
    assert [[int(text) for text in row[1:]] for row in rows("class-table")] == counts[:, order].tolist()
    line = page.locator("#clusters-table tr[data-of='3']")
    assert ", merged into 1" in line.inner_text()
    assert page.inner_text("#clusters-table tr[data-of='1'] .many").startswith(f"{found.sizes[1] + found.sizes[3]} ")
    assert page.locator("#dots tbody tr").count() == 3
    gene = int(found.markers.genes[1, 0])
    inside = np.isin(found.labels, (1, 3))
    share = np.mean(found.table.X[:, [gene]].toarray().ravel()[inside] > 0)
    column = page.locator("#dots thead .up").all_inner_texts().index(found.table.genes[gene])
    page.hover(f"#dots tbody tr >> nth=1 >> td >> nth={column}")
    assert f"{100 * share:.1f} % of the cells have it" in page.inner_text("#tip")
    doubtful = (found.confidence < 0.5) & ~np.isin(found.labels, (1, 3))
    total = sum(int(text or 0) for row in rows("pairs") for text in row[1:])
    inner = inside & (found.confidence < 0.5) & ~np.isin(found.runners_up, (1, 3))
    assert total == np.count_nonzero(doubtful) + np.count_nonzero(inner)


def test_a_moved_document_counts_in_its_new_cluster(visit, made):
    found, html = made("documents")
    page = start(visit(html, viewport=WIDE))
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    i = 5
    page.fill("#search", found.table.rows[i])
    page.click(f"#table [data-document='{i}']")
    page.wait_for_selector("#reader[open]")
    own = int(found.labels[i])
    to = (own + 2) % found.n_clusters
    page.select_option("#reader .mover select", str(to))
    page.click("#reader .mover button")
    assert f", moved from {own + 1}: {found.names[own]}" in page.inner_text("#reader-body")
    page.keyboard.press("Escape")
    page.wait_for_selector("#reader", state="hidden")
    assert page.inner_text("#table td[data-name=Cluster]") == f"{to + 1}: {found.names[to]}"
    classes = found.comparison.table.copy()
    label = found.comparison.classes.index(found.table.classes[i])
    classes[label, [own, to]] += [-1, 1]
    page.locator("#classes").scroll_into_view_if_needed()
    page.wait_for_selector("#class-table tbody tr")
    told = page.evaluate("onmf.rows.merged.active.map((node) => onmf.rows.countsByClass(node))")
    active = page.evaluate("onmf.rows.merged.active")
    assert [classes[:, node].tolist() for node in active] == told
    page.click("#edit-undo")
    assert page.inner_text("#table td[data-name=Cluster]") == f"{own + 1}: {found.names[own]}"


def test_names_of_rows_and_clusters_are_text(visit):
    texts = [Text(f"{EVIL}\n{i}", (f"{EVIL} tea cup ", "milk cow ")[i % 2] * 3, None) for i in range(30)]
    found = onmf.text.cluster(texts, 2, quick=True)
    page = start(visit(rows_page(found), viewport=WIDE))
    rename(page, 0, EVIL)
    page.fill("#find-words", "img")
    page.wait_for_selector("#found li")
    assert EVIL in page.inner_text("#found")
    page.evaluate("document.getElementById('odd').scrollIntoView()")
    page.evaluate("onmf.edit.add({ move: [onmf.edit.rows().name(0)], to: 2 })")
    assert EVIL in page.inner_text("#editor-changes")
    assert page.locator("main img, aside img").count() == 0
    edits = downloaded(page)["edits"]
    assert edits[1] == {"move": [f"{EVIL}\n0"], "to": 2}, "with its line break, or there is no such row"
    assert edited(found, edits).labels[0] == 1


class TestFind:
    def found(self, page, words):
        page.fill("#find-words", words)
        page.wait_for_function(
            "(words) => document.getElementById('found').dataset.words === words.toLowerCase()", arg=words
        )
        script = "parts => parts.map((part) => [...part.querySelectorAll('button')].map((b) => b.textContent))"
        return page.locator("#found > :nth-child(even)").evaluate_all(script)

    def test_documents(self, visit, made):
        found, html = made("documents")
        page = opened(visit(html))
        tops = found.distinctive(300)
        words = list(tops[2])[:2]
        scores = [sum(top.get(word, 0) for word in words) for top in tops]
        clusters, rows = self.found(page, " ".join(words).upper())
        assert clusters[0] == f"{np.argmax(scores) + 1}: {found.names[np.argmax(scores)]}"
        assert [int(text.partition(":")[0]) - 1 for text in clusters] == [
            c for c in np.argsort(scores)[::-1] if scores[c] > 0
        ]
        low = [f"{n}\n{t}".lower() for n, t in zip(found.table.rows, found.table.excerpts, strict=True)]
        assert any(word in low[found.table.rows.index(rows[0])] for word in words)
        page.click("#found li button >> nth=0")
        assert page.evaluate("document.activeElement.closest('article').id") == f"cluster-{np.argmax(scores)}"
        page.click(f"#found button:text-is('{rows[0]}')")
        page.wait_for_selector("#reader[open]")
        assert page.inner_text("#reader-title") == rows[0]

    def test_features_of_a_table_find_rows_too(self, visit, made):
        found, html = made("table")
        page = opened(visit(html))
        word = next(iter(found.distinctive(1)[3]))
        clusters, rows = self.found(page, word)
        assert clusters[0].startswith("4: ")
        labels = [found.labels[found.table.rows.index(row)] for row in rows]
        assert found.table.X[found.table.rows.index(rows[0]), found.table.features.index(word)] > 0
        assert 3 in labels

    def test_genes_and_cells(self, visit, made):
        found, html = made("cells")
        page = opened(visit(html, viewport=WIDE))
        gene = next(iter(found.distinctive(1)[2]))
        clusters, rows = self.found(page, gene.lower())
        assert clusters[0].startswith("2: ")
        assert rows == []
        page.click("#found li button >> nth=0")
        assert page.locator("#legend [aria-pressed=true]").inner_text().startswith("2: ")
        assert self.found(page, "cell17-1")[1] == ["CELL17-1"]
        page.click("#found li button >> nth=0")
        page.wait_for_selector("#tip", state="visible")
        assert page.inner_text("#tip").startswith("CELL17-1\n")
        page.focus("#find-words")
        page.keyboard.press("Escape")
        assert page.locator("#found").is_hidden()

    def test_bands_and_pixels(self, visit, made):
        found, html = made("image")
        page = opened(visit(html, viewport=WIDE))
        shares = found.spectra / found.spectra.sum(axis=1, keepdims=True)
        clusters, _ = self.found(page, "11")
        assert clusters[0] == f"{shares[:, 10].argmax() + 1}: {found.names[shares[:, 10].argmax()]}"
        assert self.found(page, "12,30")[1] == ["12,30"]
        page.click("#found li button >> nth=0")
        assert page.inner_text("#pixel").startswith("Line 12, sample 30")


def test_doubtful_and_unusual_rows_are_listed_with_what_their_numbers_mean(visit, made, kind):
    found, html = made(kind)
    page = opened(visit(html, viewport=WIDE))
    page.evaluate("document.getElementById('odd').scrollIntoView()")
    page.wait_for_selector("#unusual tbody tr")
    row = found.kind.row
    said = page.inner_text("#odd")
    assert (
        f"how often independent fits put the {row} with the rest of its cluster; it is not the chance of being right."
        in said
    )
    assert "are at least as unusual; near 0" in said
    for table, values in (("doubtful", found.confidence), ("unusual", found.surprise)):
        shown = [float(text) for text in page.locator(f"#{table} tbody td:nth-child(4)").all_inner_texts()]
        known = np.sort(values[np.isfinite(values)].ravel())
        limit = known[known < 0.5] if table == "doubtful" else known[known <= 0.05]
        assert shown == pytest.approx(limit[:50], rel=0.02, abs=6e-4)
    assert page.locator("#odd .mover:visible").count() == 0, "what moves rows shows in edit mode"
    if kind != "image":
        page.select_option("#colour", "surprise")
        ends = page.locator("#scale span").all_inner_texts()
        assert ends[0] == "1, usual"
        assert 0 < float(ends[1].removesuffix(", unusual")) < 0.1


def test_several_scenes(visit):
    scenes = [make_scene(20, 24, 30, 3, random_state=0).X.reshape(20, 24, 30) * factor for factor in (1.0, 1.4)]
    found = onmf.image.cluster(scenes, 3)
    page = visit(image_page(found), viewport=WIDE)
    before = page.locator("[data-labels]").first.get_attribute("src")
    page.click("#edit")
    choose(page, 0, 1)
    page.click("#edit-merge")
    rename(page, 0, "both")
    assert page.locator("[data-labels]").first.get_attribute("src") != before
    assert ", merged into 1" in page.inner_text("#composition")
    assert [curve["name"] for curve in page.evaluate("document.getElementById('cluster-chart').curves")] == [
        "both",
        found.names[2],
    ]
    assert len(downloaded(page)["edits"]) == 2
    page.click("#edit-undo")
    page.click("#edit-undo")
    assert page.locator("[data-labels]").first.get_attribute("src") == before
