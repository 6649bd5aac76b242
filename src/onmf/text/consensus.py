"""A consensus of views of documents: words weighed in three ways that err differently.

The counts themselves, where every occurrence of a word counts. The logarithms of the counts times the inverse document
frequency (log-tf-idf), where a word that comes in bursts or is in most documents counts less. And log-tf-idf by cosine,
where all documents count the same, however long they are. No way is best everywhere, so runs in all of them vote, and
the votes are clustered as in :mod:`onmf.fit.restarts`.

Documents then move to the clusters in which they are most likely if words come in bursts. A word that is in a document
once is likely to be in it again, so its tenth occurrence tells little that the first did not. The Dirichlet compound
multinomial says so. A document with the counts x in a cluster with the profile p has the probability

    Γ(β) / Γ(β + Σx) · Π_j Γ(x_j + β p_j) / Γ(β p_j),

up to a factor that is the same for all clusters. The first occurrence of word j counts log(β p_j), the one after m
others log(β p_j + m). The lower β, the stronger are the bursts. As β grows, this becomes the multinomial.

The clusters that result are described by their counts.

Reference: Madsen, Kauchak and Elkan, Modeling word burstiness using the Dirichlet distribution, ICML 2005.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from onmf import interrupt
from onmf.backend import Block, to_host
from onmf.confidence import REFIT_SEED, every_run
from onmf.data import Data, InMemory
from onmf.divergence import Array, Cosine, FloatArray, divide
from onmf.door.votes import RUNS
from onmf.estimator import ONMF, fit_model
from onmf.fit import Clustering, Listener, Settings
from onmf.fit.restarts import cast_votes, check_rows, cluster_votes, fields_from_labels
from onmf.fit.solve import warn_about, with_margins
from onmf.fit.starts import from_sums
from onmf.functions import exp, log, log1p
from onmf.naming import order_by_size

VIEWS = 3

STEPS = 4  # Steps of one unit of log-tf-idf. Rounded ones are whole numbers, with which local searches are fast.
MOST_REPEATS = 100  # Occurrences of a word in a document that count. Later ones hardly tell clusters apart.

STOP_SHARE, MAX_STEPS = 1e-3, 50
"""Documents stop moving when a step moves no larger share of them, or after so many steps."""

TINY = float(np.finfo(np.float64).tiny)  # Share of a word that no document of positive weight has


class Bursts(NamedTuple):
    """What all clusters share."""

    whole: float  # parts of the profile of all documents that are mixed with one part of a cluster's own
    strength: float  # β, the number of occurrences that the profile counts as much as


def consensus_of_views(
    X: Any, n_clusters: int, *, n_runs: int = RUNS, progress: Callable[[float], None] | None = None, **parameters: Any
) -> ONMF:
    """Cluster documents by a consensus of three views of their words: counts, log-tf-idf, and log-tf-idf by cosine.

    Parameters
    ----------
    X : array or sparse array of shape (documents, words)
        Counts, in memory.
    n_clusters : int
        Number of clusters.
    n_runs : int, default=24
        Number of runs that vote, over all views.
    progress : callable, optional
        Called after each run with the share of the runs that are done.
    **parameters
        Parameters of :class:`onmf.ONMF`: ``random_state``, ``n_threads``, ``max_iter``, ``tol``, ``smoothing`` or
        ``engine``.

    Returns
    -------
    ONMF
        A model of the counts under Kullback–Leibler. ``labels_`` are those of the consensus, and the centroids are
        computed from them. ``predict``, which knows no bursts, can put a document of ``X`` elsewhere;
        :func:`onmf.text.predict` follows the rule above. ``agreement_`` tells how far the runs agree.

    Examples
    --------
    >>> from onmf.datasets import make_counts
    >>> from onmf.metrics import clustering_accuracy
    >>> from onmf.text import consensus_of_views
    >>> data = make_counts(300, 80, 4, random_state=0)
    >>> model = consensus_of_views(data.X, 4, random_state=0)
    >>> bool(clustering_accuracy(data.y, model.labels_) > 0.95)
    True
    """
    fixed: dict[str, Any] = {"init": "consensus", "refine": "local-search", "n_consensus": n_runs}
    for name in ("beta_loss", "n_init", *fixed):
        if name in parameters:
            raise ValueError(f"{name}={parameters[name]!r} is not allowed: a consensus of views has its own.")
    found: list[Bursts] = []
    compute = partial(_fit, progress=progress, found=found)
    model: ONMF = fit_model(ONMF(n_clusters, **fixed, **parameters), X, compute=compute)
    model.extra_ = {"kind": "matrix", "bursts": list(found[0])}
    return model


def rule_of_bursts(model: ONMF) -> Callable[[Any], FloatArray] | None:
    """The rule that settled the labels of a consensus of views; None for another model.

    It takes counts, and returns the logarithms of their probabilities in each cluster, up to a number for each row.
    """
    bursts = getattr(model, "extra_", {}).get("bursts")
    if bursts is None:
        return None
    sums = to_host(model.clustering_.masses)[:, None] * to_host(model.cluster_centers_)
    return lambda X: log_likelihoods(csr_array(X), sums, Bursts(*bursts))


def _fit(
    data: Data,
    settings: Settings,
    listener: Listener,
    *,
    progress: Callable[[float], None] | None,
    found: list[Bursts],
) -> Clustering:
    """Cluster counts by a consensus of views, the largest cluster first; how words come in bursts is ``found``, too."""
    if not isinstance(data, InMemory):
        raise ValueError("A consensus of views needs all rows in memory, and X comes in parts: use ONMF.")
    k, rng = settings.n_clusters, np.random.default_rng(int(settings.seeds[0]))
    check_rows(data.shape[0], k)
    block, logs = data.block, log_tfidf(data.block.on_host)
    votes, runs, report = [], count(1), progress or (lambda share: None)

    def done() -> None:
        report(next(runs) / settings.n_consensus)

    for number, divergence in enumerate((None, data.divergence, Cosine())):
        # If the runs cannot be divided evenly, the first views have one more.
        if n_runs := (settings.n_consensus + VIEWS - 1 - number) // VIEWS:
            view = data if divergence is None else InMemory(block.backend.make_block(logs, divergence, block.weights))
            votes.append(cast_votes(view, k, rng, n_runs=n_runs, plan=settings.plan, listener=listener, done=done))
    listener.begin_run()
    elected, agreement = cluster_votes(block, np.concatenate(votes, axis=1), k, rng, settings.plan)
    labels, history, bursts = reassign(block, elected, k)
    found.append(bursts)
    labels = np.argsort(order_by_size(labels, k)).astype(np.int32)[labels]
    result = Clustering(
        **fields_from_labels(data, labels, from_sums(block.sum_by_label(labels, to_host(block.fixed_weights), k))),
        n_iter=len(history["moved"]),
        stop_reason="converged",
        history=history,
        init_rows=None,
        parameters=settings.parameters,
        agreement=agreement,
    )
    warn_about(result, settings.plan.max_iter)
    return with_margins(data, result)


def log_tfidf(X: Any) -> csr_array:
    """log(1 + x) · idf of each count x, in quarters, rounded. → (documents, words) of int32"""
    counts = csr_array(X)
    n, p = counts.shape
    idf = 1 + log((1 + n) / (1 + np.bincount(counts.indices, minlength=p)))
    values = np.rint(STEPS * log1p(counts.data) * idf[counts.indices])
    present = np.where(counts.data > 0, np.maximum(values, 1), 0).astype(np.int32)
    return csr_array((present, counts.indices, counts.indptr), shape=counts.shape)


def independent_runs(model: ONMF, X: csr_array, *, n_runs: int = 9, seed: int = REFIT_SEED) -> list[Array]:
    """The labels of some rows of a consensus of views in runs of their own, as many in each view."""
    labels, logs = [], log_tfidf(X)
    plan: dict[str, Any] = {"init": "random-partition", "n_init": n_runs // VIEWS, "refine": "local-search"}
    plan |= {name: getattr(model, name) for name in ("max_iter", "tol", "engine", "n_threads")}
    views = ((model.divergence_, X), (model.divergence_, logs), (Cosine(), logs))
    for number, (divergence, values) in enumerate(views):
        one = ONMF(model.n_clusters, beta_loss=divergence, random_state=seed + number, **plan)
        labels += [run.labels for run in every_run(one, values)]
    return labels


def reassign(block: Block, labels: Array, k: int) -> tuple[Array, dict[str, Array], Bursts]:
    """Assign rows of counts to the clusters in which they are most likely, again and again.

    A step that would leave a cluster without rows is not taken. The numbers that all clusters share are estimated once,
    so that the steps do not chase a moving aim. Returns the labels; the rows that each step moved, and its seconds; and
    these numbers.
    """
    X, moved, seconds = csr_array(block.on_host), list[int](), list[float]()
    bursts = estimate(X, block.host_weights, labels, k)
    for _ in range(MAX_STEPS):
        interrupt.check()
        began = perf_counter()
        new = log_likelihoods(X, block.sum_by_label(labels, block.host_weights, k), bursts).argmax(axis=1)
        if len(np.unique(new)) < len(np.unique(labels)):
            new = labels
        moved.append(int(np.count_nonzero(new != labels)))
        seconds.append(perf_counter() - began)
        labels = new.astype(np.int32)
        if moved[-1] <= STOP_SHARE * len(labels):
            break
    return labels, {"moved": np.array(moved), "seconds": np.array(seconds)}, bursts


def estimate(X: csr_array, weights: FloatArray, labels: Array, k: int) -> Bursts:
    """The numbers at which rows are most likely in their clusters, if they have no part in the profiles of these."""
    n, row = X.shape[0], np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    by_entry = weights[row]
    own = by_entry * X.data
    sums = np.zeros((k, X.shape[1]))
    np.add.at(sums, (labels[row], X.indices), own)
    totals = sums.sum(axis=1)[labels] - np.bincount(row, weights=own, minlength=n)
    others = divide(np.maximum(sums[labels[row], X.indices] - own, 0.0), totals[row])
    whole = divide(sums.sum(axis=0), sums.sum())[X.indices]
    levels = list(_levels(X))
    by_length = np.bincount(sum(np.bincount(row[places], minlength=n) for places in levels), weights=weights)

    def unlikely(logs: FloatArray) -> float:
        parts, strength = exp(logs)
        mixed = strength * (others + parts * whole) / (1 + parts)
        found = 0.0
        for before, places in enumerate(levels):
            found += float((by_entry[places] * log(np.maximum(mixed[places] + before, TINY))).sum())
        rising = np.concatenate([[0.0], np.cumsum(log(strength + np.arange(len(by_length) - 1)))])
        return float((by_length * rising).sum()) - found

    start = log([1.0, 100.0])
    options = {"xatol": 0.01, "fatol": np.inf, "initial_simplex": start + np.eye(3, 2)}
    bounds = [log([1e-3, 1e6])] * 2
    best = minimize(unlikely, start, method="Nelder-Mead", bounds=bounds, options=options)
    return Bursts(*exp(best.x).tolist())


def log_likelihoods(X: csr_array, sums: FloatArray, bursts: Bursts) -> FloatArray:
    """The logarithm of the probability of each row in each cluster, up to a number for each row. → (rows, clusters)"""
    profiles = divide(sums, sums.sum(axis=1, keepdims=True)) + bursts.whole * divide(sums.sum(axis=0), sums.sum())
    profiles *= bursts.strength / (1 + bursts.whole)
    n, p = X.shape
    found, row = np.zeros((n, len(sums))), np.repeat(np.arange(n), np.diff(X.indptr))
    for before, places in enumerate(_levels(X)):
        present = np.bincount(X.indices[places], minlength=p) > 0
        columns = np.flatnonzero(present)
        narrow = (np.cumsum(present, dtype=np.int64) - 1)[X.indices[places]]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row[places], minlength=n))])
        level = csr_array((np.ones(len(places)), narrow, indptr), shape=(n, len(columns)))
        found += level @ log(np.maximum(profiles[:, columns] + before, TINY)).T
    return found


def _levels(X: csr_array) -> Iterator[Array]:
    """Yield the places of the stored counts above 0, above 1, above 2, and so on.

    One level after the other is in memory, since all of them can be much larger than the counts.
    """
    repeats = np.minimum(np.ceil(X.data), MOST_REPEATS).astype(np.int32)
    before, places = 0, np.flatnonzero(repeats)
    while len(places):
        yield places
        before += 1
        places = places[repeats[places] > before]
