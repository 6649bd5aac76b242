"""Readers of counts in MATLAB, CLUTO, svmlight, Matrix Market and npz files, and of scenes in MATLAB files.

MATLAB 5 and Matrix Market files are read with SciPy in a separate process, because a damaged file can crash SciPy. What
other files claim about their arrays is checked before any memory is allocated for them.
"""

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, issparse, load_npz
from sklearn.datasets import load_svmlight_file

from onmf.data.validate import check_structure
from onmf.divergence import Array, FloatArray
from onmf.io import isolated_readers
from onmf.io.isolate import Isolated, ReaderEnded
from onmf.io.limits import Bounded, check_growth, check_shape, most, npy_header
from onmf.io.rules import require
from onmf.warn import import_optional

Format = Literal["matlab", "cluto", "svmlight", "matrix-market", "npz"]


@dataclass(frozen=True)
class Documents:
    """Word counts of documents, with their classes.

    Attributes
    ----------
    X : (documents, words) CSR array
        Counts.
    y : (documents,) array of int or None
        Class of each document, if known.
    name : str
        Name of the collection.
    source : str
        Origin of the collection, usually a path.
    words : (words,) array of str or None
        Word of each column, if known.
    classes : (n_classes,) array of str or None
        Name of each class, if known.
    ids : (documents,) array of str or None
        Name of each document, if known.
    profiles : (n_classes, words) array or None
        Word probabilities that each class was drawn from, for generated counts.
    """

    X: csr_array
    y: Array | None
    name: str
    source: str
    words: Array | None = None
    classes: Array | None = None
    ids: Array | None = None
    profiles: FloatArray | None = None

    def __repr__(self) -> str:
        n, p = self.X.shape
        classes = "" if self.y is None else f", {len(set(self.y.tolist()))} classes"
        return f"<Documents {self.name}: {n} × {p} counts, {self.X.nnz} nonzeros{classes}>"


@dataclass(frozen=True)
class Scene:
    """The pixels of a hyperspectral image as rows, with its ground truth.

    Attributes
    ----------
    X : (pixels, bands) array
        One spectrum per row.
    height, width : int
        Size of the image.
    order : {"C", "F"}
        Order of the pixels: along the lines ("C"), or down the columns as in MATLAB ("F").
    name : str
        Name of the scene.
    source : str
        Origin of the scene, usually a path.
    endmembers : (materials, bands) array or None
        True spectra, if known.
    abundances : (materials, pixels) array or None
        True share of each material in each pixel, if known; NaN for pixels where it is unknown.
    names : (materials,) array of str or None
        Names of the materials, if known.
    wavelengths : (bands,) array or None
        Wavelengths of the bands in nanometres, if known.
    """

    X: FloatArray
    height: int
    width: int
    order: Literal["C", "F"]
    name: str
    source: str
    endmembers: FloatArray | None = None
    abundances: FloatArray | None = None
    names: Array | None = None
    wavelengths: FloatArray | None = None

    def __repr__(self) -> str:
        materials = "" if self.endmembers is None else f", {len(self.endmembers)} materials"
        return f"<Scene {self.name}: {self.height} × {self.width} pixels, {self.X.shape[1]} bands{materials}>"

    def to_image(self, values: Array) -> Array:
        """Arrange values of the pixels as an image. (pixels,) → (height, width)"""
        return values.reshape(self.height, self.width, order=self.order)


