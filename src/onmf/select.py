"""How many clusters: numbers that are tried, criteria that need no labels, and the choice.

:func:`select_n_clusters` chooses for counts. :func:`try_numbers` says which numbers to try, for any criterion.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.utils import check_random_state

from onmf import interrupt
from onmf.backend import Backend, Block, Matrix
from onmf.data import InMemory, get_engine
from onmf.data.groups import check_groups
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data, check_entries, check_kind
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, get_divergence
from onmf.estimator import ONMF, RUNS_WITH_GROUPS
from onmf.fit import Plan
from onmf.fit.restarts import runs
from onmf.fit.starts import random_partitions
from onmf.functions import log, xlogy
from onmf.plot import plot_selection
from onmf.warn import import_optional

PRIOR_COUNTS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Pseudo-counts, drawn from the whole data, that smooth a cluster's profile before it predicts; the best is used."""

HALVES = ("features", "counts")  # what of a held-out row determines its cluster: half of its features, or of its counts
N_INIT = 4  # runs of each fit
MAX_ROWS = 4_000  # that are clustered to choose the number of clusters

FIRST_END = 16  # of the range of numbers that grows
MAX_CLUSTERS = 100  # the largest number that is tried unless a larger one is asked for
ROWS_PER_CLUSTER = 5  # on the mean, at least, unless more clusters are asked for
FINENESS = 16  # numbers are tried between the best and a neighbour that differ by more than the best divided by this
EXPECTED_REFINEMENTS = 6  # numbers tried around the best: a guess, for the progress

STEEP = 0.05  # fraction of the objective that a runner-up removes
APART = 1.25  # factor between runners-up: numbers that are closer are about the same choice
RUNNERS_UP = 3  # at most

DIGITS = 12  # of the adjusted mutual information that are kept: the others depend on the processor

CRITERIA = ("information", "held-out", "stability", "bic")  # Criteria that choose the number of clusters of counts
GROUP_CRITERIA = ("information", "stability")  # those for rows with groups
IMAGE_CRITERIA = ("objective", "information", "held-out", "stability")  # and those for an image

COLUMNS = {name: name.replace("-", "_") for name in ("information", "stability", "held-out", "objective", "bic")}
"""Criteria, and the attributes of a selection that hold them."""


class Half(NamedTuple):
    """Rows that are clustered, and the others, which are assigned to the clusters and predicted by them."""

    inside: Array  # (n,) bool
    data: InMemory
    others: Block
    parts: list[tuple[Any, Any]]  # Two halves of the other rows: one determines the cluster, which predicts the other
    n_counts: float  # that are predicted


