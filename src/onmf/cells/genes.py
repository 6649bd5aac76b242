"""Which genes tell cells apart: the deviance of each gene from a constant share of the counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.datasets.pieces import ROWS
from onmf.divergence import Array, FloatArray, divide
from onmf.parameters import is_integer

from .anndata import cells_of
from .counts import check_counts
from .matrix import canonical

LARGEST_TABLE = 1 << 16
"""Functions of counts below this one are looked up in a table."""

N_TOP_GENES = 2_000
"""Number of genes that clusters are computed from."""


def deviant_genes(
    adata: Any, n_top_genes: int = N_TOP_GENES, *, layer: str | None = None, inplace: bool = True
) -> Array | None:
    """Choose the genes whose counts deviate most from a constant share of each cell's counts.

    With s_i the counts of cell i and r_j the share of gene j in all counts, a gene that tells nothing has s_i r_j
    counts in cell i. The deviance of a gene, 2 Σ_i x_ij log(x_ij / (s_i r_j)), is twice the Kullback–Leibler divergence
    from that.

    Parameters
    ----------
    adata : AnnData, array or sparse matrix
        Counts, cells × genes.
    n_top_genes : int, default=2000
        Number of genes.
    layer : str, optional
        Layer with the counts; by default ``adata.X``.
    inplace : bool, default=True
        Whether to write ``adata.var["deviance"]`` and ``adata.var["highly_deviant"]``, if ``adata`` is an AnnData
        object.

    Returns
    -------
    ndarray of int or None
        Columns of the genes, in their order; None if they were written to ``adata``.

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.cells import deviant_genes
    >>> deviant_genes(np.array([[5, 9, 0], [5, 0, 9], [5, 9, 1]]), 2)
    array([1, 2])
    """
    annotated = hasattr(adata, "obs") and hasattr(adata, "var")
    check_number("n_top_genes", n_top_genes, "genes")
    if annotated:
        X = cells_of(adata, layer).X
    else:
        X = adata if hasattr(adata, "shape") else np.asarray(adata)
        check_counts(X)
    values = deviance(X)
    columns = top_genes(values, n_top_genes)
    if not annotated or not inplace:
        return columns
    adata.var["deviance"] = values
    adata.var["highly_deviant"] = np.isin(np.arange(len(values)), columns)
    return None


def check_number(name: str, value: Any, what: str) -> None:
    """Refuse a parameter that is not a number of things, at least 1."""
    if not is_integer(value) or value < 1:
        raise ValueError(f"{name}={value!r} is not allowed: give a number of {what}, at least 1.")


def top_genes(values: FloatArray, n_top_genes: int) -> Array:
    """The columns of the largest values, in their order; ties go to the first columns. Zeros are left out."""
    columns = np.argsort(-values, kind="stable")[: int(n_top_genes)]
    return np.sort(columns[values[columns] > 0])


def deviance(X: Any, rows: int = ROWS) -> FloatArray:
    """The deviance of each column from a constant share of the rows' sums. → (p,)"""
    return deviances(X, [lambda counts: counts], rows)[0]


def deviances(X: Any, views: Sequence[Callable[[csr_array], csr_array]], rows: int = ROWS) -> list[FloatArray]:
    """The deviances of the columns in several views of a matrix, in one pass over batches of rows.

    Parameters
    ----------
    X : array or sparse array of shape (n, p), in memory, on disk or of Dask
        Counts.
    views : sequence of callables
        Each is applied to each batch of rows.
    rows : int, default=10000
        Rows of a batch.

    Returns
    -------
    list of ndarray of shape (p,)
    """
    sums = [np.zeros((3, X.shape[1])) for _ in views]
    for counts in as_csr(X, rows):
        for view, (entropies, shares, totals) in zip(views, sums, strict=True):
            batch = view(counts)
            depths = batch.sum(axis=1, dtype=np.float64)
            entropies += by_column(batch, _entropy(batch.data))
            # A product, since SciPy's sum of integers can overflow
            both = batch.T @ np.stack([np.log(np.maximum(depths, 1e-300)), np.ones(batch.shape[0])], axis=1)
            shares += both[:, 0]
            totals += both[:, 1]
    return [_deviance(*each) for each in sums]


def _deviance(entropies: FloatArray, shares: FloatArray, totals: FloatArray) -> FloatArray:
    """The deviance from sums over the rows: Σ x log x, Σ x log s and Σ x."""
    expected = totals * np.log(np.maximum(divide(totals, np.asarray(totals.sum())), 1e-300))
    # A column with a constant share has deviance 0, up to rounding errors of its terms.
    found = 2 * (entropies - shares - expected)
    return np.where(found > 1e-12 * (np.abs(entropies) + np.abs(shares) + np.abs(expected)), found, 0.0)


def _entropy(x: Array) -> FloatArray:
    """The product x log x."""
    return looked_up(lambda t: t * np.log(np.maximum(t, 1e-300)), x)


def looked_up(function: Callable[[FloatArray], FloatArray], x: Array) -> FloatArray:
    """A function of numbers ≥ 0, from a table if they are small and whole, as counts are."""
    if len(x) and x.max() < LARGEST_TABLE:
        places = x if x.dtype.kind in "iu" else x.astype(np.int32)
        if places is x or (places == x).all():
            return function(np.arange(int(places.max()) + 1, dtype=np.float64))[places]
    return function(x.astype(np.float64))


def as_csr(X: Any, rows: int = ROWS) -> Iterator[csr_array]:
    """Yield a matrix in memory, on disk or of Dask in batches of rows, as canonical CSR."""
    for start in range(0, X.shape[0], rows):
        yield canonical(X[start : start + rows])


def by_column(batch: csr_array, values: FloatArray) -> FloatArray:
    """Sum values, one for each entry of a sparse matrix, by column."""
    sums: FloatArray = np.bincount(batch.indices, weights=values, minlength=batch.shape[1]).astype(np.float64)
    return sums


def columns_of(X: Any, columns: Array, rows: int = ROWS) -> csr_array:
    """Some columns of a matrix, in memory."""
    if issparse(X):
        return csr_array(canonical(X)[:, columns])
    return csr_array(vstack([batch[:, columns] for batch in as_csr(X, rows)], format="csr"))
