"""The fit as one function, from data and settings to a clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sklearn.exceptions import ConvergenceWarning

from onmf.data import Data
from onmf.warn import warn

from .describe import margins_of
from .restarts import LazySeeds, best_run, prepare_search
from .result import Clustering
from .search import Search
from .settings import Listener, Settings, check_rows
from .start import StartInput, get_start
from .starts import Seeds

Compute = Callable[[Data, Settings, Listener], Clustering]
"""A way to fit, such as :func:`fit`."""


def fit(data: Data, settings: Settings, listener: Listener | None = None) -> Clustering:
    """Run the loop from one or several starts, and return the result of the lowest objective; ties go to the first run.

    Parameters
    ----------
    data : Data
        The rows, as an engine of :mod:`onmf.data` holds them.
    settings : Settings
        The settings of the fit.
    listener : Listener, optional
        Is told about the progress.

    Returns
    -------
    Clustering

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.data import get_engine
    >>> from onmf.divergence import KullbackLeibler
    >>> from onmf.fit import Settings, fit
    >>> X = np.array([[9.0, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
    >>> fit(get_engine("cpu").make_data(X, KullbackLeibler()), Settings(n_clusters=2)).labels
    array([0, 0, 1, 1], dtype=int32)
    """
    listener = listener or Listener()
    check_rows(data.shape[0], settings.n_clusters)
    search = prepare_search(data, settings.plan)  # once, also for the runs behind a consensus

    def start(run: int) -> LazySeeds:
        return seeds_of_run(data, settings, listener, run, search)

    best = best_run(data, start, settings.seeds, settings.plan, listener.watch, search)
    warn_about(best, settings.plan.max_iter)
    (margins,) = data.map_rows(margins_of, best.centroids, labels=best.labels)
    return in_input_memory(data, replace(best, parameters=settings.parameters, margins=margins))


def first_seeds(
    data: Data, settings: Settings, listener: Listener, run: int = 0, search: Search | None = None
) -> Seeds:
    """The seeds of a run."""
    seeds = seeds_of_run(data, settings, listener, run, search)
    return seeds() if callable(seeds) else seeds


def seeds_of_run(
    data: Data, settings: Settings, listener: Listener, run: int = 0, search: Search | None = None
) -> LazySeeds:
    """The seeds of a run, or a function that computes them in the thread of the run."""
    start = get_start(settings.init)
    assert start is not None, "init was checked"
    given = StartInput(data, settings, int(settings.seeds[run]), listener, search)
    if start.by_runs:  # such a start reports its own runs to the listener
        seeds = start.seeds(given)
        listener.begin_run()
        return seeds
    listener.begin_run()
    return partial(start.seeds, given) if start.moves_rows else start.seeds(given)


def in_input_memory(data: Data, clustering: Clustering) -> Clustering:
    """The clustering with its arrays computed, in the memory of the data (host or GPU)."""
    names = ("labels", "scales", "centroids", "masses", "margins")
    arrays = data.to_input_memory(*(getattr(clustering, name) for name in names))
    return replace(clustering, **dict(zip(names, arrays, strict=True)))


def warn_about(clustering: Clustering, max_iter: int) -> None:
    """Warn about empty clusters and a fit that did not converge."""
    k = len(clustering.centroids)
    if clustering.n_filled < k:
        why = f"X has fewer distinct directions than n_clusters={k}. Ask for fewer clusters."
        if clustering.stop_reason in ("max_iter", "callback"):
            why = "the fit was stopped before they could be filled."
        elif clustering.stop_reason == "batch":
            why = "the batches so far have no rows for the others."
        warn(f"Only {clustering.n_filled} of {k} clusters hold rows: {why}", ConvergenceWarning)
    if clustering.stop_reason == "max_iter":
        warn(
            f"Not converged after max_iter={max_iter} iterations: {clustering.history['moved'][-1]} rows moved in the "
            f"last one, and H changed by {clustering.history['change'][-1]:.1e}. Raise max_iter or tol.",
            ConvergenceWarning,
        )
