"""Compile the CUDA kernels of this folder, and launch them."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from threading import Lock
from typing import Any

import numpy as np

try:
    import cupy as cupy
except ImportError:  # making a GpuBackend says what is missing
    cupy = None

THREADS = 256  # of a block, if nothing else decides
UNASKED = 32 * 1024  # bytes of shared memory that any kernel can have without asking: 48 KB, less what it declares
int_, long_ = np.int32, np.int64  # an int and a long long of CUDA
NULL = np.uint64(0)  # a null pointer
_guard = Lock()  # held while a kernel is compiled: otherwise, each thread of Dask would compile it

# Source files of the kernels that are not in kernels.cu.
FILES = {
    "step_dense": ("screen.cuh", "step.cu"),
    "label_dense": ("screen.cuh", "label.cu"),
    "sum_dense": ("sum.cu",),
    "project_on_hull": ("hull.cu",),
    **dict.fromkeys(("curved_scores", "curved_units", "curved_sums", "chebyshev_terms"), ("curved.cu",)),
}


def launch(
    name: str, grid: int | tuple[int, int], threads: int, *args: Any, value: Any = None, shared: int = 0, **macros: Any
) -> None:
    """Launch a kernel, compiled for the type of ``value`` and for macros."""
    blocks = grid if isinstance(grid, tuple) else (grid,)
    if 0 in blocks:
        return
    with _guard:
        kernel = _compiled(name, None if value is None else value.dtype.char, tuple(macros.items()), shared > UNASKED)
    kernel(blocks, (threads,), args, shared_mem=shared)


def launch_rows(name: str, n: int, *args: Any, value: Any = None, **macros: Any) -> None:
    """Launch a kernel with one warp for each of n rows."""
    launch(name, -(-n * 32 // THREADS), THREADS, *args, value=value, **macros)


@lru_cache(maxsize=256)
def _compiled(name: str, value: str | None, macros: tuple[tuple[str, Any], ...], much_shared: bool) -> Any:
    """A kernel, compiled for a type of entries and for macros. One that needs much shared memory may have all of it."""
    kernel = _module(FILES.get(name, ("kernels.cu",)), value, macros).get_function(name)
    if much_shared:
        kernel.max_dynamic_shared_size_bytes = largest_shared() - kernel.shared_size_bytes
    return kernel


@lru_cache(maxsize=64)
def _module(names: tuple[str, ...], value: str | None, macros: tuple[tuple[str, Any], ...]) -> Any:
    defined = {} if value is None else {"VALUE": "float" if value == "f" else "double"}
    lines = [f"#define {name} {meaning}" for name, meaning in (defined | dict(macros)).items()]
    sources = (files("onmf.backend.gpu").joinpath(name).read_text(encoding="utf-8") for name in ("common.cuh", *names))
    return cupy.RawModule(code="\n".join([*lines, *sources]), options=("-std=c++17",))


@lru_cache(maxsize=1)
def processors() -> int:
    """Number of multiprocessors of the card."""
    return int(cupy.cuda.Device().attributes["MultiProcessorCount"])


@lru_cache(maxsize=1)
def largest_shared() -> int:
    """Bytes of shared memory that a block can have."""
    return int(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def lanes_of(number: int) -> int:
    """Threads of a warp that work on this number of templates or chunks: a power of two."""
    return min(32, 1 << max(0, number - 1).bit_length())


def combine(partial: Any, out: Any) -> None:
    """Write the sum of partial results over their first axis into ``out``."""
    launch("combine_parts", -(-out.size // 32), 1024, partial, long_(len(partial)), long_(out.size), out)


def or_null(array: Any) -> Any:
    """An array, or a null pointer for None."""
    return NULL if array is None else array
