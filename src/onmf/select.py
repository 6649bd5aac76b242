"""How many clusters: numbers that are tried, criteria that need no labels, and the choice.

:func:`select_n_clusters` chooses for counts. :func:`try_numbers` says which numbers to try, for any criterion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.stats import entropy
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils import check_random_state

from onmf import interrupt
from onmf.backend import Backend, Block, Matrix
from onmf.data import InMemory, get_engine
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data, check_entries, check_kind
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, get_divergence
from onmf.fit import Clustering, Plan
from onmf.fit.restarts import runs
from onmf.fit.starts import random_partitions

PRIOR_COUNTS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Pseudo-counts, drawn from the whole data, that smooth a cluster's profile before it predicts; the best is used."""

HALVES = ("features", "counts")  # what of a held-out row determines its cluster: half of its features, or of its counts
MAX_ROWS = 4_000  # that are clustered to choose the number of clusters

FIRST_END = 16  # of the range of numbers that grows
MAX_CLUSTERS = 100  # the largest number that is tried unless a larger one is asked for
ROWS_PER_CLUSTER = 5  # on the mean, at least, unless more clusters are asked for
FINENESS = (
    16  # numbers between the best and a neighbour are tried if these differ by more than the best divided by this
)
EXPECTED_REFINEMENTS = 6  # numbers tried around the best: a guess, for the progress

STEEP = 0.05  # fraction of the objective that a runner-up removes
APART = 1.25  # factor between runners-up: numbers that are closer are about the same choice
RUNNERS_UP = 3  # at most

CRITERIA = ("information", "held-out", "stability", "bic")  # Criteria that choose the number of clusters of counts

IMAGE_CRITERIA = ("objective", "information", "held-out", "stability")
"""Criteria that choose the number of clusters of an image."""

COLUMNS = {
    "information": "information",
    "stability": "stability",
    "held-out": "held_out",
    "objective": "objective",
    "bic": "bic",
}
"""Criteria, and the attributes of a selection that hold them."""

Best = Callable[[InMemory, int, list[int]], Clustering]
"""The best of several fits of data with k clusters; the numbers make their random numbers."""


class Half(NamedTuple):
    """Rows that are clustered, and the others, which are assigned to the clusters and predicted by them."""

    inside: Array  # (n,) bool
    data: InMemory
    others: Block
    # Halves of the other rows and their columns, both ways round: what is known determines the cluster of a row, which
    # predicts what is hidden.
    pairs: list[tuple[Any, Any, Any, Any]]
    n_counts: float  # that are predicted


class Trial(NamedTuple):
    """The criteria for one number of clusters: a value for each halving, or for each half."""

    information: FloatArray
    stability: FloatArray
    held_out: FloatArray
    objective: float
    bic: float

    def value(self, criterion: str) -> float:
        """A criterion, so that higher is better."""
        if criterion == "bic":
            return -self.bic
        value = float(getattr(self, criterion.replace("-", "_")).mean())
        return value if np.isfinite(value) else -np.inf


