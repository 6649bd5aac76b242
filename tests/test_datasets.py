"""The built-in corpus, generated data, and the loaders and readers of the paper's data sets."""

import gzip
import io
import zipfile
from itertools import product

import numpy as np
import pytest
from scipy.io import mmread, mmwrite, savemat
from scipy.sparse import bsr_array, coo_array, csc_array, csr_array, dia_array, save_npz
from sklearn.datasets import dump_svmlight_file

from conftest import command
from onmf import ONMF, metrics
from onmf.datasets import (
    list_datasets,
    load_cells,
    load_docstrings,
    load_documents,
    load_hyperspectral,
    make_counts,
    make_scene,
    read_documents,
    read_scene,
)
from onmf.datasets.load import CELLS, DOCUMENTS, IMAGES, cut_ng3sim


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
        first, second = load_docstrings(), load_docstrings()
        assert (first.X != second.X).nnz == 0
        assert np.array_equal(first.ids, second.ids)

    def test_kl_beats_frobenius(self):
        docs = load_docstrings()
        kl, fro = (metrics.clustering_accuracy(docs.y, ONMF(13, beta_loss=loss).fit(docs.X).labels_) for loss in (1, 2))
        assert kl > fro + 0.1


class TestCounts:
    def test_follow_the_model(self):
        documents = make_counts(4000, 60, 3, length=200, overlap=0.3, random_state=0)
        assert documents.X.shape == (4000, 60)
        assert documents.profiles.sum(axis=1) == pytest.approx(1)
        assert documents.X.sum() / 4000 == pytest.approx(200, rel=0.05)
        for k in range(3):
            totals = documents.X[np.flatnonzero(documents.y == k)].sum(axis=0)
            assert totals / totals.sum() == pytest.approx(documents.profiles[k], abs=0.004)

    def test_repeat_for_a_seed_and_are_recovered(self):
        first, second = (make_counts(500, 300, 4, random_state=7) for _ in range(2))
        assert (first.X != second.X).nnz == 0
        assert metrics.clustering_accuracy(first.y, ONMF(4).fit(first.X).labels_) > 0.95

    def test_overlap_makes_it_harder(self):
        easy, hard = (
            metrics.clustering_accuracy(m.y, ONMF(5).fit(m.X).labels_)
            for m in (make_counts(400, 300, 5, overlap=o, length=40, random_state=0) for o in (0.1, 0.95))
        )
        assert easy > hard + 0.2

    def test_repr(self):
        documents = make_counts(20, 30, 2, random_state=0)
        assert repr(documents) == f"<Documents made: 20 × 30 counts, {documents.X.nnz} nonzeros, 2 classes>"
        assert repr(make_scene(4, 5, 6, 2)) == "<Scene made: 4 × 5 pixels, 6 bands, 2 materials>"

    def test_invalid_parameters(self):
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

    def test_invalid_parameters(self):
        with pytest.raises(ValueError, match="must be at least 1"):
            make_scene(bands=0)


