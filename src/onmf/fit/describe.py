"""The results of a fit and of an assignment, and what there is to say about each row of a part.

The functions of a part are for :meth:`Data.map_rows` and :meth:`Data.total`. They compute where the backend does, on
the host or on a GPU; centroids and norms may come from either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Block, CentroidEntries, on_gpu, to_host
from onmf.data import Part
from onmf.data.known import Known, labels_of
from onmf.data.parts import evaluate_part
from onmf.divergence import Array, Divergence, FloatArray, RowTerms, divide
from onmf.functions import exp, matrix_product, xlogy


class Agreement(NamedTuple):
    """How well several runs agree with their consensus.

    Attributes
    ----------
    overall : float
        The mean over the rows: 1 if all runs found the same clusters, up to the order of the labels.
    rows : (n,) array
        For each row, the probability that a random run puts it together with a random other row of its cluster.
    """

    overall: float
    rows: FloatArray


class Assigned(NamedTuple):
    """The assignment of new rows.

    Attributes
    ----------
    labels : (n,) array of int
        Cluster of each row.
    scales : (n,) array
        Scale of each row, as :meth:`onmf.ONMF.transform` gives it.
    margins : (n,) array
        How much worse the best other cluster is than the row's own, in units of the row (for counts: per word).
    """

    labels: Array
    scales: FloatArray
    margins: FloatArray


@dataclass(frozen=True)
class Clustering:
    """Row i of X is about ``scales[i] · centroids[labels[i]]``."""

    labels: Array  #: (n,) cluster of each row
    scales: FloatArray  #: (n,) scale of each row; within a cluster their (weighted) squares sum to one
    centroids: FloatArray  #: (k, p) one row for each cluster: the paper's Wᵀ
    objective: float  #: D(X, WH), or ‖X − WH‖_F²
    n_iter: int  #: iterations, including the one that detected convergence
    stop_reason: str  #: ``"converged"``, ``"fixed point"``, ``"max_iter"`` or ``"callback"``
    #: For each iteration: ``"moved"`` rows, ``"change"`` ‖H − H_prev‖_F, ``"seconds"``, ``"objective"`` if computed.
    history: dict[str, Array]
    masses: FloatArray  #: (k,) weighted sum of scales: ``masses @ centroids`` is the fitted sum of all rows
    n_filled: int  #: number of clusters that have rows of positive scale
    init_rows: Array | None  #: (k,) the rows of X that were the first centroids; None if these were not rows
    parameters: dict[str, Any] = field(default_factory=dict)  #: of the fit
    margins: FloatArray | None = None  #: (n,) how much worse the best other cluster is, per unit (such as a word)
    n_sweeps: int = 0  #: passes of the local search over the rows; 0 without one
    agreement: Agreement | None = None  #: how well the runs behind a consensus agreed
    groups: Array | None = None  #: labels of the groups of the rows, if they have any
    group_effects: FloatArray | None = None  #: (groups, p) factor by which each group multiplies each feature
    group_counts: FloatArray | None = None  #: (k, groups) sums of the rows of each group in each cluster
    #: (k,) the cluster of each centroid after clusters were edited, -1 for one set aside; None: each has its own.
    clusters: Array | None = None
    adapt: float | None = None  #: how much free rows counted in clusters with known rows; None if no row was known

    def reordered(self, order: Array) -> Clustering:
        """The same clusters in another order: the new cluster k is the old cluster ``order[k]``."""
        place = np.empty(len(order), dtype=self.labels.dtype)
        place[order] = np.arange(len(order))
        return replace(
            self,
            labels=place[self.labels],
            centroids=np.ascontiguousarray(self.centroids[order]),
            masses=self.masses[order],
            init_rows=None if self.init_rows is None else self.init_rows[order],
            group_counts=None if self.group_counts is None else self.group_counts[order],
        )

    @property
    def numbers(self) -> Array:
        """The numbers of the clusters that there are, rising; those that were merged into others leave gaps."""
        if self.clusters is None:
            return np.arange(len(self.centroids))
        return np.unique(self.clusters[self.clusters >= 0])

    def by_cluster(self) -> tuple[Array, FloatArray, FloatArray]:
        """The clusters that there are, and on the host the centroid and the mass of each: of its centroids together."""
        centroids, masses = to_host(self.centroids), to_host(self.masses)
        if self.clusters is None:
            return self.numbers, centroids, masses
        numbers, inside = self.numbers, np.flatnonzero(self.clusters >= 0)
        place = np.searchsorted(numbers, self.clusters[inside])
        members = np.zeros((len(numbers), len(centroids)))
        members[place, inside] = masses[inside]
        totals = members.sum(axis=1)
        return numbers, matrix_product(divide(members, totals[:, None]), centroids), totals

    @property
    def W(self) -> FloatArray:
        """Centroids in the paper's orientation. → (features, clusters)"""
        return self.centroids.T

    @property
    def H(self) -> Any:
        """Scales in the paper's orientation, one nonzero in each column, H Hᵀ = I. → (clusters, samples), sparse"""
        return membership(self.labels, self.scales, len(self.centroids)).T.tocsr()


