"""Counts of molecules in labelled cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from onmf.divergence import Array

from .stored import as_csr, open_npz, shape_of


@dataclass(frozen=True)
class CellSet:
    """Counts of molecules in cells, with the classes of the cells.

    Attributes
    ----------
    X : (cells, genes) CSR array
        Counts. For ``hmp_site18``, the rows are samples of a microbiome and the columns are taxa.
    y : (cells,) array of int
        Class of each cell, as a position in ``classes``.
    classes : (n_classes,) array of str
        Name of each class; a number where the source gives no name.
    name : str
        Name of the data set.
    source : str
        Public files that it was made from.
    genes : (genes,) array of str or None
        Name of each gene, if known. Names may repeat.
    barcodes : (cells,) array of str or None
        Name of each cell, if known. The nine sets of :func:`load_cells` have none.
    """

    X: csr_array
    y: Array
    classes: Array
    name: str
    source: str
    genes: Array | None = None
    barcodes: Array | None = None

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<CellSet {self.name}: {n} × {p} counts, {self.X.nnz} nonzeros, {len(self.classes)} classes>"

    def to_anndata(self) -> Any:
        """Convert to an AnnData object, with the class of each cell in ``obs["class"]``.

        The genes name the variables. A name that repeats gets a suffix, as scanpy does it; ``var["gene"]`` then has
        the names as they are.

        Returns
        -------
        anndata.AnnData
        """
        try:
            import pandas as pd
            from anndata import AnnData
            from anndata.utils import make_index_unique
        except ImportError as error:
            raise ImportError("AnnData objects need anndata: pip install 'onmf[cells]'.") from error
        classes = pd.Categorical.from_codes(self.y, categories=list(self.classes))
        names = [str(i) for i in range(self.X.shape[0])] if self.barcodes is None else self.barcodes
        obs = pd.DataFrame({"class": classes}, index=pd.Index(names, dtype=object))
        if self.genes is None:
            var = pd.DataFrame(index=pd.Index([str(j) for j in range(self.X.shape[1])], dtype=object))
        else:
            index = pd.Index(self.genes, dtype=object)
            var = pd.DataFrame(index=make_index_unique(index))
            if not index.is_unique:
                var["gene"] = self.genes
        return AnnData(X=csr_matrix(self.X), obs=obs, var=var)  # scanpy 1.11 cannot normalise sparse arrays


def read_cell_set(path: Path, name: str, source: str) -> CellSet:
    """Read a set from an npz file as :func:`.download.save_cells` writes it, and check that its parts fit."""
    with open_npz(path) as file:
        if missing := {"data", "indices", "indptr", "shape", "y", "classes"} - set(file):
            raise ValueError(f"it has no {' and no '.join(sorted(missing))}")
        shape = shape_of(file["shape"], path.stat().st_size)
        X = as_csr(file["data"], file["indices"], file["indptr"], shape)
        y, classes, genes = file["y"], file["classes"], file.get("genes")
    if X.data.dtype.kind not in "iu" or X.data.min(initial=0) < 0:
        raise ValueError("its data are not counts: expected whole numbers that are not negative")
    if y.shape != (shape[0],) or y.dtype.kind not in "iu":
        raise ValueError(f"it has {shape[0]} rows, but its classes have shape {y.shape} and type {y.dtype}")
    if classes.ndim != 1 or classes.dtype.kind != "U":
        raise ValueError("the names of its classes are not a list of texts")
    if len(y) and not 0 <= y.min() <= y.max() < len(classes):
        raise ValueError(f"it has classes {y.min()} to {y.max()}, but names for {len(classes)}")
    if genes is not None and (genes.shape != (shape[1],) or genes.dtype.kind != "U"):
        raise ValueError(f"it has {shape[1]} columns, but its genes have shape {genes.shape} and type {genes.dtype}")
    return CellSet(X=X, y=y.astype(np.int64), classes=classes, name=name, source=source, genes=genes)
