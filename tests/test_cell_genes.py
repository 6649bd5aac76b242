"""The genes in a report on cells: packed and found again."""

import base64
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf.report.cell_genes
from cell_clusterings import small_clustering
from onmf.report.cell_genes import pack, read_genes


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
    monkeypatch.setattr(onmf.report.cell_genes, "ROWS", 37)
    cells = np.random.default_rng(0).permutation(400)[:300]
    dots = np.array([3, 1, 7])
    found = read_genes(replace(small, X=kind(small.X)), cells, dots)
    dense = small.X.toarray()
    markers = list(dict.fromkeys(small.markers.genes.T.ravel().tolist()))
    assert found.columns[: len(markers)].tolist() == markers, "the best of each cluster, then the second best"
    assert len(found.columns) == np.count_nonzero(dense[cells].any(axis=0))
    for column, text in zip(found.columns, found.packed, strict=True):
        counts = dense[cells, column]
        values = found.levels[unpacked(text, 300)]
        assert values == pytest.approx(counts, rel=0.05)
        assert np.array_equal(values[counts <= 16], counts[counts <= 16])
    scaled = np.log1p(1e4 * dense[:, dots] / small.depths[:, None])
    for k in range(4):
        assert found.means[k] == pytest.approx(scaled[small.labels == k].mean(axis=0))
        assert found.shares[k] == pytest.approx((dense[small.labels == k][:, dots] > 0).mean(axis=0))


@pytest.mark.parametrize("factor", [1000, 0.3])
def test_large_and_fractional_counts_are_rounded(small, factor):
    found = read_genes(replace(small, X=small.X * factor), np.arange(400), np.array([0]))
    assert len(found.levels) <= 256
    for column, text in zip(found.columns[:5], found.packed, strict=False):
        counts = (small.X * factor)[:, [column]].toarray().ravel()
        assert found.levels[unpacked(text, 400)] == pytest.approx(counts, rel=0.05)
