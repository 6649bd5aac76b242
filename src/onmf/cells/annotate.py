"""Copies an AnnData file and adds results to the copy. Runs in a separate process: no import from onmf.

HDF5 trusts its input (see onmf.datasets.foreign), and the file may be a stranger's. A link may lead to another file,
into which results would then be written, so groups that are links are refused.
"""

from __future__ import annotations

import shutil
from typing import Any


def add_results(source: str, results: str, target: str, n: int, p: int) -> bool:
    """Copy an AnnData file, and add everything that another one holds besides its counts.

    Parameters
    ----------
    source, results, target : str
        The file to copy, the AnnData file with the results, and the file to write.
    n, p : int
        Numbers of cells and genes of the results. If the genes of the file are others, as they are for results on
        ``raw``, results by gene are left out.

    Returns
    -------
    bool
        Whether results could be added; False if the tables of the file are in a form before AnnData 0.7.
    """
    import h5py

    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file, h5py.File(results, "r") as added:
        tables = {"obs": n, "var": p}
        for name in [*tables, "varm", "obsm", "uns"]:
            if name in file and not isinstance(file.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link, and may lead to another file: replace it with a copy.")
        if not all(_is_table(file, name) for name in tables):
            return False
        if _length(file["obs"]) != n:
            raise ValueError(f"its obs has {_length(file['obs'])} rows, but its counts have {n}.")
        same_genes = _length(file["var"]) == p
        for name in tables if same_genes else ["obs"]:
            _add_columns(file[name], added[name])
        for name in ("varm", "obsm", "uns") if same_genes else ("obsm", "uns"):
            _add_members(file, added, name)
    return True


def _is_table(file: Any, name: str) -> bool:
    return name in file and hasattr(file[name], "keys") and "_index" in file[name].attrs


def _length(table: Any) -> int:
    """Number of rows of a table."""
    index = table[table.attrs["_index"]]
    if not hasattr(index, "shape"):  # a group: categories, or strings of which some may be missing
        index = index["codes" if "codes" in index else "values"]
    return int(index.shape[0])


def _add_columns(table: Any, added: Any) -> None:
    """Add columns to a table; those that it has are replaced."""
    import numpy as np

    order = [str(name) for name in table.attrs.get("column-order", [])]
    for name in [str(name) for name in added.attrs["column-order"]]:
        _replace(table, added, name)
        order += [] if name in order else [name]
    table.attrs["column-order"] = np.array(order, dtype=object)


def _add_members(file: Any, added: Any, group: str) -> None:
    """Add the members of a group; those that it has are replaced, except a map, which gets another name."""
    if group not in added:
        return
    if group not in file:
        file.create_group(group).attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    for name in added[group]:
        taken = name == "X_tsne" and name in file[group]
        _replace(file[group], added[group], name, "X_onmf_tsne" if taken else name)


def _replace(group: Any, added: Any, name: str, new_name: str | None = None) -> None:
    new_name = new_name or name
    if new_name in group:
        del group[new_name]
    added.copy(added[name], group, name=new_name)
