"""The groups of rows: labels as users give them, and rows with a column for each group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler
from onmf.divergence.groups import GroupedKullbackLeibler, append_groups
from onmf.io.rules import abbreviate, require, some_names
from onmf.warn import warn

from .validate import unwrap_xarray

SMOOTHING = 0.01  # of templates with groups, relative to the mean share of a feature, unless it is given

NOUNS: dict[type, str] = {str: "texts", bool: "booleans", int: "whole numbers"}  # what labels may be


@dataclass(frozen=True)
class Groups:
    """The group of each row.

    Attributes
    ----------
    names : (groups,) array
        The labels of the groups, sorted.
    codes : (n,) array of int, or array without dimensions
        The place of each row's group among them, or that of all rows.
    sizes : list of int or None
        The rows of each partition, if the labels came as a Dask collection.
    factors : (groups,) array or None
        The factors of the multipliers that templates leave out; None in a fit, which needs none.
    relative : bool
        Whether the smoothing is relative to the mean share of a feature.
    """

    names: Array
    codes: Array
    sizes: list[int] | None = None
    factors: FloatArray | None = None
    relative: bool = False

    def __len__(self) -> int:
        return len(self.names) + (self.factors is not None)  # and one for rows of no known group

    def divergence(self, plain: Divergence, p: int) -> GroupedKullbackLeibler:
        """Kullback–Leibler for rows of p features with columns for these groups."""
        smoothing = self.plain_divergence(plain, p).smoothing
        factors = () if self.factors is None else tuple(self.factors.tolist())
        return GroupedKullbackLeibler(smoothing, p, smoothing, factors)

    def plain_divergence(self, plain: Divergence, p: int) -> KullbackLeibler:
        """The same for rows without these columns."""
        assert isinstance(plain, KullbackLeibler)
        return KullbackLeibler(SMOOTHING / p if self.relative else plain.smoothing)

    def append(self, rows: Any, codes: Array) -> Any:
        """Rows with a column for each group."""
        return append_groups(rows, codes, len(self))

    def over(self, n: int, first: int = 0) -> Array:
        """The codes of n of the rows, from the first on."""
        if not self.codes.ndim:
            return np.full(n, self.codes)
        own = self.codes[first : first + n]
        require(len(own) == n, f"groups has {self.codes.size} labels, but X has more rows: give one for each row.")
        return own

    def check_length(self, n: int) -> None:
        """Refuse labels for another number of rows."""
        require(
            self.codes.size == n or not self.codes.ndim,
            f"groups has {self.codes.size} labels, but X has {n} rows: give one for each row.",
        )

    def in_parts(self, sizes: list[int] | None) -> list[Array]:
        """The codes of the rows of each partition."""
        sizes = sizes or self.sizes
        if sizes is None:
            raise ValueError(
                "groups is in memory, and the sizes of the partitions of X are not known: pass a Dask array with the "
                "same chunks, or call X.compute_chunk_sizes() first."
            )
        self.check_length(sum(sizes))
        ends = np.cumsum(sizes)
        return [self.over(n, int(end) - n) for n, end in zip(sizes, ends, strict=True)]


def read_groups(groups: Any) -> tuple[list[Any], list[int] | None]:
    """The labels of groups, and the rows of each partition of a Dask collection."""
    groups, sizes = unwrap_xarray(groups), None
    if hasattr(groups, "__dask_graph__"):
        import dask

        parts = [_labels(part) for part in dask.compute(*np.ravel(groups.to_delayed()))]
        labels, sizes = [label for part in parts for label in part], [len(part) for part in parts]
    else:
        labels = _labels(groups)
    type_of_labels(labels)
    return labels, sizes


def _labels(groups: Any) -> list[Any]:
    """Labels as they are: an array of texts and numbers would have them all as texts."""
    if isinstance(groups, np.ma.MaskedArray):
        groups = groups.tolist()  # with None for what is masked
    values = np.asarray(groups) if hasattr(groups, "dtype") else np.array(groups, dtype=object)
    if values.ndim == 0:
        raise ValueError(f"groups is {abbreviate(groups)}: give a list or an array with one label for each row.")
    require(values.ndim == 1, f"groups has {values.ndim} dimensions: give one label for each row.")
    return list(values) if values.dtype.kind in "mM" else values.tolist()  # times would become numbers


def type_of_labels(labels: Collection[Any], what: str = "groups") -> type:
    """Whether labels are texts, whole numbers or booleans; others, and several types, are refused."""
    types = set(map(type, labels))
    found = {_kind_of(each) for each in types}
    if object in found:
        missing = [i for i, label in enumerate(labels) if is_missing(label)]
        if missing:
            raise ValueError(
                f"{what}[{missing[0]}] is missing, the first of {len(missing)}: every row needs a group. Give those "
                "rows a label of their own, or leave them out."
            )
    if object in found or len(found) > 1:
        raise ValueError(
            f"{what} has labels of type {' and '.join(sorted(each.__name__ for each in types))}, and labels are texts, "
            "whole numbers or booleans, all of one type: turn them into texts."
        )
    return found.pop() if found else str


def _kind_of(own: type) -> type:
    """The type of the labels of a class: a key of ``NOUNS``, or ``object`` if they are refused."""
    if issubclass(own, str):
        return str
    if issubclass(own, bool | np.bool_):
        return bool
    return int if issubclass(own, int | np.integer) and not issubclass(own, np.timedelta64) else object


def is_missing(label: Any) -> bool:
    """Whether a label is None, NaN, NaT or pandas' NA."""
    is_nan = isinstance(label, float | np.floating | np.datetime64 | np.timedelta64) and bool(label != label)
    return label is None or is_nan or type(label).__name__ in ("NAType", "NaTType")


