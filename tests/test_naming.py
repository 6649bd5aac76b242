"""Numbers and names of clusters: how they are made, changed and kept."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import onmf
from conftest import command, needs_posix, until
from onmf.image import Cube
from onmf.image import cluster as cluster_image
from onmf.image.materials import names_of_spectra
from onmf.naming import (
    distinct,
    names_from_features,
    names_of_model,
    number_by_size,
    read_names,
    rename_clusters,
    renamed,
    telling_features,
)
from onmf.text import cluster


def refuse(centroids):
    raise AssertionError("a fit without ties is not repeated")


class TestNumbers:
    def test_by_falling_size(self, counts, tmp_path):
        X = counts[0]
        plain, model = onmf.ONMF(3).fit(X), onmf.ONMF(3).fit(X)
        number_by_size(model, refuse)
        sizes = np.bincount(model.labels_)
        assert sizes.tolist() == sorted(np.bincount(plain.labels_), reverse=True)
        order = np.argsort(-np.bincount(plain.labels_), kind="stable")
        assert np.array_equal(model.cluster_centers_, plain.cluster_centers_[order])
        assert np.array_equal(model.clustering_.masses, plain.clustering_.masses[order])
        assert np.array_equal(model.init_rows_, plain.init_rows_[order])
        assert np.array_equal(model.predict(X), model.labels_)
        assert np.array_equal(model.scales_, plain.scales_)
        assert model.reconstruction_err_ == plain.reconstruction_err_
        H = model.clustering_.H
        assert (H @ H.T).toarray() == pytest.approx(np.eye(3))
        model.save(tmp_path / "model.onmf")
        loaded = onmf.load(tmp_path / "model.onmf")
        assert np.array_equal(loaded.labels_, model.labels_)
        assert loaded.top_features() == model.top_features()

    @pytest.mark.filterwarnings("ignore:.*rows? of X (is|are) zero")
    def test_rows_between_two_clusters_stay_where_predict_puts_them(self):
        # The last row belongs to both clusters equally, and goes to the first one: the order decides.
        X = np.array([[8, 0, 2], [0, 8, 2], [0, 8, 2], [0, 8, 2], [0, 0, 0]])
        model = onmf.ONMF(2, init=X[:2] / 10.0)
        model.fit(X)
        assert model.margins_.min() == 0
        assert np.bincount(model.labels_).tolist() == [2, 3]
        before = model.n_iter_
        number_by_size(model, X)
        assert np.array_equal(model.predict(X), model.labels_)
        assert np.bincount(model.labels_).tolist() == [4, 1]
        assert model.n_iter_ == len(model.history_["moved"]) >= before


class TestNames:
    def test_words_that_tell_clusters_apart_come_first(self):
        tops = [{"the": 3.0, "tea": 2.0, "cup": 1.0}, {"the": 9.0, "milk": 2.0, "cow": 1.0}, {}]
        assert names_from_features(tops, first=1) == ["tea, cup, the", "the, milk, cow", "cluster 3"]

    def test_endings_do_not_count_as_words(self):
        assert names_from_features([{"file": 3.0, "files": 2.0, "disk": 1.0, "disks": 0.5}]) == ["file, disk"]

    @pytest.mark.parametrize(
        ("top", "name"),
        [
            ({"negative": 3.0, "binomial": 2.9, "negative binomial": 2.5, "mass": 1.0}, "negative binomial, mass"),
            ({"negative": 9.0, "binomial": 2.9, "negative binomial": 2.5, "mass": 1.0}, "negative, binomial, mass"),
            ({"green tea": 3.0, "cup": 2.0, "tea": 1.0, "tea green": 0.9}, "green tea, cup"),
            ({"red": 3.0, "tea": 2.9, "red tea": 2.8, "red tea cup": 2.7}, "red tea cup"),
            ({"api": 3.0, "array api": 2.9, "api standard": 2.8, "dask": 1.0}, "array api, dask"),
            ({" the": 3.0, "the": 2.9, "the ": 2.8, "ing": 1.0}, "the, ing"),
            ({"x10": 3.0, "x1": 2.0, "x100": 1.0}, "x10, x1, x100"),
            ({"taxon 1": 3.0, "taxon 2": 2.0, "taxon 10": 1.0}, "taxon 1, taxon 2, taxon 10"),
        ],
    )
    def test_no_feature_of_a_name_is_part_of_another(self, top, name):
        assert names_from_features([top]) == [name]

    def test_features_that_most_clusters_share_make_no_name(self):
        # The first word is the most frequent one everywhere, and in the first cluster a little more so.
        X = np.array([[90, 20, 0, 0], [60, 0, 20, 0], [60, 0, 0, 20]]) + np.arange(12).reshape(3, 4) % 2
        words = ["the", "tea", "milk", "cow"]
        model = onmf.ONMF(3, init=X / 10.0).fit(X)
        assert next(iter(model.top_features(4, words)[0])) == "tea"
        assert "the" in model.top_features(4, words)[0]
        assert [list(top) for top in telling_features(model, 4, words)] == [["tea"], ["milk"], ["cow"]]
        assert [list(top) for top in telling_features(onmf.ONMF(1).fit(X), 4, words)] == [[]]

    def test_a_cluster_that_has_nothing_else_keeps_what_is_shared(self):
        X = np.array([[40, 1, 1], [30, 20, 1], [30, 1, 20]])
        model = onmf.ONMF(3, init=X / 10.0).fit(X)
        assert list(telling_features(model, 3, ["the", "tea", "cow"])[0]) == ["the"]

    def test_negative_features_have_names(self):
        X = np.array([[5.0, -4.0, 0.0], [0.0, 0.0, 3.0]])
        model = onmf.ONMF(2, beta_loss="cosine").fit(X)
        assert names_from_features(telling_features(model, 2)) == ["x0, x1", "x2"]

    def test_names_are_short_lines_and_differ(self):
        tops = [{"a\nb\x1b[2J": 1.0}, {"x" * 500: 1.0}, {"tea": 1.0}, {"tea": 1.0}, {"tea 2": 1.0}]
        names = names_from_features(tops)
        assert names[0] == "a b [2J"
        assert len(names[1]) == 100
        assert len(set(names)) == 5
        assert distinct(["tea", "tea", "tea 2", "tea"]) == ["tea", "tea 3", "tea 2", "tea 4"]

    def test_of_documents(self):
        texts = ["tea cup tea", "green tea cup", "tea", "cow milk", "fresh milk"]
        result = cluster(texts, 2)
        assert result.sizes.tolist() == [3, 2]
        assert [name.split(", ")[0] for name in result.names] == ["tea", "milk"]

    def test_of_spectra(self):
        waves = np.linspace(400, 2400, 60)
        flat, rising = np.ones(60), np.linspace(1, 3, 60)
        plant = np.where(waves > 720, 1.0, 0.1)
        spectra = np.stack([flat, 0.2 * flat, 3 * rising, 0.5 * rising[::-1], plant])
        sizes = np.array([90, 4, 3, 2, 1])
        names = names_of_spectra(spectra, sizes, waves)
        assert names == ["flat", "dark and flat", "bright and rising", "falling", "red edge"]
        assert names_of_spectra(spectra[:, ::-1], sizes, waves[::-1]) == names, "the order of the bands does not matter"
        unknown = names_of_spectra(np.stack([flat, flat]), np.array([1, 1]), None)
        assert unknown == ["flat", "flat 2"]
        peaks = np.stack([flat + (np.arange(60) == band) * 0.1 for band in (10, 40)])
        assert names_of_spectra(peaks, np.array([1, 1]), waves) == [
            "flat with peak at 739 nm",
            "flat with peak at 1756 nm",
        ]
        assert names_of_spectra(np.zeros((1, 1)), np.array([0]), None) == ["flat"]


class TestNamer:
    TEXTS = ("tea cup tea", "green tea cup", "tea", "cow milk", "fresh milk")

    def test_it_gets_features_and_texts(self):
        seen = []

        def namer(features, rows):
            seen.append((features, rows))
            return f"  {features[0].upper()} "

        found = cluster(self.TEXTS, 2, namer=namer)
        assert found.names == ["TEA", "MILK"]
        (features, rows), (_, others) = seen
        assert features[:2] == ["tea", "cup"]
        assert set(rows) <= set(self.TEXTS[:3])
        assert set(others) <= set(self.TEXTS[3:])
        assert rows
        assert found.kind.names(found) == found.names, "also after edits"
        assert names_of_model(found.model) == found.names

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("", "namer= returned names that are not allowed. The name of cluster 1 is empty"),
            ("x" * 101, "The name of cluster 1 has 101 characters"),
            ("tea\nmilk", "line breaks"),
            ("drinks", "Clusters 1 and 2 would both be named 'drinks': names must differ"),
            (None, "namer= returned None for cluster 1: it must return a text"),
        ],
    )
    def test_names_that_are_refused(self, name, message):
        with pytest.raises(ValueError, match=message):
            cluster(self.TEXTS, 2, namer=lambda features, rows: name)

    def test_what_is_no_namer(self):
        with pytest.raises(ValueError, match="namer='llama' is not allowed: it is a function"):
            cluster(self.TEXTS, 2, namer="llama")


class TestChanges:
    def test_names_can_be_swapped(self):
        assert renamed(["a", "b", "c"], {1: "b", 2: "a"}, first=1) == ["b", "a", "c"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({0: "x"}, "There is no cluster 0: the clusters are 1 to 3"),
            ({4: "x"}, "There is no cluster 4"),
            ({1: "  "}, "The name of cluster 1 is empty"),
            ({1: "b"}, "Clusters 1 and 2 would both be named 'b'"),
            ({1: "x" * 101}, "has 101 characters: use at most 100"),
            ({1: "x\ny"}, "line breaks or control characters"),
            ({1: "x\u202ey"}, "line breaks or control characters"),
        ],
    )
    def test_refusals(self, changes, message):
        with pytest.raises(ValueError, match=message):
            renamed(["a", "b", "c"], changes, first=1)

    def test_a_model_file_keeps_all_but_the_names(self, counts, tmp_path):
        path = tmp_path / "model.onmf"
        onmf.ONMF(3).fit(counts[0]).save(path)
        before = onmf.load(path)
        names = rename_clusters(path, {1: "tea"})
        after = onmf.load(path)
        assert names == names_of_model(after) == after.extra_["names"]
        assert names[1] == "tea"
        assert after.provenance_ == before.provenance_
        assert after.cluster_centers_.tobytes() == before.cluster_centers_.tobytes()
        content = path.read_bytes()
        with pytest.raises(ValueError, match="no cluster 7"):
            rename_clusters(path, {0: "milk", 7: "x"})
        assert path.read_bytes() == content

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "has no column cluster and no column name"),
            ("cluster;name\n1;tea\n", "has no column"),
            ("cluster,name\n", "has no line"),
            ("cluster,name\none,tea\n", "line 2: 'one' is not the number of a cluster"),
            ("cluster,name\n\u0661,tea\n", "is not the number of a cluster"),
            ("cluster,name\n1,tea\n1,milk\n", "line 3: cluster 1 was named before"),
            ('cluster,name\n1,"tea\n', "cannot be read as a table"),
            ("cluster,name\n1,\udcff\n", "cannot be read as a table"),
            ("cluster,name\n" + "1,tea\n" * 200_000, "larger than 1 MB"),
        ],
    )
    def test_tables_that_are_refused(self, tmp_path, text, message):
        path = tmp_path / "names.csv"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ValueError, match=message):
            read_names(path)

    def test_a_table_that_spreadsheets_write(self, tmp_path):
        path = tmp_path / "names.csv"
        path.write_bytes('\ufeffsize,cluster,name\r\n7, 2 ,"tea, green"\r\n5,1,\'=milk\r\n'.encode())
        assert read_names(path) == {2: "tea, green", 1: "=milk"}


class TestCommand:
    @pytest.fixture
    def model(self, tmp_path):
        result = cluster(["tea cup tea", "green tea cup", "tea", "cow milk", "fresh milk"], 2)
        result.model.save(tmp_path / "model.onmf")
        return tmp_path / "model.onmf"

    def test_from_a_table(self, model, tmp_path):
        table = tmp_path / "names.csv"
        table.write_text("cluster,name\n1,drinks\n2,farms\n")
        assert command("rename", model, "--from", table, "--quiet").stdout == ""
        assert names_of_model(onmf.load(model)) == ["drinks", "farms"]
        assert command("rename", model, "--from", tmp_path / "none.csv").returncode == 2

    @pytest.mark.parametrize("arguments", [(), (1,), (1, "tea", "--from", "names.csv")])
    def test_what_is_missing(self, model, arguments):
        ran = command("rename", model, *arguments)
        assert ran.returncode == 2
        assert "Give the number of a cluster and its new name, or a table" in ran.stderr

    @needs_posix
    def test_an_interrupted_rename_leaves_a_whole_file(self, model):
        before = names_of_model(onmf.load(model))
        code = f"""if True:
            from onmf.naming import rename_clusters
            while True:
                for name in "ab":
                    rename_clusters({str(model)!r}, {{1: name}})
        """
        with subprocess.Popen([sys.executable, "-c", code]) as running:
            until(lambda: names_of_model(onmf.load(model)) != before)
            os.kill(running.pid, signal.SIGKILL)
        assert names_of_model(onmf.load(model))[0] in "ab"


def test_show_speaks_of_bands_and_materials(tmp_path):
    data = np.zeros((2, 10, 12))
    data[0, :, [2, 3, 5]] = 9
    data[1, :, 8:] = 4
    data += 1
    cube = Cube(data, np.linspace(400, 510, 12), "Nanometers", good_bands=np.arange(12) > 0)
    cluster_image(cube, 2).save(tmp_path / "out")
    shown = command("show", tmp_path / "out" / "model.onmf").stdout
    assert "A model of an image: 2 materials in 20 pixels, described by 11 bands" in shown
    assert "distinctive bands" in shown
    assert "bands 3–6 (420–450 nm)" in shown
    assert re.search(r"bands \d+–12 \(\d+–510 nm\)", shown)
    assert "word" not in shown
