"""Checks that counts are counts. If they are not, says what they look like and where the counts may be."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from onmf.datasets.pieces import ROWS
from onmf.io.rules import require

from .files import Cells, setting, whole_layers
from .matrix import are_whole, canonical

LOGARITHMS = 20  # largest value that logarithms have: even to base 2, it stands for a million counts
SAMPLE = 2_000  # number of cells that are looked at to say what the entries are, if they are not whole
EQUAL = 1e-3  # largest relative difference between sums of cells that were made equal; half-precision numbers need it
POWERS: dict[str, Callable[[Any], Any]] = {
    "natural logarithm": np.expm1,
    "logarithm to base 2": lambda x: np.exp2(x) - 1,
    "logarithm to base 10": lambda x: np.power(10.0, x) - 1,
    "": lambda x: x,
}
"""Logarithms of one plus a count, and how they are undone; last, no logarithm."""


def check_counts(
    X: Any,
    *,
    place: str = "X",
    elsewhere: Sequence[str] | Callable[[], Sequence[str]] = (),
    barcodes: Sequence[str] | None = None,
    genes: Sequence[str] | None = None,
    rows: int = ROWS,
) -> list[str]:
    """Check that a matrix of cells × genes holds counts.

    Parameters
    ----------
    X : Cells, or array or sparse array of shape (n_cells, n_genes)
        The counts, in memory or sliceable by rows. :class:`Cells` bring their own place and names, and their file is
        searched for layers with counts.
    place : str, default="X"
        Where the counts are, for messages.
    elsewhere : list of str or callable
        Names of layers that hold whole numbers; a function that finds them is called only if it is needed.
    barcodes, genes : sequence of str, optional
        Names of rows and columns.
    rows : int, default=10000
        Cells that are looked at together.

    Returns
    -------
    list of str
        What should be known about the counts: that some are not whole.

    Raises
    ------
    ValueError
        If the entries are no counts: missing, infinite, negative, logarithmic, normalised, or all zero.

    Examples
    --------
    >>> import numpy as np
    >>> from onmf.cells import check_counts
    >>> check_counts(np.array([[3, 0], [1, 2]]))
    []
    >>> check_counts(np.array([[3, -0.5], [1, 2]]), elsewhere=["counts"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: X holds no counts: an entry is negative (-0.5, cell 1, gene 2), as after scaling or batch corr...
    """
    if isinstance(X, Cells):
        source, at = X.source, X.place
        check = CountCheck(f"{source}, {at}", lambda: whole_layers(source, at), X.barcodes, X.genes, in_file=True)
        X = X.X
    else:
        check = CountCheck(place, elsewhere, barcodes, genes)
    for start in range(0, X.shape[0], rows):
        check.add(X[start : start + rows])
    return check.finish()


def whole_layers_of(adata: Any, besides: str | None = None) -> list[str]:
    """Layers of an AnnData object, in memory or backed, whose first rows hold whole numbers.

    The layer ``besides``, or ``X`` if that is None, is not looked at.
    """
    places = {} if besides is None or adata.X is None else {"X": adata.X}
    if besides != "raw" and getattr(adata, "raw", None) is not None:
        places["raw"] = adata.raw.X
    places |= {name: adata.layers[name] for name in adata.layers if name != besides}
    return [name for name, X in places.items() if are_whole(canonical(X[:100]).data)]


class CountCheck:
    """Checks counts in batches of cells, with the parameters of :func:`check_counts`.

    In a file (``in_file``), ``layer`` can name every place; in an AnnData object it cannot.
    """

    def __init__(
        self,
        place: str = "X",
        elsewhere: Sequence[str] | Callable[[], Sequence[str]] = (),
        barcodes: Sequence[str] | None = None,
        genes: Sequence[str] | None = None,
        *,
        in_file: bool = False,
    ) -> None:
        self.place, self.elsewhere, self.in_file = place, elsewhere, in_file
        self.barcodes, self.genes = barcodes, genes
        self.seen, self.largest, self.example = 0, 0.0, ""
        self.sample: list[csr_array] = []

    def add(self, batch: Any) -> None:
        """Check the next cells; entries that cannot be counts raise a ValueError."""
        X = canonical(batch)
        data = X.data
        self.seen += X.shape[0]
        if not data.size:
            return
        low, high = data.min(), data.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            entry = np.argmin(np.isfinite(data))
            kind = "missing" if np.isnan(data[entry]) else "infinite"
            raise self._error(f"an entry is {kind} ({self._entry(X, entry)}).")
        if low < 0:
            found = self._entry(X, np.argmin(data))
            raise self._error(f"an entry is negative ({found}), as after scaling or batch correction.")
        self.largest = max(self.largest, float(high))
        if not are_whole(data):
            self.example = self.example or self._entry(X, np.argmax(data != np.floor(data)))
            missing = SAMPLE - sum(part.shape[0] for part in self.sample)
            self.sample.append(X[: max(0, missing)].astype(np.float64))

    def finish(self) -> list[str]:
        """Judge what was seen. → notes; a ValueError if it cannot be counts"""
        require(self.largest, f"{self.place} has no counts: all entries of its {self.seen:,} cells are zero.")
        if not self.sample:
            return []
        if finding := _describe(csr_array(vstack(self.sample, format="csr")), self.largest):
            raise self._error(f"some entries are not whole ({self.example}), and {finding}.")
        return [f"Some counts are not whole ({self.example}): they are taken as estimates of counts."]

    def _entry(self, X: csr_array, entry: Any) -> str:
        """An entry of the last batch, with its cell and gene."""
        row = self.seen - X.shape[0] + int(np.searchsorted(X.indptr, entry, side="right")) - 1
        column = int(X.indices[entry])
        cell = row + 1 if self.barcodes is None else repr(self.barcodes[row])
        gene = column + 1 if self.genes is None else repr(self.genes[column])
        return f"{X.data[entry]:.6g}, cell {cell}, gene {gene}"

    def _error(self, finding: str) -> ValueError:
        """The refusal, with the places that hold whole numbers and how the first of them is asked for."""
        remedy = "Use the counts as they were measured, before normalisation, logarithms and scaling."
        names = list(self.elsewhere() if callable(self.elsewhere) else self.elsewhere)
        if names:
            *first, last = [name if name in ("X", "raw") else f"the layer {name!r}" for name in names[:5]]
            places = f"{', '.join(first)} and {last}" if first else last
            of_object = {"X": "layer=None", "raw": "adata.raw.to_adata()"}.get(names[0], f"layer={names[0]!r}")
            how = setting("layer", names[0]) if self.in_file else of_object
            remedy = f"Whole numbers are in {places}: use {'one of these, such as ' if first else ''}{how}."
        return ValueError(f"{self.place} holds no counts: {finding} {remedy}")


def _describe(X: csr_array, largest: float) -> str:
    """Say what entries that are not whole look like, with the largest of all; empty if they may be estimates."""
    for name, power in POWERS.items():
        if name and largest > LOGARITHMS:
            continue
        counts = csr_array((power(X.data), X.indices, X.indptr), shape=X.shape)
        small = counts.data[counts.data < 1000]  # larger ones are not exact enough to tell
        if name and small.size and np.mean(np.abs(small - np.rint(small)) < 0.01) > 0.999:
            return f"each is the {name} of one plus a whole number: the counts were log-transformed"
        after = f" and log-transformed ({name})" if name else ""
        if total := _equal_sums(counts):
            return f"the entries of each cell were normalised to {total:,.6g}{after}"
        if _multiples(counts):
            return f"the entries of each cell are multiples of one number: they were normalised{after}"
    if largest <= LOGARITHMS and np.mean(X.data == np.floor(X.data)) < 0.5:
        return f"the largest is {largest:.4g}: they look like logarithms of normalised counts"
    return ""


def _equal_sums(X: csr_array) -> float:
    """The sum of each cell, if all have the same; else 0. Empty cells do not count."""
    sums = np.asarray(X.sum(axis=1)).ravel()
    sums = sums[sums > 0]
    if len(sums) < 3 or sums.max() - sums.min() > EQUAL * sums.max():
        return 0.0
    total = float(np.median(sums))
    return float(round(total)) if abs(total - round(total)) < EQUAL * total else total


def _multiples(X: csr_array) -> bool:
    """Whether the entries of nearly every cell are multiples of its smallest one, as one count is the smallest."""
    multiples = []
    for row in np.flatnonzero(np.diff(X.indptr) >= 10)[:200]:
        entries = X.data[X.indptr[row] : X.indptr[row + 1]]
        ratios = entries / entries.min()
        ratios = ratios[ratios < 100]  # larger ones are not exact enough to tell
        multiples.append(np.mean(np.abs(ratios - np.rint(ratios)) < 0.01) > 0.99)
    return len(multiples) >= 3 and sum(multiples) >= 0.9 * len(multiples)
