"""How many clusters -k auto finds, and at which levels, where a number is known.

The parts: *made* documents have 2 to 30 clusters, of equal or unequal sizes, with and without bursts: in a document
with bursts, a word that occurs once is likely to occur again. *Nested* documents have groups of clusters. *Nothing* is
counts without clusters. *Sets* are all labelled sets on this machine, whole and restricted to some of their classes, so
that the numbers differ; on whole sets of counts also what held-out counts would choose. *Seconds* is what doors wait.
What is in results.json is not measured again. The tables are written as number.md.
"""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

from onmf import Selection
from onmf.cells.kind import CELLS
from onmf.datasets import load_docstrings, load_hyperspectral, make_counts
from onmf.door import Kind, Table
from onmf.image import Cube
from onmf.image.kind import IMAGE
from onmf.select import Range
from onmf.table import TABLE

from .cells.compare import NO_CELLS
from .data import available, load, members_of
from .measure import describe_machine, timed
from .results import MISSED, Record, Store, bold, judged, publish, section, table

NUMBERS = (2, 3, 5, 8, 12, 20, 30)
ROWS, WORDS, LENGTH, OVERLAP = 60, 1000, 120, 0.3
"""Made documents for each cluster, on average; their words, their mean length, and what all profiles have in common."""

BURSTS = {"none": None, "some": 100.0, "strong": 30.0}
"""How much words come in bursts: the concentration of the Dirichlet distribution around a cluster's profile."""

HALVED = 4
"""The largest of the unequal clusters has so many times the documents of the smallest."""

GROUPS, CLUSTERS, OWN = 3, 12, (0.3, 0.4, 0.5, 0.6, 0.7)
"""Nested documents: groups, clusters in all, and the share of a cluster's profile that its group does not have."""

SIZES, WIDTHS = (200, 1_000, 5_000), {"sparse": (2_000, 60.0), "dense": (100, 2_000.0)}
"""Counts without clusters: rows; features and mean sum of a row."""

STRUCTURELESS = {
    "Poisson": (0.0, None),
    "uneven rows": (1.0, None),
    "overdispersed": (0.0, (1.0, 1.0)),
    "overdispersed, each feature differently": (0.0, (0.1, 10.0)),
    "uneven rows, each feature overdispersed differently": (1.0, (0.1, 10.0)),
}
"""How counts without clusters vary: the standard deviation of the logarithms of the sums of their rows, and the
smallest and the largest shape of the gamma distributions that multiply their means."""

ALARMS = 0.1
"""The share of counts without clusters in which clusters may be found."""

KINDS = {"documents": "documents", "cells": "cells", "hyperspectral": "images"}
"""What the labelled sets of each kind are called here."""

UNSEEN_SETS = {
    "digits": lambda: load_digits(return_X_y=True),
    "docstrings": lambda: attrgetter("X", "y")(load_docstrings()),
}
"""Labelled sets that nobody looked at before the rule was settled: images of digits by their pixels, and docstrings."""

SHARES = {"whole": 1.0, "half": 0.5, "quarter": 0.25}
"""Shares of its classes to which a labelled set is restricted."""

CONSTANTS, LARGEST = (4, 7, 15), 60
"""Levels that know nothing of the data, and the largest number among those that are chosen in hindsight."""

CLOSE, NEAR, RANKED = 1.5, 2.0, 0.6
"""Factors within which a level and the medium level should be, and the rank correlation that is asked for."""

LIMITS = {"jasper": 20, "zheng_facs10": 15, "NG20": 90}
"""Seconds that a choice may take on two cores."""

CELLS_TIMED = 3_000
"""Cells of the set that is timed."""

UNSEEN = 1e-3
"""Added to the sums of a cluster, so that no feature has probability 0."""


# The choice, by the door of each kind of data.


