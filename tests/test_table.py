"""The door for any table of counts: every format, predict by names, and the command."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, save_npz

import onmf.table
from conftest import DATA, command
from onmf.table import read

FILES = Path(__file__).parent / "files"
TAXA = ["Lactobacillus", "Prevotella", "NA", "Bacteroides", "nan", "Streptococcus"]


@pytest.fixture(scope="module")
def frame():
    """Thirty samples of three kinds, with names that look like missing values."""
    rng = np.random.default_rng(0)
    means = np.array([[8, 1, 1, 0, 3, 0], [0, 6, 2, 9, 1, 0], [1, 0, 7, 0, 0, 5]])
    counts = pd.DataFrame([rng.poisson(means[i % 3]) for i in range(30)], columns=TAXA)
    counts.insert(0, "sample", [f"sample {i}" for i in range(30)])
    return counts.assign(site=[("stool", "skin", "mouth")[i % 3] for i in range(30)])


@pytest.fixture(scope="module")
def expected(frame):
    return frame[TAXA].to_numpy()


def long(frame):
    entries = frame.drop(columns="site").melt("sample", var_name="taxon", value_name="reads")
    return entries[entries.reads > 0]


def check(table, frame):
    """The table has the counts of the frame. A long one names rows and features in the order of its lines."""
    rows, columns = (
        [list(names).index(name) for name in wanted]
        for names, wanted in ((table.rows, frame["sample"]), (table.features, TAXA))
    )
    assert table.X.shape == (len(frame), len(TAXA))
    assert np.array_equal(table.X.toarray()[rows][:, columns], frame[TAXA].to_numpy())


@pytest.mark.parametrize("name", ["biom-format-2.1.18.biom", "biom-format-2.1.18.json"])
def test_biom_as_the_package_wrote_it(name, frame):
    table = read(FILES / name, labels="body_site")
    check(table, frame)
    assert table.classes == frame["site"].tolist()
    assert onmf.table.cluster(table, 3).comparison.ari == 1.0
    with pytest.raises(ValueError, match=r"has no column 'sex' for the labels of the rows: it has 'body_site'"):
        read(FILES / name, labels="sex")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
def test_wide(name, frame, tmp_path):
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    table = read(path, labels="site")
    check(table, frame)
    assert table.classes == frame["site"].tolist()
    assert onmf.table.cluster(table, 3).comparison.ari == 1.0


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_long(name, frame, tmp_path):
    path, entries = tmp_path / name, long(frame)
    entries.to_parquet(path) if name.endswith("parquet") else entries.to_csv(path, index=False)
    check(read(path, row="sample", column="taxon", count="reads"), frame)
    with pytest.raises(ValueError, match="has no column 'count': it has 'sample', 'taxon', 'reads'"):
        read(path, row="sample", column="taxon", count="count")
    with pytest.raises(ValueError, match="the column 'taxon' holds"):
        read(path, row="sample", column="taxon", count="taxon")


def test_edges(frame, tmp_path):
    """A line for each time that something was seen: every line counts 1."""
    entries = long(frame)
    seen = entries.loc[entries.index.repeat(entries.reads)]
    seen[["sample", "taxon"]].sample(frac=1, random_state=0).to_csv(tmp_path / "edges.csv", index=False)
    check(read(tmp_path / "edges.csv", row="sample", column="taxon"), frame)
    with pytest.raises(ValueError, match="A long table needs row and column"):
        read(tmp_path / "edges.csv", row="sample")


def test_rows_without_counts_are_unassigned_and_named(tmp_path):
    (tmp_path / "a.csv").write_text("who,lake,town\nann,9,0\nbob,0,0\ncid,0,7\ndan,8,1\n")
    found = onmf.table.cluster(read(tmp_path / "a.csv"), 2, quick=True)
    assert (found.labels < 0).tolist() == [False, True, False, False]
    assert "1 row without any counts, unassigned: bob." in found.notes
    assert found.unassigned == ["bob"]


def test_matrices(expected, tmp_path):
    save_npz(tmp_path / "a.npz", csr_array(expected))
    mmwrite(tmp_path / "a.mtx", csr_array(expected))
    for name in ("a.npz", "a.mtx"):
        table = read(tmp_path / name)
        assert np.array_equal(table.X.toarray(), expected)
        assert table.notes == [
            "The file has no names of rows: they are numbered.",
            "The file has no names of features: they are numbered.",
        ]
        assert np.array_equal(read(tmp_path / name, transpose=True).X.toarray(), expected.T)


def test_classes_in_a_table_of_their_own(frame, tmp_path):
    frame.drop(columns="site").to_csv(tmp_path / "counts.csv", index=False)
    frame[["sample", "site"]][:20].to_csv(tmp_path / "sites.csv", index=False)
    table = read(tmp_path / "counts.csv", labels=f"{tmp_path / 'sites.csv'}:site")
    assert table.classes == [*frame["site"][:20], *[None] * 10]
    assert table.notes[-1] == "Rows without a label: 10 of 30."


def test_predict_matches_features_by_name(frame, tmp_path):
    found = onmf.table.cluster(read(FILES / "biom-format-2.1.18.biom"), 3, quick=True)
    frame.assign(new=1)[["sample", "new", *reversed(TAXA[1:])]].to_csv(tmp_path / "new.csv", index=False)
    new = onmf.table.predict(found, read(tmp_path / "new.csv"))
    assert new.notes == ["1 of the model's 6 features are missing and count as 0: Lactobacillus."]
    assert np.mean(new.labels == found.labels) > 0.8
    assert onmf.table.predict(found, found.table).labels.tolist() == found.labels.tolist()
    (tmp_path / "other.csv").write_text("sample,a,b\nx,1,2\n")
    with pytest.raises(ValueError, match=r"has none of the model's 6 features. The model knows Lactobacillus"):
        onmf.table.predict(found, read(tmp_path / "other.csv"))


def test_no_row_is_lost_between_batches(frame, tmp_path, monkeypatch):
    """Rows are assigned and written in batches. One batch of all of them gives the same."""
    frame.to_csv(tmp_path / "a.csv", index=False)
    table = read(tmp_path / "a.csv", labels="site")
    found = onmf.table.cluster(table, 3, quick=True)
    whole = found.predict(table)
    found.save(tmp_path / "whole", report=False)
    for module in ("kind", "write"):
        monkeypatch.setattr(f"onmf.door.{module}.BATCH", 7)
    again = found.predict(table)
    for name in ("labels", "scales", "margins", "confidence", "runners_up"):
        assert np.array_equal(getattr(again, name), getattr(whole, name)), name
    found.save(tmp_path / "parts", report=False)
    texts = [(tmp_path / name / "assignments.csv").read_text("utf-8") for name in ("whole", "parts")]
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == 1 + len(frame)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{", r"cannot be read as BIOM 1.0 \(JSON\)"),
        ('{"rows": [{"id": "a"}], "columns": [], "data": [], "matrix_type": "sparse"}', "has no rows"),
        ("sample,a\nx,one\n", "'one', which is not a number"),
        ("sample,a,b\n", "no rows"),
    ],
)
def test_what_is_no_table(content, message, tmp_path):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.txt")


def test_parquet_with_two_columns_of_one_name(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = [pyarrow.array(["a", "b"]), pyarrow.array([1, 2]), pyarrow.array([3, 4])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, ["id", "x", "x"]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="two of its columns have the same name"):
        read(tmp_path / "t.parquet")


def test_places_in_biom_that_are_none(tmp_path):
    content = {"matrix_type": "sparse", "rows": [{"id": "t"}], "columns": [{"id": "s"}], "data": [[float("nan"), 0, 1]]}
    (tmp_path / "t.biom").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot be read as BIOM 1\.0"):
        read(tmp_path / "t.biom")


def test_other_hdf5_files_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = 1
    with pytest.raises((ValueError, KeyError), match=r"a\.h5"):
        read(tmp_path / "a.h5")


def test_the_command(tmp_path):
    out = tmp_path / "out"
    done = command("table", FILES / "biom-format-2.1.18.biom", "-k", 3, "--labels", "body_site", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "30 rows, 6 features, 3 clusters: a vote of 24 runs" in done.stdout
    assert "Compared with 3 classes (30 rows): ARI 1.000" in done.stdout
    names = {file.name for file in out.iterdir()}
    assert names == {"assignments.csv", "clusters.csv", "summary.json", "model.onmf", "report.html"}
    with (out / "assignments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:5] == ["id", "cluster", "name", "confidence", "runner_up"]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["kind"], summary["n_rows"], summary["n_features"]) == ("table", 30, 6)
    page = (out / "report.html").read_text()
    assert "Map of the rows" in page
    assert "document" not in page.split("<script")[0].lower().replace("document.", "")
    again = command("predict", out / "model.onmf", FILES / "biom-format-2.1.18.json", "--labels", "body_site")
    assert again.returncode == 0, again.stderr
    assert [row["cluster"] for row in csv.DictReader(again.stdout.splitlines())] == [row["cluster"] for row in rows]
    assert "Compared with 3 classes (30 rows): ARI 1.000" in again.stderr


@pytest.mark.skipif(DATA is None, reason="the microbiome is in $ONMF_DATA")
def test_a_microbiome():
    table = read(Path(DATA, "cells", "hmp_site18.npz"), labels="y")
    assert table.X.shape == (5684, 9342)
    found = onmf.table.cluster(table, 18, quick=True)
    assert found.comparison.n_rows == 5684
    assert found.comparison.ari > 0.2
