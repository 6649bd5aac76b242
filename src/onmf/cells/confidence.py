"""How sure the cluster of a cell is: a probability that holds when the cells are clustered again."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from onmf.backend import to_host
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.fit.consensus import agreement_of, votes_of

USUAL = 4.0
"""Gap between the two best clusters of a median cell, in temperatures, if there is only one run. On real cells with
several runs it is between 1 and 12."""

SUREST = 20.0
"""The largest such gap. Without it, runs that agree on every cell would make every label certain."""

SAMPLE = 20_000
"""Cells from which the temperature is estimated."""


def log_chances(model: ONMF, values: Any) -> FloatArray:
    """Logarithms of the probabilities of the clusters at temperature 1, up to a constant for each row. → (n, k)"""
    # So hot that no probability underflows: losses are at most of the size of row sums, or of squared norms.
    hot = max(float(values.sum(axis=1, dtype=np.float64).max()) * max(float(values.max()), 1.0), 1.0)
    return hot * np.log(np.maximum(to_host(model.predict_proba(values, temperature=hot)), 1e-300))


def temperature_of(chances: FloatArray, labels: Array, runs: list[Array], rng: np.random.Generator) -> float:
    """The temperature at which probabilities agree best with the runs.

    The counts of a cell are not independent, so probabilities at temperature 1 are too sure. At the temperature
    returned here, a cell of probability 0.8 is with the cells of its cluster in about 80 % of the runs. Divergences
    have different units, so the limits of the temperature are relative to the gap between the two best clusters.

    Parameters
    ----------
    chances : ndarray of shape (n, k)
        From :func:`log_chances`.
    labels : ndarray of shape (n,)
        The clusters.
    runs : list of ndarray of shape (n,)
        The clusters in each run, in any numbering.
    rng : Generator
        Chooses the cells to compare.

    Returns
    -------
    float
    """
    n, k = chances.shape
    if k == 1:
        return 1.0
    sample = np.sort(rng.permutation(n)[:SAMPLE])
    logits = chances[sample]
    second, first = np.partition(logits, (k - 2, k - 1), axis=1)[:, -2:].T
    gaps = (first - second)[first > second]
    gap = float(np.median(gaps)) if len(gaps) else 1.0
    if len(runs) < 2:
        return gap / USUAL
    voted = np.stack([run[sample] for run in runs], axis=1).astype(np.int32)
    agreement = agreement_of(votes_of(voted, k), labels[sample], k).rows

    def loss(log_temperature: float) -> float:
        sure = log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(sample)), labels[sample]]
        unsure = np.log(np.maximum(-np.expm1(sure), 1e-12))
        return -float((agreement * np.maximum(sure, -50.0) + (1 - agreement) * unsure).mean())

    limits = np.log([gap / SUREST, gap * SUREST])
    return float(np.exp(minimize_scalar(loss, bounds=tuple(limits), method="bounded").x))


def confidence(chances: FloatArray, labels: Array, temperature: float) -> tuple[FloatArray, Array]:
    """The probability of each cell's cluster, and its best other cluster. → 2 × (n,)"""
    n, k = chances.shape
    rows = np.arange(n)
    sure = np.exp(log_softmax(chances / temperature, axis=1)[rows, labels])
    if k == 1:
        return sure, np.full(n, -1, dtype=np.int32)
    others = chances.copy()
    others[rows, labels] = -np.inf
    return sure, others.argmax(axis=1).astype(np.int32)
