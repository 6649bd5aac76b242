"""Runs every kernel of the GPU engine on odd sizes, under compute-sanitizer.

compute-sanitizer --tool memcheck --error-exitcode 1 python benchmarks/sanitize.py [PART ...]
compute-sanitizer --tool racecheck --error-exitcode 1 python benchmarks/sanitize.py [PART ...]

Everything takes many minutes. Parts can be named, and run side by side.
"""

import sys
from functools import partial
from pathlib import Path

import cupy
import numpy as np
from scipy.sparse import csr_array

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "contract")]

from test_gpu import check_curved, check_passes, check_step_at_once, made  # noqa: E402
from test_gpu_data import check_hull  # noqa: E402

from onmf import ONMF  # noqa: E402
from onmf.backend import GpuBackend  # noqa: E402
from onmf.backend.gpu import backend  # noqa: E402

# In a memory pool, an access beyond the end of an array could hit the next one and stay undetected.
cupy.cuda.set_allocator(None)
backend.WORTH_TRYING = 0  # the moves of a local search are tried on the card


def passes(k: int) -> None:
    """Labels, scores and sums for k clusters."""
    for shape in ((1, 1), (1, 40), (37, 3), (65, 57)):
        for dtype in (np.float32, np.float64):
            X = made(*shape, whole=False, dtype=dtype)
            check_passes(X, k)
            check_passes(X.toarray(), k)
    for entries in (0, 1):
        check_passes(csr_array(([2.0] * entries, ([3] * entries, [1] * entries)), shape=(9, 4)), k)
    for p in (4, 6, 16, 100):
        check_step_at_once(65, p, min(k, 64), "kullback-leibler", np.float32)


def steps() -> None:
    """Whole steps, with enough rows that each block loops several times."""
    for loss in ("kullback-leibler", "frobenius"):
        check_step_at_once(70_000, 16, 20, loss, np.float32)
        for dtype in (np.float32, np.float64):
            check_step_at_once(1100, 130, 64, loss, dtype)


def curved() -> None:
    """Divergences without closed forms."""
    for k in (1, 3, 33):
        for scale in ("size", "fit"):
            for X in (made(37, 30, whole=False), made(37, 30, whole=False, dtype=np.float32, sparse=False)):
                check_curved(X, k, scale)


def hulls() -> None:
    """Starts by SNPA."""
    for k in (1, 5, 33):
        check_hull(made(50, 60, density=0.3, whole=False), k)


def fits(memory: int | None) -> None:
    """Fits with local search, of rows that are on the card, or that are streamed if the memory is limited."""
    X = made(200, 30, density=0.3)
    for rows in (X, X.toarray()):
        ONMF(5, init="random", refine="local-search", random_state=0, engine=GpuBackend(memory=memory)).fit(rows)


PARTS = {
    **{f"passes-{k}": partial(passes, k) for k in (1, 3, 31, 33, 129)},
    "many": lambda: check_passes(made(20, 9, density=0.5), 300),
    "steps": steps,
    "curved": curved,
    "hulls": hulls,
    "fits": partial(fits, None),
    "streamed-fits": partial(fits, 60_000),
}
"""What can be named on the command line; by default all of it runs."""

for name in sys.argv[1:] or PARTS:
    PARTS[name]()
    print(name, flush=True)
