"""Choose the number of clusters of counts by criteria that need no labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse
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

from .grow import Work, check_range, either, try_numbers
from .selection import CRITERIA, Selection, reproduced

PRIOR_COUNTS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Pseudo-counts, drawn from the whole data, that smooth a cluster's profile before it predicts; the best is used."""

HALVES = ("features", "counts")
"""What of a held-out row determines its cluster: one half of its features, or of its counts."""

MAX_ROWS = 4_000
"""Rows, at most, that are clustered to choose the number of clusters."""


class Pair(NamedTuple):
    """The halves of the held-out rows: what is known determines the cluster, which predicts what is hidden."""

    known: Any
    known_columns: Any
    hidden: Any
    hidden_columns: Any


class Half(NamedTuple):
    """Rows that are clustered, and the others, which are assigned to the clusters and predicted by them."""

    inside: Array  # (n,) bool
    data: InMemory
    others: Block
    pairs: list[Pair]
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


class Fit(NamedTuple):
    """How rows are clustered."""

    backend: Backend
    n_init: int
    plan: Plan
    seed: int
    divergence: Divergence

    def best(self, data: InMemory, k: int, stream: list[int]) -> Clustering:
        """The best of several runs from random partitions. The stream makes their random numbers."""
        if self.divergence != data.divergence:
            data = data.with_divergence(self.divergence)
        seeds = np.random.default_rng([self.seed, *stream]).integers(np.iinfo(np.int32).max, size=self.n_init)
        return min(runs(data, random_partitions(data, k, seeds), seeds, self.plan), key=lambda run: run.objective)


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
    fit = Fit(backend, n_init, plan, int(rng.integers(2**31 - 1)), divergence)
    trials: dict[int, Trial] = {}
    with _told(progress, verbose) as tell:
        work = Work(2 * n_splits, tell)

        def score(k: int) -> float:
            trials[k] = _try(fit, splits, k, work.advance)
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
        pairs = [Pair(*parts[0], *parts[1]), Pair(*parts[1], *parts[0])]
        data = InMemory(backend.make_block(rows[inside], KullbackLeibler()))
        found.append(Half(inside, data, backend.make_block(outside, KullbackLeibler()), pairs, float(outside.sum())))
    return found


def _columns(rows: Matrix, columns: Array) -> Matrix:
    some = rows[:, columns]
    return csr_array(some) if issparse(some) else np.ascontiguousarray(some)


def _thinned(rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Two random halves of the counts."""
    if not issparse(rows):
        whole = rows.astype(np.int64)
        half = rng.binomial(whole, 0.5)
        return half, whole - half
    whole = rows.data.astype(np.int64)
    half = rng.binomial(whole, 0.5)
    first, second = (csr_array((data, rows.indices, rows.indptr), shape=rows.shape) for data in (half, whole - half))
    return first, second


def _try(fit: Fit, splits: list[list[Half]], k: int, advance: Callable[[int], None]) -> Trial:
    """Cluster both halves of each split, and compare the two clusterings."""
    information, stability, held_out, objectives = [], [], [], []
    for split, pair in enumerate(splits):
        clusterings = []
        for number, half in enumerate(pair):
            best = fit.best(half.data, k, [k, split, number])
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
        for pair in half.pairs:
            known = backend.prepare(pair.known, _logs(smoothed, pair.known_columns))
            chosen, _ = backend.best_template(pair.known, known)
            hidden = backend.prepare(pair.hidden, _logs(smoothed, pair.hidden_columns))
            own, _ = backend.own_and_next(pair.hidden, hidden, chosen)
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
