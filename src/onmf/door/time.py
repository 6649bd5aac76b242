"""Clusters over time: how many rows each has in each day, week, month or year, and which features rose and fell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import false_discovery_control, norm

from onmf.divergence import Array, FloatArray, divide

from .settle import batches

if TYPE_CHECKING:
    from .clusters import Clusters
    from .write import Columns

FILES = ("clusters_over_time.csv", "features_over_time.csv")
FALSE = 0.01  # share of the features that are said to rise or fall, but changed by chance
TELLING = 20  # features that rose, and features that fell, in all rows and in each cluster
MONDAY = 4  # 1970-01-01, day 0, was a Thursday: day 4 was the first Monday


@dataclass(frozen=True)
class Change:
    """A feature whose share rose or fell from the earlier to the later half of the rows.

    Attributes
    ----------
    cluster : int or None
        Among the rows of this cluster, or among all rows.
    feature : str
        Its name.
    before, after : float
        Its counts in the two halves.
    share_before, share_after : float
        Its share of all counts of the half.
    z : float
        The difference of the shares in standard errors, between rows: below 0 if the feature fell.
    """

    cluster: int | None
    feature: str
    before: float
    after: float
    share_before: float
    share_after: float
    z: float


@dataclass(frozen=True, eq=False)
class OverTime:
    """Clusters over time. Only rows with a cluster and a date take part.

    Attributes
    ----------
    unit : {"day", "week", "month", "year", "decade"}
        What the time is divided into: it follows from its span.
    names : list of str
        The name of each bin, such as ``2024-03-01``, ``2024-W09`` (a week of ISO 8601), ``2024-03``, ``2024``,
        ``2020s``.
    counts : (numbers, bins) array of int
        Number of rows.
    bins : (n,) array of int
        The bin of each row, -1 for rows that take no part.
    later : str or None
        The first day of the later half of the rows; None if all have the same date.
    changes : list of Change
        Features that rose and fell, in all rows and in each cluster, the clearest first.
    """

    unit: str
    names: list[str]
    counts: Array
    bins: Array
    later: str | None
    changes: list[Change]


def clusters_over_time(clusters: Clusters) -> OverTime | None:
    """Count the rows of each cluster over time, and compare the halves; None if no row with a cluster has a date."""
    labels, dates = clusters.labels.ravel(), clusters.table.dates
    if dates is None:
        return None
    dates = np.asarray(dates).astype("datetime64[D]")
    known = (labels >= 0) & ~np.isnat(dates)
    if not known.any():
        return None
    unit, at, names = _bins(dates[known])
    counts = np.zeros((clusters.n_numbers, len(names)), dtype=np.int64)
    np.add.at(counts, (labels[known], at), 1)
    later, bins = _turn(dates[known]), np.full(len(labels), -1)
    bins[known] = at
    if later is None:
        return OverTime(unit, names, counts, bins, None, [])
    halves = np.where(known, dates >= later, -1).astype(np.int64)
    return OverTime(unit, names, counts, bins, str(later), list(_changes(clusters, halves)))


def _bins(dates: Array) -> tuple[str, Array, list[str]]:
    """The unit of time that suits some dates, the bin of each, and the names of the bins.

    The unit follows from the span of the dates, but for the first and the last hundredth: where these lie far away, as
    wrong dates do, they share a bin before the others and one after them. Dates that all are the first of a month, or
    of a year, may stand for the whole of it.
    """
    days, months = dates.astype(np.int64), dates.astype("datetime64[M]").astype(np.int64) + 12 * 1970
    whole_months = bool((dates == dates.astype("datetime64[M]")).all())
    whole_years = bool((dates == dates.astype("datetime64[Y]")).all())
    units: tuple[tuple[str, Array, Callable[[int], str], float], ...] = (
        ("day", days, lambda day: str(np.datetime64(day, "D")), 0 if whole_months else 45),
        ("week", (days - MONDAY) // 7, _week, 0 if whole_months else 60),
        ("month", months, lambda month: f"{month // 12}-{month % 12 + 1:02}", 0 if whole_years else 72),
        ("year", months // 12, str, 120),
        ("decade", months // 120, lambda decade: f"{10 * decade}s", np.inf),
    )
    far = len(dates) // 100
    unit, at, named, most = next(each for each in units if np.ptp(np.sort(each[1])[far : len(dates) - far]) < each[3])
    first, last = int(at.min()), int(at.max())
    if last - first < 2 * most:
        return unit, at - first, [named(number) for number in range(first, last + 1)]
    low, high = np.sort(at)[[far, len(dates) - far - 1]].tolist()
    before, after = first < low, last > high
    names = [named(number) for number in range(low, high + 1)]
    names = [f"before {names[0]}"] * before + names + [f"after {names[-1]}"] * after
    return unit, np.clip(at, low - before, high + after) - (low - before), names


def _week(week: int) -> str:
    year, number, _ = date.fromordinal(7 * week + MONDAY + date(1970, 1, 1).toordinal()).isocalendar()
    return f"{year}-W{number:02}"


def _turn(dates: Array) -> Any:
    """The day that divides some dates into halves of the most even sizes; None if there is only one day."""
    days, many = np.unique(dates, return_counts=True)
    if len(days) < 2:
        return None
    earlier = np.cumsum(many)[:-1]
    return days[1 + np.argmin(np.abs(2 * earlier - len(dates)))]


def _changes(clusters: Clusters, halves: Array) -> Iterator[Change]:
    """Yield the features that rose and fell, in all rows and then in each cluster; a row is in half 0, 1 or neither.

    With x the count of a feature in a row and l the sum of the row, the share of the feature in a half is p = Σx / Σl.
    Its variance is that between rows, Σ (x − p l)² / (Σl)², so that a feature that a single row repeats says little.
    """
    sums = _sums(clusters, halves, clusters.n_numbers)
    for cluster in (None, *clusters.numbers.tolist()):
        x, squares, products, lengths, lengths_squared = (
            each.sum(axis=1) if cluster is None else each[:, cluster] for each in sums
        )
        total = lengths[:, None]
        p = divide(x, total)
        variance = divide(np.maximum(squares - 2 * p * products + p**2 * lengths_squared[:, None], 0.0), total**2)
        z = divide(p[1] - p[0], np.sqrt(variance.sum(axis=0)))
        some = np.flatnonzero(x.sum(axis=0))
        chances = np.ones(len(z))
        chances[some] = false_discovery_control(2 * norm.sf(np.abs(z[some]))) if len(some) else 1.0
        for sign in (1, -1):
            order = np.argsort(-sign * z, kind="stable")[:TELLING]
            for j in order[(sign * z[order] > 0) & (chances[order] <= FALSE)].tolist():
                name = str(clusters.features[j])
                before, after = (int(each) if each.is_integer() else each for each in x[:, j].tolist())
                yield Change(cluster, name, before, after, float(p[0, j]), float(p[1, j]), float(z[j]))


def _sums(clusters: Clusters, halves: Array, k: int) -> tuple[FloatArray, ...]:
    """Σx, Σx², Σxl, Σl and Σl² of each half and cluster. → 3 × (2, k, features), 2 × (2, k)"""
    X, labels = clusters.table.X, clusters.labels.ravel()
    if hasattr(X, "block"):  # it has the rows that took part
        labels, halves = labels[clusters.templates >= 0], halves[clusters.templates >= 0]
    sums = [np.zeros((2 * k, X.shape[1])) for _ in range(3)]
    lengths = [np.zeros(2 * k) for _ in range(2)]
    for start, batch in batches(X):
        block = csr_array(batch).astype(np.float64)
        at = slice(start, start + block.shape[0])
        inside = np.flatnonzero(halves[at] >= 0)
        place = halves[at][inside] * k + labels[at][inside]
        size = np.asarray(block.sum(axis=1)).ravel()
        members = csr_array((np.ones(len(inside)), (place, inside)), shape=(2 * k, block.shape[0]))
        weighted = csr_array((size[inside], (place, inside)), shape=members.shape)
        for total, part in zip(sums, (members @ block, members @ block.power(2), weighted @ block), strict=True):
            total += part.toarray()
        for total, power in zip(lengths, (1, 2), strict=True):
            total += np.bincount(place, size[inside] ** power, minlength=2 * k)
    return *(each.reshape(2, k, -1) for each in sums), *(each.reshape(2, k) for each in lengths)


def over_time_table(clusters: Clusters) -> Columns:
    """A row for each bin and cluster: how many rows of the bin are in the cluster, and their share of the bin."""
    clusters = clusters.dense
    over = clusters.over_time
    assert over is not None
    shares = divide(over.counts.astype(np.float64), np.broadcast_to(over.counts.sum(axis=0), over.counts.shape))
    k, bins = over.counts.shape
    return {
        "bin": [name for name in over.names for _ in range(k)],
        "cluster": clusters.shown_numbers * bins,
        "name": clusters.names * bins,
        "count": over.counts.T.ravel().tolist(),
        "share": shares.T.ravel().round(6).tolist(),
    }


def changes_table(clusters: Clusters) -> Columns:
    """The features that rose and fell, in all rows (no cluster) and in each cluster."""
    clusters = clusters.dense
    over, shown = clusters.over_time, clusters.shown_numbers
    assert over is not None
    changes = over.changes
    return {
        "cluster": [None if each.cluster is None else shown[each.cluster] for each in changes],
        "name": [None if each.cluster is None else clusters.names[each.cluster] for each in changes],
        clusters.kind.feature: [each.feature for each in changes],
        "change": ["rose" if each.z > 0 else "fell" for each in changes],
        "before": [each.before for each in changes],
        "after": [each.after for each in changes],
        "share_before": [float(f"{each.share_before:.4g}") for each in changes],
        "share_after": [float(f"{each.share_after:.4g}") for each in changes],
        "z": [float(f"{each.z:.3g}") for each in changes],
    }
