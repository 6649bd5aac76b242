"""Reads the files of 10x Genomics: .h5 of versions 2 and 3, and folders with a matrix and names beside it."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from onmf.datasets.readers import opened

from .draft import Draft, Values
from .market import oriented, read_market
from .matrix import read_matrix
from .store import Store, listed
from .wording import setting

PARTS = {"barcodes", "data", "indices", "indptr", "shape"}
"""Members of a group that holds a matrix."""

KEPT = "Gene Expression"
"""The type of features that are genes."""

MATRIX = "matrix.mtx"
"""Name of the matrix in a folder; a prefix and .gz are allowed."""

BESIDE = {
    "barcodes": ("barcodes.tsv", "barcodes.txt", "cells.tsv", "cells.txt"),
    "features": ("features.tsv", "genes.tsv", "genes.txt", "features.txt"),
}
"""Names of the files beside a matrix."""

LONGEST = 1 << 20
"""Characters of the longest line of a file of names."""


def is_tenx(store: Store) -> bool:
    """Whether an HDF5 file is one of 10x Genomics."""
    return bool(_groups(store))


def read_tenx(store: Store, layer: str | None = None) -> Draft:
    """Read the counts of an .h5 file of 10x Genomics.

    Parameters
    ----------
    store : Store
        The file.
    layer : str, optional
        The genome, if the file has several (version 2).

    Returns
    -------
    Draft
    """
    groups = _groups(store)
    if layer is not None and layer not in groups:
        raise ValueError(
            f"{store.path} has no layer {layer!r}: files of 10x Genomics hold the counts of {listed(groups)}."
        )
    if layer is None and len(groups) > 1:
        raise ValueError(
            f"{store.path} has the counts of several genomes, {listed(groups)}: name one of them as the layer, such as "
            f"{setting('layer', groups[0])}."
        )
    group = layer or groups[0]
    shape = store.texts(f"{group}/shape", 2)
    genes, barcodes = int(shape[0] or 0), store.texts(f"{group}/barcodes")
    if "features" in store.members(group):
        members = store.members(f"{group}/features")
        places = {key: f"features/{key}" for key in members if key in ("name", "id", "feature_type")}
    else:
        names = {"name": "gene_names", "id": "genes"}
        places = {key: name for key, name in names.items() if name in store.members(group)}
    features = {key: store.texts(f"{group}/{place}", genes) for key, place in places.items()}
    keep, notes = _genes_only(features.get("feature_type"), str(store.path))
    X = read_matrix(store, group, transposed=True, columns=keep)
    store.counted(barcodes, f"{group}/barcodes", X.shape[0])
    return _draft(X, barcodes, features.get("name"), features.get("id"), keep, notes, group)


def _groups(store: Store) -> list[str]:
    """The groups of a file that hold a matrix."""
    return [name for name in store.members() if set(store.members(name)) >= PARTS]


def _genes_only(types: Values | None, source: str) -> tuple[Any, list[str]]:
    """Find the features that are genes. → their numbers (None: all of them), notes"""
    if types is None:
        return None, []
    others = Counter(name or "no type" for name in types if name != KEPT)
    if not others:
        return None, []
    if len(types) == others.total():
        raise ValueError(f"{source} has no features of type {KEPT!r}: it has {listed(list(others))}.")
    left_out = ", ".join(f"{number:,} of type {name!r}" for name, number in others.most_common(10))
    return np.flatnonzero([name == KEPT for name in types]), [
        f"Only features of type {KEPT!r} are kept; left out: {left_out}."
    ]


def _draft(
    X: Any, barcodes: Values | None, names: Values | None, ids: Values | None, keep: Any, notes: list[str], place: str
) -> Draft:
    """Put a draft together. As in the field's tools, genes are named by their symbols."""
    if keep is not None:
        names, ids = (None if some is None else [some[j] for j in keep] for some in (names, ids))
    if names is None:
        names, ids = ids, None
    return Draft(X, barcodes, names, place, ids=None if ids == names else ids, notes=notes)


def find_matrix(folder: Path) -> Path:
    """Find the matrix in a folder."""
    found = sorted(
        path for path in folder.iterdir() if path.name.removesuffix(".gz").endswith(MATRIX) and path.is_file()
    )
    if len(found) > 1:  # the same matrix, compressed and not
        found = [path for path in found if path.suffix != ".gz" or path.with_suffix("") not in found]
    if not found:
        inside = listed(sorted(path.name for path in folder.iterdir()), 8)
        raise ValueError(
            f"{folder} is a folder without {MATRIX} or {MATRIX}.gz; it holds {inside}. Name the file with the counts."
        )
    if len(found) > 1:
        raise ValueError(f"{folder} holds several matrices, {listed([path.name for path in found])}: name one of them.")
    return found[0]


def read_mtx(path: Path, orientation: str | None = None) -> Draft:
    """Read a Matrix Market file, with the names of cells and genes in the files beside it.

    Parameters
    ----------
    path : path
        The matrix. The files beside it have the same prefix, or none.
    orientation : {"cells-in-rows", "genes-in-rows"}, optional
        By default that of the names, if they fit one only; else genes in rows, as 10x Genomics writes them.

    Returns
    -------
    Draft
    """
    name = path.name.removesuffix(".gz")
    prefix = name.removesuffix(MATRIX) if name.endswith(MATRIX) else f"{name.removesuffix('.mtx')}."
    barcodes = _beside(path, prefix, "barcodes")
    features = _beside(path, prefix, "features")
    X = read_market(path)
    names = [None if rows is None else [row[0] for row in rows] for rows in (barcodes, features)]
    X, notes = oriented(X, path, orientation, *(None if some is None else len(some) for some in names))
    if features is None:
        return Draft(X, names[0], None, "the matrix", notes=notes)
    width = min(len(row) for row in features) if features else 0
    types = [row[2] for row in features] if width > 2 else None
    keep, left_out = _genes_only(types, str(path))
    symbols = [row[1] for row in features] if width > 1 else None
    return _draft(
        X if keep is None else X[:, keep], names[0], symbols, names[1], keep, [*notes, *left_out], "the matrix"
    )


def _beside(path: Path, prefix: str, what: str) -> list[list[str]] | None:
    """Read the lines of the file of names beside a matrix; None if there is none."""
    candidates = (
        path.with_name(f"{start}{name}{ending}")
        for start in dict.fromkeys((prefix, ""))  # STARsolo has several matrices beside one list of barcodes
        for name in BESIDE[what]
        for ending in ("", ".gz")
    )
    file = next((file for file in candidates if file.is_file()), None)
    return None if file is None else _lines(file)


def _lines(path: Path) -> list[list[str]]:
    """Read a table without a header, separated by tabs."""
    rows = []
    try:
        with opened(path) as file:
            while line := file.readline(LONGEST):
                text = line.decode(errors="replace").rstrip("\r\n")
                rows.append(next(csv.reader([text], delimiter="\t"), []) or [""])
    except Exception as error:  # gzip and csv raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a list of names: {error}") from error
    while rows and rows[-1] == [""]:
        rows.pop()
    return rows
