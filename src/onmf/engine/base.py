"""What an engine is: the place where the data lives, and the one pass over it that an iteration needs.

Symbols: X (n, p) data, B (k, p) templates, a (n,) scales, w (n,) sample weights, N_k² = Σ w a² over cluster k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import add, iadd
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import issparse

from onmf.divergence import Array, Divergence, FloatArray, divide

from .device import to_host

Data: TypeAlias = Any
"""Validated input: a C-contiguous NumPy array or a canonical csr_array (which has no types) of native numbers."""


FIXED = 16 * np.finfo(np.float64).eps
"""Relative change of a centroid that rounding alone can cause."""

COUNTED = ("mass", "counts", "scale_sums", "scale_squares", "overlap", "loss", "moved")
"""What a step counts by cluster, in the order in which the kernels fill and read the rows of its table."""


def _counted(name: str) -> Any:
    return property(lambda step: step.counted[COUNTED.index(name)])


@dataclass(frozen=True)
class StepSums:
    """All that one pass over some rows leaves behind. The sums of two sets of rows add up: ``whole = part + part``.

    Attributes
    ----------
    sums : (k, p) array
        Σ w·weight·x by cluster, with the row weights of the divergence. The engine's own: the next step may change it.
    table : (7, k) array
        What is counted by cluster, one row for each of the following; it is in the engine's memory, as the sums are.
        The following are NumPy arrays.
    arriving : callable, optional
        The table on the host, where a copy has been begun.
    mass : (k,) array
        Σ w·weight·a by cluster; a cluster of mass 0 is empty.
    counts : (k,) array
        Σ w by cluster.
    scale_sums : (k,) array
        Σ w a by cluster.
    scale_squares : (k,) array
        Σ w a² by cluster.
    overlap : (k,) array
        Σ w a a' over the rows that stayed in the cluster, a' being their scale in the pass before.
    loss : (k,) array
        Σ w·loss by cluster, at the templates of this pass.
    moved : int
        How many rows changed cluster.
    """

    sums: FloatArray
    table: FloatArray
    arriving: Callable[[], FloatArray] | None = field(default=None, repr=False, compare=False)

    mass = _counted("mass")
    counts = _counted("counts")
    scale_sums = _counted("scale_sums")
    scale_squares = _counted("scale_squares")
    overlap = _counted("overlap")
    loss = _counted("loss")

    @cached_property
    def counted(self) -> FloatArray:
        """The table on the host. → (7, k)"""
        table: FloatArray = to_host(self.table) if self.arriving is None else self.arriving()
        return table

    @cached_property
    def moved(self) -> int:
        """How many rows changed cluster."""
        return int(self.counted[COUNTED.index("moved")].sum())

    def near(self, name: str) -> FloatArray:
        """A row of the table, where the sums are. → (k,)"""
        row: FloatArray = self.table[COUNTED.index(name)]
        return row

    def __add__(self, other: StepSums) -> StepSums:
        return self.each(add, other)

    def __iadd__(self, other: StepSums) -> StepSums:
        """Add in place, for who made this one and nobody else reads it."""
        return self.each(iadd, other)

    def each(self, function: Callable[..., Any], *others: StepSums) -> StepSums:
        """A function of the sums and of the table of this one, and of those of others."""
        steps = (self, *others)
        return StepSums(function(*(step.sums for step in steps)), function(*(step.table for step in steps)))

    @cached_property
    def empty(self) -> Array:
        """Which clusters hold nothing. → (k,) bool"""
        return ~(self.mass > 0)

    @cached_property
    def norms(self) -> FloatArray:
        """N_k, by which the scales of cluster k are divided so that H Hᵀ = I; 1 for an empty cluster. → (k,)"""
        return np.where(self.scale_squares > 0, np.sqrt(self.scale_squares), 1.0)

    def change_from(self, previous: StepSums) -> float:
        """‖H − H_prev‖_F, without forming H."""
        # Σ_k [1(N_k > 0) + 1(N'_k > 0) − 2 Σ_{stayed} w a a' / (N_k N'_k)]
        filled = np.count_nonzero(self.scale_squares > 0) + np.count_nonzero(previous.scale_squares > 0)
        return float(np.sqrt(max(filled - 2 * np.sum(self.overlap / (self.norms * previous.norms)), 0.0)))


SHARED = ("exact", "counts")
"""What the memory of held data keeps for all runs over them: facts and forms of the rows."""


class Assignment(NamedTuple):
    """The cluster of each row, its scale against that cluster's centroid in the gauge, and its loss."""

    labels: Array
    scales: FloatArray
    losses: FloatArray


