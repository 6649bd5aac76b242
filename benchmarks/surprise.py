"""How often rows are flagged as fitting nowhere: held-back rows as often as asked for, shuffled ones nearly always.

The door of each kind clusters all rows of a set but a fifth, and assigns the fifth. A row is flagged if its surprise is
at most 5 %. The same rows are assigned again with their counts at random features, so that their totals stay: these
rows fit nowhere. What is in results.json is not measured again. The tables are written as surprise.md.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import binom
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from onmf.cells import Cells
from onmf.cells.kind import CELLS
from onmf.datasets import load_hyperspectral, make_counts, make_scene
from onmf.door import Kind, Table, cluster_table, predict_table
from onmf.image import Cube
from onmf.image.kind import IMAGE
from onmf.table import TABLE
from onmf.text import Documents
from onmf.text.kind import DOCUMENTS

from .cells.compare import NO_CELLS
from .data import DOCSTRINGS, available, load
from .results import MISSED, Record, Store, bold, publish, section, table

RATE, FLAGGED = 0.05, 0.95
"""The share of usual rows that may be flagged, and the share of shuffled rows that should be."""

MOST, HELD_BACK = 4_000, 0.2
"""Rows of a set that are used, at most, and the share of them that is held back."""

TOTALS = (0, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Totals above which shuffled rows are counted."""

Rows = Any  # an array or a sparse array; of an image the pixels, line by line


def random_counts(seed: int, length: float, overlap: float) -> tuple[csr_array, Any]:
    """Make counts of six clusters."""
    made = make_counts(3_000, 1_000, 6, length=length, overlap=overlap, random_state=seed)
    return made.X, made.y


def pixels(name: str, part: slice = slice(None)) -> tuple[Any, Any]:
    """Return the pixels of some lines of a scene, without values below zero, and how many materials it has."""
    scene = load_hyperspectral(name)
    lines = scene.X.reshape(scene.height, scene.width, -1, order=scene.order)[part]
    return np.maximum(lines.reshape(-1, lines.shape[2]), 0), np.arange(len(scene.endmembers))


def made_pixels(seed: int, photons: float) -> tuple[Any, Any]:
    """Make the pixels of a scene of four materials."""
    return make_scene(60, 70, 100, 4, photons=photons, random_state=seed).X, np.arange(4)


TEXTS = ("classic", "hitech", "k1b", "la1", "ohscal", "reviews", "tr41", DOCSTRINGS)
SETS: dict[str, dict[str, Callable[[], tuple[Rows, Any]]]] = {
    "documents": {name: (lambda name=name: load(name)) for name in TEXTS},
    "cells": {name: (lambda name=name: load(name)) for name in available("cells") if name not in NO_CELLS},
    "images": {
        **{name: (lambda name=name: pixels(name)) for name in ("samson", "jasper", "moffett")},
        "samson, upper half": lambda: pixels("samson", slice(47)),
        "samson, lower half": lambda: pixels("samson", slice(47, None)),
        "jasper, upper half": lambda: pixels("jasper", slice(50)),
        "jasper, lower half": lambda: pixels("jasper", slice(50, None)),
        "made, many photons": lambda: made_pixels(0, 3_000.0),
        "made, few photons": lambda: made_pixels(1, 30.0),
    },
    "tables": {
        "hmp_site18": lambda: load("hmp_site18"),
        "digits": lambda: load_digits(return_X_y=True),
        "wine": lambda: load_wine(return_X_y=True),
        "breast cancer": lambda: load_breast_cancer(return_X_y=True),
        "tr23 as a table": lambda: load("tr23"),
        "tr11 as a table": lambda: load("tr11"),
        "tr45 as a table": lambda: load("tr45"),
        "made, short": lambda: random_counts(0, 20.0, 0.3),
        "made, long": lambda: random_counts(1, 300.0, 0.6),
    },
}
"""The sets of each kind: rows and their classes, of which only the number is used."""

KINDS: dict[str, Kind] = {"documents": DOCUMENTS, "cells": CELLS, "images": IMAGE, "tables": TABLE}


def tabled(kind: Kind, X: Rows) -> Any:
    """Return rows as a reader of their kind does."""
    if kind is IMAGE:
        return Cube(np.asarray(X)[None])
    counts = csr_array(X)
    rows, features = ([f"{noun}{i}" for i in range(size)] for noun, size in zip("rf", counts.shape, strict=True))
    if kind is DOCUMENTS:
        return Documents(counts, rows, features, lengths=np.asarray(counts.sum(axis=1)), excerpts=[""] * len(rows))
    return (Cells if kind is CELLS else Table)(counts, rows, features)


def shuffled(X: Rows, columns: Any, rng: np.random.Generator) -> Rows:
    """Return rows whose values in some columns are in random places among these columns; the others are zero."""
    inside = np.asarray(csr_array(X)[:, columns].todense())
    out = np.zeros(X.shape, dtype=inside.dtype)
    out[:, columns] = rng.permuted(inside, axis=1)
    return out if isinstance(X, np.ndarray) else csr_array(out)


