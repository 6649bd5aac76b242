"""The commands onmf cells, predict and show on cells, as a new user would try them."""

import csv
import gzip
import json
import os
import re

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_matrix, save_npz

import onmf
from conftest import command
from onmf.datasets import make_counts

WRITTEN = [
    *("assignments.csv", "cells.h5ad", "clusters.csv", "markers.csv", "model.onmf", "report.html", "summary.json")
]
GENES = [f"GENE{j}" for j in range(60)]


@pytest.fixture(scope="module")
def adata():
    """Made counts of 150 cells in 3 clusters, with classes, a layer, and things that a copy must keep."""
    made = make_counts(150, 60, 3, random_state=0)
    adata = anndata.AnnData(
        csr_matrix(made.X),
        obs=pd.DataFrame({"class": pd.Categorical([f"type {c}" for c in made.y])}, [f"CELL{i}-1" for i in range(150)]),
        var=pd.DataFrame({"chromosome": ["1"] * 60}, index=GENES),
    )
    adata.layers["spliced"] = adata.X.copy()
    adata.obsm["X_pca"] = np.zeros((150, 2))
    adata.uns["kept"] = {"text": "as it was"}
    return adata


@pytest.fixture
def file(adata, tmp_path):
    adata.write_h5ad(tmp_path / "cells.h5ad")
    return tmp_path / "cells.h5ad"


@pytest.fixture(scope="module")
def result(adata, tmp_path_factory):
    """A folder that the command wrote, with everything in it."""
    folder = tmp_path_factory.mktemp("cells")
    adata.write_h5ad(folder / "cells.h5ad")
    ran = command("cells", folder / "cells.h5ad", "-k", 3, "--labels", "class", "--out", folder / "out")
    assert ran.returncode == 0, ran.stderr
    return folder / "out", ran


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class TestFiles:
    def test_all_of_them_are_written(self, result):
        folder, ran = result
        assert sorted(path.name for path in folder.iterdir()) == WRITTEN
        assert "150 cells, 60 genes" in ran.stdout
        assert re.search(r"ARI (0.9|1.0)", ran.stdout)
        assert "GENE" in ran.stdout
        assert "warning" not in ran.stderr

    def test_assignments(self, result, adata):
        rows = table(result[0] / "assignments.csv")
        assert [row["id"] for row in rows] == adata.obs_names.tolist()
        assert [row["label"] for row in rows] == adata.obs["class"].tolist()
        assert {row["cluster"] for row in rows} == {"0", "1", "2"}
        assert all(row["runner_up"] != row["cluster"] for row in rows)
        assert all(0 <= float(row["confidence"]) <= 1 for row in rows)
        assert [float(row["counts"]) for row in rows] == adata.X.sum(axis=1).A1.tolist()

    def test_markers(self, result):
        rows = table(result[0] / "markers.csv")
        assert {row["cluster"] for row in rows} == {"0", "1", "2"}
        first = [row for row in rows if row["rank"] == "1"]
        assert all(float(row["effect"]) > 0 and float(row["log2_fold_change"]) > 0 for row in first)
        assert all(float(row["share_inside"]) >= float(row["share_outside"]) for row in first)
        assert "p_naive_adjusted" in rows[0]

    def test_the_copy_keeps_what_the_input_had(self, result, adata):
        written = anndata.read_h5ad(result[0] / "cells.h5ad")
        assert (written.X != adata.X).nnz == 0
        assert (written.layers["spliced"] != adata.X).nnz == 0
        assert written.obsm["X_pca"].shape == (150, 2)
        assert written.uns["kept"] == {"text": "as it was"}
        assert written.obs["class"].tolist() == adata.obs["class"].tolist()
        assert written.var["chromosome"].tolist() == ["1"] * 60
        rows = table(result[0] / "assignments.csv")
        assert written.obs["onmf"].tolist() == [row["cluster"] for row in rows]
        assert written.obsm["X_tsne"].shape == (150, 2)
        assert set(written.uns["onmf_markers"]["names"].dtype.names) == {"0", "1", "2"}

    def test_summary(self, result):
        summary = json.loads((result[0] / "summary.json").read_text())
        assert (summary["n_cells"], summary["n_genes"], len(summary["clusters"])) == (150, 60, 3)
        assert summary["n_genes_used"] == 60
        assert summary["comparison"]["ari"] > 0.9
        assert summary["selection"] is None, "the number was given"

    def test_the_report_names_cells_and_genes(self, result):
        page = (result[0] / "report.html").read_text()
        assert "Cells of cells.h5ad" in page
        assert "CELL17-1" in page
        assert "t-SNE" in page


