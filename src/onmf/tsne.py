"""Place rows in the plane for people to look at, by t-SNE. Clusters are never computed from a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onmf.divergence import FloatArray

PERPLEXITY = 30
"""Neighbours that each row is drawn towards, roughly."""

EARLY, LATE = 250, 500
"""Iterations of t-SNE that gather the rows, and that spread them."""

MANY = 10_000
"""From this number of rows on, half of the late iterations are enough: neighbours are kept as well (50,000 rows)."""

SHOWN = 50
"""Iterations between two reports of progress."""

FEW = 10
"""Fewer rows than this have no neighbourhoods to draw: they get their first two components."""

ONE_THREAD = 5000
"""Up to this number of rows, one thread draws the map: threads that wait for each other on a busy machine take longer
(1,300 documents, two threads on two busy cores: 37 s instead of 9 s)."""

Progress = Callable[[str, float | None], None]
"""Called with the name of a step and the share of it that is done."""


def tsne(components: FloatArray, *, seed: int, n_threads: int, progress: Progress, extra: str) -> FloatArray:
    """Place rows in the plane so that similar rows are close, starting from their first two components.

    Parameters
    ----------
    components : ndarray of shape (n, components)
        The rows, with few columns; the first two have the largest variance.
    seed : int
        The same seed, number of threads and machine give the same map.
    n_threads : int
        Threads, if there are many rows.
    progress : callable
        Called with the name of the step and the share of it that is done.
    extra : str
        The extra of onmf that installs openTSNE, for the error if it is missing.

    Returns
    -------
    ndarray of shape (n, 2)
    """
    try:
        from openTSNE import TSNE
        from openTSNE.initialization import rescale
    except ImportError as error:
        raise ImportError(f"The map needs openTSNE: pip install 'onmf[{extra}]'.") from error
    late = LATE if len(components) < MANY else LATE // 2
    done = 0

    def show(iteration: int, error: float, embedding: Any) -> None:
        nonlocal done
        done += SHOWN
        progress("map", min(done / (EARLY + late), 1.0))

    found = TSNE(
        perplexity=min(PERPLEXITY, (len(components) - 1) / 3),
        initialization=rescale(first_two(components)),
        early_exaggeration_iter=EARLY,
        n_iter=late,
        n_jobs=n_threads if len(components) > ONE_THREAD else 1,
        callbacks=show,
        callbacks_every_iters=SHOWN,
        random_state=seed,
    ).fit(components)
    return np.asarray(found, dtype=np.float64)


def first_two(components: FloatArray) -> FloatArray:
    """Return the first two components; zeros for those that are missing. → (n, 2)"""
    plane = np.zeros((len(components), 2))
    plane[:, : components.shape[1]] = components[:, :2]
    return plane