class TestNames:
    def test_sets_of_the_paper_come_first(self):
        assert [info.name for info in list_datasets() if info.in_paper] == [*DOCUMENTS, *IMAGES]
        assert [info.name for info in list_datasets()] == [*DOCUMENTS, *IMAGES, *CELLS]
        assert len(DOCUMENTS) == 15

    @pytest.mark.parametrize(
        ("load", "name", "message"),
        [
            (load_documents, "tr99", "'tr99' is not a data set: choose one of NG20"),
            (load_cells, "zheng", r"'zheng' is not a data set: choose .* zheng_facs10"),
            (load_documents, "samson", "samson is a hyperspectral data set: load it with load_hyperspectral"),
            (load_documents, "hash_4lines", "hash_4lines is a cells data set: load it with load_cells"),
            (load_cells, "tr11", "tr11 is a documents data set: load it with load_documents"),
        ],
    )
    def test_others_are_refused(self, load, name, message):
        with pytest.raises(ValueError, match=message):
            load(name)

    def test_missing_sets(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        with pytest.raises(
            FileNotFoundError, match=r"tr11.npz does not exist: download it with onmf.datasets.fetch\('tr11'\)"
        ):
            load_documents("tr11", download_if_missing=False)
        with pytest.raises(
            FileNotFoundError,
            match=r"worm_neuron.npz does not exist: run 'python -m benchmarks.cells.fetch worm_neuron' in a clone",
        ):
            load_cells("worm_neuron")


class TestPaperSets:
    @pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != "sports"])
    def test_documents_equal_the_file(self, paper_set, name):
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
    def test_scenes_equal_the_file(self, paper_set, name):
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

    @pytest.mark.parametrize(
        ("kind", "field", "symmetry"),
        [
            *product((coo_array, np.asarray), ("real", "integer"), ("general", "symmetric", "skew-symmetric")),
            *product((coo_array,), ("pattern",), ("general", "symmetric")),
        ],
    )
    @pytest.mark.filterwarnings("ignore:The default value for `spmatrix`:DeprecationWarning")
    def test_matrix_market_as_scipy_reads_it(self, tmp_path, kind, field, symmetry):
        X = np.random.default_rng(0).poisson(0.4, (9, 9)) * (1.5 if field == "real" else 1)
        X = {"general": X[:, :4], "symmetric": X + X.T, "skew-symmetric": X - X.T}[symmetry]
        mmwrite(tmp_path / "a.mtx", kind(X), field=field, symmetry=symmetry, comment="one\n%two")
        expected = csr_array(mmread(tmp_path / "a.mtx"))
        read = read_documents(tmp_path / "a.mtx").X
        assert read.shape == X.shape
        assert (read != expected).nnz == 0
        assert np.array_equal(read.toarray(), X != 0 if field == "pattern" else X)

    def test_an_empty_matrix_market(self, tmp_path):
        mmwrite(tmp_path / "a.mtx", csr_array((3, 5)))
        assert read_documents(tmp_path / "a.mtx").X.shape == (3, 5)

    @pytest.mark.parametrize("kind", [csr_array, csc_array, bsr_array, coo_array, dia_array])
    def test_npz(self, tmp_path, kind):
        save_npz(tmp_path / "a.npz", kind(self.X))
        self.check(read_documents(tmp_path / "a.npz"), y=False)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"no known format", "has an unknown format"),
            (b"", "has an unknown format"),
            (b"2 3 4\n1 1\n2 2 3 3\n", "first line says 2 rows and 4 entries, but it has 2 rows and 3"),
            (b"2 3 2\n1 1\n9 2\n", "line 3 names column 9, but there are 3"),
            (b"2 3 2\n1 1\n2\n", "line 3 has 1 numbers: expected pairs"),
            (b"2 3\n1 2 3\n", "first line says 2 × 3, but it has 1 × 3 numbers"),
            (b"PK\x03\x04 not really a zip", "cannot be read as npz"),
            (b"MATLAB 5.0 MAT-file" + b" " * 200, "cannot be read as matlab"),
            (b"%%MatrixMarket matrix coordinate real general\n2 2 5\n1 1 1\n", "cannot be read as matrix-market"),
        ],
    )
    def test_broken_files_give_clear_errors(self, tmp_path, content, message):
        path = tmp_path / "broken"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_documents(path)

    def test_other_refusals(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="is not a file: give the path of a matrix"):
            read_documents(tmp_path / "missing")
        savemat(tmp_path / "a.mat", {"other": np.eye(2)})
        with pytest.raises(ValueError, match="it has no variable dtm, but other"):
            read_documents(tmp_path / "a.mat")
        with pytest.raises(ValueError, match="format='xml' is unknown"):
            read_documents(tmp_path / "a.mat", format="xml")
        with pytest.raises(ValueError, match="has no matrix V, Y or X of bands × pixels, but other"):
            read_scene(tmp_path / "a.mat")
        savemat(tmp_path / "b.mat", {"dtm": np.eye(3), "classid": [1, 2]})
        with pytest.raises(ValueError, match="has 3 rows, but 2 classes"):
            read_documents(tmp_path / "b.mat")
        savemat(tmp_path / "d.mat", {"V": np.ones((4, 9))})
        for truth, message in ((tmp_path / "a.mat", "has no A and M, but other"), (tmp_path, "is not a file")):
            with pytest.raises((ValueError, FileNotFoundError), match=message):
                read_scene(tmp_path / "d.mat", truth)
        savemat(tmp_path / "e.mat", {"M": np.ones((5, 2)), "A": np.ones((2, 8))})
        with pytest.raises(ValueError, match=r"e.mat belongs to another image: it has 5 bands and 8 pixels"):
            read_scene(tmp_path / "d.mat", tmp_path / "e.mat")
        savemat(tmp_path / "c.mat", {"V": np.ones((4, 7))})
        with pytest.raises(ValueError, match="has 7 pixels, not 3 × 3: it needs nRow and nCol"):
            read_scene(tmp_path / "c.mat")