class TestPredict:
    def test_the_same_cells_get_the_same_clusters(self, result, file, tmp_path):
        ran = command("predict", result[0] / "model.onmf", file, "--out", tmp_path / "new.csv")
        assert ran.returncode == 0, ran.stderr
        known = {row["id"]: row for row in table(result[0] / "assignments.csv")}
        for row in table(tmp_path / "new.csv"):
            assert row["cluster"] == known[row["id"]]["cluster"]
            assert float(row["confidence"]) == pytest.approx(float(known[row["id"]]["confidence"]), abs=2e-4)
            assert row["runner_up"] == known[row["id"]]["runner_up"]

    def test_a_file_that_knows_its_rows_takes_no_orientation(self, result, file):
        ran = command("predict", result[0] / "model.onmf", file, "--orientation", "genes-in-rows")
        assert ran.returncode == 2
        said = "cells.h5ad has a format that says what its rows are: leave out orientation"
        assert said in ran.stderr

    def test_a_note_if_most_genes_are_missing(self, result, adata, tmp_path):
        adata[:, :20].copy().write_h5ad(tmp_path / "few.h5ad")
        ran = command("predict", result[0] / "model.onmf", tmp_path / "few.h5ad")
        assert ran.returncode == 0, ran.stderr
        assert "Most genes of the model are missing" in ran.stderr
        assert "The file names its genes GENE0, GENE1, GENE2" in ran.stderr

    def test_genes_are_matched_by_name_and_missing_ones_named(self, result, adata, tmp_path):
        order = [7, *range(8, 60), 3]
        adata[:, order].copy().write_h5ad(tmp_path / "other.h5ad")
        ran = command("predict", result[0] / "model.onmf", tmp_path / "other.h5ad")
        assert ran.returncode == 0, ran.stderr
        assert "6 of the model's 60 genes are missing and count as 0: GENE0, GENE1, GENE2" in ran.stderr
        own = [row["cluster"] for row in csv.DictReader(ran.stdout.splitlines())]
        known = [row["cluster"] for row in table(result[0] / "assignments.csv")]
        assert np.mean(np.array(own) == known) > 0.95

    def test_cells_without_a_known_gene_have_no_cluster(self, result, adata, tmp_path):
        some = adata[:5].copy()
        some.X = csr_matrix(some.X.multiply(np.array([1, 1, 0, 1, 1])[:, None]))
        some.write_h5ad(tmp_path / "some.h5ad")
        ran = command("predict", result[0] / "model.onmf", tmp_path / "some.h5ad")
        assert "1 cell without any of the model's genes, unassigned: CELL2-1." in ran.stderr
        assert [row["cluster"] == "" for row in csv.DictReader(ran.stdout.splitlines())] == [False] * 2 + [True] + [
            False
        ] * 2

    def test_other_genes_are_refused(self, result, adata, tmp_path):
        other = adata.copy()
        other.var_names = [f"ENSG{j}" for j in range(60)]
        other.write_h5ad(tmp_path / "other.h5ad")
        ran = command("predict", result[0] / "model.onmf", tmp_path / "other.h5ad")
        assert ran.returncode == 2
        assert "has none of the model's 60 genes" in ran.stderr
        assert "ENSG0" in ran.stderr

    def test_show_speaks_of_genes(self, result):
        ran = command("show", result[0] / "model.onmf")
        assert "A model of cells: 3 clusters in 150 cells, described by 60 genes" in ran.stdout
        assert "distinctive genes" in ran.stdout

    def test_a_model_with_wrong_entries_is_refused(self, result, tmp_path):
        model = onmf.load(result[0] / "model.onmf")
        for name, value in (("view", "sqrt"), ("temperature", -1.0), ("genes", ["A"] * 60), ("names", ["one"])):
            with pytest.raises(ValueError, match=f"its part {name} is"):
                model.save(tmp_path / "bad.onmf", extra={**model.extra_, name: value})


