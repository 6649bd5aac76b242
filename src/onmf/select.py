"""Choose the number of clusters by three criteria that need no labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state

from onmf import interrupt
from onmf.backend import Backend, Matrix
from onmf.data import InMemory, get_engine
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data
from onmf.divergence import Array, FloatArray, KullbackLeibler
from onmf.fit import Clustering, Plan
from onmf.fit.restarts import runs
from onmf.fit.starts import Seeds, random_partition

PRIOR = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Pseudo-counts, drawn from the whole data, that smooth a cluster's profile before it predicts; the best is used."""


@dataclass(frozen=True)
class Selection:
    """The value of each criterion for each number of clusters.

    Attributes
    ----------
    candidates : (m,) array of int
        Numbers of clusters that were tried.
    held_out : (m,) array
        Mean log-likelihood of a held-out count; higher is better.
    held_out_error : (m,) array
        Standard error of ``held_out`` over the folds.
    stability : (m,) array
        Mean adjusted Rand index of two runs; 1 if all runs found the same clusters.
    bic : (m,) array
        Bayesian information criterion; lower is better.
    """

    candidates: Array
    held_out: FloatArray
    held_out_error: FloatArray
    stability: FloatArray
    bic: FloatArray

    @property
    def chosen(self) -> dict[str, int]:
        """The number of clusters that each criterion chooses."""
        best = {
            "held-out": np.argmax(self.held_out),
            "stability": np.argmax(self.stability),
            "bic": np.argmin(self.bic),
        }
        return {name: int(self.candidates[i]) for name, i in best.items()}

    @property
    def n_clusters(self) -> int:
        """The number of clusters with the highest held-out likelihood."""
        return self.chosen["held-out"]

    def table(self) -> list[dict[str, float]]:
        """One row for each number of clusters, for ``pandas.DataFrame`` and the like."""
        columns = zip(self.candidates, self.held_out, self.held_out_error, self.stability, self.bic, strict=True)
        names = ("n_clusters", "held_out", "held_out_error", "stability", "bic")
        return [{"n_clusters": int(row[0])} | dict(zip(names[1:], map(float, row[1:]), strict=True)) for row in columns]

    def plot(self) -> Any:
        """Draw the three criteria; see :func:`onmf.plot.plot_selection`."""
        from onmf.plot import plot_selection

        return plot_selection(self)

    def __str__(self) -> str:
        lines = ["clusters   held-out          stability   BIC"]
        for row in self.table():
            marks = "".join(f"  ← {name}" for name, k in self.chosen.items() if k == row["n_clusters"])
            lines.append(
                f"{row['n_clusters']:8d}   {row['held_out']:.4f} ± {row['held_out_error']:.4f}"
                f"   {row['stability']:9.3f}   {row['bic']:.6g}{marks}"
            )
        last = [name for name, k in self.chosen.items() if k == self.candidates[-1]]
        if last and len(self.candidates) > 1:
            lines.append(f"By {' and '.join(last)} the largest number tried is best: try larger ones.")
        return "\n".join(lines)


