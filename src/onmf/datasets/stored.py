"""What files say of the arrays in them, checked before it is believed."""

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

from onmf.divergence import Array
from onmf.io.limits import check_shape, check_zip_growth
from onmf.structure import check_structure


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """The arrays of an npz file: it grows no further than counts do, and no array is larger than what is there."""
    with path.open("rb") as file:
        check_zip_growth(file, "it")
        _check_headers(file)
        file.seek(0)
        with np.load(file, allow_pickle=False) as content:
            yield content


def _check_headers(file: IO[bytes]) -> None:
    """Refuse arrays that say that they are larger than their bytes: NumPy takes memory before it reads them."""
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                raise ValueError(f"its member {info.filename[:200]!r} is no array.")
            with archive.open(info) as member:
                version = npy.read_magic(member)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"its array {info.filename[:200]!r} has a header of version {version}.")
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = read(member)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(
                    f"its array {info.filename[:200]!r} says that it is of shape {shape} and type {dtype}, and holds "
                    f"only {info.file_size} bytes."
                )


def shape_of(value: Any, length: int) -> tuple[int, int]:
    """Rows and columns, as a file of ``length`` bytes gives them."""
    sizes = np.asarray(value)
    if sizes.shape != (2,) or sizes.dtype.kind not in "iu":
        raise ValueError(f"its shape is {str(value)[:80]}: two whole numbers, rows and columns, are needed.")
    n, p = (int(size) for size in sizes)
    check_shape("it", n, p, length)
    return n, p


def check_indices(name: str, dimensions: int, dtype: Any) -> None:
    """Refuse indices that are not whole numbers, which SciPy would round in silence."""
    if dimensions != 1 or dtype.kind not in "iu":
        raise ValueError(f"its {name} has {dimensions} dimensions and type {dtype}: a list of whole numbers is needed.")


def check_values(dimensions: int, dtype: Any, wanted: int = 1) -> None:
    """Refuse what are no numbers."""
    if dimensions != wanted or dtype.kind not in "buif":
        raise ValueError(f"its data has {dimensions} dimensions and type {dtype}: numbers in {wanted} are needed.")


def as_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> csr_array:
    """A CSR array of what a file holds, with indices that lead nowhere else."""
    check_values(data.ndim, data.dtype)
    check_indices("indices", indices.ndim, indices.dtype)
    check_indices("indptr", indptr.ndim, indptr.dtype)
    X = csr_array((data, indices, indptr), shape=shape, copy=False)
    check_structure(X, "it")
    return X
