"""Finding clusters and rows by words, genes, features and bands."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import onmf
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