def names_of_groups(names: list[Any]) -> Array:
    """Labels of one type as an array."""
    kind = type_of_labels(names)
    try:
        return np.array(names, dtype=np.int64 if kind is int else kind)
    except OverflowError:
        raise ValueError("groups has whole numbers of more than 64 bits as labels: turn them into texts.") from None


def check_same_type(labels: Collection[Any], names: Array, what: str = "groups") -> None:
    """Refuse labels of another type than those of the groups of a model."""
    kind, own = type_of_labels(labels, what), type_of_labels(names.tolist())
    if kind is not own:
        raise ValueError(
            f"{what} has {NOUNS[kind]} as labels, and the model has {NOUNS[own]}, {some_names(names.tolist())}: give "
            "labels of that type."
        )


def check_groups(groups: Any, relative: bool) -> Groups:
    """The groups of the rows of a fit; ``relative`` says whether their smoothing is."""
    labels, sizes = read_groups(groups)
    names = sorted(set(labels))
    return Groups(names_of_groups(names), _codes(labels, names), sizes, relative=relative)


def _codes(labels: list[Any], names: list[Any]) -> Array:
    """The place of each label among the names; their number if it is none of them. → (n,) int32"""
    places = {name: code for code, name in enumerate(names)}
    return np.array([places.get(label, len(places)) for label in labels], dtype=np.int32)


def known_groups(groups: Any, names: Array, factors: FloatArray) -> Groups:
    """The groups of new rows among the names that a model knows; for others, and without any, multipliers are 1."""
    if groups is None:
        warn(
            f"The model has multipliers for the groups {some_names(names.tolist())}, and these rows come without "
            "groups: their multipliers are 1. Pass groups=.",
            UserWarning,
        )
        return Groups(names, np.array(len(names), dtype=np.int32), None, factors)
    labels, sizes = read_groups(groups)
    check_same_type(labels, names)
    codes = _codes(labels, names.tolist())
    strangers = sorted({str(labels[i]) for i in np.flatnonzero(codes == len(names))})
    if strangers:
        warn(
            f"The model does not know the group{'s' * (len(strangers) > 1)} {some_names(strangers)}: their multipliers "
            "are 1. estimate_group() finds those of a new group.",
            UserWarning,
        )
    return Groups(names, codes, sizes, factors)


def divide_by_effects(rows: Any, effects: FloatArray, codes: Array) -> Any:
    """Rows in memory, each divided by the multipliers (groups, p) of its group."""
    if not issparse(rows):
        return rows / effects[codes]
    own = np.repeat(codes, np.diff(rows.indptr))
    return csr_array((rows.data / effects[own, rows.indices], rows.indices, rows.indptr), shape=rows.shape)
