"""Learning from batches as they come: the sums behind the centroids, some of them forgotten, some replaced.

The sums by cluster are all that centroids are made of, and sums of batches add up. A batch is assigned under the
centroids of the moment, and

    S ← γ S + S_batch

with γ the share that is remembered: early batches were assigned under centroids that knew little. If a batch comes
again, under the name it had before, what it gave then is taken away, γ^age of it: its labels of that time are kept, and
with the batch at hand they give its sums of that time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from operator import sub
from typing import Any

import numpy as np

from onmf.backend import COUNTED, Block, StepSums, to_host, update_centroids
from onmf.data import Data
from onmf.divergence import Array, FloatArray

from .describe import last_labels, margins_of
from .loop import objective
from .result import Clustering

EMPTY = 1e-12
"""Share of its largest mass so far at which a cluster counts as empty, because the rest is rounding."""


@dataclass(frozen=True)
class Seen:
    """What a batch gave when it was last seen: labels, scales and weights of its rows, and in which step."""

    labels: Array
    scales: FloatArray
    weights: FloatArray | None
    step: int


@dataclass
class Stream:
    """What has been learned from batches.

    Attributes
    ----------
    centroids : (k, p) array
        As they are now.
    whole : StepSums or None
        The remembered sums.
    steps : int
        Batches so far.
    seen : dict
        What each batch with a name gave.
    """

    centroids: FloatArray
    whole: StepSums | None = None
    steps: int = 0
    seen: dict[Hashable, Seen] = field(default_factory=dict)


def learn(stream: Stream, data: Data, share: float, name: Hashable | None = None) -> StepSums:
    """Take in a batch, in place.

    Parameters
    ----------
    stream : Stream
        What has been learned so far.
    data : Data
        The batch, in memory.
    share : float
        γ, the share of the sums that is remembered; 1 remembers all.
    name : hashable, optional
        Name of the batch; one that was seen under this name before is replaced.

    Returns
    -------
    StepSums
        Of the batch alone.
    """
    part, k = data.whole(), len(stream.centroids)
    assert part is not None, "refused for rows in parts"
    block = part.block
    step = data.steps(stream.centroids.copy()).next().each(to_host)
    step = replace(step, sums=step.sums.copy())
    labels, scales = map(to_host, part.run.collect())
    whole = step
    if stream.whole is not None:
        whole = stream.whole.each(lambda array: share * array) + step
        before = None if name is None else stream.seen.get(name)
        if before is not None:
            if len(before.labels) != len(labels):
                raise ValueError(
                    f"batch {name!r} has {len(labels)} rows, and had {len(before.labels)} before: give other rows "
                    "another name."
                )
            if not same_weights(block.weights, before.weights):
                raise ValueError(f"batch {name!r} had another sample_weight before: give it another name.")
            age = stream.steps - before.step + 1
            weight = share**age
            whole = _without(whole, _again(block, before, k).each(lambda array: weight * array))
    stream.steps += 1
    if name is not None:
        weights = None if block.weights is None else block.weights.copy()
        stream.seen[name] = Seen(labels.copy(), scales.copy(), weights, stream.steps)
    stream.whole = whole
    update_centroids(data.divergence, whole, stream.centroids, data.backend.threads)
    return step


def same_weights(one: FloatArray | None, other: FloatArray | None) -> bool:
    """Whether two batches have the same weights, None being that of no weights."""
    return one is other if one is None or other is None else np.array_equal(one, other)


def _again(block: Block, before: Seen, k: int) -> StepSums:
    """What the batch gave when it had other labels."""
    weights: FloatArray = to_host(block.row_weights(block.backend.bring(before.scales)))
    sums = block.sum_by_label(before.labels, weights, k)
    own, a = block.host_weights, before.scales
    values = (weights * a, own, own * a, own * a * a)
    table = np.zeros((len(COUNTED), k))
    for row, value in zip(table, values, strict=False):  # what the whole is not asked for stays 0
        row += np.bincount(before.labels, weights=value, minlength=k)
    return StepSums(sums, table)


def _without(step: StepSums, other: StepSums) -> StepSums:
    """A difference, in which clusters that lose all they had become empty, not full of rounding."""
    rest = step.each(sub, other)
    gone = rest.mass <= EMPTY * np.maximum(step.mass, other.mass)
    sums, table = rest.sums, rest.table
    positive = table[: COUNTED.index("scale_squares") + 1]
    np.maximum(positive, 0.0, out=positive)
    positive[:, gone] = 0.0
    if _nonnegative(step.sums, other.sums):
        np.maximum(sums, 0.0, out=sums)
    sums[gone] = 0.0
    return StepSums(sums, table)


def _nonnegative(*sums: FloatArray) -> bool:
    """Whether no sum has a negative entry, so that a difference below zero is rounding."""
    return all(bool((part >= 0).all()) for part in sums)


def describe_batch(stream: Stream, data: Data, step: StepSums, parameters: dict[str, Any]) -> Clustering:
    """The clustering of a batch that has just been learned from, under the centroids that all batches made."""
    whole = stream.whole
    assert whole is not None, "comes after learn()"
    labels, scales = data.by_row(last_labels, whole.norms)
    (margins,) = data.by_row(margins_of, stream.centroids, labels=labels)
    centroids, masses = data.keep(stream.centroids.copy(), whole.scale_sums / whole.norms)
    return Clustering(
        labels=labels,
        scales=scales,
        centroids=centroids,
        objective=objective(data, step),
        n_iter=stream.steps,
        stop_reason="batch",
        history={},
        masses=masses,
        n_filled=int(np.count_nonzero(~whole.empty)),
        init_rows=None,
        parameters=parameters,
        margins=margins,
    )
