"""Which clusters merge first, and what that costs: the agglomerative information bottleneck.

Merging clusters i and j of counts raises the Kullback–Leibler objective by the divergence of their sums from the joint
profile. With g(x) = x log x, sums S (k × p) and totals T, that is

    g(T_i + T_j) − g(T_i) − g(T_j) − Σ_m [g(S_im + S_jm) − g(S_im) − g(S_jm)] ≥ 0,

so no row is needed. The cheapest pair is merged, again and again, until one cluster is left. Together the merges cost
the information that the clusters hold about the features (Slonim and Tishby, NIPS 1999).
"""

from dataclasses import dataclass

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.functions import xlogy


@dataclass(frozen=True)
class Hierarchy:
    """A tree of clusters.

    Attributes
    ----------
    n_clusters : int
        Number of clusters before the first merge, k.
    pairs : (k − 1, 2) array of int
        The clusters of each merge, in turn. Clusters 0 to k − 1 are those of the model; merge t makes cluster k + t.
    costs : (k − 1,) array
        How much each merge raises the Kullback–Leibler objective.
    """

    n_clusters: int
    pairs: Array
    costs: FloatArray

    def labels(self, n_clusters: int) -> Array:
        """Number each cluster of the model by its own when ``n_clusters`` are left, in order of the first. → (k,)"""
        k = self.n_clusters
        least = k - len(self.pairs)
        if not least <= n_clusters <= k:
            raise ValueError(f"n_clusters={n_clusters} is not allowed: it must be between {least} and {k}.")
        owner = np.arange(k + len(self.pairs))
        for merge in range(k - n_clusters):
            owner[np.isin(owner, self.pairs[merge])] = k + merge
        _, first, groups = np.unique(owner[:k], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[groups]


def merge_clusters(sums: FloatArray, n_clusters: int = 1) -> Hierarchy:
    """Merge clusters of counts in pairs, always the pair that raises the objective least.

    Parameters
    ----------
    sums : (k, p) array
        Sum of the rows of each cluster, not negative. With the Kullback–Leibler divergence, a centroid is
        proportional to it.
    n_clusters : int, default=1
        How many clusters are left at the end.

    Returns
    -------
    Hierarchy

    Examples
    --------
    >>> from onmf.hierarchy import merge_clusters
    >>> tree = merge_clusters([[9, 1, 0], [8, 2, 0], [0, 0, 5]])
    >>> tree.pairs.tolist()
    [[0, 1], [2, 3]]
    >>> tree.costs.round(3).tolist()
    [0.199, 12.51]
    """
    S = np.array(sums, dtype=np.float64)
    if S.ndim != 2 or len(S) == 0 or not np.isfinite(S).all() or (S < 0).any():
        raise ValueError("sums must be a table of finite numbers that are not negative, one row for each cluster.")
    k, merges = len(S), max(len(S) - n_clusters, 0)
    S = np.concatenate([S, np.zeros((merges, S.shape[1]))])
    alone = xlogy(S, S)  # g of each entry
    totals = S.sum(axis=1)
    costs = np.full((k + merges, k + merges), np.inf)  # of pairs i < j that are both there

    def price(i: int, others: Array) -> FloatArray:
        columns = np.flatnonzero(S[i])  # elsewhere the sums do not mix, and cost nothing
        both = S[others][:, columns] + S[i, columns]
        shared = xlogy(both, both).sum(axis=1) - alone[others][:, columns].sum(axis=1) - alone[i].sum()
        joint = totals[others] + totals[i]
        apart = xlogy(joint, joint) - xlogy(totals[others], totals[others]) - xlogy(totals[i], totals[i])
        return np.maximum(apart - shared, 0.0)

    there = np.empty(0, dtype=np.int64)
    pairs, paid = np.empty((merges, 2), dtype=np.int64), np.empty(merges)
    for new in range(k + merges):
        if new >= k:  # a merge; those before are the clusters of the model
            i, j = there[list(divmod(np.argmin(costs[np.ix_(there, there)]), len(there)))]
            pairs[new - k], paid[new - k] = (i, j), costs[i, j]
            S[new] = S[i] + S[j]
            alone[new], totals[new] = xlogy(S[new], S[new]), S[new].sum()
            there = there[(there != i) & (there != j)]
        costs[there, new] = price(new, there)
        there = np.append(there, new)
    return Hierarchy(k, pairs, paid)
