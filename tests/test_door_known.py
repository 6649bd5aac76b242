"""Seeds and known rows at the doors: what each kind makes of them, the names of clusters, files, edits and refusals."""

import csv
import json

import numpy as np
import pytest

import onmf
import onmf.cells
import onmf.image
import onmf.table
import onmf.text
from conftest import command
from onmf.datasets import docstring_texts, make_counts, make_scene
from onmf.door import Table, cluster_table, predict_table
from onmf.door.known import check_seeds, names_with_given
from onmf.image.materials import Truth, read_library, resampled
from onmf.kinds import get_kind
from onmf.table import TABLE
from test_door import DOORS, arguments, every_kind, read_csv

K = 4
MADE = make_counts(240, 40, K, length=60, overlap=0.3, random_state=0)
X, Y = MADE.X.toarray(), np.asarray(MADE.y)
FEATURES = [f"f{j}" for j in range(40)]
TOP = [[FEATURES[j] for j in np.argsort(-(c / MADE.profiles.mean(axis=0)))[:3]] for c in MADE.profiles]
SEEDS = {f"kind {k}": TOP[k] for k in (2, 0)}  # two of the four
SCENE = make_scene(20, 30, 50, 3, random_state=0)


def counts(**options):
    return Table(MADE.X, [f"r{i}" for i in range(240)], FEATURES, **options)


