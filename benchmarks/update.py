"""What monthly updates find: nothing where nothing is new, and a subject that was not there before.

20 Newsgroups is parted into six months at random. The first is clustered as ``onmf documents`` does, and the model is
updated by each of the others. *Random*: the months have the same subjects, so that no cluster is new; the last model
assigns the documents of all months, which one fit clusters for comparison. *New*: each of the twenty newsgroups in turn
comes up in the fourth month. It is found if most of its documents are in one new cluster, and most of that cluster are
its own. What is in results.json is not measured again. The tables are written as update.md.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.door import Clusters, cluster_table, predict_table
from onmf.metrics import clustering_accuracy
from onmf.text.kind import DOCUMENTS

from .data import load
from .results import MISSED, Record, Store, publish, section, table
from .surprise import tabled

MONTHS, FOURTH = 6, 3
PARTITIONS, FITS = 10, 2
FALSE, FOUND = 0.1, 15
"""The share of months in which a cluster may be invented, and the newsgroups that are to be found."""


def parted(n: int, seed: int) -> Any:
    """Return the month of each document."""
    return np.random.default_rng(seed).integers(0, MONTHS, n)


def first_fit(X: Any, rows: Any, k: int, threads: int) -> Clusters:
    """Cluster the documents of the first month."""
    return cluster_table(DOCUMENTS, tabled(DOCUMENTS, X[rows]), k, n_threads=threads)


def measure_random(X: Any, y: Any, seed: int, threads: int) -> Record:
    """Return how many clusters are new in each month, and how the last model and one fit find the classes."""
    month, k = parted(len(y), seed), int(y.max()) + 1
    found = first_fit(X, month == 0, k, threads)
    alone, new = found.model, []
    for number in range(1, MONTHS):
        found = found.update(tabled(DOCUMENTS, X[month == number]))
        new.append(found.updated.status.count("new") if found.updated else 0)
    everything = tabled(DOCUMENTS, X)
    first, last = (predict_table(model, everything, kind=DOCUMENTS).labels for model in (alone, found.model))
    return {"new": new, "first": clustering_accuracy(y, first), "last": clustering_accuracy(y, last)}


def measure_one(X: Any, y: Any, seed: int, threads: int) -> Record:
    """Return how one fit of all months finds the classes."""
    found = cluster_table(DOCUMENTS, tabled(DOCUMENTS, X), int(y.max()) + 1, n_threads=threads, random_state=seed)
    return {"accuracy": clustering_accuracy(y, found.labels)}


def measure_new(X: Any, y: Any, newsgroup: int, threads: int) -> Record:
    """Return the new clusters of each month up to the fourth, in which a newsgroup comes up first."""
    month, k = parted(len(y), newsgroup), int(y.max()) + 1
    there = y != newsgroup
    found = first_fit(X, (month == 0) & there, k, threads)
    new = []
    for number in range(1, FOURTH + 1):
        rows = np.flatnonzero((month == number) & (there | (number == FOURTH)))
        found = found.update(tabled(DOCUMENTS, X[rows]))
        assert found.updated is not None
        clusters = [c for c, status in enumerate(found.updated.status) if status == "new"]
        new.append(len(clusters))
    own = y[rows] == newsgroup
    best = {"recall": 0.0, "precision": 0.0}
    for cluster in clusters:
        inside = found.labels == cluster
        shares = {"recall": float(inside[own].mean()), "precision": float(own[inside].mean())}
        best = max(best, shares, key=lambda each: min(each.values()))
    return {"new": new, **best, "found": min(best.values()) > 0.5}


def run(
    parts: tuple[str, ...] = ("new", "random", "one"),
    name: str = "NG20",
    draws: int = PARTITIONS,
    threads: int = 2,
    out: Path = Path("docs/update"),
) -> None:
    """Measure what is not measured yet, and write the tables."""
    X, classes = load(name)
    X, y = csr_array(X), np.unique(classes, return_inverse=True)[1]
    for part in parts:
        measure, key, numbers = {
            "random": (measure_random, "seed", draws),
            "new": (measure_new, "newsgroup", int(y.max()) + 1),
            "one": (measure_one, "seed", FITS),
        }[part]
        store = Store(out / "results.json", (key,), part)
        for number in range(numbers):
            if store.key({key: number}) not in store:
                store.add({key: number} | measure(X, y, number, threads))
    publish(out / "update.md", summary(store.content))


# The tables.


def summary(results: dict[str, list[Record]]) -> list[str]:
    """Return the tables."""
    random, new, one = (results.get(part, []) for part in ("random", "new", "one"))
    return [
        *(section("A newsgroup comes up in the fourth month", summary_of_new(new)) if new else ()),
        *(section("Months with the same subjects", summary_of_random(random, one)) if random else ()),
    ]


def summary_of_new(records: list[Record]) -> list[str]:
    """Return what was found of each newsgroup."""
    found, months = sum(each["found"] for each in records), sum(len(each["new"]) - 1 for each in records)
    invented = sum(sum(map(bool, each["new"][:-1])) for each in records)
    verdict = MISSED[found >= FOUND] if len(records) == 20 else ""
    return [
        f"{found} of {len(records)} newsgroups are found {verdict} (goal: {FOUND} of 20). A cluster was invented in "
        f"{invented} of {months} months before the fourth.",
        "",
        *table(
            ["newsgroup", "new clusters by month", "of its documents in one", "of that its own", "found"],
            [
                [
                    str(each["newsgroup"]),
                    ", ".join(map(str, each["new"])),
                    f"{each['recall']:.0%}",
                    f"{each['precision']:.0%}",
                    "✓" if each["found"] else "",
                ]
                for each in records
            ],
        ),
    ]


def summary_of_random(records: list[Record], one: list[Record]) -> list[str]:
    """Return the clusters that were invented, and what the last model finds."""
    months = [bool(new) for each in records for new in each["new"]]
    verdict = MISSED[sum(months) <= FALSE * len(months)]
    alone = f" One fit of all months finds {np.mean([each['accuracy'] for each in one]):.1%}." if one else ""
    return [
        f"Clusters were invented in {sum(months)} of {len(months)} months {verdict} (goal: one month of ten at most). "
        f"Of the documents of all months, the first model puts {np.mean([each['first'] for each in records]):.1%} into "
        f"the right cluster, and the last one {np.mean([each['last'] for each in records]):.1%}.{alone}",
        "",
        *table(
            ["partition", "new clusters by month", "first model", "last model"],
            [
                [
                    str(each["seed"]),
                    ", ".join(map(str, each["new"])),
                    *(f"{each[name]:.1%}" for name in ("first", "last")),
                ]
                for each in records
            ],
        ),
    ]


if __name__ == "__main__":
    run()
