"""The divergences that the guide compares: on the command line, on cells, and in the benchmarks behind the guide."""

import numpy as np
import pytest
from benchmarks import divergences, measure
from benchmarks.__main__ import main

import onmf.cells
import onmf.text
from conftest import command
from onmf import select_n_clusters
from onmf.confidence import refit
from onmf.datasets import make_counts, make_scene
from onmf.divergence import NegativeBinomial
from onmf.metrics import clustering_accuracy
from pages import ROOT, blocks_of


@pytest.mark.long("the pages of the docs")
def test_the_code_of_the_guide_finds_the_clusters(capsys):
    """tests/test_docs.py runs the blocks; here is what they must find, and how short a divergence of one's own is."""
    first, own = (block.code for block in blocks_of(ROOT / "docs" / "guide" / "divergence.md"))
    names = {}
    exec(first + own, names)
    assert float(capsys.readouterr().out) > 10, "the counts are Poisson"
    assert names["labels"].tolist() == [0, 0, 1, 1]
    assert len([line for line in own.splitlines() if line]) <= 10


@pytest.mark.long("the benchmarks")
def test_the_benchmark_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "QUICK", measure.QUICK)  # restored after the test
    main(["divergences", "--quick", "--out", str(tmp_path)])
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert len(lines) == 2 + len(divergences.DIVERGENCES)


@pytest.mark.parametrize("beta_loss", ["negative-binomial", "bernoulli"])
def test_the_number_of_clusters_by_another_divergence(beta_loss):
    X = make_counts(300, 200, 4, overlap=0.2, random_state=0).X
    if beta_loss == "bernoulli":
        rng = np.random.default_rng(0)
        X = rng.random((200, 60)) < rng.random((4, 60))[np.arange(200) % 4]
    chosen = select_n_clusters(X, k_max=12, beta_loss=beta_loss, n_splits=2, random_state=0)
    assert chosen.n_clusters == 4


@pytest.mark.parametrize("kind", ["documents", "cells"])
def test_the_number_is_chosen_by_the_divergence_of_the_fit(kind, monkeypatch):
    asked = []

    def select(X, *, beta_loss, **options):
        asked.append(beta_loss)
        return select_n_clusters(X, **options | {"k_min": 2, "k_max": 3, "n_splits": 1})

    made = make_counts(60, 40, 3, overlap=0.1, random_state=0)
    monkeypatch.setattr("onmf.door.kind.select_n_clusters", select)
    if kind == "documents":
        texts = [" ".join(np.repeat([f"w{chr(97 + j)}" for j in range(20)], row[:20])) for row in made.X.toarray()]
        onmf.text.cluster(texts, "auto", beta_loss="negative-binomial", quick=True)
    else:
        anndata = pytest.importorskip("anndata")
        onmf.cells.cluster(anndata.AnnData(made.X), "auto", beta_loss="negative-binomial")
    assert asked == ["negative-binomial"]


def test_the_confidence_is_that_of_the_estimated_divergence(monkeypatch):
    X = make_counts(120, 80, 3, overlap=0.4, random_state=0).X
    model = onmf.ONMF(3, beta_loss=NegativeBinomial("auto")).fit(X)
    used = []
    monkeypatch.setattr("onmf.confidence.every_run", lambda other, rows, groups: used.append(other.beta_loss) or [])
    refit(model, X)
    assert used == [model.divergence_]
    assert used[0].theta > 10


@pytest.mark.short("another divergence through a door")
def test_the_command_line_takes_the_negative_binomial(tmp_path):
    X = make_counts(90, 60, 3, overlap=0.1, random_state=0).X.toarray()
    folder = tmp_path / "texts"
    folder.mkdir()
    for i, row in enumerate(X[:, :40]):
        words = [f"w{chr(97 + j % 26)}{chr(97 + j // 26)}x" for j, count in enumerate(row) for _ in range(count)]
        (folder / f"{i}.txt").write_text(" ".join(words))
    np.save(tmp_path / "cube.npy", make_scene(9, 10, 20, 3, random_state=0).X.reshape(9, 10, 20))
    for kind, path, k in (("documents", folder, "auto"), ("image", tmp_path / "cube.npy", "3")):
        out = tmp_path / kind
        done = command(kind, path, "-k", k, "--divergence", "negative-binomial", "--out", out)
        assert done.returncode == 0, done.stderr
        assert onmf.load(out / "model.onmf").divergence_ == NegativeBinomial()


def test_cells_by_the_negative_binomial():
    anndata = pytest.importorskip("anndata")
    made = make_counts(120, 80, 3, overlap=0.1, random_state=0)
    cells = anndata.AnnData(made.X)
    found = onmf.cells.cluster(cells, 3, beta_loss=NegativeBinomial("auto"))
    assert clustering_accuracy(made.y, cells.obs["onmf"].astype(int)) > 0.9
    assert found.model.divergence_.theta > 10  # these counts are Poisson
