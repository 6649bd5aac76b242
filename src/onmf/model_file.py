"""Fitted models as files: what of a model is written, and how it is read again.

The format is that of :mod:`onmf.container`; docs/model-file.md describes it for readers in other languages.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import scipy
import sklearn

from onmf import divergence as divergences
from onmf._version import __version__
from onmf.container import Container, damaged, read_container, write_container
from onmf.divergence import NAMES as DIVERGENCES
from onmf.divergence import Array, Divergence
from onmf.engine import NAMES as ENGINES
from onmf.engine import Engine
from onmf.initialize import STARTS
from onmf.kinds import get_kind
from onmf.result import Agreement, Clustering

FORMAT = "an onmf model"
VERSION = 1


class Rule(NamedTuple):
    """What a value has to be, in code and in words, and whether it has to be there."""

    fits: Callable[[Any], bool]
    what: str
    needed: bool = True


class Stored(NamedTuple):
    """What an array has to be.

    ``shape`` has a letter for each axis: k clusters, n rows, p features. ``kind`` is one of :data:`TYPES`.
    """

    shape: str
    kind: str
    infinite: bool = False
    needed: bool = True


def number(low: float = -math.inf, high: float = math.inf, *, infinite: bool = False) -> Rule:
    """A number between two others; finite, unless said otherwise. A NaN is between none."""

    def fits(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            return False
        return abs(value) <= LARGEST or (infinite and isinstance(value, float))

    return Rule(fits, f"a number from {low:g} to {high:g}" if low > -math.inf else "a number")


def whole(low: int = 0, high: int = 2**53) -> Rule:
    """A whole number between two others."""
    inside = number(low, high).fits
    return Rule(lambda value: isinstance(value, int) and inside(value), f"a whole number from {low} to {high}")


def one_of(*names: str | None) -> Rule:
    """One of some names."""
    return Rule(lambda value: isinstance(value, str | None) and value in names, f"one of {', '.join(map(repr, names))}")


def either(*rules: Rule) -> Rule:
    """Whatever fits one of the rules."""
    return Rule(lambda value: any(rule.fits(value) for rule in rules), ", or ".join(rule.what for rule in rules))


def optional(rule: Rule) -> Rule:
    """What may be missing."""
    return rule._replace(needed=False)


def texts(length: int | None = None, *, different: bool = False) -> Rule:
    """A list of texts, of a certain length, all of them different."""

    def fits(value: Any) -> bool:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            return False
        return length in (None, len(value)) and not (different and len(set(value)) < len(value))

    return Rule(fits, f"a list of {'' if length is None else f'{length} '}{'different ' if different else ''}texts")


def of_type(kind: type, what: str) -> Rule:
    """Anything of a type."""
    return Rule(lambda value: isinstance(value, kind), what)


LARGEST = float(np.finfo(np.float64).max)
TYPES = {"f": ("float32", "float64"), "i": ("int32", "int64")}
UNKNOWN = Rule(lambda value: False, "known")
NOTHING, TEXT, FLAG = one_of(None), of_type(str, "a text"), of_type(bool, "true or false")
MATRIX = Rule(lambda value: isinstance(value, np.ndarray) and value.ndim == 2, "a matrix")

PARAMETERS: dict[str, Rule] = {
    "n_clusters": whole(1),
    "beta_loss": either(one_of(*DIVERGENCES), number(), of_type(Divergence, "a divergence")),
    "init": either(one_of(*STARTS, "consensus"), MATRIX),
    "n_init": whole(1),
    "max_iter": whole(1),
    "tol": number(0),
    "refine": one_of(None, "local-search"),
    "n_consensus": whole(1),
    "smoothing": number(0),
    "engine": one_of(*ENGINES),
    "n_threads": either(NOTHING, whole(1, 1024)),
    "random_state": either(NOTHING, whole(0, 2**32 - 1)),
    "forgetting": number(0, 1),
    "sparse_output": FLAG,
    "verbose": either(whole(), FLAG),
}
"""What the parameters of a file may be; those that it does not name have their defaults."""

ARRAYS = {
    "centroids": Stored("kp", "f"),
    "masses": Stored("k", "f"),
    "labels": Stored("n", "i"),
    "scales": Stored("n", "f"),
    "margins": Stored("n", "f", infinite=True, needed=False),
    "agreement": Stored("n", "f", needed=False),
    "init_rows": Stored("k", "i", needed=False),
}


@dataclass(frozen=True)
class SavedModel:
    """A model as a file has it: all that makes an estimator fitted.

    Attributes
    ----------
    parameters : dict
        Parameters of the estimator.
    divergence : Divergence
        What it was fitted with.
    clustering : Clustering
        The result.
    engine : str
        Name of the engine that ran.
    feature_names : list of str or None
        Names of the features, if X had any.
    extra : dict
        What was saved along: ``"kind"`` of data, and parts by name.
    provenance : dict
        When, and with which versions, it was written.
    """

    parameters: dict[str, Any]
    divergence: Divergence
    clustering: Clustering
    engine: str
    feature_names: list[str] | None
    extra: dict[str, Any]
    provenance: dict[str, Any]


def write_model(path: str | os.PathLike[str], saved: SavedModel) -> None:
    """Write a model, whole or not at all.

    Parameters
    ----------
    path : str or path
        Where to.
    saved : SavedModel
        The model. Parameters that are code (a callable ``init``, a divergence or a random state of one's own) are
        refused: a file holds none.
    """
    found, extra = saved.clustering, dict(saved.extra)
    arrays: dict[str, Array | None] = {
        "centroids": found.centroids,
        "masses": found.masses,
        "labels": found.labels,
        "scales": found.scales,
        "margins": found.margins,
        "init_rows": found.init_rows,
        "agreement": None if found.agreement is None else found.agreement.rows,
        **{f"history.{name}": values for name, values in found.history.items()},
    }
    parameters = {name: _encode(name, value, arrays) for name, value in saved.parameters.items()}
    kind = extra.pop("kind", "matrix")
    parts = {}
    for name, part in extra.items():
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            arrays[f"extra.{name}"] = part
        else:
            parts[name] = part
    metadata = {
        "onmf_version": __version__,
        "kind": kind,
        "parameters": parameters,
        "divergence": _encode_divergence("divergence", saved.divergence),
        "fitted": {
            "objective": found.objective,
            "n_iter": found.n_iter,
            "stop_reason": found.stop_reason,
            "n_filled": found.n_filled,
            "n_sweeps": found.n_sweeps,
            "agreement": None if found.agreement is None else found.agreement.overall,
            "engine": saved.engine,
        },
        "provenance": saved.provenance or provenance(),
    }
    if saved.feature_names is not None:
        parts["feature_names_in"] = saved.feature_names
    contents = Container(metadata, {name: array for name, array in arrays.items() if array is not None}, parts)
    try:
        _model(contents)
    except ValueError as error:  # what nobody could read again is not written
        raise ValueError(f"The model cannot be saved: {str(error).rstrip('.')}.") from error
    write_container(path, contents, kind=FORMAT, version=VERSION)


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model; see :func:`onmf.load`.

    Parameters
    ----------
    path : str or path
        A file that :func:`write_model` wrote.

    Returns
    -------
    SavedModel
    """
    contents = read_container(path, kind=FORMAT, version=VERSION)
    try:
        return _model(contents)
    except ValueError as error:
        raise damaged(path, str(error).rstrip(".")) from error


def _model(contents: Container) -> SavedModel:
    """The model that a file describes, after every value in it was held against what it has to be."""
    head, arrays, parts = contents.metadata, contents.arrays, contents.parts
    k, p = _check_arrays(arrays)
    check({name: of_type(dict, "a record") for name in ("parameters", "divergence", "fitted", "provenance")}, head, "")
    check({"kind": TEXT}, head, "")
    divergence = _decode_divergence(head["divergence"])
    _check_centroids(divergence, arrays["centroids"], arrays["masses"])
    parameters = {name: _decode(name, value, arrays) for name, value in head["parameters"].items()}
    unknown = sorted(set(parameters) - set(PARAMETERS))
    if unknown:
        raise ValueError(f"unknown parameters: {', '.join(unknown)}")
    check({name: optional(rule) for name, rule in PARAMETERS.items()}, parameters, "parameter ")
    fitted = head["fitted"]
    check(
        {
            "objective": number(infinite=True),
            "n_iter": whole(),
            "stop_reason": TEXT,
            "n_filled": whole(0, k),
            "n_sweeps": whole(),
            "agreement": either(NOTHING, number()),
            "engine": TEXT,
        },
        fitted,
        "",
    )
    if fitted["agreement"] is not None and "agreement" not in arrays:
        raise ValueError("'agreement' is missing")
    check(dict.fromkeys(head["provenance"], TEXT), head["provenance"], "provenance ")
    clustering = Clustering(
        labels=arrays["labels"],
        scales=arrays["scales"],
        centroids=arrays["centroids"],
        objective=float(fitted["objective"]),
        n_iter=fitted["n_iter"],
        stop_reason=fitted["stop_reason"],
        history={name[8:]: values for name, values in arrays.items() if name.startswith("history.")},
        masses=arrays["masses"],
        n_filled=fitted["n_filled"],
        init_rows=arrays.get("init_rows"),
        parameters=parameters,
        margins=arrays.get("margins"),
        n_sweeps=fitted["n_sweeps"],
        agreement=None if fitted["agreement"] is None else Agreement(float(fitted["agreement"]), arrays["agreement"]),
    )
    extra = {**parts, **{name[6:]: values for name, values in arrays.items() if name.startswith("extra.")}}
    if "kind" in extra:
        raise ValueError("a part of it is called 'kind'")
    names = extra.pop("feature_names_in", None)
    if names is not None and not texts(p).fits(names):
        raise ValueError("its names of features are not those of its centroids")
    check_parts(head["kind"], extra, k, p)
    return SavedModel(
        parameters=parameters,
        divergence=divergence,
        clustering=clustering,
        engine=fitted["engine"],
        feature_names=names,
        extra={"kind": head["kind"], **extra},
        provenance=head["provenance"],
    )


def check(rules: Mapping[str, Rule], values: Mapping[str, Any], where: str) -> None:
    """Refuse values that are missing, or not what they have to be."""
    for name, rule in rules.items():
        if name not in values:
            if rule.needed:
                raise ValueError(f"{name!r} is missing")
        elif not rule.fits(values[name]):
            raise ValueError(f"its {where}{name} is {_shown(values[name])}, not {rule.what}")


def check_parts(kind: str, extra: Mapping[str, Any], k: int, p: int) -> None:
    """Refuse a model of a known kind, with k clusters of p features, that lacks what belongs to it."""
    known = get_kind(kind)
    check(known.rules(k, p), extra, "part ")
    known.check(extra)


def provenance() -> dict[str, Any]:
    """When, and with what, a model is being written."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "onmf": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _check_arrays(arrays: Mapping[str, Array]) -> tuple[int, int]:
    """Refuse arrays that cannot belong together. → clusters, features"""
    for name, stored in ARRAYS.items():
        if name not in arrays:
            if stored.needed:
                raise ValueError(f"{name!r} is missing")
        elif arrays[name].ndim != len(stored.shape) or arrays[name].dtype.name not in TYPES[stored.kind]:
            array = arrays[name]
            raise ValueError(
                f"its {name} have {array.ndim} axes of {array.dtype} values, not {len(stored.shape)} of "
                f"{' or '.join(TYPES[stored.kind])}"
            )
    (k, p), n = arrays["centroids"].shape, len(arrays["labels"])
    if not k or not p:
        raise ValueError("it has no centroids")
    sizes = {"k": k, "n": n, "p": p}
    for name, stored in ARRAYS.items():
        if name not in arrays:
            continue
        array, shape = arrays[name], tuple(sizes[letter] for letter in stored.shape)
        if array.shape != shape:
            raise ValueError(f"its {name} have the shape {array.shape}, not {shape}")
        if stored.kind == "f" and not (~np.isnan(array) if stored.infinite else np.isfinite(array)).all():
            raise ValueError(f"its {name} hold NaN{'' if stored.infinite else ' or infinity'}")
    labels = arrays["labels"]
    if n and not 0 <= labels.min() <= labels.max() < k:
        raise ValueError("a label names a cluster that is not there")
    if "init_rows" in arrays and (arrays["init_rows"] < 0).any():
        raise ValueError("its init_rows are no rows")
    for name, array in arrays.items():
        if name.startswith("history.") and array.ndim != 1:
            raise ValueError(f"its {name} is no list of numbers")
    moved = arrays.get("history.moved", np.empty(0))
    if not ((moved >= 0) & (moved <= 2**53)).all():
        raise ValueError("its history.moved are no numbers of rows")
    return k, p


def _check_centroids(divergence: Divergence, C: Array, masses: Array) -> None:
    """Refuse centroids that rows cannot be compared with, or whose sum cannot be told."""
    if divergence.domain != "real" and (C < 0).any():
        raise ValueError(f"its centroids have negative entries, which {divergence.name} does not allow")
    with np.errstate(all="ignore"):
        finite = [np.isfinite(values).all() for values in (divergence.normalise(C), masses @ C)]
        comparable = (divergence.templates(C) < np.inf).all()  # a zero may cost infinity, and is then -inf
    if not (all(finite) and comparable):
        raise ValueError("its centroids are too large or too small to compute with")


def is_array(value: Any, kinds: str) -> bool:
    """Whether this is an array of numbers of some kinds, none of them too large to be squared."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        return False
    return bool((np.abs(value) < 1e100).all()) if value.dtype.kind == "f" else True


def record(rules: Mapping[str, Rule], *, closed: bool = False) -> Rule:
    """A record whose values fit rules; a closed one has no others."""

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or (closed and not set(value) <= set(rules)):
            return False
        return all(rule.fits(value[name]) if name in value else not rule.needed for name, rule in rules.items())

    wanted = "; ".join(f"{name}: {rule.what}" for name, rule in rules.items())
    return Rule(fits, f"a record ({wanted})")


def _shown(value: Any) -> str:
    """How a value begins."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with the shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _encode(name: str, value: Any, arrays: dict[str, Array | None]) -> Any:
    """A parameter as JSON can say it; an array becomes one of ``arrays``."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Divergence):
        return _encode_divergence(name, value)
    if isinstance(value, Engine):
        return "auto"  # where data lives belongs to the machine, not to the model
    if not callable(value) and np.ndim(value) > 0:
        arrays[f"parameter.{name}"] = np.asarray(value)
        return {"array": f"parameter.{name}"}
    raise ValueError(
        f"{name}={value!r} cannot be saved: a model file holds no code. Replace it, for instance with "
        f"model.set_params({name}=None), and save again."
    )


def _decode(name: str, value: Any, arrays: Mapping[str, Array]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" not in value:
        return _decode_divergence(value)
    place = f"parameter.{name}"
    if value["array"] != place or place not in arrays:
        raise ValueError(f"the array of its parameter {name} is missing")
    return arrays[place]


def _encode_divergence(name: str, value: Divergence) -> dict[str, Any]:
    kind = type(value).__name__
    if getattr(divergences, kind, None) is not type(value):
        raise ValueError(
            f"{name}={value!r} cannot be saved: a model file holds no code, and only the divergences of "
            "onmf.divergence are known to whoever loads it."
        )
    return {"divergence": kind, **asdict(value)}


def _decode_divergence(value: dict[str, Any]) -> Divergence:
    name = value.get("divergence")
    kind = getattr(divergences, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Divergence):
        raise ValueError(f"it names a divergence {_shown(name)} that is unknown")
    numbers = {key: each for key, each in value.items() if key != "divergence"}
    known = {field.name: number() for field in fields(kind)}
    check({key: known.get(key, UNKNOWN) for key in numbers} | known, numbers, f"{name} ")
    return kind(**{field.name: float(numbers[field.name]) for field in fields(kind) if field.init})
