"""Converts the public files of the cell sets to counts and classes.

Each set has its own layout. What a conversion gives is compared with the numbers in sources.json: rows, columns,
entries, the sum of all counts, and the size of each class.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from onmf.data.structure import check_structure
from onmf.divergence import Array
from onmf.io.isolate import Isolated
from onmf.io.limits import check_growth, check_zip_growth

from . import foreign, r_objects
from .cells import CellSet
from .readers import as_counts, opened

BLOCK = 1 << 26
"""Bytes of a dense matrix that are read at once."""

SITE = 12
"""Position of the body site in a line of the map of hmp_site18, whose header lacks a tab."""

Label = str | None


class Original(NamedTuple):
    """What the public files of a set hold."""

    X: csr_array
    labels: list[Label]
    genes: list[Label] | None = None
    keeps_empty: bool = False
    """Whether the set keeps genes without any count."""


def check_converter(name: str) -> None:
    """Raise an error if the package that converts this set is not installed."""
    _, package = READERS[name]
    if package is not None and find_spec(package) is None:
        raise ImportError(
            f"Converting {name} needs {package}: pip install 'onmf[data]'. Or set ONMF_DATA to a folder that has the "
            "data set."
        )


def convert_cells(name: str, paths: list[Path], facts: dict[str, Any]) -> CellSet:
    """Convert the public files of a set, and check the result.

    Parameters
    ----------
    name : str
        Name of the set.
    paths : list of Path
        Its files, in the order of sources.json.
    facts : dict
        Its entry in sources.json. Cells whose label is not one of ``classes`` are left out: they are doublets, or
        have no label.

    Returns
    -------
    CellSet
    """
    read, _ = READERS[name]
    try:
        X, labels, genes, keeps_empty = read(*paths)
    except Exception as error:  # the libraries raise many kinds of errors for files that they do not know
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        files = " and ".join(path.name for path in paths)
        raise ValueError(f"{files} cannot be read: {str(reason) or type(error).__name__}") from error
    if len(labels) != X.shape[0]:
        raise ValueError(f"there are {X.shape[0]} rows of counts, but {len(labels)} labels.")
    if genes is not None and len(genes) != X.shape[1]:
        raise ValueError(f"there are {X.shape[1]} columns of counts, but {len(genes)} names.")
    classes = {label: i for i, label in enumerate(facts["classes"])}
    kept = [i for i, label in enumerate(labels) if label in classes]
    y = np.array([classes[labels[i] or ""] for i in kept], dtype=np.int64)
    X = as_counts(X)[kept]
    columns = np.arange(X.shape[1])
    if not keeps_empty:
        columns = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
        X = X[:, columns]
    _check(X, y, facts)
    return CellSet(
        X=X,
        y=y,
        classes=np.array(list(classes)),
        name=name,
        source=", ".join(path.name for path in paths),
        genes=None if genes is None else np.array([genes[j] or "" for j in columns]),
    )


def _check(X: csr_array, y: Array, facts: dict[str, Any]) -> None:
    """Refuse a set that is not the recorded one."""
    if X.data.dtype.kind != "u":
        raise ValueError("the counts are not whole numbers.")
    sizes = np.bincount(y, minlength=len(facts["classes"])).tolist()
    compared = [
        (X.shape[0], "rows", facts["rows"]),
        (X.shape[1], "columns", facts["columns"]),
        (X.nnz, "nonzero counts", facts["entries"]),
        (int(X.data.sum(dtype=np.int64)), "molecules", facts["total"]),
        *(
            (size, f"cells of class {name}", facts["classes"][name])
            for size, name in zip(sizes, facts["classes"], strict=True)
        ),
    ]
    wrong = [f"{found} {what} instead of {recorded}" for found, what, recorded in compared if found != recorded]
    if wrong:
        raise ValueError(f"the counts are not the recorded ones: there are {', '.join(wrong[:3])}.")


def _facs(path: Path) -> Original:
    """Read a list of R with counts of cells × genes, a table of cells and a table of genes."""
    with _isolated(path) as call:
        X, _, _ = _matrix(path, call(r_objects.read_matrix, "pbmc_facs", "counts"))
        labels = call(r_objects.read_texts, "pbmc_facs", "samples", "celltype")
        genes = call(r_objects.read_texts, "pbmc_facs", "genes", "symbol")
    return Original(csr_array(X), labels, genes)


def _hashed(path: Path) -> Original:
    """Read cells with hashtags such as ``HEK_A``; only those with one hashtag have a class."""
    X, genes, columns = _experiment(path, "sce_chcl", "hto_classification_global", "hto_classification")
    singlet, tags = columns
    labels = [
        tag.split("_")[0] if tag is not None and kind == "Singlet" else None
        for kind, tag in zip(singlet, tags, strict=True)
    ]
    return Original(X, labels, genes)


def _oligodendrocytes(path: Path) -> Original:
    X, genes, [labels] = _experiment(path, "scXample", "inferred_cell_type")
    return Original(X, labels, genes)


def _experiment(path: Path, variable: str, *columns: str) -> tuple[csr_array, list[Label] | None, list[list[Label]]]:
    """Read the counts of a SingleCellExperiment, as cells × genes, its genes, and columns of its table of cells."""
    with _isolated(path) as call:
        X, genes, _ = _matrix(path, call(r_objects.read_matrix, variable, "assays", "counts"))
        if genes is None:  # some versions keep the names apart from the counts
            genes = call(r_objects.read_texts, variable, "rowRanges", "NAMES")
        return csr_array(X.T), genes, [call(r_objects.read_texts, variable, "colData", column) for column in columns]


def _embryo(matrix: Path, cells: Path) -> Original:
    """Read a matrix of genes × cells, and the table of cells from another file."""
    with _isolated(matrix) as call:
        X, genes, _ = _matrix(matrix, call(r_objects.read_matrix))
    with _isolated(cells) as call:
        return Original(csr_array(X.T), call(r_objects.read_texts, "cell.type"), genes)


@contextmanager
def _isolated(path: Path) -> Iterator[Callable[..., Any]]:
    """Start a process that reads one file: ``call(function, *arguments)`` runs ``function(path, *arguments)`` in it."""
    with Isolated.for_file(path) as reader:
        yield lambda function, *arguments: reader(function, str(path.resolve()), *arguments)


def _matrix(path: Path, parts: dict[str, Any]) -> tuple[csc_array, list[Label] | None, list[Label] | None]:
    """Build a matrix from what :func:`.r_objects.read_matrix` returned: the matrix, and names of rows and columns."""
    data, indices, indptr = (parts[key] for key in ("data", "indices", "indptr"))
    check_growth(path.name, data.nbytes + indices.nbytes + indptr.nbytes, path.stat().st_size)
    X = csc_array((data, indices, indptr), shape=tuple(int(size) for size in parts["shape"]))
    check_structure(X, path.name)
    return X, parts["rows"], parts["columns"]


def _mixture(counts: Path, cells: Path) -> Original:
    """Read counts of genes × cells and a table of cells, both as CSV files of R.

    The first column has the names of the rows. Its header is empty or absent.
    """
    with opened(cells) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        header, *rows = csv.reader(text)
    position = header.index("cell_line_demuxlet")
    label_of = {row[0]: row[position + len(row) - len(header)] for row in rows}
    with opened(counts) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        table = csv.reader(text)
        header = next(table)
        genes, X = _lines(table)
    barcodes = header[len(header) - X.shape[1] :]
    return Original(csr_array(X.T), [label_of.get(barcode) for barcode in barcodes], genes, keeps_empty=True)


def _body_sites(table: Path, sites: Path) -> Original:
    """Read a zipped table of taxa × samples, and the body site of each sample from a map."""
    lines = [line.split("\t") for line in sites.read_text(encoding="utf-8").splitlines()]
    sample = lines[0].index("SRS_SampleID")
    site_of = {line[sample]: line[SITE] for line in lines[1:] if len(line) > SITE}
    with table.open("rb") as raw:
        check_zip_growth(raw, table.name)
        with zipfile.ZipFile(raw) as archive:
            member = next((name for name in archive.namelist() if Path(name).name == "otutable.txt"), None)
            if member is None:
                raise ValueError(f"{table.name} has no otutable.txt, but {', '.join(archive.namelist())[:200]}.")
            with archive.open(member) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
                header, rows = _after_header(text)
                last = len(header) - (header[-1].lower() in ("taxonomy", "consensus lineage"))
                genes, X = _lines(row[:last] for row in rows)
    barcodes = header[last - X.shape[1] : last]
    return Original(csr_array(X.T), [site_of.get(barcode.split(".")[0]) for barcode in barcodes], genes)


def _after_header(text: Iterable[str]) -> tuple[list[str], Iterator[list[str]]]:
    """Skip comments. Return the header of a table with tabs, and its rows."""
    rows = (line.rstrip("\r\n").split("\t") for line in text)
    header = next((row for row in rows if len(row) > 1), None)
    if header is None:
        raise ValueError("the table has no line with tabs.")
    return header, rows


def _lines(rows: Iterable[list[str]]) -> tuple[list[Label], csr_array]:
    """Read rows that have a name, and then one number for each column."""
    names: list[Label] = []
    data, indices, starts = [], [], [0]
    width = None
    for number, (name, *cells) in enumerate((row for row in rows if row), start=1):
        values = np.array(cells, dtype=np.float64)
        if width not in (None, len(values)):
            raise ValueError(f"row {number} of the counts has {len(values)} numbers, but the first has {width}.")
        width = len(values)
        [columns] = np.nonzero(values)
        names.append(name)
        data.append(values[columns])
        indices.append(columns)
        starts.append(starts[-1] + len(columns))
    if not width:
        raise ValueError("the counts have no rows or no columns.")
    return names, csr_array((np.concatenate(data), np.concatenate(indices), starts), shape=(len(names), width))


def _arrays(path: Path) -> Original:
    """Read an HDF5 file with dense counts ``X``, cells × genes, and numbers of classes ``Y``."""
    with _isolated(path) as call:
        about = {name: call(foreign.describe, "hdf5", name)["arrays"][""] for name in ("X", "Y")}
        n, p = about["X"]["shape"]
        check_growth(path.name, n * p, path.stat().st_size)  # numbers, not bytes: nearly all of them are zeros
        rows = max(1, BLOCK // (max(p, 1) * np.dtype(about["X"]["dtype"]).itemsize))
        blocks = []
        for start, stop in pairwise([*range(0, n, rows), n]):
            [block] = call(foreign.read, "hdf5", ("X", start, stop))
            blocks.append(csr_array(block))
        [y] = call(foreign.read, "hdf5", ("Y", 0, n))
    return Original(vstack(blocks, format="csr"), [f"{label:.15g}" for label in np.ravel(y).tolist()])


READERS: dict[str, tuple[Callable[..., Original], str | None]] = {
    "zheng_facs10": (_facs, "rdata"),
    "hash_4lines": (_hashed, "rdata"),
    "sc_celseq2": (_mixture, None),
    "sc_dropseq": (_mixture, None),
    "worm_neuron": (_arrays, "h5py"),
    "worm_embryo": (_embryo, "rdata"),
    "marques_oligo": (_oligodendrocytes, "rdata"),
    "pbmc4k_top2000": (_arrays, "h5py"),
    "hmp_site18": (_body_sites, None),
}
"""The reader of the public files of each set, and the package that it needs."""
