"""How unusual a row is among rows like it: a p-value that holds for new rows.

A row that fits nowhere has a large loss, for a row of its size, even under the centroid that fits it best. How large is
unusual is learnt from rows that had no part in the centroids they are compared with: the rows are divided into folds,
and the rows of each fold are compared with the centroids that the other rows make. If the rows of a fit and new rows
come from the same source, a share α of the new ones has a p-value of at most α, whatever the losses look like (a
conformal p-value).

Labels play no part: whether a row is in the right cluster is another question, which the confidence answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from onmf import interrupt
from onmf.backend import Block, to_host
from onmf.data import get_engine
from onmf.data.intake import prepare_data
from onmf.divergence import Array, FloatArray, divide
from onmf.estimator import ONMF
from onmf.functions import exp, log
from onmf.io.rules import Rule, array, filled, integer, number, optional

FEWEST = 20  # rows from which anything is learnt
FOLDS, WORK = 50, 1 << 28  # at most; and entries of centroids that are computed for all of them
SEED = 471_862_053  # of the division into folds
SMOOTHING = 0.1  # of a mean share, under which losses are measured: with more, words of another subject cost little
BIN, BINS = 50, 20  # rows behind each size at which the usual loss is known, at least; and such sizes, at most
PRIOR_ROWS = 20  # that every cluster counts as having more, and that behave like all rows
TAIL = 0.9  # quantile of the rise above the usual loss that says how far losses vary
ROUNDS = 3  # in which sizes and clusters are fitted in turn
SCORES = 2_000  # that are kept, at most
DIGITS = 6  # of scores: what differs less is rounding
ALONE = 1e-12  # share of a mass that is rounding
LEAST, LARGEST = 1e-2, 1e200  # of the median loss, below which rows fit alike; and what stands for infinite losses
TINY = 1e-300  # stands for 0 in logarithms


@dataclass(frozen=True, eq=False)
class Usual:
    """The usual logarithm of a row's loss per unit, and how far it rises, by the size of the row and its centroid.

    A row of the usual loss has the score 0; about one in ten has a score above 1.
    """

    by_size: FloatArray  # (3, b) logarithms of sizes of rows, rising; the usual one of their loss; how far it rises
    by_centroid: FloatArray  # (2, k) what is added to the usual, and what multiplies the rise
    least: float  # loss of a unit below which nothing is told apart
    scores: FloatArray  # (2, m) of rows that had no part in the centroids, falling; how many rows have at least these
    n_rows: int

    def scores_of(self, losses: FloatArray, sizes: FloatArray, labels: Array) -> FloatArray:
        """How far losses per unit lie above the usual. → (n,)"""
        at = log(np.maximum(sizes, TINY))
        known, levels, rises = self.by_size
        offsets, factors = self.by_centroid[:, labels]
        above = log(np.maximum(losses, self.least)) - np.interp(at, known, levels) - offsets
        return np.round(divide(above, np.interp(at, known, rises) * factors), DIGITS)

    def surprise(self, losses: FloatArray, sizes: FloatArray, labels: Array) -> FloatArray:
        """The share of rows, and of this one, that are at least as unusual: a p-value for each row. → (n,)"""
        # The first of the kept scores that is lower stands for those in between, which makes p larger.
        place = np.searchsorted(-self.scores[0], -self.scores_of(losses, sizes, labels), side="right")
        return np.append(self.scores[1], self.n_rows + 1.0)[place] / (self.n_rows + 1.0)

    def with_parts(self, kept: Array, cluster: int, parts: int) -> Usual:
        """The same after some centroids were replaced by those of the parts of a cluster, which come last.

        For the parts is usual what was usual for the cluster. ``kept`` are the centroids that stay.
        """
        own = np.append(kept, np.full(parts, cluster, dtype=kept.dtype))
        return replace(self, by_centroid=self.by_centroid[:, own])

    def parts(self) -> dict[str, Any]:
        """The entries of a model file."""
        return {f"usual_{name}": value for name, value in vars(self).items()}


def usual_rules(k: int) -> dict[str, Rule]:
    """Rules for the entries of a model file."""
    by_size, by_centroid, scores = (array(("float64",), *shape) for shape in ((3, None), (2, k), (2, None)))
    rules = {"by_size": filled(by_size), "by_centroid": by_centroid, "scores": filled(scores)}
    rules |= {"least": number(0), "n_rows": integer(1)}
    return {f"usual_{name}": optional(rule) for name, rule in rules.items()}


def usual_of(parts: Mapping[str, Any]) -> Usual | None:
    """What a model file knows of usual losses; None if it is of a version that knew nothing."""
    names = [each.name for each in fields(Usual)]
    known = all(f"usual_{name}" in parts for name in names)
    return Usual(**{name: parts[f"usual_{name}"] for name in names}) if known else None


class Effects(NamedTuple):
    """Groups of rows, each of which multiplies the features of the centroids."""

    factors: FloatArray  # (groups, p)
    codes: Array  # (n,) group of each row


@interrupt.heeding
def learn_usual(
    model: ONMF, rows: Any, labels: Array, effects: Effects | None = None, counts: Array | None = None
) -> tuple[Usual, FloatArray]:
    """Learn from rows in memory what losses are usual. → that, and the p-value of each row among the others

    There must be at least :data:`FEWEST` rows; ``labels`` are their centroids. If they are only some of the rows of the
    fit, ``counts`` are the numbers of all rows by centroid.
    """
    block, C = _block(model, rows)
    n, k = len(block), len(C)
    more = 1.0 if counts is None else divide(counts, np.bincount(labels, minlength=k).astype(np.float64))
    sums, mass = _sums(block, C, labels)
    sums, mass = (sums.T * more).T, mass * more
    signed = bool((C < 0).any())  # then the sums may be near zero where the centroids are not
    by_sum = divide((C * sums).sum(axis=1), np.square(sums).sum(axis=1))[:, None] if signed else divide(C, sums)
    folds = int(np.clip(WORK // (C.size * (1 if effects is None else len(effects.factors))), 2, FOLDS))
    fold = np.random.default_rng(SEED).permutation(n) % folds
    losses, sizes, best = np.empty(n), np.empty(n), np.empty(n, dtype=np.int32)
    for f in range(folds):
        interrupt.check()
        inside = np.flatnonzero(fold == f)
        part, own = block.subset(inside), None if effects is None else effects._replace(codes=effects.codes[inside])
        own_sums, own_mass = _sums(part, C, labels[inside])
        left, others = 1 - divide(own_mass, mass), C - own_sums * by_sum
        kept = np.flatnonzero(left > ALONE)  # a cluster of these rows alone would not be there without them
        kept = kept if len(kept) else np.arange(k)
        others = others if signed else np.maximum(others, 0.0)  # a difference may be rounded
        centroids = block.divergence.centers(others[kept], np.maximum(left[kept], ALONE))
        losses[inside], sizes[inside], closest = losses_and_sizes(part, centroids, own)
        best[inside] = kept[closest]
    scores = np.empty(n)
    for f in range(folds):  # nor is a row compared with a curve that it shaped
        inside = fold == f
        usual = _curve(losses[~inside], sizes[~inside], best[~inside], k)
        scores[inside] = usual.scores_of(losses[inside], sizes[inside], best[inside])
    rising = np.sort(scores)
    surprise = (n - np.searchsorted(rising, scores, side="left")) / n
    # The highest scores are kept, and ever fewer of the lower ones.
    ranks = np.unique(np.rint(exp(np.linspace(0, log(float(n)), SCORES))).astype(np.int64))
    kept_scores = np.stack([rising[::-1][ranks - 1], ranks])
    return replace(_curve(losses, sizes, best, k), scores=kept_scores), surprise


@interrupt.heeding
def surprise_of(model: ONMF, usual: Usual, rows: Any, effects: Effects | None = None) -> FloatArray:
    """The p-value of new rows in memory. → (n,)"""
    return usual.surprise(*losses_and_sizes(*_block(model, rows), effects))


def losses_and_sizes(
    block: Block, centroids: FloatArray, effects: Effects | None = None
) -> tuple[FloatArray, FloatArray, Array]:
    """The loss per unit of each row where it fits best, its size, and the number of that centroid. → 3 × (n,)

    Centroids are mixed with a small part of their mean, so that a feature that a cluster lacks costs a finite loss.
    """
    if effects is not None:
        losses, sizes, labels = np.empty(len(block)), np.empty(len(block)), np.empty(len(block), dtype=np.int32)
        for code in np.unique(effects.codes):
            inside = np.flatnonzero(effects.codes == code)
            own = losses_and_sizes(block.subset(inside), centroids * effects.factors[code])
            losses[inside], sizes[inside], labels[inside] = own
        return losses, sizes, labels
    divergence = block.divergence
    if divergence.domain == "nonnegative":
        centroids = (centroids + SMOOTHING * centroids.mean(axis=1, keepdims=True)) / (1 + SMOOTHING)
    best = block.assign(block.prepare(centroids, divergence.unsmoothed()))
    sizes = divergence.row_size(block.terms)
    return np.clip(divide(best.losses, sizes), 0.0, LARGEST), sizes, best.labels


def _block(model: ONMF, rows: Any) -> tuple[Block, FloatArray]:
    """Rows as the CPU holds them, whatever their groups, and the centroids."""
    _, data = prepare_data(model, rows, model.divergence_, engine=get_engine("cpu", n_threads=model.n_threads))
    return data.single_part().block, np.ascontiguousarray(to_host(model.cluster_centers_), dtype=np.float64)


def _sums(block: Block, centroids: FloatArray, labels: Array) -> tuple[FloatArray, FloatArray]:
    """What the centroids follow from: the weighted sums of the rows of each, and their masses. → (k, p) and (k,)"""
    templates = block.prepare(centroids)
    scales = block.own_scales(templates, labels, block.own_and_next(templates, labels)[0])
    weights, k = block.row_weights(scales), len(centroids)
    mass = np.bincount(labels, weights=weights * scales, minlength=k).astype(np.float64)
    return block.sum_by_label(labels, weights, k), mass


def _curve(losses: FloatArray, sizes: FloatArray, labels: Array, k: int) -> Usual:
    """The usual losses, without scores."""
    n, least = len(losses), max(LEAST * float(np.median(losses)), TINY)
    values, at = log(np.maximum(losses, least)), log(np.maximum(sizes, TINY))
    bins = np.array_split(np.argsort(at, kind="stable"), int(np.clip(n // BIN, 1, BINS)))
    known = np.array([np.median(at[some]) for some in bins])
    weights = np.bincount(labels, minlength=k) + PRIOR_ROWS
    offsets, factors = np.zeros(k), np.ones(k)

    def by_centroid(values: FloatArray) -> FloatArray:
        return np.bincount(labels, weights=values, minlength=k) / weights

    for _ in range(ROUNDS):
        levels = np.array([np.median((values - offsets[labels])[some]) for some in bins])
        rest = values - np.interp(at, known, levels)
        offsets = by_centroid(rest)
        rest = np.maximum(rest - offsets[labels], 0.0)
        rises = np.array([np.quantile((rest / factors[labels])[some], TAIL) for some in bins])
        rises = np.maximum(rises, 1e-6 + 1e-3 * rises.max())
        rest = rest / np.interp(at, known, rises)
        factors = divide(by_centroid(rest), rest.mean()) + PRIOR_ROWS / weights
    return Usual(np.stack([known, levels, rises]), np.stack([offsets, factors]), least, np.empty((2, 0)), n)
