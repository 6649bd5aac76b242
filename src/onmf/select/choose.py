"""How many clusters: as many as two halves of the rows, which never see each other, agree on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from onmf import interrupt
from onmf.backend import Matrix
from onmf.backend.threads import available_cores
from onmf.data.groups import check_groups
from onmf.data.intake import check_in_memory
from onmf.data.validate import check_data, check_entries, check_kind
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, get_divergence
from onmf.estimator import ONMF
from onmf.io.rules import require
from onmf.warn import import_optional

from .chance import OneCluster
from .halves import Halves, agreement, chain, ladder
from .levels import find_levels
from .selection import Level, Selection

FEWEST_ROWS, MOST_ROWS = 2_400, 16_000  # that are used; between the two as many as have so many entries:
ENTRIES = 1_300_000
MOST_CLUSTERS = 60  # that are tried unless more are asked for
ROWS_PER_CLUSTER = 10  # on the mean, at least, unless more clusters are asked for

FIRST_DRAWS = 4  # draws without structure; they settle clear cases
CLEAR = 10.0  # standard deviations by which a clear case is above them
SPREAD = 0.02  # the least standard deviation of an agreement


class Sample(NamedTuple):
    """Rows, their groups, and which of them are clustered; the others are assigned."""

    rows: Matrix
    groups: Array | None
    inside: Array


@interrupt.heeding
def select_n_clusters(
    X: Any,
    *,
    k_min: int = 1,
    k_max: int | None = None,
    groups: Any = None,
    false_alarms: float = 0.05,
    n_splits: int = 3,
    n_rows: int | None = None,
    beta_loss: str | float | Divergence = "kullback-leibler",
    smoothing: float | None = None,
    random_state: Any = None,
    n_threads: int | None = None,
    progress: Callable[[float], None] | None = None,
    verbose: int = 0,
) -> Selection:
    """Choose the number of clusters: a coarse, a medium and a fine level, or 1 if there are no clusters.

    The rows are halved at random. Each half is clustered by itself into many clusters, which are then merged step by
    step, and the rows of the other half are assigned to the clusters. So for each number there are two clusterings of
    all rows that have no row in common to learn from. What they share is real; numbers of clusters at which they share
    much, and little else, are levels.

    The same is done with counts without any structure, of the same row and column sums, and with the same variance of
    each feature. If their halves agree as well, there are no clusters, and the answer is 1.

    Parameters
    ----------
    X : (n, n_features) array or sparse matrix
        Data: numbers that are not negative.
    k_min, k_max : int, default=1, None
        The smallest and the largest number to choose. By default there are at most 60 clusters, of ten rows or more on
        the mean. If ``k_min`` is above 1, nothing is compared with counts without structure.
    groups : (n,) array of labels, optional
        The group of each row, as in :meth:`onmf.ONMF.fit`.
    false_alarms : float, default=0.05
        The share of data without structure in which clusters may be found.
    n_splits : int, default=3
        How often the rows are halved.
    n_rows : int, optional
        Use at most this many rows, chosen at random. By default 16,000; fewer if the rows have many entries, but at
        least 2,400.
    beta_loss, smoothing, random_state, n_threads
        How the halves are clustered, as in :class:`onmf.ONMF`.
    progress : callable, optional
        Called with the share of the work that is done. This is an estimate, since clear cases need less.
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
    check_in_memory(X, "select_n_clusters")
    if not 0 < false_alarms < 1 or n_splits < 1 or (n_rows is not None and n_rows < 4):
        raise ValueError(
            f"false_alarms={false_alarms} must be between 0 and 1, n_splits={n_splits} at least 1, and n_rows={n_rows} "
            "at least 4."
        )
    model = ONMF(beta_loss=beta_loss, init="++", n_init=8, max_iter=20, n_threads=1)
    if smoothing is not None:
        model.set_params(smoothing=smoothing)
    rows, codes = _check(X, get_divergence(beta_loss), groups)
    total = rows.shape[0]
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    used = _some(rows, n_rows, rng)
    numbers = ladder(k_min, check_range(k_min, k_max, len(used)))
    rows, codes = rows[used], None if codes is None else codes[used]
    model.set_params(random_state=int(rng.integers(2**31 - 1)))
    one = OneCluster(rows, codes)

    def draws(number: int) -> list[Sample]:
        return [half for _ in range(number) for half in _halves(*_filled(one.draw(rng), codes, 2 * numbers[-1]), rng)]

    most = math.ceil(1 / false_alarms) - 1 if k_min == 1 else 0
    first = min(most, FIRST_DRAWS)
    with _told(progress, verbose) as tell, _Chains(model, numbers, n_threads, tell) as chains:
        whole = Sample(rows, codes, np.ones(len(used), dtype=bool))
        splits = [half for _ in range(n_splits) for half in _halves(rows, codes, rng)]
        everything, *found = chains.run([whole, *splits, *draws(first)])
        pairs = _in_pairs(found)
        halves = Halves(np.array(numbers), np.array([each.inside for each in splits[::2]]), np.array(pairs[:n_splits]))
        curve, chance = halves.agreement(), [agreement(pair) for pair in pairs[n_splits:]]
        if undecided(curve.mean(axis=1), chance):
            chance += [agreement(pair) for pair in _in_pairs(chains.run(draws(most - first)))]
        as_good = count_as_good(curve.mean(axis=1), chance)
    levels = {} if as_good else find_levels(numbers, curve, halves.bits())
    mean, unknown = curve.mean(axis=1), np.full(len(numbers), np.nan)
    return Selection(
        numbers=np.array(numbers),
        agreement=mean,
        agreement_error=curve.std(axis=1, ddof=1) / math.sqrt(n_splits) if n_splits > 1 else unknown,
        chance=np.mean(chance, axis=0) if chance else unknown,
        draws=len(chance),
        as_good=as_good,
        levels=tuple(_levels(levels, numbers, mean, everything)),
        rows=used,
        n_total=total,
        halves=halves,
    )


