"""The groups of rows: labels as users give them, and rows with a column for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler
from onmf.divergence.groups import GroupedKullbackLeibler, append_groups
from onmf.io.rules import require
from onmf.warn import warn

from .validate import unwrap_xarray

SMOOTHING = 0.01  # of templates with groups, relative to the mean share of a feature, unless it is given


@dataclass(frozen=True)
class Groups:
    """The group of each row.

    Attributes
    ----------
    names : (groups,) array
        The labels of the groups, sorted.
    codes : (n,) array of int
        The place of each row's group among them.
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
        """The codes of n of the rows, from the first on; a single code is that of all rows."""
        if len(self.codes) == 1 and self.factors is not None:
            return np.full(n, self.codes[0])
        return self.codes[first : first + n]

    def check_length(self, n: int) -> None:
        """Refuse labels for another number of rows."""
        require(
            len(self.over(n)) == n and len(self.codes) <= n,
            f"groups has {len(self.codes)} labels, but X has {n} rows: give one for each row.",
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


def read_groups(groups: Any) -> tuple[Array, list[int] | None]:
    """The labels of groups as an array, and the rows of each partition of a Dask collection."""
    groups, sizes = unwrap_xarray(groups), None
    if hasattr(groups, "__dask_graph__"):
        import dask

        parts = dask.compute(*np.ravel(groups.to_delayed()))
        groups, sizes = np.concatenate([np.asarray(part) for part in parts]), [len(part) for part in parts]
    values = np.asarray(groups)
    require(values.ndim == 1, f"groups has {values.ndim} dimensions: give one label for each row.")
    missing = [i for i, value in enumerate(values.tolist()) if value is None or _is_missing(value)]
    if missing:
        raise ValueError(
            f"groups[{missing[0]}] is missing, the first of {len(missing)}: every row needs a group. Give those rows a "
            "label of their own, or leave them out."
        )
    return values, sizes


def _is_missing(value: Any) -> bool:
    """Whether a label is NaN, NaT or pandas' NA."""
    return type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def check_groups(groups: Any, relative: bool) -> Groups:
    """The groups of the rows of a fit; ``relative`` says whether their smoothing is."""
    values, sizes = read_groups(groups)
    try:
        names, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise ValueError("groups has labels of several types: make them all texts, or all numbers.") from error
    return Groups(names, codes.astype(np.int32), sizes, relative=relative)


def known_groups(groups: Any, names: Array, factors: FloatArray) -> Groups:
    """The groups of new rows among the names that a model knows; for others, and without any, multipliers are 1."""
    if groups is None:
        warn(
            f"The model has multipliers for the groups {_some(names.tolist())}, and these rows come without groups: "
            "their multipliers are 1. Pass groups=.",
            UserWarning,
        )
        return Groups(names, np.full(1, len(names), dtype=np.int32), None, factors)
    values, sizes = read_groups(groups)
    known = {name: code for code, name in enumerate(names.tolist())}
    codes = np.array([known.get(value, len(names)) for value in values.tolist()], dtype=np.int32)
    strangers = sorted({str(value) for value in values[codes == len(names)].tolist()})
    if strangers:
        warn(
            f"The model does not know the group{'s' * (len(strangers) > 1)} {_some(strangers)}: their multipliers are "
            "1. estimate_group() finds those of a new group.",
            UserWarning,
        )
    return Groups(names, codes, sizes, factors)


def _some(names: list[Any]) -> str:
    """The first few names."""
    return ", ".join(map(str, names[:5])) + (", …" if len(names) > 5 else "")
