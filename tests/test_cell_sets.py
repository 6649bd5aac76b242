"""The sets of labelled cells: the stored ones, the conversion of their public files, and damaged files."""

import zipfile

import numpy as np
import pytest

from cell_originals import fetch, small_set, write_mixture, write_originals
from onmf.datasets import load_cells
from onmf.datasets.load import CELLS, info_of, save_counts
from r_files import Environment, save_rda


class TestStored:
    @pytest.mark.parametrize("name", CELLS)
    def test_it_equals_the_file_and_the_recorded_numbers(self, cell_set, name):
        cells, facts = cell_set(name), fetch.SOURCES[name]
        path = info_of(name).path
        with np.load(path) as file:
            assert np.array_equal(cells.X.data, file["data"])
            assert np.array_equal(cells.X.indices, file["indices"])
            assert np.array_equal(cells.X.indptr, file["indptr"])
            assert np.array_equal(cells.y, file["y"])
            assert np.array_equal(cells.classes, file["classes"])
            assert (cells.genes is None) == ("genes" not in file)
            assert cells.genes is None or np.array_equal(cells.genes, file["genes"])
        assert cells.X.shape == (facts["rows"], facts["columns"])
        assert cells.X.nnz == facts["entries"]
        assert cells.X.data.sum(dtype=np.int64) == facts["total"]
        sizes = np.bincount(cells.y).tolist()
        assert dict(zip(cells.classes.tolist(), sizes, strict=True)) == facts["classes"]
        assert cells.barcodes is None
        assert cells.name == name
        assert cells.source == str(path)
        X, y = load_cells(name.upper(), return_X_y=True)
        assert (X != cells.X).nnz == 0
        assert np.array_equal(y, cells.y)

    @pytest.mark.parametrize("name", ["zheng_facs10", "worm_neuron"])
    def test_as_anndata(self, cell_set, name):
        pytest.importorskip("anndata", reason="anndata is not installed")
        cells = cell_set(name)
        adata = cells.to_anndata()
        assert adata.shape == cells.X.shape
        assert (adata.X != cells.X).nnz == 0
        assert adata.obs["class"].tolist() == cells.classes[cells.y].tolist()
        assert adata.obs["class"].cat.categories.tolist() == cells.classes.tolist()
        assert adata.var_names.is_unique
        if cells.genes is None:
            assert "gene" not in adata.var
        else:
            assert adata.var["gene"].tolist() == cells.genes.tolist(), "some symbols repeat"
            assert adata.var_names[:3].tolist() == cells.genes[:3].tolist()


def save(cells):
    path = info_of(cells.name).path
    save_counts(path, cells.X, y=cells.y, classes=cells.classes, genes=cells.genes)
    return path


def convert(name, folder):
    cells, facts = small_set(name)
    return cells, fetch.convert_cells(name, write_originals(cells, folder), facts)


def assert_same(one, other):
    assert (one.X != other.X).nnz == 0
    assert np.array_equal(one.y, other.y)
    for key in ("classes", "genes"):
        a, b = getattr(one, key), getattr(other, key)
        assert (a is None and b is None) or a.tolist() == b.tolist()


