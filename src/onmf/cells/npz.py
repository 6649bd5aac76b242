"""Reads sparse matrices in npz files: those of SciPy, and those of this project's data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets.readers import read_documents
from onmf.datasets.stored import open_npz

from .draft import Draft, Values
from .matrix import tidy
from .orientation import CELLS, GENES, if_wrong

CLASSES = ("y", "classes")
"""Names of the column of classes: both mean the name of each cell's class."""


def read_npz(path: Path, orientation: str | None = None) -> Draft:
    """Read an npz file.

    Parameters
    ----------
    path : path
        As written by SciPy's ``save_npz``; or with the arrays ``data``, ``indices``, ``indptr`` and ``shape`` of a CSR
        matrix, and optionally ``genes`` and ``barcodes`` (names), ``y`` (class of each cell) and ``classes`` (names of
        the classes).
    orientation : {"cells-in-rows", "genes-in-rows"}, optional
        By default cells in rows.

    Returns
    -------
    Draft
    """
    X = tidy(read_documents(path, "npz").X)
    if orientation == GENES:
        X = tidy(X.T)
    n, p = X.shape
    try:
        with open_npz(path) as file:
            arrays = {key: file[key] for key in ("genes", "barcodes", *CLASSES) if key in file}
    except Exception as error:  # zipfile and NumPy raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as npz: {error}") from error
    genes, barcodes = (_texts(arrays, key, path, size) for key, size in (("genes", p), ("barcodes", n)))
    draft = Draft(X, barcodes, genes, "the matrix")
    if orientation is None and genes is None and barcodes is None:
        draft.notes.append(
            f"The file does not say what its rows are: {CELLS.replace('-', ' ')} are assumed. {if_wrong(CELLS)}"
        )
    if "y" in arrays:
        draft.columns = list(CLASSES)
        draft.column = lambda name: _classes(arrays, path, n)
    return draft


def _texts(arrays: dict[str, Any], key: str, path: Path, count: int | None) -> list[str] | None:
    """A list of texts or numbers as texts; None if it is not there."""
    if key not in arrays:
        return None
    array = arrays[key]
    if array.ndim != 1 or array.dtype.kind not in "buifUS" or (count is not None and len(array) != count):
        wanted = "" if count is None else f" of length {count:,}"
        raise ValueError(f"{path}: {key} has shape {array.shape} and type {array.dtype}: expected a list{wanted}.")
    if array.dtype.kind == "U" and array.nbytes:
        characters = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if characters.max() > sys.maxunicode:  # Python would make texts of them that crash it
            raise ValueError(f"{path}: {key} has characters that do not exist: the file is damaged.")
    if array.dtype.kind == "S":
        return [text.decode(errors="replace") for text in array.tolist()]
    return [str(value).encode(errors="replace").decode() for value in array.tolist()]


def _classes(arrays: dict[str, Any], path: Path, count: int) -> Values:
    """The name of each cell's class."""
    y, names = _texts(arrays, "y", path, count), _texts(arrays, "classes", path, None)
    assert y is not None
    numbers = arrays["y"]
    if names is None or numbers.dtype.kind not in "ui":
        return y
    if numbers.min() < 0 or numbers.max() >= len(names):
        raise ValueError(f"{path}: y has numbers outside of the {len(names)} names in classes.")
    return [names[int(k)] for k in np.asarray(numbers)]
