"""The confidence of rows: how often independent fits put a row with the rest of its cluster.

It is not the chance of being right: every fit may find a cluster that mixes two subjects.

The probabilities of a mixture are far too sure, because the words of a document or the bands of a pixel are not
independent. And a row can be sure of a cluster that another fit would not find at all. So a few fits from other random
starts tell how often the rows of each cluster stay together, and how much that depends on how well a row fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from onmf import interrupt
from onmf.backend import Backend, on_gpu, to_host
from onmf.data import Engine, Part, get_engine, in_blocks
from onmf.data.groups import check_groups
from onmf.data.intake import in_parts, prepare_data
from onmf.data.parts import PartsEngine
from onmf.divergence import Array, FloatArray, get_divergence
from onmf.estimator import ONMF, has_relative_smoothing, new_rows, settings_of
from onmf.fit import Clustering, Listener
from onmf.fit.describe import losses_of
from onmf.fit.groups import Grouping
from onmf.fit.restarts import agreement_of, prepare_search, runs, votes_of
from onmf.fit.solve import seeds_of_run
from onmf.functions import exp, log, matrix_product
from onmf.io.rules import Rule, array, number, optional

CONFIDENCE = "how often independent fits put this row with the rest of its cluster; it is not the chance of being right"
"""What the confidence is, for people to read wherever it stands."""

REFITS = 8  # fits from other random starts
CALIBRATION_ROWS = 10_000  # at most, on which these fits run

REFIT_SEED = 548_017_263
"""Seed of these fits. Nobody would choose it for the fit itself: one from the same start would not be independent."""

DEFAULT_GAP = 4.0
"""Gap between the two best clusters of a median row, in temperatures, without other fits. On real cells: 1 to 12."""

MAX_RATIO = 20.0  # between the temperature and the gap of a median row, at most, in either direction
TEMPERATURES = (1e-300, 1e300)  # in a model file; the unit is that of the losses, which depends on that of X
PRIOR_ROWS = 20  # that every cluster counts as having more, and that behave like all rows: a small one tells little
ROWS_AT_A_TIME = 1 << 16  # whose confidence is computed together, which bounds the memory of intermediate results


@dataclass(frozen=True, eq=False)
class Calibration:
    """From losses to a confidence: ``low + (high - low) · p``, with p the probability of a row's cluster."""

    temperature: float  # divides the losses
    low: FloatArray  # (k,) confidence of rows that fit a cluster badly (p = 0)
    high: FloatArray  # (k,) and well (p = 1)

    def apply(self, chances: FloatArray, labels: Array, clusters: Array | None = None) -> tuple[FloatArray, Array]:
        """The confidence of each row in its cluster, and its best other cluster, -1 if there is none. → 2 × (n,)

        ``labels`` are the centroids of the rows, and ``clusters`` those of the centroids, if several may share one.
        """
        rows, others = np.arange(len(labels)), chances.copy()
        if clusters is None:
            others[rows, labels] = -np.inf
            probability = _probability(chances, labels, self.temperature)
        else:
            same = clusters == clusters[labels][:, None]
            others[same | (clusters < 0)] = -np.inf
            probability = _shares(chances, self.temperature, same).sum(axis=1)
        confidence = self.low[labels] + (self.high - self.low)[labels] * probability
        best = others.argmax(axis=1).astype(np.int32)
        runners_up = best if clusters is None else clusters[best].astype(np.int32)
        runners_up[np.isneginf(others[rows, best])] = -1  # without smoothing, a cluster can be impossible
        return confidence, runners_up

    def probabilities(self, chances: FloatArray, clusters: Array | None = None) -> FloatArray:
        """The probability of each cluster for each row; those of its centroids are added. → (n, clusters)"""
        shares = _shares(chances, self.temperature)
        if clusters is None:
            return shares
        members = clusters[:, None] == np.arange(clusters.max(initial=-1) + 1)
        return matrix_product(shares, members.astype(np.float64))

    def with_parts(self, kept: Array, chances: FloatArray, labels: Array, together: FloatArray) -> Calibration:
        """The calibration after some centroids were replaced by those of the parts of a cluster, which come last.

        ``kept`` are the centroids that stay. Of rows of the parts there are the chances under all centroids, these
        centroids, and how often the row is with the rest of its part.
        """
        probability = _probability(chances, labels, self.temperature)
        low, high = _lines(probability, together, labels - len(kept), chances.shape[1] - len(kept))
        return Calibration(
            self.temperature, np.concatenate([self.low[kept], low]), np.concatenate([self.high[kept], high])
        )

    def parts(self) -> dict[str, Any]:
        """The entries of a model file."""
        return {"temperature": self.temperature, "confidence_low": self.low, "confidence_high": self.high}


