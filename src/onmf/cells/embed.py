"""A map of cells in the plane, for people to look at. Clusters are never computed from it.

Counts → Pearson residuals → principal components → t-SNE. For a cell with s counts and a gene with the share q of all
counts, μ = s q counts are expected, and the residual of the count x is (x − μ) / √(μ + μ²/θ), clipped at ±√n
(Lause, Berens and Kobak, Genome Biology 2021). Residuals are dense, so they are computed in blocks of rows and dropped.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import eigsh
from threadpoolctl import threadpool_limits

from onmf.backend.threads import available_cores
from onmf.divergence import Array, FloatArray, divide
from onmf.door.settle import take_rows
from onmf.naming import so_many
from onmf.plot import Progress, place_rows

from .matrix import canonical

OVERDISPERSION = 100.0  # θ of the residuals: counts that are nearly Poisson, as molecules counted one by one are
COMPONENTS = 50  # principal components from which the map is made
DENSE = 4  # times as many genes and cells as components, below which all eigenvectors are computed
MOST_GENES = 3000  # genes of which a covariance matrix is made, those with the most variable residuals
MOST_CELLS = 100_000  # cells on a map; more cannot be told apart on a screen
BLOCK = 1 << 22  # residuals to compute at a time


Shares = tuple[Array, FloatArray]  # The group of each cell, and the share of each gene in the counts of each group


def map_of_cells(
    X: Any,
    *,
    groups: Shares | None = None,
    quick: bool = False,
    seed: int = 0,
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[FloatArray, str]:
    """Place cells in the plane so that cells with similar counts are close.

    The map is a t-SNE, made by openTSNE, of the first 50 principal components of Pearson residuals, and starts from
    the first two of them. It keeps neighbourhoods; distances between groups, and their sizes, mean little.

    Parameters
    ----------
    X : array or sparse array of shape (n_cells, n_genes)
        Counts, in memory. If there are more than 3,000 genes, those with the most variable residuals are used.
    groups : tuple of (n_cells,) array of int and (groups, n_genes) array, optional
        The group of each cell, and the share of each gene in the counts that are expected of each group. Residuals are
        from these, so that the map does not follow the groups.
    quick : bool, default=False
        Whether t-SNE places a random choice of the cells only, at most 1,500, and the others stand beside their nearest
        neighbours among these.
    seed : int, default=0
        The same seed, number of threads and machine give the same map.
    n_threads : int, optional
        Threads; by default all cores.
    progress : callable, optional
        Called with the name of the step and the share of it that is done.

    Returns
    -------
    embedding : ndarray of shape (n_cells, 2)
        The map. NaN for cells without a count, and, if there are more than 100,000 cells, for all but a random choice.
    method : str
        How the map was made, for people to read.

    Examples
    --------
    >>> from onmf.cells.embed import map_of_cells
    >>> embedding, method = map_of_cells([[3, 0, 1], [2, 0, 1], [0, 4, 1], [0, 5, 1]])
    >>> embedding.shape
    (4, 2)
    >>> method
    'the first two principal components of the Pearson residuals of 3 genes'
    """
    report = progress or (lambda name, share: None)
    counts = canonical(X if issparse(X) else np.asarray(X))
    if counts.data.size and (not np.isfinite(counts.data).all() or counts.data.min() < 0):
        raise ValueError("X has negative, infinite or missing values: a map of cells is made from counts.")
    n = counts.shape[0]
    rows = np.flatnonzero(counts.sum(axis=1) > 0)
    if len(rows) > MOST_CELLS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_CELLS, replace=False))
    embedding, cores = np.full((n, 2), np.nan), n_threads or available_cores()
    drawn = take_rows(counts, rows)
    own = None if groups is None else (groups[0][rows], groups[1])
    with threadpool_limits(cores):
        if drawn.shape[1] > MOST_GENES:
            some = variable_genes(drawn, report, own)
            drawn, own = drawn[:, some], None if own is None else (own[0], own[1][:, some])
        components = residual_components(drawn, report, groups=own)
    source = f"principal components of the Pearson residuals of {so_many(drawn.shape[1], 'gene')}"
    source += f" in {len(rows):,} cells chosen at random" if len(rows) == MOST_CELLS < n else ""
    embedding[rows], method = place_rows(
        components, source, quick=quick, seed=seed, n_threads=cores, progress=report, extra="cells"
    )
    return embedding, method


def residual_components(
    X: csr_array, report: Progress, components: int = COMPONENTS, groups: Shares | None = None
) -> FloatArray:
    """The principal components of the Pearson residuals, cells × components.

    They are exact: the covariance of the genes is summed over blocks of rows, and its leading eigenvectors multiply the
    residuals, which are computed a second time. The sign of each component makes its largest weight positive.
    """
    n, p = X.shape
    covariance, total = np.zeros((p, p)), np.zeros(p)
    for start, residuals in _residuals(X, groups):
        covariance += residuals.T @ residuals
        total += residuals.sum(axis=0, dtype=np.float64)
        report("principal components", start / max(n, 1) / 2)
    centre = total / max(n, 1)
    covariance -= n * np.outer(centre, centre)
    kept = min(components, p, n)
    if min(n, p) < DENSE * kept:
        vectors = eigh(covariance, subset_by_index=(p - kept, p - 1))[1][:, ::-1]
    else:  # as exact, in a quarter of the time for 2,000 genes
        vectors = eigsh(covariance, kept, v0=np.ones(p))[1][:, ::-1]
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(kept)] < 0, -1.0, 1.0)
    out = np.empty((n, kept))
    for start, residuals in _residuals(X, groups):
        out[start : start + len(residuals)] = residuals @ vectors.astype(np.float32) - centre @ vectors
        report("principal components", 0.5 + start / max(n, 1) / 2)
    return out


def variable_genes(X: csr_array, report: Progress, groups: Shares | None = None) -> Array:
    """The columns whose Pearson residuals have the largest variance, in their order; ``MOST_GENES`` at most."""
    n, p = X.shape
    total, squares = np.zeros(p), np.zeros(p)
    for start, residuals in _residuals(X, groups):
        total += residuals.sum(axis=0, dtype=np.float64)
        squares += np.einsum("ij,ij->j", residuals, residuals, dtype=np.float64)
        report("choosing genes for the map", start / n)
    return np.sort(np.argsort(total**2 / max(n, 1) - squares, kind="stable")[:MOST_GENES])


def _residuals(X: csr_array, groups: Shares | None = None) -> Iterator[tuple[int, Array]]:
    """Yield the residuals in blocks of rows, with the first row of each. → float32 (rows, genes)"""
    n, p = X.shape
    sums = X.sum(axis=1, dtype=np.float64)
    codes, parts = groups or (np.zeros(n, dtype=np.int64), X.sum(axis=0, dtype=np.float64)[None])
    shares = divide(parts, parts.sum(axis=1, keepdims=True)).astype(np.float32)
    limit, step = np.float32(np.sqrt(n)), max(1, BLOCK // max(p, 1))
    for start in range(0, n, step):
        expected = sums[start : start + step, None].astype(np.float32) * shares[codes[start : start + step]]
        block = X[start : start + step].astype(np.float32).toarray()
        block -= expected
        spread = np.sqrt(expected * (1 + expected / np.float32(OVERDISPERSION)))
        np.divide(block, spread, out=block, where=spread > 0)
        yield start, np.clip(block, -limit, limit, out=block)
