"""Writes R's data files, as ``save`` and ``saveRDS`` do: vectors, lists, factors, S4 objects and environments."""

import gzip
import lzma
from dataclasses import dataclass, field

import numpy as np

NIL, GLOBAL = 254, 253
OPEN = {"gzip": gzip.open, "xz": lzma.open}


@dataclass
class S4:
    """An object with slots."""

    name: str
    slots: dict


@dataclass
class Environment:
    """An environment; its variables are in a hash table."""

    variables: dict


@dataclass
class With:
    """A value with attributes."""

    value: object
    attributes: dict = field(default_factory=dict)


def factor(texts, levels):
    codes = [-(2**31) if text is None else levels.index(text) + 1 for text in texts]
    return With(np.array(codes, dtype=np.int32), {"levels": list(levels), "class": ["factor"]})


def frame(columns):
    n = len(next(iter(columns.values())))
    return With(columns, {"class": ["data.frame"], "row.names": [f"row{i}" for i in range(n)]})


def data_frame(columns):
    """A DataFrame of Bioconductor."""
    return S4("DFrame", {"rownames": None, "nrows": np.array([3]), "listData": columns, "metadata": {}})


def sparse(X, rows=None, columns=None):
    """A dgCMatrix of the package Matrix."""
    X = X.tocsc()
    slots = {"i": X.indices, "p": X.indptr, "Dim": np.array(X.shape), "Dimnames": [rows, columns]}
    return S4("dgCMatrix", {**slots, "x": X.data.astype(np.float64), "factors": {}})


def dense(X, rows=None, columns=None):
    """A plain matrix of integers."""
    attributes = {"dim": np.array(X.shape), "dimnames": [rows, columns]}
    return With(X.toarray().ravel(order="F").astype(np.int32), attributes)


def save_rda(path, variables, compression="xz"):
    """Write the named variables, as ``save`` does."""
    with OPEN[compression](path, "wb") as file:
        file.write(b"RDX2\n" + _Writer().whole(variables, pairs=True))


def save_rds(path, value, compression="gzip"):
    """Write one value, as ``saveRDS`` does."""
    with OPEN[compression](path, "wb") as file:
        file.write(_Writer().whole(value))


class _Writer:
    def __init__(self):
        self.symbols = {}

    def whole(self, value, pairs=False):
        header = b"X\n" + _int(2, 0x30602, 0x20300)
        return header + (self.pairs(value) if pairs else self.item(value))

    def item(self, value):
        attributes = {}
        if isinstance(value, With):
            value, attributes = value.value, value.attributes
        if value is None:
            return _int(NIL)
        if isinstance(value, S4):
            attributes = {**value.slots, "class": With([value.name], {"package": ["here"]})}
            return _int(25 | 1 << 8 | 1 << 9 | 1 << 16) + self.pairs(attributes)
        if isinstance(value, Environment):
            self.symbols[id(value)] = len(self.symbols) + 1  # environments count among the references, too
            buckets = b"".join(self.pairs({name: part}) for name, part in value.variables.items())
            table = _int(19, len(value.variables)) + buckets
            return _int(4, 0, GLOBAL, NIL) + table + _int(NIL)
        if isinstance(value, dict):
            attributes = {"names": list(value), **attributes}
            value = tuple(value.values())
        flags = 1 << 9 if attributes else 0
        if "class" in attributes:
            flags |= 1 << 8
        if isinstance(value, np.ndarray):
            kind, dtype = (14, ">f8") if value.dtype.kind == "f" else (13, ">i4")
            body = _int(kind | flags, len(value)) + value.astype(dtype).tobytes()
        elif isinstance(value, list) and all(isinstance(part, str | None) for part in value) and any(value):
            body = _int(16 | flags, len(value)) + b"".join(map(_text, value))
        else:
            body = _int(19 | flags, len(value)) + b"".join(map(self.item, value))
        return body + (self.pairs(attributes) if attributes else b"")

    def pairs(self, values):
        cells = (_int(2 | 1 << 10) + self.symbol(name) + self.item(value) for name, value in values.items())
        return b"".join(cells) + _int(NIL)

    def symbol(self, name):
        if name in self.symbols:
            return _int(self.symbols[name] << 8 | 255)
        self.symbols[name] = len(self.symbols) + 1
        return _int(1) + _text(name)


def _int(*numbers):
    return np.array(numbers, dtype=">i4").tobytes()


def _text(text):
    if text is None:
        return _int(9, -1)
    data = text.encode()
    return _int(9 | 64 << 12, len(data)) + data
