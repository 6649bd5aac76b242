"""The rows whose clusters are known: labels as users give them, and the weights that leave these rows to the user.

A known row is in the cluster that the user says, so its part of all sums is known beforehand. In the data it has weight
0: it is assigned like every row, but counts nowhere, is no start, and fills no empty cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from onmf.arrays import to_host
from onmf.divergence import Array, FloatArray, divide, number
from onmf.io.rules import abbreviate, require

from .base import Part
from .groups import is_missing
from .validate import check_unmasked, unwrap_xarray

FREE = -1  # the label of a row whose cluster is not known; scikit-learn's sign for it


@dataclass(frozen=True)
class Known:
    """The known rows.

    Attributes
    ----------
    n : int
        Number of all rows.
    rows : (m,) array of int
        The known rows, ascending.
    labels : (m,) array of int32
        Their clusters.
    weights : (m,) array
        Their sample weights.
    relative : bool
        Whether smoothing follows from the sums of the clusters, all of which have known rows.
    """

    n: int
    rows: Array
    labels: Array
    weights: FloatArray
    relative: bool

    @classmethod
    def of(cls, known: Any, k: int, relative: bool) -> Known:
        """The known rows from the labels that a user gave for k clusters."""
        labels = read_known(known)
        rows = np.flatnonzero(labels != FREE)
        wrong = rows[(labels[rows] < FREE) | (labels[rows] >= k)]
        if len(wrong):
            raise ValueError(
                f"known[{wrong[0]}] = {labels[wrong[0]]}, and n_clusters={k}: known has the numbers of clusters, from "
                f"0 to {k - 1}, and {FREE} for a row whose cluster is to be found."
            )
        relative = relative and len(np.unique(labels[rows])) == k
        return cls(len(labels), rows, labels[rows].astype(np.int32), np.ones(len(rows)), relative)

    def check_rows(self, n: int) -> None:
        """Refuse labels for another number of rows, and labels that leave no row free."""
        require(self.n == n, f"known has {self.n} labels, but X has {n} rows: give one for each row.")
        require(
            len(self.rows) < n,
            f"known has a cluster for every row, so there is nothing to find: give the rows to be clustered {FREE}.",
        )

    @property
    def free(self) -> Array:
        """Which rows are free. → (n,) bool"""
        free = np.ones(self.n, dtype=bool)
        free[self.rows] = False
        return free

    def weighted(self, weights: Any) -> Known:
        """The same rows with these of the sample weights of all rows: an array, a number, or None for ones."""
        if weights is None:
            return self
        return replace(self, weights=np.broadcast_to(weights, self.n)[self.rows].astype(np.float64))

    def subset(self, chosen: Array) -> Known:
        """Some of the known rows; the others are not counted anywhere."""
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen], weights=self.weights[chosen])

    def inside(self, part: Part) -> tuple[Array, Array, FloatArray]:
        """The known rows of a part, counted from its first, their clusters and their weights."""
        bounds = np.searchsorted(self.rows, [part.first, part.first + len(part.block)])
        here = slice(*bounds.tolist())
        return self.rows[here] - part.first, self.labels[here], self.weights[here]


def read_known(known: Any) -> Array:
    """The labels as whole numbers, in memory. → (n,)"""
    known = unwrap_xarray(known)
    if hasattr(known, "__dask_graph__"):
        known = known.compute()
    check_unmasked(known, "known")
    labels: Array = np.asarray(to_host(known))
    require(labels.ndim == 1, f"known has {labels.ndim} dimensions: give one label for each row.")
    if labels.dtype.kind not in "iu" and len(labels):
        missing = [i for i, label in enumerate(labels.tolist()) if is_missing(label)]
        what = f"known[{missing[0]}] is missing" if missing else f"known holds {labels.dtype} values"
        raise ValueError(
            f"{what}: known has the numbers of clusters, and {FREE} for a row whose cluster is to be found."
        )
    return labels


def without_known(weights: Any, free: Array) -> FloatArray:
    """Sample weights, or one number or None for ones, that are 0 for known rows. → (n,)"""
    return np.where(free, 1.0 if weights is None else weights, 0.0)


def labels_of(part: Part, known: Known | None) -> Array:
    """The labels of the last step, in which known rows have their own. → (n,)"""
    labels = part.run.collect().labels
    if known is None:
        return labels
    rows, clusters, _ = known.inside(part)
    labels, place = labels.copy(), part.block.backend.to_device
    labels[place(rows)] = place(clusters)
    return labels


def weights_of(part: Part, known: Known | None) -> FloatArray:
    """The sample weights of all rows of a part, the known ones included, on the host. → (n,)"""
    if known is None:
        return part.block.host_weights
    rows, _, own = known.inside(part)
    weights = part.block.host_weights.copy()
    weights[rows] = own
    return weights


def clusters_given(known: Known | None, seeds: Any, k: int) -> int:
    """The number of clusters of which something is known."""
    labels = [] if known is None else np.unique(known.labels).tolist()
    return len({*labels, *([] if seeds is None else numbers_of(seeds, k).values())})


def numbers_of(seeds: Any, k: int) -> dict[Any, int]:
    """The cluster of each key of seeds: its number, or for names their order."""
    if not isinstance(seeds, Mapping) or not seeds:
        raise ValueError(
            f"seeds is {abbreviate(seeds)}: give the features of each cluster, such as {{0: ['nasa', 'orbit']}}."
        )
    if all(isinstance(key, str) for key in seeds):
        require(len(seeds) <= k, f"seeds has {len(seeds)} clusters, and n_clusters={k}: ask for more clusters.")
        return {key: place for place, key in enumerate(seeds)}
    for key in seeds:
        if not isinstance(key, Integral) or isinstance(key, bool) or not 0 <= int(key) < k:
            raise ValueError(
                f"seeds has the cluster {abbreviate(key)}, and n_clusters={k}: name all clusters, or number all from 0 "
                f"to {k - 1}."
            )
    return {key: int(key) for key in seeds}


def priors_of(seeds: Mapping[Any, Any], k: int, p: int, names: Array | None) -> FloatArray:
    """The seed features of each cluster, of sum 1; 0 for clusters without. → (k, p)"""
    priors, places = np.zeros((k, p)), {} if names is None else {name: j for j, name in enumerate(names.tolist())}
    for key, cluster in numbers_of(seeds, k).items():
        what, given = f"seeds[{key!r}]", seeds[key]
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ValueError(f"{what} is {abbreviate(given)}: give a list of features, or their weights by feature.")
        weights = list(given.items() if isinstance(given, Mapping) else ((feature, 1.0) for feature in given))
        require(weights, f"{what} names no feature: name one, or leave the cluster out.")
        for feature, weight in weights:
            if not 0 < number(weight) < np.inf:
                raise ValueError(f"{what}[{feature!r}] is {abbreviate(weight)}: a weight is a number greater than 0.")
            priors[cluster, _place(feature, places, p, what)] = float(weight)
    priors = divide(priors, priors.max(axis=1, keepdims=True))  # sums of large weights would overflow
    return divide(priors, priors.sum(axis=1, keepdims=True))


def _place(feature: Any, places: Mapping[Any, int], p: int, what: str) -> int:
    """The number of a feature, from its name or its number."""
    if isinstance(feature, str) and feature in places:
        return places[feature]
    if isinstance(feature, Integral) and not isinstance(feature, bool) and 0 <= int(feature) < p:
        return int(feature)
    reason = "" if places or not isinstance(feature, str) else ", whose features have no names"
    raise ValueError(f"{what} has {abbreviate(feature)}, which is not a feature of X{reason}: leave it out.")
