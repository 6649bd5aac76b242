"""How many free rows are found if some rows of each class are known, and if only half of the classes are known.

The known rows of a draw are the first of each class in a random order, but at most half of the class. A multinomial
classifier is trained on them alone. What is in results.json is not measured again. The tables are written as known.md.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import MultinomialNB

from onmf import ONMF
from onmf.metrics import clustering_accuracy

from .data import available, load, members_of
from .results import MISSED, Record, Store, judged, publish, section, table

NUMBERS, HALF = (1, 3, 10, 30), 10
"""Known rows of each class, and of each known class if half of the classes are known."""

NEAR, GAIN = -1.0, 3.0
"""Points that the default must reach: above the better of the classifier and adapt=1, and above no knowledge."""

METHODS = {
    "classifier": "classifier",
    "laplace": "classifier, α = 1",
    "none": "`adapt=0`",
    "all": "`adapt=1`",
    "auto": '`adapt="auto"`',
}
"""What is compared where rows of all classes are known."""


def some_known(y: Any, number: int, classes: Any, rng: np.random.Generator) -> Any:
    """Return the classes of so many rows of some classes, at most half of each, and -1 for the other rows."""
    known = np.full(len(y), -1)
    for c in classes:
        own = rng.permutation(np.flatnonzero(y == c))
        known[own[: min(number, len(own) // 2)]] = c
    return known


def measure_known(X: Any, y: Any, number: int, draw: int, threads: int) -> Record:
    """Return the accuracy on the free rows of each method, in percent, and what ``adapt`` was chosen."""
    k = int(y.max()) + 1
    known = some_known(y, number, range(k), np.random.default_rng(draw))
    free, rows = known < 0, np.flatnonzero(known >= 0)

    def accuracy(labels: Any) -> float:
        return 100 * float(np.mean(labels == y[free]))

    ways: dict[str, Any] = {"none": 0, "all": 1, "auto": "auto"}
    fit = partial(ONMF, k, random_state=draw, n_threads=threads)
    models = {name: fit(adapt=adapt).fit(X, known=known) for name, adapt in ways.items()}
    shares = members_of(known[rows], k).T @ X[rows]
    shares = shares.multiply(1 / shares.sum(axis=1)[:, None]).tocsr()
    smoothing = models["none"].divergence_.smoothing
    classifier = MultinomialNB(alpha=smoothing, fit_prior=False).fit(shares, np.arange(k))
    laplace = MultinomialNB(fit_prior=False).fit(X[rows], known[rows])
    found = {name: accuracy(model.labels_[free]) for name, model in models.items()}
    found |= {"classifier": accuracy(classifier.predict(X[free])), "laplace": accuracy(laplace.predict(X[free]))}
    return found | {"rows": len(rows), "free": int(free.sum()), "adapt": models["auto"].adapt_}


def measure_half(X: Any, y: Any, number: int, draw: int, threads: int) -> Record:
    """Return the accuracy, in percent, of a fit with half of the classes known, and of the same without knowledge."""
    k, rng = int(y.max()) + 1, np.random.default_rng(draw)
    classes = np.sort(rng.permutation(k)[: k // 2])
    known = some_known(y, number, classes, rng)
    model = ONMF(k, init="random-partition", n_init=10, random_state=draw, n_threads=threads)
    without, found = model.fit_predict(X), model.fit_predict(X, known=known)
    free, settled = known < 0, np.isin(y, classes) | np.isin(found, classes)
    others = ~settled
    named = np.sum(found[settled] == y[settled])
    if others.any():
        named = named + clustering_accuracy(y[others], found[others]) * others.sum()
    return {
        "without": 100 * clustering_accuracy(y, without),
        "with": 100 * clustering_accuracy(y, found),
        "named": 100 * float(named) / len(y),
        "without, free": 100 * clustering_accuracy(y[free], without[free]),
        "with, free": 100 * clustering_accuracy(y[free], found[free]),
        "adapt": model.adapt_,
    }


PARTS = {"known": (measure_known, NUMBERS), "half": (measure_half, (HALF,))}


def run(
    parts: tuple[str, ...] = tuple(PARTS),
    sets: tuple[str, ...] = (),
    draws: int = 5,
    threads: int = 2,
    out: Path = Path("docs/known"),
) -> None:
    """Measure what is not measured yet, and write the tables."""
    for name in sets or available("documents"):
        X, classes = load(name)
        y = np.unique(classes, return_inverse=True)[1]
        for part in parts:
            measure, numbers = PARTS[part]
            store = Store(out / "results.json", ("set", "number", "draw"), part)
            for number in numbers:
                for draw in range(draws):
                    about = {"set": name, "number": number, "draw": draw}
                    if store.key(about) not in store:
                        store.add(about | measure(X, y, number, draw, threads))
    publish(out / "known.md", summary(store.content))


# The tables.


def summary(results: dict[str, list[Record]]) -> list[str]:
    """Return the tables."""
    known, half = (results.get(part, []) for part in PARTS)
    lines = [
        "Accuracy in percent. Each set counts the same in a mean. A class has at most half of its rows known.",
        *(section("Rows of all classes are known", summary_of_known(known, half)) if known else ()),
        *(section("Half of the classes are known", summary_of_half(half)) if half else ()),
    ]
    return lines


def mean(records: list[Record], key: str) -> float:
    """Return the mean over the sets of the mean over the draws."""
    sets = dict.fromkeys(record["set"] for record in records)
    return float(np.mean([np.mean([each[key] for each in records if each["set"] == name]) for name in sets]))


def of_each_set(records: list[Record]) -> dict[str, list[Record]]:
    """Return the records of each set, in the order of the sets."""
    return {
        name: [each for each in records if each["set"] == name]
        for name in sorted({r["set"] for r in records}, key=str.lower)
    }


def summary_of_known(records: list[Record], half: list[Record]) -> list[str]:
    """Return the means over the sets, and the accuracies of each set, by the number of known rows."""
    by_number = {n: [each for each in records if each["number"] == n] for n in sorted({r["number"] for r in records})}
    means = []
    for number, some in by_number.items():
        found = {method: mean(some, method) for method in METHODS}
        gap = found["auto"] - max(found["classifier"], found["all"])
        verdict = MISSED[judged(gap, f"≥ {NEAR}")["met"]]
        means.append([str(number), *(f"{value:.1f}" for value in found.values()), f"{gap:+.1f} {verdict}"])
    unknown = {name: f"{mean(some, 'without'):.0f}" for name, some in of_each_set(half).items()}
    sets = []
    for name, some in of_each_set(records).items():
        cells = ([each for each in some if each["number"] == number] for number in by_number)
        shown = (" / ".join(f"{mean(c, way):.0f}" for way in ("classifier", "all", "auto")) if c else "" for c in cells)
        sets.append([name, unknown.get(name, ""), *shown])
    return [
        f"The mean accuracy on the free rows of {len(sets)} sets, by the number of known rows of each class. The "
        "classifier is scikit-learn's `MultinomialNB` with equal priors, with the smoothing of the fit and with its "
        "own. The last column is the default less the better of the first classifier and `adapt=1`; the goal is at "
        f"least {NEAR:g}.",
        "",
        *table(["known rows", *METHODS.values(), "difference"], means),
        "",
        'The same of each set: classifier / `adapt=1` / `adapt="auto"`; and the accuracy on all rows if nothing is '
        "known, as in the next table.",
        "",
        *table(["set", "0", *map(str, by_number)], sets),
    ]


def summary_of_half(records: list[Record]) -> list[str]:
    """Return the accuracy with half of the classes known, and without."""
    keys = ("without", "with", "named", "without, free", "with, free")
    rows = [[name, *(f"{mean(some, key):.1f}" for key in keys)] for name, some in of_each_set(records).items()]
    gain = mean(records, "with") - mean(records, "without")
    return [
        f"{records[0]['number']} rows of each known class, and the same start and number of runs with and without. On "
        f"all rows, knowledge gains {gain:.1f} points; the goal is {GAIN:g}: "
        f"{MISSED[judged(gain, f'≥ {GAIN}')['met']]}. *As named*: a known cluster counts for its own class only.",
        "",
        *table(
            ["set", "without", "with", "with, as named", "without, free rows", "with, free rows"],
            [*rows, ["**mean**", *(f"{mean(records, key):.1f}" for key in keys)]],
        ),
    ]


if __name__ == "__main__":
    run()