def by_door(kind: Kind, rows: Any, threads: int, **options: Any) -> tuple[Selection, Any]:
    """Choose the number of clusters as a door does. → the choice, and the rows that were used, as they are clustered"""
    parameters = {"random_state": 0, "n_threads": threads}
    prepared = kind.prepare(rows, parameters, lambda name, share: None, **options)
    found = kind.choose(prepared, Range(), parameters, lambda share: None)
    return found, kind.rows_to_cluster(prepared, found.rows)


def of_counts(X: Any, threads: int, kind: Kind = TABLE) -> tuple[Selection, Any]:
    """Choose the number of clusters of counts."""
    names = ([str(i) for i in range(size)] for size in X.shape)
    return by_door(kind, Table(X, *names), threads)


def of_image(cube: Any, inside: Any, threads: int) -> tuple[Selection, Any]:
    """Choose the number of clusters of some of the pixels of an image."""
    return by_door(IMAGE, Cube(cube, mask=inside), threads, negatives="clip", blocks=False)


def record_of(choose: Callable[[], tuple[Selection, Any]]) -> tuple[Record, Selection, Any]:
    """Return a choice as a record, the choice, and the rows that were used."""
    (wall, spent), (found, rows) = timed(choose, clock=lambda: np.array([perf_counter(), process_time()]))
    record = {
        "levels": {level.name: level.n_clusters for level in found.levels},
        "draws": found.draws,
        "as_good": found.as_good,
        "rows": found.n_rows,
        "of": found.n_total,
        "largest": int(found.numbers[-1]),
        "seconds": round(float(spent), 2),
        "wall": round(float(wall), 2),
    }
    return record, found, rows


def measure_counts(make: Callable[[], csr_array], threads: int) -> Record:
    """Choose the number of clusters of counts that are made when they are needed."""
    return record_of(partial(of_counts, make(), threads))[0]


# Made data.


def made(k: int, *, unequal: bool, concentration: float | None, seed: int, rows: int = ROWS) -> csr_array:
    """Make documents of k clusters."""
    found = make_counts(2 * HALVED * rows * k, WORDS, k, length=LENGTH, overlap=OVERLAP, random_state=seed)
    weights = HALVED ** np.linspace(0, 1, k) if unequal else np.ones(k)
    sizes = np.rint(rows * k * weights / weights.sum()).astype(int)
    some = np.concatenate([np.flatnonzero(found.y == label)[:size] for label, size in enumerate(sizes)])
    X = csr_array(found.X[some])
    if concentration is None:
        return X
    rng = np.random.default_rng([seed, k])
    shares = rng.gamma(concentration * found.profiles[found.y[some]]) + 1e-300
    return csr_array(rng.multinomial(X.sum(axis=1), shares / shares.sum(axis=1, keepdims=True)))