def check_range(k_min: int, k_max: int | None, n: int) -> int:
    """The largest number of clusters to try, by default that for n rows; refuse a range that n rows do not allow."""
    if k_min < 1:
        raise ValueError(f"k_min={k_min} is not allowed: the smallest number of clusters must be at least 1.")
    if k_max is not None and k_max < max(k_min, 2):
        less = f"less than k_min={k_min}: give a larger one, or a smaller k_min" if k_max < k_min else "not a choice"
        raise ValueError(f"k_max={k_max} is {less}.")
    for name, k in (("k_min", max(k_min, 2)), ("k_max", k_max or 0)):
        if k > n // 2:
            raise ValueError(
                f"{name}={k} is too large for {n} rows with entries above zero: each half of them is clustered, so at "
                f"most {n // 2} clusters are possible."
            )
    return k_max or max(min(n // ROWS_PER_CLUSTER, MOST_CLUSTERS), k_min, 2)


def standings(curve: FloatArray, others: Sequence[FloatArray]) -> FloatArray:
    """How far a curve stands out from the others, in their standard deviations, where it does so most; then each other.

    Each is compared with all but itself, so without structure their order is random. → (1 + others,)
    """
    curves = np.array([curve, *others])
    found = []
    for i, own in enumerate(curves):
        rest = np.delete(curves, i, axis=0)
        found.append(float(((own - rest.mean(axis=0)) / np.maximum(rest.std(axis=0), SPREAD)).max()))
    return np.array(found)


def count_as_good(curve: FloatArray, others: Sequence[FloatArray]) -> int:
    """How many curves of counts without structure stand out as much as the one of the data."""
    own, *rest = standings(curve, others) if others else [np.inf]
    return int(np.count_nonzero(np.array(rest) >= own))


def undecided(curve: FloatArray, others: Sequence[FloatArray]) -> bool:
    """Whether the first draws settle nothing: the data stand out from all of them, but not clearly."""
    return bool(others) and count_as_good(curve, others) == 0 and standings(curve, others)[0] < CLEAR


class _Chains:
    """Chains of clusterings in threads, one for each sample. The answer does not depend on the number of threads."""

    def __init__(self, model: ONMF, numbers: list[int], n_threads: int | None, tell: Callable[[float], None]) -> None:
        self.model, self.numbers, self.tell = model, numbers, tell
        self.pool = ThreadPoolExecutor(n_threads or available_cores())
        self.done = self.planned = 0
        self.share = 0.0

    def __enter__(self) -> _Chains:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)  # after an interrupt, start no more
        if error[0] is None:
            self.tell(1.0)

    def run(self, samples: list[Sample]) -> list[Array]:
        """The clusters that the rows inside of each sample find. → for each sample, (numbers, n)"""
        self.planned += len(samples)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a half may lack a group, or need more iterations
            pending = [self.pool.submit(chain, self.model, *each, self.numbers) for each in samples]
            for each in pending:
                found.append(each.result())
                self.done += 1
                self.share = max(self.share, self.done / (self.planned + 1))
                self.tell(self.share)
        return found


def _levels(chosen: dict[str, int], numbers: list[int], agreement: FloatArray, labels: Array) -> Iterator[Level]:
    """The levels with these numbers of clusters, from the clusters of all rows for each number."""
    above = np.zeros(labels.shape[1], dtype=np.int16)
    for name, k in chosen.items():
        own = labels[numbers.index(k)]
        table = np.zeros((k, int(above.max()) + 1))
        np.add.at(table, (own, above), 1)
        yield Level(name, k, float(agreement[numbers.index(k)]), own, table.argmax(axis=1))
        above = own


def _check(X: Any, divergence: Divergence, groups: Any) -> tuple[Matrix, Array | None]:
    """The rows, and the groups if there are several."""
    rows = check_data(X, divergence)
    values = rows.data if issparse(rows) else rows
    require(  # clusters are merged as counts are
        values.min(initial=0) >= 0,
        "X has negative entries, so the number of clusters cannot be chosen: give a number, or shift the data.",
    )
    check_kind(rows, KullbackLeibler())
    check_entries(rows, KullbackLeibler())
    if groups is None:
        return rows, None
    known = check_groups(groups, relative=True)
    known.check_length(rows.shape[0])
    return rows, known.codes if len(known) > 1 else None


def _some(rows: Matrix, n_rows: int | None, rng: np.random.Generator) -> Array:
    """The places of some rows, at random, of those that are not zero everywhere."""
    filled = np.flatnonzero(np.asarray(rows.sum(axis=1, dtype=np.float64)).ravel())
    if n_rows is None:
        entries = (rows.nnz if issparse(rows) else rows.size) / max(rows.shape[0], 1)
        n_rows = int(np.clip(ENTRIES / max(entries, 1.0), FEWEST_ROWS, MOST_ROWS))
    return np.sort(rng.permutation(filled)[:n_rows])


def _filled(rows: Matrix, codes: Array | None, least: int) -> tuple[Matrix, Array | None]:
    """The rows that are not zero everywhere, and their groups; all rows if less than ``least`` were left."""
    filled = np.flatnonzero(np.asarray(rows.sum(axis=1, dtype=np.float64)).ravel())
    if len(filled) < least:
        return rows, codes
    return rows[filled], None if codes is None else codes[filled]


def _halves(rows: Matrix, codes: Array | None, rng: np.random.Generator) -> tuple[Sample, Sample]:
    """Halve the rows at random."""
    inside = rng.permutation(rows.shape[0]) % 2 == 0
    return Sample(rows, codes, inside), Sample(rows, codes, ~inside)


def _in_pairs(found: list[Array]) -> list[Array]:
    """What two halves found, together. → for each pair, (2, numbers, n)"""
    return [np.stack(found[i : i + 2]) for i in range(0, len(found), 2)]


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
