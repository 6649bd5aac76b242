"""What a collection of documents is, once counted."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.sparse import csr_array

from onmf.divergence import Array, FloatArray


@dataclass(frozen=True)
class Documents:
    """Word counts of documents, with their classes.

    Attributes
    ----------
    X : (documents, words) CSR array
        Counts.
    y : (documents,) array of int or None
        Class of each document, where known.
    name : str
        Name of the collection.
    source : str
        Where it comes from.
    words : (words,) array of str or None
        The word of each column, where known.
    classes : (n_classes,) array of str or None
        The name of each class, where known.
    ids : (documents,) array of str or None
        What each document is called, where known.
    profiles : (n_classes, words) array or None
        The word probabilities each class was drawn from, for generated counts.
    """

    X: csr_array
    y: Array | None
    name: str
    source: str
    words: Array | None = None
    classes: Array | None = None
    ids: Array | None = None
    profiles: FloatArray | None = None

    def __repr__(self) -> str:
        n, p = self.X.shape
        classes = "" if self.y is None else f", {len(set(self.y.tolist()))} classes"
        return f"<Documents {self.name}: {n} × {p} counts, {self.X.nnz} nonzeros{classes}>"