@dataclass(frozen=True)
class CellSet:
    """Counts of molecules in cells, with the classes of the cells.

    Attributes
    ----------
    X : (cells, genes) CSR array
        Counts. For ``hmp_site18``, the rows are samples of a microbiome and the columns are taxa.
    y : (cells,) array of int
        Class of each cell, as a position in ``classes``.
    classes : (n_classes,) array of str
        Name of each class; a number where the source gives no name.
    name : str
        Name of the data set.
    source : str
        Public files that it was made from.
    genes : (genes,) array of str or None
        Name of each gene, if known. Names may repeat.
    barcodes : (cells,) array of str or None
        Name of each cell, if known. The nine sets of :func:`load_cells` have none.
    """

    X: csr_array
    y: Array
    classes: Array
    name: str
    source: str
    genes: Array | None = None
    barcodes: Array | None = None

    def __repr__(self) -> str:
        n, p = self.X.shape
        return f"<CellSet {self.name}: {n} × {p} counts, {self.X.nnz} nonzeros, {len(self.classes)} classes>"

    def to_anndata(self) -> Any:
        """Convert to an AnnData object, with the class of each cell in ``obs["class"]``.

        The genes name the variables. A name that repeats gets a suffix, as scanpy does it; ``var["gene"]`` then has
        the names as they are.

        Returns
        -------
        anndata.AnnData
        """
        anndata = import_optional("anndata", "AnnData objects need anndata", "cells")
        import pandas as pd

        classes = pd.Categorical.from_codes(self.y, categories=list(self.classes))
        cells, genes = (
            pd.Index([str(i) for i in range(size)] if names is None else names, dtype=object)
            for names, size in zip((self.barcodes, self.genes), self.X.shape, strict=True)
        )
        obs = pd.DataFrame({"class": classes}, index=cells)
        var = pd.DataFrame(index=anndata.utils.make_index_unique(genes))
        if not genes.is_unique:
            var["gene"] = self.genes
        return anndata.AnnData(X=csr_matrix(self.X), obs=obs, var=var)  # scanpy 1.11 cannot normalise sparse arrays


