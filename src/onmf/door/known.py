"""What is known of the clusters of a table: rows that are in them, and features that they should have.

Both name clusters. The clusters that are given keep their names, and the others are found. A fit of the estimator does
both: there is no vote, whose runs would have to know the same.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from onmf.backend import to_host
from onmf.confidence import REFIT_SEED, REFITS, engine_for, evenly_spaced
from onmf.divergence import Array, get_divergence, number
from onmf.estimator import ONMF, adopt_clustering, check_for_guides, fit_model, settings_of, start_of
from onmf.io.limits import read_small
from onmf.io.rules import abbreviate, require, some_names
from onmf.naming import allowed, distinct, listed, order_by_size, so_many
from onmf.select import Range

from .files import label_of
from .settle import batches, take_rows
from .votes import Fit

if TYPE_CHECKING:
    from .clusters import Table
    from .kind import Kind, Rows

Weights = dict[Any, float]  # of features, by their names or their columns


@dataclass
class Given:
    """The clusters that are given, numbered in this order until all clusters are numbered by size."""

    names: list[str]
    known: Array | None = None  # the number of each row that is clustered, -1 for a free one; None if all are free
    seeds: dict[int, Weights] = field(default_factory=dict)  # by column of the rows that are clustered

    def how(self, number: int) -> str:
        """By what a cluster is given."""
        ways = (
            ("known rows", self.known is not None and bool((self.known == number).any())),
            ("seeds", number in self.seeds),
        )
        return " and ".join(way for way, holds in ways if holds)


def read_seeds(path: Path) -> dict[str, Weights]:
    """Read a file of seeds: a JSON object."""
    try:
        return check_seeds(json.loads(read_small(path, 64, "a file of seeds has some features for each cluster")))
    except RecursionError as error:
        raise ValueError("is nested too deeply for a file of seeds.") from error
    except ValueError as error:
        known = "is" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else ""
        raise ValueError(f"is not JSON: {error}." if known else str(error)) from error


def check_seeds(seeds: Any) -> dict[str, Weights]:
    """The weights of features by cluster; refused if they are in another form."""
    example = '{"space": ["nasa", "orbit"]}'
    if not isinstance(seeds, Mapping) or not seeds:
        raise ValueError(
            f"seeds are {abbreviate(seeds)}: give names of clusters and their features, such as {example}."
        )
    found = {}
    for name, features in seeds.items():
        require(isinstance(name, str), f"seeds have the cluster {abbreviate(name)}: its name must be a text.")
        if isinstance(features, str) or not isinstance(features, Iterable):
            raise ValueError(f"The seeds of {name!r} are {abbreviate(features)}: give a list of features, or weights.")
        weights = dict(features) if isinstance(features, Mapping) else dict.fromkeys(features, 1.0)
        require(weights, f"{name!r} has no seeds: name a feature, or leave the cluster out.")
        for feature, weight in weights.items():
            require(
                isinstance(feature, str), f"{name!r} has the seed {abbreviate(feature)}: give the name of a feature."
            )
            fits = 0 < number(weight) < np.inf
            require(
                fits, f"The seed {feature!r} of {name!r} has the weight {abbreviate(weight)}: give a number above 0."
            )
        found[allowed(repr(name), name)] = weights
    return found


def check_parameters_of_given(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be combined with known rows or seeds."""
    require("n_consensus" not in parameters, "With known rows or seeds no runs vote: leave n_consensus out.")
    model = ONMF(8, **{name: value for name, value in parameters.items() if name != "quick"})
    check_for_guides(model, start_of(model, guided=True), get_divergence(model.beta_loss, model.smoothing))


def given_of(kind: Kind, table: Table, rows: Rows, seeds: Any) -> tuple[Given | None, list[str]]:
    """The clusters of a table that are given, None if there are none; and notes on what is left out."""
    known = None if table.known is None else [table.known[i] for i in rows.index.tolist()]
    classes = sorted({name for name in known or () if name})
    require(table.known is None or classes, f"No {kind.row} that can be clustered has a known cluster.")
    weights, notes = ({}, []) if seeds is None else kind.seeds_in(table, rows, seeds)
    for name in {} if seeds is None else seeds:
        if weights.get(name) or name in classes:
            continue
        raise ValueError(
            f"No {kind.row} has any of the {kind.feature}s that are the seeds of {name!r}: name others, or leave the "
            "cluster out."
        )
    names = list(dict.fromkeys([name for name, found in weights.items() if found] + classes))
    if not names:
        return None, notes
    number = {name: place for place, name in enumerate(names)}
    labels = None if known is None else np.array([number[name] if name else -1 for name in known], dtype=np.int64)
    return Given(
        [allowed(repr(name), name) for name in names],
        labels,
        {number[name]: found for name, found in weights.items() if found},
    ), notes


def columns_of_seeds(
    kind: Kind, rows: Rows, seeds: Mapping[str, Weights], place: Callable[[Any], int | None]
) -> tuple[dict[str, Weights], list[str]]:
    """The weights of the features that rows have, by their columns; and a note on the others.

    ``place`` is the column of a feature, None for one that there is not.
    """
    total: Any = np.sum(
        [np.asarray(batch.sum(axis=0)).ravel() for _, batch in batches(rows.X)], axis=0, dtype=np.float64
    )
    found: dict[str, Weights] = {}
    absent: list[str] = []
    for name, weights in seeds.items():
        found[name] = {}
        for feature, weight in weights.items():
            column = place(feature)
            if column is None or not total[column]:
                absent.append(feature)
            else:
                found[name][column] = found[name].get(column, 0.0) + float(weight)
    absent = list(dict.fromkeys(absent))
    note = f"No {kind.row} has the seed{'s' * (len(absent) > 1)} {some_names(absent)}: left out."
    return found, [note] if absent else []


