"""Assign rows of counts to clusters if words come in bursts.

A word that is in a document once is likely to be in it again, so its tenth occurrence tells little that the first did
not. The Dirichlet compound multinomial says so. A document with the counts x in a cluster with the profile p has the
probability

    Γ(β) / Γ(β + Σx) · Π_j Γ(x_j + β p_j) / Γ(β p_j),

up to a factor that is the same for all clusters. The first occurrence of word j counts log(β p_j), the one after m
others log(β p_j + m). The lower β, the stronger are the bursts. As β grows, this becomes the multinomial.

Reference: Madsen, Kauchak and Elkan, Modeling word burstiness using the Dirichlet distribution, ICML 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from onmf import interrupt
from onmf.backend import Block
from onmf.divergence import Array, FloatArray, divide

MOST_REPEATS = 100
"""Occurrences of a word in a row that count. Later ones hardly tell clusters apart."""

STOP_SHARE = 1e-3
"""The loop ends when a step moves no larger share of the rows."""

MAX_STEPS = 50
"""Steps of the loop at most."""

TINY = float(np.finfo(np.float64).tiny)
"""Share of a word that no row of positive weight has."""

FIRST_GUESS = (1.0, 100.0)
"""Where the search for the two numbers below begins."""

BOUNDS = (1e-3, 1e6)
"""Where they are searched."""


class Bursts(NamedTuple):
    """What all clusters share.

    Attributes
    ----------
    whole : float
        Parts of the profile of all rows that are mixed with one part of a cluster's own.
    strength : float
        β, the number of occurrences that the profile counts as much as.
    """

    whole: float
    strength: float


def reassign(block: Block, labels: Array, k: int) -> tuple[Array, dict[str, Array]]:
    """Assign rows to the clusters in which they are most likely, again and again.

    A step that would leave a cluster without rows is not taken. The numbers that all clusters share are estimated once,
    so that the steps do not chase a moving aim.

    Parameters
    ----------
    block : Block
        Rows of counts. Those that are not whole are rounded up.
    labels : (n,) array of int
        Clusters to begin with.
    k : int
        Number of clusters.

    Returns
    -------
    labels : (n,) array of int
    history : dict
        Rows that each step moved, and its seconds.
    """
    X, moved, seconds = csr_array(block.on_host), list[int](), list[float]()
    bursts = estimate(X, block.host_weights, labels, k)
    for _ in range(MAX_STEPS):
        interrupt.check()
        began = perf_counter()
        new = log_likelihoods(X, block.sum_by_label(labels, block.host_weights, k), bursts).argmax(axis=1)
        different = int(np.count_nonzero(new != labels))
        emptied = len(np.unique(new)) < len(np.unique(labels))
        moved.append(0 if emptied else different)
        seconds.append(perf_counter() - began)
        if emptied:
            break
        labels = new.astype(np.int32)
        if different <= STOP_SHARE * len(labels):
            break
    return labels, {"moved": np.array(moved), "seconds": np.array(seconds)}


def estimate(X: csr_array, weights: FloatArray, labels: Array, k: int) -> Bursts:
    """The numbers at which rows are most likely in their clusters, if they have no part in the profiles of these."""
    n, row = X.shape[0], np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    own = weights[row] * X.data
    sums = np.zeros((k, X.shape[1]))
    np.add.at(sums, (labels[row], X.indices), own)
    totals = sums.sum(axis=1)[labels] - np.bincount(row, weights=own, minlength=n)
    others = divide(np.maximum(sums[labels[row], X.indices] - own, 0.0), totals[row])
    whole = divide(sums.sum(axis=0), sums.sum())[X.indices]
    repeats, again = _repeats(X), list[Array]()
    while (repeats > len(again)).any():
        again.append(np.flatnonzero(repeats > len(again)))
    lengths = np.bincount(row, weights=repeats, minlength=n).astype(np.int64)
    by_length = np.bincount(lengths, weights=weights)
    by_entry = weights[row]

    def unlikely(logs: FloatArray) -> float:
        parts, strength = np.exp(logs)
        mixed = strength * (others + parts * whole) / (1 + parts)
        found = 0.0
        for before, places in enumerate(again):
            found += float(by_entry[places] @ np.log(np.maximum(mixed[places] + before, TINY)))
        rising = np.concatenate([[0.0], np.cumsum(np.log(strength + np.arange(len(by_length) - 1)))])
        return float(by_length @ rising) - found

    bounds = [(np.log(BOUNDS[0]), np.log(BOUNDS[1]))] * 2
    start = np.log(FIRST_GUESS)
    options = {"xatol": 0.01, "fatol": np.inf, "initial_simplex": start + np.eye(3, 2)}
    best = minimize(unlikely, start, method="Nelder-Mead", bounds=bounds, options=options).x
    return Bursts(*map(float, np.exp(best)))


def log_likelihoods(X: csr_array, sums: FloatArray, bursts: Bursts) -> FloatArray:
    """The logarithm of the probability of each row in each cluster, up to a number for each row.

    Parameters
    ----------
    X : csr_array of shape (n, p)
        Counts.
    sums : (k, p) array
        Sums of the rows of each cluster.
    bursts : Bursts
        What the clusters share.

    Returns
    -------
    (n, k) array
    """
    profiles = divide(sums, sums.sum(axis=1, keepdims=True)) + bursts.whole * divide(sums.sum(axis=0), sums.sum())
    profiles *= bursts.strength / (1 + bursts.whole)
    found = np.zeros((X.shape[0], len(sums)))
    for before, (rows, columns) in enumerate(_levels(X)):
        found += rows @ np.log(np.maximum(profiles[:, columns] + before, TINY)).T
    return found


def _repeats(X: csr_array) -> Array:
    """How often each stored word counts. → (nnz,)"""
    repeats: Array = np.minimum(np.ceil(X.data), MOST_REPEATS).astype(np.int32)
    return repeats


def _levels(X: csr_array) -> Iterator[tuple[csr_array, Array]]:
    """Yield which words are in which rows more than 0, 1, 2, … times, and the columns of these words.

    One level after the other is in memory, since all of them can be much larger than the counts.
    """
    n, p = X.shape
    repeats, row, indices, before = _repeats(X), np.repeat(np.arange(n), np.diff(X.indptr)), X.indices, 0
    while (more := repeats > before).any():
        repeats, row, indices, before = repeats[more], row[more], indices[more], before + 1
        present = np.bincount(indices, minlength=p) > 0
        places = (np.cumsum(present, dtype=np.int64) - 1)[indices]
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
        columns = np.flatnonzero(present)
        yield csr_array((np.ones(len(row)), places, indptr), shape=(n, len(columns))), columns
