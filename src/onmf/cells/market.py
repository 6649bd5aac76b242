"""Reads Matrix Market files, with the fast reader of SciPy in a separate process: a damaged file can crash it."""

from __future__ import annotations

from pathlib import Path

from scipy.sparse import coo_array, csr_array

from onmf.datasets.readers import opened
from onmf.datasets.stored import check_values, shape_of
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import check_shape, most

from . import outside
from .matrix import smallest, tidy
from .orientation import CELLS, GENES, check_orientation, if_wrong

ENTRY = 4
"""Bytes of the shortest entry of a Matrix Market file: two numbers, a space and a newline."""


def read_market(path: Path) -> csr_array:
    """Read a matrix as it is in the file, in the smallest type that holds its counts."""
    length = path.stat().st_size
    try:
        _check_header(path, length)
        with Isolated.for_file(path) as reader:
            parts = reader(outside.read_market, str(path.resolve()))
        if "dense" in parts:
            check_values(parts["dense"].ndim, parts["dense"].dtype, 2)
            return smallest(tidy(parts["dense"]))
        values, rows, columns = (parts[key] for key in ("values", "rows", "columns"))
        check_values(values.ndim, values.dtype)
        shape = shape_of(parts["shape"], length)
        return smallest(tidy(coo_array((values, (rows, columns)), shape=shape)))
    except (ReaderEnded, ImportError):
        raise
    except Exception as error:  # SciPy and gzip raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a Matrix Market file: {error}") from error


def _check_header(path: Path, length: int) -> None:
    """Refuse a file that claims more rows, columns or entries than it can have, before SciPy allocates them."""
    with opened(path) as file:
        words = file.readline(1000).decode(errors="replace").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            raise ValueError("its first line is not that of a Matrix Market matrix.")
        line = b"%"
        while line and (line.startswith(b"%") or not line.strip()):
            line = file.readline(1 << 20)
    sizes = [int(word) for word in line.split()]
    if len(sizes) != (3 if words[2] == "coordinate" else 2):
        raise ValueError(f"its size is given as {line[:80].decode(errors='replace').strip()!r}.")
    check_shape("it", sizes[0], sizes[1], length)
    entries = sizes[2] if words[2] == "coordinate" else sizes[0] * sizes[1]
    if entries < 0 or ENTRY * entries > most(length):
        raise ValueError(f"it says that it has {entries} entries, far more than its {length} bytes can hold.")


def oriented(
    X: csr_array, path: Path, orientation: str | None, cells: int | None, genes: int | None
) -> tuple[csr_array, list[str]]:
    """Turn a matrix so that cells are in rows.

    Parameters
    ----------
    X : csr_array
        As it is in the file.
    path : path
        The file.
    orientation : {"cells-in-rows", "genes-in-rows"} or None
        The user's choice.
    cells, genes : int or None
        Numbers of names in the files beside it.

    Returns
    -------
    X : csr_array
        Cells × genes.
    notes : list of str
        What was guessed.
    """
    fits = {
        kind: all(names in (None, size) for names, size in zip((cells, genes), X.shape[::order], strict=True))
        for kind, order in ((GENES, -1), (CELLS, 1))
    }
    kind = check_orientation(orientation) or (GENES if fits[GENES] or not fits[CELLS] else CELLS)
    if not fits[kind]:
        names = " and ".join(
            f"{n} {noun}" for n, noun in ((cells, "names of cells"), (genes, "of genes")) if n is not None
        )
        raise ValueError(
            f"{path} has {X.shape[0]} rows and {X.shape[1]} columns, but the files beside it have {names}: these "
            "files do not belong together."
        )
    notes = []
    if orientation is None and all(fits.values()):
        notes.append(
            f"The file does not say what its rows are: {GENES.replace('-', ' ')} are assumed, as 10x Genomics writes "
            f"them. {if_wrong(GENES)}"
        )
    return (X if kind == CELLS else tidy(X.T)), notes
