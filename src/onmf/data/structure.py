"""Checks of the structure of sparse matrices. Compiled code follows their indices unchecked."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from onmf.arrays import to_host

REMEDY = "Build it again from its entries, for example with scipy.sparse.coo_array."


def check_structure(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays point outside it. The error names the first fault.

    SciPy checks little of this when it creates a matrix and nothing when a matrix is changed later, and its own
    conversions crash on such a matrix. Formats without index arrays (lists of lists, dictionaries) pass: check the
    matrix after its conversion. Dense arrays pass, too.
    """
    if not (issparse(X) or type(X).__module__.startswith("cupyx.")):
        return
    checks = {"coo": _fault_of_coordinates, "dia": _fault_of_diagonals}
    check = _fault_of_compressed if hasattr(X, "indptr") else checks.get(X.format, lambda X: None)
    fault = check(X)
    if fault is not None:
        raise ValueError(f"{name} is not a valid {X.format.upper()} matrix: {fault}. {REMEDY}")


def _fault_of_compressed(X: Any) -> str | None:
    """CSR, CSC and BSR: pointers increase from 0 to the number of entries, and indices are inside the matrix."""
    indptr, indices, data, kind = X.indptr, X.indices, X.data, X.format.upper()
    by_columns, block = kind == "CSC", getattr(X, "blocksize", (1, 1))
    major, minor = X.shape[by_columns] // block[by_columns], X.shape[1 - by_columns] // block[1 - by_columns]
    line, across = ("column", "row") if by_columns else ("row", "column")
    for what, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            return f"{what} has {array.ndim} dimensions and type {array.dtype}; it must be a list of integers"
    if len(indptr) != major + 1:
        return f"indptr has {len(indptr)} entries for {major} {line}s; it must have {major + 1}"
    wrong = np.flatnonzero(to_host(indptr[1:] < indptr[:-1]))
    if int(indptr[0]) != 0 or len(wrong):
        i = int(wrong[0]) if int(indptr[0]) == 0 else -1
        return (
            f"indptr[{i + 1}] = {int(indptr[i + 1])}; it must be "
            f"{'0' if i < 0 else f'at least {int(indptr[i])}, the entry before'}"
        )
    nnz = int(indptr[-1])
    if nnz > len(indices) or nnz > len(data):
        return f"indptr ends at {nnz}, but there are {len(indices)} indices and {len(data)} values"
    if nnz and _outside(indices[:nnz], minor):
        wrong = to_host((indices[:nnz] < 0) | (indices[:nnz] >= minor))
        e = int(np.argmax(wrong))
        i = int(np.searchsorted(to_host(indptr), e, side="right")) - 1
        return f"indices[{e}] = {int(indices[e])}, in {line} {i}, is outside a matrix of {minor} {across}s"
    return None


def _fault_of_coordinates(X: Any) -> str | None:
    """COO: each entry has a coordinate on each axis, inside the matrix."""
    for axis, coordinates in enumerate(X.coords if hasattr(X, "coords") else (X.row, X.col)):
        if len(coordinates) != len(X.data) or coordinates.dtype.kind not in "iu":
            return (
                f"axis {axis} has {len(coordinates)} coordinates of type {coordinates.dtype} for {len(X.data)} values"
            )
        if len(coordinates) and _outside(coordinates, X.shape[axis]):
            e = int(np.argmax(to_host((coordinates < 0) | (coordinates >= X.shape[axis]))))
            return f"entry {e} is at {int(coordinates[e])} on axis {axis}, whose length is {X.shape[axis]}"
    return None


def _fault_of_diagonals(X: Any) -> str | None:
    """DIA: each diagonal has an offset of at most 32 bits, the width that SciPy computes with."""
    offsets = X.offsets
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or X.data.ndim != 2 or len(offsets) != len(X.data):
        return (
            f"its offsets have shape {offsets.shape} and type {offsets.dtype}, and its diagonals shape {X.data.shape}"
        )
    if len(offsets) and max(int(offsets.max()), -int(offsets.min())) >= 2**31:
        return "an offset needs more than 32 bits"
    return None


def _outside(indices: Any, end: int) -> bool:
    """Whether an index is negative or at least ``end``. One pass: as unsigned integers, negative ones are huge."""
    unsigned = indices.view(f"u{indices.dtype.itemsize}") if indices.dtype.kind == "i" else indices
    return int(unsigned.max()) >= end
