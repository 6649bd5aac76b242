"""Groups: rows of batches, sources or scenes, each of which multiplies every feature by a factor of its own.

Given labels, centroids w and multipliers s are fitted by iterative proportional fitting of the table of clusters ×
groups × features to its margins. With S_kj the sums by label, T_bj the sums by group, m_kb the counts of group b in
cluster k, and A_kb = m_kb / ⟨w_k, s_b⟩ the sum of the scales there, a round computes A, then

    w_kj = S_kj / Σ_b A_kb s_bj,      s_bj = (T_bj + τ_b) / (Σ_k A_kb w_kj + τ_b)

The weak prior τ_b, a pseudo-count on average, draws multipliers to 1 where a group says nothing about a feature. Each
of A, w and s minimises, given the other two, the objective

    Σ x log x − Σ |x| log|x| + Σ_kb m_kb log⟨w_k, s_b⟩ − Σ_kj S_kj log w_kj − Σ_bj T_bj log s_bj
        + Σ_bj τ_b (s_bj − log s_bj − 1)

w ∘ c and s / c are the same model for any c, and so are s_b and f s_b. The prior decides: Σ_b π_b s_bj = 1 for each
feature and Σ_j s_bj = p for each group, where π_b is the share of the counts that are of group b, and τ_b = τ G π_b.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.sparse.csgraph import connected_components

from onmf.backend import Drift, Steps, StepSums, Threads, to_host
from onmf.data import Data, Part
from onmf.data.known import Known, labels_of, weights_of
from onmf.divergence import Array, FloatArray, divide
from onmf.divergence.groups import GroupedKullbackLeibler
from onmf.functions import log, matrix_product, xlogy
from onmf.io.rules import some_names

from .describe import MIN_SMOOTHING, Clustering
from .known import Tilt, constant_of

PRIOR = 1.0  # pseudo-counts of each multiplier, on average over the groups
LEAST_PRIOR = 1e-12  # of a group without counts, whose multipliers are then 1
ROUNDS = 1  # in an iteration in which rows moved
MOST_ROUNDS = 2000  # of them once no row moves
CHECKED = 10  # rounds after which the objective is computed, to see whether they go on
PRECISION = 1e-12  # fall of the objective in so many rounds, relative to the sum of all entries, at which they end
CONVERGED = 1e-9  # relative change of multipliers at which those of a new group are found


@dataclass(frozen=True)
class Grouping:
    """What the data say about their groups, whatever the labels are."""

    divergence: GroupedKullbackLeibler
    totals: FloatArray  # (groups, p) T, sums of the rows of each group

    @classmethod
    def of(cls, data: Data) -> Grouping | None:
        """Sum the rows by group; None if they have no groups."""
        if not isinstance(data.divergence, GroupedKullbackLeibler):
            return None
        p = data.divergence.features
        totals: FloatArray = data.total(sums_by_group, data.shape[1] - p, data.known)
        return cls(data.divergence, np.ascontiguousarray(totals[:, :p]))

    @cached_property
    def total(self) -> float:
        """The sum of all entries."""
        return float(self.totals.sum())

    @cached_property
    def prior(self) -> FloatArray:
        """τ_b → (groups,)"""
        counts = self.totals.sum(axis=1)
        return np.maximum(divide(PRIOR * len(counts) * counts, counts.sum()), LEAST_PRIOR)

    def objective(self, sums: FloatArray, w: FloatArray, s: FloatArray, v: FloatArray) -> float:
        """The objective less the constants of the rows."""
        p = self.divergence.features
        S, m = sums[:, :p], sums[:, p:]
        fit = xlogy(m, np.where(m > 0, v, 1.0)).sum() - xlogy(S, np.where(S > 0, w, 1.0)).sum()
        logs = log(s)
        penalty = (self.prior[:, None] * (s - logs - 1)).sum()
        return float(fit - (self.totals * logs).sum() + penalty)


class Fitting:
    """Centroids and multipliers that are fitted to one step after the other."""

    def __init__(self, grouping: Grouping, threads: Threads, effects: FloatArray | None = None) -> None:
        self.grouping, self.threads = grouping, threads
        self._s = np.ones_like(grouping.totals) if effects is None else effects.copy()  # times their means
        self._means = np.ones(len(self._s))
        self.ratios: FloatArray | None = None  # (k, groups) v of centroids of sum 1

    @property
    def effects(self) -> FloatArray:
        """The multipliers s. In a round nothing needs them, and dividing them by their means takes long."""
        return self._s / self._means[:, None]

    def fit(self, sums: FloatArray, filled: Array, W: FloatArray, rounds: int) -> None:
        """Fit to the sums by label (k, p + groups) in some rounds, and overwrite the centroids W, of the same shape."""
        from onmf.kernels import groups as kernel  # numba takes long to import

        totals, prior, p, s = self.grouping.totals, self.grouping.prior, self.grouping.divergence.features, self._s
        shares, m = prior / prior.sum(), np.ascontiguousarray(sums[:, p:])
        tiles = -(-p // kernel.TILE)
        (k, number), before = m.shape, np.arange(tiles + 1)
        v, lengths = np.empty((tiles, k, number)), np.empty((tiles, number))
        work, last = 4 * k * number * kernel.TILE, np.inf
        v_before = np.ones_like(m) if self.ratios is None else self.ratios
        for done in range(1, rounds + 1):
            A = divide(m, v_before)
            given = W, s, v, lengths, sums, totals, prior, shares, filled, A / self._means, np.ascontiguousarray(A.T)
            self.threads.over_blocks(partial(kernel.fit_tiles, *given), before, work)
            self._means, ratios = lengths.sum(axis=0) / p, v.sum(axis=0)
            size = matrix_product(ratios, shares[:, None])  # as long as Σ_b π_b s_bj = 1
            ratios = divide(ratios / self._means, size)
            ratios[size[:, 0] == 0] = 1.0
            v_before = ratios * size
            if done % CHECKED == 0:
                value = self.grouping.objective(sums, divide(W[:, :p], size), self.effects, ratios)
                if last - value <= PRECISION * self.grouping.total:
                    break
                last = value
        self.ratios = ratios
        W[:, p:] = size * self.grouping.divergence.columns(ratios)


class GroupSteps(Steps):
    """The steps of a run over rows with groups: centroids and multipliers are fitted together."""

    def __init__(self, inner: Steps, data: Data, effects: FloatArray | None = None) -> None:
        self.inner, self.grouping, self.known = inner, data.grouping, data.known
        self.fitting = Fitting(data.grouping, data.backend.threads, effects)
        if effects is not None:
            w = data.grouping.divergence.normalise(to_host(inner.centroids))[:, : data.grouping.divergence.features]
            self.fitting.ratios = products(w, effects)
        self._sums: FloatArray | None = None  # of the last step
        self._ended = False  # whether the last fit went to the end
        self._tilt = Tilt(data.guide) if data.guide is not None and data.guide.tilts else None
        self._plain = None if self._tilt is None else to_host(inner.centroids).copy()  # multipliers are fitted with it

    @property
    def centroids(self) -> FloatArray:  # type: ignore[override]
        return self.inner.centroids

    @property
    def shown(self) -> FloatArray:
        """The centroids without the columns of the groups."""
        return self.centroids[:, : self.grouping.divergence.features]

    def next(self) -> StepSums:
        return self.inner.next()

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self._ended = False
        self.inner.put(cluster, centroid)

    def vacant(self, step: StepSums) -> Array:
        return self.inner.vacant(step)

    def update(self, step: StepSums, *, more: bool) -> Drift:
        """Fit centroids and multipliers to a step: a round while rows move, and to the end once none does."""
        moved = step.moved
        if not moved and self._ended:  # the labels are those of these centroids, to the last bit
            return lambda: 0.0
        self._ended = not moved
        W, self._sums = to_host(self.centroids), np.ascontiguousarray(to_host(step.sums))
        rounds = ROUNDS if moved and more else MOST_ROUNDS
        self.fitting.fit(self._sums, ~step.empty, W if self._plain is None else self._plain, rounds)
        if self._tilt is not None:
            sums, mass = self._tilt(self._sums, step.mass)
            W[mass > 0] = self._tilted(sums[mass > 0], W[mass > 0], rounds)
        if W is not self.centroids:
            for cluster, centroid in enumerate(W):
                self.inner.put(cluster, centroid)
        return lambda: np.inf

    def _tilted(self, sums: FloatArray, W: FloatArray, rounds: int) -> FloatArray:
        """Centroids of tilted sums, from earlier ones, for the multipliers of this step. → (k, p + groups)"""
        divergence, p, s = self.grouping.divergence, self.grouping.divergence.features, self.fitting.effects
        w = fit_centroids(sums[:, :p], sums[:, p:], s, divergence.normalise(W)[:, :p], rounds)
        return divergence.with_groups(w, products(w, s))

    def _fitted(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Sums by label, centroids of sum 1, multipliers, and ⟨w_k, s_b⟩."""
        p, s = self.grouping.divergence.features, self.fitting.effects
        w = self.grouping.divergence.normalise(to_host(self.centroids))[:, :p]
        assert self._sums is not None, "comes after an update"
        return self._sums, w, s, products(w, s)

    def objective(self, data: Data) -> float:
        """The objective after the last update."""
        sums, w, s, v = self._fitted()
        if self._tilt is not None:
            w = data.divergence.smooth(to_host(self.centroids), at_least=MIN_SMOOTHING)[:, : w.shape[1]]
            v = products(w, s)
        return constant_of(data) + self.grouping.objective(sums, w, s, v)

    def fields(self, data: Data, step: StepSums) -> dict[str, Any]:
        """The fields of a clustering in the gauge H Hᵀ = I: the squares of the scales of a cluster sum to 1."""
        sums, w, s, v = self._fitted()
        m = sums[:, w.shape[1] :]
        squares: FloatArray = data.total(squares_by_group, *m.shape, self.known)
        norms = np.sqrt(divide(squares, v * v).sum(axis=1))
        return fields_in_groups(data, w, s, m, norms) | {
            "objective": self.objective(data),
            "n_filled": int(np.count_nonzero(~step.empty)),
        }