def nested(own: float, seed: int) -> csr_array:
    """Make documents of groups of clusters; a cluster's profile has a share of its own, and the rest from its group."""
    groups, clusters = (
        make_counts(1, WORDS, k, overlap=OVERLAP, random_state=2 * seed + i).profiles
        for i, k in enumerate((GROUPS, CLUSTERS))
    )
    profiles = (1 - own) * np.repeat(groups, CLUSTERS // GROUPS, axis=0) + own * clusters
    rng = np.random.default_rng(seed)
    lengths = np.maximum(rng.poisson(LENGTH, ROWS * CLUSTERS), 1)
    return csr_array(rng.multinomial(lengths, np.repeat(profiles, ROWS, axis=0)))


def nothing(how: str, rows: int, width: str, seed: int) -> csr_array:
    """Make counts without clusters: every row has the same expected shares."""
    spread, shapes = STRUCTURELESS[how]
    features, length = WIDTHS[width]
    rng = np.random.default_rng(seed)
    shares = rng.permutation(1 / np.arange(1, features + 1))
    means = length * np.outer(rng.lognormal(-(spread**2) / 2, spread, rows), shares / shares.sum())
    if shapes is not None:
        shape = np.exp(rng.uniform(*np.log(shapes), features))
        means *= rng.gamma(shape, 1 / shape, means.shape)
    return csr_array(rng.poisson(means))


# Labelled sets.


def kind_of(name: str) -> str:
    """Return which kind of data a set is."""
    if name in NO_CELLS:
        return "microbiome"
    if name in UNSEEN_SETS:
        return "unseen"
    return next((title for kind, title in KINDS.items() if name in available(kind)), "documents")


def labelled(name: str, kind: str) -> tuple[Any, Any, int]:
    """Return the rows of a set, the class of each, -1 if it is unknown, and the number of classes."""
    if kind != "images":
        X, y = UNSEEN_SETS[name]() if kind == "unseen" else load(name)
        classes, codes = np.unique(y, return_inverse=True)
        return X, codes, len(classes)
    scene = load_hyperspectral(name)
    shares: Any = scene.abundances
    main = np.where(np.isnan(shares).any(axis=0), -1, shares.argmax(axis=0))
    shape = (scene.height, scene.width)
    return scene.X.reshape(*shape, -1, order=scene.order), main.reshape(shape, order=scene.order), len(shares)


def subsets(k: int, share: str, draws: int) -> list[list[int]]:
    """Draw different subsets of k classes; all classes if the share is the whole, and none if it is too small."""
    size = round(k * SHARES[share])
    if size == k:
        return [list(range(k))]
    every = list(itertools.combinations(range(k), size)) if size > 1 else []
    return [list(every[i]) for i in np.random.default_rng(0).permutation(len(every))[:draws]]


def measure_set(name: str, among: list[int], whole: bool, threads: int) -> Record:
    """Choose the number of clusters of a set that is restricted to some of its classes."""
    kind = kind_of(name)
    X, y, _ = labelled(name, kind)
    inside = np.ones(y.shape, dtype=bool) if whole else np.isin(y, among)
    if kind == "images":
        return record_of(partial(of_image, X, inside, threads))[0]
    record, found, rows = record_of(partial(of_counts, X[inside], threads, CELLS if kind == "cells" else TABLE))
    return record | {"held_out": by_held_out(found, rows)} if whole else record


def by_held_out(found: Selection, rows: Any) -> int:
    """Return the number of clusters whose profiles predict the counts of the other half of the rows best.

    The counts of each row are halved: one part selects the cluster, the other is predicted. The answer is the smallest
    number within a standard error, over the halves, of the best.
    """
    X, rng = csr_array(rows), np.random.default_rng(0)
    scores: list[list[float]] = []
    for first, pair in zip(found.halves.inside, found.halves.labels, strict=True):
        for seen, by_number in zip((first, ~first), pair, strict=True):
            known, other = X[seen], X[~seen]
            hidden = other.copy()
            hidden.data = rng.binomial(other.data.astype(np.int64), 0.5)
            totals = hidden.sum(axis=1)
            scores.append([])
            for labels, k in zip(by_number[:, seen], found.numbers.tolist(), strict=True):
                profiles = (members_of(labels, k).T @ known).toarray() + UNSEEN
                logs = np.log(profiles / profiles.sum(axis=1, keepdims=True)).T
                likelihoods = np.take_along_axis(hidden @ logs, ((other - hidden) @ logs).argmax(axis=1)[:, None], 1)
                scores[-1].append(np.mean(likelihoods[totals > 0, 0] / totals[totals > 0]))
    means, errors = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1) / np.sqrt(len(scores))
    best = means.argmax()
    return int(found.numbers[means >= means[best] - errors[best]][0])


# What each part measures: records without results, and functions that measure.

Cases = Iterator[tuple[Record, Callable[[], Record]]]


def cases_made(numbers: tuple[int, ...], seeds: int, threads: int) -> Cases:
    """Yield made documents."""
    for true, unequal, bursts, seed in itertools.product(numbers, (False, True), BURSTS, range(seeds)):
        about = {"true": true, "unequal": unequal, "bursts": bursts, "seed": seed}
        X = partial(made, true, unequal=unequal, concentration=BURSTS[bursts], seed=seed)
        yield about, partial(measure_counts, X, threads)


