"""From counts of cells to clusters: genes, views, trials, runs, and the choice between them."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils import check_random_state

from onmf import interrupt
from onmf.backend import to_host
from onmf.confidence import Calibration, calibrate, every_run, log_chances
from onmf.divergence import Array, FloatArray, NegativeBinomial, get_divergence
from onmf.estimator import ONMF, fit_model
from onmf.fit import Clustering
from onmf.fit.settings import check_moves
from onmf.parameters import check_parameters
from onmf.select import Selection, select_n_clusters
from onmf.tsne import Progress

from .genes import N_TOP_GENES, as_csr, check_number, columns_of, deviances, top_genes
from .views import NAMES, View, log_likelihood, transform
from .views import SAMPLE as LIKELIHOOD_SAMPLE
from .wording import setting

STARTS = 2
"""Runs in the chosen view."""

STARTS_WITHOUT_SEARCH = 5
"""Runs for divergences without a local search."""

EXACT = 1e-6
"""Smoothing of the model. With the default for documents, the model would put a quarter of the cells into other
clusters than the local search by the exact objective does."""

REORDERINGS = 3
"""Fits of the model at most. If cells moved so that the clusters are no longer ordered by size, it is fitted again."""

BEFORE_SEARCH = 20
"""Iterations of a run before its local search, which goes on from there faster than the loop does."""

AFTER_BISECTION = 1
"""The same for a run that starts from a bisection, in which rows were moved one by one already."""

MOST = 50_000
"""Number of cells, chosen at random, on which runs start if there are more."""

TRIED, TRIED_PER_CLUSTER = 1_000, 30
"""Number of cells, chosen at random, on which the views are tried, and the least such number for each cluster."""

AUTO = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 30)
"""Numbers of clusters that are tried if the number is to be chosen."""

AUTO_CELLS, AUTO_GENES = 2_000, 1_000
"""Cells and genes from which the number of clusters is chosen."""


@dataclass(frozen=True)
class Kept:
    """Cells and genes that take part.

    Attributes
    ----------
    cells : ndarray of int
        Rows.
    depths, genes_per_cell : ndarray of shape (n_cells,)
        Sum of the counts of each cell, and number of its genes, of all cells.
    """

    cells: Array
    depths: FloatArray
    genes_per_cell: Array


@dataclass(frozen=True)
class Fit:
    """A fit of cells: the model, the view it was fitted on, and how sure each label is.

    Attributes
    ----------
    model : ONMF
        The model, on the genes of the view.
    view : View
        The view.
    deviance : ndarray of shape (n_genes,)
        Deviance of the counts of each gene.
    confidence : ndarray of shape (n,)
        Probability of the cluster of each cell that took part.
    runners_up : ndarray of shape (n,)
        The best other cluster of each.
    calibration : Calibration
        How the confidence follows from losses.
    notes : list of str
        What was chosen, and why.
    selection : Selection or None
        How the number of clusters was chosen; None if it was given.
    """

    model: ONMF
    view: View
    deviance: FloatArray
    confidence: FloatArray
    runners_up: Array
    calibration: Calibration
    notes: list[str]
    selection: Selection | None = None


def keep_cells(X: Any, min_genes: int) -> Kept:
    """Count each cell, and keep those with enough genes."""
    check_number("min_genes", min_genes, "genes")
    depths, genes = [], []
    for batch in as_csr(X):
        depths.append(batch.sum(axis=1, dtype=np.float64))
        genes.append(np.diff(batch.indptr).astype(np.int64))
    totals, per_cell = np.concatenate(depths), np.concatenate(genes)
    cells = np.flatnonzero(per_cell >= min_genes)
    if not len(cells):
        raise ValueError(
            f"min_genes={min_genes} leaves no cells: no cell has more than {per_cell.max()} genes. Lower min_genes."
        )
    return Kept(cells, totals, per_cell)


@interrupt.heeding
def fit_counts(
    X: Any,
    n_clusters: int | str,
    *,
    n_top_genes: int | None = N_TOP_GENES,
    min_cells: int = 1,
    view: str = "auto",
    progress: Progress | None = None,
    **parameters: Any,
) -> Fit:
    """Cluster cells by their counts.

    Parameters
    ----------
    X : array or sparse array of shape (n_cells, n_genes), in memory, on disk or of Dask
        Counts. The columns of the chosen genes are read into memory.
    n_clusters : int or "auto"
        Number of clusters. ``"auto"`` chooses it by the likelihood of held-out counts.
    n_top_genes : int or None, default=2000
        Number of genes, those of the highest deviance; None uses all genes.
    min_cells : int, default=1
        Genes in fewer cells are not used.
    view : {"auto", "counts", "logs"}, default="auto"
        What is clustered: counts, or their normalised logarithms. ``"auto"`` tries both on some cells, and takes the
        one under whose clusters the counts are more likely; for other divergences than Kullback–Leibler it takes the
        counts. The negative binomial refuses ``"logs"``: it describes counts.
    progress : callable, optional
        Called with the name of a step and the share of it that is done.
    **parameters
        Parameters of :class:`onmf.ONMF`. By default ``init="bisection"`` and ``n_init=2``, with local
        search, splits and merges.

    Returns
    -------
    Fit
    """
    report = progress or (lambda name, share: None)
    names = _views(view, parameters)
    check_number("min_cells", min_cells, "cells")
    if n_top_genes is not None:
        check_number("n_top_genes", n_top_genes, "genes")
    auto = isinstance(n_clusters, str)
    if auto and n_clusters != "auto":
        raise ValueError(f"n_clusters={n_clusters!r} is not allowed: give a number, or 'auto'.")
    rng = np.random.default_rng(check_random_state(parameters.setdefault("random_state", 0)).randint(2**31 - 1))
    model = _model(AUTO[0] if auto else n_clusters, parameters)
    report("choosing genes", None)
    seen = tuple(dict.fromkeys(("counts", *names)))
    deviance = dict(zip(seen, deviances(X, [partial(transform, name) for name in seen]), strict=True))
    usable = _in_enough_cells(X, min_cells)
    views = [View(name, _choose(np.where(usable, deviance[name], 0.0), n_top_genes)) for name in names]
    columns = np.unique(np.concatenate([each.genes for each in views]))
    if not len(columns):
        where = "" if usable.all() else f" that is in {min_cells} cells"
        raise ValueError(f"No gene{where} differs between the cells: there is nothing to cluster by.")
    counts = columns_of(X, columns)
    notes: list[str] = []
    selection = None
    if auto:
        report("choosing the number of clusters", None)
        selection = _choose_number(counts, deviance["counts"][columns], rng, model)
        model.n_clusters = selection.n_clusters
        notes += selection.notes("cells")
    sample = _some(counts.shape[0], MOST, rng)
    if len(sample) < counts.shape[0]:
        notes.append(f"The runs started on {MOST:,} cells, chosen at random, and the best one ended on all of them.")
    report("clustering", 0.0)
    tried = sample[_some(len(sample), max(TRIED, TRIED_PER_CLUSTER * model.n_clusters), rng)]
    trials, chosen, note = _try(model, views, csr_array(counts[tried]), columns, rng)
    notes.append(note)
    report("clustering", 0.3)
    values = chosen.values(counts, columns)
    chosen_values = values if len(sample) == counts.shape[0] else csr_array(values[sample])
    clusterings = every_run(model, chosen_values, thorough=True)
    report("clustering", 0.9)
    best = min(clusterings, key=lambda run: run.objective)
    model = _finish(model, values, best, {"smoothing": EXACT, "max_iter": 100} | parameters)
    report("clustering", 1.0)
    labels = to_host(model.labels_)
    empty = int(np.count_nonzero(values.sum(axis=1) == 0))
    if empty:
        notes.append(
            "1 cell has no count of the chosen genes. Its cluster means nothing."
            if empty == 1
            else f"{empty:,} cells have no count of the chosen genes. Their cluster means nothing."
        )
    report("measuring how sure the labels are", None)
    chances = log_chances(model, values)
    voted = [trial.labels for trial in trials]
    voted += [to_host(run.labels)[np.searchsorted(sample, tried)] for run in clusterings]
    calibration = calibrate(chances[tried], labels[tried], voted)
    sure, following = calibration.apply(chances, labels)
    return Fit(model, chosen, deviance["counts"], sure, following, calibration, notes, selection)


def _views(view: str, parameters: dict[str, Any]) -> tuple[str, ...]:
    """The views to try. Other divergences than Kullback–Leibler are not compared by a likelihood of counts."""
    if view not in (*NAMES, "auto"):
        raise ValueError(f"view={view!r} is not allowed: use 'auto', {' or '.join(map(repr, NAMES))}.")
    divergence = get_divergence(parameters.get("beta_loss", "kullback-leibler"))
    if view == "logs" and isinstance(divergence, NegativeBinomial):
        raise ValueError(
            "view='logs' is not allowed with the negative binomial, which describes counts, and logarithms are no "
            f"counts: use {setting('view', 'counts')}, or another divergence."
        )
    if view != "auto":
        return (view,)
    return NAMES if divergence == get_divergence("kullback-leibler") else ("counts",)


def _choose(values: FloatArray, n_top_genes: int | None) -> Array:
    return np.flatnonzero(values > 0) if n_top_genes is None else top_genes(values, n_top_genes)


def _in_enough_cells(X: Any, min_cells: int) -> Array:
    """Which genes are in enough cells."""
    if min_cells == 1:
        return np.ones(X.shape[1], dtype=bool)
    cells = sum(np.bincount(batch.indices, minlength=X.shape[1]) for batch in as_csr(X))
    return np.asarray(cells >= min_cells)


def _choose_number(counts: csr_array, deviances: FloatArray, rng: np.random.Generator, model: ONMF) -> Selection:
    """Choose the smallest number of clusters whose held-out likelihood is within one standard error of the best."""
    n = counts.shape[0]
    if n < 4:
        raise ValueError(f"n_clusters='auto' needs at least 4 cells, and there are {n}: give the number of clusters.")
    rows = _some(n, AUTO_CELLS, rng)
    sample = csr_array(counts[rows][:, top_genes(deviances, AUTO_GENES)])
    candidates = [k for k in AUTO if k <= max(2, n // 10)]
    seed = int(rng.integers(2**31))
    selection = select_n_clusters(
        sample,
        candidates,
        criterion="held-out",
        n_splits=1,
        n_init=2,
        halves="counts",  # as measured for cells
        n_rows=None,
        beta_loss=model.beta_loss,
        random_state=seed,
        n_threads=model.n_threads,
    )
    return replace(selection, n_total=n, fewest=True)


def _model(n_clusters: Any, parameters: dict[str, Any]) -> ONMF:
    """The estimator, with the defaults for cells."""
    divergence = get_divergence(parameters.get("beta_loss", "kullback-leibler"))
    refine = parameters.get("refine", None if divergence.moves is None else "local-search")
    init = parameters.get("init", "random-partition" if divergence.moves is None else "bisection")
    check_moves(refine, init, divergence)
    name = init if isinstance(init, str) else None
    before_search = AFTER_BISECTION if name == "bisection" else BEFORE_SEARCH
    given = {"max_iter": 100 if refine is None else before_search} | parameters | {"init": init, "refine": refine}
    if name not in (None, "snpa"):
        starts = STARTS_WITHOUT_SEARCH if refine is None else STARTS
        given.setdefault("n_init", 1 if name == "consensus" else starts)
    model = ONMF(n_clusters, **given)
    check_parameters(model)
    return model


class Trial(NamedTuple):
    """A run on some cells in one view.

    Attributes
    ----------
    view : View
        The view.
    labels : ndarray of int
        The cluster of each cell.
    likelihood : float
        The likelihood of the counts under these clusters.
    """

    view: View
    labels: Array
    likelihood: float


def _try(
    model: ONMF, views: list[View], counts: csr_array, columns: Array, rng: np.random.Generator
) -> tuple[list[Trial], View, str]:
    """Try each view on some cells. → the trials, the view whose clusters make the counts most likely, and a note"""
    judged = _some(counts.shape[0], LIKELIHOOD_SAMPLE, rng)
    sample = csr_array(counts[judged])
    if len(views) == 1:
        return [], views[0], f"The {views[0].name} of {len(views[0].genes):,} genes were clustered."
    one = clone(model).set_params(n_init=1, random_state=int(rng.integers(2**31 - 1)))

    def run(view: View) -> Trial:
        labels = to_host(every_run(one, view.values(counts, columns), single_threaded=True)[0].labels)
        return Trial(view, labels, log_likelihood(sample, labels[judged], model.n_clusters))

    with ThreadPoolExecutor(1 if model.n_threads == 1 or model.engine == "gpu" else len(views)) as pool:
        # Counts, which come first, win a tie.
        trials = sorted(pool.map(run, views), key=lambda trial: -trial.likelihood)
    (chosen, _, likelihood), (other, _, less) = trials
    compared = f"more likely by {likelihood - less:.2g} nats than" if likelihood > less else "as likely as"
    note = (
        f"The {chosen.name} of {len(chosen.genes):,} genes were clustered: under their clusters, the counts of a cell "
        f"are {compared} under those of the {other.name}."
    )
    return trials, chosen, note


def _some(n: int, most: int, rng: np.random.Generator) -> Array:
    """At most this number of n rows, in their order."""
    return np.sort(rng.permutation(n)[:most])


def _finish(model: ONMF, values: csr_array, best: Clustering, parameters: dict[str, Any]) -> ONMF:
    """The model from the best run, with clusters by falling size and exact templates.

    It ends with the loop, not with a search, so that :meth:`onmf.ONMF.predict` gives the same labels.
    """
    final = ONMF(**model.get_params() | parameters | {"refine": None, "n_init": 1})
    labels, centroids = to_host(best.labels), to_host(best.centroids)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rows of X are zero everywhere")  # said in a note
        for _ in range(REORDERINGS):
            order = np.argsort(-np.bincount(labels, minlength=model.n_clusters), kind="stable")
            fit_model(final, values, init=centroids[order])
            labels, centroids = to_host(final.labels_), to_host(final.cluster_centers_)
            sizes = np.bincount(labels, minlength=model.n_clusters)
            if (sizes[1:] <= sizes[:-1]).all():
                break
    return final
