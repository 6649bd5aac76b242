"""Input checks for all entry points. Each error says what is wrong, where, and what to do."""

import sys
from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from onmf.arrays import read_only_view
from onmf.backend import Matrix, on_gpu, to_host
from onmf.divergence import Array, Divergence, FloatArray
from onmf.io.rules import require
from onmf.warn import warn as warn_user

NO_NUMBERS = "X holds {} values: leave out, or encode, the columns that are not numbers."
WEIGHT_RANGE = (1e-30, 1e30)  # of weights besides 0: sums of weighted squares stay inside float64


def check_data(
    X: Any, divergence: Divergence, *, estimator: Any = None, reset: bool = False, warn: bool = False
) -> Matrix:
    """Check ``X``, and convert it to a C-contiguous array or canonical CSR of native numbers; copied only if needed."""
    if isinstance(X, str | PathLike):
        raise ValueError(
            f"X is a path or a text, {str(X)[:60]!r}: open it first, a folder with onmf.datasets.open_shards."
        )
    sequence = hasattr(X, "__len__") and not on_gpu(X) and not issparse(X) and np.ndim(X) == 1
    if sequence and len(X) and isinstance(next(iter(X)), str):
        raise ValueError(
            "X holds texts, not numbers: turn them into counts first, with CountVectorizer of "
            "sklearn.feature_extraction.text."
        )
    if isinstance(X, Iterator) or (isinstance(X, list | tuple) and len(X) and getattr(X[0], "ndim", 0) == 2):
        raise ValueError(
            f"X is a {type(X).__name__} of batches: pass a function without arguments that returns a new iterator over "
            "them at each call, or stack them into one matrix."
        )
    X = to_numbers(check_container(X), estimator=estimator, reset=reset)
    check_kind(X, divergence)
    X = as_rows(X)
    sizes = check_entries(X, divergence)
    if warn and not divergence.absolute:
        warn_zero_rows(int(np.count_nonzero(sizes == 0)), len(sizes))
    return X


def unwrap_xarray(X: Any) -> Any:
    """The array that a DataArray of xarray holds; anything else unchanged."""
    xarray = sys.modules.get("xarray")
    return X.data if xarray is not None and isinstance(X, xarray.DataArray) else X


def check_unmasked(values: Any, name: str) -> None:
    """Refuse an array with masked entries: NumPy would compute with what is under the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        mask = np.ma.getmaskarray(values)
        first = list(map(int, np.unravel_index(np.argmax(mask), mask.shape)))
        raise ValueError(
            f"Input {name} is masked: {name}{first} is the first of {int(mask.sum())} masked entries. Drop those rows "
            f"or fill them in ({name}.filled) before clustering."
        )


def check_container(X: Any, name: str = "X") -> Any:
    """Return ``X`` in a form that a conversion reads right; refuse masks, times, and invalid indices of sparse data."""
    X = unwrap_xarray(X)
    check_unmasked(X, name)
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for column, dtype in zip(X.columns, X.dtypes, strict=True):
            if str(dtype).lower().startswith(("date", "time", "duration")):  # Polars would turn times into numbers
                raise ValueError(f"Column {column!r} of {NO_NUMBERS.format(dtype)}")
    if issparse(X) and X.dtype.kind not in "buifc":  # SciPy's error does not name the type
        raise ValueError(NO_NUMBERS.format(X.dtype))
    check_structure(X, name)
    form = X.format if issparse(X) else None
    if form in ("lil", "dok"):  # Python objects, which become index arrays only in the conversion
        X = X.tocsr()
        check_structure(X, name)
    elif form == "coo" and X.ndim == 2:
        rows, wide = X.tocsr(), _sum_type(X.dtype)
        X = rows if wide == X.dtype or rows.nnz == X.nnz else X.astype(wide).tocsr()
    return X


def check_kind(X: Any, divergence: Divergence) -> None:
    """Refuse values that are not numbers, and sparse rows if the divergence forbids zeros."""
    if X.dtype.kind not in "buif":
        raise ValueError(NO_NUMBERS.format(X.dtype))
    if hasattr(X, "indptr") and divergence.domain == "positive":
        raise ValueError(
            f"Sparse input holds zeros, and the {divergence.name} divergence needs X > 0 everywhere: "
            "pass a dense array, or use beta_loss > 0 (1, Kullback-Leibler, is made for sparse counts)."
        )


def warn_zero_rows(zeros: int, n: int) -> None:
    """Warn about rows that are zero everywhere."""
    if zeros:
        warn_user(
            f"{zeros} of {n} rows of X are zero everywhere: they get scale 0 and the label of the tie rule, the "
            "lowest. Leave them out if they mean nothing.",
            UserWarning,
            in_folds=False,
        )


def to_numbers(X: Any, *, estimator: Any = None, reset: bool = False, least_rows: int = 1) -> Any:
    """Check a container as scikit-learn does, and convert it to an array or CSR. CuPy arrays get the same checks."""
    if not on_gpu(X):
        options = {"accept_sparse": "csr", "order": "C", "ensure_all_finite": False, "ensure_min_samples": least_rows}
        try:
            return (
                check_array(X, **options) if estimator is None else validate_data(estimator, X, reset=reset, **options)
            )
        except TypeError as error:  # add the remedy; the type stays, because scikit-learn demands it
            if str(error).startswith("Feature names"):
                raise
            raise TypeError(
                f"X holds something that is not a number: {error}. Fill in missing values, and leave out, or encode, "
                "the columns that are not numbers."
            ) from error
    require(X.ndim == 2, f"Expected 2D array, got {X.ndim}D array instead: X must have one row for each sample.")
    for number, least, what in zip(X.shape, (least_rows, 1), ("sample", "feature"), strict=True):
        require(number >= least, f"Found array with 0 {what}(s) (shape={X.shape}) while a minimum of 1 is required.")
    if estimator is not None:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X.tocsr() if hasattr(X, "tocsr") else X


def as_rows(X: Any) -> Matrix:
    """Convert ``X`` to canonical CSR or a C-contiguous array of native numbers, 64 bits at most; avoid copies."""
    if on_gpu(X) and hasattr(X, "indptr"):  # CuPy's hold no integers, so no sum of entries can wrap around
        X = X.astype(np.float32) if X.dtype == np.bool_ else X
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X
    X = X.astype(_native(X.dtype), copy=False)
    if not issparse(X):
        return X if X.flags.c_contiguous else X.copy(order="C")
    rows = csr_array((X.data, X.indices, X.indptr), shape=X.shape)  # makes both index arrays 32 bits wide, or 64
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sort_indices()
        if not rows.has_canonical_format:
            rows.data = rows.data.astype(_sum_type(rows.dtype), copy=False)
            rows.sum_duplicates()
    return rows


def _sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which entries at the same place are added: sums of narrow integers would wrap around."""
    return np.dtype(np.int64) if dtype.kind in "iu" and dtype.itemsize < 8 else dtype


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype.newbyteorder("=")