@interrupt.heeding
def select_n_clusters(
    X: Any,
    candidates: Iterable[int] | None = None,
    *,
    criterion: str = "information",
    k_min: int = 2,
    k_max: int | None = None,
    n_splits: int = 3,
    n_init: int = 4,
    halves: str = "features",
    n_rows: int | None = MAX_ROWS,
    refine: str | None = "local-search",
    max_iter: int = 20,
    beta_loss: str | float | Divergence = "kullback-leibler",
    random_state: Any = None,
    n_threads: int | None = None,
    progress: Callable[[float], None] | None = None,
    verbose: int = 0,
) -> Selection:
    """Try numbers of clusters on counts, and choose one.

    The rows are halved at random. Each half is clustered by itself, and the rows of the other half are assigned to the
    clusters. So there are two clusterings of all rows that have no row in common to learn from.

    *Information*: the bits about the rows that the two clusterings share, less the bits that only one of them has. A
    burst of words in some documents makes a cluster in one half only, and does not count. *Stability*: the share of the
    information that is reproduced. *Held-out likelihood*: one half of the words of a row that was not clustered
    determines its cluster, and the cluster predicts the other half. *BIC*: the likelihood, with a penalty of
    (log n) / 2 for each of the k (p − 1) parameters.

    Parameters
    ----------
    X : (n, n_features) array or sparse matrix of counts
        Data: integers ≥ 0, of any numeric type.
    candidates : iterable of int, optional
        Numbers of clusters to try. By default a range that grows: from ``k_min`` to 16 at first, and twice as far while
        the best number is in its upper half. Then numbers near the best are tried.
    criterion : {"information", "held-out", "stability", "bic"}, default="information"
        What chooses the number. All are computed.
    k_min, k_max : int, default=2, None
        Bounds of the range that grows. By default it ends at 100, and at a fifth of the rows.
    n_splits : int, default=3
        How often the rows are halved.
    n_init : int, default=4
        Number of runs for each fit; the best is used.
    halves : {"features", "counts"}, default="features"
        What determines the cluster of a held-out row: half of its features (words), or half of its counts (each feature
        is halved at random). Halves of counts are independent only if the counts are Poisson. Words come in bursts, and
        a burst would be in both halves.
    n_rows : int or None, default=4000
        Use at most this many rows, chosen at random; None for all.
    refine : None or "local-search", default="local-search"
        As in :class:`onmf.ONMF`. Divergences without a local search do without it.
    max_iter : int, default=20
        As in :class:`onmf.ONMF`.
    beta_loss : str, float or Divergence, default="kullback-leibler"
        The divergence by which the halves are clustered, as in :class:`onmf.ONMF`. The criteria do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the halves and the runs.
    n_threads : int or None, default=None
        Threads; None uses all cores.
    progress : callable, optional
        Called with the share of the work that is done. While the range grows, this is an estimate.
    verbose : int, default=0
        Show a progress bar.

    Returns
    -------
    Selection
        With a table, the choice of each criterion, runners-up and a plot.

    Examples
    --------
    >>> from onmf import select_n_clusters
    >>> from onmf.datasets import make_counts
    >>> X = make_counts(300, 200, 4, overlap=0.2, random_state=0).X
    >>> select_n_clusters(X, random_state=0).n_clusters
    4
    """
    divergence = get_divergence(beta_loss)
    check_in_memory(X, "select_n_clusters")
    if criterion not in CRITERIA:
        raise ValueError(f"criterion={criterion!r} is not known: use {either(CRITERIA)}.")
    if halves not in HALVES:
        raise ValueError(f"halves={halves!r} is not known: use {either(HALVES)}.")
    if n_splits < 1 or n_init < 1 or (n_rows is not None and n_rows < 2):
        raise ValueError(f"n_splits={n_splits} and n_init={n_init} must be at least 1, and n_rows={n_rows} at least 2.")
    rows = _counts(X, divergence)
    total = rows.shape[0]
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    if n_rows is not None and total > n_rows:
        rows = rows[np.sort(rng.choice(total, n_rows, replace=False))]
    n = rows.shape[0]
    numbers = None if candidates is None else _numbers(candidates, n)
    if numbers is None:
        k_max = check_range(k_min, k_max, n)
    backend = get_engine("cpu", rows, n_threads).backend
    splits = [_halved(backend, rows, halves, rng) for _ in range(n_splits)]
    plan = Plan(max_iter=max_iter, refine=None if divergence.moves is None else refine, thorough=True)
    seed = int(rng.integers(2**31 - 1))

    def best(data: InMemory, k: int, stream: list[int]) -> Clustering:
        data = data if divergence == data.divergence else data.with_divergence(divergence)
        seeds = np.random.default_rng([seed, *stream]).integers(np.iinfo(np.int32).max, size=n_init)
        return min(runs(data, random_partitions(data, k, seeds), seeds, plan), key=lambda run: run.objective)

    trials: dict[int, Trial] = {}
    with _told(progress, verbose) as tell:
        work = Work(2 * n_splits, tell)

        def score(k: int) -> float:
            trials[k] = _try(best, splits, k, work.advance)
            return trials[k].value(criterion)

        if numbers is None:
            assert k_max is not None
            try_numbers(score, k_min, k_max, work.plan)
        else:
            work.plan(numbers)
            for k in numbers:
                score(k)
        tell(1.0)
    tried = sorted(trials)
    information, stability, held_out = (
        np.array([getattr(trials[k], name) for k in tried]) for name in ("information", "stability", "held_out")
    )
    return Selection(
        np.array(tried),
        information=information.mean(axis=1),
        information_error=_error(information),
        held_out=held_out.mean(axis=1),
        held_out_error=_error(held_out),
        stability=stability.mean(axis=1),
        objective=np.array([trials[k].objective for k in tried]),
        bic=np.array([trials[k].bic for k in tried]),
        criterion=criterion,
        n_rows=n,
        n_total=total,
    )


