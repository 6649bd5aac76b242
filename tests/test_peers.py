"""The comparison with other methods runs at reduced size, and the page about it says what was measured."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import peers  # noqa: E402


def test_each_fit_is_measured_once(tmp_path, capsys):
    """In processes of their own, on two made sets; only what is missing is measured."""
    pytest.importorskip("matplotlib", reason="the figure needs matplotlib")
    folder = ["--seeds", "1", "--out", str(tmp_path)]
    peers.main(["--sets", "made-2", "made-3", "--methods", "quick", *folder])
    first = (tmp_path / "results.jsonl").read_text()
    peers.main(["--sets", "made-2", "--methods", "kmeans-tfidf", "quick", *folder])
    again = (tmp_path / "results.jsonl").read_text()
    assert again.startswith(first)
    records = [json.loads(line) for line in again.splitlines()]
    assert [(r["set"], r["method"]) for r in records] == [
        ("made-2", "quick"),
        ("made-3", "quick"),
        ("made-2", "kmeans-tfidf"),
    ]
    assert all(r["accuracy"] > 0.95 and r["nmi"] > 0.8 and r["seconds"] > 0 and r["megabytes"] >= 0 for r in records)
    assert "| onmf quick | **100.0** | **100.0** | **1.000** |" in (tmp_path / "averages.md").read_text()
    assert "| made-3 | 120 | – | 100.0 |" in (tmp_path / "sets.md").read_text()
    assert (tmp_path / "accuracy-time.png").stat().st_size > 5000
    assert "made-2" in capsys.readouterr().out


@pytest.mark.parametrize("method", peers.METHODS)
def test_every_method_labels_every_document(method):
    if method == "sib":
        pytest.importorskip("sib", reason="the bottleneck needs sib-clustering")
    X, y = peers.load("made-3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries
        labels = peers.METHODS[method].labels(X, 3, 0)
    assert np.shape(labels) == y.shape
    assert set(np.unique(labels)) <= {0, 1, 2}


def test_a_fit_that_takes_too_long_is_given_up():
    X, y = peers.load("made-3")
    record = peers.measure_one("made-3", "lda", 0, X, y, limit=0.05)
    assert record == {"set": "made-3", "documents": 120, "method": "lda", "seed": 0, "over": 0.05}
    tables = peers.Tables([record])
    assert "| made-3 | 120 | over 0.05 s |" in tables.by_set()
    assert "| LDA | – | – | – | – | – |" in tables.averages()
