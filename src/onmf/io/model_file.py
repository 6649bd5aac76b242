"""Fitted models as files.

The file is a container (:mod:`onmf.io.container`) whose contents follow :mod:`onmf.io.schema`. The page
docs/explanation/model-file.md describes the format for readers in other languages.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from inspect import isabstract, signature
from typing import Any

import numpy as np
import scipy
import sklearn

from onmf import divergence as divergences
from onmf._version import __version__
from onmf.backend import Backend
from onmf.data import Engine
from onmf.divergence import Array, Bregman, Convex, Divergence, NegativeBinomial
from onmf.divergence.consistency import check_consistent
from onmf.fit import Agreement, Clustering

from .container import Container, Refused, damaged, read_container, write_container
from .rules import FLAG, NULL, STRING, Rule, abbreviate, check, either, number, of_type, one_of, strings
from .schema import check_arrays, check_centroids, check_fitted, check_parameters, check_parts

SETTING = either(STRING, FLAG, NULL, number(), of_type(list, "a list"))
"""A field of a user's divergence."""

FORMAT = "an onmf model"
VERSION = 1


@dataclass(frozen=True)
class SavedModel:
    """The contents of a model file: everything that a fitted estimator needs.

    Attributes
    ----------
    parameters : dict
        Parameters of the estimator.
    divergence : Divergence
        The divergence of the fit.
    clustering : Clustering
        The result.
    engine : str
        Name of the engine that ran.
    feature_names : list of str or None
        Names of the features, if X had any.
    extra : dict
        The ``"kind"`` of data, and further parts by name.
    provenance : dict
        The date and the versions with which the file was written.
    """

    parameters: dict[str, Any]
    divergence: Divergence
    clustering: Clustering
    engine: str
    feature_names: list[str] | None
    extra: dict[str, Any]
    provenance: dict[str, Any]


def write_model(path: str | os.PathLike[str], saved: SavedModel) -> None:
    """Write a model file, whole or not at all.

    Parameters
    ----------
    path : str or path
        The file.
    saved : SavedModel
        The model. Parameters that are code (a callable ``init``, an unregistered divergence, a random state object) are
        refused, because the file holds no code.
    """
    clustering, extra = saved.clustering, dict(saved.extra)
    arrays: dict[str, Array | None] = {
        "centroids": clustering.centroids,
        "masses": clustering.masses,
        "labels": clustering.labels,
        "scales": clustering.scales,
        "margins": clustering.margins,
        "init_rows": clustering.init_rows,
        "agreement": None if clustering.agreement is None else clustering.agreement.rows,
        **{f"history.{name}": values for name, values in clustering.history.items()},
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
            "objective": clustering.objective,
            "n_iter": clustering.n_iter,
            "stop_reason": clustering.stop_reason,
            "n_filled": clustering.n_filled,
            "n_sweeps": clustering.n_sweeps,
            "agreement": None if clustering.agreement is None else clustering.agreement.overall,
            "engine": saved.engine,
        },
        "provenance": saved.provenance or provenance(),
    }
    if saved.feature_names is not None:
        parts["feature_names_in"] = saved.feature_names
    contents = Container(metadata, {name: array for name, array in arrays.items() if array is not None}, parts)
    try:
        if _model(contents).divergence != saved.divergence:
            raise ValueError(f"a file makes another object of {saved.divergence!r}: make its fields numbers or tuples")
    except ValueError as error:  # do not write a file that could not be read back
        raise ValueError(f"The model cannot be saved: {str(error).rstrip('.')}.") from error
    write_container(path, contents, kind=FORMAT, version=VERSION)


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model file; see :func:`onmf.load`.

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
    except Unregistered as error:
        raise Refused(f"{path} cannot be loaded: {error}") from error
    except ValueError as error:
        raise damaged(path, str(error).rstrip(".")) from error


def _model(contents: Container) -> SavedModel:
    """The model in a file. Every value is checked first."""
    metadata, arrays, parts = contents.metadata, contents.arrays, contents.parts
    k, p = check_arrays(arrays)
    check(dict.fromkeys(("parameters", "divergence", "fitted", "provenance"), of_type(dict, "a JSON object")), metadata)
    check({"kind": STRING}, metadata)
    divergence = _decode_divergence(metadata["divergence"])
    check_consistent(divergence, p)
    check_centroids(divergence, arrays["centroids"], arrays["masses"])
    parameters = {name: _decode(name, value, arrays) for name, value in metadata["parameters"].items()}
    check_parameters(parameters)
    fitted = metadata["fitted"]
    check_fitted(fitted, k)
    if fitted["agreement"] is not None and "agreement" not in arrays:
        raise ValueError("'agreement' is missing")
    check(dict.fromkeys(metadata["provenance"], STRING), metadata["provenance"], "provenance ")
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
        raise ValueError("it has a part named 'kind'")
    names = extra.pop("feature_names_in", None)
    if names is not None and not strings(p).fits(names):
        raise ValueError("its feature names do not match its centroids")
    check_parts(metadata["kind"], extra, k, p)
    return SavedModel(
        parameters=parameters,
        divergence=divergence,
        clustering=clustering,
        engine=fitted["engine"],
        feature_names=names,
        extra={"kind": metadata["kind"], **extra},
        provenance=metadata["provenance"],
    )


