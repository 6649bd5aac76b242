"""The seam between mathematics and machine: a backend computes over one block of rows.

A backend knows no divergence by name, and not where other blocks lie. A new one writes the six abstract methods of
:class:`Backend`; everything else is built from them.

Symbols: X (n, p) rows of a block, B (k, p) templates, a (n,) scales, w (n,) sample weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.arrays import take_rows, to_host
from onmf.divergence import Array, Divergence, FloatArray, RowTerm
from onmf.divergence.consistency import check_consistent

from .hull import Hull
from .run import Run, Steps, StepsInTurn
from .threads import Threads

if TYPE_CHECKING:
    from .curved import Curves

Matrix: TypeAlias = Any
"""Validated input: a C-contiguous NumPy array or a canonical csr_array (which has no types) of native numbers."""


BY_ROW = ("own_weights", "fixed_weights", "constant")
"""Cached properties of a block that do not need its rows."""


@dataclass(frozen=True)
class Templates:
    """What rows are scored against: score_k(x) = ⟨x, b_k⟩ + offset_k. Backends may keep more forms of it.

    Attributes
    ----------
    B : (k, p) array
        Templates. An entry may be −∞; its product with 0 counts as 0.
    offsets : (k,) array or None
        Added to the scores; None stands for zeros.
    """

    B: FloatArray
    offsets: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.B)


class Assignment(NamedTuple):
    """The cluster of each row, its scale against that cluster's centroid in the gauge, and its loss."""

    labels: Array
    scales: FloatArray
    losses: FloatArray


