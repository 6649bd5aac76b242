"""Numbers and names of clusters: one rule for documents, images and cells.

Clusters are numbered by falling size. In Python they count from 0, as labels do. In what people read (files, reports,
commands) the first number is that of the kind: :attr:`onmf.door.Kind.first`. Every cluster has a name, which is kept
in the model file under ``"names"`` and can be changed.
"""

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import xlogy

from onmf.backend import to_host
from onmf.data import Engine
from onmf.divergence import Array, divide
from onmf.estimator import ONMF, adopt_clustering, fit_model, load
from onmf.io.csv_file import plain
from onmf.io.limits import read_small
from onmf.io.model_file import read_model, write_model
from onmf.io.rules import require
from onmf.kinds import get_kind

CANDIDATES = 10  # features of a cluster from which its name is made
MAX_NAME_LENGTH = 100  # characters
SPARE = 5  # times as many features are looked at, since some are left out
MOST = 2 / 3  # of the weight of its words: an n-gram that has it stands for them
SHARED = 2 / 3  # share of the clusters over which a feature is spread, from which on it names none of them
REORDERINGS = 3  # fits at most, if rows that belong to two clusters equally change their cluster with the order


def number_by_size(model: ONMF, X: Any, engine: Engine | None = None) -> None:
    """Number the clusters of a model that was just fitted to ``X`` by falling size, the largest first, in place.

    If a row belongs to two clusters equally, it goes to the lower number, so its cluster depends on the order. Then the
    model is fitted again from its centroids; with groups it is not, since such a fit would begin without multipliers.
    """
    for fits in range(REORDERINGS + 1):
        before, k = model.clustering_, len(model.cluster_centers_)
        order = order_by_size(to_host(before.labels), k)
        if (order == np.arange(k)).all():
            return
        settled = before.group_effects is not None or before.margins is None or (to_host(before.margins) > 0).all()
        if fits == REORDERINGS or settled:
            adopt_clustering(model, before.reordered(order), model.engine_, model.divergence_)
            return
        fit_model(model, X, engine=engine, init=to_host(before.centroids)[order])
        after = model.clustering_
        both = {
            name: np.concatenate([earlier, after.history[name]])
            for name, earlier in before.history.items()
            if name in after.history
        }
        after = replace(after, n_iter=before.n_iter + after.n_iter, history=both, agreement=before.agreement)
        adopt_clustering(model, after, model.engine_, model.divergence_)


