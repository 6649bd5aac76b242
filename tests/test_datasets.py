"""The embedded corpus, generated data, and the paper's sets as loaders and readers give them."""

import gzip

import numpy as np
import pytest
from scipy.io import mmwrite, savemat
from scipy.sparse import csr_array, save_npz
from sklearn.datasets import dump_svmlight_file

from onmf import ONMF, metrics
from onmf.datasets import (
    list_datasets,
    load_docstrings,
    load_documents,
    load_hyperspectral,
    make_counts,
    make_scene,
    read_documents,
    read_scene,
)
from onmf.datasets.catalogue import DOCUMENTS, IMAGES
from onmf.datasets.download import cut_ng3sim


class TestDocstrings:
    def test_content(self):
        docs = load_docstrings()
        n, p = docs.X.shape
        assert 1000 < n < 1700
        assert len(docs.words) == p
        assert docs.y.shape == docs.ids.shape == (n,)
        assert docs.classes.tolist() == sorted(docs.classes)
        assert len(docs.classes) == 13 == len(np.unique(docs.y))
        assert (docs.X.sum(axis=1) > 0).all()
        assert docs.classes[docs.y[docs.ids.tolist().index("scipy.fft.fft")]] == "fft"
        assert docs.source.startswith("SciPy ")

    def test_always_the_same(self):
        one, other = load_docstrings(), load_docstrings()
        assert (one.X != other.X).nnz == 0
        assert np.array_equal(one.ids, other.ids)

    def test_kl_beats_frobenius(self):
        docs = load_docstrings()
        kl, fro = (metrics.clustering_accuracy(docs.y, ONMF(13, beta_loss=loss).fit(docs.X).labels_) for loss in (1, 2))
        assert kl > fro + 0.1


class TestCounts:
    def test_follow_the_model(self):
        made = make_counts(4000, 60, 3, length=200, overlap=0.3, random_state=0)
        assert made.X.shape == (4000, 60)
        assert made.profiles.sum(axis=1) == pytest.approx(1)
        assert made.X.sum() / 4000 == pytest.approx(200, rel=0.05)
        for k in range(3):
            found = made.X[np.flatnonzero(made.y == k)].sum(axis=0)
            assert found / found.sum() == pytest.approx(made.profiles[k], abs=0.004)

    def test_repeat_for_a_seed_and_are_found_again(self):
        one, other = (make_counts(500, 300, 4, random_state=7) for _ in range(2))
        assert (one.X != other.X).nnz == 0
        assert metrics.clustering_accuracy(one.y, ONMF(4).fit(one.X).labels_) > 0.95

    def test_overlap_makes_it_harder(self):
        easy, hard = (
            metrics.clustering_accuracy(m.y, ONMF(5).fit(m.X).labels_)
            for m in (make_counts(400, 300, 5, overlap=o, length=40, random_state=0) for o in (0.1, 0.95))
        )
        assert easy > hard + 0.2

    def test_shows_itself_in_a_line(self):
        made = make_counts(20, 30, 2, random_state=0)
        assert repr(made) == f"<Documents made: 20 × 30 counts, {made.X.nnz} nonzeros, 2 classes>"
        assert repr(make_scene(4, 5, 6, 2)) == "<Scene made: 4 × 5 pixels, 6 bands, 2 materials>"

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="overlap=2 is not allowed"):
            make_counts(overlap=2)
        with pytest.raises(ValueError, match="must be at least 1"):
            make_counts(0)


class TestScene:
    def test_is_consistent(self):
        scene = make_scene(30, 40, 50, 4, random_state=0)
        assert scene.X.shape == (1200, 50)
        assert (scene.height, scene.width, scene.order) == (30, 40, "C")
        assert scene.abundances.sum(axis=0) == pytest.approx(1)
        assert scene.names[-1] == "dark"
        assert scene.endmembers[-1].mean() == pytest.approx(0.04 * scene.endmembers[0].mean())
        labels = scene.abundances.argmax(axis=0)
        assert np.array_equal(scene.to_image(labels)[2], labels[80:120])
        for k in range(4):
            mean = scene.X[labels == k].mean(axis=0)
            assert metrics.mrsa(mean, scene.endmembers[k]) < 3, "the mean of a region has the shape of its spectrum"

    def test_noise_is_poisson(self):
        scene = make_scene(60, 60, 30, 1, random_state=1)
        smooth = scene.X.sum(axis=1, keepdims=True) * scene.endmembers / scene.endmembers.sum()
        assert np.mean((scene.X - smooth) ** 2 / smooth) == pytest.approx(1, abs=0.05)

    def test_kl_finds_the_dark_material_that_frobenius_misses(self):
        scene = make_scene(random_state=0)
        truth = scene.abundances.argmax(axis=0)
        kl, fro = (metrics.clustering_accuracy(truth, ONMF(4, beta_loss=b).fit(scene.X).labels_) for b in (1, 2))
        assert kl > 0.99
        assert fro < 0.8

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="must be at least 1"):
            make_scene(bands=0)


