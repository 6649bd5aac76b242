"""Marker genes: those that cells of a cluster have more of than other cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from onmf.divergence import Array, FloatArray, divide
from onmf.naming import distinct

from .anndata import cells_of, scanpy_markers
from .genes import as_csr, check_number
from .result import Markers
from .views import logarithms

N_MARKERS = 100
"""Number of marker genes of each cluster."""

LEAST = 1e-9
"""Added to mean expressions before the logarithm of their ratio, as scanpy does."""

LARGEST = 1e3
"""Effect of a gene that does not vary within the groups."""


@dataclass(frozen=True)
class Profiles:
    """Sums over the cells of each cluster, all of shape (k, p) but the first.

    Attributes
    ----------
    cells : ndarray of shape (k,)
        Number of cells.
    counts : ndarray
        Sums of the counts.
    logs, squares : ndarray
        Sums of the normalised logarithms, and of their squares.
    present : ndarray
        Number of cells that have the gene.
    """

    cells: FloatArray
    counts: FloatArray
    logs: FloatArray
    squares: FloatArray
    present: FloatArray


def profiles_of(X: Any, labels: Array, k: int) -> Profiles:
    """Sum the counts by cluster, in one pass over batches of rows; cells of label -1 are left out."""
    p = X.shape[1]
    sums = [np.zeros((k, p)) for _ in range(4)]
    start = 0
    for batch in as_csr(X):
        own = labels[start : start + batch.shape[0]]
        start += batch.shape[0]
        inside = np.flatnonzero(own >= 0)
        members = csr_array((np.ones(len(inside)), (own[inside], inside)), shape=(k, batch.shape[0]))
        x, logs = batch.data.astype(np.float64), logarithms(batch)
        for total, values in zip(sums, (x, logs, logs * logs, np.ones_like(x)), strict=True):
            total += (members @ csr_array((values, batch.indices, batch.indptr), shape=batch.shape)).toarray()
    cells = np.bincount(labels[labels >= 0], minlength=k).astype(np.float64)
    return Profiles(cells, *sums)


def markers_of(profiles: Profiles, n_markers: int = N_MARKERS) -> Markers:
    """The genes of the largest effect in each cluster: how many standard deviations the mean logarithms lie apart."""
    check_number("n_markers", n_markers, "genes")
    n = profiles.cells.sum()
    cells, others = profiles.cells[:, None], n - profiles.cells[:, None]

    def compare(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means inside each cluster and outside. Without cells on one side, nothing differs from the other side."""
        total = sums.sum(axis=0)
        inside, outside = divide(sums, cells), divide(total - sums, others)
        return np.where(cells > 0, inside, outside), np.where(others > 0, outside, inside)

    inside, outside = compare(profiles.logs)
    squares, squares_outside = compare(profiles.squares)
    variance = np.maximum(squares - inside**2, 0.0) * divide(cells, np.maximum(cells - 1, 1))
    variance_outside = np.maximum(squares_outside - outside**2, 0.0) * divide(others, np.maximum(others - 1, 1))
    gap = inside - outside
    spread = np.sqrt((variance + variance_outside) / 2)
    effect = np.clip(np.where(spread > 0, divide(gap, spread), LARGEST * np.sign(gap)), -LARGEST, LARGEST)
    p_values = _welch(gap, divide(variance, cells), divide(variance_outside, others), profiles.cells, n)
    adjusted = np.stack([false_discovery_control(row) for row in p_values])
    change = np.log2((np.expm1(inside) + LEAST) / (np.expm1(outside) + LEAST))
    columns = np.argsort(-effect, axis=1, kind="stable")[:, : int(n_markers)]
    shown = (effect, change, *compare(profiles.present), p_values, adjusted)
    return Markers(columns, *(np.take_along_axis(values, columns, axis=1) for values in shown))


def _welch(gap: FloatArray, a: FloatArray, b: FloatArray, cells: FloatArray, n: float) -> FloatArray:
    """p-values of Welch's test, from the difference of two means and the squares of their standard errors."""
    degrees = divide(
        (a + b) ** 2,
        divide(a**2, np.maximum(cells - 1, 1)[:, None]) + divide(b**2, np.maximum(n - cells - 1, 1)[:, None]),
    )
    t = divide(np.abs(gap), np.sqrt(a + b))
    tested = (degrees > 0) & (t > 0)
    return np.where(tested, np.minimum(2 * student.sf(t, np.maximum(degrees, 1e-3)), 1.0), 1.0)


def names_of(found: Markers, gene_names: Sequence[str], genes: int = 2) -> list[str]:
    """A short name of each cluster: its best marker genes; its number if it has none. All names differ."""
    names = []
    for number, (columns, scores) in enumerate(zip(found.genes, found.scores, strict=True)):
        best = [str(gene_names[j]) for j, score in zip(columns[:genes], scores[:genes], strict=True) if score > 0]
        names.append(" ".join(best) or f"cluster {number}")
    return distinct(names)


def markers(adata: Any, groupby: str = "onmf", *, layer: str | None = None, n_markers: int = N_MARKERS) -> Any:
    """Find the marker genes of groups of cells, and write them where scanpy looks for them.

    A gene is ranked by its effect: the difference between the mean normalised logarithms of its counts, inside the
    group and outside, in standard deviations. Groups that were computed from the same counts differ by construction:
    p-values (of Welch's test) order genes, and are no evidence that the groups exist.

    Parameters
    ----------
    adata : AnnData
        Cells × genes, with counts. Results are written to ``adata.uns[groupby + "_markers"]``, in the form of
        ``scanpy.tl.rank_genes_groups``: ``scanpy.get.rank_genes_groups_df(adata, None, key="onmf_markers")``.
    groupby : str, default="onmf"
        Column of ``adata.obs`` with the groups. Cells without one are left out.
    layer : str, optional
        Layer with the counts; by default ``adata.X``.
    n_markers : int, default=100
        Number of genes of each group.

    Returns
    -------
    DataFrame
        A row for each group and gene: ``group``, ``gene``, ``effect``, ``log2_fold_change``, ``share_inside``,
        ``share_outside``, ``p_value`` and ``p_adjusted``.
    """
    cells = cells_of(adata, layer)
    if groupby not in adata.obs:
        raise KeyError(f"adata.obs has no column {groupby!r}: there are {', '.join(adata.obs) or 'none'}.")
    groups = adata.obs[groupby].astype("category").cat
    categories = [str(category) for category in groups.categories]
    if len(categories) < 2:
        raise ValueError(f"adata.obs[{groupby!r}] has {len(categories)} group: markers tell groups apart.")
    found = markers_of(profiles_of(cells.X, np.asarray(groups.codes), len(categories)), n_markers)
    adata.uns[f"{groupby}_markers"] = scanpy_markers(found, cells.genes, categories, groupby, layer)
    return markers_frame(found, cells.genes, categories)


def markers_frame(found: Markers, gene_names: Sequence[str], groups: Sequence[str]) -> Any:
    """Markers as a DataFrame."""
    import pandas as pd

    names = np.asarray(gene_names, dtype=object)
    return pd.DataFrame(
        {
            "group": np.repeat(np.asarray(groups, dtype=object), found.genes.shape[1]),
            "gene": names[found.genes.ravel()],
            "effect": found.scores.ravel(),
            "log2_fold_change": found.log_fold_changes.ravel(),
            "share_inside": found.share_inside.ravel(),
            "share_outside": found.share_outside.ravel(),
            "p_value": found.p_values.ravel(),
            "p_adjusted": found.adjusted.ravel(),
        }
    )