def cases_nested(seeds: int, threads: int) -> Cases:
    """Yield nested documents."""
    for own, seed in itertools.product(OWN, range(seeds)):
        X = partial(nested, own, seed)
        yield {"own": own, "seed": seed}, partial(measure_counts, X, threads)


def cases_nothing(seeds: int, threads: int) -> Cases:
    """Yield counts without clusters."""
    for seed, how, rows, width in itertools.product(range(seeds), STRUCTURELESS, SIZES, WIDTHS):
        X = partial(nothing, how, rows, width, seed)
        about = {"how": how, "n": rows, "width": width, "seed": seed}
        yield about, partial(measure_counts, X, threads)


def cases_sets(sets: Iterable[str], draws: int, threads: int) -> Cases:
    """Yield labelled sets: first all of them whole, then one draw of classes after the other."""
    sizes = {name: labelled(name, kind_of(name))[-1] for name in sets}
    found = [
        (draw, share, name, among)
        for name, k in sizes.items()
        for share in SHARES
        for draw, among in enumerate(subsets(k, share, draws))
    ]
    for draw, share, name, among in sorted(found, key=lambda case: (case[1] != "whole", case[0])):
        about = {"set": name, "kind": kind_of(name), "share": share, "draw": draw, "classes": among}
        yield about, partial(measure_set, name, among, share == "whole", threads)


def cases_seconds(threads: int) -> Cases:
    """Yield whole sets, by their doors."""
    for name in LIMITS:
        yield {"set": name, "kind": kind_of(name)}, partial(measure_seconds, name, threads)


def measure_seconds(name: str, threads: int) -> Record:
    """Measure what the choice takes on a clock."""
    kind = kind_of(name)
    X, y, _ = labelled(name, kind)
    if kind == "images":
        choose = partial(of_image, X, None, threads)
    elif kind == "cells":
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:CELLS_TIMED])
        choose = partial(of_counts, X[some], threads, CELLS)
    else:
        choose = partial(of_counts, X, threads)
    return record_of(choose)[0] | {"machine": describe_machine(), "load": os.getloadavg()[1]}


KEYS = {
    "made": ("true", "unequal", "bursts", "seed"),
    "nested": ("own", "seed"),
    "nothing": ("how", "n", "width", "seed"),
    "sets": ("set", "share", "draw"),
    "seconds": ("set",),
}
"""What tells the records of each part apart."""


def run(
    parts: tuple[str, ...] = tuple(KEYS),
    numbers: tuple[int, ...] = NUMBERS,
    sets: tuple[str, ...] = (),
    seeds: int = 2,
    draws: int = 3,
    threads: int = 2,
    out: Path = Path("docs/number"),
) -> None:
    """Measure what is not measured yet, and write the tables."""
    cases = {
        "made": cases_made(numbers, seeds, threads),
        "nested": cases_nested(seeds, threads),
        "nothing": cases_nothing(seeds, threads),
        "sets": cases_sets(sets or (*available(*KINDS), *UNSEEN_SETS), draws, threads),
        "seconds": cases_seconds(threads),
    }
    results = out / "results.json"
    for part in parts:
        store = Store(results, KEYS[part], part)
        for about, measure in cases[part]:
            if store.key(about) not in store:
                store.add(about | measure())
    publish(out / "number.md", summary(json.loads(results.read_text("utf-8"))))


# The tables.


def summary(results: dict[str, list[Record]]) -> list[str]:
    """Return the tables."""
    tables = {
        "made": ("Made documents", summary_of_made),
        "nested": ("Nested documents", summary_of_nested),
        "nothing": ("Counts without clusters", summary_of_nothing),
        "sets": ("Labelled sets", summary_of_sets),
        "seconds": ("Time", summary_of_seconds),
    }
    lines = [
        "Levels are given from coarse to fine, the medium one in bold, and 1 if no clusters were found. A + marks the "
        "largest number that was tried. Where a cell is empty, nothing was measured.",
    ]
    for part, (title, lines_of) in tables.items():
        if results.get(part):
            lines += section(title, lines_of(results[part]))
    return lines


