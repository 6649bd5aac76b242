"""The counts in a report on cells: genes that readers can type in, and the dots of the dot plot.

A page contains only some genes, compressed one by one, so that the browser unpacks a gene when a reader asks for it.
The counts are read in blocks of rows, twice; they may be lazy.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse, vstack

from onmf.cells import CellClustering
from onmf.data.structure import check_structure
from onmf.divergence import Array, FloatArray, divide

GENES = 8_000_000
"""Bytes of genes in a page, as they are embedded."""

DENSEST = 0.6
"""Fewest bytes that an entry takes in a page, roughly. It limits the genes that are read to be packed."""

ROWS = 5000
"""Rows to read at a time."""

PER_CELL = 10_000.0
"""Counts that each cell is scaled to before logarithms are taken."""

EXACT = 16
"""Whole counts up to this are embedded exactly, larger ones to 5 %: no eye sees the difference, and more genes fit."""

RATIO = 1.1
"""Ratio of neighbouring levels of larger counts."""


@dataclass(frozen=True, eq=False)
class Genes:
    """Genes of a page.

    Attributes
    ----------
    columns : ndarray of int
        Columns of the counts that the page contains.
    packed : list of str
        Their counts in the cells of the page; see :func:`pack`.
    levels : ndarray
        The count that each code stands for.
    shares, means : ndarray of shape (n_clusters, n_dots)
        For the genes of the dot plot: share of the cells of each cluster with the gene, and mean of
        log(1 + counts per 10,000).
    """

    columns: Array
    packed: list[str]
    levels: FloatArray
    shares: FloatArray
    means: FloatArray


def read_genes(clustering: CellClustering, cells: Array, dots: Array) -> Genes:
    """Read the genes of a page.

    Parameters
    ----------
    clustering : CellClustering
        The clustering.
    cells : ndarray of int
        Rows in the page, in its order.
    dots : ndarray of int
        Columns in the dot plot.

    Returns
    -------
    Genes
    """
    p, k = len(clustering.gene_names), len(clustering.names)
    shown = np.zeros(len(clustering.labels), dtype=bool)
    shown[cells] = True
    sums, having, entries = np.zeros((k, len(dots))), np.zeros((k, len(dots))), np.zeros(p, dtype=np.int64)
    low, high, whole = np.inf, 1.0, True
    for start, block in _blocks(clustering.X):
        rows = slice(start, start + block.shape[0])
        values = block.data
        if len(values):
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            whole = whole and bool((values == np.rint(values)).all())
        entries += np.bincount(block.indices[np.repeat(shown[rows], np.diff(block.indptr))], minlength=p)
        part = block[:, dots]
        member = _members(clustering.labels[rows], k)
        having += (member @ (part > 0)).toarray()
        factors = divide(np.full(block.shape[0], PER_CELL), clustering.depths[rows].astype(np.float64))
        part.data = np.log1p(part.data * np.repeat(factors, np.diff(part.indptr)))
        sums += (member @ part).toarray()
    sizes = clustering.sizes[:, None].astype(np.float64)
    wanted = _order(clustering, entries)
    wanted = wanted[np.cumsum(entries[wanted]) * DENSEST <= GENES]
    levels = _levels(low, high, whole)
    packed = _packed(clustering, cells, wanted, levels)
    return Genes(wanted[: len(packed)], packed, levels, divide(having, sizes), divide(sums, sizes))


def pack(cells: Array, codes: Array) -> str:
    """Return the counts of one gene as text: cells with the gene, in ascending order, and a code from 1 to 255 each.

    The text is base64 of a zlib stream: the number of entries in four bytes, steps from cell to cell, and the codes. A
    step is a byte; a zero stands for 255 cells without the gene.
    """
    gaps = np.diff(cells, prepend=-1) - 1
    ends = np.cumsum(gaps // 255 + 1)
    steps = np.zeros(ends[-1] if len(ends) else 0, dtype=np.uint8)
    steps[ends - 1] = gaps % 255 + 1
    raw = struct.pack("<I", len(codes)) + steps.tobytes() + codes.astype(np.uint8).tobytes()
    return base64.b64encode(zlib.compress(raw)).decode()


def _packed(clustering: CellClustering, cells: Array, wanted: Array, levels: FloatArray) -> list[str]:
    """Pack the wanted genes in turn, until the page has no room for more."""
    order = np.argsort(cells)
    parts = [csr_array((0, len(wanted)))]
    for start, block in _blocks(clustering.X):
        a, b = np.searchsorted(cells[order], (start, start + block.shape[0]))
        parts.append(block[cells[order][a:b] - start][:, wanted])
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    counts = csc_array(vstack(parts, format="csr")[position])
    counts.sort_indices()
    borders = (levels[1:] + levels[:-1]) / 2
    packed: list[str] = []
    room = GENES
    for j in range(len(wanted)):
        entries = slice(counts.indptr[j], counts.indptr[j + 1])
        codes = np.maximum(np.searchsorted(borders, counts.data[entries]), 1)
        text = pack(counts.indices[entries].astype(np.int64), codes)
        room -= len(text)
        if room < 0:
            break
        packed.append(text)
    return packed


def _blocks(X: Any) -> Iterator[tuple[int, csr_array]]:
    """Yield blocks of rows as CSR arrays without stored zeros, and the first row of each."""
    for start in range(0, X.shape[0], ROWS):
        part = X[start : start + ROWS]
        part = part.compute() if hasattr(part, "compute") else part
        part = part if issparse(part) else np.asarray(part)
        check_structure(part)
        block = csr_array(part, dtype=np.float64, copy=True)
        block.sum_duplicates()
        block.eliminate_zeros()
        yield start, block


def _members(labels: Array, k: int) -> csr_array:
    """Return the matrix that adds the rows of each cluster. → (k, rows)"""
    inside = np.flatnonzero(labels >= 0)
    return csr_array((np.ones(len(inside)), (labels[inside], inside)), shape=(k, len(labels)))


def _order(clustering: CellClustering, entries: Array) -> Array:
    """Return the columns in the order in which the page takes them. Genes that no cell of the page has are left out.

    First the best marker of each cluster, then the second best of each, and so on. Then the other genes of the model,
    those in the fewest cells first: of genes that nearly all cells have, few would fill the page. Then the rest, by
    deviance.
    """
    markers = clustering.markers.genes.T.ravel()
    model = clustering.genes[np.argsort(entries[clustering.genes], kind="stable")]
    rest = np.argsort(-np.nan_to_num(clustering.deviance), kind="stable")
    order = np.concatenate([markers[markers >= 0], model, rest])
    _, first = np.unique(order, return_index=True)
    order = order[np.sort(first)]
    return order[entries[order] > 0]


def _levels(low: float, high: float, whole: bool) -> FloatArray:
    """Return the count that each code stands for: 0, then at most 255 others up to the largest count."""
    if not whole:
        return np.concatenate([[0.0], np.geomspace(low, max(high, low), 255)])
    if high <= EXACT:
        return np.arange(high + 1)
    number = min(int(np.log(high / EXACT) / np.log(RATIO)) + 2, 255 - EXACT)
    return np.concatenate([np.arange(EXACT), np.geomspace(EXACT, high, number)])
