"""Readers of what people have: counts in MATLAB, CLUTO, svmlight, Matrix Market and npz files; scenes in MATLAB's."""

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

from onmf.divergence import Array
from onmf.io.limits import Bounded, check_shape
from onmf.structure import check_structure

from .documents import Documents
from .matlab import read_matlab5
from .scene import Scene
from .stored import as_csr, check_indices, open_npz, shape_of

Format = Literal["matlab", "cluto", "svmlight", "matrix-market", "npz"]


def read_documents(path: str | Path, format: Format | None = None) -> Documents:
    """Read a documents × words matrix, with classes and words where the file has them.

    Parameters
    ----------
    path : path
        A MATLAB file with ``dtm`` and ``classid``; a CLUTO matrix (text, sparse or dense), with ``.rclass``,
        ``.rlabel`` and ``.clabel`` files beside it where there are any; an svmlight file; a Matrix Market file; or an
        npz file, as SciPy's ``save_npz`` or this package writes it. Text formats may be compressed with gzip.
    format : {"matlab", "cluto", "svmlight", "matrix-market", "npz"}, optional
        By default told from the content.

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
    except Exception as error:  # each library raises whatever it stumbles over in a damaged file
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error
    X, y = parts["X"], parts.get("y")
    for key, what, number, of in (
        ("y", "classes", X.shape[0], "row"),
        ("ids", "names of documents", X.shape[0], "row"),
        ("words", "words", X.shape[1], "column"),
    ):
        if (names := parts.get(key)) is not None and len(names) != number:
            raise ValueError(f"{path} has {number} {of}s, but {len(names)} {what}: one for each {of} is needed.")
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
    """The format of a file, from its first bytes."""
    try:
        with _opened(path) as file:
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
        f"{path} is of no known format (MATLAB, CLUTO, svmlight, Matrix Market, npz): say which it is with format=."
    )


def read_scene(image: str | Path, truth: str | Path | None = None, *, name: str | None = None) -> Scene:
    """Read a scene from MATLAB files, as the unmixing community shares them.

    Parameters
    ----------
    image : path
        With the pixels as columns of ``V``, ``Y`` or ``X`` and their layout in ``nRow`` and ``nCol``; without these a
        square.
    truth : path, optional
        With the endmembers as columns of ``M``, the abundances ``A``, and the names ``cood``.
    name : str, optional
        Name of the scene; by default that of the file.

    Returns
    -------
    Scene
    """
    image = Path(image)
    content = _load_mat(image)
    variable = next((v for v in ("V", "Y", "X") if np.ndim(content.get(v, 0)) == 2), None)
    if variable is None:
        raise ValueError(f"{image} holds no matrix V, Y or X of bands × pixels, but {', '.join(_names(content))}.")
    X = np.ascontiguousarray(np.asarray(content[variable], dtype=np.float64).T)
    side = round(np.sqrt(len(X)))
    height, width = (int(np.squeeze(content.get(key, side))) for key in ("nRow", "nCol"))
    if height * width != len(X):
        raise ValueError(f"{image} has {len(X)} pixels, which are not {height} × {width}: nRow and nCol are needed.")
    known: dict[str, Any] = {}
    if truth is not None:
        content = _load_mat(Path(truth))
        if missing := {"M", "A"} - set(content):
            raise ValueError(f"{truth} holds no {' and '.join(sorted(missing))}, but {', '.join(_names(content))}.")
        known["endmembers"] = np.ascontiguousarray(np.asarray(content["M"], dtype=np.float64).T)
        known["abundances"] = np.asarray(content["A"], dtype=np.float64)
        if "cood" in content:
            known["names"] = np.array(
                [str(np.squeeze(cell)).split("-")[-1].lower() for cell in content["cood"].ravel()]
            )
        r = len(known["endmembers"])
        if known["endmembers"].shape[1] != X.shape[1] or known["abundances"].shape != (r, len(X)):
            raise ValueError(
                f"{truth} belongs to another image: it has {known['endmembers'].shape[1]} bands and "
                f"{known['abundances'].shape[1]} pixels, {image} has {X.shape[1]} and {len(X)}."
            )
    return Scene(X, height, width, "F", name or image.stem, str(image), **known)


def _load_mat(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a MATLAB file.")
    try:
        return read_matlab5(path)
    except NotImplementedError as error:  # how SciPy says that a file is of version 7.3
        raise ValueError(f"{path} is a MATLAB 7.3 file: save it with -v7, or as an npz file.") from error


def _names(content: dict[str, Any]) -> list[str]:
    return [name for name in content if not name.startswith("__")]


def _matlab(path: Path) -> dict[str, Any]:
    content = _load_mat(path)
    if "dtm" not in content:
        raise ValueError(f"it holds no variable dtm, but {', '.join(_names(content))}.")
    return {"X": _counts(content["dtm"]), "y": _classes(content.get("classid"))}


def _cluto(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        header = [int(word) for word in file.readline(1000).split()]
        if len(header) not in (2, 3):
            raise ValueError("its first line must say how many rows and columns there are, and how many entries.")
        n, p = header[:2]
        if min(n, p) < 1:
            raise ValueError(f"its first line says {n} × {p}.")
        check_shape("it", n, p, path.stat().st_size)
        if len(header) == 2:
            X = np.loadtxt(file, ndmin=2)
            if X.shape != (n, p):
                raise ValueError(f"its first line says {n} × {p}, but it holds {X.shape[0]} × {X.shape[1]} numbers.")
            counts = csr_array(X)
        else:
            counts = _cluto_rows(file, n, p, header[2])
    parts: dict[str, Any] = {"X": _counts(counts)}
    for key, suffix in (("y", ".rclass"), ("ids", ".rlabel"), ("words", ".clabel")):
        beside = path.with_name(path.name.removesuffix(".gz") + suffix)
        if beside.is_file():
            parts[key] = np.array([line.strip() for line in beside.read_text().splitlines() if line.strip()])
    return parts


def _cluto_rows(file: IO[bytes], n: int, p: int, nnz: int) -> csr_array:
    """Sparse rows: pairs of a column, counted from 1, and a value."""
    indices, values, starts = [], [], [0]
    for number, line in enumerate(file, start=2):
        if line.startswith(b"%") or (len(starts) == n + 1 and not line.strip()):
            continue
        pairs = np.array(line.split(), dtype=np.float64)
        if len(pairs) % 2:
            raise ValueError(f"line {number} has {len(pairs)} numbers: pairs of a column and a value are expected.")
        columns = pairs[::2] - 1
        inside = (columns >= 0) & (columns < p) & (columns == np.floor(columns))
        if not inside.all():
            raise ValueError(f"line {number} names column {columns[~inside][0] + 1:.15g}, but there are {p}.")
        indices.append(columns.astype(np.int64))
        values.append(pairs[1::2])
        starts.append(starts[-1] + len(columns))
    if len(starts) != n + 1 or starts[-1] != nnz:
        raise ValueError(
            f"its first line says {n} rows and {nnz} entries, but it holds {len(starts) - 1} rows and {starts[-1]}."
        )
    return as_csr(np.concatenate(values), np.concatenate(indices), np.array(starts), (n, p))


def _svmlight(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        X, y = load_svmlight_file(file)
    n, p = X.shape
    check_shape("it", n, p, path.stat().st_size)
    return {"X": _counts(X), "y": _classes(y)}


def _matrix_market(path: Path) -> dict[str, Any]:
    """Entries, or all numbers column by column. SciPy's reader is faster, and crashes where a file is damaged."""
    with _opened(path) as file:
        _, what, layout, field, symmetry = file.readline(1000).decode().lower().split()
        if what != "matrix" or field not in ("real", "double", "integer", "unsigned-integer", "pattern"):
            raise ValueError(f"it holds a {field} {what}: a matrix of real or whole numbers is needed.")
        line = b"%"
        while line and (line.startswith(b"%") or not line.strip()):
            line = file.readline(1 << 20)
        n, p, *rest = (int(word) for word in line.split())
        check_shape("it", n, p, path.stat().st_size)
        if symmetry != "general" and n != p:
            raise ValueError(f"it says that it is {symmetry}, and has {n} rows and {p} columns.")
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
                f"its header says {entries} {field} entries, and it holds {numbers.shape[0]} lines of "
                f"{numbers.shape[1]} numbers."
            )
        i, j = (_places(numbers[:, axis], size) for axis, size in enumerate((n, p)))
        values = np.ones(entries) if field == "pattern" else numbers[:, 2]
    if symmetry != "general":
        off, sign = np.flatnonzero(i != j), -1 if symmetry == "skew-symmetric" else 1
        i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        values = np.concatenate([values, sign * values[off]])
    return {"X": _counts(coo_array((values, (i, j)), shape=(n, p)))}


