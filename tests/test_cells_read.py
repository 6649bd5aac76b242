"""Readers of cells: files of the field's own tools read back equal, and broken ones give a sentence."""

import gzip
import pickle
import random
import shutil
import warnings
from pathlib import Path

import anndata
import dask.array
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy.io import mmwrite
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, save_npz, vstack

from conftest import DATA
from onmf.cells import OnDisk, check_counts, read, whole_layers_of

SYMBOLS = ["ACTB", "GAPDH", "CD3E", "CD8A", "MS4A1", "NKG7", "LYZ", "PPBP", "CD14", "FCGR3A"]
SYMBOLS += ["CST3", "IL7R", "CCR7", "S100A4", "GNLY", "FCER1A", "MT-CO1", "RPL13", "RPS6", "HLA-DRA"]
IDS = [f"ENSG{i:011d}" for i in range(20)]
KINDS = [["B", "T", "NK"][i % 3] for i in range(30)]


def barcode(i):
    return "".join("ACGT"[(i >> 2 * k) & 3] for k in range(8)) * 2 + "-1"


BARCODES = [barcode(i) for i in range(30)]


def counts(dtype=np.float32):
    rng = np.random.default_rng(0)
    return csr_array(rng.poisson(0.8, (30, 20)) * (1 + np.arange(30)[:, None] % 3)).astype(dtype)


def adata(X=None, **parts):
    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(KINDS),
            "text": [f"t{i}" for i in range(30)],
            "number": np.arange(30),
            "maybe": pd.array([None, *range(29)], dtype="Int64"),
            "partly": pd.Categorical([None, *KINDS[1:]]),
        },
        index=BARCODES,
    )
    var = pd.DataFrame({"gene_symbols": SYMBOLS}, index=IDS)
    return anndata.AnnData(counts() if X is None else X, obs=obs, var=var, **parts)


def write(data, path):
    """Write an h5ad file, or a Zarr store of version 2 or 3, as the suffix says."""
    if path.suffix == ".h5ad":
        data.write_h5ad(path)
        return path
    with anndata.settings.override(zarr_write_format=int(path.suffix[-1])), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the default version, and strings in version 3
        data.write_zarr(path)
    return path


def equal(cells, X=None):
    found = cells.X[0 : cells.X.shape[0]] if isinstance(cells.X, OnDisk) else cells.X
    assert isinstance(found, csr_array)
    assert found.has_canonical_format
    assert np.array_equal(found.toarray(), (counts() if X is None else X).toarray())


def tenx_v3(path, X=None, types=None):
    """A file with the layout of Cell Ranger 3 and later."""
    genes_by_cells = csc_array((counts(np.int32) if X is None else X).T)
    with h5py.File(path, "w") as file:
        matrix = file.create_group("matrix")
        matrix["barcodes"] = np.array(BARCODES, dtype="S18")
        matrix["data"] = genes_by_cells.data
        matrix["indices"] = genes_by_cells.indices.astype(np.int64)
        matrix["indptr"] = genes_by_cells.indptr.astype(np.int64)
        matrix["shape"] = np.array(genes_by_cells.shape, dtype=np.int32)
        features = matrix.create_group("features")
        features["_all_tag_keys"] = np.array(["genome"], dtype="S6")
        features["feature_type"] = np.array(types or ["Gene Expression"] * 20, dtype="S20")
        features["genome"] = np.array(["GRCh38"] * 20, dtype="S6")
        features["id"] = np.array(IDS, dtype="S15")
        features["name"] = np.array(SYMBOLS, dtype="S16")
    return path


def tenx_v2(path, genomes=("hg19",)):
    """A file with the layout of Cell Ranger 2."""
    genes_by_cells = csc_array(counts(np.int32).T)
    with h5py.File(path, "w") as file:
        for genome in genomes:
            group = file.create_group(genome)
            group["barcodes"] = np.array(BARCODES, dtype="S18")
            group["data"], group["indices"] = genes_by_cells.data, genes_by_cells.indices.astype(np.int64)
            group["indptr"], group["shape"] = genes_by_cells.indptr.astype(np.int64), np.array((20, 30), dtype=np.int32)
            group["genes"], group["gene_names"] = np.array(IDS, dtype="S15"), np.array(SYMBOLS, dtype="S16")
    return path


def loom(path):
    """A file with the layout of loompy 3."""
    with h5py.File(path, "w") as file:
        X = counts(np.float32).toarray().T
        file.create_dataset("matrix", data=X, chunks=(16, 16), compression="gzip")
        file.create_dataset("layers/spliced", data=(2 * X).astype(np.uint16), chunks=(16, 16), compression="gzip")
        text = h5py.string_dtype()
        file.create_dataset("row_attrs/Gene", data=np.array(SYMBOLS, dtype=object), dtype=text)
        file.create_dataset("row_attrs/Accession", data=np.array(IDS, dtype=object), dtype=text)
        file.create_dataset("col_attrs/CellID", data=np.array(BARCODES, dtype=object), dtype=text)
        file.create_dataset("col_attrs/kind", data=np.array(KINDS, dtype=object), dtype=text)
        file.create_group("row_graphs")
        file.create_group("col_graphs")
        file.create_group("attrs")["LOOM_SPEC_VERSION"] = "3.0.0"
    return path


def tenx_folder(folder, compress=True, features=None, prefix=""):
    folder.mkdir(exist_ok=True)
    features = features or [f"{i}\t{s}\tGene Expression" for i, s in zip(IDS, SYMBOLS, strict=True)]
    names = {"barcodes.tsv": BARCODES, ("features.tsv" if "\tGene" in features[0] else "genes.tsv"): features}
    mmwrite(folder / "m.mtx", counts(np.int32).T.tocoo())
    files = {"matrix.mtx": (folder / "m.mtx").read_bytes()}
    (folder / "m.mtx").unlink()
    files |= {name: "\n".join([*lines, ""]).encode() for name, lines in names.items()}
    for name, data in files.items():
        if compress:
            (folder / f"{prefix}{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{prefix}{name}").write_bytes(data)
    return folder


