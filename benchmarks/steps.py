"""What should follow the votes of a consensus of views? A choice that needs no labels.

The distinct words of every document are halved at random, so that a burst of one word is in one half only. 24 runs in
three views vote on each half by itself, and every candidate goes on from the same votes.

*Held-out words.* A clustering of one half predicts the other half: the words of a document are drawn from those of the
other documents of its cluster, mixed with those of the whole collection. The score is the gain over the collection
alone, in nats for each distinct word, as a mean over documents and over both halves. Words count once, however often
they occur. The mixture of each clustering is the best one of a grid.

*Bits in common* of the two clusterings, which know different words of the same documents: their adjusted mutual
information times their entropy.

The rule, written down before anything was measured: the gain of a candidate is divided by that of the votes as they
are, and averaged over sets. The highest average wins. Of candidates within one standard error of it (over sets, of the
difference), the one with more bits in common wins. What is in steps.json is not measured again. The table is written as
steps.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_array
from scipy.special import log_softmax, xlogy
from sklearn.metrics import adjusted_mutual_info_score

from onmf.backend import Block, CpuBackend
from onmf.data import InMemory
from onmf.divergence import Cosine, KullbackLeibler
from onmf.door.votes import RUNS
from onmf.fit import Listener, Plan
from onmf.fit.describe import losses_of
from onmf.fit.restarts import best_run, cast_votes, cluster_votes, votes_of
from onmf.fit.starts import Seeds, from_sums
from onmf.text.consensus import log_tfidf, reassign

from .data import DOCSTRINGS, available, load, members_of
from .results import Grid, Record, Store, bold, publish, section, table

PRIOR = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Parts of the collection to one of a cluster, when a cluster predicts."""

SETTLED, MOST_STEPS = 1e-3, 50
"""A loop ends when it moves no larger share of the documents, or after so many steps."""


@dataclass(frozen=True)
class Ballot:
    """Half of the words of documents, in three views, and the votes on them."""

    views: list[Block]  # counts, log-tf-idf, and log-tf-idf by cosine
    votes: Any  # (n, runs), clusters
    elected: Any  # (n,), clusters
    k: int
    seed: int