class Backend(ABC):
    """Computes over one block of rows.

    The abstract methods are all that a new backend has to write. They take rows as :meth:`place` returned them and
    templates as :meth:`prepare` returned them, and return arrays in the memory in which the backend computes.
    """

    name: str
    """Name in messages and results."""

    threads: Threads = Threads(1)
    """Threads of the host, for the parts of a fit that run there."""

    takes_cupy: bool = False
    """Whether :meth:`place` takes CuPy arrays."""

    @property
    def curves(self) -> Curves | None:
        """Computes, on the host, the sums of divergences without closed forms; None if the backend cannot."""
        from .curved import PlainCurves

        return PlainCurves()

    @abstractmethod
    def place(self, X: Matrix) -> Any:
        """Bring rows into the form that the other methods read."""

    @abstractmethod
    def row_term(self, rows: Any, function: RowTerm) -> FloatArray:
        """Σ_j function(x_j, j) for each row, in float64; function(0, j) = 0 if the rows are sparse. → (n,)"""

    @abstractmethod
    def scores(self, rows: Any, templates: Templates) -> FloatArray:
        """The scores of all rows against all templates. → (n, k)"""

    @abstractmethod
    def best_template(self, rows: Any, templates: Templates) -> tuple[Array, FloatArray]:
        """The template with the highest score for each row, and that score; the lowest index wins a tie. → 2 × (n,)"""

    @abstractmethod
    def own_and_next(self, rows: Any, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        """The score of each row's own template, and the highest score of the others, −∞ if none. → 2 × (n,)"""

    @abstractmethod
    def sum_by_label(self, rows: Any, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """Σ weights·x over the rows of each label. → (k, p)"""

    # The rest may be replaced to be faster. What stands here is correct for every backend.

    def prepare(
        self,
        rows: Any,
        centroids: FloatArray,
        templates: Callable[[FloatArray], FloatArray] | None = None,
        offsets: FloatArray | None = None,
        reuse: Templates | None = None,
    ) -> Templates:
        """Bring ``templates(centroids)``, or the centroids themselves, into the form that the scores are computed from.

        ``reuse`` is an earlier result whose memory may be overwritten.
        """
        return Templates(centroids if templates is None else templates(centroids), offsets)

    def to_device(self, array: Any) -> Any:
        """Copy an array to the memory in which this backend computes, unless it is there."""
        return to_host(array)

    def make_block(self, X: Matrix, divergence: Divergence, sample_weight: FloatArray | None = None) -> Block:
        """Place rows and compute once what every step needs."""
        check_consistent(divergence, X.shape[1], sparse=hasattr(X, "indptr"))
        self.check(divergence, X.shape[1])
        rows = self.place(X)
        terms = {name: self.row_term(rows, function) for name, function in divergence.row_terms.items()}
        terms["features"] = np.float64(X.shape[1])  # type: ignore[assignment]
        weights = None if sample_weight is None else to_host(sample_weight)
        constants = divergence.constant(terms)
        check_finite(constants, divergence)
        kind = Block
        if divergence.curved:
            from .curved import CurvedBlock

            kind = CurvedBlock
        return kind(self, rows, X, X.shape, divergence, weights, terms, constants)

    def check(self, divergence: Divergence, features: int) -> None:
        """Refuse a divergence that this backend cannot compute for rows of this many features."""
        if divergence.curved and self.curves is None:
            raise refused(self, divergence)

    def start_run(self, block: Block) -> Run:
        """Start a run over a block. Nobody but the backend reads more of it than its ``state``."""
        return block.start_run()

    def steps(self, run: Run, centroids: FloatArray) -> Steps:
        """The steps of a run from these centroids, which are overwritten."""
        return StepsInTurn(run, centroids)

    def hull(self, block: Block, most: int) -> Hull:
        """A hull of at most that number of vertices, for the distances of the rows of a block."""
        return Hull(block, most)

    def trial(self, block: Block) -> Callable[[Array, int], Array] | None:
        """A function that tries the moves of all rows at once; None if trying them one after the other is as fast.

        ``trial(labels, k)`` says which rows would lower the objective by a move to another of k clusters, if only they
        moved (n,). Rows with a negative label take no part.
        """
        return None

    def single_threaded(self) -> Backend | None:
        """The same backend on one thread, for one of several runs at the same time; None if runs cannot be parallel.

        It must give the same bits.
        """
        return None


@dataclass(frozen=True)
class Block:
    """Rows as a backend holds them, with the row terms of the divergence.

    Attributes
    ----------
    backend : Backend
        Computes over the rows.
    rows : object
        The rows as ``backend.place`` returned them.
    source : (n, p) array or CSR
        The rows as they came.
    shape : tuple of int
        Rows and features.
    divergence : Divergence
        Of the fit.
    weights : (n,) array or None
        Sample weights, on the host; None if all are one.
    terms : dict of str to (n,) array
        Reductions of the rows that the divergence needs.
    constants : (n,) array
        The part of each row's loss that no clustering changes.
    """

    backend: Backend
    rows: Any
    source: Matrix
    shape: tuple[int, int]
    divergence: Divergence
    weights: FloatArray | None
    terms: dict[str, FloatArray]
    constants: FloatArray

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def own_weights(self) -> FloatArray | None:
        """The sample weights where the backend computes. → (n,)"""
        return None if self.weights is None else self.backend.to_device(self.weights)

    @cached_property
    def host_weights(self) -> FloatArray:
        """The sample weights on the host, ones if there are none. → (n,)"""
        return np.ones(len(self)) if self.weights is None else self.weights

    @cached_property
    def constant(self) -> float:
        """Σ w·constant, the part of the objective that no clustering changes."""
        constants = self.constants if self.own_weights is None else self.constants * self.own_weights
        return float(constants.sum())

    def prepare(self, centroids: FloatArray, divergence: Divergence | None = None) -> Templates:
        """The templates of centroids, by default those of the block's own divergence."""
        divergence = divergence or self.divergence
        centroids = self.backend.to_device(centroids)
        return self.backend.prepare(self.rows, centroids, divergence.templates, divergence.offsets(centroids))

    def prepare_templates(self, B: FloatArray, offsets: FloatArray | None = None) -> Templates:
        """Templates that were computed elsewhere, in the form that the backend reads."""
        return self.backend.prepare(self.rows, self.backend.to_device(B), None, offsets)

    def assign(self, templates: Templates) -> Assignment:
        """Assign every row to its best template."""
        labels, best = self.backend.best_template(self.rows, templates)
        return self.assignment(labels, best)

    def assignment(self, labels: Array, scores: FloatArray) -> Assignment:
        """Scales and losses of rows with these labels, from their scores."""
        scales = self.divergence.scale(scores, self.terms)
        return Assignment(labels, scales, self.divergence.loss(scores, scales, self.terms, self.constants))

    def start_run(self) -> Run:
        """A run over these rows that any backend can do."""
        return Run(self)

    def scores(self, templates: Templates) -> FloatArray:
        """The scores of all rows against all templates. → (n, k)"""
        return self.backend.scores(self.rows, templates)

    def own_and_next(self, templates: Templates, labels: Array) -> tuple[FloatArray, FloatArray]:
        """The score of each row's own template, and the highest score of the others, −∞ if none. → 2 × (n,)"""
        return self.backend.own_and_next(self.rows, templates, labels)

    def own_scales(self, templates: Templates, labels: Array, own: FloatArray) -> FloatArray:
        """The scale of each row against its own centroid in the gauge, given the score there. → (n,)"""
        return self.divergence.scale(own, self.terms)

    def losses(self, scores: FloatArray) -> FloatArray:
        """The losses of rows at templates of these scores. → (n,)"""
        return self.divergence.loss(scores, self.divergence.scale(scores, self.terms), self.terms, self.constants)

    def row_weights(self, scales: FloatArray) -> FloatArray:
        """The weight of each row in the sums, its sample weight included. → (n,)"""
        return self.fixed_weights if self.divergence.fixed_weights else self._weights_at(scales)

    @cached_property
    def fixed_weights(self) -> FloatArray:
        """The weights of the rows in the sums, for divergences whose weights do not depend on the scales. → (n,)"""
        return self._weights_at(np.ones_like(self.constants))

    def _weights_at(self, scales: FloatArray) -> FloatArray:
        weights = self.divergence.weight(scales, self.terms)
        return weights if self.own_weights is None else weights * self.own_weights

    def sum_by_label(self, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        """Σ weights·x over the rows of each label, on the host. → (k, p)"""
        sums: FloatArray = to_host(self.backend.sum_by_label(self.rows, labels, weights, k))
        return sums

    def squares(self) -> FloatArray:
        """‖x_i‖² of each row. → (n,)"""
        return self.backend.row_term(self.rows, lambda x, j: np.square(x))

    def usable(self, squares: FloatArray) -> Array:
        """Which rows may become centroids, given their squared norms: those with an entry and a weight. → (n,) bool"""
        weights = self.own_weights
        return squares > 0 if weights is None else (squares > 0) & (weights > 0)

    def products(self, vector: FloatArray) -> FloatArray:
        """⟨x_i, vector⟩ for each row. → (n,)"""
        template = self.backend.prepare(self.rows, self.backend.to_device(vector.reshape(1, -1)))
        return self.backend.best_template(self.rows, template)[1]

    def host_term(self, function: RowTerm) -> FloatArray:
        """Σ_j function(x_j, j) for each row, on the host. → (n,)"""
        term: FloatArray = to_host(self.backend.row_term(self.rows, function))
        return term

    @cached_property
    def on_host(self) -> Matrix:
        """The rows in the memory of the host."""
        X = to_host(self.source)
        return csr_array(X) if issparse(X) else X

    def take(self, index: Array) -> Matrix:
        """Some of the rows as they are stored, on the host."""
        return take_rows(self.source, index)

    def dense(self, index: Array) -> FloatArray:
        """Some of the rows as a float64 array, on the host."""
        chosen = self.take(index)
        return np.asarray(chosen.toarray() if issparse(chosen) else chosen, dtype=np.float64)

    def subset(self, index: Array) -> Block:
        """Some of the rows as a block of their own."""
        weights = None if self.weights is None else self.weights[index]
        return self.backend.make_block(self.on_host[index], self.divergence, weights)

    def without_rows(self) -> Block:
        """Only what has one number for each row."""
        return self._copy_with(rows=None, source=None)

    def with_rows(self, X: Matrix) -> Block:
        """The block with its rows read again."""
        return self._copy_with(rows=self.backend.place(X), source=X)

    def with_backend(self, backend: Backend) -> Block:
        """The same rows for another backend of the same kind."""
        return self._copy_with(backend=backend)

    def _copy_with(self, **changes: Any) -> Block:
        """A changed copy, with the numbers by row that have been computed."""
        copy = replace(self, **changes)
        computed = {name: value for name, value in vars(self).items() if name in BY_ROW}
        vars(copy).update(computed)
        return copy


def check_finite(constants: FloatArray, divergence: Divergence) -> None:
    """Refuse rows whose loss overflows."""
    wrong = ~np.isfinite(constants)
    if wrong.any():
        raise ValueError(
            f"Input X is out of range: the loss of row {int(np.argmax(wrong))} is not a finite number under the "
            f"{divergence.name} divergence. Multiply X by a constant that brings its entries near 1, or leave that row "
            "out."
        )


def refused(backend: Backend, divergence: Divergence, reason: str = "") -> ValueError:
    """The error that a backend cannot compute a divergence."""
    return ValueError(
        f"engine={backend.name!r} cannot compute the {divergence.name} divergence{reason}: use engine='cpu', or "
        "another beta_loss, such as 'kullback-leibler'."
    )