class TestFormats:
    """Some formats through the whole command; test_cells_read.py reads all of them."""

    def check(self, path, tmp_path, *options):
        ran = command("cells", path, "-k", 3, "--quick", "--no-report", "--out", tmp_path / "out", *options)
        assert ran.returncode == 0, ran.stderr
        written = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad")
        assert written.shape == (150, 60)
        assert "onmf" in written.obs
        assert written.var_names.tolist() == GENES
        return ran

    def test_tenx_folder(self, adata, tmp_path):
        folder = tmp_path / "filtered_feature_bc_matrix"
        folder.mkdir()
        with gzip.open(folder / "matrix.mtx.gz", "wb") as file:
            mmwrite(file, adata.X.T.astype(int))
        lines = "".join(f"ENSG{j:011d}\t{name}\tGene Expression\n" for j, name in enumerate(GENES))
        with gzip.open(folder / "features.tsv.gz", "wt") as file:
            file.write(lines)
        with gzip.open(folder / "barcodes.tsv.gz", "wt") as file:
            file.write("".join(f"{name}\n" for name in adata.obs_names))
        self.check(folder, tmp_path, "--genes", 50)
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert (summary["n_genes"], summary["n_genes_used"]) == (60, 50)
        symbols = onmf.load(tmp_path / "out" / "model.onmf").extra_["symbols"]
        assert symbols[0] == "ENSG00000000000"  # cells named by either are matched

    @pytest.mark.parametrize("genes_in_rows", [True, False])
    def test_csv(self, adata, tmp_path, genes_in_rows):
        frame = adata.to_df().astype(int)
        (frame.T if genes_in_rows else frame).to_csv(tmp_path / "counts.csv.gz")
        self.check(tmp_path / "counts.csv.gz", tmp_path)

    def test_npz(self, adata, tmp_path):
        save_npz(tmp_path / "counts.npz", adata.X)
        ran = command("cells", tmp_path / "counts.npz", "-k", 3, "--quick", "--json")
        assert ran.returncode == 0, ran.stderr
        summary = json.loads(ran.stdout)
        assert summary["n_cells"] == 150
        assert "set orientation='genes-in-rows' (--orientation genes-in-rows on" in summary["notes"][0]

    def test_counts_on_disk(self, adata, tmp_path, file, monkeypatch):
        """A file that is larger than memory is read in batches, and its counts are copied."""
        monkeypatch.setattr("onmf.cells.matrix.LARGE", 0)
        self.check(file, tmp_path)
        written = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad")
        assert (written.X != adata.X).nnz == 0


class TestRefusals:
    def refused(self, *arguments):
        ran = command(*arguments)
        assert ran.returncode == 2
        assert "Traceback" not in ran.stderr
        return ran.stderr

    def test_logarithms_with_counts_elsewhere(self, adata, tmp_path):
        logs = adata.copy()
        logs.X.data = np.log1p(logs.X.data.astype(float))
        logs.write_h5ad(tmp_path / "logs.h5ad")
        said = self.refused("cells", tmp_path / "logs.h5ad", "-k", 3, "--out", tmp_path / "out")
        assert "holds no counts" in said
        assert "use layer='spliced' (--layer spliced on the command line)." in said
        assert not (tmp_path / "out").exists()
        assert command("cells", tmp_path / "logs.h5ad", "-k", 3, "--layer", "spliced", "--quick").returncode == 0

    def test_options(self, file, tmp_path):
        assert "--genes few is not a number" in self.refused("cells", file, "-k", 3, "--genes", "few")
        assert "--quick means one" in self.refused("cells", file, "-k", 3, "--quick", "--n-init", 4)
        assert "view='roots'" in self.refused("cells", file, "-k", 3, "--view", "roots")
        assert "min_genes=61 leaves no cells" in self.refused("cells", file, "-k", 3, "--min-genes", 61)
        assert "'nope'" in self.refused("cells", file, "-k", 3, "--labels", "nope")
        assert "'nope'" in self.refused("cells", file, "-k", 3, "--layer", "nope")

    @pytest.mark.parametrize("content", [b"", b"not a file of cells", b"\x89HDF\r\n\x1a\n" + bytes(100)])
    def test_damaged_files(self, tmp_path, content):
        (tmp_path / "bad.h5ad").write_bytes(content)
        self.refused("cells", tmp_path / "bad.h5ad", "-k", 3, "--out", tmp_path / "out")
        assert os.listdir(tmp_path) == ["bad.h5ad"]