def _places(numbers: Array, size: int) -> Array:
    """Rows or columns, counted from 1, as indices."""
    inside = (numbers >= 1) & (numbers <= size) & (numbers == np.floor(numbers))
    if not inside.all():
        entry = int(np.argmin(inside))
        raise ValueError(f"entry {entry + 1} lies in row or column {numbers[entry]:.15g}, and there are {size}.")
    return numbers.astype(np.int64) - 1


def _columns(values: Array, n: int, p: int, symmetry: str) -> tuple[Array, Array, Array]:
    """Rows, columns and values of a dense matrix that is written column by column, below its diagonal if symmetric."""
    skew = int(symmetry == "skew-symmetric")
    number = n * p if symmetry == "general" else n * (n + 1 - 2 * skew) // 2
    if len(values) != number:
        raise ValueError(f"its header says {n} × {p}, {symmetry}, and it holds {len(values)} numbers.")
    if symmetry == "general":
        j, i = np.divmod(np.arange(number), max(n, 1))
    else:
        j, i = np.triu_indices(n, skew)
    return i, j, values


def _npz(path: Path) -> dict[str, Any]:
    length = path.stat().st_size
    with open_npz(path) as file:
        if "format" not in file and "indptr" not in file:
            raise ValueError(f"it holds no sparse matrix, but {', '.join(file.files)[:200]}.")
        shape = shape_of(file["shape"], length)
        if "format" not in file:
            X = as_csr(file["data"], file["indices"], file["indptr"], shape)
            return {"X": X, "y": _classes(file.get("y"))}
        for name in {"indices", "indptr", "row", "col", "offsets"} & set(file):
            check_indices(name, file[name].ndim, file[name].dtype)
    return {"X": _counts(load_npz(path))}


