"""The benchmark runs and prints at reduced size. Its times are not tested."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from benchmarks import (
    documents,
    gpu,
    groups,
    known,
    markers,
    measure,
    number,
    scale,
    search,
    speed,
    steps,
    surprise,
    update,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.cells import compare
from benchmarks.data import load
from benchmarks.plain import plain_fit, plain_snpa, project
from benchmarks.results import Store, judged, table
from benchmarks.scale import corpus, estimate, other_draw, simulate
from scipy.sparse import csr_array

from onmf import ONMF, snpa
from onmf.datasets import make_counts

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.long("the benchmarks")


def here(function, *arguments, **limits):
    """Stands for a call in a process of its own, which imports everything again."""
    return function(*arguments)


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch):
    """Restores after each test what a benchmark sets for its process."""
    monkeypatch.setattr(measure, "QUICK", measure.QUICK)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


def test_markers_agree_with_the_classes_at_least_as_scores_do():
    records = Store(ROOT / "docs" / "cells" / "results.json", ("set", "method"), "markers").records
    found = {(record["set"], record["method"]): record for record in records}
    for name in markers.MARKERS:
        for key in ("accuracy", "ari"):
            assert found[name, "seeds"][key] >= found[name, "score"][key], name


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_command(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m benchmarks {name}" in capsys.readouterr().out


def test_a_wrong_name_is_answered_with_the_right_ones(capsys):
    with pytest.raises(SystemExit, match=r"There is no benchmark peer\. There are speed, .* peers, "):
        main(["peer"])
    with pytest.raises(SystemExit):
        main(["speed", "--parts", "fits"])
    assert "invalid choice: 'fits'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["gpu", "--parts", "dense", "--help"])
    assert ended.value.code == 0


def test_records_replace_those_of_the_same_key(tmp_path):
    for part in ("", "own"):
        path = tmp_path / f"results{part}.json"
        store = Store(path, ("set", "seed"), part)
        store.add({"set": "a", "seed": 0, "value": 1}, {"set": "b", "seed": 0, "value": 2})
        Store(path, ("set", "seed"), part).add({"set": "a", "seed": 0, "value": 3})
        again = Store(path, ("set", "seed"), part)
        assert [record["value"] for record in again.records] == [3, 2]
        assert ("b", 0) in again
        assert ("b", 1) not in again


def test_targets_and_tables():
    assert judged(2.5, "≥ 2.5 ×") == {"target": "≥ 2.5 ×", "met": True}
    assert judged(2.5, "< 2.5") == {"target": "< 2.5", "met": False}
    assert judged(2.5, "") == {"target": "", "met": None}
    assert table(["", "b"], [["x", ""]]) == ["| | b |", "|---|---:|", "| x | |"]


def tables_of_the_docs():
    """Yield the files of docs that are made from stored results, and their last lines. Some first name the machine."""

    def stored(path):
        return json.loads((ROOT / "docs" / path).read_text(encoding="utf-8"))

    yield "optima/optima", documents.summary_of_optima(stored("optima/results.json"))
    yield "optima/steps", steps.summary(stored("optima/steps.json"))
    yield "optima/search", search.summary(stored("optima/search.json"))
    yield "number/number", number.summary(stored("number/results.json"))
    yield "update/update", update.summary(stored("update/results.json"))
    yield "known/known", known.summary(stored("known/results.json"))
    yield "surprise/surprise", surprise.summary(stored("surprise/results.json"))
    yield "scale/scale", scale.summary(stored("scale/results.json"))
    yield "gpu/gpu", gpu.to_markdown(**stored("gpu/results.json"))
    for name in ("speed", "targets"):
        yield f"performance/{name}", getattr(speed, f"to_{name}")(**stored("performance/results.json"))
    cells = stored("cells/results.json")
    yield "cells/results", compare.summary(cells["sets"])
    yield "cells/reads", compare.summary_of_reads(cells["reads"])
    yield "cells/million", compare.summary_of_million(cells["million"])
    yield "groups/results", groups.summary(stored("groups/results.json"))
    for name, lines in documents.tables_of_peers(stored("compare/results.json")).items():
        yield f"compare/{name}", lines


def test_the_tables_of_the_docs_are_those_of_the_stored_results():
    for name, lines in tables_of_the_docs():
        text = "\n".join(lines) + "\n"
        assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").endswith(text), name


def test_every_part_of_speed_runs(tmp_path, capsys):
    main(["--quick", "--repeats", "1", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    parts = {row["part"] for row in rows}
    assert parts == {
        "iteration",
        "peers",
        "fit",
        "image",
        "groups",
        "threads",
        "growth",
        "floor",
        "memory",
        "start",
        "bregman",
    }
    assert all(np.isfinite(row["value"]) for row in rows)
    for name in ("speed.md", "targets.md", "speed.png"):
        assert (tmp_path / name).stat().st_size > 500
    assert "against KMeans" in capsys.readouterr().out


def test_the_number_of_clusters_is_measured(tmp_path, capsys, monkeypatch):
    """Each part but the times, small. A second run measures nothing again."""
    small = {"BURSTS": {"none": None}, "ROWS": 20, "CLUSTERS": 6, "OWN": (0.5,), "SIZES": (60,)}
    small |= {"WIDTHS": {"dense": (20, 200.0)}, "STRUCTURELESS": {"Poisson": (0.0, None)}}
    for name, value in small.items():
        monkeypatch.setattr(number, name, value)
    parts = [part for part in number.KEYS if part != "seconds"]
    arguments = ["number", "--parts", *parts, "--numbers", "3", "--seeds", "1", "--draws", "1"]
    arguments += ["--sets", "made-3", "made-5", "--out", str(tmp_path)]
    main(arguments)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(record["unequal"], record["levels"]["medium"]) for record in found["made"]] == [(False, 3), (True, 3)]
    assert number.GROUPS in found["nested"][0]["levels"].values()
    assert found["nothing"][0]["levels"] == {}
    sets = [(record["set"], record["share"], record["levels"]["medium"]) for record in found["sets"]]
    assert sets == [("made-3", "whole", 3), ("made-5", "whole", 5), ("made-3", "half", 2), ("made-5", "half", 2)]
    assert [record.get("held_out") for record in found["sets"]] == [2, 2, None, None]
    text = (tmp_path / "number.md").read_text()
    assert "Clusters were found in 0 of 1 draws; 0 are allowed: ✓" in text
    main(arguments)
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert "and exact or off by one in 100% of 2 cases" in capsys.readouterr().out


def test_local_search_is_measured(tmp_path, capsys, monkeypatch):
    """The slower way has its runs, and the other at least its own. A second run measures nothing again."""
    monkeypatch.setattr(search, "DIVERGENCES", {name: search.DIVERGENCES[name] for name in ("frobenius", "bernoulli")})
    arguments = ["search", "--sets", "made-3", "--seeds", "1", "--out", str(tmp_path)]
    main(arguments)
    found = json.loads((tmp_path / "search.json").read_text())
    assert [record["divergence"] for record in found] == list(search.DIVERGENCES)
    for record in found:
        assert record["restarts"]["runs"] >= search.RESTARTS
        assert record["search"]["runs"] >= 1
        assert record["restarts"]["runs"] == search.RESTARTS or record["search"]["runs"] == 1
    main(arguments)
    assert json.loads((tmp_path / "search.json").read_text()) == found
    assert "| made-3 (120 × 3) | Frobenius |" in capsys.readouterr().out


def test_known_rows_are_measured(tmp_path, capsys):
    """On a set of which nearly all rows are found. A second run measures nothing again."""
    arguments = ["known", "--sets", "made-4", "--draws", "1", "--out", str(tmp_path)]
    main(arguments)
    found = json.loads((tmp_path / "results.json").read_text())
    sizes = np.bincount(load("made-4")[1])
    rows = [int(np.minimum(n, sizes // 2).sum()) for n in known.NUMBERS]
    assert [(record["rows"], record["free"]) for record in found["known"]] == [(n, 120 - n) for n in rows]
    for record in found["known"]:
        assert record["none"] == record["classifier"]
        assert record["auto"] > 90
    [half] = found["half"]
    assert half["with"] > 90
    assert half["named"] <= half["with"]
    main(arguments)
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert "| made-4 |" in capsys.readouterr().out


def test_updates_are_measured(tmp_path, capsys):
    """On a set of thirty rows a month. A second run measures nothing again."""
    arguments = ["update", "--name", "made-4", "--draws", "1", "--out", str(tmp_path)]
    main(arguments)
    found = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [len(record["new"]) for record in found["random"]] == [update.MONTHS - 1]
    assert [record["newsgroup"] for record in found["new"]] == [0, 1, 2, 3]
    assert all(record["found"] == (min(record["recall"], record["precision"]) > 0.5) for record in found["new"])
    main(arguments)
    assert json.loads((tmp_path / "results.json").read_text("utf-8")) == found
    assert "of 4 newsgroups are found" in capsys.readouterr().out


def test_surprise_is_measured(tmp_path, capsys, monkeypatch):
    """Sets that need no files. A second run measures nothing again."""
    monkeypatch.setattr(surprise, "MOST", 300)
    sets = ["docstrings", "made, few photons", "made, short"]
    arguments = ["surprise", "--parts", "documents", "images", "tables", "--sets", *sets, "--out", str(tmp_path)]
    main(arguments)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [record["kind"] for record in found] == ["documents", "images", "tables"]
    for record in found:
        assert (record["fitted"], record["held back"]) == (240, 60)
        assert record["flagged"] < 12
        assert record["among its own"] <= 0.05
        rows, flagged = record["shuffled"][0]
        assert flagged > rows / 2
    main(arguments)
    assert json.loads((tmp_path / "results.json").read_text()) == found
    assert "of 1 sets are outside their band" in capsys.readouterr().out


def test_sets_are_restricted_to_some_of_their_classes():
    assert number.subsets(4, "whole", 3) == [[0, 1, 2, 3]]
    assert number.subsets(3, "quarter", 3) == []
    assert sorted(number.subsets(3, "half", 5)) == [[0, 1], [0, 2], [1, 2]]
    drawn = number.subsets(20, "quarter", 3)
    assert [len(set(some)) for some in drawn] == [5, 5, 5]
    assert drawn[:2] == number.subsets(20, "quarter", 2)


def test_constants_in_hindsight():
    assert number.within([2, 3, 9], 3, 1.5).tolist() == [True, True, False]
    assert number.best_constants(np.array([2, 10, 50]), 3, 1.5) == ((2, 7, 34), 1.0)
    assert number.best_constants(np.array([2, 4, 50]), 1, 2.0) == ((2,), pytest.approx(2 / 3))


def test_what_follows_the_votes_is_judged_by_held_out_words():
    """Right clusters predict words, random ones do not. Every candidate is scored, and the table marks the choice."""
    made = make_counts(200, 400, 3, length=60, overlap=0.2, random_state=0)
    X = csr_array(made.X.astype(np.float64))
    known, hidden = steps.halved(X, np.random.default_rng(0))
    assert (known + hidden != X).nnz == 0
    assert known.multiply(hidden).nnz == 0
    shuffled = np.random.default_rng(0).permutation(made.y)
    assert steps.gain(hidden, made.y, 3) > 0.05
    assert steps.gain(hidden, shuffled, 3) < 0.01
    assert steps.in_common(made.y, made.y) > 1.5
    assert abs(steps.in_common(made.y, shuffled)) < 0.05
    cells = steps.measure("made", X, 3, 0, 1)
    assert [cell["step"] for cell in cells] == list(steps.CANDIDATES)
    assert all(cell["gain"] > 0.05 for cell in cells)
    chosen = [line for line in steps.summary(cells) if line.startswith("| **")]
    assert len(chosen) == 1


def test_the_plain_version_is_the_same_algorithm():
    """The baseline does the same work as onmf: the same seeds, and the same number of iterations."""
    X = make_counts(300, 80, 4, random_state=0).X.astype(float)
    assert plain_snpa(X, 4) == snpa(X, 4).tolist()
    assert plain_fit(X, 4) == ONMF(4).fit(X).n_iter_


def test_projection_of_the_plain_version():
    H = np.random.default_rng(0).normal(size=(50, 4))
    P = project(H)
    assert P.min() >= 0
    assert P.sum(axis=1).max() <= 1 + 1e-12
    inside = (H >= 0).all(axis=1) & (H.sum(axis=1) <= 1)
    assert P[inside] == pytest.approx(H[inside])
    assert csr_array(P).shape == (50, 4)


def test_the_estimate_of_scale_is_consistent():
    """Small cases agree with a computation by hand, and no estimate is below the bounds of compute and scheduler."""
    assert simulate(1, 1, compute=0.0, overhead=2.0, broadcast=3.0, sending=0.0) == 3.0
    assert simulate(3, 9, compute=0.0, overhead=2.0, broadcast=3.0, sending=0.5) == 6.0 + 2 * 0.5
    for row in estimate(rate=1e7, overhead=1e-3)["rows"]:
        assert row["sum"] == pytest.approx(sum(row[name] for name in ("compute", "scheduler", "broadcast", "tree")))
        assert row["simulated"] > max(0.9 * row["compute"], row["scheduler"])


def test_data_of_the_scale_benchmark():
    X = corpus(30_000, words=500)
    assert 0.5 < X.nnz / 30_000 < 2
    other = other_draw(X, 1)
    assert (other.shape, other.nnz, other.dtype) == (X.shape, X.nnz, np.float32)
    assert other.data.min() == 1


def test_cells_side_by_side(tmp_path, monkeypatch):
    """All contenders. A second run, in a process of its own, replaces its own records, and keeps the others."""
    for needed in ("anndata", "igraph", "matplotlib", "scanpy"):
        pytest.importorskip(needed, reason=f"the contenders need {needed}")
    with monkeypatch.context() as patch:
        patch.setattr(compare, "in_child", here)
        main(["cells", "--parts", "sets", "--quick", "--seeds", "1", "--out", str(tmp_path)])
    records = json.loads((tmp_path / "results.json").read_text())["sets"]
    assert [record["contender"] for record in records] == ["kmeans", "leiden", "paper", "default", "consensus"]
    assert {(record["clusters"], record["ari"]) for record in records} == {(3, 1.0)}
    assert all(record["seconds"] > 0 and record["gigabytes"] > 0 for record in records)
    assert (tmp_path / "results.png").stat().st_size > 5000
    main(["cells", "--parts", "sets", "--quick", "--seeds", "2", "--methods", "default", "--out", str(tmp_path)])
    again = json.loads((tmp_path / "results.json").read_text())["sets"]
    assert [record for record in again if record["contender"] != "default"] == [
        record for record in records if record["contender"] != "default"
    ]
    assert [record["seed"] for record in again if record["contender"] == "default"] == [0, 1]
    table = (tmp_path / "results.md").read_text()
    assert table.startswith("Measured on")
    assert "| made-3 | **1.00** ± 0.00 |" in table


def test_batches_with_and_without_groups(tmp_path, capsys, monkeypatch):
    """All contenders but Harmony, which is left out with a sentence if it is not installed."""
    for needed in ("anndata", "igraph", "matplotlib", "scanpy"):
        pytest.importorskip(needed, reason=f"the contenders need {needed}")
    monkeypatch.setattr(groups, "find_spec", lambda name: None)
    main(["groups", "--quick", "--seeds", "1", "--out", str(tmp_path)])
    assert "Harmony is left out" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    cases = [(record["composition"], record["sd"]) for record in records if record["contender"] == "groups"]
    assert cases == [(composition, sd) for composition in groups.COMPOSITIONS for sd in groups.EFFECTS]
    assert {record["contender"] for record in records} == {"plain", "groups", "door", "kmeans", "leiden", "classes"}
    assert all(min(record["ari"]) > 0.9 for record in records if record["contender"] == "groups")
    assert (tmp_path / "results.png").stat().st_size > 5000
    assert "| needless groups, at random | KL with groups | +0.000 |" in (tmp_path / "results.md").read_text()


def test_made_batches():
    """Batch 1 stays as it is, batch 2 keeps its depth and gets the factors, and classes are divided as asked."""
    made = make_counts(3000, 50, 2, length=400, random_state=0)
    X = csr_array(made.X.astype(np.int64))
    even, confounded = (groups.with_batches(X, made.y, composition, 0.5, 0) for composition in groups.COMPOSITIONS)
    for case in (even, confounded):
        first, second = (case.groups == batch for batch in (0, 1))
        assert (case.X[first] != X[first]).nnz == 0
        assert case.X[second].sum() == pytest.approx(X[second].sum(), rel=0.01)
        logs = np.log(case.X[second].sum(axis=0) / X[second].sum(axis=0))
        assert 0.3 < logs.std() < 0.7
    assert [even.groups[made.y == c].mean() for c in (0, 1)] == pytest.approx([0.5, 0.5], abs=0.05)
    assert [confounded.groups[made.y == c].mean() for c in (0, 1)] == pytest.approx([0.2, 0.8], abs=0.05)
    needless = groups.with_batches(X, made.y, "even", 0.0, 0)
    assert (needless.X != X).nnz == 0
    assert (needless.groups == even.groups).all()


def test_a_set_that_lacks_a_contender_has_a_gap():
    record = {"seed": 0, "clusters": 3, "nmi": 0.5, "seconds": 1.0, "gigabytes": 1.0}
    records = [
        {"set": "a", "contender": "kmeans", "ari": 0.25} | record,
        {"set": "a", "contender": "default", "ari": 0.75} | record,
        {"set": "b", "contender": "default", "ari": 0.5} | record,
    ]
    lines = compare.summary(records)
    assert "| a | 0.25 ± 0.00 | **0.75** ± 0.00 |" in lines
    assert "| b | – | **0.50** ± 0.00 |" in lines


def test_reads_of_molecules(tmp_path):
    main(["cells", "--parts", "reads", "--quick", "--seeds", "1", "--out", str(tmp_path)])
    assert "| made-3, reads |" in (tmp_path / "reads.md").read_text()
    X, _ = load(compare.TINY)
    found = compare.amplified(X, 0)
    assert found.shape == X.shape
    assert found.data.min() > 0
    assert found.sum() == found.multiply(X > 0).sum()  # a gene without a molecule has no reads


def test_many_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "in_child", here)
    main(["cells", "--parts", "million", "--quick", "--methods", "paper", "default", "--out", str(tmp_path)])
    records = json.loads((tmp_path / "results.json").read_text())["million"]
    assert [(record["cells"], record["contender"]) for record in records] == [(4000, "paper"), (4000, "default")]
    assert {record["clusters"] for record in records} == {compare.CLUSTERS}
    X, y = compare.generate(3000)
    assert X.dtype == np.int32
    assert len(np.unique(y)) == compare.CLUSTERS
    assert 0.04 < X.nnz / np.prod(X.shape) < 0.09
    lines = compare.summary_of_million([records[0] | {"failed": "more than 20 minutes"}])
    assert lines[-1].endswith("| more than 20 minutes | | |")


def test_the_map_of_a_set(tmp_path):
    pytest.importorskip("openTSNE", reason="the map needs openTSNE")
    pytest.importorskip("matplotlib", reason="the map needs matplotlib")
    main(["cells", "--parts", "map", "--quick", "--out", str(tmp_path)])
    assert (tmp_path / "map.png").stat().st_size > 5000


def test_a_call_in_a_child_process():
    """Its result, or its error, or a sentence about the limit that it reached."""
    assert measure.in_child(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        measure.in_child(int, "seven")
    with pytest.raises(TimeoutError, match="more than 0 minutes"):
        measure.in_child(signal.pause, minutes=0)
    with pytest.raises(MemoryError, match="more than 2 GB"):
        measure.in_child(bytes, 4 * 10**9, gigabytes=2)
    with pytest.raises(MemoryError, match="ended by the system"):
        measure.in_child(os._exit, 9)
