"""The number of clusters of an image, by default chosen by how fast the objective falls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF
from onmf.select import Range, Selection, Work, check_range, reproduced, try_numbers

LARGEST = 12
"""Largest number of clusters to try by default, if the objective chooses."""

MIN_GAIN = 0.1
"""Fraction of the objective that one more cluster must remove."""

SPLITS = 2
"""How often the pixels are halved."""


class Trial(NamedTuple):
    """The criteria for one number of clusters."""

    objective: float
    information: FloatArray
    stability: FloatArray
    held_out: FloatArray

    def value(self, criterion: str) -> float:
        """A criterion, so that higher is better."""
        value = float(np.mean(getattr(self, criterion.replace("-", "_"))))
        return -value if criterion == "objective" else value


def choose_n_clusters(
    rows: Array,
    model: ONMF,
    span: Range | None = None,
    *,
    n_total: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Selection:
    """Choose the number of clusters of pixels.

    Pixels of one material differ by more than photon noise, so halves of the pixels agree on shades of it, and a
    likelihood would always prefer more clusters. The objective itself falls in large steps while each new cluster is a
    material, and in small steps after that. So the default is the number after which neither of the next two lowers the
    objective by a tenth.

    Parameters
    ----------
    rows : (n, bands) array
        A sample of the pixels.
    model : ONMF
        Supplies the divergence, the smoothing, the random state and the number of threads.
    span : Range, optional
        Numbers of clusters to choose from, and the criterion: ``"objective"`` (default), or as in
        :func:`onmf.select_n_clusters` ``"information"``, ``"held-out"`` or ``"stability"``.
    n_total : int, optional
        Number of pixels that the sample was taken from.
    progress : callable, optional
        Called with the share of the work that is done.

    Returns
    -------
    Selection
    """
    n = len(rows)
    k_min, k_max, criterion = span or Range()
    criterion, k_min = criterion or "objective", k_min or 1
    if n < 2:
        raise ValueError(f"{n} pixels are too few to choose the number of clusters: give a number.")
    most = check_range(k_min, k_max, n)
    if criterion == "objective" and k_max is None:
        most = max(min(LARGEST, most), k_min)
    fits = _Fits(rows, model)
    work = Work(1, progress or (lambda share: None))
    trials: dict[int, Trial] = {}

    def score(k: int) -> float:
        trials[k] = fits.trial(k)
        work.advance(k)
        return trials[k].value(criterion) if k > 1 or criterion != "stability" else -np.inf

    bend = None
    if criterion == "objective":
        work.plan([k_min, k_min + 1, k_min + 2])
        bend = _bend(lambda k: -score(k), k_min, most, work)
    else:
        try_numbers(score, k_min, most, work.plan)
    tried = sorted(trials)
    objective, information, stability, held_out = (
        np.array([getattr(trials[k], name) for k in tried]) for name in Trial._fields
    )
    stability[np.array(tried) == 1] = np.nan  # one cluster is always reproduced
    return Selection(
        np.array(tried),
        information=information.mean(axis=1),
        information_error=information.std(axis=1, ddof=1) / np.sqrt(SPLITS),
        held_out=held_out.mean(axis=1),
        held_out_error=held_out.std(axis=1, ddof=1) / np.sqrt(2 * SPLITS),
        stability=stability.mean(axis=1),
        objective=objective,
        bic=np.full(len(tried), np.nan),  # values of an image need not be counts
        criterion=criterion,
        n_rows=n,
        n_total=n if n_total is None else n_total,
        bend=bend,
    )


def _bend(objective: Callable[[int], float], k_min: int, k_max: int, work: Work) -> int:
    """The number after which neither of the next two lowers the objective by a tenth."""
    last, chosen = np.inf, k_min
    for k in range(k_min, k_max + 1):
        if k > k_min + 2:
            work.plan([k])
        value = objective(k)
        if value <= (1 - MIN_GAIN) * last:
            chosen = k
        last = min(last, value)
        if last <= 0 or k >= chosen + 2:
            break
    return chosen


class _Fits:
    """Fits of the pixels, and of their halves."""

    def __init__(self, rows: Array, model: ONMF) -> None:
        rng = np.random.default_rng(0)
        self.rows = rows
        self.splits = [rng.permutation(len(rows)) % 2 == 0 for _ in range(SPLITS)]
        self.plain = ONMF(
            beta_loss=model.beta_loss,
            smoothing=model.smoothing,
            init="++",
            n_init=5,
            random_state=0 if model.random_state is None else model.random_state,
            n_threads=model.n_threads,
        )

    def fit(self, rows: Array, k: int) -> ONMF:
        """A fit with k clusters."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # runs that did not converge still show how far the objective falls
            return clone(self.plain).set_params(n_clusters=k).fit(rows)

    def trial(self, k: int) -> Trial:
        """The criteria for k clusters."""
        compared, held_out = [], []
        for inside in self.splits:
            halves = [(self.fit(self.rows[half], k), ~half) for half in (inside, ~inside)]
            compared.append(reproduced(*(model.predict(self.rows) for model, _ in halves)))
            held_out += [model.score(self.rows[others]) for model, others in halves]
        information, stability = np.array(compared).T
        return Trial(self.fit(self.rows, k).reconstruction_err_, information, stability, np.array(held_out))
