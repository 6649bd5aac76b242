"""Clusters that two halves of the rows find apart from each other, for many numbers of clusters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_mutual_info_score

from onmf.backend import to_host
from onmf.data.groups import divide_by_effects
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF, new_rows
from onmf.fit import Clustering, Settings, fit
from onmf.fit.describe import best_labels
from onmf.fit.restarts import Plan
from onmf.functions import log, xlogy
from onmf.hierarchy import merge_clusters

EVERY = 10  # Up to twice this number of clusters every number is tried, then about every tenth part
WITH_GROUPS = 16  # clusters, at most, with which the multipliers of groups are fitted
MERGED = 10  # iterations after clusters were merged
DIGITS = 12  # of an agreement that are kept: the others depend on the processor
ALIKE = 0.5  # Two clusters are the same if they share more than this part of the rows of either


def ladder(least: int, most: int) -> list[int]:
    """The numbers of clusters that are tried, in rising order.

    >>> from onmf.select.halves import ladder
    >>> ladder(17, 40)
    [17, 18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39, 40]
    """
    numbers = [max(least, 2)]
    while numbers[-1] < most:
        numbers.append(min(numbers[-1] + max(numbers[-1] // EVERY, 1), most))
    return numbers


def chain(model: ONMF, X: Any, groups: Array | None, inside: Array, numbers: list[int]) -> Array:
    """Cluster some of the rows into fewer and fewer clusters, and assign the others. → (numbers, n)

    The largest number comes from the best of several fits, which model describes. Then, for each smaller number,
    clusters are merged at the least cost, and a few iterations follow. Rows of groups are first divided by the
    multipliers of their groups.
    """
    if groups is not None:
        X = without_effects(model, X, groups, inside, min(WITH_GROUPS, numbers[-1]))
    first = clone(model).set_params(n_clusters=numbers[-1]).fit(X[inside])
    clustering = first.clustering_
    own, _ = new_rows(first, X[inside])
    others = None if inside.all() else new_rows(first, X[~inside])[0]
    found = np.empty((len(numbers), len(inside)), dtype=np.int16)
    for place in range(len(numbers) - 1, -1, -1):
        sums, weights = sums_of(clustering)
        if numbers[place] < len(sums):
            start = merged_start(sums, weights, numbers[place])
            clustering = fit(own, Settings(numbers[place], start, plan=Plan(MERGED)))
        found[place, inside] = to_host(clustering.labels)
        if others is not None:
            found[place, ~inside] = to_host(others.map_rows(best_labels, clustering.centroids)[0])
        found[place] = np.unique(found[place], return_inverse=True)[1]  # some clusters may have no rows
    return found


def without_effects(model: ONMF, X: Any, groups: Array, inside: Array, k: int) -> Any:
    """Divide rows by the multipliers of their groups, which a fit of some of them tells."""
    grouped = clone(model).set_params(n_clusters=k, init="auto", n_init="auto", smoothing="auto")
    fitted = grouped.fit(X[inside], groups=groups[inside])
    factors = np.ones((int(groups.max()) + 1, X.shape[1]))
    factors[fitted.groups_] = to_host(fitted.group_effects_)
    return divide_by_effects(X, factors, groups)


def sums_of(clustering: Clustering) -> tuple[FloatArray, FloatArray]:
    """The sums of the rows of the clusters that have any, and of their scales."""
    labels, scales, centroids = map(to_host, (clustering.labels, clustering.scales, clustering.centroids))
    weights = np.bincount(labels, weights=scales, minlength=len(centroids)).astype(np.float64)
    sums: FloatArray = centroids * weights[:, None]
    filled = sums.any(axis=1)
    return sums[filled], weights[filled]


def merged_start(sums: FloatArray, weights: FloatArray, k: int) -> FloatArray:
    """First centroids of k clusters, which are merged from others."""
    merged, total, labels = np.zeros((k, sums.shape[1])), np.zeros((k, 1)), merge_clusters(sums, k).labels(k)
    np.add.at(merged, labels, sums)
    np.add.at(total, labels, weights[:, None])
    return merged / total


def agreement(pair: Array) -> FloatArray:
    """How well the clusters of two halves agree for each number of clusters: their adjusted mutual information.

    It is 1 if they are the same, and 0 if they agree as random labels do.
    """
    return np.array([round(adjusted_mutual_info_score(*labels), DIGITS) for labels in zip(*pair, strict=True)])


def bits(labels: Array) -> float:
    """The information of a clustering: its entropy."""
    counts = np.unique(labels, return_counts=True)[1]
    return float(log(len(labels)) - xlogy(counts, counts).sum() / len(labels)) / float(log(2.0))


@dataclass(frozen=True, eq=False)
class Halves:
    """Clusterings of all rows that each know one half of them.

    Attributes
    ----------
    numbers : (numbers,) array of int
        Numbers of clusters.
    inside : (splits, n) array of bool
        The rows of the first half of each split; the others are the second half.
    labels : (splits, 2, numbers, n) array of int
        The clusters that each half found.
    """

    numbers: Array
    inside: Array
    labels: Array

    def agreement(self) -> FloatArray:
        """How well two halves agree, for each number of clusters and each split. → (numbers, splits)"""
        return np.array([agreement(pair) for pair in self.labels]).T

    def bits(self) -> FloatArray:
        """The mean information of the clusters of two halves, in bits. → (numbers, splits)"""
        entropies = [[[bits(labels) for labels in half] for half in pair] for pair in self.labels]
        return np.mean(entropies, axis=1).T

    def finding(self, members: Array) -> FloatArray:
        """In which share of the halves each of some sets of rows is found again, by rows that the half did not see.

        A half finds a set if one of its clusters, of any number of clusters, has more than half of their union in
        common with it. NaN for sets without any rows.

        Parameters
        ----------
        members : (sets, n) array of bool

        Returns
        -------
        (sets,) array
        """
        found = []
        for inside, pair in zip(self.inside, self.labels, strict=True):
            for unseen, by_number in zip((~inside, inside), pair, strict=True):
                some = members[:, unseen].astype(np.float64)
                best = np.zeros(len(some))
                for labels in by_number[:, unseen]:
                    clusters = labels[:, None] == np.arange(labels.max() + 1)
                    shared = some @ clusters
                    union = some.sum(axis=1)[:, None] + clusters.sum(axis=0) - shared
                    best = np.maximum(best, (shared / np.maximum(union, 1.0)).max(axis=1))
                found.append(np.where(some.any(axis=1), best > ALIKE, np.nan))
        known = np.isfinite(found)
        return np.where(known.any(axis=0), np.nansum(found, axis=0) / np.maximum(known.sum(axis=0), 1), np.nan)
