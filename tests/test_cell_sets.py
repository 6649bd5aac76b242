"""The sets of labelled cells: the stored ones, the conversion of their public files, and damaged files."""

import gzip
import lzma
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csc_array

from cell_originals import small_set, write_mixture, write_originals
from conftest import command
from onmf.datasets import list_datasets, load_cells, load_documents
from onmf.datasets.catalogue import CELLS, facts_of, info_of
from onmf.datasets.cell_files import convert_cells
from onmf.datasets.download import save_cells
from onmf.datasets.r_objects import read_matrix, read_texts
from onmf.reproduce.compare import available_and_missing
from r_files import S4, Environment, save_rda, save_rds

DATA = os.environ.get("ONMF_DATA")


@pytest.fixture
def stored():
    """Return the path of a stored set by name. Skips the test if it is not found."""

    def path(name):
        if not DATA:
            pytest.skip("ONMF_DATA is not set: the sets of cells are not at hand")
        found = Path(DATA, "cells", f"{name}.npz")
        if not found.exists():
            pytest.skip(f"cells/{name}.npz is not in ONMF_DATA={DATA}")
        return found

    return path


class TestStored:
    @pytest.mark.parametrize("name", CELLS)
    def test_it_equals_the_file_and_the_recorded_numbers(self, stored, name):
        path = stored(name)
        cells, facts = load_cells(name.upper()), facts_of(info_of(name))
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
        assert all(file["path"] in cells.source for file in facts["files"])
        X, y = load_cells(name, return_X_y=True)
        assert (X != cells.X).nnz == 0
        assert np.array_equal(y, cells.y)

    @pytest.mark.parametrize("name", ["zheng_facs10", "worm_neuron"])
    def test_as_anndata(self, stored, name):
        pytest.importorskip("anndata", reason="anndata is not installed")
        stored(name)
        cells = load_cells(name)
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


class TestNames:
    def test_they_follow_the_papers(self):
        assert [info.name for info in list_datasets()][-len(CELLS) :] == list(CELLS)
        assert not any(info.in_paper for info in list_datasets() if info.kind == "cells")

    def test_the_papers_tables_have_none_of_them(self):
        assert not {*CELLS} & {name for names in available_and_missing(None, None) for name in names}

    def test_fetch_prints_where_it_is(self, tmp_path, monkeypatch):
        pytest.importorskip("typer", reason="typer is not installed")
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        monkeypatch.setattr("onmf.datasets.catalogue.CELLS", ("sc_dropseq",))
        (tmp_path / "cells").mkdir()
        cells, _ = small_set("sc_dropseq")
        save_cells(cells, info_of("sc_dropseq").path)
        done = command("fetch", "cells")
        assert done.returncode == 0
        assert done.stdout.strip() == str(tmp_path / "cells" / "sc_dropseq.npz")

    def test_refusals(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        with pytest.raises(ValueError, match=r"'zheng' is not a data set: choose .* zheng_facs10.*'cells', 'paper' or"):
            load_cells("zheng")
        with pytest.raises(ValueError, match="hash_4lines is a cells data set: load it with load_cells"):
            load_documents("hash_4lines")
        with pytest.raises(ValueError, match="tr11 is a documents data set: load it with load_documents"):
            load_cells("tr11")
        with pytest.raises(FileNotFoundError, match=r"worm_neuron.npz does not exist: download it with onmf.datasets"):
            load_cells("worm_neuron", download_if_missing=False)


def convert(name, folder):
    cells, facts = small_set(name)
    return cells, convert_cells(name, write_originals(cells, folder), facts)


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
        save_cells(cells, info_of(name).path)
        assert_same(load_cells(name), expected)

    def test_rows_in_several_blocks(self, tmp_path, monkeypatch):
        monkeypatch.setattr("onmf.datasets.cell_files.BLOCK", 1500)
        expected, cells = convert("worm_neuron", tmp_path)
        assert_same(cells, expected)

    def test_an_empty_corner(self, tmp_path):
        cells, facts = small_set("sc_celseq2")
        paths = tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"
        write_mixture(cells, *paths, corner=("",))
        assert_same(convert_cells("sc_celseq2", list(paths), facts), cells)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"rows": 61}, "there are 60 rows instead of 61"),
            ({"columns": 26}, "there are 25 columns instead of 26"),
            ({"entries": 3}, r"there are \d+ nonzero counts instead of 3"),
            ({"total": 3, "rows": 4}, r"there are 60 rows instead of 4, \d+ molecules instead of 3"),
        ],
    )
    def test_other_numbers(self, tmp_path, change, message):
        cells, facts = small_set("sc_dropseq")
        with pytest.raises(ValueError, match=f"the counts are not the recorded ones: {message}"):
            convert_cells("sc_dropseq", write_originals(cells, tmp_path), facts | change)

    def test_counts_that_are_not_whole(self, tmp_path):
        import h5py

        cells, facts = small_set("worm_neuron")
        [path] = write_originals(cells, tmp_path)
        with h5py.File(path, "r+") as file:
            file["X"][...] = cells.X.toarray() * 0.5
        with pytest.raises(ValueError, match="the counts are not whole numbers"):
            convert_cells("worm_neuron", [path], facts)


