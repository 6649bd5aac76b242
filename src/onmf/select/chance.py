"""Counts without structure, like those at hand: what two halves share by chance."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.divergence import Array, FloatArray

LARGEST = 2.0**53  # Above it, not every number can be told from the next one
ROUNDS = 50  # until variances have settled
TINY = 1e-6  # of its variance, at least, is in the residuals of a feature, even if it is nearly the whole of each row
LEAST = 1e-9  # variance of a feature, relative to its mean; beyond that of Poisson counts, or in its largest entry


class OneCluster:
    """The model of one cluster, in each group: an entry has the share of its row times the sum of its feature.

    The variance of a feature around that is fitted, too, as a multiple of its mean. Whole numbers follow the negative
    binomial distribution, with the Poisson distribution as its limit. Other numbers are sums of a Poisson number of
    exponential ones, so that most entries of sparse data stay 0.
    """

    def __init__(self, X: Any, groups: Array | None = None) -> None:
        n, p = X.shape
        values = X.data if issparse(X) else X
        self.whole = bool((values == np.rint(values)).all() and values.max(initial=0) < LARGEST)
        self.sparse = issparse(X)
        codes = np.zeros(n, dtype=np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
        self.parts: list[tuple[Array, FloatArray, FloatArray]] = []  # rows of a group, their shares, sums of features
        squares = np.zeros(p)
        for code in range(codes.max(initial=0) + 1):
            rows = np.flatnonzero(codes == code)
            some = csr_array(X[rows], dtype=np.float64)  # sums of whole numbers would wrap around
            sums = np.asarray(some.sum(axis=0)).ravel()
            shares = np.asarray(some.sum(axis=1)).ravel() / max(sums.sum(), 1e-300)
            self.parts.append((rows, shares, sums))
            together = shares @ shares
            own = np.asarray(some.multiply(some).sum(axis=0)).ravel()
            squares += own - 2 * sums * (some.T @ shares) + sums**2 * together  # of residuals
        self.low, self.high = (
            np.ravel(each.toarray() if issparse(each) else each).astype(np.float64)
            for each in (X.min(axis=0), X.max(axis=0))
        )
        least = 1 + LEAST if self.whole else np.maximum(LEAST * self.high, 1e-300)
        self.variances = np.maximum(self._variances(squares), least)

    def _variances(self, squares: FloatArray) -> FloatArray:
        """The variance of each feature, relative to its mean, for which residuals have these squares on the mean.

        A feature adds to the sum of its row, and so to the residuals of all others, but takes from its own.
        """
        found = np.ones(len(squares))
        for _ in range(ROUNDS):
            expected = np.full(len(squares), 1e-300)
            for _, shares, sums in self.parts:
                own, profile = found * sums, sums / max(sums.sum(), 1e-300)
                residual = np.maximum((1 - 2 * profile) * own + profile**2 * own.sum(), TINY * own)
                expected += residual * max(1 - shares @ shares, LEAST)
            found *= np.maximum(squares, 0) / expected
        return found

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw as many rows, each feature within its range. → a matrix like the data"""
        order = np.argsort(np.concatenate([rows for rows, _, _ in self.parts]), kind="stable")
        drawn = csr_array(vstack([self._draw(shares, sums, rng) for _, shares, sums in self.parts], format="csr"))
        drawn = drawn[order]
        if not self.sparse:
            return np.clip(drawn.toarray(), self.low, self.high)
        drawn.data = np.minimum(drawn.data, self.high[drawn.indices])
        return drawn

    def _draw(self, shares: FloatArray, sums: FloatArray, rng: np.random.Generator) -> csr_array:
        """Draw the rows of a group: frequent features entry by entry, the others burst by burst."""
        n, p, u = len(shares), len(sums), self.variances
        bursts = sums * (np.log(u) / (u - 1) if self.whole else 2 / u)  # expected number of those of each feature
        rare, frequent = np.flatnonzero((bursts <= n) & (sums > 0)), np.flatnonzero(bursts > n)
        features = np.repeat(rare, rng.poisson(bursts[rare]))
        ends = np.cumsum(shares)
        rows = np.minimum(np.searchsorted(ends, rng.random(len(features)) * ends[-1], side="right"), n - 1)
        own = u[features]
        sizes = rng.logseries(1 - 1 / own) if self.whole else rng.exponential(own / 2)
        means, own = np.outer(shares, sums[frequent]), u[frequent]
        if self.whole:
            dense = rng.poisson(rng.gamma(means / (own - 1)) * (own - 1))
        else:
            dense = rng.gamma(rng.poisson(2 * means / own)) * own / 2
        i, j = np.nonzero(dense)
        entries = np.concatenate([sizes, dense[i, j]]).astype(np.float64)
        places = (np.concatenate([rows, i]), np.concatenate([features, frequent[j]]))
        return csr_array((entries, places), shape=(n, p))
