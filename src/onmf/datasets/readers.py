"""Readers of counts in MATLAB, CLUTO, svmlight, Matrix Market and npz files, and of scenes in MATLAB files."""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse, load_npz
from sklearn.datasets import load_svmlight_file

from onmf.data.structure import check_structure
from onmf.divergence import Array
from onmf.io.limits import Bounded, check_shape

from .documents import Documents
from .matlab import read_matlab5
from .scene import Scene
from .stored import as_csr, check_indices, open_npz, shape_of

Format = Literal["matlab", "cluto", "svmlight", "matrix-market", "npz"]


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
    try:
        read = {
            "matlab": _matlab,
            "cluto": _cluto,
            "svmlight": _svmlight,
            "matrix-market": _matrix_market,
            "npz": _npz,
        }[kind]
    except KeyError:
        raise ValueError(
            f"format={format!r} is unknown: use 'matlab', 'cluto', 'svmlight', 'matrix-market' or 'npz'."
        ) from None
    try:
        parts = read(path)
    except Exception as error:  # the libraries raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error
    X, y = parts["X"], parts.get("y")
    for key, noun, number, axis in (
        ("y", "classes", X.shape[0], "row"),
        ("ids", "names of documents", X.shape[0], "row"),
        ("words", "words", X.shape[1], "column"),
    ):
        if (names := parts.get(key)) is not None and len(names) != number:
            raise ValueError(f"{path} has {number} {axis}s, but {len(names)} {noun}: expected one for each {axis}.")
    classes = parts.get("classes")
    if y is not None:
        values, y = np.unique(y, return_inverse=True)
        classes = values.astype(str) if classes is None and values.dtype.kind in "US" else classes
    return Documents(
        X=X,
        y=y,
        name=path.name.split(".")[0],
        source=str(path),
        words=parts.get("words"),
        classes=classes,
        ids=parts.get("ids"),
    )


def sniff(path: Path) -> Format:
    """Detect the format of a file from its first bytes."""
    try:
        with opened(path) as file:
            head = file.read(4096)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file: {error}") from error
    if head.startswith(b"MATLAB"):
        return "matlab"
    if head.startswith(b"PK"):
        return "npz"
    if head.startswith(b"%%MatrixMarket"):
        return "matrix-market"
    first = next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    if b":" in first:
        return "svmlight"
    if first.split() and all(word.isdigit() for word in first.split()) and len(first.split()) in (2, 3):
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
        raise ValueError(f"{image} has no matrix V, Y or X of bands × pixels, but {', '.join(_names(content))}.")
    X = np.ascontiguousarray(np.asarray(content[variable], dtype=np.float64).T)
    side = round(np.sqrt(len(X)))
    height, width = (int(np.squeeze(content.get(key, side))) for key in ("nRow", "nCol"))
    if height * width != len(X):
        raise ValueError(f"{image} has {len(X)} pixels, not {height} × {width}: it needs nRow and nCol.")
    ground_truth: dict[str, Any] = {}
    if truth is not None:
        content = _load_mat(Path(truth))
        if missing := {"M", "A"} - set(content):
            raise ValueError(f"{truth} has no {' and '.join(sorted(missing))}, but {', '.join(_names(content))}.")
        ground_truth["endmembers"] = np.ascontiguousarray(np.asarray(content["M"], dtype=np.float64).T)
        ground_truth["abundances"] = np.asarray(content["A"], dtype=np.float64)
        if "cood" in content:
            ground_truth["names"] = np.array(
                [str(np.squeeze(cell)).split("-")[-1].lower() for cell in content["cood"].ravel()]
            )
        r = len(ground_truth["endmembers"])
        if ground_truth["endmembers"].shape[1] != X.shape[1] or ground_truth["abundances"].shape != (r, len(X)):
            raise ValueError(
                f"{truth} belongs to another image: it has {ground_truth['endmembers'].shape[1]} bands and "
                f"{ground_truth['abundances'].shape[1]} pixels, {image} has {X.shape[1]} and {len(X)}."
            )
    return Scene(X, height, width, "F", name or image.stem, str(image), **ground_truth)