def levels_of(record: Record) -> list[int]:
    """Return the numbers of all levels."""
    return list(record["levels"].values()) or [1]


def medium_of(record: Record) -> int:
    """Return the number of the medium level."""
    return record["levels"].get("medium", 1)


def shown(records: Iterable[Record]) -> str:
    """Return the levels of each record."""

    def number(record: Record, k: int) -> str:
        return bold(f"{k}{'+' if k == record['largest'] else ''}", k == medium_of(record))

    return ", ".join(" ".join(number(record, k) for k in levels_of(record)) for record in records)


def grouped(records: Iterable[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return records by some of their entries, in the order in which they were first met."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), []).append(record)
    return found


def summary_of_made(records: list[Record]) -> list[str]:
    """Return the levels of made documents, and how often they are right."""
    rows = []
    for (unequal, true), some in grouped(records, "unequal", "true").items():
        by_bursts = grouped(some, "bursts")
        cells = (shown(by_bursts.get((bursts,), ())) for bursts in BURSTS)
        rows.append([str(true), f"1 to {HALVED}" if unequal else "equal", *cells])
    away = np.array([abs(medium_of(record) - record["true"]) for record in records])
    other = sum(record["true"] in levels_of(record) for record, off in zip(records, away.tolist(), strict=True) if off)
    return [
        f"About {ROWS} for each cluster; the levels of each seed. The medium level is exact in "
        f"{np.mean(away == 0):.0%}, and exact or off by one in {np.mean(away <= 1):.0%} of {len(away)} cases. In "
        f"{other} of the {np.sum(away > 0)} cases that are not exact, the right number is another level.",
        "",
        *table(["clusters", "sizes", *(f"bursts: {name}" for name in BURSTS)], sorted(rows, key=by_sizes), "rllll"),
    ]


def by_sizes(row: list[str]) -> tuple[bool, int]:
    """Return what a row of made documents is sorted by."""
    return row[1] != "equal", int(row[0])


def summary_of_nested(records: list[Record]) -> list[str]:
    """Return the levels of nested documents, and how often both are found."""
    found = [{GROUPS, CLUSTERS} <= set(levels_of(record)) for record in records]
    rows = [[f"{own:.0%}", shown(some)] for (own,), some in grouped(records, "own").items()]
    return [
        f"{GROUPS} groups of {CLUSTERS // GROUPS} clusters, {ROWS} documents for each cluster. Its profile is a "
        f"mixture of the profile of its group and one of its own. Both {GROUPS} and {CLUSTERS} are levels in "
        f"{sum(found)} of {len(found)} cases.",
        "",
        *table(["own share", "levels of each seed"], rows, "rl"),
    ]


def summary_of_nothing(records: list[Record]) -> list[str]:
    """Return how often clusters were found where there are none."""
    columns = list(itertools.product(WIDTHS, SIZES))
    rows = []
    for (how,), some in grouped(records, "how").items():
        cases = grouped(some, "width", "n")
        rows.append([how, *(shown(cases.get(column, ())) for column in columns)])
    wrong = sum(bool(record["levels"]) for record in records)
    met = judged(wrong / len(records), f"≤ {ALARMS}")["met"]
    return [
        f"Each row has the same expected shares. Clusters were found in {wrong} of {len(records)} draws; "
        f"{int(ALARMS * len(records))} are allowed: {MISSED[met]}. The levels of each draw:",
        "",
        *table(["counts", *(f"{width}, {n:,} rows" for width, n in columns)], rows, "l" * (1 + len(columns))),
    ]


def summary_of_sets(records: list[Record]) -> list[str]:
    """Return the levels of labelled sets, and how near they are to the numbers of classes."""
    whole = [record for record in records if record["share"] == "whole"]
    draws = 1 + max(record["draw"] for record in records)
    seen, unseen = ([each for each in records if (each["kind"] == "unseen") == other] for other in (False, True))
    parts = {"all": seen, "whole sets": [each for each in seen if each["share"] == "whole"], "unseen": unseen}
    return [
        "Sets are whole, and restricted to a half and a quarter of their classes, rounded, if these are at least two; "
        f"at most {draws} different draws of each (seed 0). The classes of an image are its endmembers, and a pixel "
        "belongs to the one with the largest share. Nobody looked at the digits and the docstrings before the rule was "
        "settled. The number of classes, and the levels of each draw:",
        "",
        *table(["set", "CPU seconds", *SHARES], rows_of_sets(records), "lrlll"),
        "",
        f"On whole sets, no level is within a factor of {CLOSE:g} on {names_of_far(whole, levels_of, CLOSE)}; "
        f"the medium level is not within a factor of {NEAR:g} on {names_of_far(whole, medium_of, NEAR)}.",
        *section(
            "How near the levels are to the number of classes",
            nearness({name: some for name, some in parts.items() if some}),
        ),
        *section("Held-out counts as the criterion", held_out([each for each in whole if "held_out" in each])),
    ]


def rows_of_sets(records: list[Record]) -> Iterator[list[str]]:
    """Yield the rows of the table of labelled sets. The time is that of the whole set."""
    for (_, name), some in sorted(grouped(records, "kind", "set").items(), key=lambda item: str(item[0]).lower()):
        shares = grouped(some, "share")
        known = {share: shares.get((share,), []) for share in SHARES}
        spent = sum(record["seconds"] for record in known["whole"])
        cells = (f"{len(of[0]['classes'])}: {shown(of)}" if of else "" for of in known.values())
        yield [name, f"{spent:.0f}", *cells]


def within(answers: Any, classes: Any, factor: float) -> Any:
    """Return whether numbers differ from the numbers of classes by no more than a factor."""
    ratios = np.asarray(answers) / np.asarray(classes)
    return np.maximum(ratios, 1 / ratios) <= factor


def names_of_far(records: list[Record], answers: Callable[[Record], Any], factor: float) -> str:
    """Return the names of the sets to whose number of classes no answer is near."""
    far = [record for record in records if not within(answers(record), len(record["classes"]), factor).any()]
    return ", ".join(sorted((record["set"] for record in far), key=str.lower)) or "none"


def best_constants(classes: Any, size: int, factor: float) -> tuple[tuple[int, ...], float]:
    """Return the constants that, in hindsight, are near most numbers of classes, and to which share of them."""
    numbers = np.arange(2, LARGEST + 1)
    near = within(numbers[:, None], classes, factor)
    every = np.array(list(itertools.combinations(range(len(numbers)), size)))
    shares = near[every].any(axis=1).mean(axis=1)
    best = int(shares.argmax())
    return tuple(numbers[every[best]].tolist()), float(shares[best])


def nearness(parts: dict[str, list[Record]]) -> list[str]:
    """Return how often levels are near the number of classes, for some sets of records, beside constants."""
    found = [list(figures(records)) for records in parts.values()]
    rows = [
        [same[0][0], *(text + (f" {MISSED[met]}" if met is not None else "") for _, text, met in same)]
        for same in zip(*found, strict=True)
    ]
    goals = [met for column in found for _, _, met in column if met is not None]
    return [
        "Constants know nothing of the data. The best ones are chosen in hindsight, on the same cases. Within a factor "
        f"of {CLOSE:g}, {listed(CONSTANTS)} are near every number from {math.ceil(CONSTANTS[0] / CLOSE)} to "
        f"{math.floor(CONSTANTS[-1] * CLOSE)}, and others near every number from 2 to 21, so three constants cannot be "
        "beaten where all numbers are in such a range. The levels of another case show how much the data matter. The "
        f"goals are to be near more often than constants, and a rank correlation of at least {RANKED:g}: "
        f"{goals.count(False)} of {len(goals)} are missed.",
        "",
        *table(["", *parts], rows),
    ]


def figures(records: list[Record]) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the name and the value of each figure of some records, and whether it meets its goal, if it has one."""
    classes = np.array([len(record["classes"]) for record in records])
    others = ~np.eye(len(records), dtype=bool)
    yield "cases", str(len(records)), None
    for answers, factor, constants, title in (
        ([levels_of(record) for record in records], CLOSE, CONSTANTS, "a level"),
        ([[medium_of(record)] for record in records], NEAR, CONSTANTS[1:2], "the medium level"),
    ):
        near = np.array([[within(some, k, factor).any() for some in answers] for k in classes])  # of each case to each
        share = near.diagonal().mean()
        given = within(np.array(constants)[:, None], classes, factor).any(axis=0).mean()
        best, highest = best_constants(classes, len(constants), factor)
        yield f"{title} within a factor of {factor:g}", f"{share:.0%}", None
        yield f"— {listed(constants)} instead", f"{given:.0%}", bool(share > given)
        yield "— the best constants instead", f"{highest:.0%} ({listed(best)})", bool(share > highest)
        yield f"— {title} of another case instead", f"{near[others].mean():.0%}", None
    ranks = rank_correlation([medium_of(record) for record in records], classes)
    yield "rank correlation of the medium level", f"{ranks:.2f}", ranks >= RANKED
    yield "levels of a case, on average", f"{np.mean([len(levels_of(record)) for record in records]):.1f}", None


def listed(numbers: tuple[int, ...]) -> str:
    """Return numbers as a text."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def rank_correlation(found: Any, classes: Any) -> float:
    """Return Spearman's rank correlation; NaN if all numbers are equal."""
    return float(spearmanr(found, classes).statistic) if np.ptp(found) and np.ptp(classes) else math.nan


def held_out(records: list[Record]) -> list[str]:
    """Return what held-out counts choose, alone and together with the agreement."""
    ways = {
        "medium level": medium_of,
        "held-out counts": lambda record: record["held_out"],
        "the smaller of both": lambda record: min(medium_of(record), record["held_out"]),
    }
    classes = [len(record["classes"]) for record in records]
    found = {name: np.array([way(record) for record in records]) for name, way in ways.items()}
    rows = [
        [record["set"], *map(str, (k, *numbers))]
        for record, k, *numbers in zip(records, classes, *found.values(), strict=True)
    ]
    near = [f"{np.mean(within(numbers, classes, NEAR)):.0%}" for numbers in found.values()]
    ranks = [f"{rank_correlation(numbers, classes):.2f}" for numbers in found.values()]
    rows = sorted(rows, key=lambda row: row[0].lower())
    rows += [[f"**within a factor of {NEAR:g}**", "", *near], ["**rank correlation**", "", *ranks]]
    return [
        "The profiles of the clusters of one half of the rows predict the rows of the other, on whole sets. The counts "
        "of each row are halved: one part selects its cluster, the other is predicted. The smallest number within one "
        "standard error of the highest likelihood is taken, so this asks for the model that predicts best, not for the "
        "clusters that are found again:",
        "",
        *table(["set", "classes", *ways], rows),
    ]


def summary_of_seconds(records: list[Record]) -> list[str]:
    """Return what a choice takes on a clock, and of the processor."""
    rows = []
    for record in records:
        target = f"≤ {LIMITS[record['set']]} s"
        used = f"{record['rows']:,} of {record['of']:,}"
        times = (f"{record[key]:.0f}" for key in ("wall", "seconds", "load"))
        rows.append([record["set"], used, *times, target, MISSED[judged(record["wall"], target)["met"]]])
    return [
        f"Seconds of the choice alone, by the door of each set, on {records[0]['machine']}. The load is the mean "
        "number of processes that wanted a core in the last five minutes: above that of cores, the clock says little.",
        "",
        *table(["set", "rows", "seconds", "CPU seconds", "load", "goal", ""], rows, "lrrrrrl"),
    ]