@interrupt.heeding
def select_n_clusters(
    X: Any,
    candidates: Iterable[int] = range(2, 21),
    *,
    n_splits: int = 3,
    n_init: int = 5,
    refine: str | None = "local-search",
    max_iter: int = 100,
    random_state: Any = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> Selection:
    """Try several numbers of clusters on counts, and judge each by three criteria.

    *Held-out likelihood*: the rows are split into folds, and the clusters are computed without one of them. Each row
    of that fold is then halved at random, word by word (binomial thinning: for Poisson counts the halves are
    independent). One half determines the cluster of the row, and the cluster predicts the other half. *Stability*: how
    well runs from random partitions agree. *BIC*: the likelihood of the fit, with a penalty of (log n) / 2 for each of
    the k (p − 1) parameters.

    Parameters
    ----------
    X : (n, n_features) array or sparse matrix of counts
        Data: integers ≥ 0, of any numeric type.
    candidates : iterable of int, default=range(2, 21)
        Numbers of clusters to try.
    n_splits : int, default=3
        Number of folds; at least 2.
    n_init : int, default=5
        Number of runs for each fit; at least 2.
    refine : None or "local-search", default="local-search"
        As in :class:`onmf.ONMF`.
    max_iter : int, default=100
        As in :class:`onmf.ONMF`.
    random_state : int, RandomState or None, default=None
        Seed of the folds, the halves and the runs.
    n_threads : int or None, default=None
        Threads; None uses all cores.
    verbose : int, default=0
        Show a progress bar.

    Returns
    -------
    Selection
        With a table, the choice of each criterion, and a plot.

    Examples
    --------
    >>> from onmf import select_n_clusters
    >>> from onmf.datasets import make_counts
    >>> X = make_counts(300, 200, 4, overlap=0.2, random_state=0).X
    >>> select_n_clusters(X, range(2, 7), random_state=0).n_clusters
    4
    """
    from onmf import kernels

    check_in_memory(X, "select_n_clusters")
    divergence = KullbackLeibler()
    rows = check_data(X, divergence)
    values = rows.data if issparse(rows) else rows.reshape(-1)
    if not np.isfinite(kernels.total_if_whole(values, 0, len(values))):
        raise ValueError(
            "X holds numbers that are not integers: held-out likelihood halves counts word by word. Pass raw counts, "
            "not frequencies or tf-idf."
        )
    if len(values) and values.max() > 2**53:
        raise ValueError(f"X holds {values.max():g}, and counts beyond 2**53 are not exact: divide them by a constant.")
    if not isinstance(candidates, Iterable):
        raise TypeError(f"candidates={candidates!r} must be several numbers of clusters, such as range(2, 21).")
    numbers = np.unique(np.fromiter(candidates, dtype=np.int64))
    smallest = rows.shape[0] - -(-rows.shape[0] // max(n_splits, 1))
    if n_splits < 2 or n_init < 2:
        raise ValueError(f"n_splits={n_splits} and n_init={n_init} must both be at least 2.")
    if len(numbers) == 0 or numbers[0] < 1 or numbers[-1] > smallest:
        raise ValueError(
            f"candidates must be numbers of clusters from 1 to {smallest}, the rows that are left when a fold is held "
            "out."
        )
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    backend = get_engine("cpu", rows, n_threads).backend
    plan = Plan(max_iter=max_iter, refine=refine, thorough=True)
    folds = rng.permutation(rows.shape[0]) % n_splits
    splits = [_split(rows, folds == fold, rng) for fold in range(n_splits)]
    held_out = np.empty((len(numbers), n_splits))
    stability, bic = np.empty(len(numbers)), np.empty(len(numbers))
    with _progress(len(numbers) * (n_splits + 1), verbose) as advance:
        for place, k in enumerate(map(int, numbers)):
            fits = _fits(backend, rows, k, n_init, plan, rng)
            best = min(fits, key=lambda run: run.objective)
            pairs = list(combinations((run.labels for run in fits), 2))
            stability[place] = np.mean([adjusted_rand_score(a, b) for a, b in pairs])
            bic[place] = 2 * best.objective + k * (rows.shape[1] - 1) * np.log(rows.shape[0])
            advance()
            for fold, (train, first, second) in enumerate(splits):
                best = min(_fits(backend, train, k, n_init, plan, rng), key=lambda run: run.objective)
                held_out[place, fold] = _predicted(backend, train, best.labels, k, first, second)
                advance()
    error = held_out.std(axis=1, ddof=1) / np.sqrt(n_splits)
    return Selection(numbers, held_out.mean(axis=1), error, stability, bic)


def _split(rows: Matrix, out: Array, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """The rows that are not held out, and the two random halves of those that are."""
    test = rows[out]
    if not issparse(test):
        half = rng.binomial(test.astype(np.int64), 0.5)
        return rows[~out], half, test.astype(np.int64) - half
    half = rng.binomial(test.data.astype(np.int64), 0.5)
    first, second = (
        csr_array((data, test.indices, test.indptr), shape=test.shape)
        for data in (half, test.data.astype(np.int64) - half)
    )
    return rows[~out], first, second


def _fits(backend: Backend, rows: Matrix, k: int, n: int, plan: Plan, rng: np.random.Generator) -> list[Clustering]:
    """Results of n runs from random partitions."""
    data = InMemory(backend.hold(rows, KullbackLeibler()))
    seeds = rng.integers(np.iinfo(np.int32).max, size=n)

    def start(run: int) -> Seeds:
        return random_partition(data, k, np.random.default_rng(int(seeds[run])))

    return list(runs(data, start, seeds, plan))


def _predicted(backend: Backend, train: Matrix, labels: Array, k: int, first: Matrix, second: Matrix) -> float:
    """Mean log-likelihood of a count of the second halves, in the clusters that the first halves determine."""
    sums = backend.sum_by_label(backend.place(train), labels, np.ones(len(labels)), k)
    whole = sums.sum(axis=0) + 0.5  # half a pseudo-count: words that never occur get a finite likelihood
    whole /= whole.sum()
    totals = sums.sum(axis=1, keepdims=True)
    halves = backend.place(first), backend.place(second)
    best = -np.inf
    for prior in PRIOR:
        templates = np.log((sums + prior * whole) / (totals + prior))
        chosen, _ = backend.best_template(halves[0], backend.prepare(halves[0], templates))
        own, _ = backend.own_and_next(halves[1], backend.prepare(halves[1], templates), chosen)
        best = max(best, float(own.sum()))
    return best / max(float(second.sum()), 1.0)


@contextmanager
def _progress(steps: int, verbose: int) -> Iterator[Callable[[], None]]:
    """Yield the function that advances a progress bar by a step; without ``verbose`` it does nothing."""
    if not verbose:
        yield lambda: None
        return
    try:
        from rich.progress import Progress
    except ImportError as error:
        raise ImportError("verbose=1 shows a progress bar, which needs rich: pip install 'onmf[cli]'.") from error
    with Progress() as progress:
        task = progress.add_task("Numbers of clusters", total=steps)
        yield lambda: progress.advance(task)