def fields_in_groups(data: Data, w: FloatArray, s: FloatArray, m: FloatArray, norms: FloatArray) -> dict[str, Any]:
    """Fields of a clustering, from centroids of sum 1, multipliers, the counts m_kb, and the norms of the scales."""
    v = products(w, s)
    N = np.where(norms > 0, norms, 1.0)[:, None]
    labels, scales = data.map_rows(labels_and_scales, v * N, data.known)
    assert isinstance(data.divergence, GroupedKullbackLeibler)
    return {
        "labels": labels,
        "scales": scales,
        "centroids": N * data.divergence.with_groups(w, v),
        "masses": divide(m, v * N).sum(axis=1),
        "group_effects": s,
        "group_counts": m,
    }


def centroids_in_groups(data: Data, centroids: FloatArray, effects: FloatArray) -> FloatArray:
    """Centroids with the columns of groups that have these multipliers. → (k, p + groups)"""
    divergence = data.divergence
    assert isinstance(divergence, GroupedKullbackLeibler)
    w = divergence.normalise(centroids)[:, : divergence.features]
    return divergence.with_groups(w, products(w, effects))


def products(w: FloatArray, s: FloatArray) -> FloatArray:
    """⟨w_k, s_b⟩, and 1 for centroids of zeros: their templates have equal entries. → (k, groups)"""
    found = np.stack([(w * each).sum(axis=1) for each in s], axis=1)
    found[~w.any(axis=1)] = 1.0
    return found


