"""The paper's numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from onmf.datasets import list_datasets

LOSSES = {"F": "frobenius", "KL": "kullback-leibler"}
"""The paper's short names of the two algorithms, and the divergences they minimise."""

ALGORITHMS = {"F": "Fro-ONMF", "KL": "KL-ONMF"}
"""And their names in full."""

Progress = Callable[[str], None]
"""Told what is about to be worked on."""


def paper_tables() -> dict[str, Any]:
    """Every cell of the paper's two tables."""
    return json.loads(files("onmf.reproduce").joinpath("paper_tables.json").read_text())


def at_hand(kind: str | None, only: list[str] | None) -> tuple[list[str], list[str]]:
    """Names of the data sets of a kind that are on this machine, and of those that are not."""
    chosen = [info for info in list_datasets() if kind in (None, info.kind) and (not only or info.name in only)]
    return [info.name for info in chosen if info.available], [info.name for info in chosen if not info.available]


@dataclass(frozen=True)
class Cell:
    """One number of ours and, where there is one to compare with, the paper's.

    Two numbers agree if ours, rounded to the digits that the paper prints, is the paper's.
    """

    ours: float
    paper: float | None = None

    @property
    def digits(self) -> int:
        """Decimals that the paper prints."""
        return len(str(self.paper).partition(".")[2]) if isinstance(self.paper, float) else 0

    @property
    def agrees(self) -> bool | None:
        """Whether the two agree; None where there is nothing to compare with."""
        if self.paper is None:
            return None
        return f"{self.ours:.{self.digits}f}" == f"{self.paper:.{self.digits}f}"

    def record(self, name: str) -> dict[str, Any]:
        """Columns of a data file."""
        return {name: self.ours, f"{name}_paper": self.paper, f"{name}_agrees": self.agrees}

    def show(self, digits: int) -> str:
        """Ours, and a mark: ✓ for the paper's number too, ✗ and that number where it differs."""
        if self.paper is None:
            return f"{self.ours:.{digits}f}"
        mark = "✓" if self.agrees else f"✗ {self.paper:.{self.digits}f}"
        return f"{self.ours:.{self.digits}f} {mark}"


@dataclass(frozen=True)
class Table:
    """A table for people: a title, columns, rows of text, and what has to be said about it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]

    def to_markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines).replace(" ✓", "\u00a0✓")  # no break there
        return "\n\n".join([f"**{self.title}**", body, *self.notes]) + "\n"
