"""The steps of a run, one after the other, as the loop takes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from onmf.divergence import FloatArray

from .run import Drift, RunState
from .sums import StepSums

if TYPE_CHECKING:
    from .run import Run


class Steps(ABC):
    """The steps of a run, from the first centroids on.

    Attributes
    ----------
    centroids : (k, p) array
        The current centroids, in the memory in which the steps are computed.
    """

    centroids: FloatArray

    @abstractmethod
    def next(self) -> StepSums:
        """Assign every row under the current centroids, and sum by label."""

    @abstractmethod
    def update(self, step: StepSums, *, more: bool) -> Drift:
        """Compute the centroids from the step that :meth:`next` returned; ``more`` says whether another will follow."""

    @abstractmethod
    def put(self, cluster: int, centroid: FloatArray) -> None:
        """Replace one centroid."""


class StepsInTurn(Steps):
    """One step after the other over one block."""

    def __init__(self, run: Run, centroids: FloatArray) -> None:
        self.run = run
        self.centroids = run.block.backend.to_device(np.ascontiguousarray(centroids, dtype=np.float64))

    def next(self) -> StepSums:
        return self.run.step_from(self.centroids)

    def update(self, step: StepSums, *, more: bool) -> Drift:
        return self.run.update(step, self.centroids)

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self.centroids[cluster] = self.run.block.backend.to_device(centroid)


class StepsAhead(StepsInTurn):
    """Starts the next step before the counts of this one reach the host, for a backend that does not wait for results.

    The step ahead is dropped if the loop ends, or if a centroid is replaced. Until :meth:`next` returns it, the run has
    the labels of the step before. The run must not overwrite the sums of that step.
    """

    def __init__(self, run: Run, centroids: FloatArray) -> None:
        super().__init__(run, centroids)
        self._ahead: tuple[StepSums, RunState] | None = None
        self._previous: StepSums | None = None

    def next(self) -> StepSums:
        if self._ahead is None:
            return super().next()
        (step, self.run.state), self._ahead = self._ahead, None
        return step

    def update(self, step: StepSums, *, more: bool) -> Drift:
        drift = super().update(step, more=more)
        # An empty cluster is about to get another centroid, which would make the step ahead useless.
        refilling = self._previous is not None and self._previous.empty.any()
        self._previous = step
        if more and not refilling:
            state = self.run.state
            self._ahead = super().next(), self.run.state
            self.run.state = state
        return drift

    def put(self, cluster: int, centroid: FloatArray) -> None:
        self._ahead = None
        super().put(cluster, centroid)