def ballot(X: Any, k: int, seed: list[int], threads: int) -> Ballot:
    """Vote as in a consensus of views, and elect clusters."""
    backend, plan, rng = CpuBackend(n_threads=threads), Plan(refine="local-search"), np.random.default_rng(seed)
    logs = log_tfidf(X)
    kinds: list[tuple[Any, Any]] = [(X, KullbackLeibler()), (logs, KullbackLeibler()), (logs, Cosine())]
    views = [backend.make_block(*kind) for kind in kinds]
    options: dict[str, Any] = {"n_runs": RUNS // len(views), "plan": plan, "listener": Listener()}
    votes = np.concatenate([cast_votes(InMemory(view), k, rng, **options) for view in views], axis=1)
    elected, _ = cluster_votes(views[0], votes, k, rng, plan)
    return Ballot(views, votes, elected, k, int(rng.integers(2**31)))


# Candidates: from a ballot to labels.


def fit_on_counts(given: Ballot) -> Any:
    """Fit the counts from the elected clusters, with local search."""
    start = Seeds(from_sums(_sums(given.views[0], given.elected, given.k)))
    plan = Plan(refine="local-search")
    return best_run(InMemory(given.views[0]), lambda run: start, np.array([given.seed]), plan).labels


def all_views(given: Ballot, whole: float | None) -> Any:
    """Assign documents by the sum of their losses per word, each view in units of its gap."""
    parts = _parts(given, whole)
    sizes = [np.maximum(view.divergence.row_size(view.terms), 1e-12)[:, None] for view in given.views]
    gaps: list[float] = []

    def together(labels: Any) -> Any:
        views = zip(given.views, parts, sizes, strict=True)
        losses = [_losses(view, labels, given.k, w) / size for view, w, size in views]
        for each in losses if not gaps else ():
            first, second = np.partition(each, 1, axis=1)[:, :2].T
            gaps.append(float(np.median(second - first)) or 1.0)
        return np.sum([each / gap for each, gap in zip(losses, gaps, strict=True)], axis=0)

    return _loop(together, given)


def likely_views(given: Ballot) -> Any:
    """Assign documents by the sum of their losses, each view at the temperature at which it tells the votes best."""
    parts, k, n = _parts(given, None), given.k, len(given.elected)
    voted = votes_of(given.votes, k)
    common = (voted.T @ members_of(given.elected, k)).toarray()
    shares = (voted @ (common / np.maximum(common.sum(axis=1, keepdims=True), 1))) / given.votes.shape[1]

    def losses(labels: Any) -> list[Any]:
        return [_losses(view, labels, k, w) for view, w in zip(given.views, parts, strict=True)]

    first = losses(given.elected)
    units = [float(np.median(np.ptp(each, axis=1))) or 1.0 for each in first]

    def unlikely(weights: Any) -> tuple[float, Any]:
        scores = -np.sum([w / u * each for w, u, each in zip(weights, units, first, strict=True)], axis=0)
        logs = log_softmax(scores, axis=1)
        slope = [((shares - np.exp(logs)) * each).sum() / u / n for each, u in zip(first, units, strict=True)]
        return -float((shares * logs).sum()) / n, np.array(slope)

    weights = minimize(unlikely, np.ones(len(first)), jac=True, bounds=[(0, None)] * len(first)).x / units
    return _loop(lambda labels: np.sum([w * e for w, e in zip(weights, losses(labels), strict=True)], axis=0), given)


CANDIDATES: dict[str, tuple[str, Callable[[Ballot], Any]]] = {
    "votes": ("the votes as they are", attrgetter("elected")),
    "counts": ("a fit on counts", fit_on_counts),
    "views 0.1": ("all views, 0.1 parts of the collection", partial(all_views, whole=0.1)),
    "views 1": ("all views, 1 part", partial(all_views, whole=1.0)),
    "views 10": ("all views, 10 parts", partial(all_views, whole=10.0)),
    "views 100": ("all views, 100 parts", partial(all_views, whole=100.0)),
    "views": ("all views, parts by likelihood", partial(all_views, whole=None)),
    "temperatures": ("all views at temperatures by likelihood", likely_views),
    "bursts": ("counts that come in bursts", lambda given: reassign(given.views[0], given.elected, given.k)[0]),
}


def _loop(together: Callable[[Any], Any], given: Ballot) -> Any:
    """Assign documents to the cluster of the lowest loss, again and again, as long as no cluster is emptied."""
    labels = given.elected
    for _ in range(MOST_STEPS):
        new = together(labels).argmin(axis=1).astype(np.int32)
        if len(np.unique(new)) < len(np.unique(labels)):
            break
        moved, labels = np.count_nonzero(new != labels), new
        if moved <= SETTLED * len(labels):
            break
    return labels


def _sums(block: Block, labels: Any, k: int) -> Any:
    return block.sum_by_label(labels, block.fixed_weights, k)


def _losses(block: Block, labels: Any, k: int, whole: float) -> Any:
    """Losses against clusters, by Kullback–Leibler against their profiles mixed with that of the collection."""
    sums = from_sums(_sums(block, labels, k))
    if not isinstance(block.divergence, KullbackLeibler):
        return losses_of(block, sums)
    profiles = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)
    mixed = (profiles + whole * sums.sum(axis=0) / sums.sum()) / (1 + whole)
    return losses_of(block, mixed, block.divergence.unsmoothed())


def _parts(given: Ballot, whole: float | None) -> list[float]:
    """Parts of the collection to one of a cluster in each view; by default those that predict documents best."""
    if whole is not None:
        return [whole] * len(given.views)
    return [_likeliest_parts(view, given.elected, given.k) for view in given.views]


def _likeliest_parts(block: Block, labels: Any, k: int) -> float:
    """Parts with which the clusters, each without the words of a document, predict its words best."""
    if not isinstance(block.divergence, KullbackLeibler):
        return 0.0  # cosine needs no mixture
    X, sums = block.on_host, _sums(block, labels, k)
    row = np.repeat(np.arange(len(block)), np.diff(X.indptr))
    totals = sums.sum(axis=1)[labels] - np.asarray(X.sum(axis=1)).ravel()
    others = (sums[labels[row], X.indices] - X.data) / np.maximum(totals[row], 1e-300)
    collection = (sums.sum(axis=0) / sums.sum())[X.indices]

    def unlikely(log_whole: float) -> float:
        whole = np.exp(log_whole)
        return -float((X.data * np.log((others + whole * collection) / (1 + whole))).sum())

    return float(np.exp(minimize_scalar(unlikely, bounds=(-7, 7), method="bounded").x))


# The criteria.


