"""From data to a clustering: start, loop, and the best of several restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf.alternate import Alternation, Iteration, alternate, objective
from onmf.divergence import Array, FloatArray
from onmf.engine import Engine, Held
from onmf.initialize import Start
from onmf.result import Clustering
from onmf.warn import warn

Watch = Callable[[int, Iteration, FloatArray], bool]


def solve(
    engine: Engine,
    held: Held,
    starts: Callable[[int], Start],
    *,
    n_init: int,
    max_iter: int,
    tol: float,
    watch: Watch | None = None,
    parameters: dict[str, Any] | None = None,
) -> Clustering:
    """Run the loop from ``n_init`` starts and keep the result of the lowest objective, the first of equals.

    Parameters
    ----------
    engine, held : Engine, Held
        Where the data lives.
    starts : callable
        The start of run i.
    n_init, max_iter, tol
        As in :class:`onmf.ONMF`.
    watch : callable, optional
        Called after each iteration as ``watch(run, iteration, centroids)``; a true answer stops that run.
    parameters : dict, optional
        Kept in the result.

    Returns
    -------
    Clustering
    """
    best: Clustering | None = None
    for run in range(n_init):
        start = starts(run)
        listener = None if watch is None else (lambda iteration, W, run=run: watch(run, iteration, W))
        ended = alternate(engine, held, start.centroids, max_iter=max_iter, tol=tol, watch=listener)
        found = clustering_of(engine, held, ended, start.rows, parameters or {})
        if best is None or found.objective < best.objective:
            best = found
    assert best is not None
    warn_about(best, max_iter)
    return best


def clustering_of(
    engine: Engine, held: Held, ended: Alternation, init_rows: Array | None, parameters: dict[str, Any]
) -> Clustering:
    """The result of a loop that has just ended, in the gauge H Hᵀ = I."""
    labels, scales = engine.collect(held)
    scales = scales / ended.step.norms[labels]
    weighted = scales if held.weights is None else scales * held.weights
    iterations = ended.iterations
    history: dict[str, Array] = {
        "moved": np.array([i.moved for i in iterations]),
        "change": np.array([i.change for i in iterations]),
        "seconds": np.array([i.seconds for i in iterations]),
    }
    if iterations[-1].objective is not None:
        history["objective"] = np.array([i.objective for i in iterations])
    return Clustering(
        labels=labels,
        scales=scales,
        centroids=ended.centroids,
        objective=objective(held, ended.step),
        n_iter=len(iterations),
        stop_reason=ended.stop_reason,
        history=history,
        masses=np.bincount(labels, weights=weighted, minlength=len(ended.centroids)).astype(np.float64, copy=False),
        n_filled=int(np.count_nonzero(~ended.step.empty)),
        init_rows=init_rows,
        parameters=parameters,
    )


def warn_about(clustering: Clustering, max_iter: int) -> None:
    """Say what a user should know before trusting the result."""
    k = len(clustering.centroids)
    stopped = clustering.stop_reason in ("max_iter", "callback")
    if clustering.n_filled < k:
        why = (
            "the fit was stopped before they could be filled."
            if stopped
            else f"X has fewer distinct directions than n_clusters={k}. Ask for fewer clusters."
        )
        warn(f"Only {clustering.n_filled} of {k} clusters hold rows: {why}", ConvergenceWarning)
    if clustering.stop_reason == "max_iter":
        warn(
            f"Not converged after max_iter={max_iter} iterations: {clustering.history['moved'][-1]} rows moved in the "
            f"last one, and H changed by {clustering.history['change'][-1]:.1e}. Raise max_iter or tol.",
            ConvergenceWarning,
        )
