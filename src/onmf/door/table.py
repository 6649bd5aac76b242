"""A table of counts: what every reader returns, and what the pipeline clusters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onmf import old_names

Progress = Callable[[str, float | None], None]
"""Called with the name of a step and the share of it that is done, None if that is not known."""


@dataclass(repr=False)
class Table:
    """Counts, with the names of their rows and features.

    Attributes
    ----------
    X : csr_array, ndarray or an object that reads rows
        Rows × features. What does not fit in memory is lazy: it has ``shape`` and ``dtype``, and reads slices of rows.
    rows, features : sequence of str
        Their names.
    classes : list or None
        Known class of each row, None where it is not known; None if there are no classes at all.
    dates : array of datetime64 or None
        Date of each row, NaT where it is not known; None if there are no dates at all.
    source : str
        The file that was read, or empty.
    notes : list of str
        What was guessed, changed or left out.
    """

    X: Any
    rows: Sequence[str]
    features: Sequence[str]
    classes: list[str | None] | None = None
    dates: Any = None
    source: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the file, or empty."""
        return Path(self.source).name

    def __getattr__(self, name: str) -> Any:
        return old_names.attribute(self, name, old_names.TABLE_ATTRIBUTES)

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<{type(self).__name__} of {self.name or 'no file'}: {n:,} rows × {p:,} features>"
