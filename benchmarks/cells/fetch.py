"""Downloads the labelled sets of cells from public repositories, and converts them to npz files.

    python -m benchmarks.cells.fetch [NAME ...]

They are stored where ``onmf.datasets.load_cells`` looks: in $ONMF_DATA, or in the user's cache. This needs pooch, and
for some sets rdata or h5py. Each set has its own layout. What a conversion gives is compared with the numbers in
sources.json: rows, columns, entries, the sum of all counts, and the size of each class. For ``pbmc4k_top2000`` and the
map of ``hmp_site18`` no hash is known, so that this is their only check.
"""

import csv
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from onmf.datasets import CellSet, DatasetInfo, DownloadError
from onmf.datasets.load import CELLS, RemoteFile, by_hand, info_of, obtain, save_counts
from onmf.datasets.readers import as_counts, opened
from onmf.io.rules import require

SOURCES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("sources.json").read_text("utf-8"))
"""The public files of each set, how to read them by hand, and the numbers that they must give."""

SITE = 12
"""Position of the body site in a line of the map of hmp_site18, whose header lacks a tab."""

BLOCK = 1000
"""Rows of a dense matrix that are read at once."""


class Original(NamedTuple):
    """What the public files of a set hold; ``keeps_empty`` says that the set keeps genes without any count."""

    X: Any
    labels: Sequence[Any]
    genes: Sequence[Any] | None = None
    keeps_empty: bool = False


def main(names: Sequence[str]) -> int:
    """Fetch sets, by default all, and print their paths. If one fails, go on with the others."""
    failed = 0
    for name in names or CELLS:
        try:
            print(fetch_cells(name))
        except (DownloadError, ImportError, ValueError) as error:
            print(error, file=sys.stderr)
            failed = 1
    return failed


def fetch_cells(name: str) -> Path:
    """Download and convert a set, if it is not on this machine yet. → its path"""
    info = info_of(name)
    require(info.kind == "cells", f"{info.name} is a {info.kind} data set: {info.remedy}.")
    if not info.available:
        package = READERS[info.name][1]
        if package is not None and find_spec(package) is None:
            raise ImportError(f"Converting {info.name} needs {package}: pip install {package}")
        obtain(info, remote_files(info.name), _convert)
    return info.path


def remote_files(name: str) -> list[RemoteFile]:
    """Return the public files of a set."""
    return [RemoteFile(**entry) for entry in SOURCES[name]["files"]]


def _convert(info: DatasetInfo, paths: list[Path]) -> None:
    """Convert and store the downloaded files; if that fails, say where they are and what reads them."""
    try:
        cells = convert_cells(info.name, paths, SOURCES[info.name])
    except ValueError as error:
        urls = " and ".join(file.url for file in remote_files(info.name))
        raise DownloadError(
            f"{info.name}: its files were downloaded, but could not be converted: {str(error).rstrip('.')}. You can "
            f"convert {urls} yourself: {SOURCES[info.name]['read']}. Then {by_hand(info)}"
        ) from error
    save_counts(info.path, cells.X, y=cells.y, classes=cells.classes, genes=cells.genes)


def convert_cells(name: str, paths: list[Path], facts: dict[str, Any]) -> CellSet:
    """Convert the public files of a set, and compare the result with the facts.

    Cells whose label is not one of the classes are left out: they are doublets, or have no label.
    """
    try:
        X, labels, genes, keeps_empty = READERS[name][0](*paths)
    except Exception as error:  # the libraries raise many kinds of errors for files that they do not know
        files = " and ".join(path.name for path in paths)
        raise ValueError(f"{files} cannot be read: {str(error) or type(error).__name__}") from error
    n, p = X.shape
    wrong = n != len(labels) or p != len(range(p) if genes is None else genes)
    require(not wrong, f"there are {n} × {p} counts, but {len(labels)} labels, or other genes.")
    classes = {label: i for i, label in enumerate(facts["classes"])}
    kept = [i for i, label in enumerate(labels) if label in classes]
    y = np.array([classes[labels[i]] for i in kept], dtype=np.int64)
    X = as_counts(X)[kept]
    require(X.data.dtype.kind == "u", "the counts are not whole numbers.")
    used = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]) + keeps_empty)
    X = X[:, used]
    found = {"rows": X.shape[0], "columns": X.shape[1], "entries": X.nnz, "total": int(X.data.sum(dtype=np.int64))}
    found["classes"] = dict(zip(classes, np.bincount(y, minlength=len(classes)).tolist(), strict=True))
    if wrong := [f"{key} {value} instead of {facts[key]}" for key, value in found.items() if value != facts[key]]:
        raise ValueError(f"the counts are not the recorded ones: {', '.join(wrong)}.")
    names = None if genes is None else np.array([str(genes[j]) for j in used])
    return CellSet(X=X, y=y, classes=np.array(list(classes)), name=name, source="", genes=names)


def _facs(path: Path) -> Original:
    """Read a list of R with counts of cells × genes, a table of cells and a table of genes."""
    content = _read_r(path)
    X, _ = _matrix(_find(content, "pbmc_facs", "counts"))
    return Original(X, _find(content, "samples", "celltype"), _find(content, "genes", "symbol"))


