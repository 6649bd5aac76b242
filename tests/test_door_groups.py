"""Groups at the doors: columns and several files, what results and files say of them, and new rows."""

import csv
import json
import re
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, csr_matrix
from sklearn.metrics import adjusted_rand_score

import onmf
import onmf.cells
import onmf.table
import onmf.text
from conftest import DATA, command
from onmf import ONMF, select_n_clusters
from onmf.cells.files import Cells
from onmf.cells.matrix import OnDisk
from onmf.datasets import make_counts
from onmf.datasets.pieces import open_matrix, open_store
from onmf.door.join import Stacked, names_of_files

N, P, K = 240, 60, 3
LABS = ["Bern", "Oslo"]


def made(n=N, p=P, k=K, sd=1.0, seed=0, **options):
    """Counts of k classes in two labs, each of which multiplies every feature. → counts, classes, labs"""
    rng = np.random.default_rng(seed)
    found = make_counts(n, p, k, length=400, random_state=seed, **options)
    labs = rng.choice(LABS, n)
    factors = {lab: np.exp(sd * rng.standard_normal(p)) for lab in LABS}
    X = rng.poisson(found.X.toarray() * np.stack([factors[lab] for lab in labs]))
    return X, found.y, labs


@pytest.fixture(scope="module")
def frame():
    X, y, labs = made()
    counts = pd.DataFrame(X, columns=[f"f{j}" for j in range(P)])
    counts.insert(0, "who", [f"r{i}" for i in range(N)])
    return counts.assign(kind=[f"kind {label}" for label in y], lab=labs)


@pytest.fixture(scope="module")
def adata(frame):
    obs = frame[["kind", "lab"]].set_index(frame["who"].rename(None))
    return anndata.AnnData(csr_matrix(frame.iloc[:, 1:-2].to_numpy()), obs, pd.DataFrame(index=frame.columns[1:-2]))


@pytest.fixture(scope="module")
def found(frame, tmp_path_factory):
    """The clusters of a table with groups."""
    path = tmp_path_factory.mktemp("groups") / "counts.csv"
    frame.to_csv(path, index=False)
    return onmf.table.cluster(onmf.table.read(path, labels="kind", groups="lab"), K)


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Reading.


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "long.csv", "own.csv"])
def test_groups_in_a_column(name, frame, tmp_path):
    path, options = tmp_path / name, {}
    groups = "lab"
    if name == "a.parquet":
        frame.to_parquet(path)
    elif name == "long.csv":
        entries = frame.melt(["who", "kind", "lab"], var_name="what", value_name="n")
        entries[entries.n > 0].to_csv(path, index=False)
        options = {"row": "who", "column": "what", "count": "n"}
    elif name == "own.csv":
        frame.drop(columns=["kind", "lab"]).to_csv(path, index=False)
        frame[["who", "kind", "lab"]].to_csv(tmp_path / "about.csv", index=False)
        groups = f"{tmp_path / 'about.csv'}:lab"
    else:
        frame.to_csv(path, index=False)
    labels = "kind" if name != "own.csv" else f"{tmp_path / 'about.csv'}:kind"
    table = onmf.table.read(path, labels=labels, groups=groups, **options)
    at = [table.rows.index(who) for who in frame["who"]]
    assert [table.groups[i] for i in at] == frame["lab"].tolist()
    assert [table.classes[i] for i in at] == frame["kind"].tolist()
    assert sorted(table.features) == sorted(frame.columns[1:-2])


