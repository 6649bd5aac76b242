"""Copies an AnnData file and adds results to the copy. Runs in a separate process: no import from onmf.

HDF5 trusts its input (see onmf.io.isolated_readers), and the file may be a stranger's. A link may lead to another file,
into which results would then be written, so groups that are links are refused.
"""

import shutil
from typing import Any


def add_results(source: str, results: str, target: str, n: int, p: int) -> bool:
    """Copy an AnnData file, and add everything that another one holds besides its counts.

    The results are of n cells and p genes. If the genes of the file are others, as they are for results on ``raw``,
    results by gene are left out. → False if nothing could be added: the tables have a form before AnnData 0.7.
    """
    import h5py

    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file, h5py.File(results, "r") as added:
        groups = ["obs", "obsm", "uns", "var", "varm", "layers"]
        for name in groups:
            if name in file and (not isinstance(file.get(name, getlink=True), h5py.HardLink)):
                raise ValueError(f"{name} is a link, and may lead to another file: replace it with a copy.")
        tables = [file[name] for name in ("obs", "var") if name in file]
        if len(tables) < 2 or not all(hasattr(table, "keys") and "_index" in table.attrs for table in tables):
            return False
        if _length(file["obs"]) != n:
            raise ValueError(f"its obs has {_length(file['obs'])} rows, but its counts have {n}.")
        for name in groups if _length(file["var"]) == p else groups[:3]:
            if name in added:
                _add_members(file, added, name)
    return True


def _length(table: Any) -> int:
    """Number of rows of a table."""
    index = table[table.attrs["_index"]]
    if not hasattr(index, "shape"):  # a group: categories, or strings of which some may be missing
        index = index["codes" if "codes" in index else "values"]
    return int(index.shape[0])


def _add_members(file: Any, added: Any, group: str) -> None:
    """Add the members of a group; those that it has are replaced, except a map, which gets another name."""
    import numpy as np

    if group not in file:
        file.create_group(group).attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    old, new = file[group], added[group]
    columns = new.attrs.get("column-order")  # of a table, which has an index, too
    for name in new if columns is None else map(str, columns):
        place = "X_onmf_tsne" if name == "X_tsne" and name in old else name
        if place in old:
            del old[place]
        new.copy(new[name], old, name=place)
    if columns is not None:
        order = dict.fromkeys(str(name) for name in [*old.attrs.get("column-order", []), *columns])
        old.attrs["column-order"] = np.array(list(order), dtype=object)