def _hashed(path: Path) -> Original:
    """Read cells with hashtags such as ``HEK_A``; only those with one hashtag have a class."""
    X, genes, (kinds, tags) = _experiment(path, "hto_classification_global", "hto_classification")
    labels = [tag.split("_")[0] if kind == "Singlet" else None for kind, tag in zip(kinds, tags, strict=True)]
    return Original(X, labels, genes)


def _oligodendrocytes(path: Path) -> Original:
    X, genes, [labels] = _experiment(path, "inferred_cell_type")
    return Original(X, labels, genes)


def _experiment(path: Path, *columns: str) -> tuple[Any, Any, list[Any]]:
    """Read the counts of a SingleCellExperiment, as cells × genes, its genes, and columns of its table of cells."""
    content = _read_r(path)
    X, genes = _matrix(_find(content, "assays", "counts"))
    if genes is None:  # some versions keep the names apart from the counts
        genes = _find(content, "rowRanges", "NAMES")
    return X.T, genes, [_find(content, "colData", column) for column in columns]


def _embryo(matrix: Path, cells: Path) -> Original:
    """Read a matrix of genes × cells, and the table of cells from another file."""
    X, genes = _matrix(_read_r(matrix))
    return Original(X.T, _find(_read_r(cells), "cell.type"), genes)


def _read_r(path: Path) -> Any:
    """Read a data file of R. Lists and tables become dicts, and S4 objects namespaces."""
    from rdata.conversion import DEFAULT_CLASS_MAP, convert
    from rdata.parser import parse_file

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes that are not known
        return convert(parse_file(path), {"factor": DEFAULT_CLASS_MAP["factor"]})


def _find(found: Any, *names: str) -> Any:
    """Find a member, however deep: the layers in between differ from one version of Bioconductor to the next."""
    for name in names:
        level, seen = [found], set[int]()
        while not (matches := [members[name] for members in map(_members, level) if name in members]):
            seen |= {id(parent) for parent in level}  # an environment may contain itself
            level = [child for parent in level for child in _members(parent).values() if id(child) not in seen]
            if not level:
                raise ValueError(f"there is no {' → '.join(names)}.")
        found = matches[0]
    return found


def _members(parent: Any) -> dict[Any, Any]:
    if isinstance(parent, SimpleNamespace):
        return vars(parent)
    if isinstance(parent, list):
        return dict(enumerate(parent))
    return dict(parent) if hasattr(parent, "items") and hasattr(parent, "keys") else {}


def _matrix(found: Any) -> tuple[Any, Any]:
    """Convert a matrix of R, a dgCMatrix or a dense one. → the matrix, and the names of its rows or None"""
    if hasattr(found, "Dim"):
        return csc_array((found.x, found.i, found.p), shape=tuple(found.Dim)), found.Dimnames[0]
    return csc_array(np.asarray(found)), found["dim_0"].values if "dim_0" in getattr(found, "coords", ()) else None


def _mixture(counts: Path, cells: Path) -> Original:
    """Read counts of genes × cells and a table of cells, both as CSV files of R: names of rows have no header."""
    with opened(cells) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        header, *rows = csv.reader(text)
    position = header.index("cell_line_demuxlet") - len(header)
    label_of = {row[0]: row[position] for row in rows}
    with opened(counts) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        barcodes, genes, X = _table(csv.reader(text))
    return Original(X.T, [label_of.get(barcode) for barcode in barcodes], genes, keeps_empty=True)


def _body_sites(table: Path, sites: Path) -> Original:
    """Read a zipped table of taxa × samples, and the body site of each sample from a map."""
    lines = [line.split("\t") for line in sites.read_text(encoding="utf-8").splitlines()]
    sample = lines[0].index("SRS_SampleID")
    site_of = {line[sample]: line[SITE] for line in lines[1:] if len(line) > SITE}
    with zipfile.ZipFile(table) as archive:
        [member] = [name for name in archive.namelist() if Path(name).name == "otutable.txt"]
        with archive.open(member) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
            samples, taxa, X = _table(csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
    return Original(X.T, [site_of.get(name.split(".")[0]) for name in samples], taxa)


def _table(rows: Any) -> tuple[list[str], list[str], csr_array]:
    """Read a table of counts: comments, a header, and rows of a name and numbers. The header may lack a corner."""
    header = next(row for row in rows if len(row) > 1)
    end = -1 if header[-1].lower() in ("taxonomy", "consensus lineage") else None
    named = [(name, csr_array([np.array(cells[:end], dtype=np.float64)])) for name, *cells in rows]
    X = vstack([counts for _, counts in named], format="csr")
    return header[:end][-X.shape[1] :], [name for name, _ in named], X


def _arrays(path: Path) -> Original:
    """Read an HDF5 file with dense counts ``X``, cells × genes, and numbers of classes ``Y``."""
    import h5py

    with h5py.File(path) as file:
        blocks = [csr_array(file["X"][start : start + BLOCK]) for start in range(0, len(file["X"]), BLOCK)]
        labels = [f"{label:.15g}" for label in np.ravel(file["Y"])]
    return Original(vstack(blocks, format="csr"), labels)


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