def estimate_effects(data: Data, w: FloatArray) -> FloatArray:
    """The multipliers of the only group of the rows, for centroids of sum 1 that stay as they are. → (p,)"""
    divergence, p = data.divergence, w.shape[1]
    assert isinstance(divergence, GroupedKullbackLeibler)
    total: FloatArray = data.total(sums_by_group, data.shape[1] - p)[:1, :p]
    s, moved = np.ones((1, p)), True
    run: Any = None
    for _ in range(MOST_ROUNDS):
        v = products(w, s)
        columns = np.ones((len(w), data.shape[1] - p))
        columns[:, :1] = v
        if moved:  # the labels of the last step are kept by the run
            run = data.steps(divergence.with_groups(w, columns)) if run is None else run
            for cluster, centroid in enumerate(divergence.with_groups(w, columns)):
                run.put(cluster, centroid)
            step = run.next()
            moved, m = step.moved > 0, to_host(step.sums)[:, p : p + 1]
        before = s
        s = (total + PRIOR) / (matrix_product(divide(m, v).T, w) + PRIOR)
        s = s / s.mean()
        if not moved and np.max(np.abs(s - before) / s) <= CONVERGED:
            break
    return s[0]


def fit_centroids(S: FloatArray, m: FloatArray, s: FloatArray, w: FloatArray, rounds: int) -> FloatArray:
    """Centroids of sum 1 for sums and counts, from earlier centroids, if the multipliers stay as they are. → (k, p)"""
    m = np.where(m.any(axis=1, keepdims=True), m, 1.0)  # a cluster that has seeds alone is in all groups
    for _ in range(rounds):
        before = w
        w = divide(S, matrix_product(divide(m, products(w, s)), s))
        w = divide(w, w.sum(axis=1, keepdims=True))
        if np.max(np.abs(w - before)) <= CONVERGED:
            break
    return w


