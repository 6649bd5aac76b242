"""Kinds of models: the entries that the file of each kind must have, and the command that uses it.

A model file names its kind, and ``extra_["kind"]`` of a loaded model repeats it. A new kind takes one entry in
:data:`KINDS`. The entry is a reference, because the modules that define kinds import the module of the model file. They
are imported on first use, which keeps ``import onmf`` fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from onmf.io.rules import optional, strings

KINDS = {
    "documents": "onmf.text.kind:DOCUMENTS",
    "matrix": "onmf.kinds:MATRIX",
    "image": "onmf.image.kind:IMAGE",
    "cells": "onmf.cells.kind:CELLS",
}
"""Where each kind is defined, as ``module:name``."""


def _no_rules(k: int, p: int) -> Mapping[str, Any]:
    return {}


def _only_names(k: int, p: int) -> Mapping[str, Any]:
    return {"names": optional(strings(k))}


def _top_features(model: Any, n: int) -> list[str]:
    names = get_kind(model.extra_["kind"]).feature_names(model.extra_)
    return [", ".join(top) for top in model.top_features(n, names)]


def _no_check(extra: Mapping[str, Any]) -> None:
    pass


def _no_names(extra: Mapping[str, Any]) -> None:
    return None


@dataclass(frozen=True)
class Kind:
    """A kind of model. ``extra`` stands for the entries that its file holds besides the model itself.

    Attributes
    ----------
    predict : str or None
        Function that runs ``onmf predict``, as ``module:name``; it takes the model and a
        :class:`onmf.cli.options.Request`. Only the command line imports it. None if the command does not support the
        kind.
    rules : callable
        A :class:`onmf.io.rules.Rule` for each entry of ``extra``, given the numbers of clusters and of features.
        Entries without a rule are not checked.
    check : callable
        Raises ValueError if the entries of ``extra`` contradict each other.
    feature_names : callable
        Names of the features, from ``extra``; None if they have no names.
    features, rows, clusters : str
        What the features are called (words, bands, genes), what the rows are (documents, pixels, cells), and what the
        clusters are (materials).
    first : int
        Number of the first cluster in what people read. In Python clusters count from 0.
    distinctive : callable
        What sets each cluster apart, as a line of text, given the model and a number of features.
    """

    predict: str | None = None
    rules: Callable[[int, int], Mapping[str, Any]] = _no_rules
    check: Callable[[Mapping[str, Any]], None] = _no_check
    feature_names: Callable[[Mapping[str, Any]], Sequence[str] | None] = _no_names
    features: str = "features"
    rows: str = "rows"
    clusters: str = "clusters"
    first: int = 0
    distinctive: Callable[[Any, int], list[str]] = _top_features


MATRIX = Kind(predict="onmf.cli.models:predict_matrix", rules=_only_names)
"""Plain matrices: no entries besides the model, except for names of clusters that were given later."""

UNKNOWN = Kind()
"""Any kind that is not registered. Its models can be loaded and shown."""


def get_kind(name: str) -> Kind:
    """Return the kind of this name; :data:`UNKNOWN` if there is none."""
    kind = resolve(KINDS[name]) if name in KINDS else UNKNOWN
    assert isinstance(kind, Kind)
    return kind


def resolve(reference: str) -> Any:
    """Import the object that ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
