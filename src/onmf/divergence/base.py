"""The interface of a divergence, and the code that all divergences share.

A divergence is a set of closed forms. It sees centroids ``C`` (k, p) and reductions of rows (n,), never the data ``X``,
so every engine can run every divergence.

Row i of X is approximated by ``a_i · c_k`` with ``k = label_i``. Centroids may come in any scale. Each method that
takes them first brings them into the *gauge* of the divergence (``size(c) = 1``), in which the scale ``a`` and the
assignment have simple forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from inspect import get_annotations
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from onmf.arrays import Array, FloatArray
from onmf.io.rules import require

from .moves import Moves

RowTerm = Callable[[FloatArray, Array], FloatArray]  # f(x, j) of entries x and their features j, which broadcast
RowTerms = Mapping[str, FloatArray]
Domain = Literal["real", "nonnegative", "positive", "unit"]  # the entries that X may have; "unit" is from 0 to 1
Scale = Literal["none", "size", "fit"]  # how a row gets its scale: 1 for every row, its sum, or the best one

SMOOTHINGS = (1e-20, 1e20)  # besides 0: its powers, times the largest entries, then stay inside float64


class TemplateForm(NamedTuple):
    """What the templates are, entry by entry: c / size(c), or log(c / size(c) + smoothing).

    No entry of a centroid is larger than its size.
    """

    logarithms: bool = False
    smoothing: float = 0.0


PROMISES: dict[str, tuple[str, ...]] = {
    "template_form": ("templates", "templates_at", "offsets", "size", "normalise"),
    "fixed_weights": ("weight",),
    "score_weights": ("row_terms", "weight", "scale"),
    "fixed_scales": ("row_terms", "weight", "scale", "objective"),
    "moves": ("row_terms", "offsets", "size", "normalise", "weight", "scale", "centers", "objective"),
    "kernel_functions": ("phi", "slope", "curvature", "psi", "moment"),
    "cuda_functions": ("phi", "slope", "curvature", "psi", "moment"),
}
"""What a class may promise, so that backends can be faster, and the methods that the promise is about."""

FINAL = ("sized", "absolute", "unit")  # what follows from scale_rule


@dataclass(frozen=True)
class Divergence(ABC):
    """The closed forms of one divergence D(x, y).

    Subclasses are frozen dataclasses. Arrays are float64; ``terms`` maps each name in :attr:`row_terms` to its (n,)
    array, and ``"features"`` to the number of features p. Methods compute each row of their arrays on its own, because
    backends call them with some rows or centroids at a time.

    :attr:`template_form`, :attr:`fixed_weights`, :attr:`score_weights`, :attr:`fixed_scales` and :attr:`moves` are
    promises about methods, with which backends are faster. A subclass that overrides one of these methods does not
    inherit the promise. It may make it again.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for field in get_annotations(cls):
            if callable(getattr(Divergence, field, None)):
                raise TypeError(f"{cls.__name__} has a field {field!r}, and Divergence a method: rename the field.")
        if own := [name for name in FINAL if name in vars(cls)]:
            raise TypeError(f"{cls.__name__} overrides {own[0]!r}, which follows from scale_rule: override that.")
        for promise, methods in PROMISES.items():
            makers = _definers(cls, promise)
            owners = [_definers(cls, method)[0] for method in methods if hasattr(cls, method)]
            if makers and not all(owner in makers[0].__mro__ for owner in owners):
                setattr(cls, promise, vars(makers[-1])[promise])

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for messages and results."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The entries that X may have."""

    @property
    @abstractmethod
    def row_terms(self) -> Mapping[str, RowTerm]:
        """The reductions of a row that are needed: name → f, for Σ_j f(x_j, j). On sparse data f(0, j) = 0."""

    @property
    def scale_rule(self) -> Scale:
        """How a row gets its scale.

        With "fit", the default, only the direction of a centroid counts, and centroids and scales are published in the
        gauge H Hᵀ = I. With "size" and "none" they are published as they are. With "none", parallel rows of different
        size differ, and a zero row is like any other.
        """
        return "fit"

    @property
    def sized(self) -> bool:
        """Whether the size of a centroid counts."""
        return self.scale_rule != "fit"

    @property
    def absolute(self) -> bool:
        """Whether rows have no scale."""
        return self.scale_rule == "none"

    @property
    def entry_range(self) -> tuple[float, float]:
        """Smallest and largest size of an entry besides 0 that is allowed: its square stays inside float64."""
        return 1e-125, 1e125

    @property
    def curved(self) -> bool:
        """Whether there are no closed forms for scores and centroids.

        Templates are then centroids, and backends score rows by the functions of :class:`~onmf.divergence.Convex`.
        """
        return False

    @property
    def warm_start(self) -> Divergence | None:
        """The divergence under which a run begins, if its optima are near those of this one and easier to find."""
        return None

    @property
    def fixed_weights(self) -> bool:
        """Promises that :meth:`weight` does not depend on the scale, and is the same in every iteration."""
        return False

    @property
    def score_weights(self) -> bool:
        """Promises that :meth:`weight` is the best score, or 0 if that is negative."""
        return False

    @property
    def indicators(self) -> int | None:
        """The first of the columns of X that say which group a row is of; None if there are none.

        A row has the sum of the columns before in the column of its group, and 0 in those of the others.
        """
        return None

    @property
    def fixed_scales(self) -> bool:
        """Promises that neither :meth:`scale` nor :meth:`weight` depends on the score, nor :meth:`objective` on losses.

        A step then needs no scores, only labels. Rows must be nonnegative.
        """
        return False

    @property
    def template_form(self) -> TemplateForm | None:
        """Promises that templates have this form, are finite, and have no offsets. None for any other templates."""
        return None

    @property
    def moves(self) -> Moves | None:
        """The closed form for the gain of moving one row to another cluster; None if there is none."""
        return None

    @abstractmethod
    def row_size(self, terms: RowTerms) -> FloatArray:
        """The unit of the loss of a row, which makes the losses of long and short rows comparable. → (n,)"""

    def size(self, vectors: FloatArray) -> FloatArray:
        """The size of each row of ``vectors`` (k, p) that the gauge sets to one; ones if there is no gauge. → (k,)"""
        return np.ones_like(vectors[:, 0])

    @abstractmethod
    def templates(self, centroids: FloatArray) -> FloatArray:
        """``B`` (k, p) such that the best cluster of row x is argmax_k ⟨x, b_k⟩ + offset_k."""

    def templates_at(self, columns: FloatArray, sizes: FloatArray) -> FloatArray:
        """The templates of some features: columns (k, m) of centroids of these sizes, (k,). The bits of templates().

        Only called if there is a :attr:`template_form`. This default is for forms without logarithms.
        """
        return divide(columns, sizes[:, None])

    @abstractmethod
    def scale(self, best: FloatArray, terms: RowTerms) -> FloatArray:
        """The best scale ``a`` of each row, from its best score. → (n,)"""

    @abstractmethod
    def weight(self, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """Weight of each row in the sum that gives the centroid. → (n,)"""

    @abstractmethod
    def constant(self, terms: RowTerms) -> FloatArray:
        """The part of each row's loss that does not depend on the clustering. → (n,)"""

    @abstractmethod
    def gain(self, best: FloatArray, scale: FloatArray, terms: RowTerms) -> FloatArray:
        """The amount by which its cluster lowers the loss of each row: loss = constant − gain. → (n,)"""

    @abstractmethod
    def objective(self, sums: FloatArray, mass: FloatArray, loss: float, constant: float) -> float:
        """D(X, WH) for the centroids that :meth:`centers` gives: a sum over the clusters.

        Parameters
        ----------
        sums : (k, p) array
            Σ w x by cluster, with w the row weights.
        mass : (k,) array
            Σ w a by cluster; 0 for an empty one.
        loss : float
            Σ of the row losses at the templates that gave the labels.
        constant : float
            Σ of the row constants.
        """

    def offsets(self, centroids: FloatArray) -> FloatArray | None:
        """The offsets that are added to the scores of the clusters; None if there are none. → (k,)"""
        return None

    def loss(
        self, best: FloatArray, scale: FloatArray, terms: RowTerms, constants: FloatArray | None = None
    ) -> FloatArray:
        """D(x, a·c) of each row at its best template; pass ``constants`` if they are known. → (n,)"""
        return (self.constant(terms) if constants is None else constants) - self.gain(best, scale, terms)

    def centers(self, sums: FloatArray, mass: FloatArray) -> FloatArray:
        """The best centroid for fixed scales: Σ w x / Σ w a, with w the row weights. → (k, p)"""
        return divide(sums, mass[:, None])

    def normalise(self, vectors: FloatArray) -> FloatArray:
        """``vectors`` in the gauge; a zero row stays zero."""
        return vectors if self.sized else divide(vectors, self.size(vectors)[:, None])

    def sizes_of_rows(self, centroids: FloatArray, labels: Array, terms: RowTerms) -> FloatArray:
        """The size of each row's centroid, by which its scale in the gauge is divided. → (n,)"""
        return self.size(centroids)[labels]

    def smooth(self, centroids: FloatArray, at_least: float = 0.0) -> FloatArray:
        """Centroids in the gauge, smoothed by ε or ``at_least``, under which every row has a finite loss."""
        return self.normalise(centroids)

    def initial_centroids(self, centroids: FloatArray) -> FloatArray:
        """First centroids, which come in any scale, as the steps of a run take them."""
        return centroids

    def linearised(self, centroids: FloatArray, size: float) -> tuple[FloatArray, FloatArray | None]:
        """Templates and offsets that hold for rows of this size, if there are none for all rows."""
        return self.templates(centroids), self.offsets(centroids)

    def unit(self, norms: FloatArray) -> FloatArray:
        """The factor by which centroids are published larger and scales smaller, given Σ w a² = norms². → (k,)"""
        return np.ones_like(norms) if self.sized else norms

    def settings(self) -> dict[str, Any]:
        """The arguments that make this divergence again."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def check_range(self, low: float, high: float, name: str = "X") -> None:
        """Refuse data whose smallest and largest entries are these, if the divergence is not defined between them."""
        return

    def changed(self, **values: Any) -> Self:
        """The same divergence with other :meth:`settings`; those that it does not have are left out."""
        settings = self.settings()
        return type(self)(**settings | {name: value for name, value in values.items() if name in settings})

    def unsmoothed(self) -> Self:
        """The same divergence with ``smoothing=0``: its loss is zero if and only if x is a multiple of c."""
        return self.changed(smoothing=0.0)


def _definers(cls: type, name: str) -> list[type]:
    """The classes from which a class may have an attribute; it has that of the first."""
    return [each for each in cls.__mro__ if name in vars(each)]


def number(value: object) -> float:
    """A parameter as a float; NaN if it is not a number or outside float64."""
    with suppress(OverflowError):
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    return float("nan")


def check_smoothing(smoothing: float) -> None:
    """Refuse a smoothing that float64 cannot compute with."""
    least, largest = SMOOTHINGS
    require(
        number(smoothing) == 0 or least <= number(smoothing) <= largest,
        f"smoothing={smoothing!r} is not allowed: it must be 0, or lie between {least:g} and {largest:g}.",
    )


def divide(a: FloatArray, b: FloatArray) -> FloatArray:
    """Quotient of two arrays; 0 where b = 0."""
    if not isinstance(b, np.ndarray | np.generic):  # CuPy
        return gpu_kernel("float64 a, float64 b", "c = b == 0 ? 0 : a / b")(a, b)
    zero = b == 0
    return np.where(zero, 0.0, a / np.where(zero, 1.0, b)) if zero.any() else a / b


@lru_cache(maxsize=16)
def gpu_kernel(given: str, formula: str) -> Any:
    """An elementwise formula for CuPy arrays, as one kernel. The result is named before the equals sign."""
    import cupy

    return cupy.ElementwiseKernel(given, f"float64 {formula.split()[0]}", formula, "onmf_elementwise")
