"""HDF5 files and Zarr stores of cells: what is in them, and lists of names. A separate process reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets import foreign
from onmf.datasets.lazy import call, check_installed, naming

HEAD = 100_000
"""Entries that are read to see what a matrix holds."""


@dataclass(frozen=True)
class Store:
    """An HDF5 file or a Zarr store.

    Parameters
    ----------
    kind : {"hdf5", "zarr"}
        Its format.
    path : path
        The file, or the folder of the store.
    """

    kind: foreign.Kind
    path: Path

    def look(self, name: str = "") -> dict[str, Any]:
        """Describe a group or an array (see :func:`onmf.datasets.foreign.look`)."""
        return self._call(foreign.look, name)

    def members(self, name: str = "") -> list[str]:
        """Names of the members of a group; none if it is an array."""
        return list(self.look(name).get("members", []))

    def attribute(self, name: str, key: str) -> str | None:
        """Read an attribute as text; None if it is not there."""
        value: str | None = self._call(foreign.attribute, name, key)
        return value

    def has(self, name: str) -> bool:
        """Whether there is a group or array at a path."""
        folder, _, last = name.rpartition("/")
        return (not folder or self.has(folder)) and last in self.members(folder)

    def texts(self, name: str, count: int | None = None, field: str | None = None) -> list[str | None]:
        """Read a list as texts; None for missing ones.

        Parameters
        ----------
        name : str
            Path of the list, or of the table that it is a column of.
        count : int, optional
            Expected length; another one is refused.
        field : str, optional
            Column of the table.
        """
        values: list[str | None] = self._call(foreign.texts, name, field)
        return self.counted(values, name if field is None else f"{name}/{field}", count)

    def codes(self, name: str, count: int) -> list[int]:
        """Read a list of integers: the codes of categories, or a mask."""
        [values] = self._call(foreign.read, name, slices=(0, count))
        if values.ndim != 1 or values.dtype.kind not in "bui":
            raise ValueError(f"{self.path}, {name}, is not a list of integers, so its categories cannot be read.")
        return self.counted(values.tolist(), name, count)

    def counted(self, values: list[Any], name: str, count: int | None) -> list[Any]:
        """Return the values if there are ``count`` of them; refuse them otherwise."""
        if count is not None and len(values) != count:
            raise ValueError(
                f"{self.path}, {name}, has {len(values)} entries for {count} rows or columns of the matrix: the file "
                "is damaged, or was put together from parts of different files."
            )
        return values

    def head(self, name: str) -> Any:
        """Read the first entries of a matrix, up to :data:`HEAD`, to see what it holds."""
        description = self._call(foreign.describe, name)["arrays"]
        if "" not in description:
            [values] = self._call(foreign.read, f"{name}/data", slices=(0, HEAD))
        else:
            shape = [*description[""]["shape"], 0, 0]
            [values] = self._call(foreign.read, name, slices=(0, max(1, HEAD // max(shape[1], 1))))
        return np.asarray(values).ravel()[:HEAD]

    def _call(self, function: Any, name: str, *arguments: Any, slices: tuple[int, int] | None = None) -> Any:
        check_installed(self.kind)
        try:
            with naming(self.path, name):
                if slices is not None:
                    return call(function, self.kind, self.path, (name, *slices))
                return call(function, self.kind, self.path, name, *arguments)
        except KeyError as error:
            raise ValueError(error.args[0]) from error


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names in a sentence: the first ones, shortened."""
    shown = [repr(name if len(name) <= 60 else name[:60] + "…") for name in names[:most]]
    return ", ".join(shown) + (", …" if len(names) > most else "") if shown else "none"