def halved(X: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Put each distinct word of each document into one of two halves. Those in one half only are left out."""
    first = rng.random(len(X.data)) < 0.5
    halves = [csr_array((X.data * own, X.indices.copy(), X.indptr.copy()), shape=X.shape) for own in (first, ~first)]
    for half in halves:
        half.eliminate_zeros()
    one, other = (half[np.all([np.diff(half.indptr) > 0 for half in halves], axis=0)] for half in halves)
    return one, other


def gain(hidden: Any, labels: Any, k: int) -> float:
    """How much better clusters predict distinct words than the collection does, in nats for each word."""
    n, lengths = hidden.shape[0], np.diff(hidden.indptr)
    row = np.repeat(np.arange(n), lengths)
    sums = (members_of(labels, k).T @ (hidden > 0).astype(float)).toarray()
    collection = (sums.sum(axis=0) / sums.sum())[hidden.indices]
    others = (sums[labels[row], hidden.indices] - 1) / np.maximum((sums.sum(axis=1)[labels] - lengths)[row], 1)
    return max(float(((np.log((others / collection + w) / (1 + w))) / lengths[row]).sum() / n) for w in PRIOR)


def in_common(one: Any, other: Any) -> float:
    """Bits that two clusterings share, corrected for chance."""
    shares = [np.bincount(labels) / len(labels) for labels in (one, other)]
    return float(adjusted_mutual_info_score(one, other) * np.mean([-xlogy(s, s).sum() / np.log(2) for s in shares]))


def measure(name: str, X: Any, k: int, seed: int, threads: int) -> list[Record]:
    """Vote on both halves of the words of a set, and score every candidate."""
    halves = halved(X, np.random.default_rng([seed, 0]))
    ballots = [ballot(half, k, [seed, 1 + number], threads) for number, half in enumerate(halves)]
    cells = []
    for candidate, (_, step) in CANDIDATES.items():
        labels = [np.asarray(step(each)) for each in ballots]
        gains = [gain(hidden, found, k) for hidden, found in zip(halves[::-1], labels, strict=True)]
        scores = {"gain": float(np.mean(gains)), "common": in_common(*labels)}
        cells.append({"set": name, "seed": seed, "step": candidate} | scores)
    return cells


def run(sets: tuple[str, ...] = (), seeds: int = 3, threads: int = 2, out: Path = Path("docs/optima")) -> None:
    """Measure what is missing, and write the tables."""
    store = Store(out / "steps.json", ("set", "seed"))
    for seed in range(seeds):
        for name in sets or (*available("documents"), DOCSTRINGS):
            known = {record["step"] for record in store.records if store.key(record) == (name, seed)}
            if not known >= set(CANDIDATES):
                X, y = load(name)
                store.add(*measure(name, X, len(np.unique(y)), seed, threads))
    publish(out / "steps.md", summary(store.records))


def summary(records: list[Record]) -> list[str]:
    """Return the tables."""
    names = sorted({record["set"] for record in records}, key=str.lower)
    grid = Grid(records, {step: title for step, (title, _) in CANDIDATES.items()}, names, "step")
    gains, common = (np.array([grid.means(step, key) for step in grid.titles]) for key in ("gain", "common"))
    relative = gains / gains[0]
    best = int(relative.mean(axis=1).argmax())
    behind = relative[best] - relative
    error = behind.std(axis=1, ddof=1) / np.sqrt(len(names)) if len(names) > 1 else np.zeros(len(behind))
    chosen = max(np.flatnonzero(behind.mean(axis=1) <= error), key=lambda i: common[i].mean())
    rows = []
    for i, title in enumerate(grid.titles.values()):
        lag = "" if i == best else f"{100 * behind[i].mean():.1f} ± {100 * error[i]:.1f} %"
        scores = [f"{gains[i].mean():.4f}", f"{100 * (relative[i].mean() - 1):+.1f} %", lag, f"{common[i].mean():.3f}"]
        rows.append([bold(title, i == chosen), *scores])
    columns = ["after the votes", "gain from held-out words", "against the votes", "behind the best", "bits in common"]
    return [
        *table(columns, rows),
        *section("Gain, nats for each 100 words", grid.by_set(lambda *cell: f"{100 * grid.mean(*cell, 'gain'):.2f}")),
        *section("Bits in common", grid.by_set(lambda *cell: f"{grid.mean(*cell, 'common'):.3f}")),
    ]