def membership(labels: Array, scales: FloatArray, k: int) -> Any:
    """Hᵀ: the scale of each row in the column of its cluster. → (n, k), sparse"""
    container: Any = csr_array
    if on_gpu(labels):
        from cupyx.scipy.sparse import csr_matrix

        container = csr_matrix
    filled = scales != 0
    starts = np.zeros_like(labels, shape=len(labels) + 1)
    starts[1:] = np.cumsum(filled)
    return container((scales[filled], labels[filled], starts), shape=(len(labels), k))


def distinctiveness(centroids: FloatArray, masses: FloatArray) -> FloatArray:
    """How much each feature sets each cluster apart from the whole. → (k, p)

    With c a centroid and q the whole, ``masses @ centroids``, both normalised to sum 1: c log(c / q). Centroids with
    negative entries are returned at unit length instead.
    """
    if (centroids < 0).any():
        return divide(centroids, np.linalg.norm(centroids, axis=1, keepdims=True))
    C = divide(centroids, centroids.sum(axis=1, keepdims=True))
    whole = matrix_product(masses[None], centroids)[0]
    q = divide(whole, whole.sum())
    return xlogy(C, np.divide(C, np.maximum(q, 1e-300), out=np.ones_like(C), where=q > 0))


MIN_SMOOTHING = 1e-10  # least smoothing under which features that no row of a cluster has yet may occur
ROWS_AT_A_TIME = 1 << 18  # whose margins are computed together, which bounds the memory of intermediate results


def last_labels(part: Part, norms: FloatArray, known: Known | None = None) -> tuple[Array, FloatArray]:
    """Labels of the last step, and scales in the gauge H Hᵀ = I. → 2 × (n,)"""
    to_device = part.block.backend.to_device
    labels, scales = map(to_device, (labels_of(part, known), part.run.collect().scales))
    return labels, scales / to_device(norms)[labels]


def best_labels(part: Part, centroids: FloatArray, clusters: Array | None = None) -> tuple[Array]:
    """The cluster of each row of a part; ``clusters`` are those of the centroids, if several may share one. → (n,)"""
    return (clusters_of(part, part.run.labels_from(centroids), clusters),)


def clusters_of(part: Part, labels: Array, clusters: Array | None) -> Array:
    """The clusters of rows whose centroids are known. → (n,)"""
    return labels if clusters is None else part.block.backend.to_device(clusters)[labels]


def labels_and_scales(part: Part, centroids: FloatArray, labels: Array | None = None) -> tuple[Array, FloatArray]:
    """Cluster of each row of a part, the best one unless it is given, and its scale for its centroid. → 2 × (n,)"""
    block = part.block
    centroids = block.backend.to_device(centroids)
    templates = block.prepare(centroids)
    if labels is None:
        labels, scales, _ = block.assign(templates)
    else:
        labels = block.backend.to_device(labels)
        scales = block.own_scales(templates, labels, block.own_and_next(templates, labels)[0])
    return labels, divide(scales, block.divergence.sizes_of_rows(centroids, labels, block.terms))


def margins_of(part: Part, centroids: FloatArray, labels: Array) -> tuple[FloatArray]:
    """How much worse the best other cluster of each row is than its own, in units of the row. → (n,)"""
    block = part.block
    part.run.free_workspace()  # the templates of the last step and the sums
    own, following = block.own_and_next(block.prepare(centroids), labels)
    return (margins(block.divergence, own, following, block.terms),)