def _classes(y: Any) -> Array | None:
    """One class for each row, as numbers or names."""
    if y is None:
        return None
    y = np.asarray(y)
    if y.ndim == 2 and 1 in y.shape:  # MATLAB's way
        y = y.ravel()
    if y.ndim != 1 or y.dtype.kind not in "biufUS":
        raise ValueError(f"its classes have {y.ndim} dimensions and type {y.dtype}: a list of numbers is needed.")
    return y


def _counts(X: Any) -> csr_array:
    """CSR in canonical form; integers where all entries are."""
    check_structure(X, "it")
    X = X if issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "buif":
        raise ValueError(f"it holds {X.dtype} values in {X.ndim} dimensions: numbers in rows and columns are needed.")
    X = csr_array(X)
    X.sum_duplicates()
    X.eliminate_zeros()
    largest = X.data.max(initial=0)
    if X.data.min(initial=0) >= 0 and largest < 2**32 and np.array_equal(X.data, np.floor(X.data)):
        X = X.astype(np.min_scalar_type(int(largest)))
    return X


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked if it is compressed with gzip."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        length = raw.seek(0, 2)
        raw.seek(0)
        if packed:
            with gzip.open(raw) as file:
                yield io.BufferedReader(Bounded(file, "it", lambda: length), 1 << 18)  # type: ignore[arg-type]
        else:
            yield raw


def smallest_indices(X: csr_array) -> tuple[Array, Array]:
    """Index arrays of X in the smallest unsigned integers that hold them, for a file."""
    return X.indices.astype(np.min_scalar_type(max(X.shape[1] - 1, 0))), X.indptr.astype(np.min_scalar_type(X.nnz))
