"""The one door for data: what a user passes, checked and held by the engine that it needs.

Arrays, frames and sparse matrices are rows in memory, on the host or on a GPU. Dask collections and callables that
return batches are rows in parts, each of which is checked where and when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack
from sklearn.utils import check_array

from onmf.divergence import Array, Divergence, FloatArray
from onmf.engine import Data, Engine, Held, PartsEngine, Rows, get_engine, on_gpu
from onmf.engine.dask import as_blocks
from onmf.validate import (
    as_numbers,
    as_rows,
    check_data,
    check_entries,
    check_kind,
    check_weights,
    sound,
    warn_zero_rows,
)


class Taken(NamedTuple):
    """Data as engines read them, the engine that was chosen for them, and what it holds."""

    rows: Any
    engine: Engine
    held: Held


def hold(
    estimator: Any,
    X: Any,
    divergence: Divergence,
    sample_weight: Any = None,
    *,
    reset: bool = False,
    warn: bool = False,
) -> Taken:
    """Check ``X``, choose the engine for it, and let it hold the rows.

    Parameters
    ----------
    estimator : ONMF
        Whose ``engine`` and ``n_threads`` decide, and whose features are compared.
    X, sample_weight
        As in :meth:`onmf.ONMF.fit`.
    divergence : Divergence
        Of the estimator.
    reset : bool, default=False
        Whether to take over number and names of the features instead of comparing them. Data in parts are then read
        once, to find out their sizes.
    warn : bool, default=False
        Whether to warn about rows that are zero everywhere.

    Returns
    -------
    Taken
    """
    if in_parts(X):
        get_engine(estimator.engine, n_threads=estimator.n_threads)  # parameters first, then data
        parts = check_parts(X, divergence, estimator=estimator, reset=reset, sample_weight=sample_weight)
        engine = get_engine(estimator.engine, parts, estimator.n_threads)
        assert isinstance(engine, PartsEngine), "no other supports parts"
        if not reset:
            return Taken(parts, engine, engine.open(parts, divergence))
        held = engine.hold(parts, divergence)
        check_features(estimator, held.shape[1], parts.names, reset=True)
        if warn:
            warn_zero_rows(held.zeros, held.shape[0])
        return Taken(parts, engine, held)
    engine = get_engine(estimator.engine, X if on_gpu(X) else None, estimator.n_threads)
    rows = check_data(X, divergence, estimator=estimator, reset=reset, warn=warn)
    weights = check_weights(sample_weight, rows.shape[0])
    engine = get_engine(engine, rows)
    return Taken(rows, engine, engine.hold(rows, divergence, weights))


def in_parts(X: Any) -> bool:
    """Whether X comes in parts: a Dask collection, a list of delayed blocks, or a callable that returns batches."""
    first = X[0] if isinstance(X, list | tuple) and len(X) else X
    return hasattr(first, "__dask_graph__") or callable(X)


def check_in_memory(X: Any, what: str) -> None:
    """Refuse data in parts, for ``what`` goes through the rows in any order."""
    if in_parts(X):
        raise ValueError(f"{what} needs all rows in memory, and X comes in parts: pass a sample of its rows.")


def check_parts(
    X: Any, divergence: Divergence, *, estimator: Any, reset: bool = False, sample_weight: Any = None
) -> Rows:
    """``X`` in parts, as engines want it; each part is checked where and when it is read."""
    read = partial(read_again, divergence=divergence)
    check = partial(check_block, divergence=divergence)
    if callable(X) and not hasattr(X, "__dask_graph__"):  # a delayed block can be called
        what, blocks, one, features = "batch", X, getattr(X, "block", None), None
        sizes, names = (getattr(X, name, None) for name in ("sizes", "names"))
        weights: Any = None
        if sample_weight is not None:
            weights = as_numbers(sample_weight, "sample_weight")
            check_weights(weights, weights.shape[0] if weights.ndim else 1)
    else:
        what, one = "partition", None
        blocks, sizes, features, names = as_blocks(X)
        weights = None if sample_weight is None else weights_in_parts(sample_weight, sizes, len(blocks))
    if not reset:
        told = features if names is None else len(names)
        if told is not None:
            check_features(estimator, told, names, reset=False)
        features = estimator.n_features_in_
    return Rows(blocks, read, check, weights, what, one, sizes, features, names, X)


def check_features(estimator: Any, features: int, names: Array | None, *, reset: bool) -> None:
    """Tell an estimator the number and names of the features of data in parts, or compare them."""
    if reset:
        if names is not None and len(names) != features:
            raise ValueError(f"X has {len(names)} names for {features} features: give each feature one name.")
        estimator.n_features_in_ = features
        estimator.__dict__.pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = names
        return
    if features != estimator.n_features_in_:
        raise ValueError(
            f"X has {features} features, but ONMF is expecting {estimator.n_features_in_} features as input."
        )
    expected = getattr(estimator, "feature_names_in_", None)
    if names is not None and expected is not None and not np.array_equal(names, expected):
        raise ValueError(
            "The feature names should match those that were passed during fit: give X the same columns, in the same "
            "order."
        )


def weights_in_parts(sample_weight: Any, sizes: list[int] | None, parts: int) -> list[Any]:
    """Sample weights, one delayed array for each partition, or one number for all rows of it."""
    from dask import delayed

    if hasattr(sample_weight, "to_dask_array"):  # a column of a frame
        sample_weight = sample_weight.to_dask_array()
    if not hasattr(sample_weight, "to_delayed"):
        if np.ndim(sample_weight) == 0:
            check_weights(sample_weight, 1)
            return [float(sample_weight)] * parts
        if sizes is None:
            raise ValueError(
                "sample_weight is in memory, and the sizes of the partitions of X are not known: pass a Dask array "
                "with the same chunks, or call X.compute_chunk_sizes() first."
            )
        weights = check_weights(sample_weight, sum(sizes))
        assert weights is not None
        return [delayed(part) for part in np.split(weights, np.cumsum(sizes)[:-1])]
    if sample_weight.ndim != 1:
        raise ValueError(f"sample_weight has {sample_weight.ndim} dimensions: give one weight for each row.")
    chunks = list(sample_weight.chunks[0])
    if sizes is not None and not np.isnan(chunks).any():
        if sum(chunks) != sum(sizes):
            raise ValueError(
                f"sample_weight has {sum(chunks)} entries, but X has {sum(sizes)} rows: give one weight for each row."
            )
        sample_weight = sample_weight.rechunk((tuple(sizes),))
    elif len(chunks) != parts:
        raise ValueError(
            f"sample_weight has {len(chunks)} chunks, but X has {parts} partitions, and their sizes are not known: cut "
            "both alike."
        )
    return [delayed(part_weights)(part) for part in sample_weight.to_delayed().ravel()]


def part_weights(weights: Any) -> FloatArray:
    """Sample weights of a partition; all of them may be zero."""
    weights = as_numbers(weights, "sample_weight")
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
        pieces = [sound(piece) for piece in pieces]
        block = vstack(pieces, format="csr") if issparse(pieces[0]) else np.concatenate(pieces)
    X = check_array(sound(block), accept_sparse="csr", order="C", ensure_all_finite=False, ensure_min_samples=0)
    check_kind(X, divergence)
    if features is not None and X.shape[1] != features:
        raise ValueError(f"X has {X.shape[1]} features, but ONMF is expecting {features} features as input.")
    return as_rows(X)


def check_block(block: Any, divergence: Divergence, features: int | None = None) -> tuple[Data, int]:
    """A part of the rows that is seen for the first time, and how many of its rows are zero."""
    X = read_block(block, divergence, features)
    return X, int(np.count_nonzero(check_entries(X, divergence) == 0)) if X.shape[0] else 0


def read_again(block: Any, divergence: Divergence, features: int | None = None) -> Data:
    """A part of the rows that was checked before, and may have changed since."""
    X = read_block(block, divergence, features)
    if X.shape[0] and not clearly_allowed(X.data if hasattr(X, "indptr") else X, divergence):
        check_entries(X, divergence)
    return X


def clearly_allowed(x: Array, divergence: Divergence) -> bool:
    """Whether one look at the entries shows that they are allowed; where it does not, they may still be.

    The look is a single fast pass, since every step of a fit takes one.
    """
    if x.size == 0 or divergence.domain == "positive":
        return x.size == 0
    integers = x.dtype.kind in "iu"
    if divergence.domain == "real":
        with np.errstate(over="ignore", invalid="ignore"):
            return integers or bool(np.isfinite(x.ravel() @ x.ravel()))
    # As unsigned integers, the bits of numbers ≥ 0 are in the order of the numbers; those of negative ones and NaN are
    # larger.
    limit = min(1e250 ** (1 / divergence.power), int((np.iinfo if integers else np.finfo)(x.dtype).max))
    bits = f"u{x.dtype.itemsize}"
    return int(x.view(bits).max()) <= int(np.array(limit, dtype=x.dtype).view(bits))