@dataclass
class Held:
    """Data as an engine keeps it, with what is computed once and the labels and scales of the last step.

    ``weights`` are the rows' own, None for all one; ``fixed`` the weights of their sums where no step changes them.
    """

    data: Any
    shape: tuple[int, int]
    divergence: Divergence
    weights: FloatArray | None
    terms: dict[str, FloatArray]
    constants: FloatArray
    labels: Array | None = None
    scales: FloatArray | None = None
    fixed: FloatArray | None = None
    number: int = 0
    """Which part of the whole these rows are, where an engine keeps them in parts."""
    first: int = 0
    """Index of the first of these rows in the whole."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What an engine keeps from step to step for itself, and a start from seed to seed."""

    @property
    def constant(self) -> float:
        """Σ w·constant, the part of the objective that no clustering changes."""
        return float(np.sum(self.constants if self.weights is None else self.constants * self.weights))


class Engine(ABC):
    """Runs the pass over the data; knows no divergence by name and never decides when to stop.

    A new engine says how to place the data (:meth:`place`) and how to compute two things over it: the best template of
    each row, and the sums of weighted rows by label.
    """

    name: str

    @abstractmethod
    def supports(self, X: Any) -> str | None:
        """None if this engine can hold ``X``, or the reason why not, as a sentence."""

    @abstractmethod
    def place(self, X: Data) -> Any:
        """``X`` in the form that the two kernels read."""

    @abstractmethod
    def best_template(self, data: Any, templates: Any) -> tuple[Array, FloatArray]:
        """Index and score of the template with the largest inner product with each row; ties go to the lowest index.

        ``templates`` is a (k, p) array, or what :meth:`prepare` made.
        """

    @abstractmethod
    def own_and_next(self, data: Any, templates: Any, labels: Array) -> tuple[FloatArray, FloatArray]:
        """Score of the template of each row's label, and the largest score of the others (−∞ if there are none)."""

    @abstractmethod
    def sum_by_label(self, data: Any, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """Σ weights·x over the rows of each label. → (k, p)"""

    @abstractmethod
    def row_term(self, data: Any, function: Any) -> FloatArray:
        """Σ_j function(x_j) for each row, in float64. → (n,)"""

    @abstractmethod
    def scores(self, data: Any, templates: FloatArray) -> FloatArray:
        """All inner products of rows and templates, for callers that bring few rows at a time. → (n, k)"""

    # The rows may lie in parts, each where an engine of its own works on it. What is computed from all rows is
    # therefore a function of one part, ``function(engine, part, *args)``; rows in memory are the one part.

    def sizes(self, held: Held) -> list[int]:
        """Number of rows of each part."""
        return [held.shape[0]]

    def map(self, held: Held, function: Callable[..., Any], *args: Any) -> list[Any]:
        """``function(engine, part, *args)`` of each part, in their order; small values, on the host."""
        return [function(self, held, *args)]

    def total(self, held: Held, function: Callable[..., Any], *args: Any) -> Any:
        """The sum of ``function(engine, part, *args)`` over the parts, added in an order that is always the same."""
        return function(self, held, *args)

    def ask(self, held: Held, number: int, function: Callable[..., Any], *args: Any) -> Any:
        """``function(engine, part, *args)`` of one part."""
        return function(self, held, *args)

    def by_row(self, held: Held, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        """Arrays with one entry or row for each row of the data, in the form and the memory that the data came in.

        ``function(engine, part, *args)`` returns a tuple of them, where the engine computes; ``labels``, if given, are
        such an array and come last in its arguments, those of the part.
        """
        return function(self, held, *args) if labels is None else function(self, held, *args, labels)

    def keep(self, held: Held, *arrays: Any) -> tuple[Any, ...]:
        """Arrays of a result, computed, in the memory that the data came from."""
        return arrays

    def prepare(
        self, held: Held, centroids: FloatArray, templates: Callable[[FloatArray], FloatArray] | None = None
    ) -> Any:
        """``templates(centroids)``, or the centroids, in the form that :meth:`best_template` reads, until the next."""
        return centroids if templates is None else templates(centroids)

    def sums_of(self, held: Held, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """The sums of a step; an engine may keep them and update them by the rows that moved."""
        return self.sum_by_label(held.data, labels, weights, k)

    def runs_ahead(self, held: Held) -> bool:
        """Whether a step returns before it is done, and leaves what the step before it has left as it is."""
        return False

    @property
    def runs_at_once(self) -> int:
        """How many runs this engine can work on at the same time, each on a :meth:`share` of it."""
        return 1

    def share(self) -> Engine:
        """An engine for one of several runs at the same time; it gives the same bits."""
        return self

    def warm_up(self, held: Held) -> None:  # noqa: B027 (most engines have nothing to do)
        """Compute now what all runs would compute each for itself."""

    def on_host(self, data: Any) -> Data:
        """The rows where a kernel of this machine's CPU can read them."""
        return data

    def take(self, data: Any, index: Array) -> Data:
        """The rows of that index in the form they are stored in, on the host."""
        return self.on_host(data)[index]

    def rows(self, data: Any, index: Array) -> FloatArray:
        """The rows of that index as a dense float64 array, on the host."""
        chosen = self.take(data, index)
        return np.asarray(chosen.toarray() if issparse(chosen) else chosen, dtype=np.float64)

    def bring(self, array: Any) -> Any:
        """An array where this engine computes."""
        return to_host(array)

    def over_clusters(self, kernel: Callable[[int, int], None], k: int, p: int) -> None:
        """Run ``kernel(start, stop)`` over blocks of clusters that together cover all k, of p features each."""
        kernel(0, k)

    def over_rows(self, kernel: Callable[[int, int], None], n: int) -> None:
        """Run ``kernel(start, stop)`` over blocks of rows that together cover all n."""
        kernel(0, n)

    def hold(self, X: Data, divergence: Divergence, sample_weight: FloatArray | None = None) -> Held:
        """Place the data and compute once what every pass needs."""
        data = self.place(X)
        terms = {name: self.row_term(data, function) for name, function in divergence.row_terms.items()}
        terms["features"] = np.float64(X.shape[1])  # type: ignore[assignment]
        return Held(data, X.shape, divergence, sample_weight, terms, divergence.constant(terms))

    def assign(self, held: Held, templates: Any) -> Assignment:
        """Assign every row, and leave no trace of it."""
        labels, best = self.best_template(held.data, templates)
        scales = held.divergence.scale(best, held.terms)
        return Assignment(labels, scales, held.constants - held.divergence.gain(best, scales, held.terms))

    def step(self, held: Held, templates: Any) -> StepSums:
        """One pass: assign every row, and sum by label."""
        k = len(templates)
        found = self.assign(held, templates)
        weights = self.row_weights(held, found.scales)
        table = self.tally(held, found, weights, k)
        held.labels, held.scales = found.labels, found.scales
        del found  # the losses have been counted, and the sums may need the room
        return StepSums(self.sums_of(held, held.labels, weights, k), table)

    def row_weights(self, held: Held, scales: FloatArray) -> FloatArray:
        """Weight of each row in the sums, its own included."""
        if held.fixed is not None:
            return held.fixed
        weights = held.divergence.weight(scales, held.terms)
        if held.weights is not None:
            weights = weights * held.weights
        if held.divergence.fixed_weights:
            held.fixed = weights
        return weights

    def tally(self, held: Held, found: Assignment, weights: FloatArray, k: int) -> FloatArray:
        """The table of a step, a row for each of what is :data:`COUNTED`. → (7, k)"""
        labels, scales, losses = found
        ones = held.weights if held.weights is not None else np.ones(len(labels))
        moved, overlaps = np.ones(len(labels)), np.zeros(len(labels))
        if held.labels is not None and held.scales is not None:
            stayed = labels == held.labels
            moved = 1.0 - stayed
            overlaps = ones * scales * held.scales * stayed
        counted = ones * np.where(ones > 0, losses, 0.0)  # a row of weight 0 may have an infinite loss
        values = (weights * scales, ones, ones * scales, ones * scales * scales, overlaps, counted, moved)
        return np.array([np.bincount(labels, weights=value, minlength=k) for value in values], dtype=np.float64)

    def update(self, divergence: Divergence, step: StepSums, W: FloatArray) -> Callable[[], float]:
        """Centroids from the sums of a step, in the gauge H Hᵀ = I, into W; an empty cluster keeps the one it has.

        Once no row moves, an entry that only rounding would change stays as it is. At the end of a fit the centroids
        are then, to the last bit, those that gave the labels, and a tie is decided in ``predict`` as it was in
        ``labels_``.

        Returns a function that gives the largest change of an entry, in units of its centroid's largest; where rows
        moved, which says enough, it may be infinite.
        """
        moved, empty = step.moved, step.empty
        drifts = [0.0 if moved == 0 else np.inf]

        def block(start: int, stop: int) -> None:
            filled = start + np.flatnonzero(~empty[start:stop])
            part = slice(start, stop) if len(filled) == stop - start else filled
            new = divergence.centers(step.sums[part], step.mass[part])
            new *= step.norms[part, None]
            if moved == 0 and len(filled):
                drifts.append(largest_change(W[part], new))
                new = np.where(np.abs(new - W[part]) <= FIXED * np.abs(new), W[part], new)
            W[part] = new

        self.over_clusters(block, *W.shape)
        return lambda: max(drifts)

    def fork(self, held: Held) -> Held:
        """The same data for another run at the same time, without what steps leave behind."""
        memory = {name: held.memory[name] for name in SHARED if name in held.memory}
        return replace(held, labels=None, scales=None, memory=memory)

    def subset(self, held: Held, index: Array) -> Held:
        """The rows of that index, held on their own."""
        weights = None if held.weights is None else held.weights[index]
        return self.hold(self.on_host(held.data)[index], held.divergence, weights)

    def forget(self, held: Held) -> None:
        """Drop the labels of the last step and what the start has left, before another run."""
        held.labels = held.scales = None
        held.memory.pop("start", None)

    def collect(self, held: Held) -> tuple[Array, FloatArray]:
        """Labels and scales of the last step."""
        assert held.labels is not None, "collect() comes after step()"
        assert held.scales is not None
        return held.labels, held.scales


def largest_change(before: FloatArray, after: FloatArray) -> float:
    """The largest change of an entry, in units of its row's largest; infinite for a row that has become zero."""
    sizes, changes = np.abs(after).max(axis=1), np.abs(after - before).max(axis=1)
    beyond = (sizes == 0) & (changes > 0)
    return float(np.max(np.where(beyond, np.inf, divide(changes, sizes))))


def only_in_memory(X: Any) -> str | None:
    """Why an engine for data in memory cannot hold ``X``, or None."""
    if not hasattr(X, "blocks"):
        return None
    return "it comes in parts, which this engine would have to hold all at once. Use engine='auto'."
