"""Reads counts of cells from the formats of the field."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Cells:
    """Counts of cells, as read from a file.

    Attributes
    ----------
    X : array or sparse array of shape (n_cells, n_genes)
        The counts: in memory, or lazy (``shape``, ``dtype``, and slices of rows) if the file is large.
    barcodes, genes : list of str
        Names of rows and columns, unique.
    classes : list or None
        Known class of each cell (None where unknown), if asked for.
    source : str
        The file.
    place : str
        Where in the file the counts are: ``X``, ``layers/counts``, ``raw/X`` and so on.
    notes : list of str
        What was guessed or changed: orientation, names that were missing or made unique.
    """

    X: Any
    barcodes: list[str]
    genes: list[str]
    classes: list[str | None] | None = None
    source: str = ""
    place: str = "X"
    notes: list[str] = field(default_factory=list)


def read_cells(path: str | Path, *, layer: str | None = None, labels: str | None = None) -> Cells:
    """Read counts of cells from a file or folder."""
    raise NotImplementedError
