"""Whether cells or genes are in the rows of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log

from .names import gene_share
from .wording import setting

CELLS, GENES = "cells-in-rows", "genes-in-rows"

DIFFERENCE = 0.2
"""Difference between the names of rows and of columns that is enough to tell which are genes."""

USUAL = 20_000
"""Usual number of genes of a genome."""

GENE_CORNER = re.compile(r"gene|symbol|feature|ensembl|transcript|hgnc|mgi|geo", re.IGNORECASE)
CELL_CORNER = re.compile(r"cell|barcode|sample|well|spot|nucle", re.IGNORECASE)


def check_orientation(orientation: str | None) -> str | None:
    """Return the orientation if it is one; refuse anything else."""
    if orientation not in (None, CELLS, GENES):
        raise ValueError(f"The orientation {orientation!r} is unknown: use {CELLS!r} or {GENES!r}.")
    return orientation


def guess(rows: Sequence[str], columns: Sequence[str], corner: str = "") -> tuple[str, str]:
    """Guess the orientation of a table.

    Parameters
    ----------
    rows, columns : sequence of str
        Names of the rows and of the columns; empty names if there are none.
    corner : str
        Name of the column of names.

    Returns
    -------
    orientation : {"cells-in-rows", "genes-in-rows"}
    note : str
        The guess and its reason.
    """
    difference = gene_share(rows) - gene_share(columns)
    if abs(difference) > DIFFERENCE:
        kind, reason = (GENES if difference > 0 else CELLS), "by their names"
    elif GENE_CORNER.search(corner):
        kind, reason = GENES, f"because the first column is called {corner[:60]!r}"
    elif CELL_CORNER.search(corner):
        kind, reason = CELLS, f"because the first column is called {corner[:60]!r}"
    else:
        n, p = (abs(log(max(len(names), 1) / USUAL)) for names in (rows, columns))
        kind, reason = (GENES if n < p else CELLS), "by their number only"
    in_rows, in_columns = ("genes", "cells") if kind == GENES else ("cells", "genes")
    return kind, (
        f"The {len(rows):,} rows of the table are taken as {in_rows} and its {len(columns):,} columns as {in_columns}, "
        f"{reason}. {if_wrong(kind)}"
    )


def if_wrong(kind: str) -> str:
    """Say how to set the other orientation."""
    return f"If this is wrong, set {setting('orientation', CELLS if kind == GENES else GENES)}."


def notes_if_transposed(barcodes: Sequence[str], genes: Sequence[str]) -> list[str]:
    """Return a note if the cells are called like genes and the genes like cells, in a format that fixes the rows."""
    if gene_share(barcodes) <= DIFFERENCE or gene_share(genes) >= -DIFFERENCE:
        return []
    return [
        f"The cells are called {', '.join(barcodes[:3])} and the genes {', '.join(genes[:3])}: the counts may be "
        "transposed. Cells must be in rows; adata.T turns an AnnData object."
    ]