def frame(genes_in_rows=False):
    table = pd.DataFrame(counts(int).toarray(), index=BARCODES, columns=SYMBOLS)
    return table.T if genes_in_rows else table


WRITERS = {
    "cells.h5ad": lambda path: adata(layers={"dense": counts().toarray()}).write_h5ad(path),
    "dense.h5ad": lambda path: adata(counts().toarray()).write_h5ad(path, compression="gzip"),
    "cells.zarr2": lambda path: write(adata(), path),
    "v3.h5": tenx_v3,
    "v2.h5": tenx_v2,
    "cells.loom": loom,
    "cells.csv.gz": lambda path: frame().to_csv(path),
    "matrix.mtx.gz": lambda path: shutil.move(tenx_folder(path.with_name("folder")) / "matrix.mtx.gz", path),
    "cells.npz": lambda path: save_npz(path, counts()),
}


class TestAnnData:
    @pytest.mark.parametrize("form", ["csr", "csc", "dense"])
    @pytest.mark.parametrize("suffix", ["h5ad", "zarr2", "zarr3"])
    def test_x_in_every_form(self, tmp_path, form, suffix):
        X = {"csr": counts(), "csc": csc_array(counts()), "dense": counts().toarray()}[form]
        path = write(adata(X), tmp_path / f"cells.{suffix}")
        cells = read(path)
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.symbols) == (BARCODES, IDS, SYMBOLS)
        assert (cells.place, cells.source, cells.X.dtype) == ("X", str(path), np.float32)
        assert "symbols are in 'gene_symbols'" in " ".join(cells.notes)
        assert check_counts(cells) == []
        assert repr(cells) == f"<Cells of cells.{suffix}, X: 30 cells × 20 genes>"

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.float64, bool, ">i4", np.float16])
    def test_types(self, tmp_path, dtype):
        X = counts(np.int64).toarray().astype(dtype)
        with h5py.File(tmp_path / "x.h5ad", "w") as file:
            file["X"] = X
        wanted = {bool: np.uint8, ">i4": np.int32, np.float16: np.float32}.get(dtype, dtype)
        cells = read(tmp_path / "x.h5ad")
        assert cells.X.dtype == wanted, "small integers stay small"
        assert np.array_equal(cells.X.toarray(), X)
        assert cells.barcodes[:2] == ["cell 1", "cell 2"]
        assert "no names of genes" in " ".join(cells.notes)

    def test_layers_and_raw(self, tmp_path):
        full = adata()
        part = adata(np.log1p(counts()))[:, :7].copy()
        part.raw, part.layers["counts"], part.layers["dense"] = full, counts()[:, :7], counts()[:, :7].toarray()
        part.layers["csc"] = csc_array(counts()[:, :7])
        part.write_h5ad(path := tmp_path / "cells.h5ad")
        for layer in ("counts", "dense", "csc", "layers/counts"):
            cells = read(path, layer=layer)
            equal(cells, counts()[:, :7])
            assert cells.genes == IDS[:7]
        assert cells.place == "layers/counts"
        raw = read(path, layer="raw")
        equal(raw)
        assert (raw.genes, raw.place) == (IDS, "raw/X")
        with pytest.raises(ValueError, match="no layer 'nope': it has 'X', 'raw', 'counts', 'csc', 'dense'"):
            read(path, layer="nope")
        with pytest.raises(ValueError, match="leave out orientation"):
            read(path, orientation="cells-in-rows")

    @pytest.mark.parametrize("suffix", ["h5ad", "zarr2", "zarr3"])
    def test_labels(self, tmp_path, suffix):
        path = write(adata(), tmp_path / f"cells.{suffix}")
        assert read(path, labels="kind").classes == KINDS
        assert read(path, labels="text").classes == [f"t{i}" for i in range(30)]
        assert read(path, labels="number").classes == [str(i) for i in range(30)]
        assert read(path, labels="maybe").classes == [None, *(str(i) for i in range(29))]
        partly = read(path, labels="partly")
        assert partly.classes == [None, *KINDS[1:]]
        assert "Cells without a label: 1 of 30." in partly.notes
        with pytest.raises(ValueError, match=r"no column 'nope' .* it has 'kind', 'maybe', 'number', 'partly', 'text'"):
            read(path, labels="nope")

    def test_texts_that_may_be_missing(self, tmp_path):
        data = adata()
        data.obs["kind"] = pd.array([None, *KINDS[1:]], dtype="string")
        with anndata.settings.override(allow_write_nullable_strings=True):
            data.write_h5ad(path := tmp_path / "x.h5ad")
        cells = read(path, labels="kind")
        assert (cells.classes, cells.barcodes) == ([None, *KINDS[1:]], BARCODES)

    @pytest.mark.parametrize("version", ["0.6", "0.7"])
    def test_older_encodings(self, tmp_path, version):
        X = counts()
        with h5py.File(path := tmp_path / "old.h5ad", "w") as file:
            group = file.create_group("X")
            group["data"], group["indices"], group["indptr"] = X.data, X.indices, X.indptr
            codes = np.array([["B", "NK", "T"].index(kind) for kind in KINDS], dtype=np.int8)
            if version == "0.6":
                group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = "csr", X.shape
                file["obs"] = np.array(
                    list(zip([b.encode() for b in BARCODES], codes, strict=True)),
                    dtype=[("index", "S18"), ("kind", "i1")],
                )
                file["var"] = np.array([(s.encode(),) for s in SYMBOLS], dtype=[("index", "S10")])
                file["uns/kind_categories"] = np.array(["B", "NK", "T"], dtype=object)
                file["raw.X"], file["raw.var"] = (
                    2 * X.toarray(),
                    np.array([(s.encode(),) for s in IDS], [("index", "S15")]),
                )
            else:
                group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
                group.attrs["shape"] = X.shape
                for name, index in (("obs", BARCODES), ("var", SYMBOLS)):
                    table = file.create_group(name)
                    table.attrs["_index"] = "names"
                    table["names"] = np.array(index, dtype=object)
                file["obs/kind"], file["obs/__categories/kind"] = codes, np.array(["B", "NK", "T"], dtype=object)
        cells = read(path, labels="kind")
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.classes) == (BARCODES, SYMBOLS, KINDS)
        if version == "0.6":
            raw = read(path, layer="raw")
            assert (raw.genes, raw.X.sum()) == (IDS, 2 * X.sum())
        with pytest.raises(ValueError, match="it has 'kind'"):
            read(path, labels="names")

    def test_entries_are_made_canonical(self, tmp_path):
        with h5py.File(path := tmp_path / "x.h5ad", "w") as file:
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (2, 3)
            group["data"] = np.array([200, 100, 5, 0], dtype=np.uint8)
            group["indices"], group["indptr"] = np.array([1, 1, 0, 2]), np.array([0, 2, 4])
        X = read(path).X
        assert X.toarray().tolist() == [[0, 300, 0], [5, 0, 0]], "the sum of duplicates does not overflow"
        assert X.nnz == 2

    @pytest.mark.parametrize("name", ["indices", "indptr"])
    def test_indices_outside(self, tmp_path, name):
        adata().write_h5ad(path := tmp_path / "x.h5ad")
        for value in (-1, 2**31 - 1):
            with h5py.File(path, "r+") as file:
                file[f"X/{name}"][-1] = value
            with pytest.raises(ValueError, match=r"x\.h5ad, X, cannot be read"):
                read(path)

    def test_names_are_made_unique(self, tmp_path):
        X = counts()[:4]
        with h5py.File(path := tmp_path / "x.h5ad", "w") as file:
            file["X"] = X.toarray()
            file["obs/_index"] = np.array(["a", "a-1", "a", ""], dtype=object)
        cells = read(path)
        assert cells.barcodes == ["a", "a-1", "a-2", "cell 4"]
        assert "Cells without a name are numbered: 1 of 4." in cells.notes
        assert "Names of cells that occurred before got the endings -1, -2 and so on: 1 of 4." in cells.notes

    @pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
    def test_nothing_in_it(self, tmp_path, shape):
        anndata.AnnData(csr_array(shape, dtype=np.float32)).write_h5ad(path := tmp_path / "x.h5ad")
        with pytest.raises(ValueError, match=f"has no {'cells' if shape[0] == 0 else 'genes'}: X is"):
            read(path)

    def test_no_x(self, tmp_path):
        anndata.AnnData(
            None, obs=pd.DataFrame(index=BARCODES), var=pd.DataFrame(index=IDS), layers={"c": counts()}
        ).write_h5ad(path := tmp_path / "x.h5ad")
        with pytest.raises(ValueError, match=r"has no X. Name the layer .* layer='c' .--layer c on .* it has 'c'"):
            read(path)
        with h5py.File(path, "r+") as file:  # as AnnData 0.12 writes it
            if "X" not in file:
                file["X"] = h5py.Empty("f4")
                file["X"].attrs["encoding-type"] = "null"
        with pytest.raises(ValueError, match=r"has no X. Name the layer .* layer='c' .--layer c on .* it has 'c'"):
            read(path)
        equal(read(path, layer="c"))


