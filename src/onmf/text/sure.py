"""How sure the clusters of documents are, for counts in memory and on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.confidence import Calibration, calibrate_model, confidence_of, evenly_spaced
from onmf.datasets import Shards
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF

from .consensus import independent_runs


def measure_documents(model: ONMF, X: csr_array | Shards, *, of_views: bool = False) -> Calibration:
    """Calibrate the confidence of a model that was fitted on these counts, maybe by a consensus of views."""
    if not isinstance(X, Shards):
        return calibrate_model(model, X, model.labels_, independent_runs if of_views else None)
    some = evenly_spaced(X.shape[0])
    return calibrate_model(model, _rows(X, some), model.labels_[some])


def sure_of(
    model: ONMF, X: csr_array | Shards, labels: Array, calibration: Calibration | None
) -> tuple[FloatArray, Array]:
    """The confidence and the runner-up of each document; NaN and -1 if the model has no calibration. → 2 × (n,)"""
    if calibration is None or not len(labels):
        return np.full(len(labels), np.nan), np.full(len(labels), -1, dtype=np.int32)
    return confidence_of(model, replace(X, names=None) if isinstance(X, Shards) else X, labels, calibration)


def _rows(shards: Shards, index: Array) -> csr_array:
    """Read some rows of shards, given in their order; one shard is in memory at a time."""
    ends = np.cumsum(shards.sizes)
    parts = []
    for number, (end, size) in enumerate(zip(ends, shards.sizes, strict=True)):
        inside = index[(index >= end - size) & (index < end)] - (end - size)
        if len(inside):
            parts.append(csr_array(shards.block(number)[inside]))
    return csr_array(vstack(parts, format="csr"))