@pytest.mark.parametrize("hole", ["", None, np.nan])
def test_rows_without_a_group_are_refused_alike(hole, frame, adata, tmp_path, monkeypatch):
    """In tables, cells and documents, whatever the format says instead."""
    monkeypatch.chdir(tmp_path)
    labs = pd.Series([*frame["lab"][2:], hole, hole], dtype=object)
    table = frame.drop(columns="kind").assign(lab=labs)
    entries = table.melt(["who", "lab"], var_name="what", value_name="n")
    texts = pd.DataFrame({"text": [f"tea cup {i}" for i in range(N)], "lab": labs})
    cells = anndata.AnnData(adata.X, pd.DataFrame({"lab": labs.tolist()}, adata.obs_names), adata.var)
    for name, each in (("a", table), ("long", entries), ("texts", texts)):
        each.to_csv(f"{name}.csv", index=False)
        each.to_parquet(f"{name}.parquet")
    asked = []
    for end in (".csv", ".parquet"):
        asked.append(lambda end=end: onmf.table.cluster(onmf.table.read(f"a{end}", groups="lab"), K))
        long = {"row": "who", "column": "what", "count": "n", "groups": "lab"}
        asked.append(lambda end=end, long=long: onmf.table.cluster(onmf.table.read(f"long{end}", **long), K))
        asked.append(lambda end=end: onmf.text.cluster(onmf.text.read(f"texts{end}", groups="lab"), K))
    asked.append(lambda: onmf.text.cluster(onmf.text.read(texts, groups="lab"), K))
    asked.append(lambda: onmf.cells.cluster(cells, K, groups="lab"))
    for cluster in asked:
        with pytest.raises(ValueError, match=r"2 \w+ of 240 without a group, such as .*: give every one a group"):
            cluster()
    ran = command("documents", "texts.csv", "-k", K, "--group", "lab")
    assert ran.returncode == 2
    assert "2 documents of 240 without a group" in ran.stderr


def test_a_column_may_be_both_class_and_group(frame, tmp_path):
    frame.drop(columns="kind").to_csv(tmp_path / "a.csv", index=False)
    table = onmf.table.read(tmp_path / "a.csv", labels="lab", groups="lab")
    assert table.classes == table.groups == frame["lab"].tolist()


@pytest.mark.parametrize("end", [".csv", ".parquet"])
def test_a_column_that_is_not_there(end, frame, tmp_path):
    """It is named, and not the column of texts that nobody asked for."""
    path = tmp_path / f"a{end}"
    frame.to_csv(path, index=False) if end == ".csv" else frame.to_parquet(path)
    for read in (onmf.table.read, onmf.cells.read)[: 1 + (end == ".csv")]:
        with pytest.raises(ValueError, match=r"has no column 'nope': it has .*'f1'"):
            read(path, groups="nope")
    ran = command("table", path, "-k", K, "--group", "nope")
    assert ran.returncode == 2
    assert "has no column 'nope'" in ran.stderr


def test_a_long_table_whose_rows_have_two_groups(tmp_path):
    (tmp_path / "a.csv").write_text("who,what,lab\nann,x,Bern\nann,y,Oslo\nbob,x,Oslo\n")
    with pytest.raises(ValueError, match="has 'Bern', 'Oslo' in the column 'lab' for 'ann': a row needs one value"):
        onmf.table.read(tmp_path / "a.csv", row="who", column="what", groups="lab")


def test_groups_of_cells(adata, tmp_path):
    adata.write_h5ad(tmp_path / "a.h5ad")
    adata.obs[["lab"]].to_csv(tmp_path / "labs.csv")
    (tmp_path / "a").mkdir()
    mmwrite(tmp_path / "a" / "matrix.mtx", adata.X.T)
    (tmp_path / "a" / "barcodes.tsv").write_text("\n".join(adata.obs_names) + "\n")
    (tmp_path / "a" / "features.tsv").write_text("\n".join(adata.var_names) + "\n")
    for name, groups in (("a.h5ad", "lab"), ("a", f"{tmp_path / 'labs.csv'}:lab")):
        cells = onmf.cells.read(tmp_path / name, groups=groups)
        assert cells.groups == adata.obs["lab"].tolist()
    with pytest.raises(ValueError, match="has no column 'donor' for the groups of the cells: it has 'kind', 'lab'"):
        onmf.cells.read(tmp_path / "a.h5ad", groups="donor")