class TestLarge:
    @pytest.fixture(autouse=True)
    def small_memory(self, monkeypatch):
        monkeypatch.setattr("onmf.cells.matrix.LARGE", 500)
        monkeypatch.setattr("onmf.cells.matrix.BLOCK", 64)

    @pytest.mark.parametrize("name", ["cells.h5ad", "dense.h5ad", "cells.zarr2", "v3.h5", "cells.loom"])
    def test_stays_on_disk(self, tmp_path, name):
        WRITERS[name](path := tmp_path / name)
        cells = read(path)
        assert isinstance(cells.X, OnDisk)
        assert (cells.X.shape, cells.X.ndim, len(cells.X)) == ((30, 20), 2, 30)
        equal(cells)
        assert np.array_equal(cells.X[7:11].toarray(), counts()[7:11].toarray())
        assert cells.X[5:5].shape == (0, 20)
        again = pickle.loads(pickle.dumps(cells.X))
        assert (vstack([again[start : start + 7] for start in range(0, 30, 7)]) != counts()).nnz == 0
        assert check_counts(cells, rows=7) == []
        with pytest.raises(TypeError, match="by slices of rows"):
            cells.X[3]

    def test_csc_is_read_whole_or_refused(self, tmp_path, monkeypatch):
        adata(csc_array(counts())).write_h5ad(path := tmp_path / "x.h5ad")
        cells = read(path)
        assert isinstance(cells.X, csr_array)
        equal(cells)
        monkeypatch.setattr("onmf.cells.matrix.free_memory", lambda: 100.0)
        with pytest.raises(ValueError, match=r"stored by columns .* write it by rows"):
            read(path)


