"""Checks of the structure of sparse matrices. Compiled code follows their indices unchecked."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

REMEDY = "Build it again from its entries, for example with scipy.sparse.coo_array."


def check_structure(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays point outside it. The error names the first fault.

    SciPy checks little of this when it creates a matrix and nothing when a matrix is changed later, and its own
    conversions crash on such a matrix. Formats without index arrays (lists of lists, dictionaries) pass: check the
    matrix after its conversion. Dense arrays pass, too.
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
    """CSR, CSC and BSR: pointers increase from 0 to the number of entries, and indices are inside the matrix."""
    indptr, indices, data, kind = X.indptr, X.indices, X.data, X.format.upper()
    by_columns, block = kind == "CSC", getattr(X, "blocksize", (1, 1))
    major, minor = X.shape[by_columns] // block[by_columns], X.shape[1 - by_columns] // block[1 - by_columns]
    line, across = ("column", "row") if by_columns else ("row", "column")
    for what, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"{name} is not a valid {kind} matrix: {what} has {array.ndim} dimensions and type {array.dtype}; it "
                f"must be a list of integers. {REMEDY}"
            )
    if len(indptr) != major + 1:
        raise ValueError(
            f"{name} is not a valid {kind} matrix: indptr has {len(indptr)} entries for {major} {line}s; it must have "
            f"{major + 1}. {REMEDY}"
        )
    wrong = np.flatnonzero(_host(indptr[1:] < indptr[:-1]))
    if int(indptr[0]) != 0 or len(wrong):
        i = int(wrong[0]) if int(indptr[0]) == 0 else -1
        raise ValueError(
            f"{name} is not a valid {kind} matrix: indptr[{i + 1}] = {int(indptr[i + 1])}; it must be "
            f"{'0' if i < 0 else f'at least {int(indptr[i])}, the entry before'}. {REMEDY}"
        )
    nnz = int(indptr[-1])
    if nnz > len(indices) or nnz > len(data):
        raise ValueError(
            f"{name} is not a valid {kind} matrix: indptr ends at {nnz}, but there are {len(indices)} indices and "
            f"{len(data)} values. {REMEDY}"
        )
    if nnz and _outside(indices[:nnz], minor):
        wrong = _host((indices[:nnz] < 0) | (indices[:nnz] >= minor))
        e = int(np.argmax(wrong))
        i = int(np.searchsorted(_host(indptr), e, side="right")) - 1
        raise ValueError(
            f"{name} is not a valid {kind} matrix: indices[{e}] = {int(indices[e])}, in {line} {i}, is outside a "
            f"matrix of {minor} {across}s. {REMEDY}"
        )


def _check_coordinates(X: Any, name: str) -> None:
    """COO: each entry has a coordinate on each axis, inside the matrix."""
    for axis, coordinates in enumerate(X.coords if hasattr(X, "coords") else (X.row, X.col)):
        if len(coordinates) != len(X.data) or coordinates.dtype.kind not in "iu":
            raise ValueError(
                f"{name} is not a valid COO matrix: axis {axis} has {len(coordinates)} coordinates of type "
                f"{coordinates.dtype} for {len(X.data)} values. {REMEDY}"
            )
        if len(coordinates) and _outside(coordinates, X.shape[axis]):
            e = int(np.argmax(_host((coordinates < 0) | (coordinates >= X.shape[axis]))))
            raise ValueError(
                f"{name} is not a valid COO matrix: entry {e} is at {int(coordinates[e])} on axis {axis}, whose "
                f"length is {X.shape[axis]}. {REMEDY}"
            )


def _check_diagonals(X: Any, name: str) -> None:
    """DIA: each diagonal has an offset of at most 32 bits, the width that SciPy computes with."""
    offsets = X.offsets
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or X.data.ndim != 2 or len(offsets) != len(X.data):
        raise ValueError(
            f"{name} is not a valid DIA matrix: its offsets have shape {offsets.shape} and type {offsets.dtype}, and "
            f"its diagonals shape {X.data.shape}. {REMEDY}"
        )
    if len(offsets) and max(int(offsets.max()), -int(offsets.min())) >= 2**31:
        raise ValueError(f"{name} is not a valid DIA matrix: an offset needs more than 32 bits. {REMEDY}")


def _outside(indices: Any, end: int) -> bool:
    """Whether an index is negative or at least ``end``. One pass: as unsigned integers, negative ones are huge."""
    unsigned = indices.view(f"u{indices.dtype.itemsize}") if indices.dtype.kind == "i" else indices
    return int(unsigned.max()) >= end


def _host(array: Any) -> Any:
    """Copy a CuPy array to NumPy."""
    return array.get() if hasattr(array, "get") else array
