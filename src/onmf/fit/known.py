"""What is known beforehand: rows whose clusters are known, and features that clusters should have.

With S_k the sums of cluster k, T_k their total, and K_k those of its known rows, which never change, the centroid of a
cluster with known rows is that of

    S'_k = K_k + a (S_k − K_k)

so a free row counts a times as much as a known one (``adapt``): with a = 0 the centroid is that of the known rows, with
a = 1 all rows count alike. The seed features of a cluster are a distribution q_k. Its centroid is then that of

    S'_k / T'_k + s q_k

so the seeds have the share s / (1 + s) of it. For fixed labels these centroids are the minimum of

    Σ_i ω_i D(x_i, a_i w_k) + s Σ_k T'_k D(q_k, w_k),      ω_i = a for the free rows of clusters with known ones, else 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onmf.backend import COUNTED, Block, Drift, Steps, StepSums, table_of, to_host
from onmf.data import Data, Part
from onmf.data.known import Known
from onmf.divergence import Array, FloatArray, KullbackLeibler
from onmf.functions import log

from .describe import MIN_SMOOTHING
from .starts import Seeds, draw_rows, random_partition, tie_parallel


@dataclass(frozen=True)
class Guide:
    """What is known of the clusters.

    Attributes
    ----------
    sums : StepSums
        The sums over the known rows, in which clusters without any are 0; on the host.
    constant : float
        Σ w·constant over the known rows.
    adapt : float
        How much a free row counts in a cluster with known rows.
    priors : (k, columns) array
        The seed features of each cluster, of sum 1, or zeros.
    share : float
        The weight of the seeds, relative to the rows.
    features : int
        Number of features, without the columns of groups.
    """

    sums: StepSums
    constant: float
    adapt: float
    priors: FloatArray
    share: float
    features: int

    @classmethod
    def of(cls, data: Data, adapt: float, priors: FloatArray, share: float) -> Guide:
        """Sum the known rows of the data by cluster; the seed features (k, p) may be zeros."""
        (k, p), columns, known = priors.shape, data.shape[1], data.known
        found: FloatArray = (
            np.zeros((k, columns + len(COUNTED) + 1)) if known is None else data.total(sums_of_known, known, k)
        )
        sums, table, constants = np.split(found, [columns, columns + len(COUNTED)], axis=1)
        whole = StepSums(sums, np.ascontiguousarray(table.T))
        guide = cls(whole, float(constants.sum()), adapt, np.pad(priors, ((0, 0), (0, columns - p))), share, p)
        labels = np.empty(0, dtype=int) if known is None else np.unique(known.labels)
        unusable = labels[~guide.has_rows[labels]]
        if len(unusable):
            raise ValueError(
                f"The known rows of cluster {unusable[0]} are zero everywhere or have weight 0, so nothing is known of "
                "it: give it another row, or give these rows -1."
            )
        return guide

    @property
    def has_rows(self) -> Array:
        """Which clusters have known rows. → (k,) bool"""
        return np.asarray(self.sums.mass > 0)

    @property
    def has_seeds(self) -> Array:
        """Which clusters have seed features. → (k,) bool"""
        return np.asarray(self.priors.any(axis=1))

    @property
    def tilts(self) -> bool:
        """Whether centroids differ from those of the sums of all their rows."""
        return bool((self.adapt != 1 and self.has_rows.any()) or self.has_seeds.any())


class Tilt:
    """From the sums of all rows to those that centroids follow from, with arrays in a memory that ``place`` copies to.

    The columns of groups, which follow the features, grow with the weight of the seeds.
    """

    def __init__(self, guide: Guide, place: Any = to_host) -> None:
        known = (1 - guide.adapt) * guide.sums.sums, (1 - guide.adapt) * guide.sums.mass
        self.known, self.mass = map(place, known)
        self.factors = place(np.where(guide.has_rows, guide.adapt, 1.0))
        self.shares = place(guide.share * guide.has_seeds)
        self.priors = place(guide.priors) if guide.has_seeds.any() else None
        self.features = guide.features

    def __call__(self, sums: Any, mass: Any) -> tuple[Any, Any]:
        """The sums and the mass for the centroids. → (k, columns), (k,)"""
        sums, mass = sums * self.factors[:, None] + self.known, mass * self.factors + self.mass
        if self.priors is not None:
            more = self.shares * (mass + (mass == 0))  # a cluster without rows keeps its seeds
            sums[:, self.features :] *= 1 + self.shares[:, None]
            sums, mass = sums + more[:, None] * self.priors, mass + more
        return sums, mass


class GuidedSteps(Steps):
    """The steps of a run in which something is known: known rows are added to each step, and centroids are tilted."""

    def __init__(self, inner: Steps, data: Data) -> None:
        self.inner, self.guide = inner, data.guide
        self._known = self.guide.sums.map_arrays(data.to_device)
        self._tilt = Tilt(self.guide, data.to_device) if self.guide.tilts else None

    @property
    def centroids(self) -> FloatArray:  # type: ignore[override]
        return self.inner.centroids

    def next(self) -> StepSums:
        return self.inner.next() + self._known

    def update(self, step: StepSums, *, more: bool) -> Drift:
        if self._tilt is None:
            return self.inner.update(step, more=more)
        table = step.table.copy()
        sums, table[COUNTED.index("mass")] = self._tilt(step.sums, step.on_device("mass"))
        return self.inner.update(StepSums(sums, table), more=more)

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self.inner.put(cluster, centroid)

    def vacant(self, step: StepSums) -> Array:
        return step.empty & ~self.guide.has_seeds


def sums_of_known(part: Part, known: Known, k: int) -> FloatArray:
    """The sums over the known rows of a part, their table, and their constants. → (k, columns + 7 + 1)"""
    block, (rows, clusters, weights) = part.block, known.inside(part)
    labels, own = np.zeros(len(block), dtype=np.int32), np.zeros(len(block))
    labels[rows], own[rows] = clusters, weights
    scales, constants = (to_host(term)[rows] for term in (block.terms["sum"], block.constants))
    squares, nothing = weights * scales * scales, np.zeros(len(rows))
    values = (weights * scales, weights, weights * scales, squares, squares, nothing, nothing)
    table = table_of(clusters, values, k)
    totals = np.bincount(clusters, weights=weights * constants, minlength=k)
    return np.column_stack([block.sum_by_label(labels, own, k), table.T, totals])


def constant_of(data: Data) -> float:
    """Σ w·constant over all rows, the known ones included."""
    return data.constant + (0.0 if data.guide is None else data.guide.constant)


def guided_objective(data: Data, step: StepSums, centroids: FloatArray) -> float:
    """D(X, WH) for all rows, with centroids smoothed, as every score of a model is."""
    W = data.divergence.smooth(to_host(centroids), at_least=MIN_SMOOTHING)
    return constant_of(data) - float((to_host(step.sums) * log(W)).sum())


STARTS_OF_OTHERS = ("++", "random", "random-partition")
"""Starts by name that find first centroids for the clusters of which nothing is known."""


def guided_start(data: Data, init: str, seed: int) -> Seeds:
    """First centroids: those of known rows and seeds, and for the other clusters those of a start."""
    guide, rng = data.guide, np.random.default_rng(seed)
    given = guide.has_rows | guide.has_seeds
    centroids, k = first_centroids(data), len(given)
    if init == "random-partition":
        centroids[~given] = random_partition(data, k, rng).centroids[~given]
    else:
        drawn = draw_rows(data, k, rng, by_loss=init == "++", given=centroids[given])
        centroids[~given] = drawn.centroids[np.count_nonzero(given) :]
    return Seeds(tie_parallel(centroids, data.divergence))


def first_centroids(data: Data) -> FloatArray:
    """Centroids of the known rows and the seeds of each cluster, 0 if it has neither. → (k, columns)

    A cluster that has only seeds begins with the rows in which its seeds weigh more than those of the others.
    """
    guide = data.guide
    assert isinstance(data.divergence, KullbackLeibler)
    sums, alone = guide.sums.sums.copy(), guide.has_seeds & ~guide.has_rows
    if alone.any():
        mean = (data.total(whole_sum) + sums.sum(axis=0))[: guide.features]
        mean = mean / mean.sum()
        C = mean + np.vstack([0.0 * mean, guide.share * guide.priors[alone, : guide.features]])
        B = np.pad(log(C + data.divergence.smoothing), ((0, 0), (0, data.shape[1] - guide.features)))
        sums[alone] = data.total(sums_by_template, B)[1:]
    mass = sums[:, : guide.features].sum(axis=1)
    return Tilt(replace(guide, adapt=1.0))(sums, mass)[0]


def whole_sum(part: Part) -> FloatArray:
    """The sum of the rows of a part. → (columns,)"""
    return sums_of_labels(part.block, np.zeros(len(part.block), dtype=np.int32), 1)[0]


def feature_sums(part: Part) -> FloatArray:
    """The sum of the rows of a part, whatever their weights. → (columns,)"""
    n = len(part.block)
    return part.block.sum_by_label(np.zeros(n, dtype=np.int32), part.block.backend.to_device(np.ones(n)), 1)[0]


def check_seeds_occur(data: Data, priors: FloatArray, names: Array | None) -> None:
    """Refuse seed features that no row has."""
    absent = np.argwhere((priors > 0) & (data.total(feature_sums)[: priors.shape[1]] == 0))
    if len(absent):
        cluster, feature = absent[0].tolist()
        raise ValueError(
            f"No row has the feature {feature if names is None else names[feature]!r}, which is a seed of cluster "
            f"{cluster}, the first of {len(absent)} such seeds: leave them out."
        )


def sums_by_template(part: Part, B: FloatArray) -> FloatArray:
    """The sums of the rows of a part by their best template, the first of which wins ties. → (templates, columns)"""
    return sums_of_labels(part.block, part.block.assign(part.block.prepare_templates(B)).labels, len(B))


def sums_of_labels(block: Block, labels: Array, k: int) -> FloatArray:
    """The sums of weighted rows by label. → (k, columns)"""
    return block.sum_by_label(labels, block.backend.to_device(block.host_weights), k)