class TestTenX:
    def test_version_3(self, tmp_path):
        cells = read(tenx_v3(tmp_path / "x.h5"))
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.ids, cells.place) == (BARCODES, SYMBOLS, IDS, "matrix")
        assert cells.X.dtype == np.int32
        assert cells.notes == []

    @pytest.mark.parametrize("large", [False, True])
    def test_only_genes_are_kept(self, tmp_path, monkeypatch, large):
        monkeypatch.setattr("onmf.cells.matrix.LARGE", 500 if large else 10**9)
        types = ["Gene Expression"] * 17 + ["Antibody Capture"] * 3
        cells = read(tenx_v3(tmp_path / "x.h5", types=types))
        assert isinstance(cells.X, OnDisk) == large
        equal(cells, counts()[:, :17])
        assert cells.genes == SYMBOLS[:17]
        assert cells.notes == [
            "Only features of type 'Gene Expression' are kept; left out: 3 of type 'Antibody Capture'."
        ]
        with pytest.raises(ValueError, match="no features of type 'Gene Expression': it has 'Peaks'"):
            read(tenx_v3(tmp_path / "y.h5", types=["Peaks"] * 20))

    def test_version_2(self, tmp_path):
        cells = read(tenx_v2(tmp_path / "x.h5"))
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.ids, cells.place) == (BARCODES, SYMBOLS, IDS, "hg19")
        path = tenx_v2(tmp_path / "two.h5", ("hg19", "mm10"))
        with pytest.raises(
            ValueError,
            match=r"several genomes. Name the layer .* layer='hg19' .--layer hg19 on .* it has 'hg19', 'mm10'",
        ):
            read(path)
        equal(read(path, layer="mm10"))
        with pytest.raises(ValueError, match="no layer 'x'"):
            read(path, layer="x")

    @pytest.mark.parametrize("compress", [True, False])
    def test_folder(self, tmp_path, compress):
        folder = tenx_folder(tmp_path / "out", compress)
        for path in (folder, folder / f"matrix.mtx{'.gz' if compress else ''}"):
            cells = read(path)
            equal(cells)
            assert (cells.barcodes, cells.genes, cells.ids) == (BARCODES, SYMBOLS, IDS)
            assert cells.X.dtype == np.uint8
            assert cells.notes == []

    def test_older_folder_and_prefix(self, tmp_path):
        features = [f"{i}\t{s}" for i, s in zip(IDS, ["ACTB", "ACTB", *SYMBOLS[2:]], strict=True)]
        folder = tenx_folder(tmp_path / "old", False, features, prefix="GSM1_a_")
        cells = read(folder)
        assert cells.genes[:3] == ["ACTB", "ACTB-1", "CD3E"]
        assert cells.ids == IDS
        tenx_folder(folder, True, prefix="GSM2_b_")
        with pytest.raises(ValueError, match=r"several matrices, 'GSM1_a_matrix.mtx', 'GSM2_b_matrix.mtx.gz'"):
            read(folder)
        equal(read(folder / "GSM2_b_matrix.mtx.gz"))

    def test_antibodies_in_a_folder(self, tmp_path):
        features = [f"{i}\t{s}\tGene Expression" for i, s in zip(IDS, SYMBOLS, strict=True)]
        features[4] = features[4].replace("Gene Expression", "Antibody Capture")
        cells = read(tenx_folder(tmp_path / "x", features=features))
        assert len(cells.genes) == 19
        assert "MS4A1" not in cells.genes

    def test_empty_lines_among_the_names(self, tmp_path):
        folder = tenx_folder(tmp_path / "x", False)
        (folder / "barcodes.tsv").write_text("\n".join([BARCODES[0], "", *BARCODES[2:], "", "", ""]))
        assert read(folder).barcodes == [BARCODES[0], "cell 2", *BARCODES[2:]]

    def test_names_that_look_like_missing_values(self, tmp_path):
        names = ["nan", "NA", "NaN", "null", "None"]
        features = [f"{i}\t{s}\tGene Expression" for i, s in zip(IDS, [*names, *SYMBOLS[5:]], strict=True)]
        folder = tenx_folder(tmp_path / "x", False, features)
        (folder / "barcodes.tsv").write_text("\n".join([*names, *BARCODES[5:], ""]))
        cells = read(folder)
        assert (cells.barcodes, cells.genes) == ([*names, *BARCODES[5:]], [*names, *SYMBOLS[5:]])

    def test_the_run_of_cell_ranger(self, tmp_path):
        outs = tmp_path / "run1" / "outs"
        outs.mkdir(parents=True)
        (outs / "web_summary.html").write_text("")
        for folder in (outs, outs.parent):
            with pytest.raises(ValueError, match=r"without filtered_feature_bc_matrix\.h5 or .* Name the file"):
                read(folder)
        tenx_folder(outs / "raw_feature_bc_matrix")
        tenx_folder(outs / "filtered_feature_bc_matrix")
        for wanted in ("filtered_feature_bc_matrix/matrix.mtx.gz", "filtered_feature_bc_matrix.h5"):
            if wanted.endswith(".h5"):
                tenx_v3(outs / wanted)
            for folder, name in ((outs, wanted), (outs.parent, f"outs/{wanted}")):
                cells = read(folder)
                equal(cells)
                assert (cells.barcodes, cells.genes, cells.source) == (BARCODES, SYMBOLS, str(folder))
                assert cells.notes == [
                    f"The counts are those of {name}: the droplets that Cell Ranger takes for cells."
                ]

    def test_several_matrices_with_the_same_names(self, tmp_path):
        folder = tenx_folder(tmp_path / "x", False)
        shutil.copy(folder / "matrix.mtx", path := folder / "UniqueAndMult-EM.mtx")
        cells = read(path)
        equal(cells)
        assert (cells.barcodes, cells.genes) == (BARCODES, SYMBOLS)

    def test_cells_in_rows(self, tmp_path):
        folder = tenx_folder(tmp_path / "x", False)
        mmwrite(folder / "matrix.mtx", counts(int))
        equal(read(folder))
        (folder / "barcodes.tsv").write_text("\n".join(BARCODES[:9]))
        with pytest.raises(ValueError, match="name 9 cells and 20 genes: these files do not belong together"):
            read(folder)

    def test_matrix_alone(self, tmp_path):
        mmwrite(path := tmp_path / "x.mtx", counts(int).T)
        cells = read(path)
        equal(cells)
        assert "genes in rows are assumed" in cells.notes[0]
        assert "set orientation='cells-in-rows' (--orientation cells-in-rows on" in cells.notes[0]
        cells = read(path, orientation="cells-in-rows")
        assert cells.X.shape == (20, 30)
        mmwrite(path, counts(float).toarray().T)
        equal(read(path))

    def test_no_matrix(self, tmp_path):
        (tmp_path / "notes.txt").write_text("x")
        with pytest.raises(ValueError, match=r"without matrix\.mtx .* it holds 'notes\.txt'"):
            read(tmp_path)


