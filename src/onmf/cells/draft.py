"""What a reader of one format finds: counts and names as they are in the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = Sequence[str | None]


def no_column(name: str) -> Values:
    """Refuse any column: the file has none."""
    raise KeyError(name)


@dataclass
class Draft:
    """Counts and names as they are in a file, before names are completed and classes are joined.

    Attributes
    ----------
    X : csr_array or OnDisk
        Cells × genes.
    barcodes, genes : sequence or None
        Names; None for a missing one, or if the file has none at all.
    place : str
        Where in the file the counts are.
    symbols, ids : sequence or None
        Symbols or identifiers of the genes that the file has besides their names.
    notes : list of str
        What was guessed or left out.
    columns : list of str
        Names of the columns that describe the cells.
    column : callable
        Reads one of these columns.
    """

    X: Any
    barcodes: Values | None
    genes: Values | None
    place: str
    symbols: Values | None = None
    ids: Values | None = None
    notes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    column: Callable[[str], Values] = no_column
