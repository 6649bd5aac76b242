"""From the parameter ``engine`` to an engine that can take the data."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from onmf.backend import Backend, ReferenceBackend, available_cores, on_gpu

from .base import Engine
from .blocks import Blocks, Progress
from .dask import Dask
from .memory import Memory
from .parts import Source

MOST_THREADS = 1024
"""No machine has more cores, and threads without a core would only use up system resources."""

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
    if isinstance(engine, str):
        chosen = _named(_automatic(X) if engine == "auto" else engine, n_threads, isinstance(X, Source) and X.gpu)
    elif isinstance(engine, Backend):
        chosen = Memory(engine)
    elif isinstance(engine, Engine):
        chosen = engine
    else:
        raise _unknown(engine)
    if not isinstance(engine, str) and n_threads is not None:
        raise ValueError("n_threads belongs to engine='cpu': an Engine object brings its own threads.")
    reason = None if X is None else chosen.refuses(X)
    if reason is not None:
        raise ValueError(f"engine={chosen.name!r} cannot take this data: {reason}")
    return chosen


def _automatic(X: Any) -> str:
    """The name of the engine that the data need."""
    if isinstance(X, Source):
        return "blocks" if callable(X.blocks) else "dask"
    return "gpu" if on_gpu(X) else "cpu"


def _named(name: str, n_threads: int | None, gpu: bool = False) -> Engine:
    """The engine of a name; ``gpu`` says whether it gets parts that are CuPy arrays."""
    # Imported here because numba takes long to import and not every use of the package needs it.
    match name:
        case "dask" if gpu:
            from onmf.backend.gpu import GpuBackend

            return Dask(GpuBackend(n_threads or 1))
        case "cpu" | "blocks" | "dask":
            from onmf.backend.cpu import CpuBackend

            if name == "dask":
                return Dask(CpuBackend(n_threads or 1))
            backend = CpuBackend(n_threads or available_cores())
            return Blocks(backend) if name == "blocks" else Memory(backend)
        case "gpu":
            from onmf.backend.gpu import GpuBackend

            return Memory(GpuBackend(n_threads or available_cores()))
        case "reference":
            if n_threads is not None:
                raise ValueError("engine='reference' runs on one thread: leave n_threads=None.")
            return Memory(ReferenceBackend())
    raise _unknown(name)


def _unknown(engine: object) -> ValueError:
    return ValueError(f"engine={engine!r} is unknown: use one of {', '.join(map(repr, NAMES))}, or an Engine object.")


def in_blocks(engine: str | Engine | Backend, n_threads: int | None = None, progress: Progress | None = None) -> Blocks:
    """The engine that reads batches, with the backend of another engine; ``progress`` as in :class:`Blocks`."""
    chosen = get_engine(engine, n_threads=n_threads)
    if isinstance(chosen, Dask):
        raise ValueError(
            "engine='dask' takes Dask collections, and these rows come in batches: use engine='auto', 'cpu' or 'gpu'."
        )
    known = chosen.progress if isinstance(chosen, Blocks) else None
    return Blocks(chosen.backend, progress or known)