class TestLoom:
    def test_matrix_layers_and_labels(self, tmp_path):
        path = loom(tmp_path / "x.loom")
        cells = read(path, labels="kind")
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.ids, cells.classes) == (BARCODES, SYMBOLS, IDS, KINDS)
        assert cells.place == "matrix"
        spliced = read(path, layer="spliced")
        equal(spliced, 2 * counts())
        assert (spliced.place, spliced.X.dtype) == ("layers/spliced", np.uint16)
        with pytest.raises(ValueError, match="no layer 'x': it has 'matrix', 'spliced'"):
            read(path, layer="x")

    @pytest.mark.short("imports loompy")
    def test_written_by_loompy(self, tmp_path):
        loompy = pytest.importorskip("loompy", reason="loompy is not installed")
        path = tmp_path / "x.loom"
        X = counts(np.int32).toarray().T
        loompy.create(
            str(path),
            {"": X, "spliced": X},
            {"Gene": np.array(SYMBOLS), "Accession": np.array(IDS)},
            {"CellID": np.array(BARCODES), "kind": np.array(KINDS)},
        )
        cells = read(path, labels="kind")
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.ids, cells.classes) == (BARCODES, SYMBOLS, IDS, KINDS)
        equal(read(path, layer="spliced"))


def test_scanpy_reads_the_same(tmp_path):
    """The files of these tests have the layout that the field's reader knows, and names are made unique as there."""
    scanpy = pytest.importorskip("scanpy", reason="scanpy is not installed")
    names = ["ACTB", "ACTB", *SYMBOLS[2:]]
    paths = [tenx_v3(tmp_path / "3.h5"), tenx_v2(tmp_path / "2.h5")]
    for path in paths:
        with h5py.File(path, "r+") as file:
            file["matrix/features/name" if path is paths[0] else "hg19/gene_names"][...] = np.array(names, dtype="S16")
        with pytest.warns(UserWarning, match="names are not unique"):
            theirs = scanpy.read_10x_h5(path)
        theirs.var_names_make_unique()
        ours = read(path)
        assert (ours.genes, ours.barcodes) == (list(theirs.var_names), list(theirs.obs_names))
        equal(ours, theirs.X)
    theirs = scanpy.read_10x_mtx(tenx_folder(tmp_path / "folder"))
    ours = read(tmp_path / "folder")
    assert (ours.genes, ours.barcodes) == (list(theirs.var_names), list(theirs.obs_names))
    equal(ours, theirs.X)


@pytest.mark.filterwarnings("ignore:zero-centering a sparse:UserWarning")
def test_the_steps_of_scanpy_are_recognised(tmp_path):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is not installed")
    rng = np.random.default_rng(0)
    shares = rng.gamma(0.3, 1, (3, 400))
    X = rng.poisson(rng.gamma(5, 300, (90, 1)) * (shares / shares.sum(axis=1, keepdims=True))[np.arange(90) % 3])
    data = anndata.AnnData(csr_matrix(X.astype(np.float32)))
    data.layers["counts"] = data.X.copy()
    steps = [
        (lambda data: scanpy.pp.normalize_total(data, target_sum=1e4), "cell were normalised to 10,000"),
        (lambda data: scanpy.pp.log1p(data), "normalised to 10,000 and log-transformed"),
        (lambda data: data[:, ::2].copy(), "were normalised and log-transformed"),
        (lambda data: scanpy.pp.scale(data), "an entry is negative .*, as after scaling"),
    ]
    for number, (step, message) in enumerate(steps):
        changed = step(data)
        data = data if changed is None else changed
        data.write_h5ad(path := tmp_path / f"{number}.h5ad")
        with pytest.raises(
            ValueError,
            match=f"{message}.* Whole numbers are in the layer 'counts': use layer='counts' .--layer counts on",
        ):
            check_counts(read(path))
        assert check_counts(read(path, layer="counts")) == []