def centroids_for_effects(
    X: Any, labels: Array, k: int, effects: FloatArray, codes: Array
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centroids, masses and scales for labels, if the multipliers of the groups stay as they are.

    X are rows in memory, and the codes (n,) say which group each is of. The scales are in the gauge H Hᵀ = I.
    """
    n, (number, p) = X.shape[0], effects.shape
    members = csr_array((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    sums = members @ X
    S = np.asarray(sums.todense() if issparse(sums) else sums, dtype=np.float64).reshape(k, p)
    totals = np.asarray(X.sum(axis=1), dtype=np.float64).ravel()
    m: FloatArray = np.zeros((k, number))
    np.add.at(m, (labels, codes), totals)
    w = divide(S, S.sum(axis=1, keepdims=True))
    w = fit_centroids(S, m, effects, w, MOST_ROUNDS)
    scales = totals / products(w, effects)[labels, codes]
    norms = np.sqrt(np.bincount(labels, weights=scales * scales, minlength=k))
    norms[norms == 0] = 1.0
    masses = np.bincount(labels, weights=scales, minlength=k) / norms
    return norms[:, None] * w, masses, scales / norms[labels]


def sums_by_group(part: Part, number: int, known: Known | None = None) -> FloatArray:
    """The sums of the rows of a part by group. → (groups, p + groups)"""
    block = part.block
    return block.sum_by_label(
        groups_of(part, block.backend.to_device), block.backend.to_device(weights_of(part, known)), number
    )


def groups_of(part: Part, place: Any = to_host) -> Array:
    """The group of each row of a part. → (n,) int32"""
    return place(part.block.terms["group"]).astype(np.int32)


def squares_by_group(part: Part, k: int, number: int, known: Known | None) -> FloatArray:
    """Σ w |x|² by cluster of the last step and group. → (k, groups)"""
    labels, sums = (np.asarray(to_host(array)) for array in (labels_of(part, known), part.block.terms["sum"]))
    places = labels.astype(np.int64) * number + groups_of(part)
    found = np.bincount(places, weights=weights_of(part, known) * sums * sums, minlength=k * number)
    return found.astype(np.float64).reshape(k, number)


def labels_and_scales(part: Part, sizes: FloatArray, known: Known | None) -> tuple[Array, FloatArray]:
    """Labels of the last step, and scales |x| / size, for sizes by cluster and group. → 2 × (n,)"""
    place = part.block.backend.to_device
    labels = place(labels_of(part, known))
    return labels, part.block.terms["sum"] / place(sizes)[labels, groups_of(part, place)]


def sizes_in_groups(w: FloatArray, s: FloatArray) -> FloatArray:
    """⟨w_k, s_b⟩ for centroids of sum 1, and 1 for rows of no known group. → (k, groups + 1)"""
    return np.column_stack([products(w, s), np.ones(len(w))])


def gain_of_groups(data: Data, s: FloatArray) -> float:
    """Σ_bj T_bj log s_bj, by which multipliers lower the losses that are computed from scores."""
    totals: FloatArray = data.total(sums_by_group, len(s) + 1)
    return float((totals[:-1, : s.shape[1]] * log(s)).sum())


def apart(clustering: Clustering) -> str | None:
    """What to say if clusters and groups fall apart into parts that share no rows."""
    counts, names = clustering.group_counts, clustering.groups
    if counts is None or names is None:
        return None
    k, number = counts.shape
    links = csr_array(np.block([[np.zeros((k, k)), counts > 0], [np.zeros((number, k + number))]]))
    which = connected_components(links, directed=False)[1]
    parts = np.unique(which[:k][counts.any(axis=1)])
    if len(parts) == 1:
        return None
    some = some_names([some_names(names[which[k:] == part]) for part in parts], between="; ")
    return (
        f"The clusters of some groups hold no rows of the others ({some}): nothing tells there what is due to the "
        "group and what to the cluster. Ask for fewer clusters, or leave groups out."
    )


def features_of(data: Data) -> int:
    """The number of features, without the columns of the groups."""
    return data.divergence.features if isinstance(data.divergence, GroupedKullbackLeibler) else data.shape[1]


def without_groups(data: Data, clustering: Clustering) -> Clustering:
    """The clustering without the columns of the groups."""
    if not isinstance(data.divergence, GroupedKullbackLeibler):
        return clustering
    return replace(clustering, centroids=clustering.centroids[:, : data.divergence.features].copy())
