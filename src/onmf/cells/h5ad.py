"""Reads AnnData files (.h5ad, .zarr): the encoding of AnnData 0.8 and later, and the older ones."""

from __future__ import annotations

from .draft import Draft, Values
from .matrix import read_matrix
from .names import stable_ids
from .store import Store, listed
from .wording import setting

SYMBOLS = (
    *("gene_symbols", "gene_symbol", "feature_name", "gene_name", "gene_names", "gene_short_name", "GeneSymbol"),
    *("symbol", "Symbol", "SYMBOL", "hgnc_symbol", "external_gene_name"),
)
"""Columns of genes in which the field's tools write symbols."""


def read_h5ad(store: Store, layer: str | None = None) -> Draft:
    """Read the counts of an AnnData file.

    Parameters
    ----------
    store : Store
        The file.
    layer : str, optional
        Name of a layer, or ``"raw"``; by default ``X``.

    Returns
    -------
    Draft
    """
    place = _place(store, layer)
    X = read_matrix(store, place)
    n, p = X.shape
    var = {"raw/X": "raw/var", "raw.X": "raw.var"}.get(place, "var")
    genes = _index(store, var, p)
    draft = Draft(X, _index(store, "obs", n), genes, place)
    draft.columns = _columns(store, "obs")
    draft.column = lambda name: _column(store, "obs", name, n)
    if genes is not None and stable_ids([name or "" for name in genes]):
        present = _columns(store, var)
        if found := next((name for name in SYMBOLS if name in present), None):
            draft.symbols = _column(store, var, found, p)
            draft.notes.append(f"The genes are named by identifiers, as in the file; their symbols are in {found!r}.")
    return draft


def places(store: Store) -> dict[str, str]:
    """The matrices of cells × genes in a file: the name of each for ``layer``, and its place."""
    root = store.members()
    # AnnData 0.12 writes an empty X where there is none.
    found = {"X": "X"} if "X" in root and store.attribute("X", "encoding-type") != "null" else {}
    if "raw" in root and "X" in store.members("raw"):
        found["raw"] = "raw/X"
    elif "raw.X" in root:  # before AnnData 0.7
        found["raw"] = "raw.X"
    layers = store.members("layers") if "layers" in root else []
    return {**found, **{name: f"layers/{name}" for name in layers}}


def _place(store: Store, layer: str | None) -> str:
    present = places(store)
    if layer is None:
        if "X" not in present:
            how = f", such as {setting('layer', next(iter(present)))}" if present else ""
            raise ValueError(
                f"{store.path} has no X. Name the layer that holds the counts{how}: it has {listed(list(present))}."
            )
        return "X"
    if layer in present.values():
        return layer
    if layer not in present:
        raise ValueError(f"{store.path} has no layer {layer!r}: it has {listed(list(present))}.")
    return present[layer]


def _index_name(store: Store, frame: str) -> str | None:
    """Name of the column that holds the names of the rows of a table."""
    about = store.look(frame)
    names = about.get("members", about.get("fields", []))
    if "_index" in names:
        return "_index"
    named = None if about.get("fields") else store.attribute(frame, "_index")
    return named if named in names else "index" if "index" in names else None


def _index(store: Store, frame: str, count: int) -> Values | None:
    """Names of the rows of a table."""
    if not store.has(frame):
        return None
    name = _index_name(store, frame)
    return None if name is None else _column(store, frame, name, count)


def _columns(store: Store, frame: str) -> list[str]:
    """Names of the columns of a table."""
    if not store.has(frame):
        return []
    about = store.look(frame)
    hidden = {_index_name(store, frame), "__categories"}
    return [name for name in about.get("members", about.get("fields", [])) if name not in hidden]


def _column(store: Store, frame: str, name: str, count: int) -> Values:
    """Read a column of a table as texts."""
    place = f"{frame}/{name}"
    if store.look(frame).get("fields"):  # before AnnData 0.7, a table is one array
        values = store.texts(frame, count, field=name)
        categories = f"uns/{name}_categories"
        if not store.has(categories):
            return values
        return _decode(store, categories, [int(value) if value and value.isdecimal() else -1 for value in values])
    members = store.members(place)
    if {"codes", "categories"} <= set(members):
        return _decode(store, f"{place}/categories", store.codes(f"{place}/codes", count))
    if {"values", "mask"} <= set(members):
        mask = store.codes(f"{place}/mask", count)
        values = store.texts(f"{place}/values", count)
        return [None if hidden else value for value, hidden in zip(values, mask, strict=True)]
    if members:
        raise ValueError(f"{store.path}, {place}, is a group of {listed(members)}, not a column: name another one.")
    categories = f"{frame}/__categories/{name}"
    if store.has(categories):  # AnnData 0.7
        return _decode(store, categories, store.codes(place, count))
    return store.texts(place, count)


def _decode(store: Store, categories: str, codes: list[int]) -> Values:
    """Names of categories instead of their codes; -1 is a missing one."""
    names: Values = (
        store.texts(f"{categories}/values") if store.members(categories) else store.texts(categories)
    )  # texts that may be missing are a group
    if codes and (min(codes) < -1 or max(codes) >= len(names)):
        raise ValueError(f"{store.path}, {categories}, has {len(names)} names, but there are codes outside of them.")
    return [None if code < 0 else names[code] for code in codes]
