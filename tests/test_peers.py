"""The comparison with other methods runs at reduced size, and the page about it says what was measured."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from benchmarks import documents
from benchmarks.__main__ import main
from benchmarks.data import load

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.long("the benchmarks")

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of memory can be measured on Linux only"
)


@needs_linux
def test_each_fit_is_measured_once(tmp_path, capsys):
    """In processes of their own, on two made sets; only what is missing is measured."""
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    folder = ["--seeds", "1", "--out", str(tmp_path)]
    main(["peers", "--sets", "made-2", "made-3", "--methods", "quick", *folder])
    first = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    main(["peers", "--sets", "made-2", "--methods", "kmeans-tfidf", "quick", *folder])
    records = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert records[:2] == first
    assert [(r["set"], r["method"]) for r in records] == [
        ("made-2", "quick"),
        ("made-3", "quick"),
        ("made-2", "kmeans-tfidf"),
    ]
    assert all(r["accuracy"] > 0.95 and r["nmi"] > 0.8 and r["seconds"] > 0 and r["megabytes"] >= 0 for r in records)
    assert "| onmf quick | **100.0** | **100.0** | **1.000** |" in (tmp_path / "averages.md").read_text(
        encoding="utf-8"
    )
    assert "| made-3 | 120 | 100.0 | – |" in (tmp_path / "sets.md").read_text(encoding="utf-8")
    assert (tmp_path / "accuracy-time.png").stat().st_size > 5000
    assert "made-2" in capsys.readouterr().out


@pytest.mark.parametrize("method", documents.PEERS)
def test_every_method_labels_every_document(method):
    if method == "sib":
        pytest.importorskip("sib", reason="the bottleneck needs sib-clustering")
    X, y = load("made-3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries
        labels = documents.PEERS[method].labels(X, 3, 0, 1)
    assert np.shape(labels) == y.shape
    assert set(np.unique(labels)) <= {0, 1, 2}


@needs_linux
def test_a_fit_that_takes_too_long_is_given_up():
    X, y = load("made-3")
    record = documents.measure_one(documents.PEERS["lda"], X, y, 0, limit=0.05)
    assert record == {"documents": 120, "seed": 0, "over": 0.05}
    records = [record | {"set": "made-3", "method": "lda"}]
    tables = documents.tables_of_peers(records)
    assert "| made-3 | 120 | over 0.05 s |" in tables["sets"]
    assert "| LDA | – | – | – | – | – |" in tables["averages"]


def sentences(tables):
    """Yield the sentences of the page that have numbers, from what was measured."""

    def accuracies(method):
        return np.round(100 * tables.means(method, "accuracy"), 1)

    def seconds(method):
        return tables.means(method, "seconds").sum()

    best, quick, frobenius = accuracies("best"), accuracies("quick"), accuracies("frobenius")
    yield f"It takes {seconds('best') / seconds('quick'):.0f} times as long as the quick one"
    lda, nmf = (seconds(method) / seconds("quick") for method in ("lda", "nmf"))
    yield f"LDA takes {lda:.0f} times and NMF with Kullback–Leibler {nmf:.0f} times as long as onmf quick."
    sets = list(tables.documents)
    yield f"**Frobenius** is better than Kullback–Leibler on {(frobenius > quick).sum()} of {len(sets)} collections:"
    for i in np.flatnonzero(frobenius > quick):
        yield f"{sets[i]} ({frobenius[i]} against {quick[i]} %)"
    others = [method for method in tables.titles if not documents.PEERS[method].title.startswith("onmf")]
    table = np.array([accuracies(method) for method in others])
    for i in np.flatnonzero(table.max(axis=0) > best + 3):
        winner = documents.PEERS[others[table[:, i].argmax()]].title
        yield f"| {sets[i]} | {winner} | {table[:, i].max()} | {best[i]} |"


def test_the_page_says_what_was_measured():
    records = json.loads((ROOT / "docs" / "compare" / "results.json").read_text(encoding="utf-8"))
    page = " ".join(next((ROOT / "docs").glob("**/compare.md")).read_text(encoding="utf-8").split())
    tables = documents.Tables(records, documents.PEERS)
    missing = [sentence for sentence in sentences(tables) if sentence not in page]
    assert not missing
    assert "It is the most accurate on average." in page
    scores = np.array([documents.scores_of(tables, method) for method in tables.titles])
    assert {list(tables.titles)[row] for row in scores.argmax(axis=0)} == {"best"}
    assert "Nothing else in the table is as fast" in page
    assert min(tables.titles, key=lambda method: tables.means(method, "seconds").sum()) == "quick"
    assert "of the other libraries only sIB puts more documents into the right cluster" in page
    more = {method for method in tables.titles if tables.accuracy(method) > tables.accuracy("quick")}
    assert more == {"best", "sib"}