def read_documents(path: str | Path, format: Format | None = None) -> Documents:
    """Read a documents × words matrix, with classes and words if the file has them.

    Parameters
    ----------
    path : path
        A MATLAB file with ``dtm`` and ``classid``; a CLUTO matrix (text, sparse or dense), with ``.rclass``,
        ``.rlabel`` and ``.clabel`` files beside it if they exist; an svmlight file; a Matrix Market file; or an npz
        file, as SciPy's ``save_npz`` or this package writes it. Text formats may be compressed with gzip.
    format : {"matlab", "cluto", "svmlight", "matrix-market", "npz"}, optional
        Format of the file; by default detected from its content.

    Returns
    -------
    Documents
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a matrix of counts.")
    kind = format or sniff(path)
    require(kind in READERS, f"format={format!r} is unknown: use {', '.join(map(repr, READERS))}.")
    classes = None
    with naming(path, kind):
        parts = READERS[kind](path)
        X, (y, words, ids) = parts["X"], (parts.get(key) for key in ("y", "words", "ids"))
        if y is not None:
            y = y.ravel() if y.ndim == 2 and 1 in y.shape else y  # a vector in MATLAB
            about = f"its classes have {y.ndim} dimensions and type {y.dtype}: expected a list of numbers."
            require(y.ndim == 1 and y.dtype.kind in "biufUS", about)
            values, y = np.unique(y, return_inverse=True)
            classes = values.astype(str) if values.dtype.kind in "US" else None
    sizes = [(y, "classes", X.shape[0], "row"), (ids, "names of documents", X.shape[0], "row")]
    for names, noun, n, line in (*sizes, (words, "words", X.shape[1], "column")):
        if names is not None and len(names) != n:
            raise ValueError(f"{path} has {n} {line}s, but {len(names)} {noun}: expected one for each {line}.")
    return Documents(X, y, path.name.split(".")[0], str(path), words, classes, ids)


@contextmanager
def naming(path: Path, kind: str, *passed: type[Exception]) -> Iterator[None]:
    """Let errors name the file and its kind, but for those that are ``passed`` on as they are."""
    try:
        yield
    except passed:
        raise
    except Exception as error:  # the libraries raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error


MAGIC: dict[bytes, Format] = {b"MATLAB": "matlab", b"PK": "npz", b"%%MatrixMarket": "matrix-market"}
"""First bytes of a format."""


def sniff(path: Path) -> Format:
    """Detect the format of a file from its first bytes."""
    try:
        with opened(path) as file:
            head = file.read(4096)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file: {error}") from error
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    first = next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    if b":" in first:
        return "svmlight"
    if len(first.split()) in (2, 3) and all(word.isdigit() for word in first.split()):
        return "cluto"
    raise ValueError(
        f"{path} has an unknown format: expected MATLAB, CLUTO, svmlight, Matrix Market or npz. Name it with format=."
    )


def read_scene(image: str | Path, truth: str | Path | None = None, *, name: str | None = None) -> Scene:
    """Read a scene from MATLAB files, in the form that is usual in spectral unmixing.

    Parameters
    ----------
    image : path
        File with the pixels as columns of ``V``, ``Y`` or ``X`` and the size of the image as ``nRow`` and ``nCol``;
        without these, the image is a square.
    truth : path, optional
        File with the endmembers as columns of ``M``, the abundances ``A``, and the names ``cood``.
    name : str, optional
        Name of the scene; by default the name of the file.

    Returns
    -------
    Scene
    """
    image = Path(image)
    content = _load_mat(image)
    variable = next((v for v in ("V", "Y", "X") if np.ndim(content.get(v, 0)) == 2), None)
    if variable is None:
        raise ValueError(f"{image} has no matrix V, Y or X of bands × pixels, but {', '.join(content)}.")
    X = np.ascontiguousarray(np.asarray(content[variable], dtype=np.float64).T)
    side = round(np.sqrt(len(X)))
    height, width = (int(np.squeeze(content.get(key, side))) for key in ("nRow", "nCol"))
    require(height * width == len(X), f"{image} has {len(X)} pixels, not {height} × {width}: it needs nRow and nCol.")
    known = {} if truth is None else _read_truth(Path(truth), image, X)
    return Scene(X, height, width, "F", name or image.stem, str(image), **known)


def _read_truth(path: Path, image: Path, X: Array) -> dict[str, Any]:
    """Read the ground truth of an image."""
    content = _load_mat(path)
    missing = {"M", "A"} - set(content)
    require(not missing, f"{path} has no {' and '.join(sorted(missing))}, but {', '.join(content)}.")
    M, A = (np.asarray(content[name], dtype=np.float64) for name in ("M", "A"))
    require(
        len(M) == X.shape[1] and A.shape == (M.shape[1], len(X)),
        f"{path} belongs to another image: it has {len(M)} bands and {A.shape[1]} pixels, {image} has {X.shape[1]} and "
        f"{len(X)}.",
    )
    cells = content["cood"].ravel() if "cood" in content else None
    names = None if cells is None else np.array([str(cell).split("-")[-1].lower() for cell in cells])
    return {"endmembers": np.ascontiguousarray(M.T), "abundances": A, "names": names}


def _load_mat(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    try:
        return read_matlab5(path)
    except NotImplementedError as error:  # SciPy raises this for files of version 7.3
        raise ValueError(f"{path} is a MATLAB 7.3 file: save it with -v7, or as an npz file.") from error


def _matlab(path: Path) -> dict[str, Any]:
    content = _load_mat(path)
    require("dtm" in content, f"it has no variable dtm, but {', '.join(content)}.")
    return {"X": as_counts(content["dtm"]), "y": content.get("classid")}


def _cluto(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        header = [int(word) for word in file.readline(1000).split()]
        require(len(header) in (2, 3), "its first line must give the number of rows, of columns and of entries.")
        n, p, *nnz = header
        require(min(n, p) >= 1, f"its first line says {n} × {p}.")
        check_shape("it", n, p, path.stat().st_size)
        X = _cluto_rows(file, n, p, *nnz) if nnz else np.loadtxt(file, ndmin=2)
    require(X.shape == (n, p), f"its first line says {n} × {p}, but it has {' × '.join(map(str, X.shape))} numbers.")
    parts: dict[str, Any] = {"X": as_counts(X)}
    for key, suffix in (("y", ".rclass"), ("ids", ".rlabel"), ("words", ".clabel")):
        beside = path.with_name(path.name.removesuffix(".gz") + suffix)
        if beside.is_file():
            lines = beside.read_text(encoding="utf-8").splitlines()
            parts[key] = np.array([line.strip() for line in lines if line.strip()])
    return parts


def _cluto_rows(file: IO[bytes], n: int, p: int, nnz: int) -> csr_array:
    """Read sparse rows: pairs of a column, counted from 1, and a value."""
    indices, values, starts = [], [], [0]
    for number, line in enumerate(file, start=2):
        if line.startswith(b"%") or (len(starts) == n + 1 and not line.strip()):
            continue
        pairs = np.array(line.split(), dtype=np.float64)
        if len(pairs) % 2:
            raise ValueError(f"line {number} has {len(pairs)} numbers: expected pairs of a column and a value.")
        columns = pairs[::2] - 1
        inside = (columns >= 0) & (columns < p) & (columns == np.floor(columns))
        if not inside.all():
            raise ValueError(f"line {number} names column {columns[~inside][0] + 1:.15g}, but there are {p}.")
        indices.append(columns.astype(np.int64))
        values.append(pairs[1::2])
        starts.append(starts[-1] + len(columns))
    about = f"its first line says {n} rows and {nnz} entries, but it has {len(starts) - 1} rows and {starts[-1]}."
    require(len(starts) == n + 1 and starts[-1] == nnz, about)
    return as_csr(np.concatenate(values), np.concatenate(indices), np.array(starts), (n, p))


def _svmlight(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        X, y = load_svmlight_file(file)
    check_shape("it", X.shape[0], X.shape[1], path.stat().st_size)
    return {"X": as_counts(X), "y": y}


def _npz(path: Path) -> dict[str, Any]:
    length = path.stat().st_size
    with open_npz(path) as file:
        if "format" not in file:
            return {"X": stored_csr(file, length), "y": file.get("y")}
        shape_of(file["shape"], length)
        for name in {"indices", "indptr", "row", "col", "offsets"} & set(file):
            check_array(name, file[name].ndim, file[name].dtype)
    return {"X": as_counts(load_npz(path))}


READERS = {
    "matlab": _matlab,
    "cluto": _cluto,
    "svmlight": _svmlight,
    "matrix-market": lambda path: {"X": read_market(path)},
    "npz": _npz,
}
"""The reader of each format: returns ``X`` and, if the file has them, ``y``, ``words`` and ``ids``."""


def as_counts(X: Any) -> csr_array:
    """Convert counts to canonical CSR, with an integer type if all entries are integers."""
    check_structure(X, "it")
    X = X if issparse(X) else np.asarray(X)
    about = f"it has {X.dtype} values in {X.ndim} dimensions: expected numbers in rows and columns."
    require(X.ndim == 2 and X.dtype.kind in "buif", about)
    X = csr_array(X)
    X.sum_duplicates()
    X.eliminate_zeros()
    largest = X.data.max(initial=0)
    if X.data.min(initial=0) >= 0 and largest < 2**32 and np.array_equal(X.data, np.floor(X.data)):
        X = X.astype(np.min_scalar_type(int(largest)))
    return X


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and decompress it if it is gzipped."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if compressed:
            with gzip.open(raw) as file:
                bounded = Bounded(file, "it", lambda: path.stat().st_size)  # type: ignore[arg-type]
                yield io.BufferedReader(bounded, 1 << 18)
        else:
            yield raw


def read_matlab5(path: Path) -> dict[str, Any]:
    """Read the variables of a MATLAB 5 file: numeric arrays, sparse matrices, arrays of strings; None for others."""
    # SciPy raises NotImplementedError for version 7.3.
    with (
        Isolated.for_file(path) as reader,
        naming(path, "a MATLAB file", ReaderEnded, ImportError, NotImplementedError),
    ):
        content = reader(isolated_readers.load_matlab5, str(path.resolve()))
    sparse = [array for value in content.values() if isinstance(value, dict) for array in value.get("columns", ())]
    arrays = [value for value in (*content.values(), *sparse) if isinstance(value, np.ndarray)]
    check_growth(str(path), sum(array.nbytes for array in arrays), path.stat().st_size)
    return {name: _variable(f"{path}: {name}", value) for name, value in content.items()}


def _variable(name: str, value: Any) -> Any:
    """Build a variable of a MATLAB file from what the other process sent."""
    if not isinstance(value, dict):
        return value
    if "texts" in value:
        return np.array(value["texts"], dtype=np.str_).reshape(value["shape"])
    try:
        X = csc_array(tuple(value["columns"]), shape=tuple(value["shape"]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: the sparse matrix is damaged: {error}") from error
    check_structure(X, name)
    return X


def read_market(path: Path) -> csr_array:
    """Read counts from a Matrix Market file, which may be compressed with gzip."""
    with naming(path, "a Matrix Market file", ReaderEnded, ImportError):
        with Isolated.for_file(path) as reader:
            shape, values, *places = reader(
                isolated_readers.load_market, str(path.resolve()), most(path.stat().st_size)
            )
        return as_counts(coo_array((values, tuple(places)), shape=tuple(shape)))


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Open an npz file; refuse one that expands too much, or whose arrays claim more bytes than they have."""
    # NumPy allocates memory before it reads arrays. A directory that understates a member does no harm: Python's reader
    # stops at the listed length.
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:  # zipfile may raise anything on a damaged file
            raise ValueError(f"it is damaged, or not a zip archive: {error}.") from error
        with archive:
            check_growth("it", sum(info.file_size for info in archive.infolist()), path.stat().st_size)
            for info in archive.infolist():
                name = info.filename[:200]
                require(  # other decompressors allocate memory before they produce output
                    info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
                    f"it holds {name!r}, compressed in a way that npz files never are: it is refused. Unpack it "
                    "yourself if you trust it.",
                )
                require(info.filename.endswith(".npy"), f"its member {name!r} is not an array.")
                with archive.open(info) as member:
                    try:
                        npy_header(member, info.file_size)
                    except ValueError as error:
                        raise ValueError(f"its array {name!r} is damaged: {error}.") from error
        file.seek(0)
        with np.load(file, allow_pickle=False) as content:
            yield content


