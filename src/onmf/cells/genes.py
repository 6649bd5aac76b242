"""Genes: which of them tell cells apart, and which mark a cluster.

Genes are chosen by the deviance of their counts from a constant share of the counts of each cell. Marker genes are
those that the cells of a cluster have more of than other cells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from onmf.datasets.pieces import ROWS
from onmf.divergence import Array, FloatArray, divide
from onmf.estimator import is_integer
from onmf.functions import from_table, log, log1p, log_gamma, matrix_product, xlogy
from onmf.io.rules import require
from onmf.naming import distinct

from .anndata import cells_of, scanpy_markers
from .counts import check_counts
from .matrix import as_csr

N_TOP_GENES = 2_000  # number of genes that clusters are computed from
UNIT = 10_000.0  # counts to which every cell is scaled before the logarithm, as is usual for cells
STEPS = 4  # of one unit of the logarithm: rounded logarithms are whole numbers, with which local searches are fast
DISPERSIONS = (0.02, 0.126, 0.796, 5.02, 31.7, 200.0)  # θ of a gene, to try: the variance is μ + μ²/θ
DEPTHS = 16  # groups of cells of similar depth, in which the part of the likelihood that zeros have is computed once
NAMES = ("counts", "logs")  # the views
N_MARKERS = 100  # number of marker genes of each cluster
LEAST = 1e-9  # added to mean expressions before the logarithm of their ratio, as scanpy does
LARGEST = 1e3  # effect of a gene that does not vary within the groups


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
    check_numbers(n_top_genes=n_top_genes)
    annotated = hasattr(adata, "obs") and hasattr(adata, "var")
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


def check_numbers(**parameters: Any) -> None:
    """Refuse parameters that are not numbers of things, at least 1. The things are the last word of their name."""
    for name, value in parameters.items():
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name}={value!r} is not allowed: give a number of {name.split('_')[-1]}, at least 1.")


def top_genes(values: FloatArray, n_top_genes: int) -> Array:
    """The columns of the largest values, in their order; ties go to the first columns. Zeros are left out."""
    columns = np.argsort(-values, kind="stable")[: int(n_top_genes)]
    return np.sort(columns[values[columns] > 0])


def deviance(X: Any, rows: int = ROWS) -> FloatArray:
    """The deviance of each column from a constant share of the rows' sums. → (p,)"""
    return deviances(X, ["counts"], rows=rows)["counts"]


def deviances(
    X: Any, views: Iterable[str], keep: Array | None = None, *, groups: Array | None = None, rows: int = ROWS
) -> dict[str, FloatArray]:
    """The deviances of the columns in several views of the rows to keep, in one pass over batches. → for each, (p,)

    With the number of the group of each row to keep, they are from a constant share within each group: a gene that only
    tells groups apart has none.
    """
    number = 1 if groups is None else int(groups.max()) + 1
    sums = {view: np.zeros((2 + number, X.shape[1])) for view in views}
    done = 0
    for counts in as_csr(X, keep, rows):
        own = np.zeros(counts.shape[0], dtype=np.int64) if groups is None else groups[done : done + counts.shape[0]]
        done += counts.shape[0]
        for view, total in sums.items():
            batch = transform(view, counts)
            depths = batch.sum(axis=1, dtype=np.float64)
            total[0] += _by_column(batch, from_table(lambda x: xlogy(x, x), batch.data))
            # A product, since SciPy's sum of integers can overflow
            factors = np.column_stack([log(np.maximum(depths, 1e-300)), own[:, None] == np.arange(number)])
            total[1:] += (batch.T @ factors).T
    found = {}
    for view, (entropies, shares, *by_group) in sums.items():  # Σ x log x, Σ x log s, and Σ x in each group
        expected = np.sum([xlogy(each, divide(each, np.asarray(each.sum()))) for each in by_group], axis=0)
        values = 2 * (entropies - shares - expected)
        # A column with a constant share has deviance 0, up to rounding errors of its terms.
        least = 1e-12 * (np.abs(entropies) + np.abs(shares) + np.abs(expected))
        found[view] = np.where(values > least, values, 0.0)
    return found


def _by_column(batch: csr_array, values: FloatArray) -> FloatArray:
    """Sum values, one for each entry of a sparse matrix, by column."""
    return np.asarray(np.bincount(batch.indices, weights=values, minlength=batch.shape[1]), dtype=np.float64)


