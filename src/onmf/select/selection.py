"""The criteria for each number of clusters, and the choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import entropy
from sklearn.metrics import adjusted_mutual_info_score

from onmf.divergence import Array, FloatArray


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


CRITERIA = ("information", "held-out", "stability", "bic")
"""Criteria that choose the number of clusters of counts."""

COLUMNS = {
    "information": "information",
    "stability": "stability",
    "held-out": "held_out",
    "objective": "objective",
    "bic": "bic",
}
"""Criteria, and the attributes of a selection that hold them."""

IMAGE_CRITERIA = ("objective", "information", "held-out", "stability")
"""Criteria that choose the number of clusters of an image."""

STEEP = 0.05
"""Fraction of the objective that a runner-up removes."""

APART = 1.25
"""Factor between runners-up: numbers that are closer are about the same choice."""

RUNNERS_UP = 3
"""Runners-up, at most."""


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
        names = [
            *("candidates", "information", "information_error", "held_out", "held_out_error"),
            *("stability", "objective", "bic"),
        ]
        rows = zip(*(getattr(self, name).tolist() for name in names), strict=True)
        keys = ("n_clusters", *names[1:])
        return [{key: _known(value) for key, value in zip(keys, row, strict=True)} for row in rows]

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
            cells = [_cell(float(getattr(self, COLUMNS[name])[i])) for name in shown]
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


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""