@interrupt.heeding
def select_n_clusters(
    X: Any,
    candidates: Iterable[int] | None = None,
    *,
    criterion: str = "information",
    k_min: int = 2,
    k_max: int | None = None,
    n_splits: int = 3,
    n_init: int | None = None,
    halves: str = "features",
    n_rows: int | None = MAX_ROWS,
    refine: str | None = "local-search",
    max_iter: int = 20,
    beta_loss: str | float | Divergence = "kullback-leibler",
    groups: Any = None,
    random_state: Any = None,
    n_threads: int | None = None,
    progress: Callable[[float], None] | None = None,
    verbose: int = 0,
) -> Selection:
    """Try numbers of clusters on counts, and choose one.

    The rows are halved at random. Each half is clustered by itself, and the rows of the other half are assigned to the
    clusters. So two clusterings of all rows have no row in common to learn from.

    *Information*: the bits about the rows that the two share, less the bits that only one has. A burst of words in some
    documents makes a cluster in one half only, and does not count. *Stability*: the share of the information that is
    reproduced. *Held-out likelihood*: half of the words of a row that was not clustered determine its cluster, which
    predicts the others. *BIC*: the likelihood, with a penalty of (log n) / 2 for each of the k (p − 1) parameters.

    Parameters
    ----------
    X : (n, n_features) array or sparse matrix of counts
        Data: integers ≥ 0, of any numeric type.
    candidates : iterable of int, optional
        Numbers to try. By default a range that grows: from ``k_min`` to 16, then twice as far while the best number is
        in its upper half. Then numbers near the best are tried.
    criterion : {"information", "held-out", "stability", "bic"}, default="information"
        What chooses the number. All are computed.
    k_min, k_max : int, default=2, None
        Bounds of the range that grows. By default it ends at 100, and at a fifth of the rows.
    n_splits, n_init : int, default=3, None
        How often the rows are halved; and the number of runs for each fit, of which the best is used. By default 4, and
        10 with groups.
    halves : {"features", "counts"}, default="features"
        What determines the cluster of a held-out row: half of its features (words), or of its counts (each feature is
        halved at random). Halves of counts are independent only if these are Poisson: a burst of a word is in both.
    n_rows : int or None, default=4000
        Use at most this many rows, chosen at random; None for all.
    refine, max_iter, beta_loss, random_state, n_threads
        How the halves are clustered, as in :class:`onmf.ONMF`. Divergences without a local search do without it.
    groups : (n,) array of labels, optional
        The group of each row, as in :meth:`onmf.ONMF.fit`. Then only information and stability are computed.
    progress : callable, optional
        Called with the share of the work that is done. While the range grows, this is an estimate.
    verbose : int, default=0
        Show a progress bar.

    Returns
    -------
    Selection

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
    check_known("criterion", criterion, CRITERIA)
    check_known("halves", halves, HALVES)
    if n_splits < 1 or (n_init is not None and n_init < 1) or (n_rows is not None and n_rows < 2):
        raise ValueError(f"n_splits={n_splits} and n_init={n_init} must be at least 1, and n_rows={n_rows} at least 2.")
    rows = _counts(X, divergence)
    total = rows.shape[0]
    codes = None
    if groups is not None:
        check_known("criterion", criterion, GROUP_CRITERIA)
        known = check_groups(groups, relative=True)
        known.check_length(total)
        codes = known.codes if len(known) > 1 else None
    n_init = n_init if n_init is not None else N_INIT if codes is None else RUNS_WITH_GROUPS
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    if n_rows is not None and total > n_rows:
        some = np.sort(rng.choice(total, n_rows, replace=False))
        rows, codes = rows[some], None if codes is None else codes[some]
    n = rows.shape[0]
    most = check_range(k_min, k_max, n) if candidates is None else 0
    numbers = [] if candidates is None else _numbers(candidates, n)
    backend = get_engine("cpu", rows, n_threads).backend
    splits: list[Any] = [
        rng.permutation(n) % 2 == 0 if codes is not None else _halved(backend, rows, halves, rng)
        for _ in range(n_splits)
    ]
    plan = Plan(max_iter=max_iter, refine=None if divergence.moves is None else refine, thorough=True)
    seed = int(rng.integers(2**31 - 1))
    trials: dict[int, dict[str, Any]] = {}
    with _told(progress, verbose) as tell:
        work = Work(2 * n_splits, tell)

        def labels_of(data: InMemory, k: int, *stream: int) -> Array:
            data = data if divergence == data.divergence else data.with_divergence(divergence)
            seeds = np.random.default_rng([seed, k, *stream]).integers(np.iinfo(np.int32).max, size=n_init)
            found = min(runs(data, random_partitions(data, k, seeds), seeds, plan), key=lambda run: run.objective)
            work.advance(k)
            return found.labels

        def in_groups(inside: Array, k: int, *stream: int) -> Array:
            own = np.random.default_rng([seed, k, *stream]).integers(np.iinfo(np.int32).max)
            model = ONMF(k, beta_loss=divergence, n_init=n_init, max_iter=max_iter, random_state=int(own))
            labels = _labels_in_groups(model.set_params(n_threads=n_threads), rows, codes, inside)
            work.advance(k)
            return labels

        def score(k: int) -> float:
            trials[k] = _try(labels_of, splits, k) if codes is None else _try_in_groups(in_groups, splits, k)
            return float(Selection.of({k: trials[k]}).values(criterion)[0])

        if candidates is None:
            try_numbers(score, k_min, most, work.plan)
        work.plan(numbers)
        for k in numbers:
            score(k)
        tell(1.0)
    return Selection.of(trials, criterion=criterion, n_rows=n, n_total=total)


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
    some = np.sort(np.array_split(rng.permutation(p), 2)[0])
    by_counts = halves == "counts" or p == 1
    columns: list[Any] = [slice(None)] * 2 if by_counts else [some, np.setdiff1d(np.arange(p), some)]
    found = []
    for inside in (first, ~first):
        outside = rows[~inside]
        in_two = _thinned(outside, rng) if by_counts else [_columns(outside, some) for some in columns]
        parts = [(backend.place(half), some) for half, some in zip(in_two, columns, strict=True)]
        data = InMemory(backend.make_block(rows[inside], KullbackLeibler()))
        found.append(Half(inside, data, backend.make_block(outside, KullbackLeibler()), parts, float(outside.sum())))
    return found


def _columns(rows: Matrix, columns: Array) -> Matrix:
    return rows[:, columns] if issparse(rows) else rows.take(columns, axis=1)  # whose rows are contiguous


def _thinned(rows: Matrix, rng: np.random.Generator) -> list[Matrix]:
    """Two random halves of the counts."""
    first, second = rows.astype(np.int64), rows.astype(np.int64)
    half, rest = (part.data if issparse(part) else part for part in (first, second))
    half[...] = rng.binomial(half, 0.5)
    rest -= half
    return [first, second]


def _try(labels_of: Callable[..., Array], splits: list[list[Half]], k: int) -> dict[str, Any]:
    """Cluster both halves of each split, and compare the two clusterings. → the criteria"""
    compared, held_out, objectives = [], [], []
    for split, pair in enumerate(splits):
        found = [_carried_over(half, labels_of(half.data, k, split, i), k) for i, half in enumerate(pair)]
        compared.append(reproduced(*(labels for labels, _, _ in found)))
        held_out += [likelihood for _, likelihood, _ in found]
        objectives += [objective for _, _, objective in found]
    information, stability = np.array(compared).T
    n, p = len(splits[0][0].inside), splits[0][0].others.shape[1]
    return {
        "information": information,
        "stability": stability if k > 1 else np.full(len(splits), np.nan),  # one cluster is always reproduced
        "held_out": held_out,
        "objective": min(objectives),
        "bic": 2 * min(objectives) + k * (p - 1) * float(log(n)),
    }


def _labels_in_groups(model: ONMF, rows: Matrix, codes: Any, inside: Array) -> Array:
    """Cluster some of the rows with their groups, and assign the others."""
    labels = np.empty(len(inside), dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a half may lack a group, or need more iterations
        labels[inside] = model.fit(rows[inside], groups=codes[inside]).labels_
        labels[~inside] = model.predict(
            rows[~inside], groups=codes[~inside] if model.group_effects_ is not None else None
        )
    return labels


def _try_in_groups(labels_of: Callable[..., Array], splits: list[Array], k: int) -> dict[str, Any]:
    """The same for rows with groups. → information and stability"""
    pairs = [[labels_of(half, k, split, i) for i, half in enumerate((a, ~a))] for split, a in enumerate(splits)]
    information, stability = np.array([reproduced(*pair) for pair in pairs]).T
    return {"information": information, "stability": stability if k > 1 else np.full(len(splits), np.nan)}


def _carried_over(half: Half, own: Array, k: int) -> tuple[Array, float, float]:
    """Carry clusters over to the rows of the other half.

    → the clusters of all rows, the mean log-likelihood of a count of the other half, and the objective of all rows
    """
    block, others = half.data.block, half.others
    backend = block.backend
    sums = block.sum_by_label(own, np.ones(len(own)), k)
    whole = sums.sum(axis=0) + 0.5  # half a pseudo-count: words that never occur get a finite likelihood
    whole /= whole.sum()
    best, profiles = -np.inf, sums
    for prior in PRIOR_COUNTS:
        smoothed = (sums + prior * whole) / (sums.sum(axis=1, keepdims=True) + prior)
        score = 0.0
        among = [np.ascontiguousarray(smoothed[:, columns]) for _, columns in half.parts]
        logs = [log(some / some.sum(axis=1, keepdims=True)) for some in among]  # of probabilities in each part
        prepared = [backend.prepare(part, log) for (part, _), log in zip(half.parts, logs, strict=True)]
        for known in (0, 1):
            chosen, _ = backend.best_template(half.parts[known][0], prepared[known])
            score += float(backend.own_and_next(half.parts[1 - known][0], prepared[1 - known], chosen)[0].sum())
        if score > best:
            best, profiles = score, smoothed
    assigned, _ = backend.best_template(others.rows, backend.prepare(others.rows, log(profiles)))
    labels = np.empty(len(half.inside), dtype=np.int64)
    labels[half.inside], labels[~half.inside] = own, assigned
    sums = sums + others.sum_by_label(assigned, np.ones(len(assigned)), k)
    constant = float(block.constants.sum() + others.constants.sum())
    return labels, best / max(half.n_counts, 1.0), block.divergence.objective(sums, sums.sum(axis=1), 0.0, constant)


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
    rich = import_optional("rich.progress", "verbose=1 shows a progress bar, which needs rich", "cli")
    with rich.Progress() as bar:
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
        if self.criterion is not None:
            check_known("criterion", self.criterion, criteria)


def check_known(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value of a parameter that is none of those that are known."""
    if value not in known:
        raise ValueError(f"{name}={value!r} is not known: use {', '.join(map(repr, known[:-1]))} or {known[-1]!r}.")


