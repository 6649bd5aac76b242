"""Checks what files claim about their arrays, before any memory is allocated for them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from scipy.sparse import csr_array

from onmf.data.structure import check_structure
from onmf.divergence import Array
from onmf.io.limits import check_shape, check_zip_growth


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Open an npz file; refuse one that expands too much, or whose arrays claim more bytes than they have."""
    with path.open("rb") as file:
        check_zip_growth(file, "it")
        _check_headers(file)
        file.seek(0)
        with np.load(file, allow_pickle=False) as content:
            yield content


def _check_headers(file: IO[bytes]) -> None:
    """Refuse arrays that claim more bytes than they have: NumPy allocates memory before it reads them."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError(f"its member {info.filename[:200]!r} is not an array.")
            with archive.open(info) as member:
                version = npy.read_magic(member)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"its array {info.filename[:200]!r} has a header of version {version}.")
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = read(member)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(
                    f"its array {info.filename[:200]!r} claims shape {shape} and type {dtype}, but has only "
                    f"{info.file_size} bytes."
                )


def shape_of(value: Any, length: int) -> tuple[int, int]:
    """Check the shape that a file of ``length`` bytes gives, and return the number of rows and of columns."""
    sizes = np.asarray(value)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
        raise ValueError(f"its shape is {str(value)[:80]}: expected two integers, rows and columns.")
    n, p = (int(size) for size in sizes)
    check_shape("it", n, p, length)
    return n, p


def check_indices(name: str, dimensions: int, dtype: Any) -> None:
    """Refuse indices that are not integers, which SciPy would round silently."""
    if dimensions != 1 or dtype.kind not in "iu":
        raise ValueError(f"its {name} has {dimensions} dimensions and type {dtype}: expected a list of integers.")


def check_values(dimensions: int, dtype: Any, wanted: int = 1) -> None:
    """Refuse values that are not real numbers in ``wanted`` dimensions."""
    if dimensions != wanted or dtype.kind not in "buif":
        raise ValueError(
            f"its data has {dimensions} dimensions and type {dtype}: expected real numbers in {wanted} dimensions."
        )


def as_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> csr_array:
    """Build a CSR array from the arrays of a file, and check that its indices are within bounds."""
    check_values(data.ndim, data.dtype)
    check_indices("indices", indices.ndim, indices.dtype)
    check_indices("indptr", indptr.ndim, indptr.dtype)
    X = csr_array((data, indices, indptr), shape=shape, copy=False)
    check_structure(X, "it")
    return X
