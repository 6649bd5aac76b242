"""Reads loom files: genes in rows and cells in columns."""

from __future__ import annotations

from collections.abc import Sequence

from .draft import Draft, Values
from .matrix import read_matrix
from .names import stable_ids
from .store import Store, listed

GENES = ("Gene", "var_names", "gene_names", "GeneName", "gene_name", "Name", "gene", "Accession", "gene_ids")
"""Attributes of rows in which names of genes are looked for."""

CELLS = ("CellID", "obs_names", "cell_names", "barcode", "barcodes", "Barcode", "cell_id", "CellId", "Cell")
"""Attributes of columns in which names of cells are looked for."""

ACCESSIONS = ("Accession", "gene_ids", "EnsemblID", "ensembl_id")
"""Attributes of rows in which identifiers of genes are looked for."""


def read_loom(store: Store, layer: str | None = None) -> Draft:
    """Read the counts of a loom file.

    Parameters
    ----------
    store : Store
        The file.
    layer : str, optional
        Name of a layer; by default the main matrix.

    Returns
    -------
    Draft
    """
    present = places(store)
    name = "matrix" if layer is None else layer.removeprefix("layers/")
    if name not in present:
        raise ValueError(f"{store.path} has no layer {layer!r}: it has {listed(list(present))}.")
    place = present[name]
    X = read_matrix(store, place, transposed=True)
    n, p = X.shape
    rows, columns = (store.members(part) if store.has(part) else [] for part in ("row_attrs", "col_attrs"))
    draft = Draft(X, _first(store, "col_attrs", CELLS, columns, n), _first(store, "row_attrs", GENES, rows, p), place)
    ids = _first(store, "row_attrs", ACCESSIONS, rows, p)
    if ids is not None and ids != draft.genes and stable_ids([name or "" for name in ids]):
        draft.ids = ids
    draft.columns = columns
    draft.column = lambda name: store.texts(f"col_attrs/{name}", n)
    return draft


def places(store: Store) -> dict[str, str]:
    """The matrices of genes × cells in a file: the name of each for ``layer``, and its place."""
    layers = store.members("layers") if store.has("layers") else []
    return {"matrix": "matrix", **{name: f"layers/{name}" for name in layers}}


def _first(store: Store, group: str, wanted: Sequence[str], present: Sequence[str], count: int) -> Values | None:
    """Read the first of the wanted attributes that is there."""
    name = next((name for name in wanted if name in present), None)
    return None if name is None else store.texts(f"{group}/{name}", count)