class Work:
    """How much of the work is done, told as a share that never falls. The time of a fit grows with its clusters."""

    def __init__(self, fits: int, tell: Callable[[float], None]) -> None:
        self.fits, self.tell = fits, tell
        self.done = self.planned = self.expected = self.share = self.largest = 0.0

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
    return k_max or max(min(n // ROWS_PER_CLUSTER, MAX_CLUSTERS), min(n // 2, 2), k_min)


def try_numbers(
    score: Callable[[int], float], k_min: int, k_max: int, announce: Callable[[list[int]], None] = lambda numbers: None
) -> dict[int, float]:
    """Try numbers of clusters until the best is known. → the criterion for each number that was tried

    The numbers grow by factors of √2, to 16 at first, and twice as far while the best is in the upper half. Then some
    around the best are tried. ``score(k)``: higher is better. ``announce`` is told which numbers will be tried next.

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
    differ. The difference is the information: a finer clustering raises it if more than half of what it adds is shared.

    >>> from onmf.select import reproduced
    >>> reproduced([0, 0, 1, 1], [1, 1, 0, 0])
    Reproduced(information=1.0, stability=1.0)
    """
    bits = (_bits(one) + _bits(other)) / 2
    stability = round(adjusted_mutual_info_score(one, other), DIGITS)
    return Reproduced(bits * (2 * stability - 1), stability)


def _bits(labels: Array) -> float:
    """The entropy of a clustering."""
    counts = np.unique(labels, return_counts=True)[1]
    return float(log(len(labels)) - xlogy(counts, counts).sum() / len(labels)) / float(log(2.0))


@dataclass(frozen=True, eq=False)
class Selection:
    """The value of each criterion for each number of clusters.

    Attributes
    ----------
    candidates : (m,) array of int
        Numbers of clusters that were tried, in rising order.
    information : (m,) array
        Bits about the rows that clusterings of two halves share, less bits that only one has; higher is better.
    held_out : (m,) array
        Mean log-likelihood of a held-out count, or minus the loss of a held-out row; higher is better.
    information_error, held_out_error : (m,) arrays
        Their standard errors over the halvings and over the halves; NaN if there is only one.
    stability : (m,) array
        The shared part of the information: the adjusted mutual information, at most 1. NaN for one cluster.
    objective, bic : (m,) arrays
        Objective of the best clustering, and Bayesian information criterion, NaN if not defined; lower is better.
    criterion : str
        The criterion that chooses ``n_clusters``.
    n_rows, n_total : int
        Number of rows that were clustered, and of those that they were taken from.
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

    @classmethod
    def of(cls, trials: Mapping[int, Mapping[str, Any]], **options: Any) -> Selection:
        """A selection from the criteria for each number of clusters: a value, or one for each halving or half."""
        tried = sorted(trials)
        values = {key: np.array([np.atleast_1d(trials[k].get(key, np.nan)) for k in tried]) for key in COLUMNS.values()}
        options |= {key: each.mean(axis=1) for key, each in values.items()}
        options |= {f"{key}_error": _error(values[key]) for key in ("information", "held_out")}
        return cls(np.array(tried), **options)

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

        Numbers at which the criterion has a peak. The objective has none: those that lower it by at least a twentieth.
        """
        if self.criterion == "objective":
            falls = 1 - self.objective[1:] / np.maximum(self.objective[:-1], 1e-300)
            steep = np.flatnonzero(falls >= STEEP) + 1
            return self._others(steep[np.argsort(-falls[steep - 1], kind="stable")], 1.0)
        values = self.values(self.criterion)
        around = np.concatenate([[-np.inf], values, [np.inf]])  # after the last number the criterion may rise
        worth = values > (0 if self.criterion == "information" else -np.inf)
        peaks = np.flatnonzero((values >= around[:-2]) & (values > around[2:]) & worth)
        return self._others(peaks[np.argsort(-values[peaks], kind="stable")], APART)

    @property
    def enough(self) -> float | None:
        """The least value of ``held_out`` that makes a number as good as the best one; None unless ``fewest``."""
        if not self.fewest:
            return None
        best = int(np.argmax(self.values("held-out")))
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
        columns = {"n_clusters": self.candidates} | {name: getattr(self, name) for name in names}
        known = {name: [x if math.isfinite(x) else None for x in each.tolist()] for name, each in columns.items()}
        return [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]

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
        chosen = {name: best for name, best in self.chosen.items() if name != self.criterion and best < tried[-1]}
        runners_up = ", ".join(map(str, self.runners_up))
        others = ", ".join(f"{best} ({name})" for name, best in chosen.items())
        text = (
            f"{k} clusters were chosen by {self.criterion}, of {tried[0]} to {tried[-1]}{some}.{self._why_fewer()}"
            + (f" Runners-up: {runners_up}." if runners_up else "")
            + (f" Other criteria choose {others}." if others else "")
        )
        nothing = f"Two halves of the {rows} never agree on more than they disagree on: there may be no clusters here."
        notes = {
            text: True,
            "The largest number that was tried is the best one: larger numbers may be better.": self.at_the_end,
            nothing: self.found_nothing,
        }
        return [note for note, holds in notes.items() if holds]

    def plot(self) -> Any:
        """Draw the criteria; see :func:`onmf.plot.plot_selection`."""
        return plot_selection(self)

    def lines(self) -> list[str]:
        """The table for a terminal, with the choice and the runners-up marked."""
        table = self.table()
        shown = {name: key for name, key in COLUMNS.items() if any(row[key] is not None for row in table)}
        marks = dict.fromkeys(self.runners_up, "  runner-up") | {self.n_clusters: "  ← chosen"}
        lines = ["clusters" + "".join(f"{name:>13}" for name in shown)]
        for row in table:
            cells = ["" if row[key] is None else f"{row[key]:.6g}" for key in shown.values()]
            mark = marks.get(row["n_clusters"], "")
            lines.append(f"{row['n_clusters']:8}" + "".join(f"{cell:>13}" for cell in cells) + mark)
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
        best = int(np.argmax(self.values("held-out")))
        if self.criterion != "held-out" or self.candidates[best] == self.n_clusters:
            return ""
        gain = self.held_out[best] - self.held_out[self.candidates == self.n_clusters][0]
        return (
            f" {self.candidates[best]} clusters predict a held-out count better by {gain:.2g} nats, which is no more "
            f"than the standard error, {self.held_out_error[best]:.2g}: the smallest such number was chosen."
        )

    def values(self, criterion: str) -> FloatArray:
        """A criterion, so that higher is better and what is not known is −∞. → (m,)"""
        values: FloatArray = getattr(self, COLUMNS[criterion])
        return np.where(np.isfinite(values), -values if criterion in ("bic", "objective") else values, -np.inf)

    def _best(self, criterion: str) -> int | None:
        """The number that a criterion chooses.

        Of numbers whose information is within one standard error of the highest, the most stable one is chosen.
        Otherwise chance would choose on a plateau.
        """
        values = self.values(criterion)
        if not np.isfinite(values).any():
            return None
        best = int(np.argmax(values))
        if criterion == "held-out" and self.enough is not None:
            best = int(np.flatnonzero(values >= self.enough)[0])
        if criterion == "information" and np.isfinite(self.information_error[best]):
            level = values >= values[best] - self.information_error[best]
            stability = np.where(level, self.values("stability"), -np.inf)
            best = int(np.argmax(stability)) if np.isfinite(stability).any() else best  # one cluster has none
        return int(self.candidates[best])
