"""What all kinds of data promise alike: the fields of a result, its files, its columns, and the options of commands."""

import csv
import inspect
import json
import os
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import onmf
from conftest import command, make_nested_counts
from onmf.cli import app
from onmf.cli.command import SHARED, parsed
from onmf.cli.common import imported
from onmf.datasets import make_counts, make_scene
from onmf.door import Clusters, cluster_table, predict_table
from onmf.door.run import MOVED, moved_without_smoothing
from onmf.door.write import files_of
from onmf.estimator import adopt_clustering
from onmf.image import Cube
from onmf.kinds import KINDS, get_kind

K = 3
MADE = make_counts(60, 30, K, length=80, random_state=0)
COUNTS = MADE.X.toarray()
SCENE = make_scene(6, 10, 20, K, random_state=1).X
CLASSES = [f"type {label}" for label in MADE.y]


def write_csv(path, names, X):
    """Write counts, and a last row of zeros."""
    rows = [["name", *names], *([f"r{i}", *row] for i, row in enumerate(X)), ["r60"] + 30 * [0]]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    kinds = [f"r{i},{name}" for i, name in enumerate([*CLASSES, "type 0"])]
    path.with_name("classes.csv").write_text("\n".join(["name,kind", *kinds]) + "\n")
    return path


def documents(folder, X=COUNTS):
    words = [f"w{chr(97 + j // 26)}{chr(97 + j % 26)}" for j in range(30)]
    texts = [" ".join(np.repeat(words, row)) for row in X]
    rows = zip([*texts, "..."], [*CLASSES, "type 0"], strict=True)
    lines = [json.dumps({"id": f"r{i}", "text": text, "kind": kind}) for i, (text, kind) in enumerate(rows)]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return folder / "texts.jsonl", {"labels": "kind"}


def image(folder, X=SCENE):
    X = X.reshape(6, 10, -1).copy()
    X[5, 9] = 0
    np.save(folder / "scene.npy", X)
    return folder / "scene.npy", {"ignore_value": 0.0}


def cells(folder, X=COUNTS):
    path = write_csv(folder / "cells.csv", [f"GENE{j}" for j in range(30)], X)
    return path, {"labels": f"{folder / 'classes.csv'}:kind", "orientation": "cells-in-rows"}


def table(folder, X=COUNTS):
    path = write_csv(folder / "table.csv", [f"feature {j}" for j in range(30)], X)
    return path, {"labels": f"{folder / 'classes.csv'}:kind"}


DOORS = {"documents": documents, "image": image, "cells": cells, "table": table}
"""For each kind, what writes a file whose last row cannot be clustered, and the options that read it."""

COLUMNS = ["id", "cluster", "name", "confidence", "runner_up", "scale", "margin", "surprise"]
CLUSTER_COLUMNS = ["cluster", "name", "size"]
SHARED_KEYS = [
    *("onmf", "kind", "run", "source", "n_clusters", "unassigned", "fit", "n_iter", "stop_reason", "objective"),
    *("moved_without_smoothing", "clusters", "notes", "selection", "comparison"),
]
WRITTEN = {"clusters.csv", "summary.json", "model.onmf", "report.html"}


def test_every_kind_with_a_command_is_tested_here():
    assert set(DOORS) == {name for name in KINDS if get_kind(name).command is not None}


@pytest.fixture(scope="module")
def open_door(tmp_path_factory):
    """Read the file of a kind, and cluster it in a way; what was done before is kept."""

    @cache
    def read(name):
        kind = get_kind(name)
        path, given = DOORS[name](tmp_path_factory.mktemp(name))
        values = {option.name: given.get(option.name, option.default) for option in kind.options}
        options = {option.name: parsed(option, values[option.name]) for option in kind.options}
        reading = {option.name: options.pop(option.name) for option in kind.options if option.reading}
        return kind, path, kind.read(path, lambda step, share: None, **reading), options

    @cache
    def cluster(name, **parameters):
        kind, _, rows, options = read(name)
        return cluster_table(kind, rows, K, options=options, **parameters)

    cluster.read = read
    return cluster


def arguments(name, folder, *X):
    """The file of a kind, and its options as the command takes them."""
    path, given = DOORS[name](folder, *X)
    flags = {option.name: option.flags or (f"--{option.name.replace('_', '-')}",) for option in get_kind(name).options}
    return [path, *(part for key, value in given.items() for part in (flags[key][0], value))]


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


every_kind = pytest.mark.parametrize("name", DOORS)