def transform(view: str, X: csr_array) -> csr_array:
    """The values of a view: the counts as they are, or their normalised logarithms."""
    if view == "counts":
        return X
    values = np.rint(STEPS * logarithms(X)).astype(np.int32)
    return csr_array((values, X.indices, X.indptr), shape=X.shape)


def logarithms(X: csr_array) -> FloatArray:
    """Normalised logarithms of the stored counts, log(1 + 10,000 x / s), with s the counts of the cell."""
    from onmf import kernels  # numba takes long to import, and most imports of onmf need no kernel

    logs = np.empty(len(X.data))
    kernels.scaled_logs(X.indptr, X.data, UNIT, logs)
    return logs


def log_likelihood(X: csr_array, labels: Array, k: int) -> float:
    """Mean log-likelihood of a cell's counts, if each gene is negative binomial within each cluster.

    The mean of gene j in cell i of cluster c is s_i C_cj, with s_i the counts of the cell. The dispersion of each gene
    is the one of :data:`DISPERSIONS` under which its counts are most likely. X has no zeros that are stored.
    """
    n, p = X.shape
    sums = X.sum(axis=1, dtype=np.float64)
    members = members_of(labels, k)
    shares = divide((members @ X).toarray().astype(np.float64), (members @ sums)[:, None])  # (k, p)
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    x, means = X.data.astype(np.float64), sums[rows] * shares[labels[rows], X.indices]
    constant = x * log(means) - from_table(lambda t: log_gamma(t + 1), X.data)
    # Mean depth, and number of cells, of groups of cells of each cluster: 2 × (k, groups)
    group = np.searchsorted(np.quantile(sums, np.linspace(0, 1, DEPTHS + 1)[1:-1]), sums) + DEPTHS * labels
    cells = np.bincount(group, minlength=k * DEPTHS).astype(np.float64).reshape(k, DEPTHS)
    depths = divide(np.bincount(group, sums, k * DEPTHS).astype(np.float64).reshape(k, DEPTHS), cells)
    best = np.full(p, -np.inf)
    for theta in DISPERSIONS:
        # log Γ(x + θ) / Γ(θ)
        gammas = from_table(lambda t, theta=theta: log_gamma(t + theta) - log_gamma(theta), X.data)  # type: ignore[misc]
        present = _by_column(X, constant + gammas - x * log(means + theta))
        # θ log(1 + μ/θ) for all entries; the mean in a group of cells is that of its mean depth
        zeros = (matrix_product(cells[[c]], log1p(np.outer(depths[c], shares[c]) / theta))[0] for c in range(k))
        best = np.maximum(best, present - theta * sum(zeros))
    return float(best.sum()) / max(n, 1)


def members_of(labels: Array, k: int) -> csr_array:
    """The matrix that adds the rows of each cluster; rows of label -1 are left out. → (k, rows)"""
    inside = np.flatnonzero(labels >= 0)
    return csr_array((np.ones(len(inside)), (labels[inside], inside)), shape=(k, len(labels)))


@dataclass(frozen=True)
class Markers:
    """Marker genes of each cluster, the best first. All arrays are clusters × genes shown.

    Attributes
    ----------
    genes : ndarray of int
        Columns of the counts.
    scores : ndarray
        Effect: the difference of the mean normalised logarithms, inside and outside, in standard deviations.
    log_fold_changes : ndarray
        Logarithm (base 2) of the ratio of the gene's mean normalised counts, inside and outside.
    share_inside, share_outside : ndarray
        Share of cells with at least one count of the gene, inside the cluster and outside.
    p_values, adjusted : ndarray
        Naive p-values of Welch's test on normalised logarithms, as they are and adjusted (Benjamini–Hochberg). They
        hold for groups that were known before. For clusters that the same counts made, they promise too much.
    """

    genes: Array
    scores: FloatArray
    log_fold_changes: FloatArray
    share_inside: FloatArray
    share_outside: FloatArray
    p_values: FloatArray
    adjusted: FloatArray

    def above_zero(self, gene_names: Sequence[str], most: int) -> list[list[str]]:
        """The names of the best genes of each cluster, if it has more of them than other cells."""
        best = zip(self.genes[:, :most], self.scores[:, :most] > 0, strict=True)
        return [[str(gene_names[j]) for j in genes[above]] for genes, above in best]

    def columns(self, gene_names: Sequence[str], most: int | None = None) -> dict[str, Array]:
        """The best genes of the clusters, one cluster after the other, as columns of a table."""
        columns = {
            "gene": np.asarray(gene_names, dtype=object)[self.genes],
            "effect": self.scores,
            "log2_fold_change": self.log_fold_changes,
            "share_inside": self.share_inside,
            "share_outside": self.share_outside,
            "p_naive": self.p_values,
            "p_naive_adjusted": self.adjusted,
        }
        return {name: values[:, :most].ravel() for name, values in columns.items()}


