"""Reads counts of cells from a file of any format of the field, which is recognised by its content."""

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Self

import numpy as np

from onmf.datasets.pieces import Store, open_matrix, open_store
from onmf.datasets.readers import as_counts, opened, read_market
from onmf.divergence import Array
from onmf.door import Table
from onmf.door.files import (
    HDF5,
    Draft,
    Names,
    add_columns,
    asked_for,
    head_of,
    listed,
    names_of,
    read_npz,
    read_wide,
)
from onmf.door.join import join_tables
from onmf.io import isolated_readers
from onmf.io.rules import require

from .matrix import BLOCK, are_whole, canonical, load, tidy

CELLS, GENES = "cells-in-rows", "genes-in-rows"  # the two orientations of a table
STABLE_ID = re.compile(r"(ENS[A-Z]{0,6}G\d{6,}|FBgn\d{6,}|WBGene\d{6,})(\.\d+)?")  # Ensembl, FlyBase and WormBase
# Symbols of genes. Most have letters followed by a number.
SYMBOL = re.compile(
    r"(MT-|mt-|RP[SL]\d|Rp[sl]\d|HLA-|LINC\d|ERCC-|Gm\d)\S*|[A-Z]{2,}[A-Z0-9.-]*\d[A-Z0-9.-]*|[A-Z][a-z]{1,5}\d{1,3}[a-z]?"
    r"|ACTB|Actb|GAPDH|Gapdh|XIST|Xist|EPCAM|Epcam|VIM|Vim|KIT|ALB|Alb|INS|Ins|GNLY|NKG7|LYZ|LYZ\d|FTH1|FTL|TMSB4X"
)
# Barcodes, accessions of sequencing runs, and wells of plates
CELL = re.compile(r"(.*[_.:-])?[ACGTN]{8,}([_.:-].*)?|(GSM|SRR|ERR|DRR|SRS|SRX)\d{4,}.*|[A-P](0?[1-9]|1\d|2[0-4])")
CELL_WORD = re.compile(r"cell|barcode|sample|well|plate|spot|nucle", re.IGNORECASE)  # in names of cells
GENE_WORD = re.compile(r"gene|symbol|feature|ensembl|transcript|hgnc|mgi|geo", re.IGNORECASE)  # in names of columns
SAMPLE = 500  # number of names that are looked at
DIFFERENCE = 0.2  # difference between the names of rows and of columns that is enough to tell which are genes
USUAL = 20_000  # usual number of genes of a genome
OTHERS = {
    (HDF5,): "is an HDF5 file that is compressed with gzip: decompress it",
    (b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"): "is compressed with bzip2, xz or zstd: decompress it, or use gzip",
    (b"PAR1",): "is a Parquet file: save it as a csv, h5ad or npz file",
    (b"RDX", b"RDA", b"X\n\0\0"): "is a file of R: write the counts with Matrix::writeMM, or as h5ad, in R",
    (b"MATLAB", b"SQLite"): "is a MATLAB file or a database: save the counts as an h5ad, Matrix Market or npz file",
}
"""Formats that are not read, by their first bytes, and what to do."""

KNOWN = ".h5ad, .zarr, 10x Genomics .h5, a folder with matrix.mtx, .loom, .mtx, .npz, .csv or .tsv"
# Columns of genes in which the field's tools write symbols
SYMBOLS = (
    *("gene_symbols", "gene_symbol", "feature_name", "gene_name", "gene_names", "gene_short_name", "GeneSymbol"),
    *("symbol", "Symbol", "SYMBOL", "hgnc_symbol", "external_gene_name"),
)
# Attributes of a loom file in which names of genes, names of cells and identifiers of genes are looked for
LOOM_GENES = ("Gene", "var_names", "gene_names", "GeneName", "gene_name", "Name", "gene", "Accession", "gene_ids")
LOOM_CELLS = ("CellID", "obs_names", "cell_names", "barcode", "barcodes", "Barcode", "cell_id", "CellId", "Cell")
LOOM_IDS = ("Accession", "gene_ids", "EnsemblID", "ensembl_id")
KEPT = "Gene Expression"  # the type of features that are genes
MATRIX = "matrix.mtx"  # name of the matrix in a folder; a prefix and .gz are allowed
FILTERED = ("filtered_feature_bc_matrix.h5", "filtered_feature_bc_matrix")  # the counts that Cell Ranger writes
BESIDE = {  # names of the files beside a matrix
    "barcodes": ("barcodes.tsv", "barcodes.txt", "cells.tsv", "cells.txt"),
    "features": ("features.tsv", "genes.tsv", "genes.txt", "features.txt"),
}


@dataclass
class CellDraft(Draft):
    """Counts of cells, with symbols or identifiers of the genes that the file has besides their names."""

    symbols: Names | None = None
    ids: Names | None = None


@dataclass(repr=False)
class Cells(Table):
    """Counts of cells, as read from a file.

    Attributes
    ----------
    X : csr_array or OnDisk of shape (n_cells, n_genes)
        The counts: in memory, or lazy (``shape``, ``dtype``, and slices of rows) if the file is large.
    rows, features : list of str
        Names of cells and genes, unique; also called ``barcodes`` and ``genes``.
    classes : list or None
        Known class of each cell (None where unknown), if asked for.
    source : str
        The file.
    notes : list of str
        What was guessed or changed: orientation, names that were missing or made unique.
    place : str
        Where in the file the counts are: ``X``, ``layers/counts``, ``raw/X`` and so on.
    symbols : list or None
        Symbols of the genes, if the file has them and names the genes by identifiers.
    ids : list or None
        Identifiers of the genes, if the file has them and names the genes by symbols.
    """

    place: str = "X"
    symbols: list[str] | None = None
    ids: list[str] | None = None

    @property
    def symbols_or_genes(self) -> Sequence[str]:
        """What people call the genes: their symbols, or their names."""
        return self.symbols or self.features

    @property
    def barcodes(self) -> Sequence[str]:
        """Names of the cells."""
        return self.rows

    @property
    def genes(self) -> Sequence[str]:
        """Names of the genes."""
        return self.features

    @property
    def namings(self) -> list[Sequence[str]]:
        """Names of the genes, their symbols and their identifiers, those that there are."""
        return [names for names in (self.genes, self.symbols, self.ids) if names is not None]

    def with_features(self, columns: Array) -> Self:
        """The cells with the names of some of the genes; the counts stay as they are."""
        kept = super().with_features(columns)
        for name in ("symbols", "ids"):
            values = getattr(self, name)
            setattr(kept, name, None if values is None else [values[j] for j in columns])
        return kept

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<Cells of {Path(self.source).name or 'no file'}, {self.place}: {n:,} cells × {p:,} genes>"


def read(
    path: str | Path | Sequence[str | Path],
    *,
    layer: str | None = None,
    labels: str | None = None,
    groups: str | None = None,
    known: str | None = None,
    orientation: str | None = None,
) -> Cells:
    r"""Read counts of cells from a file or folder.

    The format is recognised by the content. The counts are not checked: see :func:`onmf.cells.check_counts`.

    Parameters
    ----------
    path : path or list of paths
        An AnnData file (.h5ad) or store (.zarr); an .h5 file of 10x Genomics, or a folder with ``matrix.mtx``,
        ``barcodes.tsv`` and ``features.tsv``, or the matrix in it; the folder of a run of Cell Ranger, or its ``outs``;
        a loom file; a csv or tsv table; an npz file with a sparse matrix. Text may be compressed with gzip.
        Several files are joined by the genes that all of them have, and each is a group unless ``groups`` is given.
    layer : str, optional
        Layer that holds the counts: its name, or ``"raw"``. By default the main matrix.
    labels : str, optional
        Known classes of the cells: a column of the cells in the file, or ``FILE.csv:COLUMN``, a table whose first
        column has the names of the cells.
    groups : str, optional
        The batch, sample or donor of each cell, named like ``labels``.
    known : str, optional
        The name of the cluster of each cell that is known, named like ``labels``; empty for free cells.
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
    >>> import onmf.cells
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "counts.csv")
    ...     _ = path.write_text("gene,AAACATAC-1,AAACGGTA-1,AACTTGCC-1\nACTB,3,0,1\nCD8A,0,5,0\n")
    ...     cells = onmf.cells.read(path)
    >>> cells
    <Cells of counts.csv, the table: 3 cells × 2 genes>
    >>> cells.genes
    ['ACTB', 'CD8A']
    """
    if isinstance(path, list | tuple):
        options = {"layer": layer, "labels": labels, "groups": groups, "known": known, "orientation": orientation}
        return join_tables([read(each, **options) for each in path], path, "gene")
    assert isinstance(path, str | Path)
    path = Path(path)
    require(
        orientation in (None, CELLS, GENES), f"The orientation {orientation!r} is unknown: use {CELLS!r} or {GENES!r}."
    )
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of a file or folder with counts of cells.")
    try:
        draft = _read_any(path, layer, asked_for(labels, groups, known), orientation)
    except KeyError as error:  # a place in a damaged file
        raise ValueError(error.args[0]) from error
    barcodes, genes, notes = names_of(draft, path, "cell", "gene")
    cells = Cells(draft.X, barcodes, genes, source=str(path), place=draft.place, notes=notes)
    for name, noun, values in (("symbols", "symbols", draft.symbols), ("ids", "identifiers", draft.ids)):
        if values is not None:
            if len(values) != len(genes):
                raise ValueError(f"{path} has {len(values):,} {noun} of genes for {len(genes):,}: it is damaged.")
            setattr(cells, name, [value or gene for value, gene in zip(values, genes, strict=True)])
    if orientation is None:
        cells.notes += notes_if_transposed(barcodes, genes)
    original = [name or new for name, new in zip(draft.rows or barcodes, barcodes, strict=True)]
    add_columns(cells, draft, path, original, "cell", labels, groups, known)
    return cells


def whole_layers(path: str | Path, besides: str = "") -> list[str]:
    """Layers of a file, besides the one at a place, whose first entries are whole numbers."""
    store = _store(Path(path))
    if store is None:
        return []
    found = []
    for name, place in _survey(store)["places"].items():
        with suppress(ValueError, OSError):  # a damaged layer is no place to send anyone to
            stored = open_matrix(store, place)
            lines = max(1, BLOCK // max(stored.shape))
            if place != besides and are_whole(canonical(stored.read(0, lines)).data):
                found.append(name)
    return found


def _read_any(path: Path, layer: str | None, asked: Sequence[str], orientation: str | None) -> CellDraft:
    """Recognise the format and read the file."""
    store = _store(path)
    if store is not None:
        require(
            orientation is None,
            f"{path} has a format that says what its rows are: leave out orientation (--orientation on the command "
            "line).",
        )
        return _read_store(store, layer, asked)
    if path.is_dir():
        found, notes = _find_counts(path)
        draft = _read_any(found, layer, asked, orientation)
        draft.notes[:0] = notes
        return draft
    require(layer is None, f"{path} has no layers, so there is no layer {layer!r}: only h5ad, zarr, loom and .h5 do.")
    head = head_of(path)
    if head.startswith(b"%%MatrixMarket"):
        return _read_market(path, orientation)
    if head.startswith(b"PK") and path.suffix.lower() not in (".xlsx", ".zip", ".ods"):
        draft = CellDraft(**vars(read_npz(path, asked)))
        draft.X = tidy(draft.X.T if orientation == GENES else draft.X)
        if orientation is None and draft.rows is None and draft.features is None:
            draft.notes.append(_assumed(CELLS, "The file does not say what its rows are: cells in rows are assumed."))
        return draft
    unknown = f"has an unknown format: expected {KNOWN}" if b"\0" in head or head.startswith(b"PK") else ""
    if refusal := next((sentence for magic, sentence in OTHERS.items() if head.startswith(magic)), unknown):
        raise ValueError(f"{path} {refusal}.")
    return _read_table(path, asked, orientation)


def _store(path: Path) -> Store | None:
    """The file as an HDF5 file or Zarr store; None if it is neither."""
    if path.is_dir():
        marks = (".zgroup", "zarr.json", ".zmetadata")
        return open_store("zarr", path) if any((path / name).exists() for name in marks) else None
    with path.open("rb") as file:
        return open_store("hdf5", path) if file.read(len(HDF5)) == HDF5 else None


def _read_store(store: Store, layer: str | None, asked: Sequence[str]) -> CellDraft:
    """Read an HDF5 file or Zarr store: AnnData, loom or 10x Genomics, as its content says."""
    about = _survey(store)
    form, places = about["format"], about["places"]
    if form == "mudata":
        name = "rna" if "rna" in places else next(iter(places), "rna")
        module, opener = ("h5py", "h5py.File") if store.kind == "hdf5" else ("zarr", "zarr.open")
        raise ValueError(
            f"{store.path} is a MuData file with the modalities {listed(list(places))}. Save the one with the counts "
            f"as an h5ad file, in Python:\nimport anndata, {module}\n"
            f"anndata.io.read_elem({opener}({str(store.path)!r})['mod/{name}']).write_h5ad('{name}.h5ad')"
        )
    if form == "unknown":
        raise ValueError(
            f"{store.path} is neither an AnnData file, nor a loom file, nor one of 10x Genomics: it holds "
            f"{listed(about['members'])}."
        )
    several = form == "10x" and len(places) > 1
    name = layer or {"anndata": "X", "loom": "matrix"}.get(form) or next(iter(places))
    if layer is None and (several or name not in places):
        how = f", such as {setting('layer', next(iter(places)))}" if places else ""
        raise ValueError(
            f"{store.path} has {'the counts of several genomes' if several else f'no {name}'}. Name the layer that "
            f"holds the counts{how}: it has {listed(list(places))}."
        )
    if name not in places and name not in places.values():
        raise ValueError(f"{store.path} has no layer {name!r}: it has {listed(list(places))}.")
    read = {"anndata": _read_anndata, "loom": _read_loom, "10x": _read_tenx}[form]
    return read(store, places.get(name, name), asked)


def _survey(store: Store) -> dict[str, Any]:
    """The format of a file, and its matrices (see :func:`onmf.io.isolated_readers.survey`)."""
    with store.naming(""):
        return dict(store.call(isolated_readers.survey))


def _columns(store: Store, frame: str, asked: Sequence[str] = (), **wanted: Sequence[str]) -> dict[str, Any]:
    """Columns of a table as texts (see :func:`onmf.io.isolated_readers.read_columns`), those asked for in ``found``."""
    keys = {name: f"asked {number}" for number, name in enumerate(asked)}
    wanted |= {key: [name] for name, key in keys.items()}
    with store.naming(frame):
        columns = dict(store.call(isolated_readers.read_columns, frame, wanted))
    return columns | {"found": {name: columns[key] for name, key in keys.items() if columns[key] is not None}}


def _read_anndata(store: Store, place: str, asked: Sequence[str]) -> CellDraft:
    frame = {"raw/X": "raw/var", "raw.X": "raw.var"}.get(place, "var")
    cells, genes = _columns(store, "obs", asked), _columns(store, frame, symbols=SYMBOLS)
    X = load(open_matrix(store, place))
    draft = CellDraft(X, cells["index"], genes["index"], place, cells["found"], cells["columns"])
    if genes["symbols"] is not None and _stable_ids(draft.features or []):
        draft.symbols = genes["symbols"]
        column = next(name for name in SYMBOLS if name in genes["columns"])
        draft.notes.append(f"The genes are named by identifiers, as in the file; their symbols are in {column!r}.")
    return draft


def _read_loom(store: Store, place: str, asked: Sequence[str]) -> CellDraft:
    cells = _columns(store, "col_attrs", asked, names=LOOM_CELLS)
    genes = _columns(store, "row_attrs", names=LOOM_GENES, ids=LOOM_IDS)
    ids = genes["ids"] if genes["ids"] != genes["names"] and _stable_ids(genes["ids"] or []) else None
    X = load(open_matrix(store, place, transposed=True))
    return CellDraft(X, cells["names"], genes["names"], place, cells["found"], cells["columns"], ids=ids)


def _read_tenx(store: Store, group: str, asked: Sequence[str]) -> CellDraft:
    parts = _columns(store, group, barcodes=["barcodes"], names=["gene_names"], ids=["genes"])  # as in version 2
    if "features" in parts["columns"]:
        parts |= _columns(store, f"{group}/features", names=["name"], ids=["id"], types=["feature_type"])
    stored = open_matrix(store, group, transposed=True)
    types = parts.get("types")
    if types is not None and len(types) != stored.shape[1]:
        raise ValueError(f"{store.path} has {stored.shape[1]:,} genes, but {len(types):,} types of features.")
    return _tenx_draft(store.path, group, partial(load, stored), parts["barcodes"], parts["names"], parts["ids"], types)


def _tenx_draft(
    path: Path,
    place: str,
    columns: Callable[[Any], Any],
    barcodes: Names | None,
    names: Names | None,
    ids: Names | None,
    types: Names | None,
) -> CellDraft:
    """Put a draft together from the features that are genes. As in the field's tools, they are named by their symbols.

    ``columns`` gives columns of the counts, and all of them for None.
    """
    keep: Any = None
    notes = []
    if others := Counter(name or "no type" for name in types or [] if name != KEPT):
        keep = np.flatnonzero([name == KEPT for name in types or []])
        names, ids = (None if some is None else [some[j] for j in keep] for some in (names, ids))
        if not len(keep):
            raise ValueError(f"{path} has no features of type {KEPT!r}: it has {listed(list(others))}.")
        left_out = ", ".join(f"{number:,} of type {name!r}" for name, number in others.most_common(10))
        notes.append(f"Only features of type {KEPT!r} are kept; left out: {left_out}.")
    if names is None or names == ids:
        names, ids = names or ids, None
    return CellDraft(columns(keep), barcodes, names, place, ids=ids, notes=notes)


def _find_counts(folder: Path) -> tuple[Path, list[str]]:
    """Find the counts in a folder: a matrix, or what Cell Ranger wrote for the cells. → the file, notes"""
    for place in (folder / outs / name for outs in ("", "outs") for name in FILTERED):
        if place.exists():
            found = place if place.is_file() else _find_counts(place)[0]
            name = found.relative_to(folder).as_posix()
            return found, [f"The counts are those of {name}: the droplets that Cell Ranger takes for cells."]
    names = sorted(path.name for path in folder.iterdir())
    matrices = [name for name in names if name.endswith((MATRIX, f"{MATRIX}.gz")) and (folder / name).is_file()]
    # The same matrix may lie there compressed and not.
    matrices = [name for name in matrices if not name.endswith(".gz") or name.removesuffix(".gz") not in matrices]
    if not matrices:
        raise ValueError(
            f"{folder} is a folder without {MATRIX} or {MATRIX}.gz, and without {' or '.join(FILTERED)} of Cell "
            f"Ranger; it holds {listed(names, 8)}. Name the file with the counts."
        )
    if len(matrices) > 1:
        raise ValueError(f"{folder} holds several matrices, {listed(matrices)}: name one of them.")
    return folder / matrices[0], []


def _read_market(path: Path, orientation: str | None) -> CellDraft:
    """Read a Matrix Market file, with the names of cells and genes in the files beside it.

    The orientation is that of the names, if they fit one only; else genes in rows, as 10x Genomics writes them.
    """
    name = path.name.removesuffix(".gz")
    prefix = name.removesuffix(MATRIX) if name.endswith(MATRIX) else f"{name.removesuffix('.mtx')}."
    barcodes, features = _names_beside(path, prefix, "barcodes"), _names_beside(path, prefix, "features")
    X = as_counts(read_market(path))
    n, p = (None if names is None else len(names) for names in (barcodes, features))
    fits = {
        GENES: n in (None, X.shape[1]) and p in (None, X.shape[0]),
        CELLS: n in (None, X.shape[0]) and p in (None, X.shape[1]),
    }
    kind = orientation or (GENES if fits[GENES] or not fits[CELLS] else CELLS)
    if not fits[kind]:
        raise ValueError(
            f"{path} has {X.shape[0]} rows and {X.shape[1]} columns, but the files beside it name {n or 'no'} cells "
            f"and {p or 'no'} genes: these files do not belong together."
        )
    X = X if kind == CELLS else tidy(X.T)
    rows = None if barcodes is None else [row[0] for row in barcodes]
    width = min((len(row) for row in features or []), default=0)
    ids, names, types = ([row[j] for row in features or []] if j < width else None for j in range(3))
    draft = _tenx_draft(path, "the matrix", lambda keep: X if keep is None else X[:, keep], rows, names, ids, types)
    if orientation is None and all(fits.values()):
        sentence = "The file does not say what its rows are: genes in rows are assumed, as 10x Genomics writes them."
        draft.notes.insert(0, _assumed(GENES, sentence))
    return draft


def _names_beside(path: Path, prefix: str, what: str) -> list[list[str]] | None:
    """Read the rows of the file of names beside a matrix; None if there is none."""
    candidates = (
        path.with_name(f"{start}{name}{ending}")
        for start in dict.fromkeys((prefix, ""))  # STARsolo has several matrices beside one list of barcodes
        for name in BESIDE[what]
        for ending in ("", ".gz")
    )
    beside = next((file for file in candidates if file.is_file()), None)
    if beside is None:
        return None
    try:
        with opened(beside) as file, io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as text:
            rows = [row or [""] for row in csv.reader(text, delimiter="\t")]
    except Exception as error:  # gzip and csv raise many kinds of errors for damaged files
        raise ValueError(f"{beside} cannot be read as a list of names: {error}") from error
    while rows and rows[-1] == [""]:
        rows.pop()
    return rows


def _read_table(path: Path, asked: Sequence[str], orientation: str | None) -> CellDraft:
    """Read a table of counts with names in its first row and first column, with cells or genes in rows."""
    draft = CellDraft(**vars(read_wide(path, asked)))
    require(
        not draft.found or orientation != GENES,
        f"{path} has a column {next(iter(draft.found), '')!r} with something about each cell, but the orientation is "
        f"{GENES!r}: give it in a table of its own.",
    )
    if not draft.found and orientation is None:
        n, p = draft.X.shape
        orientation, note = _guess_orientation(draft.rows or [""] * n, draft.features or [""] * p, draft.corner)
        draft.notes.append(note)
    if orientation == GENES:
        draft.X, draft.rows, draft.features = tidy(draft.X.T), draft.features, draft.rows
    return draft


def setting(parameter: str, value: str) -> str:
    """How a parameter is set, in Python and on the command line, where its option has the same name."""
    return f"{parameter}={value!r} (--{parameter} {shlex.quote(value)} on the command line)"


def _stable_ids(names: Sequence[str | None]) -> bool:
    """Whether most of the names are identifiers rather than symbols of genes."""
    some = names[:SAMPLE]
    return 2 * sum(STABLE_ID.fullmatch(name or "") is not None for name in some) > len(some)


def _guess_orientation(rows: Names, columns: Names, corner: str) -> tuple[str, str]:
    """Guess what the rows of a table are, by all names and by that of the column of names. → orientation, note"""
    difference = _gene_share(rows) - _gene_share(columns)
    n, p = (abs(log(max(len(names), 1) / USUAL)) for names in (rows, columns))
    genes, reason = n < p, "by their number only"
    if abs(difference) > DIFFERENCE:
        genes, reason = difference > 0, "by their names"
    elif GENE_WORD.search(corner) or CELL_WORD.search(corner):
        genes, reason = bool(GENE_WORD.search(corner)), f"because the first column is called {corner[:60]!r}"
    kind = GENES if genes else CELLS
    in_rows, in_columns = ("genes", "cells") if genes else ("cells", "genes")
    taken = f"The {len(rows):,} rows of the table are taken as {in_rows} and its {len(columns):,} columns as "
    return kind, _assumed(kind, f"{taken}{in_columns}, {reason}.")


def notes_if_transposed(barcodes: Sequence[str], genes: Sequence[str]) -> list[str]:
    """Return a note if the cells are called like genes and the genes like cells, in a format that fixes the rows."""
    if _gene_share(barcodes) <= DIFFERENCE or _gene_share(genes) >= -DIFFERENCE:
        return []
    return [
        f"The cells are called {', '.join(barcodes[:3])} and the genes {', '.join(genes[:3])}: the counts may be "
        "transposed. Cells must be in rows; adata.T turns an AnnData object."
    ]


def _gene_share(names: Names) -> float:
    """Share of names that look like genes, minus the share that look like cells: from -1 to 1."""
    some = [name or "" for name in names[:: max(1, len(names) // SAMPLE)]]
    cells = {name for name in some if CELL.fullmatch(name) or CELL_WORD.search(name)}
    genes = {name for name in some if STABLE_ID.fullmatch(name) or SYMBOL.fullmatch(name)} - cells
    return sum((name in genes) - (name in cells) for name in some) / max(1, len(some))


def _assumed(orientation: str, sentence: str) -> str:
    """A note about an orientation that was guessed, with what to do if it is wrong."""
    return f"{sentence} If this is wrong, set {setting('orientation', CELLS if orientation == GENES else GENES)}."
