"""The settings of a fit: checked parameters, without the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray

from .loop import Iteration

Watch = Callable[[int, Iteration, FloatArray], bool]
"""Called after each iteration as ``watch(run, iteration, centroids)``; a true result stops that run."""


@dataclass(frozen=True)
class Plan:
    """What every run does after its start: the parameters of :class:`onmf.ONMF` of the same names.

    The local search of the best runs is followed by splits and merges; if ``thorough``, that of every run is.
    """

    max_iter: int = 100
    tol: float = 1e-6
    refine: str | None = None
    thorough: bool = False


@dataclass(frozen=True)
class Settings:
    """The settings of a fit.

    Attributes
    ----------
    n_clusters : int
        Number of clusters.
    init : str, array or callable
        The start, as in :class:`onmf.ONMF`.
    seeds : (runs,) array of int
        Random seed of each run.
    plan : Plan
        What each run does after its start.
    n_consensus : int
        Number of runs that vote if ``init="consensus"``.
    parameters : dict
        Parameters to record in the result.
    """

    n_clusters: int
    init: Any = "snpa"
    seeds: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    plan: Plan = field(default_factory=Plan)
    n_consensus: int = 30
    parameters: dict[str, Any] = field(default_factory=dict)


class Listener:
    """Is told about the progress of a fit. This one ignores it; subclass it to show progress or to stop early."""

    @property
    def watch(self) -> Watch | None:
        """The function to call after each iteration; None for no calls."""
        return None

    def begin_run(self) -> None:
        """Called when a run begins."""


def check_moves(refine: str | None, init: Any, divergence: Divergence) -> None:
    """Refuse an unknown refinement, and one or a start that moves single rows if the divergence has no such moves."""
    if not (refine is None or (isinstance(refine, str) and refine == "local-search")):
        raise ValueError(f"refine={refine!r} is not allowed: refine must be None or 'local-search'.")
    if divergence.moves is not None:
        return
    why = "needs a closed form for the gain of moving a row, and"
    instead = "use beta_loss='kullback-leibler' or 'cosine', or"
    if refine is not None:
        raise ValueError(
            f"refine={refine!r} {why} {divergence.name} has none: {instead} refine=None with a larger n_init."
        )
    if isinstance(init, str) and init == "bisection":
        raise ValueError(f"init={init!r} {why} {divergence.name} has none: {instead} init='random-partition'.")


def check_rows(n: int, n_clusters: int) -> None:
    """Refuse fewer rows than clusters."""
    if n < n_clusters:
        raise ValueError(
            f"n_samples={n} should be >= n_clusters={n_clusters}: ask for fewer clusters, or pass more rows."
        )
