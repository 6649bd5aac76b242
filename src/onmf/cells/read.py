"""Reads counts of cells from the formats of the field."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onmf.datasets.readers import opened

from . import h5ad, loom
from .draft import Draft
from .labels import classes_of
from .matrix import are_whole
from .names import complete
from .npz import read_npz
from .orientation import check_orientation, notes_if_transposed
from .store import Store, listed
from .tables import read_table
from .tenx import find_matrix, is_tenx, read_mtx, read_tenx

HDF5 = b"\x89HDF\r\n\x1a\n"
"""The first bytes of an HDF5 file."""

OTHERS = {
    HDF5: "is an HDF5 file that is compressed with gzip: decompress it",
    b"BZh": "is compressed with bzip2: decompress it, or use gzip",
    b"\xfd7zXZ": "is compressed with xz: decompress it, or use gzip",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd: decompress it, or use gzip",
    b"PAR1": "is a Parquet file: save it as a csv, h5ad or npz file",
    b"RDX": "is a file of R: write the counts with Matrix::writeMM, or as h5ad, in R",
    b"RDA": "is a file of R: write the counts with Matrix::writeMM, or as h5ad, in R",
    b"X\n\0\0": "is a file of R: write the counts with Matrix::writeMM, or as h5ad, in R",
    b"MATLAB": "is a MATLAB file: save the counts as an h5ad, Matrix Market or npz file",
    b"SQLite": "is a database: save the counts as an h5ad, Matrix Market or npz file",
}
"""Formats that are not read, by their first bytes, and what to do."""

KNOWN = ".h5ad, .zarr, 10x Genomics .h5, a folder with matrix.mtx, .loom, .mtx, .npz, .csv or .tsv"


@dataclass(repr=False)
class Cells:
    """Counts of cells, as read from a file.

    Attributes
    ----------
    X : csr_array or OnDisk of shape (n_cells, n_genes)
        The counts: in memory, or lazy (``shape``, ``dtype``, and slices of rows) if the file is large.
    barcodes, genes : list of str
        Names of rows and columns, unique.
    classes : list or None
        Known class of each cell (None where unknown), if asked for.
    source : str
        The file.
    place : str
        Where in the file the counts are: ``X``, ``layers/counts``, ``raw/X`` and so on.
    notes : list of str
        What was guessed or changed: orientation, names that were missing or made unique.
    symbols : list or None
        Symbols of the genes, if the file has them and names the genes by identifiers.
    ids : list or None
        Identifiers of the genes, if the file has them and names the genes by symbols.
    """

    X: Any
    barcodes: list[str]
    genes: list[str]
    classes: list[str | None] | None = None
    source: str = ""
    place: str = "X"
    notes: list[str] = field(default_factory=list)
    symbols: list[str] | None = None
    ids: list[str] | None = None

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<Cells of {Path(self.source).name or 'no file'}, {self.place}: {n:,} cells × {p:,} genes>"


def read_cells(
    path: str | Path, *, layer: str | None = None, labels: str | None = None, orientation: str | None = None
) -> Cells:
    r"""Read counts of cells from a file or folder.

    The format is recognised by the content. The counts are not checked: see :func:`onmf.cells.check_counts`.

    Parameters
    ----------
    path : path
        An AnnData file (.h5ad) or store (.zarr); an .h5 file of 10x Genomics, or a folder with ``matrix.mtx``,
        ``barcodes.tsv`` and ``features.tsv``, or the matrix in it; a loom file; a csv or tsv table; an npz file with a
        sparse matrix. Text may be compressed with gzip.
    layer : str, optional
        Layer that holds the counts: its name, or ``"raw"``. By default the main matrix.
    labels : str, optional
        Known classes of the cells: a column of the cells in the file, or ``FILE.csv:COLUMN``, a table whose first
        column has the names of the cells.
    orientation : {"cells-in-rows", "genes-in-rows"}, optional
        For formats that do not say it: tables, Matrix Market and npz files. By default it is guessed, and a note says
        so.

    Returns
    -------
    Cells
        Counts of more than 1 GB stay on disk, if the file allows this.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from onmf.cells import read_cells
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "counts.csv")
    ...     _ = path.write_text("gene,AAACATAC-1,AAACGGTA-1,AACTTGCC-1\nACTB,3,0,1\nCD8A,0,5,0\n")
    ...     cells = read_cells(path)
    >>> cells
    <Cells of counts.csv, the table: 3 cells × 2 genes>
    >>> cells.genes
    ['ACTB', 'CD8A']
    """
    path = Path(path)
    check_orientation(orientation)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of a file or folder with counts of cells.")
    draft = _draft(path, layer, labels, orientation)
    n, p = draft.X.shape
    if n == 0 or p == 0:
        raise ValueError(f"{path} has no {'cells' if n == 0 else 'genes'}: {draft.place} is {n:,} cells × {p:,} genes.")
    for names, count, noun in ((draft.barcodes, n, "cells"), (draft.genes, p, "genes")):
        if names is not None and len(names) != count:
            raise ValueError(f"{path} has {count:,} {noun}, but {len(names):,} names of {noun}: it is damaged.")
    barcodes, about_cells = complete(draft.barcodes, n, "cell")
    genes, about_genes = complete(draft.genes, p, "gene")
    cells = Cells(draft.X, barcodes, genes, source=str(path), place=draft.place)
    cells.notes = [*draft.notes, *about_cells, *about_genes]
    if orientation is None:
        cells.notes += notes_if_transposed(barcodes, genes)
    cells.symbols, cells.ids = (
        None if names is None else [name or gene for name, gene in zip(names, genes, strict=True)]
        for names in (draft.symbols, draft.ids)
    )
    if labels is not None:
        original = [name or new for name, new in zip(draft.barcodes or barcodes, barcodes, strict=True)]
        cells.classes, about_classes = classes_of(labels, draft, path, original)
        cells.notes += about_classes
    return cells


def whole_layers(path: str | Path, besides: str = "") -> list[str]:
    """Layers of a file whose first entries are whole numbers, as counts are.

    Parameters
    ----------
    path : path
        A file of cells. Only AnnData and loom files have layers.
    besides : str
        A place that is not looked at, as in :class:`Cells`.

    Returns
    -------
    list of str
        Names for ``layer``.
    """
    store = _store(Path(path))
    if store is None:
        return []
    reader = _reader(store)
    places = h5ad.places(store) if reader is h5ad.read_h5ad else loom.places(store) if reader is loom.read_loom else {}
    found = []
    for name, place in places.items():
        with suppress(ValueError, OSError):  # a damaged layer is no place to send anyone to
            if place != besides and are_whole(store.head(place)):
                found.append(name)
    return found


def _draft(path: Path, layer: str | None, labels: str | None, orientation: str | None) -> Draft:
    """Recognise the format and read the file."""
    store = _store(path)
    if store is not None:
        if orientation is not None:
            raise ValueError(
                f"{path} says itself what its rows are: leave out orientation (--orientation on the command line)."
            )
        return _reader(store)(store, layer)
    if layer is not None:
        raise ValueError(f"{path} has no layers, so there is no layer {layer!r}: only h5ad, zarr, loom and .h5 do.")
    if path.is_dir():
        return read_mtx(find_matrix(path), orientation)
    head = _head(path)
    if head.startswith(b"%%MatrixMarket"):
        return read_mtx(path, orientation)
    if head.startswith(b"PK") and path.suffix.lower() not in (".xlsx", ".zip", ".ods"):
        return read_npz(path, orientation)
    other = next((sentence for magic, sentence in OTHERS.items() if head.startswith(magic)), None)
    if other is not None:
        raise ValueError(f"{path} {other}.")
    if b"\0" in head or head.startswith(b"PK"):
        raise ValueError(f"{path} has an unknown format: expected {KNOWN}.")
    return read_table(path, labels, orientation)


def _head(path: Path) -> bytes:
    """The first bytes of a file, decompressed."""
    try:
        with opened(path) as file:
            head = file.read(4096)
    except PermissionError:
        raise
    except Exception as error:  # gzip raises many kinds of errors for damaged files
        raise ValueError(f"{path} is damaged: {error}") from error
    if not head.strip():
        raise ValueError(f"{path} is empty: get another copy.")
    return head


def _store(path: Path) -> Store | None:
    """The file as an HDF5 file or Zarr store; None if it is neither."""
    if path.is_dir():
        is_zarr = any((path / name).exists() for name in (".zgroup", "zarr.json", ".zmetadata"))
        return Store("zarr", path) if is_zarr else None
    with path.open("rb") as file:
        is_hdf5 = file.read(len(HDF5)) == HDF5
    return Store("hdf5", path) if is_hdf5 else None


def _reader(store: Store) -> Callable[[Store, str | None], Draft]:
    """The reader of an HDF5 file or Zarr store, by its content."""
    root = store.members()
    if "row_attrs" in root and "matrix" in root:
        return loom.read_loom
    if "X" in root or {"obs", "var"} <= set(root):
        return h5ad.read_h5ad
    if "mod" in root:
        raise ValueError(f"{store.path} is a MuData file: save the modality with the counts as an h5ad file.")
    if is_tenx(store):
        return read_tenx
    raise ValueError(
        f"{store.path} is neither an AnnData file, nor a loom file, nor one of 10x Genomics: it holds {listed(root)}."
    )