class TestThePapersSets:
    def test_names(self):
        assert [info.name for info in list_datasets()] == [*DOCUMENTS, *IMAGES]
        assert len(DOCUMENTS) == 15

    @pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "sports"])
    def test_documents_are_the_files_own(self, paper_set, name):
        X, y = paper_set(name)
        docs = load_documents(name)
        assert docs.X.shape == X.shape
        assert (docs.X != X).nnz == 0
        assert np.array_equal(docs.y, y)
        assert docs.name == name
        both = load_documents(name.lower(), return_X_y=True)
        assert (both[0] != X).nnz == 0
        assert np.array_equal(both[1], y)

    @pytest.mark.parametrize("name", IMAGES)
    def test_scenes_are_the_files_own(self, paper_set, name):
        X, endmembers = paper_set(name)
        scene = load_hyperspectral(name)
        assert np.allclose(scene.X, X, rtol=1e-15, atol=0)
        assert np.array_equal(scene.endmembers, endmembers)
        assert scene.height * scene.width == len(X) == scene.abundances.shape[1]
        assert (scene.wavelengths is not None) == (name == "samson")

    @pytest.mark.parametrize("name", ["tr11", "tr23"])
    def test_originals_of_documents_read_the_same(self, original, name):
        docs, read = load_documents(name), read_documents(original(f"{name}.mat"))
        assert (docs.X != read.X).nnz == 0
        assert np.array_equal(docs.y, read.y)

    @pytest.mark.parametrize(
        ("name", "image", "truth"), [("samson", "samson_1", "end3"), ("jasper", "jasperRidge2_R198", "end4")]
    )
    def test_originals_of_scenes_read_the_same(self, original, name, image, truth):
        scene, read = load_hyperspectral(name), read_scene(original(f"{image}.mat"), original(f"{truth}.mat"))
        for key in ("X", "endmembers", "abundances", "height", "width", "order"):
            assert np.array_equal(getattr(scene, key), getattr(read, key)), key

    def test_the_header_of_samson_has_these_wavelengths(self, original):
        header = original("samson_1.img.hdr").read_text()
        values = header.split("wavelength = {")[1].split("}")[0]
        assert load_hyperspectral("samson").wavelengths == pytest.approx(np.fromstring(values, sep=","), abs=1e-4)

    def test_ng3sim_is_cut_from_ng20(self, paper_set):
        X, y = paper_set("ng3sim")
        paper_set("NG20")
        cut = cut_ng3sim(load_documents("NG20"))
        assert cut.X.shape == X.shape
        assert (cut.X != X).nnz == 0
        assert np.array_equal(cut.y, y)

    def test_refusals(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        with pytest.raises(ValueError, match="'tr99' is not a data set: choose one of NG20"):
            load_documents("tr99")
        with pytest.raises(ValueError, match="samson is a hyperspectral data set: load it with load_hyperspectral"):
            load_documents("samson")
        with pytest.raises(FileNotFoundError, match=r"tr11 is not at .*tr11.npz: fetch it with onmf.datasets.fetch"):
            load_documents("tr11", download_if_missing=False)


class TestReaders:
    X = csr_array(np.array([[0, 3, 0, 1], [2, 0, 0, 0], [0, 0, 0, 0], [1, 1, 9, 0]]))
    y = np.array([1, 2, 1, 3])

    def check(self, read, y=True):
        assert read.X.shape == (4, 4)
        assert (read.X != self.X).nnz == 0
        assert read.X.dtype == np.uint8
        if y:
            assert read.y.tolist() == [0, 1, 0, 2]
        else:
            assert read.y is None

    def test_matlab(self, tmp_path):
        savemat(tmp_path / "a.mat", {"dtm": self.X.astype(float), "classid": self.y[:, None]})
        read = read_documents(tmp_path / "a.mat")
        self.check(read)
        assert read.name == "a"

    def test_cluto(self, tmp_path):
        path = tmp_path / "tiny.mat"
        path.write_text("4 4 6\n2 3 4 1\n1 2\n\n1 1 2 1 3 9\n")
        self.check(read_documents(path), y=False)
        path.with_name("tiny.mat.rclass").write_text("tea\nmilk\ntea\nbeer\n")
        path.with_name("tiny.mat.rlabel").write_text("d1\nd2\nd3\nd4\n")
        path.with_name("tiny.mat.clabel").write_text("a\nb\nc\nd\n")
        read = read_documents(path)
        assert (read.X != self.X).nnz == 0
        assert read.classes[read.y].tolist() == ["tea", "milk", "tea", "beer"]
        assert read.words.tolist() == ["a", "b", "c", "d"]
        assert read.ids.tolist() == ["d1", "d2", "d3", "d4"]

    def test_cluto_dense_and_compressed(self, tmp_path):
        with gzip.open(tmp_path / "dense.mat.gz", "wt") as file:
            file.write("4 4\n" + "\n".join(" ".join(map(str, row)) for row in self.X.toarray()))
        self.check(read_documents(tmp_path / "dense.mat.gz"), y=False)

    def test_svmlight(self, tmp_path):
        dump_svmlight_file(self.X.tocsr(), self.y, str(tmp_path / "a.svm"), zero_based=False)
        self.check(read_documents(tmp_path / "a.svm"))

    def test_matrix_market(self, tmp_path):
        mmwrite(tmp_path / "a.mtx", self.X)
        self.check(read_documents(tmp_path / "a.mtx"), y=False)

    def test_npz(self, tmp_path):
        save_npz(tmp_path / "a.npz", self.X)
        self.check(read_documents(tmp_path / "a.npz"), y=False)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"nothing that is known", "is of no known format"),
            (b"", "is of no known format"),
            (b"2 3 4\n1 1\n2 2 3 3\n", "first line says 2 rows and 4 entries, but it holds 2 rows and 3"),
            (b"2 3 2\n1 1\n9 2\n", "line 3 names column 9, but there are 3"),
            (b"2 3 2\n1 1\n2\n", "line 3 has 1 numbers: pairs"),
            (b"2 3\n1 2 3\n", "first line says 2 × 3, but it holds 1 × 3 numbers"),
            (b"PK\x03\x04 not really a zip", "cannot be read as npz"),
            (b"MATLAB 5.0 MAT-file" + b" " * 200, "cannot be read as matlab"),
            (b"%%MatrixMarket matrix coordinate real general\n2 2 5\n1 1 1\n", "cannot be read as matrix-market"),
        ],
    )
    def test_broken_files_get_a_sentence(self, tmp_path, content, message):
        path = tmp_path / "broken"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_documents(path)

    def test_other_refusals(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="is not a file: give the path of a matrix"):
            read_documents(tmp_path / "missing")
        savemat(tmp_path / "a.mat", {"other": np.eye(2)})
        with pytest.raises(ValueError, match="it holds no variable dtm, but other"):
            read_documents(tmp_path / "a.mat")
        with pytest.raises(ValueError, match="format='xml' is unknown"):
            read_documents(tmp_path / "a.mat", format="xml")
        with pytest.raises(ValueError, match="holds no matrix V, Y or X of bands × pixels, but other"):
            read_scene(tmp_path / "a.mat")
        savemat(tmp_path / "b.mat", {"dtm": np.eye(3), "classid": [1, 2]})
        with pytest.raises(ValueError, match="has 3 rows, but 2 classes"):
            read_documents(tmp_path / "b.mat")
        savemat(tmp_path / "d.mat", {"V": np.ones((4, 9))})
        for truth, message in ((tmp_path / "a.mat", "holds no A and M, but other"), (tmp_path, "is not a file")):
            with pytest.raises((ValueError, FileNotFoundError), match=message):
                read_scene(tmp_path / "d.mat", truth)
        savemat(tmp_path / "e.mat", {"M": np.ones((5, 2)), "A": np.ones((2, 8))})
        with pytest.raises(ValueError, match=r"e.mat belongs to another image: it has 5 bands and 8 pixels"):
            read_scene(tmp_path / "d.mat", tmp_path / "e.mat")
        savemat(tmp_path / "c.mat", {"V": np.ones((4, 7))})
        with pytest.raises(ValueError, match="has 7 pixels, which are not 3 × 3: nRow and nCol are needed"):
            read_scene(tmp_path / "c.mat")