class TestTables:
    @pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.csv.gz", "x.txt"])
    @pytest.mark.parametrize("genes_in_rows", [False, True])
    def test_orientation_is_guessed_and_said(self, tmp_path, name, genes_in_rows):
        frame(genes_in_rows).to_csv(path := tmp_path / name, sep="," if "csv" in name else "\t")
        cells = read(path)
        equal(cells)
        assert (cells.barcodes, cells.genes, cells.X.dtype) == (BARCODES, SYMBOLS, np.uint8)
        rows = "genes" if genes_in_rows else "cells"
        assert f"rows of the table are taken as {rows}" in cells.notes[0]
        assert "by their names" in cells.notes[0]
        assert check_counts(cells) == []

    def test_orientation_can_be_set(self, tmp_path):
        frame().to_csv(path := tmp_path / "x.csv")
        turned = read(path, orientation="genes-in-rows")
        assert (turned.genes, turned.notes) == (BARCODES, [])
        with pytest.raises(ValueError, match="'sideways' is unknown: use 'cells-in-rows' or 'genes-in-rows'"):
            read(path, orientation="sideways")

    @pytest.mark.parametrize(
        ("corner", "names", "genes_in_rows", "reason"),
        [
            ("gene_id", ("x", "y"), True, "the first column is called 'gene_id'"),
            ("barcode", ("x", "y"), False, "the first column is called 'barcode'"),
            ("", ("x", "y"), True, "by their number only"),
            ("", ("ENSMUSG00000000", "SRR123456"), True, "by their names"),
            ("", ("Cell_", "Gm10"), False, "by their names"),
            ("", ("plate1.A", "FBgn000000"), False, "by their names"),
        ],
    )
    def test_other_signs(self, tmp_path, corner, names, genes_in_rows, reason):
        table = pd.DataFrame(
            np.ones((40, 9), dtype=int),
            index=pd.Index([f"{names[0]}{i:03}" for i in range(40)], name=corner),
            columns=[f"{names[1]}{i}" for i in range(9)],
        )
        table.to_csv(path := tmp_path / "x.csv")
        cells = read(path)
        assert cells.X.shape == ((9, 40) if genes_in_rows else (40, 9))
        assert reason in cells.notes[0]

    def test_chunks(self, tmp_path, monkeypatch):
        monkeypatch.setattr("onmf.door.files.BLOCK", 64)
        frame(True).to_csv(path := tmp_path / "x.csv")
        equal(read(path))

    def test_tables_of_r(self, tmp_path):
        lines = [",".join(f'"{b}"' for b in BARCODES)]
        lines += [f'"{s}",' + ",".join(map(str, row)) for s, row in zip(SYMBOLS, counts(int).toarray().T, strict=True)]
        (path := tmp_path / "x.csv").write_text("\r\n".join(lines))
        cells = read(path)
        equal(cells)
        assert (cells.barcodes, cells.genes) == (BARCODES, SYMBOLS)
        path.write_text("\n".join(lines).replace(",", " "))
        equal(read(path))

    def test_repeated_and_missing_names(self, tmp_path):
        (path := tmp_path / "x.csv").write_text("gene,cell1,cell1,cell2\n007,1,2,3\n007,4,5,6\n,7,8,9\nNA,1,1,1\n")
        cells = read(path)
        assert cells.genes == ["007", "007-1", "gene 3", "NA"]
        assert cells.barcodes == ["cell1", "cell1-1", "cell2"]
        assert cells.X.toarray().T.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]]

    @pytest.mark.parametrize("genes_in_rows", [False, True])
    @pytest.mark.parametrize("delimiter", [",", "\t"])
    def test_names_that_look_like_missing_values(self, tmp_path, genes_in_rows, delimiter):
        names = ["nan", "NA", "NaN", "null", "None", "N/A"]
        table = pd.DataFrame(np.ones((6, 6), dtype=int), index=names, columns=names)
        table.to_csv(path := tmp_path / "x.csv", sep=delimiter)
        cells = read(path, orientation="genes-in-rows" if genes_in_rows else "cells-in-rows")
        assert (cells.barcodes, cells.genes, cells.notes) == (names, names, [])

    def test_unknown_classes(self, tmp_path):
        """In the table of counts, empty cells and NA are unknown; in a table of labels, only empty cells are."""
        lines = ["cell,ACTB,CD8A,kind", "AAACATAC-1,1,2,NA", "AAACGGTA-1,3,4,", "AACTTGCC-1,5,6,B", ""]
        (path := tmp_path / "x.csv").write_text("\n".join(lines))
        assert read(path, labels="kind").classes == [None, None, "B"]
        (tmp_path / "counts.csv").write_text("cell,ACTB,CD8A\nAAACATAC-1,1,2\nAAACGGTA-1,3,4\nAACTTGCC-1,5,6\n")
        assert read(tmp_path / "counts.csv", labels=f"{path}:kind").classes == ["NA", None, "B"]

    def test_no_names(self, tmp_path):
        np.savetxt(path := tmp_path / "x.csv", counts().toarray(), fmt="%d", delimiter=",")
        cells = read(path, orientation="cells-in-rows")
        equal(cells)
        assert cells.genes[0] == "gene 1"

    def test_labels_in_the_table(self, tmp_path):
        table = frame()
        table.insert(3, "kind", KINDS)
        table.to_csv(path := tmp_path / "x.csv")
        cells = read(path, labels="kind")
        equal(cells)
        assert (cells.classes, cells.genes) == (KINDS, SYMBOLS)
        table["kind"] = [None, *range(29)]
        table.to_csv(numbered := tmp_path / "numbers.csv")
        assert read(numbered, labels="kind").classes == [None, *map(str, range(29))]
        with pytest.raises(ValueError, match=r"column 'kind' holds 'B', which is not a number.* name it as the labels"):
            read(path)
        with pytest.raises(ValueError, match="give it in a table of its own"):
            read(path, labels="kind", orientation="genes-in-rows")
        with pytest.raises(ValueError, match="no layers"):
            read(path, layer="x")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is empty"),
            ("\n\n", "is empty"),
            ("gene,a,b\n", "no rows"),
            ("gene,a,b\nx,1,2\ny,1,2,3,4\n", "Expected 3 fields"),
            ("gene,a,b\nx,1\n", "first line has 3 entries, but the next one has 2"),
            ("gene,a,b\nx,1,two\n", "column 'b' holds 'two'"),
            ("hello\nworld\n", "no genes|no cells"),
        ],
    )
    def test_wrong_tables(self, tmp_path, text, message):
        (path := tmp_path / "x.csv").write_text(text)
        with pytest.raises(ValueError, match=message) as error:
            read(path)
        assert "x.csv" in str(error.value)

    def test_a_missing_entry_is_named(self, tmp_path):
        (path := tmp_path / "x.csv").write_text("gene,cell1,cell2,cell3\nACTB,1,2,3\nCD8A,1,2\n")
        with pytest.raises(ValueError, match=r"missing \(nan, cell 'cell3', gene 'CD8A'"):
            check_counts(read(path))


class TestNpz:
    def test_scipy(self, tmp_path):
        for X in (counts(np.int16), csc_array(counts()), coo_array(counts())):
            save_npz(path := tmp_path / "x.npz", X)
            equal(read(path))
        assert "cells in rows are assumed" in read(path).notes[0]
        assert read(path, orientation="genes-in-rows").X.shape == (20, 30)

    def test_with_names_and_classes(self, tmp_path):
        X = counts(np.uint8)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        y = np.array([["B", "NK", "T"].index(kind) for kind in KINDS])
        np.savez(path := tmp_path / "x.npz", **parts, y=y, classes=np.array(["B", "NK", "T"]), genes=np.array(SYMBOLS))
        for labels in ("y", "classes"):
            cells = read(path, labels=labels)
            equal(cells)
            assert (cells.genes, cells.classes) == (SYMBOLS, KINDS)
        np.savez(path, **parts, y=y + 1, classes=np.array(["B", "NK", "T"]))
        with pytest.raises(ValueError, match="outside of the 3 names"):
            read(path, labels="y")
        np.savez(path, **parts, genes=np.array(SYMBOLS[:3]))
        with pytest.raises(ValueError, match="3 names of genes for 20"):
            read(path)

    def test_characters_that_do_not_exist(self, tmp_path):
        X = counts(np.uint8)
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
        genes = np.full(20, 0x7FFFFFFF, dtype=np.uint32).view("U1")
        np.savez(path := tmp_path / "x.npz", **parts, genes=genes)
        with pytest.raises(ValueError, match="characters that do not exist"):
            read(path)

    def test_our_data(self):
        path = Path(DATA or ".", "cells", "zheng_facs10.npz")
        if not path.exists():
            pytest.skip("ONMF_DATA is not set or has no cells")
        cells = read(path, labels="y")
        assert cells.X.shape == (3774, 16791)
        assert len(set(cells.classes)) == 10
        assert check_counts(cells) == []


