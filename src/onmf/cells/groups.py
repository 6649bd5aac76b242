"""Cells of several batches: their sums by cluster and batch, and counts without the factors of the batches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.backend import Threads
from onmf.divergence import Array, FloatArray
from onmf.divergence.groups import GroupedKullbackLeibler
from onmf.door.write import Columns
from onmf.fit.groups import MOST_ROUNDS, Fitting, Grouping

from .genes import profiles_of
from .matrix import as_csr


class ByGroup:
    """Sums of the counts of all genes by cluster and group, and what follows from them.

    Parameters
    ----------
    clusters : CellClusters
        Clusters of a model with groups.
    """

    def __init__(self, clusters: Any) -> None:
        self.clusters, self.names, self.codes = clusters.dense, clusters.groups, clusters.group_codes

    @cached_property
    def _profiles(self) -> Any:
        labels, number = self.clusters.labels, len(self.names)
        known = (labels >= 0) & (self.codes >= 0)
        both = np.where(known, labels * number + self.codes, -1)
        return profiles_of(self.clusters.table.X, both, self.clusters.n_clusters * number)

    @property
    def sums(self) -> FloatArray:
        """Sums of the counts. → (clusters, groups, genes)"""
        return self._profiles.counts.reshape(self.clusters.n_clusters, len(self.names), -1)

    @property
    def effects(self) -> FloatArray:
        """The multipliers of all genes, also of those that were not clustered by. → (groups, genes)

        They are fitted to the clusters as they are, as those of the model are.
        """
        sums = self.sums
        totals = np.ascontiguousarray(sums.sum(axis=0))
        p = totals.shape[1]
        fitting = Fitting(Grouping(GroupedKullbackLeibler(features=p), totals), Threads())
        by_cluster = np.hstack([sums.sum(axis=1), sums.sum(axis=2)])
        fitting.fit(by_cluster, np.asarray(by_cluster.any(axis=1)), by_cluster.copy(), MOST_ROUNDS)
        return fitting.effects

    def pseudobulk(self) -> tuple[Array, Columns]:
        """The sums of each cluster and group that have cells together, and a table that says which these are.

        → (sums, genes), and a column for each fact
        """
        clusters, number = self.clusters, len(self.names)
        kept = np.flatnonzero(self._profiles.cells)
        sums = self._profiles.counts[kept]
        if (sums == np.rint(sums)).all():
            sums = sums.astype(np.int64)
        shown = [clusters.shown_numbers[both // number] for both in kept]
        groups = [self.names[both % number] for both in kept]
        return sums, {
            "column": [f"cluster{k}_{group}" for k, group in zip(shown, groups, strict=True)],
            "cluster": shown,
            "name": [clusters.names[both // number] for both in kept],
            "group": groups,
            "cells": self._profiles.cells[kept].astype(np.int64).tolist(),
            "counts": sums.sum(axis=1).tolist(),
        }

    def corrected(self) -> Iterator[csr_array]:
        """Yield the counts divided by the multipliers of their groups, in batches of rows."""
        effects, start = np.vstack([self.effects, np.ones(self.sums.shape[2])]), 0
        for batch in as_csr(self.clusters.table.X):
            own = np.repeat(self.codes[start : start + batch.shape[0]], np.diff(batch.indptr))  # −1: the last row
            values = (batch.data / effects[own, batch.indices]).astype(np.float32)
            yield csr_array((values, batch.indices, batch.indptr), shape=batch.shape)
            start += batch.shape[0]