class TestConversion:
    @pytest.mark.parametrize("name", CELLS)
    def test_each_layout(self, tmp_path, monkeypatch, name):
        """Cells without a class and genes without a count are left out, and nothing else changes."""
        expected, cells = convert(name, tmp_path)
        assert_same(cells, expected)
        assert cells.X.dtype == np.uint8
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "cells").mkdir()
        save(cells)
        assert_same(load_cells(name), expected)

    def test_rows_in_several_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(fetch, "BLOCK", 7)
        expected, cells = convert("worm_neuron", tmp_path)
        assert_same(cells, expected)

    def test_an_empty_corner(self, tmp_path):
        cells, facts = small_set("sc_celseq2")
        paths = tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"
        write_mixture(cells, *paths, corner=("",))
        assert_same(fetch.convert_cells("sc_celseq2", list(paths), facts), cells)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"rows": 61}, "rows 60 instead of 61"),
            ({"columns": 26}, "columns 25 instead of 26"),
            ({"entries": 3}, r"entries \d+ instead of 3"),
            ({"total": 3, "rows": 4}, r"rows 60 instead of 4, total \d+ instead of 3"),
        ],
    )
    def test_other_numbers(self, tmp_path, change, message):
        cells, facts = small_set("sc_dropseq")
        with pytest.raises(ValueError, match=f"the counts are not the recorded ones: {message}"):
            fetch.convert_cells("sc_dropseq", write_originals(cells, tmp_path), facts | change)

    def test_counts_that_are_not_whole(self, tmp_path):
        import h5py

        cells, facts = small_set("worm_neuron")
        [path] = write_originals(cells, tmp_path)
        with h5py.File(path, "r+") as file:
            file["X"][...] = cells.X.toarray() * 0.5
        with pytest.raises(ValueError, match="the counts are not whole numbers"):
            fetch.convert_cells("worm_neuron", [path], facts)


class TestStrangeFiles:
    """Files that are damaged, or are not what their name says, get a sentence."""

    @pytest.mark.parametrize("name", ["hash_4lines", "sc_celseq2", "worm_neuron", "worm_embryo", "hmp_site18"])
    def test_damage(self, tmp_path, name):
        cells, facts = small_set(name)
        paths = write_originals(cells, tmp_path)
        good = paths[0].read_bytes()
        rng = np.random.default_rng(0)
        for content in (b"", good[: len(good) // 2], rng.bytes(500)):
            paths[0].write_bytes(content)
            with pytest.raises(ValueError, match=rf"{paths[0].name}.* cannot be read: ."):
                fetch.convert_cells(name, paths, facts)

    def test_an_archive_without_the_table(self, tmp_path):
        cells, facts = small_set("hmp_site18")
        table, sites = write_originals(cells, tmp_path)
        with zipfile.ZipFile(table, "w") as archive:
            archive.writestr("other.txt", "a")
        with pytest.raises(ValueError, match=r"otutable.txt.zip .* cannot be read"):
            fetch.convert_cells("hmp_site18", [table, sites], facts)

    def test_an_environment_that_contains_itself(self, tmp_path):
        pytest.importorskip("rdata", reason="rdata is not installed")
        inner = Environment({})
        inner.variables["inner"] = None
        save_rda(tmp_path / "sce_chcl.rda", {"sce_chcl": Environment({"a": inner})})
        with pytest.raises(ValueError, match="there is no assays → counts"):
            fetch.convert_cells("hash_4lines", [tmp_path / "sce_chcl.rda"], fetch.SOURCES["hash_4lines"])


class TestDamagedSets:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"y": np.zeros(3, dtype=int)}, "its y is not a list of 60 numbers of the 3 classes"),
            ({"y": np.full(60, 99)}, "its y is not a list of 60 numbers of the 3 classes"),
            ({"y": np.full(60, -1)}, "its y is not a list of 60 numbers of the 3 classes"),
            ({"y": np.zeros(60)}, "its y is not a list"),
            ({"classes": np.arange(3)}, "type int64: expected a list of texts"),
            ({"genes": np.array(["a"])}, "its genes have shape (1,)"),
            ({"data": 1.0}, "its data are not counts"),
            ({"classes": None}, "it has no classes"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path, monkeypatch, change, message):
        cells, _ = small_set("sc_dropseq")
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "cells").mkdir()
        path = save(cells)
        with np.load(path) as file:
            parts = dict(file)
        if "data" in change:
            change = {"data": parts["data"] * change["data"]}
        np.savez(path, **{key: value for key, value in (parts | change).items() if value is not None})
        with pytest.raises(ValueError, match=r"sc_dropseq.npz cannot be read as npz: .*Delete the file") as caught:
            load_cells("sc_dropseq")
        assert message in str(caught.value)