def provenance() -> dict[str, Any]:
    """The date, and the versions of this package and its dependencies."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "onmf": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _encode(name: str, value: Any, arrays: dict[str, Array | None]) -> Any:
    """A parameter as a JSON value; an array is added to ``arrays``."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Divergence):
        return _encode_divergence(name, value)
    if isinstance(value, Engine | Backend):
        return "auto"  # the engine depends on the machine that loads the model
    if not callable(value) and np.ndim(value) > 0:
        arrays[f"parameter.{name}"] = np.asarray(value)
        return {"array": f"parameter.{name}"}
    raise ValueError(
        f"{name}={value!r} cannot be saved: a model file holds no code. Replace it, for example with "
        f"model.set_params({name}=None), and save again."
    )


def _decode(name: str, value: Any, arrays: Mapping[str, Array]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" not in value:
        return _decode_divergence(value)
    key = f"parameter.{name}"
    if value["array"] != key or key not in arrays:
        raise ValueError(f"the array of its parameter {name} is missing")
    return arrays[key]


class Unregistered(ValueError):
    """A file names a divergence that is neither of onmf nor registered."""


def _encode_divergence(name: str, value: Divergence) -> dict[str, Any]:
    kind = type(value)
    if isinstance(value, Bregman):
        raise ValueError(
            f"{name}={value!r} cannot be saved: a model file holds no code, so no functions. Write a subclass of "
            "onmf.divergence.Divergence and register it."
        )
    if _known(kind.__name__) is not kind:
        raise ValueError(
            f"{name}={value!r} cannot be saved: a model file holds no code, and its class is not registered. Call "
            f"onmf.divergence.register({kind.__name__}) here, and where the model is loaded."
        )
    of_onmf = kind.__name__ not in divergences.REGISTERED
    settings = asdict(value) if of_onmf and not isinstance(value, Convex) else value.settings()
    return {"divergence": kind.__name__, **{key: _listed(each) for key, each in settings.items()}}


def _decode_divergence(value: dict[str, Any]) -> Divergence:
    name = value.get("divergence")
    kind = _known(name) if isinstance(name, str) else None
    if kind is None and isinstance(name, str) and name.isidentifier() and not hasattr(divergences, name):
        raise Unregistered(
            f"its divergence {name!r} is not part of onmf. Import the module that defines it, and call "
            f"onmf.divergence.register({name}) before you load the model."
        )
    if kind is None:
        raise ValueError(f"its divergence {abbreviate(name)} is unknown")
    parameters = {key: each for key, each in value.items() if key != "divergence"}
    made = [field.name for field in fields(kind) if field.init]
    known = {field.name: number() for field in fields(kind)}
    if kind.__name__ in divergences.REGISTERED:
        known = dict.fromkeys(signature(kind).parameters, SETTING)
    elif kind is NegativeBinomial:
        known = {"theta": either(number(), one_of("auto")), "scale": one_of("size", "fit"), "smoothing": number()}
    unknown = Rule(lambda value: False, "a known parameter")
    check({key: known.get(key, unknown) for key in parameters} | known, parameters, f"{name} ")
    if kind.__name__ in divergences.REGISTERED:
        try:
            return kind(**{key: _tupled(each) for key, each in parameters.items()})
        except Exception as error:  # of the user's own code
            raise ValueError(f"{name} does not take these values: {error}") from error
    if kind is NegativeBinomial:
        return kind(**parameters)
    return kind(**{key: float(parameters[key]) for key in made})


def _known(name: str) -> type[Divergence] | None:
    """The class of divergence that a file may name so, of onmf or registered."""
    kind = divergences.REGISTERED.get(name, getattr(divergences, name, None))
    concrete = isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Bregman and not isabstract(kind)
    return kind if concrete else None


def _listed(value: Any) -> Any:
    """A field of a divergence as JSON takes it."""
    if isinstance(value, tuple):
        return [_listed(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def _tupled(value: Any) -> Any:
    """The same from JSON."""
    if isinstance(value, dict):
        raise ValueError("it holds an object where a number or a text belongs")
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