def share(found, name, inside):
    """The share of some rows that are in the cluster of a name."""
    return np.mean(found.labels[inside] == found.names.index(name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with documents in a table, some of whose subpackages are known, and seeds."""
    folder, seen = tmp_path_factory.mktemp("known"), dict[str, int]()
    with open(folder / "docs.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "known", "class"])
        for name, text, subpackage in docstring_texts()[::2]:
            seen[subpackage] = seen.get(subpackage, 0) + 1
            known = subpackage if seen[subpackage] <= 4 and subpackage in ("sparse", "stats") else ""
            rows.writerow([name, text, known, subpackage])
    seeds = {"Fourier": {"FFT": 2, "transform": 1}, "sparse": ["csr", "the", "qqqq"]}
    (folder / "seeds.json").write_text(json.dumps(seeds))
    return folder


def test_seeds_name_clusters_and_others_are_found():
    found = onmf.table.cluster(counts(), K, seeds=SEEDS)
    assert all(share(found, f"kind {k}", k == Y) > 0.9 for k in (0, 2))
    assert sorted(found.given.values()) == ["seeds", "seeds"]
    assert {found.names[number] for number in found.given} == set(SEEDS)
    assert found.sizes.tolist() == sorted(found.sizes, reverse=True)
    assert found.how == "the best of 10 runs from 2 given clusters"
    assert any(note.endswith("the others were found.") for note in found.notes)
    again = onmf.table.predict(found, counts())
    assert again.names == found.names
    assert np.mean(again.labels == found.labels) > 0.99


def test_more_seeds_than_a_size_order_would_keep():
    """Numbers follow the sizes, names the seeds: in whatever order these are given."""
    one, other = ({f"kind {k}": TOP[k] for k in order} for order in (range(K), reversed(range(K))))
    one, other = (onmf.table.cluster(counts(), K, seeds=seeds) for seeds in (one, other))
    assert one.how == "a single run from 4 given clusters"
    assert all(share(one, f"kind {k}", k == Y) > 0.9 for k in range(K))
    assert [one.names[k] for k in one.labels] == [other.names[k] for k in other.labels]


def test_known_rows_stay_and_their_names_are_those_of_clusters():
    known = [f"kind {y}" if i % 12 == 0 and y < 2 else None for i, y in enumerate(Y)]
    wrong = next(i for i in range(240) if Y[i] == 3)
    known[wrong] = "kind 1"
    found = onmf.table.cluster(counts(), K, known=known)
    assert all(found.names[label] == name for label, name in zip(found.labels, known, strict=True) if name)
    assert share(found, "kind 0", Y == 0) > 0.9
    assert set(found.given.values()) == {"known rows"}
    both = onmf.table.cluster(counts(known=known), K, seeds=SEEDS)
    assert sorted(both.given.values()) == ["known rows", "known rows and seeds", "seeds"]


def test_the_confidence_is_that_of_fits_that_know_the_same():
    seeds = {f"kind {k}": TOP[k] for k in range(K)}
    found = onmf.table.cluster(counts(), K, seeds=seeds)
    right = found.labels == [found.names.index(f"kind {y}") for y in Y]
    assert 0.5 < np.median(found.confidence) <= 1
    assert found.confidence[right].mean() > found.confidence[~right].mean() + 0.1
    assert np.isfinite(found.surprise).all()


def test_a_seed_without_rows_and_features_that_no_row_has_are_said(tmp_path):
    rare = counts()
    rare.X = type(MADE.X)(np.where(np.arange(40) == 39, 0, X))
    seeds = {"kind 0": [*TOP[0], "f99", "f39"], "the same": TOP[0]}
    found = onmf.table.cluster(rare, K, seeds=seeds)
    assert "No row has the seeds f99, f39: left out." in found.notes
    assert any("No row follows the seeds of the same" in note for note in found.notes)
    assert found.names[-1] == "the same"
    assert found.sizes[-1] == 0
    found.save(tmp_path / "out")
    assert [row["size"] for row in read_csv(tmp_path / "out" / "clusters.csv") if row["name"] == "the same"] == ["0"]


def test_a_number_is_chosen_from_those_that_are_given():
    seeds = {f"kind {k}": TOP[k] for k in range(K)}
    found = onmf.table.cluster(counts(), "auto", seeds=seeds, k_max=8)
    assert found.n_clusters >= K
    assert found.selection.numbers.min() >= K
    with pytest.raises(ValueError, match=r"4 clusters are given, more than k_max=3: raise it\."):
        onmf.table.cluster(counts(), "auto", seeds=seeds, k_max=3)


def test_groups_and_weights_of_seeds():
    labs = np.where(np.arange(240) % 2, "Bern", "Oslo").tolist()
    found = onmf.table.cluster(counts(groups=labs), K, seeds={name: dict.fromkeys(SEEDS[name], 2.0) for name in SEEDS})
    assert found.groups == ["Bern", "Oslo"]
    assert share(found, "kind 0", Y == 0) > 0.9
    assert found.how == "the best of 10 runs from 2 given clusters with 2 groups"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": {}}, r"seeds are \{\}: give names of clusters and their features"),
        ({"seeds": {3: ["f1"]}}, "seeds have the cluster 3: its name must be a text"),
        ({"seeds": {"a": "f1"}}, "The seeds of 'a' are 'f1': give a list of features, or weights"),
        ({"seeds": {"a": []}}, "'a' has no seeds: name a feature, or leave the cluster out"),
        ({"seeds": {"a": [3]}}, "'a' has the seed 3: give the name of a feature"),
        ({"seeds": {"a": {"f1": -1}}}, "The seed 'f1' of 'a' has the weight -1: give a number above 0"),
        ({"seeds": {" ": ["f1"]}}, "The name of cluster ' ' is empty"),
        ({"seeds": {"a": ["g1", "g2"]}}, "No row has any of the features that are the seeds of 'a'"),
        ({"seeds": {name: [name] for name in FEATURES}}, r"40 clusters are given \(f0, .*\), and n_clusters=4"),
        ({"known": ["a"]}, "known has 1 entries for 240 rows: give one for each, None if it is free"),
        ({"known": [None] * 240}, "No row that can be clustered has a known cluster"),
        ({"known": ["a"] * 240}, "known has a cluster for every row"),
        ({"seeds": SEEDS, "refine": "local-search"}, "refine='local-search' moves every row"),
        ({"seeds": SEEDS, "n_consensus": 9}, "no runs vote: leave n_consensus out"),
        ({"seeds": SEEDS, "beta_loss": "frobenius"}, "known= and seeds= are for Kullback–Leibler"),
    ],
)
def test_refusals(given, message):
    with pytest.raises(ValueError, match=message):
        cluster_table(TABLE, counts(), K, **given)


def test_seeds_of_counts_in_shards(folder):
    seeds = {"Fourier": ["fft", "transform"]}
    texts = list(onmf.text.read(folder / "docs.csv"))
    found = onmf.text.cluster(texts, 6, shards=folder / "shards", seeds=seeds)
    assert "fft" in found.distinctive(5)[found.names.index("Fourier")]
    assert np.isfinite(found.confidence).all()


def test_names_that_are_given_come_first():
    assert names_with_given(["tea", "milk", "leaf"], {2: "tea"}) == ["tea 2", "milk", "tea"]
    assert check_seeds({" tea ": ["leaf"]}) == {"tea": {"leaf": 1.0}}


# The commands.


def test_documents_from_the_command_line(folder):
    out = folder / "clusters"
    ran = command(
        *("documents", folder / "docs.csv", "-k", 10, "--seeds", folder / "seeds.json", "--known", "known"),
        *("--labels", "class", "--out", out, "--no-report"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "No document has the seeds the, qqqq: left out." in ran.stdout
    rows = {row["name"]: row for row in read_csv(out / "clusters.csv")}
    assert {name: row["given"] for name, row in rows.items() if row["given"]} == {
        "Fourier": "seeds",
        "sparse": "known rows and seeds",
        "stats": "known rows",
    }
    assert "fft" in rows["Fourier"]["distinctive"]
    summary = json.loads((out / "summary.json").read_text())
    assert {row["name"] for row in summary["clusters"] if row["given"]} == {"Fourier", "sparse", "stats"}
    assert summary["fit"] == "the best of 10 runs from 3 given clusters"
    read = onmf.text.read(folder / "docs.csv", known="known")
    by_id = {row["id"]: row["name"] for row in read_csv(out / "assignments.csv")}
    assert all(by_id[text.id] == text.known for text in read if text.known)
    predicted = command("predict", out / "model.onmf", folder / "docs.csv", "--out", folder / "p.csv")
    assert predicted.returncode == 0, predicted.stderr
    again = [row["name"] for row in read_csv(folder / "p.csv")]
    assert np.mean([name == other for name, other in zip(again, by_id.values(), strict=True)]) > 0.95


def test_an_edit_reads_the_seeds_again_and_keeps_their_names(folder, monkeypatch):
    monkeypatch.chdir(folder)
    run = command("documents", "docs.csv", "-k", 6, "--seeds", "seeds.json", "--out", "run", "--no-report")
    assert run.returncode == 0, run.stderr
    named = {row["name"]: row["cluster"] for row in read_csv("run/clusters.csv")}
    other = next(number for name, number in named.items() if name not in ("Fourier", "sparse"))
    monkeypatch.chdir("/")
    line = ("edit", folder / "run", "--merge", f"{named['Fourier']}+{other}", "--out", folder / "edited", "--force")
    edited = command(*line)
    assert edited.returncode == 0, edited.stderr
    names = [row["name"] for row in read_csv(folder / "edited" / "clusters.csv")]
    assert {"Fourier", "sparse"} < set(names), "a name that was given stays in a merge"
    assert len(names) == 5
    seeds = (folder / "seeds.json").read_text()
    try:
        (folder / "seeds.json").write_text(seeds.replace("csr", "coo"))
        changed = command(*line)
    finally:
        (folder / "seeds.json").write_text(seeds)
    assert "docs.csv, seeds.json changed since the run" in changed.stderr
    assert changed.returncode == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"is not JSON: Expecting"),
        ("[1]", r"seeds are \[1\]: give names of clusters"),
        ('{"a": ["the"]}', "No document has any of the words that are the seeds of 'a'"),
    ],
)
def test_files_of_seeds_that_are_refused(content, message, folder, tmp_path):
    (tmp_path / "seeds.json").write_text(content)
    ran = command("documents", folder / "docs.csv", "-k", 3, "--seeds", tmp_path / "seeds.json")
    assert ran.returncode == 2
    with pytest.raises(ValueError, match=message):
        raise ValueError(ran.stderr)


@every_kind
def test_every_kind_has_seeds_and_the_report_says_what_was_given(name, tmp_path):
    kind = get_kind(name)
    flag = {option.name: option.flag for option in kind.options}["seeds"]
    if name == "image":
        spectra = np.load(DOORS[name](tmp_path)[0]).reshape(-1, 20)[:1]
        lines = ["band,material", *(f"{band},{value}" for band, value in enumerate(spectra[0]))]
        (tmp_path / "seeds").with_suffix(".csv").write_text("\n".join(lines))
        seeds, given = tmp_path / "seeds.csv", "material"
    else:
        feature = {"documents": "WAB", "cells": "GENE1", "table": "feature 1"}[name]
        seeds, given = tmp_path / "seeds.json", "my own"
        seeds.write_text(json.dumps({given: [feature]}))
    ran = command(name, *arguments(name, tmp_path), "-k", 3, flag, seeds, "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [row["given"] for row in summary["clusters"] if row["name"] == given] == ["seeds"]
    note = next(note for note in summary["notes"] if "given" in note)
    assert note in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert given in onmf.load(tmp_path / "out" / "model.onmf").extra_["names"]


@pytest.mark.parametrize("name", ["cells", "table"])
def test_known_columns_of_counts(name, tmp_path):
    lines = ["name,cluster", *(f"r{i},{'mine' if i < 3 else ''}" for i in range(61))]
    (tmp_path / "known.csv").write_text("\n".join(lines))
    ran = command(name, *arguments(name, tmp_path), "-k", 3, "--known", f"{tmp_path / 'known.csv'}:cluster", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [row["given"] for row in found["clusters"] if row["name"] == "mine"] == ["known rows"]
    assert "known" not in get_kind(name).predict_options


# Cells.


def test_markers_are_clustered_by_whatever_their_deviance():
    import anndata
    import pandas as pd

    adata = anndata.AnnData(X.astype(np.float32), var=pd.DataFrame(index=FEATURES))
    adata.obs["part"] = [f"kind {y}" if i % 20 == 0 else None for i, y in enumerate(Y)]
    found = onmf.cells.cluster(adata, K, seeds=SEEDS, n_top_genes=10)
    assert set(TOP[0] + TOP[2]) <= set(found.features)
    assert found.view == "counts"
    assert set(adata.uns["onmf"]["names"]) >= set(SEEDS)
    logs = onmf.cells.cluster(adata, K, seeds=SEEDS, view="logs")
    assert logs.view == "logs"
    assert share(logs, "kind 0", Y == 0) > 0.8
    known = onmf.cells.cluster(adata, K, known="part")
    assert set(known.names) == {f"kind {k}" for k in range(K)}
    with pytest.raises(KeyError, match="no column 'parts' for the known clusters"):
        onmf.cells.cluster(adata, K, known="parts")


def test_markers_find_cell_lines(cell_set):
    lines = cell_set("hash_4lines")
    adata = lines.to_anndata()
    adata.var_names = list(lines.genes)
    found = onmf.cells.cluster(adata, 4, seeds={"THP1": ["MPO", "AZU1", "CTSG", "CSF1R"], "KG1": ["CD34", "BAALC"]})
    classes = np.array(lines.classes)[lines.y]
    assert share(found, "THP1", classes == "THP1") > 0.9
    assert share(found, "KG1", classes == "KG1") > 0.9


# Images.


def write_library(path, spectra, wavelengths, names, unit="Nanometers"):
    from spectral.io.envi import SpectralLibrary

    about = {"spectra names": list(names), "wavelength": [f"{wave:.6f}" for wave in wavelengths]}
    SpectralLibrary(spectra.astype(np.float32), about | {"wavelength units": unit}).save(str(path), "known")
    return path.with_suffix(".hdr")


@pytest.fixture(scope="module")
def cube():
    return onmf.image.Cube(
        SCENE.X.reshape(20, 30, 50), wavelengths=np.asarray(SCENE.wavelengths), wavelength_unit="nm", name="made"
    )


def test_a_library_names_materials(cube, tmp_path):
    waves = np.asarray(SCENE.wavelengths)
    fine = np.linspace(waves.min() - 5, waves.max() + 5, 400)
    spectra = np.stack([np.interp(fine, waves, spectrum) for spectrum in SCENE.endmembers[:2]])
    spectra[0, 7] = -1.23e34  # as libraries mark what is missing
    path = write_library(tmp_path / "library", spectra, fine / 1000, ["grass", "soil"], "Micrometers")
    library = read_library(path)
    one = Truth(library.spectra[1:], names=["soil"], nanometres=library.nanometres)
    assert resampled(one, cube) == pytest.approx(SCENE.endmembers[1], rel=1e-2)
    truth = np.asarray(SCENE.abundances).argmax(axis=0).reshape(20, 30)
    found = onmf.image.cluster(cube, 3, library=path)
    second = found.names.index("soil")
    assert sorted(found.given.values()) == ["seeds", "seeds"]
    assert np.mean(truth[found.labels == second] == 1) > 0.9
    blocks = onmf.image.cluster(cube, 3, library=path, in_memory=False)
    assert blocks.names == found.names
    assert np.array_equal(blocks.labels, found.labels)
    scenes = onmf.image.cluster([cube, cube], 3, library=path)
    assert set(scenes.names) >= {"grass", "soil"}
    again = onmf.image.predict(found, cube)
    assert again.names == found.names
    assert np.array_equal(again.labels, found.labels)


def test_libraries_that_do_not_fit(cube, tmp_path):
    waves, spectra = np.asarray(SCENE.wavelengths), np.asarray(SCENE.endmembers[:1])
    narrow = write_library(tmp_path / "narrow", spectra[:, 10:], waves[10:], ["a"])
    with pytest.raises(ValueError, match=r"has spectra from .* nm, and .* has \d+ bands outside of that"):
        onmf.image.cluster(cube, 3, library=narrow)
    plain = onmf.image.Cube(cube.data, name="plain", source="plain.img")
    with pytest.raises(ValueError, match=r"plain.img has no wavelengths, so the spectra of .* but they have 40"):
        onmf.image.cluster(plain, 3, library=narrow)
    whole = write_library(tmp_path / "whole", spectra, waves, ["a"])
    assert "a" in onmf.image.cluster(plain, 3, library=whole).names
    (tmp_path / "no.hdr").write_text("ENVI\nsamples = 1\nlines = 1\nbands = 1\n")
    with pytest.raises(ValueError, match="is no library of spectra: use an ENVI spectral library, or a csv"):
        read_library(tmp_path / "no.hdr")


def test_predicting_with_the_table_gives_the_names_of_seeds(tmp_path):
    found = onmf.table.cluster(counts(), K, seeds=SEEDS)
    found.save(tmp_path / "out", report=False)
    model = onmf.load(tmp_path / "out" / "model.onmf")
    again = predict_table(model, counts())
    assert again.names == found.names
    merged = found.merge(*(found.names.index(name) for name in SEEDS))
    assert set(SEEDS) & set(merged.names), "a merge keeps the name of one of them"
