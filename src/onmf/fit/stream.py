"""Learning from a stream of batches.

Centroids depend on the data only through the sums by cluster, and the sums of batches add up. A batch is assigned under
the current centroids, and

    S ← γ S + S_batch

The factor γ forgets early batches, which were assigned under poor centroids. If a batch comes again under the same
name, its earlier contribution, γ^age of its sums at that time, is subtracted. These sums are computed from the batch
and its labels at that time, which are kept. With groups, the same holds for the sums by group, and centroids and
multipliers are fitted to both; groups may come up in any batch.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from operator import sub
from typing import Any

import numpy as np

from onmf.backend import COUNTED, Block, CentroidEntries, CurvedBlock, StepSums, table_of, to_host, update_centroids
from onmf.data import Data
from onmf.data.groups import Groups, check_same_type, names_of_groups
from onmf.divergence import Array, FloatArray, divide
from onmf.divergence.groups import GroupedKullbackLeibler
from onmf.io.rules import require

from .describe import MIN_SMOOTHING, Clustering
from .groups import Fitting, Grouping, fields_in_groups, products, sums_by_group, without_groups
from .restarts import fields_of_step
from .solve import with_margins

ROUNDS = 10  # in which centroids and multipliers of groups are fitted after a batch
EMPTY_MASS = 1e-12  # share of its earlier mass at which a cluster counts as empty: the rest is rounding error


@dataclass(frozen=True)
class Seen:
    """Labels, scales, weights and groups of a batch when it was last seen, and the step in which that was."""

    labels: Array
    scales: FloatArray
    weights: FloatArray | None
    groups: FloatArray | None
    step: int


@dataclass(frozen=True)
class KnownGroups:
    """The groups of the batches so far."""

    names: Array
    effects: FloatArray  # (groups, p) multipliers
    totals: FloatArray  # (groups, p) sums of the rows of each group

    @classmethod
    def of(cls, names: Array, effects: FloatArray) -> "KnownGroups":
        """Groups with these multipliers, of which no batch has come yet."""
        return cls(names, effects, np.zeros_like(effects))

    def joined(self, others: Array) -> "KnownGroups":
        """These groups and others, whose multipliers are 1 so far."""
        check_same_type(others.tolist(), self.names)
        known = self.names.tolist()
        new = [name for name in others.tolist() if name not in known]
        more = np.ones((len(new), self.effects.shape[1]))
        return KnownGroups(
            names_of_groups([*known, *new]), np.vstack([self.effects, more]), np.vstack([self.totals, 0.0 * more])
        )


@dataclass
class Stream:
    """The state of a stream. Centroids and sums have no columns of groups yet if ``groups`` has more of them."""

    centroids: FloatArray
    whole: StepSums | None = None  # the sums over the batches so far
    steps: int = 0  # batches so far
    seen: dict[Hashable, Seen] = field(default_factory=dict)  # named batches, as they were last assigned
    weighted: FloatArray | None = None  # (2, k, p): without closed forms, the sums of which centroids are quotients
    groups: KnownGroups | None = None  # if the rows have groups

    def copy(self) -> "Stream":
        """A stream that can learn while this one stays as it is."""
        return replace(self, centroids=self.centroids.copy(), seen=dict(self.seen))

    def meet(self, batch: Groups | None) -> Groups | None:
        """Take in the groups of the rows of a batch. → the same, by their numbers among all groups so far"""
        require(batch is None or self.groups is not None, "The model has no groups: leave groups out, or clone it.")
        require(self.groups is None or batch is not None, "The model has groups: pass groups= with every batch.")
        if batch is None or self.groups is None:
            return None
        self.groups = self.groups.joined(batch.names)
        places = {name: place for place, name in enumerate(self.groups.names.tolist())}
        codes = np.array([places[name] for name in batch.names.tolist()], dtype=np.int32)[batch.codes]
        return replace(batch, names=self.groups.names, codes=codes)

    def make_room(self, divergence: GroupedKullbackLeibler) -> None:
        """Give centroids and sums a column for each of the groups."""
        assert self.groups is not None
        w = divergence.normalise(self.centroids)[:, : divergence.features]
        self.centroids = divergence.with_groups(w, products(w, self.groups.effects))
        if self.whole is not None:
            missing = self.centroids.shape[1] - self.whole.sums.shape[1]
            self.whole = StepSums(np.pad(self.whole.sums, ((0, 0), (0, missing))), self.whole.table)


def stream_of(model: Any) -> Stream:
    """A stream that begins from the centroids of a fitted model, and with its groups."""
    stream = Stream(np.array(to_host(model.cluster_centers_), dtype=np.float64))
    if model.group_effects_ is not None:
        stream.groups = KnownGroups.of(model.groups_, np.array(to_host(model.group_effects_), dtype=np.float64))
    return stream


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
    totals = None
    if isinstance(data.divergence, GroupedKullbackLeibler):
        stream.make_room(data.divergence)
        totals = data.total(sums_by_group, data.shape[1] - data.divergence.features)
    step = data.steps(stream.centroids.copy()).next().map_arrays(lambda array: to_host(array).copy())
    labels, scales = map(to_host, part.run.collect())
    whole, kept = step, 1.0
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
            if not np.array_equal(block.terms.get("group"), before.groups):  # type: ignore[arg-type]
                raise ValueError(f"batch {name!r} had other groups before: give it another name.")
            weight = share ** (stream.steps - before.step + 1)
            kept -= weight
            whole = _without(whole, _earlier_sums(block, before, k).map_arrays(lambda array: weight * array))
    stream.steps += 1
    if name is not None:
        weights = None if block.weights is None else block.weights.copy()
        stream.seen[name] = Seen(labels.copy(), scales.copy(), weights, block.terms.get("group"), stream.steps)
    stream.whole = whole
    if totals is not None:
        _learn_groups(stream, data, share, kept * totals)
    elif isinstance(block, CurvedBlock):
        _learn_curved(stream, block, labels, scales, share)
    else:
        update_centroids(data.divergence, whole, stream.centroids, data.backend.threads)
    return step


def _learn_groups(stream: Stream, data: Data, share: float, totals: FloatArray) -> None:
    """Fit centroids and multipliers to the sums of the batches by cluster and by group.

    The multipliers of groups that the batches do not have, which an earlier fit knew, stay as they are.
    """
    divergence, whole, known = data.divergence, stream.whole, stream.groups
    assert isinstance(divergence, GroupedKullbackLeibler)
    assert whole is not None
    assert known is not None
    p = divergence.features
    known = replace(known, totals=np.maximum(share * known.totals + totals[:, :p], 0.0))
    here = np.flatnonzero(known.totals.any(axis=1))
    stream.groups = known
    if not len(here):
        return
    fitting = Fitting(Grouping(divergence, known.totals[here]), data.backend.threads, known.effects[here])
    fitting.ratios = products(divergence.normalise(stream.centroids)[:, :p], fitting.effects)
    columns = np.append(np.arange(p), p + here)
    W = np.ascontiguousarray(stream.centroids[:, columns])
    fitting.fit(np.ascontiguousarray(whole.sums[:, columns]), ~whole.empty, W, ROUNDS)
    effects = known.effects.copy()
    effects[here] = fitting.effects
    w = divergence.normalise(W)[:, :p]
    stream.groups, stream.centroids = replace(known, effects=effects), divergence.with_groups(w, products(w, effects))


def _learn_curved(stream: Stream, block: CurvedBlock, labels: Array, scales: FloatArray, share: float) -> None:
    """Compute centroids from Σ w m x and Σ w m a over the batches, with m = μ φ''(μ) at the centroids of the time.

    Their quotient is the centroid where it does not change any more.
    """
    C = block.divergence.smooth(stream.centroids, at_least=MIN_SMOOTHING)
    _, pull, push = to_host(block.evaluate(labels, scales, CentroidEntries.of(C, np.ones(C.shape, dtype=bool))))
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
        **_fields_of_batch(stream, data, step, stream.whole),
        n_iter=stream.steps,
        stop_reason="batch",
        history={},
        init_rows=None,
        parameters=parameters,
        groups=None if stream.groups is None else stream.groups.names,
    )
    return without_groups(data, with_margins(data, clustering))


def _fields_of_batch(stream: Stream, data: Data, step: StepSums, whole: StepSums) -> dict[str, Any]:
    known, divergence = stream.groups, data.divergence
    if known is None or not isinstance(divergence, GroupedKullbackLeibler):
        return fields_of_step(data, step, stream.centroids.copy(), whole)
    p = divergence.features
    w = divergence.normalise(stream.centroids)[:, :p]
    own = Grouping(divergence, data.total(sums_by_group, len(known.names))[:, :p])
    value = own.objective(step.sums, w, known.effects, products(w, known.effects))
    return fields_in_groups(data, w, known.effects, whole.sums[:, p:], whole.norms) | {
        "objective": data.constant + value,
        "n_filled": int(np.count_nonzero(~whole.empty)),
    }
