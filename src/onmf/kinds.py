"""The registry of kinds of data: documents, images, cells, tables, and plain matrices.

A model file names its kind, and ``extra_["kind"]`` of a loaded model repeats it. A new kind takes one entry here. The
entry is a reference, so that a kind is imported when it is first used: ``import onmf`` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from onmf.door.kind import Kind

KINDS = {
    "documents": "onmf.text.kind:DOCUMENTS",
    "image": "onmf.image.kind:IMAGE",
    "cells": "onmf.cells.kind:CELLS",
    "table": "onmf.table:TABLE",
    "matrix": "onmf.door.kind:MATRIX",
}
"""Where each kind is defined, as ``module:name``."""


def get_kind(name: str) -> Kind:
    """The kind of this name. One that is not registered can be loaded and shown, and nothing else."""
    return cast("Kind", resolve(KINDS.get(name, "onmf.door.kind:UNKNOWN")))


def resolve(reference: str) -> Any:
    """Import the object that ``module:name`` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
