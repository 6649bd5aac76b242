"""What became of the clusters of a model when new rows came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.fit.describe import distinctiveness

if TYPE_CHECKING:
    from .clusters import Clusters
    from .write import Columns

FILE = "update.csv"
CLEAR = 0.01  # share of the clusters that seem to have grown or shrunk by chance
FEWEST = 10  # rows of a new cluster, and of one of whose features something is said, at least
TOP, KEPT = 10, 5  # distinctive features of a cluster, and how many of them stay in one that has not changed


@dataclass(frozen=True, eq=False)
class Updated:
    """What became of the clusters of a model. Lists are by number; a number without a cluster has the status "".

    Attributes
    ----------
    status : list of str
        ``kept``, ``grown`` or ``shrunk`` by its share of the rows that are in no new cluster, ``empty`` or ``new``.
    changed : list of bool
        Whether most of what sets the cluster apart is other than before.
    before, now : list of float
        Share of the rows of the model, and of the new rows, that are in the cluster.
    features_before, features_now : list of list of str
        What set the cluster apart before, and what does in the new rows.
    """

    status: list[str]
    changed: list[bool]
    before: list[float]
    now: list[float]
    features_before: list[list[str]]
    features_now: list[list[str]]

    def of(self, numbers: Array) -> Updated:
        """The same of some clusters."""
        return Updated(*([values[number] for number in numbers] for values in vars(self).values()))


def what_became(before: ONMF, found: Clusters, sums: FloatArray, new: list[int]) -> Updated:
    """Compare the rows of each cluster, of which there are the sums, with those that the model had."""
    k, features = found.n_numbers, found.features
    sizes = [np.bincount(labels[labels >= 0], minlength=k) for labels in (before.labels_, found.labels.ravel())]
    then, now = (each / max(int(each.sum()), 1) for each in sizes)
    others = np.setdiff1d(np.arange(k), new)  # a new cluster makes none of these shrink
    totals = [max(int(each[others].sum()), 1) for each in sizes]
    shares = [each / total for each, total in zip(sizes, totals, strict=True)]
    share = (sizes[0] + sizes[1]) / sum(totals)
    spread = np.sqrt(np.maximum(share * (1 - share), 1e-300) * sum(1 / total for total in totals))
    rise = (shares[1] - shares[0]) / spread
    old = before.clustering_
    tops = [_tops(old.by_cluster(), features, k), _tops((np.arange(k), sums, np.ones(k)), features, k)]
    status, changed = [""] * k, [False] * k
    for number in found.numbers.tolist():
        status[number] = "grown" if rise[number] > 0 else "shrunk"
        if number in new:
            status[number] = "new"
        elif not sizes[1][number]:
            status[number] = "empty"
        elif abs(rise[number]) <= norm.isf(CLEAR / (2 * k)):
            status[number] = "kept"
        stay = set(tops[0][number][:TOP]) & set(tops[1][number])
        changed[number] = number not in new and sizes[1][number] >= FEWEST and len(stay) < KEPT
    return Updated(status, changed, then.tolist(), now.tolist(), *([top[:TOP] for top in each] for each in tops))


def _tops(by_cluster: tuple[Array, FloatArray, FloatArray], features: Any, k: int) -> list[list[str]]:
    """The most distinctive features by number, twice as many as are shown."""
    numbers, centroids, masses = by_cluster
    weights = distinctiveness(centroids, masses)
    found: list[list[str]] = [[] for _ in range(k)]
    for place, number in enumerate(numbers.tolist()):
        order = np.argsort(-weights[place], kind="stable")[: 2 * TOP]
        found[number] = [str(features[j]) for j in order if weights[place, j] > 0]
    return found


def update_columns(clusters: Clusters) -> Columns:
    """The table of what became of the clusters."""
    clusters = clusters.dense
    updated = clusters.updated
    assert updated is not None
    return {
        "cluster": clusters.shown_numbers,
        "name": clusters.names,
        "status": updated.status,
        "changed": updated.changed,
        "share_before": [float(f"{share:.4g}") for share in updated.before],
        "share_now": [float(f"{share:.4g}") for share in updated.now],
        "features_before": [", ".join(top) for top in updated.features_before],
        "features_now": [", ".join(top) for top in updated.features_now],
    }


def summary_of_update(clusters: Clusters) -> Mapping[str, Any]:
    """The same for ``summary.json``: the numbers of the clusters by what became of them."""
    columns, found = update_columns(clusters), dict[str, list[int]]()
    for number, status, changed in zip(columns["cluster"], columns["status"], columns["changed"], strict=True):
        for what in (status, *["changed"] * changed):
            found.setdefault(what, []).append(number)
    return found
