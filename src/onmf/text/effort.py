"""How much work a corpus gets: the best clusters that a person is willing to wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scipy.sparse import csr_array

from onmf.divergence import get_divergence
from onmf.estimator import ONMF

from .consensus import RUNS, VIEWS, consensus_of_views

SECONDS = 7e-8
"""Seconds that a run with local search takes on one core for each nonzero count and cluster, roughly: 5e-8 to 9e-8, in
the three views of large collections."""

SECONDS_WITHOUT_SEARCH = 2e-7
"""The same for a run of a divergence that has no local search, such as the negative binomial: 1e-7 to 2e-7."""

PATIENCE = 240.0
"""Seconds of one core that the runs may take, roughly: two minutes on two cores."""

FEWEST = 3 * VIEWS
"""Runs behind a consensus at least. Fewer are hardly better than a single run."""

GIVEN = ("init", "n_init", "refine")
"""Parameters that replace the choice made here."""


@dataclass(frozen=True)
class Effort:
    """How documents are clustered.

    Attributes
    ----------
    sentence : str
        What is done, for people to read; empty if it is what they asked for.
    n_runs : int
        Runs behind a consensus of views; 0 for a fit of :class:`onmf.ONMF`.
    parameters : dict
        Parameters of :class:`onmf.ONMF`.
    """

    sentence: str
    n_runs: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def vote(self) -> str:
        """Who votes on the clusters, in a few words; empty if no views do."""
        return f"{self.n_runs} runs in {VIEWS} views" if self.n_runs else ""

    def fit(self, X: csr_array, n_clusters: int, progress: Callable[[float], None] | None = None) -> ONMF:
        """Cluster documents by their counts."""
        if self.n_runs:
            return consensus_of_views(X, n_clusters, n_runs=self.n_runs, progress=progress, **self.parameters)
        return ONMF(n_clusters, **self.parameters).fit(X)


def choose_effort(X: csr_array, n_clusters: int, parameters: Mapping[str, Any], *, quick: bool = False) -> Effort:
    """Choose how to cluster documents, by their number and by what the divergence allows.

    Parameters
    ----------
    X : csr_array of shape (documents, words)
        Counts.
    n_clusters : int
        Number of clusters.
    parameters : dict
        Parameters of :class:`onmf.ONMF` that were given. A start, a number of starts or a refinement among them
        replaces the choice, and ``n_consensus`` the number of runs that vote.
    quick : bool, default=False
        Whether to run once, as in the paper.

    Returns
    -------
    Effort
    """
    given = dict(parameters)
    if quick or any(name in given for name in GIVEN):
        return Effort("", parameters=given)
    given = {"random_state": 0} | given  # the same documents give the same clusters, as with the paper's start
    divergence = get_divergence(given.get("beta_loss", "kullback-leibler"))
    asked = given.pop("n_consensus", None)
    searches = divergence.moves is not None
    seconds = SECONDS if searches else SECONDS_WITHOUT_SEARCH
    runs = asked or min(RUNS, int(PATIENCE / (seconds * max(X.nnz, 1) * n_clusters)) // VIEWS * VIEWS)
    searched = given | {"refine": "local-search"} if searches else given
    if asked is None and runs < FEWEST:
        if searches:
            single = "A single run with a local search, since the corpus is large."
            return Effort(single, 0, searched | {"init": "bisection"})
        return Effort("A single run from the paper's start, since the corpus is large.", 0, given)
    if divergence != get_divergence("kullback-leibler"):
        return Effort(
            f"The clusters are a vote of {runs} runs.", 0, searched | {"init": "consensus", "n_consensus": runs}
        )
    given.pop("beta_loss", None)
    return Effort(f"The clusters are a vote of {runs} runs in {VIEWS} views of the words.", runs, given)
