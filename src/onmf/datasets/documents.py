"""A collection of documents as a matrix of word counts."""

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
        Class of each document, if known.
    name : str
        Name of the collection.
    source : str
        Origin of the collection, usually a path.
    words : (words,) array of str or None
        Word of each column, if known.
    classes : (n_classes,) array of str or None
        Name of each class, if known.
    ids : (documents,) array of str or None
        Name of each document, if known.
    profiles : (n_classes, words) array or None
        Word probabilities that each class was drawn from, for generated counts.
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
