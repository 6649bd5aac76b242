"""Speed of divergences without closed forms: ``python -m benchmarks.bregman [--quick]``.

Two numbers: one iteration of the negative binomial against one of Kullback–Leibler, and how its time grows with the
nonzeros while the number of features stays the same. Times are CPU times of one thread.
"""

from __future__ import annotations

import argparse
import warnings
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf import ONMF
from onmf.datasets import make_counts

from .data import TINY, corpus
from .parts import start_of

ITERATIONS = (3, 13)


def an_iteration(X: Any, start: Any, beta_loss: str, repeats: int) -> float:
    """The median CPU seconds of one iteration."""

    def timed(n: int) -> tuple[float, int]:
        began = process_time()
        done = ONMF(len(start), beta_loss=beta_loss, init=start, max_iter=n, tol=0, n_threads=1).fit(X).n_iter_
        return process_time() - began, done

    few, more = ITERATIONS
    timed(2)
    found = []
    for _ in range(repeats):
        (short, done_few), (long, done_more) = timed(few), timed(more)
        found.append((long - short) / max(done_more - done_few, 1))
    return max(median(found), 1e-9)


def against_kl(quick: bool = False, repeats: int = 5) -> float:
    """The time of an iteration of the negative binomial, in units of one of Kullback–Leibler."""
    X = corpus(TINY) if quick else corpus("NG20")
    if X is None:
        X = corpus("zipf-20000")
    start = start_of(X, 20)
    return an_iteration(X, start, "negative-binomial", repeats) / an_iteration(X, start, "kullback-leibler", repeats)


def growth(quick: bool = False, repeats: int = 5) -> float:
    """The slope of log time over log nonzeros, at a fixed number of features: 1 if zeros cost nothing."""
    sizes = (300, 600) if quick else (10_000, 20_000, 40_000, 80_000)
    nonzeros, times = [], []
    for n in sizes:
        X = make_counts(n, 2_000, 20, length=100, overlap=0.9, random_state=0).X
        nonzeros.append(X.nnz)
        times.append(an_iteration(X, start_of(X, 20), "negative-binomial", repeats))
    return float(np.polyfit(np.log(nonzeros), np.log(times), 1)[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bregman", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--quick", action="store_true", help="tiny data: checks that it runs; the numbers mean nothing")
    quick = parser.parse_args().quick
    repeats = 1 if quick else 5
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"negative binomial against Kullback–Leibler, r = 20: {against_kl(quick, repeats):.1f} × (at most 15)")
    print(f"slope of time over nonzeros: {growth(quick, repeats):.2f} (at most 1.05)")


if __name__ == "__main__":
    main()
