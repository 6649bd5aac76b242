"""Comparison of our numbers with the paper's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from onmf.datasets import list_datasets

LOSSES = {"F": "frobenius", "KL": "kullback-leibler"}
"""The divergence that each algorithm minimises, by the paper's short name of the algorithm."""

ALGORITHMS = {"F": "Fro-ONMF", "KL": "KL-ONMF"}
"""The full name of each algorithm."""

Progress = Callable[[str], None]
"""Called with the name of the data set that is about to be run."""


def paper_tables() -> dict[str, Any]:
    """Return every cell of the paper's two tables."""
    return json.loads(files("onmf.reproduce").joinpath("paper_tables.json").read_text(encoding="utf-8"))


def available_and_missing(kind: str | None, only: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the names of the paper's data sets of a kind that are on this machine, and of those that are not."""
    paper = [info for info in list_datasets() if info.in_paper]
    chosen = [info for info in paper if kind in (None, info.kind) and (not only or info.name in only)]
    return [info.name for info in chosen if info.available], [info.name for info in chosen if not info.available]


@dataclass(frozen=True)
class Cell:
    """One of our numbers and, if there is one, the paper's.

    They agree if ours equals the paper's after rounding to the digits that the paper prints.
    """

    ours: float
    paper: float | None = None

    @property
    def digits(self) -> int:
        """Number of decimals that the paper prints."""
        return len(str(self.paper).partition(".")[2]) if isinstance(self.paper, float) else 0

    @property
    def agrees(self) -> bool | None:
        """Whether the two numbers agree; None if the paper has no number."""
        if self.paper is None:
            return None
        return f"{self.ours:.{self.digits}f}" == f"{self.paper:.{self.digits}f}"

    def record(self, name: str) -> dict[str, Any]:
        """Return the cell as columns of a data file."""
        return {name: self.ours, f"{name}_paper": self.paper, f"{name}_agrees": self.agrees}

    def show(self, digits: int) -> str:
        """Format our number with a mark: ✓ if the paper's agrees, else ✗ and the paper's number."""
        if self.paper is None:
            return f"{self.ours:.{digits}f}"
        mark = "✓" if self.agrees else f"✗ {self.paper:.{self.digits}f}"
        return f"{self.ours:.{self.digits}f} {mark}"


@dataclass(frozen=True)
class Table:
    """A table for display: a title, columns, rows of text, and notes."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines).replace(
            " ✓", "\u00a0✓"
        )  # no line break before the mark
        return "\n\n".join([f"**{self.title}**", body, *self.notes]) + "\n"