class TestLabelTables:
    @pytest.fixture
    def path(self, tmp_path):
        adata().write_h5ad(tmp_path / "cells.h5ad")
        return tmp_path / "cells.h5ad"

    def write(self, path, names, kinds=KINDS, **options):
        file = path.with_name("labels.csv")
        pd.DataFrame({"other": 1, "kind": kinds}, index=names).to_csv(file, **options)
        return f"{file}:kind"

    def test_joined_by_name(self, path):
        labels = self.write(path, BARCODES[::-1], KINDS[::-1])
        assert read(path, labels=labels).classes == KINDS
        labels = self.write(path, BARCODES[2:], KINDS[2:], sep="\t")
        cells = read(path, labels=labels)
        assert cells.classes == [None, None, *KINDS[2:]]
        assert "Cells without a label: 2 of 30." in cells.notes

    def test_barcodes_without_a_number(self, path):
        cells = read(path, labels=self.write(path, [name.removesuffix("-1") for name in BARCODES]))
        assert cells.classes == KINDS
        assert "matched without the number" in cells.notes[-1]

    def test_refused(self, path):
        with pytest.raises(ValueError, match=r"has none of the cells: .* such as 'x0', 'x1', …, the counts have 'AAAA"):
            read(path, labels=self.write(path, [f"x{i}" for i in range(30)]))
        with pytest.raises(ValueError, match="two different entries for 'a': 'B' and 'T'"):
            read(path, labels=self.write(path, ["a"] * 30))
        file = path.with_name("labels.csv")
        with pytest.raises(ValueError, match="no column 'nope', but '', 'other', 'kind'"):
            read(path, labels=f"{file}:nope")
        with pytest.raises(FileNotFoundError, match=r"missing.csv is not a file"):
            read(path, labels="missing.csv:kind")


class TestCounts:
    def normalised(self, X, total=10_000.0):
        X = X.astype(np.float64)
        return csr_array(X.multiply(total / X.sum(axis=1)[:, None]))

    def logarithms(self, X, function=np.log1p):
        X = X.copy()
        X.data = function(X.data)
        return X

    def test_whole_numbers_pass(self):
        for X in (counts(), counts(np.uint8), counts(int).toarray(), counts(np.float64), 100 * counts()):
            assert check_counts(X) == []

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_normalised_logarithms(self, dtype):
        X = self.logarithms(self.normalised(counts())).astype(dtype)
        with pytest.raises(ValueError, match=r"normalised to 10,000 and log-transformed .natural logarithm"):
            check_counts(X)
        with pytest.raises(
            ValueError, match=r"^adata.X holds no counts: .*Whole numbers are in the layer 'counts' and raw"
        ):
            check_counts(X.toarray(), place="adata.X", elsewhere=["counts", "raw"])
        wide = csr_array(np.random.default_rng(1).poisson(1.0, (40, 300)))
        with pytest.raises(ValueError, match="were normalised and log-transformed"):
            check_counts(self.logarithms(self.normalised(wide)).astype(dtype)[:, :100])

    @pytest.mark.parametrize(("function", "name"), [(np.log1p, "natural"), (lambda x: np.log2(x + 1), "base 2")])
    def test_logarithms_of_counts(self, function, name):
        with pytest.raises(ValueError, match=f"{name}.* of one plus a whole number"):
            check_counts(self.logarithms(counts(np.float32), function))

    def test_normalised(self):
        with pytest.raises(ValueError, match="cell were normalised to 10,000"):
            check_counts(self.normalised(counts()).astype(np.float32))
        with pytest.raises(ValueError, match="cell were normalised to 1"):
            check_counts(self.normalised(counts(), 1.0))
        wide = csr_array(np.random.default_rng(1).poisson(1.0, (40, 300)))
        with pytest.raises(ValueError, match="multiples of one number"):
            check_counts(self.normalised(wide, 1e6)[:, :100])

    def test_something_else_that_is_small(self):
        X = csr_array(np.random.default_rng(0).random((50, 30)))
        with pytest.raises(ValueError, match=r"the largest is .* look like logarithms"):
            check_counts(X)

    def test_negative_and_not_finite(self):
        X = counts(np.float32).toarray()
        for value, message in (
            (-2.5, r"negative \(-2.5, cell 3, gene 5\)"),
            (np.nan, "missing .* cell 3, gene 5"),
            (np.inf, r"infinite \(inf, cell 3, gene 5\)"),
        ):
            X[2, 4] = value
            with pytest.raises(ValueError, match=message):
                check_counts(X, rows=2)

    def test_all_zero(self):
        with pytest.raises(ValueError, match="has no counts: all entries of its 30 cells are zero"):
            check_counts(0 * counts())

    def test_estimated_counts_are_accepted(self):
        rng = np.random.default_rng(0)
        X = counts(np.float64)
        X.data += rng.random(X.nnz) * (rng.random(X.nnz) < 0.1)
        [note] = check_counts(X)
        assert note.startswith("Some counts are not whole (")
        [note] = check_counts(csr_array(40 * rng.random((50, 30))))
        assert "estimates of counts" in note

    def test_the_file_is_searched_for_counts(self, tmp_path):
        data = adata(self.logarithms(self.normalised(counts())).astype(np.float32))
        data.layers["counts"], data.layers["half"], data.layers["csc"] = counts(), counts() / 2, csc_array(counts())
        data.raw = adata(self.normalised(counts()))
        data.write_h5ad(path := tmp_path / "x.h5ad")
        with pytest.raises(
            ValueError,
            match=r"x.h5ad, X holds no counts: .*layer 'counts' and the layer 'csc': use one of these, such as "
            r"layer='counts' .--layer counts on the",
        ):
            check_counts(read(path))
        with pytest.raises(ValueError, match="raw/X holds no counts"):
            check_counts(read(path, layer="raw"))
        assert check_counts(read(path, layer="counts")) == []
        assert whole_layers_of(data) == ["counts", "csc"]
        assert whole_layers_of(data, "counts") == ["csc"]
        assert whole_layers_of(anndata.read_h5ad(path, backed="r")) == ["counts", "csc"]

    def test_a_loom_file_is_searched_for_counts(self, tmp_path):
        path = loom(tmp_path / "x.loom")
        with h5py.File(path, "r+") as file:
            file["matrix"][...] = np.log1p(file["matrix"][...])
        with pytest.raises(
            ValueError,
            match=r"the counts were log-transformed.* layer 'spliced': use layer='spliced' .--layer spliced on",
        ):
            check_counts(read(path))

    def test_dask(self):
        lazy = dask.array.from_array(counts().toarray(), chunks=(7, 20))
        assert check_counts(lazy) == []
        assert check_counts(lazy.map_blocks(csr_array), rows=7) == []


