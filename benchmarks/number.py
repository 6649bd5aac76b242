"""How many clusters -k auto finds, against the number that was made or the number of classes.

    python -m benchmarks.number [--made] [--documents] [--images] [--seeds 2] [--threads 2] [--out docs/number]

Made documents have 3 to 30 clusters, of equal or unequal sizes, with and without bursts: in a document with bursts, a
word that occurs once is likely to occur again. Then the paper's document sets and images. No threshold is fitted to
them; docs/guide/clusters.md says which of them were in view when the rule was found. Cells are stored in results.json,
and those in the file are not measured again. The tables are written as number.md.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf import Selection, select_n_clusters
from onmf.datasets import list_datasets, load_documents, load_hyperspectral, make_counts
from onmf.image import cluster_image
from onmf.io.files import write_whole

NUMBERS = (3, 5, 8, 12, 20, 30)
ROWS = 60
"""Documents for each cluster, on average."""

BURSTS = {"none": None, "some": 100.0, "strong": 30.0}
"""How much words come in bursts: the concentration of the Dirichlet distribution around a cluster's profile."""

HALVED = 4
"""The largest of the unequal clusters has so many times the documents of the smallest."""


def made(k: int, *, unequal: bool, concentration: float | None, seed: int, rows: int = ROWS) -> csr_array:
    """Make documents of k clusters."""
    rng = np.random.default_rng([seed, k])
    found = make_counts(2 * HALVED * rows * k, 1000, k, length=120, overlap=0.3, random_state=seed)
    weights = HALVED ** np.linspace(0, 1, k) if unequal else np.ones(k)
    sizes = np.rint(rows * k * weights / weights.sum()).astype(int)
    some = np.concatenate([np.flatnonzero(found.y == label)[:size] for label, size in enumerate(sizes)])
    X = csr_array(found.X[some])
    if concentration is None:
        return X
    shares = rng.gamma(concentration * found.profiles[found.y[some]]) + 1e-300
    lengths = np.asarray(X.sum(axis=1)).ravel()
    return csr_array(rng.multinomial(lengths, shares / shares.sum(axis=1, keepdims=True)))


def cell(name: str, kind: str, true: int, selection: Selection, seconds: float) -> dict[str, Any]:
    """Return a measurement as JSON values."""
    return {
        "name": name,
        "kind": kind,
        "true": true,
        "chosen": selection.n_clusters,
        "by": selection.chosen,
        "runners_up": selection.runners_up,
        "rows": selection.n_rows,
        "of": selection.n_total,
        "largest": int(selection.candidates[-1]),
        "seconds": seconds,
    }


def measure_made(k: int, unequal: bool, bursts: str, seed: int, threads: int) -> dict[str, Any]:
    """Choose the number of clusters of made documents."""
    X = made(k, unequal=unequal, concentration=BURSTS[bursts], seed=seed)
    began = process_time()
    selection = select_n_clusters(X, random_state=seed, n_threads=threads)
    found = cell("", "made", k, selection, process_time() - began)
    thinned = select_n_clusters(
        X, selection.candidates, criterion="held-out", halves="counts", n_splits=1, random_state=seed, n_threads=threads
    )
    return found | {"unequal": unequal, "bursts": bursts, "seed": seed, "by_halved_counts": thinned.n_clusters}


def measure_documents(name: str, threads: int) -> dict[str, Any]:
    """Choose the number of clusters of a document set."""
    documents = load_documents(name)
    X = documents.X[np.flatnonzero(np.asarray(documents.X.sum(axis=1)).ravel())]
    began = process_time()
    selection = select_n_clusters(X, random_state=0, n_threads=threads)
    return cell(name, "documents", len(np.unique(documents.y)), selection, process_time() - began)


def measure_image(name: str, threads: int) -> dict[str, Any]:
    """Choose the number of clusters of an image."""
    scene = load_hyperspectral(name)
    cube = scene.X.reshape(scene.height, scene.width, -1, order=scene.order)
    assert scene.endmembers is not None
    began = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stopped early does not matter here
        selection = cluster_image(cube, "auto", negatives="clip", n_threads=threads).selection
    assert selection is not None
    return cell(name, "image", len(scene.endmembers), selection, process_time() - began)