def calibration_rules(k: int) -> dict[str, Rule]:
    """Rules for the entries of a model file."""
    shares = optional(array(("float32", "float64"), k, low=0, high=1))
    return {"temperature": optional(number(*TEMPERATURES)), "confidence_low": shares, "confidence_high": shares}


def calibration_of(parts: Mapping[str, Any], k: int) -> Calibration | None:
    """The calibration in a model file; None if the file is of a version that had none."""
    if "temperature" not in parts:
        return None
    low, high = parts.get("confidence_low", np.zeros(k)), parts.get("confidence_high", np.ones(k))
    return Calibration(float(parts["temperature"]), np.asarray(low), np.asarray(high))


@interrupt.heeding
def calibrate_model(
    model: ONMF,
    X: Any,
    labels: Array,
    again: Callable[..., Sequence[Array]] | None = None,
    groups: Any = None,
) -> Calibration:
    """Fit rows again from other random starts, and calibrate the confidence of a model by these fits.

    At most :data:`CALIBRATION_ROWS` of the rows, evenly spaced, are used; ``again`` as in :func:`votes_for`.
    """
    some = evenly_spaced(len(labels))
    rows, own = X[some], None if groups is None else groups[some]
    return calibrate(log_chances(model, rows, own), labels[some], votes_for(model, rows, again, own))


@interrupt.heeding
def votes_for(
    model: ONMF, rows: Any, again: Callable[..., Sequence[Array]] | None = None, groups: Any = None
) -> list[Array]:
    """The labels of some rows of a fit in fits from other random starts.

    ``again(model, rows)``, or with groups ``again(model, rows, groups)``, returns them; by default :func:`refit`, with
    the parameters of the model from random partitions.
    """
    if not 1 < len(model.cluster_centers_) <= rows.shape[0]:
        return []
    again = again or (lambda model, rows, groups=None: [run.labels for run in refit(model, rows, groups=groups)])
    return list(map(to_host, again(model, rows) if groups is None else again(model, rows, groups)))