@every_kind
class TestResult:
    def test_its_fields(self, open_door, name):
        found = open_door(name)
        assert isinstance(found, Clusters)
        assert found.kind is get_kind(name)
        assert type(found) is found.kind.result
        shape = (6, 10) if name == "image" else (61,)
        for field in ("labels", "scales", "margins", "confidence", "runners_up"):
            assert getattr(found, field).shape == shape, field
        assert found.labels.dtype.kind == found.runners_up.dtype.kind == "i"
        assert found.n_clusters == len(found.names) == len(found.sizes) == K
        assert found.sizes.tolist() == np.bincount(found.labels[found.labels >= 0]).tolist()
        assert found.sizes.tolist() == sorted(found.sizes, reverse=True), "the largest cluster is the first"
        assert len(found.features) == found.model.n_features_in_
        assert len(set(found.names)) == K
        assert isinstance(found.fitted, str)
        assert found.selection is None
        assert np.isnan(found.finding()).tolist() == [True] * K, "nothing was halved"
        assert found.missing == []
        assert found.calibration is not None
        assert [len(top) for top in found.distinctive(2)] == [2] * K
        assert [len(top) for top in found.frequent(2)] == [2] * K
        assert found.model.extra_["kind"] == name
        assert found.model.random_state == 0, "the same rows give the same clusters"

    def test_a_namer(self, open_door, name):
        kind, _, rows, options = open_door.read(name)
        seen = []

        def namer(features, texts):
            seen.append((features, texts))
            return f"number {len(seen)}"

        found = cluster_table(kind, rows, K, options=options, namer=namer)
        assert found.names == [f"number {k + 1}" for k in range(K)]
        assert found.model.extra_["names"] == found.names
        for features, texts in seen:
            assert features
            assert len(texts) == 5
            assert all(isinstance(each, str) and each for each in features + texts)
        assert kind.own_names(found) == open_door(name).names

    def test_rows_without_a_cluster(self, open_door, name):
        found = open_door(name)
        inside = np.ones(found.labels.size, bool)
        inside[-1] = False
        for field, missing in (("labels", -1), ("runners_up", -1)):
            values = getattr(found, field).ravel()
            assert values[-1] == missing
            assert ((values[inside] >= 0) & (values[inside] < K)).all()
        for field in ("scales", "margins", "confidence"):
            values = getattr(found, field).ravel()
            assert np.isnan(values[-1])
            assert np.isfinite(values[inside]).all()
        assert (found.runners_up.ravel()[inside] != found.labels.ravel()[inside]).all()
        assert ((found.confidence.ravel()[inside] >= 0) & (found.confidence.ravel()[inside] <= 1)).all()
        assert found.unassigned == [str(found.table.rows[found.labels.size - 1])]
        assert sum(found.sizes) == found.labels.size - 1

    def test_rows_that_fit_nowhere(self, open_door, name):
        plain, found = open_door(name), open_door(name, unassigned=0.1, min_confidence=0.2)
        kept = plain.labels >= 0
        out = kept & ((plain.surprise <= 0.1) | (plain.confidence < 0.2))
        assert 0 < out.sum() < 30
        assert np.array_equal(found.labels, np.where(out, -1, plain.labels))
        assert np.array_equal(found.runners_up[out], plain.labels[out]), "the cluster that it would have"
        assert np.array_equal(found.templates, plain.templates)
        for field in ("scales", "margins"):
            assert np.isnan(getattr(found, field)[out]).all(), field
        for field in ("confidence", "surprise"):
            assert np.array_equal(getattr(found, field), getattr(plain, field), equal_nan=True), field
        rows = open_door.read(name)[2]
        again, none = found.predict(rows), found.predict(rows, unassigned=0.0, min_confidence=0.0)
        limits = (again.surprise <= 0.1) | (again.confidence < 0.2)
        assert np.array_equal(again.labels[kept] < 0, limits[kept]), "the model keeps the shares"
        assert (none.labels[kept] >= 0).all()

    def test_the_most_likely_clusters(self, open_door, name):
        found, rows = open_door(name), open_door.read(name)[2]
        for result in (found, found.predict(rows)):
            best, probabilities = result.most_likely(10)
            assert best.shape == probabilities.shape == (*result.labels.shape, K), "there are no more"
            kept = result.labels >= 0
            assert (np.sort(best[kept]) == np.arange(K)).all()
            assert (best[~kept] == -1).all()
            assert np.isnan(probabilities[~kept]).all()
            assert probabilities[kept].sum(axis=1) == pytest.approx(1)
            assert (np.diff(probabilities[kept]) <= 0).all()
            assert np.mean(best[kept][:, 0] == result.labels[kept]) > 0.9, "runs may have voted"
            order = np.argsort(result.confidence[kept])
            least, most = order[:20], order[-20:]
            assert probabilities[kept][least, 0].mean() <= probabilities[kept][most, 0].mean()
            for one, other in zip(result.most_likely(2), (best, probabilities), strict=True):
                np.testing.assert_array_equal(one, other[..., :2])
        with pytest.raises(ValueError, match="n=0 is not allowed: ask for at least one cluster"):
            found.most_likely(0)

    def test_probabilities_of_merged_centroids_are_added(self, open_door, name):
        found, rows = open_door(name), open_door.read(name)[2]
        model = found.predict(rows).model.to_cpu()
        every = found.predict(rows).most_likely(K)
        merged = replace(model.clustering_, clusters=np.array([0, -1, 0]))
        adopt_clustering(model, merged, model.engine_, model.divergence_)
        best, probabilities = predict_table(model, rows).most_likely(K)
        assert best.shape[-1] == 1, "the others are gone or unassigned"
        kept = found.labels >= 0
        together = np.where(every[0] == 1, 0.0, every[1]).sum(axis=-1)
        assert probabilities[kept][:, 0] == pytest.approx(together[kept], rel=1e-9)

    def test_typical_and_doubtful_rows(self, open_door, name):
        found = open_door(name)
        labels, margins = found.labels.ravel(), found.margins.ravel()
        for k in range(K):
            typical, doubtful = found.typical(k, 3), found.doubtful(k, 3)
            assert len(typical) == len(doubtful) == 3
            assert set(labels[[*typical, *doubtful]]) == {k}
            assert margins[typical].tolist() == sorted(margins[typical], reverse=True)
            assert margins[doubtful].tolist() == sorted(margins[doubtful])
            assert margins[typical].min() >= margins[doubtful].max()

    def test_known_classes(self, open_door, name):
        found = open_door(name)
        if name == "image":
            assert found.comparison is None
        else:
            assert found.comparison.n_rows == 60
            assert found.comparison.ari > 0.85

    def test_notes_are_sentences(self, open_door, name):
        for note in open_door(name).notes:
            assert note[0].isupper() or note[0].isdigit(), note
            assert note.endswith("."), note
            assert "\n" not in note

    def test_the_same_rows_give_the_same_labels(self, open_door, name):
        """By the assignment rule: of one run of the loop, without a vote and without a local search."""
        found = open_door(name, init="snpa", **{"n_init": 1, "refine": None} if name == "cells" else {})
        again = found.predict(open_door.read(name)[2])
        assert type(again) is type(found)
        np.testing.assert_array_equal(again.labels, found.labels)
        np.testing.assert_array_equal(again.runners_up, found.runners_up)
        np.testing.assert_allclose(again.scales, found.scales, rtol=1e-5)
        np.testing.assert_allclose(again.margins, found.margins, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(again.confidence, found.confidence, rtol=1e-4)
        assert again.names == found.names
        assert list(again.features) == list(found.features)
        assert again.unassigned == found.unassigned
        assert any("unassigned" in note for note in again.notes)
        steps = []
        found.predict(open_door.read(name)[2], progress=lambda step, share: steps.append(step))
        assert steps
        np.testing.assert_array_equal(predict_table(found.model, open_door.read(name)[2]).labels, found.labels)

    def test_a_model_of_another_kind_is_refused(self, open_door, name):
        other = "table" if name != "table" else "cells"
        model = open_door(other).model
        with pytest.raises(
            ValueError, match=rf"model of kind '{other}': {get_kind(name).row}s need one of kind '{name}'"
        ) as error:
            predict_table(model, open_door.read(name)[2], kind=get_kind(name))
        assert f"such as 'onmf {name}' writes." in str(error.value)

    def test_frame(self, open_door, name):
        found = open_door(name)
        frame = found.to_frame()
        if name == "image":
            assert list(frame)[:3] == CLUSTER_COLUMNS
            assert frame["size"].tolist() == found.sizes.tolist()
            return
        assert list(frame) == [*COLUMNS, *(["counts", "genes"] if name == "cells" else []), "label"]
        assert frame["scale"].dtype == np.float64
        assert frame["id"].tolist() == list(found.table.rows)
        labels = frame["cluster"].astype("float").to_numpy() - found.kind.first
        np.testing.assert_array_equal(labels, np.where(found.labels < 0, np.nan, found.labels))
        assert frame["name"].tolist()[:-1] == [found.names[k] for k in found.labels[:-1]]

    def test_it_shows_itself(self, open_door, name):
        found = open_door(name)
        assert repr(found).startswith(f"<{type(found).__name__} of ")
        assert repr(found).endswith(f", {K} clusters>")
        page = found._repr_html_()
        assert page.count("<tr>") == K + 1
        assert all(head in page for head in CLUSTER_COLUMNS)
        assert found.plot_features(2)[0].get_title(loc="left").startswith(f"{found.kind.first}: ")

    def test_the_report(self, open_door, name, tmp_path):
        found, steps = open_door(name), []
        found.report(tmp_path / "mine.html", title="Mine & yours", progress=lambda step, share: steps.append(step))
        page = (tmp_path / "mine.html").read_text("utf-8")
        assert "<title>Mine &amp; yours</title>" in page
        assert found.names[0] in page
        assert os.listdir(tmp_path) == ["mine.html"]
        assert all(step[0].isupper() for step in steps)

    def test_the_map_of_the_report(self, open_door, name, tmp_path):
        found, path = open_door(name), tmp_path / "report.html"
        if name == "image":
            with pytest.raises(ValueError, match="consists of its maps, which take no time: leave out map"):
                found.report(path, map="none")
            return
        with pytest.raises(ValueError, match="map='big' is not known: use one of 'full', 'quick', 'none'"):
            found.report(path, map="big")
        found.report(path, map="none")
        page = path.read_text("utf-8")
        assert '"places":null' in page
        assert 'href="#map"' not in page
        found.save(tmp_path / "out", map="quick")
        assert 'href="#map"' in (tmp_path / "out" / "report.html").read_text("utf-8")
        assert found.map_to_draw(None) == "full"
        assert open_door(name, quick=True).map_to_draw(None) == "quick"


@every_kind
class TestFiles:
    @pytest.fixture
    def saved(self, open_door, name, tmp_path):
        found = open_door(name)
        assert found.save(tmp_path / "out", title="Mine") == tmp_path / "out"
        return found, tmp_path / "out"

    def test_the_folder(self, saved, name):
        found, out = saved
        written = set(os.listdir(out))
        shared = WRITTEN if name == "image" else WRITTEN | {"assignments.csv"}
        assert shared <= written
        assert written <= set(files_of(found.kind))
        assert written - shared <= set(found.kind.files)
        assert "assignments.csv" not in written or name != "image", "an image has maps instead"
        assert "<title>Mine</title>" in (out / "report.html").read_text("utf-8")

    def test_the_tables(self, saved, name):
        found, out = saved
        clusters = read_csv(out / "clusters.csv")
        assert list(clusters[0])[:3] == CLUSTER_COLUMNS
        assert "found" not in clusters[0], "the number was given"
        assert [int(row["cluster"]) for row in clusters] == list(range(found.kind.first, found.kind.first + K))
        assert [row["name"] for row in clusters] == found.names
        assert [int(row["size"]) for row in clusters] == found.sizes.tolist()
        if name == "image":
            return
        rows = read_csv(out / "assignments.csv")
        assert list(rows[0])[:8] == COLUMNS
        assert list(rows[0])[-1] == "label"
        assert [row["id"] for row in rows] == list(found.table.rows)
        assert [row["cluster"] for row in rows[:-1]] == [str(k + found.kind.first) for k in found.labels[:-1]]
        assert [row["label"] for row in rows[:-1]] == CLASSES
        assert {rows[-1][column] for column in COLUMNS[1:]} == {""}, "unassigned"
        assert [float(row["confidence"]) for row in rows[:-1]] == pytest.approx(found.confidence[:-1], abs=1e-4)

    def test_the_summary(self, saved, name):
        found, out = saved
        summary = json.loads((out / "summary.json").read_text("utf-8"))
        kind = found.kind
        assert [key for key in summary if key in SHARED_KEYS] == SHARED_KEYS, "in the same order"
        assert (summary["onmf"], summary["kind"]) == (onmf.__version__, name)
        assert summary[f"n_{kind.row}s"] == found.labels.size
        assert summary[f"n_{kind.feature}s"] == len(found.table.features if name != "image" else found.features)
        assert (summary["n_clusters"], summary["unassigned"]) == (K, 1)
        assert summary["fit"] == found.fitted
        assert summary["source"] == str(found.table.source)
        assert [list(row)[:3] for row in summary["clusters"]] == [CLUSTER_COLUMNS] * K
        assert summary["notes"] == found.notes
        assert summary["objective"] == found.model.clustering_.objective

    def test_the_model(self, saved, open_door, name):
        found, out = saved
        model = onmf.load(out / "model.onmf")
        assert model.extra_["kind"] == name
        again = predict_table(model, open_door.read(name)[2])
        assert again.names == found.names
        assert np.mean(again.labels == found.labels) > 0.9, "runs may have voted"

    def test_all_files_or_none(self, open_door, name, tmp_path, monkeypatch):
        found = open_door(name)

        def fail(*arguments):
            raise OSError("No space left on device")

        monkeypatch.setattr(found.kind, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            found.save(tmp_path / "out", report=False)
        assert list(tmp_path.iterdir()) == []

    def test_an_earlier_result_is_replaced_only_with_force(self, saved, tmp_path):
        found, out = saved
        with pytest.raises(OSError, match="exists and is not empty"):
            found.save(out)
        found.save(out, force=True, report=False)
        assert "report.html" not in os.listdir(out)
        (out / "thesis.tex").write_text("precious")
        with pytest.raises(OSError, match=r"thesis\.tex"):
            found.save(out, force=True)
        assert (out / "thesis.tex").read_text() == "precious"
        assert os.listdir(tmp_path) == ["out"]

    def test_parquet(self, open_door, name, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        found = open_door(name)
        found.save(tmp_path / "out", format="parquet", report=False)
        tables = [path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".parquet"]
        expected = ["clusters.parquet"] if name == "image" else ["assignments.parquet", "clusters.parquet"]
        assert sorted(tables) == expected
        assert parquet.read_table(tmp_path / "out" / "clusters.parquet").column_names[:3] == CLUSTER_COLUMNS
        with pytest.raises(ValueError, match="format='xls' is not known: use one of 'csv', 'parquet'"):
            found.save(tmp_path / "other", format="xls")
        assert os.listdir(tmp_path) == ["out"]

    def test_new_rows_are_saved_in_the_same_way(self, open_door, name, tmp_path):
        again = open_door(name).predict(open_door.read(name)[2])
        again.save(tmp_path / "out")
        written = set(os.listdir(tmp_path / "out"))
        assert (WRITTEN if name == "image" else WRITTEN | {"assignments.csv"}) <= written
        assert onmf.load(tmp_path / "out" / "model.onmf").extra_["names"] == again.names
        summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        assert [key for key in summary if key in SHARED_KEYS] == SHARED_KEYS

    def test_new_rows_without_some_of_the_features(self, open_door, name, tmp_path):
        """Features are matched by name, those that are missing count as 0, and the result is one of the model's."""
        found, rows = open_door(name), open_door.read(name)[2]
        if name == "image":
            with pytest.raises(ValueError, match="only images of the same sensor can be mapped"):
                found.predict(Cube(np.ones((6, 10, 10))))
            return
        p = len(rows.features)
        order = np.arange(p)[::-1][:-2]
        some = replace(rows, X=rows.X[:, order], features=[rows.features[j] for j in order])
        again = found.predict(some)
        assert again.missing == [str(name) for name in rows.features[:2]]
        assert f"2 of the model's {p} {found.kind.feature}s are missing and count as 0: " in again.notes[-2]
        assert np.mean(again.labels == found.labels) > 0.9
        assert list(again.features) == list(found.features)
        again.save(tmp_path / "out")
        model = onmf.load(tmp_path / "out" / "model.onmf")
        assert model.extra_["names"] == found.names
        np.testing.assert_array_equal(predict_table(model, some).labels, again.labels)


@every_kind
class TestCommand:
    def test_rows_that_fit_nowhere(self, open_door, name, tmp_path):
        path, *given = arguments(name, tmp_path)
        flags = [path, *given, "-k", K, "--no-report", *(("--init", "snpa") if name == "image" else ("--quick",))]
        ran = command(name, *flags, "--unassigned", 0.1, "--min-confidence", 0.2, "--out", tmp_path / "out")
        assert ran.returncode == 0, ran.stderr
        summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        assert 1 < summary["unassigned"] < 30
        note = next(note for note in summary["notes"] if "left unassigned" in note)
        assert note.endswith(" left unassigned, with a surprise of at most 0.1 or a confidence below 0.2.")
        assert note.startswith(f"{summary['unassigned'] - 1} {get_kind(name).rows_of(2)} ")
        model, new = tmp_path / "out" / "model.onmf", tmp_path / ("new" if name == "image" else "new.csv")
        ran = command("predict", model, path, *given, "--unassigned", 0.3, "--out", new)
        assert ran.returncode == 0, ran.stderr
        assert "left unassigned, with a surprise of at most 0.3 or a confidence below 0.2." in ran.stdout + ran.stderr
        ran = command("predict", model, path, *given, "--top", 2, "--out", new, "--force")
        assert ran.returncode == 0, ran.stderr
        again = predict_table(onmf.load(model), open_door.read(name)[2])
        best, probabilities = again.most_likely(2)
        first = again.kind.first
        if name == "image":
            with (
                warnings.catch_warnings(action="ignore"),
                pytest.importorskip("rasterio").open(new / "most_likely.tif") as file,
            ):
                assert file.descriptions == ("cluster 1", "probability 1", "cluster 2", "probability 2")
                bands = file.read()
            inside = again.templates >= 0
            assert np.array_equal(bands[::2, inside].T - first, best[inside])
            np.testing.assert_allclose(bands[1::2, inside].T, probabilities[inside], rtol=1e-5)
            assert np.isnan(bands[:, ~inside]).all()
        else:
            rows = read_csv(new)
            assert list(rows[0])[8:12] == ["cluster_1", "probability_1", "cluster_2", "probability_2"]
            assert [row["cluster_2"] for row in rows[:-1]] == [str(k + first) for k in best[:-1, 1]]
            assert [float(row["probability_1"]) for row in rows[:-1]] == pytest.approx(probabilities[:-1, 0], abs=1e-3)
            assert rows[-1]["cluster_1"] == rows[-1]["probability_1"] == ""
        for wrong in ("--unassigned", "--min-confidence"):
            ran = command(name, *flags, wrong, 1, "--out", tmp_path / "none")
            assert ran.returncode == 2 or ran.returncode == 1
            assert "it is a share, from 0 to less than 1" in ran.stderr
            assert not (tmp_path / "none").exists()

    def test_it_says_what_was_done(self, name, tmp_path):
        """A vote, where runs vote; otherwise the iterations of the run."""
        given = arguments(name, tmp_path)
        ran = command(name, *given, "-k", K, "--out", tmp_path / "out", "--no-report")
        assert ran.returncode == 0, ran.stderr
        first, summary = ran.stdout.splitlines()[0], json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        kind = get_kind(name)
        assert first.endswith(f", {K} {kind.cluster}s: {summary['fit']}")
        if "quick" not in kind.without and name != "cells":
            assert "a vote of 24 runs" in summary["fit"]
            assert f"The clusters are {summary['fit']}. --quick runs once" in ran.stderr
        ran = command(name, *given, "-k", K, "--init", "consensus", "--n-consensus", 5)
        assert ran.stdout.splitlines()[0].endswith(f", {K} {kind.cluster}s: a vote of 5 runs"), ran.stderr
        ran = command(name, *given, "-k", K, "--init", "snpa")
        assert ran.stdout.splitlines()[0].endswith(" iterations, converged"), ran.stderr

    def test_json_is_the_summary(self, name, tmp_path):
        out = tmp_path / "out"
        ran = command(
            name, *arguments(name, tmp_path), "-k", K, "--init", "snpa", "--json", "--no-report", "--out", out
        )
        assert ran.returncode == 0, ran.stderr
        printed, written = json.loads(ran.stdout), json.loads((out / "summary.json").read_text("utf-8"))
        assert printed.pop("out") == str(out)
        assert printed.pop("seconds") > 0
        assert printed == written

    def test_predict(self, name, tmp_path):
        path, *options = arguments(name, tmp_path)
        command(name, path, *options, "-k", K, "--init", "snpa", "--no-report", "--out", tmp_path / "out", "--quiet")
        ran = command("predict", tmp_path / "out" / "model.onmf", path, *options, "--json")
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        if name == "image":
            assert [key for key in found if key in SHARED_KEYS] == SHARED_KEYS
        else:
            assert list(found[0])[:8] == COLUMNS
            assert found[-1]["cluster"] is None
            assert "Compared with 3 classes (60 " in ran.stderr

    def test_the_file_is_refused_in_a_sentence(self, name, tmp_path):
        for path in (tmp_path / "nowhere", tmp_path):
            ran = command(name, path, "-k", K, "--out", tmp_path / "out")
            assert ran.returncode == 2
            assert ran.stderr.startswith("onmf: ")
            assert ran.stderr.count("\n") == 1
            assert os.listdir(tmp_path) == []

    def test_refusals_before_reading(self, name, tmp_path):
        for options, message in (
            (("-k", "many"), "use a whole number, at least 1, or auto, coarse or fine."),
            (
                ("-k", 3, "--k-max", 5),
                "--k-max 5 is about choosing the number of clusters, but -k 3 gives it: use -k auto.",
            ),
            (("-k", 3, "--false-alarms", 0.2), "--false-alarms 0.2 is about choosing the number of clusters"),
            (("-k", "auto", "--false-alarms", 0), "false_alarms=0.0 is not allowed: it is a share between 0 and 1."),
            (("-k", 3, "--init", "best"), "init='best' is not allowed"),
            (("-k", 3, "--divergence", "manhattan"), "--divergence manhattan is not a divergence: use one of"),
            (("-k", 3, "--format", "xls"), "--format xls is not known: use csv or parquet."),
            *([(("-k", 3, "--map", "big"), "--map big is not known: use full or quick or none.")] * (name != "image")),
        ):
            ran = command(name, tmp_path / "nowhere", *options)
            assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
            assert message in ran.stderr


def shares_of_halves(selection, labels):
    """The share of halves that have a cluster with more than half in common, for each label, by sets of rows."""
    halves, own = selection.halves, [set() for _ in range(labels.max() + 1)]
    for i, row in enumerate(selection.rows):
        own[labels[row]].add(i)
    known = [[] for _ in own]
    for inside, pair in zip(halves.inside, halves.labels, strict=True):
        for unseen, clusterings in zip((~inside, inside), pair, strict=True):
            seen = set(np.flatnonzero(unseen))
            theirs = [set(np.flatnonzero(labels == k)) & seen for labels in clusterings for k in np.unique(labels)]
            for shares, rows_of in zip(known, own, strict=True):
                if mine := rows_of & seen:
                    shares.append(any(2 * len(mine & other) > len(mine | other) for other in theirs))
    return [np.mean(shares) for shares in known]


@every_kind
class TestNumber:
    def test_it_is_chosen_on_some_of_the_rows(self, open_door, name, tmp_path, monkeypatch):
        kind, _, rows, options = open_door.read(name)
        monkeypatch.setattr(type(kind), "rows_to_choose", 50)
        found = cluster_table(kind, rows, "auto", options=options, k_max=6)
        assert found.n_clusters == found.selection.n_clusters == K
        assert (found.selection.n_rows, found.selection.n_total) == (50, found.labels.size - 1)
        labels = found.labels[found.labels >= 0]
        assert found.finding().tolist() == pytest.approx(shares_of_halves(found.selection, labels))
        first = labels == 0  # the largest one is split into parts that some halves take for the whole
        split = np.where(first & (np.cumsum(first) > 0.45 * first.sum()), K, labels)
        shares = shares_of_halves(found.selection, split)
        assert found.selection.finding(split, np.eye(K + 1)).tolist() == pytest.approx(shares)
        assert found.finding().min() > 0.5
        assert found.finding([[True] * K, [False] * K])[0] == 1
        assert np.isnan(found.finding([[False] * K])[0])
        note = f"halves of 50 of the {found.labels.size - 1} {kind.rows_of(2)} agree on them to "
        assert sum(sentence.startswith(f"{K} clusters were chosen of 2 to 6: {note}") for sentence in found.notes) == 1
        found.save(tmp_path / "out", report=False)
        written = [float(row["found"]) for row in read_csv(tmp_path / "out" / "clusters.csv")]
        assert written == pytest.approx(found.finding(), abs=1e-3)
        often = cluster_table(kind, rows, "auto", options=options, k_max=6, false_alarms=0.3)
        assert often.selection.draws == 3, "the data are the best of four in one of four cases"

    def test_data_without_structure(self, name, tmp_path):
        rng = np.random.default_rng(0)
        X = rng.poisson(np.outer(rng.uniform(40, 160, 60), rng.dirichlet(np.full(30, 5.0))))
        ran = command(name, *arguments(name, tmp_path, X), "-k", "auto", "--out", tmp_path / "out")
        assert ran.returncode == 0, ran.stderr
        summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        selection, kind = summary["selection"], get_kind(name)
        assert (summary["n_clusters"], selection["n_clusters"], selection["levels"]) == (1, 1, [])
        assert 0 < selection["as_good"] <= selection["draws_without_structure"]
        sentence = f"No clusters were found: halves of the {kind.rows_of(2)} agree no better than those of "
        assert sentence in ran.stdout
        (row,) = read_csv(tmp_path / "out" / "clusters.csv")
        assert (row["size"], row["found"]) == (str(59 + (name != "image")), ""), "all rows are no cluster to be found"
        page = (tmp_path / "out" / "report.html").read_text("utf-8")
        assert "<b>No clusters were found</b>" in page
        assert 'id="splits"' not in page
        assert 'id="tried"' in page


def test_levels(tmp_path):
    X, levels = make_nested_counts()
    rows = [["name", *(f"f{j}" for j in range(X.shape[1]))], *([f"r{i}", *row] for i, row in enumerate(X))]
    (tmp_path / "table.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    numbers = {}
    for asked, name in (("auto", "medium"), ("coarse", "coarse"), ("fine", "fine")):
        out = tmp_path / asked
        ran = command("table", tmp_path / "table.csv", "-k", asked, "--quick", "--no-report", "--out", out)
        assert ran.returncode == 0, ran.stderr
        summary = json.loads((out / "summary.json").read_text("utf-8"))
        numbers = {level["name"]: level["n_clusters"] for level in summary["selection"]["levels"]}
        assert list(numbers) == ["coarse", "medium", "fine"]
        assert summary["n_clusters"] == numbers[name]
        assert summary["selection"]["n_clusters"] == numbers["medium"], "whichever level was taken"
        others = ", ".join(f"{k} ({level})" for level, k in numbers.items() if level != name)
        assert f"{numbers[name]} clusters were chosen of 2 to 36: halves of the rows agree on them to " in ran.stdout
        assert f"; also: {others}.\n" in ran.stdout
        labels = [int(row["cluster"]) for row in read_csv(out / "assignments.csv")]
        if name != "fine":
            assert len(read_csv(out / "clusters.csv")) == len(set(levels[:, 0 if name == "coarse" else 1]))
            assert adjusted_rand_score(levels[:, 0 if name == "coarse" else 1], labels) == 1
    assert 6 < numbers["fine"] <= 18


def parameters_of(name):
    """The parameters of a command, as typer knows them, by name."""
    imported(name)
    function = next(each.callback for each in app.registered_commands if each.name == name)
    return dict(inspect.signature(function).parameters)


def test_shared_options_have_the_same_defaults():
    """Name, flags, type, default and limits of an option that all commands have are the same in all of them."""
    for option in SHARED:
        known = {}
        for name in DOORS:
            if option.name in get_kind(name).without:
                continue
            found = parameters_of(name)[option.name]
            annotation, info = found.annotation.__args__[0], found.annotation.__metadata__[0]
            known[name] = (found.default, str(annotation), info.param_decls, info.min, info.rich_help_panel)
        assert len(known) >= len(DOORS) - 1, f"{option.name} is hardly shared"
        assert len({str(values) for values in known.values()}) == 1, f"{option.name}: {known}"


def test_options_of_kinds_do_not_hide_shared_ones():
    shared = {option.name for option in SHARED}
    for name in DOORS:
        assert not shared & {option.name for option in get_kind(name).options}


class TestSmoothing:
    """The share of rows that smoothing puts elsewhere is known, and said where it is large."""

    def scene(self, bright):
        """Two materials that differ in a few bands out of 200; only in those the light is strong, or everywhere."""
        rng = np.random.default_rng(0)
        spectra = np.full((2, 200), 1.0)
        spectra[0, :100] += 0.5
        spectra[1, 100:] += 0.5
        if bright:
            spectra[:, 40:44] = 5000
        mixed = rng.dirichlet([0.6, 0.6], 30 * 40) @ spectra
        return Cube(rng.poisson(100 * mixed).astype(float).reshape(30, 40, 200))

    def test_a_note_if_it_moves_many_pixels(self):
        found = onmf.image.cluster(self.scene(bright=True), 2)
        moved = found.moved_without_smoothing
        assert moved > MOVED
        (note,) = [note for note in found.notes if "smoothing" in note]
        assert note.startswith(f"Without smoothing, {moved:.1%} of the pixels would be in another cluster")
        assert "0.001 is 20% of a mean share of a band." in note
        assert note.endswith("Compare with smoothing=5e-05 (--smoothing 5e-05).")
        less = onmf.image.cluster(self.scene(bright=True), 2, smoothing=5e-5)
        assert less.moved_without_smoothing < moved

    def test_no_note_if_it_moves_few(self):
        found = onmf.image.cluster(self.scene(bright=False), 2)
        assert found.moved_without_smoothing <= MOVED
        assert not [note for note in found.notes if "smoothing" in note]

    def test_none_without_smoothing(self):
        cube = self.scene(bright=True)
        for parameters in ({"smoothing": 0.0}, {"beta_loss": "frobenius"}):
            found = onmf.image.cluster(cube, 2, **parameters)
            assert found.moved_without_smoothing is None
            assert not [note for note in found.notes if "smoothing" in note]

    def test_the_share_is_that_of_the_exact_divergence(self):
        found = onmf.image.cluster(self.scene(bright=True), 2)
        X = found.cube.data.reshape(-1, 200)
        C = found.model.cluster_centers_ / found.model.cluster_centers_.sum(axis=1, keepdims=True)
        exact = (X @ np.log(C).T).argmax(axis=1)
        assert found.moved_without_smoothing == pytest.approx(np.mean(exact != found.labels.ravel()), abs=0.01)
        assert moved_without_smoothing(found.model, X) == found.moved_without_smoothing