def test_files_written_by_r():
    """rdata's own tests come with files of R: S4 objects, factors, tables and matrices with names."""
    rdata = pytest.importorskip("rdata", reason="rdata is not installed")
    folder = Path(rdata.__file__).parent / "tests" / "data" / "generated"
    if not folder.is_dir():
        pytest.skip("this version of rdata comes without its tests")

    def path(name):
        return str(folder / f"test_{name}__xdr__version_3.rda")

    assert read_texts(path("s4"), "test_s4", "name") == ["Carlos"]
    assert read_texts(path("s4"), "age") == ["28"]
    assert read_texts(path("dataframe"), "test_dataframe", "class") == ["a", "b", "b"]
    assert read_texts(path("altrep_deferred_string"), "test_altrep_deferred_string")[:2] == ["1", "2.3"]
    matrix = read_matrix(path("full_named_matrix"), "test_full_named_matrix")
    X = csc_array((matrix["data"], matrix["indices"], matrix["indptr"]), shape=tuple(matrix["shape"]))
    assert X.toarray().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert matrix["rows"] == ["dim0_0", "dim0_1"]
    assert matrix["columns"] == ["dim1_0", "dim1_1", "dim1_2"]


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
                convert_cells(name, paths, facts)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ({"counts": np.arange(3)}, "pbmc_facs → counts is not a matrix"),
            ({"samples": {}}, "there is no pbmc_facs → counts"),
            ({"counts": S4("dgCMatrix", {key: ["a"] for key in ("Dim", "i", "p", "x")})}, "expected numbers"),
        ],
    )
    def test_other_objects(self, tmp_path, value, message):
        pytest.importorskip("rdata", reason="rdata is not installed")
        path = tmp_path / "pbmc_facs.RData"
        save_rda(path, {"pbmc_facs": value})
        with pytest.raises(ValueError, match=f"pbmc_facs.RData cannot be read: .*{message}"):
            convert_cells("zheng_facs10", [path], facts_of(info_of("zheng_facs10")))

    def test_indices_out_of_bounds(self, tmp_path):
        pytest.importorskip("rdata", reason="rdata is not installed")
        parts = {"Dim": np.array([2, 2]), "i": np.array([0, 7]), "p": np.array([0, 1, 2]), "x": np.ones(2)}
        save_rds(tmp_path / "a.rds", S4("dgCMatrix", parts))
        with pytest.raises(ValueError, match=r"a\.rds"):
            convert_cells("worm_embryo", [tmp_path / "a.rds", tmp_path / "a.rds"], facts_of(info_of("worm_embryo")))

    def test_a_file_that_grows_without_end(self, tmp_path):
        """1.6 GB of zeros in a file of 250 kB: the process that reads it may not have that much."""
        pytest.importorskip("rdata", reason="rdata is not installed")
        path = tmp_path / "sce_chcl.rda"
        path.write_bytes(lzma.compress(b"RDX2\nX\n") + 25 * lzma.compress(bytes(1 << 26), preset=0))
        with pytest.raises(ValueError, match=r"sce_chcl.rda takes more than .* MB to read"):
            convert_cells("hash_4lines", [path], facts_of(info_of("hash_4lines")))

    def test_an_archive_without_the_table(self, tmp_path):
        cells, facts = small_set("hmp_site18")
        table, sites = write_originals(cells, tmp_path)
        with zipfile.ZipFile(table, "w") as archive:
            archive.writestr("other.txt", "a")
        with pytest.raises(ValueError, match=r"otutable.txt.zip has no otutable.txt, but other.txt"):
            convert_cells("hmp_site18", [table, sites], facts)

    def test_rows_of_different_lengths(self, tmp_path):
        cells, facts = small_set("sc_dropseq")
        counts, table = write_originals(cells, tmp_path)
        text = gzip.decompress(counts.read_bytes()).decode().splitlines()
        text[2] += ",1"
        counts.write_bytes(gzip.compress("\n".join(text).encode()))
        with pytest.raises(ValueError, match="row 2 of the counts has 61 numbers, but the first has 60"):
            convert_cells("sc_dropseq", [counts, table], facts)

    def test_an_environment_that_contains_itself(self, tmp_path):
        pytest.importorskip("rdata", reason="rdata is not installed")
        inner = Environment({})
        inner.variables["inner"] = None
        save_rda(tmp_path / "sce_chcl.rda", {"sce_chcl": Environment({"a": inner})})
        with pytest.raises(ValueError, match="there is no sce_chcl → assays"):
            convert_cells("hash_4lines", [tmp_path / "sce_chcl.rda"], facts_of(info_of("hash_4lines")))


