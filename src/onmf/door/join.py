"""Several files as one table: each is a group, unless it names groups of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from onmf.datasets.readers import as_counts
from onmf.divergence import Array
from onmf.io.rules import require, some_names

from .clusters import Table

T = TypeVar("T", bound=Table)


def names_of_files(paths: Sequence[str | Path]) -> list[str]:
    """A short name of each file: its own without the ending, after as many folders as tell the files apart."""
    parts = [Path(path).absolute().parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(some[-depth:]) for some in parts]
        if len(set(names)) == len(names):
            stems = ["/".join((*some[-depth:-1], Path(some[-1]).stem)) for some in parts]
            return stems if len(set(stems)) == len(stems) else names
    twice = next(path for number, path in enumerate(paths) if parts[number] in parts[:number])
    raise ValueError(f"{twice} is named twice: name each file once.")


def join_tables(tables: Sequence[T], paths: Sequence[str | Path], feature: str) -> T:
    """The rows of several tables below each other, with the features that all of them have, matched by name."""
    from .kind import best_match

    names, first = names_of_files(paths), tables[0]
    places = np.stack([best_match(first.namings, table.namings) for table in tables])
    kept = np.flatnonzero((places >= 0).all(axis=0))
    noun = f"{feature}s"
    require(
        len(kept),
        f"{' and '.join(names)} have no {feature} in common: {names[0]} has {some_names(first.features, 3)}, "
        f"{names[-1]} has {some_names(tables[-1].features, 3)}. Name the {noun} in the same way.",
    )
    notes = [f"{name}: {note}" for name, table in zip(names, tables, strict=True) for note in table.notes]
    for name, table, own in zip(names, tables, places, strict=True):
        left = np.setdiff1d(np.arange(len(table.features)), own[kept])
        if len(left):
            some = some_names([str(table.features[j]) for j in left])
            so_many = f"{len(left):,} of the {len(table.features):,} {noun} of {name}"
            notes.append(f"{so_many} are not in every file and are left out: {some}.")
    groups = [table.groups or [name] * len(table.rows) for name, table in zip(names, tables, strict=True)]
    return replace(
        first.with_features(kept),
        X=stack([table.X for table in tables], [own[kept] for own in places]),
        rows=_row_names([table.rows for table in tables], names),
        groups=list(chain.from_iterable(groups)),
        classes=_together([table.classes for table in tables], tables, None),
        known=_together([table.known for table in tables], tables, None),
        dates=None,
        source=", ".join(map(str, paths)),
        sources=tuple(map(str, paths)),
        notes=notes,
    )


def _row_names(rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """The names of all rows, each followed by that of its file if some would be equal otherwise."""
    together = list(chain.from_iterable(rows))
    if len(set(together)) == len(together):
        return together
    return [f"{row}-{name}" for name, some in zip(names, rows, strict=True) for row in some]


def _together(values: Sequence[Any], tables: Sequence[Table], missing: Any) -> list[Any] | None:
    """What is known about the rows of each table, one after the other; None if nothing is known of any."""
    if all(some is None for some in values):
        return None
    filled = ([missing] * len(table.rows) if some is None else some for some, table in zip(values, tables, strict=True))
    return list(chain.from_iterable(filled))


def stack(parts: Sequence[Any], columns: Sequence[Array]) -> Any:
    """Some columns of several matrices below each other: in memory if all are, else read by slices of rows."""
    if all(issparse(part) for part in parts):
        return as_counts(vstack([part[:, own] for part, own in zip(parts, columns, strict=True)], format="csr"))
    return Stacked(parts, columns)


class Stacked:
    """Columns of several matrices below each other, read by slices of rows: ``X[a:b]`` is a CSR array."""

    ndim = 2

    def __init__(self, parts: Sequence[Any], columns: Sequence[Array]) -> None:
        self.parts, self.columns = parts, columns
        self.ends = np.cumsum([part.shape[0] for part in parts]).tolist()
        self.shape = (self.ends[-1], len(columns[0]))
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> csr_array:
        start, stop, _ = rows.indices(self.shape[0])
        found, first = [csr_array((0, self.shape[1]), dtype=self.dtype)], 0
        for part, own, end in zip(self.parts, self.columns, self.ends, strict=True):
            if max(start, first) < min(stop, end):
                found.append(csr_array(part[max(start - first, 0) : min(stop, end) - first])[:, own])
            first = end
        return csr_array(vstack(found, format="csr"))
