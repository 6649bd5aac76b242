"""Groups of rows (batches, sources, scenes) in tables and results: their checks, what each does, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.backend import to_host
from onmf.divergence import Array, FloatArray, divide, get_divergence
from onmf.estimator import ONMF, check_for_groups, start_of
from onmf.functions import xlogy
from onmf.io.rules import require, some_names
from onmf.naming import so_many

if TYPE_CHECKING:
    from .clusters import Clusters, Table
    from .kind import Kind
    from .write import Columns

BATCH = 10_000  # rows that are matched at a time
TELLING = 100  # features of each group in the file
IGNORED = "The model (does not know the group|has multipliers for the groups)"  # warnings that notes replace
FILES = ("composition.csv", "group_features.csv")


def check_groups_of(
    table: Table, index: Array, row: str, parameters: Mapping[str, Any]
) -> tuple[Array | None, list[str]]:
    """The groups of the rows that are clustered, None if there are not several; and notes. ``row`` is what one is."""
    if table.groups is None:
        return None, []
    named = [table.groups[i] for i in index.tolist()]
    lacking = [i for i, name in zip(index.tolist(), named, strict=True) if not name]
    if lacking:
        raise ValueError(
            f"{so_many(len(lacking), row)} of {len(named):,} without a group, such as {table.rows[lacking[0]]}: give "
            "every one a group, leave these out, or cluster without groups."
        )
    groups = np.array(named)
    names, sizes = np.unique(groups, return_counts=True)
    if len(names) == 1:
        return None, [f"All {row}s are of one group, {names[0]}: there is nothing to tell apart."]
    alone = [str(name) for name in names[sizes == 1]]
    require(
        2 * len(alone) <= len(names),
        f"{len(alone):,} of the {len(names):,} groups have a single {row}, such as {some_names(alone)}: a group needs "
        "many, of several clusters. Is this the right column?",
    )
    model = ONMF(8, **{name: value for name, value in parameters.items() if name != "quick"})
    check_for_groups(model, start_of(model, grouped=True), get_divergence(model.beta_loss, model.smoothing))
    return groups, []


def groups_of_new(model: ONMF, table: Table, kind: Kind) -> tuple[Array | None, list[str]]:
    """The groups of new rows, None if the model has none; and notes on groups that it does not know."""
    if model.group_effects_ is None:
        return None, []
    known, n = [str(name) for name in model.groups_], table.X.shape[0]
    estimate = "(--estimate-groups, in Python estimate_groups=True)"
    if table.groups is None:
        name = group_of_file(known, table.source)
        if name:
            return np.full(n, name, dtype=object), [f"All rows are taken as the group {name}, as their file is called."]
        instead = f", or estimate the factors of the file {estimate}" if kind.several and table.source else ""
        return np.full(n, "", dtype=object), [
            f"The model has factors for the groups {some_names(known)}, and the new rows have no groups: their factors "
            f"are 1. Name their column (--group, in Python groups=){instead}."
        ]
    groups, notes = np.array([name or "" for name in table.groups], dtype=object), []
    lacking, strangers = np.flatnonzero(groups == ""), sorted(set(groups) - {"", *known})
    if len(lacking):
        notes.append(
            f"{kind.so_many(len(lacking))} of {n:,} without a group, such as {table.rows[int(lacking[0])]}: the "
            "factors are 1. Give every one a group."
        )
    if strangers:
        notes.append(
            f"The model does not know the group{'s' * (len(strangers) > 1)} {some_names(strangers)}: the factors are "
            f"1. Estimate them from the rows {estimate}."
        )
    return groups, notes


def group_of_file(known: Iterable[str], source: str) -> str:
    """The group of a model that is called like a file, by its name or its path; empty if there is none."""
    path = Path(source).absolute()
    paths = [f"/{each.as_posix()}" for each in (path.with_suffix(""), path)] if path.name and source else []
    return next((name for name in known if any(each.endswith(f"/{name}") for each in paths)), "")


def with_new_groups(model: ONMF, table: Table, kind: Kind) -> ONMF:
    """A copy of a model that also knows the groups of new rows, whose factors are estimated from these rows."""
    require(model.group_effects_ is not None, "The model has no groups, so there are no factors to estimate.")
    model = copy(model)
    for name, rows in kind.new_groups(model, table):
        model.estimate_group(rows, name=name)
    return model


def rows_of_new_groups(model: ONMF, table: Table, X: Any, kind: Kind) -> Iterator[tuple[str, Any]]:
    """The groups that a model does not know, and their rows; ``X`` are the rows with the features of the model.

    Without groups, all rows are of the one that is called like their file, if files of this kind may be groups.
    """
    known, names = [str(name) for name in model.groups_], table.groups
    if names is None:
        require(
            kind.several and table.source,
            "Estimating the factors of new groups needs groups: name their column (--group, in Python groups=).",
        )
        names = [group_of_file(known, table.source) or Path(table.source).stem] * X.shape[0]
    groups = np.array([name or "" for name in names], dtype=object)
    for name in sorted(set(groups) - {"", *known}):
        inside = groups == name
        parts = [csr_array(X[i : i + BATCH])[inside[i : i + BATCH]] for i in range(0, X.shape[0], BATCH)]
        rows = csr_array(vstack(parts, format="csr"))
        filled = np.flatnonzero(rows.sum(axis=1))
        yield name, rows[filled] if len(filled) else rows


def composition(clusters: Clusters) -> Array:
    """The number of rows of each group in each cluster; 0 if the rows have no groups. → (numbers, groups)"""
    counts = np.zeros((clusters.n_numbers, len(clusters.groups)), dtype=np.int64)
    if clusters.groups and clusters.table.groups:
        labels, codes = clusters.labels.ravel(), clusters.group_codes
        inside = (labels >= 0) & (codes >= 0)
        np.add.at(counts, (labels[inside], codes[inside]), 1)
    return counts


def group_contributions(model: ONMF) -> FloatArray:
    """How much each feature sets each group apart from the others, ≥ 0. → (groups, features)

    With q the share of the feature in all rows and s the multiplier, it is q (s log s − s + 1): its part of the
    divergence of the group from the whole.
    """
    s = to_host(model.group_effects_)
    q = to_host(model.clustering_.masses) @ to_host(model.cluster_centers_)
    return divide(q, np.asarray(q.sum())) * (xlogy(s, s) - s + 1)


def composition_table(clusters: Clusters) -> Columns:
    """A row for each cluster and group: how many rows of the group are in the cluster, and their shares of both."""
    clusters = clusters.dense
    counts, groups = clusters.composition, clusters.groups
    k = len(counts)
    of_cluster = divide(counts.astype(np.float64), counts.sum(axis=1, keepdims=True))
    of_group = divide(counts.astype(np.float64), np.broadcast_to(counts.sum(axis=0), counts.shape))
    return {
        "cluster": [each for each in clusters.shown_numbers for _ in groups],
        "name": [name for name in clusters.names for _ in groups],
        "group": groups * k,
        "size": counts.ravel().tolist(),
        "share_of_cluster": of_cluster.ravel().round(6).tolist(),
        "share_of_group": of_group.ravel().round(6).tolist(),
    }


def group_features_table(clusters: Clusters) -> Columns:
    """The features that set each group apart, the most telling first, with their multipliers."""
    found = [(group, *each) for group, top in clusters.group_features(TELLING).items() for each in top.items()]
    ranks = [rank for top in clusters.group_features(TELLING).values() for rank in range(1, len(top) + 1)]
    groups, features, factors = zip(*found, strict=True) if found else ((), (), ())
    rounded = [float(f"{factor:.6g}") for factor in factors]
    return {"group": groups, "rank": ranks, clusters.kind.feature: features, "multiplier": rounded}