def stored_csr(content: Any, length: int) -> csr_array:
    """The CSR matrix in an open npz file of ``length`` bytes."""
    require("indptr" in content, f"it has no CSR matrix, but {', '.join(content)[:200]}")
    return as_csr(content["data"], content["indices"], content["indptr"], shape_of(content["shape"], length))


def shape_of(value: Any, length: int) -> tuple[int, int]:
    """Check the shape that a file of ``length`` bytes gives, and return the number of rows and of columns."""
    sizes = np.asarray(value)
    about = f"its shape is {str(value)[:80]}: expected two integers, rows and columns."
    require(sizes.shape == (2,) and sizes.dtype.kind in "iu", about)
    n, p = sizes.tolist()
    check_shape("it", n, p, length)
    return n, p


def check_array(name: str, dimensions: int, dtype: Any, wanted: int = 1) -> None:
    """Refuse data that are not real numbers, and indices that are not integers: SciPy would round them silently."""
    expected = f"real numbers in {wanted} dimensions" if name == "data" else "a list of integers"
    wrong = dimensions != wanted or dtype.kind not in ("buif" if name == "data" else "iu")
    require(not wrong, f"its {name} has {dimensions} dimensions and type {dtype}: expected {expected}.")


def as_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> csr_array:
    """Build a CSR array from the arrays of a file, and check that its indices are within bounds."""
    for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
        check_array(name, array.ndim, array.dtype)
    X = csr_array((data, indices, indptr), shape=shape, copy=False)
    check_structure(X, "it")
    return X