def _counts(X: Any, divergence: Divergence) -> Matrix:
    """Check that the data are counts, and that the divergence allows them."""
    from onmf import kernels

    rows = check_data(X, KullbackLeibler())
    values = rows.data if issparse(rows) else rows.reshape(-1)
    if not np.isfinite(kernels.total_if_whole(values, 0, len(values))):
        raise ValueError(
            "X holds numbers that are not integers, and the criteria are about counts. Pass raw counts, not "
            "frequencies or tf-idf."
        )
    if len(values) and values.max() > 2**53:
        raise ValueError(f"X holds {values.max():g}, and counts beyond 2**53 are not exact: divide them by a constant.")
    check_kind(rows, divergence)
    check_entries(rows, divergence)
    return rows


def _numbers(candidates: Iterable[int], n: int) -> list[int]:
    """Check the numbers to try on n rows."""
    if not isinstance(candidates, Iterable):
        raise TypeError(f"candidates={candidates!r} must be several numbers of clusters, such as range(2, 21).")
    numbers = np.unique(np.fromiter(candidates, dtype=np.int64)).tolist()
    if not numbers or numbers[0] < 1 or numbers[-1] > n // 2:
        raise ValueError(f"candidates must be numbers of clusters from 1 to {n // 2}, half of the number of rows.")
    return list(numbers)


def _halved(backend: Backend, rows: Matrix, halves: str, rng: np.random.Generator) -> list[Half]:
    """Halve the rows, and the features or the counts of each half. → 2 halves"""
    n, p = rows.shape
    first = rng.permutation(n) % 2 == 0
    columns = np.sort(np.array_split(rng.permutation(p), 2)[0])
    others = np.setdiff1d(np.arange(p), columns)
    found = []
    for inside in (first, ~first):
        outside = rows[~inside]
        parts: list[tuple[Any, Any]]
        if halves == "features" and len(others):
            parts = [(backend.place(_columns(outside, some)), some) for some in (columns, others)]
        else:
            parts = [(backend.place(half), slice(None)) for half in _thinned(outside, rng)]
        pairs = [(*parts[0], *parts[1]), (*parts[1], *parts[0])]
        data = InMemory(backend.make_block(rows[inside], KullbackLeibler()))
        found.append(Half(inside, data, backend.make_block(outside, KullbackLeibler()), pairs, float(outside.sum())))
    return found


def _columns(rows: Matrix, columns: Array) -> Matrix:
    some = rows[:, columns]
    return csr_array(some) if issparse(some) else np.ascontiguousarray(some)


