"""Assign new cells to the clusters of a model. Genes are matched by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import to_host
from onmf.confidence import calibration_of, log_chances
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF

from .genes import as_csr
from .kind import is_cells
from .read import Cells
from .views import transform

SHOWN = 5
"""Number of missing genes that are named."""


@dataclass(frozen=True)
class CellAssignment:
    """Clusters of new cells.

    Attributes
    ----------
    labels, runners_up : ndarray of shape (n_cells,)
        The cluster of each cell, and the best other one; -1 for a cell without a count of the model's genes.
    confidence, margins : ndarray of shape (n_cells,)
        How sure the cluster is, from 0 to 1, and how much worse the runner-up is, per count; NaN without a cluster.
    names : list of str
        Names of the clusters.
    missing : list of str
        Genes of the model that the new cells do not have.
    notes : list of str
        Things to know.
    """

    labels: Array
    runners_up: Array
    confidence: FloatArray
    margins: FloatArray
    names: list[str]
    missing: list[str]
    notes: list[str]


def predict_cells(model: ONMF, cells: Cells) -> CellAssignment:
    """Assign new cells to the clusters of a model that ``onmf cells`` has saved.

    Parameters
    ----------
    model : ONMF
        The model, as :func:`onmf.load` reads it.
    cells : Cells
        New cells, from :func:`read_cells`. Genes are matched by name; those that are missing count as 0.

    Returns
    -------
    CellAssignment
    """
    parts = getattr(model, "extra_", {})
    if not is_cells(parts):
        raise ValueError("This model is of no cells: fit one with 'onmf cells'.")
    calibration = calibration_of(parts, len(parts["names"]))
    assert calibration is not None, "required by the rules of the kind"
    columns, missing = match_genes(parts, cells)
    present = np.flatnonzero(columns >= 0)
    n, p = cells.X.shape[0], len(columns)
    notes = []
    if missing:
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        notes.append(
            f"{len(missing):,} of the model's {p:,} genes are missing and count as 0: "
            f"{', '.join(missing[:SHOWN])}{more}."
        )
    if 2 * len(missing) > p:
        notes.append(
            f"Most genes of the model are missing, so the clusters say little. The file names its genes "
            f"{', '.join(cells.genes[:3])}: are the species and the kind of name those of the model?"
        )
    labels, following = np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    sure, margins = np.full(n, np.nan), np.full(n, np.nan)
    start = 0
    for batch in as_csr(cells.X):
        counts = csr_array(batch[:, columns[present]])
        wide = csr_array((counts.data, present[counts.indices], counts.indptr), shape=(batch.shape[0], p))
        rows = np.flatnonzero(wide.sum(axis=1) > 0)
        if len(rows):
            values = transform(parts["view"], csr_array(wide[rows]))
            assigned = model.assign(values)
            own, at = to_host(assigned.labels), start + rows
            labels[at], margins[at] = own, to_host(assigned.margins)
            sure[at], following[at] = calibration.apply(log_chances(model, values), own)
        start += batch.shape[0]
    empty = int(np.count_nonzero(labels < 0))
    if empty:
        notes.append(f"{empty:,} of {n:,} cells have no count of the model's genes, and no cluster.")
    return CellAssignment(labels, following, sure, margins, list(parts["names"]), missing, notes)


def match_genes(parts: dict[str, Any], cells: Cells) -> tuple[Array, list[str]]:
    """The column of each gene of a model in new cells, -1 if it is missing; and the names of the missing ones.

    Names are compared with names, symbols with symbols, and each with the other, and the best match is taken.
    """
    genes, symbols = parts["genes"], parts.get("symbols") or parts["genes"]
    theirs = [names for names in (cells.genes, cells.symbols, cells.ids) if names is not None]
    best = np.full(len(genes), -1, dtype=np.int64)
    for ours in (genes, symbols):
        for names in theirs:
            place = {name: i for i, name in reversed(list(enumerate(names)))}  # the first of equal names
            columns = np.array([place.get(name, -1) for name in ours], dtype=np.int64)
            if np.count_nonzero(columns >= 0) > np.count_nonzero(best >= 0):
                best = columns
    if not (best >= 0).any():
        raise ValueError(
            f"{cells.source or 'The new data'} has none of the model's {len(genes):,} genes. The model knows "
            f"{', '.join(symbols[:3])}; the file has {', '.join(cells.genes[:3])}. Name the genes in the same way."
        )
    return best, [symbols[i] for i in np.flatnonzero(best < 0)]