def labels_scales_and_margins(
    part: Part, centroids: FloatArray, clusters: Array | None = None, labels: Array | None = None
) -> tuple[Array, FloatArray, FloatArray]:
    """Centroid, scale and margin of each row of a part; of the best one unless ``labels`` are given. → 3 × (n,)

    ``clusters`` are those of the centroids, if several may share one: the margin is that to the best one of another.
    """
    block = part.block
    labels, scales = labels_and_scales(part, centroids, labels)
    if clusters is None:
        return labels, scales, *margins_of(part, centroids, labels)
    losses, rows = to_host(losses_of(block, centroids)), np.arange(len(block))
    own, at = losses[rows, to_host(labels)], clusters[to_host(labels)]
    others = np.where(at[:, None] == clusters, np.inf, losses).min(axis=1, initial=np.inf)
    sizes = to_host(block.divergence.row_size(block.terms))
    with np.errstate(invalid="ignore"):
        difference = np.where(np.isposinf(own) & np.isposinf(others), 0.0, others - own)
    return labels, scales, np.where(sizes > 0, divide(difference, sizes), 0.0)


def assigned(part: Part, centroids: FloatArray, clusters: Array | None = None) -> tuple[Array, FloatArray, FloatArray]:
    """The same with the cluster of each row. → 3 × (n,)"""
    labels, scales, margins = labels_scales_and_margins(part, centroids, clusters)
    return clusters_of(part, labels, clusters), scales, margins


def losses_of(block: Block, centroids: FloatArray, divergence: Divergence | None = None) -> FloatArray:
    """The loss of each row under each centroid, 0 where all are infinite. → (n, k)

    Another ``divergence`` than the block's own may differ from it only in its smoothing.
    """
    scores = block.scores(block.prepare(centroids, divergence))
    losses = np.empty_like(scores)
    for k in range(scores.shape[1]):
        losses[:, k] = block.losses(scores[:, k])
    losses[np.isposinf(losses).all(axis=1)] = 0.0  # no template can explain the row: all are as good
    return losses


def probabilities(
    part: Part, centroids: FloatArray, temperature: float, clusters: Array | None = None
) -> tuple[FloatArray]:
    """The probability of each cluster for each row of a part. → (n, clusters)"""
    losses = losses_of(part.block, centroids)
    chances = exp((losses.min(axis=1, keepdims=True) - losses) / temperature)
    chances = chances / chances.sum(axis=1, keepdims=True)
    if clusters is None:
        return (chances,)
    members = clusters[:, None] == np.arange(clusters.max(initial=-1) + 1)
    return (chances @ part.block.backend.to_device(members.astype(np.float64)),)


def own_loss(part: Part, centroids: FloatArray) -> float:
    """Σ w·loss in the last step, less the rows' constants, for divergences without closed forms."""
    return float(evaluate_part(part, CentroidEntries.of(centroids))[0].sum())


def total_loss(part: Part, centroids: FloatArray) -> FloatArray:
    """Σ w·loss under these centroids, without smoothing, and Σ w over a part. → (2,)"""
    block = part.block
    losses = to_host(block.assign(block.prepare(centroids, block.divergence.unsmoothed())).losses)
    weights = block.host_weights
    return np.array([np.sum(weights * losses), np.sum(weights)])


def margins(divergence: Divergence, own: FloatArray, following: FloatArray, terms: RowTerms) -> FloatArray:
    """How much worse the best other cluster of each row is than its own, from the two scores, in units of the row.

    Negative if the other one is better, which a local search or an early stop can leave; 0 for a row that holds
    nothing. Without smoothing a cluster can cost infinity: then the margin is infinite if no other cluster can explain
    the row, and minus infinity if its own cannot (a row of weight 0, which does not shape its centroid). It is also
    infinite with one cluster. → (n,)
    """
    out = np.empty_like(own)
    for start in range(0, len(own), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        part = {name: term if np.ndim(term) == 0 else term[rows] for name, term in terms.items()}
        gains = [divergence.gain(score, divergence.scale(score, part), part) for score in (own[rows], following[rows])]
        sizes = divergence.row_size(part)
        with np.errstate(invalid="ignore"):  # two infinite costs: no difference
            difference = gains[0] - gains[1]
        difference = np.where((following[rows] == -np.inf) & (own[rows] > -np.inf), np.inf, difference)
        out[rows] = np.where(sizes > 0, divide(np.where(np.isnan(difference), 0.0, difference), sizes), 0.0)
    return out