def test_documents_by_column_and_folder(tmp_path):
    words = {"x": "tea cup", "y": "milk cow"}
    table = pd.DataFrame({"text": list(words.values()), "paper": ["Post", None]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv", tmp_path / "a.jsonl", tmp_path / "a.parquet", table):
        groups = [document.group for document in onmf.text.read(source, groups="paper")]
        assert groups in (["Post", None], ["Post", ""])
    for folder, text in words.items():
        (tmp_path / "texts" / folder).mkdir(parents=True)
        (tmp_path / "texts" / folder / "1.txt").write_text(text)
    texts = list(onmf.text.read(tmp_path / "texts", groups="folder"))
    assert [(text.label, text.group) for text in texts] == [(None, "x"), (None, "y")]
    with pytest.raises(ValueError, match="Use groups='folder' for the names of the folders"):
        onmf.text.read(tmp_path / "texts", groups="paper")


# Several files.


def test_files_are_called_by_what_tells_them_apart():
    assert names_of_files(["a/one.h5ad", "b/two.h5ad"]) == ["one", "two"]
    assert names_of_files(["s1/outs/x.h5", "s2/outs/x.h5"]) == ["s1/outs/x", "s2/outs/x"]
    assert names_of_files(["a/x.csv", "a/x.tsv"]) == ["x.csv", "x.tsv"]
    with pytest.raises(ValueError, match=r"x\.csv is named twice"):
        names_of_files(["x.csv", "y.csv", "x.csv"])


def test_several_files_are_groups_and_features_are_matched_by_name(frame, tmp_path):
    one, two = frame[:100].drop(columns="lab"), frame[100:].drop(columns="lab")
    one.drop(columns="f3").to_csv(tmp_path / "one.csv", index=False)
    two[["who", "kind", *two.columns[:0:-1].drop("kind")]].assign(new=1).to_csv(tmp_path / "two.csv", index=False)
    table = onmf.table.read([tmp_path / "one.csv", tmp_path / "two.csv"], labels="kind")
    assert table.groups == ["one"] * 100 + ["two"] * (N - 100)
    assert table.classes == frame["kind"].tolist()
    assert table.rows == frame["who"].tolist()
    assert table.features == [f"f{j}" for j in range(P) if j != 3]
    assert np.array_equal(table.X.toarray(), frame[table.features].to_numpy())
    assert table.name == "one.csv, two.csv"
    assert table.notes == ["2 of the 61 features of two are not in every file and are left out: f3, new."]
    own = onmf.table.read([tmp_path / "one.csv", tmp_path / "two.csv"], groups="kind")
    assert own.groups == frame["kind"].tolist(), "groups of their own"


def test_equal_names_of_rows_get_that_of_their_file(frame, tmp_path):
    for name in ("a", "b"):
        frame[:5].to_csv(tmp_path / f"{name}.csv", index=False)
    table = onmf.table.read([tmp_path / "a.csv", tmp_path / "b.csv"], labels="kind", groups="lab")
    assert table.rows == [f"r{i}-{name}" for name in "ab" for i in range(5)]
    (tmp_path / "c.csv").write_text("who,x,lab\nann,1,Bern\n")
    frame.drop(columns="kind").to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"a and c have no feature in common: a has f0, f1, f2 and 57 more, c has x\."):
        onmf.table.read([tmp_path / "a.csv", tmp_path / "c.csv"], groups="lab")


def test_cells_on_disk_and_in_memory_are_joined_alike(adata, tmp_path):
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    adata[:90].copy().write_h5ad(paths[0])
    adata[90:, ::-1].copy().write_h5ad(paths[1])
    joined = onmf.cells.read(paths, labels="kind")
    assert isinstance(joined, Cells)
    assert np.array_equal(joined.X.toarray(), adata.X.toarray())
    stores = [OnDisk(open_matrix(open_store("hdf5", path), "X")) for path in paths]
    stacked = Stacked(stores, [np.arange(P), np.arange(P)[::-1]])
    assert stacked.shape == (N, P)
    for start, stop in ((0, N), (80, 100), (90, 91), (239, 500), (5, 5)):
        assert np.array_equal(stacked[start:stop].toarray(), adata.X[start:stop].toarray())
    lazily = onmf.cells.cluster(Cells(stacked, joined.rows, joined.features, groups=joined.groups), K)
    assert np.array_equal(lazily.labels, onmf.cells.cluster(joined, K).labels)


def test_genes_are_matched_by_symbols_or_identifiers(adata):
    from onmf.door.join import join_tables

    ids = [f"ENSG{j:011}" for j in range(P)]
    one = Cells(csr_array(adata.X[:100]), [f"a{i}" for i in range(100)], ids, symbols=list(adata.var_names))
    two = Cells(csr_array(adata.X[100:]), [f"b{i}" for i in range(N - 100)], list(adata.var_names))
    joined = join_tables([one, two], ["one", "two"], "gene")
    assert (joined.features, joined.symbols) == (ids, list(adata.var_names))
    assert np.array_equal(joined.X.toarray(), adata.X.toarray())


# Results.


def test_clusters_do_not_follow_the_groups(found, frame):
    plain = onmf.table.cluster(found.table.__class__(found.table.X, found.table.rows, found.table.features), K)
    assert adjusted_rand_score(frame["kind"], plain.labels) < 0.8
    assert found.comparison.ari > 0.95
    assert found.how == "the best of 10 random starts and of clusters without groups, with 2 groups"
    assert found.groups == LABS
    expected = pd.crosstab(found.labels, np.array(found.table.groups)).to_numpy()
    assert np.array_equal(found.composition, expected)
    assert np.isfinite(found.confidence).all()
    assert found.moved_without_smoothing is None


def test_features_of_groups(found):
    model = found.model
    tops = found.group_features(P)
    q = model.clustering_.masses @ model.cluster_centers_
    q /= q.sum()
    for b, lab in enumerate(LABS):
        s = model.group_effects_[b]
        assert list(tops[lab].values()) == [s[found.features.index(name)] for name in tops[lab]]
        weights = [q[j] * (s[j] * np.log(s[j]) - s[j] + 1) for j in (found.features.index(name) for name in tops[lab])]
        assert weights == sorted(weights, reverse=True)


def test_the_files(found, tmp_path):
    found.save(tmp_path / "out", report=False)
    composition = rows_of(tmp_path / "out" / "composition.csv")
    assert [int(row["size"]) for row in composition] == found.composition.ravel().tolist()
    for key, by in (("share_of_cluster", "cluster"), ("share_of_group", "group")):
        sums = pd.DataFrame(composition).astype({key: float}).groupby(by)[key].sum()
        assert np.allclose(sums, 1, atol=1e-5)
    features = rows_of(tmp_path / "out" / "group_features.csv")
    assert [row["feature"] for row in features[:3]] == list(found.group_features(3)["Bern"])
    assert {row["group"] for row in rows_of(tmp_path / "out" / "assignments.csv")} == set(LABS)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["groups"] == LABS
    with pytest.raises(FileExistsError):
        found.save(tmp_path / "out", report=False)
    found.save(tmp_path / "out", report=False, force=True)


def test_the_report_of_many_groups(found, tmp_path):
    """They are rows of the table; the features are those of the groups that differ most."""
    table, many = found.table, [f"{lab} {i % 20}" for i, lab in enumerate(found.table.groups)]
    again = onmf.table.cluster(table.__class__(table.X, table.rows, table.features, groups=many), K, quick=True)
    again.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    shown = page[page.index('id="group-table"') : page.index("What each group has more and less of")]
    assert shown.count('<th scope="row"') == len(again.groups) > 30
    assert shown.count('<th scope="col"') == K
    for b in np.flatnonzero(again.composition.sum(axis=0)):
        row = shown[shown.index(f">{again.groups[b]}</th>") :]
        counts = re.findall(r">([\d,]+)</td>", row[: row.index("</tr>")])
        assert list(map(int, counts)) == again.composition[:, b].tolist()
    section = page[page.index("What each group has more and less of") :]
    assert section[: section.index("</section>")].count('<div class="card">') == 12
    assert (
        f"The 12 groups that differ most are shown; group_features.csv has the other {len(again.groups) - 12}" in page
    )


def test_factors_that_round_to_one_are_not_in_the_report(tmp_path):
    X = np.random.default_rng(0).poisson(np.repeat([[90, 40, 60], [20, 80, 60]], 200, axis=0))
    rows, groups = [f"r{i}" for i in range(400)], ["a", "b"] * 200
    found = onmf.table.cluster(onmf.door.Table(csr_array(X), rows, ["x", "y", "z"], groups=groups), 2, quick=True)
    found.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "× 1<" not in page
    assert page.count("All factors are about 1.") == 2


def test_new_rows(found, tmp_path):
    table = found.table
    again = found.predict(table)
    for name in ("labels", "scales", "margins", "confidence", "runners_up"):
        assert np.allclose(getattr(again, name), getattr(found, name)), name
    assert again.composition.tolist() == found.composition.tolist()
    found.save(tmp_path / "out", report=False)
    model = onmf.load(tmp_path / "out" / "model.onmf")
    assert np.array_equal(onmf.table.predict(model, table).labels, found.labels)

    def new(groups=None, source=""):
        return table.__class__(table.X, table.rows, table.features, groups=groups, source=source)

    without = onmf.table.predict(model, new())
    assert without.notes[0].startswith("The model has factors for the groups Bern, Oslo, and the new rows have no")
    assert without.composition.sum() == 0
    named = onmf.table.predict(model, new(source="somewhere/Bern.csv"))
    assert named.notes == ["All rows are taken as the group Bern, as their file is called."]
    assert named.composition[:, 1].sum() == 0 < named.composition[:, 0].sum()
    kyiv = ["Kyiv" if lab == "Oslo" else lab for lab in table.groups]
    ignored = onmf.table.predict(model, new(kyiv))
    assert ignored.notes[0].startswith("The model does not know the group Kyiv: the factors are 1. Estimate them")
    estimated = onmf.table.predict(model, new(kyiv), estimate_groups=True)
    assert estimated.groups == [*LABS, "Kyiv"]
    assert model.groups_.tolist() == LABS, "the model stays as it was"
    assert estimated.comparison is None
    assert np.array_equal(estimated.labels, found.labels)
    assert np.abs(estimated.margins - found.margins).max() < 0.5 * np.abs(ignored.margins - found.margins).max()
    holes = new([None, "", *kyiv[2:]])
    lacking, strange = onmf.table.predict(model, holes).notes
    assert lacking == "2 rows of 240 without a group, such as r0: the factors are 1. Give every one a group."
    assert strange.startswith("The model does not know the group Kyiv: the factors are 1.")
    assert onmf.table.predict(model, holes, estimate_groups=True).notes == [lacking], "no advice that was followed"
    zeros = new(["Nuuk", *table.groups[1:]])
    zeros.X = csr_array(np.where(np.arange(N)[:, None] == 0, 0, table.X.toarray()))
    with pytest.warns(UserWarning, match="1 of 1 rows of X are zero everywhere"):
        assert not any("Nuuk" in note for note in onmf.table.predict(model, zeros, estimate_groups=True).notes)
    plain = onmf.table.cluster(new(), K, quick=True)
    with pytest.raises(ValueError, match="The model has no groups, so there are no factors to estimate"):
        plain.predict(table, estimate_groups=True)


def test_a_new_file_is_a_new_group(frame, adata, tmp_path):
    """Of a model that was made from several files, as a scene is of one made from several images."""
    labs = {lab: tmp_path / f"{lab}.csv" for lab in LABS}
    for lab, path in labs.items():
        frame[frame["lab"] == lab].drop(columns=["kind", "lab"]).to_csv(path, index=False)
        adata[adata.obs["lab"] == lab].copy().write_h5ad(path.with_suffix(".h5ad"))
    for kind, end in ((onmf.table, ".csv"), (onmf.cells, ".h5ad")):
        paths = [path.with_suffix(end) for path in labs.values()]
        model = kind.cluster(kind.read(paths), K).model
        own = kind.predict(model, kind.read(paths[0]), estimate_groups=True)
        assert own.notes == ["All rows are taken as the group Bern, as their file is called."], "nothing to estimate"
        new = paths[0].rename(tmp_path / f"Kyiv{end}")
        (without,) = kind.predict(model, kind.read(new)).notes
        assert without.endswith(
            "or estimate the factors of the file (--estimate-groups, in Python estimate_groups=True)."
        )
        found = kind.predict(model, kind.read(new), estimate_groups=True)
        assert found.groups == [*LABS, "Kyiv"]
        assert found.notes == ["All rows are taken as the group Kyiv, as their file is called."]
        assert adjusted_rand_score(found.labels, own.labels) > 0.95
        model.save(tmp_path / f"{end}.onmf")
        ran = command(
            "predict", tmp_path / f"{end}.onmf", new, "--estimate-groups", "--out", tmp_path / f"{end}-new.csv"
        )
        assert ran.returncode == 0, ran.stderr
        assert "All rows are taken as the group Kyiv" in ran.stderr
    table = kind.read(new)
    table.source = ""
    with pytest.raises(ValueError, match="Estimating the factors of new groups needs groups: name their column"):
        kind.predict(model, table, estimate_groups=True)


def test_what_is_refused(found):
    def cluster(groups, **options):
        table = found.table
        return onmf.table.cluster(table.__class__(table.X, table.rows, table.features, groups=groups), K, **options)

    groups = found.table.groups
    with pytest.raises(ValueError, match="2 rows of 240 without a group, such as r0: give every one a group"):
        cluster([None, None, *groups[2:]])
    with pytest.raises(
        ValueError, match=r"240 of the 240 groups have a single row, such as 0, 1, 10, 100, 101 and 235"
    ):
        cluster([str(i) for i in range(N)])
    with pytest.raises(ValueError, match="refine='local-search' cannot be combined with groups"):
        cluster(groups, refine="local-search")
    with pytest.raises(ValueError, match="groups= is for Kullback–Leibler, and beta_loss is frobenius"):
        cluster(groups, beta_loss="frobenius")
    with pytest.raises(ValueError, match="init='snpa' begins from clusters that belong to one group each"):
        cluster(groups, init="snpa")
    one = cluster(["Bern"] * N)
    assert "All rows are of one group, Bern: there is nothing to tell apart." in one.notes
    assert np.array_equal(one.labels, cluster(None).labels)


def test_parameters_of_the_fit(found):
    quick = onmf.table.cluster(found.table, K, quick=True)
    assert quick.how == "the best of 1 random start and of clusters without groups, with 2 groups"
    assert quick.model.n_init == 1
    ten = onmf.table.cluster(found.table, K, init="random-partition")
    assert ten.how == "the best of 10 runs with 2 groups"
    expected = ONMF(K, random_state=0).fit(found.table.X, groups=found.table.groups)
    assert ten.model.reconstruction_err_ == expected.reconstruction_err_


def test_texts_begin_from_clusters_without_groups():
    """Random partitions are a poor start for texts: the clusters without groups end at a lower objective."""
    docs = onmf.datasets.load_docstrings()
    groups = np.array(["a", "b"])[np.random.default_rng(0).integers(2, size=len(docs.y))].tolist()
    table = onmf.door.Table(docs.X, [str(i) for i in range(len(docs.y))], list(docs.words), groups=groups)
    found = onmf.table.cluster(table, 13)
    alone = ONMF(13, random_state=0).fit(docs.X, groups=groups)
    assert found.model.reconstruction_err_ < 0.95 * alone.reconstruction_err_
    assert np.isfinite(found.confidence).all()
    assert np.median(found.confidence) > 0.5


def test_clusters_of_single_groups_are_noted():
    rng = np.random.default_rng(0)
    X = np.zeros((80, 20), dtype=int)
    X[:40, :10], X[40:, 10:] = rng.poisson(9, (40, 10)), rng.poisson(9, (40, 10))
    table = onmf.door.Table(
        X, [f"r{i}" for i in range(80)], [f"f{j}" for j in range(20)], groups=["a"] * 40 + ["b"] * 40
    )
    table.X = csr_array(X)
    found = onmf.table.cluster(table, 2)
    assert any(note.startswith("The clusters of some groups hold no rows of the others (a; b)") for note in found.notes)


def test_documents(tmp_path):
    X, y, labs = made(p=40)
    texts = [
        onmf.text.Text(
            str(i), " ".join(f"word{chr(97 + j // 26)}{chr(97 + j % 26)} " * x for j, x in enumerate(row)), None
        )
        for i, row in enumerate(X)
    ]
    found = onmf.text.cluster([text._replace(group=lab) for text, lab in zip(texts, labs, strict=True)], K)
    assert adjusted_rand_score(y, found.labels) > 0.95
    assert found.composition.sum() == N
    assert np.array_equal(found.predict([texts[0]._replace(group=labs[0])]).labels, found.labels[:1])
    found.save(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'id="groups"' in page
    assert "word" in next(iter(found.group_features(1)["Bern"]))


# Cells.


@pytest.fixture(scope="module")
def cells(adata):
    return onmf.cells.cluster(adata.copy(), K, groups="lab")


def test_results_in_the_object(adata):
    adata = adata.copy()
    found = onmf.cells.cluster(adata, K, groups="lab", corrected=True)
    assert adjusted_rand_score(adata.obs["kind"], adata.obs["onmf"]) > 0.95
    about = adata.uns["onmf"]["groups"]
    assert about["names"].tolist() == LABS
    assert np.array_equal(about["composition"], found.composition)
    effects = adata.varm["onmf_group_effects"]
    assert effects.shape == (P, 2)
    assert np.array_equal(effects.T, found.by_group.effects)
    corrected = adata.layers["onmf_corrected"].toarray()
    codes = (adata.obs["lab"] == "Oslo").to_numpy().astype(int)
    assert np.allclose(corrected, adata.X.toarray() / effects.T[codes], rtol=1e-6)
    assert np.array_equal(onmf.cells.cluster(adata, K, groups=adata.obs["lab"].tolist()).labels, found.labels)


def test_multipliers_of_all_genes_are_those_of_the_model_where_it_has_them(cells):
    """The model's are fitted to the same sums, if it has all genes."""
    assert len(cells.genes) == P
    assert cells.by_group.effects == pytest.approx(cells.model.group_effects_, rel=1e-4)


def test_the_report_says_how_cells_with_groups_were_clustered(cells, adata, tmp_path):
    cells.report(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    assert "by orthogonal nonnegative matrix factorization. The map" in page, "there is no local search with groups"
    onmf.cells.cluster(adata.copy(), K).report(tmp_path / "b.html")
    assert "factorization with local search. The map" in (tmp_path / "b.html").read_text("utf-8")


def test_genes_are_chosen_within_groups(adata):
    """A gene that only tells the groups apart is not clustered by, though its counts deviate most."""
    counts = adata.X.toarray()
    counts[:, 0] = np.where(adata.obs["lab"] == "Oslo", counts.sum(axis=1) // 2, 0)
    obs = pd.DataFrame({"lab": adata.obs["lab"].to_numpy()})
    changed = anndata.AnnData(csr_matrix(counts), obs.set_index(adata.obs_names))
    plain, grouped = (onmf.cells.cluster(changed, K, n_top_genes=30, groups=groups) for groups in (None, "lab"))
    assert 0 in plain.genes
    assert 0 not in grouped.genes


def test_sums_for_tests_between_groups(cells, adata, tmp_path):
    bulk = cells.pseudobulk()
    for name, (cluster, group) in zip(bulk.obs_names, bulk.obs[["cluster", "group"]].to_numpy(), strict=True):
        inside = (cells.labels == cluster) & (adata.obs["lab"] == group).to_numpy()
        assert np.array_equal(bulk[name].X.ravel(), adata.X.toarray()[inside].sum(axis=0)), name
        assert bulk.obs.loc[name, "cells"] == inside.sum()
    assert bulk.X.dtype.kind == "i"
    cells.save(tmp_path / "out", report=False)
    read = pd.read_csv(tmp_path / "out" / "pseudobulk.csv", index_col="gene")
    columns = pd.read_csv(tmp_path / "out" / "pseudobulk_columns.csv", index_col="column")
    assert read.columns.tolist() == columns.index.tolist() == bulk.obs_names.tolist()
    assert np.array_equal(read.to_numpy().T, bulk.X)
    assert columns["counts"].tolist() == bulk.X.sum(axis=1).tolist()


def test_what_is_refused_for_cells(adata, tmp_path):
    with pytest.raises(KeyError, match=r"adata.obs has no column 'donor' for the groups: it has 'kind', 'lab'"):
        onmf.cells.cluster(adata.copy(), K, groups="donor")
    with pytest.raises(ValueError, match=r"groups has the shape \(3,\), and there are 240 cells"):
        onmf.cells.cluster(adata.copy(), K, groups=[1, 2, 3])
    with pytest.raises(ValueError, match=r"corrected=True \(--corrected\) needs several groups"):
        onmf.cells.cluster(adata.copy(), K, corrected=True)
    adata.write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(ValueError, match=r"groups='lab' is about an AnnData object: pass it to read\(…, groups=\)"):
        onmf.cells.cluster(onmf.cells.read(tmp_path / "a.h5ad"), K, groups="lab")
    holes = adata.copy()
    holes.obs["lab"] = holes.obs["lab"].astype(object)
    holes.obs.iloc[4, 1] = np.nan
    with pytest.raises(ValueError, match="1 cell of 240 without a group, such as r4"):
        onmf.cells.cluster(holes, K, groups="lab")
    with pytest.raises(ValueError, match="These clusters have no groups"):
        onmf.cells.cluster(adata.copy(), K, quick=True).pseudobulk()


@pytest.mark.short("the commands of one kind, from several files to new rows")
def test_the_commands(adata, tmp_path):
    for lab in LABS:
        adata[adata.obs["lab"] == lab].copy().write_h5ad(tmp_path / f"{lab}.h5ad")
    paths, out = [tmp_path / f"{lab}.h5ad" for lab in LABS], tmp_path / "out"
    ran = command("cells", *paths, "-k", K, "--labels", "kind", "--out", out, "--corrected")
    assert ran.returncode == 0, ran.stderr
    assert "the best of 10 random starts and of clusters without groups, with 2 groups" in ran.stdout
    written = anndata.read_h5ad(out / "cells.h5ad")
    assert written.obs["group"].tolist() == sorted(adata.obs["lab"])
    assert written.layers["onmf_corrected"].shape == (N, P)
    assert written.uns["onmf"]["groups"]["names"].tolist() == LABS
    model, new = out / "model.onmf", tmp_path / "new.csv"
    ran = command("predict", model, paths[0], "--out", new)
    assert ran.returncode == 0, ran.stderr
    assert "All rows are taken as the group Bern" in ran.stderr
    own = [row["cluster"] for row in rows_of(out / "assignments.csv")]
    assert [row["cluster"] for row in rows_of(new)] == own[: len(rows_of(new))]
    paths[0].rename(tmp_path / "Kyiv.h5ad")
    ran = command("predict", model, tmp_path / "Kyiv.h5ad", "--group", "lab", "--estimate-groups")
    assert ran.returncode == 0, ran.stderr
    again = command("cells", tmp_path / "Kyiv.h5ad", "-k", K, "--group", "lab", "--corrected")
    assert again.returncode == 2
    assert "corrected=True (--corrected) needs several groups" in again.stderr


def test_one_source_gets_its_results_into_a_copy(adata, tmp_path):
    """An AnnData file with a column of groups is copied, with the corrected counts beside its own layers."""
    adata.write_h5ad(tmp_path / "a.h5ad")
    found = onmf.cells.cluster(onmf.cells.read(tmp_path / "a.h5ad", groups="lab"), K)
    found.corrected = True
    found.save(tmp_path / "out", report=False)
    written = anndata.read_h5ad(tmp_path / "out" / "cells.h5ad")
    assert np.array_equal(written.X.toarray(), adata.X.toarray())
    codes = (adata.obs["lab"] == "Oslo").to_numpy().astype(int)
    expected = adata.X.toarray() / found.by_group.effects[codes]
    assert np.allclose(written.layers["onmf_corrected"].toarray(), expected, rtol=1e-6)


@pytest.mark.skipif(
    not DATA or not Path(DATA, "cells", "sc_dropseq.npz").exists(), reason="the two protocols are not in ONMF_DATA"
)
@pytest.mark.short("the claim about real cells")
def test_two_protocols(tmp_path):
    """The same three cell lines by two protocols: files as they are, and defaults."""
    names = ("sc_celseq2", "sc_dropseq")
    paths = [Path(DATA, "cells", f"{name}.npz") for name in names]
    found = onmf.cells.cluster(onmf.cells.read(paths, labels="y"), K)
    assert found.comparison.ari >= 0.95
    assert abs(adjusted_rand_score(found.table.groups, found.labels)) < 0.01
    assert found.groups == list(names)


# The number of clusters.


def test_the_number_of_clusters_does_not_count_groups():
    X, _, labs = made(n=400, k=4, sd=0.7, overlap=0.3)
    assert select_n_clusters(X, groups=labs, random_state=0).n_clusters == 4
    with pytest.raises(ValueError, match="groups has 3 labels, but X has 400 rows"):
        select_n_clusters(X, groups=[0, 1, 0])
    one = select_n_clusters(X, groups=["a"] * 400, random_state=0)
    assert np.array_equal(one.agreement, select_n_clusters(X, random_state=0).agreement)