class TestCopy:
    """The copy of a stranger's AnnData file."""

    def test_a_link_is_not_followed(self, file, tmp_path):
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other.create_group("uns")
        with h5py.File(file, "r+") as h5:
            del h5["uns"]
            h5["uns"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "uns")
        before = (tmp_path / "other.h5").read_bytes()
        ran = command("cells", file, "-k", 3, "--quick", "--no-report", "--out", tmp_path / "out")
        assert ran.returncode == 2
        assert "uns is a link" in ran.stderr
        assert (tmp_path / "other.h5").read_bytes() == before
        assert not (tmp_path / "out").exists()

    def test_tables_of_old_files_are_written_anew(self, adata, tmp_path):
        """Before AnnData 0.7, obs and var were single arrays, to which no column can be added."""
        adata.write_h5ad(tmp_path / "old.h5ad")
        with h5py.File(tmp_path / "old.h5ad", "r+") as h5:
            for name, names in (("obs", adata.obs_names), ("var", adata.var_names)):
                del h5[name]
                h5[name] = np.array([(text.encode(),) for text in names], dtype=[("index", "S20")])
        ran = command("cells", tmp_path / "old.h5ad", "-k", 3, "--quick", "--no-report", "--out", tmp_path / "out")
        assert ran.returncode == 0, ran.stderr
        written = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad")
        assert written.obs_names.tolist() == adata.obs_names.tolist()
        assert "onmf" in written.obs

    def test_results_on_raw_leave_out_what_belongs_to_other_genes(self, adata, tmp_path):
        raw = adata[:, :40].copy()
        raw.raw = adata
        raw.X.data = np.log1p(raw.X.data.astype(float))
        raw.write_h5ad(tmp_path / "raw.h5ad")
        ran = command(
            "cells",
            tmp_path / "raw.h5ad",
            "-k",
            3,
            "--layer",
            "raw",
            "--quick",
            "--no-report",
            "--out",
            tmp_path / "out",
        )
        assert ran.returncode == 0, ran.stderr
        written = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad")
        assert "onmf" in written.obs
        assert "onmf" not in written.varm


def test_auto_chooses_a_number_and_shows_how(file, tmp_path):
    ran = command("cells", file, "-k", "auto", "--quick", "--no-report", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(summary["clusters"]) == 3
    choice = summary["selection"]
    assert (choice["n_clusters"], choice["n_rows"]) == (3, 150)
    tried = [row["n_clusters"] for row in choice["tried"]]
    assert tried == list(range(2, 16))
    assert "3 clusters were chosen of 2 to 15: halves of the cells agree on them to 0.9" in ran.stdout
    assert [row["n_clusters"] for row in choice["tried"] if row["level"] == "medium"] == [3]
    kept = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad").uns["onmf"]["selection"]
    assert kept["n_clusters"].tolist() == tried
    for column in ("agreement", "chance"):
        assert kept[column].tolist() == [row[column] for row in choice["tried"]]
    assert kept["level"].tolist() == [row["level"] for row in choice["tried"]]
    assert "medium" in kept["level"]


def test_help_names_every_format():
    said = command("cells", "--help").stdout
    assert all(name in said for name in (".h5ad", ".loom", "10x", "csv", "--layer", "--labels", "--genes"))