GOOD = {
    "data": np.array([3, 1, 2, 1, 1, 9]),
    "indices": np.array([1, 3, 0, 0, 1, 2]),
    "indptr": np.array([0, 2, 3, 3, 6]),
    "shape": np.array([4, 4]),
}


def npy(shape, descr="<i8", content=b""):
    """Return an npy file with any header and content."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue() + content


class TestHostileNpz:
    @pytest.mark.parametrize(
        ("form", "wrong"),
        [("csc", {"indices": [1, 3, 9, 0, 1, 2]}), ("coo", {"row": [0, 0, 1, 3, 3, 4], "col": GOOD["indices"]})],
    )
    def test_indices_out_of_bounds_in_other_scipy_formats(self, tmp_path, form, wrong):
        np.savez(tmp_path / "a.npz", **(GOOD | wrong | {"format": np.array(form.encode())}))
        with pytest.raises(ValueError, match=r"a\.npz cannot be read as npz: "):
            read_documents(tmp_path / "a.npz")

    def test_classes(self, tmp_path):
        for y, message in (
            (np.ones((4, 2)), "its classes have 2 dimensions and type float64"),
            (np.ones(4, dtype=complex), "its classes have 1 dimensions and type complex128"),
            (np.ones(3), "has 4 rows, but 3 classes"),
        ):
            np.savez(tmp_path / "a.npz", **GOOD, y=y)
            with pytest.raises(ValueError, match=rf"a\.npz .*{message}"):
                read_documents(tmp_path / "a.npz")

    def test_growth(self, tmp_path):
        np.savez_compressed(tmp_path / "a.npz", **(GOOD | {"data": np.zeros(101_000_000, dtype=np.uint8)}))
        assert (tmp_path / "a.npz").stat().st_size < 200_000
        with pytest.raises(
            ValueError, match=r"a\.npz cannot be read as npz: it grows to more than 250 times its length"
        ):
            read_documents(tmp_path / "a.npz")

    @pytest.mark.parametrize(
        "member", [npy((10**18,)), npy((10**9,), content=bytes(80)), npy((-5,)), npy((6,), "<f9"), b"\x93NUMPY\x03\x00"]
    )
    def test_headers_that_claim_too_much(self, tmp_path, member):
        np.savez(tmp_path / "good.npz", **GOOD)
        with zipfile.ZipFile(tmp_path / "good.npz") as good, zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for name in good.namelist():
                archive.writestr(name, member if name == "data.npy" else good.read(name))
        with pytest.raises(ValueError, match=r"a\.npz cannot be read as npz: "):
            read_documents(tmp_path / "a.npz")

    def test_from_the_command_line(self, tmp_path):
        np.savez(tmp_path / "wrong.npz", **(GOOD | {"indices": np.array([1, 3, 10**9, 0, 1, 2])}))
        ONMF(2).fit(np.eye(4) + 1).save(tmp_path / "m.onmf")
        done = command("predict", tmp_path / "m.onmf", tmp_path / "wrong.npz")
        assert done.returncode == 2
        assert "is outside a matrix of 4 columns" in done.stderr

    @pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
    def test_other_compression(self, tmp_path, how):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", how) as archive:
            archive.writestr("data.npy", b"")
        with pytest.raises(ValueError, match=r"'data\.npy', compressed in a way that npz files never are"):
            read_documents(tmp_path / "a.npz")


class TestHostileText:
    MARKET = "%%MatrixMarket matrix "

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (MARKET + "array real general\n100000000 100000000\n1\n", "it is 100000000 × 100000000 with"),
            (
                MARKET + "array real symmetric\n100000 100000\n1\n",
                "with 10000000000 entries, far more than its bytes",
            ),
            (MARKET + "coordinate real general\n1000000000000 10 1\n1 1 1\n", "1000000000000 × 10 with 1 entries, far"),
            (MARKET + "coordinate real general\n10 1000000000000 1\n1 1 1\n", "10 × 1000000000000 with 1 entries, far"),
            (
                MARKET + "coordinate real general\n2 2 1000000000\n1 1 1\n",
                "with 1000000000 entries, far more than its bytes",
            ),
            (MARKET + "coordinate real general\n2 2 1\n1 9 1\n", "Line 3: Column index out of bounds"),
            (MARKET + "coordinate real general\n2 2 1\n-1 1 1\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n2 2 1\n0 1 1\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n2 2 1\n1 1 \0\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n2 2 1\n1 nan 1\n", "Line 3: Invalid integer"),
            (MARKET + "coordinate real general\n2 2 1\n1 1\n", "Line 3: Invalid floating-point value"),
            (MARKET + "coordinate real general\n2 2 1\n1.5 1 1\n", "Line 3: Invalid integer"),
            (MARKET + "coordinate real general\n2 2 1\n1 1.5 1\n", "an entry in column 1.5, not a whole number"),
            (MARKET + "coordinate pattern general\n2 2 2\n1 1\n1 1.5\n", "an entry in column 1.5, not a whole"),
            (MARKET + "coordinate real symmetric\n2 3 1\n1 1 1\n", "says symmetric, but it has 2 rows and 3 columns"),
            (MARKET + "array real general\n2 2\n1\n2\n3\n", "Truncated file"),
            (MARKET + "array\n2 2\n1\n2\n3\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n2\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n% nothing\n", "cannot be read as matrix-market"),
            (
                MARKET + "coordinate complex general\n2 2 1\n1 1 1 1\n",
                "it has complex128 values in 2 dimensions: expected numbers",
            ),
            (MARKET + "coordinate real general\n99999999999999999999 2 1\n1 1 1\n", "cannot be read as matrix-market"),
            (MARKET + "coordinate real general\n-2 2 1\n1 1 1\n", "cannot be read as matrix-market"),
            ("1 1000000000:1\n", r"1 rows and 1000000000 columns, far more than its \d+ bytes can fill"),
            ("1 1000000000000000:1\n", "cannot be read as svmlight"),
            ("1 -1:1\n", "cannot be read as svmlight"),
            ("1 99999999999999999999999999:1\n", "cannot be read as svmlight"),
            ("1000000000000 5 1\n1 1\n", "1000000000000 rows and 5 columns, far more than its"),
            ("2 1000000000000 2\n1 1\n1 1\n", "2 rows and 1000000000000 columns, far more than its"),
            ("2 3 2\n1.5 1\n1 1\n", "line 2 names column 1.5, but there are 3"),
            ("2 3 2\nnan 1\n1 1\n", "line 2 names column nan, but there are 3"),
            ("2 3 2\n1e300 1\n1 1\n", r"line 2 names column 1e\+300, but there are 3"),
            ("2 3 2\n-1 1\n1 1\n", "line 2 names column -1, but there are 3"),
            ("2 3 " + "9" * 5000 + "\n1 1\n1 1\n", "has an unknown format|cannot be read as cluto"),
        ],
    )
    @pytest.mark.parametrize("compressed", [False, True])
    def test_headers_and_indices(self, tmp_path, content, message, compressed):
        data = content.encode()
        (tmp_path / "a.txt").write_bytes(gzip.compress(data) if compressed else data)
        with pytest.raises(ValueError, match=rf"a\.txt .*({message})"):
            read_documents(tmp_path / "a.txt")

    @pytest.mark.parametrize(("head", "comment"), [("2 3 2\n", b"%"), ("1 1:1\n", b"#")])
    def test_growth(self, tmp_path, head, comment):
        with gzip.open(tmp_path / "a.gz", "wb") as file:
            file.write(head.encode())
            for _ in range(101):
                file.write(comment + b" " * 999_998 + b"\n")
        with pytest.raises(ValueError, match=r"a\.gz cannot be read as .*: it grows to more than 250 times its length"):
            read_documents(tmp_path / "a.gz")

    def test_damaged_gzip(self, tmp_path):
        good = gzip.compress(b"2 3 2\n1 1\n2 1\n" * 1000)
        for data in (good[:20], good[:-4], good[:10] + b"\xff" * 20 + good[30:], good[:3]):
            (tmp_path / "a.gz").write_bytes(data)
            with pytest.raises(ValueError, match=r"a\.gz (is a damaged gzip file|cannot be read)"):
                read_documents(tmp_path / "a.gz")

    def test_names_beside_a_matrix(self, tmp_path):
        (tmp_path / "a.mat").write_text("2 3 2\n1 1\n2 1\n")
        for suffix, message in (
            ("rlabel", "2 rows, but 1 names of documents: expected one for each row"),
            ("clabel", "3 columns, but 1 words: expected one for each column"),
        ):
            beside = tmp_path / f"a.mat.{suffix}"
            beside.write_text("one\n")
            with pytest.raises(ValueError, match=message):
                read_documents(tmp_path / "a.mat")
            beside.unlink()


class TestDamagedSets:
    @pytest.mark.parametrize(
        ("load", "name"),
        [
            (load_documents, "documents/tr11"),
            (load_hyperspectral, "hyperspectral/jasper"),
            (load_cells, "cells/sc_dropseq"),
        ],
    )
    def test_half_a_file(self, tmp_path, monkeypatch, load, name):
        path = tmp_path / f"{name}.npz"
        path.parent.mkdir()
        path.write_bytes(b"PK\x03\x04 half a file")
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        with pytest.raises(
            ValueError, match=rf"{path.name} cannot be read as npz: .* Delete the file if it is damaged"
        ):
            load(path.stem)

    def test_scenes(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "hyperspectral").mkdir()
        path = tmp_path / "hyperspectral" / "jasper.npz"
        good = {"X": np.ones((6, 5)), "scale_num": 1.0, "scale_den": 1.0, "height": 2, "width": 3, "order": "F"}
        np.savez(path, **good, source="here")
        assert load_hyperspectral("jasper").height == 2
        for change in ({"height": 7}, {"height": -2, "width": -3}, {"order": "X"}, {"X": np.ones(6)}, {"height": "a"}):
            np.savez(path, **(good | change), source="here")
            with pytest.raises(
                ValueError, match=r"jasper.npz cannot be read as npz: .* Delete the file if it is damaged"
            ):
                load_hyperspectral("jasper")

    def test_documents_without_classes(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "documents").mkdir()
        np.savez(tmp_path / "documents" / "tr11.npz", **GOOD)
        with pytest.raises(ValueError, match=r"tr11.npz has no classes. Delete the file if it is damaged"):
            load_documents("tr11")