def check_entries(X: Matrix, divergence: Divergence, name: str = "X") -> FloatArray:
    """Refuse entries that cannot be computed with, naming the first. → (n,) largest absolute entry of each row"""
    low, high = row_extremes(X)
    sizes = np.maximum(high, -low)
    domain, needs = divergence.domain, f", and the {divergence.name} divergence needs"
    faults: tuple[tuple[Any, Callable[[Array], Array], str, str], ...] = (
        (
            not np.isfinite(sizes).all(),
            lambda x: ~np.isfinite(x),
            f"Input {name} contains {'NaN' if np.isnan(sizes).any() else 'infinity'}",
            " NaN or infinite entries. Drop those rows or fill them in (sklearn.impute.SimpleImputer) before "
            "clustering.",
        ),
        (
            domain != "real" and low.min() < 0,
            lambda x: x < 0,
            "Negative values in data passed to ONMF",
            f"{needs} {name} ≥ 0. Clip them (numpy.clip), shift the data, or use beta_loss='frobenius' or 'cosine', "
            "which take any sign.",
        ),
        (
            domain == "positive" and low.min() == 0,
            lambda x: x == 0,
            "Zeros in data passed to ONMF",
            f"{needs} {name} > 0 everywhere. Add a small constant, or use beta_loss > 0.",
        ),
        (
            domain == "unit" and high.max() > 1,
            lambda x: x > 1,
            "Values above 1 in data passed to ONMF",
            f"{needs} 0 ≤ {name} ≤ 1. Pass {name} > 0 for what occurs at all, or divide {name} by its largest entry.",
        ),
    )
    for found, wrong, what, remedy in faults:
        if found:
            row, column, value, number = first_entry(to_host(X), wrong)
            raise ValueError(f"{what}: {name}[{row}, {column}] = {value:g} is the first of {number}{remedy}")
    least, largest = divergence.entry_range
    smallest = low if divergence.domain == "positive" else sizes
    beyond = (sizes > largest) | ((smallest > 0) & (smallest < least))
    if beyond.any():
        row = int(np.argmax(beyond))
        which, value = ("largest", sizes[row]) if smallest is sizes or sizes[row] > largest else ("smallest", low[row])
        raise ValueError(
            f"Input {name} is out of range: the {which} entry of row {row} is {value:g}, and the {divergence.name} "
            f"divergence computes with sizes from {least:g} to {largest:g}. Multiply {name} by a constant that brings "
            f"its entries near 1{'' if divergence.absolute else ': the clusters do not depend on the unit'}."
        )
    divergence.check_range(float(low.min()), float(high.max()), name)
    return sizes