def measure(kind: Kind, X: Rows, k: int, seed: int, threads: int) -> Record:
    """Cluster some rows, and return the shares of the others that are flagged, as they are and shuffled."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(X.shape[0])[:MOST]
    X = X if isinstance(X, np.ndarray) else csr_array(X)
    held, fitted = np.split(order, [round(HELD_BACK * len(order))])
    options: dict[str, Any] = {"negatives": "refuse", "blocks": False} if kind is IMAGE else {}
    found = cluster_table(kind, tabled(kind, X[np.sort(fitted)]), k, options=options, n_threads=threads)

    def surprise(rows: Rows) -> Any:
        return predict_table(found.model, tabled(kind, rows), kind=kind).surprise.ravel()

    usual = surprise(X[held])
    columns = found.genes if kind is CELLS else np.arange(X.shape[1])
    random = shuffled(X[held], columns, rng)
    unusual, totals = surprise(random), np.asarray(random.sum(axis=1)).ravel()
    known, other = np.isfinite(usual), np.isfinite(unusual)
    return {
        "features": X.shape[1],
        "clusters": k,
        "fitted": len(fitted),
        "held back": int(known.sum()),
        "flagged": int((usual[known] <= RATE).sum()),
        "among its own": float(np.nanmean(found.surprise <= RATE)),
        "shuffled": [
            [int(above.sum()), int((unusual[above] <= RATE).sum())]
            for total in TOTALS
            if (above := other & (totals >= total)).any()
        ],
    }


def run(
    parts: tuple[str, ...] = tuple(SETS),
    sets: tuple[str, ...] = (),
    seeds: int = 1,
    threads: int = 2,
    out: Path = Path("docs/surprise"),
) -> None:
    """Measure what is not measured yet, and write the tables."""
    store = Store(out / "results.json", ("kind", "set", "seed"))
    for kind in parts:
        for name, make in SETS[kind].items():
            for seed in range(seeds):
                about = {"kind": kind, "set": name, "seed": seed}
                if name in (sets or (name,)) and store.key(about) not in store:
                    X, classes = make()
                    store.add(about | measure(KINDS[kind], X, len(np.unique(classes)), seed, threads))
    publish(out / "surprise.md", summary(store.records))


# The tables.


def band(n: int) -> tuple[int, int]:
    """Return the numbers of n rows between which 95 % of draws lie, if each row is flagged at the rate."""
    low, high = binom.interval(0.95, n, RATE)
    return int(low), int(high)


def holds(record: Record) -> bool:
    """Return whether as many held-back rows are flagged as the rate says."""
    low, high = band(record["held back"])
    return low <= record["flagged"] <= high


def least_total(records: list[Record]) -> int | None:
    """Return the least total from which on enough shuffled rows of every set are flagged; None if there is none."""
    for place, total in enumerate(TOTALS):
        known = [each["shuffled"][place] for each in records if place < len(each["shuffled"])]
        if known and all(flagged >= FLAGGED * n for n, flagged in known):
            return total
    return None


def summary(records: list[Record]) -> list[str]:
    """Return the tables."""
    lines = [
        f"*Flagged* is the share of held-back rows whose surprise is at most {RATE:.0%}, and the *band* is where 95 % "
        "of draws lie if each row is flagged at this rate. *Shuffled* rows have their values at random features.",
    ]
    for kind in SETS:
        if some := [each for each in records if each["kind"] == kind]:
            lines += section(kind.capitalize(), summary_of_kind(some))
    return lines


def summary_of_kind(records: list[Record]) -> list[str]:
    """Return the table of a kind, and what it says."""
    missed, total = [each["set"] for each in records if not holds(each)], least_total(records)
    flagged, held = (sum(each[key] for each in records) for key in ("flagged", "held back"))
    names = f" ({', '.join(missed)})" if missed else ""
    where = {None: "at no total", 0: "whatever their total"}.get(total, f"if their total is at least {total}")
    columns = ["set", "features", "clusters", "fitted", "held back", "flagged", "band", "shuffled flagged"]
    return [
        f"{len(missed)} of {len(records)} sets are outside their band{names}; 1 is allowed: "
        f"{MISSED[len(missed) <= 1]}. Over all sets, {flagged / held:.1%} are flagged. "
        f"At least {FLAGGED:.0%} of the shuffled rows of each set are flagged, {where}.",
        "",
        *table(columns, map(row_of, records)),
    ]


def row_of(record: Record) -> list[str]:
    """Return a row of the table of a kind."""
    n = record["held back"]
    low, high = (count / n for count in band(n))
    numbers = (f"{record[key]:,}" for key in ("features", "clusters", "fitted", "held back"))
    share = bold(f"{record['flagged'] / n:.1%}", not holds(record))
    rows, flagged = record["shuffled"][0]
    return [record["set"], *numbers, share, f"{low:.1%} to {high:.1%}", f"{flagged / rows:.1%}"]
