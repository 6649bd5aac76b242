"""Checks of the structure of sparse matrices: compiled code follows their indices without looking."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

HOW_TO_MEND = "Build it again from its entries, for example with scipy.sparse.coo_array."


def check_structure(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays lead outside it, naming the first fault.

    SciPy checks little of this when it makes a matrix and nothing when somebody changes one afterwards, and its own
    conversions crash on such a matrix. Formats without index arrays (lists of lists, dictionaries) pass: check what
    they are converted to. Arrays that are not sparse pass, too.

    Parameters
    ----------
    X : sparse matrix or array
        In any format, of SciPy or of CuPy.
    name : str, default="X"
        How the message calls it.
    """
    if not (issparse(X) or type(X).__module__.startswith("cupyx.")):
        return
    if hasattr(X, "indptr"):
        _check_compressed(X, name)
    elif X.format == "coo":
        _check_coordinates(X, name)
    elif X.format == "dia":
        _check_diagonals(X, name)


def _check_compressed(X: Any, name: str) -> None:
    """CSR, CSC and BSR: pointers that rise from 0 to the number of entries, and indices inside the matrix."""
    indptr, indices, data, kind = X.indptr, X.indices, X.data, X.format.upper()
    by_columns, block = kind == "CSC", getattr(X, "blocksize", (1, 1))
    major, minor = X.shape[by_columns] // block[by_columns], X.shape[1 - by_columns] // block[1 - by_columns]
    line, across = ("column", "row") if by_columns else ("row", "column")
    for what, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"{name} is no valid {kind} matrix: {what} has {array.ndim} dimensions and type {array.dtype}: it must "
                f"be a list of integers. {HOW_TO_MEND}"
            )
    if len(indptr) != major + 1:
        raise ValueError(
            f"{name} is no valid {kind} matrix: indptr has {len(indptr)} entries for {major} {line}s, and must have "
            f"{major + 1}. {HOW_TO_MEND}"
        )
    wrong = np.flatnonzero(_host(indptr[1:] < indptr[:-1]))
    if int(indptr[0]) != 0 or len(wrong):
        i = int(wrong[0]) if int(indptr[0]) == 0 else -1
        raise ValueError(
            f"{name} is no valid {kind} matrix: indptr[{i + 1}] = {int(indptr[i + 1])}, and must be "
            f"{'0' if i < 0 else f'at least {int(indptr[i])}, the entry before it'}. {HOW_TO_MEND}"
        )
    nnz = int(indptr[-1])
    if nnz > len(indices) or nnz > len(data):
        raise ValueError(
            f"{name} is no valid {kind} matrix: indptr ends at {nnz}, but there are {len(indices)} indices and "
            f"{len(data)} values. {HOW_TO_MEND}"
        )
    if nnz and _outside(indices[:nnz], minor):
        wrong = _host((indices[:nnz] < 0) | (indices[:nnz] >= minor))
        e = int(np.argmax(wrong))
        i = int(np.searchsorted(_host(indptr), e, side="right")) - 1
        raise ValueError(
            f"{name} is no valid {kind} matrix: indices[{e}] = {int(indices[e])}, in {line} {i}, is no {across} of a "
            f"matrix of {minor} {across}s. {HOW_TO_MEND}"
        )


def _check_coordinates(X: Any, name: str) -> None:
    """COO: a coordinate of each entry for each axis, inside the matrix."""
    for axis, coordinates in enumerate(X.coords if hasattr(X, "coords") else (X.row, X.col)):
        if len(coordinates) != len(X.data) or coordinates.dtype.kind not in "iu":
            raise ValueError(
                f"{name} is no valid COO matrix: axis {axis} has {len(coordinates)} coordinates of type "
                f"{coordinates.dtype} for {len(X.data)} values. {HOW_TO_MEND}"
            )
        if len(coordinates) and _outside(coordinates, X.shape[axis]):
            e = int(np.argmax(_host((coordinates < 0) | (coordinates >= X.shape[axis]))))
            raise ValueError(
                f"{name} is no valid COO matrix: entry {e} lies at {int(coordinates[e])} of axis {axis}, whose length "
                f"is {X.shape[axis]}. {HOW_TO_MEND}"
            )


def _check_diagonals(X: Any, name: str) -> None:
    """DIA: an offset for each diagonal, in 32 bits, which is what SciPy computes with."""
    offsets = X.offsets
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or X.data.ndim != 2 or len(offsets) != len(X.data):
        raise ValueError(
            f"{name} is no valid DIA matrix: its offsets have shape {offsets.shape} and type {offsets.dtype}, and its "
            f"diagonals shape {X.data.shape}. {HOW_TO_MEND}"
        )
    if len(offsets) and max(int(offsets.max()), -int(offsets.min())) >= 2**31:
        raise ValueError(f"{name} is no valid DIA matrix: an offset of it lies beyond 32 bits. {HOW_TO_MEND}")


def _outside(indices: Any, end: int) -> bool:
    """Whether an index is negative or at least ``end``, found in one pass: negative ones are huge when unsigned."""
    unsigned = indices.view(f"u{indices.dtype.itemsize}") if indices.dtype.kind == "i" else indices
    return int(unsigned.max()) >= end


def _host(array: Any) -> Any:
    """A NumPy array of a NumPy or CuPy array."""
    return array.get() if hasattr(array, "get") else array