def row_extremes(X: Matrix) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest stored entry of each row; 0 if none is stored, NaN if an entry is NaN. → 2 × (n,)"""
    if on_gpu(X):
        from onmf.backend.gpu import GpuBackend

        low, high = map(to_host, GpuBackend().extremes(X))
        return low, high
    low, high = np.zeros(X.shape[0]), np.zeros(X.shape[0])
    if not issparse(X):
        return X.min(axis=1, out=low), X.max(axis=1, out=high)
    filled = np.flatnonzero(np.diff(X.indptr))
    if len(filled):
        starts = X.indptr[filled]
        low[filled], high[filled] = np.minimum.reduceat(X.data, starts), np.maximum.reduceat(X.data, starts)
    return low, high


def first_entry(X: Matrix, wrong: Callable[[Array], Array]) -> tuple[int, int, Any, int]:
    """Row, column and value of the first entry that is wrong, and the number of such entries."""
    mask = wrong(X.data if issparse(X) else X)
    entry, number = int(np.argmax(mask)), int(mask.sum())
    if issparse(X):
        return int(np.searchsorted(X.indptr, entry, side="right")) - 1, X.indices[entry], X.data[entry], number
    row, column = divmod(entry, X.shape[1])
    return row, column, X[row, column], number


def read_only(X: Matrix) -> Matrix:
    """A read-only view of ``X``. CuPy arrays are returned as they are, since they have no such flag."""
    if issparse(X):
        return csr_array(tuple(map(read_only_view, (X.data, X.indices, X.indptr))), shape=X.shape)
    return X if on_gpu(X) else read_only_view(X)


def as_numbers(values: Any, name: str) -> FloatArray:
    """An argument as an array of float64."""
    values = unwrap_xarray(values)
    check_unmasked(values, name)
    array = np.asarray(to_host(values))
    require(array.dtype.kind in "buifO", f"{name} holds {array.dtype} values: give real numbers.")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} holds something that is not a number: {error}.") from error


def check_weights(sample_weight: Any, n: int, *, of_part: bool = False) -> FloatArray | None:
    """Sample weights as float64, or None; those of a part may all be zero."""
    if sample_weight is None:
        return None
    weights = as_numbers(sample_weight, "sample_weight")
    weights = np.full(n, weights) if weights.ndim == 0 else weights
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}, but X has {n} rows: give one weight for each row.")
    least, largest = WEIGHT_RANGE
    bad = ~((weights == 0) | ((weights >= least) & (weights <= largest)))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight[{i}] = {weights[i]}: a weight must be 0, or lie between {least:g} and {largest:g}. The "
            "clusters do not depend on the unit: multiply all of them by a constant if that helps."
        )
    require(of_part or weights.any(), "sample_weight is zero for every row: at least one row must count.")
    return weights


def check_centroids(centroids: Any, k: int, p: int, divergence: Divergence) -> FloatArray:
    """Check starting centroids, and convert them to a float64 array."""
    if issparse(centroids):
        centroids = as_rows(check_container(centroids, "init").tocsr()).toarray()
    C = np.array(as_numbers(centroids, "init"), order="C")
    if C.shape != (k, p):
        raise ValueError(
            f"init has shape {C.shape}, but n_clusters={k} and X has {p} features: give one centroid for each cluster, "
            f"an array of shape ({k}, {p})."
        )
    sizes = check_entries(C, divergence, "init")
    if not sizes.all():
        raise ValueError(
            f"init[{int(np.argmin(sizes))}] is zero everywhere: a centroid needs a direction. Give it an entry."
        )
    return C


def check_structure(X: Any, name: str = "X") -> None:
    """Refuse a sparse matrix whose index arrays point outside it, naming the first fault; SciPy crashes on some.

    Formats without index arrays (lists of lists, dictionaries) pass: check the matrix after its conversion.
    """
    if not (issparse(X) or type(X).__module__.startswith("cupyx.")):
        return
    checks = {"coo": _fault_of_coordinates, "dia": _fault_of_diagonals}
    check = _fault_of_compressed if hasattr(X, "indptr") else checks.get(X.format)
    if check is not None and (fault := check(X)) is not None:
        raise ValueError(
            f"{name} is not a valid {X.format.upper()} matrix: {fault}. Build it again from its entries, for example "
            "with scipy.sparse.coo_array."
        )


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
    e = _first_outside(indices[:nnz], minor)
    if e is not None:
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
        e = _first_outside(coordinates, X.shape[axis])
        if e is not None:
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


def _first_outside(indices: Any, end: int) -> int | None:
    """The place of the first index that is negative or at least ``end``; None if there is none."""
    unsigned = indices.view(f"u{indices.dtype.itemsize}") if indices.dtype.kind == "i" else indices
    fine = len(indices) == 0 or int(unsigned.max()) < end  # one fast pass: as unsigned integers, negative ones are huge
    return None if fine else int(np.argmax(to_host(unsigned >= end)))