def so_many(n: int, noun: str) -> str:
    """A number of things, such as ``1 cluster`` or ``2,000 clusters``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def order_by_size(labels: Array, k: int) -> Array:
    """The clusters by falling size; equal ones keep their order. → (k,)"""
    return np.argsort(-np.bincount(labels[labels >= 0].ravel(), minlength=k), kind="stable")


def telling_features(model: ONMF, n: int, feature_names: Any = None) -> list[dict[str, float]]:
    """The distinctive features of each cluster that can name it, as :meth:`onmf.ONMF.top_features` returns them.

    Those that most clusters share tell little, however frequent they are, and are left out. With r the share of a
    feature in each cluster, normalised to sum 1 over the clusters, exp(−Σ r log r) is the number of clusters over which
    it is spread. A cluster that has no other features keeps them.
    """
    tops = model.top_features(SPARE * n, feature_names)
    _, centroids, _ = model.clustering_.by_cluster()
    if len(centroids) < 2 or (centroids < 0).any():
        return [dict(islice(top.items(), n)) for top in tops]
    shares = divide(centroids, centroids.sum(axis=1, keepdims=True))
    r = divide(shares, shares.sum(axis=0))
    spread = np.exp(-xlogy(r, r).sum(axis=0)) / len(centroids)
    names = getattr(model, "feature_names_in_", None) if feature_names is None else feature_names
    names = [f"x{j}" for j in range(len(spread))] if names is None else names
    shared = {str(names[j]) for j in np.flatnonzero(spread >= SHARED)}
    kept = [{name: weight for name, weight in top.items() if name not in shared} or top for top in tops]
    return [dict(islice(top.items(), n)) for top in kept]


def names_from_features(tops: Sequence[Mapping[str, float]], *, number: int = 3, first: int = 0) -> list[str]:
    """A short name for each cluster from its distinctive features, such as :func:`telling_features` returns.

    At most ``number`` features make a name. Those that are strongest in this cluster come first: the others do not tell
    it apart. No feature of a name is part of another: an n-gram with most of the weight of its words replaces them, as
    ``negative binomial`` does, and another one does not join them. All names differ. ``first`` is the number of the
    first cluster, for clusters without features.
    """
    by_weight = sorted((weight, -k, feature) for k, top in enumerate(tops) for feature, weight in top.items())
    strongest = {feature: -k for _, k, feature in by_weight}  # the last one counts; of equal ones, the first cluster
    names = []
    for k, top in enumerate(tops):
        chosen: list[str] = []
        for feature in sorted(top, key=lambda feature: strongest[feature] != k):  # stable: otherwise by weight
            feature = _longest(feature, top)
            if len(chosen) < number and not any(_overlap(feature, other, top) for other in chosen):
                chosen.append(feature)
        names.append(_shortened(", ".join(chosen)) or f"cluster {k + first}")
    return distinct(names)


def _longest(feature: str, top: Mapping[str, float]) -> str:
    """The n-gram that nearly stands for a feature and its other words; the feature itself if there is none."""
    for longer in top:
        words = set(longer.split())
        inside = [top[each] for each in top if set(each.split()) < words]
        if set(feature.split()) < words and top[longer] >= MOST * max(inside):
            return _longest(longer, top)
    return feature


def _overlap(one: str, other: str, top: Mapping[str, float]) -> bool:
    """Whether two features say the same: one is part of the other, or both are n-grams with a word that counts alone.

    ``file`` is part of ``files``, and ``tea`` of ``green tea``. No number is part of another, as in ``x1`` and ``x10``.
    """
    short, long = sorted((one.strip(), other.strip()), key=len)
    before, found, after = long.partition(short)
    letters = len(short) > 2 and found and not any(map(str.isdecimal, before[-1:] + after[:1]))
    common = set(short.split()) & set(long.split())
    return bool(letters) or common >= set(short.split()) or any(word in top for word in common)


Namer = Callable[[list[str], list[str]], str]
"""Names a cluster, by features that tell it from the others, the best first, and its most typical rows as texts."""


def names_by(namer: Namer, clusters: Mapping[int, tuple[list[str], list[str]]], first: int = 0) -> dict[int, str]:
    """Names that a function gives; refused if they are no names, or not different."""
    given = {number + first: namer(*what) for number, what in clusters.items()}
    for number, name in given.items():
        require(isinstance(name, str), f"namer= returned {name!r} for cluster {number}: it must return a text.")
    try:
        names = {number: allowed(number, name) for number, name in given.items()}
        _all_different(names)
    except ValueError as error:
        raise ValueError(f"namer= returned names that are not allowed. {error}") from error
    return {number - first: name for number, name in names.items()}


def _shortened(name: str) -> str:
    """A name as one line that can be shown and that is not too long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    return line if len(line) <= MAX_NAME_LENGTH else line[: MAX_NAME_LENGTH - 1] + "…"


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that occurred before: ``tea``, ``tea 2``."""
    taken, result = set(names), dict[str, None]()
    for name in names:
        if name in result:
            name = next(new for new in (f"{name} {n}" for n in count(2)) if new not in taken and new not in result)
        result[name] = None
    return list(result)


def names_of_model(model: ONMF) -> list[str]:
    """The names of the clusters of a fitted model: those in its file, or made from its distinctive features.

    Parameters
    ----------
    model : ONMF

    Returns
    -------
    list of str
        By their numbers; empty for a number without a cluster.
    """
    extra = getattr(model, "extra_", {"kind": "matrix"})
    kind = get_kind(extra["kind"])
    if "names" in extra:
        return list(extra["names"])
    return names_from_features(telling_features(model, CANDIDATES, kind.feature_names(extra)), first=kind.first)


def renamed(names: Sequence[str], changes: Mapping[int, str], first: int = 0) -> list[str]:
    """Change some names, by the numbers of the clusters; refuse names that are not allowed, or not different."""
    result = {number: name for number, name in enumerate(names, first) if name}
    for number, name in changes.items():
        require(number in result, f"There is no cluster {number}: the clusters are {listed(list(result))}.")
        result[number] = allowed(number, name)
    _all_different(result)
    return [result.get(number, "") for number, _ in enumerate(names, first)]


def listed(numbers: Sequence[int]) -> str:
    """Numbers in words, such as ``1 to 7 and 9 to 20``."""
    runs = np.split(np.array(numbers), np.flatnonzero(np.diff(numbers) > 1) + 1)
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs if len(run)]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or "none"


def allowed(number: int | str, given: str) -> str:
    """A name without spaces around it; refused if it cannot be shown in a line."""
    name, of = given.strip(), f"The name of cluster {number}"
    require(name, f"{of} is empty: give it at least one letter.")
    require(len(name) <= MAX_NAME_LENGTH, f"{of} has {len(name)} characters: use at most {MAX_NAME_LENGTH}.")
    require(name.isprintable(), f"{of} has line breaks or control characters: leave them out.")
    return name


def _all_different(names: Mapping[int, str]) -> None:
    where: dict[str, int] = {}
    for number, name in names.items():
        other = where.setdefault(name, number)
        require(other == number, f"Clusters {other} and {number} would both be named {name!r}: names must differ.")


def rename_clusters(path: str | os.PathLike[str], changes: Mapping[int, str]) -> list[str]:
    """Change names of clusters in a model file. The file is replaced as a whole, or not at all.

    Parameters
    ----------
    path : path
    changes : dict of int to str
        New names, by the numbers of the clusters as ``onmf show`` prints them.

    Returns
    -------
    list of str
        All names.
    """
    saved = read_model(path)
    names = renamed(names_of_model(load(path)), changes, get_kind(saved.extra["kind"]).first)
    write_model(path, replace(saved, extra=saved.extra | {"names": names}))
    return names


def read_names(path: str | os.PathLike[str]) -> dict[int, str]:
    """Read a CSV file with the columns ``cluster`` and ``name`` in UTF-8; other columns are ignored."""
    path = Path(path)
    names: dict[int, str] = {}
    try:
        text = read_small(path, 1, "a table of names has one short line for each cluster")
        table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        missing = [column for column in ("cluster", "name") if column not in (table.fieldnames or ())]
        require(not missing, f"{path} has no column {' and no column '.join(missing)}: its first line names them.")
        for row in table:
            number, line = (row["cluster"] or "").strip(), f"{path}, line {table.line_num}"
            require(number.isascii() and number.isdecimal(), f"{line}: {number[:20]!r} is not the number of a cluster.")
            require(int(number) not in names, f"{line}: cluster {number} was named before.")
            names[int(number)] = plain(row["name"] or "")
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}. Save it as CSV in UTF-8.") from error
    require(names, f"{path} has no line with a cluster and its name.")
    return names
