"""The genes in a report on cells: packed and found again."""

import base64
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf.cells.matrix
from cell_clusterings import small_clustering
from onmf.cells.page import dot_plot, pack, read_genes


@pytest.fixture(scope="module")
def small():
    return small_clustering()


def unpacked(text, n):
    """Counts of one gene by cell, as the browser reads them."""
    raw = zlib.decompress(base64.b64decode(text))
    (entries,) = struct.unpack("<I", raw[:4])
    steps, codes = raw[4 : len(raw) - entries], raw[len(raw) - entries :]
    values, cell, code = np.zeros(n, dtype=int), -1, 0
    for step in steps:
        cell += step or 255
        if step:
            values[cell] = codes[code]
            code += 1
    return values


@pytest.mark.parametrize("cells", [[0], [254], [255], [256], [0, 1, 2, 255, 511, 2000], [], [3, 258, 513, 769]])
def test_packed_cells_are_found_again(cells):
    codes = np.arange(1, len(cells) + 1)
    values = unpacked(pack(np.array(cells, dtype=np.int64), codes), 3000)
    assert np.flatnonzero(values).tolist() == cells
    assert values[cells].tolist() == codes.tolist()


class Lazy:
    """Counts of which only slices of rows can be had, as of a file."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self.X[rows]


@pytest.mark.parametrize("kind", [csr_array, lambda X: X.toarray(), Lazy])
def test_genes_in_blocks(small, kind, monkeypatch):
    monkeypatch.setattr(onmf.cells.matrix, "ROWS", 37)
    cells = np.random.default_rng(0).permutation(400)[:300]
    columns, packed, levels = read_genes(replace(small, table=replace(small.table, X=kind(small.table.X))), cells)
    dense = small.table.X.toarray()
    markers = list(dict.fromkeys(small.markers.genes.T.ravel().tolist()))
    assert columns[: len(markers)].tolist() == markers, "the best of each cluster, then the second best"
    assert len(columns) == np.count_nonzero(dense[cells].any(axis=0))
    for column, text in zip(columns, packed, strict=True):
        counts = dense[cells, column]
        values = levels[unpacked(text, 300)]
        assert values == pytest.approx(counts, rel=0.05)
        assert np.array_equal(values[counts <= 16], counts[counts <= 16])


def test_the_dot_plot_has_means_and_shares_of_the_clusters(small):
    found = dot_plot(small)
    genes = [small.table.genes.index(name) for name in found["genes"]]
    assert set(genes) == set(small.markers.genes[:, :5].ravel())
    dense = small.table.X.toarray()
    scaled = np.log1p(1e4 * dense[:, genes] / small.depths[:, None])
    for k in range(4):
        assert found["means"][k] == pytest.approx(scaled[small.labels == k].mean(axis=0), abs=0.0051)
        assert found["shares"][k] == pytest.approx((dense[small.labels == k][:, genes] > 0).mean(axis=0), abs=0.00051)


@pytest.mark.parametrize("factor", [1000, 0.3])
def test_large_and_fractional_counts_are_rounded(small, factor):
    changed = replace(small, table=replace(small.table, X=small.table.X * factor))
    columns, packed, levels = read_genes(changed, np.arange(400))
    assert len(levels) <= 256
    for column, text in zip(columns[:5], packed, strict=False):
        counts = (small.table.X * factor)[:, [column]].toarray().ravel()
        assert levels[unpacked(text, 400)] == pytest.approx(counts, rel=0.05)