@dataclass(frozen=True)
class Profiles:
    """Sums over the genes of each cell, and over the cells of each cluster, these of shape (k, p) but for the first."""

    depths: FloatArray  # sum of the counts of each cell: (n,)
    genes_per_cell: Array  # and number of its genes
    cells: FloatArray  # number of cells: (k,)
    counts: FloatArray
    logs: FloatArray  # sums of the normalised logarithms
    squares: FloatArray  # and of their squares
    present: FloatArray  # number of cells that have the gene


BY_CLUSTER = ("cells", "counts", "logs", "squares", "present")  # attributes of profiles by cluster


def profiles_of(X: Any, labels: Array, k: int) -> Profiles:
    """Sum the counts, in one pass over batches of rows; cells of label -1 are in no cluster."""
    n, p = X.shape
    sums = [np.zeros((k, p)) for _ in range(4)]
    depths, genes_per_cell = np.zeros(n), np.zeros(n, dtype=np.int64)
    for start, batch in zip(range(0, n, ROWS), as_csr(X), strict=True):
        part = slice(start, start + ROWS)
        members = members_of(labels[part], k)
        depths[part], genes_per_cell[part] = batch.sum(axis=1, dtype=np.float64), np.diff(batch.indptr)
        x, logs = batch.data.astype(np.float64), logarithms(batch)
        for total, values in zip(sums, (x, logs, logs * logs, np.ones_like(x)), strict=True):
            total += (members @ csr_array((values, batch.indices, batch.indptr), shape=batch.shape)).toarray()
    cells = np.bincount(labels[labels >= 0], minlength=k).astype(np.float64)
    return Profiles(depths, genes_per_cell, cells, *sums)


def markers_of(profiles: Profiles, n_markers: int = N_MARKERS) -> Markers:
    """The genes of the largest effect in each cluster: how many standard deviations the mean logarithms lie apart."""
    check_numbers(n_markers=n_markers)
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
    tops = found.above_zero(gene_names, genes)
    return distinct([" ".join(top) or f"cluster {number}" for number, top in enumerate(tops)])


def markers(adata: Any, groupby: str = "onmf", *, layer: str | None = None, n_markers: int = N_MARKERS) -> Any:
    """Find the marker genes of groups of cells, and write them where scanpy looks for them.

    A gene is ranked by its effect: the difference between the mean normalised logarithms of its counts, inside the
    group and outside, in standard deviations. The p-values, of Welch's test, are naive: they hold for groups that were
    known before. Clusters that the same counts made differ in some genes even if the cells do not, so their p-values
    are far too small, and no evidence that the clusters exist.

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
        ``share_outside``, ``p_naive`` and ``p_naive_adjusted``.
    """
    import pandas as pd

    cells = cells_of(adata, layer)
    if groupby not in adata.obs:
        raise KeyError(f"adata.obs has no column {groupby!r}: there are {', '.join(adata.obs) or 'none'}.")
    groups = adata.obs[groupby].astype("category").cat
    categories = [str(category) for category in groups.categories]
    require(len(categories) >= 2, f"adata.obs[{groupby!r}] has {len(categories)} group: markers tell groups apart.")
    found = markers_of(profiles_of(cells.X, np.asarray(groups.codes), len(categories)), n_markers)
    adata.uns[f"{groupby}_markers"] = scanpy_markers(found, cells.genes, categories, groupby, layer)
    group = np.repeat(np.asarray(categories, dtype=object), found.genes.shape[1])
    return pd.DataFrame({"group": group} | found.columns(cells.genes))
