"""Input checks that every front door shares: each refusal says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from onmf.divergence import Array, Divergence, FloatArray
from onmf.engine import Data, RowBlocks, Rows
from onmf.engine.dask import as_blocks
from onmf.warn import warn as warn_user

LARGEST_WEIGHT = 1e30
"""Keeps sums of weighted squares inside float64."""


def check_data(
    X: Any, divergence: Divergence, *, estimator: Any = None, reset: bool = False, warn: bool = False
) -> Data:
    """``X`` as engines want it: a C-contiguous array or canonical CSR of native numbers, inside the domain.

    The caller's arrays are never changed; they are used as they are where they already have that form.
    """
    if isinstance(X, RowBlocks):  # checked where they come from
        if estimator is not None:
            validate_data(estimator, np.empty((1, X.shape[1])), reset=reset, skip_check_array=True)
        return X
    if isinstance(first_of(X), str):
        raise ValueError(
            "X holds texts, not numbers: turn them into counts first, with CountVectorizer of "
            "sklearn.feature_extraction.text."
        )
    options = {"accept_sparse": "csr", "order": "C", "ensure_all_finite": False}
    X = check_array(X, **options) if estimator is None else validate_data(estimator, X, reset=reset, **options)
    check_kind(X, divergence)
    X = as_rows(X)
    sizes = check_entries(X, divergence)
    if warn:
        warn_zero_rows(int(np.count_nonzero(sizes == 0)), len(sizes))
    return X


def in_parts(X: Any) -> bool:
    """Whether X comes in parts: a Dask collection, a list of delayed blocks, or a callable that returns batches."""
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    return hasattr(first, "__dask_graph__") or callable(X)


def check_parts(
    X: Any, divergence: Divergence, *, estimator: Any, reset: bool = False, sample_weight: Any = None
) -> Rows:
    """``X`` in parts, as engines want it; each part is checked where and when it is read for the first time."""
    expected = None if reset else estimator.n_features_in_
    read = partial(read_block, divergence=divergence, features=expected)
    check = partial(check_block, divergence=divergence, features=expected)
    if callable(X):
        weights: Any = None
        if sample_weight is not None:
            weights = np.asarray(sample_weight, dtype=np.float64)
            check_weights(weights, len(weights))
        return Rows(X, read, check, weights, "batch", names=getattr(X, "names", None), origin=X)
    blocks, sizes, features, names = as_blocks(X)
    if features is not None and not reset:
        check_features(estimator, features, names, reset=False)
    weights = None if sample_weight is None else weights_in_parts(sample_weight, sizes)
    return Rows(blocks, read, check, weights, "partition", sizes, features, names, X)


def check_features(estimator: Any, features: int, names: Array | None, *, reset: bool) -> None:
    """Tell an estimator the number and names of the features of data in parts, or compare them."""
    row: Any = np.ones((1, features))
    if names is not None:
        from pandas import DataFrame

        row = DataFrame(row, columns=names)
    validate_data(estimator, row, reset=reset)


def weights_in_parts(sample_weight: Any, sizes: list[int] | None) -> list[Any]:
    """Sample weights, one delayed array for each partition."""
    from dask import delayed

    if not hasattr(sample_weight, "to_delayed"):
        if sizes is None:
            raise ValueError(
                "sample_weight is in memory, and the sizes of the partitions of X are not known: pass a Dask array "
                "with the same chunks, or call X.compute_chunk_sizes() first."
            )
        weights = check_weights(sample_weight, sum(sizes))
        assert weights is not None
        return [delayed(part) for part in np.split(weights, np.cumsum(sizes)[:-1])]
    if sizes is not None and list(sample_weight.chunks[0]) != sizes:
        sample_weight = sample_weight.rechunk((tuple(sizes),))
    return [delayed(part_weights)(part) for part in sample_weight.to_delayed().ravel()]


def part_weights(weights: Any) -> FloatArray:
    """Sample weights of a partition; all of them may be zero."""
    weights = np.asarray(weights, dtype=np.float64)
    if not weights.any():
        return weights
    found = check_weights(weights, len(weights))
    assert found is not None
    return found


def read_block(block: Any, divergence: Divergence, features: int | None = None) -> Data:
    """A part of the rows as engines want it."""
    if isinstance(block, Iterator | list | tuple):
        pieces = list(block)
        if len(pieces) == 0:
            return np.empty((0, features or 0))
        if not all(issparse(piece) or np.ndim(piece) == 2 for piece in pieces):
            raise ValueError(
                "it holds something else than blocks of rows: make each element a 2-D array or CSR matrix."
            )
        block = vstack(pieces, format="csr") if issparse(pieces[0]) else np.concatenate(pieces)
    X = check_array(block, accept_sparse="csr", order="C", ensure_all_finite=False, ensure_min_samples=0)
    check_kind(X, divergence)
    if features is not None and X.shape[1] != features:
        raise ValueError(f"X has {X.shape[1]} features, but ONMF is expecting {features} features as input.")
    return as_rows(X)


def check_block(block: Any, divergence: Divergence, features: int | None = None) -> tuple[Data, int]:
    """A part of the rows that is seen for the first time, and how many of its rows are zero."""
    X = read_block(block, divergence, features)
    return X, int(np.count_nonzero(check_entries(X, divergence) == 0)) if X.shape[0] else 0


def check_kind(X: Any, divergence: Divergence) -> None:
    """Refuse what are no numbers, and sparse rows where zeros are forbidden."""
    if X.dtype.kind not in "buif":
        raise ValueError(f"X holds {X.dtype} values: leave out, or encode, the columns that are not numbers.")
    if issparse(X) and divergence.domain == "positive":
        raise ValueError(
            f"Sparse input holds zeros, and the {divergence.name} divergence needs X > 0 everywhere: "
            "pass a dense array, or use beta_loss > 0 (1, Kullback-Leibler, is made for sparse counts)."
        )


def warn_zero_rows(zeros: int, n: int) -> None:
    """Say how many rows hold nothing."""
    if zeros:
        warn_user(
            f"{zeros} of {n} rows of X are zero everywhere: they get scale 0 and the label of the tie rule, the "
            "lowest. Leave them out if they mean nothing.",
            UserWarning,
        )


def first_of(X: Any) -> Any:
    """The first element of a sequence, or None."""
    if issparse(X) or not hasattr(X, "__len__") or np.ndim(X) != 1 or len(X) == 0:
        return None
    return next(iter(X))


def as_rows(X: Any) -> Data:
    """Canonical CSR or a C-contiguous array, of native numbers of at most 64 bits; a copy only where X is neither."""
    X = X.astype(_native(X.dtype), copy=False)
    if not issparse(X):
        return np.ascontiguousarray(X)
    if X.indices.dtype not in (np.int32, np.int64) or X.indptr.dtype != X.indices.dtype:
        width = np.int64 if X.nnz > np.iinfo(np.int32).max else np.int32
        rows = csr_array((X.data, X.indices.astype(width), X.indptr.astype(width)), shape=X.shape)
    else:
        rows = csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype.newbyteorder("=")


def check_entries(X: Data, divergence: Divergence, name: str = "X") -> FloatArray:
    """Refuse what cannot be computed with, naming the first; → (n,) largest absolute entry of each row."""
    low, high = row_extremes(X)
    sizes = np.maximum(high, -low)
    values = X.data if issparse(X) else X
    if not np.isfinite(sizes).all():
        row, column, value, number = first_entry(X, ~np.isfinite(values))
        what = "NaN" if np.isnan(value) else "infinity"
        raise ValueError(
            f"Input {name} contains {what}: {name}[{row}, {column}] = {value} is the first of {number} NaN or infinite "
            "entries. Drop those rows or fill them in (sklearn.impute.SimpleImputer) before clustering."
        )
    if divergence.domain != "real" and low.min() < 0:
        row, column, value, number = first_entry(X, values < 0)
        raise ValueError(
            f"Negative values in data passed to ONMF: {name}[{row}, {column}] = {value:g} is the first of {number}, "
            f"and the {divergence.name} divergence needs {name} ≥ 0. Clip them (numpy.clip), shift the data, or use "
            "beta_loss='frobenius' or 'cosine', which take any sign."
        )
    if divergence.domain == "positive" and low.min() == 0:
        row, column, _, number = first_entry(X, values == 0)
        raise ValueError(
            f"Zeros in data passed to ONMF: {name}[{row}, {column}] = 0 is the first of {number}, and the "
            f"{divergence.name} divergence needs {name} > 0 everywhere. Add a small constant, or use beta_loss > 0."
        )
    limit = 1e250 ** (1 / divergence.power)
    smallest = low if divergence.domain == "positive" else sizes
    beyond = (sizes > limit) | ((smallest > 0) & (smallest < 1 / limit))
    if beyond.any():
        row = int(np.argmax(beyond))
        which, value = ("largest", sizes[row]) if smallest is sizes or sizes[row] > limit else ("smallest", low[row])
        raise ValueError(
            f"Input {name} is out of range: the {which} entry of row {row} is {value:g}, and its power "
            f"{divergence.power:g} leaves float64. Multiply {name} by a constant that brings its entries near 1: the "
            "clusters do not depend on the unit."
        )
    return sizes


def row_extremes(X: Data) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest stored entry of each row; 0 where none is stored, NaN where one is. → 2 × (n,)"""
    low, high = np.zeros(X.shape[0]), np.zeros(X.shape[0])
    if not issparse(X):
        return X.min(axis=1, out=low), X.max(axis=1, out=high)
    filled = np.flatnonzero(np.diff(X.indptr))
    if len(filled):
        starts = X.indptr[filled]
        low[filled], high[filled] = np.minimum.reduceat(X.data, starts), np.maximum.reduceat(X.data, starts)
    return low, high