class TestDamagedSets:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"y": np.zeros(3, dtype=int)}, "it has 60 rows, but its classes have shape"),
            ({"y": np.full(60, 99)}, "it has classes 99 to 99, but names for 3"),
            ({"y": np.zeros(60)}, "type float64"),
            ({"classes": np.arange(3)}, "the names of its classes are not a list of texts"),
            ({"genes": np.array(["a"])}, "it has 25 columns, but its genes have shape"),
            ({"data": np.float64}, "its data are not counts"),
            ({"indices": np.int64(99)}, "cannot be read as npz"),
            ({"shape": np.array([60, -1])}, "cannot be read as npz"),
            ({"classes": None}, "it has no classes"),
        ],
    )
    def test_parts_that_do_not_fit(self, tmp_path, monkeypatch, change, message):
        cells, _ = small_set("sc_dropseq")
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "cells").mkdir()
        path = info_of("sc_dropseq").path
        save_cells(cells, path)
        with np.load(path) as file:
            parts = dict(file)
        for key, value in change.items():
            if key in ("data", "indices"):
                parts[key] = parts[key].astype(value) if isinstance(value, type) else np.full_like(parts[key], value)
            elif value is None:
                del parts[key]
            else:
                parts[key] = value
        np.savez(path, **parts)
        with pytest.raises(ValueError, match=r"sc_dropseq.npz cannot be read as npz: .*Delete the file") as caught:
            load_cells("sc_dropseq")
        assert message in str(caught.value)

    def test_bytes_that_are_no_archive(self, tmp_path, monkeypatch):
        monkeypatch.setenv("ONMF_DATA", str(tmp_path))
        (tmp_path / "cells").mkdir()
        info_of("sc_dropseq").path.write_bytes(b"PK\3\4 and nothing else")
        with pytest.raises(ValueError, match=r"sc_dropseq.npz cannot be read as npz: .* Delete the file"):
            load_cells("sc_dropseq")