def _thinned(rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Two random halves of the counts."""
    whole = (rows.data if issparse(rows) else rows).astype(np.int64)
    half = rng.binomial(whole, 0.5)
    if not issparse(rows):
        return half, whole - half
    first, second = (csr_array((data, rows.indices, rows.indptr), shape=rows.shape) for data in (half, whole - half))
    return first, second


def _try(fit: Best, splits: list[list[Half]], k: int, advance: Callable[[int], None]) -> Trial:
    """Cluster both halves of each split, and compare the two clusterings."""
    information, stability, held_out, objectives = [], [], [], []
    for split, pair in enumerate(splits):
        clusterings = []
        for number, half in enumerate(pair):
            best = fit(half.data, k, [k, split, number])
            labels = np.empty(len(half.inside), dtype=np.int64)
            labels[half.inside] = best.labels
            likelihood, labels[~half.inside], objective = _carried_over(half, best.labels, k)
            held_out.append(likelihood)
            objectives.append(objective)
            clusterings.append(labels)
            advance(k)
        shared = reproduced(*clusterings)
        information.append(shared.information)
        stability.append(shared.stability if k > 1 else np.nan)
    n, p = len(splits[0][0].inside), splits[0][0].others.shape[1]
    bic = 2 * min(objectives) + k * (p - 1) * float(np.log(n))
    return Trial(np.array(information), np.array(stability), np.array(held_out), min(objectives), bic)


def _carried_over(half: Half, labels: Array, k: int) -> tuple[float, Array, float]:
    """Carry clusters over to the rows of the other half.

    → the mean log-likelihood of a count there, the clusters of these rows, and the objective of all rows together
    """
    block, others = half.data.block, half.others
    backend, divergence = block.backend, block.divergence
    sums = block.sum_by_label(labels, np.ones(len(labels)), k)
    whole = sums.sum(axis=0) + 0.5  # half a pseudo-count: words that never occur get a finite likelihood
    whole /= whole.sum()
    best, profiles = -np.inf, sums
    for prior in PRIOR_COUNTS:
        smoothed = (sums + prior * whole) / (sums.sum(axis=1, keepdims=True) + prior)
        score = 0.0
        for known, known_columns, hidden, hidden_columns in half.pairs:
            chosen, _ = backend.best_template(known, backend.prepare(known, _logs(smoothed, known_columns)))
            own, _ = backend.own_and_next(hidden, backend.prepare(hidden, _logs(smoothed, hidden_columns)), chosen)
            score += float(own.sum())
        if score > best:
            best, profiles = score, smoothed
    assigned, _ = backend.best_template(others.rows, backend.prepare(others.rows, np.log(profiles)))
    sums = sums + others.sum_by_label(assigned, np.ones(len(assigned)), k)
    constant = float(block.constants.sum() + others.constants.sum())
    return best / max(half.n_counts, 1.0), assigned, divergence.objective(sums, sums.sum(axis=1), 0.0, constant)


def _logs(profiles: FloatArray, columns: Any) -> FloatArray:
    """Logarithms of the probabilities of some words among each other. → (k, columns)"""
    some = np.ascontiguousarray(profiles[:, columns])
    return np.log(some / some.sum(axis=1, keepdims=True))


def _error(values: FloatArray) -> FloatArray:
    """Standard error of the mean of each row of values; NaN if there is only one. → (m,)"""
    many = values.shape[1]
    return values.std(axis=1, ddof=1) / np.sqrt(many) if many > 1 else np.full(len(values), np.nan)


@contextmanager
def _told(progress: Callable[[float], None] | None, verbose: int) -> Iterator[Callable[[float], None]]:
    """Yield the function that is told the share of the work that is done; with ``verbose`` it also moves a bar."""
    also = progress or (lambda share: None)
    if not verbose:
        yield also
        return
    try:
        from rich.progress import Progress
    except ImportError as error:
        raise ImportError("verbose=1 shows a progress bar, which needs rich: pip install 'onmf[cli]'.") from error
    with Progress() as bar:
        task = bar.add_task("Numbers of clusters", total=1.0)

        def tell(share: float) -> None:
            bar.update(task, completed=share)
            also(share)

        yield tell


class Range(NamedTuple):
    """From which numbers of clusters to choose, and how; None for the defaults of the kind of data."""

    k_min: int | None = None
    k_max: int | None = None
    criterion: str | None = None

    def check(self, n_clusters: int | str, criteria: tuple[str, ...]) -> None:
        """Refuse a number other than an integer or "auto", an unknown criterion, and a range beside a number."""
        if isinstance(n_clusters, str) and n_clusters != "auto":
            raise ValueError(f"n_clusters={n_clusters!r} is not allowed: give a number, or 'auto'.")
        given = {name: value for name, value in self._asdict().items() if value is not None}
        if given and n_clusters != "auto":
            name, value = next(iter(given.items()))
            raise ValueError(
                f"{name}={value!r} is about choosing the number of clusters, but n_clusters={n_clusters} is given: use "
                f"n_clusters='auto', or leave out {name}."
            )
        if self.criterion is not None and self.criterion not in criteria:
            raise ValueError(f"criterion={self.criterion!r} is not known: use {either(criteria)}.")


def either(names: tuple[str, ...]) -> str:
    """The names as a choice: ``'a', 'b' or 'c'``."""
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"


class Work:
    """How much of the work is done, told as a share that never falls. The time of a fit grows with its clusters."""

    def __init__(self, fits: int, tell: Callable[[float], None]) -> None:
        self.fits, self.tell = fits, tell
        self.done = self.planned = self.expected = self.share = 0.0
        self.largest = 0

    def plan(self, numbers: list[int]) -> None:
        """Plan to try these numbers of clusters. If the range grows, expect that some in its middle will follow."""
        work = self.fits * float(sum(numbers))
        self.planned += work
        self.expected = max(self.expected - work, 0.0)
        if max(numbers, default=0) > self.largest:
            self.largest = max(numbers)
            self.expected = self.fits * EXPECTED_REFINEMENTS * self.largest / 2

    def advance(self, k: int) -> None:
        """A fit with k clusters is done."""
        self.done += k
        self.share = max(self.share, self.done / max(self.planned + self.expected, 1.0))
        self.tell(self.share)


def largest_number(n: int) -> int:
    """The largest number of clusters to try on n rows by default."""
    return max(min(n // ROWS_PER_CLUSTER, MAX_CLUSTERS), min(n // 2, 2))


def check_range(k_min: int, k_max: int | None, n: int) -> int:
    """The largest number of clusters to try, by default that for n rows; refuse a range that n rows do not allow."""
    if k_min < 1:
        raise ValueError(f"k_min={k_min} is not allowed: the smallest number of clusters must be at least 1.")
    if k_max is not None and k_max < k_min:
        raise ValueError(f"k_max={k_max} is less than k_min={k_min}: give a larger one, or a smaller k_min.")
    for name, k in (("k_min", k_min), ("k_max", k_max or 0)):
        if k > n // 2:
            raise ValueError(
                f"{name}={k} is too large for {n} rows: each half of them is clustered, so at most {n // 2} clusters "
                "are possible."
            )
    return max(largest_number(n), k_min) if k_max is None else k_max


def try_numbers(
    score: Callable[[int], float],
    k_min: int,
    k_max: int,
    announce: Callable[[list[int]], None] = lambda numbers: None,
) -> dict[int, float]:
    """Try numbers of clusters until the best is known. → the criterion for each number that was tried

    The numbers grow by factors of √2. The range ends at 16 at first, and doubles while the best number is in its upper
    half. Then numbers around the best are tried. ``score(k)`` is called once for each number; higher is better.
    ``announce`` is told which numbers will be tried next.

    >>> from onmf.select import try_numbers
    >>> sorted(try_numbers(lambda k: -abs(k - 5), 2, 100))
    [2, 3, 4, 5, 6, 8, 11, 16]
    """
    tried: dict[int, float] = {}

    def attempt(numbers: list[int]) -> int:
        new = [k for k in numbers if k not in tried]
        announce(new)
        for k in new:
            tried[k] = score(k)
        return max(tried, key=lambda k: (tried[k], -k))

    end = min(max(FIRST_END, 2 * k_min), k_max)
    best = attempt(_spaced(k_min, end))
    while 2 * best > end and end < k_max:
        end = min(2 * end, k_max)
        best = attempt(_spaced(k_min, end))
    while near := _near(sorted(tried), best):
        best = attempt(near)
    return tried


def _spaced(low: int, high: int) -> list[int]:
    """Numbers from low to high, each about √2 times the one before."""
    steps = int(2 * np.log2(high / low) + 1e-9)
    return sorted({round(low * 2 ** (step / 2)) for step in range(steps + 1)} | {high})


def _near(tried: list[int], best: int) -> list[int]:
    """Numbers in the middle between the best and its neighbours, if these are far."""
    at, gap = tried.index(best), max(1, best // FINENESS)
    neighbours = tried[max(at - 1, 0) : at] + tried[at + 1 : at + 2]
    return [(k + best) // 2 for k in neighbours if abs(k - best) > gap]


class Reproduced(NamedTuple):
    """How well one clustering reproduces another, corrected for chance."""

    information: float  # bits that the two share, less bits that only one of them has
    stability: float  # the shared part of their information: the adjusted mutual information


def reproduced(one: Array, other: Array) -> Reproduced:
    """Compare two clusterings of the same rows, in any numbering.

    With H the mean of their entropies and A their adjusted mutual information, they share A · H bits, and (1 − A) · H
    bits depend on which of the two one asks. The difference is the information. A finer clustering raises it only if
    more than half of what it adds is reproduced.

    >>> from onmf.select import reproduced
    >>> reproduced([0, 0, 1, 1], [1, 1, 0, 0])
    Reproduced(information=1.0, stability=1.0)
    """
    bits = float(np.mean([entropy(np.unique(labels, return_counts=True)[1], base=2) for labels in (one, other)]))
    stability = float(adjusted_mutual_info_score(one, other))
    return Reproduced(bits * (2 * stability - 1), stability)


@dataclass(frozen=True, eq=False)
class Selection:
    """The value of each criterion for each number of clusters.

    Attributes
    ----------
    candidates : (m,) array of int
        Numbers of clusters that were tried, in rising order.
    information : (m,) array
        Bits about the rows that clusterings of two disjoint halves share, less bits that only one of them has; higher
        is better.
    information_error : (m,) array
        Standard error of ``information`` over the halvings; NaN if there is only one.
    held_out : (m,) array
        Mean log-likelihood of a held-out count, or minus the loss of a held-out row; higher is better.
    held_out_error : (m,) array
        Standard error of ``held_out`` over the halves.
    stability : (m,) array
        The shared part of the information: the adjusted mutual information of the two clusterings, at most 1. NaN for
        one cluster.
    objective : (m,) array
        Objective of the best clustering; lower is better.
    bic : (m,) array
        Bayesian information criterion; lower is better. NaN if it is not defined for these data.
    criterion : str
        The criterion that chooses ``n_clusters``.
    n_rows : int
        Number of rows that were clustered.
    n_total : int
        Number of rows that they were taken from.
    bend : int or None
        The number of clusters after which the objective falls only in small steps; None if this was not asked.
    fewest : bool
        Whether ``held_out`` chooses the smallest number within one standard error of the best one, not the best one.
    """

    candidates: Array
    information: FloatArray
    information_error: FloatArray
    held_out: FloatArray
    held_out_error: FloatArray
    stability: FloatArray
    objective: FloatArray
    bic: FloatArray
    criterion: str = "information"
    n_rows: int = 0
    n_total: int = 0
    bend: int | None = None
    fewest: bool = False

    @property
    def chosen(self) -> dict[str, int]:
        """The number of clusters that each criterion chooses."""
        choices = {name: self._best(name) for name in CRITERIA}
        return {name: k for name, k in (choices | {"objective": self.bend}).items() if k is not None}

    @property
    def n_clusters(self) -> int:
        """The number of clusters that ``criterion`` chooses."""
        return self.chosen[self.criterion]

    @property
    def runners_up(self) -> list[int]:
        """Coarser and finer alternatives, best first.

        They are other numbers at which the criterion has a peak. The objective has none: its runners-up are numbers
        that lower it by at least a twentieth.
        """
        values = self._values(self.criterion)
        if self.criterion == "objective":
            falls = 1 - self.objective[1:] / np.maximum(self.objective[:-1], 1e-300)
            steep = np.flatnonzero(falls >= STEEP) + 1
            return self._others(steep[np.argsort(-falls[steep - 1], kind="stable")], 1.0)
        around = np.concatenate([[-np.inf], values, [np.inf]])  # after the last number the criterion may rise
        worth = values > (0 if self.criterion == "information" else -np.inf)
        peaks = np.flatnonzero((values >= around[:-2]) & (values > around[2:]) & worth)
        return self._others(peaks[np.argsort(-values[peaks], kind="stable")], APART)

    @property
    def enough(self) -> float | None:
        """The least value of ``held_out`` that makes a number as good as the best one; None unless ``fewest``."""
        if not self.fewest:
            return None
        best = int(np.argmax(self._values("held-out")))
        return float(self.held_out[best] - np.nan_to_num(self.held_out_error[best]))

    @property
    def at_the_end(self) -> bool:
        """Whether the largest number that was tried is chosen, so that a larger one may be better."""
        return len(self.candidates) > 1 and self.n_clusters == self.candidates[-1]

    @property
    def found_nothing(self) -> bool:
        """Whether no number of clusters above one is reproduced: the data show no clusters."""
        several = self.candidates > 1
        return self.criterion == "information" and bool(several.any()) and bool((self.information[several] <= 0).all())

    def table(self) -> list[dict[str, Any]]:
        """One row for each number of clusters, for ``pandas.DataFrame`` and the like; None where nothing is known."""
        names = ("information", "information_error", "held_out", "held_out_error", "stability", "objective", "bic")
        rows = zip(*(getattr(self, name).tolist() for name in ("candidates", *names)), strict=True)
        keys = ("n_clusters", *names)
        return [
            {key: value if math.isfinite(value) else None for key, value in zip(keys, row, strict=True)} for row in rows
        ]

    def record(self) -> dict[str, Any]:
        """The choice and the table as JSON values."""
        return {
            "n_clusters": self.n_clusters,
            "criterion": self.criterion,
            "chosen": self.chosen,
            "runners_up": self.runners_up,
            "n_rows": self.n_rows,
            "tried": self.table(),
        }

    def notes(self, rows: str = "rows") -> list[str]:
        """Sentences about the choice; ``rows`` is what the rows are."""
        k, tried = self.n_clusters, self.candidates
        some = f", on {self.n_rows:,} of the {self.n_total:,} {rows}" if self.n_rows < self.n_total else ""
        # A criterion whose best number is the last one has not chosen: it might prefer larger ones.
        others = {name: best for name, best in self.chosen.items() if name != self.criterion and best < tried[-1]}
        text = f"{k} clusters were chosen by {self.criterion}, of {tried[0]} to {tried[-1]}{some}.{self._why_fewer()}"
        if self.runners_up:
            text += f" Runners-up: {', '.join(map(str, self.runners_up))}."
        if others:
            text += f" Other criteria choose {', '.join(f'{best} ({name})' for name, best in others.items())}."
        notes = [text]
        if self.at_the_end:
            notes.append("The largest number that was tried is the best one: larger numbers may be better.")
        if self.found_nothing:
            notes.append(
                f"Two halves of the {rows} never agree on more than they disagree on: there may be no clusters here."
            )
        return notes

    def plot(self) -> Any:
        """Draw the criteria; see :func:`onmf.plot.plot_selection`."""
        from onmf.plot import plot_selection

        return plot_selection(self)

    def lines(self) -> list[str]:
        """The table for a terminal, with the choice and the runners-up marked."""
        shown = [name for name, column in COLUMNS.items() if np.isfinite(getattr(self, column)).any()]
        lines = ["clusters" + "".join(f"{name:>13}" for name in shown)]
        for i, k in enumerate(self.candidates.tolist()):
            values = [float(getattr(self, COLUMNS[name])[i]) for name in shown]
            cells = [f"{value:.6g}" if math.isfinite(value) else "" for value in values]
            mark = "  ← chosen" if k == self.n_clusters else ""
            mark = mark or ("  runner-up" if k in self.runners_up else "")
            lines.append(f"{k:8}" + "".join(f"{cell:>13}" for cell in cells) + mark)
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *self.notes()])

    def _others(self, places: Array, apart: float) -> list[int]:
        """The first few numbers at these places that are further than a factor from the choice and each other."""
        found: list[int] = []
        for k in self.candidates[places].tolist():
            if all(k != other and max(k / other, other / k) >= apart for other in (self.n_clusters, *found)):
                found.append(k)
        return found[:RUNNERS_UP]

    def _why_fewer(self) -> str:
        """A sentence about the best number, if a smaller one was chosen that is as good."""
        best = int(np.argmax(self._values("held-out")))
        if self.criterion != "held-out" or self.candidates[best] == self.n_clusters:
            return ""
        gain = self.held_out[best] - self.held_out[self.candidates == self.n_clusters][0]
        return (
            f" {self.candidates[best]} clusters predict a held-out count better by {gain:.2g} nats, which is no more "
            f"than the standard error, {self.held_out_error[best]:.2g}: the smallest such number was chosen."
        )

    def _values(self, criterion: str) -> FloatArray:
        """A criterion, so that higher is better and what is not known is −∞. → (m,)"""
        values: FloatArray = getattr(self, COLUMNS[criterion])
        return np.where(np.isfinite(values), -values if criterion in ("bic", "objective") else values, -np.inf)

    def _best(self, criterion: str) -> int | None:
        """The number that a criterion chooses.

        Numbers whose information is within one standard error of the highest are level, and the most stable one of
        them is chosen. Otherwise chance would choose on a plateau.
        """
        values = self._values(criterion)
        if not np.isfinite(values).any():
            return None
        best = int(np.argmax(values))
        if criterion == "held-out" and self.enough is not None:
            best = int(np.flatnonzero(values >= self.enough)[0])
        if criterion == "information" and np.isfinite(self.information_error[best]):
            level = values >= values[best] - self.information_error[best]
            stability = np.where(level, self._values("stability"), -np.inf)
            best = int(np.argmax(stability)) if np.isfinite(stability).any() else best  # one cluster has none
        return int(self.candidates[best])