def evenly_spaced(n: int, most: int = CALIBRATION_ROWS) -> Array:
    """The numbers of at most ``most`` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))


def refit(model: ONMF, X: Any, n_runs: int = REFITS, groups: Any = None) -> list[Clustering]:
    """Fits with the parameters of a model from random partitions; what it estimated of its divergence stays.

    With groups they are the better half of the runs: the others may follow the groups, which a model never does.
    """
    other = clone(model).set_params(init="random-partition", n_init=n_runs, random_state=REFIT_SEED)
    found = every_run(other.set_params(beta_loss=model.divergence_), X, groups)
    return found if groups is None else sorted(found, key=lambda run: run.objective)[: n_runs // 2]


def every_run(model: ONMF, X: Any, groups: Any = None, *, thorough: bool = False) -> list[Clustering]:
    """The runs of an estimator, of which a fit would keep the best. The estimator is not fitted."""
    known = None if groups is None else check_groups(groups, has_relative_smoothing(model))
    settings = settings_of(model, grouped=known is not None)
    divergence = get_divergence(model.beta_loss, model.smoothing)
    _, data = prepare_data(model, X, divergence, groups=known, engine=engine_for(model, X), reset=True)
    data.grouping = Grouping.of(data)
    search = prepare_search(data, settings.plan)
    start = partial(seeds_of_run, data, settings, Listener(), search=search)
    plan = replace(settings.plan, thorough=thorough)
    return list(runs(data, start, settings.seeds, plan, search=search))


@interrupt.heeding
def log_chances(model: ONMF, X: Any, groups: Any = None) -> FloatArray:
    """Logarithms of the probabilities of the clusters at temperature 1, up to a constant for each row. → (n, k)"""
    data, centroids = new_rows(model, X, groups=groups, engine=engine_for(model, X))
    return to_host(data.map_rows(chances_by_row, centroids)[0])


def chances_by_row(part: Part, centroids: FloatArray) -> tuple[FloatArray]:
    """The same for the rows of a part. → (n, k)"""
    return (-losses_of(part.block, centroids),)


@interrupt.heeding
def confidence_of(
    model: ONMF, X: Any, labels: Array, calibration: Calibration, groups: Any = None
) -> tuple[FloatArray, Array]:
    """The confidence of rows in their clusters, and their best other clusters, -1 if there is none. → 2 × (n,)

    ``labels`` are the centroids of the rows.
    """
    data, centroids = new_rows(model, X, groups=groups, engine=engine_for(model, X))
    found = data.map_rows(confidence_by_row, centroids, calibration, model.clusters_, labels=labels)
    return to_host(found[0]), to_host(found[1])


def confidence_by_row(
    part: Part, centroids: FloatArray, calibration: Calibration, clusters: Array | None, labels: Array
) -> tuple[Array, ...]:
    """The confidence of the rows of a part in their clusters, and their best other clusters. → 2 × (n,)"""
    block, labels, n = part.block, to_host(labels), len(part.block)
    confidence, runners_up = np.empty(n), np.empty(n, dtype=np.int32)
    for start in range(0, n, ROWS_AT_A_TIME):
        rows = np.arange(start, min(start + ROWS_AT_A_TIME, n))
        losses = losses_of(block if len(rows) == n else block.subset(rows), centroids)
        confidence[rows], runners_up[rows] = calibration.apply(-to_host(losses), labels[rows], clusters)
    return confidence, runners_up


def calibrate(chances: FloatArray, labels: Array, voted: list[Array]) -> Calibration:
    """The temperature and the range of each cluster at which the confidence agrees best with other fits.

    ``voted`` are the clusters of the rows in each of the other fits, in any numbering; fewer than two tell nothing. The
    limits of the temperature are relative to the gap between the two best clusters of a median row, because units
    differ. The probabilities at the usual temperature are one more vote, which only ever raises doubts: without it, a
    few fits that agree on every row would make every row certain.
    """
    n, k = chances.shape
    if k == 1 or n == 0:
        return Calibration(1.0, np.ones(k), np.ones(k))
    second, first = np.partition(chances, (k - 2, k - 1), axis=1)[:, -2:].T
    gaps = (first - second)[(first > second) & np.isfinite(second)]
    gap = float(np.median(gaps)) if len(gaps) else 1.0
    voted = [votes.astype(np.int32) for votes in voted] if len(voted) > 1 else []
    together = agreement_of(votes_of(np.stack(voted, axis=1), k), labels, k).rows if voted else np.ones(n)
    doubt = np.minimum(together, _probability(chances, labels, gap / DEFAULT_GAP))
    together = (len(voted) * together + doubt) / (len(voted) + 1)

    def loss(log_ratio: float) -> float:
        probability = _probability(chances, labels, gap * float(exp(log_ratio)))
        low, high = _lines(probability, together, labels, k)
        return float(np.square(together - low[labels] - (high - low)[labels] * probability).mean())

    # The loss can have more than one minimum: look around first.
    limit = log(MAX_RATIO)
    grid = np.linspace(-limit, limit, 9)
    best, step = min(grid, key=loss), grid[1] - grid[0]
    bounds = np.clip([best - step, best + step], -limit, limit)
    temperature = gap * float(exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
    return Calibration(temperature, *_lines(_probability(chances, labels, temperature), together, labels, k))


def engine_for(model: ONMF, X: Any) -> Engine | Backend | None:
    """The engine for these rows. A model that was fitted on rows in parts may have one that takes only such rows."""
    if in_parts(X):
        return in_blocks(model.engine, model.n_threads)
    chosen = get_engine(model.engine, X if on_gpu(X) else None, model.n_threads)
    return chosen.backend if isinstance(chosen, PartsEngine) else None


def _probability(chances: FloatArray, labels: Array, temperature: float) -> FloatArray:
    """The probability of each row's cluster. → (n,)"""
    return _shares(chances, temperature)[np.arange(len(labels)), labels]


def _shares(chances: FloatArray, temperature: float, these: Array | None = None) -> FloatArray:
    """The probabilities of the clusters of each row, 0 for those that are not among ``these`` (n, k). → (n, k)"""
    behind = chances - chances.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):  # −∞ is right then
        shares = exp(behind / temperature)
    totals = shares.sum(axis=1, keepdims=True)
    return (shares if these is None else np.where(these, shares, 0.0)) / totals


def _lines(probability: FloatArray, together: FloatArray, labels: Array, k: int) -> tuple[FloatArray, FloatArray]:
    """Fit a line to ``together`` over the probability in each cluster. → its values at 0 and at 1, 2 × (k,)"""
    mean, level = probability.mean(), together.mean()
    variance, covariance = np.square(probability).mean() - mean**2, (probability * together).mean() - mean * level

    def average(values: FloatArray, prior: float) -> FloatArray:
        return (np.bincount(labels, weights=values, minlength=k) + PRIOR_ROWS * prior) / weights

    weights = np.bincount(labels, minlength=k) + PRIOR_ROWS
    at, levels = average(probability, mean), average(together, level)
    spread = average(np.square(probability), variance + mean**2) - at**2
    shared = average(probability * together, covariance + mean * level) - at * levels
    # A row that fits better is never less sure.
    slopes = np.where(spread > 1e-12, np.maximum(shared, 0.0) / np.maximum(spread, 1e-12), 0.0)
    low = levels - slopes * at
    return np.clip(low, 0.0, 1.0), np.clip(low + slopes, 0.0, 1.0)
