"""Merging clusters at the least cost."""

import numpy as np
import pytest
from scipy.special import xlogy

from onmf import ONMF
from onmf.datasets import make_counts
from onmf.hierarchy import merge_clusters


def objective(S):
    """The part of the Kullback–Leibler objective that depends on the clusters."""
    totals = S.sum(axis=1)
    return float(xlogy(totals, totals).sum() - xlogy(S, S).sum())


def by_trying(S):
    """Merge by computing the objective of every pair anew."""
    nodes = dict(enumerate(S))
    pairs, costs = [], []
    while len(nodes) > 1:
        names = sorted(nodes)
        before = objective(np.array(list(nodes.values())))
        best = None
        for a, i in enumerate(names):
            for j in names[a + 1 :]:
                rest = [nodes[m] for m in names if m not in (i, j)]
                cost = objective(np.array([*rest, nodes[i] + nodes[j]])) - before
                if best is None or cost < best[0] - 1e-9:
                    best = cost, i, j
        cost, i, j = best
        nodes[len(S) + len(pairs)] = nodes.pop(i) + nodes.pop(j)
        pairs.append([i, j])
        costs.append(cost)
    return pairs, costs


@pytest.mark.parametrize("seed", range(4))
def test_every_merge_is_the_cheapest(seed):
    rng = np.random.default_rng(seed)
    S = rng.poisson(3, (7, 12)) * rng.integers(0, 2, (7, 12)).astype(float)
    found = merge_clusters(S)
    pairs, costs = by_trying(S)
    assert found.pairs.tolist() == pairs
    assert found.costs == pytest.approx(costs, abs=1e-9)
    one = S.sum(axis=0, keepdims=True)
    assert found.costs.sum() == pytest.approx(objective(one) - objective(S))


def test_the_costs_are_those_of_the_objective_of_a_model():
    made = make_counts(200, 30, 4, length=80, random_state=0)
    model = ONMF(4, smoothing=0.0).fit(made.X)
    X = made.X.toarray()
    tree = merge_clusters(np.array([X[model.labels_ == k].sum(axis=0) for k in range(4)]))
    assert tree.n_clusters == 4
    joined = tree.labels(3)
    centroids = np.array([X[joined[model.labels_] == k].sum(axis=0) for k in range(3)])
    shares = centroids / centroids.sum(axis=1, keepdims=True)
    fitted = X.sum(axis=1, keepdims=True) * shares[joined[model.labels_]]
    loss = (xlogy(X, X) - xlogy(X, fitted) - X + fitted).sum()
    assert loss == pytest.approx(model.reconstruction_err_ + tree.costs[0])


def test_labels_at_each_number():
    tree = merge_clusters([[9, 1, 0], [0, 0, 5], [8, 2, 0], [0, 1, 5]])
    assert tree.labels(4).tolist() == [0, 1, 2, 3]
    assert tree.labels(1).tolist() == [0, 0, 0, 0]
    assert tree.labels(2).tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="n_clusters=5 is not allowed: it must be between 1 and 4"):
        tree.labels(5)


def test_one_cluster_and_empty_ones():
    assert merge_clusters([[1.0, 2.0]]).pairs.shape == (0, 2)
    tree = merge_clusters([[1.0, 2.0], [0.0, 0.0], [5.0, 0.0]])
    assert tree.costs[0] == 0
    assert 1 in tree.pairs[0]


@pytest.mark.parametrize("sums", [[], [1.0], [[1.0, -1.0]], [[np.nan, 1.0]]])
def test_what_is_no_table_of_sums_is_refused(sums):
    with pytest.raises(ValueError, match="sums must be a table"):
        merge_clusters(sums)
