"""What was found when numbers of clusters were tried: the curve, its levels, and whether there are clusters at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.naming import so_many
from onmf.plot import plot_selection

from .halves import Halves

NAMES = ("coarse", "medium", "fine")  # Levels, from few clusters to many
AUTO = ("auto", *NAMES)  # What may stand for a number of clusters; "auto" is the medium level


class Level(NamedTuple):
    """A number of clusters at which two halves of the rows agree well.

    Attributes
    ----------
    name : str
        "coarse", "medium" or "fine".
    n_clusters : int
        The number of clusters.
    agreement : float
        How well two halves agree on them.
    labels : (n_rows,) array of int
        The cluster of each row that was used, at this level.
    parents : (n_clusters,) array of int
        The cluster of the next coarser level with most of the rows of each cluster; all 0 for the coarsest level.
    """

    name: str
    n_clusters: int
    agreement: float
    labels: Array
    parents: Array


class Range(NamedTuple):
    """From which numbers to choose, and how often clusters may be found where there are none; None for the defaults."""

    k_min: int | None = None
    k_max: int | None = None
    false_alarms: float | None = None

    def check(self, n_clusters: int | str) -> None:
        """Refuse a number that is neither an integer nor the name of a level, and what else cannot be right."""
        if isinstance(n_clusters, str) and n_clusters not in AUTO:
            levels = ", ".join(map(repr, AUTO[:-1]))
            raise ValueError(f"n_clusters={n_clusters!r} is not allowed: give a number, {levels} or {AUTO[-1]!r}.")
        for name, value in self._asdict().items():
            if value is not None and n_clusters not in AUTO:
                raise ValueError(
                    f"{name}={value!r} is about choosing the number of clusters, but n_clusters={n_clusters} is given: "
                    f"use n_clusters='auto', or leave out {name}."
                )
        if self.false_alarms is not None and not 0 < self.false_alarms < 1:
            raise ValueError(f"false_alarms={self.false_alarms} is not allowed: it is a share between 0 and 1.")


@dataclass(frozen=True, eq=False)
class Selection:
    """How well halves of the rows agree for each number of clusters, and the levels that follow.

    Attributes
    ----------
    numbers : (m,) array of int
        Numbers of clusters that were tried, in rising order.
    agreement : (m,) array
        How well two halves agree: the adjusted mutual information of their clusters, 1 at most, 0 by chance.
    agreement_error : (m,) array
        Its standard error over the halvings; NaN if there is only one.
    chance : (m,) array
        The mean agreement on counts without structure of the same row and column sums; NaN if this was not asked.
    draws, as_good : int
        How often such counts were drawn, and how many of the draws agreed as well as the data.
    levels : tuple of Level
        From coarse to fine, at most three; none if the data show no clusters.
    rows : (n_rows,) array of int
        The rows that were used.
    n_total : int
        The number of rows that they were taken from.
    halves : Halves
        The clusters of each half.
    """

    numbers: Array
    agreement: FloatArray
    agreement_error: FloatArray
    chance: FloatArray
    draws: int
    as_good: int
    levels: tuple[Level, ...]
    rows: Array
    n_total: int
    halves: Halves

    @property
    def n_clusters(self) -> int:
        """The number of clusters: that of the medium level; 1 if there are no clusters."""
        return self.number_at("medium")

    @property
    def n_rows(self) -> int:
        """Number of rows that were used."""
        return len(self.rows)

    def number_at(self, level: str) -> int:
        """The number of clusters at a level, ``"coarse"``, ``"medium"``, ``"fine"`` or ``"auto"``, the medium one.

        With fewer than three levels, the nearest one stands for those that are missing.
        """
        if not self.levels:
            return 1
        own = {each.name: each.n_clusters for each in self.levels}
        name = "medium" if level == "auto" else level
        return own.get(name, self.levels[-1 if name == "fine" else 0].n_clusters)

    def finding(self, labels: Array, unions: Array) -> FloatArray:
        """In which share of the halves clusters are found again, among rows that the half did not see.

        A half finds a cluster if one of its own, for any number of clusters, has more than half of their union in
        common with it.

        Parameters
        ----------
        labels : (n_total,) array of int
            The cluster of each row; -1 for none.
        unions : (m, clusters) array of bool
            Which clusters belong to each of some unions; the unit matrix stands for the clusters themselves.

        Returns
        -------
        (m,) array
            NaN for unions without any of the rows that were used.
        """
        own = labels[self.rows]
        return self.halves.finding(np.asarray(unions, dtype=bool)[:, own] & (own >= 0))

    def table(self) -> list[dict[str, Any]]:
        """One row for each number of clusters, for ``pandas.DataFrame`` and the like; None where nothing is known."""
        level = {each.n_clusters: each.name for each in self.levels}
        columns = (self.agreement, self.agreement_error, self.chance)
        known = [[value if math.isfinite(value) else None for value in each.tolist()] for each in columns]
        keys = ("n_clusters", "agreement", "agreement_error", "chance", "level")
        numbers = self.numbers.tolist()
        rows = zip(numbers, *known, [level.get(k, "") for k in numbers], strict=True)
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def record(self) -> dict[str, Any]:
        """The levels and the table as JSON values."""
        levels = [
            {"name": each.name, "n_clusters": each.n_clusters, "agreement": each.agreement}
            | {"parents": each.parents.tolist()}
            for each in self.levels
        ]
        return {
            "n_clusters": self.n_clusters,
            "levels": levels,
            "draws_without_structure": self.draws,
            "as_good": self.as_good,
            "n_rows": self.n_rows,
            "tried": self.table(),
        }

    def also(self, n_clusters: int) -> str:
        """The other levels, such as ``also: 4 (coarse), 31 (fine)``; empty if there are none."""
        others = [f"{each.n_clusters} ({each.name})" for each in self.levels if each.n_clusters != n_clusters]
        return f"also: {', '.join(others)}" if others else ""

    def notes(self, rows: str = "rows", level: str = "auto") -> list[str]:
        """Sentences about the choice; ``rows`` is what the rows are, ``level`` the one that was asked for."""
        k = self.number_at(level)
        first, last = self.numbers[[0, -1]].tolist()
        some = f"{self.n_rows:,} of the {self.n_total:,} {rows}" if self.n_rows < self.n_total else f"the {rows}"
        if not self.levels:
            draws = f"{self.as_good} of {so_many(self.draws, 'draw')} of counts without structure"
            return [f"No clusters were found: halves of {some} agree no better than those of {draws}."]
        own = float(self.agreement[self.numbers == k][0])
        also = f"; {self.also(k)}" if len(self.levels) > 1 else ""
        notes = [f"{k} clusters were chosen of {first} to {last}: halves of {some} agree on them to {own:.2f}{also}."]
        if level not in ("auto", *(each.name for each in self.levels)):
            notes.append(f"There is no {level} level: the nearest one was taken.")
        if self.levels[-1].n_clusters == last:
            notes.append(f"Halves still agree at {last} clusters, the largest number that was tried: ask for more.")
        return notes

    def lines(self) -> list[str]:
        """The table for a terminal, with the levels marked."""
        known = bool(np.isfinite(self.chance).any())
        lines = ["clusters    agreement" + "   by chance" * known]
        for row in self.table():
            chance = f"{row['chance']:12.3f}" if known else ""
            lines.append(f"{row['n_clusters']:8}{row['agreement']:13.3f}{chance}  {row['level']}".rstrip())
        return lines

    def plot(self) -> Any:
        """Draw the agreement; see :func:`onmf.plot.plot_selection`."""
        return plot_selection(self)

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *self.notes()])
