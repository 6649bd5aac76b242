"""Ugly data as source text: small tables of numbers, their containers, and broken structures.

Everything is text, so that a case and its printed reproducer are the same lines.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any, NamedTuple

import numpy as np

FLOATS = ("float64", "float64", "float64", "float32", "float16", ">f8", ">f4", "longdouble")
INTEGERS = ("int64", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool", ">i4", ">i8")

SPECIAL = (5e-324, 1e-310, 2.3e-308, 1e-300, 1e-160, 1e-100, 1e-45, 1e-38, 1e-30, 1e-16, 1e-9, 0.1, 1.0, 1.0, 3.0)
SPECIAL += (1e5, 65504.0, 1e9, 2.0**53, 1e16, 1e30, 3.4e38, 1e100, 1e125, 1e150, 1e160, 1e200, 1e300, 1.7e308)


class Data(NamedTuple):
    """The data of a case.

    Attributes
    ----------
    table : list of lists, or None
        Entries that replace the placeholder in ``base``.
    base : str
        Expression of the NumPy array ``A``.
    wrap : tuple of str
        Statements that make ``X`` from ``A``.
    sound : bool
        Whether ``X`` holds the same data as ``A``; otherwise its structure was damaged.
    n, p : int
        Number of rows and columns.
    """

    table: list[list[Any]] | None
    base: str
    wrap: tuple[str, ...]
    sound: bool
    n: int
    p: int

    def lines(self) -> list[str]:
        """Return the statements that make ``A`` and ``X``."""
        table = "" if self.table is None else "[" + ", ".join(map(literal, self.table)) + "]"
        return ["A = " + self.base.replace("TABLE", table), *self.wrap]


def literal(row: list[Any]) -> str:
    """Return a row as source text."""
    return "[" + ", ".join(repr(value) for value in row) + "]"


def make_data(rng: Random) -> Data:
    """Make random data of any kind."""
    if rng.random() < 0.06:
        return large(rng)
    n, p = size(rng)
    integer = rng.random() < 0.5
    dtype = rng.choice(INTEGERS if integer else FLOATS)
    table = whole(rng, n, p, dtype) if integer else real(rng, n, p, dtype)
    table = spoil(rng, table, n, p, integer)
    base = "np.array(TABLE)" if dtype in ("int64", "float64") else f"np.array(TABLE, dtype={dtype!r})"
    if not integer and all(isinstance(x, int) for row in table for x in row):
        base = f"np.array(TABLE, dtype={dtype!r})"
    wrap, sound = container(rng, n, p, dtype)
    return Data(table, base, wrap, sound, n, p)


def size(rng: Random) -> tuple[int, int]:
    """Draw small numbers of rows and columns, and the smallest ones often enough."""
    n = rng.choice((1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 17))
    p = rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 13))
    return n, p


def large(rng: Random) -> Data:
    """Make some hundred rows: enough for several blocks, threads or batches."""
    n, p, seed = rng.choice((64, 130, 300, 700)), rng.choice((3, 17, 65)), rng.randrange(1000)
    draw = rng.choice((f"poisson(0.5, ({n}, {p}))", f"gamma(0.3, 1, ({n}, {p}))", f"integers(0, 9, ({n}, {p}))"))
    wrap, sound = container(rng, n, p, "int64" if "gamma" not in draw else "float64")
    return Data(None, f"np.random.default_rng({seed}).{draw}", wrap, sound, n, p)


def whole(rng: Random, n: int, p: int, dtype: str) -> list[list[Any]]:
    """Draw integers that the type can hold."""
    if dtype == "bool":
        return [[bool(rng.getrandbits(1)) for _ in range(p)] for _ in range(n)]
    top = int(np.iinfo(dtype).max)
    limits = [x for x in (127, 255, 300, 32767, 65535, 100_000, 2**22, 2**31 - 1, 2**32, 2**53 + 1) if x < top]
    kind = rng.choice(("counts", "counts", "counts", "sparse", "long", "limits", "top"))

    def entry() -> int:
        if kind == "counts":
            return rng.randrange(6)
        if kind == "sparse":
            return rng.choice((0, 0, 0, 1, 2, 9))
        if kind == "long":
            return rng.choice((0, 1, 2, 3, rng.choice(limits or [top])))
        if kind == "limits":
            return rng.choice((0, 1, top, *limits))
        return rng.choice((0, top, top - 1))

    return [[entry() for _ in range(p)] for _ in range(n)]


def real(rng: Random, n: int, p: int, dtype: str) -> list[list[Any]]:
    """Draw floating-point numbers that the type can hold."""
    limits = np.finfo(np.dtype(dtype))
    fit = [x for x in SPECIAL if x <= float(min(limits.max, np.finfo(np.float64).max))]
    kind = rng.choice(("uniform", "gamma", "wide", "special", "one size", "simple"))
    unit = rng.choice(fit)

    def entry() -> float:
        if kind == "uniform":
            return round(rng.random(), 3)
        if kind == "gamma":
            return round(rng.gammavariate(0.3, 2), 4)
        if kind == "wide":
            return rng.choice((0.0, 10 ** rng.uniform(-12, 12) if "f2" not in dtype and "16" not in dtype else 1.5))
        if kind == "special":
            return rng.choice((0.0, 1.0, rng.choice(fit)))
        if kind == "one size":
            x = unit * rng.choice((0.0, 0.25, 0.5, 0.75, 1.0))
            return x if math.isfinite(x) else unit
        return rng.choice((0.0, 0.5, 1.0, 2.0, 3.0))

    return [[entry() for _ in range(p)] for _ in range(n)]


def spoil(rng: Random, table: list[list[Any]], n: int, p: int, integer: bool) -> list[list[Any]]:
    """Make rows or columns zero, equal or parallel, or sometimes insert invalid entries."""
    change = rng.choice(
        (None, None, None, "zero row", "zero column", "twice", "constant", "parallel", "bad", "all zero")
    )
    row, column = rng.randrange(n), rng.randrange(p)
    if change == "zero row":
        table[row] = [0 * x for x in table[row]]
    elif change == "zero column":
        for line in table:
            line[column] = 0 * line[column]
    elif change == "twice":
        table = [list(table[rng.randrange(min(n, 3))]) for _ in range(n)]
    elif change == "constant":
        table = [[table[0][0]] * p for _ in range(n)]
    elif change == "parallel" and not integer:
        table[row] = [x * rng.choice((0.5, 3.0, 0.1)) if x < 1e30 else x for x in table[rng.randrange(n)]]
    elif change == "all zero" and rng.random() < 0.3:
        table = [[0 * x for x in line] for line in table]
    elif change == "bad" and rng.random() < 0.5 and not integer:
        table[row][column] = rng.choice((math.nan, math.inf, -math.inf, -1.0, -0.0, -5e-324))
    return [[0 if isinstance(x, float) and math.isnan(x) and change != "bad" else x for x in line] for line in table]


PLAIN = (
    "X = A",
    "X = A",
    "X = A",
    "X = np.asfortranarray(A)",
    "X = np.repeat(A, 2, axis=0)[::2]",
    "X = A[::-1][::-1]",
    "X = A.tolist()",
    "X = pd.DataFrame(A)",
    "X = np.ma.masked_array(A)",
    "X = np.ma.masked_array(A, mask=np.eye(*A.shape, dtype=bool))",
    "X = xr.DataArray(A)",
    "X = pd.DataFrame(A).convert_dtypes()",
)
SPARSE = ("csr", "csr", "csr", "csr", "csc", "coo", "bsr", "lil", "dok", "dia")
BATCHES = (
    "X = lambda: iter([A[: len(A) // 2], A[len(A) // 2 :]])",
    "X = lambda: [sp.csr_array(part) for part in np.array_split(A, 3)]",
    "X = lambda: iter([A])",
    "X = lambda: (part for part in np.array_split(A, min(len(A), 9)))",
    "X = lambda: iter([A[:0], A])",
    "X = lambda: [A[: len(A) // 2], sp.csr_array(A[len(A) // 2 :])]",
    "X = lambda: iter([sp.csr_array(A[:1]), A[1:]])",
    "X = lambda: iter([[sp.csr_array(A[:1]), A[1:]]])",
)
FEW = (
    "X = da.from_array(A, chunks=(max(len(A) // 2, 1), -1))",
    "X = da.from_array(A, chunks=(-(-len(A) // 3), -1)).map_blocks(sp.csr_array)",
    "X = [dask.delayed(A[: len(A) // 2]), dask.delayed(A[len(A) // 2 :])]",
    "X = [dask.delayed(sp.csr_array(A[: len(A) // 2])), dask.delayed(A[len(A) // 2 :])]",
    "X = xr.DataArray(da.from_array(A, chunks=(max(len(A) // 2, 1), -1)))",
    "X = pl.DataFrame(A)",
)


def container(rng: Random, n: int, p: int, dtype: str) -> tuple[tuple[str, ...], bool]:
    """Return statements that make ``X`` from ``A``, and whether ``X`` holds the same data."""
    unusual = dtype.startswith(">") or dtype in ("float16", "longdouble")
    chance = rng.random()
    if chance < 0.45:
        plain = (rng.choice(PLAIN),)
        return (*plain, "X.setflags(write=False)") if plain[0] == "X = A" and rng.random() < 0.2 else plain, True
    if chance < 0.53 and not unusual:
        return (rng.choice(BATCHES),), True
    if chance < 0.54 and not unusual:
        return (rng.choice(FEW),), True
    if unusual and dtype != "longdouble":  # SciPy has no sparse matrices of these types
        return ("X = A",), True
    format = rng.choice(SPARSE)
    lines = [f"X = sp.{format}_{rng.choice(('array', 'matrix'))}(A)"]
    if format in ("csr", "csc") and rng.random() < 0.3:
        lines.append("X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)")
    if format == "csr" and rng.random() < 0.2:
        lines.append(rng.choice((UNSORTED, TWICE, ZEROS)))
    if format == "coo" and rng.random() < 0.3:
        lines.append(IN_BYTES)
    if format in ("csr", "csc", "coo", "bsr") and rng.random() < 0.25:
        return (*lines, *broken(rng, format)), False
    if rng.random() < 0.1 and format in ("csr", "csc"):
        lines.append("X.data.setflags(write=False)")
    return tuple(lines), True


UNSORTED = (
    "X = sp.csr_array((X.data[::-1].copy(), X.indices[::-1].copy(), X.indptr[-1] - X.indptr[::-1]), "
    "shape=X.shape)[::-1]"
)
TWICE = (
    "X = sp.csr_array((np.repeat(X.data, 2) * np.tile([1, 0], X.nnz).astype(X.dtype), np.repeat(X.indices, 2), "
    "X.indptr * 2), shape=X.shape)"
)
IN_BYTES = (
    "X = sp.coo_array(([min(int(x), 255) for x in X.data] + [max(int(x), 255) - 255 for x in X.data], "
    "(np.tile(X.row, 2), np.tile(X.col, 2))), shape=X.shape, dtype=np.uint8) "
    "if X.dtype.kind in 'iu' and 0 < X.max() <= 510 else X"
)
ZEROS = (
    "X = sp.csr_array((A.ravel(), np.tile(np.arange(A.shape[1]), len(A)), "
    "np.arange(len(A) + 1) * A.shape[1]), shape=A.shape)"
)


def broken(rng: Random, format: str) -> list[str]:
    """Return statements that damage the structure of a sparse matrix."""
    value = rng.choice((-1, 0, 1, 2, 5, 100, 10**6, 2**31 - 1, -(2**31)))
    position = rng.choice((0, -1, 1, 2))
    if format == "coo":
        axis = rng.choice(("row", "col"))
        return [f"X.{axis} = X.{axis}.copy()", f"X.{axis}[{position}:][:1] = {value}"]
    ways = (
        f"X.indices[{position}:][:1] = {value}",
        f"X.indices[{position}:] = {value}",
        f"X.indptr[{position}:][:1] = {value}",
        f"X.indptr[{position}:][:1] += {rng.choice((1, -1, 2))}",
        "X.indptr = X.indptr[:-1]",
        "X.indptr = np.append(X.indptr, X.indptr[-1] + 1)",
        "X.indptr = X.indptr[::-1].copy()",
        "X.indptr = X.indptr + 1",
        "X.data = X.data[:-1]",
        "X.data = X.data[:0]",
        "X.data = X.data.astype(object)",
        "X.data = X.data.astype(complex)",
        "X.indices = X.indices[:-1]",
        "X.indices = X.indices.astype(float)",
        "X.indices = X.indices.astype(np.uint8)",
    )
    return [rng.choice(ways)]
