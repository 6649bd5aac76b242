"""What a fit does, apart from the data: parameters that were checked, as one value."""

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

    Splits and merges follow the local search of the best runs; of every run, if it is to be ``thorough``.
    """

    max_iter: int = 100
    tol: float = 1e-6
    refine: str | None = None
    thorough: bool = False


@dataclass(frozen=True)
class Settings:
    """What a fit does.

    Attributes
    ----------
    n_clusters : int
        Number of clusters.
    init : str, array or callable
        The start, as in :class:`onmf.ONMF`.
    seeds : (runs,) array of int
        Random numbers of each run.
    plan : Plan
        What each run does after its start.
    n_consensus : int
        Runs that vote if ``init="consensus"``.
    parameters : dict
        Kept in the result.
    """

    n_clusters: int
    init: Any = "snpa"
    seeds: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    plan: Plan = field(default_factory=Plan)
    n_consensus: int = 30
    parameters: dict[str, Any] = field(default_factory=dict)


class Listener:
    """Hears how a fit goes on. This one ignores it; subclass it to show progress or to stop early."""

    @property
    def watch(self) -> Watch | None:
        """Called after each iteration, None if nobody wants to know."""
        return None

    def begin_run(self) -> None:
        """A run from another start begins."""


def check_refine(refine: str | None, divergence: Divergence) -> None:
    """Refuse a refinement that is unknown, or that the divergence has no closed form for."""
    if refine is None:
        return
    if not (isinstance(refine, str) and refine == "local-search"):
        raise ValueError(f"refine={refine!r} is not allowed: refine must be None or 'local-search'.")
    if divergence.moves is None:
        raise ValueError(
            f"refine='local-search' needs a closed form for what moving one row gains, and {divergence.name} has none: "
            "use beta_loss='kullback-leibler' or 'cosine', or refine=None with a larger n_init."
        )


def check_rows(n: int, n_clusters: int) -> None:
    """Refuse fewer rows than clusters."""
    if n < n_clusters:
        raise ValueError(
            f"n_samples={n} should be >= n_clusters={n_clusters}: ask for fewer clusters, or pass more rows."
        )