def summary(cells: list[dict[str, Any]]) -> str:
    """Return the tables in Markdown."""
    lines = ["A + marks the largest number that was tried, so that the criterion may prefer more.", ""]
    rows = [c for c in cells if c["kind"] == "made"]
    if rows:
        lines += [f"**Made documents,** about {ROWS} for each cluster; the choices of each seed:", ""]
        lines += ["| clusters | sizes | bursts | chosen | by held-out words | by held-out counts | by BIC |"]
        lines += ["|---:|---|---|---|---|---|---|"]
        for key in sorted({(c["true"], c["unequal"], c["bursts"]) for c in rows}, key=_order):
            some = [c for c in rows if (c["true"], c["unequal"], c["bursts"]) == key]
            columns = (
                [c["chosen"] for c in some],
                [_best(c, "held-out") for c in some],
                [_upward(c, c["by_halved_counts"]) for c in some],
                [_best(c, "bic") for c in some],
            )
            texts = " | ".join(", ".join(map(str, column)) for column in columns)
            lines.append(f"| {key[0]} | {'1 to ' + str(HALVED) if key[1] else 'equal'} | {key[2]} | {texts} |")
        away = np.array([abs(c["chosen"] - c["true"]) for c in rows])
        lines += [
            "",
            f"Exact in {np.mean(away == 0):.0%}, exact or off by one in {np.mean(away <= 1):.0%} of the cases.",
        ]
    for kind, title in (("documents", "Documents"), ("image", "Images")):
        rows = sorted((c for c in cells if c["kind"] == kind), key=lambda c: str(c["name"]).lower())
        if not rows:
            continue
        names = [name for name in ("information", "held-out", "stability", "bic") if name in rows[0]["by"]]
        names = names if kind == "image" else names[1:]
        lines += ["", f"**{title}**", "", "| set | rows | classes | chosen | runners-up | "]
        lines[-1] += " | ".join(f"by {name}" for name in names) + " | CPU seconds |"
        lines += ["|---|---:|---:|---:|---|" + "---:|" * (len(names) + 1)]
        for c in rows:
            some = f"{c['rows']:,}" + (f" of {c['of']:,}" if c["of"] > c["rows"] else "")
            others = " | ".join(_best(c, name) for name in names)
            runners = ", ".join(map(str, c["runners_up"]))
            lines.append(
                f"| {c['name']} | {some} | {c['true']} | {c['chosen']} | {runners} | {others} | {c['seconds']:.0f} |"
            )
    return "\n".join([*lines, ""])


def _best(found: dict[str, Any], criterion: str) -> str:
    """Return the choice of a criterion; with a + if it is the largest number tried."""
    return _upward(found, found["by"][criterion])


def _upward(found: dict[str, Any], k: int) -> str:
    return f"{k}+" if k == found["largest"] else str(k)


def _order(key: tuple[int, bool, str]) -> tuple[bool, int, int]:
    return key[1], list(BURSTS).index(key[2]), key[0]


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not measured yet, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.number")
    for part in ("made", "documents", "images"):
        parser.add_argument(f"--{part}", action="store_true", help=f"only this part: {part}")
    parser.add_argument("--numbers", type=int, nargs="*", default=NUMBERS, help="numbers of made clusters")
    parser.add_argument("--sets", nargs="*", help="document sets and images")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/number"))
    given = parser.parse_args(arguments)
    all_parts = not (given.made or given.documents or given.images)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "results.json"
    cells: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []

    def add(found: dict[str, Any]) -> None:
        cells.append(found)
        text = json.dumps(cells, indent=0).encode()
        write_whole(file, lambda opened: opened.write(text))
        print(
            found["name"] or found["kind"],
            found["true"],
            "→",
            found["chosen"],
            f"({found['seconds']:.0f} s)",
            flush=True,
        )

    if given.made or all_parts:
        known = {(c["true"], c["unequal"], c["bursts"], c["seed"]) for c in cells if c["kind"] == "made"}
        for k in given.numbers:
            for unequal in (False, True):
                for bursts in BURSTS:
                    for seed in range(given.seeds):
                        if (k, unequal, bursts, seed) not in known:
                            add(measure_made(k, unequal, bursts, seed, given.threads))
    names = {c["name"] for c in cells}
    for info in list_datasets():
        if not info.path.exists() or info.name in names or (given.sets is not None and info.name not in given.sets):
            continue
        if info.kind == "documents" and (given.documents or all_parts):
            add(measure_documents(info.name, given.threads))
        elif info.kind == "hyperspectral" and (given.images or all_parts):
            add(measure_image(info.name, given.threads))
    tables = summary(cells)
    write_whole(given.out / "number.md", lambda opened: opened.write(tables.encode()))
    print(tables)


if __name__ == "__main__":
    main()
