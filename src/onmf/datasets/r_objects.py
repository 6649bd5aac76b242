"""Reader of R's data files. It runs in a separate process (see onmf.io.isolate) and imports nothing from onmf.

The file is parsed, and nothing in it is evaluated. A member is found by names, such as ``colData`` and then
``cell.type``. Each name is looked for in the elements of lists, the slots of S4 objects and the variables of
environments, however deep: the layers in between differ from one version of Bioconductor to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

MEMBERS = 1_000_000
"""Most members of a file that are looked at."""


def read_matrix(path: str, *names: str) -> dict[str, Any]:
    """Read a matrix, sparse or dense, with the names of its rows and columns.

    Returns
    -------
    dict
        ``shape``; ``data``, ``indices`` and ``indptr`` by columns; and ``rows`` and ``columns``, which are lists of
        names or None.
    """
    found = _find(path, names)
    slots = _attributes(found)
    if {"Dim", "i", "p", "x"} <= slots.keys():  # dgCMatrix of the package Matrix
        shape, indices, indptr, data = (_numbers(slots[key]) for key in ("Dim", "i", "p", "x"))
    elif "dim" in slots and len(_numbers(slots["dim"])) == 2:
        shape = _numbers(slots["dim"])
        dense = _numbers(found).reshape([int(size) for size in shape], order="F")
        columns, indices = np.nonzero(dense.T)
        data, indptr = dense.T[columns, indices], np.searchsorted(columns, np.arange(dense.shape[1] + 1))
    else:
        raise ValueError(f"{_joined(names)} is not a matrix: expected a dgCMatrix, or a matrix of numbers.")
    both = slots.get("Dimnames", slots.get("dimnames"))
    names_of = [] if both is None else [_texts(part) for part in _elements(both)]
    rows_names, columns_names = names_of if len(names_of) == 2 else (None, None)
    matrix = {"shape": shape, "data": data, "indices": indices, "indptr": indptr}
    return {**matrix, "rows": rows_names, "columns": columns_names}


def read_texts(path: str, *names: str) -> list[str | None]:
    """Read a vector of texts, a factor, or a vector of numbers as texts; missing ones are None."""
    found = _texts(_find(path, names))
    if found is None:
        raise ValueError(f"{_joined(names)} is not a list of texts.")
    return found


@lru_cache(maxsize=1)
def _parsed(path: str) -> Any:
    from rdata.parser import parse_file

    try:
        return parse_file(path).object
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a damaged file can make the parser fail anywhere
        raise ValueError(f"it is not a file of R, or is damaged: {type(error).__name__}: {error}") from error


def _find(path: str, names: tuple[str, ...]) -> Any:
    """Return the member of a file at these names."""
    found = _parsed(path)
    for depth, name in enumerate(names):
        pending, seen = deque([found]), set[int]()
        while pending and len(seen) < MEMBERS:
            parent = pending.popleft()
            if id(parent) in seen:  # an environment may contain itself
                continue
            seen.add(id(parent))
            members = list(_members(parent))
            match = next((member for key, member in members if key == name), None)
            if match is not None:
                found = match
                break
            pending.extend(member for _, member in members)
        else:
            raise KeyError(f"there is no {_joined(names[: depth + 1])}")
    return found


def _joined(names: tuple[str, ...]) -> str:
    return " → ".join(names) or "the object"


def _members(parent: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and members of an object: elements of a list, slots, variables; those without a name have ''."""
    kind, value = parent.info.type.name, parent.value
    if kind == "LIST":  # a file of several objects
        yield from _pairs(parent)
        return
    if kind == "VEC":
        names = _attributes(parent).get("names")
        keys = (_texts(names) if names is not None else None) or []
        for position, element in enumerate(value):
            yield (keys[position] if position < len(keys) else None) or "", _resolved(element)
    elif kind == "ENV":
        yield from _pairs(value.frame)
        for bucket in _elements(value.hash_table):
            yield from _pairs(bucket)
    yield from _attributes(parent).items()


def _attributes(parent: Any) -> dict[str, Any]:
    """Return the attributes of an object, which are the slots of an S4 object."""
    return dict(_pairs(parent.attributes)) if parent.attributes is not None else {}


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a linked list."""
    while node.info.type.name == "LIST":
        tag = _resolved(node.tag) if node.tag is not None else None
        yield _decoded(_resolved(tag.value).value) or "" if tag is not None else "", _resolved(node.value[0])
        node = node.value[1]


def _resolved(node: Any) -> Any:
    """Follow a reference to an object that occurred before."""
    return node.referenced_object if node.info.type.name == "REF" else node


def _elements(node: Any) -> list[Any]:
    return [_resolved(element) for element in node.value] if node.info.type.name == "VEC" else []


def _numbers(node: Any) -> Any:
    if node.info.type.name not in ("INT", "REAL", "LGL"):
        raise ValueError(f"expected numbers, but found {node.info.type.name}.")
    if np.ma.is_masked(node.value):
        raise ValueError("a number is missing (NA).")
    return np.ma.getdata(node.value)


def _texts(node: Any) -> list[str | None] | None:
    """Return texts, the levels of a factor, or numbers as texts; None if it is something else."""
    kind = node.info.type.name
    if kind == "STR":
        return [_decoded(element.value) for element in node.value]
    if kind not in ("INT", "REAL"):
        return None
    numbers = np.ma.filled(np.ma.asarray(node.value, dtype=np.float64), np.nan)
    if (levels := _attributes(node).get("levels")) is not None:
        names = _texts(levels) or []
        return [names[int(code) - 1] if 1 <= code <= len(names) else None for code in numbers]
    return [None if np.isnan(number) else f"{number:.15g}" for number in numbers]


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode(errors="replace")
