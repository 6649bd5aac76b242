"""How unusual a row is among rows like it: a p-value that holds for new rows.

A row that fits nowhere has a large loss, for a row of its size, even in its own cluster. How large is unusual is learnt
from rows that had no part in the centroids they are compared with: the rows are divided into folds, and the rows of
each fold are assigned to centroids that the other folds make. If the rows of a fit and new rows come from the same
source, a share α of the new ones has a p-value of at most α, whatever the losses look like (a conformal p-value).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import sub
from typing import Any

import numpy as np

from onmf import interrupt
from onmf.backend import Block, StepSums, to_host, update_centroids
from onmf.data import get_engine
from onmf.data.intake import prepare_data
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, divide
from onmf.estimator import ONMF
from onmf.functions import exp, log
from onmf.io.rules import Rule, array, integer, number, optional

FEWEST = 20  # rows from which anything is learnt
FOLDS, WORK = 50, 1 << 28  # at most; and entries of centroids that are computed for all of them
SEED = 471_862_053  # of the division into folds
ROWS = 50_000  # at most, that are divided into folds
SMOOTHING = 0.1  # of a mean share, under which losses are measured: with more, words of another subject cost little
BIN, BINS = 50, 20  # rows behind each size at which the usual loss is known, at least; and such sizes, at most
PRIOR_ROWS = 20  # that every cluster counts as having more, and that behave like all rows
TAIL = 0.9  # quantile of the distance from the usual loss that says how far losses vary
ROUNDS = 3  # in which sizes and clusters are fitted in turn
SCORES = 2_000  # that are kept, at most
LEAST, LARGEST = 1e-2, 1e200  # of the median loss, below which rows fit alike; and what stands for infinite losses
TINY = 1e-300  # stands for 0 in logarithms


@dataclass(frozen=True, eq=False)
class Usual:
    """The usual logarithm of a row's loss per unit, and how far it varies, by the size of the row and its template.

    A row of a loss that is as usual has the score 0; about one in six has a score above 1.
    """

    sizes: FloatArray  # (b,) logarithms of sizes of rows, rising
    levels: FloatArray  # (b,) usual logarithm of the loss of a unit of such rows
    spreads: FloatArray  # (b,) and how far it varies
    offsets: FloatArray  # (k,) added to the level in each template
    factors: FloatArray  # (k,) that multiply the spread
    least: float  # loss of a unit below which nothing is told apart
    scores: FloatArray  # (m,) of rows that had no part in the centroids, falling
    ranks: Array  # (m,) how many rows have at least this score
    n_rows: int

    def scores_of(self, losses: FloatArray, sizes: FloatArray, labels: Array) -> FloatArray:
        """How far losses per unit lie above the usual. → (n,)"""
        at = log(np.maximum(sizes, TINY))
        level = np.interp(at, self.sizes, self.levels) + self.offsets[labels]
        spread = np.interp(at, self.sizes, self.spreads) * self.factors[labels]
        return divide(log(np.maximum(losses, self.least)) - level, spread)

    def surprise(self, losses: FloatArray, sizes: FloatArray, labels: Array) -> FloatArray:
        """The share of rows, and of this one, that are at least as unusual: a p-value for each row. → (n,)"""
        scores = self.scores_of(losses, sizes, labels)
        # The first of the kept scores that is lower stands for those in between, which makes p larger.
        place = np.searchsorted(-self.scores, -scores, side="right")
        ranks = np.append(self.ranks, self.n_rows)[np.minimum(place, len(self.ranks))]
        return (1.0 + np.where(place == 0, 0, ranks)) / (1.0 + self.n_rows)

    def parts(self) -> dict[str, Any]:
        """The entries of a model file."""
        return {f"usual_{name}": value for name, value in vars(self).items()}


def usual_rules(k: int) -> dict[str, Rule]:
    """Rules for the entries of a model file."""
    floats, by_template = array(("float64",), None), array(("float64",), k)
    rules = dict.fromkeys(("sizes", "levels", "spreads", "scores"), floats)
    rules |= {"offsets": by_template, "factors": by_template}
    rules |= {"ranks": array(("int64",), None, low=1, high=2**53), "least": number(0), "n_rows": integer(1)}
    return {f"usual_{name}": optional(rule) for name, rule in rules.items()}


def usual_of(parts: Mapping[str, Any]) -> Usual | None:
    """What a model file knows of usual losses; None if it is of a version that knew nothing."""
    names = list(Usual.__dataclass_fields__)
    if any(f"usual_{name}" not in parts for name in names):
        return None
    return Usual(**{name: parts[f"usual_{name}"] for name in names})


@interrupt.heeding
def learn_usual(model: ONMF, rows: Any, whole: StepSums | None = None) -> tuple[Usual, FloatArray]:
    """Learn from rows in memory what losses are usual. → that, and the p-value of each row among the others

    There must be at least :data:`FEWEST` rows. ``whole`` are the sums of all rows of the fit under its centroids, if
    there are more than these.
    """
    block, centroids = _block(model, rows)
    n, k = len(block), len(centroids)
    folds = int(np.clip(WORK // centroids.size, 2, FOLDS))
    fold = np.random.default_rng(SEED).permutation(n) % folds
    whole = whole or block.backend.start_run(block).step_from(centroids)
    losses, sizes, labels = np.empty(n), np.empty(n), np.empty(n, dtype=np.int32)
    for f in range(folds):
        interrupt.check()
        part, inside = block.subset(np.flatnonzero(fold == f)), fold == f
        others = whole.map_arrays(sub, part.backend.start_run(part).step_from(centroids))
        if (centroids >= 0).all():
            others = others.map_arrays(lambda array: np.maximum(array, 0.0))  # a difference may be rounded
        W = centroids.copy()
        update_centroids(block.divergence, others, W, block.backend.threads)
        kept = np.flatnonzero(~others.empty)  # a cluster of these rows alone would not be there without them
        own = part.assign(part.prepare(W[kept])).labels
        labels[inside] = kept[own]
        losses[inside], sizes[inside] = losses_and_sizes(part, W[kept], own)
    scores = np.empty(n)
    for f in range(folds):  # nor is a row compared with a curve that it shaped
        inside = fold == f
        usual = _curve(losses[~inside], sizes[~inside], labels[~inside], k)
        scores[inside] = usual.scores_of(losses[inside], sizes[inside], labels[inside])
    rising = np.sort(scores)
    surprise = (n - np.searchsorted(rising, scores, side="left")) / n
    # The highest scores are kept, and ever fewer of the lower ones.
    ranks = np.unique(np.rint(exp(np.linspace(0, log(float(n)), SCORES))).astype(np.int64))
    usual = _curve(losses, sizes, labels, k)
    return replace(usual, scores=rising[::-1][ranks - 1].copy(), ranks=ranks), surprise


def losses_and_sizes(block: Block, centroids: FloatArray, labels: Array) -> tuple[FloatArray, FloatArray]:
    """The loss per unit of each row in its own cluster, hardly smoothed, and the size of the row. → 2 × (n,)"""
    own, _ = block.own_and_next(block.prepare(centroids, _hardly_smoothed(block.divergence, block.shape[1])), labels)
    sizes = block.divergence.row_size(block.terms)
    return np.clip(divide(block.losses(own), sizes), 0.0, LARGEST), sizes


@interrupt.heeding
def surprise_of(model: ONMF, usual: Usual, rows: Any, labels: Array) -> FloatArray:
    """The p-value of new rows in memory, whose templates are known. → (n,)"""
    block, centroids = _block(model, rows)
    return usual.surprise(*losses_and_sizes(block, centroids, labels), labels)


def _block(model: ONMF, rows: Any) -> tuple[Block, FloatArray]:
    """Rows as the CPU holds them, whatever their groups, and the centroids."""
    _, data = prepare_data(model, rows, model.divergence_, engine=get_engine("cpu", n_threads=model.n_threads))
    return data.single_part().block, np.ascontiguousarray(to_host(model.cluster_centers_), dtype=np.float64)


def _hardly_smoothed(divergence: Divergence, features: int) -> Divergence:
    """The divergence with a smoothing of a small part of a mean share, if it smooths at all."""
    smooths = isinstance(divergence, KullbackLeibler) or getattr(divergence, "smoothing", 0.0) > 0
    return divergence.changed(smoothing=SMOOTHING / features) if smooths else divergence


def _curve(losses: FloatArray, sizes: FloatArray, labels: Array, k: int) -> Usual:
    """The usual losses, without scores: a level and a spread at some sizes, and an offset and a factor by template."""
    n, least = len(losses), max(LEAST * float(np.median(losses)), TINY)
    values = log(np.maximum(losses, least))
    at = log(np.maximum(sizes, TINY))
    order = np.argsort(at, kind="stable")
    bins = np.array_split(order, int(np.clip(n // BIN, 1, BINS)))
    centers = np.array([np.median(at[some]) for some in bins])
    weights = np.bincount(labels, minlength=k) + PRIOR_ROWS
    offsets, factors = np.zeros(k), np.ones(k)

    def by_template(values: FloatArray) -> FloatArray:
        return np.bincount(labels, weights=values, minlength=k) / weights

    for _ in range(ROUNDS):
        levels = np.array([np.median((values - offsets[labels])[some]) for some in bins])
        rest = values - np.interp(at, centers, levels)
        offsets = by_template(rest)
        rest = np.abs(rest - offsets[labels])
        spreads = np.array([np.quantile((rest / factors[labels])[some], TAIL) for some in bins])
        spreads = np.maximum(spreads, 1e-6 + 1e-3 * spreads.max())
        rest = rest / np.interp(at, centers, spreads)
        factors = divide(by_template(rest), rest.mean()) + PRIOR_ROWS / weights
    return Usual(centers, levels, spreads, offsets, factors, least, np.empty(0), np.empty(0, dtype=np.int64), n)