def range_of_given(span: Range, given: Given) -> Range:
    """The numbers of clusters to choose from: at least as many as are given."""
    least = len(given.names)
    require(
        span.k_max is None or span.k_max >= least,
        f"{so_many(least, 'cluster')} are given, more than k_max={span.k_max}: raise it.",
    )
    return span._replace(k_min=max(span.k_min or 1, least))


def fit_given(
    X: Any,
    n_clusters: int,
    parameters: Mapping[str, Any],
    given: Given,
    groups: Array | None = None,
    engine: Any = None,
) -> Fit:
    """Cluster rows of which something is known, the best of several runs; the largest cluster comes first."""
    own = {name: value for name, value in parameters.items() if name != "quick"}
    model = ONMF(n_clusters, **own | ({"n_init": 1} if parameters.get("quick") else {}))
    seeds, several = given.seeds or None, groups is not None
    runs = len(settings_of(model, grouped=several, given=len(given.names)).seeds)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No row follows the seeds")  # said in a note
        fit_model(model, X, groups=groups, known=given.known, seeds=seeds, engine=engine)
        trials = refits_of_given(model, X, given, groups)
    order = order_by_size(to_host(model.labels_), n_clusters)
    adopt_clustering(model, model.clustering_.reordered(order), model.engine_, model.divergence_)
    clusters = {place: int(old) for place, old in enumerate(order) if old < len(given.names)}
    how = (
        f"{'a single run' if runs == 1 else f'the best of {runs} runs'} from {so_many(len(clusters), 'given cluster')}"
    )
    names, ways = ({place: get(old) for place, old in clusters.items()} for get in (given.names.__getitem__, given.how))
    return Fit(model, X, how, groups=groups, trials=trials, given=ways, names=names)


def refits_of_given(model: ONMF, X: Any, given: Given, groups: Array | None) -> tuple[Array, list[Array]] | None:
    """Some rows, and their labels in fits that know the same, from other starts and with other weights of the rows.

    If all clusters are given, nothing else would make these fits differ. The weights are those of a Bayesian bootstrap.
    """
    n, k = X.shape[0], model.n_clusters
    some = evenly_spaced(n)
    if given.known is not None:
        rows = np.flatnonzero(given.known >= 0)
        some = np.union1d(some, rows[evenly_spaced(len(rows))])
    X, known = take_rows(X, some), None if given.known is None else given.known[some]
    if k == 1 or X.shape[0] < k:
        return None
    there = np.asarray(X.sum(axis=0)).ravel() > 0
    seeds = {cluster: {j: weights[j] for j in weights if there[j]} for cluster, weights in given.seeds.items()}
    seeds = {cluster: weights for cluster, weights in seeds.items() if weights}
    again = clone(model).set_params(n_init=1, beta_loss=model.divergence_)
    again.set_params(**({} if model.adapt_ is None else {"adapt": model.adapt_}))
    labels = []
    for seed in range(REFIT_SEED, REFIT_SEED + REFITS):
        weights = np.random.default_rng(seed).exponential(size=X.shape[0])
        fit_model(
            again.set_params(random_state=seed),
            X,
            weights,
            groups=None if groups is None else groups[some],
            known=known,
            seeds=seeds or None,
            engine=engine_for(model, X),
        )
        labels.append(to_host(again.labels_))
    return some, labels


def notes_on_given(kind: Kind, fit: Fit, sizes: Array) -> list[str]:
    """Sentences that say which clusters were given, and which of them no row follows."""
    if not fit.names:
        return []
    found, named = len(sizes) - len(fit.names), dict(sorted(fit.names.items()))
    numbers = listed([number + kind.first for number in named])
    rest = f"; the other{'s' * (found > 1)} {'were' if found > 1 else 'was'} found" if found else ""
    were = f"Clusters {numbers} were" if len(named) > 1 else f"Cluster {numbers} was"
    empty = [name for number, name in named.items() if not sizes[number]]
    follows = f"No {kind.row} follows the seeds of {some_names(empty)}: give other {kind.feature}s, or leave them out."
    return [f"{were} given{rest}.", *([follows] if empty else [])]


def names_with_given(names: Sequence[str], given: Mapping[int, str]) -> list[str]:
    """Names of clusters in which those of given clusters stand; the others differ from them."""
    order = [*given, *(number for number in range(len(names)) if number not in given)]
    new = dict(zip(order, distinct([*given.values(), *(names[number] for number in order[len(given) :])]), strict=True))
    return [new[number] for number in range(len(names))]


def labels_of_known(known: Iterable[Any], n: int) -> list[str | None]:
    """The names of the clusters of rows as users give them, None for free rows."""
    labels = [label_of(value) or None for value in known]
    require(
        len(labels) == n, f"known has {len(labels):,} entries for {n:,} rows: give one for each, None if it is free."
    )
    return labels
