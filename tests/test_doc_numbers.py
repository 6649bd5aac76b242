"""Numbers in the prose of README and docs: each is what the code gives, or what a benchmark wrote into a table.

A claim is a page, a sentence with holes that must be on it, and a function that computes what is in the holes.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from statistics import mean
from typing import NamedTuple

import pytest
from sklearn.cluster import KMeans

from onmf import ONMF
from onmf.datasets import load_docstrings, load_documents, load_hyperspectral
from onmf.metrics import clustering_accuracy, mrsa
from onmf.text import consensus_of_views
from pages import ROOT

pytestmark = pytest.mark.long("numbers on the pages of the docs")

DOCS = ROOT / "docs"


@cache
def table(path, header):
    """The first table of a page whose header begins so: its rows by name, each a dict by column."""
    lines = (DOCS / path).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(header))
    columns = cells(lines[start])
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows[cells(line)[0]] = dict(zip(columns, cells(line), strict=True))
    return rows


def cells(line):
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def number(text):
    """The number with which a cell begins."""
    return float(re.match(r"[-+]?[\d.]+", text)[0])


def paper(name, column):
    return number(table("paper/documents.md", "|  | n |")[name][column])


def optima(method, column="accuracy, by documents"):
    return number(table("optima/optima.md", "| method |")[method][column])


def cells_index(method):
    return number(table("cells/results.md", "| | mean ARI |")[method]["mean ARI"])


def family(beta, column="all documents"):
    return number(table("paper/family.md", "| β |")[beta][column])


def frobenius_is_ahead():
    """The document sets on which Frobenius is ahead of Kullback–Leibler, by how much."""
    sets = [name for name in table("paper/documents.md", "|  | n |") if name != "average"]
    lead = {name: paper(name, "acc-F") - paper(name, "acc-KL") for name in sets}
    return sorted((name for name in sets if lead[name] > 0), key=lambda name: -lead[name]), len(sets)


def where_kl_loses():
    names, sets = frobenius_is_ahead()
    first = names[0]
    return len(names), sets, first, paper(first, "acc-F"), paper(first, "acc-KL"), *names[1:]


def gpu_ratios():
    notes = re.findall(r"the GPU is ([\d.]+) times as fast", (DOCS / "gpu/gpu.md").read_text(encoding="utf-8"))
    return min(map(float, notes)), max(map(float, notes))


def kl_against_kmeans(clusters):
    """The smallest and largest ratio on word counts, with this number of clusters."""
    lines = (DOCS / "performance/speed.md").read_text(encoding="utf-8").splitlines()
    rows = [cells(line) for line in lines if line.startswith(("| NG20", "| zipf"))]
    ratios = [number(row[4].split("(")[1]) for row in rows if row[2] == str(clusters)]
    return min(ratios), max(ratios)


def docstrings():
    docs = load_docstrings()
    if not docs.source.startswith("SciPy 1.17"):
        pytest.skip("the numbers on docstrings are those of SciPy 1.17")
    return docs


def on_docstrings(*models):
    docs = docstrings()
    return [100 * clustering_accuracy(docs.y, model.fit(docs.X).labels_) for model in models]


@cache
def votes_on_docstrings():
    """The accuracy of votes with ten seeds."""
    docs = docstrings()
    votes = (consensus_of_views(docs.X, 13, random_state=seed) for seed in range(10))
    return [100 * clustering_accuracy(docs.y, vote.labels_) for vote in votes]


class Claim(NamedTuple):
    page: str
    sentence: str
    values: Callable[[], Iterable[float | str]]
    within: float = 0.0
    """For what other libraries compute: rounding differs between processors, and may lead a run elsewhere."""


CLAIMS = [
    Claim(
        "README.md",
        "| 14 document sets of the [paper](#citing) | {} % | {} % | {} % |",
        lambda: (paper("average", "acc-F"), paper("average", "acc-KL"), optima("KL-ONMF, consensus of views")),
    ),
    Claim(
        "README.md",
        "| SciPy's docstrings (`make demo`) | {} % | {} % | {} % |",
        lambda: (*on_docstrings(ONMF(13, beta_loss="frobenius"), ONMF(13)), votes_on_docstrings()[0]),
    ),
    Claim(
        "README.md",
        "votes with ten seeds find {} to {} %, {} % on average",
        lambda: (f(votes_on_docstrings()) for f in (min, max, mean)),
    ),
    Claim(
        "README.md",
        "the best of ten, finds {} % of the docstrings",
        lambda: on_docstrings(KMeans(13, n_init=10, random_state=0)),
        within=1,
    ),
    Claim(
        "README.md",
        "On {} of the {} sets Frobenius is ahead of KL in the paper's runs: {} ({} % against {} %), {}, {} and {}.",
        where_kl_loses,
    ),
    Claim(
        "README.md",
        "on the 14 document sets from {} % to {} %",
        lambda: (optima("KL-ONMF, the paper's start"), optima("KL-ONMF, consensus + local search")),
    ),
    Claim(
        "README.md",
        "the adjusted Rand index is {} on average, where scanpy's pipelines reach {} (k-means) and {} (Leiden)",
        lambda: map(cells_index, ("onmf.cells", "scanpy, k-means", "scanpy, Leiden")),
    ),
    Claim(
        "README.md",
        "with an adjusted Rand index of {} instead of {}. For files",
        lambda: (
            number(table("groups/results.md", "| batches |")["two protocols"][name])
            for name in ("KL with groups", "KL")
        ),
    ),
    Claim("README.md", "an H200 is {} to {} times as fast as 16 CPU cores", gpu_ratios),
    Claim("docs/guide/gpu.md", "On large data it is {} to {} times as fast as on 16 cores", gpu_ratios),
    Claim(
        "docs/explanation/performance.md",
        "{} to {} times as fast as one of scikit-learn's `KMeans` with 20 clusters, and {} to {} times with 100",
        lambda: (*kl_against_kmeans(20), *kl_against_kmeans(100)),
    ),
    Claim(
        "docs/explanation/reproduce.md",
        "every β from ¼ to 1 is about as good as Kullback–Leibler: {} to {} % of 64,657 documents",
        lambda: (f([family(beta) for beta in ("0.25", "0.5", "0.75", "1.0")]) for f in (min, max)),
    ),
    Claim(
        "docs/explanation/reproduce.md",
        "{} % at 1.25, {} % at 1.5, {} % for Frobenius, {} % at 2.5. Cosine, with {} %, lies in between",
        lambda: map(family, ("1.25", "1.5", "2.0", "2.5", "cosine")),
    ),
    Claim("docs/explanation/reproduce.md", "(k1b: {} % at 1.5)", lambda: [family("1.5", "k1b")]),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=[f"{claim.page}: {claim.sentence}" for claim in CLAIMS])
def test_the_number_on_the_page_is_right(claim):
    page = " ".join((ROOT / claim.page).read_text(encoding="utf-8").split())
    said = re.search(re.escape(claim.sentence).replace(r"\{\}", r"([\w.]+)"), page)
    assert said, f"{claim.page} does not say: {claim.sentence}"
    for text, value in zip(said.groups(), claim.values(), strict=True):
        if isinstance(value, str):
            assert text == value
        else:
            digits = len(text.partition(".")[2])
            assert float(text) == pytest.approx(round(value, digits), abs=claim.within)


def test_comments_with_results_in_the_guide_to_the_paper(paper_set):
    said = (DOCS / "explanation/reproduce.md").read_text(encoding="utf-8")
    paper_set("tr11"), paper_set("jasper")  # skips where they are not
    docs, scene = load_documents("tr11"), load_hyperspectral("jasper")
    model = ONMF(9).fit(docs.X)
    assert f"model.labels_)  # {clustering_accuracy(docs.y, model.labels_):.3f}\n" in said
    assert f"model.n_iter_  # {model.n_iter_}\n" in said
    spectra = ONMF(4).fit(scene.X).cluster_centers_
    assert f"model.cluster_centers_)  # {mrsa(scene.endmembers, spectra):.2f}\n" in said


def test_the_picture_of_the_report_is_of_this_code(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    docs = docstrings()
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    with image.open(DOCS / "images" / "report-documents.png") as picture:
        shown = picture.text["Description"]
    assert f"Documents {docs.X.shape[0]:,}" in shown
    accuracy = 100 * importlib.import_module("live").docstrings().comparison.accuracy
    assert f"Accuracy {accuracy:.1f}%" in shown
