"""Fitted models as files: what of a model is written, and how it is read again.

The format is that of :mod:`onmf.container`; docs/model-file.md describes it for readers in other languages.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import scipy
import sklearn

from onmf import divergence as divergences
from onmf._version import __version__
from onmf.container import Container, damaged, read_container, write_container
from onmf.divergence import Array, Divergence
from onmf.engine import Engine
from onmf.result import Agreement, Clustering

FORMAT = "an onmf model"
VERSION = 1
ROWS = ("labels", "scales", "margins", "agreement")
"""Arrays with one number for each row of the fitted data."""


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
    filled = {name: array for name, array in arrays.items() if array is not None}
    write_container(path, Container(metadata, filled, parts), kind=FORMAT, version=VERSION)


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
    head, arrays, parts = contents.metadata, contents.arrays, contents.parts
    try:
        _check_arrays(arrays)
        parameters = {name: _decode(value, arrays) for name, value in head["parameters"].items()}
        fitted = head["fitted"]
        agreement = None if fitted["agreement"] is None else Agreement(float(fitted["agreement"]), arrays["agreement"])
        clustering = Clustering(
            labels=arrays["labels"],
            scales=arrays["scales"],
            centroids=arrays["centroids"],
            objective=float(fitted["objective"]),
            n_iter=int(fitted["n_iter"]),
            stop_reason=str(fitted["stop_reason"]),
            history={name[8:]: values for name, values in arrays.items() if name.startswith("history.")},
            masses=arrays["masses"],
            n_filled=int(fitted["n_filled"]),
            init_rows=arrays.get("init_rows"),
            parameters=parameters,
            margins=arrays.get("margins"),
            n_sweeps=int(fitted["n_sweeps"]),
            agreement=agreement,
        )
        extra = {"kind": str(head["kind"]), **parts}
        extra |= {name[6:]: values for name, values in arrays.items() if name.startswith("extra.")}
        names = extra.pop("feature_names_in", None)
        if names is not None and (
            not isinstance(names, list)
            or len(names) != clustering.centroids.shape[1]
            or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("its names of features are not those of its centroids")
        return SavedModel(
            parameters=parameters,
            divergence=_decode_divergence(head["divergence"]),
            clustering=clustering,
            engine=str(fitted["engine"]),
            feature_names=names,
            extra=extra,
            provenance=dict(head["provenance"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise damaged(path, what) from error


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


def _check_arrays(arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that cannot belong together."""
    C, labels = arrays["centroids"], arrays["labels"]
    if C.ndim != 2 or 0 in C.shape or labels.ndim != 1 or labels.dtype.kind != "i":
        raise ValueError("its centroids are no matrix, or its labels are no whole numbers")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(C):
        raise ValueError("a label names a cluster that is not there")
    for name, array in arrays.items():
        if name in ROWS and array.shape != labels.shape:
            raise ValueError(f"{name} has another length than labels")
        if array.dtype.kind == "f" and not name.startswith(("history.", "extra.")) and np.isnan(array).any():
            raise ValueError(f"{name} holds NaN")
    if arrays["masses"].shape != (len(C),) or arrays["scales"].shape != labels.shape:
        raise ValueError("its masses or scales have another length than its centroids or labels")


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


def _decode(value: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(value, dict):
        return arrays[value["array"]] if "array" in value else _decode_divergence(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError("a parameter is no number, text or array")


def _encode_divergence(name: str, value: Divergence) -> dict[str, Any]:
    kind = type(value).__name__
    if getattr(divergences, kind, None) is not type(value):
        raise ValueError(
            f"{name}={value!r} cannot be saved: a model file holds no code, and only the divergences of "
            "onmf.divergence are known to whoever loads it."
        )
    return {"divergence": kind, **asdict(value)}


def _decode_divergence(value: Any) -> Divergence:
    kind = getattr(divergences, value["divergence"], None)
    if not (isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Divergence):
        raise ValueError(f"it names a divergence {value['divergence']!r} that is unknown")
    known = {field.name for field in fields(kind) if field.init}
    return kind(**{name: float(number) for name, number in value.items() if name in known})