def _load_mat(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    try:
        return read_matlab5(path)
    except NotImplementedError as error:  # SciPy raises this for files of version 7.3
        raise ValueError(f"{path} is a MATLAB 7.3 file: save it with -v7, or as an npz file.") from error


def _names(content: dict[str, Any]) -> list[str]:
    return [name for name in content if not name.startswith("__")]


def _matlab(path: Path) -> dict[str, Any]:
    content = _load_mat(path)
    if "dtm" not in content:
        raise ValueError(f"it has no variable dtm, but {', '.join(_names(content))}.")
    return {"X": as_counts(content["dtm"]), "y": _classes(content.get("classid"))}


def _cluto(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        header = [int(word) for word in file.readline(1000).split()]
        if len(header) not in (2, 3):
            raise ValueError("its first line must give the number of rows, of columns and of entries.")
        n, p = header[:2]
        if min(n, p) < 1:
            raise ValueError(f"its first line says {n} × {p}.")
        check_shape("it", n, p, path.stat().st_size)
        if len(header) == 2:
            X = np.loadtxt(file, ndmin=2)
            if X.shape != (n, p):
                raise ValueError(f"its first line says {n} × {p}, but it has {X.shape[0]} × {X.shape[1]} numbers.")
            counts = csr_array(X)
        else:
            counts = _cluto_rows(file, n, p, header[2])
    parts: dict[str, Any] = {"X": as_counts(counts)}
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
    if len(starts) != n + 1 or starts[-1] != nnz:
        raise ValueError(
            f"its first line says {n} rows and {nnz} entries, but it has {len(starts) - 1} rows and {starts[-1]}."
        )
    return as_csr(np.concatenate(values), np.concatenate(indices), np.array(starts), (n, p))


def _svmlight(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        X, y = load_svmlight_file(file)
    n, p = X.shape
    check_shape("it", n, p, path.stat().st_size)
    return {"X": as_counts(X), "y": _classes(y)}


def _matrix_market(path: Path) -> dict[str, Any]:
    """Read entries, or a dense matrix column by column. SciPy's reader is faster, but crashes on damaged files."""
    with opened(path) as file:
        _, kind, layout, field, symmetry = file.readline(1000).decode().lower().split()
        if kind != "matrix" or field not in ("real", "double", "integer", "unsigned-integer", "pattern"):
            raise ValueError(f"it has a {field} {kind}: expected a real or integer matrix.")
        line = b"%"
        while line and (line.startswith(b"%") or not line.strip()):
            line = file.readline(1 << 20)
        n, p, *rest = (int(word) for word in line.split())
        check_shape("it", n, p, path.stat().st_size)
        if symmetry != "general" and n != p:
            raise ValueError(f"its header says {symmetry}, but it has {n} rows and {p} columns.")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input contained no data", category=UserWarning)
            numbers = np.loadtxt(file, comments="%", ndmin=2)
    if layout == "array":
        i, j, values = _columns(numbers.ravel(), n, p, symmetry)
    else:
        [entries] = rest
        if numbers.size == 0:
            numbers = numbers.reshape(0, 2 if field == "pattern" else 3)
        if numbers.shape != (entries, 2 if field == "pattern" else 3):
            raise ValueError(
                f"its header says {entries} {field} entries, but it has {numbers.shape[0]} lines of "
                f"{numbers.shape[1]} numbers."
            )
        i, j = (_indices(numbers[:, axis], size) for axis, size in enumerate((n, p)))
        values = np.ones(entries) if field == "pattern" else numbers[:, 2]
    if symmetry != "general":
        off_diagonal, sign = np.flatnonzero(i != j), -1 if symmetry == "skew-symmetric" else 1
        i, j = np.concatenate([i, j[off_diagonal]]), np.concatenate([j, i[off_diagonal]])
        values = np.concatenate([values, sign * values[off_diagonal]])
    return {"X": as_counts(coo_array((values, (i, j)), shape=(n, p)))}


def _indices(numbers: Array, size: int) -> Array:
    """Convert row or column numbers, counted from 1, to indices."""
    inside = (numbers >= 1) & (numbers <= size) & (numbers == np.floor(numbers))
    if not inside.all():
        entry = int(np.argmin(inside))
        raise ValueError(f"entry {entry + 1} is in row or column {numbers[entry]:.15g}, but there are {size}.")
    return numbers.astype(np.int64) - 1


def _columns(values: Array, n: int, p: int, symmetry: str) -> tuple[Array, Array, Array]:
    """Return rows, columns and values of a dense matrix stored by columns; if symmetric, of its lower triangle."""
    skew = int(symmetry == "skew-symmetric")
    number = n * p if symmetry == "general" else n * (n + 1 - 2 * skew) // 2
    if len(values) != number:
        raise ValueError(f"its header says {n} × {p}, {symmetry}, but it has {len(values)} numbers.")
    if symmetry == "general":
        j, i = np.divmod(np.arange(number), max(n, 1))
    else:
        j, i = np.triu_indices(n, skew)
    return i, j, values


def _npz(path: Path) -> dict[str, Any]:
    length = path.stat().st_size
    with open_npz(path) as file:
        if "format" not in file and "indptr" not in file:
            raise ValueError(f"it has no sparse matrix, but {', '.join(file.files)[:200]}.")
        shape = shape_of(file["shape"], length)
        if "format" not in file:
            X = as_csr(file["data"], file["indices"], file["indptr"], shape)
            return {"X": X, "y": _classes(file.get("y"))}
        for name in {"indices", "indptr", "row", "col", "offsets"} & set(file):
            check_indices(name, file[name].ndim, file[name].dtype)
    return {"X": as_counts(load_npz(path))}


def _classes(y: Any) -> Array | None:
    """Check the classes of the rows, which are numbers or names."""
    if y is None:
        return None
    y = np.asarray(y)
    if y.ndim == 2 and 1 in y.shape:  # a vector in MATLAB
        y = y.ravel()
    if y.ndim != 1 or y.dtype.kind not in "biufUS":
        raise ValueError(f"its classes have {y.ndim} dimensions and type {y.dtype}: expected a list of numbers.")
    return y


def as_counts(X: Any) -> csr_array:
    """Convert counts to canonical CSR, with an integer type if all entries are integers."""
    check_structure(X, "it")
    X = X if issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "buif":
        raise ValueError(f"it has {X.dtype} values in {X.ndim} dimensions: expected numbers in rows and columns.")
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
        length = raw.seek(0, 2)
        raw.seek(0)
        if compressed:
            with gzip.open(raw) as file:
                yield io.BufferedReader(Bounded(file, "it", lambda: length), 1 << 18)  # type: ignore[arg-type]
        else:
            yield raw


def smallest_indices(X: csr_array) -> tuple[Array, Array]:
    """Return the index arrays of X in the smallest unsigned integer types that can hold them."""
    return X.indices.astype(np.min_scalar_type(max(X.shape[1] - 1, 0))), X.indptr.astype(np.min_scalar_type(X.nnz))
