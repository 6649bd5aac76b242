"""Finding clusters and rows by words, genes, features and bands."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import onmf
from conftest import command
from onmf.cells import Cells
from onmf.cells import cluster as cluster_cells
from onmf.datasets import make_counts, make_scene
from onmf.door import Table
from onmf.image import Cube
from onmf.image import cluster as cluster_image
from onmf.table import cluster as cluster_table
from onmf.text import cluster, make_vectorizer

TEXTS = [
    *("red tea and green tea", "tea in a cup", "green tea cup"),
    *("cow milk", "fresh milk of a cow", "cow, cow and a cow in the green", "milk"),
    *("shortest path of a graph", "a path in a graph", "the shortest graph"),
]


@pytest.fixture(scope="module")
def drinks():
    found = cluster(TEXTS, 3, quick=True)
    assert sorted(name.split(", ")[0] for name in found.names) == ["cow", "graph", "tea"]
    return found


def named(found, word):
    return next(k for k, name in enumerate(found.names) if word in name)


class TestDocuments:
    def test_clusters_and_documents_the_best_first(self, drinks):
        hits = drinks.find("shortest path")
        assert hits.words == {"shortest": ["shortest"], "path": ["path"]}
        assert hits.unknown == {}
        assert [hit.cluster for hit in hits.clusters] == [named(drinks, "graph")]
        assert hits.rows[0].row == 7, "the one with both words"
        assert {hit.row for hit in hits.rows} == {7, 8, 9}
        assert hits.rows[0].name == drinks.table.rows[7]
        assert all(hit.cluster == drinks.labels[hit.row] for hit in hits.rows)
        assert [hit.score for hit in hits.rows] == sorted((hit.score for hit in hits.rows), reverse=True)
        assert repr(hits) == "<Hits for 'shortest path': 1 clusters, 3 rows>"

    def test_how_many_times_as_frequent(self, drinks):
        found = drinks.find("green").clusters
        X, column = drinks.table.X.toarray(), drinks.table.features.tolist().index("green")
        for hit in found:
            inside = X[drinks.labels == hit.cluster]
            share = inside[:, column].sum() / inside.sum()
            assert hit.times == pytest.approx(share / (X[:, column].sum() / X.sum()), abs=0.02)
        assert [hit.cluster for hit in found] == [named(drinks, "tea"), named(drinks, "cow")]

    def test_words_are_counted_as_those_of_the_documents(self, drinks):
        shouted, plain = drinks.find("  GREEN   Tea "), drinks.find("green tea")
        assert replace(shouted, query="green tea") == plain

    def test_the_beginning_of_words(self, drinks):
        assert drinks.find("shor gra").words == {"shor": ["shortest"], "gra": ["graph"]}
        assert drinks.find("gr").words == {}
        assert drinks.find("gr").unknown == {"gr": []}

    def test_unknown_words(self, drinks):
        hits = drinks.find("shortst path zebra")
        assert hits.words == {"path": ["path"]}
        assert hits.unknown == {"shortst": ["shortest"], "zebra": []}
        assert hits.rows
        hits = drinks.find("the of")
        assert (set(hits.unknown), hits.clusters, hits.rows) == ({"the", "of"}, [], [])

    def test_a_cluster_by_its_name(self, drinks):
        given = cluster(TEXTS, 3, quick=True, namer=lambda words, texts: f"Hot & cold: {words[0]}")
        hits = given.find("hot & COLD: tea")
        assert hits.clusters[0].cluster == named(given, "tea")
        assert [hit.name for hit in given.find("cold:").clusters] == given.names

    def test_n_grams(self):
        found = cluster(TEXTS, 3, quick=True, vectorizer=make_vectorizer("english", ngram_range=(1, 2)))
        assert found.find("shortest path").words == {"shortest path": ["shortest path"]}
        assert [hit.row for hit in found.find("shortest path").rows] == [7]
        assert found.find("green path").words == {"green": ["green"], "path": ["path"]}
        assert found.find("green zebra").unknown == {"zebra": []}

    def test_letters(self):
        found = cluster(TEXTS, 3, quick=True, vectorizer=CountVectorizer(analyzer="char", ngram_range=(3, 3)))
        hits = found.find("milkz")
        assert hits.words == {"mil": ["mil"], "ilk": ["ilk"]}
        assert hits.unknown == {}
        assert {hit.row for hit in hits.rows} == {3, 4, 6}
        assert list(found.find("xyz").unknown) == ["xyz"]

    def test_at_most_n(self, drinks):
        hits = drinks.find("green", 1)
        assert len(hits.clusters) == len(hits.rows) == 1

    @pytest.mark.parametrize(
        ("query", "n", "message"),
        [
            ("", 10, "query='' is not allowed"),
            (" ", 10, "is not allowed: it is one or more words"),
            (7, 10, "query=7 is not allowed"),
            ("tea", 0, "n=0 is not allowed"),
            ("tea " * 300, 10, "query has 1,200 characters: use at most 1,000"),
        ],
    )
    def test_what_is_refused(self, drinks, query, n, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            drinks.find(query, n)

    def test_other_documents_and_documents_in_shards(self, drinks, tmp_path):
        new = drinks.predict(["a zebra", "1 2", "the path"])
        assert [(hit.row, hit.cluster) for hit in new.find("path").rows] == [(2, named(drinks, "graph"))]
        texts = ["1 2", *TEXTS]
        shards = cluster(texts, 3, quick=True, shards=tmp_path / "counts")
        assert shards.find("shortest path").rows[0].row == 8

    def test_unassigned_documents_are_found(self):
        found = cluster([*TEXTS, "tea"], 3, quick=True, min_confidence=0.99)
        assert (found.labels < 0).any()
        assert {hit.row for hit in found.find("tea").rows} == {0, 1, 2, 10}
        assert {hit.cluster for hit in found.find("tea").rows} == set(found.labels[[0, 1, 2, 10]].tolist())


def test_features_of_a_table():
    made = make_counts(60, 30, 3, length=80, random_state=0)
    names = [f"Genus{'abc'[j % 3]} species{j}" for j in range(30)]
    found = cluster_table(Table(made.X, [f"r{i}" for i in range(60)], names), 3)
    hits = found.find("genusa species0")
    assert hits.words == {"genusa species0": ["Genusa species0"]}
    inside = found.table.X[:, [0]].toarray().ravel()
    assert {hit.row for hit in hits.rows} <= set(np.flatnonzero(inside).tolist())
    assert len(found.find("genusb", 60).words["genusb"]) == 10
    assert found.find("genusd").unknown == {"genusd": []}


def test_genes_by_symbol_and_identifier():
    made = make_counts(80, 30, 3, length=80, random_state=0)
    cells = Cells(made.X, [f"c{i}" for i in range(80)], [f"ENSG{j:03}" for j in range(30)])
    cells.symbols = [f"Gene{j}" for j in range(30)]
    found = cluster_cells(cells, 3, n_top_genes=20, quick=True)
    used = found.genes[0]
    by_symbol, by_name = found.find(f"GENE{used}"), found.find(f"ensg{used:03}")
    assert by_symbol.words == {f"GENE{used}": [f"Gene{used}"]}
    assert by_name.rows == by_symbol.rows
    counts = made.X[:, [int(used)]].toarray().ravel()
    assert by_symbol.rows
    assert all(counts[hit.row] > 0 for hit in by_symbol.rows)
    left_out = next(j for j in range(30) if j not in found.genes)
    assert list(found.find(f"ENSG{left_out:03}").unknown) == [f"ENSG{left_out:03}"]


@pytest.fixture(scope="module")
def materials():
    made = make_scene(8, 10, 50, 3, random_state=0)
    good = np.arange(50) != 1
    return cluster_image(Cube(made.X.reshape(8, 10, 50), made.wavelengths, "nm", good_bands=good), 3)


class TestImages:
    def test_bands_and_wavelengths(self, materials):
        waves = materials.cube.wavelengths
        assert materials.find("band 3").words == {"band 3": ["band 3"]}
        assert materials.find("Bands 3-5").words == {"Bands 3-5": ["band 3", "band 4", "band 5"]}
        assert materials.find(f"{waves[6] + 1:.1f} nm").words == {f"{waves[6] + 1:.1f} nm": ["band 7"]}
        between = f"{waves[6] - 1:.1f}–{waves[8] + 1:.1f} nm"
        assert materials.find(between).words == {between: ["band 7", "band 8", "band 9"]}
        assert materials.find("band 2").unknown["band 2"], "it is not used, so others are suggested"
        assert materials.find("1 nm").words == {}
        hits = materials.find("band 3")
        light = materials.spectra[:, 1] / materials.spectra.sum(axis=1)
        assert [hit.cluster for hit in hits.clusters] == np.argsort(-light).tolist()
        assert hits.rows == []
        assert hits.notes == ["Pixels are not searched: the map shows where each material is."]

    def test_what_is_no_band(self, materials):
        with pytest.raises(ValueError, match="'grass' is no band of an image: search for 'band 12'"):
            materials.find("grass")
        plain = cluster_image(Cube(materials.cube.data), 3)
        with pytest.raises(ValueError, match="This image has no wavelengths: search for 'band 12'"):
            plain.find("650 nm")


def test_negative_features_are_refused():
    X = np.array([[5.0, -4.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 2.0], [5.0, -5.0, 0.1]])
    model = onmf.ONMF(2, beta_loss="cosine").fit(X)
    from onmf.door.find import find_clusters
    from onmf.kinds import get_kind

    model.extra_ = {"kind": "table", "features": ["a", "b", "c"]}
    with pytest.raises(ValueError, match="Features with negative values cannot be searched for"):
        find_clusters(get_kind("table"), model, ["x", "y"], "a", 3)


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
        ran = command("documents", tmp_path / "texts.txt", "-k", 3, "--quick", "--no-report", "--out", tmp_path / "out")
        assert ran.returncode == 0, ran.stderr
        return tmp_path / "out"

    def test_clusters_and_documents(self, folder, drinks):
        ran = command("find", folder, "shortest zebra", "--top", 2)
        assert (ran.returncode, ran.stderr) == (0, "")
        lines = ran.stdout.splitlines()
        assert lines[0] == "No word 'zebra' is known."
        assert lines[1].split() == ["cluster", "documents", "times", "as", "frequent", "name"]
        assert lines[2].split()[1] == "3"
        assert "graph" in lines[2]
        assert lines[4].split() == ["document", "cluster"]
        assert [line.split()[0] for line in lines[5:]] == ["10", "8"]
        assert lines[5].split()[1] == f"{named(drinks, 'graph') + 1}:"

    def test_json(self, folder, drinks):
        found = json.loads(command("find", folder, "shor milk", "--json").stdout)
        hits = drinks.find("shor milk")
        assert found["words"] == hits.words == {"shor": ["shortest"], "milk": ["milk"]}
        assert [row["id"] for row in found["rows"]] == [hit.name for hit in hits.rows]
        assert [row["cluster"] for row in found["rows"]] == [hit.cluster + 1 for hit in hits.rows]
        sizes = {cluster["cluster"]: cluster["size"] for cluster in found["clusters"]}
        assert sizes == {hit.cluster + 1: drinks.sizes[hit.cluster] for hit in hits.clusters}
        assert (found["unknown"], found["notes"]) == ({}, [])

    def test_a_source_that_is_gone_or_changed(self, folder, tmp_path):
        moved = (tmp_path / "texts.txt").rename(tmp_path / "moved.txt")
        ran = command("find", folder, "green")
        assert ran.returncode == 0
        assert "Only clusters are found." in ran.stderr
        assert "is not there any more: name it with --source PATH" in ran.stderr
        assert len(ran.stdout.splitlines()) == 3
        assert len(command("find", folder, "green", "--source", moved).stdout.splitlines()) == 8
        moved.write_text(moved.read_text() + "\nmore tea")
        ran = command("find", folder, "green", "--source", moved)
        assert ran.returncode == 2
        assert "its checksum differs" in ran.stderr
        ran = command("find", folder, "green", "--quiet")
        assert (ran.returncode, ran.stderr) == (0, "")

    def test_after_edits_and_new_names(self, folder, tmp_path):
        names = onmf.load(folder / "model.onmf").extra_["names"]
        tea, cow = (next(k for k, name in enumerate(names, 1) if word in name) for word in ("tea", "cow"))
        ran = command("edit", folder, "--merge", f"{tea}+{cow}", "--out", tmp_path / "new", "--quiet")
        assert ran.returncode == 0, ran.stderr
        assert command("rename", tmp_path / "new" / "model.onmf", min(tea, cow), "drinks", "-q").returncode == 0
        found = json.loads(command("find", tmp_path / "new", "drinks milk", "--json").stdout)
        assert [(each["cluster"], each["name"], each["size"]) for each in found["clusters"]] == [
            (min(tea, cow), "drinks", 7)
        ]
        assert {row["cluster"] for row in found["rows"]} == {min(tea, cow)}

    def test_without_a_command_or_with_shards(self, drinks, tmp_path):
        drinks.save(tmp_path / "saved", report=False)
        ran = command("find", tmp_path / "saved", "green")
        assert ran.returncode == 0
        assert "Only clusters are found." in ran.stderr
        assert "does not say how to cluster again" in ran.stderr
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
        given = ("-k", 3, "--quick", "--no-report", "--shards", tmp_path / "counts", "--out", tmp_path / "out")
        assert command("documents", tmp_path / "texts.txt", *given).returncode == 0
        ran = command("find", tmp_path / "out", "green")
        assert "The counts of a corpus in shards are not read again." in ran.stderr
        assert len(ran.stdout.splitlines()) == 3

    def test_a_table_in_parquet(self, tmp_path):
        made = make_counts(60, 30, 3, length=80, random_state=0)
        rows = [["id", *(f"f{j}" for j in range(30))], *([f"r{i}", *row] for i, row in enumerate(made.X.toarray()))]
        (tmp_path / "a.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
        given = ("-k", 3, "--no-report", "--format", "parquet", "--out", tmp_path / "out")
        assert command("table", tmp_path / "a.csv", *given).returncode == 0
        found = json.loads(command("find", tmp_path / "out", "F7", "--json").stdout)
        assert found["words"] == {"F7": ["f7"]}
        assert {row["cluster"] for row in found["rows"]} <= {1, 2, 3}
        assert len(found["rows"]) == 10

    def test_an_image(self, materials, tmp_path):
        np.save(tmp_path / "scene.npy", materials.cube.data)
        assert (
            command("image", tmp_path / "scene.npy", "-k", 3, "--no-report", "--out", tmp_path / "out").returncode == 0
        )
        ran = command("find", tmp_path / "out", "band 3")
        assert "materials" not in ran.stdout
        assert "Pixels are not searched: the map shows where each material is." in ran.stderr
        ran = command("find", tmp_path / "out", "grass")
        assert ran.returncode == 2
        assert "is no band of an image" in ran.stderr

    def test_what_is_no_folder_of_a_run(self, tmp_path):
        ran = command("find", tmp_path, "tea")
        assert ran.returncode == 2
        assert "has no summary.json" in ran.stderr