class TestOtherFiles:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.h5ad", b"not HDF5 at all\n", "no genes|no cells|cannot be read"),
            ("x.rds", gzip.compress(b"X\n\0\0\0\3", mtime=0), "file of R"),
            ("x.RData", gzip.compress(b"RDX3\nX\n", mtime=0), "file of R"),
            ("x.parquet", b"PAR1\0\0", "Parquet"),
            ("x.csv.bz2", b"BZh91AY", "bzip2"),
            ("x.h5ad.gz", gzip.compress(b"\x89HDF\r\n\x1a\n\0", mtime=0), "compressed with gzip: decompress it"),
            ("x.xlsx", b"PK\3\4\0\0", "unknown format"),
            ("x.bin", b"ab\0\1\2", "unknown format: expected .h5ad"),
            ("x.npz", b"PK\3\4\0\0", "cannot be read as npz"),
            ("x.csv.gz", gzip.compress(b"gene,a\nx,1\n", mtime=0)[:15], "damaged|empty"),
            ("x.h5", b"", "is empty"),
        ],
    )
    def test_refused(self, tmp_path, name, content, message):
        (path := tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message) as error:
            read(path)
        assert name in str(error.value)

    def test_other_hdf5(self, tmp_path):
        with h5py.File(path := tmp_path / "x.h5", "w") as file:
            file["a/b"], file["c"] = 1, np.ones(3)
        with pytest.raises(ValueError, match=r"neither an AnnData file, nor a loom file, .*: it holds 'a', 'c'"):
            read(path)

    @pytest.mark.parametrize("suffix", ["h5mu", "zarr"])
    def test_mudata(self, tmp_path, monkeypatch, suffix):
        """The lines of Python in the refusal do what they say."""
        monkeypatch.chdir(tmp_path)
        path = Path(f"x.{suffix}")
        file = h5py.File(path, "w") if suffix == "h5mu" else zarr.open_group(path, mode="w", zarr_format=2)
        for name in ("prot", "rna"):
            anndata.io.write_elem(file, f"mod/{name}", adata())
        file.store.close() if suffix == "zarr" else file.close()
        with pytest.raises(ValueError, match=r"MuData file with the modalities 'prot', 'rna'\. Save the one") as error:
            read(path)
        _, *lines = str(error.value).splitlines()
        assert len(lines) == 2
        exec("\n".join(lines))
        cells = read("rna.h5ad")
        equal(cells)
        assert cells.barcodes == BARCODES

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            read(tmp_path / "no.h5ad")

    def test_names_of_another_matrix(self, tmp_path):
        adata().write_h5ad(path := tmp_path / "x.h5ad")
        with h5py.File(path, "r+") as file:
            del file["obs/_index"]
            file["obs/_index"] = np.array(BARCODES[:9], dtype=object)
        with pytest.raises(ValueError, match=r"x\.h5ad has 9 names of cells for 30: it is damaged"):
            read(path)

    def test_a_file_that_claims_too_much(self, tmp_path):
        with h5py.File(path := tmp_path / "x.h5ad", "w") as file:
            file.create_dataset("X", shape=(10**6, 10**6), dtype="f4", chunks=(100, 100))
        with pytest.raises(ValueError, match=r"x\.h5ad.*(grows|chunks)"):
            read(path)
        with h5py.File(path, "w") as file:
            file.create_dataset("X", shape=(30_000, 30_000), dtype="f4", chunks=(1000, 1000))
        with pytest.raises(ValueError, match=r"x\.h5ad.*grows"):
            read(path)
        with h5py.File(path, "w") as file:
            file["X"] = np.ones((3, 3))
            file.create_dataset("obs/_index", shape=(2**40,), dtype=h5py.string_dtype(), chunks=(2**24,))
        with pytest.raises(ValueError, match=r"x\.h5ad"):
            read(path)


@pytest.mark.short("damage at many places, each with its message")
@pytest.mark.parametrize("name", [name for name in WRITERS if name != "cells.zarr2"])
def test_a_damaged_file_gives_a_sentence(tmp_path, name):
    """Truncated at every tenth, and with single bytes changed: it is read, or refused with its name."""
    path = tmp_path / name
    WRITERS[name](path)
    data, rng = path.read_bytes(), random.Random(0)
    cases = [data[: len(data) * tenth // 10] for tenth in range(10)]
    for _ in range(36):
        at = rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 2048))))
        cases.append(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
    messages = []
    for case in cases:
        path.write_bytes(case)
        try:
            cells = read(path, labels="kind" if path.suffix in (".h5ad", ".loom") else None)
            assert cells.X.shape == (len(cells.barcodes), len(cells.genes))
        except (ValueError, OSError) as error:
            messages.append(str(error))
    assert len(messages) >= 9
    assert [message for message in messages if name not in message or " " not in message] == []
