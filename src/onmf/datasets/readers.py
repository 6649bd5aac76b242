"""Readers of what people have: counts in MATLAB, CLUTO, svmlight, Matrix Market and npz files; scenes in MATLAB's."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from scipy.io import mmread
from scipy.sparse import csr_array, issparse, load_npz
from sklearn.datasets import load_svmlight_file

from onmf.divergence import Array

from .documents import Documents
from .matlab import read_matlab5
from .scene import Scene

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
    except (ValueError, KeyError, OSError, EOFError, IndexError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error
    X, y = parts["X"], parts.get("y")
    if y is not None and len(y) != X.shape[0]:
        raise ValueError(f"{path} has {X.shape[0]} rows, but {len(y)} classes: one for each row is needed.")
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
    with _opened(path) as file:
        head = file.read(4096)
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
    return {"X": _counts(content["dtm"]), "y": np.ravel(content["classid"]) if "classid" in content else None}


def _cluto(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        header = [int(word) for word in file.readline().split()]
        n, p = header[:2]
        if n * p < 0 or min(n, p) < 1:
            raise ValueError(f"its first line says {n} × {p}.")
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
        if beside.exists():
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
        columns = pairs[::2].astype(np.int64) - 1
        if len(columns) and (columns.min() < 0 or columns.max() >= p):
            raise ValueError(f"line {number} names column {columns.max() + 1}, but there are {p}.")
        indices.append(columns)
        values.append(pairs[1::2])
        starts.append(starts[-1] + len(columns))
    if len(starts) != n + 1 or starts[-1] != nnz:
        raise ValueError(
            f"its first line says {n} rows and {nnz} entries, but it holds {len(starts) - 1} rows and {starts[-1]}."
        )
    return csr_array((np.concatenate(values), np.concatenate(indices), np.array(starts)), shape=(n, p))


def _svmlight(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        X, y = load_svmlight_file(file)
    return {"X": _counts(X), "y": y}


def _matrix_market(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        return {"X": _counts(mmread(file))}


def _npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        if "format" in file:
            return {"X": _counts(load_npz(path))}
        if "indptr" not in file:
            raise ValueError(f"it holds no sparse matrix, but {', '.join(file.files)}.")
        X = csr_array(
            (file["data"], file["indices"].astype(np.int32), file["indptr"].astype(np.int32)),
            shape=tuple(file["shape"]),
        )
        return {"X": X, "y": file.get("y")}


def _counts(X: Any) -> csr_array:
    """CSR in canonical form; integers where all entries are."""
    X = csr_array(X) if issparse(X) else csr_array(np.asarray(X))
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
        raw.seek(0)
        if packed:
            with gzip.open(raw) as file:
                yield file  # type: ignore[misc]
        else:
            yield raw


def smallest_indices(X: csr_array) -> tuple[Array, Array]:
    """Index arrays of X in the smallest unsigned integers that hold them, for a file."""
    return X.indices.astype(np.min_scalar_type(max(X.shape[1] - 1, 0))), X.indptr.astype(np.min_scalar_type(X.nnz))