def first_entry(X: Data, mask: Array) -> tuple[int, int, Any, int]:
    """Row, column and value of the first entry in ``mask``, and how many there are."""
    if issparse(X):
        entry = int(np.argmax(mask))
        row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
        return row, int(X.indices[entry]), X.data[entry], int(mask.sum())
    row, column = divmod(int(np.argmax(mask)), X.shape[1])
    return row, column, X[row, column], int(mask.sum())


def read_only(X: Data) -> Data:
    """``X`` for eyes that must not write to it."""
    if issparse(X):
        return csr_array((read_only(X.data), read_only(X.indices), read_only(X.indptr)), shape=X.shape)
    view = X.view()
    view.flags.writeable = False
    return view


def check_weights(sample_weight: Any, n: int) -> FloatArray | None:
    """Sample weights as float64, or None."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}, but X has {n} rows: give one weight for each row.")
    bad = ~((weights >= 0) & (weights <= LARGEST_WEIGHT))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight[{i}] = {weights[i]}: weights must be finite, not negative, and at most {LARGEST_WEIGHT:g}."
        )
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: at least one row must count.")
    return weights


def check_centroids(centroids: Any, k: int, p: int, divergence: Divergence) -> FloatArray:
    """Starting centroids as a float64 array of the right shape inside the domain."""
    C = np.array(centroids.toarray() if issparse(centroids) else centroids, dtype=np.float64, order="C")
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
