"""What a model file must hold: its parameters, its arrays, and the parts that its kind of model needs.

Everything in a file is checked against this before it is used, and everything in a model before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from onmf.data import NAMES as ENGINES
from onmf.divergence import NAMES as DIVERGENCES
from onmf.divergence import Array, Divergence
from onmf.fit import STARTS
from onmf.kinds import get_kind

from .rules import (
    FLAG,
    NULL,
    STRING,
    Rule,
    check,
    either,
    integer,
    number,
    of_type,
    one_of,
    optional,
)

MATRIX = Rule(lambda value: isinstance(value, np.ndarray) and value.ndim == 2, "a matrix")

PARAMETERS: dict[str, Rule] = {
    "n_clusters": integer(1),
    "beta_loss": either(one_of(*DIVERGENCES), number(), of_type(Divergence, "a divergence")),
    "init": either(one_of(*STARTS), MATRIX),
    "n_init": integer(1),
    "max_iter": integer(1),
    "tol": number(0),
    "refine": one_of(None, "local-search"),
    "n_consensus": integer(1),
    "smoothing": number(0),
    "engine": one_of(*ENGINES),
    "n_threads": either(NULL, integer(1, 1024)),
    "random_state": either(NULL, integer(0, 2**32 - 1)),
    "forgetting": number(0, 1),
    "sparse_output": FLAG,
    "verbose": either(integer(), FLAG),
}
"""Parameters of the estimator. Those that a file does not name have their defaults."""


class ArrayRule(NamedTuple):
    """What an array must be.

    ``shape`` has a letter for each axis: k clusters, n rows, p features. ``kind`` is a key of :data:`TYPES`.
    """

    shape: str
    kind: str
    infinite: bool = False
    required: bool = True


TYPES = {"f": ("float32", "float64"), "i": ("int32", "int64")}

ARRAYS = {
    "centroids": ArrayRule("kp", "f"),
    "masses": ArrayRule("k", "f"),
    "labels": ArrayRule("n", "i"),
    "scales": ArrayRule("n", "f"),
    "margins": ArrayRule("n", "f", infinite=True, required=False),
    "agreement": ArrayRule("n", "f", required=False),
    "init_rows": ArrayRule("k", "i", required=False),
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse unknown parameters and values that the estimator does not accept."""
    if unknown := sorted(set(parameters) - set(PARAMETERS)):
        raise ValueError(f"unknown parameters: {', '.join(unknown)}")
    check({name: optional(rule) for name, rule in PARAMETERS.items()}, parameters, "parameter ")


def check_fitted(fitted: Mapping[str, Any], k: int) -> None:
    """Refuse results of a fit that no fit of k clusters has."""
    rules = {
        "objective": number(infinite=True),
        "n_iter": integer(),
        "stop_reason": STRING,
        "n_filled": integer(0, k),
        "n_sweeps": integer(),
        "agreement": either(NULL, number()),
        "engine": STRING,
    }
    check(rules, fitted)


def check_parts(kind: str, parts: Mapping[str, Any], k: int, p: int) -> None:
    """Refuse a model of a known kind, with k clusters and p features, whose parts are missing or wrong.

    Other kinds may have any parts.
    """
    known = get_kind(kind)
    check(known.rules(k, p), parts, "part ")
    known.check(parts)


def check_arrays(arrays: Mapping[str, Array]) -> tuple[int, int]:
    """Refuse arrays of wrong types, shapes or values. → clusters, features"""
    for name, rule in ARRAYS.items():
        if name not in arrays:
            if rule.required:
                raise ValueError(f"{name!r} is missing")
        elif arrays[name].ndim != len(rule.shape) or arrays[name].dtype.name not in TYPES[rule.kind]:
            array = arrays[name]
            raise ValueError(
                f"its {name} have {array.ndim} axes of {array.dtype} values, not {len(rule.shape)} of "
                f"{' or '.join(TYPES[rule.kind])}"
            )
    (k, p), n = arrays["centroids"].shape, len(arrays["labels"])
    if not k or not p:
        raise ValueError("it has no centroids")
    sizes = {"k": k, "n": n, "p": p}
    for name, rule in ARRAYS.items():
        if name not in arrays:
            continue
        array, shape = arrays[name], tuple(sizes[letter] for letter in rule.shape)
        if array.shape != shape:
            raise ValueError(f"its {name} have the shape {array.shape}, not {shape}")
        if rule.kind == "f" and not (~np.isnan(array) if rule.infinite else np.isfinite(array)).all():
            raise ValueError(f"its {name} contain NaN{'' if rule.infinite else ' or infinity'}")
    labels = arrays["labels"]
    if n and not 0 <= labels.min() <= labels.max() < k:
        raise ValueError("a label refers to a cluster that does not exist")
    if "init_rows" in arrays and (arrays["init_rows"] < 0).any():
        raise ValueError("its init_rows are negative")
    for name, array in arrays.items():
        if name.startswith("history.") and array.ndim != 1:
            raise ValueError(f"its {name} is not a list of numbers")
    moved = arrays.get("history.moved", np.empty(0))
    if not ((moved >= 0) & (moved <= 2**53)).all():
        raise ValueError("its history.moved are not numbers of rows")
    return k, p


def check_centroids(divergence: Divergence, C: Array, masses: Array) -> None:
    """Refuse centroids with which no row can be compared, or whose sum overflows."""
    if divergence.domain != "real" and (C < 0).any():
        raise ValueError(f"its centroids have negative entries, which {divergence.name} does not allow")
    with np.errstate(all="ignore"):
        finite = [np.isfinite(values).all() for values in (divergence.normalise(C), masses @ C)]
        comparable = (divergence.templates(C) < np.inf).all()  # -inf is fine: a zero entry may cost infinity
    if not (all(finite) and comparable):
        raise ValueError("its centroids are too large or too small to compute with")
