"""From X and the name of an engine to data: check X, choose an engine, and let it place the rows.

Arrays, frames and sparse matrices are rows in memory, on the host or on a GPU. Dask collections and callables that
return batches are rows in parts. Each part is checked when it is read, by the process that reads it.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.backend import Backend, Matrix, ReferenceBackend, available_cores, on_gpu
from onmf.divergence import Array, Divergence, FloatArray
from onmf.io.rules import require

from .base import Data, Engine, Memory
from .dask import Dask, as_blocks
from .groups import Groups
from .known import Known, without_known
from .parts import Blocks, PartsEngine, Progress, Source, name_part_in_errors
from .validate import (
    as_numbers,
    as_rows,
    check_container,
    check_data,
    check_entries,
    check_kind,
    check_weights,
    to_numbers,
    unwrap_xarray,
    warn_zero_rows,
)

MOST_THREADS = 1024  # no machine has more cores, and threads without a core would only use up system resources

NAMES = ("auto", "cpu", "gpu", "reference", "blocks", "dask")


def get_engine(engine: str | Engine | Backend, X: Any = None, n_threads: int | None = None) -> Engine:
    """The engine of that name, if it can take ``X``.

    Parameters
    ----------
    engine : {"auto", "cpu", "gpu", "reference", "blocks", "dask"}, Engine or Backend
        ``"auto"`` is the GPU for CuPy arrays, ``"dask"`` for Dask collections, ``"blocks"`` for batches from a
        callable, and else the CPU. ``"dask"`` computes on the GPU if the chunks of a Dask array are CuPy
        arrays, else on the CPU, as ``"blocks"`` does; pass ``Dask(backend)`` or ``Blocks(backend)`` of
        :mod:`onmf.data` for another backend. A backend stands for rows in memory.
    X : array, CSR or Source, optional
        The data that it has to take.
    n_threads : int or None
        Threads of the CPU; None is every core that this process may use, and one for each partition of Dask. The GPU
        needs them for starts.

    Returns
    -------
    Engine
    """
    if n_threads is not None and not (isinstance(n_threads, Integral) and 1 <= n_threads <= MOST_THREADS):
        raise ValueError(
            f"n_threads={n_threads!r} is not allowed: n_threads must be None or an integer from 1 to {MOST_THREADS}."
        )
    if isinstance(engine, str) and engine in NAMES:
        chosen = _named(engine, X, n_threads)
    elif not isinstance(engine, Backend | Engine):
        raise ValueError(f"engine={engine!r} is unknown: use one of {str(NAMES)[1:-1]}, or an Engine object.")
    elif n_threads is not None:
        raise ValueError("n_threads belongs to engine='cpu': an Engine object brings its own threads.")
    else:
        chosen = Memory(engine) if isinstance(engine, Backend) else engine
    reason = None if X is None else chosen.refuses(X)
    require(reason is None, f"engine={chosen.name!r} cannot take this data: {reason}")
    return chosen


def _named(name: str, X: Any, n_threads: int | None) -> Engine:
    """The engine of a name for these data."""
    parts = isinstance(X, Source)
    if name == "auto" and parts:
        name = "blocks" if callable(X.blocks) else "dask"
    elif name == "auto":
        name = "gpu" if on_gpu(X) else "cpu"
    if name == "reference":
        require(n_threads is None, "engine='reference' runs on one thread: leave n_threads=None.")
        return Memory(ReferenceBackend())
    threads = n_threads or (1 if name == "dask" else available_cores())
    # Imported here because numba takes long to import and not every use of the package needs it.
    if name == "gpu" or (name == "dask" and parts and X.gpu):
        from onmf.backend.gpu import GpuBackend

        backend: Backend = GpuBackend(threads)
    else:
        from onmf.backend.cpu import CpuBackend

        backend = CpuBackend(threads)
    engines: dict[str, Callable[[Backend], Engine]] = {"dask": Dask, "blocks": Blocks}
    return engines.get(name, Memory)(backend)


def in_blocks(engine: str | Engine | Backend, n_threads: int | None = None, progress: Progress | None = None) -> Blocks:
    """The engine that reads batches, with the backend of another engine; ``progress`` as in :class:`Blocks`."""
    chosen = get_engine(engine, n_threads=n_threads)
    if isinstance(chosen, Dask):
        raise ValueError(
            "engine='dask' takes Dask collections, and these rows come in batches: use engine='auto', 'cpu' or 'gpu'."
        )
    return Blocks(chosen.backend, progress or (chosen.progress if isinstance(chosen, Blocks) else None))


def prepare_data(
    estimator: Any,
    X: Any,
    divergence: Divergence,
    sample_weight: Any = None,
    *,
    groups: Groups | None = None,
    known: Known | None = None,
    engine: str | Engine | Backend | None = None,
    reset: bool = False,
    warn: bool = False,
) -> tuple[Engine, Data]:
    """Check ``X``, choose an engine for it, or take the one that is given, and let it place the rows.

    ``reset`` sets the estimator's features instead of comparing them, and reads parts once. ``warn``: about zero rows.
    With ``groups``, rows get a column for each of them, and the divergence is the one that reads these columns. Rows
    that are ``known`` get weight 0.
    """
    X = unwrap_xarray(X)
    n_threads = estimator.n_threads if engine is None else None
    engine = estimator.engine if engine is None else engine
    if not in_parts(X):
        chosen = get_engine(engine, X if on_gpu(X) else None, n_threads)
        rows = check_data(X, divergence, estimator=estimator, reset=reset, warn=warn)
        weights = check_weights(sample_weight, rows.shape[0])
        chosen = get_engine(chosen, rows)
        if known is not None:
            known.check_rows(rows.shape[0])
            known, weights = known.weighted(weights), without_known(weights, known.free)
        if groups is not None:
            n, p = rows.shape
            groups.check_length(n)
            divergence, rows = groups.divergence(divergence, p), groups.append(rows, groups.over(n))
        data = chosen.make_data(rows, divergence, weights)
        data.known = known
        return chosen, data
    get_engine(engine, n_threads=n_threads)  # parameters are checked before data
    source = check_parts(X, divergence, estimator=estimator, reset=reset, sample_weight=sample_weight)
    chosen = get_engine(engine, source, n_threads)
    assert isinstance(chosen, PartsEngine), "no other takes parts"
    data = chosen.open(source, divergence)
    if reset:
        data.survey()
        features, names = data.shape[1], source.names
        if names is not None and len(names) != features:
            raise ValueError(f"X has {len(names)} names for {features} features: give each feature one name.")
        estimator.n_features_in_ = features
        estimator.__dict__.pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = names
        if warn and not divergence.absolute:
            warn_zero_rows(data.zeros, data.shape[0])
    if known is not None:
        known.check_rows(data.shape[0])
        known, source = leave_out_known(source, known, data.sizes)
    if groups is not None:
        source = with_groups(source, groups, data.sizes or None, estimator.n_features_in_)
        divergence = groups.divergence(divergence, estimator.n_features_in_)
    if known is not None or groups is not None:
        data = chosen.open(source, divergence)
        if reset:
            data.survey()
    data.known = known
    return chosen, data


def in_parts(X: Any) -> bool:
    """Whether X comes in parts: a Dask collection, a list of delayed blocks, or a callable that returns batches."""
    first = unwrap_xarray(X[0] if isinstance(X, list | tuple) and len(X) else X)
    return hasattr(first, "__dask_graph__") or callable(X)


def check_in_memory(X: Any, what: str) -> None:
    """Refuse data in parts for ``what``, a function that needs random access to the rows."""
    require(not in_parts(X), f"{what} needs all rows in memory, and X comes in parts: pass a sample of its rows.")


def check_parts(
    X: Any, divergence: Divergence, *, estimator: Any, reset: bool = False, sample_weight: Any = None
) -> Source:
    """Describe ``X`` in parts for the engines; each part is checked when it is read."""
    if callable(X) and not hasattr(X, "__dask_graph__"):  # a delayed block can be called
        noun, blocks, one, features = "batch", X, getattr(X, "block", None), None
        sizes, names = (getattr(X, name, None) for name in ("sizes", "names"))
        weights: Any = None if sample_weight is None else as_numbers(sample_weight, "sample_weight")
        check_weights(weights, np.size(weights))
    else:
        noun, one = "partition", None
        blocks, sizes, features, names = as_blocks(X)
        weights = None if sample_weight is None else weights_in_parts(sample_weight, sizes, len(blocks))
    if not reset:
        known, features = features if names is None else len(names), estimator.n_features_in_
        if known not in (None, features):
            raise ValueError(f"X has {known} features, but ONMF is expecting {features} features as input.")
        expected = getattr(estimator, "feature_names_in_", None)
        if names is not None and expected is not None and not np.array_equal(names, expected):
            raise ValueError(
                "The feature names should match those that were passed during fit: give X the same columns, in the "
                "same order."
            )
    read = partial(read_block, divergence=divergence)
    return Source(blocks, read, weights, noun, one, sizes, features, names, X, on_gpu(getattr(X, "_meta", None)))


def with_groups(source: Source, groups: Groups, sizes: list[int] | None, p: int) -> Source:
    """Rows in parts that get a column for each group when they are read."""
    grouped = replace(source, groups=groups, features=p + len(groups), sizes=sizes)
    if callable(source.blocks):
        return grouped
    from dask import delayed

    codes = groups.in_parts(sizes or source.sizes)
    weights = source.weights or [None] * len(codes)
    return replace(grouped, weights=[delayed((w, own)) for w, own in zip(weights, codes, strict=True)])


def leave_out_known(source: Source, known: Known, sizes: list[int]) -> tuple[Known, Source]:
    """Give known rows the weight 0 in rows in parts. → the known rows with their own weights, and the other source"""
    if callable(source.blocks):
        weights: Any = without_known(source.weights, known.free)
        return known.weighted(source.weights), replace(source, weights=weights)
    from dask import compute, delayed

    first, given = np.cumsum([0, *sizes]), source.weights or [None] * len(sizes)
    free = known.free
    parts = [free[start:stop] for start, stop in itertools.pairwise(first)]
    own = compute(*(delayed(weights_at)(w, ~part) for w, part in zip(given, parts, strict=True)))
    left = [delayed(without_known)(w, part) for w, part in zip(given, parts, strict=True)]
    return replace(known, weights=np.concatenate(own)), replace(source, weights=left)


def weights_at(weights: Any, chosen: Array) -> FloatArray:
    """The weights of some rows of a part, given as an array, a number, or None for ones."""
    return np.broadcast_to(1.0 if weights is None else weights, len(chosen))[chosen].astype(np.float64)


def weights_in_parts(sample_weight: Any, sizes: list[int] | None, parts: int) -> list[Any]:
    """Sample weights as one delayed array, or one number, for each partition."""
    from dask import delayed

    sample_weight = unwrap_xarray(sample_weight)
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
        weights: Any = check_weights(sample_weight, sum(sizes))
        return [delayed(part) for part in np.split(weights, np.cumsum(sizes)[:-1])]
    require(
        sample_weight.ndim == 1, f"sample_weight has {sample_weight.ndim} dimensions: give one weight for each row."
    )
    chunks = list(sample_weight.chunks[0])
    if sizes is not None and not np.isnan(chunks).any():
        if sum(chunks) != sum(sizes):
            raise ValueError(
                f"sample_weight has {sum(chunks)} entries, but X has {sum(sizes)} rows: give one weight for each row."
            )
        sample_weight = sample_weight.rechunk((tuple(sizes),))
    elif len(chunks) != parts:
        raise ValueError(
            f"sample_weight has {len(chunks)} chunks, but X has {parts} partitions, and their sizes are not known: "
            "give both the same chunks."
        )
    return list(sample_weight.to_delayed().ravel())


def read_block(
    block: Any, divergence: Divergence, features: int | None = None, again: bool = False
) -> tuple[Matrix, int]:
    """Convert and check rows. → the rows, and how many are zero, which is not counted when they are read ``again``"""
    pieces = list(block) if isinstance(block, Iterator | list | tuple) else None
    if pieces is None:
        X = _read_piece(block, divergence, features)
    elif len(pieces) == 0:
        X = np.empty((0, features or 0))
    elif not all(issparse(piece) or np.ndim(piece) == 2 for piece in pieces):
        raise ValueError("it holds something other than blocks of rows: make each element a 2-D array or CSR matrix.")
    else:
        rows = []
        for number, piece in enumerate(pieces):
            with name_part_in_errors("piece", number):
                rows.append(_read_piece(piece, divergence, features))
        X = vstack(list(map(csr_array, rows)), format="csr") if any(map(issparse, rows)) else np.concatenate(rows)
    if X.shape[0] == 0 or (again and clearly_allowed(X.data if hasattr(X, "indptr") else X, divergence)):
        return X, 0
    return X, int(np.count_nonzero(check_entries(X, divergence) == 0))


def _read_piece(X: Any, divergence: Divergence, features: int | None) -> Matrix:
    """Convert rows that are one array, frame or sparse matrix."""
    X = to_numbers(check_container(X), least_rows=0)
    check_kind(X, divergence)
    if features is not None and X.shape[1] != features:
        raise ValueError(f"X has {X.shape[1]} features, but ONMF is expecting {features} features as input.")
    return as_rows(X)


def clearly_allowed(x: Array, divergence: Divergence) -> bool:
    """Whether a single fast pass, which every iteration repeats, shows that the entries are allowed; False is open."""
    if x.size == 0 or divergence.domain == "positive":
        return x.size == 0
    integers = x.dtype.kind in "iu"
    largest = 1.0 if divergence.domain == "unit" else divergence.entry_range[1]
    if divergence.domain == "real":
        if integers:
            return largest >= np.iinfo(x.dtype).max
        with np.errstate(over="ignore", invalid="ignore"):
            return float(x.ravel() @ x.ravel()) <= largest * largest
    # As unsigned integers, the bits of numbers ≥ 0 are in the order of the numbers; those of negative ones and NaN are
    # larger.
    limit = min(largest, int((np.iinfo if integers else np.finfo)(x.dtype).max))
    bits = f"u{x.dtype.itemsize}"
    return int(x.view(bits).max()) <= int(np.array(limit, dtype=x.dtype).view(bits))
