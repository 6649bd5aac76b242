"""Learning from a stream of batches.

Centroids depend on the data only through the sums by cluster, and the sums of batches add up. A batch is assigned under
the current centroids, and

    S ← γ S + S_batch

The factor γ forgets early batches, which were assigned under poor centroids. If a batch comes again under the same
name, its earlier contribution, γ^age of its sums at that time, is subtracted. These sums are computed from the batch
and its labels at that time, which are kept.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import sub
from typing import Any

import numpy as np

from onmf.backend import COUNTED, Block, CentroidEntries, CurvedBlock, StepSums, table_of, to_host, update_centroids
from onmf.data import Data
from onmf.divergence import Array, FloatArray, divide

from .describe import MIN_SMOOTHING, Clustering
from .restarts import fields_of_step
from .solve import with_margins

EMPTY_MASS = 1e-12  # share of its earlier mass at which a cluster counts as empty: the rest is rounding error


@dataclass(frozen=True)
class Seen:
    """Labels, scales and weights of a batch when it was last seen, and the step in which that was."""

    labels: Array
    scales: FloatArray
    weights: FloatArray | None
    step: int


@dataclass
class Stream:
    """The state of a stream."""

    centroids: FloatArray
    whole: StepSums | None = None  # the sums over the batches so far
    steps: int = 0  # batches so far
    seen: dict[Hashable, Seen] = field(default_factory=dict)  # named batches, as they were last assigned
    weighted: FloatArray | None = None  # (2, k, p): without closed forms, the sums of which centroids are quotients


def learn(stream: Stream, data: Data, share: float, name: Hashable | None = None) -> StepSums:
    """Learn from a batch in memory: changes ``stream``, and returns the sums of the batch alone.

    ``share`` is γ, the share of earlier sums that is kept. A batch with a name replaces an earlier one of this name.
    """
    part, k = data.single_part(), len(stream.centroids)
    block = part.block
    if name is not None and data.divergence.curved:
        raise ValueError(
            f"batch={name!r} would be subtracted when it comes again, and the sums of the {data.divergence.name} "
            "divergence depend on the centroids of the time: leave batch=None."
        )
    step = data.steps(stream.centroids.copy()).next().map_arrays(lambda array: to_host(array).copy())
    labels, scales = map(to_host, part.run.collect())
    whole = step
    if stream.whole is not None:
        whole = stream.whole.map_arrays(lambda array: share * array) + step
        before = stream.seen.get(name)
        if before is not None:
            if len(before.labels) != len(labels):
                raise ValueError(
                    f"batch {name!r} has {len(labels)} rows, but had {len(before.labels)} before: give a different "
                    "batch another name."
                )
            if not np.array_equal(block.weights, before.weights):  # type: ignore[arg-type]  # takes None, too
                raise ValueError(f"batch {name!r} had another sample_weight before: give it another name.")
            weight = share ** (stream.steps - before.step + 1)
            whole = _without(whole, _earlier_sums(block, before, k).map_arrays(lambda array: weight * array))
    stream.steps += 1
    if name is not None:
        weights = None if block.weights is None else block.weights.copy()
        stream.seen[name] = Seen(labels.copy(), scales.copy(), weights, stream.steps)
    stream.whole = whole
    if isinstance(block, CurvedBlock):
        _learn_curved(stream, block, labels, scales, share)
    else:
        update_centroids(data.divergence, whole, stream.centroids, data.backend.threads)
    return step


def _learn_curved(stream: Stream, block: CurvedBlock, labels: Array, scales: FloatArray, share: float) -> None:
    """Compute centroids from Σ w m x and Σ w m a over the batches, with m = μ φ''(μ) at the centroids of the time.

    Their quotient is the centroid where it does not change any more.
    """
    C = block.divergence.smooth(stream.centroids, at_least=MIN_SMOOTHING)
    _, pull, push = block.evaluate(labels, scales, CentroidEntries.of(C, np.ones(C.shape, dtype=bool)))
    sums = np.stack([pull.reshape(C.shape), push.reshape(C.shape) / C])
    stream.weighted = sums if stream.weighted is None else share * stream.weighted + sums
    assert stream.whole is not None
    filled = np.flatnonzero(~stream.whole.empty)
    centers = divide(*stream.weighted[:, filled])
    stream.centroids[filled] = centers * block.divergence.unit(stream.whole.norms)[filled, None]


def _earlier_sums(block: Block, before: Seen, k: int) -> StepSums:
    """The sums of a batch with its earlier labels."""
    weights: FloatArray = to_host(block.row_weights(block.backend.to_device(before.scales)))
    own, a = block.host_weights, before.scales
    table = table_of(before.labels, (weights * a, own, own * a, own * a * a), k)  # nobody asks for its other rows
    return StepSums(block.sum_by_label(before.labels, weights, k), table)


def _without(step: StepSums, other: StepSums) -> StepSums:
    """The difference of two sums. Clusters that lose all their rows become exactly empty, without rounding errors."""
    rest = step.map_arrays(sub, other)
    gone = rest.mass <= EMPTY_MASS * np.maximum(step.mass, other.mass)
    sums, table = rest.sums, rest.table
    positive = table[: COUNTED.index("scale_squares") + 1]
    np.maximum(positive, 0.0, out=positive)
    positive[:, gone] = 0.0
    if (step.sums >= 0).all() and (other.sums >= 0).all():  # a negative difference is then a rounding error
        np.maximum(sums, 0.0, out=sums)
    sums[gone] = 0.0
    return StepSums(sums, table)


def describe_batch(stream: Stream, data: Data, step: StepSums, parameters: dict[str, Any]) -> Clustering:
    """The clustering of the last batch, under the centroids of all batches."""
    assert stream.whole is not None, "comes after learn()"
    clustering = Clustering(
        **fields_of_step(data, step, stream.centroids.copy(), stream.whole),
        n_iter=stream.steps,
        stop_reason="batch",
        history={},
        init_rows=None,
        parameters=parameters,
    )
    return with_margins(data, clustering)
